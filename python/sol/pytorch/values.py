"""Values that forward reads while it runs: numbers (`.item()`, `bool(t)`, `.tolist()`) and sizes that follow from data
(`nonzero`, a mask as an index, the steps of a packed sequence).

A trace computes such a value with the operators that lead to the read, and the program is valid for that value only. There
are three kinds:

* computed: the value follows from arguments, buffers or parameters. `Reads` computes it again, in PyTorch, before each call.
* drawn: it follows from random numbers that nothing else uses (LayerDrop), or from a host function. They are drawn before
  each call.
* checked: it follows from what the network computes (a product, weights and arguments, dropout). The program assumes the
  value of its trace, and returns the tensors from which the value follows. If the value differs, the call uses another
  program instead. Such values must be whole numbers, because other numbers would never occur again.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from sol import _core

from . import fake
from .facts import Facts
from .hosted import Differs, Fetch, Hosted
from .steps import Unusual
from .symbols import SYMBOLIC

Node = torch.fx.Node
MOST = 1 << 16  # characters of one value as text; each call compares it

_PRODUCTS = frozenset(
    "addbmm addmm addmv addr baddbmm bilinear bmm cdist chain_matmul conv1d conv2d conv3d conv_transpose1d conv_transpose2d "
    "conv_transpose3d convolution dot einsum gru inner kron linalg_multi_dot linear lstm matmul mm mv native_multi_head_attention "
    "outer rnn_relu rnn_tanh scaled_dot_product_attention tensordot vdot _convolution _grouped_mm".split()
)
_STATISTICS = (
    torch.ops.aten.batch_norm.default,
    torch.ops.aten.instance_norm.default,
)  # they write without declaring it
INSTEAD = (
    "compute with the tensor itself (torch.where, a mask), or use torch.compile(model, backend='sol'), which runs such a line in "
    "Python"
)
_DEPLOYED = f"which a deployed network cannot; {INSTEAD.partition(', or')[0]}"
_FRACTION = "and it is not a whole number, so nearly every call would have another value and would be compiled again"


class _Place(int):
    """An operand of a step: the value with this number."""


@dataclass
class Source:
    """The origin of a value that a step reads: a leaf of the call, a tensor of the model, a constant of the trace, or the
    result of a host function."""

    place: int
    kind: str
    which: Any
    form: tuple[torch.dtype, torch.Size] | None = None  # of a leaf


@dataclass
class Read:
    """One value that forward reads: the operators that compute it, apart from those of earlier reads."""

    function: Callable[..., Any]
    operands: tuple[_Place, ...]
    sources: list[Source]
    steps: list[tuple[int, Any, Any, Any]]  # number of the result, operator, arguments
    alone: bool  # whether some steps write memory, and so run on copies
    where: str  # the line of the user's model
    kind: str  # "computed", "drawn" or "checked"
    form: Hashable  # what is computed, for comparison with reads of other programs
    text: str = ""  # the value during the trace

    def compute(self, env: dict[int, Any], fetch: Fetch) -> Any:
        """Computes the value. `env` has the values of earlier steps."""
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
    """The reads of one trace, in order: a later read may depend on an earlier one."""

    rows: list[Read] = field(default_factory=list)
    checks: list[tuple[int, list[Node]]] = field(default_factory=list)  # rows of kind "checked", and what they look at
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)
    hosted: Hosted = field(default_factory=Hosted)

    @property
    def values(self) -> tuple[str, ...]:
        """The values as part of a program's key."""
        return tuple(row.text for row in self.rows)

    def hold(self, leaves: Sequence[Any], owned: Mapping[str, Any], facts: Facts) -> bool:
        """Whether a call with these arguments reads the same values, as far as is known."""
        fetch = self.fetcher(leaves, owned, facts)
        env: dict[int, Any] = {}
        try:
            with torch.no_grad():
                return all(self._same(i, env, fetch, facts) for i in range(len(self.rows)))
        except Exception:  # tracing the model will raise this call's real error
            return False

    def fetcher(self, leaves: Sequence[Any], owned: Mapping[str, Any], facts: Facts) -> Fetch:
        """A function that finds what steps read in a call with these arguments. It raises Differs."""

        def fetch(s: Source) -> torch.Tensor:
            if s.kind == "host":
                return self.hosted.input(s.which, fetch, facts)
            t: torch.Tensor = leaves[s.which] if s.kind == "leaf" else self._tensor(s, owned)
            if s.form is not None and (not isinstance(t, torch.Tensor) or (t.dtype, t.shape) != s.form):
                raise Differs
            return t

        return fetch

    def _same(self, i: int, env: dict[int, Any], fetch: Fetch, facts: Facts) -> bool:
        row = self.rows[i]
        if row.kind == "computed":
            return repr(row.compute(env, fetch)) == row.text
        known = facts.find(i, row.form)
        if known is None and row.kind == "checked":
            return True
        if known is None:
            known = (row.compute(dict(env), fetch),)
            facts.learn(i, row.form, *known)
        return repr(known[0]) == row.text

    def _tensor(self, s: Source, owned: Mapping[str, Any]) -> torch.Tensor:
        found: torch.Tensor = self.constants[s.which] if s.kind == "constant" else owned[s.which].tensor
        return found

    def differs(self, other: Reads) -> int:
        """The number of the first read with a different value."""
        pairs = zip(self.values, other.values, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self.rows), len(other.rows)) - 1)


@dataclass
class Given:
    """The data for computing values during a trace: the leaves of a call, and the model's tensors by name."""

    leaves: Sequence[Any]
    owned: dict[str, Any]
    absent: frozenset[int] = frozenset()  # leaves without data: sol.input
    fixed: frozenset[int] = frozenset()  # leaves that are parameters
    facts: Facts = field(default_factory=Facts)
    traced: Any = None  # a trace with symbols, for these sizes
    varying: Any = None  # a trace with sizes that vary
    found: bool = False  # the network may set sizes that depend on data


class Values:
    """Collects the reads of one trace. If `given` is None, only constants are known."""

    def __init__(self, given: Given | None, name: str, constants: Mapping[str, torch.Tensor]) -> None:
        self.given = given
        self.name = name  # of the model
        self.made = Reads(constants=constants)
        self.used: set[Node] = (
            set()
        )  # nodes that lead to a value; they are not part of the network unless it reads them, too
        self.unknown: set[Node] = set()  # nodes that stand for something else, with unknown values
        self._places: dict[Node, _Place] = {}
        self._known: set[Node] = set()  # nodes that earlier reads compute before each call
        self._here: set[Node] = set()  # nodes computed in this trace
        self._env: dict[int, Any] = {}
        self._open: list[tuple[int, list[Node], list[Node]]] = []  # drawn and checked rows: operands, random operators
        self._before: dict[Hashable, Any] = {}  # values of these rows, by what was read
        self.host_input: Callable[[int], torch.Tensor] | None = None  # the data of a host function's result

    def read(self, function: Callable[..., Any], nodes: Sequence[Node], sources: Mapping[Node, Any], where: str) -> Any:
        """Applies a function to the data of tensors. `sources`: what the graph's placeholders stand for."""
        needed, alone = _needed(nodes)
        for node in needed:
            if why := self._why_not(node, sources):
                raise self._rejected(why, where)
        again = _identity(function), tuple(nodes)
        if again in self._before and not alone:
            return self._before[again]
        kind = self._kind(needed, sources)
        form = _form(function, nodes, needed, sources) if kind != "computed" else None
        new = [n for n in needed if alone or n not in self._known]
        row = self._row(function, nodes, new, sources, alone, where, kind, form)
        self.used.update(needed)
        facts = self.given.facts if self.given else Facts()
        known = facts.find(len(self.made.rows), form) if kind != "computed" else None
        value = known[0] if known is not None else self._computed(row, nodes, needed, sources)
        row.text = repr(value)
        if len(row.text) > MOST:
            raise _core.UnsupportedError(
                f"{self.name}: forward reads {sum(int(n.meta['val'].numel()) for n in nodes)} numbers of its arguments"
                f"{f' ({where})' if where else ''}, too many to compare in each call; {INSTEAD}"
            )
        if kind == "computed":
            if not _is_whole(value) and (own := [n for n in needed if self._is_weight(n, sources)]):
                raise self._rejected(f"the model's '{self._name(own[0], sources)}', {_FRACTION}; {INSTEAD}", where)
            if not alone:
                self._known.update(new)
        elif not _is_whole(value):
            raise self._rejected(f"{self._subject(needed, sources)}, {_FRACTION}; {INSTEAD}", where)
        else:
            if kind == "drawn":
                facts.learn(len(self.made.rows), form, value)
            self._open.append(
                (len(self.made.rows), list(map(self._copied, nodes)), [n for n in needed if _is_random(n)])
            )
            self._before[again] = value
        if kind != "computed" or any(n in sources and sources[n].origin[1] not in self.made.constants for n in needed):
            self.made.rows.append(row)
        return value

    def operands(self, nodes: Sequence[Node], sources: Mapping[Node, Any], where: str, name: str) -> Read:
        """What computes the tensors that host function `name` takes."""
        needed, _ = _needed(nodes)
        subject = next((w for n in needed if (w := self._why_not(n, sources))), None)
        if subject is None and (self._kind(needed, sources) == "checked" or any(map(_is_random, needed))):
            subject = f"{self._subject(needed, sources)}, which the network computes; give it arguments and buffers of the model"
        if subject is not None:
            raise _core.UnsupportedError(
                f"{self.name}: the host function {name}{f' ({where})' if where else ''} takes a tensor that follows from {subject}"
            )
        self.used.update(needed)
        form = _form(_all, nodes, needed, sources)
        return self._row(_all, nodes, needed, sources, True, where, "computed", form)

    def _copied(self, node: Node) -> Node:
        """A copy in the graph, which later writes do not change."""
        val = node.meta["val"]
        made = node.graph.call_function(torch.ops.aten.clone.default, (node,))
        strides = tuple(math.prod(val.shape[d + 1 :]) for d in range(val.ndim))
        made.meta.update(node.meta, val=fake.fresh(val.fake_mode, (tuple(val.shape), strides, val.dtype, val.device)))
        self.used.add(made)
        return made

    def _rejected(self, why: str, where: str) -> Exception:
        return _core.UnsupportedError(
            f"{self.name}: control flow or a shape that depends on data{f' ({where})' if where else ''}: forward reads a "
            f"value of {why}"
        )

    def _row(
        self,
        function: Callable[..., Any],
        nodes: Sequence[Node],
        new: Sequence[Node],
        sources: Mapping[Node, Any],
        alone: bool,
        *rest: Any,
    ) -> Read:
        steps: list[tuple[int, Any, Any, Any]] = [
            (self._place(n), n.target, self._written(n.args), self._written(n.kwargs)) for n in new if n not in sources
        ]
        found = [self._source(n, sources[n]) for n in new if n in sources]
        return Read(function, tuple(map(self._place, nodes)), found, steps, alone, *rest)

    def _computed(self, row: Read, nodes: Sequence[Node], needed: Sequence[Node], sources: Mapping[Node, Any]) -> Any:
        """The value in this trace. PyTorch's generator goes on only where a call draws, too."""
        if any(isinstance(a, SYMBOLIC) for n in needed for a in pytree.tree_leaves((n.args, n.kwargs))):
            raise Unusual("forward reads values that follow from sizes")
        here = [n for n in needed if row.alone or n not in self._here]
        own = self._row(row.function, nodes, here, sources, row.alone, row.where, row.kind, row.form)
        with _disable_current_modes(), torch.no_grad(), torch.random.fork_rng([], enabled=row.kind == "checked"):
            value = own.compute(self._env, self.fetch)
        if not row.alone:
            self._here.update(here)
        return value

    def finish(self, graph: torch.fx.Graph) -> None:
        """Decides which values are checked, and takes out of the graph what was there for the other reads alone."""
        rows, writes = self.made.rows, list(_writes(graph))
        draws = Counter(n for i, _, random in self._open for n in random)
        while True:
            looked = [n for i, nodes, _ in self._open if rows[i].kind == "checked" for n in nodes]
            live = _closure([graph.output_node(), *writes, *looked])
            late = [
                i
                for i, _, random in self._open
                if rows[i].kind == "drawn" and any(n in live or draws[n] > 1 for n in random)
            ]
            if not late:
                break
            for i in late:
                rows[i].kind = "checked"
        self.made.checks = [(i, nodes) for i, nodes, _ in self._open if rows[i].kind == "checked"]
        for node in reversed(graph.nodes) if self.used else ():
            if node in self.used and node not in live and not node.users and node.op == "call_function":
                graph.erase_node(node)
        self._env.clear()
        self.given = (
            None  # a trace is a cycle of objects, which should not keep the call's tensors until they are collected
        )

    def _kind(self, needed: Sequence[Node], sources: Mapping[Node, Any]) -> str:
        weights = any(self._is_weight(n, sources) for n in needed)
        given = any(n in sources and sources[n].origin[0] == "leaf" and not self._is_weight(n, sources) for n in needed)
        if any(map(_is_product, needed)) or (weights and given):
            return "checked"
        drawn = any(_is_random(n) or (n in sources and sources[n].origin[0] == "host") for n in needed)
        return "drawn" if drawn else "computed"

    def _is_weight(self, node: Node, sources: Mapping[Node, Any]) -> bool:
        """Is it a parameter, which every step of a training changes?"""
        if node not in sources:
            return False
        kind, which = sources[node].origin
        if kind != "param":
            return kind == "leaf" and self.given is not None and which in self.given.fixed
        return which not in self.made.constants and sources[node].kind == InputKind.PARAMETER

    def _subject(self, needed: Sequence[Node], sources: Mapping[Node, Any]) -> str:
        """What a value follows from, in words."""
        hosted = self.made.hosted
        for node in needed:
            if self._is_weight(node, sources):
                return f"the model's '{self._name(node, sources)}'"
            if _is_random(node):
                return f"random numbers ({_target(node)})"
            if _is_product(node):
                return f"a product ({_target(node)})"
            if node in sources and sources[node].origin[0] == "host":
                return f"what the host function {hosted.names(hosted.inputs[sources[node].origin[1]][0])} returned"
        return "its arguments"

    def _name(self, node: Node, sources: Mapping[Node, Any]) -> str:
        kind, which = sources[node].origin
        return str(sources[node].node.name if kind == "leaf" else which)

    def _why_not(self, node: Node, sources: Mapping[Node, Any]) -> str | None:
        """Why a program cannot be for a value, and what to do. None: it can."""
        if node in sources:
            return self._why_not_source(sources[node])
        if node in self.unknown:
            return f"a gradient; {INSTEAD}"
        if self.given is None and _is_random(node):
            return f"random numbers ({_target(node)}), {_DEPLOYED}"
        if node.target is not operator.getitem and not isinstance(node.target, torch._ops.OpOverload):
            return f"{_target(node)}; {INSTEAD}"
        return None

    def _why_not_source(self, source: Any) -> str | None:
        kind, which = source.origin
        if kind == "host":
            return None
        if kind != "leaf":
            known = which in self.made.constants or self.given is not None
            return None if known else f"the model's '{which}', {_DEPLOYED}"
        if self.given is None:
            return f"argument {source.node.name}, {_DEPLOYED}"
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
        if kind == "host":
            return Source(self._place(node), kind, which)
        return Source(self._place(node), "constant" if which in self.made.constants else "param", which)

    def fetch(self, s: Source) -> torch.Tensor:
        """What a step reads in this trace."""
        if s.kind == "host":
            assert self.host_input is not None
            return self.host_input(s.which)
        if s.kind != "leaf":
            return self.made._tensor(s, self.given.owned if self.given else {}).detach()
        assert self.given is not None
        found: torch.Tensor = self.given.leaves[s.which]
        return found.detach()

    def _place(self, node: Node) -> _Place:
        return self._places.setdefault(node, _Place(len(self._places)))

    def _written(self, arg: Any) -> Any:
        """Operands with numbers of values instead of nodes."""
        if isinstance(arg, Node):
            return self._place(arg)
        if isinstance(arg, tuple | list):
            made = [self._written(a) for a in arg]  # the graph's lists have a class of their own
            return tuple(made) if isinstance(arg, tuple) else made
        return {k: self._written(v) for k, v in arg.items()} if isinstance(arg, dict) else arg


def _all(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tensors


def _is_whole(value: Any) -> bool:
    """Are these whole numbers, which may come again?"""
    return all(map(_is_whole, value)) if isinstance(value, tuple | list) else isinstance(value, int)


def _target(node: Node) -> str:
    return str(getattr(getattr(node.target, "overloadpacket", node.target), "__name__", node.target))


def _is_random(node: Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _is_product(node: Node) -> bool:
    return _target(node).rstrip("_") in _PRODUCTS


def _identity(function: Callable[..., Any]) -> Hashable:
    """A function that reads; of a partial one what it is made of."""
    if isinstance(function, functools.partial):
        return function.func, repr(function.args), repr(function.keywords)
    return function


def _form(
    function: Callable[..., Any], nodes: Sequence[Node], needed: Sequence[Node], sources: Mapping[Node, Any]
) -> Hashable:
    """What a read computes: the same in programs that were traced apart from each other."""
    numbers = {n: i for i, n in enumerate(needed)}

    def form(arg: Any) -> Any:
        if isinstance(arg, Node):
            return f"%{numbers.get(arg)}"
        return [form(a) for a in arg] if isinstance(arg, tuple | list) else arg

    rows = [
        repr(sources[n].origin)
        if n in sources
        else f"{n.target} {form(n.args)} {[(k, form(v)) for k, v in n.kwargs.items()]}"
        for n in needed
    ]
    return _identity(function), tuple(numbers[n] for n in nodes), tuple(rows)


def _closure(nodes: Iterable[Node]) -> set[Node]:
    """These, and all that leads to them."""
    found: set[Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def shortened(text: str) -> str:
    """A value, shortened for a message."""
    return text if len(text) <= 60 else f"{text[:57]}..."


def _needed(nodes: Sequence[Node]) -> tuple[list[Node], bool]:
    """The nodes that these depend on, in order, including those that write memory which they read; and whether there
    are such writes."""
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
    """The operators that write in place."""
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
    """The pieces of memory of a node's tensors, or, for an operator that writes, of the tensors that it writes."""
    found = set()
    for n in _written(node) or [node]:
        for many in n if isinstance(n, tuple | list) else [n]:
            value = many.meta.get("val") if isinstance(many, Node) else None
            for t in value if isinstance(value, tuple | list) else [value]:
                if isinstance(t, torch.Tensor):
                    found.add(t.untyped_storage()._cdata)
    return found


__all__ = ["Given", "Reads", "Values", "shortened"]
