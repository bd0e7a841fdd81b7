"""Which operators have kernels on SOL's devices: those of the frontend's table, for the types that SOL computes with.

TensorFlow has kernels of its own for every device (DEFAULT), which pass tensors on or compute on the host; it computes int32
there as it does for GPUs. These stay, except those that would touch a device's memory from the host.
"""

from __future__ import annotations

import itertools
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import kernels as registered
from tensorflow.python.framework import op_def_registry

from sol import _core
from sol.parsed import CORE

from ..operators import ROWS, maths

# Operands that a network is compiled for; they lie on the host.
HOST = frozenset(
    ("axis", "begin", "block_shape", "concat_dim", "constant_values", "crops", "delta", "depth", "dim", "dimension", "dims", "end",
     "filter_sizes", "input_sizes", "k", "limit", "multiples", "num_cols", "num_lower", "num_rows", "num_segments", "num_upper",
     "off_value", "on_value", "orig_input_shape", "padding_value", "paddings", "perm", "reduction_indices", "shape", "shift", "size",
     "size_splits", "split_dim", "start", "strides")
)  # fmt: skip
_NO_API = f"TensorFlow {tf.__version__} exports no function for it to devices from outside (tensorflow/c/kernels_experimental.h)"
_LIST = "lists of tensors (loops of recurrent layers) are not: compute the layer under tf.device('CPU:0')"
# Operators whose DEFAULT kernels read a device's memory on the host, and why they are missing.
MISSING = {
    **{name: _NO_API for name in ("AssignAddVariableOp", "AssignSubVariableOp")},
    **{
        f"TensorList{name}": _LIST
        for name in ("Concat", "ConcatV2", "FromTensor", "Gather", "GetItem", "PopBack", "PushBackBatch", "Scatter",
                     "ScatterIntoExistingList", "ScatterV2", "Split", "Stack")
    },
}  # fmt: skip
# Operators whose operands only broadcast: one network for all sizes
ELEMENTWISE = frozenset(
    (*maths.SAME, *maths.COMPARED, "AddN", "BiasAdd", "Cast", "ClipByValue", "DivNoNan", "Elu", "EluGrad", "InvGrad", "LeakyRelu",
     "LeakyReluGrad", "MulNoNan", "OnesLike", "ReciprocalGrad", "Relu6Grad", "ReluGrad", "RsqrtGrad", "SelectV2", "SeluGrad",
     "SigmoidGrad", "Softplus", "SoftplusGrad", "SoftsignGrad", "SqrtGrad", "SquaredDifference", "TanhGrad", "ZerosLike")
)  # fmt: skip
# Rows without a kernel: they draw from generators, whose numbers stay those of the processor, or read variables.
_ELSEWHERE = ("Random", "Stateless", "StatefulUniform", "TruncatedNormal", "Resource")


def register() -> None:
    """Adds the kernels to TensorFlow."""
    default = _default()
    for name in (*ROWS, *MISSING):
        op = op_def_registry.get(name)
        if op is None or name.startswith(_ELSEWHERE):
            continue
        host = tuple(a.name for a in op.input_arg if a.name in HOST or a.type == tf.resource.as_datatype_enum)
        for types in _types(op):
            if name in MISSING or not _has(default.get(name, ()), types):
                _core.tf_kernel(name, types, host if name not in MISSING else _default_host(default, name, host))


def _default() -> dict[str, list[Any]]:
    """TensorFlow's kernels for every device."""
    found: dict[str, list[Any]] = {}
    for k in registered.get_all_registered_kernels().kernel:
        if k.device_type == "DEFAULT":
            found.setdefault(k.op, []).append(k)
    return found


def _default_host(default: dict[str, list[Any]], name: str, host: tuple[str, ...]) -> tuple[str, ...]:
    kernels = default.get(name)
    return tuple(kernels[0].host_memory_arg) if kernels else host


def _has(kernels: Any, types: tuple[tuple[str, int], ...]) -> bool:
    """Whether one of the kernels takes these types."""
    wanted = dict(types)
    return any(all(wanted.get(c.name) in (None, *c.allowed_values.list.type) for c in k.constraint) for k in kernels)


def _types(op: Any) -> list[tuple[tuple[str, int], ...]]:
    """The combinations of types that an operator has a kernel for."""
    args = [a for a in op.input_arg if a.name not in HOST] + list(op.output_arg)
    names = list(dict.fromkeys(a.type_attr for a in args if a.type_attr))
    known = {name: tf.as_dtype(name).as_datatype_enum for name in CORE if name != "float16"}
    choices = []
    for name in names:
        (attr,) = (a for a in op.attr if a.name == name)
        allowed = list(attr.allowed_values.list.type) or list(known.values())
        choices.append([(name, t) for t in allowed if t in known.values()])
    return list(itertools.product(*choices))
