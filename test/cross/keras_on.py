"""Models of Keras on another backend than TensorFlow, SOL's beside Keras's own: `python keras_on.py NETWORK` with KERAS_BACKEND."""

import copy
import os
import pickle
import sys
import tempfile

import keras
import numpy as np
import sol
from keras import layers as L

CLOSE = 1e-5  # a step of training in float32: Keras has operators that compute in float32 whatever the type
RNG = np.random.default_rng(0)


def cnn():
    i = L.Input((8, 8, 3))
    y = L.ReLU()(L.BatchNormalization()(L.Conv2D(4, 3, padding="same")(i)))
    return keras.Model(i, L.Dense(5)(L.GlobalAveragePooling2D()(y)))


def lstm():
    i = L.Input((5,), dtype="int32")
    return keras.Model(i, L.Dense(5)(L.LSTM(6)(L.Embedding(9, 4, mask_zero=True)(i))))


@keras.saving.register_keras_serializable()
class Centered(L.Layer):
    """Reads a state that it has assigned: on PyTorch and TensorFlow, the gradient ends there; on JAX it does not."""

    def build(self, shape):
        self.mean = self.add_weight(shape=shape[-1:], initializer="zeros", trainable=False)

    def call(self, x, training=False):
        if training:
            self.mean.assign(0.5 * self.mean + 0.5 * keras.ops.mean(x, axis=(0, 1)))
        return x - self.mean


def transformer():
    i = L.Input((6, 8))
    y = Centered()(L.Dense(8)(i))
    y = L.LayerNormalization()(y + L.MultiHeadAttention(2, 4)(y, y))
    y = L.LayerNormalization()(y + L.Dense(8)(L.Dense(16, activation="gelu")(y)))
    return keras.Model(i, L.Dense(5)(L.GlobalAveragePooling1D()(y)))


def mobilenet():
    return keras.applications.MobileNetV2((32, 32, 3), 0.35, weights=None, classes=5, classifier_activation=None)


INPUTS = {"lstm": RNG.integers(0, 9, (6, 5)).astype("int32"), "cnn": RNG.normal(size=(6, 8, 8, 3))}
INPUTS |= {"transformer": RNG.normal(size=(6, 6, 8)), "mobilenet": RNG.normal(size=(6, 32, 32, 3))}


@keras.saving.register_keras_serializable()
class Own(keras.Model):
    """A subclassed model with a state that it counts, a loss and a random layer."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.a, self.b, self.drop = L.Dense(4, activity_regularizer="l2"), L.Dense(2), L.Dropout(0.5, seed=3)
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

    def call(self, x, training=False):
        self.count.assign(self.count + 1)
        return self.b(self.drop(self.a(x), training=training))


def array(x):
    return np.asarray(keras.ops.convert_to_numpy(x))


def results(m, x, y):
    """Of calls before and after new weights, of training, and the weights."""
    found = [array(m(x))]
    m.set_weights([w + 0.1 for w in m.get_weights()])
    found.append(array(m(x)))
    m.compile(keras.optimizers.SGD(0.01), "mse")
    found.append(m.fit(x, y, epochs=2, batch_size=4, shuffle=False, verbose=0).history["loss"])
    m.layers[1].trainable = False
    m.compile(keras.optimizers.SGD(0.01), "mse")
    found += [m.train_on_batch(x, y), m.evaluate(x, y, verbose=0), m.predict(x, verbose=0)]
    return found + m.get_weights()


def network(name):
    """The same numbers as Keras's."""
    x, y = INPUTS[name], RNG.normal(size=(6, 5))
    found = []
    for optimize in (lambda m: m, sol.optimize):
        keras.utils.set_random_seed(1)
        found.append(results(optimize(globals()[name]()), x, y))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=CLOSE * max(1, np.abs(a).max()))


def sizes():
    """With `vdims`, on JAX one program for all batches and lengths, also in `fit`, whose last batch is smaller."""
    i = L.Input((None, 4))
    plain = keras.Model(i, L.Dense(2)(L.GRU(6)(L.Conv1D(5, 3, strides=2, padding="same")(i))))
    fast = sol.optimize(plain, RNG.normal(size=(3, 8, 4)), vdims=True)
    for batch, steps in ((3, 8), (1, 5), (6, 14)):
        x = RNG.normal(size=(batch, steps, 4))
        np.testing.assert_allclose(array(fast(x)), array(plain(x)), atol=CLOSE)
    fast.compile(keras.optimizers.SGD(0.01), "mse")
    before = fast.evaluate(x, np.ones((6, 2)), verbose=0)
    fast.fit(x, np.ones((6, 2)), batch_size=4, epochs=2, verbose=0)
    assert fast.evaluate(x, np.ones((6, 2)), verbose=0) < before
    if keras.backend.backend() == "jax":
        assert not any(len(f._programs) for f in fast._sol.functions.values())


def own():
    """A model's own states, losses, random layers, copies and files."""
    x = RNG.normal(size=(3, 6))
    plain, m = Own(), Own()
    plain(x), m(x)
    m.set_weights(plain.get_weights())
    fast = sol.optimize(m)
    assert type(fast).__name__ == "Own" and fast.trainable_variables[0] is m.trainable_variables[0]
    for _ in range(2):
        np.testing.assert_allclose(array(fast(x)), array(plain(x)), atol=CLOSE)
        np.testing.assert_allclose(array(fast.losses[0]), array(plain.losses[0]), atol=CLOSE)
        assert len(fast.losses) == 1
    assert float(array(fast.count)) == float(array(plain.count)) > 2
    made = [array(fast(x, training=True)) for _ in range(4)]
    assert any(np.abs(a - made[0]).max() > 1e-3 for a in made[1:]), "the random layer draws the same numbers again"
    fast.compile("adam", "mse")
    fast.fit(x, np.zeros((3, 2)), verbose=0)
    other = copy.deepcopy(fast)
    other.set_weights([w * 0 for w in other.get_weights()])
    assert np.abs(array(fast(x))).max() > 1e-6 and np.abs(array(other(x))).max() == 0
    model = sol.optimize(cnn())
    same = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(array(same(INPUTS["cnn"])), array(model(INPUTS["cnn"])), atol=CLOSE)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/m.keras")
        loaded = keras.models.load_model(f"{folder}/m.keras")
    np.testing.assert_allclose(array(loaded(INPUTS["cnn"])), array(model(INPUTS["cnn"])), atol=CLOSE)
    later = sol.optimize(Own())  # which its first call builds
    want = array(later(x))
    with tempfile.TemporaryDirectory() as folder:
        later.save(f"{folder}/m.keras")
        loaded = keras.models.load_model(f"{folder}/m.keras")
    np.testing.assert_allclose(array(loaded(x)), want, atol=CLOSE)
    loaded.compile("sgd", "mse")
    loaded.fit(x, np.zeros((3, 2)), verbose=0)
    assert sol.optimize(loaded).train_function is None  # that of `loaded` runs without SOL
    around = keras.Sequential([model])
    np.testing.assert_allclose(array(around(INPUTS["cnn"])), array(model(INPUTS["cnn"])), atol=CLOSE)


if __name__ == "__main__":
    if folder := os.environ.get("SOL_TEST_CACHE"):
        sol.config["cache::folder"] = folder
    {"own": own, "sizes": sizes}.get(sys.argv[1], lambda: network(sys.argv[1]))()
