"""SOL inside of ONNX Runtime: a session as always, with SOL as its execution provider."""

import numpy as np
import onnxruntime
import sol.onnx

from onnx import TensorProto, helper, numpy_helper

weight = np.random.default_rng(0).standard_normal((8, 4), dtype=np.float32)
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
    "two_layers",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
    [numpy_helper.from_array(weight, "w")],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()

onnxruntime.register_execution_provider_library("SOL", sol.onnx.provider_path())
options = onnxruntime.SessionOptions()
options.add_provider_for_devices([d for d in onnxruntime.get_ep_devices() if d.ep_name == "SOL"], {})
session = onnxruntime.InferenceSession(model, sess_options=options, enable_fallback=0)
for batch in (1, 5):
    x = np.random.default_rng(batch).standard_normal((batch, 8), dtype=np.float32)
    (y,) = session.run(None, {"x": x})
    print(batch, np.abs(y - np.maximum(x @ weight, 0)).max())
