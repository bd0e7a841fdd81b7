"""The optimized model of Keras, on any of its backends: an object of the same class, with the same `__dict__`, whose `call` runs
networks of SOL. A frontend makes what runs them: its attribute `_sol`."""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sol.supported import check

check("tensorflow", "keras")

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras.src.backend.common.keras_tensor import KerasTensor  # noqa: E402
from keras.src.backend.common.symbolic_scope import in_symbolic_scope  # noqa: E402
from keras.src.saving import object_registration  # noqa: E402

from sol import _core, log  # noqa: E402
from sol.inputs import Input as Described  # noqa: E402
from sol.parsed import Call, flatten, rebuild  # noqa: E402


class Runs(Protocol):
    """What runs the networks of a model."""

    def __call__(self, args: Any, kwargs: Any, masks: Any) -> Any:
        """The results of `network_of(model)` for these arguments."""

    def plain(self, args: tuple[Any, ...], result: Any, attached: Sequence[Any]) -> None:
        """Notes a call that made neither losses nor masks."""


class Attributes:
    """The tensors that objects have as attributes, such as those that `Normalization.adapt` assigns. Programs keep their values.

    owners  gives the objects
    kept    whether an attribute is a tensor whose value programs keep
    """

    def __init__(self, owners: Callable[[], Sequence[Any]], kept: Callable[[Any], bool]) -> None:
        self.owners, self.kept = owners, kept
        self._found: list[tuple[dict[str, Any], str, Any]] = []

    def note(self) -> None:
        """Programs were made."""
        owned = [vars(o) for o in self.owners()]
        self._found = [(own, name, value) for own in owned for name, value in own.items() if self.kept(value)]

    def changed(self, model: str) -> bool:
        """Whether somebody assigned one since: programs of this model have to be made again."""
        names = [name for own, name, value in self._found if own.get(name) is not value]
        if names:
            self._found = []
            log.info(f"{model}: compiled again, because {', '.join(names)} changed")
        return bool(names)


def original(cls: type) -> Any:
    """The class that the user gave, of that of an optimized model."""
    return cls.__mro__[1]


def own_call(model: Any) -> Callable[..., Any]:
    """The `call` of the user's class."""
    cls = original(type(model)) if is_optimized(model) else type(model)
    return lambda *args, **kwargs: cls.call(model, *args, **kwargs)


def network_of(model: Any) -> Callable[[Any, Any, Any], Any]:
    """What a network of a model computes of the arguments of `call` and their masks: the result, losses that layers added, and what
    Keras attached to the results."""

    def function(args: Any, kwargs: Any, masks_in: Any) -> Any:
        for x, mask in zip(keras.tree.flatten((args, kwargs)), masks_in, strict=True):
            if mask is not None:
                keras.src.backend.set_keras_mask(x, mask)
        before = [(layer, len(layer._losses)) for layer in model._flatten_layers()]
        result = own_call(model)(*args, **kwargs)
        losses = [loss for layer, n in before for loss in layer._losses[n:]]
        for layer, n in before:
            del layer._losses[n:]
        return result, losses, [_attached(t) for t in keras.tree.flatten(result)]

    return function


def _mask(x: Any) -> Any:
    return keras.src.backend.get_keras_mask(x) if keras.ops.is_tensor(x) else None


def _attached(x: Any) -> tuple[Any, Any]:
    """What Keras attached to a tensor: its mask, and what it is the softmax or sigmoid of, from which losses are computed."""
    return _mask(x), getattr(x, "_keras_logits", None) if keras.ops.is_tensor(x) else None


def attach_logits(result: Any, attached: Sequence[Any]) -> None:
    """Says of tensors what they are the softmax or sigmoid of."""
    for t, (_, logits) in zip(keras.tree.flatten(result), attached, strict=True):
        if logits is not None:
            t._keras_logits = logits


class _Scope(keras.StatelessScope):
    """Puts values in the places of variables. `assigned`: makes what a read gives of a value that was assigned."""

    def __init__(self, values: Sequence[tuple[Any, Any]], assigned: Callable[[Any], Any]) -> None:
        super().__init__(values, collect_losses=True)
        self.assigned = assigned

    def add_update(self, update: tuple[Any, Any]) -> None:
        """Keras calls it for each assignment."""
        super().add_update((update[0], self.assigned(update[1])))


def with_values(
    model: Any, variables: Sequence[Any], assigned: Callable[[Any], Any] = lambda v: v
) -> Callable[..., Any]:
    """The same as a function whose first argument are values of the variables. It returns also the new values of those that the call
    assigns, by their numbers. `assigned`: see _Scope."""
    network = network_of(model)

    def function(values: Sequence[Any], args: Any, kwargs: Any, masks: Any) -> Any:
        ids = [(layer, set(layer._loss_ids)) for layer in model._flatten_layers()]
        with _Scope(list(zip(variables, values, strict=True)), assigned) as scope:
            before = [scope.get_current_value(v) for v in variables]
            result, _, made = network(args, kwargs, masks)
            now = [scope.get_current_value(v) for v in variables]
        for layer, own in ids:
            layer._loss_ids = own
        new = {i: b for i, (a, b) in enumerate(zip(before, now, strict=True)) if b is not a}
        return (result, list(scope.losses), made), new

    return function


def variables_of(model: Any) -> list[Any]:
    """Keras's variables that a call may read or assign: metrics are not among them."""
    return [*model.trainable_variables, *model.non_trainable_variables]


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs the network for these arguments, or adds it to the graph that is being made."""
    flat = keras.tree.flatten((args, kwargs))
    if any(isinstance(v, KerasTensor) for v in flat) or in_symbolic_scope() or not is_optimized(self):
        return original(type(self)).call(self, *args, **kwargs)  # shapes alone; or its class was used by clone_model
    runs = self.__dict__["_sol"]
    result, losses, attached = runs(args, kwargs, [_mask(x) for x in flat])
    for loss in losses:
        keras.layers.Layer.add_loss(self, loss)  # a functional model has none of its own
    for t, (mask, _) in zip(keras.tree.flatten(result), attached, strict=True):
        if mask is not None:
            keras.src.backend.set_keras_mask(t, mask)
    attach_logits(result, attached)
    if not losses and all(mask is None for mask, _ in attached):
        runs.plain(args, result, attached)
    return result


def _again(make: Any, args: Any, frontend: Any) -> Any:
    """Unpickling: the model that Keras makes, optimized."""
    return frontend(make(*args))


class Face:
    """What the class of an optimized model has besides the user's."""

    call = _call

    def setWeights(self: Any, weights: Any) -> None:
        """`set_weights`, also with variables, such as the `weights` of another model."""
        self.set_weights([np.asarray(w) for w in weights])

    def export(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Exports the user's model: SOL's operators are only in the processes that registered them."""
        return plain(self).export(*args, **kwargs)

    def __reduce__(self: Any) -> Any:
        return _again, (*plain(self).__reduce__()[:2], self._sol_attach)

    def __deepcopy__(self: Any, memo: Any) -> Any:
        return self._sol_attach(copy.deepcopy(plain(self), memo))


# what Keras has compiled of the original for `fit`, `evaluate` and `predict`
_STEPS = ("train_function", "test_function", "predict_function")
_MEMBERS = ("call", "setWeights", "export", "__reduce__", "__deepcopy__")


def plain(model: Any) -> Any:
    """The user's model behind an optimized one, which shares everything with it."""
    made: Any = object.__new__(original(type(model)))
    made.__dict__.update({k: v for k, v in model.__dict__.items() if k not in ("_sol", "supports_jit")})
    return made


def optimize(model: Any, call: Call, frontend: Callable[[Any], Any], zeros: Callable[[Described], Any]) -> Any:
    """`sol.optimize`. With example arguments, the network for inference is compiled now. `frontend`: makes an optimized model; `zeros`: an
    example as described."""
    new = frontend(copy.deepcopy(model) if call.copy else model)
    if call.args or call.kwargs:
        leaves = [zeros(x) if isinstance(x, Described) else x for x in flatten((call.args, call.kwargs))]
        args, kwargs = rebuild((call.args, call.kwargs), leaves)
        new(*args, **kwargs)
    return new


def class_of(cls: type, members: dict[str, Any]) -> type:
    """A class of the same name, so that files that Keras saves name the user's class."""
    if any(cls.__dict__.get(k) is v for k, v in members.items()):  # clone_model has made it of an optimized one
        cls = original(cls)
    new = type(cls.__name__, (cls,), {**members, "__module__": cls.__module__, "__qualname__": cls.__qualname__})
    if cls in object_registration.GLOBAL_CUSTOM_NAMES:  # by `register_keras_serializable`
        object_registration.GLOBAL_CUSTOM_NAMES[new] = object_registration.GLOBAL_CUSTOM_NAMES[cls]
    return new


def is_optimized(model: Any) -> bool:
    """Whether this is an optimized model."""
    return "_sol" in getattr(model, "__dict__", ())


def check_new(model: Any) -> None:
    """Raises InvalidError for an optimized model."""
    if is_optimized(model):
        raise _core.InvalidError(f"{type(model).__name__}: is optimized already")


def attach(model: Any, frontend: Callable[[Any], Any], members: dict[str, Any]) -> Any:
    """The optimized model, still without its `_sol`. `frontend`: makes one of a model; `members`: more of its class."""
    check_new(model)
    own = {k: vars(Face)[k] for k in _MEMBERS if k != "export" or hasattr(model, k)}  # layers have none
    new: Any = object.__new__(class_of(type(model), {**own, "_sol_attach": staticmethod(frontend), **members}))
    new.__dict__.update(model.__dict__)
    new.__dict__.update({name: None for name in _STEPS if name in new.__dict__})
    if not model.built:
        _build_both(model, new)
    return new


def _build_both(model: Any, new: Any) -> None:
    """Makes `build` of a model or of one of its optimized ones build all: Keras's function in `__dict__` builds the original alone."""
    build = model.build
    others: list[weakref.ref[Any]] | None = getattr(build, "sol_others", None)
    if others is None:
        others = []

        @functools.wraps(build)
        def together(*args: Any, **kwargs: Any) -> None:
            before = dict(vars(model))
            build(*args, **kwargs)
            made = {k: v for k, v in vars(model).items() if k not in before or before[k] is not v}
            for other in others:
                getattr(other(), "__dict__", {}).update(made)

        together.sol_others = others  # type: ignore[attr-defined]
        model.__dict__["build"] = new.__dict__["build"] = together
    others.append(weakref.ref(new))
