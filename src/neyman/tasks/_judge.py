"""The process in which one judge runs, by `main`; its arguments are ``module:function seconds bytes [module ...]``.

Reads requests from standard input (4 bytes of length, then JSON ``[completion, answer, metadata]``), and answers each
with one line of JSON on the original standard output. The judge's own prints are discarded, so that they cannot break
the protocol. A judge that hangs is killed from outside; should the parent itself die meanwhile, the limit on processor
seconds, raised before each request, ends the process also where no Python code runs.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import math
import os
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

HEADER = struct.Struct("<I")
# Replies fit one atomic pipe write (4096 bytes on Linux), so the parent reads each at once.
_ERROR_CHARACTERS = 600


def resolve(path: str) -> Callable[[str, str, dict[str, Any]], bool | None]:
    """Import ``module:qualified.name``.

    >>> resolve("math:isclose")(1.0, 1.0)
    True
    """
    module, _, name = path.partition(":")
    found: Any = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    return found  # type: ignore[no-any-return]


def _limit_memory(limit: int) -> None:
    """Bound the address space, where the system can: a huge power then raises MemoryError."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 - POSIX only

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _limit_processor(seconds: float) -> None:
    """Let the system end this process when it has computed for ``seconds`` from now."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 - POSIX only

        usage = resource.getrusage(resource.RUSAGE_SELF)
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        soft = math.ceil(usage.ru_utime + usage.ru_stime + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _read(stream: BinaryIO) -> Any:
    """Return the next request, or None when the parent has gone."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    body = stream.read(HEADER.unpack(header)[0])
    return json.loads(body)


def _reply(output: int, **reply: Any) -> None:
    os.write(output, json.dumps(reply).encode() + b"\n")


def decided(verdict: Any) -> bool | None:
    """Take True, False, 1, 0 and None for a verdict: the truth of other values (NaN, "False", 0.3) means nothing.

    >>> decided(1), decided(False), decided(None)
    (True, False, None)
    """
    if verdict is None:
        return None
    with contextlib.suppress(Exception):  # an array of several values, or an object of the user's
        if verdict in (0, 1):
            return bool(verdict)
    raise TypeError(
        f"the judge must return True, False or None, got {verdict!r:.100} ({type(verdict).__name__}); compare with a "
        "threshold, or wrap it in bool() where its truth is meant"
    )


def main() -> None:
    """Import the judge and its modules, then serve requests until standard input ends."""
    path, seconds, limit, preload = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    output = os.dup(1)
    void = os.open(os.devnull, os.O_WRONLY)
    os.dup2(void, 1)
    try:
        judge = resolve(path)
        for module in preload:
            importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 - any error of the import is reported to the parent
        _reply(output, fatal=f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS])
        return
    _limit_memory(limit)
    os.dup2(void, 2)
    _reply(output, ready=True)
    while (request := _read(sys.stdin.buffer)) is not None:
        _limit_processor(2.0 * seconds + 5.0)
        try:
            _reply(output, verdict=decided(judge(*request)))
        except Exception as error:  # noqa: BLE001 - a judge that raises gives no verdict, and the reason
            reason = f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS]
            _reply(output, error=reason, memory=isinstance(error, MemoryError))
