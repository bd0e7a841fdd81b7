"""The optimized model: a torch.nn.Module that differs from the original only in its class, which has SOL's forward.

Both share one `__dict__`, so a replaced layer, an attribute, a mode or a hook that is set on one is set on the other.
"""

from __future__ import annotations

import copy
import functools
import inspect
import types
from typing import Any

import torch

from .skeleton import model_class


def eager(root: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Calls the original forward, with the optimized model's own modules."""
    own = root.__dict__.get("forward")
    return own(*args, **kwargs) if own else model_class(root).forward(root, *args, **kwargs)


class _Forward:
    """The attribute `forward` of an optimized model. It takes precedence over a `forward` in the shared `__dict__`,
    which belongs to the original. If it is set later (to a wrapper of the optimized model's forward), the optimized
    model alone uses that value."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __get__(self, model: Any, cls: Any = None) -> Any:
        if model is None:
            return self.function
        return getattr(model, "_sol_forward", None) or types.MethodType(self.function, model)

    def __set__(self, model: Any, function: Any) -> None:
        object.__setattr__(model, "_sol_forward", function)

    def __delete__(self, model: Any) -> None:
        object.__delattr__(model, "_sol_forward")


class Face:
    """The methods that come before those of the model's own class."""

    __slots__ = ()

    _sol_class: type[torch.nn.Module]
    _sol: Any

    def __reduce_ex__(self, protocol: Any) -> Any:
        own = self._sol_class.__getstate__ is not object.__getstate__
        state = self.__getstate__() if own else self.__dict__
        return _rebuild, (self._sol_class, state, type(self._sol), self._sol.declared)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        build, args = self.__reduce_ex__(4)
        made = build(args[0], copy.deepcopy(args[1], memo), *args[2:])
        memo[id(self)] = made
        return made


def _rebuild(cls: type[torch.nn.Module], state: dict[str, Any], make: Any, declared: Any) -> torch.nn.Module:
    module = object.__new__(cls)
    module.__setstate__(state)
    return attach(module, make, declared)


@functools.cache
def _optimized_class(cls: type[torch.nn.Module]) -> type[torch.nn.Module]:
    @functools.wraps(cls.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return eager(self, *args, **kwargs)
        return self._sol.call(self, args, kwargs)

    body = {"__slots__": ("_sol", "_sol_forward"), "forward": _Forward(forward), "_sol_class": cls}
    body |= {"__module__": cls.__module__, "__doc__": cls.__doc__}
    return type(f"Sol{cls.__name__}", (Face, cls), body)


def attach(module: torch.nn.Module, make: Any, declared: Any) -> torch.nn.Module:
    """Creates the optimized model of a module. `make` creates its state from the declared arguments and the signature
    of forward."""
    # a decorated forward has the decorator's signature: it may distinguish positional from keyword arguments, and given
    # from missing ones
    signature = inspect.signature(module.forward, follow_wrapped=False)
    made = object.__new__(_optimized_class(type(module)))  # type: ignore[arg-type]
    object.__setattr__(made, "__dict__", module.__dict__)
    object.__setattr__(made, "_sol", make(declared, signature))
    return made


__all__ = ["Face", "attach", "eager"]
