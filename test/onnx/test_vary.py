"""Sizes that a model leaves open and that vary: what becomes one dimension, what becomes a number and why, and the
results at several sizes, compared with ONNX Runtime or with the reader at these sizes."""

import collections

import backend
import numpy as np
import onnxruntime as ort
import pytest
from sol_c import INVALID, LIB, Model, SolError

from build import info, model, node, one, tensor
from onnx import TensorProto, numpy_helper

RNG = np.random.default_rng(7)


def real(*shape):
    return RNG.standard_normal(shape, np.float32)


def agrees(m, *feeds, **options):
    """Reads the model once, and compares the results for each of the feeds."""
    vary = Model(m, vary=True, **options)
    m.ir_version = 10
    session = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    for feed in feeds:
        for got, expected in zip(vary.interpret_at(feed), session.run(None, feed), strict=True):
            assert got.shape == expected.shape, feed
            np.testing.assert_allclose(got, expected, 1e-4, 1e-5)
    return vary


def test_a_name_is_one_dimension():
    m = model([node("Add", ["x", "z"], ["y"])], [info("x", ["n", 4]), info("z", ["n", 4])], [info("y", None)])
    vary = agrees(m, *[{"x": real(n, 4), "z": real(n, 4)} for n in (1, 2, 7)])
    assert vary.shapes() == ["#0 4"]
    with pytest.raises(SolError) as e:
        vary.interpret_at({"x": real(2, 4), "z": real(3, 4)})
    assert e.value.status == INVALID


def test_dimensions_that_must_be_equal_become_one():
    m = model([node("Add", ["x", "z"], ["y"])], [info("x", ["n", 4]), info("z", ["m", 4])], [info("y", None)])
    vary = agrees(m, *[{"x": real(n, 4), "z": real(n, 4)} for n in (1, 2, 7)])
    assert vary.shapes() == ["#0 4"]
    assert "add" in vary.open()["m"] and vary.open()["n"] is None


def test_weights_fix_a_dimension_and_are_the_cause():
    w = tensor("w", real(512, 10))
    m = model([node("MatMul", ["x", "w"], ["y"], name="fc")], [info("x", ["n", None])], [info("y", None)], [w])
    vary = agrees(m, {"x": real(1, 512)}, {"x": real(9, 512)})
    assert vary.shapes(outputs=False) == ["#0 512"]
    assert "'fc'" in vary.open()["x.1"] and "512" in vary.open()["x.1"]


def test_a_shape_that_was_traced_fixes_what_it_contains():
    """[n, t, 4] to [n*8, 4], as an exporter writes it that took t for a number."""
    nodes = [
        node("Shape", ["x"], ["n"], start=0, end=1),
        node("Mul", ["n", "eight"], ["rows"]),
        node("Concat", ["rows", "four"], ["s"], axis=0),
        node("Reshape", ["x", "s"], ["y"]),
    ]
    weights = [tensor("eight", [8], np.int64), tensor("four", [4], np.int64)]
    m = model(nodes, [info("x", ["n", "t", 4])], [info("y", None)], weights)
    vary = agrees(m, {"x": real(1, 8, 4)}, {"x": real(5, 8, 4)})
    assert vary.shapes(outputs=False) == ["#0 8 4"] and "Reshape" in vary.open()["t"]


def test_a_reason_names_dimensions():
    """The number of a dimension is that of one reading: `a` becomes `b`, and what was #2 is #1."""
    w = tensor("w", real(6, 10))
    nodes = [node("Add", ["x", "z"], ["s"]), node("MatMul", ["s", "w"], ["y"], name="fc")]
    m = model(nodes, [info("x", ["a", "k"]), info("z", ["b", "m"])], [info("y", None)], [w])
    why = Model(m, vary=True).open()
    assert why["a"] is None and not any("#" in text for text in why.values() if text), why
    assert "a and b" in why["b"] or ("a" in why["b"] and "b" in why["b"])
    assert "expected 6" in why["k"] or "'fc'" in why["k"]


def test_given_sizes_are_numbers():
    vary = Model(one("Relu", ["n", "m"]), vary=True, dims={"m": 4})
    assert vary.shapes() == ["#0 4"]


def test_shapes_are_computed():
    """[n, t, 6] to [n*t, 6] and to heads, by Shape, Gather, Mul and Concat, as exporters write it."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Gather", ["s", "one"], ["t"], axis=0),
        node("Mul", ["n", "t"], ["nt"]),
        node("Unsqueeze", ["nt", "axis"], ["nt1"]),
        node("Concat", ["nt1", "six"], ["flat"], axis=0),
        node("Reshape", ["x", "flat"], ["y"]),
        node("Unsqueeze", ["n", "axis"], ["n1"]),
        node("Concat", ["n1", "heads"], ["split"], axis=0),
        node("Reshape", ["y", "split"], ["z"]),
        node("Range", ["zero", "t", "one"], ["r"]),
        node("Div", ["t", "two"], ["half"]),
        node("Unsqueeze", ["half", "axis"], ["h1"]),
        node("Slice", ["x", "axis", "h1", "one1"], ["first"]),
        node("ConstantOfShape", ["n1"], ["ones"], value=tensor("v", [2.5])),
        node("Equal", ["s", "minus"], ["none"]),
        node("Where", ["none", "minus", "s"], ["same"]),
        node("Expand", ["last", "same"], ["wide"]),
    ]
    ints = [
        ("zero", 0),
        ("one", 1),
        ("two", 2),
        ("axis", [0]),
        ("one1", [1]),
        ("six", [6]),
        ("heads", [-1, 2, 3]),
        ("minus", [-1, -1, -1]),
    ]
    weights = [tensor(k, v, np.int64) for k, v in ints] + [tensor("last", real(6))]
    outputs = [info(k, None) for k in ("y", "z", "r", "first", "ones", "wide")]
    outputs[2] = info("r", None, TensorProto.INT64)
    m = model(nodes, [info("x", ["n", "t", 6])], outputs, weights)
    vary = agrees(m, *[{"x": real(n, t, 6)} for n, t in ((1, 1), (2, 5), (3, 8))])
    assert vary.shapes() == ["#0*#1 6", "#0 #1 2 3", "#1", "#0 #1//2 6", "#0", "#0 #1 6"]


def test_a_diagonal_is_a_number():
    """A size of another input is the number of the diagonal: it does not vary, and is not taken for a huge one."""
    nodes = [node("Size", ["z"], ["k"]), node("Trilu", ["x", "k"], ["y"])]
    m = model(nodes, [info("x", ["n", 6]), info("z", ["k"])], [info("y", None)])
    vary = agrees(m, {"x": real(5, 6), "z": real(2)}, {"x": real(3, 6), "z": real(2)}, arrays={"x": (5, 6), "z": (2,)})
    assert vary.open()["k"] and not vary.open()["n"]


def test_sizes_are_values_too():
    m = model([node("Shape", ["x"], ["y"])], [info("x", ["n", 4])], [info("y", None, TensorProto.INT64)])
    agrees(m, {"x": real(3, 4)}, {"x": real(9, 4)})


def test_pictures_of_any_size():
    w = [tensor("w", real(4, 3, 3, 3)), tensor("v", real(2, 4)), tensor("scales", [1.0, 1.0, 2.0, 2.0])]
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", ["b", "", "scales"], ["c"], mode="linear"),
        node("GlobalAveragePool", ["c"], ["d"]),
        node("Flatten", ["d"], ["e"]),
        node("Gemm", ["e", "v"], ["y"], transB=1),
        node("Identity", ["c"], ["z"]),
    ]
    m = model(nodes, [info("x", ["n", "c", "h", "w"])], [info("y", None), info("z", None)], w)
    vary = agrees(m, *[{"x": real(n, 3, h, k)} for n, h, k in ((1, 8, 8), (2, 17, 23), (3, 32, 9))])
    assert vary.shapes(outputs=False) == ["#0 3 #1 #2"]
    assert vary.open()["c"] and not vary.open()["h"]


def test_a_unet_needs_multiples():
    w = [tensor("w", real(3, 3, 3, 3)), tensor("scales", [1.0, 1.0, 2.0, 2.0])]
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", ["b", "", "scales"], ["c"]),
        node("Concat", ["a", "c"], ["y"], axis=1),
    ]
    m = model(nodes, [info("x", [1, 3, "h", "w"])], [info("y", None)], w)
    vary = agrees(m, *[{"x": real(1, 3, h, k)} for h, k in ((4, 8), (20, 12))])
    with pytest.raises(SolError) as e:
        vary.interpret_at({"x": real(1, 3, 6, 8)})
    assert "expected a multiple of" in str(e.value)


def test_a_table_of_positions_limits_the_length():
    nodes = [
        node("Shape", ["x"], ["s"], start=1, end=2),
        node("Slice", ["table", "zero", "s"], ["p"]),
        node("Add", ["x", "p"], ["y"]),
    ]
    m = model(
        nodes,
        [info("x", ["n", "t", 4])],
        [info("y", None)],
        [tensor("table", real(16, 4)), tensor("zero", [0], np.int64)],
    )
    vary = agrees(m, *[{"x": real(2, t, 4)} for t in (1, 9, 16)], arrays={"x": (1, 8, 4)})
    with pytest.raises(SolError) as e:
        vary.interpret_at({"x": real(2, 17, 4)})
    assert "1 to 16" in str(e.value)


def test_what_needs_a_number_takes_the_arrays():
    m = one("DFT", [1, "n", 1], outputs=1)
    m.opset_import[0].version = 17
    with pytest.raises(SolError) as e:
        Model(m, vary=True)
    assert "length of the signal" in str(e.value)
    vary = Model(m, vary=True, arrays={"x": (1, 8, 1)})
    assert "length of the signal" in vary.open()["n"] and vary.shapes() == ["1 8 2"]


# -- the cases of ONNX with all sizes of their inputs open


def opened(case):
    m = type(case.model)()
    m.CopyFrom(case.model)
    for i in m.graph.input:
        if i.type.HasField("tensor_type"):
            for d in i.type.tensor_type.shape.dim:
                d.Clear()
    for o in m.graph.output:
        if o.type.HasField("tensor_type"):
            o.type.tensor_type.ClearField("shape")
    return m


def read(case, how):
    """The model with all sizes open; shapes depend on values of inputs (how "fixed"), which the call offers."""
    named = backend._named(case, case.sets[0][0])
    shapes = {k: v.shape for k, v in named.items()}
    return Model(opened(case), vary=True, arrays=shapes, offered=named if how == "fixed" else None), named


def outcome(case, how):
    """Whether a size of the graph varies, or the value of an input ("values"), and what is wrong."""
    try:
        vary, named = read(case, how)
    except SolError as e:
        return "rejected", str(e)
    free = sum(why is None for why in vary.open().values())
    values = any(LIB.test_dim(size) >= 0 for sizes in vary.taken().values() if sizes for size in sizes)
    try:
        got = vary.interpret_at(named)
    except SolError as e:
        return "wrong", str(e)
    for a, b in zip(got, case.sets[0][1], strict=True):
        expected = numpy_helper.to_array(b) if isinstance(b, TensorProto) else np.asarray(b)
        wrong = backend.compare(a, expected, case.rtol, case.atol)
        if wrong:
            return "wrong", wrong
    return "values" if values else "varies" if free else "fixed", ""


EVERY = 20  # of the cases, in `make test`


@pytest.mark.parametrize("every", [EVERY, pytest.param(1, marks=pytest.mark.slow)])
def test_cases_of_onnx_with_open_sizes(every):
    count, wrong = collections.Counter(), []
    for r in backend.every(backend.collect("", networks=False)[::every], "interpret"):
        if r.state not in ("pass", "fixed"):
            continue
        state, why = outcome(r.case, r.state)
        count[state] += 1
        count[f"{r.state} and {state}"] += 1
        if state in ("wrong", "rejected"):
            wrong.append(f"{r.case.name}: {state}: {why}")
    print(dict(count))
    assert not wrong, f"{count}\n" + "\n".join(wrong[:20])
    assert count["pass and varies"] > 1000 / every
    assert count["fixed and values"] > 50 / every
