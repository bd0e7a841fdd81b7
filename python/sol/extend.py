"""Layers and passes from outside: `sol.register_layer`, `sol.register_pass`, `sol.load_extension` (docs/extending.md)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import _core

LayerFunction = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_int64),
    ctypes.POINTER(ctypes.c_double),
)
_FUNCTION = LayerFunction.__mro__[1]  # of all functions of ctypes
_kept: list[Any] = []  # functions that layers call, as long as the process


def register_layer(
    name: str,
    definition: str,
    *,
    attributes: str = "",
    gradient: str | None = None,
    doc: str = "",
    source: str | None = None,
    symbol: str | None = None,
    objects: str | Path | Sequence[str | Path] = (),
    function: Any = None,
    replace: bool = False,
) -> None:
    """Adds a kind of layer, which all frontends then know.

    name        a namespace and a name: "mylib::scale". It stands for operators of this name in PyTorch (torch.library), TensorFlow
                ("Mylib>Scale" is "Mylib::Scale"), JAX (primitives), and ONNX (domain and op_type)
    definition  what it computes, in the notation for layers (docs/notation.md): "x[A..] w[] -> y[A..] | y[A] = s * w[] * x[A]".
                For a C function only the head and the sizes, where each tensor has a type: "x:f32[N C] -> y:f32[N C]"
    attributes  "s=1.0 axis:int k:ints=[1,1]": name=default, or name:kind if it must be given
    gradient    None: SOL derives it from the definition. Otherwise the name of a layer that computes it, or its definition, which
                is registered as NAME_gradient. It reads tensors of the layer and d_y, the gradient of y, and makes d_x
    source      C text that defines the function `symbol`: int32_t symbol(void *const *tensors, const int64_t *numbers,
                const double *reals). A path to a .c file is read. The compiler's errors are raised here
    objects     in place of the source: object files (-fPIC) and static libraries that define `symbol`. They are linked for this process
                and into libraries that sol.deploy makes
    function    the function itself: of ctypes, or an address. Libraries that sol.deploy makes need the source or objects
    replace     a layer of this name may be registered already; models that were optimized before keep the old one

    The same layer may be registered again. Raises sol.InvalidError with the line and column of what cannot be read.
    """
    if isinstance(gradient, str) and "->" in gradient:
        _core.register_layer(f"{name}_gradient", gradient, attributes, "", None, None, None, None, 0, replace)
        gradient = f"{name}_gradient"
    if source is not None and source.endswith(".c") and "\n" not in source:
        source = Path(source).read_text()
    address = _address(function)
    paths = [objects] if isinstance(objects, str | Path) else objects
    _core.register_layer(
        name,
        definition,
        attributes,
        doc,
        gradient,
        source,
        symbol,
        "\n".join(map(str, paths)) or None,
        address,
        replace,
    )
    _kept.append(function)


def _address(function: Any) -> int:
    if function is None:
        return 0
    if isinstance(function, int):
        return function
    if isinstance(function, _FUNCTION):
        return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
    raise _core.InvalidError(
        f"sol.register_layer: function: expected a function of ctypes, such as sol.extend.LayerFunction(f), or an address, got {function!r}"
    )


def load_extension(path: str | Path) -> None:
    """Loads a plug-in with layers and passes, a shared object (include/sol/extend.h). Those that SOL_EXTENSIONS names are loaded by
    themselves."""
    _core.load_extension(str(path))


# -- passes


class Tensor:
    """A tensor of a graph."""

    __slots__ = ("_handle",)

    def __init__(self, handle: _core.Tensor) -> None:
        self._handle = handle

    @property
    def dtype(self) -> str:
        """The type, "f32"."""
        return self._handle.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return self._handle.shape

    @property
    def maker(self) -> Layer | None:
        """The layer that makes it; None: an input, a parameter or a constant."""
        made = _core.tensor_maker(self._handle)
        return None if made is None else Layer(made)

    @property
    def readers(self) -> int:
        """How many times layers and outputs read it."""
        return _core.tensor_readers(self._handle)

    def known(self) -> bytes | None:
        """Its elements, if they are known before running."""
        return self._handle.known()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and _core.same_tensor(self._handle, other._handle)

    __hash__ = None  # type: ignore[assignment]


class Layer:
    """A layer of a graph."""

    __slots__ = ("_handle",)

    def __init__(self, handle: _core.Layer) -> None:
        self._handle = handle

    @property
    def kind(self) -> str:
        """What it is: "Conv", "mylib::scale"."""
        return self._handle.kind

    @property
    def name(self) -> str:
        """Its name in the model."""
        return self._handle.name

    @property
    def attributes(self) -> dict[str, Any]:
        """All attributes, with defaults."""
        return self._handle.attributes

    @property
    def inputs(self) -> tuple[Any, ...]:
        """Tensors that it reads; None: a missing one."""
        return tuple(None if t is None else Tensor(t) for t in self._handle.inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Tensors that it makes."""
        return tuple(map(Tensor, self._handle.outputs))


class Graph:
    """What a pass changes. It is valid while the pass runs; str() is its text form."""

    def __init__(self, handle: _core.Graph) -> None:
        self._handle = handle

    @property
    def layers(self) -> list[Layer]:
        """The layers in their order: each comes behind those that it reads."""
        return list(map(Layer, _core.graph_layers(self._handle)))

    def insert(self, before: Layer, kind: str, *inputs: Tensor | None, outputs: int = 1, **attributes: Any) -> Any:
        """Adds a layer in front of another one, and returns its tensor, or a tuple of several."""
        given = tuple(None if t is None else t._handle for t in inputs)
        made = _core.graph_insert(self._handle, before._handle, (kind, before.name, None, given, attributes, outputs))
        return Tensor(made[0]) if outputs == 1 else tuple(map(Tensor, made))

    def const(self, dtype: str, shape: Sequence[int], data: bytes) -> Tensor:
        """A constant with row-major data."""
        return Tensor(self._handle.const(dtype, tuple(shape), data))

    def replace(self, old: Tensor, new: Tensor) -> None:
        """All that reads `old` reads `new`, which has the same type and shape. Layers that nothing needs disappear."""
        _core.graph_replace(self._handle, old._handle, new._handle)

    def __str__(self) -> str:
        return str(self._handle)


def register_pass(
    name: str, function: Callable[[Graph], Any], *, place: str | None = None, replace: bool = False
) -> None:
    """Adds a pass for models that are compiled from now on.

    name      a namespace and a name: "mylib::fuse"
    function  changes the graph that it is given; it runs for each network, perhaps several times. What it raises ends the compilation
    place     "before NAME" or "after NAME" of one of SOL's passes (`sol-opt --passes`); None: after cse

    SOL checks the graph behind the pass. A graph with a gradient has the layers of both directions.
    """
    if not callable(function):
        raise _core.InvalidError(f"sol.register_pass: expected a function on a graph, got {function!r}")
    _core.register_pass(name, place, lambda graph: function(Graph(graph)), replace)


def layers() -> list[tuple[str, str, str]]:
    """All kinds of layers: name, attributes with defaults, what it computes."""
    return _core.layer_names()


def named(operator: str) -> str | None:
    """The registered layer that stands for an operator of a framework; None: there is none."""
    return operator if "::" in operator and _core.layer_known(operator) else None


def plain(value: Any) -> Any:
    """An argument of an operator as an attribute: numbers, texts and lists of numbers. None: it cannot be one."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float | str):
        return value
    if isinstance(value, tuple | list) and all(isinstance(v, int | float) for v in value):
        return [int(v) if isinstance(v, bool) else v for v in value]
    return None
