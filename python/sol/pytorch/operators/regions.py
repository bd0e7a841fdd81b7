"""torchvision's operators that read a picture between its pixels: regions of interest, and convolutions at moved positions.

Both interpolate linearly. A position's two neighbours along an axis, and their weights, do not depend on the other axis, so a read is
an index of each axis with the neighbours as a dimension of its own, and a reduction over these dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..builder import Builder, Number, Rejected, Value
from .table import op


@dataclass
class Neighbours:
    """Two pixels beside each position along an axis, in a new last dimension: where, and their weights."""

    at: Value
    weights: Value

    def spread(self, b: Builder, ndim: int, dims: Sequence[int]) -> Neighbours:
        """As tensors of `ndim` dimensions, with the own ones at `dims`."""
        shape = [1] * ndim
        for d, n in zip(dims, self.at.shape, strict=True):
            shape[d] = n
        return Neighbours(b.reshape(self.at, shape), b.reshape(self.weights, shape))


def _clamp(b: Builder, x: Value, low: Number, high: Any) -> Value:
    return b.map("clamp", x, b.scalar(low, x.dtype), b.scalar(high, x.dtype))


def _both(b: Builder, first: Value, second: Value) -> Value:
    return b.layer("Stack", first, second, axis=first.ndim)


def _up_to_border(b: Builder, at: Value, n: Any) -> Neighbours:
    """Positions up to one pixel outside take the border's value, others outside 0."""
    inside = b.map("logical_and", b.compare("ge", at, -1.0), b.compare("le", at, b.scalar(n, at.dtype)))
    held = _clamp(b, b.where(inside, at, 0.0), 0.0, n - 1)
    low = b.map("floor", held)
    rest = b.sub(held, low)
    weights = _both(b, b.sub(b.scalar(1.0, at.dtype), rest), rest)
    first = b.cast(low, torch.int64)
    where = _both(b, first, b.map("min", b.add(first, 1), b.scalar(n - 1, torch.int64)))
    return Neighbours(where, b.where(b.unsqueeze(inside, at.ndim), weights, 0.0))


def _zero_outside(b: Builder, at: Value, n: Any) -> Neighbours:
    """Pixels outside are 0."""
    inside = b.map("logical_and", b.compare("gt", at, -1.0), b.compare("lt", at, b.scalar(n, at.dtype)))
    held = b.where(inside, at, -1.0)
    low = b.map("floor", held)
    rest = b.sub(held, low)
    where = _both(b, low, b.add(low, 1.0))
    seen = b.map("logical_and", b.compare("ge", where, 0.0), b.compare("lt", where, b.scalar(n, at.dtype)))
    weights = b.where(seen, _both(b, b.sub(b.scalar(1.0, at.dtype), rest), rest), 0.0)
    return Neighbours(b.cast(_clamp(b, where, 0.0, n - 1), torch.int64), weights)


# -- regions of interest


class Most(int):
    """The argument `sampling_ratio` where each box has a number of points of its own: the largest."""


def most_points(scale: float, height: int, width: int, aligned: bool, rois: torch.Tensor) -> int:
    """The most points that a bin of a box has along an axis."""
    sides = (rois[:, 3:5] - rois[:, 1:3]) * scale
    sides = sides if aligned else sides.clamp(min=1.0)
    return max(1, int((sides / sides.new_tensor([width, height])).ceil().max())) if len(rois) else 1


def _points(b: Builder, start: Value, side: Value, bins: int, count: int) -> tuple[Value, Value]:
    """Positions [box, bin, point] along an axis, and the share of each point in its bin's mean."""
    step = b.div(side, float(bins))
    number: Value = b.scalar(count, start.dtype)
    share: Value = b.scalar(1.0 / count, start.dtype)
    k = b.const(torch.arange(count, dtype=start.dtype).reshape(1, 1, count))
    if isinstance(count, Most):  # as many as pixels
        number = b.reshape(b.map("ceil", step), [start.shape[0], 1, 1])
        share = b.where(b.map("lt", k, number), b.map("reciprocal", b.map("max", number, b.scalar(1.0, k.dtype))), 0.0)
        number = b.map("max", number, b.scalar(1.0, k.dtype))
    first, step = b.reshape(start, [start.shape[0], 1, 1]), b.reshape(step, [start.shape[0], 1, 1])
    bin_ = b.const(torch.arange(bins, dtype=start.dtype).reshape(1, bins, 1))
    inside = b.map("div", b.map("mul", b.add(k, 0.5), step), number)
    return b.map("add", b.map("add", first, b.map("mul", bin_, step)), inside), share


def boxes_of(b: Builder, rois: Value, scale: float) -> tuple[Value, list[Value]]:
    """Of each box, the number of its picture, and its scaled borders x0, y0, x1, y1. They have no gradient."""
    boxes = b.layer("stop", rois) if rois.tracked else rois
    numbers = [b.layer("Select", boxes, axis=1, index=k) for k in range(5)]
    return b.cast(numbers[0], torch.int64), [b.mul(v, scale) for v in numbers[1:]]


@dataclass
class Sampled:
    """Points in the bins of boxes: pixels [box, bin, 2 * points] and their weights, along rows and along columns."""

    picture: Value
    rows: Neighbours
    columns: Neighbours

    def mean(self, b: Builder, x: Value, bins: Sequence[Value] = ()) -> Value:
        """Of each bin, for pictures [picture, (bin, bin,) row, column, channel], where `bins` are numbers of the bins."""
        y, w = self.rows.spread(b, 5, (0, 1, 2)), self.columns.spread(b, 5, (0, 3, 4))
        picture = b.reshape(self.picture, [self.picture.shape[0], 1, 1, 1, 1])
        read = b.layer("Index", x, picture, *bins, y.at, w.at, dims=list(range(3 + len(bins))))
        weighted = b.map("mul", read, b.unsqueeze(b.map("mul", y.weights, w.weights), 5))
        return b.permute(b.reduce("Sum", weighted, [2, 4]), [0, 3, 1, 2])


def _sampled(
    b: Builder, x: Value, rois: Value, scale: float, bins: Sequence[int], ratio: int, aligned: bool
) -> Sampled:
    if ratio <= 0:
        raise Rejected(f"argument sampling_ratio={ratio} without values of the boxes")
    picture, borders = boxes_of(b, rois, scale)
    x0, y0, x1, y1 = (b.sub(v, 0.5 if aligned else 0.0) for v in borders)
    axes = []
    for start, end, count, n in ((y0, y1, bins[0], x.shape[2]), (x0, x1, bins[1], x.shape[3])):
        side = b.sub(end, start)
        side = side if aligned else b.map("max", side, b.scalar(1.0, side.dtype))
        at, share = _points(b, start, side, count, ratio)
        found = _up_to_border(b, at, n)
        share = b.unsqueeze(share, share.ndim) if share.ndim else share
        shape = [rois.shape[0], count, 2 * int(ratio)]
        weights = b.reshape(b.map("mul", found.weights, share), shape)
        axes.append(Neighbours(b.reshape(found.at, shape), weights))
    return Sampled(picture, *axes)


@op("torchvision.roi_align.default")
def roi_align(
    b: Builder,
    x: Value,
    rois: Value,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Value:
    """The mean of points of a picture in each bin of each box. No gradient for the boxes."""
    bins = (pooled_height, pooled_width)
    return _sampled(b, x, rois, spatial_scale, bins, sampling_ratio, aligned).mean(b, b.permute(x, [0, 2, 3, 1]))


# -- each bin reads channels of its own ("position-sensitive")


def channels_by_bin(b: Builder, x: Value, height: int, width: int, boxes: int) -> tuple[Value, Value]:
    """Pictures as [picture, channel, bin, bin, row, column], and which channel each bin of each box reads."""
    n, channels, *rest = x.shape
    shape = [channels // (height * width), height, width]
    numbers = b.cast(b.layer("Range", n=channels, to="i64"), torch.int32)
    return b.reshape(x, [n, *shape, *rest]), b.expand(b.reshape(numbers, [1, *shape]), [boxes, *shape])


@op("torchvision.ps_roi_align.default")
def ps_roi_align(
    b: Builder, x: Value, rois: Value, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[Value, Value]:
    """Like roi_align."""
    bins = (pooled_height, pooled_width)
    found = _sampled(b, x, rois, spatial_scale, bins, sampling_ratio, True)
    by_bin, channels = channels_by_bin(b, x, *bins, rois.shape[0])
    row = b.const(torch.arange(bins[0]).reshape(1, -1, 1, 1, 1))
    column = b.const(torch.arange(bins[1]).reshape(1, 1, 1, -1, 1))
    return found.mean(b, b.permute(by_bin, [0, 2, 3, 4, 5, 1]), (row, column)), channels


# -- deformable convolution


def _moved(b: Builder, offset: Value, taps: torch.Tensor, axis: int, step: int, start: int) -> Value:
    """Positions [picture, group, tap, row, column] along an axis, moved by offset[picture, group, tap, row, column]."""
    n = offset.shape[3 + axis]
    at = b.cast(b.layer("Range", n=n, start=float(start), step=float(step), to="i64"), offset.dtype)
    at = b.reshape(at, [n, 1] if axis == 0 else [n])
    tap = b.const(taps.to(offset.dtype).reshape(1, 1, len(taps), 1, 1))
    return b.map("add", offset, b.map("add", tap, at))


@op("torchvision.deform_conv2d.default")
def deform_conv2d(
    b: Builder,
    x: Value,
    weight: Value,
    offset: Value,
    mask: Value,
    bias: Value,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Value:
    """A convolution whose taps read at positions of their own: the reads, then a convolution of 1 x 1."""
    images, channels, height, width = x.shape
    out, each, kh, kw = weight.shape
    rows, columns = offset.shape[2:]
    inner = [images, offset_groups, kh * kw, rows, columns]
    moves = b.reshape(offset, [*inner[:3], 2, rows, columns])
    by_y, by_x = (b.layer("Select", moves, axis=3, index=k) for k in (0, 1))
    tap_y = (torch.arange(kh) * dilation_h).repeat_interleave(kw)
    tap_x = (torch.arange(kw) * dilation_w).repeat(kh)
    y = _zero_outside(b, _moved(b, by_y, tap_y, 0, stride_h, -pad_h), height).spread(b, 7, (0, 1, 2, 3, 4, 5))
    w = _zero_outside(b, _moved(b, by_x, tap_x, 1, stride_w, -pad_w), width).spread(b, 7, (0, 1, 2, 3, 4, 6))
    picture = b.reshape(b.layer("Range", n=images, to="i64"), [images, *[1] * 6])
    group = b.reshape(b.layer("Range", n=offset_groups, to="i64"), [1, offset_groups, *[1] * 5])
    grouped = b.reshape(x, [images, offset_groups, channels // offset_groups, height, width])
    read = b.layer("Index", b.permute(grouped, [0, 1, 3, 4, 2]), picture, group, y.at, w.at, dims=[0, 1, 2, 3])
    weights = b.map("mul", y.weights, w.weights)
    if use_mask:
        weights = b.map("mul", weights, b.reshape(mask, [*inner, 1, 1]))
    read = b.reduce("Sum", b.map("mul", read, b.unsqueeze(weights, 7)), [5, 6])
    taps = b.reshape(b.permute(read, [0, 1, 5, 2, 3, 4]), [images, channels * kh * kw, rows, columns])
    one, none = [1, 1], [0, 0]
    flat = b.reshape(weight, [out, each * kh * kw, 1, 1])
    return b.layer("Conv", taps, flat, bias, g=groups, s=one, p=none, q=none, d=one)
