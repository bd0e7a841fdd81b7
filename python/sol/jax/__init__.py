"""SOL for JAX: `import sol.jax as sol`. `sol.optimize(function, *args)` returns a function that runs networks of SOL."""

from sol.supported import check

check("jax", "jax")

import sol as _sol

# isort: split
from sol import *  # noqa: F403

from .function import Function
from .function import optimize as optimize  # type: ignore[assignment]  # with options of its own
from .outside import register

__all__ = [*_sol.__all__, "Function", "optimize", "register"]
