"""All networks of keras.applications against TensorFlow: logits in float64, the error of float32, and a training step of a few."""

import keras
import numpy as np
import pytest
import sol
import tensorflow as tf

NAMES = [n for n in dir(keras.applications) if isinstance(getattr(keras.applications, n), type(lambda: 0))]
SMALL = {"MobileNetV2": {"alpha": 0.35}, "MobileNet": {"alpha": 0.25}}
# of variances: logits are 1e5 to 1e7 otherwise, and changing the picture or the weights by a rounding changes them by 3e-11 to 3e-8
DEEP = {"EfficientNetV2M": 8.0, "EfficientNetV2S": 8.0}
PIXELS = 96  # the least that all of them take is 75
# TensorFlow takes 10 s for the gradient of one of its depthwise convolutions in float64 at 96, SOL 1.5 s for a whole step
LESS = {"ConvNeXtTiny": 32}
FAMILIES = (
    "ConvNeXtTiny", "DenseNet121", "EfficientNetB0", "EfficientNetV2B0", "InceptionResNetV2", "InceptionV3", "MobileNet", "MobileNetV2",
    "MobileNetV3Small", "NASNetMobile", "ResNet50", "ResNet50V2", "VGG16", "Xception",
)  # fmt: skip
SLOW = pytest.mark.slow


def model(name, dtype, pixels=PIXELS):
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)  # the first layer of a process made one of the type that it had then
    keras.utils.set_random_seed(0)
    make = getattr(keras.applications, name)
    m = make(
        weights=None, classifier_activation=None, input_shape=(pixels, pixels, 3), classes=10, **SMALL.get(name, {})
    )
    rng = np.random.default_rng(0)
    for v in m.variables:
        if "moving_variance" in v.path:
            v.assign(rng.uniform(0.5, 1.5, v.shape) * DEEP.get(name, 1.0))
        elif "moving_mean" in v.path:
            v.assign(rng.normal(0, 0.1, v.shape))
    return m


@pytest.mark.parametrize("name", [n if n == "MobileNetV2" else pytest.param(n, marks=SLOW) for n in NAMES])
def test_logits(name):
    """float64: 1e-10 of TensorFlow's; float32: at most twice TensorFlow's own error."""
    m = model(name, "float64")
    x = np.random.default_rng(1).uniform(0, 1, (1, *m.input_shape[1:]))
    want = np.asarray(m(x))
    got = np.asarray(sol.optimize(m)(x))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-10 * np.abs(want).max())
    f = model(name, "float32")
    assert f.compute_dtype == "float32" and m.compute_dtype == "float64"
    f.set_weights([w.astype("float32") for w in m.get_weights()])
    m.set_weights(f.get_weights())
    exact = np.asarray(m(x.astype("float32")))
    theirs = np.abs(np.asarray(f(x)) - exact).max()
    ours = np.abs(np.asarray(sol.optimize(f)(x)) - exact).max()
    assert ours <= max(2 * theirs, 1e-6 * np.abs(exact).max()), (ours, theirs)


@pytest.mark.parametrize("name", [n if n == "MobileNetV2" else pytest.param(n, marks=SLOW) for n in FAMILIES])
def test_training_step(name):
    """A step of SGD in float64: losses, weights and statistics are TensorFlow's."""
    found = []
    for optimized in (False, True):
        m = model(name, "float64", LESS.get(name, PIXELS))
        for layer in m._flatten_layers():
            if isinstance(layer, keras.layers.Dropout):
                layer.rate = 0.0
        m = sol.optimize(m) if optimized else m
        x, y = (
            np.random.default_rng(2).normal(size=(4, *m.input_shape[1:])),
            np.random.default_rng(3).normal(size=(4, 10)),
        )
        m.compile(keras.optimizers.SGD(1e-3), "mse")
        losses = [m.train_on_batch(x, y) for _ in range(2)]
        found.append((losses, m.get_weights()))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-8)
    for a, b in zip(found[1][1], found[0][1], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-8 * max(1, np.abs(b).max()))


def test_there_are_forty():
    assert len(NAMES) >= 38 and tf.__version__
