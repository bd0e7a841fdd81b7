"""Operators whose kernels compute with positions, write by index, or run along rows: values and gradients at odd sizes, beside PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import sol
import torch
import torch.nn.functional as F


def check(function: Callable[..., Any], *args: torch.Tensor, backward: bool = True, tolerance: float = 0) -> None:
    """The same values as PyTorch's, and the same gradients of the real arguments; NaN equals NaN."""
    fast = sol.optimize(function, *args)
    with torch.no_grad():
        torch.testing.assert_close(fast(*args), function(*args), rtol=tolerance, atol=tolerance, equal_nan=True)
    if not backward:
        return
    gradients = []
    for f in (fast, function):
        given = [a.clone().requires_grad_(a.is_floating_point()) for a in args]
        y = f(*given)
        y.backward(torch.linspace(-1, 1, y.numel()).reshape(y.shape))
        gradients.append([a.grad for a in given if a.is_floating_point()])
    torch.testing.assert_close(*gradients, rtol=tolerance, atol=tolerance, equal_nan=True)


def special(*shape: int) -> torch.Tensor:
    """Numbers with NaN, infinity and zeros among them."""
    x = torch.randn(*shape)
    flat = x.view(-1)
    for i, v in enumerate((math.nan, math.inf, -math.inf, 0.0, -0.0)):
        flat[i * 7 % flat.numel()] = v
    return x


@pytest.mark.parametrize("n", [1, 33, 70])
def test_comparisons_of_positions(n: int) -> None:
    x = special(3, n, 2 * n + 1)
    check(torch.tril, x)
    check(lambda x: x.triu(2), x)
    check(lambda x: x.tril(-1).to(torch.float64), x)
    check(lambda i: F.one_hot(i, n), torch.arange(n).flip(0), backward=False)


@pytest.mark.parametrize("n", [2, 17, 66])
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_borders(n: int, mode: str) -> None:
    x = special(2, 3, n + 1, n)
    check(lambda x: F.pad(x, (1, 1, 1, 0), mode), x, tolerance=1e-6)
    check(lambda x: F.pad(x, (n - 1, 1, 0, n - 1), mode), x, tolerance=1e-6)


@pytest.mark.parametrize("n", [1, 24, 64])
def test_moduli(n: int) -> None:
    x = special(3, 2, n)
    check(lambda x: x.repeat(1, 2, 3), x, tolerance=1e-6)
    check(lambda x: x.roll(3, -1) + x.roll(-16, -1), x, tolerance=1e-6)
    check(lambda x: x.reshape(3, -1).repeat(2, 2).roll(16, 1), x, tolerance=1e-6)


@pytest.mark.parametrize("rows", [1, 5, 18])
@pytest.mark.parametrize("n", [1, 19])
def test_recurrences_in_rows(rows: int, n: int) -> None:
    x = special(rows, n) if n > 2 else torch.randn(rows, n)
    check(lambda x: x.cumsum(-1), x, backward=False, tolerance=1e-6)
    check(lambda x: x.cumprod(-1), x, backward=False, tolerance=1e-6)
    check(lambda x: x.flip(-1).cumsum(-1).flip(-1), torch.randn(2, rows, n), tolerance=1e-5)
    check(lambda x: x.cumsum(-1), torch.randint(-(1 << 40), 1 << 40, (rows, n)), backward=False)
    check(lambda x: x.cummin(-1).values, torch.randint(-9, 9, (rows, n)), backward=False)  # infinity outside
    check(lambda x: x.cummax(-1).values, torch.randint(-9, 9, (rows, n)), backward=False)
    check(lambda x: x.cumsum(-1), torch.randn(rows, n).double(), tolerance=1e-12)


def decay(x: torch.Tensor) -> torch.Tensor:
    return (1 + 1e-4 * (x - 0.5)).cumprod(x.ndim // 2)


LONG = {
    "cumsum": lambda x: x.cumsum(x.ndim // 2),
    "cumsum of a product": lambda x: (x * x.sqrt()).cumsum(x.ndim // 2),
    "cumprod": decay,
    "logcumsumexp": lambda x: x.logcumsumexp(x.ndim // 2),
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("shape", [(30000,), (5, 20000), (2, 9000, 21)])
def test_errors_of_long_recurrences(name: str, shape: tuple[int, ...]) -> None:
    """An error does not grow with the number of steps: values and gradients are as near to float64 as PyTorch's."""
    x, errors = torch.rand(shape), []
    fast = sol.optimize(LONG[name], x)

    def both(f: Callable[..., Any], x: torch.Tensor) -> list[torch.Tensor]:
        x = x.clone().requires_grad_()
        y = f(x)
        y.backward(torch.linspace(0, 1, y.numel(), dtype=y.dtype).reshape(y.shape))
        return [y.detach(), x.grad]

    exact = both(LONG[name], x.double())
    for f in (fast, LONG[name]):
        errors.append([((a - e).abs().max() / e.abs().max()).item() for a, e in zip(both(f, x), exact, strict=True)])
    for mine, theirs in zip(*errors, strict=True):
        assert mine <= 1.5 * theirs + 6e-8, errors


@pytest.mark.parametrize("shape", [(5, 1), (300, 33), (129, 64), (1, 40)])
def test_extremes_of_columns(shape: tuple[int, int]) -> None:
    x = torch.randint(-3, 3, shape).float()  # several are equal
    check(lambda x: x.amax(0), x, tolerance=1e-6)
    check(lambda x: (x == x.amax(0)).sum(0).float() * x.amin(0), x, tolerance=1e-6)


TYPES = [torch.float32, torch.float64, torch.int64, torch.uint8]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode", ["sum", "prod", "amax", "amin"])
def test_scatters(dtype: torch.dtype, mode: str) -> None:
    """Repeated indices, lines longer than a block, lines whose indices are all equal."""
    for n in (1, 300):
        x, u = (torch.randint(0, 9, (11, n)).to(dtype) for _ in range(2))
        for i in (torch.randint(11, (11, n)), torch.randint(11, (11, 1)).expand(11, n)):
            check(lambda x, i, u: x.scatter_reduce(0, i, u, mode), x, i, u, backward=False, tolerance=1e-6)
        i = torch.randint(n, (11, n))
        check(lambda x, i, u: x.scatter_reduce(1, i, u, mode), x, i, u, backward=False, tolerance=1e-6)


@pytest.mark.parametrize("mode", ["amax", "amin"])
def test_scatters_keep_nan(mode: str) -> None:
    x, u = special(6, 40), special(9, 40)
    i = torch.randint(6, (9, 1)).expand(9, 40)
    check(lambda x, i, u: x.scatter_reduce(0, i, u, mode), x, i, u, backward=False)


def test_index_put_and_add() -> None:
    x, u = torch.randn(20, 7, 33), torch.randn(50, 33)
    i, k = torch.randint(20, (50,)), torch.randint(-7, 7, (50,))
    check(lambda x, i, k, u: x.index_put((i, k), u, accumulate=True), x, i, k, u, tolerance=1e-5)
    check(lambda x, i, u: x.index_add(1, i, u), x, torch.randint(7, (50,)), torch.randn(20, 50, 33), tolerance=1e-5)
    check(lambda x, i: x.index_fill(2, i, 3.0), x, torch.randint(33, (50,)))
    check(
        lambda x, i, u: x.index_copy(0, i, u),
        x.to(torch.int16),
        torch.randperm(20),
        (9 * torch.randn(20, 7, 33)).to(torch.int16),
        backward=False,
    )
    fast = sol.optimize(lambda x, i, u: x.index_add(0, i, u), x, i, torch.randn(50, 7, 33))
    with pytest.raises((sol.Error, IndexError), match="out of range"):
        fast(x, i + 20, torch.randn(50, 7, 33))


@pytest.mark.parametrize("n", [1, 5000])
def test_counts(n: int) -> None:
    x = torch.randint(9, (n,))
    fast = sol.optimize(lambda x: torch.bincount(x, minlength=12), x)
    for low in (0, 3):
        assert torch.equal(fast(x.clamp(min=low)), torch.bincount(x.clamp(min=low), minlength=12))
    with pytest.raises((sol.Error, RuntimeError), match="non-negative"):
        fast(x - 20)
    check(lambda x: torch.histc(x, 9, -1, 1), torch.randn(n), backward=False)
    check(lambda x, w: torch.bincount(x, w, 9), x, torch.randn(n), backward=False, tolerance=1e-5)


@pytest.mark.parametrize("k", [5, 63])
def test_first_of_many(k: int) -> None:
    for x in (torch.randn(7, 1000), torch.randint(9, (3, 200)).float(), special(2, 64)):
        for largest in (True, False):
            check(lambda x, largest=largest: x.topk(k, largest=largest)[0], x, backward=False)


@pytest.mark.parametrize("wrap", (False, True))
@pytest.mark.parametrize("shape", ((5, 5), (3, 5), (7, 3), (3, 3, 3)))
def test_fill_diagonal(shape: tuple[int, ...], wrap: bool) -> None:
    check(lambda x: (x * 2).fill_diagonal_(-2.5, wrap=wrap), torch.randn(shape))
