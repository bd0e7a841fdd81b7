"""Compares SOL with its peers, network by network: one process for each system, rounds interleaved, medians, ratios.

make bench                                   the networks of docs/performance.md's table
make bench NETWORKS="resnet50 mobilenet_v2" SYSTEMS="sol eager onnxruntime"
make bench NETWORKS="resnet50@16 odd"        batch 16; the networks of odd.py
make bench NETWORKS="sequences"              LSTM, GRU, BERT, GPT-2 (sequences.py)
.venv/bin/python bench/bench.py --isa avx2   as on a machine without AVX-512
make bench-cuda                              on NVIDIA's graphics card, with tensors there; ARGS="--tf32 --train"
make bench-train                             steps of training: forward, loss, backward, SGD with momentum
.venv/bin/python bench/bench.py --help
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from plot import draw, title

HERE = Path(__file__).resolve().parent
SYSTEMS = ["sol", "eager", "eager-last", "compile", "compile-frozen", "onnxruntime", "openvino", "ncnn"]
DEFAULT = [
    "alexnet", "squeezenet1_1", "vgg16", "resnet18", "resnet50", "densenet121", "inception_v3", "googlenet",
    "mobilenet_v1", "mobilenet_v2", "mnasnet1_0", "shufflenet_v2_x1_0", "resnext50_32x4d", "wide_resnet50_2", "mlp",
    "resnet50@16", "mobilenet_v2@16", "densenet121@16", "efficientnet_b0", "convnext_tiny", "vit_b_16", "swin_t",
    "lstm_1x512", "lstm_2x512", "lstm_2x512@16", "lstm_2x512_both", "gru_1x512", "gru_2x512", "gru_2x512@16", "gru_2x512_both",
    "bert_32", "bert_128", "bert_512", "gpt2_32", "gpt2_128", "gpt2_512", "gpt2_step",
]  # fmt: skip
PEERS = [*SYSTEMS[1:], "graph", "graph-last"]
# The systems that run on a graphics card, and the networks of its table
CARD_SYSTEMS = ["sol", "eager", "eager-last", "graph", "graph-last", "compile"]
CARD = [
    "resnet50", "resnet50@16", "resnet50@128", "mobilenet_v2@16", "vgg16@16", "densenet121@16", "convnext_tiny@16",
    "vit_b_16@16", "mlp@16", "lstm_2x512@16", "bert_128", "bert_128@16", "gpt2_128",
]  # fmt: skip
TRAINING_SYSTEMS = ["sol", "eager", "eager-last", "compile"]
TRAINING = [
    "resnet18", "resnet50", "densenet121", "vgg16", "squeezenet1_1", "mobilenet_v2", "mnasnet1_0", "shufflenet_v2_x1_0", "mlp",
    "efficientnet_b0", "convnext_tiny", "vit_b_16", "swin_t", "lstm_1x512", "lstm_2x512", "gru_2x512", "bert_128", "gpt2_128",
]  # fmt: skip
BATCH = {"mlp": 64, "vgg16": 8, "bert_128": 8, "gpt2_128": 4}  # in training; 16 for others
LIMIT = 600  # seconds until an answer: a system that hangs is reported, and the others go on
# Settings that keep a system from using certain instructions. ONNX Runtime and ncnn ignore such settings, so they are
# left out then.
ISA = {
    "native": {},
    "avx2": {"SOL_TARGET": "x86-64-v3", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
}
ASK_PROCESSOR = ["onnxruntime", "ncnn"]


@dataclass
class Worker:
    """A process that runs one network with one system."""

    system: str
    process: subprocess.Popen[str]
    first: float = math.nan
    memory: float = math.nan
    error: str = ""
    rounds: list[float] = field(default_factory=list)

    @classmethod
    def start(
        cls, system: str, network: str, batch: int, threads: int, train: bool, settings: dict[str, str]
    ) -> Worker:
        environment = (
            dict(os.environ, OMP_NUM_THREADS=str(threads), PYTHONPATH=f"{HERE.parent / 'python'}:{HERE}") | settings
        )
        process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), system, network, str(batch), str(threads), *(["train"] if train else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
        )  # fmt: skip
        worker = cls(system, process)
        answer = worker.answer()
        worker.error = answer.get("error", "")
        worker.first, worker.memory = answer.get("first", math.nan), answer.get("memory", math.nan)
        return worker

    def answer(self) -> dict:  # type: ignore[type-arg]
        assert self.process.stdout
        limit, start = threading.Timer(LIMIT, self.process.kill), time.monotonic()
        limit.start()
        line = self.process.stdout.readline()
        limit.cancel()
        why = f"no answer within {LIMIT} s" if time.monotonic() - start > LIMIT else "died"
        return json.loads(line) if line else {"error": f"{why} (exit {self.process.wait()})"}

    def round(self, seconds: float) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        answer = self.answer()
        if "error" in answer:
            self.error = answer["error"]
            return
        self.rounds.append(statistics.median(answer["times"]))
        self.memory = answer["memory"]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def ms(self) -> float:
        return statistics.median(self.rounds) * 1e3 if self.rounds and not self.error else math.nan


def machine(device: str = "cpu") -> str:
    if device != "cpu":
        import torch

        return f"{torch.cuda.get_device_name(torch.device(device))}, PyTorch {torch.__version__}"
    name = platform.processor()
    flags = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            name = line.split(":", 1)[1].strip()
        if line.startswith("flags"):
            flags = "AVX-512" if "avx512f" in line else "AVX2" if "avx2" in line else "SSE2"
    return f"{name}, {flags}, {os.cpu_count()} cores"


def measure(
    network: str,
    systems: list[str],
    batch: int,
    threads: int,
    rounds: int,
    seconds: float,
    train: bool,
    settings: dict[str, str],
) -> list[Worker]:
    workers = [Worker.start(s, network, batch, threads, train, settings) for s in systems]
    for _ in range(rounds):
        for w in workers:
            if not w.error:
                w.round(seconds)
    for w in workers:
        w.stop()
    return workers


def best(workers: list[Worker], names: list[str]) -> float:
    values = [w.ms for w in workers if w.system in names and not math.isnan(w.ms)]
    return min(values) if values else math.nan


def geometric_mean(values: list[float]) -> float:
    values = [v for v in values if not math.isnan(v)]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def ratios(workers: list[Worker]) -> tuple[float, float]:
    """Ratios: eager (its faster format) to SOL, the best peer to SOL."""
    mine = best(workers, ["sol"])
    return best(workers, ["eager", "eager-last"]) / mine, best(workers, PEERS) / mine


def shown(ratio: float) -> str:
    return "-" if math.isnan(ratio) else f"{ratio:.2f}"


def plot(results: dict[str, list[Worker]], path: Path, what: str) -> None:
    bars = {"SOL": ["sol"], "PyTorch eager": ["eager", "eager-last"]}
    bars |= {title(s): [s] for s in SYSTEMS if not s.startswith(("sol", "eager"))}
    draw({title(n): {k: best(w, s) for k, s in bars.items()} for n, w in results.items()}, path, what)


def write_csv(results: dict[str, list[Worker]], path: Path, what: str) -> None:
    with path.open("w", newline="") as f:
        f.write(f"# {what}\n")
        out = csv.writer(f)
        out.writerow(["network", "system", "ms", "first_s", "memory_mib", "rounds_ms", "error"])
        for network, workers in results.items():
            for w in workers:
                rounds = " ".join(f"{r * 1e3:.3f}" for r in w.rounds)
                out.writerow([network, w.system, f"{w.ms:.3f}", f"{w.first:.2f}", f"{w.memory:.0f}", rounds, w.error])


def wanted(names: list[str]) -> list[str]:
    """Expands `odd` and `sequences` to all networks of those files. Unknown names are an error before anything is measured."""
    from networks import ALL
    from odd import ODD
    from sequences import SEQUENCES

    files: dict[str, Iterable[str]] = {"odd": ODD, "sequences": SEQUENCES}
    names = [n for name in names for n in files.get(name, [name])]
    known = [*ALL, *ODD, *SEQUENCES]
    unknown = [n for n in names if n.partition("@")[0] not in known]
    if unknown:
        sys.exit(f"bench.py: no such network: {', '.join(unknown)}; there are {', '.join([*files, *known])}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "networks", nargs="*", help="NAME or NAME@BATCH; odd, sequences: those of odd.py, of sequences.py"
    )
    parser.add_argument("--systems", nargs="+", choices=["sol", *PEERS, "sol-onnxruntime"])
    parser.add_argument("--train", action="store_true", help="steps of training instead of inference")
    parser.add_argument("--batch", type=int, help="1; in training 16 (vgg16 8, mlp 64)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.4, help="of one round of one system")
    parser.add_argument("--isa", choices=ISA, default="native", help="of the systems that can be told")
    parser.add_argument("--device", default="cpu", help="of PyTorch, where the tensors are: cpu, cuda, cuda:1")
    parser.add_argument("--tf32", action="store_true", help="PyTorch may use TF32 on a graphics card")
    parser.add_argument("--compile", metavar="MODE", help="of torch.compile, such as max-autotune")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder for the table and the plot")
    a = parser.parse_args()
    card = a.device != "cpu"
    systems = a.systems or (TRAINING_SYSTEMS if a.train else CARD_SYSTEMS if card else SYSTEMS)
    what = "a step of training" if a.train else f"batch {a.batch or 1}"
    settings = {"SOL_BENCH_DEVICE": a.device} | ({"SOL_BENCH_COMPILE": a.compile} if a.compile else {})
    if card:
        settings |= {"SOL_BENCH_TF32": "1"} if a.tf32 else {}
        what += ", TF32 allowed" if a.tf32 else ", without TF32"
    if ISA[a.isa]:
        systems = [s for s in systems if s not in ASK_PROCESSOR]
        what += f", {a.isa}"
    settings |= ISA[a.isa]
    print(f"{machine(a.device)}; {what}, {a.threads} threads; milliseconds, median of {a.rounds} interleaved rounds")
    if a.train and not card:
        print("MiB: peak of a step beyond parameters, gradients, the optimizer's state and the input")
    print(f"{'network':20}" + "".join(f"{s:>15}" for s in systems) + f"{'x eager':>9}{'x best':>8}", flush=True)
    results: dict[str, list[Worker]] = {}
    for asked in wanted(a.networks or (TRAINING if a.train else CARD if card else DEFAULT)):
        network, _, own = asked.partition("@")
        batch = int(own) if own else a.batch or (BATCH.get(network, 16) if a.train else 1)
        results[asked] = measure(network, systems, batch, a.threads, a.rounds, a.seconds, a.train, settings)
        cells = "".join(f"{'-' if w.error else f'{w.ms:.2f}':>15}" for w in results[asked])
        r = ratios(results[asked])
        print(f"{asked:20}{cells}{shown(r[0]):>9}{shown(r[1]):>8}", flush=True)
        if a.train and not card:
            cells = "".join(f"{'-' if w.error else f'{w.memory:.0f}':>15}" for w in results[asked])
            print(f"{f'  MiB, batch {batch}':20}{cells}", flush=True)
        for w in results[asked]:
            if w.error:
                print(f"    {w.system}: {w.error}", flush=True)
    each = [ratios(w) for w in results.values()]
    means = [shown(geometric_mean([e[i] for e in each])) for i in (0, 1)]
    print(f"geometric mean: {means[0]}x eager, {means[1]}x the best peer")
    a.out.mkdir(parents=True, exist_ok=True)
    name = "training" if a.train else f"inference-b{a.batch or 1}"
    name += f"-{a.device.replace(':', '')}{'-tf32' if a.tf32 else ''}" if card else ""
    write_csv(results, a.out / f"{name}.csv", f"{machine(a.device)}; {what}, {a.threads} threads")
    plot(results, a.out / f"{name}.svg", f"{machine(a.device)}; {what}, {a.threads} threads")
    print(f"written: {a.out}/{name}.csv and .svg")


if __name__ == "__main__":
    main()
