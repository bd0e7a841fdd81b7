"""What test_tensorflow_native.py runs in a process of its own, because TensorFlow takes devices before its first tensor only: programs on tensors of
`tf.device("SOL:0")`, beside the processor. Called with names of cases, it prints a line of JSON for each: its name, and what failed."""

import json
import sys
import traceback

import keras
import numpy as np
import sol
import sol.tensorflow.native as native
import tensorflow as tf
from keras import layers as L
from operator_cases import CASES

CPU, SOL, OTHER = "CPU:0", "SOL:0", "SOL:1"
RNG = np.random.default_rng(0)


def strict(on):
    """Whether an operator without a kernel is an error, or runs on the processor."""
    tf.config.set_soft_device_placement(not on)


def fails(function, *parts):
    """The message of the error that a call ends with, which names these parts."""
    try:
        function()
    except Exception as e:
        missing = [p for p in parts if p not in str(e)]
        assert not missing, f"{missing} not in {type(e).__name__}: {e}"
        return type(e).__name__
    raise AssertionError(f"no error that names {parts}")


def devices():
    assert [d.name for d in tf.config.list_physical_devices("SOL")] == [
        "/physical_device:SOL:0",
        "/physical_device:SOL:1",
    ]
    assert [d.name for d in tf.config.list_logical_devices("SOL")] == ["/device:SOL:0", "/device:SOL:1"]
    assert (tf.ones([3]) + 1).device.endswith(SOL), "without tf.device, as with a GPU"
    assert len(native.NAMES) == 2 and set(native.counts(1)) >= {"waits", "writes", "reads", "runs", "bytes"}
    fails(lambda: native.counts(2), "SOL:2", "there are 2")


def copies():
    for dtype in ("float32", "float64", "int64", "uint8", "bool", "int16"):
        for shape in ((), (0,), (1,), (3, 0, 2), (5, 7)):
            value = (RNG.uniform(0, 9, shape)).astype(dtype)
            with tf.device(SOL):
                t = tf.identity(tf.constant(value))
            with tf.device(OTHER):
                u = tf.identity(t)
            with tf.device(CPU):
                v = tf.identity(u)
            assert [x.device[-5:] for x in (t, u, v)] == [SOL, OTHER, CPU], (dtype, shape)
            for x in (t, u, v):
                np.testing.assert_array_equal(x.numpy(), value)


def arithmetic():
    strict(True)
    before = native.counts(0)
    for shapes in (((3, 5), (5,)), ((), ()), ((1,), (7,)), ((2, 1, 3), (4, 1)), ((0, 3), (3,)), ((17,), (17,))):
        a, b = (RNG.normal(size=s).astype("float32") for s in shapes)
        with tf.device(SOL):
            got = tf.exp(tf.constant(a)) * 2 - tf.constant(b) / 3 + tf.cast(tf.constant(a) > tf.constant(b), "float32")
            assert got.device.endswith(SOL)
        np.testing.assert_allclose(got.numpy(), np.exp(a) * 2 - b / 3 + (a > b), rtol=1e-6, atol=1e-6)
    with tf.device(SOL):
        assert tf.reduce_sum(tf.constant(2.0)).numpy() == 2 and tf.reduce_max(tf.ones([2, 3]), []).shape == (2, 3)
        x = tf.constant(np.array([np.nan, np.inf, -np.inf, 0], "float32"))
        np.testing.assert_array_equal((x + 1).numpy(), [np.nan, np.inf, -np.inf, 1])
        np.testing.assert_array_equal((tf.constant([1, 2]) + tf.constant([3, 4])).numpy(), [4, 6])
    assert native.counts(0)["runs"] > before["runs"]


def variables():
    strict(True)
    with tf.device(SOL):
        v = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
        v.assign(v + 1)
        v.assign_add([[1.0, 1.0], [0.0, 0.0]])
        v.assign_sub(tf.ones([2, 2]))
        assert v.device.endswith(SOL)
        np.testing.assert_array_equal(v.numpy(), [[2, 3], [3, 4]])
        np.testing.assert_array_equal(tf.gather(v, [1, 0]).numpy(), [[3, 4], [2, 3]])
        np.testing.assert_array_equal(tf.gather_nd(v, [[1, 0]]).numpy(), [3])
        fails(
            lambda: tf.raw_ops.AssignAddVariableOp(resource=v.handle, value=tf.ones([2, 2])),
            "AssignAddVariableOp",
            "exports no function",
        )


def missing():
    """By name, or on the processor."""
    with tf.device(SOL):
        strict(True)
        x = tf.constant([[2.0, 4.0], [2.0, 4.0]])
        one = tf.ones([2, 2])
        fails(lambda: tf.math.zeta(x, one), "Zeta", "device")
        fails(lambda: tf.raw_ops.TensorListStack(input_handle=tf.raw_ops.EmptyTensorList(
            element_shape=[1], max_num_elements=2, element_dtype=tf.float32), element_shape=[1], element_dtype=tf.float32,
            num_elements=-1), "TensorListStack", "not supported on device SOL")  # fmt: skip
        fails(lambda: tf.raw_ops.StridedSliceGrad(shape=[4], begin=[0], end=[4], strides=[2], dy=tf.ones([2])),
              "StridedSliceGrad", "a step other than 1", "tf.device('CPU:0')")  # fmt: skip
        strict(False)
        y = tf.math.zeta(x, one)
        assert y.device.endswith(CPU)
        np.testing.assert_allclose(y.numpy(), [[np.pi**2 / 6, np.pi**4 / 90]] * 2, rtol=1e-6)
    fails(lambda: x + tf.constant([1.0, 2.0, 3.0]), "shape")


def functions():
    """tf.function: branches, loops, gradients, both devices."""
    strict(False)

    @tf.function
    def f(x, n):
        for _ in tf.range(n):
            x = tf.where(x > 0, x * 0.5, -x)
        with tf.device(OTHER):
            y = tf.reduce_sum(x)
        return x, tf.cond(y > 1, lambda: y + 1, lambda: y - 1)

    a = RNG.normal(size=(4, 3)).astype("float32")
    with tf.device(CPU):
        want = [t.numpy() for t in f(tf.constant(a), 3)]
    with tf.device(SOL):
        for got, w in zip(f(tf.constant(a), 3), want, strict=True):
            np.testing.assert_allclose(got.numpy(), w, rtol=1e-6)
        x = tf.constant(a)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.nn.softmax(x) * x)
        got = tape.gradient(y, x)
    with tf.device(CPU), tf.GradientTape() as tape:
        x = tf.constant(a)
        tape.watch(x)
        y = tf.reduce_sum(tf.nn.softmax(x) * x)
    np.testing.assert_allclose(got.numpy(), tape.gradient(y, x).numpy(), atol=1e-6)


def memory():
    """Memory that runs out is an error; smaller tensors go on. The device has 64 MB (test_tensorflow_native.py)."""
    with tf.device(SOL):
        assert fails(lambda: tf.zeros([1 << 26]) + 1, "OOM") == "ResourceExhaustedError"
        np.testing.assert_array_equal((tf.zeros([8]) + 1).numpy(), np.ones(8))


def late():
    import sol.tensorflow.native

    assert sol.tensorflow.native is native  # a second import changes nothing


# -- training


def mlp():
    return keras.Sequential([L.Input((12,)), L.Dense(16, "relu"), L.Dense(8, "tanh"), L.Dense(3)])


def cnn():
    return keras.Sequential(
        [L.Input((8, 8, 3)), L.Conv2D(6, 3, padding="same", activation="relu"), L.BatchNormalization(), L.MaxPooling2D(2),
         L.DepthwiseConv2D(3), L.AveragePooling2D(2), L.Flatten(), L.Dropout(0.2), L.Dense(3)]
    )  # fmt: skip


def trained(make, shape, where, optimizer=keras.optimizers.Adam, eagerly=False, optimize=False):
    """Losses of three epochs, predictions, and what evaluate says."""
    strict(False)
    keras.utils.set_random_seed(3)
    x, y = np.random.default_rng(1).normal(size=(20, *shape)).astype("float32"), np.arange(20) % 3
    with tf.device(where):
        model = make()
        model = sol.optimize(model) if optimize else model
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(
            optimizer(), loss, metrics=["accuracy"], run_eagerly=eagerly, jit_compile=False
        )  # XLA draws others
        seen = model.fit(x, y, epochs=3, batch_size=8, verbose=0, shuffle=False).history["loss"]
        assert {v.value.device[-5:] for v in model.variables} == {where}
        return seen, model.predict(x, verbose=0), model.evaluate(x, y, verbose=0)


def same_training(*args, **kwargs):
    before = native.counts(0)["runs"]
    got, want = trained(*args, SOL, **kwargs), trained(*args, CPU, **{**kwargs, "optimize": False})
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-6)
    assert native.counts(0)["runs"] > before


def fit_mlp():
    same_training(mlp, (12,))


def fit_cnn():
    same_training(cnn, (8, 8, 3))


def fit_eagerly():
    same_training(mlp, (12,), eagerly=True)


def fit_sgd():
    same_training(mlp, (12,), optimizer=lambda: keras.optimizers.SGD(0.1, momentum=0.9))


def embedding():
    def make():
        return keras.Sequential([L.Input((12,)), L.Lambda(lambda x: tf.cast(tf.abs(x) * 2, "int32")), L.Embedding(20, 6),
                                 L.LayerNormalization(), L.GlobalAveragePooling1D(), L.Dense(3, "gelu")])  # fmt: skip

    same_training(make, (12,))


def optimized():
    """A model of sol.optimize takes and gives tensors of a device."""
    strict(False)
    x = RNG.normal(size=(5, 12)).astype("float32")
    with tf.device(SOL):
        plain = mlp()
        want = plain(tf.constant(x)).numpy()
        got = sol.optimize(plain)(tf.constant(x))
        np.testing.assert_allclose((got * 1).numpy(), want, atol=2e-6)
    same_training(mlp, (12,), optimize=True)


def failing():
    """A failure of the device (far.fail_at, test_tensorflow_native.py) is a message, and later work goes on."""
    with tf.device(SOL):
        x = tf.constant(np.ones(8, "float32"))

        def work():
            for _ in range(60):
                (x + 1).numpy()

        fails(work, "far:0")
        np.testing.assert_array_equal((x + 1).numpy(), 2 * np.ones(8))


# -- operators


def operator(name):
    """What an operator of the table does on a device; a text of several words: what is wrong."""
    function, args = CASES[name]
    strict(True)
    with tf.device(CPU):
        want = tf.nest.flatten(function(*map(tf.constant, args)))
    try:
        with tf.device(SOL):
            got = tf.nest.flatten(function(*map(tf.constant, args)))
        for g, w in zip(got, want, strict=True):
            eps = 1e-11 if w.dtype == tf.float64 else 2e-6
            scale = max(1, np.abs(w.numpy().astype("float64")).max(initial=0))
            np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=0, atol=eps * scale)
    except Exception as e:
        if "Could not satisfy" in str(e):
            return "processor"
        return "rejected" if "not supported on device" in str(e) else f"{name}: {e}"
    return "works"


def operators():
    """What each operator does."""
    return {name: operator(name) for name in CASES}


if __name__ == "__main__":
    for case in sys.argv[1:]:
        try:
            keras.utils.set_random_seed(0)
            result = {"case": case, "error": "", "result": globals()[case]()}
        except BaseException:
            result = {"case": case, "error": traceback.format_exc(), "result": None}
        print(json.dumps(result), flush=True)
