"""The optimized model: of Keras (sol/keras_face.py), a tf.Module or a function."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state

from sol import _core, keras_face
from sol.keras_face import is_optimized

from .calls import Calls

__all__ = ["Function", "attach", "is_optimized"]


_SCOPES = (
    "current_call_ctx",
    "autocast_scope",
    "stateless_scope",
    "symbolic_scope",
    "distribution",
)  # in Keras's state


def _call_again(self: Any, *args: Any, training: Any = None, **kwargs: Any) -> Any:
    """Keras's `__call__`. What it finds out is known for a call on tensors that was made before in the same way, where no layer around
    the model changes what it does; such a call runs the network at once."""
    if training is not None:
        kwargs["training"] = training
    calls = self.__dict__.get("_sol")
    state = global_state.GLOBAL_STATE_TRACKER
    if (
        calls is None
        or len(kwargs) > (training is not None)
        or any(getattr(state, n, None) is not None for n in _SCOPES)
    ):
        return keras.layers.Layer.__call__(self, *args, **kwargs)
    key = calls.key(("call", training), args) if isinstance(training, bool | None) and not self._losses else None
    if key in calls.again:
        return calls.again[key](args)
    calls.mine.asked = key and (key, args)
    try:
        return keras.layers.Layer.__call__(self, *args, **kwargs)
    finally:
        calls.mine.asked = None


def attach(model: Any) -> Any:
    """A Keras model, a layer or a tf.Module as an optimized one, which shares everything with it."""
    keras_face.check_new(model)
    name = str(getattr(model, "name", None) or type(model).__name__)
    if isinstance(model, keras.layers.Layer):
        own = type(model).__call__ is not keras.layers.Layer.__call__
        new = keras_face.attach(model, attach, {} if own else {"__call__": _call_again})
        new.__dict__["supports_jit"] = False  # Keras then says that it does without XLA
        if "_jit_compile" in new.__dict__:
            new.__dict__["_jit_compile"] = None  # to be found out again
        calls = Calls(keras_face.network_of(new), name, lambda: [v.value for v in new.trainable_variables])
        calls.open, calls.attributes.owners = _open_inputs(model), new._flatten_layers
        calls.shown = lambda made: made[0]
        new.__dict__["_sol"] = calls
        return new
    if isinstance(model, tf.Module) or hasattr(model, "signatures"):
        return _attach_module(model, name)
    return Function(model, name)


def _attach_module(model: Any, name: str) -> Any:
    """The same for a tf.Module or a loaded SavedModel."""
    function = type(model).__call__ if "__call__" in dir(type(model)) else None
    if function is None:
        raise _core.InvalidError(f"{name}: has no __call__ to optimize; give one of its functions")

    def method(*args: Any, **kwargs: Any) -> Any:
        bound = function.__get__(model, type(model))  # a tf.function as a method refers to the model weakly
        return bound(*args, **kwargs)

    def children(self: Any, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        """What files of the model contain: functions are the original's."""
        own: Any = model if save_type == "savedmodel" else super(cls, self)
        return own._trackable_children(save_type, **kwargs)

    cls: Any = keras_face.class_of(type(model), {"__call__": _call_module, "_trackable_children": children})
    new = object.__new__(cls)
    new.__dict__.update(model.__dict__)
    new.__dict__["_sol"] = calls = Calls(method, name, None)
    calls.attributes.owners = lambda: [model, *getattr(model, "submodules", ())]
    return new


def _call_module(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.__dict__["_sol"](*args, **kwargs)


def _open_inputs(model: Any) -> dict[int, Any]:
    """The shapes of a functional model's inputs, None where it leaves a size open, by their numbers among the leaves of a call."""
    inputs = getattr(model, "_inputs", None) or getattr(getattr(model, "_functional", None), "_inputs", None) or []
    return {i: x.shape for i, x in enumerate(inputs)}


class Function:
    """A function of TensorFlow, optimized."""

    sol_framework = "tensorflow"

    def __init__(self, function: Any, name: str) -> None:
        self.__wrapped__ = function
        self._sol = Calls(function, name, None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result."""
        return self._sol(*args, **kwargs)

    def __repr__(self) -> str:
        return f"sol.tensorflow.Function({self._sol.name})"
