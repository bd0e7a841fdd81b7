"""Operators of TensorFlow by name: results and gradients by SOL's interpreter, beside TensorFlow's. The rows make docs/operators-tensorflow.md."""

import os
from pathlib import Path

import numpy as np
import pytest
import sol
import tensorflow as tf
from operator_cases import CASES
from sol.parsed import REAL
from sol.tensorflow.operators import ROWS
from sol.tensorflow.parse import Reader

PAGE = Path(__file__).parents[2] / "docs" / "operators-tensorflow.md"
ELSEWHERE = {  # rows that other tests run
    "PreventGradient": "test_operators.py", "ResourceGather": "test_keras_layers.py", "ResourceGatherNd": "test_operators.py",
    **dict.fromkeys(
        "StatelessRandomGetAlg StatelessRandomGetKey StatelessRandomGetKeyCounter StatelessRandomNormal StatelessRandomNormalV2 "
        "StatelessRandomUniform StatelessRandomUniformV2 StatelessTruncatedNormal StatelessTruncatedNormalV2 StatelessRandomUniformInt "
        "StatelessRandomUniformIntV2 StatelessMultinomial StatelessShuffle".split(), "test_operators.py"
    ),
}  # fmt: skip
REJECTED = ("RandomStandardNormal", "RandomUniform", "RandomUniformInt", "StatefulUniform", "TruncatedNormal")
BY_READER = (
    "Assert, AssignAddVariableOp, AssignSubVariableOp, AssignVariableOp, Case, Const, If, NoOp, PartitionedCall, PrintV2, Rank, "
    "ReadVariableOp, Shape, ShapeN, Size, StatefulPartitionedCall, StatelessCase, StatelessIf, StatelessWhile, TensorListFromTensor, "
    "TensorListGetItem, TensorListLength, TensorListReserve, TensorListSetItem, TensorListStack, VariableShape, While"
)


def read(function, args):
    """The function's graph in TensorFlow, and in SOL."""
    specs = [tf.TensorSpec(a.shape, a.dtype) for a in args]
    concrete = tf.function(function, autograph=False).get_concrete_function(*specs)
    return concrete, Reader(concrete, "case", [list(a.shape) for a in args], True).run()


def interpreted(read, args):
    """Results; the gradients of the sum of real results, weighted by 0.5 to 1.5, by argument."""
    n = len(read.outputs)
    of = tuple(i for i, y in enumerate(read.outputs) if y.dtype in REAL)
    wanted = [i for i, x in enumerate(read.inputs) if x.dtype in REAL]
    shapes = [(y.shape, tf_type(y)) for y in read.outputs]
    weights = [weight(*shapes[i]) for i in of]
    reached = [False] * len(wanted)
    if of and wanted:
        reached = read.graph.differentiate(of, tuple(read.inputs[i].handle for i in wanted))
        shapes += [(args[i].shape, args[i].dtype) for i, there in zip(wanted, reached, strict=True) if there]
    results = [np.empty(s, t) for s, t in shapes]
    given = [np.ascontiguousarray(x) for x in (*args, *(weights if of and wanted else ()))]
    params = tuple(np.ascontiguousarray(s) for s in read.sources)
    read.graph.interpret(tuple(given), params, tuple(results))
    left = iter(results[n:])
    return results[:n], {i: next(left) for i, there in zip(wanted, reached, strict=True) if there}


def tf_type(y):
    from sol.tensorflow.builder import TYPE

    return TYPE[y.dtype].as_numpy_dtype


def weight(shape, dtype):
    return np.linspace(0.5, 1.5, int(np.prod(shape)), dtype=dtype).reshape(shape)


def close(got, want, what):
    want = np.asarray(want)
    eps = 1e-11 if want.dtype == np.float64 else 2e-6
    assert got.shape == want.shape and got.dtype == want.dtype, what
    if want.dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol=0, atol=eps * max(1, np.abs(want).max(initial=0)), err_msg=what)
    else:
        np.testing.assert_array_equal(got, want, what)


@pytest.mark.parametrize("name", list(CASES))
def test_operator(name):
    function, args = CASES[name]
    concrete, found = read(function, args)
    if name not in ELSEWHERE:
        assert name in {o.type for o in concrete.graph.get_operations()}
    results, gradients = interpreted(found, args)
    xs = [tf.constant(a) for a in args]
    of = [x for x in xs if x.dtype.is_floating]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(of)
        want = tf.nest.flatten(function(*xs))
        loss = sum(tf.reduce_sum(y * weight(y.shape, y.dtype.as_numpy_dtype)) for y in want if y.dtype.is_floating)
    for g, w in zip(results, want, strict=True):
        close(g, w, "result")
    for i, x in enumerate(xs):
        if x.dtype.is_floating and tf.is_tensor(loss):
            try:
                g = tape.gradient(loss, x)
            except LookupError:  # TensorFlow has no gradient of it
                continue
            g = tf.zeros_like(x) if g is None else tf.convert_to_tensor(g)
            close(gradients.get(i, np.zeros_like(args[i])), g, f"gradient {i}")


def test_random_numbers():
    """Uniform and normal numbers of a seed: the same for the same seed, of the right distribution."""

    def function(seed):
        shape, seeds = [4000], tf.cast(seed, "int32")
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seeds)
        v2 = {"shape": shape, "key": key, "counter": counter, "alg": tf.raw_ops.StatelessRandomGetAlg()}
        old = {"shape": shape, "seed": seeds}
        return (
            tf.raw_ops.StatelessRandomUniformV2(**v2), tf.raw_ops.StatelessRandomUniform(**old),
            tf.raw_ops.StatelessRandomNormalV2(**v2), tf.raw_ops.StatelessRandomNormal(**old),
        )  # fmt: skip

    made = [
        interpreted(read(function, (s,))[1], (s,))[0] for s in (np.array([1, 2]), np.array([1, 2]), np.array([3, 2]))
    ]
    for a, b, c in zip(*made, strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.abs(a - c).max() > 0.1
    for u in made[0][:2]:
        assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.03 and abs(u.std() - 12**-0.5) < 0.03
    for z in made[0][2:]:
        assert abs(z.mean()) < 0.07 and abs(z.std() - 1) < 0.07


def test_random_choices():
    """Truncated normal numbers, whole numbers, classes and permutations of a seed."""
    n, logits = 6000, np.log([[0.5, 0.2, 0.3], [0.1, 0.6, 0.3]])

    def function(seed):
        return (
            tf.random.stateless_truncated_normal([n], seed, dtype="float64"),
            tf.random.stateless_uniform([n], seed, -2, 3, "int32"),
            tf.random.stateless_categorical(logits, n, seed),
            tf.random.experimental.stateless_shuffle(tf.range(50) + tf.cast(seed[0], "int32") * 0, seed),
        )

    a, b, c = (
        interpreted(read(function, (s,))[1], (s,))[0] for s in (np.array([1, 2]), np.array([1, 2]), np.array([3, 2]))
    )
    for x, again, other in zip(a, b, c, strict=True):
        np.testing.assert_array_equal(x, again)
        assert (x != other).any()
    normal, whole, classes, order = a
    assert np.abs(normal).max() < 2 and abs(normal.mean()) < 0.04 and abs(normal.std() - 0.8796) < 0.02
    np.testing.assert_allclose(np.bincount(whole + 2) / n, 0.2, atol=0.03)
    for row, p in zip(classes, np.exp(logits), strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / n, p, atol=0.03)
    np.testing.assert_array_equal(np.sort(order), np.arange(50))
    assert (order != np.arange(50)).any()


def test_each_row_has_a_case():
    assert set(ROWS) == set(CASES) | set(ELSEWHERE) | set(REJECTED)


def test_page_of_operators():
    """docs/operators-tensorflow.md is made of the rows; SOL_UPDATE=1 writes it."""
    rows = [
        f"| `{n}` | {'rejected: draws from the generator of TensorFlow' if n in REJECTED else 'works'} |"
        for n in sorted(ROWS)
    ]
    text = (
        "# Operators of TensorFlow\n\nMade by `test/tensorflow_frontend/test_operators.py`, which compares the result and the gradients of "
        "each operator with TensorFlow's\n(in float64 where TensorFlow has it). Names are those of `tf.raw_ops`, which a graph shows; "
        "Keras and `tf.*` functions consist of them.\nOperators that are in neither list are rejected by name, with the line of the "
        "model. Operators whose operands are known when the model is\nread are computed by TensorFlow itself, so they need no row.\n\n"
        f"The reader itself handles {BY_READER}.\n\n"
        "| operator | |\n| --- | --- |\n" + "\n".join(rows) + "\n"
    )  # fmt: skip
    if os.environ.get("SOL_UPDATE"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text


def test_operators_of_variables_and_without_gradients():
    """PreventGradient and ResourceGatherNd: results alone."""
    values = np.random.default_rng(0).standard_normal((6, 5), np.float32)
    at = np.array([[1, 2], [5, 0], [3, 3]], np.int32)

    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = tf.Variable(values)

        @tf.function
        def __call__(self, i):
            return tf.raw_ops.PreventGradient(input=self.table.gather_nd(i), message="none")

    np.testing.assert_array_equal(sol.optimize(Model())(tf.constant(at)), values[at[:, 0], at[:, 1]])
