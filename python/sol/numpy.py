"""SOL for NumPy: networks as functions on arrays. `import sol.numpy as sol` has the same functions as `import sol`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sol as _sol

# isort: split
from sol import *  # noqa: F403

__all__ = [*_sol.__all__, "from_torch"]


def from_torch(module: Any) -> Callable[..., Any]:
    """Turns an optimized PyTorch model into a function on arrays, without gradients."""
    import numpy as np
    import torch
    from torch.utils import _pytree as pytree

    def function(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = [torch.from_numpy(np.ascontiguousarray(v)) if isinstance(v, np.ndarray) else v for v in leaves]
        args, kwargs = pytree.tree_unflatten(tensors, spec)
        with torch.no_grad():
            result = module(*args, **kwargs)
        return pytree.tree_map(lambda v: v.detach().numpy() if isinstance(v, torch.Tensor) else v, result)

    function.__doc__ = f"{type(module).__name__}, optimized, on NumPy arrays"
    return function
