"""What early verdicts threw away, estimated without spending a rollout."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import comb

from neyman.rules._contracts import Verdict

Prior = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Estimates over one step's judged groups.

    Args:
        judged: groups with a verdict: committed ones that were completed, and those given up.
        committed: of them, committed, completed and mixed.
        abandoned: of them, given up before they were complete.
        stopped: rollouts spent on groups given up, complete or not.
        effective: estimated number that would have been mixed at full size, committed ones included.
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
        """The estimated number of groups given up that would have become mixed."""
        return self.effective - self.committed

    @property
    def miss_rate(self) -> float:
        """The estimated share of abandoned groups that would have become mixed, at most 1."""
        return min(1.0, self.missed / self.abandoned) if self.abandoned else 0.0

    @property
    def signal_kept(self) -> float:
        """The estimated share of sum s(k-s) that the committed groups hold; 1 where no signal was seen."""
        return self.kept / self.signal if self.signal else 1.0


def survival_probability(verdict: Verdict, successes: int, group_size: int, prior: Prior) -> float:
    """Return the chance that a complete group with these successes was not abandoned on its way.

    Its outcomes come in exchangeable order, so a prefix of n is all failures with probability
    C(k-s, n)/C(k, n), and all successes with C(s, n)/C(k, n); the verdict on a pure prefix is known. Verdicts that
    judge mixed prefixes too (``at_looks``) are followed through every prefix.

    Args:
        verdict: the stop rule.
        successes: s of the complete group.
        group_size: k.
        prior: Beta parameters the verdicts were taken under.

    Cost: O(looks), and O(looks s^2) with ``at_looks``.
    """
    if verdict.at_looks:
        # A sum of shares that make up 1 may be rounded beyond it, and 1 minus it is a variance.
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
    """Follow the chance of each number of successes from look to look."""
    undecided, survived, drawn = {0: 1.0}, 0.0, 0
    for look in verdict.looks(group_size)[:-1]:
        reached: dict[int, float] = {}
        for before, chance in undecided.items():
            left, more = successes - before, look - drawn
            for new in range(max(0, more - (group_size - drawn - left)), min(left, more) + 1):
                ways = comb(left, new) * comb(group_size - drawn - left, more - new)
                share = chance * ways / comb(group_size - drawn, more)
                reached[before + new] = reached.get(before + new, 0.0) + share
        said = {solved: verdict.decide(solved, look, group_size, prior) for solved in reached}
        survived += sum(chance for solved, chance in reached.items() if said[solved] == "commit")
        undecided = {solved: chance for solved, chance in reached.items() if said[solved] == "continue"}
        drawn = look
    return survived + sum(undecided.values())


def audit(
    verdict: Verdict,
    committed: Iterable[tuple[int, int, Prior]],
    stopped: Iterable[tuple[int, int]],
) -> Audit:
    """Estimate what the verdicts of a step threw away, from the groups they kept.

    Each committed group with s of k successes stands for 1/q(s) groups, q its chance of having survived
    (Horvitz-Thompson).

    Args:
        verdict: the stop rule.
        committed: (successes, group size, prior) of every committed and completed group.
        stopped: (rollouts spent, group size) of every group given up.

    Guarantee: ``effective`` and ``signal`` are unbiased for the number of effective groups and for their summed
    signal, under any success rates, as long as outcomes are exchangeable; their variance is large for a single
    step, so average over steps. Voided by results missing in a way that depends on the outcome, and by verdicts that
    never keep groups with some number of successes: those are seen nowhere.

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
        if survived <= 0.0:  # a verdict that never keeps such a group cannot have committed it early
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
