"""The same kind of network in every framework: convolution, batch norm with statistics, dropout that is off, two inputs, nested outputs,
an integer among them. `SOURCES[name]()` makes a model, its arguments, and what the framework itself computes: results in inference,
losses of three steps of SGD, and parameters afterwards."""

import copy
import io
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras
import numpy as np
import tensorflow as tf
import torch
from torch import nn

RATE, STEPS = 0.1, 3


class Source(NamedTuple):
    """A model, the arguments of `sol.optimize` behind it, arrays, and what the framework computes."""

    model: Any
    args: tuple[Any, ...]
    arrays: tuple[np.ndarray, np.ndarray]
    result: list[np.ndarray]
    losses: list[float]
    after: dict[str, np.ndarray]


def arrays(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    """An image batch, and a factor for each."""
    rng = np.random.default_rng(0)
    return rng.normal(size=shape).astype(np.float32), rng.normal(size=(shape[0], 1)).astype(np.float32)


def loss_of(result: Any) -> Any:
    """A loss of all results that are real."""
    logits, hidden = (result["logits"], result["hidden"][0]) if isinstance(result, dict) else result
    return (logits**2).mean() + hidden.mean()


class Torch(nn.Module):
    """The network in PyTorch."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.drop, self.last = (
            nn.Conv2d(3, 4, 3),
            nn.BatchNorm2d(4),
            nn.Dropout(0.0),
            nn.Linear(4, 5),
        )

    def forward(self, x, scale):
        h = self.drop(self.norm(self.conv(x)).relu().mean((2, 3)))
        return {"logits": self.last(h) * scale, "hidden": [h], "best": h.argmax(1)}


class Two(Torch):
    """With two results, as for ONNX."""

    def forward(self, x, scale):
        return tuple(v[0] if isinstance(v, list) else v for v in list(super().forward(x, scale).values())[:2])


def trained_by_torch(model, given):
    """Losses and parameters after three steps."""
    optimizer, losses = torch.optim.SGD(model.parameters(), RATE), []
    for _ in range(STEPS):
        loss = loss_of(model(*given))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {n: v.numpy().copy() for n, v in model.state_dict().items()}


def torch_model():
    """PyTorch."""
    data = arrays(4, 3, 8, 8)
    model, given = Torch(), tuple(map(torch.from_numpy, data))
    result = model.eval()(*given)
    leaves = [v.detach().numpy() for v in (result["logits"], result["hidden"][0], result["best"])]
    return Source(model, given, data, leaves, *trained_by_torch(copy.deepcopy(model).train(), given))


def onnx_model():
    """The model in a file, as it is in inference, and what PyTorch computes of it."""
    data = arrays(4, 3, 8, 8)
    model, given = Two().eval(), tuple(map(torch.from_numpy, data))
    file = io.BytesIO()
    batch = {"x": {0: "batch"}, "scale": {0: "batch"}}
    torch.onnx.export(
        model, given, file, dynamo=False, training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False,
        input_names=["x", "scale"], dynamic_axes=batch,
    )  # fmt: skip
    result = [v.detach().numpy() for v in model(*given)]
    losses, after = trained_by_torch(copy.deepcopy(model), given)
    used = {n: v for n, v in after.items() if "num_batches" not in n}
    return Source(file.getvalue(), data, data, result, losses, used)


def tf_loss(result):
    """The same loss in TensorFlow."""
    return tf.reduce_mean(result["logits"] ** 2) + tf.reduce_mean(result["hidden"][0])


def trained_by_tensorflow(step, variables):
    """Losses of three steps of SGD."""
    losses = []
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            loss = tf_loss(step())
        for v, g in zip(variables, tape.gradient(loss, variables), strict=True):
            v.assign_sub(RATE * g)
        losses.append(float(loss))
    return losses


def leaves_of(result):
    """The results as arrays."""
    return [np.asarray(v) for v in (result["logits"], result["hidden"][0], result["best"])]


def keras_model():
    """A functional model of Keras."""
    data = arrays(4, 8, 8, 3)
    x, scale = keras.Input((8, 8, 3)), keras.Input((1,))
    h = keras.layers.ReLU()(keras.layers.BatchNormalization()(keras.layers.Conv2D(4, 3)(x)))
    h = keras.layers.Dropout(0.0)(keras.layers.GlobalAveragePooling2D()(h))
    logits = keras.layers.Multiply()([keras.layers.Dense(5)(h), scale])
    model = keras.Model([x, scale], {"logits": logits, "hidden": [h], "best": keras.ops.cast(h > 0.5, "int32")})
    given = [tf.constant(v) for v in data]
    result, before = leaves_of(model(given)), model.get_weights()
    losses = trained_by_tensorflow(lambda: model(given, training=True), [v.value for v in model.trainable_variables])
    after = {v.path.replace("/", "."): np.asarray(v) for v in model.variables}
    after = {n: v.copy() for n, v in after.items()}
    model.set_weights(before)
    return Source(model, (given,), data, result, losses, after)


class Module(tf.Module):
    """The network in plain TensorFlow; the statistics of its norm change in every call."""

    def __init__(self):
        super().__init__("module")
        rng = np.random.default_rng(1)
        self.kernel = tf.Variable(rng.normal(size=(3, 3, 3, 4)).astype(np.float32) / 3, name="kernel")
        self.last = tf.Variable(rng.normal(size=(4, 5)).astype(np.float32), name="last")
        self.mean = tf.Variable(np.zeros(4, np.float32), trainable=False, name="mean")

    def __call__(self, x, scale):
        h = tf.nn.conv2d(x, self.kernel, 1, "VALID")
        mean, var = tf.nn.moments(h, [0, 1, 2])
        self.mean.assign(0.9 * self.mean + 0.1 * mean)
        h = tf.reduce_mean(tf.nn.relu((h - mean) * tf.math.rsqrt(var + 1e-3)), [1, 2])
        return {"logits": tf.matmul(h, self.last) * scale, "hidden": [h], "best": tf.argmax(h, 1)}


def tf_module():
    """A tf.Module."""
    data = arrays(4, 8, 8, 3)
    model, given = Module(), tuple(map(tf.constant, data))
    before = [v.numpy() for v in model.variables]
    result = leaves_of(model(*given))
    losses = trained_by_tensorflow(lambda: model(*given), list(model.trainable_variables))
    after = {v.name.partition(":")[0]: v.numpy() for v in model.variables}
    for v, value in zip(model.variables, before, strict=True):
        v.assign(value)
    return Source(model, given, data, result, losses, after)


def jax_function(params, x, scale):
    """The network in JAX, whose norm has no statistics of its own."""
    h = jax.lax.conv_general_dilated(
        x, params["conv"]["w"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    h = h + params["conv"]["b"]
    h = jax.nn.relu((h - h.mean((0, 1, 2))) * jax.lax.rsqrt(h.var((0, 1, 2)) + 1e-3)).mean((1, 2))
    return {"logits": h @ params["last"] * scale, "hidden": [h], "best": h.argmax(1)}


def jax_model():
    """A function of JAX."""
    data, rng = arrays(4, 8, 8, 3), np.random.default_rng(1)
    conv = {"w": rng.normal(size=(3, 3, 3, 4)).astype(np.float32) / 3, "b": np.zeros(4, np.float32)}
    params = jax.tree.map(jnp.asarray, {"conv": conv, "last": rng.normal(size=(4, 5)).astype(np.float32)})
    given = tuple(map(jnp.asarray, data))
    result, now, losses = leaves_of(jax_function(params, *given)), params, []
    for _ in range(STEPS):
        loss, gradients = jax.value_and_grad(lambda p: loss_of(jax_function(p, *given)))(now)
        now = jax.tree.map(lambda p, g: p - RATE * g, now, gradients)
        losses.append(float(loss))
    after = {"conv.w": now["conv"]["w"], "conv.b": now["conv"]["b"], "last": now["last"]}
    return Source(jax_function, (params, *given), data, result, losses, {n: np.asarray(v) for n, v in after.items()})


SOURCES = {"torch": torch_model, "keras": keras_model, "tf.Module": tf_module, "jax": jax_model, "onnx": onnx_model}
