"""What autograd does not see: writes under no_grad() and through detach(), and assigned data of tensors and parameters."""

import copy

import pytest
import sol
import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.w = nn.Parameter(torch.randn(6, 6))
        self.register_buffer("q", torch.randn(6, 8))
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def limited(m, x):
    y = (x @ m.w).exp() * 1
    with torch.no_grad():
        y.clamp_(min=0.5)
    return y.log(), y


def detached(m, x):
    y = x @ m.w
    y.detach().mul_(2)
    return y * y.sum()


def part(m, x):
    y = x @ m.w * 1
    with torch.no_grad():
        y[:, :2] *= 3
        y[0].clamp_(0, 1)
    return y.sin()


def view(m, x):
    y = x @ m.w * 1
    v = y[:, 1:4]
    with torch.no_grad():
        v.mul_(2)
    return v.tanh(), y.cos()


def parameter(m, x):
    with torch.no_grad():
        m.w.div_(m.w.norm())
    return x @ m.w


def loss(m, x):
    return F.gaussian_nll_loss(x @ m.w, x, (x @ m.w).exp() * 0.1, eps=0.05)


def longest(m, x):
    m.w.data = torch.renorm(m.w.data, p=2, dim=0, maxnorm=1.0)
    return F.linear(x, m.w)


def clamped(m, x):
    m.w.data.clamp_(-0.2, 0.2)
    return x @ m.w


def rounded(m, x):
    y = x @ m.w
    z = y.clone()
    z.data = z.data.round()
    return z * y, y


def average(m, x):
    m.q.data = m.q.data * 0.9 + 0.1
    return x @ m.w @ m.q


def exchanged(m, x):
    old = m.w.data
    m.w.data = old * 2
    y = x @ m.w
    m.w.data = old
    return y, x @ m.w


def queue(m, x):
    """MoCo's queue of keys."""
    keys = x.tanh().detach()
    logits = x @ m.w @ m.q.clone().detach()
    with torch.no_grad():
        m.q[:, 2:5] = keys.t()
    return logits


def scaled(m, x):
    y = (x @ m.w) * m.q[:3, :6].clone()
    with torch.no_grad():
        m.q.mul_(0.5).add_(1)
    return F.dropout(y.sin(), 0.0, training=True)


FUNCTIONS = [limited, detached, part, view, parameter, loss, longest, clamped, rounded, average, queue, scaled]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_change_and_gradients_do_not(function, training):
    model = Model(function).train(training)
    other = copy.deepcopy(model)
    optimized = sol.optimize(model)
    for _ in range(2):
        given = [torch.linspace(-1, 1, 18).view(3, 6).requires_grad_() for _ in range(2)]
        made = []
        for m, x in zip((optimized, other), given, strict=True):
            m.zero_grad()
            results = m(x)
            results = results if isinstance(results, tuple) else (results,)
            sum((r * torch.arange(r.numel()).view(r.shape)).sum() for r in results).backward()
            made.append([*(r.detach() for r in results), x.grad, m.w.grad, m.w.detach().clone(), m.q.clone()])
        for got, expected in zip(*made, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)


def test_exchanged_data():
    model = Model(exchanged)
    before = model.w.detach().clone()
    x = torch.randn(3, 6)
    y, z = sol.optimize(model)(x)
    torch.testing.assert_close(y, x @ before * 2)
    torch.testing.assert_close(z, x @ before)
    assert torch.equal(model.w, before)


def test_data_of_another_shape():
    def shorter(m, x):
        y = x @ m.w
        y.data = y.data[:, :2]
        return y

    with torch.no_grad(), pytest.raises(sol.UnsupportedError, match=r"float32\[3, 2\] to float32\[3, 6\]"):
        sol.optimize(Model(shorter))(torch.randn(3, 6))


def test_data_in_a_graph_of_dynamo():
    """Dynamo writes `t.data` as a call of a function of PyTorch's that is no operator; with fullgraph=True nothing runs in PyTorch."""
    torch._dynamo.reset()
    model = Model(clamped)
    other = copy.deepcopy(model)
    compiled = torch.compile(model, backend="sol", fullgraph=True)
    given = [torch.linspace(-1, 1, 18).view(3, 6).requires_grad_() for _ in range(2)]
    for m, x in zip((compiled, other), given, strict=True):
        m(x).square().sum().backward()
    for got, expected in ((model.w, other.w), (model.w.grad, other.w.grad), (given[0].grad, given[1].grad)):
        torch.testing.assert_close(got, expected)


class Results(nn.Module):
    """Results of which some have gradients."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.b.requires_grad_(False)
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x, z):
        y = self.a(x)
        c = torch.zeros(2, 3)
        c[:, 1:] += y[:, 1:]
        d = torch.ones(2, 3)
        d[0] = self.b(z)[0]
        made = [y, y.detach(), y.detach() + self.scale, y.argmax(1), torch.ones(2), self.scale * 2, torch.zeros_like(y)]
        return [
            *made,
            (y > 0).float(),
            c,
            d,
            self.b(z),
            self.a.weight.detach().sum(),
            x.detach() * self.a.bias,
            y.new_ones(2) * z[0, :2],
        ]


@pytest.mark.parametrize("given", (False, True), ids=("plain", "differentiated"))
def test_which_results_have_gradients(given):
    """In eval mode, results that are constant or detached, or that follow from frozen parameters alone, do not require gradients."""
    m = Results().eval()
    s = sol.optimize(copy.deepcopy(m))
    x, z = torch.randn(2, 3), torch.randn(2, 3, requires_grad=given)
    for _ in range(2):
        want, got = m(x, z), s(x, z)
        assert [t.requires_grad for t in got] == [t.requires_grad for t in want]
        sum(t.sum() for t in got if t.requires_grad).backward()


def _target(self, x):
    with torch.no_grad():
        h = self.b(x).relu()
        with torch.enable_grad():
            inside = self.a(h)
        again = self.a(inside)
        values, order = again.sort(1)
    return [h, inside, again, values, order, self.a(h), h.t(), inside[0], (x + h).detach() + self.a(x)]


@torch.no_grad()
def _decorated(self, x):
    return self.a(x)


def _regions(self, x, on):
    with torch.set_grad_enabled(on), torch.inference_mode(not on):
        y = self.a(x)
    torch.set_grad_enabled(False)
    z = self.a(x)
    torch.set_grad_enabled(True)
    return [y.clone(), z, self.b(x), _decorated(self, x)]


def _same(self, x):
    with torch.no_grad():
        y = x.contiguous().to(x.dtype)  # x itself
        h = self.a(x)
        h[:, 0] = self.b(x)[:, 0]
    z, _ = torch.broadcast_tensors(self.a(x), h)
    return [self.a(y), x * 2, h, h * self.b(y), z]


def _written(self, x):
    y = self.a(x)
    with torch.no_grad():
        y.mul_(2)
        seen = y[:, 1:].sum()
    return [y, seen, y * self.b(x)]


class _Doubled(torch.autograd.Function):
    @staticmethod
    @torch.no_grad()
    def forward(ctx, x):
        with torch.no_grad():
            return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g


def _own(self, x):
    with torch.no_grad():
        y = _Doubled.apply(self.a(x))
    return [y, _Doubled.apply(self.b(x))]


REGIONS = {
    "target": _target,
    "on": (_regions, True),
    "off": (_regions, False),
    "same": _same,
    "written": _written,
    "own": _own,
}


class Region(nn.Module):
    def __init__(self, call, *more):
        super().__init__()
        self.a, self.b, self.call, self.more = nn.Linear(3, 3), nn.Linear(3, 3), call, more

    def forward(self, x):
        return self.call(self, x, *self.more)


@pytest.mark.parametrize("name", REGIONS)
def test_regions_without_gradients(name):
    """What forward computes under no_grad() has no gradient, also in eval mode, where inference is traced; the rest has PyTorch's."""
    row = REGIONS[name]
    m = Region(*(row if isinstance(row, tuple) else (row,))).eval()
    s = sol.optimize(copy.deepcopy(m))
    x = torch.randn(2, 3)
    for training in (False, False, True):
        found = []
        for one in (m.train(training), s.train(training)):
            given = x.clone().requires_grad_()
            made = one(given)
            wanted = [t for t in made if t.requires_grad]
            loss = sum((k + 1) * t.square().sum() for k, t in enumerate(wanted))
            by = torch.autograd.grad(loss, [given, *one.parameters()], allow_unused=True)
            found.append(([t.requires_grad for t in made], by))
        (had, by), (has, got) = found
        assert has == had
        for a, b in zip(got, by, strict=True):
            assert (a is None) == (b is None)
            assert a is None or torch.allclose(a, b, 1e-4, 1e-5)
