"""Linear algebra: factorizations and triangular systems. Matrices are the last two dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from sol.parsed import NUMPY

from ..builder import Builder, Value
from .table import Rejected, op


def _transposed(b: Builder, x: Value) -> Value:
    return b.permute(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


@op("cholesky")
def _cholesky(b: Builder, p: dict[str, Any], a: Value) -> Value:
    """NaN where the matrix is not positive definite."""
    made, info = b.layers("Cholesky", a, outputs=2)
    failed = b.reshape(b.layer("ne", info, b.scalar(0, info.dtype)), (*info.shape, 1, 1))
    return b.layer("where", b.cast(failed, a.dtype), b.scalar(np.nan, a.dtype), made)


@op("triangular_solve")
def _triangular_solve(b: Builder, p: dict[str, Any], a: Value, y: Value) -> Value:
    upper = not p["lower"]
    if p["transpose_a"]:
        a, upper = _transposed(b, a), not upper
    if not p["left_side"]:  # x a = y: a' x' = y'
        a, y, upper = _transposed(b, a), _transposed(b, y), not upper
    x = b.layer("SolveTriangular", a, y, upper=int(upper), unit=int(p["unit_diagonal"]))
    return x if p["left_side"] else _transposed(b, x)


def _permutation(b: Builder, pivots: Value, n: int) -> Value:
    """What swaps of rows, from 0, make of 0..n-1. LUSolve with a matrix of ones on the diagonal swaps rows alone."""
    lead, k = pivots.shape[:-1], pivots.shape[-1]
    if k < n:
        rest = b.expand(b.const(np.arange(k, n, dtype=np.int32)), (*lead, n - k))
        pivots = b.concat([pivots, rest], pivots.ndim - 1)
    swaps = b.layer("add", pivots, b.scalar(1, pivots.dtype))
    eye = b.expand(b.const(np.eye(n, dtype=NUMPY["f64"])), (*lead, n, n))
    rows = b.expand(b.const(np.arange(n, dtype=NUMPY["f64"])[:, None]), (*lead, n, 1))
    return b.cast(b.reshape(b.layer("LUSolve", eye, swaps, rows), (*lead, n)), "i32")


@op("lu")
def _lu(b: Builder, p: dict[str, Any], a: Value) -> list[Value]:
    """The factors, the rows that were swapped, and the permutation that this is."""
    made, swaps, _ = b.layers("LU", a, outputs=3)
    pivots = b.layer("sub", swaps, b.scalar(1, swaps.dtype))
    return [made, pivots, _permutation(b, pivots, a.shape[-2])]


@op("lu_pivots_to_permutation")
def _pivots_to_permutation(b: Builder, p: dict[str, Any], pivots: Value) -> Value:
    return _permutation(b, pivots, p["permutation_size"])


@op("qr")
def _qr(b: Builder, p: dict[str, Any], a: Value) -> list[Value]:
    if p.get("pivoting"):
        raise Rejected("a QR factorization that swaps columns")
    return b.layers("QR", a, outputs=2, full=int(p["full_matrices"]))


@op("geqrf")
def _geqrf(b: Builder, p: dict[str, Any], a: Value) -> list[Value]:
    return b.layers("Householder", a, outputs=2)


@op("householder_product")
def _householder_product(b: Builder, p: dict[str, Any], a: Value, tau: Value) -> Value:
    return b.layer("HouseholderProduct", a, tau)


@op("eigh")
def _eigh(b: Builder, p: dict[str, Any], a: Value) -> list[Value]:
    """Eigenvectors, and ascending eigenvalues."""
    if p.get("subset_by_index") is not None:
        raise Rejected("some of the eigenvalues")
    w, v = b.layers("Eigh", a, outputs=2, upper=int(not p["lower"]))
    return [v, w]


@op("svd")
def _svd(b: Builder, p: dict[str, Any], a: Value) -> list[Value]:
    """Singular values, and their vectors if they are wanted."""
    if p.get("subset_by_index") is not None:
        raise Rejected("some of the singular values")
    if not p["compute_uv"]:
        return [b.layer("SVD", a, values=1)]
    u, s, v = b.layers("SVD", a, outputs=3, full=int(p["full_matrices"]))
    return [s, u, v]


@op("platform_index")
def _platform_index(b: Builder, p: dict[str, Any]) -> Value:
    """Which of several functions is for the processor; None stands for those that others are not for."""
    platforms = p["platforms"]
    own = [i for i, names in enumerate(platforms) if names is not None and "cpu" in names]
    return b.scalar(own[0] if own else platforms.index(None), "i32")
