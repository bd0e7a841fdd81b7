"""Gradients that frameworks have as operators of their own, as statements in SOL's notation (docs/notation.md): texts of the layer Row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Ints = Sequence[Any]


def _sizes(sizes: Mapping[str, Any]) -> str:
    return "; ".join(f"#{name}={n}" for name, n in sizes.items())


def weight_gradient(kind: str, x: Ints, y: Ints, w: Ints, how: Sequence[Ints], groups: int) -> str:
    """The gradient of a convolution's weight, which makes y of x: positions of both are tied by strides, padding and dilations
    (`how`). x, y, w: shapes N I.., N O.. and O J..; the layer's operands are x and the gradient of y."""
    pixels = range(len(w) - 2)
    c, j = w[0] // groups, w[1]
    sizes = {"N": x[0], "I": x[1], "O": y[1], "G": groups, "C": c, "J": j}
    sizes |= {f"X{i}": x[2 + i] for i in pixels} | {f"P{i}": y[2 + i] for i in pixels}
    sizes |= {f"K{i}": w[2 + i] for i in pixels}
    at = [f"{s}*P{i}+{d}*K{i}-{p}" for i, (s, p, d) in enumerate(zip(*how, strict=True))]
    of, made, kernel = (" ".join(f"{letter}{i}" for i in pixels) for letter in "XPK")
    return (
        f" x:{kind}[N I {of}] y:{kind}[N O {made}] -> w:{kind}[O J {kernel}] | "
        + _sizes(sizes)
        + f" |  | w[{c}*G+C J {kernel}] = sum[N {made}] y[N {c}*G+C {made}]*x[N {j}*G+J {' '.join(at)}]:0"
    )


def max_pool_gradient(kind: str, rows: Any, x: Ints, y: Ints, how: Sequence[Ints]) -> str:
    """The gradient of MaxPoolAt in two dimensions: each element adds up the gradients of those windows around it in which it was
    the largest one. rows: images times channels; x, y: pixels; how: windows, strides, padding, dilations. The layer's operands are
    the positions and the gradient of y, each of shape rows P0 P1."""
    sizes = {"N": rows}
    where, inside = [], []
    for i, (k, s, p, d) in enumerate(zip(*how, strict=True)):
        sizes |= {f"P{i}": y[i], f"H{i}": x[i], f"T{i}": -(-(d * (k - 1) + 1) // s)}
        where.append(f"(H{i}+{p})//{s}-T{i}")
        inside.append(f"0<={where[i]} and {where[i]}<{y[i]}")
    at = " ".join(where)
    return (
        f" i:i64[N P0 P1] y:{kind}[N P0 P1] -> d:{kind}[N H0 H1] | "
        + _sizes(sizes)
        + f" |  | d[N H0 H1] = sum[T0 T1 | {' and '.join(inside)} and i[N {at}]=={x[1]}*H0+H1] y[N {at}]"
    )
