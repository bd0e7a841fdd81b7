"""The arguments of an optimized model: what calls were declared in sol.optimize, and what a network can take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sol import _core
from sol.inputs import ANY, Dim, Exact, Input

from . import places
from .builder import REAL, SOL_NAME
from .layout import Layout
from .program import TENSORS

SIMPLE = (bool, int, float, str, type(None))  # values that are constants of a program


def leaf_key(leaf: Any) -> Any:
    """A leaf as part of a program's key."""
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, leaf.shape, leaf.stride(), leaf.device
    if leaf is None or isinstance(leaf, bool | int | float | str):
        return type(leaf), repr(leaf)
    return type(leaf), id(leaf)


def kind_key(leaf: Any) -> Any:
    """A leaf as part of the key of what programs of several sizes share."""
    if isinstance(leaf, torch.Tensor):
        layout = Layout.of(leaf)
        return leaf.dtype, layout.order, layout.repeated, leaf.requires_grad, leaf.device
    return leaf_key(leaf)


def checked(i: int, t: torch.Tensor, translated: bool = False) -> torch.Tensor:
    """Rejects arguments that a network cannot take, by name. `translated`: translation already checks the rest."""
    what, instead = None, ""
    if type(t) not in TENSORS:
        what = f"tensors of class {type(t).__module__}.{type(t).__qualname__}"
    elif t.is_nested:
        what = "nested tensors"
    elif not places.is_known(t.device):
        what = f"tensors on device {t.device}"
    elif t.layout != torch.strided:
        what, instead = f"{str(t.layout).removeprefix('torch.')} tensors", "; use t.to_dense()"
    elif t.is_quantized:
        what, instead = "quantised tensors", "; use t.dequantize()"
    elif t.dtype not in SOL_NAME and t.dtype not in REAL and not translated:
        what = f"data type {str(t.dtype).removeprefix('torch.')}"
        instead = "; use t.float(), and model.float() if the model has this type, too" if t.is_floating_point() else ""
    if what:
        raise _core.UnsupportedError(f"argument {i}: {what}: not supported{instead}")
    return t


def dense(t: torch.Tensor) -> torch.Tensor:
    """Returns the tensor without gaps; any order of dimensions is fine. A network expands dimensions that repeat elements
    itself, but not if it writes a gradient of them."""
    if t.is_neg() or t.is_conj():
        t = t.resolve_neg().resolve_conj()
    layout = Layout.of(t)
    once = not layout.repeated or not (t.requires_grad or t.is_complex())
    return t if layout.dense and once else t.contiguous()


def present(leaves: Sequence[Any], spec: pytree.TreeSpec) -> frozenset[Any]:
    """The arguments of a call that are not None, by position or name."""
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return frozenset(k for k, v in (*enumerate(args), *kwargs.items()) if v is not None)


def describe(leaf: Any) -> str:
    """A leaf in words."""
    if isinstance(leaf, torch.Tensor):
        return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
    return repr(leaf) if isinstance(leaf, SIMPLE) else f"an object of {type(leaf).__module__}.{type(leaf).__qualname__}"


def instead(leaf: Any) -> str:
    """Advice for an argument that does not match."""
    if type(leaf).__module__.partition(".")[0] == "numpy":
        return "use torch.from_numpy"
    return "call sol.optimize again for other shapes and types, or with sol.input([0, ..]) for any batch size"


def fits(leaf: Any, expected: Any) -> bool:
    """Whether a leaf is as it was declared."""
    if not isinstance(expected, Input):
        return not isinstance(leaf, torch.Tensor)
    if not isinstance(leaf, torch.Tensor) or leaf.dtype != expected.dtype or leaf.ndim != len(expected.shape):
        return False
    return all(isinstance(e, Dim) or e == n for n, e in zip(leaf.shape, expected.shape, strict=True))


def misfit(leaves: Sequence[Any], declared: Sequence[Any], names: Sequence[str]) -> str | None:
    """Which declared dimension a size does not fit, or which has two sizes; None: there is none."""
    first: dict[str, tuple[int, str]] = {}
    for leaf, expected, name in zip(leaves, declared, names, strict=True):
        for n, e in zip(leaf.shape, expected.shape, strict=True) if isinstance(expected, Input) else ():
            if not isinstance(e, Dim) or e is ANY:
                continue
            if why := e.misfit(n):
                return f"{why} ({name})"
            size, of = first.setdefault(e.name, (n, name))
            if size != n:
                return f"'{e.name}' is {n} in {name}, but {size} in {of}"
    return None


def declare(leaf: Any, batch_size: int | None) -> Any:
    """What sol.optimize is told by a leaf."""
    if isinstance(leaf, Input):
        dtype = leaf.dtype or torch.get_default_dtype()
        if not isinstance(dtype, torch.dtype):
            raise _core.InvalidError(
                f"sol.input: dtype: expected one of PyTorch's such as torch.float32, got {dtype!r}"
            )
        if leaf.requires_grad and not (dtype.is_floating_point or dtype.is_complex):
            raise _core.InvalidError(f"sol.input: requires_grad: {dtype} has no gradients; leave it out")
        shape = tuple(ANY if n == 0 else n for n in leaf.shape)
        return Input(shape, leaf.requires_grad, dtype)
    if isinstance(leaf, torch.Tensor):
        shape = tuple(leaf.shape)
        wildcard = batch_size is not None and len(shape) > 0
        return Exact((ANY, *shape[1:]) if wildcard else shape, leaf.requires_grad, leaf.dtype)
    return leaf


def is_absent(leaf: Any, example: Any) -> bool:
    """Whether an argument's stand-in has no data: it is a description, or a tensor with another batch size."""
    same = isinstance(leaf, torch.Tensor) and isinstance(example, torch.Tensor) and leaf.shape == example.shape
    return isinstance(example, torch.Tensor) and not same


def example(i: int, declared: Any, leaf: Any, batch: int | None, device: torch.device = places.HOST) -> Any:
    """A leaf for the first program of what was declared. `device`: of arguments that are not tensors but descriptions."""
    if not isinstance(declared, Input):
        return leaf
    shape = declared.sized(1 if batch is None else batch)
    if isinstance(leaf, torch.Tensor) and tuple(leaf.shape) == shape:
        found = dense(checked(i, leaf, True).detach().requires_grad_(declared.requires_grad)).detach()
    else:
        where = leaf.device if isinstance(leaf, torch.Tensor) else device
        found = checked(i, torch.empty(shape, dtype=declared.dtype, device=where), True)
    return found.requires_grad_() if declared.requires_grad else found


__all__ = [
    "SIMPLE",
    "checked",
    "declare",
    "dense",
    "describe",
    "example",
    "fits",
    "instead",
    "is_absent",
    "kind_key",
    "leaf_key",
    "misfit",
    "present",
]
