"""A whole RLVR experiment in seconds on a CPU: tiny policy, exact accuracy, every strategy through the controller."""

from neyman.errors import missing_extra

try:
    import safetensors as _safetensors  # noqa: F401
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise missing_extra(str(error.name), "train", "neyman.lab") from error

from neyman.lab.experiment import Experiment as Experiment
from neyman.lab.experiment import run as run
from neyman.lab.oracle import OracleBelief as OracleBelief
from neyman.lab.policy import Policy as Policy
from neyman.lab.strategies import build_strategy as build_strategy
from neyman.lab.strategies import strategy_names as strategy_names
from neyman.lab.task import REGIMES as REGIMES
from neyman.lab.task import WarmStart as WarmStart
from neyman.lab.task import starting_policy as starting_policy

__all__ = [
    "REGIMES",
    "Experiment",
    "OracleBelief",
    "Policy",
    "WarmStart",
    "build_strategy",
    "run",
    "starting_policy",
    "strategy_names",
]
