"""Random layers: distributions, and which calls repeat the numbers of which."""

import math

import pytest
import sol
import torch

N = 40000
# name -> (what it computes, mean, standard deviation, limits)
CASES = {
    "rand": (lambda x: torch.rand_like(x), 0.5, 12**-0.5, (0, 1)),
    "rand f64": (lambda x: torch.rand(N, dtype=torch.float64), 0.5, 12**-0.5, (0, 1)),
    "randn": (lambda x: torch.randn(N // 2, 2), 0, 1, (-7, 7)),
    "randn, no generator": (lambda x: torch.randn((N,), generator=None, dtype=torch.float64), 0, 1, (-7, 7)),
    "randint, no generator": (lambda x: torch.randint(-3, 8, (N,), generator=None), 2, math.sqrt(10), (-3, 7)),
    "randint": (lambda x: torch.randint(-3, 8, (N,)), 2, math.sqrt(10), (-3, 7)),
    "randint_like": (lambda x: torch.randint_like(x, 11), 5, math.sqrt(10), (0, 10)),
    "uniform_": (lambda x: x.clone().uniform_(2, 4), 3, 2 * 12**-0.5, (2, 4)),
    "normal_": (lambda x: x.clone().normal_(5, 2), 5, 2, (-9, 19)),
    "normal": (lambda x: torch.normal(torch.full_like(x, -1), torch.full_like(x, 0.5)), -1, 0.5, (-5, 3)),
    "log_normal_": (lambda x: x.clone().log_normal_(0, 0.25), math.exp(1 / 32), 0.262, (0, 9)),
    "exponential_": (lambda x: x.clone().exponential_(2), 0.5, 0.5, (0, 9)),
    "geometric_": (lambda x: x.clone().geometric_(0.25), 4, math.sqrt(12), (1, 90)),
    "random_": (lambda x: torch.zeros(N, dtype=torch.int64).random_(11), 5, math.sqrt(10), (0, 10)),
    "random_.from": (lambda x: x.clone().random_(2, 5), 3, math.sqrt(2 / 3), (2, 4)),
    "bernoulli": (lambda x: torch.bernoulli(torch.full_like(x, 0.3)), 0.3, math.sqrt(0.21), (0, 1)),
    "bernoulli_": (lambda x: x.clone().bernoulli_(0.9), 0.9, 0.3, (0, 1)),
    "randperm": (lambda x: torch.randperm(N), (N - 1) / 2, N * 12**-0.5, (0, N - 1)),
    "dropout": (lambda x: torch.dropout(x, 0.2, True), 1, 0.5, (0, 1.25)),
    "native_dropout": (lambda x: torch.native_dropout(x, 0.2, True)[0], 1, 0.5, (0, 1.25)),
    "alpha_dropout": (lambda x: torch.alpha_dropout(torch.randn_like(x), 0.1, True), 0, 1, (-7, 7)),
    "feature_dropout": (lambda x: torch.feature_dropout(x.view(200, N // 400, 2), 0.5, True), 1, 1, (0, 2)),
    "rrelu": (lambda x: torch.rrelu(-x, 0.2, 0.4, True), -0.3, 0.2 * 12**-0.5, (-0.4, -0.2)),
}


def function(f):
    return sol.optimize(f, torch.ones(N))


@pytest.mark.parametrize("name", CASES)
def test_distribution(name):
    f, mean, std, (low, high) = CASES[name]
    eager = f(torch.ones(N))
    y = function(f)(torch.ones(N))
    assert y.dtype == eager.dtype
    assert y.shape == eager.shape
    y = y.double()
    assert y.min() >= low
    assert y.max() <= high
    assert abs(y.mean() - mean) < 6 * std / math.sqrt(N) + 0.02 * ("feature" in name)
    assert abs(y.std() - std) < 0.05 * std


def test_a_permutation_is_one():
    assert torch.equal(function(lambda x: torch.randperm(999))(torch.ones(N)).sort()[0], torch.arange(999))


@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial(replacement):
    """As often as the weights say, never a weight of 0, and without replacement each once."""
    weights = torch.tensor([0.0, 3.0, 1.0, 0.0, 4.0, 2.0, 0.0])
    f = sol.optimize(lambda w: torch.multinomial(w, 3, replacement), weights.expand(20000, 7).contiguous())
    drawn = f(weights.expand(20000, 7).contiguous())
    assert drawn.shape == (20000, 3) and drawn.dtype == torch.int64
    shares = torch.bincount(drawn[:, 0], minlength=7) / 20000
    torch.testing.assert_close(shares, weights / 10, atol=0.02, rtol=0)
    assert (weights[drawn] > 0).all()
    assert ((drawn[:, :1] == drawn[:, 1:]).any() or not replacement) and (
        replacement or all(len(set(row)) == 3 for row in drawn[:500].tolist())
    )
    one = sol.optimize(lambda w: torch.multinomial(w, 1, replacement), weights)
    assert one(weights).shape == (1,)


def test_features_fall_together():
    y = function(lambda x: torch.nn.functional.dropout2d(x.view(4, 100, 10, 10), 0.5))(torch.ones(N)).flatten(2)
    assert torch.equal(y.amin(2), y.amax(2))
    assert 0 < (y == 0).sum() < N


def test_layers_have_numbers_of_their_own():
    a, b, c = function(lambda x: (torch.rand(N), torch.rand(N), torch.rand_like(x)))(torch.ones(N))
    for u, v in ((a, b), (b, c), (a, c)):
        assert abs(torch.corrcoef(torch.stack([u, v]))[0, 1]) < 0.03


@pytest.mark.parametrize("seed", [torch.manual_seed, pytest.param(sol.set_seed, id="set_seed")])
def test_seeds_repeat_a_run_and_calls_differ(seed):
    f = function(lambda x: (torch.nn.functional.dropout(x), torch.randn(9)))
    runs = []
    for s in (3, 3, 4):
        seed(s)
        runs.append([torch.cat(f(torch.ones(N))) for _ in range(2)])
    assert all(torch.equal(u, v) for u, v in zip(runs[0], runs[1], strict=True))
    assert not torch.equal(*runs[0])
    assert not torch.equal(runs[0][0], runs[2][0])


def test_any_number_of_threads_gives_the_same():
    f, before, runs = function(lambda x: torch.randn_like(x)), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            torch.manual_seed(5)
            runs.append(f(torch.ones(N)))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[0], runs[2])


def test_modules_that_train_drop():
    model = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.LSTM(4, 6, 2, dropout=0.5))
    model = sol.optimize(model.eval(), torch.ones(7, 3, 4)).train()
    with torch.no_grad():
        assert not torch.equal(model(torch.ones(7, 3, 4))[0], model(torch.ones(7, 3, 4))[0])
    model.eval()
    with torch.no_grad():
        assert torch.equal(model(torch.ones(7, 3, 4))[0], model(torch.ones(7, 3, 4))[0])


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x: torch.poisson(x), r"aten.poisson.default: this distribution .* \(test_chance.py:\d+\)"),
        (lambda x: torch.zeros(3, dtype=torch.int64).random_(), "whole range"),
    ],
)
def test_what_is_rejected(f, words):
    with pytest.raises(sol.UnsupportedError, match=words):
        function(f)


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("mask", ["causal", "bool", "float", None])
def test_attention_drops_probabilities(mask, kv_heads):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, kv_heads, 6, 8), torch.randn(2, kv_heads, 6, 8)
    m = {"bool": torch.rand(5, 6) > 0.2, "float": torch.randn(5, 6)}.get(mask)

    def f(q, k, v, p):
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, m, p, mask == "causal", enable_gqa=kv_heads < 4
        )

    torch.testing.assert_close(sol.optimize(f, q, k, v, 1e-9)(q, k, v, 1e-9), f(q, k, v, 0.0))
    dropped = sol.optimize(f, q, k, torch.ones_like(v), 0.5)
    sums = torch.stack([dropped(q, k, torch.ones_like(v), 0.5) for _ in range(300)])
    assert abs(sums.mean() - 1) < 0.03
    assert sums.std() > 0.1
