"""Checkpoint folders whose own files show whether they are whole: begun, sealed, checked, found again.

A folder ``checkpoint-N`` holds `UNFINISHED` while it is being written, and `STATE_FILE` once it is complete: that file
comes last, with a checksum of itself, the sizes of all other files and the checksums of neyman's own. So a folder that
a kill left behind differs from one that was damaged later, and from one that neyman never wrote.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Mapping
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

from neyman._files.atomic import make_durable, write_atomic
from neyman._files.json import loads
from neyman.errors import StateError

STATE_FILE = "neyman_state.json"
UNFINISHED = "neyman_unfinished"
VERSION = 4
_OWN = "neyman_"
_log = logging.getLogger("neyman")


def begin(folder: Path) -> None:
    """Make a checkpoint's folder and mark it as being written, whatever it held before."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f".{_OWN}*"):  # the rest of an atomic write that was killed
        left.unlink(missing_ok=True)
    # In this order a kill in between leaves the earlier checkpoint, which is whole, or an unfinished folder.
    (folder / UNFINISHED).touch()
    (folder / STATE_FILE).unlink(missing_ok=True)


def seal(folder: Path, state: Mapping[str, Any]) -> None:
    """Write the state, which makes the checkpoint whole, after every other file.

    Args:
        folder: the checkpoint's folder.
        state: JSON-safe, without the keys "version", "checksum" and "files".

    Raises:
        OSError: the disk does not take a file; the checkpoint stays unfinished.

    Guarantee: when this returns, the disk holds every file that the state lists, so that a power cut after it, which
    may find the older checkpoints removed, finds this one whole. Voided by a disk that reports writes too early.
    Cost: waits until the host's files are written out.
    """
    files = _inventory(folder)
    make_durable(folder, files)
    body = json.dumps({**state, "files": files})
    head = json.dumps({"version": VERSION, "checksum": _digest(body.encode())})
    write_atomic(folder / STATE_FILE, f"{head[:-1]}, {body[1:]}".encode())
    (folder / UNFINISHED).unlink(missing_ok=True)


def check(folder: Path) -> dict[str, Any]:
    """Return a checkpoint's state once its checksum and the sizes of all files hold.

    Raises:
        StateError: unfinished, not written by neyman, of another version, or damaged; the message names the file and
            the remedy. Files of the host are known by their size alone: a missing or shorter one is damaged.
    """
    try:
        return examine(folder)
    except FaultError as fault:
        raise refused(folder, str(fault)) from fault


def check_content(folder: Path, name: str, state: Mapping[str, Any]) -> None:
    """Compare the checksum of one of neyman's own files with the state that `check` returned.

    Raises:
        StateError: it is not of this checkpoint, cannot be read, or is damaged.
    """
    path = folder / name
    _, digest = state["files"].get(name, (0, None))
    try:
        found = _digest(path.read_bytes())
    except OSError as error:
        raise refused(folder, f"{path} cannot be read ({error})") from error
    if digest != found:
        raise refused(folder, f"{path} is damaged: it is not what was written with the checkpoint")


def last_whole(output_dir: str | PathLike[str]) -> Path | None:
    """Return the newest whole checkpoint of a run, and log the unfinished ones that are passed over.

    Args:
        output_dir: the folder of ``checkpoint-N`` folders.

    Returns:
        Its path; None where no checkpoint was ever finished, so that a run begins anew.

    Raises:
        StateError: a newer checkpoint is damaged, of another version, or was not written by neyman; the choice is
            left to the user, and the message names the file and the remedies.

    Cost: one read of the newest ``neyman_state.json``, and the size of each file beside it.
    """
    chosen, passed = None, []
    for folder in numbered(Path(output_dir)):
        if (folder / STATE_FILE).exists() or not is_unfinished(folder):
            check(folder)
            chosen = folder
            break
        passed.append(folder.name)
    if passed:
        _log.warning(
            "%s: the run died while it wrote %s; training goes on from %s",
            output_dir,
            ", ".join(passed),
            "the start, as no checkpoint was finished before" if chosen is None else chosen.name,
        )
    return chosen


def numbered(output_dir: Path) -> list[Path]:
    """Return the folders ``checkpoint-N`` of a run, whole or not, newest step first; no folder of another name."""
    found = [path for path in output_dir.glob("checkpoint-*") if path.is_dir() and step_of(path) >= 0]
    return sorted(found, key=step_of, reverse=True)


def step_of(folder: Path) -> int:
    """Return a checkpoint's step; -1 of another folder.

    >>> step_of(Path("run/checkpoint-40")), step_of(Path("run/checkpoint-40-backup"))
    (40, -1)
    """
    found = re.fullmatch(r"checkpoint-([0-9]+)", folder.name)
    return int(found[1]) if found else -1


def is_unfinished(folder: Path) -> bool:
    """Whether a kill left a folder while neyman wrote or removed it; an empty one was only made."""
    return (folder / UNFINISHED).exists() or not any(folder.iterdir())


def is_whole(folder: Path) -> bool:
    """Whether `check` would return the checkpoint's state."""
    try:
        examine(folder)
    except FaultError:
        return False
    return True


def remove(folder: Path) -> None:
    """Remove a checkpoint that neyman wrote, so that a kill on the way leaves an unfinished one.

    A link is left alone, and a file that cannot be removed is logged: neither is worth a run.
    """
    if folder.is_symlink():
        return
    try:
        begin(folder)
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != UNFINISHED:
                path.unlink()
        (folder / UNFINISHED).unlink()
        folder.rmdir()
    except OSError as error:
        _log.warning("%s: the old checkpoint cannot be removed (%s)", folder, error)


def refused(folder: Path, fault: str) -> StateError:
    """Return the error for a checkpoint that cannot be resumed, from the file and its fault, with the remedy."""
    older = (other for other in numbered(folder.parent) if step_of(other) < step_of(folder))
    whole = next(filter(is_whole, older), None)
    if whole is None:
        return StateError(
            f"{fault}. No earlier checkpoint beside it is whole: put back a copy of this one, or start a new run in "
            "another folder"
        )
    return StateError(
        f"{fault}. Resume from {whole}, the last whole checkpoint before it (remove {folder} if it is to be found "
        "by itself), or put back a copy of this one"
    )


class FaultError(Exception):
    """The fault of a checkpoint, without the remedy."""


def examine(folder: Path) -> dict[str, Any]:
    """Return a folder's state once its checksum and the sizes of all files hold; for hosts with folders of other names.

    Raises:
        FaultError: in the cases in which `check` raises, without the remedy.
    """
    state = _read(folder)
    for name, (size, _) in state["files"].items():
        path = folder / name
        if not path.is_file():
            raise FaultError(f"{path} is missing, which the checkpoint had when it was written")
        found = path.stat().st_size
        if found < size:
            raise FaultError(f"{path} is damaged: it has {found} bytes of the {size} that were written")
    return state


def _read(folder: Path) -> dict[str, Any]:
    path = folder / STATE_FILE
    try:
        state = loads(path.read_bytes())
    except FileNotFoundError:
        raise FaultError(f"{path} is missing: {_why_missing(folder)}") from None
    except OSError as error:
        raise FaultError(f"{path} cannot be read ({error})") from error
    except ValueError as error:
        raise FaultError(f"{path} is damaged ({error})") from error
    if not isinstance(state, dict):
        raise FaultError(f"{path} is damaged: it holds no neyman state")
    version = state.pop("version", None)
    if version != VERSION:
        raise FaultError(
            f"{path} has version {version!r}, this neyman reads version {VERSION}: resume with the neyman that wrote it"
        )
    if state.pop("checksum", None) != _digest(json.dumps(state).encode()):
        raise FaultError(
            f"{path} is damaged: its content does not have the checksum that it was written with"
        )
    if not _is_inventory(state.get("files")):
        raise FaultError(
            f"{path} is damaged: 'files' does not give the size and the checksum of each file of the checkpoint"
        )
    return state


def _is_inventory(files: object) -> bool:
    """Whether this is an inventory as JSON holds it."""
    return isinstance(files, dict) and all(_is_entry(name, entry) for name, entry in files.items())


def _is_entry(name: str, entry: object) -> bool:
    path = PurePosixPath(name)
    if "\0" in name or path.is_absolute() or ".." in path.parts:  # none of the folder's own
        return False
    if not isinstance(entry, list) or len(entry) != 2:
        return False
    size, digest = entry
    return type(size) is int and size >= 0 and (digest is None or isinstance(digest, str))


def _why_missing(folder: Path) -> str:
    if not folder.is_dir():
        return "there is no such folder"
    if is_unfinished(folder):
        return "the checkpoint is unfinished, as the run died while it was written"
    return "neyman did not finish this checkpoint, or it was removed; the stock trainer can go on without it"


def _inventory(folder: Path) -> dict[str, tuple[int, str | None]]:
    """Return the size of every file, and the checksum of neyman's own.

    Texts for people may be edited, so they are left out.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        skipped = name in {STATE_FILE, UNFINISHED} or name.startswith(".") or path.suffix == ".md"
        if path.is_file() and not skipped:
            own = name.startswith(_OWN)
            found[name] = (path.stat().st_size, _digest(path.read_bytes()) if own else None)
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
