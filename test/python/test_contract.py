"""What an optimized model shares with the original, which changes it notices, and what it rejects."""

import copy
import functools
import pickle

import pytest
import sol
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.utils import prune
from torch_help import check

X = (2, 4)


def mlp():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval()


def optimized(model=None):
    model = model or mlp()
    return model, sol.optimize(model, torch.randn(X)), torch.randn(X)


# -- hooks


class Statistics:
    """Hooks that belong to an object outside of the model: a callable, a method, a partial."""

    def __init__(self):
        self.seen = []

    def __call__(self, module, args, out):
        self.seen.append(out.mean())

    def before(self, module, args):
        self.seen.append(args[0].mean())

    def named(self, name, module, args, out):
        self.seen.append((name, out))


def nothing(module, args, out):
    pass


def everywhere(model):
    first, *_ = [part.register_forward_hook(nothing) for part in model]
    return first


OUTSIDE = {
    "callable": (lambda m: m[1].register_forward_hook(Statistics()), r"forward hook Statistics on 1"),
    "method": (lambda m: m[1].register_forward_pre_hook(Statistics().before), r"forward pre-hook Statistics.before \("),
    "partial": (
        lambda m: m[1].register_forward_hook(functools.partial(Statistics().named, "a")),
        r"hook Statistics.named \(test_contract.py:\d+\) on 1: not supported: .*torch.compile",
    ),
    "function": (lambda m: m[2].register_forward_hook(lambda module, args, out: out * 7), r"forward hook <lambda> \("),
    "everywhere": (everywhere, r"on 0 and 2 more"),
    "of all modules": (lambda m: register_module_forward_hook(nothing), r"on all modules"),
    "before all modules": (lambda m: register_module_forward_pre_hook(Statistics().before), r"on all modules"),
}


@pytest.mark.parametrize("register, message", OUTSIDE.values(), ids=OUTSIDE)
def test_a_hook_is_rejected_by_name_before_and_after_optimize(register, message):
    m, s, x = optimized()
    check(s, m, (x,))
    handle = register(m)
    try:
        with pytest.raises(sol.UnsupportedError, match=message):
            s(x)
        with pytest.raises(sol.UnsupportedError, match=message):
            sol.optimize(m, x)
    finally:
        handle.remove()
    for part in m:
        part._forward_hooks.clear()
    check(s, m, (x,))


def test_a_backward_hook_is_rejected_where_there_are_gradients():
    m, s, x = optimized()
    m[0].register_full_backward_hook(lambda module, given, out: None)
    check(s, m, (x,))
    y = s(x)
    with pytest.raises(sol.UnsupportedError, match="backward hook <lambda>"):
        y.sum().backward()
    with pytest.raises(sol.UnsupportedError, match="backward hook <lambda>"):
        s.train()(x)


def test_hooks_of_the_whole_model_are_run_around_it():
    m, s, x = optimized()
    seen = []
    m.register_forward_hook(lambda module, args, out: seen.append(type(module).__name__) or out * 2)
    s.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    check(s, m, (x,))
    assert "SolSequential" in seen and "Sequential" in seen


class Inside(nn.Module):
    """Its own hooks refer only to the model and its objects, so they are part of forward."""

    def __init__(self):
        super().__init__()
        self.part, self.found = nn.Linear(4, 4), {}
        self.part.register_forward_hook(functools.partial(self.keep, "a"))
        self.part.register_forward_pre_hook(lambda module, args: (args[0] * len(self.found),))

    def keep(self, name, module, args, out):
        self.found[name] = out.tanh()

    def forward(self, x):
        self.found["b"] = x
        y = self.part(x)
        return y + self.found.pop("a") + self.found.pop("b")


def test_a_model_s_own_hooks_are_a_part_of_it():
    m, s, x = optimized(Inside().eval())
    check(s, m, (x,))


WEIGHTS = {
    "pruned": lambda m: prune.l1_unstructured(m[0], "weight", 0.5),
    "spectral norm": lambda m: nn.utils.spectral_norm(m[0]),
    "parametrized": lambda m: nn.utils.parametrizations.weight_norm(m[0]),
}
BACK = {
    "pruned": lambda m: prune.remove(m[0], "weight"),
    "spectral norm": lambda m: nn.utils.remove_spectral_norm(m[0]),
    "parametrized": lambda m: nn.utils.parametrize.remove_parametrizations(m[0], "weight"),
}


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("side", ["model", "optimized"])
def test_weights_that_pytorch_s_hooks_compute(kind, side, capfd):
    m, s, x = optimized()
    check(s, m, (x,))
    changed, other = (m, s) if side == "model" else (s, m)
    WEIGHTS[kind](changed)
    check(s, m, (x,))
    with torch.no_grad():
        for p in m.parameters():
            p.mul_(1.5)
    check(s, m, (x,))
    BACK[kind](other)
    check(s, m, (x,))
    assert "leaves" not in capfd.readouterr().err


# -- the original and the optimized model


class Top(nn.Sequential):
    scale = 2.0

    def forward(self, x):
        y = super().forward(x) * self.scale
        return y * 3 if self.training else y


def top():
    return Top(nn.Linear(4, 4), nn.ReLU()).eval()


TOP = {
    "child": lambda m: m.__setitem__(1, nn.Tanh()),
    "attribute": lambda m: setattr(m, "scale", 5.0),
    "mode": lambda m: m.train(),
    "new child": lambda m: m.append(nn.Tanh()),
    "parameter": lambda m: setattr(m[0], "weight", nn.Parameter(torch.ones(4, 4))),
    "forward": lambda m: m.__dict__.update(forward=lambda x: x - 1),
}


@pytest.mark.parametrize("change", TOP.values(), ids=TOP)
@pytest.mark.parametrize("side", ["model", "optimized"])
def test_a_change_of_either_is_a_change_of_both(change, side):
    m, s, x = optimized(top())
    check(s, m, (x,))
    before = m(x)
    change(m if side == "model" else s)
    check(s, m, (x,))
    assert not torch.equal(m(x), before)


def test_copies_are_apart():
    m, s, x = optimized(top())
    before = m(x)
    for other in (sol.optimize(m, x, copy=True), copy.deepcopy(s), pickle.loads(pickle.dumps(s)), copy.deepcopy(m)):
        other.scale, other[1] = 7.0, nn.Tanh()
        assert other(x).shape == (2, 4) and torch.equal(m(x), before)
    check(s, m, (x,))


def test_a_wrapper_of_forward_is_the_optimized_model_s_alone():
    m, s, x = optimized()
    before, inner = m(x), s.forward
    s.forward = lambda x: inner(x) * 2
    assert torch.allclose(s(x), before * 2, atol=1e-6) and torch.equal(m(x), before)
    del s.forward
    check(s, m, (x,))
