"""Reductions, scans along a dimension, windows, and sorting."""

from __future__ import annotations

import math
from typing import Any

from ..builder import Builder, Value, sol_name
from .shapes import pad_axis
from .table import ROWS, Rejected, op

OVER = {
    "reduce_sum": "Sum",
    "reduce_max": "Max",
    "reduce_min": "Min",
    "reduce_prod": "Prod",
    "reduce_and": "All",
    "reduce_or": "Any",
}
ALONG = {
    "cumsum": "CumSum",
    "cumprod": "CumProd",
    "cummax": "CumMax",
    "cummin": "CumMin",
    "cumlogsumexp": "LogCumSumExp",
}
MONOIDS = {"add": "Sum", "max": "Max", "min": "Min", "mul": "Prod", "and": "All", "or": "Any"}


def _over(kind: str) -> Any:
    def row(b: Builder, p: dict[str, Any], x: Value) -> Value:
        return _reduced(b, kind, x, p["axes"])

    return row


def _reduced(b: Builder, kind: str, x: Value, axes: Any) -> Value:
    if not axes:
        return x
    if kind in ("All", "Any") and x.dtype != "bool":
        raise Rejected("bits of integers, reduced")
    return b.cast(b.layer(kind, x, axes=list(axes), keep=0), x.dtype)


def _along(kind: str) -> Any:
    return lambda b, p, x: b.cast(b.layer(kind, x, axis=p["axis"], reverse=int(p["reverse"])), x.dtype)


ROWS.update({name: _over(kind) for name, kind in OVER.items()})
ROWS.update({name: _along(kind) for name, kind in ALONG.items()})


@op("reduce")
def _reduce(b: Builder, p: dict[str, Any], *operands: Value) -> Value:
    """lax.reduce with one operation that SOL reduces by."""
    equations = p["jaxpr"].jaxpr.eqns if hasattr(p["jaxpr"], "jaxpr") else p["jaxpr"].eqns
    name = equations[0].primitive.name if len(equations) == 1 else ""
    if len(operands) != 2 or name not in MONOIDS:
        raise Rejected("a reduction by a function of the user's")
    x, start = operands
    made = _reduced(b, MONOIDS[name], x, p["dimensions"])
    return b.cast(b.layer({"and": "logical_and", "or": "logical_or"}.get(name, name), made, start), x.dtype)


@op("argmax", "argmin")
def _arg(b: Builder, p: dict[str, Any], x: Value) -> Value:
    made = b.layer({"argmax": "ArgMax", "argmin": "ArgMin"}[b.kind], x, axis=p["axes"][0])
    return b.cast(made, sol_name(p["index_dtype"]))


@op("reduce_window_max", "reduce_window_min", "reduce_window_sum")
def _window(b: Builder, p: dict[str, Any], x: Value) -> Value:
    """Windows over some dimensions: those go to the end, and the others become the batch."""
    size, step, dilation = p["window_dimensions"], p["window_strides"], p["window_dilation"]
    zero = {"reduce_window_sum": 0, "reduce_window_max": -math.inf, "reduce_window_min": math.inf}[b.kind]
    if any(n != 1 for n in p["base_dilation"]) and not x.real:
        raise Rejected("windows over integers with zeros between")
    for axis, apart in enumerate(p["base_dilation"]):
        x = pad_axis(b, x, b.scalar(zero if x.real else 0, x.dtype), axis, (0, 0, apart - 1))
    inside = [i for i in range(x.ndim) if size[i] != 1 or step[i] != 1 or tuple(p["padding"][i]) != (0, 0)]
    if not inside:
        return x
    order = [i for i in range(x.ndim) if i not in inside] + inside
    y = b.permute(x, order)
    lead, pixels = y.shape[: -len(inside)], y.shape[-len(inside) :]
    y = b.reshape(y, (1, math.prod(lead), *pixels))
    attributes = {
        "k": [size[i] for i in inside],
        "s": [step[i] for i in inside],
        "p": [p["padding"][i][0] for i in inside],
        "q": [p["padding"][i][1] for i in inside],
        "d": [dilation[i] for i in inside],
    }
    y = _pooled(b, y, attributes)
    return b.permute_back(b.reshape(y, (*lead, *y.shape[2:])), order)


def _pooled(b: Builder, x: Value, attributes: dict[str, Any]) -> Value:
    if b.kind == "reduce_window_sum":
        mean = b.layer("AvgPool", x, pads=1, **attributes)
        return b.layer("mul", mean, b.scalar(math.prod(attributes["k"]), x.dtype))
    if b.kind == "reduce_window_max":
        return b.layer("MaxPool", x, **attributes)
    return b.layer("neg", b.layer("MaxPool", b.layer("neg", x), **attributes))


@op("sort")
def _sort(b: Builder, p: dict[str, Any], *operands: Value) -> list[Value]:
    axis = p["dimension"]
    keys = list(operands[: p["num_keys"]])
    first, at = b.layers("Sort", keys[-1], outputs=2, axis=axis)
    if len(operands) == 1:
        return [first]
    for key in reversed(keys[:-1]):  # stable: the last key first
        moved = b.layer("GatherElements", key, at, axis=axis)
        at = b.layer("GatherElements", at, b.layers("Sort", moved, outputs=2, axis=axis)[1], axis=axis)
    return [b.layer("GatherElements", x, at, axis=axis) for x in operands]


@op("top_k")
def _top_k(b: Builder, p: dict[str, Any], x: Value) -> list[Value]:
    made, at = b.layers("TopK", x, outputs=2, k=p["k"], axis=p.get("axis", -1))
    return [made, b.cast(at, b.out[1][1])]
