"""What one call has found out so far: its seed, what its host functions drew, and the values that its forward reads from
random numbers or from the network.

A call may try several programs before it finds the one for its values. All of them must see the same random numbers:
a call that draws again for each trial would prefer the outcomes for which programs are there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

from sol.api import next_seed
from sol.device import device

from . import generators


class Facts:
    """The seed of a call, and by number of the read: what was read there, by which computation."""

    def __init__(self) -> None:
        self._seed: torch.Tensor | None = None
        self._drawn: list[tuple[Hashable, Any, generators.States]] = []  # by host function: form, result, states before
        self._found: dict[int, tuple[Hashable, Any]] = {}
        self.failed: set[Any] = set()  # programs whose assumptions led to an index out of range, say
        self.made: Any = None  # the program that was made for this call last: its errors are the call's own

    @property
    def seed(self) -> torch.Tensor:
        """Drawn when it is first needed: from sol.set_seed's stream, or else from PyTorch's generator."""
        if self._seed is None:
            fixed = next_seed(*device.current())
            self._seed = torch.empty((), dtype=torch.int64).random_() if fixed is None else torch.tensor(fixed)
        return self._seed

    def find(self, number: int, form: Hashable) -> tuple[Any] | None:
        """The value, in a tuple; None: it is not known."""
        known = self._found.get(number)
        return (known[1],) if known is not None and known[0] == form else None

    def learn(self, number: int, form: Hashable, value: Any) -> None:
        """Enters a value."""
        self._found[number] = form, value

    def draw(self, number: int, form: Hashable, function: Callable[[], Any], draws: bool) -> Any:
        """What step `number` of a program's host functions returns. Runs it, unless another program has done so in this call.
        `draws`: whether it may draw from a generator."""
        known = self._drawn[number] if number < len(self._drawn) else None
        if known is not None and known[0] == form:
            return known[1]
        self.settle(number)
        before = generators.states() if draws else []
        made = function()
        self._drawn.append((form, made, before))
        return made

    def settle(self, count: int) -> None:
        """Keeps what the first `count` host functions have drawn. For the others, the generators go back."""
        gone = self._drawn[count:]
        del self._drawn[count:]
        for _, _, before in reversed(gone):
            generators.restore(before)


__all__ = ["Facts"]
