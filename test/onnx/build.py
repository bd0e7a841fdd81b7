"""Small ONNX models for the tests."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

node = helper.make_node


def tensor(name: str, values, dtype=np.float32):
    return numpy_helper.from_array(np.array(values, dtype), name)


def info(name: str, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, weights=(), functions=(), opset: int = 17, own: int = 1):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("own", own)]
    return helper.make_model(graph, opset_imports=sets, functions=list(functions))


def one(op: str, x_shape, opset: int = 17, weights=(), outputs=1, kind=TensorProto.FLOAT, domain="", **attributes):
    """A model of one node; its inputs are x, then the weights."""
    names = [f"y{i}" if i else "y" for i in range(outputs)]
    made = node(op, ["x", *[w.name for w in weights]], names, domain=domain, **attributes)
    return model([made], [info("x", x_shape, kind)], [info(n, None) for n in names], weights, opset=opset)
