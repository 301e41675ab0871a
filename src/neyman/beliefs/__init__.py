"""Beliefs: predictions of each prompt's success rate, with their uncertainty, learnt from rollouts.

Saved states hold arrays as base64 of little-endian bytes with dtype and shape. Beliefs that use features
multiply small matrices: where several processes share cores, set ``OMP_NUM_THREADS=1``, because BLAS threads that
wait for one another cost more than the work.
"""

from neyman.beliefs._average import ModelAverage as ModelAverage
from neyman.beliefs._beta import beta_parameters as beta_parameters
from neyman.beliefs._beta import match_beta as match_beta
from neyman.beliefs._counts import Counts as Counts
from neyman.beliefs._default import default as default
from neyman.beliefs._default import for_variant as for_variant
from neyman.beliefs._dynamics import StateDynamics as StateDynamics
from neyman.beliefs._hybrid import CountsWithGP as CountsWithGP
from neyman.beliefs._protocol import Belief as Belief
from neyman.beliefs._published_gp import PublishedGP as PublishedGP
from neyman.beliefs._residual import BinomialResidual as BinomialResidual
from neyman.beliefs._ridge import Ridge as Ridge
from neyman.beliefs._state import check_state as check_state
from neyman.beliefs._streaks import Streaks as Streaks
from neyman.beliefs._table import checked_counts as checked_counts
from neyman.randomness import PromptId as PromptId

__all__ = [
    "Belief",
    "BinomialResidual",
    "Counts",
    "CountsWithGP",
    "ModelAverage",
    "PromptId",
    "PublishedGP",
    "Ridge",
    "StateDynamics",
    "Streaks",
    "beta_parameters",
    "check_state",
    "checked_counts",
    "default",
    "for_variant",
    "match_beta",
]
