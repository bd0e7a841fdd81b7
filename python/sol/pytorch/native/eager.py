"""Operators that PyTorch calls by themselves on tensors of a device: networks of one layer.

`run` is PyTorch's kernel of the device for all operators. A call is known by its operator, its arguments that are no tensors,
and the types and layouts of its tensors. The first such call is compiled (single.py); later ones run on the device without
waiting. Element-wise operators on tensors that lie alike, or are row-major and broadcast, have one network for all sizes, and
numbers that change from call to call are its operands. What SOL rejects is known, too: PyTorch's kernel of the processor runs
it, which is counted. native.cpp asks here for a call of which it does not know yet how its network is run (`_keep`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from sol import _core, log
from sol.broadcasts import merged

from . import foreach, module, single
from .scalars import scalar
from .single import AT_LAUNCH, Form, Single

aten = torch.ops.aten
NATIVE = "sol"
_HOST = torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse2)  # where native.cpp has the kernels of the processor

_known: dict[Any, Single | str] = {}  # calls by key; a text: why SOL rejects it
_operators: dict[Any, _Operator] = {}
_sizes: dict[Any, list[Any]] = {}  # of results that `out=` is too small for
_gaps: set[Any] = set()  # keys of calls whose tensors with gaps are copied first

# What PyTorch calls on a device that is not its own, and what it calls elsewhere
_SAME = {aten.convolution_overrideable.default: aten.convolution.default}


class _Operator:
    """What is to be known of an operator."""

    __slots__ = (
        "at_launch",
        "broadcasts",
        "instead",
        "mixes",
        "name",
        "outs",
        "plain",
        "pointwise",
        "tensors",
        "writes",
    )

    def __init__(self, op: Any) -> None:
        same, written = single.functional(_SAME.get(op, op))
        self.instead = same
        self.name = op._schema.name + (f".{op._schema.overload_name}" if op._schema.overload_name else "")
        self.outs = tuple(op._schema.arguments[i].name for i in written if op._schema.arguments[i].is_out)
        self.writes = bool(written) and not self.outs  # the first argument
        self.tensors = [isinstance(a.type, torch.TensorType) for a in op._schema.arguments]
        self.plain = all(isinstance(r.type, torch.TensorType) for r in op._schema.returns)
        self.at_launch = AT_LAUNCH[same][0] if same in AT_LAUNCH else ""
        self.pointwise = torch.Tag.pointwise in op.tags or torch.Tag.pointwise in same.tags or same is aten.fill.Scalar
        self.broadcasts = self.pointwise  # with sizes given at launch
        self.mixes = "index" in self.name  # indices may lie on the host


class _Sized(NamedTuple):
    """An element-wise call whose sizes are given at launch. Neighbouring dimensions that all tensors have, or broadcast, alike
    are one. dims: their sizes; has: by tensor, which of them it has (None: a scalar); shape, strides: of a result."""

    dims: tuple[int, ...]
    has: tuple[tuple[bool, ...] | None, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@functools.lru_cache(1 << 12)
def _broadcast(shapes: tuple[tuple[int, ...], ...], targets: int) -> _Sized | None:
    """A call on row-major tensors of these shapes, the last ones of which are written. None: each of its shapes is compiled."""
    found = merged(shapes)
    if found is None or any(s != found.shape for s in shapes[len(shapes) - targets :]):
        return None
    return _Sized(*found, single.row_major(found.shape))


class _Call:
    """The arguments of a call that SOL may compute."""

    __slots__ = ("args", "device", "given", "key", "kwargs", "launched", "of", "parts", "sized", "targets", "tensors")

    def __init__(self, op: Any, of: _Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.of = of
        self.targets: list[torch.Tensor] = []
        if of.outs:
            kwargs = dict(kwargs)
            self.targets = [kwargs.pop(name) for name in of.outs]
        elif of.writes:
            self.targets = [args[0]]
        if any(type(a) in _NUMBERS and there for a, there in zip(args, of.tensors, strict=False)):
            args = _with_tensors(of, args)
        self.args, self.kwargs = args, kwargs
        self.tensors: list[torch.Tensor] = []
        self.device: Any = None
        self.launched = False
        for t in self.targets:
            self._place(t)
        key: list[Any] = [op]
        self._scan(args, key)
        for name, value in kwargs.items():
            key.append(name)
            self._scan((value,), key)
        self.given = tuple(self.tensors)
        if of.at_launch and self.device is not None:
            self._launch(of.at_launch, key)
        self._numbers()
        self.sized = self._sized() if of.pointwise else None
        self.parts = key
        if self.sized is None:
            self.tensors = [t if _can_read(t) else t.contiguous() for t in self.tensors]
        self.key = self._key()

    def _key(self) -> Any:
        if self.sized:
            forms: Any = self.sized.has, tuple([t.dtype for t in self._all()])
        else:
            forms = tuple([(t.dtype, t.shape, t.stride()) for t in self._all()])
        return self.device, self.launched, tuple(self.parts), forms

    def fill_gaps(self) -> bool:
        """Copies tensors with gaps. False: there are none."""
        before = self.tensors
        self.tensors = [t if _lies_dense(t) else t.contiguous() for t in before]
        self.key = self._key()
        return any(t is not b for t, b in zip(self.tensors, before, strict=True))

    def place(self, target: int) -> int:
        """Of a tensor that is written, among all tensors that the operator is called with; -1: it is new."""
        k = target - len(self.tensors)
        return target if k < 0 else len(self.given) + k if self.of.outs else k

    def _all(self) -> list[torch.Tensor]:
        return self.tensors + self.targets if self.targets else self.tensors

    def _scan(self, values: Sequence[Any], key: list[Any]) -> None:
        """Finds tensors; everything else becomes a part of the key."""
        for value in values:
            kind = type(value)
            if isinstance(value, torch.Tensor):
                self._place(value)
                self.tensors.append(value)
                key.append(None)
            elif kind is list or kind is tuple:
                key.append(len(value))
                self._scan(value, key)
            elif kind is float:
                key.append(value.hex())
            else:
                if kind is torch.device and value.type == NATIVE and self.device is None:
                    self.device = torch.device(NATIVE, module.current_device()) if value.index is None else value
                key.append((kind, value))

    def _place(self, t: torch.Tensor) -> None:
        where = t.device
        if where.type != NATIVE or where == self.device:
            return
        if self.device is not None:
            raise RuntimeError(
                f"{self.of.name}: Expected all tensors to be on the same device, but found {self.device} and {where}"
            )
        self.device = where

    def _launch(self, name: str, key: list[Any]) -> None:
        """Makes a number that may change from call to call an operand."""
        names = [a.name for a in self.of.instead._schema.arguments]
        at = names.index(name)
        given = self.kwargs.get(name) if name in self.kwargs else self.args[at] if at < len(self.args) else None
        if type(given) is not float:
            return
        wide = any(t.dtype == torch.float64 for t in self.tensors)
        t = scalar(given, torch.float64 if wide else torch.float32, self.device)
        if name in self.kwargs:
            self.kwargs = {**self.kwargs, name: t}
        else:
            self.args = (*self.args[:at], t, *self.args[at + 1 :])
        key.remove(given.hex())
        self.tensors.append(t)
        self.launched = True

    def _numbers(self) -> None:
        """Brings scalars of the host to the device."""
        for i, t in enumerate(self.tensors):
            if t.device.type == NATIVE or self.device is None:
                continue
            if t.ndim and not self.of.mixes:
                raise RuntimeError(
                    f"{self.of.name}: Expected all tensors to be on the same device, but found {self.device} and {t.device}"
                )
            self.tensors[i] = t.to(self.device) if t.ndim else scalar(t.item(), self._type(t), self.device)

    def _type(self, t: torch.Tensor) -> torch.dtype:
        """The type of a scalar. Numbers of Python take part with the type that they are used in."""
        if t.dtype != torch.float64 or torch.result_type(_BYTES, t) == torch.float64:
            return t.dtype
        wide = any(o.dtype in (torch.float64, torch.complex128) for o in self.tensors if o is not t)
        return torch.float64 if wide else torch.get_default_dtype()

    def _sized(self) -> _Sized | None:
        """None: each combination of shapes is compiled."""
        if self._alike():
            first = next(t for t in self._all() if t.ndim)
            has = tuple([(True,) if t.ndim else None for t in self._all()])
            return _Sized((first.numel(),), has, first.shape, first.stride())
        if not self.of.broadcasts or not all(t.is_contiguous() for t in self._all()):
            return None
        return _broadcast(tuple([t.shape for t in self._all()]), len(self.targets))

    def _alike(self) -> bool:
        """Whether all tensors but scalars have one shape and lie alike, without gaps."""
        first: Any = None
        for t in self._all():
            if not t.ndim and not any(t is o for o in self.targets):
                continue
            if first is None:
                first, shape, strides = t, t.shape, t.stride()
                row_major = t.is_contiguous()
            elif t.shape != shape or (t.stride() != strides and not (row_major and t.is_contiguous())):
                return False
        return first is not None and first.ndim > 0 and first.numel() > 0 and (row_major or _lies_dense(first))


_NUMBERS = (bool, int, float, complex)
_NOTHING = -1 << 30  # in place of a result that is not wanted
_TRUE = _NOTHING + 1  # a result
_BYTES = torch.empty(1, dtype=torch.uint8)


def _lies_dense(t: torch.Tensor) -> bool:
    """Whether a tensor has neither gaps nor repetitions in memory."""
    return t.is_contiguous() or single.is_dense(tuple(t.shape), t.stride())


def _can_read(t: torch.Tensor) -> bool:
    """Whether a network can read a tensor where it lies."""
    return _lies_dense(t) or single.gaps(tuple(t.shape), t.stride()) is not None


def _convolution_backward(*args: Any) -> Any:
    """As elsewhere, where there is one argument more: the sizes of the bias."""
    weight, transposed, groups = args[2], args[6], args[8]
    sizes = [weight.shape[1] * groups if transposed else weight.shape[0]]
    return run(aten.convolution_backward.default, *args[:3], sizes, *args[3:])


def run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls an operator for tensors of a device."""
    call, known = _prepared(op, args, kwargs)
    if isinstance(known, str):
        return fall_back(op, call.of.name, known, args, kwargs)
    if known.host_steps:
        _core.native_fallback(call.of.name)
    outputs, gaps = _run(call, known)
    if not known.host_steps and not gaps:
        _keep(call, known, outputs)
    return _results(call, known, outputs)


def _operator(op: Any) -> _Operator:
    of = _operators.get(op)
    if of is None:
        of = _operators[op] = _Operator(op)
    return of


def _prepared(op: Any, args: Any, kwargs: Any) -> tuple[_Call, Single | str]:
    """A call and its network, or why there is none."""
    of = _operator(op)
    while True:
        call = _Call(op, of, args, kwargs)
        if call.key in _gaps:
            call.fill_gaps()
        known = _known.get(call.key)
        if known is not None:
            return call, known
        made = _made(call)
        if isinstance(made, list):  # sizes of results
            for t, size in zip(call.targets, made, strict=True):
                t.resize_(size)
        elif made is not None:
            return call, made


def fall_back(op: Any, name: str, why: str, args: Any, kwargs: Any) -> Any:
    """Runs PyTorch's kernel of the processor, which is counted."""
    if not _on_host(op):
        raise _core.UnsupportedError(
            f"{name}: there is no kernel for tensors of device sol: SOL rejects the call ({why}), and PyTorch has no kernel of the "
            "processor that could take its place"
        )
    _core.native_fallback(name)
    log.debug(f"{name} runs on the processor: {why}")
    return op.redispatch(_HOST, *_with_tensors(_operator(op), args), **kwargs)


def _with_tensors(of: _Operator, args: Any) -> tuple[Any, ...]:
    """The arguments, with scalars in place of numbers where the operator has tensors: PyTorch gives numbers of Python so. They take
    part in the type of the result as PyTorch's do: a number is below all tensors of its kind."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    wide = any(t.dtype in (torch.float64, torch.complex128) for t in tensors)

    def scalar(value: Any) -> torch.Tensor:
        if tensors and not any(t.ndim for t in tensors):
            return torch.tensor(value, dtype=torch.result_type(tensors[0], value))
        return torch.tensor(value, dtype=torch.float64 if wide and type(value) is float else None)

    there = zip(args, of.tensors, strict=False)
    return tuple([scalar(a) if type(a) in _NUMBERS and tensor else a for a, tensor in there])


@functools.cache
def _on_host(op: Any) -> bool:
    """Whether PyTorch can run an operator on the processor."""
    own = op.has_kernel_for_dispatch_key(torch._C.DispatchKey.PrivateUse2)
    return own or torch._C._dispatch_has_computed_kernel_for_dispatch_key(op.name(), "CPU")


def _made(call: _Call) -> Single | str | list[Any] | None:
    """Compiles a call. A text: why SOL rejects it. A list: the sizes that the tensors of `out=` need. None: there is another
    way, which is known now."""
    if call.device is None:
        return "no tensor is on a device"
    if call.key in _sizes:
        return _sizes[call.key]
    forms: list[Form] = [(tuple(t.shape), t.stride(), t.dtype) for t in call._all()]
    leaves, spec = pytree.tree_flatten((call.args, call.kwargs))
    numbers = iter(range(len(call.tensors)))
    order = [next(numbers) if isinstance(v, torch.Tensor) else None for v in leaves]
    if call.launched:  # the last one stands where the number was
        order = _reordered(leaves, call)

    def fill(fakes: Sequence[Any]) -> Any:
        filled = [fakes[k] if k is not None else _of_host(v) for k, v in zip(order, leaves, strict=True)]
        return pytree.tree_unflatten(filled, spec)

    n = len(call.tensors)
    targets = range(n, n + len(call.targets))
    made: Single | str
    try:
        made = single.make(
            call.of.instead,
            forms,
            fill,
            targets,
            call.device,
            call.launched,
            call.sized.has if call.sized else None,
            bool(call.of.outs),
        )
    except single.Sizes as e:
        _sizes[call.key] = e.sizes
        return e.sizes
    except single.Uncast:
        raise
    except Exception as e:
        if call.sized:
            log.debug(f"{call.of.name}: each new size is compiled: {e}")
            call.of.broadcasts = False
            if len(call.sized.dims) == 1 and all(has is None or has == (True,) for has in call.sized.has):
                call.of.pointwise = False
            return None
        if (key := call.key) and call.fill_gaps():
            _gaps.add(key)
            return None
        if not isinstance(e, single.REJECTIONS):
            raise
        made = " ".join(str(e).split()) or type(e).__name__
    _known[call.key] = made
    return made


def _reordered(leaves: Sequence[Any], call: _Call) -> list[int | None]:
    """Numbers of the tensors among the arguments."""
    last, k = len(call.tensors) - 1, 0
    order: list[int | None] = []
    for v in leaves:
        if not isinstance(v, torch.Tensor):
            order.append(None)
        elif v is call.tensors[last]:
            order.append(last)
        else:
            order.append(k)
            k += 1
    return order


def _of_host(value: Any) -> Any:
    return single.HOST if isinstance(value, torch.device) else value


def _run(call: _Call, known: Single) -> tuple[list[torch.Tensor], bool]:
    """Runs a network. Returns its outputs, and whether some of them are copied into tensors with gaps."""
    n = len(call.tensors)
    outputs: list[torch.Tensor] = []
    gaps: list[tuple[torch.Tensor, torch.Tensor]] = []
    sized = call.sized
    for o in known.outputs:
        if o.target >= 0:
            t = call.targets[o.target - n] if o.target >= n else call.tensors[o.target]
            if sized or _lies_dense(t):
                outputs.append(t)
                continue
            gaps.append((t, torch.empty_strided(*o.form[:2], dtype=o.form[2], device=call.device)))
            outputs.append(gaps[-1][1])
        elif sized:
            outputs.append(torch.empty_strided(sized.shape, sized.strides, dtype=o.form[2], device=call.device))
        else:
            outputs.append(torch.empty_strided(*o.form[:2], dtype=o.form[2], device=call.device))
    if known.net is not None:
        inputs = tuple([call.tensors[i] for i in known.inputs])
        dims = sized.dims if sized else ()
        _core.native_run(known.net, call.device.index, inputs, tuple(outputs), dims, torch.get_num_threads())
    for t, made in gaps:
        t.copy_(made)
    return outputs, bool(gaps)


def _results(call: _Call, known: Single, outputs: Sequence[torch.Tensor]) -> Any:
    if call.targets:
        return call.targets[0] if len(call.targets) == 1 else tuple(call.targets)
    return pytree.tree_unflatten([_result(r, call, outputs) for r in known.results], known.spec)


def _keep(call: _Call, known: Single, outputs: Sequence[torch.Tensor], results: list[int] | None = None) -> None:
    """Tells native.cpp how the network is run, so that it does this without Python. Numbers are those of tensors among the
    arguments. `results`: in place of the operator's."""
    n, inputs = len(call.given), []
    for i in known.inputs:
        if i == n:
            inputs.append(-1)  # a number that is an operand
        elif call.tensors[i] is call.given[i] or call.given[i].device.type != NATIVE:
            inputs.append(i)
        else:
            return  # it was copied first
    results = _kept_results(call, known) if results is None else results
    if known.net is None or results is None:
        return
    into = [call.place(o.target) for o in known.outputs]
    used = [call.tensors[i] for i in known.inputs]
    dims = call.sized.dims if call.sized else ()
    torch.ops.sol_native.keep.default(id(known.net), used, inputs, outputs, into, results, dims)


def _kept_results(call: _Call, known: Single) -> list[int] | None:
    """The operator's results, as native.cpp takes them. None: they are of other kinds."""
    if call.targets and call.of.plain:
        return [call.place(len(call.tensors) + k) for k in range(len(call.targets))]
    if call.of.plain and all(kind == "output" or value is None for kind, value in known.results):
        return [_NOTHING if value is None else -1 - value for _, value in known.results]
    return None


def _result(result: tuple[str, Any], call: _Call, outputs: Sequence[torch.Tensor]) -> Any:
    kind, value = result
    if kind == "view":
        base, number = value.base
        made = outputs[number] if base == "output" else call.tensors[number]
        for function, args, kwargs in value.steps:
            made = function(made, *args, **kwargs)
        return made
    return outputs[value] if kind == "output" else call.tensors[value] if kind == "argument" else value


def _copy(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Copies between tensors of one device that lie differently, or have different types. False: SOL cannot."""
    if not _can_read(source):
        return False
    if _lies_dense(target):
        call, known = _prepared(aten.copy_.default, (target, source), {})
        if isinstance(known, str):
            return _through_host(source, known)
        outputs, _ = _run(call, known)
        _keep(call, known, outputs, [_TRUE])
        return True
    found = single.gaps(tuple(target.shape), target.stride())
    if found is None:
        return False
    for d in range(target.ndim):
        if d not in found.order:  # it repeats, or has one place
            source, target = source.narrow(d, 0, 1), target.narrow(d, 0, 1)
    ones = [d for d in range(target.ndim) if d not in found.order]
    shape = [target.shape[d] for d in found.order]
    source, target = (t.permute(*found.order, *ones).view(shape) for t in (source, target))
    rows, *sizes = found.sizes
    if sizes:  # but for the last row, which has no gap behind it
        rows, above = rows - 1, source[:-1]
        target[-1].copy_(source[-1])
    else:
        above = source
    base = target.as_strided((rows, *sizes), single.row_major((rows, *sizes)))
    call, known = _prepared(torch.ops.sol_native.within.default, (base, above, list(found.steps)), {})
    if isinstance(known, str):
        return _through_host(source, known)
    base.copy_(_results(call, known, _run(call, known)[0]))
    return True


def _through_host(source: torch.Tensor, why: str) -> bool:
    log.debug(f"a copy from {list(source.shape)} goes through the host: {why}")
    return False


def _launches() -> Iterator[tuple[str, str, int]]:
    """Operators with a number that is an operand: name, overload, and which argument it is."""
    for op, (argument, _) in AT_LAUNCH.items():
        name = op._schema.name.removeprefix("aten::")
        for packet in (getattr(aten, name), getattr(aten, f"{name}_")):
            for overload in packet.overloads():
                each = getattr(packet, overload)
                if single.functional(each)[0] is op:
                    names = [a.name for a in each._schema.arguments]
                    yield each._schema.name, each._schema.overload_name, names.index(argument)


def begin() -> list[torch.library.Library]:
    """Makes `run` the kernel that native.cpp asks, which is the kernel of the device. The result must be kept."""
    every, some = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    ours = torch.library.Library("sol_native", "IMPL")
    every.fallback(run, "PrivateUse3")
    some.impl("convolution_overrideable", functools.partial(run, aten.convolution_overrideable.default), "PrivateUse3")
    some.impl("convolution_backward_overrideable", _convolution_backward, "PrivateUse3")
    ours.impl("copy", _copy, "PrivateUse3")
    for name, overload, argument in _launches():
        torch.ops.sol_native.launch(name, overload, argument)
    for name, each in foreach.operators():
        some.impl(name, each.run, "PrivateUse1")
    some.impl("record_stream", lambda t, stream: None, "PrivateUse1")  # a device has one
    return [every, some, ours]
