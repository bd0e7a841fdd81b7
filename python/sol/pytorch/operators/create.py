"""Tensors made of nothing; checks that translation has done already."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..builder import Builder, Number, Refused, Value, sol_name
from .table import op, refuse

Size = Sequence[int]


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
        raise Refused(f"a computed constant of {data.numel()} elements")
    return b.const(data)


@op("arange", "arange.start", "arange.start_step")
def arange(b: Builder, x: Number, end: Number | None = None, step: Number = 1, dtype: object = None) -> Value:
    start = 0 if end is None else x
    out = b.out.dtype
    if out.is_floating_point or not all(isinstance(v, int) for v in (start, step)):
        first, last = (0, x) if end is None else (x, end)
        return _computed(b, torch.arange(first, last, step, dtype=out))
    return b.layer("Range", n=b.out.shape[0], start=float(start), step=float(step), to=sol_name(out))


@op("linspace")
def linspace(b: Builder, x: Number, end: Number, steps: int, dtype: object) -> Value:
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


@op("hann_window", "hann_window.periodic")
def hann_window(b: Builder, x: int, periodic: bool = True, dtype: object = None) -> Value:
    return _computed(b, torch.hann_window(x, periodic, dtype=b.out.dtype))


# -- checks: the shapes are known, so tracing has made them


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


refuse(
    "the shape of the result depends on data",
    *"nonzero nonzero_numpy masked_select unique_dim _unique2 unique_consecutive bincount repeat_interleave.Tensor".split(),
    *"repeat_interleave.self_Tensor argwhere combinations".split(),
)
refuse("a number that depends on data", "_local_scalar_dense", "item", "equal", "is_nonzero", "allclose")
