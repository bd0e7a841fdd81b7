"""Functions of Python's module math, for sizes that vary: during a trace with symbols, `math.sqrt(x.shape[1])` is an expression, as
`x.shape[1] ** 0.5` is. Python would convert the size to a number, and the trace would be valid for that alone."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

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


@contextlib.contextmanager
def expressions() -> Iterator[None]:
    """Functions of math take sizes that vary."""
    before = {name: getattr(math, name) for name in _FUNCTIONS}
    for name, symbolic in _FUNCTIONS.items():
        setattr(math, name, _either(before[name], symbolic))
    try:
        yield
    finally:
        for name, plain in before.items():
            setattr(math, name, plain)


__all__ = ["expressions"]
