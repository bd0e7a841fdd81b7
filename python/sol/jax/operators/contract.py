"""Products: dot_general and convolutions of any layout."""

from __future__ import annotations

import string
from typing import Any

from ..builder import Builder, Value, sol_name
from .shapes import pad_axis
from .table import op


@op("dot_general")
def _dot(b: Builder, p: dict[str, Any], x: Value, y: Value) -> Value:
    (contract_x, contract_y), (batch_x, batch_y) = p["dimension_numbers"]
    to = sol_name(p["preferred_element_type"]) if p.get("preferred_element_type") is not None else x.dtype
    x, y = b.cast(x, to), b.cast(y, to)
    of_x = list(string.ascii_letters[: x.ndim])
    of_y = list(string.ascii_letters[x.ndim : x.ndim + y.ndim])
    for i, k in zip((*contract_x, *batch_x), (*contract_y, *batch_y), strict=True):
        of_y[k] = of_x[i]
    out = [of_x[i] for i in batch_x]
    out += [c for i, c in enumerate(of_x) if i not in contract_x and i not in batch_x]
    out += [c for i, c in enumerate(of_y) if i not in contract_y and i not in batch_y]
    return b.layer("Einsum", x, y, eq=f"{''.join(of_x)},{''.join(of_y)}->{''.join(out)}")


@op("conv_general_dilated")
def _conv(b: Builder, p: dict[str, Any], x: Value, w: Value) -> Value:
    layout = p["dimension_numbers"]
    to = sol_name(p["preferred_element_type"]) if p.get("preferred_element_type") is not None else x.dtype
    x, w = b.permute(b.cast(x, to), layout.lhs_spec), b.permute(b.cast(w, to), layout.rhs_spec)
    zero = b.scalar(0, x.dtype)
    padding = list(p["padding"])
    for i, apart in enumerate(p["lhs_dilation"]):
        x = pad_axis(b, x, zero, i + 2, (0, 0, apart - 1))
    for i, (low, high) in enumerate(padding):  # negative padding removes pixels
        x = pad_axis(b, x, zero, i + 2, (0 if low >= 0 else low, 0 if high >= 0 else high, 0))
    attributes = {
        "s": list(p["window_strides"]),
        "p": [max(low, 0) for low, _ in padding],
        "q": [max(high, 0) for _, high in padding],
        "d": list(p["rhs_dilation"]),
        "g": p["feature_group_count"],
    }
    groups = p["batch_group_count"]
    n, o = x.shape[0] // groups, w.shape[0] // groups
    parts = [
        b.layer("Conv", b.slice(x, 0, i * n, (i + 1) * n), b.slice(w, 0, i * o, (i + 1) * o), **attributes)
        for i in range(groups)
    ]
    return b.permute_back(b.concat(parts, 1), layout.out_spec)
