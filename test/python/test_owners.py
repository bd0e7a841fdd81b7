"""Parameters belong to the caller: one network serves several owners, one after another and at the same time."""

import gc
import threading
import weakref

import pytest
import sol
import torch
from torch import nn
from torch.func import functional_call


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(64, 64) for _ in range(3)])

    def forward(self, x):
        return torch.relu(self.layers(x))


@pytest.fixture
def prepared(capfd):
    """How often parameters were prepared since the last call."""
    before = sol.config["log::level"]
    sol.config["log::level"] = "DEBUG"
    yield lambda: capfd.readouterr().err.count(": prepared in ")
    sol.config["log::level"] = before


@pytest.fixture
def instances():
    """Instances of a class: Dynamo gives them one graph, whose arguments include the parameters."""
    torch._dynamo.reset()
    models = [Net().eval() for _ in range(4)]
    yield models, [torch.compile(m, backend="sol") for m in models]
    torch._dynamo.reset()


def at_once(*work):
    """Runs functions in threads and raises their exceptions."""
    raised = []

    def guarded(f):
        try:
            f()
        except BaseException as e:
            raised.append(e)

    threads = [threading.Thread(target=guarded, args=(f,)) for f in work]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if raised:
        raise raised[0]


def test_instances_in_threads(instances):
    models, compiled = instances
    x = torch.randn(8, 64)
    wrong = []

    def work(model, net):
        with torch.no_grad():
            y = model(x)
            wrong.append(sum(not torch.allclose(net(x), y, atol=1e-4) for _ in range(700)))

    with torch.no_grad():
        for net in compiled:
            net(x)
    at_once(*(lambda m=m, c=c: work(m, c) for m, c in zip(models, compiled, strict=True)))
    assert wrong == [0, 0, 0, 0]


def test_instances_by_turns(instances, prepared):
    models, compiled = instances
    x = torch.randn(8, 64)
    with torch.no_grad():
        for net in compiled:
            net(x)
        assert prepared() == len(models)
        for model, net in [*zip(models, compiled, strict=True)] * 3:
            assert torch.allclose(net(x), model(x), atol=1e-5)
        assert prepared() == 0
        models[2].layers[0].weight.mul_(2)
        for model, net in zip(models, compiled, strict=True):
            assert torch.allclose(net(x), model(x), atol=1e-5)
        assert prepared() == 1


def test_training_of_instances(instances):
    """Forwards of all instances, then backwards of all: each uses its own parameters."""
    models, compiled = instances
    x = torch.randn(8, 64)
    for m in models:
        m.train()
    outputs = [net(x) for net in compiled]
    for y in outputs:
        y.square().sum().backward()
    for model in models:
        found = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model(x).square().sum().backward()
        for g, p in zip(found, model.parameters(), strict=True):
            assert torch.allclose(g, p.grad, rtol=1e-4, atol=1e-4)


def test_training_of_instances_in_threads(instances):
    models, compiled = instances
    x = torch.randn(8, 64)
    reference = []
    for model in models:
        model.train()(x).square().sum().backward()
        reference.append([p.grad.clone() for p in model.parameters()])
    compiled[0](x)

    def work(model, net, expected):
        for _ in range(50):
            model.zero_grad()
            net(x).square().sum().backward()
            for p, g in zip(model.parameters(), expected, strict=True):
                assert torch.allclose(p.grad, g, rtol=1e-4, atol=1e-4)

    at_once(*(lambda row=row: work(*row) for row in zip(models, compiled, reference, strict=True)))


def test_replaced_parameters_are_given_up():
    """One thread calls continuously while another replaces a parameter again and again."""
    model = Net().eval()
    optimized = sol.optimize(model, torch.randn(8, 64))
    x = torch.randn(8, 64)
    stop = threading.Event()
    alive: weakref.WeakSet = weakref.WeakSet()
    most = 0

    def call():
        with torch.no_grad():
            while not stop.is_set():
                optimized(x)

    def replace():
        nonlocal most
        try:
            for _ in range(300):
                replaced = nn.Parameter(torch.randn(64, 64))
                optimized.layers[1].weight = replaced
                alive.add(_Mark(replaced))
                with torch.no_grad():
                    optimized(x)
                most = max(most, len(alive))
        finally:
            stop.set()

    at_once(call, call, replace)
    gc.collect()
    assert most < 30
    with torch.no_grad():
        model.load_state_dict(optimized.state_dict())
        assert torch.allclose(optimized(x), model(x), atol=1e-5)


def test_owners_that_come_and_go_in_threads(instances):
    """Each call has its own weights: one thread may release weights that another is checking."""
    x = torch.randn(8, 64)

    def work(model, net):
        for _ in range(150):
            for layer in model.layers:
                layer.weight, layer.bias = nn.Parameter(torch.randn(64, 64) / 8), nn.Parameter(torch.randn(64))
            for _ in range(3):
                net(x).sum().backward()
            with torch.no_grad():
                assert torch.allclose(net(x), model(x), 1e-4, 1e-4)

    at_once(*(lambda row=row: work(*row) for row in zip(*instances, strict=True)))


class Lookup(nn.Module):
    """Calls read the table in place, so nothing is prepared from it."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20000, 128)

    def forward(self, i):
        return self.table(i) + 1


def test_memory_of_parameters_in_threads():
    """One thread sets `p.data = ...` while others read the old memory: each call sees one of the tables."""
    model = Lookup().eval()
    index = torch.randint(0, 20000, (8000,))
    model.table.weight.data.fill_(0)
    optimized = sol.optimize(model, index)
    stop = threading.Event()

    def call():
        with torch.no_grad():
            while not stop.is_set():
                y = optimized(index)
                assert (y == y[0, 0]).all()

    def replace():
        try:
            for n in range(150):
                optimized.table.weight.data = torch.full((20000, 128), float(n))
        finally:
            stop.set()

    at_once(call, call, replace)
    with torch.no_grad():
        assert (optimized(index) == 150).all()


def test_memory_that_parameters_left():
    """The next call, the next program and sol.refresh release memory that parameters no longer use."""
    optimized = sol.optimize(nn.Sequential(nn.Linear(64, 64), nn.ReLU()).eval())
    weight = optimized[0].weight

    def elsewhere():
        with torch.no_grad():
            optimized(torch.randn(8, 64))
        left = weakref.ref(weight.untyped_storage())  # lives as long as the memory
        weight.data = torch.randn(64, 64)
        return left

    for give_up in (
        lambda: optimized(torch.randn(8, 64)),
        lambda: optimized(torch.randn(9, 64)),
        lambda: sol.refresh(optimized),
    ):
        left = elsewhere()
        with torch.no_grad():
            give_up()
        gc.collect()
        assert left() is None


class _Mark:
    """Lives as long as a tensor. (swap_tensors rejects tensors with weak references.)"""

    def __init__(self, tensor):
        tensor.mark = self


def test_weights_of_calls(prepared):
    """Weights passed with each call: results are right, and nothing of released weights is kept."""
    optimized = sol.optimize(Net().eval(), torch.randn(8, 64))
    x = torch.randn(8, 64)
    alive: weakref.WeakSet = weakref.WeakSet()
    reference = Net().eval()
    with torch.no_grad():
        for _ in range(40):
            weights = {n: torch.randn_like(p) * 0.1 for n, p in reference.named_parameters()}
            for t in weights.values():
                alive.add(_Mark(t))
            expected = functional_call(reference, weights, (x,))
            assert torch.allclose(functional_call(optimized, weights, (x,)), expected, atol=1e-5)
    del weights, t
    gc.collect()
    assert len(alive) <= 12  # those of one set, perhaps two


def test_a_few_owners_are_kept(prepared):
    """Twenty sets of weights in turn: memory is bounded, results are right."""
    optimized = sol.optimize(Net().eval(), torch.randn(8, 64))
    reference = Net().eval()
    x = torch.randn(8, 64)
    owners = [{n: torch.randn_like(p) * 0.1 for n, p in reference.named_parameters()} for _ in range(20)]
    with torch.no_grad():
        for weights in owners * 2:
            assert torch.allclose(
                functional_call(optimized, weights, (x,)), functional_call(reference, weights, (x,)), atol=1e-5
            )
        prepared()
        for weights in owners[-6:] * 3:
            functional_call(optimized, weights, (x,))
        assert prepared() == 0


@pytest.mark.parametrize("how", ["inference", "training", "sizes", "numpy", "profile"])
def test_models_end_with_their_last_user(how):
    """Not when the garbage collector comes: weights of a model that is made in a loop would pile up until then."""
    x = torch.randn(3, 8)

    def used() -> list[weakref.ref]:
        model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
        left = [weakref.ref(p) for p in model.parameters()]
        optimized = sol.optimize(model, x, vdims=how == "sizes", framework="numpy" if how == "numpy" else None)
        if how == "numpy":
            optimized(x.numpy())
        elif how == "profile":
            sol.profile(optimized.eval(), x, runs=1)
        else:
            optimized(x).sum().backward()
            if how == "inference":
                optimized.eval()(x)
        return left

    gc.collect()
    gc.disable()
    try:
        assert [r() for r in used()] == [None] * 4
    finally:
        gc.enable()
