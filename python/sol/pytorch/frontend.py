"""The frontend of PyTorch, see frameworks.py: what `sol.optimize` and the like do with its models, and models as `Parsed`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from sol import _core
from sol.inputs import Input as Described
from sol.inputs import type_name
from sol.parsed import Call, Input, Mode, Output, Owned, Param, Parsed, flatten, is_keras, with_leaves

from . import as_module, deployed
from .builder import sol_name
from .entry import find_dims, optimize_module
from .module import evaluating, owned_tensors
from .profiling import profiled
from .wrap import From, wrap

__all__ = ["assign", "deploy", "dims", "optimize", "owned", "parse", "profiled", "wrap"]


def optimize(model: Any, call: Call) -> Any:
    """`sol.optimize`."""
    if is_keras(model):
        from . import keras_model

        return keras_model.optimize(model, call)
    model, args, kwargs, batch_size = as_module("sol.optimize", model, call.args, call.kwargs, call.batch_size)
    return optimize_module(model, args, kwargs, batch_size, call.copy, call.vdims)


def dims(model: Any, call: Call) -> Any:
    """`sol.dims`."""
    module, args, kwargs, _ = as_module("sol.dims", model, call.args, call.kwargs, None)
    return find_dims(module, args, kwargs)


def deploy(model: Any, target: str, keys: dict[str, str], call: Call, sizes: Sequence[int | None]) -> None:
    """`sol.deploy`."""
    deployed.deploy_torch(model, target, keys, (tuple(call.args), call.kwargs, call.vdims), sizes)


def owned(model: Any) -> list[Owned]:
    """All parameters, buffers and other tensors of the module tree."""
    return [Owned(n, _array(n, t), t.requires_grad, id(t)) for n, t in _tensors(model).items()]


def assign(model: Any, values: dict[str, Any]) -> None:
    """New values of parameters and buffers."""
    tensors = _tensors(model)
    with torch.no_grad():
        for name, value in values.items():
            tensors[name].copy_(torch.from_numpy(value))


def _tensors(model: Any) -> dict[str, torch.Tensor]:
    """The tensors of a module tree by name; those of a wrapped model by the names of its source."""
    module, *_ = as_module("sol.optimize", model, (), {}, None)
    found = {n: o.tensor for n, o in owned_tensors(module).items()}
    made_from = getattr(module, "made_from", None)
    return {n: found[own] for n, own in made_from.names.items()} if isinstance(made_from, From) else found


def parse(model: Any, call: Call, mode: Mode) -> Parsed:
    """Traces and translates the model. Its outputs are row-major, each in memory of its own."""
    leaves = [_leaf(leaf) for leaf in flatten((call.args, call.kwargs))]
    call = with_leaves(call, leaves)
    module, args, kwargs, batch = as_module("sol.optimize", model, call.args, call.kwargs, call.batch_size)
    how = deployed.How(batch, call.vdims is not None, call.vdims, mode.gradient)
    with _training(module) if mode.training else evaluating(module):
        seen = deployed.see(module, args, kwargs, how, None)
    t = seen.translation
    numbers = {p.name: i for i, p in enumerate(t.params)}
    writes = []
    for (kind, which), output in t.writes:
        if kind != "param" or which not in numbers:
            raise _core.UnsupportedError(
                f"{type(module).__name__}: writes {which} in place: only its own tensors, in another framework"
            )
        writes.append((numbers[which], output))
    results = [r.value for r in t.results if r.kind == "output"]
    if len(results) != len(seen.outputs):
        raise _core.UnsupportedError(f"{type(module).__name__}: a result is no tensor that it computes")
    return Parsed(
        type(module).__name__,
        t.graph,
        [
            Input(n, -1 if i.leaf >= len(leaves) else i.leaf, i.handle)
            for n, i in zip(seen.inputs, t.inputs, strict=True)
        ],
        [_param(p) for p in t.params],
        [Output(n, sol_name(t.outputs[k][1]), k) for n, k in zip(seen.outputs, results, strict=True)],
        seen.pack,
        writes,
    )


def _param(p: Any) -> Param:
    constant = None if p.constant is None else _array(p.name, p.constant)
    return Param(p.name.removeprefix("model."), p.handle, constant)


def _array(name: str, tensor: torch.Tensor) -> Any:
    try:
        return tensor.detach().numpy()
    except (TypeError, RuntimeError) as e:
        raise _core.UnsupportedError(f"{name}: no array has its values: {e}") from None


def _leaf(leaf: Any) -> Any:
    """An argument for PyTorch: arrays and NumPy's types become PyTorch's."""
    if isinstance(leaf, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(leaf))
    if isinstance(leaf, Described):
        return type(leaf)(leaf.shape, leaf.requires_grad, getattr(torch, type_name(leaf.dtype)))
    return leaf


@contextlib.contextmanager
def _training(root: torch.nn.Module) -> Iterator[None]:
    """Sets all modules to train mode temporarily, unless the model is in it: then those stay that were set to eval mode."""
    modes = {m: m.training for m in root.modules()}
    if not root.training:
        root.train()
    try:
        yield
    finally:
        for m, training in modes.items():
            m.training = training
