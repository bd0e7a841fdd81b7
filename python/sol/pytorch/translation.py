"""A translated model: SOL's graph, and how the arguments and results of a call map to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from sol import _core

from .layout import Layout
from .sizes import Rounding


@dataclass
class Input:
    """A tensor among the caller's leaves that the network reads."""

    leaf: int  # its number; behind them come the results of host functions, tensors of the model, and then the seed
    layout: Layout
    handle: _core.Tensor


@dataclass
class Parameter:
    """A tensor of the model, with its name there, or a constant of the trace."""

    name: str
    constant: torch.Tensor | None
    layout: Layout
    handle: _core.Tensor
    leaf: tuple[int, torch.Tensor] | None = None  # number among the leaves: a parameter of torch.compile


@dataclass
class Replay:
    """A result that shares memory with an input (leaf), a parameter (name) or another result, and the view operators to
    apply."""

    base: tuple[str, Any]
    steps: list[tuple[Any, tuple[Any, ...], dict[str, Any]]]


@dataclass
class Result:
    """A leaf of the returned structure: a `value` (a number or None), an `output` of the network, or a `replay`."""

    kind: str
    value: Any = None


@dataclass
class Translation:
    """A translated network, and how a call's arguments and results map to it."""

    graph: _core.Graph
    inputs: list[Input] = field(default_factory=list)
    params: list[Parameter] = field(default_factory=list)
    outputs: list[tuple[Layout, torch.dtype]] = field(default_factory=list)
    tracked: list[bool] = field(default_factory=list)  # by output: whether PyTorch would set requires_grad
    origins: list[list[tuple[str, Any]]] = field(
        default_factory=list
    )  # for inference, by output: the arguments and tensors of the model that gradients would reach
    results: list[Result] = field(default_factory=list)
    writes: list[tuple[tuple[str, Any], int]] = field(
        default_factory=list
    )  # destination, and number of the network's output
    checks: list[tuple[int, list[int]]] = field(
        default_factory=list
    )  # number of a read, and the outputs it follows from
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)  # tensors of the model that are inputs behind the caller's leaves
    random: bool = False  # the last input, after the caller's leaves, is a seed
    leaves: dict[int, Layout] = field(
        default_factory=dict
    )  # of a trace with symbols: tensors among the caller's leaves
    roundings: list[Rounding] = field(default_factory=list)  # likewise: what must hold for the sizes of a call
