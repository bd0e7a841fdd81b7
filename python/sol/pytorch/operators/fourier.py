"""Fourier transforms as matrix products with small DFT matrices and twiddle factors.

For a length n = r1 r2 .., there is one stage per factor (Cooley-Tukey): a product with the DFT matrix of r, then the
twiddle factors. A length with a large prime factor becomes a convolution with a chirp (Bluestein), computed by
transforms of a longer, smooth length. Matrices and factors are constants, computed in float64.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch

from ..builder import Builder, Complex, Rejected, Value
from .pairs import Pair, product
from .table import complex_op

DIRECT = 64  # up to this length, a single product with the DFT matrix
LARGEST = 128  # the largest factor of a stage
PASS = 16.0  # the cost of a stage besides its products, in products per element


# -- numbers


def _roots(k: torch.Tensor, n: int, inverse: bool) -> torch.Tensor:
    """exp(-2 pi i k / n) for integers k, exact at quarter turns."""
    k = k.remainder(n) * (1 if inverse else -1)
    angle = k.double() * (2 * math.pi / n)
    quarter = (4 * k).remainder(n) == 0
    re, im = angle.cos(), angle.sin()
    return torch.complex(torch.where(quarter, re.round(), re), torch.where(quarter, im.round(), im))


def _matrix(n: int, rows: int, inverse: bool, scale: float) -> torch.Tensor:
    return _roots(torch.arange(rows)[:, None] * torch.arange(n), n, inverse) * scale


@functools.cache
def _stages(n: int) -> tuple[float, tuple[int, ...]]:
    """The factors for transforming a length, and the cost per element; infinity: a prime factor is too large."""
    found: tuple[float, tuple[int, ...]] = (math.inf, ())
    if n <= DIRECT or (n <= LARGEST and _is_prime(n)):
        found = n + PASS, (n,)
    for r in range(2, min(LARGEST, n // 2) + 1):
        if n % r == 0 and (r <= DIRECT or _is_prime(r)):
            cost, rest = _stages(n // r)
            found = min(found, (cost + r + PASS, (r, *rest)))
    return found


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))


@functools.cache
def _padded(n: int) -> int:
    """The length, n or more, with the cheapest transform."""
    smooth = sorted({2**i * 3**j * 5**k for i in range(40) for j in range(5) for k in range(4)})
    return min((m for m in smooth if n <= m <= 2 * n), key=lambda m: m * _stages(m)[0])


# -- one dimension: x is [A, n, B]


def _product(b: Builder, matrix: torch.Tensor, x: Pair, eq: str) -> Value:
    """The product of the matrix [.., K, J] and the dimension of x that is J in `eq`; D are the parts of x."""
    dtype = x[0].dtype
    if x[1] is None:
        return b.layer("Einsum", b.const(matrix.select(-2, 0).contiguous().to(dtype)), x[0], eq=eq.replace("d", ""))
    return b.layer("Einsum", b.const(matrix.to(dtype)), b.layer("Stack", x[0], x[1], axis=1), eq=eq)


def _parts(f: torch.Tensor) -> torch.Tensor:
    """A complex matrix [K, J] as the real matrix [C, K, D, J] on pairs."""
    return torch.stack([torch.stack([f.real, -f.imag], 1), torch.stack([f.imag, f.real], 1)])


def _staged(b: Builder, x: Pair, factors: Sequence[int], inverse: bool, scale: float, rows: int) -> Pair:
    """Transforms factor by factor. Before stage s, x is [A, D, P, J, M, B]: P are digits of the result, J and M of the
    operand."""
    a, n, m = x[0].shape
    done, left = 1, n
    for r in factors[:-1]:
        left //= r
        x = tuple(v and b.reshape(v, [a, done, r, left, m]) for v in x)  # type: ignore[assignment]
        y = _product(b, _parts(_matrix(r, r, inverse, 1.0)), x, "ckdj,adpjmb->ackpmb")
        re, im = (b.layer("Select", y, axis=1, index=k) for k in (0, 1))
        turn = _roots(torch.arange(r)[:, None] * torch.arange(left), r * left, inverse)[:, None, :, None]
        factor = b.const(turn.real.to(re.dtype)), b.const(turn.imag.contiguous().to(re.dtype))
        x = product(b, (re, im), factor)
        done *= r
    r = factors[-1]
    whole = rows if done == 1 else r
    last = _parts(_matrix(r, whole, inverse, scale))
    x = tuple(v and b.reshape(v, [a, done, r, m]) for v in x)  # type: ignore[assignment]
    made = [b.reshape(_product(b, last[k], x, "kdj,adpjb->akpb"), [a, whole * done, m]) for k in (0, 1)]
    return b.slice(made[0], 1, 0, rows), b.slice(made[1], 1, 0, rows)


def _convolved(b: Builder, x: Pair, inverse: bool, scale: float, rows: int) -> Pair:
    """Bluestein's algorithm: jk = (j^2 + k^2 - (k-j)^2) / 2 turns the sum over j into a convolution with exp(i pi j^2 /
    n)."""
    n, dtype = x[0].shape[1], x[0].dtype
    m, j = _padded(2 * n - 1), torch.arange(n)
    chirp = _roots(j * j, 2 * n, inverse)
    kernel = torch.zeros(m, dtype=torch.complex128)
    kernel[:n] = chirp.conj()
    kernel[m - n + 1 :] = chirp[1:].conj().flip(0)

    def times(y: Pair, f: torch.Tensor) -> Pair:
        f = f[:, None]
        return product(b, y, (b.const(f.real.to(dtype)), b.const(f.imag.contiguous().to(dtype))))

    padded = [b.layer("Pad", v, p=[0, 0, 0], q=[0, m - n, 0]) for v in times(x, chirp) if v is not None]
    spectrum = times(_dft(b, (padded[0], padded[1]), False), torch.fft.fft(kernel))
    back = _dft(b, spectrum, True, 1 / m, rows)
    return times(back, chirp[:rows] * scale)


def _dft(b: Builder, x: Pair, inverse: bool, scale: float = 1.0, rows: int | None = None) -> Pair:
    """The first `rows` numbers of the transform of [A, n, B] along n."""
    n = x[0].shape[1]
    cost, factors = _stages(n)
    wanted = n if rows is None else rows
    if math.isinf(cost):
        return _convolved(b, x, inverse, scale, wanted)
    return _staged(b, x, factors, inverse, scale, wanted)


def _along(b: Builder, x: Pair, dim: int, inverse: bool, scale: float, rows: int | None = None) -> Pair:
    """The transform along one dimension of tensors of any rank."""
    shape = x[0].shape
    flat = [math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])]
    re, im = _dft(b, tuple(v and b.reshape(v, flat) for v in x), inverse, scale, rows)  # type: ignore[arg-type]
    made = [*shape[:dim], re.shape[1], *shape[dim + 1 :]]
    return b.reshape(re, made), im and b.reshape(im, made)


# -- operators


def _scale(shape: Sequence[int], dims: Sequence[int], normalization: int) -> float:
    """The scale for each dimension. 0: none, 1: the root of the number of elements, 2: their number."""
    n = math.prod(shape[d] for d in dims)
    return {0: 1.0, 1: 1 / math.sqrt(n or 1), 2: 1 / (n or 1)}[normalization]


def _axes(x: Complex | Value, dim: Sequence[int]) -> list[int]:
    return [d % x.ndim for d in dim]


@complex_op("_fft_c2c")
def c2c(b: Builder, x: Complex, dim: Sequence[int], normalization: int, forward: bool) -> Complex:
    pair, dims = (x.re, x.im), _axes(x, dim)
    scale = _scale(x.shape, dims, normalization)
    for d in reversed(dims):
        pair = _along(b, pair, d, not forward, scale if d == dims[0] else 1.0)
    return Complex(*pair)


@complex_op("_fft_r2c")
def r2c(b: Builder, x: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Complex:
    """The transform of a real tensor. `onesided`: only the first half of the last dimension."""
    dims = _axes(x, dim)
    scale = _scale(x.shape, dims, normalization)
    rows = x.shape[dims[-1]] // 2 + 1 if onesided else None
    pair = _along(b, (x, None), dims[-1], False, scale, rows)
    for d in reversed(dims[:-1]):
        pair = _along(b, pair, d, False, 1.0)
    return Complex(*pair)


@complex_op("_fft_c2r")
def c2r(b: Builder, x: Complex, dim: Sequence[int], normalization: int, last_dim_size: int) -> Value:
    """The inverse of r2c."""
    dims, n = _axes(x, dim), last_dim_size
    last = dims[-1]
    scale = _scale([n if d == last else s for d, s in enumerate(x.shape)], dims, normalization)
    pair: Pair = (x.re, b.imaginary(x))
    for d in reversed(dims[:-1]):
        pair = _along(b, pair, d, True, 1.0)
    return _half_to_real(b, pair, last, n, scale)


def _half_to_real(b: Builder, pair: Pair, dim: int, n: int, scale: float) -> Value:
    """The real result of the first half of a spectrum. The second half is its reversed conjugate."""
    half = [b.slice(v, dim, 0, n // 2 + 1) for v in pair if v is not None]
    rest = [b.layer("Flip", b.slice(v, dim, 1, (n + 1) // 2), axes=[dim]) for v in half]
    whole = b.concat([half[0], rest[0]], dim), b.concat([half[1], b.map("neg", rest[1])], dim)
    return _along(b, whole, dim, True, scale)[0]


@complex_op("istft")
def istft(
    b: Builder,
    x: Complex,
    n_fft: int,
    hop_length: int | None,
    win_length: int | None,
    window: Value | None,
    center: bool,
    normalized: bool,
    onesided: bool | None,
    length: int | None,
    return_complex: bool,
) -> Value | Complex:
    """Transforms frames back, multiplies them by the window, adds them at their positions, and divides by the sum of
    the windows."""
    if isinstance(window, Complex):
        raise Rejected("a complex window")
    hop, bins, frames = hop_length or n_fft // 4, x.shape[-2], x.shape[-1]
    pair: Pair = tuple(b.reshape(v, [math.prod(x.shape[:-2]), bins, frames]) for v in (x.re, b.imaginary(x)))  # type: ignore[assignment]
    scale = 1 / math.sqrt(n_fft) if normalized else 1 / n_fft
    made = _along(b, pair, 1, True, scale) if return_complex else (_half_to_real(b, pair, 1, n_fft, scale), None)
    wide = win_length or n_fft
    weight = b.fill([wide], 1, x.re.dtype) if window is None else b.cast(window, x.re.dtype)
    weight = b.layer("Pad", weight, p=[(n_fft - wide) // 2], q=[n_fft - wide - (n_fft - wide) // 2])
    weight = b.reshape(weight, [1, n_fft, 1])
    whole = n_fft + hop * (frames - 1)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else whole - start

    def added(columns: Value) -> Value:
        fold = b.layer("Fold", columns, o=[1, whole], k=[1, n_fft], d=[1, 1], p=[0, 0], s=[1, hop])
        return b.slice(b.reshape(fold, [columns.shape[0], whole]), 1, start, min(end, whole))

    total = added(b.expand(b.map("square", weight), [1, n_fft, frames]))

    def mixed(columns: Value) -> Value:
        y = b.map("div", added(b.map("mul", columns, weight)), total)
        y = b.layer("Pad", y, p=[0, 0], q=[0, end - whole]) if end > whole else y
        return b.reshape(y, b.out.shape)

    return mixed(made[0]) if made[1] is None else Complex(mixed(made[0]), mixed(made[1]))
