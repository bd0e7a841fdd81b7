"""Tables of operators: for each name a function that translates the operator to SOL's layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = Callable[..., Any]


class Rejected(Exception):
    """SOL does not support this. The message says why."""


class Rows(dict[str, Row]):
    """The rows of a frontend, by the operator's name in its framework."""

    def op(self, *names: str) -> Callable[[Row], Row]:
        """Adds the decorated function as the row of these names."""

        def add(row: Row) -> Row:
            self.update(dict.fromkeys(names, row))
            return row

        return add
