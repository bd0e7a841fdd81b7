"""Operators and modules from outside: functions that translate them (`sol.pytorch.register`), and operators that are registered layers
(`sol.register_layer`). docs/extending.md says how to use both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from sol import _core, extend, forms

from .builder import Builder, Complex, Rejected, Value
from .operators.table import OPERATORS, Row

Function = Callable[..., Any]


class Outside(Row):
    """The row of an operator that a user registered."""

    __slots__ = ()


@dataclass(frozen=True)
class Hook:
    """What translates a module of a class, and what describes its results (None: the module's forward does)."""

    function: Function
    shape: Function | None


_modules: dict[type, Hook] = {}


def register(target: Any, function: Function | None = None, *, shape: Function | None = None) -> Any:
    """Says how SOL translates an operator or the modules of a class, for models that are optimized from now on.

    target    an operator: torch.ops.mylib.scale, torch.ops.mylib.scale.default or its name "mylib::scale"; or a class of modules
    function  of an operator: function(b, first, other=..) gets the operator's arguments by the names of its schema, tensors as values
              of the graph. Of modules: function(b, module, *inputs) gets what forward gets; `b.param("weight")` is a parameter or buffer
              of the module. Both return a value, or a tuple of them, made with the builder: b.layer("mylib::scale", x, s=2.0)
    shape     of modules: shape(module, *inputs) returns tensors like the results (torch.empty_like(x)), if forward cannot run on
              tensors without data

    Modules stay one unit when the model is parsed: nothing of their forward is translated. May be used as a decorator.
    """
    if function is None:
        return lambda f: register(target, f, shape=shape)
    if not callable(function):
        raise _core.InvalidError(f"sol.pytorch.register: expected a function, got {function!r}")
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        _modules[target] = Hook(function, shape)
        return function
    if shape is not None:
        raise _core.InvalidError("sol.pytorch.register: shape: operators say it with torch.library.register_fake")
    for name in _overloads(target):
        if name in OPERATORS and not isinstance(OPERATORS[name], Outside):
            raise _core.InvalidError(f"sol.pytorch.register: {name}: SOL translates this operator itself")
        OPERATORS[name] = Outside(function)
    return function


def _overloads(target: Any) -> list[str]:
    """The full names of overloads: mylib.scale.default."""
    if isinstance(target, torch._ops.OpOverload):
        return [str(target)]
    if isinstance(target, torch._library.custom_ops.CustomOpDef):
        target = target._qualname
    if isinstance(target, str):
        space, _, name = target.partition("::")
        name, _, overload = name.partition(".")
        packet = getattr(getattr(torch.ops, space), name, None) if name else None
        if packet is None:
            raise _core.InvalidError(
                f"sol.pytorch.register: {target!r}: expected an operator that exists, such as mylib::scale"
            )
        return _overloads(getattr(packet, overload) if overload else packet)
    if isinstance(target, torch._ops.OpOverloadPacket):
        return [str(getattr(target, o)) for o in target.overloads()]
    raise _core.InvalidError(
        f"sol.pytorch.register: expected an operator (torch.ops.mylib.scale) or a class of modules, got {target!r}"
    )


# -- operators that are layers


class Registered:
    """The row of an operator whose name is that of a registered layer. Its tensors are the layer's inputs in their order, its
    other arguments are attributes by their names."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, b: Builder, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Adds the layer."""
        inputs: list[Value | None] = []
        attributes: dict[str, Any] = {}
        for i, argument in enumerate(schema.arguments):
            value = args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
            tensor = "Tensor" in str(argument.type)
            if isinstance(value, Complex):
                raise Rejected(f"argument {argument.name}: a complex tensor")
            if isinstance(value, Value) or (value is None and tensor):
                inputs.append(value)
            elif tensor:
                inputs.extend(value)
            elif value is not None:
                attributes[argument.name] = _attribute(argument.name, value)
        n = len(schema.returns)
        made = b.layers(self.kind, *inputs, outputs=n, **attributes)
        return made[0] if n == 1 else made


def _attribute(name: str, value: Any) -> Any:
    if isinstance(value, forms.Size):
        return value
    plain = extend.plain(value)
    if plain is None:
        raise Rejected(f"argument {name}={value!r}, which cannot be an attribute of a layer")
    return plain


def registered(name: str) -> Registered | None:
    """The row of an overload, mylib.scale.default, that is a registered layer."""
    parts = name.split(".")
    if len(parts) != 3 or parts[0] == "aten":
        return None
    kind = extend.named(f"{parts[0]}::{parts[1]}")
    return None if kind is None else Registered(kind)


# -- modules that stay one unit


@dataclass(frozen=True)
class Unit:
    """The target of a node: a module that a hook translates. Its arguments are its parameters by name, then forward's."""

    function: Function
    path: str
    module: Any = field(compare=False)

    @property
    def __name__(self) -> str:
        return type(self.module).__name__

    def __str__(self) -> str:
        return f"module {type(self.module).__name__}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The target of a node is callable; nothing calls this one."""
        raise NotImplementedError


def hook_of(module: torch.nn.Module) -> Hook | None:
    """The hook of a module's class, or of a base class."""
    return next((_modules[c] for c in type(module).__mro__ if c in _modules), None) if _modules else None


def enter(root: torch.nn.Module, call: Callable[..., Any]) -> None:
    """Modules with hooks call `call(module, path, hook, args, kwargs)` instead of their forward. The root is a copy for one trace."""
    if not _modules:
        return
    for path, module in root.named_modules():
        if (hook := hook_of(module)) is not None:
            module.__dict__["forward"] = _Instead(module, path, hook, call)


class _Instead:
    """The forward of a module with a hook, during a trace."""

    def __init__(self, module: torch.nn.Module, path: str, hook: Hook, call: Callable[..., Any]) -> None:
        self.of = module, path, hook
        self.call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*self.of, args, kwargs)


__all__ = ["Hook", "Outside", "Registered", "Unit", "enter", "hook_of", "register", "registered"]
