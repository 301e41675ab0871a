"""A strategy led twice through the same steps: determinism, order, saved states, names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from neyman.controller import Batch, Controller, Outcome, Request
from neyman.randomness import PromptId, keyed_rng
from neyman.testing._contract import declared, during, expect_same
from neyman.testing._host import Host, expect_same_batch, run_step, through_json
from neyman.testing._strategy_hooks import StrategyHooks, count_by_prompt


@dataclass
class _ByPlace(Host):
    """A host whose results depend on a prompt's place and the draw, not on its name."""

    place: Mapping[PromptId, int] = field(default_factory=dict)
    drawn: Counter[PromptId] = field(default_factory=Counter)

    def outcomes(self, request: Request) -> list[Outcome]:
        """Return the results of a request."""
        results, place = [], self.place[request.prompt_id]
        rate = float(keyed_rng("rate", self.seed, place).beta(0.6, 0.6))
        for rollout_id in request.rollout_ids:
            self.drawn[request.prompt_id] += 1
            success = keyed_rng("world", self.seed, place, self.drawn[request.prompt_id]).random() < rate
            results.append(Outcome(rollout_id=rollout_id, prompt_id=request.prompt_id, reward=float(success)))
        return results


class StrategyRepeat(StrategyHooks):
    """Checks that lead two controllers through the same steps."""

    __test__ = False

    def test_the_same_calls_give_the_same_decisions_bit_for_bit(self) -> None:
        """Results come in portions and out of order: two ranks that get the same decide the same."""
        for world in range(self.worlds):
            first, second = self.controller(), self.controller()
            for step in range(3):
                with during("a step reported in portions and out of order", see="Determinism"):
                    (one, asked), (other, also) = (
                        run_step(
                            c, Host(failing=0.1, seed=world), self.brought(step), rng=self.rng(world, step)
                        )
                        for c in (first, second)
                    )
                claim, given = (
                    "two controllers that get the same must decide the same",
                    {"step": step, "world": world},
                )
                expect_same(asked, also, claim, see="Determinism", **given)
                expect_same_batch(one, other, claim, see="Determinism", **given)
            expect_same(first.state_dict(), second.state_dict(), claim, see="Determinism", **given)

    def test_the_order_inside_a_tell_does_not_matter(self) -> None:
        """Results of one call are a set."""
        for world in range(self.worlds):
            plain, mixed = self.controller(), self.controller()
            host, rng = Host(failing=0.1, seed=world), self.rng(20, world)
            claim = "the order of results inside one tell must not matter"
            for step in range(2):
                for controller in (plain, mixed):
                    controller.begin(self.brought(step))
                while not plain.is_done:
                    requests = plain.ask()
                    expect_same(requests, mixed.ask(), claim, see="Order", step=step, world=world)
                    outcomes = host.answer(requests)
                    plain.tell(outcomes)
                    rng.shuffle(outcomes)
                    mixed.tell(outcomes)
                expect_same_batch(plain.finish(), mixed.finish(), claim, see="Order", step=step, world=world)
            expect_same(plain.state_dict(), mixed.state_dict(), claim, see="Order", world=world)

    def test_plans_do_not_depend_on_the_order_of_arrival(self) -> None:
        """Without verdicts, counts are taken when all probes are in: who answers first changes nothing."""
        if self.make().verdict is not None:
            return  # waves open prompts as verdicts free budget; what they decide per prefix is checked by the rules
        for world in range(self.worlds):
            found = []
            for key in (None, 30, 31):
                rng = None if key is None else self.rng(key, world)
                controller, counts = self.controller(), []
                for step in range(3):
                    with during("a step reported out of order", see="Order"):
                        _, asked = run_step(controller, Host(seed=world), self.brought(step), rng=rng)
                    counts.append(count_by_prompt(asked))
                found.append((counts, controller.ledger.account()))
            claim = "without a verdict, the order in which results arrive must not change any count"
            for other in found[1:]:
                expect_same(found[0], other, claim, see="Order", world=world)

    def test_saved_restored_and_continued_equals_never_stopped(self) -> None:
        """Between steps and in the middle of one, with results out that the host has lost."""
        with during("three steps, never stopped", see="Saved states"):
            straight = self._trace(None)
        for stop in (0, 1, 4):
            with during(f"three steps, saved and restored after {stop} portions", see="Saved states"):
                interrupted = self._trace(stop)
            claim = (
                f"a run saved and restored after {stop} portions of results must equal one that never stopped"
            )
            for step, (one, other) in enumerate(zip(straight[0], interrupted[0], strict=True)):
                expect_same_batch(one, other, claim, see="Saved states", step=step)
            expect_same(straight[1], interrupted[1], claim, see="Saved states")

    def _trace(self, stop: int | None) -> tuple[list[Batch], Any]:
        """Return the batches and the last state of three steps, restored after ``stop`` portions of each."""
        controller, host, batches, unwanted = self.controller(), Host(failing=0.1), list[Batch](), set[int]()
        portion = max(1, self.budget // 6)
        for step in range(3):
            controller.begin(self.brought(step))
            waiting: list[Outcome] = []
            moves = 0
            while not controller.is_done:
                waiting += host.answer(controller.ask(self.budget // 2))
                unwanted |= {i for cancel in controller.cancellations() for i in cancel.rollout_ids}
                if moves == stop:
                    controller = self._restored(controller)
                    out = {o.rollout_id for o in waiting} - unwanted
                    again = {i for request in controller.ask(len(out)) for i in request.rollout_ids}
                    claim = "what was out when the state was saved must be asked for again, under its own ids"
                    expect_same(out, again, claim, see="Saved states")
                moves += 1
                results, waiting = waiting[:portion], waiting[portion:]
                controller.tell(results)
            batches.append(controller.finish())
            if stop is not None:
                controller = self._restored(controller)
        return batches, through_json(controller.state_dict())

    def _restored(self, controller: Controller) -> Controller:
        """Return a fresh controller with the state of another, taken through JSON."""
        fresh = self.controller()
        fresh.load_state_dict(through_json(controller.state_dict()))
        return fresh

    def test_the_names_of_prompts_do_not_matter(self) -> None:
        """Permuting the candidates, with their worlds, permutes the decisions: rules see places and evidence."""
        names: list[list[PromptId]] = [
            list(range(self.prompts)),
            [f"prompt {k}" for k in range(self.prompts)],
        ]
        names.append(list(reversed(names[0])))
        demand = "permuting the candidates and their worlds must permute the decisions"
        with declared("by_name", self.by_name, demand, see="Permutations"):
            for world in range(self.worlds):
                found = [self._counts_by_place(ids, world) for ids in names]
                for ids, counts in zip(names[1:], found[1:], strict=True):
                    given = {"candidates": ids, "world": world, "instead_of": names[0]}
                    expect_same(found[0], counts, demand, see="Permutations", **given)

    def _counts_by_place(self, ids: list[PromptId], world: int) -> list[list[int]]:
        """Return the rollouts of each place in three steps without a pool."""
        spend = self.controller(pool=ids)
        host = _ByPlace(seed=world, place={name: place for place, name in enumerate(ids)})
        counts = []
        for _ in range(3):
            with during("a step with other names of prompts", see="Permutations"):
                _, asked = run_step(spend, host, ids)
            by_prompt = count_by_prompt(asked)
            counts.append([by_prompt.get(name, 0) for name in ids])
        return counts
