"""Dimensions that vary between calls: symbolic traces, which programs of several sizes share, and the report of `sol.dims`."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sympy
import torch
from torch.utils import _pytree as pytree

from sol import _core, log
from sol.forms import Size, at
from sol.inputs import ANY, Dim, Exact, Input
from sol.report import Dimension, Report

from .listing import Listed, listed
from .sizes import Rounding, Sizes
from .steps import Unusual
from .structure import decode
from .symbols import LEAST, SECONDS, Cause, Place, Symbols, TooLong, holds, value
from .traced import Traced
from .wording import is_apart, shown

Free = Mapping[Place, Dim]
Make = Callable[[Symbols], Traced]
# the least size of a dimension, and by dimension the number of which its sizes are multiples
Limits = tuple[int, Mapping[sympy.Symbol, int]]
MOST_TRACES = 8  # of one kind of call; each holds for the sizes that its rules allow


class _Broadcast(Cause):
    """A size of 1 fits every other size, so a trace with it tells nothing about other sizes."""

    def needs(self, n: int) -> str:
        return (
            f"the example has {n} there, which would be broadcast; an example with 2 or more shows whether it may vary"
        )


BROADCAST = _Broadcast("", "", "")


class _Untraced(Cause):
    """There is no trace in which the size varies; `operator` says why."""

    def needs(self, n: int) -> str:
        return self.operator


class Kept:
    """A symbolic trace."""

    def __init__(self, traced: Traced, symbols: Symbols, fixed: Mapping[Place, tuple[int, Cause]]) -> None:
        self.traced, self.symbols, self.settled = traced, symbols, symbols.settle()
        self.limits = self._limits()  # with the first a program with sizes that vary may be possible
        self.numbers = self._selections()  # dimensions that get a number: the first may be possible
        self.why: Exception | None = None  # why the first was not
        # which get numbers, and the multiples, in the log; None: all get numbers
        self.said: tuple[frozenset[sympy.Symbol] | None, Mapping[sympy.Symbol, int]] = (
            frozenset(),
            self.settled.multiples,
        )
        self.fixed = {**fixed, **self.settled.fixed}

    @functools.cached_property
    def listed(self) -> list[Listed]:
        """The rules that tell something."""
        return listed(self.settled)

    def _limits(self) -> list[Limits]:
        """Least sizes and multiples, the widest first."""
        settled = self.settled
        multiples = [settled.multiples, *([settled.whole] if settled.whole != settled.multiples else [])]
        return [(least, m) for m in multiples for least in (1, LEAST)]

    def _selections(self) -> list[frozenset[sympy.Symbol]]:
        """No dimension; those that together must make a number (height and width of pictures with 16 patches); each alone (the batch
        last); all but the first."""
        dims = self.settled.dims
        each = [frozenset({s}) for s in reversed(dims)] if len(dims) > 1 else []
        rest = [frozenset(dims[1:])] if len(dims) > 2 else []
        made = self.settled.together()
        return list(dict.fromkeys([frozenset(), *([made] if 1 < len(made) < len(dims) else []), *each, *rest]))

    def unify(self, why: Exception) -> bool:
        """Where an operator needs two sizes to be equal that the network sets: takes them for one."""
        pair = getattr(why, "unequal", None)
        if pair is None or not self.symbols.same(*pair):
            return False
        self.traced.found = self.symbols.set_sizes()
        return True

    def failed(self, why: Exception, free: Free) -> None:
        """There is no program for the first of `limits` and `numbers`; goes on to the next that differs where only `free` varies."""
        self.why = self.why or why
        self.limits.pop(0)
        if self.limits:
            return
        numbers = self.numbers.pop(0)
        open_ = {
            s
            for s in self.settled.dims
            if all(p in free for p, e in self.settled.places.items() if s in e.free_symbols)
        }
        self.numbers = [n for n in self.numbers if n & open_ not in (numbers & open_, open_)]
        self.limits = self._limits() if self.numbers else []

    def is_of_such(self, leaves: Sequence[Any]) -> bool:
        """Whether calls with these leaves have tensors where the trace has, with as many dimensions."""
        tensors = [(i, t) for i, t in enumerate(leaves) if isinstance(t, torch.Tensor)]
        return self.settled.places.keys() | self.fixed.keys() == {(i, d) for i, t in tensors for d in range(t.ndim)}

    def values(self, leaves: Sequence[Any]) -> dict[sympy.Symbol, int] | None:
        """The sizes of the dimensions in a call. None: the trace is not valid for them."""
        found: dict[sympy.Symbol, int] = {}
        for (i, d), expr in self.settled.places.items():
            n = leaves[i].shape[d]
            if n < LEAST or (isinstance(expr, sympy.Symbol) and found.setdefault(expr, n) != n):
                return None
        if len(found) < len(self.settled.dims) or any(leaves[i].shape[d] != n for (i, d), (n, _) in self.fixed.items()):
            return None
        same = all(
            isinstance(e, sympy.Symbol) or value(e, found) == leaves[i].shape[d]
            for (i, d), e in self.settled.places.items()
        )
        return found if same and self.settled.hold(*(found[s] for s in self.settled.dims)) else None

    def at(self, values: Mapping[sympy.Symbol, int]) -> Traced:
        """The trace for these sizes."""
        return dataclasses.replace(self.traced, sizes=Sizes(values))

    def of(self, leaves: Sequence[Any]) -> Traced | None:
        """The trace for the sizes of these leaves. None: it is not valid for them."""
        values = self.values(leaves)
        return None if values is None else self.at(values)

    def samples(self, values: Mapping[sympy.Symbol, int]) -> Iterator[Mapping[sympy.Symbol, int]]:
        """These sizes, and some others for which the trace is valid."""
        yield values
        for factor, more in ((1, 1), (1, 2), (2, 5), (3, 64)):
            step = {s: self.settled.multiples[s] for s in values}
            other = {s: factor * n + more * step[s] for s, n in values.items()}
            if self.settled.hold(*(other[s] for s in self.settled.dims)):
                yield other

    def size(self, place: Place, values: Mapping[sympy.Symbol, int]) -> int:
        """The size of a place."""
        expr = self.settled.places.get(place)
        if expr is None:
            return self.fixed[place][0]
        return int(expr.xreplace({s: sympy.Integer(n) for s, n in values.items()}))

    def varying(self, free: Free, leaves: Sequence[Any], limits: Limits) -> Varying | None:
        """The trace with sizes that vary within `limits`, where `free` has all places of a dimension; the others have the sizes
        of these leaves. None: there is none, or its size is in no argument's shape."""
        settled = self.settled
        vary: dict[sympy.Symbol, Any] = {}
        where: list[Place] = []
        for k, symbol in enumerate(settled.dims):
            places = [p for p, e in settled.places.items() if symbol in e.free_symbols]
            own = [p for p in places if settled.places[p] == symbol]
            if not own:
                return None
            n = int(leaves[own[0][0]].shape[own[0][1]])
            vary[symbol] = n
            if symbol not in self.numbers[0] and all(p in free for p in places):
                vary[symbol] = self._range(k, symbol, [free[p] for p in own], n, limits)
                where.append(own[0])
        return Varying(self, dataclasses.replace(self.traced, vary=vary), where) if where else None

    def _range(self, k: int, symbol: sympy.Symbol, said: Sequence[Dim], n: int, limits: Limits) -> tuple[Any, ...]:
        """The arguments of Graph.dim: what the trace knows, and what the user said."""
        (least, multiples), (low, high) = limits, self.settled.bounds[symbol]
        low = max(low if low > LEAST else least, *(d.min for d in said))
        most = min((n for n in (high, *(d.max for d in said)) if n is not None), default=0)
        name = next((d.name for d in said if d is not ANY), f"#{k}")
        multiple = math.lcm(multiples[symbol], *(d.multiple for d in said))
        usual = n if max(low, LEAST) <= n <= (most or n) and n % multiple == 0 else self.settled.hints[symbol]
        return name, usual, low, most, multiple


class Varying:
    """A symbolic trace with sizes that vary between the calls of one program."""

    def __init__(self, kept: Kept, traced: Traced, where: Sequence[Place]) -> None:
        self.kept, self.traced = kept, traced
        self.where = tuple(where)  # by dimension: where its size is read
        self.admitted: set[tuple[int, ...]] = set()  # sizes that the trace does not cover, but at which it is the same
        self.others: list[Kept] = []  # traces of such sizes that are the same
        self.rounds: Callable[..., list[Any]] | None = None
        self.rounded: list[Size] = []

    def round(self, roundings: Sequence[Rounding]) -> None:
        """Makes the program valid only for sizes at which these real numbers round to the sizes that stand for them:
        `int(0.29 * n)` is 28, not 29, for 100."""
        if roundings:
            self.rounds, self.rounded = self.kept.settled.values([e for e, _ in roundings]), [n for _, n in roundings]

    def within(self, sizes: tuple[int, ...]) -> bool:
        """Whether sizes are within the limits of their dimensions."""
        limits = [n[2:] for n in self.traced.vary.values() if not isinstance(n, int)]
        rows = zip(sizes, limits, strict=True)
        return all(low <= n <= (high or n) and n % multiple == 0 for n, (low, high, multiple) in rows)

    def check(self, sizes: tuple[int, ...]) -> bool:
        """Whether the trace is valid for these sizes of the dimensions that vary."""
        if not self.within(sizes):
            return False
        given = iter(sizes)
        values = [n if isinstance(n, int) else next(given) for n in self.traced.vary.values()]
        if self.rounds is not None and self.rounds(*values) != at(self.rounded, sizes):
            return False
        if sizes in self.admitted or any(self._as(other, sizes) for other in self.others):
            return True
        return min(sizes, default=LEAST) >= LEAST and bool(self.kept.settled.hold(*values))

    def _as(self, other: Kept, sizes: tuple[int, ...]) -> bool:
        """Whether another trace is valid for these sizes."""
        found: dict[sympy.Symbol, int] = {}
        for place, n in zip(self.where, sizes, strict=True):
            expr = other.settled.places.get(place)
            if expr is None and other.fixed[place][0] != n:
                return False
            if expr is not None and (n < LEAST or found.setdefault(expr, n) != n):
                return False
        return set(other.settled.dims) == found.keys() and other.settled.hold(*(found[s] for s in other.settled.dims))

    def about(self, leaves: Sequence[Any]) -> bool:
        """Whether dimensions that do not vary have the program's sizes."""
        settled, vary = self.kept.settled, self.traced.vary
        return all(
            leaves[i].shape[d] == vary[e] for (i, d), e in settled.places.items() if isinstance(vary.get(e), int)
        )

    def covers(self, other: Kept) -> bool:
        """Whether all dimensions of another trace vary here."""
        return set(other.settled.dims) <= {other.settled.places.get(p) for p in self.where}

    def sizes(self, leaves: Sequence[Any]) -> tuple[int, ...]:
        """The sizes of a call."""
        return tuple(leaves[i].shape[d] for i, d in self.where)

    def fits(self, leaves: Sequence[Any]) -> bool:
        """Whether leaves of the right kind have such shapes."""
        settled, vary = self.kept.settled, self.traced.vary
        sizes = dict(zip((settled.places[p] for p in self.where), self.sizes(leaves), strict=True))
        expected = {p: sizes.get(e, vary.get(e)) for p, e in settled.places.items() if e.is_Symbol}
        expected |= {p: n for p, (n, _) in self.kept.fixed.items()}
        numbers: dict[sympy.Symbol, Any] = {s: sizes.get(s, vary.get(s)) for s in settled.dims}
        expected |= {p: self.kept.size(p, numbers) for p, e in settled.places.items() if not e.is_Symbol}
        return all(leaves[i].shape[d] == n for (i, d), n in expected.items()) and self.check(self.sizes(leaves))


class Traces:
    """The symbolic traces of one model."""

    def __init__(self, free: Free) -> None:
        self.free = free  # of calls as declared
        self.why = ""  # the last failure
        self.lost: list[Place] = []  # dimensions of the last call that is new of which there is no trace, as `why` says
        self._said: set[str] = set()
        self._kept: dict[Hashable, list[Kept]] = {}

    def find(self, key: Hashable, leaves: Sequence[Any], make: Make, free: Free) -> Kept | None:
        """A trace that is valid for the sizes of these leaves. `key`: what else it depends on. None: there is none with symbols."""
        known, self.lost = self.known(key), []
        if at_once(free) and not known:
            self.explore(key, leaves, make, free)
        found = next((kept for kept in known if kept.values(leaves) is not None), None)
        free = _large(free, leaves)
        if found is not None or not free or len(known) >= MOST_TRACES:
            return found
        made = self._trace(leaves, make, [free, {p: d for p, d in free.items() if p[1] == 0}])
        self.lost = [p for p in free if made is None or p not in made.symbols.made]
        if made is None:
            return None
        if known:
            self._say(known[0], leaves)
        known.append(made)
        return None if made.values(leaves) is None else made

    def _say(self, kept: Kept, leaves: Sequence[Any]) -> None:
        """Logs, once for each place in the model, why sizes need another trace than the first."""
        broken = [c for (i, d), (n, c) in kept.fixed.items() if c.converted and leaves[i].shape[d] != n]
        own = {e: leaves[i].shape[d] for (i, d), e in kept.settled.places.items() if isinstance(e, sympy.Symbol)}
        if not broken and len(own) == len(kept.settled.dims) and min(own.values(), default=0) >= LEAST:
            broken = [cause for rule, cause in kept.settled.rules if not holds(rule, own)]
        if broken and str(broken[0]) not in self._said:
            self._said.add(str(broken[0]))
            which = "takes a size as a number" if broken[0].converted else "decides by a size"
            log.info(f"{broken[0]} {which}: calls with another outcome get a program of their own")

    def say_lost(self, name: str, names: Sequence[str]) -> None:
        """Logs, once for each reason, of which dimensions there is no trace. `names`: of the leaves."""
        lost, self.lost = self.lost, []
        if lost and self.why not in self._said:
            self._said.add(self.why)
            which = ", ".join(f"dimension {d} of {names[i]}" for i, d in lost)
            log.info(f"{name}: each new size of {which} is traced and compiled: {' '.join(self.why.split())}")

    def known(self, key: Hashable) -> list[Kept]:
        """The traces so far; the first leaves most dimensions free."""
        return self._kept.setdefault(key, [])

    def explore(self, key: Hashable, leaves: Sequence[Any], make: Make, free: Free) -> Kept | None:
        """A trace for the report, which may also serve calls. A size of 1 may stand for any other, so only a batch of 1 varies."""
        large = _large(free, leaves)
        first = large | {p: d for p, d in free.items() if p[1] == 0 or d is not ANY}
        made = self._trace(leaves, make, [first, large, {p: d for p, d in first.items() if p[1] == 0}])
        if made is not None:
            self.known(key).append(made)
        return made

    def _trace(self, leaves: Sequence[Any], make: Make, attempts: Sequence[Free]) -> Kept | None:
        """A new trace with the first of these dimensions free that is possible; None: it does not work with symbols."""
        tried: dict[Place, Cause] = {}  # sizes that varied in attempts that failed
        for k, free in enumerate(attempts):
            if (not free and len(attempts) > 1) or free in attempts[:k]:
                continue
            symbols = Symbols(free)
            try:
                traced = make(symbols)
            except TooLong:
                self.why = f"tracing with {len(free)} sizes that vary takes more than {SECONDS:.0f} s"
            except (Unusual, _core.Error) as e:
                self.why = f"tracing with sizes that vary: {e}"
            else:
                if not (traced.reads.rows or traced.reads.hosted.steps):
                    tensors = [(i, t) for i, t in enumerate(leaves) if isinstance(t, torch.Tensor)]
                    sizes = {(i, d): n for i, t in tensors for d, n in enumerate(t.shape)}
                    fixed = {p: (n, tried.get(p, BROADCAST)) for p, n in sizes.items() if p not in symbols.made}
                    return Kept(traced, symbols, fixed)
                self.why = "forward reads values or calls host functions"
            tried |= {p: tried.get(p) or _Untraced(self.why, "", "") for p in free}
            log.debug(f"sizes that vary ({', '.join(f'{i}.{d}' for i, d in free)}): {self.why}")
        return None

    def alone(self, leaves: Sequence[Any], make: Make) -> Kept | None:
        """A trace for these sizes in which those that depend on data are symbols. None: it does not work."""
        return self._trace(leaves, make, [{}])

    def misfit(self, leaves: Sequence[Any], names: Sequence[str]) -> str | None:
        """The first rule of a trace that these sizes break, in words."""
        for kept in (k for many in self._kept.values() for k in many if k.is_of_such(leaves)):
            settled = kept.settled
            values: dict[sympy.Symbol, int] = {}
            for (i, d), expr in settled.places.items():
                n = leaves[i].shape[d]
                low, high = settled.bounds.get(expr, (0, None))
                if isinstance(expr, sympy.Symbol):
                    values[expr] = n
                    low = low if low > LEAST else 1
                    if n < low or (high is not None and n > high):
                        return f"dimension {d} of {names[i]} is {n}, expected {low}..{high or ''}"
            if why := _broken(kept, values, names):
                return why
        return None


def _broken(kept: Kept, values: Mapping[sympy.Symbol, int], names: Sequence[str]) -> str | None:
    """A rule of a trace that these sizes break, in words: one that is listed, or any; and where the model needs it first."""
    settled = kept.settled
    broken = [(r, c) for r, c in settled.rules if r.free_symbols <= values.keys() and not holds(r, values)]
    if not broken:
        return None
    rule, cause = next((b for b in broken if not is_apart(b[0])), broken[0])
    row = next((r for r in kept.listed if values.keys() >= set(r.dims) and not r.at(values)), None)
    text, dims = (row.text, row.dims) if row else (shown(rule, settled), rule.free_symbols)
    return f"{text} does not hold{_where(kept, dims, values, names)}: {cause}"


def _where(kept: Kept, dims: Collection[sympy.Symbol], values: Mapping[sympy.Symbol, int], names: Sequence[str]) -> str:
    """What the dimensions of a rule are, and of one alone the multiples that obey all of its rules."""
    settled = kept.settled
    places = {e: f"dimension {d} of {names[i]}" for (i, d), e in reversed([*settled.places.items()])}
    sizes = ", ".join(f"#{k} = {values[s]} ({places[s]})" for k, s in enumerate(settled.dims) if s in dims)
    fit = [n for s in dims if len(dims) == 1 and (n := settled.whole[s]) > settled.multiples[s]]
    return f" for {sizes}{f'; multiples of {fit[0]} fit' if fit else ''}"


def at_once(free: Free) -> bool:
    """Whether the first call has a program for all sizes: more than an open batch was declared."""
    return any(d is not ANY or place[1] > 0 for place, d in free.items())


def _large(free: Free, leaves: Sequence[Any]) -> dict[Place, Dim]:
    """What may vary, as far as it is at least two."""
    return {(i, d): dim for (i, d), dim in free.items() if leaves[i].shape[d] >= LEAST}


def say(name: str, kept: Kept) -> None:
    """Logs for which sizes there is no program for all, and why, if the log does not have it yet."""
    numbers = kept.numbers[0] if kept.limits else None
    multiples = kept.limits[0][1] if kept.limits else kept.settled.multiples
    if (numbers, multiples) == kept.said:
        return
    kept.said = numbers, multiples
    dims = [(f"#{k}", s) for k, s in enumerate(kept.settled.dims)]
    which = ", ".join(k for k, s in dims if numbers and s in numbers)
    odd = [f"of {k} other than multiples of {n}" for k, s in dims if (n := multiples[s]) > kept.settled.multiples[s]]
    why = " ".join(str(kept.why).split())
    if numbers is None or which or not odd:
        log.info(f"{name}: each new size{which and f' of {which}'} is compiled: {why}")
    if odd:
        log.info(f"{name}: sizes {', '.join(odd)} are compiled each: {why}")


# -- which dimensions vary


class Declared(NamedTuple):
    """The arguments of sol.optimize."""

    leaves: list[Any]  # Input for tensors
    structure: str
    present: frozenset[Any]  # which arguments are given
    others: bool  # whether all sizes of calls with other arguments vary, too


ANY_CALL = Declared([], "any call", frozenset({"any"}), True)  # all sizes of all calls vary


def every(leaves: Sequence[Any]) -> dict[Place, Dim]:
    """All dimensions of all tensors."""
    return {(i, d): ANY for i, t in enumerate(leaves) if isinstance(t, torch.Tensor) for d in range(t.ndim)}


def free(declared: Sequence[Any]) -> dict[Place, Dim]:
    """The dimensions that were declared to vary."""
    inputs = [(i, e) for i, e in enumerate(declared) if isinstance(e, Input)]
    return {(i, d): n for i, e in inputs for d, n in enumerate(e.shape) if isinstance(n, Dim)}


def all_free(declared: Sequence[Any], leaves: Sequence[Any]) -> dict[Place, Dim]:
    """All dimensions of all tensors, as they were declared."""
    return every(leaves) | free(declared)


def chosen(kept: Kept, declared: Sequence[Any], leaves: Sequence[Any], vdims: Any) -> list[Any]:
    """The declarations with those dimensions that `vdims` selects, by their numbers."""
    settled = kept.settled
    options = [True] * len(settled.dims) if vdims is True else list(vdims)
    if len(options) > len(settled.dims):
        raise _core.InvalidError(
            f"vdims: expected at most {len(settled.dims)} values, one for each dimension that may vary, got {len(options)}; "
            "sol.dims(model, ..) lists them"
        )
    options += [False] * (len(settled.dims) - len(options))
    sizes = {s: n for s, n in zip(settled.dims, options, strict=True) if n is not True and n is not False}
    names = {s: f"#{k}" for k, s in enumerate(settled.dims)}
    made = []
    for i, (e, t) in enumerate(zip(declared, leaves, strict=True)):
        if not isinstance(e, Input):
            made.append(e)
            continue
        shape: list[Any] = list(t.shape)
        for d, n in enumerate(t.shape):
            expr = settled.places.get((i, d))
            if expr is None:
                if vdims is True and kept.fixed[(i, d)][1].converted:
                    shape[d] = Dim(f"*{i}.{d}", 0, example=n)
                continue
            if all(options[settled.dims.index(s)] is True for s in expr.free_symbols):
                own = e.shape[d] if isinstance(e.shape[d], Dim) and e.shape[d] is not ANY else None
                shape[d] = own or Dim(names.get(expr, shown(expr, settled)), 0, example=n)
            elif expr in sizes:
                shape[d] = sizes[expr]
        made.append(Exact(tuple(shape), e.requires_grad, e.dtype))
    return made


def unknown(declared: Sequence[Any], leaves: Sequence[Any], vdims: Any, why: str) -> list[Any]:
    """The declarations if no trace with symbols is possible: any size is tried."""
    if vdims is not True:
        raise _core.UnsupportedError(f"{why}; so dimensions have no numbers: use vdims=True, or sol.input and sol.dim")
    log.warn(f"{why}: each new size is traced and compiled")
    return [
        Exact(tuple(Dim(f"*{i}.{d}", 0, example=n) for d, n in enumerate(t.shape)), e.requires_grad, e.dtype)
        if isinstance(e, Input)
        else e
        for i, (e, t) in enumerate(zip(declared, leaves, strict=True))
    ]


# -- the report


@dataclass(repr=False)
class Dims(Report):
    """What `sol.dims` found out about a model of PyTorch."""

    places: dict[Place, str] = field(default_factory=dict, repr=False)  # of `fixed`

    def why(self, i: int, leaf: Any) -> str | None:
        """Why sizes of argument i are fixed."""
        found = [
            text for (j, d), text in self.places.items() if j == i and isinstance(leaf, torch.Tensor) and d < leaf.ndim
        ]
        return "; ".join(found) or None


def report(kept: Kept, leaves: Sequence[Any], spec: pytree.TreeSpec, names: Sequence[str]) -> Dims:
    """The report of a trace."""
    settled = kept.settled

    def size(i: int, d: int) -> str:
        expr = settled.places.get((i, d))
        return str(leaves[i].shape[d]) if expr is None else shown(expr, settled)

    given = [f"[{', '.join(size(i, d) for d in range(t.ndim))}]" if isinstance(t, torch.Tensor) else _literal(t)
             for i, t in enumerate(leaves)]  # fmt: skip
    results = [_result(kept, r) for r in kept.traced.outputs]
    args, kwargs = pytree.tree_unflatten([_Text(t) for t in given], spec)
    made = Dims(
        [
            *(f"in_{i} {_nested(decode(a))}" for i, a in enumerate(args)),
            *(f"{k} {_nested(decode(v))}" for k, v in kwargs.items()),
        ],
        _outputs(decode(pytree.tree_unflatten([_Text(t) for t in results], kept.traced.spec))),
    )
    for k, symbol in enumerate(settled.dims):
        where = [f"dimension {d} of {names[i]}" for (i, d), e in settled.places.items() if e == symbol]
        low, high = settled.bounds[symbol]
        low = low if low > LEAST else 1
        made.dims.append(Dimension(f"#{k}", settled.hints[symbol], low, high, settled.multiples[symbol], where))
    for (i, d), (n, cause) in sorted(kept.fixed.items()):
        made.places[(i, d)] = f"dimension {d} of {names[i]} is fixed: {cause.needs(n)}"
    made.fixed = list(made.places.values())
    made.rules = list(dict.fromkeys(map(str, kept.listed)))
    return made


class _Text(str):
    """A shape in a structure; other strings are the user's."""


def _nested(tree: Any) -> str:
    """A structure with shapes as leaves, as JSON has it."""
    if isinstance(tree, _Text):
        return str(tree)
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))}: {_nested(v)}" for k, v in tree.items()) + "}"
    if isinstance(tree, tuple | list):
        return "(" + ", ".join(map(_nested, tree)) + ")"
    if tree is not None and hasattr(tree, "__dict__") and not isinstance(tree, str):
        return _nested(vars(tree))
    return _literal(tree)


def _outputs(tree: Any) -> list[str]:
    """out_0, out_1, .. of a result."""
    parts = tree if isinstance(tree, tuple | list) else [tree]
    return [f"out_{i} {_nested(part)}" for i, part in enumerate(parts)]


def _literal(value: Any) -> str:
    return repr(value) if value is None or isinstance(value, bool | int | float | str) else f"<{type(value).__name__}>"


def _result(kept: Kept, result: Any) -> str:
    if isinstance(result, torch.fx.Node):
        result = result.meta["val"]
    if isinstance(result, torch.Tensor):
        return f"[{', '.join(shown(kept.symbols.expression(n), kept.settled) for n in result.shape)}]"
    return shown(kept.symbols.expression(result), kept.settled) if not isinstance(result, str) else _literal(result)
