"""Strategies, and a controller, broken on purpose: exactly the checks that are about the fault fail."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from mutants import assert_caught, complaints
from neyman import Batch, Controller, Strategy
from neyman.beliefs import Counts
from neyman.rules import Allocate, HighestVariance, InOrder, VarianceOptimal
from neyman.testing import BrokenContract, Host, StrategySuite, run_step


class Believed(Counts):
    def __init__(self, **options):
        super().__init__(**{"prior": (1.0, 1.0), "discount": 1.0, "fade": 1.0, **options})


class Counted(Allocate):
    """A sound allocation; each mutant changes its counts."""

    probe = 0
    rule = VarianceOptimal(2, 16)

    def group_size(self, average):
        return self.rule.group_size(average)

    def counts(self, evidence, budget):
        return self.rule.counts(evidence, budget)


def strategy(allocate=None, **parts):
    parts = {"belief": Believed(), "estimator": "rloo", "max_tries": 3, **parts}
    return Strategy(name="mine", allocate=allocate or Counted(), **parts)


# --- parts that are broken -------------------------------------------------------------------------------------


class SpendsOneLess(Counted):
    def counts(self, evidence, budget):
        counts = super().counts(evidence, budget)
        counts[counts.argmax()] -= 1
        return counts


class FirstTakesAll(Counted):
    def counts(self, evidence, budget):
        counts = np.full(len(evidence.ids), 2, dtype=np.int64)
        counts[0] += budget - counts.sum()
        return counts


class SavesWhenRich(Counted):
    def counts(self, evidence, budget):
        return super().counts(evidence, 8 if budget > 32 else budget)


class DividesByTwoPrompts(Counted):
    def counts(self, evidence, budget):
        if len(evidence.ids) == 3:
            raise ValueError("three is a crowd")
        return super().counts(evidence, budget)


class DividesBySignal(Counted):
    def counts(self, evidence, budget):
        if min(evidence.mean.max(), 1.0 - evidence.mean.min()) < 0.3:
            raise ZeroDivisionError("no prompt has any signal")
        return super().counts(evidence, budget)


class SecondProcess(Counted):
    """Decides otherwise in every second process."""

    made = itertools.count()

    def __init__(self):
        self.turned = next(self.made) % 2

    def counts(self, evidence, budget):
        return np.roll(super().counts(evidence, budget), self.turned)


class Wide(Counted):
    rule = VarianceOptimal(2, 64)


class Alphabetic:
    def pick(self, view, count):
        return InOrder().pick(replace(view, candidates=tuple(sorted(view.candidates, key=str))), count)


class OnlyTheHosts:
    def pick(self, view, count):
        return list(view.candidates[:count])


class ForgetsWhatWasSaved(Believed):
    def load_state_dict(self, state):
        super().load_state_dict(state)
        self._table.column("successes")[:] = 0.0


# --- a controller that is broken -------------------------------------------------------------------------------


class Wrapped:
    """A controller; each mutant breaks what it hands out."""

    def __init__(self, controller: Controller) -> None:
        self.inner = controller

    def __getattr__(self, name):
        return getattr(self.inner, name)


def cut(batch: Batch, rows: int) -> Batch:
    names = (
        "rollout_ids",
        "prompt_ids",
        "groups",
        "rewards",
        "success",
        "advantages",
        "weights",
        "age",
        "counted",
    )
    parts = {name: getattr(batch, name)[:rows] for name in (*names, "policy_version")}
    return replace(batch, **parts)


class TrimsToTheDivisor(Wrapped):
    def finish(self):
        batch, divisor = self.inner.finish(), self.inner._shape.divisor
        real = int(batch.counted.sum())
        return cut(batch, real // divisor * divisor) if divisor > 1 else batch


class ZeroForMissing(Wrapped):
    def finish(self):
        batch = self.inner.finish()
        return replace(batch, rewards=np.nan_to_num(batch.rewards))


class LosesFailures(Wrapped):
    def tell(self, outcomes):
        self.inner.tell(replace(o, status="ok", reward=0.0) if o.reward is None else o for o in outcomes)


class LosesTheLastRow(Wrapped):
    def finish(self):
        batch = self.inner.finish()
        is_plain = not self.inner.ledger.retries and 0.0 < np.nanmean(batch.success) < 1.0
        return cut(batch, len(batch) - 1) if is_plain and self.inner.step == 2 else batch


class LearnsFromNothing(Wrapped):
    def finish(self):
        batch = self.inner.finish()
        if batch.stop_reason.name == "FAILED":
            self.inner.strategy.belief.update([0], [0], [4])
        return batch


class FirstToArrive(Wrapped):
    """Counts the tokens of whoever answers first twice."""

    def tell(self, outcomes):
        first, *rest = outcomes
        self.inner.tell([replace(first, n_tokens=2 * first.n_tokens), *rest])


class HoldsTooMuch(Wrapped):
    @property
    def held_rollouts(self):
        return [*self.inner.held_rollouts, 0]


class DoublesWeights(Wrapped):
    def finish(self):
        batch = self.inner.finish()
        return replace(batch, weights=2.0 * batch.weights)


PARTS = {
    "spends one less": (lambda: strategy(SpendsOneLess()), {"the_budget_is_kept_exactly"}),
    "first takes all": (
        lambda: strategy(FirstTakesAll()),
        {"every_prompt_gets_rollouts_within_the_bounds"},
    ),
    "saves when rich": (lambda: strategy(SavesWhenRich()), {"more_budget_never_asks_for_fewer_rollouts"}),
    "crashes on three": (
        lambda: strategy(DividesByTwoPrompts()),
        {"an_exhausted_pool_ends_the_step_or_is_refused"},
    ),
    "crashes without signal": (
        lambda: strategy(DividesBySignal()),
        {"saturated_pools_end_in_finite_batches_without_signal"},
    ),
    "second process": (
        lambda: strategy(SecondProcess()),
        {
            "the_same_calls_give_the_same_decisions_bit_for_bit",
            "the_order_inside_a_tell_does_not_matter",
            "plans_do_not_depend_on_the_order_of_arrival",
            "saved_restored_and_continued_equals_never_stopped",
            "the_names_of_prompts_do_not_matter",
        },
    ),
    "alphabetic": (
        lambda: strategy(Wide(), select=Alphabetic(), prompts=0.5),
        {"the_names_of_prompts_do_not_matter"},
    ),
    "only the host's": (
        lambda: strategy(select=OnlyTheHosts()),
        {"without_candidates_prompts_come_from_the_pool"},
    ),
    "forgets what was saved": (
        lambda: strategy(belief=ForgetsWhatWasSaved()),
        {"saved_restored_and_continued_equals_never_stopped"},
    ),
    "no second look": (
        lambda: strategy(select=HighestVariance(explore="mean")),
        {"no_state_is_absorbing"},
    ),
}
CONTROLLERS = {
    TrimsToTheDivisor: {"rows_come_in_multiples_of_the_divisor_and_none_is_cut"},
    LosesTheLastRow: {"the_budget_is_kept_exactly"},
    ZeroForMissing: {"missing_results_are_counted_and_never_become_rewards"},
    LosesFailures: {
        "missing_results_are_counted_and_never_become_rewards",
        "when_every_result_is_missing_nothing_is_learnt_and_the_batch_says_so",
        "rows_come_in_multiples_of_the_divisor_and_none_is_cut",
    },
    LearnsFromNothing: {"when_every_result_is_missing_nothing_is_learnt_and_the_batch_says_so"},
    FirstToArrive: {"the_order_inside_a_tell_does_not_matter", "plans_do_not_depend_on_the_order_of_arrival"},
    HoldsTooMuch: {"every_batch_is_sound"},
    DoublesWeights: {
        "every_batch_is_sound",
        "missing_results_are_counted_and_never_become_rewards",
        "an_exhausted_pool_ends_the_step_or_is_refused",
        "without_candidates_prompts_come_from_the_pool",
        "saturated_pools_end_in_finite_batches_without_signal",
    },
}


def suite(build=strategy, wrap=None, **attributes):
    class Checked(StrategySuite):
        __test__ = False
        budget, prompts, pool_size, worlds, bounds = 32, 4, 12, 1, (2, 16)

        def make(self) -> Strategy:
            return build()

        def controller(self, **options):
            controller = super().controller(**options)
            return wrap(controller) if wrap else controller

    checked = Checked()
    for name, value in attributes.items():
        setattr(checked, name, value)
    return checked


def test_a_sound_strategy_passes():
    assert complaints(suite()) == {}
    assert complaints(suite(wrap=Wrapped)) == {}


@pytest.mark.parametrize("name", PARTS)
def test_a_broken_part_is_caught(name):
    build, checks = PARTS[name]
    assert_caught(suite(build, bounds=(2, build().allocate.rule.upper)), *checks)


@pytest.mark.parametrize("wrap", CONTROLLERS, ids=lambda v: v.__name__)
def test_a_broken_step_is_caught(wrap):
    assert_caught(suite(wrap=wrap), *CONTROLLERS[wrap])


def test_every_check_has_a_strategy_that_fails_it():
    checks = {name.removeprefix("test_") for name in dir(StrategySuite) if name.startswith("test_")}
    caught = set().union(*(checks for _, checks in PARTS.values()), *CONTROLLERS.values())
    assert checks == caught


@pytest.mark.parametrize(
    ("attribute", "check"),
    [("absorbing", "no_state_is_absorbing"), ("by_name", "the_names_of_prompts_do_not_matter")],
)
def test_an_exception_that_is_not_real_is_no_excuse(attribute, check):
    assert_caught(suite(**{attribute: "because"}), check)


def test_a_step_that_stands_still_is_said_to():
    class NeverAsks(Wrapped):
        def ask(self, capacity=None):
            return []

    controller = NeverAsks(suite().controller())
    with pytest.raises(BrokenContract, match=r"neither.*\n.*\n.*'A step always ends'"):
        run_step(controller, Host(), range(4))
