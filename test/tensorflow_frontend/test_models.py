"""Models of Keras and functions of TensorFlow: training, copies, files, functions, threads, and what is rejected."""

import concurrent.futures
import copy
import gc
import pickle
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import sol
import tensorflow as tf
from keras import layers as L
from sol import _core
from sol.tensorflow.model import is_optimized

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(8, 8, 8, 3)), RNG.normal(size=(8, 5))
F32 = {"rtol": 0, "atol": 1e-5}


def net(dtype="float32"):
    """A small network; the same parameters in each call."""
    keras.utils.set_random_seed(1)
    i = L.Input((8, 8, 3), dtype=dtype)
    y = L.ReLU(dtype=dtype)(L.BatchNormalization(dtype=dtype)(L.Conv2D(4, 3, padding="same", dtype=dtype)(i)))
    return keras.Model(i, L.Dense(5, dtype=dtype)(L.GlobalAveragePooling2D(dtype=dtype)(y)))


def both():
    return net("float64"), sol.optimize(net("float64"))


def same(got, want, atol=1e-10):
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=0, atol=atol)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_fit(optimizer):
    """The same losses, weights and statistics as TensorFlow's in float64, also with a smaller last batch."""
    found = []
    for m in both():
        m.compile(
            keras.optimizers.get({"class_name": optimizer, "config": {"learning_rate": 0.05}}), "mse", metrics=["mae"]
        )
        losses = m.fit(X, Y, epochs=3, batch_size=3, shuffle=False, verbose=0).history["loss"]
        data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(3)
        losses += m.fit(data, verbose=0).history["loss"]
        losses += m.evaluate(X, Y, verbose=0), m.train_on_batch(X, Y)
        found.append((losses, m.predict(X, verbose=0), m.get_weights()))
    (losses, predicted, weights), (got, got_predicted, got_weights) = found
    for a, b in zip(got, losses, strict=True):
        same(a, b, 1e-8)
    same(got_predicted, predicted, 1e-6 if optimizer == "adam" else 1e-10)
    if optimizer == "sgd":
        for a, b in zip(got_weights, weights, strict=True):
            same(a, b)


def test_one_program_for_all_batches():
    s = sol.optimize(net())
    for n in (3, 1, 8, 5):
        same(s(X[:n]), net()(X[:n]), 1e-5)
    (family,) = s._sol.families.values()
    assert family.fixed is None and family.net.dims[0][0] == "batch"


def test_one_program_for_all_lengths():
    """Dense reshapes a sequence by products of its shape, of which some are numbers and others vary."""
    i = L.Input((None, 5))
    m = keras.Model(i, L.Dense(3)(L.Bidirectional(L.GRU(4, return_sequences=True))(i)))
    s = sol.optimize(keras.models.clone_model(m))
    s.set_weights(m.get_weights())
    for n, t in ((2, 8), (1, 4), (5, 16), (3, 1), (2, 9)):
        x = RNG.normal(size=(n, t, 5)).astype("float32")
        same(s(x), m(x), 1e-5)
    (family,) = s._sol.families.values()
    assert family.fixed is None and len(family.net.dims) == 2


def pictures(interpolation="nearest"):
    """A U-Net of two levels: sizes of pictures are multiples of 4."""
    x = i = L.Input((None, None, 3))
    kept = []
    for n in (4, 6):
        kept.append(L.Conv2D(n, 3, padding="same", activation="relu")(x))
        x = L.MaxPool2D()(kept[-1])
    for y in reversed(kept):
        x = L.Conv2D(4, 3, padding="same")(L.Concatenate()([L.UpSampling2D(interpolation=interpolation)(x), y]))
    return keras.Model(i, x)


def test_one_program_for_all_pictures_that_fit():
    m = pictures()
    s = sol.optimize(keras.models.clone_model(m))
    s.set_weights(m.get_weights())
    for n, h, w in ((2, 8, 12), (1, 4, 4), (3, 16, 8)):
        x = RNG.normal(size=(n, h, w, 3)).astype("float32")
        same(s(x), m(x), 1e-5)
    (family,) = s._sol.families.values()
    assert family.fixed is None and [d[4] for d in family.net.dims] == [1, 4, 4]
    with pytest.raises(
        sol.InvalidError,
        match=r"argument 0: dimension 2 is 6, expected a multiple of 4: Concat.* \(test_models.py:\d+\)",
    ):
        s(np.zeros((1, 8, 6, 3), "float32"))
    same(s(x), m(x), 1e-5)


def test_fit_with_pictures_of_any_size():
    """The program is made while Keras traces its step."""
    m = pictures()
    s = sol.optimize(m)
    s.compile("sgd", "mse")
    for h in (8, 12):
        x = RNG.normal(size=(3, h, 8, 3)).astype("float32")
        s.fit(x, np.zeros((3, h, 8, 4), "float32"), batch_size=2, verbose=0)
    (family,) = s._sol.families.values()
    assert family.fixed is None and len(family.net.dims) == 3


def test_sizes_that_are_compiled_are_said():
    """Code of Keras for this resize needs numbers."""
    m = pictures("bilinear")
    s, lines = sol.optimize(keras.models.clone_model(m)), []
    s.set_weights(m.get_weights())
    _core.set_log(lambda level, line: lines.append(line))
    try:
        for h in (4, 8):
            x = RNG.normal(size=(2, h, 4, 3)).astype("float32")
            same(s(x), m(x), 1e-5)
    finally:
        _core.set_log(None)
    (line,) = [line for line in lines if "each new size is compiled" in line]
    assert "Python code of the model reads the value of a tensor" in line and "in UpSampling2D" in line, line


def test_a_model_that_works_at_no_size_is_only_an_error():
    class Rejected(keras.Model):
        def call(self, x):
            return tf.math.igamma(x, x)

    lines = []
    _core.set_log(lambda level, line: lines.append(line))
    try:
        with pytest.raises(sol.UnsupportedError, match="Igamma: SOL has no layer for it"):
            sol.optimize(Rejected())(np.zeros((3, 4, 5), "float32"))
    finally:
        _core.set_log(None)
    assert not lines


def distributed(kind):
    """TimeDistributed over any number of steps."""
    inner = {
        "cnn": lambda: keras.Sequential([keras.layers.Conv1D(3, 2), keras.layers.Flatten(), keras.layers.Dense(2)]),
        "lstm": lambda: keras.layers.LSTM(3),
        "norm": keras.layers.BatchNormalization,  # of each step in training: the steps are no examples then
    }[kind]()
    i = keras.Input((None, 4, 6))
    return keras.Model(i, keras.layers.TimeDistributed(inner)(i))


@pytest.mark.parametrize("kind", ["cnn", "lstm", "norm"])
def test_steps_of_time_distributed_may_vary(kind):
    m = distributed(kind)
    s = sol.optimize(keras.models.clone_model(m))
    s.set_weights(m.get_weights())
    for n, t in ((2, 3), (3, 1)):
        x = RNG.normal(size=(n, t, 4, 6)).astype("float32")
        same(s(x), m(x), 1e-5)
        found = []
        for model in (s, m):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x, training=True) ** 2)
            found.append(tape.gradient(loss, model.trainable_variables))
        for a, b in zip(*found, strict=True):
            same(a, b, 1e-5)
    fixed = [family.fixed is not None for family in s._sol.families.values()]
    assert fixed == [False, kind == "norm"]


def python_calls(function):
    """How many functions of Python a call runs."""
    count = 0

    def note(frame, event, arg):
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_a_call_costs_no_more_than_one_of_tensorflow():
    """A Keras model, a module's function and a function, outside of tf.function, when a call of this kind has been made before."""
    plain, fast = net(), sol.optimize(net())
    x = tf.constant(X, "float32")
    theirs = tf.function(lambda x: plain(x, training=False))
    function = sol.optimize(tf.function(lambda x: plain(x, training=False)))
    for f in (theirs, fast, function):
        f(x), f(x)
    limit = python_calls(lambda: theirs(x))
    for f in (fast, lambda x: fast(x, training=False), function):
        f(x)
        assert python_calls(lambda f=f: f(x)) < limit


def test_calls_that_were_made_before():
    """They see new weights, statistics of training, tapes, other types, masks and layers around the model."""
    plain, fast = net(), sol.optimize(net())
    x = tf.constant(X, "float32")
    for _ in range(3):
        for training in (None, False, True):
            np.testing.assert_allclose(fast(x, training=training), plain(x, training=training), **F32)
    for m in (plain, fast):
        m.set_weights([w + 0.5 for w in m.get_weights()])
    for made in (x, x[:3]):
        for _ in range(2):
            np.testing.assert_allclose(fast(made), plain(made), **F32)
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(fast(x))
    assert all(g is not None for g in tape.gradient(y, fast.trainable_variables))
    np.testing.assert_allclose(fast(X), fast(x), **F32)  # float64, which Keras casts
    around, plain_around = keras.Sequential([fast]), keras.Sequential([plain])
    for training in (True, False):  # an inner model's `training` is that of the outer one
        np.testing.assert_allclose(around(x, training=training), plain_around(x, training=training), **F32)
    with pytest.raises(ValueError, match="expected shape"):
        fast(x[:, :, :, :2])


def test_calls_again_with_losses_and_masks():
    i = L.Input((4,))
    lossy = sol.optimize(keras.Model(i, L.Dense(2, activity_regularizer="l2")(i)))
    x = tf.ones((2, 4))
    for _ in range(3):
        lossy(x)
        assert len(lossy.losses) == 1
    words = tf.constant([[1, 2, 0], [3, 0, 0]])
    embedding = sol.optimize(keras.Sequential([L.Embedding(5, 2, mask_zero=True)]))
    masked = sol.optimize(keras.Sequential([L.Input((3, 2)), L.GRU(3)]))
    for _ in range(3):
        y = embedding(words)
        np.testing.assert_array_equal(y._keras_mask, words != 0)
        masked(tf.constant(np.asarray(y)))  # without a mask, so the next call is not one that was made before
        np.testing.assert_allclose(masked(y), keras.Sequential(masked.layers)(y), rtol=0, atol=1e-6)


def test_run_eagerly():
    losses = []
    for m in both():
        m.compile("sgd", "mse", run_eagerly=True)
        losses.append(m.fit(X, Y, epochs=2, batch_size=3, shuffle=False, verbose=0).history["loss"])
    same(losses[1], losses[0])


def test_tapes():
    """A persistent tape runs forward again for its second gradient; what forward saves is freed."""
    m = net("float64")
    s = sol.optimize(m)
    with tf.GradientTape(persistent=True) as tape:
        got, want = tf.reduce_sum(s(X) ** 2), tf.reduce_sum(m(X) ** 2)
    for _ in range(2):
        for a, b in zip(
            tape.gradient(got, m.trainable_variables), tape.gradient(want, m.trainable_variables), strict=True
        ):
            same(a, b)
    del tape, got
    gc.collect()
    saved, freed, again = _core.tf_counts()
    assert saved == freed > 0 and again > 0


def test_custom_loop():
    losses = []
    for m in both():
        optimizer = keras.optimizers.SGD(0.1)

        @tf.function
        def step(x, y, m=m, optimizer=optimizer):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((m(x, training=True) - y) ** 2)
            optimizer.apply_gradients(
                zip(tape.gradient(loss, m.trainable_variables), m.trainable_variables, strict=True)
            )
            return loss

        losses.append([float(step(X, Y)) for _ in range(3)])
    same(losses[1], losses[0])


def test_files_need_no_sol(tmp_path):
    s = sol.optimize(net())
    s.compile("adam", "mse")
    s.fit(X, Y, verbose=0)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", s.predict(X, verbose=0))
    s.save(tmp_path / "m.keras")
    s.save(tmp_path / "m.h5")
    s.save_weights(tmp_path / "m.weights.h5")
    code = (
        "import keras, numpy as np, sys\nx, y = np.load('x.npy'), np.load('y.npy')\n"
        "for n in ('m.keras', 'm.h5'):\n    m = keras.models.load_model(n, compile=n != 'm.h5')\n    assert type(m).__name__ == 'Functional'\n"
        "    np.testing.assert_allclose(m.predict(x, verbose=0), y, atol=1e-5)\n"
        "m.load_weights('m.weights.h5')\nassert 'sol' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    t = sol.optimize(net())
    t.load_weights(tmp_path / "m.weights.h5")
    same(t(X), s(X), 1e-6)


def test_the_model_is_the_users():
    m = net()
    s = sol.optimize(m, sol.input([0, 8, 8, 3]))
    assert type(s).__name__ == type(m).__name__ and isinstance(s, type(m)) and s.layers == m.layers
    before = s(X)
    s.set_weights([w + 0.1 for w in s.get_weights()])
    same(s(X), m(X), 1e-5)
    assert np.abs(s(X) - before).max() > 0.01
    for v in m.trainable_variables:
        v.assign_add(tf.ones_like(v))
    same(s(X), m(X), 1e-4)
    with pytest.raises(sol.InvalidError, match="is optimized already"):
        sol.optimize(s)
    assert sol.memory(s)["params"] > 0


def test_copies():
    s = sol.optimize(net())
    for c in (copy.deepcopy(s), pickle.loads(pickle.dumps(s))):
        assert is_optimized(c)
        same(c(X), s(X), 1e-6)
        c.set_weights([w * 0 for w in c.get_weights()])
        assert np.abs(c(X) - s(X)).max() > 1e-3
    assert keras.models.clone_model(s)(X).shape == (8, 5)
    copied = sol.optimize(m := net(), copy=True)
    copied.set_weights([w * 0 for w in copied.get_weights()])
    assert np.abs(copied(X) - m(X)).max() > 1e-3


def test_frozen_layers():
    s = sol.optimize(net())
    for frozen in (True, False):
        s.layers[1].trainable = not frozen
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(s(X, training=True))
        assert len(tape.gradient(loss, s.trainable_variables)) == (4 if frozen else 6)
    assert sorted(len(f.slots) for f in s._sol.families.values()) == [4, 6]


def test_inside_of_another_model():
    i = L.Input((8, 8, 3))
    m = keras.Model(i, L.Dense(2)(sol.optimize(net())(i)))
    m.compile("sgd", "mse")
    assert np.isfinite(m.fit(X, Y[:, :2], verbose=0).history["loss"]).all()


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.drop, self.b = L.Dense(8, "relu"), L.Dropout(0.5), L.Dense(2)

    def call(self, inputs, training=False):
        h = self.a(inputs["x"])
        return {"y": self.b(self.drop(h, training=training)), "h": (h, None)}


def test_subclassed_model_and_dropout():
    """Dropout draws from the model's own seed generator: another mask in each call, the same after the same seed."""
    x = {"x": RNG.normal(size=(4, 6)).astype("float32")}
    m = Subclassed()
    m(x)
    s = sol.optimize(m, x)
    same(s(x)["y"], m(x)["y"], 1e-6)
    assert s(x)["h"][1] is None
    state = [v.numpy() for v in s.non_trainable_variables]
    first, second = s(x, training=True)["y"], s(x, training=True)["y"]
    assert np.abs(first - second).max() > 0
    for v, w in zip(s.non_trainable_variables, state, strict=True):
        v.assign(w)
    same(s(x, training=True)["y"], first, 0)


def test_losses_of_layers_and_masks():
    found = []
    for optimized in (False, True):
        keras.utils.set_random_seed(2)
        i = L.Input((10,), dtype="int32")
        y = L.LSTM(4, return_sequences=True)(L.Embedding(20, 6, mask_zero=True)(i))
        m = keras.Model(i, L.Dense(2, activity_regularizer="l2", kernel_regularizer="l2")(y))
        m = sol.optimize(m) if optimized else m
        m.compile("sgd", "mse")
        x, t = np.random.default_rng(1).integers(0, 3, (4, 10)), np.random.default_rng(1).normal(size=(4, 10, 2))
        found.append(m.fit(x, t, verbose=0, shuffle=False, epochs=2).history["loss"])
    same(found[1], found[0], 1e-5)


class Scaled(tf.Module):
    def __init__(self):
        super().__init__()
        self.w, self.calls = tf.Variable(tf.ones([4, 3])), tf.Variable(0.0, trainable=False)

    def __call__(self, x):
        self.calls.assign_add(1.0)
        return tf.nn.relu(x @ self.w)


def test_modules_and_functions(tmp_path):
    m, x = Scaled(), tf.ones([2, 4])
    s = sol.optimize(m)
    assert isinstance(s, Scaled)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(s(x))
    np.testing.assert_array_equal(tape.gradient(loss, m.w), 2 * np.ones((4, 3)))
    assert float(m.calls) == 1
    f = tf.function(lambda x: {"a": tf.tanh(x @ m.w), "b": (x, 3)})
    g = sol.optimize(f, x)
    same(g(x)["a"], f(x)["a"], 1e-6)
    assert g(x)["b"][1] == 3
    model = net()
    model.export(tmp_path / "saved", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "saved")
    same(sol.optimize(loaded.serve)(X.astype("float32")), model(X), 1e-5)


def test_threads():
    s = sol.optimize(net())
    want = net()(X)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: s(X), range(24)):
            same(got, want, 1e-5)


def test_function_on_arrays():
    m = net("float64")
    f = sol.optimize(m, X, framework="numpy")
    same(f(X), m(X))
    f.training = True
    y, back = f.vjp(X)
    with tf.GradientTape() as tape:
        want = m(X, training=True)
    same(y, want)
    found = back(np.ones_like(y)).parameters
    for v, g in zip(m.trainable_variables, tape.gradient(want, m.trainable_variables), strict=True):
        same(found[v.path], g)
    for v in m.non_trainable_variables:
        same(f.parameters[v.path], v)


# -- what is rejected


def test_rejected_arguments():
    s = sol.optimize(net())
    with pytest.raises(sol.UnsupportedError, match=r"argument 0: not supported: a RaggedTensor; convert it"):
        s(tf.ragged.constant([[1.0], [2.0, 3.0]]))
    with pytest.raises(sol.UnsupportedError, match="argument 0: not supported: data type string; prepare"):
        s(tf.constant(["a"]))
    with pytest.raises(sol.UnsupportedError, match="not supported: a SparseTensor"):
        sol.optimize(tf.function(lambda x: x))(tf.sparse.eye(3))
    with pytest.raises(sol.UnsupportedError, match="vdims"):
        sol.optimize(net(), vdims=[4])


@tf.function
def branches(v, x):
    """A branch on data; the gradient of the one that is not taken is not finite."""
    if tf.reduce_sum(x) > 0:
        y, n = tf.sqrt(x) * v, 1
    else:
        y, n = x * x - v, 2
    return y * tf.cast(n, y.dtype)


def test_branches_that_depend_on_data():
    v = tf.Variable([2.0, 3.0])

    def f(x):
        return branches(v, x)

    s = sol.optimize(f, tf.ones([2]))
    for x in (tf.constant([1.0, 4.0]), tf.constant([-1.0, 0.0])):
        found = []
        for function in (f, s):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            found.append((y, *tape.gradient(y, [x, v])))
        for got, want in zip(*found, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_one_of_several_branches():
    """By a number that a call tells; other numbers are those of the last branch. One result is a constant."""

    def f(x):
        way = tf.cast(tf.reduce_sum(x), "int32")
        return tf.switch_case(way, [lambda: x * x, lambda: tf.constant([1.0, 2.0]), lambda: tf.sqrt(x)])

    s = sol.optimize(f, tf.ones([2]))
    for sums in (0.0, 1.0, 2.0, 7.0, -3.0):
        x, found = tf.constant([sums + 5, -5.0]), []
        x = tf.abs(x) if sums in (2.0, 7.0) else x  # of which there are roots
        for function in (f, s):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            g = tape.gradient(y, x, unconnected_gradients="zero")
            found.append((y, g))
        for got, want in zip(found[1], found[0], strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_branches_that_are_rejected():
    v = tf.Variable(1.0)

    def writes(x):
        return tf.cond(tf.reduce_sum(x) > 0, lambda: v.assign(2.0), lambda: v + 1.0)

    def shapes(x):
        return tf.cond(tf.reduce_sum(x) > 0, lambda: x, lambda: x[:2])

    for f, why in ((writes, "an assignment to a variable in a branch"), (shapes, r"its result is \[3\] or \[2\]")):
        with pytest.raises(sol.UnsupportedError, match=why):
            sol.optimize(f, tf.ones([3]))


def test_rejected_operators_are_listed_with_lines():
    def f(x):
        y = tf.math.igamma(x, x)
        return tf.while_loop(lambda i: tf.reduce_sum(i) > 0, lambda i: [i - 1], [x])[0] + y + tf.random.uniform([3])

    with pytest.raises(sol.UnsupportedError) as e:
        sol.optimize(f, tf.ones([3, 3]))
    text = str(e.value)
    assert "Igamma: SOL has no layer for it" in text and "test_models.py:" in text
    assert (
        "While: a loop whose number of steps depends on data" in text
        and "RandomUniform: draws from TensorFlow's own generator" in text
    )


def test_rejected_gradients():
    @tf.custom_gradient
    def reading(x):
        return tf.identity(x), lambda d: d * float(d)

    s = sol.optimize(tf.function(lambda x: reading(x) * 2.0, autograph=False))
    x = tf.ones([])
    same(s(x), 2.0)
    with (
        tf.GradientTape() as tape,
        pytest.raises(sol.UnsupportedError, match="a gradient of its own"),
    ):
        tape.watch(x)
        s(x)
    s = sol.optimize(net())
    x = tf.constant(X)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            loss = tf.reduce_sum(s(x) ** 2)
        g = inner.gradient(loss, x)
    with pytest.raises(tf.errors.InvalidArgumentError, match="gradients of gradients"):
        outer.gradient(g, x)
    for through in (x, s.trainable_variables[0].value):
        accumulator = tf.autodiff.ForwardAccumulator(through, tf.ones_like(through))
        with pytest.raises(tf.errors.InvalidArgumentError, match="forward-mode derivatives"), accumulator:
            s(x)


def test_rejected_versions(monkeypatch):
    from sol import supported

    monkeypatch.setattr(supported, "_installed", lambda package: "2.15.0" if package == "tensorflow" else "3.15.1")
    with pytest.raises(
        sol.UnsupportedError, match=r"expected tensorflow 2\.21 and keras 3\.15, got tensorflow 2\.15\.0"
    ):
        supported.check("tensorflow", "tensorflow", "keras")


def test_example(tmp_path):
    path = Path(__file__).parents[2] / "examples" / "keras_model.py"
    done = subprocess.run([sys.executable, path], check=True, cwd=tmp_path, capture_output=True, text=True)
    assert "accuracy" in done.stdout and (tmp_path / "digits.keras").exists()


def test_profile_and_memory() -> None:
    """`sol.profile` and `sol.memory` of a Keras model. A profile in training has backward and leaves the statistics alone."""
    x = np.random.default_rng(0).normal(size=(4, 8)).astype("float32")
    model = sol.optimize(
        keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.BatchNormalization()])
    )
    profile = sol.profile(model, x, runs=2)
    assert profile.name == model.name and profile.kernels and not any(k.backward for k in profile.kernels)
    assert sol.memory(model)["params"] >= 4 * 4 * 8
    before = model.get_weights()
    assert any(k.backward for k in sol.profile(model, x, runs=2, training=True).kernels)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert sol.profile(tf.function(lambda x: tf.nn.relu(x) * 2), tf.ones((4, 4)), runs=2).kernels  # optimized first
