"""SOL for ONNX: `sol.optimize("net.onnx")` is a function on NumPy arrays. `import sol.onnx as sol` has the functions of `sol`."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import sol as _sol

# isort: split
from sol import *  # noqa: F403
from sol import _core, log
from sol.inputs import Input

__all__ = [*_sol.__all__, "Network", "load"]

_NUMPY = {"bool": "bool", "u8": "uint8", "i8": "int8", "u16": "uint16", "i16": "int16", "u32": "uint32", "i32": "int32",
          "u64": "uint64", "i64": "int64", "f16": "float16", "f32": "float32", "f64": "float64"}  # fmt: skip


# -- what a file says of its inputs: the few fields of its protobuf messages that are needed, without reading the weights


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Numbers and values of a message's fields: numbers, or slices of the data."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            yield key >> 3, data[at : at + size]
            at += size
        elif kind == 2:
            size = varint()
            if size > len(data) - at:
                raise IndexError
            yield key >> 3, data[at : at + size]
            at += size
        else:
            raise IndexError


def _all(data: memoryview, field: int) -> list[Any]:
    return [value for number, value in _fields(data) if number == field]


@dataclass
class Described:
    """An input as the file describes it; an open size is its name, or None."""

    name: str
    shape: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        if self.shape is None:
            return self.name
        return f"{self.name}[{', '.join('*' if n is None else str(n) for n in self.shape)}]"


def describe(path: str) -> list[Described]:
    """The inputs of a model: those that are not weights."""
    if not os.path.getsize(path):
        raise _core.InvalidError(f"{path}: is empty, not an ONNX model")
    found = _described(path)
    if found is None:
        raise _core.InvalidError(f"{path}: is not an ONNX model, or it is damaged")
    return found


def _described(path: str) -> list[Described] | None:
    """None: it is no model. An exception would keep views of the file that is closed here."""
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as file, memoryview(file) as data:
        try:
            return [i for graph in _all(data, 7) for i in _inputs(graph)]
        except (IndexError, UnicodeDecodeError):
            return None


def _inputs(graph: memoryview) -> list[Described]:
    weights = {bytes(name).decode() for tensor in _all(graph, 5) for name in _all(tensor, 8)}
    found = []
    for info in _all(graph, 11):
        name = bytes(_all(info, 1)[0]).decode()
        if name not in weights:
            shapes = [s for kind in _all(info, 2) for tensor in _all(kind, 1) for s in _all(tensor, 2)]
            found.append(Described(name, tuple(_size(d) for d in _all(shapes[0], 1)) if shapes else None))
    return found


def _size(dim: memoryview) -> int | str | None:
    for number, value in _fields(dim):
        if number == 1:
            return int(value)
        if number == 2 and len(value):
            return bytes(value).decode()
    return None


# -- the function


class Network:
    """An ONNX model as a function on arrays: in the order of its inputs, by keyword, or as one dict of names and arrays.

    Sizes that the model leaves open may differ from call to call; each combination is compiled when it first comes.
    """

    def __init__(self, path: str, described: Sequence[Described]) -> None:
        self.path = path
        self.inputs = tuple(described)
        self._nets: dict[Any, _core.Net] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"sol.onnx.Network({self.path!r}: {self._list()})"

    def _list(self) -> str:
        return ", ".join(map(str, self.inputs)) or "no inputs"

    def prepare(self, shapes: dict[str, tuple[int, ...]]) -> _core.Net:
        """Compiles for these shapes."""
        key = tuple(sorted(shapes.items()))
        with self._lock:
            if key not in self._nets:
                net = _core.Onnx(self.path, self.sizes(shapes)).compile()
                log.memory("Inference", net.memory, os.path.basename(self.path))
                self._nets[key] = net
        return self._nets[key]

    def sizes(self, shapes: dict[str, tuple[int, ...]]) -> dict[str, int]:
        """Open sizes by "input.axis"."""
        sizes = {}
        for i in self.inputs:
            shape = shapes.get(i.name)
            if shape is None or i.shape is None:
                continue
            if len(shape) != len(i.shape):
                raise _core.InvalidError(
                    f"{self.path}: input {i}: expected {len(i.shape)} dimensions, got {list(shape)}"
                )
            for axis, (given, said) in enumerate(zip(shape, i.shape, strict=True)):
                if isinstance(said, int) and given != said:
                    raise _core.InvalidError(
                        f"{self.path}: input {i}: expected size {said} in dimension {axis}, got {given}"
                    )
                if not isinstance(said, int):
                    sizes[f"{i.name}.{axis}"] = given
        return sizes

    def named(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by the names of the inputs. One dict alone is taken as names and values."""
        if len(args) == 1 and isinstance(args[0], dict):
            return self.named((), {**args[0], **kwargs})
        if len(args) > len(self.inputs):
            count = f"{len(self.inputs)} input{'s' if len(self.inputs) != 1 else ''}"
            raise _core.InvalidError(f"{self.path}: expected {count} ({self._list()}), got {len(args)}")
        values = {i.name: a for i, a in zip(self.inputs, args, strict=False)}
        for name, value in kwargs.items():
            if name in values:
                raise _core.InvalidError(f"{self.path}: input {name!r} is given twice, by its place and by its name")
            if name not in {i.name for i in self.inputs}:
                raise _core.InvalidError(f"{self.path}: there is no input {name!r}; there are {self._list()}")
            values[name] = value
        return values

    def _array(self, name: str, value: Any) -> np.ndarray[Any, Any]:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            kind = f"an array of {array.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
            raise _core.InvalidError(f"{self.path}: input {name}: expected an array of numbers, got {kind}")
        return array

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs for these arrays: one array, or a tuple."""
        values = {name: self._array(name, v) for name, v in self.named(args, kwargs).items()}
        missing = [str(i) for i in self.inputs if i.name not in values]
        if missing:
            raise _core.InvalidError(f"{self.path}: inputs that are missing: {', '.join(missing)}")
        net = self.prepare({name: v.shape for name, v in values.items()})
        arrays = []
        for name, dtype, shape in net.inputs:
            v = values[name]
            if v.dtype != _NUMPY.get(dtype) or v.shape != shape:
                raise _core.InvalidError(
                    f"{self.path}: input {name}: expected {_NUMPY.get(dtype)}{list(shape)}, got {v.dtype}{list(v.shape)}"
                )
            arrays.append(np.ascontiguousarray(v))
        outputs = tuple(np.empty(shape, _NUMPY[dtype]) for _, dtype, shape in net.outputs)
        net.run(tuple(arrays), outputs)
        return outputs[0] if len(outputs) == 1 else outputs


def load(
    path: str, *inputs: Any, batch_size: int | None = None, framework: str | None = None, **kwargs: Any
) -> Network:
    """Reads a model. Compiles it at once if the shapes are known: from the file, the inputs given here, or batch_size."""
    if framework not in (None, "numpy"):
        raise _core.UnsupportedError(f"framework {framework!r}: an ONNX model becomes a function on NumPy arrays")
    network, shapes = _shaped(path, inputs, kwargs, batch_size)
    if all(_is_known(s) for s in shapes.values()):
        network.prepare(shapes)
    return network


def _shaped(
    path: str, inputs: Sequence[Any], kwargs: dict[str, Any], batch_size: int | None
) -> tuple[Network, dict[str, Any]]:
    """A model, and the shapes of its inputs as far as the file, the inputs given and batch_size say them."""
    if not os.path.isfile(path):
        raise _core.FileError(f"{path}: there is no such file")
    network = Network(path, describe(path))
    shapes: dict[str, Any] = {i.name: i.shape for i in network.inputs}
    for name, value in network.named(inputs, kwargs).items():
        shapes[name] = (
            value.sized(1 if batch_size is None else batch_size) if isinstance(value, Input) else np.shape(value)
        )
    if batch_size is not None:
        for name, shape in shapes.items():
            if shape and not isinstance(shape[0], int):
                shapes[name] = (batch_size, *shape[1:])
    return network, shapes


def _is_known(shape: Any) -> bool:
    return shape is not None and all(isinstance(n, int) for n in shape)


def sized(path: str, inputs: Sequence[Any], kwargs: dict[str, Any], batch_size: int | None) -> _core.Onnx:
    """A model with all its sizes known, to be deployed."""
    network, shapes = _shaped(path, inputs, kwargs, batch_size)
    if batch_size is not None:
        given = [i.name for i in network.inputs if i.shape is None or not all(isinstance(n, int) for n in i.shape[:1])]
        if not given:
            raise _core.InvalidError(f"{path}: batch_size: no input leaves its first size open: {network._list()}")
        shapes.update({name: (batch_size, *shapes[name][1:]) for name in given if shapes[name]})
    return _core.Onnx(path, network.sizes({n: s for n, s in shapes.items() if _is_known(s)}))
