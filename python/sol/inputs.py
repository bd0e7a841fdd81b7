"""`sol.input`: describes an argument without its data; `sol.dim`: a dimension of it whose size varies; `vdims`, which selects those."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import _core

USUAL = 128  # the size to compile for where nothing is said, but for the batch


@dataclass(frozen=True)
class Dim:
    """A dimension whose size varies between calls. Dimensions with one name have one size."""

    name: str
    min: int = 1
    max: int | None = None
    multiple: int = 1  # of which the size is a multiple
    example: int | None = None  # the size to compile for now; None: SOL chooses

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise _core.InvalidError(f"sol.dim: name: expected text, got {self.name!r}")
        low, high = max(self.min, self.multiple), self.max
        for key, value, least in (("min", self.min, 0), ("multiple", self.multiple, 1)):
            if value < least:
                raise _core.InvalidError(f"sol.dim: {self.name!r}: {key} is {value}, expected {least} or more")
        if high is not None and high // self.multiple * self.multiple < low:
            raise _core.InvalidError(f"sol.dim: {self.name!r}: no size fits {self.rule}")
        if self.example is not None and (wrong := self.misfit(self.example)):
            raise _core.InvalidError(f"sol.dim: example: {wrong}")

    @property
    def rule(self) -> str:
        """The sizes that fit, in words."""
        multiple = f", a multiple of {self.multiple}" if self.multiple > 1 else ""
        return f"{self.min}..{'' if self.max is None else self.max}{multiple}"

    def misfit(self, size: int) -> str | None:
        """Why a size does not fit; None: it does."""
        if size < self.min or (self.max is not None and size > self.max) or size % self.multiple:
            return f"'{self.name}' is {size}, expected {self.rule}"
        return None

    def sized(self, usual: int) -> int:
        """The size to compile for now."""
        if self.example is not None:
            return self.example
        low = -(-self.min // self.multiple) * self.multiple
        size = max(usual // self.multiple * self.multiple, low)
        return size if self.max is None else min(size, self.max // self.multiple * self.multiple)

    def __str__(self) -> str:
        return self.name


ANY = Dim("*", 0)


def type_name(dtype: Any) -> str:
    """NumPy's name of a data type of any framework; None is float32."""
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype or "float32")
    return str(name).removeprefix("torch.")


@dataclass(frozen=True)
class Input:
    """A tensor argument: its shape (0: any size; a Dim: any size that fits it), its type, and whether it requires a gradient."""

    shape: tuple[Any, ...]
    requires_grad: bool = False
    dtype: Any = None

    def __post_init__(self) -> None:
        if any(isinstance(size, int) and size < 0 for size in self.shape):
            raise _not_sizes(list(self.shape))

    def varies(self, i: int) -> bool:
        """Whether dimension i may have any size."""
        return isinstance(self.shape[i], Dim) or self.shape[i] == 0

    def sized(self, batch: int) -> tuple[int, ...]:
        """The shape to compile for now, with this batch size in place of a 0 in front."""
        usual = [USUAL if i else batch for i in range(len(self.shape))]
        return tuple(
            n.sized(u) if isinstance(n, Dim) else n or (u if self.varies(i) else 0)
            for i, (n, u) in enumerate(zip(self.shape, usual, strict=True))
        )

    def __str__(self) -> str:
        sizes = ", ".join(str(ANY) if n == 0 and self.varies(i) else str(n) for i, n in enumerate(self.shape))
        return f"{str(self.dtype or 'float32').removeprefix('torch.')}[{sizes}]"


class Exact(Input):
    """An input like a tensor given to sol.optimize: a size of 0 is a size."""

    def varies(self, i: int) -> bool:
        """Whether dimension i may have any size."""
        return isinstance(self.shape[i], Dim)


def input(shape: Sequence[int | Dim], requires_grad: bool = False, dtype: Any = None) -> Input:
    """Describes a tensor argument: `sol.input([0, 3, 224, 224], dtype=torch.float32)`. A size of 0 varies between calls; so does
    one that `sol.dim` describes."""
    try:
        sizes = tuple(size if isinstance(size, Dim) else operator.index(size) for size in shape)
    except TypeError:
        raise _not_sizes(shape) from None
    if any(isinstance(size, bool) for size in shape):
        raise _not_sizes(shape)
    return Input(sizes, requires_grad, dtype)


def dim(name: str, min: int = 1, max: int | None = None, multiple: int = 1, example: int | None = None) -> Dim:
    """Describes a dimension for `sol.input` whose size varies between calls: `sol.input([sol.dim("batch"), 3, 224, 224])`.

    name      sizes of dimensions with one name are equal in each call
    min       the least size that calls may have
    max       the largest one
    multiple  all sizes are multiples of it
    example   the size to compile for now
    """
    return Dim(name, min, max, multiple, example)


def _not_sizes(given: object) -> _core.InvalidError:
    return _core.InvalidError(f"sol.input: expected a list of sizes, 0 or sol.dim(..) for any size, got {given!r}")


def vdims_wanted(vdims: Any) -> bool:
    """Whether `vdims` asks for anything."""
    if vdims is None or isinstance(vdims, bool):
        return bool(vdims)
    if not isinstance(vdims, list | tuple) or not all(isinstance(v, int) and v >= 0 for v in vdims):
        raise _core.InvalidError(f"vdims: expected True, False, or a list of True, False and sizes, got {vdims!r}")
    return any(vdims)
