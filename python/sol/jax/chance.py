"""Random primitives as functions on the bits of keys, with JAX's own definitions: a key's type knows what its primitives compute,
in terms of the hash function Threefry-2x32 (J. K. Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .operators import Rejected

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def expanded(e: Any) -> Callable[..., Any] | None:
    """The definition of a random primitive, on bits in place of keys. None: its result is its operand."""
    name, p = e.primitive.name, e.params
    if name in ("random_wrap", "random_unwrap", "random_clone"):
        return None
    if name == "threefry2x32":
        return threefry
    if name == "rng_bit_generator":
        raise Rejected("XLA's own generator of random bits: use keys of JAX's default implementation (threefry2x32)")
    impl = p["impl"] if name == "random_seed" else e.invars[0].aval.dtype._impl
    if impl.name != "threefry2x32":
        raise Rejected(f"keys of {impl.name}: SOL computes those of JAX's default implementation (threefry2x32)")
    if name == "random_seed":
        return lambda seeds: _each(impl.seed, jnp.ndim(seeds))(seeds)
    dims = e.invars[0].aval.ndim
    if name == "random_bits":
        return _each(lambda key: impl.random_bits(key, p["bit_width"], p["shape"]), dims)
    if name == "random_split":
        return _each(lambda key: impl.split(key, p["shape"]), dims)
    if name == "random_fold_in":
        return lambda keys, messages: _fold_in(impl, keys, messages)
    raise Rejected("SOL has no row for this primitive")


def _each(function: Callable[..., Any], dims: int) -> Callable[..., Any]:
    """A function of one key for arrays of them."""
    for _ in range(dims):
        function = jax.vmap(function)
    return function


def _fold_in(impl: Any, keys: Any, messages: Any) -> Any:
    shape = jnp.broadcast_shapes(keys.shape[:-1], messages.shape)
    n = math.prod(shape)
    flat = jnp.broadcast_to(keys, (*shape, keys.shape[-1])).reshape(n, keys.shape[-1])
    made = jax.vmap(impl.fold_in)(flat, jnp.broadcast_to(messages, shape).reshape(n))
    return made.reshape(*shape, keys.shape[-1])


def threefry(key0: Any, key1: Any, x0: Any, x1: Any) -> list[Any]:
    """Twenty rounds on pairs of 32-bit words; the key is added in front, and after every four rounds."""
    keys = (key0, key1, key0 ^ key1 ^ jnp.uint32(PARITY))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for i in range(5):
        for n in ROTATIONS[i % 2]:
            x0 = x0 + x1
            x1 = x0 ^ (x1 << jnp.uint32(n) | x1 >> jnp.uint32(32 - n))
        x0 = x0 + keys[(i + 1) % 3]
        x1 = x1 + keys[(i + 2) % 3] + jnp.uint32(i + 1)
    return [x0, x1]


def key_bits(leaf: Any) -> Any:
    """An argument as the program takes it."""
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def is_key(leaf: Any) -> bool:
    """Whether it is an array of keys."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
