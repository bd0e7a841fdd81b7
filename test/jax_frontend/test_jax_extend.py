"""Primitives from outside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sol
import sol.jax
from jax.extend import core
from jax.interpreters import ad, mlir


def primitive(name, function):
    """A primitive as users make them: how it computes, its shape, and its derivative."""
    p = core.Primitive(name)
    p.def_impl(function)
    p.def_abstract_eval(lambda x, **params: jax.core.ShapedArray(x.shape, x.dtype))
    mlir.register_lowering(p, mlir.lower_fun(function, multiple_results=False))
    ad.primitive_jvps[p] = lambda xs, ts, **params: jax.jvp(lambda x: function(x, **params), xs, ts)
    return p


def test_a_primitive_of_the_name_of_a_layer():
    sol.register_layer("jaxtest::softclip", "x:float[A..] -> y[A..] | y[A] = m * tanh(x[A] / m)", attributes="m=2.0")
    p = primitive("jaxtest::softclip", lambda x, m: m * jnp.tanh(x / m))

    def function(x, w):
        return p.bind(x @ w, m=1.5).sum()

    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(4, 6)).astype("float32"), rng.normal(size=(6, 3)).astype("float32")
    net = sol.jax.optimize(function, x, w)
    assert np.allclose(net(x, w), function(x, w), rtol=1e-5)
    assert np.allclose(jax.grad(net, 1)(x, w), jax.grad(function, 1)(x, w), rtol=1e-4, atol=1e-5)


def test_a_hook_of_a_primitive():
    p = primitive("jaxtest_affine", lambda x, bias: 3 * x + bias)
    x = np.arange(4, dtype="float32")
    with pytest.raises(sol.UnsupportedError, match="jaxtest_affine"):
        sol.jax.optimize(lambda x: p.bind(x, bias=2.0), x)(x)

    @sol.jax.register(p)
    def affine(b, params, x):
        three = b.layer("mul", x, b.scalar(3, x.dtype))
        return b.layer("add", three, b.scalar(params["bias"], x.dtype))

    assert np.allclose(sol.jax.optimize(lambda x: p.bind(x, bias=2.0), x)(x), 3 * x + 2)
    with pytest.raises(sol.InvalidError, match="SOL translates this operator itself"):
        sol.jax.register("add", affine)
