"""Training: the two halves of a program as one node of PyTorch's autograd.

Forward runs when the model is called, backward when autograd calls it. What backward reads is passed to
save_for_backward, so PyTorch itself counts versions, frees early, and rejects a second backward. An additional empty
tensor that is saved there owns the network's block of saved tensors, so the block is freed at the same time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from sol import _core

from .builder import TORCH_TYPE
from .facts import Facts
from .hosted import Differs
from .layout import Layout
from .translation import Translation

if TYPE_CHECKING:
    from .program import Program

Origin = tuple[str, Any]  # ("leaf", number) or ("param", name)
Apart = dict[
    int, torch.Tensor
]  # by identity of a tensor: one with the same elements, but without its history and hooks
Again = Callable[[Sequence[Any], Apart], tuple[Any, ...]]

_TWICE = (
    "gradients of gradients: not supported; for them call the model that was given to sol.optimize or torch.compile: "
    "both share their parameters"
)
_HOOKS = "saved_tensors_hooks (such as save_on_cpu): not supported around an optimized model"


class Gradient:
    """What the backward half of a network reads and writes. Appends that half to the translation's graph."""

    def __init__(self, t: Translation, wanted: frozenset[Origin]) -> None:
        self.user = tuple(dict.fromkeys(_returned(t)))  # outputs that the caller gets, or gets views of
        self.of = tuple(i for i in self.user if t.tracked[i])
        self.given = tuple(self.user.index(i) for i in self.of)
        slots = [row for row in _read(t) if row[0] in wanted]
        self.slots: tuple[Origin, ...] = tuple(origin for origin, _, _ in slots)
        handles = tuple(handle for _, _, handle in slots)
        found = t.graph.influences(self.of, handles)
        self.through = [  # by slot: the outputs of `of` through which a gradient may arrive
            tuple(k for k in range(len(self.of)) if found[k * len(handles) + i]) for i in range(len(handles))
        ]
        self.reached = t.graph.differentiate(self.of, handles)
        self.params: tuple[int, ...] = ()
        self.inputs: tuple[int, ...] = ()
        self.outputs: tuple[int, ...] = ()

    def compiled(self, t: Translation, net: _core.Net) -> None:
        """Called when the network is compiled, since only then it is known what backward reads."""
        self.inputs = tuple(i for i in range(len(t.inputs)) if net.backward_reads(False, i))
        self.outputs = tuple(i for i in range(len(t.outputs)) if net.backward_reads(True, i))
        self.params = net.backward_params()

    def layouts(self, t: Translation) -> list[tuple[Layout, torch.dtype]]:
        """The layouts of the gradients that backward writes: those of the tensors they belong to."""
        rows = {origin: (layout, _type(layout, handle)) for origin, layout, handle in _read(t)}
        return [rows[o] for o, r in zip(self.slots, self.reached, strict=True) if r]


def _read(t: Translation) -> list[tuple[Origin, Layout, _core.Tensor]]:
    """What the network reads: arguments and tensors of the model."""
    rows: list[tuple[Origin, Layout, _core.Tensor]] = [(("leaf", i.leaf), i.layout, i.handle) for i in t.inputs]
    for p in t.params:
        rows.append((("leaf", p.leaf[0]) if p.leaf else ("param", p.name), p.layout, p.handle))
    return rows


def _type(layout: Layout, handle: _core.Tensor) -> torch.dtype:
    """The type in PyTorch. In memory, complex numbers are pairs along an additional dimension."""
    dtype = TORCH_TYPE[handle.dtype]
    return dtype.to_complex() if len(handle.shape) > len(layout.shape) else dtype


def _has_gradients(t: torch.Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


def _returned(t: Translation) -> list[int]:
    found = []
    for r in t.results:
        if r.kind == "output":
            found.append(r.value)
        elif r.kind == "replay" and r.value.base[0] == "output":
            found.append(r.value.base[1])
    return found


class _Call:
    """One forward call while autograd handles it."""

    __slots__ = ("leaves", "outputs", "program")

    def __init__(self, program: Program, leaves: tuple[Any, ...]) -> None:
        self.program = program
        self.leaves = leaves
        self.outputs: list[Any] = []


@functools.cache
def _named(node: Any, name: str) -> Any:
    """A class of node with the network's name, which PyTorch's profiler and graphs show."""
    return type(node)(f"Sol{name}", (node,), {})


class _Step(torch.autograd.Function):
    """The forward and backward of a network."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *wanted: torch.Tensor) -> tuple[torch.Tensor, ...]:
        program, leaves = call.program, call.leaves
        g, t = program.gradient, program.translation
        assert g is not None
        made = program.caller.forward(leaves, torch.get_num_threads())
        if made is None:
            raise Differs
        outputs, saved = made
        holder = torch.empty(0)
        holder.saved = saved  # type: ignore[attr-defined]
        own = range(len(leaves) - t.random - len(t.before), len(leaves) - t.random)  # tensors that the call overwrites
        given = [t.inputs[i].leaf for i in g.inputs]
        kept = [leaves[i].clone() if i in own else leaves[i] for i in given] + [outputs[i] for i in g.outputs]
        ctx.save_for_backward(holder, *kept, *program.sources(g.params, leaves))
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(outputs[i] for i in g.user if i not in g.of))
        ctx.program, ctx.wanted = program, wanted
        call.outputs = list(outputs)
        return tuple(outputs[i] for i in g.user)

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        program: Program = ctx.program
        g, t = program.gradient, program.translation
        assert g is not None
        holder, *kept = ctx.saved_tensors
        saved = getattr(holder, "saved", None)
        if saved is None:
            raise _core.UnsupportedError(_HOOKS)
        inputs, outputs = [None] * len(t.inputs), [None] * len(t.outputs)
        for i, tensor in zip(g.inputs, kept, strict=False):
            inputs[i] = tensor
        for i, tensor in zip(g.outputs, kept[len(g.inputs) :], strict=False):
            outputs[i] = tensor
        gradients = tuple(program.lay(i, given[k], saved.dims) for i, k in zip(g.of, g.given, strict=True))
        keep = torch._C._autograd._get_current_graph_task_keep_graph()  # retain_graph: another backward may follow
        made = program.caller.backward(saved, keep, tuple(inputs), tuple(outputs), gradients, torch.get_num_threads())
        found = iter(once(made, (*ctx.wanted, *given)))
        if not keep:
            ctx.wanted = ()
        by_slot = [next(found) if r else None for r in g.reached]
        asked = [
            given[k] is not None for k in g.given
        ]  # for an output that no loss reads, eager mode has no gradient instead of zeros
        reached = (any(asked[k] for k in through) for through in g.through)
        return None, *(d if r else None for d, r in zip(by_slot, reached, strict=True))


def forward(program: Program, leaves: tuple[Any, ...], wanted: Sequence[torch.Tensor]) -> tuple[Any, ...] | None:
    """The network's outputs; those with gradients belong to autograd's graph. None: the program is not valid for this
    call."""
    call = _Call(program, leaves)
    try:
        made = _named(_Step, call.program.name).apply(call, *wanted)
    except Differs:
        return None
    g = program.gradient
    assert g is not None
    for i, tensor in zip(g.user, made, strict=True):
        call.outputs[i] = tensor
    return tuple(call.outputs)


# -- errors that are raised only when a gradient is requested


class _Rejected(torch.autograd.Function):
    """Tensors that raise an error with the reason when their gradient is requested, instead of having none."""

    @staticmethod
    def forward(ctx: Any, why: str, n: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.why = why
        ctx.mark_non_differentiable(*(t for t in tensors[:n] if not _has_gradients(t)))
        return tensors[:n]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> None:
        raise _core.UnsupportedError(ctx.why)


def rejected(why: str, tensors: Sequence[torch.Tensor], of: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """The same tensors, but requesting gradients through them raises an error. `of`: the tensors that they depend on."""
    made_of = [t for t in of if isinstance(t, torch.Tensor) and t.requires_grad]
    tensors = [t.detach() for t in tensors]
    return tuple(_Rejected.apply(why, len(tensors), *tensors, *made_of, torch.empty(0, requires_grad=True)))


def once(gradients: tuple[torch.Tensor, ...], of: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """Gradients under create_graph=True. They can be used, but not differentiated."""
    return rejected(_TWICE, gradients, of) if torch.is_grad_enabled() and gradients else gradients


# -- models in eval mode: most calls with gradients enabled are never followed by a backward


class _Later(torch.autograd.Function):
    """Runs the inference program. If gradients are requested, a program with gradients repeats the call."""

    @staticmethod
    def forward(
        ctx: Any, call: _Call, again: Again, reached: list[bool], *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        outputs = call.program.call(call.leaves, torch.get_num_threads(), Facts())
        if outputs is None:
            raise Differs
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(
            *(o for o, r in zip(outputs, reached, strict=True) if not r or not _has_gradients(o))
        )
        ctx.program, ctx.again = call.program, again
        ctx.others = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in call.leaves]
        return outputs

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor | None) -> Any:
        saved: tuple[torch.Tensor, ...] = ctx.saved_tensors
        tensors, leaves = iter(saved), list(ctx.others)
        for i in ctx.program.tensor_leaves:
            leaves[i] = next(tensors)
        now = ctx.program.sources(range(len(ctx.program.translation.params)), leaves)
        if any(a is not b for a, b in zip(tensors, now, strict=True)):
            raise _core.InvalidError("backward: a parameter was replaced since the call")
        apart: Apart = {}  # PyTorch runs the hooks of the tensors themselves when this function has returned
        with torch.enable_grad():
            outputs = ctx.again(leaves, apart)
        wanted = [t for t in saved if id(t) in apart]
        pairs = [(o, g) for o, g in zip(outputs, given, strict=True) if g is not None and o.requires_grad]
        made = torch.autograd.grad(
            [o for o, _ in pairs], [apart[id(t)] for t in wanted], [g for _, g in pairs], allow_unused=True
        )
        found = iter(once(tuple(m for m in made if m is not None), (*wanted, *given)))
        by_tensor = iter([next(found) if m is not None else None for m in made])
        return None, None, None, *(next(by_tensor) if id(t) in apart else None for t in saved)


def later(program: Program, dense: tuple[Any, ...], leaves: Sequence[Any], again: Again) -> tuple[Any, ...] | None:
    """The network's outputs, without a backward half until gradients are requested. None: as in `forward`."""
    tensors = [leaves[i] for i in program.tensor_leaves]
    tensors += program.sources(range(len(program.translation.params)), leaves)
    try:
        made: tuple[Any, ...] = _named(_Later, program.name).apply(
            _Call(program, dense), again, program.reached(leaves), *tensors
        )
    except Differs:
        return None
    return made
