"""The table of operators. A row gets a Builder, TensorFlow's operation, and its operands; it returns the result or a list of them."""

from sol.rows import Rows

ROWS = Rows()
op = ROWS.op
