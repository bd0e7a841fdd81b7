"""Hooks on the modules of a model. A trace runs them once, on tensors without data, and a program never runs them.

SOL therefore rejects hooks on inner modules, except those that are part of the model: hooks that compute weights or collect
results of forward (OF_FORWARD), and hooks that refer only to the model's modules and objects. PyTorch runs
the hooks of the whole model, before and after the program.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules import module as nn_module

from sol import _core

from .skeleton import contents, model_class

KINDS = {
    "_forward_hooks": "forward hook",
    "_forward_pre_hooks": "forward pre-hook",
    "_backward_hooks": "backward hook",
    "_backward_pre_hooks": "backward pre-hook",
}
GLOBAL: dict[str, dict[int, Any]] = {name: getattr(nn_module, f"_global{name}") for name in KINDS}
# Modules of PyTorch and transformers whose hooks are part of forward: they act only while the model's forward runs, so
# the trace contains them.
OF_FORWARD = (
    "torch.nn.utils.",  # computed weights: pruning, spectral and weight norm
    "transformers.utils.output_capturing",  # hidden states and attentions that forward returns
    "transformers.modeling_utils",  # embeddings that require a gradient, for checkpoints
)
_INSTEAD = (
    "an optimized model does not run hooks on its inner modules; remove them, let forward return what they look at, or use "
    "torch.compile(model, backend='sol'), which runs them"
)


def check_hooks(root: torch.nn.Module, gradients: bool) -> None:
    """Rejects hooks that an optimized model would not run, with their names and modules. Backward hooks count only if
    there are gradients."""
    found: dict[str, list[str]] = {}
    kinds = [k for k in KINDS if gradients or not k.startswith("_backward")]
    for kind in kinds:
        for hook in GLOBAL[kind].values():
            found.setdefault(f"{KINDS[kind]} {_name(hook)}", []).append("all modules")
    held: set[int] | None = None
    for path, module in root.named_modules():
        for kind in kinds:
            for hook in () if module is root else getattr(module, kind).values():
                if _is_of_forward(hook):
                    continue
                if held is None:
                    held = _held(root)
                if kind.startswith("_backward") or not _is_model_s(hook, held):
                    found.setdefault(f"{KINDS[kind]} {_name(hook)}", []).append(path)
    if found:
        rows = ", ".join(f"{what} on {_first(paths)}" for what, paths in found.items())
        raise _core.UnsupportedError(f"{model_class(root).__name__}: {rows}: not supported: {_INSTEAD}")


def _first(paths: list[str]) -> str:
    return paths[0] + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")


def _name(hook: Any) -> str:
    """The name of a hook, and where it is defined."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    code = getattr(hook, "__code__", None)
    name = getattr(hook, "__qualname__", type(hook).__qualname__).rpartition("<locals>.")[2]
    return f"{name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})" if code else name


def _is_of_forward(hook: Any) -> bool:
    """Whether a hook belongs to a module in OF_FORWARD, or to a class that one of them created."""
    owners = [hook] if isinstance(hook, types.FunctionType) else type(hook).__mro__
    return any(o.__module__.startswith(OF_FORWARD) for o in owners)


def computed(root: torch.nn.Module) -> set[str]:
    """The names of weights that PyTorch's hooks compute in each call and store in an attribute."""
    found: set[str] = set()
    for path, module in root.named_modules():
        for hook in filter(_is_of_forward, module._forward_pre_hooks.values()):
            name = str(getattr(hook, "_tensor_name", None) or getattr(hook, "name", ""))
            found.add(f"{path}.{name}" if path else name)
    return found


def _held(root: torch.nn.Module) -> set[int]:
    """The ids of the objects in the model's attributes and, of objects, those of their `__dict__`s."""
    attributes = (v for m in root.modules() for k, v in m.__dict__.items() if not k.endswith("_hooks"))
    return {id(m.__dict__) for m in root.modules()} | set(contents(attributes))


def _is_model_s(hook: Any, held: set[int]) -> bool:
    """Whether a hook holds objects of the model, and no others."""
    parts = list(_parts(hook))
    inside = [id(p) in held or id(getattr(p, "__dict__", None)) in held for p in parts]
    return any(inside) and all(inside)


def _parts(hook: Any) -> Iterator[Any]:
    """The objects that a function refers to: its instance if it is a method, a partial's arguments, variables of its
    closure."""
    if isinstance(hook, functools.partial):
        for part in (hook.func, *hook.args, *hook.keywords.values()):
            yield from _parts(part)
    elif isinstance(hook, types.MethodType):
        yield hook.__self__
    elif isinstance(hook, types.FunctionType):
        for cell in hook.__closure__ or ():
            yield from _parts(cell.cell_contents)
    elif not isinstance(hook, bool | int | float | str | type(None)):
        yield hook


__all__ = ["GLOBAL", "KINDS", "check_hooks", "computed"]
