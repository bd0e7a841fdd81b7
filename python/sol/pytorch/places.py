"""Where the tensors of a call are: all on the host, or all on one device "sol" (`sol.native`). In the second case the
program is resident: it reads and writes the tensors' own memory on the device. A trace needs no data, so it sees
tensors of the host in their place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from sol import _core

HOST = torch.device("cpu")
NATIVE = "sol"
_NAMED = 3  # tensors of each device in a message


def is_native(t: torch.Tensor) -> bool:
    """Whether a tensor lies on a device of `sol.native`."""
    return t.device.type == NATIVE


def first(tensors: Iterable[Any]) -> torch.device:
    """The device of the first tensor among these values; the host, if there is none."""
    return next((t.device for t in tensors if isinstance(t, torch.Tensor)), HOST)


def check(model: str, named: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Rejects tensors on devices that SOL does not know, and tensors on two devices, with the names of both."""
    found: dict[torch.device, list[str]] = {}
    for name, t in named:
        if t.device.type not in (HOST.type, NATIVE):
            raise _core.UnsupportedError(
                f"{model}: {name} is on device {t.device}: not supported; expected the host, or a device of sol.native"
            )
        found.setdefault(t.device, []).append(name)
    if len(found) < 2:
        return
    parts = (f"{where}: {', '.join(names[:_NAMED])}{_rest(names)}" for where, names in found.items())
    raise _core.InvalidError(
        f"{model}: its tensors are on {len(found)} devices: {'; '.join(parts)}: expected one; move the model with "
        "model.to(device) and its arguments with x.to(device)"
    )


def _rest(names: list[str]) -> str:
    return f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""


def check_host(named: Iterable[tuple[str, Any]]) -> None:
    """Rejects tensors on a device where data of the host is needed."""
    for name, t in named:
        if isinstance(t, torch.Tensor) and is_native(t):
            raise _core.UnsupportedError(
                f"{name} is on device {t.device}: expected tensors of the host; move them with .cpu()"
            )


def name_of(device: torch.device) -> str:
    """SOL's name of a device of PyTorch, such as far:1."""
    from .native import module

    return f"{module.type}:{device.index}"


def stand_in(t: torch.Tensor, memories: dict[Any, torch.UntypedStorage]) -> torch.Tensor:
    """A tensor of the host in place of one on a device, without its data. Those that share memory there share it here:
    `memories` has the memory of those before."""
    there = t.untyped_storage()
    if there.data_ptr() not in memories:
        memories[there.data_ptr()] = torch.UntypedStorage(there.nbytes())
    made = torch.empty(0, dtype=t.dtype)
    return made.set_(memories[there.data_ptr()], t.storage_offset(), t.shape, t.stride())


__all__ = ["HOST", "check", "check_host", "first", "is_native", "name_of", "stand_in"]
