"""torchvision's `batched_nms` for a number of boxes that data determines. It decides by that number how it keeps classes apart: boxes
are moved, each class to a place of its own, or, from 1,001 boxes on, each class is looked at by itself. A trace without the number
takes the first way for any number."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols


def _moved(boxes: torch.Tensor, scores: torch.Tensor, idxs: torch.Tensor, iou_threshold: float) -> Any:
    """As torchvision moves them, for no boxes, too."""
    most = torch.cat([boxes.flatten(), boxes.new_full((1,), float("-inf"))]).max()
    offsets = idxs.to(boxes) * (most + torch.tensor(1).to(boxes))
    return torch.ops.torchvision.nms(boxes + offsets[:, None], scores, iou_threshold)


@contextlib.contextmanager
def any_number() -> Iterator[None]:
    """Replaces the code of the function, because models may have imported it by name."""
    function = getattr(sys.modules.get("torchvision.ops.boxes"), "batched_nms", None)
    if not isinstance(function, types.FunctionType):
        yield
        return
    before, names = function.__code__, function.__globals__
    plain = types.FunctionType(before, names)

    def either(boxes: torch.Tensor, scores: torch.Tensor, idxs: torch.Tensor, iou_threshold: float) -> Any:
        found = isinstance(boxes, torch.Tensor) and has_free_unbacked_symbols(boxes)
        return (_moved if found else plain)(boxes, scores, idxs, iou_threshold)

    def batched_nms(boxes: Any, scores: Any, idxs: Any, iou_threshold: Any) -> Any:
        return _sol_either(boxes, scores, idxs, iou_threshold)  # type: ignore[name-defined]  # noqa: F821

    names["_sol_either"], function.__code__ = either, batched_nms.__code__
    try:
        yield
    finally:
        function.__code__ = before
        del names["_sol_either"]


__all__ = ["any_number"]
