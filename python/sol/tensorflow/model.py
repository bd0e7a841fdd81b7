"""The optimized model: an object of the same class, with the same `__dict__`, whose `call` runs SOL's networks."""

from __future__ import annotations

import copy
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common.keras_tensor import KerasTensor

from sol import _core

from .calls import Calls


def _original(cls: type) -> Any:
    """The class that the user gave."""
    return cls.__mro__[1]


def _traced_call(model: Any) -> Any:
    """What a network of a Keras model computes: the result, losses that layers added, and masks of the results."""

    def function(args: Any, kwargs: Any, masks_in: Any) -> Any:
        for x, mask in zip(tf.nest.flatten((args, kwargs)), masks_in, strict=True):
            if mask is not None:
                keras.src.backend.set_keras_mask(x, mask)
        before = [(layer, len(layer._losses)) for layer in model._flatten_layers()]
        result = _original(type(model)).call(model, *args, **kwargs)
        losses = [loss for layer, n in before for loss in layer._losses[n:]]
        for layer, n in before:
            del layer._losses[n:]
        masks = [keras.src.backend.get_keras_mask(t) if tf.is_tensor(t) else None for t in tf.nest.flatten(result)]
        return result, losses, masks

    return function


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs the network for these arguments, or adds it to the graph that is being made."""
    flat = tf.nest.flatten((args, kwargs))
    if any(isinstance(v, KerasTensor) for v in flat) or not is_optimized(self):  # made of its class by clone_model
        return _original(type(self)).call(self, *args, **kwargs)
    masks = [keras.src.backend.get_keras_mask(x) if tf.is_tensor(x) else None for x in flat]
    result, losses, found = self.__dict__["_sol"](args, kwargs, masks)
    for loss in losses:
        keras.layers.Layer.add_loss(self, loss)  # a functional model has none of its own
    for t, mask in zip(tf.nest.flatten(result), found, strict=True):
        if mask is not None:
            keras.src.backend.set_keras_mask(t, mask)
    return result


def _again(make: Any, args: Any) -> Any:
    """Unpickling: the model that Keras makes, optimized."""
    return attach(make(*args))


class _Face:
    """What the class of an optimized Keras model has besides the user's."""

    call = _call

    def setWeights(self: Any, weights: Any) -> None:
        """`set_weights`, also with variables, such as the `weights` of another model."""
        self.set_weights([np.asarray(w) for w in weights])

    def __reduce__(self: Any) -> Any:
        return _again, _plain(self).__reduce__()[:2]

    def __deepcopy__(self: Any, memo: Any) -> Any:
        return attach(copy.deepcopy(_plain(self), memo))


def _plain(model: Any) -> Any:
    """The user's model behind an optimized one, which shares everything with it."""
    plain: Any = object.__new__(_original(type(model)))
    plain.__dict__.update({k: v for k, v in model.__dict__.items() if k not in ("_sol", "supports_jit")})
    return plain


def _class(cls: type, members: dict[str, Any]) -> type:
    """A class of the same name, so that files that Keras saves name the user's class."""
    if any(cls.__dict__.get(k) is v for k, v in members.items()):  # clone_model has made it of an optimized one
        cls = _original(cls)
    return type(cls.__name__, (cls,), {**members, "__module__": cls.__module__, "__qualname__": cls.__qualname__})


def is_optimized(model: Any) -> bool:
    """Whether this is an optimized model."""
    return isinstance(getattr(model, "__dict__", {}).get("_sol"), Calls)


def attach(model: Any) -> Any:
    """A Keras model, a layer or a tf.Module as an optimized one, which shares everything with it."""
    if is_optimized(model):
        raise _core.InvalidError(f"{type(model).__name__}: is optimized already")
    name = str(getattr(model, "name", None) or type(model).__name__)
    if isinstance(model, keras.layers.Layer):
        new: Any = object.__new__(_class(type(model), {k: v for k, v in vars(_Face).items() if k in _MEMBERS}))
        new.__dict__.update(model.__dict__)
        new.__dict__["supports_jit"] = False  # Keras then says that it does without XLA
        calls = Calls(_traced_call(new), name, lambda: [v.value for v in new.trainable_variables])
        calls.open = _open_inputs(model)
        new.__dict__["_sol"] = calls
        return new
    if isinstance(model, tf.Module) or hasattr(model, "signatures"):
        function = type(model).__call__ if "__call__" in dir(type(model)) else None
        if function is None:
            raise _core.InvalidError(f"{name}: has no __call__ to optimize; give one of its functions")
        new = object.__new__(_class(type(model), {"__call__": _call_module}))
        new.__dict__.update(model.__dict__)
        new.__dict__["_sol"] = Calls(lambda *args, **kwargs: function(model, *args, **kwargs), name, None)
        return new
    return Function(model, name)


_MEMBERS = ("call", "setWeights", "__reduce__", "__deepcopy__")


def _call_module(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.__dict__["_sol"](*args, **kwargs)


def _open_inputs(model: Any) -> dict[int, Any]:
    """The shapes of a functional model's inputs, None where it leaves a size open, by their numbers among the leaves of a call."""
    inputs = getattr(model, "_inputs", None) or getattr(getattr(model, "_functional", None), "_inputs", None) or []
    return {i: x.shape for i, x in enumerate(inputs)}


class Function:
    """A function of TensorFlow, optimized."""

    def __init__(self, function: Any, name: str) -> None:
        self.__wrapped__ = function
        self._sol = Calls(function, name, None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result."""
        return self._sol(*args, **kwargs)

    def __repr__(self) -> str:
        return f"sol.tensorflow.Function({self._sol.name})"
