"""`neyman` with full groups: the price of a rollout is settled once for a step, for the groups that it trains."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

import neyman
from neyman.beliefs import Counts
from neyman.errors import StateError
from neyman.rules import StepView, Verdict, WorthVerdict
from strategies import Host, run_step, through_json

POOL = range(200)


def make(train_rows: int | None = 64) -> neyman.Controller:
    """Return a controller that trains full groups of 4."""
    closing = {} if train_rows else {"close": "fixed_spend", "over_provision": "auto"}
    strategy = neyman.preset("neyman", group_size=4, belief=Counts()).with_options(**closing)
    budget = neyman.Budget(rollouts=128)
    return neyman.Controller(strategy, budget, train_rows=train_rows, pool=POOL, seed=3)


@pytest.mark.parametrize("brought", [[], list(range(24))])
@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_a_step_that_is_restored_has_the_price_that_it_began_with(brought, rounds):
    """Open prompts and the pool's offer change within a step; the price of a rollout elsewhere does not."""
    host, controller = Host(seed=5), make()
    for _ in range(4):
        run_step(controller, host, [])
    controller.begin(brought)
    for _ in range(rounds):
        controller.tell(host.answer(controller.ask()))
    assert not controller.is_done
    restored = make()
    restored.load_state_dict(through_json(controller.state_dict()))
    assert restored._engine.planner.verdict == controller._engine.planner.verdict


@pytest.mark.parametrize("brought", [[], list(range(24))])
def test_what_a_step_learns_as_it_streams_moves_no_price_of_its_own(brought):
    """Groups that are handed out teach the belief within the step; a restored step must not be priced by that."""

    def streaming() -> neyman.Controller:
        strategy = neyman.preset("neyman", group_size=4, belief=Counts())
        strategy = strategy.with_options(close="streaming", over_provision="auto")
        return neyman.Controller(strategy, neyman.Budget(rollouts=128), pool=POOL, seed=3)

    host, controller = Host(seed=5), streaming()
    controller.begin(brought)
    began_with = controller._engine.planner.verdict
    handed_out = 0
    while not handed_out:
        controller.tell(host.answer(controller.ask(capacity=5)))
        handed_out = len(controller.drain())
    assert not controller.is_done
    restored = streaming()
    restored.load_state_dict(through_json(controller.state_dict()))
    assert restored._engine.planner.verdict == controller._engine.planner.verdict == began_with


@pytest.mark.parametrize("price", [None, 0.5, float("nan"), "2", True])
def test_a_step_whose_price_is_damaged_is_refused(price):
    controller = make()
    controller.begin([])
    state = through_json(controller.state_dict())
    state["open"]["price"] = price
    with pytest.raises(StateError, match="price"):
        make().load_state_dict(state)


def test_a_price_where_none_is_asked_is_refused():
    def plain() -> neyman.Controller:
        return neyman.Controller(neyman.preset("sara", group_size=4), neyman.Budget(rollouts=64), pool=POOL)

    controller = plain()
    controller.begin([])
    state = through_json(controller.state_dict())
    assert state["open"]["price"] is None
    state["open"]["price"] = 2.0
    with pytest.raises(StateError, match="no price"):
        plain().load_state_dict(state)


@dataclass
class Needed(Verdict):
    """A verdict that writes down for how many groups it is priced."""

    inner: WorthVerdict = field(default_factory=WorthVerdict)
    groups: list[int] = field(default_factory=list)

    def price(self, view: StepView, groups: int) -> float | None:
        self.groups.append(groups)
        return self.inner.price(view, groups)

    def priced(self, price: float | None) -> WorthVerdict:
        return self.inner.priced(price)

    def looks(self, group_size: int) -> tuple[int, ...]:
        return self.inner.looks(group_size)

    def decide(self, successes: int, trials: int, group_size: int, prior: tuple[float, float]) -> str:
        return self.inner.decide(successes, trials, group_size, prior)


@pytest.mark.parametrize("brought", [[], list(range(24))])
@pytest.mark.parametrize(("train_rows", "groups"), [(64, 16), (32, 8), (None, 32)])
def test_the_price_is_for_the_groups_that_the_step_trains_whatever_the_host_brings(
    brought, train_rows, groups
):
    """None brought is not one group: the cheapest of eight prompts is no price for the sixteenth."""
    verdict, base = Needed(), make(train_rows)
    controller = neyman.Controller(
        base.strategy.with_options(verdict=verdict),
        neyman.Budget(rollouts=128),
        train_rows=train_rows,
        pool=POOL,
        seed=3,
    )
    controller.begin(brought)
    assert verdict.groups == [groups]
