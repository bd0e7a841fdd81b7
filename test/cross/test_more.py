"""Parameters from one framework to another, libraries of models of every framework, sizes that vary, devices, errors."""

import copy
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import sol
import tensorflow as tf
import torch
from sol import supported
from sol.parsed import flatten
from sources import SOURCES, Torch
from torch import nn


def test_transfer():
    """Trained in Keras, back into PyTorch, on into JAX and NumPy."""
    model, x = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).eval(), torch.randn(16, 4)
    net = sol.optimize(model, x, framework="tensorflow")
    net.compile("sgd", "mse")
    net.fit(x.numpy(), x.numpy()[:, :2], batch_size=8, epochs=1, verbose=0)
    want = net(x.numpy()).numpy()
    assert np.abs(model(x).detach().numpy() - want).max() > 1e-4
    sol.transfer(net, model)
    np.testing.assert_allclose(model(x).detach().numpy(), want, rtol=1e-5, atol=1e-6)
    for framework in ("jax", "numpy"):
        other = sol.optimize(model, x, framework=framework)
        for name in list(other.parameters):
            other.parameters[name] = other.parameters[name] * 0
        sol.transfer(net, other)
        got = other(other.parameters, jnp.asarray(x.numpy())) if framework == "jax" else other(x.numpy())
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    sol.transfer(model.state_dict(), net)
    parameters = dict.fromkeys(model.state_dict())
    with pytest.raises(
        sol.InvalidError, match=r"sol\.transfer: target: '0\.weight': expected an array, got <class 'NoneType'>"
    ):
        sol.transfer(model, parameters)


def test_transfer_that_does_not_fit():
    a, b = nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 3))
    with pytest.raises(
        sol.InvalidError, match=r"only the source has: weight, bias\n  only the target has: 0\.weight, 0\.bias"
    ):
        sol.transfer(a, b)
    with pytest.raises(
        sol.InvalidError, match=r"other shapes or types: weight: expected float32\[3, 5\], got float32\[3, 4\]$"
    ):
        sol.transfer(a, nn.Linear(5, 3))
    with pytest.raises(sol.UnsupportedError, match="a function of JAX has no parameters of its own"):
        sol.transfer({}, jax.jit(lambda x: x))


def deployed(folder, s, batch=None):
    """The results of a deployed library."""
    keys = {"path": folder, "lib_name": "libnet", "func_name": "net"}
    sol.deploy(s.model, "shared_lib", keys, *s.args, batch_size=batch, autotuning=False)
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location(f"net_{folder.name}", folder / "libnet_numpy.py")
    library = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(library)
    return library.run(*s.arrays)


@pytest.mark.parametrize(
    "source", ["keras", "jax", *(pytest.param(n, marks=pytest.mark.slow) for n in ("torch", "onnx"))]
)
def test_deploy(source, tmp_path):
    """A library computes what the framework does."""
    s = SOURCES[source]()
    got = deployed(tmp_path, s)
    assert {v.shape for v in got} == {v.shape for v in s.result}
    for want in s.result:
        assert any(v.shape == want.shape and np.allclose(v, want, rtol=1e-4, atol=1e-6) for v in got)


def test_deploy_what_changes_its_variables(tmp_path):
    s = SOURCES["tf.Module"]()
    with pytest.raises(
        sol.UnsupportedError, match=r"sol\.deploy: module: writes mean, which a deployed network cannot"
    ):
        deployed(tmp_path, s)


def test_dims():
    s = SOURCES["keras"]()
    found = sol.dims(s.model, *s.args)
    assert found.inputs == ["in_0 [#0, #1, #2, 3]", "in_1 [#0, 1]"] and [d.min for d in found.dims] == [1, 1, 1]
    assert "dimension 3 of in_0 is fixed at 3: " in str(found)
    s = SOURCES["jax"]()
    found = sol.dims(s.model, *s.args)
    assert found.inputs[0].startswith("in_0 [#0, ") and found.dims[0].where[0] == "dimension 0 of argument 1"


def test_batches_share_one_program():
    """A batch that varies compiles once, for inference and for training."""
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), torch.randn(5, 4)
    net = sol.optimize(model, x, framework="tensorflow")
    for n in (5, 1, 2, 9):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(net(np.ones((n, 4), np.float32), training=True))
        assert len(tape.gradient(loss, net.trainable_variables)) == 4
        np.testing.assert_allclose(net(x[:n].numpy()), model(x[:n]).detach(), rtol=1e-5, atol=1e-6)
    families = net._sol.families.values()
    assert len(families) == 2 and all(f.fixed is None for f in families)

    inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(2)])
    net = sol.optimize(inner, x, framework="pytorch", vdims=True)
    for n in (5, 1, 2, 9):
        given = torch.randn(n, 4)
        net(given).sum().backward()
        with torch.no_grad():
            np.testing.assert_allclose(net(given), inner(given.numpy()), rtol=1e-5, atol=1e-6)
    assert len(net._sol.programs) == 2


def test_functions_of_jax_at_all_sizes():
    """One program in PyTorch and on arrays; a size that the function compares has one of its own."""
    params = {"w": jnp.ones((4, 3)) / 4, "b": jnp.arange(3.0)}

    def function(p, x):
        return jnp.tanh(x @ p["w"] + p["b"]) * (2 if x.shape[0] == 3 else 1)

    module = sol.optimize(function, params, jnp.ones((5, 4)), framework="pytorch", vdims=True)
    plain = sol.optimize(function, params, jnp.ones((5, 4)), framework="numpy", vdims=True)
    for n in (5, 1, 3, 9):
        x = torch.randn(n, 4, requires_grad=True)
        want, pull = jax.vjp(lambda x: function(params, x), jnp.asarray(x.detach().numpy()))
        result = module(x)
        result.sum().backward()
        np.testing.assert_allclose(result.detach(), want, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(x.grad, pull(jnp.ones_like(want))[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(plain(x.detach().numpy()), want, rtol=1e-5, atol=1e-6)
    assert len(module._sol.programs) == 3 and len(plain._programs) == 1
    sizes = sol.optimize(function, params, jnp.ones((5, 4)), framework="numpy", vdims=[False])
    assert sizes(np.ones((2, 4), np.float32)).shape == (2, 3) and len(sizes._programs) == 2


def test_models_in_jax_at_all_sizes():
    """One program for inference and one for gradients, also within `jit`; sizes that it does not take have programs of their own."""
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Flatten(2))
    net = sol.optimize(model, torch.randn(2, 2, 6, 8), framework="jax", vdims=True)
    for shape in ((2, 2, 6, 8), (5, 2, 4, 9), (1, 2, 7, 3), (0, 2, 6, 8)):
        x = torch.randn(shape)
        want = model(x)
        model.zero_grad()
        want.square().sum().backward()
        given = jnp.asarray(x.numpy())
        for result in (net(net.parameters, given), jax.jit(net)(net.parameters, given)):
            np.testing.assert_allclose(result, want.detach(), rtol=1e-4, atol=1e-5)
        gradients = jax.jit(jax.grad(lambda p, x=given: (net(p, x) ** 2).sum()))(net.parameters)
        np.testing.assert_allclose(gradients["0.weight"], model[0].weight.grad, rtol=1e-4, atol=1e-4)
    (family,) = (e.program.varying for e in net._families._entries.values())
    assert len(family._networks) == 2 and len(family._sized) <= 1 and not len(net._programs)


def test_models_in_keras_at_all_sizes():
    """What the model needs as a number stays; the other sizes vary in one program, with gradients in another."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
    net = sol.optimize(model, torch.randn(5, 6, 4), framework="tensorflow", vdims=True)
    for shape in ((5, 6, 4), (1, 2, 4), (3, 9, 4)):
        x = torch.randn(shape)
        model.zero_grad()
        want = model(x)
        want.square().sum().backward()
        np.testing.assert_allclose(net(x.numpy()), want.detach(), rtol=1e-5, atol=1e-6)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(net(x.numpy()) ** 2)
        gradient = tape.gradient(loss, net.trainable_variables[0])
        np.testing.assert_allclose(gradient, model[0].weight.grad, rtol=1e-4, atol=1e-5)
    assert len(net._sol.families) == 2 and all(f.fixed is None for f in net._sol.families.values())
    with pytest.raises(sol.InvalidError, match=r"does not take \(float32\[2, 3, 5\]\)"):
        net(np.ones((2, 3, 5), np.float32))


def test_random_layers():
    """The streams of the target's framework: the same numbers for the same seed."""
    model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5))
    x, made = np.ones((2, 4), np.float32), []
    k = sol.optimize(model, torch.from_numpy(x), framework="tensorflow")
    j = sol.optimize(model, torch.from_numpy(x), framework="jax")
    for _ in range(2):
        keras.utils.set_random_seed(3)
        made.append([k(x, training=True).numpy() for _ in range(2)])
        made[-1].append(np.asarray(jax.jit(lambda key: j.train(j.parameters, x, key=key)[0])(jax.random.key(5))))
    np.testing.assert_array_equal(made[0], made[1])
    assert not np.array_equal(made[0][0], made[0][1])
    assert all(20 < (v == 0).sum() < 108 for v in made[0])
    with pytest.raises(sol.InvalidError, match=r"Sequential: has random layers: train\(parameters, \.\., key="):
        j.train(j.parameters, x)


OPENCL = [f"opencl:{d['index']}" for d in sol.devices() if d["type"] == "opencl" and not d["why"]][:1]


@pytest.mark.parametrize("device", ["far", *OPENCL])
def test_device(device):
    """Models of another framework on a device with memory of its own."""
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), torch.randn(5, 4)
    want = model(x).detach().numpy()
    with sol.device(device):
        for framework in ("tensorflow", "numpy"):
            np.testing.assert_allclose(
                sol.optimize(model, x, framework=framework)(x.numpy()), want, rtol=1e-5, atol=1e-6
            )
        net = sol.optimize(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]), x, framework="pytorch")
        net(x).sum().backward()
        assert all(p.grad is not None for p in net.parameters())
        net = sol.optimize(model, x, framework="jax")
        np.testing.assert_allclose(net(net.parameters, jnp.asarray(x.numpy())), want, rtol=1e-5, atol=1e-6)


class Clash(tf.Module):
    """Two variables with one name in other frameworks."""

    def __init__(self):
        super().__init__("clash")
        self.a, self.b = tf.Variable(1.0, name="x/y"), tf.Variable(2.0, name="x.y")

    def __call__(self, x):
        return x * self.a + self.b


def test_vmap():
    """Under jax.vmap, a wrapped model runs example by example: with batches of arguments and of parameters, and their gradients."""
    x = torch.randn(3, 2, 4)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    net = sol.optimize(model, x[0], framework="jax")
    want = model(x).detach().numpy()
    data, shared = jnp.asarray(x.numpy()), net.parameters
    np.testing.assert_allclose(jax.vmap(net, (None, 0))(shared, data), want, atol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.vmap(net, (None, 0)))(shared, data), want, atol=1e-6)
    many = {n: jnp.stack([v, 2 * v, v]) for n, v in shared.items()}
    found = jax.vmap(net, (0, None))(many, data[0])
    np.testing.assert_allclose(found[2], want[0], atol=1e-6)
    assert np.abs(found[1] - found[0]).max() > 1e-3

    def loss(parameters, x):
        return (net(parameters, x) ** 2).sum()

    found = jax.vmap(jax.grad(loss), (None, 0))(shared, data)
    for i in range(3):
        (model(x[i]) ** 2).sum().backward()
        np.testing.assert_allclose(found["0.weight"][i], model[0].weight.grad, atol=1e-5)
        model.zero_grad()


@pytest.mark.parametrize("framework", ["tensorflow", "pytorch", "jax"])
def test_names_that_exporters_write(framework, tmp_path):
    """`onnx::MatMul_7`, as PyTorch's exporter names weights that it transposed."""
    helper = pytest.importorskip("onnx").helper
    rng = np.random.default_rng(0)
    weights = {f"onnx::MatMul_{i}": rng.normal(size=(4, 4)).astype(np.float32) for i in (7, 8)}
    nodes = [
        helper.make_node("MatMul", ["x", "onnx::MatMul_7"], ["h"]),
        helper.make_node("MatMul", ["h", "onnx::MatMul_8"], ["z"]),
        helper.make_node(
            "Constant", [], ["/rnn/Constant_output_0"], value=helper.make_tensor("", 1, [2, 4], [1.0] * 8)
        ),
        helper.make_node("Add", ["z", "/rnn/Constant_output_0"], ["y"]),  # a state to begin with, which is not trained
    ]
    values = [helper.make_tensor_value_info(n, 1, [2, 4]) for n in "xy"]
    made = [helper.make_tensor(n, 1, w.shape, w.tobytes(), raw=True) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], made)
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, ir_version=9).SerializeToString())
    x = rng.normal(size=(2, 4)).astype(np.float32)
    net = sol.optimize(str(path), framework=framework)
    if framework == "pytorch":
        assert [n for n, _ in net.named_parameters()] == ["onnx.MatMul_7", "onnx.MatMul_8"]
        y = net(torch.tensor(x)).detach()
    else:
        y = net(net.parameters, x) if framework == "jax" else net(x)
    if framework == "tensorflow":
        assert len(net.trainable_variables) == 2
    first, second = weights.values()
    np.testing.assert_allclose(np.asarray(y), x @ first @ second + 1, rtol=1e-4, atol=1e-5)


def test_errors():
    """One clear message each."""
    x = torch.zeros(2, 4)
    with pytest.raises(sol.UnsupportedError, match=r"framework 'nonsense': not supported; there are 'pytorch', 'jax'"):
        sol.optimize(nn.Linear(4, 2), x, framework="nonsense")
    with pytest.raises(sol.UnsupportedError, match=r"framework 'onnx': other models as models of onnx: not supported"):
        sol.optimize(nn.Linear(4, 2), x, framework="onnx")
    with pytest.raises(
        sol.InvalidError, match=r"parameters 'x/y' and 'x\.y': both are 'x\.y' in other frameworks; rename one"
    ):
        sol.optimize(Clash(), np.zeros(3, np.float32), framework="pytorch")
    with pytest.raises(sol.UnsupportedError, match=r"0\.weight is float64, which JAX has after jax\.config\.update"):
        sol.optimize(nn.Sequential(nn.Linear(4, 2)).double(), x.double(), framework="jax")
    net = sol.optimize(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]), x, framework="pytorch")
    with pytest.raises(sol.UnsupportedError, match=r"a model of tensorflow runs by SOL's programs only"):
        torch.func.vmap(net)(x)
    with pytest.raises(sol.UnsupportedError, match=r"a model of pytorch in Keras: only its weights can be saved"):
        sol.optimize(Torch(), framework="tensorflow").get_config()


def test_changed_structure():
    """Parameters that are gone, or have another shape or type."""
    model, x = nn.Linear(4, 2), torch.zeros(2, 4)
    net = sol.optimize(
        keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="last")]), x, framework="pytorch"
    )
    with pytest.raises(
        sol.InvalidError,
        match=r"parameter sequential\.last\.kernel: expected float32\[4, 2\], got float64\[4, 2\]; a model of",
    ):
        copy.deepcopy(net).double()(x)
    other = copy.deepcopy(net)
    del other.sequential.last.bias
    with pytest.raises(sol.InvalidError, match=r"parameter sequential\.last\.bias: expected float32\[2\], got none"):
        other(x)
    net = sol.optimize(model, x, framework="jax")
    with pytest.raises(sol.InvalidError, match=r"Linear: parameters: 'weight': expected float32\[2, 4\], got none"):
        net(jnp.zeros((2, 4)), jnp.zeros((2, 4)))
    with pytest.raises(sol.InvalidError, match=r"'bias': expected float32\[2\], got float32\[3\]"):
        net({**net.parameters, "bias": jnp.zeros(3)}, jnp.zeros((2, 4)))


def test_without_the_other_framework(monkeypatch):
    """A framework that is not installed."""
    for name in [n for n in sys.modules if n.partition(".")[0] == "jax" or n.startswith("sol.jax")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.setattr(supported, "_installed", lambda package: None)
    with pytest.raises(
        sol.UnsupportedError, match=r"SOL: expected jax 0\.10, got jax \(not installed\); pip install 'sol\[jax\]'"
    ):
        sol.optimize(nn.Linear(4, 2), torch.zeros(2, 4), framework="jax")


def test_the_result_belongs_to_its_framework():
    """What frameworks do with their own objects."""
    inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)])
    net = sol.optimize(inner, torch.zeros(2, 4), framework="pytorch")
    twin = copy.deepcopy(net)
    with torch.no_grad():
        net.get_parameter(
            "dense.kernel" if "dense.kernel" in net.state_dict() else next(iter(net.state_dict()))
        ).zero_()
    x = torch.randn(3, 4)
    assert not torch.equal(net(x), twin(x))
    net.load_state_dict(twin.state_dict())
    assert torch.equal(net(x), twin(x))

    k = sol.optimize(nn.Linear(4, 2), x, framework="tensorflow")
    other = copy.deepcopy(k)
    k.set_weights([w * 0 for w in k.get_weights()])
    assert not np.any(k(x.numpy())) and np.any(other(x.numpy()))
    outer = keras.Sequential([keras.Input((4,)), k, keras.layers.Dense(3)])
    outer.compile("adam", "mse")
    assert outer.fit(np.ones((6, 4)), np.ones((6, 3)), verbose=0, epochs=1).history["loss"][0] > 0
    assert flatten(outer.predict(np.ones((2, 4)), verbose=0).shape) == [2, 3]


def test_example(tmp_path):
    """The example runs."""
    path = Path(__file__).parents[2] / "examples" / "any_framework.py"
    env = {**os.environ, "SOL_CACHE": sol.config["cache::folder"]}
    run = subprocess.run([sys.executable, path], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert float(run.stdout.split()[-1]) > 0.6
