"""Functions with a gradient of their own (tf.custom_gradient), beside TensorFlow."""

import keras
import numpy as np
import pytest
import sol
import tensorflow as tf
from keras import layers as L

RNG = np.random.default_rng(0)


@tf.custom_gradient
def reverse(x):
    """Reverses the gradient (domain adversarial networks)."""
    return tf.identity(x), lambda d: -0.5 * d


@tf.custom_gradient
def limited(x):
    return tf.identity(x), lambda d: tf.clip_by_norm(d, 0.1)


@tf.custom_gradient
def rounded(x, step):
    """A straight-through quantizer whose step learns."""
    q = tf.round(x / step) * step
    return q, lambda d: (d * tf.cast(tf.abs(x) < 1, d.dtype), tf.reduce_sum(d * (q - x)))


@tf.custom_gradient
def parts(x):
    """Gradients of all results decide together."""
    return (2 * x, tf.reduce_sum(x, 1), x + 1), lambda a, b, unused: tf.clip_by_norm(a + b[:, None], 0.1) + unused


@keras.ops.custom_gradient
def softplus(x):
    e = keras.ops.exp(x)
    return keras.ops.log(1 + e), lambda d: d * (1 - 1 / (1 + e))


class Scaled(L.Layer):
    """The function reads a variable, whose gradient it is asked for."""

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 4))

    def call(self, x):
        @tf.custom_gradient
        def product(x):
            def gradient(d, variables):
                return 3 * d @ tf.transpose(self.w), [tf.transpose(x) @ d * 0.1 for _ in variables]

            return x @ self.w, gradient

        return product(x)


OWN_GRADIENTS = {
    "reverse": reverse,
    "limited": lambda h: reverse(limited(h) * 2),
    "rounded": lambda h: rounded(h, tf.reduce_mean(tf.abs(h))),
    "parts": lambda h: (lambda made: tf.concat([made[0], made[1][:, None]], 1))(parts(h)),
    "softplus": softplus,
    "branch": lambda h: tf.cond(tf.reduce_sum(h) > 0, lambda: reverse(h), lambda: limited(h)),
    "inside": tf.function(lambda h: reverse(h) + softplus(h)),
    "variable": None,
}


@pytest.mark.parametrize("kind", OWN_GRADIENTS)
def test_gradients_of_ones_own(kind):
    """tf.custom_gradient: results and gradients are TensorFlow's, at two batch sizes by one program."""
    i = L.Input((5,), dtype="float64")
    layer = L.Lambda(OWN_GRADIENTS[kind], dtype="float64") if OWN_GRADIENTS[kind] else Scaled(dtype="float64")
    m = keras.Model(i, L.Dense(3, dtype="float64")(layer(L.Dense(6, "tanh", dtype="float64")(i))))
    s = sol.optimize(m)
    for n in (4, 7):
        x = tf.constant(RNG.normal(size=(n, 5)))
        found = []
        for model in (m, s):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.reduce_sum(model(x) ** 2)
            found.append([y, *tape.gradient(y, [x, *(v.value for v in m.trainable_variables)])])
        for want, got in zip(*found, strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-10)
    assert len(s._sol.families) == 1 and s._sol.last.fixed is None
