"""Interpolation and grids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from ..builder import Builder, Rejected, Value
from .table import op, shape

Scale = float | None


def _resize(b: Builder, x: Value, scales: Sequence[Scale], **attrs: object) -> Value:
    """Resizes to the sizes of the result. A given scale factor determines the coordinates (0: the sizes do)."""
    pixels = x.ndim - 2
    given = [0.0 if s is None else float(s) for s in scales] or [0.0] * pixels
    if any(s <= 0 for s in given if s):
        given = [0.0] * pixels
    return b.layer("Resize", x, size=list(b.out.shape), scale=[0.0, 0.0, *given], **attrs)


def _antialiased(b: Builder, x: Value, scales: Sequence[Scale], align: bool, cubic: bool) -> Value:
    if align or x.dtype == torch.uint8:
        return _weighted(b, x, scales, Filter(cubic, align, True))
    mode = _cubic(False) | {"a": -0.5} if cubic else _linear(False)
    return _resize(b, x, scales, **mode, antialias=1, exclude=1)


def _plain(b: Builder, x: Value, scales: Sequence[Scale], align: bool, cubic: bool) -> Value:
    if x.dtype == torch.uint8:
        return _weighted(b, x, scales, Filter(cubic, align, False))
    return _resize(b, x, scales, **(_cubic(align) if cubic else _linear(align)))


@dataclass(frozen=True)
class Filter:
    """The weights of neighbours for an interpolation."""

    cubic: bool
    align: bool
    antialias: bool

    def weights(self, n: int, out: int, scale: Scale) -> tuple[torch.Tensor, torch.Tensor]:
        """For each of `out` results: positions among n elements, and weights (float64)."""
        step = 1 / scale if scale is not None and scale > 0 else n / out
        if self.align:
            step = (n - 1) / (out - 1) if out > 1 else 0.0
        half = 2 if self.cubic else 1
        if not self.antialias:  # outside positions take the border element
            centre = step * torch.arange(out, dtype=torch.float64)
            centre = centre if self.align else centre + 0.5 * step - 0.5
            first = centre.floor().long() + 1 - half
            at = first[:, None] + torch.arange(2 * half)
            weight = self._curve((at - centre[:, None]).abs())
            dense = torch.zeros(out, n, dtype=torch.float64).scatter_add(1, at.clamp(0, n - 1), weight)
            at = first.clamp(min=0)[:, None] + torch.arange(2 * half)
            return at.clamp(max=n - 1), torch.where(at < n, dense.gather(1, at.clamp(max=n - 1)), 0.0)
        wide = max(step, 1.0)
        centre = step * (torch.arange(out, dtype=torch.float64) + 0.5)
        first = (centre - half * wide + 0.5).trunc().long().clamp(min=0)
        count = (centre + half * wide + 0.5).trunc().long().clamp(max=n) - first
        at = first[:, None] + torch.arange(int(count.max()))
        weight = self._curve(((at - centre[:, None] + 0.5) / wide).abs())
        weight = torch.where(at < (first + count)[:, None], weight, 0.0)
        return at.clamp(max=n - 1), weight / weight.sum(1, keepdim=True)

    def _curve(self, t: torch.Tensor) -> torch.Tensor:
        if not self.cubic:
            return (1 - t).clamp(min=0)
        a = -0.5 if self.antialias else -0.75
        near, far = ((a + 2) * t - (a + 3)) * t * t + 1, ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
        return torch.where(t < 1, near, torch.where(t < 2, far, 0.0))


def _weighted(b: Builder, x: Value, scales: Sequence[Scale], kind: Filter) -> Value:
    """Interpolates one dimension after the other, the last one first. Bytes use 16-bit integer weights, as in PyTorch."""
    given = list(scales) or [None] * (x.ndim - 2)
    for d in range(x.ndim - 1, 1, -1):
        n, out = x.shape[d], b.out.shape[d]
        if n == out:
            continue
        at, weight = kind.weights(n, out, given[d - 2])
        x = _taps(b, x, d, at, weight)
    return x


def _taps(b: Builder, x: Value, d: int, at: torch.Tensor, weight: torch.Tensor) -> Value:
    picked = b.layer("Gather", x, b.const(at), axis=d)
    tail = [1] * (x.ndim - 1 - d)
    if x.dtype != torch.uint8:
        return b.reduce("Sum", b.map("mul", picked, b.const(weight.to(x.dtype).reshape(*weight.shape, *tail))), d + 1)
    largest, bits = float(weight.max()), 0
    while bits < 22 and int(0.5 + largest * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    scaled = weight * (1 << bits)
    whole = torch.where(scaled < 0, (scaled - 0.5).ceil(), (scaled + 0.5).floor()).to(torch.int32)
    products = b.map("mul", b.cast(picked, torch.int32), b.const(whole.reshape(*whole.shape, *tail)))
    total = b.add(b.reduce("Sum", products, d + 1), 1 << (bits - 1))
    down = b.map("shift_right", total, b.scalar(bits, torch.int32))
    return b.cast(b.map("clamp", down, b.scalar(0, torch.int32), b.scalar(255, torch.int32)), torch.uint8)


def _linear(align: bool) -> dict[str, object]:
    return {"mode": "linear", "coord": "align_corners" if align else "half_pixel"}


def _cubic(align: bool) -> dict[str, object]:
    return {"mode": "cubic", "coord": "align_corners" if align else "half_pixel", "a": -0.75}


NEAREST = {"mode": "nearest", "coord": "asymmetric", "round": "floor"}
EXACT = {"mode": "nearest", "coord": "half_pixel", "round": "round_prefer_ceil"}


for _name, _style in (("upsample_nearest", NEAREST), ("_upsample_nearest_exact", EXACT)):

    @op(*(f"{_name}{n}d.vec" for n in (1, 2, 3)))
    def nearest_vec(
        b: Builder,
        x: Value,
        output_size: object,
        scale_factors: Sequence[float] | None,
        style: Mapping[str, str] = _style,
    ) -> Value:
        return _resize(b, x, scale_factors or (), **style)

    @op(*(f"{_name}{n}d" for n in (1, 2, 3)))
    def nearest(
        b: Builder,
        x: Value,
        output_size: object,
        scales: Scale = None,
        scales_d: Scale = None,
        scales_h: Scale = None,
        scales_w: Scale = None,
        style: Mapping[str, str] = _style,
    ) -> Value:
        return _resize(b, x, _scales(x, scales, scales_d, scales_h, scales_w), **style)


def _scales(x: Value, one: Scale, d: Scale, h: Scale, w: Scale) -> list[Scale]:
    return {1: [one], 2: [h, w], 3: [d, h, w]}[x.ndim - 2]


@op("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec")
def linear_vec(
    b: Builder, x: Value, output_size: object, align_corners: bool, scale_factors: Sequence[float] | None
) -> Value:
    return _plain(b, x, scale_factors or (), align_corners, False)


@op("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def linear(
    b: Builder,
    x: Value,
    output_size: object,
    align_corners: bool,
    scales: Scale = None,
    scales_d: Scale = None,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Value:
    return _plain(b, x, _scales(x, scales, scales_d, scales_h, scales_w), align_corners, False)


@op("upsample_bicubic2d.vec")
def cubic_vec(
    b: Builder, x: Value, output_size: object, align_corners: bool, scale_factors: Sequence[float] | None
) -> Value:
    return _plain(b, x, scale_factors or (), align_corners, True)


@op("upsample_bicubic2d")
def cubic(b: Builder, x: Value, output_size: object, align_corners: bool, scales_h: Scale, scales_w: Scale) -> Value:
    return _plain(b, x, [scales_h, scales_w], align_corners, True)


@op("_upsample_bilinear2d_aa.vec")
def linear_aa_vec(
    b: Builder, x: Value, output_size: object, align_corners: bool, scale_factors: Sequence[float] | None
) -> Value:
    return _antialiased(b, x, scale_factors or (), align_corners, False)


@op("_upsample_bilinear2d_aa")
def linear_aa(
    b: Builder, x: Value, output_size: object, align_corners: bool, scales_h: Scale, scales_w: Scale
) -> Value:
    return _antialiased(b, x, [scales_h, scales_w], align_corners, False)


@op("_upsample_bicubic2d_aa.vec")
def cubic_aa_vec(
    b: Builder, x: Value, output_size: object, align_corners: bool, scale_factors: Sequence[float] | None
) -> Value:
    return _antialiased(b, x, scale_factors or (), align_corners, True)


@op("_upsample_bicubic2d_aa")
def cubic_aa(b: Builder, x: Value, output_size: object, align_corners: bool, scales_h: Scale, scales_w: Scale) -> Value:
    return _antialiased(b, x, [scales_h, scales_w], align_corners, True)


@op("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    b: Builder, x: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    mode = ("linear", "nearest", "cubic")[interpolation_mode]
    pad = ("zeros", "border", "reflection")[padding_mode]
    return b.layer("GridSample", x, grid, mode=mode, pad=pad, align=int(align_corners))


@shape("affine_grid_generator")
def affine_grid_like(theta: torch.Tensor, size: Sequence[int], align_corners: bool) -> torch.Tensor | None:
    """The grid for pictures of this size. PyTorch's own function makes its coordinates for numbers only."""
    pixels = len(size) - 2
    if pixels not in (2, 3) or tuple(theta.shape) != (size[0], pixels, pixels + 1):
        return None  # PyTorch raises an error
    return theta.new_empty((*theta.shape[:1], *size[2:], pixels))


@op("affine_grid_generator")
def affine_grid(b: Builder, theta: Value, size: Sequence[int], align_corners: bool) -> Value:
    if len(size) not in (4, 5):
        raise Rejected(f"argument size={list(size)}")
    return b.layer("AffineGrid", theta, size=list(size[2:]), align=int(align_corners))
