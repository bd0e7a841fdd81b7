"""Sizes that vary in the graphs of Dynamo (dynamic=True, mark_dynamic, a second size in a call): they are symbols in the shapes of the
arguments, and arguments of their own. SOL reads them from the shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sol.inputs import Dim

from .symbols import SYMBOLIC, Place

Node = torch.fx.Node


def open_sizes(module: torch.fx.GraphModule) -> tuple[torch.fx.GraphModule, list[int], dict[Place, Dim]]:
    """A graph without the arguments that are sizes of tensors among the arguments; the numbers of the arguments that are left; and
    which of their dimensions vary."""
    given = module.graph.find_nodes(op="placeholder")
    if any(_is_size(node) for node in given):
        module = _copied(module)  # Dynamo passes what the placeholders of its own graph say
        given = module.graph.find_nodes(op="placeholder")
    sizes: dict[object, tuple[Node, int]] = {}  # by expression: a tensor and a dimension of it
    for node in given:
        for d, expr in _varying(node):
            sizes.setdefault(expr, (node, d))
    left = [i for i, node in enumerate(given) if not (_is_size(node) and _replaced(module.graph, node, sizes))]
    module.recompile()
    rows = [(k, d, expr) for k, i in enumerate(left) for d, expr in _varying(given[i])]
    return module, left, {(k, d): Dim(str(expr), 0) for k, d, expr in rows}


def _copied(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return torch.fx.GraphModule(module, graph)


def _is_size(node: Node) -> bool:
    return isinstance(node.meta.get("example_value"), torch.SymInt)


def _varying(node: Node) -> list[tuple[int, object]]:
    """The dimensions of a tensor that vary, and their sizes as expressions."""
    value = node.meta.get("example_value")
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_nested:
        return []
    shape: Sequence[Any] = value.shape
    sizes = [(d, n.node.expr) for d, n in enumerate(shape) if isinstance(n, SYMBOLIC)]
    return [(d, expr) for d, expr in sizes if not expr.is_number]


def _replaced(graph: torch.fx.Graph, node: Node, sizes: dict[object, tuple[Node, int]]) -> bool:
    """Whether a size is one that the graph now reads from a tensor, or does not need."""
    if node.users:
        place = sizes.get(node.meta["example_value"].node.expr)
        if place is None:
            return False
        with graph.inserting_after(graph.find_nodes(op="placeholder")[-1]):
            read = graph.call_method("size", place)
        read.meta = dict(node.meta)
        node.replace_all_uses_with(read)
    graph.erase_node(node)
    return True


__all__ = ["open_sizes"]
