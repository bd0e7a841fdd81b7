"""Handles in-place operators on memory that several tensors share.

Tensors of a trace with the same storage are one piece of memory: a root, and its views. SOL's graph has only values.
So a write to a view becomes a new value of the root in which the view's part is replaced, and views that are read
later are computed again from it.

Autograd does not see what is written under no_grad() or through detach(): the values change, and gradients go where they went before.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from sol import forms

from .assigned import assigned
from .builder import Builder, Complex, Rejected, Value
from .function import graft, incoming

Node = torch.fx.Node


def storage(node: Node) -> int | None:
    """Identifies the memory of a node's value (a tensor, or several that share memory)."""
    val = node.meta.get("val")
    if node.target in (graft, incoming):  # each result is a piece of its own
        return None
    keys = {_key(v) for v in (val if isinstance(val, list | tuple) else [val])}
    return keys.pop() if len(keys) == 1 else None


def _key(value: Any) -> int | None:
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    if torch._C._functorch.is_functorch_wrapped_tensor(value):
        return None
    return int(value.untyped_storage()._cdata)


_BY_ROWS = frozenset(("aten::_native_batch_norm_legit", "aten::_batch_norm_with_update"))  # they call Builder.write


def written(node: Node) -> Node | None:
    """The argument that an operator writes. None: it writes nothing, or its translation handles the write."""
    schema = getattr(node.target, "_schema", None)
    if schema is not None and schema.name in _BY_ROWS:
        return None
    if schema is None or not schema.is_mutable or torch.Tag.inplace_view in node.target.tags:  # type: ignore[union-attr]
        return None
    found = []
    for i, argument in enumerate(schema.arguments):
        value = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
        if argument.alias_info is not None and argument.alias_info.is_write:
            found += list(value) if isinstance(value, list | tuple) else [value]
    found = [v for v in found if v is not None]
    if len(found) != 1 or not isinstance(found[0], Node):
        raise Rejected("writing several tensors at once")
    return found[0]


def viewed(node: Node) -> Node | None:
    """The argument whose memory contains a node's value."""
    key = storage(node)
    if key is None or node.op != "call_function":
        return None
    return next((a for a in node.all_input_nodes if storage(a) == key), None)


DETACHED = frozenset(getattr(torch.ops.aten, n).default for n in ("detach", "detach_", "detach_copy"))


class Memory:
    """The pieces of memory of one translation: the newest value of each, which views are older, and where gradients end."""

    def __init__(
        self, b: Builder, read: Callable[[Any], Any], again: Callable[[Node], Any], env: dict[Node, Any]
    ) -> None:
        self.b = b
        self.read = read
        self.again = again  # translates a node again
        self.env = env
        self.version: dict[int, int] = {}
        self.stamp: dict[Node, int] = {}  # the version of env[node]
        self.roots: dict[int, Node] = {}
        self.same: dict[Node, Node] = {}  # placeholder of an inner graph -> the node it stands for
        self.enabled = True  # False: within no_grad()
        self.stops: dict[Any, Value] = {}  # values that have no gradient, and those that they equal
        self.written: Any = None  # what the operator has written, with its gradient

    def begin(self, enabled: bool | None) -> None:
        """Called in front of each operator. `enabled`: whether gradients are; None: as before."""
        self.enabled = self.enabled if enabled is None else enabled
        self.written = None

    def enter(self, node: Node) -> None:
        """Records that a node was translated."""
        key = storage(node)
        if key is not None:
            self.roots.setdefault(key, node)
            self.stamp[node] = self.version.get(key, 0)

    def freshen(self, node: Node) -> None:
        """Computes a view again if its memory was written since."""
        key = storage(node)
        if key is None or self.stamp.get(node, 0) == self.version.get(key, 0):
            return
        self.env[node] = self.again(node)
        self.stamp[node] = self.version[key]

    def write(self, node: Node, value: Value) -> None:
        """Gives the memory that a node refers to a new value."""
        if value is self.env.get(node):
            return
        key = storage(node)
        if key is None:
            raise Rejected("writing a tensor without memory of its own")
        at, made = node, value
        while at is not self.roots[key]:
            parent = self.same.get(at) or viewed(at)
            if parent is None and at.op == "placeholder":
                raise Rejected("writing a tensor in place that shares memory with another one of the model")
            if parent is None:
                raise Rejected(f"writing what {at.target} made")
            if at not in self.same and written(at) is None:
                made = _put(self.b, at, self.read(parent), made)
            at = parent
        self.version[key] = self.version.get(key, 0) + 1
        for n, v in ((at, made), (node, value)):
            self.env[n] = v
            self.stamp[n] = self.version[key]

    def stopped(self, node: Node, made: Any) -> Any:
        """Results inside no_grad(), or detached, have no gradient; a tensor that is written there keeps its own."""
        if (self.enabled and node.target not in DETACHED) or (made is not None and made is self.written):
            return made
        if isinstance(made, list | tuple):
            return type(made)(self.stopped(node, m) for m in made)
        if isinstance(made, Complex):
            return Complex(self.stopped(node, made.re), self.stopped(node, made.im))
        if not isinstance(made, Value) or not made.tracked:
            return made
        stopped = self.b.layer("stop", made)
        self.stops[stopped] = self.stops.get(made, made)
        return stopped

    def put(self, node: Node, target: Node, value: Any) -> Any:
        """Records that an operator writes the memory of `target`, and returns what is there then. Values that were read from it
        before keep their gradients."""
        root = self.root_node(target) or target
        whole, part = self.root(target), self.env.get(target)
        if self.stops.get(value, value) is self.stops.get(part, part):  # its own values
            self.written = part
            return part
        through = self.enabled and isinstance(part, Value | Complex) and part.tracked
        self.write(target, self.stopped(node, value))
        if isinstance(whole, Value | Complex) and whole.tracked and not through:
            for n, before in {root: whole, target: part}.items():
                self.env[n] = self._unseen(self.env[n], before)
        self.written = self.env[target]
        return self.written

    def assign(self, before: Any, after: Any) -> Any:
        """What a tensor is after its data was assigned."""
        self.written = self._unseen(after, before)
        return self.written

    def _unseen(self, made: Any, before: Any) -> Any:
        """New values, with the gradient of those before."""
        if isinstance(made, Complex):
            return Complex(self._unseen(made.re, before.re), made.im and self._unseen(made.im, before.im))
        if not isinstance(before, Value) or not before.tracked:
            return made
        zeros = self.b.fill(made.shape, 0, made.dtype)  # stands for the gradient of what is made here
        grafted = self.b.layer("Graft", self.b.layer("stop", made), zeros, before, zeros)
        self.stops[grafted] = self.stops.get(made, made)
        return grafted

    def root(self, node: Node) -> Any:
        """The newest value of the whole memory that a node refers to."""
        key = storage(node)
        return None if key is None or key not in self.roots else self.env.get(self.roots[key])

    def root_node(self, node: Node) -> Node | None:
        """The node that made the whole memory that a node refers to."""
        key = storage(node)
        return None if key is None else self.roots.get(key)

    def written_roots(self) -> list[Node]:
        """The roots of written memory."""
        return [self.roots[key] for key in self.version]


# -- writing a view's new value into what it is a view of

_SAME = frozenset("detach alias contiguous to _to_copy dropout feature_dropout alpha_dropout clone lift_fresh".split())
_REGROUPED = frozenset(
    "view reshape _unsafe_view _reshape_alias flatten unflatten squeeze unsqueeze view_as reshape_as ravel squeeze_ unsqueeze_".split()
)
_PERMUTED = frozenset(
    "permute transpose t numpy_T mT mH adjoint movedim moveaxis swapaxes swapdims transpose_ t_ swapaxes_ swapdims_".split()
)
_PIECES = frozenset(
    "split split_with_sizes chunk tensor_split unbind unsafe_split unsafe_chunk hsplit vsplit dsplit".split()
)
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def _put(b: Builder, node: Node, whole: Value | list[Value], part: Any) -> Any:
    """`whole` with the part replaced that its view `node` shows."""
    if node.target is operator.getitem:
        pieces: list[Any] = list(whole)  # type: ignore[arg-type]
        pieces[node.args[1]] = part  # type: ignore[index]
        return pieces
    if node.target is assigned:
        return part
    name = node.target._schema.name.split("::")[-1]  # type: ignore[union-attr]
    if isinstance(whole, Complex) or isinstance(part, Complex):
        return _put_complex(b, node, name, whole, part)
    assert isinstance(whole, Value)
    rest = b.sized(_arguments(node))
    if name in _PIECES:
        return _join(b, node, whole, part)
    if name in _SAME and part.shape == whole.shape:
        return part
    if name in _REGROUPED:
        return b.reshape(part, whole.shape)
    if name in _PERMUTED:
        probe = node.target(torch.empty(_PRIMES[: whole.ndim], device="meta"), *node.args[1:], **node.kwargs)  # type: ignore[operator]
        order = [_PRIMES.index(n) for n in probe.shape]
        return b.permute(part, [order.index(d) for d in range(whole.ndim)])
    if name in ("slice", "narrow", "select"):
        return _put_slice(b, name, whole, part, rest)
    if name == "expand" and part.shape == whole.shape:
        return part
    if name == "diagonal":
        from .operators.index import diagonal_scatter

        return diagonal_scatter(b, whole, part, rest["offset"], rest["dim1"], rest["dim2"])
    raise Rejected(f"writing through a view made by {name}")


def _put_complex(b: Builder, node: Node, name: str, whole: Any, part: Any) -> Any:
    """Handles views of one part of a complex tensor, and of both as pairs. Any other view is a view of each part."""
    if name == "view_as_complex":
        return b.pairs(part)
    if name == "view_as_real":
        return b.from_pairs(part)
    if name in ("real", "imag"):
        return Complex(part, b.imaginary(whole)) if name == "real" else Complex(whole.re, part)
    if name in ("conj", "_conj"):
        return Complex(part.re, b.map("neg", b.imaginary(part)))
    if name in _PIECES:
        re = [p.re for p in part], [b.imaginary(p) for p in part]
        return Complex(*(_join(b, node, w, p) for w, p in zip((whole.re, b.imaginary(whole)), re, strict=True)))
    pairs = (whole.re, part.re), (b.imaginary(whole), b.imaginary(part))
    return Complex(*(_put(b, node, w, p) for w, p in pairs))


def _arguments(node: Node) -> dict[str, Any]:
    schema = node.target._schema  # type: ignore[union-attr]
    return {
        a.name: node.args[i] if i < len(node.args) else node.kwargs.get(a.name, a.default_value)
        for i, a in enumerate(schema.arguments)
    }


def _put_slice(b: Builder, name: str, whole: Value, part: Value, rest: dict[str, Any]) -> Value:
    dim = rest["dim"] % whole.ndim
    size = whole.shape[dim]
    if name == "select":
        start, end, step = rest["index"] % size, rest["index"] % size + 1, 1
        part = b.unsqueeze(part, dim)
    elif name == "narrow":
        start, end, step = rest["start"] % size, rest["start"] % size + rest["length"], 1
    else:
        start, end, step = forms.indices(rest["start"], rest["end"], rest["step"], size)
    if (start, end, step) == (0, size, 1):
        return part
    return b.layer("SliceScatter", whole, part, axes=[dim], start=[start], end=[forms.most(start, end)], step=[step])


def _join(b: Builder, node: Node, whole: Value, pieces: list[Value]) -> Value:
    name = node.target._schema.name.split("::")[-1]  # type: ignore[union-attr]
    if name == "unbind":
        return b.layer("Stack", *pieces, axis=_arguments(node)["dim"] % whole.ndim)
    differing = [d for d in range(whole.ndim) if any(p.shape[d] != whole.shape[d] for p in pieces)]
    return b.concat(pieces, differing[0]) if differing else pieces[0]
