"""What rows of the operators' tables are written with. An operand is a `Value` of the graph or, where its elements are known while
the model is read, an array; its elements may be sizes that vary (`sol.forms.Size`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sol import _core, forms
from sol.parsed import CORE, NUMPY
from sol.rows import Rejected

_INSTEAD = dict.fromkeys(("float16", "bfloat16"), "; use float32 (keras.config.set_dtype_policy('float32'))")
_INSTEAD |= dict.fromkeys(("complex64", "complex128"), "; compute with real and imaginary parts")
_INSTEAD["string"] = "; prepare strings in front of the model, in functions of tf.data"
TYPE = {core: tf.as_dtype(name) for core, name in NUMPY.items()}


class Value:
    """A tensor of the graph."""

    __slots__ = ("dtype", "handle", "shape")

    def __init__(self, handle: _core.Tensor) -> None:
        self.handle, self.dtype = handle, handle.dtype
        self.shape = tuple(map(forms.size, handle.shape))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> Any:
        """The number of elements."""
        return math.prod(self.shape)


class Items:
    """A TensorList: its elements, None where there is none yet."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = list(items)


def core_type(dtype: Any) -> str:
    """SOL's name of a type of TensorFlow."""
    if dtype.name not in CORE or dtype == tf.float16:
        raise Rejected(f"data type {dtype.name}{_INSTEAD.get(dtype.name, '')}")
    return CORE[dtype.name]


def sizes_in(x: Any) -> bool:
    """Whether an array has sizes that vary among its elements."""
    return isinstance(x, np.ndarray) and x.dtype == object


class Builder:
    """Adds layers to a graph. `name` and `where` are those of the operator that is translated."""

    def __init__(self, graph: _core.Graph) -> None:
        self.graph, self.name, self.where, self.drawn = graph, "", "", 0
        self.types: dict[int, str] = {}  # of the operator's operands that are arrays of sizes, by id

    def layers(self, kind: str, *inputs: Any, outputs: int = 1, **attrs: Any) -> tuple[Value, ...]:
        """Adds a layer with several outputs."""
        handles = tuple(self.value(x).handle for x in inputs)
        given = {k: forms.form(v) for k, v in attrs.items()}
        return tuple(map(Value, self.graph.layer(kind, self.name, self.where, handles, given, outputs)))

    def layer(self, kind: str, *inputs: Any, **attrs: Any) -> Value:
        """Adds a layer, or an element-wise function."""
        return self.layers(kind, *inputs, **attrs)[0]

    def value(self, x: Any) -> Value:
        """An operand as a tensor of the graph."""
        if isinstance(x, Value):
            return x
        if x is None or isinstance(x, Items):
            raise Rejected("an operand that is no tensor")
        if sizes_in(x):
            y = self.layer("Sizes", sizes=[v if type(v) is forms.Size else int(v) for v in x.reshape(-1)], to=self.types.get(id(x), "i64"))
            return self.reshape(y, x.shape)
        a = np.asarray(x)
        if a.dtype.name not in CORE:
            raise Rejected(f"data type {a.dtype.name}")
        return Value(self.graph.const(CORE[a.dtype.name], a.shape, np.ascontiguousarray(a).tobytes()))

    def scalar(self, v: Any, dtype: str) -> Value:
        """A number as a constant."""
        return self.value(np.array(v, NUMPY[dtype]))

    def cast(self, x: Any, dtype: str) -> Value:
        """The operand in another type."""
        x = self.value(x)
        return x if x.dtype == dtype else self.layer("Cast", x, to=dtype)

    def reshape(self, x: Value, shape: Sequence[Any]) -> Value:
        """The same elements in another shape."""
        return x if tuple(shape) == x.shape else self.layer("Reshape", x, shape=list(shape))

    def permute(self, x: Value, perm: Sequence[int]) -> Value:
        """The dimensions in another order."""
        return x if list(perm) == list(range(x.ndim)) else self.layer("Permute", x, perm=list(perm))

    def swap(self, x: Value) -> Value:
        """The last two dimensions exchanged."""
        return self.permute(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])

    def first(self, x: Value) -> Value:
        """NHWC as NCHW; a view."""
        return self.permute(x, [0, x.ndim - 1, *range(1, x.ndim - 1)])

    def last(self, x: Value) -> Value:
        """NCHW as NHWC; a view."""
        return self.permute(x, [0, *range(2, x.ndim), 1])

    def known(self, x: Any) -> np.ndarray[Any, Any]:
        """The elements of an operand that SOL has to know."""
        if isinstance(x, Value):
            raw = x.handle.known()
            x = None if raw is None else np.frombuffer(raw, NUMPY[x.dtype]).reshape(x.shape)
        if x is None:
            raise Rejected("needs the value of an operand, which only a call tells")
        return np.asarray(x)

    def ints(self, x: Any) -> list[Any]:
        """The same as a list of numbers or sizes."""
        return [v if type(v) is forms.Size else int(v) for v in self.known(x).reshape(-1)]

    def number(self, x: Any) -> Any:
        """The same for one number or size."""
        return self.ints(x)[0]

    def axes(self, x: Any, ndim: int) -> list[int]:
        """Axes, counted from the front."""
        return [a % ndim for a in self.ints(x)]
