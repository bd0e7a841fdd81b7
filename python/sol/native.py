"""`import sol.native` adds SOL's devices to PyTorch: `model.to("sol")`, `x.to("sol")`, `torch.device("sol", 1)`.

The first import with a version of PyTorch compiles a file of C++, which the cache keeps.
"""

from __future__ import annotations

from .pytorch import native

native.begin()
