"""Beliefs: what is thought about each prompt's success rate."""

from neyman.beliefs._beta import beta_parameters as beta_parameters
from neyman.beliefs._beta import match_beta as match_beta
from neyman.beliefs._counts import Counts as Counts
from neyman.beliefs._protocol import Belief as Belief
from neyman.beliefs._protocol import PromptId as PromptId
from neyman.beliefs._residual import BinomialResidual as BinomialResidual

__all__ = ["Belief", "BinomialResidual", "Counts", "PromptId", "beta_parameters", "match_beta"]
