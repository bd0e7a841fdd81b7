"""Layers of Keras: results, gradients and states against TensorFlow's in float64. The rows make docs/layers-keras.md."""

import os
from pathlib import Path

import keras
import numpy as np
import pytest
import sol
import tensorflow as tf
from keras import layers as L

PAGE = Path(__file__).parents[2] / "docs" / "layers-keras.md"
SEQ, IMAGE, VOLUME, IDS = (6, 4), (6, 6, 4), (4, 4, 4, 2), "ids"
ACTIVATIONS = (
    "celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_tanh leaky_relu linear log_sigmoid log_softmax mish relu "
    "relu6 selu sigmoid silu softmax soft_shrink softplus softsign sparse_plus sparsemax squareplus tanh tanh_shrink"
).split()  # fmt: skip

CASES = {  # layer: (shape of the input, the layer on it)
    "ActivityRegularization": (SEQ, lambda i: L.ActivityRegularization(0.1)(i)),
    "Add": (SEQ, lambda i: L.Add()([i, L.Dense(4)(i)])),
    "AdditiveAttention": (SEQ, lambda i: L.AdditiveAttention()([i, L.Dense(4)(i)])),
    "AlphaDropout": (SEQ, lambda i: L.AlphaDropout(0.0)(i)),
    "Attention": (SEQ, lambda i: L.Attention()([i, L.Dense(4)(i)])),
    "Average": (SEQ, lambda i: L.Average()([i, L.Dense(4)(i)])),
    "AveragePooling1D": (SEQ, lambda i: L.AveragePooling1D(2, padding="same")(i)),
    "AveragePooling2D": (IMAGE, lambda i: L.AveragePooling2D(3, 2, padding="same")(i)),
    "BatchNormalization": (IMAGE, lambda i: L.BatchNormalization()(i)),
    "Bidirectional": (SEQ, lambda i: L.Bidirectional(L.LSTM(3, return_sequences=True))(i)),
    "CategoryEncoding": (
        IDS,
        lambda i: L.Dense(3)(L.CategoryEncoding(10, "one_hot")(i) + L.CategoryEncoding(10, "multi_hot")(i)[:, None]),
    ),
    "Concatenate": (SEQ, lambda i: L.Concatenate()([i, L.Dense(3)(i)])),
    "Conv1D": (SEQ, lambda i: L.Conv1D(5, 3, padding="causal", dilation_rate=2)(i)),
    "Conv1DTranspose": (SEQ, lambda i: L.Conv1DTranspose(3, 3, 2)(i)),
    "Conv2D": (IMAGE, lambda i: L.Conv2D(6, 3, 2, padding="same", groups=2)(i)),
    "Conv2D, dilated": (IMAGE, lambda i: L.Conv2D(5, 3, padding="same", dilation_rate=2)(i)),
    "Conv2DTranspose": (IMAGE, lambda i: L.Conv2DTranspose(3, 3, 2, padding="same")(i)),
    "Conv3D": (VOLUME, lambda i: L.Conv3D(3, 3, padding="same")(i)),
    "Conv3DTranspose": (VOLUME, lambda i: L.Conv3DTranspose(2, 2, 2)(i)),
    "ConvLSTM1D": ((3, 5, 2), lambda i: L.ConvLSTM1D(2, 3)(i)),
    "ConvLSTM2D": ((3, 5, 5, 2), lambda i: L.ConvLSTM2D(2, 3, padding="same")(i)),
    "Cropping1D": (SEQ, lambda i: L.Cropping1D(1)(i)),
    "Cropping2D": (IMAGE, lambda i: L.Cropping2D(((1, 0), (2, 1)))(i)),
    "Cropping3D": (VOLUME, lambda i: L.Cropping3D(1)(i)),
    "Dense": (SEQ, lambda i: L.Dense(3, "relu")(i)),
    "DepthwiseConv1D": (SEQ, lambda i: L.DepthwiseConv1D(3)(i)),
    "DepthwiseConv2D": (IMAGE, lambda i: L.DepthwiseConv2D(3, 2, depth_multiplier=2)(i)),
    "Dot": (SEQ, lambda i: L.Dot(2, normalize=True)([i, L.Dense(4)(i)])),
    "Dropout": (SEQ, lambda i: L.Dropout(0.0)(i)),
    "EinsumDense": (SEQ, lambda i: L.EinsumDense("abc,cd->abd", (None, 5), bias_axes="d")(i)),
    "Embedding": (IDS, lambda i: L.Embedding(10, 4)(i)),
    "Flatten": (IMAGE, lambda i: L.Dense(3)(L.Flatten()(i))),
    "GaussianDropout": (SEQ, lambda i: L.GaussianDropout(0.0)(i)),
    "GaussianNoise": (SEQ, lambda i: L.GaussianNoise(0.0)(i)),
    "GlobalAveragePooling1D": (SEQ, lambda i: L.GlobalAveragePooling1D()(i)),
    "GlobalAveragePooling2D": (IMAGE, lambda i: L.GlobalAveragePooling2D()(i)),
    "GlobalAveragePooling3D": (VOLUME, lambda i: L.GlobalAveragePooling3D()(i)),
    "GlobalMaxPooling1D": (SEQ, lambda i: L.GlobalMaxPooling1D()(i)),
    "GlobalMaxPooling2D": (IMAGE, lambda i: L.GlobalMaxPooling2D()(i)),
    "GlobalMaxPooling3D": (VOLUME, lambda i: L.GlobalMaxPooling3D()(i)),
    "GroupNormalization": (IMAGE, lambda i: L.GroupNormalization(2)(i)),
    "GroupQueryAttention": (SEQ, lambda i: L.GroupQueryAttention(3, 4, 2)(i, i)),
    "GRU": (SEQ, lambda i: L.GRU(3, return_sequences=True)(i)),
    "GRU, reset before": (SEQ, lambda i: L.GRU(3, reset_after=False)(i)),
    "Identity": (SEQ, lambda i: L.Identity()(L.Dense(3)(i))),
    "Lambda": (SEQ, lambda i: L.Lambda(lambda x: x * 2)(i)),
    "LayerNormalization": (IMAGE, lambda i: L.LayerNormalization(axis=[1, 2])(i)),
    "LeakyReLU": (SEQ, lambda i: L.LeakyReLU(0.2)(i)),
    "LSTM": (SEQ, lambda i: L.LSTM(3)(i)),
    "LSTM, masked": (IDS, lambda i: L.LSTM(3)(L.Embedding(10, 4, mask_zero=True)(i))),
    "LSTM, backwards": (SEQ, lambda i: L.LSTM(3, return_sequences=True, go_backwards=True)(i)),
    "Masking": (SEQ, lambda i: L.GlobalAveragePooling1D()(L.Masking()(i))),
    "Maximum": (SEQ, lambda i: L.Maximum()([i, L.Dense(4)(i)])),
    "MaxPooling1D": (SEQ, lambda i: L.MaxPooling1D(2)(i)),
    "MaxPooling2D": (IMAGE, lambda i: L.MaxPooling2D(3, 2, padding="same")(i)),
    "Minimum": (SEQ, lambda i: L.Minimum()([i, L.Dense(4)(i)])),
    "MultiHeadAttention": (SEQ, lambda i: L.MultiHeadAttention(2, 3)(i, i)),
    "MultiHeadAttention, causal": (SEQ, lambda i: L.MultiHeadAttention(2, 3)(i, i, use_causal_mask=True)),
    "Multiply": (SEQ, lambda i: L.Multiply()([i, L.Dense(4)(i)])),
    "Normalization": (SEQ, lambda i: L.Normalization(mean=[1.0] * 4, variance=[2.0] * 4)(i)),
    "Permute": (SEQ, lambda i: L.Permute((2, 1))(i)),
    "PReLU": (SEQ, lambda i: L.PReLU()(i)),
    "ReLU": (SEQ, lambda i: L.ReLU(6, 0.1, 0.2)(i)),
    "RepeatVector": ((4,), lambda i: L.RepeatVector(3)(i)),
    "Rescaling": (SEQ, lambda i: L.Rescaling(2.0, 1.0)(i)),
    "Reshape": (SEQ, lambda i: L.Reshape((-1, 2))(i)),
    "Resizing": (IMAGE, lambda i: L.Resizing(3, 9, "nearest")(i)),
    "RMSNormalization": (SEQ, lambda i: L.RMSNormalization()(i)),
    "SeparableConv1D": (SEQ, lambda i: L.SeparableConv1D(5, 3)(i)),
    "SeparableConv2D": (IMAGE, lambda i: L.SeparableConv2D(5, 3)(i)),
    "SimpleRNN": (SEQ, lambda i: L.SimpleRNN(3)(i)),
    "Softmax": (SEQ, lambda i: L.Softmax()(i)),
    "SpatialDropout1D": (SEQ, lambda i: L.SpatialDropout1D(0.0)(i)),
    "SpatialDropout2D": (IMAGE, lambda i: L.SpatialDropout2D(0.0)(i)),
    "SpectralNormalization": (IMAGE, lambda i: L.SpectralNormalization(L.Conv2D(3, 3))(i)),
    "Subtract": (SEQ, lambda i: L.Subtract()([i, L.Dense(4)(i)])),
    "TimeDistributed": ((3, 5, 5, 2), lambda i: L.TimeDistributed(L.Conv2D(3, 3))(i)),
    "UnitNormalization": (SEQ, lambda i: L.UnitNormalization()(i)),
    "UpSampling1D": (SEQ, lambda i: L.UpSampling1D(2)(i)),
    "UpSampling2D": (IMAGE, lambda i: L.UpSampling2D(2)(i)),
    "UpSampling3D": (VOLUME, lambda i: L.UpSampling3D(2)(i)),
    "ZeroPadding1D": (SEQ, lambda i: L.ZeroPadding1D((1, 2))(i)),
    "ZeroPadding2D": (IMAGE, lambda i: L.ZeroPadding2D(((2, 1), (0, 3)))(i)),
    "ZeroPadding3D": (VOLUME, lambda i: L.ZeroPadding3D(1)(i)),
    **{f"Activation, {a}": ((8,), lambda i, a=a: L.Activation(a)(L.Dense(6)(i))) for a in ACTIVATIONS},
}
SAMPLE = (
    "BatchNormalization", "Conv1D", "Conv2D", "Conv2DTranspose", "DepthwiseConv2D", "Embedding", "GRU", "LayerNormalization", "LSTM",
    "MaxPooling2D", "Masking", "MultiHeadAttention", "Resizing", "UpSampling2D", "Activation, gelu",
)  # fmt: skip
SLOW = pytest.mark.slow


def made(case):
    """The model, with random parameters, and its argument."""
    shape, layer = case[:2]
    rng = np.random.default_rng(0)
    i = L.Input((6,), dtype="int32") if shape == IDS else L.Input(shape)
    model = keras.Model(i, layer(i))
    for v in model.variables:
        if v.dtype == "float64" and "seed" not in v.path:
            positive = v.path.endswith(("variance", "gamma", "scale"))
            v.assign(rng.uniform(0.5, 1.5, v.shape) if positive else rng.normal(0, 0.3, v.shape))
    x = rng.integers(0, 10, (3, 6)).astype("int32") if shape == IDS else rng.normal(size=(3, *shape))
    return model, x


def gradients(model, x, dy):
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        if x.dtype.is_floating:
            tape.watch(x)
        y = model(x, training=True)
        loss = tf.reduce_sum(y * dy) + sum(model.losses)
    of = ([x] if x.dtype.is_floating else []) + model.trainable_variables
    return y, [None if g is None else tf.convert_to_tensor(g) for g in tape.gradient(loss, of)]


def close(got, want, what):
    scale = max(1.0, float(np.abs(want).max())) if np.size(want) else 1.0
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12 * scale, err_msg=what)


@pytest.mark.parametrize("name", [n if n in SAMPLE else pytest.param(n, marks=SLOW) for n in CASES])
def test_layer(name):
    keras.config.set_floatx("float64")
    model, x = made(CASES[name])
    s = sol.optimize(model)
    want = model(x)
    close(s(x), want, "result")
    close(s(x[:1]), model(x[:1]), "result for another batch")
    dy = np.random.default_rng(1).normal(size=want.shape)
    before = model.get_weights()
    y, want_gradients = gradients(model, x, dy)
    after = model.get_weights()
    model.set_weights(before)
    got, got_gradients = gradients(s, x, dy)
    close(got, y, "result of training")
    for g, w, v in zip(got_gradients[::-1], want_gradients[::-1], model.trainable_variables[::-1], strict=False):
        assert (g is None) == (w is None), v.path
        if g is not None:
            close(g, w, f"gradient of {v.path}")
    for got_state, want_state, v in zip(s.get_weights(), after, model.weights, strict=True):
        if "seed" not in v.path:
            close(got_state, want_state, f"state {v.path}")


def test_page_of_layers():
    """docs/layers-keras.md is made of the rows; SOL_UPDATE=1 writes it."""
    rows = [f"| {n} | works |" for n in CASES]
    text = (
        "# Layers of Keras\n\nMade by `test/tensorflow_frontend/test_keras_layers.py`, which compares each layer's results, gradients and states with "
        "TensorFlow's in float64.\nOther layers work if TensorFlow computes them with operators that SOL knows; the others are rejected "
        "by name.\n\n| layer | |\n| --- | --- |\n" + "\n".join(sorted(rows, key=str.lower)) + "\n"
    )
    if os.environ.get("SOL_UPDATE"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text
