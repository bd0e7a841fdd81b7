"""Operators and Keras layers from outside."""

import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import sol
import sol.tensorflow
import tensorflow as tf


class Softclip(keras.layers.Layer):
    """tanh with a limit; its `call` is NumPy, which nothing could read."""

    def __init__(self, most: float) -> None:
        super().__init__()
        self.most = most

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return tf.numpy_function(lambda v: self.most * np.tanh(v / self.most), [x], tf.float32) * self.scale

    def compute_output_shape(self, shape):
        return shape


@pytest.fixture(scope="module", autouse=True)
def _layers():
    sol.register_layer(
        "tfextest::softclip",
        "x:float[A.. C] s[C] -> y[A.. C] | y[A C] = m * tanh(x[A C] / m) * s[C]",
        attributes="m=2.0",
    )


def test_a_hook_of_a_keras_layer():
    @sol.tensorflow.register(Softclip)
    def softclip(layer, x):
        return sol.tensorflow.layer("tfextest::softclip", x, layer.scale, m=layer.most)

    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5), Softclip(1.5), keras.layers.Dense(3)])
    x = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
    model.layers[1].scale.assign(np.linspace(0.5, 1.5, 5))
    net = sol.optimize(model, x)
    assert np.allclose(model(x), net(x), atol=1e-6)  # outside of SOL, Keras runs its own
    d = model.layers[0](x)
    h = 1.5 * tf.tanh(d / 1.5)
    expected = model.layers[2](h * model.layers[1].scale)
    assert np.allclose(net(x), expected, atol=1e-6)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(net(x))
    found = tape.gradient(loss, net.trainable_variables)
    kernel = model.layers[2].kernel
    scale = tf.reduce_sum(h, 0) * tf.reduce_sum(kernel, 1)
    assert any(g.shape == (5,) and np.allclose(g, scale, rtol=1e-4, atol=1e-5) for g in found)


def test_a_hook_of_an_operator():
    @tf.function(input_signature=[tf.TensorSpec((4,), tf.float32)])
    def function(x):
        return tf.raw_ops.BesselJ0(x=x)

    x = np.array([0.0, 0.5, 1.0, 2.0], "float32")
    with pytest.raises(sol.UnsupportedError, match="BesselJ0"):
        sol.optimize(function, x)

    @sol.tensorflow.register("BesselJ0")
    def bessel(b, operation, x):
        assert operation.type == "BesselJ0"
        square, made = b.layer("mul", x, x), b.scalar(1.0, "f32")
        for k in range(8, 0, -1):  # the series, by Horner's rule
            made = b.layer(
                "sub", b.scalar(1.0, "f32"), b.layer("mul", made, b.layer("mul", square, b.scalar(0.25 / k**2, "f32")))
            )
        return made

    assert np.allclose(sol.optimize(function, x)(x), function(x), atol=1e-6)
    with pytest.raises(sol.InvalidError, match="SOL translates this operator itself"):
        sol.tensorflow.register("Relu", bessel)


def test_the_example():
    path = Path(__file__).resolve().parents[2] / "examples" / "extend_keras.py"
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    differences = [float(x) for x in re.findall(r"\d\S*$", done.stdout, re.M)]
    assert len(differences) == 2 and max(differences) < 1e-5
