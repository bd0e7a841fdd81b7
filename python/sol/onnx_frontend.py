"""The frontend of ONNX models, see frameworks.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import _core, onnx
from .onnx_file import source_of, untrained
from .parsed import NUMPY, REAL, Call, Input, Mode, Output, Owned, Param, Parsed, flatten


def optimize(model: Any, call: Call) -> onnx.Network:
    """`sol.optimize`: a function on arrays."""
    return onnx.load(model, *call.args, batch_size=call.batch_size, vdims=call.vdims, **call.kwargs)


def dims(model: Any, call: Call) -> Any:
    """`sol.dims`."""
    return onnx.find_dims(model, call.args, call.kwargs)


def deploy(model: Any, target: str, keys: dict[str, str], call: Call, sizes: Sequence[int | None]) -> None:
    """`sol.deploy`."""
    graphs = tuple((onnx.sized(model, call.args, call.kwargs, n, call.vdims), (), -1, n or 0, None, ()) for n in sizes)
    _core.deploy(graphs, target, keys, None, None, None)


def owned(model: Any) -> list[Owned]:
    """The real weights of a model, by the names in the file. Constants of nodes, and means and variances of batch
    normalization, are not trained."""
    network = onnx.Network(source_of(model))
    network._trains = True
    read, fixed = network._read_all(), untrained(network.source)
    return [
        Owned(n, _value(read, i, t), t.dtype in REAL and n not in fixed, n)
        for i, (n, t) in enumerate(read.graph.params)
    ]


def _value(read: _core.Onnx, i: int, tensor: _core.Tensor) -> Any:
    return np.frombuffer(read.param(i), NUMPY[tensor.dtype]).reshape(tensor.shape)


def parse(model: Any, call: Call, mode: Mode) -> Parsed:
    """Reads the model. It computes the same in every mode, since a file says what its layers do in inference."""
    if "fix" in call.kwargs:
        raise _core.UnsupportedError(
            "fix: not supported for an ONNX model in another framework; give arguments of these sizes"
        )
    read = onnx.sized(model, call.args, call.kwargs, call.batch_size, call.vdims, True)
    graph, known = read.graph, {o.name for o in owned(model)}
    leaves = {n: i for i, n in enumerate(_arguments(model, call))}
    return Parsed(
        source_of(model).name,
        graph,
        [Input(n, leaves[n], t) for n, t in graph.inputs],
        [Param(n, t, None if n in known else _value(read, i, t)) for i, (n, t) in enumerate(graph.params)],
        [Output(n, t.dtype, i) for i, (n, t) in enumerate(graph.outputs)],
        lambda found: found[0] if len(found) == 1 else tuple(found),
    )


def _arguments(model: Any, call: Call) -> list[str]:
    """The names of the call's leaves."""
    if len(call.args) == 1 and isinstance(call.args[0], Mapping):
        return [*call.args[0], *call.kwargs]
    inputs = onnx.Network(source_of(model)).inputs
    names = [*(i.name for i in inputs[: len(call.args)]), *call.kwargs]
    if len(flatten((call.args, call.kwargs))) != len(names):
        raise _core.InvalidError(f"{source_of(model).label}: expected arrays, got {call.args} {call.kwargs}")
    return names
