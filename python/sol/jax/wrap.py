"""A model of another framework as a function of JAX with a pytree of parameters. Its networks are called by XLA, differentiated and
kept as those of JAX's own functions are."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from sol import _core, forms, log
from sol.device import device
from sol.inputs import vdims_wanted
from sol.parsed import NUMPY, Call, Mode, Parsed, Source, differentiate, example, flatten, outline, rebuild
from sol.programs import Programs

from .function import ForAll, Networks
from .network import INPUT, PARAM, Network, Type, register

_WIDE = ("i64", "u64")


def _pairs(dtype: str) -> bool:
    """Whether numbers of 64 bits are pairs of 32 here, because JAX has no such integers."""
    return dtype in _WIDE and not jax.config.jax_enable_x64


def _spec(tensor: _core.Tensor) -> Any:
    """The type of an array at the network's border."""
    if tensor.dtype == "f64" and not jax.config.jax_enable_x64:
        raise _core.UnsupportedError("float64: JAX has it after jax.config.update('jax_enable_x64', True)")
    shape = tuple(map(forms.size, tensor.shape))
    return Type((*shape, 2), np.uint32) if _pairs(tensor.dtype) else Type(shape, NUMPY[tensor.dtype])


def _split(x: Any, signed: bool) -> Any:
    """32-bit integers as pairs, the low half in front."""
    x = jax.numpy.asarray(x)
    high = x >> 31 if signed and x.dtype.kind == "i" else jax.numpy.zeros_like(x)
    return jax.numpy.stack([x.astype(np.uint32), high.astype(np.uint32)], -1)


class ParsedNetwork(Network):
    """The network of a parsed model; its arguments are the parameters that it reads, then the inputs."""

    def __init__(self, parsed: Parsed, wanted: tuple[int, ...] | None) -> None:
        self.name, self.graph = parsed.name, parsed.graph
        self._own = [i for i, p in enumerate(parsed.params) if p.constant is None]
        self._held = [i for i, p in enumerate(parsed.params) if p.constant is not None]
        self.params = list(range(len(self._own)))
        self.inputs = [len(self._own) + i for i in range(len(parsed.inputs))]
        self.constants = [np.ascontiguousarray(parsed.params[i].constant) for i in self._held]
        self.results = [_spec(t) for _, t in parsed.graph.outputs]
        self.of, self.reached = (), []
        tensors = [*(parsed.params[i].tensor for i in self._own), *(i.tensor for i in parsed.inputs)]
        self.types = [_spec(t) for t in tensors]
        if wanted is not None:
            n = len(self._own)
            found = differentiate(parsed, [i - n for i in wanted if i >= n], [self._own[i] for i in wanted if i < n])
            self.of = tuple(found.of)
            self.reached = [i + n if kind == "input" else self._own.index(i) for kind, i in found.slots]
        self.gradients = [self.types[i] for i in self.reached]
        self._compile(wanted is not None)

    def argument(self, i: int) -> tuple[int, int]:
        """What argument i is to the network."""
        return (PARAM, self._own[i]) if i < len(self._own) else (INPUT, i - len(self._own))

    def constant_parts(self) -> list[tuple[int, int]]:
        """The parameters that are constants."""
        return [(PARAM, i) for i in self._held]

    def buffers(self, bound: Sequence[Any]) -> tuple[Any, ...]:
        """The values of all parameters, in the network's order."""
        values = dict(zip([*self._own, *self._held], [*bound, *self.constants], strict=True))
        return tuple(values[i] for i in range(len(values)))


class Wrapped(Networks):
    """The networks of a wrapped model for calls of one kind. `vdims` in the call: for all sizes that it lets vary."""

    def __init__(self, source: Source, call: Call, training: bool) -> None:
        self.source, self.example, self.training = source, call, training
        self.parsed = self._parse(False)
        self._unused: Parsed | None = self.parsed  # until a network is made of it
        own = [p.name for p in self.parsed.params if p.constant is None]
        super().__init__(source.name, [*own, *(i.name for i in self.parsed.inputs)], list(range(len(own))))
        self.leaves = [i.leaf for i in self.parsed.inputs]
        outputs = self.parsed.graph.outputs
        self.results = [(t.dtype, _spec(t)) for _, t in outputs]
        tensors = [
            *(p.tensor for p in self.parsed.params if p.constant is None),
            *(i.tensor for i in self.parsed.inputs),
        ]
        self.types = [(t.dtype, _spec(t)) for t in tensors]

    def _parse(self, gradient: bool) -> Parsed:
        return self.source.parse(self.example, Mode(self.training, gradient))

    def _made(self, wanted: tuple[int, ...] | None) -> Network:
        parsed, self._unused = (
            (self._unused, None) if wanted is None and self._unused else (self._parse(wanted is not None), self._unused)
        )
        made = [p.name for p in parsed.params if p.constant is None], [i.leaf for i in parsed.inputs]
        if made != ([self.names[i] for i in self.params], self.leaves):
            raise _core.UnsupportedError(
                f"{self.name}: reads other parameters or arguments when gradients are computed"
            )
        return ParsedNetwork(parsed, wanted)

    def vectorized(self, axes: tuple[int | None, ...], leaves: Sequence[Any]) -> None:
        """There is none: the model of another framework has the sizes that it has."""

    def run(self, given: Sequence[Any]) -> list[Any]:
        """All outputs of the network, for its arguments."""
        operands = [_split(x, d == "i64") if _pairs(d) else x for x, (d, _) in zip(given, self.types, strict=True)]
        made = self.call(operands, [s for _, s in self.types])
        return [
            y[..., 0].astype(np.int32 if d == "i64" else np.uint32) if _pairs(d) else y
            for y, (d, _) in zip(made, self.results, strict=True)
        ]


class Varying(ForAll, Wrapped):
    """Those for all sizes."""

    def __init__(self, source: Source, call: Call, training: bool) -> None:
        super().__init__(source, call, training)
        first = len(self.params)
        self._shapes = [tuple(map(forms.size, i.tensor.shape)) for i in self.parsed.inputs]
        found: dict[str, tuple[int, int]] = {}
        for k, shape in enumerate(self._shapes):
            for d, n in enumerate(shape):
                if forms.varies(n) and _core.size_limits(n.form):
                    found.setdefault(repr(n), (first + k, d))
        self._where = [found[name] for name in sorted(found, key=lambda name: int(name[1:]))]
        if not found:
            raise _core.UnsupportedError("no size may vary")

    def _of_sizes(self, dims: Hashable) -> Wrapped:
        assert isinstance(dims, tuple)
        call = self.example
        leaves = flatten((call.args, call.kwargs))
        for i, shape in zip(self.parsed.inputs, self._shapes, strict=True):
            if i.leaf >= 0:
                leaves[i.leaf] = np.zeros(forms.at(shape, dims), leaves[i.leaf].dtype)
        return Wrapped(self.source, Call(*rebuild((call.args, call.kwargs), leaves)), self.training)

    def _takes(self, network: Network, dims: tuple[int, ...]) -> bool:
        if len(network.net.dims) != len(dims):
            raise _core.UnsupportedError("no argument has the size of a dimension")
        try:
            network.net.bind(tuple(forms.at(shape, dims) for shape in self._shapes))
        except _core.InvalidError as e:
            log.debug(f"{self.name}: a program for this call alone: {e}")
            return False
        return True

    def dims(self, shapes: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
        """The sizes of a call."""
        return tuple(shapes[i][d] for i, d in self._where)

    def fits(self, leaves: Sequence[Any]) -> bool:
        """Whether sizes that do not vary are the network's, and equal ones are equal."""
        first = len(self.params)
        given = {first + k: leaves[i.leaf].shape for k, i in enumerate(self.parsed.inputs) if i.leaf >= 0}
        dims = self.dims(given)
        return all(
            tuple(given[first + k]) == forms.at(s, dims) for k, s in enumerate(self._shapes) if first + k in given
        )


class Family:
    """The networks for all sizes of calls of one kind. `varying` None: there are none."""

    def __init__(self, source: Source, key: Key) -> None:
        args, kwargs = key.call.args, key.call.kwargs
        self.varying: Varying | None = None
        try:
            self.varying = Varying(source, Call(args, kwargs, vdims=source.call.vdims), key.training)
        except (_core.UnsupportedError, _core.InvalidError) as e:
            log.info(f"{source.name}: each combination of sizes has a program: {e}")

    @property
    def memory(self) -> int:
        """Bytes that the networks hold besides parameters."""
        return self.varying.memory if self.varying else 0


class Key:
    """What the networks for a call depend on. It brings the call along."""

    def __init__(self, parts: Hashable, call: Call, training: bool) -> None:
        self.parts, self.call, self.training = parts, call, training

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)


class Model:
    """A model of another framework as a function: also inside of `jax.jit` and `jax.grad`.

    net(parameters, *args, **kwargs)                 the model's result, as in inference
    net.train(parameters, *args, key=None, **kwargs) the result as in training, and all parameters with the new values of those
                                                     that a call changes (statistics of batch normalization). Random layers need a
                                                     key of jax.random
    net.parameters                                   the values of the model, a dict of arrays by name
    net.trained                                      the names of those that are trained
    """

    sol_framework = "jax"

    def __init__(self, source: Source) -> None:
        self.name, self.source = source.name, source
        first: dict[Any, str] = {}
        self._names = {o.name: first.setdefault(o.key, o.name) for o in source.owned}
        own = [o for o in source.owned if self._names[o.name] == o.name]
        wide = [o.name for o in own if o.array.dtype == np.float64]
        if wide and not jax.config.jax_enable_x64:
            raise _core.UnsupportedError(
                f"{self.name}: {wide[0]} is float64, which JAX has after jax.config.update('jax_enable_x64', True)"
            )
        self.parameters = {o.name: jax.numpy.asarray(np.array(o.array)) for o in own}
        self.trained = tuple(o.name for o in own if o.trained)
        self._programs: Programs[Wrapped] = Programs(self.name, self._make, lambda w: w.memory)  # type: ignore[arg-type]
        self._families: Programs[Family] = Programs(self.name, self._family, lambda f: f.memory)  # type: ignore[arg-type]
        self._varies = vdims_wanted(source.call.vdims)
        self._used: Wrapped | None = None
        call = source.call
        if call.args or call.kwargs:
            leaves = [example(leaf, call.batch_size) for leaf in flatten((call.args, call.kwargs))]
            self._find((*rebuild((call.args, call.kwargs), leaves), False)).network(None)

    def __repr__(self) -> str:
        return f"sol.jax.Model({self.name} of {self.source.framework})"

    def __call__(self, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        """The model's result."""
        return self._run(parameters, (args, kwargs, False), None)[0]

    @property
    def _sol(self) -> Model:
        return self  # what programs.latest asks

    def latest(self) -> Network | None:
        """The network used last."""
        return None if self._used is None else self._used.latest()

    def train(self, parameters: Any, *args: Any, key: Any = None, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """The model's result as in training, and the parameters with new states."""
        return self._run(parameters, (args, kwargs, True), key)

    def _run(self, parameters: Any, call: tuple[Any, Any, bool], key: Any) -> tuple[Any, dict[str, Any]]:
        wrapped, leaves = self._find(call), flatten(call[:2])
        given = [self._parameter(parameters, n) for n in wrapped.names[: len(wrapped.params)]]
        given += [self._seed(key) if i < 0 else leaves[i] for i in wrapped.leaves]
        outputs, parsed = wrapped.run(given), wrapped.parsed
        new = {self._names[parsed.params[p].name]: outputs[o] for p, o in parsed.writes}
        return parsed.pack([outputs[o.number] for o in parsed.outputs]), {**parameters, **new}

    def _parameter(self, parameters: Any, name: str) -> Any:
        """A parameter of a call, with the type and shape of the model's."""
        own = self.parameters[self._names[name]]
        value = parameters.get(self._names[name]) if hasattr(parameters, "get") else None
        found = None if value is None else (value.shape, value.dtype)
        if found != (own.shape, own.dtype):
            got = "none" if found is None else f"{found[1]}{list(found[0])}"
            raise _core.InvalidError(
                f"{self.name}: parameters: {self._names[name]!r}: expected {own.dtype}{list(own.shape)}, got {got}; the first argument "
                "is a dict like net.parameters"
            )
        return value

    def _seed(self, key: Any) -> Any:
        if key is None:
            raise _core.InvalidError(f"{self.name}: has random layers: train(parameters, .., key=jax.random.key(..))")
        dtype = np.int64 if jax.config.jax_enable_x64 else np.int32
        return jax.random.randint(key, (), 0, np.iinfo(dtype).max, dtype)

    def _find(self, what: tuple[Any, Any, bool]) -> Wrapped:
        args, kwargs, training = what
        leaves = [_described(i, leaf) for i, leaf in enumerate(flatten((args, kwargs)))]
        kinds = tuple((v.shape, v.dtype.name) if isinstance(v, jax.ShapeDtypeStruct) else repr(v) for v in leaves)
        arrays = [np.zeros(v.shape, v.dtype) if isinstance(v, jax.ShapeDtypeStruct) else v for v in leaves]
        call = Call(*rebuild((args, kwargs), arrays))
        self._used = self._for_all(call, leaves, training) if self._varies else None
        if self._used is None:
            self._used = self._programs.get(self._key(call, kinds, training))
        return self._used

    def _key(self, call: Call, kinds: tuple[Any, ...], training: bool) -> Key:
        return Key((outline((call.args, call.kwargs)), kinds, training, device.chosen["device"]), call, training)

    def _for_all(self, call: Call, leaves: Sequence[Any], training: bool) -> Varying | None:
        """The networks for all sizes, if they take those of this call."""
        kinds = tuple((len(v.shape), v.dtype.name) if isinstance(v, jax.ShapeDtypeStruct) else repr(v) for v in leaves)
        found = self._families.get(self._key(call, kinds, training)).varying
        return found if found and found.fits(leaves) else None

    def _make(self, key: Key) -> Wrapped:
        register()
        return Wrapped(self.source, key.call, key.training)

    def _family(self, key: Key) -> Family:
        register()
        return Family(self.source, key)


def _described(i: int, leaf: Any) -> Any:
    if isinstance(leaf, jax.Array | np.ndarray | np.generic):
        return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
    if leaf is None or isinstance(leaf, bool | int | float | str):
        return leaf
    raise _core.InvalidError(f"argument {i}: expected an array or a number, got {type(leaf)}")


def wrap(source: Source) -> Model:
    """A model of another framework as a function of JAX."""
    return Model(source)
