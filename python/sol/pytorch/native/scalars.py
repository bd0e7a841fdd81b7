"""Numbers of the host as tensors of a device."""

from __future__ import annotations

from typing import Any

import torch

MOST = 1 << 12  # that stay on the devices for later calls
_numbers: dict[Any, torch.Tensor] = {}


def scalar(value: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A scalar on a device."""
    key = value.hex() if type(value) is float else (type(value), value), dtype, device
    found = _numbers.get(key)
    if found is None:
        if len(_numbers) >= MOST:
            _numbers.clear()
        found = _numbers[key] = torch.tensor(value, dtype=dtype).to(device)
    return found
