"""Element-wise operators. Most are a line that names a function of math.def. Result types follow PyTorch's promotion."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..builder import Builder, Number, Rejected, Value
from .table import Function, op

# -- one operand: the result has the operand's type, or the default float for integers

SAME = "abs neg sign sgn=sign square floor ceil trunc fix=trunc round frac relu relu6 positive=identity absolute=abs negative=neg"
FLOAT = (
    "sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "arcsin=asin arccos=acos arctan=atan arcsinh=asinh arccosh=acosh arctanh=atanh sinc erf erfc erfinv lgamma sigmoid silu mish "
    "hardsigmoid hardswish selu log_sigmoid=logsigmoid special_expit=sigmoid special_erf=erf special_erfc=erfc special_exp2=exp2 "
    "special_expm1=expm1 special_log1p=log1p special_sinc=sinc special_entr=entr special_gammaln=lgamma special_erfinv=erfinv "
    "digamma i0 special_i0e=i0e special_i1=i1 special_i1e=i1e special_modified_bessel_i0=i0 special_modified_bessel_i1=i1"
)
BOOL = "isnan isinf isposinf isneginf isfinite signbit logical_not"


def _rows(text: str) -> list[tuple[str, str]]:
    """ "a b=c" -> [(a, a), (b, c)]"""
    return [(word.split("=")[0], word.split("=")[-1]) for word in text.split()]


def _to_out(function: str) -> Function:
    return lambda b, x: b.map(function, b.to_out(x))


def _as_is(function: str) -> Function:
    return lambda b, x: b.map(function, x)


for _name, _function in _rows(SAME) + _rows(FLOAT):
    op(_name)(_to_out(_function))
for _name, _function in _rows(BOOL):
    op(_name)(_as_is(_function))

# -- two operands

PROMOTED = (
    "maximum=max minimum=min max.other=max min.other=min fmax fmin hypot atan2 arctan2=atan2 copysign.Tensor "
    "copysign.Scalar nextafter gcd lcm logaddexp logaddexp2 bitwise_left_shift.Tensor=shift_left "
    "bitwise_left_shift.Tensor_Scalar=shift_left __lshift__.Scalar=shift_left __lshift__.Tensor=shift_left "
    "bitwise_right_shift.Tensor=shift_right bitwise_right_shift.Tensor_Scalar=shift_right "
    "__rshift__.Scalar=shift_right __rshift__.Tensor=shift_right bitwise_left_shift.Scalar_Tensor=shift_left "
    "bitwise_right_shift.Scalar_Tensor=shift_right xlogy.Tensor xlogy.Scalar_Other xlogy.Scalar_Self "
    "special_xlogy=xlogy special_xlogy.other_scalar=xlogy special_xlogy.self_scalar=xlogy ldexp.Tensor"
)
BITS = "and or xor"
COMPARED = "eq ne lt le gt ge"
LOGICAL = "logical_and logical_or logical_xor"


def _promoted(function: str) -> Function:
    def row(b: Builder, x: Value | Number, other: Value | Number) -> Value:
        return b.map(function, b.to_out(x), b.to_out(other))

    return row


def _divided(b: Builder, function: str, x: Value | Number, y: Value | Number) -> Value:
    """A quotient or a remainder. As in PyTorch, the call fails if an integer is divided by 0."""
    divisor = b.to_out(y)
    if not divisor.is_float and divisor.dtype != torch.bool:
        if isinstance(y, Value):
            divisor = _not_zero(b, divisor)
        elif int(y) == 0:
            raise Rejected("an integer divided by 0")
    return b.map(function, b.to_out(x), divisor)


def _not_zero(b: Builder, y: Value) -> Value:
    """Returns y plus an element of a list that is 0. Where y is 0, the index is out of range, so the call fails."""
    places = b.mul(b.cast(b.compare("eq", y, 0), torch.int64), 2)
    name, b.name = b.name, f"{b.name}: no divisor may be 0"
    read = b.layer("Embedding", b.const(torch.tensor([0, 1], dtype=y.dtype)), places)
    b.name = name
    return b.map("add", y, read)


def _division(function: str) -> Function:
    return lambda b, x, other: _divided(b, function, x, other)


DIVISIONS = (
    "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor fmod.Tensor fmod.Scalar floor_divide=floordiv "
    "floor_divide.Scalar=floordiv"
)
for _name, _function in _rows(DIVISIONS):
    op(_name)(_division(_function.split(".")[0]))


def _compared(function: str) -> Function:
    def row(b: Builder, x: Value | Number, other: Value | Number) -> Value:
        return b.map(function, *b.promote(x, other))

    return row


for _name, _function in _rows(PROMOTED):
    op(_name)(_promoted(_function.split(".")[0]))
for _word in BITS.split():
    op(
        *(f"bitwise_{_word}.{o}" for o in ("Tensor", "Scalar", "Scalar_Tensor")),
        f"__{_word}__.Tensor",
        f"__{_word}__.Scalar",
    )(_promoted(f"bit_{_word}"))
for _word in COMPARED.split():
    op(f"{_word}.Tensor", f"{_word}.Scalar")(_compared(_word))
for _name, _word in _rows("greater=gt greater_equal=ge less=lt less_equal=le not_equal=ne"):
    op(f"{_name}.Tensor", f"{_name}.Scalar")(_compared(_word))
for _word in LOGICAL.split():
    op(_word)(_compared(_word))


@op("bitwise_not")
def bitwise_not(b: Builder, x: Value) -> Value:
    return b.map("bit_not", x)


@op("add.Tensor", "add.Scalar")
def add(b: Builder, x: Value | Number, other: Value | Number, alpha: Number = 1) -> Value:
    y = b.to_out(other)
    return b.map("add", b.to_out(x), y if alpha == 1 else b.mul(y, alpha))


@op("sub.Tensor", "sub.Scalar", "subtract.Tensor", "subtract.Scalar")
def sub(b: Builder, x: Value | Number, other: Value | Number, alpha: Number = 1) -> Value:
    y = b.to_out(other)
    return b.map("sub", b.to_out(x), y if alpha == 1 else b.mul(y, alpha))


@op("rsub.Tensor", "rsub.Scalar")
def rsub(b: Builder, x: Value, other: Value | Number, alpha: Number = 1) -> Value:
    return sub(b, other, x, alpha)


@op("mul.Tensor", "mul.Scalar", "multiply.Tensor", "multiply.Scalar")
def mul(b: Builder, x: Value | Number, other: Value | Number) -> Value:
    return b.map("mul", b.to_out(x), b.to_out(other))


@op("div.Tensor", "div.Scalar", "divide.Tensor", "divide.Scalar", "true_divide.Tensor", "true_divide.Scalar")
def div(b: Builder, x: Value | Number, other: Value | Number) -> Value:
    return b.map("div", b.to_out(x), b.to_out(other))


@op("div.Tensor_mode", "div.Scalar_mode", "divide.Tensor_mode", "divide.Scalar_mode")
def div_mode(b: Builder, x: Value | Number, other: Value | Number, rounding_mode: str | None) -> Value:
    if rounding_mode is None:
        return div(b, x, other)
    return _divided(b, {"floor": "floordiv", "trunc": "truncdiv"}[rounding_mode], x, other)


@op("pow.Tensor_Scalar")
def pow_scalar(b: Builder, x: Value, exponent: Number) -> Value:
    x = b.to_out(x)
    root = {0.5: "sqrt", -0.5: "rsqrt"}.get(exponent)  # PyTorch's values at -0.0 and -inf are those of roots
    if root and x.is_float:
        return b.map(root, x)
    return b.map("pow", x, b.scalar(exponent, x.dtype))


@op("pow.Tensor_Tensor", "pow.Scalar")
def pow_tensor(b: Builder, x: Value | Number, exponent: Value) -> Value:
    return b.map("pow", b.to_out(x), b.to_out(exponent))


@op("float_power.Tensor_Scalar", "float_power.Tensor_Tensor", "float_power.Scalar")
def float_power(b: Builder, x: Value | Number, exponent: Value | Number) -> Value:
    return b.map("pow", b.to_out(x), b.to_out(exponent))


# -- three or more operands


@op("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(b: Builder, condition: Value, self: Value | Number, other: Value | Number) -> Value:
    return b.where(condition, b.to_out(self), b.to_out(other))


@op("clamp", "clamp.Tensor", "clip", "clip.Tensor", "hardtanh")
def clamp(b: Builder, x: Value, min: Any = None, max: Any = None, min_val: Any = None, max_val: Any = None) -> Value:
    low, high = min if min_val is None else min_val, max if max_val is None else max_val
    x = b.to_out(x)
    numbers = [v for v in (low, high) if isinstance(v, int | float) and not math.isnan(v)]
    if len(numbers) == 2:
        function = "hardtanh" if "hardtanh" in b.target else "clamp"
        return b.map(function, x, b.scalar(low, x.dtype), b.scalar(high, x.dtype))
    if low is not None:
        x = b.map("clamp_min", x, b.to_out(low))
    return x if high is None else b.map("clamp_max", x, b.to_out(high))


@op("clamp_min", "clamp_min.Tensor")
def clamp_min(b: Builder, x: Value, min: Value | Number) -> Value:
    return clamp(b, x, min=min)


@op("clamp_max", "clamp_max.Tensor")
def clamp_max(b: Builder, x: Value, max: Value | Number) -> Value:
    return clamp(b, x, max=max)


@op("addcmul")
def addcmul(b: Builder, x: Value, tensor1: Value, tensor2: Value, value: Number) -> Value:
    product = b.map("mul", b.to_out(tensor1), b.to_out(tensor2))
    return b.map("add", b.to_out(x), product if value == 1 else b.mul(product, value))


@op("addcdiv")
def addcdiv(b: Builder, x: Value, tensor1: Value, tensor2: Value, value: Number) -> Value:
    quotient = b.map("div", b.to_out(tensor1), b.to_out(tensor2))
    return b.map("add", b.to_out(x), quotient if value == 1 else b.mul(quotient, value))


@op("lerp.Scalar", "lerp.Tensor")
def lerp(b: Builder, x: Value, end: Value, weight: Value | Number) -> Value:
    return b.map("lerp", b.to_out(x), b.to_out(end), b.to_out(weight))


@op("special_zeta", "special_zeta.self_scalar", "special_zeta.other_scalar")
def zeta(b: Builder, x: Value | Number, other: Value | Number) -> Value:
    if isinstance(x, Value) and x.tracked:
        raise Rejected("a gradient of zeta by its first argument")
    return b.map("zeta", b.to_out(other), b.to_out(x))


@op("polygamma")
def polygamma(b: Builder, n: int, self: Value) -> Value:
    x = b.to_out(self)
    if n == 0:
        return b.map("digamma", x)
    value = b.map("zeta", x, b.scalar(n + 1, x.dtype))
    return b.mul(value, float((-1) ** (n + 1) * math.factorial(n)))


@op("heaviside")
def heaviside(b: Builder, x: Value, values: Value) -> Value:
    x, values = b.to_out(x), b.to_out(values)
    return b.map("max" if x.dtype == torch.bool else "heaviside", x, values)


@op("frexp.Tensor")
def frexp(b: Builder, x: Value) -> tuple[Value, Value]:
    """Splits x into a fraction in [0.5, 1) and a power of two. The logarithm is an estimate that may be off by one."""
    size = b.map("abs", x)
    plain = b.map("logical_and", b.map("isfinite", x), b.compare("ne", x, 0))
    small = b.compare("lt", size, torch.finfo(x.dtype).tiny)  # scaled up, because 2^-e would overflow
    size = b.where(plain, b.where(small, b.mul(size, 2.0**64), size), b.scalar(0.5, x.dtype))
    power = b.add(b.map("floor", b.map("log2", size)), 1)
    half = b.map("exp2", b.map("floor", b.mul(power, -0.5)))  # in two steps, because 2^-power may overflow
    fraction = b.map(
        "mul",
        b.map("mul", size, half),
        b.map("exp2", b.map("sub", b.map("neg", power), b.map("floor", b.mul(power, -0.5)))),
    )
    high, low = b.compare("ge", fraction, 1), b.compare("lt", fraction, 0.5)
    fraction = b.where(high, b.mul(fraction, 0.5), b.where(low, b.mul(fraction, 2), fraction))
    power = b.map("sub", b.map("add", power, b.cast(high, x.dtype)), b.cast(low, x.dtype))
    power = b.where(plain, b.where(small, b.sub(power, 64), power), b.scalar(0, x.dtype))
    return b.where(plain, b.map("copysign", fraction, x), x), b.cast(power, torch.int32)


@op("log_sigmoid_forward")
def log_sigmoid_forward(b: Builder, x: Value) -> tuple[Value, Value]:
    """The second result is what the processor's backward reads; it is empty on other devices."""
    kept = (
        b.map("exp", b.map("neg", b.map("abs", x)))
        if b.out[1].shape == b.out[0].shape
        else b.fill(b.out[1].shape, 0, x.dtype)
    )
    return b.map("logsigmoid", x), kept


@op("angle")
def angle(b: Builder, x: Value) -> Value:
    x = b.to_out(x)
    y = b.where(b.compare("lt", x, 0), b.scalar(math.pi, x.dtype), b.scalar(0, x.dtype))
    return b.where(b.map("isnan", x), x, y)


@op("nan_to_num")
def nan_to_num(b: Builder, x: Value, nan: float | None, posinf: float | None, neginf: float | None) -> Value:
    if not x.is_float:
        return x
    limit = torch.finfo(x.dtype)
    y = b.where(b.map("isnan", x), b.scalar(nan or 0.0, x.dtype), x)
    y = b.where(b.map("isposinf", x), b.scalar(limit.max if posinf is None else posinf, x.dtype), y)
    return b.where(b.map("isneginf", x), b.scalar(limit.min if neginf is None else neginf, x.dtype), y)


@op("round.decimals")
def round_decimals(b: Builder, x: Value, decimals: int) -> Value:
    if not x.is_float or decimals == 0:
        return b.map("round", x)
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return b.div(b.map("round", b.mul(x, scale)), scale)
    return b.mul(b.map("round", b.div(x, scale)), scale)


@op("deg2rad")
def deg2rad(b: Builder, x: Value) -> Value:
    return b.mul(b.to_out(x), math.pi / 180)


@op("rad2deg")
def rad2deg(b: Builder, x: Value) -> Value:
    return b.mul(b.to_out(x), 180 / math.pi)


@op("logit")
def logit(b: Builder, x: Value, eps: float | None) -> Value:
    x = b.to_out(x)
    if eps is not None:
        x = b.map("clamp", x, b.scalar(eps, x.dtype), b.scalar(1 - eps, x.dtype))
    return b.map("logit", x)


@op("special_logit")
def special_logit(b: Builder, x: Value, eps: float | None) -> Value:
    return logit(b, x, eps)


@op("isreal")
def isreal(b: Builder, x: Value) -> Value:
    return b.fill(x.shape, True, torch.bool)


# -- activations with parameters


@op("gelu")
def gelu(b: Builder, x: Value, approximate: str) -> Value:
    return b.map({"none": "gelu", "tanh": "gelu_tanh"}[approximate], x)


@op("leaky_relu")
def leaky_relu(b: Builder, x: Value, negative_slope: float) -> Value:
    return b.map("leaky_relu", x, b.scalar(negative_slope, x.dtype))


@op("prelu", "_prelu_kernel")
def prelu(b: Builder, x: Value, weight: Value) -> Value:
    if weight.ndim == 1 and x.ndim > 1:
        weight = b.reshape(weight, [weight.shape[0]] + [1] * (x.ndim - 2))
    elif x.ndim == 0:
        weight = b.reshape(weight, [])
    return b.map("prelu", x, weight)


@op("elu")
def elu(b: Builder, x: Value, alpha: Number, scale: Number, input_scale: Number) -> Value:
    if scale == 1 and input_scale == 1:
        return b.map("elu", x, b.scalar(alpha, x.dtype))
    negative = b.mul(b.map("expm1", b.mul(x, input_scale)), alpha)
    return b.mul(b.where(b.compare("gt", x, 0), x, negative), scale)


@op("celu")
def celu(b: Builder, x: Value, alpha: Number) -> Value:
    return b.map("celu", x, b.scalar(alpha, x.dtype))


@op("softplus")
def softplus(b: Builder, x: Value, beta: Number, threshold: Number) -> Value:
    return b.map("softplus", x, b.scalar(beta, x.dtype), b.scalar(threshold, x.dtype))


@op("threshold")
def threshold(b: Builder, x: Value, threshold: Number, value: Number) -> Value:
    return b.map("threshold", x, b.scalar(threshold, x.dtype), b.scalar(value, x.dtype))


@op("softshrink")
def softshrink(b: Builder, x: Value, lambd: Number) -> Value:
    return b.map("softshrink", x, b.scalar(lambd, x.dtype))


@op("hardshrink")
def hardshrink(b: Builder, x: Value, lambd: Number) -> Value:
    return b.map("hardshrink", x, b.scalar(lambd, x.dtype))


@op("glu")
def glu(b: Builder, x: Value, dim: int) -> Value:
    half = x.shape[dim] // 2
    return b.map("mul", b.slice(x, dim, 0, half), b.map("sigmoid", b.slice(x, dim, half, 2 * half)))


# -- types; operators that change nothing


@op("_to_copy", "to.dtype", "to.device", "to.dtype_layout", "type_as", "to.other", "to.prim_Device")
def to(b: Builder, x: Value, device: Any = None, dtype: Any = None, other: Any = None) -> Value:
    if device is not None and torch.device(device).type != "cpu":
        raise Rejected(f"device {device}")
    return b.to_out(x)


for (
    _name
) in "clone detach detach_copy alias alias_copy lift lift_fresh lift_fresh_copy contiguous conj resolve_conj".split():
    op(_name)(lambda b, x: x)
for _name in "resolve_neg real pin_memory".split():
    op(_name)(lambda b, x: x)


@op("copy")
def copy(b: Builder, x: Value, src: Value) -> Value:
    return b.expand(b.cast(src, x.dtype), x.shape)


@op("fill.Scalar", "fill.Tensor")
def fill(b: Builder, x: Value, value: Value | Number) -> Value:
    return b.expand(b.as_value(value, x.dtype), x.shape)


@op("zero")
def zero(b: Builder, x: Value) -> Value:
    return b.fill(x.shape, 0, x.dtype)


@op("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(b: Builder, x: Value, mask: Value, value: Value | Number) -> Value:
    return b.where(mask, b.as_value(value, x.dtype), x)
