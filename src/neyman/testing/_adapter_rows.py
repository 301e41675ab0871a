"""Checks of the rows that a trainer trains under an adapter."""

from __future__ import annotations

from collections import Counter

import numpy as np

from neyman import formulas
from neyman.errors import ArgumentError
from neyman.presets import preset
from neyman.strategy import Strategy
from neyman.testing._adapter_case import HostStep
from neyman.testing._adapter_hooks import HostHooks, grade, in_order, ragged, real_rows
from neyman.testing._contract import declared, expect, expect_same

_TOLERANCE = 2e-4  # relative; advantages are float32


class HostRows(HostHooks):
    """Checks of counts, joins and advantages."""

    __test__ = False

    def test_the_budget_is_spent_exactly_and_never_exceeded(self) -> None:
        """Fixed spend generates and trains the trainer's rows; fixed train stays within its bound."""
        see = "A host spends the budget"
        for strategy in (preset("uniform"), ragged()):
            case, record = self.train(strategy, see=see)
            for step, found in enumerate(record.steps):
                counts = {"generated": len(found.generated), "trained": len(real_rows(found))}
                claim = f"close='fixed_spend' must generate and train {case.rows} rollouts"
                expect(set(counts.values()) == {case.rows}, claim, see=see, step=step, **counts)
        case, record = self.train(preset("dynamic-sampling"), see=see, max_rollouts=64)
        assert case.max_rollouts is not None
        for step, found in enumerate(record.steps):
            spent, trained = len(found.generated), len(real_rows(found))
            claim = f"close='fixed_train' must generate at most max_rollouts={case.max_rollouts}"
            expect(spent <= case.max_rollouts, claim, see=see, step=step, generated=spent)
            claim = f"a step must have the trainer's {case.rows} rows"
            held = len(found.rows) == case.rows if self.fills_batch else trained <= case.rows
            expect(held, claim, see=see, step=step, rows=len(found.rows), trained=trained)

    def test_every_row_is_a_rollout_of_its_own_prompt_with_its_own_reward(self) -> None:
        """Rows are joined to rewards by ids, also where results come in rounds and some are given up."""
        see = "Rows are joined by ids"
        for strategy in (ragged(), preset("sara", group_size=8)):
            _, record = self.train(strategy, see=see)
            for step, found in enumerate(record.steps):
                left = Counter(found.generated)
                left.subtract(real_rows(found))
                claim = "a row must be a rollout that was generated for its prompt, and train once"
                extra = [answer for answer in left if left[answer] < 0]
                expect(not extra, claim, see=see, step=step, extra=extra)
                self._expect_advantages(found, strategy, step, see)

    def test_unequal_groups_weigh_prompts_equally(self) -> None:
        """Advantages are those of each prompt's own group, times rows / (prompts x group size)."""
        see = "Prompts weigh equally"
        _, record = self.train(ragged(), see=see)
        for step, found in enumerate(record.steps):
            sizes = sorted(Counter(prompt for prompt, _ in real_rows(found)).values())
            expect(len(set(sizes)) > 1, "the counts of the rule must reach the trainer", see=see, sizes=sizes)
            self._expect_advantages(found, ragged(), step, see)

    def _expect_advantages(self, found: HostStep, strategy: Strategy, step: int, see: str) -> None:
        """Compare each row's factor with the mean over prompts of each group's mean."""
        places = [place for place, row in enumerate(found.rows) if row is not None]
        answers = real_rows(found)
        rewards = np.array([grade(*answer) for answer in answers])
        groups = np.array([prompt for prompt, _ in answers])
        sizes = Counter(groups.tolist())
        factor = [len(found.rows) / (len(sizes) * sizes[prompt]) for prompt in groups.tolist()]
        expected = formulas.group_advantages(rewards, groups, estimator="grpo", eps=self.eps) * factor
        trained = found.advantages[places]
        claim = "a row's factor must be its group's advantage times rows / (prompts x group size)"
        expect(
            np.allclose(trained, expected, rtol=_TOLERANCE, atol=_TOLERANCE),
            claim, see=see, step=step, strategy=strategy.name, trained=trained, expected=expected,
        )  # fmt: skip
        filler = np.delete(found.advantages, places)
        expect(not filler.any(), "rows that only fill the batch must train nothing", see=see, filler=filler)

    def test_uniform_trains_as_the_trainer_alone(self) -> None:
        """The same answers get the same advantages as without neyman."""
        see = "Uniform is the trainer alone"
        (_, stock), (_, ours) = (self.train(strategy, see=see) for strategy in (None, preset("uniform")))
        for step, (one, other) in enumerate(zip(stock.steps, ours.steps, strict=True)):
            claim = "under 'uniform' the trainer must train the answers that it trains alone, with the same advantages"
            expect_same(one.metrics.keys() - other.metrics.keys(), set(), claim, see=see, step=step)
            (left, first), (right, second) = in_order(one), in_order(other)
            expect_same(left, right, claim, see=see, step=step)
            same = np.allclose(first, second, rtol=_TOLERANCE, atol=_TOLERANCE)
            expect(same, claim, see=see, step=step, stock=first, uniform=second)

    def test_rollouts_kept_for_a_later_step_train_there(self) -> None:
        """With ``max_age=1`` the surplus of a step is not drawn a second time; a host without a place refuses it."""
        see = "Rollouts kept"
        demand = "surplus rollouts must train in the next step under max_age=1"
        strategy = preset("dynamic-sampling", over_provision=4.0, max_age=1)
        if self.keeps_no_rollouts is not None:
            self.refuses(ArgumentError, "max_age=1 in a host that keeps none", strategy, see=see)
        with declared("keeps_no_rollouts", self.keeps_no_rollouts, demand, see=see):
            try:
                _, record = self.train(strategy, see=see, steps=4, retries=0.0)
            except ArgumentError as error:
                expect(False, demand, see=see, error=error)
            kept = [Counter(real_rows(found)) - Counter(found.generated) for found in record.steps]
            expect(any(kept), demand, see=see, trained_of_earlier_steps=[sum(part.values()) for part in kept])
