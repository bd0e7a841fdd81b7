"""Handles optimizers that change parameters without increasing their version: fused optimizers of PyTorch, and those of
other libraries. A program compares versions and a sample of the values, which misses a change of a few rows. So it
is notified after each step."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

if TYPE_CHECKING:
    from .program import Program

_lock = threading.Lock()
_programs: weakref.WeakSet[Program] = weakref.WeakSet()


def watch(program: Program) -> None:
    """Notifies this program from now on."""
    with _lock:
        _programs.add(program)


def _stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    counts = type(optimizer).__module__.startswith("torch.optim.")
    groups = [g for g in optimizer.param_groups if not counts or g.get("fused")]
    changed = {id(p) for g in groups for p in g["params"] if p.grad is not None}
    if not changed:
        return
    with _lock:
        programs = list(_programs)
    for program in programs:
        program.refresh(changed)


register_optimizer_step_post_hook(_stepped)
