"""A verifier whose verdict is always the same for the same words, others that fail, and a strategy of a user's."""

from __future__ import annotations

from typing import Any
from zlib import crc32


def damped(**options: Any) -> Any:
    """Return SARA with DynaMO's token factor."""
    import neyman
    from neyman.modulation import Modulation

    return neyman.preset("sara", modulation=Modulation(variant="published"), **options)


def grade(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> float:
    """Return 1 or 0; right in about rate/9 of all answers, where the prompt's ground truth names the rate."""
    return float(_draw(ground_truth, solution_str) % 9 < int(ground_truth.partition(":")[0]))


def shaped(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> Any:
    """Return a reward that is not binary, and beside it what is."""
    right = grade(data_source, solution_str, ground_truth)
    return {"score": 0.9 * right - 0.01 * len(solution_str), "acc": right}


def faulty(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> float:
    """Grade, but raise on about one answer in five, and return no number on another."""
    luck = _draw("luck", solution_str) % 5
    if luck == 0:
        raise RuntimeError(f"the verifier has no memory left for {solution_str!r}")
    return float("nan") if luck == 1 else grade(data_source, solution_str, ground_truth)


def broken(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> float:
    """Raise on every answer."""
    raise RuntimeError("the verifier is down")


def _draw(salt: str, words: str) -> int:
    return crc32(f"{salt}|{words}".encode())
