"""The reports of a broken contract, the declarations of exceptions to it, and the base of all suites."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from hypothesis import HealthCheck, Phase, settings

#: The page that every message points into; `see` names a heading of it.
PAGE = "docs/testing.md"


class BrokenContract(AssertionError):  # noqa: N818 (an assertion that failed, named for its meaning)
    """A belief, rule, strategy or adapter broke the contract; the message has the sentence, with the input."""


def broken(demand: str, *, see: str, **given: Any) -> str:
    """Return the message of a broken contract.

    Args:
        demand: the contract's demand and, where it helps, the finding instead, as a sentence.
        see: heading of docs/testing.md that explains the demand.
        given: the input that shows it.
    """
    lines = [f"    {name} = {_show(value)}" for name, value in given.items()]
    return "\n".join([demand, *lines, f"    see {PAGE}, section {see!r}"])


def expect(holds: Any, demand: str, *, see: str, **given: Any) -> None:
    """Raise `BrokenContract` unless ``holds``; the other arguments are those of `broken`."""
    if not holds:
        raise BrokenContract(broken(demand, see=see, **given))


def expect_same(left: Any, right: Any, demand: str, *, see: str, **given: Any) -> None:
    """Raise `BrokenContract` unless two arrays, states or messages agree bit for bit, NaN being equal to NaN."""
    both_arrays = isinstance(left, np.ndarray) and isinstance(right, np.ndarray)
    same = np.array_equal(left, right, equal_nan=left.dtype.kind == "f") if both_arrays else left == right
    expect(same, demand, see=see, one=left, other=right, **given)


def refused(call: Callable[[], Any], error: type[Exception], case: str, *, see: str, **given: Any) -> str:
    """Return the message with which ``call`` refuses, or raise `BrokenContract` when it does not refuse."""
    try:
        call()
    except error as refusal:
        return str(refusal)
    except Exception as other:
        message = f"{case} must raise {error.__name__}, raised {other!r}"
        raise BrokenContract(broken(message, see=see, **given)) from other
    raise BrokenContract(broken(f"{case} must raise {error.__name__}, but was taken in", see=see, **given))


@contextmanager
def declared(name: str, reason: str | None, demand: str, *, see: str) -> Iterator[None]:
    """Run a check, or, where an exception to it is declared with a reason, assert that the exception is real."""
    if reason is None:
        yield
        return
    try:
        yield
    except BrokenContract:
        return
    expect(
        False,
        f"{name} declares an exception that does not occur ({demand}): remove it",
        see=see,
        **{name: reason},
    )


@contextmanager
def during(case: str, *, see: str) -> Iterator[None]:
    """Add a note to any error of the parts under test: the case, and the section that explains it."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, BrokenContract):
            error.add_note(
                f"while checking the contract of neyman.testing: {case}; see {PAGE}, section {see!r}"
            )
        raise


def _show(value: Any) -> str:
    text = np.array2string(value, threshold=40) if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 400 else text[:397] + "..."


class Suite:
    """Base of all suites. A subclass outside this package is collected by pytest, the suites themselves are not.

    Attributes:
        examples: random inputs per property; 25 keeps a whole suite near a second.
        seed: keys every random number that is not drawn by Hypothesis.
    """

    __test__: ClassVar[bool] = False
    examples: int = 25
    seed: int = 0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__test__" not in vars(cls):
            cls.__test__ = True

    def make(self) -> Any:
        """Return a fresh object under test, the same at each call."""
        raise NotImplementedError(
            f"{type(self).__name__} has no make(): define make(self) to return a fresh object under test"
        )

    def rng(self, *keys: int) -> np.random.Generator:
        """Return a generator keyed by ``seed`` and the keys."""
        return np.random.default_rng([self.seed, *keys])

    def randomly(self) -> settings:
        """Return the settings under which Hypothesis searches: the same inputs at each run."""
        return settings(
            max_examples=self.examples,
            derandomize=True,
            deadline=None,
            database=None,
            phases=(Phase.explicit, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
