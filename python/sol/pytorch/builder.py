"""Helpers for translating operators: builds a graph of SOL from torch operations.

A `Value` is a tensor of SOL's graph together with its torch dtype. This file implements the rules that PyTorch derives
from the types and shapes of arguments (promotion, scalars, negative axes, kept dimensions), because SOL's layers are
explicit.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch

from sol import _core

from sol import forms
from .reals import Real

SOL_NAME = {
    torch.bool: "bool",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.uint16: "u16",
    torch.int16: "i16",
    torch.uint32: "u32",
    torch.int32: "i32",
    torch.uint64: "u64",
    torch.int64: "i64",
    torch.float32: "f32",
    torch.float64: "f64",
}
TORCH_TYPE = {name: dtype for dtype, name in SOL_NAME.items()}
REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}  # the type of both parts of a complex number
_FORMAT = {"bool": "?", "u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "u64": "Q", "i64": "q",
           "f32": "f", "f64": "d"}  # fmt: skip

# The bool versions of functions: bytes other than 0 and 1 must not appear.
_ON_BOOL = {
    f: f for f in "where eq ne lt le gt ge logical_and logical_or logical_xor logical_not identity isnan isinf".split()
}
_ON_BOOL |= {f: f for f in "isposinf isneginf isfinite signbit".split()}
_ON_BOOL |= {"add": "logical_or", "mul": "logical_and", "max": "logical_or", "min": "logical_and", "fmax": "logical_or"}
_ON_BOOL |= {"fmin": "logical_and", "bit_and": "logical_and", "bit_or": "logical_or", "bit_xor": "logical_xor"}
_ON_BOOL |= {"bit_not": "logical_not", "abs": "identity", "sign": "identity", "square": "identity", "relu": "identity"}


class Rejected(Exception):
    """An operator, argument or type that is not supported. The message names it."""


class Value:
    """A tensor of the graph. `tracked`: PyTorch would set requires_grad."""

    __slots__ = ("dtype", "handle", "shape", "tracked")

    def __init__(self, handle: _core.Tensor, tracked: bool = False) -> None:
        self.handle = handle
        self.dtype = TORCH_TYPE[handle.dtype]
        self.shape: tuple[Any, ...] = tuple(map(forms.size, handle.shape))
        self.tracked = tracked and self.dtype.is_floating_point

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype.is_floating_point

    def __repr__(self) -> str:
        return f"{SOL_NAME[self.dtype]}{list(self.shape)}"


Number = bool | int | float


class Complex:
    """A complex tensor: two real tensors with equal shape and type. If `im` is None, the imaginary part is 0
    everywhere."""

    __slots__ = ("im", "re")

    def __init__(self, re: Value, im: Value | None) -> None:
        self.re, self.im = re, im

    @property
    def dtype(self) -> torch.dtype:
        return self.re.dtype.to_complex()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.re.shape

    @property
    def ndim(self) -> int:
        return self.re.ndim

    @property
    def tracked(self) -> bool:
        return self.re.tracked or (self.im is not None and self.im.tracked)

    def __repr__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


def sol_name(dtype: torch.dtype) -> str:
    """SOL's name of a dtype. Rejects dtypes that SOL does not support, by name."""
    if dtype not in SOL_NAME:
        raise Rejected(f"data type {str(dtype).removeprefix('torch.')}")
    return SOL_NAME[dtype]


def axis_of(dim: int, ndim: int) -> int:
    """A dimension, counted from the front. As in PyTorch, a scalar counts as one dimension."""
    return dim % max(ndim, 1)


class Builder:
    """Adds layers to a graph. `out` is PyTorch's description of the current operator's result."""

    def __init__(self, graph: _core.Graph) -> None:
        self.graph = graph
        self.name = ""
        self.line = ""
        self.target = ""
        self.row_major = False
        self.sized: Callable[[Any], Any] = lambda arg: arg  # gives arguments of the trace the sizes of the program
        self.memory: Callable[[], tuple[Value, Any, int]]  # of the operator's first argument; see Translator._memory
        self.out: Any = None
        self.seed: Value | None = None  # the input of random layers, created with the first of them
        self.writes: list[
            tuple[str, Value]
        ] = []  # arguments that the operator writes although its schema does not say so
        self.params: dict[str, Value] = {}  # of the module that a hook translates
        self.drawn = 0  # positions of the stream that earlier layers use
        self._scalars: dict[tuple[str, str], Value] = {}

    # -- layers

    def layers(self, kind: str, *inputs: Value | None, outputs: int = 1, **attrs: Any) -> tuple[Value, ...]:
        """Adds a layer with several outputs."""
        handles = [None if v is None else v.handle for v in inputs]
        while handles and handles[-1] is None:
            handles.pop()
        attrs = {name: forms.form(value) for name, value in attrs.items()}
        made = self.graph.layer(kind, self.name, self.line, tuple(handles), attrs, outputs)
        tracked = kind != "stop" and any(v is not None and v.tracked for v in inputs)
        return tuple(Value(t, tracked) for t in made)

    def param(self, name: str) -> Value:
        """A parameter or buffer of the module that a hook translates."""
        if name not in self.params:
            raise Rejected(f"its hook asks for the parameter {name!r}; it has {', '.join(self.params) or 'none'}")
        return self.params[name]

    def write(self, argument: str, value: Value) -> None:
        """Records that the current operator writes one of its arguments although its schema does not say so."""
        self.writes.append((argument, value))

    def layer(self, kind: str, *inputs: Value | None, **attrs: Any) -> Value:
        """Adds a layer with one output."""
        return self.layers(kind, *inputs, **attrs)[0]

    def map(self, function: str, *inputs: Value) -> Value:
        """Applies an element-wise function to values of one type; shapes are broadcast."""
        if inputs[-1].dtype == torch.bool and function not in _ON_BOOL:
            raise Rejected(f"{function} of bool")
        if inputs[-1].dtype == torch.bool:
            function = _ON_BOOL[function]
        return self.layer(function, *inputs)

    # -- constants and types

    def scalar(self, value: Number | forms.Size | Real, dtype: torch.dtype) -> Value:
        """A scalar: a constant, or a number that varies."""
        name = sol_name(dtype)
        if isinstance(value, Real):
            return self.cast(value.value(self), dtype)
        if isinstance(value, forms.Size):
            return self.reshape(self.layer("Sizes", sizes=[value], to=name), [])
        value = convert(value, dtype)
        key = (name, repr(value))
        if key not in self._scalars:
            self._scalars[key] = Value(self.graph.const(name, (), struct.pack("=" + _FORMAT[name], value)))
        return self._scalars[key]

    def const(self, data: torch.Tensor) -> Value:
        """A constant tensor; the data is copied."""
        name = sol_name(data.dtype)
        data = data.detach().contiguous()
        raw = data.view(-1).view(torch.uint8).numpy().tobytes() if data.numel() else b""
        return Value(self.graph.const(name, tuple(data.shape), raw))

    # -- complex numbers: pairs in memory, along an additional last dimension

    def pairs(self, x: Complex) -> Value:
        """A complex tensor as in memory: each real part is followed by its imaginary part."""
        return self.layer("Stack", x.re, self.imaginary(x), axis=x.ndim)

    def from_pairs(self, x: Value) -> Complex:
        """The complex tensor with these pairs in memory."""
        re, im = (self.layer("Select", x, axis=x.ndim - 1, index=k) for k in (0, 1))
        return Complex(re, im)

    def imaginary(self, x: Complex) -> Value:
        """The imaginary part, as a tensor even if it is 0."""
        return self.fill(x.shape, 0, x.re.dtype) if x.im is None else x.im

    def ints(self, values: Sequence[int]) -> Value:
        """A constant list of indices."""
        return self.const(torch.tensor(values, dtype=torch.int64))

    def fill(self, shape: Sequence[int], value: Number, dtype: torch.dtype) -> Value:
        """A tensor whose elements all have this value."""
        return self.expand(self.scalar(value, dtype), shape)

    def random(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Value:
        """Uniform numbers in [0, 1). The call's seed and the positions determine them, so they can be recomputed.

        They have 24 bits, or 48 bits for float64.
        """
        if self.seed is None:
            self.seed = Value(self.graph.input("seed", "i64", ()))
        n = math.prod(shape)
        parts = []
        for _ in range(2 if dtype == torch.float64 else 1):
            parts.append(self.layer("Rand", self.seed, n=n, k=self.drawn, to=sol_name(dtype)))
            self.drawn += n
        y = parts[0] if len(parts) == 1 else self.add(parts[0], self.mul(parts[1], 2.0**-24))
        return self.reshape(y, shape)

    def normal(self, shape: Sequence[int], dtype: torch.dtype) -> Value:
        """Normally distributed numbers, by the Box-Muller method."""
        radius = self.map("sqrt", self.mul(self.map("log1p", self.map("neg", self.random(shape, dtype))), -2))
        return self.map("mul", radius, self.map("cos", self.mul(self.random(shape, dtype), 2 * math.pi)))

    def cast(self, x: Value, dtype: torch.dtype) -> Value:
        """Converts x to another type."""
        return x if x.dtype == dtype else self.layer("Cast", x, to=sol_name(dtype))

    def result_type(self, *values: Value | Number) -> torch.dtype:
        """The type in which PyTorch computes with these operands."""
        numbers = (1.0 if isinstance(v, Real) else forms.hint(v) for v in values)  # their types matter
        protos = [
            _prototype(v.dtype, v.ndim > 0) if isinstance(v, Value) else n for v, n in zip(values, numbers, strict=True)
        ]
        dtype = torch.result_type(protos[0], protos[1]) if len(protos) > 1 else None
        if dtype is None:
            return protos[0].dtype if isinstance(protos[0], torch.Tensor) else torch.result_type(protos[0], protos[0])
        # Three operands: as with two, tensors with dimensions decide before scalars.
        for k in range(2, len(protos)):
            other = torch.result_type(protos[k - 2], protos[k])
            dtype = torch.promote_types(torch.promote_types(dtype, other), torch.result_type(protos[k - 1], protos[k]))
        return dtype

    def as_value(self, x: Value | Number, dtype: torch.dtype) -> Value:
        """Converts a tensor or number to a tensor of this type."""
        return self.cast(x, dtype) if isinstance(x, Value) else self.scalar(x, dtype)

    def promote(self, *values: Value | Number, floats: bool = False) -> list[Value]:
        """Converts all operands to the type in which PyTorch computes. `floats`: integers become the default float."""
        dtype = self.result_type(*values)
        if floats and not dtype.is_floating_point:
            dtype = torch.get_default_dtype()
        return [self.as_value(v, dtype) for v in values]

    def to_out(self, x: Value | Number) -> Value:
        """Converts an operand to the type of the operator's result."""
        return self.as_value(x, self.out.dtype)

    # -- views

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """The same elements in another shape."""
        return x if tuple(shape) == x.shape else self.layer("Reshape", x, shape=list(shape))

    def permute(self, x: Value, order: Sequence[int]) -> Value:
        """Dimension i of the result is dimension order[i] of x."""
        return x if list(order) == list(range(x.ndim)) else self.layer("Permute", x, perm=list(order))

    def transpose(self, x: Value, a: int = -2, b: int = -1) -> Value:
        """Swaps two dimensions."""
        order = list(range(x.ndim))
        a, b = axis_of(a, x.ndim), axis_of(b, x.ndim)
        if order:
            order[a], order[b] = order[b], order[a]
        return self.permute(x, order)

    def expand(self, x: Value, shape: Sequence[int]) -> Value:
        """Repeats dimensions of size 1, and adds dimensions in front."""
        return x if tuple(shape) == x.shape else self.layer("Expand", x, shape=list(shape))

    def unsqueeze(self, x: Value, dim: int) -> Value:
        """Adds a dimension of size 1."""
        dim %= x.ndim + 1
        return self.reshape(x, x.shape[:dim] + (1,) + x.shape[dim:])

    def squeeze(self, x: Value, *dims: int) -> Value:
        """Removes those of the dimensions whose size is 1."""
        gone = {axis_of(d, x.ndim) for d in dims}
        return self.reshape(x, [s for d, s in enumerate(x.shape) if d not in gone or s != 1])

    def slice(self, x: Value, dim: int, start: Any, end: Any, step: int = 1) -> Value:
        """Takes start:end:step along a dimension."""
        dim = axis_of(dim, x.ndim)
        start, end, step = forms.indices(start, end, step, x.shape[dim])
        if (start, end, step) == (0, x.shape[dim], 1):
            return x
        return self.layer("Slice", x, axes=[dim], start=[start], end=[forms.most(end, start)], step=[step])

    def concat(self, values: Sequence[Value], dim: int) -> Value:
        """Concatenates tensors along a dimension."""
        return values[0] if len(values) == 1 else self.layer("Concat", *values, axis=dim)

    # -- shorthands for common operations

    def add(self, x: Value, y: Value | Number) -> Value:
        return self.map("add", x, self.as_value(y, x.dtype))

    def sub(self, x: Value, y: Value | Number) -> Value:
        return self.map("sub", x, self.as_value(y, x.dtype))

    def mul(self, x: Value, y: Value | Number) -> Value:
        return self.map("mul", x, self.as_value(y, x.dtype))

    def div(self, x: Value, y: Value | Number) -> Value:
        return self.map("div", x, self.as_value(y, x.dtype))

    def compare(self, function: str, x: Value, y: Value | Number) -> Value:
        return self.map(function, x, self.as_value(y, x.dtype))

    def where(self, condition: Value, x: Value, y: Value | Number) -> Value:
        """x where the condition holds, elsewhere y. The condition is converted to the type of x, because all arguments
        of SOL's functions have the same type."""
        return self.map("where", self.cast(condition, x.dtype), x, self.as_value(y, x.dtype))

    def reduce(self, kind: str, x: Value, dims: Sequence[int] | int | None, keep: bool = False, **attrs: Any) -> Value:
        """A reduction over `dims`, or over all dimensions if there are none."""
        if isinstance(dims, int):
            dims = [dims]
        axes = sorted({axis_of(d, x.ndim) for d in dims}) if dims else list(range(x.ndim))
        if x.ndim == 0:
            return self.reshape(self.reduce(kind, self.reshape(x, [1]), None, **attrs), [])
        return self.layer(kind, x, axes=axes, keep=int(keep), **attrs)


def convert(value: Number, dtype: torch.dtype) -> Number:
    """Converts a Python number to an element of this type, by PyTorch's rules."""
    if dtype == torch.bool:
        return bool(value)
    if dtype.is_floating_point:
        value = float(value)
        if dtype == torch.float32 and math.isfinite(value):
            return torch.tensor(value, dtype=torch.float32).item()
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise Rejected(f"{value} as a number of type {str(dtype).removeprefix('torch.')}")
    bits = 8 * dtype.itemsize
    value = int(value) & ((1 << bits) - 1)
    return value - (1 << bits) if dtype.is_signed and value >> (bits - 1) else value


_prototypes: dict[tuple[torch.dtype, bool], torch.Tensor] = {}


def _prototype(dtype: torch.dtype, dimensioned: bool) -> torch.Tensor:
    key = (dtype, dimensioned)
    if key not in _prototypes:
        _prototypes[key] = torch.empty((1,) if dimensioned else (), dtype=dtype, device="meta")
    return _prototypes[key]
