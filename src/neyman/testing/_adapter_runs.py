"""Checks of a whole run under an adapter: missing results, resumption, the account, metrics and refusals."""

from __future__ import annotations

from typing import Any

from neyman.controller import Fate
from neyman.errors import ArgumentError, ContractError, RunFailedError, StateError
from neyman.presets import preset
from neyman.testing._adapter_hooks import (
    HostHooks,
    controller_of,
    grade_some,
    in_order,
    is_missing,
    nothing,
    shaped,
)
from neyman.testing._contract import expect, expect_same
from neyman.testing._host import through_json

#: Metrics of a step of "uniform", without the prefix ``neyman/``; rollouts by fate stand there as they occur.
METRICS = frozenset({
    "rollouts", "tokens", "rows", "rows_filled", "groups", "groups_opened", "effective_groups",
    "effective_ratio", "group_size_mean", "group_size_min", "group_size_max", "rounds", "success_rate",
    "prompts_visited", "coverage", "epoch", "belief_brier", "belief_log_loss", "rollouts_total",
    "tokens_total", "generation_seconds",
})  # fmt: skip
_LOST = (Fate.FAILED, Fate.TIMEOUT, Fate.ABORTED)


class HostRuns(HostHooks):
    """Checks of results that are missing, states that are saved, and settings that do not fit."""

    __test__ = False

    def test_missing_results_are_drawn_again_and_never_become_rewards(self) -> None:
        """None, NaN and an error are three ways to have no reward; none of them is a 0."""
        see = "Missing results in a host"
        _, record = self.train(preset("uniform"), see=see, reward=grade_some, retries=1.0, steps=3)
        missing = 0
        for step, found in enumerate(record.steps):
            missing += sum(is_missing(answer) for answer in found.generated)
            trained = [
                (answer, float(advantage))
                for answer, advantage in zip(found.rows, found.advantages, strict=True)
                if answer is not None and is_missing(answer) and advantage
            ]
            expect(not trained, "a missing result must train nothing", see=see, step=step, trained=trained)
        expect(missing, "the verifier of this check fails on some answers, which must be passed on", see=see)
        counted = controller_of(record).ledger.rollouts
        lost = sum(counted(fate) for fate in _LOST)
        claim = "the ledger must count every missing result as failed, timed out or aborted"
        expect(lost == missing, claim, see=see, missing=missing, counted=lost)
        spent = sum(len(found.generated) for found in record.steps)
        claim = "missing results must be drawn again within the allowance"
        expect(spent > sum(len(found.rows) for found in record.steps), claim, see=see, generated=spent)

    def test_ten_steps_without_a_result_end_the_run_with_the_cause(self) -> None:
        """A verifier that is down must neither train on zeros nor let the run go on for days."""
        see = "Missing results in a host"
        message = self.refuses(
            RunFailedError,
            "the tenth step in a row without a valid result",
            preset("uniform"),
            reward=nothing,
            retries=0.0,
            steps=12,
            see=see,
        )
        expect("10 steps in a row" in message, "the error must give the cause", see=see, message=message)

    def test_resumed_equals_never_stopped(self) -> None:
        """A checkpoint after two of four steps: the last two are the same, and so is the state that they leave."""
        see = "Resumption in a host"
        for strategy in (preset("neyman"), preset("sara", group_size=8)):
            _, whole = self.train(strategy, see=see, steps=4, save_after=2)
            _, resumed = self.train(strategy, see=see, steps=4, resume=whole.checkpoint)
            claim = "a run resumed from its checkpoint must equal one that never stopped"
            expect_same(len(resumed.steps), 2, claim, see=see, strategy=strategy.name)
            for one, other in zip(whole.steps[2:], resumed.steps, strict=True):
                (left, first), (right, second) = in_order(one), in_order(other)
                expect_same(left, right, claim, see=see, strategy=strategy.name)
                expect_same(first, second, claim, see=see, strategy=strategy.name)
            states = [through_json(controller_of(run).state_dict()) for run in (whole, resumed)]
            expect_same(states[0], states[1], claim, see=see, strategy=strategy.name)

    def test_a_checkpoint_of_other_prompts_or_another_strategy_is_refused_with_a_way_out(self) -> None:
        """Beliefs about other prompts must not pass for these; another strategy is taken on purpose only."""
        see = "Resumption in a host"
        _, saved = self.train(preset("uniform"), see=see, steps=1, save_after=1)
        resume: dict[str, Any] = {"see": see, "steps": 2, "resume": saved.checkpoint}
        message = self.refuses(
            StateError, "a checkpoint of another dataset", preset("uniform"), prompts=range(20, 32), **resume
        )
        named = "another dataset" in message and "new run" in message
        expect(named, "the refusal must have a way out", see=see, message=message)
        message = self.refuses(StateError, "a checkpoint of another strategy", preset("vip"), **resume)
        named = "accept_strategy_change" in message
        expect(named, "the refusal must name the setting that accepts it", see=see, message=message)
        _, accepted = self.train(preset("vip"), accepts_change=True, **resume)
        claim = "an accepted change of strategy must go on with the checkpoint's ledger"
        expect_same(controller_of(accepted).ledger.steps, 2, claim, see=see)

    def test_every_rollout_has_a_fate(self) -> None:
        """The engine generated the ledger's requests; each is settled, or held for a later step."""
        see = "The account of a host"
        for strategy in (preset("neyman"), preset("dynamic-sampling")):
            _, record = self.train(strategy, see=see, reward=grade_some, retries=0.25, steps=3)
            controller, ledger = controller_of(record), controller_of(record).ledger
            held = len(controller.held_rollouts) - len(controller.replayable)
            spent = sum(len(found.generated) for found in record.steps) + ledger.rollouts(Fate.PADDING)
            given = {"generated": spent, "settled": ledger.rollouts(), "held": held}
            claim = "every rollout must be requested, generated and settled once"
            same = ledger.requested == spent == ledger.rollouts() + held
            expect(same, claim, see=see, requested=ledger.requested, strategy=strategy.name, **given)

    def test_metrics_have_the_names_of_every_host(self) -> None:
        """A dashboard made for one trainer reads another's runs."""
        see = "Metrics"
        case, record = self.train(preset("uniform"), see=see)
        for step, found in enumerate(record.steps):
            ours = {k.removeprefix("neyman/"): v for k, v in found.metrics.items() if "neyman/" in k}
            names = {name for name in ours if "/" not in name}
            claim = "the metrics of a step of 'uniform' must have these names below neyman/"
            expect(names == METRICS, claim, see=see, lacking=METRICS - names, unknown=names - METRICS)
            counted = ours["rollouts"], ours["rollouts_total"]
            claim = "rollouts are per step, rollouts_total since the start"
            expect(counted == (case.rows, (step + 1) * case.rows), claim, see=see, step=step, metrics=ours)

    def test_a_strategy_that_does_not_fit_is_refused_in_the_trainers_words(self) -> None:
        """Bounds that the step cannot meet, before anything is generated, with the setting that would."""
        see = "Refusals"
        message = self.refuses(ArgumentError, "lower=12 for 4 prompts of 8", preset("vip", lower=12), see=see)
        named = f"{self.group_setting} to 12 or more" in message
        expect(named, f"the refusal must name {self.group_setting!r}", see=see, message=message)

    def test_a_reward_that_is_not_binary_needs_a_named_success(self) -> None:
        """0.3 is no verdict: it must be neither a success nor a failure."""
        see = "Refusals"
        message = self.refuses(
            ContractError,
            "a reward that is not binary, with no success named,",
            preset("uniform"),
            reward=shaped,
            see=see,
        )
        claim = "the refusal must name the setting"
        expect("not binary" in message and "success" in message, claim, see=see, message=message)
