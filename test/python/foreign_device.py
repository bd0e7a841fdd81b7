"""A device of PyTorch like CUDA: its tensors have addresses of a driver, which is the double of libcuda (test/nvidia), in memory that
PyTorch's side allocates and reuses in the order of a stream of its own. SOL gets addresses and streams as it does for CUDA's
tensors (places.of_caller). PyTorch's operators run on the processor: they are here to come before and after SOL's calls."""

import ctypes
import functools
from collections import defaultdict

import torch
from sol.pytorch import places
from sol.pytorch.native import build, eager, module, parameters
from torch import nn  # noqa: F401 - for tests that execute in this module

_FIELDS = {  # of struct sol_native (native.h), with their parameters
    "alloc": ("text", "int", "long", "long*"), "free": (None, "int", "ulong"), "write": ("text", "int", "ulong", "p", "long"),
    "read": ("text", "int", "p", "ulong", "long"), "copy": ("text", "int", "ulong", "ulong", "long"),
    "fill": ("text", "int", "ulong", "int", "long"), "wait": ("text", "int"), "run": ("text", "p"),
    "memory": ("text", "int", "int", "p", "p", "p"), "trim": ("text", "int"), "record": ("text", "int", "p"),
    "after": ("text", "int", "p"), "event_wait": ("text", "p"), "event_happened": ("int", "p"), "idle": ("int", "int"),
    "event_between": ("long", "p", "p"), "event_free": (None, "p"), "fallback": ("text", "p"),
}  # fmt: skip
_TYPES = {
    None: None, "int": ctypes.c_int, "long": ctypes.c_int64, "ulong": ctypes.c_uint64, "p": ctypes.c_void_p,
    "long*": ctypes.POINTER(ctypes.c_uint64), "text": ctypes.c_void_p,
}  # fmt: skip


class _Table(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("devices", ctypes.c_int),
        *((name, ctypes.CFUNCTYPE(*(_TYPES[t] for t in types))) for name, types in _FIELDS.items()),
    ]


class Device:
    """PyTorch's side: memory, a current stream, and copies."""

    def __init__(self, double):
        self.cuda = ctypes.CDLL(double)
        self.context = ctypes.c_int()
        self.stream = 1  # the default one, by its name
        self.free = defaultdict(
            list
        )  # memory by size and stream, to be used again at once, as PyTorch's caching allocator does
        self.kinds = {}
        self.sent = []  # data that copies of the host read later
        self.reads = self.writes = 0

    def call(self, name, *args):
        self.cuda.cuCtxPushCurrent_v2(ctypes.byref(self.context))
        error = getattr(self.cuda, name)(*args)
        self.cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        assert not error, (name, error)

    def make_stream(self):
        made = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(made), 0)
        return made.value

    def synchronize(self):
        self.call("cuStreamSynchronize", ctypes.c_void_p(self.stream))

    # -- of the table

    def do_alloc(self, device, bytes, out):
        kind = bytes, self.stream
        if self.free[kind]:
            out[0] = self.free[kind].pop()
        else:
            made = ctypes.c_uint64()
            self.call("cuMemAlloc_v2", ctypes.byref(made), ctypes.c_size_t(bytes))
            out[0] = made.value
        self.kinds[out[0]] = kind

    def do_free(self, device, p):
        self.free[self.kinds[p]].append(p)

    def do_write(self, device, to, data, bytes):
        self.writes += 1
        self.sent.append(ctypes.string_at(data, bytes))
        self.call(
            "cuMemcpyHtoDAsync_v2",
            ctypes.c_uint64(to),
            self.sent[-1],
            ctypes.c_size_t(bytes),
            ctypes.c_void_p(self.stream),
        )

    def do_read(self, device, host, at, bytes):
        self.reads += 1
        self.call(
            "cuMemcpyDtoHAsync_v2",
            ctypes.c_void_p(host),
            ctypes.c_uint64(at),
            ctypes.c_size_t(bytes),
            ctypes.c_void_p(self.stream),
        )
        self.synchronize()

    def do_copy(self, device, to, at, bytes):
        self.call(
            "cuMemcpyDtoDAsync_v2",
            ctypes.c_uint64(to),
            ctypes.c_uint64(at),
            ctypes.c_size_t(bytes),
            ctypes.c_void_p(self.stream),
        )

    def do_fill(self, device, to, value, bytes):
        self.call(
            "cuMemsetD8Async",
            ctypes.c_uint64(to),
            ctypes.c_ubyte(value),
            ctypes.c_size_t(bytes),
            ctypes.c_void_p(self.stream),
        )

    def do_wait(self, device):
        self.synchronize()

    def table(self):
        made = _Table(size=ctypes.sizeof(_Table), devices=1)
        for name, kind in _Table._fields_[2:]:
            nothing = None if _FIELDS[name][0] in ("text", None) else 0
            setattr(made, name, kind(getattr(self, f"do_{name}", lambda *args, nothing=nothing: nothing)))
        return made


def begin(double):
    """Makes torch.device("sol") such a device. In a process of its own."""
    device = Device(double)
    library = build.load()
    device.kept = device.table()
    library.sol_native_begin.argtypes = [ctypes.c_void_p]
    library.sol_native_begin(ctypes.addressof(device.kept))
    library.sol_native_set(0)
    module.library, module.type, module.names = library, "nvidia", ["the double"]
    every, ours = torch.library.Library("_", "IMPL"), torch.library.Library("sol_native", "IMPL")
    every.fallback(_on_processor, "PrivateUse3")
    ours.impl("copy", lambda *args: False, "PrivateUse3")
    module.kernels = [every, ours]
    parameters.begin()
    torch.utils.rename_privateuse1_backend("sol")
    torch._register_device_module("sol", module)
    torch.utils.generate_methods_for_privateuse1_backend()
    places.of_caller = functools.partial(_caller, places.of_caller, device)
    return device


def _on_processor(op, *args, **kwargs):
    """PyTorch's kernel of the processor; Python gets numbers in place of scalars."""
    kinds = [str(a.type) for a in op._schema.arguments]
    args = [
        torch.scalar_tensor(a) if kind == "Tensor" and isinstance(a, int | float) else a
        for a, kind in zip(args, kinds, strict=False)
    ]
    return op.redispatch(eager._HOST, *args, **kwargs)


def _caller(plain, device, where):
    found = plain(where)
    return found and (*found, f"nvidia:{where.index}", lambda index: device.stream)
