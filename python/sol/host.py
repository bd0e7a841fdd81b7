"""What a model's author tells SOL about parts of a forward: functions that stay in Python (`host_function`), and
Functions whose backward SOL need not look at (`differentiate`)."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from . import _core

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
_by: tuple[int, Callable[..., Any]] | None = None  # thread that traces a model, and what it calls instead


def host_function(function: F) -> F:
    """Marks a function that a model's forward calls, and that Python runs in each call of the optimized model.

    function    draws from NumPy's or Python's random, say; returns arrays, tensors or numbers, or lists, tuples and
                dicts of them, whose shapes and types follow from its arguments alone

    A trace would keep what such a function returned once. SOL calls a marked function in front of each call of the network
    instead, in the order of forward, so that the same seed gives the same numbers as in PyTorch, and passes its results to
    the network as inputs. Tensors among the arguments must follow from arguments and buffers of the model. Its results
    have no gradient.

        @sol.host_function
        def spans(batch, length, share):
            return numpy.random.rand(batch, length) < share

    It is the same function outside of an optimized model. docs/pytorch.md says what a forward may do with the results.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        by = instead()
        return function(*args, **kwargs) if by is None else by(function, args, kwargs)

    torch = sys.modules.get("torch")
    return cast(F, torch.compiler.disable(call, reason="a host function of SOL") if torch else call)


def differentiate(function: C, forward: Callable[..., Any] | None = None) -> C:
    """Says that the backward of a torch.autograd.Function computes the gradient of its forward, and returns the Function.

    function    a subclass of torch.autograd.Function, such as a reversible layer or a checkpoint, whose backward computes
                parts of forward again and runs autograd on them
    forward     computes the same results from the arguments of `apply`, if autograd cannot differentiate the Function's own
                forward, because that runs under torch.no_grad()

    SOL then differentiates the forward instead of tracing the backward, and decides itself what is saved for the gradients.
    It does not check the claim. SOL knows it of torch.utils.checkpoint and of transformers' Reformer.
    """
    if not (isinstance(function, type) and callable(getattr(function, "apply", None))):
        raise _core.InvalidError(f"sol.differentiate: expected a class of torch.autograd.Function, got {function!r}")
    function._sol_forward = (forward,)  # type: ignore[attr-defined]
    return function


def instead() -> Callable[..., Any] | None:
    """What this thread calls instead of a host function. None: the function itself."""
    return _by[1] if _by is not None and _by[0] == threading.get_ident() else None


class replaced:
    """While it is entered, this thread calls `by(function, args, kwargs)` instead of host functions; None: nothing."""

    def __init__(self, by: Callable[..., Any] | None) -> None:
        self.by = by and (threading.get_ident(), by)

    def __enter__(self) -> None:
        global _by
        self.before, _by = _by, self.by

    def __exit__(self, *error: object) -> None:
        global _by
        _by = self.before


__all__ = ["differentiate", "host_function", "instead", "replaced"]
