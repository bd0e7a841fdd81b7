"""The attribute `.data` of tensors in forward, such as `k.data = 0.99 * k.data + 0.01 * q.data`.

PyTorch calls no operator for it, so a trace replaces the attribute: reading it is detach(). A tensor that is assigned has the node of its
new values from there on; gradients go where they went before, as autograd does not see the assignment. New values of the model's tensors
and of arguments are written into their memory at the end of a call.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from sol import _core

if TYPE_CHECKING:
    from .trace import _Recorder

_WHAT, _INSTEAD = "assigning the data of a tensor in a forward", "write it in place under no_grad(), with copy_"
_DATA: Any = torch._C.TensorBase.data


def assigned(before: Any, value: Any) -> Any:
    """The target of the node of an assignment: a tensor before it, and its new values."""
    raise NotImplementedError


class Assigned:
    """What the forward of a recorder assigns."""

    def __init__(self, recorder: _Recorder) -> None:
        self.recorder = recorder
        self.old: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by identity: a tensor, and its first memory

    def set(self, t: torch.Tensor, value: torch.Tensor) -> None:
        """Records `t.data = value`."""
        by = self.recorder
        before = by.node(t, None)
        if by.inner or before is None:
            raise _core.UnsupportedError(f"{_WHAT} that asks for gradients itself: not supported; {_INSTEAD}")
        if t.shape != value.shape or t.dtype != value.dtype:
            raise _core.UnsupportedError(
                f"{_WHAT}, {_shown(value)} to {_shown(t)}: not supported; keep the shape and type"
            )
        with torch.no_grad():
            if before.op == "placeholder":
                self.old[id(t)] = t, t.detach()
            fresh = value.detach().clone()
        _DATA.__set__(t, fresh)
        by.nodes[t] = by.call(assigned, (before, by.node(fresh, None)), t)

    def write_back(self) -> None:
        """Writes the new values into the memory of what is not the trace's own."""
        with torch.no_grad():
            for t, old in self.old.values():
                old.copy_(t)


def _shown(t: torch.Tensor) -> str:
    return f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}"


@contextlib.contextmanager
def data(find: Callable[[], _Recorder | None]) -> Iterator[None]:
    """Replaces the attribute in this thread. `find()`: the recorder; None: torch.export is tracing, which would not see the assignment."""
    thread = threading.get_ident()

    def recorder(t: torch.Tensor) -> _Recorder | None:
        by = find() if threading.get_ident() == thread and isinstance(t, FakeTensor) else None
        return None if by is None or by.inside else by

    def read(t: torch.Tensor) -> Any:
        return _DATA.__get__(t) if recorder(t) is None else t.detach()

    def write(t: torch.Tensor, value: torch.Tensor) -> None:
        by = recorder(t)
        if by is not None:
            by.assigned.set(t, value)
        elif find() is None and threading.get_ident() == thread and isinstance(t, FakeTensor):
            raise _core.UnsupportedError(f"{_WHAT}: not supported here; {_INSTEAD}")
        else:
            _DATA.__set__(t, value)

    torch.Tensor.data = property(read, write)  # type: ignore[assignment]
    try:
        yield
    finally:
        del torch.Tensor.data


__all__ = ["Assigned", "assigned", "data"]
