"""Attention: what a row without a key, infinities and NaN give, and errors beside PyTorch's own in float32."""

import math

import pytest
import sol
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class Fused(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask)


class Causal(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=True)


class Safe(nn.Module):
    """As ONNX files have it: a query whose weights are NaN is 0."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        p = (q @ k.mT + mask).softmax(-1)
        return torch.where(p.isnan(), 0.0, p) @ v


def operands(queries: int, keys: int, depth: int, heads: int = 3) -> list[Tensor]:
    torch.manual_seed(queries + keys)
    return [torch.randn(2, heads, n, depth) for n in (queries, keys, keys)]


def check(model: nn.Module, *args: Tensor) -> None:
    """NaN are where PyTorch has them; other errors are at most three times as large as those of PyTorch."""
    with torch.no_grad():
        y = sol.optimize(model.eval(), *args)(*args)
        exact = model(*(t.double() if t.is_floating_point() else t for t in args))
        eager = model(*args)
    assert torch.equal(y.isnan(), exact.isnan())
    error, allowed = ((t - exact).abs().nan_to_num(0).max().item() for t in (y, eager))
    assert error <= 3 * allowed + 1e-7


@pytest.mark.parametrize("queries, keys, depth", [(37, 50, 40), (33, 600, 128), (5, 7, 3), (160, 160, 64)])
@pytest.mark.parametrize("kind", ["full", "keys", "bias"])
def test_masks(queries: int, keys: int, depth: int, kind: str) -> None:
    q, k, v = operands(queries, keys, depth)
    masks = {
        "full": lambda: torch.rand(2, 1, queries, keys) > 0.7,
        "keys": lambda: torch.rand(2, 1, 1, keys) > 0.5,
        "bias": lambda: torch.randn(queries, keys),
    }
    check(Fused(), q, k, v, masks[kind]())


@pytest.mark.parametrize("size", [2, 31, 200])
def test_causal(size: int) -> None:
    check(Causal(), *operands(size, size, 16))


@pytest.mark.parametrize("keys", [40, 600])
def test_weights_that_are_nan(keys: int) -> None:
    q, k, v = operands(50, keys, 64)
    mask = torch.where(torch.rand(2, 1, 50, keys) > 0.3, 0.0, -math.inf)
    mask[0, 0, 3] = mask[1, 0, 40:] = mask[0, 0, 7:20, : keys // 2] = -math.inf
    q[0, 0, 5, 2] = k[1, 2, 7, 3] = math.nan
    q[0, 1, 6, 3] = math.inf
    check(Safe(), q, k, v, mask)
    assert [
        p.layers
        for p in sol.profile(sol.optimize(Safe(), q, k, v, mask), q, k, v, mask).kernels
        if "Attention" in p.layers
    ]


def test_rows_without_a_key() -> None:
    mask = torch.rand(2, 1, 40, 40) > 0.3
    mask[0, 0, 3] = False
    check(Fused(), *operands(40, 40, 16), mask)


def test_infinities_and_nan_in_a_bias() -> None:
    bias = torch.randn(1, 1, 40, 40)
    bias[0, 0, 5] = -math.inf
    bias[0, 0, 6, 2] = math.inf
    bias[0, 0, 7, 3] = math.nan
    check(Fused(), *operands(40, 40, 16), bias)


@pytest.mark.parametrize("which", ["q", "k", "v"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_infinities_and_nan_in_an_operand(which: str, value: float) -> None:
    args = operands(40, 40, 16)
    args["qkv".index(which)][0, 1, 2, 3] = value
    check(Fused(), *args, torch.zeros(1, 1, 1, 40))


# -- gradients


class Shared(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, enable_gqa=True)


def gradients(model: nn.Module, args: list[Tensor], wanted: int = 3) -> list[Tensor]:
    args = [t.detach().clone().requires_grad_(i < wanted) for i, t in enumerate(args)]
    y = model(*args)
    dy = torch.arange(y.numel(), dtype=torch.float64).cos().reshape(y.shape).to(y.dtype)
    return list(torch.autograd.grad(y, args[:wanted], dy))


def check_gradients(model: nn.Module, *args: Tensor, wanted: int = 3) -> None:
    """Non-finite elements are where PyTorch has them in float64; errors are at most three times as large as those of
    PyTorch in float32."""
    results = gradients(sol.optimize(model.train(), *args), list(args), wanted)
    exact = gradients(model, [t.double() if t.is_floating_point() else t for t in args], wanted)
    for y, x, eager in zip(results, exact, gradients(model, list(args), wanted), strict=True):
        assert torch.equal(y.isfinite(), x.isfinite())
        error, allowed = ((t - x).nan_to_num(0, 0, 0).abs().amax() if x.numel() else 0 for t in (y, eager))
        largest = x.nan_to_num(0, 0, 0).abs().amax() if x.numel() else 0
        assert error <= 3 * allowed + 1e-7 * (1 + largest)


@pytest.mark.parametrize(
    "queries, keys, depth", [(37, 50, 40), (33, 300, 72), (5, 7, 3), (96, 160, 64), (1, 40, 16), (40, 1, 16), (0, 5, 8)]
)
@pytest.mark.parametrize("model", [Causal(), None], ids=["causal", "all"])
def test_gradients(queries: int, keys: int, depth: int, model: nn.Module | None) -> None:
    q, k, v = operands(queries, keys, depth)
    check_gradients(model or Shared(), q, k, v)


def test_gradients_of_shared_heads() -> None:
    q, _, _ = operands(37, 1, 16, 6)
    _, k, v = operands(1, 45, 16, 2)
    check_gradients(Shared(), q, k, v)


@pytest.mark.parametrize("kind", ["full", "keys", "bias", "bias with a gradient"])
def test_gradients_with_masks(kind: str) -> None:
    q, k, v = operands(37, 50, 24)
    full = torch.rand(2, 1, 37, 50) > 0.7
    full[0, 0, 3] = False  # a query without a key
    bias = torch.randn(37, 50)
    bias[4] = -math.inf
    masks = {"full": full, "keys": torch.rand(2, 1, 1, 50) > 0.5, "bias": bias}
    check_gradients(Fused(), q, k, v, masks.get(kind, torch.randn(3, 37, 50)), wanted=3 + (kind not in masks))


class Numbered(nn.Module):
    """Rows of queries whose number is 0 have no key; a number is an integer, from which the kernel makes the mask itself."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, numbers: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, attn_mask=(numbers != 0)[:, None])


def test_gradients_with_a_mask_of_integers_by_query() -> None:
    check_gradients(Numbered(), *operands(37, 50, 16), torch.arange(1, 38))


@pytest.mark.parametrize("which", ["q", "k", "v"])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_gradients_of_infinities_and_nan(which: str, value: float) -> None:
    args = operands(40, 40, 16)
    args["qkv".index(which)][0, 1, 2, 3] = value
    check_gradients(Shared(), *args)


def test_gradient_is_one_kernel_without_a_tensor_of_weights() -> None:
    args = [t.requires_grad_() for t in operands(64, 64, 32)]
    net = sol.optimize(Causal().train(), *args)
    solvers = [row["solver"] for row in sol.profile(net, *args, runs=1).rows()]
    assert sum(s.startswith("attention_grad") for s in solvers) == 1
    assert sum(s.startswith("attention ") for s in solvers) == 1


# -- attention that a model writes out


def windows(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    """A bias of each head, and a mask of each window, to which the scores' dimensions are regrouped."""
    scores = q @ k.mT * 0.2 + m[:1, 0].to(q)
    grouped = scores.unflatten(0, (1, -1)) + torch.where(m, 0.0, -100.0).unsqueeze(0)
    return (grouped + m.to(q)).flatten(0, 1).softmax(-1) @ v


FORMS = {
    "plain": lambda q, k, v, m: (q @ k.mT * 0.3).softmax(-1) @ v,
    "masked by -inf": lambda q, k, v, m: (q @ k.mT / 2.5).masked_fill(~m, -math.inf).softmax(-1) @ v,
    "masked by -1e9": lambda q, k, v, m: (q @ k.mT).masked_fill(~m, -1e9).softmax(-1) @ v,
    "chosen": lambda q, k, v, m: torch.where(m, q @ k.mT * 0.5, -math.inf).softmax(-1) @ v,
    "added": lambda q, k, v, m: (q @ k.mT * 0.5 + (1 - m.to(q)) * -1e4).softmax(-1) @ v,
    "added and masked": lambda q, k, v, m: (q @ k.mT + m.to(q)).masked_fill(~m, -math.inf).softmax(-1) @ v,
    "transposed": lambda q, k, v, m: v.mT @ (q @ k.mT / 3).softmax(-1).mT,
    "windows": windows,
    "heads behind": lambda q, k, v, m: torch.einsum(
        "bhts,bshd->bthd", torch.einsum("bthd,bshd->bhts", q, k).softmax(-1), v
    ),
}


class Written(nn.Module):
    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def forward(self, q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
        if self.form == "heads behind":
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return FORMS[self.form](q, k, v, m)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("queries, keys", [(7, 9), (100, 110)])
def test_written_out(form: str, queries: int, keys: int) -> None:
    q, k, v = operands(queries, keys, 24)
    mask = torch.rand(2, 1, queries, keys) > 0.4
    mask[1, 0, 3] = False  # a query without a key
    check(Written(form), q, k, v, mask)
    check_gradients(Written(form), q, k, v, mask)


@pytest.mark.parametrize("form", FORMS)
def test_written_out_is_one_kernel(form: str) -> None:
    args = [*operands(100, 110, 24), torch.ones(2, 1, 100, 110, dtype=torch.bool)]
    net = sol.optimize(Written(form).eval(), *args)
    assert sum(row["solver"].startswith("attention ") for row in sol.profile(net, *args, runs=1).rows()) == 1


def test_weights_that_underflow_are_zero() -> None:
    """Masks of -100 make denormal weights, with which processors multiply slowly."""
    q, k, v = torch.zeros(1, 2, 64, 16), torch.zeros(1, 2, 70, 16), torch.zeros(1, 2, 70, 16)
    mask = torch.full((64, 70), -100.0)
    mask[:, 0] = 0
    v[..., 1:, :] = 1
    assert not sol.optimize(Fused().eval(), q, k, v, mask)(q, k, v, mask).any()
    mask[:, 1] = -80  # these are normal
    y = sol.optimize(Fused().eval(), q, k, v, mask)(q, k, v, mask)
    assert torch.allclose(y, torch.full_like(y, math.exp(-80)), rtol=1e-5, atol=0)
