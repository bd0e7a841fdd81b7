"""torchvision's functions that decide by a number of boxes, for a number that data determines. `batched_nms` decides how it keeps classes
apart: boxes are moved, each class to a place of its own, or, from 1,001 boxes on, each class is looked at by itself. A trace without
the number takes the first way for any number. `_topk_min` is the smaller of two numbers."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols


def _moved(boxes: torch.Tensor, scores: torch.Tensor, idxs: torch.Tensor, iou_threshold: float) -> Any:
    """As torchvision moves them, for no boxes, too."""
    most = torch.cat([boxes.flatten(), boxes.new_full((1,), float("-inf"))]).max()
    offsets = idxs.to(boxes) * (most + torch.tensor(1).to(boxes))
    return torch.ops.torchvision.nms(boxes + offsets[:, None], scores, iou_threshold)


def _smaller(input: torch.Tensor, orig_kval: int, axis: int) -> Any:
    return torch.sym_min(orig_kval, input.size(axis))


_INSTEAD: dict[tuple[str, str], Callable[..., Any]] = {
    ("torchvision.ops.boxes", "batched_nms"): _moved,
    ("torchvision.models.detection._utils", "_topk_min"): _smaller,
}


@contextlib.contextmanager
def any_number() -> Iterator[None]:
    """Replaces the code of the functions, because models may have imported them by name."""
    with contextlib.ExitStack() as stack:
        for (module, name), instead in _INSTEAD.items():
            function = getattr(sys.modules.get(module), name, None)
            if isinstance(function, types.FunctionType):
                stack.enter_context(_replaced(function, instead))
        yield


@contextlib.contextmanager
def _replaced(function: types.FunctionType, instead: Callable[..., Any]) -> Iterator[None]:
    """Calls `instead` where a tensor's size is unknown."""
    before, names = function.__code__, function.__globals__
    plain = types.FunctionType(before, names)

    def either(first: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        found = isinstance(first, torch.Tensor) and has_free_unbacked_symbols(first)
        return (instead if found else plain)(first, *args, **kwargs)

    name = function.__name__
    function.__code__ = _code(name)
    names[f"_sol_{name}"] = either
    try:
        yield
    finally:
        function.__code__ = before
        del names[f"_sol_{name}"]


def _code(name: str) -> types.CodeType:
    """The code of a function that calls another one, which is a global variable of its module."""
    made: dict[str, Any] = {}
    exec(f"def {name}(*args, **kwargs):\n    return _sol_{name}(*args, **kwargs)", made)
    code: types.CodeType = made[name].__code__
    return code


__all__ = ["any_number"]
