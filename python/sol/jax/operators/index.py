"""Reading and writing at positions that are data.

A gather along one dimension that reads whole slices is a Gather. Every other one reads single elements of the operand as a
list, at positions that are computed from the indices; a scatter likewise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sol.forms import Varies, least, varies

from ..builder import Builder, Value, product
from .table import Rejected, op

MODES = {
    "scatter": "none",
    "scatter_add": "add",
    "scatter-add": "add",
    "scatter_mul": "mul",
    "scatter-mul": "mul",
    "scatter_min": "min",
    "scatter-min": "min",
    "scatter_max": "max",
    "scatter-max": "max",
}


def _mode(p: dict[str, Any]) -> str:
    """What happens to positions outside: clip, fill, or promise (there are none)."""
    text = str(p["mode"])
    return "clip" if "CLIP" in text else "fill" if "FILL" in text else "promise"


@op("gather")
def _gather(b: Builder, p: dict[str, Any], x: Value, at: Value) -> Value:
    d, sizes, mode = p["dimension_numbers"], p["slice_sizes"], _mode(p)
    at = b.cast(at, "i64")
    axis = d.start_index_map[0] if len(d.start_index_map) == 1 else -1
    whole = axis >= 0 and all(n == (1 if i == axis else x.shape[i]) for i, n in enumerate(sizes))
    if whole and d.collapsed_slice_dims == (axis,) and not d.operand_batching_dims:
        return _slices(b, p, x, b.reshape(at, at.shape[:-1]), axis, mode)
    if at.ndim == 1 and not d.operand_batching_dims and (starts := _starts(b, p, x, at)) is not None:
        return _part(b, p, x, starts)
    return _elements(b, p, x, at, mode)


def _starts(b: Builder, p: dict[str, Any], x: Value, at: Value) -> list[int] | None:
    """Where the only slice begins in each dimension, if that is known and all of it lies inside."""
    known = b.known(at)
    if known is None:
        return None
    starts = [0] * x.ndim
    for axis, n in zip(p["dimension_numbers"].start_index_map, known.tolist(), strict=True):
        starts[axis] = n
    try:
        inside = all(s >= 0 and s + n <= of for s, n, of in zip(starts, p["slice_sizes"], x.shape, strict=True))
    except Varies:
        return None
    return starts if inside else None


def _part(b: Builder, p: dict[str, Any], x: Value, starts: list[int]) -> Value:
    """One slice of the operand."""
    d = p["dimension_numbers"]
    for axis, (start, n) in enumerate(zip(starts, p["slice_sizes"], strict=True)):
        x = b.slice(x, axis, start, start + n)
    return b.reshape(x, [n for i, n in enumerate(x.shape) if i not in d.collapsed_slice_dims])


def _inside(b: Builder, at: Value, most: int) -> Value:
    low = b.layer("ge", at, b.scalar(0, "i64"))
    return b.layer("logical_and", low, b.layer("le", at, b.scalar(most, "i64")))


def _clipped(b: Builder, at: Value, most: int) -> Value:
    return b.layer("min", b.layer("max", at, b.scalar(0, "i64")), b.scalar(most, "i64"))


def _fill_value(p: dict[str, Any], x: Value) -> Any:
    if p.get("fill_value") is not None:
        return p["fill_value"]
    if x.real:
        return np.nan
    if x.dtype == "bool":
        return True
    info = np.iinfo(np.dtype(x.dtype.replace("i", "int").replace("u", "uint").replace("uintint", "uint")))
    return info.min if x.dtype[0] == "i" else info.max


def _all_inside(at: np.ndarray[Any, Any], most: Any) -> bool:
    """Whether known positions are 0..most, for all sizes."""
    if not at.size:
        return True
    try:
        return bool(at.min() >= 0) and int(at.max()) <= most
    except Varies:
        return False


def _slices(b: Builder, p: dict[str, Any], x: Value, at: Value, axis: int, mode: str) -> Value:
    """Slices along one dimension."""
    most = x.shape[axis] - 1
    if most < 0:
        if mode != "fill":
            raise Rejected("an operand without elements")
        return b.fill(_fill_value(p, x), b.shape, x.dtype)
    known = b.known(at)
    safe = known is not None and _all_inside(known, most)
    made = b.layer("Gather", x, at if safe else _clipped(b, at, most), axis=axis)
    if mode == "fill" and not safe:
        inside = b.reshape(_inside(b, at, most), [1] * axis + list(at.shape) + [1] * (x.ndim - axis - 1))
        made = b.layer("where", b.cast(inside, made.dtype), made, b.scalar(_fill_value(p, x), x.dtype))
    offset = p["dimension_numbers"].offset_dims  # where the slices' own dimensions go
    inner = list(range(axis)) + list(range(axis + at.ndim, made.ndim))
    batch = list(range(axis, axis + at.ndim))
    order, slices, lists = [0] * made.ndim, iter(inner), iter(batch)
    for i in range(made.ndim):
        order[i] = next(slices) if i in offset else next(lists)
    return b.permute(made, order)


def _positions(b: Builder, d: dict[str, Any], x: Value, at: Value, mode: str) -> tuple[Value, Value | None]:
    """For every element of the slices: its position in the operand as a list, and whether the slice lies inside (None:
    all do). The result has the dimensions of the indices (but the last), then those of a slice, size 1 where collapsed."""
    batch = at.shape[:-1]
    sizes, strides = d["sizes"], [product(x.shape[i + 1 :]) for i in range(x.ndim)]
    total: Value | None = None
    inside: Value | None = None

    def add(part: Value) -> None:
        nonlocal total
        total = part if total is None else b.layer("add", total, part)

    for k, axis in enumerate(d["map"]):
        start = b.reshape(b.slice(at, at.ndim - 1, k, k + 1), batch)
        most = x.shape[axis] - sizes[axis]
        if mode != "promise":
            if mode == "fill":
                good = _inside(b, start, most)
                inside = good if inside is None else b.layer("logical_and", inside, good)
            start = _clipped(b, start, most)
        add(b.reshape(b.layer("mul", start, b.scalar(strides[axis], "i64")), (*batch, *[1] * x.ndim)))
    for axis, n in zip(d["batching"], d["batch_at"], strict=True):
        own = b.iota([batch[i] if i == n else 1 for i in range(len(batch))], n)
        add(b.reshape(b.layer("mul", own, b.scalar(strides[axis], "i64")), (*own.shape, *[1] * x.ndim)))
    for axis, n in enumerate(sizes):
        if varies(n) or n > 1:
            own = b.iota([n if i == axis else 1 for i in range(x.ndim)], axis)
            add(b.reshape(b.layer("mul", own, b.scalar(strides[axis], "i64")), (*[1] * len(batch), *own.shape)))
    shape = (*batch, *sizes)
    found = b.expand(total, shape) if total is not None else b.fill(0, shape, "i64")
    if inside is not None:
        inside = b.expand(b.reshape(inside, (*batch, *[1] * x.ndim)), shape)
    return found, inside


def _numbers(d: Any, sizes: Any, batching: Any, batch_at: Any, index_map: Any) -> dict[str, Any]:
    return {"sizes": list(sizes), "map": index_map, "batching": batching, "batch_at": batch_at}


def _elements(b: Builder, p: dict[str, Any], x: Value, at: Value, mode: str) -> Value:
    d, sizes = p["dimension_numbers"], p["slice_sizes"]
    numbers = _numbers(d, sizes, d.operand_batching_dims, d.start_indices_batching_dims, d.start_index_map)
    if not product(b.shape):
        return b.fill(0, b.shape, x.dtype)
    where, inside = _positions(b, numbers, x, at, mode)
    made = b.layer("Gather", b.reshape(x, [product(x.shape)]), where, axis=0)
    if inside is not None:
        made = b.layer("where", b.cast(inside, made.dtype), made, b.scalar(_fill_value(p, x), x.dtype))
    gone = {*d.collapsed_slice_dims, *d.operand_batching_dims}
    nbatch = at.ndim - 1
    kept = [n for i, n in enumerate(sizes) if i not in gone]
    made = b.reshape(made, (*at.shape[:-1], *kept))
    slices, lists = iter(range(nbatch, made.ndim)), iter(range(nbatch))
    return b.permute(made, [next(slices) if i in d.offset_dims else next(lists) for i in range(made.ndim)])


@op(*MODES)
def _scatter(b: Builder, p: dict[str, Any], x: Value, at: Value, updates: Value) -> Value:
    """Writes every element of the updates to the operand as a list; what lies outside goes to a place behind its end."""
    d, mode, how = p["dimension_numbers"], _mode(p), MODES[b.kind]
    at = b.cast(at, "i64")
    if not product(updates.shape):
        return x
    gone = {*d.inserted_window_dims, *d.operand_batching_dims}
    window = [i for i in range(updates.ndim) if i in d.update_window_dims]
    batch = [i for i in range(updates.ndim) if i not in d.update_window_dims]
    own = iter(updates.shape[i] for i in window)
    sizes = [1 if i in gone else next(own) for i in range(x.ndim)]
    numbers = _numbers(
        d, sizes, d.operand_batching_dims, d.scatter_indices_batching_dims, d.scatter_dims_to_operand_dims
    )
    where, inside = _positions(b, numbers, x, at, mode)
    values = b.reshape(b.permute(updates, batch + window), [product(updates.shape)])
    where, n = b.reshape(where, [product(updates.shape)]), product(x.shape)
    plain = b.reshape(x, [n])
    if inside is not None:
        inside = b.reshape(inside, [product(updates.shape)])
        where = b.layer("where", b.cast(inside, "i64"), where, b.scalar(n, "i64"))
        plain = b.concat([plain, b.fill(0, [1], x.dtype)], 0)
    made = b.layer("ScatterElements", plain, where, values, axis=0, mode=how)
    return b.reshape(b.slice(made, 0, 0, n), x.shape)


@op("dynamic_slice")
def _dynamic_slice(b: Builder, p: dict[str, Any], x: Value, *starts: Value) -> Value:
    for axis, (start, n) in enumerate(zip(starts, p["slice_sizes"], strict=True)):
        x = _piece(b, x, axis, start, n)
    return x


def _piece(b: Builder, x: Value, axis: int, start: Value, n: int) -> Value:
    most = x.shape[axis] - n
    if most == 0:
        return x
    known = b.known(start)
    if known is not None:
        at = least(max(int(known), 0), most)
        return b.slice(x, axis, at, at + n)
    first = _clipped(b, b.cast(start, "i64"), most)
    return b.layer("Gather", x, b.layer("add", b.iota([n], 0), first), axis=axis)


@op("dynamic_update_slice")
def _dynamic_update_slice(b: Builder, p: dict[str, Any], x: Value, update: Value, *starts: Value) -> Value:
    known = [b.known(s) for s in starts]
    most = [n - m for n, m in zip(x.shape, update.shape, strict=True)]
    if all(k is not None for k in known):
        first = [least(max(int(k), 0), m) for k, m in zip(known, most, strict=True) if k is not None]
        end = [f + n for f, n in zip(first, update.shape, strict=True)]
        return b.layer("SliceScatter", x, update, axes=list(range(x.ndim)), start=first, end=end, step=[1] * x.ndim)
    inside: Value | None = None
    for axis, start in enumerate(starts):
        if most[axis] == 0:
            continue
        offset = b.layer("sub", b.iota([x.shape[axis]], 0), _clipped(b, b.cast(start, "i64"), most[axis]))
        good = _inside(b, offset, update.shape[axis] - 1)
        good = b.reshape(good, [x.shape[axis] if i == axis else 1 for i in range(x.ndim)])
        inside = good if inside is None else b.layer("logical_and", inside, good)
        update = b.layer("Gather", update, _clipped(b, offset, update.shape[axis] - 1), axis=axis)
    return update if inside is None else b.layer("where", b.cast(inside, x.dtype), update, x)
