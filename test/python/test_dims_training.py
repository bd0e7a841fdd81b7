"""Steps of training at sizes that vary: one program, gradients and running statistics as PyTorch's at each size."""

import copy
import math

import pytest
import sol
import torch
from torch import nn
from torch.nn import functional as F
from torch_help import DOUBLES, assert_as_good, error


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


class Resized(nn.Module):
    """A picture resized to the size of another one, which may be any: no table says which elements are read."""

    def __init__(self, mode):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 1)
        self.mode = mode

    def forward(self, x, y):
        return F.interpolate(self.conv(x), size=y.shape[2:], mode=self.mode) * y


def programs_of_training(model):
    return sum(p.gradient is not None for p in model._sol.programs.values())


def same_gradients(model, optimized, args):
    double = copy.deepcopy(model).double()
    for m, given in ((model, args), (double, [a.double() for a in args]), (optimized, args)):
        m.zero_grad()
        m(*given).square().sum().backward()
    for p, q, exact in zip(model.parameters(), optimized.parameters(), double.parameters(), strict=True):
        assert error(q.grad, exact.grad) <= 4 * error(p.grad, exact.grad) + 1e-6, [a.shape for a in args]


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "area"])
def test_resize_to_the_size_of_another_input(mode):
    model = Resized(mode)
    optimized = sol.optimize(copy.deepcopy(model), torch.randn(2, 2, 7, 9), torch.randn(2, 3, 13, 10), vdims=True)
    for n, h, w, k, m in ((2, 7, 9, 13, 10), (3, 12, 4, 5, 16), (2, 31, 5, 2, 70)):
        same_gradients(model, optimized, (torch.randn(n, 2, h, w), torch.randn(n, 3, k, m)))
    assert programs_of_training(optimized) == 1


class Spatial(nn.Module):
    """A spatial transformer of pictures or volumes."""

    def __init__(self, pixels, align):
        super().__init__()
        conv, pool = ((nn.Conv2d, nn.AdaptiveAvgPool2d), (nn.Conv3d, nn.AdaptiveAvgPool3d))[pixels - 2]
        self.pixels, self.align = pixels, align
        self.find = nn.Sequential(conv(2, 4, 3, 2, 1), nn.ReLU(), pool(1), nn.Flatten())
        self.theta = nn.Linear(4, pixels * (pixels + 1))
        self.last = conv(2, 3, 1)

    def forward(self, x):
        theta = self.theta(self.find(x)).view(-1, self.pixels, self.pixels + 1)
        grid = F.affine_grid(theta, x.shape, align_corners=self.align)
        return self.last(F.grid_sample(x, grid, align_corners=self.align)) + grid.square().sum(-1).unsqueeze(1)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("pixels", [2, 3])
def test_spatial_transformer(pixels, align):
    """Grids of positions for pictures of any size: one program for inference and one for training, in float32 and float64."""
    torch.manual_seed(0)
    model = Spatial(pixels, align)
    calls = [torch.randn(n, 2, *p[:pixels]) for n, p in
             ((2, (8, 10, 5)), (3, (13, 7, 6)), (1, (8, 8, 9)), (5, (3, 21, 4)), (4, (16, 2, 3)))]  # fmt: skip
    optimized = sol.optimize(copy.deepcopy(model), calls[0], vdims=True)
    double = sol.optimize(copy.deepcopy(model).double(), calls[0].double(), vdims=True)
    exact = copy.deepcopy(model).double()
    for x in calls:
        same_gradients(model, optimized, (x,))
        for m in (double, exact):
            m.zero_grad()
            m(x.double()).square().sum().backward()
        for p, q in zip(double.parameters(), exact.parameters(), strict=True):
            assert error(p.grad, q.grad) < DOUBLES, x.shape
        with torch.no_grad():
            expected = exact(x.double())
            assert_as_good(optimized(x), model(x), expected)
            assert error(double(x.double()), expected) < DOUBLES, x.shape
    for m in (optimized, double):
        assert programs_of_training(m) == 1 and len(m._sol.programs) == 2


class Video(nn.Module):
    """A few frames are one in the end, which PyTorch's trace takes for a number."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv3d(3, 8, 3, 2, 1), nn.Conv3d(8, 8, 3, 2, 1)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x):
        return F.adaptive_avg_pool3d(self.norm(self.second(torch.relu(self.first(x)))), 1)


def test_a_size_that_is_1_by_a_rule():
    model = Video()
    optimized = sol.optimize(copy.deepcopy(model), torch.randn(2, 3, 4, 16, 16), vdims=True)
    for n, frames in ((2, 4), (2, 3), (5, 4)):
        same_gradients(model, optimized, (torch.randn(n, 3, frames, 16, 16),))
    assert programs_of_training(optimized) == 1
    same_gradients(model, optimized, (torch.randn(2, 3, 9, 16, 16),))
    same_gradients(model, optimized, (torch.randn(2, 3, 13, 16, 16),))
    assert programs_of_training(optimized) == 2


def test_a_recurrence_of_any_length_is_a_scan():
    """Forward and backward: products of a step are kernels of solvers, as where the length is a number."""
    x = torch.randn(6, 2, 4)
    optimized = sol.optimize(torch.nn.LSTM(4, 32).train(), x, vdims=True)
    for steps in (6, 3, 1):
        optimized(torch.randn(steps, 2, 4))[0].sum().backward()
    ways = {(k.backward, k.solver.partition(" ")[0]) for k in sol.profile(optimized, x, runs=1).kernels}
    assert {(False, "scan"), (True, "scan")} <= ways


class Framed(nn.Module):
    """Its rule that there is a frame is no limit of the length, so at a length of 1 there would be a negative number of them."""

    def __init__(self):
        super().__init__()
        self.rows = nn.LSTM(16, 3)

    def forward(self, x):
        frames = max(math.ceil((x.size(1) - 16) / 4) + 1, 1)
        x = F.pad(x, (0, (frames - 1) * 4 + 16 - x.size(1)))
        return self.rows(x.unfold(1, 16, 4).transpose(0, 1))[0]


def test_kernels_are_made_for_sizes_that_can_be():
    torch.manual_seed(0)
    model = Framed()
    eager = copy.deepcopy(model)
    optimized = sol.optimize(model, torch.randn(1, 61), vdims=True)
    for shape in ((1, 61), (3, 35), (2, 17)):
        x = torch.randn(shape)
        for m in (optimized, eager):
            m.zero_grad()
            m(x).square().sum().backward()
        for p, q in zip(model.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-5)
