"""Losses; reduction is 0 (none), 1 (mean) or 2 (sum)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..builder import Builder, Rejected, Value
from .table import alike, op, shape

MODES = ("none", "mean", "sum")


def _reduced(b: Builder, y: Value, reduction: int) -> Value:
    return y if reduction == 0 else b.reduce({1: "Mean", 2: "Sum"}[reduction], y, None)


@shape("ctc_loss.IntList", "ctc_loss.Tensor")
def ctc_shape(
    x: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: object,
    target_lengths: object,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> torch.Tensor:
    """The shape of the loss. PyTorch's own shape function would read the lengths."""
    # targets of one dimension are those of all sequences
    of_each = [(targets, 2), (input_lengths, 1), (target_lengths, 1)] if x.ndim == 3 else []
    alike(*((t.shape[0], x.shape[1]) for t, n in of_each if isinstance(t, torch.Tensor) and t.ndim == n))
    return x.new_empty(x.shape[1:2] if reduction == 0 and x.ndim == 3 else ())


@op("ctc_loss.IntList", "ctc_loss.Tensor")
def ctc_loss(
    b: Builder,
    x: Value,
    targets: Value,
    input_lengths: Value | Sequence[int],
    target_lengths: Value | Sequence[int],
    blank: int,
    reduction: int,
    zero_infinity: bool,
) -> Value:
    def lengths(n: Value | Sequence[int]) -> Value:
        n = b.ints(n) if not isinstance(n, Value) else b.cast(n, torch.int64)
        return b.reshape(n, [count])

    single, count = x.ndim == 2, 1 if x.ndim == 2 else x.shape[1]
    x = b.unsqueeze(x, 1) if single else x
    if targets.is_float:
        raise Rejected("targets that are not integers")
    times, labels = lengths(input_lengths), lengths(target_lengths)
    y = b.layer("CTCLoss", x, b.cast(targets, torch.int64), times, labels, blank=blank, zero=int(zero_infinity))
    if zero_infinity:
        y = b.where(b.compare("eq", y, math.inf), b.scalar(0, y.dtype), y)
    if reduction == 1:
        y = b.map("div", y, b.cast(b.map("max", labels, b.scalar(1, torch.int64)), y.dtype))
    return b.reshape(_reduced(b, y, reduction), b.out.shape)


@op("mse_loss")
def mse_loss(b: Builder, x: Value, target: Value, reduction: int) -> Value:
    return _reduced(b, b.map("square", b.map("sub", b.to_out(x), b.to_out(target))), reduction)


@op("l1_loss")
def l1_loss(b: Builder, x: Value, target: Value, reduction: int) -> Value:
    return _reduced(b, b.map("abs", b.map("sub", b.to_out(x), b.to_out(target))), reduction)


@op("smooth_l1_loss")
def smooth_l1_loss(b: Builder, x: Value, target: Value, reduction: int, beta: float) -> Value:
    if beta == 0:
        return l1_loss(b, x, target, reduction)
    d = b.map("sub", b.to_out(x), b.to_out(target))
    return _reduced(b, b.div(b.map("huber", d, b.scalar(beta, d.dtype)), beta), reduction)


@op("huber_loss")
def huber_loss(b: Builder, x: Value, target: Value, reduction: int, delta: float) -> Value:
    d = b.map("sub", b.to_out(x), b.to_out(target))
    return _reduced(b, b.map("huber", d, b.scalar(delta, d.dtype)), reduction)


def _nll(b: Builder, x: Value, target: Value, weight: Value | None, reduction: int, ignore: int) -> Value:
    single = x.ndim == 1
    if single:
        x, target = b.unsqueeze(x, 0), b.unsqueeze(target, 0)
    y = b.layer("NLLLoss", x, target, weight, ignore=ignore, mode=MODES[reduction])
    return b.reshape(y, b.out.shape) if single else y


@op("nll_loss", "nll_loss_nd", "nll_loss2d")
def nll_loss(b: Builder, x: Value, target: Value, weight: Value | None, reduction: int, ignore_index: int) -> Value:
    return _nll(b, x, target, weight, reduction, ignore_index)


@op("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(
    b: Builder,
    grad_output: Value,
    self: Value,
    target: Value,
    weight: Value | None,
    reduction: int,
    ignore_index: int,
    total_weight: Value,
) -> Value:
    """Each row has its gradient at the class of its target."""
    classes, behind = self.shape[min(self.ndim, 2) - 1], list(target.shape[1:])
    n = [self.shape[0]] if self.ndim > 1 else [1]
    at = b.reshape(target, [*n, 1, *behind])
    dy = grad_output if MODES[reduction] == "none" else b.expand(grad_output, [*n, *behind])
    if MODES[reduction] == "mean":
        dy = b.map("div", dy, b.expand(b.cast(total_weight, dy.dtype), dy.shape))
    dy = b.reshape(dy, [*n, 1, *behind])
    whole = [*n, classes, *behind]
    places = b.expand(b.reshape(b.ints(range(classes)), [classes, *[1 for _ in behind]]), whole)
    found = b.map("eq", places, b.expand(at, whole))
    found = b.map("logical_and", found, b.expand(b.compare("ne", at, ignore_index), whole))
    made = b.map("neg", b.expand(dy, whole))
    if weight is not None:
        made = b.map("mul", made, b.expand(b.reshape(weight, [classes, *[1 for _ in behind]]), whole))
    return b.reshape(b.where(found, made, b.fill(whole, 0, made.dtype)), self.shape)


@op("cross_entropy_loss")
def cross_entropy(
    b: Builder, x: Value, target: Value, weight: Value | None, reduction: int, ignore_index: int, label_smoothing: float
) -> Value:
    dim = 0 if x.ndim == 1 else 1
    if not target.is_float and label_smoothing == 0:
        return _nll(b, b.layer("LogSoftmax", x, axis=dim), target, weight, reduction, ignore_index)
    return _probabilities(b, x, target, weight, reduction, ignore_index, label_smoothing, dim)


def _probabilities(
    b: Builder, x: Value, target: Value, weight: Value | None, reduction: int, ignore: int, smoothing: float, dim: int
) -> Value:
    if not target.is_float:
        return b.layer(
            "CrossEntropy", x, target, weight, ignore=ignore, mode=MODES[reduction], smoothing=float(smoothing)
        )
    target = b.cast(target, x.dtype)
    if smoothing:
        target = b.add(b.mul(target, 1 - smoothing), smoothing / x.shape[dim])
    logs = b.layer("LogSoftmax", x, axis=dim)
    if weight is not None:
        logs = b.map("mul", logs, b.reshape(weight, weight.shape + (1,) * (x.ndim - 1 - dim)))
    y = b.reduce("Sum", b.map("neg", b.map("mul", logs, target)), dim)
    if reduction != 1:
        return _reduced(b, y, reduction)
    count = 1
    for d, n in enumerate(x.shape):
        count *= 1 if d == dim else n
    return b.div(b.reduce("Sum", y, None), count)


@op("binary_cross_entropy")
def binary_cross_entropy(b: Builder, x: Value, target: Value, weight: Value | None, reduction: int) -> Value:
    one = b.scalar(1, x.dtype)
    yes = b.map("max", b.map("log", x), b.scalar(-100, x.dtype))
    no = b.map("max", b.map("log1p", b.map("neg", x)), b.scalar(-100, x.dtype))
    y = b.map("sub", b.map("mul", b.map("sub", target, one), no), b.map("mul", target, yes))
    return _reduced(b, y if weight is None else b.map("mul", y, weight), reduction)


@op("kl_div")
def kl_div(b: Builder, x: Value, target: Value, reduction: int, log_target: bool) -> Value:
    if log_target:
        y = b.map("mul", b.map("exp", target), b.map("sub", target, x))
    else:
        y = b.map("sub", b.map("xlogy", target, target), b.map("mul", target, x))
    return _reduced(b, y, reduction)


@op("multilabel_margin_loss_forward")
def multilabel_margin_loss(b: Builder, x: Value, target: Value, reduction: int) -> tuple[Value, Value]:
    """Compares each class ahead of the first -1 with each class that is not in the list."""
    shape, n = target.shape, x.shape[-1] if x.ndim else 1
    x, target = (
        b.reshape(x, [math.prod(x.shape) // max(n, 1), n]),
        b.reshape(target, [math.prod(shape) // max(n, 1), n]),
    )
    listed = b.layer("CumProd", b.cast(b.compare("ge", target, 0), torch.int64), axis=1)
    safe = b.where(b.cast(listed, torch.bool), target, 0)
    is_target = b.layer("ScatterElements", b.fill(x.shape, 0, torch.int64), safe, listed, axis=1, mode="max")
    chosen = b.unsqueeze(b.layer("GatherElements", x, safe, axis=1), 2)
    margin = b.map("relu", b.map("sub", b.unsqueeze(x, 1), b.sub(chosen, 1)))
    counted = b.map("mul", b.unsqueeze(listed, 2), b.sub(b.map("neg", b.unsqueeze(is_target, 1)), -1))
    y = b.div(b.reduce("Sum", b.map("mul", margin, b.cast(counted, x.dtype)), [1, 2]), n)
    y = _reduced(b, y, reduction) if reduction else b.reshape(y, b.out[0].shape)
    return y, b.reshape(b.cast(is_target, x.dtype), shape)
