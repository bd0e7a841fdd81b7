"""Buffers that forward assigns, such as `self.mean = 0.9 * self.mean + 0.1 * x.mean(0)`: a trace writes their new values into the memory of
the old ones, at the end of a call, as an operator in place would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Kept = list[tuple[dict[str, Any], dict[str, Any]]]  # of each module: its dictionary, and what was in it


def kept(module: torch.nn.Module) -> Kept:
    """What `written_back` compares with later."""
    return [(m._buffers, dict(m._buffers)) for m in module.modules()]


def written_back(before: Kept, results: list[Any], is_made: Callable[[torch.Tensor], bool]) -> list[Any]:
    """Writes back what the trace made (`is_made`), and returns the results: those in the buffers' memory are copied first, as new values
    there are. A buffer of another shape or type, or with two names, stays as it is."""
    rows: list[Any] = [(group, key, old, group.get(key)) for group, rest in before for key, old in rest.items()]
    olds = [id(old) for _, _, old, _ in rows]
    rows = [
        (group, key, old, new)
        for group, key, old, new in rows
        if new is not old and _fits(old, new) and olds.count(id(old)) == 1 and is_made(new)
    ]
    memory = {old.untyped_storage()._cdata for _, _, old, _ in rows}

    def apart(value: Any) -> Any:
        inside = isinstance(value, torch.Tensor) and value.untyped_storage()._cdata in memory
        return value.clone() if inside else value

    if rows:
        results = list(map(apart, results))
    with torch.no_grad():
        for old, new in [(old, apart(new)) for _, _, old, new in rows]:
            old.copy_(new)
    for group, key, old, _ in rows:
        group[key] = old
    return results


def _fits(old: Any, new: Any) -> bool:
    """Whether both are plain tensors of the same shape and type."""
    tensors = isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor)
    return tensors and old.layout == new.layout == torch.strided and (old.shape, old.dtype) == (new.shape, new.dtype)


__all__ = ["Kept", "kept", "written_back"]
