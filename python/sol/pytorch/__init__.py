"""SOL for PyTorch: `import sol.pytorch as sol` has the same functions as `import sol`."""

from __future__ import annotations

from typing import Any

import torch

import sol as _sol

# isort: split
from sol import *  # noqa: F403
from sol import _core

from . import dynamo
from .module import optimize_module

__all__ = [*_sol.__all__, "optimize_torch"]


class _Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.__dict__["function"] = function
        self.training = False
        if hasattr(torch.fx.proxy, "_register_stack_trace_anchor"):  # PyTorch keeps the lines of forward functions only
            torch.fx.proxy._register_stack_trace_anchor(function)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["function"](*args, **kwargs)


def optimize_torch(
    model: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    batch_size: int | None,
    copied: bool,
    framework: str | None,
) -> Any:
    """`sol.optimize` for what PyTorch makes."""
    if isinstance(model, torch.export.ExportedProgram):
        if not args and not kwargs:
            args, kwargs = model.example_inputs
        model = model.module()
    elif not isinstance(model, torch.nn.Module):
        if not callable(model):
            raise _core.InvalidError(f"sol.optimize: expected a module or a function, got {type(model)}")
        model = _Function(model)
    optimized = optimize_module(model, args, kwargs, batch_size, copied)
    if framework in (None, "pytorch", "torch"):
        return optimized
    if framework == "numpy":
        from sol.numpy import from_torch

        return from_torch(optimized)
    raise _core.UnsupportedError(f"framework {framework!r}: not supported; there are 'pytorch' and 'numpy'")


dynamo.register()
