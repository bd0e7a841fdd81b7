#!/usr/bin/env python3
"""Compares the time of each network with the limits of the machine, and writes a section of docs/roofline.md.

.venv/bin/python bench/roofline.py [NETWORK ...]      (those of bench.py; --out - prints the section)

The section of a machine replaces the one of the same name (--machine). All others stay.

`sol.profile` measures the median time of every kernel over many runs. peak.c measures the machine's multiply-add rate and
memory bandwidth before and after each network, because rented machines vary by a factor of two within seconds. Operations /
rate and bytes / bandwidth bound the time of a kernel from below. Operations are counted as for a direct computation, so
Winograd can exceed the limit. Bytes are counted once and as if they came from memory, so cached data can exceed it, too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python")]
SMALL_US = 20.0  # shorter steps are summed up: starting and ending them takes most of their time


@dataclass
class Step:
    """What a kernel computes, and its time."""

    label: str
    us: float
    flop: float
    bytes: float

    def least_us(self, peak: Peak) -> float:
        return max(self.flop / peak.flops, self.bytes / peak.rate) * 1e6

    def computes(self, peak: Peak) -> bool:
        return self.flop / peak.flops > self.bytes / peak.rate


@dataclass
class Peak:
    """Operations and bytes per second of a number of threads."""

    flops: float
    rate: float

    @staticmethod
    def program(folder: str) -> str:
        """Compiles peak.c into a folder."""
        options = ["-O3", "-march=native", "-ffp-contract=fast", "-pthread"]
        subprocess.run(["cc", *options, str(HERE / "peak.c"), "-o", f"{folder}/peak"], check=True)
        return f"{folder}/peak"

    @classmethod
    def measure(cls, program: str, threads: int) -> Peak:
        flops, rate = subprocess.run([program, str(threads)], check=True, capture_output=True, text=True).stdout.split()
        return cls(float(flops) * 1e9, float(rate) * 1e9)

    def or_better(self, other: Peak) -> Peak:
        return Peak(max(self.flops, other.flops), max(self.rate, other.rate))


def profile(name: str, runs: int, peak: Callable[[], Peak]) -> tuple[list[Step], Peak]:
    """The median time of every step, and the peak measured right before the runs."""
    import networks
    import sol
    import systems

    path = systems.exported(name, 1)
    given = [x.numpy() for x in networks.samples(name)]
    net = sol.optimize(str(path))
    net(*given)
    before = peak()
    return [Step(k.layers, k.us, k.flops, k.bytes) for k in sol.profile(net, *given, runs=runs).kernels], before


def row(name: str, steps: list[Step], peak: Peak) -> str:
    total = sum(s.us for s in steps)
    least = sum(s.least_us(peak) if s.computes(peak) else min(s.least_us(peak), s.us) for s in steps)
    parts = [f"{100 * least / total:.0f} %"]
    small = [s for s in steps if s.us < SMALL_US]
    for computes in (True, False):
        of = [s for s in steps if s.us >= SMALL_US and s.computes(peak) == computes]
        us = sum(s.us for s in of)
        share = f"{100 * us / total:.0f} %"
        parts += [share, f"{100 * sum(s.least_us(peak) for s in of) / us:.0f} %" if us else "-"]
    parts.append(f"{100 * sum(s.us for s in small) / total:.0f} %")
    flop = sum(s.flop for s in steps)
    measured = [f"{flop / total / 1e3:.0f}", f"{peak.flops / 1e9:.0f}", f"{peak.rate / 1e9:.0f}"]
    cells = [name, f"{total / 1e3:.2f}", f"{flop / 1e9:.2f}", *measured, *parts]
    return "| " + " | ".join(cells) + " |"


def left(name: str, steps: list[Step], peak: Peak, n: int = 3) -> list[str]:
    """The steps with the largest difference from their bound."""
    total = sum(s.us for s in steps)
    worst = sorted(steps, key=lambda s: s.least_us(peak) - s.us)[:n]
    lines = [f"* **{name}**"]
    for s in worst:
        kind = "operations" if s.computes(peak) else "bytes"
        label = s.label if len(s.label) < 90 else s.label[:87] + "..."
        lines.append(
            f"  * {s.us:.0f} us, {100 * s.us / total:.1f} % of the time, {100 * s.least_us(peak) / s.us:.0f} % of the "
            f"limit by {kind}: `{label}`"
        )
    return lines


INTRODUCTION = """# Networks and the limits of the machine

`bench/roofline.py` wrote this page. *Peak* is the machine's multiply-add rate (GFLOP/s) and *GB/s* its memory bandwidth, measured
immediately before and after each network (`bench/peak.c`). The tables show the higher of the two values, because rented machines vary.

Each step (kernel) is bound by its operations or its bytes, whichever takes longer at the machine's limits. *Bound* is the time at that
limit in percent of the measured time, so 100 % is the machine's limit: first of the whole network, then of its steps of each kind. The
columns *bound by* show the share of time in steps of each kind. Operations are counted as for a direct computation, so Winograd can
exceed 100 %. An exponential or another function counts as one operation, although it takes a dozen. Data that is still in a cache can
exceed 100 %, too, but a step that is bound by bytes counts as 100 % at most in the whole network. *Small steps* take less than 20 us,
mostly for thread synchronization. The lists name the three steps of each network that lose the most time compared with their limit.
"""
HEAD = """| network | ms | GFLOP | GFLOP/s | peak | GB/s | bound | bound by operations | bound | bound by bytes | bound | small steps |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""


def page(old: str, title: str, text: str) -> str:
    """The page with the section of a machine: in the place of the one with that title, or as the last."""
    sections = [s for s in old.split("\n## ")[1:] if s.strip()]
    new = f"{title}\n\n{text}"
    at = next((i for i, s in enumerate(sections) if s.startswith(f"{title}\n")), len(sections))
    sections[at : at + 1] = [new]
    return INTRODUCTION + "".join(f"\n## {s.strip()}\n" for s in sections)


def main() -> None:
    import bench

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=[n for n in bench.DEFAULT if "@" not in n])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--machine", default=bench.machine(), help="what the section calls it (default: %(default)s)")
    parser.add_argument("--note", default="", help="what else the section says about its conditions")
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "roofline.md")
    args = parser.parse_args()
    profiles: dict[str, tuple[list[Step], Peak]] = {}
    with tempfile.TemporaryDirectory() as folder:
        program = Peak.program(folder)
        for name in args.networks:
            print(f"{name} ...", file=sys.stderr, flush=True)
            steps, before = profile(name, args.runs, lambda: Peak.measure(program, args.threads))
            profiles[name] = steps, before.or_better(Peak.measure(program, args.threads))
    title = f"{args.machine}, {args.threads} thread{'s' * (args.threads > 1)}"
    text = f"Batch 1, median of {args.runs} runs{'; ' * bool(args.note)}{args.note}.\n\n{HEAD}"
    text += "".join(f"{row(name, steps, peak)}\n" for name, (steps, peak) in profiles.items()) + "\n"
    text += "".join(f"{line}\n" for name, (steps, peak) in profiles.items() for line in left(name, steps, peak))
    if args.out == Path("-"):
        print(f"## {title}\n\n{text}", end="")
    else:
        old = args.out.read_text(encoding="utf-8") if args.out.exists() else ""
        args.out.write_text(page(old, title, text), encoding="utf-8")


if __name__ == "__main__":
    main()
