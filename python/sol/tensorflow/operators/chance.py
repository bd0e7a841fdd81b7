"""Random numbers. Keras hands its seed down as a tensor, so a network draws from the model's own generators; the numbers are SOL's."""

from __future__ import annotations

import math

import numpy as np

from ..builder import Rejected, core_type
from .table import op

_MIX = np.array([0x9E3779B97F4A7C15 - 2**64, 0x5851F42D4C957F2D], "int64")


@op("StatelessRandomGetKeyCounter")
def key_and_counter(b, o, seed):
    return [seed, seed]


@op("StatelessRandomGetKey")
def key(b, o, seed):
    return seed


@op("StatelessRandomGetAlg")
def algorithm(b, o):
    return np.array(1, "int32")


def _drawn(b, sizes, seed, dtype):
    """Numbers in [0, 1)."""
    word = b.layer("Sum", b.layer("mul", b.cast(seed, "i64"), _MIX), axes=[0], keep=0)
    n = math.prod(sizes)
    y = b.layer("Rand", word, n=n, k=b.drawn, to=dtype)
    b.drawn += n
    return b.reshape(y, sizes)


def _uniform(b, o, shape, seed):
    dtype = core_type(o.outputs[0].dtype)
    return b.cast(_drawn(b, b.ints(shape), seed, "f64" if dtype == "f64" else "f32"), dtype)


@op("StatelessRandomUniformV2", "StatelessRandomUniform")
def uniform(b, o, shape, seed, *_):
    return _uniform(b, o, shape, seed)


@op("StatelessRandomNormalV2", "StatelessRandomNormal")
def normal(b, o, shape, seed, *_):
    u = _uniform(b, o, shape, seed)
    x = b.layer("sub", b.layer("mul", u, b.scalar(2, u.dtype)), b.scalar(1 - 2.0**-24, u.dtype))  # never -1
    return b.layer("mul", b.layer("erfinv", x), b.scalar(2**0.5, u.dtype))


@op("StatelessTruncatedNormalV2", "StatelessTruncatedNormal")
def truncated_normal(b, o, shape, seed, *_):
    u = _uniform(b, o, shape, seed)  # of the part of the distribution within two deviations
    part = b.scalar(math.erf(2**0.5), u.dtype)
    x = b.layer("mul", b.layer("sub", b.layer("mul", u, b.scalar(2, u.dtype)), b.scalar(1, u.dtype)), part)
    return b.layer("mul", b.layer("erfinv", x), b.scalar(2**0.5, u.dtype))


@op("StatelessRandomUniformIntV2", "StatelessRandomUniformInt")
def whole_numbers(b, o, shape, seed, *rest):
    low, high = (b.cast(v, "f64") for v in rest[-2:])
    u = _drawn(b, b.ints(shape), seed, "f64")
    x = b.layer("add", low, b.layer("floor", b.layer("mul", u, b.layer("sub", high, low))))
    return b.cast(x, core_type(o.outputs[0].dtype))


@op("StatelessMultinomial")
def categorical(b, o, logits, n, seed):
    """The largest of logits with Gumbel's noise."""
    logits, n = b.value(logits), b.number(n)
    rows, classes = logits.shape
    u = b.layer("max", _drawn(b, (rows, n, classes), seed, "f64"), b.scalar(2.0**-60, "f64"))
    noise = b.layer("neg", b.layer("log", b.layer("neg", b.layer("log", u))))
    found = b.layer("ArgMax", b.layer("add", b.cast(b.reshape(logits, (rows, 1, classes)), "f64"), noise), axis=2)
    return b.cast(found, core_type(o.outputs[0].dtype))


@op("StatelessShuffle")
def shuffle(b, o, x, seed, *_):
    x = b.value(x)
    _, order = b.layers("TopK", _drawn(b, (x.shape[0],), seed, "f64"), outputs=2, k=x.shape[0])
    return b.layer("Gather", x, order, axis=0)


@op("RandomUniform", "RandomStandardNormal", "RandomUniformInt", "TruncatedNormal", "StatefulUniform")
def stateful(b, o, *_):
    raise Rejected(
        "draws from TensorFlow's own generator; use keras.random with a SeedGenerator, or tf.random.stateless_*"
    )
