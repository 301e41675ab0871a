"""Saved states: JSON-safe, versioned, with an exact key set.

An array is saved as ``{"dtype": "<f8", "shape": [n, ...], "data": base64}``: the little-endian bytes in C
order, so that a million prompts take a few megabytes and every bit survives. Prompt ids are a plain list, in
which JSON keeps ``1`` and ``"1"`` apart.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman.errors import StateError

_LARGEST = 1e150  # of a single number: its square is finite
_DTYPES = {"<f8": np.dtype("<f8"), "<i8": np.dtype("<i8")}


def pack_array(array: NDArray[np.float64] | NDArray[np.int64]) -> dict[str, Any]:
    """Return a float64 or int64 array as JSON-safe data.

    >>> unpack_array("x", pack_array(np.array([1.5, 2.5]))).tolist()
    [1.5, 2.5]
    """
    code = "<f8" if array.dtype == np.float64 else "<i8"
    raw = np.ascontiguousarray(array, dtype=_DTYPES[code])
    return {
        "dtype": code,
        "shape": list(array.shape),
        "data": base64.b64encode(raw.tobytes()).decode("ascii"),
    }


def unpack_array(name: str, packed: Any, *, shape: Sequence[int | None] | None = None) -> NDArray[Any]:
    """Return the array behind the data of ``pack_array``, writable and in native byte order, or raise ``StateError``.

    None in a place of the legal ``shape`` allows any length there; ``name`` is the key, for the message.
    """
    if not isinstance(packed, Mapping) or set(packed) != {"dtype", "shape", "data"}:
        raise StateError(f"state[{name!r}] must be a packed array with dtype, shape and data")
    if not isinstance(packed["dtype"], str) or packed["dtype"] not in _DTYPES:
        raise StateError(
            f"state[{name!r}] has dtype {packed['dtype']!r:.80}, expected one of {sorted(_DTYPES)}"
        )
    dims, data = packed["shape"], packed["data"]
    if not isinstance(dims, list) or not all(type(length) is int for length in dims):
        raise StateError(f"state[{name!r}] is damaged: its shape must hold whole numbers, got {dims!r:.80}")
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise StateError(f"state[{name!r}] is damaged: {error}") from error
    # Decoders skip stray bits, so that different texts could stand for one state: only the canonical text is legal.
    if base64.b64encode(raw).decode("ascii") != data:
        raise StateError(f"state[{name!r}] is damaged: it is no base64 as it is written")
    if min(dims, default=0) < 0 or len(raw) != 8 * math.prod(dims):
        raise StateError(f"state[{name!r}] is damaged: {len(raw)} bytes do not fill shape {dims}")
    if shape is not None and (
        len(shape) != len(dims) or any(s not in (None, d) for s, d in zip(shape, dims, strict=True))
    ):
        raise StateError(f"state[{name!r}] has shape {dims}, expected {list(shape)}")
    dtype = _DTYPES[packed["dtype"]]
    return np.frombuffer(raw, dtype=dtype).reshape(dims).astype(dtype.newbyteorder("="), copy=True)


def check_state(
    state: Any, *, kind: str, version: int, config: Mapping[str, Any], keys: Sequence[str]
) -> None:
    """Check a saved state's kind, version, configuration and exact key set.

    Raises:
        StateError: names the differences and how to load the state.
    """
    if not isinstance(state, Mapping):
        raise StateError(f"a saved belief must be a mapping, got {type(state).__name__}")
    if state.get("kind") != kind:
        raise StateError(
            f"the saved belief is of kind {state.get('kind')!r}, this one is {kind!r}; "
            "load it into a belief of its own kind"
        )
    if state.get("version") != version or type(state["version"]) is not int:
        raise StateError(f"the saved {kind} has version {state.get('version')!r}, this code reads {version}")
    expected = {"kind", "version", "config", *keys}
    if set(state) != expected:
        missing, extra = sorted(expected - set(state)), sorted(map(str, set(state) - expected))
        raise StateError(f"the saved {kind} has other keys: missing {missing}, unknown {extra}")
    saved = state["config"]
    if not isinstance(saved, Mapping) or set(saved) != set(config):
        raise StateError(f"the saved {kind} has another set of options: {saved!r:.200}")
    differs = [
        f"{key} is {saved[key]!r}, here {config[key]!r}" for key in config if saved[key] != config[key]
    ]
    if differs:
        raise StateError(f"the saved {kind} was configured otherwise: {'; '.join(differs)}")


def check_number(name: str, value: Any, *, low: float = -math.inf, high: float = math.inf) -> float:
    """Return a saved finite number within [low, high], or raise ``StateError``."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) <= _LARGEST:  # NaN is not
        raise StateError(f"state[{name!r}] must be a finite number, got {value!r:.80}")
    if not low <= value <= high:
        raise StateError(f"state[{name!r}] must be in [{low}, {high}], got {value!r}")
    return float(value)


def check_clock(value: Any) -> int:
    """Return a saved step clock, a whole number >= 0, or raise ``StateError``."""
    if type(value) is not int or not 0 <= value <= 2**53:
        raise StateError(f"state['clock'] must be a whole number in [0, 2^53], got {value!r:.80}")
    return value
