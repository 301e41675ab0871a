"""A strategy at its ends: empty, exhausted and saturated pools, and prompts that looked solved."""

from __future__ import annotations

from collections.abc import Sequence

from neyman.errors import InfeasibleError
from neyman.randomness import PromptId
from neyman.testing._batch import expect_sound_batch
from neyman.testing._contract import declared, during, expect
from neyman.testing._host import Host, run_step, through_json
from neyman.testing._strategy_hooks import StrategyHooks, count_asked, count_by_prompt, prompt_by_rollout


class StrategyEnds(StrategyHooks):
    """Checks of pools that hold nothing, too little, or no signal."""

    __test__ = False

    def test_every_batch_is_sound(self) -> None:
        """Finite, joined by ids, each rollout once, weighted by prompts; the account balances."""
        for world in range(self.worlds):
            controller, known = self.controller(), dict[int, PromptId]()
            for step in range(3):
                with during("a step with failures and shaped rewards", see="Sound batches"):
                    host = Host(failing=0.1, seed=world, shaped=bool(world % 2))
                    batch, asked = run_step(controller, host, self.brought(step))
                known |= prompt_by_rollout(asked)
                expect_sound_batch(batch, controller.strategy, known)
                ledger = controller.ledger
                held = len(controller.held_rollouts) - len(controller.replayable)
                claim = "every rollout asked for must have a fate in the ledger, or be held for a later step"
                balance = {"requested": ledger.requested, "settled": ledger.rollouts(), "held": held}
                expect(
                    ledger.requested == ledger.rollouts() + held,
                    claim,
                    see="Sound batches",
                    step=step,
                    **balance,
                )

    def test_without_candidates_prompts_come_from_the_pool(self) -> None:
        """A host that brings nothing gets a step all the same."""
        controller = self.controller()
        with during("a step without candidates", see="Empty pools"):
            batch, asked = run_step(controller, Host(), [])
        expect(
            asked,
            "without candidates the prompts must come from the pool",
            see="Empty pools",
            pool=self.pool_size,
        )
        expect_sound_batch(batch, controller.strategy, prompt_by_rollout(asked))

    def test_an_exhausted_pool_ends_the_step_or_is_refused(self) -> None:
        """Three prompts in all: the step ends with those, or refuses a budget that does not fit."""
        for brought in ([0], [0, 1, 2], []):
            controller = self.controller(pool=range(3))
            before = through_json(controller.state_dict())
            given = {"candidates": brought, "pool": 3, "budget": self.budget}
            try:
                with during("a step whose pool holds three prompts", see="Empty pools"):
                    batch, asked = run_step(controller, Host(), brought)
            except InfeasibleError:
                self._expect_untouched(
                    before, through_json(controller.state_dict()), is_open=controller.is_open
                )
                continue
            prompts = count_by_prompt(asked)
            claim = "a step on three prompts must keep to them and to the budget and its allowance"
            kept = set(prompts) <= {0, 1, 2} and count_asked(asked) <= 1.1 * self.budget
            expect(kept, claim, see="Empty pools", asked=prompts, **given)
            expect_sound_batch(batch, controller.strategy, prompt_by_rollout(asked))

    def _expect_untouched(
        self, before: dict[str, object], after: dict[str, object], *, is_open: bool
    ) -> None:
        kept = {
            name: before[name] == after[name]
            for name in ("step", "ledger", "next_rollout", "pool", "carried")
        }
        claim = "a step that is refused must leave no step open and no rollout spent"
        expect(not is_open and all(kept.values()), claim, see="Empty pools", is_open=is_open, unchanged=kept)

    def test_saturated_pools_end_in_finite_batches_without_signal(self) -> None:
        """All prompts always solved, or never: no division by zero, no advantage, no budget overrun."""
        for rate in (0.0, 1.0):
            controller = self.controller()
            host = Host(rates=dict.fromkeys(range(self.pool_size), rate))
            for step in range(3):
                with during(f"a pool in which every success rate is {rate:g}", see="Saturated pools"):
                    batch, asked = run_step(controller, host, self.brought(0))  # the same: all of it is known
                given = {"success_rate": rate, "step": step}
                expect_sound_batch(batch, controller.strategy, prompt_by_rollout(asked))
                claim = "groups whose outcomes are all equal must have no advantage"
                expect(
                    not batch.advantages.any(), claim, see="Saturated pools", got=batch.advantages, **given
                )
                within = 0 < count_asked(asked) <= 1.1 * self.budget
                claim = "a saturated pool must be asked within the budget and its allowance"
                expect(within, claim, see="Saturated pools", asked=count_asked(asked), **given)

    def test_no_state_is_absorbing(self) -> None:
        """A prompt that looked solved, or hopeless, gets rollouts again within ``retest_within`` steps."""
        demand = f"every prompt must get rollouts again within retest_within = {self.retest_within} steps"
        with declared("absorbing", self.absorbing, demand, see="No absorbing state"):
            for successes in (self.settled_trials, 0):
                steps = self._steps_until_visited(successes)
                expect(
                    steps is not None,
                    f"a prompt that looked settled was never asked again: {demand}",
                    see="No absorbing state",
                    history=f"{successes} of {self.settled_trials}, then not seen",
                    others=f"{self.pool_size - 1} prompts of success rate 1/2",
                )

    def _steps_until_visited(self, successes: int) -> int | None:
        """Return the steps until prompt 0 gets a rollout, in a pool where all others are worth more."""
        controller = self.controller()
        controller.strategy.belief.update([0], [successes], [self.settled_trials])
        rates: dict[PromptId, float] = dict.fromkeys(range(self.pool_size), 0.5)
        host = Host(rates={**rates, 0: float(successes > 0)})
        for step in range(self.retest_within):
            with during("steps in which one prompt looks settled", see="No absorbing state"):
                _, asked = run_step(controller, host, self._in_turn(step))
            if 0 in count_by_prompt(asked):
                return step + 1
        return None

    def _in_turn(self, step: int) -> Sequence[PromptId]:
        """Return the host's prompts, the settled one last in its first pass."""
        return [(prompt + 1) % self.pool_size for prompt in map(int, self.brought(step))]
