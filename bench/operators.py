#!/usr/bin/env python3
"""Operators alone, at sizes that networks use, beside PyTorch eager: forward, and forward with backward. Untuned.

make bench-operators                              all of operator_rows.py
make bench-operators ARGS="--only topk gather"    those whose name or family has one of these words
make bench-operators ARGS="--below 0.8"           lists these at the end (0.8 is the default)
make bench-operators ARGS="--page docs/operators-speed.md"   writes that page

Calls of the two alternate, and the lower quartile of each counts. The ratio is eager's time to SOL's: above 1, SOL is faster.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from dynamic import geometric_mean, turns
from operator_rows import ROWS, Row

import bench

DIRECTIONS = ("forward", "backward")


@dataclass
class Result:
    """Seconds of one operator in one direction. `error`: why there are none."""

    row: Row
    direction: str
    sol: float = math.nan
    eager: float = math.nan
    error: str = ""

    @property
    def ratio(self) -> float:
        return self.eager / self.sol


def results_of(y: Any) -> list[torch.Tensor]:
    leaves = y if isinstance(y, tuple | list) else [y]
    flat = [t for leaf in leaves for t in (leaf if isinstance(leaf, tuple | list) else [leaf])]
    return [t for t in flat if torch.is_tensor(t) and t.requires_grad]


def caller(model: Callable[..., Any], arguments: list[torch.Tensor], direction: str) -> Callable[[], object]:
    """One call. Backward: `grad` of all real arguments and parameters, for a gradient of the results that was made before."""
    if direction == "forward":

        def run() -> object:
            with torch.no_grad():
                return model(*arguments)

        return run
    arguments = [a.clone().requires_grad_(a.is_floating_point()) for a in arguments]
    parameters = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    wanted = [t for t in (*arguments, *parameters) if t.requires_grad]
    gradients = [torch.ones_like(t) for t in results_of(model(*arguments))]

    def step() -> object:
        for t in wanted:
            t.grad = None
        return torch.autograd.backward(results_of(model(*arguments)), gradients)

    return step


def measured(row: Row, direction: str, least: float) -> Result:
    import sol

    torch.manual_seed(0)
    result = Result(row, direction)
    model = row.make().train(direction == "backward")
    arguments = [make() for make in row.arguments]
    try:
        fast = sol.optimize(model, *arguments)
        both = [caller(m, arguments, direction) for m in (fast, model)]
        both[0]()
    except sol.Error as e:
        result.error = str(e).splitlines()[0]
        return result
    result.sol, result.eager = turns(both, least)
    return result


def shown(r: Result) -> str:
    if r.error:
        return f"{r.row.name:26} {r.direction:9} {r.error}"
    return f"{r.row.name:26} {r.direction:9} SOL {r.sol * 1e3:9.3f} ms  eager {r.eager * 1e3:9.3f} ms  ratio {r.ratio:5.2f}"


def shapes(row: Row) -> str:
    return ", ".join("x".join(map(str, make().shape)) for make in row.arguments)


def page(results: list[Result], threads: int) -> str:
    """The table as Markdown: a line for an operator in one direction, the slowest beside eager first."""
    mean, least = geometric_mean(r.ratio for r in results), min(r.ratio for r in results)
    slow = sum(r.ratio < 0.8 for r in results)
    lines = [
        "# Speed of single operators",
        "",
        "Each operator alone, at a size that networks use, beside PyTorch eager: float32, untuned, forward, and forward with backward.",
        "This page is written by `make bench-operators ARGS=\"--page docs/operators-speed.md\"`. The ratio is eager's time to SOL's:",
        "above 1, SOL is faster. Calls of the two alternate, and the lower quartile of each counts; with one thread, times are",
        "processor times.",
        "",
        f"Machine: {bench.machine()}, {threads} thread{'s' if threads > 1 else ''}; PyTorch {torch.__version__}. Of {len(results)} rows,",
        f"{slow} are below 0.8; geometric mean {mean:.2f}, least {least:.2f}.",
        "",
        "| operator | arguments | direction | eager, ms | SOL, ms | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for r in sorted(results, key=lambda r: r.ratio):
        times = f"{r.eager * 1e3:.3f} | {r.sol * 1e3:.3f} | {r.ratio:.2f}"
        lines.append(f"| {r.row.name} | {shapes(r.row)} | {r.direction} | {times} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="of a name or family")
    parser.add_argument("--direction", choices=DIRECTIONS, help="one of them")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.2, help="of calls of each operator, at least")
    parser.add_argument("--below", type=float, default=0.8, help="lists operators with a smaller ratio at the end")
    parser.add_argument("--page", metavar="FILE", type=Path, help="writes the table of docs/operators-speed.md")
    o = parser.parse_args()
    rows = [r for r in ROWS.values() if not o.only or any(w in f"{r.family} {r.name}" for w in o.only)]
    if not rows:
        sys.exit(f"operators.py: no operator has one of the words {', '.join(o.only)} in its name")
    torch.set_num_threads(o.threads)
    os.environ.setdefault("SOL_AUTOTUNE", "off")
    os.environ.setdefault("SOL_LOG", "WARN")
    print(f"{bench.machine()}, {o.threads} threads, untuned")
    start = time.perf_counter()
    results = []
    for r in rows:
        for direction in DIRECTIONS:
            if o.direction in (None, direction) and (direction == "forward" or r.backward):
                results.append(measured(r, direction, o.seconds))
                print(shown(results[-1]), flush=True)
    timed = [r for r in results if not r.error]
    for family in dict.fromkeys(r.row.family for r in timed):
        mean = geometric_mean(r.ratio for r in timed if r.row.family == family)
        print(f"{family}: geometric mean {mean:.2f}")
    slow = sorted((r for r in timed if r.ratio < o.below), key=lambda r: r.ratio)
    print(f"{len(timed)} measured in {time.perf_counter() - start:.0f} s; {len(slow)} below {o.below}:")
    for r in slow:
        print(" ", shown(r))
    if o.page:
        o.page.write_text(page(timed, o.threads))


if __name__ == "__main__":
    main()
