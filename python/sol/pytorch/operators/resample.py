"""Interpolation and grids."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Builder, Refused, Value
from .table import op

Scale = float | None


def _resize(b: Builder, x: Value, scales: Sequence[Scale], **attrs: object) -> Value:
    """Sizes are those of the result; a given factor enters the coordinates (0: from the sizes)."""
    pixels = x.ndim - 2
    given = [0.0 if s is None else float(s) for s in scales] or [0.0] * pixels
    if any(s <= 0 for s in given if s):
        given = [0.0] * pixels
    return b.layer("Resize", x, size=list(b.out.shape), scale=[0.0, 0.0, *given], **attrs)


def _antialiased(align: bool, mode: dict[str, object]) -> dict[str, object]:
    if align:
        raise Refused("antialias=True with align_corners=True")
    return mode | {"antialias": 1, "exclude": 1}


def _linear(align: bool) -> dict[str, object]:
    return {"mode": "linear", "coord": "align_corners" if align else "half_pixel"}


def _cubic(align: bool) -> dict[str, object]:
    return {"mode": "cubic", "coord": "align_corners" if align else "half_pixel", "a": -0.75}


NEAREST = {"mode": "nearest", "coord": "asymmetric", "round": "floor"}
EXACT = {"mode": "nearest", "coord": "half_pixel", "round": "round_prefer_ceil"}


@op("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def nearest_vec(b: Builder, x: Value, output_size: object, scale_factors: Sequence[float] | None) -> Value:
    return _resize(b, x, scale_factors or (), **NEAREST)


@op("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def nearest(
    b: Builder,
    x: Value,
    output_size: object,
    scales: Scale = None,
    scales_d: Scale = None,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Value:
    return _resize(b, x, _scales(x, scales, scales_d, scales_h, scales_w), **NEAREST)


def _scales(x: Value, one: Scale, d: Scale, h: Scale, w: Scale) -> list[Scale]:
    return {1: [one], 2: [h, w], 3: [d, h, w]}[x.ndim - 2]


@op("_upsample_nearest_exact1d.vec", "_upsample_nearest_exact2d.vec", "_upsample_nearest_exact3d.vec")
def exact_vec(b: Builder, x: Value, output_size: object, scale_factors: Sequence[float] | None) -> Value:
    return _resize(b, x, scale_factors or (), **EXACT)


@op("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d")
def exact(
    b: Builder,
    x: Value,
    output_size: object,
    scales: Scale = None,
    scales_d: Scale = None,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Value:
    return _resize(b, x, _scales(x, scales, scales_d, scales_h, scales_w), **EXACT)


@op("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec")
def linear_vec(
    b: Builder, x: Value, output_size: object, align_corners: bool, scale_factors: Sequence[float] | None
) -> Value:
    return _resize(b, x, scale_factors or (), **_linear(align_corners))


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
    return _resize(b, x, _scales(x, scales, scales_d, scales_h, scales_w), **_linear(align_corners))


@op("upsample_bicubic2d.vec")
def cubic_vec(
    b: Builder, x: Value, output_size: object, align_corners: bool, scale_factors: Sequence[float] | None
) -> Value:
    return _resize(b, x, scale_factors or (), **_cubic(align_corners))


@op("upsample_bicubic2d")
def cubic(b: Builder, x: Value, output_size: object, align_corners: bool, scales_h: Scale, scales_w: Scale) -> Value:
    return _resize(b, x, [scales_h, scales_w], **_cubic(align_corners))


@op("_upsample_bilinear2d_aa.vec")
def linear_aa_vec(
    b: Builder, x: Value, output_size: object, align_corners: bool, scale_factors: Sequence[float] | None
) -> Value:
    return _resize(b, x, scale_factors or (), **_antialiased(align_corners, _linear(False)))


@op("_upsample_bilinear2d_aa")
def linear_aa(
    b: Builder, x: Value, output_size: object, align_corners: bool, scales_h: Scale, scales_w: Scale
) -> Value:
    return _resize(b, x, [scales_h, scales_w], **_antialiased(align_corners, _linear(False)))


@op("_upsample_bicubic2d_aa.vec")
def cubic_aa_vec(
    b: Builder, x: Value, output_size: object, align_corners: bool, scale_factors: Sequence[float] | None
) -> Value:
    return _resize(b, x, scale_factors or (), **_antialiased(align_corners, _cubic(False) | {"a": -0.5}))


@op("_upsample_bicubic2d_aa")
def cubic_aa(b: Builder, x: Value, output_size: object, align_corners: bool, scales_h: Scale, scales_w: Scale) -> Value:
    return _resize(b, x, [scales_h, scales_w], **_antialiased(align_corners, _cubic(False) | {"a": -0.5}))


@op("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    b: Builder, x: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    mode = ("linear", "nearest", "cubic")[interpolation_mode]
    pad = ("zeros", "border", "reflection")[padding_mode]
    return b.layer("GridSample", x, grid, mode=mode, pad=pad, align=int(align_corners))


@op("affine_grid_generator")
def affine_grid(b: Builder, theta: Value, size: Sequence[int], align_corners: bool) -> Value:
    if len(size) not in (4, 5):
        raise Refused(f"argument size={list(size)}")
    return b.layer("AffineGrid", theta, size=list(size[2:]), align=int(align_corners))
