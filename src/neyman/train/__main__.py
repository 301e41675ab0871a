"""A process that works for `train_all`: ``python -m neyman.train prepare OUT`` or ``... run OUT STRATEGY SEED``.

It ends when its standard input does: the parent holds the other side and never writes, so the end of the parent ends
this process too, at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from pathlib import Path

from neyman._files.atomic import write_atomic
from neyman._files.lock import FolderLock
from neyman._jobs import end_with_parent
from neyman.config import from_mapping, read_toml
from neyman.errors import NeymanError, RunFailedError
from neyman.train._folder import RunFolder

_LOCK_SECONDS = 20.0


def _prepare(out: Path) -> None:
    """Build the policy that all runs share, and find faults of the settings before any run starts."""
    from neyman.train._policy import make_policy  # noqa: PLC0415 - imports torch where it has to

    config = from_mapping(read_toml(out / "config.toml"))
    for name in config.arms:
        config.build_strategy(name)
    config.build_task()
    path = out / "prepare.json"

    def progress(done: int, steps: int) -> None:
        if done % 10 == 0 or done == steps:
            write_atomic(path, json.dumps({"done": done, "steps": steps}).encode())

    make_policy(config, out, progress)
    write_atomic(path, json.dumps({"finished": True}).encode())


def _run(out: Path, strategy: str, seed: int) -> None:
    config = from_mapping(read_toml(out / "config.toml"))
    folder = out / RunFolder.name(strategy, seed)
    folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder, ".lock")
    holder = lock.take(_LOCK_SECONDS)
    if holder is not None:
        raise RunFailedError(f"another process is training {folder} ({holder}); wait for it, or end it")
    if config.model.is_tiny:
        import torch  # noqa: PLC0415 - once the run is sure to be this process's

        torch.set_num_threads(1)
    from neyman.train._run import run_one  # noqa: PLC0415 - as above

    run_one(config, out, strategy, seed)


def main(arguments: list[str]) -> int:
    """Do one piece of work; the last line of standard error is the error, if any."""
    end_with_parent()
    work, out, *rest = arguments
    try:
        if work == "prepare":
            _prepare(Path(out))
        else:
            _run(Path(out), rest[0], int(rest[1]))
    except NeymanError as error:
        traceback.print_exc()
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: threads of trackers or tokenizers must not keep a finished run alive.
    os._exit(code)
