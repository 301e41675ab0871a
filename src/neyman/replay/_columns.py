"""The roles of a log's columns, their usual names, and how a user names others."""

from __future__ import annotations

from collections.abc import Sequence

from neyman.errors import ArgumentError

# Names in the order of preference; compared without case.
KNOWN: dict[str, tuple[str, ...]] = {
    "id": ("prompt_id", "problem_id", "question_id", "task_id", "example_id", "id"),
    "prompt": ("prompt", "question", "problem", "query", "input", "instruction"),
    "reward": ("reward", "score", "rewards"),
    "success": ("success", "is_correct", "correct", "acc", "passed"),
    "step": ("step", "global_step", "training_step", "train_step", "iteration"),
    "visit": ("visit", "epoch", "pass"),
    "tokens": (
        "n_tokens",
        "tokens",
        "num_tokens",
        "completion_tokens",
        "response_tokens",
        "completion_length",
        "response_length",
    ),
    "successes": ("successes", "num_correct", "n_correct", "correct_count", "num_successes", "passes"),
    "trials": ("trials", "attempts", "num_trials", "num_samples", "n_samples", "total"),
    "success_tokens": ("success_tokens",),
    "failure_tokens": ("failure_tokens",),
}
ROLES = tuple(KNOWN)


def known_roles(columns: Sequence[str]) -> dict[str, str]:
    """Return the roles whose usual names are among the columns."""
    by_name = {name.lower(): name for name in reversed(columns)}
    found = {}
    for role, names in KNOWN.items():
        column = next((by_name[name] for name in names if name in by_name), None)
        if column is not None:
            found[role] = column
    return found


def parse_columns(words: Sequence[str]) -> dict[str, str]:
    """Read ``role=column`` pairs.

    Raises:
        ArgumentError: a word without "=", an unknown role, or a role given twice.

    >>> parse_columns(["reward=accuracy_reward"])
    {'reward': 'accuracy_reward'}
    """
    named: dict[str, str] = {}
    for word in words:
        role, equals, column = word.partition("=")
        if not equals or not column or role not in ROLES:
            raise ArgumentError(
                f"--columns takes ROLE=COLUMN with a role of {', '.join(ROLES)}; got {word!r}"
            )
        if role in named:
            raise ArgumentError(f"--columns names the role {role!r} twice: {named[role]!r} and {column!r}")
        named[role] = column
    return named
