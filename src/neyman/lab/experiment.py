"""A whole RLVR experiment in one file: prompts, rollouts, verified rewards, strategy, policy gradient, exact test.

One step: the host brings prompts in its order; the controller requests rollouts, in rounds; the tiny policy answers,
the rule verifies; the controller closes the step; rows with an advantage go through one gradient step. Accuracy is
exact, by teacher forcing, so curves carry no sampling noise of the test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neyman import __version__
from neyman._checks import choice, integer, real
from neyman.beliefs import PromptId
from neyman.controller import Controller
from neyman.errors import ArgumentError
from neyman.lab.features import FEATURES, features
from neyman.lab.oracle import ExactRates, OracleBelief
from neyman.lab.policy import Policy, one_thread, rollout_uniforms
from neyman.lab.strategies import build_strategy
from neyman.lab.task import Prompts, WarmStart, draw_prompts, starting_policy
from neyman.randomness import keyed_epochs, keyed_seed
from neyman.step.batch import Batch
from neyman.step.messages import Budget, Outcome, Request
from neyman.strategy import ESTIMATORS, Strategy

# The series of evaluations, and of steps.
CURVE = ("rollouts", "tokens", "step", "accuracy")
METRICS = (
    "groups", "groups_opened", "effective_groups", "rounds", "rollouts", "tokens", "rows", "success_rate", "coverage",
    "gradient_norm", "entropy",
)  # fmt: skip
# Rollouts that strategies which discard groups may generate, as a multiple of the rows they train.
_SPEND = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The settings of a run, all but its seed.

    Attributes:
        regime: "hard", "ushape" or "easy": how success rates are spread at the start.
        strategy: a preset, "oracle", "vip-oracle" or "neyman-told".
        options: of the strategy.
        prompts: prompts that the host brings a step.
        group_size: rollouts per prompt on average; a step trains ``prompts * group_size`` rows. Strategies that
            discard groups may generate 4 times as many for them.
        learning_rate: Adam's.
        estimator: "rloo", "grpo", "dr_grpo" or "reinforce++".
        rollouts: generated in the whole run, at least; the last step may pass it.
        pool: training prompts; 1,024 are visited a few times in a run, 256 many times.
        held_out: test prompts.
        features: of prompts, for the belief: "none", "metadata" (one-hot family and first digit) or
            "hidden" (the starting policy's state on the prompt, and its entropy there).
        world: names the table of difficulty, the prompts and the warm start.
        warm_start_steps: optimiser steps of the starting policy's warm start.
        drift: standard deviation of a random step added to every weight after each update, in learning rates:
            success rates then move by themselves too.
        reward_noise: chance that the verifier's verdict is flipped.
        failure_tokens: tokens that a wrong answer costs (a right one: 4), so that lengths predict failure.
        evaluations: points of the curve after the first.
    """

    regime: str = "hard"
    strategy: str = "uniform"
    options: Mapping[str, Any] = field(default_factory=dict)
    prompts: int = 32
    group_size: int = 4
    learning_rate: float = 6e-4
    estimator: str = "rloo"
    rollouts: int = 24_000
    pool: int = 1024
    held_out: int = 1000
    features: str = "none"
    world: int = 0
    warm_start_steps: int = 1500
    drift: float = 0.0
    reward_noise: float = 0.0
    failure_tokens: int = 4
    evaluations: int = 24

    def __post_init__(self) -> None:
        choice("features", self.features, FEATURES)
        choice("estimator", self.estimator, ESTIMATORS)
        for name in ("prompts", "rollouts", "evaluations"):
            integer(name, getattr(self, name), low=1)
        integer("group_size", self.group_size, low=2)
        integer("failure_tokens", self.failure_tokens, low=1)
        real("learning_rate", self.learning_rate, low=0.0, open_low=True)
        real("drift", self.drift, low=0.0)
        real("reward_noise", self.reward_noise, low=0.0, high=1.0)
        if self.prompts > integer("pool", self.pool, low=1):
            raise ArgumentError(f"prompts must be <= pool={self.pool}, got {self.prompts}")
        _ = self.warm_start  # checks its own

    @property
    def warm_start(self) -> WarmStart:
        """The warm start of the starting policy."""
        return WarmStart(regime=self.regime, world=self.world, steps=self.warm_start_steps)


def run(
    experiment: Experiment,
    seed: int,
    *,
    strategy: Strategy | None = None,
    cache: str | Path | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> dict[str, Any]:
    """Train the tiny policy under a strategy and measure it on the way.

    Args:
        experiment: the settings.
        seed: keys the prompts' order and the sampling, by (seed, step, prompt, draw): strategies that ask for
            the same rollouts of the same policy get the same ones.
        strategy: trains under this object in place of the named preset.
        cache: folder of warm-started policies; by default the user's.
        progress: called with (rollouts spent, accuracy) at each evaluation.

    Returns:
        JSON-safe: the experiment, the seed, ``curve`` (rollouts, tokens, step and held-out accuracy at each
        evaluation), ``steps`` (metrics of each step), ``pool_accuracy`` at the start and the end, and
        ``account`` (where rollouts and tokens went).

    Guarantee: the same arguments give the same result, bit for bit, on one machine and torch.

    Cost: 5 to 15 CPU seconds for 24,000 rollouts after the warm start, which takes a minute once.
    """
    with one_thread():
        return _Run(experiment, integer("seed", seed, low=0), strategy, cache).go(progress)


class _Run:
    """One experiment under way."""

    def __init__(
        self, experiment: Experiment, seed: int, strategy: Strategy | None, cache: str | Path | None
    ) -> None:
        self.experiment, self.seed = experiment, seed
        self.train, self.test = draw_prompts(experiment.pool, experiment.held_out, world=experiment.world)
        self.policy = starting_policy(experiment.warm_start, cache=cache)
        self.rates = ExactRates(self.policy, self.train)
        chosen = strategy or build_strategy(
            experiment.strategy,
            experiment.options,
            estimator=experiment.estimator,
            group_size=experiment.group_size,
            oracle=OracleBelief(self.rates),
        )
        rows = experiment.prompts * experiment.group_size
        discards = chosen.close == "fixed_train"
        self.controller = Controller(
            chosen,
            budget=Budget(rollouts=rows * (_SPEND if discards else 1)),
            train_rows=rows if discards else None,
            pool=range(experiment.pool),
            seed=seed,
            fill="none",  # the loss is a mean over the rows of a batch, which may be of any size here
        )
        self.controller.strategy.belief.register(
            range(experiment.pool), features(experiment.features, self.policy, self.train)
        )
        self.optimiser = torch.optim.Adam(self.policy.parameters(), lr=experiment.learning_rate)
        self.answers: dict[int, tuple[int, Tensor]] = {}  # rollout id -> prompt and answer
        self.curve: dict[str, list[float]] = {name: [] for name in CURVE}
        self.steps: dict[str, list[float]] = {name: [] for name in METRICS}
        self.spent = self.tokens = 0

    def go(self, progress: Callable[[int, float], None] | None) -> dict[str, Any]:
        experiment = self.experiment
        # The same order for every strategy.
        order = keyed_epochs(experiment.pool, experiment.prompts, self.seed, "order")
        before = self._accuracy(self.train)
        self._evaluate(progress)
        step, every = 0, experiment.rollouts / experiment.evaluations
        while self.spent < experiment.rollouts:
            self._step(step, list(next(order)))
            step += 1
            # Evenly spaced in rollouts, not in steps: strategies that discard groups spend more in a step.
            if self.spent >= min(every * len(self.curve["step"]), experiment.rollouts):
                self._evaluate(progress)
        return {
            "version": __version__,
            "experiment": {**asdict(experiment), "options": dict(experiment.options)},
            "seed": self.seed,
            "curve": self.curve,
            "steps": self.steps,
            "pool_accuracy": [before, self._accuracy(self.train)],
            "account": self.controller.ledger.account(),
        }

    def _step(self, step: int, candidates: list[PromptId]) -> None:
        controller, entropies = self.controller, []
        controller.begin(candidates, step=step)
        while not controller.is_done:
            played = play(self.policy, self.train, controller.ask(), self.experiment)
            self.answers |= played.answers
            entropies.append(played.entropy)
            controller.tell(played.outcomes)
        batch = controller.finish()
        norm = self._learn(batch)
        self.spent += int(batch.report["rollouts"])
        self.tokens += int(batch.report["tokens"])
        # Groups may wait for a later batch; the answers of all others are done with.
        held = set(controller.held_rollouts)
        self.answers = {key: value for key, value in self.answers.items() if key in held}
        metrics = {
            **{
                name: batch.report[name] for name in ("groups", "groups_opened", "effective_groups", "rounds")
            },
            "rollouts": float(self.spent),
            "tokens": float(self.tokens),
            "rows": float(len(batch)),
            "success_rate": batch.report["success_rate"],
            "coverage": batch.report["coverage"],
            "gradient_norm": norm,
            "entropy": float(np.concatenate(entropies).mean()),
        }
        for name, value in metrics.items():
            self.steps[name].append(value)

    def _learn(self, batch: Batch) -> float:
        """Take one policy-gradient step; return the gradient's norm."""
        if not len(batch):
            return 0.0
        self.optimiser.zero_grad(set_to_none=False)
        policy_gradient(self.policy, self.train, batch, self.answers)
        norms = [p.grad.norm() for p in self.policy.parameters() if p.grad is not None]
        norm = float(torch.stack(norms).norm())
        self.optimiser.step()
        if self.experiment.drift:
            # Keyed by the step: all strategies drift alike, whatever they sampled before.
            noise = torch.Generator().manual_seed(keyed_seed(self.seed, "drift", self.controller.step))
            size = self.experiment.drift * self.experiment.learning_rate
            with torch.no_grad():
                for parameter in self.policy.parameters():
                    parameter.add_(torch.randn(parameter.shape, generator=noise), alpha=size)
        self.rates.forget()
        return norm

    def _evaluate(self, progress: Callable[[int, float], None] | None) -> None:
        accuracy = self._accuracy(self.test)
        for name, value in (
            ("rollouts", self.spent),
            ("tokens", self.tokens),
            ("step", self.controller.step + 1),
            ("accuracy", accuracy),
        ):
            self.curve[name].append(value)
        if progress is not None:
            progress(self.spent, accuracy)

    def _accuracy(self, prompts: Prompts) -> float:
        return float(self.policy.success_rates(prompts.tokens, prompts.answers).mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The rollouts of some requests: outcomes for the controller, answers to train on, and their entropies."""

    outcomes: list[Outcome]
    answers: dict[int, tuple[int, Tensor]]  # rollout id -> prompt and answer tokens
    entropy: NDArray[np.float32]


def play(policy: Policy, prompts: Prompts, requests: Sequence[Request], experiment: Experiment) -> Played:
    """Generate and verify requested rollouts, all in one batch.

    Args:
        policy: answers.
        prompts: the pool; a prompt's id is its row.
        requests: from the controller.
        experiment: has the verifier's noise and the tokens of a failure.
    """
    counts = [len(request.rollout_ids) for request in requests]
    rows = torch.tensor([int(request.prompt_id) for request in requests])
    owner = torch.arange(len(requests)).repeat_interleave(torch.tensor(counts))
    seeds = np.concatenate([r.seed + np.arange(n) for r, n in zip(requests, counts, strict=True)])
    length = prompts.answers.shape[1]
    uniforms = rollout_uniforms(seeds, length + 1)  # the last number is the verifier's
    answers, entropy = policy.generate(prompts.tokens[rows], owner, uniforms[:, :length])
    right = (answers == prompts.answers[rows[owner]]).all(1).numpy()
    verdicts = right ^ (uniforms[:, length] < experiment.reward_noise)
    ids = [(rollout, request.prompt_id) for request in requests for rollout in request.rollout_ids]
    outcomes = [
        Outcome(
            rollout_id=rollout_id,
            prompt_id=prompt_id,
            reward=float(verdicts[row]),
            n_tokens=length if right[row] else experiment.failure_tokens,
        )
        for row, (rollout_id, prompt_id) in enumerate(ids)
    ]
    kept = {rollout_id: (int(prompt_id), answers[row]) for row, (rollout_id, prompt_id) in enumerate(ids)}
    return Played(outcomes=outcomes, answers=kept, entropy=entropy.numpy())


def policy_gradient(
    policy: Policy, prompts: Prompts, batch: Batch, answers: Mapping[int, tuple[int, Tensor]]
) -> None:
    """Add the gradient of the policy loss to the policy's parameters.

    Loss: -(1/R) sum_rows weight advantage mean_t log pi(token t), over the R rows of the batch; with the batch's
    weights this is the mean over prompts of each group's mean. Rows with advantage 0 add nothing and are not
    computed. Rows that are older than the step are trained as they are, without an importance ratio.

    Args:
        policy: to differentiate.
        prompts: the pool.
        batch: the rows to train on.
        answers: rollout id -> (prompt, answer tokens).
    """
    scale = batch.advantages * batch.weights
    rows = np.flatnonzero(scale)
    for parameter in policy.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    if not len(rows):
        return
    chosen = [answers[int(batch.rollout_ids[row])] for row in rows]
    # Each prompt is read once, however many of its rollouts are trained.
    unique, owner = np.unique([prompt for prompt, _ in chosen], return_inverse=True)
    tokens = torch.stack([answer for _, answer in chosen])
    logits = policy.answer_logits(prompts.tokens[torch.from_numpy(unique)], torch.from_numpy(owner), tokens)
    log_p = logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).mean((1, 2))
    factor = torch.from_numpy(scale[rows] / len(batch)).to(log_p.dtype)
    torch.autograd.backward(-(factor * log_p).sum())
