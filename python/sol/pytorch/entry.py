"""What `sol.optimize` and `sol.dims` do with a model of PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.utils import _pytree as pytree

from sol import _core, log
from sol.inputs import vdims_wanted

from . import arguments, places, vary
from .face import Face, attach
from .module import State, owned_tensors, wanted_gradients
from .placeholders import leaf_names
from .skeleton import model_class
from .structure import outline


def optimize_module(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    batch_size: int | None,
    copied: bool,
    vdims: Any = None,
) -> torch.nn.Module:
    """Creates the optimized model and compiles the program for these arguments."""
    module = _attached(model, copied)
    state: State = module._sol  # type: ignore[assignment]
    if not args and not kwargs and state.signature is not None and state.signature.parameters:
        if vdims_wanted(vdims):
            if vdims is not True:
                raise _core.InvalidError(f"vdims: expected True, since no call was described, got {vdims!r}")
            state.declared, state.traces = vary.ANY_CALL, vary.Traces({})
        return module  # no call was described, so each program is compiled at its first call
    leaves, spec, _ = state.canonical(module, args, kwargs)
    declared, stand_ins = _described(module, leaves, batch_size)
    if vdims_wanted(vdims):
        declared = _vary(state, module, declared, stand_ins, spec, vdims)
        stand_ins = [
            arguments.example(i, d, leaf, 1) for i, (d, leaf) in enumerate(zip(declared, stand_ins, strict=True))
        ]
    elif free := vary.free(declared):
        state.traces = vary.Traces(free)
    state.declared = vary.Declared(declared, outline(spec), arguments.present(leaves, spec), vdims is True)
    absent = frozenset(
        i for i, (leaf, e) in enumerate(zip(leaves, stand_ins, strict=True)) if arguments.is_absent(leaf, e)
    )
    state.prepare(module, stand_ins, spec, absent)
    return module


def _attached(model: torch.nn.Module, copied: bool) -> torch.nn.Module:
    """The optimized model, without programs."""
    for name, part in model.named_modules():
        where = f"{name}: " if name else ""
        if isinstance(part, torch.jit.ScriptModule):
            raise _core.UnsupportedError(f"{where}TorchScript modules: not supported; use what they were made from")
        if type(part).__module__.startswith(("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")):
            raise _core.UnsupportedError(
                f"{where}quantised layers ({type(part).__name__}): not supported; use the model before its quantisation"
            )
    if hasattr(model, "_orig_mod"):
        model = cast(torch.nn.Module, model._orig_mod)  # torch.compile's wrapper
    if isinstance(model, Face):
        raise _core.InvalidError(f"{type(model).__name__}: is optimized already")
    return attach(copy.deepcopy(model) if copied else model, State, None)


def _described(module: torch.nn.Module, leaves: Sequence[Any], batch_size: int | None) -> tuple[list[Any], list[Any]]:
    """What a call of sol.optimize says about arguments, and leaves for the first program."""
    declared = [arguments.declare(leaf, batch_size) for leaf in leaves]
    batch = (
        batch_size if batch_size is not None else 2 if module.training else 1
    )  # batch-norm needs at least two to train
    device = places.first([*(o.tensor for o in owned_tensors(module).values()), *leaves])
    made = [
        arguments.example(i, d, leaf, batch, device) for i, (d, leaf) in enumerate(zip(declared, leaves, strict=True))
    ]
    return declared, made


def _vary(
    state: State,
    root: torch.nn.Module,
    declared: Sequence[Any],
    leaves: Sequence[Any],
    spec: pytree.TreeSpec,
    vdims: Any,
) -> list[Any]:
    """Finds the dimensions that may vary, and makes those vary that `vdims` selects. Returns the new declarations."""
    state.traces = traces = vary.Traces(vary.all_free(declared, leaves))
    wanted = wanted_gradients(root, leaves) if any(m.training for m in root.modules()) else frozenset()
    kept = state.explore(root, leaves, spec, wanted)
    if kept is None:
        return vary.unknown(declared, leaves, vdims, f"{model_class(root).__name__}: {traces.why}")
    state.report = vary.report(kept, leaves, spec, leaf_names(root, *pytree.tree_unflatten(leaves, spec)))
    for line in state.report.shapes:
        log.info(line)
    made = vary.chosen(kept, declared, leaves, vdims)
    traces.free = vary.free(made)
    return made


def find_dims(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> vary.Dims:
    """`sol.dims` for models of PyTorch."""
    module = model if isinstance(model, Face) else _attached(model, False)
    state = State(None, module._sol.signature)  # type: ignore[union-attr,arg-type]
    leaves, spec, _ = state.canonical(module, args, kwargs)
    declared, stand_ins = _described(module, leaves, None)
    state.traces = traces = vary.Traces(vary.all_free(declared, stand_ins))
    kept = state.explore(module, stand_ins, spec, frozenset())
    if kept is None:
        raise _core.UnsupportedError(f"{model_class(module).__name__}: sol.dims: {traces.why}")
    return vary.report(kept, stand_ins, spec, leaf_names(module, *pytree.tree_unflatten(stand_ins, spec)))
