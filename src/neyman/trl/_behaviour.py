"""Log-probabilities of the policy that drew a rollout, for rollouts that train in a later step.

A rollout carried over was drawn by older weights. Its importance ratio must start from those, so they are
noted while they are still at hand, at the end of the step that drew it, and put into TRL's batch when it trains.
"""

from __future__ import annotations

from typing import Any

import torch
from trl.trainer.utils import pad

from neyman.errors import ArgumentError
from neyman.strategy import Strategy
from neyman.trl._host import corrects_engine, is_rloo, logps_of
from neyman.trl._store import Rollout

Tensor = torch.Tensor


def check_carry_over(trainer: Any, strategy: Strategy) -> None:
    """Refuse carry-over where the importance ratio of old rollouts cannot be formed.

    Raises:
        ArgumentError: an engine whose samples TRL corrects by a second ratio.
    """
    for name in ("max_age", "replay_age"):
        if getattr(strategy, name) and corrects_engine(trainer):
            raise ArgumentError(
                f"{name}={getattr(strategy, name)} trains rollouts of earlier steps, and TRL's vLLM correction assumes "
                f"that all were sampled by the current weights: use {name}=0, or "
                "vllm_importance_sampling_correction=False"
            )


def note_behaviour(trainer: Any, rollouts: list[Rollout]) -> None:
    """Note the current policy's log-probabilities of rollouts that later steps will train on."""
    fresh = [rollout for rollout in rollouts if rollout.behaviour is None]
    if not fresh:
        return
    prompts, prompt_mask = _padded([rollout.prompt_tokens for rollout in fresh], trainer, "left")
    completions, mask = _padded([rollout.completion_ids for rollout in fresh], trainer, "right")
    logps = logps_of(trainer, prompts, prompt_mask, completions, mask)
    for rollout, row in zip(fresh, logps.float().cpu(), strict=True):
        rollout.behaviour = row[: len(rollout.completion_ids)].tolist()


def restore_behaviour(trainer: Any, rollouts: list[Rollout], ages: list[int], output: dict[str, Any]) -> None:
    """Put the noted log-probabilities of this rank's rows of an age above 0 into TRL's batch, in place."""
    carried = [i for i, age in enumerate(ages) if age > 0]
    anywhere = trainer.accelerator.gather(torch.tensor([len(carried)], device=trainer.accelerator.device))
    if not int(anywhere.sum()):
        return
    mask = output["completion_mask"]
    if is_rloo(trainer):
        for i in carried:
            noted = torch.tensor(rollouts[i].behaviour, device=mask.device)
            output["old_logps"][i] = (noted * mask[i, : len(noted)]).sum()
        return
    # TRL leaves them out where it takes a batch for on-policy; scoring may gather, so every rank does it.
    if output.get("old_per_token_logps") is None:
        output["old_per_token_logps"] = logps_of(
            trainer, output["prompt_ids"], output["prompt_mask"], output["completion_ids"], mask
        )
    old = output["old_per_token_logps"]
    for i in carried:
        noted = torch.tensor(rollouts[i].behaviour, device=old.device, dtype=old.dtype)
        old[i, : len(noted)] = noted


def _padded(rows: list[list[int]], trainer: Any, side: str) -> tuple[Tensor, Tensor]:
    """Return token ids and their mask [rows, tokens]."""
    device, tensors = trainer.accelerator.device, [torch.tensor(row) for row in rows]
    ids = pad(tensors, padding_value=trainer.processing_class.pad_token_id, padding_side=side)
    mask = pad([torch.ones_like(row) for row in tensors], padding_value=0, padding_side=side)
    return ids.to(device), mask.to(device)
