"""Files that are whole or absent, whatever kills the process."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that readers and crashes see the old content or the new, never a part.

    Args:
        path: the file; its folder exists.
        data: the content.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _make_durable(path.parent)


def _make_durable(folder: Path) -> None:
    """Wait until the disk has a folder's new names, where the system can say so."""
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
