"""SOL's operators in TensorFlow, their gradients, and families of programs: those for calls of one kind, which differ in sizes."""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import op_def_library

from sol import _core, forms, log
from sol.api import next_random
from sol.parsed import REAL

from .builder import TYPE
from .hooks import hooked
from .parse import Place, Read, Reader, line_of

_core.tf_register(os.path.join(os.path.dirname(tf.__file__), "libtensorflow_framework.so.2"))
_families: weakref.WeakValueDictionary[int, Family] = weakref.WeakValueDictionary()


def call_op(name: str, program: int, args: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """Runs an operator now, or adds it to the graph that is being made. Gradients are recorded as for TensorFlow's own."""
    first = int(name == "SolBackward")  # inputs in front of the list `args`
    if tf.executing_eagerly():
        attrs = ("program", program, "Tin", [a.dtype.as_datatype_enum for a in args[first:]],
                 "Tout", [t.as_datatype_enum for t in types])  # fmt: skip
        n = len(types) + int(name == "SolForward")
        outputs = execute.execute(name.encode(), n, list(args), attrs=attrs, ctx=context.context())
        if execute.must_record_gradient():
            execute.record_gradient(name, list(args), attrs, outputs)
        return list(outputs)
    named = {"saved": args[0]} if first else {}
    op = op_def_library._apply_op_helper(name, args=list(args[first:]), program=program, Tout=list(types), **named)[2]
    outputs = list(op.outputs)
    if execute.must_record_gradient():
        attrs = ("program", program, "Tin", op.get_attr("Tin"), "Tout", op.get_attr("Tout"))
        execute.record_gradient(name, op.inputs, attrs, outputs)
    return outputs


def _family_of(op: Any) -> Family:
    """The family that an operator runs."""
    family = _families.get(op.get_attr("program"))
    if family is None:
        raise _core.InvalidError(
            "sol: the optimized model of this tape or graph is gone; keep it until the gradient is computed"
        )
    return family


@tf.RegisterGradient("SolForward")
def _gradient(op: Any, *given: Any) -> list[Any]:
    return _backward(_family_of(op), op.inputs, op.outputs, given)


def _backward(family: Family, inputs: Sequence[Any], made: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """The gradients of the inputs, of the operator's outputs and of theirs."""
    n, outputs = len(family.order), made[:-1]
    given = tuple(tf.zeros_like(outputs[i]) if given[i] is None else tf.convert_to_tensor(given[i]) for i in family.of)
    args = [made[-1], *inputs[:n], *outputs, *given, *inputs[n:]]
    found: list[Any] = [None] * len(inputs)
    for slot, g in zip(family.slots, call_op("SolBackward", family.id, args, family.made), strict=True):
        if not tf.executing_eagerly():
            g.set_shape(inputs[slot].shape)
        found[slot] = g
    return found


@tf.RegisterGradient("SolRun")
def _late_gradient(op: Any, *given: Any) -> list[Any]:
    """A graph that was made when no tape was there is differentiated: the forward pass runs again, and saves what backward reads."""
    run = _family_of(op)
    inputs = {i: x for i, x in enumerate(op.inputs) if x.dtype.is_floating}
    arguments = frozenset(run.order[i] for i in inputs if i < len(run.order) and run.order[i] >= 0)
    family = None if run.full is None else run.full(arguments)
    if family is None or family.order != run.order or not _same(family.sources, run.sources):
        raise _core.UnsupportedError(
            f"{run.name}: a gradient of a graph that was made without a tape: not supported here; call the graph's function under a "
            "tape first"
        )
    log.info(
        f"{run.name}: a function that was traced without a tape is differentiated, so its gradient computes the forward pass again; "
        "a tape inside of the function avoids that"
    )
    made = call_op("SolForward", family.id, list(op.inputs), family.types)
    return _backward(family, op.inputs, made, given)


@tf.RegisterGradient("SolBackward")
def _twice(op: Any, *given: Any) -> list[Any]:
    """An error only where somebody runs it, because persistent tapes ask for gradients that nobody reads."""
    family = _families.get(op.get_attr("program"))
    name = "" if family is None else f" {family.name}:"
    message = f"sol:{name} gradients of gradients and forward-mode derivatives are not supported; use the original model there"
    found: list[Any] = []
    for x in op.inputs:
        if not x.dtype.is_floating:
            found.append(None)
            continue
        with tf.control_dependencies([tf.debugging.Assert(False, [message])]):
            found.append(tf.zeros_like(x))
    return found


Wanted = tuple[frozenset[int], frozenset[int]]


class Family:
    """Programs for calls of one kind: these types, training or not, these gradients. Where the specification of an argument leaves
    sizes open, one program serves all of them if it can be; the others have one for their sizes.

    function  of tensors, as `specs` say, to a list of tensors; when it was traced, its attribute `pack` makes the caller's result of them
    wanted    which arguments, by number, and which variables, by the id of their handle, need gradients
    """

    def __init__(
        self,
        function: Callable[..., Any],
        specs: Sequence[tf.TensorSpec],
        name: str,
        wanted: Wanted,
        shapes: Sequence[Sequence[int | None]],
    ) -> None:
        self.function, self.specs, self.name, self.wanted = function, tuple(specs), name, wanted
        self.training = any(wanted)
        self.net: _core.Net | None = None
        # makes the same with the gradients of these arguments
        self.full: Callable[[frozenset[int]], Family | None] | None = None
        self._lock = threading.RLock()
        self._open = any(n is None for s in specs for n in s.shape)
        hints = [[8 if n is None else n for n in s] for s in shapes]
        self.fixed: Exception | None = None  # why each combination of sizes has a program of its own
        self.multiples: dict[Place, int] = {}  # of what numbers the program for all sizes wants them to be multiples
        self._why = ""  # the last cause of these
        self._places: list[Place] = []  # of the graph's dimensions, in their order
        self._trace = seen = self._traced(hints)
        read = self._first(seen, hints)
        self.shapes = self._shapes(seen, read)
        self.sources, self.writes, self.results, self.order = read.sources, read.writes, read.results, read.order
        self.types = [TYPE[v.dtype] for v in read.outputs]
        self.constants = {i: tf.constant(s) for i, s in enumerate(read.sources) if isinstance(s, np.ndarray)}
        self.of: tuple[int, ...] = ()
        self.slots: list[int] = []
        self.made: list[Any] = []
        self._differentiate(read)
        self._say_each_size()
        self._say_chained()
        self.id, self._family = _core.tf_family(len(self.order), _maker(weakref.ref(self)))
        _families[self.id] = self
        self._ready: set[Any] = set()
        self._pending = read if self._open and self.fixed is None else None
        self._function = tf.function(self._results, input_signature=list(self.specs), autograph=False)
        self._function._omit_frequent_tracing_warning = (
            True  # TensorFlow counts traces of all families as those of one function
        )

    @property
    def trainable(self) -> list[Any]:
        """The variables that the function reads and that are trained."""
        return list(self._trace.graph.trainable_variables)

    def _say_chained(self) -> None:
        """Logs that a result is computed from another one: a tape has no gradient between them."""
        shown = getattr(self.function, "shown", 0)
        made = {_maker_of(t) for t in self._trace.outputs[:shown]} if shown > 1 and self.training else set()
        seen: set[Any] = set()
        left = [t.op for o in made for t in o.inputs]
        while left:
            o = left.pop()
            if o not in seen:
                seen.add(o)
                left += [t.op for t in o.inputs]
        if made & seen:
            log.info(
                f"{self.name}: a result is computed from another one; a tape gives None as its gradient with respect to that. Where it is "
                "needed (Grad-CAM), optimize the two parts of the model"
            )

    def _concrete(self, specs: Sequence[tf.TensorSpec]) -> Any:
        try:
            with hooked(), tf.init_scope():
                return tf.function(self.function, autograph=False).get_concrete_function(*specs)
        except Exception as e:
            if isinstance(e, tf.errors.OperatorNotAllowedInGraphError) or "ymbolic" in str(e):
                layer = re.search(r"when calling (\w+)\.call\(\)", str(e))
                where = f" {line_of(e) or (f'in {layer[1]}' if layer else '')}".rstrip()
                raise _core.UnsupportedError(
                    f"{self.name}: Python code of the model reads the value of a tensor, which only a call tells{where}: not supported; "
                    "use operators (tf.where, keras.ops.where), or optimize the layers around it"
                ) from e
            raise

    def _traced(self, hints: Sequence[Sequence[int]]) -> Any:
        """The trace for all sizes; for the hints, if the model's Python code needs numbers."""
        try:
            return self._concrete(self.specs)
        except _core.UnsupportedError as e:
            if not self._open:
                raise
            seen = self._concrete(self._exact(hints))
            self._each_size(e)
            return seen

    def _each_size(self, why: Exception) -> None:
        self.fixed, self.multiples = why, {}

    def _say_each_size(self) -> None:
        """Logs why there is no program for all sizes, once one for some sizes is there: otherwise that error is raised."""
        if self.fixed is not None:
            text = " ".join(str(self.fixed).split())
            log.info(f"{self.name}: each new size is compiled: {text.removeprefix(f'{self.name}: ')}")

    def _exact(self, shapes: Sequence[Sequence[int]]) -> Any:
        return [tf.TensorSpec(n, s.dtype) for n, s in zip(shapes, self.specs, strict=True)]

    def _first(self, seen: Any, hints: Sequence[Sequence[int]]) -> Read:
        """The graph for all sizes; if there is none, that for the hints."""
        while self._open and self.fixed is None:
            try:
                read = self._read(seen, hints)
                self._differentiate(read, keep=False)
                return self._read(seen, hints) if self.training else read
            except (_core.UnsupportedError, _core.InvalidError, _core.InternalError) as e:
                if not self._restricted(e):
                    self._each_size(e)
        return self._sized(hints)

    def _restricted(self, error: Any) -> bool:
        """Whether sizes that are multiples of larger numbers than before avoid an error: two sizes that must be equal then are."""
        sizes = getattr(error, "sizes", None)
        places = self._places
        if not sizes:
            return False
        left, right = sizes
        found = forms.fitting(left, right, [self.multiples.get(p, 1) for p in places])
        if not found or (0, 0) in (chosen := [places[i] for i in found[0]]):
            return False
        self.multiples |= {p: found[1] * self.multiples.get(p, 1) for p in chosen}
        self._why = " ".join(str(error).split(":\n", 1)[-1].split())
        return True

    def _fits(self, shapes: Sequence[Sequence[int]]) -> str:
        """How the first size that is no multiple breaks the rule of the program for all sizes; empty: none does."""
        for (i, d), m in self.multiples.items():
            if shapes[i][d] % m or not shapes[i][d]:
                return f"argument {i}: dimension {d} is {shapes[i][d]}, expected a multiple of {m}: {self._why}"
        return ""

    def _sized(self, shapes: Sequence[Sequence[int]]) -> Read:
        return self._read(self._concrete(self._exact(shapes)), shapes)

    def _read(self, seen: Any, shapes: Sequence[Sequence[int]]) -> Read:
        reader = Reader(seen, self.name, shapes, self.training, self.multiples)
        try:
            return reader.run()
        finally:
            self._places = list(reader.dims)

    def _shapes(self, seen: Any, read: Read) -> list[Any]:
        """The shapes of the results as far as they are known for all sizes."""
        if self._open and all(t.shape.is_fully_defined() for t in seen.inputs):
            return [tf.TensorShape([None] * t.shape.rank) for t in seen.outputs]  # of one call
        return [t.shape for t in seen.outputs]

    def _differentiate(self, read: Read, keep: bool = True) -> None:
        """Appends the gradient."""
        if not self.training:
            return
        n, (inputs, variables) = len(read.order), self.wanted
        rows = [(k, v.handle) for k, v in enumerate(read.inputs) if read.order[k] in inputs and v.dtype in REAL]
        rows += [
            (n + i, p.tensor)
            for i, (p, s) in enumerate(zip(read.params, read.sources, strict=True))
            if p.constant is None and id(s.handle) in variables
        ]
        of = tuple(i for i in dict.fromkeys(read.results) if read.outputs[i].dtype in REAL)
        reached = read.graph.differentiate(of, tuple(h for _, h in rows))
        if keep:
            self.of = of
            self.slots = [slot for (slot, _), there in zip(rows, reached, strict=True) if there]
            self.made = [TYPE[h.dtype] for (_, h), there in zip(rows, reached, strict=True) if there]

    def make(self, shapes: Sequence[Sequence[int]]) -> None:
        """Adds a program for inputs of the network of these shapes."""
        with self._lock:
            read, self._pending = self._pending, None
            if read is None:
                read = self._of_sizes(self._by_argument(shapes))
                if read.order != self.order or not _same(read.sources, self.sources):
                    raise _core.UnsupportedError(
                        f"{self.name}: reads other variables, constants or arguments at sizes {list(map(list, shapes))}: not supported"
                    )
                self._differentiate(read)
            start = time.monotonic()
            net = read.graph.compile()
            what = ", ".join(f"{v.dtype}{list(n)}" for v, n in zip(read.inputs, shapes, strict=True))
            log.debug(f"Program of {self.name} for {what}: compiled in {time.monotonic() - start:.2f} s")
            log.memory("Training" if self.training else "Inference", net, self.name)
            self.net = net
            _core.tf_add(self._family, net, len(self.order), len(self.types), len(self.of), len(self.slots))

    def _by_argument(self, shapes: Sequence[Sequence[int]]) -> list[Sequence[int]]:
        """The shapes of arguments, by those of the network's inputs. What it does not read has any."""
        known = dict(zip(self.order, map(list, shapes), strict=True))
        return [known.get(i, [1 if n is None else n for n in s.shape]) for i, s in enumerate(self.specs)]

    def _of_sizes(self, shapes: Sequence[Sequence[int]]) -> Read:
        broken = self._fits(shapes)
        try:
            return self._sized(shapes)
        except Exception as e:
            if not broken:
                raise
            raise _core.InvalidError(f"{self.name}: {broken}") from e

    def prepare(self, shapes: Sequence[Sequence[int]]) -> None:
        """Compiles the program for arguments of these shapes if there is none, so that errors are those of Python."""
        key = tuple(map(tuple, shapes))
        if key not in self._ready:
            with self._lock:
                wanted = [shapes[i] if i >= 0 else () for i in self.order]
                if self._pending is not None:
                    self.make(wanted)
                if self.fixed is not None or not self._open or self._fits(shapes):
                    self.make(wanted)
            self._ready.add(key)

    def __call__(self, *xs: Any) -> Any:
        """Adds the network to the graph that is being made: the function's result for tensors."""
        return self._pack(self._results(*xs))

    def run(self, *xs: Any) -> Any:
        """The function's result for tensors, now. Within a function of TensorFlow, reading many variables is cheap."""
        return self._pack(self._function(*xs))

    def again(self, pack: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
        """What runs the network now for tensors that `run` has seen the like of, when no gradients are recorded. `pack` makes the
        result. It leaves out what a tf.function finds out in each call."""
        concrete = self._function.get_concrete_function()
        captured, n = concrete.captured_inputs, len(concrete.outputs)
        return lambda xs: pack(context.context().call_function(concrete.name, [*xs, *captured], n))

    def _results(self, *xs: Any) -> list[Any]:
        """The tensors of the result."""
        xs = tuple(xs[i] if i >= 0 else draw() for i in self.order)
        params = [self.constants[i] if i in self.constants else s.read_value() for i, s in enumerate(self.sources)]
        outputs = call_op("SolForward" if self.training else "SolRun", self.id, [*xs, *params], self.types)
        if not tf.executing_eagerly():
            for i, s in zip(self.results, self.shapes, strict=True):
                outputs[i].set_shape(s)
            for i, n in self.writes:
                outputs[n].set_shape(self.sources[i].shape)
        for i, n in self.writes:
            self.sources[i].assign(outputs[n])
        return [outputs[i] for i in self.results]

    def _pack(self, found: Sequence[Any]) -> Any:
        """The caller's result, of tensors."""
        return self.function.pack(found)  # type: ignore[attr-defined]


def _maker_of(t: Any) -> Any:
    """The operation that computes a result of a function."""
    while t.op.type == "Identity":
        t = t.op.inputs[0]
    return t.op


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether two programs read the same variables, and constants of the same values."""
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(a is b or _equal(a, b) for a, b in pairs)


def _equal(a: Any, b: Any) -> bool:
    return (
        isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    )


def draw() -> Any:
    """The next number of the random stream: that of sol.set_seed, otherwise NumPy's, which keras.utils.set_random_seed sets."""
    seed = tf.numpy_function(lambda: np.int64(next_random()), [], tf.int64, stateful=True)
    seed.set_shape(())
    return seed


def _maker(family: weakref.ref[Family]) -> Callable[[Any], None]:
    def make(shapes: Any) -> None:
        found = family()
        if found is None:
            raise _core.InvalidError("the optimized model of this graph is gone")
        found.make(shapes)

    return make
