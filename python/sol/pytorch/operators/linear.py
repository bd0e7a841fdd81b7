"""Linear algebra: factorizations, solving, inverses, determinants."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..builder import Builder, Rejected, Value
from .table import op


def _batched(b: Builder, *values: Value, ranks: Sequence[int] = (2, 2)) -> list[Value]:
    """Broadcasts leading dimensions. `ranks` are the numbers of last dimensions that do not take part."""
    leads = [v.shape[: v.ndim - r] for v, r in zip(values, ranks, strict=True)]
    lead = torch.broadcast_shapes(*leads)
    return [b.expand(v, (*lead, *v.shape[v.ndim - r :])) for v, r in zip(values, ranks, strict=True)]


def _eye(b: Builder, n: int, like: Value) -> Value:
    """An identity matrix with the leading dimensions of `like`."""
    one = b.const(torch.eye(n, dtype=like.dtype))
    return b.expand(one, (*like.shape[:-2], n, n))


# -- solving, inverting


def _solve(b: Builder, a: Value, x: Value, left: bool, check: bool) -> tuple[Value, ...]:
    """Returns X, LU, pivots and info."""
    vector = x.ndim == 1 or (a.ndim - 1 == x.ndim and x.shape == a.shape[:-1])
    a, x = _batched(b, a, b.unsqueeze(x, -1) if vector else x)
    flip = not left and not vector
    if flip:
        a, x = b.transpose(a), b.transpose(x)
    y, lu, pivots, info = b.layers("Solve", a, x, outputs=4, check=int(check))
    y = b.transpose(y) if flip else y
    return (b.squeeze(y, -1) if vector else y), lu, pivots, info


@op("_linalg_solve_ex")
def solve_parts(b: Builder, a: Value, B: Value, left: bool, check_errors: bool) -> tuple[Value, ...]:
    return _solve(b, a, B, left, check_errors)


@op("linalg_solve")
def solve(b: Builder, a: Value, B: Value, left: bool) -> Value:
    return _solve(b, a, B, left, True)[0]


@op("linalg_inv_ex")
def inv_ex(b: Builder, a: Value, check_errors: bool) -> tuple[Value, ...]:
    return b.layers("Inverse", a, outputs=2, check=int(check_errors))


@op("linalg_inv", "inverse")
def inv(b: Builder, a: Value) -> Value:
    return b.layers("Inverse", a, outputs=2, check=1)[0]


@op("linalg_tensorinv")
def tensorinv(b: Builder, a: Value, ind: int) -> Value:
    n = math.prod(a.shape[ind:])
    return b.reshape(inv(b, b.reshape(a, [n, n])), (*a.shape[ind:], *a.shape[:ind]))


@op("linalg_tensorsolve")
def tensorsolve(b: Builder, a: Value, other: Value, dims: Sequence[int] | None) -> Value:
    if dims is not None:
        last = [d % a.ndim for d in dims]
        a = b.permute(a, [d for d in range(a.ndim) if d not in last] + last)
    n = math.prod(other.shape)
    x = _solve(b, b.reshape(a, [n, n]), b.reshape(other, [n]), True, True)[0]
    return b.reshape(x, a.shape[other.ndim :])


@op("linalg_matrix_power", "matrix_power")
def matrix_power(b: Builder, a: Value, n: int) -> Value:
    if n == 0:
        return _eye(b, a.shape[-1], a)
    x, y = a if n > 0 else inv(b, a), None
    n = abs(n)
    while n:
        if n & 1:
            y = x if y is None else b.layer("MatMul", y, x)
        n >>= 1
        x = b.layer("MatMul", x, x) if n else x
    assert y is not None
    return y


@op("linalg_solve_triangular")
def solve_triangular(b: Builder, a: Value, B: Value, upper: bool, left: bool, unitriangular: bool) -> Value:
    a, x = _batched(b, a, B)
    if left:
        return b.layer("SolveTriangular", a, x, upper=int(upper), unit=int(unitriangular))
    x = b.layer("SolveTriangular", b.transpose(a), b.transpose(x), upper=int(not upper), unit=int(unitriangular))
    return b.transpose(x)


@op("triangular_solve")
def old_solve_triangular(
    b: Builder, x: Value, A: Value, upper: bool, transpose: bool, unitriangular: bool
) -> tuple[Value, Value]:
    a, x = _batched(b, A, x)
    if transpose:
        return solve_triangular(b, b.transpose(a), x, not upper, True, unitriangular), a
    return solve_triangular(b, a, x, upper, True, unitriangular), a


# -- determinants


@op("_linalg_det")
def det(b: Builder, a: Value) -> tuple[Value, ...]:
    return b.layers("Det", a, outputs=3)


@op("_linalg_slogdet")
def slogdet(b: Builder, a: Value) -> tuple[Value, ...]:
    return b.layers("SlogDet", a, outputs=4)


@op("logdet")
def logdet(b: Builder, a: Value) -> Value:
    sign, log, *_ = b.layers("SlogDet", a, outputs=4)
    return b.where(b.compare("eq", sign, -1), b.scalar(math.nan, a.dtype), log)


# -- LU


@op("linalg_lu_factor_ex")
def lu_factor_ex(b: Builder, a: Value, pivot: bool, check_errors: bool) -> tuple[Value, ...]:
    if not pivot:
        raise Rejected("pivot=False")
    return b.layers("LU", a, outputs=3, check=int(check_errors))


@op("linalg_lu_factor")
def lu_factor(b: Builder, a: Value, pivot: bool) -> tuple[Value, ...]:
    return lu_factor_ex(b, a, pivot, True)[:2]


@op("_lu_with_info")
def lu_with_info(b: Builder, a: Value, pivot: bool, check_errors: bool) -> tuple[Value, ...]:
    return lu_factor_ex(b, a, pivot, check_errors)


@op("linalg_lu_solve")
def lu_solve(b: Builder, lu: Value, pivots: Value, B: Value, left: bool, adjoint: bool) -> Value:
    lu, pivots, x = _batched(b, lu, pivots, B, ranks=(2, 1, 2))
    if left:
        return b.layer("LUSolve", lu, pivots, x, adjoint=int(adjoint))
    return b.transpose(b.layer("LUSolve", lu, pivots, b.transpose(x), adjoint=int(not adjoint)))


def _permutation(b: Builder, lu: Value, pivots: Value) -> Value:
    """P of A = P L U. Rows that were never a pivot keep their place."""
    m, k = lu.shape[-2], pivots.shape[-1]
    if k < m:
        rest = b.const(torch.arange(k + 1, m + 1, dtype=torch.int32))
        pivots = b.concat([pivots, b.expand(rest, (*pivots.shape[:-1], m - k))], pivots.ndim - 1)
    eye = _eye(b, m, lu)
    return b.layer("LUSolve", eye, pivots, eye, adjoint=1)


def _lower_upper(b: Builder, lu: Value) -> tuple[Value, Value]:
    m, n = lu.shape[-2:]
    k = min(m, n)
    low = b.layer("Tril", b.slice(lu, -1, 0, k), k=-1)
    eye = b.const(torch.eye(m, k, dtype=lu.dtype))
    return b.map("add", low, eye), b.layer("Triu", b.slice(lu, -2, 0, k), k=0)


@op("lu_unpack")
def lu_unpack(b: Builder, lu: Value, LU_pivots: Value, unpack_data: bool, unpack_pivots: bool) -> tuple[Value, ...]:
    none = b.fill([0], 0, lu.dtype)
    p = _permutation(b, lu, LU_pivots) if unpack_pivots else none
    return (p, *(_lower_upper(b, lu) if unpack_data else (none, none)))


@op("linalg_lu")
def lu(b: Builder, a: Value, pivot: bool) -> tuple[Value, ...]:
    packed, pivots, _ = lu_factor_ex(b, a, pivot, False)
    return (_permutation(b, packed, pivots), *_lower_upper(b, packed))


# -- Cholesky


@op("linalg_cholesky_ex")
def cholesky_ex(b: Builder, a: Value, upper: bool, check_errors: bool) -> tuple[Value, ...]:
    return b.layers("Cholesky", a, outputs=2, upper=int(upper), check=int(check_errors))


@op("linalg_cholesky", "cholesky")
def cholesky(b: Builder, a: Value, upper: bool) -> Value:
    return cholesky_ex(b, a, upper, True)[0]


@op("cholesky_solve")
def cholesky_solve(b: Builder, x: Value, input2: Value, upper: bool) -> Value:
    a, x = _batched(b, input2, x)
    t = b.transpose(a)
    first, second = (t, a) if upper else (a, t)
    y = b.layer("SolveTriangular", first, x, upper=0)
    return b.layer("SolveTriangular", second, y, upper=1)


@op("cholesky_inverse")
def cholesky_inverse(b: Builder, a: Value, upper: bool) -> Value:
    return cholesky_solve(b, _eye(b, a.shape[-1], a), a, upper)


# -- QR


@op("linalg_qr")
def qr(b: Builder, a: Value, mode: str) -> tuple[Value, Value]:
    q, r = b.layers("QR", a, outputs=2, full=int(mode == "complete"))
    return (b.fill([0], 0, a.dtype) if mode == "r" else q), r


@op("geqrf")
def geqrf(b: Builder, a: Value) -> tuple[Value, ...]:
    return b.layers("Householder", a, outputs=2)


@op("linalg_householder_product")
def householder_product(b: Builder, a: Value, tau: Value) -> Value:
    return b.layer("HouseholderProduct", a, tau)


@op("orgqr")
def orgqr(b: Builder, a: Value, input2: Value) -> Value:
    return b.layer("HouseholderProduct", a, input2)


@op("ormqr")
def ormqr(b: Builder, a: Value, input2: Value, input3: Value, left: bool, transpose: bool) -> Value:
    a = b.slice(a, -1, 0, input2.shape[-1])
    q = b.layer("HouseholderProduct", a, input2, full=1)
    q = b.transpose(q) if transpose else q
    return b.layer("MatMul", q, input3) if left else b.layer("MatMul", input3, q)


# -- eigenvalues, singular values


@op("_linalg_eigh")
def eigh(b: Builder, a: Value, UPLO: str, compute_v: bool) -> tuple[Value, Value]:
    upper = int(UPLO.upper() == "U")
    if compute_v:
        w, v = b.layers("Eigh", a, outputs=2, upper=upper)
        return w, v
    return b.layer("Eigh", a, upper=upper, values=1), b.fill([0], 0, a.dtype)


@op("_linalg_svd")
def svd(b: Builder, a: Value, full_matrices: bool, compute_uv: bool, driver: str | None) -> tuple[Value, Value, Value]:
    """The driver is ignored: drivers differ in speed only."""
    if compute_uv:
        u, s, v = b.layers("SVD", a, outputs=3, full=int(full_matrices))
        return u, s, v
    none = b.fill([0], 0, a.dtype)
    return none, b.layer("SVD", a, values=1), none


@op("linalg_pinv.atol_rtol_tensor")
def pinv(b: Builder, a: Value, atol: Value | None, rtol: Value | None, hermitian: bool) -> Value:
    if hermitian:
        below = b.layer("Tril", a, k=-1)
        a = b.map("add", b.layer("Tril", a, k=0), b.transpose(below))
    usual = b.scalar(torch.finfo(a.dtype).eps * max(a.shape[-2:]), a.dtype)
    if rtol is None:
        rtol = usual
        if atol is not None:
            rtol = b.where(b.compare("gt", atol, 0), b.scalar(0, atol.dtype), b.cast(usual, atol.dtype))
    limits = [b.scalar(0, a.dtype) if v is None else b.cast(v, a.dtype) for v in (atol, rtol)]
    return b.layer("Pinv", *_batched(b, a, *limits, ranks=(2, 0, 0)))


@op("linalg_matrix_exp")
def matrix_exp(b: Builder, a: Value) -> Value:
    return b.layer("MatrixExp", a)
