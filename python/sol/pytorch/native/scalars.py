"""Numbers of the host as tensors of a device."""

from __future__ import annotations

from typing import Any

import torch


def scalar(value: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A scalar on a device, where it stays for later calls."""
    made: torch.Tensor = torch.ops.sol_native.number.default(value, dtype, device)
    return made
