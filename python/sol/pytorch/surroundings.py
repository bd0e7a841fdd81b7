"""What models see of PyTorch while they are traced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch._subclasses.fake_tensor import FakeTensor


@contextlib.contextmanager
def told(exporting: bool) -> Iterator[None]:
    """Models that ask are told what torch.export tells them, or what eager mode does. (transformers asks for the class, too.)"""
    compiler, classes = torch.compiler, torch._subclasses
    before = compiler._is_compiling_flag, compiler._is_exporting_flag
    compiler._is_compiling_flag = compiler._is_exporting_flag = exporting
    classes.FakeTensor = FakeTensor if exporting else _Nothing  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        compiler._is_compiling_flag, compiler._is_exporting_flag = before
        classes.FakeTensor = FakeTensor  # type: ignore[misc]


class _Nothing:
    """A class of which there is no tensor."""


@contextlib.contextmanager
def portable() -> Iterator[None]:
    """No operators of particular libraries."""
    backends = torch.backends
    kept = [(b, b.set_flags(False)) for b in (backends.mkldnn, backends.nnpack, backends.cudnn)]
    try:
        yield
    finally:
        for backend, before in kept:
            backend.set_flags(*before)
