"""The functions of `sol` that do not depend on the framework."""

from __future__ import annotations

import difflib
import platform
import random
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any

from . import _core, frameworks, programs
from .device import HOST, device
from .parsed import Call


def optimize(
    model: Any,
    *inputs: Any,
    batch_size: int | None = None,
    copy: bool = False,
    vdims: Any = None,
    framework: str | None = None,
    **kwargs: Any,
) -> Any:
    """Optimizes a model and returns a model of the same kind.

    model       a torch.nn.Module, a torch.export.ExportedProgram, a function on tensors, or an ONNX model: the path of a
                file, its bytes, or an onnx.ModelProto
    inputs      example arguments: tensors, numbers, `sol.input(...)`, nested as in a call of the model; without any,
                SOL compiles at the first call and accepts any sizes
    kwargs      keyword arguments of the model; for an ONNX model also fix={"batch": 4, "shape": array}, which fixes sizes of
                dimensions by name and values of inputs
    batch_size  the batch size to compile for now; the model then accepts other batch sizes, too
    copy        True: the result has its own parameters instead of sharing those of the model
    vdims       sizes that may vary between calls: True (all that the model leaves free), or a list with one value for each
                dimension #0, #1, .. that sol.dims finds: True (varies), False (stays), or another size in place of the example's;
                all open sizes of an ONNX model vary unless this says otherwise
    framework   the framework of the result: None (the model's own), "pytorch" (a module), "tensorflow" (a Keras model), "jax" (a
                function with a pytree of parameters), "numpy" (a function on arrays), or that of a frontend from outside; the
                result has parameters of its own, copies of the model's (docs/frameworks.md)

    Calls with the same arguments must have the shapes given here, apart from sizes that vary. A call with additional, missing
    or None arguments may have any shapes. Objects with attributes (such as a cache of keys and values) are structures like
    lists: if forward changes an object that it receives, the caller's object changes.

    Each new memory layout, number argument or train/eval mode is compiled at its first call (logged at level DEBUG);
    later processes find the kernels in the cache. A model keeps the 16 programs that it used last, each with its own packed
    parameters. docs/dynamic-sizes.md says more about sizes that vary.

    The result differs from the model only in its class. Parameters, layers, modes, plain attributes and hooks belong to
    both, and the next call notices changes. docs/pytorch.md lists the exceptions: SOL rejects hooks on inner modules, and
    does not notice changes of globals and of the contents of objects in attributes.

    Raises sol.UnsupportedError, which lists everything that SOL cannot translate, before it compiles anything.
    """
    if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 0):
        raise _core.InvalidError(f"batch_size: expected a number from 0 on, got {batch_size!r}")
    return frameworks.optimize(model, Call(inputs, kwargs, batch_size, copy, vdims, framework))


def dims(model: Any, *inputs: Any, **kwargs: Any) -> Any:
    """Finds the dimensions of a model's arguments that may vary between calls. Compiles nothing.

    model   a torch.nn.Module, a torch.export.ExportedProgram, a function on tensors, or an ONNX model
    inputs  example arguments, as for sol.optimize; an ONNX model needs none

    Prints as the shapes of inputs and outputs (`Inputs: in_0 [#0, 3, #1, #2]`), what is known of each dimension #0, #1, ..,
    and for a dimension that is fixed the layer and the line that need this size. The attributes `inputs`, `outputs`, `dims`
    (with `name`, `size`, `min`, `max`, `multiple` and `where`), `fixed` and `rules` have the same.
    """
    from . import onnx

    if isinstance(model, onnx.Network):
        return onnx.find_dims(model, inputs, kwargs)
    return frameworks.dims(model, Call(inputs, kwargs))


def refresh(model: Any) -> None:
    """Marks all parameters of an optimized model as changed. Call it after writes that PyTorch does not count (`.data`). Other
    frameworks have no such writes."""
    state = getattr(model, "_sol", None)
    if state is None:
        raise _core.InvalidError(f"sol.refresh: expected an optimized model, got {type(model)}")
    if hasattr(state, "refresh"):
        state.refresh()


def memory(model: Any) -> dict[str, int]:
    """Returns the memory of the program used last, in bytes: params, prepared (packed parameters), inputs, outputs, saved
    (by forward for backward), workspace, and peak (all together). For training, if_fast, if_balanced and if_small estimate
    the peak for other settings of training::memory. Compiles the program if the model was not called yet."""
    from . import onnx

    if isinstance(model, onnx.Network):
        return model.memory()
    net = programs.latest(model)
    if net is None:
        raise _core.InvalidError(f"sol.memory: expected an optimized model that was called, got {type(model)}")
    return net.memory


class _NoSuchKey(KeyError):
    """A KeyError whose text has no quotation marks around it, like other errors."""

    def __str__(self) -> str:
        return str(self.args[0])


_NoSuchKey.__name__ = _NoSuchKey.__qualname__ = KeyError.__name__  # in tracebacks
_NoSuchKey.__module__ = KeyError.__module__


class Config(MutableMapping[str, Any]):
    """The configuration: `sol.config["compiler::name"]` or `sol.config.compiler_name`; `help()` lists all keys."""

    def _known(self, key: str) -> str:
        keys = list(self)
        if key in keys:
            return key
        near = difflib.get_close_matches(str(key), keys, n=3, cutoff=0.5)
        advice = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(keys)}"
        raise _NoSuchKey(f"sol.config: {key}: no such key; {advice}")

    def __getitem__(self, key: str) -> str:
        return _core.config_get(self._known(key))

    def __setitem__(self, key: str, value: Any) -> None:
        _core.config_set(self._known(key), str(int(value)) if isinstance(value, bool) else str(value))
        device._follow()

    def __delitem__(self, key: str) -> None:
        """Restores the default."""
        defaults = {k: default for k, default, _ in _core.config_keys()}
        _core.config_set(key, defaults[self._known(key)])
        device._follow()

    def _attribute(self, name: str) -> str:
        """The key for an attribute: underscores stand for colons."""
        return next((k for k in self if k.replace("::", "_") == name), name)

    def __getattr__(self, name: str) -> str:
        try:
            return self[self._attribute(name)]
        except KeyError as e:
            raise AttributeError(str(e)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            self[self._attribute(name)] = value
        except KeyError as e:
            raise AttributeError(str(e)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(k for k, _, _ in _core.config_keys())

    def __len__(self) -> int:
        return len(_core.config_keys())

    def __repr__(self) -> str:
        return "\n".join(f"{k} = {self[k]!r}" for k in self)

    def print(self) -> None:
        """Prints every key with its value, and whether it was changed."""
        for key, default, _ in _core.config_keys():
            print(f"{key:38}{self[key] or '-'}{' (changed)' if self[key] != default else ''}")

    def help(self) -> str:
        """Prints every key with its default and description."""
        return "\n".join(f"{k} (default {default!r}): {doc}" for k, default, doc in _core.config_keys())


config = Config()


def devices() -> list[dict[str, Any]]:
    """Lists the devices that networks can run on, then those that are not there.

    Each is a dict with type, index, name, memory (bytes), cores, lanes (of float32), f64 (does it compute in float64?),
    clock (MHz) and memory_rate (MB/s; 0: unknown), compilers with their versions, backends (the solvers that make kernels
    for it), why it is not there ("": it is), and default (networks compiled now run on it).
    """
    return _core.devices()


def _there() -> list[tuple[str, int]]:
    return [(d["type"], d["index"]) for d in devices() if not d["why"]]


def versions() -> dict[str, str]:
    """Returns the versions of SOL, Python and the loaded frameworks."""
    found = {"sol": _core.version(), "python": platform.python_version()}
    for name in ("torch", "tensorflow", "keras", "numpy", "onnx"):
        if name in sys.modules:
            found[name] = str(getattr(sys.modules[name], "__version__", "?"))
    return found


# -- random streams, one for each device. Every call of a network with random layers takes the next number of its stream.

_seeds: dict[tuple[str, int], int] = {}  # set by set_seed; otherwise the framework's own generator is used
_drawn: dict[tuple[str, int], int] = {}
_MASK = (1 << 64) - 1


def set_seed(seed: int | None, device_type: str | None = None, device_idx: int | None = None) -> None:
    """Sets the seed of random layers and restarts their stream: for all devices, for a type of device, or for one device.

    With None, the framework's own generator (`torch.manual_seed`) is used again, as before the first call.
    """
    for key in _there():
        if device_type in (None, key[0]) and device_idx in (None, key[1]):
            _drawn[key] = 0
            if seed is None:
                _seeds.pop(key, None)
            else:
                _seeds[key] = int(seed)


def seed(device_type: str = HOST, device_idx: int = 0) -> int:
    """Returns the seed of a device: the one that was set, otherwise PyTorch's, otherwise one that is drawn now and kept."""
    if (device_type, device_idx) not in _there():
        raise _core.InvalidError(f"sol.seed: there is no device {device_type}:{device_idx}")
    if (device_type, device_idx) not in _seeds and "torch" in sys.modules:
        return int(sys.modules["torch"].initial_seed())
    return _seeds.setdefault((device_type, device_idx), random.SystemRandom().getrandbits(63))


def seeds() -> dict[str, int]:
    """Returns the seeds of all devices."""
    return {f"{kind}:{index}": seed(kind, index) for kind, index in _there()}


def next_seed(device_type: str = HOST, device_idx: int = 0) -> int | None:
    """The next 63-bit number of a device's stream. None: no seed was set; use the framework's generator."""
    key = (device_type, device_idx)
    if key not in _seeds:
        return None
    _drawn[key] = count = _drawn.get(key, 0) + 1
    z = (_seeds[key] * 0xD1342543DE82EF95 + count * 0x9E3779B97F4A7C15) & _MASK  # splitmix64
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _MASK
    return (z ^ z >> 31) >> 1


def next_random() -> int:
    """The next number of the random stream: that of sol.set_seed, otherwise NumPy's."""
    import numpy as np

    seed = next_seed()
    return int(np.random.randint(1 << 62)) if seed is None else seed
