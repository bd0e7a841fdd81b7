"""Reading and writing by index."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from ..builder import Builder, Number, Rejected, Value, axis_of
from .table import alike, op, shape

MODES = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "add": "add", "multiply": "mul"}


def _index(b: Builder, i: Value) -> Value:
    return b.cast(i, torch.int64) if i.dtype != torch.int64 else i


@op("embedding")
def embedding(
    b: Builder,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    attrs = {"pad": max(padding_idx, -1), "freq": int(scale_grad_by_freq), "sparse": int(sparse)}
    return b.layer("Embedding", weight, _index(b, indices), **attrs)


@op("embedding_renorm_")
def embedding_renorm(b: Builder, x: Value, indices: Value, max_norm: float, norm_type: float) -> Value:
    """Scales down the selected rows whose norm exceeds max_norm."""
    norms = b.reduce("LpNorm", x, 1, True, n=float(norm_type))
    flat = b.reshape(_index(b, indices), [math.prod(indices.shape)])
    none = b.fill(x.shape[:1], 0, torch.int64)
    picked = b.layer("ScatterElements", none, flat, b.fill(flat.shape, 1, torch.int64), axis=0, mode="none")
    long = b.map("logical_and", b.compare("gt", norms, max_norm), b.cast(b.unsqueeze(picked, 1), torch.bool))
    shorter = b.map("div", b.scalar(max_norm, x.dtype), b.add(norms, 1e-7))
    return b.where(long, b.map("mul", x, shorter), x)


BAGS = ("sum", "mean", "amax")


def _bag_size(offsets: Value, bags: int, n: int) -> int:
    """The size of all bags, where the offsets are known to cut n indices into equal ones; otherwise 0."""
    known = offsets.handle.known() if bags and n % bags == 0 else None
    if known is None:
        return 0
    starts = torch.frombuffer(bytearray(known), dtype=offsets.dtype)[:bags]
    return n // bags if torch.equal(starts, torch.arange(0, n, n // bags, dtype=offsets.dtype)) else 0


def _equal_bags(b: Builder, rows: Value, kept: Value | None, size: int, mode: int) -> Value:
    """Reduces bags of one size: a reduction over a dimension. `kept`: which rows count."""
    rows = b.reshape(rows, [rows.shape[0] // size, size, rows.shape[1]])
    if kept is None:
        return b.reduce(("Sum", "Mean", "Max")[mode], rows, 1)
    kept = b.reshape(kept, [*rows.shape[:2], 1])
    y = b.reduce(
        "Max" if mode == 2 else "Sum", b.where(kept, rows, b.scalar(-math.inf if mode == 2 else 0, rows.dtype)), 1
    )
    if mode == 2:
        return b.where(b.map("isneginf", y), b.scalar(0, y.dtype), y)
    count = b.reduce("Sum", b.cast(kept, y.dtype), 1)
    return y if mode == 0 else b.map("div", y, b.map("max", count, b.scalar(1, y.dtype)))


@op("embedding_bag", "embedding_bag.padding_idx", "_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    b: Builder,
    weight: Value,
    indices: Value,
    offsets: Value,
    mode: int,
    per_sample_weights: Value | None,
    include_last_offset: bool,
    padding_idx: int | None = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> tuple[Value | None, ...]:
    """Reduces the rows of each bag. A bag ends where the next begins. Only the first of the results is meaningful."""
    bags, n = b.out[0].shape[0], indices.shape[0]
    rows = b.layer("Embedding", weight, _index(b, indices), freq=int(scale_grad_by_freq), sparse=int(sparse))
    if per_sample_weights is not None:
        rows = b.map("mul", rows, b.unsqueeze(per_sample_weights, 1))
    if padding_idx is not None and "padding_idx" in b.target:  # a negative value counts from the end; others have none
        padding_idx %= weight.shape[0]
    padding = -1 if padding_idx is None else padding_idx
    if size := _bag_size(offsets, bags, n):
        kept = b.compare("ne", _index(b, indices), padding) if padding >= 0 else None
        return (_equal_bags(b, rows, kept, size, mode), None, None, None)
    positions = b.layer("Range", n=n, start=0.0, step=1.0, to="i64")
    starts = b.slice(_index(b, offsets), 0, 0, bags)
    bag = b.sub(b.layer("Bucketize", positions, starts, right=1), 1)
    if padding >= 0:  # these go into an extra bag after the others
        bag = b.where(b.compare("eq", _index(b, indices), padding), b.scalar(bags, torch.int64), bag)
    low = -math.inf if mode == 2 else 0
    empty = b.fill([bags + 1, weight.shape[1]], low, weight.dtype)
    y = b.layer("IndexPut", empty, rows, bag, dims=[0], mode=MODES[BAGS[mode] if mode != 1 else "sum"])
    y = b.slice(y, 0, 0, bags)
    if mode == 2:
        y = b.where(b.map("isneginf", y), b.scalar(0, y.dtype), y)
    if mode == 1:
        ones, none = b.scalar(1, weight.dtype), b.fill([bags + 1], 0, weight.dtype)
        count = b.layer("IndexPut", none, ones, bag, dims=[0], mode="add")
        y = b.map("div", y, b.unsqueeze(b.map("max", b.slice(count, 0, 0, bags), b.scalar(1, y.dtype)), 1))
    return (y, None, None, None)


def _given(x: Value, indices: Sequence[Value | None]) -> tuple[list[int], list[Value]]:
    dims = [d for d, i in enumerate(indices) if i is not None]
    given = [i for i in indices if i is not None]
    if any(i.dtype in (torch.bool, torch.uint8) for i in given):
        raise Rejected("a mask as an index: the shape depends on data")
    return dims, given


@op("index.Tensor", "_unsafe_index.Tensor")
def index(b: Builder, x: Value, indices: Sequence[Value | None]) -> Value:
    dims, given = _given(x, indices)
    return b.layer("Index", x, *(_index(b, i) for i in given), dims=dims) if given else x


@op("index_put", "_unsafe_index_put")
def index_put(b: Builder, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool) -> Value:
    values = b.cast(values, x.dtype)
    mask = indices[0] if len(indices) == 1 else None
    if mask is not None and mask.dtype == torch.bool:
        return _put_masked(b, x, mask, values, accumulate)
    dims, given = _given(x, indices)
    if not given:
        return b.add(x, values) if accumulate else b.expand(values, x.shape)
    mode = "add" if accumulate else "none"
    return b.layer("IndexPut", x, values, *(_index(b, i) for i in given), dims=dims, mode=mode)


def _clamped(b: Builder, x: Value, indices: Sequence[Value | None]) -> list[Value | None]:
    """Indices clamped to the valid range."""
    return [
        i and b.map("clamp", _index(b, i), b.scalar(-n, torch.int64), b.scalar(n - 1, torch.int64))
        for i, n in zip(indices, x.shape, strict=False)
    ]


@op("_unsafe_masked_index")
def masked_index(b: Builder, x: Value, mask: Value, indices: Sequence[Value | None], fill: Number) -> Value:
    """Reads where the mask holds; elsewhere gives `fill`, whatever the index."""
    picked = index(b, x, _clamped(b, x, indices))
    return b.where(b.cast(mask, torch.bool), picked, b.scalar(fill, x.dtype))


@op("_unsafe_masked_index_put_accumulate")
def masked_index_put(b: Builder, x: Value, mask: Value, indices: Sequence[Value | None], values: Value) -> Value:
    kept = b.where(b.cast(mask, torch.bool), values, b.scalar(0, values.dtype))
    return index_put(b, x, _clamped(b, x, indices), kept, True)


def _put_masked(b: Builder, x: Value, mask: Value, values: Value, accumulate: bool) -> Value:
    """x[mask] = values, if all elements get the same values."""
    rest = x.ndim - mask.ndim
    if values.ndim == rest + 1 and values.shape[0] == 1:
        values = b.squeeze(values, 0)
    if values.ndim > rest:
        raise Rejected("a mask as an index: the number of values depends on data")
    mask = b.reshape(mask, mask.shape + (1,) * rest)
    values = b.expand(values, x.shape)
    return b.where(mask, b.map("add", x, values) if accumulate else values, x)


@op("index_select")
def index_select(b: Builder, x: Value, dim: int, index: Value) -> Value:
    if x.ndim == 0:
        return x
    index = index if index.ndim else b.reshape(index, [1])
    return b.layer("Gather", x, _index(b, index), axis=axis_of(dim, x.ndim))


@op("gather")
def gather(b: Builder, x: Value, dim: int, index: Value) -> Value:
    if 0 in index.shape:  # of any rank in that case
        return b.fill(b.out.shape, 0, x.dtype)
    if x.ndim == 0 or index.ndim == 0:
        one = b.reshape(x, [1]) if x.ndim == 0 else x
        flat = b.reshape(index, [math.prod(index.shape)])
        return b.reshape(b.layer("GatherElements", one, _index(b, flat), axis=0), b.out.shape)
    return b.layer("GatherElements", x, _index(b, index), axis=axis_of(dim, x.ndim))


@op("mode")
def mode(b: Builder, x: Value, dim: int, keepdim: bool) -> tuple[Value, Value]:
    """The most frequent value (the smallest of several), and the position of its last occurrence."""
    if x.ndim == 0:
        return x, b.fill([], 0, torch.int64)
    dim = axis_of(dim, x.ndim)
    line = b.transpose(b.cast(x, torch.uint8) if x.dtype == torch.bool else x, dim, -1)
    n = line.shape[-1]
    same = b.map("eq", b.unsqueeze(line, -1), b.unsqueeze(line, -2))
    count = b.reduce("Sum", b.cast(same, torch.int64), -1)
    often = b.map("eq", count, b.reduce("Max", count, -1, keep=True))
    most = b.scalar(_identity(line, "amin"), line.dtype)
    value = b.reduce("Min", b.where(often, line, b.expand(most, line.shape)), -1, keep=True)
    places = b.layer("Range", n=n, start=0.0, step=1.0, to="i64")
    places = b.where(b.map("eq", line, value), b.expand(places, line.shape), -1)
    at = b.map("max", b.reduce("Max", places, -1, keep=True), b.scalar(0, torch.int64))
    made = [b.transpose(t, dim, -1) for t in (b.cast(value, x.dtype), at)]
    return tuple(t if keepdim else b.squeeze(t, dim) for t in made)  # type: ignore[return-value]


@op("take")
def take(b: Builder, x: Value, index: Value) -> Value:
    return b.layer("Gather", b.reshape(x, [math.prod(x.shape)]), _index(b, index), axis=0, wrap=1)


@op("take_along_dim")
def take_along_dim(b: Builder, x: Value, indices: Value, dim: int | None) -> Value:
    if dim is None:
        flat, picks = b.reshape(x, [math.prod(x.shape)]), b.reshape(indices, [math.prod(indices.shape)])
        return b.layer("GatherElements", flat, _index(b, picks), axis=0, wrap=1)
    dim = axis_of(dim, x.ndim)
    pairs = [(max(p, q) if min(p, q) == 1 else p) for p, q in zip(x.shape, indices.shape, strict=True)]
    x = b.expand(x, [x.shape[d] if d == dim else n for d, n in enumerate(pairs)])
    indices = b.expand(indices, [indices.shape[d] if d == dim else n for d, n in enumerate(pairs)])
    return b.layer("GatherElements", x, _index(b, indices), axis=dim, wrap=1)


# -- writing


def _scatter(b: Builder, x: Value, dim: int, index: Value, src: Value, mode: str) -> Value:
    """The layer needs updates with the shape of the index; PyTorch allows larger ones."""
    shape = x.shape
    if x.ndim == 0:
        x, index, src = (b.reshape(v, [math.prod(v.shape)]) for v in (x, index, src))
    elif index.ndim == 0:
        index, src = b.reshape(index, [1]), b.reshape(src, [1]) if src.ndim == 0 else src
    for d in range(x.ndim):
        src = b.slice(src, d, 0, index.shape[d])
    y = b.layer("ScatterElements", x, _index(b, index), b.cast(src, x.dtype), axis=axis_of(dim, x.ndim), mode=mode)
    return b.reshape(y, shape)


@op("scatter.src", "scatter_add")
def scatter_src(b: Builder, x: Value, dim: int, index: Value, src: Value) -> Value:
    add = "scatter_add" in b.target
    return _scatter(b, x, dim, index, src, "add" if add else "none")


@op("scatter.value")
def scatter_value(b: Builder, x: Value, dim: int, index: Value, value: Number) -> Value:
    return _scatter(b, x, dim, index, b.fill(index.shape, value, x.dtype), "none")


@op("scatter.reduce")
def scatter_with(b: Builder, x: Value, dim: int, index: Value, src: Value, reduce: str) -> Value:
    return _scatter(b, x, dim, index, src, MODES[reduce])


@op("scatter.value_reduce")
def scatter_value_with(b: Builder, x: Value, dim: int, index: Value, value: Number, reduce: str) -> Value:
    return _scatter(b, x, dim, index, b.fill(index.shape, value, x.dtype), MODES[reduce])


def _identity(x: Value, reduce: str) -> Number:
    if x.dtype == torch.bool:
        return reduce in ("prod", "amin")
    limits = torch.finfo(x.dtype) if x.is_float else torch.iinfo(x.dtype)
    high, low = (math.inf, -math.inf) if x.is_float else (int(limits.max), int(limits.min))
    return {"sum": 0, "mean": 0, "prod": 1, "amax": low, "amin": high}[reduce]


def _reduce_into(b: Builder, x: Value, reduce: str, include_self: bool, write: Callable[..., Value]) -> Value:
    """`write(x, updates, mode)` scatters; updates None: the operator's. Without include_self, written elements start
    from the neutral element."""
    start = x
    if not include_self:
        touched = write(b.fill(x.shape, 0, torch.int64), 1, "max")
        start = b.where(b.cast(touched, torch.bool), b.scalar(_identity(x, reduce), x.dtype), x)
    if reduce != "mean":
        return write(start, None, MODES[reduce])
    total = write(start, None, "add")
    count = write(b.fill(x.shape, int(include_self), x.dtype), 1, "add")
    count = b.map("max", count, b.scalar(1, x.dtype))
    return b.map("div" if x.is_float else "floordiv", total, count)


@op("scatter_reduce.two")
def scatter_reduce(b: Builder, x: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool) -> Value:
    def write(into: Value, updates: Number | None, mode: str) -> Value:
        values = src if updates is None else b.fill(index.shape, updates, into.dtype)
        return _scatter(b, into, dim, index, values, mode)

    return _reduce_into(b, x, reduce, include_self, write)


@op("index_reduce")
def index_reduce(b: Builder, x: Value, dim: int, index: Value, source: Value, reduce: str, include_self: bool) -> Value:
    def write(into: Value, updates: Number | None, mode: str) -> Value:
        values = source if updates is None else b.fill(source.shape, updates, into.dtype)
        return _along(b, into, dim, index, values, mode)

    return _reduce_into(b, x, reduce, include_self, write)


def _along(b: Builder, x: Value, dim: int, index: Value, source: Value, mode: str) -> Value:
    """Writes rows of x along a dimension, given by a list of indices."""
    if x.ndim == 0:
        y = _along(b, b.reshape(x, [1]), 0, index, b.reshape(source, [1]), mode)
        return b.reshape(y, [])
    dim = axis_of(dim, x.ndim)
    index = index if index.ndim else b.reshape(index, [1])
    shape = list(x.shape)
    shape[dim] = index.shape[0]
    source = b.cast(b.reshape(source, shape) if source.ndim < x.ndim else source, x.dtype)
    return b.layer("IndexPut", x, source, _index(b, index), dims=[dim], mode=mode)


@shape("index_add", "index_add_", "index_copy", "index_copy_")
def added_like(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, **more: object) -> None:
    """Compares the sizes of operands."""
    for d in range(min(x.ndim, source.ndim)):
        along = index.ndim > 0 and d == axis_of(dim, x.ndim)
        alike((source.shape[d], index.shape[0] if along else x.shape[d]))


@op("index_add")
def index_add(b: Builder, x: Value, dim: int, index: Value, source: Value, alpha: Number) -> Value:
    return _along(b, x, dim, index, source if alpha == 1 else b.mul(source, alpha), "add")


@op("index_copy")
def index_copy(b: Builder, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _along(b, x, dim, index, source, "none")


@op("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(b: Builder, x: Value, dim: int, index: Value, value: Value | Number) -> Value:
    shape = list(x.shape) or [1]
    shape[axis_of(dim, x.ndim)] = math.prod(index.shape)
    return _along(b, x, dim, index, b.expand(b.as_value(value, x.dtype), shape), "none")


@op("put")
def put(b: Builder, x: Value, index: Value, source: Value, accumulate: bool) -> Value:
    flat, n = b.reshape(x, [math.prod(x.shape)]), math.prod(index.shape)
    at, values = b.reshape(_index(b, index), [n]), b.reshape(source, [n])
    return b.reshape(
        b.layer("ScatterElements", flat, at, values, axis=0, mode="add" if accumulate else "none"), x.shape
    )


@op("diagonal_scatter")
def diagonal_scatter(b: Builder, x: Value, src: Value, offset: int, dim1: int, dim2: int) -> Value:
    ones = torch.zeros(x.shape, dtype=torch.bool)
    ones.diagonal(offset, dim1, dim2).fill_(True)
    at = torch.zeros(x.shape, dtype=torch.int64)
    part = at.diagonal(offset, dim1, dim2)
    part.copy_(torch.arange(part.numel()).view(part.shape))
    flat = b.reshape(src, [math.prod(src.shape)])
    return b.where(b.const(ones), b.layer("Gather", flat, b.const(at), axis=0), x)


@op("fill_diagonal_")
def fill_diagonal(b: Builder, x: Value, fill_value: float, wrap: bool) -> Value:
    """Where all indices are equal. `wrap`: in a matrix that is higher than wide, the diagonal begins again below an empty row."""
    ones = torch.zeros(x.shape, dtype=torch.bool).fill_diagonal_(True, wrap=wrap)
    return b.where(b.const(ones), b.scalar(fill_value, x.dtype), x)


def _places(size: Sequence[int], stride: Sequence[int], offset: int | None) -> torch.Tensor:
    at = torch.full((), offset or 0, dtype=torch.int64)
    for n, s in zip(size, stride, strict=True):
        at = at.unsqueeze(-1) + s * torch.arange(n)
    return at


def _strided(
    b: Builder, x: Value, size: Sequence[int], stride: Sequence[int], offset: int | None
) -> tuple[Value, torch.Tensor]:
    """All elements of the memory behind the first argument, and the positions among them."""
    try:
        flat, addresses, start = b.memory()
    except Rejected:  # part of a complex number: if it begins at the start of its memory, what is known of it is used
        if not b.row_major:
            raise
        n = math.prod(x.shape)
        flat, addresses, start = b.reshape(x, [n]), torch.arange(n), 0
    wanted = _places(size, stride, start if offset is None else offset)
    at = torch.full((1 + max(int(t.max()) if t.numel() else 0 for t in (wanted, addresses)),), -1)
    at[addresses] = torch.arange(len(addresses))
    found = at[wanted]
    if bool((found < 0).any()):
        raise Rejected("reads memory behind the tensor that no other tensor of the network has")
    return flat, found


@op("as_strided_scatter")
def as_strided_scatter(
    b: Builder, x: Value, src: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None
) -> Value:
    if not b.row_major:
        raise Rejected("as_strided_scatter of a tensor that is not row-major")
    flat = b.reshape(x, [math.prod(x.shape)])
    at = _places(size, stride, storage_offset).reshape(-1)
    if at.unique().numel() < at.numel():
        raise Rejected("as_strided_scatter to places that overlap")
    if at.numel() and int(at.max()) >= flat.shape[0]:
        raise Rejected("as_strided_scatter of a tensor whose memory is larger")
    values = b.reshape(b.cast(src, x.dtype), [at.numel()])
    return b.reshape(b.layer("ScatterElements", flat, b.const(at), values, axis=0), x.shape)


@op("as_strided", "as_strided_copy")
def as_strided(b: Builder, x: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None) -> Value:
    """Elements, in any order, of the memory behind a tensor, which may be a view of a part of it."""
    flat, at = _strided(b, x, size, stride, storage_offset)
    flat = b.layer("stop", flat) if flat.tracked and not x.tracked else flat
    return b.layer("Gather", flat, b.const(at), axis=0)


@op("masked_scatter")
def masked_scatter(b: Builder, x: Value, mask: Value, source: Value) -> Value:
    """The k-th element that the mask selects becomes the k-th element of the source."""
    shape = b.out.shape
    mask = b.expand(mask, shape)
    flat = b.cast(b.reshape(mask, [math.prod(shape)]), torch.int64)
    if not flat.shape[0]:
        return b.expand(x, shape)
    count = b.layer("CumSum", flat, axis=0)
    rows = b.reshape(source, [math.prod(source.shape)])
    at = b.map("clamp", b.sub(count, 1), b.scalar(0, torch.int64), b.scalar(max(rows.shape[0] - 1, 0), torch.int64))
    picked = b.reshape(b.layer("Gather", rows, at, axis=0), shape)
    return b.where(mask, picked, b.expand(x, shape))


# -- segments


def _segments(b: Builder, x: Value, axis: int, ends: Value, n: int) -> Value:
    """For each index along the axis, the number of its segment; n: none."""
    positions = b.layer("Range", n=x.shape[axis], start=0.0, step=1.0, to="i64")
    places = b.expand(positions, (*ends.shape[:-1], x.shape[axis]))
    return b.map("min", b.layer("Bucketize", places, ends, right=1), b.scalar(n, torch.int64))


@op("segment_reduce")
def segment_reduce(
    b: Builder,
    x: Value,
    reduce: str,
    lengths: Value | None,
    offsets: Value | None,
    axis: int,
    initial: Number | None,
    unsafe: bool = False,
) -> Value:
    """Reduces each segment along an axis. Elements after the last segment are ignored."""
    axis = axis_of(axis, x.ndim)
    if offsets is not None:
        ends = b.slice(_index(b, offsets), -1, 1, offsets.shape[-1])
        sizes = b.map("sub", ends, b.slice(_index(b, offsets), -1, 0, offsets.shape[-1] - 1))
    elif lengths is not None:
        sizes = _index(b, lengths)
        ends = b.layer("CumSum", sizes, axis=sizes.ndim - 1)
    else:
        raise Rejected("neither lengths nor offsets")
    n, rest = sizes.shape[-1], (1,) * (x.ndim - 1 - axis)
    picks = b.expand(b.reshape(_segments(b, x, axis, ends, n), (*x.shape[: axis + 1], *rest)), x.shape)
    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    first = _identity(x, reduce) if initial is None else initial
    start = b.fill((*x.shape[:axis], n + 1, *x.shape[axis + 1 :]), first, x.dtype)
    mode = MODES["sum" if reduce == "mean" else reduce]
    y = b.slice(b.layer("ScatterElements", start, picks, x, axis=axis, mode=mode), axis, 0, n)
    if reduce != "mean":
        return y
    sizes = b.reshape(sizes, (*sizes.shape, *rest))
    empty = b.scalar(math.nan if initial is None else initial, x.dtype)
    mean = b.map("div", y, b.cast(sizes, x.dtype))
    return b.where(b.expand(b.compare("eq", sizes, 0), y.shape), b.expand(empty, y.shape), mean)


# -- searching


@op("isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor")
def isin(
    b: Builder,
    x: Value | Number,
    test_elements: Value | Number | None = None,
    test_element: Value | Number | None = None,
    assume_unique: bool = False,
    invert: bool = False,
) -> Value:
    a, t = b.promote(x, test_elements if test_element is None else test_element)  # type: ignore[arg-type]
    pairs = b.map("eq", b.unsqueeze(a, a.ndim), b.reshape(t, [math.prod(t.shape)]))
    found = b.reduce("Any", pairs, pairs.ndim - 1)
    return b.map("logical_not", found) if invert else found


@op("bucketize.Tensor", "bucketize.Scalar")
def bucketize(b: Builder, x: Value | Number, boundaries: Value, out_int32: bool, right: bool) -> Value:
    dtype = b.result_type(x, boundaries)
    at = b.layer("Bucketize", b.as_value(x, dtype), b.cast(boundaries, dtype), right=int(right))
    return b.to_out(at)


@op("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    b: Builder,
    sequence: Value,
    self: Value | Number,
    out_int32: bool,
    right: bool,
    side: str | None,
    sorter: Value | None,
) -> Value:
    if sorter is not None:
        sequence = b.layer("GatherElements", sequence, _index(b, sorter), axis=sequence.ndim - 1)
    return bucketize(b, self, sequence, out_int32, right or side == "right")
