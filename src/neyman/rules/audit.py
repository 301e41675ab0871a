"""Audit of early verdicts: the effective groups and signal that they gave up, without further rollouts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import comb

from neyman.rules._contracts import Verdict

Prior = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Estimates over the judged groups of one step.

    Args:
        judged: groups with a verdict: committed and completed, or given up.
        committed: those among them that were committed, completed and mixed.
        abandoned: those that were given up before they were complete.
        stopped: rollouts spent on groups that were given up, complete or not.
        effective: estimated number of judged groups that are mixed at full size, committed ones included.
        variance: estimated sampling variance of ``effective``.
        signal: estimated sum of s(k-s) at full size.
        kept: sum of s(k-s) of the committed groups.
    """

    judged: int
    committed: int
    abandoned: int
    stopped: int
    effective: float
    variance: float
    signal: float
    kept: float

    @property
    def missed(self) -> float:
        """The estimated number of abandoned groups that would have become mixed."""
        return self.effective - self.committed

    @property
    def miss_rate(self) -> float:
        """The estimated share of abandoned groups that would have become mixed, at most 1."""
        return min(1.0, self.missed / self.abandoned) if self.abandoned else 0.0

    @property
    def signal_kept(self) -> float:
        """The estimated share of sum s(k-s) in the committed groups; 1 without any signal."""
        return self.kept / self.signal if self.signal else 1.0


def survival_probability(verdict: Verdict, successes: int, group_size: int, prior: Prior) -> float:
    """Return the chance that a complete group with these successes was not abandoned on its way.

    Its outcomes come in exchangeable order, so a prefix of n is all failures with probability
    C(k-s, n)/C(k, n), and all successes with C(s, n)/C(k, n); the verdict on a pure prefix is known. Verdicts that
    judge mixed prefixes too (``at_looks``) are followed through every prefix. The prior is that of the verdicts.

    Cost: O(looks), and O(looks s^2) with ``at_looks``.
    """
    if verdict.at_looks:
        # Shares that sum to 1 may round beyond it, and the estimator's variance has the factor 1 minus this.
        return min(1.0, _survival_through_looks(verdict, successes, group_size, prior))
    lost = 0.0
    for all_success in (False, True):
        pure = successes if all_success else group_size - successes
        for look in verdict.looks(group_size)[:-1]:
            if verdict.decide(look if all_success else 0, look, group_size, prior) == "abandon":
                lost += comb(pure, look) / comb(group_size, look)
                break
    return max(0.0, 1.0 - lost)


def _survival_through_looks(verdict: Verdict, successes: int, group_size: int, prior: Prior) -> float:
    """Compute the chance to survive by following that of each number of successes from look to look."""
    undecided, survived, drawn = {0: 1.0}, 0.0, 0
    for look in verdict.looks(group_size)[:-1]:
        reached: dict[int, float] = {}
        for before, chance in undecided.items():
            # The next outcomes are drawn without replacement from those of the complete group: hypergeometric.
            left, more = successes - before, look - drawn
            for new in range(max(0, more - (group_size - drawn - left)), min(left, more) + 1):
                ways = comb(left, new) * comb(group_size - drawn - left, more - new)
                share = chance * ways / comb(group_size - drawn, more)
                reached[before + new] = reached.get(before + new, 0.0) + share
        decided = {solved: verdict.decide(solved, look, group_size, prior) for solved in reached}
        survived += sum(chance for solved, chance in reached.items() if decided[solved] == "commit")
        undecided = {solved: chance for solved, chance in reached.items() if decided[solved] == "continue"}
        drawn = look
    return survived + sum(undecided.values())


def audit(
    verdict: Verdict, committed: Iterable[tuple[int, int, Prior]], stopped: Iterable[tuple[int, int]]
) -> Audit:
    """Estimate the effective groups and signal that a step's verdicts gave up, from the groups they kept.

    Each committed group with s of k successes represents 1/q(s) groups, q the chance that such a group survives
    (Horvitz-Thompson).

    Args:
        verdict: the stop rule.
        committed: (successes, group size, prior) of every committed and completed group.
        stopped: (rollouts spent, group size) of every group given up.

    Guarantee: ``effective`` and ``signal`` are unbiased for the number of effective groups and for their summed
    signal, under any success rates, as long as outcomes are exchangeable; their variance is large for a single
    step, so average over steps. Voided by results that are missing depending on the outcome, and by verdicts that
    never keep groups with some number of successes, since no such group is observed.
    Source: ours (Horvitz and Thompson, 1952, for the estimator).
    """
    effective = variance = signal = kept = 0.0
    found = 0
    chances: dict[tuple[int, int, Prior], float] = {}
    for case in committed:
        successes, size, _ = case
        if not 0 < successes < size:
            continue
        if case not in chances:
            chances[case] = survival_probability(verdict, *case)
        survived = chances[case]
        if survived <= 0.0:  # never kept by these verdicts, so it was completed without one and counts once
            survived = 1.0
        found += 1
        effective += 1.0 / survived
        variance += (1.0 - survived) / survived**2
        signal += successes * (size - successes) / survived
        kept += successes * (size - successes)
    ends = list(stopped)
    return Audit(
        judged=found + len(ends),
        committed=found,
        abandoned=sum(spent < size for spent, size in ends),
        stopped=sum(spent for spent, _ in ends),
        effective=effective,
        variance=variance,
        signal=signal,
        kept=kept,
    )
