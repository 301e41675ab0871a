"""Settings of the policy that is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from neyman.config._settings import Section


class ModelConfig(Section):
    """The policy."""

    path: str = Field(
        default="tiny",
        description="'tiny' (0.1M parameters, built and warm-started here), or any causal LM's folder or name",
    )
    gguf_file: str | None = Field(
        default=None, description="name of a GGUF file inside path to load the weights from"
    )
    dtype: Literal["float32", "bfloat16"] = Field(default="float32", description="type of the weights")
    warm_start_steps: int = Field(default=600, ge=0, description="'tiny' only: supervised optimiser steps")
    cache: Path | None = Field(
        default=None, description="'tiny' only: folder of built policies [~/.cache/neyman]"
    )

    @property
    def is_tiny(self) -> bool:
        """Whether the policy is the embedded one."""
        return self.path == "tiny"
