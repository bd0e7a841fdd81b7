"""The frontend of JAX, see frameworks.py: `sol.optimize` of its functions, and functions as `Parsed` for other frameworks."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from sol import _core
from sol.inputs import Input as Described
from sol.inputs import type_name
from sol.parsed import Call, Input, Mode, Output, Owned, Param, Parsed, flatten, rebuild

from .builder import sol_name
from .function import Function, Traced
from .function import optimize as optimized
from .network import Described as Graph


def optimize(model: Any, call: Call) -> Function:
    """`sol.optimize`. `sol.jax.optimize` has more options."""
    if call.vdims is not None or call.batch_size is not None:
        raise _core.UnsupportedError(
            "sol.optimize: vdims and batch_size: not supported for functions of JAX: each shape has a program, as with jax.jit"
        )
    return optimized(model, *call.args, **call.kwargs)


def owned(model: Any) -> list[Owned]:
    """A function owns nothing: parameters are arguments, and arrays that it closes over are constants."""
    return []


def parse(model: Any, call: Call, mode: Mode) -> Parsed:
    """Traces and translates a function. Leaves that are no arrays are what they are in every call."""
    leaves = flatten((call.args, call.kwargs))
    which = [i for i, x in enumerate(leaves) if isinstance(x, np.ndarray | np.generic | jax.Array | Described)]
    found: list[Any] = []

    def flat(*arrays: Any) -> list[Any]:
        own = list(leaves)
        for i, x in zip(which, arrays, strict=True):
            own[i] = x
        args, kwargs = rebuild((call.args, call.kwargs), own)
        made, tree = jax.tree_util.tree_flatten(model(*args, **kwargs))
        found[:] = [tree]
        return made

    name = getattr(model, "__name__", type(model).__name__)
    names = [f"in_{k}" for k in range(len(which))]
    graph = Graph(
        name,
        Traced(name, flat, [_spec(leaves[i]) for i in which], names, []),
        [],
        (0,) if mode.gradient else None,
        False,
    )
    inputs = [Input(n, i, t.handle) for n, i, t in zip(names, which, graph.values, strict=True)]
    params = [
        Param(f"constant_{k}", t.handle, c) for k, (t, c) in enumerate(zip(graph.held, graph.constants, strict=True))
    ]
    outputs = [Output(f"out_{k}", sol_name(r.dtype), k) for k, r in enumerate(graph.results)]
    tree = found[0]
    return Parsed(
        name, graph.graph, inputs, params, outputs, lambda results: jax.tree_util.tree_unflatten(tree, results)
    )


def _spec(x: Any) -> Any:
    if isinstance(x, Described):
        return jax.ShapeDtypeStruct(x.sized(1), np.dtype(type_name(x.dtype)))
    return jax.ShapeDtypeStruct(x.shape, x.dtype)
