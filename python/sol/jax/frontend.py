"""The frontend of JAX, see frameworks.py: `sol.optimize` of its functions, and functions as `Parsed` for other frameworks."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from sol import _core, report
from sol.inputs import Input as Described
from sol.inputs import type_name
from sol.parsed import Call, Input, Mode, Output, Owned, Param, Parsed, flatten, is_keras, rebuild

from .builder import sol_name
from .function import Call as Taken
from .function import Function, Traced
from .function import optimize as optimized
from .network import Described as Graph
from .wrap import Model, wrap

__all__ = ["assign", "bind", "dims", "optimize", "owned", "parse", "wrap"]


def optimize(model: Any, call: Call) -> Any:
    """`sol.optimize`. `sol.jax.optimize` has more options."""
    if is_keras(model):
        from . import keras_model

        return keras_model.optimize(model, call)
    return optimized(model, *call.args, vdims=call.vdims, batch_size=call.batch_size, **call.kwargs)


def bind(model: Any, call: Call) -> tuple[Any, Call]:
    """A function whose first argument is a container, with others behind it, as one that has these parameters."""
    if len(call.args) + len(call.kwargs) < 2 or not call.args or isinstance(model, functools.partial):
        return model, call
    if jax.tree_util.all_leaves([call.args[0]]):
        return model, call
    rest = Call(call.args[1:], call.kwargs, call.batch_size, call.copy, call.vdims, call.framework)
    return functools.partial(model, call.args[0]), rest


def owned(model: Any) -> list[Owned]:
    """The arrays in the first argument of a functools.partial. Those of real types are trained; of variables of Flax, those in
    "params". Other arrays that a function closes over are constants."""
    if is_keras(model):
        raise _core.UnsupportedError(
            f"{type(model).__name__}: a model of Keras on JAX in another framework: not supported; give a function of its variables' "
            "values that calls model.stateless_call"
        )
    if isinstance(model, Model):
        return [Owned(n, np.asarray(v), n in model.trained, n) for n, v in model.parameters.items()]
    found = []
    for path, leaf in _bound(model):
        keys = [str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path]
        flax = isinstance(model.args[0], Mapping) and "params" in model.args[0]
        array = np.asarray(leaf)
        found.append(
            Owned("/".join(keys), array, array.dtype.kind == "f" and (not flax or keys[0] == "params"), id(leaf))
        )
    return found


def assign(model: Any, values: dict[str, Any]) -> None:
    """New values in the parameters of a model of another framework. Functions of JAX have none."""
    if not isinstance(model, Model):
        raise _core.UnsupportedError("a function of JAX has no parameters of its own; give the dict of its arrays")
    model.parameters.update({n: jax.numpy.asarray(v) for n, v in values.items()})


def dims(model: Any, call: Call) -> report.Report:
    """`sol.dims`."""
    function = model if isinstance(model, Function) else Function(model, None, (), ())
    made = Function(function.function, function._params, function.static_argnums, function.static_argnames)
    made.vary = True
    taken = Taken(made, call.args, call.kwargs)
    return made.report(taken, made.family(taken))


def _bound(model: Any) -> list[Any]:
    bound = isinstance(model, functools.partial) and model.args
    return jax.tree_util.tree_flatten_with_path(model.args[0])[0] if bound else []


def parse(model: Any, call: Call, mode: Mode) -> Parsed:
    """Traces and translates a function. Leaves that are no arrays are what they are in every call."""
    leaves = flatten((call.args, call.kwargs))
    which = [i for i, x in enumerate(leaves) if isinstance(x, np.ndarray | np.generic | jax.Array | Described)]
    own = owned(model)
    function, tree = (model.func, jax.tree_util.tree_structure(model.args[0])) if own else (model, None)
    more, named = (model.args[1:], model.keywords) if own else ((), {})
    found: list[Any] = []

    def flat(*arrays: Any) -> list[Any]:
        given = list(leaves)
        for i, x in zip(which, arrays[len(own) :], strict=True):
            given[i] = x
        args, kwargs = rebuild((call.args, call.kwargs), given)
        first = [jax.tree_util.tree_unflatten(tree, arrays[: len(own)])] if own else []
        made, result = jax.tree_util.tree_flatten(function(*first, *more, *args, **named, **kwargs))
        found[:] = [result]
        return made

    name = getattr(function, "__name__", type(function).__name__)
    names = [*(o.name for o in own), *(f"in_{k}" for k in range(len(which)))]
    specs = [*(_spec(o.array) for o in own), *(_spec(leaves[i]) for i in which)]
    numbers = list(range(len(own)))
    graph = Graph(name, Traced(name, flat, specs, names, numbers), numbers, (0,) if mode.gradient else None, False)
    inputs = [Input(n, i, t.handle) for n, i, t in zip(names[len(own) :], which, graph.values[len(own) :], strict=True)]
    params = [Param(o.name, t.handle) for o, t in zip(own, graph.values, strict=False)]
    params += [
        Param(f"constant_{k}", t.handle, c) for k, (t, c) in enumerate(zip(graph.held, graph.constants, strict=True))
    ]
    outputs = [Output(f"out_{k}", sol_name(r.dtype), k) for k, r in enumerate(graph.results)]
    result = found[0]
    return Parsed(name, graph.graph, inputs, params, outputs, lambda made: jax.tree_util.tree_unflatten(result, made))


def _spec(x: Any) -> Any:
    if isinstance(x, Described):
        return jax.ShapeDtypeStruct(x.sized(1), np.dtype(type_name(x.dtype)))
    return jax.ShapeDtypeStruct(x.shape, x.dtype)
