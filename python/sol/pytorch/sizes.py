"""The sizes of a symbolic trace as those of one program: `Sizes` puts numbers, or sizes that vary, in place of the symbols."""

from __future__ import annotations

import fractions
import functools as tools
import math
import operator
from collections.abc import Mapping
from typing import Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._sympy import functions

from sol.forms import Size, Varies, least, most

from . import fake
from .reals import Real
from .symbols import SYMBOLIC, plain

# A real number of float64, rounded, and the size that stands for it: 7 * n // 10 for int(0.7 * n)
Rounding = tuple[sympy.Expr, Size]
_EXACT: list[tuple[Any, Any]] = [
    (sympy.Add, operator.add),
    (sympy.Mul, operator.mul),
    ((functions.FloorDiv, functions.CleanDiv), operator.floordiv),
    ((functions.Mod, functions.PythonMod), operator.mod),
    ((functions.Max, sympy.Max), most),
    ((functions.Min, sympy.Min), least),
    (functions.Identity, lambda a: a),
]


def _to_zero(above: Any, below: Any) -> Any:
    """A fraction without its part behind the point."""
    return above // below if above >= 0 else -(-above // below)


_ROUNDED: dict[Any, Any] = {
    functions.FloorToInt: operator.floordiv,
    functions.TruncToInt: _to_zero,
    functions.CeilToInt: lambda above, below: -(-above // below),
    functions.RoundToInt: lambda above, below: (2 * above + below) // (2 * below),  # a half: up
}
_MOST_BELOW = 1 << 16  # of fractions that stand for real numbers


def _ratio(real: float) -> tuple[int, int]:
    """The fraction that a real number was meant to be: 7/10 for 0.7."""
    made = fractions.Fraction(real).limit_denominator(_MOST_BELOW)
    if float(made) != real:
        raise Varies(f"needs a multiple of {real!r}, which is not a size")
    return made.numerator, made.denominator


def _is_exact(expr: Any) -> bool:
    """Whether float64 computes a real number without rounding, or as one quotient, which for sizes never rounds to a whole number."""
    return isinstance(expr, functions.IntTrueDiv) or all(
        isinstance(e, functions.ToFloat) or (e.is_number and _ratio(float(e))[1].bit_count() == 1)
        for e in sympy.Mul.make_args(expr)
    )


class Shaped:
    """A tensor of a trace, as operators' translations see it: its type, its shape and where its elements lie."""

    __slots__ = ("_offset", "_strides", "device", "dtype", "shape")

    def __init__(
        self, t: Any, shape: tuple[Any, ...], strides: tuple[Any, ...], offset: Any, dtype: torch.dtype | None = None
    ) -> None:
        self.dtype, self.device = dtype or t.dtype, t.device
        self.shape, self._strides, self._offset = shape, strides, offset

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def stride(self) -> tuple[Any, ...]:
        """As torch.Tensor.stride, in elements."""
        return self._strides

    def storage_offset(self) -> Any:
        """As torch.Tensor.storage_offset, in elements."""
        return self._offset

    def numel(self) -> Any:
        """Number of elements."""
        return math.prod(self.shape)

    def is_complex(self) -> bool:
        """Does it have complex numbers?"""
        return self.dtype.is_complex

    def is_contiguous(self) -> bool:
        """Is it row-major?"""
        n: Any = 1
        for size, stride in zip(reversed(self.shape), reversed(self._strides), strict=True):
            if size != 1 and stride != n:
                return 0 in self.shape
            n = n * size
        return True


class Sizes:
    """Values for the symbols of a trace. Translations ask it for sizes, and for the tensors of nodes."""

    def __init__(self, values: Mapping[sympy.Symbol, Any]) -> None:
        self.values = values
        self._numbers = {symbol: sympy.Integer(n) for symbol, n in values.items() if type(n) is not Size}
        self._known: dict[Any, Any] = {}
        self.roundings: list[Rounding] = []  # what must hold for the sizes of a call

    def of(self, arg: Any) -> Any:
        """An argument or result with values in place of symbols; tensors become `Shaped`."""
        if isinstance(arg, torch.SymFloat):
            return self._real(arg.node.expr)
        if isinstance(arg, SYMBOLIC):
            return self.number(arg.node.expr)
        if isinstance(arg, torch.Tensor):
            return self._tensor(arg)
        if isinstance(arg, tuple):
            return tuple(map(self.of, arg))
        if isinstance(arg, list):
            return [self.of(a) for a in arg]
        if isinstance(arg, dict):
            return {k: self.of(v) for k, v in arg.items()}
        if isinstance(arg, slice):
            return slice(self.of(arg.start), self.of(arg.stop), self.of(arg.step))
        return arg

    def fake(self, mode: FakeTensorMode, t: torch.Tensor) -> FakeTensor:
        """A tensor without data that has numbers as sizes."""
        shaped = self._tensor(t)
        return fake.fresh(mode, (shaped.shape, shaped.stride(), shaped.dtype, shaped.device))

    def number(self, expr: sympy.Expr) -> Any:
        """An expression of symbols as a number, or a size that varies."""
        if expr not in self._known:
            made = plain(expr.xreplace(self._numbers))
            if isinstance(made, sympy.Basic):
                made = self._varying(made) if made.free_symbols else plain(made.doit())
            self._known[expr] = made
        return self._known[expr]

    def _real(self, expr: sympy.Expr) -> Any:
        """A real number, or one that varies."""
        if expr.free_symbols <= self._numbers.keys():
            return self.number(expr)
        return Real(expr.xreplace(self._numbers), self.number)

    def _varying(self, expr: Any) -> Any:
        """A whole number that varies."""
        if isinstance(expr, sympy.Integer):
            return int(expr)
        if isinstance(expr, sympy.Symbol):
            return self.values[expr]
        if (round_ := _ROUNDED.get(type(expr))) is not None:
            made = round_(*self._fraction(expr.args[0]))
            if isinstance(made, Size) and (isinstance(expr, functions.RoundToInt) or not _is_exact(expr.args[0])):
                self.roundings.append((expr, made))
            return made
        if isinstance(expr, sympy.Pow) and isinstance(expr.exp, sympy.Integer) and expr.exp > 0:
            return math.prod([self._varying(expr.base)] * int(expr.exp))
        function = next((f for classes, f in _EXACT if isinstance(expr, classes)), None)
        if function is None:
            raise Varies(f"needs {expr}, which is not a size")
        return tools.reduce(function, map(self._varying, expr.args))

    def _fraction(self, expr: Any) -> tuple[Any, Any]:
        """A number as a fraction of whole numbers."""
        if isinstance(expr, sympy.Float | sympy.Rational):
            return _ratio(float(expr))
        if isinstance(expr, functions.ToFloat):
            return self._varying(expr.args[0]), 1
        if isinstance(expr, functions.IntTrueDiv | functions.FloatTrueDiv):
            (a, b), (c, d) = map(self._fraction, expr.args)
            return a * d, b * c
        if isinstance(expr, sympy.Mul):
            parts = [self._fraction(a) for a in expr.args]
            return math.prod(p for p, _ in parts), math.prod(q for _, q in parts)
        if isinstance(expr, sympy.Add):
            return tools.reduce(lambda x, y: (x[0] * y[1] + y[0] * x[1], x[1] * y[1]), map(self._fraction, expr.args))
        return self._varying(expr), 1

    def _tensor(self, t: torch.Tensor) -> Shaped:
        if t.layout != torch.strided:
            return t  # type: ignore[return-value]
        shape, strides = tuple(map(self.of, t.shape)), tuple(map(self.of, t.stride()))
        return Shaped(t, shape, strides, self.of(t.storage_offset()))
