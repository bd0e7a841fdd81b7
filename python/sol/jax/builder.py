"""What rows of the table make layers with: values of the graph, and the layers that many rows need."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sol import _core, forms
from sol.parsed import CORE, NUMPY

from .operators.table import Rejected

MOST_UNROLLED = 4096  # steps of a loop


def sol_name(dtype: Any) -> str:
    """SOL's name of a type. Rejected: it computes with no such numbers."""
    name = np.dtype(dtype).name
    if name not in CORE or name == "float16":
        raise Rejected(f"arrays of type {name}")
    return CORE[name]


class Value:
    """A tensor of the graph."""

    __slots__ = ("dtype", "handle", "shape")

    def __init__(self, handle: _core.Tensor) -> None:
        self.handle = handle
        self.dtype = handle.dtype
        self.shape = tuple(map(forms.size, handle.shape))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def real(self) -> bool:
        """Whether it holds real numbers."""
        return self.dtype in ("f32", "f64")


class Builder:
    """Makes layers of a graph. The translation sets `kind`, `name`, `where` and `out` in front of each row."""

    def __init__(self, graph: _core.Graph) -> None:
        self.graph = graph
        self.kind = ""  # the primitive
        self.name = ""  # for messages
        self.where = ""  # the line of the user's function
        self.out: list[tuple[tuple[int, ...], str]] = []  # shapes and types of the results

    def layers(self, kind: str, *operands: Value, outputs: int = 1, **attributes: Any) -> list[Value]:
        """The results of a layer."""
        handles = tuple(x.handle for x in operands)
        given = {k: forms.form(v) for k, v in attributes.items()}
        return [Value(t) for t in self.graph.layer(kind, self.name, self.where, handles, given, outputs)]

    def layer(self, kind: str, *operands: Value, **attributes: Any) -> Value:
        """The first result of a layer."""
        return self.layers(kind, *operands, **attributes)[0]

    def const(self, array: Any) -> Value:
        """A constant."""
        a = np.asarray(array)
        return Value(self.graph.const(sol_name(a.dtype), a.shape, np.ascontiguousarray(a).tobytes()))

    def scalar(self, number: Any, dtype: str) -> Value:
        """A constant without dimensions, of a type by SOL's name."""
        if forms.varies(number):
            return self.reshape(self.layer("Sizes", sizes=[number], to=dtype), ())
        return self.const(np.array(number, np.dtype(NUMPY[dtype])))

    def fill(self, number: float, shape: Sequence[int], dtype: str) -> Value:
        """The same number everywhere."""
        return self.expand(self.scalar(number, dtype), shape)

    def cast(self, x: Value, dtype: str) -> Value:
        """x as another type."""
        return x if x.dtype == dtype else self.layer("Cast", x, to=dtype)

    def reshape(self, x: Value, shape: Iterable[int]) -> Value:
        """x with other dimensions."""
        sizes = list(shape)
        return x if x.shape == tuple(sizes) else self.layer("Reshape", x, shape=sizes)

    def expand(self, x: Value, shape: Iterable[int]) -> Value:
        """x repeated along dimensions of size 1, and new ones in front."""
        sizes = list(shape)
        return x if x.shape == tuple(sizes) else self.layer("Expand", x, shape=sizes)

    def permute(self, x: Value, order: Iterable[int]) -> Value:
        """x with its dimensions in another order."""
        perm = list(order)
        return x if perm == list(range(x.ndim)) else self.layer("Permute", x, perm=perm)

    def permute_back(self, x: Value, order: Sequence[int]) -> Value:
        """The inverse of `permute` with this order."""
        return self.permute(x, np.argsort(order).tolist())

    def slice(self, x: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
        """Part of one dimension."""
        whole = start == 0 and end == x.shape[axis] and step == 1
        return x if whole else self.layer("Slice", x, axes=[axis], start=[start], end=[end], step=[step])

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        """Joined along a dimension."""
        return parts[0] if len(parts) == 1 else self.layer("Concat", *parts, axis=axis)

    def iota(self, shape: Sequence[int], axis: int, dtype: str = "i64") -> Value:
        """The position along a dimension; sizes of other dimensions may be 1 and broadcast."""
        x = self.layer("Range", n=shape[axis], to=dtype)
        return self.expand(self.reshape(x, [n if i == axis else 1 for i, n in enumerate(shape)]), shape)

    def known(self, x: Value) -> np.ndarray[Any, Any] | None:
        """The value, if it does not depend on arguments."""
        data = x.handle.known()
        return None if data is None else np.frombuffer(data, np.dtype(NUMPY[x.dtype])).reshape(x.shape)

    def number(self, x: Value, what: str) -> Any:
        """The value of a scalar that must be known while translating."""
        value = self.known(x)
        if value is None or value.size != 1:
            raise Rejected(f"{what} depends on data")
        return value.reshape(())[()]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the (first) result."""
        return self.out[0][0]


def product(sizes: Iterable[int]) -> int:
    """The number of elements."""
    return math.prod(sizes)
