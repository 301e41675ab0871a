"""The soundness of a batch, whatever the strategy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from neyman.controller import Batch
from neyman.randomness import PromptId
from neyman.strategy import Strategy
from neyman.testing._contract import expect
from neyman.testing._host import through_json

_SEE = "Sound batches"


def expect_sound_batch(batch: Batch, strategy: Strategy, asked: Mapping[int, PromptId]) -> None:
    """Raise `BrokenContract` unless a batch is finite, joined by ids, and weighted by prompts."""
    rows = len(batch)
    names = ("rollout_ids", "groups", "rewards", "success", "advantages", "weights", "age", "counted")
    lengths = {name: len(getattr(batch, name)) for name in (*names, "prompt_ids")}
    expect(
        set(lengths.values()) == {rows},
        "every field of a batch must have one entry per row",
        see=_SEE,
        **lengths,
    )
    for name in ("advantages", "weights"):
        array = getattr(batch, name)
        expect(np.isfinite(array).all(), f"{name} must be finite in every row", see=_SEE, got=array)
    joined = [asked.get(i) for i in batch.rollout_ids.tolist()]
    claim = "every row must carry the prompt that its rollout was asked for"
    expect(joined == list(batch.prompt_ids), claim, see=_SEE, asked=joined, got=batch.prompt_ids)
    real = batch.rollout_ids[batch.groups >= 0].tolist()
    expect(len(set(real)) == len(real), "a rollout must train once", see=_SEE, rollout_ids=real)
    rest = ~batch.counted
    idle = (
        not batch.weights[rest].any()
        and not batch.advantages[rest].any()
        and np.isnan(batch.rewards[rest]).all()
    )
    claim = "rows without a result, and copies, must have no weight, no advantage and no reward"
    expect(idle, claim, see=_SEE, weights=batch.weights[rest], advantages=batch.advantages[rest])
    groups = [batch.counted & (batch.groups == g) for g in sorted(set(batch.groups[batch.counted].tolist()))]
    mixed = [0 < batch.success[group].sum() < group.sum() for group in groups]
    if strategy.close == "fixed_train":
        expect(
            all(mixed), "close='fixed_train' must train only groups with both outcomes", see=_SEE, mixed=mixed
        )
    _expect_mean_of_group_means(batch, strategy, groups, mixed)
    through_json(batch.summary())


def _expect_mean_of_group_means(
    batch: Batch, strategy: Strategy, groups: list[np.ndarray], mixed: list[bool]
) -> None:
    if strategy.prompt_weight != "equal":
        return
    values = np.cos(np.arange(len(batch)))  # any function of the rows
    keep = strategy.dead_groups != "exclude"
    copies = [int(batch.copies[group].min()) for group in groups]
    claim = "a group counts as often as any of its rows, and groups in all as often as there are groups"
    same = all((batch.copies[group] == n).all() for group, n in zip(groups, copies, strict=True))
    expect(same and sum(copies) == len(copies), claim, see=_SEE, copies=copies)
    counted = zip(groups, mixed, copies, strict=True)
    means = [values[group].mean() for group, is_mixed, n in counted if keep or is_mixed for _ in range(n)]
    if means:
        weighted, expected = float((batch.weights * values).mean()), float(np.mean(means))
        claim = "weights must give the mean over prompts of each group's mean"
        expect(abs(weighted - expected) < 1e-12, claim, see=_SEE, weighted=weighted, expected=expected)
