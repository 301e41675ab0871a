"""Token factors of other methods than DynaMO's inside TRL's loss: they need nothing but its own forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import torch

from neyman.errors import ArgumentError
from neyman.modulation.rivals import ForkTokens, KLCov, Shaping, WReinforce
from neyman.modulation.shaping import kl_cov_advantages, shaping_factors
from neyman.randomness import keyed_seed
from neyman.trl._token_factor import TokenFactor, loss_change, multiplied, token_mask_of

if TYPE_CHECKING:
    from neyman.trl._session import Session

_RATIO_LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo")

Tensor = torch.Tensor
Inputs = dict[str, Any]


@final
class TokenShaping:
    """Multiplies each token's part of the update, for one trainer.

    What is drawn at random is keyed by the trainer's seed, its step and the process.

    Args:
        session: the trainer's session.
        settings: the method.

    Raises:
        ArgumentError: a trainer setting under which no token's advantage can be reached.
    """

    def __init__(self, session: Session, settings: Shaping) -> None:
        self._session, self._settings = session, settings
        if getattr(session.trainer, "use_liger_loss", False):
            raise ArgumentError(
                "use_liger_kernel=True fuses the loss, so that no token's advantage can be reached; switch it off, or "
                "pass modulation=None"
            )
        if isinstance(settings, KLCov):
            _check_ratio(session)
        if isinstance(settings, ForkTokens) and hasattr(session.trainer, "top_entropy_quantile"):
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
        """Apply the factor to what the loss's forward pass gave; return the log-probabilities to go on with."""
        if self._inputs is None or entropies is None:
            return logps
        trainer, inputs = self._session.trainer, self._inputs
        mask = token_mask_of(inputs)
        ratio, passes = loss_change(self._session, inputs, logps.detach(), mask)
        if isinstance(self._settings, KLCov):
            inputs["advantages"] = kl_cov_advantages(
                inputs["advantages"], logps.detach(), ratio, mask, self._settings
            )
            return logps
        rank, step = int(trainer.accelerator.process_index), int(trainer._step)  # noqa: SLF001
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
        return multiplied(self._session, inputs, logps, factor)

    def state_dict(self) -> dict[str, list[float] | None]:
        """Return nothing: nothing outlives a micro-batch."""
        return {}

    def load_state_dict(self, state: dict[str, list[float] | None]) -> None:
        """Restore nothing."""
        del state


def token_factor(session: Session, modulation: Any) -> TokenFactor | TokenShaping | None:
    """Return what multiplies tokens under these settings; None where nothing does."""
    if modulation is None or isinstance(modulation, WReinforce):  # W-REINFORCE is of rows
        return None
    if isinstance(modulation, Shaping):
        return TokenShaping(session, modulation)
    return TokenFactor(session, modulation)


def _check_ratio(session: Session) -> None:
    """Refuse losses in which a token's gradient is not its own ratio times its advantage."""
    trainer = session.trainer
    if session.is_rloo:
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
