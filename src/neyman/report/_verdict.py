"""Verdict in sentences: the winner, the difference, and whether its interval allows the claim."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neyman.report._findings import Findings, StrategyFindings
from neyman.report._format import percent, plural, points
from neyman.report._stats import Paired


@dataclass(frozen=True)
class Verdict:
    """A headline and the sentences behind it; ``winner`` is None where none can be named."""

    winner: str | None
    headline: str
    sentences: tuple[str, ...]


def verdict(findings: Findings) -> Verdict:
    """Name the winner, or the reason why none can be named.

    A winner is named only where Student's paired interval of the difference to every other strategy excludes
    zero, at a level that allows for all pairs (Bonferroni). One seed never names one.

    Guarantee: with independent, normal differences a winner is named wrongly in at most 5 of 100 such reports.
    Cost: O(strategies^2).
    """
    if not any(len(run.accuracy) for run in findings.runs):
        text = "No evaluation was written yet, so accuracy is unknown."
        return Verdict(None, "No winner can be named: nothing was evaluated.", (text,))
    if np.isnan(findings.common["rollouts"]):
        text = "A run has no evaluation after its first rollouts: there is no equal budget to compare at."
        return Verdict(None, "No winner can be named yet.", (text,))
    ranked = sorted(findings.strategies, key=lambda s: -s.final.mean)
    if len(ranked) == 1:
        return _alone(findings, ranked[0])
    if ranked[0].final.mean == 0.0:
        return _nothing_solved(findings)
    winner = _winner(findings, ranked)
    sentences = [_difference_sentence(findings, ranked)]
    if findings.main is not None and winner not in (None, findings.main, findings.reference):
        sentences.append(
            f"{winner} ended above every other strategy, and the intervals of the differences exclude zero."
        )
    if findings.has_reference:
        sentences += [_cost_sentence(findings, s) for s in ranked if s.strategy != findings.reference]
        sentences += _token_sentences(findings)
    else:
        sentences.append(f"The reference {findings.reference!r} is not among the runs.")
    return Verdict(winner, _headline(findings, ranked, winner), tuple(s for s in sentences if s))


def _share(value: float) -> str:
    return "unknown" if np.isnan(value) else percent(value)


def _alone(findings: Findings, only: StrategyFindings) -> Verdict:
    low, high = only.final.low, only.final.high
    spread = f" (95 % interval {100.0 * low:.1f} to {100.0 * high:.1f} %)" if only.final.is_known else ""
    text = (
        f"{only.strategy} solved {_share(only.final.mean)}{spread} of the test problems after "
        f"{findings.common['rollouts']:,.0f} rollouts, on {plural(len(only.runs), 'seed')}."
    )
    return Verdict(None, "One strategy ran, so there is nothing to compare it with.", (text,))


def _nothing_solved(findings: Findings) -> Verdict:
    text = (
        f"Every strategy solved 0.0 % of the test problems after {findings.common['rollouts']:,.0f} rollouts. Either "
        "the task is too hard for the policy, or right answers are not recognised: look at some completions, the "
        "verifier and the maximal completion length."
    )
    return Verdict(None, "No winner can be named: no strategy solved any test problem.", (text,))


def _difference(findings: Findings, one: str, other: str) -> tuple[Paired | None, float]:
    """Return the pair's difference and the sign that makes it ``one`` minus ``other``."""
    if (one, other) in findings.pairwise:
        return findings.pairwise[one, other], 1.0
    return findings.pairwise[other, one], -1.0


def _is_ahead(findings: Findings, one: str, other: str) -> bool:
    paired, sign = _difference(findings, one, other)
    return paired is not None and paired.interval.excludes_zero and sign * paired.interval.mean > 0.0


def _winner(findings: Findings, ranked: list[StrategyFindings]) -> str | None:
    best = ranked[0].strategy
    beaten = all(_is_ahead(findings, best, other.strategy) for other in ranked[1:])
    return best if beaten else None


def _main_headline(findings: Findings, main: str) -> str:
    """Compare the strategy that is put to the test with its baseline, whatever the others did."""
    reference = findings.reference
    for one, other in ((main, reference), (reference, main)):
        if _is_ahead(findings, one, other):
            return f"{one} beats {other}: the interval of the difference excludes zero."
    lead = findings.find(main).final.mean - findings.find(reference).final.mean
    place = "higher than" if lead > 0.0 else "lower than" if lead < 0.0 else "level with"
    return f"{main} ended {place} {reference}, but these runs do not allow naming a winner."


def _headline(findings: Findings, ranked: list[StrategyFindings], winner: str | None) -> str:
    best, main, reference = ranked[0].strategy, findings.main, findings.reference
    tests_main = main is not None and findings.has_reference
    if winner is not None and (not tests_main or winner in (main, reference)):
        return f"{winner} won: the interval of the difference excludes zero."
    if all(len(s.runs) == 1 for s in ranked):
        return "One seed each: no winner can be named."
    if main is not None and findings.has_reference:
        return _main_headline(findings, main)
    if not findings.has_reference:
        return "No winner can be named."
    ahead = [
        s.strategy for s in ranked if s.strategy != reference and _is_ahead(findings, s.strategy, reference)
    ]
    if ahead:
        verb = "beats" if len(ahead) == 1 else "beat"
        return f"{' and '.join(ahead)} {verb} {reference}; the best of all cannot be named."
    if best == reference:
        return "No winner can be named."
    return f"{best} ended highest, but these runs do not allow naming a winner."


def _difference_sentence(findings: Findings, ranked: list[StrategyFindings]) -> str:
    """Compare the strategy put to the test with its baseline; without one, the best with the reference.

    Where the reference is the best, it is compared with the runner-up.
    """
    best, rival = ranked[:2]
    if findings.main is not None and findings.has_reference:
        best, rival = findings.find(findings.main), findings.find(findings.reference)
    elif findings.has_reference and best.strategy != findings.reference:
        rival = findings.find(findings.reference)
    lead = best.final.mean - rival.final.mean
    opening = (
        f"After {findings.common['rollouts']:,.0f} rollouts each, {best.strategy} solved "
        f"{_share(best.final.mean)} of the test problems and {rival.strategy} "
        f"{_share(rival.final.mean)}: {100.0 * abs(lead):.1f} points between them."
    )
    paired, sign = _difference(findings, best.strategy, rival.strategy)
    return f"{opening} {_strength(findings, paired, sign)}"


def _strength(findings: Findings, paired: Paired | None, sign: float) -> str:
    if paired is None:
        return "They share no seed, so the difference cannot be paired and no interval is given."
    if len(paired.seeds) == 1:
        return (
            "With one shared seed there is no interval: the difference may be luck, and no winner can be "
            "named. Run at least three seeds."
        )
    if not paired.differences.any():
        return (
            "On every shared seed both reached the very same accuracy, as strategies do that make the same "
            "decisions: check whether the bounds and the budget leave them a choice. No winner can be named."
        )
    if not paired.interval.is_known:
        return (
            "The shared seeds give the same difference to the last digit: they are not independent runs, "
            "so there is no interval and no winner can be named."
        )
    low, high = sorted((sign * paired.interval.low, sign * paired.interval.high))
    confidence = f"{100.0 * findings.pairwise_level:.3g} %"
    allowance = (
        f", widened to allow for {len(findings.pairwise)} comparisons" if len(findings.pairwise) > 1 else ""
    )
    claim = (
        "It excludes zero, so the difference can be claimed for this task and these settings."
        if paired.interval.excludes_zero
        else "It includes zero, so the difference may be luck."
    )
    boot = sorted(sign * b for b in paired.bootstrap)
    disagrees = paired.interval.excludes_zero and boot[0] <= 0.0 <= boot[1]
    caution = " The bootstrap cross-check disagrees: treat it with caution." if disagrees else ""
    return (
        f"The {confidence} interval of the difference, paired over {len(paired.seeds)} seeds{allowance}, is "
        f"{points(low, high)} points. {claim}{caution}"
    )


def _cost_sentence(findings: Findings, ours: StrategyFindings) -> str:
    reach = ours.reach
    if reach is None or np.isnan(reach.interval.mean):
        return ""
    goal = f"{findings.reference}'s final {_share(findings.target)}"
    total = findings.common["rollouts"]
    if reach.interval.mean == 0.0:
        return f"{ours.strategy} was above {goal} from the start, so the rollouts to reach it mean nothing."
    if reach.reached == 0:
        return f"{ours.strategy} did not reach {goal} with any seed."
    share = f"{100.0 * reach.interval.mean / total:.0f} % of the budget compared at"
    if reach.is_censored:
        return (
            f"{ours.strategy} reached {goal} with {reach.reached} of {len(reach.costs)} seeds; the others "
            f"ended before it, so its mean cost is at least {reach.interval.mean:,.0f} rollouts ({share})."
        )
    low, high = reach.interval.low, reach.interval.high
    spread = f", 95 % interval {low:,.0f} to {high:,.0f}" if reach.interval.is_known else ""
    return f"{ours.strategy} reached {goal} after {reach.interval.mean:,.0f} rollouts ({share}{spread})."


def _token_sentences(findings: Findings) -> list[str]:
    """Report strategies whose difference to the reference changes its sign at equal tokens."""
    return [
        f"At equal tokens the sign of the difference changes: {ours.strategy} differs from {findings.reference} by "
        f"{100.0 * by_tokens.interval.mean:+.1f} points."
        for ours in findings.strategies
        if (by_rollouts := ours.against.get("rollouts")) is not None
        and (by_tokens := ours.against.get("tokens")) is not None
        and by_rollouts.interval.mean * by_tokens.interval.mean < 0.0
    ]
