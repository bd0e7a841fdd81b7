#!/usr/bin/env python3
"""Measures networks whose sizes vary, untuned.

make bench-dynamic                          the speed of one program for all sizes, and the time to serve many sizes
make bench-dynamic NETWORKS="bert mlp"      some networks
.venv/bin/python bench/dynamic.py --only train
.venv/bin/python bench/dynamic.py --help

speed, train: at each of ten sizes, a program made once with sizes that vary beside a program made for that size, in
inference and in steps of training. Their calls alternate, and the lower quartile of each counts, so that other work on
the machine disturbs both alike; the ratio is the time of the second to that of the first (1: equally fast).
serve: from a cold start, one call at each of twenty sizes in a process of its own: SOL, torch.compile(dynamic=True),
ONNX Runtime.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import sequences
import torch
import torch.nn.functional as F
from torch import nn

import bench

HERE = Path(__file__).resolve().parent
SYSTEMS = ["sol", "compile", "onnxruntime"]
LEAST_TURNS = 7
SERVE_LIMIT = 1800  # seconds


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(128, 256, batch_first=True)
        self.head = nn.Linear(256, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.inner(x)[0])


class UNet(nn.Module):
    """Three levels; height and width are multiples of 4."""

    def __init__(self, c: int = 32) -> None:
        super().__init__()
        self.down = nn.ModuleList([self.pair(3, c), self.pair(c, 2 * c), self.pair(2 * c, 4 * c)])
        self.up = nn.ModuleList([self.pair(6 * c, 2 * c), self.pair(3 * c, c)])
        self.head = nn.Conv2d(c, 2, 1)

    @staticmethod
    def pair(a: int, b: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down[0](x)
        b = self.down[1](F.max_pool2d(a, 2))
        c = self.down[2](F.max_pool2d(b, 2))
        b = self.up[0](torch.cat([F.interpolate(c, scale_factor=2.0), b], 1))
        return self.head(self.up[1](torch.cat([F.interpolate(b, scale_factor=2.0), a], 1)))


def bert() -> nn.Module:
    t = sequences.transformers()
    return sequences.First(t.BertModel(t.BertConfig(num_hidden_layers=4)))


def gpt2() -> nn.Module:
    t = sequences.transformers()
    return sequences.First(t.GPT2Model(t.GPT2Config(n_layer=4, use_cache=False)))


def convolutional(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import networks

        return networks.make(name)

    return make


def pictures(n: int) -> torch.Tensor:
    return torch.randn(n, 3, 224, 224)


def tokens(n: int) -> torch.Tensor:
    return torch.randint(0, 1000, (1, n))


@dataclass
class Network:
    make: Callable[[], nn.Module]
    sample: Callable[[int], torch.Tensor]  # of a size
    axes: tuple[int, ...]  # which dimensions of the argument it is
    example: int
    sizes: list[int]


BATCHES = [1, 2, 3, 4, 6, 8, 11, 16, 24, 32]
LENGTHS = [1, 7, 16, 33, 64, 100, 128, 200, 256, 384]
NETWORKS = {
    "resnet50": Network(convolutional("resnet50"), pictures, (0,), 8, [*BATCHES[:8], 5, 12]),
    "mobilenet_v2": Network(convolutional("mobilenet_v2"), pictures, (0,), 8, BATCHES),
    "unet": Network(
        UNet, lambda n: torch.randn(1, 3, n, n), (2, 3), 128, [16, 32, 48, 64, 96, 112, 128, 160, 192, 256]
    ),
    "bert": Network(bert, tokens, (1,), 128, LENGTHS),
    "gpt2": Network(gpt2, tokens, (1,), 128, LENGTHS),
    "lstm": Network(LSTM, lambda n: torch.randn(4, n, 128), (1,), 64, LENGTHS),
    "mlp": Network(
        convolutional("mlp"), lambda n: torch.randn(n, 8192), (0,), 64, [1, 4, 7, 16, 33, 50, 64, 100, 128, 200]
    ),
}


def described(network: Network, x: torch.Tensor) -> object:
    import sol

    size = sol.dim("size", example=network.example)
    return sol.input([size if d in network.axes else n for d, n in enumerate(x.shape)], dtype=x.dtype)


def runner(model: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, train: bool) -> Callable[[], object]:
    def step() -> object:
        y = model(x)
        y.square().mean().backward()
        return y

    def run() -> object:
        with torch.no_grad():
            return model(x)

    return step if train else run


def turns(runs: list[Callable[[], object]], least: float) -> list[float]:
    """The seconds of each run: the lower quartile of its calls in turns."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    times: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + least
    while len(times[0]) < LEAST_TURNS or time.perf_counter() < end:
        order = list(range(len(runs)))
        for i in order if len(times[0]) % 2 else reversed(order):
            start = clock()
            runs[i]()
            times[i].append(clock() - start)
    return [sorted(t)[len(t) // 4] for t in times]


def speed(name: str, train: bool, least: float, sizes: list[int]) -> list[float]:
    """Prints the milliseconds at each size; returns the ratios."""
    import sol

    network = NETWORKS[name]
    what = f"{name}, training" if train else name
    model = network.make().train(train)
    start = time.perf_counter()
    varying = sol.optimize(model, described(network, network.sample(network.example)))
    runner(varying, network.sample(network.example), train)()
    print(f"{what}: sizes vary: made in {time.perf_counter() - start:.1f} s", flush=True)
    ratios = []
    for n in sizes or network.sizes:
        x = network.sample(n)
        fixed = runner(sol.optimize(network.make().train(train), x), x, train)
        own = runner(varying, x, train)
        start = time.perf_counter()
        own()
        first = time.perf_counter() - start
        fixed()
        a, b = turns([own, fixed], least)
        ratios.append(b / a)
        line = f"  {n:5}  varies {a * 1e3:9.3f} ms  made for it {b * 1e3:9.3f} ms"
        print(f"{line}  ratio {b / a:5.2f}  first call {first:.3f} s", flush=True)
    print(f"{what}: geometric mean {geometric_mean(ratios):.3f}, least {min(ratios):.2f}", flush=True)
    return ratios


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs))


# -- serving many sizes from a cold start


def serve(system: str, name: str) -> list[float]:
    """Seconds until the call at each size has returned."""
    network = NETWORKS[name]
    model, sizes = network.make(), [network.sizes[0] + 13 * i for i in range(20)]
    if name == "unet":
        sizes = [32 + 8 * i for i in range(20)]
    if network.axes == (0,):
        sizes = list(range(1, 21))
    inputs = [network.sample(n) for n in sizes]
    example = network.sample(network.example)
    start = time.perf_counter()
    times = []
    call: Callable[[torch.Tensor], object]
    if system == "sol":
        import sol

        call = sol.optimize(model, described(network, example))
    elif system == "compile":
        call = torch.compile(model, dynamic=True)
    else:
        import onnxruntime as ort

        path = Path(tempfile.mkdtemp()) / "net.onnx"
        axes = {"x": {d: f"d{d}" for d in network.axes}}
        torch.onnx.export(
            model, (example,), str(path), dynamo=False, opset_version=17, input_names=["x"], dynamic_axes=axes
        )
        options = ort.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()  # otherwise one for each processor
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

        def call(x: torch.Tensor) -> object:
            return session.run(None, {"x": x.numpy()})

    with torch.no_grad():
        for x in inputs:
            call(x)
            times.append(time.perf_counter() - start)
    return times


def served(system: str, name: str, threads: int) -> list[float]:
    """In a process of its own, with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(
            os.environ, OMP_NUM_THREADS=str(threads), SOL_CACHE=f"{folder}/sol", SOL_AUTOTUNE="off",
            TORCHINDUCTOR_CACHE_DIR=f"{folder}/inductor",
        )  # fmt: skip
        command = [sys.executable, __file__, "--child", system, name]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SERVE_LIMIT)
        except subprocess.TimeoutExpired:
            print(f"{name:14}{system:12} more than {SERVE_LIMIT} s", flush=True)
            return []
    if done.returncode:
        print(f"{name} {system}: failed: {done.stderr.strip().splitlines()[-1:]}", flush=True)
        return []
    times: list[float] = json.loads(done.stdout.splitlines()[-1])
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=1.0, help="of calls at each size, at least")
    parser.add_argument("--sizes", type=int, nargs="+", help="instead of the ten of a network")
    parser.add_argument("--only", choices=["speed", "train", "serve"])
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    o = parser.parse_args()
    torch.manual_seed(0)
    if o.child:
        print(json.dumps(serve(*o.child)))
        return
    unknown = [n for n in o.networks if n not in NETWORKS]
    if unknown:
        sys.exit(f"dynamic.py: no such network: {', '.join(unknown)}; there are {', '.join(NETWORKS)}")
    torch.set_num_threads(o.threads)
    os.environ.setdefault("SOL_AUTOTUNE", "off")
    print(f"{bench.machine()}, {o.threads} threads, untuned")
    for mode in ("speed", "train"):
        if o.only not in (None, mode):
            continue
        ratios = [r for name in o.networks for r in speed(name, mode == "train", o.seconds, o.sizes)]
        print(f"all, {mode}: geometric mean {geometric_mean(ratios):.3f}, least {min(ratios):.2f}", flush=True)
    for name in o.networks if o.only in (None, "serve") else []:
        for system in SYSTEMS:
            times = served(system, name, o.threads)
            if times:
                print(
                    f"{name:14}{system:12} first result {times[0]:6.1f} s, twenty sizes {times[-1]:6.1f} s", flush=True
                )


if __name__ == "__main__":
    main()
