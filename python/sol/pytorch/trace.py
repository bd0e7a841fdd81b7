"""Traces a module quickly: the model runs once on tensors without data, and each call of an operator becomes a node.

The trace sees operators as PyTorch's Python code calls them (the dispatch key PreDispatch), before autograd, so that linear,
batch_norm, attention and LSTM are not decomposed. Unusual models, and those that raise errors, are left to torch.export, which
supports more and takes twenty times as long. `Unusual` never reaches a user.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import operator
import os
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.export.graph_signature import InputKind
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, snapshot_fake
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

from sol import _core, log

from . import (
    boxes,
    buffers,
    enabled,
    fake,
    function,
    inner,
    operators,
    outside,
    placeholders,
    places,
    sized_math,
    state,
    surroundings,
)
from .assigned import Assigned
from .captured import Captured
from .decompose import rule
from .hooks import computed
from .hosting import Hosting
from .placeholders import PLAIN, VALUES
from .problems import LIBRARY, place
from .skeleton import Attributes
from .steps import Steps, Unusual
from .structure import called
from .symbols import SYMBOLIC, Cause, DataSized, Symbols, TooLong, nowhere
from .traced import Source, Traced
from .values import Given, Read, Values

Node = torch.fx.Node
_PACK = torch.ops.aten._pack_padded_sequence.default
_LIFTS = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default)
_OPERANDS = (*PLAIN, *SYMBOLIC)


def _has_row(node: Node) -> bool:
    """Does SOL translate this call of an operator, of real or complex tensors?"""
    name = str(node.target)
    row = operators.find(name) or operators.find_complex(name)
    return row is not None and not isinstance(row, operators.Rejection)


class _Recorder(ProxyTorchDispatchMode):
    """Records each call of an operator in a graph, and runs it on tensors without data."""

    def __init__(
        self,
        root: torch.nn.Module,
        mode: FakeTensorMode,
        before: _Recorder | None,
        given: Given | None,
        symbols: Symbols | None = None,
        below: bool = False,
    ) -> None:
        super().__init__(None, "fake", pre_dispatch=True)  # type: ignore[arg-type]
        self.before = before  # of an earlier call, whose results may be in the model's attributes
        self.paths = {id(m): name for name, m in root.named_modules()}
        self.layers = {name: type(m).__name__ for name, m in root.named_modules()}
        self.graph = torch.fx.Graph()
        self.nodes: WeakTensorKeyDictionary = (
            WeakTensorKeyDictionary()
        )  # weak, because PyTorch copies tensors that have other owners
        self.constants: dict[str, torch.Tensor] = {}
        self.sources: dict[Node, Source] = {}
        self.values = Values(given, type(root).__name__, self.constants)
        self.step: Node | None = None  # of a graph that is being run
        self.symbols = symbols  # sizes that may vary
        self.known = fake.Known()
        self.running = ""  # the operator
        self.inside = 0  # operators that are running
        self.apart: list[Any] = []  # operators that are being taken apart
        self.mode = mode
        self.inner = inner.Above() if below else None  # operators are recorded below autograd
        self.captured = Captured(self, mode)
        self.assigned = Assigned(self)
        self.hosting = Hosting(self, mode, root)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tells PyTorch that Dynamo never sees a call in this mode; hiding from Dynamo would slow down each call."""
        return False

    def node(self, t: torch.Tensor, default: Any) -> Any:
        """The node that made a tensor."""
        return self.nodes.get(t) or (self.before.node(t, default) if self.before else default)

    def source(self, name: str, value: Any, origin: tuple[str, Any], kind: InputKind) -> Node:
        """Adds a placeholder."""
        node = self.graph.placeholder(name)
        node.meta["val"] = inner.snapshot(value) if isinstance(value, torch.Tensor) else value
        self.sources[node] = Source(node, origin, kind)
        if isinstance(value, torch.Tensor):
            self.nodes[value] = node
        return node

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (
            torch.is_autocast_enabled("cpu")
            or not isinstance(func, torch._ops.OpOverload)
            or func.namespace == "profiler"
        ):
            raise Unusual(f"{func}{' in autocast' if torch.is_autocast_enabled('cpu') else ''}")
        if func is torch.ops.prim.device.default:
            return func(*args, **kwargs)
        args = tuple(map(places.on_host, args))
        kwargs = {key: places.on_host(value) for key, value in kwargs.items()}
        if func in _LIFTS:
            return self._lift(args[0])
        if func in operators.NUMBERS:
            tensors = [a for a in args if isinstance(a, torch.Tensor)]
            return self.read(functools.partial(_called, func, args[len(tensors) :], kwargs), *tensors)
        if self.inner:
            return self.inner.run(func, args, kwargs)
        if func is torch.ops.aten._make_dual.default:
            raise Unusual("forward mode", inner=True)
        return self.record(func, types, args, kwargs)

    def record(self, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        """Records an operator, and runs it."""
        kwargs = kwargs or {}
        if self.inner and self.inner.keeps(func):
            made = func(*args)
            self.nodes[made] = self._nodes(args[0])
            return made
        given = args
        args, kwargs = self.captured.replace(func, args, kwargs)
        if self.inner:
            func, args = inner.plain(self.record, func, args)
        func, args = operators.plain(self.record, self.read, func, args)
        if self.symbols is not None:
            self.symbols.check_time()
            self.running = func._schema.name.partition("::")[2]
            if (apart := self._apart(func, args, kwargs)) is not None:
                return apart
        inputs, named = self._nodes(args), self._nodes(kwargs)
        known, sized = operators.SHAPES.get(func), operators.SIZES.get(func) or operators.SIZES.get(str(func))
        self.inside += 1
        try:
            if sized:
                made = sized(self.count, *args, **kwargs)
            else:
                made = known(*args, **kwargs) if known else None
                if made is None:
                    made = func(*args, **kwargs) if kwargs else self._made(func, args)
        finally:
            self.inside -= 1
            self.running = ""
        if isinstance(made, torch.Tensor):
            if (
                args and made is args[0] and not func._schema.is_mutable
            ):  # it has the type and layout already, and keeps its gradients
                return given[0]
            node = self._call(func, inputs, named, snapshot_fake(made))
            self.nodes[made] = node
        elif isinstance(made, tuple | list):
            many = self._call(func, inputs, named, type(made)(_value(m) for m in made))
            self._parts(many, made, not func._schema.is_mutable)
        elif made is None:
            self._call(func, inputs, named, None)
        elif not isinstance(made, (bool, int, float, *SYMBOLIC)):
            raise Unusual(f"{func} makes a {type(made).__name__}")
        if func is _PACK and args[0].ndim > 2:
            return made[0], self._batch_sizes(*args)
        return made

    def _apart(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of an operator without a row, by PyTorch's decomposition: its operators are recorded instead, with symbols. None:
        there is a row, or no decomposition."""
        tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        find = operators.find_complex if any(t.is_complex() for t in tensors) else operators.find
        if func in self.apart or func._schema.is_mutable or find(str(func)) is not None:
            return None
        function = rule(func)
        if function is None:
            return None
        nodes = self.graph.nodes
        before = len(nodes)
        self.apart.append(func)
        try:
            with self:
                made = function(*args, **kwargs)
        finally:
            self.apart.pop()
        parts = list(itertools.islice(reversed(nodes), len(nodes) - before))
        if made is not NotImplemented and all(
            _has_row(n) for n in parts if isinstance(n.target, torch._ops.OpOverload)
        ):
            return made
        for node in parts:  # the rejection names the operator that the model calls
            self.graph.erase_node(node)
        return None

    def __sym_dispatch__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Arithmetic of sizes; a size is an expression, which needs no nodes."""
        return func(*args, **kwargs)

    def cause(self) -> Cause:
        """Where the model is now."""
        path, line = self._place()
        layer = self.layers.get(path) if path else None
        return Cause(self.running, f"{layer} {path}" if layer else "", line)

    def _batch_sizes(self, x: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> torch.Tensor:
        """The batch sizes of a packed sequence. They follow from its lengths alone, so they are read as values, however
        x is computed."""
        steps, n = (x.shape[1], x.shape[0]) if batch_first else x.shape[:2]
        zeros = self.record(torch.ops.aten.zeros.default, (), ([steps, n],))
        found: torch.Tensor = self.record(_PACK, (), (zeros, lengths, False))[1]
        return found

    def read(self, function: Callable[..., Any], *tensors: torch.Tensor) -> Any:
        """Applies a function to the data of tensors. The program is then valid for this value only."""
        nodes = self._nodes(tensors)
        return self.values.read(function, nodes, self.sources, self._place()[1])

    def count(self, function: Callable[..., Any], *tensors: torch.Tensor) -> Any:
        """A size that a function finds in data: one that the network sets, or a value that forward reads."""
        most = operators.MOST.get(getattr(function, "func", function))
        given = self.values.given
        if most is None or given is None or not given.found:
            return self.read(function, *tensors)
        if self.symbols is None:
            raise DataSized
        return self.symbols.found((function, *self._nodes(tensors)), most(*getattr(function, "args", ()), *tensors))

    def operands(self, name: str, tensors: Sequence[torch.Tensor]) -> Read:
        """What computes the tensors that a host function takes."""
        return self.values.operands(self._nodes(tensors), self.sources, self._place()[1], name)

    def _made(self, func: Any, args: Sequence[Any]) -> Any:
        """The result of an operator."""
        made = _normalized(func, args) if self.symbols is None else fake.lenient(func, args)
        if made is None:
            made = self.known.find(func, args)
        if made is None:
            made = func(*args)
            self.known.learn(made, args)
        return made

    def _lift(self, constant: torch.Tensor) -> torch.Tensor:
        """Records torch.tensor([...]) in a forward: a constant, of which every call gets a new copy."""
        if isinstance(constant, FakeTensor):
            raise Unusual("lift of a tensor without data")
        name = f"_tensor_constant{len(self.constants)}"
        with _disable_current_modes() if self.inner else unset_fake_temporarily():
            self.constants[name] = inner.unwrapped(constant.detach().clone())
        made: torch.Tensor = torch.ops.aten.lift_fresh.default(constant)
        inside = inner.unwrapped(made)
        source = self.source(name, inside, ("param", name), InputKind.CONSTANT_TENSOR)
        node = self._call(torch.ops.aten.lift_fresh_copy.default, (source,), {}, source.meta["val"])
        self.nodes[made] = self.nodes[inside] = node
        return made

    def _nodes(self, arg: Any) -> Any:
        if isinstance(arg, torch.Tensor):
            node = self.node(arg, None)
            if node is None:
                raise Unusual("a tensor that is neither an argument nor the model's", inner=self.inner is None)
            return node
        if isinstance(arg, tuple | list):
            return tuple(map(self._nodes, arg)) if isinstance(arg, tuple) else [self._nodes(a) for a in arg]
        if isinstance(arg, dict):
            return {k: self._nodes(v) for k, v in arg.items()}
        if isinstance(arg, _OPERANDS):
            return arg
        raise Unusual(f"an operand of {type(arg).__name__}")

    def _call(self, func: Any, args: Any, kwargs: Any, value: Any) -> Node:
        node = self.graph.create_node(
            "call_function", func, args, kwargs, name=getattr(func, "overloadpacket", func).__name__
        )
        node.meta["val"], node.meta["enabled"] = value, enabled.enabled()
        node.meta["place"], node.meta["step"] = self._place(), self.step
        return node

    def _parts(self, node: Node, values: Sequence[Any], keep: bool = False) -> None:
        """Records what an operator makes. `keep`: operands among it stay what they are."""
        for i, value in enumerate(values):
            if isinstance(value, tuple | list):
                raise Unusual("lists of lists")
            if isinstance(value, torch.Tensor):
                part = self.graph.call_function(operator.getitem, (node, i))
                part.meta.update(node.meta, val=node.meta["val"][i])
                if not keep or self.node(value, None) is None:
                    self.nodes[value] = part

    def call(self, target: Any, args: Any, made: torch.Tensor) -> Node:
        """Adds the node of what is no operator."""
        return self._call(target, args, {}, snapshot_fake(made))

    def own_backward(self, target: Any, args: tuple[Any, ...]) -> Any:
        """Handles a call of `apply` of a model's own autograd.Function."""

        def mark(values: Sequence[Any], markers: Sequence[Any]) -> Node:
            marked = self._call(
                function.incoming, (self._nodes(tuple(values)),), {}, tuple(map(snapshot_fake, markers))
            )
            for m in markers:
                self.graph.erase_node(self.nodes[m])
            self._parts(marked, markers)
            self.values.unknown.update((marked, *self._nodes(tuple(markers))))
            return marked

        def add(values: Sequence[Any], made: Sequence[Any], marked: Node, pairs: Any) -> None:
            operands = (self._nodes(tuple(values)), marked, self._nodes(pairs))
            for m in made:  # what gave it a history
                if (node := self.nodes.get(m)) is not None and not node.users:
                    self.graph.erase_node(node)
            self._parts(self._call(function.graft, operands, {}, tuple(map(snapshot_fake, made))), made)

        return function.apply(target, args, mark, add)

    def unit(self, module: Any, path: str, hook: outside.Hook, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Records a module with a hook as one node. What its forward records meanwhile only describes the results."""
        before = len(self.graph.nodes)
        inner = dict.fromkeys(itertools.chain(module.named_parameters(), module.named_buffers()))
        tensors = {name: self._nodes(t) for name, t in inner}
        given, named = self._nodes(args), self._nodes(kwargs)
        made = hook.shape(module, *args, **kwargs) if hook.shape else type(module).forward(module, *args, **kwargs)
        results = made if isinstance(made, tuple | list) else (made,)
        if any(not isinstance(r, torch.Tensor) for r in results):
            raise Unusual(f"{type(module).__name__} returns what is no tensor")
        described = [snapshot_fake(r) for r in results]
        fresh = [torch.empty_like(r) for r in results]  # results may be arguments
        for node in list(itertools.islice(reversed(self.graph.nodes), len(self.graph.nodes) - before)):
            self.graph.erase_node(node)
        unit = outside.Unit(hook.function, path, module)
        node = self._call(unit, (tensors, *given), named, described[0] if made is results[0] else type(made)(described))
        node.meta["place"] = (path, node.meta["place"][1])
        if made is results[0]:
            self.nodes[fresh[0]] = node
            return fresh[0]
        self._parts(node, fresh)
        return type(made)(fresh)

    def _place(self) -> tuple[str, str]:
        """The path of the innermost running module, and the innermost line that belongs to the user."""
        if self.step:
            return place(self.step)
        path, line = None, ""
        frame: types.FrameType | None = sys._getframe(3)
        while frame is not None and frame.f_code is not run.__code__ and (path is None or not line):
            code = frame.f_code
            if path is None and code.co_argcount and code.co_varnames[0] == "self":
                path = self.paths.get(id(frame.f_locals.get("self")))
            if not line and not code.co_filename.startswith((*LIBRARY, "<")):
                line = f"{os.path.basename(code.co_filename)}:{frame.f_lineno}"
            frame = frame.f_back
        return path or "", line


def _called(func: Any, more: tuple[Any, ...], kwargs: dict[str, Any], *tensors: torch.Tensor) -> Any:
    return func(*tensors, *more, **kwargs)


def _normalized(func: Any, args: Sequence[Any]) -> torch.Tensor | None:
    """The result of batch_norm with its running statistics: a tensor like its input. (PyTorch would call twenty
    operators to find that out, for each size.) None: the case is not that simple."""
    if func is not torch.ops.aten.batch_norm.default or torch.is_grad_enabled():
        return None
    x, *rows, training = args[:6]
    if (
        training
        or type(x) is not FakeTensor
        or x.ndim < 2
        or not (x.is_contiguous() or x.is_contiguous(memory_format=_channels_last(x)))
    ):
        return None
    if any(r.dtype != x.dtype or r.shape != x.shape[1:2] for r in rows if r is not None) or None in rows[2:]:
        return None
    return fake.fresh(x.fake_mode, (x.shape, x.stride(), x.dtype, x.device))


def _channels_last(x: torch.Tensor) -> torch.memory_format:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return formats.get(x.ndim, torch.contiguous_format)


def _value(made: Any) -> Any:
    return snapshot_fake(made) if isinstance(made, torch.Tensor) else made


def trace(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    given: Given | None = None,
    exporting: bool = True,
    symbols: Symbols | None = None,
    below: bool = False,
) -> Traced:
    """Records the operators that a module calls for these arguments. Raises Unusual. Replaces the module's tensors, so
    the module cannot be used afterwards.

    `given`: the data from which values that forward reads are computed. `exporting`: whether checks in models give the
    same answers as during torch.export. `symbols`: sizes of arguments that may vary. `below`: record below autograd, for models
    that ask for gradients in forward.
    """
    collecting = gc.isenabled()
    gc.disable()  # there is little garbage, and collecting is slow because PyTorch has many objects
    try:
        env, static = (symbols.env, True) if symbols else (None, None)  # the model's own tensors have no symbols
        with FakeTensorMode(shape_env=env, static_shapes=static) as mode, surroundings.told(exporting):
            mode.cache_enabled = symbols is None  # storing a result whose sizes are symbols costs more than making it
            return _trace(_Recorder(module, mode, None, given, symbols, below), module, args, kwargs)
    except (Unusual, TooLong, DataSized, _core.UnsupportedError):
        raise
    except GuardOnDataDependentSymNode as e:
        raise Unusual(_first_line(e)) from e
    except Exception as e:
        raise Unusual(f"{type(e).__name__}: {_first_line(e)}") from e
    finally:
        if collecting:
            gc.enable()


def _first_line(e: Exception) -> str:
    """Without the stack of PyTorch's C++ code, which some messages end with."""
    return next((line for line in str(e).splitlines() if line.strip()), "")


def _trace(recorder: _Recorder, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
    mode, symbols, values = recorder.mode, recorder.symbols, recorder.values.given
    outside.enter(module, _unit)
    leaves, spec = pytree.tree_flatten((args, kwargs))
    rows = [
        *placeholders.tensors(mode, module),
        *placeholders.leaves(mode, leaves, placeholders.leaf_names(module, args, kwargs), symbols),
    ]
    if symbols is not None:
        symbols.env.place = recorder.cause
    given = pytree.tree_unflatten([value for _, value, (kind, _), _ in rows if kind == "leaf"], spec)
    attributes, kept = Attributes(module), computed(module)
    try:
        traced = _call(module, given, rows, recorder)
        if changed := attributes.changed():
            first = Attributes(module)
            next_call = _Recorder(module, mode, recorder, values, symbols, recorder.inner is not None)
            if symbols is not None:
                symbols.env.place = next_call.cause
            again = _call(module, given, rows, next_call)
            differs = state.differs(traced, again)
            if differs and symbols is not None:
                raise Unusual("attributes that forward sets")
            traced.effects = attributes.plain(changed) if differs and not first.changed() else []
            if differs and not traced.effects:
                raise state.rejection(module, changed)
            if left := [name for name in first.changed() if name not in kept]:
                log.warn(
                    f"{type(module).__name__}: forward leaves {', '.join(left)} behind: calls of the optimized model do not; "
                    "what is wanted of a call has to be returned"
                )
    finally:
        attributes.restore()
        if symbols is not None:
            symbols.env.place = nowhere
    return traced


def _call(module: torch.nn.Module, given: Any, rows: list[placeholders.Row], recorder: _Recorder) -> Traced:
    """Calls the module once, on tensors that become placeholders."""
    for row in rows:
        recorder.source(*row)
    before = buffers.kept(module)
    with (
        enable_python_dispatcher(),
        recorder,
        surroundings.portable(),
        _recording(recorder),
        contextlib.ExitStack() as symbolic,
    ):
        if recorder.inner:
            symbolic.enter_context(inner.Below(recorder.record))
        for functions in () if recorder.symbols is None else (sized_math.expressions, boxes.any_number):
            symbolic.enter_context(functions())
        made = called(lambda both: run(recorder, module, *both), given)
        results, out_spec = pytree.tree_flatten(made)
        recorder.assigned.write_back()
        results = buffers.written_back(before, results, lambda t: recorder.node(t, None) is not None)
    outputs = [recorder.node(r, r) if isinstance(r, torch.Tensor) else r for r in results]
    if not all(isinstance(o, (Node, *VALUES, *SYMBOLIC)) for o in outputs):
        raise Unusual(
            "returns what no operator made", inner=recorder.inner is None
        )  # a tangent of forward mode, for example
    recorder.graph.output(tuple(outputs))
    recorder.values.finish(recorder.graph)
    sources, reads = list(recorder.sources.values()), recorder.values.made
    symbols = recorder.symbols
    found = symbols.set_sizes() if symbols else []
    if symbols and found and (needs := symbols.unchecked()):
        raise Unusual(needs)
    return Traced(recorder.graph, module, sources, outputs, recorder.constants, out_spec, [], reads=reads, found=found)


_recorders: list[_Recorder] = []  # of the current trace; there is only one at a time


def recorder() -> _Recorder | None:
    """The recorder of the current trace. None: torch.export is tracing."""
    return _recorders[-1] if _recorders else None


def _unit(module: Any, path: str, hook: outside.Hook, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    current = recorder()
    if current is None:
        return type(module).forward(module, *args, **kwargs)
    return current.unit(module, path, hook, args, kwargs)


@contextlib.contextmanager
def _recording(recorder: _Recorder) -> Iterator[None]:
    _recorders.append(recorder)
    try:
        with _lists(recorder), recorder.hosting.entered():
            yield
    except (_core.UnsupportedError, Unusual, DataSized):
        raise
    except Exception as e:
        if not recorder.values.used:
            raise
        unusual = Unusual(f"{type(e).__name__}: {e}")
        unusual.reads = True
        raise unusual from e
    finally:
        _recorders.pop()


@contextlib.contextmanager
def _lists(recorder: _Recorder) -> Iterator[None]:
    """Makes `tolist` read all numbers of a tensor at once instead of one by one, and strings read the numbers in them."""
    before = FakeTensor.tolist, FakeTensor.__format__

    def tolist(t: FakeTensor) -> Any:
        return recorder.read(torch.Tensor.tolist, t) if recorder.node(t, None) is not None else before[0](t)

    def formatted(t: FakeTensor, spec: str) -> str:
        known = t.ndim == 0 and recorder.node(t, None) is not None
        return format(recorder.read(torch.Tensor.tolist, t), spec) if known else before[1](t, spec)

    FakeTensor.tolist, FakeTensor.__format__ = tolist, formatted  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        FakeTensor.tolist, FakeTensor.__format__ = before  # type: ignore[method-assign]


def run(recorder: _Recorder, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The outermost frame of a trace; only frames inside it are searched for locations."""
    if isinstance(module, torch.fx.GraphModule):
        return Steps(module, recorder).run(*args, *kwargs.values())
    return module(*args, **kwargs)
