"""Collects the calls of host functions (sol.host_function) during a trace.

A host function returns stand-ins for its arrays and numbers. NumPy's functions and operators on these become further steps
in front of the network, and so does torch.tensor, whose result is an input of the network. A stand-in gives its data to
nothing else, so that nothing that was drawn gets into a program unseen.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from sol import _core
from sol.host import host_function, replaced

from . import generators
from .hosted import Computed, Hosted, Made, Part, Result, Step
from .problems import user_line, users
from .steps import Unusual

if TYPE_CHECKING:
    from .trace import _Recorder

# Functions of other packages that draw: beginning of the modules' names, function or method
BUILT_IN = (
    ("transformers.models.", "_compute_mask_indices"),  # SpecAugment
    ("transformers.models.", "_sample_negative_indices"),
    *(
        (f"transformers.models.{module}.", f"{name}BlockSparseAttention._bigbird_block_rand_mask{head}")
        for module, name in (("big_bird", "BigBird"), ("bigbird_pegasus", "BigBirdPegasus"))
        for head in ("", "_with_head")
    ),
)
_SEEDING = (("random", "seed"), ("numpy.random", "seed"))
_CONVERSIONS = ("tensor", "as_tensor", "asarray", "from_numpy")  # of torch, which make tensors of arrays
_AS_TENSOR = torch.as_tensor
_NUMBERS = (bool, int, float, complex)
_TYPES = {
    bool: torch.bool,
    int: torch.int64,
    float: None,
    torch.SymInt: torch.int64,
    torch.SymFloat: None,
}  # of torch.tensor; None: it depends


class Hosting:
    """Host functions during one trace."""

    def __init__(self, recorder: _Recorder, mode: Any, root: torch.nn.Module) -> None:
        self.recorder = recorder
        self.values = recorder.values
        self.mode = mode
        self.root = root
        self.made = Hosted()
        self.results: list[Result] = []  # by step: what it returned in this trace
        self.others: set[Any] = set()  # functions of BUILT_IN
        self.values.made.hosted = self.made
        self.values.host_input = self._data

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Around forward."""
        rows: list[tuple[Any, str, Any]] = [(torch, "cond", _no_branch)]
        rows += [(torch, n, functools.partial(self._convert, getattr(torch, n))) for n in _CONVERSIONS]
        for prefix, path in BUILT_IN:
            for owner, name in _found(prefix, path):
                self.others.add(getattr(owner, name))
                rows.append((owner, name, host_function(getattr(owner, name))))
        for module, name in _SEEDING:
            if owner := sys.modules.get(module):
                rows.append((owner, name, host_function(getattr(owner, name))))
        kept = [(owner, name, getattr(owner, name)) for owner, name, _ in rows]
        for owner, name, instead in rows:
            setattr(owner, name, instead)
        try:
            with replaced(self.call), self._named():
                yield
        finally:
            for owner, name, original in kept:
                setattr(owner, name, original)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Names the host functions where PyTorch or Python does not take a stand-in for a number."""
        try:
            yield
        except (TypeError, RuntimeError) as e:
            if not self.results or not any(word in str(e) for word in _STAND_INS):
                raise
            names = self.made.names(Made(len(self.results) - 1, 0))
            why = str(e).partition("\n")[0] if _STAND_INS[-1] not in str(e) else "an argument that must be a number"
            line = next((f" ({os.path.basename(f.filename)}:{f.lineno})" for f in users(e)), "")
            raise _core.UnsupportedError(
                f"{self.values.name}: what the host function {names} returned: {why}{line}: not supported; {_HINT}"
            ) from e

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What forward gets from a host function."""
        name = str(getattr(function, "__qualname__", function)).rpartition("<locals>.")[2]
        if self.values.given is None:
            raise _core.UnsupportedError(
                f"{self.values.name}: {name} ({user_line()}) is a host function, which a deployed network cannot call: not supported"
            )
        if function in self.others and (made := _undrawn(function, args, kwargs)) is not None:
            return made[0]
        return self.step(function, name, args, kwargs, True)

    def step(self, function: Callable[..., Any], name: str, args: Any, kwargs: Any, draws: bool = False) -> Any:
        """Adds a step, and returns its result with stand-ins and inputs of the network for its leaves."""
        tensors: list[torch.Tensor] = []
        args, kwargs = pytree.tree_map(functools.partial(self._operand, name, tensors), (args, kwargs))
        reads = self.recorder.operands(name, tensors) if tensors else None
        form = function, reads and reads.form, _form(args), _form(kwargs)
        step = Step(function, args, kwargs, reads, name, draws, form)
        run = functools.partial(step.run, self.results, self.values.fetch, self.made.parts)
        assert self.values.given
        with _disable_current_modes(), generators.drawing() if draws else contextlib.nullcontext():
            result = self.values.given.facts.draw(len(self.made.steps), form, run, draws)
        number = len(self.made.steps)
        self.made.steps.append(step)
        self.results.append(result)
        leaves = [self._returned(Made(number, i), leaf) for i, leaf in enumerate(result[0])]
        return pytree.tree_unflatten(leaves, result[1])

    def _operand(self, name: str, tensors: list[torch.Tensor], arg: Any) -> Any:
        if isinstance(arg, StandIn):
            return arg._place
        if isinstance(arg, torch.nn.Module) and id(arg) in self.recorder.paths:
            path = self.recorder.paths[id(arg)]
            self.made.parts[path] = self.root.get_submodule(path)
            return Part(path)
        if not isinstance(arg, torch.Tensor):
            return arg
        tensors.append(arg)
        return Computed(len(tensors) - 1)

    def _returned(self, place: Made, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self._input(place, leaf)
        if isinstance(leaf, _NUMBERS) or type(leaf).__module__ == "numpy":
            return (HostArray if getattr(leaf, "ndim", 0) else HostNumber)(self, place, leaf)
        return leaf

    def _input(self, place: Made, t: torch.Tensor) -> torch.Tensor:
        """A tensor without data for an input of the network."""
        number = len(self.made.inputs)
        self.made.inputs.append((place, t))
        with _disable_current_modes():
            fake = self.mode.from_tensor(t)
        self.recorder.source(f"host_{number}", fake, ("host", number), InputKind.USER_INPUT)
        return fake.clone()  # forward may write it

    def _data(self, number: int) -> torch.Tensor:
        """The data of an input in this trace."""
        place = self.made.inputs[number][0]
        found: torch.Tensor = self.results[place.step][0][place.leaf]
        return found

    def _convert(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """torch.tensor and the like."""
        if any(isinstance(a, StandIn) and a._hosting is self for a in pytree.tree_leaves((args, kwargs))):
            return self.step(function, function.__name__, args, kwargs)
        stacked = _stacked(*args, **kwargs)
        return function(*args, **kwargs) if stacked is None else stacked


def _no_branch(*args: Any, **kwargs: Any) -> Any:
    """torch.cond: it would start Dynamo, which keeps what it finds in place of the functions that are replaced here."""
    raise Unusual("torch.cond")


def _stacked(data: Any = None, dtype: torch.dtype | None = None, device: Any = None, **others: Any) -> Any:
    """torch.tensor of tensors without dimensions, of sizes that vary, and perhaps of numbers: their values. None: it is something else."""
    leaves = pytree.tree_leaves(data)
    tensors = [a for a in leaves if isinstance(a, torch.Tensor)]
    numbers = [a for a in leaves if type(a) in _TYPES]
    sizes = [a for a in numbers if isinstance(a, torch.SymInt | torch.SymFloat)]
    if others or any(t.ndim for t in tensors) or not (sizes or (tensors and isinstance(data, list | tuple))):
        return None
    if len(tensors) + len(numbers) != len(leaves):
        return None
    real = torch.get_default_dtype()
    types = [t.dtype for t in tensors] + [_TYPES[type(a)] or real for a in numbers]
    to = dtype or functools.reduce(torch.promote_types, types)

    def made(part: Any) -> torch.Tensor:
        if isinstance(part, list | tuple):
            return torch.stack([made(p) for p in part])
        return part.detach().to(to) if isinstance(part, torch.Tensor) else torch.full((), part, dtype=to)

    return made(data) if device is None else made(data).to(device)


def _found(prefix: str, path: str) -> Iterator[tuple[Any, str]]:
    """Where a function of BUILT_IN is: modules or classes, and its name there."""
    *outer, name = path.split(".")
    for key, module in list(sys.modules.items()):
        if key.startswith(prefix):
            owner: Any = module
            for part in outer:
                owner = getattr(owner, part, None)
            if name in getattr(owner, "__dict__", {}):
                yield owner, name


def _undrawn(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any] | None:
    """What a function returns that draws nothing for these arguments, in a tuple. None: it draws, or depends on data."""
    if any(isinstance(a, torch.Tensor | StandIn) for a in pytree.tree_leaves((args, kwargs))):
        return None
    before = generators.states()
    with replaced(None):
        made = function(*args, **kwargs)
    if not generators.changed(before):
        return (made,)
    generators.restore(before)
    return None


def _is_whole(t: torch.Tensor) -> bool:
    return not (t.is_floating_point() or t.is_complex())


def _form(arg: Any) -> Any:
    """Operands, for comparison with those of another step."""
    if isinstance(arg, tuple | list):
        return type(arg), *map(_form, arg)
    if isinstance(arg, dict):
        return tuple((k, _form(v)) for k, v in arg.items())
    plain = isinstance(arg, (*_NUMBERS, str, bytes, type(None), Made, Computed, Part, torch.dtype, torch.device))
    return (type(arg), repr(arg)) if plain else (type(arg), id(arg))


def _method(owner: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(owner, name)(*args, **kwargs)


_SHAPES = ("shape", "dtype", "ndim", "size", "itemsize", "nbytes")
_IN_PLACE = frozenset("byteswap fill itemset partition put resize setfield setflags sort".split())
_HINT = (
    "compute it inside of a function marked with @sol.host_function, or make a tensor of the result (torch.from_numpy, torch.tensor); "
    "numbers may also be operands of +, -, *, / and **"
)
_STAND_INS = ("HostNumber", "HostArray", "python_arg_parser.h")  # in messages; the last in an assertion of PyTorch's


class StandIn:
    """Stands for a number or an array that a step returns."""

    def __init__(self, hosting: Hosting, place: Made, example: Any) -> None:
        self._hosting = hosting
        self._place = place
        self._example = example  # only its shape and type are used

    def _step(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        name = getattr(function, "__name__", str(function))
        tensors = [a for a in pytree.tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor)]
        if tensors and type(self._example) in _TYPES and function.__module__ == "_operator":
            return function(*(self._beside(tensors[0]) if a is self else a for a in args))
        if tensors:
            raise self._rejected(f"{name} of it and a tensor")
        return self._hosting.step(function, name, args, kwargs)

    def _rejected(self, what: str) -> Exception:
        names = self._hosting.made.names(self._place)
        return _core.UnsupportedError(
            f"{self._hosting.values.name}: what the host function {names} returned: {what} ({user_line()}): not supported; {_HINT}"
        )

    def _beside(self, t: torch.Tensor) -> Any:
        """A number as the tensor that it is as an operand beside `t`: a real number has the type of `t`, if that is real or complex."""
        dtype = _TYPES[type(self._example)] or (torch.get_default_dtype() if _is_whole(t) else t.dtype.to_real())
        return self._hosting.step(_AS_TENSOR, "as_tensor", (self,), {"dtype": dtype})

    def _tensor(self) -> Any:
        return self._hosting.step(_AS_TENSOR, "as_tensor", (self,), {})

    def __getattr__(self, name: str) -> Any:
        if name in _SHAPES:
            return getattr(self._example, name)
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _IN_PLACE:
            raise self._rejected(f"{name}(), which writes it")
        if callable(getattr(self._example, name)):
            return functools.partial(self._step, _method, self, name)
        return self._step(getattr, self, name)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise self._rejected("np.array(..) of it")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return self._step(function, *args, **kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("out") is not None:
            raise self._rejected(f"{ufunc.__name__} with out=")
        return self._step(ufunc if method == "__call__" else getattr(ufunc, method), *args, **kwargs)

    # values that forward reads

    def __bool__(self) -> bool:
        return bool(self._tensor())

    def __int__(self) -> int:
        return int(self._tensor())

    def __float__(self) -> float:
        return float(self._tensor())

    def __index__(self) -> int:
        return operator.index(self._tensor())

    def item(self) -> Any:
        """The number in an array of one element."""
        return self._tensor().item()

    def tolist(self) -> Any:
        """The numbers as lists."""
        return self._tensor().tolist()

    __hash__ = None  # type: ignore[assignment]


class HostNumber(StandIn):
    """Stands for a number. Messages of PyTorch name the class."""


class HostArray(StandIn):
    """Stands for an array."""

    def __len__(self) -> int:
        return len(self._example)

    def __getitem__(self, key: Any) -> Any:
        return self._step(operator.getitem, self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise self._rejected("writing its elements")

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))


def _operators() -> None:
    """Python's operators, each of which is a step."""

    def add(key: str, function: Callable[..., Any]) -> None:
        setattr(StandIn, f"__{key}__", lambda *operands: operands[0]._step(function, *operands))
        setattr(StandIn, f"__r{key}__", lambda a, b: a._step(function, b, a))

    for name in "add sub mul truediv floordiv mod pow matmul and_ or_ xor lt le gt ge eq ne neg pos abs invert".split():
        add(name.rstrip("_"), getattr(operator, name))


_operators()

__all__ = ["Hosting", "StandIn"]
