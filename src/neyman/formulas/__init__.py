"""Formulas of the methods: pure functions on arrays without state or randomness; float64 in, int64 counts out."""

from neyman.formulas.advantage import effective_groups, group_advantages, undecided_groups
from neyman.formulas.allocation import allocate
from neyman.formulas.metrics import brier, ece, log_loss, maj_at_k, mean_at_k, pass_at_k
from neyman.formulas.relaxation import relaxed_counts
from neyman.formulas.segments import group_index
from neyman.formulas.variance import MINIMUM_GROUP_SIZE, dead_share, gradient_variance, mixed_probability
from neyman.formulas.verdict import (
    YieldCheck,
    abandon_index,
    effective_probability,
    expected_rollouts,
    signal_kept,
    yield_condition,
)
from neyman.formulas.water import (
    inverse_accuracy,
    inverse_variance,
    largest_remainder,
    published_water_level,
    water_level,
)
from neyman.formulas.weights import prompt_weights
from neyman.formulas.worth import group_waste, group_worth

__all__ = [
    "MINIMUM_GROUP_SIZE",
    "YieldCheck",
    "abandon_index",
    "allocate",
    "brier",
    "dead_share",
    "ece",
    "effective_groups",
    "effective_probability",
    "expected_rollouts",
    "gradient_variance",
    "group_advantages",
    "group_index",
    "group_waste",
    "group_worth",
    "inverse_accuracy",
    "inverse_variance",
    "largest_remainder",
    "log_loss",
    "maj_at_k",
    "mean_at_k",
    "mixed_probability",
    "pass_at_k",
    "prompt_weights",
    "published_water_level",
    "relaxed_counts",
    "signal_kept",
    "undecided_groups",
    "water_level",
    "yield_condition",
]
