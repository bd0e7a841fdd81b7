"""The table of JAX's primitives. A row gets a Builder, the equation's parameters, and its operands; it returns the result or a list of
them."""

from sol.rows import Rejected, Rows

ROWS = Rows()
op = ROWS.op

__all__ = ["ROWS", "Rejected", "op"]
