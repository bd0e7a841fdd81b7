"""Calls of an optimized function: which family of programs serves a call, by its structure, types, values, and gradients."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, record, tape
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.saved_model import save_context

from sol import _core
from sol.keras_face import Attributes, attach_logits

from .builder import Rejected, core_type
from .operation import Family, Wanted

_SIMPLE = (bool, int, float, str, type(None))


class _Process:
    """Whether this is the child of a process in which TensorFlow had started: its threads are gone, so that it would wait for ever."""

    forked = False

    @classmethod
    def note(cls) -> None:
        """In the child."""
        cls.forked = context.context()._context_handle is not None


os.register_at_fork(after_in_child=_Process.note)


class _Mine(threading.local):
    """What the current call of this thread has found."""

    family: Any = None  # that ran
    asked: Any = None  # the key and the arguments of a Keras model's call


class Calls:
    """The families of one function.

    variables  returns the variables that are trained, or None: those that the function reads and that are trainable
    """

    def __init__(self, function: Callable[..., Any], name: str, variables: Callable[[], Sequence[Any]] | None) -> None:
        self.function, self.name, self.variables = function, name, variables
        self.families: dict[Any, Family] = {}
        self.last: Family | None = None
        self._found: dict[Any, list[Any]] = {}  # variables, by the kind of the call
        self._lock = threading.RLock()
        self.open: dict[int, Sequence[int | None]] = {}  # shapes of arguments, None where sizes vary
        self.again: dict[
            Any, Callable[[Sequence[Any]], Any]
        ] = {}  # what runs calls that were made before, by their keys
        self.mine = _Mine()
        self.shown: Callable[[Any], Any] = lambda result: result  # what of the function's result the caller gets
        self.attributes = Attributes(list, lambda v: type(v) is EagerTensor)
        self._old: list[Family] = []  # which graphs may still run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result."""
        if save_context.in_save_context():  # a file is for processes without SOL's operators
            return self.saved(args, kwargs)
        key = None if kwargs else self.key(None, args)
        if key in self.again:
            return self.again[key](args)
        result = self._run(args, kwargs)
        if key is not None and tf.executing_eagerly():
            self.again[key] = self.mine.family.again(packer(result))
        return result

    def saved(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result in the graph of a file."""
        return self.function(*args, **kwargs)

    def key(self, how: Any, args: tuple[Any, ...]) -> Any:
        """What tells calls of tensors apart that record no gradients; None: another call. `how`: anything else that does."""
        self._follow()
        if (
            _Process.forked
            or not context.executing_eagerly()
            or record.could_possibly_record()
            or tf.distribute.has_strategy()
        ):
            return None
        found = [how]
        for x in args:
            if type(x) is not EagerTensor or getattr(x, "_keras_mask", None) is not None:
                return None
            found.append((x._datatype_enum(), x._shape_tuple()))
        return tuple(found)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        family, xs = self.find(args, kwargs)
        self.last = self.mine.family = family
        if tf.executing_eagerly():
            family.prepare([x.shape.as_list() for x in xs])
            return family.run(*xs)
        return family(*xs)

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Family, list[Any]]:
        """The family for a call, and the call's tensors."""
        tree = (args, kwargs)
        flat = []
        for i, v in enumerate(tf.nest.flatten(tree)):
            try:
                flat.append(_tensor(v))
            except Rejected as e:
                raise _core.UnsupportedError(f"{self.name}: argument {i}: not supported: {e}") from None
        at = [i for i, v in enumerate(flat) if tf.is_tensor(v)]
        xs = [flat[i] for i in at]
        _check_place()
        self._follow()
        return self._family(tree, flat, at, xs), xs

    def _follow(self) -> None:
        """Forgets all programs if somebody assigned a tensor to an attribute, as `Normalization.adapt` does."""
        if self.attributes.changed(self.name):
            with self._lock:
                self._old += self.families.values()
                self.families, self._found, self.again = {}, {}, {}

    def _family(self, tree: Any, flat: list[Any], at: list[int], xs: list[Any]) -> Family:
        specs = [tf.TensorSpec(self._open_shape(i, x), x.dtype) for i, x in enumerate(xs)]
        constants = [None if tf.is_tensor(v) else v for v in flat]
        others = tuple((i, repr(v)) for i, v in enumerate(flat) if not tf.is_tensor(v))
        kind = (tuple((s.dtype, tuple(s.shape)) for s in specs), others, _outline(tree))
        make = functools.partial(self._make, tree, constants, at, specs, [x.shape.as_list() for x in xs])
        inputs = frozenset(k for k, x in enumerate(xs) if x.dtype.is_floating and record.should_record_backprop([x]))
        return self._kept(kind, make, (inputs, self._watched(kind, make)))

    def _kept(self, kind: Any, make: Callable[[Wanted], Family], wanted: Wanted) -> Family:
        """The family for calls of a kind with the gradients that are wanted."""
        with self._lock:
            key = (kind, *wanted)
            if key not in self.families:
                self.families[key] = family = make(wanted)
                self.attributes.note()
                if not family.training:
                    family.full = functools.partial(_full, weakref.ref(self), kind, make)
            return self.families[key]

    def _open_shape(self, i: int, x: Any) -> list[int | None]:
        if x.shape.rank is None:
            raise _core.UnsupportedError(f"{self.name}: argument {i}: a tensor of unknown rank: not supported")
        given, shape = self.open.get(i), x.shape.as_list()
        if given is not None and len(given) == len(shape):
            return [None if k is None else n for k, n in zip(given, shape, strict=True)]
        return [None, *shape[1:]] if shape else []

    def _make(
        self, tree: Any, constants: list[Any], at: list[int], specs: Any, shapes: Sequence[Any], wanted: Wanted
    ) -> Family:
        def function(*given: Any) -> Any:
            leaves = list(constants)
            for i, g in zip(at, given, strict=True):
                leaves[i] = g
            args, kwargs = tf.nest.pack_sequence_as(tree, leaves)
            result = self.function(*args, **kwargs)
            found = tf.nest.flatten(result)
            function.pack = packer(result)  # type: ignore[attr-defined]
            function.shown = len(tf.nest.flatten(self.shown(result)))  # type: ignore[attr-defined]
            return [tf.convert_to_tensor(v) for v in found if is_result(v)]

        return Family(function, specs, self.name, wanted, shapes)

    def _trained(self, kind: Any, make: Callable[[Wanted], Family]) -> Sequence[Any]:
        """The variables that are trained."""
        if self.variables is not None:
            return self.variables()
        if kind not in self._found:
            self._found[kind] = make((frozenset(), frozenset())).trainable
        return self._found[kind]

    def _watched(self, kind: Any, make: Callable[[Wanted], Family]) -> frozenset[int]:
        """The variables whose gradients somebody records, by the ids of their handles."""
        if not record.could_possibly_record():
            return frozenset()
        found = self._trained(kind, make)
        for v in found:
            tape.variable_accessed(v)
        return frozenset(id(v.handle) for v in found if record.should_record_backprop([v.handle]))

    def full(self, kind: Any, make: Callable[[Wanted], Family], inputs: frozenset[int]) -> Family:
        """The family for calls of a kind with all gradients that there are."""
        return self._kept(kind, make, (inputs, frozenset(id(v.handle) for v in self._trained(kind, make))))

    def plain(self, args: tuple[Any, ...], result: Any, attached: Sequence[Any]) -> None:
        """A call of a Keras model that made neither losses nor masks: the next one like it runs the network at once."""
        key, given = self.mine.asked or (None, ())
        same = len(args) == len(given) and all(a is b for a, b in zip(args, given, strict=True))
        if key and same and tf.executing_eagerly():
            self.again[key] = self.mine.family.again(_attaching(result, attached))

    def latest(self) -> Any:
        """The program used last."""
        return self.last if self.last is not None and self.last.net is not None else None


def _full(calls: weakref.ref[Calls], *args: Any) -> Family | None:
    """See Family.full."""
    found = calls()
    return None if found is None else found.full(*args)


def is_result(v: Any) -> bool:
    """Whether a leaf of a result is a tensor."""
    return tf.is_tensor(v) or isinstance(v, tf.Variable)


def packer(result: Any) -> Callable[[Sequence[Any]], Any]:
    """Makes the structure of a result of other tensors. Leaves that are no tensors stay."""
    if is_result(result):
        return lambda tensors: tensors[0]
    found = tf.nest.flatten(result)
    there = [is_result(v) for v in found]
    others = [None if t else v for t, v in zip(there, found, strict=True)]
    tree = tf.nest.pack_sequence_as(result, list(range(len(found))))

    def pack(tensors: Sequence[Any]) -> Any:
        rest = iter(tensors)
        return tf.nest.pack_sequence_as(tree, [next(rest) if t else v for t, v in zip(there, others, strict=True)])

    return pack


def _attaching(result: Any, attached: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    """The same for the result of a Keras model and what Keras attached to it."""
    if all(logits is None for _, logits in attached):
        return packer(result)
    both = packer((result, attached))

    def pack(tensors: Sequence[Any]) -> Any:
        made, logits = both(tensors)
        attach_logits(made, logits)
        return made

    return pack


def _outline(tree: Any) -> Any:
    if isinstance(tree, dict):
        return tuple((k, _outline(v)) for k, v in tree.items())
    return (type(tree), tuple(map(_outline, tree))) if isinstance(tree, tuple | list) else None


def _tensor(v: Any) -> Any:
    """A leaf of a call's arguments: a tensor, or a value that is part of the program."""
    if isinstance(v, tf.RaggedTensor):
        raise Rejected("a RaggedTensor; convert it (x.to_tensor())")
    if isinstance(v, tf.SparseTensor):
        raise Rejected("a SparseTensor; convert it (tf.sparse.to_dense(x))")
    if isinstance(v, _SIMPLE):
        return v
    if not tf.is_tensor(v):
        if not hasattr(v, "__array__") and not isinstance(v, np.generic | tf.Variable):
            return v
        v = tf.convert_to_tensor(v)
    if isinstance(v, tf.Variable):
        v = tf.convert_to_tensor(v)
    core_type(v.dtype)
    return v


def _check_place() -> None:
    if _Process.forked:
        raise _core.UnsupportedError(
            "a call in a forked process: not supported, because TensorFlow's threads are only in the process that began; start "
            "processes by multiprocessing.get_context('spawn')"
        )
    if tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context() is False:
        strategy = tf.distribute.get_strategy()
        if strategy.num_replicas_in_sync > 1:
            raise _core.UnsupportedError(
                f"{type(strategy).__name__} with several replicas: not supported; use one replica"
            )
