"""Calls of a network at other sizes: arguments for the dimensions that sol.dims reports."""

import re

import torch
from sol.pytorch.structure import decode
from torch.utils import _pytree as pytree

_PLACE = re.compile(r"dimension (\d+) of (\w+)$")


def chosen(model, vdims=True):
    """Five sizes of each dimension that an optimized model reports: those of the example; a batch of 1, 2, 3 and a larger one, with shorter and longer
    lengths, as far as the limits allow. Dimensions that are equal in the example stay equal if they have the same position, as a
    mask and what it masks; others differ. Lengths that break a rule of the model together are those of the example, and so is what
    `vdims`, a list, does not open."""
    report, traces = model._sol.report, model._sol.traces
    settled = next(iter(traces._kept.values()))[0].settled
    calls: list[list[int]] = [[] for _ in range(5)]
    groups: dict[tuple[int, int], int] = {}
    for dim, opened in zip(report.dims, [True] * len(report.dims) if vdims is True else vdims, strict=True):
        at = int(_PLACE.match(dim.where[0])[1])
        k = groups.setdefault((at, dim.size), len(groups))
        step, n = dim.multiple, dim.size
        low, high = -(-dim.min // step) * step, (dim.max or 4 * n + 8) // step * step
        batches, lengths = (n, 1, 2, 3, n + 3), (n, n + (1 + k) * step, n // 2, n - step, n + n // 2 + (3 + k) * step)
        for call, size in zip(calls, lengths if at else batches, strict=True):
            call.append(min(max(size // step * step, low), high) if opened else n)
    example = calls[0]
    for call in calls:
        if not settled.hold(*(max(n, 2) for n in call)):
            places = [int(_PLACE.match(dim.where[0])[1]) for dim in report.dims]
            call[:] = [n if at == 0 else m for at, n, m in zip(places, call, example, strict=True)]
    return calls


def resized(model, args, kwargs, sizes):
    """Arguments and keyword arguments of a call of an optimized model, with these sizes of the dimensions of its report, and of what
    depends on them (14 - #1): their elements again and again, real ones with noise."""
    leaves, spec, _ = model._sol.canonical(model, args, kwargs)
    kept = next(iter(model._sol.traces._kept.values()))[0]
    values = dict(zip(kept.settled.dims, sizes, strict=True))
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            t = leaf
            for d in range(leaf.ndim):
                if (i, d) in kept.settled.places:
                    t = t.index_select(d, torch.arange(kept.size((i, d), values)) % t.shape[d])
            leaves[i] = t + 0.1 * torch.randn_like(t) if t.is_floating_point() and t.shape != leaf.shape else t.clone()
    return decode(pytree.tree_unflatten(leaves, spec))
