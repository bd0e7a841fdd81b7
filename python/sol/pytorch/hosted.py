"""Host functions (sol.host_function): steps that Python runs in front of a call, and whose tensors the network takes as inputs.

`hosting.py` collects the steps during a trace. `Facts` keeps what one call has drawn, because a call may try several programs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from sol import _core
from sol.host import replaced

from .facts import Facts

if TYPE_CHECKING:
    from .values import Read, Source


class Differs(_core.InvalidError):
    """The program is not valid for this call."""


Fetch = Callable[["Source"], torch.Tensor]
Result = tuple[list[Any], pytree.TreeSpec]  # of a step: its leaves and their structure


@dataclass(frozen=True)
class Made:
    """An operand of a step: a leaf of what an earlier step returned."""

    step: int
    leaf: int


@dataclass(frozen=True)
class Computed:
    """An operand of a step: a tensor that the step's `reads` compute."""

    number: int


@dataclass(frozen=True)
class Part:
    """An operand of a step: a module of the model."""

    path: str


@dataclass
class Step:
    """One call of a host function, or of a function on what such functions returned."""

    function: Callable[..., Any]
    args: Any
    kwargs: Any
    reads: Read | None  # computes the tensors among the arguments
    name: str
    draws: bool  # whether it may draw from a generator
    form: Hashable  # what is called, for comparison with steps of other programs

    def run(self, made: Sequence[Result], fetch: Fetch, parts: Mapping[str, torch.nn.Module]) -> Result:
        """Calls the function. `made`: what earlier steps returned."""
        with torch.no_grad(), replaced(None):
            tensors = self.reads.compute({}, fetch) if self.reads else ()

            def operand(arg: Any) -> Any:
                if isinstance(arg, Made):
                    return made[arg.step][0][arg.leaf]
                if isinstance(arg, Computed):
                    return tensors[arg.number]
                return parts[arg.path] if isinstance(arg, Part) else arg

            args, kwargs = pytree.tree_map(operand, (self.args, self.kwargs))
            leaves, spec = pytree.tree_flatten(self.function(*args, **kwargs))
            return [t.detach().contiguous() if isinstance(t, torch.Tensor) else t for t in leaves], spec


@dataclass
class Hosted:
    """The steps of one program, and those of their results that are inputs of the network."""

    steps: list[Step] = field(default_factory=list)
    inputs: list[tuple[Made, torch.Tensor]] = field(default_factory=list)  # with an example, whose data is not used
    parts: dict[str, torch.nn.Module] = field(
        default_factory=dict
    )  # the model's modules that steps call: others may be freed

    def _run(self, fetch: Fetch, facts: Facts, count: int) -> list[Result]:
        """What the first steps return."""
        made: list[Result] = []
        for i, step in enumerate(self.steps[:count]):
            made.append(facts.draw(i, step.form, functools.partial(step.run, made, fetch, self.parts), step.draws))
        return made

    def input(self, number: int, fetch: Fetch, facts: Facts) -> torch.Tensor:
        """One input of the network. Runs the steps up to it."""
        place, example = self.inputs[number]
        leaves, _ = self._run(fetch, facts, place.step + 1)[place.step]
        t = leaves[place.leaf] if place.leaf < len(leaves) else None
        if not isinstance(t, torch.Tensor) or (t.shape, t.dtype) != (example.shape, example.dtype):
            got = _described(t) if isinstance(t, torch.Tensor) else type(t).__name__
            raise _core.InvalidError(
                f"sol.host_function: {self.names(place)}: expected results whose shapes and types follow from the arguments, here "
                f"{_described(example)}, as in the first call; got {got}"
            )
        return t

    def names(self, place: Made) -> str:
        """The host functions that something may follow from."""
        return ", ".join(dict.fromkeys(s.name for s in self.steps[: place.step + 1] if s.draws))

    def results(self, fetch: Fetch, facts: Facts) -> tuple[torch.Tensor, ...]:
        """Runs all steps, and returns the inputs of the network."""
        self._run(fetch, facts, len(self.steps))
        return tuple(self.input(i, fetch, facts) for i in range(len(self.inputs)))


def _described(t: torch.Tensor) -> str:
    return f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}"


__all__ = ["Computed", "Differs", "Fetch", "Hosted", "Made", "Part", "Result", "Step"]
