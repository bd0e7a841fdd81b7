"""SOL compiles neural networks of PyTorch and ONNX to C code, and keeps the framework's own interface.

Use it with `model = sol.optimize(model, torch.randn(1, 3, 224, 224))` or `sol.optimize("net.onnx")`.
"""

from __future__ import annotations

from . import cache, deployment, log, notebook
from ._core import (
    CompilerError,
    Error,
    FileError,
    InternalError,
    InterruptedError,
    InvalidError,
    OutOfMemoryError,
    RunError,
    UnsupportedError,
)
from .api import config, devices, dims, memory, optimize, refresh, seed, seeds, set_seed, versions
from .deploy import deploy
from .device import device
from .extend import load_extension, register_layer, register_pass
from .host import differentiate, host_function
from .inputs import Dim, Input, dim, input
from .profiles import Kernel, Machine, Profile, machine, profile
from .transfer import transfer

__all__ = [
    "CompilerError",
    "Dim",
    "Error",
    "FileError",
    "Input",
    "InternalError",
    "InterruptedError",
    "InvalidError",
    "Kernel",
    "Machine",
    "OutOfMemoryError",
    "Profile",
    "RunError",
    "UnsupportedError",
    "cache",
    "config",
    "deploy",
    "deployment",
    "device",
    "devices",
    "differentiate",
    "dim",
    "dims",
    "host_function",
    "input",
    "load_extension",
    "log",
    "machine",
    "memory",
    "optimize",
    "profile",
    "refresh",
    "register_layer",
    "register_pass",
    "seed",
    "seeds",
    "set_seed",
    "transfer",
    "versions",
]
__version__ = versions()["sol"]
notebook.begin()
