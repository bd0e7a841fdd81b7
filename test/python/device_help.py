"""What tests of several device types share."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sol
import torch
from torch import nn

ROOT = Path(sol.__file__).parents[2]
BEGIN = """
import os, sol, torch
from torch import nn
torch.manual_seed(0)
x = torch.ones(64, 300)
model = nn.Sequential(nn.Linear(300, 400), nn.ReLU(), nn.Linear(400, 30))
def call(*args):
    try:
        return fast(*args)
    except sol.Error as e:
        print(type(e).__name__, e, flush=True)
fast = sol.optimize(model, x)
"""


def run_apart(text, device, options, **env):
    """Runs a program in a process of its own, with a network `fast` on a device. Returns the lines that it prints; `call` prints errors."""
    place = {
        "PYTHONPATH": str(ROOT / "python"), "SOL_CACHE": sol.config["cache::folder"], "SOL_DEVICE": device,
        "SOL_DEVICE_OPTIONS": options, **env,
    }  # fmt: skip
    command = [sys.executable, "-c", BEGIN + text]
    done = subprocess.run(command, env={**os.environ, **place}, capture_output=True, text=True, timeout=120)
    assert not done.returncode, done.stderr[-2000:]
    return done.stdout.strip().splitlines()


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(12, 16, num_layers=2, batch_first=True)
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


def transformer():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def blocks(vision):
    """Blocks of ResNet and of MobileNet V3: all kinds of layers of both, and few of each. A batch-norm takes away what the layers before it
    add or scale by, and their gradients are 0 then, of which float32 has rounding alone: functions between them prevent that."""
    resnet, mobilenet = vision.models.resnet, vision.models.mobilenetv3
    norm = nn.BatchNorm2d
    shorter = nn.Sequential(nn.Conv2d(8, 16, 1, 2, bias=False), norm(16))
    return nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False), norm(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        resnet.BasicBlock(8, 16, 2, shorter), resnet.BasicBlock(16, 16),
        mobilenet.InvertedResidual(mobilenet.InvertedResidualConfig(16, 3, 32, 16, True, "HS", 1, 1, 1.0), norm),
        nn.ReLU(),
        mobilenet.InvertedResidual(mobilenet.InvertedResidualConfig(16, 5, 32, 24, True, "HS", 2, 1, 1.0), norm),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10),
    )  # fmt: skip


NETWORKS = {
    "blocks": (blocks, (2, 3, 64, 64)),
    "resnet18": (lambda vision: vision.models.resnet18(num_classes=10), (2, 3, 64, 64)),
    "mobilenet": (lambda vision: vision.models.mobilenet_v3_small(num_classes=10), (2, 3, 64, 64)),
    "transformer": (lambda _: transformer(), (2, 9, 32)),
    "lstm": (lambda _: Recurrent(), (3, 7, 12)),
}


def difference(got, want):
    return float((got.detach().double() - want.detach()).abs().max() / want.detach().abs().max().clamp(min=1e-6))


def some(*names):
    """Networks of the fast tests, and all others."""
    return [n if n in names else pytest.param(n, marks=pytest.mark.slow) for n in NETWORKS]


def check_inference(name, torchvision):
    """Two calls against float64."""
    make, shape = NETWORKS[name]
    torch.manual_seed(1)
    model, x = make(torchvision).eval(), torch.rand(shape)
    want = copy.deepcopy(model).double()(x.double())
    optimized = sol.optimize(model, x)
    with torch.no_grad():
        assert difference(optimized(x), want) < 1e-5
        assert difference(optimized(x), want) < 1e-5


def check_training(name, torchvision, mode=False):
    """The result and the gradients of parameters against float64. mode: that of the model, training or not."""
    make, shape = NETWORKS[name]
    torch.manual_seed(2)
    model, x = make(torchvision).train(mode), torch.rand(shape)
    exact = copy.deepcopy(model).double()
    got, want = sol.optimize(model, x)(x), exact(x.double())
    assert difference(got, want) < 1e-5
    weights = torch.rand(want.shape, dtype=torch.float64)
    (want * weights).sum().backward()
    (got * weights.float()).sum().backward()
    for (at, p), q in zip(model.named_parameters(), exact.parameters(), strict=True):
        assert difference(p.grad, q.grad) < 2e-4, at


class Picking(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.table, self.last = nn.Linear(4, 6), nn.Embedding(10, 6), nn.Linear(6, 3)

    def forward(self, x, i):
        return self.last(self.first(x).tanh().sum(0) + self.table(i).cumsum(0))


def check_bad_data():
    """An index that is out of range is an error with the step, and the next call goes on."""
    model, x, good, bad = Picking(), torch.randn(3, 4), torch.tensor([1, 2, 9]), torch.tensor([1, 2, 10])
    fast = sol.optimize(model, x, good)
    for _ in range(2):
        torch.testing.assert_close(fast(x, good), model(x, good))
        with pytest.raises(
            sol.RunError, match=r"^network 'Picking', 'Embedding table\.embedding \+ CumSum cumsum': an index is out of"
        ):
            fast(x, bad)


def on_host(function, *args):
    """What the processor computes."""
    there = sol.config["device"]
    sol.config["device"] = "auto"
    try:
        return sol.optimize(function)(*args)
    finally:
        sol.config["device"] = there


def check_bits(function, *args):
    """The device computes the bits of the host, and those of the call before."""
    fast, want = sol.optimize(function), on_host(function, *args)
    torch.testing.assert_close(want, function(*args), rtol=1e-4, atol=1e-4)  # which adds in another order
    for _ in range(2):
        assert torch.equal(fast(*args), want)


# How many sources are added to 40 rows: less than a group sorts, and runs that are merged once and twice.
SOURCES = (1, 700, 1025, 9000)


def check_writes_by_index(n):
    """Sums, of which several have one target, without targets, and where all sources have the same one."""
    torch.manual_seed(n)
    x, i, u = torch.randn(40, 5), torch.randint(-40, 40, (n,)), torch.randn(n, 5)
    check_bits(lambda x, i, u: x.index_put((i,), u, accumulate=True), x, i, u)
    check_bits(lambda x, i, u: x.index_put((i * 0 - 1,), u, accumulate=True) + x.index_put((i[:0],), u[:0]), x, i, u)
    j, k = torch.randint(0, 7, (3, n, 2)), torch.randint(0, 9, (n,))
    y, v = torch.randn(3, 7, 2), torch.randn(3, n, 2)
    for mode in ("sum", "prod", "amax", "amin", "mean"):
        check_bits(lambda y, j, v, m=mode: y.scatter_reduce(1, j, v, m, include_self=m != "amin"), y, j, v)
    check_bits(lambda z, i, k, w: z.index_put((i, k), w, accumulate=True), torch.zeros(40, 9), i, k, torch.rand(n))
    check_bits(lambda z, i, w: z.index_add(0, i % 40, w), torch.randint(0, 9, (40, 3)), i, torch.randint(-9, 9, (n, 3)))


def check_last_write():
    """Without a sum, the last source counts; bad positions are errors."""
    i = torch.randint(0, 9, (3000,))
    u = torch.rand(3000, 4)

    def last(i, u):
        return torch.zeros(9, 4).index_put((i,), u)

    fast = sol.optimize(last)
    at = [int((i == k).nonzero().max()) for k in range(9)]
    assert torch.equal(fast(i, u), u[at]) and torch.equal(on_host(last, i, u), u[at])
    with pytest.raises(sol.RunError, match=r"IndexPut.*: an index is out of range"):
        fast(torch.where(i == 8, 9, i), u)
    assert torch.equal(fast(i, u), u[at])


def check_embedding(tokens, training=True):
    """A training step: the gradients of the rows of a table, whose tokens come again."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Embedding(500, 24, padding_idx=7), nn.Linear(24, 3)).train(training)
    exact = copy.deepcopy(model).double()
    (sol.optimize(model)(tokens).square()).sum().backward()
    (exact(tokens).square()).sum().backward()
    for p, q in zip(model.parameters(), exact.parameters(), strict=True):
        assert difference(p.grad, q.grad) < 1e-5


def check_sorting(n):
    """Stable, NaN last, -0 equal to 0; all types, along both dimensions, and the first k."""
    torch.manual_seed(n)
    x = torch.randint(-300, 300, (3, n)) / 3
    x[0, n // 2], x[1, n // 3], x[2, n // 2 :] = torch.nan, torch.inf, -0.0
    for down in (False, True):

        def order(x, down=down):
            return x.nan_to_num(1e9).sort(dim=1, descending=down, stable=True).values, x.argsort(
                dim=1, descending=down, stable=True
            )

        for kind in (torch.float32, torch.int64, torch.uint8):
            check_equal(order, x if kind == torch.float32 else x.nan_to_num(0, posinf=0).to(kind))
    check_equal(lambda x: x.argsort(dim=0, stable=True), x.T.contiguous())
    for k in (1, n // 2):
        check_equal(lambda x, k=k: tuple(x.topk(k, 1)), torch.randperm(4 * n).view(4, n).float())
    check_equal(lambda x: tuple(x.kthvalue(n // 5 + 1, 0)), torch.randperm(2 * n).view(n, 2).float())


def check_equal(function, *args):
    got, want = sol.optimize(function)(*args), function(*args)
    for y, z in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, want)), strict=True):
        assert torch.equal(y, z)


class Attention(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.causal = causal

    def forward(self, q, k, v, *mask):
        grouped = q.shape[1] != k.shape[1]
        attend = nn.functional.scaled_dot_product_attention
        return attend(q, k, v, *mask, is_causal=self.causal, enable_gqa=grouped)


# kind; batch, heads, and those of keys; queries, keys; elements of a key, of a value
ATTENTION = [
    ("plain", 2, 4, 4, 130, 65, 64, 64),
    ("causal", 1, 2, 2, 130, 130, 64, 64),
    ("plain", 1, 4, 2, 7, 3, 20, 20),
    ("float", 1, 2, 2, 65, 130, 80, 80),
    ("bool", 2, 2, 1, 1, 65, 64, 64),
    ("causal", 1, 2, 2, 65, 65, 20, 80),
    ("bool", 1, 2, 2, 40, 33, 128, 21),
    ("plain", 1, 1, 1, 33, 70, 120, 120),
]


def attention_inputs(kind, dtype, b, h, shared, t, s, d, e):
    torch.manual_seed(5)
    given = [torch.randn(x, dtype=dtype) for x in ((b, h, t, d), (b, shared, s, d), (b, shared, s, e))]
    if kind == "float":
        given.append(torch.randn(t, s, dtype=dtype))
    if kind == "bool":
        given.append((torch.rand(t, s) > 0.4) | (torch.arange(s) == s // 2))
    return given


def solvers(optimized, given):
    """Those of a call's kernels."""
    return [k.solver.split()[0] for k in sol.profile(optimized, *given, runs=1).kernels]


def check_attention(case, dtype):
    """Against float64. Returns the solvers of the kernels."""
    model, given = Attention(case[0] == "causal"), attention_inputs(case[0], dtype, *case[1:])
    sol.config["solver"] = "attention_simt"
    optimized = sol.optimize(model, *given)
    want = model(*(x.double() if x.is_floating_point() else x for x in given))
    assert difference(optimized(*given), want) < (1e-5 if dtype == torch.float32 else 1e-13)
    return solvers(optimized, given)


def check_attention_gradient(case, dtype):
    """The same for the gradients of queries, keys and values."""
    model, given = Attention(case[0] == "causal"), attention_inputs(case[0], dtype, *case[1:])
    exact = [x.double() if x.is_floating_point() else x for x in given]
    sol.config["solver"] = "attention_grad_simt"
    optimized = sol.optimize(model, *given)
    for x in (*given[:3], *exact[:3]):
        x.requires_grad_()
    got, want = optimized(*given), model(*exact)
    weights = torch.rand(want.shape, dtype=torch.float64) - 0.5
    (want * weights).sum().backward()
    (got * weights.to(dtype)).sum().backward()
    for x, y in zip(given[:3], exact[:3], strict=True):
        assert difference(x.grad, y.grad) < (2e-5 if dtype == torch.float32 else 1e-13)
    return solvers(optimized, given)
