"""Runs of `sol.profile` for PyTorch modules, and the names of a network's steps in PyTorch's profiler."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sol import _core
from sol.parsed import Call, is_keras


@contextlib.contextmanager
def profiled(model: Any, call: Call) -> Iterator[Callable[[], Any]]:
    """See frameworks.Frontend."""
    training = bool(call.kwargs.get("training")) if is_keras(model) else any(m.training for m in model.modules())
    kept = {id(b): (b, b.clone()) for b in model.buffers()} if training else {}

    def run() -> None:
        if not training:
            with torch.no_grad():
                model(*call.args, **call.kwargs)
            return
        with torch.enable_grad():
            leaves = pytree.tree_leaves(model(*call.args, **call.kwargs))
            outputs = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
            inputs = pytree.tree_leaves((call.args, call.kwargs))
            wanted = [p for p in model.parameters() if p.requires_grad]
            wanted += [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
            if outputs and wanted:
                torch.autograd.grad(outputs, wanted, [torch.ones_like(o) for o in outputs], allow_unused=True)

    try:
        yield run
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
