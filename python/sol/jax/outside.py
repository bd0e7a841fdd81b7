"""Primitives from outside: functions that translate them (`sol.jax.register`), and those that are registered layers
(`sol.register_layer`). docs/extending.md says how to use both."""

from __future__ import annotations

from typing import Any

from sol import extend
from sol.rows import Row

from .builder import Builder, Value
from .operators import ROWS, Rejected


def register(primitive: Any, function: Row | None = None) -> Any:
    """Says how SOL translates a primitive, for functions that are optimized from now on.

    primitive  the primitive, or its name
    function   function(b, params, *operands) gets the equation's parameters and values of the graph, and returns a value, or a list of
               them, made with the builder: b.layer("mylib::scale", x, s=2.0). It may be used as a decorator
    """
    return ROWS.register("sol.jax.register", getattr(primitive, "name", primitive), function)


def registered(kind: str) -> Row:
    """The row of a primitive with the name of a registered layer. Its parameters are attributes."""

    def row(b: Builder, params: dict[str, Any], *operands: Value) -> list[Value]:
        attributes = {}
        for name, value in params.items():
            plain = extend.plain(value)
            if plain is None and value is not None:
                raise Rejected(f"parameter {name}={value!r}, which cannot be an attribute of a layer")
            if plain is not None:
                attributes[name] = plain
        return b.layers(kind, *operands, outputs=len(b.out), **attributes)

    return row


def row_is_own(row: Row | None) -> bool:
    """Whether it is one of SOL's: then a wrong result is a bug of SOL."""
    return row is not None and row.__module__.startswith("sol.")
