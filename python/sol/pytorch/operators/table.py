"""The table of operators: for each ATen overload, the function that translates it to SOL's layers.

A function takes the builder, then the overload's arguments by the names of its schema (the first may have any name).
An argument that the function does not take must have its default value; otherwise the operator is rejected by name.
So no attribute is ever dropped silently. Arguments in IGNORED never change a result.
"""

from __future__ import annotations

import functools
import inspect
import keyword
from collections.abc import Callable
from typing import Any

import torch

from ..builder import Builder, Complex, Rejected, Value

Function = Callable[..., Any]

IGNORED = frozenset(
    "layout device pin_memory memory_format non_blocking implicit cudnn_enabled cudnn_enable benchmark deterministic allow_tf32 "
    "copy is_coalesced momentum sparse_grad requires_grad unsafe".split()
)


class Row:
    """An operator's function, and the names of the arguments it takes (and requires) after the first. `one_type`: it does not
    promote the types of its operands."""

    __slots__ = ("first", "function", "names", "needed", "one_type")

    def __init__(self, function: Function) -> None:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        self.function = function
        self.first = bool(parameters)
        self.names = frozenset(p.name for p in parameters[1:])
        self.needed = frozenset(p.name for p in parameters[1:] if p.default is p.empty)
        self.one_type = function in _OF_ONE_TYPE

    def __call__(self, b: Builder, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given: dict[str, Any] = {}
        first: Any = None
        for i, argument in enumerate(schema.arguments):
            value = args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
            if i == 0 and self.first:
                first = value
            elif (name := argument.name + "_" * keyword.iskeyword(argument.name)) in self.names:
                given[name] = value
            elif argument.name not in IGNORED and not _is_default(value, argument.default_value):
                raise Rejected(f"argument {argument.name}={value!r}")
        return self.function(b, first, **given) if self.first else self.function(b, **given)


_OF_ONE_TYPE: set[Function] = set()


def of_one_type(function: Function) -> Function:
    """Marks a function, before `op` registers it: PyTorch rejects operands of several types."""
    _OF_ONE_TYPE.add(function)
    return function


def _is_default(value: Any, default: Any) -> bool:
    if value is None or isinstance(value, Value | Complex):
        return value is None
    return bool(value == default)


SHAPES: dict[Any, Function] = {}


def shape(*names: str) -> Callable[[Function], Function]:
    """Registers a function that describes the results of overloads from their arguments, where PyTorch's own would read
    data. None: PyTorch's own knows."""

    def enter(function: Function) -> Function:
        for name in names:
            packet, _, overload = name.partition(".")
            SHAPES[getattr(getattr(torch.ops.aten, packet), overload or "default")] = function
        return function

    return enter


def alike(*pairs: tuple[int, int]) -> None:
    """Compares sizes that must be equal inside of a shape function, where PyTorch's own does not: those that vary become one."""
    for a, b in pairs:
        bool(a == b)


SIZES: dict[Any, Function] = {}


def sizes(*names: str) -> Callable[[Function], Function]:
    """Registers a function that describes results whose sizes follow from data, given `read` and the overload's
    arguments. The program is valid for the values of `read(function, *tensors)` (values.py)."""

    def enter(function: Function) -> Function:
        for name in names:
            if name.count(".") == 2:  # of another library, which may be absent
                SIZES[name] = function
                continue
            packet, _, overload = name.partition(".")
            SIZES[getattr(getattr(torch.ops.aten, packet), overload or "default")] = function
        return function

    return enter


MOST: dict[Function, Function] = {}  # functions that find a size in data: the most that it may be


NUMBERS = frozenset(  # operators that read tensors and return no tensor
    getattr(torch.ops.aten, n).default for n in ("item", "_local_scalar_dense", "is_nonzero", "equal", "allclose")
)


class Rejection:
    """An operator that SOL does not support, with the reason."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __call__(self, b: Builder, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise Rejected(self.why)


OPERATORS: dict[str, Row | Rejection] = {}


def op(*names: str) -> Callable[[Function], Function]:
    """Registers a function for overloads: "add.Tensor"; without an overload's name: ".default"."""

    def enter(function: Function) -> Function:
        _enter(Row(function), names, OPERATORS)
        return function

    return enter


COMPLEX: dict[str, Any] = {}  # overloads with complex tensors, apart from those that act on each part


def complex_op(*names: str) -> Callable[[Function], Function]:
    """Registers a function for overloads with complex operands or a complex result."""

    def enter(function: Function) -> Function:
        _enter(Row(function), names, COMPLEX)
        return function

    return enter


def reject_family(why: str, *names: str) -> None:
    """Registers all overloads of operators as not supported."""
    for name in names:
        packet = getattr(torch.ops.aten, name, None)
        reject(why, *(f"{name}.{overload}" for overload in (packet.overloads() if packet is not None else [])))


def reject(why: str, *names: str) -> None:
    """Registers overloads as not supported."""
    _enter(Rejection(why), names, OPERATORS)


def _enter(row: Any, names: tuple[str, ...], table: dict[str, Any]) -> None:
    for full in map(full_name, names):
        if full in table:
            raise ValueError(f"{full} is in the table twice")
        table[full] = row


def full_name(name: str) -> str:
    """An overload's full name: "add.Tensor" -> "aten.add.Tensor", "abs" -> "aten.abs.default"; names with a package are
    full."""
    return (name, f"aten.{name}", f"aten.{name}.default")[2 - name.count(".")]


def out_of_place(name: str) -> str | None:
    """The out-of-place overload for an in-place one: aten.add_.Tensor -> aten.add.Tensor."""
    space, function, overload = name.split(".") if name.count(".") == 2 else ("", "", "")
    if not function.endswith("_") or function.endswith("__"):
        return None
    return f"{space}.{function[:-1]}.{overload}"


_OPTIONS = ("dtype", "layout", "device", "pin_memory")  # of new tensors: with `out=`, they are as that tensor has them


def without_out(target: Any) -> Any:
    """The overload without `out=`: aten.div.out -> aten.div.Tensor, aten.arange.start_out -> aten.arange.start_step. None: there
    is no `out`."""
    arguments = target._schema.arguments
    if not arguments or not arguments[-1].is_out:
        return None
    plain = [(a.name, str(a.type)) for a in arguments if not a.is_out]
    for name in target.overloadpacket.overloads():
        other = getattr(target.overloadpacket, name)
        given = [(a.name, str(a.type)) for a in other._schema.arguments]
        if plain in (given, [a for a in given if a[0] not in _OPTIONS]):
            return other
    return None


@functools.cache
def _alike(name: str, other: str) -> str:
    """The out-of-place overload with the arguments of an in-place one, where their names differ: aten.pow_.Tensor ->
    aten.pow.Tensor_Tensor."""
    overload = name.split(".")[2]
    written, plain = (getattr(torch.ops.aten, n.split(".")[1], None) for n in (name, other))
    if written is None or plain is None or not name.startswith("aten.") or overload not in written.overloads():
        return other
    own = _arguments(written, overload)
    found = next((o for o in plain.overloads() if _arguments(plain, o) == own), overload)
    return f"{other.rpartition('.')[0]}.{found}"


def _arguments(packet: Any, overload: str) -> list[tuple[str, str]]:
    """Names and types."""
    return [(a.name, str(a.type)) for a in getattr(packet, overload)._schema.arguments]


def find(name: str) -> Any:
    """The entry of an overload, in-place or not."""
    row = OPERATORS.get(name)
    if row is None and (other := out_of_place(name)):
        row = OPERATORS.get(other) or OPERATORS.get(_alike(name, other))
    if row is None and not name.startswith("aten."):
        from ..outside import registered  # needs this table

        return registered(name)
    return row
