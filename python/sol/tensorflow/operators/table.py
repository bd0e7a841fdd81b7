"""The table of operators. A row gets a Builder, TensorFlow's operation, and its operands; it returns the result or a list of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = Callable[..., Any]
ROWS: dict[str, Row] = {}


def op(*names: str) -> Callable[[Row], Row]:
    """Enters a row for operators of these names."""

    def add(row: Row) -> Row:
        for name in names:
            ROWS[name] = row
        return row

    return add
