"""Strategies: which prompts, their predicted success rates, how many rollouts, when to stop, how a step closes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, final

from neyman._checks import choice, integer, part, real
from neyman.beliefs import Belief, Counts
from neyman.errors import ArgumentError
from neyman.rules import Allocate, Each, InOrder, Keep, Select, Verdict

CLOSES = ("fixed_spend", "fixed_train", "streaming")
ESTIMATORS = ("grpo", "dr_grpo", "rloo", "reinforce++")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """The four parts and the closing of a step, put together. Presets by name: `neyman.preset`.

    Args:
        name: for logs and reports.
        select: which prompts.
        belief: predicts each prompt's success rate; the controller takes its own copy.
        allocate: how many rollouts each prompt gets.
        verdict: when a group is finished; None generates every group in full.
        close: "fixed_spend" trains everything that was generated; "fixed_train" generates until enough
            effective groups exist and trains only those; "streaming" hands groups out as they close.
        estimator: how advantages are computed: "grpo", "dr_grpo", "rloo" or "reinforce++". In TRL the trainer's
            settings decide instead, except for "reinforce++", which it has no trainer for (docs/trl.md).
        prompts: prompts per step, as a multiple of those that the host brings.
        over_provision: factor by which a wave opens more fresh prompts than it needs, so that fewer rounds follow;
            "auto" takes one over the observed share of effective groups, between 1 and 4; "belief" opens as many as
            will be enough by each prompt's own chance, and nothing for groups that are in sight already.
        dead_groups: "keep" leaves groups without signal in the loss's denominator, as the host does without
            neyman; "exclude" rescales so that they do not dilute it; "replace" lets groups with signal, drawn at
            random, count once more in their place (`neyman.step._batch.group_copies`).
        replace_above: share of the groups that must carry signal before "replace" does so; else they are kept.
        incomplete: "keep" trains a group that lacks results on those it has; "drop" leaves it out.
        complete_from_allowance: complete committed groups from the retry allowance once the budget is spent.
        prompt_weight: "equal" gives every prompt's group mean the same weight, as the analysis assumes;
            "by_rollouts" leaves the host's weighting; "equal_tokens" gives every prompt the same tokens.
        verdict_on: "prefix" decides on complete prefixes of rollout indices; "arrival" on whatever arrived,
            which is biased towards short answers.
        max_age: steps for which effective rollouts that a step did not need are kept; 0 discards them.
        max_tries: tries of one slot before its result counts as missing.
        keep: which rollouts of a finished group train; the others are surplus. None trains all.
        baseline: the rollouts that a row's reward is compared with: the group's "rows" in the batch, or all valid
            results of its "group", those that ``keep`` leaves out included.
        replay_age: steps for which the latest right answer of each prompt is kept, to stand in the place of a wrong
            one where a complete group has none (`neyman.step._right_answers`); 0 keeps none.
        modulation: settings of DynaMO's token factor (`neyman.modulation.Modulation`), applied by hosts.

    Raises:
        ArgumentError: a part of the wrong type, an unknown choice, or parts that contradict each other.
    """

    name: str
    select: Select = field(default_factory=InOrder)
    belief: Belief = field(default_factory=lambda: Counts(prior=(1.0, 1.0), fade=0.0))
    allocate: Allocate = field(default_factory=Each)
    verdict: Verdict | None = None
    close: str = "fixed_spend"
    estimator: str = "grpo"
    prompts: float = 1.0
    over_provision: float | str = "auto"
    dead_groups: str = "keep"
    replace_above: float = 0.3
    incomplete: str = "keep"
    complete_from_allowance: bool = True
    prompt_weight: str = "equal"
    verdict_on: str = "prefix"
    max_age: int = 0
    max_tries: int = 3
    keep: Keep | None = None
    baseline: str = "rows"
    replay_age: int = 0
    modulation: Any = None

    def __post_init__(self) -> None:
        part("select", self.select, Select, "neyman.rules.InOrder()")
        part("belief", self.belief, Belief, "neyman.beliefs.Counts()")
        part("allocate", self.allocate, Allocate, "neyman.rules.VarianceOptimal(lower=4, upper=32)")
        if self.verdict is not None:
            part("verdict", self.verdict, Verdict, "neyman.rules.EarlyVerdict()")
        choice("close", self.close, CLOSES)
        choice("estimator", self.estimator, ESTIMATORS)
        choice("dead_groups", self.dead_groups, ("keep", "exclude", "replace"))
        real("replace_above", self.replace_above, low=0.0, high=1.0)
        choice("incomplete", self.incomplete, ("keep", "drop"))
        choice("prompt_weight", self.prompt_weight, ("equal", "by_rollouts", "equal_tokens"))
        choice("verdict_on", self.verdict_on, ("prefix", "arrival"))
        choice("baseline", self.baseline, ("rows", "group"))
        real("prompts", self.prompts, low=0.0, open_low=True)
        integer("max_age", self.max_age, low=0)
        integer("replay_age", self.replay_age, low=0)
        integer("max_tries", self.max_tries, low=1)
        if self.over_provision not in ("auto", "belief"):
            real("over_provision", self.over_provision, low=0.0, open_low=True)
        if self.close == "fixed_train" and self.verdict is None:
            raise ArgumentError(
                f"strategy {self.name!r} closes with fixed_train, which discards groups without signal, but has no "
                "verdict to find them: give it verdict=neyman.rules.FullGroup() or EarlyVerdict(), or "
                "close='fixed_spend'"
            )
        if self.keep is not None and self.close == "fixed_spend":
            raise ArgumentError(
                f"strategy {self.name!r} trains a part of each group (keep), but close='fixed_spend' trains everything "
                "that was generated: use close='fixed_train', or keep=None"
            )
        if self.max_age and self.close != "fixed_train":
            raise ArgumentError(
                f"strategy {self.name!r} keeps surplus for {self.max_age} steps, but close={self.close!r} trains "
                "everything and leaves none: set max_age=0, or close='fixed_train'"
            )
        if self.replay_age and self.verdict is None:
            raise ArgumentError(
                f"strategy {self.name!r} replays right answers for {self.replay_age} steps, but has no verdict that "
                "decides when a group is complete: give it verdict=neyman.rules.FullGroup(), or replay_age=0"
            )
        if self.verdict is not None and self.allocate.probe:
            raise ArgumentError(
                f"strategy {self.name!r} has both an allocation probe ({self.allocate.probe}) and a verdict; a group "
                "is either judged by a verdict or counted again after a probe: set probe=0 or verdict=None"
            )

    def with_options(self, **options: Any) -> Strategy:
        """Return the strategy with some parts replaced."""
        return replace(self, **options)


def check_strategy(value: Any) -> Strategy:
    """Return ``value`` when it is a strategy, or raise with two that are."""
    if isinstance(value, Strategy):
        return value
    named = repr(value) if isinstance(value, str) and value else "'vip'"
    raise ArgumentError(
        f"strategy must be a neyman.Strategy, got {value!r:.80}; for example strategy=neyman.preset({named}), or "
        "strategy=neyman.preset('uniform') for the host's own behaviour"
    )
