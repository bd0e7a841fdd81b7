"""Compares every row of layers.def with PyTorch in float64, with the interpreter: one case per setting."""

import itertools
import math
import subprocess
import zlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graph_tool import Rejected, evaluate, run_layer, tool

CASES: list[tuple] = []


def case(kind, inputs, attrs, reference, tolerance=1e-9):
    """inputs: arrays, shapes (for normal random numbers) or None; reference: a function of tensors that returns one or
    several."""
    CASES.append((kind, inputs, attrs, reference, tolerance))


def ints(high, *shape, low=0, dtype=np.int64):
    seed = zlib.crc32(repr((high, shape, low)).encode())
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def positive(*shape):
    return np.random.default_rng(zlib.crc32(repr(shape).encode())).uniform(0.5, 2, shape)


def distinct(*shape):
    n = int(np.prod(shape))
    return np.random.default_rng(n).permutation(n).reshape(shape).astype(np.float64) - n / 2


def fill(shape, i, kind):
    seed = zlib.crc32(repr((kind, i, tuple(shape))).encode())
    return np.random.default_rng(seed).standard_normal(shape)


# -- contractions
CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CONV_T = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
for pixels, kernel, s, p, d, g in [
    ((9,), (3,), [1], [0], [1], 1),
    ((9,), (3,), [2], [1], [2], 2),
    ((7, 8), (3, 2), [1, 1], [1, 0], [1, 1], 1),
    ((7, 8), (3, 3), [2, 1], [1, 2], [1, 2], 2),
    ((7, 7), (1, 1), [1, 1], [0, 0], [1, 1], 1),
    ((7, 7), (3, 3), [1, 1], [1, 1], [1, 1], 4),
    ((5, 4, 6), (2, 3, 3), [1, 2, 1], [1, 0, 1], [1, 1, 2], 1),
    ((1, 1), (1, 1), [1, 1], [0, 0], [1, 1], 1),
]:
    rank = len(pixels)
    for bias in (True, False):
        case(
            "Conv",
            [(2, 4, *pixels), (8, 4 // g, *kernel), (8,) if bias else None],
            dict(s=s, p=p, q=p, d=d, g=g),
            lambda x, w, b, s=s, p=p, d=d, g=g, r=rank: CONV[r](x, w, b, s, p, d, g),
        )
    for o in {0, max(s) - 1}:
        if o >= min(s) and o >= min(d):
            continue
        case(
            "ConvT",
            [(2, 4, *pixels), (4, 6 // g if g < 4 else 2, *kernel), ((6 if g < 4 else 8),)],
            dict(s=s, p=p, q=p, d=d, g=g, o=[o if o < max(a, b) else 0 for a, b in zip(s, d, strict=True)]),
            lambda x, w, b, s=s, p=p, d=d, g=g, o=o, r=rank: CONV_T[r](
                x, w, b, s, p, [o if o < max(e, f) else 0 for e, f in zip(s, d, strict=True)], g, d
            ),
        )
case("Conv", [(2, 3, 8, 8), (5, 3, 3, 3)], dict(s=2, p=1, q=1), lambda x, w: F.conv2d(x, w, None, 2, 1))
case("Conv", [(1, 3, 8, 8), (5, 3, 3, 3)], dict(p=[0, 2], q=[1, 1]), lambda x, w: F.conv2d(F.pad(x, (2, 1, 0, 1)), w))
for kernel, s, d, p in [
    (2, 2, 1, 0),
    (3, 2, 1, 1),
    (3, 3, 2, 1),
    (4, 6, 1, 0),
    (2, 3, 3, 1),
    (16, 16, 1, 0),
    (7, 5, 2, 3),
]:
    case(
        "ConvT",
        [(2, 3, 3, 4), (3, 2, kernel, kernel), (2,)],
        dict(s=s, d=d, p=p, q=p),
        lambda x, w, b, s=s, d=d, p=p: F.conv_transpose2d(x, w, b, s, p, 0, 1, d),
    )
case("Linear", [(3, 5), (4, 5), (4,)], {}, F.linear)
case("Linear", [(2, 3, 5), (4, 5)], {}, F.linear)
case("Linear", [(5,), (4, 5), (4,)], {}, F.linear)
case("Bilinear", [(3, 5), (3, 4), (2, 5, 4), (2,)], {}, F.bilinear)
for a, b in [
    ((3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (3, 4, 5)),
    ((4,), (4,)),
    ((4,), (3, 4, 5)),
    ((2, 3, 4), (4,)),
    ((6, 2, 3, 4), (4, 5)),
    ((1, 3, 4), (5, 4, 1)),
]:
    case("MatMul", [a, b], {}, torch.matmul)
for eq, *shapes in [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("bij,bjk->bki", (2, 3, 4), (2, 4, 5)),
    ("ii->i", (4, 4)),
    ("ii", (4, 4)),
    ("ij->ji", (2, 3)),
    ("ba", (2, 3)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
    ("i,j,k->ijk", (2,), (3,), (4,)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("ijk,jil->kl", (2, 3, 4), (3, 2, 5)),
    ("ij,j->i", (2, 3), (1,)),
    ("...", (2, 3)),
    ("a...b->b...", (2, 3, 4)),
]:
    case("Einsum", shapes, dict(eq=eq), lambda *t, eq=eq: torch.einsum(eq, *t))
for n in (0.0, 1.0, 2.0, 3.5, float("inf")):
    for shapes in ([(2, 3, 4), (2, 5, 4)], [(2, 33, 9), (35, 9)]):  # lanes along the rows of z, if x has many
        case("CDist", shapes, dict(n=n), lambda x, z, n=n: torch.cdist(x, z, n, "donot_use_mm_for_euclid_dist"))

# -- pooling
MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
for pixels, k, s, p, d, c in [
    ((9,), [3], [2], [1], [1], 0),
    ((7, 9), [2, 3], [2, 2], [0, 1], [1, 1], 0),
    ((7, 9), [2, 3], [2, 2], [0, 1], [1, 1], 1),
    ((8, 8), [3, 3], [2, 2], [1, 1], [2, 1], 1),
    ((5, 6, 7), [2, 2, 3], [1, 2, 2], [1, 0, 1], [1, 1, 1], 1),
    ((4, 4), [1, 1], [3, 3], [0, 0], [1, 1], 1),
    ((6, 6), [2, 2], [3, 3], [1, 1], [1, 1], 1),
]:
    rank, attrs = len(pixels), dict(k=k, s=s, p=p, q=p, d=d, c=c)
    shape = (2, 3, *pixels)
    pool = lambda x, r=rank, a=attrs, **o: MAX[r](x, a["k"], a["s"], a["p"], a["d"], bool(a["c"]), **o)  # noqa: E731
    case("MaxPool", [shape], attrs, pool)
    case("MaxPoolRelu", [shape], attrs, lambda x, pool=pool: pool(x.relu()))
    case("MaxPoolAt", [shape], attrs, lambda x, pool=pool: pool(x, return_indices=True))
    if max(d) == 1:
        for pads in (0, 1):
            case(
                "AvgPool",
                [shape],
                dict(k=k, s=s, p=p, q=p, c=c, pads=pads),
                lambda x, r=rank, k=k, s=s, p=p, c=c, pads=pads: AVG[r](x, k, s, p, bool(c), bool(pads)),
            )
case(
    "MaxPool",
    [ints(100, 1, 2, 5, 5, low=-100, dtype=np.int32)],
    dict(k=3, p=1, q=1),
    lambda x: F.max_pool2d(x.double(), 3, 1, 1).int(),
)
case("AvgPool", [(1, 2, 5, 5)], dict(k=2, s=2, div=3), lambda x: F.avg_pool2d(x, 2, 2, divisor_override=3))
case("AvgPool", [(1, 2, 8, 8)], dict(k=4, s=4), lambda x: F.avg_pool2d(x, 4))
# windows larger than the image; rounding sizes up leaves one
case("AvgPool", [(1, 2, 7, 5)], dict(k=640, s=640, c=1), lambda x: F.avg_pool2d(x, 640, ceil_mode=True))
case("MaxPool", [(1, 2, 7, 5)], dict(k=9, s=9, c=1), lambda x: F.max_pool2d(x, 9, ceil_mode=True))
case("LpPool", [(2, 3, 6, 7)], dict(k=2, s=2), lambda x: F.lp_pool2d(x.abs(), 2, 2, 2))
case("LpPool", [(2, 3, 6, 7)], dict(k=[2, 3], s=1, n=3.0, c=1), lambda x: F.lp_pool2d(x.abs(), 3, (2, 3), 1, True))
for pixels, o in [
    ((6, 8), [3, 2]),
    ((7, 5), [3, 4]),
    ((7, 5), [1, 1]),
    ((3, 3), [5, 7]),
    ((10,), [4]),
    ((5, 4, 6), [2, 4, 5]),
]:
    rank = len(o)
    avg, biggest = getattr(F, f"adaptive_avg_pool{rank}d"), getattr(F, f"adaptive_max_pool{rank}d")
    case("AdaptiveAvgPool", [(2, 3, *pixels)], dict(o=o), lambda x, f=avg, o=o: f(x, o))
    case("AdaptiveMaxPool", [(2, 3, *pixels)], dict(o=o), lambda x, f=biggest, o=o: f(x, o))
    case("AdaptiveMaxPoolAt", [(2, 3, *pixels)], dict(o=o), lambda x, f=biggest, o=o: f(x, o, return_indices=True))


# -- reductions
def over(f, axes, keep):
    def g(x):
        dims = [a % x.dim() for a in axes] or list(range(x.dim()))
        return f(x, tuple(dims), bool(keep))

    return g


def prod(x, dims, keep):
    for d in sorted(dims, reverse=True):
        x = x.prod(d, keepdim=True)
    return x if keep else x.reshape([n for d, n in enumerate(x.shape) if d not in dims])


def norm(p):
    return lambda x, d, k: torch.linalg.vector_norm(x, p, d, k)


REDUCE = {
    "Sum": lambda x, d, k: x.sum(d, k),
    "Mean": lambda x, d, k: x.mean(d, k),
    "Prod": prod,
    "Max": lambda x, d, k: x.amax(d, k),
    "Min": lambda x, d, k: x.amin(d, k),
    "SumSquare": lambda x, d, k: (x * x).sum(d, k),
    "L1": norm(1),
    "L2": norm(2),
    "LogSumExp": lambda x, d, k: x.logsumexp(d, k),
}
for kind, f in REDUCE.items():
    for shape, axes, keep in [
        ((3, 4), [], 0),
        ((3, 4, 5), [1], 0),
        ((3, 4, 5), [0, -1], 1),
        ((2, 1, 3), [1], 0),
        ((), [], 0),
    ]:
        case(kind, [shape], dict(axes=axes, keep=keep), over(f, axes, keep))
case("Sum", [(0, 3)], dict(axes=[0]), lambda x: x.sum(0))
case("Sum", [ints(9, 3, 4)], dict(axes=[1]), lambda x: x.sum(1))
case("Max", [ints(9, 3, 4, low=-9, dtype=np.int32)], dict(axes=[1]), lambda x: x.amax(1))
case("Max", [np.array([[1.0, np.nan], [2.0, 3.0]])], dict(axes=[1]), lambda x: x.amax(1))
case(
    "LogSumExp",
    [np.array([[-np.inf, -np.inf], [np.inf, 1.0], [1000.0, 999.0]])],
    dict(axes=[1]),
    lambda x: x.logsumexp(1),
)
case("LogSum", [positive(3, 4)], dict(axes=[1]), lambda x: x.sum(1).log())
for kind, f in {"Any": torch.any, "All": torch.all}.items():
    case(kind, [ints(2, 3, 4).astype(bool)], dict(axes=[1]), lambda x, f=f: f(x, 1))
    case(kind, [ints(2, 3, 4).astype(np.float64)], {}, lambda x, f=f: f(x))
for n in (0.0, 1.0, 3.0, float("inf"), float("-inf"), 0.5):
    case("LpNorm", [(3, 4, 5)], dict(n=n, axes=[1, 2]), over(norm(n), [1, 2], 0))
for correction in (0, 1):
    for kind, f in {"Var": torch.var, "Std": torch.std}.items():
        case(
            kind,
            [(3, 4, 5)],
            dict(axes=[0, 2], correction=correction, keep=1),
            lambda x, f=f, c=correction: f(x, (0, 2), correction=c, keepdim=True),
        )
for axis, keep in ((1, 0), (-1, 1), (0, 1)):
    case("ArgMax", [distinct(3, 4, 5)], dict(axis=axis, keep=keep), lambda x, a=axis, k=keep: x.argmax(a, bool(k)))
    case("ArgMin", [distinct(3, 4, 5)], dict(axis=axis, keep=keep), lambda x, a=axis, k=keep: x.argmin(a, bool(k)))
    case("MaxAt", [distinct(3, 4, 5)], dict(axis=axis, keep=keep), lambda x, a=axis, k=keep: x.max(a, bool(k)))
    case("MinAt", [distinct(3, 4, 5)], dict(axis=axis, keep=keep), lambda x, a=axis, k=keep: x.min(a, bool(k)))
case("ArgMax", [np.array([[1.0, 3, 3, 0]])], dict(axis=1), lambda x: torch.tensor([1]))
case("ArgMax", [np.array([[1.0, 3, 3, 0]])], dict(axis=1, last=1), lambda x: torch.tensor([2]))
case("ArgMin", [np.array([[1.0, 0, 3, 0]])], dict(axis=1, last=1, keep=1), lambda x: torch.tensor([[3]]))
case("ArgMax", [()], dict(axis=0), lambda x: x.argmax(0))
for axis in (0, 1, -1):
    case("CumSum", [(3, 4, 5)], dict(axis=axis), lambda x, a=axis: x.cumsum(a))
    case("CumSum", [(3, 4, 5)], dict(axis=axis, reverse=1), lambda x, a=axis: x.flip(a).cumsum(a).flip(a))
    case("CumSum", [(3, 4, 5)], dict(axis=axis, exclusive=1), lambda x, a=axis: x.cumsum(a) - x)
    case(
        "CumSum",
        [(3, 4, 5)],
        dict(axis=axis, exclusive=1, reverse=1),
        lambda x, a=axis: x.flip(a).cumsum(a).flip(a) - x,
    )
    case("CumProd", [(3, 4, 5)], dict(axis=axis), lambda x, a=axis: x.cumprod(a))
    case("CumMax", [(3, 4, 5)], dict(axis=axis), lambda x, a=axis: x.cummax(a)[0])
    case("CumMin", [(3, 4, 5)], dict(axis=axis), lambda x, a=axis: x.cummin(a)[0])
    case("LogCumSumExp", [(3, 4, 5)], dict(axis=axis), lambda x, a=axis: x.logcumsumexp(a))
case("CumSum", [()], dict(axis=0), lambda x: x)
case("CumSum", [ints(9, 3, 1)], dict(axis=1), lambda x: x)

# -- normalization
for axis in (0, 1, -1):
    case("Softmax", [(3, 4, 5)], dict(axis=axis), lambda x, a=axis: x.softmax(a))
    case("LogSoftmax", [(3, 4, 5)], dict(axis=axis), lambda x, a=axis: x.log_softmax(a))
    case("SoftmaxGrad", [(3, 4, 5)] * 2, dict(axis=axis), lambda y, d, a=axis: y * (d - (y * d).sum(a, keepdim=True)))
    case(
        "SoftmaxGrad",
        [(3, 4, 5)] * 2,
        dict(axis=axis, log=1),
        lambda y, d, a=axis: d - y.exp() * d.sum(a, keepdim=True),
    )
case("Softmax", [()], dict(axis=0), lambda x: x.softmax(0))
case("Softmax", [np.array([[1000.0, 999.0, -np.inf]])], dict(axis=1), lambda x: x.softmax(1))
case("LayerNorm", [(2, 3, 4), (4,), (4,)], dict(n=1), lambda x, w, b: F.layer_norm(x, (4,), w, b))
case("LayerNorm", [(2, 3, 4), (3, 4), (3, 4)], dict(n=2, e=1e-3), lambda x, w, b: F.layer_norm(x, (3, 4), w, b, 1e-3))
case("LayerNorm", [(2, 3, 4)], dict(n=2), lambda x: F.layer_norm(x, (3, 4)))
case("LayerNorm", [(2, 3, 4), None, (4,)], {}, lambda x, w, b: F.layer_norm(x, (4,), w, b))
case("RMSNorm", [(2, 3, 4), (4,)], dict(e=1e-6), lambda x, w: F.rms_norm(x, (4,), w, 1e-6))
case("RMSNorm", [(2, 3, 4)], dict(n=2, e=1e-6), lambda x: F.rms_norm(x, (3, 4), None, 1e-6))
STATS = [fill((3,), 7, "mean"), positive(3)]
case("BatchNorm", [(2, 3, 4, 5), (3,), (3,), *STATS], {}, lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b))
case(
    "BatchNorm", [(2, 3), None, None, *STATS], dict(e=1e-3), lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, eps=1e-3)
)


def batch_stats(x, w, b):
    dims = [d for d in range(x.dim()) if d != 1]
    return F.batch_norm(x, None, None, w, b, True), x.mean(dims), x.var(dims, correction=0)


case("BatchNormTrain", [(4, 3, 5), (3,), (3,)], {}, batch_stats)
case("InstanceNorm", [(2, 3, 4, 5), (3,), (3,)], {}, lambda x, w, b: F.instance_norm(x, None, None, w, b))
case("GroupNorm", [(2, 6, 4, 5), (6,), (6,)], dict(g=3), lambda x, w, b: F.group_norm(x, 3, w, b))
case("GroupNorm", [(2, 6, 7)], dict(g=2, e=1e-3), lambda x: F.group_norm(x, 2, eps=1e-3))
for n in (3, 5):
    case(
        "LRN",
        [(2, 7, 3, 3)],
        dict(n=n, alpha=0.1, beta=0.6, bias=1.5),
        lambda x, n=n: F.local_response_norm(x, n, 0.1, 0.6, 1.5),
    )

# -- reading by index
case("Embedding", [(7, 4), ints(7, 2, 3)], {}, lambda w, i: F.embedding(i, w))
case("Embedding", [(7, 4), ints(7, 2, 3, dtype=np.int32)], {}, lambda w, i: F.embedding(i.long(), w))
for axis in (0, 1, -1):
    case("Gather", [(4, 5, 6), ints(4, 3)], dict(axis=axis), lambda x, i, a=axis: x.index_select(a, i))
    case(
        "Gather",
        [(4, 5, 6), ints(4, 2, 3, low=-4)],
        dict(axis=axis, wrap=1),
        lambda x, i, a=axis: torch.from_numpy(np.take(x.numpy(), i.numpy(), a)),
    )
    case(
        "GatherElements",
        [(4, 5, 6), ints(4, 3, 5, 6) if axis == 0 else ints(4, 2, 3, 4)],
        dict(axis=axis),
        lambda x, i, a=axis: x.gather(a, i),
    )
case("Graft", [(3, 4), (3, 4), (2,), (2,)], {}, lambda y, m, x, d: y)
case("Gather", [(4, 5), np.array(2)], dict(axis=1), lambda x, i: x[:, 2])
case("GatherElements", [(4, 5), ints(4, 4, 2, low=-4)], dict(axis=0, wrap=1), lambda x, i: x.gather(0, i % 4))
case("GatherElements", [(3, 50), ints(50, 3, 77, low=-50)], dict(axis=1, wrap=1), lambda x, i: x.gather(1, i % 50))
case("GatherElements", [(3, 50), ints(3, 7, 45, low=-3)], dict(axis=0, wrap=1), lambda x, i: x.gather(0, i % 3))
case("GatherND", [(4, 5, 6), ints(4, 3, 2)], {}, lambda x, i: x[i[:, 0], i[:, 1]])
case("GatherND", [(4, 5, 6), ints(4, 2, 3, 3, low=-4)], dict(wrap=1), lambda x, i: x[i[..., 0], i[..., 1], i[..., 2]])
case(
    "GatherND",
    [(2, 5, 6), ints(5, 2, 3, 1)],
    dict(batch=1),
    lambda x, i: torch.stack([x[b][i[b, :, 0]] for b in range(2)]),
)
case("GatherND", [(4, 5, 6), ints(4, 1)], {}, lambda x, i: x[i[0]])
case("Index", [(4, 5, 6), ints(5, 3, low=-5)], dict(dims=[1]), lambda x, i: x[:, i])
case("Index", [(4, 5, 6), ints(4, 2, 1), ints(5, 3)], dict(dims=[0, 1]), lambda x, i, j: x[i, j])
case("Index", [(4, 5, 6), ints(4, 2, 1), ints(6, 3)], dict(dims=[0, 2]), lambda x, i, j: x[i, :, j])
case("Index", [(4, 5, 6, 7), ints(5, 2, 1), ints(6, 3)], dict(dims=[1, 2], wrap=0), lambda x, i, j: x[:, i, j])
case(
    "Index", [(4, 5, 6), ints(4, 2, 3), ints(5, 1, 3), ints(6, 3)], dict(dims=[0, 1, 2]), lambda x, i, j, k: x[i, j, k]
)
case("OneHot", [ints(5, 2, 3)], dict(n=5), lambda i: F.one_hot(i, 5))
case("OneHot", [ints(5, 4)], dict(n=6, to="f32"), lambda i: F.one_hot(i, 6).float())
SORTED = np.sort(fill((7,), 0, "sorted"))
case("Bucketize", [(3, 4), SORTED], {}, lambda x, s: torch.bucketize(x, s))
case(
    "Bucketize",
    [ints(9, 5), ints(9, 1) * 0 + np.arange(0, 9, 2)],
    dict(right=1),
    lambda x, s: torch.bucketize(x, s, right=True),
)
case("Bucketize", [(2, 4), np.sort(fill((2, 5), 1, "s"), 1)], {}, lambda x, s: torch.searchsorted(s, x))

# -- views
for shape, perm in [
    ((2, 3, 4), [2, 0, 1]),
    ((2, 3, 4, 5), [0, 3, 1, 2]),
    ((2, 1, 3), [1, 2, 0]),
    ((), []),
    ((2, 3), [-1, 0]),
]:
    case("Permute", [shape], dict(perm=perm), lambda x, p=perm: x.permute(p))
for shape, to in [
    ((2, 3, 4), [6, 4]),
    ((2, 3, 4), [2, 12]),
    ((2, 3, 4), [24]),
    ((24,), [2, 3, 4]),
    ((4, 6), [2, 12]),
    ((4, 6), [3, 8]),
    ((2, 3, 4), [4, 3, 2]),
    ((2, 6, 5), [2, 2, 3, 5]),
    ((2, 1, 3, 1), [1, 2, 3]),
    ((1,), []),
    ((), [1, 1]),
    ((2, 3, 4), [2, -1]),
    ((0, 3), [3, 0]),
    ((6, 35), [10, 21]),
    ((1, 1), [1]),
    ((2, 3), [1, 2, 1, 3, 1]),
    ((5, 6, 7, 8), [5, 42, 4, 2]),
    ((4, 9, 5), [2, 2, 3, 3, 5]),
]:
    case("Reshape", [shape], dict(shape=to), lambda x, to=to: x.reshape(to))
for shape, to in [
    ((3, 1), [2, 3, 4]),
    ((3, 1), [-1, 4]),
    ((), [2, 2]),
    ((1,), [1]),
    ((2, 3), [2, 3]),
    ((1, 3), [0, 3]),
]:
    case("Expand", [shape], dict(shape=to), lambda x, to=to: x.expand(to))
for axes, start, end, step in [
    ([0], [1], [3], [1]),
    ([1], [-3], [2**63 - 1], [1]),
    ([0, 2], [1, 0], [4, 6], [2, 3]),
    ([2], [-1], [-(2**63)], [-1]),
    ([1, 2], [4, 5], [0, 0], [-2, -1]),
    ([0], [2], [2], [1]),
    ([0], [-100], [100], [1]),
    ([1], [3], [1], [1]),
    ([2], [5], [-7], [-2]),
]:

    def sliced(x, axes=axes, start=start, end=end, step=step):
        index = [slice(None)] * x.dim()
        for a, s, e, t in zip(axes, start, end, step, strict=True):
            index[a] = slice(s, e if e != -(2**63) else None, t)
        return torch.from_numpy(x.numpy()[tuple(index)].copy())

    case("Slice", [(4, 5, 6)], dict(axes=axes, start=start, end=end, step=step), sliced)

    def scattered(x, u, axes=axes, start=start, end=end, step=step):
        y, index = x.numpy().copy(), [slice(None)] * x.dim()
        for a, s, e, t in zip(axes, start, end, step, strict=True):
            index[a] = slice(s, e if e != -(2**63) else None, t)
        y[tuple(index)] = u.numpy()
        return torch.from_numpy(y)

    part = tuple(sliced(torch.zeros(4, 5, 6)).shape)
    case("SliceScatter", [(4, 5, 6), part], dict(axes=axes, start=start, end=end, step=step), scattered)
case("Select", [(3, 4, 5)], dict(axis=1, index=2), lambda x: x[:, 2])
case("Select", [(3, 4, 5)], dict(axis=-1, index=-1), lambda x: x[..., -1])
for axis in (0, 1, 2, -1):
    case(
        "Concat",
        [tuple(n + k * (d == axis % 3) for d, n in enumerate((2, 3, 4))) for k in (0, 1, 0, 2)],
        dict(axis=axis),
        lambda *x, a=axis: torch.cat(x, a),
    )
    case("Stack", [(2, 3), (2, 3), (2, 3)], dict(axis=axis), lambda *x, a=axis: torch.stack(x, a))
case("Concat", [(2, 3)], dict(axis=1), lambda x: x)
case("Concat", [(2, 3), (0, 3), (1, 3)], dict(axis=0), lambda *x: torch.cat(x))
case("Concat", [(1, 1 + i % 3) for i in range(60)], dict(axis=1), lambda *x: torch.cat(x, 1))
case("Concat", [(1, 1 + i) for i in range(38)], dict(axis=1), lambda *x: torch.cat(x, 1))
case("Stack", [(), ()], dict(axis=0), lambda *x: torch.stack(x))
case("Split", [(3, 7, 2)], dict(axis=1, sizes=[2, 4, 1]), lambda x: x.split([2, 4, 1], 1))
case("Split", [(6, 2)], dict(axis=0, sizes=[3, 3]), lambda x: x.split(3))
case("Split", [(6, 2)], dict(axis=0, sizes=[0, 6]), lambda x: x.split([0, 6]))
case("Unbind", [(3, 4)], dict(axis=1), lambda x: x.unbind(1))
case("Unbind", [(2, 1, 4)], dict(axis=-2), lambda x: x.unbind(1))
for mode in ("constant", "reflect", "replicate", "circular"):
    case(
        "Pad",
        [(2, 3, 5, 6)],
        dict(p=[0, 0, 1, 2], q=[0, 0, 3, 1], mode=mode),
        lambda x, m=mode: F.pad(x, (2, 1, 1, 3), m),
    )
case("Pad", [(3, 4)], dict(p=[1, -1], q=[0, 2], v=2.5), lambda x: F.pad(x, (-1, 2, 1, 0), value=2.5))
case("Pad", [(3, 4)], dict(p=0, q=0), lambda x: x)
case("Pad", [ints(9, 3)], dict(p=[1], q=[1], v=7.0), lambda x: F.pad(x, (1, 1), value=7))
case("Pad", [(3, 4)], dict(p=1, q=1, v=float("-inf")), lambda x: F.pad(x, (1, 1, 1, 1), value=float("-inf")))
case(
    "Pad",
    [(1, 3)],
    dict(p=[0, 7], q=[0, 6], mode="reflect"),
    lambda x: torch.from_numpy(np.pad(x.numpy(), ((0, 0), (7, 6)), "reflect")),
)
case("Pad", [(2, 1)], dict(p=[0, 2], q=[0, 1], mode="reflect"), lambda x: x.expand(2, 4))
case("Exactly", [(3, 4)], dict(shape=[3, 4]), lambda x: x)
case("Flip", [(3, 4, 5)], dict(axes=[0, -1]), lambda x: x.flip(0, 2))
case("Flip", [(3, 1)], dict(axes=[1]), lambda x: x)
case("Roll", [(3, 4, 5)], dict(shifts=[1, -2], axes=[0, 2]), lambda x: x.roll((1, -2), (0, 2)))
case("Roll", [(3, 4)], dict(shifts=[5]), lambda x: x.roll(5))
case("Roll", [(3, 4)], dict(shifts=[7, 1], axes=[1, 1]), lambda x: x.roll(8, 1))
case("Tile", [(2, 3)], dict(n=[2, 1, 3]), lambda x: x.tile(2, 1, 3))
case("Tile", [(2, 1)], dict(n=[2]), lambda x: x.tile(2))
case("RepeatInterleave", [(2, 3)], dict(axis=1, n=2), lambda x: x.repeat_interleave(2, 1))
for k in (0, 1, -2):
    case("Tril", [(2, 4, 5)], dict(k=k), lambda x, k=k: x.tril(k))
    case("Triu", [(4, 3)], dict(k=k), lambda x, k=k: x.triu(k))
    case("Diagonal", [(4, 5)], dict(k=k), lambda x, k=k: x.diagonal(k))
    case("Diagonal", [(4, 3, 5)], dict(k=k, axis1=-1, axis2=0), lambda x, k=k: x.diagonal(k, -1, 0))
    case("DiagEmbed", [(2, 3)], dict(k=k), lambda x, k=k: x.diag_embed(k))
    case("DiagEmbed", [(2, 3)], dict(k=k, axis1=2, axis2=0), lambda x, k=k: x.diag_embed(k, 2, 0))
case("Triu", [ints(9, 3, 3)], {}, lambda x: x.triu())
case("Triu", [np.array([[1.0, np.inf], [np.nan, 2]])], {}, lambda x: x.triu())
case("Trace", [(4, 3)], {}, torch.trace)
case("PixelShuffle", [(2, 8, 3, 5)], dict(r=2), lambda x: F.pixel_shuffle(x, 2))
case("PixelUnshuffle", [(2, 2, 4, 6)], dict(r=2), lambda x: F.pixel_unshuffle(x, 2))
case("DepthToSpace", [(2, 12, 3, 5)], dict(r=2, mode="CRD"), lambda x: F.pixel_shuffle(x, 2))
case(
    "DepthToSpace",
    [(2, 12, 3, 5)],
    dict(r=2),
    lambda x: x.reshape(2, 2, 2, 3, 3, 5).permute(0, 3, 4, 1, 5, 2).reshape(2, 3, 6, 10),
)
case(
    "SpaceToDepth",
    [(2, 3, 6, 10)],
    dict(r=2),
    lambda x: x.reshape(2, 3, 3, 2, 5, 2).permute(0, 3, 5, 1, 2, 4).reshape(2, 12, 3, 5),
)
for k, s, p, d in [
    ([3, 2], [1, 1], [0, 0], [1, 1]),
    ([2, 2], [2, 2], [0, 1], [1, 1]),
    ([2, 3], [1, 2], [1, 2], [2, 1]),
]:
    case("Unfold", [(2, 3, 6, 8)], dict(k=k, s=s, p=p, d=d), lambda x, k=k, s=s, p=p, d=d: F.unfold(x, k, d, p, s))
    columns = tuple(F.unfold(torch.zeros(2, 3, 6, 8), k, d, p, s).shape)
    case(
        "Fold",
        [columns],
        dict(o=[6, 8], k=k, s=s, p=p, d=d),
        lambda x, k=k, s=s, p=p, d=d: F.fold(x, (6, 8), k, d, p, s),
    )
case("Windows", [(3, 8)], dict(axis=1, n=3, s=2), lambda x: x.unfold(1, 3, 2))
case("Windows", [(8, 3)], dict(axis=0, n=1, s=3), lambda x: x.unfold(0, 1, 3))


# -- writing by index
def scatter(mode, x, i, u, axis):
    name = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[mode]
    return x.scatter_reduce(axis, i, u, name)


def put_from_the_end(x, i, u):
    return x.scatter_add(0, i % 3, u)


def put_pairs(x, i, u):
    return x.index_put((i[:, 0], i[:, 1]), u, True)


def put_last(x, u, i):
    rows = u.expand(*x.shape[:2], *u.shape).permute(2, 3, 0, 1)
    return x.movedim(2, 0).index_put((i,), rows, True).movedim(0, 2)


def put_apart(x, u, i, j):
    y = x.numpy().copy()
    y[j.numpy(), :, i.numpy()] = u.numpy()
    return torch.from_numpy(y)


for axis in (0, 1):
    unique = np.stack([np.random.default_rng(k).permutation(4)[:3] for k in range(5)], 1)
    i = unique if axis == 0 else ints(5, 4, 1)
    case("ScatterElements", [(4, 5), i, i.shape], dict(axis=axis), lambda x, i, u, a=axis: x.scatter(a, i, u))
    for mode in ("add", "mul", "max", "min"):
        j = ints(4, 3, 5) if axis == 0 else ints(5, 4, 7)
        case(
            "ScatterElements",
            [(4, 5), j, j.shape],
            dict(axis=axis, mode=mode),
            lambda x, i, u, a=axis, m=mode: scatter(m, x, i, u, a),
        )
case("ScatterND", [(4, 5, 6), np.array([[0], [2]]), (2, 5, 6)], {}, lambda x, i, u: x.index_put((i[:, 0],), u))
case(
    "ScatterND",
    [(4, 5, 6), ints(4, 7, 2), (7, 6)],
    dict(mode="add"),
    lambda x, i, u: x.index_put((i[:, 0], i[:, 1]), u, True),
)
zeros = np.array([[0.0, 2, 3, 0, 1], [1, 0, 2, 5, 0], [4, 1, 0, 2, 0]])
for x in (positive(4, 5), np.eye(4, 5)):  # products with no, one and two factors of 0
    for axis, j in ((0, ints(2, 3, 5)), (1, ints(2, 3, 5, low=1))):
        case(
            "ScatterElements",
            [x, j, zeros],
            dict(axis=axis, mode="mul"),
            lambda x, i, u, a=axis: x.scatter_reduce(a, i, u, "prod"),
        )
for mode in ("mul", "max", "min"):
    case(
        "IndexPut",
        [(4, 5), (3, 5), np.array([1, 3, 1])],
        dict(dims=[0], mode=mode),
        lambda x, u, i, m=mode: scatter(m, x, i[:, None].expand(3, 5), u, 0),
    )
    case(
        "IndexPut",
        [(4, 5), (1,), np.array([0, 4, 2, 0])],
        dict(dims=[1], mode=mode),
        lambda x, u, i, m=mode: scatter(m, x, i.expand(4, 4), u.expand(4, 4), 1),
    )
    case(
        "ScatterND",
        [(4, 5, 6), ints(4, 7, 1), (7, 5, 6)],
        dict(mode=mode),
        lambda x, i, u, m=mode: scatter(m, x, i[:, :, None].expand(7, 5, 6), u, 0),
    )
    case(  # u is larger than its indices
        "ScatterElements",
        [(4, 5), ints(4, 2, 3), (3, 4)],
        dict(axis=0, mode=mode),
        lambda x, i, u, m=mode: scatter(m, x, i, u[:2, :3], 0),
    )
case("ScatterElements", [(3, 4), np.array([[0, -1], [2, -3]]), (2, 2)], dict(axis=0, mode="add"), put_from_the_end)
case("IndexPut", [(4, 5), (3, 5), np.array([0, 3, -2])], dict(dims=[0]), lambda x, u, i: x.index_put((i,), u))
case("IndexPut", [(4, 5, 6), (3, 5), np.array([1, 4, 2]), np.array([[1], [0]])], dict(dims=[2, 0]), put_apart)
for n in (1, 3):  # dimensions of one element, and neighbours that are like one
    case(
        "IndexPut",
        [(4, n, 1), (9, n, 1), ints(4, 9)],
        dict(dims=[0], mode="add"),
        lambda x, u, i: x.index_put((i,), u, True),
    )
    case(
        "IndexPut",
        [(n, 2, 5), (2, 3), ints(5, 2, 3)],
        dict(dims=[2], mode="add"),
        put_last,
    )
    case("ScatterND", [(4, 5, n), ints(4, 6, 2), (6, n)], dict(mode="add"), put_pairs)
case(
    "IndexPut", [(4, 5), (), ints(4, 6)], dict(dims=[1], mode="add"), lambda x, u, i: x.t().index_put((i,), u, True).t()
)


# -- resampling
for shape, size in [
    ((2, 3, 5), [11]),
    ((2, 3, 5, 7), [8, 4]),
    ((2, 3, 5, 7), [10, 14]),
    ((1, 2, 3, 4, 5), [4, 3, 9]),
    ((2, 3, 6, 6), [3, 2]),
    ((1, 1, 1, 4), [3, 1]),
]:
    full, rank = [*shape[:2], *size], len(size)
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}[rank]
    case(
        "Resize",
        [shape],
        dict(size=full, coord="asymmetric", round="floor"),
        lambda x, s=size: F.interpolate(x, s, mode="nearest"),
    )
    case(
        "Resize",
        [shape],
        dict(size=full, round="round_prefer_ceil"),
        lambda x, s=size: F.interpolate(x, s, mode="nearest-exact"),
    )
    case("Resize", [shape], dict(size=full, mode="linear"), lambda x, s=size, m=linear: F.interpolate(x, s, mode=m))
    case(
        "Resize",
        [shape],
        dict(size=full, mode="linear", coord="align_corners"),
        lambda x, s=size, m=linear: F.interpolate(x, s, mode=m, align_corners=True),
    )
    if rank == 2:
        case("Resize", [shape], dict(size=full, mode="cubic"), lambda x, s=size: F.interpolate(x, s, mode="bicubic"))
        case(
            "Resize",
            [shape],
            dict(size=full, mode="cubic", coord="align_corners"),
            lambda x, s=size: F.interpolate(x, s, mode="bicubic", align_corners=True),
        )
        for mode, a in (("linear", 0.0), ("cubic", -0.5)):
            case(
                "Resize",
                [shape],
                dict(size=full, mode=mode, antialias=1, a=a),
                lambda x, s=size, m=f"bi{mode}": F.interpolate(x, s, mode=m, antialias=True),
            )
for scale in (2.0, 0.6, 1.3, 1.5):
    size = [int(np.floor(n * scale)) for n in (5, 7)]
    case(
        "Resize",
        [(2, 3, 5, 7)],
        dict(size=[2, 3, *size], scale=[1.0, 1.0, scale, scale], mode="linear"),
        lambda x, s=scale: F.interpolate(x, scale_factor=s, mode="bilinear"),
    )
    case(
        "Resize",
        [(2, 3, 5, 7)],
        dict(size=[2, 3, *size], scale=[1.0, 1.0, scale, scale], coord="asymmetric", round="floor"),
        lambda x, s=scale: F.interpolate(x, scale_factor=s, mode="nearest"),
    )
case("Resize", [(2, 3)], dict(size=[4, 3]), lambda x: x.repeat_interleave(2, 0))
GRID = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}
for align, mode, pad in itertools.product((0, 1), GRID, ("zeros", "border", "reflection")):
    attrs = dict(mode=mode, pad=pad, align=align)
    sample = lambda x, g, m=mode, p=pad, a=align: F.grid_sample(x, g, GRID[m], p, bool(a))  # noqa: E731
    case("GridSample", [(2, 3, 5, 6), 1.4 * fill((2, 4, 3, 2), 1, "grid")], attrs, sample)
    if mode != "cubic":
        case("GridSample", [(1, 2, 3, 4, 5), 1.4 * fill((1, 2, 3, 4, 3), 1, "grid")], attrs, sample)
for align in (0, 1):
    case(
        "AffineGrid",
        [(2, 2, 3)],
        dict(size=[4, 5], align=align),
        lambda t, a=align: F.affine_grid(t, (2, 1, 4, 5), bool(a)),
    )
    case(
        "AffineGrid",
        [(2, 3, 4)],
        dict(size=[3, 1, 5], align=align),
        lambda t, a=align: F.affine_grid(t, (2, 1, 3, 1, 5), bool(a)),
    )

# -- sequences
SDPA = F.scaled_dot_product_attention
QKV = [(2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 7)]
case("Attention", QKV, {}, SDPA)
case("Attention", QKV, dict(scale=0.3), lambda q, k, v: SDPA(q, k, v, scale=0.3))
case("Attention", QKV, dict(causal=1), lambda q, k, v: SDPA(q, k, v, is_causal=True))
case("Attention", [*QKV, (4, 6)], {}, lambda q, k, v, m: SDPA(q, k, v, m))
case("Attention", [*QKV, (2, 1, 1, 6)], {}, lambda q, k, v, m: SDPA(q, k, v, m))
MASK = ints(2, 4, 6).astype(bool)
MASK[1], MASK[2] = False, True
case("Attention", [*QKV, MASK], {}, lambda q, k, v, m: SDPA(q, k, v, m))
case("Attention", [(2, 6, 4, 5), (2, 2, 6, 5), (2, 2, 6, 7)], {}, lambda q, k, v: SDPA(q, k, v, enable_gqa=True))
case("Attention", [(4, 5), (6, 5), (6, 7)], {}, SDPA)
case("Attention", [(2, 4, 5), (2, 0, 5), (2, 0, 7)], {}, SDPA)


def attention_sums(q, k, v, mask=None, causal=False):
    """The largest score is a shift that cancels in what is made of the sums: it has no gradient."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + mask
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).tril() == 0, -math.inf)
    m = scores.detach().amax(-1)
    z = (scores - m.nan_to_num(neginf=0)[..., None]).exp().sum(-1)
    return SDPA(q, k, v, mask, is_causal=causal), m, z


def attention_gradient(q, k, v, mask, d, m, n, g, causal=False):
    """The gradient from m, n and g as they are given: they are three more inputs of the formula."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + mask
    p = (scores - m[..., None]).exp() * n[..., None]
    if causal:
        p = p.masked_fill(torch.ones(scores.shape[-2:]).tril() == 0, 0)
    r = p * (d @ v.mT - g[..., None]) / math.sqrt(q.shape[-1])
    return r @ k, r.mT @ q, p.mT @ d


SUMS = [(2, 3, 4, 7), (2, 3, 4), (2, 3, 4), (2, 3, 4)]


def written_attention(q, k, v, mask, fill=-math.inf):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = torch.where(mask, scores, fill) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1) @ v


ROWS = np.array([[1, 0, 1, 1, 0, 1], [0] * 6, [0, 0, 0, 0, 0, 1], [1] * 6], bool)
case("Attention", [*QKV, ROWS], dict(empty="nan"), written_attention)
case("Attention", [*QKV, ROWS], dict(empty="nan", fill=-1e9), lambda *t: written_attention(*t, -1e9))
case("Attention", [*QKV, (4, 6)], dict(empty="nan"), written_attention)
case("AttentionSums", QKV, {}, attention_sums)
case("AttentionSums", QKV, dict(causal=1), lambda q, k, v: attention_sums(q, k, v, causal=True))
case("AttentionSums", [*QKV, (4, 6)], {}, attention_sums)
case("AttentionGrad", [*QKV, None, *SUMS], {}, attention_gradient)
case("AttentionGrad", [*QKV, None, *SUMS], dict(causal=1), lambda *t: attention_gradient(*t, causal=True))
case("AttentionGrad", [*QKV, (4, 6), *SUMS], {}, attention_gradient)
for reverse, start, hidden in itertools.product((0, 1), (False, True), (4, 9)):

    def recurrent(kind, *t, reverse=reverse, start=start, **options):
        x, w, u, b, e, *states = t
        layer = getattr(torch.nn, kind)(x.shape[2], u.shape[1], dtype=x.dtype, **options)
        for name, v in zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), (w, u, b, e), strict=True):
            getattr(layer, name).data.copy_(v)
        given = [s[None] for s in states] or None
        if given and kind != "LSTM":
            given = given[0]
        y, last = layer(x.flip(0) if reverse else x, given)
        last = last if isinstance(last, tuple) else (last,)
        return (y.flip(0) if reverse else y).detach(), *(h[0].detach() for h in last)

    for kind, gates, states in (("LSTM", 4, 2), ("GRU", 3, 1), ("RNN", 1, 1)):
        rows = hidden * gates
        case(
            kind,
            [(5, 2, 3), (rows, 3), (rows, hidden), (rows,), (rows,)] + [(2, hidden)] * (states if start else 0),
            dict(reverse=reverse),
            lambda *t, f=recurrent, kind=kind: f(kind, *t),
        )
case(
    "RNN",
    [(5, 2, 3), (4, 3), (4, 4), (4,), (4,)],
    dict(act="relu"),
    lambda *t: recurrent("RNN", *t, reverse=0, nonlinearity="relu"),
)


def swapped(kind, order, own, *t):
    """The same layer with another order of the gates' blocks."""
    x, w, u, b, e = t
    parts = lambda v: torch.cat([v.chunk(len(order))[order.index(g)] for g in own])  # noqa: E731
    return recurrent(kind, x, parts(w), parts(u), parts(b), parts(e), reverse=0)


case(
    "LSTM",
    [(5, 2, 3), (16, 3), (16, 4), (16,), (16,)],
    dict(order="iofg"),
    lambda *t: swapped("LSTM", "iofg", "ifgo", *t),
)
case("GRU", [(5, 2, 3), (12, 3), (12, 4), (12,), (12,)], dict(order="zrn"), lambda *t: swapped("GRU", "zrn", "rzn", *t))


def projected(x, w, u, b, e, h0, c0, p):
    layer = torch.nn.LSTM(x.shape[2], p.shape[1], proj_size=p.shape[0], dtype=x.dtype)
    for own, v in zip(layer.parameters(), (w, u, b, e, p), strict=True):
        own.data.copy_(v)
    y, (h, c) = layer(x, (h0[None], c0[None]))
    return y.detach(), h[0].detach(), c[0].detach()


case("LSTM", [(5, 2, 3), (36, 3), (36, 4), (36,), (36,), (2, 4), (2, 9), (4, 9)], {}, projected)
LENGTHS = np.array([3, 5])


def ended(kind, reverse, x, w, u, b, e, h0, *more):
    """Computes each sequence alone, without the steps after its end, in which its state does not change."""
    *more, lengths = more
    results = []
    for i, n in enumerate(lengths.long().tolist()):
        step, start = x[:n, i : i + 1], h0[i : i + 1]
        if kind == "LSTM":
            y, *last = projected(step.flip(0) if reverse else step, w, u, b, e, start, more[0][i : i + 1], more[1])
        else:
            y, *last = recurrent(kind, step, w, u, b, e, start, reverse=reverse)
        rest = (start if reverse else last[0]).detach().expand(len(x) - n, 1, -1)
        results.append((torch.cat([y.flip(0) if reverse and kind == "LSTM" else y, rest]), *last))
    return tuple(torch.cat(parts, 1 if k == 0 else 0) for k, parts in enumerate(zip(*results, strict=True)))


for kind, gates, more in (("LSTM", 4, [(2, 9), (4, 9)]), ("GRU", 3, []), ("RNN", 1, [])):
    for reverse in (0, 1):
        rows = 9 * gates if more else 4 * gates
        case(
            kind,
            [(5, 2, 3), (rows, 3), (rows, 4), (rows,), (rows,), (2, 4), *more, LENGTHS],
            dict(reverse=reverse),
            lambda *t, kind=kind, reverse=reverse: ended(kind, reverse, *t),
        )


def outer_gru(x, w, u, b, e):
    h, ys = torch.zeros(2, u.shape[1], dtype=x.dtype), []
    (wr, wz, wn), (ur, uz, un), (br, bz, bn), (er, ez, en) = (v.chunk(3) for v in (w, u, b, e))
    for t in x:
        r = torch.sigmoid(F.linear(t, wr, br) + F.linear(h, ur, er))
        z = torch.sigmoid(F.linear(t, wz, bz) + F.linear(h, uz, ez))
        n = torch.tanh(F.linear(t, wn, bn) + F.linear(r * h, un, en))
        h = (1 - z) * n + z * h
        ys.append(h)
    return torch.stack(ys), h


case("GRU", [(5, 2, 3), (12, 3), (12, 4), (12,), (12,)], dict(inner=0), outer_gru)
case("GRU", [(5, 2, 3), (30, 3), (30, 10), (30,), (30,)], dict(inner=0), outer_gru)

# -- sources, types, losses
case("Fill", [], dict(shape=[2, 3], v=1.5), lambda: torch.full((2, 3), 1.5))
case("Fill", [], dict(shape=[], v=7.0, to="i64"), lambda: torch.tensor(7))
case("Sizes", [], dict(sizes=[3, 5, 5]), lambda: torch.tensor([3, 5, 5]))
case("Sizes", [], dict(sizes=[7], to="f32"), lambda: torch.tensor([7.0]))
case("Range", [], dict(n=5), lambda: torch.arange(5))
case("Range", [], dict(n=4, start=1.5, step=-0.5, to="f64"), lambda: 1.5 - 0.5 * torch.arange(4, dtype=torch.float64))
case("Eye", [], dict(n=3, m=4, k=1, to="f64"), lambda: torch.ones(3, dtype=torch.float64).diag_embed(1)[:3])
case("Cast", [np.array([1.7, -1.7, 0.0, 2.5])], dict(to="i32"), lambda x: x.int())
case("Cast", [np.array([1.7, -0.2, 0.0, np.nan])], dict(to="bool"), lambda x: x.bool())
case("Cast", [ints(9, 4)], dict(to="f32"), lambda x: x.float())
case("Cast", [np.array([True, False])], dict(to="f64"), lambda x: x.double())
case("Cast", [ints(300, 6)], dict(to="u8"), lambda x: x.byte())
case("Identity", [(2, 3)], {}, lambda x: x)
case("Dropout", [(2, 3)], dict(p=0.3), lambda x: x)
TARGET = ints(4, 5, 3)
TARGET[1, 2] = -100
for mode, weighted in itertools.product(("none", "sum", "mean"), (False, True)):
    more = [positive(4)] if weighted else []
    case(
        "NLLLoss",
        [(5, 4, 3), TARGET, *more],
        dict(mode=mode),
        lambda x, t, w=None, m=mode: F.nll_loss(x, t, w, reduction=m),
    )
    for smoothing in (0.0, 0.1):
        case(
            "CrossEntropy",
            [(5, 4, 3), TARGET, *more],
            dict(mode=mode, smoothing=smoothing),
            lambda x, t, w=None, m=mode, s=smoothing: F.cross_entropy(x, t, w, reduction=m, label_smoothing=s),
        )
case("CrossEntropy", [(4,), np.array(2)], {}, F.cross_entropy)
case("NLLLoss", [(5, 4), ints(4, 5)], dict(ignore=1), lambda x, t: F.nll_loss(x, t, ignore_index=1))

# -- matrices; signs of eigenvectors and singular vectors are arbitrary: test_linear.py
LINALG = torch.linalg


def square(n, *lead):
    return fill((*lead, n, n), n, "square") + 2 * np.eye(n)


def definite(n, *lead):
    a = square(n, *lead)
    return a @ np.swapaxes(a, -1, -2) + np.eye(n)


for lead, n in (((), 4), ((2, 3), 1), ((2,), 37), ((0,), 3), ((2,), 0)):
    a = square(n, *lead)
    case("Inverse", [a], dict(check=1), LINALG.inv_ex)
    case("Solve", [a, (*lead, n, 3)], {}, lambda a, x: (LINALG.solve(a, x), *LINALG.lu_factor_ex(a.detach())))
    case("Det", [a], {}, lambda a: (LINALG.det(a), *LINALG.lu_factor(a.detach())))
    case("SlogDet", [a], {}, lambda a: (*LINALG.slogdet(a), *LINALG.lu_factor(a.detach())))
    case("MatrixExp", [a], {}, LINALG.matrix_exp)
    case("Eigh", [a], dict(values=1), lambda a: LINALG.eigvalsh(a))
    case("Eigh", [a], dict(values=1, upper=1), lambda a: LINALG.eigvalsh(a, UPLO="U"))
    for upper in (0, 1):
        case(
            "Cholesky",
            [definite(n, *lead)],
            dict(upper=upper),
            lambda a, u=upper: LINALG.cholesky_ex(a, upper=bool(u)),
        )
        for unit in (0, 1):
            case(
                "SolveTriangular",
                [a / (n + 1 if unit else 1), (*lead, n, 2)],
                dict(upper=upper, unit=unit),
                lambda a, x, u=upper, d=unit: LINALG.solve_triangular(a, x, upper=bool(u), unitriangular=bool(d)),
            )
    for adjoint in (0, 1):
        factors = [t.numpy() for t in LINALG.lu_factor(torch.from_numpy(a))]
        case(
            "LUSolve",
            [*factors, (*lead, n, 3)],
            dict(adjoint=adjoint),
            lambda lu, p, x, d=adjoint: LINALG.lu_solve(lu, p, x, adjoint=bool(d)),
        )
for m, n in ((4, 4), (5, 3), (3, 5), (40, 33), (0, 2)):
    case("LU", [(2, m, n)], {}, lambda a: LINALG.lu_factor_ex(a))
    case("QR", [(2, m, n)], {}, LINALG.qr)
    case("QR", [(2, m, n)], dict(full=1), lambda a: LINALG.qr(a, mode="complete"))
    case("Householder", [(2, m, n)], {}, torch.geqrf)
    case("SVD", [(2, m, n)], dict(values=1), LINALG.svdvals)
    case("Pinv", [(2, m, n), np.zeros(2), np.full(2, 1e-9)], {}, lambda a, t, r: LINALG.pinv(a, atol=t, rtol=r))
    if m >= n:
        factors = [t.numpy() for t in torch.geqrf(torch.from_numpy(fill((2, m, n), 0, "q")))]
        case("HouseholderProduct", factors, {}, LINALG.householder_product)
        fewer = [factors[0], factors[1][:, : n - 1] * np.arange(2)[:, None]]  # and those that change nothing
        case("HouseholderProduct", fewer, {}, LINALG.householder_product)
        case(
            "HouseholderProduct",
            factors,
            dict(full=1),
            lambda v, t, m=m: torch.ormqr(v, t, torch.eye(m).expand(2, m, m).double()),
        )


# -- CTC
def logs(*shape):
    return torch.from_numpy(fill(shape, 0, "ctc")).log_softmax(-1).numpy()


def ctc(x, t, n, m, blank=0, zero=0):
    y = F.ctc_loss(x, t, n, m, blank, "none", bool(zero))
    # if no alignment exists, the layer's result says so; the frontend turns it into 0
    return torch.where(F.ctc_loss(x, t, n, m, blank, "none").isinf(), math.inf, y) if zero else y


for times, labels in (([7, 5, 1], [3, 2, 0]), ([7, 0, 6], [0, 0, 1]), ([3, 2, 5], [2, 1, 3])):
    given = [np.array(times), np.array(labels)]
    case("CTCLoss", [logs(7, 3, 5), ints(5, 3, 3, low=1), *given], {}, ctc)
    case("CTCLoss", [logs(7, 3, 5), ints(4, 3, 3), *given], dict(blank=4), lambda *a: ctc(*a, 4))
    case("CTCLoss", [logs(7, 3, 5), ints(3, sum(labels), low=1), *given], dict(), ctc)
case(
    "CTCLoss",
    [logs(4, 1, 3), np.array([[1, 1, 1]]), np.array([4]), np.array([3])],
    dict(zero=1),
    lambda *a: ctc(*a, 0, 1),
)
for zero in (0, 1):

    def ctc_gradient(x, t, n, m, d, zero=zero):
        x = x.requires_grad_()
        return torch.autograd.grad(F.ctc_loss(x, t, n, m, 0, "none", bool(zero)), x, d)[0]

    given = [np.array([7, 5, 2]), np.array([3, 2, 2])]  # no alignment has two equal labels within two steps
    labels = np.array([[1, 2, 2], [3, 1, 0], [4, 4, 0]])
    case("CTCLossGrad", [logs(7, 3, 5), labels, *given, (3,)], dict(zero=zero), ctc_gradient)
    # confident logits, whose probabilities are far below the least number; more labels than lanes; infinity and NaN
    far = (torch.from_numpy(fill((40, 2, 6), 0, "ctc")) * 3000).log_softmax(-1).numpy()
    many = [far, np.arange(38).reshape(2, 19) % 4 + 1, np.array([40, 33]), np.array([19, 15])]
    case("CTCLossGrad", [*many, (2,)], dict(zero=zero), ctc_gradient)
    case("CTCLoss", many, dict(zero=zero), lambda *a, zero=zero: ctc(*a, 0, zero))
    odd = far.copy()
    odd[3, 0, 2], odd[5, 0, 5], odd[7, 1, 0] = -np.inf, np.inf, np.nan
    case("CTCLossGrad", [odd, *many[1:], (2,)], dict(zero=zero), ctc_gradient)
    case("CTCLoss", [odd, *many[1:]], dict(zero=zero), lambda *a, zero=zero: ctc(*a, 0, zero))

# -- opaque
for axis, down in ((0, 0), (1, 1), (-1, 0)):
    case(
        "Sort",
        [(3, 4, 5)],
        dict(axis=axis, down=down),
        lambda x, a=axis, d=down: x.sort(dim=a, descending=bool(d), stable=True),
    )
    case(
        "TopK", [distinct(4, 4, 5)], dict(k=2, axis=axis, largest=down), lambda x, a=axis, d=down: x.topk(2, a, bool(d))
    )
case("Sort", [np.array([3.0, np.nan, -0.0, 0.0, -np.inf, 1.0])], dict(axis=0), lambda x: x.sort(stable=True))
case(
    "Sort",
    [ints(4, 3, 9, low=-4, dtype=np.int8)],
    dict(axis=1, down=1),
    lambda x: x.sort(dim=1, descending=True, stable=True),
)
case("Sort", [fill((7,), 3, "f32").astype(np.float32)], dict(axis=0), lambda x: x.sort(stable=True))
for kind in "int8 uint8 int16 int32 int64 float32 float64".split():  # long lines: keys of 32 bits are sorted by digits
    for down in (0, 1):
        lines = ints(100, 2, 300, 5, low=-100).astype(kind)
        if lines.dtype.kind == "f":
            lines[:, ::7], lines[:, ::11], lines[:, ::13] = np.nan, -np.inf, -0.0
        case(
            "Sort",
            [lines],
            dict(axis=1, down=down),
            lambda x, d=down: x.sort(dim=1, descending=bool(d), stable=True),
        )
        case(
            "TopK",
            [lines],
            dict(k=30, axis=1, largest=down),
            lambda x, d=down: [r[:, :30] for r in x.sort(dim=1, descending=bool(d), stable=True)],
        )
        for k in (1, 5, 16):  # few are sorted as they are read, and elements side by side are compared as vectors
            case(
                "TopK",
                [np.ascontiguousarray(lines.swapaxes(1, 2))],
                dict(k=k, axis=2, largest=down),
                lambda x, d=down, k=k: [r[..., :k] for r in x.sort(dim=2, descending=bool(d), stable=True)],
            )
        for k, first in ((1, 150), (1, 299), (1, 7), (3, 100)):  # one is found by its number
            case(
                "TopK",
                [lines],
                dict(k=k, axis=1, largest=down, first=first),
                lambda x, d=down, a=first, e=first + k: [
                    r[:, a:e] for r in x.sort(dim=1, descending=bool(d), stable=True)
                ],
            )
for k, down in (
    (0, 0),
    (1, 1),
    (40, 0),
    (130, 1),
):  # of long lines, only possible first elements are sorted; many are equal
    case(
        "TopK",
        [ints(90, 2, 1100, 3, low=-90)],
        dict(k=k, axis=1, largest=down),
        lambda x, k=k, d=down: [r[:, :k] for r in x.sort(dim=1, descending=bool(d), stable=True)],
    )


def name_of(c):
    shapes = "_".join("none" if i is None else "x".join(map(str, i if isinstance(i, tuple) else i.shape)) for i in c[1])
    words = "_".join(f"{k}{v}" for k, v in c[2].items()).replace(" ", "")
    return f"{c[0]}-{shapes}-{words}"


def arrays(c):
    kind, inputs = c[:2]
    return [fill(a, i, kind) if isinstance(a, tuple) else a for i, a in enumerate(inputs)]


@pytest.mark.parametrize("c", CASES, ids=name_of)
def test_layer_agrees_with_torch(c):
    kind, _, attrs, reference, tolerance = c
    given = arrays(c)
    wanted = reference(*[None if a is None else torch.from_numpy(np.array(a)) for a in given])
    wanted = [wanted] if isinstance(wanted, torch.Tensor) else list(wanted)
    got = run_layer(kind, given, attrs, len(wanted))
    for w, y in zip(wanted, got, strict=True):
        w = w.detach().numpy()
        assert y.dtype == w.dtype
        assert y.shape == w.shape
        np.testing.assert_allclose(y, w, rtol=tolerance, atol=tolerance)


def rows() -> list[str]:
    listed = subprocess.run([tool(), "--layers"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in listed.splitlines()]


def test_every_row_has_a_case():
    layers = {r for r in rows() if r[0].isupper()}
    sized = {"NonMaxSuppression", "NonZero", "Unique"}  # sized_by_data_test.c, test_found.py
    assert layers - {c[0] for c in CASES} == sized | {"Rand", "Row"}  # test_chance.py; grad_test.c


def test_random_layers_have_the_right_moments():
    def rand(seed, k):
        return run_layer("Rand", [np.array(seed)], dict(n=100000, k=k))[0]

    y = rand(3, 0)
    assert y.min() >= 0
    assert y.max() < 1
    assert abs(y.mean() - 0.5) < 0.01
    assert abs(y.var() - 1 / 12) < 0.01
    assert (y == rand(3, 0)).all()
    assert (y[7:] == rand(3, 7)[:-7]).all()
    assert (y != rand(4, 0)).mean() > 0.9


@pytest.mark.parametrize(
    ("kind", "inputs", "attrs", "words"),
    [
        ("Conv", [(1, 3, 8, 8), (4, 2, 3, 3)], {}, "Conv"),
        ("Conv", [(1, 3, 8, 8), (4, 3, 3, 3)], dict(stride=2), "unknown attribute 'stride'; it has: s=1"),
        ("Conv", [(1, 3, 8, 8)], {}, "expected 'x w b? -> y', got 1"),
        ("Conv", [(1, 3, 8, 8), None, (4,)], {}, "input 1: expected 'x w b? -> y', got none"),
        ("Conv", [(1, 3, 8, 8), (4, 3, 3, 3)], dict(s=1.5), "attribute s: expected an integer, got a real number"),
        ("Conv", [(1, 3, 8, 8), (4, 3, 9, 9)], {}, "Conv"),
        ("Permute", [(2, 3)], {}, "attribute 'perm' must be given"),
        ("Permute", [(2, 3)], dict(perm=[0, 0]), "axis 0 is there twice"),
        ("Permute", [(2, 3)], dict(perm=[0, 2]), "perm: expected -2..1"),
        ("Reshape", [(2, 3)], dict(shape=[4, 2]), "6 elements do not fit"),
        ("Expand", [(2, 3)], dict(shape=[2, 4]), "cannot become 4"),
        ("Concat", [(2, 3), (3, 3)], dict(axis=1), "expected size 2, got 3"),
        ("Einsum", [(2, 3), (4, 5)], dict(eq="ij,jk->ik"), "sizes of a letter differ"),
        ("Gather", [(2, 3), (2,)], {}, "expected integers"),
        ("Softmax", [(2, 3)], dict(axis=2), "axis: expected -2..1"),
        ("add", [(2, 3), (4, 3)], {}, "dimension 2 from the end has size 4"),
        ("Pad", [(2, 3)], dict(p=0, q=0, mode="mirror"), "expected constant|reflect|replicate|circular, got 'mirror'"),
        ("Nothing", [(2, 3)], {}, "no layer is called 'Nothing'"),
        ("Max", [(0, 3)], dict(axes=[0]), "no value over an axis of size 0"),
        ("Inverse", [(2, 3)], {}, "input 0: dimension 1: expected 2, got 3: the matrices must be square"),
        ("Solve", [(2, 2), (3, 2)], {}, "input 1: dimension 0: expected 2, got 3"),
        ("Solve", [(4, 2, 2), (3, 2, 2)], {}, "input 1: dimension 0: expected 4, got 3"),
        ("Cholesky", [(2,)], {}, "expected at least 2 dimensions"),
        ("HouseholderProduct", [(2, 3), (2,)], {}, "2 reflections in a matrix of 2 x 3"),
    ],
)
def test_mistakes_are_rejected_by_name(kind, inputs, attrs, words):
    with pytest.raises(Rejected) as e:
        run_layer(kind, [None if s is None else fill(s, i, kind) for i, s in enumerate(inputs)], attrs)
    assert words in str(e.value)


def test_index_out_of_range_stops_the_run():
    for kind, i in (("Gather", [5]), ("Gather", [-1]), ("ScatterElements", [9])):
        more = [np.zeros(1)] if kind[0] == "S" else []
        with pytest.raises(Rejected, match="index"):
            run_layer(kind, [np.zeros(5), np.array(i), *more], dict(axis=0))


def test_matrices_that_cannot_be_taken_apart_stop_the_run():
    bad = np.eye(3)
    bad[1, 1] = 0
    both = np.stack([np.eye(3), bad])
    for kind, attrs, words in (
        ("Inverse", dict(check=1), r"\(Inverse\): matrix 1 is singular: pivot 2 is zero"),
        ("LU", dict(check=1), r"\(LU\): matrix 1 is singular: pivot 2 is zero"),
        ("Cholesky", dict(check=1), "matrix 1 is not positive definite: its leading minor of order 2"),
    ):
        with pytest.raises(Rejected, match=words):
            run_layer(kind, [both], attrs)
    for kind, outputs in (("Eigh", 2), ("SVD", 3)):
        with pytest.raises(Rejected, match="matrix 0 has NaN or infinities"):
            run_layer(kind, [np.full((2, 2), np.nan)], {}, outputs)
    info = run_layer("Inverse", [both], {}, 2)[1]
    assert info.tolist() == [0, 2]


def test_elementwise_layers_broadcast():
    a, b = fill((3, 1, 4), 0, "a"), fill((2, 1), 1, "b")
    np.testing.assert_allclose(run_layer("add", [a, b], {})[0], a + b)
    np.testing.assert_allclose(run_layer("where", [a > 0, b, np.array(2.0)], {})[0], np.where(a > 0, b, 2.0))
    assert run_layer("lt", [a, b], {})[0].dtype == np.bool_
    assert run_layer("sqrt", [np.array([4])], {})[0].dtype == np.float32


def test_constants_are_known_before_running():
    text = """
const %0:i64[3] = 2 3 4
const %1:i64[1] = 1
input %2:f32[2] "x"
%3 = Gather(%0, %1)
%4 = mul(%3, %3)
%5 = neg(%2)
output %4 "a"
output %5 "b"
"""
    from graph_tool import call

    assert call(text, "--known") == "a known\nb not known\n"


def test_graph_with_parameters():
    text = """
input %0:f32[2 3] "x"
param %1:f32[4 3] "w"
%2 = Linear(%0, %1)
%3 = relu(%2)
output %3 "y"
"""
    x, w = fill((2, 3), 0, "x").astype(np.float32), fill((4, 3), 1, "w").astype(np.float32)
    np.testing.assert_allclose(evaluate(text, [x, w], 1)[0], np.maximum(x @ w.T, 0), rtol=1e-5)
