"""Where a model turns gradients off, in a trace without gradients.

A program for inference is traced under no_grad(), so PyTorch cannot tell the model's own no_grad() from the trace's. But results of
calls in eval mode require gradients as PyTorch's do (history.py). So `watched` looks at PyTorch's context managers.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .problems import LIBRARY


class _Here(threading.local):
    enabled: bool | None = None  # None: this thread does not watch
    asked = False  # whether the model has called torch.is_grad_enabled()
    held = False


_here = _Here()


def enabled() -> bool:
    """Whether the operators that the model calls now have gradients, in a call with gradients."""
    return torch._C.is_grad_enabled() if _here.enabled is None else _here.enabled


def turn(on: bool) -> None:
    """The model turns gradients on or off."""
    if _here.enabled is not None and not _here.held:
        _here.enabled = on


@contextlib.contextmanager
def held() -> Iterator[None]:
    """What turns gradients on or off in here is not the model's: the forward of an autograd.Function never has gradients of its own."""
    before, _here.held = _here.held, True
    try:
        yield
    finally:
        _here.held = before


def _begin(original: Callable[..., Any]) -> Callable[..., Any]:
    def begin(this: Any, *args: Any, **kwargs: Any) -> Any:
        before = _here.enabled
        made = original(this, *args, **kwargs)
        if before is not None:
            this._sol_before = before
            on = torch._C.is_grad_enabled()
            # `set_grad_enabled(torch.is_grad_enabled() and ..)` may be the trace's
            if on or not _here.asked or not isinstance(this, torch.set_grad_enabled):
                turn(on)
        return made

    return begin


def _end(original: Callable[..., Any]) -> Callable[..., Any]:
    def end(this: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(this, *args, **kwargs)
        turn(getattr(this, "_sol_before", True))
        return made

    return end


def _asks(original: Callable[[], bool]) -> Callable[[], bool]:
    def asks() -> bool:
        if _here.enabled is not None and not sys._getframe(1).f_code.co_filename.startswith((*LIBRARY, "<")):
            _here.asked = True
        return original()

    return asks


_ROWS: list[tuple[Any, str, Callable[..., Any]]] = [
    (torch.no_grad, "__enter__", _begin),
    (torch.no_grad, "__exit__", _end),
    (torch.enable_grad, "__enter__", _begin),
    (torch.enable_grad, "__exit__", _end),
    (torch.inference_mode, "__enter__", _begin),
    (torch.inference_mode, "__exit__", _end),
    (torch.set_grad_enabled, "__init__", _begin),
    (torch.set_grad_enabled, "__exit__", _end),
    (torch.set_grad_enabled, "__call__", _end),
    (torch, "is_grad_enabled", _asks),
]


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Looks at what this thread turns on and off."""
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in _ROWS]
    for owner, name, around in _ROWS:
        setattr(owner, name, around(getattr(owner, name)))
    before = _here.enabled, _here.asked, _here.held
    _here.enabled, _here.asked, _here.held = True, False, False
    try:
        yield
    finally:
        _here.enabled, _here.asked, _here.held = before
        for owner, name, original in kept:
            setattr(owner, name, original)


__all__ = ["enabled", "held", "turn", "watched"]
