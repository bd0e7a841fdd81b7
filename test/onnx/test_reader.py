"""What the reader accepts and rejects: sizes, names, types, files, functions, branches."""

import os

import numpy as np
import onnxruntime as ort
import pytest
import sol_c
from onnx.reference import ReferenceEvaluator
from sol_c import INVALID, UNSUPPORTED, Model, SolError

import onnx
from build import info, model, node, one, tensor
from onnx import TensorProto, helper

X = np.arange(8, dtype=np.float32).reshape(2, 4) - 3


def untyped(m):
    """The model with outputs that have a type but no shape."""
    for o in m.graph.output:
        if not o.type.tensor_type.elem_type:
            o.type.tensor_type.elem_type = TensorProto.FLOAT
    return m


def rejected(m, status, *texts, **options):
    with pytest.raises(SolError) as e:
        Model(m, **options)
    assert e.value.status == status, str(e.value)
    for text in texts:
        assert text in str(e.value), str(e.value)
    return str(e.value)


def run(m, how="interpret", inputs=None, **options):
    return getattr(Model(m, **options), how)({"x": X} if inputs is None else inputs)


# -- sizes that the model leaves open


def test_open_size_is_named():
    m = one("Relu", ["batch", 4])
    rejected(m, INVALID, "'batch' of input 'x'", "--dim batch=1")
    assert np.array_equal(run(m, dims={"batch": 2})[0], np.maximum(X, 0))
    assert np.array_equal(run(m, dims={"x.0": 2})[0], np.maximum(X, 0))


def test_open_size_without_a_name():
    m = one("Relu", [None, 4])
    rejected(m, INVALID, "'x.0' of input 'x'")
    assert np.array_equal(run(m, dims={"x.0": 2})[0], np.maximum(X, 0))


def test_one_symbol_serves_all_inputs():
    m = model([node("Add", ["x", "z"], ["y"])], [info("x", ["n", 4]), info("z", ["n", 4])], [info("y", None)])
    assert np.array_equal(run(m, inputs={"x": X, "z": X}, dims={"z.0": 2})[0], X + X)
    rejected(m, INVALID, "elsewhere", dims={"x.0": 2, "z.0": 3})


def test_sizes_must_find_their_place():
    rejected(one("Relu", [2, 4]), INVALID, "no input has a dimension of that name", dims={"bacth": 2})
    rejected(one("Relu", [2, 4]), INVALID, "is 2 in the model, 3 was asked for", dims={"x.0": 3})
    rejected(one("Relu", ["n", 4]), INVALID, "expected 0 or more", dims={"n": -5, "x.0": 2})


def test_input_without_rank():
    m = one("Relu", [1])
    m.graph.input[0].type.tensor_type.ClearField("shape")
    rejected(m, UNSUPPORTED, "'x'", "how many dimensions")


def test_values_replace_inputs():
    m = model(
        [node("Reshape", ["x", "s"], ["y"])],
        [info("x", [2, 4]), info("s", [2], TensorProto.INT64)],
        [info("y", None)],
    )
    rejected(m, UNSUPPORTED, "Reshape", "the shape depends on the value of an input, which only a call tells")
    fixed = Model(m, values={"s": np.array([4, -1])})
    assert [i[0] for i in fixed.inputs] == ["x"]
    assert fixed.interpret({"x": X})[0].shape == (4, 2)
    rejected(m, INVALID, "no such input", values={"t": np.array([4, 2])})
    rejected(m, INVALID, "expected a value of 1 dimensions", values={"s": np.array([[4, 2]])})


# -- weights


def test_weights_are_parameters_and_small_ones_constants():
    w = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    m = one("MatMul", [2, 4], weights=[tensor("w", w)])
    loaded = Model(m)
    assert loaded.params() == 1
    assert np.allclose(loaded.interpret({"x": X})[0], X @ w, rtol=1e-5, atol=1e-5)
    assert Model(m, constants=True).params() == 0
    assert Model(one("Mul", [2, 4], weights=[tensor("w", 2.0)])).params() == 0


def test_initializer_that_is_also_an_input():
    m = model(
        [node("Add", ["x", "w"], ["y"])],
        [info("x", [2, 4]), info("w", [4])],
        [info("y", None)],
        [tensor("w", [1, 2, 3, 4])],
    )
    loaded = Model(m)
    assert [i[0] for i in loaded.inputs] == ["x"]
    assert np.array_equal(loaded.interpret({"x": X})[0], X + np.arange(1, 5))


@pytest.mark.parametrize("how", ["interpret", "run"])
def test_outputs_that_no_layer_makes(how):
    big = np.arange(24, dtype=np.float32)
    m = model(
        [node("Identity", ["x"], ["y"]), node("Identity", ["w"], ["z"])],
        [info("x", [2, 4])],
        [info("y", None), info("z", None), info("x", [2, 4])],
        [tensor("w", big)],
    )
    got = run(m, how)
    assert np.array_equal(got[0], X) and np.array_equal(got[1], big) and np.array_equal(got[2], X)


DATA = {
    "float_data": (TensorProto.FLOAT, [1.5, -2]),
    "double_data": (TensorProto.DOUBLE, [1.5, -2]),
    "int64_data": (TensorProto.INT64, [5, -(1 << 40)]),
    "uint64_data": (TensorProto.UINT64, [5, 1 << 63]),
}


@pytest.mark.parametrize("field", DATA)
def test_lists_of_numbers(field):
    kind, values = DATA[field]
    t = TensorProto(name="w", dims=[2], data_type=kind)
    getattr(t, field).extend(values)
    m = model([node("Identity", ["w"], ["y"])], [], [info("y", [2], kind)], [t])
    assert run(m, inputs={})[0].tolist() == values


@pytest.mark.parametrize("kind", ["INT8", "UINT8", "INT16", "UINT16", "INT32", "BOOL"])
def test_small_types_share_a_list(kind):
    number = getattr(TensorProto, kind)
    t = TensorProto(name="w", dims=[2], data_type=number, int32_data=[1, 0])
    m = model([node("Identity", ["w"], ["y"])], [], [info("y", [2], number)], [t])
    assert run(m, inputs={})[0].tolist() == [1, 0]
    t.int32_data[0] = 1 << 20
    m.graph.initializer[0].CopyFrom(t)
    if kind != "INT32":
        rejected(m, INVALID, "'w'", "does not fit")


def test_any_byte_is_true():
    t = TensorProto(name="w", dims=[3], data_type=TensorProto.BOOL, raw_data=b"\x00\x07\xff")
    m = model([node("Cast", ["w"], ["y"], to=TensorProto.INT32)], [], [info("y", [3], TensorProto.INT32)], [t])
    assert run(m, inputs={})[0].tolist() == [0, 1, 1]


# -- invalid files


@pytest.mark.parametrize("n", [0, 1, 7, 50, 100])
def test_truncated(n):
    data = one("MatMul", [2, 4], weights=[tensor("w", np.ones((4, 5)))]).SerializeToString()
    rejected(data[: len(data) * n // 101], INVALID)


def test_no_model_at_all():
    rejected(b"<html><body>Not found</body></html>", INVALID, "no ONNX file")
    rejected(os.urandom(1), INVALID)


def test_deep_messages():
    inner = b""
    for _ in range(100_000):
        size, length = b"", len(inner)
        while length > 127:
            size += bytes([length & 127 | 128])
            length >>= 7
        inner = b"\x32" + size + bytes([length]) + inner  # Attribute.g
        if len(inner) > 3000:
            break
    nested = b""
    for _ in range(60):  # Graph.node, Node.attribute, Attribute.g
        for tag in (b"\x32", b"\x2a", b"\x0a"):
            size, length = b"", len(nested)
            while length > 127:
                size += bytes([length & 127 | 128])
                length >>= 7
            nested = tag + size + bytes([length]) + nested
    size, length = b"", len(nested)
    while length > 127:
        size += bytes([length & 127 | 128])
        length >>= 7
    rejected(b"\x3a" + size + bytes([length]) + nested, INVALID, "inside each other")


def bad_tensor(**fields):
    t = tensor("w", np.ones((4, 5)))
    for k, v in fields.items():
        if k == "dims":
            t.ClearField("dims")
            t.dims.extend(v)
        else:
            setattr(t, k, v)
    return one("MatMul", [2, 4], weights=[t])


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"dims": [4, 6]}, INVALID, "expected 96 bytes"),
        ({"dims": [-4, 5]}, INVALID, "initializer 'w'"),
        ({"dims": [1 << 40, 1 << 40]}, INVALID, "2^47"),
        ({"dims": [1] * 13}, UNSUPPORTED, "dimensions"),
        ({"data_type": 99}, INVALID, "99"),
        ({"data_type": TensorProto.FLOAT16}, UNSUPPORTED, "float16"),
        ({"data_type": TensorProto.STRING}, UNSUPPORTED, "string"),
        ({"data_type": TensorProto.INT4}, UNSUPPORTED, "int4"),
    ],
)
def test_bad_weights(fields, status, text):
    rejected(bad_tensor(**fields), status, text)


def test_names():
    x, y = info("x", [2, 4]), info("y", None)
    rejected(model([node("Relu", ["z"], ["y"])], [x], [y]), INVALID, "reads 'z'")
    rejected(model([node("Relu", ["x"], ["z"])], [x], [y]), INVALID, "output 'y'")
    twice = model([node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])], [x], [y])
    rejected(twice, INVALID, "'y' is made twice")
    rejected(model([node("Relu", ["x"], ["x"])], [x], [x]), INVALID, "'x' is made twice")
    backwards = model([node("Relu", ["t"], ["y"]), node("Abs", ["x"], ["t"])], [x], [y])
    rejected(backwards, INVALID, "no node before it makes")


def test_control_characters_stay_out_of_messages():
    m = model([node("Relu", ["\x1b[31mred\n"], ["y"])], [info("x", [2, 4])], [info("y", None)])
    assert "\x1b" not in rejected(m, INVALID, "red")
    data = one("Relu", [2, 4]).SerializeToString().replace(b"\x01x", b"\x01\xff")
    assert Model(data).inputs[0][0] == "?"


def test_names_that_are_there_twice():
    x, y = info("x", [2, 4]), info("y", None)
    relu = [node("Relu", ["x"], ["y"])]
    rejected(model(relu, [x, x], [y]), INVALID, "two inputs 'x'")
    rejected(model(relu, [x], [y, y]), INVALID, "two outputs 'y'")
    rejected(model(relu, [x], []), INVALID, "no outputs")
    weights = [tensor("w", 1.0), tensor("w", 2.0)]
    rejected(model([node("Add", ["x", "w"], ["y"])], [x], [y], weights), INVALID, "'w' is made twice")
    m = one("Relu", [2, 4])
    m.opset_import.append(helper.make_opsetid("ai.onnx", 11))
    rejected(m, INVALID, "two opsets")


def test_declared_type_must_hold():
    m = one("Relu", [2, 4])
    m.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    rejected(m, INVALID, "output 'y'", "int32", "float")


# -- one error lists everything that is not supported


def test_all_problems_at_once():
    nodes = [
        node("DeformConv", ["x"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("Nonsense", ["x"], ["c"], name="first"),
        node("Nonsense", ["x"], ["d"]),
        node("Foo", ["x"], ["e"], domain="com.example"),
        node("Softmax", ["x"], ["f"], temperature=2.0),
        node("Resize", ["x", "", "s"], ["h"], mode="magic"),
    ]
    m = model(nodes, [info("x", [2, 4])], [info("b", None)], [tensor("s", [1, 2])])
    text = rejected(
        m,
        UNSUPPORTED,
        "DeformConv (opset 17)",
        "not translated yet",
        "'first'",
        "2 in all",
        "com.example.Foo",
        "temperature",
    )
    assert "Relu" not in text
    assert "magic" in text


def test_opsets():
    rejected(one("Relu", [2, 4], opset=5), UNSUPPORTED, "opset")
    rejected(one("Relu", [2, 4], opset=1000), UNSUPPORTED, "opset")
    rejected(one("Gelu", [2, 4], opset=17), UNSUPPORTED, "Gelu", "does not exist in this opset")
    m = one("Relu", [2, 4])
    m.ClearField("opset_import")
    rejected(m, UNSUPPORTED, "opset")


# -- functions and branches


def scale(*nodes, inputs=("a",), outputs=("c",), attributes=(), domain="own"):
    return helper.make_function(
        domain,
        "Scale",
        inputs,
        outputs,
        nodes,
        [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
        attributes,
    )


def call(functions, nodes=None, weights=(), **attributes):
    nodes = nodes or [node("Scale", ["x"], ["y"], domain="own", **attributes)]
    return model(nodes, [info("x", [2, 4])], [info("y", None)], weights, functions)


def test_function_called_twice():
    body = scale(node("Constant", [], ["k"], value=tensor("k", np.arange(1, 101))), node("Slice", ["k", "s", "e"], ["t"]),
                 node("Mul", ["a", "t"], ["c"]), inputs=("a", "s", "e"))  # fmt: skip
    nodes = [node("Scale", ["x", "s", "e"], ["t"], domain="own"), node("Scale", ["t", "s", "e"], ["y"], domain="own")]
    m = call([body], nodes, [tensor("s", [0], np.int64), tensor("e", [4], np.int64)])
    assert np.array_equal(run(m)[0], X * np.arange(1, 5) ** 2)


def test_function_attributes():
    leaky = node("LeakyRelu", ["a"], ["c"])
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=1)
    body = scale(leaky, attributes=["slope"])
    assert np.allclose(run(call([body], slope=0.5))[0], np.where(X < 0, X * 0.5, X))
    assert np.allclose(run(call([body]))[0], np.where(X < 0, X * 0.01, X))


def test_function_with_a_missing_input():
    body = scale(node("Clip", ["a", "low", "high"], ["c"]), inputs=("a", "low", "high"))
    m = call([body], [node("Scale", ["x", "", "h"], ["y"], domain="own")], [tensor("h", 1.0)])
    assert np.array_equal(run(m)[0], np.minimum(X, 1))


def test_function_that_calls_itself():
    rejected(call([scale(node("Scale", ["a"], ["c"], domain="own"))]), INVALID, "call")


def test_functions_that_explode():
    functions = []
    for i in range(30):
        inner = f"F{i + 1}" if i < 29 else "Relu"
        domain = "own" if i < 29 else ""
        nodes = [node(inner, ["a"], ["b"], domain=domain), node(inner, ["b"], ["c"], domain=domain)]
        functions.append(
            helper.make_function(
                "own", f"F{i}", ["a"], ["c"], nodes, [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
            )
        )
    m = model([node("F0", ["x"], ["y"], domain="own")], [info("x", [2, 4])], [info("y", None)], functions=functions)
    rejected(m, UNSUPPORTED, "more than", "nodes")


@pytest.mark.parametrize("taken", [True, False])
def test_branch_that_is_known(taken):
    out = [info("t", None)]
    then = helper.make_graph([node("Mul", ["x", "w"], ["t"])], "then", [], out, [tensor("w", [1, 2, 3, 4])])
    other = helper.make_graph([node("Neg", ["x"], ["t"])], "else", [], out)
    m = model([node("If", ["c"], ["y"], then_branch=then, else_branch=other)], [info("x", [2, 4])], [info("y", None)],
              [tensor("c", taken, bool)])  # fmt: skip
    assert np.array_equal(run(m)[0], X * [1, 2, 3, 4] if taken else -X)


def test_branch_that_is_not_known():
    g = helper.make_graph([node("Neg", ["x"], ["t"])], "b", [], [info("t", None)])
    m = model([node("If", ["c"], ["y"], then_branch=g, else_branch=g)], [info("x", [2, 4]), info("c", [], TensorProto.BOOL)],
              [info("y", None)])  # fmt: skip
    rejected(m, UNSUPPORTED, "If", "the condition depends on the value of an input, which only a call tells")


# -- external data


def external(tmp_path, location="w.bin", offset=None, length=None, make=True):
    m = one("Mul", [2, 4], weights=[tensor("w", np.arange(1, 101))])
    nodes = [node("Slice", ["w", "s", "e"], ["t"]), node("Mul", ["x", "t"], ["y"])]
    m = model(nodes, [info("x", [2, 4])], [info("y", None)],
              [tensor("w", np.arange(1, 101)), tensor("s", [0], np.int64), tensor("e", [4], np.int64)])  # fmt: skip
    w = m.graph.initializer[0]
    if make:
        (tmp_path / "w.bin").write_bytes(b"\0" * (offset or 0) + w.raw_data)
    w.ClearField("raw_data")
    w.data_location = TensorProto.EXTERNAL
    for k, v in (("location", location), ("offset", offset), ("length", length)):
        if v is not None:
            w.external_data.add(key=k, value=str(v))
    onnx.save(m, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.mark.parametrize("offset", [None, 0, 3, 4096])
def test_external_data(tmp_path, offset):
    assert np.array_equal(run(external(tmp_path, offset=offset, length=400))[0], X * np.arange(1, 5))


def test_external_data_in_a_folder(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    path = external(tmp_path, "deep/./er/w.bin")
    os.rename(tmp_path / "w.bin", tmp_path / "deep" / "er" / "w.bin")
    assert np.array_equal(run(path)[0], X * np.arange(1, 5))


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "", "a/../../w.bin", "..", "x" * 5000])
def test_external_data_stays_inside(tmp_path, location):
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / "w.bin").write_bytes(b"\0" * 400)
    rejected(external(tmp_path / "in", location), INVALID, "external data")


def test_external_data_through_a_link(tmp_path):
    (tmp_path / "in").mkdir()
    path = external(tmp_path / "in", "link.bin")
    os.rename(tmp_path / "in" / "w.bin", tmp_path / "w.bin")
    os.symlink(tmp_path / "w.bin", tmp_path / "in" / "link.bin")
    rejected(path, INVALID, "link")
    os.remove(tmp_path / "in" / "link.bin")
    os.symlink(tmp_path, tmp_path / "in" / "up")
    rejected(external(tmp_path / "in", "up/w.bin"), INVALID, "link")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"offset": 10**6, "make": False}, "cannot open"),
        ({"length": 399}, "expected 400 bytes"),
        ({"offset": -1, "make": False}, "number of bytes"),
        ({"length": "x"}, "number of bytes"),
    ],
)
def test_external_data_that_does_not_fit(tmp_path, options, text):
    with pytest.raises(SolError) as e:
        Model(external(tmp_path, **options))
    assert text in str(e.value)


def test_external_data_too_short(tmp_path):
    path = external(tmp_path)
    (tmp_path / "w.bin").write_bytes(b"\0" * 399)
    rejected(path, INVALID, "the file has 399")


def test_external_data_without_a_folder(tmp_path):
    data = external(tmp_path).read_bytes()
    rejected(data, INVALID, "without a folder")
    assert np.array_equal(run(data, folder=tmp_path)[0], X * np.arange(1, 5))


def test_fifo_as_external_data(tmp_path):
    path = external(tmp_path, "pipe", make=False)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SolError, match="not a regular file"):
        Model(path)


# -- values computed while reading stay cheap


def test_shape_arithmetic():
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["b"]),
        node("Mul", ["b", "two"], ["b2"]),
        node("Unsqueeze", ["b2", "axes"], ["b3"]),
        node("Concat", ["b3", "rest"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["y"]),
    ]
    weights = [
        tensor("zero", 0, np.int64),
        tensor("two", 2, np.int64),
        tensor("axes", [0], np.int64),
        tensor("rest", [-1], np.int64),
    ]
    m = model(nodes, [info("x", [2, 4])], [info("y", None)], weights)
    assert run(m)[0].shape == (4, 2)


def test_huge_constants_are_not_computed():
    nodes = [
        node("ConstantOfShape", ["s"], ["a"]),
        node("ReduceSum", ["a"], ["b"], keepdims=0),
        node("Cast", ["b"], ["c"], to=TensorProto.INT64),
        node("Unsqueeze", ["c", "axes"], ["d"]),
        node("Reshape", ["x", "d"], ["y"]),
    ]
    m = model(
        nodes,
        [info("x", [2, 4])],
        [info("y", None)],
        [tensor("s", [1 << 20, 1 << 20], np.int64), tensor("axes", [0], np.int64)],
    )
    rejected(m, UNSUPPORTED, "depends on what is computed")


# -- operators that ONNX's cases hardly test, compared with ONNX's reference


def reference(m, inputs):
    """ONNX Runtime where possible; ONNX's reference is wrong for old opsets and automatic pads."""
    if m.opset_import[0].version > 22:
        return ReferenceEvaluator(m).run(None, inputs)
    m.ir_version = 8
    return ort.InferenceSession(m.SerializeToString()).run(None, inputs)


def check(m, *arrays, rtol=1e-4, atol=1e-5, how="interpret", **options):
    names = [i.name for i in m.graph.input]
    inputs = dict(zip(names, arrays, strict=True))
    for got, expected in zip(getattr(Model(untyped(m), **options), how)(inputs), reference(m, inputs), strict=True):
        assert got.shape == expected.shape
        assert np.allclose(got, expected, rtol, atol, equal_nan=True)


def rand(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("pad", ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3])
def test_auto_pad(pad, stride, kernel):
    x, w = rand(1, 2, 7, 8), tensor("w", rand(3, 2, kernel, kernel))
    check(one("Conv", x.shape, weights=[w], auto_pad=pad, strides=[stride, stride]), x)
    if stride <= kernel:  # ONNX Runtime rejects the others
        check(one("MaxPool", x.shape, auto_pad=pad, strides=[stride, stride], kernel_shape=[kernel, kernel]), x)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_recurrent(op, direction):
    d, gates = 1 + (direction == "bidirectional"), {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    x, h = rand(5, 3, 4), 6
    weights = [
        tensor("w", rand(d, gates * h, 4)),
        tensor("r", rand(d, gates * h, h)),
        tensor("b", rand(d, 2 * gates * h)),
    ]
    check(one(op, x.shape, weights=weights, outputs=2, hidden_size=h, direction=direction), x)


@pytest.mark.parametrize(
    ("op", "activations", "extra"),
    [
        ("LSTM", ["Sigmoid", "Relu", "Softsign"], {}),
        ("GRU", ["Relu", "Tanh"], {}),
        ("GRU", ["Sigmoid", "Relu"], {"linear_before_reset": 1}),
        ("RNN", ["Sigmoid"], {}),
    ],
)
@pytest.mark.parametrize("lengths", [False, True])
def test_recurrent_written_out(op, activations, extra, lengths):
    gates, x, h = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], rand(5, 3, 4), 6
    inputs = ["x", "w", "r", "b"] + (["n"] if lengths else [])
    made = node(op, inputs, ["y", "h"], hidden_size=h, activations=activations, **extra)
    weights = [
        tensor("w", rand(1, gates * h, 4)),
        tensor("r", rand(1, gates * h, h)),
        tensor("b", rand(1, 2 * gates * h)),
    ]
    if lengths:
        weights.append(tensor("n", [5, 2, 3], np.int32))
    check(model([made], [info("x", x.shape)], [info("y", None), info("h", None)], weights), x)


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 12, 13, 16, 18, 20, 22, 25, 28])
def test_one_network_in_many_opsets(opset):
    x = rand(2, 3, 9, 9)
    axes = [] if opset > 17 else [2, 3]
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("ReduceMean", ["p", "axes"], ["m"], keepdims=0)
        if not axes
        else node("ReduceMean", ["p"], ["m"], axes=axes, keepdims=0),
        node("Gemm", ["m", "v", "u"], ["g"], transB=1),
        node("Softmax", ["g"], ["y"], axis=1),
    ]
    weights = [tensor("w", rand(4, 3, 3, 3)), tensor("b", rand(4)), tensor("v", rand(5, 4)), tensor("u", rand(5))]
    if not axes:
        weights.append(tensor("axes", [2, 3], np.int64))
    check(model(nodes, [info("x", x.shape)], [info("y", None)], weights, opset=opset), x, how="interpret")


def test_softmax_before_13_is_flat():
    x = rand(2, 3, 4)
    for opset in (11, 13):
        check(one("Softmax", x.shape, opset=opset, axis=1), x)


def test_slices_as_python():
    x = rand(10)
    cuts = [
        (0, 5, 1),
        (-3, 100, 1),
        (8, 2, -2),
        (100, -100, -1),
        (-1, -11, -3),
        (5, 5, 1),
        (2, 100, 7),
        (-100, 3, 1),
        (0, -1, 100),
    ]
    for a, b, s in cuts:
        weights = [tensor(n, [v], np.int64) for n, v in (("a", a), ("b", b), ("axes", 0), ("s", s))]
        got = Model(one("Slice", [10], weights=weights)).interpret({"x": x})[0]
        assert np.array_equal(got, x[a:b:s]), (a, b, s)


@pytest.mark.parametrize(
    ("m", "status", "text"),
    [
        (one("ReduceMax", [2, 4], keepdims=2), INVALID, "'keepdims': expected 0 or 1, got 2"),
        (one("LpPool", [1, 1, 4], kernel_shape=[2], p=-1), INVALID, "p: expected 1 or more"),
        (one("Conv", [1, 4, 4], weights=[tensor("w", np.ones((4, 4, 1)))], group=2**63 - 1), INVALID, "groups"),
        (
            one("ConvTranspose", [1, 4, 4], weights=[tensor("w", np.ones((4, 4, 1)))], output_shape=[-(2**63)]),
            INVALID,
            "output_shape: -9223372036854775808 is out of range",
        ),
        (
            one("Resize", ["n"], weights=[tensor("roi", []), tensor("s", [2.0**17])], mode="linear"),
            UNSUPPORTED,
            "table",
        ),
        (
            model(
                [node("Attention", ["x", "x", "x", "m"], ["y"])],
                [info("x", [1, 2, 3, 4])],
                [info("y", None)],
                [tensor("m", 0.0)],
                opset=24,
            ),
            INVALID,
            "the mask has no dimensions",
        ),
        (one("SplitToSequence", [8193], weights=[tensor("k", 2, np.int64)]), UNSUPPORTED, "more than 4096 pieces"),
    ],
    ids=["flag", "norm", "groups", "shape", "table", "mask", "pieces"],
)
def test_numbers_out_of_range(m, status, text):
    rejected(m, status, text, open_size=64)


def test_table_of_rows():
    """Every operator of ONNX, in every opset from 7 on, has a row or a reason."""
    versions, unknown = {}, []
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            versions.setdefault(schema.name, {})[schema.since_version] = schema.deprecated
    rows = sol_c.supported()
    assert len(rows) > 170
    for domain, name, first, last in rows:
        assert domain or name in versions, name
        assert first <= (last or onnx.defs.onnx_opset_version())
    for name, since in versions.items():
        for opset in range(max(7, min(since)), onnx.defs.onnx_opset_version() + 1):
            if since[max(v for v in since if v <= opset)]:
                continue
            if any(n == name and first <= opset <= (last or opset) for _, n, first, last in rows):
                continue
            with pytest.raises(SolError) as e:
                Model(model([node(name, ["x"], ["y"])], [info("x", [2])], [info("y", None)], opset=opset))
            if "there is no such operator" in str(e.value) or "does not exist" in str(e.value):
                unknown.append((name, opset))
    assert not unknown


@pytest.mark.parametrize("how", ["interpret", "run"])
@pytest.mark.parametrize("exponent", [1, 2, 3, 4, 0.5, -0.5, -1])
def test_powers_by_a_number(exponent, how):
    """Products and roots in place of pow: at zeros, infinities and NaN they have its values."""
    x = np.array([[0.0, -0.0, 1.5, -1.5], [np.inf, -np.inf, np.nan, 3e-3]], np.float32)
    power = tensor("p", exponent)
    got = run(one("Pow", [2, 4], weights=[power]), how, {"x": x})[0]
    with np.errstate(all="ignore"):
        want = np.float_power(
            x.astype(np.float64), np.full(x.shape, exponent, np.float64)
        )  # C's pow, element by element
    np.testing.assert_allclose(got, want, rtol=3e-7)
    assert np.array_equal(np.signbit(got)[~np.isnan(want)], np.signbit(want)[~np.isnan(want)])
