"""Sizes of a program that vary between its calls: SOL's forms, with the arithmetic of numbers.

`Size` is deliberately not an int: what needs a number (a range, a list of positions) fails, and names the size. A comparison gives
an answer if it holds for all sizes, or for none.
"""

from __future__ import annotations

from typing import Any

from sol import _core

_END = 1 << 62  # PyTorch's word for the end of a dimension
_MOST_MULTIPLE = 128
_ADD, _SUB, _MUL, _FLOOR_DIV, _MOD, _MIN, _MAX = range(7)  # enum sol_size_op


class Varies(Exception):
    """Something needs a number, or is not known for all sizes. The message says what."""


class Size:
    """A size that varies. Equal forms are equal sizes; others differ somewhere."""

    __slots__ = ("form",)

    def __init__(self, form: int) -> None:
        self.form = form

    def __add__(self, other: Any) -> Any:
        return _made(_ADD, self, other)

    def __radd__(self, other: Any) -> Any:
        return _made(_ADD, other, self)

    def __sub__(self, other: Any) -> Any:
        return _made(_SUB, self, other)

    def __rsub__(self, other: Any) -> Any:
        return _made(_SUB, other, self)

    def __mul__(self, other: Any) -> Any:
        return _made(_MUL, self, other)

    def __rmul__(self, other: Any) -> Any:
        return _made(_MUL, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _made(_FLOOR_DIV, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _made(_FLOOR_DIV, other, self)

    def __mod__(self, other: Any) -> Any:
        return _made(_MOD, self, other)

    def __rmod__(self, other: Any) -> Any:
        return _made(_MOD, other, self)

    def __neg__(self) -> Any:
        return _made(_SUB, 0, self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.form == other.form

    def __hash__(self) -> int:
        return hash(self.form)

    def __le__(self, other: Any) -> bool:
        return _known(self, other, "<=")

    def __ge__(self, other: Any) -> bool:
        return _known(other, self, "<=")

    def __lt__(self, other: Any) -> bool:
        return not _known(other, self, "<=")

    def __gt__(self, other: Any) -> bool:
        return not _known(self, other, "<=")

    def __bool__(self) -> bool:
        return not _known(self, 0, "<=")

    def _number(self) -> int:
        raise Varies(f"needs a number, but a size is {self}")

    __int__ = __index__ = __float__ = _number

    def __repr__(self) -> str:
        return _core.size_text(self.form)


def size(n: int) -> Any:
    """A size of the graph: a number, or a Size."""
    return Size(n) if _core.size_varies(n) else n


def varies(*values: Any) -> bool:
    """Whether one of these varies."""
    return any(type(v) is Size for v in values)


def form(n: Any) -> Any:
    """What the graph takes: the form of a Size, or the value itself; also in lists."""
    if type(n) is Size:
        return n.form
    return [form(v) for v in n] if type(n) in (list, tuple) else n


def least(a: Any, b: Any) -> Any:
    """min(a, b), which may be a size."""
    return _made(_MIN, a, b) if type(a) is Size or type(b) is Size else min(a, b)


def most(a: Any, b: Any) -> Any:
    """max(a, b), which may be a size."""
    return _made(_MAX, a, b) if type(a) is Size or type(b) is Size else max(a, b)


def indices(start: Any, end: Any, step: Any, n: Any) -> tuple[Any, Any, Any]:
    """Where start:end:step of a dimension of size n begins and ends, as slice.indices has it."""
    if Size not in map(type, (start, end, n)):
        return slice(start, end, step).indices(n)

    def place(v: Any, default: Any) -> Any:
        if v is None or v is n:
            return default if v is None else n
        if type(v) is int and v >= _END:
            return n
        return most(v + n, 0) if v < 0 else least(v, n)

    return place(start, 0), place(end, n), 1 if step is None else step


def at(tree: Any, dims: tuple[int, ...]) -> Any:
    """The same with numbers in place of sizes."""
    if type(tree) is Size:
        return _core.size_at(tree.form, dims)
    if isinstance(tree, tuple | list):
        return type(tree)([at(v, dims) for v in tree])
    return {k: at(v, dims) for k, v in tree.items()} if isinstance(tree, dict) else tree


def hint(n: Any) -> int:
    """The value for the sizes that the program is planned for."""
    return _core.size_hint(n.form) if type(n) is Size else n


def fitting(a: int, b: int, multiples: list[int]) -> tuple[list[int], int] | None:
    """The dimensions, by number, and the least number of whose multiples they must be, so that two forms are equal. None: there is no
    such number up to 128. Each dimension is a multiple of a number already. The forms are compared at a few sizes: who reads the
    model again proves it."""

    def both(counts: list[int]) -> tuple[int, int]:
        dims = tuple(n * m for n, m in zip(counts, multiples, strict=True))
        return _core.size_at(a, dims), _core.size_at(b, dims)

    def changed(i: int, n: int) -> bool:
        return both([n if k == i else 60 for k in range(len(multiples))]) != both([60] * len(multiples))

    used = [i for i in range(len(multiples)) if any(changed(i, n) for n in range(61, 70))]
    for m in range(2, _MOST_MULTIPLE + 1) if used else ():
        tries = [[m * (1 + (i + 3 * k) % 7) if i in used else 60 for i in range(len(multiples))] for k in range(7)]
        if all(x == y for x, y in map(both, tries)):
            return used, m
    return None


def _made(op: int, a: Any, b: Any) -> Any:
    if not isinstance(a, Size | int) or not isinstance(b, Size | int):
        return NotImplemented
    return size(_core.size(op, form(a), form(b)))


def _known(a: Any, b: Any, sign: str) -> bool:
    """Is a <= b?"""
    if not isinstance(a, Size | int) or not isinstance(b, Size | int):
        raise Varies(f"needs to know whether {a} {sign} {b}")
    low, high = form(a), form(b)
    if _core.size_le(low, high):
        return True
    if _core.size_le(_core.size(_ADD, high, 1), low):
        return False
    raise Varies(f"needs to know whether {a} {sign} {b}, which depends on the call")
