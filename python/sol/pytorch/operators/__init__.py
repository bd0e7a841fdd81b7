"""The table of ATen operators (`OPERATORS`), one file per family."""

from . import chance, contract, create, index, linear, losses, maths, moves, norms, reduce, resample
from .table import OPERATORS, Refusal, Row, find, out_of_place, without_out

__all__ = ["OPERATORS", "Refusal", "Row", "find", "out_of_place", "without_out"]

_FAMILIES = (chance, contract, create, index, linear, losses, maths, moves, norms, reduce, resample)
