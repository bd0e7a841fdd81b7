"""SOL for NumPy: networks as functions on arrays. `import sol.numpy as sol` has the same functions as `import sol`."""

from __future__ import annotations

import sol as _sol

# isort: split
from sol import *  # noqa: F403
from sol.arrays import Function, Gradients

__all__ = [*_sol.__all__, "Function", "Gradients"]
