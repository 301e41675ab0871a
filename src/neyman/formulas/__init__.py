"""Formulas of the methods: pure functions on arrays without state or randomness; float64 in, int64 counts out."""

from neyman.formulas.advantage import effective_groups as effective_groups
from neyman.formulas.advantage import group_advantages as group_advantages
from neyman.formulas.allocation import allocate as allocate
from neyman.formulas.metrics import brier as brier
from neyman.formulas.metrics import ece as ece
from neyman.formulas.metrics import log_loss as log_loss
from neyman.formulas.metrics import maj_at_k as maj_at_k
from neyman.formulas.metrics import mean_at_k as mean_at_k
from neyman.formulas.metrics import pass_at_k as pass_at_k
from neyman.formulas.relaxation import relaxed_counts as relaxed_counts
from neyman.formulas.segments import group_index as group_index
from neyman.formulas.variance import MINIMUM_GROUP_SIZE as MINIMUM_GROUP_SIZE
from neyman.formulas.variance import dead_share as dead_share
from neyman.formulas.variance import gradient_variance as gradient_variance
from neyman.formulas.variance import mixed_probability as mixed_probability
from neyman.formulas.verdict import YieldCheck as YieldCheck
from neyman.formulas.verdict import abandon_index as abandon_index
from neyman.formulas.verdict import effective_probability as effective_probability
from neyman.formulas.verdict import expected_rollouts as expected_rollouts
from neyman.formulas.verdict import signal_kept as signal_kept
from neyman.formulas.verdict import yield_condition as yield_condition
from neyman.formulas.water import inverse_accuracy as inverse_accuracy
from neyman.formulas.water import inverse_variance as inverse_variance
from neyman.formulas.water import largest_remainder as largest_remainder
from neyman.formulas.water import published_water_level as published_water_level
from neyman.formulas.water import water_level as water_level
from neyman.formulas.weights import prompt_weights as prompt_weights
from neyman.formulas.worth import group_waste as group_waste
from neyman.formulas.worth import group_worth as group_worth

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
    "water_level",
    "yield_condition",
]
