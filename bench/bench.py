#!/usr/bin/env python3
"""SOL beside other systems, on any list of networks.

One process per system, all alive at the same time; rounds are interleaved, so that a machine that gets slower for a
while is slower for all. Prints a table, writes CSV with the machine's description, and a plot of ratios. The time to the
first result begins with the PyTorch model: where a system reads another format, the export is part of it.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

DEFAULT = "resnet18,resnet50,vgg16,mobilenet_v2,densenet121,squeezenet1_1,shufflenet_v2_x1_0,mlp"


def install() -> None:
    """The other systems, once: the stamp names the list."""
    rows = (HERE / "requirements.txt").read_bytes()
    stamp = Path(sys.prefix) / f".bench-{hashlib.sha256(rows).hexdigest()[:16]}"
    if stamp.exists():
        return
    print("bench: installing the systems to compare with", flush=True)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "-r", str(HERE / "requirements.txt")]
    if subprocess.run(command).returncode:
        print("bench: not all could be installed; those that are missing are left out")
        return
    stamp.touch()


def machine() -> dict[str, str]:
    cpu = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        key, _, value = line.partition(":")
        cpu.setdefault(key.strip(), value.strip())
    flags = cpu.get("flags", "").split()
    return {
        "cpu": cpu.get("model name", platform.processor()),
        "cores": str(len(os.sched_getaffinity(0))),
        "simd": next((f for f in ("avx512f", "avx2", "sse4_2") if f in flags), platform.machine()),
        "system": platform.platform(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


class Worker:
    """A process that has prepared one network with one system."""

    def __init__(self, system: str, network: str, a: argparse.Namespace, folder: Path, cache: Path):
        self.system, self.times, self.facts = system, [], {}
        self.output = folder / f"{system}.npy"
        env = {
            **os.environ,
            "OMP_NUM_THREADS": str(a.threads),
            "MKL_NUM_THREADS": str(a.threads),
            "SOL_CACHE": str(cache),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        }
        command = [sys.executable, str(HERE / "worker.py"), system, network, f"--batch={a.batch}"]
        command += [f"--threads={a.threads}", f"--folder={folder}", f"--output={self.output}"]
        self.log = open(folder / f"{system}.log", "w")  # noqa: SIM115
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env=env
        )
        self.facts = self.answer() or {"error": "the process ended: see " + self.log.name}

    def answer(self) -> dict:
        line = self.process.stdout.readline()
        return json.loads(line) if line else {}

    def round(self, seconds: float) -> None:
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        reply = self.answer()
        if reply:
            self.times.append(statistics.median(reply["ms"]))
        else:
            self.facts["error"] = "the process ended while measuring: see " + self.log.name

    def close(self) -> None:
        self.process.stdin.close()
        if "error" not in self.facts:
            self.facts.update(self.answer())
        self.process.stdout.close()
        self.process.wait()
        self.log.close()


def difference(output: Path, reference: Path) -> float:
    """Relative L2 distance."""
    import numpy as np

    if not output.exists() or not reference.exists():
        return math.nan
    y, r = np.load(output).astype(np.float64).ravel(), np.load(reference).astype(np.float64).ravel()
    return float(np.linalg.norm(y - r) / max(np.linalg.norm(r), 1e-30)) if y.size == r.size else math.inf


def measure(network: str, systems: list[str], a: argparse.Namespace, folder: Path) -> list[dict]:
    cache = folder / "sol-cache"
    workers, rows = [], []
    for system in systems:
        print(f"\r\033[K{network}: preparing {system}", end="", flush=True)
        workers.append(Worker(system, network, a, folder, cache))
    for i in range(a.rounds):
        for w in workers:
            print(f"\r\033[K{network}: round {i + 1} of {a.rounds}: {w.system}", end="", flush=True)
            if "error" not in w.facts:
                w.round(a.seconds)
    for w in workers:
        w.close()
    warm = {}
    if "sol" in systems:
        print(f"\r\033[K{network}: a second process, with a warm cache", end="", flush=True)
        second = Worker("sol", network, a, folder, cache)
        second.close()
        warm["sol"] = second.facts.get("first_s")
    print("\r\033[K", end="", flush=True)
    for w in workers:
        f = w.facts
        rows.append(
            {
                "network": network,
                "batch": a.batch,
                "threads": a.threads,
                "system": w.system,
                "ms": statistics.median(w.times) if w.times else math.nan,
                "ms_best": min(w.times, default=math.nan),
                "first_s": f.get("first_s", math.nan),
                "first_warm_s": warm.get(w.system) or math.nan,
                "peak_mib": f.get("peak_mib", math.nan),
                "difference": difference(w.output, folder / "eager.npy"),
                "error": f.get("error", ""),
            }
        )
    return rows


def show(rows: list[dict]) -> None:
    by = {r["system"]: r for r in rows}
    sol = by.get("sol", {}).get("ms", math.nan)
    for r in rows:
        if r["error"]:
            print(f"  {r['system']:<16} - {r['error']}")
            continue
        ratio = f"{r['ms'] / sol:6.2f}x" if sol == sol else ""
        warm = f" (warm {r['first_warm_s']:.1f})" if r["first_warm_s"] == r["first_warm_s"] else ""
        print(
            f"  {r['system']:<16}{r['ms']:10.3f} ms {ratio:>8}  first {r['first_s']:6.1f} s{warm}"
            f"  {r['peak_mib']:7.0f} MiB  {r['difference']:.1e}"
        )


def summary(rows: list[dict], systems: list[str]) -> None:
    """Geometric means of time / SOL's time; below 1 SOL is slower."""
    ms = {(r["network"], r["system"]): r["ms"] for r in rows if not math.isnan(r["ms"])}
    measured = [n for n in dict.fromkeys(r["network"] for r in rows) if (n, "sol") in ms]
    ratios = {s: [ms[n, s] / ms[n, "sol"] for n in measured if (n, s) in ms] for s in systems if s != "sol"}
    for title, group in (("best eager", ("eager", "eager-cl")), ("best of all", tuple(ratios))):
        best = [min((ms[n, s] for s in group if (n, s) in ms), default=math.nan) / ms[n, "sol"] for n in measured]
        ratios[title] = [r for r in best if not math.isnan(r)]
    print("\ngeometric mean of time / SOL's time (and the worst):")
    for title, values in ratios.items():
        if values:
            print(
                f"  {title:<16}{statistics.geometric_mean(values):6.2f}x  ({min(values):.2f}x, {len(values)} networks)"
            )


def plot(rows: list[dict], systems: list[str], path: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ms = {(r["network"], r["system"]): r["ms"] for r in rows}
    networks = list(dict.fromkeys(r["network"] for r in rows))
    figure, axes = plt.subplots(figsize=(max(6, 1.1 * len(networks)), 4))
    width = 0.85 / len(systems)
    for i, s in enumerate(systems):
        heights = [ms.get((n, "eager"), math.nan) / ms.get((n, s), math.nan) for n in networks]
        axes.bar([k + i * width for k in range(len(networks))], heights, width, label=s)
    axes.axhline(1, color="black", linewidth=0.6)
    axes.set_xticks([k + 0.4 for k in range(len(networks))], networks, rotation=30, ha="right")
    axes.set_ylabel("times as fast as PyTorch eager")
    axes.legend(fontsize="small", ncols=2)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def arguments() -> argparse.Namespace:
    from networks import NETWORKS
    from systems import SYSTEMS

    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--networks", default=DEFAULT, help=f"comma separated, or 'all': {', '.join(NETWORKS)}")
    p.add_argument("--systems", default=",".join(SYSTEMS), help="comma separated")
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--seconds", type=float, default=0.4, help="of one round of one system")
    p.add_argument("--out", type=Path, default=ROOT / "build/bench", help="folder for results.csv and results.png")
    a = p.parse_args()
    a.networks = list(NETWORKS) if a.networks == "all" else a.networks.split(",")
    a.systems = a.systems.split(",")
    for what, given, known in (("network", a.networks, NETWORKS), ("system", a.systems, SYSTEMS)):
        for name in given:
            if name not in known:
                p.error(f"there is no {what} '{name}'; there are {', '.join(known)}")
    return a


def main() -> None:
    install()
    a = arguments()
    about = machine()
    print("  ".join(f"{k}: {v}" for k, v in about.items()))
    a.out.mkdir(parents=True, exist_ok=True)
    rows, start = [], time.time()
    for network in a.networks:
        with tempfile.TemporaryDirectory(prefix="sol-bench-") as folder:
            found = measure(network, a.systems, a, Path(folder))
        print(network)
        show(found)
        rows += found
        with open(a.out / "results.csv", "w", newline="") as f:
            writer = csv.DictWriter(f, [*rows[0], *about])
            writer.writeheader()
            writer.writerows({**r, **about} for r in rows)
    summary(rows, a.systems)
    plot(rows, a.systems, a.out / "results.png")
    print(f"\n{time.time() - start:.0f} s; {a.out / 'results.csv'} and results.png")


if __name__ == "__main__":
    main()
