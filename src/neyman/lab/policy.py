"""A transformer of about 0.1M parameters with a hand-written key-value cache: fast on one thread, and readable.

Prompts and answers have fixed lengths, so positions are learned and no padding or mask for it is needed. A
prompt is read once and its cache is shared by its rollouts, in generation and in training.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neyman._checks import FloatP, integer
from neyman.errors import ArgumentError, missing_extra

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional
except ImportError as error:
    raise missing_extra("torch", "train", "neyman.lab") from error

Cache = list[tuple[Tensor, Tensor]]  # per layer: keys and values


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, faster at this size and the same everywhere, and restore the setting."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of a policy.

    Attributes:
        vocabulary: number of tokens.
        prompt: tokens of a prompt, all of one length.
        answer: tokens of an answer, all of one length.
        width: hidden size.
        layers: transformer blocks.
        heads: attention heads; divides ``width``.
    """

    vocabulary: int
    prompt: int
    answer: int
    width: int = 64
    layers: int = 2
    heads: int = 4

    def __post_init__(self) -> None:
        for name in ("vocabulary", "prompt", "answer", "width", "layers", "heads"):
            integer(name, getattr(self, name), low=1)
        if self.width % self.heads:
            raise ArgumentError(f"width must be a multiple of heads={self.heads}, got {self.width}")


class _Block(nn.Module):
    """Attention and a feed-forward part, each on the normalised stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key_value = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split(self, x: Tensor) -> Tensor:
        """Return [..., width] as [..., heads, width / heads]."""
        return x.reshape(*x.shape[:-1], self.heads, -1)

    def keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of new positions, [rows, positions, heads, width / heads]."""
        keys, values = self.key_value(self.before(x)).chunk(2, dim=-1)
        return self.split(keys), self.split(values)

    def attend(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Let the new positions, which are the last of the keys', look at all positions up to their own."""
        new, known = x.shape[1], keys.shape[1]
        query = self.split(self.query(self.before(x))).transpose(1, 2)
        seen = torch.ones(new, known, dtype=torch.bool).tril(known - new) if new > 1 else None
        mixed = functional.scaled_dot_product_attention(
            query, keys.transpose(1, 2), values.transpose(1, 2), attn_mask=seen
        )
        return self.forward_part(x, mixed.transpose(1, 2).flatten(-2))

    def look_back(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Let one new position of each row look at a cache [positions, rows, heads, width / heads].

        At this size a product and a sum are faster than batched matrix products.
        """
        query = self.split(self.query(self.before(x)))
        share = (query * keys).sum(-1).div(math.sqrt(query.shape[-1])).softmax(0)
        return self.forward_part(x, (share.unsqueeze(-1) * values).sum(0).flatten(-2))

    def forward_part(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Add the output of attention, and the feed-forward part."""
        x = x + self.out(mixed)
        y: Tensor = x + self.down(functional.silu(self.up(self.between(x))))
        return y


class Policy(nn.Module):
    """A language model over answers of fixed length.

    Args:
        shape: its size.
        seed: of its weights; torch's own generator is left as it was.
    """

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(integer("seed", seed, low=0))
            self.token = nn.Embedding(shape.vocabulary, shape.width)
            self.position = nn.Embedding(shape.prompt + shape.answer - 1, shape.width)
            self.blocks = nn.ModuleList(_Block(shape.width, shape.heads) for _ in range(shape.layers))
            self.last = nn.LayerNorm(shape.width)
            self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
            for parameter in self.parameters():
                if parameter.ndim == 2:
                    nn.init.normal_(parameter, std=0.05)

    def read(self, tokens: Tensor, past: Cache | None = None, *, keep: int) -> tuple[Tensor, Cache]:
        """Return the final hidden states of the last ``keep`` positions, and the cache of all; differentiable.

        Args:
            tokens: new tokens, int64 [rows, new].
            past: cache of the positions before them; None starts at the prompt's first token.
            keep: positions to return; the last block computes no others.

        Returns:
            Hidden states [rows, keep, width], and the cache over old and new positions.
        """
        start = past[0][0].shape[1] if past else 0
        x = self.token(tokens) + self.position.weight[start : start + tokens.shape[1]]
        cache: Cache = []
        for index, block in enumerate(self._blocks()):
            keys, values = block.keys(x)
            if past is not None:
                keys = torch.cat([past[index][0], keys], dim=1)
                values = torch.cat([past[index][1], values], dim=1)
            cache.append((keys, values))
            # Only the last block may leave positions out: the others' are keys and values of the next.
            x = block.attend(x if index + 1 < len(self.blocks) else x[:, -keep:], keys, values)
        return self.last(x), cache

    def answer_logits(self, prompts: Tensor, owner: Tensor, answers: Tensor) -> Tensor:
        """Return the logits from which each answer token is drawn, reading each prompt once.

        Args:
            prompts: int64 [prompts, prompt length].
            owner: the row of ``prompts`` that each answer belongs to, int64 [answers].
            answers: int64 [answers, answer length].

        Returns:
            Logits [answers, answer length, vocabulary], differentiable.
        """
        hidden, cache = self.read(prompts, keep=1)
        mine = [(keys[owner], values[owner]) for keys, values in cache]
        rest, _ = self.read(answers[:, :-1], mine, keep=answers.shape[1] - 1)
        logits: Tensor = self.head(torch.cat([hidden[owner], rest], dim=1))
        return logits

    @torch.no_grad()
    def generate(self, prompts: Tensor, owner: Tensor, uniforms: FloatP) -> tuple[Tensor, Tensor]:
        """Sample answers at temperature 1 by inverting the cumulative distribution.

        Args:
            prompts: int64 [prompts, prompt length].
            owner: the row of ``prompts`` of each rollout, int64 [rollouts].
            uniforms: numbers in [0, 1), float64 [rollouts, answer length].

        Returns:
            Answers, int64 [rollouts, answer length], and the mean entropy of each rollout's tokens in nats.

        Guarantee: the same weights and arguments give the same answers, bit for bit, on one machine and thread.
        """
        places = torch.from_numpy(uniforms).unsqueeze(-1)
        hidden, cache = self.read(prompts, keep=1)
        x, kept = hidden[owner, 0], [self._static(layer, owner) for layer in cache]
        answers = torch.empty(len(owner), self.shape.answer, dtype=torch.int64)
        entropy = torch.zeros(len(owner))
        for place in range(self.shape.answer):
            if place:
                x = self._step(answers[:, place - 1], kept, self.shape.prompt + place - 1)
            log_p = self.head(x).log_softmax(-1)
            rates = log_p.exp()
            entropy -= (rates * log_p).sum(-1)
            steps = rates.cumsum(-1).double()
            # Scaled by the last sum, which rounding leaves beside 1; a uniform next to 1 may still pass it.
            drawn = (steps <= places[:, place] * steps[:, -1:]).sum(-1)
            answers[:, place] = drawn.clamp(max=self.shape.vocabulary - 1)
        return answers, entropy / self.shape.answer

    def _static(self, layer: tuple[Tensor, Tensor], owner: Tensor) -> tuple[Tensor, Tensor]:
        """Give each rollout its prompt's keys and values, with room for the answer's, position by position."""
        # The room is allocated once: appending at each position would copy the whole cache each time.
        room = self.shape.prompt + self.shape.answer - 1
        keys, values = (x.new_empty((room, len(owner), *x.shape[2:])) for x in layer)
        for target, source in zip((keys, values), layer, strict=True):
            target[: source.shape[1]] = source.transpose(0, 1)[:, owner]
        return keys, values

    def _step(self, tokens: Tensor, kept: Cache, place: int) -> Tensor:
        """Read one more token of every rollout into the static cache; return the final hidden states."""
        x = self.token(tokens) + self.position.weight[place]
        for block, (keys, values) in zip(self._blocks(), kept, strict=True):
            keys[place], values[place] = block.keys(x)
            x = block.look_back(x, keys[: place + 1], values[: place + 1])
        hidden: Tensor = self.last(x)
        return hidden

    def _blocks(self) -> Iterable[_Block]:
        return self.blocks  # type: ignore[return-value]

    @torch.no_grad()
    def success_rates(self, prompts: Tensor, answers: Tensor) -> NDArray[np.float64]:
        """Return the exact chance that a rollout of each prompt is its one right answer.

        p = prod_t pi(answer token t | prompt, answer tokens before it).

        Args:
            prompts: int64 [prompts, prompt length].
            answers: the right answers, int64 [prompts, answer length].

        Returns:
            Probabilities, float64 [prompts].

        Cost: one teacher-forced forward pass.
        """
        tokens = torch.cat([prompts, answers[:, :-1]], dim=1)
        hidden, _ = self.read(tokens, keep=answers.shape[1])
        # In double: rates next to 0 and 1 decide which groups are expected to be mixed.
        log_p = self.head(hidden).double().log_softmax(-1).gather(-1, answers.unsqueeze(-1))
        rates: NDArray[np.float64] = log_p.sum((1, 2)).exp().numpy()
        return rates


def rollout_uniforms(seeds: NDArray[np.int64], length: int) -> FloatP:
    """Return numbers in [0, 1) that depend on each rollout's own seed and the place in its answer alone.

    Args:
        seeds: one per rollout, int64 [rollouts].
        length: numbers per rollout.

    Returns:
        float64 [rollouts, length].

    Source: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014) over a counter.
    """
    # Every rollout has a stretch of the counter of its own, so that neighbouring seeds share no number.
    first = seeds.astype(np.int64) * length + 1
    mix = (first[:, None] + np.arange(length)).astype(np.uint64)
    mix = mix * np.uint64(0x9E3779B97F4A7C15)
    mix = (mix ^ (mix >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mix = (mix ^ (mix >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mix = mix ^ (mix >> np.uint64(31))
    return (mix >> np.uint64(11)).astype(np.float64) * 2.0**-53
