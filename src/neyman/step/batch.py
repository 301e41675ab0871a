"""The rows that a step trains on, and the one function from their rewards to their advantages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman import formulas
from neyman._checks import float_array
from neyman.errors import ArgumentError
from neyman.randomness import PromptId
from neyman.step.messages import StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The rows to train on, aligned by index, each with its prompt and rollout.

    Args:
        rollout_ids: int64 [rows]; the same id may stand in several rows when rows are filled with copies.
        prompt_ids: one per row.
        groups: int64 [rows], 0, 1, ... in the order in which prompts were opened; -1 for copies that only fill.
        rewards: float64 [rows], NaN where the result is missing.
        success: float64 [rows], 1, 0 or NaN.
        advantages: float64 [rows], finite, 0 where there is no signal; not multiplied by ``weights``.
        weights: float64 [rows], the factor for the advantages that makes the host's flat loss the mean over
            prompts of each group's mean; 0 for rows that only fill the batch.
        age: int64 [rows], steps since the rollout was generated.
        policy_version: int64 [rows].
        stop_reason: why the step ended.
        report: flat metrics of the step.
        estimator: how advantages follow from rewards.
        counted: bool [rows], rows with a valid result that are no copy; only they are in any statistic.
        copies: int64 [rows], how often the row's group counts in the mean over prompts: 1, or more where it stands
            in for groups without signal, whose rows have 0.
        spare_ids: int64 [spares], rollouts that do not train but are in the baseline of their group
            (``baseline="group"``); empty otherwise.
        spare_groups: int64 [spares], their groups.
        spare_rewards: float64 [spares].
    """

    rollout_ids: NDArray[np.int64]
    prompt_ids: tuple[PromptId, ...]
    groups: NDArray[np.int64]
    rewards: NDArray[np.float64]
    success: NDArray[np.float64]
    advantages: NDArray[np.float64]
    weights: NDArray[np.float64]
    age: NDArray[np.int64]
    policy_version: NDArray[np.int64]
    stop_reason: StopReason
    report: Mapping[str, float] = field(repr=False)
    estimator: str
    counted: NDArray[np.bool_] = field(repr=False)
    copies: NDArray[np.int64] = field(repr=False)
    spare_ids: NDArray[np.int64] = field(repr=False)
    spare_groups: NDArray[np.int64] = field(repr=False)
    spare_rewards: NDArray[np.float64] = field(repr=False)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rollout_ids)

    def with_rewards(self, rewards: ArrayLike) -> Batch:
        """Return the batch with the host's final rewards and the `advantages` that follow from them.

        For hosts that add terms after ``tell``, such as RLOO's KL penalty.

        Args:
            rewards: float [rows], aligned with ``rollout_ids``; NaN for rows without a result.

        Raises:
            ArgumentError: another number of rows.
        """
        array = _rows(self, rewards)
        return replace(self, rewards=array, advantages=advantages(self, array))

    def summary(self) -> dict[str, Any]:
        """Return the report with the stop reason, JSON-safe."""
        return {**self.report, "stop_reason": self.stop_reason.name.lower()}


def advantages(
    batch: Batch,
    rewards: ArrayLike,
    *,
    spare_rewards: ArrayLike | None = None,
    estimator: str | None = None,
    eps: float = 1e-4,
    with_spares: bool = False,
) -> NDArray[np.float64]:
    """Return the advantage of each row of a batch over its ragged groups, not multiplied by ``weights``.

    Hosts train on this function unless the trainer computes advantages itself. A host whose trainer scales
    otherwise (over the batch, or each of several reward functions by itself) takes the centred advantages, or those of
    each function, from here and scales them.

    Args:
        batch: the batch, for its groups, and for the results that are in a group's baseline and do not train.
        rewards: float [rows]; NaN for rows without a result. Copies that only fill the batch count as such.
        spare_rewards: float [spares], rewards of the results that do not train; None takes those that were reported.
        estimator: "grpo", "dr_grpo", "rloo" or "reinforce++"; None takes the batch's.
        eps: added to the standard deviation where the estimator divides by it.
        with_spares: whether the advantages of the spares follow those of the rows, for statistics over both.

    Returns:
        float64 [rows], or [rows + spares], finite; 0 without a result and in zero-variance groups.

    Raises:
        ArgumentError: another number of rows or spares, or an unknown estimator.
    """
    array = _rows(batch, rewards)
    if not len(array):  # nor is there a spare: those are of trained groups
        return np.zeros(0)
    spares = float_array(
        "spare_rewards", batch.spare_rewards if spare_rewards is None else spare_rewards, ndim=1
    )
    everything = np.concatenate([array, spares]), np.concatenate([batch.groups, batch.spare_groups])
    kind = batch.estimator if estimator is None else estimator
    found = formulas.group_advantages(*everything, estimator=kind, eps=eps)
    return found if with_spares else found[: len(array)]


def _rows(batch: Batch, rewards: ArrayLike) -> NDArray[np.float64]:
    """Return rewards as an array, NaN in rows that count in no statistic."""
    array = float_array("rewards", rewards, ndim=1)
    if len(array) != len(batch):
        raise ArgumentError(
            f"rewards must have one entry per row of the batch ({len(batch)}), got {len(array)}"
        )
    return np.where(batch.counted, array, np.nan)
