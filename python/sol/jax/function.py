"""`sol.jax.optimize`: a function of JAX as one that runs networks of SOL."""

from __future__ import annotations

import functools
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import numpy as np

from sol import _core, log, parsed
from sol.inputs import Input, type_name
from sol.parsed import is_keras
from sol.programs import Programs

from .chance import is_key, key_bits
from .network import Bound, Network, register

MOST_BOUND = 2  # sets of parameters for which prepared ones are kept
EACH_SHAPE = (
    "vdims and batch_size: not supported for functions of JAX: each shape has a program; pad arrays to a few shapes"
)
FIXED = (jax.Array, np.generic, bool, int, float)  # types of leaves whose values do not change


class Networks(ABC):
    """Networks of one function for arguments of fixed types, which differ in their gradients.

    names   of the arguments, which are arrays
    params  the numbers of those that are parameters
    """

    def __init__(self, name: str, names: list[str], params: list[int]) -> None:
        self.name, self.names, self.params = name, names, params
        self._networks: dict[tuple[int, ...] | None, Network] = {}
        self._last: tuple[int, ...] | None = None  # of the network used last, or compiled last where XLA calls it
        self._bound: OrderedDict[tuple[int, ...] | None, Bound] = OrderedDict()
        self._lock = threading.RLock()

    @abstractmethod
    def _made(self, wanted: tuple[int, ...] | None) -> Network:
        """A new network."""

    @abstractmethod
    def vectorized(self, axes: tuple[int | None, ...], leaves: Sequence[Any]) -> Networks | None:
        """The function under vmap; None: there is none, and each example runs on its own."""

    def network(self, wanted: tuple[int, ...] | None) -> Network:
        """The network with the gradients of these arguments (None: without), compiled when it is first needed."""
        with self._lock:
            if wanted not in self._networks:
                self._networks[wanted] = self._made(wanted)
                self._last = wanted
            return self._networks[wanted]

    def call(self, leaves: Sequence[Any], specs: Sequence[Any]) -> Any:
        """The results for arguments that have these types."""
        own = [leaves[i] for i in self.params]
        fixed = all(isinstance(x, FIXED) and not isinstance(x, jax.core.Tracer) for x in own)
        bound = self.bound(tuple(own) if fixed else None)
        operands = [(leaves[i], specs[i].dtype) for i in bound.passed]
        if any(isinstance(x, jax.core.Tracer) for x in leaves):
            return self._staged(bound, [jax.numpy.asarray(x, dtype) for x, dtype in operands])
        self._last = None
        return bound.calls(None).now([np.asarray(x, dtype) for x, dtype in operands])

    def _staged(self, bound: Bound, arrays: list[Any]) -> Any:
        """A call inside of a transformation of JAX."""
        try:
            return bound.apply(arrays)
        except TypeError as e:
            if "forward-mode" not in str(e):
                raise
            raise _core.UnsupportedError(
                f"{self.name}: jax.jvp, jax.jacfwd and jax.hessian: not supported; differentiate the original function, or use "
                "jax.grad, jax.vjp or jax.jacrev"
            ) from e

    def bound(self, arrays: tuple[Any, ...] | None) -> Bound:
        """The function with these arrays as parameters. What was prepared of them is kept for the sets used last."""
        key = None if arrays is None else tuple(map(id, arrays))
        with self._lock:
            found = self._bound.get(key)
            if found is None:
                found = self._bound[key] = Bound(self, arrays)
                while len(self._bound) > MOST_BOUND:
                    self._bound.popitem(last=False)
            self._bound.move_to_end(key)
            return found

    def latest(self) -> Network | None:
        """The network used last."""
        return self._networks.get(self._last)

    @property
    def memory(self) -> int:
        """Bytes that the networks hold besides parameters."""
        return sum(n.net.memory["prepared"] + n.net.memory["workspace"] for n in self._networks.values())


class Traced(Networks):
    """Those of a function of JAX: its jaxpr, and the networks made of it.

    flat  the function of the arguments' leaves, keys as bits
    """

    def __init__(
        self, name: str, flat: Callable[..., Any], specs: Sequence[Any], names: list[str], params: list[int]
    ) -> None:
        super().__init__(name, names, params)
        self.flat = flat
        self.jaxpr = jax.make_jaxpr(flat)(*specs)
        self.tree: Any = None  # of the results
        self.keys: list[Any] = []  # of the results that are keys of random numbers: their kind
        self._vectorized: dict[Hashable, Traced] = {}

    def _made(self, wanted: tuple[int, ...] | None) -> Network:
        return Network(self.name, self, self.params, wanted)

    def vectorized(self, axes: tuple[int | None, ...], leaves: Sequence[Any]) -> Traced:
        """The function under vmap."""
        specs = [_spec(x) for x in leaves]
        key = axes, tuple(map(_key, specs))
        with self._lock:
            if key not in self._vectorized:
                flat = jax.vmap(self.flat, in_axes=axes)
                params = [i for i in self.params if axes[i] is None]
                self._vectorized[key] = Traced(f"{self.name}, vectorized", flat, specs, self.names, params)
            return self._vectorized[key]


def _spec(x: Any) -> Any:
    """The type of an argument."""
    if isinstance(x, Input):
        return jax.ShapeDtypeStruct(x.sized(1), np.dtype(type_name(x.dtype)))
    if isinstance(x, jax.ShapeDtypeStruct):
        return x
    aval = jax.api_util.shaped_abstractify(x)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _key(spec: Any) -> Hashable:
    return spec.shape, str(spec.dtype), bool(spec.weak_type)


class Call:
    """The arguments of a call, taken apart."""

    def __init__(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        static = {i % len(args) for i in function.static_argnums} if args else set()
        self.static = {i: args[i] for i in sorted(static)}
        self.static_kw = {k: kwargs[k] for k in function.static_argnames if k in kwargs}
        self.nargs = len(args)
        dynamic = {i: a for i, a in enumerate(args) if i not in static}
        named = {k: v for k, v in kwargs.items() if k not in self.static_kw}
        pairs, self.tree = jax.tree_util.tree_flatten_with_path((dynamic, named))
        self.paths = [path for path, _ in pairs]
        self.keys = [x.dtype._impl if is_key(x) else None for _, x in pairs]
        self.leaves = [key_bits(x) for _, x in pairs]
        self.specs = [self._spec(function, i) for i in range(len(pairs))]

    def _spec(self, function: Function, i: int) -> Any:
        try:
            return _spec(self.leaves[i])
        except TypeError as e:
            x = self.leaves[i]
            got = f"an array of type {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
            raise _core.InvalidError(
                f"{function.__name__}: argument {self.name(i)}: expected an array of numbers, got {got}; "
                "name it in static_argnums or static_argnames if it is no array"
            ) from e

    def name(self, i: int) -> str:
        """The name of a leaf, such as 0['w']."""
        (kind, first, *rest) = self.paths[i]
        del kind
        return str(getattr(first, "key", first)) + jax.tree_util.keystr(tuple(rest))

    def argument(self, i: int) -> Any:
        """The position or the name of the argument that a leaf is in."""
        return self.paths[i][1].key

    @property
    def key(self) -> Hashable:
        """What programs depend on."""
        return (
            self.tree,
            tuple(self.static.items()),
            tuple(self.static_kw.items()),
            tuple(map(_key, self.specs)),
            tuple(k.name if k else None for k in self.keys),
        )


class Function:
    """A function that SOL optimized. It has the arguments and results of the original, works inside of `jax.jit`, `jax.grad` and
    `jax.vmap`, and is traced again for other shapes and types, as by `jax.jit`."""

    sol_framework = "jax"

    def __init__(
        self,
        function: Callable[..., Any],
        params: Sequence[int | str] | None,
        static_argnums: Sequence[int],
        static_argnames: Sequence[str],
    ) -> None:
        functools.update_wrapper(self, function, updated=())
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.function = function
        self.static_argnums, self.static_argnames = tuple(static_argnums), tuple(static_argnames)
        self._params = params
        self._calls: dict[Hashable, Call] = {}
        self._programs: Programs[Traced] = Programs(self.__name__, self._trace, lambda t: t.memory)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the network for these arguments."""
        call = Call(self, args, kwargs)
        key = call.key
        traced = self.traced(call, key)
        results = traced.call(call.leaves, call.specs)
        leaves = [jax.random.wrap_key_data(y, impl=k) if k else y for y, k in zip(results, traced.keys, strict=True)]
        return jax.tree_util.tree_unflatten(traced.tree, leaves)

    @property
    def _sol(self) -> Function:
        return self  # what programs.latest asks

    def latest(self) -> Network | None:
        """The network used last."""
        traced = self._programs.latest()
        return None if traced is None else traced.latest()

    def traced(self, call: Call, key: Hashable) -> Traced:
        """The function for arguments of these types."""
        try:
            self._calls.setdefault(key, call)
        except TypeError as e:
            raise _core.InvalidError(f"{self.__name__}: static arguments must be hashable: {e}") from e
        try:
            return self._programs.get(key)
        finally:
            self._calls.pop(key, None)

    def _is_param(self, argument: Any, call: Call) -> bool:
        """Whether an argument holds parameters: by default the first one, if it is a container and others follow."""
        if self._params is not None:
            return argument in self._params or (isinstance(argument, int) and argument - call.nargs in self._params)
        arguments = {call.argument(i) for i in range(len(call.leaves))}
        first = [len(path) > 2 for path in call.paths if path[1].key == 0]
        return argument == 0 and len(arguments) > 1 and any(first)

    def _trace(self, key: Hashable) -> Traced:
        call = self._calls[key]
        function, tree, keys = self.function, call.tree, call.keys
        static, static_kw, nargs = call.static, call.static_kw, call.nargs
        found: list[Any] = []

        def flat(*leaves: Any) -> list[Any]:
            own = [jax.random.wrap_key_data(x, impl=k) if k else x for x, k in zip(leaves, keys, strict=True)]
            dynamic, named = jax.tree_util.tree_unflatten(tree, own)
            args = [static[i] if i in static else dynamic[i] for i in range(nargs)]
            made, out = jax.tree_util.tree_flatten(function(*args, **named, **static_kw))
            found[:] = [out, [y.dtype._impl if is_key(y) else None for y in made]]
            return [key_bits(y) for y in made]

        names = [call.name(i) for i in range(len(call.leaves))]
        params = [i for i in range(len(names)) if self._is_param(call.argument(i), call)]
        register()
        traced = Traced(self.__name__, flat, call.specs, names, params)
        traced.tree, traced.keys = found
        log.debug(f"{self.__name__}: traced for {', '.join(str(s.shape) for s in call.specs)}")
        return traced


def optimize(
    function: Callable[..., Any],
    *args: Any,
    params: int | str | Sequence[int | str] | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    vdims: None = None,
    batch_size: None = None,
    **kwargs: Any,
) -> Function:
    """Optimizes a function of JAX. The result is called like the function, also inside of `jax.jit`, `jax.grad` and `jax.vmap`.

    function         any function that `jax.jit` accepts: of arrays and pytrees of them
    args, kwargs     examples: arrays, `sol.input(..)` or `jax.ShapeDtypeStruct`. With some, the network for them is compiled now
    params           the positions or names of arguments that hold parameters: what is computed from them alone is kept between
                     calls. Default: the first argument, if it is a container (dict, list, ..) and others follow
    static_argnums   positions of arguments that are no arrays, as in `jax.jit`
    static_argnames  names of such arguments
    vdims, batch_size  of `sol.optimize`: not supported, because each shape has a program
    """
    if vdims is not None or batch_size is not None:
        raise _core.UnsupportedError(f"sol.jax.optimize: {EACH_SHAPE}")
    if is_keras(function):
        from . import keras_model

        return keras_model.optimize(function, parsed.Call(args, kwargs))
    chosen = None if params is None else [params] if isinstance(params, int | str) else list(params)
    nums = [static_argnums] if isinstance(static_argnums, int) else list(static_argnums)
    names = [static_argnames] if isinstance(static_argnames, str) else list(static_argnames)
    made = Function(function, chosen, nums, names)
    if args or kwargs:
        call = Call(made, args, kwargs)
        made.traced(call, call.key).network(None)
    return made
