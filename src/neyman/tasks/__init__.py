"""Prompts with verified answers, and the embedded policy that needs no download.

Extras are imported by the functions that need them; importing this package loads NumPy and SciPy only.
"""

from neyman.tasks import rules
from neyman.tasks._task import (
    Problem,
    Task,
    Verifier,
    completion_text,
    content_id,
    problem,
    resolve_duplicates,
    reward_function,
    to_dataset,
)
from neyman.tasks.data import file_task, load_problems, split_problems
from neyman.tasks.reasoning import ReasoningGymVerifier, reasoning_gym_task
from neyman.tasks.rules import rules_task
from neyman.tasks.tiny_policy import (
    PolicyConfig,
    build_policy,
    exact_success_rates,
    load_policy,
    rules_policy,
)
from neyman.tasks.verify import ExactMatch, KillableVerifier, MathVerify

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
