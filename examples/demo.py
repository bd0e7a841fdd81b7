"""The main job, start to end: ResNet-50 from PyTorch, compared with PyTorch; then the same network as an ONNX file through
the `sol` command, without Python. `make demo` runs it."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

import networks  # noqa: E402
import sol  # noqa: E402


def picture(size: int = 224) -> torch.Tensor:
    """A picture that is made here: rings and a gradient, normalised as networks want it."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    rings = torch.sin(12 * torch.sqrt(x * x + y * y))
    return torch.stack([rings, x, y])[None]


def median_ms(run: Callable[[], object], rounds: int = 15) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    torch.set_num_threads(min(2, torch.get_num_threads()))
    say("building torchvision's ResNet-50 with random weights ...")
    model, x = networks.make("resnet50"), picture()
    with torch.no_grad():
        say("optimizing with SOL ...")
        start = time.perf_counter()
        fast = sol.optimize(model, x)
        result = fast(x)
        seconds = time.perf_counter() - start
        exact = networks.make("resnet50").double()(x.double())
        expected = model(x)
        say("measuring, in turns ...")
        last, last_x = (
            networks.make("resnet50").to(memory_format=torch.channels_last),
            x.to(memory_format=torch.channels_last),
        )
        rounds = [(median_ms(lambda: last(last_x), 5), median_ms(lambda: fast(x), 5)) for _ in range(5)]
    eager, ours = (statistics.median(r[i] for r in rounds) for i in (0, 1))
    scale = exact.norm()
    memory = sol.memory(fast)
    say("")
    if os.getloadavg()[0] > 2 * (os.cpu_count() or 1):
        say(f"  (the machine is busy, load {os.getloadavg()[0]:.0f}: these times say little)")
    say(f"  PyTorch eager (channels last)   {eager:8.2f} ms")
    say(f"  SOL                             {ours:8.2f} ms")
    say(f"  ratio                           {eager / ours:8.2f} x")
    say(
        f"  largest difference from PyTorch {(result - expected).abs().max():8.1e} (of values up to {expected.abs().max():.2f})"
    )
    say(
        f"  error against float64           {(result - exact).norm() / scale:8.1e} (PyTorch's own {(expected - exact).norm() / scale:.1e})"
    )
    say(f"  time to optimize and run once   {seconds:8.2f} s")
    say(f"  estimated peak memory           {memory['peak'] / 1e6:8.0f} MB")
    say("")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        say("exporting to ONNX, and running the file through the sol command ...")
        torch.onnx.export(
            model,
            (x,),
            str(path / "resnet50.onnx"),
            dynamo=False,
            opset_version=17,
            input_names=["x"],
            output_names=["y"],
        )
        np.save(path / "x.npy", x.numpy())
        command = [
            str(ROOT / "build" / "cli" / "sol"),
            "run",
            str(path / "resnet50.onnx"),
            "--input",
            f"x={path / 'x.npy'}",
        ]
        subprocess.run([*command, "--output-dir", str(path)], check=True)
        y = torch.from_numpy(np.load(path / "y.npy"))
    say(f"  error against float64           {(y - exact).norm() / scale:8.1e}")


if __name__ == "__main__":
    main()
