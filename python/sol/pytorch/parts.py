"""Runs a graph of Dynamo that SOL cannot translate as a whole: some parts with SOL, and the rest in PyTorch.

An error of the translation names the nodes that SOL cannot translate. The graph is cut before and after them. The parts run
in program order, so that writes to memory, random numbers and changes of modes keep their order. Autograd works across
the cuts. A part is a graph again, and may be cut again at its first run.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from sol import _core, log

from . import vary
from .builder import SOL_NAME
from .dynamo_sizes import open_sizes
from .steps import enters, leaves, transforms

Node = torch.fx.Node
LEAST = 4  # operators; smaller parts do not pay for a call and stay in PyTorch


class Parts:
    """A graph that runs as one program, or in parts once it was rejected as a whole. With `whole`, the rejection is an
    error."""

    def __init__(self, graph: torch.fx.GraphModule, make_state: Callable[[vary.Free], Any], whole: bool) -> None:
        self.graph, self.taken, free = open_sizes(graph)  # the arguments that are not taken are sizes of the others
        self.make_state = make_state
        self.state = make_state(free)
        self.whole = whole
        self.parts: list[_Part] | None = None
        self.turns_on = any(
            _sets_mode(n) is True for n in self.graph.graph.nodes
        )  # gradients are turned on inside the graph

    def __call__(self, args: tuple[Any, ...]) -> Any:
        """The graph's result."""
        args = tuple([args[i] for i in self.taken])
        state = (
            self.state
        )  # read first: another thread may cut the graph, and sets the parts before it clears the state
        if self.parts is None and self.turns_on and not torch.is_grad_enabled():
            self._cut(set())
        if self.parts is None:
            try:
                return state.call(self.graph, args, {})
            except _core.Error as e:
                steps = getattr(e, "steps", None)
                if self.whole or (steps is None and not isinstance(e, _core.UnsupportedError)):
                    raise
                self._cut(steps, e)
        return self._run(args)

    def _cut(self, rejected: set[Node] | None, why: Exception | None = None) -> None:
        nodes = [n for n in self.graph.graph.nodes if n.op not in ("placeholder", "get_attr", "output")]
        runs = [_Run(False, nodes)] if rejected is None else _runs(nodes, rejected | set(filter(transforms, nodes)))
        if why is not None:
            _say("; ".join(_lines(str(why))), any(r.compiled for r in runs))
        parts = list(self._parts(runs))
        if self.parts is None:
            self.parts = parts
        self.state = None

    def _parts(self, runs: Sequence[_Run]) -> Iterator[_Part]:
        last: dict[Node, int] = {}  # by value: the last part that reads it
        for i, run in enumerate(runs):
            last |= {a: i for n in run.nodes for a in n.all_input_nodes}
        last |= dict.fromkeys(self.graph.graph.output_node().all_input_nodes, len(runs))
        for i, run in enumerate(runs):
            inside = set(run.nodes)
            reads = list(dict.fromkeys(a for n in run.nodes for a in n.all_input_nodes if a not in inside))
            reads = [a for a in reads if a.op != "get_attr"]
            makes = [n for n in run.nodes if last.get(n, i) > i]
            body = self._body(run.nodes, reads, makes)
            call = Parts(body, self.make_state, False) if run.compiled else lambda args, body=body: body(*args)
            yield _Part(call, reads, makes, [a for a in (*reads, *makes) if last.get(a) == i], run.enabled)

    def _body(self, nodes: Sequence[Node], reads: Sequence[Node], makes: Sequence[Node]) -> torch.fx.GraphModule:
        """A graph of some of the nodes."""
        graph, copies = torch.fx.Graph(), {}
        for read in reads:
            copies[read] = graph.placeholder(read.name)
            copies[read].meta = dict(read.meta)

        def copied(node: Node) -> Node:
            if node not in copies and node.op == "get_attr":
                copies[node] = graph.node_copy(node)
            return copies[node]

        for node in nodes:
            for a in node.all_input_nodes:
                copied(a)
            copies[node] = graph.node_copy(node, copied)
        graph.output(tuple(copies[n] for n in makes))
        return torch.fx.GraphModule(self.graph, graph)

    def _run(self, args: tuple[Any, ...]) -> Any:
        given = self.graph.graph.find_nodes(op="placeholder")
        values = dict(zip(given, args, strict=True))
        values |= {n: _attribute(self.graph, str(n.target)) for n in self.graph.graph.find_nodes(op="get_attr")}
        for part in self.parts or ():
            with torch.set_grad_enabled(part.enabled):
                made = part.call(tuple(values[n] for n in part.reads))
            values.update(zip(part.makes, made, strict=True))
            for n in part.done:
                values.pop(n, None)
        return torch.fx.node.map_arg(self.graph.graph.output_node().args[0], lambda n: values[n])


@dataclass
class _Part:
    """Some of a graph's nodes, with what they read and make, what no later node reads, and whether gradients are on."""

    call: Callable[[tuple[Any, ...]], Any]
    reads: list[Node]
    makes: list[Node]
    done: list[Node]
    enabled: bool


@dataclass
class _Run:
    """Consecutive nodes, which SOL compiles or not. `enabled`: whether gradients are on before the first."""

    compiled: bool
    nodes: list[Node] = field(default_factory=list)
    enabled: bool = field(default_factory=torch.is_grad_enabled)


def _runs(nodes: Sequence[Node], rejected: set[Node]) -> list[_Run]:
    """Divides the nodes into runs. Rejected nodes, and nodes that share written memory with them, run in PyTorch."""
    places = {n: i for i, n in enumerate(nodes)}
    out = {places[n] for n in rejected if n in places}
    while True:
        for first, last in _regions(nodes):
            if not out.isdisjoint(range(first, last + 1)):
                out |= set(range(first, last + 1))
        runs = list(_split(nodes, out))
        more = {places[n] for r in runs if r.compiled and sum(map(_computes, r.nodes)) < LEAST for n in r.nodes}
        more = more or {places[n] for n in (*_torn(runs), *_foreign(runs))}
        if not more:
            return runs
        out |= more


def _split(nodes: Sequence[Node], out: set[int]) -> Iterator[_Run]:
    """Runs of nodes. A run without gradients ends where gradients are turned on, because a program has only one mode."""
    run, enabled = _Run(0 not in out), torch.is_grad_enabled()
    for i, node in enumerate(nodes):
        mode = _sets_mode(node)
        begins = run.compiled and mode is True and not run.enabled
        enabled = enabled if mode is None else mode
        if run.nodes and (begins or run.compiled != (i not in out)):
            yield run
            run = _Run(i not in out, enabled=enabled)
        run.nodes.append(node)
        if mode is not None and len(run.nodes) == 1:
            run.enabled = enabled
    if run.nodes:
        yield run


def _torn(runs: Sequence[_Run]) -> Iterator[Node]:
    """Nodes of compiled runs that touch memory which some node writes and which other runs touch, too."""
    touching: dict[int, set[int]] = {}
    for i, run in enumerate(runs):
        for node in run.nodes:
            for key in _written(node):
                touching.setdefault(key, set()).add(i)
    torn = {key for key, found in touching.items() if len(found) > 1}
    for run in runs:
        if run.compiled:
            yield from (n for n in run.nodes if not torn.isdisjoint(_written(n)))


def _foreign(runs: Sequence[_Run]) -> Iterator[Node]:
    """Nodes of compiled runs that exchange a value with another run that a network can neither take nor return."""
    of = {n: run for run in runs for n in run.nodes}
    for run in runs:
        for node in run.nodes:
            for a in node.all_input_nodes:
                if of.get(a) is not run and _is_foreign(a.meta.get("example_value")):
                    yield from (n for n in (a, node) if n in of and of[n].compiled)


def _is_foreign(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_is_foreign, value))
    return isinstance(value, torch.Tensor) and (
        value.layout != torch.strided or value.is_nested or value.is_quantized or value.dtype not in SOL_NAME
    )


def _written(node: Node) -> set[int]:
    """The pieces of memory that a node reads or writes, if some node of the graph writes them. The version counts of
    Dynamo's tensors without data tell."""
    found = set()
    for n in (node, *node.all_input_nodes):
        value = n.meta.get("example_value")
        for t in value if isinstance(value, tuple | list) else (value,):
            if (memory := _memory(t)) is not None and not t.is_inference() and t._version:
                found.add(memory)
    return found


def _regions(nodes: Sequence[Node]) -> Iterator[tuple[int, int]]:
    """The regions inside a mode or transformation: first and last node."""
    entered: list[int] = []
    for i, node in enumerate(nodes):
        if enters(node):
            entered.append(i)
        elif leaves(node) and entered:
            yield entered.pop(), i


def _sets_mode(node: Node) -> bool | None:
    """Whether a node turns gradients on (True) or off (False); None: neither."""
    return bool(node.args[0]) if node.target is torch._C._set_grad_enabled else None


def _computes(node: Node) -> bool:
    """Whether it is more than a view, a size, or an item of a tuple."""
    value = node.meta.get("example_value")
    if node.target is operator.getitem or value is None or not isinstance(value, torch.Tensor | tuple | list):
        return False
    shared = [_memory(a.meta.get("example_value")) for a in node.all_input_nodes]
    return (memory := _memory(value)) is None or memory not in shared


def _memory(value: Any) -> int | None:
    """The piece of memory in which a tensor lies; None: it has none of its own (sparse; inside of torch.func)."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    if torch._C._functorch.is_functorch_wrapped_tensor(value):
        return None
    memory: int = value.untyped_storage()._cdata
    return memory


def _attribute(module: torch.nn.Module, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), module)


def _lines(message: str) -> list[str]:
    """The reasons in a rejection."""
    first, *rest = message.split("\n")
    return [line.strip() for line in rest if line.startswith("  ")] or [first]


@functools.cache
def _say(why: str, partly: bool) -> None:
    """Logs what runs in PyTorch, once for all graphs."""
    what = "part of a graph runs in PyTorch, the rest with SOL" if partly else "a graph runs in PyTorch"
    log.warn(f"torch.compile: {what}: {why}")


__all__ = ["Parts"]
