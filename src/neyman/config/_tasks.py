"""Settings of the task: digit rules, a generator of reasoning-gym, or the user's own data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from neyman.config._settings import Options, Section
from neyman.errors import ArgumentError

if TYPE_CHECKING:
    from neyman.tasks import Task, Verifier


class RulesTask(Section):
    """Digit rules of graded difficulty: the embedded task."""

    type: Literal["rules"] = Field(default="rules", description="kind of task: rules, reasoning_gym or data")
    regime: Literal["hard", "ushape", "easy"] = Field(
        default="ushape", description="spread of starting success rates"
    )
    train_size: int = Field(default=1024, ge=1, description="training problems")
    test_size: int = Field(default=1000, ge=1, description="held-out problems")
    seed: int = Field(default=0, ge=0, description="of difficulties, problems, and the tiny policy")

    def build(self) -> Task:
        """Make the problems."""
        from neyman.tasks import rules_task  # noqa: PLC0415 - loads SciPy's statistics

        return rules_task(self.regime, train_size=self.train_size, test_size=self.test_size, seed=self.seed)

    def build_verifier(self) -> Verifier:
        """Make the verifier."""
        from neyman.tasks import ExactMatch  # noqa: PLC0415 - as above

        return ExactMatch()


class ReasoningGymTask(Section):
    """A generator of reasoning-gym, with graded difficulty."""

    type: Literal["reasoning_gym"] = Field(
        default="reasoning_gym", description="kind of task: rules, reasoning_gym or data"
    )
    name: str = Field(description="generator, e.g. countdown, chain_sum, basic_arithmetic")
    config: Options = Field(
        default_factory=dict, description="its options, one level [graded levels where neyman has them]"
    )
    train_size: int = Field(default=1024, ge=1, description="training problems")
    test_size: int = Field(default=128, ge=1, description="held-out problems")
    seed: int = Field(default=0, ge=0, description="of the problems")
    instruction: str = Field(
        default="", description="line added to each question, e.g. how to mark the answer"
    )
    chat: bool = Field(default=False, description="prompts as chat messages, for models with a chat template")

    def build(self) -> Task:
        """Make the problems."""
        from neyman.tasks import reasoning_gym_task  # noqa: PLC0415 - slow to import

        return reasoning_gym_task(
            self.name,
            train_size=self.train_size,
            test_size=self.test_size,
            seed=self.seed,
            configs=[self.config] if self.config else None,
            instruction=self.instruction,
            chat=self.chat,
        )

    def build_verifier(self) -> Verifier:
        """Make the verifier."""
        from neyman.tasks import ReasoningGymVerifier  # noqa: PLC0415 - slow to import

        return ReasoningGymVerifier()


class DataTask(Section):
    """The user's own prompts and answers."""

    type: Literal["data"] = Field(default="data", description="kind of task: rules, reasoning_gym or data")
    path: Path = Field(description="JSONL, CSV, TSV or parquet file, or a folder saved by datasets")
    test_path: Path | None = Field(default=None, description="file of held-out problems [a share of path]")
    test_share: float = Field(
        default=0.1, gt=0, lt=1, description="share of path that is held out, in (0, 1)"
    )
    prompt: str = Field(default="prompt", description="field with the prompt: text or chat messages")
    answer: str = Field(default="answer", description="field with the answer: text or a number")
    verifier: Literal["exact", "math"] = Field(
        default="exact", description="same text, or equal as mathematics"
    )
    duplicates: Literal["refuse", "drop", "number"] = Field(
        default="refuse", description="rows that repeat another"
    )
    seed: int = Field(default=0, ge=0, description="of the split")

    @field_validator("path", "test_path")
    @classmethod
    def _is_there(cls, path: Path | None) -> Path | None:
        if path is not None and not path.exists():
            raise ValueError(
                f"{path} does not exist; paths are relative to the working directory {Path.cwd()}"
            )
        return None if path is None else path.absolute()

    def build(self) -> Task:
        """Read the problems.

        Raises:
            ArgumentError: a file that cannot be read, or no problem held out.
        """
        from neyman.tasks import file_task  # noqa: PLC0415 - slow to import

        task = file_task(
            self.path,
            self.test_path,
            test_share=self.test_share,
            seed=self.seed,
            prompt=self.prompt,
            answer=self.answer,
            duplicates=self.duplicates,
        )
        if not task.test:
            raise ArgumentError(
                f"--task.test-share {self.test_share} holds none of the {len(task.train)} problems of {self.path} out, "
                "so that no accuracy could be measured: raise it, try another --task.seed, or give --task.test-path"
            )
        return task

    def build_verifier(self) -> Verifier:
        """Make the verifier."""
        from neyman.tasks import ExactMatch, MathVerify  # noqa: PLC0415 - slow to import

        return MathVerify() if self.verifier == "math" else ExactMatch()


TASKS: dict[str, type[Section]] = {"rules": RulesTask, "reasoning_gym": ReasoningGymTask, "data": DataTask}
