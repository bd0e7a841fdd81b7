"""Whether two graphs compute the same, by their text: apart from names and numbers of values, the order of constants, and layers
that leave the elements where they are (an Expand, Reshape or Permute that only moves dimensions of size 1)."""

from __future__ import annotations

import re

from sol import _core

_LAYER = re.compile(r"(%\d+):(\w+)\[([^\]]*)\] = (Expand|Reshape|Permute)\((%\d+)\)(.*)")
_VALUE = re.compile(r"%\d+")
_MADE = re.compile(r"(%\d+):\w+\[([^\]]*)\]")


def same(a: _core.Graph, b: _core.Graph) -> bool:
    """Whether the graphs are equal."""
    return _canonical(str(a)) == _canonical(str(b))


def _canonical(text: str) -> list[str]:
    """The lines of a graph's text; operands are numbered by their first use, and have the shapes in which they are used."""
    text = re.sub(r' "[^"]*"', "", str(_core.parse(text)))
    shapes: dict[str, list[str]] = {}
    stands_for: dict[str, str] = {}
    numbers: dict[str, int] = {}

    def named(found: re.Match[str]) -> str:
        value = found[0]
        root = stands_for.get(value, value)
        return f"%{numbers.setdefault(root, len(numbers))}[{' '.join(shapes.get(value, ()))}]"

    lines = []
    for line in text.split("\n"):
        for value, sizes in _MADE.findall(line.partition(" = ")[0]):
            shapes[value] = [size.rpartition("=")[2] for size in sizes.split()]
        layer = _LAYER.match(line)
        if layer and _stays(layer[4], shapes[layer[5]], shapes[layer[1]], layer[6]):
            stands_for[layer[1]] = stands_for.get(layer[5], layer[5])
        elif line.startswith("output"):
            lines.append(re.sub(r"\[.*?\]", "", _VALUE.sub(named, line)))
        else:
            lines.append(_VALUE.sub(named, line))
    return lines


def _stays(kind: str, before: list[str], after: list[str], attributes: str) -> bool:
    """Whether a layer leaves all elements where they are in memory."""
    if [n for n in before if n != "1"] != [n for n in after if n != "1"]:
        return False
    if kind != "Permute":
        return True
    order = [int(d) for d in re.findall(r"\d+", attributes.partition("]")[0])]
    moved = [d for d in order if before[d] != "1"]
    return moved == sorted(moved)
