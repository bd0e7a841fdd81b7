"""Traces a model's own backward (torch.autograd.Function).

Of some Functions it is known that backward computes the gradient of forward (AS_FORWARD, `sol.differentiate`): the trace
contains their forward, which SOL differentiates.

For the others, the trace records forward without gradients. It then records backward, with a tensor of zeros as a marker
for the incoming gradient, which is not known yet. `graft` connects the two: its value is the result of forward, and its
gradient is the recorded backward with the incoming gradient in place of the marker (layer Graft).
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from sol import _core

_plain_apply = torch.autograd.Function.__dict__["apply"]


class Context:
    """The `ctx` of a Function."""

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self.saved_tensors: tuple[Any, ...] = ()
        self._sol_fixed: tuple[Any, ...] = ()
        self._sol_zeros = True

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        pass

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self._sol_fixed = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self._sol_zeros = value

    def mark_dirty(self, *tensors: Any) -> None:
        raise _core.UnsupportedError("it writes its arguments in place (mark_dirty)")


def graft(values: Any, markers: Any, pairs: Any) -> Any:
    """The target of a node. Its results are `values`; for each (x, dx) of `pairs`, dx is the gradient with respect to x,
    computed from the gradients that `markers` stand for."""
    raise NotImplementedError


def incoming(values: Any) -> Any:
    """The target of a node: markers of the gradients of `values`. They are zeros, but no other tensor is made of the same constant."""
    raise NotImplementedError


class _Through(torch.autograd.Function):
    """Gives the result of a Function a history, because a model might look at it. One with memory of its own may be written in place."""

    @staticmethod
    def forward(ctx: Any, made: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        shares = any(made.untyped_storage()._cdata == g.untyped_storage()._cdata for g in given)
        return made.view_as(made) if shares else torch.empty_strided(made.shape, made.stride(), dtype=made.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError


@contextlib.contextmanager
def _no_autograd() -> Iterator[None]:
    """Rejects a backward that runs autograd itself: its gradients would not be in the trace."""
    rows = [(torch.autograd, "backward"), (torch.autograd, "grad"), (torch.Tensor, "backward")]
    kept = [getattr(owner, name) for owner, name in rows]
    thread = threading.get_ident()

    def rejecting(original: Any) -> Any:
        def reject(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return original(*args, **kwargs)
            raise _core.UnsupportedError(
                "its backward runs autograd; if it computes the gradient of its forward, say so with sol.differentiate"
            )

        return reject

    for (owner, name), original in zip(rows, kept, strict=True):
        setattr(owner, name, rejecting(original))
    try:
        yield
    finally:
        for (owner, name), value in zip(rows, kept, strict=True):
            setattr(owner, name, value)


def _reversible(
    hidden: Any, layers: Any, mask: Any, hashes: Any, states: Any, attentions: Any, *rest: Any
) -> torch.Tensor:
    """The layers of a Reformer. The original's backward computes their inputs again from their outputs."""
    past, use_cache, length, with_states, with_attentions = rest
    hidden, attended = torch.chunk(hidden, 2, dim=-1)
    for layer in layers:
        if with_states is True:
            states.append(hidden.detach())
        made = layer.attention(
            hidden_states=hidden,
            attention_mask=mask,
            num_hashes=hashes,
            past_buckets_states=past,
            use_cache=use_cache,
            orig_sequence_length=length,
            output_attentions=with_attentions,
        )
        attended = attended + made.hidden_states
        hidden = hidden + layer.feed_forward(attended)
        if with_attentions:
            attentions.append(made.attention_probs.detach())
    if with_states is True:
        states.append(hidden.detach())
    return torch.cat([attended, hidden], dim=-1)


def _checkpointed(run: Callable[..., Any], preserves: bool, *args: Any) -> Any:
    """torch.utils.checkpoint with use_reentrant=True. SOL itself decides what is saved for backward."""
    return run(*args)


# Functions of other packages whose backward is known to compute the gradient of this
AS_FORWARD: dict[str, Callable[..., Any]] = {
    "torch.utils.checkpoint.CheckpointFunction": _checkpointed,
    "transformers.models.reformer.modeling_reformer._ReversibleFunction": _reversible,
}


def as_forward(function: Any) -> Callable[..., Any] | None:
    """What SOL differentiates in place of a Function. None: it traces the Function's backward."""
    said = vars(function).get("_sol_forward")
    if said is not None:
        return cast("Callable[..., Any]", said[0] or functools.partial(_forward, function))
    return AS_FORWARD.get(f"{function.__module__}.{function.__qualname__}")


def differentiated(function: Any, plain: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The result of a Function that SOL differentiates: of `plain`, which computes the same."""
    wanted = torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)
    with torch.set_grad_enabled(wanted):
        made = plain(*args)
    if wanted and not any(isinstance(t, torch.Tensor) and t.requires_grad for t in pytree.tree_leaves(made)):
        raise _core.UnsupportedError(
            f"sol.differentiate: {function.__name__}: expected a forward that autograd can differentiate, got results without "
            "a gradient (does it run under torch.no_grad()?); give sol.differentiate a function that computes the same with gradients"
        )
    return made


def _forward(function: Any, *args: Any) -> Any:
    """A Function's own forward."""
    ctx = Context(tuple(isinstance(a, torch.Tensor) and a.requires_grad for a in args))
    made = _run_forward(function, ctx, args)
    fixed = {id(t) for t in ctx._sol_fixed}
    return pytree.tree_map_only(torch.Tensor, lambda t: t.detach() if id(t) in fixed else t, made)


def _run_forward(function: Any, ctx: Context, args: tuple[Any, ...]) -> Any:
    if function.setup_context is torch.autograd.function._SingleLevelFunction.setup_context:
        return function.forward(ctx, *args)
    made = function.forward(*args)
    function.setup_context(ctx, args, made)
    return made


def apply(
    function: Any,
    args: tuple[Any, ...],
    mark: Callable[[Sequence[Any], Sequence[Any]], Any],
    add: Callable[[Sequence[Any], Sequence[Any], Any, Any], None],
) -> Any:
    """The result of `function.apply(*args)` while a model is traced. `mark(values, markers)` adds the node of the markers, which stand for
    the gradients of the values, and returns it; `add(values, made, node, pairs)` adds the node of a graft with that one's markers."""
    wanted = [isinstance(a, torch.Tensor) and a.requires_grad for a in args]
    ctx = Context(tuple(wanted))
    with torch.no_grad():
        made = _run_forward(function, ctx, args)
    if not torch.is_grad_enabled() or not any(wanted):
        return made
    parts = list(made) if isinstance(made, tuple | list) else [made]
    places = [i for i, p in enumerate(parts) if _differentiable(p) and not any(p is f for f in ctx._sol_fixed)]
    if any(parts[i] is a for i in places for a in args):
        raise _core.UnsupportedError("it returns an argument as it is")
    if not places:
        return made
    values = [parts[i] for i in places]
    marked, pairs = _backward(function, ctx, args, parts, places, mark)
    inputs = [a for a, w in zip(args, wanted, strict=True) if w]
    for i in places:
        parts[i] = _plain_apply.__get__(None, _Through)(parts[i], *inputs)
    add(values, [parts[i] for i in places], marked, pairs)
    return type(made)(parts) if isinstance(made, tuple | list) else parts[0]


def _differentiable(part: Any) -> bool:
    return isinstance(part, torch.Tensor) and (part.is_floating_point() or part.is_complex())


def _backward(
    function: Any, ctx: Context, args: tuple[Any, ...], parts: Sequence[Any], places: Sequence[int], mark: Any
) -> tuple[Any, list[Any]]:
    """Runs backward once, with markers for the results at `places`: it may combine their gradients in any way. Returns the node of the
    markers, and pairs of arguments and gradients."""
    with torch.no_grad(), _no_autograd():
        given = [torch.zeros_like(p) if ctx._sol_zeros and isinstance(p, torch.Tensor) else None for p in parts]
        markers = [torch.zeros_like(parts[i]) for i in places]
        marked = mark([parts[i] for i in places], markers)
        for i, marker in zip(places, markers, strict=True):
            given[i] = marker
        gradients = function.backward(ctx, *given)
    gradients = gradients if isinstance(gradients, tuple | list) else (gradients,)
    pairs = []
    for a, needed, d in zip(args, ctx.needs_input_grad, gradients, strict=False):
        if not needed or d is None:
            continue
        if not isinstance(d, FakeTensor) or d.shape != a.shape or d.dtype != a.dtype:
            raise _core.UnsupportedError("its backward gives something else than gradients of the arguments' shapes")
        pairs.append((a, d))
    return marked, pairs


__all__ = ["apply", "as_forward", "differentiated", "graft", "incoming"]
