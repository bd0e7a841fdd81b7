"""Reads the graph of a concrete function into a graph of SOL: constants are followed, functions inlined, loops unrolled."""

from __future__ import annotations

import functools
import json
import os
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import optree
import tensorflow as tf
from tensorflow.python.framework import ops as tf_ops
from tensorflow.python.framework.func_graph import FuncGraph

from sol import _core, forms, log
from sol.parsed import REAL, Param, Problem, rejection

from .builder import TYPE, Builder, Items, Rejected, Value, core_type, sizes_in
from .host import fold, shape_array
from .operators import ROWS
from .outside import registered

MOST_STEPS = 10_000  # of a loop
BIG = 1024  # elements; larger constants are parameters instead of becoming code
_LIBRARIES = tuple(os.path.dirname(str(m.__file__)) + os.sep for m in (tf, keras, optree, _core))
_ASSIGN = {"AssignVariableOp": "", "AssignAddVariableOp": "add", "AssignSubVariableOp": "sub"}
_OPTIONAL = Items([])  # what a branch keeps for TensorFlow's own gradient of it
_NOTHING = ("Assert", "NoOp", "Placeholder", "PrintV2", "StringFormat", "_EagerConst")
_WHY = {  # what operators without a layer begin with
    ("LookupTable",): "a lookup table; look up in front of the model, in functions of tf.data",
    (
        "Rng",
        "Stateful",
    ): "draws from a tf.random.Generator; use keras.random with a SeedGenerator, or tf.random.stateless_*",
    ("EagerPyFunc", "PyFunc"): "Python code; use operators, or optimize the layers around it",
    (
        "Unique",
        "Where",
    ): "the size of its result depends on data; use tf.where with three arguments, or optimize the layers around it",
    (
        "Ragged",
        "Sparse",
    ): "a ragged or sparse tensor; use a tensor with zeros and a mask (to_tensor(), tf.sparse.to_dense)",
    ("AsString", "String"): "a string; prepare strings in front of the model, in functions of tf.data",
}


class _Missing(Exception):
    """An operand was not translated; that was reported where it was made."""


@dataclass
class Read:
    """A function as a graph."""

    graph: _core.Graph
    inputs: list[Value] = field(default_factory=list)
    params: list[Param] = field(default_factory=list)
    sources: list[Any] = field(default_factory=list)  # of params: a tf.Variable, or an array
    outputs: list[Value] = field(default_factory=list)  # new values of variables, then those of the function
    results: list[int] = field(default_factory=list)  # which outputs are those of the function
    order: list[int] = field(default_factory=list)  # which argument each input is; -1: a seed
    writes: list[tuple[int, int]] = field(default_factory=list)  # (number in params, number in outputs)


def where(o: Any) -> str:
    """The layer of an operation, and the line of the user's model."""
    path, line = o.name.rpartition("/")[0], _line(o.traceback or ())
    return f"in {path} {line}".strip() if path else line


def line_of(error: BaseException) -> str:
    """The last line of the user's model that an error came through."""
    return _line(traceback.extract_tb(error.__traceback__))


def _line(frames: Sequence[Any]) -> str:
    own = [f for f in frames if not f.filename.startswith((*_LIBRARIES, "<"))]
    return f"({os.path.basename(own[-1].filename)}:{own[-1].lineno})" if own else ""


Place = tuple[int, int]  # an argument, and a dimension of it


class Reader:
    """Reads one function.

    shapes     the sizes of inputs that the network is planned for
    multiples  of what numbers sizes must be multiples
    """

    def __init__(
        self,
        concrete: Any,
        name: str,
        shapes: Sequence[Sequence[int]],
        gradient: bool,
        multiples: Mapping[Place, int] | None = None,
    ) -> None:
        self.concrete, self.name, self.shapes, self.gradient = concrete, name, shapes, gradient
        self.params: dict[int, Value] = {}  # by the id of the variable
        self.branches = 0  # that depend on data, around the operation
        self.multiples = multiples or {}
        self.graph = _core.Graph(name)
        self.b = Builder(self.graph)
        self.read = Read(self.graph)
        self.problems: list[Problem] = []
        self.unequal: tuple[int, int] | None = None  # two sizes that the first problem wants to be equal
        self.numbers: dict[int, int] = {}  # of parameters, by the id of their source
        self.state: dict[int, Value] = {}  # what a variable is now, by its id
        self.written: dict[int, Any] = {}
        self.dims: dict[Place, int] = {}

    def run(self) -> Read:
        """Reads it. Raises UnsupportedError with everything that is not supported."""
        env, variables = self._captures()
        captured = {inner.ref() for _, inner in self.concrete.graph.captures}
        given = [t for t in self.concrete.inputs if t.ref() not in captured]
        for i, t in enumerate(given):
            try:
                dtype = core_type(t.dtype)
            except Rejected as e:
                raise _core.UnsupportedError(f"{self.name}: argument {i}: not supported: {e}") from None
            shape = [self._dim(i, d) if n is None else n for d, n in enumerate(t.shape.as_list())]
            env[t.ref()] = value = Value(self.graph.input(t.name.split(":")[0], dtype, shape))
            self.read.inputs.append(value)
            self.read.order.append(i)
        self._walk(self.concrete.graph, env, variables)
        if self.problems:
            rejected = rejection(self.problems)
            rejected.sizes = self.unequal  # type: ignore[attr-defined]
            raise rejected
        for variable in self.written.values():
            self.read.writes.append((self.numbers[id(variable)], len(self.read.outputs)))
            self._output(f"new_{variable.name}", self.b.value(self.state[id(variable)]))
        for i, t in enumerate(self.concrete.outputs):
            self.read.results.append(len(self.read.outputs))
            self._output(f"out_{i}", self.b.value(env[t.ref()]))
        return self.read

    def _dim(self, i: int, d: int) -> int:
        """The first dimensions of all inputs are one: the batch."""
        place = (0, 0) if d == 0 else (i, d)
        if place not in self.dims:
            name, m = "batch" if d == 0 else f"in_{i}.{d}", self.multiples.get(place, 1)
            self.dims[place] = self.graph.dim(name, max(-(-self.shapes[i][d] // m), 1) * m, m, 0, m)
        return self.dims[place]

    def _output(self, name: str, value: Value) -> None:
        self.graph.output(name, value.handle)
        self.read.outputs.append(value)

    def _captures(self) -> tuple[dict[Any, Any], dict[Any, Any]]:
        env: dict[Any, Any] = {}
        variables = {}
        known = {id(v.handle): v for v in self.concrete.graph.variables}
        for outer, inner in self.concrete.graph.captures:
            if outer.dtype != tf.resource:
                env[inner.ref()] = outer.numpy() if hasattr(outer, "numpy") else None
            elif id(outer) in known:
                variables[inner.ref()] = known[id(outer)]
            else:
                variables[inner.ref()] = None
        return env, variables

    # -- parameters

    def _param(self, name: str, source: Any, dtype: str, shape: tuple[int, ...]) -> Value:
        value = Value(self.graph.param(name, dtype, shape))
        self.numbers[id(source)] = len(self.read.params)
        self.read.params.append(Param(name, value.handle, source if isinstance(source, np.ndarray) else None))
        self.read.sources.append(source)
        return value

    def _variable(self, variable: Any) -> Value:
        if variable is None:
            raise Rejected("a resource that is no variable (a table, an iterator, a generator)")
        if id(variable) not in self.state:
            dtype, shape = core_type(variable.dtype), tuple(variable.shape.as_list())
            self.state[id(variable)] = self.params[id(variable)] = self._param(variable.name, variable, dtype, shape)
        return self.state[id(variable)]

    def _constant(self, o: Any) -> Any:
        array = tf.make_ndarray(o.get_attr("value"))
        if array.size <= BIG or array.dtype.name not in ("float32", "float64"):
            return array
        return self._param(o.name, array, core_type(o.outputs[0].dtype), array.shape)

    # -- operations

    def _walk(self, graph: Any, env: dict[Any, Any], variables: dict[Any, Any]) -> None:
        for o in graph.get_operations():
            try:
                made = self._one(o, env, variables)
            except _Missing:
                continue
            except (Rejected, forms.Varies, _core.UnsupportedError, _core.InvalidError) as e:
                if not self.problems:
                    self.unequal = getattr(e, "sizes", None)
                self.problems.append(Problem(o.type, str(e), where(o)))
                continue
            if made is not None:
                for t, m in zip(o.outputs, made if isinstance(made, list) else [made], strict=False):
                    env[t.ref()] = m
                    self._compare(o, t, m)

    def _compare(self, o: Any, t: Any, m: Any) -> None:
        """A result has the type and shape that TensorFlow says."""
        if not isinstance(m, Value) or o.type.startswith("StatelessRandomGet") or t.shape.rank is None:
            return
        same = len(t.shape) == m.ndim and TYPE[m.dtype] == t.dtype
        for n, k in zip(t.shape.as_list(), m.shape, strict=False):
            same &= n is None or type(k) is forms.Size or n == k
        if not same:
            raise _core.InternalError(
                f"{o.type} {o.name}: expected {t.dtype.name}{t.shape}, got {m.dtype}{list(m.shape)}"
            )

    def _one(self, o: Any, env: dict[Any, Any], variables: dict[Any, Any]) -> Any:
        kind = o.type
        self.b.name, self.b.where = o.name, where(o)
        if kind in _NOTHING:
            if kind == "PrintV2":
                log.info(f"{self.name}: tf.print prints nothing {where(o)}")
            return None
        if kind == "Const":
            return self._constant(o) if o.outputs[0].dtype != tf.string else None
        special = getattr(self, f"_op_{kind}", None)
        if special:
            return special(o, env, variables)
        if kind in _ASSIGN:
            return self._assign(o, env, variables)
        if kind.startswith("TensorList"):
            return self._list(o, self._operands(o, env))
        args = self._operands(o, env)
        if args and all(isinstance(a, np.ndarray) for a in args) and (known := fold(o, args)) is not None:
            return known
        row = ROWS.find(kind, registered)
        if row is None:
            raise Rejected(_no_layer(kind))
        self.b.types = {id(a): core_type(t.dtype) for a, t in zip(args, o.inputs, strict=True) if sizes_in(a)}
        return row(self.b, o, *args)

    def _operands(self, o: Any, env: dict[Any, Any]) -> list[Any]:
        found = []
        for t in o.inputs:
            if t.dtype == tf.resource:
                raise Rejected(_no_layer(o.type))
            if t.ref() not in env:
                if t.dtype == tf.string or t.dtype == tf.variant:
                    raise Rejected(f"data type {t.dtype.name}")
                raise _Missing
            found.append(env[t.ref()])
        return found

    def _assign(self, o: Any, env: dict[Any, Any], variables: dict[Any, Any]) -> None:
        variable = variables[o.inputs[0].ref()]
        before = self._variable(variable)
        if o.inputs[1].ref() not in env:
            raise _Missing
        value = self.b.value(env[o.inputs[1].ref()])
        if self.branches:
            raise Rejected("an assignment to a variable in a branch that depends on data")
        function = _ASSIGN[o.type]
        value = self.b.layer(function, before, value) if function else value
        value = self.b.layer("stop", value)  # TensorFlow's gradient ends at a variable that is read
        if self.gradient and variable.trainable:  # what was assigned, with the variable's own gradient
            zeros = self.b.layer("Expand", self.b.scalar(0, value.dtype), shape=list(value.shape))
            value = self.b.layer("Graft", value, zeros, self.params[id(variable)], zeros)
        self.state[id(variable)] = value
        self.written[id(variable)] = variable

    def _op_ReadVariableOp(self, o: Any, env: dict[Any, Any], variables: dict[Any, Any]) -> Value:
        return self._variable(variables[o.inputs[0].ref()])

    def _op_VariableShape(self, o: Any, env: dict[Any, Any], variables: dict[Any, Any]) -> Any:
        variable = variables[o.inputs[0].ref()]
        return np.array(variable.shape.as_list(), o.outputs[0].dtype.as_numpy_dtype)

    def _op_ResourceGather(self, o: Any, env: dict[Any, Any], variables: dict[Any, Any]) -> Any:
        table = self._variable(variables[o.inputs[0].ref()])
        if o.inputs[1].ref() not in env:
            raise _Missing
        return ROWS[o.type](self.b, o, table, env[o.inputs[1].ref()])

    _op_ResourceGatherNd = _op_ResourceGather

    def _op_Shape(self, o: Any, env: dict[Any, Any], variables: dict[Any, Any]) -> Any:
        (x,) = self._operands(o, env)
        shape = x.shape if isinstance(x, Value) else np.shape(x)
        return shape_array(shape, o.outputs[0].dtype.as_numpy_dtype)

    def _op_ShapeN(self, o: Any, env: dict[Any, Any], variables: dict[Any, Any]) -> Any:
        shapes = [x.shape if isinstance(x, Value) else np.shape(x) for x in self._operands(o, env)]
        return [shape_array(s, o.outputs[0].dtype.as_numpy_dtype) for s in shapes]

    def _op_Size(self, o: Any, env: dict[Any, Any], variables: dict[Any, Any]) -> Any:
        (x,) = self._operands(o, env)
        return shape_array([x.size], o.outputs[0].dtype.as_numpy_dtype).reshape(())

    def _op_Rank(self, o: Any, env: dict[Any, Any], variables: dict[Any, Any]) -> Any:
        return np.array(len(o.inputs[0].shape), "int32")

    def _op_IdentityN(self, o: Any, env: dict[Any, Any], variables: dict[Any, Any]) -> Any:
        operands = self._operands(o, env)
        return operands if not self.gradient or _is_own_gradient(o) else self._grafted(o, operands, env, variables)

    def _grafted(self, o: Any, operands: list[Any], env: dict[Any, Any], variables: dict[Any, Any]) -> list[Any]:
        """A tf.custom_gradient, whose gradient is read as a graph of its own. Several results are parts of one tensor, so that it has the
        gradients of all."""
        results = [
            k
            for k, (x, t) in enumerate(zip(operands, o.outputs, strict=True))
            if isinstance(x, Value) and x.dtype in REAL and (t.consumers() or any(t is u for u in o.graph.outputs))
        ]
        if not results:
            return operands
        here, parts = (self.b.name, self.b.where), [operands[k] for k in results]
        dtype = "f64" if any(p.dtype == "f64" for p in parts) else parts[0].dtype
        whole = parts[0]
        if len(parts) > 1:
            flat = [self.b.cast(self.b.reshape(p, [p.size]), dtype) for p in parts]
            whole = self.b.layer("Concat", *flat, axis=0)
        whole = self.b.layer("stop", whole)
        marker = self.b.layer("Expand", self.b.scalar(0, dtype), shape=list(whole.shape))
        given = [self._zeros(x) for x in operands]
        for k, mark in zip(results, self._pieces(marker, parts), strict=True):
            given[k] = mark
        found = self._gradients(o, given, env, variables)
        self.b.name, self.b.where = here
        for x, d in zip(operands, found, strict=True):
            if d is not None and isinstance(x, Value) and x.dtype in REAL:
                whole = self.b.layer("Graft", whole, marker, x, self.b.value(d))
        return [dict(zip(results, self._pieces(whole, parts), strict=True)).get(k, x) for k, x in enumerate(operands)]

    def _pieces(self, whole: Value, like: Sequence[Value]) -> list[Value]:
        """The parts of a tensor, in order, of which each is shaped like one of these."""
        if len(like) == 1:
            return [whole]
        made, start = [], 0
        for p in like:
            piece = self.b.layer("Slice", whole, axes=[0], start=[start], end=[start + p.size], step=[1])
            made.append(self.b.cast(self.b.reshape(piece, p.shape), p.dtype))
            start = start + p.size
        return made

    def _zeros(self, x: Any) -> Any:
        """The gradient of what nothing is computed from."""
        if not isinstance(x, Value):
            return np.zeros(np.shape(x), getattr(x, "dtype", None))
        return self.b.layer("Expand", self.b.scalar(0, x.dtype), shape=list(x.shape))

    def _gradients(self, o: Any, given: list[Any], env: dict[Any, Any], variables: dict[Any, Any]) -> list[Any]:
        """The gradients of an operation's inputs, of those of its outputs, by the function that the user gave."""
        function = tf_ops.gradient_registry.lookup(o.get_attr("_gradient_op_type").decode())
        with o.graph.as_default():
            graph = FuncGraph("gradient")
        with graph.as_default():
            marks = [tf.compat.v1.placeholder(t.dtype, t.shape) for t in o.outputs]
            try:
                made = function(o, *marks)
            except Exception as e:
                raise Rejected(f"a gradient of its own (tf.custom_gradient), which cannot be read: {e}") from e
            made = [None if d is None else tf.convert_to_tensor(d) for d in made]
        known = {id(v.handle): v for v in (*self.concrete.graph.variables, *graph.variables)}
        own_env: dict[Any, Any] = {mark.ref(): d for mark, d in zip(marks, given, strict=True)}
        own_variables: dict[Any, Any] = {}
        for outer, inner in graph.captures:
            if outer.dtype == tf.resource:
                own_variables[inner.ref()] = variables.get(outer.ref()) or known.get(id(outer))
            elif hasattr(outer, "numpy"):
                own_env[inner.ref()] = outer.numpy()
            elif outer.ref() in env:
                own_env[inner.ref()] = env[outer.ref()]
        for t in made:
            if t is not None and t.graph is not graph:
                own_env[t.ref()] = env.get(t.ref())
        self.gradient = False  # nothing is differentiated twice
        try:
            self._walk(graph, own_env, own_variables)
        finally:
            self.gradient = True
        if any(t is not None and own_env.get(t.ref()) is None for t in made):
            raise _Missing
        return [None if t is None else own_env[t.ref()] for t in made]

    def _op_SolLayer(self, o: Any, env: dict[Any, Any], variables: dict[Any, Any]) -> Any:
        attrs = json.loads(o.get_attr("attributes"))
        args = self._operands(o, env)
        missing = set(attrs.pop("missing", ()))
        rest = iter(args)
        given = [None if i in missing else self.b.value(next(rest)) for i in range(len(args) + len(missing))]
        handles = tuple(None if v is None else v.handle for v in given)
        made = self.graph.layer(o.get_attr("kind").decode(), o.name, where(o), handles, attrs, len(o.outputs))
        return list(map(Value, made))

    # -- functions, branches, loops

    def _call(self, graph: Any, given: Sequence[Any]) -> list[Any]:
        """The results of a function. Each of `given` is a variable (in a tuple), or an operand."""
        inner: dict[Any, Any] = {}
        variables: dict[Any, Any] = {}
        for t, g in zip(graph.inputs, given, strict=True):
            if isinstance(g, tuple):
                variables[t.ref()] = g[0]
            else:
                inner[t.ref()] = g
        self._walk(graph, inner, variables)
        found = []
        for t in graph.outputs:
            if t.ref() in variables:
                found.append((variables[t.ref()],))
            elif t.ref() in inner:
                found.append(inner[t.ref()])
            else:
                raise _Missing
        return found

    def _given(self, inputs: Sequence[Any], env: dict[Any, Any], variables: dict[Any, Any]) -> list[Any]:
        found: list[Any] = []
        for t in inputs:
            if t.dtype == tf.resource:
                found.append((variables.get(t.ref()),))
            elif t.ref() not in env:
                raise _Missing
            else:
                found.append(env[t.ref()])
        return found

    def _op_PartitionedCall(self, o: Any, env: dict[Any, Any], variables: dict[Any, Any]) -> Any:
        return self._call(_function(o, "f"), self._given(o.inputs, env, variables))

    _op_StatefulPartitionedCall = _op_PartitionedCall

    def _op_If(self, o: Any, env: dict[Any, Any], variables: dict[Any, Any]) -> Any:
        cond, given = self._given(o.inputs[:1], env, variables)[0], self._given(o.inputs[1:], env, variables)
        try:
            known = bool(self.b.known(cond))
        except Rejected:
            branches = [functools.partial(self._call, _function(o, f"{name}_branch")) for name in ("then", "else")]
            return self._both(o, cond, given, branches)
        return self._call(_function(o, "then_branch" if known else "else_branch"), given)

    def _op_Case(self, o: Any, env: dict[Any, Any], variables: dict[Any, Any]) -> Any:
        index, given = self._given(o.inputs[:1], env, variables)[0], self._given(o.inputs[1:], env, variables)
        branches = [functools.partial(self._call, o.graph._get_function(f.name).graph) for f in o.get_attr("branches")]
        last = len(branches) - 1  # that of all other numbers
        try:
            known = self.b.number(index)
            return branches[known if 0 <= known < last else last](given)
        except Rejected:
            index = self.b.value(index)

        def chosen(k: int, given: list[Any]) -> list[Any]:
            if k == last:
                return branches[k](given)
            this = self.b.layer("eq", index, self.b.scalar(k, index.dtype))
            return self._both(o, this, given, [branches[k], functools.partial(chosen, k + 1)])

        return chosen(0, given)

    _op_StatelessCase = _op_Case

    def _both(
        self, o: Any, cond: Any, given: list[Any], branches: Sequence[Callable[[list[Any]], list[Any]]]
    ) -> list[Any]:
        """Both branches, of which the results of one are chosen."""
        taken = self.b.cast(cond, "bool")
        here, state, made = (o.name, where(o)), self.state, []
        for branch, on in zip(branches, (taken, self.b.layer("logical_not", taken)), strict=True):
            own = {
                id(g[0]): self._entered(on, self._variable(g[0]))
                for g in given
                if isinstance(g, tuple) and g[0] is not None
            }
            self.state, self.branches = {**state, **own}, self.branches + 1
            try:
                made.append(branch([self._entered(on, g) for g in given]))
            finally:
                self.state, self.branches = {**self.state, **state}, self.branches - 1
        self.b.name, self.b.where = here
        chosen: list[Any] = []
        for yes, no in zip(*made, strict=True):
            if yes is _OPTIONAL or no is _OPTIONAL:
                chosen.append(_OPTIONAL)
                continue
            if isinstance(yes, tuple) or isinstance(no, tuple):
                raise Rejected("a branch that depends on data and selects a variable")
            x, y = self.b.value(yes), self.b.value(no)
            if x.shape != y.shape:
                raise Rejected(f"a branch that depends on data: its result is {list(x.shape)} or {list(y.shape)}")
            chosen.append(self.b.layer("where", self.b.cast(taken, x.dtype), x, y))
        return chosen

    def _entered(self, taken: Value, x: Any) -> Any:
        """An operand of a branch, to which no gradient goes where the branch is not taken: there, it may not be finite."""
        if not self.gradient or not isinstance(x, Value) or x.dtype not in REAL:
            return x
        return self.b.layer("where", self.b.cast(taken, x.dtype), x, self.b.layer("stop", x))

    _op_StatelessIf = _op_If

    def _op_OptionalFromValue(self, o: Any, env: dict[Any, Any], variables: dict[Any, Any]) -> Any:
        return _OPTIONAL

    _op_OptionalNone = _op_OptionalFromValue

    def _op_While(self, o: Any, env: dict[Any, Any], variables: dict[Any, Any]) -> Any:
        cond, body = _function(o, "cond"), _function(o, "body")
        state = self._given(o.inputs, env, variables)
        problems = len(self.problems)
        for _ in range(MOST_STEPS):
            try:
                more = bool(self.b.known(self._call(cond, state)[0]))
            except Rejected:
                raise Rejected("a loop whose number of steps depends on data") from None
            if not more:
                return [s if not isinstance(s, tuple) else None for s in state]
            state = self._call(body, state)
            if len(self.problems) > problems:
                raise _Missing
        raise Rejected(f"a loop of more than {MOST_STEPS} steps")

    _op_StatelessWhile = _op_While

    def _list(self, o: Any, a: list[Any]) -> Any:
        if o.type == "TensorListFromTensor":
            x = self.b.value(a[0])
            if type(x.shape[0]) is forms.Size:
                raise forms.Varies("a loop over a size that varies")
            return Items(self.b.layers("Unbind", x, outputs=x.shape[0], axis=0))
        if o.type == "TensorListReserve":
            return Items([None] * int(self.b.number(a[1])))
        if o.type == "TensorListGetItem":
            return a[0].items[int(self.b.number(a[1]))]
        if o.type == "TensorListSetItem":
            i = int(self.b.number(a[1]))
            return Items([*a[0].items[:i], self.b.value(a[2]), *a[0].items[i + 1 :]])
        if o.type == "TensorListStack":
            if None in a[0].items:
                raise Rejected("a list whose elements a loop did not all set")
            return self.b.layer("Stack", *a[0].items, axis=0)
        if o.type == "TensorListLength":
            return np.array(len(a[0].items), "int32")
        raise Rejected("SOL has no layer for it")


def _no_layer(kind: str) -> str:
    """Why an operator is rejected."""
    why = [text for first, text in _WHY.items() if kind.startswith(first)]
    return why[0] if why else "SOL has no layer for it"


def _function(o: Any, attr: str) -> Any:
    found = o.graph._get_function(o.get_attr(attr).name)
    if not hasattr(found, "graph"):
        raise Rejected("a function of TensorFlow's older kind (Defun), which SOL does not read")
    return found.graph


def _is_own_gradient(o: Any) -> bool:
    """Whether an IdentityN has the gradient of what it was computed by, or one that TensorFlow or Keras wrote for accuracy."""
    try:
        name = o.get_attr("_gradient_op_type").decode()
    except ValueError:
        return True
    modules = {f.__module__ or "" for f in _functions(tf_ops.gradient_registry.lookup(name), 4)}
    return all(m.partition(".")[0] in ("tensorflow", "keras") for m in modules)


def _functions(function: Callable[..., Any], depth: int) -> list[Callable[..., Any]]:
    """A function, and those that it refers to."""
    cells = [c.cell_contents for c in getattr(function, "__closure__", None) or ()]
    inner = [f for c in cells if isinstance(c, types.FunctionType) and depth for f in _functions(c, depth - 1)]
    return [function, *inner]


__all__ = ["Place", "Read", "Reader", "line_of", "where"]
