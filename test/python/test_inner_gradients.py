"""Models that ask for gradients in forward: torch.autograd.grad and torch.func."""

import copy

import pytest
import sol
import torch
import torch.nn.functional as F
from torch import nn
from torch_help import DOUBLES, error, tensors

INDEX = torch.tensor([0, 2, 1, 1])


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setitem(sol.config, "autotune", "off")


class Force(nn.Module):
    """An energy, and minus its gradient with respect to positions."""

    def __init__(self, energy, *layers, create_graph=True):
        super().__init__()
        self.energy, self.layers, self.create_graph = energy, nn.ModuleList(layers), create_graph

    def forward(self, x):
        with torch.enable_grad():
            x = x if x.requires_grad else x.detach().requires_grad_()
            energy = self.energy(x, *self.layers)
            (slope,) = torch.autograd.grad(energy.sum(), x, create_graph=self.create_graph)
        return (energy, -slope) if self.create_graph else (energy.detach(), x * slope)


class Solution(nn.Module):
    """A physics-informed network: second derivatives of what it computes."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 8), nn.Softplus(), nn.Linear(8, 1))

    def forward(self, x):
        x = x if x.requires_grad else x.detach().requires_grad_()
        with torch.enable_grad():
            u = self.net(x)
            (d,) = torch.autograd.grad(u.sum(), x, create_graph=True)
            (dd,) = torch.autograd.grad(d[:, 0].sum(), x, create_graph=True)
        return u, dd[:, 0] - d[:, 1] + u.detach()[:, 0]


class Functions(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x):
        def first(p):
            return self.net(p)[0]

        vmap, func = torch.func.vmap, torch.func
        y, pull = func.vjp(self.net, x)
        jacobian, hessian = vmap(func.jacrev(self.net))(x), vmap(func.hessian(first))(x)
        return vmap(func.grad(first))(x), hessian, jacobian, pull(y)[0]


class Ensemble(nn.Module):
    """Several networks as one, by torch.func.functional_call."""

    def __init__(self):
        super().__init__()
        nets = [nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)) for _ in range(3)]
        values = torch.func.stack_module_state(nets)[0]
        self.names = list(values)
        self.stacked = nn.ParameterList(v.detach() for v in values.values())
        self.__dict__["base"] = nets[0]

    def forward(self, x):
        given = dict(zip(self.names, self.stacked, strict=True))
        return torch.vmap(lambda p, y: torch.func.functional_call(self.base, p, (y,)), (0, None))(given, x)


class Adapted(nn.Module):
    """A step of training inside of forward, whose loss keeps a tensor that forward makes."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 5))

    def forward(self, x):
        def loss(w):
            return F.cross_entropy(x @ w, torch.tensor([0, 2, 1, 1]), label_smoothing=0.1)

        return x @ (self.weight - 0.5 * torch.func.grad(loss)(self.weight))


class Tangents(nn.Module):
    """Forward mode."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x):
        return torch.func.jvp(self.net, (x,), (x.sin(),))


class Dual(Tangents):
    def forward(self, x):
        with torch.autograd.forward_ad.dual_level():
            made = self.net(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
            return torch.autograd.forward_ad.unpack_dual(made).tangent


ROWS = (4, 6)
IMAGE = (2, 4, 5, 5)
MODELS = {
    "linear": (ROWS, lambda: Force(lambda x, f: F.gelu(f(x)), nn.Linear(6, 3))),
    "constant": (ROWS, lambda: Force(lambda x, f: f(x).square() * x[:, :3], nn.Linear(6, 3), create_graph=False)),
    "convolution": (IMAGE, lambda: Force(lambda x, f: F.silu(f(x)), nn.Conv2d(4, 3, 3, padding=1))),
    "transposed": (IMAGE, lambda: Force(lambda x, f: f(x).tanh(), nn.ConvTranspose2d(4, 3, 3, stride=2))),
    "batch-norm": (IMAGE, lambda: Force(lambda x, f: f(x).sin(), nn.BatchNorm2d(4))),
    "layer-norm": (ROWS, lambda: Force(lambda x, f: f(x).sin(), nn.LayerNorm(6))),
    "log-sigmoid": (ROWS, lambda: Force(lambda x: F.logsigmoid(x))),
    "attention": (ROWS, lambda: Force(lambda x, f: f(x[None], x[None], x[None])[0], nn.MultiheadAttention(6, 2, batch_first=True))),
    "graph": (ROWS, lambda: Force(lambda x: torch.zeros(4).index_add(0, INDEX, (x[INDEX] - x).square().sum(1)).exp())),
    "tensor in forward": (ROWS, lambda: Force(lambda x: x[torch.tensor([0, 1, 1])].pow(3))),
    "linear algebra": (ROWS, lambda: Force(lambda x: torch.linalg.inv(x.T @ x + torch.eye(6)))),
    "lstm": (ROWS, lambda: Force(lambda x, f: f(x[None])[0], nn.LSTM(6, 3, batch_first=True))),
    "cross-entropy": (ROWS, lambda: Force(lambda x: F.cross_entropy(x, INDEX, torch.arange(6) / 6.0, reduction="none"))),
    "equation": ((4, 3), Solution),
    "adapted": (ROWS, Adapted),
    "tangents": (ROWS, Tangents),
    "dual numbers": (ROWS, Dual),
    "torch.func": ((4, 3), Functions),
    "ensemble": ((4, 3), Ensemble),
}  # fmt: skip


def gradients(model, x):
    x = x.clone().requires_grad_()
    made = tensors(model(x))
    sum((t.sin() if t.requires_grad else t).sum() for t in made if t.requires_grad).backward()
    return [t.detach() for t in made], {"x": x.grad, **{n: p.grad for n, p in model.named_parameters()}}


@pytest.mark.parametrize("name", MODELS)
def test_results_and_gradients_in_double(name, monkeypatch):
    shape, make = MODELS[name]
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        model, x = make(), torch.randn(shape)
        want, slopes = gradients(copy.deepcopy(model), x)
        made = sol.optimize(model)
        got, found = gradients(made, x)
    finally:
        torch.set_default_dtype(before)
    assert made._sol.programs
    for a, b in zip(got, want, strict=True):
        assert error(a, b) < DOUBLES
    assert found.keys() == slopes.keys()
    for n, b in slopes.items():
        a = found[n]
        assert (a is None) == (b is None), n
        assert b is None or error(a, b) < DOUBLES or (a - b).abs().max() < 1e-13, n


class Kept(nn.Module):
    """`data` and `detach` cut the history, and what autograd keeps for backward does not."""

    def forward(self, x):
        y = x.tanh()
        (slope,) = torch.autograd.grad((y * y.detach() + y * y.data).sum(), x, create_graph=True)
        return slope * y.data + y.exp().detach()


def test_data_and_detach_have_no_gradient():
    model, x = Kept(), torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    (want,) = torch.autograd.grad(model(x).sum(), x)
    (got,) = torch.autograd.grad(sol.optimize(model)(x).sum(), x)
    assert error(got, want) < DOUBLES


class Data(nn.Module):
    def forward(self, x):
        return x.data * 3 + x * 2, x.data.exp()


@pytest.mark.parametrize("train", [True, False])
def test_data_has_no_gradient_whoever_asks_for_it(train):
    """In eval mode, the model is traced for gradients while autograd runs."""
    x = torch.randn(3, 4, requires_grad=True)
    y, z = sol.optimize(Data().train(train))(x)
    (y.sum() + z.sum()).backward()
    torch.testing.assert_close(x.grad, torch.full((3, 4), 2.0))


class Listed(nn.Module):
    """Tensors in a list, which are no buffers."""

    def __init__(self):
        super().__init__()
        self.scales = [torch.tensor([1.0, 2.0]), torch.tensor(3.0)]

    def forward(self, x):
        return x * self.scales[0] + self.scales[1]


def test_tensors_in_lists_are_constants():
    model, x = Listed(), torch.randn(3, 2)
    made = sol.optimize(model, x, vdims=True)
    assert torch.equal(made(x), model(x)) and torch.equal(made(x[:2]), model(x[:2]))
    assert len(made._sol.programs) == 1


def test_log_sigmoid_keeps_what_its_backward_reads():
    class Both(nn.Module):
        def forward(self, x, dy):
            y, kept = torch.ops.aten.log_sigmoid_forward(x)
            return y, torch.ops.aten.log_sigmoid_backward(dy, x, kept)

    x, dy = torch.randn(2, 5, 6)
    for a, b in zip(sol.optimize(Both(), x, dy)(x, dy), Both()(x, dy), strict=True):
        torch.testing.assert_close(a, b)


class ByArgument(nn.Module):
    """Forces by an argument that requires a gradient, and one step of gradient descent for the layer (MAML)."""

    def __init__(self):
        super().__init__()
        self.net, self.rate = (
            nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)),
            nn.Parameter(torch.tensor(0.1)),
        )

    def forward(self, x):
        own = dict(self.net.named_parameters())
        loss = torch.func.functional_call(self.net, own, (x,)).square().mean()
        force, *slopes = torch.autograd.grad(loss, [x, *own.values()], create_graph=True)
        own = {name: p - self.rate * d for (name, p), d in zip(own.items(), slopes, strict=True)}
        return torch.func.functional_call(self.net, own, (x,)), force


@pytest.mark.parametrize("example", (False, True))
@pytest.mark.parametrize("mode", ("train", "eval"))
def test_by_arguments_and_parameters(mode, example):
    torch.manual_seed(0)
    m = getattr(ByArgument(), mode)()
    x, ends = torch.randn(4, 3, requires_grad=True), []
    for model in (m, sol.optimize(copy.deepcopy(m), *([x] if example else []))):
        for _ in range(2):
            x.grad = None
            model.zero_grad()
            y, force = model(x)
            (y.sum() + force.square().sum()).backward()
        ends.append([y, force, x.grad, *(p.grad for p in model.parameters())])
    torch.testing.assert_close(*ends)
