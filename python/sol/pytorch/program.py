"""One compiled program of a model, for one structure of arguments, their shapes and types, and the modes of its modules."""

from __future__ import annotations

import operator
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sol import _core, log
from sol.forms import Varies, at, form

from . import optimizers, places, profiling, training
from .export import export
from .facts import Facts
from .hosted import Differs
from .layout import Layout
from .same import same
from .skeleton import model_class
from .state import overwritten
from .structure import builder
from .traced import Traced
from .training import Gradient, Origin
from .translate import HALF, Translator
from .translation import Parameter, Replay, Translation
from .values import Given
from .vary import Kept

TENSORS = (torch.Tensor, torch.nn.Parameter)
_CODE = {
    torch.bool: 6,
    torch.float32: 2,
    torch.float64: 2,
    torch.complex64: 5,
    torch.complex128: 5,
}  # DLPack's; other types
# are (un)signed integers


def _spec(
    dtype: torch.dtype, shape: Sequence[Any], strides: Sequence[Any]
) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    code = _CODE.get(dtype, 0 if dtype.is_signed else 1)
    return code, 8 * dtype.itemsize, tuple(map(form, shape)), tuple(map(form, strides))


class Owned:
    """A tensor of a model, by the dict that holds it, so that a replaced tensor is noticed."""

    __slots__ = ("key", "name", "owner")

    def __init__(self, name: str, owner: dict[str, Any], key: str) -> None:
        self.name, self.owner, self.key = name, owner, key

    @property
    def tensor(self) -> torch.Tensor:
        """The current tensor."""
        t: torch.Tensor | None = self.owner.get(self.key)
        if t is None:
            raise Differs(f"{self.name}: is no longer in the model, which has changed since the call")
        return t


class _Copy:
    """A row-major copy of a parameter whose memory has gaps or repetitions, or of a half-precision buffer in float32. It is
    renewed when the original changes."""

    def __init__(self, source: Owned) -> None:
        self.source = source
        self.holder: dict[str, torch.Tensor] = {}
        self.state: tuple[Any, ...] = ()
        self.refresh()

    def refresh(self) -> None:
        t = self.source.tensor
        state = (id(t), t._version, t.data_ptr())
        if state != self.state:
            made = t.detach().resolve_conj().resolve_neg().contiguous()
            self.holder["copy"] = made.float() if t.dtype in HALF else made
            self.state = state


class Program:
    """Calls a network with the leaves of a call's arguments. Creating a program rejects unsupported models; its first
    use compiles it."""

    net: _core.Net
    caller: _core.Caller

    def __init__(
        self,
        root: torch.nn.Module,
        spec: pytree.TreeSpec,
        modes: Sequence[tuple[Any, ...]],
        given: Given,
        wanted: frozenset[Origin] = frozenset(),
    ) -> None:
        start = time.monotonic()
        leaves, owned = given.leaves, given.owned
        self.name = model_class(root).__name__
        self.spec = spec
        self.device = places.first([*leaves, *(o.tensor for o in owned.values())])  # of all tensors
        shown = [t for t in leaves if isinstance(t, torch.Tensor)]
        self.what = ", ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in shown)
        self.leaves = tuple(None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
        self.copies = {n: _Copy(o) for n, o in owned.items() if _is_copied(o.tensor)}
        self.owned = owned
        self.wanted = wanted  # what requires a gradient
        self.why: str | None = None  # why there is no program with gradients
        self.tensor_leaves = tuple(i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor))
        self.varying = given.varying  # a trace with sizes that vary between calls
        exported = self.varying.traced if self.varying else given.traced
        exported = exported or export(root, *examples(leaves, spec, wanted), bool(wanted), given)
        self.reads = exported.reads if exported.reads.rows else None  # the values that the program is valid for
        self.hosted = exported.reads.hosted
        self.fetcher = exported.reads.fetcher
        self.found = len(exported.found)  # sizes that the network sets
        traced = time.monotonic()
        self.translation = t = self._translated(exported, given)
        if self.varying:
            self.varying.round(t.roundings)
            self.what = ", ".join(
                f"{str(x.dtype)[6:]}{list(t.leaves[i].shape)}" for i, x in enumerate(leaves) if i in t.leaves
            )
        self._check_shared()
        self.gradient = Gradient(t, wanted) if any(t.tracked) else None
        log.debug(f"{self.name} for {self.what}: traced in {traced - start:.2f} s, "
                  f"translated in {time.monotonic() - traced:.2f} s")  # fmt: skip
        self.repeatable = not (
            t.writes
            or exported.effects
            or t.random
            or t.checks
            or self.found  # results follow that the network sets
            or self.hosted.steps
            or any(m.training for m in root.modules())
        )
        self.rows = tuple(self._empty(layout, dtype) for layout, dtype in t.outputs)
        modules = dict(root.named_modules())
        self.hosted.parts = {path: modules[path] for path in self.hosted.parts}
        self.effects = [(modules[path].__dict__, key, value) for path, key, value in exported.effects]
        self.single = exported.spec.is_leaf() and self._is_plain() and not self.effects
        self.build = builder(exported.spec)
        self.pending: tuple[Any, ...] | None = leaves, modes  # until it is compiled

    # -- making

    def _translated(self, traced: Traced, given: Given) -> Translation:
        copies = self.copies
        tensors = {n: copies[n].holder["copy"] if n in copies else o.tensor for n, o in self.owned.items()}
        before = overwritten(traced) if self.wanted else frozenset()
        return Translator(traced, self.name, given.leaves, tensors, given.fixed, self.wanted, before).run()

    def admits(self, given: Given, other: Kept | Traced) -> bool:
        """Whether sizes that the trace with symbols does not cover (such as 1) may be those of a call: another trace, of that
        call or for all of that kind, gives the same graph."""
        assert self.varying
        if isinstance(other, Kept) and not self.varying.covers(other):
            other = other.of(given.leaves) or other
        pairs = [(self.varying.sizes(given.leaves), other)] if isinstance(other, Traced) else []
        if isinstance(other, Kept):
            values = other.values(given.leaves)
            for sample in other.samples(values) if values is not None else ():
                sizes = tuple(other.size(p, sample) for p in self.varying.where)
                pairs += [(sizes, other.at(sample))] if self.varying.within(sizes) else []
        try:
            general = self._translated(self.varying.traced, given).graph
            found = bool(pairs) and all(same(general.at(n), self._translated(one, given).graph) for n, one in pairs)
        except (_core.Error, Varies) as e:
            log.debug(f"{self.name}: sizes that the program does not cover: {e}")
            return False
        if found and isinstance(other, Kept):
            self.varying.others.append(other)
        elif found:
            self.varying.admitted.add(pairs[0][0])
        return found

    def compile(self) -> None:
        """Compiles the program, unless it is compiled already."""
        if self.pending is None:
            return
        start = time.monotonic()
        if self.device != places.HOST:
            self.translation.graph.resident(places.name_of(self.device))
        self.net = self.translation.graph.compile()
        if self.gradient:
            self.gradient.compiled(self.translation, self.net)
        log.debug(f"{self.name} for {self.what}: compiled in {time.monotonic() - start:.2f} s")
        log.memory("Training" if self.gradient else "Inference", self.net, f"{self.name} for {self.what}")
        self.caller = self._make_caller(*self.pending)
        self.pending = None
        optimizers.watch(self)

    def _make_caller(self, leaves: Sequence[Any], modes: Any) -> _core.Caller:
        t = self.translation
        numbers = {i.leaf: n for n, i in enumerate(t.inputs)}
        rows: list[tuple[Any, ...]] = []
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor):
                layout = t.leaves.get(i) or Layout.of(leaf)
                rows.append((numbers.get(i, -1), _spec(leaf.dtype, layout.shape, layout.strides)))
            else:
                rows.append((leaf,))
        for _, example in self.hosted.inputs:
            rows.append((numbers.get(len(rows), -1), _spec(example.dtype, example.shape, example.stride())))
        for tensor in self._before():
            layout = Layout.of(tensor)
            rows.append((numbers[len(rows)], _spec(tensor.dtype, layout.shape, layout.strides)))
        if t.random:
            rows.append((numbers[len(rows)], _spec(torch.int64, (), ())))
        params = tuple(self._slot(p) for p in t.params)
        results, split = self.rows, None
        if g := self.gradient:
            results += tuple(self._empty(layout, dtype) for layout, dtype in g.layouts(t))
            given = tuple(_spec(t.outputs[i][1], *self.rows[i][0]) for i in g.of)
            split = (len(t.inputs), len(t.outputs), given)
        sizes = (self.varying.where, self.varying.check) if self.varying else ((), lambda sizes: True)
        sizes = (sizes[0] + self.found * ((-1, -1),), sizes[1])
        return _core.Caller(
            self.net,
            TENSORS,
            torch.empty_strided,
            tuple(rows),
            params,
            tuple(modes),
            results,
            split,
            sizes if sizes[0] else None,
            places.of_caller(self.device),
        )

    def _slot(self, p: Parameter) -> tuple[Any, ...]:
        tensor: torch.Tensor
        owner: dict[str, Any] | None
        key: Any
        if p.leaf is not None:
            tensor, owner, key = p.leaf[1], None, p.leaf[0]
        elif p.constant is not None:
            tensor = p.constant.to(self.device)
            owner, key = {"constant": tensor}, "constant"
        elif p.name in self.copies:
            tensor, owner, key = self.copies[p.name].holder["copy"], self.copies[p.name].holder, "copy"
        else:
            tensor, owner, key = self.owned[p.name].tensor, self.owned[p.name].owner, self.owned[p.name].key
        spec = _spec(tensor.dtype, tensor.shape, tensor.stride())
        wants = -1  # Python checks leaves and copies
        if self.gradient and p.name in self.owned and p.name not in self.copies and p.leaf is None:
            wants = int(("param", p.name) in self.wanted)
        return owner, key, not tensor.is_inference(), spec, wants

    def _empty(self, layout: Layout, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments for new memory in the network's order. Without gaps, strides are those of PyTorch's eager mode."""
        kwargs = {"dtype": dtype, "device": self.device}
        if layout.dense and not layout.repeated:
            return (tuple(map(form, layout.shape)), tuple(map(form, layout.strides))), kwargs
        shape: list[Any] = [1 if d in layout.repeated else n for d, n in enumerate(layout.shape)]
        strides: list[Any] = [1] * len(shape)
        n: Any = 1
        for d in reversed(layout.order):
            strides[d] = n
            n = n * shape[d]
        return (tuple(map(form, shape)), tuple(map(form, strides))), kwargs

    def _is_plain(self) -> bool:
        """Whether the network's outputs are exactly the results."""
        t = self.translation
        plain = all(layout.dense and not layout.repeated for layout, _ in t.outputs)
        in_order = [r.value if r.kind == "output" else None for r in t.results] == list(range(len(t.outputs)))
        return plain and in_order and not t.writes

    # -- calling

    def reads_the_same(self, leaves: Sequence[Any], facts: Facts) -> bool:
        """Would forward read the values that the program is for, as far as is known before it runs?"""
        return self.reads is None or (self not in facts.failed and self.reads.hold(leaves, self.owned, facts))

    def confirms(self, outputs: Sequence[torch.Tensor], facts: Facts) -> bool:
        """Did the network find the values that the program assumes? The first other one is entered in `facts`."""
        assert self.reads
        for i, numbers in self.translation.checks:
            row = self.reads.rows[i]
            tensors = [_shaped(outputs[n].detach(), self.translation.outputs[n][0], ()) for n in numbers]
            value = row.function(*tensors)
            facts.learn(i, row.form, value)
            if repr(value) != row.text:
                return False
        return True

    def call(self, leaves: tuple[Any, ...], threads: int, facts: Facts) -> tuple[Any, ...] | None:
        """The network's outputs; None: something about the call is not what this program is for."""
        profiling.watch()
        return self.caller.call(self._ready(leaves, facts), threads)

    def train(
        self, dense: tuple[Any, ...], leaves: Sequence[Any], facts: Facts, apart: training.Apart | None = None
    ) -> tuple[Any, ...] | None:
        """The same for a program with gradients. `leaves` are the caller's, `dense` those that the network can read. `apart` receives
        tensors in place of those that have gradients."""
        assert self.gradient
        for i in self.tensor_leaves:
            if not isinstance(leaves[i], torch.Tensor) or leaves[i].requires_grad != (("leaf", i) in self.wanted):
                return None
        for name in self.copies:
            if self.owned[name].tensor.requires_grad != (("param", name) in self.wanted):
                return None
        wanted = [leaves[which] if kind == "leaf" else self.owned[which].tensor for kind, which in self.gradient.slots]
        if apart is not None:
            apart.update({id(t): t.detach().requires_grad_() for t in wanted})
            wanted = [apart[id(t)] for t in wanted]
        profiling.watch()
        return training.forward(self, self._ready(dense, facts), wanted)

    def _ready(self, leaves: tuple[Any, ...], facts: Facts) -> tuple[Any, ...]:
        for copy in self.copies.values():
            copy.refresh()
        seed = (places.put(facts.seed, self.device),) if self.translation.random else ()
        if self.translation.before:
            seed = (*self._before(), *seed)
        if not self.hosted.steps:
            return leaves + seed
        if not self.caller.accepts((*leaves, *(example for _, example in self.hosted.inputs), *seed)):
            raise Differs  # before anything is drawn
        hosted = self.hosted.results(self.fetcher(leaves, self.owned, facts), facts)
        return leaves + tuple(t.to(self.device) for t in hosted) + seed

    def _before(self) -> list[torch.Tensor]:
        """The tensors of the model that a call overwrites, although its backward may need them."""
        names = self.translation.before
        return [self.copies[n].holder["copy"] if n in self.copies else self.owned[n].tensor for n in names]

    def sources(self, params: Sequence[int], leaves: Sequence[Any]) -> list[torch.Tensor]:
        """The current tensors of the network's parameters (without constants)."""
        found = []
        for i in params:
            p = self.translation.params[i]
            if p.leaf is not None:
                found.append(leaves[p.leaf[0]])
            elif p.constant is None:
                found.append(self.owned[p.name].tensor)
        return found

    def lay(self, output: int, gradient: torch.Tensor | None, dims: tuple[int, ...]) -> torch.Tensor:
        """Brings the gradient of an output into the memory layout of the output. `dims`: the sizes of the call that vary."""
        args, kwargs = self.rows[output]
        if dims:
            args = tuple(tuple(_core.size_at(n, dims) for n in sizes) for sizes in args)
        if gradient is None:
            return torch.empty_strided(*args, **kwargs).zero_()
        if gradient.layout != torch.strided:
            gradient = gradient.to_dense()
        lazy = gradient.is_neg() or gradient.is_conj()
        if gradient.stride() == args[1] and type(gradient) in TENSORS and not lazy:
            return gradient
        return torch.empty_strided(*args, **kwargs).copy_(gradient.detach())

    def finish(self, outputs: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
        """The leaves of the model's result, computed from the network's outputs. Also performs the model's in-place
        writes, and sets the attributes that it sets."""
        t = self.translation
        if t.writes:
            self._check_overlaps(leaves)
        dims = self.varying.sizes(leaves) if self.varying else ()
        if self.found:
            *outputs, dims = outputs
        outputs = tuple(_shaped(o, layout, dims) for o, (layout, _) in zip(outputs, t.outputs, strict=True))
        if t.writes:
            with torch.no_grad():
                targets = [self._base(w, leaves, outputs) for w, _ in t.writes]
                made = [outputs[n] for _, n in t.writes]
                if places.copies_many(self.device):
                    torch._foreach_copy_(targets, made)
                else:
                    for target, value in zip(targets, made, strict=True):
                        target.copy_(value)
        for attributes, key, value in self.effects:
            attributes[key] = value
        results = []
        for r in t.results:
            if r.kind == "value":
                results.append(at(r.value, dims) if dims else r.value)
            elif r.kind == "output":
                results.append(outputs[r.value])
            else:
                results.append(self._replay(r.value, leaves, outputs, dims))
        return results

    def _check_overlaps(self, leaves: Sequence[Any]) -> None:
        """Rejects arguments that share memory with what the model writes in place: the network treats them as separate
        tensors."""
        spans = {i: _span(leaf) for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
        for target, _ in self.translation.writes:
            first, last = _span(self._base(target, leaves, ()))
            for i, (low, high) in spans.items():
                if target != ("leaf", i) and low < last and first < high:
                    what = f"argument {target[1]}" if target[0] == "leaf" else f"'{target[1]}'"
                    raise _core.UnsupportedError(
                        f"{self.name}: writes {what} in place, which shares memory with argument {i}: "
                        "not supported; pass a clone of one of them"
                    )

    def _check_shared(self) -> None:
        """Rejects models that write in place to a tensor that shares memory with another of their own tensors."""
        changed = {which for (kind, which), _ in self.translation.writes if kind == "param"}
        names = {
            id(self.owned[n].tensor): n for n in changed | {p.name for p in self.translation.params} if n in self.owned
        }
        spans = sorted((*_span(self.owned[n].tensor), n) for n in names.values()) if changed else []
        end, furthest = 0, ""
        for low, high, name in spans:
            if low < min(end, high) and changed & {name, furthest}:
                raise _core.UnsupportedError(
                    f"{self.name}: '{furthest}' and '{name}' share memory, and the model writes it in place: "
                    "not supported; give one of them a clone"
                )
            if high > end:
                end, furthest = high, name

    def _base(self, base: tuple[str, Any], leaves: Sequence[Any], outputs: Sequence[Any]) -> Any:
        kind, which = base
        if kind == "param":
            return self.owned[which].tensor if which in self.owned else self.translation.constants[which]
        return leaves[which] if kind == "leaf" else outputs[which]

    def _replay(self, replay: Replay, leaves: Sequence[Any], outputs: Sequence[Any], dims: tuple[int, ...]) -> Any:
        value = self._base(replay.base, leaves, outputs)
        for function, args, kwargs in at(replay.steps, dims) if dims else replay.steps:
            value = value[args[0]] if function is operator.getitem else function(value, *args, **kwargs)
        return value

    def takes(self, leaves: Sequence[Any]) -> bool:
        """Whether sizes may vary, and these fit."""
        return self.varying is not None and self.varying.fits(leaves)

    def wants_gradients(self, leaves: Sequence[Any]) -> bool:
        """Whether PyTorch's result would have gradients."""
        return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves) or any(
            o.tensor.requires_grad for o in self.owned.values()
        )

    def reached(self, leaves: Sequence[Any]) -> list[bool]:
        """The same by output."""

        def found(kind: str, which: Any) -> bool:
            tensor = leaves[which] if kind == "leaf" else self.owned[which].tensor
            return isinstance(tensor, torch.Tensor) and tensor.requires_grad  # the call rejects other leaves

        return [any(found(*o) for o in of) for of in self.translation.origins]

    def refresh(self, ids: set[int] | None = None) -> None:
        """Marks parameters with these ids as changed for the next call; None: all parameters."""
        for c in self.copies.values():
            c.state = ()
        if self.pending is None:
            self.caller.refresh(ids)


def examples(leaves: Sequence[Any], spec: pytree.TreeSpec, wanted: frozenset[Origin]) -> tuple[Any, Any]:
    """Arguments for tracing: the same memory without a history."""
    apart = [
        leaf.detach().requires_grad_(("leaf", i) in wanted) if isinstance(leaf, torch.Tensor) else leaf
        for i, leaf in enumerate(_apart(leaves))
    ]
    args, kwargs = pytree.tree_unflatten(apart, spec)
    return args, kwargs


def _span(t: torch.Tensor) -> tuple[int, int]:
    """The address range of a tensor's elements."""
    if not t.numel():
        return 0, 0
    last = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return t.data_ptr(), t.data_ptr() + (last + 1) * t.element_size()


def _apart(leaves: Sequence[Any]) -> list[Any]:
    """The leaves, copied if they share memory: a trace would treat them as one tensor. Those on a device have stand-ins on
    the host."""
    found: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            low, high = _span(leaf)
            others = [_span(o) for o in found if isinstance(o, torch.Tensor)]
            if places.is_away(leaf) or any(a < high and low < b for a, b in others):
                leaf = torch.empty_strided(
                    leaf.shape, leaf.stride(), dtype=leaf.dtype, requires_grad=leaf.requires_grad
                )
        found.append(leaf)
    return found


def _is_copied(t: torch.Tensor) -> bool:
    if t.dtype in HALF and not isinstance(t, torch.nn.Parameter):
        return True
    layout = Layout.of(t)
    return not layout.dense or bool(layout.repeated) or t.is_conj() or t.is_neg()


def _shaped(t: torch.Tensor, layout: Layout, dims: tuple[int, ...]) -> torch.Tensor:
    """An output with the strides of PyTorch's eager mode: repeated dimensions expanded, gaps added."""
    if layout.dense and not layout.repeated:
        return t
    shape, strides = at((layout.shape, layout.strides), dims) if dims else (layout.shape, layout.strides)
    if layout.dense:
        return t.expand(shape)
    sized = torch.empty_strided(t.shape, strides, dtype=t.dtype, device=t.device)
    return sized.copy_(t).expand(shape)


__all__ = ["Owned", "Program", "examples"]
