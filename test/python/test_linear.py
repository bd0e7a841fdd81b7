"""Linear algebra in PyTorch's frontend: results and gradients compared with eager mode, errors for matrices that cannot
be factorized, and results that do not depend on signs. (test_layers.py tests the rows of layers.def.)"""

import pytest
import sol
import torch
from torch import linalg, nn
from torch_help import assert_as_good


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def regular(*shape):
    return random(*shape) + 3 * torch.eye(*shape[-2:], dtype=torch.float64)


def definite(*shape):
    a = random(*shape)
    return a @ a.mT + torch.eye(shape[-1], dtype=torch.float64)


def rank_one(*shape):
    return random(*shape[:-1], 1) @ random(*shape[:-2], 1, shape[-1])


def without_signs(usv):
    u, s, v = usv
    return u.abs(), s, v.abs(), u @ v


SHAPES = ((2, 4, 4), (5, 3), (2, 3, 5))
# group -> (function, its matrices): compiled together
GROUPS = {
    "solutions": [
        (linalg.solve, regular(2, 4, 4), random(2, 4, 3)),
        (linalg.solve, regular(4, 4), random(4)),
        (linalg.solve, regular(4, 4), random(3, 4, 2)),
        (lambda a, x: linalg.solve(a, x, left=False), regular(2, 4, 4), random(2, 3, 4)),
        (linalg.inv, regular(2, 4, 4)),
        (lambda a: linalg.matrix_power(a, -3), regular(3, 3)),
        (lambda a, x: linalg.solve_triangular(a, x, upper=True), regular(2, 4, 4), random(2, 4, 3)),
        (
            lambda a, x: linalg.solve_triangular(a, x, upper=False, unitriangular=True, left=False),
            random(4, 4),
            random(2, 3, 4),
        ),
        (lambda a, x: linalg.lu_solve(*linalg.lu_factor(a), x, adjoint=True), regular(4, 4), random(4, 2)),
        (lambda a, x: linalg.lu_solve(*linalg.lu_factor(a), x, left=False), regular(4, 4), random(2, 4)),
    ],
    "determinants": [
        (linalg.det, random(2, 4, 4)),
        (lambda a: linalg.slogdet(a)[1], random(2, 4, 4)),
        (torch.logdet, definite(4, 4)),
    ],
    "cholesky": [
        (linalg.cholesky, definite(2, 4, 4)),
        (lambda a: linalg.cholesky(a, upper=True), definite(4, 4)),
        (lambda x, a: torch.cholesky_solve(x, a.tril()), random(4, 2), regular(4, 4)),
        (lambda a: torch.cholesky_inverse(a.tril()), regular(4, 4)),
    ],
    "lu": [(lambda a: linalg.lu(a)[1:], random(*s)) for s in SHAPES],
    "qr": [(linalg.qr, random(*s)) for s in SHAPES]
    + [(lambda a: linalg.qr(a)[0], random(*s)) for s in SHAPES]
    + [(lambda a: linalg.qr(a)[1], random(*s)) for s in SHAPES]
    + [(lambda a: linalg.qr(a, mode="complete"), random(3, 5))],
    "eigenvalues": [
        (lambda a: [t.abs() for t in linalg.eigh(a)], random(2, 4, 4)),
        (lambda a: linalg.eigh(a, UPLO="U")[1].abs(), random(4, 4)),
        (linalg.eigvalsh, random(2, 4, 4)),
    ],
    "singular values": [(lambda a: without_signs(linalg.svd(a, full_matrices=False)), random(*s)) for s in SHAPES]
    + [(lambda a: linalg.svd(a, full_matrices=False)[0].abs(), random(*s)) for s in SHAPES]
    + [(lambda a: linalg.svd(a, full_matrices=False)[2].abs(), random(*s)) for s in SHAPES]
    + [(linalg.svdvals, random(*s)) for s in SHAPES],
    "pseudoinverses": [(linalg.pinv, random(*s)) for s in SHAPES] + [(linalg.pinv, rank_one(2, 4, 3))],
    "functions": [
        (torch.matrix_exp, random(2, 3, 3)),
        (lambda a: linalg.matrix_norm(a, "nuc"), random(2, 3, 4)),
        (lambda a: linalg.matrix_norm(a, 2), random(2, 3, 4)),
    ],
}


class Group(nn.Module):
    """Functions of parameters."""

    def __init__(self, calls):
        super().__init__()
        self.calls = [(function, len(given)) for function, *given in calls]
        self.matrices = nn.ParameterList([nn.Parameter(m.clone()) for _, *given in calls for m in given])

    def forward(self, x):
        given = iter(self.matrices)
        return [function(*[next(given) * x for _ in range(n)]) for function, n in self.calls]


def flat(results):
    return [t for r in results for t in (flat(r) if isinstance(r, tuple | list) else [r])]


@pytest.mark.parametrize("name", GROUPS)
def test_results_and_gradients(name):
    torch.manual_seed(0)
    model, one = Group(GROUPS[name]).train(), torch.ones((), dtype=torch.float64)
    eager = flat(model(one))
    weights = [torch.randn_like(t) for t in eager]
    expected = torch.autograd.grad(eager, list(model.parameters()), weights)
    results = flat(sol.optimize(model, one)(one))
    for got, want in zip(results, eager, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)
    torch.autograd.backward(results, weights)
    for p, want in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, want, rtol=1e-7, atol=1e-7 * want.abs().max().item())


class Of(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *x):
        return self.function(*x)


def test_float32_is_as_good_as_pytorch():
    """Sizes that are not multiples of a panel, and matrices with large condition numbers."""
    torch.manual_seed(0)
    a = torch.randn(70, 70)
    a[:, 1] = a[:, 0] + 1e-3 * a[:, 1]
    x = torch.randn(70, 5)

    def all_of(a, x):
        d = a @ a.mT
        return [
            linalg.solve(a, x),
            linalg.inv(a),
            linalg.slogdet(a)[1],
            linalg.cholesky(d + torch.eye(70, dtype=a.dtype)),
            *linalg.qr(a),
            linalg.eigvalsh(d),
            linalg.svdvals(a),
            linalg.pinv(a),
        ]

    model = Of(all_of)
    assert_as_good(sol.optimize(model, a, x)(a, x), model(a, x), model(a.double(), x.double()))


def test_vectors_without_signs():
    """For any signs, A V = V w, and U, V are orthogonal; also with equal values and empty matrices."""
    torch.manual_seed(0)
    q = linalg.qr(random(6, 6))[0]
    equal = q @ torch.diag(torch.tensor([3.0, 3, 3, -1, -1, 0], dtype=torch.float64)) @ q.mT
    w, v = sol.optimize(Of(linalg.eigh), equal)(equal)
    torch.testing.assert_close(v @ torch.diag(w) @ v.mT, equal, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(v.mT @ v, torch.eye(6, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    for a in (equal, rank_one(7, 4), rank_one(3, 6), torch.zeros(4, 3, dtype=torch.float64), 1e-300 * random(4, 4)):
        u, s, vh = sol.optimize(Of(linalg.svd), a)(a)
        k = min(a.shape)
        torch.testing.assert_close(u[:, :k] @ torch.diag(s) @ vh[:k], a, rtol=1e-12, atol=1e-12 * a.abs().max().item())
        for t in (u, vh):
            torch.testing.assert_close(t.mT @ t, torch.eye(len(t), dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_gradient_of_a_determinant_that_is_zero():
    """The adjugate, with one pivot of 0."""
    a = torch.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=torch.float64, requires_grad=True)
    sol.optimize(Of(linalg.det).train(), a)(a).backward()
    torch.testing.assert_close(a.grad, torch.tensor([[4.0, -2.0], [-2.0, 1.0]], dtype=torch.float64))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (linalg.inv, r"\(Inverse\): matrix 1 is singular: pivot 2 is zero"),
        (lambda a: linalg.solve(a, a), r"\(Solve\): matrix 1 is singular: pivot 2 is zero"),
        (linalg.lu_factor, r"\(LU\): matrix 1 is singular: pivot 2 is zero"),
        (linalg.cholesky, r"\(Cholesky\): matrix 1 is not positive definite: its leading minor of order 2"),
    ],
)
def test_what_cannot_be_taken_apart_is_an_error(function, words):
    """An error where PyTorch raises one, too."""
    a = torch.eye(3).repeat(2, 1, 1)
    a[1, 1, 1] = 0
    with pytest.raises(RuntimeError):
        function(a)
    network = sol.optimize(Of(function), a)
    with pytest.raises(sol.Error, match=words):
        network(a)
    network(torch.eye(3).repeat(2, 1, 1))  # and continues to work


def test_info_says_what_an_error_would():
    a = torch.eye(3).repeat(2, 1, 1)
    a[1, 1, 1] = 0
    for function in (linalg.inv_ex, linalg.cholesky_ex, linalg.lu_factor_ex):
        assert sol.optimize(Of(function), a)(a)[-1].tolist() == [0, 2]
