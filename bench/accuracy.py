#!/usr/bin/env python3
"""Measures the accuracy of a training step: errors of results and gradients against float64, compared with those of
PyTorch in float32.

With --table there is a row for each result, input and parameter: the median error of SOL, that of PyTorch, and the median
and maximum of their ratio, over several inputs. The last line is the median over all inputs and parameters. An input for
which most gradients are ten times less accurate than PyTorch's meets a kink: rounding carries an activation to the other
side of a ReLU, or another element is the largest of a max-pool. PyTorch meets kinks, too; the last line then also has the
median over the other inputs. --kinks counts the activations that lie on another side of a kink than in float64.

A network is a name of test/python/networks.py, or "hf/NAME" for one of test/python/families.py. "hf/NAME/default" is a
model of pictures with the default configuration of its family. With several precisions, PyTorch runs once for all.

Usage: bench/accuracy.py NETWORK.. [--precision default high] [--batch 2] [--size 64] [--inputs 8] [--table] [--kinks]
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "test" / "python"))

import families
import sol
from networks import enliven, network, network_inputs
from torch.overrides import TorchFunctionMode
from torch_help import error, tensors, to_double

KINK = 10  # an input meets a kink if the median ratio of its errors is above this, or below its inverse
LIBRARY = torch.library.Library("torchvision", "DEF")

Gradients = dict[str, torch.Tensor]
Given = tuple[tuple[Any, ...], dict[str, Any]]  # what a model is called with
# For each function with kinks: a number for each element that differs between the two sides of a kink.
SIDES: dict[str, Callable[..., torch.Tensor]] = {
    "relu": lambda x, *_, **__: x > 0,
    "leaky_relu": lambda x, *_, **__: x > 0,
    "relu6": lambda x, *_, **__: (x > 0).int() + (x > 6),
    "hardtanh": lambda x, min_val=-1.0, max_val=1.0, *_, **__: (x > min_val).int() + (x > max_val),
    "hardswish": lambda x, *_, **__: (x > -3).int() + (x > 3),
    "hardsigmoid": lambda x, *_, **__: (x > -3).int() + (x > 3),
    "max_pool2d": lambda *args, **kwargs: F.max_pool2d(*args, **{**kwargs, "return_indices": True})[1],
}


class Watched(nn.Module):
    """A model that also returns what its functions with kinks are called with."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] | None = None  # collected if it is a list
        self.inside = False  # of a watched function, which PyTorch calls again by its name under InDouble

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, list[torch.Tensor]]:
        seen: list[torch.Tensor] = []
        with contextlib.ExitStack() as stack:
            for name in SIDES:
                stack.enter_context(mock.patch.object(F, name, self.watch(name, getattr(F, name), seen)))
            return self.model(*args, **kwargs), seen

    def watch(self, name: str, function: Callable[..., torch.Tensor], seen: list[torch.Tensor]) -> Any:
        def call(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            if self.inside:
                return function(x, *args, **kwargs)
            if self.calls is not None:
                self.calls.append((name, args, kwargs))
            seen.append(x.detach().clone())
            self.inside = True
            try:
                return function(x, *args, **kwargs)
            finally:
                self.inside = False

        return call

    def other_sides(self, got: list[torch.Tensor], right: list[torch.Tensor]) -> int:
        """How many elements are on another side than they should be."""
        total = 0
        for (name, args, kwargs), g, r in zip(self.calls or (), got, right, strict=True):
            total += int((SIDES[name](g, *args, **kwargs) != SIDES[name](r, *args, **kwargs)).sum())
        return total


class InDouble(TorchFunctionMode):
    """Calls a model in float64 throughout: where it asks for float32 (a norm's statistics, a softmax), it gets float64."""

    def __enter__(self) -> Any:
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *args: Any) -> None:
        super().__exit__(*args)
        torch.set_default_dtype(torch.float32)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = torch.utils._pytree.tree_map(
            lambda v: torch.float64 if v is torch.float32 else v, (args, kwargs or {})
        )
        return (torch.Tensor.double if function is torch.Tensor.float else function)(*args, **kwargs)


def load_torchvision() -> ModuleType:
    """torchvision's wheel imports with a CPU build of torch if these two operators are defined."""
    for name in ("nms", "qnms"):
        LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return importlib.import_module("torchvision")


def without_chance(model: nn.Module) -> nn.Module:
    """Train mode without dropout, because SOL draws other random numbers than PyTorch."""
    for m in model.train().modules():
        for name in ("p", "dropout", "attention_dropout", "drop_prob", "layerdrop"):
            if isinstance(getattr(m, name, None), float) and type(m).__name__ != "LPPool2d":
                setattr(m, name, 0.0)
    return model


def made(name: str, package: ModuleType, options: argparse.Namespace) -> tuple[nn.Module, Callable[[], Given]]:
    """A network with random weights, and what makes its arguments."""
    where, _, rest = name.partition("/")
    if where != "hf":
        inputs = network_inputs(name, package, (options.size, options.size))
        return network(name, package)[0], lambda: (tuple(inputs(options.batch)), {})
    family, _, configuration = rest.partition("/")
    kind, _, arguments = families.FAMILIES[family]
    if not configuration:
        return families.make(family)[0], lambda: ((), arguments())
    import transformers

    torch.manual_seed(0)
    model = enliven(getattr(transformers, kind)(getattr(transformers, kind).config_class()))
    return model, lambda: ((), families.picture(options.size)())


def step(model: nn.Module, given: Given, seed: int) -> tuple[Gradients, list[torch.Tensor]]:
    """Results and gradients of a loss that weighs the results at random, and the inputs of watched functions."""
    args, kwargs = torch.utils._pytree.tree_map(trainable, given)
    with InDouble() if next(model.parameters()).dtype == torch.float64 else contextlib.nullcontext():
        results, seen = model(*args, **kwargs) if isinstance(model, Watched) else (model(*args, **kwargs), [])
    results = [t for t in tensors(results) if t.requires_grad]
    generator = torch.Generator().manual_seed(seed)
    model.zero_grad()
    torch.autograd.backward(results, [torch.randn(r.shape, generator=generator).to(r.dtype) for r in results])
    found = {f"result {i}": r.detach() for i, r in enumerate(results)}
    inputs = tensors((args, kwargs))
    found |= {f"input {i}": a.grad for i, a in enumerate(inputs) if a.grad is not None}
    return found | {n: p.grad for n, p in model.named_parameters() if p.grad is not None}, seen


def trainable(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.is_floating_point())
    return value


@dataclass
class Found:
    """A network with one precision. Rows: for each input, of each tensor, SOL's error and PyTorch's. Sides: activations
    on another side of a kink, SOL's and PyTorch's."""

    optimized: nn.Module
    rows: list[dict[str, tuple[float, float]]] = field(default_factory=list)
    sides: list[int] = field(default_factory=lambda: [0, 0])


def optimized(model: nn.Module, given: Given, precision: str) -> nn.Module:
    sol.config["precision"] = precision
    return sol.optimize(copy.deepcopy(model), *given[0], **given[1])


def measure(name: str, package: ModuleType, options: argparse.Namespace) -> None:
    model, arguments = made(name, package, options)
    model = without_chance(model)
    if options.kinks:
        model = Watched(model)
    given = arguments()
    found = {p: Found(optimized(model, given, p)) for p in options.precision}
    for seed in range(options.inputs):
        torch.manual_seed(seed)
        given = arguments()
        double = families.plain(model).double()
        if isinstance(double, Watched):
            double.calls = []
        right, exact = step(double, to_double(given), seed)
        eager, theirs = step(copy.deepcopy(model), given, seed)
        largest = max(r.norm().item() for r in right.values())
        for precision, f in found.items():
            sol.config["precision"] = precision
            got, ours = step(f.optimized, given, seed)
            if isinstance(double, Watched):
                new = (double.other_sides(s, exact) for s in (ours, theirs))
                f.sides = [n + m for n, m in zip(f.sides, new, strict=True)]
            # gradients that are 0 are left out, such as that of a bias in front of a batch-norm
            f.rows.append(
                {n: (error(got[n], r), error(eager[n], r)) for n, r in right.items() if r.norm() > 1e-10 * largest}
            )
    for precision, f in found.items():
        report(f"{name}, {precision}", options, f)


def ratio(errors: tuple[float, float]) -> float:
    return max(errors[0], 1e-9) / max(errors[1], 1e-9)


def report(name: str, options: argparse.Namespace, found: Found) -> None:
    rows, sides = found.rows, found.sides
    for n in rows[0] if options.table else ():
        errors = [r[n] for r in rows if n in r]
        ours, theirs = (statistics.median(e) for e in zip(*errors, strict=True))
        ratios = [ratio(e) for e in errors]
        print(f"{ours:9.2e} {theirs:9.2e} {statistics.median(ratios):7.2f} {max(ratios):9.2f}  {n}")
    gradients = [[ratio(e) for n, e in r.items() if not n.startswith("result")] for r in rows]
    results = statistics.median(ratio(e) for r in rows for n, e in r.items() if n.startswith("result"))
    middles = [statistics.median(g) for g in gradients]
    ours, theirs = sum(m > KINK for m in middles), sum(m < 1 / KINK for m in middles)
    smooth = [x for g, m in zip(gradients, middles, strict=True) for x in g if 1 / KINK <= m <= KINK]
    text = f"{name}: gradients {statistics.median(x for g in gradients for x in g):.2f}, results {results:.2f} times PyTorch's error"
    if len(smooth) < sum(map(len, gradients)):
        text += f"; of {len(rows)} inputs SOL meets a kink for {ours}, PyTorch for {theirs}"
        text += f", others {statistics.median(smooth):.2f}" if smooth else ""
    if options.kinks:
        text += f"; activations on another side of a kink: SOL {sides[0]}, PyTorch {sides[1]}"
    print(text, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+", metavar="NETWORK")
    parser.add_argument("--precision", nargs="+", default=["default"], choices=("fast", "default", "high"))
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--inputs", type=int, default=8)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--kinks", action="store_true")
    given = parser.parse_args()
    sol.config["autotune"] = "off"
    torchvision = load_torchvision()
    for each in given.networks:
        measure(each, torchvision, given)
