"""Tasks: prompts with verified answers, as datasets for trainers, and verdicts as rewards.

A verifier returns True, False or None. None means "could not be judged" (the checker timed out or died); it reaches the
trainer as a missing reward and never becomes reward 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from neyman import _checks
from neyman.errors import ArgumentError, missing_extra
from neyman.step.missing import MissingReward
from neyman.tasks import _judge

Message: TypeAlias = Mapping[str, Any]
Prompt: TypeAlias = str | list[dict[str, Any]]
RewardFunction: TypeAlias = Callable[..., list[float | None]]
Duplicates: TypeAlias = Literal["refuse", "number", "drop"]

# Columns of the dataset that neyman writes itself; metadata may not shadow them or a trainer's own.
ID_COLUMN = "neyman_id"
METADATA_COLUMN = "neyman_metadata"
_RESERVED = {
    "prompt", "answer", ID_COLUMN, METADATA_COLUMN, "prompts", "completion", "completions", "completion_ids",
    "environment", "environments", "image", "images", "tools", "trainer_state", "log_extra", "log_metric",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One prompt with its verified answer.

    Attributes:
        id: stable name of the problem; beliefs and the ledger are keyed by it.
        prompt: text, or a list of chat messages ``{"role": ..., "content": ...}``.
        answer: the reference that a verifier compares with.
        metadata: JSON-safe facts about the problem (family, level, ...), for features and reports.
    """

    id: str
    prompt: Prompt
    answer: str
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A named set of problems to train on, and another, disjoint one to measure on."""

    name: str
    train: list[Problem]
    test: list[Problem]

    def __post_init__(self) -> None:
        if not self.train:
            raise ArgumentError(f"task {self.name!r} has no training problems; give at least one")
        shared = {problem.id for problem in self.train} & {problem.id for problem in self.test}
        if shared:
            raise ArgumentError(
                f"task {self.name!r} has {len(shared)} problem(s) both in train and test, e.g. id "
                f"{min(shared)}; accuracy on them would not be held out: remove them from one side"
            )


@runtime_checkable
class Verifier(Protocol):
    """A judge of whether completions answer their problems."""

    def verify(
        self, completions: Sequence[str], answers: Sequence[str], problems: Sequence[Problem]
    ) -> list[bool | None]:
        """Judge each completion: True, False, or None where no verdict could be reached."""
        ...


def content_id(prompt: Prompt, answer: str) -> str:
    """Name a problem by its content, so that the name survives shuffling, splitting and a change of file.

    The id is the first 16 hexadecimal digits of SHA-256 over the canonical JSON of [prompt, answer].

    >>> content_id("1 + 1 =", "2") == content_id("1 + 1 =", "2") != content_id("1 + 1 =", "3")
    True
    """
    text = json.dumps([prompt, answer], ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def problem(prompt: Prompt, answer: str, metadata: Mapping[str, Any] | None = None) -> Problem:
    """Build a problem whose id is the hash of its content.

    >>> problem("1 + 1 =", "2").answer
    '2'
    """
    return Problem(id=content_id(prompt, answer), prompt=prompt, answer=answer, metadata=dict(metadata or {}))


def resolve_duplicates(problems: Iterable[Problem], duplicates: Duplicates = "refuse") -> list[Problem]:
    """Make ids unique, since two problems under one id would share one belief and one place in the ledger.

    Args:
        problems: in the order in which they are returned.
        duplicates: "refuse" raises; "drop" keeps the first of each id; "number" names the second copy
            ``<id>-2``, the third ``<id>-3`` and so on, in order of appearance.

    Raises:
        ArgumentError: an id appears twice and ``duplicates`` is "refuse", or a numbered name is taken.

    >>> [p.id[16:] for p in resolve_duplicates([problem("a", "b")] * 3, "number")]
    ['', '-2', '-3']
    """
    _checks.choice("duplicates", duplicates, ("refuse", "number", "drop"))
    copies: dict[str, int] = {}
    taken: set[str] = set()
    kept: list[Problem] = []
    for index, item in enumerate(problems):
        copies[item.id] = copy = copies.get(item.id, 0) + 1
        if copy > 1 and duplicates == "drop":
            continue
        name = item.id if copy == 1 else f"{item.id}-{copy}"
        if name in taken or (copy > 1 and duplicates == "refuse"):
            raise ArgumentError(
                f"problems[{index}] repeats id {item.id} (prompt {str(item.prompt)!r:.80}); ids must be unique: "
                'remove it, or pass duplicates="drop" (keep the first) or "number" (name copies -2, -3, ...)'
            )
        taken.add(name)
        kept.append(item if copy == 1 else replace(item, id=name))
    return kept


def _scalar_columns(problems: Sequence[Problem]) -> dict[str, list[Any]]:
    """Return the metadata keys that every problem has with one and the same scalar type, as columns."""
    columns: dict[str, list[Any]] = {}
    for key in problems[0].metadata if problems else ():
        kinds = {type(item.metadata.get(key)) for item in problems}
        if key not in _RESERVED and len(kinds) == 1 and kinds <= {str, int, float, bool}:
            columns[key] = [item.metadata[key] for item in problems]
    return columns


def to_dataset(problems: Iterable[Problem], duplicates: Duplicates = "refuse") -> Any:
    """Turn problems into the ``datasets.Dataset`` that TRL's trainers read, with a row for each problem, in order.

    Columns: ``prompt``, ``answer``, ``neyman_id``, ``neyman_metadata`` (the whole metadata as JSON text,
    because Arrow would fill gaps in nested or uneven metadata), and one plain column for each metadata key
    which every problem has with one scalar type and whose name no trainer claims. For duplicates see
    `resolve_duplicates`.

    Raises:
        MissingExtraError: ``datasets`` is not installed.
        ArgumentError: there are no problems, text and chat prompts are mixed, or an id repeats.
    """
    try:
        from datasets import Dataset  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise missing_extra("datasets", "train", "to_dataset") from error
    rows = resolve_duplicates(problems, duplicates)
    if not rows:
        raise ArgumentError("problems must hold at least one problem, got none")
    if len({isinstance(item.prompt, str) for item in rows}) > 1:
        raise ArgumentError(
            "problems mix text prompts and chat prompts; a dataset column has one type: "
            'turn text into [{"role": "user", "content": text}]'
        )
    return Dataset.from_dict(
        {
            "prompt": [item.prompt for item in rows],
            "answer": [item.answer for item in rows],
            ID_COLUMN: [item.id for item in rows],
            METADATA_COLUMN: [json.dumps(item.metadata, ensure_ascii=False) for item in rows],
            **_scalar_columns(rows),
        }
    )


def completion_text(completion: str | Sequence[Message]) -> str:
    """Return a completion's text: the text itself, or the content of its last assistant message.

    >>> completion_text([{"role": "assistant", "content": "42"}])
    '42'
    """
    if isinstance(completion, str):
        return completion
    replies = [message for message in completion if message.get("role", "assistant") == "assistant"]
    if not replies:
        return ""
    content = replies[-1].get("content")
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(part.get("text") or "" for part in content if isinstance(part, Mapping))


def reward_function(verifier: Verifier, *, name: str | None = None) -> RewardFunction:
    """Make a TRL reward function of a verifier: 1.0 for right, 0.0 for wrong, None for "could not be judged".

    Args:
        verifier: judges completions.
        name: of the reward in TRL's logs; the verifier's class name in lower case by default.

    Returns:
        A function ``(prompts, completions, answer, **columns) -> list[float | None]`` for plain and
        conversational completions. Where a verifier explains missing verdicts (``explained``, as
        `KillableVerifier` has it) they come with the reason, as a `neyman.MissingReward`; so do values that are no
        verdict (0.3, NaN, "True"; 1 and 0 are verdicts).

    Raises:
        ArgumentError: when called, if the verifier returns another number of verdicts than it got completions.

    >>> from neyman.tasks import ExactMatch
    >>> reward = reward_function(ExactMatch())
    >>> reward(["1 + 1 =", "1 + 1 ="], [" 2", "3"], answer=["2", "2"])
    [1.0, 0.0]
    """

    def reward(
        prompts: Sequence[Prompt], completions: Sequence[Any], answer: Sequence[str], **columns: Any
    ) -> list[float | None]:
        """Score one batch of completions."""
        ids = columns.get(ID_COLUMN) or [content_id(p, a) for p, a in zip(prompts, answer, strict=True)]
        metadata = columns.get(METADATA_COLUMN) or ["{}"] * len(ids)
        problems = [
            Problem(id=i, prompt=p, answer=a, metadata=json.loads(m))
            for i, p, a, m in zip(ids, prompts, answer, metadata, strict=True)
        ]
        texts = [completion_text(completion) for completion in completions]
        judge = getattr(verifier, "explained", verifier.verify)
        verdicts = judge(texts, list(answer), problems)
        if len(verdicts) != len(texts):
            raise ArgumentError(
                f"{type(verifier).__name__}.verify returned {len(verdicts)} verdicts for {len(texts)} completions; "
                "it must return one for each, None where it could not judge"
            )
        return [_as_reward(verdict) for verdict in verdicts]

    reward.__name__ = reward.__qualname__ = name or type(verifier).__name__.lower()
    return reward


def _as_reward(verdict: Any) -> float | None:
    if verdict is None or isinstance(verdict, MissingReward):
        return verdict
    try:
        return float(bool(_judge.decided(verdict)))
    except TypeError as error:
        return MissingReward(f"the verifier failed: {error}")
