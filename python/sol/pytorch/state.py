"""Checks whether attributes that forward sets change what the next forward computes.

A counter or a hidden state does, but a cache that depends only on parameters does not. The check compares two traces, the
second of which starts with the attributes that the first set. Nodes are numbered by what they compute, and both traces
have the same numbers, or the forward is rejected. An exception is a flag that a first call sets and a second leaves as it is
("set up"): the first call's program sets it, and later calls have a program of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sol import _core

if TYPE_CHECKING:
    from .trace import Traced

Node = torch.fx.Node


def differs(first: Traced, second: Traced) -> bool:
    """Whether the next call of a forward computes something else."""
    table: dict[Any, int] = {}
    alone = _numbers(first, "this call", {}, table)
    earlier = _numbers(first, "an earlier call", {}, table)
    return _effects(first, alone) != _effects(second, _numbers(second, "this call", earlier, table))


def rejection(module: torch.nn.Module, changed: list[str]) -> Exception:
    """Of such a forward; `changed`: the attributes it changes."""
    return _core.UnsupportedError(
        f"{type(module).__name__}: forward changes {', '.join(changed)}, so that the next call computes "
        "something else: not supported; take such a state as an argument and return it, or keep it in a buffer that is written in place"
    )


def _numbers(traced: Traced, call: str, known: dict[Node, int], table: dict[Any, int]) -> dict[Node, int]:
    """Numbers the nodes: equal numbers mean equal computations. Nodes that depend on a call's arguments, on random
    numbers or on host functions are numbered per call."""
    found = dict(known)
    sources = {s.node: s.origin for s in traced.inputs}
    for node in traced.graph.nodes:
        key: Any = str(node.target), _form(node.args, found), _form(node.kwargs, found)
        if node in sources:
            kind, which = sources[node]
            constant = traced.constants.get(which) if kind == "param" else None
            key = (kind, which, "" if kind == "param" else call)
            if constant is not None:
                key = "constant", str(constant.dtype), repr(constant.tolist())
        elif torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            key = (*key, call)
        found[node] = table.setdefault(key, len(table))
    return found


def _form(arg: Any, found: dict[Node, int]) -> Any:
    if isinstance(arg, Node):
        return "node", found[arg]
    if isinstance(arg, tuple | list):
        return tuple(_form(a, found) for a in arg)
    if isinstance(arg, dict):
        return tuple((k, _form(v, found)) for k, v in arg.items())
    return repr(arg)


def _effects(traced: Traced, numbers: dict[Node, int]) -> Any:
    """What a call writes and returns."""
    calls = [n for n in traced.graph.nodes if n.op == "call_function"]
    written = [numbers[n] for n in calls if _writes(n.target)]
    return written, _form(traced.outputs, numbers), str(traced.spec)


def _writes(target: Any) -> bool:
    """Whether an operator writes elements. (detach_ of a new constant does not.)"""
    schema = getattr(target, "_schema", None)
    return schema is not None and schema.is_mutable and torch.Tag.inplace_view not in target.tags


__all__ = ["differs", "rejection"]
