"""SOL for TensorFlow and Keras: `import sol.tensorflow as sol` has the same functions as `import sol`."""

from __future__ import annotations

from .supported import check

check()

import sol as _sol  # noqa: E402

# isort: split
from sol import *  # noqa: E402, F403

from .outside import layer, register  # noqa: E402

__all__ = [*_sol.__all__, "layer", "register"]
