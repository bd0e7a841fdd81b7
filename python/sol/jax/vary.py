"""Sizes of a function's arguments that vary between calls: which may, found by tracing with symbols in their place.

`jax.export.symbolic_shape` makes the symbols. JAX proves what it needs to know of them, or the trace fails, so a trace holds for all
sizes from 1 on. One thing it does not prove: a comparison `==` that depends on the sizes is False. Those that the user's code
makes are watched, and sizes at which one is true have a program of their own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax._src.export import shape_poly
from jax.export import SymbolicScope, symbolic_shape

from sol import _core, forms
from sol.inputs import ANY, Dim

Place = tuple[int, int]  # a leaf of the arguments, and its dimension
MOST_SECONDS = 30.0  # of processor time, for finding the sizes that vary
MULTIPLES = (1, 2, 4, 8, 16, 32)
UNDECIDED = (forms.Varies, shape_poly.InconclusiveDimensionOperation, _core.UnsupportedError)
_numbers = itertools.count()  # JAX caches traces of inner functions by their symbols: no name comes twice
_JAX = os.path.dirname(jax.__file__) + os.sep
_OWN = (__file__, shape_poly.__file__)
_watch = threading.local()


def _watched(plain: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """The comparison of sizes; what the user's code asks while a function is traced is noted."""

    def equal(a: Any, b: Any) -> bool:
        found = plain(a, b)
        seen = getattr(_watch, "seen", None)
        if seen is not None and not found and isinstance(b, int | shape_poly._DimExpr):
            frame = sys._getframe(1)
            while frame.f_back is not None and frame.f_code.co_filename in _OWN:
                frame = frame.f_back
            if not frame.f_code.co_filename.startswith(_JAX):
                seen.append((a, b))
        return found

    equal.__name__ = plain.__name__
    return equal


shape_poly._DimExpr.__eq__ = _watched(shape_poly._DimExpr.__eq__)


@contextlib.contextmanager
def watched() -> Iterator[list[tuple[Any, Any]]]:
    """Collects the comparisons of sizes that were False."""
    before, _watch.seen = getattr(_watch, "seen", None), []
    try:
        yield _watch.seen
    finally:
        _watch.seen = before


@dataclass(frozen=True)
class Symbol:
    """A size that varies."""

    places: tuple[Place, ...]  # where it is
    size: int  # of the example
    limits: Dim  # the least, the largest, of what it is a multiple

    def of(self, shapes: Sequence[Sequence[int]]) -> int | None:
        """The size in a call; None: it does not fit."""
        (i, d), *rest = self.places
        n = shapes[i][d]
        fits = n > 0 and not self.limits.misfit(n) and all(shapes[k][e] == n for k, e in rest)
        return n if fits else None


@dataclass
class Varying:
    """The sizes of a call of which one program serves all.

    shapes   of the example's leaves
    symbols  the sizes that vary, in the order of the graph's dimensions
    """

    shapes: list[tuple[int, ...]]
    symbols: list[Symbol]
    apart: list[tuple[Any, Any]] = field(default_factory=list)  # sizes that the trace takes for different
    names: list[str] = field(default_factory=list)  # of JAX's symbols

    def __post_init__(self) -> None:
        self._numbers = {p: k for k, s in enumerate(self.symbols) for p in s.places}

    def specs(self, specs: Sequence[Any]) -> list[Any]:
        """The types of the leaves, with new symbols of JAX in place of sizes."""
        self.names = [f"d{next(_numbers)}" for _ in self.symbols]
        rules = []
        for name, s in zip(self.names, self.symbols, strict=True):
            m = s.limits.multiple
            rules.append(f"{name} >= {max(-(-s.limits.min // m), 1)}")
            rules += [] if s.limits.max is None else [f"{name} <= {s.limits.max // m}"]
        scope = SymbolicScope(rules)
        made = []
        for i, spec in enumerate(specs):
            parts = [self._part(i, d, n) for d, n in enumerate(spec.shape)]
            shape = symbolic_shape(f"({', '.join(parts)},)", scope=scope) if parts else ()
            made.append(jax.ShapeDtypeStruct(shape, spec.dtype, weak_type=spec.weak_type))
        return made

    def _part(self, i: int, d: int, n: int) -> str:
        k = self._numbers.get((i, d))
        if k is None:
            return str(n)
        m = self.symbols[k].limits.multiple
        return self.names[k] if m == 1 else f"{m}*{self.names[k]}"

    def sizes(self, graph: _core.Graph) -> dict[str, Any]:
        """New dimensions of a graph: the sizes that JAX's symbols stand for."""
        made = {}
        for k, (name, s) in enumerate(zip(self.names, self.symbols, strict=True)):
            low, high, multiple = max(s.limits.min, s.limits.multiple), s.limits.max or 0, s.limits.multiple
            label = f"#{k}" if s.limits.name in (ANY.name, "") else s.limits.name
            made[name] = forms.size(graph.dim(label, s.size, low, high, multiple)) // multiple
        return made

    def require(self, graph: _core.Graph, sizes: dict[str, Any]) -> None:
        """Sizes that the trace takes for different differ in all calls of the graph."""
        for a, b in self.apart:
            x, y = evaluated(a, sizes), evaluated(b, sizes)
            if forms.varies(x - y):
                square = (x - y) * (x - y)
                graph.require(forms.form(square - 1), f"a comparison of {x} and {y} has another outcome")

    def dims(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
        """The sizes of a call; None: it needs another program."""
        for i, (own, shape) in enumerate(zip(self.shapes, shapes, strict=True)):
            if len(own) != len(shape):
                return None
            if any(a != b and (i, d) not in self._numbers for d, (a, b) in enumerate(zip(own, shape, strict=True))):
                return None
        found = [s.of(shapes) for s in self.symbols]
        if None in found:
            return None
        env = {n: v // s.limits.multiple for n, v, s in zip(self.names, found, self.symbols, strict=True) if v}
        if any(evaluated(a, env) == evaluated(b, env) for a, b in self.apart):
            return None
        return tuple(v for v in found if v is not None)

    def at(self, dims: Sequence[int], specs: Sequence[Any]) -> list[Any]:
        """The types of the leaves of a call."""
        shapes = [list(s.shape) for s in specs]
        for (i, d), k in self._numbers.items():
            shapes[i][d] = dims[k]
        return [
            jax.ShapeDtypeStruct(tuple(n), s.dtype, weak_type=s.weak_type) for n, s in zip(shapes, specs, strict=True)
        ]


def evaluated(e: Any, env: dict[str, Any]) -> Any:
    """The value of a size of JAX where its symbols have these values, numbers or SOL's sizes."""
    if not isinstance(e, shape_poly._DimExpr):
        return e
    total: Any = 0
    for term, count in e._sorted_terms:
        part: Any = count
        for factor, power in term._factors:
            value = env[factor.var] if factor.var is not None else _operation(factor, env)
            for _ in range(power):
                part = part * value
        total = total + part
    return total


def _operation(factor: Any, env: dict[str, Any]) -> Any:
    a, b = (evaluated(x, env) for x in factor.operands)
    if factor.operation == factor.FLOORDIV:
        return a // b
    if factor.operation == factor.MOD:
        return a % b
    return forms.most(a, b) if factor.operation == factor.MAX else forms.least(a, b)


class Search:
    """Finds the sizes that vary.

    places  those that may, with what is known of them
    shapes  of the example's leaves
    attempt traces and translates the function for these sizes; an exception: it cannot be
    """

    def __init__(
        self, places: dict[Place, Dim], shapes: list[tuple[int, ...]], attempt: Callable[[Varying], Any]
    ) -> None:
        self.places, self.shapes, self._attempt = places, shapes, attempt
        self.why: dict[Place, str] = {}  # why a size is fixed
        self._undecided = False  # whether the last attempt failed at what multiples may decide
        self.end = time.process_time() + MOST_SECONDS

    def run(self) -> tuple[Varying, Any] | None:
        """The sizes, and what the attempt made; None: no size may vary."""
        ways = [self._groups(key) for key in (self._alone, self._by_axis, self._by_size)]
        for i, groups in enumerate(ways):
            found = self._tried([self._symbol(g, 1) for g in groups]) if groups and groups not in ways[:i] else None
            if found:
                return found
        return self._joined()

    def _alone(self, p: Place) -> Any:
        return self.places[p].name if self.places[p].name != ANY.name else p

    def _by_axis(self, p: Place) -> Any:
        return self._size(p), p[1]

    def _by_size(self, p: Place) -> Any:
        return self._size(p)

    def _size(self, p: Place) -> int:
        return self.shapes[p[0]][p[1]]

    def _groups(self, key: Callable[[Place], Any]) -> list[tuple[Place, ...]]:
        """Places of equal keys. Those of one name are together."""
        found: dict[Any, list[Place]] = {}
        for p in self.places:
            named = self.places[p].name != ANY.name
            found.setdefault(self._alone(p) if named else key(p), []).append(p)
        return [tuple(g) for g in found.values()]

    def _symbol(self, group: tuple[Place, ...], multiple: int) -> Symbol:
        known = self.places[group[0]]
        return Symbol(group, self._size(group[0]), Dim(known.name, known.min, known.max, known.multiple * multiple))

    def _tried(self, symbols: list[Symbol]) -> tuple[Varying, Any] | None:
        varying = Varying(self.shapes, symbols)
        try:
            with watched() as varying.apart:
                return varying, self._attempt(varying)
        except Exception as e:
            self._undecided = isinstance(e, UNDECIDED) or any(f"{word}(" in str(e) for word in ("floordiv", "mod"))
            text = " ".join(str(e).split()) or type(e).__name__
            for name in varying.names:
                text = re.sub(rf"\b{name}\b", "n", text)
            self.why |= dict.fromkeys(symbols[-1].places, text)
            return None

    def _joined(self) -> tuple[Varying, Any] | None:
        """One group after the other, as far as they go together."""
        found: tuple[Varying, Any] | None = None
        seen: set[tuple[Place, ...]] = set()
        for key in (self._alone, self._by_axis, self._by_size):
            for group in self._groups(key):
                good = found[0].symbols if found else []
                if group in seen or {p for s in good for p in s.places} & set(group):
                    continue
                seen.add(group)
                found = self._with(good, group) or found
        return found

    def _with(self, good: list[Symbol], group: tuple[Place, ...]) -> tuple[Varying, Any] | None:
        """One group more, of multiples of a number if not of any size."""
        for m in MULTIPLES:
            symbol = self._symbol(group, m)
            if self._size(group[0]) % symbol.limits.multiple or time.process_time() > self.end:
                return None
            found = self._tried([*good, symbol])
            if found or not self._undecided:
                return found
        return None


def chosen(symbols: Sequence[Symbol], vdims: Any) -> tuple[dict[Place, Dim], dict[Place, int]]:
    """The sizes that vary of those that may, as `vdims` selects, and other sizes in place of the example's."""
    choices = [True] * len(symbols) if vdims is True else list(vdims)
    if len(choices) > len(symbols):
        raise _core.InvalidError(f"vdims: has {len(choices)} values, but {len(symbols)} sizes may vary")
    choices += [False] * (len(symbols) - len(choices))
    vary = {p: s.limits for s, c in zip(symbols, choices, strict=True) if c is True for p in s.places}
    sizes = {p: c for s, c in zip(symbols, choices, strict=True) if not isinstance(c, bool) for p in s.places}
    return vary, sizes
