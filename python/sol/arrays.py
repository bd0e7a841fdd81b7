"""A model of any framework as a function on NumPy arrays: `net(x)`, `y, back = net.vjp(x)`, `net.parameters`."""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _core, api, log
from .parsed import (
    NUMPY,
    REAL,
    Call,
    Gradient,
    Mark,
    Mode,
    Owned,
    Parsed,
    Source,
    differentiate,
    example,
    flatten,
    outline,
    rebuild,
    taken,
    with_leaves,
)
from .programs import Programs

Array = np.ndarray[Any, Any]


class Gradients(NamedTuple):
    """What `back` returns: gradients of arguments, in their structure (None: not real, or without influence), and of parameters
    by name."""

    arguments: Any
    parameters: dict[str, Array]


class Parameters(MutableMapping[str, Any]):
    """The parameters and states of a function, by the names of the model. `parameters[name]` is the array itself: what is written
    there counts in the next call. `parameters[name] = values` copies values."""

    def __init__(self, source: Source) -> None:
        self.trained = tuple(o.name for o in source.owned if o.trained)  # names of those that are trained
        same: dict[Any, Array] = {}
        self._arrays = {o.name: same.setdefault(o.key, np.array(o.array, order="C")) for o in source.owned}
        self._versions = dict.fromkeys(self._arrays, 0)
        self._lent: dict[str, weakref.ref[Array]] = {}  # arrays that somebody may write to

    def __getitem__(self, name: str) -> Array:
        lent = self._lent[name]() if name in self._lent else None
        if lent is None:
            # its base is no array, so every view of it keeps it alive
            lent = np.asarray(memoryview(self._arrays[name]))  # type: ignore[arg-type]
            self._lent[name] = weakref.ref(lent)
        return lent

    def __setitem__(self, name: str, values: Any) -> None:
        array = self._arrays[name]
        given = np.asarray(values)
        if given.shape != array.shape:
            raise _core.InvalidError(
                f"parameter {name}: expected {array.dtype}{list(array.shape)}, got {list(given.shape)}"
            )
        np.copyto(array, given, casting="same_kind")
        for other, its in self._arrays.items():
            if its is array:
                self._versions[other] += 1

    def __delitem__(self, name: str) -> None:
        raise _core.InvalidError(f"parameter {name}: a function's parameters cannot be removed")

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return "\n".join(f"{n}: {a.dtype}{list(a.shape)}" for n, a in self._arrays.items())

    def _note(self) -> None:
        """Counts as changed what somebody could have written to since the last call."""
        for name, lent in list(self._lent.items()):
            gone, array = lent() is None, self._arrays[name]
            for other, its in self._arrays.items():
                if its is array:
                    self._versions[other] += 1
            if gone:
                self._lent.pop(name, None)


class Program:
    """A network for calls of one structure, mode, types and sizes, or for all sizes."""

    def __init__(self, parsed: Parsed, mode: Mode, parameters: Parameters) -> None:
        self.parsed, self.parameters, self.gradient = parsed, parameters, Gradient([], [])
        if mode.gradient:
            real = [i for i, p in enumerate(parsed.inputs) if p.leaf >= 0 and p.tensor.dtype in REAL]
            trained = [i for i, p in enumerate(parsed.params) if p.constant is None and p.name in parameters.trained]
            self.gradient = differentiate(parsed, real, trained)
        self.net = parsed.graph.compile()
        self.nout = len(self.net.outputs) - len(self.gradient.slots)
        self.given: list[int | None] = [None] * len(parsed.params)  # version of each parameter that the network has
        for i, p in enumerate(parsed.params):
            if p.constant is not None:
                self.net.set_param(i, np.ascontiguousarray(p.constant))
        log.memory("Training" if mode.gradient else "Inference", self.net, parsed.name)

    def sizes(self, leaves: Sequence[Any]) -> tuple[int, ...]:
        """The sizes of a call that vary."""
        shapes = tuple(() if i.leaf < 0 else np.shape(leaves[i.leaf]) for i in self.parsed.inputs)
        return self.net.bind(shapes) if self.net.dims else ()

    def _inputs(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        self.parameters._note()
        for i, p in enumerate(self.parsed.params):
            version = self.parameters._versions[p.name] if p.constant is None else None
            if version != self.given[i]:
                self.net.set_param(i, self.parameters._arrays[p.name])
                self.given[i] = version
        return tuple(
            np.array(api.next_random(), np.int64) if i.leaf < 0 else np.ascontiguousarray(leaves[i.leaf])
            for i in self.parsed.inputs
        )

    def _empty(self, rows: Sequence[tuple[str, str, tuple[int, ...]]], dims: tuple[int, ...]) -> tuple[Array, ...]:
        return tuple(np.empty([_core.size_at(n, dims) for n in shape], NUMPY[dtype]) for _, dtype, shape in rows)

    def _results(self, outputs: Sequence[Array]) -> Any:
        for param, output in self.parsed.writes:
            self.parameters[self.parsed.params[param].name] = outputs[output]
        return self.parsed.pack([outputs[o.number] for o in self.parsed.outputs])

    def run(self, leaves: Sequence[Any]) -> Any:
        """The model's result."""
        dims, inputs = self.sizes(leaves), self._inputs(leaves)
        if not self.net.found:
            outputs = self._empty(self.net.outputs, dims)
            self.net.run(inputs, outputs, 0, dims)
            return self._results(outputs)
        rows = zip(self.net.room(dims), self.net.outputs, strict=True)  # sizes depend on data
        work = tuple(np.empty(room, NUMPY[dtype]) for room, (_, dtype, _) in rows)
        found = self.net.run(inputs, work, 0, dims) or ()
        shapes = ([_core.size_at(n, found) for n in shape] for _, _, shape in self.net.outputs)
        return self._results([o[: math.prod(shape)].reshape(shape) for o, shape in zip(work, shapes, strict=True)])

    def vjp(self, leaves: Sequence[Any], call: Call) -> tuple[Any, Callable[..., Gradients]]:
        """The model's result, and the function that computes gradients."""
        dims, inputs = self.sizes(leaves), self._inputs(leaves)
        outputs = self._empty(self.net.outputs[: self.nout], dims)
        saved = self.net.forward(inputs, outputs, 0, dims)
        read = [
            self.parsed.params[i].name for i in self.net.backward_params() if self.parsed.params[i].constant is None
        ]
        written = {self.parsed.params[i].name for i, _ in self.parsed.writes}
        result = self._results(outputs)
        before = {n: self.parameters._versions[n] for n in read if n not in written}
        kept = tuple(o.copy() if self.net.backward_reads(True, i) else None for i, o in enumerate(outputs))

        def back(*gradients: Any) -> Gradients:
            """The gradients of arguments and parameters. gradients: of the results, in their structure."""
            for name, version in before.items():
                if self.parameters._versions[name] != version:
                    raise _core.InvalidError(f"{self.parsed.name}: parameter {name} changed between vjp and back")
            made = self._backward(saved, (inputs, kept), self._given(result, gradients), dims)
            arguments: list[Any] = [None] * len(leaves)
            of_params = {}
            for (kind, i), g in zip(self.gradient.slots, made, strict=True):
                if kind == "input":
                    arguments[self.parsed.inputs[i].leaf] = g
                else:
                    of_params[self.parsed.params[i].name] = g
            args, kwargs = rebuild((call.args, call.kwargs), arguments)
            return Gradients((*args, kwargs) if kwargs else args if len(args) != 1 else args[0], of_params)

        return result, back

    def _given(self, result: Any, gradients: Sequence[Any]) -> dict[int, Any]:
        """The gradients of outputs, by number."""
        leaves = [leaf for leaf in flatten(gradients[0] if len(gradients) == 1 else gradients)]
        results = [leaf for leaf in flatten(result) if isinstance(leaf, np.ndarray)]
        if len(leaves) != len(results):
            raise _core.InvalidError(f"{self.parsed.name}: back: expected {len(results)} gradients, got {len(leaves)}")
        given: dict[int, Any] = {}
        tree, order = taken(self.parsed)
        outputs = {o.number: o for o in self.parsed.outputs}
        ordered = [outputs[order[leaf]] for leaf in flatten(tree) if isinstance(leaf, Mark)]
        for o, y, g in zip(ordered, results, leaves, strict=True):
            if g is None or o.dtype not in REAL:
                continue
            g = np.asarray(g, y.dtype)
            if g.shape != y.shape:
                raise _core.InvalidError(
                    f"{self.parsed.name}: back: {o.name}: expected {list(y.shape)}, got {list(g.shape)}"
                )
            given[o.number] = given[o.number] + g if o.number in given else g
        return given

    def _backward(self, saved: Any, forward: tuple[Any, Any], given: dict[int, Any], dims: tuple[int, ...]) -> Any:
        inputs, kept = forward
        zeros = self._empty([self.net.outputs[n] for n in self.gradient.of], dims)
        for z in zeros:
            z.fill(0)
        gradients = [np.ascontiguousarray(given.get(n, z)) for n, z in zip(self.gradient.of, zeros, strict=True)]
        made = self._empty(self.net.outputs[self.nout :], dims)
        self.net.backward(saved, True, (*inputs, *gradients), (*kept, *made))
        return made


class Key:
    """What the program for a call depends on. It brings the call along."""

    def __init__(self, parts: tuple[Any, ...], call: Call, mode: Mode) -> None:
        self.parts, self.call, self.mode = parts, call, mode

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)


class Function:
    """A model as a function on arrays, with parameters of its own.

    net(*args, **kwargs)      the model's result, with arrays
    net.vjp(*args, **kwargs)  the result, and a function: back(gradient of the result) returns `Gradients`
    net.parameters            arrays by name, to read and to write
    net.training              True: as in training (dropout, statistics of the batch); False, at first: as in inference
    """

    sol_framework = "numpy"

    def __init__(self, source: Source) -> None:
        self.name, self.training, self.parameters = source.name, False, Parameters(source)
        self._parse, self._vdims = source.parse, source.call.vdims
        self._programs: Programs[Program] = Programs(self.name, self._compile, _bytes)  # type: ignore[arg-type]
        self._lock = threading.Lock()  # of parameters
        self._varying: dict[Any, Program | None] = {}
        self._latest: Program | None = None
        call = source.call
        if call.args or call.kwargs:
            leaves = [example(leaf, call.batch_size) for leaf in flatten((call.args, call.kwargs))]
            self._find(with_leaves(call, leaves), leaves, Mode())

    def __repr__(self) -> str:
        return f"sol.numpy.Function({self.name})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's result."""
        call = Call(args, kwargs)
        leaves = _checked(flatten((args, kwargs)))
        with self._lock:
            return self._find(call, leaves, Mode(self.training)).run(leaves)

    @property
    def _sol(self) -> Function:
        return self  # what programs.latest asks

    def latest(self) -> Program | None:
        """The program used last."""
        return self._latest

    def vjp(self, *args: Any, **kwargs: Any) -> tuple[Any, Callable[..., Gradients]]:
        """The model's result, and the function that makes gradients of arguments and parameters of those of the result. Call it
        before parameters change; it may be called several times."""
        call = Call(args, kwargs)
        leaves = _checked(flatten((args, kwargs)))
        with self._lock:
            return self._find(call, leaves, Mode(self.training, True)).vjp(leaves, call)

    def _find(self, call: Call, leaves: Sequence[Any], mode: Mode) -> Program:
        self._latest = self._found(call, leaves, mode)
        return self._latest

    def _found(self, call: Call, leaves: Sequence[Any], mode: Mode) -> Program:
        kinds = tuple((v.dtype.name, v.ndim) if isinstance(v, np.ndarray) else repr(v) for v in leaves)
        group = (outline((call.args, call.kwargs)), kinds, mode)
        if self._vdims and (varying := self._for_all(group, call, leaves, mode)):
            return varying
        sizes = tuple(v.shape if isinstance(v, np.ndarray) else None for v in leaves)
        return self._programs.get(Key((group, sizes), with_leaves(call, leaves), mode))

    def _for_all(self, group: Any, call: Call, leaves: Sequence[Any], mode: Mode) -> Program | None:
        """The program for sizes that vary, if it takes these."""
        if group not in self._varying:
            self._varying[group] = self._all_sizes(call, leaves, mode)
        program = self._varying[group]
        if program is None:
            return None
        try:
            program.sizes(leaves)
        except _core.InvalidError as e:
            log.debug(f"{self.name}: a program for this call alone: {e}")
            return None
        return program

    def _all_sizes(self, call: Call, leaves: Sequence[Any], mode: Mode) -> Program | None:
        args, kwargs = rebuild((call.args, call.kwargs), leaves)
        try:
            made = Program(self._parse(Call(args, kwargs, vdims=self._vdims), mode), mode, self.parameters)
        except _core.UnsupportedError as e:
            log.info(f"{self.name}: each combination of sizes has a program: {e}")
            return None
        return made if made.net.dims else None

    def _compile(self, key: Key) -> Program:
        return Program(self._parse(key.call, key.mode), key.mode, self.parameters)


def _bytes(program: Program) -> int:
    found = program.net.memory
    return found["params"] + found["prepared"] + found["workspace"]


def _checked(leaves: Sequence[Any]) -> list[Any]:
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, np.ndarray) or leaf is None or isinstance(leaf, bool | int | float | str):
            continue
        if isinstance(leaf, np.generic):
            continue
        raise _core.InvalidError(f"argument {i}: expected an array or a number, got {type(leaf)}")
    return [np.asarray(v) if isinstance(v, np.generic) else v for v in leaves]


def owned(model: Function) -> list[Owned]:
    """The parameters and states of a function."""
    arrays, trained = model.parameters._arrays, model.parameters.trained
    return [Owned(n, a, n in trained, id(a)) for n, a in arrays.items()]


def assign(model: Function, values: dict[str, Array]) -> None:
    """New values of parameters."""
    for name, value in values.items():
        model.parameters[name] = value


@contextlib.contextmanager
def profiled(model: Function, call: Call) -> Iterator[Callable[[], Any]]:
    """See frameworks.Frontend."""
    kept = {n: a.copy() for n, a in model.parameters._arrays.items() if n not in model.parameters.trained}

    def run() -> None:
        if not model.training:
            model(*call.args, **call.kwargs)
            return
        result, back = model.vjp(*call.args, **call.kwargs)
        back(*(np.ones_like(y) for y in flatten(result) if isinstance(y, np.ndarray)))

    try:
        yield run
    finally:
        for name, array in kept.items() if model.training else ():
            model.parameters[name] = array


def wrap(source: Source) -> Function:
    """A model of any framework as a function on arrays."""
    return Function(source)
