"""Copies of a module tree that share the parameters.

The copy has its own `__dict__`s, so that tracing it, or setting `training` in it, leaves nothing behind in the original. An
optimized model is such a copy whose `_parameters` and `_buffers` are the original's own dicts; a skeleton for tracing has its
own dicts with other tensors in the same memory. Hooks are copied: one that is added later belongs to one of the two.
"""

from __future__ import annotations

import types
from typing import Any

import torch


def copy_tree(root: torch.nn.Module, share: bool) -> torch.nn.Module:
    """The copy of a module and all below it; `share`: with the original's dicts of parameters and buffers."""
    copies: dict[int, torch.nn.Module] = {}
    aliases: dict[int, torch.Tensor] = {}
    for module in root.modules():
        copy = object.__new__(type(module))
        copy.__dict__.update(module.__dict__)
        copies[id(module)] = copy
    for module in root.modules():
        _rebind(module, copies[id(module)], copies, None if share else aliases)
    return copies[id(root)]


def _rebind(
    module: torch.nn.Module,
    copy: torch.nn.Module,
    copies: dict[int, torch.nn.Module],
    aliases: dict[int, torch.Tensor] | None,
) -> None:
    d = copy.__dict__
    for name, value in module.__dict__.items():
        if name in ("_parameters", "_buffers"):
            d[name] = value if aliases is None else {k: _alias(v, aliases) for k, v in value.items()}
        elif name.endswith("_hooks"):
            d[name] = type(value)(value)
        elif name == "_modules":
            d[name] = {key: child if child is None else copies[id(child)] for key, child in value.items()}
        else:
            d[name] = _renew(value, copies)
    if isinstance(module, torch.nn.RNNBase):
        names = d["_flat_weights_names"]
        d["_flat_weights"] = [d["_parameters"].get(n, d["__dict__"].get(n) if "__dict__" in d else None) for n in names]


def _alias(t: torch.Tensor | None, aliases: dict[int, torch.Tensor]) -> torch.Tensor | None:
    """Another tensor with the same memory: what tracing keeps of it (weak references) does not hang on the model's own."""
    if t is None or type(t) not in (torch.Tensor, torch.nn.Parameter):
        return t
    if id(t) not in aliases:
        alias = t.detach()
        plain = type(t) is torch.Tensor
        aliases[id(t)] = alias.requires_grad_(t.requires_grad) if plain else torch.nn.Parameter(alias, t.requires_grad)
    return aliases[id(t)]


def _renew(value: Any, copies: dict[int, torch.nn.Module]) -> Any:
    """An attribute's value, with modules and their methods replaced by the copies'."""
    if isinstance(value, torch.nn.Module):
        return copies.get(id(value), value)
    if isinstance(value, types.MethodType) and id(value.__self__) in copies:
        return types.MethodType(value.__func__, copies[id(value.__self__)])
    if type(value) in (list, tuple) and any(isinstance(v, torch.nn.Module | types.MethodType) for v in value):
        return type(value)(_renew(v, copies) for v in value)
    if type(value) is dict and any(isinstance(v, torch.nn.Module | types.MethodType) for v in value.values()):
        return {k: _renew(v, copies) for k, v in value.items()}
    return value
