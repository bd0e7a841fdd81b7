"""Operators that compute gradients, which PyTorch calls by themselves on devices: as PyTorch's own."""

import pytest
import sol
import torch
import torch.nn.functional as F

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def untuned(monkeypatch):
    monkeypatch.setitem(sol.config, "autotune", "off")


class Call(torch.nn.Module):
    def __init__(self, op, *more):
        super().__init__()
        self.op, self.more = op, more

    def forward(self, *args):
        return self.op(*args, *self.more)


def check(op, args, *more):
    with torch.no_grad():
        exact = op(*(a.double() if a.is_floating_point() else a for a in args), *more)
        got = sol.optimize(Call(op, *more), *args)(*args)
    for a, e in zip(*([x] if isinstance(x, torch.Tensor) else x for x in (got, exact)), strict=True):
        torch.testing.assert_close(a, e.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "stride, padding, dilation, groups",
    [(1, 0, 1, 1), (2, 1, 1, 1), (2, 0, 2, 2), (1, 1, 2, 2), ([2, 1], [0, 1], [1, 2], 1)],
)
def test_convolution(transposed, stride, padding, dilation, groups):
    stride, padding, dilation = (v if isinstance(v, list) else [v, v] for v in (stride, padding, dilation))
    x = torch.randn(2, 4, 11, 10)
    w = torch.randn(4, 6 // groups, 3, 2) if transposed else torch.randn(6, 4 // groups, 3, 2)
    how = stride, padding, dilation, transposed, [0, 0], groups
    dy = torch.randn_like(aten.convolution(x, w, None, *how))
    check(aten.convolution_backward.default, (dy, x, w), [6], *how, [True, True, True])


@pytest.mark.parametrize(
    "k, stride, padding, dilation", [(2, 2, 0, 1), (3, 2, 1, 1), (3, 1, 1, 1), (2, 3, 0, 1), (3, 2, 1, 2)]
)
def test_max_pool(k, stride, padding, dilation):
    x = torch.randn(2, 3, 11, 13)
    how = [k, k], [stride, stride], [padding, padding], [dilation, dilation], False
    y, at = aten.max_pool2d_with_indices(x, *how)
    op = aten.max_pool2d_with_indices_backward.default
    check(lambda dy, x, at: op(dy, x, *how, at), (torch.randn_like(y), x, at))


@pytest.mark.parametrize(
    "k, stride, padding, ceil, include, divisor",
    [
        (2, 2, 0, False, True, None),
        (3, 2, 1, True, True, None),
        (3, 2, 1, True, False, None),
        (3, 1, 1, False, False, 5),
    ],
)
def test_average_pool(k, stride, padding, ceil, include, divisor):
    x = torch.randn(2, 3, 10, 11)
    dy = torch.randn_like(F.avg_pool2d(x, k, stride, padding, ceil, include, divisor))
    more = [k, k], [stride, stride], [padding, padding], ceil, include, divisor
    check(aten.avg_pool2d_backward.default, (dy, x), *more)


@pytest.mark.parametrize("size", [(1, 1), (3, 4), (5, 11)])
def test_adaptive_average_pool(size):
    check(aten._adaptive_avg_pool2d_backward.default, (torch.randn(2, 3, *size), torch.randn(2, 3, 10, 11)))


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("shape", [(5, 7), (2, 7, 3, 4), (7,)])
def test_nll_loss(shape, reduction):
    x, target = torch.randn(shape), torch.randint(7, shape[:1] + shape[2:] if len(shape) > 1 else ())
    if target.ndim:
        target.view(-1)[0] = 3  # is ignored
    name = "nll_loss2d" if len(shape) == 4 else "nll_loss"
    y, total = getattr(aten, f"{name}_forward")(x, target, torch.rand(7), reduction, 3)
    op = getattr(aten, f"{name}_backward").default
    check(
        lambda dy, x, t, w, n: op(dy, x, t, w, reduction, 3, n), (torch.randn_like(y), x, target, torch.rand(7), total)
    )
