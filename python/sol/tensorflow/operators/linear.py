"""Linear algebra: factorizations and systems. Matrices are the last two dimensions. A singular matrix is an error, as in TensorFlow."""

from __future__ import annotations

import numpy as np

from sol.parsed import NUMPY

from .table import op


def _nothing(b, a):
    """What TensorFlow gives for vectors that nobody wants."""
    return b.value(np.zeros([0], NUMPY[b.value(a).dtype]))


@op("LogMatrixDeterminant")
def log_determinant(b, o, a):
    return list(b.layers("SlogDet", a, outputs=4))[:2]


@op("MatrixDeterminant")
def determinant(b, o, a):
    return b.layers("Det", a, outputs=3)[0]


@op("MatrixInverse")
def inverse(b, o, a):
    y = b.layers("Inverse", a, outputs=2, check=1)[0]
    return b.swap(y) if o.get_attr("adjoint") else y


@op("MatrixSolve")
def solve(b, o, a, y):
    a = b.value(a)
    return b.layers("Solve", b.swap(a) if o.get_attr("adjoint") else a, y, outputs=4, check=1)[0]


@op("MatrixTriangularSolve")
def triangular_solve(b, o, a, y):
    a, upper = b.value(a), not o.get_attr("lower")
    if o.get_attr("adjoint"):
        a, upper = b.swap(a), not upper
    return b.layer("SolveTriangular", a, y, upper=int(upper))


@op("Cholesky")
def cholesky(b, o, a):
    return b.layers("Cholesky", a, outputs=2, check=1)[0]


@op("Qr")
def qr(b, o, a):
    return list(b.layers("QR", a, outputs=2, full=int(o.get_attr("full_matrices"))))


@op("SelfAdjointEigV2")
def eigh(b, o, a):
    """TensorFlow's gradient is that of a symmetric matrix made of the lower half."""
    a = b.layer("add", b.layer("Tril", a, k=0), b.swap(b.layer("Tril", a, k=-1)))
    if not o.get_attr("compute_v"):
        return [b.layer("Eigh", a, values=1), _nothing(b, a)]
    return list(b.layers("Eigh", a, outputs=2))


@op("Svd")
def svd(b, o, a):
    if not o.get_attr("compute_uv"):
        return [b.layer("SVD", a, values=1), _nothing(b, a), _nothing(b, a)]
    u, s, v = b.layers("SVD", a, outputs=3, full=int(o.get_attr("full_matrices")))
    return [s, u, b.swap(v)]
