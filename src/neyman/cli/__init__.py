"""The `neyman` command: train, report, demo, compare, replay, plan."""

from neyman.errors import missing_extra

try:
    import pydantic as _pydantic  # noqa: F401
    import rich as _rich  # noqa: F401
    import tyro as _tyro  # noqa: F401
except ImportError as error:
    raise missing_extra(str(error.name), "train,cli", "the neyman command") from error

from neyman.cli._main import main as main

__all__ = ["main"]
