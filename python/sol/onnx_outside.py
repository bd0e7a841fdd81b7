"""Operators of ONNX models from outside: functions that translate them (`sol.onnx.register`, docs/extending.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core
from .parsed import NUMPY


@dataclass(frozen=True)
class Node:
    """A node of a model."""

    domain: str
    operator: str
    name: str
    where: str  # its place in the model, for messages
    outputs: int
    attributes: dict[str, Any]  # numbers, lists of numbers and texts


class Builder:
    """What a hook makes layers with."""

    def __init__(self, graph: _core.Graph, node: Node) -> None:
        self.graph, self.node = graph, node

    def layers(
        self, kind: str, *inputs: _core.Tensor | None, outputs: int = 1, **attributes: Any
    ) -> list[_core.Tensor]:
        """Adds a layer with several outputs."""
        return list(self.graph.layer(kind, self.node.name, self.node.where, inputs, attributes, outputs))

    def layer(self, kind: str, *inputs: _core.Tensor | None, **attributes: Any) -> _core.Tensor:
        """Adds a layer, or an element-wise function."""
        return self.layers(kind, *inputs, **attributes)[0]

    def scalar(self, value: float, dtype: str) -> _core.Tensor:
        """A number as a constant."""
        return self.graph.const(dtype, (), np.array(value, NUMPY[dtype]).tobytes())


Hook = Callable[..., "_core.Tensor | Sequence[_core.Tensor]"]


def register(domain: str, operator: str, function: Hook | None = None) -> Any:
    """Says how SOL translates an operator, in models that are read from now on.

    domain    the operator's domain, "com.mylib"
    operator  its name
    function  function(b, node, *inputs) gets the node and tensors of the graph (None: a missing input), and returns a tensor, or a list
              of them, made with the builder: b.layer("mylib::scale", x, s=2.0). It may be used as a decorator
    """
    if function is None:
        return lambda f: register(domain, operator, f)
    if not callable(function):
        raise _core.InvalidError(f"sol.onnx.register: expected a function, got {function!r}")

    def hook(graph: _core.Graph, described: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        node = Node(*described)
        made = function(Builder(graph, node), node, *inputs)
        return tuple(made) if isinstance(made, list | tuple) else (made,)

    _core.register_onnx(domain, operator, hook)
    return function
