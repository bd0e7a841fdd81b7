"""The table of ATen operators (`OPERATORS`), one file per family."""

from . import (
    chance,
    contract,
    counting,
    create,
    fourier,
    index,
    linear,
    losses,
    maths,
    moves,
    norms,
    pairs,
    phases,
    reduce,
    resample,
    transformer,
)
from .pairs import OfReal, find_complex, is_complex, like_out
from .table import COMPLEX, OPERATORS, SHAPES, Refusal, Row, find, out_of_place, without_out

__all__ = [
    "COMPLEX",
    "OPERATORS",
    "SHAPES",
    "OfReal",
    "Refusal",
    "Row",
    "find",
    "find_complex",
    "is_complex",
    "like_out",
    "out_of_place",
    "without_out",
]

_FAMILIES = (
    *(
        chance,
        contract,
        counting,
        create,
        fourier,
        index,
        linear,
        losses,
        maths,
        moves,
        norms,
        pairs,
        phases,
        reduce,
        resample,
        transformer,
    ),
)
