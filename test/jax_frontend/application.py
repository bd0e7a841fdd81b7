"""Prints the errors of a network of keras.applications with Keras on JAX, SOL's and jax.jit's: the largest differences from float64,
relative to the largest result."""

import os
import sys

os.environ |= {"KERAS_BACKEND": "jax", "JAX_ENABLE_X64": "1"}

import jax
import jax.numpy as jnp
import keras
import numpy as np
import sol.jax as sol

if folder := os.environ.get("SOL_TEST_CACHE"):
    sol.config["cache::folder"] = folder


def network(dtype):  # type: ignore[no-untyped-def]
    """The model as a function of its variables' values, and these."""
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    model = getattr(keras.applications, sys.argv[1])(weights=None, classifier_activation=None, input_shape=(96, 96, 3))
    n = len(model.trainable_variables)
    values = [v.value for v in model.trainable_variables + model.non_trainable_variables]
    rng = np.random.default_rng(0)
    for i, v in enumerate(model.trainable_variables + model.non_trainable_variables):
        if v.path.endswith("moving_mean"):
            values[i] = jnp.asarray(rng.normal(0, 0.1, v.shape), dtype)
        if v.path.endswith("moving_variance"):
            values[i] = jnp.asarray(rng.uniform(0.5, 1.5, v.shape), dtype)
    return lambda values, x: model.stateless_call(values[:n], values[n:], x, training=False)[0], values


apply, values = network("float32")
x = jnp.asarray(np.random.default_rng(1).random((1, 96, 96, 3)), "float32")
got, theirs = sol.optimize(apply, values, x)(values, x), jax.jit(apply)(values, x)
exact_apply, _ = network("float64")
exact_values = [v.astype("float64") if v.dtype == "float32" else v for v in values], x.astype("float64")
quickly = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}  # compiled
exact = jax.jit(exact_apply).lower(*exact_values).compile(compiler_options=quickly)(*exact_values)
print(*(float(jnp.abs(y - exact).max() / jnp.abs(exact).max()) for y in (got, theirs)))
