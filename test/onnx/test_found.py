"""Sizes that depend on data: one program sets them while it runs. Results are those of ONNX Runtime."""

import contextlib
import itertools

import numpy as np
import onnxruntime as ort
import pytest
import sol
import sol.onnx
from test_command import sol as command

import onnx
from build import info, model, node, tensor
from onnx import TensorProto

RNG = np.random.default_rng(5)
I64, BOOL = TensorProto.INT64, TensorProto.BOOL


def ints(name, *values):
    return tensor(name, values, np.int64)


def programs(f) -> int:
    """How many programs a function has compiled."""
    return len(f._programs) + sum(e.program.net is not None for e in f._all._entries.values())


def runtime(m):
    m.ir_version = 10
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])


def agrees(m, *feeds, exact=True):
    """One program for all feeds, with the results of ONNX Runtime. Returns the function."""
    session, f = runtime(m), sol.optimize(m)
    for feed in feeds:
        for got, expected in zip(f.run(None, feed), session.run(None, feed), strict=True):
            assert got.shape == expected.shape and got.dtype == expected.dtype
            if exact:
                np.testing.assert_array_equal(got, expected)
            else:
                np.testing.assert_allclose(got, expected, 1e-5, 1e-6)
    assert programs(f) == 1
    return f


def sparse(shape, share, dtype=np.float32):
    return np.where(RNG.random(shape) < share, RNG.standard_normal(shape) * 3 + 9, 0).astype(dtype)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, I64, BOOL])
def test_nonzero(kind):
    m = model([node("NonZero", ["x"], ["i"])], [info("x", ["a", 3, "b"], kind)], [info("i", None, I64)])
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    agrees(m, *[{"x": sparse((a, 3, b), share, dtype)} for a, b in ((1, 1), (4, 5)) for share in (0, 0.4, 1)])


def test_nonzero_of_known_values_is_a_number():
    m = model([node("NonZero", ["x"], ["i"])], [info("u", ["n"])], [info("i", None, I64)], [ints("x", 3, 0, 4)])
    assert sol.optimize(m)._latest.outputs[0][2] == (1, 2)


def test_the_number_alone():
    m = model([node("NonZero", ["x"], ["i"]), node("Shape", ["i"], ["n"])], [info("x", ["a"])], [info("n", None, I64)])
    agrees(m, *[{"x": sparse(9, share)} for share in (0, 0.5, 1)])


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_compress(axis):
    given = {} if axis is None else {"axis": axis}
    m = model(
        [node("Compress", ["x", "c"], ["y"], **given)],
        [info("x", ["a", "b"]), info("c", ["n"], BOOL)],
        [info("y", None)],
    )
    feeds = [
        {"x": sparse((5, 7), 0.8), "c": RNG.random(n) < share} for n, share in itertools.product((1, 5), (0, 0.5, 1))
    ]
    agrees(m, *feeds)


@pytest.mark.parametrize(
    ("axis", "is_sorted", "kind"), [*itertools.product((None, 0, 1), (0, 1), (TensorProto.FLOAT, I64))]
)
def test_unique(axis, is_sorted, kind):
    given = {} if axis is None else {"axis": axis}
    outputs = [info("y", None, kind), *[info(n, None, I64) for n in ("first", "which", "count")]]
    m = model(
        [node("Unique", ["x"], [o.name for o in outputs], sorted=is_sorted, **given)],
        [info("x", ["a", "b"], kind)],
        outputs,
    )
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    feeds = [{"x": RNG.integers(-n, n, shape).astype(dtype)} for shape in ((1, 1), (6, 2), (3, 9)) for n in (1, 2, 50)]
    agrees(m, *feeds)


def test_unique_of_nan_is_as_in_numpy():
    nan = np.float32("nan")
    x = np.array([[nan, 2, nan, -0.0, 0.0, 2, np.inf]], np.float32)
    outputs = [info("y", None), *[info(n, None, I64) for n in ("first", "which", "count")]]
    f = sol.optimize(model([node("Unique", ["x"], [o.name for o in outputs])], [info("x", [1, "n"])], outputs))
    expected = np.unique(x, True, True, True)
    for got, want in zip(f(x), expected, strict=True):
        np.testing.assert_array_equal(got, want.reshape(-1))


def boxes_model(**attributes):
    inputs = [info("b", ["n", "k", 4]), info("s", ["n", "c", "k"]), info("m", [1], I64), info("t", [1]), info("u", [1])]
    names = [i.name for i in inputs]
    return model([node("NonMaxSuppression", names, ["i"], **attributes)], inputs, [info("i", None, I64)])


@pytest.mark.parametrize("center", [0, 1])
def test_nms(center):
    feeds = []
    for n, c, k, levels in ((1, 1, 1, 3), (2, 3, 40, 4), (1, 2, 90, 1000)):  # few levels of scores: ties
        for most, overlap, score in ((0, 0.5, 0.1), (3, 0.2, 0.3), (100, 0.7, 0.0), (100, 0.0, 2.0)):
            feeds.append(
                {
                    "b": RNG.random((n, k, 4)).astype(np.float32),
                    "s": (RNG.integers(0, levels, (n, c, k)) / levels).astype(np.float32),
                    "m": np.array([most]),
                    "t": np.array([overlap], np.float32),
                    "u": np.array([score], np.float32),
                }
            )
    agrees(boxes_model(center_point_box=center), *feeds)


def test_nms_with_constants_has_room_for_what_they_allow():
    weights = [ints("m", 4), tensor("t", [0.5])]
    m = model(
        [node("NonMaxSuppression", ["b", "s", "m", "t"], ["i"])],
        [info("b", ["n", "k", 4]), info("s", ["n", 3, "k"])],
        [info("i", None, I64)],
        weights,
    )
    feed = {"b": RNG.random((2, 30, 4)).astype(np.float32), "s": RNG.random((2, 3, 30)).astype(np.float32)}
    f = agrees(m, feed)
    assert f._latest.outputs[0][2] == (2 * 3 * 4, 3)


def test_what_lies_behind_is_largest_if_nothing_is_found():
    nodes = [
        node("NonZero", ["m"], ["i"]),
        node("Shape", ["i"], ["s"]),
        node("Slice", ["s", "one", "two", "zero"], ["n"]),
        node("Slice", ["x", "zero", "n", "zero"], ["y"]),
        node("Slice", ["x", "n", "end", "zero"], ["rest"]),
    ]
    weights = [ints("zero", 0), ints("one", 1), ints("two", 2), ints("end", 1 << 31)]
    outputs = [info("y", None), info("rest", None)]
    m = model(nodes, [info("x", ["a", 2]), info("m", ["a"], BOOL)], outputs, weights)
    feeds = [{"x": sparse((n, 2), 1), "m": np.arange(n) < k} for n in (1, 400) for k in (0, 1, n)]
    agrees(m, *feeds)
    function = sol.optimize(m, framework="numpy")
    for feed in feeds:
        for got, k in zip(function(**feed), (slice(feed["m"].sum()), slice(feed["m"].sum(), None)), strict=True):
            np.testing.assert_array_equal(got, feed["x"][k])


def test_what_follows_computes_with_the_size():
    """x[mask] sorted, the best three of it, its rows beside their sum, and a mask that all are above the mean."""
    nodes = [
        node("Greater", ["x", "zero"], ["mask"]),
        node("NonZero", ["mask"], ["at"]),
        node("Transpose", ["at"], ["rows"]),
        node("GatherND", ["x", "rows"], ["hits"]),
        node("Shape", ["hits"], ["n"]),
        node("Min", ["n", "three"], ["k"]),
        node("TopK", ["hits", "k"], ["best", "places"]),
        node("ReduceSum", ["hits"], ["sum"]),
        node("Expand", ["sum", "n"], ["sums"]),
        node("Concat", ["hits", "sums", "best"], ["all"], axis=0),
        node("Slice", ["hits", "one", "last"], ["tail"]),
        node("Unsqueeze", ["hits", "axis"], ["column"]),
        node("MatMul", ["column", "w"], ["wide"]),
        node("Softmax", ["wide"], ["soft"], axis=0),
        node("Where", ["flag", "wide", "soft"], ["chosen"]),
    ]
    weights = [
        tensor("zero", 0.0),
        ints("three", 3),
        ints("one", 1),
        ints("last", 1 << 40),
        ints("axis", 1),
        tensor("w", RNG.standard_normal((1, 4))),
    ]
    outputs = [info(n, None) for n in ("all", "tail", "chosen")] + [info("places", None, I64), info("n", None, I64)]
    m = model(nodes, [info("x", ["a", "b"]), info("flag", [4], BOOL)], outputs, weights, opset=18)
    flag = np.array([True, False, True, False])
    feeds = [
        {"x": (RNG.standard_normal(shape) + shift).astype(np.float32), "flag": flag}
        for shape in ((1, 1), (4, 5), (9, 13))
        for shift in (-99, 0, 99)
    ]
    agrees(m, *feeds, exact=False)


def test_sizes_that_must_be_equal_become_one():
    """x[m] + y[m], once with one mask, once with two that are compared when the network runs."""
    nodes = [
        node("Compress", ["x", "m"], ["p"], axis=0),
        node("Compress", ["y", "k"], ["q"], axis=0, name="second"),
        node("Add", ["p", "q"], ["z"]),
    ]
    inputs = [info("x", ["n"]), info("y", ["n"]), info("m", ["n"], BOOL)]
    x, y = sparse(9, 1), sparse(9, 1)
    one = model([nodes[0], node("Compress", ["y", "m"], ["q"], axis=0), nodes[2]], inputs, [info("z", None)])
    agrees(one, *[{"x": x, "y": y, "m": RNG.random(9) < share} for share in (0, 0.5, 1)])
    two = model(nodes, [*inputs, info("k", ["n"], BOOL)], [info("z", None)])
    m = np.arange(9) < 4
    f = agrees(two, {"x": x, "y": y, "m": m, "k": m}, {"x": x, "y": y, "m": m, "k": m[::-1].copy()})
    with pytest.raises(sol.Error, match=r"layer 'second' \(NonZero\): it finds 2 elements, expected 4"):
        f(x, y, m, np.arange(9) < 2)
    f(x, y, m, m)  # and goes on


def test_a_rule_that_a_found_size_breaks():
    nodes = [
        node("NonZero", ["x"], ["i"]),
        node("Unsqueeze", ["i", "axis"], ["j"]),
        node("Cast", ["j"], ["f"], to=TensorProto.FLOAT),
        node("MaxPool", ["f"], ["y"], kernel_shape=[4], name="pool"),
    ]
    m = model(nodes, [info("x", ["n"])], [info("y", None)], [ints("axis", 0)])
    f = agrees(m, {"x": sparse(12, 1)})
    with pytest.raises(sol.Error, match=r"layer 'pool' \(MaxPool\): it needs a size"):
        f(np.zeros(12, np.float32))
    assert f(np.ones(7, np.float32)).shape == (1, 1, 4)


def test_a_size_that_must_be_a_number_names_the_node():
    nodes = [node("NonZero", ["x"], ["i"], name="mask"), node("Reshape", ["i", "five"], ["y"])]
    m = model(nodes, [info("x", [10])], [info("y", None, I64)], [ints("five", 5, 2)])
    with pytest.raises(sol.Error, match=r"layer 'y' .*mask elements do not fit"):
        sol.optimize(m)


def test_squeeze_without_axes_where_a_size_is_one():
    """The number of dimensions is another one: a program of its own for open sizes, an error for one that is found."""
    m = model([node("Squeeze", ["x"], ["y"])], [info("x", ["a", "b"])], [info("y", None)])
    session, f = runtime(m), sol.optimize(m)
    for shape in ((3, 4), (1, 4), (3, 1), (1, 1)):
        feed = {"x": sparse(shape, 1)}
        np.testing.assert_array_equal(f.run(None, feed)[0], session.run(None, feed)[0], strict=True)
    assert programs(f) == 4
    m = model(
        [node("NonZero", ["x"], ["i"]), node("Squeeze", ["i"], ["y"])], [info("x", ["a"])], [info("y", None, I64)]
    )
    f = agrees(m, *[{"x": np.float32(x)} for x in ([0, 0], [1, 1], [1, 0, 1])])
    with pytest.raises(sol.InvalidError, match="Squeeze 'y' without axes, where a size of 1 changes the number of dim"):
        f(np.float32([0, 1]))


def test_outputs_given():
    m = model([node("NonZero", ["x"], ["i"])], [info("x", ["n"])], [info("i", None, I64)])
    f, x = sol.optimize(m), np.array([1, 0, 2, 0], np.float32)
    out = np.zeros((1, 2), np.int64)
    assert f(x, out=out) is out
    assert out.tolist() == [[0, 2]]
    with pytest.raises(sol.Error, match=r"out: i: expected an array int64\[1, 2\], got int64\[1, 4\]"):
        f(x, out=np.zeros((1, 4), np.int64))


def test_fixed_sizes_and_values_too():
    m = model([node("NonZero", ["x"], ["i"])], [info("x", [3, 4])], [info("i", None, I64)])
    f = sol.optimize(m)
    x = sparse((3, 4), 0.5)
    np.testing.assert_array_equal(f(x), np.nonzero(x))
    f = sol.optimize(m, vdims=False)
    np.testing.assert_array_equal(f(x), np.nonzero(x))


def test_a_bad_first_call_leaves_the_program_for_all_sizes():
    nodes = [node("Expand", ["x", "s"], ["y"])]  # the program for all sizes needs a value of s
    m = model(nodes, [info("x", ["n", 1]), info("s", [2], I64)], [info("y", None)])
    f, x = sol.optimize(m), sparse((3, 1), 1)
    with pytest.raises(sol.Error):
        f(x, np.array([2, 4]))
    for n in (4, 7, 9):
        np.testing.assert_array_equal(f(x, np.array([3, n])), np.broadcast_to(x, (3, n)))
    assert programs(f) == 1


def test_values_that_programs_depend_on_become_known_meanwhile():
    """A program that another thread made for its own value is not used for this one."""
    m = model(
        [node("TopK", ["x", "k"], ["y", "i"])],
        [info("x", [5]), info("k", [1], I64)],
        [info("y", None), info("i", None, I64)],
    )
    f = sol.optimize(m, vdims=False)
    get = f._programs.get

    def late(key):  # the other thread's call ends between this one's key and its program
        f._programs.get = get
        f(x, np.array([2]))
        return get(key)

    x = sparse(5, 1)
    f._programs.get = late
    assert f(x, np.array([4]))[0].shape == (4,)


def test_threads_give_the_same_bits():
    weights = [tensor("w", RNG.standard_normal((64, 33)))]
    nodes = [
        node("Compress", ["x", "m"], ["p"], axis=0),
        node("MatMul", ["p", "w"], ["q"]),
        node("ReduceMean", ["q"], ["r"], axes=[0], keepdims=0),
    ]
    m = model(nodes, [info("x", ["n", 64]), info("m", ["n"], BOOL)], [info("q", None), info("r", None)], weights)
    x = RNG.standard_normal((300, 64)).astype(np.float32)
    for share in (0.02, 0.4, 1):
        mask = RNG.random(300) < share
        results = []
        for threads in (1, 2, 3):
            f = sol.optimize(m)
            with threads_of(threads):
                results.append(f(x, mask))
        for q, r in results[1:]:
            assert q.tobytes() == results[0][0].tobytes() and r.tobytes() == results[0][1].tobytes()


@contextlib.contextmanager
def threads_of(n):
    before = sol.config["threads"]
    sol.config["threads"] = n
    try:
        yield
    finally:
        sol.config["threads"] = before


def test_command(tmp_path):
    m = model([node("NonZero", ["x"], ["i"])], [info("x", ["n"])], [info("i", None, I64)])
    onnx.save(m, tmp_path / "m.onnx")
    for x in (np.array([1, 0, 2, 0], np.float32), np.zeros(3, np.float32)):
        np.save(tmp_path / "x.npy", x)
        np.save(tmp_path / "i.npy", np.array(np.nonzero(x)))
        net = tmp_path / "m.onnx"
        command("run", net, "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path / "out")
        np.testing.assert_array_equal(np.load(tmp_path / "out" / "i.npy"), np.nonzero(x))
        command("verify", net, "--input", f"x={tmp_path / 'x.npy'}", "--expected", f"i={tmp_path / 'i.npy'}")
    assert "i64[1, 1]" in command("run", tmp_path / "m.onnx", "--random")
