"""Primitives that move elements."""

from __future__ import annotations

from typing import Any

from sol.forms import form, varies

from ..builder import Builder, Value, product, sol_name
from .table import Rejected, op


@op("reshape", "squeeze", "expand_dims")
def _reshape(b: Builder, p: dict[str, Any], x: Value) -> Value:
    if b.kind == "reshape" and p.get("dimensions") is not None:
        x = b.permute(x, p["dimensions"])
    return b.reshape(x, b.shape)


@op("dim_as_value")
def _size(b: Builder, p: dict[str, Any]) -> Value:
    return b.scalar(p["dim"], b.out[0][1])


@op("transpose")
def _transpose(b: Builder, p: dict[str, Any], x: Value) -> Value:
    return b.permute(x, p["permutation"])


@op("broadcast_in_dim")
def _broadcast(b: Builder, p: dict[str, Any], x: Value) -> Value:
    sizes = [1] * len(b.shape)
    for i, d in enumerate(p["broadcast_dimensions"]):
        sizes[d] = x.shape[i]
    return b.expand(b.reshape(x, sizes), b.shape)


@op("concatenate")
def _concatenate(b: Builder, p: dict[str, Any], *parts: Value) -> Value:
    return b.concat(parts, p["dimension"])


@op("slice")
def _slice(b: Builder, p: dict[str, Any], x: Value) -> Value:
    steps = p["strides"] or [1] * x.ndim
    for axis, part in enumerate(zip(p["start_indices"], p["limit_indices"], steps, strict=True)):
        x = b.slice(x, axis, *part)
    return x


@op("split")
def _split(b: Builder, p: dict[str, Any], x: Value) -> list[Value]:
    return b.layers("Split", x, outputs=len(p["sizes"]), axis=p["axis"], sizes=list(p["sizes"]))


@op("rev")
def _rev(b: Builder, p: dict[str, Any], x: Value) -> Value:
    return b.layer("Flip", x, axes=list(p["dimensions"])) if p["dimensions"] else x


@op("tile")
def _tile(b: Builder, p: dict[str, Any], x: Value) -> Value:
    return b.layer("Tile", x, n=list(p["reps"]))


@op("iota")
def _iota(b: Builder, p: dict[str, Any]) -> Value:
    return b.iota(p["shape"], p["dimension"], sol_name(p["dtype"]))


@op("stack")
def _stack(b: Builder, p: dict[str, Any], *parts: Value) -> Value:
    return b.layer("Stack", *parts, axis=p["axis"] if "axis" in p else p["dimension"])


@op("iota_2x32_shape")
def _counts(b: Builder, p: dict[str, Any]) -> list[Value]:
    """The row-major position of each element, as its upper and lower 32 bits."""
    n = product(p["shape"])
    low = b.reshape(b.layer("Range", n=n, to="u32"), p["shape"])
    if varies(n):
        b.graph.require(form((1 << 32) - n), f"random arrays of at most 2^32 elements {b.where}")
    elif n > 1 << 32:
        raise Rejected("random arrays of more than 2^32 elements")
    return [b.fill(0, p["shape"], "u32"), low]


@op("pad")
def _pad(b: Builder, p: dict[str, Any], x: Value, value: Value) -> Value:
    """Padding before, after and between elements; a negative one removes."""
    for axis, (low, high, inside) in enumerate(p["padding_config"]):
        x = pad_axis(b, x, value, axis, (low, high, inside))
    return x


def pad_axis(b: Builder, x: Value, value: Value, axis: int, padding: tuple[int, int, int]) -> Value:
    """One dimension of `pad`."""
    low, high, inside = padding
    if inside and x.shape[axis] > 1:
        sizes = list(x.shape)
        apart = b.reshape(x, [*sizes[: axis + 1], 1, *sizes[axis + 1 :]])
        apart = _pad_with(b, apart, value, axis + 1, 0, inside)
        x = b.reshape(apart, [*sizes[:axis], sizes[axis] * (inside + 1), *sizes[axis + 1 :]])
        x = b.slice(x, axis, 0, x.shape[axis] - inside)
    x = _pad_with(b, x, value, axis, max(low, 0), max(high, 0))
    return b.slice(x, axis, max(-low, 0), x.shape[axis] - max(-high, 0)) if low < 0 or high < 0 else x


def _pad_with(b: Builder, x: Value, value: Value, axis: int, low: int, high: int) -> Value:
    if low == high == 0:
        return x
    known = b.known(value)
    if known is not None:
        p, q = [0] * x.ndim, [0] * x.ndim
        p[axis], q[axis] = low, high
        return b.layer("Pad", x, p=p, q=q, v=float(known), mode="constant")

    def border(n: int) -> list[Value]:
        sizes = list(x.shape)
        sizes[axis] = n
        return [b.expand(b.reshape(value, [1] * x.ndim), sizes)] if n else []

    return b.concat([*border(low), x, *border(high)], axis)
