"""Picking and writing by index."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..builder import Builder, Number, Refused, Value, axis_of
from .table import op

MODES = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "add": "add", "multiply": "mul"}


def _index(b: Builder, i: Value) -> Value:
    return b.cast(i, torch.int64) if i.dtype != torch.int64 else i


@op("embedding")
def embedding(b: Builder, weight: Value, indices: Value) -> Value:
    return b.layer("Embedding", weight, _index(b, indices))


@op("one_hot")
def one_hot(b: Builder, x: Value, num_classes: int) -> Value:
    if num_classes < 0:
        raise Refused("num_classes=-1: the shape depends on data")
    return b.layer("OneHot", _index(b, x), n=num_classes)


def _given(x: Value, indices: Sequence[Value | None]) -> tuple[list[int], list[Value]]:
    dims = [d for d, i in enumerate(indices) if i is not None]
    given = [i for i in indices if i is not None]
    if any(i.dtype in (torch.bool, torch.uint8) for i in given):
        raise Refused("a mask as an index: the shape depends on data")
    return dims, given


@op("index.Tensor", "_unsafe_index.Tensor")
def index(b: Builder, x: Value, indices: Sequence[Value | None]) -> Value:
    dims, given = _given(x, indices)
    return b.layer("Index", x, *(_index(b, i) for i in given), dims=dims) if given else x


@op("index_put", "_unsafe_index_put")
def index_put(b: Builder, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool) -> Value:
    values = b.cast(values, x.dtype)
    masks = [i for i in indices if i is not None]
    if len(masks) == 1 and len(indices) == 1 and masks[0].dtype == torch.bool and math.prod(values.shape) == 1:
        mask = b.reshape(masks[0], masks[0].shape + (1,) * (x.ndim - masks[0].ndim))
        value = b.reshape(values, [])
        return b.where(mask, b.add(x, value) if accumulate else value, x)
    dims, given = _given(x, indices)
    if not given:
        return b.add(x, values) if accumulate else b.expand(values, x.shape)
    mode = "add" if accumulate else "none"
    return b.layer("IndexPut", x, values, *(_index(b, i) for i in given), dims=dims, mode=mode)


@op("index_select")
def index_select(b: Builder, x: Value, dim: int, index: Value) -> Value:
    if x.ndim == 0:
        return x
    index = index if index.ndim else b.reshape(index, [1])
    return b.layer("Gather", x, _index(b, index), axis=axis_of(dim, x.ndim))


@op("gather")
def gather(b: Builder, x: Value, dim: int, index: Value) -> Value:
    if x.ndim == 0 or index.ndim == 0:
        one = b.reshape(x, [1]) if x.ndim == 0 else x
        flat = b.reshape(index, [math.prod(index.shape)])
        return b.reshape(b.layer("GatherElements", one, _index(b, flat), axis=0), b.out.shape)
    return b.layer("GatherElements", x, _index(b, index), axis=axis_of(dim, x.ndim))


@op("take")
def take(b: Builder, x: Value, index: Value) -> Value:
    return b.layer("Gather", b.reshape(x, [math.prod(x.shape)]), _index(b, index), axis=0, wrap=1)


@op("take_along_dim")
def take_along_dim(b: Builder, x: Value, indices: Value, dim: int | None) -> Value:
    if dim is None:
        flat, picks = b.reshape(x, [math.prod(x.shape)]), b.reshape(indices, [math.prod(indices.shape)])
        return b.layer("GatherElements", flat, _index(b, picks), axis=0, wrap=1)
    dim = axis_of(dim, x.ndim)
    pairs = [(max(p, q) if min(p, q) == 1 else p) for p, q in zip(x.shape, indices.shape, strict=True)]
    x = b.expand(x, [x.shape[d] if d == dim else n for d, n in enumerate(pairs)])
    indices = b.expand(indices, [indices.shape[d] if d == dim else n for d, n in enumerate(pairs)])
    return b.layer("GatherElements", x, _index(b, indices), axis=dim, wrap=1)


# -- writing


def _scatter(b: Builder, x: Value, dim: int, index: Value, src: Value, mode: str) -> Value:
    """The row wants updates in the shape of the index; PyTorch allows larger ones."""
    shape = x.shape
    if x.ndim == 0:
        x, index, src = (b.reshape(v, [math.prod(v.shape)]) for v in (x, index, src))
    elif index.ndim == 0:
        index, src = b.reshape(index, [1]), b.reshape(src, [1]) if src.ndim == 0 else src
    for d in range(x.ndim):
        src = b.slice(src, d, 0, index.shape[d])
    y = b.layer("ScatterElements", x, _index(b, index), b.cast(src, x.dtype), axis=axis_of(dim, x.ndim), mode=mode)
    return b.reshape(y, shape)


@op("scatter.src", "scatter_add")
def scatter_src(b: Builder, x: Value, dim: int, index: Value, src: Value) -> Value:
    add = "scatter_add" in b.target
    return _scatter(b, x, dim, index, src, "add" if add else "none")


@op("scatter.value")
def scatter_value(b: Builder, x: Value, dim: int, index: Value, value: Number) -> Value:
    return _scatter(b, x, dim, index, b.fill(index.shape, value, x.dtype), "none")


@op("scatter.reduce")
def scatter_with(b: Builder, x: Value, dim: int, index: Value, src: Value, reduce: str) -> Value:
    return _scatter(b, x, dim, index, src, MODES[reduce])


@op("scatter.value_reduce")
def scatter_value_with(b: Builder, x: Value, dim: int, index: Value, value: Number, reduce: str) -> Value:
    return _scatter(b, x, dim, index, b.fill(index.shape, value, x.dtype), MODES[reduce])


@op("scatter_reduce.two")
def scatter_reduce(b: Builder, x: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool) -> Value:
    if reduce not in MODES or not include_self:
        raise Refused(f"reduce={reduce!r}, include_self={include_self}")
    return _scatter(b, x, dim, index, src, MODES[reduce])


def _along(b: Builder, x: Value, dim: int, index: Value, source: Value, mode: str) -> Value:
    """Rows of x along a dimension, written by a list of indices."""
    if x.ndim == 0:
        y = _along(b, b.reshape(x, [1]), 0, index, b.reshape(source, [1]), mode)
        return b.reshape(y, [])
    dim = axis_of(dim, x.ndim)
    index = index if index.ndim else b.reshape(index, [1])
    shape = list(x.shape)
    shape[dim] = index.shape[0]
    picks = b.reshape(index, [index.shape[0]] + [1] * (x.ndim - 1 - dim))
    if source.ndim < x.ndim:
        source = b.reshape(source, shape)
    return _scatter(b, x, dim, b.expand(picks, shape), b.cast(source, x.dtype), mode)


@op("index_add")
def index_add(b: Builder, x: Value, dim: int, index: Value, source: Value, alpha: Number) -> Value:
    return _along(b, x, dim, index, source if alpha == 1 else b.mul(source, alpha), "add")


@op("index_copy")
def index_copy(b: Builder, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _along(b, x, dim, index, source, "none")


@op("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(b: Builder, x: Value, dim: int, index: Value, value: Value | Number) -> Value:
    shape = list(x.shape) or [1]
    shape[axis_of(dim, x.ndim)] = math.prod(index.shape)
    return _along(b, x, dim, index, b.expand(b.as_value(value, x.dtype), shape), "none")


@op("diagonal_scatter")
def diagonal_scatter(b: Builder, x: Value, src: Value, offset: int, dim1: int, dim2: int) -> Value:
    ones = torch.zeros(x.shape, dtype=torch.bool)
    ones.diagonal(offset, dim1, dim2).fill_(True)
    at = torch.zeros(x.shape, dtype=torch.int64)
    part = at.diagonal(offset, dim1, dim2)
    part.copy_(torch.arange(part.numel()).view(part.shape))
    flat = b.reshape(src, [math.prod(src.shape)])
    return b.where(b.const(ones), b.layer("Gather", flat, b.const(at), axis=0), x)


@op("as_strided", "as_strided_copy")
def as_strided(b: Builder, x: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None) -> Value:
    """On row-major memory: export's tensors are, unless their strides say otherwise."""
    if not b.row_major:
        raise Refused("as_strided of a tensor that is not row-major")
    at = torch.full((), storage_offset or 0, dtype=torch.int64)
    for n, s in zip(size, stride, strict=True):
        at = at.unsqueeze(-1) + s * torch.arange(n)
    return b.layer("Gather", b.reshape(x, [math.prod(x.shape)]), b.const(at), axis=0)


# -- searching


@op("bucketize.Tensor", "bucketize.Scalar")
def bucketize(b: Builder, x: Value | Number, boundaries: Value, out_int32: bool, right: bool) -> Value:
    dtype = b.result_type(x, boundaries)
    at = b.layer("Bucketize", b.as_value(x, dtype), b.cast(boundaries, dtype), right=int(right))
    return b.to_out(at)


@op("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    b: Builder, sequence: Value, self: Value | Number, out_int32: bool, right: bool, side: str | None, sorter: Value | None
) -> Value:
    if sorter is not None:
        raise Refused("argument sorter")
    return bucketize(b, self, sequence, out_int32, right or side == "right")
