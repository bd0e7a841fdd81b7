"""Traces below autograd, for models that ask for gradients in forward (torch.autograd.grad, torch.func).

A trace above autograd sees `linear`, but not the transposed weight that autograd keeps of it, so it does not know the operands of
the backward. Below autograd and torch.func, operators have been taken apart, and all tensors are results of recorded operators:
what the model's gradient calls is recorded like anything else, and SOL differentiates it again if the model is trained.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import snapshot_fake
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
Record = Callable[..., Any]


class Above:
    """The model's operators, which run while their parts are recorded below autograd."""

    def __init__(self) -> None:
        self.running: list[Any] = []
        self.task = torch._C._current_graph_task_id()  # of a backward that asked for this trace

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of an operator of the model."""
        self.running.append(func)
        try:
            return func(*args, **kwargs)
        finally:
            self.running.pop()

    def keeps(self, func: Any) -> bool:
        """Whether a detach is autograd's, which keeps a tensor for backward or takes it out again, and not the model's."""
        inside = self.running and self.running[-1] is not aten.detach.default
        return func is aten.detach.default and bool(inside or torch._C._current_graph_task_id() != self.task)


class Below(TorchDispatchMode):
    """Passes operators to `record`."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _UNSEEN:
            return func(*args, **(kwargs or {}))
        return self.record(func, types, args, kwargs)


# The model's own lifts are recorded above; SOL's layers of linear algebra check their data themselves
_UNSEEN = frozenset(
    (
        torch.ops.prim.device.default,
        aten.lift_fresh.default,
        aten.lift_fresh_copy.default,
        aten._linalg_check_errors.default,
    )
)


def unwrapped(t: torch.Tensor) -> torch.Tensor:
    """The tensor in the wrappers of torch.func's transformations, which is what operators below them get."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(t):
        t = functorch.get_unwrapped(t)
    return t


def snapshot(t: torch.Tensor) -> Any:
    """Another tensor without data in the same memory, outside of torch.func's transformations."""
    with torch._C._DisableFuncTorch():
        return snapshot_fake(t)


def _zeros(record: Record, *args: Any) -> tuple[Any, Any]:
    """Of a tangent of forward mode: PyTorch's operator makes a tensor that never has data."""
    return aten.zeros.default, args


def _batch_norm(record: Record, dy: Any, x: Any, weight: Any, mean: Any, var: Any, *rest: Any) -> tuple[Any, Any]:
    """The statistics that forward keeps have no gradient for its callers, but in the gradient of a gradient they depend on x."""
    kept_mean, kept_scale, train, eps, mask = rest
    if train:
        axes = [d for d in range(x.ndim) if d != 1]
        kept_mean = record(aten.mean.dim, (), (x, axes))
        variance = record(aten.var.correction, (), (x, axes), {"correction": 0})
        kept_scale = record(aten.rsqrt.default, (), (record(aten.add.Scalar, (), (variance, eps)),))
    return aten.native_batch_norm_backward.default, (dy, x, weight, mean, var, kept_mean, kept_scale, train, eps, mask)


_OTHERS: dict[Any, Callable[..., tuple[Any, Any]]] = {
    aten._efficientzerotensor.default: _zeros,
    aten.native_batch_norm_backward.default: _batch_norm,
}


def plain(record: Record, func: Any, args: Any) -> tuple[Any, Any]:
    """An operator and arguments that compute the same, with gradients of their own. `record` calls an operator."""
    other = _OTHERS.get(func)
    return other(record, *args) if other else (func, args)
