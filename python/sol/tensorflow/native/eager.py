"""Networks of one operator of TensorFlow, for kernels of a device (_tf_kernel.c). The rows are those of the frontend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

from sol import _core, log
from sol.broadcasts import merged
from sol.rows import Rejected

from ..builder import TYPE, Builder, Value, core_type
from ..operators import ROWS
from .kernels import ELEMENTWISE, MISSING

HINT = 1 << 14  # elements, for which networks of any size are planned

Operand = tuple[int, tuple[int, ...], bytes | None]  # type, shape, and the value of one that lies on the host
Made = tuple[Any, tuple[int, ...], tuple[tuple[int, int, tuple[int, ...]], ...], tuple[int, ...]]
_made: dict[Any, Made] = {}
_sized: dict[Any, Any] = {}  # element-wise networks for all sizes


def make(node: bytes, device: str, operands: tuple[Operand, ...]) -> Made:
    """A network for an operator and operands like these: (net, which operands it takes, (type, bytes, shape) of its outputs,
    sizes given at launch). None in place of the net: no output has elements."""
    definition = node_def_pb2.NodeDef.FromString(node)
    if definition.op in MISSING:
        raise _core.UnsupportedError(
            f"{definition.op}: not supported on device SOL ({device}): {MISSING[definition.op]}"
        )
    plain = _plain(definition)
    key = plain.SerializeToString(deterministic=True), device, operands
    found = _made.get(key)
    if found is None:
        try:
            found = _made[key] = _compiled(plain, device, operands)
        except (Rejected, _core.UnsupportedError, _core.InvalidError) as e:
            what = ", ".join(f"{tf.as_dtype(t).name}{list(shape)}" for t, shape, _ in operands)
            raise _core.UnsupportedError(
                f"{plain.op}({what}): not supported on device SOL ({device}): {e}; compute it under tf.device('CPU:0')"
            ) from e
        log.debug(f"{plain.op}: a network of {device} for {[shape for _, shape, _ in operands]}")
    return found


def _plain(definition: Any) -> Any:
    """The operator without its name, place and inputs."""
    plain = node_def_pb2.NodeDef(op=definition.op, name="y")
    for name, value in definition.attr.items():
        if not name.startswith("_"):
            plain.attr[name].CopyFrom(value)
    return plain


def _operation(definition: Any, operands: Sequence[Operand]) -> tuple[Any, list[Any]]:
    """The operator in a graph of its own, where TensorFlow finds its shapes; of each operand the value, or None."""
    values: list[Any] = []
    with tf.Graph().as_default(), tf.device(None):
        inputs = {}
        for i, (kind, shape, data) in enumerate(operands):
            dtype = tf.as_dtype(kind)
            value = None if data is None else np.frombuffer(data, dtype.as_numpy_dtype).reshape(shape)
            values.append(value)
            inputs[f"a{i}"] = tf.compat.v1.placeholder(dtype, shape) if value is None else tf.constant(value, dtype)
        node = node_def_pb2.NodeDef()
        node.CopyFrom(definition)
        node.input.extend(inputs)
        graph = graph_pb2.GraphDef(node=[node])
        for name, t in inputs.items():
            graph.node.add(op="Placeholder", name=name).attr["dtype"].type = t.dtype.as_datatype_enum
        (o,) = tf.graph_util.import_graph_def(
            graph, input_map={f"{n}:0": t for n, t in inputs.items()}, return_elements=["y"]
        )
    return o, values


def _compiled(definition: Any, device: str, operands: Sequence[Operand]) -> Made:
    row = ROWS.get(definition.op)
    if row is None:
        raise Rejected("SOL has no layer for it")
    o, values = _operation(definition, operands)
    taken = tuple(i for i, v in enumerate(values) if v is None)
    if all(t.shape.num_elements() == 0 for t in o.outputs):
        return None, (), _outputs(o), ()
    shapes = tuple(operands[i][1] for i in taken)
    first = (
        "data_format" in definition.attr and definition.attr["data_format"].s == b"NCHW"
    )  # BiasAdd broadcasts otherwise
    together = None if first or definition.op not in ELEMENTWISE or len(taken) < len(operands) else merged(shapes)
    if together is None or together.shape != tuple(o.outputs[0].shape):
        net = _network(row, o, values, shapes, device)
        return net, taken, _outputs(o, net), ()
    key = definition.SerializeToString(deterministic=True), device, together.has
    net = _sized.get(key)
    if net is None:
        net = _sized[key] = _network(row, o, values, together.has, device)
    return net, taken, _outputs(o), together.dims


def _outputs(o: Any, net: Any = None) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
    """Type, bytes and shape of results. Where TensorFlow does not know a shape, the network does."""
    found = []
    for k, t in enumerate(o.outputs):
        shape = tuple(t.shape) if t.shape.is_fully_defined() else net.outputs[k][2]
        found.append((t.dtype.as_datatype_enum, math.prod(shape) * t.dtype.size, shape))
    return tuple(found)


def _network(row: Any, o: Any, values: Sequence[Any], shapes: Sequence[Any], device: str) -> Any:
    """A network of one operator. shapes: of its operands, or which of the sizes given at launch each has."""
    graph = _core.Graph(o.type)
    b = Builder(graph)
    b.name = o.type
    given = iter(shapes)
    dims: list[int] = []
    args = list(values)
    for i, t in enumerate(o.inputs):
        if values[i] is None:
            shape = next(given)
            sized = any(type(n) is bool for n in shape or ())
            if sized and not dims:
                hint = max(round(HINT ** (1 / len(shape))), 2)
                dims = [graph.dim(f"n{k}", hint, 1, 0, 1) for k in range(len(shape))]
            if sized:
                shape = [n if there else 1 for n, there in zip(dims, shape, strict=True)]
            args[i] = Value(graph.input(f"in_{i}", core_type(t.dtype), shape or ()))
    result = row(b, o, *args)
    made = list(map(b.value, result if isinstance(result, list | tuple) else [result]))[: len(o.outputs)]
    for k, (value, expected) in enumerate(zip(made, o.outputs, strict=True)):
        if TYPE[value.dtype] != expected.dtype or not (dims or expected.shape.is_compatible_with(value.shape)):
            raise _core.InternalError(
                f"{o.type}: expected {expected.dtype.name}{expected.shape}, got {value.dtype}{list(value.shape)}"
            )
        graph.output(f"out_{k}", value.handle)
    graph.resident(device)
    return graph.compile()
