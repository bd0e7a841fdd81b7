"""Counts of values: histograms, combinations, covariances."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch

from ..builder import Builder, Number, Rejected, Value
from .table import op, shape

MOST = 1 << 20  # elements of a constant


def tally(b: Builder, bins: Value, n: int, weight: Value) -> Value:
    """The sum of the weights (or of one number for all) in each of n bins. Bins outside of 0..n-1 are ignored."""
    return b.layer("IndexPut", b.fill([n], 0, weight.dtype), weight, bins, dims=[0], mode="add", skip=1)


def _flat(b: Builder, x: Value) -> Value:
    return b.reshape(x, [math.prod(x.shape)])


def _range(b: Builder, x: Value, low: Number, high: Number, more: float) -> tuple[Value, Value]:
    """The range of the bins. Without a given range it is that of all values; if these are equal, it is extended by
    `more` at both ends."""
    first, last = b.scalar(low, x.dtype), b.scalar(high, x.dtype)
    if low != high:
        return first, last
    if x.shape[0]:
        first, last = b.reduce("Min", x, 0), b.reduce("Max", x, 0)
    same = b.map("eq", first, last)
    return b.where(same, b.sub(first, more), first), b.where(same, b.add(last, more), last)


@op("histc")
def histc(b: Builder, x: Value, bins: int, min: Number, max: Number) -> Value:
    """The last bin includes its right end. NaN is in no bin."""
    x = _flat(b, x)
    first, last = _range(b, x, min, max, 1.0)
    wide = b.map("div", b.mul(b.map("sub", x, first), bins), b.map("sub", last, first))
    inside = b.map("logical_and", b.map("ge", x, first), b.map("le", x, last))
    place = b.cast(b.map("floor", b.where(inside, wide, -1)), torch.int64)
    place = b.map("min", place, b.scalar(bins - 1, torch.int64))
    return tally(b, place, bins, b.scalar(1, x.dtype))


def _histogram(b: Builder, x: Value, edges: Value, weight: Value | None, density: bool) -> Value:
    x, n = _flat(b, x), edges.shape[0] - 1
    place = b.sub(b.layer("Bucketize", x, edges, right=1), 1)
    last = b.layer("Select", edges, axis=0, index=n)
    place = _last_closed(b, x, last, place, n)
    sums = tally(b, place, n, b.scalar(1, x.dtype) if weight is None else _flat(b, weight))
    if not density:
        return sums
    widths = b.map("sub", b.slice(edges, 0, 1, n + 1), b.slice(edges, 0, 0, n))
    return b.map("div", b.map("div", sums, b.reduce("Sum", sums, 0)), widths)


def _last_closed(b: Builder, x: Value, last: Value, place: Value, n: int) -> Value:
    """Puts the right end into the last bin. NaN, which sorts last, goes into none."""
    place = b.where(b.map("eq", x, last), b.scalar(n - 1, torch.int64), place)
    return b.where(b.map("isnan", x), b.scalar(-1, torch.int64), place)


@op("histogram.bins_tensor")
def histogram_edges(b: Builder, x: Value, bins: Value, weight: Value | None, density: bool) -> tuple[Value, Value]:
    return _histogram(b, x, bins, weight, density), bins


@op("histogram.bin_ct")
def histogram_bins(
    b: Builder, x: Value, bins: int, range: Sequence[float] | None, weight: Value | None, density: bool
) -> tuple[Value, Value]:
    """Bins of equal width over the given range, or over the range of all values."""
    low, high = range or (0.0, 0.0 if math.prod(x.shape) else 1.0)
    if low != high:
        edges = b.const(torch.linspace(low, high, bins + 1, dtype=x.dtype))
    else:
        ends = _range(b, _flat(b, x), low, high, 0.5)
        edges = b.map("lerp", *ends, b.const(torch.linspace(0, 1, bins + 1, dtype=x.dtype)))
    return _histogram(b, x, edges, weight, density), edges


@shape("combinations")
def combinations_shape(x: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    n = x.shape[0] + (r - 1 if with_replacement and x.shape[0] else 0)
    return x.new_empty((math.comb(n, r), r) if r else (0,))


@op("combinations")
def combinations(b: Builder, x: Value, r: int, with_replacement: bool) -> Value:
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    count = math.comb(x.shape[0] + r - 1, r) if with_replacement and x.shape[0] else math.comb(x.shape[0], r)
    if count * r > MOST:
        raise Rejected(f"{count} combinations")
    rows = list(choose(range(x.shape[0]), r))
    if not rows or not r:
        return b.fill(b.out.shape, 0, x.dtype)
    return b.layer("Gather", x, b.const(torch.tensor(rows)), axis=0)


@shape("cov", "corrcoef")
def cov_shape(x: torch.Tensor, **options: object) -> torch.Tensor:
    n = x.shape[0] if x.ndim > 1 else 1
    return x.new_empty(() if n == 1 else (n, n), dtype=x.dtype if x.is_floating_point() else torch.get_default_dtype())


@op("cov")
def cov(b: Builder, x: Value, correction: int, fweights: Value | None, aweights: Value | None) -> Value:
    """The covariance of variables in rows. Observations may have frequency weights and reliability weights."""
    x = b.reshape(b.to_out(x), [1, math.prod(x.shape)] if x.ndim < 2 else x.shape)
    given = [b.to_out(w) for w in (fweights, aweights) if w is not None]
    if not given:
        n = x.shape[1]
        mean = b.reduce("Mean", x, 1, True) if n else b.fill([x.shape[0], 1], math.nan, x.dtype)
        centred = b.map("sub", x, mean)
        product = b.layer("MatMul", centred, b.transpose(centred))
        return b.reshape(b.div(product, max(n - correction, 0)), b.out.shape)
    weight = given[0] if len(given) == 1 else b.map("mul", *given)
    total = b.reduce("Sum", weight, 0)
    mean = b.map("div", b.reduce("Sum", b.map("mul", x, weight), 1, True), total)
    norm = b.mul(total, 1)
    if aweights is None or correction == 0:
        norm = b.sub(total, correction)
    else:
        squares = b.reduce("Sum", b.map("mul", weight, b.to_out(aweights)), 0)
        norm = b.map("sub", total, b.mul(b.map("div", squares, total), correction))
    norm = b.map("max", norm, b.scalar(0, x.dtype))
    centred = b.map("sub", x, mean)
    product = b.layer("MatMul", b.map("mul", centred, weight), b.transpose(centred))
    return b.reshape(b.map("div", product, norm), b.out.shape)


@op("corrcoef")
def corrcoef(b: Builder, x: Value) -> Value:
    y = cov(b, x, 1, None, None)
    if y.ndim == 0:
        return b.map("div", y, y)
    deviation = b.map("sqrt", b.layer("Diagonal", y, k=0, axis1=0, axis2=1))
    y = b.map("div", b.map("div", y, b.unsqueeze(deviation, 1)), b.unsqueeze(deviation, 0))
    return b.map("clamp", y, b.scalar(-1, y.dtype), b.scalar(1, y.dtype))
