"""Operators that only move elements: shapes, slices, concatenation, padding, blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sol import forms
from sol.parsed import NUMPY

from ..builder import Rejected, core_type
from .table import op


@op("Reshape")
def reshape(b, o, x, shape):
    x, sizes = b.value(x), b.ints(shape)
    if -1 in sizes:
        rest = math.prod(n for n in sizes if type(n) is forms.Size or n != -1)
        sizes[sizes.index(-1)] = x.size // rest if type(rest) is forms.Size or rest else 0
    return b.reshape(x, sizes)


@op("ExpandDims")
def expand_dims(b, o, x, axis):
    x = b.value(x)
    at = b.number(axis) % (x.ndim + 1)
    return b.reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


@op("Squeeze")
def squeeze(b, o, x):
    x = b.value(x)
    gone = [a % x.ndim for a in o.get_attr("squeeze_dims")] or [
        i for i, n in enumerate(x.shape) if type(n) is int and n == 1
    ]
    return b.reshape(x, [n for i, n in enumerate(x.shape) if i not in gone])


@op("Transpose")
def transpose(b, o, x, perm):
    return b.permute(b.value(x), b.ints(perm))


@op("ConcatV2")
def concat(b, o, *xs):
    given = [b.value(x) for x in xs[:-1]]
    parts = [x for x in given if type(x.size) is forms.Size or x.size] or given[:1]
    return parts[0] if len(parts) == 1 else b.layer("Concat", *parts, axis=b.number(xs[-1]) % parts[0].ndim)


@op("Pack")
def pack(b, o, *xs):
    given = [b.value(x) for x in xs]
    return b.layer("Stack", *given, axis=o.get_attr("axis") % (given[0].ndim + 1))


@op("Unpack")
def unpack(b, o, x):
    x = b.value(x)
    return list(b.layers("Unbind", x, outputs=len(o.outputs), axis=o.get_attr("axis") % x.ndim))


@op("Split")
def split(b, o, axis, x):
    n, x = len(o.outputs), b.value(x)
    at = b.number(axis) % x.ndim
    return list(b.layers("Split", x, outputs=n, axis=at, sizes=[x.shape[at] // n] * n))


@op("SplitV")
def split_v(b, o, x, sizes, axis):
    x, sizes = b.value(x), b.ints(sizes)
    at = b.number(axis) % x.ndim
    if -1 in sizes:
        sizes[sizes.index(-1)] = x.shape[at] - sum(n for n in sizes if n != -1)
    return list(b.layers("Split", x, outputs=len(sizes), axis=at, sizes=sizes))


def slices(o: Any, begin: Any, end: Any, strides: Any, shape: Any) -> tuple[list[tuple[int, Any, Any, Any]], list[Any]]:
    """What a StridedSlice takes: (axis, start, end, step) of each axis that it names, and the shape of the result, in which None
    is an axis's own size."""
    flag = {m: o.get_attr(m) for m in ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")}
    spec: list[tuple[int, Any, Any, Any]] = []
    out: list[Any] = []
    real = 0
    for i in range(len(begin)):
        if flag["ellipsis_mask"] >> i & 1:
            rest = sum(1 for k in range(i + 1, len(begin)) if not flag["new_axis_mask"] >> k & 1)
            out += list(range(real, len(shape) - rest))
            real = len(shape) - rest
        elif flag["new_axis_mask"] >> i & 1:
            out.append(None)
        else:
            n = shape[real]
            if flag["shrink_axis_mask"] >> i & 1:
                at = begin[i] + n if type(begin[i]) is int and begin[i] < 0 else begin[i]
                spec.append((real, at, at + 1, 1))
            else:
                low = None if flag["begin_mask"] >> i & 1 else begin[i]
                high = None if flag["end_mask"] >> i & 1 else end[i]
                spec.append((real, *_indices(low, high, strides[i], n)))
                out.append(real)
            real += 1
    return spec, [*out, *range(real, len(shape))]


def _indices(low: Any, high: Any, step: Any, n: Any) -> tuple[Any, Any, Any]:
    if type(n) is not forms.Size and forms.Size not in map(type, (low, high)):
        low, high, step = slice(low, high, step).indices(n)
        return low, max(high, low) if step > 0 else high, step
    if step < 0:
        raise forms.Varies("a negative step along a size that varies")
    return forms.indices(low, high, step, n)


@op("StridedSlice")
def strided_slice(b, o, x, begin, end, strides):
    x = b.value(x)
    spec, out = slices(o, b.ints(begin), b.ints(end), b.ints(strides), x.shape)
    spec = [s for s in spec if (s[1], s[2], s[3]) != (0, x.shape[s[0]], 1)]
    for axis, low, high, step in (s for s in spec if s[3] < 0):  # steps backwards: reversed, then forwards
        n = x.shape[axis]
        x = b.layer("Flip", x, axes=[axis])
        spec[spec.index((axis, low, high, step))] = (axis, n - 1 - low, max(n - 1 - high, n - 1 - low), -step)
    if spec:
        axes, start, stop, step = (list(v) for v in zip(*spec, strict=True))
        x = b.layer("Slice", x, axes=axes, start=start, end=stop, step=step)
    return b.reshape(x, [1 if axis is None else x.shape[axis] for axis in out])


@op("Slice")
def slice_(b, o, x, begin, size):
    x, begin, size = b.value(x), b.ints(begin), b.ints(size)
    end = [n if type(k) is int and k == -1 else s + k for s, k, n in zip(begin, size, x.shape, strict=True)]
    return b.layer("Slice", x, axes=list(range(x.ndim)), start=begin, end=end, step=[1] * x.ndim)


@op("Pad", "PadV2", "MirrorPad")
def pad(b, o, x, pads, v=None):
    x, pads = b.value(x), np.array(b.known(pads))
    mode = "constant"
    if o.type == "MirrorPad":
        if o.get_attr("mode") != b"REFLECT":
            raise Rejected("symmetric padding")
        mode = "reflect"
    front, behind = b.ints(pads[:, 0]), b.ints(pads[:, 1])
    return b.layer("Pad", x, p=front, q=behind, v=float(b.known(v)) if v is not None else 0.0, mode=mode)


@op("Tile")
def tile(b, o, x, n):
    return b.layer("Tile", b.value(x), n=b.ints(n))


@op("BroadcastTo")
def broadcast_to(b, o, x, n):
    return b.layer("Expand", b.value(x), shape=b.ints(n))


@op("Fill")
def fill(b, o, n, x):
    return b.layer("Expand", b.value(x), shape=b.ints(n))


@op("ZerosLike", "OnesLike")
def like(b, o, x):
    x = b.value(x)
    return b.layer("Expand", b.scalar(int(o.type == "OnesLike"), x.dtype), shape=list(x.shape))


@op("ReverseV2")
def reverse(b, o, x, axes):
    x = b.value(x)
    found = b.axes(axes, x.ndim)
    return b.layer("Flip", x, axes=found) if found else x


@op("Roll")
def roll(b, o, x, shifts, axes):
    return b.layer("Roll", b.value(x), shifts=b.ints(shifts), axes=b.axes(axes, x.ndim))


@op("DepthToSpace", "SpaceToDepth")
def depth_and_space(b, o, x):
    if o.get_attr("data_format") != b"NHWC":
        return b.layer(o.type, x, r=o.get_attr("block_size"))
    return b.last(b.layer(o.type, b.first(x), r=o.get_attr("block_size")))


@op("SpaceToBatchND")
def space_to_batch(b, o, x, block, pads):
    block, pads, k = b.ints(block), np.array(b.known(pads)), len(b.ints(block))
    p, q = [0] * x.ndim, [0] * x.ndim
    p[1 : k + 1], q[1 : k + 1] = b.ints(pads[:, 0]), b.ints(pads[:, 1])
    x = b.layer("Pad", x, p=p, q=q)
    rest = list(x.shape[k + 1 :])
    inner = [v for i in range(k) for v in (x.shape[i + 1] // block[i], block[i])]
    perm = (
        [2 * i + 2 for i in range(k)] + [0] + [2 * i + 1 for i in range(k)] + [2 * k + 1 + i for i in range(len(rest))]
    )
    y = b.permute(b.reshape(x, [x.shape[0], *inner, *rest]), perm)
    return b.reshape(y, [x.shape[0] * math.prod(block), *(x.shape[i + 1] // block[i] for i in range(k)), *rest])


@op("BatchToSpaceND")
def batch_to_space(b, o, x, block, crops):
    block, crops, k = b.ints(block), np.array(b.known(crops)), len(b.ints(block))
    n, rest = x.shape[0] // math.prod(block), list(x.shape[k + 1 :])
    y = b.reshape(x, [*block, n, *x.shape[1 : k + 1], *rest])
    perm = [k] + [v for i in range(k) for v in (k + 1 + i, i)] + [2 * k + 1 + i for i in range(len(rest))]
    y = b.reshape(b.permute(y, perm), [n, *(x.shape[i + 1] * block[i] for i in range(k)), *rest])
    axes, front, behind = list(range(1, k + 1)), b.ints(crops[:, 0]), b.ints(crops[:, 1])
    return b.layer("Slice", y, axes=axes, start=front, end=[y.shape[i] - behind[i - 1] for i in axes], step=[1] * k)


@op("MatrixBandPart")
def band_part(b, o, x, low, high):
    low, high = b.number(low), b.number(high)
    x = b.layer("Tril", x, k=high) if high >= 0 else b.value(x)
    return b.layer("Triu", x, k=-low) if low >= 0 else x


def _diagonal(b, k):
    """The number of the diagonal, of operators that can take several."""
    found = b.ints(k)
    if len(set(found)) > 1:
        raise Rejected("several diagonals")
    return found[0]


@op("MatrixDiagV3")
def matrix_of_diagonal(b, o, x, k, rows, cols, padding):
    x, k = b.value(x), _diagonal(b, k)
    size = x.shape[-1] + abs(k)
    if any(n not in (-1, size) for n in (b.number(rows), b.number(cols))) or float(b.known(padding)):
        raise Rejected("a matrix that is not square, or not 0 outside of the diagonal")
    return b.layer("DiagEmbed", x, k=k, axis1=-2, axis2=-1)


@op("MatrixDiagPartV3")
def diagonal_of_matrix(b, o, x, k, padding):
    x = b.value(x)
    return b.layer("Diagonal", x, k=_diagonal(b, k), axis1=x.ndim - 2, axis2=x.ndim - 1)


@op("MatrixSetDiagV3")
def set_diagonal(b, o, x, d, k):
    x, k = b.value(x), _diagonal(b, k)
    rows, cols = x.shape[-2:]
    if forms.Size in (type(rows), type(cols)):
        raise forms.Varies("a diagonal of a matrix whose size varies")
    y = b.layer("DiagEmbed", d, k=k, axis1=-2, axis2=-1)
    axes, n = [x.ndim - 2, x.ndim - 1], y.shape[-1]
    more = [0] * (x.ndim - 2) + [max(rows - n, 0), max(cols - n, 0)]
    y = b.layer(
        "Slice", b.layer("Pad", y, p=[0] * x.ndim, q=more), axes=axes, start=[0, 0], end=[rows, cols], step=[1, 1]
    )
    on = b.value(np.eye(rows, cols, k, dtype=NUMPY[x.dtype]))
    return b.layer("where", on, y, x)


@op("ReverseSequence")
def reverse_sequence(b, o, x, n):
    """The first n[B] elements of each sequence are reversed."""
    x, n = b.value(x), b.cast(n, "i64")
    time, batch = o.get_attr("seq_dim"), o.get_attr("batch_dim")
    perm = [batch, time, *(d for d in range(x.ndim) if d not in (batch, time))]
    y = b.permute(x, perm)
    at, n = b.layer("Range", n=y.shape[1], start=0, step=1, to="i64"), b.reshape(n, (y.shape[0], 1))
    back = b.layer("sub", b.layer("sub", n, b.scalar(1, "i64")), at)
    at = b.layer("where", b.cast(b.layer("lt", at, n), "i64"), back, at)
    y = b.layer("GatherND", y, b.reshape(at, (y.shape[0], y.shape[1], 1)), batch=1)
    return b.permute(y, [perm.index(d) for d in range(x.ndim)])


@op("Range")
def range_(b, o, start, limit, delta):
    low, high, step = (b.known(v).reshape(-1)[0] for v in (start, limit, delta))
    dtype = core_type(o.outputs[0].dtype)
    if forms.Size not in map(type, (low, high, step)):
        return np.arange(low, high, step).astype(o.outputs[0].dtype.as_numpy_dtype)
    if step != 1:
        raise forms.Varies("a range with a step, to a size that varies")
    return b.layer("Range", n=high - low, start=float(low), step=1.0, to=dtype)


@op("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic")
def resize(b, o, x, size):
    mode = {"ResizeBilinear": "linear", "ResizeNearestNeighbor": "nearest", "ResizeBicubic": "cubic"}[o.type]
    half = bool(o.get_attr("half_pixel_centers"))
    coord = "half_pixel" if half else "align_corners" if o.get_attr("align_corners") else "asymmetric"
    x = b.cast(x, core_type(o.outputs[0].dtype))
    h, w = b.ints(size)
    # of half pixels, TensorFlow takes floor((i + 0.5) * scale): the coordinate (i + 0.5) * scale - 0.5, rounded
    nearest = "floor" if coord == "asymmetric" else "round_prefer_ceil"
    # its cubic is Keys's with half pixels, without the pixels outside; else the one that repeats the border
    cubic = {"a": -0.5 if half else -0.75, "exclude": int(half)} if mode == "cubic" else {}
    return b.layer("Resize", x, size=[x.shape[0], h, w, x.shape[3]], mode=mode, coord=coord, round=nearest, **cubic)
