"""The frontend of ONNX models, see frameworks.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _core, onnx
from .parsed import Call


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
