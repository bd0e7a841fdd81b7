"""Dispatch by the type of a model, the protocol of frontends, and models as functions on arrays."""

import copy
import importlib
import subprocess
import sys

import numpy as np
import pytest
import sol
import torch
from sol import frameworks
from sol.parsed import Call, flatten, rebuild
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)
        self.tied = self.last

    def forward(self, x, scale=1.0):
        y = self.norm(self.conv(x)).relu().mean((2, 3))
        return {"logits": self.last(y) * scale, "n": 3, "hidden": (y,)}


def arrays(net, x):
    return {n: a.copy() for n, a in net.parameters.items()}


def test_dispatch_by_type():
    assert frameworks.of("", nn.Linear(2, 2), Call()) == "pytorch"
    assert frameworks.of("", "net.onnx", Call()) == frameworks.of("", b"", Call()) == "onnx"
    assert frameworks.of("", lambda x: x, Call()) == "pytorch"  # the only framework that is imported

    with pytest.raises(sol.UnsupportedError, match=r"framework 'caffe': not supported; there are 'pytorch'"):
        sol.optimize(nn.Linear(2, 2), torch.zeros(1, 2), framework="caffe")
    with pytest.raises(sol.InvalidError, match=r"expected a torch.nn.Module"):
        sol.optimize(3, torch.zeros(2))
    with pytest.raises(sol.FileError, match="there is no such file"):
        sol.optimize("net.onnx", framework="pytorch")


def test_frontend_from_outside(tmp_path, monkeypatch):
    """An entry point of the group `sol.frameworks` is a frontend like SOL's own."""
    (tmp_path / "toy.py").write_text(
        "import numpy as np\nfrom sol import _core\nfrom sol.parsed import Input, Output, Owned, Param, Parsed\n"
        "class Model:\n    def __init__(self): self.w = np.arange(3, dtype=np.float32)\n"
        "def owned(model): return [Owned('w', model.w, True, 'w')]\n"
        "def parse(model, call, mode):\n"
        "    g = _core.Graph('toy')\n    x, w = g.input('x', 'f32', call.args[0].shape), g.param('w', 'f32', (3,))\n"
        "    (y,) = g.layer('mul', 'scale', 'toy.py:1', (x, w), {})\n    g.output('y', y)\n"
        "    return Parsed('toy', g, [Input('x', 0, x)], [Param('w', w)], [Output('y', 'f32', 0)], lambda found: found[0])\n"
    )
    info = tmp_path / "toy-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[sol.frameworks]\ntoy = toy\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    frameworks._outside.cache_clear()
    import toy

    x = np.ones((2, 3), np.float32)
    net = sol.optimize(toy.Model(), x, framework="numpy")
    y, back = net.vjp(x)
    np.testing.assert_array_equal(y, [[0, 1, 2]] * 2)
    np.testing.assert_array_equal(back(np.ones_like(y)).parameters["w"], [2, 2, 2])
    with pytest.raises(sol.UnsupportedError, match=r"sol\.dims for models of toy: not supported"):
        sol.dims(toy.Model(), x)
    frameworks._outside.cache_clear()


def test_a_function_of_two_frameworks(monkeypatch):
    monkeypatch.setitem(frameworks._OWN, "other", ("sol.arrays", ("json",)))
    import json  # noqa: F401

    with pytest.raises(
        sol.InvalidError, match=r"a function belongs to no framework, and pytorch and other are imported"
    ):
        sol.optimize(lambda x: x)
    assert frameworks.of("", lambda x: x, Call((torch.zeros(2),))) == "pytorch"


def test_without_a_framework():
    """Nothing of a framework is imported until it is used."""
    code = "import sol, sys; assert not {'torch', 'tensorflow', 'onnx'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("training", [False, True])
def test_function_on_arrays(training):
    torch.manual_seed(1)
    model = Net().double().train(training)
    x = torch.randn(4, 3, 6, 6, dtype=torch.float64, requires_grad=True)
    net = sol.optimize(model, x, framework="numpy")
    net.training = training
    model.train(training)
    got, back = net.vjp(x.detach().numpy())
    want = model(x)
    assert got["n"] == 3 and list(got) == list(want)
    np.testing.assert_allclose(got["logits"], want["logits"].detach().numpy(), rtol=1e-10)
    np.testing.assert_allclose(got["hidden"][0], want["hidden"][0].detach().numpy(), rtol=1e-10)
    dy = [torch.randn_like(want["logits"]), torch.randn_like(want["hidden"][0])]
    names = [n for n, _ in model.named_parameters()]
    grads = torch.autograd.grad([want["logits"], want["hidden"][0]], [x, *model.parameters()], dy)
    found = back(dy[0].numpy(), dy[1].numpy())
    np.testing.assert_allclose(found.arguments, grads[0].numpy(), rtol=1e-8, atol=1e-12)
    for n, g in zip(names, grads[1:], strict=True):
        np.testing.assert_allclose(found.parameters[n], g.numpy(), rtol=1e-7, atol=1e-12)
    for n, v in model.state_dict().items():  # statistics of the batch, too
        np.testing.assert_allclose(net.parameters[n], v.numpy(), rtol=1e-10)


def test_parameters_of_a_function():
    model = nn.Linear(3, 2).double()
    x = np.random.default_rng(0).normal(size=(4, 3))
    net = sol.optimize(model, x, framework="numpy")

    def check():
        np.testing.assert_allclose(net(x), x @ net.parameters["weight"].T + net.parameters["bias"], rtol=1e-12)

    check()
    net.parameters["weight"] = net.parameters["weight"] * 2
    check()
    net.parameters["bias"] -= 1  # in place
    check()
    kept = net.parameters["weight"][0]  # a view that stays
    for step in range(3):
        kept[:] = step
        check()
    row = kept[1:]
    del kept
    row[:] = 7
    check()
    del row
    check()
    assert not np.array_equal(net.parameters["weight"], model.weight.detach().numpy())  # it has its own
    with pytest.raises(sol.InvalidError, match=r"parameter bias: expected float64\[2\], got \[3\]"):
        net.parameters["bias"] = np.zeros(3)
    y, back = net.vjp(x)
    net.parameters["weight"] = np.zeros((2, 3))
    with pytest.raises(sol.InvalidError, match="parameter weight changed between vjp and back"):
        back(np.ones_like(y))
    with pytest.raises(
        sol.InvalidError, match=r"argument 0: expected an array or a number, got <class 'torch\.Tensor'>"
    ):
        net(torch.zeros(4, 3))


def test_tied_parameters_stay_tied():
    net = sol.optimize(Net(), torch.randn(2, 3, 6, 6), framework="numpy")
    x = np.ones((2, 3, 6, 6), np.float32)
    before = net(x)["logits"]
    net.parameters["tied.bias"] += 1
    np.testing.assert_allclose(net(x)["logits"], before + 1, rtol=1e-5)


def test_sizes_of_a_function():
    model = nn.Linear(3, 2)
    net = sol.optimize(model, torch.zeros(2, 3), framework="numpy", vdims=[True])
    for n in (2, 5, 1, 0):
        x = np.ones((n, 3), np.float32)
        y, back = net.vjp(x)
        np.testing.assert_allclose(y, model(torch.from_numpy(x)).detach().numpy(), rtol=1e-5)
        assert np.array_equal(net(x), y) and back(np.ones_like(y)).parameters["bias"].tolist() == [n, n]


def test_training_a_function():
    """Three steps of SGD with dropout's mask from NumPy's stream, as often as it is seeded."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(0.25), nn.Linear(16, 1))
    x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    losses = []
    for _ in range(2):
        net = sol.optimize(model, x, framework="numpy")
        net.training = True
        np.random.seed(7)
        losses.append([])
        for _ in range(5):
            y, back = net.vjp(x)
            losses[-1].append(float((y**2).mean()))
            for n, g in back(2 * y / len(y)).parameters.items():
                net.parameters[n] -= 0.1 * g
    assert losses[0] == losses[1] and losses[0][-1] < losses[0][0]


def test_an_onnx_model_as_a_module(tmp_path):
    """Three steps of SGD of an ONNX model in PyTorch, with small weights, are those of the model that it was exported from."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)).eval()
    x = torch.randn(4, 3, 6, 6)
    torch.onnx.export(
        model, (x,), tmp_path / "net.onnx", dynamo=False, training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False,
        input_names=["x"], dynamic_axes={"x": {0: "n"}},
    )  # fmt: skip
    net = sol.optimize(tmp_path / "net.onnx", x, framework="pytorch", vdims=True)
    assert {n: p.requires_grad for n, p in net.state_dict(keep_vars=True).items()} == {
        n: p.requires_grad for n, p in model.state_dict(keep_vars=True).items() if "num_batches" not in n
    }
    losses = [[], []]
    for found, m in zip(losses, (model, net), strict=True):
        optimizer = torch.optim.SGD(m.parameters(), 0.1)
        for _ in range(3):
            loss = (m(x) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    for n in (1, 7):
        np.testing.assert_allclose(
            net(x[:1].expand(n, 3, 6, 6)).detach(), model(x[:1].expand(n, 3, 6, 6)).detach(), rtol=1e-4, atol=1e-5
        )
    wide = torch.randn(4, 3, 6, 6).to(memory_format=torch.channels_last)
    np.testing.assert_allclose(net(wide).detach(), model(wide).detach(), rtol=1e-4, atol=1e-5)
    assert len(net._sol.programs) == 2  # one for inference, one for training; both for all sizes
    twin = copy.deepcopy(net)
    with torch.no_grad():
        next(twin.parameters()).add_(1)
    assert not torch.equal(twin(x), net(x))


def test_structures():
    tree = ({"b": 1, "a": [2, (3,)]}, None)
    assert flatten(tree) == [1, 2, 3, None]
    assert rebuild(tree, [5, 6, 7, 8]) == ({"b": 5, "a": [6, (7,)]}, 8)


def test_a_function_needs_a_framework():
    """Without one that is imported, a function on numbers could belong to any."""
    code = "import sol; sol.optimize(lambda x: x, 1.0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "sol.optimize: <lambda> belongs to no framework, and none is imported: import its framework" in done.stderr
