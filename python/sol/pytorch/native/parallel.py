"""Training on several devices, for tensors of torch.device("sol").

torch.nn.DataParallel needs functions of PyTorch's extension that copy to several devices and back. PyTorch has them for CUDA
only, and builds without CUDA lack them. `begin` puts functions in their place that leave tensors of other devices to
PyTorch's. Devices are numbers.

torch.distributed finds the backend gloo for these tensors: collectives.hpp gives it copies on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

T = torch.Tensor
NATIVE = "sol"


def _on(number: int) -> torch.device:
    return torch.device("cpu") if number < 0 else torch.device(NATIVE, number)


def _scatter(
    t: T, devices: Sequence[int], sizes: Sequence[int] | None = None, dim: int = 0, streams: Any = None
) -> list[T]:
    parts = t.chunk(len(devices), dim) if sizes is None else t.split(list(sizes), dim)
    return [p.to(_on(d)) for p, d in zip(parts, devices, strict=False)]


def _gather(tensors: Sequence[T], dim: int, destination: int | None = None) -> T:
    where = tensors[0].device if destination is None else _on(destination)
    return torch.cat([t.to(where) for t in tensors], dim)


def _broadcast(t: T, devices: Sequence[int]) -> list[T]:
    return [t.to(_on(d)) for d in devices]


def _broadcast_coalesced(tensors: Sequence[T], devices: Sequence[int], buffer_size: int) -> list[list[T]]:
    return [[t.to(_on(d)) for t in tensors] for d in devices]


def _choice(ours: Callable[..., Any], theirs: Callable[..., Any] | None) -> Callable[..., Any]:
    """Ours for tensors of this device; for those of the host, too, where PyTorch has no function."""

    def call(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        first = tensors if isinstance(tensors, T) else tensors[0]
        mine = first.device.type == NATIVE or theirs is None
        return ours(tensors, *args, **kwargs) if mine or theirs is None else theirs(tensors, *args, **kwargs)

    return call


def begin() -> None:
    """Makes DataParallel and torch.distributed work on this device."""
    for ours in (_scatter, _gather, _broadcast, _broadcast_coalesced):
        name = ours.__name__
        setattr(torch._C, name, _choice(ours, getattr(torch._C, name, None)))
    if torch.distributed.is_available():
        backend = torch.distributed.Backend
        backend.default_device_backend_map.setdefault(NATIVE, backend.GLOO)
        for name in (backend.GLOO, backend.MPI):  # which compute on the host
            if NATIVE not in backend.backend_capability[name]:
                backend.backend_capability[name].append(NATIVE)


__all__ = ["begin"]
