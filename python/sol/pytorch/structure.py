"""The structure of arguments and results: nested tuples, lists, dicts and whatever is registered as a pytree.

Dataclasses and subclasses of dict that are *not* registered go as a `Carrier`, a registered node that knows their class and
lets it be built again. The rest is speed: what PyTorch does in tens of microseconds for each call is
prepared here once, or compared without making objects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from sol import _core
from sol.inputs import Input

_ATOMS = frozenset((torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None)))


@dataclasses.dataclass
class Carrier:
    """An object of a class that PyTorch does not know, in parts."""

    cls: type
    names: tuple[Any, ...]
    parts: list[Any]


pytree.register_pytree_node(
    Carrier,
    lambda c: (c.parts, (c.cls, c.names)),
    lambda parts, context: Carrier(context[0], context[1], list(parts)),
    serialized_type_name="sol.pytorch.structure.Carrier",
    flatten_with_keys_fn=lambda c: (
        [(pytree.MappingKey(n), part) for n, part in zip(c.names, c.parts, strict=True)],
        (c.cls, c.names),
    ),
)


def _build(parts: list[Any], context: tuple[Any, tuple[Any, ...]]) -> Any:
    """The object of a carrier."""
    cls, names = context
    made = cls.__new__(cls)
    for name, part in zip(names, parts, strict=True):
        if isinstance(made, dict):
            made[name] = part
        if dataclasses.is_dataclass(cls):
            object.__setattr__(made, name, part)
    return made


def encode(tree: Any) -> Any:
    """The tree with carriers in place of the objects that PyTorch does not know."""
    kind = type(tree)
    if kind in _ATOMS:
        return tree
    if kind is tuple or kind is list:
        return kind([encode(v) for v in tree])
    if kind is dict:
        return {k: encode(v) for k, v in tree.items()}
    if kind is PackedSequence:
        raise _core.UnsupportedError(
            "arguments: a PackedSequence: how many sequences each step has is data, and sizes are constants of compiled code; "
            "give the padded tensor and mask what lies behind the ends, or use torch.compile(model, backend='sol'), which "
            "runs such a layer in PyTorch"
        )
    if pytree._get_node_type(tree) in pytree.SUPPORTED_NODES:
        children, spec = pytree.tree_flatten(tree, is_leaf=lambda v: v is not tree)
        encoded = [encode(v) for v in children]
        same = all(a is b for a, b in zip(children, encoded, strict=True))
        return tree if same else pytree.tree_unflatten(encoded, spec)
    if isinstance(tree, dict):
        return Carrier(kind, tuple(tree), [encode(v) for v in tree.values()])
    if dataclasses.is_dataclass(tree) and not isinstance(tree, Input | type):
        names = tuple(f.name for f in dataclasses.fields(tree))
        return Carrier(kind, names, [encode(getattr(tree, n)) for n in names])
    return tree


def decode(tree: Any) -> Any:
    """The tree with objects in place of their carriers."""
    leaves, spec = pytree.tree_flatten(tree)
    return builder(spec)(iter(leaves))


def carries(spec: pytree.TreeSpec) -> bool:
    """Is there a carrier in a structure?"""
    return spec.type is Carrier or any(map(carries, spec.children()))


def form(tree: Any, leaves: list[Any]) -> Any:
    """Appends the leaves, in the order of a pytree's, and returns the structure as something to compare."""
    kind = type(tree)
    if kind in _ATOMS:
        leaves.append(tree)
        return None
    if kind is tuple or kind is list:
        return kind, [form(v, leaves) for v in tree]
    if kind is dict:
        return list(tree), [form(v, leaves) for v in tree.values()]
    flat, spec = pytree.tree_flatten(encode(tree))
    leaves += flat
    return spec


def builder(spec: pytree.TreeSpec) -> Callable[[Iterator[Any]], Any]:
    """What makes an object of this structure from its leaves."""
    if spec.is_leaf():
        return next
    parts = [builder(c) for c in spec.children()]
    context = spec.context
    if spec.type is tuple:
        return lambda leaves: tuple([p(leaves) for p in parts])
    if spec.type is list:
        return lambda leaves: [p(leaves) for p in parts]
    if spec.type is dict:
        return lambda leaves: dict(zip(context, [p(leaves) for p in parts], strict=True))
    if spec.type is torch.Size:
        return lambda leaves: torch.Size([p(leaves) for p in parts])
    unflatten = _build if spec.type is Carrier else pytree.SUPPORTED_NODES[spec.type].unflatten_fn
    return lambda leaves: unflatten([p(leaves) for p in parts], context)


def outline(spec: pytree.TreeSpec) -> str:
    """The structure of arguments in words: (*, [*, *], scale=*)."""
    if spec.is_leaf():
        return "*"
    parts = [outline(c) for c in spec.children()]
    inside = ", ".join(parts)
    if spec.type is dict:
        return "{" + ", ".join(f"{k}: {p}" for k, p in zip(spec.context, parts, strict=True)) + "}"
    if spec.type is list:
        return f"[{inside}]"
    if spec.type is Carrier:
        cls, names = spec.context
        return f"{cls.__name__}({', '.join(f'{n}={p}' for n, p in zip(names, parts, strict=True))})"
    return f"{'' if spec.type is tuple else spec.type.__name__}({inside})"
