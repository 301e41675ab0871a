"""Input checks in one place: each knows the argument's name, and its error has the mend.

Public functions of the mathematics call these on their first lines; checked arrays are float64 or int64,
of the right rank, finite and in range, so the code behind them needs no defence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman.errors import ArgumentError, InfeasibleError

FloatP = NDArray[np.float64]  # one float per prompt
IntP = NDArray[np.int64]  # one integer per prompt
MOST_BITS = 2048  # of a whole number that can be shown and saved as digits


def _show(value: np.float64) -> str:
    return np.array2string(np.asarray(value), precision=6)


def float_array(name: str, value: ArrayLike, *, ndim: int | None = None) -> FloatP:
    """Return ``value`` as float64, or raise when it is not numeric or has another rank."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{name} must be numeric, got {value!r:.120}: {error}") from error
    if ndim is not None and array.ndim != ndim:
        raise ArgumentError(f"{name} must have {ndim} dimension(s), got shape {array.shape}")
    return array


def rate_array(name: str, value: ArrayLike, *, ndim: int | None = None) -> FloatP:
    """Return probabilities in [0, 1] as float64; NaN, infinities and anything outside raise."""
    array = float_array(name, value, ndim=ndim)
    mend = "; replace missing rates by a prior guess such as 0.5"
    return _all_legal(name, array, (array >= 0.0) & (array <= 1.0), "a probability in [0, 1]", mend)


def nonnegative_array(name: str, value: ArrayLike, *, ndim: int | None = None) -> FloatP:
    """Return finite non-negative numbers as float64; anything else raises."""
    array = float_array(name, value, ndim=ndim)
    return _all_legal(name, array, np.isfinite(array) & (array >= 0.0), "finite and >= 0")


def _all_legal(name: str, array: FloatP, legal: NDArray[np.bool_], contract: str, mend: str = "") -> FloatP:
    """Return the array, or raise naming its first illegal entry."""
    if not legal.all():
        first = int(np.flatnonzero(~legal.ravel())[0])
        where = f" at index {first}" if array.ndim else ""
        raise ArgumentError(f"{name} must be {contract}, got {_show(array.ravel()[first])}{where}{mend}")
    return array


def int_array(name: str, value: ArrayLike, *, low: int | None = None, ndim: int | None = None) -> IntP:
    """Return integers as int64; fractions, NaN and values below ``low`` raise."""
    array = float_array(name, value, ndim=ndim)
    bad = ~(np.isfinite(array) & (array == np.floor(array)))
    if bad.any():
        raise ArgumentError(f"{name} must hold whole numbers, got {_show(array[bad].ravel()[0])}")
    if low is not None and (array < low).any():
        raise ArgumentError(f"{name} must be >= {low}, got {_show(array[array < low].ravel()[0])}")
    return array.astype(np.int64)


def integer(name: str, value: Any, *, low: int | None = None, high: int | None = None) -> int:
    """Return one whole number within [low, high], or raise naming the legal range."""
    if type(value) is int and (low is None or value >= low) and (high is None or value <= high):
        return value  # nearly every call, and there is one for each rollout
    given: Any = value  # np.isscalar narrows the type to more than int() takes
    if isinstance(value, bool) or not np.isscalar(value) or isinstance(value, str | bytes):
        raise ArgumentError(f"{name} must be a whole number, got {given!r}")
    if not isinstance(value, int):
        number = float(np.real(given))
        if not np.isfinite(number) or number != np.floor(number) or np.iscomplexobj(given):
            raise ArgumentError(f"{name} must be a whole number, got {given!r}")
    whole = int(given)
    if (low is not None and whole < low) or (high is not None and whole > high):
        legal = f">= {low}" if high is None else f"<= {high}" if low is None else f"in [{low}, {high}]"
        raise ArgumentError(f"{name} must be {legal}, got {_digits(whole)}")
    return whole


def _digits(whole: int) -> str:
    """Show a whole number, however large: Python refuses to write out thousands of digits."""
    return str(whole) if whole.bit_length() <= MOST_BITS else f"a number of {whole.bit_length():,} bits"


def multiple(name: str, value: int, divisor: int) -> int:
    """Return ``value`` when it is a multiple of ``divisor``, or raise naming the nearest legal values."""
    if value % divisor:
        below, above = value // divisor * divisor, (value // divisor + 1) * divisor
        legal = f"the nearest are {below} and {above}" if below else f"the least is {above}"
        raise ArgumentError(f"{name} must be a multiple of divisor={divisor}, got {value}; {legal}")
    return value


def real(
    name: str, value: Any, *, low: float | None = None, high: float | None = None, open_low: bool = False
) -> float:
    """Return one finite number within [low, high] (or (low, high] with ``open_low``), or raise."""
    if isinstance(value, bool | np.bool_ | str | bytes):
        raise ArgumentError(f"{name} must be a number, got {value!r}")
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{name} must be a number, got {value!r}") from error
    except OverflowError as error:
        raise ArgumentError(f"{name} must be a number within floats, got {_digits(int(value))}") from error
    below = low is not None and (number <= low if open_low else number < low)
    if not np.isfinite(number) or below or (high is not None and number > high):
        bracket = "(" if open_low else "["
        legal = f"{bracket}{'-inf' if low is None else low}, {'inf' if high is None else high}]"
        raise ArgumentError(f"{name} must be a finite number in {legal}, got {value!r}")
    return number


def prompt_ids(name: str, value: Iterable[Any]) -> list[str | int]:
    """Return prompt ids as a list of ``str`` and ``int``; a lone string and other types raise."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ArgumentError(
            f"{name} must be a sequence of prompt ids, got {value!r:.80}; wrap one id in a list"
        )
    items = value.tolist() if isinstance(value, np.ndarray) else list(value)
    if any(isinstance(item, int) and item.bit_length() > MOST_BITS for item in items):
        raise ArgumentError(
            f"{name} must hold integers of at most {MOST_BITS:,} bits; use text for longer names"
        )
    if set(map(type, items)) <= {str, int}:
        return items
    ids: list[str | int] = []
    for item in items:
        if isinstance(item, str):
            ids.append(str(item))
        elif isinstance(item, int | np.integer) and not isinstance(item, bool):
            ids.append(int(item))
        else:
            raise ArgumentError(
                f"{name} must hold strings or integers, got {item!r:.80} ({type(item).__name__})"
            )
    return ids


def counts_pair(successes: ArrayLike, trials: ArrayLike, *, length: int | None = None) -> tuple[IntP, IntP]:
    """Return successes and trials as int64 of one length, with 0 <= successes <= trials, or raise."""
    s = int_array("successes", successes, low=0, ndim=1)
    n = int_array("trials", trials, low=0, ndim=1)
    same_length(successes=s, trials=n)
    if length is not None and len(n) != length:
        raise ArgumentError(f"successes and trials must have one entry per id ({length}), got {len(n)}")
    bad = np.flatnonzero(s > n)
    if len(bad):
        raise ArgumentError(f"successes must be <= trials, got {s[bad[0]]} of {n[bad[0]]} at index {bad[0]}")
    return s, n


def sizes_per_prompt(name: str, value: ArrayLike, length: int) -> IntP:
    """Return group sizes >= 1, one per prompt, from one number or one per prompt."""
    sizes = int_array(name, value, low=1)
    if sizes.ndim > 1 or (sizes.ndim == 1 and len(sizes) != length):
        raise ArgumentError(
            f"{name} must be one number or one per prompt ({length}), got shape {sizes.shape}"
        )
    return np.broadcast_to(sizes, (length,))


def feature_matrix(
    name: str, value: ArrayLike, *, rows: int, columns: int | None = None
) -> NDArray[np.float32]:
    """Return finite features as a C-ordered float32 matrix of this many rows (and columns), or raise."""
    try:
        matrix = np.ascontiguousarray(value, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{name} must be a numeric matrix, one row per id: {error}") from error
    if matrix.ndim != 2 or matrix.shape[0] != rows or matrix.shape[1] < 1:
        raise ArgumentError(f"{name} must have shape ({rows}, F) with F >= 1, got {matrix.shape}")
    if columns is not None and matrix.shape[1] != columns:
        raise ArgumentError(f"{name} must have {columns} columns as those before, got {matrix.shape[1]}")
    if not np.isfinite(matrix).all():
        row = int(np.flatnonzero(~np.isfinite(matrix).all(axis=1))[0])
        raise ArgumentError(
            f"{name} must be finite, row {row} is not; embed that prompt again or leave it out"
        )
    return matrix


def choice(name: str, value: Any, legal: Sequence[str]) -> str:
    """Return ``value`` when it is one of the legal names, or raise listing them."""
    if value not in legal:
        raise ArgumentError(f"{name} must be one of {', '.join(map(repr, legal))}, got {value!r}")
    return str(value)


def part(name: str, value: Any, kind: type, example: str) -> None:
    """Check that ``value`` has the members of the protocol ``kind``, or raise naming them and a legal example."""
    members = [member for member in vars(kind) if not member.startswith("_")]
    lacking = [member for member in members if not hasattr(value, member)]
    if not lacking and not isinstance(value, type):
        return
    contract = f"{'.'.join(kind.__module__.split('.')[:2])}.{kind.__name__}"
    abstract: frozenset[str] = getattr(kind, "__abstractmethods__", frozenset())
    own = [member for member in members if member in abstract]  # the others have a default
    if isinstance(value, type):
        given = f"the class {value.__name__}, not one that is made from it"
    else:
        given = f"{value!r:.80} ({type(value).__name__})"
        given += f", which lacks {', '.join(lacking)}" if len(lacking) < len(members) else ""
    if own and not set(lacking) & set(own):
        given += f": inherit from {contract}, which has defaults for them"
    raise ArgumentError(
        f"{name} must be a {contract}, with {', '.join(own or members)}; got {given}; for example {name}={example}"
    )


def same_length(**arrays: NDArray[Any]) -> int:
    """Check that the named arrays agree in their first axis and return its length."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ArgumentError(
            "arrays must have one entry per prompt each, got lengths "
            + ", ".join(f"{name}={length}" for name, length in lengths.items())
        )
    return next(iter(lengths.values()), 0)


def count_box(
    lower: ArrayLike, upper: ArrayLike, budget: Any, prompts: int, *, least: int = 0, reason: str = ""
) -> tuple[IntP, IntP, int]:
    """Return per-prompt bounds and the budget that lies between their sums and is to be spent exactly.

    Bounds come as a scalar or one per prompt; ``least`` is the smallest legal lower one, for a ``reason`` that ends the
    error message.

    Raises:
        ArgumentError: bounds that are not whole, below ``least``, crossed, or of another length.
        InfeasibleError: no counts within the bounds sum to the budget.
    """
    low, high = (_per_prompt(*pair, prompts) for pair in (("lower", lower), ("upper", upper)))
    if (low < least).any():
        raise ArgumentError(f"lower must be >= {least}, got {low.min()}{reason and f': {reason}'}")
    crossed = np.flatnonzero(low > high)
    if len(crossed):
        q = int(crossed[0])
        raise ArgumentError(f"lower must be <= upper, got {low[q]} > {high[q]} for prompt {q}")
    total, floor, ceiling = integer("budget", budget, low=0), int(low.sum()), int(high.sum())
    if not floor <= total <= ceiling:
        raise InfeasibleError(
            f"budget={total} cannot be spent on {prompts} prompts within [lower, upper]: the lower bounds sum to "
            f"{floor}, the upper bounds to {ceiling}; choose a budget in [{floor}, {ceiling}], or "
            f"{'lower the lower bound' if total < floor else 'raise the upper bound'}, or change the number of prompts"
        )
    return low, high, total


def _per_prompt(name: str, value: ArrayLike, prompts: int) -> IntP:
    array = int_array(name, value)
    if array.ndim > 1 or (array.ndim == 1 and len(array) != prompts):
        raise ArgumentError(
            f"{name} must be a scalar or have one entry per prompt ({prompts}), got shape {array.shape}"
        )
    return np.broadcast_to(array, (prompts,)).astype(np.int64)
