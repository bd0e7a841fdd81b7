"""A model of another framework as a Keras model, which owns the variables. Its programs run by the operators that run those of
TensorFlow's own models: only the graph comes from a `Parsed`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sol import _core, forms
from sol.inputs import Dim, Exact
from sol.parsed import Call, Mode, Owned, Source, dotted, example, flatten, rebuild

from .builder import Value
from .calls import Calls
from .operation import Family
from .parse import Read

_FILES = "only its weights can be saved (save_weights), or the model that it was made from"


class Model(keras.Model):
    """Variables of a model of another framework, under its names. It is called as that model is; `fit` gives several
    arguments as one list."""

    def __init__(self, source: Source) -> None:
        super().__init__(name=re.sub(r"[^A-Za-z0-9_.-]", "_", source.name), autocast=False)
        self.supports_jit = False  # Keras then says that it does without XLA
        found: dict[Any, Any] = {}
        for o, name in zip(source.owned, dotted(source.owned), strict=True):
            if o.key not in found:
                found[o.key] = self._new(o, name)
        named = {o.name: found[o.key].value for o in source.owned}
        self._sol = WrappedCalls(source, named, lambda: [v.value for v in self.trainable_variables])
        self.built = True

    def _new(self, o: Owned, name: str) -> Any:
        v = self.add_weight(
            shape=o.array.shape, dtype=o.array.dtype.name, initializer="zeros", trainable=o.trained, name=name
        )
        v.assign(o.array)
        return v

    def call(self, *args: Any, training: bool | None = None, **kwargs: Any) -> Any:
        """The model's result."""
        return self._sol(bool(training), *self._sol.spread(args), **kwargs)

    def get_config(self) -> Any:
        """There is none: the model is made of another one."""
        self._sol.saved((), {})

    def __deepcopy__(self, memo: Any) -> Any:
        made = Model(self._sol.source)
        made.set_weights(self.get_weights())
        return made


class _Closed(Exception):
    """Dimensions that a family left open are numbers in the model: (argument, dimension)."""

    def __init__(self, places: set[tuple[int, int]]) -> None:
        super().__init__(places)
        self.places = places


class WrappedCalls(Calls):
    """The families of a wrapped model. In front of the arguments of a call is whether it is one of training.

    named  its variables, by the names of the source
    """

    def __init__(self, source: Source, named: dict[str, Any], variables: Any) -> None:
        super().__init__(None, source.name, variables)  # type: ignore[arg-type]
        self.source, self.named = source, named
        self.closed: set[tuple[int, int]] = set()  # what vdims cannot open: (argument, dimension)

    def spread(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """One list of arguments, as Keras gives them, instead of several arguments."""
        n = len(self.source.call.args)
        return (
            tuple(args[0]) if n > 1 == len(args) and isinstance(args[0], list | tuple) and len(args[0]) == n else args
        )

    def saved(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """There is no graph of TensorFlow."""
        raise _core.UnsupportedError(f"{self.name}: a model of {self.source.framework} in Keras: {_FILES}")

    def _open_shape(self, i: int, x: Any) -> list[int | None]:
        if self.source.call.vdims is False and x.shape.rank is not None:
            return list(x.shape)
        if not self.source.call.vdims or x.shape.rank is None:
            return super()._open_shape(i, x)
        return [n if (i, d) in self.closed else None for d, n in enumerate(x.shape)]

    def _family(self, tree: Any, flat: list[Any], at: list[int], xs: list[Any]) -> Family:
        while True:
            try:
                return super()._family(tree, flat, at, xs)
            except _Closed as e:
                self.closed |= e.places

    def _make(self, tree: Any, constants: list[Any], at: list[int], specs: Any, shapes: Any, wanted: Any) -> Family:
        (training, *args), kwargs = tf.nest.pack_sequence_as(tree, [*range(len(constants))])
        where = flatten((args, kwargs))  # by leaf: its number among the call's
        leaves = [at.index(k) if k in at else _Plain(constants[k]) for k in where]
        call = Call(*rebuild((tuple(args), kwargs), leaves))
        mode = Mode(constants[training], any(wanted))
        return WrappedFamily(self, (call, mode), specs, wanted, shapes)


class _Plain:
    """An argument that is no tensor."""

    def __init__(self, value: Any) -> None:
        self.value = value


class WrappedFamily(Family):
    """Programs of a wrapped model. `what`: the call, with the numbers of tensors in their places, and its mode."""

    def __init__(self, calls: WrappedCalls, what: tuple[Call, Mode], specs: Any, wanted: Any, shapes: Any) -> None:
        self.calls, (self.call, self.mode) = calls, what
        super().__init__(None, specs, calls.name, wanted, shapes)  # type: ignore[arg-type]

    def _pack(self, found: Sequence[Any]) -> Any:
        return self._packed(found)

    def _concrete(self, specs: Any) -> Any:
        return specs

    def _restricted(self, error: Any) -> bool:
        return False  # the model's own framework has found its dimensions

    def _read(self, seen: Any, shapes: Sequence[Sequence[int]]) -> Read:
        open_, numbers = any(n is None for s in seen for n in s.shape), flatten((self.call.args, self.call.kwargs))
        leaves = [n.value if isinstance(n, _Plain) else self._argument(seen[n], shapes[n]) for n in numbers]
        args, kwargs = rebuild((self.call.args, self.call.kwargs), leaves)
        vdims = (self.calls.source.call.vdims or False) if open_ else None
        parsed = self.calls.source.parse(Call(args, kwargs, vdims=vdims), self.mode)
        order = [numbers[i.leaf] if i.leaf >= 0 else -1 for i in parsed.inputs]
        inputs = [Value(i.tensor) for i in parsed.inputs]
        self._close(seen, [(k, v.shape) for k, v in zip(order, inputs, strict=True) if k >= 0])
        named = self.calls.named
        self._packed = parsed.pack
        return Read(
            parsed.graph,
            inputs,
            parsed.params,
            [named[p.name] if p.constant is None else p.constant for p in parsed.params],
            [Value(t) for _, t in parsed.graph.outputs],
            [o.number for o in parsed.outputs],
            order,
            parsed.writes,
        )

    def _close(self, seen: Any, shapes: Sequence[tuple[int, Sequence[Any]]]) -> None:
        """Raises what names the open dimensions that are numbers in the network, whose inputs have these shapes by argument."""
        pairs = [(k, d, n) for k, shape in shapes for d, n in enumerate(shape)]
        closed = {(k, d) for k, d, n in pairs if seen[k].shape[d] is None and type(n) is not forms.Size}
        if closed and self.calls.source.call.vdims:
            raise _Closed(closed)
        for k, d in sorted(closed):
            raise _core.UnsupportedError(f"{self.name}: argument {k}: dimension {d}: needs a number")

    def _argument(self, spec: Any, shape: Sequence[int]) -> Any:
        varies = any(n is None for n in spec.shape) and not self.calls.source.call.vdims
        if not varies:
            return np.zeros(shape, spec.dtype.as_numpy_dtype)
        name = spec.dtype.name
        return Exact(
            tuple(Dim("batch", example=max(k, 1)) if n is None else n for n, k in zip(spec.shape, shape, strict=True)),
            dtype=name,
        )

    def _shapes(self, seen: Any, read: Read) -> list[Any]:
        shapes = [read.outputs[n].shape for n in read.results]
        known = self.fixed is None
        return [tf.TensorShape([n if known and type(n) is int else None for n in s]) for s in shapes]


def wrap(source: Source) -> Model:
    """A model of another framework as a Keras model."""
    model = Model(source)
    call = source.call
    if call.args or call.kwargs:
        leaves = [example(leaf, call.batch_size) for leaf in flatten((call.args, call.kwargs))]
        args, kwargs = rebuild((call.args, call.kwargs), leaves)
        family, xs = model._sol.find((False, *args), kwargs)
        family.prepare([x.shape.as_list() for x in xs])
    return model
