"""Files that are whole or absent, whatever kills the process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file in an existing folder so that readers and crashes see the old content or the new, never a part."""
    with atomic(path) as file:
        file.write(data)


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes a path when the block ends well, and is removed when it does not; its folder exists."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _keep_names(path.parent)


def make_durable(folder: Path, names: Iterable[str]) -> None:
    """Wait until the disk holds files that others wrote, given relative to a folder, and their names.

    Raises:
        OSError: the disk does not take one of them.
    """
    paths = [folder / name for name in names]
    for path in paths:
        # Windows waits only for a file that is open for writing.
        descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    within = {parent for path in paths for parent in path.parents if parent.is_relative_to(folder)}
    for parent in sorted({*within, folder, folder.parent}):
        _keep_names(parent)


def _keep_names(folder: Path) -> None:
    """Wait until the disk holds a folder's new names, where the system reports that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # not on Windows
        return
    try:
        os.fsync(descriptor)
    except OSError:  # nor on every network file system
        pass
    finally:
        os.close(descriptor)
