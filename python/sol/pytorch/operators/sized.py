"""Operators whose result sizes follow from data: positions of nonzero elements, unique values, boxes, counts.

In inference, a layer sets the size while the network runs, if `MOST` says how large it may be. Otherwise, a trace reads the
numbers that determine the sizes (`sizes`), and the program is valid for these. SOL computes the contents of the results.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from sol.forms import varies

from ..builder import Builder, Value
from .counting import tally
from .regions import Most, most_points
from .table import MOST, op, sizes

Read = Callable[..., Any]
aten = torch.ops.aten
_MASKS = (torch.bool, torch.uint8)


def _flat(b: Builder, x: Value) -> Value:
    return b.reshape(x, [math.prod(x.shape)])


def _range(b: Builder, n: int, start: int = 0) -> Value:
    return b.layer("Range", n=n, start=float(start), step=1.0, to="i64")


# -- nonzero elements


def places(b: Builder, x: Value, n: int) -> Value:
    """The first n positions of nonzero elements in x, flattened. If there are fewer, the rest is the number of
    elements. If n depends on data, the layer sets it."""
    if varies(n):
        return b.reshape(b.layer("NonZero", _flat(b, x), size=n), [n])
    if not n or not math.prod(x.shape):
        return b.fill([n], 0, torch.int64)
    found = b.cast(b.compare("ne", _flat(b, x), 0), torch.int64)
    return b.layer("Bucketize", _range(b, n, 1), b.layer("CumSum", found, axis=0), right=0)


def _unraveled(b: Builder, at: Value, shape: Sequence[int]) -> list[Value]:
    """A flat position as one index for each dimension."""
    found = []
    for n in reversed(shape):
        size = b.scalar(max(n, 1), torch.int64)
        found.append(b.map("remainder", at, size))
        at = b.map("floordiv", at, size)
    return found[::-1]


def _positions(b: Builder, x: Value, n: Any) -> list[Value]:
    """An index for each dimension of x: where it is not zero."""
    if not varies(n):
        return _unraveled(b, places(b, x, n), x.shape)
    found = b.layer("NonZero", x, size=n)
    return [b.layer("Select", found, axis=1, index=k) for k in range(x.ndim)]


def _count(x: torch.Tensor) -> int:
    return int(torch.count_nonzero(x))


MOST[_count] = torch.Tensor.numel


@sizes("nonzero", "argwhere")
def nonzero_like(read: Read, x: torch.Tensor) -> torch.Tensor:
    """The memory layout is PyTorch's: one dimension after the other."""
    return x.new_empty((x.ndim, read(_count, x)), dtype=torch.int64).t()


@op("nonzero", "argwhere")
def nonzero(b: Builder, x: Value) -> Value:
    n = b.out.shape[0]
    return b.layer("NonZero", x, size=n) if varies(n) else _stacked(b, _positions(b, x, n))


def _stacked(b: Builder, columns: Sequence[Value]) -> Value:
    return b.layer("Stack", *columns, axis=1) if columns else b.fill(b.out.shape, 0, torch.int64)


@op("nonzero_static")
def nonzero_static(b: Builder, x: Value, size: int, fill_value: int) -> Value:
    """The first `size` positions; if there are fewer, `fill_value` for the rest."""
    n = math.prod(x.shape)
    at = places(b, x, size)
    missing = b.compare("ge", at, n)
    return _stacked(b, [b.where(missing, b.scalar(fill_value, torch.int64), i) for i in _unraveled(b, at, x.shape)])


@sizes("nonzero_numpy", "where")
def nonzero_numpy_like(read: Read, x: torch.Tensor) -> list[torch.Tensor]:
    n = read(_count, x)
    return [x.new_empty(n, dtype=torch.int64) for _ in range(max(x.ndim, 1))]


@op("nonzero_numpy", "where")
def nonzero_numpy(b: Builder, x: Value) -> list[Value]:
    return _positions(b, x if x.ndim else b.reshape(x, [1]), b.out[0].shape[0])


@sizes("masked_select")
def masked_select_like(read: Read, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    each = math.prod(shape) // max(mask.numel(), 1)
    return x.new_empty(read(_count, mask) * each)


@op("masked_select")
def masked_select(b: Builder, x: Value, mask: Value) -> Value:
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    n = b.out.shape[0]
    at = places(b, b.expand(mask, shape), n)
    return b.layer("Gather", _flat(b, b.expand(x, shape)), at, axis=0) if varies(n) or n else b.fill([0], 0, x.dtype)


_READING = (aten.index.Tensor, aten._unsafe_index.Tensor)
_WRITING = (aten.index_put.default, aten.index_put_.default, aten._unsafe_index_put.default)


def plain(call: Callable[..., Any], read: Read, func: Any, args: Any) -> tuple[Any, Any]:
    """Returns an equivalent operator and arguments whose sizes do not depend on data. Masks become indices of their
    selected elements, and tensors that say where to cut become numbers. `call` calls an operator."""
    if func in _READING or func in _WRITING:
        return func, _without_masks(call, func, args)
    if func is aten.masked_select.default and args[0].shape != args[1].shape:
        shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
        return func, (args[0], call(aten.expand.default, (), (args[1], shape)))
    if func is aten.narrow.Tensor:
        return aten.narrow.default, (*args[:2], read(torch.Tensor.item, args[2]), *args[3:])
    if func is aten.tensor_split.tensor_indices_or_sections:
        at = read(torch.Tensor.tolist, args[1])
        return (aten.tensor_split.indices if args[1].ndim else aten.tensor_split.sections), (args[0], at, *args[2:])
    if func._schema.name in ("torchvision::roi_align", "torchvision::ps_roi_align") and args[5] <= 0:
        _, _, scale, height, width, _, *aligned = args  # ps_roi_align always is
        most = read(functools.partial(most_points, scale, height, width, aligned != [False]), args[1])
        return func, (*args[:5], Most(most), *aligned)
    return func, args


def _without_masks(call: Callable[..., Any], func: Any, args: Any) -> Any:
    """Replaces masks by indices. A mask whose elements all get the same values may stay."""
    x, indices, *more = args
    if not any(i is not None and i.dtype in _MASKS for i in indices):
        return args
    if func in _WRITING and len(indices) == 1 and indices[0].dtype == torch.bool:
        rest, values = x.ndim - indices[0].ndim, more[0]
        if values.ndim <= rest or (values.ndim == rest + 1 and values.shape[0] == 1):
            return args
    found: list[Any] = []
    for i in indices:
        if i is None or i.dtype not in _MASKS:
            found.append(i)
        elif i.shape != x.shape[len(found) : len(found) + i.ndim] or not i.ndim:
            return args  # PyTorch reports the error
        else:
            found += call(aten.nonzero_numpy.default, (), (i,))
    return (x, found, *more)


# -- unique values


def _groups(b: Builder, x: Value, n: int) -> tuple[Value, Value, Value]:
    """For rows: group numbers, where equal consecutive rows form a group; where the groups begin; the size of each."""
    size = x.shape[0]
    if size < 2:
        zero = b.fill([size], 0, torch.int64)
        return zero, zero, b.fill([size], 1, torch.int64)
    differ = b.map("ne", b.slice(x, 0, 1, size), b.slice(x, 0, 0, size - 1))
    for _ in range(x.ndim - 1):
        differ = b.cast(b.reduce("Max", b.cast(differ, torch.int64), differ.ndim - 1), torch.bool)
    new = b.cast(b.concat([b.fill([1], 1, torch.bool), differ], 0), torch.int64)
    starts = places(b, new, n)
    ends = b.concat([b.slice(starts, 0, 1, n), b.fill([1], size, torch.int64)], 0)
    return b.sub(b.layer("CumSum", new, axis=0), 1), starts, b.sub(ends, starts)


def _none(b: Builder) -> Value:
    return b.fill([0], 0, torch.int64)


def _unique_like(x: torch.Tensor, n: int, inverse: bool, counts: bool, shape: Sequence[int]) -> tuple[Any, ...]:
    return (
        x.new_empty(n),
        x.new_empty(shape if inverse else 0, dtype=torch.int64),
        x.new_empty(n if counts else 0, dtype=torch.int64),
    )


def _distinct(x: torch.Tensor) -> int:
    return len(torch.unique(x))


MOST[_distinct] = torch.Tensor.numel


@sizes("_unique2")
def unique_like(
    read: Read, x: torch.Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Any, ...]:
    return _unique_like(x, read(_distinct, x), return_inverse, return_counts, x.shape)


@op("_unique2")
def unique(b: Builder, x: Value, sorted: bool, return_inverse: bool, return_counts: bool) -> tuple[Value, ...]:
    """The result is always sorted."""
    flat = b.cast(_flat(b, x), torch.uint8 if x.dtype == torch.bool else x.dtype)
    size = flat.shape[0]
    if varies(b.out[0].shape[0]):
        first, inverse, counts = b.layers("Unique", flat, outputs=3, size=b.out[0].shape[0])
        return (
            b.cast(b.layer("Gather", flat, first, axis=0), x.dtype),
            b.reshape(inverse, x.shape) if return_inverse else _none(b),
            counts if return_counts else _none(b),
        )
    if not size:
        return b.fill([0], 0, x.dtype), b.fill(b.out[1].shape, 0, torch.int64), _none(b)
    values, order = b.layers("Sort", flat, outputs=2, axis=0, down=0)
    group, starts, counts = _groups(b, values, b.out[0].shape[0])
    inverse = b.layer("ScatterElements", b.fill([size], 0, torch.int64), order, group, axis=0)
    return (
        b.cast(b.layer("Gather", values, starts, axis=0), x.dtype),
        b.reshape(inverse, x.shape) if return_inverse else _none(b),
        counts if return_counts else _none(b),
    )


def _distinct_rows(dim: int, x: torch.Tensor) -> int:
    return torch.unique(x, dim=dim).shape[dim]


MOST[_distinct_rows] = lambda dim, x: x.shape[dim]


@sizes("unique_dim")
def unique_dim_like(
    read: Read,
    x: torch.Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Any, ...]:
    n = read(functools.partial(_distinct_rows, dim), x)
    shape = [n if d == dim % x.ndim else s for d, s in enumerate(x.shape)]
    shape[0], shape[dim] = shape[dim], shape[0]  # this dimension is the outermost in memory
    return x.new_empty(shape).transpose(0, dim), *_unique_like(x, n, True, True, [x.shape[dim]])[1:]


@op("unique_dim")
def unique_dim(b: Builder, x: Value, dim: int, sorted: bool, return_inverse: bool, return_counts: bool) -> Any:
    """The result is always sorted, and has all three parts."""
    axis = dim % x.ndim
    rows = b.transpose(x, 0, axis) if axis else x
    first, inverse, counts = b.layers("Unique", rows, outputs=3, size=b.out[0].shape[axis])
    return b.layer("Gather", x, first, axis=axis), inverse, counts


@sizes("unique_consecutive")
def unique_consecutive_like(
    read: Read, x: torch.Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Any, ...]:
    n = read(lambda t: torch.unique_consecutive(t, dim=dim).shape[dim or 0], x)
    if dim is None:
        return _unique_like(x, n, return_inverse, return_counts, x.shape)
    shape = [n if d == dim % x.ndim else s for d, s in enumerate(x.shape)]
    shape[0], shape[dim] = shape[dim], shape[0]  # this dimension is the outermost in memory
    _, inverse, counts = _unique_like(x, n, return_inverse, return_counts, [x.shape[dim]])
    return x.new_empty(shape).transpose(0, dim), inverse, counts


@op("unique_consecutive")
def unique_consecutive(
    b: Builder, x: Value, return_inverse: bool, return_counts: bool, dim: int | None
) -> tuple[Value, ...]:
    axis = 0 if dim is None else dim % x.ndim
    whole = _flat(b, x) if dim is None else x
    rows = b.transpose(whole, 0, axis) if axis else whole
    rows = b.reshape(rows, [rows.shape[0], math.prod(rows.shape[1:])]) if rows.ndim > 1 else rows
    if not math.prod(rows.shape):  # rows without elements are all equal
        zeros = b.fill(b.out[1].shape, 0, torch.int64)
        return b.fill(b.out[0].shape, 0, x.dtype), zeros, b.fill(b.out[2].shape, rows.shape[0], torch.int64)
    group, starts, counts = _groups(b, rows, b.out[0].shape[axis])
    return (
        b.layer("Gather", whole, starts, axis=axis),
        b.reshape(group, b.out[1].shape) if return_inverse else _none(b),
        counts if return_counts else _none(b),
    )


# -- counts and repetitions


def _bins(x: torch.Tensor) -> int:
    if not x.numel():
        return 0
    low, high = x.aminmax()
    return len(torch.bincount(x)) if low < 0 else int(high) + 1  # PyTorch says what is wrong


@sizes("bincount")
def bincount_like(read: Read, x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor:
    n = max(read(_bins, x), minlength)
    dtype = torch.int64 if weights is None else torch.float32 if weights.dtype == torch.float32 else torch.float64
    return x.new_empty(n, dtype=dtype)


@op("bincount")
def bincount(b: Builder, x: Value, weights: Value | None, minlength: int) -> Value:
    dtype = b.out.dtype
    weight = b.scalar(1, dtype) if weights is None else b.cast(weights, dtype)
    n = b.out.shape[0]
    return tally(b, b.cast(x, torch.int64), n, weight) if n else b.fill([0], 0, dtype)


def _repeats(x: torch.Tensor) -> int:
    return len(torch.repeat_interleave(x.reshape(-1)))


@sizes("repeat_interleave.Tensor")
def repeated_like(read: Read, x: torch.Tensor, output_size: int | None = None) -> torch.Tensor:
    return x.new_empty(read(_repeats, x))


@op("repeat_interleave.Tensor")
def repeated(b: Builder, x: Value, output_size: object) -> Value:
    """Repeats each number as often as the element at its position says."""
    n = b.out.shape[0]
    if not n:
        return b.fill([0], 0, x.dtype)
    ends = b.layer("CumSum", b.cast(x, torch.int64), axis=0)
    return b.cast(b.layer("Bucketize", _range(b, n), ends, right=1), x.dtype)


@sizes("repeat_interleave.self_Tensor")
def repeat_like(
    read: Read, x: torch.Tensor, repeats: torch.Tensor, dim: int | None = None, output_size: int | None = None
) -> torch.Tensor:
    flat, axis = (x.reshape(-1), 0) if dim is None else (x, dim % max(x.ndim, 1))
    shape = list(flat.shape)
    shape[axis] = read(_repeats, repeats) * (shape[axis] if repeats.numel() == 1 else 1)
    return x.new_empty(shape)


@op("repeat_interleave.self_Tensor")
def repeat(b: Builder, x: Value, repeats: Value, dim: int | None, output_size: object) -> Value:
    flat, axis = (_flat(b, x), 0) if dim is None else (x, dim % max(x.ndim, 1))
    n = b.out.shape[axis]
    if not math.prod(b.out.shape):
        return b.fill(b.out.shape, 0, x.dtype)
    ends = b.layer("CumSum", b.cast(b.expand(_flat(b, repeats), [flat.shape[axis]]), torch.int64), axis=0)
    return b.layer("Gather", flat, b.layer("Bucketize", _range(b, n), ends, right=1), axis=axis)


def _classes(x: torch.Tensor) -> int:
    return torch.nn.functional.one_hot(x).shape[-1]


@sizes("one_hot")
def one_hot_like(read: Read, x: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    n = read(_classes, x) if num_classes < 0 else num_classes
    return x.new_empty((*x.shape, n), dtype=torch.int64)


@op("one_hot")
def one_hot(b: Builder, x: Value, num_classes: int) -> Value:
    return b.layer("OneHot", b.cast(x, torch.int64), n=b.out.shape[-1])


# -- boxes


def _kept(threshold: float, boxes: torch.Tensor, scores: torch.Tensor) -> int:
    return len(torch.ops.torchvision.nms(boxes, scores, threshold))


MOST[_kept] = lambda threshold, boxes, scores: scores.numel()


@sizes("torchvision.nms.default")
def nms_like(read: Read, dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    return dets.new_empty(read(functools.partial(_kept, iou_threshold), dets, scores), dtype=torch.int64)


@op("torchvision.nms.default")
def nms(b: Builder, dets: Value, scores: Value, iou_threshold: float) -> Value:
    """The boxes that overlap none with a higher score by more than the threshold, highest score first."""
    boxes, of_class = b.reshape(dets, [1, *dets.shape]), b.reshape(scores, [1, 1, *scores.shape])
    most, limit = b.scalar((1 << 63) - 1, torch.int64), b.scalar(iou_threshold, torch.float64)
    found = b.layer("NonMaxSuppression", boxes, of_class, most, limit, size=b.out.shape[0])
    return b.layer("Select", found, axis=1, index=2)
