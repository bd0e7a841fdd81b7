"""The rules of a trace that tell something: each in its simplest form, without those that limits, multiples and other rules imply.

PyTorch's guards say the same many times, in the terms of the operator that asks. Sizes are tried to find out what a rule says and
from which others it follows. That decides about words alone: a trace is valid where all of its rules hold, listed or not.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sympy

from .symbols import MOST_TRIED, Cause, Settled, condition
from .wording import is_apart, shown

MOST_PERIOD = 64
MOST_POINTS = 1 << 10  # that are tried of several dimensions
MOST_DIMS = 10  # of a rule; one with more is listed

_Dims = tuple[sympy.Symbol, ...]


@dataclass(frozen=True, eq=False)
class Listed:
    """A rule."""

    text: str
    cause: Cause
    dims: _Dims
    hold: Callable[..., bool]  # a function of their sizes
    place: int  # among the rules of the trace
    effort: int  # to read it

    def at(self, sizes: Mapping[sympy.Symbol, int]) -> bool:
        """Whether it holds."""
        return self.hold(*(sizes[d] for d in self.dims))

    def __str__(self) -> str:
        return f"{self.text}: {self.cause}"


def listed(settled: Settled) -> list[Listed]:
    """The rules to list, in the order of the trace."""
    return _Listing(settled).found()


class _Listing:
    def __init__(self, settled: Settled) -> None:
        self.settled = settled
        self.tried = {d: self._sizes(d) for d in settled.dims}
        self.rows: list[Listed] = []
        self.apart: list[Listed] = []
        for place, (rule, cause) in enumerate(settled.rules):
            row = self._row(place, rule, cause)
            (self.apart if is_apart(rule) else self.rows).append(row)
        self._points: dict[_Dims, list[tuple[int, ...]]] = {}
        self._masks: dict[tuple[int, _Dims], int] = {}

    def _sizes(self, dim: sympy.Symbol) -> list[int]:
        """Sizes within the limits of a dimension."""
        step, (low, high) = self.settled.multiples[dim], self.settled.bounds[dim]
        first = -(-low // step) * step
        last = max(MOST_TRIED, first + 16 * step)
        return list(range(first, (last if high is None else min(high, last)) + 1, step))

    def _row(self, place: int, rule: sympy.Expr, cause: Cause) -> Listed:
        dims, hold = condition(rule)
        text = self._simple(dims[0], hold) if len(dims) == 1 else None
        effort = 0 if text else int(rule.count_ops())
        return Listed(text or shown(rule, self.settled), cause, tuple(dims), hold, place, effort)

    def _simple(self, dim: sympy.Symbol, hold: Callable[..., bool]) -> str | None:
        """A rule of one dimension as a limit, or as what its remainder must be. None: it is neither."""
        sizes = self.tried[dim]
        fit = [n for n in sizes if hold(n)]
        if not fit or len(fit) == len(sizes):
            return None
        name = shown(dim, self.settled)
        if fit == sizes[-len(fit) :]:
            return f"{name} >= {fit[0]}"
        if fit == sizes[: len(fit)]:
            return f"{name} <= {fit[-1]}"
        remainder = _remainder(sizes, set(fit))
        if remainder is None:
            return None
        first, last, period = remainder
        moved = f"({name} + {-first})" if first < 0 else f"({name} - {first})" if first else name
        return f"{moved} % {period} {'<=' if last > first else '=='} {last - first}"

    def found(self) -> list[Listed]:
        """The rules to list."""
        kept: list[Listed] = []
        for row in sorted(self.rows, key=lambda r: (len(r.dims), r.effort, r.place)):
            if not self._follows(row, kept):
                kept.append(row)
        for row in reversed(tuple(kept)):
            others = [r for r in kept if r is not row]
            if self._follows(row, others):
                kept = others
        for dim in self.settled.dims:
            kept = self._joined(dim, kept)
        return sorted(kept, key=lambda r: r.place)

    def _joined(self, dim: sympy.Symbol, kept: list[Listed]) -> list[Listed]:
        """With one rule about a dimension's remainder in place of several, if one says the same: of windows behind each of two strides."""
        own = [row for row in kept if row.dims == (dim,) and " % " in row.text]

        def hold(n: int) -> bool:
            return all(row.hold(n) for row in own)

        text = self._simple(dim, hold) if len(own) > 1 else None
        if text is None:
            return kept
        last = max(own, key=lambda row: row.place)
        return [*(row for row in kept if row not in own), dataclasses.replace(last, text=text, hold=hold)]

    def _follows(self, row: Listed, others: Sequence[Listed]) -> bool:
        """Whether a rule holds at all sizes at which others do, as far as some sizes show."""
        if len(row.dims) > MOST_DIMS:
            return False
        open_ = (1 << len(self._of(row.dims))) - 1
        for other in itertools.chain(self.apart, others):
            if set(other.dims) <= set(row.dims):
                open_ &= self._mask(other, row.dims)
        return not open_ & ~self._mask(row, row.dims)

    def _mask(self, row: Listed, dims: _Dims) -> int:
        """At which points of some dimensions a rule holds, as bits."""
        key = row.place, dims
        if key not in self._masks:
            own = [dims.index(d) for d in row.dims]
            holds = (row.hold(*(point[k] for k in own)) for point in self._of(dims))
            self._masks[key] = sum(1 << k for k, fit in enumerate(holds) if fit)
        return self._masks[key]

    def _of(self, dims: _Dims) -> list[tuple[int, ...]]:
        """Points: sizes of these dimensions. Of several, a few that obey the rules of each dimension alone."""
        if dims not in self._points:
            few = int(MOST_POINTS ** (1 / len(dims)) + 1e-9)
            sizes = [self.tried[dims[0]]] if len(dims) == 1 else [self._few(d, min(few, 10)) for d in dims]
            self._points[dims] = list(itertools.product(*sizes))
        return self._points[dims]

    def _few(self, dim: sympy.Symbol, most: int) -> list[int]:
        own = [row for row in (*self.rows, *self.apart) if row.dims == (dim,)]
        fit = [n for n in self.tried[dim] if all(row.hold(n) for row in own)]
        return sorted({*fit[: most - 1], *fit[-1:]})


def _remainder(sizes: Sequence[int], fit: set[int]) -> tuple[int, int, int] | None:
    """The remainders that sizes have which fit, from a first to a last, which are next to zero, and the divisor. None: no such rule says
    which fit."""
    step = sizes[1] - sizes[0]
    for period in range(2 * step, MOST_PERIOD + 1, step):
        if any((n in fit) != (n + period in fit) for n in sizes if n + period <= sizes[-1]):
            continue
        left = sorted({n % period for n in fit})
        start = next((r for r in left if (r - step) % period not in left), None)
        if start is None or any((start + k * step) % period not in left for k in range(len(left))):
            return None
        first = start - period if 2 * start > period else start
        return first, first + (len(left) - 1) * step, period
    return None
