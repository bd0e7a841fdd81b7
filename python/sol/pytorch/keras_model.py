"""Models of Keras on PyTorch (KERAS_BACKEND=torch). Keras's variables hold Parameters, which it changes in place. A module of SOL has these
same Parameters, so that it sees what Keras and its optimizers assign, and gradients arrive where Keras looks for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import torch

from sol import _core, keras_face
from sol.parsed import Call

from .entry import optimize_module


class KerasModule(torch.nn.Module):
    """A Keras model as a module with the Parameters of its variables."""

    network: Any
    takes_training: bool

    def __init__(self, model: Any, training: bool) -> None:
        super().__init__()
        variables = keras_face.variables_of(model)
        if not variables and not model.built:
            raise _core.InvalidError(f"{model.name}: has no variables yet: call it once, or give it an Input")
        names: list[str] = []
        for v in variables:
            base = v.path.replace(".", "_")
            names.append(f"{base}#{sum(n.partition('#')[0] == base for n in names)}" if base in names else base)
            self.register_parameter(names[-1], v._value)
        self.__dict__["network"] = _network(
            model, variables, names
        )  # no submodule: Keras's own modules have the same Parameters
        self.__dict__["takes_training"] = model._call_has_training_arg
        self.train(training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's result."""
        if self.takes_training:
            kwargs = {"training": self.training, **kwargs}
        masks = [None] * len(keras.tree.flatten((args, kwargs)))
        return self.network(self._parameters, args, kwargs, masks)[0]


class _Network(KerasModule):
    """What `keras_face.network_of` computes."""

    def forward(self, args: Any, kwargs: Any, masks: Any) -> Any:
        """The result, losses, and what Keras attached to the result."""
        return self.network(self._parameters, args, kwargs, masks)


def _network(model: Any, variables: Sequence[Any], names: Sequence[str]) -> Any:
    function = keras_face.with_values(model, variables, torch.Tensor.detach)  # as Keras on PyTorch assigns

    def network(parameters: Any, args: Any, kwargs: Any, masks: Any) -> Any:
        with _generator():
            made, new = function([parameters[n] for n in names], args, kwargs, masks)
        with torch.no_grad():
            for i, value in new.items():
                parameters[names[i]].copy_(value)
        return made

    return network


@contextlib.contextmanager
def _generator() -> Iterator[None]:
    """Random layers draw from PyTorch's generator: Keras would make one of a seed, whose value a network does not know."""
    random: Any = keras.src.backend.torch.random
    own = random.torch_seed_generator
    random.torch_seed_generator = lambda seed: None
    try:
        yield
    finally:
        random.torch_seed_generator = own


def _tensor(x: Any) -> Any:
    return keras.ops.convert_to_tensor(x) if isinstance(x, np.ndarray) else x


class Networks:
    """The networks of an optimized model."""

    def __init__(self, model: Any, vdims: Any) -> None:
        self.model, self.vdims = model, vdims
        self.modules: dict[bool, Any] = {}
        self._last: Any = None
        self._attributes = keras_face.Attributes(model._flatten_layers, lambda x: type(x) is torch.Tensor)

    def __call__(self, args: Any, kwargs: Any, masks: Any) -> Any:
        """What `keras_face.network_of` computes."""
        training = bool(kwargs.get("training"))
        args, kwargs = keras.tree.map_structure(_tensor, (args, kwargs))
        if self._attributes.changed(self.model.name):
            self.modules = {}
        new = training not in self.modules
        if new:
            self.modules[training] = optimize_module(_Network(self.model, training), (), {}, None, False, self.vdims)
        self._last = self.modules[training]
        made = self._last(args, kwargs, masks)
        if new:
            self._attributes.note()
        return made

    def latest(self) -> Any:
        """The program used last."""
        return None if self._last is None else self._last._sol.latest()

    def plain(self, args: tuple[Any, ...], result: Any, attached: Sequence[Any]) -> None:
        """Nothing to note."""


def attach(model: Any, vdims: Any = None) -> Any:
    """A Keras model as an optimized one, which shares everything with it."""
    new = keras_face.attach(model, attach, {})
    new.__dict__["_sol"] = Networks(new, vdims)
    return new


def optimize(model: Any, call: Call) -> Any:
    """`sol.optimize`."""
    batch = 1 if call.batch_size is None else call.batch_size
    with torch.no_grad():
        return keras_face.optimize(
            model,
            call,
            lambda m: attach(m, call.vdims),
            lambda x: torch.zeros(x.sized(batch), dtype=x.dtype),
        )
