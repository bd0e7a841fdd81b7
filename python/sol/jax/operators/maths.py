"""Element-wise primitives, types, and choices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..builder import Builder, Value, sol_name
from .table import ROWS, Rejected, op

SAME = {  # primitive: SOL's function
    "add": "add",
    "add_any": "add",
    "sub": "sub",
    "mul": "mul",
    "max": "max",
    "min": "min",
    "rem": "fmod",
    "atan2": "atan2",
    "nextafter": "nextafter",
    "neg": "neg",
    "abs": "abs",
    "sign": "sign",
    "square": "square",
    "floor": "floor",
    "ceil": "ceil",
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "log": "log",
    "log1p": "log1p",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "logistic": "sigmoid",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "asinh": "asinh",
    "acosh": "acosh",
    "atanh": "atanh",
    "erf": "erf",
    "erfc": "erfc",
    "erf_inv": "erfinv",
    "lgamma": "lgamma",
    "digamma": "digamma",
    "bessel_i0e": "i0e",
    "bessel_i1e": "i1e",
    "stop_gradient": "stop",
}
COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
BITS = {"and": "bit_and", "or": "bit_or", "xor": "bit_xor"}


def _same(name: str) -> Any:
    return lambda b, p, *x: b.layer(name, *x)


def _compared(name: str) -> Any:
    return lambda b, p, x, y: b.cast(b.layer(name, x, y), "bool")


def _bits(name: str) -> Any:
    logical = {"bit_and": "logical_and", "bit_or": "logical_or", "bit_xor": "logical_xor"}[name]
    return lambda b, p, x, y: b.cast(b.layer(logical, x, y), "bool") if x.dtype == "bool" else b.layer(name, x, y)


ROWS.update({name: _same(function) for name, function in SAME.items()})
ROWS.update({name: _compared(name) for name in COMPARED})
ROWS.update({name: _bits(function) for name, function in BITS.items()})


@op("div")
def _div(b: Builder, p: dict[str, Any], x: Value, y: Value) -> Value:
    return b.layer("div" if x.real else "truncdiv", x, y)


@op("pow")
def _pow(b: Builder, p: dict[str, Any], x: Value, y: Value) -> Value:
    return b.layer("pow", x, b.cast(y, x.dtype))


@op("integer_pow")
def _integer_pow(b: Builder, p: dict[str, Any], x: Value) -> Value:
    n = p["y"]
    if x.real and -4 <= n < 0:  # products are exact where pow's logarithm is not
        return b.layer("reciprocal", b.layer("pow", x, b.scalar(-n, x.dtype)))
    return b.layer("pow", x, b.scalar(n, x.dtype))


@op("cbrt")
def _cbrt(b: Builder, p: dict[str, Any], x: Value) -> Value:
    """One step of Newton's method mends the power's last digits."""
    size = b.layer("abs", x)
    y = b.layer("pow", size, b.scalar(1 / 3, x.dtype))
    square = b.layer("mul", y, y)
    mended = b.layer("sub", y, b.layer("div", b.layer("sub", y, b.layer("div", size, square)), b.scalar(3, x.dtype)))
    ordinary = b.layer("logical_and", b.layer("gt", size, b.scalar(0, x.dtype)), b.layer("isfinite", size))
    return b.layer("copysign", b.layer("where", b.cast(ordinary, x.dtype), mended, size), x)


@op("round")
def _round(b: Builder, p: dict[str, Any], x: Value) -> Value:
    if int(p["rounding_method"]) == 1:
        return b.layer("round", x)
    down = b.layer("trunc", x)
    rest = b.layer("abs", b.layer("sub", x, down))
    away = b.layer("copysign", b.cast(b.layer("ge", rest, b.scalar(0.5, x.dtype)), x.dtype), x)
    return b.layer("add", down, away)


@op("not")
def _not(b: Builder, p: dict[str, Any], x: Value) -> Value:
    return b.cast(b.layer("logical_not", x), "bool") if x.dtype == "bool" else b.layer("bit_not", x)


@op("is_finite")
def _is_finite(b: Builder, p: dict[str, Any], x: Value) -> Value:
    return b.cast(b.layer("isfinite", x), "bool")


def _bit_size(x: Value) -> int:
    return int(x.dtype[1:])


@op("shift_left", "shift_right_logical", "shift_right_arithmetic")
def _shift(b: Builder, p: dict[str, Any], x: Value, y: Value) -> Value:
    """XLA: a shift by the number of bits or more gives 0, or the sign."""
    signed, n = x.dtype[0] == "i", _bit_size(x)
    if b.kind == "shift_right_logical" and signed:
        return b.cast(_shifted(b, "shift_right", b.cast(x, f"u{n}"), b.cast(y, f"u{n}"), 0), x.dtype)
    if b.kind == "shift_right_arithmetic":
        if not signed:
            return b.cast(_shift_signed(b, b.cast(x, f"i{n}"), b.cast(y, f"i{n}")), x.dtype)
        return _shift_signed(b, x, y)
    return _shifted(b, "shift_left" if b.kind == "shift_left" else "shift_right", x, y, 0)


def _shift_signed(b: Builder, x: Value, y: Value) -> Value:
    most = b.scalar(_bit_size(x) - 1, x.dtype)
    inside = b.layer("logical_and", b.layer("ge", y, b.scalar(0, y.dtype)), b.layer("le", y, most))
    return b.layer("shift_right", x, b.layer("where", b.cast(inside, y.dtype), y, most))


def _shifted(b: Builder, function: str, x: Value, y: Value, outside: int) -> Value:
    n = _bit_size(x)
    by = b.known(y)
    if by is not None and bool(((by >= 0) & (by < n)).all()):
        return b.layer(function, x, y)
    inside = b.layer("logical_and", b.layer("ge", y, b.scalar(0, y.dtype)), b.layer("lt", y, b.scalar(n, y.dtype)))
    inside = b.cast(inside, x.dtype)
    return b.layer("where", inside, b.layer(function, x, b.layer("mul", y, inside)), b.scalar(outside, x.dtype))


@op("convert_element_type")
def _convert(b: Builder, p: dict[str, Any], x: Value) -> Value:
    return b.cast(x, sol_name(p["new_dtype"]))


@op("eq_to", "le_to", "lt_to")
def _ordered(b: Builder, p: dict[str, Any], x: Value, y: Value) -> Value:
    """Comparisons in an order of all numbers, in which NaN is the largest."""
    plain = b.layer(b.kind[:2], x, y)
    if not x.real:
        return b.cast(plain, "bool")
    last, first = b.layer("isnan", y), b.layer("isnan", x)
    if b.kind == "eq_to":
        return b.cast(b.layer("logical_or", plain, b.layer("logical_and", first, last)), "bool")
    if b.kind == "lt_to":
        last = b.layer("logical_and", last, b.layer("logical_not", first))
    return b.cast(b.layer("logical_or", plain, last), "bool")


@op("bitcast_convert_type")
def _bitcast(b: Builder, p: dict[str, Any], x: Value) -> Value:
    """Bits of integers as a real number and back, computed exactly; of another integer, a conversion."""
    to = sol_name(p["new_dtype"])
    if to[1:] != x.dtype[1:]:
        raise Rejected(f"the bits of {x.dtype} as {to}")
    if x.real:
        return x if to == x.dtype else b.cast(_to_bits(b, x, "u" + to[1:]), to)
    return _of_bits(b, b.cast(x, "u" + x.dtype[1:]), to) if to[0] == "f" else b.cast(x, to)


DIGITS = {"f32": (23, 127), "f64": (52, 1023)}  # bits of the fraction, bias of the exponent


def _scaled(b: Builder, x: Value, power: Value) -> Value:
    """x * 2^power, in two halves: the power of a subnormal number would be none itself."""
    half = b.layer("floor", b.layer("mul", power, b.scalar(0.5, x.dtype)))
    made = b.layer("mul", x, b.layer("exp2", half))
    return b.layer("mul", made, b.layer("exp2", b.layer("sub", power, half)))


def _of_bits(b: Builder, x: Value, to: str) -> Value:
    digits, bias = DIGITS[to]
    u, width = x.dtype, int(x.dtype[1:])

    def field(low: int, bits: int) -> Value:
        return b.layer("bit_and", b.layer("shift_right", x, b.scalar(low, u)), b.scalar((1 << bits) - 1, u))

    exponent, fraction = field(digits, width - 1 - digits), b.cast(field(0, digits), to)
    e = b.cast(exponent, to)
    normal = b.cast(b.layer("gt", exponent, b.scalar(0, u)), to)
    size = b.layer("add", b.layer("mul", fraction, b.scalar(2.0**-digits, to)), normal)
    size = _scaled(b, size, b.layer("sub", b.layer("max", e, b.scalar(1, to)), b.scalar(bias, to)))
    top = (1 << (width - 1 - digits)) - 1
    special = b.layer("where", fraction, b.scalar(np.nan, to), b.scalar(np.inf, to))
    size = b.layer("where", b.cast(b.layer("eq", exponent, b.scalar(top, u)), to), special, size)
    negative = b.cast(field(width - 1, 1), to)
    return b.layer("where", negative, b.layer("neg", size), size)


def _to_bits(b: Builder, x: Value, u: str) -> Value:
    digits, bias = DIGITS[x.dtype]
    f, width = x.dtype, int(u[1:])
    size = b.layer("abs", x)
    finite = b.cast(b.layer("isfinite", x), f)
    plain = b.layer("where", finite, size, b.scalar(1, f))
    e = b.layer("max", b.layer("floor", b.layer("log2", plain)), b.scalar(1 - bias, f))
    for _ in range(2):  # the logarithm may be rounded over an integer
        fraction = _scaled(b, plain, b.layer("neg", e))
        low = b.layer("logical_and", b.layer("lt", fraction, b.scalar(1, f)), b.layer("gt", e, b.scalar(1 - bias, f)))
        step = b.layer("sub", b.cast(b.layer("ge", fraction, b.scalar(2, f)), f), b.cast(low, f))
        e = b.layer("add", e, step)
    fraction = _scaled(b, plain, b.layer("neg", e))
    normal = b.layer("ge", fraction, b.scalar(1, f))
    rest = b.layer("mul", b.layer("sub", fraction, b.cast(normal, f)), b.scalar(2.0**digits, f))
    exponent = b.layer("mul", b.layer("add", e, b.scalar(bias, f)), b.cast(normal, f))

    def shifted(field: Value, by: int) -> Value:
        return b.layer("shift_left", b.cast(field, u), b.scalar(by, u))

    bits = b.layer("bit_or", shifted(exponent, digits), b.cast(rest, u))
    infinite = b.scalar(((1 << (width - 1 - digits)) - 1) << digits, u)
    special = b.layer("bit_or", infinite, shifted(b.layer("isnan", x), digits - 1))
    bits = b.layer("where", b.cast(finite, u), bits, special)
    return b.layer("bit_or", bits, shifted(b.layer("signbit", x), width - 1))


@op("select_n")
def _select(b: Builder, p: dict[str, Any], which: Value, *cases: Value) -> Value:
    made = cases[0]
    for i, case in enumerate(cases[1:], 1):
        chosen = which if which.dtype == "bool" else b.layer("eq", which, b.scalar(i, which.dtype))
        made = b.layer("where", b.cast(chosen, case.dtype), case, made)
    return b.expand(made, b.shape)


@op("clamp")
def _clamp(b: Builder, p: dict[str, Any], low: Value, x: Value, high: Value) -> Value:
    return b.layer("hardtanh", x, low, high) if x.real else b.layer("min", b.layer("max", x, low), high)


@op("reduce_precision")
def _reduce_precision(b: Builder, p: dict[str, Any], x: Value) -> Value:
    whole = {"f32": (8, 23), "f64": (11, 52)}[x.dtype]
    if p["exponent_bits"] < whole[0] or p["mantissa_bits"] < whole[1]:
        raise Rejected(f"rounding to {p['exponent_bits']} bits of exponent and {p['mantissa_bits']} of mantissa")
    return x


@op("copy", "copy_p", "optimization_barrier", "sharding_constraint", "mesh_cast", "pvary")
def _unchanged(b: Builder, p: dict[str, Any], *x: Value) -> list[Value]:
    return list(x)
