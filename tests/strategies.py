"""The vocabulary of the tests: a host whose results are fixed, strategies of every kind, and invariants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from hypothesis import reject
from hypothesis import strategies as st

import neyman
from neyman import Batch, Budget, Controller, Outcome, Strategy, preset
from neyman.beliefs import (
    Belief,
    BinomialResidual,
    Counts,
    CountsWithGP,
    PublishedGP,
    Ridge,
    StateDynamics,
    Streaks,
    default,
)
from neyman.presets import PRESETS as REGISTRY
from neyman.randomness import PromptId
from neyman.step._group import Phase, SlotState
from neyman.step._waves import Waves
from neyman.testing import Host, run_step  # noqa: F401 (vocabulary for the tests that import from here)
from neyman.testing._batch import expect_sound_batch
from neyman.testing._host import expect_same_batch, through_json  # noqa: F401


def feasible(make, candidates):
    """Begin a step, or skip candidates that the strategy's bounds do not allow."""
    controller = make()
    try:
        controller.begin(candidates)
    except ValueError:
        reject()
    return controller


def assert_same_batch(left: Batch, right: Batch) -> None:
    """Two batches agree bit for bit."""
    expect_same_batch(left, right, "two batches must agree", see="Determinism")


def assert_consistent(controller: Controller) -> None:
    """Check the invariants after any call: the account balances, the budget holds, and an open step can go on."""
    state, is_open = controller._engine.state, controller.is_open
    groups = state.groups if is_open else []
    out = sum(slot.state is SlotState.OUT for group in groups for slot in group.slots)
    kept = [group for i, group in enumerate(groups) if i not in state.drained] + state.carried
    held = sum(not slot.replayed for group in kept for slot in group.valid())
    in_flight = out + len(controller._late)
    ledger = controller.ledger
    assert ledger.requested == in_flight + held + ledger.rollouts()
    if not is_open:
        return
    assert state.out == out
    allowance = math.floor(state.retry_share * state.budget.planned_rollouts + 1e-9)
    assert state.asked <= state.budget.planned_rollouts + allowance
    if not state.was_cut:  # what the token budget cut off is spent on nothing
        planned = sum(slot.state is SlotState.PLANNED for group in groups for slot in group.slots)
        whole = state.asked + planned + state.left + state.retries_left
        assert whole == state.budget.planned_rollouts + allowance
    assert state.left >= 0 <= state.retries_left
    assert len({group.prompt_id for group in groups}) == len(groups), "a prompt is opened once in a step"
    for index, group in enumerate(groups):
        planned = any(slot.state is SlotState.PLANNED for slot in group.slots)
        assert (index in state.queue) == planned
        assert index in state.live or not planned
        if index in state.live:
            assert not group.is_resolved, "a resolved group is not awaited"
    if state.live:
        assert state.queue.first() is not None or out, "the step waits for nothing"
    else:
        assert controller.is_done
    if isinstance(planner := controller._engine.planner, Waves):
        undecided = {i for i in state.live if groups[i].phase is Phase.OPEN}
        assert set(planner._undecided) == undecided
        committed = [
            g
            for i, g in enumerate(groups)
            if g.phase is Phase.COMMITTED
            and not (state.strategy.incomplete == "drop" and i not in state.live and g.is_short)
        ]
        if state.strategy.close == "fixed_train":
            assert planner._committed == len(committed)


def assert_sound_batch(controller: Controller, batch: Batch, asked: dict[int, PromptId]) -> None:
    """Check a batch and its rows."""
    expect_sound_batch(batch, controller.strategy, asked)
    rows, strategy, train_rows = len(batch), controller.strategy, controller._engine.state.train_rows
    if train_rows is not None:
        assert rows <= train_rows
        if strategy.close != "streaming" and controller._shape.fill == "copies" and rows:
            assert rows == train_rows
    if controller._shape.fill == "copies":
        assert rows % controller._shape.divisor == 0


#: The prompts that beliefs are tested on.
POOL = ["a", "b", 1, "1", 2, "c", "d", -7]

#: Every belief in every way that changes what it computes.
BELIEFS: dict[str, Callable[[], Belief]] = {
    "counts": Counts,
    "counts, fixed prior": lambda: Counts(prior=(1.0, 1.0), discount=1.0, fade=1.0),
    "counts with gp": CountsWithGP,
    "average": default,
    "residual": BinomialResidual,
    "residual, 3 landmarks": lambda: BinomialResidual(landmarks=3),
    "residual, no landmarks": lambda: BinomialResidual(landmarks=0),
    "published": PublishedGP,
    "published, low rank": lambda: PublishedGP(dense_limit=2, landmarks=4),
    "published, prior variance": lambda: PublishedGP(variance="prior"),
    "dynamics": StateDynamics,
    "dynamics, local": lambda: StateDynamics(decay=0.9, prior="local", size=4),
    "streaks": Streaks,
    "ridge": Ridge,
}


def _counts() -> Counts:
    return Counts(discount=0.9, fade=0.99)


def _small(name: str, **options: object) -> Strategy:
    entry = REGISTRY[name]
    sizes = {"lower": 2, "upper": 64, "group_size": 4} if preset(name).verdict else {"lower": 2, "upper": 64}
    fits = {option: size for option, size in sizes.items() if option in entry.options}
    slow = {"belief": _counts()} if name in ("vip", "neyman") else {}
    return preset(name, **{**fits, **entry.small, **slow, **options})


#: Every preset as it comes under its name, but for sizes that suit a budget of 32 to 64 rollouts and a quicker belief
#: for two; then forms with options and in other ways of closing.
PRESETS: dict[str, Callable[..., Strategy]] = {
    **{name: partial(_small, name) for name in REGISTRY},
    "uniform, streaming": lambda **o: preset("uniform", close="streaming", **o),
    "vip, probe": lambda **o: preset("vip", lower=2, upper=64, probe=2, belief=_counts(), **o),
    "vip, streaming": lambda **o: preset(
        "vip", lower=2, upper=64, probe=2, belief=_counts(), close="streaming", **o
    ),
    "neyman, group size": lambda **o: preset("neyman", group_size=4, belief=_counts(), **o),
    "neyman, recounts": lambda **o: preset("neyman", recounts=2, belief=_counts(), **o),
    "sara, looks": lambda **o: preset("sara", group_size=8, schedule=(2, 3, 5), threshold=0.6, **o),
    "sara, fixed spend": lambda **o: preset("sara", group_size=8, close="fixed_spend", **o),
    "sara, streaming": lambda **o: preset("sara", group_size=4, close="streaming", **o),
    "sara, speculate": lambda **o: preset("sara", group_size=8, speculate=True, schedule=(3, 5), **o),
    "sara, arrival": lambda **o: preset("sara", group_size=8, verdict_on="arrival", **o),
    "sara, stop": lambda **o: preset("sara", group_size=8, after_commit="stop", **o),
    "sara, carry": lambda **o: preset("sara", group_size=4, max_age=2, over_provision=3.0, **o),
    "speed, carry": lambda **o: preset("speed", screen=2, then=6, max_age=2, over_provision=3.0, **o),
    "reinforce-ada, balance": lambda **o: preset(
        "reinforce-ada", until="balance", step=2, most=7, rows=4, max_age=1, **o
    ),
    "ar3po, fixed train": lambda **o: preset("ar3po", stage=2, stages=2, close="fixed_train", max_age=1, **o),
    "ar3po, streaming": lambda **o: preset("ar3po", stage=3, stages=2, replay_age=1, close="streaming", **o),
    "pilot-commit, carry": lambda **o: preset(
        "pilot-commit", pilot=2, commit=2, pass_lower=0.5, pass_upper=0.5, max_age=4, over_provision=3.0, **o
    ),
    "sara, published": lambda **o: preset("sara", group_size=4, variant="published", **o),
    "curriculum, no floor": lambda **o: preset("curriculum", revisit=None, **o),
    "dps, no floor": lambda **o: preset("dps", revisit=None, entropy=0.3, **o),
    "greso, carry": lambda **o: preset("greso", group_size=4, max_age=1, **o),
    "mopps, band": lambda **o: preset("mopps", band=(0.3, 0.7), **o),
    "inverse-variance, published": lambda **o: preset(
        "inverse-variance", lower=2, upper=64, variant="published", **o
    ),
    "dynamic-sampling, carry": lambda **o: preset("dynamic-sampling", group_size=4, max_age=1, **o),
}


@st.composite
def controllers(draw: st.DrawFn, names: Sequence[str] = tuple(PRESETS)) -> Callable[[], Controller]:
    """Draw a recipe for a controller; called twice, it makes two equal ones."""
    name = draw(st.sampled_from(names))
    options: dict[str, object] = {
        "incomplete": draw(st.sampled_from(["keep", "drop"])),
        "dead_groups": draw(st.sampled_from(["keep", "exclude", "replace"])),
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
    """Give every requested rollout the reward of ``reward(place in its request)``."""
    controller.tell(
        outcome(rollout_id, request.prompt_id, reward(place))
        for request in controller.ask()
        for place, rollout_id in enumerate(request.rollout_ids)
    )
