"""Which device networks are compiled for."""

from __future__ import annotations

from . import _core

X86 = "x86"
x86, arm64, arm, riscv64, auto = (
    X86,
    "arm64",
    "arm",
    "riscv64",
    "auto",
)  # of sol.deploy: compiled for, wherever SOL runs


def set(device: str, index: int = 0) -> None:
    """Chooses the device. There is one so far: the processor this runs on."""
    if device.lower() not in (X86, "cpu") or index != 0:
        raise _core.UnsupportedError(f"device {device}:{index}: not supported; there is {X86}:0")
