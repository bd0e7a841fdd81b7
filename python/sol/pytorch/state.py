"""Checks whether attributes that forward sets change what the next forward computes.

A counter or a hidden state does, but a cache that depends only on parameters does not. The check compares two traces, the
second of which starts with the attributes that the first set. Nodes are numbered by what they compute, with what was written
before into the memory that they read; both traces have the same numbers, or the forward is rejected. An exception is a flag
that a first call sets and a second leaves as it is ("set up"): the first call's program sets it, and later calls have a
program of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from sol import _core

from .writes import storage

if TYPE_CHECKING:
    from .traced import Traced

Node = torch.fx.Node


@dataclass
class _Numbers:
    """Numbers of what nodes compute, and of what was last written into memory, by its storage."""

    of: dict[Node, int]
    memory: dict[Any, int]


def differs(first: Traced, second: Traced) -> bool:
    """Whether the next call of a forward computes something else."""
    table: dict[Any, int] = {}
    alone = _numbers(first, "this call", _Numbers({}, {}), table)
    earlier = _numbers(first, "an earlier call", _Numbers({}, {}), table)
    for given in _given(first):  # values of parameters and buffers do not count
        earlier.memory.pop(given, None)
    return _effects(first, alone) != _effects(second, _numbers(second, "this call", earlier, table))


def rejection(module: torch.nn.Module, changed: list[str]) -> Exception:
    """Of such a forward; `changed`: the attributes it changes."""
    return _core.UnsupportedError(
        f"{type(module).__name__}: forward changes {', '.join(changed)}, so that the next call computes "
        "something else: not supported; take such a state as an argument and return it, or keep it in a buffer that is written in place"
    )


def _numbers(traced: Traced, call: str, known: _Numbers, table: dict[Any, int]) -> _Numbers:
    """Numbers the nodes: equal numbers mean equal computations. Nodes that depend on a call's arguments, on random
    numbers or on host functions are numbered per call."""
    found, memory = dict(known.of), dict(known.memory)
    sources = {s.node: s.origin for s in traced.inputs}
    for node in traced.graph.nodes:
        read = [storage(n) for n in node.all_input_nodes]
        key: Any = str(node.target), _form(node.args, found), _form(node.kwargs, found), tuple(map(memory.get, read))
        if node in sources:
            kind, which = sources[node]
            constant = traced.constants.get(which) if kind == "param" else None
            key = (kind, which, "" if kind == "param" else call)
            if constant is not None:
                key = "constant", str(constant.dtype), repr(constant.tolist())
        elif torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            key = (*key, call)
        found[node] = table.setdefault(key, len(table))
        if _writes(node.target):
            memory.update(dict.fromkeys(_written(node), found[node]))
    return _Numbers(found, memory)


def _given(traced: Traced) -> list[Any]:
    """The storages of arguments and of the model's tensors."""
    return [storage(s.node) for s in traced.inputs if s.origin[1] not in traced.constants]


def _form(arg: Any, found: dict[Node, int]) -> Any:
    if isinstance(arg, Node):
        return "node", found[arg]
    if isinstance(arg, tuple | list):
        return tuple(_form(a, found) for a in arg)
    if isinstance(arg, dict):
        return tuple((k, _form(v, found)) for k, v in arg.items())
    return repr(arg)


def _effects(traced: Traced, numbers: _Numbers) -> Any:
    """What a call writes and returns."""
    returned = [numbers.memory.get(storage(o)) for o in traced.outputs if isinstance(o, Node)]
    written = [numbers.memory.get(s) for s in _given(traced)]
    return written, returned, _form(traced.outputs, numbers.of), str(traced.spec)


def _written(node: Node) -> list[Any]:
    """The storages of what an operator writes."""
    schema = node.target._schema  # type: ignore[union-attr]
    found: list[Any] = []
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
            found += value if isinstance(value, list | tuple) else [value]
    return [storage(n) for n in found if isinstance(n, Node)]


def overwritten(traced: Traced) -> frozenset[str]:
    """The model's real tensors that a call writes: backward may need what was there before."""
    nodes = [n for n in traced.graph.nodes if n.op == "call_function" and _writes(n.target)]
    memory = {s for n in nodes for s in _written(n)}
    rows = [(s.node, s.origin[1]) for s in traced.inputs if s.origin[0] == "param"]
    return frozenset(
        str(name) for node, name in rows if storage(node) in memory and node.meta["val"].dtype.is_floating_point
    )


def _writes(target: Any) -> bool:
    """Whether an operator writes elements. (detach_ of a new constant does not.)"""
    schema = getattr(target, "_schema", None)
    return schema is not None and schema.is_mutable and torch.Tag.inplace_view not in target.tags


__all__ = ["differs", "overwritten", "rejection"]
