"""New tensors, and checks that translation has already done."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sol import forms

from ..builder import Builder, Number, Rejected, Value, sol_name
from .table import op, reject, reject_family

Size = Sequence[int]
SPECIAL = (
    "igamma igammac mvlgamma special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 "
    "special_bessel_y1 special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v "
    "special_chebyshev_polynomial_w special_erfcx special_hermite_polynomial_h special_hermite_polynomial_he "
    "special_laguerre_polynomial_l special_legendre_polynomial_p special_modified_bessel_k0 "
    "special_modified_bessel_k1 special_ndtri special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 "
    "special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u "
    "special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0"
)


def _filled(b: Builder, value: Number) -> Value:
    return b.fill(b.out.shape, value, b.out.dtype)


@op("zeros", "new_zeros", "empty.memory_format", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")
def zeros(
    b: Builder,
    x: object,
    size: object = None,
    dtype: object = None,
    stride: object = None,
    physical_layout: object = None,
) -> Value:
    return _filled(b, 0)


@op("zeros_like", "empty_like")
def zeros_like(b: Builder, x: Value, dtype: object) -> Value:
    return _filled(b, 0)


@op("ones", "new_ones", "ones_like")
def ones(b: Builder, x: object, size: object = None, dtype: object = None) -> Value:
    return _filled(b, 1)


@op("full", "new_full", "full_like")
def full(b: Builder, x: object, fill_value: Number, size: object = None, dtype: object = None) -> Value:
    return b.expand(b.as_value(fill_value, b.out.dtype), b.out.shape)


@op("scalar_tensor", "tensor")
def scalar_tensor(b: Builder, x: Number, dtype: object) -> Value:
    return b.scalar(x, b.out.dtype)


def _computed(b: Builder, data: torch.Tensor) -> Value:
    if data.numel() > 1 << 20:
        raise Rejected(f"a computed constant of {data.numel()} elements")
    return b.const(data)


@op("arange", "arange.start", "arange.start_step")
def arange(b: Builder, x: Number, end: Number | None = None, step: Number = 1, dtype: object = None) -> Value:
    start, last = (0, x) if end is None else (x, end)
    out, n = b.out.dtype, b.out.shape[0]
    if not out.is_floating_point and all(isinstance(v, int) for v in (start, step)):
        return b.layer("Range", n=n, start=float(start), step=float(step), to=sol_name(out))
    if forms.varies(n, start, step):
        return b.to_out(_steps(b, start, step, n, torch.float64 if out.is_floating_point else torch.int64))
    return _computed(b, torch.arange(start, last, step, dtype=out))


def _steps(b: Builder, start: Number, step: Number, n: int, dtype: torch.dtype) -> Value:
    """start + step * i for n elements, any of which may be a size that varies."""
    at = b.layer("Range", n=n, start=0.0, step=1.0, to=sol_name(dtype))
    return b.add(at if step == 1 else b.mul(at, step), start)


@op("linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor")
def linspace_tensors(b: Builder, x: Value | Number, end: Value | Number, steps: int, dtype: object) -> Value:
    """Computes from both ends towards the middle, as PyTorch does."""
    dtype = b.out.dtype if b.out.dtype.is_floating_point else torch.float64
    first, last = (b.as_value(b.to_out(v), dtype) for v in (x, end))
    if steps < 2:
        return b.to_out(b.expand(first, [steps]))
    step = b.div(b.map("sub", last, first), steps - 1)
    at = b.layer("Range", n=steps, start=0.0, step=1.0, to=sol_name(dtype))
    back = _steps(b, steps - 1, -1, steps, dtype)
    front = b.map("add", b.map("mul", at, step), first)
    return b.to_out(b.where(b.compare("lt", at, steps // 2), front, b.map("sub", last, b.map("mul", back, step))))


@op("linspace")
def linspace(b: Builder, x: Number, end: Number, steps: int, dtype: object) -> Value:
    if forms.varies(x, end, steps):
        return linspace_tensors(b, x, end, steps, dtype)
    return _computed(b, torch.linspace(x, end, steps, dtype=b.out.dtype))


@op("logspace")
def logspace(b: Builder, x: Number, end: Number, steps: int, base: float, dtype: object) -> Value:
    return _computed(b, torch.logspace(x, end, steps, base, dtype=b.out.dtype))


@op("eye", "eye.m")
def eye(b: Builder, x: int, m: int | None = None, dtype: object = None) -> Value:
    return b.layer("Eye", n=x, m=x if m is None else m, to=sol_name(b.out.dtype))


@op("tril_indices")
def tril_indices(b: Builder, x: int, col: int, offset: int, dtype: object) -> Value:
    return _computed(b, torch.tril_indices(x, col, offset, dtype=b.out.dtype))


@op("triu_indices")
def triu_indices(b: Builder, x: int, col: int, offset: int, dtype: object) -> Value:
    return _computed(b, torch.triu_indices(x, col, offset, dtype=b.out.dtype))


def _window(name: str) -> None:
    @op(f"{name}_window", f"{name}_window.periodic")
    def window(b: Builder, x: int, periodic: bool = True, dtype: object = None) -> Value:
        return _computed(b, getattr(torch, f"{name}_window")(x, periodic, dtype=b.out.dtype))


for _name in ("hann", "hamming", "blackman", "bartlett"):
    _window(_name)


@op("kaiser_window", "kaiser_window.periodic", "kaiser_window.beta")
def kaiser_window(b: Builder, x: int, periodic: bool = True, beta: float = 12.0, dtype: object = None) -> Value:
    return _computed(b, torch.kaiser_window(x, periodic, beta, dtype=b.out.dtype))


# -- checks: tracing has done them, since all shapes are known


@op("_assert_tensor_metadata", "_assert_scalar", "_assert_async.msg", "_assert_async", "sym_constrain_range_for_size")
@op("sym_constrain_range", "_functional_assert_async.msg", "_functional_assert_scalar")
def nothing(
    b: Builder,
    x: object,
    size: object = None,
    stride: object = None,
    dtype: object = None,
    assert_msg: object = None,
    min: object = None,
    max: object = None,
    dep_token: object = None,
) -> None:
    return None


reject_family(
    "linear algebra that takes matrices apart",
    *"_linalg_eigvals linalg_eig linalg_eigvals linalg_ldl_factor linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq".split(),
)
reject_family("this special function is not supported", *SPECIAL.split())
reject_family(
    "quantised tensors", "quantize_per_tensor", "quantize_per_channel", "quantize_per_tensor_dynamic", "dequantize"
)
reject("a number that depends on data", "_local_scalar_dense", "item", "equal", "is_nonzero", "allclose")
