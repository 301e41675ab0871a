"""The expected yield of each way to spend a budget on a pool, from its difficulty alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import comb
from typing import Any

import numpy as np

from neyman import formulas
from neyman._checks import FloatP, integer, real
from neyman._files.json import plain
from neyman.presets import preset
from neyman.randomness import keyed_rng
from neyman.replay._difficulty import CountDifficulty, Difficulty
from neyman.replay._trace import Trace

_RESAMPLES = 200
_MIN_PROBE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """An expectation, with the 95 % interval of the recorded prompts' chance; no bounds where none are recorded."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WayPlan:
    """One way to find effective groups of k.

    Args:
        probe: rollouts after which a zero-variance group is given up (`pilot-commit`: one outside its band); k
            completes every group.
        rollouts_per_group: expected rollouts for one effective group.
        saving: of rollouts against dynamic sampling, which completes and discards; negative costs more.
        groups: effective groups that the budget buys; None without a budget.
        signal_kept: share of E[s (k-s)] that the probe does not give up.
    """

    probe: int
    rollouts_per_group: Expected
    saving: Expected
    groups: Expected | None
    signal_kept: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePlan:
    """The expected yield at one group size.

    Args:
        group_size: k.
        prompts: recorded prompts (or visits) with at least k trials; 0 where the difficulty is assumed.
        never: share of groups of k that are all failures.
        always: share that are all successes.
        dead: their sum, the share without signal.
        yield_holds: whether early verdicts at SARA's threshold buy more effective groups than full groups.
        ways: name -> cost: "dynamic-sampling" (uniform allocation generates the same, and trains the
            dead groups too), "sara"; "speed" and "pilot-commit" at their presets' defaults; "best probe", "perfect
            choice" (the floor: only effective groups opened).
    """

    group_size: int
    prompts: int
    never: Expected
    always: Expected
    dead: Expected
    yield_holds: bool
    ways: dict[str, WayPlan]

    def as_dict(self) -> dict[str, Any]:
        """Return the content, JSON-safe: infinite numbers become None."""
        content: dict[str, Any] = plain(asdict(self))
        return content


def plan(
    difficulty: Difficulty, group_size: int, *, budget: int | None = None, threshold: float = 0.45
) -> SizePlan:
    """Return the expected yield of a pool of this difficulty at one group size.

    With Q = E[(1-p)^n + p^n] for groups pure after n: completing all costs k / (1 - Q_k) rollouts an effective
    group; giving pure ones up after n costs (k - (k-n) Q_n) / (1 - Q_n). `pilot-commit` gives up all outside a band
    of pass rates, with Q_n the chance of that. No way remembers earlier visits of a prompt.

    Args:
        difficulty: of the pool.
        group_size: k >= 2.
        budget: rollouts to spend on effective groups.
        threshold: SARA's; its probe is the abandon index of a uniform prior, at least 2.

    Raises:
        ArgumentError: a number outside its range; recorded prompts with fewer than k trials only.

    Guarantee: for recorded counts each moment is unbiased; ratios of them are consistent. Intervals are
    percentiles of 200 bootstrap samples of the prompts. It assumes that prompts are drawn at random and that
    rollouts are independent.

    Cost: O(prompts k).

    Source: docs/methods.md, "Early verdicts".
    """
    k = integer("group_size", group_size, low=2)
    real("threshold", threshold, low=0.0, high=1.0)
    if budget is not None:
        integer("budget", budget, low=1)
    some = difficulty.usable(k) if isinstance(difficulty, CountDifficulty) else difficulty
    lengths = range(_MIN_PROBE, k + 1)
    pure = some.moments([(n, 0) for n in lengths] + [(0, n) for n in lengths])
    pilot, refused = _pilot(k)
    outside = some.moments([(pilot - s, s) for s in refused]) @ [float(comb(pilot, s)) for s in refused]
    means = _resampled(np.column_stack([pure, outside]))  # [1 + resamples, 2 len(lengths) + 1]
    lost, won = means[:, : len(lengths)], means[:, len(lengths) : -1]
    cost = _cost(lost + won, np.array(lengths), k)
    full = cost[:, -1]
    sara = min(max(_MIN_PROBE, *formulas.abandon_index(k, threshold)), k)
    speed, best = _first_look("speed", k), _MIN_PROBE + int(np.argmin(cost[0]))
    probes = {"dynamic-sampling": k, "sara": sara, "speed": speed}
    spend = {name: (probe, cost[:, probe - _MIN_PROBE]) for name, probe in probes.items()}
    spend["pilot-commit"] = pilot, _cost(means[:, -1], np.array(pilot), k)
    spend["best probe"] = best, cost[:, best - _MIN_PROBE]
    spend["perfect choice"] = k, np.full(len(full), float(k))
    ways = {
        name: _way(some, k, probe, rollouts, full, budget, refused if name == "pilot-commit" else (0, probe))
        for name, (probe, rollouts) in spend.items()
    }
    return SizePlan(
        group_size=k,
        prompts=some.prompts,
        never=_expected(lost[:, -1]),
        always=_expected(won[:, -1]),
        dead=_expected(lost[:, -1] + won[:, -1]),
        yield_holds=bool(cost[0, sara - _MIN_PROBE] <= full[0]),
        ways=ways,
    )


def _way(
    pool: Difficulty,
    k: int,
    probe: int,
    rollouts: FloatP,
    full: FloatP,
    budget: int | None,
    given_up: Sequence[int],
) -> WayPlan:
    with np.errstate(invalid="ignore", divide="ignore"):
        saving, groups = 1.0 - rollouts / full, (budget or 0) / rollouts
    return WayPlan(
        probe=probe,
        rollouts_per_group=_expected(rollouts),
        saving=_expected(saving),
        groups=None if budget is None else _expected(groups),
        signal_kept=_signal_kept(pool, k, probe, given_up),
    )


def plan_of(trace: Trace, group_size: int) -> dict[str, Any] | None:
    """Return the plan for a record at one group size, JSON-safe; None where no visit is as large as a group."""
    if trace.trials.max() < group_size:
        return None
    return plan(CountDifficulty(trace.successes, trace.trials), group_size).as_dict()


def _resampled(rows: FloatP) -> FloatP:
    """Return the means of the columns, then those of bootstrap samples of the rows."""
    means: FloatP = rows.mean(axis=0, keepdims=True)
    if len(rows) == 1:
        return means
    rng = keyed_rng(0, "plan")
    samples = [
        np.bincount(rng.integers(len(rows), size=len(rows)), minlength=len(rows)) @ rows / len(rows)
        for _ in range(_RESAMPLES)
    ]
    return np.vstack([means, *samples])


def _cost(pure: FloatP, lengths: FloatP, k: int) -> FloatP:
    """Rollouts per effective group when pure groups are given up after each length; infinite where none is mixed."""
    with np.errstate(divide="ignore"):
        cost: FloatP = (k - (k - lengths) * pure) / np.maximum(1.0 - pure, 0.0)
    return cost


def _first_look(name: str, k: int) -> int:
    """Return the rollouts after which a preset judges a group of k."""
    verdict = preset(name).verdict
    assert verdict is not None
    return verdict.looks(k)[0]


def _pilot(k: int) -> tuple[int, tuple[int, ...]]:
    """Return the rollouts of `pilot-commit`'s pilot, and the numbers of successes at which it gives a group up."""
    verdict, n = preset("pilot-commit").verdict, _first_look("pilot-commit", k)
    assert verdict is not None
    return n, tuple(s for s in range(n + 1) if verdict.decide(s, n, k, (1.0, 1.0)) != "commit")


def _signal_kept(difficulty: Difficulty, k: int, n: int, given_up: Sequence[int]) -> float:
    """1 - E[s (k-s); of the first n as many succeed as is given up] / E[s (k-s)].

    With x successes of the first n and Y ~ Bin(m, p) of the other m = k-n: E[(x+Y) (k-x-Y)] = x (n-x) + x m (1-p) +
    (n-x) m p + m (m-1) p (1-p); and E[s (k-s)] = k (k-1) E[p (1-p)].
    """
    powers, weights, m = [(1, 1)], [], k - n
    for x in given_up:
        parts = {(0, 0): x * (n - x), (1, 0): x * m, (0, 1): (n - x) * m, (1, 1): m * (m - 1)}
        for (fails, wins), weight in parts.items():
            if weight:
                powers.append((n - x + fails, x + wins))
                weights.append(float(comb(n, x) * weight))
    spread, *rest = difficulty.moments(powers).mean(axis=0)
    lost = float(np.dot(weights, rest))
    return float(np.clip(1.0 - lost / (k * (k - 1) * spread), 0.0, 1.0)) if spread else 1.0


def _expected(values: FloatP) -> Expected:
    known = values[np.isfinite(values)]
    if not np.isfinite(values[0]):
        return Expected(mean=float("inf"), low=None, high=None)
    if len(known) < _RESAMPLES:
        return Expected(mean=float(values[0]), low=None, high=None)
    low, high = np.quantile(known[1:], [0.025, 0.975])
    return Expected(mean=float(values[0]), low=float(low), high=float(high))
