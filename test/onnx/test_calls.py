"""An ONNX model in Python: sources, fixed sizes, outputs by name and in given arrays, cached programs."""

import importlib
import os
import re
import threading
import time

import numpy as np
import onnxruntime as ort
import pytest
import sol
import sol.onnx
from sol.programs import Programs

import onnx
from build import info, model, node, tensor
from onnx import TensorProto

W = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
X = np.arange(8, dtype=np.float32).reshape(2, 4) - 3


def two_outputs():
    nodes = [node("MatMul", ["x", "w"], ["t"]), node("Relu", ["t"], ["y"]), node("Neg", ["t"], ["z"])]
    return model(nodes, [info("x", ["batch", 4])], [info("y", ["batch", 5]), info("z", ["batch", 5])], [tensor("w", W)])


@pytest.fixture(scope="module")
def net():
    return sol.optimize(two_outputs())


def near(a, b):
    return np.allclose(a, b, 1e-5, 1e-6)


# -- sources of models


@pytest.mark.parametrize(
    "make", [lambda m: m, lambda m: m.SerializeToString(), lambda m: bytearray(m.SerializeToString())]
)
def test_from_memory(make):
    y, z = sol.optimize(make(two_outputs()))(X)
    assert near(y, np.maximum(X @ W, 0)) and near(z, -X @ W)


@pytest.mark.parametrize("data", [b"", b"hello\n", two_outputs().SerializeToString()[:40]])
def test_bytes_that_are_no_model(data):
    with pytest.raises(sol.InvalidError, match=r"^ONNX model: "):
        sol.optimize(data)


def test_a_model_in_memory_has_no_folder_for_its_data(tmp_path):
    m = two_outputs()
    onnx.save(m, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="w.bin")
    assert near(sol.optimize(tmp_path / "m.onnx")(X)[1], -X @ W)
    with pytest.raises(sol.InvalidError, match="data is in another file"):
        sol.optimize(onnx.load(tmp_path / "m.onnx", load_external_data=False), X)


def test_deployed_from_memory(tmp_path):
    sol.deploy(two_outputs(), "source", {"lib_name": "libnet", "path": tmp_path}, batch_size=2)
    assert list(tmp_path.rglob("*.h"))


# -- descriptions


def test_inputs_and_outputs(net):
    assert [(i.name, i.shape, i.dtype) for i in net.inputs] == [("x", ("batch", 4), "float32")]
    assert [(o.name, o.shape, o.dtype) for o in net.outputs] == [
        ("y", ("batch", 5), "float32"),
        ("z", ("batch", 5), "float32"),
    ]


def test_memory():
    net = sol.optimize(two_outputs(), vdims=False)
    with pytest.raises(sol.InvalidError, match="not compiled yet"):
        sol.memory(net)
    net(X)
    assert sol.memory(net)["inputs"] == X.nbytes
    net(np.ones((7, 4), np.float32))
    assert sol.memory(net)["inputs"] == 7 * 16
    net(X)
    assert sol.memory(net)["inputs"] == X.nbytes
    assert sol.memory(sol.optimize(two_outputs(), fix={"batch": 3}))["outputs"] == 2 * 3 * 5 * 4


def test_memory_where_sizes_vary(capfd):
    net = sol.optimize(two_outputs())
    text = capfd.readouterr().err
    assert re.search(r"Estimated Peak Memory Consumption: Inference ~\d+B \+ #0 \* \d+B \(~\d+B at #0 = 8\)", text), (
        text
    )
    assert sol.memory(net)["inputs"] == 8 * 16  # of the size that costs are estimated for
    for n in (2, 7, 2):
        net(np.ones((n, 4), np.float32))
        assert sol.memory(net)["inputs"] == n * 16
    assert "Estimated Peak" not in capfd.readouterr().err


# -- fixed sizes and values


def test_fixed_size():
    net = sol.optimize(two_outputs(), fix={"batch": 2})
    assert net.inputs[0].shape == (2, 4) and net.outputs[1].shape == (2, 5)
    assert near(net(X)[1], -X @ W)
    with pytest.raises(sol.InvalidError, match=r"input x\[2, 4\]: expected size 2 in dimension 0, got 1"):
        net(X[:1])


def test_fixed_size_without_a_name():
    net = sol.optimize(model([node("Neg", ["x"], ["y"])], [info("x", [None, 2])], [info("y", None)]), fix={"x.0": 3})
    assert net.inputs[0].shape == (3, 2)
    assert net(np.ones((3, 2), np.float32)).sum() == -6


def test_fixed_input():
    inputs = [info("x", [2, 4]), info("shape", [2], TensorProto.INT64)]
    m = model([node("Reshape", ["x", "shape"], ["y"])], inputs, [info("y", None)])
    for value in ([4, 2], np.array([4, 2])):
        net = sol.optimize(m, fix={"shape": value})
        assert [i.name for i in net.inputs] == ["x"]
        assert np.array_equal(net(X), X.reshape(4, 2))
    with pytest.raises(sol.InvalidError, match="input 'shape' is fixed"):
        net(X, shape=np.array([4, 2]))
    with pytest.raises(sol.InvalidError, match="'shape': expected a value of type int64, got int32"):
        sol.optimize(m, fix={"shape": np.array([4, 2], np.int32)})


def values_of(m, calls, **options):
    """Compares each of the calls with ONNX Runtime."""
    m.ir_version = 10
    net, session = sol.optimize(m, **options), ort.InferenceSession(m.SerializeToString())
    for call in calls:
        for got, expected in zip(net.run(None, call), session.run(None, call), strict=True):
            np.testing.assert_array_equal(got, expected)
    return net


SHAPE = info("shape", [2], TensorProto.INT64)


def test_shapes_that_are_arguments(capfd):
    """Nothing is told: a call has the value. Each value has a program."""
    m = model([node("Reshape", ["x", "shape"], ["y"])], [info("x", [2, 4]), SHAPE], [info("y", None)])
    shapes = [[4, 2], [-1, 8], [0, 4], [8, 1], [4, 2]]
    net = values_of(m, [{"x": X, "shape": np.array(s)} for s in shapes])
    assert "is compiled at the first call: " in capfd.readouterr().err
    before = len(net._programs)
    net(X, np.array([8, 1]))
    assert len(net._programs) == before
    with pytest.raises(sol.InvalidError, match="input shape: expected int64"):
        net(X, np.array([4, 2], np.int32))
    with pytest.raises(sol.InvalidError, match="8 elements do not fit the shape"):
        net(X, np.array([-1, 3]))
    assert np.array_equal(sol.optimize(m, X, np.array([4, 2]))(X, np.array([8, 1])), X.reshape(8, 1))


def test_slices_axes_and_scales_that_are_arguments():
    ints = [info(k, [1], TensorProto.INT64) for k in ("start", "end", "axis")]
    m = model([node("Slice", ["x", "start", "end", "axis"], ["y"])], [info("x", ["n", 6]), *ints], [info("y", None)])
    x = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
    some = [(0, 3, 0), (-2, 9, 1), (1, -1, 1), (2, 2, 0)]
    values_of(m, [{"x": x[:n], **{k: np.array([v]) for k, v in zip(("start", "end", "axis"), s, strict=True)}}
                  for s in some for n in (4, 3)])  # fmt: skip
    m = model([node("Resize", ["x", "", "s"], ["y"])], [info("x", ["n", 1, 2, 3]), info("s", [4])], [info("y", None)])
    x = np.arange(12, dtype=np.float32).reshape(2, 1, 2, 3)
    values_of(m, [{"x": x, "s": np.array(s, np.float32)} for s in ([1, 1, 2, 2], [1, 1, 3, 1])])


def test_a_branch_on_an_argument():
    def branch(name, kind):
        return onnx.helper.make_graph([node(kind, ["x"], [name])], name, [], [info(name, None)])

    m = model([node("If", ["c"], ["y"], then_branch=branch("a", "Relu"), else_branch=branch("b", "Neg"))],
              [info("c", [], TensorProto.BOOL), info("x", ["n", 4])], [info("y", ["n", 4])])  # fmt: skip
    values_of(m, [{"c": np.array(c), "x": X} for c in (True, False, True)])


@pytest.mark.parametrize(
    ("fix", "text"),
    [
        ({"bach": 2}, r"'bach'.*expected an open dimension \(batch\) or an input \(x\[batch, 4\]\)"),
        ({"batch": -1}, "expected a size from 0 on, got -1"),
        ({"batch": 1.5}, "expected a size from 0 on, got 1.5"),
        ({"x": "text"}, "expected an array of numbers, got str"),
    ],
)
def test_mistakes_in_fix(fix, text):
    with pytest.raises(sol.InvalidError, match=text):
        sol.optimize(two_outputs(), fix=fix)


# -- outputs


def test_run_as_onnx_runtime_does(net):
    y, z = np.maximum(X @ W, 0), -X @ W
    assert [near(a, b) for a, b in zip(net.run(["z", "y"], {"x": X}), [z, y], strict=True)] == [True, True]
    assert len(net.run(None, {"x": X})) == 2 and near(net.run(["z"], {"x": X})[0], z)
    with pytest.raises(sol.InvalidError, match=r"no output 'q'; there are y\[batch, 5\], z\[batch, 5\]"):
        net.run(["q"], {"x": X})


def test_given_arrays(net):
    y, z = np.empty((2, 5), np.float32), np.full((2, 5), 7, np.float32)
    result = net(X, out=(y, z))
    assert result[0] is y and result[1] is z and near(y, np.maximum(X @ W, 0)) and near(z, -X @ W)
    y[:] = 0
    result = net(X, out={"y": y})
    assert result[0] is y and near(y, np.maximum(X @ W, 0)) and near(result[1], -X @ W)


def test_given_arrays_of_any_layout(net):
    strided, fortran = np.zeros((2, 10), np.float32), np.zeros((2, 5), np.float32, order="F")
    y, z = net(X, out=(strided[:, ::2], fortran))
    assert z is fortran and near(y, np.maximum(X @ W, 0)) and near(z, -X @ W) and not strided[:, 1::2].any()
    one = sol.optimize(model([node("Transpose", ["x"], ["y"])], [info("x", [3, 3])], [info("y", None)]))
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    assert one(x, out=x) is x and np.array_equal(x, np.arange(9).reshape(3, 3).T)  # in place


@pytest.mark.parametrize(
    ("out", "text"),
    [
        (np.empty((2, 5), np.float32), "expected 2 arrays"),
        ((np.empty((2, 4), np.float32), None), r"out: y: expected an array float32\[2, 5\], got float32\[2, 4\]"),
        ((None, np.empty((2, 5))), r"out: z: expected an array float32\[2, 5\], got float64"),
        ({"q": np.empty((2, 5), np.float32)}, "no output 'q'"),
        ([np.zeros((2, 5), np.float32)] * 2, "out: z: the array shares memory"),
        ((np.frombuffer(bytes(40), np.float32).reshape(2, 5), None), "out: y: the array is read-only"),
        (([0] * 10, None), "got list"),
    ],
)
def test_arrays_that_cannot_be_outputs(net, out, text):
    with pytest.raises(sol.InvalidError, match=text):
        net(X, out=out)


# -- cached programs


def test_only_the_last_programs_are_kept():
    net = sol.optimize(two_outputs(), vdims=False)
    for n in range(1, 24):
        net(np.ones((n, 4), np.float32))
    assert len(net._programs) == 16
    before = net._programs.latest()
    net(np.ones((8, 4), np.float32))  # the oldest one left becomes the newest
    assert net._programs.latest() is not before
    net(np.ones((1, 4), np.float32))
    assert net.prepare({"x": (8, 4)}).inputs[0][2] == (8, 4) and len(net._programs) == 16


def test_the_log_of_a_service_does_not_grow(capfd):
    """Memory is logged when it is more than before: not for every size, nor again for programs that were dropped."""
    net = sol.optimize(two_outputs(), vdims=False)
    for n in (8, *range(20, 0, -1), *range(20, 0, -1)):
        net(np.ones((n, 4), np.float32))
    assert capfd.readouterr().err.count("Estimated Peak Memory") == 2


def test_sizes_that_come_again_are_said_once(capfd):
    net = sol.optimize(two_outputs(), vdims=False)
    for n in range(1, 25):
        net(np.ones((n, 4), np.float32))
    assert "programs that are kept" not in capfd.readouterr().err
    for n in (1, 2, 1):
        net(np.ones((n, 4), np.float32))
    text = capfd.readouterr().err
    assert text.count("more combinations of sizes than the 16 programs that are kept") == 1 and "pad the inputs" in text


def test_programs_are_bounded_by_memory_too():
    programs = Programs("net", lambda key: key, lambda program: program, most=16)
    programs._limit = 100
    for size in (40, 50, 30, 20, 200, 10):
        assert programs.get(size) == size
    assert list(programs._entries) == [10]


def test_a_thread_whose_program_is_there_does_not_wait():
    compiling, go_on = threading.Event(), threading.Event()
    made = []

    def make(key):
        made.append(key)
        if key == "slow":
            compiling.set()
            assert go_on.wait(60)
        return key

    programs = Programs("net", make, lambda program: 1)
    programs.get("fast")
    threads = [threading.Thread(target=programs.get, args=("slow",)) for _ in range(4)]
    for t in threads:
        t.start()
    assert compiling.wait(60)
    assert programs.get("fast") == "fast" and programs.latest() == "fast"
    assert programs.get("other") == "other"
    child = os.fork()  # it lacks the other threads, including the one that compiles
    if not child:
        go_on.set()
        os._exit(0 if programs.get("slow") == "slow" else 1)
    assert os.waitpid(child, 0)[1] == 0
    go_on.set()
    for t in threads:
        t.join()
    assert sorted(made) == ["fast", "other", "slow"]


def test_a_compile_that_failed_is_tried_by_those_who_wait():
    tried, waiting = [], threading.Event()

    def make(key):
        tried.append(key)
        if len(tried) == 1:
            assert waiting.wait(60)
            time.sleep(0.05)
            raise KeyboardInterrupt
        return key

    programs, results = Programs("net", make, lambda program: 1), []

    def first():
        with pytest.raises(KeyboardInterrupt):
            programs.get("x")

    def second():
        waiting.set()
        results.append(programs.get("x"))

    threads = [threading.Thread(target=first)]
    threads[0].start()
    while not tried:
        time.sleep(0.001)
    threads.append(threading.Thread(target=second))
    threads[1].start()
    for t in threads:
        t.join()
    assert results == ["x"] and tried == ["x", "x"]


def resident():
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def service(seconds, shapes, width, vdims):
    """Eight threads with changing shapes. Returns wrong results, and the memory in MB at the end of the first fifth, when each thread
    has its part of malloc's memory, and at the end."""
    w = np.random.default_rng(1).standard_normal((width, width)).astype(np.float32) / width
    nodes = [node("MatMul", ["x", "w"], ["t"]), node("Tanh", ["t"], ["y"])]
    net = sol.optimize(model(nodes, [info("x", ["n", width])], [info("y", None)], [tensor("w", w)]), vdims=vdims)
    wrong, calls = [], [0] * 8
    expected = {n: np.tanh(np.full((n, width), n / 8, np.float32) @ w) for n in shapes}

    def work(i, stop):
        random = np.random.default_rng(i)
        while time.monotonic() < stop and not wrong:
            n = int(random.choice(shapes))
            if not np.allclose(net(np.full((n, width), n / 8, np.float32)), expected[n], 1e-4, 1e-5):
                wrong.append((i, n))
            calls[i] += 1

    for n in shapes:  # fills the cache
        net(np.full((n, width), n / 8, np.float32))
    memory = []
    for part in (0.2, 0.8):
        threads = [threading.Thread(target=work, args=(i, time.monotonic() + part * seconds)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        memory.append(resident() / 1e6)
    return wrong, *memory, sum(calls), len(net._programs)


@pytest.mark.parametrize("seconds", [4, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("vdims", [True, False], ids=["one program", "a program for each size"])
def test_service_with_changing_shapes(seconds, vdims, monkeypatch):
    monkeypatch.setitem(os.environ, "SOL_LOG", "WARN")
    level, tuning = sol.config["log::level"], sol.config["autotune"]
    sol.config["log::level"], sol.config["autotune"] = "WARN", "off"
    try:
        wrong, before, after, calls, kept = service(seconds, list(range(1, 25)), 512, vdims)
    finally:
        sol.config["log::level"], sol.config["autotune"] = level, tuning
    assert not wrong and kept <= 16 + 8 and calls > 100  # eight may be in progress
    assert after < before + 60, f"{before:.0f} MB at the start, {after:.0f} MB after {calls} calls"


# -- onnx.backend.base


def test_backend():
    backend = sol.onnx.Backend
    prepared = backend.prepare(two_outputs())
    result = prepared.run([X])
    assert near(result[0], np.maximum(X @ W, 0)) and near(result["z"], -X @ W)
    assert near(backend.run_model(two_outputs(), {"x": X})[1], -X @ W)
    relu = onnx.helper.make_node("Relu", ["a"], ["b"])
    assert np.array_equal(backend.run_node(relu, [X])[0], np.maximum(X, 0))
    assert backend.supports_device("CPU") and not backend.supports_device("CUDA")
    with pytest.raises(sol.UnsupportedError, match="CUDA"):
        backend.prepare(two_outputs(), "CUDA")
    unknown = model(
        [node("StringNormalizer", ["x"], ["y"])],
        [info("x", [2], TensorProto.STRING)],
        [info("y", [2], TensorProto.STRING)],
    )
    assert backend.is_compatible(two_outputs()) and not backend.is_compatible(unknown)


@pytest.mark.parametrize("name", ["sol.onnx_backend", "sol.onnx"])
def test_backend_with_tests_of_onnx(name):
    """ONNX's own test runner works with the interface; the scoreboard's hands it a module."""
    from onnx.backend.test import BackendTest

    module = importlib.import_module(name)
    suite = BackendTest(module if hasattr(module, "run_model") else module.Backend, __name__)
    suite.include(
        r"^test_(relu|matmul_2d|softmax_axis_1|split_equal_parts_1d_opset13|where_example|gelu_default_1)_cpu$"
    )
    cases = [
        (case, name)
        for case in suite.test_cases.values()
        for name in dir(case)
        if name.startswith("test_") and name.endswith("_cpu")
    ]
    ran = 0
    for case, name in cases:
        if not getattr(getattr(case, name), "__unittest_skip__", False):
            getattr(case(name), name)()
            ran += 1
    assert ran == 6
