"""Operators of lists of tensors, such as torch._foreach_add_, with which optimizers step: one network for a whole list.

Tensors are flat in it. Numbers that change from step to step are its operands. Lists of other forms (gaps, broadcasts) are
computed tensor by tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from sol import _core, log

from . import single
from .scalars import scalar
from .single import Form, Single

aten = torch.ops.aten
MOST = 64  # tensors of a list in one network
_known: dict[Any, Single | None] = {}  # None: SOL rejects it
_NUMBERS = ("scalar", "scalars", "alpha", "value", "weight")


def _times(t: Any, number: Any) -> Any:
    return t if type(number) is int and number == 1 else aten.mul(t, number)


def _bound(plain: Any, clamp: Any) -> Callable[..., Any]:
    return lambda x, y: plain(x, y) if isinstance(y, torch.Tensor) else clamp(x, y)


# By name: what is computed for a tensor of the list, with the arguments in the order of the schema
_ONE: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, alpha=1: aten.add(x, _times(y, alpha)),
    "sub": lambda x, y, alpha=1: aten.sub(x, _times(y, alpha)),
    "mul": lambda x, y: aten.mul(x, y),
    "div": lambda x, y: aten.div(x, y),
    "addcmul": lambda x, y, z, value: aten.add(x, aten.mul(_times(y, value), z)),
    "addcdiv": lambda x, y, z, value: aten.add(x, aten.div(_times(y, value), z)),
    "lerp": lambda x, y, weight: single.lerp(x, y, weight),
    "pow": lambda x, y: aten.pow(x, y),
    "maximum": _bound(aten.maximum, aten.clamp_min),
    "minimum": _bound(aten.minimum, aten.clamp_max),
    "clamp_min": _bound(aten.maximum, aten.clamp_min),
    "clamp_max": _bound(aten.minimum, aten.clamp_max),
    "norm": lambda x, order, dtype: aten.linalg_vector_norm(x, order, dtype=dtype),
}
for _name in ("abs", "exp", "log", "neg", "reciprocal", "rsqrt", "sigmoid", "sign", "sqrt", "tanh"):
    _ONE[_name] = getattr(aten, _name)


class Each:
    """An operator of lists."""

    def __init__(self, op: Any) -> None:
        self.name = op._schema.name.removeprefix("aten::")
        plain = self.name.removeprefix("_foreach_").removesuffix("_")
        self.writes = self.name.endswith("_")
        self.one = _ONE[plain]
        self.arguments = op._schema.arguments
        self.numbers = () if plain in ("pow", "maximum", "minimum", "clamp_min", "clamp_max", "norm") else _NUMBERS

    def __str__(self) -> str:
        return self.name

    def __call__(self, *columns: Any) -> list[Any]:
        """Computes it tensor by tensor."""
        return [self.one(*row) for row in rows(columns)]

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """PyTorch's kernel of the device."""
        given = [*args, *(kwargs.get(a.name, a.default_value) for a in self.arguments[len(args) :])]
        made: list[torch.Tensor] = []
        for start in range(0, len(given[0]), MOST):
            part = [c[start : start + MOST] if isinstance(c, list | tuple) else c for c in given]
            made += _network(self, part) or self._apart(part)
        return None if self.writes else made

    def _apart(self, columns: Sequence[Any]) -> list[torch.Tensor]:
        made = self(*columns)
        if self.writes:
            for t, value in zip(columns[0], made, strict=True):
                t.copy_(value)
        return made


def rows(columns: Sequence[Any]) -> Iterator[list[Any]]:
    """The arguments for each tensor of the list."""
    for i in range(len(columns[0])):
        yield [c[i] if isinstance(c, list | tuple) else c for c in columns]


class _Call:
    """A call whose tensors are all on one device, without gaps, and in each row alike."""

    def __init__(self, each: Each, columns: Sequence[Any]) -> None:
        self.each = each
        first = columns[0]
        self.device, self.dtype = first[0].device, first[0].dtype
        self.tensors: list[torch.Tensor] = []
        self.order: list[
            Any
        ] = []  # a column: numbers of tensors, of which one stands for all rows; or a value in a tuple
        self.key: list[Any] = [each, self.device, len(first)]
        for column, argument in zip(columns, each.arguments, strict=True):
            self._column(column, argument.name)

    def _column(self, column: Any, name: str) -> None:
        numbers = name in self.each.numbers and self.dtype.is_floating_point and type(column) is not int
        if isinstance(column, list | tuple):
            places = [self._number(v) if numbers and not isinstance(v, torch.Tensor) else self._add(v) for v in column]
            self.order.append(places)
            self.key.append(tuple(places))
        elif isinstance(column, torch.Tensor) or (numbers and type(column) is float):
            self.order.append(self._number(column))
            self.key.append(self.order[-1])
        else:
            self.order.append((column,))
            self.key.append((type(column), column))

    def _add(self, value: Any) -> int:
        if not isinstance(value, torch.Tensor):
            raise single.Rejected("a number that is no operand")
        self.tensors.append(value)
        return len(self.tensors) - 1

    def _number(self, value: Any) -> int:
        """A scalar, which equal ones of the call share."""
        if isinstance(value, torch.Tensor) and (value.ndim or value.device == self.device):
            if value.ndim:
                raise single.Rejected("a tensor for all of the list")
            return self._add(value)
        wide = torch.float64 if self.dtype == torch.float64 else torch.float32
        t = scalar(value.item() if isinstance(value, torch.Tensor) else value, wide, self.device)
        for i, other in enumerate(self.tensors):
            if other is t:
                return i
        return self._add(t)

    def flat(self) -> bool:
        """Whether this is such a call. Makes its key."""
        per_row = [c for c in self.order if isinstance(c, list)]
        for row in zip(*per_row, strict=True):
            first = self.tensors[row[0]]
            shape, strides = first.shape, first.stride()
            if not first.numel() or not single.is_dense(tuple(shape), strides):
                return False
            for k in row[1:]:
                t = self.tensors[k]
                if t.ndim and (t.shape != shape or t.stride() != strides):
                    return False
        if any(t.device != self.device for t in self.tensors):
            return False
        self.key.append(tuple([(t.dtype, t.numel()) for t in self.tensors]))
        return True

    def fill(self, fakes: Sequence[Any]) -> Any:
        return [
            [fakes[k] for k in c] if isinstance(c, list) else fakes[c] if isinstance(c, int) else c[0]
            for c in self.order
        ], {}

    def forms(self) -> list[Form]:
        numbers = {c for c in self.order if isinstance(c, int)}
        return [
            ((), (), t.dtype) if k in numbers or not t.ndim else ((t.numel(),), (1,), t.dtype)
            for k, t in enumerate(self.tensors)
        ]

    def make(self) -> Single | None:
        """Compiles it."""
        try:
            targets = self.order[0] if self.each.writes else ()
            return single.make(self.each, self.forms(), self.fill, targets, self.device, False, None, False)
        except single.REJECTIONS as e:
            log.debug(f"{self.each.name}: tensor by tensor: {e}")
            return None

    def go(self, known: Single) -> list[torch.Tensor]:
        """Runs its network."""
        listed = [self.tensors[k] for k in self.order[0]]
        outputs = []
        for i, o in enumerate(known.outputs):
            like = listed[i]
            if o.target >= 0:
                outputs.append(self.tensors[o.target])
            elif o.form[0]:
                outputs.append(torch.empty_strided(like.shape, like.stride(), dtype=o.form[2], device=self.device))
            else:
                outputs.append(torch.empty((), dtype=o.form[2], device=self.device))
        assert known.net is not None
        inputs = tuple([self.tensors[i] for i in known.inputs])
        _core.native_run(known.net, self.device.index, inputs, tuple(outputs), (), torch.get_num_threads())
        return listed if self.each.writes else outputs


def _network(each: Each, columns: Sequence[Any]) -> list[torch.Tensor] | None:
    """The results of a network; None: there is none for such a call."""
    try:
        call = _Call(each, columns)
    except single.Rejected:
        return None
    if not call.flat():
        return None
    key = tuple(call.key)
    if key not in _known:
        _known[key] = call.make()
    known = _known[key]
    return None if known is None else call.go(known)


def operators() -> Iterator[tuple[str, Each]]:
    """The operators of lists that have networks, with their names and kernels."""
    for name in torch._C._dispatch_get_all_op_names():
        plain, _, overload = name.removeprefix("aten::_foreach_").partition(".")
        if name.startswith("aten::_foreach_") and plain.removesuffix("_") in _ONE and not overload.endswith("out"):
            if overload == "ScalarAndTensor" or (overload == "Tensor" and "addc" in plain):
                continue  # lists in other places
            op = getattr(getattr(aten, name.removeprefix("aten::").partition(".")[0]), overload or "default")
            yield name.removeprefix("aten::"), Each(op)
