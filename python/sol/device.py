"""The device that SOL compiles networks for."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from . import _core

HOST = "arm64" if platform.machine() in ("aarch64", "arm64") else "x86"


class Device:
    """`sol.device`: the names of devices, and the one that networks run on."""

    # devices of sol.deploy, on any machine
    x86, arm64, arm, riscv64, auto = "x86", "arm64", "arm", "riscv64", "auto"
    X86 = x86
    HOST = HOST

    def __init__(self) -> None:
        self.chosen = {"device": _core.config_get("device")}  # what programs are compiled for: part of their keys

    def _follow(self) -> None:
        """Notices that the key `device` has changed."""
        self.chosen["device"] = _core.config_get("device")

    def current(self) -> tuple[str, int]:
        """Type and index of the device that networks run on."""
        name, _, index = self.chosen["device"].partition(":")
        return HOST if name in ("", "auto", "cpu") else name, int(index or 0)

    def set(self, device: str, index: int = 0) -> None:
        """Selects the device that networks run on, such as `sol.device.set("far", 0)` or `("far:0")`; "auto" is the processor.

        Models, data and results stay on the host: SOL copies what changed. A model that ran on another device is compiled
        for this one at its next call. `sol.devices()` lists the devices; the key `device` (SOL_DEVICE) is the same choice.
        """
        _core.device_select(device.lower() if ":" in device else f"{device.lower()}:{index}")
        self._follow()

    @contextmanager
    def __call__(self, device: str, index: int = 0) -> Iterator[None]:
        """`with sol.device("far", 0):` selects a device, for all threads, until the end of the block."""
        before = _core.config_get("device")
        self.set(device, index)
        try:
            yield
        finally:
            _core.config_set("device", before)
            self._follow()


device = Device()

if not _core.config_get("device::libraries"):  # vendors' libraries may be packages
    _core.config_set("device::libraries", ":".join(p for p in sys.path if p.endswith("-packages")))
