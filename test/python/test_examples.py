"""The examples work, and the installed files suffice to build the one in C."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sol

import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent.parent
# difference from NumPy, from PyTorch
LARGEST = {
    "extend.py": 1e-5,
    "extend_onnx.py": 1e-5,
    "onnx_numpy.py": 1e-5,
    "onnxruntime_provider.py": 1e-5,
    "pytorch_model.py": 1e-5,
}


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "SOL_CACHE": sol.config["cache::folder"], **more}


def output_of(command: list[str], **more: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=environment(**more), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", LARGEST)
def test_python(name: str) -> None:
    printed = output_of([sys.executable, str(ROOT / "examples" / name)])
    differences = [float(x) for x in re.findall(r"\d\S*$", printed, re.M)]
    assert differences, printed
    assert max(differences) < LARGEST[name], printed


ON_DEVICES = {"host": ("", "cpu"), "transparent": ('sol.device.set("far", 0)', "cpu"), "native": ("", "sol")}


@pytest.mark.parametrize("line, device", ON_DEVICES.values(), ids=ON_DEVICES)
def test_training(tmp_path: Path, line: str, device: str) -> None:
    """On the host, and on a device with one changed line."""
    source = (ROOT / "examples/train_digits.py").read_text()
    assert source.count("\n\n# -- data\n") == 1
    program = tmp_path / "train_digits.py"
    program.write_text(source.replace("\n\n# -- data\n", f"\n{line}\n# -- data\n"))
    few = [
        "--steps",
        "25",
        "--seeds",
        "2",
        "--networks",
        "mlp",
        "--optimizers",
        "adam",
        "--out",
        str(tmp_path / "curves.svg"),
        "--device",
        device,
    ]
    more = {"SOL_DEVICE": "far"} if device == "sol" else {}
    printed = output_of([sys.executable, str(program), *few], **more)
    low, high, ours, most = map(float, re.findall(r"\d\.\d{4}", printed))
    assert abs(ours - low) < 0.02 and abs(most - high) < 0.02, printed
    assert (tmp_path / "curves.svg").read_text().count("<polyline") == 4


def test_training_in_two_processes() -> None:
    printed = output_of(
        [sys.executable, str(ROOT / "examples/train_distributed.py"), "--steps", "10"],
        SOL_DEVICE="far",
        SOL_AUTOTUNE="off",
    )
    assert float(printed.split()[-1]) < 1e-6, printed
    first, last = map(float, re.findall(r"\d\.\d{4}", printed)[:2])
    assert last < first, printed


def test_any_size(tmp_path: Path) -> None:
    printed = output_of(
        [sys.executable, str(ROOT / "examples/any_size.py"), "--folder", str(tmp_path / "s")], SOL_AUTOTUNE="off"
    )
    said = [line.partition(" words: ")[::2] for line in printed.splitlines() if " words: " in line]
    assert [n for n, _ in said] == ["5", "1", "17", "64", "2", "65"]
    assert [text for _, text in said] == ["the same tags as PyTorch"] * 5 + ["tagger: 'steps' is 65, expected 1..64"]


def write_network(path: Path) -> np.ndarray:
    """Saves a small network, and returns its result for the input of inference.c: i / n."""
    weight = np.linspace(-1, 2, 32, dtype=np.float32).reshape(8, 4)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "two_layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return np.maximum(np.arange(16, dtype=np.float32).reshape(2, 8) / 16 @ weight, 0).ravel()


def test_c_and_what_is_installed(tmp_path: Path) -> None:
    """After `meson install`: pkg-config, the compiler and the installed command, without anything else of SOL."""
    if not (ROOT / "build/build.ninja").exists() or not shutil.which("pkg-config"):
        pytest.skip("needs build/ and pkg-config")
    meson = [sys.executable, "-m", "mesonbuild.mesonmain"]
    output_of([*meson, "install", "-C", str(ROOT / "build"), "--no-rebuild", "--destdir", str(tmp_path)])
    prefix = tmp_path / "usr/local"
    library = next(prefix.rglob("libsol.so")).parent
    flags = output_of(
        ["pkg-config", "--cflags", "--libs", "sol"],
        PKG_CONFIG_PATH=str(library / "pkgconfig"),
        PKG_CONFIG_SYSROOT_DIR=str(tmp_path),
    ).split()
    program, network = tmp_path / "inference", tmp_path / "net.onnx"
    output_of(["cc", "-Wall", "-Werror", str(ROOT / "examples/inference.c"), *flags, "-o", str(program)])
    expected = write_network(network)
    printed = output_of([str(program), str(network)], LD_LIBRARY_PATH=str(library))
    values = [float(x) for x in re.findall(r"= (\S+)", printed)]
    assert np.allclose(values, expected[: len(values)], atol=1e-5), (printed, expected)
    assert len(values) == 5
    assert "MatMul" in output_of([str(prefix / "bin/sol"), "info", str(network)], LD_LIBRARY_PATH=str(library))
    page = prefix / "share/man/man1/sol.1"
    if shutil.which("groff"):
        done = subprocess.run(
            ["groff", "-man", "-ww", "-Tutf8", str(page)], capture_output=True, text=True, check=False
        )
        assert not done.stderr, done.stderr
        assert "User Commands" in done.stdout
    for header in ("sol.h", "onnx.h"):  # each header alone, as C and as C++
        for language in ("c", "c++"):
            if language == "c++" and not shutil.which("c++"):
                continue
            output_of(
                [
                    "cc",
                    f"-I{prefix / 'include'}",
                    "-Wall",
                    "-Wextra",
                    "-Werror",
                    "-fsyntax-only",
                    "-x",
                    language,
                    str(prefix / "include/sol" / header),
                ]
            )
