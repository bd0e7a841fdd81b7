"""Recurrent layers of Keras with any mask: one layer of SOL; results and gradients are TensorFlow's in float64."""

import itertools

import keras
import numpy as np
import pytest
import sol
import tensorflow as tf
from keras import layers as L

N, T, I, H = 5, 7, 4, 3
STEP = np.arange(T)[None]
MASKS = {
    "right": np.array([7, 3, 1, 0, 5])[:, None] > STEP,
    "left": np.array([0, 3, 1, 7, 5])[:, None] <= STEP,
    "holes": np.random.default_rng(3).random((N, T)) > 0.5,
}
FAST = {
    ("LSTM", (True, False, False, True)),
    ("GRU", (False, True, True, False)),
    ("SimpleRNN", (True, True, True, True)),
}
CASES = list(itertools.product(("LSTM", "GRU", "SimpleRNN"), itertools.product((False, True), repeat=4)))


def model(kind, sequences, backwards, zero, given):
    """A layer that takes its mask, and its states if they are `given`, and gives its output and its states."""
    i, mask = L.Input((T, I)), L.Input((T,), dtype="bool")
    states = [L.Input((H,)) for _ in range(2 if kind == "LSTM" else 1)] if given else None
    rnn = getattr(L, kind)(
        H, return_sequences=sequences, go_backwards=backwards, zero_output_for_mask=zero, return_state=True
    )
    m = keras.Model([i, mask, *(states or [])], rnn(i, mask=mask, initial_state=states))
    rng = np.random.default_rng(1)
    for v in m.variables:
        v.assign(rng.normal(0, 0.5, v.shape))
    return m


def run(m, args):
    """Results and gradients."""
    xs = [tf.constant(a) for a in args]
    of = [x for x in xs if x.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(of)
        ys = tf.nest.flatten(m(xs))
        loss = sum(tf.reduce_sum(y * tf.reshape(tf.range(tf.size(y), dtype=y.dtype), y.shape)) for y in ys)
    return [*ys, *tape.gradient(loss, of + m.trainable_variables)]


@pytest.mark.parametrize(
    ("kind", "how"), [c if c in FAST else pytest.param(*c, marks=pytest.mark.slow) for c in CASES]
)  # how: (sequences, backwards, zeros where there is no step, given states)
def test_masks(kind, how):
    keras.config.set_floatx("float64")
    m = model(kind, *how)
    s = sol.optimize(m)
    rng = np.random.default_rng(2)
    for mask in MASKS.values():
        args = [rng.normal(size=(N, T, I)), mask, *(rng.normal(size=(N, H)) for _ in m.inputs[2:])]
        for got, want in zip(run(s, args), run(m, args), strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-12 * max(1, np.abs(want).max()))
    (family,) = s._sol.families.values()
    assert family.fixed is None  # one program for all batches
    assert [o.type for o in family._trace.graph.get_operations()].count("SolLayer") == 1


def test_masked_stack_learns():
    """A masked, bidirectional GRU on an LSTM with dropout: the losses of `fit` are TensorFlow's."""
    x, y = np.random.default_rng(1).integers(0, 9, (12, 10)), np.random.default_rng(2).normal(size=(12, 2))
    losses = []
    for optimized in (False, True):
        keras.utils.set_random_seed(3)
        i = L.Input((None,), dtype="int32")
        h = L.LSTM(4, return_sequences=True, dropout=0.0)(L.Embedding(9, 6, mask_zero=True)(i))
        m = keras.Model(i, L.Dense(2)(L.Bidirectional(L.GRU(3))(h)))
        m = sol.optimize(m) if optimized else m
        m.compile(keras.optimizers.SGD(0.5), "mse")
        losses.append(m.fit(x, y, batch_size=5, epochs=3, shuffle=False, verbose=0).history["loss"])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
