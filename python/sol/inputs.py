"""`sol.input`: describes an argument without its data."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import _core


@dataclass(frozen=True)
class Input:
    """A tensor argument: its shape (a leading 0: any batch size), its type, and whether it requires a gradient."""

    shape: tuple[int, ...]
    requires_grad: bool = False
    dtype: Any = None

    def __post_init__(self) -> None:
        for i, size in enumerate(self.shape):
            if size < 0:
                raise _not_sizes(list(self.shape))
            if size == 0 and i > 0:
                raise _core.InvalidError(
                    f"sol.input: only the first size may be 0 (any batch size), got {list(self.shape)}: for an empty "
                    "dimension give a tensor, such as torch.zeros(sizes)"
                )

    def sized(self, batch: int) -> tuple[int, ...]:
        """The shape with this batch size in place of the leading 0."""
        return (batch, *self.shape[1:]) if self.shape and self.shape[0] == 0 else self.shape

    def __str__(self) -> str:
        sizes = ", ".join("*" if i == 0 and n == 0 else str(n) for i, n in enumerate(self.shape))
        return f"{str(self.dtype or 'float32').removeprefix('torch.')}[{sizes}]"


def input(shape: Sequence[int], requires_grad: bool = False, dtype: Any = None) -> Input:
    """Describes a tensor argument: `sol.input([0, 3, 224, 224], dtype=torch.float32)`; a leading 0 is any batch size."""
    try:
        sizes = tuple(map(operator.index, shape))
    except TypeError:
        raise _not_sizes(shape) from None
    if any(isinstance(size, bool) for size in shape):
        raise _not_sizes(shape)
    return Input(sizes, requires_grad, dtype)


def _not_sizes(given: object) -> _core.InvalidError:
    return _core.InvalidError(f"sol.input: expected a list of sizes, 0 in front for any batch size, got {given!r}")
