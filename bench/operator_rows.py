"""Operators at sizes that networks use, for operators.py. A row is a name, what makes the operator, and what makes its arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Make = Callable[[], torch.Tensor]


class Of(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


@dataclass
class Row:
    """One operator."""

    family: str
    name: str
    make: Callable[[], nn.Module]
    arguments: list[Make]
    backward: bool = True


ROWS: dict[str, Row] = {}


def row(family: str, name: str, what: Any, *arguments: Make, backward: bool = True) -> None:
    """`what`: a function of the arguments, or a class of modules with its arguments in a tuple."""
    assert name not in ROWS, name
    make = (lambda: what[0](*what[1:])) if isinstance(what, tuple) else (lambda: Of(what))
    ROWS[name] = Row(family, name, make, list(arguments), backward)


def real(*shape: int) -> Make:
    return lambda: torch.randn(*shape)


def positive(*shape: int) -> Make:
    return lambda: torch.rand(*shape) + 0.1


def below(n: int, *shape: int) -> Make:
    return lambda: torch.randint(n, shape)


def flags(*shape: int) -> Make:
    return lambda: torch.rand(*shape) > 0.5


PICTURES = (8, 64, 56, 56)
STATES = (8, 128, 768)  # batch, tokens, features
WIDE = (8, 128, 3072)
ROWS_OF = (4096, 1024)

# -- one element after another
for _name, _function in {
    "relu": F.relu, "gelu": F.gelu, "gelu(tanh)": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "mish": F.mish,
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "softplus": F.softplus, "elu": F.elu, "leaky_relu": F.leaky_relu,
    "hardswish": F.hardswish, "exp": torch.exp, "sin": torch.sin, "erf": torch.erf, "clamp": lambda x: x.clamp(-1, 1),
    "square": torch.square, "abs": torch.abs, "round": torch.round, "x * 2 + 1": lambda x: x * 2 + 1,
}.items():  # fmt: skip
    row("element-wise", _name, _function, real(*WIDE))
for _name, _function in {
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "x ** 1.7": lambda x: x**1.7,
}.items():
    row("element-wise", _name, _function, positive(*WIDE))
row("element-wise", "add", torch.add, real(*WIDE), real(*WIDE))
row("element-wise", "mul by a row", torch.mul, real(*WIDE), real(3072))
row("element-wise", "mul by a column", torch.mul, real(*WIDE), real(8, 128, 1))
row("element-wise", "div", torch.div, real(*WIDE), positive(*WIDE))
row("element-wise", "atan2", torch.atan2, real(*WIDE), real(*WIDE))
row("element-wise", "where", torch.where, flags(*WIDE), real(*WIDE), real(*WIDE))
row("element-wise", "masked_fill", lambda x, m: x.masked_fill(m, 0.0), real(*WIDE), flags(*WIDE))
row("element-wise", "lerp", lambda a, b: torch.lerp(a, b, 0.3), real(*WIDE), real(*WIDE))
row("element-wise", "glu", F.glu, real(*WIDE))
row("element-wise", "prelu", (nn.PReLU, 64), real(*PICTURES))

# -- sums and others along dimensions
for _name, _function in {
    "sum of all": torch.sum, "sum of rows": lambda x: x.sum(-1), "sum of columns": lambda x: x.sum(0),
    "mean of rows": lambda x: x.mean(-1), "max of rows": lambda x: x.amax(-1), "max of columns": lambda x: x.amax(0),
    "argmax of rows": lambda x: x.argmax(-1), "var of rows": lambda x: x.var(-1), "norm of rows": lambda x: x.norm(dim=-1),
    "logsumexp": lambda x: x.logsumexp(-1), "softmax of rows": lambda x: x.softmax(-1),
    "softmax of columns": lambda x: x.softmax(0), "log_softmax": lambda x: x.log_softmax(-1), "cumsum of rows": lambda x: x.cumsum(-1),
    "cumsum of columns": lambda x: x.cumsum(0), "normalize": lambda x: F.normalize(x, dim=-1), "prod of rows": lambda x: x.prod(-1),
    "min with its index": lambda x: x.min(-1)[0], "std of all": torch.std,
}.items():  # fmt: skip
    row("along a dimension", _name, _function, real(*ROWS_OF), backward="arg" not in _name)
row("along a dimension", "cumprod of rows", lambda x: x.cumprod(-1), positive(*ROWS_OF))
row("along a dimension", "any of rows", lambda x: x.any(-1), flags(*ROWS_OF), backward=False)
row("along a dimension", "mean of pictures", lambda x: x.mean((2, 3)), real(*PICTURES))

# -- normalisation
row("norms", "layer_norm", (nn.LayerNorm, 768), real(*STATES))
row("norms", "rms_norm", (nn.RMSNorm, 768), real(*STATES))
row("norms", "batch_norm", (nn.BatchNorm2d, 64), real(*PICTURES))
row("norms", "group_norm", (nn.GroupNorm, 32, 256), real(4, 256, 32, 32))
row("norms", "instance_norm", (nn.InstanceNorm2d, 64), real(*PICTURES))
row("norms", "local_response_norm", (nn.LocalResponseNorm, 5), real(*PICTURES))

# -- pools and resizes
row("pools, resizes", "max_pool2d 2", (nn.MaxPool2d, 2), real(*PICTURES))
row("pools, resizes", "max_pool2d 3, 2, 1", (nn.MaxPool2d, 3, 2, 1), real(8, 64, 112, 112))
row("pools, resizes", "avg_pool2d 2", (nn.AvgPool2d, 2), real(*PICTURES))
row("pools, resizes", "avg_pool2d 3, 1, 1", (nn.AvgPool2d, 3, 1, 1), real(*PICTURES))
row("pools, resizes", "adaptive_avg_pool2d 1", (nn.AdaptiveAvgPool2d, 1), real(8, 512, 14, 14))
row("pools, resizes", "adaptive_avg_pool2d 7", (nn.AdaptiveAvgPool2d, 7), real(8, 512, 13, 13))
row("pools, resizes", "adaptive_max_pool2d 7", (nn.AdaptiveMaxPool2d, 7), real(8, 512, 14, 14))
row("pools, resizes", "max_pool1d 2", (nn.MaxPool1d, 2), real(8, 256, 512))
row("pools, resizes", "max_pool3d 2", (nn.MaxPool3d, 2), real(2, 32, 16, 56, 56))
for _name, _keys in {"nearest": {}, "bilinear": {"align_corners": False}, "bicubic": {"align_corners": False}}.items():
    row("pools, resizes", f"interpolate {_name}",
        lambda x, m=_name, k=_keys: F.interpolate(x, scale_factor=2, mode=m, **k), real(4, 64, 28, 28))  # fmt: skip
row(
    "pools, resizes",
    "grid_sample",
    lambda x, g: F.grid_sample(x, g, align_corners=False),
    real(4, 64, 56, 56),
    lambda: torch.rand(4, 56, 56, 2) * 2 - 1,
)
row("pools, resizes", "pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), real(4, 256, 56, 56))
row("pools, resizes", "unfold", lambda x: F.unfold(x, 3, padding=1), real(4, 32, 56, 56))
row("pools, resizes", "fold", lambda x: F.fold(x, (56, 56), 3, padding=1), real(4, 288, 3136))

# -- products
row("products", "linear", (nn.Linear, 768, 3072), real(*STATES))
row("products", "linear, one row", (nn.Linear, 4096, 4096), real(1, 4096))
row("products", "matmul", torch.matmul, real(512, 512), real(512, 512))
row("products", "bmm", torch.bmm, real(96, 128, 64), real(96, 64, 128))
row("products", "matrix by vector", torch.mv, real(4096, 1024), real(1024))
row("products", "outer", torch.outer, real(2048), real(2048))
row(
    "products",
    "einsum bhid,bhjd->bhij",
    lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b),
    real(8, 12, 128, 64),
    real(8, 12, 128, 64),
)
row("products", "bilinear", (nn.Bilinear, 64, 64, 64), real(256, 64), real(256, 64))
row("products", "cdist", torch.cdist, real(512, 64), real(512, 64))
row("products", "cosine_similarity", lambda a, b: F.cosine_similarity(a, b, dim=-1), real(*ROWS_OF), real(*ROWS_OF))
row("products", "attention 128", F.scaled_dot_product_attention, *[real(8, 12, 128, 64)] * 3)
row("products", "attention 512", F.scaled_dot_product_attention, *[real(1, 12, 512, 64)] * 3)
row(
    "products",
    "attention, causal",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    *[real(1, 8, 1024, 64)] * 3,
)
row("products", "attention, one query", F.scaled_dot_product_attention, real(8, 12, 1, 64), *[real(8, 12, 512, 64)] * 2)

# -- convolutions
row("convolutions", "conv2d 3x3", (nn.Conv2d, 64, 64, 3, 1, 1), real(*PICTURES))
row("convolutions", "conv2d 1x1", (nn.Conv2d, 256, 64, 1), real(8, 256, 56, 56))
row("convolutions", "conv2d 7x7, stride 2", (nn.Conv2d, 3, 64, 7, 2, 3), real(8, 3, 224, 224))
row("convolutions", "conv2d depthwise", (nn.Conv2d, 128, 128, 3, 1, 1, 1, 128), real(8, 128, 28, 28))
row("convolutions", "conv2d 32 groups", (nn.Conv2d, 256, 256, 3, 1, 1, 1, 32), real(8, 256, 28, 28))
row("convolutions", "conv2d dilated", (nn.Conv2d, 64, 64, 3, 1, 2, 2), real(4, 64, 56, 56))
row("convolutions", "conv1d 5", (nn.Conv1d, 128, 128, 5, 1, 2), real(8, 128, 512))
row("convolutions", "conv3d 3", (nn.Conv3d, 32, 32, 3, 1, 1), real(2, 32, 8, 28, 28))
row("convolutions", "conv_transpose2d 4, 2, 1", (nn.ConvTranspose2d, 64, 32, 4, 2, 1), real(4, 64, 28, 28))

# -- copies
for _name, _function in {
    "transpose": lambda x: x.transpose(1, 2).contiguous(),
    "permute heads": lambda x: x.view(8, 128, 12, 64).permute(0, 2, 1, 3).contiguous(),
    "roll": lambda x: x.roll(3, 1), "flip": lambda x: x.flip(1), "flip of rows": lambda x: x.flip(-1),
    "chunk and add": lambda x: sum(x.chunk(3, -1)),
    "repeat": lambda x: x.repeat(1, 1, 2), "tril": torch.tril, "every second": lambda x: x[:, ::2].contiguous(),
}.items():  # fmt: skip
    row("copies", _name, _function, real(*STATES))
row("copies", "cat", lambda a, b: torch.cat([a, b], 1), real(*PICTURES), real(*PICTURES))
row("copies", "stack", lambda a, b: torch.stack([a, b], 1), real(*PICTURES), real(*PICTURES))
for _name in ("constant", "reflect", "replicate"):
    row("copies", f"pad {_name}", lambda x, m=_name: F.pad(x, (1, 1, 1, 1), m), real(*PICTURES))
row("copies", "to float64", lambda x: x.double(), real(*STATES))
row("copies", "one_hot", lambda x: F.one_hot(x, 1000), below(1000, 1024), backward=False)

# -- by indices
row("by indices", "embedding", (nn.Embedding, 30000, 768), below(30000, 8, 128))
for _name in ("sum", "mean", "max"):
    row(
        "by indices",
        f"embedding_bag {_name}",
        lambda x, w, m=_name: F.embedding_bag(x, w, mode=m),
        below(10000, 512, 8),
        real(10000, 64),
    )
row("by indices", "index_select", lambda x, i: x.index_select(0, i), real(*ROWS_OF), below(4096, 2048))
row("by indices", "gather of rows", lambda x, i: x.gather(1, i), real(*ROWS_OF), below(1024, 4096, 256))
row("by indices", "take_along_dim 0", lambda x, i: x.gather(0, i), real(*ROWS_OF), below(4096, 1024, 1024))
row(
    "by indices", "index_add", lambda x, i, s: x.index_add(0, i, s), real(1024, 256), below(1024, 4096), real(4096, 256)
)
row(
    "by indices",
    "scatter_add of rows",
    lambda x, i, s: x.scatter_add(1, i, s),
    real(1024, 256),
    below(256, 1024, 512),
    real(1024, 512),
)
row(
    "by indices",
    "scatter of rows",
    lambda x, i, s: x.scatter(1, i, s),
    real(1024, 256),
    lambda: torch.rand(1024, 256).argsort(1),
    real(1024, 256),
)
for _name in ("sum", "mean", "amax"):  # the index is expanded in the model, as graph networks do
    row("by indices", f"scatter_reduce {_name}", lambda x, i, s, m=_name: x.scatter_reduce(0, i.expand(-1, 64), s, m),
        real(1024, 64), below(1024, 8192, 1), real(8192, 64))  # fmt: skip
    row("by indices", f"scatter_reduce {_name}, expanded argument", lambda x, i, s, m=_name: x.scatter_reduce(0, i, s, m),
        real(1024, 64), lambda: torch.randint(1024, (8192, 1)).expand(8192, 64), real(8192, 64))  # fmt: skip
row(
    "by indices",
    "index_put",
    lambda x, i, v: x.index_put((i,), v),
    real(*ROWS_OF),
    lambda: torch.randperm(4096)[:1024],
    real(1024, 1024),
)
row(
    "by indices", "masked_select by where", lambda x, m: torch.where(m, x, 0.0).sum(-1), real(*ROWS_OF), flags(*ROWS_OF)
)
row("by indices", "topk 5 of 1000", lambda x: x.topk(5)[0], real(256, 1000))
row("by indices", "topk 50 of 30000", lambda x: x.topk(50)[0], real(64, 30000))
row("by indices", "sort of rows", lambda x: x.sort(-1)[0], real(256, 1000))
row("by indices", "argsort of rows", lambda x: x.argsort(-1), real(256, 1000), backward=False)
row("by indices", "median of rows", lambda x: x.median(-1)[0], real(256, 1000))
row("by indices", "kthvalue", lambda x: x.kthvalue(10)[0], real(256, 1000))
row(
    "by indices",
    "bucketize",
    lambda x, b: torch.bucketize(x, b),
    real(*ROWS_OF),
    lambda: torch.linspace(-3, 3, 100),
    backward=False,
)
row(
    "by indices",
    "searchsorted",
    lambda s, x: torch.searchsorted(s, x),
    lambda: torch.randn(4096, 128).sort(-1)[0],
    real(4096, 256),
    backward=False,
)
row("by indices", "bincount", lambda x: torch.bincount(x, minlength=256), below(256, 1 << 20), backward=False)

# -- losses
row("losses", "cross_entropy", F.cross_entropy, real(1024, 1000), below(1000, 1024))
row("losses", "cross_entropy, words", F.cross_entropy, real(512, 30000), below(30000, 512))
row("losses", "mse_loss", F.mse_loss, real(*ROWS_OF), real(*ROWS_OF))
row("losses", "smooth_l1_loss", F.smooth_l1_loss, real(*ROWS_OF), real(*ROWS_OF))
row("losses", "bce_with_logits", F.binary_cross_entropy_with_logits, real(*ROWS_OF), positive(*ROWS_OF))
row("losses", "kl_div", F.kl_div, real(*ROWS_OF), positive(*ROWS_OF))
row("losses", "triplet_margin", F.triplet_margin_loss, *[real(1024, 256)] * 3)
row("losses", "ctc_loss", lambda x, t: F.ctc_loss(x.log_softmax(-1), t, torch.full((16,), 64), torch.full((16,), 20)),
    real(64, 16, 40), lambda: torch.randint(1, 40, (16, 20)))  # fmt: skip

# -- recurrences
row("recurrences", "LSTM", (nn.LSTM, 128, 256, 1, True, True), real(16, 64, 128))
row("recurrences", "GRU", (nn.GRU, 128, 256, 1, True, True), real(16, 64, 128))
row("recurrences", "LSTM, one sequence", (nn.LSTM, 256, 512, 2, True, True), real(1, 64, 256))
row("recurrences", "RNN, both directions", (nn.RNN, 128, 256, 1, "tanh", True, True, 0.0, True), real(16, 64, 128))
