#!/usr/bin/env python3
"""Measures the accuracy of a training step: errors of results and gradients against float64, compared with those of
PyTorch in float32.

The table has a row for each result, input and parameter: the median error of SOL, that of PyTorch, and the median
and maximum of their ratio, over several inputs. An input for which most gradients are ten times less accurate than
PyTorch's meets a kink: rounding carries an activation to the other side of a ReLU. The last line is the median over
all inputs and parameters.

Usage: bench/accuracy.py NETWORK.. [--precision default] [--batch 2] [--size 64] [--inputs 8] [--table]
"""

from __future__ import annotations

import argparse
import copy
import importlib
import statistics
import sys
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "test" / "python"))

import sol
from networks import network, network_inputs
from torch_help import error, tensors, to_double

KINK = 10
LIBRARY = torch.library.Library("torchvision", "DEF")

Gradients = dict[str, torch.Tensor]


def load_torchvision() -> ModuleType:
    """torchvision's wheel imports with a CPU build of torch if these two operators are defined."""
    for name in ("nms", "qnms"):
        LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return importlib.import_module("torchvision")


def step(model: nn.Module, args: list[torch.Tensor], weights: list[torch.Tensor]) -> Gradients:
    """Results and gradients; `weights` weigh the results in the loss."""
    args = [a.clone().requires_grad_(a.is_floating_point()) for a in args]
    results = [t for t in tensors(model(*args)) if t.requires_grad]
    model.zero_grad()
    torch.autograd.backward(results, [w.to(r.dtype) for w, r in zip(weights, results, strict=True)])
    found = {f"result {i}": r.detach() for i, r in enumerate(results)}
    found |= {f"input {i}": a.grad for i, a in enumerate(args) if a.grad is not None}
    return found | {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def measure(name: str, package: ModuleType, options: argparse.Namespace) -> None:
    model = network(name, package)[0].train()
    inputs = network_inputs(name, package, (options.size, options.size))
    for m in model.modules():  # SOL has its own random numbers
        if isinstance(m, nn.Dropout | nn.MultiheadAttention):
            m.p = m.dropout = 0.0
        elif type(m).__name__ == "StochasticDepth":
            m.p = 0.0
    optimized = sol.optimize(copy.deepcopy(model), *inputs(options.batch))
    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}
    for seed in range(options.inputs):
        torch.manual_seed(seed)
        args = list(inputs(options.batch))
        with torch.no_grad():
            weights = [torch.randn(t.shape) for t in tensors(copy.deepcopy(model)(*args)) if t.is_floating_point()]
        right = step(copy.deepcopy(model).double(), to_double(args), weights)
        eager, got = step(copy.deepcopy(model), args, weights), step(optimized, args, weights)
        largest = max(r.norm().item() for r in right.values())
        for n, r in right.items():
            if (
                r.norm() > 1e-10 * largest
            ):  # a smaller one is 0 up to rounding, such as that of a bias ahead of a batch-norm
                ours.setdefault(n, []).append(error(got[n], r))
                theirs.setdefault(n, []).append(error(eager[n], r))
    report(name, options, ours, theirs)


def report(
    name: str, options: argparse.Namespace, ours: dict[str, list[float]], theirs: dict[str, list[float]]
) -> None:
    ratios = {n: [o / max(t, 1e-9) for o, t in zip(ours[n], theirs[n], strict=True)] for n in ours}
    for n, r in ratios.items() if options.table else ():
        print(
            f"{statistics.median(ours[n]):9.2e} {statistics.median(theirs[n]):9.2e} {statistics.median(r):7.2f} {max(r):9.2f}  {n}"
        )
    gradients = [r for n, r in ratios.items() if not n.startswith("result")]
    complete = [r for r in gradients if len(r) == options.inputs]
    kinks = sum(statistics.median(r[i] for r in complete) > KINK for i in range(options.inputs))
    median = statistics.median(x for r in gradients for x in r)
    results = statistics.median(x for n, r in ratios.items() if n.startswith("result") for x in r)
    print(
        f"{name}: gradients {median:.2f}, results {results:.2f} times PyTorch's error, kinks met by {kinks} of {options.inputs} inputs"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--precision", default="default", choices=("fast", "default", "high"))
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--inputs", type=int, default=8)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    sol.config["precision"], sol.config["autotune"] = given.precision, "off"
    torchvision = load_torchvision()
    for each in given.networks:
        measure(each, torchvision, given)
