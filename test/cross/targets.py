"""How a model is used in each framework: `TARGETS[name](net, arrays)` returns the results in inference, the losses of three steps of SGD,
and the parameters afterwards, by names with dots. `arrays` are the arguments, nested as the source's call has them."""

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
import torch
from sol.parsed import flatten, plain, rebuild
from sources import RATE, STEPS, loss_of, trained_by_tensorflow, trained_by_torch


def each(tree, function):
    """The same structure with other leaves."""
    return rebuild(tree, [function(v) for v in flatten(tree)])


def leaves(result):
    """The tensors of a result as arrays, in their order."""
    values = [result["logits"], result["hidden"][0], result["best"]] if isinstance(result, dict) else list(result)
    return [np.asarray(v.detach() if isinstance(v, torch.Tensor) else v) for v in values]


def in_torch(net, arrays):
    """A torch.nn.Module."""
    given = each(arrays, torch.from_numpy)
    result = leaves(net.eval()(*given))
    return result, *trained_by_torch(net.train(), given)


def in_tensorflow(net, arrays):
    """A Keras model."""
    given = each(arrays, tf.constant)
    result = leaves(net(*given))
    step = tf.function(lambda: net(*given, training=True), autograph=False)
    as_dict = lambda r: r if isinstance(r, dict) else {"logits": r[0], "hidden": [r[1]]}  # noqa: E731
    losses = trained_by_tensorflow(lambda: as_dict(step()), [v.value for v in net.trainable_variables])
    return result, losses, {v.name: np.asarray(v) for v in net.variables}


def in_jax(net, arrays):
    """A function with parameters, under jit and grad."""
    given = each(arrays, jnp.asarray)
    result, now, losses = leaves(jax.jit(net)(net.parameters, *given)), net.parameters, []

    @jax.jit
    def step(parameters):
        def loss(trained):
            result, new = net.train({**parameters, **trained}, *given)
            return loss_of(result), new

        trained = {n: parameters[n] for n in net.trained}
        (value, new), gradients = jax.value_and_grad(loss, has_aux=True)(trained)
        return {**new, **{n: trained[n] - RATE * g for n, g in gradients.items()}}, value

    for _ in range(STEPS):
        now, value = step(now)
        losses.append(float(value))
    return result, losses, {plain(n): np.asarray(v) for n, v in now.items()}


def in_numpy(net, arrays):
    """A function on arrays."""
    result, losses = leaves(net(*arrays)), []
    net.training = True
    for _ in range(STEPS):
        result_now, back = net.vjp(*arrays)
        logits, hidden = (
            result_now[:2] if isinstance(result_now, tuple) else (result_now["logits"], result_now["hidden"][0])
        )
        losses.append(float((logits**2).mean() + hidden.mean()))
        d = [2 * logits / logits.size, np.full_like(hidden, 1 / hidden.size)]
        more = [] if isinstance(result_now, tuple) else [None]
        order = (
            sorted(range(3), key=lambda i: list(result_now).index(("logits", "hidden", "best")[i])) if more else [0, 1]
        )
        gradients = back(*[[*d, *more][i] for i in order]).parameters
        for n, g in gradients.items():
            net.parameters[n] -= RATE * g
    return result, losses, {plain(n): v.copy() for n, v in net.parameters.items()}


TARGETS = {"pytorch": in_torch, "tensorflow": in_tensorflow, "jax": in_jax, "numpy": in_numpy}
