"""Operators that only move elements: shapes, dimensions, slices, concatenation, padding."""

from __future__ import annotations

from collections.abc import Sequence

from sol import forms

from ..builder import Builder, Number, Value, axis_of
from .table import op

Values = Sequence[Value]


@op("view", "reshape", "_unsafe_view", "_reshape_alias", "view_copy", "_reshape_copy", "reshape_as", "view_as")
def view(
    b: Builder, x: Value, size: object = None, shape: object = None, stride: object = None, other: object = None
) -> Value:
    return b.reshape(x, b.out.shape)


@op("flatten.using_ints", "unflatten.int", "squeeze", "squeeze.dim", "squeeze.dims", "unsqueeze", "ravel")
@op("squeeze_copy", "squeeze_copy.dim", "squeeze_copy.dims", "unsqueeze_copy", "atleast_1d", "atleast_2d", "atleast_3d")
def regroup(
    b: Builder, x: Value, dim: object = None, start_dim: object = None, end_dim: object = None, sizes: object = None
) -> Value:
    return b.reshape(x, b.out.shape)


@op("permute", "permute_copy")
def permute(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    return b.permute(x, [axis_of(d, x.ndim) for d in dims])


@op("transpose.int", "transpose_", "swapaxes", "swapdims", "transpose_copy.int")
def transpose(
    b: Builder, x: Value, dim0: int = 0, dim1: int = 1, axis0: int | None = None, axis1: int | None = None
) -> Value:
    return b.transpose(x, dim0 if axis0 is None else axis0, dim1 if axis1 is None else axis1)


@op("t", "numpy_T", "t_copy")
def t(b: Builder, x: Value) -> Value:
    return b.permute(x, list(range(x.ndim))[::-1])


@op("mT", "mH", "adjoint", "matrix_H")
def matrix_transpose(b: Builder, x: Value) -> Value:
    return b.transpose(x)


@op("movedim.int", "movedim.intlist", "moveaxis.int", "moveaxis.intlist")
def movedim(b: Builder, x: Value, source: int | Sequence[int], destination: int | Sequence[int]) -> Value:
    sources = [source] if isinstance(source, int) else source
    destinations = [destination] if isinstance(destination, int) else destination
    to = {axis_of(d, x.ndim): axis_of(s, x.ndim) for s, d in zip(sources, destinations, strict=True)}
    rest = iter(d for d in range(x.ndim) if d not in to.values())
    return b.permute(x, [to[d] if d in to else next(rest) for d in range(x.ndim)])


@op("expand", "expand_copy", "broadcast_to", "expand_as")
def expand(b: Builder, x: Value, size: object = None, other: object = None) -> Value:
    return b.expand(x, b.out.shape)


@op("repeat", "tile")
def repeat(b: Builder, x: Value, repeats: Sequence[int] = (), dims: Sequence[int] = ()) -> Value:
    times = list(repeats or dims)
    times = [1] * (x.ndim - len(times)) + times
    return b.layer("Tile", x, n=times) if times else x


@op("repeat_interleave.self_int")
def repeat_interleave(b: Builder, x: Value, repeats: int, dim: int | None, output_size: object) -> Value:
    if dim is None:
        x, dim = b.reshape(x, [-1]), 0
    return b.layer("RepeatInterleave", x, axis=dim, n=repeats)


# -- slices


@op("select.int", "select_copy.int")
def select(b: Builder, x: Value, dim: int, index: int) -> Value:
    return b.layer("Select", x, axis=axis_of(dim, x.ndim), index=index % x.shape[dim])


@op("slice.Tensor", "slice_copy.Tensor")
def slice_(b: Builder, x: Value, dim: int, start: int | None, end: int | None, step: int) -> Value:
    size = x.shape[dim]
    return b.slice(x, dim, 0 if start is None else start, size if end is None else end, step)


@op("narrow", "narrow_copy")
def narrow(b: Builder, x: Value, dim: int, start: int, length: int) -> Value:
    start %= max(x.shape[dim], 1)
    return b.slice(x, dim, start, start + length)


def _split(b: Builder, x: Value, sizes: Sequence[int], dim: int) -> Values:
    if len(sizes) == 1:
        return (x,)
    return b.layers("Split", x, outputs=len(sizes), axis=axis_of(dim, x.ndim), sizes=list(sizes))


@op("split.Tensor", "split_with_sizes", "chunk", "split.sizes", "tensor_split.sections", "tensor_split.indices")
@op("unsafe_split.Tensor", "unsafe_split_with_sizes", "unsafe_chunk", "split_copy.Tensor", "split_with_sizes_copy")
def split(
    b: Builder,
    x: Value,
    dim: int = 0,
    split_size: object = None,
    split_sizes: object = None,
    chunks: object = None,
    sections: object = None,
    indices: object = None,
) -> Values:
    return _split(b, x, [part.shape[dim] for part in b.out], dim)


@op("hsplit.int", "hsplit.array", "vsplit.int", "vsplit.array", "dsplit.int", "dsplit.array")
def split_at(b: Builder, x: Value, sections: object = None, indices: object = None) -> Values:
    differing = [d for d in range(x.ndim) if any(part.shape[d] != x.shape[d] for part in b.out)]
    dim = differing[0] if differing else 0
    return _split(b, x, [part.shape[dim] for part in b.out], dim)


@op("unbind.int", "unbind_copy.int")
def unbind(b: Builder, x: Value, dim: int) -> Values:
    return b.layers("Unbind", x, outputs=x.shape[dim], axis=axis_of(dim, x.ndim)) if x.shape[dim] else ()


# -- joining


@op("cat", "concat", "concatenate")
def cat(b: Builder, tensors: Values, dim: int = 0, axis: int = 0) -> Value:
    parts = [b.to_out(v) for v in tensors if v.shape != (0,)]  # PyTorch skips empty 1-D tensors
    if not parts:
        return b.to_out(tensors[0])
    return b.concat(parts, axis_of(dim or axis, parts[0].ndim))


@op("stack", "_stack")
def stack(b: Builder, tensors: Values, dim: int = 0) -> Value:
    return b.layer("Stack", *(b.to_out(v) for v in tensors), axis=dim % (tensors[0].ndim + 1))


# -- padding


def _pairs(pad: Sequence[int], ndim: int) -> tuple[list[int], list[int]]:
    """Splits PyTorch's list (last dimension first) into padding before and after."""
    front, behind = [0] * ndim, [0] * ndim
    for k in range(len(pad) // 2):
        front[ndim - 1 - k], behind[ndim - 1 - k] = pad[2 * k], pad[2 * k + 1]
    return front, behind


@op("constant_pad_nd")
def constant_pad(b: Builder, x: Value, pad: Sequence[int], value: Number) -> Value:
    front, behind = _pairs(pad, x.ndim)
    return b.layer("Pad", x, p=front, q=behind, v=float(value))


@op("pad")
def pad(b: Builder, x: Value, pad: Sequence[int], mode: str, value: float | None) -> Value:
    front, behind = _pairs(pad, x.ndim)
    if mode == "constant":
        return b.layer("Pad", x, p=front, q=behind, v=float(value or 0))
    if mode == "circular":
        return circular_pad(b, x, pad)
    return b.layer("Pad", x, p=front, q=behind, mode=mode)


@op("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(b: Builder, x: Value, padding: Sequence[int]) -> Value:
    return pad(b, x, padding, "reflect", None)


@op("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(b: Builder, x: Value, padding: Sequence[int]) -> Value:
    return pad(b, x, padding, "replicate", None)


@op("_pad_circular")
def circular_pad(b: Builder, x: Value, pad: Sequence[int]) -> Value:
    """Negative padding is applied first, so what it removes does not reappear on the other side."""
    front, behind = _pairs(pad, x.ndim)
    for d in range(x.ndim):
        x = b.slice(x, d, max(-front[d], 0), x.shape[d] - max(-behind[d], 0))
    return b.layer("Pad", x, p=[max(p, 0) for p in front], q=[max(q, 0) for q in behind], mode="circular")


# -- reordering elements


@op("flip")
def flip(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    axes = [axis_of(d, x.ndim) for d in dims]
    return b.layer("Flip", x, axes=axes) if axes and x.ndim else x


@op("roll")
def roll(b: Builder, x: Value, shifts: Sequence[int] | int, dims: Sequence[int] | int) -> Value:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    return b.layer("Roll", x, shifts=shifts, axes=[axis_of(d, x.ndim) for d in dims]) if x.ndim else x


@op("tril")
def tril(b: Builder, x: Value, diagonal: int) -> Value:
    return b.layer("Tril", x, k=diagonal)


@op("triu")
def triu(b: Builder, x: Value, diagonal: int) -> Value:
    return b.layer("Triu", x, k=diagonal)


@op("diagonal", "diagonal_copy", "linalg_diagonal")
def diagonal(b: Builder, x: Value, offset: int, dim1: int, dim2: int) -> Value:
    return b.layer("Diagonal", x, k=offset, axis1=axis_of(dim1, x.ndim), axis2=axis_of(dim2, x.ndim))


@op("diag_embed")
def diag_embed(b: Builder, x: Value, offset: int, dim1: int, dim2: int) -> Value:
    ndim = x.ndim + 1
    return b.layer("DiagEmbed", x, k=offset, axis1=dim1 % ndim, axis2=dim2 % ndim)


@op("diag")
def diag(b: Builder, x: Value, diagonal: int) -> Value:
    if x.ndim == 1:
        return b.layer("DiagEmbed", x, k=diagonal, axis1=0, axis2=1)
    return b.layer("Diagonal", x, k=diagonal, axis1=0, axis2=1)


@op("trace")
def trace(b: Builder, x: Value) -> Value:
    return b.layer("Trace", b.to_out(x))


@op("pixel_shuffle")
def pixel_shuffle(b: Builder, x: Value, upscale_factor: int) -> Value:
    return b.layer("PixelShuffle", x, r=upscale_factor)


@op("pixel_unshuffle")
def pixel_unshuffle(b: Builder, x: Value, downscale_factor: int) -> Value:
    return b.layer("PixelUnshuffle", x, r=downscale_factor)


@op("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(b: Builder, x: Value, groups: int) -> Value:
    n, c, *pixels = x.shape
    split = b.reshape(x, [n, groups, c // groups, *pixels])
    return b.reshape(b.transpose(split, 1, 2), x.shape)


@op("unfold", "unfold_copy")
def unfold(b: Builder, x: Value, dimension: int, size: int, step: int) -> Value:
    if x.ndim == 0:
        return b.reshape(x, b.out.shape)
    return b.layer("Windows", x, axis=axis_of(dimension, x.ndim), n=size, s=step)


@op("im2col")
def im2col(
    b: Builder,
    x: Value,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    batched = x if x.ndim == 4 else b.unsqueeze(x, 0)
    y = b.layer("Unfold", batched, k=list(kernel_size), d=list(dilation), p=list(padding), s=list(stride))
    return b.reshape(y, b.out.shape)


@op("col2im")
def col2im(
    b: Builder,
    x: Value,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    batched = x if x.ndim == 3 else b.unsqueeze(x, 0)
    attrs = {"o": output_size, "k": kernel_size, "d": dilation, "p": padding, "s": stride}
    y = b.layer("Fold", batched, **{name: list(value) for name, value in attrs.items()})
    return b.reshape(y, b.out.shape)


# -- writing a part of a tensor


@op("slice_scatter")
def slice_scatter(b: Builder, x: Value, src: Value, dim: int, start: int | None, end: int | None, step: int) -> Value:
    first, last, step = forms.indices(start, end, step, x.shape[dim])
    return b.layer(
        "SliceScatter",
        x,
        b.cast(src, x.dtype),
        axes=[axis_of(dim, x.ndim)],
        start=[first],
        end=[forms.most(first, last)],
        step=[step],
    )


@op("select_scatter")
def select_scatter(b: Builder, x: Value, src: Value, dim: int, index: int) -> Value:
    index %= x.shape[dim]
    part = b.unsqueeze(b.cast(src, x.dtype), axis_of(dim, x.ndim))
    return b.layer("SliceScatter", x, part, axes=[axis_of(dim, x.ndim)], start=[index], end=[index + 1], step=[1])
