"""torchvision's pools of whole pixels in the bins of boxes. A bin's pixels follow from data, but its rows do not depend on its columns: a
pool is a reduction over all columns, then over all rows, of what the bin has."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..builder import Builder, Value
from .regions import boxes_of, channels_by_bin
from .table import op


def _rounded(b: Builder, x: Value) -> Value:
    """To whole numbers, halves away from zero, as in C."""
    whole = b.map("trunc", x)
    far = b.compare("ge", b.map("abs", b.sub(x, whole)), 0.5)
    return b.map("add", whole, b.where(far, b.map("sign", x), 0.0))


@dataclass
class Bins:
    """Pixels along an axis: which of them each bin has [box, bin, pixel], and how many [box, bin]."""

    has: Value
    count: Value


def _bins(b: Builder, start: Value, side: Value, bins: int, n: int, last: int) -> Bins:
    """Equal bins of `side` pixels from `start` on, rounded outwards, up to `last` of n pixels."""
    boxes, kind = start.shape[0], start.dtype
    step, start = (b.reshape(v, [boxes, 1]) for v in (b.div(side, float(bins)), start))
    ends = []
    for rounded, number in (("floor", 0), ("ceil", 1)):
        k = b.const(torch.arange(number, bins + number, dtype=kind).reshape(1, bins))
        at = b.map("add", b.map(rounded, b.map("mul", k, step)), start)
        ends.append(b.map("clamp", at, b.scalar(0.0, kind), b.scalar(last, kind)))
    count = b.map("max", b.sub(ends[1], ends[0]), b.scalar(0.0, kind))
    low, high = (b.reshape(v, [boxes, bins, 1]) for v in ends)
    pixel = b.cast(b.layer("Range", n=n, to="i64"), kind)
    return Bins(b.map("logical_and", b.map("le", low, pixel), b.map("lt", pixel, high)), count)


def _both_axes(
    b: Builder, x: Value, rois: Value, scale: float, bins: tuple[int, int], closed: bool
) -> tuple[Value, Bins, Bins]:
    """The picture of each box, and its bins along rows and columns. closed: a box has the pixels of its end, too."""
    picture, borders = boxes_of(b, rois, scale)
    x0, y0, x1, y1 = (_rounded(b, v) for v in borders)
    axes = []
    for start, end, count, n in ((y0, y1, bins[0], x.shape[2]), (x0, x1, bins[1], x.shape[3])):
        side = b.map("max", b.add(b.sub(end, start), float(closed)), b.scalar(1.0, start.dtype))
        axes.append(_bins(b, start, side, count, n, n if closed else n - 1))
    return picture, axes[0], axes[1]


def _is_empty(b: Builder, rows: Bins, columns: Bins) -> Value:
    """[box, 1, bin, bin]"""
    (boxes, height), width = rows.count.shape, columns.count.shape[1]
    none = (
        b.compare("eq", v, 0.0)
        for v in (b.reshape(rows.count, [boxes, 1, height, 1]), b.reshape(columns.count, [boxes, 1, 1, width]))
    )
    return b.map("logical_or", *none)


@op("torchvision.roi_pool.default")
def roi_pool(
    b: Builder, x: Value, rois: Value, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Value, Value]:
    """The largest pixel of each bin, and its position. The gradient goes to the first of equal ones, as in torchvision."""
    picture, rows, columns = _both_axes(b, x, rois, spatial_scale, (pooled_height, pooled_width), True)
    boxes, (channels, height, width) = rois.shape[0], x.shape[1:]
    lowest = torch.finfo(x.dtype).min
    seen = b.layer("Gather", b.layer("stop", x) if x.tracked else x, picture, axis=0)
    by_bin = b.reshape(columns.has, [boxes, 1, 1, pooled_width, width])
    in_row = b.where(by_bin, b.reshape(seen, [boxes, channels, height, 1, width]), lowest)
    best = b.permute(b.reduce("Max", in_row, 4), [0, 1, 3, 2])  # [box, channel, bin, row]
    best = b.reshape(best, [boxes, channels, 1, pooled_width, height])
    row = b.layer(
        "ArgMax", b.where(b.reshape(rows.has, [boxes, 1, pooled_height, 1, height]), best, lowest), axis=4, keep=0
    )
    box, channel, bin_ = (
        b.reshape(b.layer("Range", n=n, to="i64"), [n, *[1] * k])
        for n, k in ((boxes, 3), (channels, 2), (pooled_width, 0))
    )
    column = b.layer("Index", b.layer("ArgMax", in_row, axis=4, keep=0), box, channel, row, bin_, dims=[0, 1, 2, 3])
    read = b.layer("Index", x, b.reshape(picture, [boxes, 1, 1, 1]), channel, row, column, dims=[0, 1, 2, 3])
    has = b.map("logical_not", _is_empty(b, rows, columns))
    at = b.where(has, b.add(b.mul(row, width), column), -1)
    return b.where(has, read, 0.0), b.cast(at, torch.int32)


@op("torchvision.ps_roi_pool.default")
def ps_roi_pool(
    b: Builder, x: Value, rois: Value, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Value, Value]:
    """The mean of each bin, which reads channels of its own. As in torchvision, the last row and column belong to no bin."""
    bins = (pooled_height, pooled_width)
    picture, rows, columns = _both_axes(b, x, rois, spatial_scale, bins, False)
    by_bin, channels = channels_by_bin(b, x, *bins, rois.shape[0])
    boxes, height, width = rois.shape[0], *x.shape[2:]
    seen = b.layer("Gather", by_bin, picture, axis=0)
    total = b.reduce("Sum", b.where(b.reshape(columns.has, [boxes, 1, 1, bins[1], 1, width]), seen, 0.0), 5)
    total = b.reduce("Sum", b.where(b.reshape(rows.has, [boxes, 1, bins[0], 1, height]), total, 0.0), 4)
    area = b.map("mul", b.reshape(rows.count, [boxes, 1, bins[0], 1]), b.reshape(columns.count, [boxes, 1, 1, bins[1]]))
    return b.map("div", total, b.map("max", area, b.scalar(1.0, area.dtype))), channels
