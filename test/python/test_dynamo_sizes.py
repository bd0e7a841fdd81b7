"""Sizes that vary under torch.compile(backend="sol"): one program for each of Dynamo's graphs, whatever the sizes."""

import copy

import networks
import pytest
import sol
import torch
from sol.pytorch import dynamo
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch_help import error


@pytest.fixture(autouse=True)
def states(monkeypatch):
    """The states of Dynamo's graphs, in the order of their compilation."""
    found = []

    class Listed(dynamo._GraphState):
        def __init__(self, *args):
            super().__init__(*args)
            found.append(self)

    monkeypatch.setattr(dynamo, "_GraphState", Listed)
    torch._dynamo.reset()
    before, sol.config["autotune"] = sol.config["autotune"], "off"
    yield found
    sol.config["autotune"] = before
    torch._dynamo.reset()


def programs(states):
    """By graph that ran: whether each of its programs serves all sizes."""
    return [[p.varying is not None for p in s.programs.values()] for s in states if s.programs]


def check(compiled, model, calls):
    """Results, their types and their memory layouts are those of PyTorch."""
    with torch.no_grad():
        for args in calls:
            got, expected = (pytree.tree_leaves(f(*args)) for f in (compiled, model))
            for a, b in zip(got, expected, strict=True):
                if isinstance(b, torch.Tensor):
                    assert a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
                    torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)
                else:
                    assert type(a) is type(b) and a == b


def ids(*sizes):
    return torch.randint(1, 1000, sizes)


TEXTS = [(2, 8), (3, 20), (5, 4), (4, 40), (7, 12)]
NETWORKS = {
    "mlp": [(torch.randn(n, 6),) for n in (4, 7, 3, 16, 9)],
    "unet": [
        (torch.randn(n, 3, h, w),) for n, h, w in ((2, 16, 24), (3, 24, 16), (4, 32, 32), (5, 8, 16), (2, 40, 12))
    ],
    "gpt": [(ids(*n),) for n in TEXTS],
    "bert": [(ids(*n), torch.ones(n, dtype=torch.int64)) for n in TEXTS],
}


def network(name):
    if name == "mlp":
        return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 4)).eval()
    return networks.network(name, None)[0]


@pytest.mark.parametrize("name", NETWORKS)
def test_one_program(states, name):
    """For five sizes; Dynamo has another graph for a batch of one."""
    model, calls = network(name), NETWORKS[name]
    compiled = torch.compile(copy.deepcopy(model), backend="sol", dynamic=True)
    check(compiled, model, calls)
    assert programs(states) == [[True]]
    check(compiled, model, [tuple(t[:1] for t in calls[0])])
    assert len(programs(states)) == 2


@pytest.mark.parametrize("name", NETWORKS)
def test_a_second_size(states, name):
    """Dynamo's own choice: the first size is compiled for itself, and the second makes dimensions vary."""
    model, calls = network(name), NETWORKS[name]
    check(torch.compile(copy.deepcopy(model), backend="sol"), model, calls)
    assert programs(states) == [[False], [True]]


@pytest.mark.parametrize(("dynamic", "expected"), [(None, [[False], [True]]), (True, [[True]])])
def test_epoch_with_a_tail(states, dynamic, expected):
    """Two epochs of 70 pictures in batches of 16: the tail of 6 is a second size."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3)).train()
    other, data = copy.deepcopy(model), torch.randn(70, 3, 8, 8)
    losses = []
    for m, call in ((model, model), (other, torch.compile(other, backend="sol", dynamic=dynamic))):
        optimizer = torch.optim.SGD(m.parameters(), 0.1)
        for batch in (*data.split(16), *data.split(16)):
            optimizer.zero_grad()
            loss = call(batch).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    torch.testing.assert_close(torch.stack(losses[10:]), torch.stack(losses[:10]), atol=1e-5, rtol=1e-4)
    assert programs(states) == expected


def test_marked_dimensions(states):
    model, _ = networks.network("unet", None)
    calls = [(torch.randn(n, 3, 16, 24),) for n in (2, 5, 3)]
    torch._dynamo.mark_dynamic(calls[0][0], 0)
    check(torch.compile(copy.deepcopy(model), backend="sol"), model, calls)
    assert programs(states) == [[True]]
    (free,) = (s.traces.free for s in states if s.programs)
    assert [d for _, d in free] == [0]


def test_training(states):
    model = networks.network("lstm", None)[0]
    model.train()
    other = copy.deepcopy(model)
    compiled = torch.compile(other, backend="sol", dynamic=True)
    for n, t in ((4, 12), (3, 5), (7, 9)):
        x = torch.randn(n, t, 20)
        for m, call in ((model, model), (other, compiled)):
            m.zero_grad()
            sum(v.square().sum() for v in pytree.tree_leaves(call(x))).backward()
        for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
            assert error(q.grad, p.grad.double()) < 1e-4, name
    assert all(all(p) and len(p) == 1 for p in programs(states))


W = torch.randn(6, 8)
FUNCTIONS = {  # function, calls, programs with dynamic=True
    "numbers": (lambda x: (x.relu() + 1, x.shape[0], x.numel()), [(torch.randn(*n),) for n in ((4, 6), (5, 7))], [[True]]),
    "views": (lambda x: (x[:, 1:], x.t(), x.exp()), [(torch.randn(n, 8),) for n in (3, 5)], [[True]]),
    "a size that the caller gives": (
        lambda x, n: F.linear(x.reshape(n, -1, 8), W).relu() * n, [(torch.randn(n, 2, 8), n) for n in (3, 5, 7)], [[True]]
    ),
    "a number that is no size": (
        lambda x, n: (x + n).relu() * n, [(torch.randn(k, 8), n) for k, n in ((3, 40), (5, 50))], [[True, True]]
    ),
    "a branch": (
        lambda x: x.relu() * 2 if x.shape[0] > 5 else x - 1, [(torch.randn(n, 8),) for n in (3, 4, 7, 9, 5)], [[True], [True]]
    ),
    "several sizes": (
        lambda x, y: x.unsqueeze(1) * y, [(torch.randn(n, 8), torch.randn(m, 8)) for n, m in ((3, 4), (5, 6), (7, 7))], [[True]]
    ),
    "a number of operators": (
        lambda x: x * x.shape[0] ** -0.5, [(torch.randn(n, 8),) for n in (3, 5)], [[True]]
    ),
    "sizes of data": (
        lambda x: F.linear(x[x[:, 0] > 0], W).relu().sum(0),
        [((torch.arange(6) < n).float()[:, None] - torch.rand(6, 8) / 2,) for n in (3, 6, 2, 1, 0)],
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(states, name):
    function, calls, expected = FUNCTIONS[name]
    check(torch.compile(function, backend="sol", dynamic=True), function, calls)
    assert expected is None or programs(states) == expected


def test_parts(states):
    """Each part of a graph has its own program; sizes go from one to another."""

    def function(x):
        n = x.shape[0]
        y = F.linear(x, W).relu().tanh().neg()
        z = torch.special.airy_ai(y)
        return z.reshape(n, -1).softmax(-1).tanh().exp() + y.shape[0], n

    calls = [(torch.randn(n, 8),) for n in (3, 5, 7)]
    check(torch.compile(function, backend="sol", dynamic=True), function, calls)
    assert programs(states) == [[True], [True]]


def test_dynamos_own_graph_keeps_its_arguments():
    """Dynamo calls a backend's function with what the placeholders of its graph stand for."""
    seen = []

    def backend(graph, examples):
        run = dynamo.backend(graph, examples)
        seen.append((len(examples), len(graph.graph.find_nodes(op="placeholder"))))
        return run

    function, x = (lambda x: x.relu().view(-1, x.shape[0])), torch.randn(3, 8)
    check(torch.compile(function, backend=backend, dynamic=True), function, [(x,)])
    assert seen and all(a == b for a, b in seen)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_differences(dtype):
    """torch.diff, with which transformers finds packed sequences, has no decomposition at sizes that vary."""

    def function(x):
        return x.diff(), x.diff(2, 0), x.diff(0), x.diff(prepend=x[:, :2], append=x[:, :1]), x.diff(9)

    x = torch.randint(0, 2, (4, 6)).to(dtype)
    check(sol.optimize(function, x), function, [(x,)])

    def last(x):
        return x.diff(prepend=x[:, :1])

    s = sol.optimize(last, x, vdims=True)
    check(s, last, [(torch.randint(0, 2, n).to(dtype),) for n in ((4, 6), (3, 9), (5, 2))])
    assert [p.varying is not None for p in s._sol.programs.values()] == [True]


def test_gpt2_of_transformers(states, torchvision):
    t = pytest.importorskip("transformers")
    config = t.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=100, n_positions=64, use_cache=False)
    model = t.GPT2LMHeadModel(config).eval()
    compiled = torch.compile(copy.deepcopy(model), backend="sol", dynamic=True)
    calls = [(torch.randint(0, 100, n),) for n in TEXTS]
    check(lambda x: compiled(x).logits, lambda x: model(x).logits, calls)
    assert programs(states) == [[True]]
