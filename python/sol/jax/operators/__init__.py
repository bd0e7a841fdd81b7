"""Rows for JAX's primitives, by kind. Control flow and calls of other functions are in `translate.py`."""

from . import contract, index, linear, maths, reduce, shapes
from .table import ROWS, Rejected

__all__ = ["ROWS", "Rejected", "contract", "index", "linear", "maths", "reduce", "shapes"]
