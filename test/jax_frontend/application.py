"""Prints the errors of a network of keras.applications with Keras on JAX: the largest differences from JAX's logits in float64, relative
to the largest one, of SOL and JAX in float32 and of SOL in float64. With `train`: of losses and weights after two steps of gradient
descent, in float64, from JAX's."""

import gc
import os
import sys

os.environ |= {"KERAS_BACKEND": "jax", "JAX_ENABLE_X64": "1"}

import jax
import keras
import numpy as np
import sol
from keras.src.backend.common import dtypes

if folder := os.environ.get("SOL_TEST_CACHE"):
    sol.config["cache::folder"] = folder

DEEP = "EfficientNetV2"  # its logits are up to 1e7 with such statistics, and then float32 has 2 digits of them
SMALL = {"MobileNetV2": {"alpha": 0.35}, "MobileNet": {"alpha": 0.25}}
PIXELS = 96  # the least that all of them take is 75
dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"  # Keras on JAX computes means of float64 in float32 otherwise
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}  # compiled


def network(name, dtype):  # type: ignore[no-untyped-def]
    """The model, with statistics as after training."""
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(
        weights=None, classifier_activation=None, input_shape=(PIXELS, PIXELS, 3), classes=10, **SMALL.get(name, {})
    )
    rng = np.random.default_rng(0)
    for v in model.variables:
        if v.path.endswith("moving_mean"):
            v.assign(rng.normal(0, 0.1, v.shape))
        if v.path.endswith("moving_variance"):
            v.assign(rng.uniform(0.5, 1.5, v.shape) * (8 if name.startswith(DEEP) else 1))
    return model


def release():  # type: ignore[no-untyped-def]
    """Frees what a model held: the largest ones take a third of 24 GB in float64."""
    gc.collect()
    jax.clear_caches()


def of_jax(model, x):  # type: ignore[no-untyped-def]
    """What JAX computes."""
    trained, other = model.trainable_variables, model.non_trainable_variables

    def apply(a, b, x):  # type: ignore[no-untyped-def]
        return model.stateless_call(a, b, x, training=False)[0]

    values = [v.value for v in trained], [v.value for v in other], x
    return np.asarray(jax.jit(apply).lower(*values).compile(compiler_options=QUICKLY)(*values), "float64")


def in_float32(name, x):  # type: ignore[no-untyped-def]
    """The logits of SOL and JAX, and the weights."""
    model = network(name, "float32")
    theirs = of_jax(model, x)
    return np.asarray(sol.optimize(model)(x), "float64"), theirs, model.get_weights()


def inference(name):  # type: ignore[no-untyped-def]
    """The errors of logits."""
    x = np.random.default_rng(1).random((1, PIXELS, PIXELS, 3), "float32")
    ours, theirs, weights = in_float32(name, x)
    release()
    exact_model = network(name, "float64")
    for v, w in zip(exact_model.weights, weights, strict=True):
        v.assign(w.astype("float64"))
    del weights
    exact = of_jax(exact_model, x.astype("float64"))
    release()
    ours_exact = np.asarray(sol.optimize(exact_model)(x.astype("float64")))
    return [np.abs(y - exact).max() / np.abs(exact).max() for y in (ours, theirs, ours_exact)]


def training(name):  # type: ignore[no-untyped-def]
    """The differences of losses and weights."""
    found = []
    x, y = np.random.default_rng(2).normal(size=(4, PIXELS, PIXELS, 3)), np.random.default_rng(3).normal(size=(4, 10))
    for optimized in (False, True):
        model = network(name, "float64")
        for layer in model._flatten_layers():
            if isinstance(layer, keras.layers.Dropout):
                layer.rate = 0.0
        model = sol.optimize(model) if optimized else model
        model.compile(keras.optimizers.SGD(1e-3), "mse")
        losses = [model.train_on_batch(x, y) for _ in range(2)]
        found.append([np.asarray(losses), *model.get_weights()])
    return [max(np.abs(a - b).max() / max(1, np.abs(b).max()) for b, a in zip(*found, strict=True))]


print(*map(float, (training if sys.argv[2:] else inference)(sys.argv[1])))
