#!/usr/bin/env python3
"""Compiles the kernels of networks for NVIDIA's sm_80 and sm_90 with NVRTC, without a graphics card, and writes their registers and spills
into the table of docs/nvidia.md. Run by `make nvidia-table`; arguments name networks of the tests (test/python/every_network.py): only
their rows change.

SOL prints the code of each network for the double of libcuda (test/nvidia), which takes it without compiling, so its kernels do nothing.
"""

import argparse
import copy
import ctypes
import glob
import os
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/nvidia.md"
DOUBLE = ROOT / "build/test/libcuda_double.so"
ARCHS = ("sm_80", "sm_90")
HEAD = "| network | kernels | registers, most (median) | kernels that spill, bytes at most |\n|---|---|---|---|\n"


def nvrtc() -> ctypes.CDLL:
    for folder in (*glob.glob(str(ROOT / ".venv-nvidia/lib/python3*/site-packages")), *sys.path):
        for path in glob.glob(f"{folder}/nvidia/*/lib/libnvrtc.so.1[0-9]"):
            return ctypes.CDLL(path)
    return ctypes.CDLL("libnvrtc.so.13")


def compiled(lib: ctypes.CDLL, text: str, arch: str) -> list[tuple[int, int]]:
    """By kernel, the registers of a thread and the bytes that are spilled."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17", b"-w", b"--ptxas-options=-v"]
    lib.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None)
    error = lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetProgramLog(program, log)
    lib.nvrtcDestroyProgram(ctypes.byref(program))
    said = log.value.decode()
    if error:
        raise ValueError(f"{arch}: NVRTC (error {error}): {said[:2000]}")
    found = re.findall(
        r"Compiling entry.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers", said, re.S
    )
    if len(found) != text.count("__global__ void"):
        raise ValueError(f"{arch}: {text.count('__global__ void')} kernels, and facts about {len(found)}")
    return [(int(r), int(stored) + int(read)) for stored, read, r in found]


def texts(name: str) -> list[str]:
    """The code of a network for inference and for a step of training, each text once."""
    import every_network
    import families
    import sol
    import torchvision

    picture = (96, 96) if name == "inception_v3" else (64, 64)
    model, args, kwargs = every_network.made(name, torchvision, picture)
    found: list[set[str]] = []
    for train in (False,) if name in families.TRAINED_ONLY else (False, True):
        with tempfile.TemporaryDirectory() as folder:
            sol.config["cache::folder"] = folder
            optimized = sol.optimize(copy.deepcopy(model))
            try:
                (every_network.gradients if train else every_network.results)(optimized, args, kwargs)
            except Exception as e:  # of data that no kernel has written
                print(f"{name}: {e}", file=sys.stderr)
            found.append({p.read_text() for p in Path(folder).glob("nvidia/source/*.cu")})
    if not all(found) or (found[0] == found[-1] and len(found) > 1):
        raise ValueError("SOL wrote no code" if not all(found) else "SOL wrote no code for backward")
    return sorted(set().union(*found))


def row(lib: ctypes.CDLL, name: str) -> str:
    code = texts(name)
    registers, spills, kernels = [], [], 0
    for arch in ARCHS:
        facts = [f for t in code for f in compiled(lib, t, arch)]
        kernels = len(facts)
        sizes = sorted(r for r, _ in facts)
        spilled = [s for _, s in facts if s]
        registers.append(f"{sizes[-1]} ({sizes[len(sizes) // 2]})")
        spills.append(f"{len(spilled)}, {max(spilled, default=0)}" if spilled else "none")
    return f"| {name} | {kernels} | {', '.join(registers)} | {'; '.join(spills)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", nargs="*", help="the default: all")
    parser.add_argument("--page", type=Path, default=PAGE, help="the file with the table")
    args = parser.parse_args()
    os.environ.update(
        SOL_DEVICE="nvidia", SOL_AUTOTUNE="off", SOL_MACHINE="assumed", SOL_LOG="ERROR", SOL_CUDA_DOUBLE="compile=0",
        SOL_DEVICE_OPTIONS=f"nvidia.libcuda={DOUBLE},nvidia.nvrtc={DOUBLE}",
    )  # fmt: skip
    sys.path[:0] = [str(ROOT / "python"), str(ROOT / "test/python"), str(ROOT / "test")]
    import every_network
    import sol
    import torch

    operators = torch.library.Library("torchvision", "DEF")  # which its wheel wants beside a CPU build of torch
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    sol.config["compiler::debug"] = 1
    lib = nvrtc()
    bad, everything = 0, list(dict.fromkeys(every_network.ALL))
    for name in args.network or everything:
        try:
            made = row(lib, name)
        except Exception as e:
            print(f"{name}: {e}", file=sys.stderr, flush=True)
            bad += 1
            continue
        before, table, after = re.split(
            r"(?s)(?<=<!-- table -->\n)(.*?)(?=<!-- end -->)", args.page.read_text(), maxsplit=1
        )
        rows = {line.split("|")[1].strip(): line for line in table.splitlines()[2:]}
        rows[name] = made
        args.page.write_text(before + HEAD + "".join(rows[n] + "\n" for n in everything if n in rows) + after)
        print(made, flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(main())
