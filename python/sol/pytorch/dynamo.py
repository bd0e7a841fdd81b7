"""`torch.compile(model, backend="sol")`: Dynamo finds the graphs, each is exported again and compiled when it first runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from sol import _core

from .module import State


class _GraphState(State):
    """Programs of one of Dynamo's graphs; parameters and buffers are among its arguments."""

    runs_hooks = True

    def _fixed(self, leaves: Sequence[Any]) -> frozenset[int]:
        return frozenset(i for i, leaf in enumerate(leaves) if _is_parameter(leaf))


def _is_parameter(leaf: Any) -> bool:
    return isinstance(leaf, torch.nn.Parameter) or hasattr(leaf, "_dynamo_static_input_type")


def backend(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """The backend "sol" of torch.compile."""
    if options:
        given = ", ".join([k for k in options if k != "options"] + [*options.get("options", ())])
        raise _core.InvalidError(f"backend sol: there are no options, got {given}; what can be set is in sol.config")
    state, numbers = _GraphState(None, None), _numbers(graph)

    def run(*args: Any) -> Any:
        if numbers:
            args = tuple(a.item() if i in numbers else a for i, a in enumerate(args))
        return state.call(graph, args, {})

    return run


def _numbers(graph: torch.fx.GraphModule) -> frozenset[int]:
    """Arguments that are numbers in the clothes of tensors (dynamic shapes: `eps` of a norm); the graph takes them bare."""
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
    """Makes the name "sol" known to torch.compile. (An installed package is found through its entry point, too.)"""
    import torch._dynamo.backends.registry as registry

    if "sol" not in registry._BACKENDS or registry._BACKENDS["sol"] is None:
        registry.register_backend(compiler_fn=backend, name="sol")


__all__ = ["backend", "register"]
