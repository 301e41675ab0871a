"""The lab's world: digit rules of graded difficulty, and a policy that starts with the success rates they set.

A prompt is a family letter, four digits and "="; its one right answer is four digits (`neyman.tasks.rules`). The
starting policy is taught by demonstrations that are right with probability p*(family, first digit), and
otherwise follow *another family's rule* throughout: a plausible wrong answer. So its success rates spread from
0 to 1 as the table p* sets, and learning on one prompt carries over to others of the family.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from neyman._checks import FloatP, choice, integer, real
from neyman._files.atomic import write_atomic
from neyman.errors import StateError
from neyman.lab import policy as policy_module
from neyman.lab.policy import Policy, Shape
from neyman.tasks import rules
from neyman.tasks.tiny_policy import cache_folder

IntND = NDArray[np.int64]

# Beta parameters of p* over the 160 cells: hard has a mean of .2 and most cells next to 0.
SPREAD = {"hard": (0.13, 0.36), "ushape": (0.22, 0.15), "easy": (1.2, 0.35)}
REGIMES = tuple(SPREAD)
SHAPE = Shape(vocabulary=len(rules.ALPHABET), prompt=rules.DIGITS + 2, answer=rules.DIGITS)
# The family whose rule a wrong demonstration follows: another order and another change of the digits.
_PARTNER = 5
_FAMILY_WEIGHT = 0.3
_FIRST_FAMILY, _EQUALS = 10, len(rules.ALPHABET) - 1
_WARM_UP_SHARE, _DECAY_SHARE = 0.05, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Prompts with their one right answer.

    Attributes:
        tokens: int64 [prompts, 6].
        answers: int64 [prompts, 4].
        metadata: the visible parts of the prompt, one-hot family and first digit, float64 [prompts, 26].
    """

    tokens: Tensor
    answers: Tensor
    metadata: FloatP

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """The supervised training of the starting policy.

    Attributes:
        regime: "hard" (mean success .2, most prompts near 0), "ushape" or "easy".
        world: names the table of difficulty, the demonstrations and the first weights.
        steps: optimiser steps.
        batch: demonstrations a step.
        learning_rate: peak of AdamW's rate.
    """

    regime: str = "hard"
    world: int = 0
    steps: int = 1500
    batch: int = 256
    learning_rate: float = 4e-3

    def __post_init__(self) -> None:
        choice("regime", self.regime, REGIMES)
        integer("world", self.world, low=0)
        integer("steps", self.steps, low=1)
        integer("batch", self.batch, low=1)
        real("learning_rate", self.learning_rate, low=0.0, open_low=True)


def _encode(families: IntND, digits: IntND, answers: IntND) -> Prompts:
    tokens = np.column_stack([families + _FIRST_FAMILY, digits, np.full(len(families), _EQUALS)])
    metadata = np.zeros((len(families), len(rules.FAMILIES) + 10))
    row = np.arange(len(families))
    metadata[row, families] = 1.0
    metadata[row, len(rules.FAMILIES) + digits[:, 0]] = 1.0
    return Prompts(tokens=torch.from_numpy(tokens), answers=torch.from_numpy(answers), metadata=metadata)


def draw_prompts(pool: int, held_out: int, *, world: int = 0) -> tuple[Prompts, Prompts]:
    """Draw distinct prompts, the same for every regime of a world.

    Args:
        pool: number of training prompts.
        held_out: number of test prompts, none of them among the training ones.
        world: names the draw.

    Returns:
        The training and the held-out prompts.

    Raises:
        ArgumentError: more prompts than the 160,000 that exist.
    """
    space = len(rules.FAMILIES) * 10**rules.DIGITS
    integer("pool", pool, low=1, high=space)
    integer("held_out", held_out, low=1, high=space - pool)
    # The last number separates a world's streams: 1 is the table's, 3 the demonstrations', 4 the prompts'.
    chosen = np.random.default_rng([world, 4]).choice(space, pool + held_out, replace=False)
    families, number = np.divmod(chosen, 10**rules.DIGITS)
    digits = number[:, None] // 10 ** np.arange(rules.DIGITS - 1, -1, -1) % 10
    answers = rules.apply_rules(families, digits)
    train, test = slice(0, pool), slice(pool, None)
    return (
        _encode(families[train], digits[train], answers[train]),
        _encode(families[test], digits[test], answers[test]),
    )


def demonstrated_rates(regime: str, world: int = 0) -> FloatP:
    """Return p*(family, first digit), [16, 10]: mostly each cell's own, so that every family has some of each."""
    return rules.spread_rates(*SPREAD[regime], seed=world, family_weight=_FAMILY_WEIGHT)


def demonstrate(rng: np.random.Generator, size: int, rates: FloatP) -> Prompts:
    """Draw demonstrations: right with the rate p* [16, 10] of their cell, else by another family's rule throughout."""
    families = rng.integers(0, len(rules.FAMILIES), size)
    digits = rng.integers(0, 10, (size, rules.DIGITS))
    # A slip follows one other rule throughout: random digits would be answers that no policy gives.
    slips = rng.random(size) >= rates[families, digits[:, 0]]
    shown = np.where(slips, (families + _PARTNER) % len(rules.FAMILIES), families)
    return _encode(families, digits, rules.apply_rules(shown, digits))


def teach(config: WarmStart, progress: Callable[[int, float], None] | None = None) -> Policy:
    """Teach a fresh policy the demonstrations by supervised learning.

    Args:
        config: the demonstrations, and the number of steps.
        progress: called with (steps done, loss) after each step.

    Cost: about 35 ms of one core a step at the default batch.
    """
    rates = demonstrated_rates(config.regime, config.world)
    rng = np.random.default_rng([config.world, REGIMES.index(config.regime), 3])
    policy = Policy(SHAPE, seed=config.world)
    optimiser = torch.optim.AdamW(policy.parameters(), lr=config.learning_rate, betas=(0.9, 0.98))
    for step in range(config.steps):
        shown = demonstrate(rng, config.batch, rates)
        hidden, _ = policy.read(torch.cat([shown.tokens, shown.answers[:, :-1]], dim=1), keep=SHAPE.answer)
        loss = torch.nn.functional.cross_entropy(policy.head(hidden).flatten(0, 1), shown.answers.flatten())
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        for group in optimiser.param_groups:
            group["lr"] = config.learning_rate * _rate(step, config.steps)
        optimiser.step()
        if progress is not None:
            progress(step + 1, float(loss.detach()))
    return policy


def _rate(step: int, steps: int) -> float:
    """Linear warm-up, plateau, cosine decay to zero."""
    done = (step + 1) / steps
    rise = min(1.0, done / _WARM_UP_SHARE)
    fall = max(0.0, (done - (1.0 - _DECAY_SHARE)) / _DECAY_SHARE)
    return rise * 0.5 * (1.0 + math.cos(math.pi * fall))


@functools.cache
def _source() -> str:
    """Digest of the code that decides the result: editing it makes new policies, never stale ones."""
    files = [Path(__file__), Path(policy_module.__file__), Path(rules.__file__)]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def starting_policy(
    config: WarmStart,
    *,
    cache: str | Path | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Policy:
    """Return the warm-started policy, from the cache where it holds it.

    Args:
        config: its warm start.
        cache: folder of built policies; by default the user's cache folder.
        progress: see `teach`; not called when the cache holds the policy.

    Raises:
        StateError: the cached file is damaged; the message names it.

    Guarantee: the file's name carries a hash of the configuration and of the code, and it is whole or absent.
    """
    key = json.dumps([asdict(config), _source()], sort_keys=True)
    root = Path(cache) if cache is not None else cache_folder() / "lab"
    path = (
        root / f"{config.regime}-{config.world}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.safetensors"
    )
    if not path.exists():
        policy = teach(config, progress)
        root.mkdir(parents=True, exist_ok=True)
        write_atomic(path, safetensors.torch.save(policy.state_dict()))
        return policy
    policy = Policy(SHAPE, seed=config.world)
    try:
        policy.load_state_dict(safetensors.torch.load(path.read_bytes()))
    except (safetensors.SafetensorError, RuntimeError) as error:
        raise StateError(f"the cached policy {path} is damaged: {error}; delete the file") from error
    return policy
