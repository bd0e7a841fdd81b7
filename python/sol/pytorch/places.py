"""Where the tensors of a call are: all on the host, all on one device "sol" (`sol.native`), or all on one "cuda". If not on
the host, the program is resident: it reads and writes the tensors' own memory on the device. A trace needs no data, so it sees
tensors of the host in their place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from sol import _core

HOST = torch.device("cpu")
NATIVE, CUDA = "sol", "cuda"
_NUMBERS = {CUDA: 2, NATIVE: 12}  # of types of devices in DLPack
_LEGACY = 1  # CUDA's default stream, which PyTorch calls 0, as a stream that one can name: CU_STREAM_LEGACY
_NAMED = 3  # tensors of each device in a message


def is_known(device: torch.device) -> bool:
    """Whether SOL takes tensors of such a device."""
    return device.type in (HOST.type, NATIVE) or (device.type == CUDA and torch.version.hip is None)


def is_away(t: torch.Tensor) -> bool:
    """Whether a tensor lies on a device and not on the host."""
    return t.device.type in _NUMBERS


def first(tensors: Iterable[Any]) -> torch.device:
    """The device of the first tensor among these values; the host, which is `HOST` itself, if there is none."""
    device = next((t.device for t in tensors if isinstance(t, torch.Tensor)), HOST)
    return HOST if device == HOST else device


def check(model: str, named: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Rejects tensors on devices that SOL does not know, and tensors on two devices, with the names of both."""
    found: dict[torch.device, list[str]] = {}
    for name, t in named:
        if not is_known(t.device):
            raise _core.UnsupportedError(
                f"{model}: {name} is on device {t.device}: not supported; expected the host, CUDA (NVIDIA), or a device of "
                "sol.native"
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
        if isinstance(t, torch.Tensor) and is_away(t):
            raise _core.UnsupportedError(
                f"{name} is on device {t.device}: expected tensors of the host; move them with .cpu()"
            )


def name_of(device: torch.device) -> str:
    """SOL's name of a device of PyTorch, such as far:1."""
    if device.type == CUDA:
        return f"nvidia:{device.index}"
    from .native import module

    return f"{module.type}:{device.index}"


def current_stream(index: int) -> int:
    """The stream that PyTorch appends to now, on device cuda:index, as a CUstream."""
    return torch._C._cuda_getCurrentRawStream(index) or _LEGACY


def of_caller(device: torch.device) -> tuple[Any, ...] | None:
    """A device as `_core.Caller` takes it. Tensors of sol.native lie in a heap of SOL; those of CUDA in memory of PyTorch, which is
    used in the order of PyTorch's stream."""
    if device == HOST:
        return None
    here = _NUMBERS[device.type], device.index
    return (*here, name_of(device), current_stream) if device.type == CUDA else here


def check_capture(device: torch.device) -> None:
    """Rejects what takes more than a call of a known program while PyTorch captures its stream into a graph: compiling and loading
    would end the capture. (Such a call itself is rejected when its commands would be appended.)"""
    if device.type == CUDA and torch.cuda.is_current_stream_capturing():
        raise _core.UnsupportedError(
            "the current stream is captured into a graph (torch.cuda.graph): not supported, because the graph would use memory "
            "that SOL reuses; call the model outside of the capture: each call is one launch of a graph of SOL's own"
        )


def lowers(device: torch.device) -> bool:
    """Whether autocast changes what operators compute there. (PyTorch makes a text for each `type`, which takes longer than
    all else that a call asks, so it is not asked of the host.)"""
    return torch.is_autocast_enabled("cpu") or (
        device is not HOST and device.type == CUDA and torch.is_autocast_enabled("cuda")
    )


def put(t: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A small tensor of the host on a device, without waiting for it: its data is read before this returns."""
    return t.to(device, non_blocking=device.type == CUDA)


def copies_many(device: torch.device) -> bool:
    """Whether PyTorch copies lists of tensors there."""
    return device.type in (HOST.type, CUDA)


def on_host(arg: Any) -> Any:
    """An operand of an operator in a trace: the host in place of a device that the model names."""
    return HOST if isinstance(arg, torch.device) and arg.type in _NUMBERS else arg


def stand_in(t: torch.Tensor, memories: dict[Any, torch.UntypedStorage]) -> torch.Tensor:
    """A tensor of the host in place of one on a device, without its data. Those that share memory there share it here:
    `memories` has the memory of those before."""
    there = t.untyped_storage()
    if there.data_ptr() not in memories:
        memories[there.data_ptr()] = torch.UntypedStorage(there.nbytes())
    made = torch.empty(0, dtype=t.dtype)
    return made.set_(memories[there.data_ptr()], t.storage_offset(), t.shape, t.stride())


__all__ = [
    "HOST",
    "check",
    "check_capture",
    "check_host",
    "copies_many",
    "current_stream",
    "first",
    "is_away",
    "is_known",
    "lowers",
    "name_of",
    "of_caller",
    "on_host",
    "put",
    "stand_in",
]
