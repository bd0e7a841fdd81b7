"""`torch.compile(model, backend="sol")`: SOL exports each graph of Dynamo again and compiles it at its first run.

Operators that SOL cannot translate run in PyTorch (parts.py), unless fullgraph=True is set.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from sol import _core
from sol.api import config

from . import vary
from .export import dynamo_lock
from .module import State
from .parts import Parts
from .program import Program

_MODES: dict[str, dict[str, Any]] = {  # modes of torch.compile, and the keys that they set
    "default": {},
    "reduce-overhead": {},  # nothing to set: a call only compares its arguments and runs
    "max-autotune": {"autotune": "full"},
    "max-autotune-no-cudagraphs": {"autotune": "full"},
}
_RUNNING = ("log::level", "profile", "threads")  # keys that affect how programs run, not how they are compiled
_configuring = threading.RLock()


def _after_fork() -> None:
    global _configuring
    _configuring = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def _configured(settings: dict[str, Any]) -> Iterator[None]:
    """Sets keys of sol.config temporarily."""
    if not settings:
        yield
        return
    with dynamo_lock(), _configuring:
        before = {key: config[key] for key in settings}
        try:
            for key, value in settings.items():
                config[key] = value
            yield
        finally:
            for key, value in before.items():
                config[key] = value


def _settings(mode: str | None, options: dict[str, Any] | None) -> dict[str, Any]:
    """Checks `mode` and `options` of torch.compile and returns the keys that they set."""
    if mode not in (None, *_MODES):
        raise _core.InvalidError(f"backend sol: mode: expected one of {', '.join(_MODES)}, got {mode!r}")
    settings = dict(options or _MODES[mode or "default"])
    if found := [key for key in settings if key in _RUNNING]:
        raise _core.InvalidError(f"backend sol: options: {found[0]}: not of one graph; set it in sol.config")
    try:
        with _configured(settings):
            return settings
    except KeyError as e:
        raise _core.InvalidError(f"backend sol: options: {e}") from None


class _GraphState(State):
    """The programs of one of Dynamo's graphs. Parameters and buffers are among its arguments."""

    runs_hooks = True

    def __init__(self, settings: dict[str, Any], free: vary.Free) -> None:
        super().__init__(None, None)
        self.settings = settings
        self.traces = vary.Traces(free) if free else None

    def find(self, *args: Any, **kwargs: Any) -> Program:
        """Like State.find, but with the graph's own settings."""
        with _configured(self.settings):
            return super().find(*args, **kwargs)

    def _fixed(self, leaves: Sequence[Any]) -> frozenset[int]:
        return frozenset(i for i, leaf in enumerate(leaves) if _is_parameter(leaf))


def _is_parameter(leaf: Any) -> bool:
    return isinstance(leaf, torch.nn.Parameter) or hasattr(leaf, "_dynamo_static_input_type")


def backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend "sol" of torch.compile. `options` are keys of sol.config for this model."""
    settings, numbers = _settings(mode, options), _numbers(graph)
    torch._dynamo.config.skip_nnmodule_hook_guards = (
        False  # otherwise hooks that are registered later would go unnoticed
    )
    parts = Parts(graph, functools.partial(_GraphState, settings), _is_whole())

    def run(*args: Any) -> Any:
        if numbers:
            args = tuple(a.item() if i in numbers else a for i, a in enumerate(args))
        return parts(args)

    return run


def _is_whole() -> bool:
    """Whether fullgraph=True was given; Dynamo knows, since it is compiling now."""
    from torch._dynamo.symbolic_convert import tls

    tx = getattr(tls, "current_tx", None)
    return tx is not None and bool(tx.one_graph or tx.error_on_graph_break)


def _numbers(graph: torch.fx.GraphModule) -> frozenset[int]:
    """Arguments that are numbers although Dynamo passes tensors (dynamic shapes: `eps` of a norm). The graph takes
    plain numbers."""
    found = set()
    for i, node in enumerate(graph.graph.find_nodes(op="placeholder")):
        if node.users and all(u.op == "call_method" and u.target == "item" for u in node.users):
            found.add(i)
            for user in list(node.users):
                user.replace_all_uses_with(node)
                graph.graph.erase_node(user)
    if found:
        graph.recompile()
    return frozenset(found)


def register() -> None:
    """Registers the name "sol" with torch.compile. (For an installed package, the entry point does that, too.)"""
    import torch._dynamo.backends.registry as registry

    if "sol" not in registry._BACKENDS or registry._BACKENDS["sol"] is None:
        registry.register_backend(compiler_fn=backend, name="sol")


__all__ = ["backend", "register"]
