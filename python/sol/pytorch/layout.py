"""The memory layout of a tensor: the order of dimensions in memory, repeated elements and gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sol.forms import hint


@dataclass(frozen=True)
class Layout:
    """Sizes and strides, which may vary. `order` lists the dimensions from outermost to innermost in memory."""

    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    order: tuple[int, ...]
    repeated: tuple[int, ...]  # dimensions with stride 0, which repeat elements
    dense: bool  # no gaps: it is a permutation of row-major data

    @staticmethod
    def of(t: Any) -> Layout:
        """The layout of a tensor, real, traced or Shaped."""
        shape, strides = tuple(t.shape), tuple(t.stride())
        if t.is_contiguous() or 0 in shape:
            return Layout(shape, row_major(shape), tuple(range(len(shape))), (), True)
        repeated = tuple(d for d, (n, s) in enumerate(zip(shape, strides, strict=True)) if s == 0 and n not in (0, 1))
        sizes = [1 if d in repeated else n for d, n in enumerate(shape)]
        # A dimension of size 1 stays next to the dimension before it, since its position makes no difference.
        key: list[tuple[int, int]] = []
        for d, n in enumerate(sizes):
            key.append((-hint(strides[d]), d) if n != 1 else (key[-1][0] if key else -(1 << 62), d))
        order = tuple(sorted(range(len(shape)), key=lambda d: key[d]))
        expected, dense = 1, True
        for d in reversed(order):
            dense &= sizes[d] == 1 or strides[d] == expected
            expected *= sizes[d]
        return Layout(shape, strides, order, repeated, dense)

    @property
    def plain(self) -> bool:
        """Whether the layout is row-major."""
        return self.dense and not self.repeated and self.order == tuple(range(len(self.order)))

    @property
    def physical(self) -> tuple[int, ...]:
        """The sizes in memory order."""
        return tuple(1 if d in self.repeated else self.shape[d] for d in self.order)

    @property
    def inverse(self) -> tuple[int, ...]:
        """The permutation from memory order to the tensor's own order."""
        return tuple(self.order.index(d) for d in range(len(self.order)))


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of row-major data."""
    strides, n = [], 1
    for size in reversed(shape):
        strides.append(n)
        n *= 1 if size == 0 else size
    return tuple(reversed(strides))
