"""A claim, the findings of its check, and the verdict on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

HOLDS: Final = "holds"
CONDITION: Final = "holds under a condition"
FALSE: Final = "false"
UNDECIDED: Final = "undecided"  # measured, and the interval holds both
UNTESTED: Final = "not tested here"
VERDICTS: Final = (HOLDS, CONDITION, FALSE, UNDECIDED, UNTESTED)

VIP: Final = "VIP, arXiv 2602.01601"
SARA: Final = "SARA, arXiv 2607.26253"
DYNAMO: Final = "DynaMO, arXiv 2602.19208"
OURS: Final = "derived here"

#: Standard errors by which a simulation may be off before a formula is called wrong: about sixty are compared.
TOLERATED: Final = 4.5


@dataclass(frozen=True)
class Run:
    """The inputs of a check: its own generator, and a factor on its sample sizes."""

    rng: np.random.Generator
    scale: float = 1.0
    data: str | None = None

    def size(self, full: int, least: int = 2) -> int:
        """Return a sample size."""
        return max(least, round(full * self.scale))


@dataclass
class Finding:
    """The verdict, why, and the figures: rows of [what, value, standard error or None, expected or None]."""

    verdict: str
    why: str
    figures: list[list[Any]] = field(default_factory=list)

    def add(self, what: str, value: Any, error: float | None = None, expected: Any = None) -> None:
        """Add a figure; without an error it is exact."""
        self.figures.append([what, value, error, expected])

    def off(self) -> float:
        """Return the distance of the worst simulated figure from its expected value, in standard errors."""
        gaps = [abs(v - x) / max(e, 1e-12) for _, v, e, x in self.figures if e is not None and x is not None]
        return max(gaps, default=0.0)

    def settle(self, good: bool, verdict: str, why: str) -> Finding:
        """Give the verdict if the figures support it, and the opposite if they do not."""
        self.verdict, self.why = (verdict, why) if good else (FALSE, "The figures below contradict it.")
        if not good and verdict == FALSE:
            self.verdict, self.why = CONDITION, "These samples do not refute it."
        return self


@dataclass(frozen=True)
class Claim:
    """A claim in our own words, its source, its check, and another command that shows it.

    A claim that ``quotes`` takes all its figures from other files of results, and is judged anew at each rendering.
    """

    name: str
    says: str
    source: str
    check: Callable[[Run], Finding]
    also: str = ""
    quotes: bool = False


def pending() -> Finding:
    """Return a finding to fill."""
    return Finding(UNTESTED, "")


def untested(why: str) -> Callable[[Run], Finding]:
    """Return the check of a claim that none of these samples can settle."""
    return lambda _: Finding(UNTESTED, why)


def tested(why: str) -> Callable[[Run], Finding]:
    """Return the check of a claim that the test suite asserts, with no figure to show."""
    return lambda _: Finding(HOLDS, why)


def mean_error(sample: Any) -> tuple[float, float]:
    """Return mean and standard error of independent values."""
    values = np.asarray(sample, dtype=np.float64)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def ratio_error(top: Any, bottom: Any) -> tuple[float, float]:
    """Return the ratio of two means over the same draws, and its standard error by linearisation."""
    upper, lower = np.asarray(top, dtype=np.float64), np.asarray(bottom, dtype=np.float64)
    ratio = upper.mean() / lower.mean() if lower.any() else 0.0
    residual = (upper - ratio * lower) / max(abs(lower.mean()), 1e-300)
    return float(ratio), float(residual.std(ddof=1) / np.sqrt(len(residual)))
