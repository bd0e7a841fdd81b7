"""Sizes that vary in a deployed library: one graph for all of them, which is checked before it is deployed.

A library cannot trace the model again. So what a symbolic trace assumes beyond limits and multiples becomes a requirement of the
graph, and sizes of 0 and 1, which PyTorch treats apart, are allowed for a dimension only if traces of them give the same graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from sol import _core, log
from sol.forms import Varies, form
from sol.inputs import vdims_wanted

from . import vary, wording
from .same import same
from .symbols import LEAST, Symbols
from .traced import Traced
from .translate import Translator
from .translation import Translation


@dataclass
class Tracer:
    """How a model is traced and translated."""

    name: str
    trace: Callable[[Sequence[Any], Symbols | None], Traced]  # of leaves
    translator: Callable[[Traced, Sequence[Any]], Translator]

    def graph(self, traced: Traced, leaves: Sequence[Any]) -> _core.Graph:
        """The translated trace."""
        return self.translator(traced, leaves).run().graph


def wanted(vdims: Any, declared: Sequence[Any]) -> bool:
    """Whether sizes vary."""
    return vdims_wanted(vdims) or bool(vary.free(declared))


def find(tracer: Tracer, declared: Sequence[Any], leaves: Sequence[Any], vdims: Any) -> tuple[vary.Kept, list[Any]]:
    """A symbolic trace, and the declarations with the dimensions that vary."""
    free = vary.all_free(declared, leaves) if vdims_wanted(vdims) else vary.free(declared)
    traces = vary.Traces(free)
    kept = traces.explore((), leaves, lambda symbols: tracer.trace(leaves, symbols), free)
    if kept is None:
        tracer.trace(leaves, None)  # says which layer does not take the example's sizes
        raise _unsupported(tracer.name, traces.why)
    return kept, vary.chosen(kept, declared, leaves, vdims) if vdims_wanted(vdims) else list(declared)


def translate(tracer: Tracer, kept: vary.Kept, declared: Sequence[Any], leaves: Sequence[Any]) -> Translation:
    """The translation for all sizes; where these can be computed for multiples of a number alone, for those."""
    settled = kept.settled
    try:
        return _translate(tracer, kept, declared, leaves, settled.multiples)
    except _core.UnsupportedError:
        if settled.whole == settled.multiples:
            raise
    return _translate(tracer, kept, declared, leaves, settled.whole)


def _translate(
    tracer: Tracer,
    kept: vary.Kept,
    declared: Sequence[Any],
    leaves: Sequence[Any],
    multiples: Mapping[sympy.Symbol, int],
) -> Translation:
    free = vary.free(declared)
    usual, least = (kept.varying(free, leaves, (n, multiples)) for n in (LEAST, 0))
    if usual is None or least is None:
        raise _unsupported(
            tracer.name, "no argument has the size of a dimension, or sizes that are equal do not all vary"
        )
    made = dict(usual.traced.vary)
    for symbol, row in least.traced.vary.items():
        if not isinstance(row, int):
            made = _lowered(tracer, kept, leaves, made, (symbol, row[2]))
    traced = dataclasses.replace(usual.traced, vary=made)
    try:
        translator = tracer.translator(traced, leaves)
        found = translator.run()
        _require(translator, kept)
    except (Varies, TypeError) as e:
        raise _unsupported(tracer.name, str(e)) from None
    if found.roundings:
        raise _unsupported(
            tracer.name, f"a real number is rounded to a size: {wording.shown(found.roundings[0][0], kept.settled)}"
        )
    return found


def _lowered(
    tracer: Tracer,
    kept: vary.Kept,
    leaves: Sequence[Any],
    made: dict[sympy.Symbol, Any],
    what: tuple[sympy.Symbol, int],
) -> dict[sympy.Symbol, Any]:
    """The limits of dimensions with the least size of one as low as its traces allow; that is at most as low as it may be."""
    symbol, low = what
    name, hint, first, high, multiple = made[symbol]
    for least in range(low, min(first, LEAST)):
        other = made | {symbol: (name, hint, least, high, multiple)}
        if _is_same(tracer, kept, leaves, other, [n for n in range(least, LEAST) if n % multiple == 0], symbol):
            return other
    if first > low and multiple == 1:
        log.info(f"{tracer.name}: '{name}' is at least {first}: smaller sizes need another graph")
    return made


def _is_same(
    tracer: Tracer,
    kept: vary.Kept,
    leaves: Sequence[Any],
    limits: dict[sympy.Symbol, Any],
    sizes: Sequence[int],
    symbol: sympy.Symbol,
) -> bool:
    """Whether traces of small sizes of a dimension give the graph that all sizes share. A trace has no layers that do nothing at
    its sizes (a slice of all rows), so different sizes of the other dimensions are tried."""

    def is_at(values: Mapping[sympy.Symbol, int]) -> bool:
        at = tuple(values[s] for s, row in limits.items() if not isinstance(row, int))
        given = list(_at(kept, leaves, values))
        return same(general.at(at), tracer.graph(tracer.trace(given, None), given))

    try:
        general = tracer.graph(dataclasses.replace(kept.traced, vary=limits), leaves)
        return all(any(is_at({**other, symbol: n}) for other in _others(kept, limits)) for n in sizes)
    except Exception as e:  # the model's own, too
        log.debug(f"{tracer.name}: small sizes: {e}")
        return False


def _others(kept: vary.Kept, limits: Mapping[sympy.Symbol, Any]) -> Iterator[Mapping[sympy.Symbol, int]]:
    """Sizes for which the trace is valid."""
    rows = {s: ("", row, row, row, 0) if isinstance(row, int) else row for s, row in limits.items()}
    for steps in (0, 1, -1):
        sizes = {s: hint + steps * multiple for s, (_, hint, _, _, multiple) in rows.items()}
        fit = all(low <= sizes[s] <= (high or sizes[s]) for s, (_, _, low, high, _) in rows.items())
        if fit and kept.settled.hold(*(sizes[s] for s in kept.settled.dims)):
            yield sizes


def _at(kept: vary.Kept, leaves: Sequence[Any], values: Mapping[sympy.Symbol, int]) -> Iterator[Any]:
    """The leaves with other sizes."""
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            yield torch.zeros([kept.size((i, d), values) for d in range(leaf.ndim)], dtype=leaf.dtype)
        else:
            yield leaf


# -- what a trace assumes


def _require(translator: Translator, kept: vary.Kept) -> None:
    """Enters the rules of a trace in the graph."""
    assert translator.sizes is not None
    for rule, cause in kept.settled.rules:
        if not wording.matters(rule, kept.settled):
            continue
        for needed in _at_least_zero(rule):
            size = translator.sizes.number(needed)
            if isinstance(size, int) and size >= 0:
                continue
            translator.graph.require(form(size), str(cause))


def _at_least_zero(rule: Any) -> list[Any]:
    """A rule as expressions that must not be negative."""
    if isinstance(rule, sympy.And):
        return [e for part in rule.args for e in _at_least_zero(part)]
    if isinstance(rule, sympy.Eq):
        return [rule.lhs - rule.rhs, rule.rhs - rule.lhs]
    if isinstance(rule, sympy.Ne):
        return [sympy.Max(rule.lhs - rule.rhs, rule.rhs - rule.lhs) - 1]
    if isinstance(rule, sympy.Ge | sympy.Gt):
        return [rule.lhs - rule.rhs - int(isinstance(rule, sympy.Gt))]
    if isinstance(rule, sympy.Le | sympy.Lt):
        return [rule.rhs - rule.lhs - int(isinstance(rule, sympy.Lt))]
    raise Varies(f"sizes must fulfil {rule}, which a library cannot check")


def _unsupported(name: str, why: str) -> _core.UnsupportedError:
    text = " ".join(why.split())
    return _core.UnsupportedError(
        f"sol.deploy: {name}: one graph for all sizes: {text}; give tensors, or batch_size, for a library with fixed sizes"
    )


__all__ = ["Tracer", "find", "translate", "wanted"]
