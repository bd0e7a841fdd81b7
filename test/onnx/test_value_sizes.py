"""Inputs whose values are shapes: one program for all values that are sizes, one for each other value, against ONNX Runtime."""

import numpy as np
import onnxruntime as ort
import pytest
import sol

from build import info, model, node, tensor
from onnx import TensorProto

RNG = np.random.default_rng(3)
ALL, SIZED = 1, 2


def real(*shape):
    return RNG.standard_normal(shape, np.float32)


def ints(*values):
    return np.array(values, np.int64)


def i64(name, shape):
    return info(name, shape, TensorProto.INT64)


def number(value):
    return np.array(value, np.int64)


def pads(mode):
    return ([node("Pad", ["x", "p"], ["y"], mode=mode)], [info("x", ["n", 6]), i64("p", [4])], [])


X = real(2, 3, 4)
# Nodes, inputs and weights; then calls that one program serves, and calls that need one of their own.
CASES = {
    "reshape": (
        ([node("Reshape", ["x", "s"], ["y"])], [info("x", [2, 3, 4]), i64("s", [3])], []),
        [dict(x=X, s=ints(*s)) for s in ((4, 2, 3), (2, 3, 4), (24, 1, 1), (1, 4, 6))],
        [dict(x=X, s=ints(*s)) for s in ((2, -1, 3), (0, 0, 4), (4, 0, 2))],
    ),
    "reshape an open size": (
        ([node("Reshape", ["x", "s"], ["y"])], [info("x", ["n", 4]), i64("s", [2])], []),
        [dict(x=real(n, 4), s=ints(*s)) for n, s in ((3, (2, 6)), (3, (6, 2)), (5, (2, 10)), (1, (1, 4)))],
        [dict(x=real(6, 4), s=ints(-1, 8)), dict(x=real(6, 4), s=ints(8, -1))],
    ),
    "reshape with a rest": (
        ([node("Reshape", ["x", "s"], ["y"])], [info("x", ["n", 4]), i64("s", [2])], []),
        [dict(x=real(n, 4), s=ints(-1, s)) for n, s in ((3, 6), (3, 2), (6, 8), (1, 1), (3, 4))],
        [dict(x=real(5, 4), s=ints(10, 2))],
    ),
    "computed": (
        (
            [
                node("Mul", ["s", "two"], ["t"]),
                node("Reshape", ["x", "t"], ["r"]),
                node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
                node("ReduceSum", ["f"], ["q"]),
                node("Mul", ["r", "q"], ["y"]),
            ],
            [info("x", ["n", 4]), i64("s", [2])],
            [tensor("two", [2, 2], np.int64)],
        ),
        [dict(x=real(n, 4), s=ints(*s)) for n, s in ((4, (2, 2)), (4, (4, 1)), (2, (1, 2)), (6, (3, 2)))],
        [],
    ),
    "slice": (
        (
            [node("Slice", ["x", "a", "b", "c", "d"], ["y"])],
            [info("x", ["n", 20]), *(i64(k, [1]) for k in "abcd")],
            [],
        ),
        [
            dict(x=real(3, 20), a=ints(a), b=ints(b), c=ints(1), d=ints(1))
            for a, b in ((2, 10), (0, 3), (5, 5), (7, 3), (1, 100), (25, 30))
        ],
        [
            dict(x=real(3, 20), a=ints(a), b=ints(b), c=ints(c), d=ints(d))
            for a, b, c, d in ((3, 2**62, 1, 1), (-5, 20, 1, 1), (0, 2, 0, 1), (2, 10, 1, 2), (9, -30, 1, -1))
        ],
    ),
    "expand": (
        ([node("Expand", ["x", "s"], ["y"])], [info("x", [3, 1]), i64("s", [2])], []),
        [dict(x=real(3, 1), s=ints(3, n)) for n in (4, 7, 1)],
        [dict(x=real(3, 1), s=ints(1, 5)), dict(x=real(3, 1), s=ints(3, 0))],
    ),
    "tile": (
        ([node("Tile", ["x", "s"], ["y"])], [info("x", ["n", 3]), i64("s", [2])], []),
        [dict(x=real(2, 3), s=ints(*s)) for s in ((1, 4), (3, 7), (1, 1), (2, 2))],
        [dict(x=real(2, 3), s=ints(3, 0))],
    ),
    "constant": (
        ([node("ConstantOfShape", ["s"], ["y"], value=tensor("v", [2.5]))], [i64("s", [3])], []),
        [dict(s=ints(*s)) for s in ((1, 4, 2), (3, 7, 1), (3, 0, 2), (0, 0, 0))],
        [],
    ),
    "range": (
        (
            [node("Range", ["a", "b", "c"], ["r"]), node("Cast", ["r"], ["y"], to=TensorProto.FLOAT)],
            [i64(k, []) for k in "abc"],
            [],
        ),
        [dict(a=number(a), b=number(b), c=number(2)) for a, b in ((1, 9), (0, 5), (3, 3), (5, 2))],
        [dict(a=number(a), b=number(b), c=number(c)) for a, b, c in ((9, 1, -2), (-3, 4, 2))],
    ),
    "pad": (
        pads("constant"),
        [dict(x=real(2, 6), p=ints(*p)) for p in ((1, 0, 2, 3), (0, 0, 0, 0), (0, 5, 1, 1))],
        [dict(x=real(2, 6), p=ints(*p)) for p in ((0, -1, 0, 0), (1, -1, 1, 2))],
    ),
    "reflect": (
        pads("reflect"),
        [dict(x=real(4, 6), p=ints(*p)) for p in ((1, 0, 2, 3), (0, 0, 0, 0), (0, 5, 1, 1))],
        [dict(x=real(4, 6), p=ints(0, -1, 0, 0))],
    ),
    "resize": (
        (
            [node("Resize", ["x", "", "", "s"], ["y"], mode="linear")],
            [info("x", [1, 2, 5, 6]), i64("s", [4])],
            [],
        ),
        [dict(x=real(1, 2, 5, 6), s=ints(1, 2, *s)) for s in ((10, 12), (7, 3), (5, 6), (1, 1))],
        [],
    ),
    "split": (
        (
            [node("Split", ["x", "s"], ["a", "b"], axis=1), node("Concat", ["b", "a"], ["y"], axis=1)],
            [info("x", ["n", 9]), i64("s", [2])],
            [],
        ),
        [dict(x=real(2, 9), s=ints(*s)) for s in ((3, 6), (1, 8), (9, 0), (0, 9))],
        [],
    ),
    "one hot": (
        (
            [node("OneHot", ["i", "d", "v"], ["y"])],
            [i64("i", [4]), i64("d", [])],
            [tensor("v", [0.0, 1.0])],
        ),
        [dict(i=ints(1, 0, 2, -1), d=number(d)) for d in (3, 5, 1)],
        [],
    ),
    "axis": (  # a number that is no size
        ([node("ReduceSum", ["x", "a"], ["y"])], [info("x", ["n", 9, 3]), i64("a", [1])], []),
        [dict(x=real(n, 9, 3), a=ints(1)) for n in (2, 5)],
        [dict(x=real(2, 9, 3), a=ints(a)) for a in (2, 0, -1)],
    ),
    "diagonal": (
        ([node("Trilu", ["x", "k"], ["y"])], [info("x", ["n", 9, 3]), i64("k", [])], []),
        [dict(x=real(n, 9, 3), k=number(1)) for n in (2, 5)],
        [dict(x=real(2, 9, 3), k=number(k)) for k in (2, -1)],
    ),
}  # fmt: skip


@pytest.fixture
def compiled(monkeypatch):
    """The programs that are compiled: for all sizes, or for those of a call."""
    found, make = [], sol._core.onnx_make

    def noted(source, dims, values, limits, arrays, ways, varying):
        net = make(source, dims, values, limits, arrays, ways, varying)
        found.append(ways)
        return net

    monkeypatch.setattr(sol._core, "onnx_make", noted)
    return found


def made(nodes, inputs, weights):
    m = model(nodes, inputs, [info("y", None)], weights)
    m.ir_version = 10
    return m.SerializeToString()


@pytest.mark.parametrize("name", CASES)
def test_one_program_serves_all_sizes_that_values_tell(name, compiled):
    parts, one, own = CASES[name]
    data = made(*parts)
    net, session = sol.optimize(data), ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    for feed in one + own + one:
        expected = session.run(None, feed)[0]
        got = net(feed)
        assert got.shape == expected.shape, feed
        np.testing.assert_allclose(got, expected, 1e-4, 1e-5)
    assert compiled == [ALL] + [SIZED] * len(own)


def test_values_that_do_not_fit_are_what_the_model_says_of_them():
    net = sol.optimize(made(*CASES["reshape"][0]))
    net(X, ints(4, 2, 3))
    for s in ((5, 5, 5), (2, 2, 3), (2**50, 1, 1), (-2, 3, 4)):
        with pytest.raises(sol.Error) as e:
            net(X, ints(*s))
        assert "Reshape" in str(e.value), e.value
    assert net(X, ints(2, 3, 4)).shape == (2, 3, 4)


def test_a_size_and_a_value_may_have_to_be_equal(compiled):
    nodes = [node("Expand", ["one", "s"], ["e"]), node("Add", ["e", "x"], ["y"])]
    net = sol.optimize(made(nodes, [info("x", ["n", 3]), i64("s", [2])], [tensor("one", [[1.0]])]))
    for n in (2, 5, 4):
        x = real(n, 3)
        np.testing.assert_array_equal(net(x, ints(n, 3)), x + 1)
    assert compiled == [ALL]
    x = real(1, 3)
    np.testing.assert_array_equal(net(x, ints(4, 3)), np.ones((4, 3), np.float32) + x)
    with pytest.raises(sol.Error):
        net(real(2, 3), ints(4, 3))


def test_an_example_compiles_before_the_first_call(compiled):
    net = sol.optimize(made(*CASES["reshape"][0]), X, ints(4, 2, 3))
    assert compiled == [ALL]
    assert net(X, ints(2, 2, 6)).shape == (2, 2, 6)
    assert compiled == [ALL]


def test_sizes_that_are_fixed_do_not_come_from_values(compiled):
    net = sol.optimize(made(*CASES["reshape"][0]), vdims=False)
    for s in ((4, 2, 3), (2, 3, 4)):
        assert net(X, ints(*s)).shape == s
    assert set(compiled) == {SIZED}
