"""Sizes that may vary between calls, as a trace sees them.

`Symbols` makes leaves whose free dimensions are symbols of PyTorch's ShapeEnv. What the model computes from their sizes are
expressions of these. Where the model compares sizes, the ShapeEnv records what holds for the example (a guard). A symbol that
must equal a number is fixed, and one that must equal another symbol is the same dimension; `_Env` notes the place in the model.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, GuardOnDataDependentSymNode, ShapeEnv
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod
from torch.utils._sympy.printers import PythonPrinter

from sol.inputs import ANY, Dim

from .layout import Layout

Place = tuple[int, int]  # number of a leaf, and a dimension of it
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
LEAST = 2  # PyTorch treats sizes of 0 and 1 apart
MOST_TRIED = 256  # sizes, to find of what they must be multiples
SECONDS = 30.0  # of processor time, that a trace may take until dimensions become fixed


class TooLong(Exception):
    """Tracing with symbols takes too long."""


class DataSized(Exception):
    """A size depends on data; a trace with symbols lets the network set it."""


@dataclass
class Cause:
    """Where the model compares sizes: the operator that does, its layer (class and path), and the line of the model."""

    operator: str
    layer: str
    line: str
    converted: bool = False  # the model takes a size as a number of Python, as int(), float() and range() do

    def __str__(self) -> str:
        line = f" ({self.line})" if self.line else ""
        return f"{self.layer or self.operator or 'forward'}{line}"

    def needs(self, n: int) -> str:
        """Why a size is n, in words."""
        line = f" ({self.line})" if self.line else ""
        where = self.layer or self.operator or "forward"
        return f"{where} takes it as a number, {n} here{line}" if self.converted else f"{where} needs {n}{line}"


def nowhere() -> Cause:
    """Where the model is when it is not running."""
    return Cause("", "", "")


class _Env(ShapeEnv):
    """A ShapeEnv that notes where each guard and each fixed symbol comes from. PyTorch's caches keep it alive, so `place` must be
    `nowhere` behind a trace: it would keep the model, too."""

    def __init__(self, end: float) -> None:
        super().__init__(duck_shape=False)
        self.end = end  # of the time that a trace may take
        self.place: Callable[[], Cause] = nowhere
        self.causes: dict[sympy.Symbol, Cause] = {}
        self.guarded: list[Cause] = []  # by guard
        self._converts = False  # a number is asked for, not whether something holds

    def _cause(self) -> Cause:
        return dataclasses.replace(self.place(), converted=self._converts)

    def _set_replacement(self, a: sympy.Symbol, tgt: sympy.Expr, msg: str) -> None:
        before = self.replacements.get(a)  # a symbol that it equals: if that is fixed meanwhile, for the same reason
        super()._set_replacement(a, tgt, msg)
        found = self.replacements.get(a)
        if isinstance(found, sympy.Integer) and a not in self.causes:
            self.causes[a] = self.causes.get(before) or self._cause()

    def check_time(self) -> None:
        """Raises TooLong."""
        if time.thread_time() > self.end:
            raise TooLong

    def _evaluate_expr(self, orig_expr: sympy.Basic, *args: Any, **kwargs: Any) -> sympy.Basic:
        if self.place is not nowhere:  # within an operator, too: a reshape of products of quotients asks for minutes
            self.check_time()
        outer = self._converts
        self._converts = outer or not (orig_expr.is_Boolean or orig_expr.is_Relational)
        try:
            made = super()._evaluate_expr(orig_expr, *args, **kwargs)
            self.guarded += [self._cause() for _ in range(len(self.guards) - len(self.guarded))]
        except GuardOnDataDependentSymNode as e:
            e.args = (f"{self._cause()} decides by a size that depends on data",)
            raise
        finally:
            self._converts = outer
        return made


class Symbols:
    """The free dimensions of a call's leaves, during a trace and behind it."""

    def __init__(self, free: Mapping[Place, Dim], seconds: float = SECONDS) -> None:
        self.free = free
        self.end = time.thread_time() + seconds
        self.begin()

    def begin(self) -> None:
        """Forgets the symbols and guards of a trace that failed, for another one."""
        self._found: list[tuple[sympy.Symbol, Any]] = []  # sizes that the network sets, and their most
        self._sizes: dict[Any, Any] = {}  # by what is counted
        self.env = _Env(self.end)
        self.made: dict[Place, sympy.Expr] = {}
        self._named: dict[str, Any] = {}

    def check_time(self) -> None:
        """Raises TooLong."""
        self.env.check_time()

    def leaf(self, i: int, t: torch.Tensor, name: str) -> torch.Tensor:
        """A tensor without data in place of leaf number i, in the current mode."""
        layout = Layout.of(t)
        sizes = [self._size((i, d), n, name) for d, n in enumerate(t.shape)]
        strides: list[Any] = [1] * len(sizes)
        n: Any = 1
        for d in reversed(layout.order):
            strides[d] = 0 if d in layout.repeated else n
            n = n if d in layout.repeated else n * sizes[d]
        made = torch.empty_strided(sizes, strides, dtype=t.dtype)
        return made.requires_grad_(t.requires_grad)

    def _size(self, place: Place, n: int, name: str) -> Any:
        if place not in self.free:
            return n
        dim = self.free[place]
        size: Any = None if dim is ANY else self._named.get(dim.name)
        if size is None:
            hint = max(n, LEAST)
            source = ConstantSource(f"{name}_{place[1]}")
            symbol = self.env.create_symbol(hint, source, DimDynamic.DYNAMIC)
            size = self.env.create_symintnode(symbol, hint=hint, source=source)
            self._named[dim.name] = size
        self.made[place] = size.node.expr
        return size

    def found(self, what: Any, most: Any) -> Any:
        """The size of what the network finds, from 0 to `most`."""
        if what not in self._sizes:
            size = self.env.create_unbacked_symint()
            torch._check(size >= 0)
            self._sizes[what] = size
            self._found.append((size.node.expr, most))
        return self._sizes[what]

    def same(self, a: sympy.Symbol, b: sympy.Symbol) -> bool:
        """Takes two sizes that the network sets for one; the run compares what it finds. False: they are not such sizes."""
        found = [s for s, _ in self.set_sizes()]
        if a == b or a not in found or b not in found:
            return False
        first, second = sorted((a, b), key=found.index)
        self.env._set_replacement(second, first, "equal sizes")
        return True

    # -- behind the trace

    def set_sizes(self) -> list[tuple[sympy.Symbol, Any]]:
        """The sizes that the network sets, in order, each with its most. Sizes that must be equal are one."""
        found = [
            (s, self.env.replace(most.node.expr) if isinstance(most, SYMBOLIC) else most) for s, most in self._found
        ]
        return [(s, most) for s, most in found if self.env.replace(s) == s]

    def unchecked(self) -> str | None:
        """What a model needs of sizes that the network sets, if nothing would check it."""
        for asserts in self.env.deferred_runtime_asserts.values():
            for a in asserts:
                expr = self.env.replace(a.expr)
                if expr != sympy.true and self.env._maybe_evaluate_static(expr) != sympy.true:
                    return f"{expr} must hold, where sizes depend on data"
        return None

    def expression(self, size: Any) -> Any:
        """A size as an expression of the dimensions; a number as it is."""
        return plain(self.env.replace(size.node.expr)) if isinstance(size, SYMBOLIC) else size

    def settle(self) -> Settled:
        """What the trace found out about the dimensions."""
        self._unify()
        exprs = {place: self.env.replace(e) for place, e in self.made.items()}
        dims: list[sympy.Symbol] = []
        for e in exprs.values():
            dims += sorted((s for s in e.free_symbols if s not in dims), key=str)
        fixed = {place: (int(e), self._cause(self.made[place])) for place, e in exprs.items() if e.is_number}
        rules = []
        for guard, cause in zip(self.env.guards, self.env.guarded, strict=True):
            expr = self.env.replace(guard.expr)
            if expr.free_symbols:
                rules.append((expr, cause))
        ranges = {s: self.env.var_to_range[s] for s in dims}
        bounds = {s: (int(r.lower), int(r.upper) if r.upper.is_Integer else None) for s, r in ranges.items()}
        hints = {s: int(self.env.backed_var_to_val[s]) for s in dims}
        found = [s for s, _ in self.set_sizes()]
        return Settled(dims, {p: e for p, e in exprs.items() if not e.is_number}, fixed, rules, bounds, hints, found)

    def _unify(self) -> None:
        """Takes dimensions for one where products of them must be equal (batch times length of words, and of their labels). Sizes
        whose products alone are equal get a trace of their own."""
        for guard in self.env.guards:
            rule = self.env.replace(guard.expr)
            for a, b in _pairs(rule, self.env.backed_var_to_val) if isinstance(rule, sympy.Eq) else ():
                self.env._set_replacement(b, a, "equal products")

    def _cause(self, symbol: Any) -> Cause:
        """Why a symbol is fixed: it, or the one that it equals."""
        while symbol not in self.env.causes:
            after = self.env.replacements.get(symbol)
            if not isinstance(after, sympy.Symbol):
                return Cause("", "", "")
            symbol = after
        return self.env.causes[symbol]


@dataclass
class Settled:
    """What a trace found out."""

    dims: Sequence[sympy.Symbol]  # in the order of the leaves
    places: Mapping[Place, sympy.Expr]  # sizes as expressions of the dimensions
    fixed: Mapping[Place, tuple[int, Cause]]  # what must have this size
    rules: Sequence[tuple[sympy.Expr, Cause]]  # what must hold for the trace to be valid
    bounds: Mapping[sympy.Symbol, tuple[int, int | None]]  # None: no limit that is known
    hints: Mapping[sympy.Symbol, int]  # sizes during the trace
    found: Sequence[sympy.Symbol] = ()  # sizes that the network sets

    @functools.cached_property
    def hold(self) -> Callable[..., bool]:
        """A function of the dimensions' sizes: whether all rules hold."""
        rules = " and ".join(f"({PythonPrinter().doprint(rule)})" for rule, _ in self.rules) or "True"
        return _if_defined(self._function(rules))

    def values(self, exprs: Sequence[sympy.Expr]) -> Callable[..., list[Any]]:
        """A function of the dimensions' sizes: the values of expressions, as Python computes them."""
        made: Callable[..., list[Any]] = self._function(f"[{', '.join(map(PythonPrinter().doprint, exprs))}]")
        return made

    def _function(self, text: str) -> Any:
        return _function(self.dims, text)

    @functools.cached_property
    def multiples(self) -> dict[sympy.Symbol, int]:
        """By dimension: the number of which its sizes must be multiples, so far as rules of this dimension alone say."""
        return {dim: math.gcd(*fit, self.hints[dim]) if fit else 1 for dim, fit in self._fit.items()}

    @functools.cached_property
    def whole(self) -> dict[sympy.Symbol, int]:
        """By dimension: the least number of which the example is a multiple and whose multiples all obey these rules. Of windows of 4
        pixels behind a convolution with stride 2, sizes 8k and 8k - 1 do: 8."""
        return {dim: self._whole(dim) for dim in self.dims}

    def _whole(self, dim: sympy.Symbol) -> int:
        fit, least, n = self._fit[dim], self.multiples[dim], self.hints[dim]
        for step in range(least, MOST_TRIED // 4 + 1, least) if fit else ():
            first = -(-min(fit) // step) * step
            if n % step == 0 and all(m in fit for m in range(first, max(fit) + 1, step)):
                return step
        return least

    @functools.cached_property
    def _fit(self) -> dict[sympy.Symbol, frozenset[int]]:
        """By dimension: some sizes that obey the rules of this dimension alone; none: there are no such rules."""
        return {dim: self._fitting(dim) for dim in self.dims}

    def _fitting(self, dim: sympy.Symbol) -> frozenset[int]:
        own = [rule for rule, _ in self.rules if rule.free_symbols == {dim} and rule.atoms(FloorDiv, Mod, PythonMod)]
        low, high = self.bounds[dim]
        tried = range(max(low, MOST_TRIED // 2), min(high or MOST_TRIED, MOST_TRIED) + 1)
        return frozenset(n for n in tried if all(holds(rule, {dim: n}) for rule in own) if own)

    def together(self) -> frozenset[sympy.Symbol]:
        """The dimensions in rules by which something computed from several of them equals a number."""
        equal = (rule for rule, _ in self.rules if isinstance(rule, sympy.Eq) and any(a.is_number for a in rule.args))
        return frozenset().union(*(rule.free_symbols for rule in equal if len(rule.free_symbols) > 1))

    def implied(self, rule: sympy.Expr) -> bool:
        """Whether the limits and multiples of the dimensions say the same, as far as some sizes show."""
        dims = sorted(rule.free_symbols, key=str)
        return all(
            holds(rule, dict(zip(dims, sizes, strict=True))) for sizes in itertools.product(*map(self._some, dims))
        )

    def _some(self, dim: sympy.Symbol) -> list[int]:
        """Sizes that a dimension may have, the least and the most among them."""
        step, (low, high) = self.multiples[dim], self.bounds[dim]
        first = -(-low // step) * step
        last = MOST_TRIED if high is None else high // step * step
        return sorted({*range(first, min(last, first + 8 * step) + 1, step), last})


def _pairs(rule: sympy.Eq, hints: Mapping[sympy.Symbol, Any]) -> list[tuple[sympy.Symbol, sympy.Symbol]]:
    """Pairs of symbols, equal in the example, whose equality makes two products equal; none if that is not enough."""
    left, right = (sorted(sympy.Mul.make_args(side), key=_age) for side in rule.args)
    common = [f for f in left if f in right]
    left, right = ([f for f in side if f not in common] for side in (left, right))
    if len(left) != len(right) or not all(isinstance(f, sympy.Symbol) for f in (*left, *right)):
        return []
    found = []
    for a in left:
        b = next((b for b in right if hints[b] == hints[a]), None)
        if b is None:
            return []
        right.remove(b)
        found.append((a, b))
    return found


def _age(factor: sympy.Expr) -> tuple[int, str]:
    """Sorts symbols by their creation: their names are numbered."""
    name = str(factor)
    return len(name), name


def _function(names: Sequence[sympy.Symbol], text: str) -> Any:
    """Python's function of sizes with this result."""
    return eval(f"lambda {', '.join(map(str, names))}: {text}", {"math": math, "torch": torch, "max": max, "min": min})


def _if_defined(rule: Callable[..., Any]) -> Callable[..., bool]:
    """A rule that divides by zero at some sizes (0 patches of a small picture) does not hold there."""

    def check(*sizes: Any) -> bool:
        try:
            return bool(rule(*sizes))
        except ZeroDivisionError:
            return False

    return check


@functools.lru_cache(maxsize=1024)
def _computed(expr: sympy.Expr) -> tuple[list[sympy.Symbol], Callable[..., Any]]:
    """An expression as a function of its symbols: sympy takes a thousand times as long to replace them."""
    symbols = sorted(expr.free_symbols, key=str)
    return symbols, _function(symbols, PythonPrinter().doprint(expr))


def condition(rule: sympy.Expr) -> tuple[list[sympy.Symbol], Callable[..., bool]]:
    """The symbols of a rule, and a function of their sizes: whether it holds."""
    symbols, function = _computed(rule)
    return symbols, _if_defined(function)


def value(expr: sympy.Expr, values: Mapping[sympy.Symbol, int]) -> Any:
    """The value of an expression for these sizes, as Python computes it."""
    symbols, function = _computed(expr)
    return function(*(values[s] for s in symbols))


def holds(rule: sympy.Expr, values: Mapping[sympy.Symbol, int]) -> bool:
    """Does a rule hold for these sizes?"""
    return bool(_if_defined(value)(rule, values))


def plain(expr: Any) -> Any:
    """Numbers and truth values of Python instead of sympy's."""
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if expr in (sympy.true, sympy.false):
        return bool(expr)
    return float(expr) if getattr(expr, "is_number", False) else expr
