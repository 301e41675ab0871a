"""Rules of a strategy: which prompts (select), how many rollouts (allocate), when a group ends (verdict)."""

from neyman.rules._contracts import Allocate, Evidence, Keep, Select, StepView, Verdict
from neyman.rules.allocate import Each, VarianceOptimal, WaterLevel
from neyman.rules.forecast import MostMixed
from neyman.rules.inverse import Inverse
from neyman.rules.keep import Balanced
from neyman.rules.knapsack import Knapsack
from neyman.rules.marginal import MarginalValue
from neyman.rules.rest import Rest
from neyman.rules.screen import Screen
from neyman.rules.select import ClosestTo, HighestVariance, InOrder, LeastWaste, Revisit
from neyman.rules.skip import SkipUniform
from neyman.rules.stop import EarlyVerdict, FullGroup, WorthVerdict
from neyman.rules.until import Until

__all__ = [
    "Allocate",
    "Balanced",
    "ClosestTo",
    "Each",
    "EarlyVerdict",
    "Evidence",
    "FullGroup",
    "HighestVariance",
    "InOrder",
    "Inverse",
    "Keep",
    "Knapsack",
    "LeastWaste",
    "MarginalValue",
    "MostMixed",
    "Rest",
    "Revisit",
    "Screen",
    "Select",
    "SkipUniform",
    "StepView",
    "Until",
    "VarianceOptimal",
    "Verdict",
    "WaterLevel",
    "WorthVerdict",
]
