"""A layer of SOL in place of a Keras layer's `call`: run and trained with the model. docs/extending.md explains it."""

import keras
import numpy as np
import sol
import sol.tensorflow
import tensorflow as tf

sol.register_layer(
    "demo::gate", "x:float[A.. C] s[C] -> y[A.. C] | y[A C] = x[A C] * sigmoid(s[C] * x[A C])", doc="swish with a slope"
)


class Gate(keras.layers.Layer):
    """x * sigmoid(s * x), with a slope for each channel."""

    def build(self, shape):
        self.slope = self.add_weight(shape=(shape[-1],), initializer="ones", name="slope")

    def call(self, x):
        return x * tf.sigmoid(self.slope * x)


@sol.tensorflow.register(Gate)
def gate(layer, x):
    return sol.tensorflow.layer("demo::gate", x, layer.slope)


model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(6), Gate(), keras.layers.Dense(2)])
x = np.random.default_rng(0).normal(size=(4, 8)).astype("float32")
net = sol.optimize(model, x)


def gradients(of):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(of(x)))
    return tape.gradient(loss, of.trainable_variables)


print("difference of results ", float(np.abs(net(x) - model(x)).max()))
print(
    "difference of gradients",
    max(float(np.abs(a - b).max()) for a, b in zip(gradients(net), gradients(model), strict=True)),
)
