"""Checks and conversions of tensors, shared by the torch half of this package."""

from __future__ import annotations

from neyman.errors import ArgumentError, missing_extra

try:
    import torch
except ImportError as error:
    raise missing_extra("torch", "train", "token modulation") from error

from torch import Tensor


def working(tensor: Tensor) -> Tensor:
    """Return the tensor detached and in the precision of sums: float64 stays, all else becomes float32."""
    return tensor.detach() if tensor.dtype == torch.float64 else tensor.detach().float()


def float_tensor(name: str, value: object, shape: tuple[int, ...] | None = None, *, ndim: int = 2) -> Tensor:
    """Return a detached float tensor of rank ``ndim`` (and exactly ``shape``, where given), or raise."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        got = f"a tensor of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
        raise ArgumentError(f"{name} must be a torch tensor of floats, got {got}; convert it with .float()")
    if value.ndim != ndim or (shape is not None and tuple(value.shape) != shape):
        legal = f"shape {shape}" if shape is not None else f"{ndim} dimensions"
        raise ArgumentError(f"{name} must have {legal}, got shape {tuple(value.shape)}")
    return working(value)


def per_token(name: str, value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Spread (B,), (B, 1) or (B, T) over ``shape`` (B, T), or raise naming the legal shapes."""
    rows, columns = shape
    if value.ndim == 1 and value.shape[0] == rows:
        value = value.unsqueeze(1)
    if value.ndim != 2 or value.shape[0] != rows or value.shape[1] not in (1, columns):
        raise ArgumentError(
            f"{name} must have shape ({rows},), ({rows}, 1) or ({rows}, {columns}), got {tuple(value.shape)}"
        )
    return value.detach().expand(rows, columns)


def token_mask(mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the (B, T) mask of valid tokens as bool, or raise; nonzero means valid."""
    if not isinstance(mask, Tensor) or tuple(mask.shape) != shape:
        got = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise ArgumentError(f"mask must be a tensor of shape {shape}, nonzero on valid tokens, got {got}")
    return mask.detach().bool()


def vocabulary_tokens(tokens: Tensor, shape: tuple[int, ...], size: int) -> Tensor:
    """Return the (B, T) token ids as int64, or raise before a device-side assertion does."""
    if not isinstance(tokens, Tensor) or tuple(tokens.shape) != shape or tokens.is_floating_point():
        got = f"{tuple(tokens.shape)} {tokens.dtype}" if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ArgumentError(f"tokens must be integers of shape {shape}, got {got}")
    # An id outside the vocabulary fails asynchronously on a GPU, far from here and without the value.
    if tokens.numel():
        low, high = (int(x) for x in torch.aminmax(tokens))
        if low < 0 or high >= size:
            raise ArgumentError(
                f"tokens must be in [0, {size - 1}], got {low if low < 0 else high}; replace ignored labels "
                "such as -100 by any legal id and mask them"
            )
    return tokens.long()
