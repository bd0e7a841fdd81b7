"""What forward reads of its arguments while it runs: numbers (`.item()`, `bool(t)`, `.tolist()`) and the sizes that follow from data
(`nonzero`, a mask as an index, the steps of a packed sequence).

A trace computes such a value with the call's own arguments, by the operators that lead from them to the read, and the program is
for that value: `Reads` computes it again, in PyTorch, in front of each call. That has to be cheap, and known before the network
runs: what depends on weights, random numbers or products is refused by name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch.utils._python_dispatch import _disable_current_modes

from sol import _core

Node = torch.fx.Node
MOST = 1 << 16  # characters of one value, written down: it is compared in each call

_PRODUCTS = frozenset(
    "addbmm addmm addmv addr baddbmm bilinear bmm cdist chain_matmul conv1d conv2d conv3d conv_transpose1d conv_transpose2d "
    "conv_transpose3d convolution dot einsum gru inner kron linalg_multi_dot linear lstm matmul mm mv native_multi_head_attention "
    "outer rnn_relu rnn_tanh scaled_dot_product_attention tensordot vdot _convolution _grouped_mm".split()
)
_STATISTICS = (torch.ops.aten.batch_norm.default, torch.ops.aten.instance_norm.default)  # write, and do not say so
INSTEAD = (
    "compute with the tensor itself (torch.where, a mask), or use torch.compile(model, backend='sol'), which runs such a line in "
    "Python"
)


class _Place(int):
    """In the operands of a step: the value of this number."""


@dataclass
class Source:
    """Where a value comes from that a step reads: a leaf of the call, a tensor of the model, or a constant of the trace."""

    place: int
    kind: str
    which: Any
    form: tuple[torch.dtype, torch.Size] | None = None  # of a leaf


@dataclass
class Read:
    """One value: the operators that lead to it from what the reads before it have not made yet."""

    function: Callable[..., Any]
    operands: tuple[_Place, ...]
    sources: list[Source]
    steps: list[tuple[int, Any, Any, Any]]  # place, operator, arguments
    alone: bool  # some of the steps write memory: they run on copies
    where: str  # the line of the user's model
    text: str = ""  # the value, as it was in the trace

    def compute(self, env: dict[int, Any], fetch: Callable[[Source], torch.Tensor]) -> Any:
        """The value; `env` are those of earlier steps."""
        env = {} if self.alone else env
        for s in self.sources:
            t = fetch(s)
            env[s.place] = t.clone() if self.alone else t
        for place, target, args, kwargs in self.steps:
            env[place] = target(*_filled(args, env), **{k: _filled(v, env) for k, v in kwargs.items()})
        return self.function(*(env[p] for p in self.operands))


def _filled(arg: Any, env: Mapping[int, Any]) -> Any:
    kind = type(arg)
    if kind is _Place:
        return env[arg]
    return kind([_filled(a, env) for a in arg]) if kind is tuple or kind is list else arg


@dataclass
class Reads:
    """What one trace read, in order: what is read later may depend on what was read before."""

    rows: list[Read] = field(default_factory=list)
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @property
    def values(self) -> tuple[str, ...]:
        """As part of a program's key."""
        return tuple(row.text for row in self.rows)

    def hold(self, leaves: Sequence[Any], owned: Mapping[str, Any]) -> bool:
        """Does a call with these arguments read the same values?"""

        def fetch(s: Source) -> torch.Tensor:
            t: torch.Tensor = leaves[s.which] if s.kind == "leaf" else self._tensor(s, owned)
            if s.form is not None and (not isinstance(t, torch.Tensor) or (t.dtype, t.shape) != s.form):
                raise _Differs
            return t

        env: dict[int, Any] = {}
        try:
            with torch.no_grad():
                return all(repr(row.compute(env, fetch)) == row.text for row in self.rows)
        except Exception:  # what such a call really does the model itself says, when it is traced
            return False

    def _tensor(self, s: Source, owned: Mapping[str, Any]) -> torch.Tensor:
        found: torch.Tensor = self.constants[s.which] if s.kind == "constant" else owned[s.which].tensor
        return found

    def differs(self, other: Reads) -> int:
        """The number of the first read that found something else."""
        pairs = zip(self.values, other.values, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self.rows), len(other.rows)) - 1)


class _Differs(Exception):
    """The call is not like the one that was traced."""


@dataclass
class Given:
    """What a trace may compute values with: the leaves of a call and the model's tensors by name."""

    leaves: Sequence[Any]
    owned: Mapping[str, Any]
    absent: frozenset[int] = frozenset()  # leaves without data: sol.input
    fixed: frozenset[int] = frozenset()  # leaves that are parameters


class Values:
    """The reads of one trace while it is made; `given` None: nothing is known but constants."""

    def __init__(self, given: Given | None, name: str, constants: Mapping[str, torch.Tensor]) -> None:
        self.given = given
        self.name = name  # of the model
        self.made = Reads(constants=constants)
        self.used: set[Node] = set()  # what leads to a value: not part of the network, unless it is read there, too
        self.unknown: set[Node] = set()  # what stands for something else, whose values are not known
        self._places: dict[Node, _Place] = {}
        self._known: set[Node] = set()  # computed by the reads before
        self._env: dict[int, Any] = {}

    def read(self, function: Callable[..., Any], nodes: Sequence[Node], sources: Mapping[Node, Any], where: str) -> Any:
        """What a function makes of tensors with data in them. `sources`: placeholders of the graph."""
        needed, alone = _needed(nodes)
        for node in needed:
            if why := self._why_not(node, sources):
                raise _core.UnsupportedError(
                    f"{self.name}: control flow or a shape that depends on data{f' ({where})' if where else ''}: forward reads a "
                    f"value of {why}"
                )
        new = [n for n in needed if alone or n not in self._known]
        row = Read(
            function,
            tuple(map(self._place, nodes)),
            [self._source(n, sources[n]) for n in new if n in sources],
            [
                (self._place(n), n.target, self._written(n.args), self._written(n.kwargs))
                for n in new
                if n not in sources
            ],
            alone,
            where,
        )
        self.used.update(needed)
        with _disable_current_modes(), torch.no_grad():
            value = row.compute(self._env, self._fetch)
        row.text = repr(value)
        if len(row.text) > MOST:
            raise _core.UnsupportedError(
                f"{self.name}: forward reads {sum(int(n.meta['val'].numel()) for n in nodes)} numbers of its arguments"
                f"{f' ({where})' if where else ''}, too many to compare in each call; {INSTEAD}"
            )
        if not alone:
            self._known.update(new)
        if any(n in sources and sources[n].origin[1] not in self.made.constants for n in needed):
            self.made.rows.append(row)
        return value

    def erase(self, graph: torch.fx.Graph) -> None:
        """Takes out of a graph what was there for the reads alone."""
        kept = set(_writes(graph))
        for node in reversed(graph.nodes) if self.used else ():
            if node in self.used and node not in kept and not node.users and node.op == "call_function":
                graph.erase_node(node)

    def _why_not(self, node: Node, sources: Mapping[Node, Any]) -> str | None:
        """What is in the way of computing a value in front of each call, and what to do; None: nothing."""
        if node in sources:
            return self._why_not_source(sources[node])
        if node in self.unknown:
            return f"a gradient; {INSTEAD}"
        name = getattr(getattr(node.target, "overloadpacket", node.target), "__name__", str(node.target))
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            return (
                f"random numbers ({name}); if they are those of LayerDrop, set it to 0 (layerdrop=0.0 in the configuration), "
                f"otherwise {INSTEAD}"
            )
        if name.rstrip("_") in _PRODUCTS:
            return f"a product ({name}), which SOL computes; {INSTEAD}"
        if node.target is not operator.getitem and not isinstance(node.target, torch._ops.OpOverload):
            return f"{name}; {INSTEAD}"
        return None

    def _why_not_source(self, source: Any) -> str | None:
        kind, which = source.origin
        if kind != "leaf":
            known = which in self.made.constants or (self.given is not None and source.kind != InputKind.PARAMETER)
            return None if known else f"the model's '{which}'; {INSTEAD}"
        if self.given is None:
            return f"argument {source.node.name}, which a deployed network cannot; {INSTEAD.partition(', or')[0]}"
        if which in self.given.fixed:
            return f"the model's '{source.node.name}'; {INSTEAD}"
        if which in self.given.absent:
            return (
                f"argument {source.node.name}, which has no data; give sol.optimize an example tensor in place of sol.input(..), "
                "or no arguments at all"
            )
        return None

    def _source(self, node: Node, source: Any) -> Source:
        kind, which = source.origin
        if kind == "leaf":
            assert self.given is not None
            leaf = self.given.leaves[which]
            return Source(self._place(node), kind, which, (leaf.dtype, leaf.shape))
        return Source(self._place(node), "constant" if which in self.made.constants else "param", which)

    def _fetch(self, s: Source) -> torch.Tensor:
        if s.kind != "leaf":
            return self.made._tensor(s, self.given.owned if self.given else {}).detach()
        assert self.given is not None
        found: torch.Tensor = self.given.leaves[s.which]
        return found.detach()

    def _place(self, node: Node) -> _Place:
        return self._places.setdefault(node, _Place(len(self._places)))

    def _written(self, arg: Any) -> Any:
        """Operands with places instead of nodes."""
        if isinstance(arg, Node):
            return self._place(arg)
        if isinstance(arg, tuple | list):
            made = [self._written(a) for a in arg]  # the graph's lists are of a class of their own
            return tuple(made) if isinstance(arg, tuple) else made
        return {k: self._written(v) for k, v in arg.items()} if isinstance(arg, dict) else arg


def shortened(text: str) -> str:
    """A value in a message."""
    return text if len(text) <= 60 else f"{text[:57]}..."


def _needed(nodes: Sequence[Node]) -> tuple[list[Node], bool]:
    """What leads to these, in order, with whatever wrote the memory that they read; and whether something did."""
    found: set[Node] = set()
    waiting, writes = list(nodes), list(_writes(nodes[0].graph))
    while waiting:
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += node.all_input_nodes
        if writes:
            touched = set().union(*map(_memories, found))
            waiting = [n for n in writes if n not in found and not touched.isdisjoint(_memories(n))]
    return sorted(found), any(n in found for n in writes)


def _writes(graph: torch.fx.Graph) -> Iterable[Node]:
    """Operators that write in place."""
    return (n for n in graph.nodes if _written(n))


def _written(node: Node) -> list[Any]:
    """The operands that an operator writes."""
    if node.target in _STATISTICS:
        return [a for a in node.args[3:5] if a is not None] if node.args[5] else []
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return []
    arguments = node.target._schema.arguments
    rows = ((a, node.args[i] if i < len(node.args) else node.kwargs.get(a.name)) for i, a in enumerate(arguments))
    return [v for a, v in rows if a.alias_info is not None and a.alias_info.is_write]


def _memories(node: Node) -> set[int]:
    """The pieces of memory of a node's tensors; of an operator that writes, of those that it writes."""
    found = set()
    for n in _written(node) or [node]:
        for many in n if isinstance(n, tuple | list) else [n]:
            value = many.meta.get("val") if isinstance(many, Node) else None
            for t in value if isinstance(value, tuple | list) else [value]:
                if isinstance(t, torch.Tensor):
                    found.add(t.untyped_storage()._cdata)
    return found


__all__ = ["Given", "Reads", "Values", "shortened"]
