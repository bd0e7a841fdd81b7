"""Products, convolutions and pools. Images are NHWC in TensorFlow; SOL's layers see them as NCHW views, so nothing is moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sol import forms

from ..builder import Builder, Rejected, Value
from .table import op


@op("MatMul")
def matmul(b, o, x, y):
    x, y = b.value(x), b.value(y)
    return b.layer(
        "MatMul", b.swap(x) if o.get_attr("transpose_a") else x, b.swap(y) if o.get_attr("transpose_b") else y
    )


@op("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(b, o, x, y):
    x, y = b.value(x), b.value(y)
    return b.layer("MatMul", b.swap(x) if o.get_attr("adj_x") else x, b.swap(y) if o.get_attr("adj_y") else y)


@op("Einsum")
def einsum(b, o, *xs):
    return b.layer("Einsum", *xs, eq=o.get_attr("equation").decode())


def _is_last(o: Any) -> bool:
    """Whether channels are the last dimension."""
    return o.get_attr("data_format") in (b"NHWC", b"NDHWC")


def _window(o: Any, pixels: Sequence[Any], kernel: Sequence[Any], dilated: bool = True) -> dict[str, Any]:
    """Strides, padding in front and behind, dilations."""
    n = len(pixels)
    pick = slice(1, -1) if _is_last(o) else slice(2, None)
    s = list(o.get_attr("strides"))[pick]
    d = list(o.get_attr("dilations"))[pick] if dilated else [1] * n
    how = o.get_attr("padding")
    if how == b"EXPLICIT":
        flat = list(o.get_attr("explicit_paddings"))
        pads = [flat[2 * i : 2 * i + 2] for i in range(n + 2)][pick]
        return {"s": s, "p": [p for p, _ in pads], "q": [q for _, q in pads], "d": d}
    total: list[Any] = [0] * n
    if how == b"SAME":
        for i, (z, t, k, e) in enumerate(zip(pixels, s, kernel, d, strict=True)):
            covered = ((z + t - 1) // t - 1) * t + (k - 1) * e + 1
            total[i] = (k - 1) * e if t == 1 else forms.most(covered - z, 0)
    return {"s": s, "p": [t // 2 for t in total], "q": [t - t // 2 for t in total], "d": d}


def _image(b: Builder, o: Any, x: Any) -> Value:
    x = b.value(x)
    return b.first(x) if _is_last(o) else x


def _result(b: Builder, o: Any, y: Value) -> Value:
    return b.last(y) if _is_last(o) else y


@op("Conv2D", "Conv3D")
def conv(b, o, x, w):
    x, w = _image(b, o, x), b.value(w)
    n = x.ndim - 2
    window = _window(o, x.shape[2:], w.shape[:n])
    return _result(b, o, b.layer("Conv", x, b.permute(w, (n + 1, n, *range(n))), g=x.shape[1] // w.shape[n], **window))


@op("DepthwiseConv2dNative")
def depthwise(b, o, x, w):
    x, w = _image(b, o, x), b.value(w)
    window = _window(o, x.shape[2:], w.shape[:2])
    w = b.reshape(b.permute(w, (2, 3, 0, 1)), (w.shape[2] * w.shape[3], 1, *w.shape[:2]))
    return _result(b, o, b.layer("Conv", x, w, g=x.shape[1], **window))


@op("Conv2DBackpropInput", "Conv3DBackpropInputV2")
def conv_transposed(b, o, sizes, w, x):
    x, w, out = _image(b, o, x), b.value(w), b.ints(sizes)
    n = x.ndim - 2
    big = out[1:-1] if _is_last(o) else out[2:]
    a = _window(o, big, w.shape[:n])
    rows = zip(x.shape[2:], a["s"], a["p"], a["q"], a["d"], w.shape[:n], strict=True)
    small = [(z - 1) * t - p - q + e * (k - 1) + 1 for z, t, p, q, e, k in rows]
    rest = [z - m for z, m in zip(big, small, strict=True)]
    y = b.layer("ConvT", x, b.permute(w, (n + 1, n, *range(n))), o=rest, g=x.shape[1] // w.shape[n + 1], **a)
    return _result(b, o, y)


@op("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D")
def pool(b, o, x):
    k = list(o.get_attr("ksize"))
    if k[0] != 1 or k[-1 if _is_last(o) else 1] != 1:
        raise Rejected("a window over images or channels")
    x, k = _image(b, o, x), k[1:-1] if _is_last(o) else k[2:]
    window = _window(o, x.shape[2:], k, dilated=False)
    kind = "MaxPool" if o.type.startswith("Max") else "AvgPool"
    return _result(b, o, b.layer(kind, x, k=k, **window, **({"pads": 0} if kind == "AvgPool" else {})))
