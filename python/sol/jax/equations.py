"""Equations of a jaxpr: where the user wrote them, types of their arrays, and one equation as a function."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import jax
from jax._src import source_info_util
from jax.extend import core as jex

CALLS = ("jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2", "custom_lin")
CUSTOM = ("custom_jvp_call", "custom_vjp_call", "custom_linear_solve")  # functions with a derivative of their own

with contextlib.suppress(Exception):
    source_info_util.register_exclusion(os.path.dirname(__file__))  # frames of SOL are not the user's


def line(e: Any) -> str:
    """Where the user's function calls a primitive. JAX has no public name for that, so an older or newer one may say nothing."""
    with contextlib.suppress(Exception):
        frame = source_info_util.user_frame(e.source_info.traceback)
        return f"{frame.file_name}:{frame.start_line}" if frame else ""
    return ""


def called(p: dict[str, Any]) -> Any:
    """The jaxpr of a call with these parameters."""
    return p.get("jaxpr") or p.get("call_jaxpr") or p["fun_jaxpr"]


def of_keys(aval: Any) -> bool:
    """Whether it is the type of an array of keys of random numbers."""
    return bool(jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key))


def physical(aval: Any) -> Any:
    """The type of an array, or of the bits of keys."""
    if not of_keys(aval):
        return aval
    bits = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(aval.shape, aval.dtype))
    return jax.ShapeDtypeStruct(bits.shape, bits.dtype)


def moves_keys(e: Any) -> bool:
    """Whether an equation moves keys, as a slice of an array of keys does."""
    return any(of_keys(v.aval) for v in e.outvars) and not e.primitive.name.startswith("random_")


def alone(e: Any) -> tuple[list[Any], Callable[..., Any]]:
    """The variables that an equation reads, each once, and what it computes as a function of their values."""
    variables = list(dict.fromkeys(v for v in e.invars if not isinstance(v, jex.Literal)))
    about = jax.api_util.debug_info(e.primitive.name, e.primitive.bind, (), {}).with_unknown_names()
    return variables, jex.jaxpr_as_fun(jex.ClosedJaxpr(jex.Jaxpr((), variables, e.outvars, [e], debug_info=about), ()))
