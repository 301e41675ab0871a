"""Token factors on verl's advantages, from the entropies and log-probabilities that verl computes anyway."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import torch

from neyman.errors import ArgumentError
from neyman.modulation import (
    EntropyAdvantage,
    ForkTokens,
    Modulation,
    batch_extremes,
    shaping_factors,
    token_change,
    token_factors,
)
from neyman.strategy import Strategy

Tensor = torch.Tensor
Factor = Modulation | EntropyAdvantage | ForkTokens
_log = logging.getLogger("neyman")


def modulation_of(config: Any, strategy: Strategy) -> Factor | None:
    """Return the settings of the token factor that can be applied here; None where there is none.

    verl keeps no sum over the vocabulary, so DynaMO's exact form gives way to the published one, with a warning; the
    extremes are those of the whole step.

    Raises:
        ArgumentError: settings of another method, or a run without the entropies.
    """
    modulation = strategy.modulation
    if modulation is None:
        return None
    if not isinstance(modulation, Factor):
        raise ArgumentError(
            f"strategy {strategy.name!r} asks for {type(modulation).__name__}, which neyman does not apply in "
            "verl: there are Modulation, EntropyAdvantage and ForkTokens, and of verl's own "
            "actor_rollout_ref.actor.policy_loss.loss_mode=clip_cov or kl_cov, clip_ratio_high and entropy_coeff; set "
            "++neyman.options.modulation=null"
        )
    if (config.algorithm.get("rollout_correction") or {}).get("bypass_mode"):
        raise ArgumentError(
            "algorithm.rollout_correction.bypass_mode=true skips the pass that gives entropies, which the token factor "
            f"of strategy {strategy.name!r} needs: set it to false, or ++neyman.options.modulation=null"
        )
    if not isinstance(modulation, Modulation):
        return modulation
    if modulation.variant == "exact":
        _log.warning(
            "strategy %r asks for the exact entropy change, which needs a sum over the vocabulary that verl does not "
            "keep: the published form stands in",
            strategy.name,
        )
    return replace(modulation, variant="published", extremes="batch")


def token_factor(
    modulation: Factor,
    *,
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
) -> Tensor:
    """Return the factor on each token's advantage [rows, tokens], of the policy that drew the step.

    The step is on-policy, so the ratio is 1 and nothing is clipped yet.

    Args:
        modulation: the settings.
        logps: [rows, tokens], of the tokens drawn.
        entropies: [rows, tokens].
        advantages: [rows, tokens], the prompts' weights included, as the update has them.
        mask: [rows, tokens] that the loss counts.
    """
    given = {"advantages": advantages, "mask": mask}
    if not isinstance(modulation, Modulation):
        drawn = torch.Generator()  # of no rule that is applied here
        return shaping_factors(modulation, logp=logps, entropy=entropies, generator=drawn, **given)
    change = token_change(modulation, logp=logps, entropy=entropies, **given)
    extremes = batch_extremes([(entropies, change, mask * (advantages != 0))])
    return token_factors(modulation, entropy=entropies, change=change, extremes=extremes, **given)
