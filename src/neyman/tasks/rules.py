"""The embedded default task: digit rules of graded difficulty, learnable by a model of 0.1M parameters.

A prompt is a family letter, four digits and "="; the answer is four digits. Each of the 16 families is one
way of reordering the digits and one way of changing each digit. The difficulty of a prompt for the starting policy
is set by its demonstrations: one for (family, first digit) is right with probability p*(family, first digit);
otherwise the digit at the family's weak place is the one that *another family's rule* would write there, a plausible
slip. A policy warm-started on such demonstrations answers right about as often as its demonstrations did, so success
rates spread from 0 to 1 as the table p* sets.

One digit slips, not the whole answer: a model that must decide anew at each digit which of two rules to
follow needs far longer to learn to stay with its choice, and until it has, right answers are too rare.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from neyman import _checks
from neyman._checks import FloatP
from neyman.tasks._task import Problem, Task, problem

IntND = NDArray[np.int64]

FAMILIES = "ABCDEFGHIJKLMNOP"
DIGITS = 4
# A family letter, the digits, "=": all characters of prompts and answers.
ALPHABET = "0123456789" + FAMILIES + "="
# Four digits and the end-of-text token: the shortest max_completion_length at which exact rates hold.
COMPLETION_TOKENS = DIGITS + 1
REGIMES = ("hard", "ushape", "easy")

_ORDERS = np.array([[0, 1, 2, 3], [3, 2, 1, 0], [1, 2, 3, 0], [1, 0, 3, 2]])
# Rows: keep the digit, add one, subtract from nine, add five (all modulo ten).
_CHANGES = np.array([[(a * d + b) % 10 for d in range(10)] for a, b in ((1, 0), (1, 1), (-1, 9), (1, 5))])
# Beta parameters of the spread of p* over the 160 cells; means 0.20, 0.50, 0.75.
_SPREAD = {"hard": (0.25, 1.0), "ushape": (0.35, 0.35), "easy": (1.2, 0.4)}
# A slip follows the family three letters on: never the same rule, often another digit.
_PARTNER = 3


def apply_rules(families: IntND, digits: IntND) -> IntND:
    """Answer prompts by the rules of their families, shape (prompts,) in [0, 16); digits are (prompts, 4) in [0, 10).

    >>> apply_rules(np.array([0, 1, 6]), np.array([[1, 2, 3, 4]] * 3)).tolist()
    [[1, 2, 3, 4], [4, 3, 2, 1], [3, 4, 5, 2]]
    """
    reordered = np.take_along_axis(digits, _ORDERS[families % len(_ORDERS)], axis=1)
    return _CHANGES[(families // len(_ORDERS))[:, None], reordered]


def demonstrated_rates(regime: str = "hard", seed: int = 0) -> FloatP:
    """Return p*(family, first digit), shape (16, 10): how often demonstrations of each cell are right.

    The 160 values are the quantiles (i + 1/2) / 160 of a Beta distribution, so their mean and spread do not
    depend on the seed; the seed decides which cell gets which, half by its family and half by itself, so
    that outcomes of a family are evidence about its other prompts, but do not settle them.

    Args:
        regime: "hard" (mean 0.2, most near 0), "ushape" (mean 0.5, most near 0 or 1) or "easy" (mean 0.75).
        seed: names the assignment to cells.

    >>> float(demonstrated_rates("hard").mean().round(1))
    0.2
    """
    _checks.choice("regime", regime, REGIMES)
    return spread_rates(*_SPREAD[regime], seed=seed)


def spread_rates(a: float, b: float, *, seed: int, family_weight: float = 1.0) -> FloatP:
    """Return a rate for each (family, first digit): quantiles of Beta(a, b), assigned by family and by cell.

    a and b are above 0. A cell's place depends on its family by ``family_weight`` >= 0, against 1 by the cell itself.
    """
    _checks.real("family_weight", family_weight, low=0.0)
    _checks.real("a", a, low=0.0, open_low=True)
    _checks.real("b", b, low=0.0, open_low=True)
    rng = np.random.default_rng([_checks.integer("seed", seed, low=0), 1])
    shape = (len(FAMILIES), 10)
    score = family_weight * rng.normal(size=(shape[0], 1)) + rng.normal(size=shape)
    cells = shape[0] * shape[1]
    quantiles = beta.ppf((np.arange(cells) + 0.5) / cells, a, b)
    rates = np.empty(cells)
    rates[np.argsort(score, axis=None, kind="stable")] = quantiles
    return rates.reshape(shape)


def _texts(families: IntND, digits: IntND) -> list[str]:
    return [
        f"{FAMILIES[f]}{''.join(map(str, row))}="
        for f, row in zip(families.tolist(), digits.tolist(), strict=True)
    ]


def _answers(digits: IntND) -> list[str]:
    return ["".join(map(str, row)) for row in digits.tolist()]


def demonstrate(
    rng: np.random.Generator, size: int, regime: str = "hard", seed: int = 0
) -> list[tuple[str, str]]:
    """Draw demonstrations: pairs (prompt, completion), right with the probability of their cell.

    Prompts are uniform over all 160,000 and may repeat; regime and seed are those of `demonstrated_rates`.

    >>> demonstrate(np.random.default_rng(0), 1)[0][0][-1]
    '='
    """
    rates = demonstrated_rates(regime, seed)
    families = rng.integers(0, len(FAMILIES), size)
    digits = rng.integers(0, 10, (size, DIGITS))
    answers = apply_rules(families, digits)
    slip = rng.random(size) >= rates[families, digits[:, 0]]
    rows, weak = np.flatnonzero(slip), families[slip] % DIGITS
    answers[rows, weak] = apply_rules((families + _PARTNER) % len(FAMILIES), digits)[rows, weak]
    return list(zip(_texts(families, digits), _answers(answers), strict=True))


def rules_task(regime: str = "hard", *, train_size: int = 1024, test_size: int = 1000, seed: int = 0) -> Task:
    """Build the default task: distinct prompts, the test ones disjoint from the training ones.

    Args:
        regime: see `demonstrated_rates`.
        train_size: number of training prompts.
        test_size: number of held-out prompts.
        seed: names the table p* and the prompts.

    Returns:
        The task. Metadata of each problem: ``family`` (letter), ``first_digit``, ``demonstrated_rate``
        (p* of its cell: for reports; a belief that read it would cheat).

    Raises:
        ArgumentError: unknown regime, or more prompts asked for than the 160,000 that exist.

    >>> task = rules_task("easy", train_size=4, test_size=2)
    >>> len(task.train), len(task.test), len(task.train[0].answer)
    (4, 2, 4)
    """
    space = len(FAMILIES) * 10**DIGITS
    train_size = _checks.integer("train_size", train_size, low=1, high=space)
    test_size = _checks.integer("test_size", test_size, low=0, high=space - train_size)
    rates = demonstrated_rates(regime, seed)
    chosen = np.random.default_rng([seed, 2]).choice(space, train_size + test_size, replace=False)
    families, number = np.divmod(chosen, 10**DIGITS)
    digits = number[:, None] // 10 ** np.arange(DIGITS - 1, -1, -1) % 10
    answers = _answers(apply_rules(families, digits))
    facts = [
        {"family": FAMILIES[f], "first_digit": d, "demonstrated_rate": float(rates[f, d])}
        for f, d in zip(families.tolist(), digits[:, 0].tolist(), strict=True)
    ]
    problems = list(map(problem, _texts(families, digits), answers, facts))
    return Task(name=f"rules-{regime}", train=problems[:train_size], test=problems[train_size:])


def features(problems: Sequence[Problem]) -> FloatP:
    """Describe problems of `rules_task` by the visible parts of the prompt: one-hot family, one-hot first digit.

    Returns:
        Zeros and ones, shape (problems, 26): the embedding for beliefs that generalise over prompts.

    >>> features(rules_task(train_size=3, test_size=0).train).sum(axis=1).tolist()
    [2.0, 2.0, 2.0]
    """
    table = np.zeros((len(problems), len(FAMILIES) + 10))
    for row, item in enumerate(problems):
        table[row, FAMILIES.index(str(item.prompt)[0])] = 1.0
        table[row, len(FAMILIES) + int(str(item.prompt)[1])] = 1.0
    return table
