"""The sol command: output, exit codes, error messages."""

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import onnx
from build import info, model, node, one, tensor
from onnx import TensorProto, numpy_helper

ROOT = Path(__file__).resolve().parent.parent.parent
SOL = os.environ.get("SOL_COMMAND", str(ROOT / "build" / "cli" / "sol"))
GOOD, MISMATCH, USAGE, REJECTED, FAILED = range(5)
W = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
X = np.arange(8, dtype=np.float32).reshape(2, 4) - 3


def sol(*args, code=GOOD, cwd=None):
    done = subprocess.run([SOL, *map(str, args)], capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout if code in (GOOD, MISMATCH) else done.stderr


@pytest.fixture
def net(tmp_path):
    nodes = [node("MatMul", ["x", "w"], ["t"]), node("Relu", ["t"], ["y"])]
    m = model(nodes, [info("x", ["batch", 4])], [info("y", None)], [tensor("w", W)])
    m.producer_name = "tests"
    path = tmp_path / "net.onnx"
    onnx.save(m, path)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", np.maximum(X @ W, 0))
    return path


def test_help_and_version():
    assert "Exit codes" in sol("--help") == sol("-h") == sol("help")
    assert sol("help", "run") == sol("run", "--help") == sol("run", "-h")
    assert sol("--version").startswith("sol ")
    for command in ("info", "compile", "run", "verify", "bench", "cache", "wisdom", "config"):
        assert f"Usage: sol {command}" in sol(command, "--help")
    assert "usage" in sol(code=USAGE).lower()


def test_info(net, tmp_path):
    text = sol("info", net, "--dim", "batch=2")
    for part in (
        "tests",
        "opset 17",
        "x  f32[2, 4]",
        "y  f32[2, 5]",
        "MatMul",
        "parameters: 1, 20 values, 80 B",
        "operations: 90 FLOP",
    ):
        assert part in text, text
    nodes = [node("MatMul", ["x", "w"], ["t"]), node("Add", ["t", "b"], ["y"])]
    weights = [tensor("w", W), tensor("b", np.arange(5, dtype=np.float32)), tensor("unused", W)]
    onnx.save(model(nodes, [info("x", [2, 4])], [info("y", None)], weights), tmp_path / "bias.onnx")
    text = sol("info", tmp_path / "bias.onnx", "--verbose")
    assert "parameters: 2, 25 values, 100 B" in text
    assert "parameter b  f32[5]" in text, text
    assert "peak" in sol("info", net, "--dim", "batch=2", "--memory")
    assert "Conv" in sol("info", "--layers")


def test_run_and_files(net, tmp_path):
    out = sol("run", net, "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path / "out")
    assert out.strip() == str(tmp_path / "out" / "y.npy")
    assert np.allclose(np.load(tmp_path / "out" / "y.npy"), np.maximum(X @ W, 0), 1e-5, 1e-6)


def test_sizes_come_from_files_in_the_model_s_order(net, tmp_path):
    expected = sol("run", net, "--input", f"x={tmp_path / 'x.npy'}")
    assert "y  f32[2, 5]" in expected and sol("run", net, "--input", tmp_path / "x.npy") == expected
    np.save(tmp_path / "a.npy", np.zeros((2, 3), np.float32))
    assert "expected f32[2, 4], got f32[2, 3]" in sol("run", net, "--input", tmp_path / "a.npy", code=USAGE)
    np.save(tmp_path / "a.npy", np.zeros((2, 4, 1), np.float32))
    assert "expected f32[#0, 4], got f32[2, 4, 1]" in sol("run", net, "--input", tmp_path / "a.npy", code=USAGE)


@pytest.fixture
def halves(tmp_path):
    """A picture is halved, doubled and added: its height and width are multiples of 2. Weights say the channels."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="conv", pads=[1, 1, 1, 1]),
        node("MaxPool", ["a"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", ["p", "", "scales"], ["u"], mode="nearest"),
        node("Add", ["u", "a"], ["y"]),
    ]
    w = np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)
    weights = [tensor("w", w), tensor("scales", np.array([1, 1, 2, 2], np.float32))]
    m = model(nodes, [info("x", ["batch", None, "height", "width"])], [info("y", None)], weights)
    m.ir_version = 10
    onnx.save(m, tmp_path / "halves.onnx")
    return tmp_path / "halves.onnx"


def files(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file())


def test_one_program_serves_all_sizes(halves, tmp_path):
    cache = "--config", f"cache::folder={tmp_path / 'cache'}"
    session = ort.InferenceSession(halves, providers=["CPUExecutionProvider"])
    assert "Estimated Peak Memory Consumption: Inference ~" in sol("compile", halves, *cache)
    compiled = files(tmp_path / "cache")
    assert compiled
    for shape in ((1, 3, 8, 6), (2, 3, 16, 32), (5, 3, 64, 10)):
        x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
        np.save(tmp_path / "x.npy", x)
        sol("run", halves, "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path, *cache)
        y = np.load(tmp_path / "y.npy")
        np.testing.assert_allclose(y, session.run(None, {"x": x})[0], 1e-4, 1e-5)
        assert "equal" in sol("verify", halves, "--input", tmp_path / "x.npy", "--expected", tmp_path / "y.npy", *cache)
        assert files(tmp_path / "cache") == compiled, shape


def test_shapes_that_are_files(tmp_path):
    """The first file decides about the shape of the second, and is no input of the program."""
    inputs = [info("shape", [2], TensorProto.INT64), info("x", ["n", 4])]
    onnx.save(model([node("Reshape", ["x", "shape"], ["y"])], inputs, [info("y", None)]), tmp_path / "m.onnx")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.save(tmp_path / "x.npy", x)
    for s in ([4, 2], [-1, 8]):
        np.save(tmp_path / "s.npy", np.array(s))
        sol(
            "run",
            tmp_path / "m.onnx",
            "--input",
            tmp_path / "s.npy",
            "--input",
            tmp_path / "x.npy",
            "--output-dir",
            tmp_path,
        )
        assert np.array_equal(np.load(tmp_path / "y.npy"), x.reshape(s))
    assert "the model has 2 inputs, but 3 arrays are given" in sol(
        "run", tmp_path / "m.onnx", *["--input", tmp_path / "s.npy"], *["--input", tmp_path / "x.npy"] * 2, code=USAGE
    )


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((1, 3, 7, 8), "'height' is 7, expected a multiple of 2 (dimension 2 of input 'x'): node "),
        ((1, 4, 8, 8), "input 'x': expected f32[#0, 3, #1, #2], got f32[1, 4, 8, 8]; node 0 'conv', Conv"),
        ((3, 8, 8), "input 'x': expected f32[#0, 3, #1, #2], got f32[3, 8, 8]"),
    ],
)
def test_sizes_that_do_not_fit(halves, tmp_path, shape, text):
    np.save(tmp_path / "x.npy", np.zeros(shape, np.float32))
    error = sol("run", halves, "--input", tmp_path / "x.npy", code=USAGE)
    assert text in error and error.count("\n") == 1, error


def test_number_of_dimensions_is_that_of_the_model(halves, tmp_path):
    """Not of the sizes that wrong arrays suggest; and a layer that sizes do not fit says so in the model's words."""
    m = model([node("Add", ["x", "z"], ["y"])], [info("x", ["n", "m"]), info("z", ["n", "m"])], [info("y", None)])
    onnx.save(m, tmp_path / "add.onnx")
    np.save(tmp_path / "x.npy", np.zeros(7, np.float32)), np.save(tmp_path / "z.npy", np.zeros((2, 7), np.float32))
    files = ["--input", tmp_path / "x.npy", "--input", tmp_path / "z.npy"]
    assert "input 'x': expected f32[#0, #1], got f32[7]" in sol("run", tmp_path / "add.onnx", *files, code=USAGE)


def test_arrays_that_do_not_fit_a_model_of_numbers(tmp_path):
    """Where sizes cannot vary, since a pool's result must be as large as another input."""
    pool = node("MaxPool", ["x"], ["a"], kernel_shape=[2], strides=[2])
    m = model([pool, node("Concat", ["a", "z"], ["y"], axis=1)],
              [info("x", ["batch", 3, "n"]), info("z", ["batch", 1, "half"])], [info("y", None)])  # fmt: skip
    onnx.save(m, tmp_path / "cat.onnx")
    for name, shape in (("x", (2, 3, 8)), ("flat", (2, 3)), ("z", (2, 1, 4)), ("other", (3, 1, 4))):
        np.save(tmp_path / f"{name}.npy", np.zeros(shape, np.float32))
    for x, z, text in (
        ("flat", "z", "input 'x': expected 3 dimensions, got an array of 2"),
        ("x", "other", "size 'batch' is 3 in input 'z', but 2 in input 'x'"),
    ):
        files = ["--input", tmp_path / f"{x}.npy", "--input", tmp_path / f"{z}.npy"]
        assert text in sol("run", tmp_path / "cat.onnx", *files, code=REJECTED)


def test_sizes_that_a_layer_cannot_have(tmp_path):
    weights = [tensor("w", np.ones((2, 3, 5, 5), np.float32))]
    m = model([node("Conv", ["x", "w"], ["y"])], [info("x", ["n", 3, "height", 8])], [info("y", None)], weights)
    onnx.save(m, tmp_path / "conv.onnx")
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 4, 8), np.float32))
    error = sol("run", tmp_path / "conv.onnx", "--input", tmp_path / "x.npy", code=USAGE)
    assert "with 'n' 1, 'height' 4: layer" in error and "it needs a size height-5, which would be -1" in error, error
    error = sol("run", tmp_path / "conv.onnx", "--dim", "height=3", code=REJECTED)
    assert "leaves sizes open: 'n'" in error and "With sizes that vary: " in error and "Conv" in error, error


def test_limits_that_are_given_hold(halves, tmp_path):
    """Also for sizes that the program of all sizes excludes, which have one of their own."""
    for n in (2, 0):
        np.save(tmp_path / "x.npy", np.zeros((n, 3, 8, 8), np.float32))
        error = sol("run", halves, "--input", tmp_path / "x.npy", "--dim", "batch=4..64", code=USAGE)
        assert f"'batch' is {n}, but is limited to 4..64" in error, error


def test_files_that_the_program_of_all_sizes_excludes_get_their_own(tmp_path):
    """Sizes that it takes for equal, of which one is 1 here, and arrays without elements."""
    m = model([node("Add", ["x", "z"], ["y"])], [info("x", ["n", 4]), info("z", ["m", 4])], [info("y", None)])
    onnx.save(m, tmp_path / "add.onnx")
    for n in range(4):
        np.save(tmp_path / f"{n}.npy", np.full((n, 4), n, np.float32))

    def add(n, k, **options):
        return sol(
            "run",
            tmp_path / "add.onnx",
            "--input",
            tmp_path / f"{n}.npy",
            "--input",
            f"z={tmp_path / f'{k}.npy'}",
            **options,
        )

    assert "y  f32[3, 4]  mean 6," in add(3, 3)
    assert "y  f32[3, 4]  mean 4," in add(3, 1)
    assert "y  f32[0, 4]" in add(0, 0)
    error = add(3, 2, code=USAGE)
    assert "'n' is 2 in input 'z' (dimension 0) but 3 in 'x' (dimension 0)" in error, error


def test_info_shows_sizes_that_vary_and_why_others_do_not(halves):
    lines = sol("info", halves).splitlines()
    assert "  x  f32[#0, 3, #1, #2]" in lines and "  y  f32[#0, 4, #1, #2]" in lines, lines
    assert "  batch = #0, at least 1" in lines, lines
    assert any(line.startswith("  height = #1, at least 1, a multiple of 2: node ") for line in lines), lines
    assert any(line.startswith("  x.1 = 3: node 0 'conv', Conv") for line in lines), lines
    assert any(line.endswith("at batch=8, height=224, width=224") for line in lines if "FLOP" in line), lines
    lines = sol("info", halves, "--dim", "height=6", "--dim", "width=8").splitlines()
    assert "  x  f32[#0, 3, 6, 8]" in lines and "  height = 6" in lines, lines


def test_info_says_every_open_size(tmp_path):
    x = info("x", ["batch", "words", 4])
    onnx.save(model([node("Relu", ["x"], ["y"])], [x], [info("y", None)]), tmp_path / "two.onnx")
    text = sol("info", tmp_path / "two.onnx", "--dim", "batch=2", "--dim", "words=7")
    assert "open sizes, here: batch=2, words=7 (--dim NAME=SIZE for others)" in text, text


def test_random_runs_and_bench_take_open_sizes_as_one_and_say_so(tmp_path):
    x, w = info("x", ["batch", "words", 4]), info("w", ["words"])
    m = model([node("Relu", ["x"], ["y"]), node("Abs", ["w"], ["z"])], [x, w], [info("y", None), info("z", None)])
    onnx.save(m, tmp_path / "two.onnx")
    np.save(tmp_path / "w.npy", np.zeros(7, np.float32))

    def both(*args):
        done = subprocess.run([SOL, *map(str, args)], capture_output=True, text=True, check=True)
        return done.stdout, done.stderr

    out, error = both("run", tmp_path / "two.onnx", "--random")
    assert "y  f32[1, 1, 4]" in out and "open sizes, here: batch=1, words=1 (--dim NAME=SIZE for others)" in error
    out, error = both(
        "run", tmp_path / "two.onnx", "--random", "--dim", "batch=3", "--input", f"w={tmp_path / 'w.npy'}"
    )
    assert "y  f32[3, 7, 4]" in out and "open sizes, here: words=7 (" in error
    out, error = both("bench", tmp_path / "two.onnx", "--rounds", 2, "--dim", "words=5", "--dim", "batch=2")
    assert "2 rounds" in out and "open sizes" not in error
    out, error = both("bench", tmp_path / "two.onnx", "--rounds", 2, "--dim", "words=5")
    assert "2 rounds" in out and "open sizes, here: batch=1 (" in error


def test_random_data_is_the_same_for_a_seed(net, tmp_path):
    a = sol("run", net, "--random", "--dim", "batch=3", "--seed", 7)
    assert a == sol("run", net, "--random", "--dim=batch=3", "--seed=7", "--threads", 2)
    assert a != sol("run", net, "--random", "--dim", "batch=3", "--seed", 8)
    assert "y  f32[3, 5]" in a


def test_verify(net, tmp_path):
    args = ["verify", net, "--input", f"x={tmp_path / 'x.npy'}", "--expected", f"y={tmp_path / 'y.npy'}"]
    assert "equal" in sol(*args)
    np.save(tmp_path / "y.npy", np.maximum(X @ W, 0) + np.eye(2, 5, dtype=np.float32))
    assert "DIFFERS in 2 of 10 values, first in number 0: expected " in sol(*args, code=MISMATCH)
    sol(*args, "--atol", 2)
    np.save(tmp_path / "y.npy", np.zeros((2, 6), np.float32))
    assert "shape" in sol(*args, code=MISMATCH)
    sol(*args[:-1], f"nothing={tmp_path / 'y.npy'}", code=USAGE)


def test_verify_folders(net, tmp_path):
    for k in range(2):
        folder = tmp_path / f"test_data_set_{k}"
        folder.mkdir()
        x = X + k
        (folder / "input_0.pb").write_bytes(numpy_helper.from_array(x, "x").SerializeToString())
        (folder / "output_0.pb").write_bytes(numpy_helper.from_array(np.maximum(x @ W, 0), "y").SerializeToString())
    both = [tmp_path / "test_data_set_0", tmp_path / "test_data_set_1"]
    assert sol("verify", net, *both).count("equal") == 2
    (both[1] / "output_0.pb").write_bytes(numpy_helper.from_array(X, "y").SerializeToString())
    sol("verify", net, *both, code=MISMATCH)
    (both[0] / "input_0.pb").write_bytes(b"nonsense")
    sol("verify", net, *both, code=REJECTED)


def test_compile_bench_cache(net):
    assert "compiled in" in sol("compile", net, "--dim", "batch=1")
    text = sol("bench", net, "--dim", "batch=1", "--rounds", 3, "--threads", 2)
    assert "median" in text and "3 rounds" in text and "peak" in text and "this process: at most" in text


def test_cache_clear(net, tmp_path):
    cache = f"cache::folder={tmp_path / 'cache'}"
    sol("compile", net, "--dim", "batch=1", "--config", cache)
    assert any((tmp_path / "cache").rglob("*"))
    assert sol("cache", "--config", cache).strip() == str(tmp_path / "cache")
    sol("cache", "clear", "--config", cache)
    assert not any(p.is_file() and p.suffix == ".so" for p in (tmp_path / "cache").rglob("*"))


def test_one_cache_from_every_folder(net, tmp_path, monkeypatch):
    """A process finds what another one compiled, wherever it runs, and then needs no compiler."""
    monkeypatch.delenv("SOL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folders = tmp_path / "a", tmp_path / "b"
    for folder in folders:
        folder.mkdir()
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", "/nowhere")
    assert "compiler" in sol("run", net, "--random", "--dim", "batch=3", cwd=folders[0], code=FAILED)
    monkeypatch.setenv("PATH", path)
    first = sol("run", net, "--random", "--dim", "batch=3", cwd=folders[0])
    monkeypatch.setenv("PATH", "/nowhere")
    assert sol("run", net, "--random", "--dim", "batch=3", cwd=folders[1]) == first
    assert not any(os.listdir(f) for f in folders)
    assert os.listdir(tmp_path / "cache") == ["sol"]


def test_config():
    text = sol("config", "--config", "target=sse2")
    assert "compiler::name" in text
    assert next(line for line in text.splitlines() if line.startswith("target")).endswith("(changed)")


def test_fixed_input(tmp_path):
    m = model(
        [node("Reshape", ["x", "s"], ["y"])], [info("x", [2, 4]), info("s", [1], TensorProto.INT64)], [info("y", None)]
    )
    onnx.save(m, tmp_path / "m.onnx")
    np.save(tmp_path / "s.npy", np.array([-1]))
    assert "depends on" in sol("run", tmp_path / "m.onnx", "--random", code=REJECTED)
    args = ["run", tmp_path / "m.onnx", "--random", "--fix", f"s={tmp_path / 's.npy'}"]
    assert "y  f32[8]" in sol(*args)
    np.save(tmp_path / "s.npy", np.array([-1], np.int32))
    assert "expected a value of type int64, got int32" in sol(*args, code=REJECTED)
    np.save(tmp_path / "s.npy", np.array([-1], np.float16))
    assert "got f16" in sol(*args, code=REJECTED)


def test_interrupted(net):
    args = [SOL, "bench", net, "--dim", "batch=4000", "--rounds", "1000000"]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        time.sleep(2)
        running.send_signal(signal.SIGINT)
        _, error = running.communicate(timeout=60)
    assert running.returncode == FAILED and "interrupted" in error


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["fly"], USAGE, "no command 'fly'"),
        (["run"], USAGE, "usage: sol run"),
        (["run", "NET"], USAGE, "input 'x' is missing: give --input x=FILE.npy"),
        (["run", "NET", "--dim", "batch=2"], USAGE, "input 'x' is missing"),
        (["run", "NET", "--dim", "batch"], USAGE, "expected NAME=SIZE"),
        (["run", "NET", "--dim", "batch=two"], USAGE, "whole number"),
        (["run", "NET", "--dim", "bitch=2", "--random"], REJECTED, "no input has a dimension of that name"),
        (["run", "NET", "--dim", "batch="], USAGE, "--dim batch=: expected a whole number"),
        (["run", "NET", "--dim", "batch=1", "--dim", "batch=2"], USAGE, "given twice"),
        (["run", "NET", "--dim", "batch=9999999999", "--random"], FAILED, "of memory, this machine has"),
        (["run", "NET", "--input", "x="], USAGE, "expected [NAME=]FILE"),
        (["run", "NET", "--input", "x=X", "--input", "x=X"], USAGE, "given twice"),
        (["run", "NET", "--input", "X", "--input", "X"], USAGE, "the model has 1 input"),
        (["run", "NET", "--input", "x=X", "--output-dir", "X"], FAILED, "File exists"),
        (["bench", "NET", "--rounds", "0"], USAGE, "whole number from 1"),
        (["verify", "NET"], USAGE, "nothing to compare"),
        (["verify", "NET", "/nowhere"], FAILED, "there is no output_0.pb"),
        (["help", "fly"], USAGE, "no command 'fly'"),
        (["run", "NET", "-q"], USAGE, "no option -q"),
        (["run", "NET", "--speed"], USAGE, "no option --speed"),
        (["run", "NET", "--rounds", "3"], USAGE, "no option --rounds"),
        (["run", "NET", "--threads"], USAGE, "--threads: expected N"),
        (["run", "NET", "--random=1"], USAGE, "takes no value"),
        (["run", "NET", "extra"], USAGE, "takes no argument"),
        (["run", "NET", "--config", "nonsense=1"], USAGE, "nonsense"),
        (["run", "NET", "--input", "x=/nowhere.npy"], FAILED, "cannot open"),
        (["run", "NET", "--input", "z=X"], REJECTED, "no such input; there are 'x'"),
        (["run", "/nowhere.onnx", "--random"], FAILED, "nowhere"),
        (["run", "X", "--random"], REJECTED, "no ONNX file"),
        (["info", "."], FAILED, "regular file"),
        (["verify", "NET", "--input", "x=X"], USAGE, "nothing to compare"),
        (["cache", "fill"], USAGE, "sol cache clear"),
        (["wisdom", "fill"], USAGE, "sol wisdom clear"),
        (["wisdom", "merge"], USAGE, "sol wisdom merge"),
        (["wisdom", "merge", "/nowhere"], FAILED, "/nowhere"),
    ],
)
def test_mistakes(net, tmp_path, args, code, text):
    names = {"NET": str(net), "X": str(tmp_path / "x.npy")}
    args = [names.get(a, a.replace("=X", f"={tmp_path / 'x.npy'}")) for a in args]
    assert text in sol(*args, code=code)


def test_wrong_shape_and_type(net, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3), np.float32))
    assert "expected f32[2, 4], got f32[2, 3]" in sol("run", net, "--input", f"x={tmp_path / 'a.npy'}", code=USAGE)
    np.save(tmp_path / "a.npy", np.zeros((2, 4)))
    assert "expected f32[2, 4], got f64[2, 4]" in sol("run", net, "--input", f"x={tmp_path / 'a.npy'}", code=USAGE)


def test_rejected_model_lists_all(tmp_path):
    onnx.save(
        model([node("Foo", ["x"], ["a"]), node("Bar", ["x"], ["y"])], [info("x", [1])], [info("y", None)]),
        tmp_path / "m.onnx",
    )
    text = sol("run", tmp_path / "m.onnx", "--random", code=REJECTED)
    assert "Foo" in text and "Bar" in text


def test_no_compiler(net):
    assert "compiler" in sol(
        "run", net, "--random", "--dim", "batch=9", "--config", "compiler::name=/no/such/cc", code=FAILED
    )


# -- .npy


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 0, 3), (2, 3, 4)])
def test_npy_both_ways(tmp_path, dtype, shape):
    a = (np.arange(int(np.prod(shape))).reshape(shape) % 2).astype(dtype)
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    m = model([node("Identity", ["x"], ["y"])], [info("x", shape, kind)], [info("y", None, kind)])
    onnx.save(m, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.asfortranarray(a) if a.ndim > 1 else a)
    sol("run", tmp_path / "m.onnx", "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path)
    got = np.load(tmp_path / "y.npy")
    assert got.dtype == a.dtype and got.shape == a.shape and np.array_equal(got, a)


@pytest.mark.parametrize("n", [0, 5, 9, 20, 100, 129])
def test_npy_truncated(tmp_path, n):
    onnx.save(one("Relu", [2, 4]), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", X)
    data = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(data[:n])
    assert "x.npy" in sol("run", tmp_path / "m.onnx", "--input", f"x={tmp_path / 'x.npy'}", code=FAILED)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }",
        "{'shape': (1,)}",
        "",
    ],
)
def test_npy_hostile(tmp_path, header):
    onnx.save(one("Relu", [2, 4]), tmp_path / "m.onnx")
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
    assert "x.npy" in sol("run", tmp_path / "m.onnx", "--input", f"x={tmp_path / 'x.npy'}", code=FAILED)
