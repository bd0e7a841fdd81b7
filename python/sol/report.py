"""What `sol.dims` returns: the dimensions of a model's arguments that may vary between calls, and why others may not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from . import _core

MOST_SIZE = (1 << 31) - 1  # of a dimension that nothing limits


@dataclass(repr=False)
class Dimension:
    """A dimension that may vary."""

    name: str  # #0, #1, ..
    size: int  # of the example
    min: int
    max: int | None
    multiple: int
    where: list[str]  # "dimension 0 of x"

    def __str__(self) -> str:
        multiple = f", a multiple of {self.multiple}" if self.multiple > 1 else ""
        return f"{self.name} = {self.size}, {self.min}..{self.max or ''}{multiple}: {', '.join(self.where)}"

    __repr__ = __str__


@dataclass(repr=False)
class Report:
    """Shapes of inputs and outputs, the dimensions that may vary, and why others may not."""

    inputs: list[str]
    outputs: list[str]
    dims: list[Dimension] = field(default_factory=list)
    fixed: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)  # that sizes must keep for one program to serve them

    @property
    def shapes(self) -> tuple[str, str]:
        """Lines with the shapes of the inputs and of the outputs."""
        return f"Inputs:  {', '.join(self.inputs)}", f"Outputs: {', '.join(self.outputs)}"

    def __str__(self) -> str:
        return "\n".join([*self.shapes, *map(str, self.dims), *self.fixed, *(f"rule: {r}" for r in self.rules)])

    __repr__ = __str__


def of(
    inputs: Sequence[tuple[str, tuple[int, ...]]], outputs: Sequence[tuple[int, ...]], why: Callable[[str, int], str]
) -> Report:
    """What the shapes of a graph say, in which sizes vary. `why`: the reason why a dimension of an input does not."""

    def shown(shape: tuple[int, ...]) -> str:
        return f"[{', '.join(map(_core.size_text, shape))}]"

    made = Report(
        [f"in_{k} {shown(shape)}" for k, (_, shape) in enumerate(inputs)],
        [f"out_{k} {shown(shape)}" for k, shape in enumerate(outputs)],
    )
    for name, shape in inputs:
        for axis, size in enumerate(shape):
            where, limits = f"dimension {axis} of {name}", _core.size_limits(size)
            known = limits and next((d for d in made.dims if d.name == _core.size_text(size)), None)
            if known:
                known.where.append(where)
            elif limits:
                hint, low, high, multiple = limits
                most = high if 0 < high < MOST_SIZE else None
                made.dims.append(Dimension(_core.size_text(size), hint, low, most, multiple, [where]))
            else:
                made.fixed.append(f"{where} is fixed at {size}: {why(name, axis)}")
    made.dims.sort(key=lambda d: int(d.name[1:]))
    return made
