"""Checks of a strategy's spending: the budget, bounds, rows, failures."""

from __future__ import annotations

import math

import numpy as np

from neyman.controller import Fate, StopReason
from neyman.testing._batch import expect_sound_batch
from neyman.testing._contract import during, expect
from neyman.testing._host import Host, run_step
from neyman.testing._strategy_hooks import StrategyHooks, count_asked, count_by_prompt, prompt_by_rollout

_LOST = (Fate.FAILED, Fate.TIMEOUT, Fate.ABORTED)


class StrategySpend(StrategyHooks):
    """Checks of the rollouts spent."""

    __test__ = False

    def test_the_budget_is_kept_exactly(self) -> None:
        """Fixed spend uses it to the last rollout, every other closing stays within it and the retry allowance."""
        for world in range(self.worlds):
            controller, ids = self.controller(retries=0.1), set[int]()
            for step in range(3):
                with during("a step without failures", see="Exact budget"):
                    batch, asked = run_step(controller, Host(seed=world), self.brought(step))
                spent, given = count_asked(asked), {"step": step, "world": world, "budget": self.budget}
                if controller.strategy.close == "fixed_spend":
                    claim = f"close='fixed_spend' must ask for exactly the budget, asked for {spent}"
                    expect(spent == self.budget, claim, see="Exact budget", **given)
                    rows = int(batch.counted.sum())
                    claim = (
                        f"close='fixed_spend' must train all that was generated, trained {rows} of {spent}"
                    )
                    expect(rows == spent, claim, see="Exact budget", **given)
                most = self.budget + math.floor(0.1 * self.budget)
                claim = (
                    f"rollouts must not exceed the budget and its retry allowance ({most}), asked for {spent}"
                )
                expect(spent <= most, claim, see="Exact budget", **given)
                fresh = prompt_by_rollout(asked).keys()
                expect(
                    len(fresh) == spent and not fresh & ids,
                    "rollout ids must be unique",
                    see="Exact budget",
                    **given,
                )
                ids |= fresh

    def test_every_prompt_gets_rollouts_within_the_bounds(self) -> None:
        """No prompt that is opened gets fewer than ``bounds[0]`` or more than ``bounds[1]``."""
        low, high = self.bounds[0], self.budget if self.bounds[1] is None else self.bounds[1]
        for world in range(self.worlds):
            controller = self.controller()
            for step in range(3):
                with during("a step without failures", see="Bounds"):
                    _, asked = run_step(controller, Host(seed=world), self.brought(step))
                counts = count_by_prompt(asked)
                outside = {prompt: n for prompt, n in counts.items() if not low <= n <= high}
                claim = f"every prompt must get between {low} and {high} rollouts (bounds = {self.bounds})"
                expect(not outside, claim, see="Bounds", outside=outside, step=step, world=world)

    def test_rows_come_in_multiples_of_the_divisor_and_none_is_cut(self) -> None:
        """Failures leave odd counts; rows of weight 0 fill them up, and every valid result keeps its row."""
        for world in range(self.worlds):
            controller = self.controller(divisor=self.divisor, retries=0.0)
            host = Host(failing=0.2, seed=world)
            with during("a step in which a fifth of the results is missing", see="Divisor"):
                batch, asked = run_step(controller, host, self.brought(0))
            given = {"world": world, "divisor": self.divisor, "rows": len(batch)}
            expect(
                len(batch) % self.divisor == 0,
                "rows must be a multiple of the divisor",
                see="Divisor",
                **given,
            )
            strategy = controller.strategy
            if strategy.close == "fixed_spend" and strategy.incomplete == "keep":
                valid = {
                    o.rollout_id for o in host.answer(asked) if o.reward is not None and o.status == "ok"
                }
                trained = set(batch.rollout_ids[batch.counted].tolist())
                claim = (
                    "close='fixed_spend' must train every valid result; none may be cut to fit the divisor"
                )
                expect(trained == valid, claim, see="Divisor", missing=sorted(valid - trained), **given)

    def test_more_budget_never_asks_for_fewer_rollouts(self) -> None:
        """One and a half and two times the budget, in the same world."""
        sizes = [self.budget, self.budget + self.budget // 2, 2 * self.budget]
        for world in range(self.worlds):
            with during("the same step under growing budgets", see="More budget"):
                spent = [
                    count_asked(run_step(self.controller(budget=size), Host(seed=world), self.brought(0))[1])
                    for size in sizes
                ]
            claim = "a larger budget must never ask for fewer rollouts"
            expect(sorted(spent) == spent, claim, see="More budget", budgets=sizes, asked=spent, world=world)

    def test_missing_results_are_counted_and_never_become_rewards(self) -> None:
        """They are drawn again within the allowance; a result that stays missing has no reward and no weight."""
        for world, failing in ((0, 0.1), (1, 0.4), (2, 0.6)):
            controller, host = self.controller(retries=0.25), Host(failing=failing, seed=world)
            with during(f"a step in which {failing:.0%} of the results are missing", see="Missing results"):
                batch, asked = run_step(controller, host, self.brought(0))
            given = {"failing": failing, "world": world}
            most = self.budget + math.floor(0.25 * self.budget)
            claim = f"retries must stay within the allowance ({most} rollouts in all)"
            expect(
                count_asked(asked) <= most, claim, see="Missing results", asked=count_asked(asked), **given
            )
            results = {outcome.rollout_id: outcome for outcome in host.answer(asked)}
            lost = {i for i, o in results.items() if o.reward is None or o.status != "ok"}
            counted = sum(controller.ledger.rollouts(fate) for fate in _LOST)
            claim = "the ledger must count every missing result as failed, timed out or aborted"
            expect(
                counted == len(lost),
                claim,
                see="Missing results",
                missing=len(lost),
                counted=counted,
                **given,
            )
            for row, i in enumerate(batch.rollout_ids.tolist()):
                idle = np.isnan(batch.rewards[row]) and not batch.weights[row] and not batch.counted[row]
                claim = "a missing result must stay missing: no reward, no weight, in no statistic"
                expect(
                    i not in lost or idle, claim, see="Missing results", reward=batch.rewards[row], **given
                )
            expect_sound_batch(batch, controller.strategy, prompt_by_rollout(asked))

    def test_when_every_result_is_missing_nothing_is_learnt_and_the_batch_says_so(self) -> None:
        """The step ends with rows of weight 0, and the belief is where time alone has taken it."""
        controller, untouched = self.controller(retries=0.25), self.make().belief
        with during("a step in which every result is missing", see="Missing results"):
            batch, asked = run_step(controller, Host(failing=1.0), self.brought(0))
        claim = "a step without any valid result must end as FAILED, with no weight in any row"
        is_empty = (
            batch.stop_reason is StopReason.FAILED and not batch.weights.any() and not batch.counted.any()
        )
        expect(
            is_empty, claim, see="Missing results", stop_reason=batch.stop_reason.name, weights=batch.weights
        )
        untouched.advance(1)
        ids = list(count_by_prompt(asked))
        one, other = controller.strategy.belief.predict(ids)[0], untouched.predict(ids)[0]
        claim = "a belief must learn nothing from results that are missing"
        expect(np.array_equal(one, other), claim, see="Missing results", after=one, expected=other)
