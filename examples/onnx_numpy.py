"""An ONNX file as a function on NumPy arrays."""

import tempfile
from pathlib import Path

import numpy as np
import sol

import onnx
from onnx import TensorProto, helper, numpy_helper

weight = np.random.default_rng(0).standard_normal((8, 4), dtype=np.float32)
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
    "two_layers",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
    [numpy_helper.from_array(weight, "w")],
)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    net = sol.optimize(path)
    x = np.random.default_rng(1).standard_normal((2, 8), dtype=np.float32)
    print(np.abs(net(x) - np.maximum(x @ weight, 0)).max())
