"""An ONNX model with an operator of a domain of its own, which is a C function. docs/extending.md explains it."""

import numpy as np
import sol

from onnx import TensorProto, helper

SOURCE = r"""
int32_t running_max(void *const *tensors, const int64_t *numbers, const double *reals)
{
    const float *x = tensors[0];
    float *y = tensors[1];
    const int64_t rows = numbers[0], n = numbers[1];
    for (int64_t i = 0; i < rows; i++, x += n, y += n)
        for (int64_t k = 0; k < n; k++) y[k] = k && y[k - 1] > x[k] ? y[k - 1] : x[k];
    return 0;
}
"""
sol.register_layer("com.demo::RunningMax", "x:f32[N C] -> y:f32[N C]", source=SOURCE, symbol="running_max")

nodes = [helper.make_node("Neg", ["x"], ["z"]), helper.make_node("RunningMax", ["z"], ["y"], domain="com.demo")]
x_info, y_info = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 5]) for name in "xy")
model = helper.make_model(
    helper.make_graph(nodes, "running", [x_info], [y_info]),
    opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.demo", 1)],
)

net = sol.optimize(model)
for n in (3, 7):
    x = np.random.default_rng(n).normal(size=(n, 5)).astype("float32")
    print(f"difference for {n} rows", float(np.abs(net(x) - np.maximum.accumulate(-x, 1)).max()))
