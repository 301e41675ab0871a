"""What early verdicts threw away, estimated without spending a rollout."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import comb

from neyman.rules._view import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Estimates over one step's judged groups.

    Args:
        judged: groups with a verdict.
        abandoned: of them, abandoned before they were complete.
        committed: of them, committed, completed and mixed.
        effective: estimated number that would have been mixed at full size, committed ones included.
        signal_kept: estimated share of sum s(k-s) that the committed groups hold.
    """

    judged: int
    abandoned: int
    committed: int
    effective: float
    signal_kept: float

    @property
    def miss_rate(self) -> float:
        """The estimated share of abandoned groups that would have become mixed, clipped to [0, 1]."""
        missed = self.effective - self.committed
        return min(1.0, max(0.0, missed / self.abandoned)) if self.abandoned else 0.0


def survival_probability(
    verdict: Verdict, successes: int, group_size: int, prior: tuple[float, float]
) -> float:
    """Return the chance that a complete group with these successes was not abandoned on its way.

    Its outcomes come in exchangeable order, so a prefix of n is all failures with probability
    C(k-s, n)/C(k, n), and all successes with C(s, n)/C(k, n); the verdict on a pure prefix is known.

    Args:
        verdict: the stop rule.
        successes: s of the complete group.
        group_size: k.
        prior: Beta parameters the verdicts were taken under.

    Cost: O(looks).
    """
    lost = 0.0
    for all_success in (False, True):
        pure = successes if all_success else group_size - successes
        for look in verdict.looks(group_size)[:-1]:
            if verdict.decide(look if all_success else 0, look, group_size, prior) == "abandon":
                lost += comb(pure, look) / comb(group_size, look)
                break
    return 1.0 - lost


def audit(
    verdict: Verdict,
    committed: Iterable[tuple[int, int, tuple[float, float]]],
    *,
    judged: int,
    abandoned: int,
) -> Audit:
    """Estimate what the verdicts of a step threw away, from the groups they kept.

    Each committed group with s of k successes stands for 1/q(s) groups, q its chance of having survived
    (Horvitz-Thompson).

    Args:
        verdict: the stop rule.
        committed: (successes, group size, prior) of every committed and completed group.
        judged: groups with a verdict.
        abandoned: groups abandoned before they were complete.

    Guarantee: unbiased for the number of effective groups and for their summed signal, under any success
    rates, as long as outcomes are exchangeable and every mixed count can survive; its variance is large for a
    single step, so average over steps. Voided by results missing in a way that depends on the outcome.

    Source: ours (Horvitz and Thompson, 1952, for the estimator).
    """
    effective = signal = kept = 0.0
    found = 0
    for successes, size, prior in committed:
        if not 0 < successes < size:
            continue
        survived = survival_probability(verdict, successes, size, prior)
        weight = 1.0 / survived if survived > 0.0 else 0.0
        found += 1
        effective += weight
        signal += weight * successes * (size - successes)
        kept += successes * (size - successes)
    return Audit(
        judged=judged,
        abandoned=abandoned,
        committed=found,
        effective=effective,
        signal_kept=kept / signal if signal else 1.0,
    )
