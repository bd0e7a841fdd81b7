"""Operators by index: gathers, scatters, positions of elements, sorting."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from sol.parsed import NUMPY, REAL

from ..builder import Rejected, core_type
from .table import op


@op("GatherV2", "Gather", "ResourceGather")
def gather(b, o, x, i, axis=0):
    x, i = b.value(x), b.value(i)
    batch = o.get_attr("batch_dims") if o.type != "Gather" else 0
    at = b.number(axis) % x.ndim if o.type == "GatherV2" else 0
    if not batch:
        return b.layer("Embedding", x, i) if at == 0 and x.ndim == 2 else b.layer("Gather", x, i, axis=at)
    if at == batch and i.ndim == batch + 1 and x.ndim == batch + 1:
        return b.layer("GatherElements", x, i, axis=at)
    if at == batch:
        return b.layer("GatherND", x, b.reshape(i, (*i.shape, 1)), batch=batch)
    raise Rejected("batch_dims in front of an axis that does not follow them")


@op("GatherNd", "ResourceGatherNd")
def gather_nd(b, o, x, i):
    return b.layer("GatherND", x, i)


@op("OneHot")
def one_hot(b, o, i, n, on, off):
    i = b.value(i)
    dtype = core_type(o.outputs[0].dtype)
    y = b.layer("OneHot", i, n=b.number(n), to=dtype)
    at = o.get_attr("axis")
    if at not in (-1, i.ndim):
        y = b.permute(y, [*range(at), i.ndim, *range(at, i.ndim)])
    if (float(b.known(on)), float(b.known(off))) == (1, 0):
        return y
    return b.layer("where", y, b.cast(on, dtype), b.cast(off, dtype))


def _interval(t):
    """The least and the largest value that a number of the graph can have."""
    known = tf.get_static_value(t)
    if known is not None:
        return int(known), int(known)
    if t.op.type in ("Minimum", "Maximum"):
        choose = min if t.op.type == "Minimum" else max
        return tuple(map(choose, zip(*map(_interval, t.op.inputs), strict=True)))
    return _interval(t.op.inputs[0]) if t.op.type in ("Identity", "Cast") else (-math.inf, math.inf)


@op("DenseBincount")
def bincount(b, o, x, size, weights):
    """Counts of x[.., K] = 0 .. size-1, or sums of the weights there, or whether there are any. Other numbers do not count."""
    least, most = _interval(o.inputs[1])  # tf.math.bincount looks at the data even if it has one limit
    x, n, dtype = b.value(x), least if least == most else b.number(size), core_type(o.outputs[0].dtype)
    at = b.value(np.arange(n, dtype=NUMPY[x.dtype]).reshape(n, 1))
    same = b.layer("eq", b.reshape(x, [*x.shape[:-1], 1, x.shape[-1]]), at)
    if o.get_attr("binary_output"):
        return b.cast(b.layer("Max", b.cast(same, "i32"), axes=[x.ndim], keep=0), dtype)
    if 0 in o.inputs[2].shape:
        return b.layer("Sum", b.cast(same, dtype), axes=[x.ndim], keep=0)
    w = b.value(weights)
    w = b.reshape(w, [*w.shape[:-1], 1, w.shape[-1]])
    return b.layer("Sum", b.layer("where", same, w, b.scalar(0, dtype)), axes=[x.ndim], keep=0)


@op("ArgMax", "ArgMin")
def position(b, o, x, axis):
    x = b.value(x)
    return b.cast(b.layer(o.type, x, axis=b.number(axis) % x.ndim), core_type(o.outputs[0].dtype))


@op("TopKV2")
def top_k(b, o, x, k):
    y, i = b.layers("TopK", x, outputs=2, k=b.number(k))
    return [y, b.cast(i, core_type(o.outputs[1].dtype))]


@op("ScatterNd")
def scatter_nd(b, o, i, u, shape):
    u = b.value(u)
    zeros = b.layer("Expand", b.scalar(0, u.dtype), shape=b.ints(shape))
    return b.layer("ScatterND", zeros, i, u, mode="add")


@op("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin")
def tensor_scatter(b, o, x, i, u):
    if o.type == "TensorScatterSub":
        return b.layer("ScatterND", x, i, b.layer("neg", u), mode="add")
    mode = {"Update": "none", "Add": "add", "Max": "max", "Min": "min"}[o.type.removeprefix("TensorScatter")]
    return b.layer("ScatterND", x, i, u, mode=mode)


_SEGMENTS = {"Sum": ("add", 0), "Prod": ("mul", 1), "Max": ("max", "min"), "Min": ("min", "max")}


@op("UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMax", "UnsortedSegmentMin")
def unsorted_segment(b, o, x, at, n):
    """What belongs to no segment, with a negative number, goes into a row behind the others."""
    x, at, n = b.value(x), b.value(at), b.number(n)
    mode, start = _SEGMENTS[o.type.removeprefix("UnsortedSegment")]
    if isinstance(start, str):  # the smallest number, or the largest
        limits = (np.finfo if x.dtype in REAL else np.iinfo)(NUMPY[x.dtype])
        start = getattr(limits, start)
    rest, flat = x.shape[at.ndim :], math.prod(at.shape)
    last = b.cast(b.reshape(b.value(np.array([n], object)), ()), at.dtype)
    none = b.cast(b.layer("lt", at, b.scalar(0, at.dtype)), at.dtype)
    at = b.reshape(b.layer("where", none, last, at), (flat, 1))
    rows = b.layer("Expand", b.scalar(start, x.dtype), shape=[n + 1, *rest])
    y = b.layer("ScatterND", rows, at, b.reshape(x, (flat, *rest)), mode=mode)
    return b.layer("Slice", y, axes=[0], start=[0], end=[n], step=[1])


@op("LowerBound", "UpperBound")
def bound(b, o, x, v):
    """How many elements of each sorted row are less than a value, or not greater."""
    x, v = b.value(x), b.value(v)
    x, v = b.reshape(x, (x.shape[0], 1, x.shape[1])), b.reshape(v, (*v.shape, 1))
    less = b.layer("lt" if o.type == "LowerBound" else "le", x, v)
    return b.layer("Sum", b.cast(less, core_type(o.outputs[0].dtype)), axes=[2], keep=0)
