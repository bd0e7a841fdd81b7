"""Functions of complex numbers, computed from real functions of their parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ..builder import REAL, Builder, Complex, Value
from . import reduce, table
from .pairs import Number, OfReal, Operand, Pair, Part, both, out_of, parts, product, real_type, reciprocal_of, scaled
from .table import complex_op

# -- absolute values and angles; the gradient at 0 is 0


def _length(b: Builder, re: Value, im: Part) -> Value:
    return b.map("abs", re) if im is None else b.map("magnitude", re, im)


def _angle(b: Builder, re: Value, im: Part) -> Value:
    im = b.fill(re.shape, 0, re.dtype) if im is None else im
    zero = b.map("logical_and", b.compare("eq", re, 0), b.compare("eq", im, 0))
    return b.map("atan2", im, b.where(zero, b.scalar(1, re.dtype), re))


@complex_op("abs", "absolute")
def absolute(b: Builder, x: Complex) -> Value:
    return _length(b, x.re, x.im)


@complex_op("angle")
def angle(b: Builder, x: Complex) -> Value:
    return _angle(b, x.re, x.im)


@complex_op("sgn")
def sgn(b: Builder, x: Complex) -> Complex:
    if x.im is None:
        return Complex(b.map("sign", x.re), None)
    length = _length(b, x.re, x.im)
    length = b.where(b.compare("eq", length, 0), b.scalar(1, length.dtype), length)
    return Complex(b.map("div", x.re, length), b.map("div", x.im, length))


@complex_op("linalg_vector_norm")
def vector_norm(b: Builder, x: Complex, ord: Number, dim: Any, keepdim: bool, dtype: object) -> Value:
    return reduce.vector_norm(b, _length(b, x.re, x.im), ord, dim, keepdim, dtype)


@complex_op("var.correction", "std.correction", "var_mean.correction", "std_mean.correction")
def variance(b: Builder, x: Complex, dim: Any, correction: Number | None, keepdim: bool) -> Any:
    """The variance of both parts together."""
    (var, mean), (more, turned) = (
        reduce.var_mean_correction(b, v, dim, correction, keepdim) for v in (x.re, b.imaginary(x))
    )
    y = b.map("add", var, more)
    y = b.map("norm_sqrt", y) if "std" in b.target else y
    return (y, Complex(mean, turned)) if "_mean" in b.target else y


@complex_op("dist")
def dist(b: Builder, x: Complex, other: Complex, p: Number) -> Value:
    re, im = b.map("sub", x.re, other.re), b.map("sub", b.imaginary(x), b.imaginary(other))
    return reduce.vector_norm(b, _length(b, re, im), p, None, False, None)


# -- functions


def _exp(b: Builder, x: tuple[Value, Value]) -> tuple[Value, Value]:
    length = b.map("exp", x[0])
    return b.map("mul", length, b.map("cos", x[1])), b.map("mul", length, b.map("sin", x[1]))


def _log(b: Builder, x: tuple[Value, Value]) -> tuple[Value, Value]:
    return b.map("log", _length(b, *x)), _angle(b, *x)


def _turned(b: Builder, x: tuple[Value, Value]) -> tuple[Value, Value]:
    """i x"""
    return b.map("neg", x[1]), x[0]


def _sinh(b: Builder, x: tuple[Value, Value]) -> tuple[Value, Value]:
    first = b.map("mul", b.map("sinh", x[0]), b.map("cos", x[1]))
    return first, b.map("mul", b.map("cosh", x[0]), b.map("sin", x[1]))


def _cosh(b: Builder, x: tuple[Value, Value]) -> tuple[Value, Value]:
    first = b.map("mul", b.map("cosh", x[0]), b.map("cos", x[1]))
    return first, b.map("mul", b.map("sinh", x[0]), b.map("sin", x[1]))


def _tanh(b: Builder, x: tuple[Value, Value]) -> Pair:
    """Computes (t (1 + c^2), c (1 - t^2)) / (1 + t^2 c^2) with t = tanh(re), c = tan(im), which does not overflow for
    large re."""
    t, c = b.map("tanh", x[0]), b.map("tan", x[1])
    one, tt, cc = b.scalar(1, t.dtype), b.map("square", t), b.map("square", c)
    below = b.map("add", b.map("mul", tt, cc), one)
    re = b.map("div", b.map("mul", t, b.map("add", cc, one)), below)
    return re, b.map("div", b.map("mul", c, b.map("sub", one, tt)), below)


def _sqrt(b: Builder, x: tuple[Value, Value]) -> tuple[Value, Value]:
    length, half = b.map("sqrt", _length(b, *x)), b.mul(_angle(b, *x), 0.5)
    return b.map("mul", length, b.map("cos", half)), b.map("mul", length, b.map("sin", half))


def _back(b: Builder, x: Pair) -> Pair:
    """-i x"""
    return (b.fill(x[0].shape, 0, x[0].dtype) if x[1] is None else x[1]), b.map("neg", x[0])


def _sigmoid(b: Builder, x: tuple[Value, Value]) -> Pair:
    re, im = _exp(b, (b.map("neg", x[0]), b.map("neg", x[1])))
    return reciprocal_of(b, (b.add(re, 1), im))


def _log1p(b: Builder, x: tuple[Value, Value]) -> tuple[Value, Value]:
    """Uses |1 + x|^2 = 1 + re (2 + re) + im^2."""
    more = b.map("add", b.map("mul", x[0], b.add(x[0], 2)), b.map("square", x[1]))
    return b.mul(b.map("log1p", more), 0.5), _angle(b, b.add(x[0], 1), x[1])


def _expm1(b: Builder, x: tuple[Value, Value]) -> tuple[Value, Value]:
    """Computes e^re cos(im) - 1 with cos(im) = 1 - 2 sin(im/2)^2."""
    less = b.mul(b.map("square", b.map("sin", b.mul(x[1], 0.5))), 2)
    re = b.map("sub", b.map("mul", b.map("expm1", x[0]), b.map("cos", x[1])), less)
    return re, b.map("mul", b.map("exp", x[0]), b.map("sin", x[1]))


FUNCTIONS: dict[str, Callable[[Builder, tuple[Value, Value]], Pair]] = {
    "exp": _exp,
    "log": _log,
    "sqrt": _sqrt,
    "rsqrt": lambda b, x: reciprocal_of(b, _sqrt(b, x)),
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "sin": lambda b, x: _back(b, _sinh(b, _turned(b, x))),
    "cos": lambda b, x: _cosh(b, _turned(b, x)),
    "tan": lambda b, x: _back(b, _tanh(b, _turned(b, x))),
    "sigmoid": _sigmoid,
    "log1p": _log1p,
    "expm1": _expm1,
    "log2": lambda b, x: scaled(b, _log(b, x), 1 / math.log(2)),
    "log10": lambda b, x: scaled(b, _log(b, x), 1 / math.log(10)),
    "exp2": lambda b, x: _exp(b, (b.mul(x[0], math.log(2)), b.mul(x[1], math.log(2)))),
    "silu": lambda b, x: product(b, x, _sigmoid(b, x)),
}
for _name, _function in FUNCTIONS.items():

    @complex_op(_name)
    def function(b: Builder, x: Complex, f: Any = _function) -> Complex:
        return Complex(*f(b, both(b, x, real_type(b))))


@complex_op("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "float_power.Tensor_Scalar")
def power(b: Builder, x: Operand, exponent: Operand) -> Complex:
    dtype = real_type(b)
    base = parts(b, x, dtype)
    if isinstance(exponent, int | float) and float(exponent).is_integer() and abs(exponent) <= 16:
        made: Pair = (b.fill(base[0].shape, 1, dtype), None) if exponent == 0 else base
        for _ in range(int(abs(exponent)) - 1):
            made = product(b, made, base)
        return out_of(b, reciprocal_of(b, made) if exponent < 0 else made)
    given = both(b, x, dtype)
    zero = b.map("logical_and", b.compare("eq", given[0], 0), b.compare("eq", given[1], 0))
    safe = b.where(zero, b.scalar(1, dtype), given[0]), given[1]
    wanted = parts(b, exponent, dtype)
    log = product(b, _log(b, safe), wanted)
    re, im = _exp(b, (log[0], b.fill(log[0].shape, 0, dtype) if log[1] is None else log[1]))
    at_zero = b.where(b.compare("eq", _length(b, *wanted), 0), b.scalar(1, dtype), 0)
    return out_of(b, (b.where(zero, at_zero, re), b.where(zero, b.scalar(0, dtype), im)))


@complex_op("prod", "prod.dim_int")
def prod(b: Builder, x: Complex, dim: int = 0, keepdim: bool = False, dtype: object = None) -> Complex:
    """Multiplies one half with the other, repeatedly: log2(n) products."""
    left = both(b, x, real_type(b))
    if "dim_int" not in b.target or not x.ndim:
        n = math.prod(x.shape)
        left, dim = (b.reshape(left[0], [n]), b.reshape(left[1], [n])), 0
    while (n := left[0].shape[dim]) > 1:
        first, second = ([b.slice(v, dim, s, s + n // 2) for v in left] for s in (0, n // 2))
        re, im = product(b, (first[0], first[1]), (second[0], second[1]))
        assert im is not None
        odd = [b.slice(v, dim, n - n % 2, n) for v in left]
        left = (b.concat([re, odd[0]], dim), b.concat([im, odd[1]], dim)) if n % 2 else (re, im)
    if not n:
        return out_of(b, (b.scalar(1, left[0].dtype), None))
    return Complex(b.reshape(left[0], b.out.shape), b.reshape(left[1], b.out.shape))


# -- predicates


@complex_op("eq.Tensor", "eq.Scalar", "ne.Tensor", "ne.Scalar")
def equal(b: Builder, x: Operand, other: Operand) -> Value:
    kinds = [v.dtype if isinstance(v, Complex | Value) else torch.complex64 for v in (x, other)]
    dtype = REAL.get(promoted := torch.promote_types(*kinds), promoted)
    pairs = zip(both(b, x, dtype), both(b, other, dtype), strict=True)
    re, im = (b.map("eq", p, q) for p, q in pairs)
    same = b.map("logical_and", re, im)
    return b.map("logical_not", same) if ".ne." in b.target else same


def _either(function: str, together: str) -> None:
    @complex_op(function)
    def row(b: Builder, x: Complex) -> Value:
        return b.map(together, b.map(function, x.re), b.map(function, b.imaginary(x)))


_either("isnan", "logical_or")
_either("isinf", "logical_or")
_either("isfinite", "logical_and")
_either("logical_not", "logical_and")


class _Truth(OfReal):
    """An operator that only tests whether numbers are 0."""

    def __call__(self, b: Builder, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
        known = tuple(_nonzero(b, a) if isinstance(a, Complex) else a for a in args)
        made: Value = self.row(b, schema, known, kwargs)
        return made


def _nonzero(b: Builder, x: Complex) -> Value:
    return b.map("logical_or", b.compare("ne", x.re, 0), b.compare("ne", b.imaginary(x), 0))


for _word in (
    "any any.dim any.dims all all.dim all.dims logical_and logical_or logical_xor count_nonzero count_nonzero.dim_IntList"
).split():
    table.COMPLEX[table.full_name(_word)] = _Truth(_word)


@complex_op("isreal")
def isreal(b: Builder, x: Complex) -> Value:
    return b.compare("eq", b.imaginary(x), 0)
