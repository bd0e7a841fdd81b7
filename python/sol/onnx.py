"""SOL for ONNX: `sol.optimize("net.onnx")` is a function on NumPy arrays. `import sol.onnx as sol` has the functions of `sol`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import sol as _sol

# isort: split
from sol import *  # noqa: F403
from sol import _core, log
from sol.inputs import Input
from sol.onnx_file import Described, Source, describe, source_of
from sol.programs import Programs

__all__ = [*_sol.__all__, "Network", "load"]

_NUMPY = {"bool": "bool", "u8": "uint8", "i8": "int8", "u16": "uint16", "i16": "int16", "u32": "uint32", "i32": "int32",
          "u64": "uint64", "i64": "int64", "f16": "float16", "f32": "float32", "f64": "float64"}  # fmt: skip
_CORE = {name: core for core, name in _NUMPY.items()}

Shapes = dict[str, tuple[int, ...]]


class Network:
    """An ONNX model as a function on arrays. Arrays are passed in the order of its inputs, by keyword, or as one dict.

    Sizes that the model leaves open may differ from call to call. SOL compiles each combination at its first call and
    keeps the 16 programs used last. Any number of threads may call the function.

    `inputs` and `outputs` describe its arguments and results: name, shape (an open size is its name, or None) and dtype.
    """

    def __init__(self, source: Source, fix: Mapping[str, Any] | None = None) -> None:
        self.source = source
        self.path = source.label
        inputs, outputs = describe(source)
        self._fixed_sizes: dict[str, int] = {}
        self._fixed_values: dict[str, np.ndarray[Any, Any]] = {}
        self._take_fixed(inputs, fix or {})
        self.inputs = tuple(self._with_sizes(i) for i in inputs if i.name not in self._fixed_values)
        self.outputs = tuple(self._with_sizes(o) for o in outputs)
        self._programs: Programs[_core.Net] = Programs(os.path.basename(self.path), self._compile, _bytes)
        self._peak = -1  # of the programs until now

    def __repr__(self) -> str:
        return f"sol.onnx.Network({self.path!r}: {self._list()})"

    def _list(self) -> str:
        return ", ".join(map(str, self.inputs)) or "no inputs"

    # -- fixed sizes and values

    def _take_fixed(self, inputs: Sequence[Described], fix: Mapping[str, Any]) -> None:
        sizes = list(dict.fromkeys(_open_name(i, axis) for i in inputs for axis in _open_axes(i)))
        names = {i.name: i for i in inputs}
        for name, value in fix.items():
            if name in names:
                self._fixed_values[name] = self._array(name, value, names[name].dtype)
            elif name not in sizes:
                raise _core.InvalidError(
                    f"{self.path}: fix={{{name!r}: ..}}: expected an open dimension ({', '.join(sizes) or 'there is none'}) "
                    f"or an input ({', '.join(map(str, inputs)) or 'there is none'})"
                )
            elif isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
                raise _core.InvalidError(f"{self.path}: fix={{{name!r}: ..}}: expected a size from 0 on, got {value!r}")
            else:
                self._fixed_sizes[name] = int(value)

    def _with_sizes(self, d: Described) -> Described:
        """The shape with the fixed sizes filled in."""
        fixed = {axis: self._fixed_sizes.get(_open_name(d, axis)) for axis in _open_axes(d)}
        shape = d.shape and tuple(n if fixed.get(axis) is None else fixed[axis] for axis, n in enumerate(d.shape))
        return Described(d.name, shape, d.dtype)

    # -- programs

    def prepare(self, shapes: Shapes) -> _core.Net:
        """Compiles for these shapes."""
        return self._programs.get(tuple(sorted(shapes.items())))

    def latest(self) -> _core.Net | None:
        """Returns the program used last."""
        return self._programs.latest()

    def memory(self) -> dict[str, int]:
        """Returns the memory of the program used last; see `sol.memory`."""
        net = self.latest()
        if net is None:
            raise _core.InvalidError(
                f"sol.memory: {self.path}: not compiled yet, for it leaves sizes open: call it first, or fix them"
            )
        return net.memory

    def _compile(self, key: Any) -> _core.Net:
        net = self._read(dict(key)).compile()
        if net.memory["peak"] > self._peak:  # services with many shapes compile many programs
            self._peak = net.memory["peak"]
            log.memory("Inference", net.memory, os.path.basename(self.path))
        return net

    def _read(self, shapes: Shapes) -> _core.Onnx:
        """Reads the model with these input shapes."""
        values = {name: (_CORE[v.dtype.name], v.shape, v.tobytes()) for name, v in self._fixed_values.items()}
        return _core.Onnx(self.source.data, {**self._fixed_sizes, **self._sizes(shapes)}, values)

    def _sizes(self, shapes: Shapes) -> dict[str, int]:
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

    # -- calls

    def _named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by input names. A single dict argument contains names and values."""
        if len(args) == 1 and isinstance(args[0], Mapping):
            return self._named((), {**args[0], **kwargs})
        if len(args) > len(self.inputs):
            count = f"{len(self.inputs)} input{'s' if len(self.inputs) != 1 else ''}"
            raise _core.InvalidError(f"{self.path}: expected {count} ({self._list()}), got {len(args)}")
        values = {i.name: a for i, a in zip(self.inputs, args, strict=False)}
        for name, value in kwargs.items():
            if name in values:
                raise _core.InvalidError(f"{self.path}: input {name!r} is given twice, by its place and by its name")
            if name not in {i.name for i in self.inputs}:
                fixed = f"input {name!r} is fixed" if name in self._fixed_values else f"there is no input {name!r}"
                raise _core.InvalidError(f"{self.path}: {fixed}; there are {self._list()}")
            values[name] = value
        return values

    def _array(self, name: str, value: Any, dtype: str | None = None) -> np.ndarray[Any, Any]:
        """Converts an argument to an array; dtype applies to plain numbers."""
        array = np.asarray(value, dtype if isinstance(value, bool | int | float | list | tuple) else None)
        if array.dtype.kind not in "biuf":
            kind = f"an array of {array.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
            raise _core.InvalidError(f"{self.path}: input {name}: expected an array of numbers, got {kind}")
        return array

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Returns the outputs for these arrays: one array, or a tuple.

        out   arrays for the outputs, which are also returned: one, a sequence in the order of the outputs, or a dict by name.
              Outputs missing from a dict get new arrays. (Pass an input named `out` by position or in a dict.)
        """
        values = {name: self._array(name, v) for name, v in self._named(args, kwargs).items()}
        missing = [str(i) for i in self.inputs if i.name not in values]
        if missing:
            raise _core.InvalidError(f"{self.path}: inputs that are missing: {', '.join(missing)}")
        net = self.prepare({name: v.shape for name, v in values.items()})
        inputs = tuple(self._input(values[name], name, dtype, shape) for name, dtype, shape in net.inputs)
        wanted = self._wanted(net, out)
        work = tuple(
            np.empty(shape, _NUMPY[dtype]) if to is None or not _writable_in_place(to, inputs) else to
            for to, (_, dtype, shape) in zip(wanted, net.outputs, strict=True)
        )
        net.run(inputs, work)
        for to, made in zip(wanted, work, strict=True):
            if to is not None and to is not made:
                to[...] = made
        results = tuple(made if to is None else to for to, made in zip(wanted, work, strict=True))
        return results[0] if len(results) == 1 else results

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Any]) -> list[Any]:
        """The same as in ONNX Runtime: returns a list of the named outputs (None: all outputs) for a dict of inputs."""
        known = [o.name for o in self.outputs]
        unknown = [name for name in names or () if name not in known]
        if unknown:
            raise _core.InvalidError(
                f"{self.path}: there is no output {unknown[0]!r}; there are {', '.join(map(str, self.outputs))}"
            )
        result = self(feed)
        by_name = dict(zip(known, result if isinstance(result, tuple) else (result,), strict=True))
        return [by_name[name] for name in (known if names is None else names)]

    def _input(self, v: np.ndarray[Any, Any], name: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        if v.dtype != _NUMPY.get(dtype) or v.shape != shape:
            raise _core.InvalidError(
                f"{self.path}: input {name}: expected {_NUMPY.get(dtype)}{list(shape)}, got {v.dtype}{list(v.shape)}"
            )
        return np.ascontiguousarray(v)

    def _wanted(self, net: _core.Net, out: Any) -> list[np.ndarray[Any, Any] | None]:
        """Checks the user's arrays for the outputs."""
        names = [name for name, _, _ in net.outputs]
        if isinstance(out, Mapping):
            unknown = [name for name in out if name not in names]
            if unknown:
                raise _core.InvalidError(
                    f"{self.path}: out: there is no output {unknown[0]!r}; there are {', '.join(names)}"
                )
            wanted = [out.get(name) for name in names]
        elif isinstance(out, list | tuple):
            wanted = list(out)
        else:
            wanted = [out] if out is not None else [None] * len(names)
        if len(wanted) != len(names):
            raise _core.InvalidError(
                f"{self.path}: out: expected {len(names)} arrays ({', '.join(names)}), got {len(wanted)}"
            )
        for i, (to, (name, dtype, shape)) in enumerate(zip(wanted, net.outputs, strict=True)):
            if to is None:
                continue
            if not isinstance(to, np.ndarray) or to.dtype != _NUMPY[dtype] or to.shape != shape:
                got = f"{to.dtype}{list(to.shape)}" if isinstance(to, np.ndarray) else type(to).__name__
                raise _core.InvalidError(
                    f"{self.path}: out: {name}: expected an array {_NUMPY[dtype]}{list(shape)}, got {got}"
                )
            if not to.flags.writeable:
                raise _core.InvalidError(f"{self.path}: out: {name}: the array is read-only")
            if any(other is not None and np.may_share_memory(to, other) for other in wanted[:i]):
                raise _core.InvalidError(f"{self.path}: out: {name}: the array shares memory with another one")
        return wanted


def _open_axes(d: Described) -> list[int]:
    return [axis for axis, n in enumerate(d.shape or ()) if not isinstance(n, int)]


def _open_name(d: Described, axis: int) -> str:
    """The name of an open dimension: its symbol, or "input.axis"."""
    name = d.shape[axis] if d.shape else None
    return name if isinstance(name, str) else f"{d.name}.{axis}"


def _writable_in_place(to: np.ndarray[Any, Any], inputs: Sequence[np.ndarray[Any, Any]]) -> bool:
    """Whether a network may write directly into this array while it reads the inputs."""
    flags = to.flags
    return flags.c_contiguous and flags.aligned and not any(np.may_share_memory(to, i) for i in inputs)


def _bytes(net: _core.Net) -> int:
    """The memory that a kept program holds."""
    found = net.memory
    return found["params"] + found["prepared"] + found["workspace"]


def load(
    model: Any,
    *inputs: Any,
    batch_size: int | None = None,
    framework: str | None = None,
    fix: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Network:
    """Reads a model. Compiles it immediately if all shapes are known from the file, inputs, batch_size and fix.

    model   the path of a file, its bytes, or an onnx.ModelProto
    fix     sizes of dimensions by name, {"batch": 4}, and values of inputs; shapes may depend on such values, and the
            function no longer has these inputs
    """
    if framework not in (None, "numpy"):
        raise _core.UnsupportedError(f"framework {framework!r}: an ONNX model becomes a function on NumPy arrays")
    network, shapes = _shaped(model, inputs, kwargs, batch_size, fix)
    if all(_is_known(s) for s in shapes.values()):
        network.prepare(shapes)
    return network


def _shaped(
    model: Any,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    batch_size: int | None,
    fix: Mapping[str, Any] | None = None,
) -> tuple[Network, dict[str, Any]]:
    """A model, and the input shapes as far as the file, the given inputs, fix and batch_size determine them."""
    network = Network(source_of(model), fix)
    shapes: dict[str, Any] = {i.name: i.shape for i in network.inputs}
    for name, value in network._named(inputs, kwargs).items():
        shapes[name] = _open_sizes(value, batch_size) if isinstance(value, Input) else np.shape(value)
    if batch_size is not None:
        for name, shape in shapes.items():
            if shape and not isinstance(shape[0], int):
                shapes[name] = (batch_size, *shape[1:])
    return network, shapes


def _open_sizes(value: Input, batch_size: int | None) -> tuple[Any, ...]:
    """The sizes that an input describes; those that vary are unknown, but for the batch."""
    batch = 1 if batch_size is None else batch_size
    return tuple(None if i and value.varies(i) else n for i, n in enumerate(value.sized(batch)))


def _is_known(shape: Any) -> bool:
    return shape is not None and all(isinstance(n, int) for n in shape)


def sized(model: Any, inputs: Sequence[Any], kwargs: Mapping[str, Any], batch_size: int | None) -> _core.Onnx:
    """A model with all sizes known, for deployment."""
    given = dict(kwargs)
    network, shapes = _shaped(model, inputs, given, batch_size, given.pop("fix", None))
    if batch_size is not None:
        open_ = [i.name for i in network.inputs if i.shape is None or not all(isinstance(n, int) for n in i.shape[:1])]
        if not open_:
            raise _core.InvalidError(
                f"{network.path}: batch_size: no input leaves its first size open: {network._list()}"
            )
        shapes.update({name: (batch_size, *shapes[name][1:]) for name in open_ if shapes[name]})
    return network._read({n: s for n, s in shapes.items() if _is_known(s)})


def __getattr__(name: str) -> Any:
    """`Backend`, which needs the package `onnx`."""
    if name == "Backend":
        from sol.onnx_backend import Backend

        return Backend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
