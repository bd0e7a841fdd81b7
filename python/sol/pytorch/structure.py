"""The structure of arguments and results: nested tuples, lists, dicts and everything that is registered as a pytree.

A `Carrier` represents unregistered objects with attributes, such as dataclasses and subclasses of dict. It is a registered
node that stores their class, to build them again. Objects among the arguments belong to the caller: if forward changes
one (such as a growing cache of keys and values), the call changes the caller's object, and if forward returns it, the
caller gets its own object back (`Reply`). The rest of this file is for speed: it prepares once what takes PyTorch tens of
microseconds in each call, or compares structures without creating objects.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
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
    """An object whose class PyTorch does not know, as its parts."""

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


@dataclasses.dataclass
class Given:
    """In the result of a forward: the caller's own object with this number."""

    number: int


@dataclasses.dataclass
class Reply:
    """The result of a forward, and its changes of the caller's objects: attributes by the number of the object."""

    result: Any
    changes: dict[int, dict[str, Any]]

    def settle(self, objects: list[Any]) -> Any:
        """Changes the caller's objects and returns the call's result, which contains them."""
        for number in self.changes:  # the traced forward had two different objects
            if sum(o is objects[number] for o in objects) > 1:
                raise _core.UnsupportedError(
                    f"an object of {type(objects[number]).__name__} is in the arguments twice, and forward changes it: "
                    "not supported; give it once, or a copy"
                )
        for number, attributes in self.changes.items():
            vars(objects[number]).update(_own(attributes, objects))
        return _own(self.result, objects)


pytree.register_pytree_node(
    Given,
    lambda g: ([], g.number),
    lambda parts, number: Given(number),
    serialized_type_name="sol.pytorch.structure.Given",
    flatten_with_keys_fn=lambda g: ([], g.number),
)
pytree.register_pytree_node(
    Reply,
    lambda r: ([r.result, r.changes], None),
    lambda parts, _: Reply(*parts),
    serialized_type_name="sol.pytorch.structure.Reply",
    flatten_with_keys_fn=lambda r: (
        [(pytree.GetAttrKey("result"), r.result), (pytree.GetAttrKey("changes"), r.changes)],
        None,
    ),
)


def _own(tree: Any, objects: list[Any]) -> Any:
    """The tree with the caller's objects in their places."""
    leaves, spec = pytree.tree_flatten(encode(tree), is_leaf=lambda v: type(v) is Given)
    return builder(spec)(iter([objects[v.number] if type(v) is Given else v for v in leaves]))


_NO_OBJECTS = (
    dict, list, tuple, set, frozenset, str, int, float, enum.Enum, type, types.ModuleType, types.FunctionType, types.MethodType,
    torch.nn.Module, torch.Tensor, Input,
)  # fmt: skip
_LIBRARIES = sys.stdlib_module_names - {"__main__"} | {"torch", "numpy"}


def is_object(value: Any) -> bool:
    """Whether this is an object of the user (or of a package of models) whose attributes describe it."""
    if isinstance(value, _NO_OBJECTS):
        return False
    if type(value).__module__.partition(".")[0] in _LIBRARIES or dataclasses.is_dataclass(value):
        return False
    return type(getattr(value, "__dict__", None)) is dict


def _build(parts: list[Any], context: tuple[Any, tuple[Any, ...]]) -> Any:
    """The object that a carrier describes."""
    cls, names = context
    if cls is PackedSequence:
        return cls(*parts)
    made = cls.__new__(cls)
    for name, part in zip(names, parts, strict=True):
        if isinstance(made, dict):
            made[name] = part
        if dataclasses.is_dataclass(cls):
            object.__setattr__(made, name, part)
        elif not isinstance(made, dict):
            made.__dict__[name] = part
    return made


def encode(tree: Any, found: list[Any] | None = None, given: dict[int, int] | None = None) -> Any:
    """The tree with carriers in place of objects that PyTorch does not know.

    `found` receives the objects (or, for an encoded tree, their carriers) in order of occurrence. `given` maps ids
    of objects to numbers; these objects become Given.
    """
    kind = type(tree)
    if kind in _ATOMS:
        return tree
    if kind is tuple or kind is list:
        return kind([encode(v, found, given) for v in tree])
    if kind is dict:
        return {k: encode(v, found, given) for k, v in tree.items()}
    if kind is PackedSequence:
        return Carrier(kind, tree._fields, [encode(v, found, given) for v in tree])
    if given is not None and id(tree) in given:
        return Given(given[id(tree)])
    known = pytree._get_node_type(tree) in pytree.SUPPORTED_NODES
    whole = is_object(tree) and not known
    if found is not None and (whole or (kind is Carrier and _of_object(tree.cls))):
        found.append(tree)
    if known:
        children, spec = pytree.tree_flatten(tree, is_leaf=lambda v: v is not tree)
        encoded = [encode(v, found, given) for v in children]
        same = all(a is b for a, b in zip(children, encoded, strict=True))
        return tree if same else pytree.tree_unflatten(encoded, spec)
    if isinstance(tree, dict):
        return Carrier(kind, tuple(tree), [encode(v, found, given) for v in tree.values()])
    if dataclasses.is_dataclass(tree) and not isinstance(tree, Input | type):
        names = tuple(f.name for f in dataclasses.fields(tree))
        return Carrier(kind, names, [encode(getattr(tree, n), found, given) for n in names])
    if whole:
        return Carrier(kind, tuple(vars(tree)), [encode(v, found, given) for v in vars(tree).values()])
    return tree


def _of_object(cls: type) -> bool:
    return not issubclass(cls, dict | PackedSequence) and not dataclasses.is_dataclass(cls)


def objects(tree: Any) -> list[Any]:
    """The objects in a tree for which there are carriers, in order; repeated objects occur repeatedly."""
    found: list[Any] = []
    encode(tree, found)
    return found


def decode(tree: Any) -> Any:
    """The tree with objects in place of their carriers."""
    leaves, spec = pytree.tree_flatten(tree)
    return builder(spec)(iter(leaves))


def called(function: Callable[[Any], Any], tree: Any) -> Any:
    """Calls a function with encoded arguments and encodes its result. The result is a `Reply` if the function changes
    objects among the arguments, or returns one."""
    args = decode(tree)
    known = objects(args)
    before = [dict(zip(vars(o), map(_inside, vars(o).values()), strict=True)) for o in known]
    made = function(args)
    numbers: dict[int, int] = {}
    for i, o in enumerate(known):
        numbers.setdefault(id(o), i)
    changes = {}
    for i, (o, was) in enumerate(zip(known, before, strict=True)):
        if gone := was.keys() - vars(o).keys():
            raise _core.UnsupportedError(
                f"forward deletes {', '.join(sorted(gone))} of an argument of {type(o).__name__}: not supported"
            )
        now = {n: v for n, v in vars(o).items() if n not in was or not _same(_inside(v), was[n])}
        if now:
            changes[i] = {n: encode(v, None, numbers) for n, v in now.items()}
    result = encode(made, None, numbers)
    uses = known and pytree.tree_any_only(Given, lambda _: True, result, is_leaf=lambda v: type(v) is Given)
    return Reply(result, changes) if changes or uses else result


def _inside(value: Any) -> Any:
    """The contents of a plain container, or the value itself; objects stand for themselves."""
    if type(value) in (list, tuple):
        return [type(value), *map(_inside, value)]
    if type(value) is dict:
        return [dict, *value, *map(_inside, value.values())]
    return value


def _same(a: Any, b: Any) -> bool:
    if type(a) is list and type(b) is list:
        return len(a) == len(b) and all(map(_same, a, b))
    return a is b or (type(a) is type(b) and isinstance(a, int | float | str) and a == b)


def carries(spec: pytree.TreeSpec) -> bool:
    """Whether a structure contains a carrier."""
    return spec.type is Carrier or any(map(carries, spec.children()))


def form(tree: Any, leaves: list[Any]) -> Any:
    """Appends the leaves in the order of a pytree's, and returns the structure in a form that can be compared."""
    kind = type(tree)
    if kind in _ATOMS:
        leaves.append(tree)
        return None
    if kind is tuple or kind is list:
        return kind, [form(v, leaves) for v in tree]
    if kind is dict:
        return list(tree), [form(v, leaves) for v in tree.values()]
    if pytree._get_node_type(tree) not in pytree.SUPPORTED_NODES and is_object(tree):
        return kind, list(tree.__dict__), [form(v, leaves) for v in tree.__dict__.values()]
    flat, spec = pytree.tree_flatten(encode(tree))
    leaves += flat
    return spec


def builder(spec: pytree.TreeSpec) -> Callable[[Iterator[Any]], Any]:
    """Returns a function that builds an object of this structure from its leaves."""
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
