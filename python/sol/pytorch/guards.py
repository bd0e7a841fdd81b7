"""Guards: what a program depends on: the device, and of the model its modules, their plain attributes, tied tensors.

A guard is a row for `_core.Caller`, which checks it in every call. (dict, key, value): the entry equals value. (dict, key,
value, None): the entry is this object. (dict, None, n): the dict has n items. (dict, key, dict, key): both entries are the
same object. The same rows form the key of a program. Other state of Python (globals, contents of objects in attributes)
is not checked; a program keeps its values from the time of tracing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from sol.device import device

from .hooks import GLOBAL, KINDS

_SCALARS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_OWN = frozenset(KINDS) | {"_parameters", "_buffers", "_modules"}
_SILENT = frozenset(  # attributes of torch.nn.Module that do not affect forward
    "_non_persistent_buffers_set _is_full_backward_hook _forward_hooks_with_kwargs "
    "_forward_hooks_always_called _forward_pre_hooks_with_kwargs _state_dict_hooks _state_dict_pre_hooks "
    "_load_state_dict_pre_hooks _load_state_dict_post_hooks _flat_weights".split()
)
Row = tuple[Any, ...]


def guards(root: torch.nn.Module, tied: dict[str, Any]) -> list[Row]:
    """The guards of a model. `tied` has its tensors by name, each with `owner` (a dict), `key` and `tensor`."""
    rows: list[Row] = [(device.chosen, "device", device.chosen["device"])]
    rows += [(hooks, None, len(hooks)) for hooks in GLOBAL.values()]
    for module in root.modules():
        rows += _of_module(module, module is root)
    first: dict[int, Any] = {}
    for owned in tied.values():
        other = first.setdefault(id(owned.tensor), owned)
        if other is not owned and (other.owner is not owned.owner or other.key != owned.key):
            rows.append((owned.owner, owned.key, other.owner, other.key))
    return rows


def _of_module(module: torch.nn.Module, is_root: bool) -> Iterator[Row]:
    d = module.__dict__
    yield d, None, len(d)
    for name in ("_modules", "_parameters", "_buffers"):
        group = d[name]
        yield d, name, group, None
        yield group, None, len(group)
        for key, value in group.items():
            if value is None or name == "_modules":
                yield group, key, value
    for name in () if is_root else KINDS:  # PyTorch runs the root's own hooks, around the program
        hooks = d[name]
        yield d, name, hooks, None
        yield hooks, None, len(hooks)
        yield from ((hooks, key, hook) for key, hook in hooks.items())
    for key, value in d.items():
        if key not in _OWN and key not in _SILENT and not isinstance(value, torch.Tensor):
            yield d, key, _snapshot(value)


def _snapshot(value: Any) -> Any:
    """Copies lists and dicts of plain values, so that changes of their contents are noticed. Other objects are returned
    themselves."""
    if type(value) is list and _plain(value):
        return [_snapshot(v) for v in value]
    if type(value) is dict and _plain(value.values()):
        return {k: _snapshot(v) for k, v in value.items()}
    return value


def _plain(values: Any) -> bool:
    return all(
        isinstance(v, _SCALARS) or (type(v) in (list, tuple) and _plain(v)) or (type(v) is dict and _plain(v.values()))
        for v in values
    )


def written(row: Row) -> Any:
    """A guard as part of a program's key. It keeps objects alive as long as the program, so their addresses stay
    unique."""
    return (id(row[0]), row[1], *(_name(v) for v in row[2:]))


def _name(value: Any) -> Any:
    if isinstance(value, _SCALARS) or (type(value) in (list, tuple) and _plain(value)):
        return type(value), repr(value)
    if type(value) is dict and _plain(value.values()):
        return dict, repr(value)
    return type(value), id(value)
