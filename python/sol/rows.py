"""Tables of operators: for each name a function that translates the operator to SOL's layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _core, extend

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

    def find(self, name: str, registered: Callable[[str], Row]) -> Row | None:
        """The row of an operator, or what `registered` makes of the registered layer with its name (sol.register_layer). None: there is
        neither."""
        row = self.get(name)
        kind = extend.named(name.replace(">", "::")) if row is None else None
        return row if kind is None else registered(kind)

    def register(self, what: str, name: str, row: Row | None) -> Any:
        """Adds a user's row; as a decorator if there is none. `what`: the function that the user called."""
        if row is None:
            return lambda r: self.register(what, name, r)
        own = self.get(name)
        if not callable(row) or not isinstance(name, str):
            raise _core.InvalidError(f"{what}: expected the name of an operator and a function, got {name!r}, {row!r}")
        if own is not None and own.__module__.startswith("sol."):
            raise _core.InvalidError(f"{what}: {name}: SOL translates this operator itself")
        self[name] = row
        return row
