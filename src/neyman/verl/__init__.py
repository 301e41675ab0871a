"""neyman inside verl: ``trainer.v1.trainer_mode=neyman_sync`` is verl's synchronous trainer under a strategy.

verl imports this module by itself, through the entry point ``verl.plugins``, in every process of the cluster. The
strategy is named in verl's own configuration:

    python -m verl.trainer.main_ppo ... trainer.v1.trainer_mode=neyman_sync +neyman.strategy=sara

All keys below ``neyman`` are those of `Settings`. Everything else stays verl's: engines, workers, reward functions,
losses, and the advantage estimator, with or without a critic.
"""

from __future__ import annotations

import logging
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from neyman.errors import missing_extra

# A folder of that name on the path is found, too, but is no package of code.
if (_spec := find_spec("verl")) is None or _spec.origin is None:
    raise missing_extra("verl", "verl", "neyman.verl")
if find_spec("wrapt") is None:
    _missing = missing_extra("wrapt", "verl", "neyman.verl")
    # verl drops a plugin's error, so that a run would only complain of an unknown trainer.
    logging.getLogger("neyman").warning("neyman_sync is not available in verl: %s", _missing)
    raise _missing

import wrapt

if TYPE_CHECKING:
    from neyman.verl._settings import Settings
    from neyman.verl._trainer import NeymanTrainerSync

_HOME = {"NeymanTrainerSync": "_trainer", "Settings": "_settings"}
__all__ = ["NeymanTrainerSync", "Settings"]


# Only the processes that import verl's trainers take the time for ours: workers and stock runs with others do not.
@wrapt.when_imported("verl.trainer.ppo.v1")  # type: ignore[untyped-decorator, unused-ignore]
def _register(_trainers: ModuleType) -> None:
    try:
        import_module("neyman.verl._trainer")
    except Exception as error:
        logging.getLogger("neyman").warning("neyman_sync is not available in verl: %s", error)
        raise


def __getattr__(name: str) -> Any:
    """Import the public names on first use."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
