"""Beliefs: predictions of each prompt's success rate, with their uncertainty, learnt from rollouts.

Saved states hold arrays as base64 of little-endian bytes with dtype and shape. Beliefs that use features
multiply small matrices: where several processes share cores, set ``OMP_NUM_THREADS=1``, because BLAS threads that
wait for one another cost more than the work.
"""

from neyman.beliefs._average import ModelAverage
from neyman.beliefs._beta import beta_parameters, match_beta
from neyman.beliefs._counts import Counts
from neyman.beliefs._default import default, for_variant
from neyman.beliefs._dynamics import StateDynamics
from neyman.beliefs._hybrid import CountsWithGP
from neyman.beliefs._protocol import Belief
from neyman.beliefs._published_gp import PublishedGP
from neyman.beliefs._residual import BinomialResidual
from neyman.beliefs._ridge import Ridge
from neyman.beliefs._state import check_state
from neyman.beliefs._streaks import Streaks
from neyman.beliefs._table import checked_counts
from neyman.randomness import PromptId

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
