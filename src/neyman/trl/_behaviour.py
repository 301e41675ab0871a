"""Log-probabilities of the policy that drew a rollout, for rollouts that train in a later step.

A rollout carried over was drawn by older weights. Its importance ratio must start from those, so they are
noted while they are still at hand, at the end of the step that drew it, and put into TRL's batch when it trains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from trl.trainer.utils import pad

from neyman.errors import ArgumentError

if TYPE_CHECKING:
    from neyman.trl._session import Session
    from neyman.trl._store import Rollout

Tensor = torch.Tensor


def check_carry_over(session: Session) -> None:
    """Refuse carry-over where the importance ratio of old rollouts cannot be formed.

    Raises:
        ArgumentError: an engine whose samples TRL corrects by a second ratio.
    """
    trainer = session.trainer
    corrected = getattr(trainer, "use_vllm", False) and getattr(
        trainer, "vllm_importance_sampling_correction", False
    )
    strategy = session.controller.strategy
    for name in ("max_age", "replay_age"):
        if getattr(strategy, name) and corrected:
            raise ArgumentError(
                f"{name}={getattr(strategy, name)} trains rollouts of earlier steps, and TRL's vLLM correction assumes "
                f"that all were sampled by the current weights: use {name}=0, or "
                "vllm_importance_sampling_correction=False"
            )


def note_behaviour(session: Session, rollouts: list[Rollout]) -> None:
    """Note the current policy's log-probabilities of rollouts that later steps will train on."""
    fresh = [rollout for rollout in rollouts if rollout.behaviour is None]
    if not fresh:
        return
    trainer = session.trainer
    prompts = [rollout.prompt_tokens for rollout in fresh]
    ids, mask = _left_padded(prompts, trainer)
    completions = [torch.tensor(rollout.completion_ids) for rollout in fresh]
    filler = trainer.processing_class.pad_token_id
    completion_ids = pad(completions, padding_value=filler, padding_side="right").to(ids.device)
    ones = [torch.ones_like(completion) for completion in completions]
    completion_mask = pad(ones, padding_value=0, padding_side="right").to(ids.device)
    logps = _logps(trainer, ids, mask, completion_ids, completion_mask)
    for rollout, row in zip(fresh, logps.float().cpu(), strict=True):
        rollout.behaviour = row[: len(rollout.completion_ids)].tolist()


def restore_behaviour(
    session: Session, rollouts: list[Rollout], ages: list[int], output: dict[str, Any]
) -> None:
    """Put the noted log-probabilities of carried rollouts into this rank's part of TRL's batch.

    Args:
        session: the session.
        rollouts: this rank's rows.
        ages: their ages in steps.
        output: TRL's batch, changed in place.
    """
    carried = [i for i, age in enumerate(ages) if age > 0]
    trainer = session.trainer
    anywhere = trainer.accelerator.gather(torch.tensor([len(carried)], device=trainer.accelerator.device))
    if not int(anywhere.sum()):
        return
    mask = output["completion_mask"]
    if session.is_rloo:
        for i in carried:
            noted = torch.tensor(rollouts[i].behaviour, device=mask.device)
            output["old_logps"][i] = (noted * mask[i, : len(noted)]).sum()
        return
    if output.get("old_per_token_logps") is None:
        output["old_per_token_logps"] = _logps(
            trainer, output["prompt_ids"], output["prompt_mask"], output["completion_ids"], mask
        )
    old = output["old_per_token_logps"]
    for i in carried:
        noted = torch.tensor(rollouts[i].behaviour, device=old.device, dtype=old.dtype)
        old[i, : len(noted)] = noted


def _left_padded(rows: list[list[int]], trainer: Any) -> tuple[Tensor, Tensor]:
    device = trainer.accelerator.device
    tensors = [torch.tensor(row) for row in rows]
    ids = pad(tensors, padding_value=trainer.processing_class.pad_token_id, padding_side="left")
    mask = pad([torch.ones_like(row) for row in tensors], padding_value=0, padding_side="left")
    return ids.to(device), mask.to(device)


def _logps(trainer: Any, prompts: Tensor, prompt_mask: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
    """Return per-token log-probabilities under the current weights, without gradients."""
    with torch.no_grad():
        result = trainer._get_per_token_logps_and_entropies(  # noqa: SLF001 (TRL's own scorer)
            trainer.model,
            torch.cat([prompts, completions], dim=1),
            torch.cat([prompt_mask, mask], dim=1),
            completions.size(1),
            batch_size=trainer.args.per_device_train_batch_size,  # some versions take it by name only
        )
    logps: Tensor = result[0]
    return logps
