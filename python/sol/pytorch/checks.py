"""Checks around the translation of an operator: that SOL can represent its operands, and that its result is what PyTorch says."""

from __future__ import annotations

from typing import Any

import torch

from sol import _core, forms

from .builder import REAL, Builder, Complex, Rejected, Value, sol_name
from .sizes import Shaped


def representable(val: Any) -> None:
    """Rejects values that SOL cannot represent."""
    for v in val if isinstance(val, list | tuple) else [val]:
        if isinstance(v, Shaped):
            sol_name(REAL.get(v.dtype, v.dtype))
        if not isinstance(v, torch.Tensor):
            continue
        if v.layout != torch.strided:
            raise Rejected(f"layout {str(v.layout).removeprefix('torch.')}")
        if v.is_quantized:
            raise Rejected("quantised tensors")
        if v.device.type != "cpu":
            raise Rejected(f"device {v.device}")
        if any(not isinstance(s, int) for s in v.shape):
            raise Rejected("the shape depends on data")
        sol_name(REAL.get(v.dtype, v.dtype))


def same_types(node: torch.fx.Node) -> None:
    """Rejects operands of several types: PyTorch's shape functions do not check them, but its operators do."""
    operands = [a.meta.get("val") for a in node.args if isinstance(a, torch.fx.Node)]
    types = sorted(
        {sol_name(t.dtype) for t in operands if isinstance(t, torch.Tensor | Shaped) and t.dtype not in REAL}
    )
    if len(types) > 1:
        raise Rejected(f"operands of several types: {', '.join(types)}")


def sized_as_traced(b: Builder, made: Any, val: Any) -> Any:
    """A result with the sizes of the trace. They may follow from rules that hold for all calls of the program, but that SOL's
    forms do not know: h // 4 is 1, min(n, 17) is n. Each call is compared with them."""
    if isinstance(made, list | tuple) and isinstance(val, list | tuple) and len(made) == len(val):
        return type(made)(sized_as_traced(b, m, v) for m, v in zip(made, val, strict=True))
    if not isinstance(made, Value) or not isinstance(val, torch.Tensor | Shaped) or made.ndim != val.ndim:
        return made
    shape = tuple(val.shape)
    if made.shape == shape or list(map(forms.hint, made.shape)) != list(map(forms.hint, shape)):
        return made
    return b.layer("Exactly", made, shape=list(shape))


def as_promised(name: str, made: Any, val: Any) -> None:
    """A safety net for the table: the result must have the types and shapes that PyTorch gives."""
    if isinstance(val, torch.Tensor | Shaped):
        if not isinstance(made, Value | Complex) or made.shape != tuple(val.shape) or made.dtype != val.dtype:
            expected = f"{str(val.dtype).removeprefix('torch.')}{list(val.shape)}"
            raise _core.InternalError(f"{name}: expected {expected}, got {made!r}")
    elif isinstance(val, list | tuple):
        for m, v in zip(made, val, strict=False):
            if m is not None:
                as_promised(name, m, v)
