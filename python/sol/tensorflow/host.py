"""Operators on elements that are known while a model is read: constants by TensorFlow itself, sizes that vary by their forms."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import tensor_util

from sol import forms

from .builder import sizes_in
from .operators.moves import slices

Array = np.ndarray[Any, Any]
MOST = 4096  # elements; more are computed by layers


def _each(function: Callable[[Any, Any], Any]) -> Callable[..., Array]:
    return lambda o, x, y: np.frompyfunc(function, 2, 1)(x, y)


def _strided(o: Any, x: Array, *where: Array) -> Array:
    begin, end, strides = (v.reshape(-1).tolist() for v in where)
    spec, out = slices(o, begin, end, strides, x.shape)
    for axis, low, high, step in spec:
        x = np.take(x, range(low, high, step), axis)
    return x.reshape([1 if axis is None else x.shape[axis] for axis in out])


def _reshaped(o: Any, x: Array, *_: Array) -> Array:
    return x.reshape(o.outputs[0].shape.as_list())


def _cast(o: Any, x: Array) -> Array | None:
    return x if o.outputs[0].dtype.is_integer else None


_ON_SIZES: dict[str, Callable[..., Any]] = {
    "AddV2": _each(lambda a, b: a + b),
    "Cast": _cast,
    "ConcatV2": lambda o, *xs: np.concatenate(xs[:-1], int(xs[-1])),
    "Equal": _each(lambda a, b: forms.form(a) == forms.form(b) or bool(a - b) is False),
    "ExpandDims": _reshaped,
    "FloorDiv": _each(lambda a, b: a // b),
    "FloorMod": _each(lambda a, b: a % b),
    "GatherV2": lambda o, x, i, axis: np.take(x, i.astype("int64"), int(axis)),
    "Greater": _each(lambda a, b: a > b),
    "GreaterEqual": _each(lambda a, b: a >= b),
    "Identity": lambda o, x: x,
    "Less": _each(lambda a, b: a < b),
    "LessEqual": _each(lambda a, b: a <= b),
    "Maximum": _each(forms.most),
    "Minimum": _each(forms.least),
    "Mul": _each(lambda a, b: a * b),
    "Neg": lambda o, x: np.frompyfunc(lambda a: -a, 1, 1)(x),
    "Pack": lambda o, *xs: np.stack(xs, o.get_attr("axis")),
    "Prod": lambda o, x, axes: np.array(math.prod(x.reshape(-1)), object),
    "Reshape": _reshaped,
    "Squeeze": _reshaped,
    "StridedSlice": _strided,
    "Sub": _each(lambda a, b: a - b),
    "Unpack": lambda o, x: [np.asarray(v, object) for v in x],
}


def shape_array(shape: Sequence[Any], dtype: Any) -> Array:
    """A shape as an array."""
    varies = forms.varies(*shape)
    made = np.empty(len(shape), object if varies else dtype)
    made[:] = shape
    return made


def fold(o: Any, args: Sequence[Array]) -> Any:
    """The result of an operator whose operands are known; None: layers compute it."""
    if any(map(sizes_in, args)) or o.type in ("ConcatV2", "Pack"):
        function = _ON_SIZES.get(o.type)
        found = function(o, *args) if function else None
        if found is None or isinstance(found, list):
            return found and [_plain(f, o) for f in found]
        return _plain(found, o)
    if (
        o.op_def.is_stateful
        or len(o.outputs) != 1
        or o.outputs[0].dtype == tf.string
        or sum(a.size for a in args) > MOST
    ):
        return None
    known = tensor_util.constant_value(o.outputs[0])
    return _run(o, args) if known is None else np.asarray(known)


def _plain(x: Any, o: Any) -> Array:
    """An array of numbers, unless a size is among the elements."""
    x = np.asarray(x)
    if x.dtype == object and any(type(v) is forms.Size for v in x.reshape(-1)):
        return x
    return x.astype(o.outputs[0].dtype.as_numpy_dtype)


def _run(o: Any, args: Sequence[Array]) -> Array | None:
    """TensorFlow's result; None: it cannot run this operator on its own."""
    function, definition = getattr(tf.raw_ops, o.type, None), o.op_def
    if function is None or len(definition.input_arg) != len(args):
        return None
    types = {a.type_attr for a in definition.input_arg}
    given = {a.name: o.get_attr(a.name) for a in definition.attr if a.name not in types and not a.name.startswith("_")}
    inputs = list(inspect.signature(function).parameters)[: len(args)]  # Python's names: `axis` for `reduction_indices`
    try:
        with tf.init_scope(), tf.device("cpu:0"):
            given.update({name: tf.constant(x) for name, x in zip(inputs, args, strict=True)})
            return np.asarray(function(**given).numpy())
    except (tf.errors.OpError, TypeError, ValueError, AttributeError):
        return None
