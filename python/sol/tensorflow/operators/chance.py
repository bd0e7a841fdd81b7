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


def _uniform(b, o, shape, seed):
    word = b.layer("Sum", b.layer("mul", b.cast(seed, "i64"), _MIX), axes=[0], keep=0)
    dtype, sizes = core_type(o.outputs[0].dtype), b.ints(shape)
    n = math.prod(sizes)
    y = b.layer("Rand", word, n=n, k=b.drawn, to="f64" if dtype == "f64" else "f32")
    b.drawn += n
    return b.cast(b.reshape(y, sizes), dtype)


@op("StatelessRandomUniformV2", "StatelessRandomUniform")
def uniform(b, o, shape, seed, *_):
    return _uniform(b, o, shape, seed)


@op("StatelessRandomNormalV2", "StatelessRandomNormal")
def normal(b, o, shape, seed, *_):
    u = _uniform(b, o, shape, seed)
    x = b.layer("sub", b.layer("mul", u, b.scalar(2, u.dtype)), b.scalar(1 - 2.0**-24, u.dtype))  # never -1
    return b.layer("mul", b.layer("erfinv", x), b.scalar(2**0.5, u.dtype))


@op("RandomUniform", "RandomStandardNormal", "RandomUniformInt", "TruncatedNormal", "StatefulUniform")
def stateful(b, o, *_):
    raise Rejected(
        "draws from TensorFlow's own generator; use keras.random with a SeedGenerator, or tf.random.stateless_*"
    )
