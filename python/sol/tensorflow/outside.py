"""Operators and layers from outside: functions that translate them (`sol.tensorflow.register`), and operators that are registered layers
(`sol.register_layer`). docs/extending.md says how to use both."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from sol import _core, extend
from sol.rows import Row

from . import hooks
from .builder import Builder, Value
from .operators import ROWS

_calls: set[type] = set()  # classes whose `call` is `_instead`


def _instead(function: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
    """A `call` of layers: the hook in the thread that reads a model, which holds the lock of hooks.py; elsewhere Keras's own."""

    @functools.wraps(own)
    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        return (function if hooks._lock._is_owned() else own)(layer, *args, **kwargs)  # type: ignore[attr-defined]

    return call


def register(target: Any, function: Callable[..., Any] | None = None) -> Any:
    """Says how SOL translates an operator or the layers of a class, for models that are optimized from now on.

    target    the name of an operator's type: "Mylib>Scale"; or a class of Keras layers
    function  of an operator: function(b, operation, *operands) gets values of the graph, or arrays where they are known, and returns a
              value, or a list of them, made with the builder: b.layer("mylib::scale", x, s=2.0). Of layers: function(layer, *inputs)
              stands in place of `call` while SOL reads the model, and makes its results with TensorFlow and `sol.tensorflow.layer`
    """
    if isinstance(target, type) and issubclass(target, keras.layers.Layer):
        if function is None:
            return lambda f: register(target, f)
        if not callable(function):
            raise _core.InvalidError(f"sol.tensorflow.register: expected a function, got {function!r}")
        layers: Any = target
        layers.call = _instead(function, layers.call.__wrapped__ if target in _calls else layers.call)
        _calls.add(target)
        return function
    return ROWS.register("sol.tensorflow.register", target, function)


def layer(kind: str, *inputs: Any, shapes: Sequence[Any] | None = None, **attributes: Any) -> Any:
    """A layer of SOL while a model is read, for functions of `register`: its result, or a list of several.

    kind      "Softmax", or a layer from outside: "mylib::scale"
    inputs    tensors; None: a missing one
    shapes    of the results; None: one, like the first input
    """
    given = [None if x is None else tf.convert_to_tensor(x) for x in inputs]
    first = next(x for x in given if x is not None)
    made = hooks.layer(kind, given, shapes or [first.shape], **attributes)
    return made[0] if shapes is None else made


def registered(kind: str) -> Row:
    """The row of an operator with the name of a registered layer. Its attributes are the layer's, apart from types."""

    def row(b: Builder, o: Any, *operands: Any) -> list[Value]:
        attributes = {}
        for a in o.op_def.attr:
            value = o.get_attr(a.name)
            plain = extend.plain(value.decode() if isinstance(value, bytes) else value)
            if plain is not None:
                attributes[a.name] = plain
        return list(b.layers(kind, *operands, outputs=len(o.outputs), **attributes))

    return row
