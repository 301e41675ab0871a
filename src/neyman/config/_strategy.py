"""Settings of the strategy and its belief, by name."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from neyman import beliefs
from neyman.config._settings import Options, Section
from neyman.errors import ArgumentError
from neyman.presets import PRESETS, imported, known_strategy

BELIEFS: dict[str, Any] = {
    "default": beliefs.default,
    "counts": beliefs.Counts,
    "binomial-residual": beliefs.BinomialResidual,
}


class StrategyConfig(Section):
    """How rollouts are allocated."""

    name: str = Field(default="neyman", description=f"{', '.join(PRESETS)}, or package.module:function")
    options: Options = Field(default_factory=dict, description="options of the preset, e.g. lower=4 upper=32")
    belief: str = Field(
        default="preset", description=f"'preset' (its own), {', '.join(BELIEFS)}, or package.module:Class"
    )
    belief_options: Options = Field(default_factory=dict, description="options of the belief")
    features: str = Field(
        default="auto",
        description="'auto' (the task's own, if any), 'none', or an embedding model's name or folder",
    )

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str) -> str:
        return checked_name(name)

    def build_belief(self) -> Any:
        """Make the belief that is set in place of the preset's own; None where the preset's own is meant.

        Raises:
            ArgumentError: an unknown name, or options that the belief does not take or that no belief is named for.
        """
        if self.belief == "preset":
            if self.belief_options:
                raise ArgumentError("strategy.belief_options need a strategy.belief by name, got 'preset'")
            return None
        kind = BELIEFS.get(self.belief)
        if kind is None and ":" not in self.belief:
            raise ArgumentError(
                f"strategy.belief must be one of {', '.join(BELIEFS)} or package.module:Class, got {self.belief!r}"
            )
        kind = kind or imported("strategy.belief", self.belief)
        try:
            return kind(**self.belief_options)
        except TypeError as error:
            raise ArgumentError(f"strategy.belief_options: {error}") from error


def checked_name(name: str) -> str:
    """Return the name of a strategy.

    Raises:
        ValueError: an unknown one; without the setting's own name, which the section puts in front.
    """
    try:
        return known_strategy(name)
    except ArgumentError as error:
        raise ValueError(str(error).removeprefix("strategy ")) from None
