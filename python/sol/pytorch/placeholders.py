"""What a trace begins with: the tensors of the model and the caller's leaves, as tensors without data that become placeholders."""

from __future__ import annotations

import enum
import inspect
import re
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from . import fake
from .steps import Unusual
from .symbols import Symbols

PLAIN = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))
VALUES = (*PLAIN, type, enum.Enum)  # arguments and results that are not tensors

Row = tuple[str, Any, tuple[str, Any], InputKind]  # of a placeholder: name, value, origin, kind


def tensors(mode: FakeTensorMode, module: torch.nn.Module) -> list[Row]:
    """Turns the model's tensors into tensors without data; a tensor with several names stays one tensor."""
    known: dict[int, torch.Tensor] = {}
    found: list[Row] = []
    rows = [
        (path, group, kind, key, t)
        for path, m in module.named_modules()
        for group, kind in (
            (m._parameters, InputKind.PARAMETER),
            (m._buffers, InputKind.BUFFER),
            (m.__dict__, InputKind.CONSTANT_TENSOR),
        )
        for key, t in group.items()
        if isinstance(t, torch.Tensor)
    ]
    make = fake.owned(mode, {id(t): t for *_, t in rows}.values())
    for path, group, kind, key, t in rows:
        if id(t) not in known:
            known[id(t)] = make(t)
            name = f"{path}.{key}" if path else key
            found.append((name.replace(".", "_"), known[id(t)], ("param", name), kind))
        group[key] = known[id(t)]
    for m in module.modules():
        if isinstance(m, torch.nn.RNNBase):
            m._init_flat_weights()
    return found


def leaves(mode: FakeTensorMode, given: list[Any], names: list[str], symbols: Symbols | None) -> list[Row]:
    """Turns the caller's tensors into tensors without data, whose sizes are symbols if those may vary."""
    found: list[Row] = []
    for i, (leaf, name) in enumerate(zip(given, names, strict=True)):
        if not isinstance(leaf, (torch.Tensor, *VALUES)):
            raise Unusual(f"an argument of {type(leaf).__name__}")
        value = leaf
        if isinstance(leaf, torch.Tensor):
            value = symbols.leaf(i, leaf, name) if symbols else mode.from_tensor(leaf)
        found.append((name, value, ("leaf", i), InputKind.USER_INPUT))
    return found


def leaf_names(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """Names of the leaves: the name of forward's argument, and the path to the leaf in it."""
    signature: inspect.Signature = getattr(module, "__signature__", None) or inspect.signature(module.forward)
    known = [p.name for p in signature.parameters.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    last = known[-1] if known else "arg"
    heads = [
        known[i] if i < len(known) - 1 or len(args) == len(known) else f"{last}_{i - len(known) + 1}"
        for i in range(len(args))
    ]
    found = []
    for head, value in (*zip(heads, args, strict=True), *kwargs.items()):
        for path, _ in pytree.tree_flatten_with_path(value)[0]:
            found.append(re.sub(r"\W+", "_", head + pytree.keystr(path)).strip("_"))
    return found
