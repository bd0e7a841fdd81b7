#!/usr/bin/env python3
"""Measures the peak memory of a process that loads and runs an ONNX file. It compares the `sol` command (by default,
with memory=small, and while it compiles and tunes for the first time) with ONNX Runtime through its C interface. MB
of all pages (VmHWM).

Usage: bench/memory.py [NETWORK..] [--threads 0]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile

import deploy

SOL = deploy.HERE.parent.parent / "build" / "cli" / "sol"
NETWORKS = ("resnet50", "mobilenet_v2", "densenet121", "vgg16", "mlp")


def sol(model: str, cache: str, threads: int, memory: str) -> tuple[float, float]:
    """MB of the process, and of prepared parameters."""
    command = [SOL, "bench", model, "--rounds", "3", "--threads", str(threads), "--config", f"memory={memory}"]
    environment = {**os.environ, "SOL_CACHE": cache}
    text = subprocess.run(command, text=True, capture_output=True, check=True, env=environment).stdout
    found = re.search(r"prepared ([0-9.]+) ([kKMG]?B).*at most ([0-9.]+) MB", text, re.S)
    if not found:
        raise RuntimeError(text)
    unit = {"B": 1e-6, "KB": 1e-3, "MB": 1, "GB": 1e3}[found[2]]
    return float(found[3]), float(found[1]) * unit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    o = parser.parse_args()
    deploy.CACHE.mkdir(parents=True, exist_ok=True)
    print("| network | SOL | for Winograd | SOL, `memory=small` | SOL, first time | ONNX Runtime (C) |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in o.networks:
        command, (model, *_) = deploy.onnxruntime(name)
        peer = float(str(deploy.once(command, o.threads, 0.1)["peak"])) * 1.048576
        with tempfile.TemporaryDirectory() as cache:
            cold, _ = sol(str(model), cache, o.threads, "fast")
            warm, prepared = sol(str(model), cache, o.threads, "fast")
            sol(str(model), cache, o.threads, "small")
            small, plain = sol(str(model), cache, o.threads, "small")
        more = max(prepared - plain, 0)
        print(f"| {name} | {warm:.0f} | {more:.0f} | {small:.0f} | {cold:.0f} | {peer:.0f} |", flush=True)


if __name__ == "__main__":
    main()
