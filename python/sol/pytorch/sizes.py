"""The sizes of a symbolic trace as those of one call: `Sizes` puts values in place of the symbols."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from . import fake
from .symbols import SYMBOLIC, plain


class Shaped:
    """A tensor of a trace, as operators' translations see it: its type, its shape and where its elements lie."""

    __slots__ = ("_offset", "_strides", "device", "dtype", "shape")

    def __init__(self, t: torch.Tensor, shape: tuple[Any, ...], strides: tuple[Any, ...], offset: Any) -> None:
        self.dtype, self.device = t.dtype, t.device
        self.shape, self._strides, self._offset = shape, strides, offset

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def stride(self) -> tuple[Any, ...]:
        """As torch.Tensor.stride, in elements."""
        return self._strides

    def storage_offset(self) -> Any:
        """As torch.Tensor.storage_offset, in elements."""
        return self._offset

    def numel(self) -> Any:
        """Number of elements."""
        return math.prod(self.shape)

    def is_complex(self) -> bool:
        """Does it have complex numbers?"""
        return self.dtype.is_complex

    def is_contiguous(self) -> bool:
        """Is it row-major?"""
        n: Any = 1
        for size, stride in zip(reversed(self.shape), reversed(self._strides), strict=True):
            if size != 1 and stride != n:
                return 0 in self.shape
            n = n * size
        return True


class Sizes:
    """Values for the symbols of a trace. Translations ask it for sizes, and for the tensors of nodes."""

    def __init__(self, values: Mapping[sympy.Symbol, Any]) -> None:
        self.values = {symbol: sympy.Integer(n) for symbol, n in values.items()}
        self._known: dict[Any, Any] = {}

    def of(self, arg: Any) -> Any:
        """An argument or result with values in place of symbols; tensors become `Shaped`."""
        if isinstance(arg, SYMBOLIC):
            return self._number(arg.node.expr)
        if isinstance(arg, torch.Tensor):
            return self._tensor(arg)
        if isinstance(arg, tuple):
            return tuple(map(self.of, arg))
        if isinstance(arg, list):
            return [self.of(a) for a in arg]
        if isinstance(arg, dict):
            return {k: self.of(v) for k, v in arg.items()}
        if isinstance(arg, slice):
            return slice(self.of(arg.start), self.of(arg.stop), self.of(arg.step))
        return arg

    def fake(self, mode: FakeTensorMode, t: torch.Tensor) -> FakeTensor:
        """A tensor without data that has numbers as sizes."""
        shaped = self._tensor(t)
        return fake.fresh(mode, (shaped.shape, shaped.stride(), shaped.dtype, shaped.device))

    def _number(self, expr: sympy.Expr) -> Any:
        if expr not in self._known:
            made = plain(expr.xreplace(self.values))
            if isinstance(made, sympy.Basic):
                made = plain(made.doit())
            self._known[expr] = made
        return self._known[expr]

    def _tensor(self, t: torch.Tensor) -> Shaped:
        if t.layout != torch.strided:
            return t  # type: ignore[return-value]
        shape, strides = tuple(map(self.of, t.shape)), tuple(map(self.of, t.stride()))
        return Shaped(t, shape, strides, self.of(t.storage_offset()))
