"""Reads the inputs and outputs of an ONNX model. It parses only the necessary fields of the protobuf messages, without
the weights, and does not need the package `onnx`."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from . import _core

TYPES = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
         11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16"}  # fmt: skip


@dataclass
class Described:
    """An input or output of a model. An open size is its name, or None. A type that is not a tensor is None."""

    name: str
    shape: tuple[int | str | None, ...] | None
    dtype: str | None = None

    def __str__(self) -> str:
        if self.shape is None:
            return self.name
        return f"{self.name}[{', '.join('*' if n is None else str(n) for n in self.shape)}]"


@dataclass(frozen=True)
class Source:
    """A model: a file, or its bytes. `label` is its name in messages."""

    label: str
    data: str | bytes

    @property
    def name(self) -> str:
        """The file's name, without folders."""
        return os.path.basename(self.label)

    @contextmanager
    def bytes(self) -> Iterator[memoryview]:
        """All bytes of the model; a file is mapped."""
        if isinstance(self.data, bytes):
            yield memoryview(self.data)
            return
        with (
            open(self.data, "rb") as f,
            mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as file,
            memoryview(file) as data,
        ):
            yield data


def is_model(model: Any) -> bool:
    """Whether this is a path, bytes, or an onnx.ModelProto."""
    return isinstance(model, str | os.PathLike | bytes | bytearray | memoryview) or _is_proto(model)


def _is_proto(model: Any) -> bool:
    return type(model).__name__ == "ModelProto" and hasattr(model, "SerializeToString")


def source_of(model: Any) -> Source:
    """Wraps the path of a file, its bytes, or an onnx.ModelProto."""
    if _is_proto(model):
        try:
            return Source(f"ModelProto {model.graph.name!r}", model.SerializeToString())
        except Exception as e:  # raised by protobuf for models larger than 2 GiB
            raise _core.InvalidError(
                f"ModelProto {model.graph.name!r}: protobuf cannot serialize it: {e}; save it with "
                "onnx.save(model, path, save_as_external_data=True) and give the path"
            ) from e
    if isinstance(model, bytes | bytearray | memoryview):
        return Source("ONNX model", bytes(model))
    path = os.fspath(model)
    if not os.path.isfile(path):
        raise _core.FileError(f"{path}: there is no such file")
    return Source(path, path)


def describe(source: Source) -> tuple[list[Described], list[Described]]:
    """Returns the inputs of a model (without weights) and its outputs."""
    size = len(source.data) if isinstance(source.data, bytes) else os.path.getsize(source.data)
    if not size:
        raise _core.InvalidError(f"{source.label}: is empty, not an ONNX model")
    found = _described(source)
    if found is None:
        raise _core.InvalidError(f"{source.label}: is not an ONNX model, or it is damaged")
    return found


def untrained(source: Source) -> set[str]:
    """The names of tensors that no training changes: constants of nodes, and means and variances of batch normalization."""
    with source.bytes() as data:
        return _untrained(data)


def _untrained(model: memoryview) -> set[str]:
    found: set[str] = set()
    for node in (node for graph in _all(model, 7) for node in _all(graph, 1)):
        kinds = [bytes(kind) for kind in _all(node, 4)]
        names = _all(node, 1)[3:5] if b"BatchNormalization" in kinds else _all(node, 2) if b"Constant" in kinds else []
        found |= {bytes(name).decode() for name in names}
    return found


def _described(source: Source) -> tuple[list[Described], list[Described]] | None:
    """None: not a model. (An exception would keep views of the file, which is closed here.)"""
    with source.bytes() as data:
        try:
            return _inputs_and_outputs(data)
        except (IndexError, UnicodeDecodeError):
            return None


def _inputs_and_outputs(model: memoryview) -> tuple[list[Described], list[Described]]:
    graphs = _all(model, 7)
    inputs = [i for graph in graphs for i in _inputs(graph)]
    return inputs, [_value(info) for graph in graphs for info in _all(graph, 12)]


def _inputs(graph: memoryview) -> list[Described]:
    weights = {bytes(name).decode() for tensor in _all(graph, 5) for name in _all(tensor, 8)}
    return [i for i in map(_value, _all(graph, 11)) if i.name not in weights]


def _value(info: memoryview) -> Described:
    """Reads a ValueInfoProto."""
    tensors = [tensor for kind in _all(info, 2) for tensor in _all(kind, 1)]
    shapes = [shape for tensor in tensors for shape in _all(tensor, 2)]
    types = [number for tensor in tensors for number in _all(tensor, 1)]
    return Described(
        bytes(_all(info, 1)[0]).decode(),
        tuple(_size(d) for d in _all(shapes[0], 1)) if shapes else None,
        TYPES.get(types[0]) if types and isinstance(types[0], int) else None,
    )


def _size(dim: memoryview) -> int | str | None:
    for number, value in _fields(dim):
        if number == 1:
            return int(value)
        if number == 2 and len(value):
            return bytes(value).decode()
    return None


def _all(data: memoryview, field: int) -> list[Any]:
    return [value for number, value in _fields(data) if number == field]


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """The field numbers and values of a message. Values are integers, or slices of the data."""
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
