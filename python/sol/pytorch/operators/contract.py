"""Operators that contract: convolutions, matrix products, recurrent layers, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from sol.gradients import weight_gradient

from ..builder import Builder, Number, Rejected, Value, sol_name
from .chance import drop
from .table import of_one_type, op, shape

Ints = Sequence[int]


def _each(values: Ints | int, n: int) -> list[int]:
    """One value for each of n dimensions."""
    values = [values] if isinstance(values, int) else list(values)
    return values * n if len(values) == 1 else values


# -- convolutions


def _conv(
    b: Builder,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Ints,
    before: Ints,
    after: Ints,
    dilation: Ints,
    groups: int,
) -> Value:
    pixels = weight.ndim - 2
    batched = x if x.ndim == weight.ndim else b.unsqueeze(x, 0)
    attrs = {"s": stride, "p": before, "q": after, "d": dilation}
    y = b.layer("Conv", batched, weight, bias, g=groups, **{k: _each(v, pixels) for k, v in attrs.items()})
    return y if x.ndim == weight.ndim else b.squeeze(y, 0)


@op("conv1d", "conv2d", "conv3d")
@of_one_type
def conv(
    b: Builder, x: Value, weight: Value, bias: Value | None, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Value:
    return _conv(b, x, weight, bias, stride, padding, padding, dilation, groups)


@op("conv1d.padding", "conv2d.padding", "conv3d.padding")
@of_one_type
def conv_same(
    b: Builder, x: Value, weight: Value, bias: Value | None, stride: Ints, padding: str, dilation: Ints, groups: int
) -> Value:
    total = [0] * (weight.ndim - 2)
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(_each(dilation, weight.ndim - 2), weight.shape[2:], strict=True)]
    before = [t // 2 for t in total]
    return _conv(
        b, x, weight, bias, stride, before, [t - p for t, p in zip(total, before, strict=True)], dilation, groups
    )


def _conv_t(
    b: Builder,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Ints,
    padding: Ints,
    out_pad: Ints,
    dilation: Ints,
    groups: int,
) -> Value:
    pixels = weight.ndim - 2
    batched = x if x.ndim == weight.ndim else b.unsqueeze(x, 0)
    attrs = {"s": stride, "p": padding, "q": padding, "d": dilation, "o": out_pad}
    y = b.layer("ConvT", batched, weight, bias, g=groups, **{k: _each(v, pixels) for k, v in attrs.items()})
    return y if x.ndim == weight.ndim else b.squeeze(y, 0)


@op("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input")
@of_one_type
def conv_transpose(
    b: Builder,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Ints,
    padding: Ints,
    output_padding: Ints,
    groups: int,
    dilation: Ints,
) -> Value:
    return _conv_t(b, x, weight, bias, stride, padding, output_padding, dilation, groups)


@op("convolution")
@of_one_type
def convolution(
    b: Builder,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
) -> Value:
    if transposed:
        return _conv_t(b, x, weight, bias, stride, padding, output_padding, dilation, groups)
    return _conv(b, x, weight, bias, stride, padding, padding, dilation, groups)


@op("convolution_backward")
def convolution_backward(
    b: Builder,
    dy: Value,
    input: Value,
    weight: Value,
    bias_sizes: Ints | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Value | None, Value | None, Value | None]:
    """Gradients of the input, the weight and the bias, as far as they are wanted."""
    pixels = weight.ndim - 2
    s, p, d = (_each(v, pixels) for v in (stride, padding, dilation))
    dx = dw = db = None
    if output_mask[0] and transposed:
        dx = _conv(b, dy, weight, None, s, p, p, d, groups)
    elif output_mask[0]:
        made = [(n - 1) * s[i] - 2 * p[i] + d[i] * (weight.shape[2 + i] - 1) + 1 for i, n in enumerate(dy.shape[2:])]
        rest = [n - m for n, m in zip(input.shape[2:], made, strict=True)]
        dx = _conv_t(b, dy, weight, None, s, p, rest, d, groups)
    if output_mask[1]:
        x, y = (dy, input) if transposed else (input, dy)
        text = weight_gradient(sol_name(x.dtype), x.shape, y.shape, weight.shape, (s, p, d), groups)
        dw = b.layer("Row", x, y, text=text)
    if output_mask[2]:
        db = b.reduce("Sum", dy, [0, *range(2, dy.ndim)])
    return dx, dw, db


# -- matrix products


@op("linear")
@of_one_type
def linear(b: Builder, x: Value, weight: Value, bias: Value | None) -> Value:
    if weight.ndim == 1:
        y = b.layer("MatMul", x, weight)
        return y if bias is None else b.add(y, bias)
    return b.layer("Linear", x, weight, bias if bias is None or bias.ndim else b.expand(bias, weight.shape[:1]))


@op("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner", "linalg_matmul")
@of_one_type
def matmul(
    b: Builder,
    x: Value,
    other: Value | None = None,
    mat2: Value | None = None,
    vec: Value | None = None,
    tensor: Value | None = None,
) -> Value:
    y = other or mat2 or vec or tensor
    assert y is not None
    if x.ndim == 0 or y.ndim == 0:
        return b.map("mul", x, y)
    if "inner" in b.target:
        y = b.transpose(y) if y.ndim > 1 else y
        flat = b.layer(
            "MatMul", b.reshape(x, [math.prod(x.shape[:-1]), x.shape[-1]]) if x.ndim > 1 else x, _columns(b, y)
        )
        return b.reshape(flat, b.out.shape)
    return b.layer("MatMul", x, y)


@op("linalg_vecdot")
def vecdot(b: Builder, x: Value, y: Value, dim: int) -> Value:
    return b.reduce("Sum", b.map("mul", x, y), dim)


def _columns(b: Builder, y: Value) -> Value:
    """[.., K, N] reshaped to [K, all N]."""
    if y.ndim <= 2:
        return y
    order = [y.ndim - 2, *range(y.ndim - 2), y.ndim - 1]
    return b.reshape(b.permute(y, order), [y.shape[-2], math.prod(y.shape) // max(y.shape[-2], 1)])


def _plus(b: Builder, x: Value, product: Value, beta: Number, alpha: Number) -> Value:
    product = product if alpha == 1 else b.mul(product, alpha)
    if beta == 0:
        return product
    return b.map("add", x if beta == 1 else b.mul(x, beta), product)


@op("addmm", "addmv", "addbmm", "baddbmm")
@of_one_type
def addmm(
    b: Builder,
    x: Value,
    beta: Number,
    alpha: Number,
    mat1: Value | None = None,
    mat2: Value | None = None,
    mat: Value | None = None,
    vec: Value | None = None,
    batch1: Value | None = None,
    batch2: Value | None = None,
) -> Value:
    left, right = mat1 or mat or batch1, mat2 or vec or batch2
    assert left is not None and right is not None
    product = b.layer("MatMul", left, right)
    if product.ndim > len(b.out.shape):  # addbmm
        product = b.reduce("Sum", product, 0)
    y = _plus(b, x, product, beta, alpha)
    return b.expand(y, b.out.shape)


@op("addr")
def addr(b: Builder, x: Value, vec1: Value, vec2: Value, beta: Number, alpha: Number) -> Value:
    return _plus(b, b.cast(x, b.out.dtype), outer(b, vec1, vec2), beta, alpha)


@op("outer", "ger")
def outer(b: Builder, x: Value, vec2: Value) -> Value:
    dtype = b.out.dtype
    return b.map("mul", b.unsqueeze(b.cast(x, dtype), 1), b.cast(vec2, dtype))


@op("bilinear")
@of_one_type
def bilinear(b: Builder, x: Value, input2: Value, weight: Value, bias: Value | None) -> Value:
    return b.layer("Bilinear", x, input2, weight, bias)


@op("einsum")
def einsum(b: Builder, equation: str, tensors: Sequence[Value]) -> Value:
    return b.layer("Einsum", *(b.to_out(v) for v in tensors), eq=equation.replace(" ", ""))


@op("_cdist_forward", "cdist")
def cdist(b: Builder, x1: Value, x2: Value, p: float, compute_mode: object) -> Value:
    return b.layer("CDist", x1, x2, n=float(p))


def _grouped(b: Builder, x: Value, weight: Value, offs: Value) -> Value:
    """Multiplies the rows of x up to offs[e] by weight[e], e=0,1,.. (a mixture of experts); rows after the last group
    give 0. The lengths of groups depend on data, but sizes in generated code are constants. So each row is
    multiplied by every matrix, and one of the results is selected."""
    if x.ndim != 2 or weight.ndim != 3:
        raise Rejected(f"groups of {x.ndim} by {weight.ndim} dimensions: only rows of a matrix are grouped")
    products = b.layer("MatMul", b.unsqueeze(x, 0), weight)
    row = b.layer("Range", n=x.shape[0], to="i64")
    which = b.layer("Bucketize", row, b.cast(offs, torch.int64), right=1)
    return b.layer("Row", products, which, text="p[E S N] i:int[S] -> y:p[S N] | | | y[S N] = p[i[S] S N]:0")


@op("transformers.grouped_mm_fallback.default")
def grouped_mm_fallback(b: Builder, x: Value, weight: Value, offs: Value) -> Value:
    return _grouped(b, x, weight, offs)


@shape("_grouped_mm")
def grouped_mm_shape(
    x: torch.Tensor, mat2: torch.Tensor, offs: torch.Tensor | None = None, **more: object
) -> torch.Tensor:
    """The shape function. PyTorch also computes in float32, but rejects other types than bfloat16 while it traces."""
    groups = [offs.shape[0]] if offs is not None and x.ndim == mat2.ndim == 2 else []
    return x.new_empty([*groups, *x.shape[:-1], mat2.shape[-1]])


@op("_grouped_mm")
def grouped_mm(b: Builder, x: Value, mat2: Value, offs: Value | None) -> Value:
    return b.layer("MatMul", x, mat2) if offs is None else _grouped(b, x, mat2, offs)


# -- recurrent layers


def recurrent(
    b: Builder,
    kind: str,
    x: Value,
    states: Sequence[Value | None],
    params: Sequence[Value],
    biases: bool,
    layers: int,
    both: bool,
    dropout: float,
    lengths: Value | None = None,
    **attrs: Any,
) -> list[Value]:
    """Computes layers and directions one after another. x is [T N I]. Returns y and the last states, [layers*directions
    N H] each.

    With a projection (proj_size), each layer has an additional, last weight. `lengths`: the number of steps of each
    sequence.
    """
    directions = 2 if both else 1
    plain = 4 if biases else 2
    ending = [] if lengths is None else [lengths]
    each = len(params) // (layers * directions)
    ends: list[list[Value]] = [[] for _ in states]
    for layer in range(layers):
        results = []
        x = drop(b, x, dropout) if layer else x
        for d in range(directions):
            k = layer * directions + d
            own = list(params[k * each : (k + 1) * each])
            weights = own[:plain] + [None] * (4 - plain)
            start = [None if s is None else b.layer("Select", s, axis=0, index=k) for s in states]
            more: list[Value | None] = [*own[plain:]]
            if kind == "LSTM" and ending and not more:
                more = [None]
            given = (x, *weights, *start, *more, *ending)
            y, *last = b.layers(kind, *given, outputs=1 + len(states), reverse=d, **attrs)
            results.append(y)
            for end, value in zip(ends, last, strict=True):
                end.append(value)
        x = b.concat(results, 2)
    return [x] + [b.layer("Stack", *end, axis=0) for end in ends]


def _sequence(
    b: Builder,
    kind: str,
    x: Value,
    states: Sequence[Value | None],
    params: Sequence[Value],
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
    batch_first: bool,
    **attrs: Any,
) -> tuple[Value, ...]:
    unbatched = x.ndim == 2
    if unbatched:
        x, states = b.unsqueeze(x, 1), [s and b.unsqueeze(s, 1) for s in states]
    elif batch_first:
        x = b.transpose(x, 0, 1)
    y, *last = recurrent(b, kind, x, states, params, biases, layers, both, dropout if train else 0.0, **attrs)
    if unbatched:
        return tuple(b.squeeze(v, 1) for v in (y, *last))
    return (b.transpose(y, 0, 1) if batch_first else y, *last)


def _sequence_like(
    x: torch.Tensor, states: Sequence[torch.Tensor], params: Sequence[torch.Tensor], both: bool, batch_first: bool
) -> tuple[torch.Tensor, ...] | None:
    """The results of a recurrence over a number of steps that varies, where PyTorch would call operators for each step."""
    if x.ndim != 3 or not isinstance(x.shape[0 if not batch_first else 1], torch.SymInt):
        return None
    steps, n = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    if x.shape[2] != params[0].shape[1] or any(s.shape[1] != n for s in states):
        return None  # PyTorch raises an error
    y = x.new_empty((steps, n, states[0].shape[2] * (2 if both else 1)))
    return (y.transpose(0, 1) if batch_first else y, *(s.new_empty(s.shape) for s in states))


@shape("lstm.input")
def lstm_like(
    x: torch.Tensor, hx: Sequence[torch.Tensor], params: Sequence[torch.Tensor], *more: bool
) -> tuple[torch.Tensor, ...] | None:
    return _sequence_like(x, hx, params, *more[-2:])


@shape("gru.input", "rnn_tanh.input", "rnn_relu.input")
def simple_like(
    x: torch.Tensor, hx: torch.Tensor, params: Sequence[torch.Tensor], *more: bool
) -> tuple[torch.Tensor, ...] | None:
    return _sequence_like(x, [hx], params, *more[-2:])


@op("lstm.input")
def lstm(
    b: Builder,
    x: Value,
    hx: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Value, ...]:
    return _sequence(b, "LSTM", x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)


def _simple(kind: str, **attrs: object) -> None:
    names = {"GRU": "gru.input", "RNN": f"rnn_{attrs.get('act')}.input"}

    @op(names[kind])
    def row(
        b: Builder,
        x: Value,
        hx: Value,
        params: Sequence[Value],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Value, ...]:
        return _sequence(
            b, kind, x, [hx], params, has_biases, num_layers, dropout, train, bidirectional, batch_first, **attrs
        )


_simple("GRU")
_simple("RNN", act="tanh")
_simple("RNN", act="relu")


def _cell(
    b: Builder, kind: str, x: Value, states: Sequence[Value], weights: Sequence[Value | None], **attrs: object
) -> tuple[Value, ...]:
    single = x.ndim == 1
    if single:
        x, states = b.unsqueeze(x, 0), [b.unsqueeze(s, 0) for s in states]
    _, *last = b.layers(kind, b.unsqueeze(x, 0), *weights, *states, outputs=1 + len(states), **attrs)
    return tuple(b.squeeze(v, 0) for v in last) if single else tuple(last)


@op("lstm_cell")
def lstm_cell(
    b: Builder, x: Value, hx: Sequence[Value], w_ih: Value, w_hh: Value, b_ih: Value | None, b_hh: Value | None
) -> tuple[Value, ...]:
    return _cell(b, "LSTM", x, hx, [w_ih, w_hh, b_ih, b_hh])


@op("gru_cell")
def gru_cell(
    b: Builder, x: Value, hx: Value, w_ih: Value, w_hh: Value, b_ih: Value | None, b_hh: Value | None
) -> Value:
    return _cell(b, "GRU", x, [hx], [w_ih, w_hh, b_ih, b_hh])[0]


@op("rnn_tanh_cell")
def rnn_tanh_cell(
    b: Builder, x: Value, hx: Value, w_ih: Value, w_hh: Value, b_ih: Value | None, b_hh: Value | None
) -> Value:
    return _cell(b, "RNN", x, [hx], [w_ih, w_hh, b_ih, b_hh], act="tanh")[0]


@op("rnn_relu_cell")
def rnn_relu_cell(
    b: Builder, x: Value, hx: Value, w_ih: Value, w_hh: Value, b_ih: Value | None, b_hh: Value | None
) -> Value:
    return _cell(b, "RNN", x, [hx], [w_ih, w_hh, b_ih, b_hh], act="relu")[0]


# -- attention


def _attention(
    b: Builder, q: Value, k: Value, v: Value, mask: Value | None, causal: bool, scale: float | None
) -> Value:
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    if mask is not None and mask.is_float:
        mask = b.cast(mask, q.dtype)
    return b.layer("Attention", q, k, v, mask, scale=float(scale), causal=int(causal))


@shape("scaled_dot_product_attention")
def attention_like(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    *more: Any,
    **named: Any,
) -> None:
    """Compares the sizes of operands, which PyTorch's own function does for numbers only."""
    if any(isinstance(n, torch.SymInt) for t in (query, key, value) for n in t.shape):
        torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
        torch.broadcast_shapes(key.shape[-2:-1], value.shape[-2:-1])
        if attn_mask is not None:
            torch.broadcast_shapes((*query.shape[:-1], key.shape[-2]), attn_mask.shape)


@op("scaled_dot_product_attention")
def attention(
    b: Builder,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Value:
    if scale == 0:
        raise Rejected("scale=0")
    if dropout_p > 0:
        return _dropped(b, query, key, value, attn_mask, dropout_p, is_causal, scale)
    return _attention(b, query, key, value, attn_mask, is_causal, scale)


def probabilities(b: Builder, q: Value, k: Value, mask: Value | None, scale: float | None = None) -> Value:
    """How much each query attends to each key."""
    scores = b.mul(b.layer("MatMul", q, b.transpose(k)), scale or 1 / math.sqrt(q.shape[-1]))
    if mask is not None and mask.is_float:
        scores = b.map("add", scores, b.cast(mask, q.dtype))
    elif mask is not None:
        scores = b.where(mask, scores, -math.inf)
    return b.layer("Softmax", scores, axis=scores.ndim - 1)


def _dropped(
    b: Builder, q: Value, k: Value, v: Value, mask: Value | None, p: float, causal: bool, scale: float | None
) -> Value:
    """Attention in separate steps, so that probabilities can be dropped."""
    if q.ndim > 2 and k.shape[-3] != q.shape[-3]:
        times = q.shape[-3] // k.shape[-3]
        k, v = (b.layer("RepeatInterleave", t, axis=t.ndim - 3, n=times) for t in (k, v))
    if causal:
        mask = b.const(torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril())
    return b.layer("MatMul", drop(b, probabilities(b, q, k, mask, scale), p), v)


@op("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    b: Builder,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float,
    is_causal: bool,
    attn_mask: Value | None,
    scale: float | None,
) -> tuple[Value | None, ...]:
    y = attention(b, query, key, value, attn_mask, dropout_p, is_causal, scale, False)
    return (y, None)
