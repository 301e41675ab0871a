"""The policy that all runs of a training start from."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neyman.config import Config

NAME = "policy"


def policy_path(config: Config, out: Path) -> str:
    """Return the argument of ``from_pretrained``: the folder made by `make_policy`, or the user's own model."""
    made = config.model.is_tiny or config.model.gguf_file is not None
    return str(out / NAME) if made else config.model.path


def make_policy(config: Config, out: Path, progress: Callable[[int, int], None]) -> None:
    """Put the starting policy into the training's directory, once: the tiny one, or plain weights from GGUF.

    ``progress`` is called with (steps done, steps) while the tiny policy is warm-started.
    """
    folder = Path(policy_path(config, out))
    if folder.parent != out or folder.exists():
        return
    partial = out / f".{NAME}"
    shutil.rmtree(partial, ignore_errors=True)
    if config.model.is_tiny:
        shutil.copytree(_tiny(config, progress), partial)
    else:
        _from_gguf(config, partial)
    partial.rename(folder)


def _tiny(config: Config, progress: Callable[[int, int], None]) -> Path:
    from neyman.tasks import rules_policy  # noqa: PLC0415 - needed only where no policy was made yet

    steps = config.model.warm_start_steps
    task = config.task
    assert task.type == "rules"
    return rules_policy(
        task.regime,
        seed=task.seed,
        cache=config.model.cache,
        progress=lambda done, _loss: progress(done, steps),
        steps=steps,
    )


def _from_gguf(config: Config, folder: Path) -> None:
    """Save GGUF weights as a plain checkpoint, since transformers cannot save a model that it loaded from GGUF."""
    import torch  # noqa: PLC0415 - as above
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - as above

    source, file = config.model.path, config.model.gguf_file
    loaded: Any = AutoModelForCausalLM.from_pretrained(source, gguf_file=file)
    shape = loaded.config.to_dict()
    shape.pop("quantization_config", None)
    model = type(loaded)(type(loaded.config).from_dict(shape))
    model.load_state_dict(loaded.state_dict())
    model.to(getattr(torch, config.model.dtype)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=file).save_pretrained(folder)
