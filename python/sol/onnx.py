"""SOL for ONNX: `sol.optimize("net.onnx")` is a function on NumPy arrays. `import sol.onnx as sol` has the functions of `sol`."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import sol as _sol

# isort: split
from sol import *  # noqa: F403
from sol import _core, log, report
from sol.device import device
from sol.inputs import Dim, Input, vdims_wanted
from sol.onnx_file import Described, Source, describe, source_of
from sol.onnx_outside import register
from sol.parsed import CORE as _CORE
from sol.parsed import NUMPY as _NUMPY
from sol.programs import Programs
from sol.report import Report

__all__ = [*_sol.__all__, "Network", "load", "provider_path", "register"]

Shapes = dict[str, tuple[int, ...]]
Call = Mapping[str, tuple[tuple[int, ...], bytes | None]]  # by input: its shape, and its data if there is little
ALL, SIZED = 1, 2  # ways of onnx_make
MOST_KNOWN = 1 << 12  # shapes of calls to remember
VALUE = "the value of an input, which only a call tells"  # in messages of the reader
MOST_TAKEN = 64  # elements of an argument that shapes may depend on, as the reader says


class Key:
    """What the program for a call depends on: device, shapes, and values of the arguments `valued`, which decide about shapes.
    It brings the call along."""

    def __init__(self, parts: tuple[Any, ...], call: Call, valued: frozenset[str] = frozenset()) -> None:
        self.parts, self.call, self.valued = parts, call, valued

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)


class Program:
    """A program at the sizes of a call."""

    def __init__(self, net: _core.Net, dims: tuple[int, ...] = ()) -> None:
        self.net, self.dims = net, dims
        self.taken = _core.onnx_taken(net)  # arguments whose values it is made for
        self.inputs = [self._sized(io, dims) for io in net.inputs]
        self.outputs = [self._sized(io, dims) for io in net.outputs]  # where most is found, where sizes depend on data
        self.room = net.room(dims)  # by output: elements
        found = {f"#{i}" for i in net.found}
        self.found = [any(found & set(re.findall(r"#\d+", _core.size_text(n))) for n in io[2]) for io in net.outputs]

    def _sized(self, io: tuple[str, str, tuple[int, ...]], dims: tuple[int, ...]) -> tuple[str, str, tuple[int, ...]]:
        name, dtype, shape = io
        return name, dtype, tuple(_core.size_at(n, dims) for n in shape) if dims else shape

    def run(self, inputs: tuple[Any, ...], work: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Runs with memory for the outputs, `room` elements where a size depends on data. Returns them, there the part that the call
        has filled, in memory of its own if that is less than half."""
        dims = self.net.run(inputs, tuple(work), 0, self.dims)
        results = list(work)
        for i, io in enumerate(self.net.outputs):
            if self.found[i] and dims is not None:
                shape = self._sized(io, dims)[2]
                n = math.prod(shape)
                part = work[i][:n].reshape(shape)
                results[i] = part if 2 * n >= work[i].size else part.copy()
        return results

    @property
    def memory(self) -> dict[str, int]:
        return self.net.memory_at(self.dims)


class Doubtful(Exception):
    """There is no program for all sizes because of the model, or because of the first call."""


class Varying:
    """The program for all sizes, or why there is none."""

    def __init__(self, net: _core.Net | None, why: Exception | None = None) -> None:
        self.net, self.why = net, why
        self.known: dict[Key, Program] = {}


class Network:
    """An ONNX model as a function on arrays. Arrays are passed in the order of its inputs, by keyword, or as one dict.

    Sizes that the model leaves open may differ from call to call. One program serves all of them. If there is no such
    program, or if it excludes the sizes of a call, SOL compiles one for these sizes, and keeps the 16 of these that it used
    last. Any number of threads may call the function.

    `inputs` and `outputs` describe its arguments and results: name, shape (an open size is its name, or None) and dtype.
    """

    sol_framework = "onnx"

    def __init__(self, source: Source, fix: Mapping[str, Any] | None = None) -> None:
        self.source = source
        self.path = source.label
        self.name = os.path.basename(self.path)
        self._described = describe(source)
        self._fixed_sizes: dict[str, int] = {}
        self._fixed_values: dict[str, np.ndarray[Any, Any]] = {}
        self._declared: dict[str, Dim] = {}  # open dimensions that the user declared
        self._hints: dict[str, int] = {}  # sizes of examples
        self._varies = True
        self._trains = False  # whether weights are parameters even if they are small
        self._programs: Programs[Program] = Programs(self.name, self._compile, _bytes)
        self._all: Programs[Varying] = Programs(self.name, self._compile_all, lambda program: 0)
        self._asks = False  # whether the program for all sizes needs values of a call
        self._valued: set[str] = set()  # arguments that shapes depend on, as far as programs tell; it only grows
        self._none: Varying | None = None  # why there is no program for all sizes that takes values of a call
        self._latest: Program | None = None
        self._peak = -1  # of the programs until now
        self._fix(fix or {})

    def _fix(self, fix: Mapping[str, Any]) -> None:
        """Fixes sizes and values of inputs, before the first call."""
        inputs, outputs = self._described
        self._take_fixed(inputs, fix)
        self.inputs = tuple(self._with_sizes(i) for i in inputs if i.name not in self._fixed_values)
        self.outputs = tuple(self._with_sizes(o) for o in outputs)

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

    # -- sizes that vary

    @property
    def _open(self) -> bool:
        """Whether sizes are open that may vary between calls, or values are given that sizes may depend on."""
        return self._varies and any(_open_axes(i) or _may_be_sizes(i) for i in self.inputs)

    def _example(self, shapes: Mapping[str, Any]) -> None:
        """Notes shapes of example arguments: the sizes that the program is estimated for."""
        for i in self.inputs:
            for axis in _open_axes(i):
                n = (shapes.get(i.name) or ())[axis : axis + 1]
                if n and isinstance(n[0], int):
                    self._hints.setdefault(_open_name(i, axis), n[0])

    def _declare(self, name: str, value: Input) -> None:
        """Notes the dimensions that a description of an argument declares."""
        described = next(i for i in self.inputs if i.name == name)
        if described.shape is None or len(described.shape) != len(value.shape):
            raise _core.InvalidError(f"{self.path}: input {described}: expected {described}, got {value}")
        for axis in _open_axes(described):
            if isinstance(value.shape[axis], Dim):
                self._declared[_open_name(described, axis)] = value.shape[axis]

    def _choose(self, vdims: Any) -> None:
        """Lets those dimensions vary that `vdims` selects, by their numbers; fixes the others."""
        if vdims is None or isinstance(vdims, bool):
            self._varies = vdims is not False
            return
        vdims_wanted(vdims)
        model = self._read_all()
        names: dict[str, list[str]] = {}  # by number: the open dimensions that it is
        for name, size, _ in model.open:
            if _core.size_limits(size):
                names.setdefault(_core.size_text(size), []).append(name)
        if len(vdims) > len(names):
            raise _core.InvalidError(
                f"vdims: expected at most {len(names)} values, one for each dimension that may vary, got {len(vdims)}; "
                "sol.dims(model) lists them"
            )
        for k in range(len(names)):
            value = vdims[k] if k < len(vdims) else False
            if value is False:
                self._fix(dict.fromkeys(names[f"#{k}"], self._hint(k, names[f"#{k}"])))
            elif value is not True:
                self._fix(dict.fromkeys(names[f"#{k}"], value))

    def _hint(self, k: int, names: Sequence[str]) -> int:
        """The size of dimension k in the example."""
        found = [self._hints[name] for name in names if name in self._hints]
        if not found:
            raise _core.InvalidError(
                f"vdims: #{k} ({', '.join(names)}) stays at the example's size, but there is no example: pass one, or give a "
                "size in place of False"
            )
        return found[0]

    def _limits(self) -> dict[str, tuple[int, int, int, int]]:
        """What is known of open dimensions: hint, min, max, multiple."""
        found = {name: (n, 0, 0, 1) for name, n in self._hints.items() if n > 0}
        for name, d in self._declared.items():
            hint = d.example or found.get(name, (0,))[0]
            found[name] = (hint, d.min, d.max or 0, d.multiple)
        return {name: limits for name, limits in found.items() if name not in self._fixed_sizes}

    def _read_all(self) -> _core.Onnx:
        """Reads the model with all open sizes varying."""
        limits = self._limits()
        return _core.Onnx(self.source.data, self._fixed_sizes, self._values(), limits, self._varies, self._trains)

    def _report(self) -> Report:
        """Which sizes may vary, and why others may not; see `sol.dims`."""
        return _reported(self._read_all(), self.inputs)

    # -- programs

    def prepare(self, shapes: Shapes) -> Program:
        """Finds the program for these shapes; compiles it if necessary."""
        return self._find({name: (shape, None) for name, shape in shapes.items()})

    def _find(self, call: Call) -> Program:
        """The program for a call. What does not fit the program for all sizes has one for its sizes, and for the values of
        arguments that shapes depend on."""
        found = self._varying(call) if self._open else None
        if found is None:
            key = self._key(call)
            found = self._programs.get(key)
            while not key.valued.issuperset(found.taken):  # the key has to include them
                self._valued.update(found.taken)
                key = self._key(call)
                found = self._programs.get(key)
        self._latest = found
        return found

    def _compile_for(self, shapes: Shapes, examples: Mapping[str, Any]) -> None:
        """Compiles for the sizes and values of an example, unless shapes depend on values that it does not tell."""
        arrays = {name: self._array(name, v) for name, v in examples.items() if not isinstance(v, Input)}
        call = {name: (shape, _small(arrays[name]) if name in arrays else None) for name, shape in shapes.items()}
        try:
            self._find(call)
        except _core.UnsupportedError as e:
            if VALUE not in str(e):
                raise
            log.info(f"{self.name}: is compiled at the first call: {' '.join(str(e).split())}")

    def _key(self, call: Call) -> Key:
        valued = frozenset(self._valued)
        values = ((n, shape, data if n in valued else None) for n, (shape, data) in call.items())
        return Key((device.chosen["device"], valued, *values), call, valued)

    def _start(self) -> bool:
        """Compiles the program for all sizes. False: there is none."""
        net = self._for_all({}).net if self._open else None
        if net and not self._latest:
            self._latest = Program(net, tuple(hint for _, hint, *_ in net.dims))
        return net is not None

    def _for_all(self, call: Call) -> Varying:
        """The program for all sizes; made with this call if it needs values of one."""
        told = self._asks and any(data is not None for _, data in call.values())
        if told and self._none is not None:
            return self._none
        try:
            return self._all.get(Key((device.chosen["device"], told), call))
        except Doubtful as e:
            return Varying(None, e)

    def _varying(self, call: Call) -> Program | None:
        """The program for all sizes, at these. None: they do not fit it."""
        varying = self._for_all(call)
        if varying.net is None and self._asks:
            varying = self._for_all(call)
        key = self._key(call)
        found = varying.known.get(key)
        if found is not None or varying.net is None:
            return found
        try:
            found = Program(varying.net, _core.onnx_bind(varying.net, self._arrays(call)))
        except _core.InvalidError as e:
            log.debug(f"{self.name}: a program for this call alone: {e}")
            return None
        if len(varying.known) >= MOST_KNOWN:
            varying.known = {}
        varying.known[key] = found
        return found

    def _arrays(self, call: Call) -> dict[str, tuple[str, tuple[int, ...], bytes | None]]:
        """Arguments of these shapes, of the types that the model wants."""
        self._sizes({name: shape for name, (shape, _) in call.items()})
        return {i.name: (_CORE[i.dtype], *call[i.name]) for i in self.inputs if i.name in call and i.dtype}

    @property
    def _sol(self) -> Network:
        return self  # what programs.latest asks

    def latest(self) -> _core.Net | None:
        """Returns the program used last."""
        return self._latest.net if self._latest else None

    def memory(self) -> dict[str, int]:
        """Returns the memory of the program used last, at the sizes of its call; see `sol.memory`."""
        if self._latest is None:
            raise _core.InvalidError(
                f"sol.memory: {self.path}: not compiled yet, for it leaves sizes open: call it first, or fix them"
            )
        return self._latest.memory

    def _compile_all(self, key: Any) -> Varying:
        try:
            net = self._make(key.call, ALL)
        except (_core.UnsupportedError, _core.InvalidError) as e:
            text = " ".join(str(e).split())
            if VALUE in text and not self._asks:
                self._asks = True
                log.info(f"{self.name}: is compiled at the first call: {text}")
            elif key.call and isinstance(e, _core.InvalidError):
                raise Doubtful(text) from e
            else:
                log.info(f"{self.name}: each new size is compiled: {text}")
            return Varying(None, e)
        assert net is not None
        self._valued.update(_core.onnx_taken(net))
        log.memory("Inference", net, self.name)
        return Varying(net)

    def _compile(self, key: Any) -> Program:
        varying = self._for_all(key.call) if self._open else None
        net = self._make(key.call, SIZED, varying.net if varying else None)
        assert net is not None  # otherwise the program for all sizes serves the call
        if varying and isinstance(varying.why, Doubtful):  # the call is good, so it was the model
            self._none = varying
            log.info(f"{self.name}: each new size is compiled: {varying.why}")
        if net.memory["peak"] > self._peak:  # services with many shapes compile many programs
            self._peak = net.memory["peak"]
            log.memory("Inference", net, self.name)
        return Program(net, _core.onnx_bind(net, self._arrays(key.call)) if net.dims else ())

    def _make(self, call: Call, ways: int, varying: _core.Net | None = None) -> _core.Net | None:
        limits = self._limits() if ways == ALL else {}
        return _core.onnx_make(
            self.source.data, self._fixed_sizes, self._values(), limits, self._arrays(call), ways, varying
        )

    def _values(self) -> dict[str, tuple[str, tuple[int, ...], bytes | None]]:
        """The inputs whose values are fixed."""
        return {name: (_CORE[v.dtype.name], v.shape, v.tobytes()) for name, v in self._fixed_values.items()}

    def _read(self, shapes: Shapes) -> _core.Onnx:
        """Reads the model with these input shapes."""
        sizes = {**self._fixed_sizes, **self._sizes(shapes)}
        return _core.Onnx(self.source.data, sizes, self._values(), trains=self._trains)

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
                if isinstance(said, int):
                    continue
                declared = self._declared.get(_open_name(i, axis))
                if declared and (wrong := declared.misfit(given)):
                    raise _core.InvalidError(f"{self.path}: input {i}: {wrong}")
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
        for i in self.inputs:
            self._check(values[i.name], i.name, i.dtype, values[i.name].shape)
        program = self._find({name: (v.shape, _small(v)) for name, v in values.items()})
        inputs = tuple(self._input(values[name], name, dtype, shape) for name, dtype, shape in program.inputs)
        wanted = self._wanted(program, out)
        work = tuple(
            to
            if to is not None and not found and _writable_in_place(to, inputs)
            else np.empty(room if found else shape, _NUMPY[dtype])
            for to, found, room, (_, dtype, shape) in zip(
                wanted, program.found, program.room, program.outputs, strict=True
            )
        )
        made = program.run(inputs, work)
        for to, result, (name, dtype, _) in zip(wanted, made, program.outputs, strict=True):
            if to is not None and to.shape != result.shape:
                raise self._misfit_out(name, dtype, result.shape, to)
            if to is not None and to is not result:
                to[...] = result
        results = tuple(result if to is None else to for to, result in zip(wanted, made, strict=True))
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
        self._check(v, name, _NUMPY.get(dtype), shape)
        return np.ascontiguousarray(v)

    def _check(self, v: np.ndarray[Any, Any], name: str, dtype: str | None, shape: tuple[int, ...]) -> None:
        if v.dtype != dtype or v.shape != shape:
            raise _core.InvalidError(
                f"{self.path}: input {name}: expected {dtype}{list(shape)}, got {v.dtype}{list(v.shape)}"
            )

    def _misfit_out(self, name: str, dtype: str, shape: tuple[int, ...], to: Any) -> Exception:
        got = f"{to.dtype}{list(to.shape)}" if isinstance(to, np.ndarray) else type(to).__name__
        return _core.InvalidError(
            f"{self.path}: out: {name}: expected an array {_NUMPY[dtype]}{list(shape)}, got {got}"
        )

    def _wanted(self, program: Program, out: Any) -> list[np.ndarray[Any, Any] | None]:
        """Checks the user's arrays for the outputs."""
        names = [name for name, _, _ in program.outputs]
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
        for i, (to, (name, dtype, shape)) in enumerate(zip(wanted, program.outputs, strict=True)):
            if to is None:
                continue
            good = isinstance(to, np.ndarray) and to.dtype == _NUMPY[dtype]
            if not good or (to.shape != shape and not program.found[i]):  # after the run, where it depends on data
                raise self._misfit_out(name, dtype, shape, to)
            if not to.flags.writeable:
                raise _core.InvalidError(f"{self.path}: out: {name}: the array is read-only")
            if any(other is not None and np.may_share_memory(to, other) for other in wanted[:i]):
                raise _core.InvalidError(f"{self.path}: out: {name}: the array shares memory with another one")
        return wanted


def _open_axes(d: Described) -> list[int]:
    return [axis for axis, n in enumerate(d.shape or ()) if not isinstance(n, int)]


def _may_be_sizes(d: Described) -> bool:
    """Whether elements of an input may be sizes: a short list of integers."""
    return d.dtype == "int64" and d.shape is not None and len(d.shape) < 2


def _open_name(d: Described, axis: int) -> str:
    """The name of an open dimension: its symbol, or "input.axis"."""
    name = d.shape[axis] if d.shape else None
    return name if isinstance(name, str) else f"{d.name}.{axis}"


def _writable_in_place(to: np.ndarray[Any, Any], inputs: Sequence[np.ndarray[Any, Any]]) -> bool:
    """Whether a network may write directly into this array while it reads the inputs."""
    flags = to.flags
    return flags.c_contiguous and flags.aligned and not any(np.may_share_memory(to, i) for i in inputs)


def _small(v: np.ndarray[Any, Any]) -> bytes | None:
    """The data of an argument that shapes may depend on."""
    return v.tobytes() if v.size <= MOST_TAKEN else None


def _bytes(program: Program) -> int:
    """The memory that a kept program holds."""
    found = program.net.memory
    return found["params"] + found["prepared"] + found["workspace"]


def _reported(model: _core.Onnx, inputs: Sequence[Described]) -> Report:
    """What a model says that was read with open sizes varying."""
    why = {name: text for name, _, text in model.open}
    open_ = {(i.name, axis): _open_name(i, axis) for i in inputs for axis in _open_axes(i)}
    return report.of(
        [(name, shape) for name, _, shape in model.inputs],
        [shape for _, _, shape in model.outputs],
        lambda name, axis: why.get(open_.get((name, axis), "")) or "the model has this size",
    )


def load(
    model: Any,
    *inputs: Any,
    batch_size: int | None = None,
    fix: Mapping[str, Any] | None = None,
    vdims: Any = None,
    **kwargs: Any,
) -> Network:
    """Reads a model. Compiles the program for all sizes, or, if there is none, the one for the sizes that the file, inputs,
    batch_size and fix determine.

    model   the path of a file, its bytes, or an onnx.ModelProto
    fix     sizes of dimensions by name, {"batch": 4}, and values of inputs; shapes may depend on such values, and the
            function no longer has these inputs
    vdims   sizes that may vary: None or True (all that the model leaves open), False (none: SOL compiles a program for each
            combination), or a list as in sol.optimize
    """
    network, shapes = _shaped(model, inputs, kwargs, batch_size, fix)
    network._example(shapes)
    network._choose(vdims)
    if network._start():
        for line in network._report().shapes:
            log.info(line)
    elif all(_is_known(s) for s in shapes.values()):
        network._compile_for(shapes, network._named(inputs, kwargs))
    return network


def find_dims(model: Any, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Report:
    """`sol.dims` for ONNX models."""
    if isinstance(model, Network):
        return model._report()
    given = dict(kwargs)
    network, shapes = _shaped(model, inputs, given, None, given.pop("fix", None))
    network._example(shapes)
    return network._report()


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
        if isinstance(value, Input):
            network._declare(name, value)
            shapes[name] = _open_sizes(value, batch_size)
        else:
            shapes[name] = np.shape(value)
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


def sized(
    model: Any,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    batch_size: int | None,
    vdims: Any = None,
    trains: bool = False,
) -> _core.Onnx:
    """A model for deployment, or for another framework, where all real weights are parameters (`trains`). With a batch size all
    sizes are known; otherwise those vary that are open, or that `vdims` says."""
    given = dict(kwargs)
    network, shapes = _shaped(model, inputs, given, batch_size, given.pop("fix", None))
    network._trains = trains
    if batch_size is not None:
        open_ = [i.name for i in network.inputs if i.shape is None or not all(isinstance(n, int) for n in i.shape[:1])]
        if not open_:
            raise _core.InvalidError(
                f"{network.path}: batch_size: no input leaves its first size open: {network._list()}"
            )
        shapes.update({name: (batch_size, *shapes[name][1:]) for name in open_ if shapes[name]})
        return network._read({n: s for n, s in shapes.items() if _is_known(s)})
    arguments = network._named(inputs, given)
    network._sizes({n: np.shape(a) for n, a in arguments.items() if not isinstance(a, Input)})
    if vdims:
        network._example(shapes)
        network._choose(vdims)
    else:
        network._fix(_said(network, arguments))
    return network._read_all()


def _said(network: Network, arguments: Mapping[str, Any]) -> dict[str, int]:
    """The open sizes that example arguments say."""
    found = {}
    for i in network.inputs:
        if i.name not in arguments:
            continue
        value = arguments[i.name]
        for axis in _open_axes(i):
            if not isinstance(value, Input):
                found[_open_name(i, axis)] = int(np.shape(value)[axis])
            elif not value.varies(axis):
                found[_open_name(i, axis)] = int(value.shape[axis])
    return found


def provider_path() -> str:
    """The path of SOL's execution provider for ONNX Runtime (1.24 or later):
    `onnxruntime.register_execution_provider_library("SOL", sol.onnx.provider_path())`. Raises FileNotFoundError."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libsol_ort.so")
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: SOL's provider for ONNX Runtime is not there; install SOL again, or run make")
    return path


def __getattr__(name: str) -> Any:
    """`Backend`, which needs the package `onnx`."""
    if name == "Backend":
        from sol.onnx_backend import Backend

        return Backend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
