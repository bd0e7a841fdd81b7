"""Networks as users of JAX write them: plain functions, Flax and Keras, under transformations, trained; what fails says why."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import sol as of_any
import sol.jax as sol

APPLICATIONS = [
    "ConvNeXtBase", "ConvNeXtLarge", "ConvNeXtSmall", "ConvNeXtTiny", "ConvNeXtXLarge", "DenseNet121", "DenseNet169", "DenseNet201",
    "EfficientNetB0", "EfficientNetB1", "EfficientNetB2", "EfficientNetB3", "EfficientNetB4", "EfficientNetB5", "EfficientNetB6",
    "EfficientNetB7", "EfficientNetV2B0", "EfficientNetV2B1", "EfficientNetV2B2", "EfficientNetV2B3", "EfficientNetV2L",
    "EfficientNetV2M", "EfficientNetV2S", "InceptionResNetV2", "InceptionV3", "MobileNet", "MobileNetV2", "MobileNetV3Large",
    "MobileNetV3Small", "NASNetLarge", "NASNetMobile", "ResNet101", "ResNet101V2", "ResNet152", "ResNet152V2", "ResNet50",
    "ResNet50V2", "VGG16", "VGG19", "Xception",
]  # fmt: skip
FAMILIES = [
    "ConvNeXtTiny", "DenseNet121", "EfficientNetB0", "EfficientNetV2B0", "InceptionResNetV2", "InceptionV3", "MobileNet", "MobileNetV2",
    "MobileNetV3Small", "NASNetMobile", "ResNet50", "ResNet50V2", "VGG16", "Xception",
]  # fmt: skip


def largest(a: Any, b: Any) -> float:
    """The largest difference of two trees."""
    return max(
        float(np.abs(np.asarray(x) - np.asarray(y)).max(initial=0))
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def groups_of_heads(q: Any, k: Any, v: Any, **options: Any) -> Any:
    """Attention of JAX's own; two heads of queries share one of keys."""
    return jax.nn.dot_product_attention(q, k[:, :, ::2], v[:, :, ::2], **options)


@pytest.mark.parametrize("heads", [jax.nn.dot_product_attention, groups_of_heads])
@pytest.mark.parametrize("options", ["", "is_causal", "mask", "bias"])
def test_attention(heads: Any, options: str) -> None:
    """jax.nn.dot_product_attention needs no memory for all scores, and its errors are JAX's."""
    keys = jax.random.split(jax.random.key(0), 6)
    length, count = 192, 4
    q, k, v = (np.asarray(jax.random.normal(key, (2, length, count, 16))) for key in keys[:3])
    extra = {
        "": {},
        "is_causal": {"is_causal": True},
        "mask": {"mask": np.asarray(jax.random.bernoulli(keys[3], 0.7, (2, 1, length, length)))},
        "bias": {"bias": np.asarray(jax.random.normal(keys[4], (1, count, length, length)))},
    }[options]

    def model(q: Any, k: Any, v: Any) -> Any:
        return heads(q, k, v, **extra)

    def exact() -> np.ndarray:
        a, b, c = (x.astype(np.float64) for x in (q, k, v))
        if heads is groups_of_heads:
            b, c = (np.repeat(x[:, :, ::2], 2, 2) for x in (b, c))
        s = np.einsum("bthd,bshd->bhts", a, b) / 4 + extra.get("bias", 0)
        keep = np.tri(length, dtype=bool) if options == "is_causal" else extra.get("mask", True)
        e = np.exp(np.where(keep, s, -np.inf))
        return np.einsum("bhts,bshd->bthd", e / e.sum(-1, keepdims=True), c)

    fast = sol.optimize(model, q, k, v)
    scores = 4 * 2 * count * length * length
    added = 0 if options != "bias" or heads is not groups_of_heads else scores  # two heads have one bias each
    assert sol.memory(fast)["workspace"] < scores / 2 + added
    ours, theirs = (np.sqrt(np.square(np.asarray(f(q, k, v)) - exact()).mean()) for f in (fast, model))
    assert ours <= 1.2 * theirs

    def loss(f: Any) -> Any:
        return lambda *a: (f(*a) ** 2).sum()

    got = jax.grad(loss(fast), argnums=(0, 1, 2))(q, k, v)
    assert largest(got, jax.grad(loss(model), argnums=(0, 1, 2))(q, k, v)) < 2e-5


def test_profile_and_memory() -> None:
    """`sol.profile` and `sol.memory` of a function, optimized or not, and of a model of another framework."""
    params, x = {"w": jnp.ones((8, 4))}, jnp.ones((2, 8))

    def model(params: Any, x: Any) -> Any:
        return jnp.tanh(x @ params["w"])

    fast = sol.optimize(model, params, x)
    assert sol.memory(fast)["params"] == 128
    with pytest.raises(sol.InvalidError, match=r"sol\.memory: expected an optimized model that was called"):
        sol.memory(sol.optimize(model))
    jax.grad(lambda p: fast(p, x).sum())(params)
    assert sol.memory(fast)["if_fast"] > 0  # that of the network with gradients
    profile = sol.profile(fast, params, x, runs=2)
    assert profile.name == "model" and profile.kernels and not any(k.backward for k in profile.kernels)
    assert sol.profile(model, params, x, runs=2).kernels
    arrays = of_any.optimize(model, params, x, framework="numpy")
    arrays.training = True
    assert any(k.backward for k in sol.profile(arrays, np.ones((2, 8), np.float32), runs=2).kernels)
    assert sol.memory(arrays)["if_fast"] > 0


def test_no_gradient_of_branches_that_are_not_taken() -> None:
    """sqrt has no finite gradient at 0, where the other branch is taken."""

    def model(c: Any, x: Any) -> Any:
        return jax.lax.switch(c, [jnp.sqrt, lambda v: v * v, lambda v: v + 1], x)

    fast, x = sol.optimize(model), jnp.array([0.0, 4.0])
    for c in range(3):
        got, want = (jax.grad(lambda x, f=f, c=c: f(jnp.asarray(c), x).sum())(x) for f in (fast, model))
        np.testing.assert_allclose(got, want, rtol=1e-6)


class MLP(nn.Module):
    """Two layers with dropout."""

    @nn.compact
    def __call__(self, x: Any, training: bool = False) -> Any:
        x = nn.relu(nn.Dense(16)(x))
        return nn.Dense(10)(nn.Dropout(0.5, deterministic=not training)(x))


class CNN(nn.Module):
    """Convolutions, a pool, a norm."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.relu(nn.GroupNorm(2)(nn.Conv(8, (3, 3))(x)))
        x = nn.avg_pool(nn.max_pool(x, (2, 2), (2, 2)), (2, 2), (2, 2))
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


class Transformer(nn.Module):
    """Embedding, one causal block, tied weights."""

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        embed = nn.Embed(13, 16)
        x = embed(tokens) + nn.Embed(32, 16)(jnp.arange(tokens.shape[1]))
        mask = nn.make_causal_mask(tokens)
        x = x + nn.MultiHeadDotProductAttention(2)(nn.LayerNorm()(x), mask=mask)
        x = x + nn.Dense(16)(nn.gelu(nn.Dense(32)(nn.LayerNorm()(x))))
        return embed.attend(nn.LayerNorm()(x))


MODELS = {
    "mlp": (MLP(), np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32), (8,)),
    "cnn": (CNN(), np.random.default_rng(1).normal(size=(4, 8, 8, 3)).astype(np.float32), (4,)),
    "transformer": (Transformer(), np.random.default_rng(2).integers(0, 13, (3, 9)), (3, 9)),
}


@pytest.mark.parametrize("name", MODELS)
def test_training(name: str) -> None:
    """Five steps with momentum inside of jit: losses and parameters are JAX's."""
    model, x, labels_shape = MODELS[name]
    labels = np.random.default_rng(3).integers(0, 10, labels_shape)
    params = model.init(jax.random.key(0), x)
    fast = sol.optimize(model.apply, params, x)
    optimizer = optax.sgd(0.1, momentum=0.9)

    def train(apply: Any) -> tuple[list[float], Any]:
        def loss(p: Any) -> Any:
            return optax.softmax_cross_entropy_with_integer_labels(apply(p, x), labels).mean()

        @jax.jit
        def step(p: Any, state: Any) -> Any:
            value, gradients = jax.value_and_grad(loss)(p)
            updates, state = optimizer.update(gradients, state)
            return optax.apply_updates(p, updates), state, value

        own, state, losses = params, optimizer.init(params), []
        for _ in range(5):
            own, state, value = step(own, state)
            losses.append(float(value))
        return losses, own

    losses, trained = train(model.apply)
    made, own = train(fast)
    np.testing.assert_allclose(made, losses, rtol=2e-5)
    assert largest(own, trained) < 2e-4
    assert largest(fast(own, x), model.apply(own, x)) < 1e-5  # other parameters, outside of jit


def test_dropout_draws_as_jax() -> None:
    """Keys are arguments, and masks are bit for bit JAX's."""
    model, x, _ = MODELS["mlp"]
    params = model.init(jax.random.key(0), x)

    def apply(p: Any, x: Any, key: Any) -> Any:
        return model.apply(p, x, training=True, rngs={"dropout": key})

    fast = sol.optimize(apply)
    for seed in range(3):
        assert largest(fast(params, x, jax.random.key(seed)), apply(params, x, jax.random.key(seed))) < 1e-6


def test_transformations() -> None:
    """jit with parameters as arguments and closed over, grad of one argument, vmap over the batch, and of gradients."""
    model, x, _ = MODELS["cnn"]
    params = model.init(jax.random.key(0), x)
    fast = sol.optimize(model.apply, params, x)
    want = model.apply(params, x)
    for f in (fast, jax.jit(fast), lambda p, x: jax.jit(lambda x: fast(p, x))(x)):
        assert largest(f(params, x), want) < 1e-5
    loss = lambda f: lambda p, x: (f(p, x) ** 2).mean()  # noqa: E731
    for n in (0, 1, (0, 1)):
        assert largest(jax.grad(loss(fast), n)(params, x), jax.grad(loss(model.apply), n)(params, x)) < 1e-4
    many = np.stack([x, 2 * x, -x])
    over = (None, 0)
    assert largest(jax.vmap(fast, over)(params, many), jax.vmap(model.apply, over)(params, many)) < 1e-5
    each = jax.vmap(jax.grad(loss(fast)), over)(params, many)
    assert largest(each, jax.vmap(jax.grad(loss(model.apply)), over)(params, many)) < 1e-4


def test_gradients_that_gradients_do_not_depend_on() -> None:
    """First-order meta learning: a step of gradient descent inside of the loss, as constants; differentiated through, it is rejected."""
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    params = {"w": jnp.linspace(-1, 1, 12).reshape(3, 4)}

    def model(p: Any, x: Any) -> Any:
        return jnp.tanh(x @ p["w"])

    def adapted(apply: Any, stop: Any) -> Any:
        def loss(p: Any) -> Any:
            return (apply(p, x) ** 2).mean()

        return jax.grad(lambda p: loss(jax.tree.map(lambda a, b: a - 0.1 * stop(b), p, jax.grad(loss)(p))))

    fast = sol.optimize(model)
    want = adapted(model, jax.lax.stop_gradient)(params)
    for wrap in (lambda f: f, jax.jit):
        assert largest(wrap(adapted(fast, jax.lax.stop_gradient))(params), want) < 1e-6
        with pytest.raises(sol.UnsupportedError, match="a gradient of a gradient"):
            wrap(adapted(fast, lambda v: v))(params)


def test_other_shapes_types_and_static_arguments() -> None:
    """Traced again, as by jit."""

    def function(x: Any, n: int, *, shift: Any = 0.0, mode: str = "sum") -> Any:
        return {"y": (getattr(jnp, mode)(x**n) + shift, x[:0])}

    fast = sol.optimize(function, static_argnums=1, static_argnames="mode")
    for x in (jnp.arange(5.0), jnp.ones((2, 3)), jnp.arange(4), 2.5 * jnp.ones(0)):
        for n in (2, 3):
            got, want = fast(x, n, shift=1, mode="sum"), function(x, n, shift=1, mode="sum")
            assert jax.tree.structure(got) == jax.tree.structure(want)
            assert largest(got["y"][0], want["y"][0]) < 1e-5
            assert got["y"][0].dtype == want["y"][0].dtype
    assert largest(fast(jnp.arange(3.0), 2, mode="mean"), function(jnp.arange(3.0), 2, mode="mean")) < 1e-6


def test_what_fails_says_why() -> None:
    """One message each."""
    f = sol.optimize(lambda x: jnp.sin(x).sum())
    x = jnp.ones(3)
    with pytest.raises(sol.UnsupportedError, match=r"jax\.jvp, jax\.jacfwd and jax\.hessian: not supported"):
        jax.jvp(f, (x,), (x,))
    with pytest.raises(sol.UnsupportedError, match="a gradient of a gradient"):
        jax.jacrev(jax.grad(f))(x)
    with pytest.raises(sol.InvalidError, match="0: expected an array of numbers, got str; name it in static_argnums"):
        f("text")
    with pytest.raises(sol.InvalidError, match="0: expected an array of numbers, got an array of type <U4; name it"):
        f(np.array(["text"]))
    with pytest.raises(
        sol.UnsupportedError, match=r"3 things in this model are not supported:(.|\n)*complex64(.|\n)*igamma"
    ) as e:
        sol.optimize(lambda x: jnp.abs(x + 1j) + jax.scipy.special.gammainc(x, x), x)
    assert "test_jax_models.py" in str(e.value)
    with pytest.raises(sol.UnsupportedError, match="the number of steps of a loop depends on data"):
        sol.optimize(lambda x: jax.lax.while_loop(lambda v: v.sum() < 9, lambda v: v * 2, x), x)


def test_python_code_in_a_function(capfd: Any) -> None:
    """Prints are left out, with a line in the log; callbacks are rejected."""
    x = jnp.ones(3)

    def prints(x: Any) -> Any:
        jax.debug.print("the sum is {}", x.sum())
        return 2 * x

    np.testing.assert_array_equal(sol.optimize(prints)(x), 2 * x)
    np.testing.assert_array_equal(jax.grad(lambda x: sol.optimize(prints)(x).sum())(x), 2 * x)
    err = capfd.readouterr()
    assert "the sum is" not in err.out and "jax.debug prints nothing (" in err.err and "test_jax_models.py" in err.err
    with pytest.raises(sol.UnsupportedError, match=r"pure_callback: Python code \(.*test_jax_models.*; use operations"):
        sol.optimize(lambda x: jax.pure_callback(lambda v: v, x, x), x)


def test_programs_outlive_the_function_and_end_with_it() -> None:
    """A compiled program of XLA holds the network that it calls."""
    x = jnp.arange(4.0)
    f = sol.optimize(lambda x: x * 3 + 1, x)
    compiled = jax.jit(f).lower(x).compile()
    del f
    gc.collect()
    assert largest(compiled(x), x * 3 + 1) == 0


def test_parameters_that_change_in_place() -> None:
    """Arrays of NumPy are read anew in each call; arrays of JAX are prepared once."""
    fast = sol.optimize(lambda p, x: x @ p["w"])
    params, x = {"w": np.ones((3, 2), np.float32)}, jnp.ones((4, 3))
    assert float(fast(params, x)[0, 0]) == 3
    params["w"][:] = 2
    assert float(fast(params, x)[0, 0]) == 6


def test_threads() -> None:
    """Several threads call one function with parameters of their own."""
    model, x, _ = MODELS["mlp"]
    fast = sol.optimize(model.apply)
    wrong: list[float] = []

    def work(seed: int) -> None:
        params = model.init(jax.random.key(seed), x)
        want, run = model.apply(params, x), jax.jit(fast)
        wrong.extend(largest(f(params, x), want) for _ in range(20) for f in (fast, run))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(wrong) == 160
    assert max(wrong) < 1e-5


def test_as_a_function_on_arrays() -> None:
    """framework="numpy"; sol.optimize finds JAX by the type of an argument."""
    import sol as any_framework

    weights = jnp.linspace(-1, 1, 300).reshape(3, 100)
    f = lambda x: jnp.tanh(x @ weights).sum(1)  # noqa: E731
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    assert isinstance(any_framework.optimize(f, jnp.asarray(x)), sol.Function)
    net = any_framework.optimize(f, jnp.asarray(x), framework="numpy")
    y, back = net.vjp(x)
    assert largest(y, f(x)) < 1e-4
    assert largest(back(np.ones(4, np.float32)).arguments, jax.grad(lambda x: f(x).sum())(x)) < 1e-4


def application(*arguments: str) -> list[float]:
    """What application.py prints. Each network has a process of its own."""
    script = os.path.join(os.path.dirname(__file__), "application.py")
    done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [float(number) for number in done.stdout.splitlines()[-1].split()]


@pytest.mark.slow
@pytest.mark.parametrize("name", APPLICATIONS)
def test_keras_applications(name: str) -> None:
    """Each network of keras.applications with Keras on JAX: at most twice JAX's own error in float32, 1e-10 of JAX's logits in float64."""
    ours, theirs, ours_exact = application(name)
    assert ours <= max(2 * theirs, 1e-6) and ours_exact <= 1e-10, (ours, theirs, ours_exact)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_training_of_keras_applications(name: str) -> None:
    """Two steps of `fit` in float64: losses, weights and statistics are JAX's."""
    assert application(name, "train")[0] < 1e-8


@pytest.mark.parametrize(
    ("backend", "framework", "message"),
    [
        ("numpy", None, "Sequential: a model of Keras on numpy: not supported; set KERAS_BACKEND=tensorflow"),
        ("jax", "numpy", "Sequential: a model of Keras on JAX in another framework: not supported; give a function"),
    ],
)
def test_models_of_keras_are_rejected(backend: str, framework: str | None, message: str) -> None:
    """On backends without a frontend, and where its variables would be constants."""
    code = "import keras, numpy, sol\nmodel = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(2)])\n"
    code += f"sol.optimize(model, numpy.ones((2, 6), 'float32'), framework={framework!r})"
    environment = {**os.environ, "KERAS_BACKEND": backend}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert message in done.stderr, done.stderr


def test_a_function_of_jax_names_the_users_line() -> None:
    """What SOL cannot translate is deep in JAX's own code."""

    def net(x: Any) -> Any:
        return jax.random.gamma(jax.random.key(0), jnp.abs(x))

    line = net.__code__.co_firstlineno + 1
    with pytest.raises(
        sol.UnsupportedError, match=rf"random_gamma: SOL has no row for this primitive \(.*test_jax_models.py:{line}\)"
    ):
        sol.optimize(net, jnp.ones(3))


def test_a_branch_on_data_names_the_function() -> None:
    """JAX's error is about the user's function and its line."""

    def relu(w: Any, x: Any) -> Any:
        return x @ w if x.sum() > 0 else x

    with pytest.raises(jax.errors.TracerBoolConversionError, match=r"the function relu at \S*test_jax_models.py"):
        sol.optimize(relu, jnp.ones((3, 3)), jnp.ones((2, 3)))
