"""A model as a graph of operators, from a trace of SOL's or from torch.export."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from .sizes import Sizes
from .values import Reads

Node = torch.fx.Node


@dataclass
class Source:
    """What a placeholder stands for: the caller's leaf with this number, the model's tensor with this name, or a tensor that
    a host function makes."""

    node: Node
    origin: tuple[str, Any]  # ("leaf", number), ("param", name) or ("host", number)
    kind: InputKind


@dataclass
class Traced:
    """A model as a graph of operators."""

    graph: torch.fx.Graph
    module: torch.nn.Module  # owns the graphs inside of the graph
    inputs: list[Source]
    outputs: list[Any]  # nodes, and values that are returned unchanged
    constants: dict[str, torch.Tensor]
    spec: pytree.TreeSpec  # of the model's result
    problems: list[str]
    unusual: Node | None = None  # of a graph that was run: the node where this kind of tracing gave up
    reads: Reads = field(default_factory=Reads)  # values that forward read
    sizes: Sizes | None = None  # of a trace with symbols, for one call
    vary: dict[Any, Any] = field(default_factory=dict)  # by symbol: a number, or the arguments of Graph.dim
    found: list[tuple[Any, Any]] = field(default_factory=list)  # symbols of sizes that the network sets, and their most
    effects: list[tuple[str, str, Any]] = field(
        default_factory=list
    )  # attributes to set: path of the module, name, value

    @classmethod
    def of(cls, program: ExportedProgram, unusual: Node | None) -> Traced:
        """The result of torch.export."""
        specs = {s.arg.name: s for s in program.graph_signature.input_specs if s.target is not None}
        inputs, leaf = [], 0
        for node in program.graph.find_nodes(op="placeholder"):
            spec = specs.get(node.name)
            if spec is None or spec.kind == InputKind.USER_INPUT:
                inputs.append(Source(node, ("leaf", leaf), InputKind.USER_INPUT))
                leaf += 1
            else:
                inputs.append(Source(node, ("param", spec.target), spec.kind))
        values = program.graph.output_node().args[0]
        outputs = program.graph_signature.output_specs
        problems = [f"output {s.arg}: {s.kind.name.lower()}" for s in outputs if s.kind != OutputKind.USER_OUTPUT]
        returned = [v for s, v in zip(outputs, values, strict=True) if s.kind == OutputKind.USER_OUTPUT]
        out_spec = program.call_spec.out_spec
        constants = dict(program.constants)
        return cls(program.graph, program.graph_module, inputs, returned, constants, out_spec, problems, unusual)
