"""Functions of Python's module math, for sizes that vary: during a trace with symbols, `math.sqrt(x.shape[1])` is an expression, as
`x.shape[1] ** 0.5` is. Python would convert the size to a number, and the trace would be valid for that alone. A string is no
expression, so there a size is taken as a number, as int() does; PyTorch would write the name of the symbol. What the model compares
is a truth value. Indices and `torch.linspace` take sizes, too."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .messages import in_message
from .problems import LIBRARY
from .symbols import SYMBOLIC

_Function = Callable[..., Any]


def _of_torch(name: str) -> _Function:
    made: _Function = getattr(torch, f"_sym_{name}")
    return made


_log2 = _of_torch("log2")


def _log(x: Any, *base: Any) -> Any:
    if not base:
        return math.log(2) * _log2(x)
    above, below = (_log2(v) if isinstance(v, SYMBOLIC) else math.log2(v) for v in (x, *base))
    return above / below


_FUNCTIONS: dict[str, _Function] = {
    "exp": lambda x: math.e ** torch.sym_float(x),
    "fabs": lambda x: abs(torch.sym_float(x)),
    "log": _log,
    "log10": lambda x: math.log10(2) * _log2(x),
    "log1p": lambda x: _log(1 + x),
    "pow": lambda x, y: torch.sym_float(x) ** torch.sym_float(y),
    **{f: _of_torch(f) for f in "acos asin atan cos cosh log2 sin sinh sqrt tan tanh".split()},
}


def _either(plain: _Function, symbolic: _Function) -> _Function:
    """A function for numbers and for sizes that vary."""

    @functools.wraps(plain)
    def call(*args: Any) -> Any:
        return (symbolic if any(isinstance(a, SYMBOLIC) for a in args) else plain)(*args)

    return call


def _least(*values: Any) -> Any:
    """Python's min. Which size is the least is a branch, to which the trace would be bound."""
    rows = tuple(values[0]) if len(values) == 1 else values
    return functools.reduce(torch.sym_min if any(isinstance(v, SYMBOLIC) for v in rows) else min, rows)


_NUMBERS: dict[Any, _Function] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
_STRINGS = ("__str__", "__repr__", "__format__")
_COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")


def _written(kind: Any, name: str) -> _Function:
    """A method that makes a string: of the number, if the model calls it, and what it was in PyTorch's own messages. In a message of the
    model it is the example's number."""
    number, before = _NUMBERS[kind], getattr(kind, name)

    @functools.wraps(before)
    def call(size: Any, *spec: str) -> Any:
        frame = sys._getframe(1)
        if frame.f_code.co_filename.startswith(LIBRARY):
            return before(size, *spec)
        example = size.node.hint if in_message(frame) else None
        return getattr(number(size) if example is None else number(example), name)(*spec)

    return call


def _compared(kind: Any, name: str) -> _Function:
    """A comparison, as a truth value if the model makes it: operators take no other (`x.var(1, unbiased=T > 1)`, `is_causal=T > 1`), and
    neither does arithmetic. It is a guard then, as in a branch."""
    before = getattr(kind, name)

    @functools.wraps(before)
    def call(size: Any, other: Any) -> Any:
        made = before(size, other)
        if not isinstance(made, torch.SymBool) or not made.node.has_hint():  # without: it depends on data
            return made
        return made if sys._getframe(1).f_code.co_filename.startswith(LIBRARY) else bool(made)

    return call


def _varies(size: Any) -> bool:
    return isinstance(size, torch.SymInt)


def _spaced(plain: _Function, curve: Callable[..., torch.Tensor]) -> _Function:
    """linspace and logspace for a number of points that varies, which PyTorch's own would take as a number: from both ends towards the
    middle, as it computes them. `curve` makes results of the points between start and end."""

    @functools.wraps(plain)
    def call(start: Any, end: Any, steps: Any, *args: Any, dtype: Any = None, device: Any = None, **others: Any) -> Any:
        to = dtype or torch.get_default_dtype()
        if not _varies(steps) or not to.is_floating_point or others or steps < 2:
            return plain(start, end, steps, *args, dtype=dtype, device=device, **others)
        at = torch.arange(steps, device=device).to(to)  # of whole numbers: the graph of a batch of one is the same
        step = (end - start) / (steps - 1)
        return curve(torch.where(at < steps // 2, start + at * step, end - (steps - 1 - at) * step), *args)

    return call


def _selected(x: torch.Tensor, index: Any) -> tuple[torch.Tensor, Any]:
    """A tensor and an index without sizes that vary: a select takes them (`x[:, T - 1]`), and so does torch.tensor in a trace
    (`x[[0, T - 1]]`). Indexing would take a number."""
    rows = list(index) if isinstance(index, tuple) else [index]
    rows = [torch.tensor(i) if isinstance(i, list) and any(map(_varies, i)) else i for i in rows]
    if not any(map(_varies, rows)):
        return x, tuple(rows) if isinstance(index, tuple) else rows[0]
    used = [0 if i is None or i is Ellipsis or isinstance(i, bool) else _dims(i) for i in rows]
    rest = x.ndim - sum(used)
    for k in reversed(range(len(rows))):
        if _varies(rows[k]):
            dim = sum(used[:k]) + (rest if any(r is Ellipsis for r in rows[:k]) else 0)
            x = x.select(dim, rows[k] + x.shape[dim] if rows[k] < 0 else rows[k])
            del rows[k], used[k]
    return x, tuple(rows)


def _dims(i: Any) -> int:
    """How many dimensions a part of an index takes."""
    return i.ndim if isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) else 1


class _Indices(TorchFunctionMode):
    """Indices take sizes that vary. (Methods of torch.Tensor that are replaced and put back again leave a tensor that Python takes for a
    sequence, of which torch.tensor wants the length.)"""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__ or func is torch.Tensor.__setitem__:
            args = *_selected(*args[:2]), *args[2:]
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def expressions() -> Iterator[None]:
    """Functions of math take sizes that vary, strings have their numbers, and comparisons of the model are truth values."""
    changed: list[tuple[Any, str, Any]] = [
        *((math, name, _either(getattr(math, name), symbolic)) for name, symbolic in _FUNCTIONS.items()),
        *((kind, name, _written(kind, name)) for kind in _NUMBERS for name in _STRINGS),
        (torch, "linspace", _spaced(torch.linspace, lambda at: at)),
        (torch, "logspace", _spaced(torch.logspace, lambda at, base=10.0: torch.pow(base, at))),
        *((kind, name, _compared(kind, name)) for kind in (torch.SymInt, torch.SymFloat) for name in _COMPARISONS),
        (torch.nn.functional, "min", _least),  # of affine_grid, which asks whether a size is 0 or 1
    ]
    before = [(owner, name, vars(owner).get(name)) for owner, name, _ in changed]
    for row in changed:
        setattr(*row)
    try:
        with _Indices():
            yield
    finally:
        for owner, name, old in before:
            delattr(owner, name) if old is None else setattr(owner, name, old)


__all__ = ["expressions"]
