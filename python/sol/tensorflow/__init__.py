"""SOL for TensorFlow and Keras: `import sol.tensorflow as sol` has the same functions as `import sol`."""

from __future__ import annotations

from sol.supported import check

check("tensorflow", "tensorflow", "keras")

import sol as _sol

# isort: split
from sol import *  # noqa: F403

from .outside import layer, register

__all__ = [*_sol.__all__, "layer", "register"]
