"""Prompts with verified answers, and the embedded policy that needs no download.

Extras are imported by the functions that need them; importing this package loads NumPy and SciPy only.
"""

from neyman.tasks import rules as rules
from neyman.tasks._task import Problem as Problem
from neyman.tasks._task import Task as Task
from neyman.tasks._task import Verifier as Verifier
from neyman.tasks._task import completion_text as completion_text
from neyman.tasks._task import content_id as content_id
from neyman.tasks._task import problem as problem
from neyman.tasks._task import resolve_duplicates as resolve_duplicates
from neyman.tasks._task import reward_function as reward_function
from neyman.tasks._task import to_dataset as to_dataset
from neyman.tasks.data import file_task as file_task
from neyman.tasks.data import load_problems as load_problems
from neyman.tasks.data import split_problems as split_problems
from neyman.tasks.reasoning import ReasoningGymVerifier as ReasoningGymVerifier
from neyman.tasks.reasoning import reasoning_gym_task as reasoning_gym_task
from neyman.tasks.rules import rules_task as rules_task
from neyman.tasks.tiny_policy import PolicyConfig as PolicyConfig
from neyman.tasks.tiny_policy import build_policy as build_policy
from neyman.tasks.tiny_policy import exact_success_rates as exact_success_rates
from neyman.tasks.tiny_policy import load_policy as load_policy
from neyman.tasks.tiny_policy import rules_policy as rules_policy
from neyman.tasks.verify import ExactMatch as ExactMatch
from neyman.tasks.verify import KillableVerifier as KillableVerifier
from neyman.tasks.verify import MathVerify as MathVerify

__all__ = [
    "ExactMatch",
    "KillableVerifier",
    "MathVerify",
    "PolicyConfig",
    "Problem",
    "ReasoningGymVerifier",
    "Task",
    "Verifier",
    "build_policy",
    "completion_text",
    "content_id",
    "exact_success_rates",
    "file_task",
    "load_policy",
    "load_problems",
    "problem",
    "reasoning_gym_task",
    "resolve_duplicates",
    "reward_function",
    "rules",
    "rules_policy",
    "rules_task",
    "split_problems",
    "to_dataset",
]
