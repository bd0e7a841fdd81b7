"""The module torch.sol: what programs ask of the devices."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import torch

from ... import _core

library = ctypes.CDLL(None)  # the compiled native.cpp, from begin() on
type = ""  # of the devices, such as "far"
names: list[str] = []  # of the devices
kernels: Any = None  # those of Python, which PyTorch calls
counted: dict[str, int] = {}  # fallbacks
_process = os.getpid()


def _index(where: Any) -> int:
    """The number of a device; None: the current one."""
    if where is None:
        return current_device()
    if isinstance(where, int):
        index = where
    else:
        d = torch.device(where)
        if d.type != "sol":
            raise _core.InvalidError(f'torch.sol: expected a device such as "sol:0", got "{d}"')
        index = current_device() if d.index is None else d.index
    if not 0 <= index < device_count():
        raise _core.InvalidError(f"torch.sol: there is no device sol:{index}, but {device_count()} of type {type}")
    return index


def is_available() -> bool:
    """Is there a device?"""
    return device_count() > 0


def is_initialized() -> bool:
    """True: `import sol.native` did it."""
    return True


def _lazy_init() -> None:
    """Nothing is left to be done."""


def _is_in_bad_fork() -> bool:
    return os.getpid() != _process


def device_count() -> int:
    """How many devices there are."""
    return len(names)


def current_device() -> int:
    """The number of the device that this thread uses where none is given."""
    return int(library.sol_native_current())


def set_device(where: Any) -> None:
    """Makes a device the current one of this thread."""
    library.sol_native_set(_index(where))


def get_device_name(where: Any = None) -> str:
    """The name of a device, as in sol.devices()."""
    return names[_index(where)]


class device:
    """`with torch.sol.device(1):` makes it the current one of this thread. None or a negative number: as it is."""

    def __init__(self, where: Any) -> None:
        self.index = -1 if where is None or (isinstance(where, int) and where < 0) else _index(where)

    def __enter__(self) -> device:
        self.before = current_device()
        if self.index >= 0:
            set_device(self.index)
        return self

    def __exit__(self, *error: object) -> None:
        set_device(self.before)


def synchronize(where: Any = None) -> None:
    """Waits until a device has done everything, and raises what failed."""
    torch.accelerator.synchronize(torch.device("sol", _index(where)))


def counts(where: Any = None) -> dict[str, Any]:
    """What a device did so far: waits of the host, writes, reads, copies and runs; bytes: memory that is allocated now."""
    return _core.native_counts(_index(where))


def memory_allocated(where: Any = None) -> int:
    """Bytes of the device that tensors have now."""
    return torch.accelerator.memory_allocated(_index(where))


def max_memory_allocated(where: Any = None) -> int:
    """The most bytes that tensors had."""
    return torch.accelerator.max_memory_allocated(_index(where))


def memory_reserved(where: Any = None) -> int:
    """Bytes that SOL has of the device: those of tensors and networks, and what it keeps for later."""
    return torch.accelerator.memory_reserved(_index(where))


def reset_peak_memory_stats(where: Any = None) -> None:
    """Makes what is allocated now the most."""
    torch.accelerator.reset_peak_memory_stats(_index(where))


def memory_stats(where: Any = None) -> dict[str, Any]:
    """Numbers and bytes of tensors, and what SOL has of the device."""
    return torch.accelerator.memory_stats(_index(where))


def empty_cache() -> None:
    """Gives memory that is not in use back to the devices."""
    torch.accelerator.empty_cache()


def fallbacks() -> dict[str, int]:
    """How often PyTorch ran an operator on the processor because SOL has no kernel for it, by operator.

    The key device::fallback=off (SOL_DEVICE_FALLBACK) makes such an operator an error.
    """
    return dict(counted)


def reset_fallbacks() -> None:
    """Forgets what fallbacks() counts."""
    counted.clear()


# Random numbers are those of the processor: equal seeds give equal numbers.


def manual_seed(seed: int) -> None:
    """Seeds random numbers, those of the processor included."""
    torch.default_generator.manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """The same: all devices share the generator."""
    manual_seed(seed)


def seed_all() -> None:
    """Seeds random numbers by chance."""
    torch.default_generator.seed()


def get_rng_state(where: Any = "sol") -> torch.Tensor:
    """The state of the random numbers."""
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, where: Any = "sol") -> None:
    """Restores a state."""
    torch.set_rng_state(state)


class _NoTypes(list[torch.dtype]):
    """The types of torch.autocast, which asks only where it is enabled (DataParallel enters it disabled)."""

    def __contains__(self, dtype: object) -> bool:
        raise _core.UnsupportedError(
            'torch.autocast("sol"): SOL does not lower the precision of single operators: convert the model with '
            "model.to(dtype), or leave autocast out"
        )


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Types of torch.autocast: none."""
    return _NoTypes()
