"""The generators of NumPy's and Python's random: what a forward draws from them, a trace does not see.

Draws for which forward gives numbers alone, such as random.random() and numpy.random.rand(2, 3), are host functions (host.py). A trace
rejects all others by the name of the function and its line. What was drawn through a name that was imported before is found by comparing
states.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sol import _core, log
from sol.host import instead

from .problems import user_line

# of generators: the name, what gets a state, what sets it, and the state
States = list[tuple[str, Callable[[], Any], Callable[[Any], Any], Any]]
_PYTHON, _NUMPY = "Python's random", "NumPy's random"
_HARMLESS = frozenset("get_state set_state getstate setstate seed".split())  # seed is a host function
_OTHERS = frozenset("shuffle bytes randbytes".split())  # they return no numbers
_DRAWS = (
    "forward draws from {}, and every call would repeat what was drawn once: not supported; put what draws into a function "
    "marked with @sol.host_function, compute with numbers that PyTorch draws (torch.rand), or use torch.compile(model, "
    "backend='sol'), which runs such a line in Python"
)
_SEEDS = (
    "forward seeds PyTorch's generator ({}), and an optimized model draws its own random numbers: not supported; seed in "
    "front of a call, keep numbers that never change in a buffer, or use torch.compile(model, backend='sol')"
)


def states() -> States:
    """The states of both generators."""
    found: States = [(_PYTHON, random.getstate, random.setstate, random.getstate())]
    if (numpy := sys.modules.get("numpy.random")) is not None:
        found.append((_NUMPY, numpy.get_state, numpy.set_state, numpy.get_state()))
    return found


def _own(root: torch.nn.Module) -> States:
    """The states of the generators in a model's attributes."""
    numpy: Any = sys.modules.get("numpy.random")
    found: States = []
    for path, module in root.named_modules():
        for key, value in vars(module).items():
            name = f"its generator {f'{path}.' if path else ''}{key}"
            if isinstance(value, random.Random):
                found.append((name, value.getstate, value.setstate, value.getstate()))
            elif numpy and isinstance(value, numpy.RandomState):
                found.append((name, value.get_state, value.set_state, value.get_state()))
            elif numpy and isinstance(value, numpy.Generator):
                bits = value.bit_generator
                found.append((name, lambda b=bits: b.state, lambda s, b=bits: setattr(b, "state", s), bits.state))  # type: ignore[misc]
    return found


def restore(before: States) -> None:
    """Brings the generators back into these states."""
    for _, _, put, state in before:
        put(state)


def changed(before: States) -> list[str]:
    """The generators that are not in these states."""
    return [name for name, get, _, state in before if pickle.dumps(get()) != pickle.dumps(state)]


class _Watch:
    """One trace: the states that the generators are in if forward has drawn nothing unseen."""

    def __init__(self, name: str, root: torch.nn.Module) -> None:
        self.name = name
        self.root = root
        self.first = self.expected = self.states()

    def states(self) -> States:
        """The states of all generators that are known."""
        return states() + _own(self.root)

    def check(self) -> None:
        """Rejects a forward that has drawn. If other threads could have done so (not from the model's own generators), this is
        only a warning."""
        if not (drawn := changed(self.expected)):
            return
        text = f"{self.name}: {_DRAWS.format(' and '.join(drawn))}"
        if threading.active_count() > 1 and {_PYTHON, _NUMPY}.issuperset(drawn):
            log.warn(f"if it is not another thread that does so: {text}")
            return
        restore(self.first)
        raise _core.UnsupportedError(text)


_watches: list[_Watch] = []  # of the current trace


@contextlib.contextmanager
def nothing_drawn(name: str, root: torch.nn.Module) -> Iterator[None]:
    """Rejects a forward that draws random numbers where the trace does not see it, and restores the generators."""
    watch = _Watch(name, root)
    _watches.append(watch)
    try:
        with _named(name):
            yield
    finally:
        _watches.pop()
    watch.check()


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Around a host function that runs during a trace."""
    _watches[-1].check()
    try:
        yield
    finally:
        _watches[-1].expected = _watches[-1].states()


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Makes functions that draw host functions, or rejects them with their names and lines; rejects functions that seed PyTorch's
    generator."""
    rows: list[tuple[Any, str, str]] = [
        (owner, key, _SEEDS) for owner in (torch, torch.random) for key in ("manual_seed", "seed")
    ]
    for what, module in ((_PYTHON, random), (_NUMPY, sys.modules.get("numpy.random"))):
        for key, value in vars(module).items() if module else ():
            if key not in _HARMLESS and getattr(value, "__self__", module) is module.random.__self__:  # type: ignore[union-attr]
                rows.append((module, key, _DRAWS.format(f"{what} ({{}})")))
    kept = [(owner, key, getattr(owner, key)) for owner, key, _ in rows]
    for owner, key, text in rows:
        what, drawn = f"{owner.__name__}.{key}", text is not _SEEDS and key not in _OTHERS
        setattr(owner, key, _unseen(getattr(owner, key), what, f"{name}: {text}", drawn))
    try:
        yield
    finally:
        for owner, key, original in kept:
            setattr(owner, key, original)


def _unseen(original: Callable[..., Any], what: str, text: str, drawn: bool) -> Callable[..., Any]:
    """A host function in place of one that draws numbers or arrays of them (`drawn`), or else an error."""

    def draw(*args: Any, **kwargs: Any) -> Any:
        if (by := instead()) is None:  # another thread, or a host function
            return original(*args, **kwargs)
        leaves = pytree.tree_leaves((args, kwargs))
        if drawn and all(isinstance(a, int | float) for a in leaves):
            return by(_named_draw(original, what), args, kwargs)
        raise _core.UnsupportedError(text.format(", ".join(filter(None, (what, user_line())))))

    return draw


@functools.cache
def _named_draw(original: Callable[..., Any], what: str) -> Callable[..., Any]:
    """The same function with the name that users know: the same object in every trace, because programs compare what they call."""

    def draw(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    draw.__qualname__ = what
    return draw


__all__ = ["States", "changed", "drawing", "nothing_drawn", "restore", "states"]
