"""Runs systems whose wheels have no C interface: by_python.py SYSTEM THREADS SECONDS MODEL DIMS..

Prints what measure.h prints. The peak excludes Python with NumPy and the imported system.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import numpy as np

Call = Callable[[], np.ndarray]


def peak_mib() -> float:
    with open("/proc/self/status", encoding="ascii") as f:
        return next(float(line.split()[1]) for line in f if line.startswith("VmHWM:")) / 1024


def ncnn(model: str, threads: int, x: np.ndarray) -> Call:
    import ncnn as system

    net = system.Net()
    net.opt.num_threads = threads
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = net.opt.use_bf16_storage = False
    net.load_param(model + ".param")
    net.load_model(model + ".bin")
    image = np.ascontiguousarray(x[0])

    def call() -> np.ndarray:
        extractor = net.create_extractor()
        extractor.input("in0", system.Mat(image))
        return np.array(extractor.extract("out0")[1])

    return call


def iree(model: str, threads: int, x: np.ndarray) -> Call:
    import iree.runtime as system

    system.flags.parse_flags(f"--task_topology_group_count={threads}")
    module = system.load_vm_flatbuffer_file(model, driver="local-task")
    function = getattr(
        module, next(n for n in module.vm_module.function_names if "$" not in n and not n.startswith("__"))
    )
    return lambda: function(x).to_host()


def litert(model: str, threads: int, x: np.ndarray) -> Call:
    from ai_edge_litert.interpreter import Interpreter

    system = Interpreter(model_path=model, num_threads=threads)
    system.allocate_tensors()
    given, taken = system.get_input_details()[0]["index"], system.get_output_details()[0]["index"]

    def call() -> np.ndarray:
        system.set_tensor(given, x)
        system.invoke()
        return system.get_tensor(taken)

    return call


SYSTEMS = {"ncnn": (ncnn, "ncnn"), "iree": (iree, "iree.runtime"), "litert": (litert, "ai_edge_litert.interpreter")}


def files() -> list[str]:
    with open("/proc/self/maps", encoding="utf-8") as f:
        return sorted({line[line.index("/") :].strip() for line in f if "/" in line})


def main() -> None:
    make, package = SYSTEMS[sys.argv[1]]
    shape = tuple(map(int, sys.argv[5:]))
    x = (np.arange(np.prod(shape), dtype=np.int64) % 97 / 97).astype(np.float32).reshape(shape)
    before = files()
    __import__(package)
    imported, begin = peak_mib(), time.perf_counter()
    call = make(sys.argv[4], int(sys.argv[2]), x)
    ready = time.perf_counter()
    result = call().reshape(-1)[:4].tolist()
    first = time.perf_counter() - ready
    times, cpu, end = [], [], time.perf_counter() + float(sys.argv[3])
    while time.perf_counter() < end or len(times) < 3:
        start, spent = time.perf_counter(), time.process_time()
        call()
        times.append(time.perf_counter() - start)
        cpu.append(time.process_time() - spent)
    own = [f for f in files() if f not in before]
    print(json.dumps({"ready": (ready - begin) * 1e3, "first": first * 1e3, "call": float(np.median(times)) * 1e3,
                      "cpu": float(np.median(cpu)) * 1e3, "peak": peak_mib() - imported, "result": result, "files": own}))  # fmt: skip


if __name__ == "__main__":
    main()
