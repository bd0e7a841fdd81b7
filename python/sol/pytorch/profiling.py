"""`sol.profile` for PyTorch modules, and the names of a network's steps in PyTorch's profiler."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sol import _core, profiles
from sol.parsed import Call

Measure = Callable[[str, _core.Net, Callable[[], Any]], "profiles.Profile"]


def profile_module(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], measure: Measure) -> profiles.Profile:
    """Profiles a module or a function, optimized or not."""
    from . import frontend

    state = getattr(model, "_sol", None)
    if state is None:
        model = frontend.optimize(model, Call(args, kwargs))
        state = model._sol
    training = any(m.training for m in model.modules())
    kept = {id(b): (b, b.clone()) for b in model.buffers()} if training else {}

    def call() -> None:
        if not training:
            with torch.no_grad():
                model(*args, **kwargs)
            return
        with torch.enable_grad():
            leaves = pytree.tree_leaves(model(*args, **kwargs))
            outputs = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
            wanted = [p for p in model.parameters() if p.requires_grad]
            wanted += [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
            if outputs and wanted:
                torch.autograd.grad(outputs, wanted, [torch.ones_like(o) for o in outputs], allow_unused=True)

    try:
        call()
        program = state.latest()
        return measure(program.name, program.net, call)
    finally:
        with torch.no_grad():
            for buffer, before in kept.values():
                buffer.copy_(before)


class _Steps(threading.local):
    """The event of the current step in PyTorch's profiler."""

    event: Any = None

    def __call__(self, label: str | None) -> None:
        if self.event is not None:
            self.event.__exit__(None, None, None)
        self.event = None if label is None else torch._C._profiler._RecordFunctionFast(f"sol: {label}")
        if self.event is not None:
            self.event.__enter__()


_steps = _Steps()
_told = False  # whether the core reports steps


def watch() -> None:
    """Called when a network is used, to notice that PyTorch's profiler was started or stopped."""
    global _told
    if _told != torch.autograd.profiler._is_profiler_enabled:
        _told = not _told
        _core.set_step(_steps if _told else None)
