"""Copies a module tree for tracing, and finds the attributes that forward changes.

The copy has its own `__dict__`s, with other tensors in the same memory, so that tracing does not change the model.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from . import places

_Copies = dict[int, torch.nn.Module]  # by the id of the `__dict__`, which a model and its optimized model share


def _copy_tree(root: torch.nn.Module) -> torch.nn.Module:
    """Copies a module and everything below it. The copies have the classes of the originals."""
    copies: _Copies = {}
    aliases = _Aliases()
    for module in root.modules():
        copy = object.__new__(model_class(module))
        copy.__dict__.update(module.__dict__)
        copies[id(module.__dict__)] = copy
    for module in root.modules():
        _rebind(module, copies[id(module.__dict__)], copies, aliases)
    return copies[id(root.__dict__)]


class _Aliases(dict[int, torch.Tensor]):
    """By the id of the model's tensor, and the memory of those that stand for tensors on a device."""

    def __init__(self) -> None:
        self.memories: dict[Any, torch.UntypedStorage] = {}


def _rebind(module: torch.nn.Module, copy: torch.nn.Module, copies: _Copies, aliases: _Aliases) -> None:
    d = copy.__dict__
    for name, value in module.__dict__.items():
        if name in ("_parameters", "_buffers"):
            d[name] = {k: _alias(v, aliases) for k, v in value.items()}
        elif name.endswith("_hooks"):
            d[name] = type(value)(value)
        elif name == "_modules":
            d[name] = {key: child if child is None else copies[id(child.__dict__)] for key, child in value.items()}
        elif isinstance(value, torch.Tensor) and places.is_away(value):
            d[name] = _alias(value, aliases)
        else:
            d[name] = _renew(value, copies)
    if isinstance(module, torch.nn.RNNBase):
        names = d["_flat_weights_names"]
        d["_flat_weights"] = [d["_parameters"].get(n, d["__dict__"].get(n) if "__dict__" in d else None) for n in names]


def _alias(t: torch.Tensor | None, aliases: _Aliases) -> torch.Tensor | None:
    """Another tensor with the same memory: weak references that tracing keeps do not affect the model's own tensor."""
    if t is None or type(t) not in (torch.Tensor, torch.nn.Parameter):
        return t
    if id(t) not in aliases:
        plain = type(t) is torch.Tensor
        with torch.inference_mode(
            t.is_inference()
        ):  # a tensor made in inference mode can be a parameter only in inference mode
            alias = places.stand_in(t, aliases.memories) if places.is_away(t) else t.detach()
            made = alias.requires_grad_(t.requires_grad) if plain else torch.nn.Parameter(alias, t.requires_grad)
        aliases[id(t)] = made
    return aliases[id(t)]


def _renew(value: Any, copies: _Copies) -> Any:
    """An attribute's value, with modules and their methods replaced by the copies."""
    if isinstance(value, torch.nn.Module):
        return copies.get(id(value.__dict__), value)
    if isinstance(value, types.MethodType) and isinstance(value.__self__, torch.nn.Module):
        return types.MethodType(value.__func__, _renew(value.__self__, copies))
    if type(value) in (list, tuple) and any(isinstance(v, torch.nn.Module | types.MethodType) for v in value):
        return type(value)(_renew(v, copies) for v in value)
    if type(value) is dict and any(isinstance(v, torch.nn.Module | types.MethodType) for v in value.values()):
        return {k: _renew(v, copies) for k, v in value.items()}
    return value


def model_class(root: torch.nn.Module) -> type[torch.nn.Module]:
    """The model's own class, even if the model is optimized."""
    return getattr(type(root), "_sol_class", type(root))


def skeleton(root: torch.nn.Module) -> torch.nn.Module:
    """A copy for tracing, with the model's own class and forward, without the hooks that PyTorch runs around an
    optimized model."""
    made = _copy_tree(root)
    d = made.__dict__
    for name in [n for n in d if n.endswith("_hooks")]:
        d[name] = type(d[name])()
    for m in made.modules():
        if isinstance(m, _BatchNorm) and type(m).forward is _BatchNorm.forward and m.momentum is None:
            m.__dict__["forward"] = types.MethodType(_cumulative, m)
    return made


def _cumulative(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Batch-norm with momentum=None: running statistics are averages over all batches. It does not read the number of
    batches, which a trace does not know."""
    if not self.training or not self.track_running_stats or self.num_batches_tracked is None:
        return _BatchNorm.forward(self, x)
    self._check_input_dim(x)
    self.num_batches_tracked.add_(1)
    mean, var = torch.zeros_like(self.running_mean), torch.zeros_like(self.running_var)
    y = torch.nn.functional.batch_norm(x, mean, var, self.weight, self.bias, True, 1.0, self.eps)
    share = 1.0 / self.num_batches_tracked.to(mean.dtype)
    with torch.no_grad():
        self.running_mean.copy_(self.running_mean * (1 - share) + mean * share)
        self.running_var.copy_(self.running_var * (1 - share) + var * share)
    return y


# -- what a model stores during a call


class Contents:
    """The contents of the lists, dicts, sets and objects in a module tree's attributes. These are the user's own, not
    copies, because hooks and closures may refer to them, too."""

    def __init__(self, root: torch.nn.Module) -> None:
        self.found = contents(v for m in root.modules() for v in m.__dict__.values())

    def changed(self) -> set[int]:
        """The ids of those whose contents changed."""
        return {key for key, (value, before) in self.found.items() if not _holds(value, before)}

    def restore(self) -> None:
        """Restores their contents."""
        for key in self.changed():
            value, before = self.found[key]
            value.clear()
            value.extend(before) if isinstance(value, list | deque) else value.update(before)


class Attributes:
    """The attributes of a tree's modules, and their contents."""

    def __init__(self, root: torch.nn.Module) -> None:
        self.rows = [(path, m.__dict__, dict(m.__dict__)) for path, m in root.named_modules()]
        self.contents = Contents(root)

    def changed(self) -> list[str]:
        """The names of attributes that changed, or whose contents changed."""
        held = self.contents.changed()
        names = []
        for path, now, before in self.rows:
            for key in {**before, **now}:
                same = key in now and key in before and _alike(now[key], before[key])
                if same and held:
                    same = held.isdisjoint(contents([now[key]]))
                if not same:
                    names += [f"{path}.{k}" if path else k for k in self._entries(key, now.get(key))]
        return names

    def _entries(self, key: str, value: Any) -> list[str]:
        """The name of an attribute; of the dictionary of a module's buffers, the names of those that changed."""
        if key not in ("_buffers", "_parameters", "_modules") or id(value) not in self.contents.found:
            return [key]
        before = self.contents.found[id(value)][1]
        return [k for k in {**before, **value} if value.get(k, self) is not before.get(k, self)] or [key]

    def plain(self, names: list[str]) -> list[tuple[str, str, Any]]:
        """What attributes of these names are now, as rows of path, key and value; none if some are more than plain values."""
        rows = [(path, key, now.get(key, self)) for path, now, _ in self.rows for key in now]
        found = [row for row in rows if f"{row[0]}.{row[1]}".lstrip(".") in names]
        simple = all(value is None or isinstance(value, bool | int | float | str) for _, _, value in found)
        return found if simple and len(found) == len(names) else []

    def restore(self) -> None:
        """Restores all attributes."""
        for _, now, before in self.rows:
            now.clear()
            now.update(before)
        self.contents.restore()


def _alike(value: Any, before: Any) -> bool:
    """Whether a value is the same as before, or a new list of the same tensors."""
    if value is before or type(value) is not type(before) or not isinstance(value, list | tuple) or not value:
        return value is before
    return len(value) == len(before) and all(
        a is b and isinstance(a, torch.Tensor) for a, b in zip(value, before, strict=True)
    )


@contextlib.contextmanager
def contents_kept(root: torch.nn.Module) -> Iterator[None]:
    """Restores containers after tracing, so a model that fills a cache keeps nothing of the trace."""
    contents = Contents(root)
    try:
        yield
    finally:
        contents.restore()


def contents(values: Iterable[Any]) -> dict[int, tuple[Any, Any]]:
    """The containers among the values, and inside them, with their contents; by id (for objects, that of the
    `__dict__`)."""
    found: dict[int, tuple[Any, Any]] = {}
    waiting = [*values]
    while waiting:
        value = waiting.pop()
        if isinstance(value, tuple):
            waiting += value
            continue
        if not isinstance(value, list | dict | set | deque):
            value = _fields(value)
        if value is not None and id(value) not in found:
            found[id(value)] = value, (dict(value) if isinstance(value, dict) else list(value))
            waiting += value.values() if isinstance(value, dict) else value
    return found


def _fields(value: Any) -> dict[str, Any] | None:
    """The attributes of a user's object. None: the value is something else."""
    if isinstance(
        value, type | types.ModuleType | types.FunctionType | types.MethodType | torch.nn.Module | torch.Tensor
    ):
        return None
    library = type(value).__module__.partition(".")[0]
    if library in _LIBRARIES and not isinstance(value, types.SimpleNamespace):
        return None
    fields = getattr(value, "__dict__", None)
    return fields if isinstance(fields, dict) else None


_LIBRARIES = sys.stdlib_module_names | {"torch", "numpy"}


def _holds(value: Any, before: Any) -> bool:
    """Whether a container has the same contents as before, in the same order."""
    if len(value) != len(before):
        return False
    if isinstance(value, dict):
        return all(a is b and value[a] is before[b] for a, b in zip(value, before, strict=True))
    return all(a is b for a, b in zip(value, before, strict=True))
