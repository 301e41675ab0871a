"""A belief saved, restored and led twice through the same history."""

from __future__ import annotations

from functools import partial
from typing import Any

from neyman.errors import StateError
from neyman.testing._belief_hooks import BeliefHooks
from neyman.testing._contract import expect, expect_same, refused
from neyman.testing._host import through_json


class BeliefStates(BeliefHooks):
    """Checks of determinism and of saved states."""

    __test__ = False

    def test_the_same_calls_give_the_same_numbers_bit_for_bit(self) -> None:
        """Ranks that see the same results must think the same."""
        one, other = (self.drive(self.ready(), 9, 6) for _ in range(2))
        expect_same(
            one, other, "the same calls in the same order must give the same numbers", see="Determinism"
        )

    def test_saved_loaded_and_continued_equals_never_stopped(self) -> None:
        """A resumed run has the beliefs of the uninterrupted one, bit for bit."""
        straight = self.ready()
        self.drive(straight, 4, 5)
        saved = through_json(straight.state_dict())
        other = self.ready()
        self.drive(other, 77, 3)  # whatever it held is replaced
        other.load_state_dict(saved)
        claim = "a belief that was saved, loaded and continued must predict as one that never stopped"
        expect_same(self.drive(straight, 5, 6), self.drive(other, 5, 6), claim, see="Saved states")
        expect_same(straight.state_dict(), other.state_dict(), claim, see="Saved states")

    def test_string_and_integer_ids_stay_two_prompts(self) -> None:
        """``1`` and ``"1"`` are two prompts, also after JSON."""
        belief, other = self.ready(), self.ready()
        belief.update([1, "1"], [8, 0], [8, 8])
        expected = belief.predict([1, "1"])[0]
        other.load_state_dict(through_json(belief.state_dict()))
        mean = other.predict([1, "1"])[0]
        claim = "1 and '1' must stay two prompts, also through a saved state"
        expect(mean[0] > 0.5 > mean[1], claim, see="Saved states", before=expected, after=mean)

    def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(self) -> None:
        """Anything but a state, and one that lacks a key or has one too many, raises StateError."""
        belief: Any = self.ready()
        self.drive(belief, 6, 4)
        good = through_json(belief.state_dict())
        no_states: tuple[Any, ...] = (None, [], {}, "text")
        bad: dict[str, Any] = {repr(value): value for value in no_states}
        bad |= {f"the state without {key!r}": {k: v for k, v in good.items() if k != key} for key in good}
        bad["the state with an unknown key 'surplus'"] = {**good, "surplus": 1}
        bad |= {f"a state of {type(b).__name__}": through_json(b.state_dict()) for b in self.strangers()}
        for name, state in bad.items():
            refused(
                partial(belief.load_state_dict, state),
                StateError,
                f"load_state_dict of {name}",
                see="Saved states",
            )
            claim = f"a refused state ({name}) must change nothing"
            expect_same(good, through_json(belief.state_dict()), claim, see="Saved states")
