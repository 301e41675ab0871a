"""A host of a hundred lines, sound and broken on purpose: exactly the checks that are about the fault fail."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from mutants import assert_caught, complaints
from neyman.errors import ArgumentError
from neyman.formulas import group_advantages
from neyman.hosts.outcomes import outcome
from neyman.hosts.refusals import check_prompts
from neyman.hosts.run import HostRun
from neyman.hosts.success import read_binary
from neyman.hosts.terms import Terms
from neyman.randomness import fingerprint
from neyman.testing import HostRecord, HostStep, HostSuite


class Prompts:
    def __init__(self, prompts):
        self.ids = range(len(prompts))
        self.names = list(prompts)

    def texts(self):
        return [f"question {name}" for name in self.names]

    def digest(self):
        return fingerprint(self.texts())


class Host:
    """A trainer whose policy writes the number of an answer; each mutant breaks one method of its adapter."""

    words: ClassVar[Mapping[str, str]] = {
        "batch": "batch",
        "group_setting": "group_size",
        "batch_settings": "batch_size",
        "loss_setting": "loss=tokens",
        "max_rollouts": "max_rollouts",
        "option": "{name}={value!r}",
        "accept_change": "pass accept_strategy_change=True",
        "new_run": "start a new run",
        "filler": "copies of weight zero",
    }

    def __init__(self, case):
        self.case, self.prompts = case, Prompts(case.prompts)
        self.asked, self.generated = Counter(), []
        self.number, self.run, self.answers = 0, None, {}
        if case.strategy is not None:
            self.run = self.adapted(case)
        if case.resume is not None:
            self.load(json.loads((case.resume / "state.json").read_text()))

    def adapted(self, case):
        terms = Terms(rows=case.rows, group_size=case.group_size, aggregation="sequence_mean", **self.words)
        check_prompts(len(self.prompts.ids), terms, "lower batch_size")
        return HostRun(
            case.strategy,
            terms,
            self.prompts,
            lambda message: None,
            max_rollouts=case.max_rollouts,
            features=None,
            accepts_change=case.accepts_change,
            retries=case.retries,
        )

    def brought(self):
        first = self.number * self.case.prompts_per_step
        return [(first + place) % len(self.prompts.ids) for place in range(self.case.prompts_per_step)]

    def answer(self, prompt):
        """Return an answer and its reward, NaN where the verifier fails."""
        self.asked[self.number, prompt] += 1
        answer = (self.prompts.names[prompt], f"{self.number}:{self.asked[self.number, prompt]}")
        self.generated.append(answer)
        try:
            reward = self.case.reward(*answer)
        except RuntimeError:
            reward = None
        return answer, math.nan if reward is None else reward

    def outcome(self, rollout_id, prompt, reward):
        verdict = None if math.isnan(reward) else read_binary(reward, "the verifier", "name success")
        return outcome(rollout_id, prompt, reward, verdict, 3)

    def draw(self):
        """Return the batch of a step, with the answer of each of its rows."""
        controller, answers = self.run.controller, self.answers
        controller.begin(self.brought())
        while not controller.is_done:
            told = []
            for request in controller.ask():
                for rollout_id in request.rollout_ids:
                    answers[rollout_id], reward = self.answer(request.prompt_id)
                    told.append(self.outcome(rollout_id, request.prompt_id, reward))
            controller.tell(told)
        batch = controller.finish()
        self.run.check(batch)
        return batch

    def step(self):
        self.generated = []
        if self.run is None:
            drawn = [self.answer(p) for p in self.brought() for _ in range(self.case.group_size)]
            rewards, groups = np.array([r for _, r in drawn]), np.array([a[0] for a, _ in drawn])
            rows, advantages, metrics = [a for a, _ in drawn], group_advantages(rewards, groups), {}
        else:
            batch = self.draw()
            pairs = zip(batch.rollout_ids.tolist(), batch.groups.tolist(), strict=True)
            rows = [self.answers[i] if group >= 0 else None for i, group in pairs]
            advantages = self.advantages(batch)
            metrics = self.run.metrics(batch, generation_seconds=0.1)
        self.number += 1
        return HostStep(rows=rows, advantages=advantages, generated=self.generated, metrics=metrics)

    def advantages(self, batch):
        return batch.advantages * batch.weights

    def state(self):
        kept = {i: self.answers[i] for i in self.run.controller.held_rollouts}
        return {"number": self.number, "answers": kept, **self.run.state()}

    def load(self, state):
        self.run.restore(state, "state.json")
        self.number = state["number"]
        self.answers |= {int(i): tuple(answer) for i, answer in state["answers"].items()}


class Driver:
    def __init__(self, kind, folder):
        self.kind, self.folder = kind, folder

    def train(self, case):
        host = self.kind(case)
        steps, checkpoint = [], None
        while host.number < case.steps:
            steps.append(host.step())
            if host.number == case.save_after:
                checkpoint = self.folder / f"checkpoint-{len(list(self.folder.iterdir()))}"
                checkpoint.mkdir()
                (checkpoint / "state.json").write_text(json.dumps(host.state()))
        return HostRecord(steps=steps, controller=host.run and host.run.controller, checkpoint=checkpoint)


# --- an adapter that is broken ---------------------------------------------------------------------------------


class DrawsOneMore(Host):
    def draw(self):
        self.generated.append((0, "one more"))
        return super().draw()


class RowsSlip(Host):
    def advantages(self, batch):
        return np.roll(super().advantages(batch), 1)


class FlatMean(Host):
    def advantages(self, batch):
        return batch.advantages * (batch.weights > 0)


class ZeroForMissing(Host):
    def outcome(self, rollout_id, prompt, reward):
        return super().outcome(rollout_id, prompt, 0.0 if math.isnan(reward) else reward)


class DrawsAgainByItself(Host):
    def answer(self, prompt):
        answer, reward = super().answer(prompt)
        return super().answer(prompt) if math.isnan(reward) else (answer, reward)


class ShapedIsFailed(Host):
    def outcome(self, rollout_id, prompt, reward):
        return outcome(rollout_id, prompt, reward, None if math.isnan(reward) else reward == 1.0, 3)


class GoesOnForever(Host):
    def adapted(self, case):
        run = super().adapted(case)
        run.check = lambda batch: None
        return run


class OtherPrompts(Host):
    def brought(self):
        return super().brought() if self.run is None else [(i + 1) % 12 for i in super().brought()]


class Forgets(Host):
    def load(self, state):
        self.number = state["number"]


class TakesAnyCheckpoint(Host):
    def load(self, state):
        super().load({**state, **{name: self.run.state()[name] for name in ("prompts", "strategy")}})


class OtherNames(Host):
    def step(self):
        step = super().step()
        step.metrics = {name.replace("rounds", "calls"): value for name, value in step.metrics.items()}
        return step


class OtherWords(Host):
    words: ClassVar[Mapping[str, str]] = {**Host.words, "group_setting": "n"}


class KeepsNone(Host):
    def adapted(self, case):
        if case.strategy.max_age:
            raise ArgumentError("max_age is not for this host")
        return super().adapted(case)


HOSTS = {
    DrawsOneMore: {"the_budget_is_spent_exactly_and_never_exceeded", "every_rollout_has_a_fate"},
    RowsSlip: {
        "every_row_is_a_rollout_of_its_own_prompt_with_its_own_reward",
        "unequal_groups_weigh_prompts_equally",
        "uniform_trains_as_the_trainer_alone",
    },
    FlatMean: {
        "every_row_is_a_rollout_of_its_own_prompt_with_its_own_reward",
        "unequal_groups_weigh_prompts_equally",
    },
    ZeroForMissing: {
        "missing_results_are_drawn_again_and_never_become_rewards",
        "ten_steps_without_a_result_end_the_run_with_the_cause",
    },
    DrawsAgainByItself: {
        "missing_results_are_drawn_again_and_never_become_rewards",
        "every_rollout_has_a_fate",
    },
    ShapedIsFailed: {"a_reward_that_is_not_binary_needs_a_named_success"},
    GoesOnForever: {"ten_steps_without_a_result_end_the_run_with_the_cause"},
    OtherPrompts: {"uniform_trains_as_the_trainer_alone"},
    Forgets: {
        "resumed_equals_never_stopped",
        "a_checkpoint_of_other_prompts_or_another_strategy_is_refused_with_a_way_out",
    },
    TakesAnyCheckpoint: {"a_checkpoint_of_other_prompts_or_another_strategy_is_refused_with_a_way_out"},
    OtherNames: {"metrics_have_the_names_of_every_host"},
    OtherWords: {"a_strategy_that_does_not_fit_is_refused_in_the_trainers_words"},
    KeepsNone: {"rollouts_kept_for_a_later_step_train_there"},
}


def suite(folder: Path, kind=Host, **attributes):
    class Checked(HostSuite):
        __test__ = False

        def make(self):
            return Driver(kind, folder)

    checked = Checked()
    for name, value in attributes.items():
        setattr(checked, name, value)
    return checked


def test_a_sound_host_passes(tmp_path):
    assert complaints(suite(tmp_path)) == {}


def test_a_host_that_keeps_no_rollouts_passes_when_it_gives_the_reason(tmp_path):
    assert complaints(suite(tmp_path, KeepsNone, keeps_no_rollouts="because")) == {}


def test_an_exception_that_is_not_real_is_no_excuse(tmp_path):
    assert_caught(suite(tmp_path, keeps_no_rollouts="because"), "rollouts_kept_for_a_later_step_train_there")


@pytest.mark.parametrize("kind", HOSTS, ids=lambda v: v.__name__)
def test_a_broken_host_is_caught(kind, tmp_path):
    assert_caught(suite(tmp_path, kind), *HOSTS[kind])


def test_every_check_has_a_host_that_fails_it():
    checks = {name.removeprefix("test_") for name in dir(HostSuite) if name.startswith("test_")}
    assert checks == set().union(*HOSTS.values())
