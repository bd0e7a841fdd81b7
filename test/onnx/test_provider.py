"""SOL's execution provider in ONNX Runtime: its results are those of ONNX Runtime alone, and what it may not do fails well."""

import ctypes
import gc
import shutil
import threading

import numpy as np
import pytest

ort = pytest.importorskip("onnxruntime", reason="needs the package onnxruntime (requirements.txt)")

import backend  # noqa: E402
import provider  # noqa: E402
import sol.onnx  # noqa: E402

import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

pytestmark = pytest.mark.processor
EVERY = 15  # cases of `make test`
F, I64 = TensorProto.FLOAT, TensorProto.INT64


def model(nodes, inputs, outputs, weights=(), opset=20) -> bytes:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(*n[:3], **(n[3] if len(n) > 3 else {})) for n in nodes],
        "net",
        [info(name, *rest) for name, *rest in inputs],
        [info(name, *rest) for name, *rest in outputs],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9).SerializeToString()


def rand(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


CONV = [("Conv", ["x", "w"], ["a"], {"pads": [1] * 4}), ("Relu", ["a"], ["y"])]


def conv(h="h", w="w") -> bytes:
    return model(CONV, [("x", F, ["n", 3, h, w])], [("y", F, ["n", 8, None, None])], [("w", rand(8, 3, 3, 3))])


def same(blob, feed, **options):
    s = provider.session(blob, **options)
    for got, expected in zip(s.run(None, feed), provider.plain(blob).run(None, feed), strict=True):
        np.testing.assert_allclose(got, expected, 1e-4, 1e-5)
    return s


def check(cases):
    results = list(provider.every(cases))
    wrong = [f"{r.name}: {r.reason}" for r in results if r.state == "wrong"]
    assert not wrong, "\n".join(wrong[:20])
    return results


def test_sample_of_the_backend_cases():
    results = check(backend.collect("", networks=False)[::EVERY])
    assert sum(r.state == "same" and not r.theirs for r in results) > len(results) / 3


@pytest.mark.slow
def test_all_backend_cases():
    check(backend.collect())


def test_log_says_which_nodes_are_left_and_why(capfd):
    nodes = [*CONV, ("StringNormalizer", ["s"], ["t"]), ("Relu", ["y"], ["z"])]
    strings = ("s", TensorProto.STRING, [2]), ("t", TensorProto.STRING, [None])
    blob = model(nodes, [("x", F, [1, 3, 8, 8]), strings[0]], [("z", F, [1, 8, 8, 8]), strings[1]],
                 [("w", rand(8, 3, 3, 3))])  # fmt: skip
    s = provider.session(blob, severity=2)
    log = capfd.readouterr().err
    assert "SOL takes 3 of 4 nodes, as 1 program. ONNX Runtime keeps:" in log
    assert "StringNormalizer 't': s: type string is not supported" in log
    assert provider.taken(s) == (["Conv", "Relu", "Relu"], ["StringNormalizer"])
    assert s.run(["t"], {"x": rand(1, 3, 8, 8), "s": np.array(["a", "b"])})[0].tolist() == ["a", "b"]


def test_one_program_for_all_sizes(capfd):
    s = provider.session(conv(), severity=0, **{"log::level": "DEBUG"})
    plain = provider.plain(conv())
    for n, h, w in ((1, 8, 9), (3, 16, 4), (2, 7, 7), (1, 8, 9)):
        x = rand(n, 3, h, w)
        np.testing.assert_allclose(s.run(None, {"x": x})[0], plain.run(None, {"x": x})[0], 1e-4, 1e-5)
    assert "a program for this call alone" not in capfd.readouterr().err


def test_sizes_that_a_program_excludes_get_one_of_their_own():
    """Broadcasting depends on whether a size is 1: SOL's program for all sizes takes them as equal."""
    blob = model([("Add", ["x", "y"], ["z"])], [("x", F, ["n"]), ("y", F, ["m"])], [("z", F, [None])])
    s, plain = provider.session(blob), provider.plain(blob)
    for n, m in ((4, 4), (5, 1), (1, 6), (7, 7), (0, 0), *((k, 1) for k in range(2, 24)), (4, 4)):
        feed = {"x": rand(n), "y": rand(m)}
        np.testing.assert_array_equal(s.run(None, feed)[0], plain.run(None, feed)[0])


def test_nodes_on_both_sides_of_one_that_is_left():
    """x -> a -> (left) -> c, and c reads a too: the two parts must not become one program."""
    nodes = [("Relu", ["x"], ["a"]), ("Cast", ["a"], ["h"], {"to": TensorProto.FLOAT16}),
             ("Cast", ["h"], ["b"], {"to": F}), ("Add", ["a", "b"], ["c"]), ("Exp", ["c"], ["y"])]  # fmt: skip
    s = same(model(nodes, [("x", F, ["n", 5])], [("y", F, ["n", 5])]), {"x": rand(3, 5)})
    assert provider.taken(s) == (["Relu", "Add", "Exp"], ["Cast", "Cast"])


def test_shapes_computed_in_the_graph():
    nodes = [("Shape", ["x"], ["s"]), ("Gather", ["s", "zero"], ["n"]), ("Concat", ["n", "rest"], ["to"], {"axis": 0}),
             ("Reshape", ["x", "to"], ["y"])]  # fmt: skip
    weights = [("zero", np.array([0])), ("rest", np.array([-1]))]
    blob = model(nodes, [("x", F, ["n", 3, "k"])], [("y", F, ["n", None])], weights)
    s = same(blob, {"x": rand(2, 3, 4)})
    assert not provider.taken(s)[1]
    assert s.run(None, {"x": rand(5, 3, 2)})[0].shape == (5, 6)


def test_sizes_that_data_determines():
    blob = model([("NonZero", ["x"], ["i"])], [("x", F, ["n", "m"])], [("i", I64, [2, None])])
    x = rand(4, 5) > 0
    s = same(blob, {"x": x.astype(np.float32)})
    assert provider.taken(s)[0] == ["NonZero"]


def test_branches_and_loops():
    info = helper.make_tensor_value_info
    body = [
        helper.make_graph([helper.make_node(op, ["x"], ["b"])], op, [], [info("b", F, [4])]) for op in ("Exp", "Neg")
    ]
    blob = model([("If", ["c"], ["y"], {"then_branch": body[0], "else_branch": body[1]})],
                 [("c", TensorProto.BOOL, []), ("x", F, [4])], [("y", F, [4])])  # fmt: skip
    for c in (True, False):
        s = same(blob, {"c": np.array(c), "x": rand(4)})
    assert provider.taken(s) == (["Exp", "Neg"], ["If"]) or provider.taken(s) == (["Neg", "Exp"], ["If"])


def test_weights_that_a_call_may_replace():
    inputs = [("x", F, [1, 3, 6, 6]), ("w", F, [8, 3, 3, 3])]
    blob = model(CONV, inputs, [("y", F, [1, 8, 6, 6])], [("w", rand(8, 3, 3, 3))])
    s = same(blob, {"x": rand(1, 3, 6, 6)})
    feed = {"x": rand(1, 3, 6, 6), "w": 2 * rand(8, 3, 3, 3)}
    np.testing.assert_allclose(s.run(None, feed)[0], provider.plain(blob).run(None, feed)[0], 1e-4, 1e-5)


def test_weights_in_another_file(tmp_path):
    path = str(tmp_path / "net.onnx")
    onnx.save_model(onnx.load_from_string(conv()), path, save_as_external_data=True, size_threshold=0, location="w")
    same(path, {"x": rand(1, 3, 6, 6)})


def test_io_binding():
    s = provider.session(conv())
    x, y = rand(2, 3, 5, 5), np.zeros((2, 8, 5, 5), np.float32)
    binding = s.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    s.run_with_iobinding(binding)
    np.testing.assert_allclose(y, provider.plain(conv()).run(None, {"x": x})[0], 1e-4, 1e-5)


def test_threads():
    s, plain = provider.session(conv()), provider.plain(conv())
    wrong = []

    def work(k):
        x = rand(1 + k % 3, 3, 4 + k, 6)
        expected = plain.run(None, {"x": x})[0]
        for _ in range(30):
            got = s.run(None, {"x": x})[0]
            if got.shape != expected.shape or abs(got - expected).max() > 1e-4:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_same_bits_for_any_number_of_threads():
    x = rand(2, 3, 33, 29)
    one, four = (provider.session(conv(), threads=n).run(None, {"x": x})[0] for n in ("1", "4"))
    assert np.array_equal(one, four)


def memory() -> int:
    gc.collect()
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def test_sessions_leave_nothing_behind():
    blob = model(
        [("MatMul", ["x", "w"], ["y"])], [("x", F, ["n", 512])], [("y", F, ["n", 512])], [("w", rand(512, 512))]
    )
    before = 0
    for i in range(110):
        if i == 10:
            before = memory()
        s = provider.session(blob)
        s.run(None, {"x": rand(2, 512)})
        del s
    assert memory() - before < 40 << 20  # the weights alone are 100 MB


def test_wrong_sizes():
    blob = model([("MatMul", ["x", "y"], ["z"])], [("x", F, ["n", "k"]), ("y", F, ["m", 4])], [("z", F, ["n", 4])])
    s = provider.session(blob)
    with pytest.raises(Exception, match=r"input 'x'|input 'y'|k|MatMul"):
        s.run(None, {"x": rand(2, 3), "y": rand(5, 4)})
    assert s.run(None, {"x": rand(2, 3), "y": rand(3, 4)})[0].shape == (2, 4)  # the session still works


def test_index_out_of_range():
    blob = model([("Gather", ["x", "i"], ["y"])], [("x", F, [4]), ("i", I64, [1])], [("y", F, [1])])
    s = provider.session(blob)
    with pytest.raises(Exception, match=r"SOL: .*index"):
        s.run(None, {"x": rand(4), "i": np.array([9])})


def test_options_are_keys_of_the_configuration():
    with pytest.raises(Exception, match=r"SOL: .*speed"):
        provider.session(conv(), speed="fast")


def test_other_versions_of_onnx_runtime():
    """A base that has version 22 alone: the library says so with the status that this base makes."""
    said = []
    create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)(
        lambda code, text: said.append(text) or 77
    )
    api = (ctypes.c_void_p * 400)(ctypes.cast(create, ctypes.c_void_p))
    get = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(lambda v: ctypes.addressof(api) if v <= 22 else None)
    version = ctypes.create_string_buffer(b"1.22.0")
    text = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(version))
    base = (ctypes.c_void_p * 2)(ctypes.cast(get, ctypes.c_void_p), ctypes.cast(text, ctypes.c_void_p))
    library = ctypes.CDLL(sol.onnx.provider_path())
    library.CreateEpFactories.restype = ctypes.c_void_p
    n = ctypes.c_size_t(5)
    assert library.CreateEpFactories(b"SOL", base, None, None, ctypes.c_size_t(0), ctypes.byref(n)) == 77
    assert n.value == 0
    assert said == [b"SOL needs ONNX Runtime 1.24 or later, this is 1.22.0"]


def test_no_compiler(tmp_path):
    assert shutil.which("cc") or shutil.which("gcc")
    with pytest.raises(Exception, match=r"SOL: .*nothing-like-a-compiler"):
        provider.session(conv(), **{"compiler::name": "nothing-like-a-compiler", "cache::folder": str(tmp_path)})
