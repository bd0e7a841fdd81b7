"""Prints the error of a network of keras.applications with Keras on JAX: the largest difference from jax.jit, relative to the largest result."""

import os
import sys

os.environ["KERAS_BACKEND"] = "jax"

import jax
import jax.numpy as jnp
import keras
import numpy as np
import sol.jax as sol

model = getattr(keras.applications, sys.argv[1])(weights=None, classifier_activation=None)
rng = np.random.default_rng(0)
for v in model.variables:
    if v.path.endswith("moving_mean"):
        v.assign(rng.normal(0, 0.1, v.shape))
    if v.path.endswith("moving_variance"):
        v.assign(rng.uniform(0.5, 1.5, v.shape))
params = [v.value for v in model.trainable_variables], [v.value for v in model.non_trainable_variables]
x = jnp.asarray(rng.random((1, *model.input_shape[1:])), jnp.float32)


def apply(params, x):  # type: ignore[no-untyped-def]
    return model.stateless_call(*params, x, training=False)[0]


want = jax.jit(apply)(params, x)
got = sol.optimize(apply, params, x)(params, x)
print(float(jnp.abs(got - want).max() / jnp.abs(want).max()))
