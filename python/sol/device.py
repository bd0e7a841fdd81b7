"""The device that SOL compiles networks for."""

from __future__ import annotations

import platform

from . import _core

# devices of sol.deploy, on any machine
x86, arm64, arm, riscv64, auto = "x86", "arm64", "arm", "riscv64", "auto"
X86 = x86
HOST = arm64 if platform.machine() in ("aarch64", "arm64") else x86


def set(device: str, index: int = 0) -> None:
    """Selects the device. The only one so far is the processor of this machine."""
    if device.lower() not in (HOST, "cpu") or index != 0:
        raise _core.UnsupportedError(f"device {device}:{index}: not supported; there is {HOST}:0")
