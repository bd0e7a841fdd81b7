#!/usr/bin/env python3
"""Makes what SOL knows of kernels on machines it has not seen: src/tune/defaults/, a file for each instruction set.

Every network is tuned for every instruction set that this machine has. What was clearly gained goes into the files, beside
what is there of other networks; a line says what is best for one kernel, and nothing about the network it was found in.
The machine should do nothing else meanwhile. Then `make`: the files are texts of the library.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import networks
import sol
import torch

FOLDER = Path(__file__).resolve().parent.parent / "src/tune/defaults"
SETS = {"avx512": "x86-64-v4", "avx2": "x86-64-v3"}  # file: the key target
HEADER = "SOL wisdom 2"
LEAST_GAIN = 1.05
NETWORKS = (
    "squeezenet1_1 mobilenet_v1 mobilenet_v2 mnasnet1_0 shufflenet_v2_x1_0 resnet18 resnet50 resnext50_32x4d googlenet"
)


def lines(path: Path) -> list[str]:
    """The lines of a file of wisdom, without the one that says what it is."""
    text = path.read_text().splitlines() if path.exists() else []
    if text[:1] not in ([], [HEADER]):
        sys.exit(f"{path}: expected '{HEADER}' in its first line, got '{text[0]}'")
    return text[1:]


def kind(line: str) -> tuple[str, str]:
    """What a line is about: its key, and what of the machine counts (machine_kind in src/tune/machine.c)."""
    key, machine = line.split("\t")[0], line.split("\t")[6].split(", ")
    return key, ", ".join([machine[0], *[m for m in machine if m == "high precision"]])


def gained(line: str) -> bool:
    _, solver, _, ns, before = line.split("\t")[:5]
    return solver != "network" and float(before) >= LEAST_GAIN * float(ns) > 0


def tune(name: str, target: str, seconds: int) -> list[str]:
    """What there is to gain in a network."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"cache::folder": folder, "target": target, "autotune": str(seconds), "plugins": "off"}
        before = {key: sol.config[key] for key in settings}
        try:
            for key, value in settings.items():
                sol.config[key] = value
            with torch.no_grad():
                x = networks.sample(name)
                sol.optimize(networks.make(name), x)(x)
        finally:
            for key, value in before.items():
                sol.config[key] = value
        return [line for line in lines(Path(folder) / "wisdom") if gained(line)]


def main() -> None:
    """Tunes, and writes the files after each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS.split(), help=f"({NETWORKS})")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS), help="instruction sets")
    parser.add_argument("--seconds", type=int, default=20, help="that tuning a network may take (20)")
    parser.add_argument("--anew", action="store_true", help="forget what is in the files")
    args = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    for file in args.sets:
        path = FOLDER / f"{file}.wisdom"
        known = {} if args.anew else {kind(line): line for line in lines(path)}
        for name in args.networks:
            try:
                new = {kind(line): line for line in tune(name, SETS[file], args.seconds)}
            except sol.UnsupportedError as error:  # an instruction set that is not there
                print(f"{file}: {error}")
                break
            known |= new
            print(f"{file}: {name}: {len(new)} kernels gained, {len(known)} known")
            path.write_text("\n".join([HEADER, *sorted(known.values(), key=lambda line: (kind(line)[1], line))]) + "\n")


if __name__ == "__main__":
    main()
