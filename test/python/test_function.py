"""A model's own autograd.Function in training: the gradient is what its backward computes."""

import copy

import pytest
import sol
import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch_help import assert_as_good, to_double

SHAPE = (3, 4)


class Straight(torch.autograd.Function):
    """Its backward is not the derivative: rounding passes gradients on."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


class Pair(torch.autograd.Function):
    """Two results and arguments, a number, an argument without gradient; backward uses values saved by forward."""

    @staticmethod
    def forward(ctx, x, y, scale, index):
        ctx.save_for_backward(x, y)
        ctx.scale = scale
        return x * y * scale, x[:, index] + y.sum(1, keepdim=True)

    @staticmethod
    @once_differentiable
    def backward(ctx, a, b):
        x, y = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, True, False, False)
        return 2 * a * y * ctx.scale + b.sum() / 8, a.cumsum(-1) * x + 3 * b.mean(1, keepdim=True), None, None


class Apart(torch.autograd.Function):
    """forward without ctx; one result is not differentiable."""

    @staticmethod
    def forward(x, y):
        return torch.where(x > y, x, y), (x > y).float()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, g, _):
        (mask,) = ctx.saved_tensors
        return g * mask * 2, None


class Number(torch.autograd.Function):
    """One result is a single number. Zeros in backward, and the gradient of the other result, are not its gradient."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, (x - y).abs().sum()

    @staticmethod
    def backward(ctx, a, b):
        x, y = ctx.saved_tensors
        d = torch.where(x > y, b, torch.zeros((), dtype=b.dtype))
        return a * y + d, torch.zeros_like(b) - d + a.masked_fill(x > 0, 0.0)


class Turned(torch.autograd.Function):
    """Complex results and arguments."""

    @staticmethod
    def forward(ctx, x, z):
        ctx.save_for_backward(x, z)
        return x * z, z.real.clone()

    @staticmethod
    def backward(ctx, a, b):
        x, z = ctx.saved_tensors
        return 2 * a.real - 3 * a.imag + b, a * x.cos() + torch.complex(a.imag, b) * z


class Projected(torch.autograd.Function):
    """Gradients of several losses whose conflicts are removed (Yu et al. 2020): backward is not linear. It writes its arguments."""

    @staticmethod
    def forward(ctx, x):
        return x.clone(), x.double() * 2, [x[:, :2].sum()][0], torch.complex(x, x * 3)

    @staticmethod
    def backward(ctx, a, b, c, d):
        b = b.to(a.dtype) + (d / (d.abs() + 1)).real
        a -= (a * b).sum().clamp(max=0) * b / b.square().sum()
        b[:, 1:] *= c
        return a + b


class Net(nn.Module):
    def __init__(self, use):
        super().__init__()
        self.a, self.b, self.use = nn.Linear(4, 4), nn.Linear(4, 4), use

    def forward(self, x):
        return self.use(self.a(x), self.b(x).tanh()).relu() * x


def _pair(x, y):
    p, q = Pair.apply(x, y, 0.5, torch.tensor([2, 0, 1, 1]))
    return p * q + p


def _apart(x, y):
    value, mask = Apart.apply(x, y)
    return value + mask * y


def _number(x, y):
    p, q = Number.apply(x, y)
    return p * q + Number.apply(x, p)[1]


def _turned(x, y):
    z, r = Turned.apply(x, torch.complex(x, y))
    q, s = Turned.apply(y, (r + 0j) * z)
    return (z * q).imag + q.abs() * s


def _projected(x, y):
    a, b, c, d = Projected.apply(x)
    p, q, *_ = Projected.apply(y)
    return (a * y - p.sin()) * c + (b.sin() + q * 3).to(a.dtype) - (d * d).imag * p


def _written(x, y):
    p, q, *_ = Projected.apply(x)
    part = p[1:]
    p += y
    part.relu_()
    with torch.no_grad():
        q[0] *= 2
    return Straight.apply(p).mul_(3) * x + q.to(p.dtype)


USES = {
    "written": _written,
    "projected": _projected,
    "turned": _turned,
    "number": _number,
    "straight": lambda x, y: Straight.apply(3 * x) * y,
    "two": _pair,
    "apart": _apart,
    "in turn": lambda x, y: Straight.apply(_pair(Straight.apply(x), _apart(x, y))),
}


def _step(model, x):
    x = x.detach().requires_grad_()
    y = model(x)
    y.square().sum().backward()
    return [y, x.grad, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("use", USES)
def test_gradients(use):
    torch.manual_seed(1)
    m, x = Net(USES[use]), torch.randn(SHAPE)
    exact = _step(to_double(copy.deepcopy(m).double()), x.double())
    eager = _step(copy.deepcopy(m), x)
    s = sol.optimize(m, x.requires_grad_())
    assert_as_good(_step(s, x), eager, exact)
    with torch.no_grad():
        assert torch.equal(s(x).isnan(), torch.zeros(SHAPE, dtype=torch.bool))


class Dirty(Straight):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.round_()


class Again(Straight):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            return torch.autograd.grad(x.sin(), x, g)


class Looks(Straight):
    @staticmethod
    def backward(ctx, g):
        return g if g.sum() > 0 else -g


@pytest.mark.parametrize("function, why", [(Dirty, "mark_dirty"), (Again, "runs autograd"), (Looks, "depends on data")])
def test_what_cannot_be_traced_is_rejected_by_name(function, why, capfd):
    m, x = Net(lambda x, y: function.apply(x + y)), torch.randn(SHAPE)
    s = sol.optimize(m, x)
    assert function.__name__ in capfd.readouterr().err
    with torch.no_grad():
        s(x)
    with pytest.raises(
        sol.UnsupportedError, match=rf"{function.__name__}.apply \(a backward of the model's own\): .*{why}"
    ):
        s(x)
    assert function.apply(x).shape == SHAPE


def test_a_backward_that_looks_at_its_gradient():
    """The marker for the gradient has no values while a backward is traced, whatever values the arguments have."""
    x = torch.randn(SHAPE, requires_grad=True)
    with pytest.raises(sol.UnsupportedError, match=r"depends on data \(test_function.py:\d+\): .* value of a gradient"):
        sol.optimize(lambda x: Looks.apply(x))(x).sum().backward()
