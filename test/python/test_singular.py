"""Gradients at singular points: zero vectors in norms, kinks, ties, borders, infinities. PyTorch's derivatives choose a value
there (a norm's is 0 at 0), and SOL's choose the same."""

import pytest
import sol
import torch
import torch.nn.functional as F
from torch import nn

INF = float("inf")
POINTS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 6.0, -6.0, 20.0, -20.0]

ONE = {
    **{
        name: getattr(torch, name)
        for name in "abs acos asin atan ceil erf exp expm1 frac log log1p relu round rsqrt sign sgn sinc sqrt tan tanh".split()
    },
    **{
        name: getattr(F, name)
        for name in (
            "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu softplus "
            "softshrink softsign tanhshrink"
        ).split()
    },
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp from below": lambda x: x.clamp(min=0),
    "clamp from above": lambda x: x.clamp(max=3),
    "entropy": torch.special.entr,
    "threshold": lambda x: F.threshold(x, 1, 0.0),
    "power 1.5": lambda x: x**1.5,
    "power 0": lambda x: x**0,
}
TWO = {
    **{
        name: getattr(torch, name)
        for name in "atan2 hypot pow maximum minimum fmax fmin xlogy copysign logaddexp logaddexp2 remainder".split()
    },
    "clamp by a tensor": lambda x, y: torch.clamp(x, min=y),
    "huber": lambda x, y: F.huber_loss(x, y, reduction="none"),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
    "l1": lambda x, y: F.l1_loss(x, y, reduction="none"),
    "bce": lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
}
ROWS = {
    "normalize": lambda x: F.normalize(x, dim=-1),
    "norm": lambda x: x.norm(dim=-1),
    "norm 1": lambda x: torch.linalg.vector_norm(x, 1, dim=-1),
    "norm 3": lambda x: torch.linalg.vector_norm(x, 3, dim=-1),
    "norm 0.5": lambda x: torch.linalg.vector_norm(x, 0.5, dim=-1),
    "norm inf": lambda x: torch.linalg.vector_norm(x, INF, dim=-1),
    "matrix norm": torch.linalg.matrix_norm,
    "cdist with itself": lambda x: torch.cdist(x, x),
    "cdist 3": lambda x: torch.cdist(x, x.flip(0), p=3.0),
    "cosine": lambda x: F.cosine_similarity(x, x.flip(0) + 1, dim=-1),
    "pairwise": lambda x: F.pairwise_distance(x, x.flip(0)),
    "std": lambda x: x.std(-1),
    "std and mean": lambda x: torch.std_mean(x, -1)[0],
    "renorm": lambda x: torch.renorm(x, 2, 0, 1.0),
    "root of a sum": lambda x: (x * x).sum(-1).sqrt(),
    "product": lambda x: x.prod(-1),
    "cumprod": lambda x: x.cumprod(-1),
    "amax": lambda x: x.amax(-1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (5,)),
}


class Each(nn.Module):
    """One result for each function, each from its own part of the inputs."""

    def __init__(self, functions):
        super().__init__()
        self.functions = functions

    def forward(self, *inputs):
        return [f(*(x[i] for x in inputs)) for i, f in enumerate(self.functions.values())]


def step(model, inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    results = model(*inputs)
    torch.autograd.backward(
        [y for y in results if y.requires_grad], [torch.ones_like(y) for y in results if y.requires_grad]
    )
    return results, [x.grad for x in inputs]


def compare(functions, *points):
    model = Each(functions)
    inputs = [p.expand(len(functions), *p.shape).contiguous() for p in points]
    want, want_d = step(model, inputs)
    got, got_d = step(sol.optimize(model, *(x.clone().requires_grad_() for x in inputs)), inputs)
    wrong = {}
    for i, name in enumerate(functions):
        pairs = [(got[i], want[i]), *((g[i], w[i]) for g, w in zip(got_d, want_d, strict=True))]
        if not all(torch.allclose(g, w, rtol=1e-4, atol=1e-5, equal_nan=True) for g, w in pairs):
            wrong[name] = pairs
    assert not wrong


def test_one_argument():
    compare(ONE, torch.tensor(POINTS))


@pytest.mark.parametrize("extra", [[], [INF, -INF, 1e-30]], ids=["finite", "infinite"])
def test_two_arguments(extra):
    functions = {k: f for k, f in TWO.items() if not extra or k not in ("pow", "remainder", "hypot")}
    x, y = torch.meshgrid(torch.tensor(POINTS + extra), torch.tensor(POINTS + extra), indexing="ij")
    compare(functions, x.reshape(-1), y.reshape(-1))


def test_rows():
    torch.manual_seed(0)
    x = torch.rand(4, 5)
    x[1] = 0
    x[2] = 0.25
    x[3, 3] = 0
    compare(ROWS, x)
