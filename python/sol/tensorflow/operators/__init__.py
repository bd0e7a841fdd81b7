"""TensorFlow's operators in SOL's layers: a table with a row for each, in files by kind."""

from . import chance, contract, gradients, index, linear, maths, moves, norms
from .table import ROWS

__all__ = ["ROWS", "chance", "contract", "gradients", "index", "linear", "maths", "moves", "norms"]
