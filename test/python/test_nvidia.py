"""The device nvidia, on a double of libcuda and NVRTC (test/nvidia): its host side is SOL's own, and g++ compiles the text that NVRTC gets.
Where NVRTC is installed, a sample of networks is compiled by it, too."""

import copy
import ctypes
import gc
import glob
import math
import os
import re
import shutil
import sys
from pathlib import Path

import device_help
import every_network
import families
import numpy as np
import pytest
import sol
import torch
from device_help import (
    ATTENTION,
    NETWORKS,
    SOURCES,
    Attention,
    attention_inputs,
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

ROOT = Path(sol.__file__).parents[2]
DOUBLE = ROOT / "build/test/libcuda_double.so"
OPTIONS = f"nvidia.libcuda={DOUBLE},nvidia.nvrtc={DOUBLE},nvidia.cublas={DOUBLE},nvidia.cudnn={DOUBLE}"
NVRTC = [
    p
    for folder in (*glob.glob(str(ROOT / ".venv-nvidia/lib/python3*/site-packages")), *sys.path)
    for p in glob.glob(f"{folder}/nvidia/*/lib/libnvrtc.so.1[0-9]")
]
pytestmark = pytest.mark.skipif(not DOUBLE.exists(), reason="the double of libcuda is not built (make build)")


@pytest.fixture(autouse=True)
def nvidia(monkeypatch):
    monkeypatch.setenv("SOL_CUDA_DOUBLE", "delay=50")
    sol.config["device::options"] = OPTIONS
    sol.device.set("nvidia")
    yield
    sol.config["solver"] = "auto"
    sol.config["device::options"] = ""


@pytest.mark.parametrize("name", some("transformer", "lstm"))
def test_inference(name, torchvision):
    check_inference(name, torchvision)


@pytest.mark.parametrize("name", some("transformer", "lstm"))
def test_training(name, torchvision):
    check_training(name, torchvision)


def test_packed_operands_of_a_swin(torchvision):
    """The bias of its windows is made once, from parameters whose layout is chosen after the points of work items are."""
    model, args, kwargs = every_network.made("swinv2", torchvision, (64, 64))
    optimized, double = sol.optimize(copy.deepcopy(model), *args, **kwargs), families.plain(model).double()
    every_network.assert_results(optimized, families.plain(model), double, (args, kwargs))


def test_bad_data_names_the_step():
    check_bad_data()


class Product(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


PRODUCTS = {
    "rows": (Product(), [(100, 90), (90, 70)]),
    "batches": (Product(), [(3, 33, 17), (3, 17, 130)]),
    "convolution": (torch.nn.Conv2d(5, 20, 3, padding=1), [(2, 5, 9, 11)]),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("tf32", [False, True])
def test_tensor_cores(name, tf32):
    """Three products of parts in TF32 are as accurate as float32; rounded factors have 11 bits."""
    model, shapes = PRODUCTS[name]
    sol.config["solver"] = "mma"
    sol.config["device::options"] = OPTIONS + ",nvidia.tf32=1" * tf32
    given = [torch.randn(s, generator=torch.Generator().manual_seed(i)) for i, s in enumerate(shapes)]
    model = copy.deepcopy(model).requires_grad_(False)
    optimized = sol.optimize(model, *given)
    y, eager = optimized(*given), model(*given)
    exact = copy.deepcopy(model).double()(*(x.double() for x in given))
    bound = 2**-11 if tf32 else 2 * difference(eager, exact)
    assert difference(y, exact) <= bound
    assert any(k.solver.endswith(f"tf32x{1 if tf32 else 3}") for k in sol.profile(optimized, *given, runs=1).kernels)


def test_tensor_cores_and_infinity():
    """An infinite factor has no parts, and the largest number rounds to infinity in TF32."""
    a, b = torch.randn(40, 50), torch.randn(50, 40)
    a[3, 4], a[7, 9], b[5, 6] = math.inf, math.nan, -math.inf
    a[9, 5], a[12, 12], b[12] = 0, torch.finfo(torch.float32).max, 0.5
    sol.config["solver"] = "mma"
    y, eager = sol.optimize(Product(), a, b)(a, b), a @ b
    assert torch.equal(y.isnan(), eager.isnan()) and torch.equal(y.isinf(), eager.isinf())
    torch.testing.assert_close(y, eager, equal_nan=True)


@pytest.mark.parametrize("n", SOURCES)
def test_writes_by_index(n, capfd):
    check_writes_by_index(n)
    assert "run on the host" not in capfd.readouterr().err


def test_the_last_write_counts():
    check_last_write()


@pytest.mark.parametrize("n", [30, 1025, 9000])
def test_sorting(n, capfd):
    check_sorting(n)
    assert "run on the host" not in capfd.readouterr().err


@pytest.mark.parametrize("same", [False, True])
def test_gradients_of_an_embedding(same, capfd):
    check_embedding(torch.full((2, 50), 3) if same else torch.randint(0, 40, (4, 300)))
    assert "run on the host" not in capfd.readouterr().err


def test_lists_of_sizes_that_vary():
    def add(i, u):
        return torch.zeros(30, 4).index_add(0, i, u)

    def given(n):
        return torch.randint(0, 30, (n,)), torch.randn(n, 4)

    fast = sol.optimize(add, *given(50), vdims=True)
    ordered = sol.optimize(lambda u: u.argsort(dim=0, stable=True), given(50)[1], vdims=[True, False])
    here = sol.optimize(add)
    for n in (50, 1, 0, 1024, 1025, 9000):
        i, u = given(n)
        got = fast(i, u)
        assert torch.equal(ordered(u), u.argsort(dim=0, stable=True)), n
        sol.device.set("x86")
        assert torch.equal(got, here(i, u)), n
        sol.device.set("nvidia")


# -- cuBLAS


class Products(torch.nn.Module):
    """Products of matrices in all the ways that they lie, with an epilogue and without, of batches in two dimensions."""

    def __init__(self):
        super().__init__()
        self.linear, self.conv = torch.nn.Linear(40, 48), torch.nn.Conv2d(6, 20, 1)
        self.weight = torch.nn.Parameter(torch.randn(24, 18))

    def forward(self, x, image, a):
        scores = torch.einsum("bhqd,bhkd->bhqk", a, a)
        return self.linear(x).relu(), self.conv(image), a @ self.weight, scores @ a, a.transpose(2, 3) @ scores + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_by_cublas(dtype):
    torch.manual_seed(3)
    model = Products().to(dtype)
    given = [torch.randn(s, dtype=dtype) for s in ((32, 40), (3, 6, 9, 9), (2, 3, 16, 24))]
    sol.config["solver"] = "blas"
    fast = sol.optimize(copy.deepcopy(model), *given)
    got = fast(*given)
    solvers = {k.solver for k in sol.profile(sol.optimize(model.eval(), *given), *given, runs=1).kernels}
    assert {"blas in place", "blas and epilogue"} <= solvers
    exact = copy.deepcopy(model).double().train()
    want = exact(*(x.double() for x in given))
    bound = 1e-5 if dtype == torch.float32 else 1e-13
    for x, y in zip(got, want, strict=True):
        assert difference(x, y) < bound
    sum((y * y).sum() for y in want).backward()
    sum((y * y).sum() for y in got).backward()
    for p, q in zip(fast.parameters(), exact.parameters(), strict=True):
        assert difference(p.grad, q.grad) < bound


def test_cublas_is_listed_or_not():
    listed = next(d for d in sol.devices() if d["type"] == "nvidia")["backends"]
    assert listed.startswith("blas (cuBLAS 0.1), conv (cuDNN 9.1), mma, simt, attention_simt")
    sol.config["device::options"] = OPTIONS.replace(f"cublas={DOUBLE}", "cublas=/nowhere/libcublas.so")
    assert "blas" not in next(d for d in sol.devices() if d["type"] == "nvidia")["backends"]


# -- cuDNN

nn = torch.nn
CONVOLUTIONS = {
    "1d": (nn.Conv1d(6, 8, 5, padding=2), (2, 6, 17)),
    "1d-stride": (nn.Conv1d(4, 8, 3, stride=2, padding=1, bias=False), (3, 4, 16)),
    "2d": (nn.Conv2d(5, 7, 3, padding=1, bias=False), (2, 5, 9, 11)),
    "2d-stride": (nn.Conv2d(6, 8, 3, stride=2, padding=1), (2, 6, 12, 10)),
    "2d-stem": (nn.Conv2d(3, 16, 7, stride=2, padding=3, bias=False), (1, 3, 20, 20)),
    "2d-dilation": (nn.Conv2d(4, 6, 3, dilation=2, padding=2), (2, 4, 11, 8)),
    "2d-window": (nn.Conv2d(4, 6, (1, 5), padding=(0, 2)), (2, 4, 7, 9)),
    "2d-one-channel": (nn.Conv2d(1, 4, 3, padding=1), (2, 1, 8, 9)),
    "2d-point-stride": (nn.Conv2d(6, 8, 1, stride=2), (2, 6, 9, 9)),
    "2d-activation": (nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, 4, 3)), (2, 4, 8, 8)),
    "groups": (nn.Conv2d(6, 9, 3, padding=1, groups=3), (2, 6, 8, 7)),
    "depthwise": (nn.Conv2d(6, 6, 3, stride=2, padding=1, groups=6), (2, 6, 9, 9)),
    "depthwise-twice": (nn.Conv2d(4, 8, 5, padding=2, groups=4), (2, 4, 9, 9)),
    "3d": (nn.Conv3d(3, 4, 3, padding=1), (2, 3, 6, 5, 7)),
    "3d-stride": (nn.Conv3d(3, 4, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1), bias=False), (1, 3, 5, 8, 9)),
    "transposed": (nn.ConvTranspose2d(6, 8, 3, stride=2, padding=1), (2, 6, 5, 6)),
    "transposed-groups": (nn.ConvTranspose2d(6, 4, 3, padding=1, groups=2, bias=False), (2, 6, 7, 6)),
    "transposed-1d": (nn.ConvTranspose1d(4, 6, 5, stride=2, padding=2), (2, 4, 9)),
}


def convolutions():
    """How often the double computed results, gradients of inputs and of weights."""
    counts = (ctypes.c_long * 3)()
    ctypes.CDLL(str(DOUBLE)).cuda_double_convolutions(counts)
    return np.array(counts[:])


def check_convolution(model, x, dtype):
    """Inference and a training step against float64; returns how often cuDNN was called in both."""
    model, x = copy.deepcopy(model).to(dtype), x.to(dtype)
    exact, bound = copy.deepcopy(model).double(), 2e-6 if dtype == torch.float32 else 1e-14
    given, reference = x.clone().requires_grad_(), x.double().requires_grad_()
    before = convolutions()
    fast = sol.optimize(model, given)
    y, want = fast(given), exact(reference)
    assert difference(y, want) < bound
    seed = torch.randn_like(want)
    y.backward(seed.to(dtype))
    want.backward(seed)
    assert difference(given.grad, reference.grad) < bound
    for p, q in zip(fast.parameters(), exact.parameters(), strict=True):
        assert difference(p.grad, q.grad) < bound
    trained = convolutions()
    plain = sol.optimize(copy.deepcopy(model).eval().requires_grad_(False), x)
    results = [plain(x) for _ in range(3)]  # the second call is captured into a graph, and the third launches it
    assert difference(results[0], want) < bound
    assert all(torch.equal(results[0], r) for r in results[1:])
    return trained - before, convolutions() - trained


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_by_cudnn(name, dtype):
    model, size = CONVOLUTIONS[name]
    sol.config["solver"] = "conv"
    trained, inferred = check_convolution(model, torch.randn(size), dtype)
    products = name == "2d-point-stride"  # the gradient of its input
    assert trained[2] >= 1 and trained[1] + trained[0] >= 2 - products, trained
    assert inferred[0] + inferred[1] >= 1 and not inferred[2]
    assert name.startswith("transposed") or inferred[0] >= 1


@pytest.mark.parametrize("name", ["2d", "2d-stride", "groups", "depthwise"])
def test_channels_last_by_cudnn(name):
    model, size = CONVOLUTIONS[name]
    sol.config["solver"] = "conv"
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    trained, inferred = check_convolution(last, torch.randn(size).to(memory_format=torch.channels_last), torch.float32)
    assert trained[2] >= 1 and trained[1] + trained[0] >= 2 and inferred[0] >= 1


@pytest.mark.parametrize("name", ["2d", "2d-stride", "depthwise", "3d", "transposed"])
@pytest.mark.parametrize("status", [2000, 3000])
def test_convolutions_that_cudnn_does_not_take(name, status, monkeypatch, capfd):
    """The functions of these steps compute the same."""
    monkeypatch.setenv("SOL_CUDA_DOUBLE", f"dnn_fails={status}")
    model, size = CONVOLUTIONS[name]
    sol.config["solver"] = "conv"
    size = (status // 1000 + 2, *size[1:])  # each is asked about once
    trained, inferred = check_convolution(model, torch.randn(size), torch.float32)
    assert not trained.any() and not inferred.any()
    assert f"cuDNN does not take a convolution (status {status}; x " in capfd.readouterr().err


def solvers_of(model, *given):
    fast = sol.optimize(copy.deepcopy(model).eval().requires_grad_(False), *given)
    return fast, [k.solver for k in sol.profile(fast, *given, runs=1).kernels]


def test_padding_that_is_not_symmetric():
    """cuDNN adds as many zeros on both sides; those that are in memory are elements to it."""
    model = nn.Sequential(nn.ZeroPad2d((2, 0, 0, 1)), nn.Conv2d(4, 6, 3))
    x = torch.randn(2, 4, 8, 8)
    sol.config["solver"] = "conv"
    fast, solvers = solvers_of(model, x)
    assert difference(fast(x), copy.deepcopy(model).double()(x.double())) < 2e-6
    assert not any(s.startswith("conv") for s in solvers), solvers


def test_products_are_not_convolutions():
    sol.config["solver"] = "conv"
    _, solvers = solvers_of(nn.Linear(40, 48), torch.randn(32, 40))
    assert not any(s.startswith("conv") for s in solvers)


def test_tf32_by_cudnn():
    model, size = CONVOLUTIONS["2d"]
    x = torch.randn(size)
    sol.config["solver"] = "conv"
    sol.config["device::options"] = OPTIONS + ",nvidia.tf32=1"
    fast, solvers = solvers_of(model, x)
    off = difference(fast(x), copy.deepcopy(model).double()(x.double()))
    assert any(s.startswith("conv") for s in solvers) and 1e-5 < off < 2**-10


def test_convolutions_of_sizes_that_vary():
    """Calls have numbers, so other solvers compute these, as in place of cuBLAS."""
    model = nn.Conv2d(4, 6, 3, padding=1)
    sol.config["solver"] = "conv"
    before = convolutions()
    fast = sol.optimize(copy.deepcopy(model), torch.randn(2, 4, 8, 8), vdims=True)
    for n in (1, 2, 5):
        x = torch.randn(n, 4, 8, 8)
        assert difference(fast(x), copy.deepcopy(model).double()(x.double())) < 2e-6
    assert (convolutions() == before).all()


def test_cudnn_is_kept_out():
    x = torch.randn(2, 5, 9, 11)
    sol.config["solver"] = "conv"
    for key, value in (
        ("device::options", OPTIONS.replace(f"cudnn={DOUBLE}", "cudnn=/nowhere/libcudnn.so")),
        ("plugins", "off"),
    ):
        old = sol.config[key]
        sol.config[key] = value
        _, solvers = solvers_of(CONVOLUTIONS["2d"][0], x)
        if key != "plugins":
            assert "conv" not in next(d for d in sol.devices() if d["type"] == "nvidia")["backends"]
        sol.config[key] = old
        assert not any(s.startswith("conv") for s in solvers)


def test_workspaces_of_cudnn():
    """A graph goes on with its workspace when a later call needs a larger one."""
    sol.config["solver"] = "conv"
    models = [nn.Conv2d(3, n, 3, padding=1).requires_grad_(False) for n in (5, 6)]
    given = [torch.randn(1, 3, n, n) for n in (7, 40)]
    gc.collect()  # when networks of other tests are freed, graphs are forgotten
    small, large = (sol.optimize(copy.deepcopy(m), x) for m, x in zip(models, given, strict=True))
    results = [small(given[0]) for _ in range(3)]
    assert difference(large(given[1]), models[1].double()(given[1].double())) < 2e-6
    before = convolutions()
    results += [small(given[0]) for _ in range(2)]
    assert (convolutions() == before).all()  # they are in the graph
    assert (
        all(torch.equal(results[0], r) for r in results)
        and difference(results[0], models[0].double()(given[0].double())) < 2e-6
    )


def test_no_memory_for_workspaces_of_cudnn(monkeypatch):
    """Convolutions have an algorithm without one; the only ones of gradients that give the same bits in each run need it."""
    sol.config["solver"] = "conv"
    model, x = nn.Conv2d(3, 5, 3, padding=1), torch.randn(1, 3, 11, 13)
    monkeypatch.setenv("SOL_CUDA_DOUBLE", "dnn_bytes=1000000000000")
    before = convolutions()
    fast, _ = solvers_of(model, x)
    assert difference(fast(x), copy.deepcopy(model).double()(x.double())) < 2e-6 and (convolutions() > before)[0]
    trained = sol.optimize(model, x)
    with pytest.raises(sol.Error, match="out of memory"):
        trained(x).sum().backward()


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("dnn_fails=1008", "cuDNN cannot be used"),
        ("dnn_fails=5000", "cuDNN failed"),
    ],
)
def test_failures_of_cudnn(setting, text, monkeypatch):
    monkeypatch.setenv("SOL_CUDA_DOUBLE", setting)
    model, x = nn.Conv2d(5, 7, 3, padding=1), torch.randn(2, 5, 9, 11)
    sol.config["solver"] = "conv"
    fast = sol.optimize(model.requires_grad_(False), x)
    with pytest.raises(sol.Error, match=text):
        fast(x)
    monkeypatch.setenv("SOL_CUDA_DOUBLE", "")
    assert difference(fast(x), copy.deepcopy(model).double()(x.double())) < 2e-6


# -- attention


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", ATTENTION, ids=lambda c: "-".join(map(str, c)))
def test_attention(case, dtype):
    assert check_attention(case, dtype) == ["attention_simt"]


@pytest.mark.parametrize("kind", ["plain", "causal", "bool"])
def test_attention_trains(kind):
    """Forward of training keeps the largest score and the sum of each query."""
    given = attention_inputs(kind, torch.float32, 2, 4, 2, 65, 65, 20, 20)
    exact = [x.double() if x.is_floating_point() else x for x in given]
    model = Attention(kind == "causal")
    optimized = sol.optimize(model, *given)
    for x in (*given[:3], *exact[:3]):
        x.requires_grad_()
    got, want = optimized(*given), model(*exact)
    assert difference(got, want) < 1e-5
    weights = torch.rand(want.shape, dtype=torch.float64)
    (want * weights).sum().backward()
    (got * weights.float()).sum().backward()
    for x, y in zip(given[:3], exact[:3], strict=True):
        assert difference(x.grad, y.grad) < 2e-5
    assert any(k.solver.startswith("attention_simt") for k in sol.profile(optimized, *given, runs=1).kernels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", ATTENTION, ids=lambda c: "-".join(map(str, c)))
def test_attention_gradient(case, dtype, monkeypatch):
    """One kernel computes all three gradients, if there are several queries."""
    monkeypatch.setenv("SOL_CUDA_DOUBLE", "delay=50,shared=232448")
    assert ("attention_grad_simt" in check_attention_gradient(case, dtype)) == (case[4] > 1)


class Masked(torch.nn.Module):
    """A mask that lies in memory before queries, keys and values do, and so comes first among what the kernels read."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(32, 96)

    def forward(self, x, kept):
        mask = (kept > 0)[:, None, None, :].expand(-1, 1, x.shape[1], -1)
        for _ in range(2):
            q, k, v = self.linear(x).view(*x.shape[:2], 3, 2, 16).permute(2, 0, 3, 1, 4)
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
            x = y.transpose(1, 2).flatten(2)
        return y


def test_masked_attention_trains():
    torch.manual_seed(5)
    model, x, kept = Masked(), torch.randn(2, 33, 32), torch.arange(33).expand(2, 33) % 3
    exact = copy.deepcopy(model).double()
    optimized = sol.optimize(model, x, kept)
    weights = torch.rand(2, 2, 33, 16, dtype=torch.float64)
    (exact(x.double(), kept) * weights).sum().backward()
    (optimized(x, kept) * weights.float()).sum().backward()
    for p, q in zip(optimized.parameters(), exact.parameters(), strict=True):
        assert difference(p.grad, q.grad) < 2e-5
    kernels = sol.profile(optimized, x, kept, runs=1).kernels
    assert any(k.solver.startswith("attention_grad_simt") for k in kernels)


def test_long_attention_has_a_kernel_of_its_own():
    """By its costs, without tuning, on the card that is assumed."""
    sol.config["autotune"] = "off"
    try:
        given = [torch.randn(4, 8, 128, 64) for _ in range(3)]
        kernels = sol.profile(sol.optimize(Attention(True), *given), *given, runs=1).kernels
    finally:
        sol.config["autotune"] = "fast"
    assert [k.solver.split()[0] for k in kernels] == ["attention_simt"]


# -- rows, which groups of different numbers of items compute, and long sums


class Rows(torch.nn.Module):
    def forward(self, x):
        moments = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
        return x.softmax(-1), x.log_softmax(-1), moments, x.sum(-1), x.amax(-1), x.mean(0)


@pytest.mark.parametrize("shape", [(300, 5), (70, 128), (70, 129), (9, 2048), (3, 5000), (1024, 200)])
def test_rows(shape):
    torch.manual_seed(4)
    x = torch.randn(shape) * 3 + 1
    for got, want in zip(sol.optimize(Rows(), x)(x), Rows()(x.double()), strict=True):
        assert difference(got, want) < 2e-6


# -- temporaries of another type, where an item computes several points


def between(channels, *layers):
    """Layers whose operand is channels-last: it comes from a convolution, and the result goes to one."""
    first, last = torch.nn.Conv2d(4, channels, 1), torch.nn.Conv2d(channels, 4, 1, bias=False)
    return torch.nn.Sequential(first, *layers, torch.nn.ReLU(), last)


class Far(torch.nn.Module):
    """Moves values far from 0."""

    def forward(self, x):
        return x + 300


NORMS = {
    "batch": lambda: (between(24, torch.nn.BatchNorm2d(24)), (16, 4, 31, 29)),
    "batch, few": lambda: (between(300, torch.nn.BatchNorm2d(300)), (5, 4, 3, 3)),
    "batch, far": lambda: (between(16, Far(), torch.nn.BatchNorm2d(16)), (9, 4, 40, 40)),
    "batch, rows": lambda: (torch.nn.BatchNorm2d(5), (3, 5, 131, 67)),
    "group": lambda: (between(24, torch.nn.GroupNorm(3, 24)), (3, 4, 40, 40)),
    "instance": lambda: (between(6, torch.nn.InstanceNorm2d(6, affine=True)), (3, 4, 57, 61)),
    "layer": lambda: (torch.nn.LayerNorm([7, 57, 61]), (3, 7, 57, 61)),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms_train(name):
    """Sums over pixels and images of channels that lie side by side, or each in a run of its own: in columns, in rows and in parts."""
    torch.manual_seed(3)
    model, shape = NORMS[name]()
    x = torch.randn(shape) + 0.5
    weights = torch.randn(model(x).shape, dtype=torch.float64)

    def made(call, net, x):
        x = x.clone().requires_grad_()
        y = call(x)
        (y * weights.to(y.dtype)).sum().backward()
        return [y, x.grad, *(p.grad for p in net.parameters())]

    exact, plain, own = copy.deepcopy(model).double(), copy.deepcopy(model), copy.deepcopy(model)
    want, eager = made(exact, exact, x.double()), made(plain, plain, x)
    for got, near, right in zip(made(sol.optimize(own, x), own, x), eager, want, strict=True):
        assert difference(got, right) < 4 * difference(near, right) + 2e-6


def test_flattened_weights_are_packed():
    """The weights behind a flattened channels-last picture have two digits of the sum in one index."""
    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.Flatten(), torch.nn.Linear(32 * 49, 256))
    x = torch.randn(4, 3, 7, 7)
    exact, fast = copy.deepcopy(model).double(), sol.optimize(model, x)
    got, want = fast(x), exact(x.double())
    assert difference(got, want) < 1e-5
    got.square().sum().backward(), want.square().sum().backward()
    for p, q in zip(model.parameters(), exact.parameters(), strict=True):
        assert difference(p.grad, q.grad) < 1e-5
    kernels = sol.profile(copy.deepcopy(model), x, runs=1).kernels
    assert any(re.match(r"pack .*Linear", k.layers) for k in kernels)


class Windows(torch.nn.Module):
    """A mask of pairs, as for shifted windows. One operand is contiguous along the queries, the other along the keys."""

    def forward(self, queries, keys):
        apart = keys[:, None, :] - queries[:, :, None]
        return apart.masked_fill(apart != 0, -100.0).masked_fill(apart == 0, 0.0), (apart > 0).to(torch.int8) * 100 * 3


def test_masks_of_pairs():
    torch.manual_seed(6)
    given = torch.randint(0, 3, (2, 64, 49)).float()
    for got, want in zip(sol.optimize(Windows(), *given)(*given), Windows()(*given), strict=True):
        assert torch.equal(got, want)


# -- what the list says


def why(options):
    sol.config["device::options"] = options
    return next(d["why"] for d in sol.devices() if d["type"] == "nvidia")


def test_what_is_missing_is_said():
    said = why(f"nvidia.libcuda=/nowhere/libcuda.so.1,nvidia.nvrtc={DOUBLE},nvidia.cc=80")
    assert said == "libcuda.so.1: not found; code for sm_80 can be compiled by NVRTC 0.1"
    said = why("nvidia.libcuda=/nowhere/libcuda.so.1,nvidia.nvrtc=/nowhere/libnvrtc.so")
    assert re.fullmatch(
        r"libcuda\.so\.1: not found; code for sm_90 can(not be compiled: libnvrtc\.so\.13: not found; nvcc: .*| be compiled by nvcc .*)",
        said,
    )
    with pytest.raises(sol.UnsupportedError, match=r"libcuda\.so\.1: not found; code for sm_90"):
        sol.device.set("nvidia")


# -- code by NVRTC, which is compiled but not run


@pytest.mark.skipif(not NVRTC, reason="NVRTC is not installed (tools/setup.sh all, pip install nvidia-cuda-nvrtc)")
@pytest.mark.parametrize("cc", [80, 90])
@pytest.mark.parametrize("name", some("transformer", "lstm"))
def test_nvrtc_compiles(name, cc, torchvision, monkeypatch):
    """The double of the driver refuses what it gets from NVRTC, so the network fails when its code is loaded."""
    monkeypatch.setenv("SOL_CUDA_DOUBLE", f"cc={cc}")
    sol.config["device::options"] = f"nvidia.libcuda={DOUBLE},nvidia.nvrtc={NVRTC[0]}"
    make, shape = NETWORKS[name]
    with pytest.raises(sol.Error, match="the code cannot be loaded: device kernel image is invalid"):
        sol.optimize(make(torchvision).train(), torch.rand(shape))(torch.rand(shape))


@pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not installed")
def test_nvcc_compiles():
    sol.config["device::options"] = f"nvidia.libcuda={DOUBLE},nvidia.nvrtc=/nowhere/libnvrtc.so"
    with pytest.raises(sol.Error, match="the code cannot be loaded: device kernel image is invalid"):
        sol.optimize(torch.nn.Linear(3, 4), torch.rand(2, 3))(torch.rand(2, 3))


# -- code by clang, and the order of the compilers; programs that play them lie in front of the others in PATH


NVCC = 'echo "Cuda compilation tools, release 13.0, V13.0.1"'
CLANG = """case "$*" in
*--print-supported-cpus) echo "clang version 15.0.6" ;;
*"rejected"*) echo "kernels.cu:3:5: error: no such thing"; exit 1 ;;
*) echo "$@" >> "$LOG/clang"; while [ "$1" != -o ]; do shift; done; cp "$3" "$LOG/source"; printf "PTX by clang" > "$2" ;;
esac"""
PTXAS = """case "$*" in
--version) echo "Cuda compilation tools, release 13.0, V13.0.2" ;;
*) echo "$@" >> "$LOG/ptxas"; while [ "$1" != -o ]; do shift; done; printf "made by ptxas of "; cat "$3" > "$2" ;;
esac"""
NO_PTXAS = ",nvidia.ptxas=/nowhere/ptxas"


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Makes a program of a shell script; None: there is none. The cache is empty, and there is no NVRTC."""
    for name in ("bin", "log", "cache"):
        (tmp_path / name).mkdir()
    (tmp_path / "libdevice.10.bc").touch()
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    sol.config["cache::folder"] = str(tmp_path / "cache")

    def make(nvcc=None, clang=None, ptxas=None, options=None):
        for name, script in (("nvcc", nvcc), ("clang", clang), ("ptxas", ptxas)):
            path = tmp_path / "bin" / name
            path.write_text(f"#!/bin/sh\n{script or 'exit 1'}\n")
            path.chmod(0o755)
        if options is None:
            options = f",nvidia.libdevice={tmp_path}/libdevice.10.bc,nvidia.ptxas={tmp_path}/bin/ptxas"
        sol.config["device::options"] = f"nvidia.libcuda={DOUBLE},nvidia.nvrtc=/nowhere/libnvrtc.so{options}"
        return tmp_path

    yield make
    sol.config["cache::folder"] = ""


def compiler():
    return next(d["compilers"] for d in sol.devices() if d["type"] == "nvidia")


def compile_linear():
    with pytest.raises(sol.Error, match="the code cannot be loaded: device kernel image is invalid"):
        sol.optimize(torch.nn.Linear(3, 4), torch.rand(2, 3))(torch.rand(2, 3))


def cached(folder):
    return b"".join(p.read_bytes() for p in (folder / "cache").rglob("*") if p.is_file())


def test_the_order_of_compilers(programs):
    """NVRTC, nvcc, clang with ptxas, clang."""
    programs(NVCC, CLANG, PTXAS, options=f",nvidia.nvrtc={DOUBLE}")
    sol.config["device::options"] = OPTIONS
    assert compiler() == "NVRTC 0.1"
    programs(NVCC, CLANG, PTXAS)
    assert compiler() == "nvcc 13.0.1"
    programs(None, CLANG, PTXAS)
    assert compiler() == "clang 15.0.6, ptxas 13.0.2"
    programs(None, CLANG)
    assert compiler() == "clang 15.0.6 (PTX)"
    programs()
    assert compiler() == ""


def test_what_clang_lacks_is_said(programs, monkeypatch):
    said = "libcuda.so.1: not found; code for sm_90 cannot be compiled: libnvrtc.so.13: not found; nvcc: not found; clang: "
    for clang, libdevice, end in [(None, True, ""), (CLANG, False, "libdevice.10.bc ")]:
        folder = programs(None, clang)
        path = f"{folder}/libdevice.10.bc" if libdevice else "/nowhere/libdevice.10.bc"
        why_not = why(f"nvidia.libcuda=/nowhere/libcuda.so.1,nvidia.nvrtc=/nowhere/libnvrtc.so,nvidia.libdevice={path}")
        assert why_not == f"{said}{end}not found (pip install nvidia-cuda-nvrtc)"


@pytest.mark.parametrize("cc, target", [(75, 75), (90, 80)])
def test_clang_and_ptxas(programs, cc, target, monkeypatch):
    """PTX is for 8.0 at most, and ptxas makes code for the card of it; without ptxas, PTX ends with a 0."""
    monkeypatch.setenv("SOL_CUDA_DOUBLE", f"cc={cc}")
    folder = programs(None, CLANG, PTXAS)
    compile_linear()
    clang, ptxas = ((folder / "log" / name).read_text() for name in ("clang", "ptxas"))
    assert f"--cuda-gpu-arch=sm_{target} " in clang and clang.endswith(f"-Xclang {folder}/libdevice.10.bc\n")
    assert f"-arch=sm_{cc} " in ptxas
    source = (folder / "log/source").read_text()
    assert source.index("__nv_fsqrt_rn") < source.index('#line 1 "kernels.cu"') < source.index("sol_frame")
    assert b"PTX by clang\0" not in cached(folder)
    programs(None, CLANG)
    compile_linear()
    assert b"PTX by clang\0" in cached(folder)


def test_what_clang_rejects_is_said(programs):
    programs(None, CLANG.replace('*"rejected"*)', "*kernels.cu*)"))
    with pytest.raises(sol.CompilerError, match=r"clang: kernels\.cu:3:5: error: no such thing"):
        sol.optimize(torch.nn.Linear(3, 4), torch.rand(2, 3))(torch.rand(2, 3))


def test_libdevice_is_found_in_packages(programs):
    for at in ("nvidia/cu13/nvvm/libdevice", "nvidia/cuda_nvcc/nvvm/libdevice", "triton/backends/nvidia/lib"):
        folder = programs(None, CLANG, PTXAS, options=NO_PTXAS) / at.replace("/", "_")
        (folder / at).mkdir(parents=True)
        (folder / at / "libdevice.10.bc").touch()
        before = sol.config["device::libraries"]
        sol.config["device::libraries"] = str(folder)
        try:
            assert compiler() == "clang 15.0.6 (PTX)"
            compile_linear()
        finally:
            sol.config["device::libraries"] = before
        assert (folder.parent / "log/clang").read_text().endswith(f"{folder / at}/libdevice.10.bc\n")
        shutil.rmtree(folder.parent / "cache")


class Everything(torch.nn.Module):
    """A convolution, attention, a scatter, a sort and a softmax, and functions of <math.h>."""

    def __init__(self):
        super().__init__()
        self.conv, self.linear = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.Linear(16, 48)

    def forward(self, x, at):
        tokens = self.conv(x).flatten(2).transpose(1, 2)
        q, k, v = self.linear(tokens).view(x.shape[0], -1, 3, 2, 8).permute(2, 0, 3, 1, 4)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        sums = torch.zeros(5, 16).index_add(0, at, y[0])
        curves = torch.stack(
            [y.erf(), y.exp(), y.sin(), y.abs().sqrt(), torch.hypot(y, tokens), torch.atan2(y, tokens)]
        )
        return y.softmax(-1), sums, tokens.sort(dim=1).values, curves


@pytest.mark.parametrize("ptxas", [False, True])
@pytest.mark.parametrize("train", [False, True])
def test_clang_compiles(programs, train, ptxas, monkeypatch):
    """Compiled, but not run: the double of the driver refuses the code."""
    clang, assembler = (
        shutil.which("clang"),
        shutil.which("ptxas", path=f"{os.environ['PATH']}:/usr/local/cuda/bin:/usr/local/bin"),
    )
    if not clang or (ptxas and not assembler):
        pytest.skip("clang is not installed" if not clang else "ptxas is not installed")
    folder = programs(None, f'exec {clang} "$@"', ptxas and f'exec {assembler} "$@"', options="" if ptxas else NO_PTXAS)
    if ptxas:
        sol.config["device::options"] += f",nvidia.ptxas={folder}/bin/ptxas"
    if not compiler():
        pytest.skip(why(sol.config["device::options"].replace(str(DOUBLE), "/nowhere")))
    monkeypatch.setenv("SOL_CUDA_DOUBLE", "cc=80")
    model, given = Everything(), (torch.rand(2, 3, 6, 5), torch.randint(0, 5, (30,)))
    with pytest.raises(sol.Error, match="the code cannot be loaded: device kernel image is invalid"):
        sol.optimize(model.train(train).requires_grad_(train), *given)(*given)
    code = cached(folder)
    assert (b".nv.info" in code) == ptxas and (b".target sm_80" in code) != ptxas
    if not ptxas:
        assert code.count(b".visible .entry") > 10 and b"sqrt.rn.f32" in code and b"sqrt.approx.f32" not in code


# -- what fails well: each in a process of its own


def run_apart(text, double="", options="", **env):
    return device_help.run_apart(text, "nvidia", OPTIONS + options, SOL_CUDA_DOUBLE=double, **env)


def test_a_rejected_command_is_named_and_calls_go_on():
    lines = run_apart(
        "expected = call(x)\nos.environ['SOL_CUDA_DOUBLE'] = 'fail_at=14'\nfor _ in range(3): y = call(x)\n"
        "assert torch.equal(y, expected)"
    )
    assert len(lines) == 1 and "unspecified launch failure (error 719)" in lines[0], lines


def test_a_broken_context_is_reported():
    """What CUDA calls a sticky error: nothing works in this process any more. The option nvidia.sync=1 names the command."""
    text = "call(x)\nos.environ['SOL_CUDA_DOUBLE'] = 'break_at=14'\nfor _ in range(3): call(x)\nprint(len(model))"
    for options, hint in [("", True), (",nvidia.sync=1", False)]:
        *lines, last = run_apart(text, "", options)
        assert last == "3" and all("an illegal memory access was encountered (error 700)" in line for line in lines)
        assert ("nvidia.sync=1" in lines[0]) == hint, lines


@pytest.mark.slow
def test_a_device_that_hangs_is_reported():
    *lines, last = run_apart(
        "expected = call(x)\nsol.config['device::timeout'] = 1\nos.environ['SOL_CUDA_DOUBLE'] = 'hang_at=14,hang_ms=3000'\n"
        "for _ in range(2): call(x)\nimport time; time.sleep(4)\nprint(torch.equal(call(x), expected))"
    )
    assert last == "True" and "1 s" in lines[0], lines


def test_a_child_after_fork_is_told():
    lines = run_apart("expected = call(x)\npid = os.fork()\ncall(x)\nif not pid: os._exit(0)\nos.waitpid(pid, 0)")
    assert len(lines) == 1 and "a child process after fork() cannot use what it has there" in lines[0], lines


@pytest.mark.slow  # the import compiles a file of C++
def test_pytorch_tensors_on_the_device():
    """sol.native: tensors, operators and training on the device."""
    text = """
import sol.native
there, y = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)), torch.randn(5, 8)
here = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
here.load_state_dict(there.state_dict())
there = sol.optimize(there.to("sol"))
for net, data in (here, y), (there, y.to("sol")):
    step = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        step.zero_grad()
        loss = net(data).square().mean()
        loss.backward()
        step.step()
for p, q in zip(here.parameters(), there.parameters()):
    torch.testing.assert_close(p, q.cpu(), rtol=1e-4, atol=1e-6)
print(q.device, torch.sol.fallbacks())
"""
    assert run_apart(text) == ["sol:0 {}"]


# -- tensors of a framework, as PyTorch's on CUDA, in streams of its own

FOREIGN = f"""
import copy, sys
sys.path.insert(0, {str(ROOT / "test/python")!r})
import foreign_device
there = foreign_device.begin({str(DOUBLE)!r})
def counts(): return sol._core.heap_counts("nvidia:0")
def apart(y, exact): return (y.detach().cpu().double() - exact.detach()).abs().max().item()
"""


def run_foreign(text):
    return run_apart(FOREIGN + text, "delay=500,pageable=1", SOL_LOG_LEVEL="0")


@pytest.mark.slow  # each process compiles a file of C++, or finds it in the cache
def test_training_on_foreign_tensors():
    """Nothing is copied and nobody waits, although results of PyTorch's optimizer are in the parameters; memory is used again."""
    text = """
here = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.BatchNorm1d(16), nn.Linear(16, 4)).train()
fast = sol.optimize(copy.deepcopy(here).to("sol"))
here.double()
steps = [torch.optim.SGD(n.parameters(), 0.1, momentum=0.9) for n in (here, fast)]
for i in range(8):
    y = torch.randn(5, 8)
    for net, step, data in zip((here, fast), steps, (y.double(), y.to("sol"))):
        step.zero_grad()
        net(data).square().mean().backward()
        step.step()
    if i == 3: before = counts()
after = counts()
print([after[k] - before[k] for k in ("waits", "writes", "reserved")])
print(max(apart(p, q) for p, q in zip(fast.state_dict().values(), here.state_dict().values())) < 1e-5)
"""
    assert run_foreign(text) == ["[0, 0, 0]", "True"]


@pytest.mark.slow
def test_streams_of_a_framework():
    """Calls are in the order of the current stream; another one waits for the device, and not the host."""
    text = """
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).eval()
exact, fast = copy.deepcopy(net).double(), sol.optimize(net.to("sol"))
streams, found = [there.make_stream() for _ in range(3)], []
with torch.no_grad():
    fast(torch.randn(5, 8).to("sol"))
    before = counts()["waits"]
    for i in range(12):
        there.stream = streams[i % 3]
        data = torch.randn(5, 8)
        given = data.to("sol")
        found.append((data, fast(given)))
        given.zero_()  # behind the call
    print(counts()["waits"] - before)
    for there.stream in streams: there.synchronize()
    print(max(apart(y, exact(data.double())) for data, y in found) < 1e-5)
    there.call("cuStreamBeginCapture_v2", foreign_device.ctypes.c_void_p(there.stream), 2)
    fast_input = found[0][1].new_empty(5, 8)
    call(fast_input)
    there.stream = 1
    fast.cpu()
    print(apart(fast(data), exact(data.double())) < 1e-5)
    fast.to("sol")
    print(apart(fast(data.to("sol")), exact(data.double())) < 1e-5)
    call(data)
"""
    waits, right, captured, *moved, mixed = run_foreign(text)
    assert (waits, right, moved) == ("0", "True", ["True", "True"])
    assert "UnsupportedError" in captured and "captured into a graph" in captured
    assert "InvalidError" in mixed and "its tensors are on 2 devices" in mixed


@pytest.mark.slow
def test_random_numbers_and_bad_data_of_foreign_tensors():
    text = """
drop = sol.optimize(nn.Sequential(nn.Linear(8, 4000), nn.Dropout(0.5)).train().to("sol"))
made = []
for seed in (3, 3, 4):
    torch.manual_seed(seed)
    made.append(drop(torch.ones(5, 8).to("sol")).cpu())
print(torch.equal(made[0], made[1]), torch.equal(made[0], made[2]))
fast = sol.optimize(nn.Embedding(5, 3).eval().to("sol"))
good, bad = torch.tensor([1, 4]).to("sol"), torch.tensor([1, 5]).to("sol")
with torch.no_grad():
    expected = fast(good).cpu()
    fast(bad)
    for _ in range(6):
        there.synchronize()
        y = call(good)
    print(torch.equal(y.cpu(), expected))
"""
    drawn, bad, right = run_foreign(text)
    assert (drawn, right) == ("True False", "True")
    assert "RunError" in bad and "an index is out of range in the data of its call" in bad


@pytest.mark.slow
def test_compile_of_foreign_tensors():
    """A graph of Dynamo names the device in operators that make tensors."""
    text = """
class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 10), nn.Linear(10, 10)
    def forward(self, x):
        y = self.a(x) + torch.arange(10, device=x.device) + torch.zeros(10, device=self.b.bias.device)
        return torch.softmax(self.b(y), 1)
net, data = Named(), torch.randn(5, 8)
exact = copy.deepcopy(net).double()
made = torch.compile(net.to("sol"), backend="sol", fullgraph=True)
for _ in range(2):
    y, z = made(data.to("sol")), exact(data.double())
    y.square().sum().backward(), z.square().sum().backward()
print(y.device, apart(y, z) < 1e-5)
print(max(apart(p.grad, q.grad) for p, q in zip(net.parameters(), exact.parameters())) < 1e-4)
"""
    assert run_foreign(text) == ["sol:0 True", "True"]


# -- graphs of the driver


def launches():
    """How often the double launched kernels one by one, and graphs."""
    kernels, graphs = ctypes.c_long(), ctypes.c_long()
    ctypes.CDLL(str(DOUBLE)).cuda_double_launches(ctypes.byref(kernels), ctypes.byref(graphs))
    return np.array([kernels.value, graphs.value])


class Between(torch.nn.Module):
    """A step of the host between steps of the device."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(6, 9), torch.nn.Linear(9, 5)
        self.regular = torch.nn.Buffer(2 * torch.eye(3))

    def forward(self, x):
        y = torch.softmax(self.a(x).view(-1, 3, 3), 1) + self.regular
        return torch.softmax(self.b(torch.linalg.inv(y).reshape(-1, 9)), 1)


def made_of(*layers):
    return torch.nn.Sequential(*layers).eval()


@pytest.mark.parametrize(
    ("model", "shape", "graphs"),
    [
        (made_of(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 9), torch.nn.Softmax(-1)), (2, 3, 8, 8), 1),
        (Between().eval(), (4, 6), 2),
    ],
)  # fmt: skip
def test_a_call_is_one_launch(model, shape, graphs):
    """From the second call on; where a step of the host is inside, each part is one. Results are those of the first call."""
    optimized = sol.optimize(model, torch.randn(shape))
    for i in range(6):
        x = torch.randn(shape)
        before = launches()
        y = optimized(x)
        assert difference(y, copy.deepcopy(model).double()(x.double())) < 1e-5
        if i > 1:
            assert (launches() - before == [0, graphs]).all()


def test_training_and_sizes_are_launched_as_graphs():
    """A step of training is one launch forward and one backward; a size that comes again has the graph of its first calls."""
    model = made_of(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 4), torch.nn.Softmax(-1))
    optimized = sol.optimize(model, torch.randn(5, 6), vdims=True)
    for i in range(4):
        for n in (5, 3):
            x = torch.randn(n, 6)
            before = launches()
            y = optimized(x)
            y.square().sum().backward()
            exact = copy.deepcopy(model).double()
            exact(x.double()).square().sum().backward()
            for p, q in zip(model.parameters(), exact.parameters(), strict=True):
                assert difference(p.grad, q.grad) < 1e-5
            model.zero_grad()
            if i > 2:
                assert launches()[0] == before[0]


def test_graphs_can_be_switched_off():
    sol.config["device::options"] = OPTIONS + ",nvidia.graphs=0"
    test = sol.optimize(made_of(torch.nn.Linear(4, 4), torch.nn.Softmax(-1)), torch.randn(2, 4))
    before = launches()
    test(torch.randn(2, 4))
    assert launches()[1] == before[1]
