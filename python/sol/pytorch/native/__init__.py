"""Tensors of PyTorch on a device of SOL: torch.device("sol"). `import sol.native` begins it."""

from __future__ import annotations

import ctypes
import sys

import torch

from ... import _core, log
from ...device import device
from . import build, eager, module, parallel, parameters

NAME = "sol"
MOST = 127  # devices: PyTorch's numbers have 8 bits


def begin() -> None:
    """Makes torch.device("sol", i) device i of the type that is selected now (sol.device.set, SOL_DEVICE)."""
    taken = torch._C._get_privateuse1_backend_name()
    if taken not in ("privateuseone", NAME):
        raise _core.UnsupportedError(
            f'sol.native: PyTorch has room for one further device, and "{taken}" has taken it: import sol.native in a process '
            f"that does not import the package of {taken}"
        )
    kind, index = device.current()
    all = [d for d in _core.devices() if d["type"] == kind and not d["why"]]
    if not all:
        why = next((d["why"] for d in _core.devices() if d["type"] == kind), "there is no such type")
        raise _core.UnsupportedError(f"sol.native: device {kind}: {why} (sol.devices() lists what is there)")
    if len(all) > MOST:
        log.warn(f"sol.native: there are {len(all)} devices of type {kind}: PyTorch can number the first {MOST}")
        all = all[:MOST]
    library = build.load()
    table = _core.native_begin(kind, len(all), module.counted, torch.Tensor.__dlpack_c_exchange_api__)
    library.sol_native_begin.argtypes = [ctypes.c_void_p]
    library.sol_native_begin(table)
    module.library, module.type, module.names = library, kind, [d["name"] for d in all]
    library.sol_native_set(index)
    module.kernels = eager.begin()
    parallel.begin()
    parameters.begin()
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, module)
    sys.modules[f"torch.{NAME}"] = module
    torch.utils.generate_methods_for_privateuse1_backend()
