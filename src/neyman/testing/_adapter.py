"""The contract of an adapter: that a trainer trains what the controller decided, and nothing else."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from neyman import formulas
from neyman.controller import Fate
from neyman.errors import ArgumentError, ContractError, RunFailedError, StateError
from neyman.presets import preset
from neyman.rules import Allocate, Evidence
from neyman.strategy import Strategy
from neyman.testing._adapter_case import Answer, HostCase, HostDriver, HostRecord, HostStep
from neyman.testing._contract import Suite, declared, during, expect, expect_same, refused
from neyman.testing._host import through_json

#: Metrics of a step of "uniform", without the prefix ``neyman/``; rollouts by fate stand there as they occur.
METRICS = frozenset({
    "rollouts", "tokens", "rows", "rows_filled", "groups", "groups_opened", "effective_groups",
    "effective_ratio", "group_size_mean", "group_size_min", "group_size_max", "rounds", "success_rate",
    "prompts_visited", "coverage", "epoch", "belief_brier", "belief_log_loss", "rollouts_total",
    "tokens_total", "generation_seconds",
})  # fmt: skip
_LOST = (Fate.FAILED, Fate.TIMEOUT, Fate.ABORTED)
_TOLERANCE = 2e-4  # relative; advantages are float32


def grade(prompt: int, answer: str) -> float:
    """Return 1 or 0, always the same for the same answer; right in about 1/9, 3/9, 5/9 or 8/9 of all answers."""
    return float(crc32(f"{prompt}|{answer}".encode()) % 9 < (1, 3, 5, 8)[prompt % 4])


def grade_some(prompt: int, answer: str) -> float | None:
    """Grade, but return None or NaN on some answers and raise on others, one in five in all."""
    luck = crc32(f"luck|{prompt}|{answer}".encode()) % 15
    if luck == 0:
        raise RuntimeError("the verifier has no memory left")
    return None if luck == 1 else math.nan if luck == 2 else grade(prompt, answer)


@dataclass(frozen=True)
class Ragged(Allocate):
    """Counts in fixed proportions, so that groups are of unequal size whatever is believed."""

    shares: tuple[int, ...] = (13, 9, 6, 4)

    def counts(self, evidence: Evidence, budget: int) -> NDArray[np.int64]:
        """Return the proportions of the budget, in the order of the prompts."""
        wanted = np.array(self.shares[: len(evidence.issued)]) * budget // sum(self.shares)
        wanted[0] += budget - wanted.sum()
        return wanted.astype(np.int64)


class HostSuite(Suite):
    """Everything that a user relies on in an adapter. Subclass it, define ``make``, run pytest.

    The driver that ``make`` returns runs trainings of a tiny policy through the real adapter, and reports what was
    trained. Every check is one or a few trainings of two to four steps.

    Hooks:
        make: returns a `HostDriver`. Required.

    Attributes:
        group_setting: the trainer's name for the average group size, which refusals must mention.
        eps: added to the standard deviation by the trainer's GRPO, default 1e-4.
        fills_batch: whether missing rows are filled with rows that train nothing, default True; otherwise a step
            may train fewer.
        keeps_no_rollouts: why rollouts cannot be kept for a later step; None demands that they can.
        seed, examples: see `Suite`; not used.

    Guarantee: passing means the checks hold for the trainings tried, which are the same at each run.

    Cost: about 20 trainings.
    """

    __test__ = False

    group_setting: str = "group_size"
    eps: float = 1e-4
    fills_batch: bool = True
    keeps_no_rollouts: str | None = None

    def make(self) -> HostDriver:
        """Return the driver."""
        driver: HostDriver = super().make()
        return driver

    def train(self, strategy: Strategy | None, *, see: str, **options: Any) -> tuple[HostCase, HostRecord]:
        """Run a case through a fresh driver."""
        case = HostCase(strategy=strategy, **{"reward": grade, **options})
        name = "no strategy" if strategy is None else f"strategy {strategy.name!r}"
        with during(f"a training of {case.steps} steps under {name}", see=see):
            return case, self.make().train(case)

    def test_the_budget_is_spent_exactly_and_never_exceeded(self) -> None:
        """Fixed spend generates and trains the trainer's rows; fixed train stays within its bound."""
        see = "A host spends the budget"
        for strategy in (preset("uniform"), ragged()):
            case, record = self.train(strategy, see=see)
            for step, found in enumerate(record.steps):
                counts = {"generated": len(found.generated), "trained": len(real_rows(found))}
                what = f"close='fixed_spend' must generate and train {case.rows} rollouts"
                expect(set(counts.values()) == {case.rows}, what, see=see, step=step, **counts)
        case, record = self.train(preset("dynamic-sampling"), see=see, max_rollouts=64)
        assert case.max_rollouts is not None
        for step, found in enumerate(record.steps):
            spent, trained = len(found.generated), len(real_rows(found))
            what = f"close='fixed_train' must generate at most max_rollouts={case.max_rollouts}"
            expect(spent <= case.max_rollouts, what, see=see, step=step, generated=spent)
            what = f"a step must have the trainer's {case.rows} rows"
            held = len(found.rows) == case.rows if self.fills_batch else trained <= case.rows
            expect(held, what, see=see, step=step, rows=len(found.rows), trained=trained)

    def test_every_row_is_a_rollout_of_its_own_prompt_with_its_own_reward(self) -> None:
        """Rows are joined to rewards by ids, also where results come in rounds and some are given up."""
        see = "Rows are joined by ids"
        for strategy in (ragged(), preset("sara", group_size=8)):
            _, record = self.train(strategy, see=see)
            for step, found in enumerate(record.steps):
                left = Counter(found.generated)
                left.subtract(real_rows(found))
                what = "a row must be a rollout that was generated for its prompt, and train once"
                expect(
                    min(left.values()) >= 0, what, see=see, step=step, extra=[a for a in left if left[a] < 0]
                )
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
        what = (
            "a row's factor must be its advantage in its prompt's group, times rows / (prompts x group size)"
        )
        expect(
            np.allclose(trained, expected, rtol=_TOLERANCE, atol=_TOLERANCE),
            what, see=see, step=step, strategy=strategy.name, trained=trained, expected=expected,
        )  # fmt: skip
        filler = np.delete(found.advantages, places)
        expect(
            not filler.any(), "rows that only fill the batch must train nothing", see=see, advantages=filler
        )

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
        counted = self._ledger(record).rollouts
        lost = sum(counted(fate) for fate in _LOST)
        what = "the ledger must count every missing result as failed, timed out or aborted"
        expect(lost == missing, what, see=see, missing=missing, counted=lost)
        spent = sum(len(found.generated) for found in record.steps)
        what = "missing results must be drawn again within the allowance"
        expect(spent > sum(len(found.rows) for found in record.steps), what, see=see, generated=spent)

    def test_ten_steps_without_a_result_end_the_run_with_the_cause(self) -> None:
        """A verifier that is down must neither train on zeros nor let the run go on for days."""
        see = "Missing results in a host"
        message = refused(
            lambda: self.train(preset("uniform"), see=see, reward=nothing, retries=0.0, steps=12),
            RunFailedError, "the tenth step in a row without a valid result", see=see,
        )  # fmt: skip
        expect("10 steps in a row" in message, "the error must give the cause", see=see, message=message)

    def test_uniform_trains_as_the_trainer_alone(self) -> None:
        """The same answers get the same advantages as without neyman."""
        see = "Uniform is the trainer alone"
        (_, stock), (_, ours) = (self.train(strategy, see=see) for strategy in (None, preset("uniform")))
        for step, (one, other) in enumerate(zip(stock.steps, ours.steps, strict=True)):
            what = "under 'uniform' the trainer must train the answers that it trains alone, with the same advantages"
            expect_same(one.metrics.keys() - other.metrics.keys(), set(), what, see=see, step=step)
            (left, first), (right, second) = in_order(one), in_order(other)
            expect_same(left, right, what, see=see, step=step)
            same = np.allclose(first, second, rtol=_TOLERANCE, atol=_TOLERANCE)
            expect(same, what, see=see, step=step, stock=first, uniform=second)

    def test_resumed_equals_never_stopped(self) -> None:
        """A checkpoint after two of four steps: the last two are the same, and so is the state that they leave."""
        see = "Resumption in a host"
        for strategy in (preset("neyman"), preset("sara", group_size=8)):
            _, whole = self.train(strategy, see=see, steps=4, save_after=2)
            _, resumed = self.train(strategy, see=see, steps=4, resume=whole.checkpoint)
            what = "a run resumed from its checkpoint must equal one that never stopped"
            expect_same(len(resumed.steps), 2, what, see=see, strategy=strategy.name)
            for one, other in zip(whole.steps[2:], resumed.steps, strict=True):
                (left, first), (right, second) = in_order(one), in_order(other)
                expect_same(left, right, what, see=see, strategy=strategy.name)
                expect_same(first, second, what, see=see, strategy=strategy.name)
            states = [through_json(self._controller(run).state_dict()) for run in (whole, resumed)]
            expect_same(states[0], states[1], what, see=see, strategy=strategy.name)

    def test_a_checkpoint_of_other_prompts_or_another_strategy_is_refused_with_a_way_out(self) -> None:
        """What was learnt of other prompts must not be taken for these; another strategy is taken on purpose only."""
        see = "Resumption in a host"
        _, saved = self.train(preset("uniform"), see=see, steps=1, save_after=1)
        resume: dict[str, Any] = {"see": see, "steps": 2, "resume": saved.checkpoint}
        message = refused(
            lambda: self.train(preset("uniform"), prompts=range(20, 32), **resume),
            StateError, "a checkpoint of another dataset", see=see,
        )  # fmt: skip
        expect(
            "another dataset" in message and "new run" in message, "a refusal must have a way out", see=see
        )
        message = refused(
            lambda: self.train(preset("vip"), **resume),
            StateError,
            "a checkpoint of another strategy",
            see=see,
        )
        expect(
            "accept_strategy_change" in message, "the refusal must name the setting that accepts it", see=see
        )
        _, accepted = self.train(preset("vip"), accepts_change=True, **resume)
        what = "an accepted change of strategy must go on with the checkpoint's ledger"
        expect_same(self._ledger(accepted).steps, 2, what, see=see)

    def test_every_rollout_has_a_fate(self) -> None:
        """The ledger's requests are what the engine generated; each is settled, or held for a later step."""
        see = "The account of a host"
        for strategy in (preset("neyman"), preset("dynamic-sampling")):
            _, record = self.train(strategy, see=see, reward=grade_some, retries=0.25, steps=3)
            controller, ledger = self._controller(record), self._ledger(record)
            held = len(controller.held_rollouts) - len(controller.replayable)
            spent = sum(len(found.generated) for found in record.steps) + ledger.rollouts(Fate.PADDING)
            given = {
                "requested": ledger.requested,
                "generated": spent,
                "settled": ledger.rollouts(),
                "held": held,
            }
            what = "every rollout must be requested, generated and settled once"
            same = ledger.requested == spent == ledger.rollouts() + held
            expect(same, what, see=see, strategy=strategy.name, **given)

    def test_metrics_have_the_names_of_every_host(self) -> None:
        """A dashboard made for one trainer reads another's runs."""
        see = "Metrics"
        case, record = self.train(preset("uniform"), see=see)
        for step, found in enumerate(record.steps):
            ours = {
                name.removeprefix("neyman/"): value
                for name, value in found.metrics.items()
                if "neyman/" in name
            }
            names = {name for name in ours if "/" not in name}
            what = "the metrics of a step of 'uniform' must have these names below neyman/"
            expect(names == METRICS, what, see=see, lacking=METRICS - names, unknown=names - METRICS)
            total = (step + 1) * case.rows
            what = "rollouts are per step, rollouts_total since the start"
            expect(
                (ours["rollouts"], ours["rollouts_total"]) == (case.rows, total),
                what,
                see=see,
                step=step,
                metrics=ours,
            )

    def test_a_strategy_that_does_not_fit_is_refused_in_the_trainers_words(self) -> None:
        """Bounds that the step cannot meet, before anything is generated, with the setting that would."""
        see = "Refusals"
        message = refused(
            lambda: self.train(preset("vip", lower=12), see=see),
            ArgumentError,
            "lower=12 for 4 prompts of 8",
            see=see,
        )
        named = f"{self.group_setting} to 12 or more" in message
        expect(named, f"the refusal must name {self.group_setting!r}", see=see, message=message)

    def test_a_reward_that_is_not_binary_needs_a_named_success(self) -> None:
        """0.3 is no verdict: it must be neither a success nor a failure."""
        see = "Refusals"
        message = refused(
            lambda: self.train(preset("uniform"), see=see, reward=shaped),
            ContractError, "a reward that is not binary, with no success named,", see=see,
        )  # fmt: skip
        what = "the refusal must name the setting"
        expect("not binary" in message and "success" in message, what, see=see, message=message)

    def test_rollouts_kept_for_a_later_step_train_there(self) -> None:
        """With ``max_age=1`` the surplus of a step is not drawn a second time; a host without a place refuses it."""
        see = "Rollouts kept"
        demand = "surplus rollouts must train in the next step under max_age=1"
        strategy = preset("dynamic-sampling", over_provision=4.0, max_age=1)
        if self.keeps_no_rollouts is not None:
            refused(
                lambda: self.train(strategy, see=see),
                ArgumentError,
                "max_age=1 in a host that keeps none",
                see=see,
            )
        with declared("keeps_no_rollouts", self.keeps_no_rollouts, demand, see=see):
            try:
                _, record = self.train(strategy, see=see, steps=4, retries=0.0)
            except ArgumentError as error:
                expect(False, demand, see=see, error=error)
            kept = [Counter(real_rows(found)) - Counter(found.generated) for found in record.steps]
            expect(any(kept), demand, see=see, trained_of_earlier_steps=[sum(part.values()) for part in kept])

    @staticmethod
    def _controller(record: HostRecord) -> Any:
        expect(
            record.controller,
            "a record of a training under a strategy must have its controller",
            see="A driver",
        )
        return record.controller

    def _ledger(self, record: HostRecord) -> Any:
        return self._controller(record).ledger


def ragged() -> Strategy:
    """Return a strategy of one round with groups of unequal size."""
    return Strategy(name="ragged", allocate=Ragged())


def nothing(prompt: int, answer: str) -> None:
    """Return no reward, whatever the answer."""
    del prompt, answer


def shaped(prompt: int, answer: str) -> float:
    """Return a reward that is not binary."""
    return 0.3 + 0.4 * grade(prompt, answer)


def is_missing(answer: Answer) -> bool:
    """Whether `grade_some` has no reward for an answer."""
    try:
        reward = grade_some(*answer)
    except RuntimeError:
        return True
    return reward is None or math.isnan(reward)


def real_rows(step: HostStep) -> list[Answer]:
    """Return the answers that train, without rows that only fill the batch."""
    return [row for row in step.rows if row is not None]


def in_order(step: HostStep) -> tuple[list[Answer | None], NDArray[np.float64]]:
    """Return a step's rows and advantages in an order that does not depend on the trainer's."""
    keys = [("", "") if row is None else (f"{row[0]:09}", row[1]) for row in step.rows]
    order = sorted(range(len(keys)), key=lambda place: (keys[place], float(step.advantages[place])))
    return [step.rows[place] for place in order], step.advantages[order]
