"""A model of another framework as a torch.nn.Module, which owns the parameters. Its programs are called, differentiated and kept as those
of PyTorch's own models are: only the translation comes from a `Parsed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sol import _core, forms, log
from sol.parsed import REAL, Call, Mode, Parsed, Source, dotted, example, flatten, rebuild, taken

from . import arguments, module, program
from .builder import TORCH_TYPE
from .face import attach
from .guards import Row
from .layout import Layout, row_major
from .traced import Traced
from .training import Origin
from .translation import Input, Parameter, Result, Translation
from .values import Given

_NOT_HERE = (
    "runs by SOL's programs only: not in torch.func, torch.jit.trace, torch.compile, make_fx or torch.autocast; wrap what it was made "
    "from"
)


class From:
    """What a wrapped model was made from. Copies of the model share it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.names: dict[str, str] = {}  # of parameters: that of the source, that of the module

    def __deepcopy__(self, memo: Any) -> From:
        return self


class Model(torch.nn.Module):
    """Parameters and buffers of a model of another framework, under its names: `a/b/kernel` is `a.b.kernel`."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.made_from = From(source)
        same: dict[Any, torch.Tensor] = {}
        for o, name in zip(source.owned, dotted(source.owned), strict=True):
            if o.key not in same:
                tensor = torch.from_numpy(o.array.copy())
                same[o.key] = torch.nn.Parameter(tensor) if o.trained else tensor
            self.made_from.names[o.name] = self._add(name.split("."), same[o.key])
        self.eval()

    def _add(self, path: Sequence[str], tensor: torch.Tensor) -> str:
        where: torch.nn.Module = self
        found: list[str] = []
        for part in path[:-1]:
            part = _free(where, part, where._modules)
            if part not in where._modules:
                where.add_module(part, torch.nn.Module())
            where, found = where._modules[part], [*found, part]  # type: ignore[assignment]
        last = _free(where, path[-1], {})
        if isinstance(tensor, torch.nn.Parameter):
            where.register_parameter(last, tensor)
        else:
            where.register_buffer(last, tensor)
        return ".".join([*found, last])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Only what records a call instead of running it comes here."""
        source = self.made_from.source
        raise _core.UnsupportedError(f"{source.name}: a model of {source.framework} {_NOT_HERE}")

    def extra_repr(self) -> str:
        """The source, in what `print` shows."""
        return f"{self.made_from.source.name} of {self.made_from.source.framework}"


def _free(where: torch.nn.Module, name: str, known: dict[str, Any]) -> str:
    """A name that is no attribute of modules, such as `type`."""
    while hasattr(where, name) and name not in known:
        name += "_"
    return name


class Varying:
    """The sizes that vary in a parsed graph; as vary.Varying."""

    def __init__(self, traced: Wrapped) -> None:
        self.traced, self.net = traced, None
        found: dict[str, tuple[int, int]] = {}
        for i in traced.parsed.inputs:
            for d, n in enumerate(i.tensor.shape if i.leaf >= 0 else ()):
                if _core.size_limits(n):
                    found.setdefault(_core.size_text(n), (i.leaf, d))
        self.where = tuple(found[name] for name in sorted(found, key=lambda name: int(name[1:])))
        self.shapes = [i.tensor.shape for i in traced.parsed.inputs]

    def round(self, roundings: Sequence[Any]) -> None:
        """A parsed graph has no rounded sizes."""

    def sizes(self, leaves: Sequence[Any]) -> tuple[int, ...]:
        """The sizes of a call."""
        return tuple(leaves[i].shape[d] for i, d in self.where)

    def check(self, sizes: tuple[int, ...]) -> bool:
        """Whether the network takes these."""
        return self._binds(tuple(tuple(_core.size_at(n, sizes) for n in shape) for shape in self.shapes))

    def fits(self, leaves: Sequence[Any]) -> bool:
        """Whether leaves of the right kind have such shapes."""
        return self._binds(tuple(tuple(leaves[i.leaf].shape) if i.leaf >= 0 else () for i in self.traced.parsed.inputs))

    def _binds(self, shapes: tuple[tuple[int, ...], ...]) -> bool:
        assert self.net is not None
        try:
            self.net.bind(shapes)
        except _core.InvalidError as e:
            log.debug(f"{self.traced.parsed.name}: a program for this call alone: {e}")
            return False
        return True


class Wrapped(Traced):
    """A parsed model in place of a traced one."""

    def __init__(self, parsed: Parsed) -> None:
        self.parsed = parsed
        tree, self.order = taken(parsed)
        self.values, spec = pytree.tree_flatten(tree)
        super().__init__(torch.fx.Graph(), torch.nn.Module(), [], [], {}, spec, [])


class Program(program.Program):
    """Calls a network of a wrapped model."""

    def _translated(self, traced: Traced, given: Given) -> Translation:
        assert isinstance(traced, Wrapped)
        parsed, names = traced.parsed, self._names
        t = Translation(parsed.graph)
        for i in parsed.inputs:
            t.inputs.append(Input(i.leaf if i.leaf >= 0 else len(given.leaves), _layout(i.tensor), i.tensor))
            t.random |= i.leaf < 0
            if i.leaf >= 0 and self.varying:
                t.leaves[i.leaf] = _layout(i.tensor)
        for p in parsed.params:
            constant = None if p.constant is None else torch.from_numpy(p.constant.copy())
            if constant is None:
                self._check(names[p.name], p.tensor)
            t.params.append(Parameter(names.get(p.name, p.name), constant, _layout(p.tensor), p.tensor))
        for _, tensor in parsed.graph.outputs:
            t.outputs.append((_layout(tensor), TORCH_TYPE[tensor.dtype]))
        t.origins = _origins(t, [o.number for o in parsed.outputs if o.dtype in REAL])
        t.tracked = [any(o in self.wanted for o in of) for of in t.origins]
        t.results = [
            Result("output", traced.order[v]) if v in traced.order else Result("value", v) for v in traced.values
        ]
        t.writes = [(("param", t.params[param].name), output) for param, output in parsed.writes]
        return t

    def _check(self, name: str, tensor: _core.Tensor) -> None:
        """A parameter is there, with the type and shape that it had when the model was wrapped."""
        own = self.owned[name].tensor if name in self.owned else None
        found = None if own is None else f"{str(own.dtype)[6:]}{list(own.shape)}"
        expected = f"{str(TORCH_TYPE[tensor.dtype])[6:]}{list(tensor.shape)}"
        if found != expected:
            raise _core.InvalidError(
                f"{self.name}: parameter {name}: expected {expected}, got {found or 'none'}; a model of another framework keeps its "
                "structure and types"
            )

    def __init__(
        self,
        root: torch.nn.Module,
        spec: pytree.TreeSpec,
        modes: Sequence[Row],
        given: Given,
        wanted: frozenset[Origin] = frozenset(),
    ) -> None:
        self._names: dict[str, str] = root.made_from.names  # type: ignore[union-attr,assignment]
        super().__init__(root, spec, modes, given, wanted)
        self.name = given.traced.parsed.name if given.traced else self.name

    def compile(self) -> None:
        """Compiles the program, unless it is compiled already."""
        if self.pending is None:
            return
        super().compile()
        if self.net.found:
            raise _core.UnsupportedError(f"{self.name}: sizes that depend on data: not supported in another framework")


class State(module.State):
    """The state of a wrapped model."""

    @staticmethod
    def dense(t: torch.Tensor) -> torch.Tensor:
        """An argument in the order of its dimensions, as the network reads it."""
        return arguments.dense(t).contiguous()

    def _made(
        self, root: torch.nn.Module, spec: pytree.TreeSpec, rows: Sequence[Row], given: Given, key: tuple[Any, ...]
    ) -> Program:
        """A new program: one for all sizes if the model was wrapped with `vdims` and this is possible."""
        wanted, source = key[0][-1], _source(root)
        mode = Mode(root.training, bool(wanted))
        args, kwargs = pytree.tree_unflatten([_array(leaf) for leaf in given.leaves], spec)
        if source.call.vdims and key not in self.alone:
            try:
                return self._for_all(
                    root, spec, rows, given, (source.parse(Call(args, kwargs, vdims=source.call.vdims), mode), wanted)
                )
            except (_core.UnsupportedError, _core.InvalidError) as e:
                log.info(f"{source.name}: each combination of sizes has a program: {e}")
                self.alone.add(key)
        given.varying, given.traced = None, Wrapped(source.parse(Call(args, kwargs), mode))
        return Program(root, spec, rows, given, wanted)

    def _for_all(
        self, root: torch.nn.Module, spec: pytree.TreeSpec, rows: Sequence[Row], given: Given, what: tuple[Parsed, Any]
    ) -> Program:
        traced = given.traced = Wrapped(what[0])
        given.varying = varying = Varying(traced)
        made = Program(root, spec, rows, given, what[1])
        made.compile()
        varying.net = made.net  # type: ignore[assignment]
        if len(made.net.dims) != len(varying.where):
            raise _core.UnsupportedError("no argument has the size of a dimension")
        if not varying.fits(given.leaves):
            raise _core.InvalidError("the sizes of this call are not among those that the program takes")
        return made

    def __init__(self, declared: Any, signature: Any) -> None:
        super().__init__(declared, signature)
        self.alone: set[Any] = set()  # kinds of calls for which no program takes all sizes


def _source(root: torch.nn.Module) -> Source:
    made_from: Any = root.made_from
    found: Source = made_from.source
    return found


def _origins(t: Translation, real: list[int]) -> list[list[Origin]]:
    """By output: the arguments and parameters that have an influence on it. `real`: the outputs that may have gradients."""
    rows: list[tuple[Origin, _core.Tensor]] = [
        (("leaf", i.leaf), i.handle) for i in t.inputs[: len(t.inputs) - t.random]
    ]
    rows += [(("param", p.name), p.handle) for p in t.params if p.constant is None]
    n, found = len(rows), t.graph.influences(tuple(real), tuple(handle for _, handle in rows))
    made: list[list[Origin]] = [[] for _ in t.outputs]
    for j, k in enumerate(real):
        made[k] = [origin for (origin, _), r in zip(rows, found[j * n : (j + 1) * n], strict=True) if r]
    return made


def _layout(tensor: _core.Tensor) -> Layout:
    shape = tuple(map(forms.size, tensor.shape))
    return Layout(shape, row_major(shape), tuple(range(len(shape))), (), True)


def _array(leaf: Any) -> Any:
    return leaf.detach().numpy() if isinstance(leaf, torch.Tensor) else leaf


def _tensor(leaf: Any) -> Any:
    made = example(leaf)
    return torch.from_numpy(made.copy()) if hasattr(made, "__array__") else made


def wrap(source: Source) -> torch.nn.Module:
    """A model of another framework as a module, in eval mode at first."""
    model = attach(Model(source), State, None)
    call = source.call
    if call.args or call.kwargs:
        args, kwargs = rebuild((call.args, call.kwargs), [_tensor(leaf) for leaf in flatten((call.args, call.kwargs))])
        state: State = model._sol  # type: ignore[assignment]
        leaves, spec, _ = state.canonical(model, args, kwargs)
        state.find(model, leaves, spec)
    return model
