"""Normalizations and softmax."""

from __future__ import annotations

from ..builder import Rejected
from .table import op


@op("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def fused_batch_norm(b, o, x, w, c, m, v):
    last = o.get_attr("data_format") in (b"NHWC", b"NDHWC")
    e = o.get_attr("epsilon")
    x = b.value(x)
    y = b.first(x) if last else x
    if not o.get_attr("is_training"):
        m, v = b.layer("stop", m), b.layer("stop", v)  # TensorFlow has no gradient of them
        y = b.layer("BatchNorm", y, w, c, m, v, e=e)
        return [b.last(y) if last else y, m, v, m, v, m]
    if o.get_attr("exponential_avg_factor") != 1:
        raise Rejected("an exponential_avg_factor that is not 1")
    y, *seen = b.layers("BatchNormTrain", y, w, c, outputs=3, e=e)
    mean, var = (b.layer("stop", v) for v in seen)  # likewise
    n = x.size // x.shape[-1 if last else 1]
    if not isinstance(n, int):
        n = b.cast(b.layer("Sizes", sizes=[n], to="i64"), var.dtype)
        unbiased = b.layer(
            "mul",
            var,
            b.layer("div", n, b.layer("max", b.layer("sub", n, b.scalar(1, var.dtype)), b.scalar(1, var.dtype))),
        )
    else:
        unbiased = b.layer("mul", var, b.scalar(n / max(n - 1, 1), var.dtype))
    return [b.last(y) if last else y, mean, unbiased, mean, var, mean]


@op("Softmax", "LogSoftmax")
def softmax(b, o, x):
    return b.layer(o.type, x, axis=x.ndim - 1)


@op("LRN")
def lrn(b, o, x):
    n = 2 * o.get_attr("depth_radius") + 1
    return b.last(
        b.layer("LRN", b.first(x), n=n, alpha=o.get_attr("alpha") * n, beta=o.get_attr("beta"), bias=o.get_attr("bias"))
    )
