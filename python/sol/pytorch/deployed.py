"""`sol.deploy` for PyTorch models: turns the model into a graph whose inputs and outputs are row-major tensors.

(If this module were called `deploy`, importing it would hide the function `sol.pytorch.deploy`.)
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sol import _core
from sol.inputs import Input

from . import arguments, as_module, deployed_sizes, places
from .export import export
from .module import evaluating, owned_tensors
from .placeholders import leaf_names
from .skeleton import model_class
from .symbols import Symbols
from .traced import Traced
from .translate import Translator
from .translation import Translation


class Deployed(torch.nn.Module):
    """A model that returns the tensors of the original's result, each row-major in its own memory."""

    def __init__(self, model: torch.nn.Module, note: Callable[[tuple[str, ...], Callable[..., Any]], None]) -> None:
        super().__init__()
        self.model = model
        self.note = (
            note  # called during tracing with the names of the outputs, and what makes the original's result of them
        )

    def forward(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        paths, spec = pytree.tree_flatten_with_path(self.model(*args, **kwargs))
        found = [(path, t) for path, t in paths if isinstance(t, torch.Tensor)]
        others = [None if isinstance(t, torch.Tensor) else (t,) for _, t in paths]
        self.note(tuple(_name(path) or "output" for path, _ in found), functools.partial(_pack, spec, others))
        return tuple(t.clone(memory_format=torch.contiguous_format) for _, t in found)


@dataclass
class Seen:
    """The model translated for one batch size."""

    translation: Translation
    tensors: dict[str, torch.Tensor]  # the model's, row-major
    trained: set[str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    pack: Callable[[Sequence[Any]], Any]  # makes the model's result of the results that are tensors

    def graph(self, batch: int | None) -> tuple[_core.Graph, tuple[int, ...], int, int, bytes | None, tuple[int, ...]]:
        """The arguments of `_core.deploy`."""
        t = self.translation
        addresses = tuple((p.constant if p.constant is not None else self.tensors[p.name]).data_ptr() for p in t.params)
        seed = len(t.inputs) - 1 if t.random else -1
        learns = bytes(p.constant is None and p.name in self.trained for p in t.params)
        return t.graph, addresses, seed, batch or 0, learns, self._written()

    def _written(self) -> tuple[int, ...]:
        """The parameters whose new values are the first outputs."""
        numbers = {p.name: i for i, p in enumerate(self.translation.params) if p.constant is None}
        found = []
        for n, ((kind, which), output) in enumerate(self.translation.writes):
            layout, _ = self.translation.outputs[output]
            if (
                kind != "param"
                or which not in numbers
                or output != n
                or layout.order != tuple(range(len(layout.order)))
            ):
                raise _core.UnsupportedError(f"writes {_model_name(which)} in place, which a deployed network cannot")
            found.append(numbers[which])
        return tuple(found)


def deploy_torch(
    model: Any,
    target: str,
    keys: dict[str, str],
    call: tuple[tuple[Any, ...], dict[str, Any], Any],
    sizes: Sequence[int | None],
) -> None:
    """Deploys the model in eval mode, with the current values of its parameters. Its training part uses the current
    modes of the modules. `call`: the example arguments, and what vdims says."""
    training = keys.get("training", "0") == "1"
    args, kwargs, vdims = call
    found: list[Seen] = []
    for n in sizes:
        module, given, named, batch = as_module("sol.deploy", model, args, kwargs, n)
        how = How(batch, n is None, vdims, False)
        with evaluating(module):
            found.append(see(module, given, named, how, found[0].tensors if found else None))
    name = model_class(module).__name__
    with _about(name):
        graphs = tuple(s.graph(n) for s, n in zip(found, sizes, strict=True))
        if any(g[-1] for g in graphs):
            which = ", ".join(_model_name(which) for s in found for (_, which), _ in s.translation.writes)
            raise _core.UnsupportedError(f"writes {which} in place, which a deployed network cannot")
        trains = None
        if training:
            module, given, named, batch = as_module("sol.deploy", model, args, kwargs, sizes[0])
            how = How(batch, sizes[0] is None, vdims, True)
            trains = see(module, given, named, how, found[0].tensors).graph(sizes[0])
    _core.deploy(graphs, target, keys, found[0].inputs, found[0].outputs, trains)


@contextlib.contextmanager
def _about(name: str) -> Iterator[None]:
    try:
        yield
    except _core.UnsupportedError as e:
        text = str(e)
        raise _core.UnsupportedError(text if text.startswith("One thing") else f"sol.deploy: {name}: {text}") from None


@dataclass
class How:
    """What the graph is for."""

    batch: int | None  # the size of open batches; None: nothing is said
    varies: bool  # sizes that are open vary, because no batch size is given
    vdims: Any
    training: bool


def see(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    how: How,
    tensors: dict[str, torch.Tensor] | None,
) -> Seen:
    """Traces and translates the model. `tensors`: the model's, if known already, so that equal weights have equal
    addresses."""
    name, batch_size, training = model_class(module).__name__, how.batch, how.training
    leaves, spec = pytree.tree_flatten((args, kwargs))
    names = leaf_names(module, args, kwargs)
    exact = any(
        isinstance(leaf, Input) and leaf.shape and leaf.varies(0) for leaf in leaves
    )  # it tells where the batch is
    declared = [arguments.declare(leaf, None if exact else batch_size) for leaf in leaves]
    if batch_size is not None and not any(isinstance(d, Input) and d.shape and d.varies(0) for d in declared):
        raise _core.InvalidError(
            f"{name}: batch_size: no argument leaves its first size open: give tensors, or sol.input([0, ..])"
        )
    places.check_host([(f"argument {i}", leaf) for i, leaf in enumerate(leaves)])
    leaves = [
        _row_major(arguments.example(i, d, leaf, batch_size))
        for i, (d, leaf) in enumerate(zip(declared, leaves, strict=True))
    ]
    noted: list[tuple[tuple[str, ...], Callable[..., Any]]] = []
    root = type(name, (Deployed,), {})(module, lambda *note: noted.append(note))  # messages contain the model's name
    owned = {n: o.tensor for n, o in owned_tensors(root).items()}
    places.check_host(owned.items())
    tensors = tensors or {n: _row_major(t) for n, t in owned.items()}
    trained = {n for n, t in owned.items() if t.requires_grad}
    wanted = frozenset(("param", n) for n in trained) if training else frozenset()

    def trace(leaves: Sequence[Any], symbols: Symbols | None = None) -> Traced:
        given, named = pytree.tree_unflatten(leaves, spec)
        return export(root, given, named, training, None, symbols)

    def translator(traced: Traced, leaves: Sequence[Any]) -> Translator:
        return Translator(traced, name, leaves, tensors, frozenset(), wanted)

    with torch.set_grad_enabled(training):
        if how.varies and deployed_sizes.wanted(how.vdims, declared):
            tracer = deployed_sizes.Tracer(name, trace, translator)
            kept, declared = deployed_sizes.find(tracer, declared, leaves, how.vdims)
            leaves = [
                _row_major(arguments.example(i, d, leaf, batch_size))
                for i, (d, leaf) in enumerate(zip(declared, leaves, strict=True))
            ]
            translation = deployed_sizes.translate(tracer, kept, declared, leaves)
        else:
            translation = translator(trace(leaves), leaves).run()
    inputs = tuple(names[i.leaf] if i.leaf < len(names) else "seed" for i in translation.inputs)
    return Seen(translation, tensors, trained, inputs, *noted[-1])


def _pack(spec: pytree.TreeSpec, others: Sequence[tuple[Any] | None], found: Sequence[Any]) -> Any:
    """The model's result: these tensors, and the values that are none."""
    rest = iter(found)
    return pytree.tree_unflatten([next(rest) if o is None else o[0] for o in others], spec)


def _model_name(which: Any) -> str:
    return str(which).removeprefix("model.")


def _name(path: Sequence[Any]) -> str:
    """The path to a value in nested lists and dicts, as a name: "hidden_0"."""
    parts = [str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", "")))) for k in path]
    return "_".join(p if not p.isdigit() or i else f"output_{p}" for i, p in enumerate(parts))


def _row_major(leaf: Any) -> Any:
    return leaf.detach().contiguous() if isinstance(leaf, torch.Tensor) else leaf


__all__: Sequence[str] = ["How", "Seen", "deploy_torch", "see"]
