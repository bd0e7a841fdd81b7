"""SOL for PyTorch: `import sol.pytorch as sol` has the same functions as `import sol`."""

from __future__ import annotations

import inspect
from typing import Any

from sol.supported import check

check("torch", "torch")

import torch
from torch.utils import _pytree as pytree

import sol as _sol

# isort: split
from sol import *  # noqa: F403
from sol import _core
from sol.inputs import Dim, Exact
from sol.parsed import is_keras

from . import dynamo
from .outside import register

__all__ = [*_sol.__all__, "as_module", "register"]


class _Function(torch.nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.__dict__["function"] = function
        self.training = False
        if hasattr(
            torch.fx.proxy, "_register_stack_trace_anchor"
        ):  # PyTorch keeps the lines of functions called `forward` only
            torch.fx.proxy._register_stack_trace_anchor(function)

    @property
    def __signature__(self) -> inspect.Signature:
        """Names of arguments are those of the function, if it has any."""
        try:
            return inspect.signature(self.__dict__["function"])
        except ValueError:  # one of Python's or PyTorch's own
            return inspect.signature(self.forward)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["function"](*args, **kwargs)


def _exported_inputs(program: torch.export.ExportedProgram, batch_size: int | None) -> Any:
    """The arguments that a program was exported for, with `sol.dim` for the sizes that torch.export.Dim lets vary. Those that are
    formulas (`2 * steps`) have no limits here: the program's guards relate them to the others."""
    leaves, spec = pytree.tree_flatten(program.example_inputs)
    names = program.graph_signature.user_inputs
    nodes = {n.name: n.meta.get("val") for n in program.graph.find_nodes(op="placeholder")}
    dims: dict[Any, Dim] = {}

    def size(name: str, d: int, n: Any, given: int) -> Any:
        if not isinstance(n, torch.SymInt):
            return given
        expr = n.node.expr
        if expr not in dims:
            limits = program.range_constraints.get(expr)
            low = int(limits.lower) if limits else 0
            high = int(limits.upper) if limits and limits.upper.is_Integer else None
            example = batch_size if batch_size is not None and d == 0 else given
            dims[expr] = Dim(f"{name}.{d}", low, high, example=example)
        return dims[expr]

    for i, (leaf, name) in enumerate(zip(leaves, names, strict=True)):
        val = nodes.get(name) if isinstance(name, str) else None
        if isinstance(val, torch.Tensor) and any(isinstance(n, torch.SymInt) for n in val.shape):
            sizes = (size(name, d, n, leaf.shape[d]) for d, n in enumerate(val.shape))
            leaves[i] = Exact(tuple(sizes), leaf.requires_grad, leaf.dtype)
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return args, kwargs, batch_size


def as_module(
    what: str, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], batch_size: int | None
) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any], int | None]:
    """Wraps a model of PyTorch as a module, and returns it with its arguments."""
    if isinstance(model, torch.export.ExportedProgram):
        if not args and not kwargs:
            args, kwargs, batch_size = _exported_inputs(model, batch_size)
        return model.module(), args, kwargs, batch_size
    if is_keras(model):
        from .keras_model import KerasModule

        return KerasModule(model, False), args, kwargs, batch_size
    if isinstance(model, torch.nn.Module):
        return model, args, kwargs, batch_size
    if not callable(model):
        raise _core.InvalidError(f"{what}: expected a module or a function, got {type(model)}")
    return _Function(model), args, kwargs, batch_size


dynamo.register()
