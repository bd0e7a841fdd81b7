"""`sol.transfer`: parameters of one model for another, by their names, in any framework."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np

from . import _core, frameworks
from .parsed import Call, Owned, dotted, example

_MOST = 8  # names in a message


def transfer(source: Any, target: Any) -> None:
    """Copies all parameters and states of a model to another one, by their names: `dense/kernel` of Keras is `dense.kernel` of PyTorch.

    source  a model of any framework, optimized or not, or a mapping of names to arrays (`state_dict()`, `net.parameters`)
    target  likewise; in a mapping, the values are replaced

    Arrays keep their order of elements: the two models are the same in two frameworks, as sol.optimize(.., framework=..) makes them.
    Raises sol.InvalidError with all names and shapes that do not fit, before it copies anything.
    """
    given, wanted = _named("source", source), _named("target", target)
    problems = [
        *_listed("only the source has", [o.name for n, o in given.items() if n not in wanted]),
        *_listed("only the target has", [o.name for n, o in wanted.items() if n not in given]),
        *_listed(
            "other shapes or types", [_misfit(o, given[n]) for n, o in wanted.items() if _differs(o, given.get(n))]
        ),
    ]
    if problems:
        raise _core.InvalidError(
            "sol.transfer: the parameters of source and target do not fit:\n  " + "\n  ".join(problems)
        )
    values = {o.name: np.array(given[n].array, o.array.dtype) for n, o in wanted.items()}
    if isinstance(target, MutableMapping):
        for name, value in values.items():
            target[name] = value
    else:
        frameworks.assign(target, values)


def _named(what: str, model: Any) -> dict[str, Owned]:
    """Parameters by the names that all frameworks have."""
    if isinstance(model, Mapping):
        owned = [Owned(str(n), example(v), False, n) for n, v in model.items()]
        if bad := [o.name for o in owned if not isinstance(o.array, np.ndarray)]:
            raise _core.InvalidError(f"sol.transfer: {what}: {bad[0]!r}: expected an array, got {type(model[bad[0]])}")
    else:
        owned = frameworks.owned(f"sol.transfer: {what}", model, Call())
    return dict(zip(dotted(owned), owned, strict=True))


def _differs(target: Owned, source: Owned | None) -> bool:
    return source is not None and (
        target.array.shape != source.array.shape or target.array.dtype.kind not in _kinds(source.array.dtype.kind)
    )


def _kinds(kind: str) -> str:
    return "iu" if kind in "iu" else kind


def _misfit(target: Owned, source: Owned) -> str:
    t, s = target.array, source.array
    return f"{target.name}: expected {t.dtype}{list(t.shape)}, got {s.dtype}{list(s.shape)}"


def _listed(what: str, names: list[str]) -> list[str]:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return [f"{what}: {', '.join(names[:_MOST])}{more}"] if names else []
