"""Translates operators that are missing from the table through decompositions, PyTorch's and those of cells.py."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from . import cells
from .problems import place
from .sizes import Sizes


def decompose(node: torch.fx.Node, sizes: Sizes | None) -> torch.fx.GraphModule | None:
    """A graph of other operators that computes the node. Its placeholders are the node's tensors in the order of
    `all_tensors`. None: PyTorch has no decomposition. `sizes`: of a trace with symbols."""
    target: Any = node.target
    function = rule(target)
    if function is None:
        return None
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    tensors = all_tensors(node)
    fakes = [t.meta["val"] for t in tensors]
    if sizes is not None:
        numbers = FakeTensorMode()
        leaves = [v if isinstance(v, torch.fx.Node) else sizes.of(v) for v in leaves]
        fakes = [sizes.fake(numbers, f) if isinstance(f, FakeTensor) else f for f in fakes]
    mode = next((f.fake_mode for f in fakes if isinstance(f, FakeTensor)), None)
    if mode is None or any(not isinstance(f, torch.Tensor) for f in fakes):
        return None

    def call(*values: torch.Tensor) -> Any:
        given = iter(values)
        args, kwargs = pytree.tree_unflatten([next(given) if isinstance(v, torch.fx.Node) else v for v in leaves], spec)
        made = function(*args, **kwargs)
        return tuple(made) if isinstance(made, tuple) else made  # some return a named tuple, which would become a node

    with mode, torch.no_grad():
        graph = make_fx(call)(*fakes)
    for inner in graph.graph.nodes:  # the location in the model is that of the node
        inner.meta["place"] = place(node)
    return None if any(inner.target is target for inner in graph.graph.nodes) else graph


def rule(target: Any) -> Any:
    """A function that computes an operator with others. None: there is none."""
    implicit = target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    return target.decompose if implicit else _rules().get(target)


@functools.cache
def _rules() -> dict[Any, Any]:
    return {**torch._decomp.core_aten_decompositions(), **cells.RULES}


def all_tensors(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The nodes among a node's arguments, including repetitions."""
    return [v for v in pytree.tree_leaves((node.args, node.kwargs)) if isinstance(v, torch.fx.Node)]
