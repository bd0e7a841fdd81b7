"""Sizes and rules of a trace in words: with #0, #1, .. for the dimensions, as Python writes them."""

from __future__ import annotations

from typing import Any

import sympy
from sympy.core.relational import Relational
from sympy.printing.precedence import PRECEDENCE
from torch.utils._sympy import functions

from .symbols import Settled

_Sides = tuple[sympy.Expr, str, sympy.Expr]  # of a comparison, and its operator


class _Infix(sympy.Function):
    """Written between two operands, and binds like a product; PyTorch's functions always write brackets."""

    precedence = PRECEDENCE["Mul"]
    written = "//"

    def _sympystr(self, printer: sympy.StrPrinter) -> str:
        return self.written.join(printer.parenthesize(v, self.precedence) for v in self.args)


class _Remainder(_Infix):
    written = " % "


class _Quotient(_Infix):
    written = "/"


def _itself(operand: sympy.Expr) -> sympy.Expr:
    return operand


_WRITTEN: list[tuple[Any, Any]] = [
    (functions.FloorDiv, _Infix),
    (functions.Mod, _Remainder),
    (functions.PythonMod, _Remainder),
    (functions.IntTrueDiv, _Quotient),
    (functions.FloatTrueDiv, _Quotient),
    (functions.CeilToInt, sympy.Function("ceil")),
    (functions.FloorToInt, sympy.Function("floor")),
    (functions.TruncToInt, sympy.Function("int")),
    (functions.RoundToInt, sympy.Function("round")),
    (functions.Max, sympy.Function("max")),
    (functions.Min, sympy.Function("min")),
    (functions.ToFloat, _itself),
    (functions.Identity, _itself),
]


def shown(expr: Any, settled: Settled) -> str:
    """An expression of sizes, or a comparison."""
    if isinstance(expr, Relational):
        left, op, right = _sides(expr)
        return f"{shown(left, settled)} {op} {shown(right, settled)}"
    if not isinstance(expr, sympy.Basic):
        return str(expr)
    expr = expr.xreplace({s: sympy.Symbol(f"#{k}") for k, s in enumerate((*settled.dims, *settled.found))})
    for function, written in _WRITTEN:
        expr = expr.replace(function, written)
    return str(expr)


def matters(rule: sympy.Expr, settled: Settled) -> bool:
    """Whether a rule says more than limits, multiples, and that a size is not 1, for which there is a trace of its own."""
    return not is_apart(rule) and not settled.implied(rule)


def is_apart(rule: sympy.Expr) -> bool:
    """Whether a rule says that a size is not 1, for which there is a trace of its own."""
    return isinstance(rule, sympy.Ne) and 1 in rule.args


def _sides(rule: Any) -> _Sides:
    """A comparison without negative terms; a number alone is on the right."""
    terms = sympy.Add.make_args(rule.lhs - rule.rhs)
    left = sympy.Add(*(t for t in terms if t.as_coeff_Mul()[0] > 0))
    right = left - rule.lhs + rule.rhs
    return (right, rule.reversed.rel_op, left) if left.is_number else (left, rule.rel_op, right)
