"""Token factors of other methods than DynaMO's inside TRL's loss: they need nothing but its own forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import torch

from neyman.errors import ArgumentError
from neyman.modulation.rivals import ForkTokens, KLCov, Shaping, WReinforce
from neyman.modulation.shaping import kl_cov_advantages, shaping_factors
from neyman.randomness import keyed_seed
from neyman.trl._host import is_rloo, step_of
from neyman.trl._token_factor import TokenFactor, check_loss_is_open, loss_change, multiplied, token_mask_of

_RATIO_LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo")

Tensor = torch.Tensor
Inputs = dict[str, Any]


@final
class TokenShaping:
    """Multiplies each token's part of the update, for one trainer.

    Random draws are keyed by the trainer's seed, its step and the process.

    Raises:
        ArgumentError: a trainer setting under which no token's advantage can be reached.
    """

    def __init__(self, trainer: Any, settings: Shaping) -> None:
        self._trainer, self._settings = trainer, settings
        check_loss_is_open(trainer)
        if isinstance(settings, KLCov):
            _check_ratio(trainer)
        if isinstance(settings, ForkTokens) and hasattr(trainer, "top_entropy_quantile"):
            raise ArgumentError(
                f"ForkTokens is for losses without it, and TRL's GRPO has top_entropy_quantile={settings.share:g}: set "
                "that in the trainer's configuration, where the threshold is of all processes"
            )
        self._inputs: Inputs | None = None

    @contextmanager
    def applied(self, model: Any, inputs: Inputs) -> Iterator[Inputs]:
        """Yield a copy of the micro-batch for the loss."""
        del model
        self._inputs = dict(inputs)
        try:
            yield self._inputs
        finally:
            self._inputs = None

    def apply(self, logps: Tensor, entropies: Tensor | None) -> Tensor:
        """Apply the factor in the loss's forward pass; return the log-probabilities to go on with."""
        if self._inputs is None or entropies is None:
            return logps
        trainer, inputs = self._trainer, self._inputs
        mask = token_mask_of(inputs)
        ratio, passes = loss_change(trainer, inputs, logps.detach(), mask)
        if isinstance(self._settings, KLCov):
            inputs["advantages"] = kl_cov_advantages(
                inputs["advantages"], logps.detach(), ratio, mask, self._settings
            )
            return logps
        rank, step = int(trainer.accelerator.process_index), step_of(trainer)
        generator = torch.Generator().manual_seed(keyed_seed("shaping", int(trainer.args.seed), rank, step))
        factor = shaping_factors(
            self._settings,
            logp=logps.detach(),
            entropy=entropies.detach(),
            advantages=inputs["advantages"],
            mask=mask,
            generator=generator,
            passes=passes,
        )
        return multiplied(trainer, inputs, logps, factor)

    def state_dict(self) -> dict[str, list[float] | None]:
        """Return nothing: nothing outlives a micro-batch."""
        return {}

    def load_state_dict(self, state: dict[str, list[float] | None]) -> None:
        """Restore nothing."""
        del state


Factor = TokenFactor | TokenShaping


def token_factor(trainer: Any, modulation: Any) -> Factor | None:
    """Return the factor of these settings on each token's update; None where there is none."""
    if modulation is None or isinstance(modulation, WReinforce):  # W-REINFORCE is of rows
        return None
    if isinstance(modulation, Shaping):
        return TokenShaping(trainer, modulation)
    return TokenFactor(trainer, modulation)


def _check_ratio(trainer: Any) -> None:
    """Refuse losses in which a token's gradient is not its own ratio times its advantage."""
    if is_rloo(trainer):
        found = "RLOO's, with one ratio per sequence"
    elif trainer.importance_sampling_level != "token":
        found = f"importance_sampling_level={trainer.importance_sampling_level!r}"
    elif trainer.loss_type not in _RATIO_LOSSES:
        found = f"loss_type={trainer.loss_type!r}"
    else:
        return
    raise ArgumentError(
        f"KLCov needs a loss with one importance ratio per token, got {found}; use GRPOTrainer with "
        f"importance_sampling_level='token' and loss_type one of {', '.join(_RATIO_LOSSES)}, or take ClipCov"
    )
