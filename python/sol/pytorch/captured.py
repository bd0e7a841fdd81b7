"""Tensors that forward finds in a list, a global or a closure variable: constants of the network, as with torch.export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .steps import Unusual

if TYPE_CHECKING:
    from .trace import _Recorder


class Captured:
    """Puts tensors without data in their place, which have a source in the recorder's graph."""

    def __init__(self, recorder: _Recorder, mode: FakeTensorMode) -> None:
        self.recorder, self.mode = recorder, mode
        self.found: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by identity: the tensor, and what stands for it

    def replace(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The operands of an operator. Raises Unusual if it writes into such a tensor, which is left to torch.export."""
        leaves = pytree.tree_leaves((args, kwargs))
        if any(isinstance(t, torch.Tensor) and not isinstance(t, FakeTensor) for t in leaves):
            args, kwargs = pytree.tree_map_only(torch.Tensor, self._constant, (args, kwargs))
        if self.found and func._schema.is_mutable:
            memories = {made.untyped_storage()._cdata for _, made in self.found.values()}
            if any(isinstance(a, torch.Tensor) and a.untyped_storage()._cdata in memories for a in args):
                raise Unusual(f"{func} of a tensor that is neither an argument nor the model's")
        return args, kwargs

    def _constant(self, t: torch.Tensor) -> torch.Tensor:
        plain = type(t) in (torch.Tensor, torch.nn.Parameter) and not torch._C._functorch.is_functorch_wrapped_tensor(t)
        if not plain or t.requires_grad or t.layout != torch.strided:
            return t
        if id(t) not in self.found:
            name = f"_captured{len(self.found)}"
            with _disable_current_modes():
                self.recorder.constants[name] = t.detach().clone()
            made = self.mode.from_tensor(t)
            self.found[id(t)] = t, made
            self.recorder.source(name, made, ("param", name), InputKind.CONSTANT_TENSOR)
        return self.found[id(t)][1]
