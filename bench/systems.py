"""The systems that are compared: each prepares a network and returns a function that runs it on the prepared input.

A row of SYSTEMS is name, function, what it is. A system that is not installed, or cannot do a network, raises.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

Run = Callable[[], np.ndarray]


def torch_run(model: Callable, x: torch.Tensor) -> Run:
    def run() -> np.ndarray:
        with torch.no_grad():
            return model(x).numpy()

    return run


def eager(model: nn.Module, x: torch.Tensor, folder: Path, threads: int) -> Run:
    return torch_run(model, x)


def eager_channels_last(model: nn.Module, x: torch.Tensor, folder: Path, threads: int) -> Run:
    if x.ndim != 4:
        raise ValueError("channels-last needs images")
    return torch_run(model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last))


def compiled(model: nn.Module, x: torch.Tensor, folder: Path, threads: int) -> Run:
    return torch_run(torch.compile(model), x)


def compiled_freezing(model: nn.Module, x: torch.Tensor, folder: Path, threads: int) -> Run:
    import torch._inductor.config

    torch._inductor.config.freezing = True
    return torch_run(torch.compile(model), x)


def sol(model: nn.Module, x: torch.Tensor, folder: Path, threads: int) -> Run:
    import sol

    return torch_run(sol.optimize(model, x), x)


def export_onnx(model: nn.Module, x: torch.Tensor, folder: Path) -> str:
    path = folder / "network.onnx"
    if not path.exists():
        torch.onnx.export(model, (x,), str(path), dynamo=True, verbose=False, input_names=["x"], output_names=["y"])
    return str(path)


def onnxruntime(model: nn.Module, x: torch.Tensor, folder: Path, threads: int) -> Run:
    import onnxruntime as ort

    path = export_onnx(model, x, folder)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {"x": x.numpy()}
    return lambda: session.run(None, feed)[0]


def openvino(model: nn.Module, x: torch.Tensor, folder: Path, threads: int) -> Run:
    import openvino as ov

    network = ov.Core().read_model(export_onnx(model, x, folder))
    hints = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
    request = ov.compile_model(network, "CPU", hints).create_infer_request()
    feed = {0: x.numpy()}
    return lambda: request.infer(feed)[0]


def ncnn(model: nn.Module, x: torch.Tensor, folder: Path, threads: int) -> Run:
    import ncnn

    if x.shape[0] != 1:
        raise ValueError("ncnn has no batches")
    script = folder / "network.pt"
    if not (folder / "network.ncnn.param").exists():
        torch.jit.trace(model, x).save(str(script))
        shape = ",".join(map(str, x.shape))
        command = [str(Path(sys.executable).with_name("pnnx")), str(script), f"inputshape=[{shape}]", "fp16=0"]
        subprocess.run(command, check=True, capture_output=True, cwd=folder)
    net = ncnn.Net()
    net.opt.num_threads = threads
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.opt.use_bf16_storage = False
    net.load_param(str(folder / "network.ncnn.param"))
    net.load_model(str(folder / "network.ncnn.bin"))
    data = x[0].numpy()

    def run() -> np.ndarray:
        with net.create_extractor() as extractor:
            extractor.input("in0", ncnn.Mat(data))
            return np.array(extractor.extract("out0")[1])

    return run


SYSTEMS: dict[str, tuple[Callable[[nn.Module, torch.Tensor, Path, int], Run], str]] = {
    "sol": (sol, "SOL"),
    "eager": (eager, "PyTorch eager"),
    "eager-cl": (eager_channels_last, "PyTorch eager, channels-last"),
    "compile": (compiled, "torch.compile"),
    "compile-freeze": (compiled_freezing, "torch.compile with freezing"),
    "onnxruntime": (onnxruntime, "ONNX Runtime"),
    "openvino": (openvino, "OpenVINO, float32"),
    "ncnn": (ncnn, "ncnn"),
}
