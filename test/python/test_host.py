"""Host functions (sol.host_function), which Python runs in front of each call, and sol.differentiate."""

import copy
import random

import numpy as np
import pytest
import sol
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

X = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


@pytest.fixture(autouse=True)
def off(monkeypatch):
    monkeypatch.setitem(sol.config, "autotune", "off")


@sol.host_function
def spans(shape, share):
    return np.random.rand(*shape) < share


@sol.host_function
def lengths(mask):
    return np.array([random.randrange(1, n + 1) for n in mask.sum(-1).tolist()])


@sol.host_function
def drops(share):
    return random.random() < share


class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.hidden, self.share = nn.Linear(4, 4), nn.Parameter(torch.randn(4)), 0.4
        self.function = function

    def forward(self, *args):
        return self.function(self, *args)


def augmented(self, x, mask):
    """As SpecAugment does it: what is drawn depends on shapes, attributes and the mask."""
    h = self.linear(x)
    if self.training:
        h[torch.from_numpy(spans(h.shape[:2], self.share))] = self.hidden
        kept = lengths(mask)
        n = torch.tensor(np.stack([kept, 2 * kept])[1], dtype=torch.float32)
        h = h * n[:, None, None]
    return h


def seeded(f, seed, *calls):
    """The results, gradients and next random numbers of some calls."""
    np.random.seed(seed), random.seed(seed), torch.manual_seed(seed)
    found = []
    for args in calls:
        f.zero_grad()
        y = f(*args)
        (y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum().backward()
        found += [y.detach(), *(p.grad.clone() for p in f.parameters() if p.grad is not None)]
    return found, [np.random.rand(), random.random()]


def assert_as_eager(model, optimized, *calls, seeds=4):
    for seed in range(seeds):
        (want, after), (got, then) = (seeded(f, seed, *calls) for f in (model, optimized))
        torch.testing.assert_close(got, want)
        assert then == after, "the generators go on as in eager mode"


def programs(s):
    return len(s._sol.programs)


def test_what_is_drawn_is_what_eager_draws():
    m = Apply(augmented)
    s = sol.optimize(m)
    assert_as_eager(m, s, (X, MASK), (X + 1, MASK), (X, torch.ones_like(MASK)))
    assert programs(s) == 1
    assert_as_eager(m, s, (X, MASK), (torch.cat([X, X]), torch.cat([MASK, MASK])), (X, MASK))
    assert programs(s) == 2
    m.eval()
    torch.testing.assert_close(s(X, MASK), m(X, MASK))


def test_modes_by_turns():
    """A call that finds that its last program is not for it has drawn nothing."""
    m = Apply(augmented)
    s = sol.optimize(m, X, MASK)
    for f in (m, s):
        np.random.seed(3), random.seed(3)
        found = []
        for training in (True, False, True, False, False, True):
            f.train(training)
            found.append(f(X, MASK).detach())
        found.append(torch.tensor([np.random.rand(), random.random()], dtype=torch.float64))
        if f is m:
            want = found
    torch.testing.assert_close(found, want)


def test_under_torch_compile():
    m = Apply(augmented)
    assert_as_eager(m, torch.compile(m, backend="sol"), (X, MASK), (X + 1, MASK), seeds=2)
    torch._dynamo.reset()


def test_optimizing_draws_nothing():
    np.random.seed(1)
    sol.optimize(Apply(augmented), X, MASK)
    first = np.random.rand()
    np.random.seed(1)
    assert np.random.rand() == first


@pytest.mark.parametrize(
    "f",
    [
        lambda a: a[1:, ::2],
        lambda a: (1 - a * 2) // 0.3,
        lambda a: np.concatenate([a, np.ones((1, 3))], axis=0),
        lambda a: np.maximum(np.exp(a), a.mean(axis=1, keepdims=True)).astype(np.float64),
        lambda a: a.T.reshape(-1),
        lambda a: np.where(a > 0.5, a, -a),
        lambda a: np.stack([row for row in a[:2]]) @ np.ones((3, 2)),
        lambda a: abs(-a),
    ],
)
def test_functions_of_numpy_on_what_was_drawn(f):
    @sol.host_function
    def draw(n):
        return {"a": np.random.rand(n, 3), "b": None}

    m = Apply(lambda self, x: torch.as_tensor(f(draw(5)["a"])).sum() * self.linear(x))
    assert_as_eager(m, sol.optimize(m), (X,), (X,), seeds=2)


def test_tensors_that_a_host_function_makes():
    @sol.host_function
    def draw(n):
        return torch.from_numpy(np.random.rand(n)).float(), [random.random()]

    def forward(self, x):
        noise, (scale,) = draw(4)
        noise += 1  # its own tensor
        return self.linear(x) + noise * torch.tensor(scale * 2)

    m = Apply(forward)
    assert_as_eager(m, sol.optimize(m), (X,), (X,), seeds=2)


def test_layers_that_are_skipped_by_chance():
    """A value that forward reads selects the program."""

    def forward(self, x):
        for _ in range(2):
            if not drops(self.share):
                x = self.linear(x).tanh()
        return x * self.hidden

    m = Apply(forward)
    s = sol.optimize(m)
    assert_as_eager(m, s, (X,), seeds=30)
    assert programs(s) == 4


def test_generators_of_the_user():
    """Each call of the optimized model calls the function once."""
    rng, seen = np.random.default_rng(0), []

    @sol.host_function
    def draw():
        seen.append(rng.random(4, dtype=np.float32))
        return seen[-1]

    s = sol.optimize(Apply(lambda self, x: x * torch.from_numpy(draw())))
    for _ in range(4):
        assert torch.equal(s(X), X * torch.from_numpy(seen[-1]))
    assert len(seen) == 4


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState, random.Random])
def test_generators_in_attributes(make):
    """Unless a host function draws from them, they are rejected, and as they were."""
    m = Apply(lambda s, x: x * torch.tensor(s.generator.random()))
    m.generator = make(0)
    with pytest.raises(
        sol.UnsupportedError, match=r"forward draws from its generator generator, .* @sol\.host_function"
    ):
        sol.optimize(m)(X)
    assert m.generator.random() == make(0).random()

    draw = sol.host_function(lambda s: s.generator.random())
    m.function = lambda s, x: x * torch.tensor(draw(s), dtype=torch.float32)
    s, theirs = sol.optimize(m), make(0)
    theirs.random()
    for _ in range(3):
        torch.testing.assert_close(s(X), X * torch.tensor(theirs.random(), dtype=torch.float32))


def test_modules_among_the_arguments():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.n = nn.Parameter(torch.randn(4)), 3

        @sol.host_function
        def draw(self):
            return np.random.rand(self.n, 4) * self.n

        def forward(self, x):
            return (x * self.weight)[..., None, :] * torch.from_numpy(self.draw()).float()

    m = nn.Sequential(nn.Linear(4, 4), Block())
    s = sol.optimize(m)
    assert_as_eager(m, s, (X,), (X,))
    m[1].n = 2
    assert_as_eager(m, s, (X,))


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda s, x: x * np.random.choice(np.ones(2)), r"NumPy's random \(numpy\.random\.choice, test_host\.py:\d+\).*@sol\.host_function"),
        (lambda s, x: random.choice([s.linear, torch.sin])(x), r"Python's random \(random\.choice, test_host\.py:\d+\)"),
        (lambda s, x: x[:, random.shuffle([1, 0])], r"Python's random \(random\.shuffle, test_host\.py:\d+\)"),
        (lambda s, x: x * torch.full((4,), random.random()), r"random\.random returned: full\(\): .* HostNumber \(test_host\.py:\d+\).*operands of"),
        (lambda s, x: x.roll(random.randint(0, 3), 1), r"random\.randint returned: an argument that must be a number \(test_host\.py:\d+\)"),
        (lambda s, x: x * torch.from_numpy(np.array(spans((4,), 0.5))), r"spans returned: np\.array\(\.\.\) of it \(test_host\.py"),
        (lambda s, x: x * torch.from_numpy(np.add(spans((4,), 0.5), x)), r"spans returned: add of it and a tensor"),
        (lambda s, x: spans((4,), 0.5).__setitem__(0, True), "spans returned: writing its elements"),
        (lambda s, x: spans((4,), 0.5).sort(), r"spans returned: sort\(\), which writes it"),
        (lambda s, x: x * float(spans((1,), 0.5).mean() * 0.3), "what the host function spans returned, and it is not a whole number"),
        (lambda s, x: x * torch.as_tensor(lengths((s.linear(x) > 0)[0])).sum(), r"host function lengths \(test_host\.py:\d+\) takes.* 'linear.weight', which the network"),
        (lambda s, x: x * torch.as_tensor(lengths(torch.rand(2, 5) > 0.5)).sum(), r"lengths .* random numbers \(rand\)"),
        (lambda s, x: (torch.manual_seed(0), x * torch.rand(4))[1], r"seeds PyTorch's generator \(torch\.manual_seed, test_host\.py"),
        (lambda s, x: (torch.seed(), torch.rand(4))[1], r"seeds PyTorch's generator \(torch\.seed"),
    ],
)  # fmt: skip
def test_rejected(f, words):
    before = np.random.get_state()[1].tolist(), random.getstate()
    with pytest.raises(sol.UnsupportedError, match=words):
        sol.optimize(Apply(f))(X)
    assert before == (np.random.get_state()[1].tolist(), random.getstate())


def test_beside_a_tensor_that_is_neither_an_argument_nor_the_models():
    m = Apply(lambda s, x: s.linear(x) + OTHER * torch.from_numpy(spans((4,), 0.5)))
    s = sol.optimize(copy.deepcopy(m))
    for _ in range(2):
        np.random.seed(1)
        random.seed(1)
        y = s(X)
        np.random.seed(1)
        random.seed(1)
        torch.testing.assert_close(y, m(X))


OTHER = torch.randn(4)

DRAWN = {
    "layers": lambda s, x: s.linear(x) if s.training and random.uniform(0, 1) < 0.6 else x + 0 * random.random(),
    "operands": lambda s, x: (
        x * np.random.rand() + random.gauss(0, 1),
        random.random() - x / (1 + random.random()),
        x.int() * np.random.rand(),
    ),
    "arrays": lambda s, x: (
        s.linear(x) + torch.from_numpy(np.random.rand(*x.shape)).float() * torch.tensor(random.random())
    ),
    "indices": lambda s, x: (
        x[random.randrange(2)],
        x[..., torch.from_numpy(np.random.permutation(4))],
        x * random.choice([1, 2]),
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_numbers_that_forward_draws(name):
    """Functions of random and numpy.random that are given numbers alone are host functions, wherever forward calls them."""
    m = Apply(DRAWN[name])
    s = sol.optimize(copy.deepcopy(m))
    for seed in range(4):
        ends = []
        for model in (m, s):
            np.random.seed(seed)
            random.seed(seed)
            ends.append((model(X), np.random.rand(), random.random()))
        torch.testing.assert_close(*ends)


def test_rejected_without_data():
    with pytest.raises(sol.UnsupportedError, match=r"which has no data; give sol\.optimize an example"):
        sol.optimize(
            Apply(lambda s, x, mask: x * torch.as_tensor(lengths(mask)).sum()), X, sol.input([2, 5], dtype=torch.int64)
        )


def test_rejected_when_deployed(tmp_path):
    with pytest.raises(
        sol.UnsupportedError, match=r"spans \(test_host.py:\d+\) is a host function, which a deployed network"
    ):
        sol.deploy(Apply(lambda s, x: x * torch.from_numpy(spans((4,), 0.5))), "static_lib", {"path": tmp_path}, X)


def test_shapes_that_vary():
    @sol.host_function
    def draw():
        return np.ones(random.randrange(1, 100))

    random.seed(0)
    s = sol.optimize(Apply(lambda self, x: x + torch.from_numpy(draw()).sum()))
    with pytest.raises(
        sol.InvalidError, match=r"draw: expected results whose shapes .* float64\[\d+\], .* got float64\["
    ):
        for _ in range(9):
            s(X)


# -- sol.differentiate


class Reversible(torch.autograd.Function):
    """Saves what it returns, and computes its argument again in backward."""

    @staticmethod
    def forward(ctx, x, layer):
        with torch.no_grad():
            ctx.layer = layer
            a, b = x.chunk(2, -1)
            y = torch.cat([a + layer(b), b], -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        _, b = ctx.saved_tensors[0].chunk(2, -1)
        da, db = dy.chunk(2, -1)
        with torch.enable_grad():
            b = b.detach().requires_grad_()
            made = ctx.layer(b)
        made.backward(da)
        return torch.cat([da, db + b.grad], -1), None


def reversible(x, layer):
    a, b = x.chunk(2, -1)
    return torch.cat([a + layer(b), b], -1)


def told(forward):
    """A Function of its own, of which SOL is told."""
    return sol.differentiate(type("Reversible", (Reversible,), {}), forward)


def doubled(function):
    return Apply(lambda s, x: function.apply(torch.cat([s.linear(x), x * s.hidden], -1), s.linear).tanh())


def test_a_backward_that_runs_autograd():
    m = doubled(told(reversible))
    assert_as_eager(m, sol.optimize(m), (X,), (X,), seeds=1)
    with torch.no_grad():
        torch.testing.assert_close(sol.optimize(m)(X), m(X))


def test_a_forward_that_autograd_can_differentiate():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            n = x.argmax(-1)
            ctx.mark_non_differentiable(n)
            return x * w.exp(), n

        @staticmethod
        def backward(ctx, dy, dn):
            x, w = (t.detach().requires_grad_() for t in ctx.saved_tensors)
            with torch.enable_grad():
                y = x * w.exp()
            return torch.autograd.grad(y, (x, w), dy)

    m = Apply(lambda s, x: Scaled.apply(s.linear(x), s.hidden)[0])
    with pytest.raises(sol.UnsupportedError, match=r"Scaled\.apply.*its backward runs autograd; .* sol\.differentiate"):
        sol.optimize(m)(X)
    assert sol.differentiate(Scaled) is Scaled
    assert_as_eager(m, sol.optimize(m), (X,), seeds=1)


def test_a_forward_without_gradients():
    with pytest.raises(
        sol.UnsupportedError, match=r"sol\.differentiate: Reversible: expected a forward that autograd can"
    ):
        sol.optimize(doubled(told(None)))(X)
    with pytest.raises(sol.InvalidError, match=r"sol\.differentiate: expected a class"):
        sol.differentiate(reversible)


@pytest.mark.parametrize("with_gradient", [True, False])
def test_checkpoints_of_the_reentrant_kind(with_gradient):
    """Without an argument that requires a gradient, they have none."""

    def forward(s, x):
        h = s.linear(x) if with_gradient else x
        return checkpoint(lambda h: s.linear(h).tanh(), h, use_reentrant=True) * s.hidden

    m = Apply(forward)
    assert_as_eager(m, sol.optimize(m), (X,), seeds=1)
