"""neyman makes every rollout count: which prompts, how many rollouts, when to stop.

`import neyman` needs NumPy and SciPy only. The TRL adapter is `neyman.trl`, to be imported by name; it
and the functions of `neyman.modulation` (not its settings) need the extra `train`.
"""

from neyman import beliefs as beliefs
from neyman import errors as errors
from neyman import modulation as modulation
from neyman import rules as rules
from neyman.controller import Controller as Controller
from neyman.formulas import abandon_index as abandon_index
from neyman.formulas import allocate as allocate
from neyman.formulas import dead_share as dead_share
from neyman.formulas import effective_probability as effective_probability
from neyman.formulas import gradient_variance as gradient_variance
from neyman.formulas import group_advantages as group_advantages
from neyman.formulas import maj_at_k as maj_at_k
from neyman.formulas import mean_at_k as mean_at_k
from neyman.formulas import pass_at_k as pass_at_k
from neyman.formulas import prompt_weights as prompt_weights
from neyman.formulas import water_level as water_level
from neyman.presets import preset as preset
from neyman.step.batch import Batch as Batch
from neyman.step.ledger import Fate as Fate
from neyman.step.ledger import Ledger as Ledger
from neyman.step.ledger import Work as Work
from neyman.step.messages import Budget as Budget
from neyman.step.messages import Cancel as Cancel
from neyman.step.messages import GroupReport as GroupReport
from neyman.step.messages import Outcome as Outcome
from neyman.step.messages import Reason as Reason
from neyman.step.messages import Request as Request
from neyman.step.messages import Status as Status
from neyman.step.messages import StopReason as StopReason
from neyman.step.missing import MissingReward as MissingReward
from neyman.strategy import Strategy as Strategy

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Budget",
    "Cancel",
    "Controller",
    "Fate",
    "GroupReport",
    "Ledger",
    "MissingReward",
    "Outcome",
    "Reason",
    "Request",
    "Status",
    "StopReason",
    "Strategy",
    "Work",
    "abandon_index",
    "allocate",
    "beliefs",
    "dead_share",
    "effective_probability",
    "errors",
    "gradient_variance",
    "group_advantages",
    "maj_at_k",
    "mean_at_k",
    "modulation",
    "pass_at_k",
    "preset",
    "prompt_weights",
    "rules",
    "water_level",
]
