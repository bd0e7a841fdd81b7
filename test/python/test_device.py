"""Networks on the device far: models, data and results stay on the host, whose memory the device cannot access."""

import copy
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
import sol
import torch
from torch import nn

import onnx

SOL = Path(__file__).resolve().parents[2] / "build/cli/sol"


@pytest.fixture(autouse=True)
def far():
    sol.device.set("far")
    yield
    sol.config["device::options"] = ""


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 5)
    )


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(6, 8, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0]


class Empty(nn.Module):
    """A parameter without elements is read, and no input has any."""

    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.zeros(0, 4))

    def forward(self, x):
        return x + self.p.sum(0)


class Sorting(nn.Module):
    """A layer that the host computes, between two that the device does."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.b(self.a(x).tanh().sort(dim=-1).values)


MODELS = {
    "cnn": (cnn, (2, 3, 8, 8)),
    "lstm": (Recurrent, (2, 5, 6)),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 4, 8)),
    "sort": (Sorting, (4, 6)),
    "empty": (Empty, (2, 4)),
    "nothing": (Empty, (0, 4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_inference_and_training(name):
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model, x = make(), torch.randn(shape)
    fast = sol.optimize(copy.deepcopy(model), x)
    for _ in range(2):
        xs = [x.clone().requires_grad_() for _ in range(2)]
        for m, leaf in zip((model, fast), xs, strict=True):
            m.train()
            m.zero_grad()
            m(leaf).square().sum().backward()
        torch.testing.assert_close(xs[1].grad, xs[0].grad, rtol=1e-4, atol=1e-5)
        for (n, p), q in zip(model.named_parameters(), fast.parameters(), strict=True):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-5, msg=n)
        with torch.no_grad():  # an optimizer's step
            for m in (model, fast):
                for p in m.parameters():
                    p -= 0.01 * p.grad
    model.eval(), fast.eval()
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)


def test_the_device_is_chosen_by_call():
    model, x = cnn().eval(), torch.randn(2, 3, 8, 8)
    fast = sol.optimize(copy.deepcopy(model), x)
    sol.device.set("auto")
    with torch.no_grad():
        here = fast(x)
        with sol.device("far"):
            assert torch.equal(fast(x), here)
            model[0].weight.mul_(2)
            fast.load_state_dict(model.state_dict())
            there = fast(x)
        assert torch.equal(fast(x), there) and not torch.equal(there, here)
    sol.config["device"] = "far"
    assert sol.device.current() == ("far", 0) and next(d for d in sol.devices() if d["default"])["type"] == "far"


def test_failures_are_errors_of_the_call():
    sol.config["device::options"] = "far.fail_at=1,far.devices=2"
    sol.device.set("far", 1)
    model, x = nn.Linear(4, 4), torch.randn(3, 4)
    with torch.no_grad():
        fast = sol.optimize(copy.deepcopy(model))
        with pytest.raises(sol.RunError, match=r"device far:1: .*operation 1 fails by far\.fail"):
            fast(x)
        torch.testing.assert_close(fast(x), model(x))


def test_random_numbers_agree():
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5)).train()
    fast, x = sol.optimize(model), torch.randn(4, 8)
    results = []
    for device in ("far", "auto"):
        with sol.device(device):
            sol.set_seed(3)
            results.append(fast(x).detach())
    sol.set_seed(None)
    assert torch.equal(*results) and (results[0] == 0).any()


def test_sizes_vary():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    fast = sol.optimize(copy.deepcopy(model), torch.randn(4, 6), vdims=[True])
    for n in (4, 1, 9, 2):
        xs = [torch.randn(n, 6, generator=torch.Generator().manual_seed(n)).requires_grad_() for _ in range(2)]
        for m, leaf in zip((model, fast), xs, strict=True):
            m(leaf).square().sum().backward()
        torch.testing.assert_close(xs[1].grad, xs[0].grad, rtol=1e-4, atol=1e-5)


def test_data_sets_a_size():
    """A step of the host finds the size, what follows runs at it, and one program serves all data."""

    def f(x):
        y = x[x[:, 0] > 0]
        return y.relu().sum(0), y @ torch.ones(6, 3), y.shape

    x = torch.randn(20, 6)
    fast = sol.optimize(f, x)
    for shift in (0, -9, 9, 0.5):
        *got, size = fast(x + shift)
        *want, expected = f(x + shift)
        torch.testing.assert_close(got, want)
        assert size == expected
    assert len(fast._sol.programs) == 1


def test_profilers_see_steps():
    model, x = sol.optimize(Sorting()), torch.randn(4, 6)
    model(x).sum().backward()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        model(x).sum().backward()
    steps = [e.name for e in seen.events() if e.name.startswith("sol: ")]
    assert any("a.linear" in s for s in steps) and any("sort" in s for s in steps) and len(steps) > 4
    assert sol.profile(model, x, runs=3).kernels[0].us > 0


def test_threads():
    model, x = cnn().eval(), torch.randn(2, 3, 8, 8)
    fast = sol.optimize(copy.deepcopy(model), x)
    wrong = []

    def work():
        with torch.no_grad():
            for _ in range(5):
                if not torch.allclose(fast(x), model(x), rtol=1e-4, atol=1e-5):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.fixture
def net(tmp_path):
    w = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["h"]), onnx.helper.make_node("Relu", ["h"], ["y"])],
        "net",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 6])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 4])],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    path = tmp_path / "net.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return path, w


def test_onnx(net):
    path, w = net
    function, x = sol.optimize(str(path)), np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32)
    for device in ("far", "auto"):
        with sol.device(device):
            np.testing.assert_allclose(function(x), np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)


def test_command(net, tmp_path):
    path, w = net
    x = np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    command = [SOL, "run", path, "--device", "far", "--input", tmp_path / "x.npy", "--output-dir", tmp_path]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("vary", [False, True])
def test_the_estimated_memory_is_what_is_needed(training, vary):
    """The peak that SOL names suffices, but for the rest of pages, and a tenth less does not."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(8192, 10)
    )
    x = torch.randn(8, 3, 16, 16)
    fast = sol.optimize(model.train(training), x, vdims=[vary])

    def call():
        with torch.set_grad_enabled(training):
            y = fast(x)
        if training:
            y.square().sum().backward()

    call()
    peak, pages = sol.memory(fast)["peak"], 16 * 4096
    sol.config["device::options"] = f"far.devices=29,far.memory={peak + pages}"
    sol.device.set("far", 25 + 2 * training + vary)
    call()
    sol.config["device::options"] = f"far.devices=29,far.memory={peak * 9 // 10}"
    sol.device.set("far", 21 + 2 * training + vary)
    with pytest.raises(sol.OutOfMemoryError, match=f"peak is {peak} bytes: .*out of device memory"):
        call()
