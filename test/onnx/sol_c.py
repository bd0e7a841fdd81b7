"""libsol through ctypes: reads ONNX models and runs them, compiled or by the interpreter."""

import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
DTYPES = [
    np.dtype(t)
    for t in ("bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 uint16 float32 float64").split()
]
INVALID, UNSUPPORTED = 1, 2


class SolError(Exception):
    """What a function of sol.h returned, and sol_error()."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Dim(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("size", c_int64)]


class Value(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_int),
        ("ndim", c_int),
        ("shape", POINTER(c_int64)),
        ("data", c_void_p),
    ]


class Options(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("ndims", c_int),
        ("dims", POINTER(Dim)),
        ("constants", c_int),
        ("folder", c_char_p),
        ("nvalues", c_int),
        ("values", POINTER(Value)),
        ("nshapes", c_int),
        ("shapes", c_void_p),
        ("open_size", c_int64),
        ("vary", c_int),
        ("nlimits", c_int),
        ("limits", c_void_p),
        ("noffered", c_int),
        ("offered", POINTER(Value)),
        ("nweights", c_int),
        ("weights", POINTER(Value)),
        ("on_rejected", c_void_p),
        ("user", c_void_p),
    ]


class Call(ctypes.Structure):
    _fields_ = [
        ("dims", c_void_p),
        ("inputs", c_void_p),
        ("outputs", c_void_p),
        ("threads", c_int),
        ("out_dims", c_void_p),
    ]


class Shape(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("input", c_int), ("ndim", c_int), ("shape", POINTER(c_int64))]


class Data(ctypes.Structure):
    _fields_ = [("inputs", c_void_p), ("params", c_void_p), ("outputs", c_void_p), ("dims", c_void_p)]


def _load() -> ctypes.CDLL:
    path = os.environ.get("SOL_TEST_LIB", str(ROOT / "build" / "test" / "onnx" / "libsol_onnx_test.so"))
    lib = ctypes.CDLL(path)
    lib.sol_error.restype = c_char_p
    lib.sol_onnx_graph.restype = c_void_p
    lib.sol_onnx_param.restype = c_void_p
    lib.sol_onnx_operator.restype = c_char_p
    lib.sol_onnx_supported.restype = c_char_p
    lib.sol_onnx_about.restype = c_char_p
    for name in (
        "sol_onnx_graph",
        "sol_onnx_params",
        "sol_onnx_destroy",
        "sol_params_destroy",
        "sol_net_destroy",
        "sol_onnx_about",
    ):
        getattr(lib, name).argtypes = [c_void_p]
    lib.sol_onnx_param.argtypes = [c_void_p, c_int]
    lib.sol_onnx_operator.argtypes = [c_void_p, c_int, POINTER(c_int64)]
    lib.sol_onnx_supported.argtypes = [c_int, POINTER(c_char_p), POINTER(c_int), POINTER(c_int)]
    lib.test_count.argtypes = [c_void_p, c_int]
    lib.test_describe.argtypes = [c_void_p, c_int, c_int, POINTER(c_char_p), POINTER(c_int), POINTER(c_int64)]
    lib.test_interpret.argtypes = [c_void_p, c_void_p, c_void_p, c_void_p]
    lib.test_interpret_at.argtypes = [c_void_p, c_void_p, POINTER(Data)]
    lib.test_dim.argtypes = [c_int64]
    lib.test_size_at.argtypes = [c_int64, c_void_p]
    lib.test_size_at.restype = c_int64
    lib.sol_size_text.argtypes = [c_void_p, c_int64, c_char_p, c_size_t]
    lib.sol_onnx_open.argtypes = [c_void_p, c_int, POINTER(c_int64)]
    lib.sol_onnx_open.restype = c_char_p
    lib.sol_onnx_taken.argtypes = [c_void_p, c_int]
    lib.sol_onnx_taken.restype = POINTER(Value)
    lib.sol_onnx_taken_size.argtypes = [c_void_p, c_int, c_int]
    lib.sol_onnx_taken_size.restype = c_int64
    lib.sol_onnx_open_why.argtypes = [c_void_p, c_int]
    lib.sol_onnx_open_why.restype = c_char_p
    return lib


LIB = _load()
CTX = c_void_p()
if LIB.sol_ctx_create(None, byref(CTX)):
    raise RuntimeError("no context")


def check(status: int) -> None:
    if status:
        raise SolError(status, LIB.sol_error(CTX).decode(errors="replace"))


def config(key: str, value: str) -> None:
    check(LIB.sol_config_set(CTX, key.encode(), value.encode()))


def supported() -> list[tuple[str, str, int, int]]:
    """(domain, operator, first opset, last) of every row."""
    rows, domain, first, last = [], c_char_p(), c_int(), c_int()
    while name := LIB.sol_onnx_supported(len(rows), byref(domain), byref(first), byref(last)):
        rows.append(((domain.value or b"").decode(), name.decode(), first.value, last.value))
    return rows


def _rows(values: dict[str, np.ndarray] | None) -> list[tuple[Value, np.ndarray]]:
    """Values for C, and their data."""
    found = []
    for name, given in (values or {}).items():
        v = np.array(given, order="C")
        found.append((Value(name.encode(), DTYPES.index(v.dtype), v.ndim, (c_int64 * 12)(*v.shape), v.ctypes.data), v))
    return found


class Model:
    """A model that was read. `dims` gives sizes that it leaves open."""

    def __init__(
        self,
        model,
        dims: dict[str, int] | None = None,
        constants: bool = False,
        folder=None,
        values: dict[str, np.ndarray] | None = None,
        open_size: int = 0,
        vary: bool = False,
        arrays: dict[str, tuple[int, ...]] | None = None,
        offered: dict[str, np.ndarray] | None = None,
    ) -> None:
        self._model = c_void_p()
        self._net, self._params = c_void_p(), c_void_p()
        entries = [Dim(k.encode(), v) for k, v in (dims or {}).items()]
        fixed, offer = _rows(values), _rows(offered)
        given = {k: (c_int64 * 12)(*v) for k, v in (arrays or {}).items()}
        array_shapes = (Shape * max(1, len(given)))(
            *[Shape(k.encode(), 0, len(arrays[k]), v) for k, v in given.items()]
        )
        options = Options(
            ctypes.sizeof(Options),
            len(entries),
            (Dim * max(1, len(entries)))(*entries),
            int(constants),
            str(folder).encode() if folder else None,
            len(fixed),
            (Value * max(1, len(fixed)))(*[row for row, _ in fixed]),
            len(given),
            ctypes.cast(array_shapes, c_void_p),
            open_size=open_size,
            vary=int(vary),
            noffered=len(offer),
            offered=(Value * max(1, len(offer)))(*[row for row, _ in offer]),
        )
        if isinstance(model, (str, Path)):
            check(LIB.sol_onnx_load(CTX, str(model).encode(), byref(options), byref(self._model)))
        else:
            data = model if isinstance(model, bytes) else model.SerializeToString()
            check(LIB.sol_onnx_load_memory(CTX, data, c_size_t(len(data)), byref(options), byref(self._model)))
        self._graph = LIB.sol_onnx_graph(self._model)
        self.inputs = self._describe(0)
        self.outputs = self._describe(1)

    def __del__(self) -> None:
        if self._net:
            LIB.sol_params_destroy(self._params)
            LIB.sol_net_destroy(self._net)
        if self._model:
            LIB.sol_onnx_destroy(self._model)

    def _describe(self, outputs: int) -> list[tuple[str, np.dtype, tuple[int, ...]]]:
        found = []
        for i in range(LIB.test_count(self._graph, outputs)):
            name, dtype, shape = c_char_p(), c_int(), (c_int64 * 12)()
            n = LIB.test_describe(self._graph, outputs, i, byref(name), byref(dtype), shape)
            found.append(((name.value or b"").decode(), DTYPES[dtype.value], tuple(shape[:n])))
        return found

    def shapes(self, outputs: bool = True) -> list[str]:
        """The outputs' (or inputs') shapes as text, in which dimensions that vary are #0, #1, .."""
        found, text = [], ctypes.create_string_buffer(256)
        for _, _, shape in self.outputs if outputs else self.inputs:
            sizes = []
            for size in shape:
                LIB.sol_size_text(CTX, size, text, len(text))
                sizes.append(text.value.decode())
            found.append(" ".join(sizes))
        return found

    def open(self) -> dict[str, str | None]:
        """The dimensions that the model leaves open; those that do not vary say why."""
        found, size = {}, c_int64()
        while name := LIB.sol_onnx_open(self._model, len(found), byref(size)):
            why = LIB.sol_onnx_open_why(self._model, len(found))
            found[name.decode()] = why.decode() if why else None
        return found

    def taken(self) -> dict[str, list[int] | None]:
        """The inputs whose values are part of the graph: a size for each element, or None where the value is as it was."""
        found = {}
        while row := LIB.sol_onnx_taken(self._model, len(found)):
            v = row.contents
            n = int(np.prod([v.shape[i] for i in range(v.ndim)], dtype=int))
            sizes = [LIB.sol_onnx_taken_size(self._model, len(found), k) for k in range(n)]
            found[v.name.decode()] = sizes if (sizes and sizes[0] >= 0) or any(s != -1 for s in sizes) else None
        return found

    def interpret_at(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Evaluates the graph for the sizes of these inputs."""
        dims = (c_int64 * 32)()
        given = [np.array(inputs[name], order="C") for name, _, _ in self.inputs]
        for array, (name, dtype, shape) in zip(given, self.inputs, strict=True):
            assert array.dtype == dtype and array.ndim == len(shape), name
            for size, own in zip(shape, array.shape, strict=True):
                if LIB.test_dim(size) >= 0:
                    dims[LIB.test_dim(size)] = own
        taken = {name: sizes for name, sizes in self.taken().items() if sizes}
        for name, sizes in taken.items():
            for size, element in zip(sizes, np.ravel(inputs[name]), strict=True):
                if LIB.test_dim(size) >= 0:
                    dims[LIB.test_dim(size)] = int(element)
        check(LIB.test_check_dims(c_void_p(self._graph), dims))
        for array, (name, _, shape) in zip(given, self.inputs, strict=True):
            expected = tuple(LIB.test_size_at(s, dims) for s in shape)
            if array.shape != expected:
                raise SolError(INVALID, f"input '{name}': expected {expected}, got {array.shape}")
        for name, sizes in taken.items():
            if [LIB.test_size_at(s, dims) for s in sizes] != np.ravel(inputs[name]).tolist():
                raise SolError(INVALID, f"input '{name}': expected {sizes}, got {inputs[name]}")
        return self._interpret_at(given, dims)

    def _interpret_at(self, given: list[np.ndarray], dims) -> list[np.ndarray]:
        found = (c_int64 * 32)()
        out = self._room(dims)
        n = self.params()
        params = (c_void_p * max(1, n))(*[LIB.sol_onnx_param(self._model, i) for i in range(n)])
        pointers = [self._pointers(given), params, self._pointers(out), found]
        data = Data(*[ctypes.cast(p, c_void_p) for p in pointers])
        check(LIB.test_interpret_at(self._graph, dims, byref(data)))
        return self._parts(out, found)

    def _room(self, dims) -> list[np.ndarray]:
        """Outputs of the largest sizes, where sizes depend on data."""
        LIB.test_most(c_void_p(self._graph), dims)
        return [np.zeros([LIB.test_size_at(s, dims) for s in shape], dtype) for _, dtype, shape in self.outputs]

    def _parts(self, out: list[np.ndarray], found) -> list[np.ndarray]:
        """What a call has written, of the sizes that it found."""
        sizes = [[LIB.test_size_at(s, found) for s in shape] for _, _, shape in self.outputs]
        return [o.ravel()[: int(np.prod(s, dtype=int))].reshape(s) for o, s in zip(out, sizes, strict=True)]

    def operators(self) -> dict[str, int]:
        found, count = {}, c_int64()
        while name := LIB.sol_onnx_operator(self._model, len(found), byref(count)):
            found[name.decode()] = count.value
        return found

    def params(self) -> int:
        return LIB.sol_onnx_params(self._model)

    def _arrays(self, inputs) -> list[np.ndarray]:
        given = []
        for name, dtype, shape in self.inputs:
            a = np.array(inputs[name], order="C")
            if a.dtype != dtype or a.shape != shape:
                raise SolError(INVALID, f"input '{name}': expected {dtype}{shape}, got {a.dtype}{a.shape}")
            given.append(a)
        return given

    @staticmethod
    def _pointers(arrays):
        return (c_void_p * max(1, len(arrays)))(*[a.ctypes.data for a in arrays])

    def interpret(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        given = self._arrays(inputs)
        if LIB.test_most(c_void_p(self._graph), (c_int64 * 32)()):  # it has sizes that depend on data
            return self._interpret_at(given, (c_int64 * 32)())
        out = [np.zeros(shape, dtype) for _, dtype, shape in self.outputs]
        n = self.params()
        params = (c_void_p * max(1, n))(*[LIB.sol_onnx_param(self._model, i) for i in range(n)])
        check(LIB.test_interpret(self._graph, self._pointers(given), params, self._pointers(out)))
        return out

    def run(self, inputs: dict[str, np.ndarray], threads: int = 1) -> list[np.ndarray]:
        given, dims, found = self._arrays(inputs), (c_int64 * 32)(), (c_int64 * 32)()
        if not self._net:
            check(LIB.sol_compile(CTX, c_void_p(self._graph), byref(self._net)))
            check(LIB.sol_onnx_bind(self._model, self._net, byref(self._params)))
        out = self._room(dims)
        pointers = [ctypes.cast(p, c_void_p) for p in (dims, self._pointers(given), self._pointers(out))]
        call = Call(*pointers, threads, ctypes.cast(found, c_void_p))
        check(LIB.sol_net_run_at(self._net, self._params, byref(call)))
        return self._parts(out, found)
