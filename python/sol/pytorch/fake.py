"""Creates tensors without data directly, because PyTorch's general methods take most of the time of a trace.

Plain tensors of a model need only sizes and strides. `Known` caches, for one trace, the shapes of an operator's results
by the shapes of its operands, if the results are new tensors. Where sizes are symbols, an operator puts the same limits on the same
sizes each time, so one call finds them all. `lenient` asks less of sizes than PyTorch does. PyTorch's methods handle everything else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sympy
import torch
from torch._prims_common import infer_size, is_contiguous_or_false, make_contiguous_strides_for
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._sympy.functions import Max

Number = int | torch.SymInt
_PLAIN = (bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))
Form = tuple[Sequence[Number], Sequence[Number], torch.dtype, torch.device]


def fresh(mode: FakeTensorMode, form: Form) -> FakeTensor:
    """Creates a tensor of this form with its own memory."""
    shape, strides, dtype, device = form
    with torch._C._DisableTorchDispatch(), torch._C._DisablePythonDispatcher():
        return FakeTensor(mode, torch.empty_strided(shape, strides, dtype=dtype, device="meta"), device)


def _form(t: torch.Tensor) -> Form | None:
    """The form of a tensor that shares its memory with no other. None: the tensor is not that simple."""
    offset = t.storage_offset()
    if t.layout != torch.strided or type(offset) is not int or offset or t.is_conj() or t.is_neg() or t.is_inference():
        return None
    if t._has_symbolic_sizes_strides:  # comparing them would limit them
        return tuple(t.shape), t.stride(), t.dtype, t.device
    elements = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0
    if t.untyped_storage().nbytes() != elements * t.element_size():
        return None
    return tuple(t.shape), t.stride(), t.dtype, t.device


def owned(mode: FakeTensorMode, tensors: Iterable[torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns a function that turns a model's tensors into tensors without data. Tensors that share memory continue to
    share it."""
    memories = Counter(t.untyped_storage().data_ptr() for t in tensors if _is_plain(t))

    def make(t: torch.Tensor) -> torch.Tensor:
        if not _is_plain(t) or memories[t.untyped_storage().data_ptr()] > 1 or (form := _form(t)) is None:
            return mode.from_tensor(t)
        made = fresh(mode, form)
        if t.requires_grad:
            made.requires_grad_()
        if type(t) is torch.nn.Parameter:
            made._is_param = True
        return made

    return make


def _is_plain(t: torch.Tensor) -> bool:
    return type(t) in (torch.Tensor, torch.nn.Parameter) and t.is_leaf and t.device.type == "cpu" and bool(t.numel())


class Known:
    """The results of operators in a trace, by their operands."""

    def __init__(self) -> None:
        self.forms: dict[Any, Form | None] = {}
        self.key: Any = None

    def find(self, func: Any, args: Sequence[Any]) -> torch.Tensor | None:
        """The operator's result for these operands. None: call the operator and then `learn`."""
        self.key = None
        if torch.is_grad_enabled() or func.namespace != "aten" or func._schema.is_mutable:
            return None
        modes: list[FakeTensorMode] = []
        given = _outline(args, modes)
        if given is None or not modes:
            return None
        self.key = func, torch.get_default_dtype(), given
        form = self.forms.get(self.key)
        return None if form is None else fresh(modes[0], form)

    def learn(self, made: Any, args: Sequence[Any]) -> None:
        """Stores the result of a call. A result that shares memory with an operand is not stored."""
        key, self.key = self.key, None
        if key is None or key in self.forms:
            return
        plain = type(made) is FakeTensor and made.constant is None and not made.requires_grad
        plain = plain and all(r.alias_info is None for r in key[0]._schema.returns)
        form = _form(made) if plain else None
        self.forms[key] = None if form is None or made.untyped_storage()._cdata in _memories(args) else form


def lenient(func: Any, args: Sequence[Any]) -> torch.Tensor | None:
    """The result of an operator of which PyTorch would ask more of sizes that are symbols than it needs. None: it is no such operator, or
    the case is not that simple."""
    return _viewed(*args) if func in _VIEWS else _grouped(*args) if func is torch.ops.aten.group_norm.default else None


def _grouped(x: FakeTensor, groups: int, *more: Any) -> torch.Tensor | None:
    """group_norm of a row-major tensor. PyTorch would reshape it in between and ask which sizes divide which."""
    if torch.is_grad_enabled() or not _is_row_major(x):
        return None
    channels = x.shape[1] if x.ndim > 2 else 0
    if type(channels) is not int or channels < 1 or groups < 1 or channels % groups:
        return None
    if any(r.dtype != x.dtype or tuple(r.shape) != (channels,) for r in more[:2] if r is not None):
        return None
    return fresh(x.fake_mode, (x.shape, x.stride(), x.dtype, x.device))


_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)


def _viewed(x: FakeTensor, size: Sequence[int]) -> torch.Tensor | None:
    """A view of a row-major tensor: all that must hold is that both shapes have as many elements. PyTorch would look for dimensions to
    split and to join, and prove each."""
    if type(x) is not FakeTensor or not x._has_symbolic_sizes_strides or not is_contiguous_or_false(x):
        return None
    n = math.prod(x.shape)
    shape = infer_size(tuple(size), n)
    if -1 not in size:
        torch._check(n == math.prod(shape))
    return x.as_strided(shape, make_contiguous_strides_for(shape))


def _is_row_major(t: Any) -> bool:
    """Whether a tensor with symbols as sizes is row-major for all of their values. Asking for the strides' values would limit them."""
    if type(t) is not FakeTensor or not t._has_symbolic_sizes_strides or not t.ndim or _outline(t, []) is None:
        return False
    n = sympy.Integer(1)
    for size, stride in zip(_numbers(reversed(t.shape)), _numbers(reversed(t.stride())), strict=True):
        if _without_max(stride) != n:
            return False
        n *= size
    return True


def _without_max(stride: Any) -> Any:
    """A stride as the product of sizes. PyTorch takes 1 for sizes that are 0, when no stride matters."""
    if not isinstance(stride, sympy.Basic) or not stride.has(Max):
        return stride
    return stride.replace(lambda e: isinstance(e, Max) and e.args[0] == 1 and len(e.args) == 2, lambda e: e.args[1])


def _outline(arg: Any, modes: list[FakeTensorMode]) -> Any:
    """All properties of operands that sizes may depend on. None: an operand is unusual."""
    if type(arg) is FakeTensor:
        modes.append(arg.fake_mode)
        if arg.layout != torch.strided or arg.constant is not None or arg.is_conj() or arg.is_neg():
            return None
        if arg._has_symbolic_sizes_strides:
            return _numbers(arg.shape), _numbers(arg.stride()), arg.dtype, arg.device
        return arg.shape, arg.stride(), arg.dtype, arg.device
    if isinstance(arg, torch.SymInt):
        return _numbers((arg,))
    if isinstance(arg, tuple | list):
        parts = tuple(_outline(a, modes) for a in arg)
        return None if None in parts else parts
    return (type(arg), arg) if isinstance(arg, _PLAIN) else None


def _numbers(sizes: Iterable[Number]) -> tuple[Any, ...]:
    """Numbers, and expressions of symbols."""
    return tuple(n.node.expr if isinstance(n, torch.SymInt) else n for n in sizes)


def _memories(arg: Any) -> set[int]:
    if isinstance(arg, torch.Tensor):
        return {arg.untyped_storage()._cdata}
    return set().union(*map(_memories, arg)) if isinstance(arg, tuple | list) else set()
