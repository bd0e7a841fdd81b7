"""Networks of one traced function, and how XLA's programs call them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from sol import _core, forms, log
from sol.parsed import NUMPY, rejection
from sol.programs import MOST_PROGRAMS

from .builder import Value, sol_name
from .operators import Rejected
from .translate import Translation

INPUT, OUTPUT, PARAM, SAVED = range(4)  # enum what
RUN, FORWARD, BACKWARD = range(3)  # enum mode
TARGET = "sol_call"
ALIGNED = 64


@functools.cache
def register() -> None:
    """Tells XLA about SOL's calls, once."""
    stages, state = _core.xla_target()
    jax.ffi.register_ffi_type("sol_program", state, platform="cpu")
    jax.ffi.register_ffi_target(TARGET, stages, platform="cpu")


class Type(NamedTuple):
    """The type of an array, in which sizes may vary."""

    shape: tuple[Any, ...]
    dtype: Any


def sized(types: Sequence[Any], dims: tuple[int, ...]) -> list[Any]:
    """Types of JAX at the sizes of a call."""
    return [jax.ShapeDtypeStruct(forms.at(t.shape, dims), t.dtype) for t in types]


class Described:
    """The graph of a traced function for arguments of fixed types, with the gradients of some arguments.

    wanted  the numbers of the arguments whose gradients backward computes; None: there is no backward
    append  appends them now; otherwise the caller does
    """

    def __init__(
        self, name: str, traced: Any, params: Sequence[int], wanted: tuple[int, ...] | None, append: bool = True
    ) -> None:
        self.name = name
        self.graph = graph = _core.Graph(name)
        closed = traced.jaxpr
        translation = Translation(graph, wanted is not None, traced.varying.sizes(graph) if traced.varying else {})
        self.params, self.inputs = list(params), [i for i in range(len(traced.names)) if i not in params]
        values: dict[int, Value] = {}
        for i in (*self.params, *self.inputs):
            aval = closed.in_avals[i]
            make = graph.param if i in params else graph.input
            try:
                values[i] = Value(
                    make(traced.names[i], sol_name(aval.dtype), forms.form(translation.sized(aval.shape)))
                )
            except Rejected as e:
                raise _core.UnsupportedError(f"{name}: argument {traced.names[i]}: {e}: not supported") from None
        self.values = [values[i] for i in range(len(values))]
        if traced.varying:
            traced.varying.require(graph, translation.sizes)
        made = translation.translate(closed, self.values)
        if made.problems:
            raise rejection(made.problems)
        for i, y in enumerate(made.outputs):
            graph.output(f"out_{i}", y.handle)
        self.constants, self.held = made.constants, made.held  # arrays, and the parameters for them
        self.results = [Type(y.shape, NUMPY[y.dtype]) for y in made.outputs]
        self.of: tuple[int, ...] = ()  # the results whose gradients backward gets
        self.reached: list[int] = []  # the arguments whose gradients it gives
        if wanted is not None and append:
            self.of = tuple(i for i, y in enumerate(made.outputs) if y.real)
            found = graph.differentiate(self.of, tuple(values[i].handle for i in wanted))
            self.reached = [i for i, there in zip(wanted, found, strict=True) if there]
        self.gradients = [Type(values[i].shape, NUMPY[values[i].dtype]) for i in self.reached]


class Network(Described):
    """The same, compiled."""

    def __init__(self, name: str, traced: Any, params: Sequence[int], wanted: tuple[int, ...] | None) -> None:
        super().__init__(name, traced, params, wanted)
        self._compile(wanted is not None)

    def _compile(self, trains: bool) -> None:
        self.net = self.graph.compile()
        del self.graph  # compiling used it up
        kind = "Training" if trains else "Inference"
        log.info(f"Estimated Peak Memory Consumption: {kind} ~{self.net.peak}: {self.name}")

    def saved(self, dims: tuple[int, ...]) -> Any:
        """The type of what forward saves."""
        memory = self.net.memory_at(dims) if dims else self.net.memory
        return jax.ShapeDtypeStruct((max(memory["saved"], 1),), np.uint8)

    def buffers(self, bound: Sequence[Any]) -> tuple[Any, ...]:
        """The values of all parameters of the network, if those of the function are these."""
        return (*bound, *self.constants)

    def argument(self, i: int) -> tuple[int, int]:
        """What argument i of the function is to the network."""
        return (PARAM, self.params.index(i)) if i in self.params else (INPUT, self.inputs.index(i))

    def constant_parts(self) -> list[tuple[int, int]]:
        """The arrays that the function brings with it are the last parameters."""
        return [(PARAM, len(self.params) + k) for k in range(len(self.constants))]


class Calls:
    """A network as XLA's programs call it: with parameters that are the same in every call, or that are arguments."""

    def __init__(self, network: Network, bound: tuple[Any, ...] | None) -> None:
        self.network = network
        self._buffers = None if bound is None else network.buffers(bound)
        self.passed = [
            i for i in range(len(network.params) + len(network.inputs)) if bound is None or i in network.inputs
        ]
        n = network
        free = [*n.constant_parts()] if bound is None else []
        self._constants = [jax.numpy.asarray(c) for c in n.constants] if bound is None else []
        own = [n.argument(i) for i in self.passed]
        outputs = [(OUTPUT, i) for i in range(len(n.results))]
        self.run_program = self._program(RUN, [*own, *free], outputs)
        if n.of:
            self.forward_program = self._program(FORWARD, [*own, *free], [*outputs, (SAVED, 0)])
            self._split(own, free)

    def _program(self, mode: int, arguments: list[Any], results: list[Any]) -> _core.XlaProgram:
        return _core.XlaProgram(self.network.net, mode, tuple(arguments), tuple(results), self._buffers)

    def _split(self, own: list[tuple[int, int]], free: list[tuple[int, int]]) -> None:
        """Which arguments and results of forward backward reads. A call of a network has all of its parameters."""
        n, net = self.network, self.network.net
        self.reads = [k for k, (what, i) in enumerate(own) if what == PARAM or net.backward_reads(False, i)]
        self.reads_out = [i for i in range(len(n.results)) if net.backward_reads(True, i)]
        arguments = [(SAVED, 0), *(own[k] for k in self.reads), *((OUTPUT, i) for i in self.reads_out)]
        arguments += [(INPUT, len(n.inputs) + k) for k in range(len(n.of))]
        results = [(SAVED, 0), *((OUTPUT, len(n.results) + k) for k in range(len(n.reached)))]
        self.backward_program = self._program(BACKWARD, [*arguments, *free], results)

    def run(self, dims: tuple[int, ...], operands: Sequence[Any]) -> list[Any]:
        """Calls the network inside of a program of XLA."""
        return self._call(self.run_program, dims, sized(self.network.results, dims), [*operands, *self._constants])

    def forward(self, dims: tuple[int, ...], operands: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...]]:
        """The results, and what backward needs."""
        n = self.network
        results = [*sized(n.results, dims), n.saved(dims)]
        *made, saved = self._call(self.forward_program, dims, results, [*operands, *self._constants])
        return made, (saved, [operands[k] for k in self.reads], [made[i] for i in self.reads_out])

    def backward(self, dims: tuple[int, ...], kept: tuple[Any, ...], gradients: Sequence[Any]) -> list[Any]:
        """The gradients of the arguments in network.reached."""
        n = self.network
        saved, read, read_out = kept
        operands = [saved, *read, *read_out, *gradients, *self._constants]
        results = [n.saved(dims), *sized(n.gradients, dims)]
        _, *made = self._call(self.backward_program, dims, results, operands)
        return made

    def _call(
        self, program: _core.XlaProgram, dims: tuple[int, ...], results: list[Any], operands: list[Any]
    ) -> list[Any]:
        aliases = {0: 0} if program is getattr(self, "backward_program", None) else None  # what is saved is used up
        call = jax.ffi.ffi_call(TARGET, results, vmap_method="sequential", input_output_aliases=aliases)
        sizes = {"dims": np.array(dims, np.int64)} if dims else {}
        return list(call(*operands, program=np.int64(program.id), **sizes))

    def now(self, dims: tuple[int, ...], operands: Sequence[Any]) -> list[Any]:
        """Calls the network on arrays, without XLA."""
        results = tuple(_empty(r) for r in sized(self.network.results, dims))
        self.run_program.run(tuple(np.ascontiguousarray(x) for x in operands), results, dims)
        return [jax.device_put(r) for r in results]


def _empty(spec: Any) -> np.ndarray[Any, Any]:
    """An array that JAX takes over without a copy."""
    dtype = np.dtype(spec.dtype)
    n = int(np.prod(spec.shape)) * dtype.itemsize
    room = np.empty(n + ALIGNED, np.uint8)
    start = -room.ctypes.data % ALIGNED
    return room[start : start + n].view(dtype).reshape(spec.shape)


class Bound:
    """A traced function whose parameters are certain arrays, or (None) arguments of each call."""

    def __init__(self, traced: Any, arrays: tuple[Any, ...] | None) -> None:
        self.traced, self.arrays = traced, arrays
        self._buffers = None if arrays is None else tuple(np.ascontiguousarray(a) for a in arrays)
        self._calls: dict[Hashable, Calls] = {}
        self._lock = threading.Lock()
        self.passed = [i for i in range(len(traced.names)) if arrays is None or i not in traced.params]
        self.apply = jax.custom_vjp(self._run)
        self.apply.defvjp(self._forward, self._backward, symbolic_zeros=True)
        self._batched = jax.custom_batching.custom_vmap(self._run_plain)
        self._batched.def_vmap(self._vmap)

    def calls(self, wanted: tuple[int, ...] | None, dims: tuple[int, ...] = ()) -> tuple[Calls, tuple[int, ...]]:
        """The network with the gradients of these arguments, and the sizes of a call that vary in it."""
        network, left = self.traced.network_at(wanted, dims)
        with self._lock:
            key = wanted, () if left else dims
            found = self._calls.get(key)
            if found is None or found.network is not network:
                found = self._calls[key] = Calls(network, self._buffers)
                while len(self._calls) > MOST_PROGRAMS:
                    del self._calls[next(iter(self._calls))]
            return found, left

    def _dims(self, operands: Sequence[Any]) -> tuple[int, ...]:
        """The sizes that vary, in a call."""
        return self.traced.dims({i: x.shape for i, x in zip(self.passed, operands, strict=True)})

    def now(self, operands: Sequence[Any]) -> list[Any]:
        """The results for arrays, without XLA."""
        calls, dims = self.calls(None, self._dims(operands))
        return calls.now(dims, operands)

    def _run_plain(self, *operands: Any) -> list[Any]:
        calls, dims = self.calls(None, self._dims(operands))
        return calls.run(dims, operands)

    def _run(self, operands: list[Any]) -> list[Any]:
        return self._batched(*operands)

    def _vmap(self, size: int, batched: Sequence[bool], *operands: Any) -> tuple[list[Any], list[bool]]:
        """Under vmap, the vectorized function is a network of its own. A model that cannot be vectorized runs example by example."""
        axes: list[int | None] = [None] * len(self.traced.names)
        leaves = list(self.arrays or ()) if self.arrays is not None else []
        whole: list[Any] = [None] * len(axes)
        for i, a in zip(self.traced.params, leaves, strict=False):
            whole[i] = a
        for i, x, b in zip(self.passed, operands, batched, strict=True):
            axes[i], whole[i] = (0 if b else None), x
        other = self.traced.vectorized(tuple(axes), whole)
        if other is None:
            made = _one_by_one(self._run_plain, batched, operands)
            return made, [True] * len(made)
        bound = other.bound(self.arrays)
        made = bound._run_plain(*(whole[i] for i in bound.passed))
        return made, [True] * len(made)

    def _forward(self, operands: list[Any]) -> tuple[list[Any], Any]:
        values = [x.value for x in operands]
        real = [i for i, x in zip(self.passed, values, strict=True) if np.dtype(x.dtype).kind == "f"]
        wanted = tuple(i for i, x in zip(self.passed, operands, strict=True) if x.perturbed and i in real)
        calls, dims = self.calls(wanted, self._dims(values))
        if not calls.network.of:
            return calls.run(dims, values), (wanted, ())
        made, kept = _last(functools.partial(calls.forward, dims))(values)
        return made, (_Static((calls, dims)), kept)

    def _backward(self, kept: Any, gradients: list[Any]) -> tuple[list[Any]]:
        wanted, rest = kept
        found: dict[int, Any] = {}
        if isinstance(wanted, _Static):
            calls, dims = wanted.value
            n, results = calls.network, sized(calls.network.results, dims)
            given = [_dense(gradients[i], results[i]) for i in n.of]
            found = dict(zip(n.reached, _last(functools.partial(calls.backward, dims))(rest, given), strict=True))
        return ([found.get(i) for i in self.passed],)


def _one_by_one(function: Any, batched: Sequence[bool], operands: Sequence[Any]) -> list[Any]:
    """The results for each example of the batched operands, one after the other."""

    def one(rows: list[Any]) -> list[Any]:
        rest = iter(rows)
        return list(function(*(next(rest) if b else x for x, b in zip(operands, batched, strict=True))))

    return list(jax.lax.map(one, [x for x, b in zip(operands, batched, strict=True) if b]))


@jax.tree_util.register_static
class _Static:
    """A value that is no array, among what backward needs."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and self.value == other.value


def _dense(gradient: Any, like: Any) -> Any:
    """The gradient of a result, zeros where nothing depends on it."""
    if isinstance(gradient, jax.custom_derivatives.SymbolicZero):
        return jax.numpy.zeros(like.shape, like.dtype)
    return gradient


_refused = Primitive("sol_refused")  # the derivative of what has none: an error where somebody uses it
_refused.def_abstract_eval(lambda x: x)


def _reject(*given: Any, **named: Any) -> Any:
    raise _core.UnsupportedError(
        "a gradient of a gradient through a function that SOL optimized: not supported; use the original function there"
    )


_refused.def_impl(_reject)
mlir.register_lowering(_refused, _reject)
ad.deflinear2(_refused, _reject)
batching.defvectorized(_refused)


def _last(function: Any) -> Any:
    """A function whose derivative is an error in words, unless nothing depends on it (stop_gradient)."""
    last = jax.custom_jvp(lambda *args: function(*args))

    @last.defjvp
    def _rule(primals: Any, tangents: Any) -> Any:
        made = last(*primals)
        real = [t for t in jax.tree.leaves(tangents) if t.dtype != jax.dtypes.float0]
        above = sum((jax.numpy.sum(t) for t in real), jax.numpy.zeros(()))

        def refused(y: Any) -> Any:
            if not jax.numpy.issubdtype(y.dtype, np.floating):
                return np.zeros(y.shape, jax.dtypes.float0)
            return _refused.bind(jax.numpy.broadcast_to(above.astype(y.dtype), y.shape))

        return made, jax.tree.map(refused, made)

    return last
