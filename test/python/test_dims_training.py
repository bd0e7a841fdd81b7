"""Steps of training at sizes that vary: one program, gradients and running statistics as PyTorch's at each size."""

import copy

import pytest
import sol
import torch
from torch import nn
from torch.nn import functional as F
from torch_help import error


@pytest.fixture(autouse=True)
def quick():
    before = sol.config["autotune"]
    sol.config["autotune"] = "off"
    yield
    sol.config["autotune"] = before


class Pictures(nn.Module):
    """Strides, groups, a resize, a pool and both kinds of norms with running statistics."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, 2, 1)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 32, 3, 1, 1, groups=4)
        self.other = nn.InstanceNorm2d(32, affine=True, track_running_stats=True)
        self.head = nn.Linear(32, 7)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        y = F.avg_pool2d(F.interpolate(x, scale_factor=2.0), 2)
        return self.head(self.other(self.second(x + y)).amax((2, 3)))


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(20, 24)
        self.norm = nn.BatchNorm1d(24)

    def forward(self, x):
        return self.norm(self.inner(x).transpose(1, 2)).std(2)


def check(model, described, sizes):
    reference = copy.deepcopy(model)
    s = sol.optimize(model, described)
    for size in sizes:
        x = torch.randn(*size)
        reference.load_state_dict(s.state_dict())
        for m in (reference, s):
            m.zero_grad()
            m(x).square().sum().backward()
        for (name, p), q in zip(reference.named_parameters(), s.parameters(), strict=True):
            # a bias in front of a norm has a gradient of 0, of which only rounding is left
            assert error(q.grad, p.grad.double()) < 1e-4 or p.grad.abs().max() < 1e-4, (size, name)
        for (name, p), q in zip(reference.named_buffers(), s.buffers(), strict=True):
            assert torch.allclose(q.double(), p.double(), atol=1e-6), (size, name)
    assert [p.varying is not None for p in s._sol.programs.values()] == [True]


def test_pictures():
    torch.manual_seed(0)
    sizes = [(4, 3, 16, 16), (3, 3, 24, 17), (6, 3, 9, 30), (2, 3, 5, 7)]
    check(Pictures().train(), sol.input([0, 3, 0, 0]), sizes)


def test_rows():
    torch.manual_seed(0)
    check(Rows().train(), sol.input([0, 0, 20]), [(4, 9, 20), (3, 5, 20), (7, 30, 20)])


def epoch(model, data):
    """The losses of two epochs in batches of 4, of which the last is smaller."""
    torch.manual_seed(0)
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    for _ in range(2):
        for x, y in torch.utils.data.DataLoader(data, 4):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return torch.stack(losses)


TAILS = {  # how the batch is open, and the programs: the first size of an open batch alone has its own
    "any size": (lambda: (sol.input([0, 8]),), {}, [False, True]),
    "a name": (lambda: (sol.input([sol.dim("batch"), 8]),), {}, [True]),
    "vdims": (lambda: (torch.randn(4, 8),), {"vdims": True}, [True]),
    "any call": (lambda: (), {"vdims": True}, [True]),
}


@pytest.mark.parametrize("name", TAILS)
def test_epoch_with_a_tail(name):
    torch.manual_seed(0)
    args, kwargs, programs = TAILS[name]
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)).train()
    data = torch.utils.data.TensorDataset(torch.randn(11, 8), torch.randint(0, 3, (11,)))
    expected = epoch(copy.deepcopy(model), data)
    s = sol.optimize(copy.deepcopy(model), *args(), **kwargs)
    torch.testing.assert_close(epoch(s, data), expected)
    assert [p.varying is not None for p in s._sol.programs.values()] == programs


class Mixed(nn.Module):
    """Saves a tensor for each of many numbers of channels, whose bytes are no whole cache lines."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(n, n + 1, 1) for n in range(1, 20))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = torch.tanh(layer(x))
            if i % 7 == 6:
                x = F.avg_pool2d(x, 2)
        return x.sum((2, 3))


@pytest.mark.slow
def test_many_tensors_are_saved():
    torch.manual_seed(0)
    check(Mixed(), sol.input([0, 1, 0, 0]), [(2, 1, 16, 24), (3, 1, 21, 17)])
