"""Networks on OpenCL devices, from PyTorch: inference and gradients against float64."""

import copy
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import families
import pytest
import sol
import torch
from device_help import (
    ATTENTION,
    SOURCES,
    check_attention,
    check_attention_gradient,
    check_bad_data,
    check_embedding,
    check_inference,
    check_last_write,
    check_sorting,
    check_training,
    check_writes_by_index,
    difference,
    some,
)
from every_network import ALL, assert_gradients, assert_results, gradients, made, results
from torch import nn

THERE = [d for d in sol.devices() if d["type"] == "opencl" and not d["why"]]
WHY = "; ".join(d["why"] for d in sol.devices() if d["type"] == "opencl")
pytestmark = pytest.mark.skipif(not THERE, reason=f"OpenCL: {WHY}")


@pytest.fixture(autouse=True, params=[d["index"] for d in THERE])
def opencl(request):
    sol.device.set("opencl", request.param)
    yield
    sol.config["device::options"] = ""
    sol.config["solver"] = "auto"


@pytest.mark.parametrize("name", some("blocks", "transformer", "lstm"))
def test_inference(name, torchvision):
    check_inference(name, torchvision)


@pytest.mark.parametrize("name", some("blocks", "transformer", "lstm"))
def test_training(name, torchvision):
    check_training(name, torchvision, mode=True)


@pytest.mark.parametrize("name", some("blocks", "transformer", "lstm"))
def test_without_float64(name, torchvision):
    sol.config["device::options"] = "opencl.fp64=0"
    check_inference(name, torchvision)


# -- all networks: `make test-all` alone

SMALLEST = {"inception_v3": (96, 96)}  # where it is above 64 x 64


def check(name, torchvision, run, compare, capfd, record_property):
    """Compares a network. Into the report (--junit-xml) go the seconds of its first call without any cache, and the steps of the host."""
    model, *given = made(name, torchvision, SMALLEST.get(name, (64, 64)))
    optimized = sol.optimize(copy.deepcopy(model))
    start = time.perf_counter()
    with mock.patch("torch.multinomial", lambda weights, n, replacement=False: torch.arange(n)):
        run(optimized, *given)
    record_property("seconds", f"{time.perf_counter() - start:.1f}")
    for steps in re.findall(r"(\d+ of \d+ steps) run on the host.*?: (.*)", capfd.readouterr().err):
        record_property("host", ": ".join(steps))
    compare(optimized, families.plain(model), families.plain(model).double(), given)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_forward(name, torchvision, capfd, record_property):
    check(name, torchvision, results, assert_results, capfd, record_property)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in ALL if n not in families.TRAINED_ONLY])
def test_backward(name, torchvision, capfd, record_property):
    check(name, torchvision, gradients, assert_gradients, capfd, record_property)


def test_float64_is_rejected_where_there_is_none():
    sol.config["device::options"] = "opencl.fp64=0"
    model, x = nn.Linear(3, 4).double(), torch.rand(2, 3).double()
    with pytest.raises(Exception, match=r"'\w+'.*: it is float64, and device opencl:\d+ computes in float32 only"):
        sol.optimize(model, x)(x)


def test_float64_is_rejected_where_data_sets_a_size():
    sol.config["device::options"] = "opencl.fp64=0"
    with pytest.raises(sol.UnsupportedError, match=r"it is float64, and device opencl:\d+ computes in float32 only"):
        sol.optimize(lambda x: x[x > 0])(torch.rand(3).double())


class Inverse(nn.Module):
    def forward(self, x):
        return torch.linalg.inv(2 * x) + 1


def test_steps_of_the_host_are_listed(capfd):
    model, x = Inverse(), torch.eye(9) + torch.rand(9, 9) / 20
    torch.testing.assert_close(sol.optimize(model, x)(x), model(x))
    assert re.search(
        r"1 of \d steps run on the host, between copies from opencl:\d and to it: '", capfd.readouterr().err
    )


def test_bad_data_names_the_step():
    check_bad_data()


@pytest.mark.parametrize(
    "n", [SOURCES[2], *(pytest.param(n, marks=pytest.mark.slow) for n in SOURCES if n != SOURCES[2])]
)
def test_writes_by_index(n):
    check_writes_by_index(n)


@pytest.mark.parametrize("n", [1025, *(pytest.param(n, marks=pytest.mark.slow) for n in (30, 9000))])
def test_sorting(n):
    check_sorting(n)


@pytest.mark.parametrize("options", ["opencl.card=1", "opencl.card=1,opencl.fp64=0"])
@pytest.mark.parametrize(
    "case", [ATTENTION[5], *(pytest.param(c, marks=pytest.mark.slow) for c in ATTENTION if c != ATTENTION[5])]
)
def test_attention_of_cards(case, options):
    """The kernels of attention and of its gradient, which are those of graphics cards."""
    sol.config["device::options"] = options
    assert check_attention(case, torch.float32) == ["attention_simt"]
    assert ("attention_grad_simt" in check_attention_gradient(case, torch.float32)) == (case[4] > 1)


@pytest.mark.parametrize("name", some("transformer"))
def test_training_as_a_card(name, torchvision):
    """The text for graphics cards, which this device compiles and runs as well."""
    sol.config["device::options"] = "opencl.card=1"
    check_training(name, torchvision)


def test_the_last_write_counts():
    check_last_write()


def test_gradients_of_an_embedding(capfd):
    check_embedding(torch.randint(0, 40, (4, 300)))
    assert "run on the host" not in capfd.readouterr().err


class Outer(nn.Module):
    """What lies between its input and output takes the square of their memory."""

    def forward(self, x):
        return (x[:, None] * x).cumsum(0).cumsum(1)[-1]


def test_memory_runs_out():
    """A network that the device has no room for is rejected with its peak, and smaller ones go on."""
    memory = max(d["memory"] for d in THERE)
    model, x = Outer(), torch.rand(int((memory / 2) ** 0.5))  # twice the memory
    with pytest.raises(Exception, match=r"whose peak is \d+ bytes: .*: OpenCL: out of device memory: \d+ bytes"):
        sol.optimize(model, x)(x)
    small = torch.rand(30)
    assert difference(sol.optimize(model, small)(small), model(small.double())) < 1e-5


def test_data_sets_a_size():
    """A step of the host finds the size; what follows runs at it."""

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


def test_sizes_vary():
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )
    exact = copy.deepcopy(model).double()
    optimized = sol.optimize(model.eval(), torch.rand(2, 3, 16, 16), vdims=True)
    with torch.no_grad():
        for n in (2, 5, 1):
            x = torch.rand(n, 3, 16, 16)
            assert difference(optimized(x), exact(x.double())) < 1e-5


def test_programs_are_kept(tmp_path, request):
    """A second process takes programs from the cache."""
    index = request.node.callspec.params["opencl"]
    texts = [run_apart("print(expected.sum().item())", index, SOL_CACHE=str(tmp_path)) for _ in range(2)]
    assert float(texts[0]) == float(texts[1])
    assert any((tmp_path / "opencl" / "objects").iterdir())


NATIVE = """
import copy, sol.native
model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1),
    nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))
x, y = torch.randn(4, 3, 16, 16), torch.randint(0, 5, (4,))
def train(model, x, y):
    optimizer, losses = torch.optim.Adam(model.parameters(), 1e-2), []
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)
exact = train(copy.deepcopy(model).double(), x.double(), y)
got = train(model.to(DEVICE), x.to(DEVICE), y.to(DEVICE))
print((got - exact).abs().max().item(), sum(torch.sol.fallbacks().values()))
"""


@pytest.mark.slow
def test_a_cnn_trains_natively(request):
    """Convolutions, batch norms and pools of PyTorch on the device's tensors, one operator after the other; none runs on the processor."""
    index = request.node.callspec.params["opencl"]
    error, fallbacks = run_apart(NATIVE.replace("DEVICE", f"'sol:{index}'"), index).split()
    assert float(error) < 1e-5 and fallbacks == "0"


# -- what fails well


def run_apart(text, opencl, **env):
    """Runs a text in a process of its own, whose network `fast` is on the device. Returns its output."""
    begin = f"""
import os, sys, threading, sol, torch
from torch import nn
torch.manual_seed(0)
x = torch.ones(64, 300)
model = nn.Sequential(nn.Linear(300, 400), nn.ReLU(), nn.Linear(400, 30))
def make():
    return sol.optimize(model, x)
try:
    sol.device.set("opencl", {opencl})
    fast = make()
    expected = fast(x)
except Exception as e:
    print(e)
"""
    path = str(Path(sol.__file__).parents[1])
    place = {"PYTHONPATH": path, "SOL_CACHE": sol.config["cache::folder"]}
    done = subprocess.run(
        [sys.executable, "-c", begin + text], env={**os.environ, **place, **env}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_implementation(tmp_path):
    said = run_apart("", 0, OCL_ICD_VENDORS=str(tmp_path))
    assert "device opencl:0: it is not there: no implementation is installed" in said


OTHERS = """
copies = [make() for _ in range(6)]
results = [fast(x).sum() for fast in copies]
def drop():
    while results:
        results.pop().backward()
        copies.pop()
threads = [threading.Thread(target=drop) for _ in range(2)]
for t in threads: t.start()
for _ in range(50): fast(x)
for t in threads: t.join()
assert torch.equal(fast(x), expected) and model[0].weight.grad is not None
child = os.fork()
if not child:
    try:
        fast(x)
    except sol.InvalidError as e:
        print(e, flush=True)
    os._exit(0)
os.waitpid(child, 0)
assert torch.equal(fast(x), expected)
"""


def test_threads_and_fork(request):
    """Networks and what they save are freed in other threads, and a child is told."""
    assert "a child process after fork() cannot use what it has there" in run_apart(
        OTHERS, request.node.callspec.params["opencl"]
    )
