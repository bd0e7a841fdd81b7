"""`sol.deploy`: turns a trained network into a stand-alone C library, or its source."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import _core, frameworks
from .inputs import input as sized_input
from .parsed import Call


def _text(key: str, value: Any) -> str:
    """The value of a key in the form of the C interface: numbers and booleans as text, lists with commas."""
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
    batch_size: int | Sequence[int] | None = None,
    autotuning: bool = True,
    vdims: Any = None,
    **kwargs: Any,
) -> None:
    """Writes a model as a C library, with its header and all files needed to use it.

    model       a torch.nn.Module, optimized by SOL or not (it is deployed as in eval()), a function on tensors, a
                torch.export.ExportedProgram, or the path of an ONNX file
    target      "shared_lib", "static_lib" or "source"; also "lib::shared" and the like, or sol.deployment.shared_lib
    dargs       keys of the deployment (docs/deploy-keys.md), such as lib_name, func_name, path, device_type, gcc::march (one
                instruction set, or a list, from which the library selects the best when it starts)
    args        example arguments: tensors, numbers, `sol.input(...)`, or the sizes of a tensor, [1, 3, 224, 224]; the same
                for kwargs. Sizes that these leave open (0 or sol.dim) are arguments of the library's functions
    vdims       sizes that are arguments of the library's functions, as in `sol.optimize`: True, or a list
    batch_size  fixes the first dimension of all arguments in which it is open, or of all arguments if it is open in none, at
                this size; for a list, the library supports all these sizes and starts with the first
    autotuning  True: tunes the network for each instruction set that this machine can run, as the key `autotune` says
                (docs/tuning.md), unless tuning results exist; False, or for other instruction sets: the cost model decides

    Raises sol.UnsupportedError, which lists everything that SOL cannot translate.
    """
    if dargs is not None and not isinstance(dargs, Mapping):
        raise _core.InvalidError(
            f"sol.deploy: dargs: expected a dict, got {type(dargs).__name__}; example arguments follow it"
        )
    keys = {str(key): _text(str(key), value) for key, value in (dargs or {}).items()}
    known = [key for key, _, _ in _core.deploy_keys()]
    for key in keys:
        if key not in known:
            raise _core.InvalidError(f"sol.deploy: there is no key '{key}'; the keys are {', '.join(known)}")
    sizes = _sizes(batch_size)
    if batch_size is not None and vdims:
        raise _core.InvalidError(
            "sol.deploy: vdims and batch_size: give one of them: with batch_size, all sizes are fixed"
        )
    before = _core.config_get("autotune")
    if not autotuning:
        _core.config_set("autotune", "off")
    try:
        try:
            _deploy(model, str(target), keys, (args, kwargs, vdims), sizes)
        except _core.InvalidError:
            if not any(_is_shape(a) for a in (*args, *kwargs.values())):
                raise
            given = [_as_input(a) for a in args]  # the model has no arguments that are lists of numbers
            named = {k: _as_input(a) for k, a in kwargs.items()}
            _deploy(model, str(target), keys, (given, named, vdims), sizes)
    finally:
        _core.config_set("autotune", before)


def _sizes(batch_size: int | Sequence[int] | None) -> list[int | None]:
    """The batch sizes of the library. None: the arguments determine it."""
    if batch_size is None:
        return [None]
    sizes: list[Any] = list(batch_size) if isinstance(batch_size, list | tuple) else [batch_size]
    for n in sizes:
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise _core.InvalidError(
                f"sol.deploy: batch_size: expected a number from 1 on, or a list of them, got {n!r}"
            )
        if sizes.count(n) > 1:
            raise _core.InvalidError(f"sol.deploy: batch_size: {n} is given twice")
    if not sizes:
        raise _core.InvalidError("sol.deploy: batch_size: expected a number from 1 on, or a list of them, got none")
    return sizes


def _is_shape(argument: Any) -> bool:
    """Whether this is the shape of a tensor, [1, 3, 224, 224]."""
    return isinstance(argument, list) and bool(argument) and all(type(n) is int and n >= 0 for n in argument)


def _as_input(argument: Any) -> Any:
    return sized_input(argument) if _is_shape(argument) else argument


def _deploy(
    model: Any,
    target: str,
    keys: dict[str, str],
    call: tuple[Sequence[Any], dict[str, Any], Any],
    sizes: list[int | None],
) -> None:
    args, kwargs, vdims = call
    frameworks.deploy(model, target, keys, Call(tuple(args), kwargs, vdims=vdims), sizes)
