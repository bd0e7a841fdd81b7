"""Translates an exported graph to SOL's. It goes through the nodes, and the table of operators turns each into layers.

Everything that is not supported is reported in one error: each operator with its name, its module and the line of
the user's model. After each operator, types and shapes are compared with PyTorch's.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import operator
import types
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import InputKind

from sol import _core, forms, log

from . import checks, operators
from .assigned import assigned
from .builder import REAL, Builder, Complex, Rejected, Value, sol_name
from .decompose import all_tensors, decompose
from .function import graft, incoming
from .history import detached, origins
from .layout import Layout
from .outside import Outside, Registered, Unit
from .problems import Problem, place, rejection
from .problems import where as _where
from .reals import Real
from .sizes import Shaped, Sizes
from .steps import FUNC, FUNC_INSTEAD
from .traced import Source, Traced
from .translation import Input, Parameter, Replay, Result, Translation
from .writes import DETACHED, Memory, viewed, written

HALF = (torch.float16, torch.bfloat16)
_OF = {"leaf": "argument", "host": "result of a host function", "param": "parameter"}
BIG = 1024  # elements; larger constants are passed like parameters instead of becoming code


_DUAL = frozenset(  # differentiation in forward mode
    getattr(torch.ops.aten, n) for n in ("_make_dual", "_unpack_dual", "_new_zeros_with_same_feature_meta")
)


def _is_of_func(node: torch.fx.Node) -> bool:
    """Whether a node belongs to a transformation of torch.func."""
    return getattr(node.target, "overloadpacket", None) in _DUAL or getattr(node.target, "__module__", "").startswith(
        "torch._functorch"
    )


def _named(node: torch.fx.Node) -> str:
    """The name of what a node calls."""
    function = isinstance(node.target, types.FunctionType)
    return str(node.target.__name__ if function else node.target)  # type: ignore[union-attr]


class _Missing(Exception):
    """An operand could not be translated. The error is reported where the operand was made."""


class Translator:
    """One translation. `sizes`: of a trace with symbols, their values for these leaves."""

    def __init__(
        self,
        traced: Traced,
        name: str,
        leaves: Sequence[Any],
        tensors: dict[str, torch.Tensor],
        fixed: frozenset[int],
        wanted: frozenset[tuple[str, Any]] = frozenset(),
        overwritten: frozenset[str] = frozenset(),
    ) -> None:
        self.overwritten = (
            overwritten  # tensors of the model that are inputs, because backward needs what was there before
        )
        self.fixed = fixed  # leaves that are parameters
        self.wanted = wanted  # leaves and tensors of the model that require a gradient, as in `origin`
        self.traced = traced
        self.tensors = tensors
        self.leaves = leaves
        self.graph = _core.Graph(name)
        self.result = Translation(self.graph, constants=dict(traced.constants))
        self.sizes = traced.sizes
        if traced.vary:
            self.sizes = Sizes(
                {s: n if isinstance(n, int) else forms.size(self.graph.dim(*n)) for s, n in traced.vary.items()}
            )
        if traced.found:
            self._set_sizes(traced.found)
        self.b = Builder(self.graph)
        self.b.sized = self._sized
        self.env: dict[torch.fx.Node, Any] = {}
        self.memory = Memory(self.b, self._read, self._again, self.env)
        self.origin: dict[torch.fx.Node, tuple[str, Any]] = {}  # placeholder -> ("leaf", i) or ("param", name)
        self.problems: list[Problem] = []
        self.unequal: tuple[Any, ...] | None = None  # symbols that must be equal

    def run(self) -> Translation:
        """Translates the graph, once. Raises UnsupportedError with everything that is not supported."""
        try:
            return self._run()
        finally:
            self.tensors, self.leaves = (
                {},
                (),
            )  # the builder and this hold each other: tensors shall not wait for the garbage collector

    def _run(self) -> Translation:
        self._placeholders()
        self._nodes(self.traced.graph, self.traced.module)
        if not self.problems:
            self._outputs()
        if self.sizes is not None:
            self.result.roundings = self.sizes.roundings
        if self.b.seed is not None:
            self.result.random = True
            self.result.inputs.append(Input(self._behind(), Layout((), (), (), (), True), self.b.seed.handle))
        if self.problems:
            transformed = [p for p in self.problems if p.what == FUNC]  # the others may follow from these
            error = rejection(transformed or self.problems, self.traced.unusual)
            error.unequal = self.unequal  # type: ignore[attr-defined]
            raise error
        return self.result

    def _behind(self) -> int:
        """The number of the next input behind the caller's leaves and the results of host functions."""
        return len(self.leaves) + len(self.traced.reads.hosted.inputs) + len(self.result.before)

    def _note_unequal(self, e: Exception) -> None:
        """Notes the first two sizes that the network sets and that an operator needs to be equal."""
        names = {v.form: s for s, v in self.sizes.values.items() if type(v) is forms.Size} if self.sizes else {}
        pair = tuple(names.get(n) for n in getattr(e, "sizes", ()))
        if pair and None not in pair and self.unequal is None:
            self.unequal = pair

    def _set_sizes(self, found: Sequence[tuple[Any, Any]]) -> None:
        """Dimensions that the network sets; behind all others."""
        values = dict(self.sizes.values) if self.sizes else {}
        self.sizes = Sizes(values)
        for k, (symbol, most) in enumerate(found):
            bound = self.sizes.number(most) if isinstance(most, sympy.Basic) else most
            values[symbol] = forms.size(self.graph.data_dim(f"found_{k}", forms.form(bound)))

    # -- inputs and parameters

    def _placeholders(self) -> None:
        for source in self.traced.inputs:
            node = source.node
            self.origin[node] = source.origin
            if self.sizes and source.origin[0] == "leaf" and isinstance(node.meta["val"], torch.Tensor):
                self.result.leaves[source.origin[1]] = Layout.of(self._sized(node.meta["val"]))
            if not node.users:
                continue
            try:
                self.env[node] = self._placeholder(source)
                self.memory.enter(node)
            except Rejected as e:
                where, which = self.origin[node]
                self.problems.append(Problem(_OF[where], str(e), str(which)))

    def _placeholder(self, source: Source) -> Any:
        node, kind = source.node, source.kind
        val, (where, which) = node.meta.get("val"), source.origin
        if not isinstance(val, torch.Tensor):
            if where == "leaf":
                return self.leaves[which]
            if kind == InputKind.CUSTOM_OBJ:
                raise Rejected(
                    "an object of PyTorch's, such as a torch.Generator; random numbers follow torch.manual_seed"
                )
            raise Rejected(f"{kind.name.lower()} inputs")
        name = str(which)
        half = where == "param" and val.dtype in HALF and name in self.tensors and all(map(_is_cast, node.users))
        if not half:
            checks.representable(self._sized(val))
        self.b.name = node.name
        tracked = (where, which) in self.wanted
        if where == "host":
            layout = Layout.of(self.traced.reads.hosted.inputs[which][1])
            handle = self.graph.input(node.name, *_physical(val.dtype, layout))
            self.result.inputs.append(Input(len(self.leaves) + which, layout, handle))
            return self._arrange(handle, layout, tracked)
        if where == "leaf":
            layout = self.result.leaves.get(which) or Layout.of(self.leaves[which])
            if which in self.fixed:
                handle = self.graph.param(node.name, *_physical(val.dtype, layout))
                self.result.params.append(Parameter(node.name, None, layout, handle, (which, self.leaves[which])))
            else:
                handle = self.graph.input(node.name, *_physical(val.dtype, layout))
                self.result.inputs.append(Input(which, layout, handle))
            return self._arrange(handle, layout, tracked)
        constant = self.traced.constants.get(name) if kind == InputKind.CONSTANT_TENSOR else None
        if isinstance(constant, FakeTensor) or (constant is not None and is_functorch_wrapped_tensor(constant)):
            raise Rejected("made by a transformation of torch.func, or left by another trace")
        if constant is not None and name not in self.tensors:
            if constant.numel() <= BIG or not (constant.is_floating_point() or constant.is_complex()):
                if constant.is_complex():
                    return self.b.from_pairs(self.b.const(torch.view_as_real(constant.resolve_conj())))
                return self.b.const(constant)
            constant = constant.contiguous()
        tensor = self.tensors[name] if constant is None or name in self.tensors else constant
        layout = Layout.of(tensor)
        if name in self.overwritten and not tracked:
            handle = self.graph.input(node.name, *_physical(val.dtype, layout))
            self.result.inputs.append(Input(self._behind(), layout, handle))
            self.result.before.append(name)
            return self._arrange(handle, layout, tracked)
        handle = self.graph.param(name, *_physical(tensor.dtype if half else val.dtype, layout))
        self.result.params.append(Parameter(name, None if name in self.tensors else constant, layout, handle))
        return self._arrange(handle, layout, tracked)

    def _arrange(self, handle: _core.Tensor, layout: Layout, tracked: bool) -> Value | Complex:
        """Turns a tensor as it lies in memory into one as PyTorch sees it."""
        value, ndim = Value(handle, tracked), len(layout.inverse)
        if value.ndim == ndim:
            return self.b.expand(self.b.permute(value, layout.inverse), layout.shape)
        return self.b.from_pairs(self.b.permute(value, [*layout.inverse, ndim]))

    # -- operators

    def _nodes(self, graph: torch.fx.Graph, module: torch.nn.Module) -> None:
        for node in graph.nodes:
            if node.op == "call_function":
                self._call(node, module)
            elif node.op == "get_attr":
                self.env[node] = getattr(module, str(node.target), None)

    def _call(self, node: torch.fx.Node, module: torch.nn.Module) -> None:
        path, line = place(node)
        self.memory.begin(node.meta.get("enabled"))
        try:
            self.env[node] = self.memory.stopped(node, self._value(node, module, path, line))
            self.memory.enter(node)
        except _Missing:
            self._stand_in(node)
        except (Rejected, forms.Varies, _core.UnsupportedError, _core.InvalidError) as e:
            self._note_unequal(e)
            what, why = (FUNC, FUNC_INSTEAD) if _is_of_func(node) else (_named(node), str(e))
            self.problems.append(Problem(what, why, _where(path, line), node.meta.get("step")))
            self._stand_in(node)

    def _stand_in(self, node: torch.fx.Node) -> None:
        """Puts a value of the right type and shape in place of something unsupported, so that other problems are found,
        too."""

        def like(v: Any) -> Any:
            if isinstance(v, torch.SymInt | torch.SymFloat | torch.SymBool):
                raise Rejected("a number that depends on data")
            if not isinstance(v, torch.Tensor | Shaped):
                return v
            shape = tuple(map(forms.form, v.shape))
            stand_in = Value(self.graph.input("", sol_name(REAL.get(v.dtype, v.dtype)), shape))
            return Complex(stand_in, stand_in) if v.is_complex() else stand_in

        val = self._sized(node.meta.get("val"))
        with contextlib.suppress(Rejected, _core.Error, TypeError):
            checks.representable(val)
            self.env[node] = [like(v) for v in val] if isinstance(val, list | tuple) else like(val)
            self.memory.enter(node)

    def _sized(self, arg: Any) -> Any:
        """An argument or a result of the trace, with numbers in place of symbols."""
        return arg if self.sizes is None else self.sizes.of(arg)

    def _returned(self, arg: Any) -> Any:
        """A result that is no tensor."""
        if isinstance(made := self._sized(arg), Real):
            raise forms.Varies(f"returns {made}, which varies and is no tensor")
        return made

    def _value(self, node: torch.fx.Node, module: torch.nn.Module, path: str, line: str) -> Any:
        val = self._sized(node.meta.get("val"))
        if isinstance(val, bool | int | float):
            return val
        if isinstance(val, torch.SymInt | torch.SymFloat | torch.SymBool) and operators.find(str(node.target)) is None:
            raise _Missing  # an operand of it was rejected
        if node.target is operator.getitem:
            source = self._read(node.args[0])
            return source[node.args[1]]
        if isinstance(node.target, type) and issubclass(node.target, tuple):
            return self._read(node.args[0])
        if node.target is graft:
            return self._graft(node, path, line)
        if node.target is incoming:
            return self._incoming(self._read(node.args[0]))
        if node.target is assigned:
            return self.memory.assign(*self._read(node.args))
        if isinstance(node.target, Unit):
            return self._unit(node, node.target, path, line)
        if not isinstance(node.target, torch._ops.OpOverload):
            return self._higher(node, module)
        name, schema = str(node.target), node.target._schema
        row = operators.find(name)
        checks.representable(val)
        if operators.is_complex(val) or any(operators.is_complex(n.meta.get("val")) for n in node.all_input_nodes):
            row = operators.find_complex(name)
        elif row is None and (plain := operators.without_out(node.target)) is not None:
            row, schema = operators.find(str(plain)), plain._schema
        if row is None:
            return self._decomposed(node)
        if isinstance(row, operators.Row) and row.one_type:
            checks.same_types(node)
        args, kwargs = self._read(node.args), self._read(node.kwargs)
        b = self.b
        b.name = f"{path}.{node.name}" if path else node.name
        b.line, b.out, b.target, b.writes = line, val, name, []
        b.row_major = bool(node.args) and self._row_major(node.args[0])
        b.memory = functools.partial(self._memory, next(iter(node.all_input_nodes), None))
        made = row(b, schema, args, kwargs)
        target = written(node)
        if target is not None and isinstance(made, Value):
            made = b.expand(b.cast(made, val.dtype), val.shape)
        elif target is not None and isinstance(made, Complex):
            made = operators.like_out(b, made)
        else:
            made = checks.sized_as_traced(b, made, val)
        try:
            checks.as_promised(name, made, val)
        except _core.InternalError as e:
            checks.same_types(node)
            if isinstance(row, Outside | Registered):
                raise Rejected(str(e).partition(": ")[2]) from e
            raise
        if target is not None:
            made = self.memory.put(node, target, made)
        names = [a.name for a in node.target._schema.arguments]
        for argument, value in b.writes:
            given = (*node.args, *[None] * len(names))[names.index(argument)] or node.kwargs.get(argument)
            if not isinstance(given, torch.fx.Node):
                raise _core.InternalError(f"{node.target}: {argument}: expected a tensor to write")
            self.memory.put(node, given, b.layer("stop", value) if value.tracked else value)
        return made

    def _row_major(self, arg: Any) -> bool:
        val = self._sized(arg.meta.get("val")) if isinstance(arg, torch.fx.Node) else None
        return isinstance(val, torch.Tensor | Shaped) and val.is_contiguous() and val.storage_offset() == 0

    def _memory(self, node: torch.fx.Node | None) -> tuple[Value, Any, int]:
        """All elements of the memory that a tensor is in, row-major; the address of each element; where the tensor
        begins."""
        whole = None if node is None else self.memory.root(node)
        root = None if node is None else self.memory.root_node(node)
        if not isinstance(whole, Value) or node is None or root is None:
            raise Rejected("of memory that is not a tensor's of its own")
        val = self._sized(root.meta["val"])
        if any(type(n) is forms.Size for n in val.shape):
            raise Rejected("of memory whose size varies")
        addresses = torch.full((), val.storage_offset())
        for n, s in zip(val.shape, val.stride(), strict=True):
            addresses = addresses.unsqueeze(-1) + s * torch.arange(n)
        flat = self.b.reshape(whole, [math.prod(whole.shape)])
        return flat, addresses.reshape(-1), self._sized(node.meta["val"]).storage_offset()

    def _unit(self, node: torch.fx.Node, unit: Unit, path: str, line: str) -> Any:
        """Translates a module with a hook."""
        val = self._sized(node.meta.get("val"))
        checks.representable(val)
        params, *args = self._read(node.args)
        b = self.b
        b.name, b.line, b.out, b.target, b.params = path or unit.path or node.name, line, val, str(unit), params
        made = unit.function(b, unit.module, *args, **self._read(node.kwargs))
        try:
            checks.as_promised(str(unit), made, val)
        except (_core.InternalError, TypeError) as e:
            raise Rejected(f"its hook: {str(e).partition(': ')[2] or e}") from e
        return made

    def _graft(self, node: torch.fx.Node, path: str, line: str) -> Any:
        """Translates the results of an autograd.Function, with the gradient that its backward defines. Several results are parts of one
        tensor, so that backward has the gradients of all."""
        values, (*_, marker), pairs = self._read(node.args)
        self.b.name, self.b.line = f"{path}.{node.name}" if path else node.name, line
        parts = [p for v in values for p in self._components(v)]
        whole = parts[0] if len(parts) == 1 else self.b.concat([self._flat(p, marker.dtype) for p in parts], 0)
        for x, d in itertools.chain.from_iterable(zip(_real(x), _real(d), strict=True) for x, d in pairs):
            if x is not None and d is not None and x.tracked:
                whole = self.b.layer("Graft", whole, marker, x, d)
        return self._cut(whole, values)

    def _incoming(self, values: Sequence[Value | Complex]) -> tuple[Value | Complex, ...]:
        """Zeros of a constant of their own, which stand for the gradients of values; then the tensor whose parts they are."""
        parts = [p for v in values for p in self._components(v)]
        dtype = functools.reduce(torch.promote_types, [p.dtype for p in parts])
        shape = parts[0].shape if len(parts) == 1 else (sum(math.prod(p.shape) for p in parts),)
        whole = self.b.expand(self.b.const(torch.zeros((), dtype=dtype)), shape)
        return (*self._cut(whole, values), whole)

    def _cut(self, whole: Value, values: Sequence[Value | Complex]) -> list[Value | Complex]:
        """Parts of a tensor that are like these values."""
        if len(values) == 1 and isinstance(values[0], Value):
            return [whole]
        made: list[Value | Complex] = []
        start = 0
        for v in values:
            parts = []
            for p in self._components(v):
                n = math.prod(p.shape)
                part = self.b.reshape(self.b.slice(whole, 0, start, start + n), p.shape)
                parts.append(self.b.cast(part, p.dtype))
                start += n
            made.append(Complex(*parts) if isinstance(v, Complex) else parts[0])
        return made

    def _components(self, x: Value | Complex) -> list[Value]:
        return [x.re, self.b.imaginary(x)] if isinstance(x, Complex) else [x]

    def _flat(self, x: Value, dtype: torch.dtype) -> Value:
        return self.b.cast(self.b.reshape(x, [math.prod(x.shape)]), dtype)

    def _decomposed(self, node: torch.fx.Node) -> Any:
        """Translates an operator that is missing from the table, through PyTorch's decomposition."""
        try:
            if self.traced.vary or self.traced.found:
                raise forms.Varies("PyTorch takes it apart for numbers only")
            graph = None if written(node) is not None else decompose(node, self.sizes)
        except forms.Varies:
            raise
        except Exception as e:
            log.debug(f"{node.target}: cannot be decomposed: {type(e).__name__}: {e}")
            graph = None
        if graph is None:
            complex_ = any(operators.is_complex(n.meta.get("val")) for n in (node, *node.all_input_nodes))
            of = " of complex numbers" if complex_ else ""
            raise Rejected(f"SOL has no row for this operator{of}, and PyTorch does not take it apart")
        known = len(self.problems)
        for inner, outer in zip(graph.graph.find_nodes(op="placeholder"), all_tensors(node), strict=True):
            self.env[inner] = self._read(outer)
            self.memory.enter(inner)
        self._nodes(graph.graph, graph)
        for problem in self.problems[known:]:
            problem.what = f"{node.target}: needs {problem.what}"
            problem.step = node.meta.get("step")
        made = self._read(graph.graph.output_node().args[0])
        val = self._sized(node.meta["val"])
        if isinstance(val, list | tuple) and (not isinstance(made, list | tuple) or len(made) != len(val)):
            raise Rejected("")
        checks.as_promised(str(node.target), made, val)
        return made

    def _again(self, node: torch.fx.Node) -> Any:
        """A view of memory that was written in the meantime."""
        target = self.memory.same.get(node) or written(node)
        if target is not None:
            return self._read(target)
        if node.op == "placeholder":
            raise Rejected(f"'{self.origin[node][1]}' shares memory with a tensor that the model writes in place")
        if node.target is operator.getitem and getattr(node.args[0], "target", None) is graft:
            raise Rejected("writing a tensor in place of which a Function of the model's own returned a view")
        return self._value(node, self.traced.module, *place(node))

    def _read(self, arg: Any) -> Any:
        if isinstance(arg, torch.fx.Node):
            if arg not in self.env:
                raise _Missing
            self.memory.freshen(arg)
            return self.env[arg]
        if isinstance(arg, tuple):
            return tuple(self._read(a) for a in arg)
        if isinstance(arg, list):
            return [self._read(a) for a in arg]
        if isinstance(arg, dict):
            return {k: self._read(v) for k, v in arg.items()}
        return self._sized(arg)

    def _higher(self, node: torch.fx.Node, module: torch.nn.Module) -> Any:
        """Translates `with torch.no_grad()` and the like: an inner graph that is computed like any other."""
        name = getattr(node.target, "__name__", str(node.target))
        if name == "wrap_with_set_grad_enabled":
            before, self.memory.enabled = self.memory.enabled, bool(node.args[0])
            results = self._inline(node.args[1], node.args[2:])
            self.memory.enabled = before
            return results
        if name == "wrap_with_autocast":
            device, _, enabled, _, function, *operands = node.args
            if device != "cpu" or not enabled:
                return self._inline(function, operands)
            first = next((n for n in self._read(function).graph.nodes if n.op == "call_function"), node)
            raise Rejected(f"torch.autocast {_where(*place(first))}".rstrip())
        raise Rejected({"cond": "control flow"}.get(name, ""))

    def _inline(self, function: Any, operands: Sequence[Any]) -> Any:
        """The results of an inner graph for these operands."""
        body = self._read(function)
        inner = body.graph.find_nodes(op="placeholder")
        self.env.update(zip(inner, self._read(tuple(operands)), strict=True))
        for i, outer in zip(inner, operands, strict=True):
            if isinstance(outer, torch.fx.Node):
                self.memory.same[i] = outer
                self.memory.enter(i)
        self._nodes(body.graph, body)
        return self._read(body.graph.output_node().args[0])

    # -- results

    def _outputs(self) -> None:
        seen: dict[Any, int] = {}
        for root in self.memory.written_roots():
            if root in self.origin and not self._fresh(root):
                self.result.writes.append((self.origin[root], self._output(root, seen, root.name)))
        self.problems += [Problem(text) for text in self.traced.problems]
        self.result.results += [self._result(value, seen) for value in self.traced.outputs]
        returned = len(self.result.outputs)
        self.result.checks = [
            (i, [self._output(n, seen, n.name) for n in nodes]) for i, nodes in self.traced.reads.checks
        ]
        self.result.tracked[returned:] = [False] * (len(self.result.outputs) - returned)
        if not self.wanted:
            found = origins(self.traced.graph, self.origin)
            self.result.origins = [sorted((o for o in found.get(n, ()) if self._is_outside(o)), key=str) for n in seen]

    def _fresh(self, root: torch.fx.Node) -> bool:
        """Whether a node is a constant of the trace. Every call gets a new copy, so writing to it has no outside
        effect."""
        kind, name = self.origin[root]
        return kind == "param" and name not in self.tensors

    def _is_outside(self, origin: tuple[str, Any]) -> bool:
        """Whether it is an argument or a tensor of the model."""
        kind, which = origin
        return kind == "leaf" or (kind == "param" and which in self.tensors)

    def _result(self, value: Any, seen: dict[Any, int]) -> Result:
        if not isinstance(value, torch.fx.Node):
            return Result("value", self._returned(value))
        if not isinstance(value.meta.get("val"), torch.Tensor):
            known = self._read(value)
            return Result("value", known)
        replay = self._replay(value, seen)
        if replay is not None:
            return Result("replay", replay)
        return Result("output", self._output(value, seen, value.name))

    def _output(self, node: torch.fx.Node, seen: dict[Any, int], name: str) -> int:
        """Makes a value an output of the network, with its memory layout. Equal values share one output."""
        node = _original(node)
        if node not in seen:
            layout, dtype = Layout.of(self._sized(node.meta["val"])), node.meta["val"].dtype
            value: Value | Complex = self._read(node)
            if value is None:
                raise Rejected(f"a result that SOL does not compute: {node.name}")
            self.b.name, self.b.line = node.name, place(node)[1]
            order = list(layout.order)
            if isinstance(value, Complex):
                value, order = self.b.pairs(value), [*order, len(order)]
            for d in layout.repeated:
                value = self.b.slice(value, d, 0, 1)
            self.graph.output(name, self.b.permute(value, order).handle)
            seen[node] = len(self.result.outputs)
            self.result.outputs.append((layout, dtype))
            self.result.tracked.append(value.tracked)
        return seen[node]

    def _replay(self, node: torch.fx.Node, seen: dict[Any, int]) -> Replay | None:
        """Describes a result as a view of an input, a parameter, or an earlier result."""
        steps: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
        while True:
            if node in self.origin:
                return Replay(self.origin[node], steps[::-1])
            if _original(node) in seen:
                return Replay(("output", seen[_original(node)]), steps[::-1])
            parent = viewed(node)
            if parent is None or parent is not node.args[0]:
                return None
            if written(node) is None:
                if any(_has_node(o) for o in (*node.args[1:], *node.kwargs.values())):
                    return None
                if detached(node) and node.target not in DETACHED:
                    steps.append((torch.Tensor.detach, (), {}))
                steps.append((node.target, self._read(tuple(node.args[1:])), self._read(dict(node.kwargs))))
            node = parent


def _is_cast(node: torch.fx.Node) -> bool:
    """Does it convert a tensor to another type, so that a copy in float32 gives the same?"""
    val = node.meta.get("val")
    name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
    return name in ("to", "_to_copy", "type_as") and isinstance(val, torch.Tensor) and val.dtype not in HALF


def _original(node: torch.fx.Node) -> torch.fx.Node:
    """The original of a tensor that in-place operators return."""
    while (target := written(node)) is not None:
        node = target
    return node


def _has_node(arg: Any) -> bool:
    if isinstance(arg, list | tuple):
        return any(_has_node(a) for a in arg)
    return isinstance(arg, torch.fx.Node)


def _physical(dtype: torch.dtype, layout: Layout) -> tuple[str, tuple[int, ...]]:
    """Type and sizes of a tensor in memory. Complex numbers add a last dimension of two."""
    if dtype in REAL:
        return sol_name(REAL[dtype]), (*map(forms.form, layout.physical), 2)
    return sol_name(dtype), tuple(map(forms.form, layout.physical))


def _real(x: Value | Complex) -> tuple[Value | None, Value | None]:
    """The real and imaginary parts; None: zeros."""
    return (x.re, x.im) if isinstance(x, Complex) else (x, None)
