"""DynaMO's token factor inside TRL's loss: which tokens of an optimisation batch count more, which less.

The extremes that normalise entropies and entropy changes belong to the whole optimisation batch, so the exact
form makes one pass without gradients over all its micro-batches before the first of them trains. The published
approximation takes all its inputs from TRL's own forward pass of the loss, so it costs none.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from typing import Any, final

import torch

from neyman.errors import ArgumentError
from neyman.modulation import (
    Extremes,
    Modulation,
    batch_extremes,
    token_change,
    token_factors,
    token_moments,
    unclipped,
)
from neyman.trl._host import buffer_of, is_rloo, step_of

Tensor = torch.Tensor
Inputs = dict[str, Any]
_TEXT_KEYS = {"prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages", "num_items_in_batch",
              "old_per_token_logps", "old_logps", "ref_per_token_logps", "importance_sampling_ratio",
              "sampling_per_token_logps", "tool_mask", "num_images", "num_tiles"}  # fmt: skip


@final
class TokenFactor:
    """Multiplies each token's part of the update, for one trainer.

    GRPO's per-token losses get advantages of shape (rows, tokens). Losses with one ratio per sequence (RLOO,
    ``importance_sampling_level="sequence"``) have no place for them: there the gradient of each token's
    log-probability is scaled and its value left alone, which is the same update, except that a KL term in the
    loss (GRPO, ``beta > 0``) is scaled with it.

    Raises:
        ArgumentError: no settings, or a trainer setting under which the factor cannot be applied.
    """

    def __init__(self, trainer: Any, modulation: Modulation) -> None:
        self._trainer, self._modulation = trainer, modulation
        if not isinstance(modulation, Modulation):
            raise ArgumentError(
                f"modulation must be settings of neyman.modulation or None, got {modulation!r}; for example "
                "modulation=Modulation() or Modulation.published()"
            )
        check_loss_is_open(trainer)
        self._lagged = Extremes()
        self._window = Extremes()  # of the optimisation batch being accumulated
        self._known: Extremes | None = None
        self._starting = True
        self._inputs: Inputs | None = None
        self._factor: Tensor | None = None

    @contextmanager
    def applied(self, model: Any, inputs: Inputs) -> Iterator[Inputs]:
        """Yield a copy of the micro-batch for the loss, to be computed with the wrapped model."""
        self._open_window(model)
        self._inputs = dict(inputs)
        # Both need more than the loss's own forward pass gives.
        if self._modulation.variant == "exact" or self._modulation.extremes == "batch":
            self._factor = self._factors(*self._exact(model, inputs), inputs["advantages"])
        try:
            yield self._inputs
        finally:
            self._inputs = self._factor = None
            self._starting = bool(self._trainer.accelerator.sync_gradients)
            if self._starting and self._modulation.extremes == "lagged":
                self._lagged, self._window = self._merged(self._window), Extremes()

    def apply(self, logps: Tensor, entropies: Tensor | None) -> Tensor:
        """Apply the factor in the loss's forward pass; return the log-probabilities to go on with."""
        if self._inputs is None or entropies is None:
            return logps
        factor = self._factor
        if factor is None:
            factor = self._from_loss(logps.detach(), entropies.detach())
        return multiplied(self._trainer, self._inputs, logps, factor)

    def _open_window(self, model: Any) -> None:
        """At the start of an optimisation batch, find the extremes of all its micro-batches."""
        trainer = self._trainer
        every = trainer.args.steps_per_generation * trainer.num_iterations
        renewed = step_of(trainer) % every == 0  # a generation that arrives within the window
        if self._modulation.extremes != "batch" or not (self._starting or renewed):
            return
        pieces = []
        for batch in self._ahead(every):
            entropy, change, mask = self._exact(model, batch)
            pieces.append((entropy, change, mask * (_column(batch["advantages"]) != 0)))
        found = self._merged(batch_extremes(pieces))
        self._known = found if self._starting or self._known is None else self._known.merge(found)

    def _ahead(self, every: int) -> list[Inputs]:
        """Return the micro-batches of this optimisation batch that are generated already."""
        trainer = self._trainer
        first, spg, buffered = step_of(trainer), trainer.args.steps_per_generation, buffer_of(trainer)
        steps = range(first, first + int(trainer.current_gradient_accumulation_steps))
        same = [step for step in steps if step // every == first // every]
        return [buffered[step % spg] for step in same]

    def _merged(self, extremes: Extremes) -> Extremes:
        accelerator = self._trainer.accelerator
        local = extremes.as_tensor(device=accelerator.device, dtype=torch.float32)
        return Extremes.from_tensor(accelerator.gather(local.unsqueeze(0)))

    def _factors(self, entropy: Tensor, change: Tensor, mask: Tensor, advantages: Tensor) -> Tensor:
        extremes: Extremes | None = None
        if self._modulation.extremes == "batch":
            extremes = self._known
        elif self._modulation.extremes == "lagged":
            live = mask * (_column(advantages) != 0)
            self._window = self._window.merge(batch_extremes([(entropy, change, live)]))
            if self._lagged == Extremes():  # the first batch has none before it
                return torch.ones_like(entropy)
            extremes = self._lagged
        return token_factors(
            self._modulation,
            entropy=entropy,
            change=change,
            advantages=advantages,
            mask=mask,
            extremes=extremes,
        )

    def _from_loss(self, logps: Tensor, entropies: Tensor) -> Tensor:
        """Return the factor of the published form, from the loss's own forward pass."""
        assert self._inputs is not None
        mask = token_mask_of(self._inputs)
        change = self._change(self._inputs, logps, entropies, None, mask)
        return self._factors(entropies, change, mask, self._inputs["advantages"])

    def _exact(self, model: Any, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
        """Return (entropy, entropy change, mask) of a micro-batch by one pass without gradients."""
        completion, mask = inputs["completion_ids"], token_mask_of(inputs)
        logits = self._logits(model, inputs, completion.size(1))
        moments = token_moments(logits, completion, temperature=float(self._trainer.temperature))
        change = self._change(inputs, moments.logp, moments.entropy, moments.s2, mask)
        return moments.entropy, change, mask

    def _logits(self, model: Any, inputs: Inputs, keep: int) -> Tensor:
        """Return the completion's logits, without dropout; the plain forward pass, not TRL's fused head."""
        trainer = self._trainer
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        extra = {k: v for k, v in inputs.items() if k not in _TEXT_KEYS and v is not None}
        if "logits_to_keep" in inspect.signature(trainer.accelerator.unwrap_model(model).forward).parameters:
            extra["logits_to_keep"] = keep + 1
        training = model.training
        model.eval()
        try:
            with torch.no_grad(), trainer.accelerator.autocast():
                output = model(input_ids=ids, attention_mask=attention, use_cache=False, **extra)
        finally:
            model.train(training)
        logits: Tensor = output.logits[:, :-1][:, -keep:]
        return logits

    def _change(
        self, inputs: Inputs, logp: Tensor, entropy: Tensor, s2: Tensor | None, mask: Tensor
    ) -> Tensor:
        ratio, passes = loss_change(self._trainer, inputs, logp, mask)
        return token_change(
            self._modulation, logp=logp, entropy=entropy, advantages=inputs["advantages"], mask=mask, s2=s2,
            ratio=ratio, passes=passes,
        )  # fmt: skip

    def state_dict(self) -> dict[str, list[float] | None]:
        """Return the extremes that outlive an optimisation batch, JSON-safe."""
        return {"lagged": None if self._lagged == Extremes() else list(astuple(self._lagged))}

    def load_state_dict(self, state: dict[str, list[float] | None]) -> None:
        """Restore them."""
        saved = state.get("lagged")
        self._lagged = Extremes() if saved is None else Extremes(
            entropy_min=saved[0], entropy_max=saved[1], change_max=saved[2]
        )  # fmt: skip


def check_loss_is_open(trainer: Any) -> None:
    """Refuse a fused loss.

    Raises:
        ArgumentError: Liger's, which takes one advantage per row.
    """
    if getattr(trainer, "use_liger_loss", False):
        raise ArgumentError(
            "use_liger_kernel=True fuses the loss, so that no token's advantage can be reached; switch it off, or "
            "pass modulation=None"
        )


def multiplied(trainer: Any, inputs: Inputs, logps: Tensor, factor: Tensor) -> Tensor:
    """Multiply each token's part of the update; return the log-probabilities for the loss to go on with.

    Losses with one ratio per sequence have no place for token advantages: there the gradient of each token's
    log-probability is scaled and its value left alone.
    """
    level = getattr(trainer, "importance_sampling_level", "token")
    if is_rloo(trainer) or level == "sequence":
        return logps.detach() + factor * (logps - logps.detach())
    inputs["advantages"] = inputs["advantages"].unsqueeze(1) * factor
    return logps


def loss_change(trainer: Any, inputs: Inputs, logp: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return each token's importance ratio in the loss, and where its clipping passes the gradient."""
    old = inputs.get("old_per_token_logps")
    ratio = torch.ones_like(logp) if old is None else torch.exp(logp - old)
    if is_rloo(trainer):
        drift = (logp * mask).sum(1) - inputs["old_logps"]
        ratio = torch.exp(drift).unsqueeze(1).expand_as(logp)
    low, high = float(trainer.epsilon_low), float(trainer.epsilon_high)
    return ratio, unclipped(_column(inputs["advantages"]), ratio, low=low, high=high)


def token_mask_of(inputs: Inputs) -> Tensor:
    """Return which tokens of a micro-batch the loss counts."""
    mask: Tensor = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if "tool_mask" in inputs else mask


def _column(advantages: Tensor) -> Tensor:
    return advantages.unsqueeze(1) if advantages.dim() == 1 else advantages
