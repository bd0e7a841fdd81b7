"""Gradients that compare values: backward recomputes cheap tensors, and a recomputed value may differ in its last bit from
the one that forward used. What is compared must be the same bits."""

import copy

import pytest
import sol
import torch
import torch.nn.functional as F
from torch import nn
from torch_help import error

ACTIVATIONS = {"mish": F.mish, "silu": F.silu, "gelu": F.gelu, "tanh": torch.tanh, "line": lambda x: x * 1.1 + 0.3}


def hard_mask(x):
    return x * (x == x.amax(1, keepdim=True))


def gate(x):
    return x * (x >= x.topk(3, -1).values[..., -1:])


def scattered(x):
    groups = (torch.arange(x.shape[-1]) // 4).expand_as(x)
    return torch.zeros_like(x[..., ::4]).scatter_reduce(-1, groups, x, "amax", include_self=False)


COMPARING = {
    "amax": lambda x: x.amax(-1),
    "amax over channels": lambda x: x.amax(1),
    "amax of all": lambda x: x.amax((1, 2)),
    "amin of a view": lambda x: x.transpose(1, 2)[:, 1:].amin(1),
    "infinite norm": lambda x: torch.linalg.vector_norm(x, float("inf"), dim=-1),
    "mask": hard_mask,
    "gate": gate,
    "scatter amax": scattered,
    "maximum of two": lambda x: torch.maximum(x, x.amax(-1, keepdim=True) * 0.5),
}


def largest(x):
    return x.abs().amax(-1, keepdim=True)


# what is exactly 0, or exactly 1, by construction: there a function jumps, or has a kink
COINCIDING = {
    "sign of a difference": lambda x: torch.sign(x - x.amax(1, keepdim=True)) * x.exp(),
    "relu above a gate": lambda x: F.relu(x - x.topk(3, -1).values[..., -1:]) + 0.1 * x,
    "distance to an element": lambda x: (x - x[..., :1]).abs() * torch.arange(x.shape[1])[:, None],
    "rounded down": lambda x: x * (1 + torch.floor(x.abs() / largest(x))),
    "rounded up": lambda x: x * (1 + torch.ceil(x / largest(x))),
    "floor division": lambda x: x * (2 + torch.div(x, largest(x), rounding_mode="floor")),
    "rest": lambda x: torch.fmod(x, largest(x)),
    "integer": lambda x: x * (1 + (x / largest(x)).long()),
    "not": lambda x: x * (1 + torch.logical_not(x - x.amax(-1, keepdim=True)).to(x.dtype)),
    "peaks": lambda x: x * ((F.max_pool1d(x, 3, 1, 1) - x) <= 0),
}


class Trunk(nn.Module):
    """Used twice, so that much is recomputed; batch-norm and activation are what backward recomputes first."""

    def __init__(self, activation, compare):
        super().__init__()
        self.first = nn.Conv1d(3, 16, 5, padding="same")
        self.norm = nn.GroupNorm(4, 16)
        self.second = nn.Conv1d(16, 24, 3, stride=2, groups=8)
        self.activation, self.compare = activation, compare

    def trunk(self, x):
        return F.normalize(self.compare(self.activation(self.second(F.silu(self.norm(self.first(x)))))), dim=-1)

    def forward(self, x, y):
        return self.trunk(x) + 2 * self.trunk(y)


def gradients(model, args, weight):
    model.zero_grad()
    (model(*args) * weight).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


DECIDING = COMPARING | COINCIDING
CASES = [("mish", c) for c in DECIDING] + [(a, "amax") for a in ACTIVATIONS if a != "mish"]
WRONG = 1e-3  # relative L2 error of a gradient; one wrongly chosen element makes more than 1e-2


@pytest.mark.parametrize("memory", ["small", "balanced"])
@pytest.mark.parametrize(("activation", "compare"), CASES)
def test_compared_values_are_the_same_bits(activation, compare, memory):
    torch.manual_seed(3)
    model = Trunk(ACTIVATIONS[activation], DECIDING[compare])
    args = torch.randn(4, 3, 33), torch.randn(4, 3, 33)
    exact = copy.deepcopy(model).double()
    doubles = [a.double() for a in args]
    weight = torch.randn_like(exact(*doubles))
    want = gradients(exact, doubles, weight)
    sol.config["training::memory"] = memory
    try:
        got = gradients(sol.optimize(model, *args), args, weight.float())
    finally:
        del sol.config["training::memory"]
    for name, g in got.items():
        assert error(g, want[name]) < WRONG, name
