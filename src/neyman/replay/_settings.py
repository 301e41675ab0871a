"""The settings of a replay: sizes, spans and options, checked once."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from neyman._checks import choice, integer, real
from neyman.errors import ArgumentError
from neyman.replay._draws import BEYOND
from neyman.replay._trace import Trace

PROMPTS_PER_STEP = 128
# Rollouts that a fixed-train strategy may generate, as a multiple of the rows to train on, as in the TRL adapter.
BUDGET_FACTOR = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How strategies are replayed.

    Args:
        group_size: k, rollouts of a full group; at least 2.
        prompts_per_step: B, prompts that the host brings to a step.
        passes: where the replay ends, in passes over the prompts.
        width: rollouts that the engine runs at once; None runs all requested ones.
        beyond: the source of rollouts beyond the recorded trials of a visit: "neighbours" or "refuse".

    Raises:
        ArgumentError: a number outside its range.
    """

    group_size: int
    prompts_per_step: int
    passes: float
    width: int | None = None
    beyond: str = "neighbours"

    def __post_init__(self) -> None:
        integer("group_size", self.group_size, low=2)
        integer("prompts_per_step", self.prompts_per_step, low=1)
        real("passes", self.passes, low=0.0, open_low=True)
        choice("beyond", self.beyond, BEYOND)
        if self.width is not None:
            integer("width", self.width, low=1)

    @property
    def rows(self) -> int:
        """Rows to train on in a step."""
        return self.group_size * self.prompts_per_step

    def as_dict(self) -> dict[str, Any]:
        """Return the settings, JSON-safe."""
        return asdict(self)


def settings_for(
    trace: Trace,
    *,
    group_size: int,
    prompts_per_step: int | None = None,
    passes: float | None = None,
    width: int | None = None,
    beyond: str = "neighbours",
) -> Settings:
    """Return the settings of a trace's replay: by default the record's own span and 128 prompts a step.

    Raises:
        ArgumentError: a number outside its range, or more prompts a step than the record has.
    """
    if prompts_per_step is None:
        prompts_per_step = min(PROMPTS_PER_STEP, trace.prompts)
    elif integer("prompts_per_step", prompts_per_step, low=1) > trace.prompts:
        raise ArgumentError(
            f"prompts_per_step must be <= the record's {trace.prompts} prompts, got {prompts_per_step}"
        )
    span = trace.passes if passes is None else passes
    return Settings(
        group_size=group_size, prompts_per_step=prompts_per_step, passes=span, width=width, beyond=beyond
    )
