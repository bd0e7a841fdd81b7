"""Layers, passes and hooks from outside: against float64 and finite differences."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sol
import sol.onnx
import sol.pytorch
import torch
from sol import extend

SOFTCLIP = "x[A..] -> y[A..] | y[A] = m * tanh(x[A] / m)"
CUBE = """
int32_t cube(void *const *t, const int64_t *n, const double *r)
{
    const float *x = t[0];
    float *y = t[1];
    for (int64_t i = 0; i < n[0]; i++) y[i] = (float)(r[0] * x[i] * x[i] * x[i]);
    return n[0] && x[0] == 13.0f ? 7 : 0;
}
int32_t cube_gradient(void *const *t, const int64_t *n, const double *r)
{
    const float *x = t[0], *dy = t[1];
    float *dx = t[2];
    for (int64_t i = 0; i < n[0]; i++) dx[i] = (float)(3 * r[0] * x[i] * x[i] * dy[i]);
    return 0;
}
"""


@pytest.fixture(scope="module", autouse=True)
def _layers():
    sol.register_layer("extest::softclip", SOFTCLIP, attributes="m=2.0", doc="tanh with a limit")
    sol.register_layer(
        "extest::cube_gradient",
        "x:f32[A..] d_y:f32[A..] -> d_x:f32[A..]",
        attributes="s=1.0",
        source=CUBE,
        symbol="cube_gradient",
    )
    sol.register_layer(
        "extest::cube",
        "x:f32[A..] -> y:f32[A..]",
        attributes="s=1.0",
        gradient="extest::cube_gradient",
        source=CUBE,
        symbol="cube",
    )

    @torch.library.custom_op("extest::softclip", mutates_args=())
    def softclip(x: torch.Tensor, m: float = 2.0) -> torch.Tensor:
        return m * torch.tanh(x / m)

    @torch.library.custom_op("extest::cube", mutates_args=())
    def cube(x: torch.Tensor, s: float = 1.0) -> torch.Tensor:
        return s * x**3

    for op, d in (
        (softclip, lambda x, m: 1 - torch.tanh(x / m) ** 2),
        (cube, lambda x, s: 3 * s * x * x),
    ):
        op.register_fake(lambda x, _=None: torch.empty_like(x))

        def setup(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])
            ctx.number = inputs[1]

        def backward(ctx, dy, d=d):
            return dy * d(ctx.saved_tensors[0], ctx.number), None

        op.register_autograd(backward, setup_context=setup)


class Net(torch.nn.Module):
    def __init__(self, op):
        super().__init__()
        self.fc = torch.nn.Linear(6, 5)
        self.op = op

    def forward(self, x):
        return self.op(self.fc(x)) + 1


def compare(model, x, dtype_error=2e-6):
    """Forward and gradients of the optimized model are those of PyTorch."""
    torch.manual_seed(1)
    net = sol.optimize(model, x, copy=True)
    xs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
    ys = [model(xs[0]), net(xs[1])]
    for y in ys:
        (y * torch.arange(1.0, y.numel() + 1).reshape(y.shape)).sum().backward()
    assert torch.allclose(ys[0], ys[1], atol=dtype_error, rtol=dtype_error)
    assert torch.allclose(xs[0].grad, xs[1].grad, atol=1e-5, rtol=1e-5)
    for (name, p), (_, q) in zip(model.named_parameters(), net.named_parameters(), strict=True):
        assert torch.allclose(p.grad, q.grad, atol=1e-4, rtol=1e-5), name


@pytest.mark.parametrize("name, number", [("softclip", 0.7), ("cube", 0.5)])
def test_an_operator_of_the_name_of_a_layer(name, number):
    op = getattr(torch.ops.extest, name)
    compare(Net(lambda x: op(x, number)), torch.randn(3, 6))


def test_sizes_that_vary():
    model = Net(lambda x: torch.ops.extest.cube(torch.ops.extest.softclip(x, 1.5), 2.0))
    net = sol.optimize(model, torch.randn(3, 6), vdims=True)
    with torch.no_grad():
        for n in (0, 1, 7, 64):
            x = torch.randn(n, 6)
            assert torch.allclose(net(x), model(x), atol=1e-5)


def test_a_function_that_fails():
    net = sol.optimize(lambda x: torch.ops.extest.cube(x), torch.ones(3))
    with pytest.raises(sol.RunError, match=r"extest::cube.*its function returned 7"):
        net(torch.full((3,), 13.0))


def test_a_function_of_ctypes():
    @extend.LayerFunction
    def double(tensors, numbers, reals):
        x = ctypes.cast(tensors[0], ctypes.POINTER(ctypes.c_float))
        y = ctypes.cast(tensors[1], ctypes.POINTER(ctypes.c_float))
        for i in range(numbers[0]):
            y[i] = 2 * x[i]
        return 0

    sol.register_layer("extest::double", "x:f32[A..] -> y:f32[A..]", function=double)
    graph = sol._core.Graph()
    x = graph.input("x", "f32", (4,))
    graph.output("y", graph.layer("extest::double", None, None, (x,), {})[0])
    y = np.zeros(4, np.float32)
    graph.compile().run((np.arange(4, dtype=np.float32),), (y,))
    assert y.tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize(
    "args, message",
    [
        (("scale", "x[A] -> y[A] | y[A] = x[A]"), "expected a namespace and a name"),
        (
            ("extest::bad", "x[A] -> y[A]\n| y[A] = x[A"),
            r"definition extest::bad: line 2, column 13: expected .*, found the end",
        ),
        (("extest::softclip", "x[A] -> y[A] | y[A] = x[A]"), "registered with another definition"),
    ],
)
def test_messages(args, message):
    with pytest.raises(sol.InvalidError, match=message):
        sol.register_layer(*args)


def test_messages_of_compilers():
    with pytest.raises(sol.CompilerError, match=r"(?s)layer extest::bad: .*rejected its source.*\nbad\.c:2:21: error"):
        sol.register_layer(
            "extest::bad", "x:f32[A] -> y:f32[A]", source="\nint32_t bad(void) { retrun 0; }", symbol="bad"
        )
    with pytest.raises(sol.InvalidError, match="expected a function of ctypes"):
        sol.register_layer("extest::bad", "x:f32[A] -> y:f32[A]", function=print)


def test_a_missing_gradient_is_named():
    sol.register_layer("extest::blind", "x:f32[A..] -> y:f32[A..]", source=CUBE, symbol="cube", attributes="s=1.0")
    torch.library.define("extest::blind", "(Tensor x) -> Tensor")
    torch.library.impl("extest::blind", "default", lambda x: x**3)
    torch.library.register_fake("extest::blind", torch.empty_like)
    with pytest.raises(sol.UnsupportedError, match=r"extest::blind .*: it is not made of loops"):
        x = torch.ones(3, requires_grad=True)
        sol.optimize(lambda x: torch.ops.extest.blind(x), x)(x).sum().backward()


# -- hooks


def test_a_hook_of_an_operator():
    torch.library.define("extest::affine", "(Tensor x, Tensor w, float bias) -> Tensor")
    torch.library.impl("extest::affine", "default", lambda x, w, bias: x * w + bias)
    torch.library.register_fake("extest::affine", lambda x, w, bias: torch.empty_like(x))

    def run():
        return sol.optimize(lambda x: torch.ops.extest.affine(x, x, 3.0), torch.ones(4))(torch.arange(4.0))

    with pytest.raises(sol.UnsupportedError, match=r"extest\.affine\.default"):
        run()

    @sol.pytorch.register("extest::affine")
    def affine(b, x, w, bias):
        return b.add(b.mul(x, w), bias)

    assert run().tolist() == [3, 4, 7, 12]
    with pytest.raises(sol.InvalidError, match="expected an operator that exists"):
        sol.pytorch.register("extest::nosuch", affine)
    with pytest.raises(sol.InvalidError, match="SOL translates this operator itself"):
        sol.pytorch.register(torch.ops.aten.relu, affine)


class Gate(torch.nn.Module):
    """A module that PyTorch runs in NumPy, which nothing could trace."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([0.5, 1.0, 2.0]))

    def forward(self, x):
        return torch.from_numpy(np.tanh(x.detach().numpy())) * self.scale


class Gated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.gate = torch.nn.Linear(3, 3), Gate()

    def forward(self, x):
        return self.gate(self.fc(x))


def test_a_hook_of_a_module():
    @sol.pytorch.register(Gate, shape=lambda module, x: torch.empty_like(x))
    def gate(b, module, x):
        return b.mul(b.map("tanh", x), b.expand(b.param("scale"), x.shape))

    model, x = Gated(), torch.randn(4, 3)
    net = sol.optimize(model, x)
    with torch.no_grad():
        assert torch.allclose(net(x), model(x), atol=1e-6)
    net(x).sum().backward()  # the gradient goes through the hook, to its parameter, too
    expected = torch.tanh(model.fc(x)).sum(0)
    assert torch.allclose(model.gate.scale.grad, expected, atol=1e-5)


def test_a_hook_that_makes_another_shape():
    class Wrong(torch.nn.Module):
        def forward(self, x):
            return x + 1

    sol.pytorch.register(Wrong, lambda b, module, x: b.reshape(x, [2, 2]))
    with pytest.raises(sol.UnsupportedError, match=r"module Wrong: its hook: expected float32\[4\], got f32\[2, 2\]"):
        sol.optimize(torch.nn.Sequential(Wrong()), torch.ones(4))


# -- passes


def test_a_pass_of_python():
    code = """
import torch, sol
seen = []
def double_relu(graph):
    seen.append(str(graph))
    for layer in graph.layers:
        if layer.kind == "relu" and layer.name.startswith("relu"):
            (x,), (y,) = layer.inputs, layer.outputs
            assert x.maker is None and y.readers == 1 and x.shape == (3,) and x.dtype == "f32"
            more = graph.insert(layer, "neg", x)
            graph.replace(y, more)
sol.register_pass("extest::negate", double_relu, place="before identity")
print(sol.optimize(torch.relu, torch.ones(3))(torch.tensor([-1.0, 0.0, 2.0])).tolist(), "relu" in seen[0])
def fails(graph):
    raise ValueError("not this one")
sol.register_pass("extest::fails", fails)
try:
    sol.optimize(torch.tanh, torch.ones(3))
except sol.InvalidError as e:
    print(e)
try:
    sol.register_pass("extest::place", fails, place="behind all")
except sol.InvalidError as e:
    print(e)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    first, second, third = out.stdout.strip().splitlines()
    assert first == "[1.0, -0.0, -2.0] True"
    assert "pass extest::fails: ValueError: not this one" in second
    assert 'pass extest::place: place: expected "before NAME" or "after NAME"' in third


def test_a_plug_in():
    plugin = Path(sol.__file__).resolve().parents[2] / "build" / "test" / "libsol_example_extension.so"
    code = f"""
import torch, sol
y = sol.optimize(lambda x: x * torch.sigmoid(x), torch.ones(5))
x = torch.linspace(-2, 2, 5)
print((y(x) - x * torch.sigmoid(x)).abs().max().item(), [n for n, _, _ in sol.extend.layers() if "::" in n])
sol.load_extension({str(plugin)!r})  # once more
try:
    sol.load_extension("/nowhere.so")
except sol.FileError as e:
    print(e)
"""
    environment = {**os.environ, "SOL_EXTENSIONS": str(plugin)}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert out.returncode == 0, out.stderr
    first, second = out.stdout.strip().splitlines()
    assert float(first.split()[0]) < 1e-6 and "example::swish" in first
    assert second == "extension /nowhere.so: no such file"


# -- deployed


@pytest.mark.parametrize("varies", [False, True])
def test_deployed(tmp_path, varies):
    model = Net(lambda x: torch.ops.extest.cube(torch.ops.extest.softclip(x, 1.5), 2.0)).eval()
    keys = {"path": str(tmp_path), "lib_name": "libnet", "func_name": "net"}
    x = torch.randn(3, 6)
    sol.deploy(model, "shared_lib", keys, x, **({"vdims": True} if varies else {}))
    sys.path.insert(0, str(tmp_path))
    lib = ctypes.CDLL(str(tmp_path / "libnet.so"))
    assert not hasattr(lib, "cube")  # hidden
    assert hasattr(lib, "net")
    sys.path.pop(0)


def test_deploying_a_function_without_source(tmp_path):
    sol.register_layer("extest::pointer", "x:f32[A..] -> y:f32[A..]", function=extend.LayerFunction(lambda t, n, r: 0))
    torch.library.define("extest::pointer", "(Tensor x) -> Tensor")
    torch.library.impl("extest::pointer", "default", lambda x: x)
    torch.library.register_fake("extest::pointer", torch.empty_like)
    with pytest.raises(sol.UnsupportedError, match="is a function without its source"):
        sol.deploy(lambda x: torch.ops.extest.pointer(x), "shared_lib", {"path": str(tmp_path)}, torch.ones(3))


def registered_objects(folder, flags=("-fPIC",)):
    """cube in a static library, its gradient in an object file, registered as extest::stored."""
    (folder / "cube.c").write_text("#include <stdint.h>\n" + CUBE)
    subprocess.run(["cc", "-O2", *flags, "-c", folder / "cube.c", "-o", folder / "cube.o"], check=True)
    subprocess.run(["ar", "rcs", folder / "libcube.a", folder / "cube.o"], check=True)
    given = {"attributes": "s=1.0", "replace": True}
    sol.register_layer(
        "extest::stored_gradient",
        "x:f32[A..] d_y:f32[A..] -> d_x:f32[A..]",
        objects=folder / "cube.o",
        symbol="cube_gradient",
        **given,
    )
    sol.register_layer(
        "extest::stored",
        "x:f32[A..] -> y:f32[A..]",
        objects=[folder / "libcube.a"],
        symbol="cube",
        gradient="extest::stored_gradient",
        **given,
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("objects")
    registered_objects(folder)
    torch.library.define("extest::stored", "(Tensor x) -> Tensor")
    torch.library.impl("extest::stored", "default", lambda x: x**3)
    torch.library.register_fake("extest::stored", torch.empty_like)

    class Stored(torch.nn.Module):
        def forward(self, x):
            return torch.ops.extest.stored(torch.ops.extest.softclip(x, 1.5))

    return Stored()


def test_functions_in_object_files(stored):
    x = torch.randn(3, 6, requires_grad=True)
    y = sol.optimize(stored.train(), x)(x)
    y.sum().backward()
    z = x.detach().double().requires_grad_()
    want = (1.5 * torch.tanh(z / 1.5)) ** 3
    want.sum().backward()
    torch.testing.assert_close(y.double(), want, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(x.grad.double(), z.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", ["shared_lib", "static_lib"])
def test_deployed_with_object_files(stored, tmp_path, target):
    x = torch.randn(3, 6)
    sol.deploy(stored.eval(), target, {"path": str(tmp_path), "lib_name": "libnet", "func_name": "net"}, x)
    library = tmp_path / "libnet.so"
    if target == "static_lib":
        whole = ["-Wl,--whole-archive", tmp_path / "libnet.a", "-Wl,--no-whole-archive", "-lm", "-pthread"]
        subprocess.run(["cc", "-shared", "-o", library, *whole], check=True)
    y = ctypes.POINTER(ctypes.c_float)()
    ctypes.CDLL(str(library)).net(None, ctypes.c_void_p(x.data_ptr()), ctypes.byref(y))
    np.testing.assert_allclose(
        np.ctypeslib.as_array(y, (3, 6)), ((1.5 * torch.tanh(x / 1.5)) ** 3).numpy(), rtol=1e-5, atol=1e-6
    )


def test_bad_object_files(stored, tmp_path):
    def bad(error, match, **given):
        with pytest.raises(error, match=match):
            sol.register_layer("extest::bad", "x:f32[A] -> y:f32[A]", **given)

    bad(sol.FileError, r"layer extest::bad: objects: .*nowhere\.o", objects=[tmp_path / "nowhere.o"], symbol="f")
    bad(sol.InvalidError, "expected a source or objects, got both", objects=["a.o"], source="x", symbol="f")
    bad(sol.InvalidError, "the name of the function in its objects", objects=["a.o"])
    (tmp_path / "empty.c").write_text("int other(void) { return 0; }")
    subprocess.run(["cc", "-fPIC", "-c", tmp_path / "empty.c", "-o", tmp_path / "empty.o"], check=True)
    bad(
        sol.CompilerError,
        "(?s)rejected its objects.*undefined.*nosuch",
        objects=[tmp_path / "empty.o"],
        symbol="nosuch",
    )
    with pytest.raises(sol.UnsupportedError, match="is in object files: target source: not supported; choose"):
        sol.deploy(stored.eval(), "source", {"path": str(tmp_path)}, torch.ones(3))


# -- ONNX


def test_an_operator_of_a_domain():
    helper = pytest.importorskip("onnx").helper
    sol.register_layer("com.extest::Softclip", SOFTCLIP, attributes="m=2.0 unused=[1,2]")

    def model(**attributes):
        node = helper.make_node("Softclip", ["x"], ["y"], domain="com.extest", **attributes)
        graph = helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info("x", 1, ["n", 3])],
            [helper.make_tensor_value_info("y", 1, ["n", 3])],
        )
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.extest", 1)]
        return helper.make_model(graph, opset_imports=opsets).SerializeToString()

    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(4, 3)
    made = sol.optimize(model(m=0.5, unused=[3]))(x)
    made = made[0] if isinstance(made, list | tuple) else made
    assert np.allclose(made, 0.5 * np.tanh(x / 0.5), atol=1e-6)
    with pytest.raises(sol.Error, match=r"unknown attribute 'alpha'; it has: m=2\.0"):
        sol.optimize(model(alpha=1.0))(x)


# -- operators of ONNX models


def onnx_model(operator, *inputs, domain="com.extest", **attributes):
    """The operator of minus the first input, and of the others."""
    helper = pytest.importorskip("onnx").helper
    *given, result = [helper.make_tensor_value_info(n, 1, ["n", 3]) for n in (*inputs, "result")]
    nodes = [helper.make_node("Neg", [inputs[0]], ["z"], name="negate")]
    nodes += [helper.make_node(operator, ["z", *inputs[1:]], ["result"], "it", domain=domain, **attributes)]
    graph = helper.make_graph(nodes, "model", given, [result])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.extest", 1)], ir_version=10
    )


def test_a_hook_of_an_operator_of_onnx(tmp_path):
    """The node becomes a C function and a layer, also in training, for all sizes, and deployed."""
    seen = []

    @sol.onnx.register("com.extest", "CubeAdd")
    def cube_add(b, node, x, y=None):
        seen.append(node)
        cube = b.layer("extest::cube", x, s=node.attributes.get("factor", 1.0))
        return b.layer("add", cube, b.scalar(2, x.dtype) if y is None else y)

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 5, 3)).astype("float32")
    model = onnx_model("CubeAdd", "x", "y", factor=0.5, axes=[1, 2], mode="fast")
    want = y - 0.5 * x**3
    net = sol.optimize(model)
    assert np.allclose(net(x, y), want, rtol=1e-5, atol=1e-6)
    assert np.allclose(net(x[:2], y[:2]), want[:2], rtol=1e-5, atol=1e-6)
    node = seen[0]
    assert (node.domain, node.operator, node.name, node.outputs) == ("com.extest", "CubeAdd", "it", 1)
    assert node.attributes == {"factor": 0.5, "axes": [1, 2], "mode": "fast"}
    assert np.allclose(sol.optimize(onnx_model("CubeAdd", "x"))(x), 2 - x**3, rtol=1e-5, atol=1e-6)
    module = sol.optimize(model, x, y, framework="pytorch")
    t = torch.from_numpy(x).requires_grad_()
    module(t, torch.from_numpy(y)).sum().backward()
    assert np.allclose(t.grad, -1.5 * x**2, rtol=1e-4, atol=1e-5)
    sol.deploy(model, "shared_lib", {"path": str(tmp_path), "lib_name": "libcubes"}, x, y)
    assert list(tmp_path.glob("*cubes*.so"))


def test_mistakes_with_hooks_of_onnx():
    with pytest.raises(sol.InvalidError, match="operator Conv: SOL translates this operator itself"):
        sol.onnx.register("", "Conv", lambda b, node, x: x)
    with pytest.raises(sol.InvalidError, match="expected a function, got 3"):
        sol.onnx.register("com.extest", "Wrong", 3)
    for made, message in (
        (lambda b, node, x: None, "expected a tensor of this graph, got None"),
        (lambda b, node, x: [x, x], "expected 1 tensors as results, got"),
        (lambda b, node, x: b.layer("extest::nothing", x), "extest::nothing"),
        (lambda b, node, x: 1 / 0, "ZeroDivisionError: division by zero"),
    ):
        sol.onnx.register("com.extest", "Wrong", made)
        with pytest.raises(sol.Error, match=f"com.extest.Wrong(.|\n)*{message}"):
            sol.optimize(onnx_model("Wrong", "x"), np.ones((2, 3), "float32"))
    assert np.allclose(
        sol.optimize(onnx_model("Identity", "x", domain=""), np.ones((2, 3), "float32"))(np.ones((2, 3), "float32")), -1
    )
