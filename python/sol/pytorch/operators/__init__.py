"""The table of ATen operators (`OPERATORS`), one file per family."""

import importlib

from .pairs import OfReal, find_complex, is_complex, like_out
from .sized import plain
from .table import COMPLEX, MOST, NUMBERS, OPERATORS, SHAPES, SIZES, Rejection, Row, find, out_of_place, without_out

__all__ = [
    "COMPLEX",
    "MOST",
    "NUMBERS",
    "OPERATORS",
    "SHAPES",
    "SIZES",
    "OfReal",
    "Rejection",
    "Row",
    "find",
    "find_complex",
    "is_complex",
    "like_out",
    "out_of_place",
    "plain",
    "without_out",
]

# Importing these modules fills the table.
for _family in (
    "chance contract counting create fourier index linear losses maths moves norms packed pairs phases quantization reduce region_pools "
    "regions resample sized transformer"
).split():
    importlib.import_module(f".{_family}", __name__)
