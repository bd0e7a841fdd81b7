"""Normalizations, softmax, pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from sol import forms
from sol.gradients import max_pool_gradient

from ..builder import Builder, Value, axis_of, sol_name
from .contract import _each
from .table import op, shape

Ints = Sequence[int]

# -- normalizations


def _batch_norm(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    var: Value | None,
    training: bool,
    eps: float,
    momentum: float = 0.0,
) -> Value:
    if 0 in x.shape and x.ndim < 2:  # there are no channels
        return x
    if 0 in x.shape:  # the running statistics stay, and gradients of the parameters are 0
        of_channel = [1, x.shape[1], *[1] * (x.ndim - 2)]
        scaled = x if weight is None else b.mul(x, b.reshape(weight, of_channel))
        return scaled if bias is None else b.add(scaled, b.reshape(bias, of_channel))
    if not training and mean is not None and var is not None:
        return b.layer("BatchNorm", x, weight, bias, mean, var, e=float(eps))
    y, batch_mean, batch_var = b.layers("BatchNormTrain", x, weight, bias, outputs=3, e=float(eps))
    if training and mean is not None and var is not None:
        n = math.prod(x.shape) // max(x.shape[1], 1)
        b.write("running_mean", _mixed(b, mean, batch_mean, momentum))
        b.write("running_var", _mixed(b, var, _unbiased(b, batch_var, n), momentum))
    return y


def _unbiased(b: Builder, var: Value, n: int | forms.Size) -> Value:
    """A variance of n values that was divided by n, divided by n - 1."""
    less = forms.most(n - 1, 1)
    if not isinstance(n, forms.Size):
        return b.mul(var, n / less)
    ratio = b.div(b.scalar(n, torch.float64), b.scalar(less, torch.float64))
    return b.mul(var, b.cast(ratio, var.dtype))


def _mixed(b: Builder, old: Value, new: Value, momentum: float) -> Value:
    return b.add(b.mul(old, 1 - momentum), b.mul(b.cast(new, old.dtype), momentum))


@op("batch_norm")
def batch_norm(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    eps: float,
    momentum: float,
) -> Value:
    return _batch_norm(b, x, weight, bias, running_mean, running_var, training, eps, momentum)


@op("_native_batch_norm_legit_no_training")
def native_batch_norm(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, running_mean: Value, running_var: Value, eps: float
) -> tuple[Value | None, ...]:
    empty = b.fill([0], 0, x.dtype)
    return _batch_norm(b, x, weight, bias, running_mean, running_var, False, eps), empty, empty


@op("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "_batch_norm_no_update")
def batch_norm_and_statistics(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    momentum: float,
    eps: float,
    training: bool | None = None,
) -> tuple[Value, ...]:
    """The mean and inverse standard deviation that were used, or nothing, and a reserve, which is empty here."""
    training = "_with_update" in b.target if training is None else training
    y = _batch_norm(b, x, weight, bias, running_mean, running_var, training, eps, momentum)
    rest = [b.fill(out.shape, 0, out.dtype) for out in b.out[1:]]
    if rest[0].shape != (0,):
        dims = [d for d in range(x.ndim) if d != 1]
        variance = b.reduce("Var", x, dims, correction=0)
        rest[:2] = b.reduce("Mean", x, dims), b.map("rsqrt", b.add(variance, eps))
    return y, *(b.layer("stop", v) if v.tracked else v for v in rest)


@op("_native_batch_norm_legit.no_stats")
def native_batch_norm_no_stats(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, training: bool, eps: float
) -> tuple[Value, ...]:
    y, mean, var = b.layers("BatchNormTrain", x, weight, bias, outputs=3, e=float(eps))
    return y, mean, b.map("rsqrt", b.add(var, eps))


@op("instance_norm")
def instance_norm(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    use_input_stats: bool,
    eps: float,
    momentum: float,
) -> Value:
    if not use_input_stats:
        return _batch_norm(b, x, weight, bias, running_mean, running_var, False, eps)
    if running_mean is not None and running_var is not None:  # the mean of all images' statistics
        axes, n = list(range(2, x.ndim)), math.prod(x.shape[2:])
        means, variances = b.reduce("Mean", x, axes), b.reduce("Var", x, axes, correction=0)
        b.write("running_mean", _mixed(b, running_mean, b.reduce("Mean", means, 0), momentum))
        unbiased = _unbiased(b, b.reduce("Mean", variances, 0), n)
        b.write("running_var", _mixed(b, running_var, unbiased, momentum))
    return b.layer("InstanceNorm", x, weight, bias, e=float(eps))


@op("layer_norm")
def layer_norm(
    b: Builder, x: Value, normalized_shape: Ints, weight: Value | None, bias: Value | None, eps: float
) -> Value:
    return b.layer("LayerNorm", x, weight, bias, n=len(normalized_shape), e=float(eps))


@op("native_layer_norm")
def native_layer_norm(
    b: Builder, x: Value, normalized_shape: Ints, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, ...]:
    dims = list(range(x.ndim - len(normalized_shape), x.ndim))
    variance = b.reduce("Var", x, dims, True, correction=0)
    return (
        layer_norm(b, x, normalized_shape, weight, bias, eps),
        b.reduce("Mean", x, dims, True),
        b.map("rsqrt", b.add(variance, eps)),
    )


@op("rms_norm")
def rms_norm(b: Builder, x: Value, normalized_shape: Ints, weight: Value | None, eps: float | None) -> Value:
    if eps is None:
        eps = torch.finfo(x.dtype).eps
    return b.layer("RMSNorm", x, weight, n=len(normalized_shape), e=float(eps))


@op("group_norm")
def group_norm(b: Builder, x: Value, num_groups: int, weight: Value | None, bias: Value | None, eps: float) -> Value:
    return b.layer("GroupNorm", x, weight, bias, g=num_groups, e=float(eps))


@op("native_group_norm")
def native_group_norm(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Value, ...]:
    grouped = b.reshape(x, [N, group, -1 if x.shape and 0 not in x.shape else C // group * HxW])
    variance = b.reduce("Var", grouped, 2, correction=0)
    y = group_norm(b, x, group, weight, bias, eps)
    return y, b.reduce("Mean", grouped, 2), b.map("rsqrt", b.add(variance, eps))


# -- softmax


def _softmax(kind: str, b: Builder, x: Value, dim: int) -> Value:
    x = b.to_out(x)
    if x.ndim == 0:
        return b.reshape(_softmax(kind, b, b.reshape(x, [1]), 0), [])
    return b.layer(kind, x, axis=axis_of(dim, x.ndim))


@op("softmax.int", "_softmax", "special_softmax")
def softmax(b: Builder, x: Value, dim: int, dtype: object = None, half_to_float: bool = False) -> Value:
    return _softmax("Softmax", b, x, dim)


@op("log_softmax.int", "_log_softmax", "special_log_softmax")
def log_softmax(b: Builder, x: Value, dim: int, dtype: object = None, half_to_float: bool = False) -> Value:
    return _softmax("LogSoftmax", b, x, dim)


@op("_safe_softmax")
def safe_softmax(b: Builder, x: Value, dim: int, dtype: object = None) -> Value:
    y = _softmax("Softmax", b, x, dim)
    hidden = b.reduce("All", b.map("isneginf", b.to_out(x)), dim, True)
    return b.where(hidden, b.scalar(0, y.dtype), y)


# -- pooling


@op("max_pool2d_with_indices_backward")
def max_pool_backward(
    b: Builder,
    grad_output: Value,
    self: Value,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: object,
    indices: Value,
) -> Value:
    k, s, p, d = (_each(v, 2) for v in (kernel_size, stride or kernel_size, padding, dilation))
    rows = math.prod(self.shape[:-2])
    at, dy = (b.reshape(v, [rows, *v.shape[-2:]]) for v in (indices, grad_output))
    text = max_pool_gradient(sol_name(self.dtype), rows, self.shape[-2:], dy.shape[1:], (k, s, p, d))
    return b.reshape(b.layer("Row", at, dy, text=text), self.shape)


@op("avg_pool2d_backward")
def avg_pool_backward(
    b: Builder,
    grad_output: Value,
    self: Value,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: object,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    k, s, p = (_each(v, 2) for v in (kernel_size, stride or kernel_size, padding))
    shares = []
    for i, (n, out) in enumerate(zip(self.shape[-2:], grad_output.shape[-2:], strict=True)):
        first = torch.arange(out) * s[i] - p[i]
        inside = _within(first, first + k[i], n)
        whole = (first + k[i]).clamp(max=n + p[i]) - first if count_include_pad else inside.sum(1)
        shares.append(inside / (whole[:, None] if divisor_override is None else 1.0))
    return _spread(b, grad_output, self, shares, 1.0 / (divisor_override or 1))


@op("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool_backward(b: Builder, grad_output: Value, self: Value) -> Value:
    shares = []
    for n, out in zip(self.shape[-2:], grad_output.shape[-2:], strict=True):
        places = torch.arange(out)
        inside = _within(places * n // out, -(-(places + 1) * n // out), n)
        shares.append(inside / inside.sum(1, keepdim=True))
    return _spread(b, grad_output, self, shares, 1.0)


def _within(first: torch.Tensor, end: torch.Tensor, n: int) -> torch.Tensor:
    """Which of n positions are in each range."""
    at = torch.arange(n)
    return ((at >= first[:, None]) & (at < end[:, None])).double()


def _spread(b: Builder, dy: Value, x: Value, shares: Sequence[torch.Tensor], scale: float) -> Value:
    """Gives each element of x its share of the gradients of averages: two products with constants."""
    rows, columns = (b.const(t.to(x.dtype)) for t in shares)
    made = b.layer("MatMul", b.transpose(rows), b.layer("MatMul", dy, columns))
    return made if scale == 1.0 else b.mul(made, scale)


def _pool(b: Builder, kind: str, x: Value, pixels: int, outputs: int = 1, **attrs: object) -> tuple[Value, ...]:
    """Without a batch dimension, the input is a batch of one."""
    if x.ndim == pixels + 2:
        return b.layers(kind, x, outputs=outputs, **attrs)
    return tuple(b.squeeze(y, 0) for y in b.layers(kind, b.unsqueeze(x, 0), outputs=outputs, **attrs))


def _max_pool(
    b: Builder, x: Value, pixels: int, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool, at: bool
) -> tuple[Value, ...]:
    attrs = {"k": kernel, "s": stride or kernel, "p": padding, "q": padding, "d": dilation}
    lists = {name: _each(value, pixels) for name, value in attrs.items()}
    return _pool(b, "MaxPoolAt" if at else "MaxPool", x, pixels, 2 if at else 1, c=int(ceil), **lists)


@shape("max_pool1d")
def max_pool1d_like(
    x: torch.Tensor, kernel: Ints, stride: Ints = (), padding: Ints = (0,), dilation: Ints = (1,), ceil: bool = False
) -> torch.Tensor | None:
    """The result where a size varies: PyTorch's own function takes numbers only."""
    if not any(isinstance(n, torch.SymInt) for n in x.shape):
        return None
    k, s, p, d = (_each(v, 1)[0] for v in (kernel, stride or kernel, padding, dilation))
    wide = torch.ops.aten.max_pool2d.default(x.unsqueeze(-2), [1, k], [1, s], [0, p], [1, d], ceil)
    return wide.squeeze(-2)


for _n in (1, 2, 3):

    @op(f"max_pool{_n}d")
    def max_pool(
        b: Builder,
        x: Value,
        kernel_size: Ints,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        ceil_mode: bool,
        n: int = _n,
    ) -> Value:
        return _max_pool(b, x, n, kernel_size, stride, padding, dilation, ceil_mode, False)[0]

    @op(f"max_pool{_n}d_with_indices")
    def max_pool_with_indices(
        b: Builder,
        x: Value,
        kernel_size: Ints,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        ceil_mode: bool,
        n: int = _n,
    ) -> tuple[Value, ...]:
        return _max_pool(b, x, n, kernel_size, stride, padding, dilation, ceil_mode, True)

    @op(f"avg_pool{_n}d")
    def avg_pool(
        b: Builder,
        x: Value,
        kernel_size: Ints,
        stride: Ints,
        padding: Ints,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None = None,
        n: int = _n,
    ) -> Value:
        attrs = {"k": kernel_size, "s": stride or kernel_size, "p": padding, "q": padding}
        lists = {name: _each(value, n) for name, value in attrs.items()}
        counts = {"c": int(ceil_mode), "pads": int(count_include_pad), "div": divisor_override or 0}
        return _pool(b, "AvgPool", x, n, 1, **lists, **counts)[0]

    @op(f"adaptive_avg_pool{_n}d", *([f"_adaptive_avg_pool{_n}d"] if _n > 1 else []))
    def adaptive_avg_pool(b: Builder, x: Value, output_size: Ints, n: int = _n) -> Value:
        return _pool(b, "AdaptiveAvgPool", x, n, o=_each(output_size, n))[0]

    @op(f"adaptive_max_pool{_n}d")
    def adaptive_max_pool(b: Builder, x: Value, output_size: Ints, n: int = _n) -> tuple[Value, ...]:
        return _pool(b, "AdaptiveMaxPoolAt", x, n, 2, o=_each(output_size, n))
