"""Writes a corpus of small ONNX models for onnx_fuzz: `python test/fuzz/make_corpus.py FOLDER`.

One model for each operator of ONNX's test cases, the smallest that there is, with small inputs made constants, so that
values are computed while reading; and models for what the cases lack: functions, branches, external data, types."""

import sys
import warnings
from pathlib import Path

import numpy as np

from onnx import TensorProto, helper, numpy_helper

warnings.filterwarnings("ignore")


def from_cases() -> dict[str, bytes]:
    from onnx.backend.test.case import node

    found: dict[str, bytes] = {}
    for case in node.collect_testcases():
        model = case.model
        given = case.data_sets[0][0]
        for info, value in zip(list(model.graph.input), given, strict=False):
            if isinstance(value, np.ndarray) and value.size <= 16 and value.dtype.kind in "iufb":
                model.graph.initializer.append(numpy_helper.from_array(value, info.name))
        data = model.SerializeToString()
        name = "_".join(sorted({n.op_type for n in model.graph.node}))[:60]
        if len(data) < 4000 and len(data) < len(found.get(name, b"x" * 4000)):
            found[name] = data
    return found


def tensor(name: str, values, dtype=np.float32):
    return numpy_helper.from_array(np.array(values, dtype), name)


def info(name: str, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, weights=(), functions=(), opset: int = 17) -> bytes:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=sets, functions=list(functions)).SerializeToString()


def by_hand() -> dict[str, bytes]:
    node = helper.make_node
    x, y = info("x", ["batch", 4]), info("y", None)
    found = {}
    body = helper.make_function(
        "own", "Scale", ["a"], ["c"],
        [node("Constant", [], ["k"], value=tensor("k", 2.0)), node("Mul", ["a", "k"], ["c"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    found["function"] = model([node("Scale", ["x"], ["y"], domain="own")], [x], [y], functions=[body])
    circle = helper.make_function(
        "own", "Scale", ["a"], ["c"], [node("Scale", ["a"], ["c"], domain="own")], [helper.make_opsetid("own", 1)]
    )
    found["function_circle"] = model([node("Scale", ["x"], ["y"], domain="own")], [x], [y], functions=[circle])
    leaky = node("LeakyRelu", ["a"], ["c"])
    ref = leaky.attribute.add()
    ref.name, ref.ref_attr_name, ref.type = "alpha", "slope", 1
    body = helper.make_function("own", "L", ["a"], ["c"], [leaky], [helper.make_opsetid("", 17)], ["slope"])
    found["function_attribute"] = model([node("L", ["x"], ["y"], domain="own", slope=0.5)], [x], [y], functions=[body])
    then = helper.make_graph([node("Relu", ["x"], ["t"])], "then", [], [info("t", None)])
    other = helper.make_graph([node("Neg", ["x"], ["t"])], "else", [], [info("t", None)])
    branch = node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    found["branch"] = model([branch], [x], [y], [tensor("c", True, bool)])
    outside = tensor("w", [1, 2, 3, 4])
    outside.ClearField("raw_data")
    outside.data_location = TensorProto.EXTERNAL
    for k, v in (("location", "../w.bin"), ("offset", "0"), ("length", "16")):
        entry = outside.external_data.add()
        entry.key, entry.value = k, v
    found["external"] = model([node("Add", ["x", "w"], ["y"])], [x], [y], [outside])
    huge = tensor("s", [1 << 40, 1 << 40], np.int64)
    found["huge"] = model([node("ConstantOfShape", ["s"], ["y"])], [], [y], [huge])
    shape = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "i"], ["n"]),
        node("Concat", ["n", "m"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["y"]),
    ]
    weights = [tensor("i", [0], np.int64), tensor("m", [2, -1], np.int64)]
    found["shapes"] = model(shape, [x], [y], weights)
    for kind in ("float_data", "int64_data", "int32_data", "double_data", "uint64_data"):
        t = TensorProto(name="w", dims=[2, 2], data_type={"f": 1, "i": 7, "d": 11, "u": 13}[kind[0]])
        if kind == "int32_data":
            t.data_type = TensorProto.INT8
        getattr(t, kind).extend([1, 2, 3, 4])
        found[kind] = model([node("Cast", ["w"], ["y"], to=1)], [], [y], [t])
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    files = from_cases() | by_hand()
    for name, data in files.items():
        (folder / f"{name}.onnx").write_bytes(data)
    print(f"{len(files)} files in {folder}")


if __name__ == "__main__":
    main()
