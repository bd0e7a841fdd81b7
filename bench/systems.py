"""The compared systems. Each is a function (network, batch, threads) that returns a function for one run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import networks
import numpy as np
import torch

Run = Callable[[], object]


def exported(name: str, batch: int) -> Path:
    """The network as an ONNX file, exported once."""
    folder = Path(os.environ.get("SOL_BENCH_CACHE", Path(tempfile.gettempdir()) / "sol-bench"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-b{batch}.onnx"
    if not path.exists():
        part = folder / f"{os.getpid()}.onnx"
        torch.onnx.export(
            networks.make(name), (networks.sample(name, batch),), str(part), dynamo=False, opset_version=17
        )
        part.rename(path)
    return path


def sol(name: str, batch: int, threads: int) -> Run:
    import sol as system

    x = networks.sample(name, batch)
    model = system.optimize(networks.make(name), x)

    def run() -> object:
        with torch.no_grad():
            return model(x)

    return run


def eager(name: str, batch: int, threads: int, last: bool = False) -> Run:
    model, x = networks.make(name), networks.sample(name, batch)
    if last and x.ndim == 4:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)

    def run() -> object:
        with torch.no_grad():
            return model(x)

    return run


def eager_last(name: str, batch: int, threads: int) -> Run:
    return eager(name, batch, threads, last=True)


def compiled(name: str, batch: int, threads: int, freeze: bool = False) -> Run:
    import torch._inductor.config as config

    config.freezing = freeze
    model, x = torch.compile(networks.make(name)), networks.sample(name, batch)

    def run() -> object:
        with torch.no_grad():
            return model(x)

    return run


def compiled_frozen(name: str, batch: int, threads: int) -> Run:
    return compiled(name, batch, threads, freeze=True)


def onnxruntime(name: str, batch: int, threads: int) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(str(exported(name, batch)), options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: networks.sample(name, batch).numpy()}
    return lambda: session.run(None, feed)


def onnxruntime_sol(name: str, batch: int, threads: int) -> Run:
    """ONNX Runtime with SOL's execution provider."""
    import onnxruntime as ort
    import sol.onnx

    ort.register_execution_provider_library("SOL", sol.onnx.provider_path())
    options = ort.SessionOptions()
    options.add_provider_for_devices([d for d in ort.get_ep_devices() if d.ep_name == "SOL"], {"threads": str(threads)})
    session = ort.InferenceSession(str(exported(name, batch)), options, enable_fallback=0)
    feed = {session.get_inputs()[0].name: networks.sample(name, batch).numpy()}
    return lambda: session.run(None, feed)


def openvino(name: str, batch: int, threads: int) -> Run:
    import openvino as ov

    core = ov.Core()
    config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": "1"}
    request = core.compile_model(core.read_model(str(exported(name, batch))), "CPU", config).create_infer_request()
    x = networks.sample(name, batch).numpy()
    return lambda: request.infer([x])


def ncnn(name: str, batch: int, threads: int) -> Run:
    import ncnn as system
    import pnnx

    if batch != 1:
        raise RuntimeError("ncnn runs one image at a time")
    folder = exported(name, 1).parent / f"ncnn-{name}"
    folder.mkdir(exist_ok=True)
    if not (folder / "m.ncnn.bin").exists():
        script = folder / "m.pt"
        torch.jit.trace(networks.make(name), networks.sample(name)).save(str(script))
        tools = Path(pnnx.__file__).parent / "bin" / "pnnx", Path(sys.executable).parent / "pnnx"
        shape = ",".join(map(str, networks.shape(name)))
        command = [
            next((str(t) for t in tools if t.exists()), "pnnx"),
            str(script),
            f"inputshape=[{shape}]f32",
            "fp16=0",
        ]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    net = system.Net()
    net.opt.num_threads = threads
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = net.opt.use_bf16_storage = False
    net.load_param(str(folder / "m.ncnn.param"))
    net.load_model(str(folder / "m.ncnn.bin"))
    x = np.ascontiguousarray(networks.sample(name).numpy()[0])

    def run() -> object:
        extractor = net.create_extractor()
        extractor.input("in0", system.Mat(x))
        return extractor.extract("out0")

    return run


SYSTEMS: dict[str, Callable[[str, int, int], Run]] = {
    "sol": sol,
    "eager": eager,
    "eager-last": eager_last,
    "compile": compiled,
    "compile-frozen": compiled_frozen,
    "onnxruntime": onnxruntime,
    "sol-onnxruntime": onnxruntime_sol,
    "openvino": openvino,
    "ncnn": ncnn,
}


# -- training: a step is forward, loss, backward, SGD with momentum


def _training(
    name: str, batch: int, build: Callable[[torch.nn.Module, torch.Tensor], torch.nn.Module], last: bool
) -> Run:
    model, x = networks.make(name).train(), networks.sample(name, batch)
    target = torch.randint(1000, (batch,), generator=torch.Generator().manual_seed(3))
    if last and x.ndim == 4:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    ready = build(model, x)

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        y = ready(x)
        loss = torch.nn.functional.cross_entropy(y if isinstance(y, torch.Tensor) else y[0], target)
        loss.backward()
        optimizer.step()
        return loss

    step.kept = (model, optimizer, x)  # type: ignore[attr-defined]
    return step


def _sol_model(model: torch.nn.Module, x: torch.Tensor) -> torch.nn.Module:
    import sol as system

    return system.optimize(model, x).train()  # type: ignore[no-any-return]


TRAINING: dict[str, Callable[[str, int, int], Run]] = {
    "sol": lambda name, batch, threads: _training(name, batch, _sol_model, False),
    "eager": lambda name, batch, threads: _training(name, batch, lambda model, x: model, False),
    "eager-last": lambda name, batch, threads: _training(name, batch, lambda model, x: model, True),
    "compile": lambda name, batch, threads: _training(name, batch, lambda model, x: torch.compile(model), False),
}
