"""The vocabulary of the tests: a host whose results are fixed, strategies of every kind, and what must hold."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from hypothesis import strategies as st

import neyman
from neyman import Batch, Budget, Controller, Outcome, Request, Strategy, preset
from neyman.beliefs import Counts
from neyman.groups import Phase, SlotState
from neyman.keyed import PromptId, keyed_rng


@dataclass
class Host:
    """A host in which a rollout's result depends on its prompt and seed alone, never on when it is asked for.

    Args:
        rates: success rate per prompt; others get one from their id, U-shaped.
        failing: share of rollouts without a valid result.
        seed: another world.
        shaped: rewards are not binary; success is told beside them.
    """

    rates: dict[PromptId, float] = field(default_factory=dict)
    failing: float = 0.0
    seed: int = 0
    shaped: bool = False

    def rate(self, prompt_id: PromptId) -> float:
        """Return a prompt's success rate."""
        return self.rates.get(prompt_id, float(keyed_rng("rate", self.seed, prompt_id).beta(0.6, 0.6)))

    def outcomes(self, request: Request) -> list[Outcome]:
        """Return the results of a request."""
        results = []
        for j, rollout_id in enumerate(request.rollout_ids):
            rng = keyed_rng("world", self.seed, request.prompt_id, request.seed + j)
            success, fails = bool(rng.random() < self.rate(request.prompt_id)), rng.random() < self.failing
            length = int(rng.integers(1, 50))
            status = ("failed", "timeout", "aborted", "ok")[int(rng.integers(4))] if fails else "ok"
            reward = None if fails else float(success) - (0.01 * length if self.shaped else 0.0)
            results.append(
                Outcome(
                    rollout_id=rollout_id,
                    prompt_id=request.prompt_id,
                    reward=reward,
                    success=success if self.shaped and not fails else None,
                    n_tokens=length,
                    status=status,
                    error="the engine died" if fails else None,
                )
            )
        return results

    def answer(self, requests: Sequence[Request]) -> list[Outcome]:
        """Return the results of all requests, in their order."""
        return [outcome for request in requests for outcome in self.outcomes(request)]


def run_step(
    controller: Controller,
    host: Host,
    candidates: Sequence[PromptId],
    *,
    capacity: int | None = None,
    rng: np.random.Generator | None = None,
    begin: bool = True,
) -> tuple[Batch, list[Request]]:
    """Run one step to its end and return the batch and every request; with ``rng`` results come out of order."""
    if begin:
        controller.begin(candidates)
    asked: list[Request] = []
    waiting: list[Outcome] = []
    for _ in range(100_000):
        if controller.is_done:
            break
        requests = controller.ask(capacity)
        asked += requests
        waiting += host.answer(requests)
        if rng is None:
            told, waiting = waiting, []
        else:
            rng.shuffle(waiting)  # type: ignore[arg-type]
            cut = int(rng.integers(1, 6))
            told, waiting = waiting[:cut], waiting[cut:]
        assert told or controller.is_done, "the step neither ends nor asks for anything"
        controller.tell(told)
    return controller.finish(), asked


def assert_same_batch(left: Batch, right: Batch) -> None:
    """Two batches agree bit for bit."""
    for item in fields(Batch):
        one, two = getattr(left, item.name), getattr(right, item.name)
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, two, err_msg=item.name)
        else:
            assert one == two, item.name


def through_json(state: object) -> object:
    """Return a state as a file would give it back."""
    return json.loads(json.dumps(state, allow_nan=False))


def assert_consistent(controller: Controller) -> None:
    """What must hold after any call: the account balances, the budget holds, and an open step can go on."""
    engine, is_open = controller._engine, controller.is_open
    groups = engine.groups if is_open else []
    out = sum(slot.state is SlotState.OUT for group in groups for slot in group.slots)
    held = sum(len(group.valid()) for i, group in enumerate(groups) if i not in engine.drained)
    held += sum(len(group.valid()) for group in engine.carried)
    in_flight = out + len(controller._late)
    ledger = controller.ledger
    assert ledger.requested == in_flight + held + ledger.rollouts()
    if not is_open:
        return
    assert engine.out == out
    allowance = math.floor(engine.retry_share * engine.budget.planned_rollouts + 1e-9)
    assert engine.asked <= engine.budget.planned_rollouts + allowance
    if not engine.was_cut:  # what the token budget cut off is spent on nothing
        planned = sum(slot.state is SlotState.PLANNED for group in groups for slot in group.slots)
        whole = engine.asked + planned + engine.left + engine.retries_left
        assert whole == engine.budget.planned_rollouts + allowance
    assert engine.left >= 0 <= engine.retries_left
    assert len({group.prompt_id for group in groups}) == len(groups), "a prompt is opened once in a step"
    for index, group in enumerate(groups):
        planned = any(slot.state is SlotState.PLANNED for slot in group.slots)
        assert (index in engine.waiting) == planned
        assert index in engine.live or not planned
        if index in engine.live:
            assert not group.is_resolved, "a resolved group is not awaited"
    if engine.live:
        assert engine.waiting.first() is not None or out, "the step waits for nothing"
    else:
        assert engine.is_done
    if engine.strategy.verdict is not None:
        undecided = {i for i in engine.live if groups[i].phase is Phase.OPEN}
        assert set(engine.waves._undecided) == undecided
        committed = [
            g
            for i, g in enumerate(groups)
            if g.phase is Phase.COMMITTED
            and not (engine.strategy.incomplete == "drop" and i not in engine.live and g.is_short)
        ]
        if engine.strategy.close == "fixed_train":
            assert engine.waves._committed == len(committed)


def assert_sound_batch(controller: Controller, batch: Batch, asked: dict[int, PromptId]) -> None:
    """What every batch must be: finite, joined by ids, inside its rows, and weighted by prompts."""
    rows = len(batch)
    strategy, train_rows = controller.strategy, controller._engine.train_rows
    for name in ("rollout_ids", "groups", "rewards", "success", "advantages", "weights", "age", "counted"):
        assert len(getattr(batch, name)) == rows == len(batch.prompt_ids)
    assert np.isfinite(batch.advantages).all()
    assert np.isfinite(batch.weights).all()
    assert [asked[i] for i in batch.rollout_ids.tolist()] == list(batch.prompt_ids)
    real = batch.groups >= 0
    assert len(set(batch.rollout_ids[real].tolist())) == int(real.sum()), "a rollout trains once"
    assert (batch.weights[~batch.counted] == 0.0).all()
    assert (batch.advantages[~batch.counted] == 0.0).all()
    assert np.isnan(batch.rewards[~batch.counted]).all()
    if train_rows is not None:
        assert rows <= train_rows
        if strategy.close != "streaming" and controller._fill == "copies" and rows:
            assert rows == train_rows
    if controller._fill == "copies":
        assert rows % controller._divisor == 0
    if strategy.close == "fixed_train":
        for group in set(batch.groups[batch.counted].tolist()):
            outcomes = batch.success[(batch.groups == group) & batch.counted]
            assert 0 < outcomes.sum() < len(outcomes)
    values = np.cos(np.arange(rows))  # any function of the rows
    means = [
        values[(batch.groups == g) & batch.counted].mean()
        for g in sorted(set(batch.groups[batch.counted].tolist()))
        if strategy.dead_groups == "keep" or len(set(batch.success[(batch.groups == g) & batch.counted])) > 1
    ]
    if means and strategy.prompt_weight == "equal":
        np.testing.assert_allclose((batch.weights * values).mean(), np.mean(means), atol=1e-12)
    json.dumps(batch.summary(), allow_nan=False)


def _counts() -> Counts:
    return Counts(discount=0.9, fade=0.99)


#: Every preset in every way of closing, small enough for a budget of 32 to 64 rollouts.
PRESETS: dict[str, Callable[..., Strategy]] = {
    "uniform": lambda **o: preset("uniform", **o),
    "uniform, streaming": lambda **o: preset("uniform", close="streaming", **o),
    "vip": lambda **o: preset("vip", lower=2, upper=64, belief=_counts(), **o),
    "vip, probe": lambda **o: preset("vip", lower=2, upper=64, probe=2, belief=_counts(), **o),
    "vip, streaming": lambda **o: preset(
        "vip", lower=2, upper=64, probe=2, belief=_counts(), close="streaming", **o
    ),
    "dynamo": lambda **o: preset("dynamo", lower=2, upper=64, modulation=None, **o),
    "neyman": lambda **o: preset("neyman", upper=64, belief=_counts(), **o),
    "sara": lambda **o: preset("sara", group_size=4, **o),
    "sara, looks": lambda **o: preset("sara", group_size=8, schedule=(2, 3, 5), threshold=0.6, **o),
    "sara, fixed spend": lambda **o: preset("sara", group_size=8, close="fixed_spend", **o),
    "sara, streaming": lambda **o: preset("sara", group_size=4, close="streaming", **o),
    "sara, speculate": lambda **o: preset("sara", group_size=8, speculate=True, schedule=(3, 5), **o),
    "sara, arrival": lambda **o: preset("sara", group_size=8, verdict_on="arrival", **o),
    "sara, stop": lambda **o: preset("sara", group_size=8, after_commit="stop", **o),
    "sara, carry": lambda **o: preset("sara", group_size=4, max_age=2, over_provision=3.0, **o),
    "dynamic-sampling": lambda **o: preset("dynamic-sampling", group_size=4, **o),
    "dynamic-sampling, carry": lambda **o: preset("dynamic-sampling", group_size=4, max_age=1, **o),
}


@st.composite
def controllers(draw: st.DrawFn, names: Sequence[str] = tuple(PRESETS)) -> Callable[[], Controller]:
    """Draw a recipe for a controller; called twice, it makes two equal ones."""
    name = draw(st.sampled_from(names))
    options: dict[str, object] = {
        "incomplete": draw(st.sampled_from(["keep", "drop"])),
        "dead_groups": draw(st.sampled_from(["keep", "exclude"])),
        "max_tries": draw(st.integers(1, 3)),
    }
    budget = draw(st.sampled_from([32, 48, 64]))
    fixed_train = PRESETS[name]().close == "fixed_train"
    rows = draw(st.sampled_from([None, 16, 32] if fixed_train else [None, budget]))
    settings = {
        "train_rows": rows,
        "divisor": draw(st.sampled_from([1, 8])),
        "pool": range(40) if draw(st.booleans()) else None,
        "retries": draw(st.sampled_from([0.0, 0.1, 0.5])),
        "seed": draw(st.integers(0, 3)),
        "fill": draw(st.sampled_from(["copies", "none"])),
    }
    by_tokens = draw(st.booleans()) and rows is None and draw(st.booleans())
    spend = Budget(tokens=budget * 30, tokens_per_rollout=30) if by_tokens else Budget(rollouts=budget)
    return lambda: Controller(PRESETS[name](**options), budget=spend, **settings)  # type: ignore[arg-type]


@st.composite
def hosts(draw: st.DrawFn) -> Host:
    """Draw a host."""
    return Host(
        failing=draw(st.sampled_from([0.0, 0.05, 0.4, 1.0])),
        seed=draw(st.integers(0, 20)),
        shaped=draw(st.booleans()),
    )


def simple(name: str = "uniform", rollouts: int = 16, **settings: object) -> Controller:
    """Return a controller of a preset with its defaults."""
    options = settings.pop("options", {})
    return neyman.Controller(
        PRESETS[name](**options),  # type: ignore[arg-type]
        budget=Budget(rollouts=rollouts),
        **settings,  # type: ignore[arg-type]
    )


def outcome(rollout_id: object, prompt_id: object, reward: object, **details: object) -> Outcome:
    """Return a result, whatever it holds."""
    return Outcome(rollout_id=rollout_id, prompt_id=prompt_id, reward=reward, **details)  # type: ignore[arg-type]


def tell_all(controller: Controller, reward: Callable[[int], object]) -> None:
    """Ask, and tell every rollout the reward of ``reward(place in its request)``."""
    controller.tell(
        outcome(rollout_id, request.prompt_id, reward(place))
        for request in controller.ask()
        for place, rollout_id in enumerate(request.rollout_ids)
    )
