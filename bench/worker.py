"""Runs one system with one network in its own process. It talks with bench.py in lines of JSON: it reports when it is
ready; then each line that it reads is a number of seconds to run, and it answers with the times of its calls."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import sys
import time
from typing import Any


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def status_mib(key: str) -> float:
    """A line of /proc/self/status, such as VmHWM."""
    with open("/proc/self/status", encoding="ascii") as f:
        return next(float(line.split()[1]) for line in f if line.startswith(key + ":")) / 1024


def step_mib(run: Any, before: float) -> float:
    """Peak of a training step without the model, its gradients, the optimizer's state and the arguments. `before`: memory
    of the imports."""
    model, optimizer, given = run.kept
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
        f.write("5")  # resets the peak
    run()
    kept = [*model.parameters(), *model.buffers(), *given]
    kept += [p.grad for p in model.parameters() if p.grad is not None]
    kept += [t for state in optimizer.state.values() for t in state.values() if hasattr(t, "nbytes")]
    return status_mib("VmHWM") - before - sum(t.nbytes for t in kept) / 2**20


def main() -> None:
    system, network, batch, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    training = sys.argv[5:] == ["train"]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps output of the system out of the protocol
    import torch

    torch.set_num_threads(threads)
    import systems

    imported, resident = peak_mib(), status_mib("VmRSS")
    try:
        start = time.perf_counter()
        run = (systems.TRAINING if training else systems.SYSTEMS)[system](network, batch, threads)
        run()
        systems.wait()
        first = time.perf_counter() - start
        memory = step_mib(run, resident) if training and systems.DEVICE == "cpu" else peak_mib() - imported
    except Exception as error:  # a peer that fails is reported, and the run continues
        text = str(error).strip().splitlines()
        print(json.dumps({"error": f"{type(error).__name__}: {text[0] if text else ''}"}), file=answers, flush=True)
        return
    print(json.dumps({"first": first, "memory": memory}), file=answers, flush=True)
    for line in sys.stdin:
        seconds, times = float(line), []
        end = time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            run()
            systems.wait()
            times.append(time.perf_counter() - start)
        memory = memory if training else peak_mib() - imported  # of the host
        print(json.dumps({"times": times, "memory": memory}), file=answers, flush=True)


if __name__ == "__main__":
    main()
