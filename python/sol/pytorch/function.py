"""Traces a model's own backward (torch.autograd.Function).

The trace records forward without gradients. It then records backward, with a tensor of zeros as a marker for the incoming
gradient, which is not known yet. `graft` connects the two: its value is the result of forward, and its gradient is the
recorded backward with the incoming gradient in place of the marker (layer Graft).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from sol import _core

_plain_apply = torch.autograd.Function.__dict__["apply"]


class Context:
    """The `ctx` of a Function."""

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self.saved_tensors: tuple[Any, ...] = ()
        self._sol_fixed: tuple[Any, ...] = ()
        self._sol_zeros = True

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        pass

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self._sol_fixed = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self._sol_zeros = value

    def mark_dirty(self, *tensors: Any) -> None:
        raise _core.UnsupportedError("it writes its arguments in place (mark_dirty)")


def graft(value: Any, marker: Any, pairs: Any) -> Any:
    """The target of a node. Its result is `value`; for each (x, dx) of `pairs`, dx is the gradient with respect to x,
    computed from the gradient that `marker` stands for."""
    raise NotImplementedError


class _Through(torch.autograd.Function):
    """Gives the result of a Function a history, because a model might look at it."""

    @staticmethod
    def forward(ctx: Any, made: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        return made.view_as(made)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError


@contextlib.contextmanager
def _no_autograd() -> Iterator[None]:
    """Rejects a backward that runs autograd itself: its gradients would not be in the trace."""
    rows = [(torch.autograd, "backward"), (torch.autograd, "grad"), (torch.Tensor, "backward")]
    kept = [getattr(owner, name) for owner, name in rows]
    thread = threading.get_ident()

    def rejecting(original: Any) -> Any:
        def reject(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return original(*args, **kwargs)
            raise _core.UnsupportedError("its backward runs autograd")

        return reject

    for (owner, name), original in zip(rows, kept, strict=True):
        setattr(owner, name, rejecting(original))
    try:
        yield
    finally:
        for (owner, name), value in zip(rows, kept, strict=True):
            setattr(owner, name, value)


def apply(
    function: Any, args: tuple[Any, ...], mark: Callable[[Any], None], add: Callable[[Any, Any, Any], None]
) -> Any:
    """The result of `function.apply(*args)` while a model is traced. `add(value, marker, pairs)` adds the node of a
    graft for a tensor, and `mark(marker)` tells that a tensor stands for a gradient."""
    wanted = [isinstance(a, torch.Tensor) and a.requires_grad for a in args]
    ctx = Context(tuple(wanted))
    with torch.no_grad():
        if function.setup_context is torch.autograd.function._SingleLevelFunction.setup_context:
            made = function.forward(ctx, *args)
        else:
            made = function.forward(*args)
            function.setup_context(ctx, args, made)
    if not torch.is_grad_enabled() or not any(wanted):
        return made
    parts = list(made) if isinstance(made, tuple | list) else [made]
    for i, part in enumerate(parts):
        fixed = any(part is f for f in ctx._sol_fixed)
        if isinstance(part, torch.Tensor) and part.is_floating_point() and not fixed:
            if any(part is a for a in args):
                raise _core.UnsupportedError("it returns an argument as it is")
            parts[i] = _grafted(function, ctx, args, parts, i, mark, add)
    return type(made)(parts) if isinstance(made, tuple | list) else parts[0]


def _grafted(
    function: Any, ctx: Context, args: tuple[Any, ...], parts: list[Any], i: int, mark: Any, add: Any
) -> torch.Tensor:
    """One of the results. Its backward is that of the Function with no gradients for the other results."""
    with torch.no_grad(), _no_autograd():
        marker = torch.zeros_like(parts[i])
        mark(marker)
        zeros = [torch.zeros_like(p) if ctx._sol_zeros and isinstance(p, torch.Tensor) else None for p in parts]
        gradients = function.backward(ctx, *(marker if k == i else z for k, z in enumerate(zeros)))
    gradients = gradients if isinstance(gradients, tuple | list) else (gradients,)
    pairs = []
    for a, needed, d in zip(args, ctx.needs_input_grad, gradients, strict=False):
        if not needed or d is None:
            continue
        if not isinstance(d, FakeTensor) or d.shape != a.shape or d.dtype != a.dtype:
            raise _core.UnsupportedError("its backward gives something else than gradients of the arguments' shapes")
        pairs.append((a, d))
    wanted = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    made: torch.Tensor = _plain_apply.__get__(None, _Through)(parts[i], *wanted)
    add((parts[i], made), marker, pairs)
    return made


__all__ = ["apply", "graft"]
