"""Real numbers that follow from sizes that vary, such as `x.shape[1] ** -0.5`: the program computes them, in float64."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions

from sol.forms import Size, Varies

_FOLDED = [
    (sympy.Add, "add"),
    (sympy.Mul, "mul"),
    ((functions.FloatTrueDiv, functions.IntTrueDiv), "div"),
    ((functions.FloatPow, functions.PowByNatural, sympy.Pow), "pow"),
    ((functions.Max, sympy.Max), "max"),
    ((functions.Min, sympy.Min), "min"),
]
_UNARY = {f"OpaqueUnaryFn_{f}": f for f in "acos asin asinh atan cos cosh exp log log2 sin sinh sqrt tan tanh".split()}


class Real:
    """A real number that varies. What needs a number fails, and names it."""

    __slots__ = ("expr", "size")

    def __init__(self, expr: sympy.Expr, size: Callable[[sympy.Expr], Any]) -> None:
        self.expr = expr
        self.size = size  # of an expression: a number or a Size; raises Varies if it is none

    def value(self, b: Any) -> Any:
        """A scalar of type float64, made with a Builder."""
        return self._value(b, self.expr)

    def _value(self, b: Any, expr: sympy.Expr) -> Any:
        if isinstance(expr, sympy.Float | sympy.Rational):
            return b.scalar(float(expr), torch.float64)
        if isinstance(expr, functions.ToFloat):
            return self._value(b, expr.args[0])
        if expr.is_integer:
            size = self.size(expr)
            return b.scalar(size if isinstance(size, Size) else float(size), torch.float64)
        function = next((f for classes, f in _FOLDED if isinstance(expr, classes)), _UNARY.get(type(expr).__name__))
        if function is None:
            raise Varies(f"needs {expr}, which SOL does not compute from sizes")
        made = [self._value(b, a) for a in expr.args]
        return functools.reduce(functools.partial(b.map, function), made) if len(made) > 1 else b.map(function, *made)

    def _number(self) -> float:
        raise Varies(f"needs a number, but {self} varies")

    __float__ = __int__ = __index__ = __bool__ = _number

    def __repr__(self) -> str:
        return str(self.expr)


__all__ = ["Real"]
