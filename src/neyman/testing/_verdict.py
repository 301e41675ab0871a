"""The contract of `neyman.rules.Verdict`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from neyman.rules import Verdict
from neyman.testing._contract import Suite, declared, during, expect

_SEE = "Verdicts"
_WORDS = ("commit", "abandon", "continue")
Prior = tuple[float, float]


class VerdictSuite(Suite):
    """Everything that a step relies on in a stop rule. Subclass it, define ``make``, run pytest.

    Hooks:
        make: returns the rule. Required.

    Attributes:
        group_sizes: sizes of complete groups that are tried, each at least 2.
        priors: Beta parameters of prompts that are tried: flat, U-shaped, sure of success, of failure, of 1/2.
        abandons_mixed: why mixed outcomes may be given up; None demands that they are not.

    Guarantee: passing means the checks hold for all prefixes of these sizes under these priors.
    """

    __test__ = False

    group_sizes: Sequence[int] = (2, 3, 4, 8, 16)
    abandons_mixed: str | None = None
    priors: Sequence[Prior] = ((1.0, 1.0), (0.05, 0.05), (500.0, 0.01), (0.01, 500.0), (40.0, 40.0))

    def make(self) -> Verdict:
        """Return the rule."""
        rule: Verdict = super().make()
        return rule

    def decide(self, rule: Verdict, successes: int, trials: int, size: int, prior: Prior) -> str:
        """Return the verdict on a prefix."""
        claim = f"the verdict on {successes} of {trials} of a group of {size} under Beta{prior}"
        with during(claim, see=_SEE):
            return rule.decide(successes, trials, size, prior)

    def test_looks_rise_to_the_size_of_the_group(self) -> None:
        """A verdict is taken at increasing prefixes, the last of them the whole group."""
        for size in self.group_sizes:
            looks = self.make().looks(size)
            legal = looks[-1:] == (size,) and looks[0] >= 1 and all(a < b for a, b in pairwise(looks))
            claim = "looks must increase from at least 1 to the size of the group"
            expect(legal, claim, see=_SEE, group_size=size, looks=looks)

    def test_every_prefix_gets_a_verdict(self) -> None:
        """One of three words, for every prefix from empty to complete, also where results are missing."""
        for size, prior in self._pairs():
            for trials in range(size + 1):
                for successes in range(trials + 1):
                    word = self.decide(self.make(), successes, trials, size, prior)
                    given = {"successes": successes, "trials": trials, "group_size": size, "prior": prior}
                    expect(
                        word in _WORDS, f"decide must return one of {_WORDS}", see=_SEE, word=word, **given
                    )

    def test_a_complete_group_is_decided(self) -> None:
        """There is nothing left to wait for."""
        for size, prior in self._pairs():
            for successes in range(size + 1):
                word = self.decide(self.make(), successes, size, size, prior)
                given = {"successes": successes, "group_size": size, "prior": prior}
                expect(word != "continue", "a complete group must be decided", see=_SEE, word=word, **given)

    def test_mixed_outcomes_are_never_abandoned(self) -> None:
        """They carry signal, whatever comes next."""
        demand = "mixed outcomes must never be abandoned"
        with declared("abandons_mixed", self.abandons_mixed, demand, see=_SEE):
            for size, prior in self._pairs():
                for trials in range(2, size + 1):
                    for successes in range(1, trials):
                        word = self.decide(self.make(), successes, trials, size, prior)
                        given = {"successes": successes, "trials": trials, "group_size": size, "prior": prior}
                        expect(word != "abandon", demand, see=_SEE, word=word, **given)

    def test_uniform_outcomes_are_never_committed(self) -> None:
        """They carry no signal yet."""
        for size, prior in self._pairs():
            for trials in range(1, size + 1):
                for successes in (0, trials):
                    word = self.decide(self.make(), successes, trials, size, prior)
                    given = {"successes": successes, "trials": trials, "group_size": size, "prior": prior}
                    expect(
                        word != "commit",
                        "uniform outcomes must never be committed",
                        see=_SEE,
                        word=word,
                        **given,
                    )

    def test_a_longer_uniform_prefix_is_no_better(self) -> None:
        """An abandoned prefix stays abandoned as more of the same comes in."""
        for size, prior in self._pairs():
            looks = self.make().looks(size)
            for solved in (False, True):
                words = [self.decide(self.make(), n * solved, n, size, prior) for n in looks]
                first = words.index("abandon") if "abandon" in words else len(words)
                claim = "once a uniform prefix is abandoned, a longer one must be too"
                stays = all(word == "abandon" for word in words[first:])
                given = {"looks": looks, "all_solved": solved, "group_size": size, "prior": prior}
                expect(stays, claim, see=_SEE, words=words, **given)

    def test_verdicts_depend_on_nothing_but_the_prefix(self) -> None:
        """Not on the groups judged before, nor on their order."""
        cases = [
            (successes, trials, size, prior)
            for size, prior in self._pairs()
            for trials in range(size + 1)
            for successes in (0, trials // 2, trials)
        ]
        rule, other = self.make(), self.make()
        forward = [self.decide(rule, *case) for case in cases]
        backward = [self.decide(other, *case) for case in reversed(cases)][::-1]
        again = [self.decide(rule, *case) for case in cases]
        for case, *words in zip(cases, forward, backward, again, strict=True):
            claim = "the same prefix must get the same verdict, whatever was judged before"
            expect(len(set(words)) == 1, claim, see="Determinism", prefix=case, words=words)

    def _pairs(self) -> list[tuple[int, Prior]]:
        return [(size, prior) for size in self.group_sizes for prior in self.priors]
