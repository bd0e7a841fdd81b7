"""What every frontend makes of a model, whatever the framework: a graph, and how arguments, parameters and results map to it.

A frontend *parses* a model of its framework into a `Parsed`, and *wraps* such a network as an object of its framework that owns
the parameters. Any model so becomes an object of any framework. docs/frameworks.md says how to write a frontend."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from . import _core
from .inputs import Input as Described
from .inputs import type_name

NUMPY = {"bool": "bool", "u8": "uint8", "i8": "int8", "u16": "uint16", "i16": "int16", "u32": "uint32", "i32": "int32",
         "u64": "uint64", "i64": "int64", "f16": "float16", "f32": "float32", "f64": "float64"}  # fmt: skip
CORE = {name: core for core, name in NUMPY.items()}
REAL = ("f16", "f32", "f64")  # types that have gradients


class Mode(NamedTuple):
    """What a network is for."""

    training: bool = False  # dropout drops, normalisation uses and updates the statistics of the batch
    gradient: bool = False  # the gradient will be appended


@dataclass(frozen=True)
class Call:
    """The arguments of a call of a model, and what `sol.optimize` was told about them. In a call that is to be parsed, tensors
    are NumPy arrays, or descriptions by `sol.input` with NumPy's names of types."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    batch_size: int | None = None
    copy: bool = False
    vdims: Any = None
    framework: str | None = None  # of the result; None: the model's own


@dataclass
class Input:
    """An input of the graph."""

    name: str
    leaf: int  # its number among the leaves of (args, kwargs), see `flatten`; -1: a seed, an int64 of the random stream
    tensor: _core.Tensor


@dataclass
class Param:
    """A parameter of the graph: one of the model's, by its name there, or a constant with its value."""

    name: str
    tensor: _core.Tensor
    constant: Any = None  # an array


@dataclass
class Owned:
    """A parameter or state of the model: its name, value (an array), and whether it is trained. Equal `key`: the same one."""

    name: str
    array: Any
    trained: bool
    key: Any


@dataclass
class Output:
    """A result of the model: which output of the graph it is."""

    name: str
    dtype: str  # SOL's name
    number: int


@dataclass
class Parsed:
    """A model for one mode and the sizes of one call. Compiling consumes the graph."""

    name: str
    graph: _core.Graph
    inputs: list[Input]
    params: list[Param]
    outputs: list[Output]
    pack: Callable[[Sequence[Any]], Any]  # makes the model's result of the results in `outputs`
    writes: list[tuple[int, int]] = field(default_factory=list)  # (parameter, output of the graph): its new value


@dataclass
class Gradient:
    """What differentiating appended to a graph: inputs, the gradients of outputs `of`; outputs, those of `slots`."""

    of: list[int]  # numbers of the graph's outputs
    slots: list[tuple[str, int]]  # ("input", number), ("param", number)


def differentiate(parsed: Parsed, inputs: Sequence[int], params: Sequence[int]) -> Gradient:
    """Appends the gradient of all real results for these inputs and parameters, which are real."""
    of = list(dict.fromkeys(o.number for o in parsed.outputs if o.dtype in REAL))
    slots = [("input", i) for i in inputs] + [("param", i) for i in params]
    handles = tuple(parsed.inputs[i].tensor for i in inputs) + tuple(parsed.params[i].tensor for i in params)
    reached = parsed.graph.differentiate(tuple(of), handles)
    return Gradient(of, [s for s, there in zip(slots, reached, strict=True) if there])


@dataclass
class Source:
    """A model that another framework wraps: where its networks come from."""

    name: str
    framework: str
    call: Call  # the example
    parse: Callable[[Call, Mode], Parsed]
    owned: list[Owned]  # all parameters and states


class Mark:
    """Stands for a result."""


def taken(parsed: Parsed) -> tuple[Any, dict[Any, int]]:
    """The model's result with a `Mark` for each tensor, and which output of the graph each of them is."""
    marks = [Mark() for _ in parsed.outputs]
    return parsed.pack(marks), {m: o.number for m, o in zip(marks, parsed.outputs, strict=True)}


def plain(name: str) -> str:
    """A parameter's name in the form of all frameworks: `dense/kernel:0` is `dense.kernel`, `onnx::MatMul_7` is `onnx.MatMul_7`."""
    return re.sub(r"[/:]+", ".", re.sub(r":\d+$", "", name)).strip(".")


def dotted(owned: Sequence[Owned]) -> list[str]:
    """The names of parameters in the form of all frameworks. Raises InvalidError if two are the same."""
    found: dict[str, str] = {}
    for o in owned:
        other = found.setdefault(plain(o.name), o.name)
        if other != o.name:
            raise _core.InvalidError(
                f"parameters {other!r} and {o.name!r}: both are {plain(o.name)!r} in other frameworks; rename one"
            )
    return list(found)


def example(leaf: Any, batch: int | None = None) -> Any:
    """An argument of any framework as an array; what is none stays. `batch`: the size of an open one."""
    if isinstance(leaf, Described):
        return np.zeros(leaf.sized(1 if batch is None else batch), type_name(leaf.dtype))
    leaf = leaf.detach() if hasattr(leaf, "detach") else leaf
    return np.asarray(leaf) if hasattr(leaf, "__array__") else leaf


class Problem(NamedTuple):
    """One thing that is not supported."""

    what: str  # the operator
    why: str
    where: str  # the layer and the line in the user's model


def rejection(problems: Sequence[Problem]) -> _core.UnsupportedError:
    """One error for all problems: each reason once, with its first location, and behind a semicolon what to do."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for p in problems:
        found = reasons.setdefault((p.what, p.why), [])
        if p.where not in found:
            found.append(p.where)
    lines = []
    for (what, why), places in reasons.items():
        cause, _, advice = why.partition("; ")
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        lines.append(f"{what}: {cause} {places[0]}".rstrip() + more + (f"; {advice}" if advice else ""))
    what = "One thing in this model is" if len(lines) == 1 else f"{len(lines)} things in this model are"
    return _core.UnsupportedError(f"{what} not supported:\n  " + "\n  ".join(lines))


def flatten(tree: Any) -> list[Any]:
    """The leaves of nested tuples, lists and dicts, in their order."""
    if isinstance(tree, dict):
        return [leaf for v in tree.values() for leaf in flatten(v)]
    if isinstance(tree, tuple | list):
        return [leaf for v in tree for leaf in flatten(v)]
    return [tree]


def rebuild(tree: Any, leaves: Sequence[Any]) -> Any:
    """The same structure with other leaves."""
    rest = iter(leaves)

    def build(t: Any) -> Any:
        if isinstance(t, dict):
            return {k: build(v) for k, v in t.items()}
        if isinstance(t, tuple) and hasattr(t, "_fields"):
            return type(t)(*(build(v) for v in t))
        return type(t)(build(v) for v in t) if isinstance(t, tuple | list) else next(rest)

    return build(tree)


def with_leaves(call: Call, leaves: Sequence[Any]) -> Call:
    """The same call with other leaves."""
    args, kwargs = rebuild((call.args, call.kwargs), leaves)
    return Call(args, kwargs, call.batch_size, call.copy, call.vdims, call.framework)


def outline(tree: Any) -> Any:
    """The structure without its leaves, to compare."""
    if isinstance(tree, dict):
        return type(tree), tuple((k, outline(v)) for k, v in tree.items())
    return (type(tree), tuple(map(outline, tree))) if isinstance(tree, tuple | list) else None


def is_keras(model: Any) -> bool:
    """Whether this is a model or layer of Keras. It does not import Keras."""
    return any(c.__module__.partition(".")[0] == "keras" for c in type(model).__mro__)
