"""Functions of JAX, each with arguments: what SOL computes is compared with JAX, with gradients where there are any."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
RNG = np.random.default_rng(0)


def real(*shape: int, low: float = -2.0, high: float = 2.0) -> Any:
    """Random numbers, as NumPy has them: JAX takes float64 only where a test says so."""
    return RNG.uniform(low, high, shape)


def whole(*shape: int, high: int = 5, low: int = 0) -> Any:
    """Random integers."""
    return RNG.integers(low, high, shape)


def case(name: str, function: Callable[..., Any], *args: Any) -> None:
    """Adds a case."""
    CASES[name] = (function, args)


for _name in (
    "abs ceil cos cosh exp exp2 expm1 floor neg negative sign sin sinh sqrt square tan tanh asinh arctan cbrt round sinc "
    "isfinite isnan isinf logical_not rint trunc reciprocal deg2rad i0 signbit"
).split():
    if _name in ("sqrt", "cbrt"):
        case(_name, getattr(jnp, _name), real(3, 5, low=0.1))
    elif hasattr(jnp, _name):
        case(_name, getattr(jnp, _name), real(3, 5))
for _name in ("log", "log1p", "log2", "log10", "arccosh"):
    case(_name, getattr(jnp, _name), real(3, 5, low=1.1, high=4.0))
for _name in ("arcsin", "arccos", "arctanh"):
    case(_name, getattr(jnp, _name), real(3, 5, low=-0.9, high=0.9))
for _name in ("erf", "erfc", "erf_inv", "lgamma", "digamma", "logistic", "rsqrt", "bessel_i0e", "bessel_i1e"):
    case(f"lax.{_name}", getattr(lax, _name), real(4, 3, low=0.1, high=0.9))
for (
    _name
) in "add subtract multiply divide maximum minimum arctan2 hypot fmod remainder logaddexp copysign fmax".split():
    case(_name, getattr(jnp, _name), real(3, 5), real(5))
for _name in "power float_power".split():
    case(_name, getattr(jnp, _name), real(3, 5, low=0.2), real(5))
for _name in "floor_divide equal not_equal less greater logical_and logical_or logical_xor heaviside".split():
    case(_name, getattr(jnp, _name), real(3, 5), real(5))
for (
    _name
) in "add subtract multiply floor_divide remainder bitwise_and bitwise_or bitwise_xor left_shift right_shift".split():
    case(f"{_name} of integers", getattr(jnp, _name), whole(3, 5, high=30), whole(5, low=1))
for _n in (-3, -1, 0, 1, 2, 3, 7):
    case(f"integer_pow {_n}", lambda x, n=_n: lax.integer_pow(x, n), real(3, low=0.5))
for _name in (
    "relu relu6 sigmoid softplus silu log_sigmoid leaky_relu hard_sigmoid hard_silu hard_tanh elu celu selu gelu glu squareplus mish "
    "soft_sign log_softmax softmax logsumexp standardize"
).split():
    case(f"nn.{_name}", getattr(jax.nn, _name), real(4, 6))
case("nn.gelu exact", lambda x: jax.nn.gelu(x, approximate=False), real(4, 6))
case("nn.relu at zero", jax.nn.relu, np.asarray([-1.0, 0.0, 1.0]))
case("nn.one_hot", lambda i: jax.nn.one_hot(i, 5), whole(7))


def _attention(q: Any, k: Any, v: Any) -> Any:
    """Causal attention, written out: JAX's own function computes scores in float32."""
    s = jnp.einsum("btnh,bsnh->bnts", q, k) / np.sqrt(q.shape[-1])
    s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -jnp.inf)
    return jnp.einsum("bnts,bsnh->btnh", jax.nn.softmax(s), v)


case("attention", _attention, real(2, 5, 3, 4), real(2, 5, 3, 4), real(2, 5, 3, 4))
for _name in "sum mean max min prod var std any all argmax argmin median nanmean nansum ptp".split():
    if hasattr(jnp, _name):
        case(_name, partial(getattr(jnp, _name), axis=1), real(3, 5, 2))
        case(f"{_name} of all", getattr(jnp, _name), real(3, 5))
for _name in "cumsum cumprod".split():
    case(_name, partial(getattr(jnp, _name), axis=1), real(3, 5))
for _name in "cummax cummin cumlogsumexp cumsum cumprod".split():
    case(f"lax.{_name} backwards", partial(getattr(lax, _name), axis=0, reverse=True), real(6, 3))
case("reshape", lambda x: x.reshape(5, 6), real(3, 10))
case("transpose", lambda x: x.transpose(2, 0, 1), real(3, 4, 5))
case("stack", lambda x, y: jnp.stack([x, y], 1), real(3, 4), real(3, 4))
case("concatenate", lambda x, y: jnp.concatenate([x, y], 1), real(3, 4), real(3, 2))
case("split", lambda x: jnp.split(x, [1, 4], axis=1), real(3, 6))
case("tile", lambda x: jnp.tile(x, (2, 3)), real(3, 2))
case("repeat", lambda x: jnp.repeat(x, 3, axis=1), real(3, 2))
case("roll", lambda x: jnp.roll(x, 2, axis=1), real(3, 5))
case("flip", lambda x: jnp.flip(x, 1), real(3, 5))
case("strided slices", lambda x: x[1:, ::2, -3:-1], real(3, 5, 6))
case("backwards slices", lambda x: x[::-1, 4:0:-2], real(3, 5))
case("pad", lambda x: jnp.pad(x, ((1, 2), (0, 3)), constant_values=1.5), real(3, 4))
case("pad reflect", lambda x: jnp.pad(x, ((1, 2), (0, 3)), mode="reflect"), real(3, 4))
case("lax.pad inside", lambda x: lax.pad(x, 0.5, ((1, -1, 2), (-1, 2, 1))), real(3, 4))
case("lax.pad by data", lambda x, v: lax.pad(x, v * 1.5, ((1, 0, 0), (0, 2, 0))), real(3, 4), np.asarray(2))
case("triu", jnp.triu, real(4, 5))
case("tril", lambda x: jnp.tril(x, -1), real(4, 5))
case("diag", jnp.diag, real(4))
case("diagonal", lambda x: jnp.diagonal(x, 1), real(4, 5))
case("trace", jnp.trace, real(4, 4))
case("outer", jnp.outer, real(4), real(5))
case("kron", jnp.kron, real(2, 3), real(3, 2))
case("arange", lambda x: x + jnp.arange(5), real(3, 5))
case("linspace", lambda x: x + jnp.linspace(0, 1, 5), real(3, 5))
case("where", lambda c, x, y: jnp.where(c > 0, x, y), real(3, 5), real(3, 5), real(5))
case("select", lambda x: jnp.select([x < -1, x < 1], [x, x * x], 3.0), real(3, 5))
case("lax.select_n of integers", lambda i, x: lax.select_n(i, x, -x, x * 2), whole(6, high=3), real(6))
case("clip", lambda x: jnp.clip(x, -1, 1), real(3, 5))
case("lax.clamp", lambda x: lax.clamp(-1.0, x, 1.0), real(3, 5))
case("dot", jnp.dot, real(3, 4), real(4, 5))
case("matmul of batches", jnp.matmul, real(2, 3, 4), real(2, 4, 5))
case("matmul broadcast", jnp.matmul, real(2, 1, 3, 4), real(5, 4, 6))
case("einsum", lambda x, y: jnp.einsum("bhqd,bhkd->bhqk", x, y), real(2, 3, 4, 5), real(2, 3, 6, 5))
case("tensordot", lambda x, y: jnp.tensordot(x, y, 2), real(3, 4, 5), real(4, 5, 2))
case("vdot", jnp.vdot, real(6), real(6))
case("integer dot", jnp.dot, whole(3, 4), whole(4, 5))
case("convolve", lambda x, w: jnp.convolve(x, w, mode="same"), real(9), real(3))
for _layout, _x, _w in (
    (("NHWC", "HWIO", "NHWC"), (2, 7, 8, 4), (3, 3, 4, 6)),
    (("NCHW", "OIHW", "NCHW"), (2, 4, 7, 8), (6, 4, 3, 3)),
):
    for _padding in ("SAME", "VALID", ((2, 1), (0, 3))):
        for _stride in ((1, 1), (2, 3)):
            case(
                f"conv {_layout[0]} {_padding} {_stride}",
                lambda x, w, s=_stride, p=_padding, d=_layout: lax.conv_general_dilated(
                    x, w, s, p, dimension_numbers=d
                ),
                real(*_x),
                real(*_w),
            )
_NHWC = ("NHWC", "HWIO", "NHWC")
case(
    "conv dilated",
    lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", rhs_dilation=(2, 2), dimension_numbers=_NHWC),
    real(1, 9, 9, 3),
    real(3, 3, 3, 4),
)
case(
    "conv of groups",
    lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_NHWC, feature_group_count=3),
    real(1, 6, 6, 6),
    real(3, 3, 2, 9),
)
case(
    "conv of dilated pixels",
    lambda x, w: lax.conv_general_dilated(x, w, (1, 1), ((2, 1), (1, -1)), (2, 3), dimension_numbers=_NHWC),
    real(1, 5, 5, 3),
    real(3, 3, 3, 4),
)
case(
    "conv of groups of images",
    lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_NHWC, batch_group_count=2),
    real(4, 5, 5, 3),
    real(3, 3, 3, 4),
)
case("conv 1-D", lambda x, w: lax.conv(x, w, (2,), "SAME"), real(2, 3, 11), real(5, 3, 3))
case("conv 3-D", lambda x, w: lax.conv(x, w, (1, 1, 1), "VALID"), real(1, 2, 4, 5, 6), real(3, 2, 2, 3, 2))
case(
    "conv transposed",
    lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"),
    real(1, 5, 4, 3),
    real(3, 3, 3, 4),
)
_W = (1, 2, 3, 1)
case("max pool", lambda x: lax.reduce_window(x, -jnp.inf, lax.max, _W, (1, 2, 2, 1), "SAME"), real(2, 7, 8, 3))
case("min pool", lambda x: lax.reduce_window(x, jnp.inf, lax.min, _W, (1, 2, 1, 1), "VALID"), real(2, 7, 8, 3))
case("sum pool", lambda x: lax.reduce_window(x, 0.0, lax.add, _W, (1, 2, 2, 1), "SAME"), real(2, 7, 8, 3))
case("x[i]", lambda x, i: x[i], real(6, 4), whole(2, 3))
case("x[:, i]", lambda x, i: x[:, i], real(4, 6, 2), whole(3))
case("x[i, j]", lambda x, i, j: x[i, j], real(6, 5), whole(3), whole(3))
case("x[i, :, j]", lambda x, i, j: x[i, :, j], real(6, 3, 5), whole(4), whole(4))
case("take", lambda x, i: jnp.take(x, i, axis=1), real(3, 6), whole(2, 4, high=9, low=-9))
case("take clip", lambda x, i: jnp.take(x, i, axis=0, mode="clip"), real(6, 3), whole(4, high=9, low=-9))
case("take_along_axis", lambda x, i: jnp.take_along_axis(x, i, 1), real(3, 6), whole(3, 4))
case("x.at[i].set", lambda x, u: x.at[jnp.asarray([4, 0])].set(u), real(6, 3), real(2, 3))
case("x.at[i].add", lambda x, i, u: x.at[i].add(u), real(6, 3), whole(4), real(4, 3))
case("x.at[:, i].max", lambda x, i, u: x.at[:, i].max(u), real(3, 6), whole(4), real(3, 4))
case("x.at[i].multiply", lambda x, u: x.at[1].multiply(u), real(6, 3), real(3))
case("x.at[i, j].add outside", lambda x, i, u: x.at[i, i].add(u), real(3, 3), whole(5, high=6), real(5))
case("segment_sum", lambda x, i: jax.ops.segment_sum(x, i, 5), real(8, 2), whole(8))
case("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i, 1), (2, 3)), real(6, 5), np.asarray(3))
case("dynamic_slice clamped", lambda x, i: lax.dynamic_slice(x, (i, i), (2, 3)), real(6, 5), np.asarray(9))
case(
    "dynamic_update_slice",
    lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 1)),
    real(6, 5),
    real(2, 3),
    np.asarray(3),
)
case("static update", lambda x, u: lax.dynamic_update_slice(x, u, (1, 1)), real(6, 5), real(2, 3))
case("sort", lambda x: jnp.sort(x, axis=0), real(6, 4))
case("argsort", jnp.argsort, real(6, 4))
case("sort by keys", lambda a, b, x: lax.sort((a, b, x), num_keys=2), whole(9, high=3), whole(9), real(9))
case("top_k", lambda x: lax.top_k(x, 3), real(4, 7))
case("searchsorted", lambda x: jnp.searchsorted(jnp.linspace(-2, 2, 9), x), real(5))
case("scan", lambda x: lax.scan(lambda c, v: (c * 0.5 + v, jnp.tanh(c)), jnp.zeros(3), x), real(6, 3))
case("scan reverse", lambda x: lax.scan(lambda c, v: (c * 0.5 + v, c), jnp.zeros(3), x, reverse=True), real(6, 3))
case("fori_loop", lambda x: lax.fori_loop(0, 4, lambda i, v: v * 0.5 + i, x), real(3))
case("while_loop", lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (0, x)), whole(3))
case("cond", lambda c, x: lax.cond(c > 0, lambda v: v * 2, jnp.sin, x), np.asarray(1.0), real(3))
case("switch", lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tan], x), np.asarray(2), real(3))
case("associative_scan", lambda x: lax.associative_scan(jnp.add, x), real(9, 2))
case("map", lambda x: lax.map(lambda v: v * jnp.sum(v), x), real(4, 3))
case("checkpoint", jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))), real(4))
case("stop_gradient", lambda x: x * lax.stop_gradient(x), real(4))
case("norm", jnp.linalg.norm, real(4, 3))
case("astype", lambda x: x.astype(jnp.int32) + 1, real(4))
case("bits of integers", lambda i: lax.bitcast_convert_type(i.astype(jnp.uint32), jnp.float32), whole(64, high=1 << 32))
case("shifts", lambda i: (i << 3, i >> 2, lax.shift_right_logical(i, i % 70)), whole(16, low=-99, high=99))
case("image.resize", lambda x: jax.image.resize(x, (2, 8, 9, 3), "bilinear"), real(2, 5, 6, 3))
case("nearest", lambda x: jax.image.resize(x, (2, 10, 3, 3), "nearest"), real(2, 5, 6, 3))
# JAX flushes subnormal numbers to 0
case(
    "bits of numbers",
    lambda x: (
        lax.bitcast_convert_type(x, jnp.int64),
        lax.bitcast_convert_type(jnp.where(abs(x) > 1e-37, x, 0).astype(jnp.float32), jnp.int32),
    ),
    np.concatenate([RNG.normal(size=50) * 10.0 ** RNG.integers(-300, 300, 50), [0.0, -0.0, np.inf, -np.inf, 1e-300]]),
)
case("histogram of counts", lambda i: jnp.bincount(i, length=6), whole(20))


@jax.custom_vjp
def _clipped(x: Any) -> Any:
    """The identity, whose gradient is clipped."""
    return x * 1.0


_clipped.defvjp(lambda x: (_clipped(x), None), lambda _, g: (jnp.clip(g, -0.1, 0.1),))
case("custom_vjp", lambda x: _clipped(x) ** 2, real(5))


@jax.custom_jvp
def _steps(x: Any, y: Any) -> Any:
    """Rounds x to multiples of y; its derivatives are 1 and x."""
    return jnp.round(x / y) * y


_steps.defjvp(lambda p, t: (_steps(*p), t[0] + p[0] * t[1]))
case("custom_jvp", lambda x, y: jnp.tanh(_steps(x, y)) * y, real(5), real(5, low=0.5))


def _symmetric(x: Any) -> Any:
    """A positive definite matrix."""
    return x @ x.mT + jnp.eye(x.shape[-1])


def _dominant(x: Any) -> Any:
    """A matrix that is far from singular."""
    return x + 9 * jnp.eye(x.shape[-1])


for _name, _function in {
    "solve": lambda a, y: jnp.linalg.solve(_dominant(a), y),
    "det": lambda a, y: jnp.linalg.det(a),
    "cholesky": lambda a, y: jnp.linalg.cholesky(_symmetric(a)),
    "cholesky of no such matrix": lambda a, y: jnp.isnan(jnp.linalg.cholesky(-_symmetric(a))),
    "qr": lambda a, y: jnp.linalg.qr(y),
    "svd": lambda a, y: jnp.linalg.svd(a, compute_uv=False),
    "pinv": lambda a, y: jnp.linalg.pinv(y),
    "eigh": lambda a, y: jnp.linalg.eigh(_symmetric(a))[0],
    "lu": lambda a, y: lax.linalg.lu(y),
    "triangular": lambda a, y: lax.linalg.triangular_solve(_dominant(a), y, left_side=True, transpose_a=True),
    "triangular on the right": lambda a, y: lax.linalg.triangular_solve(_dominant(a), y.mT, lower=True),
}.items():
    case(f"linalg.{_name}", _function, real(2, 4, 4), real(2, 4, 3))


def _random_in_a_scan(x: Any) -> Any:
    """A key for each step; what it gives does not depend on the step before."""

    def step(h: Any, key: Any) -> Any:
        h = jnp.where(jax.random.bernoulli(key, 0.7, h.shape), jnp.tanh(h + x), 0)
        return h, jnp.sort(h)

    return lax.scan(step, x, jax.random.split(jax.random.key(1), 5))


def _key_in_a_scan(x: Any) -> Any:
    """A key that each step splits."""

    def step(carry: Any, _: Any) -> Any:
        h, key = carry
        key, own = jax.random.split(key)
        return (jnp.tanh(h + jax.random.uniform(own, h.shape)), key), None

    return lax.scan(step, (x, jax.random.key(1)), None, length=4)[0][0]


def _rows_in_a_scan(table: Any, i: Any) -> Any:
    """Rows of a table, read at positions that are known ahead of the loop, and an inner loop that is, too."""

    def step(h: Any, at: Any) -> Any:
        rows, end = lax.scan(lambda c, v: (c * 0.5 + v, c), jnp.zeros(3), table[at])
        return jnp.tanh(h + rows + end.sum(0)), h

    return lax.scan(step, jnp.zeros(3), i)


case("random bits in a scan", _random_in_a_scan, real(4))
case("a key in a scan", _key_in_a_scan, real(4))
case("rows of a table in a scan", _rows_in_a_scan, real(6, 3), whole(5, 4))
case(
    "a scan in a scan",
    lambda x: lax.scan(lambda h, r: lax.scan(lambda c, v: (jnp.tanh(c + v), c), h, r), x[0, 0], x),
    real(4, 5, 3),
)
case(
    "keys",
    lambda x: x + jax.random.normal(jax.random.clone(jax.random.split(jax.random.key(2), 9)[3:5][1]), x.shape),
    real(3),
)
