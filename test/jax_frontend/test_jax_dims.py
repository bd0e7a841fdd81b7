"""Functions of JAX with sizes that vary: one program for all, in inference and training, and what has a program of its own."""

from __future__ import annotations

from typing import Any

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sol as any_framework
import sol.jax as sol
from test_jax_models import CNN, MLP, Transformer, largest

RNG = np.random.default_rng(0)


def real(*shape: int) -> Any:
    """Numbers to compute with."""
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def compiled(f: Any) -> list[tuple[int, ...] | None]:
    """The networks for all sizes, by the arguments whose gradients they have. There are no others."""
    families = [e.program for e in f._families._entries.values()]
    assert not len(f._programs)
    assert all(not len(family.traced._sized) for family in families)
    return [wanted for family in families for wanted in family.traced._networks]


def agrees(plain: Any, f: Any, *args: Any, tolerance: float = 2e-4) -> None:
    """Results on arrays and within jit, and gradients of all real arguments, are JAX's."""
    want = plain(*args)
    for made in (f(*args), jax.jit(f)(*args)):
        assert [y.shape for y in jax.tree.leaves(made)] == [y.shape for y in jax.tree.leaves(want)]
        assert largest(made, want) < tolerance
    wanted = tuple(i for i, a in enumerate(args) if all(np.asarray(x).dtype.kind == "f" for x in jax.tree.leaves(a)))

    def gradients(function: Any) -> Any:
        loss = lambda *a: sum((y * y).mean() for y in jax.tree.leaves(function(*a)))  # noqa: E731
        return jax.jit(jax.grad(loss, wanted))(*args)

    assert largest(gradients(f), gradients(plain)) < tolerance


MODELS: dict[str, Any] = {
    "mlp": (MLP(), lambda n: real(n, 12), (8, 1, 3, 33, 100)),
    "transformer": (
        Transformer(),
        lambda s: jnp.asarray(RNG.integers(0, 13, s)),
        ((3, 9), (1, 1), (2, 32), (5, 7), (1, 16)),
    ),
    "cnn": (CNN(), lambda n: real(n, 8, 8, 3), (4, 1, 2, 9, 17)),
}


@pytest.mark.parametrize("name", MODELS)
def test_one_program_serves_all_sizes(name: str) -> None:
    """Flax models, forward and backward."""
    model, sample, (first, *others) = MODELS[name]
    params = model.init(jax.random.key(0), sample(first))
    f = sol.optimize(model.apply, params, sample(first), vdims=True)
    for size in (first, *others):
        agrees(model.apply, f, params, sample(size))
    assert len(compiled(f)) == 2


def convolution(w: Any, x: Any) -> Any:
    """Two levels, whose parts must fit."""
    layout = ("NHWC", "HWIO", "NHWC")
    a = jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout))
    b = jax.lax.reduce_window(a, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return a + jnp.repeat(jnp.repeat(b, 2, 1), 2, 2)


def test_height_and_width_are_multiples() -> None:
    """Of the numbers that the function needs; other sizes have a program of their own, or are the function's own error."""
    w = {"w": real(3, 3, 3, 3)}

    def net(p: Any, x: Any) -> Any:
        return convolution(p["w"], x)

    f = sol.optimize(net, w, real(2, 8, 12, 3), vdims=True)
    for n, height, width in ((1, 8, 8), (3, 2, 16), (2, 32, 4)):
        agrees(net, f, w, real(n, height, width, 3))
    assert len(compiled(f)) == 2
    with pytest.raises(TypeError, match="incompatible shapes for broadcasting"):
        f(w, real(1, 7, 8, 3))


def test_comparisons_of_the_users_code() -> None:
    """JAX says that sizes are different if they may be; where they are not, a program of its own says what the function does."""

    def net(x: Any) -> Any:
        return x.sum(0) * (2 if x.shape[0] == 3 else 1) + (x.shape[0] != x.shape[1])

    f = sol.optimize(net, real(5, 4), vdims=True)
    for n, m in ((5, 4), (4, 4), (3, 4), (6, 2), (3, 3)):
        x = real(n, m)
        assert largest(f(x), net(x)) < 1e-5
    assert len(f._programs) == 3


def backwards(p: Any, x: Any) -> Any:
    """A scan from the end, with two states and two lists of results: pieces, a concatenation, a choice, relu, sums."""

    def step(carry: Any, row: Any) -> Any:
        h, s = carry
        i, f = jnp.split(jax.nn.sigmoid(jnp.concatenate([row, h], 1) @ p["w"]), 2, axis=-1)
        s = f * s + i * jax.nn.relu(row)
        h = jnp.where(s > 0.1, jnp.tanh(s), h)
        return (h, s), (h * 2, s.sum(1))

    start = jnp.zeros((x.shape[0], 4)), jnp.ones((x.shape[0], 4))
    return jax.lax.scan(step, start, jnp.swapaxes(x, 0, 1), reverse=True)


def counted(p: Any, x: Any) -> Any:
    """Positions, a counter, a size as a number, a table, a state that stays, and no list of results."""
    table = jnp.asarray(np.linspace(-1, 1, 4), jnp.float32)

    def step(carry: Any, t: Any) -> Any:
        i, h, kept = carry
        return (i + 1, h * 0.5 + (x.mean(1) @ p["w"][:4, :4] + table) * (i - t / 2) / x.shape[0], kept), None

    return jax.lax.scan(step, (0, jnp.zeros((x.shape[0], 4)), x[:, 0]), jnp.arange(x.shape[1]))[0][1:]


@pytest.mark.parametrize("net", [backwards, counted])
def test_steps_of_a_scan_vary(net: Any) -> None:
    """A scan is a loop, whatever its number of steps."""
    p = {"w": real(8, 8) / 4}
    f = sol.optimize(net, p, real(3, 5, 4), vdims=True)
    for n, steps in ((3, 5), (1, 2), (2, 1), (5, 40)):
        agrees(net, f, p, real(n, steps, 4))
    assert len(compiled(f)) == 2


def test_steps_vary_where_a_body_has_more() -> None:
    """What is no part of the notation, but does not depend on the step before, is computed ahead of the loop."""
    table = real(9, 4)

    def recurrent(w: Any, i: Any) -> Any:
        keys = jax.random.split(jax.random.key(3), i.shape[0])

        def step(h: Any, now: Any) -> Any:
            at, key = now
            h = jnp.tanh(h @ w + table[at]) * jax.random.bernoulli(key, 0.8, h.shape)
            return h, h

        return jax.lax.scan(step, jnp.zeros((2, 4)), (i, keys))[1]

    def ids(n: int) -> Any:
        return jnp.asarray(RNG.integers(0, 9, (n, 2)))

    w = {"w": real(4, 4)}
    plain = lambda p, i: recurrent(p["w"], i)  # noqa: E731
    f = sol.optimize(plain, w, ids(6), vdims=True)
    for n in (6, 13):
        agrees(plain, f, w, ids(n))
    assert len(compiled(f)) == 2


def test_a_scan_without_steps_leaves_its_state() -> None:
    for backwards in (False, True):
        net = lambda x: jax.lax.scan(lambda h, row: (h * 0.5 + row, h), x[0], x[1:], reverse=backwards)  # noqa: B023, E731
        f = sol.optimize(net, real(4, 3), vdims=True)
        for n in (1, 2, 9):
            agrees(net, f, real(n, 3))


COUNTED: dict[str, Any] = {
    "fori_loop": lambda x: jax.lax.fori_loop(0, x.shape[0], lambda i, h: h * 0.5 + x[i] * i, x[0]),
    "from 2": lambda x: jax.lax.fori_loop(
        2, x.shape[0], lambda i, h: (h[0] + x[i] * h[1], h[1] * 0.9, x), (x[0], 1.0, x)
    ),
    "half": lambda x: jax.lax.fori_loop(0, x.shape[0] // 2, lambda i, h: h * 0.5 + x[2 * i], x[0]),
    "while_loop": lambda x: jax.lax.while_loop(
        lambda s: s[0] < x.shape[0], lambda s: (s[0] + 1, jnp.sin(s[1])), (3, x)
    ),
}


@pytest.mark.parametrize("name", COUNTED)
def test_loops_that_count_up_to_a_size(name: str) -> None:
    f = sol.optimize(COUNTED[name], real(6, 3), vdims=True)
    for n in (6, 1, 2, 3, 17):
        x = real(n, 3)
        assert largest(f(x), COUNTED[name](x)) < 1e-5
    assert len(compiled(f)) == 1


def test_scan_of_many_steps() -> None:
    """More than are unrolled, and no list that says how many."""

    def net(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (0.999 * c + 0.001 * x, None), jnp.zeros(4), None, length=5000)[0]

    agrees(net, sol.optimize(net, real(4)), real(4))


@pytest.mark.parametrize("pool", [flax.linen.max_pool, flax.linen.avg_pool])
def test_padding_depends_on_sizes(pool: Any) -> None:
    """Convolutions and pools with SAME padding and strides, of any height and width."""

    class Net(flax.linen.Module):
        @flax.linen.compact
        def __call__(self, x: Any) -> Any:
            x = jax.nn.relu(flax.linen.Conv(4, (3, 3), strides=(2, 2))(x))
            x = pool(x, (3, 3), (2, 2), "SAME")
            return flax.linen.Conv(3, (5, 5), strides=(2, 1), kernel_dilation=(1, 2))(x)

    net = Net()
    p = net.init(jax.random.key(0), real(2, 12, 16, 3))
    f = sol.optimize(net.apply, p, real(2, 12, 16, 3), vdims=True)
    for shape in ((2, 12, 16), (1, 13, 7), (3, 1, 2), (2, 33, 40)):
        agrees(net.apply, f, p, real(*shape, 3))
    assert len(compiled(f)) == 2


def test_what_needs_a_number_stays() -> None:
    """A scan whose body is no recurrence of SOL is unrolled: its length stays, the batch varies."""

    def net(p: Any, x: Any) -> Any:
        step = lambda c, a: (jnp.sort(jnp.tanh(a @ p["w"] + c)), c)  # noqa: E731
        return jax.lax.scan(step, jnp.zeros((x.shape[0], 4)), jnp.swapaxes(x, 0, 1))

    p = {"w": real(4, 4)}
    report = any_framework.dims(net, p, real(3, 5, 4))
    assert report.inputs == ["in_0 [#0, 5, 4]"]
    assert report.dims[0].where == ["dimension 0 of argument 1"]
    assert "dimension 1 of argument 1 is fixed at 5: " in str(report)
    assert " steps, which SOL unrolls, because its body has sort" in str(report)
    f = sol.optimize(net, p, real(3, 5, 4), vdims=True)
    for n in (3, 1, 8):
        agrees(net, f, p, real(n, 5, 4))
    assert len(compiled(f)) == 2
    assert largest(f(p, real(2, 3, 4))[0], jnp.zeros(())) < 2
    assert len(f._programs) == 1


def add(x: Any, y: Any) -> Any:
    """Equal sizes."""
    return x * 2 + y


def test_what_a_user_may_say() -> None:
    """vdims as a list, batch_size, sizes that sol.input leaves open, names."""
    x = real(4, 6)
    assert any_framework.dims(add, x, x).inputs == ["in_0 [#0, #1]", "in_1 [#0, #1]"]
    for how, args, fits, others in (
        ({"vdims": [True, False]}, (x, x), (5, 6), (4, 7)),
        ({"vdims": [True, 8]}, (x, x), (5, 8), (4, 6)),
        ({"vdims": [False, True]}, (x, x), (4, 9), (5, 6)),
        ({"batch_size": 3}, (x, x), (5, 6), (4, 7)),
        ({}, (any_framework.input([0, 6]),) * 2, (9, 6), (9, 7)),
        ({}, (any_framework.input([any_framework.dim("n", min=2, multiple=2), 6]),) * 2, (4, 6), (3, 6)),
    ):
        f = any_framework.optimize(add, *args, framework="jax", **how) if not how else sol.optimize(add, *args, **how)
        a, b = real(*fits), real(*fits)
        assert largest(f(a, b), add(a, b)) < 1e-6
        assert compiled(f) == [None]
        a, b = real(*others), real(*others)
        assert largest(f(a, b), add(a, b)) < 1e-6
        assert len(f._programs) == 1
    f = sol.optimize(add, vdims=True)
    for n in (4, 2):
        assert largest(f(x[:n], x[:n]), x[:n] * 3) < 1e-6
    assert compiled(f) == [None]
    for wrong in ("all", [1.5], [-1]):
        with pytest.raises(sol.InvalidError, match="vdims: expected True, False, or a list of True, False and sizes"):
            sol.optimize(add, x, x, vdims=wrong)
    with pytest.raises(sol.InvalidError, match="vdims: has 3 values, but 2 sizes may vary"):
        sol.optimize(add, x, x, vdims=[True, True, True])
    with pytest.raises(sol.InvalidError, match="vdims: expected True, since no call was described"):
        sol.optimize(add, vdims=[True])


def test_positions_and_pieces() -> None:
    """Slices by sizes, the last element, counting, repeated values, and sizes as numbers."""

    def net(x: Any) -> Any:
        n = x.shape[1]
        causal = jnp.tril(jnp.ones((n, n), bool))
        weights = jax.nn.softmax(jnp.where(causal, x @ x.swapaxes(1, 2), -1e9) / n)
        return (
            weights @ x,
            x[:, -1],
            x[:, : n // 2 + 1],
            jnp.flip(x, 1).mean(),
            jnp.concatenate([x, x], 1).reshape(-1, 2),
        )

    f = sol.optimize(net, real(2, 6, 4), vdims=True)
    for size in ((2, 6), (1, 1), (3, 11), (1, 40)):
        agrees(net, f, real(*size, 4))
    assert len(compiled(f)) == 2


def test_vmap_of_a_function_for_all_sizes() -> None:
    """The vectorized function has a program for each shape."""
    p, x = {"w": real(4, 3)}, real(5, 2, 4)
    f = sol.optimize(lambda p, x: jnp.tanh(x @ p["w"]), p, x[0], vdims=True)
    for n in (5, 3):
        assert largest(jax.vmap(f, (None, 0))(p, x[:n]), jnp.tanh(x[:n] @ p["w"])) < 1e-5
