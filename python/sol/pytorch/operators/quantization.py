"""Simulated quantization (quantization-aware training): values are rounded to a grid. Gradients go straight through, except where a value
is outside of the grid."""

from __future__ import annotations

import torch

from ..builder import Builder, Rejected, Value
from .table import op


def _rounded(b: Builder, x: Value, grid: tuple[Value, Value, Value], low: int, high: int) -> Value:
    """`grid`: scale, its reciprocal, and zero point; they broadcast with x."""
    scale, inverse, zero = grid
    if x.dtype not in (torch.float32, torch.float64):
        raise Rejected(f"simulated quantization of {str(x.dtype).removeprefix('torch.')}")
    q = b.map("add", b.map("round", b.map("mul", x, inverse)), zero)
    reached = b.compare("ge", q, low)  # false for NaN, which becomes the lowest value, as in PyTorch
    below = b.compare("le", q, high)
    limited = b.where(reached, b.where(below, q, high), low)
    made = b.map("mul", b.map("sub", limited, zero), scale)
    if not x.tracked:
        return made
    marker = b.fill(x.shape, 0, x.dtype)  # stands for the gradient of the result
    through = b.where(b.map("logical_and", reached, below), marker, 0)
    return b.layer("Graft", b.layer("stop", made) if made.tracked else made, marker, x, through)


def _by_tensors(b: Builder, x: Value, scale: Value, zero: Value, limits: tuple[int, int], shape: list[int]) -> Value:
    if not scale.is_float:
        raise Rejected("a scale that is no real number")

    def at(value: Value) -> Value:
        return b.reshape(b.cast(value, x.dtype), shape)

    return _rounded(b, x, (at(scale), at(b.map("reciprocal", scale)), at(zero)), *limits)


@op("fake_quantize_per_tensor_affine")
def per_tensor(b: Builder, x: Value, scale: float, zero_point: int, quant_min: int, quant_max: int) -> Value:
    of = torch.tensor(scale)  # PyTorch's kernel takes it in float32, for all types
    scale_, inverse, zero = (b.scalar(float(v), x.dtype) for v in (of, 1 / of, torch.tensor(zero_point)))
    return _rounded(b, x, (scale_, inverse, zero), quant_min, quant_max)


@op("fake_quantize_per_tensor_affine.tensor_qparams")
def per_tensor_by_tensors(
    b: Builder, x: Value, scale: Value, zero_point: Value, quant_min: int, quant_max: int
) -> Value:
    return _by_tensors(b, x, scale, zero_point, (quant_min, quant_max), [1] * x.ndim)


@op("fake_quantize_per_channel_affine")
def per_channel(
    b: Builder, x: Value, scale: Value, zero_point: Value, axis: int, quant_min: int, quant_max: int
) -> Value:
    shape = [n if d == axis else 1 for d, n in enumerate(x.shape)]
    return _by_tensors(b, x, scale, zero_point, (quant_min, quant_max), shape)
