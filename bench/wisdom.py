#!/usr/bin/env python3
"""Makes the wisdom that comes with SOL, for machines where nothing was measured: src/tune/defaults/ has a file for each
instruction set.

Every network is tuned for every instruction set that this machine has. Clear gains go into the files, next to
entries from other networks. A line gives the best candidate for one kernel; it does not depend on the network. The
machine should be otherwise idle. Run `make` afterwards, because the library contains the files' text.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import networks
import sol
import torch

FOLDER = Path(__file__).resolve().parent.parent / "src/tune/defaults"
SETS = {"avx512": "x86-64-v4", "avx2": "x86-64-v3"}  # file: the key target
LEAST_GAIN = 1.05
NETWORKS = (
    "squeezenet1_1 mobilenet_v1 mobilenet_v2 mnasnet1_0 shufflenet_v2_x1_0 resnet18 resnet50 resnext50_32x4d googlenet"
)


def read(path: Path) -> tuple[str, list[str]]:
    """Reads a file of wisdom: its first line, which has the version, and the others."""
    text = path.read_text().splitlines() if path.exists() else []
    return (text[0], text[1:]) if text else ("", [])


def kind(line: str) -> tuple[str, str]:
    """What a line is about: its key, and the properties of the machine that matter (machine_kind in
    src/tune/machine.c)."""
    key, machine = line.split("\t")[0], line.split("\t")[6].split(", ")
    return key, ", ".join([machine[0], *[m for m in machine if m == "no Winograd"]])


def gained(line: str) -> bool:
    _, solver, _, ns, before = line.split("\t")[:5]
    return solver != "network" and float(before) >= LEAST_GAIN * float(ns) > 0


def tune(name: str, target: str, seconds: int) -> tuple[str, list[str]]:
    """Tunes a network. Returns the first line of a file of wisdom, and the gains."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "cache::folder": folder,
            "target": target,
            "autotune": str(seconds),
            "plugins": "off",
            "wisdom": "own",
        }
        before = {key: sol.config[key] for key in settings}
        try:
            for key, value in settings.items():
                sol.config[key] = value
            with torch.no_grad():
                given = networks.samples(name)
                sol.optimize(networks.make(name), *given)(*given)
        finally:
            for key, value in before.items():
                sol.config[key] = value
        header, lines = read(Path(folder) / "wisdom")
        return header, [line for line in lines if gained(line)]


def main() -> None:
    """Tunes each network and then writes the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS.split(), help=f"({NETWORKS})")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS), help="instruction sets")
    parser.add_argument("--seconds", type=int, default=20, help="that tuning a network may take (20)")
    parser.add_argument("--anew", action="store_true", help="forget what is in the files")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the files (src/tune/defaults)")
    args = parser.parse_args()
    args.folder.mkdir(exist_ok=True)
    for file in args.sets:
        path = args.folder / f"{file}.wisdom"
        was, old = read(path)
        known: dict[tuple[str, str], str] | None = {} if args.anew else None
        for name in args.networks:
            try:
                header, lines = tune(name, SETS[file], args.seconds)
            except sol.UnsupportedError as error:  # the machine lacks this instruction set
                print(f"{file}: {error}")
                break
            if not header:  # nothing was tuned
                print(f"{file}: {name}: not tuned")
                continue
            if known is None:
                known = {kind(line): line for line in old} if header == was else {}
                if was not in ("", header):
                    print(f"{file}: what is there is of another version ('{was}') and forgotten")
            known |= {kind(line): line for line in lines}
            print(f"{file}: {name}: {len(lines)} kernels gained, {len(known)} known", flush=True)
            path.write_text(
                "\n".join([header, *sorted(known.values(), key=lambda line: (line.split("\t")[6], line))]) + "\n"
            )


if __name__ == "__main__":
    main()
