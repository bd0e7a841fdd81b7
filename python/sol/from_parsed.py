"""`sol.deploy` and `sol.dims` for every framework whose models can be parsed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _core, report
from .inputs import Dim, Exact, type_name
from .inputs import Input as Described
from .parsed import Call, Mode, Owned, Parsed, flatten, with_leaves

Parse = Callable[[Call, Mode], Parsed]


class _Library:
    """A model that is deployed."""

    def __init__(self, parse: Parse, owned: Sequence[Owned]) -> None:
        same: dict[Any, Any] = {}  # equal parameters have equal addresses
        self.arrays = {o.name: same.setdefault(o.key, np.ascontiguousarray(o.array)) for o in owned}
        self.trained = {o.name for o in owned if o.trained}
        self._parse, self._kept = parse, [*self.arrays.values()]

    def graph(self, call: Call, batch: int | None, mode: Mode) -> tuple[Parsed, tuple[Any, ...]]:
        """The model for a call, and the arguments of `_core.deploy`."""
        parsed = self._parse(call, mode)
        _check_open(parsed, call)
        values = [
            self.arrays[p.name] if p.constant is None else np.ascontiguousarray(p.constant) for p in parsed.params
        ]
        self._kept += values
        learns = bytes(p.constant is None and p.name in self.trained for p in parsed.params)
        written = [p for k, (p, output) in enumerate(parsed.writes) if output == k]
        if parsed.writes and (not mode.training or len(written) < len(parsed.writes)):
            which = ", ".join(parsed.params[p].name for p, _ in parsed.writes)
            raise _core.UnsupportedError(f"sol.deploy: {parsed.name}: writes {which}, which a deployed network cannot")
        seeds = [k for k, i in enumerate(parsed.inputs) if i.leaf < 0]
        if seeds not in ([], [len(parsed.inputs) - 1]):
            raise _core.InternalError(f"{parsed.name}: the seed is not the last input")
        addresses = tuple(a.ctypes.data for a in values)
        row = parsed.graph, addresses, seeds[0] if seeds else -1, batch or 0, learns, tuple(written)
        return parsed, row


def deploy(
    what: tuple[Parse, Sequence[Owned]], target: str, keys: dict[str, str], call: Call, sizes: Sequence[int | None]
) -> None:
    """Deploys a model. `what`: how to parse it, and its parameters."""
    library = _Library(*what)
    found = [library.graph(_sized(call, n), n, Mode()) for n in sizes]
    training = None
    if keys.get("training", "0") == "1":
        training = library.graph(_sized(call, sizes[0]), sizes[0], Mode(True, True))[1]
    first = found[0][0]
    names = tuple("seed" if i.leaf < 0 else i.name for i in first.inputs), tuple(o.name for o in first.outputs)
    _core.deploy(tuple(row for _, row in found), target, keys, *names, training)


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, Described) or hasattr(leaf, "shape")


def _sized(call: Call, batch: int | None) -> Call:
    """The call for a batch size: in place of sizes that are open in front, or of all first sizes if none is. Without one, open sizes
    vary."""
    leaves = flatten((call.args, call.kwargs))
    open_ = [i for i, x in enumerate(leaves) if isinstance(x, Described) and x.shape and x.varies(0)]
    vdims = call.vdims
    if batch is None:
        varies = any(isinstance(x, Described) and any(map(x.varies, range(len(x.shape)))) for x in leaves)
        vdims = False if vdims is None and varies else vdims
    else:
        which = open_ or [i for i, x in enumerate(leaves) if _is_tensor(x) and len(x.shape)]
        for i in which:
            leaves[i] = Exact((batch, *leaves[i].shape[1:]), dtype=type_name(leaves[i].dtype))
        vdims = None
    made = with_leaves(call, leaves)
    return Call(made.args, made.kwargs, batch, made.copy, vdims, made.framework)


def _check_open(parsed: Parsed, call: Call) -> None:
    leaves = flatten((call.args, call.kwargs))
    for i in parsed.inputs:
        leaf = leaves[i.leaf] if i.leaf >= 0 else None
        for d, n in enumerate(i.tensor.shape if isinstance(leaf, Described) and call.vdims is not None else ()):
            if leaf is not None and leaf.varies(d) and not _core.size_varies(n):
                raise _core.UnsupportedError(
                    f"sol.deploy: {parsed.name}: dimension {d} of {i.name} is fixed at {n}; give tensors, or batch_size, for a library "
                    "with fixed sizes"
                )


# -- sol.dims


def dims(parse: Parse, call: Call) -> report.Report:
    """The dimensions of arguments that may vary, found by parsing with all of them open, or else one after the other."""
    leaves = flatten((call.args, call.kwargs))
    places = [(i, d) for i, x in enumerate(leaves) if _is_tensor(x) for d in range(len(x.shape))]
    fixed: dict[tuple[int, int], str] = {}
    found = _attempt(parse, call, places, {})
    if found is None:
        kept: list[tuple[int, int]] = []
        batch = [p for p in places if p[1] == 0]  # these are one size, if any
        if _attempt(parse, call, batch, {}) is not None:
            kept = batch
        for place in (p for p in places if p not in kept):
            if _attempt(parse, call, [*kept, place], fixed) is not None:
                kept.append(place)
                fixed.pop(place, None)
        found = _attempt(parse, call, kept, {})
        assert found is not None
    inputs = [(i.name, i.tensor.shape) for i in found.inputs if i.leaf >= 0]
    outputs = found.graph.outputs
    results = [outputs[o.number][1].shape for o in found.outputs]
    where = {i.name: i.leaf for i in found.inputs}
    return report.of(inputs, results, lambda name, d: fixed.get((where[name], d)) or "the model needs this size")


def _attempt(
    parse: Parse, call: Call, places: Sequence[tuple[int, int]], why: dict[tuple[int, int], str]
) -> Parsed | None:
    """The model with these dimensions open. None: that is not possible, for the reason that `why` has for the last of them."""
    leaves = flatten((call.args, call.kwargs))
    for i in {i for i, _ in places}:
        shape: list[Any] = list(leaves[i].sized(1) if isinstance(leaves[i], Described) else leaves[i].shape)
        for d in (d for at, d in places if at == i):
            shape[d] = Dim(f"in_{i}.{d}", example=max(shape[d], 1))
        leaves[i] = Exact(tuple(shape), dtype=type_name(leaves[i].dtype))
    made = with_leaves(call, leaves)
    try:
        return parse(Call(made.args, made.kwargs, vdims=False), Mode())
    except _core.Error as e:
        if not places:
            raise
        why[places[-1]] = " ".join(str(e).split())
        return None


__all__ = ["deploy", "dims"]
