"""The table of JAX's primitives: `@op("name", ...)` adds a row, a function of the builder, the equation's parameters and its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = Callable[..., Any]
ROWS: dict[str, Row] = {}


class Rejected(Exception):
    """What SOL cannot translate, in words."""


def op(*names: str) -> Callable[[Row], Row]:
    """Adds a row for primitives: `row(b, params, *operands)` returns a Value, or a list of them."""

    def add(row: Row) -> Row:
        for name in names:
            ROWS[name] = row
        return row

    return add
