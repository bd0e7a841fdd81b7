#!/usr/bin/env python3
"""Measures deployment: SOL's library compared with what other systems ship. It reports bytes and files, required system
libraries, start, first call, later calls (wall-clock and processor time; on a busy machine and with one thread the
latter is more reliable) and peak memory. Every system runs in its own process, in turn. Systems with a C interface
(SOL, ONNX Runtime, OpenVINO) run in C programs, those whose wheels have none (ncnn, IREE, LiteRT) in Python.

Networks are those of bench/networks.py, and of test/python/networks.py (bert, lstm, ..) for SOL and ONNX Runtime.

Usage: bench/deploy.py [NETWORK..] [--systems sol onnxruntime] [--rounds 5] [--seconds 1] [--threads 0] [--prepare]
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import networks
import numpy as np
import torch

HERE = Path(__file__).parent / "deploy"
CACHE = Path(os.environ.get("SOL_BENCH_CACHE", Path(tempfile.gettempdir()) / "sol-bench")) / "deploy"
NETWORKS = ("resnet50", "mobilenet_v2", "squeezenet1_1")
EVERYWHERE = {"libc", "libm", "ld-linux-x86-64", "ld-linux-aarch64", "libpthread", "libdl", "librt"}  # parts of libc

Command = tuple[list[str], list[Path]]  # the command before THREADS SECONDS, and the model's files


def _folder(package: str) -> Path:
    """The folder of a package, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"{package} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def _run(*command: object) -> None:
    done = subprocess.run([str(c) for c in command], text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr.strip().splitlines()[-1:]}")


def _compile(source: str, folder: Path, *flags: object) -> Path:
    program = folder / source.removesuffix(".c")
    _run("cc", "-O2", HERE / source, "-o", program, *flags)
    return program


@functools.cache
def _network(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """A network and its inputs, which are equal for all systems: those of input_data in measure.h."""
    if name in networks.ALL:
        model, given = networks.make(name), networks.samples(name)
    else:
        spec = importlib.util.spec_from_file_location("more", HERE.parent.parent / "test" / "python" / "networks.py")
        more = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        spec.loader.exec_module(more)  # type: ignore[union-attr]
        networks.torchvision_models()
        model, make = more.network(name, sys.modules["torchvision"])
        given = make(1)
    return model, tuple(_made_up(x) for x in given)


def _made_up(x: torch.Tensor) -> torch.Tensor:
    if not x.is_floating_point():
        return torch.ones_like(x)
    return torch.from_numpy((np.arange(x.numel()) % 97 / 97).astype(np.float32)).reshape(x.shape)


@functools.cache
def _expected(name: str) -> tuple[torch.Tensor, ...]:
    model, given = _network(name)
    with torch.no_grad():
        return tuple(t for t in torch.utils._pytree.tree_leaves(model(*given)) if isinstance(t, torch.Tensor))


def _shape(name: str) -> list[str]:
    given = _network(name)[1]
    if len(given) > 1 or not given[0].is_floating_point():
        raise RuntimeError("only networks with one input, of real numbers, are measured with this system")
    return [str(n) for n in given[0].shape]


def _onnx(name: str) -> Path:
    path = CACHE / f"{name}.onnx"
    if not path.exists():
        model, given = _network(name)
        names = ([f"in{i}" for i in range(len(given))], [f"out{i}" for i in range(len(_expected(name)))])
        torch.onnx.export(model, given, str(path), dynamo=False, input_names=names[0], output_names=names[1])
    return path


def sol(name: str, **keys: str) -> Command:
    import sol as system

    folder = CACHE / "-".join(["sol", name, *keys.values()])
    if not (folder / "libnet.so").exists():
        dargs = {"path": folder, "lib_name": "libnet", "func_name": "net", **keys}
        model, given = _network(name)
        system.deploy(model, "shared_lib", dargs, *given)
    program = _compile("sol.c", folder, f"-I{folder}", f"-L{folder}", "-l:libnet.so", f"-Wl,-rpath,{folder}")
    return [str(program)], []


def sol_ahead(name: str) -> Command:
    return sol(name, pack="ahead")


def onnxruntime(name: str) -> Command:
    library = next((_folder("onnxruntime") / "capi").glob("libonnxruntime.so.*"))
    named = CACHE / "libonnxruntime.so.1"  # the name that the program loads
    if not named.exists():
        named.symlink_to(library)
    program = _compile("onnxruntime.c", CACHE, named, f"-Wl,-rpath,{CACHE}")
    model = _onnx(name)
    types = {torch.float32: "f32", torch.int64: "i64"}
    inputs = [f"{types[x.dtype]}:{','.join(map(str, x.shape))}" for x in _network(name)[1]]
    return [str(program), "THREADS", "SECONDS", str(model), str(len(_expected(name))), *inputs], [model]


def openvino(name: str) -> Command:
    root = _folder("openvino")
    library, model = next((root / "libs").glob("libopenvino_c.so*")), CACHE / f"{name}.xml"
    if not model.exists():
        import openvino as system

        system.save_model(system.convert_model(str(_onnx(name))), str(model), compress_to_fp16=False)
    program = _compile("openvino.c", CACHE, f"-I{root / 'include'}", library, f"-Wl,-rpath,{library.parent}")
    shape = _shape(name)
    command = [str(program), "THREADS", "SECONDS", str(model), str(_network(name)[1][0].numel()), *shape]
    return command, [model, model.with_suffix(".bin")]


def _by_python(system: str, name: str, model: str) -> list[str]:
    return [sys.executable, str(HERE / "by_python.py"), system, "THREADS", "SECONDS", model, *_shape(name)]


def ncnn(name: str) -> Command:
    _folder("ncnn")
    folder = CACHE / f"ncnn-{name}"
    folder.mkdir(exist_ok=True)
    if not (folder / "m.ncnn.bin").exists():
        torch.jit.trace(*_network(name)).save(str(folder / "m.pt"))
        shape = f"inputshape=[{','.join(_shape(name))}]f32"
        tools = f"{Path(sys.executable).parent}:{HERE.parent.parent / '.venv' / 'bin'}"
        _run(shutil.which("pnnx", path=tools) or "pnnx", folder / "m.pt", shape, "fp16=0")
    return _by_python("ncnn", name, str(folder / "m.ncnn")), [folder / "m.ncnn.param", folder / "m.ncnn.bin"]


def iree(name: str) -> Command:
    root, model = _folder("iree.compiler"), CACHE / f"{name}.vmfb"
    if not model.exists():
        text = CACHE / f"{name}.mlir"
        _run(sys.executable, "-m", "iree.compiler.tools.import_onnx", _onnx(name), "-o", text, "--opset-version", "17")
        device = ("--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu")
        best = ("--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3", "--iree-opt-data-tiling")
        _run(root / "_mlir_libs" / "iree-compile", *device, *best, text, "-o", model)
    return _by_python("iree", name, str(model)), [model]


def litert(name: str) -> Command:
    _folder("ai_edge_litert")
    model = CACHE / f"{name}.tflite"
    if not model.exists():
        import litert_torch

        litert_torch.convert(*_network(name)).export(str(model))
    return _by_python("litert", name, str(model)), [model]


SYSTEMS: dict[str, Callable[[str], Command]] = {
    "sol": sol,
    "sol-ahead": sol_ahead,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "ncnn": ncnn,
    "iree": iree,
    "litert": litert,
}


# -- measuring


def once(command: list[str], threads: int, seconds: float) -> dict[str, object]:
    if "THREADS" not in command:
        command = [*command, "THREADS", "SECONDS"]
    words = [{"THREADS": str(threads), "SECONDS": str(seconds)}.get(c, c) for c in command]
    done = subprocess.run(words, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "failed")
    return json.loads(done.stdout.splitlines()[-1])


def shipped(found: dict[str, object], model: list[Path]) -> tuple[int, int, list[str]]:
    """Bytes and number of shipped files, and the system libraries that are needed besides libc and libm."""
    mapped = [Path(str(f)).resolve() for f in found["files"]]  # type: ignore[attr-defined]
    libraries = {
        f for f in mapped if ".so" in f.name and not str(f).startswith(("/usr/", "/lib")) and "dynload" not in str(f)
    }
    needed = set()
    for file in libraries:
        said = subprocess.run(["readelf", "-d", file], text=True, capture_output=True).stdout
        needed |= set(re.findall(r"NEEDED.*\[(.*)\.so", said))
    needed -= {f.name.split(".so")[0] for f in libraries} | EVERYWHERE
    own = libraries | {f.resolve() for f in model}
    return sum(f.stat().st_size for f in own), len(own), sorted(needed)


def prepare(name: str, systems: list[str]) -> dict[str, Command]:
    ready = {}
    for system in systems:
        try:
            ready[system] = SYSTEMS[system](name)
        except Exception as error:  # a peer that fails is reported, and the run continues
            print(f"{name}: {system}: {type(error).__name__}: {str(error).splitlines()[0][:120]}", flush=True)
    return ready


def network(name: str, systems: list[str], rounds: int, seconds: float, threads: int) -> None:
    ready = prepare(name, systems)
    expected = _expected(name)[0].reshape(-1)[:4].numpy()
    runs: dict[str, list[dict[str, object]]] = {s: [] for s in ready}
    for _ in range(rounds):
        for system, (command, _) in ready.items():
            try:
                runs[system].append(once(command, threads, seconds))
            except RuntimeError as error:
                print(f"{name}: {system}: {error}", flush=True)
    print(
        f"\n| {name} | MB | files | needs | ready ms | first call ms | call ms | CPU ms | peak MiB |\n| --- |{' ---: |' * 8}"
    )
    for system, found in runs.items():
        if not found:
            continue
        if not np.allclose(
            np.array(found[0]["result"])[: len(expected)], expected, rtol=1e-3, atol=1e-3 * abs(expected).max()
        ):
            print(f"{name}: {system}: gives {found[0]['result']}, expected {expected}", flush=True)
            continue
        size, files, needed = shipped(found[0], ready[system][1])
        m = {k: statistics.median(float(str(f[k])) for f in found) for k in ("ready", "first", "call", "cpu", "peak")}
        print(
            f"| {system} | {size / 1e6:.1f} | {files} | {', '.join(needed) or '-'} | {m['ready']:.1f} | {m['first']:.1f} "
            f"| {m['call']:.3g} | {m['cpu']:.3g} | {m['peak']:.0f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--prepare", action="store_true", help="only make what is measured")
    o = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    for name in o.networks:
        if o.prepare:
            prepare(name, o.systems)
        else:
            network(name, o.systems, o.rounds, o.seconds, o.threads)


if __name__ == "__main__":
    main()
