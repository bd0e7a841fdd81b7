"""Every case of cases.py by the interpreter, in float64: results and gradients equal JAX's. A few are compiled, too."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sol.jax as sol
from cases import CASES
from sol.jax.function import Call
from sol.jax.network import Described

EXACT = 1e-11  # of the largest number, in float64
COMPILED = (
    "attention",
    "conv NHWC SAME (2, 3)",
    "x.at[i].add",
    "scan",
    "custom_jvp",
    "sort by keys",
    "bits of integers",
)


def error(got: Any, want: Any) -> float:
    """The largest difference, relative to the largest finite number; infinities and NaN must be the same."""
    g, w = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert g.shape == w.shape
    finite = np.isfinite(w)
    np.testing.assert_array_equal(g[~finite], w[~finite])
    g, w = np.where(finite, g, 0), np.where(finite, w, 0)
    return float(np.abs(g - w).max(initial=0) / max(np.abs(w).max(initial=0), 1))


def real(x: Any) -> bool:
    """Whether it holds real numbers."""
    return bool(jnp.issubdtype(jnp.asarray(x).dtype, jnp.floating))


def weights_of(want: Any) -> list[Any]:
    """What results are weighted by in a loss: an array for each real one."""
    return [jnp.linspace(0.5, 1.5, y.size).reshape(y.shape) for y in map(jnp.asarray, jax.tree.leaves(want)) if real(y)]


def loss(function: Any, weights: Any) -> Any:
    """A function's real results with weights, as one number."""

    def value(*args: Any) -> Any:
        leaves = [y for y in jax.tree.leaves(function(*args)) if real(y)]
        return sum(jnp.sum(y * w) for y, w in zip(leaves, weights, strict=True))

    return value


def interpreted(function: Any, args: tuple[Any, ...], weights: list[Any]) -> tuple[list[Any], dict[int, Any]]:
    """The results, and the gradients of the loss by argument, without generated code."""
    fast = sol.optimize(function)
    call = Call(fast, args, {})
    traced = fast.traced(call)
    wanted = tuple(i for i, x in enumerate(args) if real(x))
    there = Described("case", traced, [], wanted if weights and wanted else None)
    results = [np.empty(r.shape, r.dtype) for r in (*there.results, *there.gradients)]
    inputs = [np.ascontiguousarray(x) for x in (*args, *(weights if there.of else ()))]
    there.graph.interpret(tuple(inputs), tuple(there.constants), tuple(results))
    n = len(there.results)
    return results[:n], dict(zip(there.reached, results[n:], strict=True))


@pytest.fixture(autouse=True)
def _x64() -> Any:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    """Results and gradients by the interpreter."""
    function, given = CASES[name]
    args = tuple(map(jnp.asarray, given))
    want = function(*args)
    weights = weights_of(want)
    made, gradients = interpreted(function, args, weights)
    for g, w in zip(made, map(jnp.asarray, jax.tree.leaves(want)), strict=True):
        assert g.dtype == w.dtype
        assert error(g, w) < EXACT
    for i, x in enumerate(args):
        if real(x) and weights:
            expected = jax.grad(loss(function, weights), i)(*args)
            assert error(gradients.get(i, np.zeros(x.shape)), expected) < EXACT


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str) -> None:
    """A function alone, inside of jit, and its gradient there and outside."""
    function, given = CASES[name]
    args = tuple(map(jnp.asarray, given))
    want = function(*args)
    fast = sol.optimize(function, *args)
    for made in (fast(*args), jax.jit(fast)(*args)):
        assert jax.tree.structure(made) == jax.tree.structure(want)
        for g, w in zip(jax.tree.leaves(made), jax.tree.leaves(want), strict=True):
            assert g.dtype == w.dtype
            assert error(g, w) < EXACT
    weights = weights_of(want)
    wanted = tuple(i for i, x in enumerate(args) if real(x))
    if wanted and weights:
        expected = jax.grad(loss(function, weights), wanted)(*args)
        for derive in (jax.grad(loss(fast, weights), wanted), jax.jit(jax.grad(loss(fast, weights), wanted))):
            for g, w in zip(derive(*args), expected, strict=True):
                assert error(g, w) < EXACT
