"""`sol.deploy` for what PyTorch makes: the model as a graph whose inputs and outputs are row-major tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sol import _core

from . import as_module
from .export import export
from .module import _declare, _example, evaluating, owned_tensors
from .skeleton import model_class
from .trace import leaf_names
from .translate import Parameter, Translator


class Deployed(torch.nn.Module):
    """A model whose result is the tensors in what the model returns: row-major, each in memory of its own."""

    def __init__(self, model: torch.nn.Module, note: Callable[[tuple[str, ...]], None]) -> None:
        super().__init__()
        self.model = model
        self.note = note  # is told the outputs' names when the model is traced

    def forward(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        paths = pytree.tree_flatten_with_path(self.model(*args, **kwargs))[0]
        found = [(path, t) for path, t in paths if isinstance(t, torch.Tensor)]
        self.note(tuple(_name(path) or "output" for path, _ in found))
        return tuple(t.clone(memory_format=torch.contiguous_format) for _, t in found)


def deploy_torch(
    model: Any, target: str, keys: dict[str, str], args: tuple[Any, ...], kwargs: dict[str, Any], batch_size: int | None
) -> None:
    """Deploys the model as it is in eval mode, with its parameters as they are now."""
    module, args, kwargs, batch_size = as_module("sol.deploy", model, args, kwargs, batch_size)
    name = model_class(module).__name__
    training = keys.get("training", "0") == "1"
    leaves, spec = pytree.tree_flatten((args, kwargs))
    names = leaf_names(module, args, kwargs)
    leaves = [_row_major(_example(i, _declare(leaf, None), leaf, batch_size)) for i, leaf in enumerate(leaves)]
    noted: list[tuple[str, ...]] = []
    with evaluating(module):
        given, named = pytree.tree_unflatten(leaves, spec)
        root = type(name, (Deployed,), {})(module, noted.append).eval()  # messages say the model's name
        owned = {n: o.tensor for n, o in owned_tensors(root).items()}
        tensors = {n: _row_major(t) for n, t in owned.items()}
        trained = {n for n, t in owned.items() if t.requires_grad}
        wanted = frozenset(("param", n) for n in trained) if training else frozenset()
        with torch.set_grad_enabled(training):
            exported = export(root, given, named, training)
            translation = Translator(exported, name, leaves, tensors, frozenset(), wanted).run()
    if translation.writes:
        what = ", ".join(str(which) for (_, which), _ in translation.writes)
        raise _core.UnsupportedError(f"sol.deploy: {name}: writes {what} in place, which a deployed network cannot")
    data = [_data(p, tensors) for p in translation.params]
    seed = len(translation.inputs) - 1 if translation.random else -1
    inputs = tuple(names[i.leaf] if i.leaf < len(names) else "seed" for i in translation.inputs)
    learns = bytes(p.constant is None and p.name in trained for p in translation.params) if training else None
    addresses = tuple(t.data_ptr() for t in data)
    _core.deploy(translation.graph, target, keys, addresses, seed, inputs, noted[-1] if noted else None, learns)


def _name(path: Sequence[Any]) -> str:
    """Where in a structure of lists and dicts something is: "hidden_0"."""
    parts = [str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", "")))) for k in path]
    return "_".join(p if not p.isdigit() or i else f"output_{p}" for i, p in enumerate(parts))


def _row_major(leaf: Any) -> Any:
    return leaf.detach().contiguous() if isinstance(leaf, torch.Tensor) else leaf


def _data(p: Parameter, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    return p.constant if p.constant is not None else tensors[p.name]


__all__: Sequence[str] = ["deploy_torch"]
