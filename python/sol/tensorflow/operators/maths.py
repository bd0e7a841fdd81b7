"""Element-wise operators, reductions, types."""

from __future__ import annotations

from typing import Any

import numpy as np

from sol.parsed import NUMPY

from ..builder import Builder, core_type
from .table import ROWS, op

SAME = {  # TensorFlow's name: SOL's function
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Add": "add", "AddV2": "add", "Asin": "asin", "Asinh": "asinh",
    "Atan": "atan", "Atan2": "atan2", "Atanh": "atanh", "BitwiseAnd": "bit_and", "BitwiseOr": "bit_or",
    "BitwiseXor": "bit_xor", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Digamma": "digamma", "Div": "div",
    "Erf": "erf", "Erfc": "erfc", "Erfinv": "erfinv", "Exp": "exp", "Expm1": "expm1", "Floor": "floor",
    "FloorDiv": "floordiv", "FloorMod": "remainder", "Inv": "reciprocal", "IsFinite": "isfinite", "IsInf": "isinf",
    "IsNan": "isnan", "Lgamma": "lgamma", "Log": "log", "Log1p": "log1p", "LogicalAnd": "logical_and",
    "LogicalNot": "logical_not", "LogicalOr": "logical_or", "Maximum": "max", "Minimum": "min", "Mul": "mul",
    "Neg": "neg", "Pow": "pow", "PreventGradient": "stop", "RealDiv": "div", "Reciprocal": "reciprocal", "Relu": "relu",
    "Relu6": "relu6", "Rint": "round", "Round": "round", "Rsqrt": "rsqrt", "Selu": "selu", "Sigmoid": "sigmoid",
    "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Softsign": "softsign", "Sqrt": "sqrt", "Square": "square",
    "StopGradient": "stop", "Sub": "sub", "Tan": "tan", "Tanh": "tanh", "TruncateDiv": "truncdiv", "TruncateMod": "fmod",
    "Xlogy": "xlogy", "BesselI0e": "i0e", "BesselI1e": "i1e",
}  # fmt: skip
COMPARED = {"Equal": "eq", "NotEqual": "ne", "Less": "lt", "LessEqual": "le", "Greater": "gt", "GreaterEqual": "ge"}


def _plain(function: str) -> Any:
    return lambda b, o, *x: b.layer(function, *x)


def _compared(function: str) -> Any:
    return lambda b, o, x, y: b.cast(b.layer(function, x, y), "bool")


def _reduced(kind: str) -> Any:
    def row(b: Builder, o: Any, x: Any, axes: Any) -> Any:
        x = b.value(x)
        found = b.axes(axes, x.ndim) if x.ndim else []
        return b.layer(kind, x, axes=found, keep=int(o.get_attr("keep_dims"))) if found else x

    return row


ROWS.update({name: _plain(function) for name, function in SAME.items()})
ROWS.update({name: _compared(function) for name, function in COMPARED.items()})
ROWS.update({kind: _reduced(kind) for kind in ("Sum", "Mean", "Prod", "Max", "Min", "Any", "All")})


@op("Identity", "Snapshot", "EnsureShape", "PlaceholderWithDefault", "CheckNumerics")
def identity(b, o, x, *_):
    return x


@op("IdentityN")
def identity_n(b, o, *x):
    return list(x)


@op("SquaredDifference")
def squared_difference(b, o, x, y):
    return b.layer("square", b.layer("sub", x, y))


@op("LeakyRelu")
def leaky_relu(b, o, x):
    return b.layer("leaky_relu", x, b.scalar(o.get_attr("alpha"), x.dtype))


@op("Elu")
def elu(b, o, x):
    return b.layer("elu", x, b.scalar(1, x.dtype))


@op("Softplus")
def softplus(b, o, x):
    return b.layer("logaddexp", x, b.scalar(0, x.dtype))


@op("BiasAdd")
def bias_add(b, o, x, y):
    y = b.value(y)
    if o.get_attr("data_format") == b"NCHW" and x.ndim > 2:
        y = b.reshape(y, (y.shape[0],) + (1,) * (x.ndim - 2))
    return b.layer("add", x, y)


@op("DivNoNan")
def div_no_nan(b, o, x, y):
    y = b.value(y)
    return b.layer("where", y, b.layer("div", x, y), b.scalar(0, y.dtype))


@op("MulNoNan")
def mul_no_nan(b, o, x, y):
    y = b.value(y)
    return b.layer("where", y, b.layer("mul", x, y), b.scalar(0, y.dtype))


@op("Xdivy", "Xlog1py")
def zero_times(b, o, x, y):
    x = b.value(x)
    z = b.layer("div", x, y) if o.type == "Xdivy" else b.layer("mul", x, b.layer("log1p", y))
    return b.layer("where", x, z, b.scalar(0, x.dtype))


@op("SelectV2", "Select")
def select(b, o, c, x, y):
    x, c = b.value(x), b.value(c)
    if o.type == "Select" and c.ndim == 1 < x.ndim:
        c = b.reshape(c, (*c.shape, *(1,) * (x.ndim - 1)))
    return b.layer("where", b.cast(c, x.dtype), x, y)


@op("ClipByValue")
def clip(b, o, x, low, high):
    return b.layer("min", b.layer("max", x, low), high)


@op("Cast")
def cast(b, o, x):
    return b.cast(x, core_type(o.outputs[0].dtype))


@op("AddN")
def add_n(b, o, *xs):
    y = xs[0]
    for x in xs[1:]:
        y = b.layer("add", y, x)
    return y


@op("L2Loss")
def l2_loss(b, o, x):
    return b.layer("mul", b.layer("SumSquare", x, axes=list(range(x.ndim))), b.scalar(0.5, x.dtype))


@op("Cumsum", "Cumprod")
def running(b, o, x, axis):
    flags = {k: int(o.get_attr(k)) for k in ("exclusive", "reverse")}
    return b.layer({"Cumsum": "CumSum", "Cumprod": "CumProd"}[o.type], x, axis=b.number(axis) % x.ndim, **flags)


@op("CumulativeLogsumexp")
def running_log(b, o, x, axis):
    x, flags = b.value(x), {k: int(o.get_attr(k)) for k in ("exclusive", "reverse")}
    y = b.layer("LogCumSumExp", x, axis=b.number(axis) % x.ndim, **flags)
    least = float(np.finfo(NUMPY[x.dtype]).min)  # of no elements
    return b.layer("max", y, b.scalar(least, x.dtype)) if flags["exclusive"] else y


@op("EuclideanNorm")
def norm(b, o, x, axes):
    x = b.value(x)
    return b.layer("sqrt", b.layer("SumSquare", x, axes=b.axes(axes, x.ndim), keep=int(o.get_attr("keep_dims"))))


@op("AdjustContrastv2")
def contrast(b, o, x, factor):
    x = b.value(x)
    mean = b.layer("Mean", x, axes=[x.ndim - 3, x.ndim - 2], keep=1)
    return b.layer("add", b.layer("mul", b.layer("sub", x, mean), b.cast(factor, x.dtype)), mean)
