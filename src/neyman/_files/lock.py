"""A folder that one process at a time writes."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any, final

from neyman._files.atomic import write_atomic


@final
class FolderLock:
    """Holds a folder for this process.

    Args:
        folder: the folder; it is made where it is missing.
        name: the lock's file in it, which stays there; who holds it is in a file beside, named ``name`` + ".holder".

    Guarantee: the system releases it when the process ends, however it ends; a fork of the process keeps it for as
    long as the fork lives. On a file system without locks nothing is held: a file with the holder's name, in place of
    a lock, would outlive a killed process. Across machines it holds where the network file system passes locks on.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / name
        self._holder = folder / f"{name}.holder"
        self._lock: Any = None

    def take(self, seconds: float) -> str | None:
        """Take the folder, or return who holds it; where it cannot be locked, log a warning and go on without.

        Args:
            seconds: how long to wait for it, in [0, inf).

        Returns:
            None when no other process holds it, else a description of the holder.
        """
        try:
            return self._take(seconds)
        except OSError as error:
            logging.getLogger("neyman").warning(
                "%s cannot be locked (%s): see to it that no other training writes there",
                self._path.parent,
                error,
            )
            return None

    def _take(self, seconds: float) -> str | None:
        from filelock import FileLock, Timeout  # noqa: PLC0415 - an extra, and comes with torch

        self._path.parent.mkdir(parents=True, exist_ok=True)
        _check_locks(self._path.parent)
        lock = FileLock(self._path)
        try:
            lock.acquire(timeout=seconds)
        except Timeout:
            return self._who()
        self._lock = lock
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        with contextlib.suppress(OSError):  # a full disk: the folder is held all the same
            write_atomic(
                self._holder, f"process {os.getpid()} on {socket.gethostname()}, since {since}".encode()
            )
        return None

    def release(self) -> None:
        """Release it, where it is held."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._holder.unlink(missing_ok=True)
            self._lock.release()
            self._lock = None

    def _who(self) -> str:
        """Return the holder; for the moment between taking the lock and writing this file, the one before."""
        try:
            return self._holder.read_text("utf-8", errors="replace")[:200]
        except OSError:
            return "a process that has not named itself"


def _check_locks(folder: Path) -> None:
    """Raise an OSError where a folder's file system has no locks, as Lustre by default: filelock may not notice."""
    try:
        import fcntl  # noqa: PLC0415 - POSIX only
    except ImportError:
        return
    with tempfile.TemporaryFile(dir=folder) as file:
        fcntl.flock(file, fcntl.LOCK_UN)
