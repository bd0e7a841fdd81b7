"""What users of Keras do besides `fit`, on an optimized model beside a plain one; and mistakes, each with one message."""

import copy
import gc
import subprocess
import sys

import keras
import numpy as np
import pytest
import sol
import tensorflow as tf
from keras import layers as L

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 6)).astype("float32"), RNG.normal(size=(12, 2)).astype("float32")


def net():
    keras.utils.set_random_seed(1)
    i = L.Input((6,))
    return keras.Model(i, L.Dense(2)(L.Dense(8, "relu")(i)))


def same(got, want):
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-6)


def both(run, make=net):
    """What `run` gives for the plain and for the optimized model."""
    return run(make()), run(sol.optimize(make()))


class Own(keras.Model):
    """A model with a training step of its own."""

    def __init__(self):
        super().__init__()
        self.d, self.seen = L.Dense(2), keras.metrics.Mean(name="loss")

    def call(self, x):
        return self.d(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.seen.update_state(loss)
        return {"loss": self.seen.result()}


def own():
    keras.utils.set_random_seed(1)
    m = Own()
    m(X)
    return m


def test_own_training_step():
    def run(m):
        m.compile("sgd")
        return m.fit(X, Y, epochs=3, batch_size=5, shuffle=False, verbose=0).history["loss"]

    want, got = both(run, own)
    same(got, want)


def test_callbacks_metrics_and_weights_of_samples():
    def run(m):
        m.compile(
            keras.optimizers.SGD(0.1),
            "mse",
            metrics=["mae", keras.metrics.CosineSimilarity()],
            weighted_metrics=["mse"],
        )
        calls = [
            keras.callbacks.EarlyStopping(patience=1),
            keras.callbacks.ReduceLROnPlateau(),
            keras.callbacks.TerminateOnNaN(),
        ]
        return m.fit(
            X, Y, sample_weight=np.linspace(0, 1, 12), validation_data=(X, Y), epochs=4, shuffle=False, verbose=0, callbacks=calls
        ).history  # fmt: skip

    want, got = both(run)
    assert want.keys() == got.keys()
    for k in want:
        same(got[k], want[k])


def test_two_outputs_with_losses_of_their_own():
    def make():
        keras.utils.set_random_seed(1)
        i = L.Input((6,))
        h = L.Dense(4, "tanh")(i)
        return keras.Model(i, {"a": L.Dense(2, name="a")(h), "b": L.Dense(3, "softmax", name="b")(h)})

    def run(m):
        losses = {"a": "mse", "b": "sparse_categorical_crossentropy"}
        m.compile("sgd", losses, loss_weights={"a": 0.3, "b": 2.0}, metrics={"b": "accuracy"})
        return m.fit(X, {"a": Y, "b": np.arange(12) % 3}, epochs=3, shuffle=False, verbose=0).history

    want, got = both(run, make)
    assert want.keys() == got.keys()
    for k in want:
        same(got[k], want[k])


def test_losses_of_saturated_probabilities():
    """Keras computes them from what a softmax or sigmoid was given, so that they and their gradients are right where probabilities are 0."""

    def make():
        keras.utils.set_random_seed(1)
        i = L.Input((6,))
        h = L.Dense(4)(i)
        m = keras.Model(i, {"a": L.Dense(3, "softmax", name="a")(h), "b": L.Dense(2, "sigmoid", name="b")(h)})
        m.set_weights([40 * w for w in m.get_weights()])
        return m

    def run(m):
        y = {"a": np.arange(12) % 3, "b": np.ones((12, 2))}
        m.compile(keras.optimizers.SGD(1e-3), {"a": "sparse_categorical_crossentropy", "b": "binary_crossentropy"})
        assert m.evaluate(X, y, verbose=0)[0] > 100
        found = [m.evaluate(X, y, verbose=0), m.train_on_batch(X, y), *m.get_weights()]
        loss = keras.losses.SparseCategoricalCrossentropy()
        return found + [loss(y["a"], m(tf.constant(X))["a"]) for _ in range(3)]

    want, got = both(run, make)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


class Endpoint(L.Layer):
    """A speech model's loss as a layer, as in Keras's examples."""

    def __init__(self, blank, **kwargs):
        super().__init__(**kwargs)
        self.blank = blank

    def call(self, words, y):
        n = keras.ops.sum(keras.ops.cast(words != 0, "int32"), axis=1)
        steps = keras.ops.full([keras.ops.shape(y)[0]], keras.ops.shape(y)[1] - 1)
        self.add_loss(keras.ops.mean(keras.ops.ctc_loss(words, y, n, steps, mask_index=self.blank)))
        return y


@pytest.mark.parametrize("blank", [0, 6])
def test_ctc_loss_in_a_model(blank):
    def make():
        keras.utils.set_random_seed(1)
        sounds, words = L.Input((None, 6)), L.Input((None,), dtype="int32")
        return keras.Model([sounds, words], Endpoint(blank)(words, L.Dense(7)(L.GRU(4, return_sequences=True)(sounds))))

    def run(m):
        found = []
        m.compile(keras.optimizers.SGD(0.1))
        for n, t in ((6, 14), (4, 9)):  # one program for both
            x, words = np.random.default_rng(n).normal(size=(n, t, 6)), np.random.default_rng(n).integers(1, 6, (n, 4))
            words[0, 2:] = 0
            found += m.fit([x, words], epochs=2, batch_size=4, shuffle=False, verbose=0).history["loss"]
        return [*found, *m.get_weights()]

    want, got = both(run, make)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_trainable_changes_between_steps():
    def run(m):
        found = []
        for trainable in (True, False, True):
            m.layers[1].trainable = trainable
            m.compile(keras.optimizers.SGD(0.1), "mse")
            found += [m.train_on_batch(X, Y), m.test_on_batch(X, Y)]
        return found + [w.sum() for w in m.get_weights()]

    want, got = both(run)
    same(got, want)


def test_weights_and_clones():
    s, other = sol.optimize(net()), net()
    other.set_weights([w + 1 for w in other.get_weights()])
    s.setWeights(other.weights)
    same(s(X), other(X))
    clone = keras.models.clone_model(s)
    clone.set_weights(s.get_weights())
    same(clone(X), other(X))
    same(sol.optimize(clone)(X), other(X))


@keras.saving.register_keras_serializable(package="mine")
class Registered(keras.Model):
    """A class that files name by what it is registered as."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.d = L.Dense(2)

    def call(self, x):
        return self.d(x)


def test_files_of_a_registered_class(tmp_path):
    """Also where the optimized model is a part of another one, or a copy."""
    s = sol.optimize(Registered())
    i = L.Input((6,))
    for n, m in enumerate((s, keras.Model(i, s(i)), copy.deepcopy(s))):
        want = m(X)
        m.save(tmp_path / f"{n}.keras")
        loaded = keras.models.load_model(tmp_path / f"{n}.keras")
        same(loaded(X), want)
        assert keras.saving.get_registered_name(type(m)) == keras.saving.get_registered_name(type(loaded))


@keras.saving.register_keras_serializable(package="mine")
class Built(keras.Model):
    """Makes its weights in `build`."""

    def build(self, shape):
        self.w, self.d = self.add_weight(shape=(shape[-1], 2)), L.Dense(2)
        self.d.build(shape)

    def call(self, x):
        return x @ self.w + self.d(x)


@pytest.mark.parametrize("first", ["optimized", "original"])
@pytest.mark.parametrize("make", [Built, Registered, lambda: keras.Sequential([L.Dense(3), L.Dense(2)])])
def test_a_model_that_is_built_later(make, first, tmp_path):
    """The model and the optimized one are built together, whichever is called first."""
    m = make()
    s, again = sol.optimize(m), sol.optimize(m)
    (m if first == "original" else s)(X)
    assert all(o.built and [id(v) for v in o.weights] == [id(v) for v in m.weights] for o in (s, again))
    same(s(X), m(X))
    same(again(X), m(X))
    s.compile("sgd", "mse")
    s.fit(X, Y, verbose=0)
    same(s(X), m(X))
    s.save(tmp_path / "m.keras")
    same(keras.models.load_model(tmp_path / "m.keras")(X), m(X))


def test_a_model_that_was_trained_before():
    """What Keras compiled of the original runs the original."""
    m = net()
    m.compile("sgd", "mse")
    m.fit(X, Y, verbose=0)
    m.evaluate(X, Y, verbose=0)
    m.predict(X, verbose=0)
    s = sol.optimize(m)
    assert not s.jit_compile
    for use in (lambda: s.predict(X, verbose=0), lambda: s.evaluate(X, Y, verbose=0), lambda: s.fit(X, Y, verbose=0)):
        s._sol.last = None
        use()
        assert s._sol.last is not None
    same(s(X), m(X))


def test_an_exported_model_needs_no_sol(tmp_path):
    """Another process has no operators of SOL."""
    s = sol.optimize(net())
    want = s(X)
    s.export(tmp_path / "net", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "net")
    functions = loaded.signatures["serving_default"].graph.as_graph_def().library.function
    assert not any(n.op.startswith("Sol") for f in functions for n in f.node_def)
    same(loaded.serve(X), want)
    same(sol.optimize(loaded.serve)(X), want)


class Affine(tf.Module):
    """With a method that is a tf.function, which SavedModels contain."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(X[:4, :3])

    @tf.function(input_signature=[tf.TensorSpec((None, 4))])
    def __call__(self, x):
        return tf.tanh(x @ self.w)


class Around(tf.Module):
    """A user's module with an optimized model."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    @tf.function(input_signature=[tf.TensorSpec((None, 6))])
    def __call__(self, x):
        return self.model(x)


@pytest.mark.parametrize("kind", ["keras", "module", "inside", "converter"])
def test_files_of_tensorflow_need_no_sol(kind, tmp_path):
    """The graphs that TensorFlow makes for a file are those of the original."""
    model = sol.optimize(Affine() if kind == "module" else net())
    x = X[:, :4] if kind == "module" else X
    want = model(tf.constant(x))
    if kind == "converter":
        lite = tf.lite.Interpreter(model_content=tf.lite.TFLiteConverter.from_keras_model(model).convert())
        lite.resize_tensor_input(0, x.shape)
        lite.allocate_tensors()
        lite.set_tensor(0, x)
        lite.invoke()
        same(lite.get_tensor(lite.get_output_details()[0]["index"]), want)
        return
    tf.saved_model.save(Around(model) if kind == "inside" else model, tmp_path)
    assert b"SolRun" not in (tmp_path / "saved_model.pb").read_bytes()
    loaded = tf.saved_model.load(tmp_path)
    same(loaded.signatures["serving_default"](tf.constant(x))["output_0"] if kind == "keras" else loaded(x), want)


def test_a_gradient_with_respect_to_a_result(capfd):
    """TensorFlow has one where a result is computed from another one; SOL computes both at once."""
    i = L.Input((6,))
    features = L.Dense(4, "tanh")(i)
    s = sol.optimize(keras.Model(i, [features, L.Dense(2)(features)]))
    x = tf.constant(X)
    s(x)
    assert "is computed from another one" not in capfd.readouterr().err
    with tf.GradientTape() as tape:
        a, b = s(x)
    assert tape.gradient(b, a) is None
    assert "a result is computed from another one" in capfd.readouterr().err
    with tf.GradientTape():
        sol.optimize(keras.Sequential([L.Input((6,)), L.Dense(2, activation="softmax")]))(x)
    assert "is computed from another one" not in capfd.readouterr().err  # by what its losses are computed


def test_a_tape_around_a_function_that_was_traced_before():
    """The function's graph was made when nobody wanted gradients."""

    def run(model):
        f = tf.function(lambda x: model(x) ** 2)
        x = tf.constant(X)
        f(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(f(x))
        return tape.gradient(loss, [x, *model.trainable_variables])

    for a, b in zip(*both(run), strict=True):
        same(b, a)


def test_attributes_that_are_assigned_later():
    """Normalization.adapt assigns tensors, which are no variables."""

    def make():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([L.Input((6,)), L.Normalization(), L.Dense(2)])
        model.layers[0].adapt(X + 1)
        return model

    def adapted(model):
        x, found = tf.constant(X), [model(X)]
        for scale in (1, 3):
            model.layers[0].adapt(X * scale)
            found += [model(x), model(x)]
        return found

    for a, b in zip(*both(adapted, make), strict=True):
        same(b, a)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        return X[4 * i : 4 * i + 4], Y[4 * i : 4 * i + 4]


def test_data_from_threads_and_processes():
    """Processes of Keras are forked while SOL's threads wait; functions of tf.data run beside each other."""

    def run(m):
        m.compile("sgd", "mse")
        data = Batches(workers=2, use_multiprocessing=True)
        return m.fit(data, epochs=2, shuffle=False, verbose=0).history["loss"]

    want, got = both(run)
    same(got, want)
    s = sol.optimize(net())
    data = tf.data.Dataset.from_tensor_slices(X).batch(4).map(lambda x: s(x), num_parallel_calls=2)
    same(np.concatenate(list(data)), net()(X))


def test_devices_beside_tensorflow():
    """Implementations of OpenCL contain LLVM, as TensorFlow does; each has to use its own."""
    code = "import tensorflow, sol; print([d['type'] for d in sol.devices()])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "'x86'" in done.stdout, done.stderr


def test_xla_is_left_out_with_a_warning():
    s = sol.optimize(net())
    with pytest.warns(UserWarning, match="support `jit_compile=True`"):
        s.compile("sgd", "mse", jit_compile=True)
    s.fit(X, Y, verbose=0)


class Centered(L.Layer):
    """Reads a state, or a trained variable, that it has assigned."""

    def __init__(self, trained=False):
        super().__init__()
        self.trained = trained

    def build(self, shape):
        self.mean = self.add_weight(shape=shape[-1:], initializer="zeros", trainable=self.trained)

    def call(self, x, training=False):
        if training:
            self.mean.assign(0.5 * self.mean + 0.5 * tf.reduce_mean(x, 0))
        return x - self.mean


@pytest.mark.parametrize("trained", [False, True])
def test_the_gradient_ends_at_a_state_that_was_assigned(trained):
    def gradients(optimize):
        keras.utils.set_random_seed(0)
        m = keras.Sequential([L.Input((6,)), L.Dense(5), Centered(trained), L.Dense(2)])
        m = optimize(m)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(m(X, training=True) ** 2)
        return [loss, *tape.gradient(loss, m.trainable_variables), *m.get_weights()]

    for a, b in zip(gradients(sol.optimize), gradients(lambda m: m), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


# -- mistakes


class Reads(Own):
    def call(self, x):
        return self.d(x) if float(tf.reduce_sum(x)) > 0 else self.d(-x)


class Branches(Own):
    def call(self, x):
        return self.d(x) if tf.reduce_sum(x) > 0 else self.d(-x)


@pytest.mark.parametrize("cls", [Reads, Branches])
def test_python_code_that_reads_a_tensor(cls):
    m = cls()
    m(X)
    with pytest.raises(
        sol.UnsupportedError, match=r"Python code of the model reads the value of a tensor.*\(test_users\.py:\d+\)"
    ):
        sol.optimize(m)(X)


def rejected(make, x, match):
    with pytest.raises(sol.UnsupportedError, match=match):
        sol.optimize(make())(x)


def test_states_and_types_that_sol_does_not_know():
    def on(layer, dtype):
        i = L.Input((1,), dtype=dtype)
        return lambda: keras.Model(i, layer(i))

    ids = tf.constant([[1]], "int64")
    rejected(
        on(L.IntegerLookup(vocabulary=[1, 2]), "int64"),
        ids,
        r"LookupTableFindV2: a lookup table in integer_lookup.*; look up in front of the model",
    )
    rejected(
        on(L.StringLookup(vocabulary=["a"]), "string"),
        tf.constant([["a"]]),
        "argument 0: not supported: data type string; prepare strings in front of the model",
    )
    rejected(on(L.Hashing(4), "int64"), ids, "StringToHashBucketFast: data type string")
    for policy, dtype in (("mixed_float16", "float16"), ("mixed_bfloat16", "bfloat16")):
        keras.mixed_precision.set_global_policy(policy)
        try:
            rejected(net, X, rf"data type {dtype} \(test_users\.py:\d+\).*; use float32")
        finally:
            keras.mixed_precision.set_global_policy("float32")
    with pytest.raises(sol.UnsupportedError, match=r"EagerPyFunc: Python code \(test_users\.py.*; use operators"):
        sol.optimize(lambda x: tf.py_function(lambda v: v * 2, [x], tf.float32), tf.ones([3]))


def test_prints_are_left_out(capfd):
    s = sol.optimize(tf.function(lambda x: (tf.print("the sum", tf.reduce_sum(x)), 2 * x)[1]))
    same(s(tf.constant(X)), 2 * X)
    err = capfd.readouterr().err
    assert "the sum" not in err and "tf.print prints nothing (test_users.py:" in err


def test_sparse_and_ragged_data():
    s = sol.optimize(net())
    s.compile("sgd", "mse")
    with pytest.raises(sol.UnsupportedError, match="argument 0: not supported: a SparseTensor; convert it"):
        s.fit(tf.sparse.from_dense(X), Y, verbose=0)
    with pytest.raises(sol.UnsupportedError, match="argument 0: not supported: a RaggedTensor; convert it"):
        s(tf.ragged.constant([[1.0, 2.0], [3.0]]))


def test_graphs_of_models_that_are_gone():
    f = tf.function(sol.optimize(net()).__call__)
    g = f.get_concrete_function(tf.TensorSpec([4, 6]))
    del f
    keras.backend.clear_session()
    with pytest.raises(tf.errors.OpError, match=r"does not have the optimized model|is gone"):
        gc.collect()
        g(tf.ones([4, 6]))


def test_forked_processes():
    """TensorFlow's own functions wait for ever in a forked process; SOL's models say so."""
    code = (
        "import os, sol, tensorflow as tf\n"
        "f, x = sol.optimize(tf.function(lambda x: x * 2.0)), tf.ones(3)\n"
        "f(x), f(x)\n"
        "if os.fork() == 0:\n"
        "    try: f(x)\n"
        "    except sol.UnsupportedError as e: print(e, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "a call in a forked process: not supported" in done.stdout, done.stderr


def test_several_replicas():
    """A process of its own, with two devices."""
    code = (
        "import sys; sys.path.insert(0, 'test/tensorflow_frontend')\nimport tensorflow as tf\n"
        "cpu = tf.config.list_physical_devices('CPU')[0]\n"
        "tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)\n"
        "import numpy as np, keras, sol\n"
        "with tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1']).scope():\n"
        "    s = sol.optimize(keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(2)]))\n"
        "    s.compile('sgd', 'mse')\n"
        "s.fit(np.ones((4, 6)), np.ones((4, 2)), verbose=0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "MirroredStrategy with several replicas: not supported; use one replica" in done.stderr
