"""Rules of a strategy: which prompts (select), how many rollouts (allocate), when a group ends (verdict)."""

from neyman.rules._contracts import Allocate as Allocate
from neyman.rules._contracts import Evidence as Evidence
from neyman.rules._contracts import Keep as Keep
from neyman.rules._contracts import Select as Select
from neyman.rules._contracts import StepView as StepView
from neyman.rules._contracts import Verdict as Verdict
from neyman.rules.allocate import Each as Each
from neyman.rules.allocate import VarianceOptimal as VarianceOptimal
from neyman.rules.allocate import WaterLevel as WaterLevel
from neyman.rules.forecast import MostMixed as MostMixed
from neyman.rules.inverse import Inverse as Inverse
from neyman.rules.keep import Balanced as Balanced
from neyman.rules.knapsack import Knapsack as Knapsack
from neyman.rules.marginal import MarginalValue as MarginalValue
from neyman.rules.rest import Rest as Rest
from neyman.rules.screen import Screen as Screen
from neyman.rules.select import ClosestTo as ClosestTo
from neyman.rules.select import HighestVariance as HighestVariance
from neyman.rules.select import InOrder as InOrder
from neyman.rules.select import LeastWaste as LeastWaste
from neyman.rules.select import Revisit as Revisit
from neyman.rules.skip import SkipUniform as SkipUniform
from neyman.rules.stop import EarlyVerdict as EarlyVerdict
from neyman.rules.stop import FullGroup as FullGroup
from neyman.rules.stop import WorthVerdict as WorthVerdict
from neyman.rules.until import Until as Until

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
