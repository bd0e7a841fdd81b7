"""Runs one layer, or a graph given as text, with the interpreter of sol-opt."""

import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
NAMES = {
    "bool": "bool",
    "uint8": "u8",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "float32": "f32",
    "float64": "f64",
}


class Rejected(Exception):
    """sol-opt rejected the graph; the text is its message."""


def tool() -> str:
    """The sol-opt to use: SOL_OPT, or the one of the build folder."""
    return os.environ.get("SOL_OPT", str(ROOT / "build" / "cli" / "sol-opt"))


def value(v) -> str:
    if isinstance(v, (list, tuple)):
        return "[" + ",".join(value(x) for x in v) + "]"
    if isinstance(v, bool):
        return str(int(v))
    if isinstance(v, str):
        return f'"{v}"'
    return repr(v)


def typed(number: int, a: np.ndarray) -> str:
    return f"%{number}:{NAMES[str(a.dtype)]}[{' '.join(map(str, a.shape))}]"


def layer_text(kind: str, inputs, attrs, nout: int) -> str:
    """A graph of one layer. Inputs that are None are missing."""
    lines, refs = ['graph "one"'], []
    for i, a in enumerate(inputs):
        refs.append("-" if a is None else f"%{i}")
        if a is not None:
            lines.append(f'input {typed(i, a)} "i{i}"')
    outs = [f"%{100 + i}" for i in range(nout)]
    words = "".join(f" {k}={value(v)}" for k, v in attrs.items())
    lines.append(f"{', '.join(outs)} = {kind}({', '.join(refs)}){words}")
    lines += [f'output {o} "y{i}"' for i, o in enumerate(outs)]
    return "\n".join(lines) + "\n"


def call(text: str, *options: str) -> str:
    done = subprocess.run([tool(), *options, "-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode == 1:
        raise Rejected(done.stderr)
    assert done.returncode == 0, f"sol-opt ended with {done.returncode}: {done.stderr}\n{text}"
    return done.stdout


def evaluate(text: str, arrays, nout: int, *options: str) -> list[np.ndarray]:
    """The outputs of a graph, computed by the interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for i, a in enumerate(arrays):
            files.append(os.path.join(folder, f"in{i}.npy"))
            np.save(files[-1], np.ascontiguousarray(a).reshape(a.shape))
        call(text, *options, "--out", os.path.join(folder, "out"), "--interpret", *files, "--work")
        return [np.load(os.path.join(folder, f"out{i}.npy")) for i in range(nout)]


def run_layer(kind: str, inputs, attrs, nout: int = 1) -> list[np.ndarray]:
    inputs = [None if a is None else np.asarray(a) for a in inputs]
    return evaluate(layer_text(kind, inputs, attrs, nout), [a for a in inputs if a is not None], nout)
