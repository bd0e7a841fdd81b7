"""Variables on SOL's devices: TensorFlow lets no kernel from outside write to one, so the sum is an operator, and is assigned."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops


def _on_device(variable: Any) -> bool:
    return ":SOL:" in (variable.device or "").upper()


def _chosen(function: Any, before: Any) -> Any:
    @functools.wraps(before)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return (function if _on_device(self) else before)(self, *args, **kwargs)

    return method


def begin() -> None:
    """Changes the methods of variables, for those on SOL's devices."""

    def replaced(name: str, function: Any) -> None:
        for of in (resource_variable_ops.BaseResourceVariable, resource_variable_ops.ResourceVariable):
            if name in vars(of):
                setattr(of, name, _chosen(function, vars(of)[name]))

    def added(sign: Any) -> Any:
        def assign(v: Any, delta: Any, use_locking: Any = None, name: Any = None, read_value: bool = True) -> Any:
            with tf.device(v.device):
                return v.assign(
                    sign(v.read_value(), tf.convert_to_tensor(delta, v.dtype)), use_locking, name, read_value
                )

        return assign

    replaced("assign_add", added(tf.add))
    replaced("assign_sub", added(tf.subtract))
    replaced("sparse_read", lambda v, indices, name=None: tf.gather(v.read_value(), indices, name=name))
    replaced("gather_nd", lambda v, indices, name=None: tf.gather_nd(v.read_value(), indices, name=name))
