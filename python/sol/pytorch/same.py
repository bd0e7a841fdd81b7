"""Whether two graphs compute the same, by their text: apart from names and numbers of values, the order of constants, layers
that leave the elements where they are (an Expand, Reshape or Permute that only moves dimensions of size 1), and scalars that are
computed from sizes in one graph and constants in the other."""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable

from sol import _core

_LAYER = re.compile(r"(%\d+):(\w+)\[([^\]]*)\] = (Expand|Reshape|Permute)\((%\d+)\)(.*)")
_VALUE = re.compile(r"%\d+")
_MADE = re.compile(r"(%\d+):\w+\[([^\]]*)\]")
_CONST = re.compile(r"const (%\d+):(f32|f64|i64)\[\] = (\S+)$")
_SIZES = re.compile(r"(%\d+):(f32|f64|i64)\[1\] = Sizes\(\) sizes=\[(-?\d+)\]")
_SCALAR = re.compile(r"(%\d+):(f32|f64|i64)\[\] = (\w+)\(([^)]*)\)")
# what reals.py computes from sizes
_FOLDED: dict[str, Callable[..., float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": math.pow,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log": math.log,
}
_KEPT = ("Cast", "Reshape")  # layers that keep a value


def same(a: _core.Graph, b: _core.Graph) -> bool:
    """Whether the graphs are equal."""
    return _canonical(str(a)) == _canonical(str(b))


def _canonical(text: str) -> list[str]:
    """The lines of a graph's text; operands are numbered by their first use, and have the shapes in which they are used."""
    text = re.sub(r' "[^"]*"', "", str(_core.parse(text)))
    shapes: dict[str, list[str]] = {}
    stands_for: dict[str, str] = {}
    numbers: dict[str, int] = {}
    scalars: dict[str, tuple[str, float]] = {}  # types and values of those that are known

    def named(found: re.Match[str]) -> str:
        value = found[0]
        root = stands_for.get(value, value)
        if root in scalars:
            return f"{scalars[root]}"
        return f"%{numbers.setdefault(root, len(numbers))}[{' '.join(shapes.get(value, ()))}]"

    lines = []
    for line in text.split("\n"):
        for value, sizes in _MADE.findall(line.partition(" = ")[0]):
            shapes[value] = [size.rpartition("=")[2] for size in sizes.split()]
        if _is_scalar(line, scalars):
            continue
        layer = _LAYER.match(line)
        if layer and _stays(layer[4], shapes[layer[5]], shapes[layer[1]], layer[6]):
            stands_for[layer[1]] = stands_for.get(layer[5], layer[5])
        elif line.startswith("output"):
            lines.append(re.sub(r"\[.*?\]", "", _VALUE.sub(named, line)))
        else:
            lines.append(_VALUE.sub(named, line))
    return lines


def _is_scalar(line: str, known: dict[str, tuple[str, float]]) -> bool:
    """Whether a line makes a scalar whose value is known then."""
    if made := _CONST.match(line) or _SIZES.match(line):
        name, kind, text = made.groups()
        value = int(text) if kind == "i64" else float(text)
    elif (made := _SCALAR.match(line)) and all(x in known for x in made[4].split(", ")):
        name, kind, what = made[1], made[2], made[3]
        given = [known[x] for x in made[4].split(", ")]
        try:
            if what in _KEPT:
                value = given[0][1]
            elif what in _FOLDED and all(t == "f64" for t, _ in given):
                value = _FOLDED[what](*(v for _, v in given))
            else:
                return False
        except (ArithmeticError, ValueError):
            return False
    else:
        return False
    known[name] = kind, _rounded(value, kind)
    return True


def _rounded(value: float, kind: str) -> float:
    """A number in this type."""
    if kind == "i64" or not math.isfinite(value):
        return int(value) if kind == "i64" else value
    return float(struct.unpack("f", struct.pack("f", value))[0]) if kind == "f32" and abs(value) < 3.4e38 else value


def _stays(kind: str, before: list[str], after: list[str], attributes: str) -> bool:
    """Whether a layer leaves all elements where they are in memory."""
    if [n for n in before if n != "1"] != [n for n in after if n != "1"]:
        return False
    if kind != "Permute":
        return True
    order = [int(d) for d in re.findall(r"\d+", attributes.partition("]")[0])]
    moved = [d for d in order if before[d] != "1"]
    return moved == sorted(moved)
