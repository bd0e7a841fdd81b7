"""What holds on every device that has memory of its own and is there: sizes that vary, memory, times, random numbers."""

import copy
import gc
from pathlib import Path

import pytest
import sol
import torch
from torch import nn

THERE = [
    (d["type"], d["index"]) for d in sol.devices() if d["type"] in ("far", "opencl", "nvidia", "ve") and not d["why"]
]


@pytest.fixture(params=THERE, ids=lambda d: f"{d[0]}:{d[1]}", autouse=True)
def there(request):
    sol.device.set(*request.param)
    options = sol.config["device::options"]
    yield request.param
    sol.config["device::options"] = options
    sol.set_seed(None)


class Tagger(nn.Module):
    """Convolutions over time, attention and normalization: sequences of any number and length."""

    def __init__(self):
        super().__init__()
        self.embed, self.conv = nn.Embedding(20, 8), nn.Conv1d(8, 8, 3, padding=1)
        self.attend, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)
        self.out = nn.Linear(8, 5)

    def forward(self, words):
        x = self.embed(words)
        x = x + self.conv(x.transpose(1, 2)).relu().transpose(1, 2)
        x = self.norm(x + self.attend(x, x, x, need_weights=False)[0])
        return self.out(x).log_softmax(-1)


class Speech(nn.Module):
    """A recurrence of as many steps as the sequence has."""

    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 5)

    def forward(self, x):
        return self.out(self.rnn(x)[0].mean(1))


def words(n, steps):
    return torch.randint(0, 20, (n, steps), generator=torch.Generator().manual_seed(n + steps))


def sound(n, steps):
    return torch.randn(n, steps, 6, generator=torch.Generator().manual_seed(n + steps))


VARYING = {"tagger": (Tagger, words), "speech": (Speech, sound)}
SIZES = [(3, 7), (1, 12), (5, 4), (2, 33)]


def step(model, x):
    """Gradients of a step of training, and its result."""
    model.zero_grad()
    y = model(x)
    (y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum().backward()
    return [y.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("name", VARYING)
def test_one_program_trains_at_all_sizes(name):
    make, data = VARYING[name]
    torch.manual_seed(1)
    model = make()
    fast = sol.optimize(model, data(*SIZES[0]), vdims=True)
    got = [step(fast, data(*size)) for size in SIZES]
    assert len(fast._sol.programs) == 1
    with sol.device("auto"):
        expected = [step(fast, data(*size)) for size in SIZES]
    for size, a, b in zip(SIZES, got, expected, strict=True):
        for x, y in zip(a, b, strict=True):
            assert (x - y).abs().max() <= 2e-6 * b[0].numel() ** 0.5 * max(float(y.abs().max()), 1e-2), size


def resident_bytes():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_a_thousand_calls_need_no_more_memory(there):
    """Steps of training at changing sizes: neither the process nor the device, of which far has little, keeps anything. What 100 calls
    begin with is not counted."""
    if there[0] == "far":
        sol.config["device::options"] = "far.memory=2MB,far.devices=2"
        sol.device.set("far", 1)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16))
    fast = sol.optimize(model, torch.randn(4, 16), vdims=True)
    optimizer = torch.optim.SGD(fast.parameters(), 1e-3)
    before = 0
    for i in range(1100):
        if i == 100:
            before = resident_bytes()
        optimizer.zero_grad()
        fast(torch.ones(4 + i % 3 * 20, 16)).square().mean().backward()
        optimizer.step()
    assert resident_bytes() - before < 4 << 20
    assert len(fast._sol.programs) == 1


def test_profiles_have_the_times_of_steps():
    """A product of 2 GFLOP, and a step that is nothing beside it."""
    model, x = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.Softmax(0)).eval(), torch.randn(1024, 1024)
    p = sol.profile(sol.optimize(model, x), x, runs=3)
    (product,) = [k for k in p.kernels if "0.linear" in k.layers]
    assert p.runs == 3 and product.flops == pytest.approx(2 * 1024**3, rel=1e-3)
    assert all(0 < k.least_us <= k.us for k in p.kernels)
    assert product.us == max(k.us for k in p.kernels) and product.us > 0.3 * p.us
    assert p.us <= 1.2 * p.call_us
    training = sol.profile(copy.deepcopy(model).train(), x, runs=2).kernels
    assert {k.backward for k in training} == {False, True} and all(k.us > 0 for k in training)


def test_random_numbers_are_those_of_the_seed(there):
    """Equal seeds give equal numbers on all devices; each device has a seed of its own."""
    model, x = sol.optimize(nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 64))).train(), torch.ones(16, 64)
    sol.set_seed(3)
    first = model(x).detach()
    sol.set_seed(4, *there)
    assert sol.seed(*there) == 4 and sol.seed("x86", 0) == 3
    other = model(x).detach()
    with sol.device("auto"):
        sol.set_seed(3, "x86", 0)
        torch.testing.assert_close(model(x).detach(), first, rtol=1e-5, atol=1e-5)
        sol.set_seed(4, "x86", 0)
        torch.testing.assert_close(model(x).detach(), other, rtol=1e-5, atol=1e-5)
    assert (first - other).abs().max() > 0.01
