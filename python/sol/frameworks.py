"""Which frontend serves a model: by the package that defines its type or a base class. A table has the frontends; others, from
outside, are entry points of the group `sol.frameworks`."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, cast

from . import _core, from_parsed
from .onnx_file import is_model, source_of
from .parsed import Call, Mode, Owned, Parsed, Source, flatten

GROUP = "sol.frameworks"
_OWN = {  # framework: the module of its frontend, and the packages that define the types of its models
    "pytorch": ("sol.pytorch.frontend", ("torch",)),
    "jax": ("sol.jax.frontend", ("jax", "jaxlib")),
    "tensorflow": ("sol.tensorflow.frontend", ("tensorflow",)),
    "onnx": ("sol.onnx_frontend", ()),  # a file, bytes, or a message
    "numpy": ("sol.arrays", ()),  # makes functions on arrays only
}
_OTHER_NAMES = {"torch": "pytorch", "keras": "tensorflow"}


class Frontend(Protocol):
    """What the module of a frontend has. What it lacks is not supported for its framework."""

    def optimize(self, model: Any, call: Call) -> Any:
        """`sol.optimize`: the model becomes one of the same framework."""

    def dims(self, model: Any, call: Call) -> Any:
        """`sol.dims`. from_parsed.py makes it of a `parse` that takes `sol.dim`."""

    def deploy(self, model: Any, target: str, keys: dict[str, str], call: Call, sizes: Sequence[int | None]) -> None:
        """`sol.deploy`, for each of these batch sizes (None: that of the call), if it is not what from_parsed.py makes of `parse`."""

    def bind(self, model: Any, call: Call) -> tuple[Any, Call]:
        """The model and its call for `parse` and `owned`, where the call of the framework also has the parameters."""

    def parse(self, model: Any, call: Call, mode: Mode) -> Parsed:
        """A network for this call, whose tensors are arrays or descriptions. It is not compiled yet."""

    def owned(self, model: Any) -> list[Owned]:
        """All parameters and states of a model."""

    def assign(self, model: Any, values: dict[str, Any]) -> None:
        """New values, arrays, of parameters and states by the names that `owned` has."""

    def profiled(self, model: Any, call: Call) -> AbstractContextManager[Callable[[], Any]]:
        """One run of an optimized model for `sol.profile`; behind it, the model is as before. Without it, a run is a call."""

    def wrap(self, source: Source) -> Any:
        """A model of another framework as one of this framework, which owns the parameters."""


@functools.cache
def _outside() -> dict[str, tuple[importlib.metadata.EntryPoint, tuple[str, ...]]]:
    """Frontends of other packages: `name = "module [package, ..]"`, with the packages that define its types."""
    found = importlib.metadata.entry_points(group=GROUP)
    return {e.name: (e, tuple(e.extras) or (e.name,)) for e in found if e.name not in _OWN}


def names() -> list[str]:
    """The frameworks that there are frontends for."""
    return [*_OWN, *_outside()]


def named(name: str) -> Frontend:
    """The frontend of a framework. Raises UnsupportedError if there is none, or its package does not fit (supported.py)."""
    name = _OTHER_NAMES.get(name, name)
    if name in _OWN:
        module = _OWN[name][0]
    elif name in _outside():
        return cast(Frontend, _outside()[name][0].load())
    else:
        raise _core.UnsupportedError(f"framework {name!r}: not supported; there are {', '.join(map(repr, names()))}")
    return cast(Frontend, importlib.import_module(module))


def _of_type(kind: type) -> str | None:
    """The framework that defines this type or a base class of it."""
    if own := getattr(kind, "sol_framework", None):
        return str(own)  # a class of SOL itself
    packages = {p: name for name, (_, of) in _OWN.items() for p in of}
    if keras := sys.modules.get("keras"):
        backend = keras.backend.backend()
        packages["keras"] = _OTHER_NAMES.get(backend, backend)  # a model on TensorFlow has also classes of its own
    packages.update((p, name) for name, (_, of) in _outside().items() for p in of)
    found = (packages.get(c.__module__.partition(".")[0]) for c in kind.__mro__)
    name = next((name for name in found if name), None)
    if name in ("numpy", "openvino"):  # backends of Keras that run models in their own way
        raise _core.UnsupportedError(
            f"{kind.__name__}: a model of Keras on {name}: not supported; set KERAS_BACKEND=tensorflow"
        )
    return name


def _of_function(call: Call) -> str | None:
    """The framework of a plain function: that of its arguments, or the only one that is imported."""
    for leaf in flatten((call.args, call.kwargs)):
        if name := _of_type(type(leaf)):
            return name
    packages = [(p, name) for name, (_, of) in (*_OWN.items(), *_outside().items()) for p in of]
    loaded = list(dict.fromkeys(name for p, name in packages if p in sys.modules))
    if len(loaded) > 1:
        raise _core.InvalidError(
            f"a function belongs to no framework, and {' and '.join(loaded)} are imported: pass example arguments of its "
            "framework, tensors, not sol.input(..) or numbers"
        )
    return loaded[0] if loaded else None


def of(what: str, model: Any, call: Call) -> str:
    """The framework of a model. `what`: the function that asks, for messages."""
    if isinstance(model, type):
        raise _core.InvalidError(f"{what}: expected a model, got the class {model.__name__}; make one of it first")
    if is_model(model):
        return "onnx"
    name = _of_type(type(model)) or (_of_function(call) if callable(model) else None)
    if name is None and callable(model):
        raise _core.InvalidError(
            f"{what}: {getattr(model, '__name__', type(model).__name__)} belongs to no framework, and none is imported: import its "
            "framework, or pass example arguments, its tensors"
        )
    if name is None:
        raise _core.InvalidError(
            f"{what}: expected a torch.nn.Module, a Keras model, a function on tensors, or an ONNX model (path, bytes or ModelProto), "
            f"got {type(model)}"
        )
    return name


def _can(name: str, function: str, missing: str) -> Any:
    found = getattr(named(name), function, None)
    if found is None:
        raise _core.UnsupportedError(f"{missing}: not supported")
    return found


def optimize(model: Any, call: Call) -> Any:
    """`sol.optimize`, from any framework to any."""
    name = of("sol.optimize", model, call)
    target = _OTHER_NAMES.get(call.framework or name, call.framework or name)
    if target == name:
        return _can(name, "optimize", f"sol.optimize for models of {name}")(model, call)
    wrap = _can(target, "wrap", f"framework {target!r}: other models as models of {target}")
    parse = _can(name, "parse", f"framework {target!r}: models of {name} in another framework")
    owned = _can(name, "owned", f"framework {target!r}: models of {name} in another framework")
    model, call = bound(name, model, call)
    return wrap(Source(title(model), name, call, functools.partial(parse, model), owned(model)))


def bound(name: str, model: Any, call: Call) -> tuple[Any, Call]:
    """The model, and a call of it without its parameters."""
    bind = getattr(named(name), "bind", None)
    return bind(model, call) if bind else (model, call)


def title(model: Any) -> str:
    """A model's name."""
    if is_model(model):
        return source_of(model).name
    function = getattr(model, "func", model)
    return str(getattr(model, "name", None) or getattr(function, "__name__", None) or type(function).__name__)


def owned(what: str, model: Any, call: Call) -> list[Owned]:
    """The parameters and states of a model. `what`: who asks, for messages."""
    name = of(what, model, call)
    found: list[Owned] = _can(name, "owned", f"{what}: parameters of models of {name}")(model)
    return found


def assign(model: Any, values: dict[str, Any]) -> None:
    """New values of parameters, by their names in `owned`."""
    name = of("sol.transfer: target", model, Call())
    _can(name, "assign", f"sol.transfer: new parameters for models of {name}")(model, values)


def dims(model: Any, call: Call) -> Any:
    """`sol.dims`."""
    name = of("sol.dims", model, call)
    return _can(name, "dims", f"sol.dims for models of {name}")(model, call)


def profiled(name: str, model: Any, call: Call) -> AbstractContextManager[Callable[[], Any]]:
    """One run of an optimized model of this framework, for `sol.profile`."""
    found = getattr(named(name), "profiled", None)
    return found(model, call) if found else nullcontext(lambda: model(*call.args, **call.kwargs))


def deploy(model: Any, target: str, keys: dict[str, str], call: Call, sizes: Sequence[int | None]) -> None:
    """`sol.deploy`."""
    name = of("sol.deploy", model, call)
    frontend = named(name)
    if hasattr(frontend, "deploy") or not hasattr(frontend, "parse"):
        _can(name, "deploy", f"sol.deploy for models of {name}")(model, target, keys, call, sizes)
        return
    model, call = bound(name, model, call)
    parse = functools.partial(frontend.parse, model)
    from_parsed.deploy((parse, frontend.owned(model)), target, keys, call, sizes)
