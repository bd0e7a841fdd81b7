"""Which tensors a result's gradients would reach, without computing gradients.

A program for inference is translated without gradients. In eval mode its results still belong to autograd's graph (training.py makes the
program with gradients when backward asks for it), but not all of them: constants, whole numbers, detached results and those of no_grad()
do not.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import Any

import torch

from .assigned import assigned
from .writes import DETACHED, storage, viewed, written

Node = torch.fx.Node
Origin = tuple[str, Any]  # ("leaf", number) or ("param", name)

_FRESH = ("empty", "ones", "zeros", "full", "rand", "randn", "randint")  # of the size of another tensor, or of its type
_MADE = frozenset((*(f"{n}_like" for n in _FRESH), *(f"new_{n}" for n in _FRESH)))


def origins(graph: torch.fx.Graph, known: Mapping[Node, Origin]) -> dict[Node, frozenset[Origin]]:
    """By node: the arguments and tensors of the model that gradients may reach from its value. Too many rather than too few: what is
    written into memory counts for everything that shares this memory, whenever it was written."""
    rows = list(known.values())
    bits = {node: 1 << i for i, node in enumerate(known)}
    put: dict[int, int] = {}  # by memory: what was written there

    def of(node: Node) -> int:
        return bits.get(node, 0) | put.get(storage(node) or 0, 0)

    for node in graph.nodes:
        if node.op == "call_function":
            target = node.args[0] if node.target is assigned else written(node)
            if node.target is assigned or not _enabled(
                node
            ):  # what autograd does not see: a target keeps its gradients
                bits[node] = 0 if target is None else of(target)
                continue
            bits[node] = _made(node, functools.reduce(operator.or_, map(of, node.all_input_nodes), 0))
            if target is not None and (key := storage(target)) is not None:
                put[key] = put.get(key, 0) | bits[node]
    found = {node: 0 if detached(node) else of(node) for node in graph.nodes}
    return {n: frozenset(o for i, o in enumerate(rows) if mask >> i & 1) for n, mask in found.items() if mask}


def _made(node: Node, mask: int) -> int:
    """What an operator's result leads back to, for operands that lead back to `mask`."""
    schema = getattr(node.target, "_schema", None)
    if node.target in DETACHED or (schema is not None and schema.name.partition("::")[2] in _MADE):
        return 0
    val = node.meta.get("val")
    plain = isinstance(val, torch.Tensor) and not (val.is_floating_point() or val.is_complex())
    return 0 if plain else mask


def _enabled(node: Node) -> bool:
    """Whether gradients were enabled there."""
    return bool(node.meta.get("enabled", True))


def detached(node: Node) -> bool:
    """Whether it shares memory with another tensor, but has no gradients."""
    return node.target in DETACHED or (not _enabled(node) and written(node) is None and viewed(node) is not None)


__all__ = ["detached", "origins"]
