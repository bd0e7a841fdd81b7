"""Operators that TensorFlow's own gradients consist of: in a step of training that runs operator by operator on a device, or in a
function that computes gradients itself."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sol.gradients import max_pool_gradient, weight_gradient

from ..builder import Builder, Rejected, Value
from . import table
from .contract import _image, _is_last, _result, _window
from .moves import slices

_KNOWN = frozenset(("begin", "end", "n", "shape", "sizes", "strides"))  # operands whose values a row needs


def op(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds a row whose other operands are tensors of the graph, constants included."""

    def add(row: Callable[..., Any]) -> Callable[..., Any]:
        known = [p in _KNOWN for p in list(inspect.signature(row).parameters)[2:]]

        @functools.wraps(row)
        def converted(b: Builder, o: Any, *args: Any) -> Any:
            of = [*known, *[False] * len(args)]
            return row(b, o, *[x if k else b.value(x) for x, k in zip(args, of, strict=False)])

        return table.op(*names)(converted)

    return add


# -- element-wise functions


def _positive(b: Builder, x: Any) -> Value:
    return b.layer("gt", x, b.scalar(0, x.dtype))


@op("ReluGrad")
def relu(b, o, dy, x):
    return b.layer("where", _positive(b, x), dy, b.scalar(0, x.dtype))


@op("Relu6Grad")
def relu6(b, o, dy, x):
    below = b.layer("lt", x, b.scalar(6, x.dtype))
    return b.layer("where", b.layer("mul", _positive(b, x), below), dy, b.scalar(0, x.dtype))


@op("LeakyReluGrad")
def leaky_relu(b, o, dy, x):
    return b.layer("where", _positive(b, x), dy, b.layer("mul", dy, b.scalar(o.get_attr("alpha"), x.dtype)))


_SELU = 1.0507009873554805, 1.0507009873554805 * 1.6732632423543772  # scale, scale * alpha


@op("EluGrad", "SeluGrad")
def elu(b, o, dy, y):
    scale, alpha = _SELU if o.type == "SeluGrad" else (1, 1)
    below = b.layer("mul", dy, b.layer("add", y, b.scalar(alpha, y.dtype)))
    above = b.layer("mul", dy, b.scalar(scale, y.dtype))
    return b.layer("where", b.layer("lt", y, b.scalar(0, y.dtype)), below, above)


@op("SoftplusGrad")
def softplus(b, o, dy, x):
    return b.layer("mul", dy, b.layer("sigmoid", x))


@op("SoftsignGrad")
def softsign(b, o, dy, x):
    return b.layer("div", dy, b.layer("square", b.layer("add", b.layer("abs", x), b.scalar(1, x.dtype))))


@op("SigmoidGrad")
def sigmoid(b, o, y, dy):
    return b.layer("mul", dy, b.layer("mul", y, b.layer("sub", b.scalar(1, y.dtype), y)))


@op("TanhGrad")
def tanh(b, o, y, dy):
    return b.layer("mul", dy, b.layer("sub", b.scalar(1, y.dtype), b.layer("square", y)))


@op("SqrtGrad")
def sqrt(b, o, y, dy):
    return b.layer("div", b.layer("mul", dy, b.scalar(0.5, y.dtype)), y)


@op("RsqrtGrad")
def rsqrt(b, o, y, dy):
    return b.layer("mul", b.layer("mul", dy, b.scalar(-0.5, y.dtype)), b.layer("mul", y, b.layer("square", y)))


@op("ReciprocalGrad", "InvGrad")
def reciprocal(b, o, y, dy):
    return b.layer("neg", b.layer("mul", dy, b.layer("square", y)))


@op("BiasAddGrad")
def bias_add(b, o, dy):
    channel = 1 if o.get_attr("data_format") == b"NCHW" else dy.ndim - 1
    return b.layer("Sum", dy, axes=[i for i in range(dy.ndim) if i != channel], keep=0)


# -- convolutions and pools


def _weights(b: Builder, o: Any, x: Any, dy: Any, kernel: list[Any], shape: tuple[Any, ...], groups: int) -> Value:
    """The gradient of a weight of this shape, O J and pixels."""
    x, dy = _image(b, o, x), _image(b, o, dy)
    a = _window(o, x.shape[2:], kernel)
    return b.layer(
        "Row", x, dy, text=weight_gradient(x.dtype, x.shape, dy.shape, shape, (a["s"], a["p"], a["d"]), groups)
    )


@op("Conv2DBackpropFilter", "Conv3DBackpropFilterV2")
def conv_filter(b, o, x, sizes, dy):
    *kernel, inside, made = b.ints(sizes)
    groups = (x.shape[-1] if _is_last(o) else x.shape[1]) // inside
    w = _weights(b, o, x, dy, kernel, (made, inside, *kernel), groups)
    n = len(kernel)
    return b.permute(w, [*range(2, n + 2), 1, 0])


@op("DepthwiseConv2dNativeBackpropFilter")
def depthwise_filter(b, o, x, sizes, dy):
    *kernel, channels, times = b.ints(sizes)
    w = _weights(b, o, x, dy, kernel, (channels * times, 1, *kernel), channels)
    return b.permute(b.reshape(w, (channels, times, *kernel)), (2, 3, 0, 1))


def _spread(b: Builder, o: Any, dy: Value, w: Value, big: tuple[Any, ...], groups: int, dilated: bool = True) -> Value:
    """Adds up in an image with these pixels what each pixel of dy, as NCHW, spreads with a kernel."""
    kernel = w.shape[2:]
    a = _window(o, big, kernel, dilated)
    rows = zip(big, dy.shape[2:], a["s"], a["p"], a["q"], a["d"], kernel, strict=True)
    rest = [n - ((z - 1) * s - p - q + d * (k - 1) + 1) for n, z, s, p, q, d, k in rows]
    return _result(b, o, b.layer("ConvT", dy, w, o=rest, g=groups, **a))


@op("DepthwiseConv2dNativeBackpropInput")
def depthwise_input(b, o, sizes, w, dy):
    big = tuple(b.ints(sizes))
    channels, times = w.shape[2:]
    kernel = b.reshape(b.permute(w, (2, 3, 0, 1)), (channels * times, 1, *w.shape[:2]))
    return _spread(b, o, _image(b, o, dy), kernel, big[1:3] if _is_last(o) else big[2:], channels)


@op("MaxPoolGrad")
def max_pool(b, o, x, y, dy):
    x, dy = _image(b, o, x), _image(b, o, dy)
    k = list(o.get_attr("ksize"))
    k = k[1:-1] if _is_last(o) else k[2:]
    a = _window(o, x.shape[2:], k, dilated=False)
    at = b.layers("MaxPoolAt", x, outputs=2, k=k, **a)[1]
    rows = math.prod(x.shape[:2])
    text = max_pool_gradient(x.dtype, rows, x.shape[2:], dy.shape[2:], (k, a["s"], a["p"], a["d"]))
    flat = [b.reshape(v, (rows, *dy.shape[2:])) for v in (at, dy)]
    return _result(b, o, b.reshape(b.layer("Row", *flat, text=text), x.shape))


@op("AvgPoolGrad")
def avg_pool(b, o, sizes, dy):
    big = tuple(b.ints(sizes))
    big = big[1:-1] if _is_last(o) else big[2:]
    k = list(o.get_attr("ksize"))
    k = k[1:-1] if _is_last(o) else k[2:]
    a = _window(o, big, k, dilated=False)
    dy = _image(b, o, dy)
    inside = []  # elements of each window, by dimension
    for n, made, z, s, p in zip(big, dy.shape[2:], k, a["s"], a["p"], strict=True):
        first = np.arange(made) * s - p
        inside.append(np.minimum(first + z, n) - np.maximum(first, 0))
    share = b.cast((1 / np.multiply.outer(*inside)).astype("float64"), dy.dtype)
    ones = b.layer("Expand", b.scalar(1, dy.dtype), shape=[dy.shape[1], 1, *k])
    return _spread(b, o, b.layer("mul", dy, share), ones, big, dy.shape[1], dilated=False)


# -- normalizations, losses


@op("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
def fused_batch_norm(b, o, dy, x, w, mean, var, *_):
    axis = x.ndim - 1 if _is_last(o) else 1
    shape = [n if i == axis else 1 for i, n in enumerate(x.shape)]
    axes = [i for i in range(x.ndim) if i != axis]
    mean, var, scale = (b.reshape(v, shape) for v in (mean, var, w))
    inverse = b.layer("rsqrt", b.layer("add", var, b.scalar(o.get_attr("epsilon"), var.dtype)))
    normal = b.layer("mul", b.layer("sub", x, mean), inverse)
    total = b.layer("Sum", dy, axes=axes, keep=1)
    dw = b.layer("Sum", b.layer("mul", dy, normal), axes=axes, keep=1)
    inner = dy
    if o.get_attr("is_training"):
        share = b.scalar(x.shape[axis] / x.size, x.dtype)
        inner = b.layer(
            "sub", b.layer("sub", dy, b.layer("mul", total, share)), b.layer("mul", normal, b.layer("mul", dw, share))
        )
    dx = b.layer("mul", b.layer("mul", scale, inverse), inner)
    unused = b.value(np.zeros(0, "float32"))
    return [dx, b.reshape(dw, w.shape), b.reshape(total, w.shape), unused, unused]


@op("SoftmaxCrossEntropyWithLogits")
def cross_entropy(b, o, x, t):
    found = b.layer("Sum", b.layer("mul", t, b.layer("LogSoftmax", x, axis=1)), axes=[1], keep=0)
    return [b.layer("neg", found), b.layer("sub", b.layer("Softmax", x, axis=1), t)]


@op("SparseSoftmaxCrossEntropyWithLogits")
def sparse_cross_entropy(b, o, x, labels):
    t = b.layer("OneHot", labels, n=x.shape[1], to=x.dtype)
    there = b.layer("Sum", t, axes=[1], keep=0)  # not for a label that is no class: NaN, as on GPUs
    found = b.layer("Sum", b.layer("mul", t, b.layer("LogSoftmax", x, axis=1)), axes=[1], keep=0)
    dx = b.layer("sub", b.layer("Softmax", x, axis=1), t)
    return [b.layer("neg", b.layer("div", found, there)), b.layer("div", dx, b.reshape(there, (x.shape[0], 1)))]


# -- elements by place


@op("StridedSliceGrad")
def strided_slice(b, o, shape, begin, end, strides, dy):
    sizes = b.ints(shape)
    spec, _ = slices(o, b.ints(begin), b.ints(end), b.ints(strides), sizes)
    if any(step != 1 for *_, step in spec):
        raise Rejected("a step other than 1")
    low, high, taken = [0] * len(sizes), [0] * len(sizes), list(sizes)
    for axis, first, last, _ in spec:
        low[axis], high[axis], taken[axis] = first, sizes[axis] - last, last - first
    y = b.reshape(dy, taken)
    return b.layer("Pad", y, p=low, q=high) if any(low + high) else y
