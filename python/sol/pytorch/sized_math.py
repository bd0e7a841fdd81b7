"""Functions of Python's module math, for sizes that vary: during a trace with symbols, `math.sqrt(x.shape[1])` is an expression, as
`x.shape[1] ** 0.5` is. Python would convert the size to a number, and the trace would be valid for that alone. A string is no
expression, so there a size is taken as a number, as int() does; PyTorch would write the name of the symbol."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

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


_NUMBERS: dict[Any, _Function] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
_STRINGS = ("__str__", "__repr__", "__format__")


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


@contextlib.contextmanager
def expressions() -> Iterator[None]:
    """Functions of math take sizes that vary, and strings have their numbers."""
    changed: list[tuple[Any, str, Any]] = [
        *((math, name, _either(getattr(math, name), symbolic)) for name, symbolic in _FUNCTIONS.items()),
        *((kind, name, _written(kind, name)) for kind in _NUMBERS for name in _STRINGS),
    ]
    before = [(owner, name, vars(owner).get(name)) for owner, name, _ in changed]
    for row in changed:
        setattr(*row)
    try:
        yield
    finally:
        for owner, name, old in before:
            delattr(owner, name) if old is None else setattr(owner, name, old)


__all__ = ["expressions"]
