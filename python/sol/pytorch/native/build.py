"""Compiles native.cpp on the user's machine, for the PyTorch that is installed there, and loads it."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

from ... import _core, log

HERE = Path(__file__).parent
SOURCES = ("native.h", "memory.hpp", "calls.hpp", "collectives.hpp", "native.cpp")
COMPILERS = ("c++", "g++", "clang++")
MOST_LINES = 20  # of a compiler's log


def flags() -> list[str]:
    """What the compiler is called with, besides the source and the result."""
    at = Path(torch.__file__).parent
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    include = [f"-I{at / 'include'}", f"-I{at / 'include/torch/csrc/api/include'}"]
    link = [f"-L{at / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch"]
    parts = ["-DSOL_DISTRIBUTED"] if torch.distributed.is_available() else []
    return ["-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-w", abi, *parts, *include, *link]


def compiler() -> str:
    """The path of a C++ compiler: CXX, or the first that is there."""
    named = os.environ.get("CXX")
    for name in (named,) if named else COMPILERS:
        path = shutil.which(name)
        if path:
            return path
    raise _core.CompilerError(
        f"PyTorch's tensors on a device need a C++ compiler once for each version of PyTorch, and there is none: looked for "
        f"{named or ', '.join(COMPILERS)}; install one (Debian, Ubuntu: apt install g++), or name one in CXX. Without it, "
        "sol.device.set(..) still runs models on devices, with tensors on the host"
    )


def compile() -> bytes:
    """The module as a shared object."""
    path = compiler()
    log.info(f"compiling the device for PyTorch {torch.__version__} with {path}, once: about a minute")
    with tempfile.TemporaryDirectory(prefix="sol-native-") as folder:
        result = Path(folder) / "native.so"
        source, *rest = str(HERE / "native.cpp"), *flags()
        run = subprocess.run([path, source, "-o", str(result), *rest], capture_output=True, text=True, errors="replace")
        if run.returncode:
            said = "\n".join(run.stderr.strip().splitlines()[:MOST_LINES])
            raise _core.CompilerError(
                f"PyTorch's tensors on a device: {path} cannot compile {source} for PyTorch {torch.__version__}:\n{said}"
            )
        return result.read_bytes()


def load() -> ctypes.CDLL:
    """The module, from the cache or compiled."""
    texts = [f"{torch.__version__} {torch.version.git_version} {platform.machine()}", *flags(), *((HERE / s).read_text() for s in SOURCES)]
    key = "\n".join(texts)
    code = _core.cache_find(key)
    if code is None:
        code = compile()
        _core.cache_keep(key, code)
    fd = os.memfd_create("sol-native", os.MFD_CLOEXEC)  # what was verified is what is loaded
    with os.fdopen(fd, "wb") as f:
        f.write(code)
        f.flush()
        # The loader takes equal names for one library, and numbers of files come again: others write this name without dots.
        return ctypes.CDLL(f"/proc/./self/./fd/./{fd}")
