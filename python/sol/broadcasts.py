"""How shapes broadcast, for element-wise networks whose sizes are given at launch."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple


class Merged(NamedTuple):
    """Neighbouring dimensions that all tensors have, or broadcast, alike are one. dims: their sizes; has: by tensor, which of them it
    has (None: a scalar); shape: of a result."""

    dims: tuple[int, ...]
    has: tuple[tuple[bool, ...] | None, ...]
    shape: tuple[int, ...]


@functools.lru_cache(1 << 12)
def merged(shapes: tuple[tuple[int, ...], ...]) -> Merged | None:
    """The dimensions of row-major tensors of these shapes. None: they have no two elements, or do not broadcast."""
    ndim = max(map(len, shapes))
    full = [(1,) * (ndim - len(s)) + s for s in shapes]
    shape = tuple([max(sizes) if 0 not in sizes else 0 for sizes in zip(*full, strict=True)])
    if math.prod(shape) < 2 or any(n not in (1, m) for s in full for n, m in zip(s, shape, strict=True)):
        return None
    dims: list[int] = []
    has: list[tuple[bool, ...]] = []  # by dimension, of each tensor
    for n, *sizes in zip(shape, *full, strict=True):
        if n == 1:
            continue
        some = tuple([size == n for size in sizes])
        if has and has[-1] == some:
            dims[-1] *= n
        else:
            dims.append(n)
            has.append(some)
    of = tuple([tuple([some[i] for some in has]) if s else None for i, s in enumerate(shapes)])
    return Merged(tuple(dims), of, shape)
