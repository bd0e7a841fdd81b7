"""How the tests compare: estimates of the error that float32 may have, and reference gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch_help import Rounded, assert_as_good, contiguous_gradient, error


def test_rounded_values_are_neighbours_in_float32():
    x = torch.randn(1000, dtype=torch.float64)
    with Rounded(0):
        rounded, exact = x * 3, x.float().double() * 2
        none = torch.full((), torch.finfo(torch.float64).min, dtype=torch.float64).exp()
    nearest = (x * 3).float().double()
    assert torch.equal(rounded.float().double(), rounded) and error(rounded, x * 3) < 2**-23
    assert 0.1 < (rounded != nearest).double().mean() < 0.5
    assert torch.equal(exact, x.float().double() * 2) and none == 0


def at_kink():
    """The gradient of a ReLU whose operand is 0 but for rounding."""
    x = (
        torch.ones((), dtype=torch.float64) / 3
    ).requires_grad_()  # a little less, so that 3 x - 1 is 0 or a little less
    F.relu(x * 3 - 1).backward()
    return x.grad


def cancelled():
    """A sum whose terms cancel, and one whose terms do not."""
    a, b = torch.linspace(1, 2, 2000, dtype=torch.float64).view(2, 1000)
    return [(a * 1e6 + b - a * 1e6).sum(), (a * b).sum()]


def draw(call):
    def drawn(rounded):
        with rounded:
            return call()

    return drawn


def test_errors_that_rounding_makes_are_allowed():
    exact, got = at_kink(), torch.tensor(3.0)
    assert exact == 0
    with pytest.raises(AssertionError, match=r"result 0: error 3, PyTorch's is 0"):
        assert_as_good(got, exact.float(), exact)
    assert_as_good(got, exact.float(), exact, draw=draw(at_kink))


def test_models_near_another_are_the_same_in_float32():
    model = torch.nn.Linear(50, 50)
    near = Rounded(0).near(model.double())
    assert not torch.equal(near.weight, model.weight)
    torch.testing.assert_close(near.float().state_dict(), model.float().state_dict(), rtol=0, atol=0)
    assert 2**-24 < error(Rounded(0, 4).near(model.double()).weight, model.weight) < 2**-22


def test_errors_that_rounding_does_not_make_are_not():
    exact = cancelled()
    eager = [t.float() for t in exact]
    assert_as_good([eager[0] * 1.0001, eager[1]], eager, exact, draw=draw(cancelled))
    with pytest.raises(AssertionError, match="result 1"):
        assert_as_good([eager[0] * 1.0001, eager[1] * 1.0001], eager, exact, draw=draw(cancelled))


def test_gradients_of_batch_norm():
    """PyTorch 2.13 computes others for a gradient that is channels-last."""
    x, mean, variance = torch.randn(1, 8, 4, 4), torch.zeros(8), torch.ones(8)
    weight, bias = torch.ones(8, requires_grad=True), torch.zeros(8, requires_grad=True)
    dy = torch.randn(1, 17, 8)[:, 1:].permute(0, 2, 1).unflatten(2, (4, 4))
    contiguous_gradient(x, mean, variance, weight, bias).backward(dy)
    torch.testing.assert_close(bias.grad, dy.sum((0, 2, 3)))
    torch.testing.assert_close(weight.grad, (dy * x).sum((0, 2, 3)), rtol=1e-4, atol=1e-4)
