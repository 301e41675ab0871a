"""Tasks of reasoning-gym: any generator by name, with graded difficulty, scored by its own ``score_answer``.

The scorer needs the whole entry. A problem carries it where JSON keeps it unchanged; elsewhere the judge makes it again
from the generator's name, configuration, seed and index. (Some generators depend on the order of sets, which differs
between processes, so that an entry is only made again where it has to be.) Scores run in killable workers, because
some scorers evaluate the model's text as code.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import json
from collections.abc import Mapping, Sequence
from typing import Any

from neyman import _checks
from neyman.errors import ArgumentError, missing_extra
from neyman.tasks._task import Problem, Task, problem
from neyman.tasks.verify import KillableVerifier

# reasoning-gym scores run from 0 to 1, with partial credit for form; only a full score is a success.
SUCCESS_SCORE = 0.99
# A level whose space is small repeats itself; give up when this many draws per problem found nothing new.
_DRAWS_PER_PROBLEM = 50


def _exactly(**settings: int) -> dict[str, Any]:
    """Return options under which each setting has this value as its least and its largest."""
    return {f"{end}_{name}": value for name, value in settings.items() for end in ("min", "max")}


# Configurations from easy to hard, for generators whose difficulty people often grade.
LEVELS: dict[str, tuple[dict[str, Any], ...]] = {
    "countdown": tuple(
        _exactly(numbers=numbers) | {"max_value": value, "min_target": 1, "max_target": target}
        for numbers, value, target in ((2, 10, 20), (2, 50, 100), (3, 20, 100), (4, 50, 300), (5, 100, 999))
    ),
    "chain_sum": tuple(
        _exactly(terms=terms, digits=digits) for terms, digits in ((2, 1), (2, 2), (3, 2), (4, 3), (6, 4))
    ),
    "basic_arithmetic": tuple(
        _exactly(terms=terms, digits=digits) for terms, digits in ((2, 1), (3, 1), (3, 2), (4, 2), (6, 3))
    ),
    "products": tuple(_exactly(terms=2, digits=digits) for digits in range(1, 6)),
}


def _require() -> None:
    if importlib.util.find_spec("reasoning_gym") is None:
        raise missing_extra("reasoning-gym", "train", "a reasoning-gym task")


@functools.lru_cache(maxsize=256)
def _generator(name: str, config: str, seed: int) -> Any:
    """Build one generator; ``config`` is canonical JSON, so that equal ones are one."""
    from reasoning_gym.factory import DATASETS, create_dataset  # noqa: PLC0415 - an extra, slow to import

    if name not in DATASETS:
        close = difflib.get_close_matches(name, DATASETS, n=5, cutoff=0.4) or sorted(DATASETS)[:5]
        raise ArgumentError(
            f"reasoning-gym has no generator {name!r}; it has e.g. {', '.join(close)} "
            "(all: reasoning_gym.factory.DATASETS)"
        )
    options = json.loads(config)
    try:
        return create_dataset(name, **(options | {"seed": seed}))
    except (TypeError, AssertionError, ValueError) as error:
        raise ArgumentError(
            f"reasoning-gym's {name!r} refuses the configuration {options}: {error}"
        ) from error


def _draw(
    name: str, config: Mapping[str, Any], size: int, seed: int, instruction: str, seen: set[str]
) -> list[tuple[str, str, dict[str, Any]]]:
    """Draw (question, answer, how to make the entry again) for ``size`` questions that are not in ``seen``."""
    # Most generators take any index; a few make all ``size`` entries at once, or have no more than that.
    text = json.dumps({"size": 2 * size + 64, **config}, sort_keys=True)
    generator = _generator(name, text, seed)
    found: list[tuple[str, str, dict[str, Any]]] = []
    for index in range(size * _DRAWS_PER_PROBLEM):
        if len(found) == size:
            break
        try:
            entry = generator[index]
        except IndexError:
            break
        question = f"{entry['question']}\n{instruction}" if instruction else str(entry["question"])
        # By question, not by answer: Countdown's reference is one of many solutions.
        if question in seen:
            continue
        seen.add(question)
        source = {"generator": name, "config": text, "seed": seed, "index": index} | _portable(entry)
        found.append((question, _reference(entry), source))
    if len(found) < size:
        raise ArgumentError(
            f"reasoning-gym's {name!r} gave only {len(found)} new questions of the {size} asked for with "
            f"{dict(config)}; ask for fewer, or widen the configuration"
        )
    return found


def _portable(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry's metadata where JSON keeps it as it is (tuples become lists, so many do not)."""
    # The ranges it was drawn from are tuples, and no scorer reads them.
    facts = {key: value for key, value in entry["metadata"].items() if key != "difficulty"}
    try:
        same = json.loads(json.dumps(facts)) == facts
    except (TypeError, ValueError):
        return {}
    return {"entry": facts, "question": entry["question"]} if same else {}


def _reference(entry: Mapping[str, Any]) -> str:
    """Return the entry's answer as text; some generators have none, and score by the entry alone."""
    return "" if entry["answer"] is None else str(entry["answer"])


def reasoning_gym_task(
    name: str,
    *,
    train_size: int = 1024,
    test_size: int = 256,
    seed: int = 0,
    configs: Sequence[Mapping[str, Any]] | None = None,
    instruction: str = "",
    chat: bool = False,
) -> Task:
    """Build a task from one of reasoning-gym's generators.

    Args:
        name: the generator, e.g. "countdown", "chain_sum", "basic_arithmetic".
        train_size: number of training problems.
        test_size: number of held-out problems, distinct from the training ones.
        seed: of the generator; level i uses seed + i.
        configs: its options, one mapping for each level of difficulty, from easy to hard; each level gives an
            equal share of both sets. By default `LEVELS`, where it has the name, else the generator's own.
        instruction: a line added to each question, e.g. how to mark the answer.
        chat: make prompts lists with one user message, for models with a chat template.

    Returns:
        The task; metadata of each problem: generator, level (0 is easiest), difficulty (level scaled to
        [0, 1]), config, seed, index, and the entry where JSON can carry it.

    Raises:
        MissingExtraError: reasoning-gym is not installed.
        ArgumentError: unknown generator or options, or too few distinct problems.
    """
    _require()
    train_size = _checks.integer("train_size", train_size, low=1)
    test_size = _checks.integer("test_size", test_size, low=0)
    seed = _checks.integer("seed", seed, low=0)
    levels = list(LEVELS.get(name, ({},)) if configs is None else configs)
    if not levels:
        raise ArgumentError("configs must hold at least one mapping of options; [{}] takes the defaults")
    train: list[Problem] = []
    test: list[Problem] = []
    seen: set[str] = set()
    for level, config in enumerate(levels):
        held, taught = (
            size * (level + 1) // len(levels) - size * level // len(levels)
            for size in (test_size, train_size)
        )
        drawn = _draw(name, config, held + taught, seed + level, instruction, seen)
        difficulty = {"level": level, "difficulty": level / max(1, len(levels) - 1)}
        problems = [
            problem(
                [{"role": "user", "content": question}] if chat else question, answer, difficulty | source
            )
            for question, answer, source in drawn
        ]
        test += problems[:held]
        train += problems[held:]
    return Task(name=f"reasoning-gym-{name}", train=train, test=test)


def judge_entry(completion: str, answer: str, metadata: dict[str, Any]) -> bool:
    """Score a completion with its generator's ``score_answer``: success from `SUCCESS_SCORE` up.

    The text between the last ``<answer>`` and ``</answer>`` is judged; without such tags, the whole completion. Answer
    and metadata are those of a problem made by `reasoning_gym_task`.

    Raises:
        ValueError: the entry was made again, and is another than the one the problem was made from.
    """
    from reasoning_gym.utils import extract_answer  # noqa: PLC0415 - an extra; runs in the worker only

    generator = _generator(metadata["generator"], metadata["config"], metadata["seed"])
    if "entry" in metadata:
        reference = answer or None
        entry = {"question": metadata["question"], "answer": reference, "metadata": metadata["entry"]}
    else:
        entry = generator[metadata["index"]]
        if answer != _reference(entry):
            raise ValueError(
                f"generator {metadata['generator']!r} gives another entry at index {metadata['index']} than when "
                "the task was made: another version of reasoning-gym, or a generator that depends on the order "
                "of sets (start Python with PYTHONHASHSEED=0)"
            )
    given = extract_answer(completion)
    try:
        score = generator.score_answer(completion.strip() if given is None else given, entry)
    except (MemoryError, RecursionError):
        raise
    except Exception:  # noqa: BLE001 - scorers raise on text of another form than they expect: that is wrong
        # A scorer that cannot score its own answer either has judged nothing, and raises here.
        generator.score_answer(answer, entry)
        return False
    return bool(score >= SUCCESS_SCORE)


class ReasoningGymVerifier(KillableVerifier):
    """reasoning-gym's own scores in workers of `KillableVerifier`; success is a score of at least `SUCCESS_SCORE`.

    Raises:
        MissingExtraError: reasoning-gym is not installed.
    """

    def __init__(
        self, *, timeout_seconds: float = 5.0, memory_bytes: int = 2 << 30, workers: int = 1
    ) -> None:
        _require()
        super().__init__(
            judge_entry,
            timeout_seconds=timeout_seconds,
            memory_bytes=memory_bytes,
            workers=workers,
            preload=["reasoning_gym"],
        )
