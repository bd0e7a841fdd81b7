"""Reductions, cumulative sums, sorting."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..builder import Builder, Number, Rejected, Value, axis_of
from .table import op

Dims = Sequence[int] | int | None


def _axes(x: Value, dims: Dims) -> list[int]:
    dims = [dims] if isinstance(dims, int) else list(dims or [])
    return sorted({axis_of(d, x.ndim) for d in dims}) or list(range(x.ndim))


def _count(x: Value, dims: Dims) -> int:
    return math.prod(x.shape[d] for d in _axes(x, dims))


# -- sums, and reductions made of sums


@op("sum", "sum.dim_IntList")
def sum_(b: Builder, x: Value, dim: Dims = None, keepdim: bool = False, dtype: object = None) -> Value:
    return b.reduce("Sum", b.to_out(x), dim, keepdim)


@op("mean", "mean.dim")
def mean(b: Builder, x: Value, dim: Dims = None, keepdim: bool = False, dtype: object = None) -> Value:
    return b.reduce("Mean", b.to_out(x), dim, keepdim)


@op("prod", "prod.dim_int")
def prod(b: Builder, x: Value, dim: Dims = None, keepdim: bool = False, dtype: object = None) -> Value:
    return b.reduce("Prod", b.to_out(x), dim, keepdim)


@op("nansum")
def nansum(b: Builder, x: Value, dim: Dims, keepdim: bool, dtype: object) -> Value:
    x = b.to_out(x)
    return b.reduce("Sum", b.where(b.map("isnan", x), b.scalar(0, x.dtype), x) if x.is_float else x, dim, keepdim)


@op("nanmean")
def nanmean(b: Builder, x: Value, dim: Dims, keepdim: bool, dtype: object) -> Value:
    x = b.to_out(x)
    seen = b.cast(b.map("logical_not", b.map("isnan", x)), x.dtype)
    return b.map("div", nansum(b, x, dim, keepdim, None), b.reduce("Sum", seen, dim, keepdim))


@op("logsumexp", "special_logsumexp")
def logsumexp(b: Builder, x: Value, dim: Dims, keepdim: bool) -> Value:
    return b.reduce("LogSumExp", b.to_out(x), dim, keepdim)


@op("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(b: Builder, x: Value, dim: Dims) -> Value:
    return b.reduce("Sum", b.cast(b.cast(x, torch.bool), torch.int64), dim)


@op("any", "any.dim", "any.dims")
def any_(b: Builder, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    return b.cast(_logic(b, "Any", x, dim, keepdim), b.out.dtype)


@op("all", "all.dim", "all.dims")
def all_(b: Builder, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    return b.cast(_logic(b, "All", x, dim, keepdim), b.out.dtype)


def _logic(b: Builder, kind: str, x: Value, dim: Dims, keep: bool) -> Value:
    if isinstance(dim, list | tuple) and not dim and b.out.shape == x.shape and x.ndim:
        return b.cast(x, torch.bool)  # dims=[] reduces nothing
    return b.reduce(kind, x, dim, keep)


# -- moments


def _moments(b: Builder, x: Value, dim: Dims, keep: bool, correction: Number) -> tuple[Value, Value]:
    mean = b.reduce("Mean", x, dim, keep)
    if correction == int(correction):
        return b.reduce("Var", x, dim, keep, correction=int(correction)), mean
    n = _count(x, dim)
    left = max(n - correction, 0)
    return b.mul(b.reduce("Var", x, dim, keep, correction=0), n / left if left else math.nan), mean


def _correction(unbiased: bool, correction: Number | None) -> Number:
    return int(unbiased) if correction is None else correction


@op("var", "var.dim")
def var(b: Builder, x: Value, dim: Dims = None, unbiased: bool = True, keepdim: bool = False) -> Value:
    return _moments(b, x, dim, keepdim, int(unbiased))[0]


@op("var.correction")
def var_correction(b: Builder, x: Value, dim: Dims, correction: Number | None, keepdim: bool) -> Value:
    return _moments(b, x, dim, keepdim, _correction(True, correction))[0]


@op("std", "std.dim")
def std(b: Builder, x: Value, dim: Dims = None, unbiased: bool = True, keepdim: bool = False) -> Value:
    return b.map("norm_sqrt", var(b, x, dim, unbiased, keepdim))


@op("std.correction")
def std_correction(b: Builder, x: Value, dim: Dims, correction: Number | None, keepdim: bool) -> Value:
    return b.map("norm_sqrt", var_correction(b, x, dim, correction, keepdim))


@op("var_mean", "var_mean.dim")
def var_mean(
    b: Builder, x: Value, dim: Dims = None, unbiased: bool = True, keepdim: bool = False
) -> tuple[Value, Value]:
    return _moments(b, x, dim, keepdim, int(unbiased))


@op("var_mean.correction")
def var_mean_correction(
    b: Builder, x: Value, dim: Dims, correction: Number | None, keepdim: bool
) -> tuple[Value, Value]:
    return _moments(b, x, dim, keepdim, _correction(True, correction))


@op("std_mean", "std_mean.dim")
def std_mean(
    b: Builder, x: Value, dim: Dims = None, unbiased: bool = True, keepdim: bool = False
) -> tuple[Value, Value]:
    v, m = _moments(b, x, dim, keepdim, int(unbiased))
    return b.map("norm_sqrt", v), m


@op("std_mean.correction")
def std_mean_correction(
    b: Builder, x: Value, dim: Dims, correction: Number | None, keepdim: bool
) -> tuple[Value, Value]:
    v, m = _moments(b, x, dim, keepdim, _correction(True, correction))
    return b.map("norm_sqrt", v), m


# -- norms


def _norm(b: Builder, x: Value, p: Number | str | None, dim: Dims, keep: bool) -> Value:
    x = b.to_out(x)
    if p in (None, "fro", 2):
        return b.reduce("L2", x, dim, keep)
    if isinstance(p, str):
        raise Rejected(f"norm {p!r}")
    if p == 1:
        return b.reduce("L1", x, dim, keep)
    return b.reduce("LpNorm", x, dim, keep, n=float(p))


@op("linalg_vector_norm")
def vector_norm(b: Builder, x: Value, ord: Number, dim: Dims, keepdim: bool, dtype: object) -> Value:
    return _norm(b, x, ord, dim, keepdim)


@op("norm.Scalar", "norm.ScalarOpt_dim", "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim_dtype")
def norm(
    b: Builder, x: Value, p: Number | None, dim: Dims = None, keepdim: bool = False, dtype: object = None
) -> Value:
    return _norm(b, x, p, dim, keepdim)


@op("frobenius_norm.dim")
def frobenius_norm(b: Builder, x: Value, dim: Dims, keepdim: bool) -> Value:
    return _norm(b, x, None, dim, keepdim)


@op("cosine_similarity")
def cosine_similarity(b: Builder, x1: Value, x2: Value, dim: int = 1, eps: float = 1e-8) -> Value:
    """The cosine of the angle between vectors. Norms are at least `eps`; as in PyTorch, their gradients do not see that limit."""
    scaled, ndim = [], max(x1.ndim, x2.ndim)
    padded = ([1] * (ndim - x.ndim) + list(x.shape) for x in (x1, x2))
    shape = [m if n == 1 else n for n, m in zip(*padded, strict=True)]
    for x in b.promote(x1, x2):
        x = b.expand(x, shape)
        norm = b.reduce("L2", x, dim, True)
        limited = b.layer("stop", b.map("max", norm, b.scalar(eps, norm.dtype)))
        gradient = b.fill(norm.shape, 0, norm.dtype)
        scaled.append(b.div(x, b.layer("Graft", limited, gradient, norm, gradient)))
    return b.reduce("Sum", b.mul(*scaled), dim)


# -- maximum and minimum


def _extreme(b: Builder, kind: str, x: Value, dim: Dims, keep: bool) -> Value:
    if x.dtype == torch.bool:
        return b.reduce({"Max": "Any", "Min": "All"}[kind], x, dim, keep)
    return b.reduce(kind, x, dim, keep)


@op("amax", "max")
def amax(b: Builder, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    return _extreme(b, "Max", x, dim, keepdim)


@op("amin", "min")
def amin(b: Builder, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    return _extreme(b, "Min", x, dim, keepdim)


@op("aminmax")
def aminmax(b: Builder, x: Value, dim: int | None, keepdim: bool) -> tuple[Value, Value]:
    return amin(b, x, dim, keepdim), amax(b, x, dim, keepdim)


def _best(b: Builder, kind: str, x: Value, dim: int, keep: bool) -> tuple[Value, Value]:
    if x.ndim == 0:
        return x, b.fill([], 0, torch.int64)
    dtype, x = x.dtype, b.cast(x, torch.uint8) if x.dtype == torch.bool else x
    y, at = b.layers(kind, x, outputs=2, axis=axis_of(dim, x.ndim), keep=int(keep))
    return b.cast(y, dtype), at


@op("max.dim")
def max_dim(b: Builder, x: Value, dim: int, keepdim: bool) -> tuple[Value, Value]:
    return _best(b, "MaxAt", x, dim, keepdim)


@op("min.dim")
def min_dim(b: Builder, x: Value, dim: int, keepdim: bool) -> tuple[Value, Value]:
    return _best(b, "MinAt", x, dim, keepdim)


def _arg(b: Builder, kind: str, x: Value, dim: int | None, keep: bool) -> Value:
    if dim is None:
        at = b.layer(kind, b.reshape(x, [math.prod(x.shape)]), axis=0)
        return b.reshape(at, b.out.shape)
    if x.ndim == 0:
        return b.fill([], 0, torch.int64)
    return b.layer(kind, x, axis=axis_of(dim, x.ndim), keep=int(keep))


@op("argmax")
def argmax(b: Builder, x: Value, dim: int | None, keepdim: bool) -> Value:
    return _arg(b, "ArgMax", x, dim, keepdim)


@op("argmin")
def argmin(b: Builder, x: Value, dim: int | None, keepdim: bool) -> Value:
    return _arg(b, "ArgMin", x, dim, keepdim)


# -- cumulative reductions


def _scan(b: Builder, kind: str, x: Value, dim: int) -> Value:
    if x.ndim == 0:
        return x
    return b.layer(kind, x, axis=axis_of(dim, x.ndim))


@op("cumsum")
def cumsum(b: Builder, x: Value, dim: int, dtype: object) -> Value:
    return _scan(b, "CumSum", b.to_out(x), dim)


@op("cumprod")
def cumprod(b: Builder, x: Value, dim: int, dtype: object) -> Value:
    return _scan(b, "CumProd", b.to_out(x), dim)


@op("logcumsumexp")
def logcumsumexp(b: Builder, x: Value, dim: int) -> Value:
    return _scan(b, "LogCumSumExp", x, dim)


# -- differences: what cumsum undoes


@op("diff")
def diff(b: Builder, x: Value, n: int, dim: int, prepend: Value | None, append: Value | None) -> Value:
    if 0 in b.out.shape:
        return b.fill(list(b.out.shape), 0, b.out.dtype)
    axis = axis_of(dim, x.ndim)
    parts = [b.to_out(v) for v in (prepend if n else None, x, append if n else None) if v is not None]
    made = b.concat(parts, axis)
    for _ in range(n):
        size = made.shape[axis]
        ends = b.slice(made, axis, 1, size), b.slice(made, axis, 0, size - 1)
        made = b.map("ne" if x.dtype == torch.bool else "sub", *ends)
    return made


# -- sorting


def _no_bool(b: Builder, x: Value) -> Value:
    return b.cast(x, torch.uint8) if x.dtype == torch.bool else x


def _sort(b: Builder, x: Value, dim: int, down: bool) -> tuple[Value, Value]:
    if x.ndim == 0:
        return x, b.fill([], 0, torch.int64)
    y, at = b.layers("Sort", _no_bool(b, x), outputs=2, axis=axis_of(dim, x.ndim), down=int(down))
    return b.cast(y, x.dtype), at


@op("sort", "sort.stable")
def sort(b: Builder, x: Value, dim: int, descending: bool, stable: bool | None = None) -> tuple[Value, Value]:
    return _sort(b, x, dim, descending)


@op("argsort", "argsort.stable")
def argsort(b: Builder, x: Value, dim: int, descending: bool, stable: bool | None = None) -> Value:
    return _sort(b, x, dim, descending)[1]


@op("msort")
def msort(b: Builder, x: Value) -> Value:
    return _sort(b, x, 0, False)[0]


@op("topk")
def topk(b: Builder, x: Value, k: int, dim: int, largest: bool, sorted: bool) -> tuple[Value, Value]:
    if x.ndim == 0:
        return (x, b.fill([], 0, torch.int64)) if k else (b.fill([0], 0, x.dtype), b.fill([0], 0, torch.int64))
    y, at = b.layers("TopK", _no_bool(b, x), outputs=2, k=k, axis=axis_of(dim, x.ndim), largest=int(largest))
    return b.cast(y, x.dtype), at


@op("kthvalue")
def kthvalue(b: Builder, x: Value, k: int, dim: int, keepdim: bool) -> tuple[Value, Value]:
    if x.ndim == 0:
        return x, b.fill([], 0, torch.int64)
    dim = axis_of(dim, x.ndim)
    n = x.shape[dim]
    if isinstance(k, int) and isinstance(n, int) and 1 <= k <= n:
        y, at = b.layers("TopK", _no_bool(b, x), outputs=2, k=1, axis=dim, largest=0, first=k - 1)
        kth = [b.cast(y, x.dtype), at]
    else:
        kth = [b.slice(v, dim, k - 1, k) for v in _sort(b, x, dim, False)]
    return (kth[0], kth[1]) if keepdim else (b.squeeze(kth[0], dim), b.squeeze(kth[1], dim))


def _nan_at(b: Builder, x: Value, dim: int) -> tuple[Value, Value]:
    """Whether there is a NaN along a dimension, and the position of the first."""
    isnan = b.map("isnan", x)
    return b.reduce("Any", isnan, dim, True), b.layer("ArgMax", b.cast(isnan, torch.uint8), axis=dim, keep=1)


@op("median.dim")
def median_dim(b: Builder, x: Value, dim: int, keepdim: bool) -> tuple[Value, Value]:
    if x.ndim == 0:
        return x, b.fill([], 0, torch.int64)
    dim = axis_of(dim, x.ndim)
    y, at = kthvalue(b, x, (x.shape[dim] + 1) // 2, dim, True)
    if x.is_float:
        found, where = _nan_at(b, x, dim)
        y, at = b.where(found, b.scalar(math.nan, x.dtype), y), b.where(found, where, at)
    return (y, at) if keepdim else (b.squeeze(y, dim), b.squeeze(at, dim))


@op("nanmedian.dim")
def nanmedian_dim(b: Builder, x: Value, dim: int, keepdim: bool) -> tuple[Value, Value]:
    """The median of the numbers. NaN sort last."""
    if x.ndim == 0 or not x.is_float:
        return median_dim(b, x, dim, keepdim)
    dim = axis_of(dim, x.ndim)
    numbers = b.reduce("Sum", b.cast(b.map("logical_not", b.map("isnan", x)), torch.int64), dim, True)
    at = b.map("floordiv", b.map("max", b.sub(numbers, 1), b.scalar(0, torch.int64)), b.scalar(2, torch.int64))
    y, where = (b.layer("GatherElements", v, at, axis=dim) for v in _sort(b, x, dim, False))
    return (y, where) if keepdim else (b.squeeze(y, dim), b.squeeze(where, dim))


@op("nanmedian")
def nanmedian(b: Builder, x: Value) -> Value:
    return nanmedian_dim(b, b.reshape(x, [math.prod(x.shape)]), 0, False)[0]


@op("median")
def median(b: Builder, x: Value) -> Value:
    flat = b.reshape(x, [math.prod(x.shape)])
    return median_dim(b, flat, 0, False)[0]


def _running_extreme(b: Builder, kind: str, x: Value, dim: int) -> tuple[Value, Value]:
    """The cumulative maximum or minimum, and the position of its last occurrence: the cumulative maximum of the
    positions that attain it."""
    if x.ndim == 0:
        return x, b.fill([], 0, torch.int64)
    dim = axis_of(dim, x.ndim)
    value = _no_bool(b, x)
    y = b.layer(kind, value, axis=dim)
    reached = b.map("logical_or", b.map("eq", value, y), b.map("isnan", value))
    positions = b.layer("Range", n=x.shape[dim], start=0.0, step=1.0, to="i64")
    positions = b.expand(b.reshape(positions, [x.shape[dim]] + [1] * (x.ndim - 1 - dim)), x.shape)
    at = b.layer("CumMax", b.where(reached, positions, 0), axis=dim)
    return b.cast(y, x.dtype), at


@op("cummax")
def cummax(b: Builder, x: Value, dim: int) -> tuple[Value, Value]:
    return _running_extreme(b, "CumMax", x, dim)


@op("cummin")
def cummin(b: Builder, x: Value, dim: int) -> tuple[Value, Value]:
    return _running_extreme(b, "CumMin", x, dim)


@op("pdist", "_pdist_forward")
def pdist(b: Builder, x: Value, p: float) -> Value:
    """The distances between each row and all later rows."""
    n = x.shape[0]
    if n < 2:
        return b.fill([0], 0, x.dtype)
    if n > 1500:
        raise Rejected(f"the distances of {n} rows")
    first, second = torch.triu_indices(n, n, 1)
    pairs = [b.layer("Embedding", x, b.const(at)) for at in (first, second)]
    return _norm(b, b.map("sub", *pairs), p, 1, False)


@op("dist")
def dist(b: Builder, x: Value, other: Value, p: Number) -> Value:
    return _norm(b, b.map("sub", *b.promote(x, other)), p, None, False)
