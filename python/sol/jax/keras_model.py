"""Models of Keras on JAX (KERAS_BACKEND=jax). Their networks are functions of the variables' values, so they work wherever Keras does:
in calls, in `stateless_call`, and in the steps of `fit`, which Keras compiles with `jax.jit`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from sol import keras_face
from sol.inputs import type_name
from sol.parsed import Call

from .function import Function, to_vary


class Networks:
    """The networks of an optimized model: one function for each structure of arguments and each value that is no array. `vary`:
    which sizes vary."""

    def __init__(self, model: Any, vary: Any) -> None:
        self.model, self.vary = model, vary
        self.functions: dict[Any, Function] = {}
        self.variables: list[Any] = []
        self._last: Function | None = None
        self._attributes = keras_face.Attributes(model._flatten_layers, _is_array)

    def __call__(self, args: Any, kwargs: Any, masks: Any) -> Any:
        """What `keras_face.network_of` computes."""
        leaves, tree = jax.tree_util.tree_flatten((args, kwargs, masks))
        arrays = [isinstance(x, jax.Array | np.ndarray | np.generic) for x in leaves]
        key = tree, tuple(None if a else x for a, x in zip(arrays, leaves, strict=True))
        if self._attributes.changed(self.model.name):
            self.functions = {}
        new_function = key not in self.functions
        if new_function:
            self.variables = self.variables or keras_face.variables_of(self.model)
            self.functions[key] = self._function(*key)
        values = [v.value for v in self.variables]
        self._last = self.functions[key]
        made, new = self._last(values, *(x for a, x in zip(arrays, leaves, strict=True) if a))
        if new_function:
            self._attributes.note()
        for i, value in new.items():
            self.variables[i].assign(value)
        return made

    def latest(self) -> Any:
        """The network used last."""
        return self._last and self._last.latest()

    def _function(self, tree: Any, plain: tuple[Any, ...]) -> Function:
        network = keras_face.with_values(self.model, self.variables)

        def function(values: Any, *arrays: Any) -> Any:
            rest = iter(arrays)
            leaves = [next(rest) if x is None else x for x in plain]
            return network(values, *jax.tree_util.tree_unflatten(tree, leaves))

        function.__name__ = self.model.name
        made = Function(function, [0], [], [])
        made.vary = self.vary
        return made

    def plain(self, args: tuple[Any, ...], result: Any, attached: Sequence[Any]) -> None:
        """Nothing to note."""


def _is_array(x: Any) -> bool:
    return isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)


def attach(model: Any, vary: Any = None) -> Any:
    """A Keras model as an optimized one, which shares everything with it."""
    new = keras_face.attach(model, functools.partial(attach, vary=vary), {})
    new.__dict__["_sol"] = Networks(new, vary)
    return new


def optimize(model: Any, call: Call) -> Any:
    """`sol.optimize`."""
    vary = to_vary(jax.tree_util.tree_leaves((call.args, call.kwargs)), call.vdims, call.batch_size)
    face = functools.partial(attach, vary=None if vary == "described" else vary)
    return keras_face.optimize(model, call, face, lambda x: np.zeros(x.sized(1), np.dtype(type_name(x.dtype))))
