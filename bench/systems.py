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

DEVICE = os.environ.get("SOL_BENCH_DEVICE", "cpu")  # of PyTorch: the model and its arguments are there
if DEVICE.startswith("cuda"):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = bool(os.environ.get("SOL_BENCH_TF32"))


def network(name: str) -> torch.nn.Module:
    return networks.make(name).to(DEVICE)


def samples(name: str, batch: int) -> tuple[torch.Tensor, ...]:
    return tuple(x.to(DEVICE) for x in networks.samples(name, batch))


def wait() -> None:
    """A call is done when the device has computed it."""
    if DEVICE.startswith("cuda"):
        torch.cuda.synchronize()


def exported(name: str, batch: int) -> Path:
    """The network as an ONNX file, exported once."""
    folder = Path(os.environ.get("SOL_BENCH_CACHE", Path(tempfile.gettempdir()) / "sol-bench"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-b{batch}.onnx"
    if not path.exists():
        part = folder / f"{os.getpid()}.onnx"
        torch.onnx.export(networks.make(name), networks.samples(name, batch), str(part), dynamo=False, opset_version=17)
        part.rename(path)
    return path


def sol(name: str, batch: int, threads: int) -> Run:
    import sol as system

    given = samples(name, batch)
    model = system.optimize(network(name), *given)

    def run() -> object:
        with torch.no_grad():
            return model(*given)

    return run


def channels_last(
    model: torch.nn.Module, given: tuple[torch.Tensor, ...]
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Both in that format; for pictures alone, because others have no such format."""
    if any(x.ndim != 4 for x in given):
        raise RuntimeError("the arguments are not pictures")
    return model.to(memory_format=torch.channels_last), tuple(x.to(memory_format=torch.channels_last) for x in given)


def eager(name: str, batch: int, threads: int, last: bool = False) -> Run:
    model, given = network(name), samples(name, batch)
    if last:
        model, given = channels_last(model, given)

    def run() -> object:
        with torch.no_grad():
            return model(*given)

    return run


def eager_last(name: str, batch: int, threads: int) -> Run:
    return eager(name, batch, threads, last=True)


def graph(name: str, batch: int, threads: int, last: bool = False) -> Run:
    """Eager's kernels as a CUDA graph: one launch a call."""
    if not DEVICE.startswith("cuda"):
        raise RuntimeError("CUDA graphs need a device of CUDA")
    run, captured, stream = eager(name, batch, threads, last), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    with torch.cuda.graph(captured):
        run()
    return captured.replay


def graph_last(name: str, batch: int, threads: int) -> Run:
    return graph(name, batch, threads, last=True)


def compiled(name: str, batch: int, threads: int, freeze: bool = False) -> Run:
    import torch._inductor.config as config

    config.freezing = freeze
    given = samples(name, batch)
    model = torch.compile(network(name), mode=os.environ.get("SOL_BENCH_COMPILE"))

    def run() -> object:
        with torch.no_grad():
            return model(*given)

    return run


def compiled_frozen(name: str, batch: int, threads: int) -> Run:
    return compiled(name, batch, threads, freeze=True)


def onnxruntime(name: str, batch: int, threads: int) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(str(exported(name, batch)), options, providers=["CPUExecutionProvider"])
    feed = {i.name: x.numpy() for i, x in zip(session.get_inputs(), networks.samples(name, batch), strict=True)}
    return lambda: session.run(None, feed)


def onnxruntime_sol(name: str, batch: int, threads: int) -> Run:
    """ONNX Runtime with SOL's execution provider."""
    import onnxruntime as ort
    import sol.onnx

    ort.register_execution_provider_library("SOL", sol.onnx.provider_path())
    options = ort.SessionOptions()
    options.add_provider_for_devices([d for d in ort.get_ep_devices() if d.ep_name == "SOL"], {"threads": str(threads)})
    session = ort.InferenceSession(str(exported(name, batch)), options, enable_fallback=0)
    feed = {i.name: x.numpy() for i, x in zip(session.get_inputs(), networks.samples(name, batch), strict=True)}
    return lambda: session.run(None, feed)


def openvino(name: str, batch: int, threads: int) -> Run:
    import openvino as ov

    core = ov.Core()
    config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": "1"}
    request = core.compile_model(core.read_model(str(exported(name, batch))), "CPU", config).create_infer_request()
    given = [x.numpy() for x in networks.samples(name, batch)]
    return lambda: request.infer(given)


def ncnn(name: str, batch: int, threads: int) -> Run:
    import ncnn as system
    import pnnx

    if batch != 1:
        raise RuntimeError("ncnn runs one image at a time")
    given = networks.samples(name)
    folder = exported(name, 1).parent / f"ncnn-{name}"
    folder.mkdir(exist_ok=True)
    if not (folder / "m.ncnn.bin").exists():
        script = folder / "m.pt"
        torch.jit.trace(networks.make(name), given).save(str(script))
        tools = Path(pnnx.__file__).parent / "bin" / "pnnx", Path(sys.executable).parent / "pnnx"
        kinds = {torch.float32: "f32", torch.int64: "i64"}
        shapes = ",".join(f"[{','.join(map(str, x.shape))}]{kinds[x.dtype]}" for x in given)
        command = [next((str(t) for t in tools if t.exists()), "pnnx"), str(script), f"inputshape={shapes}", "fp16=0"]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    net = system.Net()
    net.opt.num_threads = threads
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = net.opt.use_bf16_storage = False
    if net.load_param(str(folder / "m.ncnn.param")) or net.load_model(str(folder / "m.ncnn.bin")):
        raise RuntimeError("ncnn cannot load what pnnx made of it")
    feed = [np.ascontiguousarray(x.numpy()[0]) for x in given]  # without the batch
    feed = [x.astype(np.int32) if x.dtype == np.int64 else x for x in feed]

    def run() -> object:
        extractor = net.create_extractor()
        for i, x in enumerate(feed):
            extractor.input(f"in{i}", system.Mat(x))
        status, result = extractor.extract("out0")
        if status:
            raise RuntimeError(f"ncnn ends with {status}")
        return result

    return run


SYSTEMS: dict[str, Callable[[str, int, int], Run]] = {
    "sol": sol,
    "eager": eager,
    "eager-last": eager_last,
    "graph": graph,
    "graph-last": graph_last,
    "compile": compiled,
    "compile-frozen": compiled_frozen,
    "onnxruntime": onnxruntime,
    "sol-onnxruntime": onnxruntime_sol,
    "openvino": openvino,
    "ncnn": ncnn,
}


# -- training: a step is forward, loss, backward, SGD with momentum


Build = Callable[[torch.nn.Module, tuple[torch.Tensor, ...]], torch.nn.Module]


def _training(name: str, batch: int, build: Build, last: bool) -> Run:
    """The loss is the cross-entropy of the first result: its last dimension has the classes."""
    model, given = network(name).train(), samples(name, batch)
    if last:
        model, given = channels_last(model, given)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    ready = build(model, given)
    targets: list[torch.Tensor] = []

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        y = ready(*given)
        y = (y if isinstance(y, torch.Tensor) else y[0]).flatten(0, -2)
        if not targets:
            generator = torch.Generator().manual_seed(3)
            targets.append(torch.randint(y.shape[1], (y.shape[0],), generator=generator).to(DEVICE))
        loss = torch.nn.functional.cross_entropy(y, targets[0])
        loss.backward()
        optimizer.step()
        return loss

    step.kept = (model, optimizer, given)  # type: ignore[attr-defined]
    return step


def _sol_model(model: torch.nn.Module, given: tuple[torch.Tensor, ...]) -> torch.nn.Module:
    import sol as system

    return system.optimize(model, *given).train()  # type: ignore[no-any-return]


TRAINING: dict[str, Callable[[str, int, int], Run]] = {
    "sol": lambda name, batch, threads: _training(name, batch, _sol_model, False),
    "eager": lambda name, batch, threads: _training(name, batch, lambda model, given: model, False),
    "eager-last": lambda name, batch, threads: _training(name, batch, lambda model, given: model, True),
    "compile": lambda name, batch, threads: _training(name, batch, lambda model, given: torch.compile(model), False),
}
