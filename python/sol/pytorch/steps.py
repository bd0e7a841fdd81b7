"""Runs a graph, for example Dynamo's, node by node during a trace, and knows the nodes that enter and leave modes and
transformations of torch.func."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from sol import _core

from .enabled import turn
from .problems import located

Node = torch.fx.Node


class Unusual(Exception):
    """Something that this kind of tracing leaves to torch.export. If the model is a graph that is being run, `step`
    is the node."""

    step: Node | None = None
    reads = False  # whether forward read values, where torch.export would fail, too

    def __init__(self, why: str, inner: bool = False) -> None:
        super().__init__(why)
        self.inner = inner  # whether a trace below autograd may know more


_DATA = getattr(torch._C._autograd, "_get_data_attr", None)  # `t.data` in Dynamo's graph; it calls no operator
_CHECKPOINT = torch.ops.higher_order.tag_activation_checkpoint


FUNC = "a part of torch.func (vmap, grad, vjp, jvp, jacrev, jacfwd, hessian, linearize)"
FUNC_INSTEAD = "use torch.compile(model, backend='sol'), which runs such a part in PyTorch"
# around torch.func.grad and the like in Dynamo's graph
_FORBIDS_HOOKS = torch._C._autograd._saved_tensors_hooks_disable
_ALLOWS_HOOKS = torch._C._autograd._saved_tensors_hooks_enable


def transforms(node: Node) -> bool:
    """Whether a node of Dynamo's graph begins a transformation of torch.func, or differentiation in forward mode."""
    name = getattr(node.target, "__name__", "")
    return name.endswith("_increment_nesting") or name == "_enter_dual_level" or node.target is _FORBIDS_HOOKS


def enters(node: Node) -> bool:
    """Whether a node begins a mode (such as autocast) or a transformation of torch.func."""
    return getattr(node.target, "__name__", "").startswith("_enter_") or transforms(node)


def leaves(node: Node) -> bool:
    """Whether it ends one."""
    name = getattr(node.target, "__name__", "")
    return name.startswith("_exit_") or name.endswith("_decrement_nesting") or node.target is _ALLOWS_HOOKS


def _leaving(target: Any, made: Any) -> Callable[[], Any]:
    if hasattr(made, "__exit__"):
        return functools.partial(made.__exit__, None, None, None)
    found: Callable[[], Any] = getattr(torch._C._functorch, target.__name__.replace("increment", "decrement"))
    return found


class Steps(torch.fx.Interpreter):
    """Runs a graph, for example Dynamo's, whose nodes know their locations."""

    def __init__(self, module: torch.fx.GraphModule, recorder: Any) -> None:
        super().__init__(module)
        self.recorder = recorder
        self.entered: list[Callable[[], Any]] = []  # functions that leave what was entered

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The graph's results. What was entered is left, also after an error."""
        try:
            return super().run(*args, **kwargs)
        finally:
            for leave in reversed(self.entered):
                leave()

    def run_node(self, n: Node) -> Any:
        """The result of a node. Errors know the node."""
        self.recorder.step = n
        try:
            if transforms(n):  # changes the state of PyTorch: it must not begin if it cannot be completed
                raise _core.UnsupportedError(f"{FUNC}: {FUNC_INSTEAD}")
            made = self._inside(n) if n.target is _CHECKPOINT else super().run_node(n)
            if n.target is torch._C._set_grad_enabled:
                turn(bool(n.args[0]))
            if enters(n):
                self.entered.append(_leaving(n.target, made))
            elif leaves(n) and self.entered:
                self.entered.pop()
            return made
        except _core.UnsupportedError as e:
            raise located(e, n) from None
        except Exception as e:
            unusual = e if isinstance(e, Unusual) else Unusual(f"{type(e).__name__}: {e}")
            unusual.step = n
            raise unusual from e

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a function."""
        return args[0].data if target is _DATA else super().call_function(target, args, kwargs)

    def _inside(self, n: Node) -> Any:
        """Records what a checkpoint computes. SOL itself decides what is saved for backward."""
        body, *operands = self.fetch_args_kwargs_from_env(n)[0]
        return body(*operands)


__all__ = ["FUNC", "FUNC_INSTEAD", "Steps", "Unusual", "enters", "leaves", "transforms"]
