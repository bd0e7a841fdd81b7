"""`sol.jax.optimize`: a function of JAX as one that runs networks of SOL."""

from __future__ import annotations

import functools
import inspect
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from sol import _core, forms, log, parsed, report
from sol.inputs import ANY, Dim, Input, type_name, vdims_wanted
from sol.parsed import is_keras
from sol.programs import Programs

from . import vary
from .chance import is_key, key_bits
from .network import Bound, Described, Network, register

MOST_BOUND = 2  # sets of parameters for which prepared ones are kept
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

    def network_at(self, wanted: tuple[int, ...] | None, dims: tuple[int, ...]) -> tuple[Network, tuple[int, ...]]:
        """The network for a call of these sizes, and those of them that vary in it."""
        return self.network(wanted), dims

    def dims(self, shapes: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
        """The sizes that vary of a call whose arguments, by number, have these shapes."""
        return ()

    def call(self, leaves: Sequence[Any], specs: Sequence[Any]) -> Any:
        """The results for arguments that have these types."""
        own = [leaves[i] for i in self.params]
        fixed = all(isinstance(x, FIXED) and not isinstance(x, jax.core.Tracer) for x in own)
        bound = self.bound(tuple(own) if fixed else None)
        operands = [(leaves[i], specs[i].dtype) for i in bound.passed]
        if any(isinstance(x, jax.core.Tracer) for x in leaves):
            return self._staged(bound, [jax.numpy.asarray(x, dtype) for x, dtype in operands])
        self._last = None
        return bound.now([np.asarray(x, dtype) for x, dtype in operands])

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

    flat     the function of the arguments' leaves, keys as bits
    varying  the sizes that vary; None: `specs` say all sizes
    """

    varying: vary.Varying | None = None

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


class ForAll(Networks):
    """Networks for all sizes. Where there is none with a gradient, or it does not take the sizes of a call, each combination of sizes
    has one."""

    def __init__(self, *others: Any) -> None:
        super().__init__(*others)
        self._sized: Programs[Networks] = Programs(self.name, self._of_sizes, lambda n: n.memory)
        self._refused: set[tuple[int, ...] | None] = set()

    @abstractmethod
    def _of_sizes(self, dims: Hashable) -> Networks:
        """Those for one combination."""

    def _takes(self, network: Network, dims: tuple[int, ...]) -> bool:
        """Whether the network runs with these sizes."""
        return True

    def network_at(self, wanted: tuple[int, ...] | None, dims: tuple[int, ...]) -> tuple[Network, tuple[int, ...]]:
        """The network for all sizes, or that for these."""
        if wanted not in self._refused:
            try:
                network = self.network(wanted)
                if self._takes(network, dims):
                    return network, dims
            except (_core.UnsupportedError, forms.Varies) as e:
                self._refused.add(wanted)
                log.info(f"{self.name}: each new size is compiled for gradients: {' '.join(str(e).split())}")
        return self._sized.get(dims).network(wanted), ()


class VaryingTraced(ForAll, Traced):
    """Networks of a function for all sizes."""

    varying: vary.Varying

    def __init__(self, varying: vary.Varying, specs: Sequence[Any], *others: Any) -> None:
        """`specs` are the types of the example; `others` are arguments of `Traced`."""
        super().__init__(*others)
        self.varying, self._specs = varying, specs

    def _of_sizes(self, dims: Hashable) -> Traced:
        assert isinstance(dims, tuple)
        return Traced(self.name, self.flat, self.varying.at(dims, self._specs), self.names, self.params)

    def fits(self, shapes: Sequence[Sequence[int]]) -> bool:
        """Whether a call of these sizes runs here."""
        return self.varying.dims(shapes) is not None

    def dims(self, shapes: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
        """The sizes of a call."""
        found = self.varying.dims([shapes.get(i, own) for i, own in enumerate(self.varying.shapes)])
        assert found is not None
        return found


class Family:
    """A function for calls that differ in sizes alone. `traced`: for all that may vary, None if none may.

    places  the sizes that are to vary, with what is known of them
    vdims   what the user says of those that may
    """

    def __init__(
        self,
        trace: Callable[..., Any],
        specs: Sequence[Any],
        places: dict[vary.Place, Dim],
        vdims: Any,
    ) -> None:
        self._trace, self.specs = trace, list(specs)
        self.traced: VaryingTraced | None = None
        self.search = self._find(places)
        if self.traced is not None and vdims not in (None, True):
            left, sizes = vary.chosen(self.traced.varying.symbols, vdims)
            for (i, d), n in sizes.items():
                s = self.specs[i]
                self.specs[i] = jax.ShapeDtypeStruct(
                    (*s.shape[:d], n, *s.shape[d + 1 :]), s.dtype, weak_type=s.weak_type
                )
            self._find(left)

    def _find(self, places: dict[vary.Place, Dim]) -> vary.Search:
        search = vary.Search(places, [tuple(s.shape) for s in self.specs], self._attempt)
        found = search.run() if places else None
        self.traced = found[1] if found else None
        return search

    def _attempt(self, varying: vary.Varying) -> VaryingTraced:
        traced: VaryingTraced = self._trace(self.specs, varying)
        Described(traced.name, traced, traced.params, None)  # can SOL translate it?
        return traced

    @property
    def memory(self) -> int:
        """Bytes that the networks hold besides parameters."""
        return self.traced.memory if self.traced else 0

    def report(self, leaves: Sequence[int], names: Sequence[str]) -> report.Report:
        """What `sol.dims` says of these leaves."""
        traced = self.traced or self._trace(self.specs)
        made = Described(traced.name, traced, traced.params, None)
        why = {(names[i], d): text for (i, d), text in self.search.why.items()}
        inputs = [(names[i], forms.form(made.values[i].shape)) for i in leaves]
        results = [tuple(forms.form(r.shape)) for r in made.results]
        return report.of(
            [(n, tuple(s)) for n, s in inputs], results, lambda n, d: why.get((n, d), "the example has one there")
        )


def _spec(x: Any) -> Any:
    """The type of an argument."""
    if isinstance(x, Input):
        return jax.ShapeDtypeStruct(x.sized(1), np.dtype(type_name(x.dtype)))
    if isinstance(x, jax.ShapeDtypeStruct):
        return x
    aval = jax.api_util.shaped_abstractify(x)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _key(spec: Any) -> Hashable:
    return spec.shape, *_kind(spec)[1:]


def _kind(spec: Any) -> tuple[Any, ...]:
    """What programs for all sizes depend on."""
    return len(spec.shape), str(spec.dtype), bool(spec.weak_type)


class Call:
    """The arguments of a call, taken apart."""

    def __init__(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], batch_size: int | None = None
    ) -> None:
        self._batch = batch_size
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
            spec = _spec(self.leaves[i])
            if self._batch is None or not spec.shape or function._is_param(self.argument(i), self):
                return spec
            return jax.ShapeDtypeStruct((self._batch, *spec.shape[1:]), spec.dtype, weak_type=spec.weak_type)
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
        return self._with(_key)

    @property
    def kind(self) -> Hashable:
        """The same without sizes."""
        return self._with(_kind)

    def _with(self, key: Callable[[Any], Hashable]) -> Hashable:
        return (
            self.tree,
            tuple(self.static.items()),
            tuple(self.static_kw.items()),
            tuple(map(key, self.specs)),
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
        self._programs: Programs[Traced] = Programs(self.__name__, self._traced, lambda t: t.memory)
        self._families: Programs[Family] = Programs(self.__name__, self._family, lambda f: f.memory)
        self._used: Traced | None = None
        # the sizes that vary: as `vdims`; "batch": the first ones; "described": as sol.input says
        self.vary: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the network for these arguments."""
        call = Call(self, args, kwargs)
        traced = self.traced(call)
        results = traced.call(call.leaves, call.specs)
        leaves = [jax.random.wrap_key_data(y, impl=k) if k else y for y, k in zip(results, traced.keys, strict=True)]
        return jax.tree_util.tree_unflatten(traced.tree, leaves)

    @property
    def _sol(self) -> Function:
        return self  # what programs.latest asks

    def latest(self) -> Network | None:
        """The network used last."""
        return None if self._used is None else self._used.latest()

    def traced(self, call: Call) -> Traced:
        """The function for arguments of these types."""
        found = self.family(call).traced if self.vary is not None else None
        fits = found is not None and found.fits([s.shape for s in call.specs])
        traced: Traced = found if found and fits else self._kept(self._programs, call, call.key)
        self._used = traced
        return traced

    def first(self, call: Call) -> Traced:
        """The same for the example: where `vdims` has another size, for that."""
        family = self.family(call) if self.vary is not None else None
        other = family is not None and family.specs != call.specs
        return family.traced if family and family.traced and other else self.traced(call)

    def family(self, call: Call) -> Family:
        """The function for arguments that have these types without sizes."""
        return self._kept(self._families, call, call.kind)

    def _kept(self, programs: Programs[Any], call: Call, key: Hashable) -> Any:
        try:
            self._calls.setdefault(key, call)
        except TypeError as e:
            raise _core.InvalidError(f"{self.__name__}: static arguments must be hashable: {e}") from e
        try:
            return programs.get(key)
        finally:
            self._calls.pop(key, None)

    def places(self, call: Call) -> dict[vary.Place, Dim]:
        """The sizes of a call that are to vary if they may."""
        inputs = self.inputs(call)
        if self.vary == "described":
            described = [(i, x) for i, x in enumerate(call.leaves) if isinstance(x, Input)]
            return {
                (i, d): n if isinstance(n, Dim) else ANY
                for i, x in described
                for d, n in enumerate(x.shape)
                if x.varies(d)
            }
        axes = [(i, d) for i in inputs for d in range(1 if self.vary == "batch" else len(call.specs[i].shape))]
        axes = [(i, d) for i, d in axes if call.keys[i] is None]
        shapes = [s.shape for s in call.specs]
        return {(i, d): ANY for i, d in axes if d < len(shapes[i]) and (shapes[i][d] > 1 or (d == 0 and shapes[i][d]))}

    def inputs(self, call: Call) -> list[int]:
        """The leaves of a call that are no parameters."""
        return [i for i in range(len(call.leaves)) if not self._is_param(call.argument(i), call)]

    def _is_param(self, argument: Any, call: Call) -> bool:
        """Whether an argument holds parameters: by default the first one, if it is a container and others follow."""
        if self._params is not None:
            return argument in self._params or (isinstance(argument, int) and argument - call.nargs in self._params)
        arguments = {call.argument(i) for i in range(len(call.leaves))}
        first = [len(path) > 2 for path in call.paths if path[1].key == 0]
        return argument == 0 and len(arguments) > 1 and any(first)

    def _traced(self, key: Hashable) -> Traced:
        call = self._calls[key]
        return self._trace(call, call.specs)

    def _family(self, key: Hashable) -> Family:
        call = self._calls[key]
        family = Family(
            functools.partial(self._trace, call),
            call.specs,
            self.places(call),
            None if isinstance(self.vary, str) else self.vary,
        )
        if family.traced is None:
            why = next(iter(family.search.why.values()), "")
            log.info(f"{self.__name__}: each new size is compiled{': ' if why else ''}{why}")
        else:
            log.info("\n".join(self.report(call, family).shapes))
        return family

    def report(self, call: Call, family: Family) -> report.Report:
        """What `sol.dims` says."""
        names = [call.name(i) for i in range(len(call.leaves))]
        return family.report(self.inputs(call), [f"argument {n}" if n[0].isdigit() else n for n in names])

    def _trace(self, call: Call, specs: Sequence[Any], varying: vary.Varying | None = None) -> Traced:
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

        _name_after(flat, function)
        names = [call.name(i) for i in range(len(call.leaves))]
        params = [i for i in range(len(names)) if self._is_param(call.argument(i), call)]
        register()
        if varying is None:
            traced = Traced(self.__name__, flat, specs, names, params)
        else:
            traced = VaryingTraced(varying, specs, self.__name__, flat, varying.specs(specs), names, params)
        traced.tree, traced.keys = found
        log.debug(f"{self.__name__}: traced for {', '.join(str(s.shape) for s in specs)}")
        return traced


def _name_after(flat: Any, function: Callable[..., Any]) -> None:
    """Errors of JAX about `flat` then name the user's function and its line."""
    flat.__signature__ = inspect.signature(flat)  # but the arguments are its own
    flat.__wrapped__ = function


def optimize(
    function: Callable[..., Any],
    *args: Any,
    params: int | str | Sequence[int | str] | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    vdims: Any = None,
    batch_size: int | None = None,
    **kwargs: Any,
) -> Function:
    """Optimizes a function of JAX. The result is called like the function, also inside of `jax.jit`, `jax.grad` and `jax.vmap`.

    function         any function that `jax.jit` accepts: of arrays and pytrees of them
    args, kwargs     examples: arrays, `sol.input(..)` or `jax.ShapeDtypeStruct`. With some, the network for them is compiled now
    params           the positions or names of arguments that hold parameters: what is computed from them alone is kept between
                     calls. Default: the first argument, if it is a container (dict, list, ..) and others follow
    static_argnums   positions of arguments that are no arrays, as in `jax.jit`
    static_argnames  names of such arguments
    vdims            sizes of arguments that are no parameters and vary between calls: True (all that the function leaves free), or
                     a list with one value for each dimension that `sol.dims` finds, as in `sol.optimize`. Sizes that `sol.input`
                     leaves open vary, too
    batch_size       the first size of these arguments varies, and this is the one to compile for now
    """
    if is_keras(function):
        from . import keras_model

        return keras_model.optimize(function, parsed.Call(args, kwargs))
    chosen = None if params is None else [params] if isinstance(params, int | str) else list(params)
    nums = [static_argnums] if isinstance(static_argnums, int) else list(static_argnums)
    names = [static_argnames] if isinstance(static_argnames, str) else list(static_argnames)
    made = Function(function, chosen, nums, names)
    leaves = jax.tree_util.tree_leaves((args, kwargs))
    made.vary = to_vary(leaves, vdims, batch_size)
    if args or kwargs:
        call = Call(made, args, kwargs, batch_size)
        made.first(call).network(None)
    return made


def to_vary(leaves: Sequence[Any], vdims: Any, batch_size: int | None) -> Any:
    """What `Function.vary` is for these examples."""
    if vdims_wanted(vdims):
        if vdims is not True and not leaves:
            raise _core.InvalidError(f"vdims: expected True, since no call was described, got {vdims!r}")
        return vdims
    if batch_size is not None:
        return "batch"
    described = [x for x in leaves if isinstance(x, Input)]
    return "described" if vdims is None and any(x.varies(d) for x in described for d in range(len(x.shape))) else None
