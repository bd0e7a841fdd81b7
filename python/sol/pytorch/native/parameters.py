"""Parameters of a model that moves to a device or from it stay the objects that they are, as between PyTorch's own devices: those
that layers share stay shared, and an optimizer keeps its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_apply = nn.Module._apply
_inside = threading.local()


def _moved(model: nn.Module, fn: Callable[..., Any], recurse: bool = True) -> nn.Module:
    """In place of nn.Module._apply, which gives a model new parameters wherever one device is not PyTorch's own."""
    if getattr(_inside, "a_call", False):
        return _apply(model, fn, recurse)
    modules = list(model.modules()) if recurse else [model]
    before = [(m, key, p) for m in modules for key, p in m._parameters.items() if p is not None]
    _inside.a_call = True
    try:
        _apply(model, fn, recurse)
    finally:
        _inside.a_call = False
    if not torch.__future__.get_overwrite_module_params_on_conversion():
        stayed: set[int] = set()
        for m, key, old in before:
            new = m._parameters[key]
            if new is None or new is old:
                continue
            if id(old) not in stayed:
                if "sol" not in (old.device.type, new.device.type):
                    continue
                grad, old.grad = new.grad, None
                torch.ops.sol_native.become.default(old, new.detach())
                old.grad = grad
                stayed.add(id(old))
            m._parameters[key] = old
    return model


def begin() -> None:
    """Makes all models move so."""
    nn.Module._apply = _moved  # type: ignore[method-assign]
