"""sol.optimize("net.onnx") for users: arrays of every kind, names, messages, threads, fork."""

import contextlib
import os
import threading

import numpy as np
import pytest
import sol
import sol.onnx

import onnx
from build import info, model, node, tensor
from onnx import TensorProto

W = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
X = np.arange(8, dtype=np.float32).reshape(2, 4) - 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    nodes = [node("MatMul", ["x", "w"], ["t"]), node("Relu", ["t"], ["y"])]
    onnx.save(model(nodes, [info("x", ["batch", 4])], [info("y", None)], [tensor("w", W)]), path / "one.onnx")
    nodes = [node("Gather", ["w", "ids"], ["e"]), node("Add", ["e", "x"], ["y"]), node("Shape", ["x"], ["s"])]
    inputs = [info("ids", ["n"], TensorProto.INT64), info("x", ["n", 5])]
    outputs = [info("y", None), info("s", None, TensorProto.INT64)]
    onnx.save(model(nodes, inputs, outputs, [tensor("w", W)]), path / "two.onnx")
    onnx.save(model([node("Neg", ["x"], ["y"])], [info("x", [])], [info("y", None)]), path / "scalar.onnx")
    (path / "text.onnx").write_text("hello\n")
    (path / "empty.onnx").write_text("")
    return path


@pytest.fixture(scope="module")
def one(folder):
    return sol.optimize(folder / "one.onnx")


@pytest.fixture(scope="module")
def two(folder):
    return sol.optimize(folder / "two.onnx")


def expected(x):
    return np.maximum(x @ W, 0)


def test_by_place_by_keyword_and_by_dict(one, two):
    for y in (one(X), one(x=X), one({"x": X})):
        assert y.dtype == np.float32 and np.allclose(y, expected(X), 1e-5, 1e-6)
    ids, x = np.array([3, -1]), np.ones((2, 5), np.float32)
    for y, s in (two(ids, x), two(ids, x=x), two({"x": x, "ids": ids})):
        assert np.array_equal(y, W[ids] + x) and s.tolist() == [2, 5]


@pytest.mark.parametrize(
    "x",
    [X.T.copy().T, X[::-1], np.repeat(X, 2, axis=1)[:, ::2], np.asfortranarray(X), np.zeros((0, 4), np.float32)],
    ids=["transposed", "backwards", "strided", "fortran", "empty"],
)
def test_any_layout(one, x):
    assert np.allclose(one(x), expected(x), 1e-5, 1e-6) and one(x).shape == (len(x), 5)


def test_read_only_and_scalar(one, folder):
    x = X.copy()
    x.setflags(write=False)
    assert np.allclose(one(x), expected(X), 1e-5, 1e-6)
    y = sol.optimize(folder / "scalar.onnx")(np.array(2, np.float32))
    assert y.shape == () and y == -2


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda f: f(X.astype(np.float64)), r"input x: expected float32\[2, 4\], got float64"),
        (lambda f: f(X[:, :3]), "expected size 4 in dimension 1, got 3"),
        (lambda f: f(X[0]), "expected 2 dimensions"),
        (lambda f: f(), r"missing: x\[batch, 4\]"),
        (lambda f: f(X, X), r"expected 1 input \(x\[batch, 4\]\), got 2"),
        (lambda f: f(z=X), r"there is no input 'z'; there are x\[batch, 4\]"),
        (lambda f: f(X, x=X), "'x' is given twice"),
        (lambda f: f(None), "expected an array of numbers, got NoneType"),
        (lambda f: f(np.array([["a"] * 4])), "expected an array of numbers, got an array of <U1"),
        (lambda f: f(X.astype(">f4")), "got >f4"),
    ],
)
def test_mistakes(one, call, text):
    with pytest.raises(sol.InvalidError, match=text):
        call(one)


def test_mistakes_of_two_inputs(two):
    x = np.ones((2, 5), np.float32)
    with pytest.raises(sol.InvalidError, match="'n'"):
        two(np.array([1, 2, 3]), x)
    with pytest.raises(sol.InvalidError, match="got int32"):
        two(np.array([1, 2], np.int32), x)
    with pytest.raises(sol.Error, match="index is out of range"):
        two(np.array([1, 4]), x)


@pytest.mark.parametrize(("op", "expected"), [("Div", [-2, 3]), ("Mod", [1, 0])])
def test_integers_divided_by_zero(op, expected, tmp_path):
    ints = [info(n, [2], TensorProto.INT32) for n in "ab"]
    onnx.save(
        model([node(op, ["a", "b"], ["y"], name="ratio")], ints, [info("y", None, TensorProto.INT32)]),
        tmp_path / "m.onnx",
    )
    f, a = sol.optimize(tmp_path / "m.onnx"), np.array([-5, 9], np.int32)
    assert f(a, np.array([2, 3], np.int32)).tolist() == expected
    with pytest.raises(sol.RunError, match="no divisor may be 0"):
        f(a, np.array([2, 0], np.int32))
    known = [tensor("b", [2, 0], np.int32)]
    onnx.save(
        model([node(op, ["a", "b"], ["y"])], ints[:1], [info("y", None, TensorProto.INT32)], known), tmp_path / "k.onnx"
    )
    with pytest.raises(sol.UnsupportedError, match="an integer divided by 0"):
        sol.optimize(tmp_path / "k.onnx")


@pytest.mark.parametrize(
    ("name", "text"), [("text", "damaged"), ("empty", "is empty"), ("missing", "there is no such file")]
)
def test_files_that_are_no_models(folder, name, text):
    with pytest.raises(sol.Error, match=text):
        sol.optimize(folder / f"{name}.onnx")


def test_files_cut_off_anywhere(folder, tmp_path):
    whole, part = (folder / "two.onnx").read_bytes(), tmp_path / "part.onnx"
    for n in range(1, len(whole)):
        part.write_bytes(whole[:n])
        with contextlib.suppress(sol.InvalidError):  # no other exception
            sol.onnx.describe(sol.onnx.source_of(part))


def test_threads(one):
    wrong = []

    def work(i):
        for k in range(20):
            x = np.full((1 + (i + k) % 3, 4), i, np.float32)
            if not np.allclose(one(x), expected(x), 1e-4, 1e-4):
                wrong.append((i, k))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.skipif(sol.device.current()[0] != sol.device.HOST, reason="a child process cannot use the device")
def test_after_fork(one):
    one(X)
    child = os.fork()
    if not child:
        good = all(np.allclose(one(x), expected(x), 1e-4, 1e-4) for x in (X, np.ones((7, 4), np.float32)))
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0


UNSIGNED = {  # values above 2^63, where signed arithmetic would differ; operator: number of inputs, weights, attributes, reference
    "Max": (2, [], {}, np.maximum),
    "Min": (2, [], {}, np.minimum),
    "Less": (2, [], {}, np.less),
    "GreaterOrEqual": (2, [], {}, np.greater_equal),
    "Div": (2, [], {}, np.floor_divide),
    "Mod": (2, [], {}, np.mod),
    "BitShift": (2, [], {"direction": "RIGHT"}, np.right_shift),
    "ReduceMax": (1, [tensor("w", [1], np.int64)], {}, lambda x: x.max(1, keepdims=True)),
    "ReduceMin": (1, [tensor("w", [0], np.int64)], {}, lambda x: x.min(0, keepdims=True)),
    "ArgMax": (1, [], {"axis": 1}, lambda x: x.argmax(1)[:, None]),
    "Cast": (1, [], {"to": TensorProto.FLOAT}, lambda x: x.astype(np.float32)),
    "Clip": (1, [tensor("l", 7, np.uint64), tensor("h", 2**63 + 9, np.uint64)], {}, lambda x: x.clip(7, 2**63 + 9)),
    "Sign": (1, [], {}, np.sign),
}


@pytest.mark.parametrize("op", UNSIGNED)
def test_unsigned_numbers_beyond_2_to_63(op, tmp_path):
    inputs, weights, attributes, reference = UNSIGNED[op]
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 2**64, (2, 9, 75), np.uint64)
    y = (y % 64 if op == "BitShift" else np.maximum(y >> rng.integers(0, 64, y.shape, np.uint64), 1)).astype(np.uint64)
    names = ["x", "y"][:inputs]
    made = node(op, [*names, *[w.name for w in weights]], ["z"], **attributes)
    given = [info(n, x.shape, TensorProto.UINT64) for n in names]
    want = reference(*(x, y)[:inputs])
    made_of = info("z", None, onnx.helper.np_dtype_to_tensor_dtype(want.dtype))
    onnx.save(model([made], given, [made_of], weights, opset=18), tmp_path / "u.onnx")
    got = sol.optimize(tmp_path / "u.onnx")(*(x, y)[:inputs])
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
