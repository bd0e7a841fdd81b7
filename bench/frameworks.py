#!/usr/bin/env python3
"""Compares SOL with TensorFlow's or JAX's own ways to run a Keras model, untuned: one process, calls by turns, medians.

make bench-tensorflow                        eager Keras, tf.function and XLA (jit_compile=True) beside SOL in a tf.function
make bench-jax                               jax.jit beside SOL in jax.jit
make bench-tensorflow NETWORKS="MobileNetV2 LSTM" ARGS="--train --threads 1"
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NETWORKS = ["MobileNetV2", "ResNet50", "EfficientNetB0", "DenseNet121", "ConvNeXtTiny", "VGG16", "LSTM", "transformer"]
Run = Callable[[], Any]


def make(name: str) -> Any:
    """A network of keras.applications, an LSTM over 64 steps, or an encoder of four layers over 128 tokens."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    if name == "LSTM":
        i = keras.Input((64, 128))
        return keras.Model(i, layers.Dense(10)(layers.LSTM(256)(i)))
    if name == "transformer":
        i = h = keras.Input((128, 256))
        for _ in range(4):
            n = layers.LayerNormalization()(h)
            h = layers.Add()([h, layers.MultiHeadAttention(4, 64)(n, n)])
            n = layers.LayerNormalization()(h)
            h = layers.Add()([h, layers.Dense(256)(layers.Dense(1024, "gelu")(n))])
        return keras.Model(i, layers.Dense(10)(layers.GlobalAveragePooling1D()(h)))
    return getattr(keras.applications, name)(weights=None, classifier_activation=None)


def data(model: Any, batch: int) -> tuple[Any, Any]:
    """Random arguments, and what the results should be."""
    import numpy as np

    rng = np.random.default_rng(1)
    x = rng.normal(size=(batch, *model.input_shape[1:])).astype("float32")
    return x, rng.normal(size=(batch, model.output_shape[-1])).astype("float32")


def tensorflow(name: str, batch: int, train: bool) -> dict[str, Callable[[], Run]]:
    """The ways to run a model in TensorFlow. A training step is forward, the mean of squares, backward, and SGD."""
    import keras
    import sol
    import tensorflow as tf

    def prepared(optimized: bool, wrap: Callable[[Any], Any]) -> Run:
        model = make(name)
        x, y = map(tf.constant, data(model, batch))
        model = sol.optimize(model) if optimized else model
        optimizer = keras.optimizers.SGD(1e-3)
        optimizer.build(model.trainable_variables)

        def step(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        run = wrap(step if train else lambda x, y: model(x, training=False))
        return lambda: run(x, y).numpy()

    return {
        "sol": lambda: prepared(True, tf.function),
        "eager": lambda: prepared(False, lambda f: f),
        "function": lambda: prepared(False, tf.function),
        "xla": lambda: prepared(False, lambda f: tf.function(f, jit_compile=True)),
    }


def jax(name: str, batch: int, train: bool) -> dict[str, Callable[[], Run]]:
    """The same in JAX."""
    import jax
    import sol.jax

    def prepared(optimized: bool) -> Run:
        model = make(name)
        x, y = map(jax.numpy.asarray, data(model, batch))
        weights = [v.value for v in model.trainable_variables]
        rest = [v.value for v in model.non_trainable_variables]

        def forward(weights: Any, rest: Any, x: Any) -> Any:
            return model.stateless_call(weights, rest, x, training=train)

        f = sol.jax.optimize(forward) if optimized else forward
        if not train:
            run = jax.jit(lambda x: f(weights, rest, x)[0])
            return lambda: run(x).block_until_ready()

        def loss(weights: Any, rest: Any) -> Any:
            out, rest = f(weights, rest, x)
            return ((out - y) ** 2).mean(), rest

        @jax.jit
        def step(weights: Any, rest: Any) -> Any:
            (value, rest), gradients = jax.value_and_grad(loss, has_aux=True)(weights, rest)
            return value, [w - 1e-3 * g for w, g in zip(weights, gradients, strict=True)], rest

        state = [weights, rest]

        def run_step() -> Any:
            value, *state[:] = step(*state)
            return value.block_until_ready()

        return run_step

    return {"sol": lambda: prepared(True), "jit": lambda: prepared(False)}


def measure(systems: dict[str, Callable[[], Run]], turns: int, seconds: float) -> dict[str, float]:
    """Milliseconds: the medians of calls by turns. A system that takes long has fewer turns."""
    runs = {}
    for name, prepare in systems.items():
        runs[name] = prepare()
        for _ in range(2):
            runs[name]()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(turns):
        for name, run in runs.items():
            if sum(times[name]) > seconds and len(times[name]) > 2:
                continue
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(t) * 1e3 for name, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=["tensorflow", "jax"])
    parser.add_argument("networks", nargs="*", help=", ".join(NETWORKS) + ", or another of keras.applications")
    parser.add_argument("--train", action="store_true", help="steps of training instead of inference")
    parser.add_argument("--batch", type=int, help="1; in training 8")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=4, help="of one system with one network, at most")
    a = parser.parse_args()
    os.environ |= {"KERAS_BACKEND": a.framework, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": str(a.threads)}
    os.environ.setdefault("SOL_AUTOTUNE", "off")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: a.threads])  # XLA has no other limit
    sys.path.insert(0, str(HERE.parent / "python"))
    import sol

    sol.config["threads"], sol.config["log::level"] = a.threads, "WARN"
    batch = a.batch or (8 if a.train else 1)
    print(f"{'a step of training' if a.train else 'inference'}, batch {batch}, {a.threads} threads; milliseconds")
    ratios: list[dict[str, float]] = []
    for network in a.networks or NETWORKS:
        found = measure(
            {"tensorflow": tensorflow, "jax": jax}[a.framework](network, batch, a.train), a.turns, a.seconds
        )
        ratios.append({n: t / found["sol"] for n, t in found.items() if n != "sol"})
        cells = "".join(f"{n} {t:.2f}  " for n, t in found.items())
        print(f"{network:16}{cells}" + "  ".join(f"x {n} {r:.2f}" for n, r in ratios[-1].items()), flush=True)
    for n in ratios[0]:
        mean = math.exp(sum(math.log(r[n]) for r in ratios) / len(ratios))
        print(f"geometric mean: {mean:.2f} x {n}")


if __name__ == "__main__":
    main()
