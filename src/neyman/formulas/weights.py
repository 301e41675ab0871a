"""Factors per row that turn a trainer's flat loss into the mean over prompts of each group's mean."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman import _checks
from neyman._checks import FloatP, IntP
from neyman.errors import ArgumentError
from neyman.formulas.segments import check_rows, group_index, group_sum, row_mask

PROMPT_WEIGHTS: Final = ("equal", "by_rollouts", "equal_tokens")
AGGREGATIONS: Final = ("sequence_mean", "constant", "token_mean", "micro_token_mean")


def prompt_weights(
    groups: Iterable[Hashable],
    n_tokens: ArrayLike | None = None,
    *,
    prompt_weight: str = "equal",
    aggregation: str = "sequence_mean",
    trained: ArrayLike | None = None,
    copies: ArrayLike | None = None,
) -> FloatP:
    """Compute the factor on each row's advantage that gives every prompt the same weight in the trainer's loss.

    R and T are the rows and tokens of the trainer's batch, R' and T' those that are trained, B the groups with
    trained rows, n_q and T_q the trained rows and tokens of group q:

    ============  =================================  ==========================  ==========
    weight        sequence_mean, constant            token_mean                  otherwise
    ============  =================================  ==========================  ==========
    equal         R / (B n_q)                        (T / T') R' / (B n_q)       0 where a
    equal_tokens  refused                            T / (B T_q)                 row is not
    by_rollouts   R / R'                             T / T'                      trained
    ============  =================================  ==========================  ==========

    Args:
        groups: one label per row of the trainer's batch, any order, with padding rows and rows of zero-variance
            groups, because the loss divides by them too.
        n_tokens: completion tokens per row, shape (rows,); needed for "equal_tokens", and for "token_mean" where
            some rows are not trained.
        prompt_weight: "equal": the mean over prompts of each group's mean; "equal_tokens": every prompt has the
            same total token weight; "by_rollouts": the trainer's own weighting of the trained rows.
        aggregation: how the loss averages. "sequence_mean": mean over rows of token means (TRL `grpo`);
            "constant": token sums over a constant times the rows (TRL `dr_grpo`); "token_mean": one mean over
            all tokens of the batch (TRL `dapo`); "micro_token_mean": a mean per micro-batch (TRL `bnpo`).
        trained: boolean mask of rows that count; None means all. Without zero-variance groups in the mask these
            do not dilute the loss; with them they do, as in the trainer's own batches.
        copies: how often each row's group counts, int64 [rows], the same for all rows of a group and at least 1
            where a row is trained; None counts each once. B is then the sum of the copies over groups, and each
            group's factor is multiplied by its copies, as if its rows stood in the batch that often.

    Returns:
        float64 factors, shape (rows,); 0 where a row is not trained. All 1 where every row is trained and all
        groups have one size, except for "equal_tokens".

    Raises:
        ArgumentError: arrays of different lengths, tokens missing or negative, "equal_tokens" under a loss that
            does not average over tokens, or "micro_token_mean" with rows left out or groups of unequal size.

    Guarantee: Exact on gradients under "sequence_mean" and "constant". Under "token_mean", "equal" is the mean over
    prompts of the groups' mean token sums times one scalar per batch, R'/T', as if the batch held the trained rows
    alone; "equal_tokens" is exactly the mean over prompts of the groups' token means. A KL term in the loss is not
    multiplied by advantages and stays weighted by rows.
    Cost: O(rows log(rows)).
    Source: The gradient analyses of VIP and DynaMO give prompts equal weights; the factors are derived here.

    >>> prompt_weights(["a", "a", "a", "b"])
    array([0.66666667, 0.66666667, 0.66666667, 2.        ])
    """
    weight = _checks.choice("prompt_weight", prompt_weight, PROMPT_WEIGHTS)
    loss = _checks.choice("aggregation", aggregation, AGGREGATIONS)
    codes, labels = group_index(groups)
    rows = len(codes)
    live = np.ones(rows, dtype=bool) if trained is None else row_mask("trained", trained, rows)
    size = group_sum(live, codes, len(labels))
    # Each micro-batch has a divisor of its own, which a factor per row cannot undo.
    if loss == "micro_token_mean":
        return _only_uniform(live, size, rows)
    if weight == "equal_tokens" and loss != "token_mean":
        raise ArgumentError(
            f"prompt_weight='equal_tokens' is for aggregation='token_mean', got {loss!r}, whose rows do not "
            "weigh by their tokens; use 'equal'"
        )
    if not live.any():
        return np.zeros(rows)
    if copies is not None:
        # The factors without copies, then times the copies, then one scale for the batch that they enlarge.
        factors = prompt_weights(codes, n_tokens, prompt_weight=weight, aggregation=loss, trained=live)
        times = _copies(copies, live)
        tokens = _tokens(n_tokens, rows) if loss == "token_mean" else np.ones(rows)
        return factors * times * _shared(times, live, codes, len(labels), tokens, weight)
    if weight == "equal_tokens":
        return _equal_tokens(_tokens(n_tokens, rows), live, codes, len(labels))
    undiluted = rows / int(live.sum())
    if loss == "token_mean":
        undiluted = 1.0 if live.all() else _token_dilution(_tokens(n_tokens, rows), live)
    if weight == "by_rollouts":
        return np.where(live, undiluted, 0.0)
    # Whole numbers until the division, so that groups of equal size give exactly 1, the stock trainer's loss.
    share = (rows if loss != "token_mean" else int(live.sum())) / (
        int((size > 0).sum()) * np.maximum(size, 1.0)
    )
    factor = share * undiluted if loss == "token_mean" else share
    return np.where(live, factor[codes], 0.0)


def _tokens(n_tokens: ArrayLike | None, rows: int) -> FloatP:
    if n_tokens is None:
        raise ArgumentError(
            "n_tokens is missing: this weighting of a token mean needs the tokens of every row"
        )
    tokens = _checks.nonnegative_array("n_tokens", n_tokens, ndim=1)
    check_rows("n_tokens", tokens, rows)
    return tokens


def _token_dilution(tokens: FloatP, live: NDArray[np.bool_]) -> float:
    """Return T / T', by which untrained tokens dilute a token mean; without trained tokens there is no loss."""
    return float(tokens.sum() / max(float(tokens[live].sum()), 1.0))


def _equal_tokens(tokens: FloatP, live: NDArray[np.bool_], codes: IntP, n_groups: int) -> FloatP:
    per_group = group_sum(np.where(live, tokens, 0.0), codes, n_groups)
    counted = per_group > 0.0  # a group without tokens has no token mean
    factor = tokens.sum() / (max(int(counted.sum()), 1) * np.where(counted, per_group, 1.0))
    return np.where(live & counted[codes], factor[codes], 0.0)


def _copies(copies: ArrayLike, live: NDArray[np.bool_]) -> FloatP:
    times = _checks.nonnegative_array("copies", copies, ndim=1)
    check_rows("copies", times, len(live))
    if (times[live] < 1.0).any():
        raise ArgumentError(
            "copies must be at least 1 wherever a row is trained; leave the others out of trained"
        )
    return times


def _shared(
    times: FloatP, live: NDArray[np.bool_], codes: IntP, n_groups: int, tokens: FloatP, weight: str
) -> float:
    """Return the scale from factors of single groups to those of their copies: more rows, tokens and groups."""
    rows, total = float(live.sum()), float(tokens[live].sum())
    copied_rows, copied_total = float(times[live].sum()), float(tokens[live] @ times[live])
    if weight == "by_rollouts":
        return total / copied_total if copied_total else 0.0
    per_group = np.zeros(n_groups)
    per_group[codes[live]] = times[live]
    share = float((per_group > 0.0).sum() / per_group.sum())
    if weight == "equal_tokens" or not copied_total:
        return share
    return share * (copied_rows / copied_total) / (rows / total)


def _only_uniform(live: NDArray[np.bool_], size: FloatP, rows: int) -> FloatP:
    if not live.all() or (rows and (size != size[0]).any()):
        raise ArgumentError(
            "aggregation='micro_token_mean' divides each micro-batch by its own tokens, so no factor per row "
            "weights prompts alike once groups differ in size or rows are left out; use a loss that divides "
            "once per batch (TRL: loss_type 'grpo', 'dr_grpo' or 'dapo'), or equal group sizes"
        )
    return np.ones(rows)
