"""The frontend of TensorFlow and Keras, see sol/frameworks.py."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from sol import _core, from_parsed, report
from sol.inputs import Dim, type_name
from sol.inputs import Input as Described
from sol.parsed import CORE, Call, Input, Mode, Output, Owned, Parsed, flatten, rebuild

from .calls import is_result, packer
from .hooks import hooked
from .model import attach
from .parse import Reader
from .wrap import Model, wrap

__all__ = ["assign", "dims", "optimize", "owned", "parse", "profiled", "wrap"]


def optimize(model: Any, call: Call) -> Any:
    """`sol.optimize`: an object of the same class. With example arguments, the program for inference is compiled now."""
    if call.vdims not in (None, True):
        raise _core.UnsupportedError(
            "vdims: sizes that a model of TensorFlow leaves open (None) vary; nothing else can be selected"
        )
    new = attach(_copied(model) if call.copy else model)
    if call.args or call.kwargs:
        batch = 1 if call.batch_size is None else call.batch_size
        leaves = [_example(leaf, batch) for leaf in flatten((call.args, call.kwargs))]
        args, kwargs = rebuild((call.args, call.kwargs), leaves)
        new(*args, **kwargs)
    return new


def dims(model: Any, call: Call) -> report.Report:
    """`sol.dims`."""
    return from_parsed.dims(functools.partial(parse, model), call)


def _copied(model: Any) -> Any:
    import copy

    return copy.deepcopy(model)


def _example(leaf: Any, batch: int) -> Any:
    return tf.zeros(leaf.sized(batch), _dtype(leaf)) if isinstance(leaf, Described) else leaf


def _dtype(leaf: Described) -> Any:
    return tf.as_dtype(type_name(leaf.dtype))


def owned(model: Any) -> list[Owned]:
    """All variables of a model, or those that a function reads."""
    found = []
    trained = {id(v) for v in _values(getattr(model, "trainable_variables", ()))}
    for name, v in _named(model).items():
        found.append(Owned(name, v.numpy(), id(v) in trained, id(v)))
    return found


def assign(model: Any, values: dict[str, Any]) -> None:
    """New values of variables."""
    named = _named(model)
    for name, value in values.items():
        named[name].assign(value)


@contextlib.contextmanager
def profiled(model: Any, call: Call) -> Iterator[Callable[[], Any]]:
    """See frameworks.Frontend."""
    training = bool(call.kwargs.get("training"))
    trained = list(getattr(model, "trainable_variables", ()))
    kept = [(v, tf.identity(v)) for v in _values(getattr(model, "non_trainable_variables", ()))] if training else []

    def run() -> None:
        if not training:
            model(*call.args, **call.kwargs)
            return
        with tf.GradientTape() as tape:
            results = [y for y in tf.nest.flatten(model(*call.args, **call.kwargs)) if y.dtype.is_floating]
        tape.gradient(results, _values(trained))

    try:
        yield run
    finally:
        for variable, value in kept:
            variable.assign(value)


def _values(variables: Any) -> list[Any]:
    return [getattr(v, "value", v) if hasattr(v, "path") else v for v in variables]


def _named(model: Any) -> dict[str, Any]:
    """Variables by name; equal names have numbers. Those of a wrapped model have the names of its source."""
    if isinstance(model, Model):
        return model._sol.named
    named: dict[str, Any] = {}
    for v in getattr(model, "variables", ()):
        name = getattr(v, "path", None) or v.name.partition(":")[0]
        value = v.value if hasattr(v, "path") else v
        count = sum(n.partition("#")[0] == name for n in named)
        named[f"{name}#{count}" if count else name] = value
    return named


def parse(model: Any, call: Call, mode: Mode) -> Parsed:
    """A network for these arguments."""
    leaves = flatten((call.args, call.kwargs))
    kept = [i for i, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray | Described) or tf.is_tensor(leaf)]
    specs, shapes = [], []
    for i in kept:
        shape, dtype = _spec(leaves[i], call)
        specs.append(tf.TensorSpec(shape, dtype))
        shapes.append([8 if n is None else n for n in shape])
    noted: list[Any] = []

    def function(*given: Any) -> Any:
        changed = list(leaves)
        for i, g in zip(kept, given, strict=True):
            changed[i] = g
        args, kwargs = rebuild((call.args, call.kwargs), changed)
        if _is_keras(model):
            kwargs = {"training": mode.training, **kwargs}
        result = model(*args, **kwargs)
        noted.append(result)
        return [tf.convert_to_tensor(v) for v in tf.nest.flatten(result) if is_result(v)]

    with hooked(), tf.init_scope():
        concrete = tf.function(function, autograph=False).get_concrete_function(*specs)
    name = str(getattr(model, "name", None) or type(model).__name__)
    read = Reader(concrete, name, shapes, mode.gradient).run()
    names = {id(v): n for n, v in _named(model).items()}
    for p, s in zip(read.params, read.sources, strict=True):
        if p.constant is None:
            if id(s) not in names:
                raise _core.UnsupportedError(f"{name}: reads {s.name}, which is no variable of the model")
            p.name = names[id(s)]
    pack = packer(noted[-1])
    return Parsed(
        name,
        read.graph,
        [Input(f"in_{k}", i, v.handle) for k, (i, v) in enumerate(zip(kept, read.inputs, strict=True))],
        read.params,
        [Output(f"out_{i}", read.outputs[n].dtype, n) for i, n in enumerate(read.results)],
        pack,
        read.writes,
    )


def _is_keras(model: Any) -> bool:
    import keras

    return isinstance(model, keras.layers.Layer)


def _spec(leaf: Any, call: Call) -> tuple[list[int | None], Any]:
    if isinstance(leaf, Described):
        shape: list[Any] = [
            None if isinstance(n, Dim) or (n == 0 and leaf.varies(d)) else n for d, n in enumerate(leaf.shape)
        ]
        dtype = _dtype(leaf)
    else:
        shape, dtype = list(leaf.shape), tf.as_dtype(leaf.dtype)
    if call.vdims and shape:
        shape[0] = None
    elif call.vdims is None:
        shape = [call.batch_size or 1 if n is None else n for n in shape]
    if dtype.name not in CORE:
        raise _core.UnsupportedError(f"an argument of {dtype.name}: not supported")
    return shape, dtype
