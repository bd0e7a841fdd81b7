"""`sol.deploy`: a trained network becomes a C library that needs nothing, or the source of one."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from . import _core


def _text(key: str, value: Any) -> str:
    """The value of a key as the C side takes it: numbers and truth values as text, lists with commas."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, list | tuple):
        return ",".join(_text(key, v) for v in value)
    if not isinstance(value, str | int | os.PathLike):
        raise _core.InvalidError(f"sol.deploy: {key}: expected text, got {value!r}")
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def deploy(
    model: Any,
    target: str,
    dargs: Mapping[str, Any] | None = None,
    *args: Any,
    batch_size: int | None = None,
    autotuning: bool = True,
    **kwargs: Any,
) -> None:
    """Writes a model as a C library, with its header and what else is needed to use it.

    model       a torch.nn.Module, optimized by SOL or not (it is deployed as in eval()), a function on tensors, a
                torch.export.ExportedProgram, or the path of an ONNX file
    target      "shared_lib", "static_lib" or "source"; also "lib::shared" and the like, or sol.deployment.shared_lib
    dargs       what the library shall be: docs/deploy.md has all keys, such as lib_name, func_name, path, device_type,
                gcc::march (one instruction set, or a list: the best that a machine has is chosen when it starts)
    args        what the model is called with: tensors, numbers, `sol.input(...)`; kwargs likewise
    batch_size  the size of the first dimension where that is a wildcard; the library is for this one
    autotuning  False: solvers are chosen by cost alone

    Raises sol.UnsupportedError with everything that is not covered.
    """
    keys = {key: _text(key, value) for key, value in (dargs or {}).items()}
    known = [key for key, _, _ in _core.deploy_keys()]
    for key in keys:
        if key not in known:
            raise _core.InvalidError(f"sol.deploy: there is no key '{key}'; the keys are {', '.join(known)}")
    if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
        raise _core.InvalidError(f"sol.deploy: batch_size: expected a number from 1 on, got {batch_size!r}")
    before = _core.config_get("autotune")
    if not autotuning:
        _core.config_set("autotune", "off")
    try:
        _deploy(model, str(target), keys, args, kwargs, batch_size)
    finally:
        _core.config_set("autotune", before)


def _deploy(
    model: Any, target: str, keys: dict[str, str], args: Sequence[Any], kwargs: dict[str, Any], batch_size: int | None
) -> None:
    if isinstance(model, type):
        raise _core.InvalidError(f"sol.deploy: expected a model, got the class {model.__name__}; make one of it first")
    if isinstance(model, str | os.PathLike):
        from . import onnx

        _core.deploy(onnx.sized(os.fspath(model), args, kwargs, batch_size), target, keys, (), -1, None, None, None)
    elif ("torch" in sys.modules and callable(model)) or type(model).__name__ == "ExportedProgram":
        from .pytorch.deploy import deploy_torch

        deploy_torch(model, target, keys, tuple(args), kwargs, batch_size)
    else:
        raise _core.InvalidError(
            f"sol.deploy: expected a torch.nn.Module, a function on tensors, or the path of an ONNX file, got {type(model)}"
        )
