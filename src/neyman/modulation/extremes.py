"""Extremes of entropies and entropy changes over a batch, independent of the packing of its rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from neyman import _checks
from neyman.errors import ArgumentError
from neyman.modulation._tensors import float_tensor, token_mask

import torch  # isort: skip - after _tensors, whose import names the extra where torch is absent
from torch import Tensor  # isort: skip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Extremes:
    """Extremes over a set of valid tokens; ``Extremes()`` is that of the empty set.

    Merging is associative, commutative and idempotent, so that the extremes of a batch do not depend on the packing
    of its rows into micro-batches or on their distribution over ranks.

    Args:
        entropy_min: smallest entropy, nats.
        entropy_max: largest entropy, nats.
        change_max: largest |dH|.

    >>> a = Extremes(entropy_min=0.1, entropy_max=1.0, change_max=0.5)
    >>> a.merge(Extremes(entropy_min=0.2, entropy_max=2.0, change_max=0.1))
    Extremes(entropy_min=0.1, entropy_max=2.0, change_max=0.5)
    """

    entropy_min: float = math.inf
    entropy_max: float = -math.inf
    change_max: float = 0.0

    def __post_init__(self) -> None:
        if math.isnan(self.entropy_min) or math.isnan(self.entropy_max):
            raise ArgumentError(f"entropies must be numbers, got {self.entropy_min} and {self.entropy_max}")
        _checks.real("change_max", self.change_max, low=0.0)

    def merge(self, *others: Extremes) -> Extremes:
        """Return the extremes over the union of the token sets."""
        everyone = (self, *others)
        return Extremes(
            entropy_min=min(e.entropy_min for e in everyone),
            entropy_max=max(e.entropy_max for e in everyone),
            change_max=max(e.change_max for e in everyone),
        )

    def as_tensor(
        self, *, device: torch.device | str | None = None, dtype: torch.dtype = torch.float64
    ) -> Tensor:
        """Return (-entropy_min, entropy_max, change_max), which an elementwise MAX over ranks merges.

        Exact in float32 too for extremes of float32 tensors, on devices without float64.
        """
        return torch.tensor(
            [-self.entropy_min, self.entropy_max, self.change_max], device=device, dtype=dtype
        )

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> Extremes:
        """Read :meth:`as_tensor` back, shape (3,), or (ranks, 3) as gathered, whose rows are merged."""
        if tensor.ndim not in (1, 2) or tensor.shape[-1] != 3 or not tensor.shape[0]:
            raise ArgumentError(f"tensor must have shape (3,) or (ranks, 3), got {tuple(tensor.shape)}")
        low, high, change = tensor.detach().reshape(-1, 3).amax(0).tolist()
        return cls(entropy_min=-low, entropy_max=high, change_max=change)


def token_extremes(entropy: Tensor, change: Tensor | None, valid: Tensor) -> Extremes:
    """Return the extremes over the valid tokens of one checked (B, T) piece, non-finite values left out."""
    known = valid & entropy.isfinite()
    low, high = entropy.new_tensor(torch.inf), entropy.new_tensor(-torch.inf)
    if known.numel():  # amin of an empty tensor raises
        low, high = torch.where(known, entropy, low).amin(), torch.where(known, entropy, high).amax()
    moved = low.new_zeros(()) if change is None else largest_change(change, valid).to(low.dtype)
    # One transfer from the device for the three numbers: each would wait for the whole queue of kernels.
    entropy_min, entropy_max, change_max = torch.stack([low, high, moved]).tolist()
    return Extremes(entropy_min=entropy_min, entropy_max=entropy_max, change_max=change_max)


def largest_change(change: Tensor, valid: Tensor) -> Tensor:
    """Return max |dH| over the valid tokens as a scalar tensor; 0 if there are none."""
    size = torch.where(valid & change.isfinite(), change.abs(), change.new_zeros(()))
    return size.amax() if size.numel() else change.new_zeros(())


def batch_extremes(pieces: Iterable[tuple[Tensor, Tensor, Tensor]]) -> Extremes:
    """Return the extremes over all micro-batches of an optimisation batch.

    Args:
        pieces: (entropy, change, mask) of each micro-batch, each (B, T); B and T may differ between pieces.

    Returns:
        The extremes over valid tokens, non-finite values left out. On several ranks merge further through
        :meth:`Extremes.as_tensor`.

    Raises:
        ArgumentError: shapes within a piece differ.

    Guarantee: Bit for bit the same for every packing of the same tokens.
    Cost: O(tokens), one transfer from the device per piece.

    >>> one = (torch.tensor([[0.5, 9.0]]), torch.tensor([[-0.2, 9.0]]), torch.tensor([[1, 0]]))
    >>> extremes = batch_extremes([one])
    >>> (extremes.entropy_max, round(extremes.change_max, 6))
    (0.5, 0.2)
    """
    merged = Extremes()
    for entropy, change, mask in pieces:
        values = float_tensor("entropy", entropy)
        shape = tuple(values.shape)
        moved = float_tensor("change", change, shape)
        merged = merged.merge(token_extremes(values, moved, token_mask(mask, shape)))
    return merged
