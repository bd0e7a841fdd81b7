"""SOL's devices in TensorFlow: after `import sol.tensorflow.native`, `with tf.device("SOL:0"):` is device 0 of the type that is
selected (sol.device.set, SOL_DEVICE).

TensorFlow opens the extension as a PluggableDevice: memory, copies and events are those of _tf_device.c, operators those of
_tf_kernel.c, for which eager.py makes networks of one layer.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import load_library

from sol import _core
from sol.device import device

from .. import operation  # noqa: F401  which finds TensorFlow's functions
from . import eager, hooks, kernels

NAMES: tuple[str, ...] = ()  # of the devices, as in sol.devices()


def counts(index: int = 0) -> dict[str, Any]:
    """What a device did so far: waits of the host, writes, reads, copies and runs; bytes: memory that is allocated now."""
    return _core.tf_device_counts(index)


def _begin() -> None:
    global NAMES
    kind, _ = device.current()
    here = [d for d in _core.devices() if d["type"] == kind and not d["why"]]
    if not here:
        why = next((d["why"] for d in _core.devices() if d["type"] == kind), "there is no such type")
        raise _core.UnsupportedError(f"sol.tensorflow.native: device {kind}: {why} (sol.devices() lists what is there)")
    if context.context()._initialized:
        raise _core.InvalidError(
            "sol.tensorflow.native: TensorFlow has numbered its devices: import it before the first tensor is made"
        )
    n = _core.tf_device_begin(tuple(f"{kind}:{d['index']}" for d in here))
    NAMES = tuple(d["name"] for d in here[:n])
    _core.tf_kernel_maker(eager.make)
    load_library.load_pluggable_device_library(_core.__file__)
    kernels.register()
    hooks.begin()
    if len(tf.config.list_physical_devices("SOL")) != n:
        raise _core.UnsupportedError(f"sol.tensorflow.native: TensorFlow {tf.__version__} did not take the devices")


_begin()
