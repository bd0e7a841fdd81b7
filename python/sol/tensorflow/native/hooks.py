"""Where TensorFlow and Keras go other ways on SOL's devices. TensorFlow lets no kernel from outside write to a variable, so a sum is
an operator, whose result is assigned. Keras asks for XLA, which has no such device."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from keras.src.trainers import trainer
from tensorflow.python.eager import context
from tensorflow.python.ops import resource_variable_ops


def _is_sol(device: str | None) -> bool:
    return ":SOL:" in (device or "").upper()


def _chosen(function: Any, before: Any) -> Any:
    @functools.wraps(before)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return (function if _is_sol(self.device) else before)(self, *args, **kwargs)

    return method


def _replace(name: str, function: Any) -> None:
    """Gives variables on SOL's devices another method."""
    for of in (resource_variable_ops.BaseResourceVariable, resource_variable_ops.ResourceVariable):
        if name in vars(of):
            setattr(of, name, _chosen(function, vars(of)[name]))


def _added(sign: Any) -> Any:
    def assign(v: Any, delta: Any, use_locking: Any = None, name: Any = None, read_value: bool = True) -> Any:
        with tf.device(v.device):
            return v.assign(sign(v.read_value(), tf.convert_to_tensor(delta, v.dtype)), use_locking, name, read_value)

    return assign


def begin() -> None:
    """Changes the methods of variables, and what Keras finds out for jit_compile="auto"."""
    _replace("assign_add", _added(tf.add))
    _replace("assign_sub", _added(tf.subtract))
    _replace("sparse_read", lambda v, indices, name=None: tf.gather(v.read_value(), indices, name=name))
    _replace("gather_nd", lambda v, indices, name=None: tf.gather_nd(v.read_value(), indices, name=name))
    before = trainer.model_supports_jit

    def supports_jit(model: Any) -> bool:
        places = [context.context().device_name, *(getattr(v.value, "device", None) for v in model.variables)]
        return not any(map(_is_sol, places)) and bool(before(model))

    trainer.model_supports_jit = supports_jit
