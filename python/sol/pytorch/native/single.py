"""One call of an operator as a network: it is recorded on tensors without data, and translated like a model.

Operators for which the frontend's table has no row are recorded as PyTorch takes them apart. An operator that writes its
arguments is recorded as the one that returns new tensors, whose results the network writes into the arguments.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.export.graph_signature import InputKind
from torch.fx.experimental.proxy_tensor import snapshot_fake
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from sol import _core, forms

from .. import operators
from ..builder import Rejected
from ..decompose import rule
from ..layout import Layout, row_major
from ..places import HOST, name_of
from ..trace import Source, Traced
from ..translate import Replay, Translator

aten = torch.ops.aten
Form = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]  # sizes, strides and type of a tensor
HINT = 1 << 14  # elements, for which networks of any size are planned
_LIFTS = (aten.lift_fresh.default, aten.lift_fresh_copy.default)
_UNKNOWN = (DataDependentOutputException, DynamicOutputShapeException, NotImplementedError)
REJECTIONS = (_core.UnsupportedError, Rejected, forms.Varies)
_RANDOM = torch.Tag.nondeterministic_seeded


@functools.cache
def functional(op: Any) -> tuple[Any, tuple[int, ...]]:
    """The operator that returns new tensors instead of writing its arguments, and the arguments that this one writes with
    its results. The operator itself, if there is no such operator."""
    arguments = op._schema.arguments
    outs = tuple(i for i, a in enumerate(arguments) if a.is_out)
    if outs:
        plain = operators.without_out(op)
        return (op, ()) if plain is None else (plain, outs)
    name = op._schema.name.split("::")[-1]
    writes = [i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write]
    packet = getattr(aten, name[:-1], None) if name.endswith("_") and writes == [0] else None
    plain = getattr(packet, op._overloadname, None) if op.namespace == "aten" else None
    if plain is None or [a.name for a in plain._schema.arguments] != [a.name for a in arguments]:
        return op, ()
    return plain, (0,)


# Operators whose numbers change from call to call, such as an optimizer's step size: the numbers are operands.
def _scaled(op: Any) -> Callable[..., Any]:
    return lambda x, y, *, alpha: op(x, aten.mul.Tensor(y, alpha))


def lerp(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """As PyTorch's kernels round it."""
    d = aten.sub.Tensor(y, x)
    near = aten.add.Tensor(x, aten.mul.Tensor(d, weight))
    rest = aten.sub.Tensor(y, aten.mul.Tensor(d, aten.rsub.Scalar(weight, 1.0)))
    return aten.where.self(aten.lt.Scalar(aten.abs.default(weight), 0.5), near, rest)


AT_LAUNCH: dict[Any, tuple[str, Callable[..., Any]]] = {
    aten.add.Tensor: ("alpha", _scaled(aten.add.Tensor)),
    aten.sub.Tensor: ("alpha", _scaled(aten.sub.Tensor)),
    aten.addcmul.default: (
        "value",
        lambda x, y, z, *, value: aten.add.Tensor(x, aten.mul.Tensor(aten.mul.Tensor(y, value), z)),
    ),
    aten.addcdiv.default: (
        "value",
        lambda x, y, z, *, value: aten.add.Tensor(x, aten.div.Tensor(aten.mul.Tensor(y, value), z)),
    ),
    aten.lerp.Scalar: ("weight", lerp),
    aten.fill.Scalar: ("value", lambda x, value: aten.fill.Tensor(x, aten._to_copy.default(value, dtype=x.dtype))),
}


# Operators of native.cpp's own
def _within(base: torch.Tensor, source: torch.Tensor, steps: Sequence[int]) -> torch.Tensor:
    made = aten._to_copy.default(source, dtype=base.dtype)
    for d in reversed(range(base.ndim)):
        rest = base
        for k in range(d):
            rest = _first(rest, k, source.shape[k], steps[k])
        if source.shape[d] < base.shape[d]:
            made = aten.slice_scatter.default(rest, made, d, 0, _end(source.shape[d], steps[d]), steps[d])
    return made


def _end(n: int, step: int) -> int:
    return (n - 1) * step + 1


def _first(t: torch.Tensor, d: int, n: int, step: int) -> torch.Tensor:
    """The first n places of a dimension, at every step-th position."""
    return t if n == t.shape[d] else aten.slice.Tensor(t, d, 0, _end(n, step), step)


def _own(op: Any) -> Any:
    return _within if op is torch.ops.sol_native.within.default else op


@functools.cache
def is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether a tensor has neither gaps nor repetitions in memory."""
    layout = Layout.of(torch.empty_strided(shape, strides, device="meta"))
    return layout.dense and not layout.repeated


def _places(form: Form) -> Gaps | None:
    """The memory of a tensor with gaps or repetitions; None: it has none."""
    shape, strides, _ = form
    if is_dense(shape, strides):
        return None
    found = gaps(shape, strides)
    if found is None:
        raise Rejected("a tensor whose elements overlap in memory")
    return found


class Gaps(NamedTuple):
    """Row-major memory in which a tensor with gaps or repetitions lies. From outermost to innermost: its sizes, the distances
    of the tensor's elements in each, and which dimension of the tensor that is."""

    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    order: tuple[int, ...]


@functools.cache
def gaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> Gaps | None:
    """The memory of a tensor. None: it is not of this form, because elements overlap or are interleaved."""
    order = sorted((d for d, n in enumerate(shape) if n > 1 and strides[d]), key=lambda d: -strides[d])
    sizes, steps = [], []
    above = 0  # elements of memory between two places of the dimension around this one
    for d in order:
        unit = 1 if d == order[-1] else math.gcd(above, strides[d])
        step = strides[d] // unit
        extent = _end(shape[d], step)
        if above and extent * unit > above:
            return None
        sizes.append(above // unit if above else extent)
        steps.append(step)
        above = unit
    return Gaps(tuple(sizes), tuple(steps), tuple(order))


def _seen(base: torch.Tensor, shape: Sequence[int], at: Gaps) -> torch.Tensor:
    """A tensor with gaps as a view of its memory."""
    view = base
    for k, d in enumerate(at.order):
        view = _first(view, k, shape[d], at.steps[k])
    there = sorted(at.order)
    view = aten.permute.default(view, [at.order.index(d) for d in there])
    for d in range(len(shape)):
        if d not in there:
            view = aten.unsqueeze.default(view, d)
    return aten.expand.default(view, shape)


class Uncast(RuntimeError):
    """A result cannot be written into a tensor of this type."""


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class Sizes(Exception):
    """The tensors that results are to be written into have other sizes than these."""

    def __init__(self, sizes: list[tuple[int, ...]]) -> None:
        super().__init__()
        self.sizes = sizes


class _Record(TorchDispatchMode):
    """Records calls of operators as nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = torch.fx.Graph()
        self.nodes: dict[int, torch.fx.Node] = {}  # by id of a tensor
        self.kept: list[Any] = []  # so that ids stay theirs
        self.sources: list[Source] = []
        self.constants: dict[str, torch.Tensor] = {}

    def source(self, t: torch.Tensor, origin: tuple[str, Any], kind: InputKind = InputKind.USER_INPUT) -> None:
        """Adds a placeholder."""
        node = self.graph.placeholder(f"x{len(self.sources)}")
        self.sources.append(Source(node, origin, kind))
        self._enter(node, t)

    def node(self, value: Any) -> Any:
        """The node of a tensor; other values as they are."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self.nodes:
                raise Rejected("a tensor that no operator made")
            return self.nodes[id(value)]
        if isinstance(value, tuple | list):
            return type(value)(map(self.node, value))
        return value

    def add(self, func: Any, args: Any, kwargs: dict[str, Any], made: Any) -> torch.fx.Node:
        """A node for a call with this result."""
        named = {k: self.node(v) for k, v in kwargs.items()}
        node = self.graph.create_node("call_function", func, self.node(tuple(args)), named)
        if isinstance(made, tuple | list):
            self._value(node, type(made)(snapshot_fake(m) if isinstance(m, torch.Tensor) else m for m in made))
            for i, m in enumerate(made):
                if isinstance(m, torch.Tensor):
                    self._enter(self.graph.call_function(operator.getitem, (node, i)), m)
        elif isinstance(made, torch.Tensor):
            self._enter(node, made)
        else:
            self._value(node, made)
        return node

    def _enter(self, node: torch.fx.Node, t: torch.Tensor) -> None:
        self.nodes[id(t)] = node
        self.kept.append(t)
        self._value(node, snapshot_fake(t))

    def _value(self, node: torch.fx.Node, value: Any) -> None:
        node.meta.update(val=value, enabled=False, place=("", ""), step=None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default:
            return func(*args, **kwargs)
        if func in _LIFTS and id(args[0]) not in self.nodes:
            return self._lift(args[0])
        if _RANDOM in func.tags:
            raise Rejected("random numbers are those of the processor")
        tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        find = operators.find_complex if any(t.is_complex() for t in tensors) else operators.find
        plain = operators.without_out(func)
        row = find(str(func)) or (find(str(plain)) if plain is not None else None)
        if row is None and (apart := rule(func)) is not None:
            with self:
                made = apart(*args, **kwargs)
            if made is not NotImplemented:
                return made
        made = func(*args, **kwargs)
        if isinstance(made, torch.SymInt | torch.SymFloat | torch.SymBool | bool | int | float):
            return made
        self.add(func, args, kwargs, made)
        return made

    def _lift(self, constant: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = aten.lift_fresh_copy.default(constant)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = constant.detach().clone()
        self.source(made, ("param", name), InputKind.CONSTANT_TENSOR)
        return made


@dataclass
class Output:
    """A result of the network: its sizes, strides and type, and the argument that it is written into (-1: new memory)."""

    form: Form
    target: int


@dataclass
class Single:
    """A compiled call of an operator."""

    net: _core.Net | None  # None: nothing is to be computed
    inputs: tuple[int, ...]  # numbers of the tensors among the arguments that the network reads
    outputs: list[Output]
    results: list[tuple[str, Any]]  # ("output", number), ("argument", number), ("value", it) or ("view", Replay)
    spec: pytree.TreeSpec
    host_steps: int


_making = threading.RLock()


def make(
    op: Any,
    tensors: Sequence[Form],
    fill: Callable[[Sequence[Any]], tuple[Sequence[Any], dict[str, Any]]],
    targets: Sequence[int],
    device: torch.device,
    launched: bool,
    sized: Sequence[tuple[bool, ...] | None] | None,
    resizes: bool,
) -> Single:
    """Compiles a call. `fill` gives the arguments for tensors in place of the caller's; `targets` are tensors that the results are
    written into. `launched`: see AT_LAUNCH. `sized`: sizes are given at launch, in place of those of the forms; by tensor, which of
    these dimensions it has (None: a scalar). `resizes`: the targets get the sizes of the results (the exception Sizes)."""
    places = [None if sized or i in targets else _places(f) for i, f in enumerate(tensors)]
    with _making, torch.no_grad(), _silent():
        record = _Record()
        env = ShapeEnv(duck_shape=False) if sized else None
        with FakeTensorMode(shape_env=env, allow_non_fake_inputs=True) as mode:
            if sized and env:
                sizes = _sizes(env, max(len(has) for has in sized if has))
                leaves = [_fake_sized(has, sizes, f[2]) for has, f in zip(sized, tensors, strict=True)]
            else:
                sizes = []
                leaves = [
                    _fake((p.sizes, row_major(p.sizes), f[2]) if p else f) for p, f in zip(places, tensors, strict=True)
                ]
            for i, t in enumerate(leaves):
                record.source(t, ("leaf", i))
            with record:
                fakes = [_seen(t, f[0], p) if p else t for t, f, p in zip(leaves, tensors, places, strict=True)]
            args, kwargs = fill(fakes)
            function = AT_LAUNCH[op][1] if launched else _own(op)
            try:
                with record, enable_python_dispatcher() if sized else contextlib.nullcontext():
                    made = function(*args, **kwargs)
            except _UNKNOWN as e:
                raise Rejected(str(e).split("\n")[0].split(". ")[0]) from e
            except RuntimeError as e:  # PyTorch gives numbers of Python where the operator has tensors
                if "Expected a value of type 'Tensor'" not in str(e):
                    raise
                raise Rejected("a number in place of a tensor") from e
            results, spec = pytree.tree_flatten(made)
            if len(sizes) > 1 and not all(r.is_contiguous() for r in results):
                raise Rejected("a result that is not row-major")
            if targets:
                needed = [tuple(r.shape) for r in results]
                if resizes and needed != [tuple(fakes[k].shape) for k in targets]:
                    raise Sizes(needed)
                results = [_into(record, fakes[k], r) for r, k in zip(results, targets, strict=True)]
        del mode
        outputs = [record.nodes.get(id(v), v) if isinstance(v, torch.Tensor) else v for v in results]
        traced = Traced(record.graph, torch.nn.Module(), record.sources, outputs, record.constants, spec, [])
        most = 1 << 40 if len(sizes) == 1 else 0  # 0: any
        traced.vary = {n.node.expr: (f"n{i}", n.node.hint, 1, most, 1) for i, n in enumerate(sizes)}
        single = _compiled(op, traced, leaves, targets, spec, device)
        if any(kind == "view" and r.base[0] == "leaf" and places[r.base[1]] for kind, r in single.results):
            raise Rejected("returns a view of a tensor with gaps")
        return single


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """PyTorch logs what fails here, before it raises it."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _sizes(env: ShapeEnv, n: int) -> list[Any]:
    """So many sizes that vary, whose product is planned to be HINT."""
    made = []
    for i in range(n):
        source = ConstantSource(f"n{i}")
        hint = max(round(HINT ** (1 / n)), 2)
        symbol = env.create_symbol(hint, source, DimDynamic.DYNAMIC)
        made.append(env.create_symintnode(symbol, hint=hint, source=source))
    return made


def _fake_sized(has: tuple[bool, ...] | None, sizes: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    shape = [n if there else 1 for n, there in zip(sizes, has, strict=True)] if has else []
    return torch.empty(shape, dtype=dtype, device=HOST)


def _fake(form: Form) -> torch.Tensor:
    shape, strides, dtype = form
    return torch.empty_strided(shape, strides, dtype=dtype, device=HOST)


def _into(record: _Record, target: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The value in the type of the tensor that it is written into, and in its layout unless that has gaps."""
    if not torch.can_cast(value.dtype, target.dtype):
        raise Uncast(
            f"result type {_named(value.dtype)} can't be cast to the desired output type {_named(target.dtype)}"
        )
    if tuple(target.shape) != tuple(value.shape):
        with record:
            value = aten.expand.default(value, target.shape)
    sized = any(isinstance(n, torch.SymInt) for n in target.shape)  # row-major
    dense = sized or is_dense(tuple(target.shape), target.stride())
    strides = target.stride() if dense else row_major(target.shape)
    laid = torch.empty_strided(target.shape, strides, dtype=target.dtype, device=HOST)
    record.add(aten._to_copy.default, (value,), {"dtype": target.dtype}, laid)
    return laid


def _compiled(
    op: Any, traced: Traced, fakes: Sequence[Any], targets: Sequence[int], spec: pytree.TreeSpec, device: torch.device
) -> Single:
    translation = Translator(traced, str(op), fakes, {}, frozenset()).run()
    if translation.random:
        raise Rejected("random numbers are those of the processor")
    into = [-1] * len(translation.outputs)
    for (kind, which), number in translation.writes:
        if kind != "leaf":
            raise Rejected("writes a constant")
        into[number] = which
    results: list[tuple[str, Any]] = []
    for k, r in enumerate(translation.results):
        if targets:
            number = _number(r)
            if into[number] >= 0:
                raise Rejected("one result is written into two arguments")
            into[number] = targets[k]
            results.append(("argument", targets[k]))
        elif r.kind == "replay" and r.value.base[0] == "leaf" and not r.value.steps:
            results.append(("argument", r.value.base[1]))
        else:
            results.append(("view" if r.kind == "replay" else r.kind, r.value))
    forms_ = [_form(layout, dtype) for layout, dtype in translation.outputs]
    net, steps = None, 0
    if not translation.outputs or all(0 in form[0] for form in forms_):
        return Single(None, (), [Output(f, t) for f, t in zip(forms_, into, strict=True)], results, spec, 0)
    translation.graph.resident(name_of(device))
    net = translation.graph.compile()
    steps = net.host_steps
    inputs = tuple(i.leaf for i in translation.inputs)
    if translation.params:
        raise Rejected("constants of this size")
    return Single(net, inputs, [Output(f, t) for f, t in zip(forms_, into, strict=True)], results, spec, steps)


def _number(result: Any) -> int:
    """The output that a result is."""
    if result.kind == "output":
        return int(result.value)
    if result.kind == "replay" and result.value.base[0] == "output" and not result.value.steps:
        return int(result.value.base[1])
    raise Rejected("writes a view of an argument")


def _form(layout: Layout, dtype: torch.dtype) -> Form:
    if not layout.dense or layout.repeated:
        raise Rejected("a result with gaps or repetitions in memory")
    return tuple(map(forms.form, layout.shape)), tuple(map(forms.form, layout.strides)), dtype


__all__ = [
    "AT_LAUNCH",
    "REJECTIONS",
    "Form",
    "Output",
    "Rejected",
    "Replay",
    "Single",
    "Uncast",
    "functional",
    "gaps",
    "is_dense",
    "lerp",
    "make",
]
