"""What `sol.dims` returns: the dimensions of a model's arguments that may vary between calls, and why others may not."""

from __future__ import annotations

from dataclasses import dataclass, field


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
