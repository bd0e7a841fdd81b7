"""Random numbers: functions of a seed, which each call draws anew, and of positions (the layer Rand).

Each operator has its own positions, so no two operators share numbers, and neither threads nor the order of
computation matter. The numbers differ from PyTorch's, but have the same distributions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..builder import Builder, Rejected, Value
from .table import op, reject

MOST = 1 << 48  # integers come from 48 random bits


def _integers(b: Builder, shape: Sequence[int], low: int, high: int) -> Value:
    """Integers in low..high-1."""
    if not 0 < high - low <= MOST:
        raise Rejected(f"random integers in {low}..{high - 1}: more than 2^48")
    steps = b.map("floor", b.mul(b.random(shape, torch.float64), high - low))
    return b.to_out(b.add(b.cast(steps, torch.int64), low))


def _kept(b: Builder, shape: Sequence[int], p: float, dtype: torch.dtype) -> Value:
    """1 with probability 1-p, otherwise 0."""
    if not 0 <= p <= 1:
        raise Rejected(f"a probability of {p}")
    return b.cast(b.compare("ge", b.random(shape, torch.float32), p), dtype)


# -- new tensors, also in the shape of another


@op("rand", "rand.generator", "rand_like", "rand_like.generator")
def rand(b: Builder, x: object, dtype: object = None) -> Value:
    return b.random(b.out.shape, b.out.dtype)


@op("randn", "randn.generator", "randn_like", "randn_like.generator")
def randn(b: Builder, x: object, dtype: object = None) -> Value:
    return b.normal(b.out.shape, b.out.dtype)


@op("randint", "randint.generator")
def randint(b: Builder, x: int, size: object, dtype: object) -> Value:
    return _integers(b, b.out.shape, 0, x)


@op("randint.low", "randint.low_generator")
def randint_low(b: Builder, x: int, high: int, size: object, dtype: object) -> Value:
    return _integers(b, b.out.shape, x, high)


@op("randint_like", "randint_like.generator", "randint_like.low_dtype", "randint_like.low_generator_dtype")
def randint_like(b: Builder, x: Value, high: int, low: int = 0, dtype: object = None) -> Value:
    return _integers(b, x.shape, low, high)


@op("randperm", "randperm.generator")
def randperm(b: Builder, x: int, dtype: object) -> Value:
    if x == 0:
        return b.fill([0], 0, b.out.dtype)
    return b.to_out(b.layers("Sort", b.random([x], torch.float64), outputs=2, axis=0)[1])


# -- distributions; for in-place operators, the tensor gives shape and type


@op("bernoulli", "bernoulli_.Tensor", "bernoulli.Tensor")
def bernoulli(b: Builder, x: Value, p: Value | None = None) -> Value:
    p = x if p is None else p
    p = p if p.is_float else b.cast(p, torch.float32)
    return b.to_out(b.map("lt", b.random(b.out.shape, p.dtype), p))


@op("bernoulli.p", "bernoulli_.float")
def bernoulli_number(b: Builder, x: Value, p: float) -> Value:
    return b.to_out(b.compare("lt", b.random(x.shape, torch.float32), p))


@op("uniform")
def uniform(b: Builder, x: Value, from_: float, to: float) -> Value:
    y = b.add(b.mul(b.random(x.shape, x.dtype), to - from_), from_)
    last = torch.nextafter(torch.tensor(to, dtype=x.dtype), torch.tensor(from_, dtype=x.dtype)).item()
    return b.map("min", y, b.scalar(last, x.dtype))  # rounding must not reach the upper end


@op("random.from", "random.to")
def random_integers(b: Builder, x: Value, from_: int = 0, to: int | None = None) -> Value:
    if to is None:
        raise Rejected("without an upper bound")
    return _integers(b, x.shape, from_, to)


@op("normal_functional", "normal_", "normal.Tensor_float")
def normal(b: Builder, x: Value, mean: float = 0.0, std: float = 1.0) -> Value:
    center: Value | float = x if b.target == "aten.normal.Tensor_float" else mean
    return b.add(b.mul(b.normal(x.shape, x.dtype), std), center)


@op("normal.float_float")
def normal_sized(b: Builder, x: float, std: float, size: object, dtype: object) -> Value:
    return b.add(b.mul(b.normal(b.out.shape, b.out.dtype), std), x)


@op("normal.Tensor_Tensor", "normal.float_Tensor")
def normal_tensors(b: Builder, x: Value | float, std: Value) -> Value:
    return b.add(b.map("mul", b.normal(b.out.shape, b.out.dtype), b.to_out(std)), x)


@op("log_normal")
def log_normal(b: Builder, x: Value, mean: float, std: float) -> Value:
    return b.map("exp", b.add(b.mul(b.normal(x.shape, x.dtype), std), mean))


def _exponential(b: Builder, shape: Sequence[int], dtype: torch.dtype) -> Value:
    return b.map("neg", b.map("log1p", b.map("neg", b.random(shape, dtype))))


@op("exponential")
def exponential(b: Builder, x: Value, lambd: float) -> Value:
    return b.div(_exponential(b, x.shape, x.dtype), lambd)


@op("geometric")
def geometric(b: Builder, x: Value, p: float) -> Value:
    """The number of trials until the first success."""
    if p == 1:
        return b.fill(x.shape, 1, x.dtype)
    tries = b.map("ceil", b.div(_exponential(b, x.shape, torch.float64), -math.log1p(-p)))
    return b.to_out(b.map("max", tries, b.scalar(1, torch.float64)))


@op("cauchy")
def cauchy(b: Builder, x: Value, median: float, sigma: float) -> Value:
    angle = b.mul(b.sub(b.random(x.shape, x.dtype), 0.5), math.pi)
    return b.add(b.mul(b.map("tan", angle), sigma), median)


# -- dropout


def drop(b: Builder, x: Value, p: float, shape: Sequence[int] | None = None) -> Value:
    """Zeroes elements of x with probability p and scales the others to the same mean. `shape`: elements that are zeroed
    together share an element of it."""
    if p == 0:
        return x
    if p == 1:
        return b.mul(x, 0)
    return b.map("mul", x, b.div(_kept(b, shape or x.shape, p, x.dtype), 1 - p))


def _channels(x: Value) -> list[int]:
    if x.ndim < 2:
        raise Rejected(f"a tensor of {x.ndim} dimensions")
    return [*x.shape[:2], *[1] * (x.ndim - 2)]


@op("dropout")
def dropout(b: Builder, x: Value, p: float, train: bool) -> Value:
    return drop(b, x, p) if train else x


@op("feature_dropout")
def feature_dropout(b: Builder, x: Value, p: float, train: bool) -> Value:
    return drop(b, x, p, _channels(x)) if train and p else x


@op("alpha_dropout", "feature_alpha_dropout")
def alpha_dropout(b: Builder, x: Value, p: float, train: bool) -> Value:
    """Dropout that preserves mean 0 and variance 1 after selu: dropped elements become selu's lower limit."""
    if not train or p == 0:
        return x
    if p == 1:
        return b.mul(x, 0)
    limit = 1.7580993408473766
    scale = 1 / math.sqrt((limit * limit * p + 1) * (1 - p))
    kept = _kept(b, _channels(x) if "feature" in b.target else x.shape, p, x.dtype)
    shift = b.add(b.mul(b.sub(kept, 1), limit * scale), limit * scale * p)
    return b.map("add", b.map("mul", x, b.mul(kept, scale)), shift)


@op("native_dropout")
def native_dropout(b: Builder, x: Value, p: float, train: bool | None) -> tuple[Value, Value]:
    if train is False or p == 0:
        return x, b.fill(x.shape, True, torch.bool)
    if p == 1:
        return b.mul(x, 0), b.fill(x.shape, False, torch.bool)
    kept = _kept(b, x.shape, p, torch.bool)
    return b.mul(b.map("mul", x, b.cast(kept, x.dtype)), 1 / (1 - p)), kept


@op("rrelu")
def rrelu(b: Builder, x: Value, lower: float, upper: float, training: bool) -> Value:
    if not training:
        return b.map("leaky_relu", x, b.scalar((lower + upper) / 2, x.dtype))
    slope = b.add(b.mul(b.random(x.shape, x.dtype), upper - lower), lower)
    return b.where(b.compare("le", x, 0), b.map("mul", x, slope), x)


@op("multinomial")
def multinomial(b: Builder, x: Value, num_samples: int, replacement: bool) -> Value:
    """Without replacement those whose weight over an exponential number is largest (the Gumbel trick), as in PyTorch; with it,
    where uniform numbers lie among the running sums."""
    n = x.shape[-1]
    if num_samples == 1 or not replacement:
        times = b.map("max", _exponential(b, x.shape, x.dtype), b.scalar(torch.finfo(x.dtype).tiny, x.dtype))
        race = b.map("div", x, times)
        return b.layers("TopK", race, outputs=2, k=num_samples, axis=x.ndim - 1, largest=1)[1]
    sums = b.layer("CumSum", b.cast(x, torch.float64), axis=x.ndim - 1)
    total = b.slice(sums, x.ndim - 1, n - 1, n)
    drawn = b.map("mul", b.random([*x.shape[:-1], num_samples], torch.float64), total)
    return b.cast(b.layer("Bucketize", drawn, sums, right=1), torch.int64)


reject("random integers of a type's whole range", "random")
reject(
    "this distribution is not supported; supported are uniform, normal, Bernoulli, exponential, geometric, Cauchy, log-normal",
    *"poisson binomial _standard_gamma _sample_dirichlet rrelu_with_noise".split(),
)
