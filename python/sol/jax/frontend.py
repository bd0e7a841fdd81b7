"""The frontend of JAX, see frameworks.py: `sol.optimize` of its functions, and functions as `Parsed` for other frameworks."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from sol import _core, log, report
from sol.inputs import ANY, Dim, type_name
from sol.inputs import Input as Described
from sol.parsed import Call, Input, Mode, Output, Owned, Param, Parsed, flatten, is_keras, rebuild

from . import vary
from .builder import sol_name
from .function import Call as Taken
from .function import Family, Function, Traced, VaryingTraced
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
    reading = Reading(model, call)
    traced, own = reading.traced(call.vdims), reading.own
    numbers = list(range(len(own)))
    graph = Graph(reading.name, traced, numbers, (0,) if mode.gradient else None, False)
    rows = zip(reading.names[len(own) :], reading.which, graph.values[len(own) :], strict=True)
    inputs = [Input(n, i, t.handle) for n, i, t in rows]
    params = [Param(o.name, t.handle) for o, t in zip(own, graph.values, strict=False)]
    params += [
        Param(f"constant_{k}", t.handle, c) for k, (t, c) in enumerate(zip(graph.held, graph.constants, strict=True))
    ]
    outputs = [Output(f"out_{k}", sol_name(r.dtype), k) for k, r in enumerate(graph.results)]
    result = traced.tree
    return Parsed(
        reading.name, graph.graph, inputs, params, outputs, lambda made: jax.tree_util.tree_unflatten(result, made)
    )


class Reading:
    """A function and its call, taken apart."""

    def __init__(self, model: Any, call: Call) -> None:
        self.call, self.leaves = call, flatten((call.args, call.kwargs))
        self.which = [
            i for i, x in enumerate(self.leaves) if isinstance(x, np.ndarray | np.generic | jax.Array | Described)
        ]
        self.own = owned(model)
        self._tree = jax.tree_util.tree_structure(model.args[0]) if self.own else None
        self._function = model.func if self.own else model
        self._more: tuple[Any, ...] = model.args[1:] if self.own else ()
        self._named: dict[str, Any] = model.keywords if self.own else {}
        self.name = getattr(self._function, "__name__", type(self._function).__name__)
        self.names = [*(o.name for o in self.own), *(f"in_{k}" for k in range(len(self.which)))]
        self._result: Any = None

    def _flat(self, *arrays: Any) -> list[Any]:
        """The function of its parameters and arguments."""
        given, n = list(self.leaves), len(self.own)
        for i, x in zip(self.which, arrays[n:], strict=True):
            given[i] = x
        args, kwargs = rebuild((self.call.args, self.call.kwargs), given)
        first = [jax.tree_util.tree_unflatten(self._tree, arrays[:n])] if self.own else []
        made, self._result = jax.tree_util.tree_flatten(
            self._function(*first, *self._more, *args, **self._named, **kwargs)
        )
        return list(made)

    def _trace(self, specs: Sequence[Any], varying: vary.Varying | None = None) -> Traced:
        others = self.name, self._flat, specs, self.names, list(range(len(self.own)))
        if varying is None:
            made = Traced(*others)
        else:
            made = VaryingTraced(varying, specs, self.name, self._flat, varying.specs(specs), *others[3:])
        made.tree = self._result
        return made

    def _places(self, vdims: Any) -> dict[vary.Place, Dim]:
        """The sizes that are to vary if they may: those that are described so, and with `vdims` all others."""
        made: dict[vary.Place, Dim] = {}
        for i, x in enumerate((self.leaves[k] for k in self.which), len(self.own)):
            for d, n in enumerate(x.shape if vdims is not None else ()):
                if isinstance(x, Described) and x.varies(d):
                    made[i, d] = n if isinstance(n, Dim) else ANY
                elif vdims and (n > 1 or (d == 0 and n)):
                    made[i, d] = ANY
        return made

    def traced(self, vdims: Any) -> Traced:
        """The function for all sizes that `vdims` lets vary, as far as they may: None: none; False: those that are described so."""
        specs = [*(_spec(o.array) for o in self.own), *(_spec(self.leaves[i]) for i in self.which)]
        places = self._places(vdims)
        if not places:
            return self._trace(specs)
        family = Family(self._trace, specs, places, vdims or None)
        if family.traced is not None:
            return family.traced
        log.info(f"{self.name}: each new size is compiled: {next(iter(family.search.why.values()), '')}")
        return self._trace(family.specs)


def _spec(x: Any) -> Any:
    if isinstance(x, Described):
        return jax.ShapeDtypeStruct(x.sized(1), np.dtype(type_name(x.dtype)))
    return jax.ShapeDtypeStruct(x.shape, x.dtype)
