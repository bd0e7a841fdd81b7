"""A `lax.scan` as one layer: its body in SOL's notation for layers, as a recurrence over the steps.

Every array that the body computes is a tensor of the layer with the step, index variable T, in front. What the body has of the step
before is read at T-1, or T+1 where the scan runs backwards. So the number of steps may vary, and does not change the size of the
program. Operations that only move elements, such as a slice, become indices of those that read them. What the notation cannot say, such
as random bits, is computed ahead of the loop for all steps, if it does not depend on the step before.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np
from jax.extend import core as jex

from sol import _core, forms

from .builder import Builder, Value, sol_name
from .equations import CALLS, CUSTOM, alone, called, of_keys
from .operators.maths import BITS, COMPARED, SAME
from .operators.reduce import OVER
from .operators.table import Rejected

Index = list[str]  # one expression for each dimension
Read = Callable[[Index], str]
SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
KEPT = ("copy", "copy_p", "optimization_barrier")  # primitives that give what they get
MOST_VARIABLES = 24  # of one layer; some more are needed for gradients
_LETTERS = "ABCDEFGHIJKLMNOPQRSUVWXYZ"  # T is the step


class Around(Protocol):
    """The translation that a scan is in."""

    b: Builder
    tracked: bool  # whether gradients are wanted

    def sized(self, x: Any) -> Any:
        """A size of the jaxpr as one of the graph."""

    def type_of(self, aval: Any) -> tuple[tuple[Any, ...], str]:
        """The shape and SOL's name of the type of an array."""

    def constant(self, value: Any) -> Value:
        """An array that the function brings with it."""

    def python(self, function: Callable[..., Any], operands: Sequence[Value], avals: Sequence[Any]) -> list[Value]:
        """A function of JAX on values of the graph, which have these types."""


@dataclass
class Ahead:
    """An array that does not depend on the step before, as a value of the graph. `steps`: one array for each step."""

    value: Callable[[], Value]
    steps: bool


class Piece:
    """An array of the body. `plain`: the tensor that holds it; None: it is read from others. `ahead`: None if it depends on the step
    before."""

    def __init__(
        self, shape: Sequence[Any], dtype: str, read: Read, plain: str | None = None, ahead: Ahead | None = None
    ) -> None:
        self.shape, self.dtype, self.read, self.plain, self.ahead = tuple(shape), dtype, read, plain, ahead

    def at(self, index: Index) -> str:
        """An element. A number without dimensions is read where others have some."""
        return self.read(index if self.shape else [])


def _plus(index: str, n: int) -> str:
    return index if n == 0 else f"{index}{n:+d}"


def _number(value: Any, dtype: str) -> str:
    if dtype == "bool" or dtype[0] in "iu":
        n = int(value)
        return str(n) if n >= 0 else f"({n})"
    text = "nan" if math.isnan(value) else "inf" if math.isinf(value) else repr(abs(float(value)))
    return f"(-{text})" if math.copysign(1, value) < 0 else text


class Body:
    """Writes the statements of a body. `length`: the number of steps, as the jaxpr has it."""

    def __init__(self, around: Around, length: Any) -> None:
        self.around, self.b, self.length = around, around.b, length
        self.given: list[
            tuple[Value, bool]
        ] = []  # what the body reads besides the operands of the scan; one for each step?
        self.statements: list[str] = []
        self.tensors: dict[str, Piece] = {}  # by name, in the order of the statements
        self._variables: dict[tuple[Any, int], str] = {}
        self._free = iter(_LETTERS)

    # -- index variables, tensors

    def variables(self, *shapes: Sequence[Any]) -> list[Index]:
        """An index variable for each dimension of these shapes; all are different."""
        seen: dict[Any, int] = {}
        made = []
        for shape in shapes:
            made.append([self._variable(n, seen) for n in shape])
        return made

    def _variable(self, n: Any, seen: dict[Any, int]) -> str:
        key = n, seen.get(n, 0)
        seen[n] = key[1] + 1
        if key not in self._variables:
            name = next(self._free, None)
            if name is None or len(self._variables) == MOST_VARIABLES:
                raise Rejected("arrays of too many different sizes")
            self._variables[key] = name
        return self._variables[key]

    @property
    def sizes(self) -> list[tuple[str, int]]:
        """The index variables whose sizes are numbers."""
        return [(name, n) for (n, _), name in self._variables.items() if not forms.varies(n)]

    def stored(self, name: str, shape: Sequence[Any], dtype: str) -> Piece:
        """A tensor with one array for each step."""
        return Piece(shape, dtype, lambda index: f"{name}[{' '.join(['T', *index])}]", name)

    def made(self, shape: Sequence[Any], dtype: str, value: Callable[[Index], str]) -> Piece:
        """A new tensor, computed in each step."""
        (index,) = self.variables(shape)
        piece = self.stored(f"t{len(self.tensors)}", shape, dtype)
        assert piece.plain is not None
        self.tensors[piece.plain] = piece
        self.statements.append(f"{piece.at(index)} = {value(index)}")
        return piece

    # -- the jaxpr

    def walk(self, jaxpr: Any, consts: Sequence[Piece], args: Sequence[Piece]) -> list[Piece]:
        """The results of a jaxpr."""
        env: dict[Any, Piece] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

        def read(v: Any) -> Piece:
            return self.literal(np.asarray(v.val, v.aval.dtype)) if isinstance(v, jex.Literal) else env[v]

        for e in jaxpr.eqns:
            env.update(zip(e.outvars, self._equation(e, [read(v) for v in e.invars]), strict=True))
        return [read(v) for v in jaxpr.outvars]

    def literal(self, value: np.ndarray[Any, Any]) -> Piece:
        """A number of the jaxpr."""
        dtype = sol_name(value.dtype)
        text = _number(value.reshape(())[()], dtype)
        return Piece(value.shape, dtype, lambda index: text, ahead=Ahead(lambda: self.b.const(value), False))

    def constant(self, value: Any) -> Piece:
        """An array that does not depend on the step."""
        return self.literal(np.asarray(value)) if np.size(value) == 1 else self.outside(self.around.constant(value))

    def outside(self, x: Value, steps: bool = False) -> Piece:
        """A value of the graph, or its part for each step."""
        name = f"k{len(self.given)}"
        self.given.append((x, steps))
        return Piece(
            x.shape[steps:],
            x.dtype,
            lambda index: f"{name}[{' '.join([*['T'] * steps, *index])}]",
            ahead=Ahead(lambda: x, steps),
        )

    def _equation(self, e: Any, xs: list[Piece]) -> list[Piece]:
        out = [self.around.type_of(v.aval) for v in e.outvars]
        free = all(x.ahead for x in xs)
        values = functools.cache(lambda: self._computed_ahead(e, xs))
        steps = any(x.ahead and x.ahead.steps for x in xs)
        try:
            made = self._written(e, xs, out)
        except Rejected:
            if not free:
                raise
            return [self.outside(x, steps) for x in values()]
        for k, y in enumerate(made):
            if free and y.ahead is None:
                y.ahead = Ahead(lambda k=k: values()[k], steps)  # type: ignore[misc]
        return made

    def _computed_ahead(self, e: Any, xs: list[Piece]) -> list[Value]:
        """The results of an equation for all steps."""
        variables, function = alone(e)
        of = {v: x.ahead for v, x in zip(e.invars, xs, strict=True) if not isinstance(v, jex.Literal)}
        steps = [bool(a and a.steps) for a in of.values()]
        shapes = [((self.length,) if s else ()) + tuple(v.aval.shape) for v, s in zip(variables, steps, strict=True)]
        avals = [jax.ShapeDtypeStruct(n, v.aval.dtype) for v, n in zip(variables, shapes, strict=True)]
        if any(steps):
            function = jax.vmap(function, in_axes=tuple(0 if s else None for s in steps))
        return self.around.python(function, [a.value() for a in of.values() if a], avals)

    def _written(self, e: Any, xs: list[Piece], out: list[tuple[Any, str]]) -> list[Piece]:
        """The results of an equation in the notation."""
        name, p = e.primitive.name, e.params
        if name in KEPT:
            return xs
        if any(of_keys(v.aval) for v in (*e.invars, *e.outvars)):
            raise Rejected(name)
        if name in CALLS:
            return self._inlined(called(p), xs)
        if name in CUSTOM:
            return self._custom(p, xs, out)
        if name == "split":
            ends = list(itertools.accumulate(p["sizes"]))
            return [_slice(xs[0], p["axis"], end - n, s) for end, n, (s, _) in zip(ends, p["sizes"], out, strict=True)]
        (shape, dtype), *_ = out
        if name == "dim_as_value":
            return [self.outside(self.b.scalar(self.around.sized(p["dim"]), dtype))]
        moved = _MOVED.get(name)
        if moved is not None:
            return [moved(self, {k: self.around.sized(v) for k, v in p.items()}, xs, shape)]
        value = self._value(name, p, xs)
        return [self.made(shape, dtype, value)]

    def _inlined(self, closed: Any, xs: list[Piece]) -> list[Piece]:
        inner = getattr(closed, "jaxpr", closed)
        return self.walk(inner, [self.constant(c) for c in getattr(closed, "consts", ())], xs)

    def _custom(self, p: dict[str, Any], xs: list[Piece], out: list[tuple[Any, str]]) -> list[Piece]:
        """A function with a derivative of its own: where that counts, only relu is one of SOL's."""
        if "jaxprs" in p:
            raise Rejected("a linear system")
        inner = called(p)
        about = getattr(inner, "jaxpr", inner).debug_info
        if _is_relu(str(about.func_src_info)):
            return [self.made(*out[0], lambda index: f"relu({xs[0].at(index)})")]
        if self.around.tracked:
            raise Rejected(f"{about.func_name}, a function with a derivative of its own")
        return self._inlined(inner, xs)

    # -- what is computed

    def _value(self, name: str, p: dict[str, Any], xs: list[Piece]) -> Callable[[Index], str]:
        """The right side of a statement."""
        if name == "dot_general":
            return self._dot(p, *xs)
        if name in OVER:
            return self._reduced(OVER[name].lower(), p["axes"], xs[0])
        if name == "convert_element_type":
            return lambda index: _converted(xs[0].at(index), xs[0].dtype, sol_name(p["new_dtype"]))
        function = self._function(name, p, xs)
        return lambda index: function(*(x.at(index) for x in xs))

    def _function(self, name: str, p: dict[str, Any], xs: list[Piece]) -> Callable[..., str]:
        """An element-wise operation."""
        if not xs:
            raise Rejected(name)
        real, logical = xs[0].dtype in ("f32", "f64"), xs[0].dtype == "bool"
        if name in COMPARED:
            return lambda a, b: f"[{a}{SIGNS[name]}{b}]"
        if name in BITS:
            word = BITS[name].replace("bit", "logical") if logical else BITS[name]
            return lambda a, b: f"{word}({a}, {b})"
        if name == "not":
            return lambda a: f"{'logical_not' if logical else 'bit_not'}({a})"
        if name == "select_n" and logical and len(xs) == 3:
            return lambda which, other, chosen: f"where({which}, {chosen}, {other})"
        if name == "integer_pow" and real and p["y"] >= 0:
            return lambda a: f"pow({a}, {p['y']})"
        if name == "clamp" and real:
            return lambda low, a, high: f"hardtanh({a}, {low}, {high})"
        own = {"div": "div" if real else "truncdiv", "pow": "pow", "is_finite": "isfinite", **SAME}
        if name not in own:
            raise Rejected(name)
        return lambda *operands: f"{own[name]}({', '.join(operands)})"

    def _dot(self, p: dict[str, Any], x: Piece, y: Piece) -> Callable[[Index], str]:
        (contract_x, contract_y), (batch_x, batch_y) = p["dimension_numbers"]
        free_x = [i for i in range(len(x.shape)) if i not in contract_x and i not in batch_x]
        free_y = [i for i in range(len(y.shape)) if i not in contract_y and i not in batch_y]
        out = [*(x.shape[i] for i in (*batch_x, *free_x)), *(y.shape[i] for i in free_y)]
        _, inner = self.variables(out, [x.shape[i] for i in contract_x])

        def value(index: Index) -> str:
            batch, rest = index[: len(batch_x)], index[len(batch_x) :]
            of_x = dict(zip((*batch_x, *free_x, *contract_x), (*batch, *rest[: len(free_x)], *inner), strict=True))
            of_y = dict(zip((*batch_y, *free_y, *contract_y), (*batch, *rest[len(free_x) :], *inner), strict=True))
            a, b = (q.at([of[i] for i in range(len(of))]) for q, of in ((x, of_x), (y, of_y)))
            return f"sum[{' '.join(inner)}] {a} * {b}" if inner else f"{a} * {b}"

        return value

    def _reduced(self, kind: str, axes: Sequence[int], x: Piece) -> Callable[[Index], str]:
        out = [n for i, n in enumerate(x.shape) if i not in axes]
        _, inner = self.variables(out, [x.shape[i] for i in axes])

        def value(index: Index) -> str:
            rest, within = iter(index), iter(inner)
            read = x.at([next(within) if i in axes else next(rest) for i in range(len(x.shape))])
            return f"{kind}[{' '.join(inner)}] {read}" if inner else read

        return value


def _is_relu(function: str) -> bool:
    """Whether that is jax.nn.relu, by its name and file."""
    return function.startswith(f"relu at {os.path.dirname(jax.__file__)}{os.sep}")


def _converted(text: str, of: str, to: str) -> str:
    if to == "bool":
        return f"[{text}!=0]"
    return f"trunc({text})" if of in ("f32", "f64") and to not in ("f32", "f64") else text


# -- operations that move elements: an index of the result becomes one of the operand


def _slice(x: Piece, axis: int, start: int, shape: Sequence[Any], step: int = 1) -> Piece:
    def read(index: Index) -> str:
        at = index[axis] if step == 1 else f"{step}*{index[axis]}"
        return x.read([*index[:axis], _plus(at, start), *index[axis + 1 :]])

    return Piece(shape, x.dtype, read)


def _sliced(b: Body, p: dict[str, Any], xs: list[Piece], shape: Any) -> Piece:
    if forms.varies(*p["start_indices"]):
        raise Rejected("a slice from a size that varies")
    made = xs[0]
    for axis, (start, step) in enumerate(zip(p["start_indices"], p["strides"] or [1] * len(shape), strict=True)):
        made = made if (start, step) == (0, 1) else _slice(made, axis, start, shape, step)
    return Piece(shape, made.dtype, made.read)


def _broadcast(b: Body, p: dict[str, Any], xs: list[Piece], shape: Any) -> Piece:
    x, dims = xs[0], p["broadcast_dimensions"]
    return Piece(
        shape,
        x.dtype,
        lambda index: x.read(["0" if x.shape[i] == 1 else index[d] for i, d in enumerate(dims)]),
    )


def _transposed(b: Body, p: dict[str, Any], xs: list[Piece], shape: Any) -> Piece:
    order = list(p["permutation"])
    return Piece(shape, xs[0].dtype, lambda index: xs[0].read([index[order.index(i)] for i in range(len(order))]))


def _reversed(b: Body, p: dict[str, Any], xs: list[Piece], shape: Any) -> Piece:
    if forms.varies(*(shape[i] for i in p["dimensions"])):
        raise Rejected("a size that varies, reversed")
    turned = lambda i, v: f"{shape[i] - 1}-{v}" if i in p["dimensions"] else v  # noqa: E731
    return Piece(shape, xs[0].dtype, lambda index: xs[0].read([turned(i, v) for i, v in enumerate(index)]))


def _reshaped(b: Body, p: dict[str, Any], xs: list[Piece], shape: Any) -> Piece:
    """Dimensions of size 1 come and go; others are split or merged if their sizes are numbers."""
    x = xs[0]
    old, new = ([(i, n) for i, n in enumerate(s) if n != 1] for s in (x.shape, tuple(shape)))
    if [n for _, n in old] == [n for _, n in new]:
        where = dict(zip((i for i, _ in old), (i for i, _ in new), strict=True))
        return Piece(
            shape,
            x.dtype,
            lambda index: x.read([index[where[i]] if i in where else "0" for i in range(len(x.shape))]),
        )
    groups = _groups(old, new)

    def read(index: Index) -> str:
        made = ["0"] * len(x.shape)
        for own, others in groups:
            position, scale = [], 1
            for i, n in reversed(others):
                position.append(index[i] if scale == 1 else f"{scale}*{index[i]}")
                scale *= n
            whole = "+".join(reversed(position))
            scale = 1
            for k, (i, n) in enumerate(reversed(own)):
                part = whole if scale == 1 else f"({whole})//{scale}"
                made[i] = part if k == len(own) - 1 else f"({part})%{n}"
                scale *= n
        return x.read(made)

    return Piece(shape, x.dtype, read)


def _groups(old: list[Any], new: list[Any]) -> list[tuple[list[Any], list[Any]]]:
    """Dimensions of both shapes that have as many elements together."""
    made: list[tuple[list[Any], list[Any]]] = []
    a, b = list(old), list(new)
    while a or b:
        own, others = ([a.pop(0)] if a else []), ([b.pop(0)] if b else [])
        if [n for _, n in own] != [n for _, n in others]:
            if forms.varies(*(n for _, n in own + others)):
                raise Rejected("sizes that vary, merged or split")
            while math.prod(n for _, n in own) != math.prod(n for _, n in others):
                less = math.prod(n for _, n in own) < math.prod(n for _, n in others)
                side, rest = (own, a) if less else (others, b)
                if not rest or forms.varies(rest[0][1]):
                    raise Rejected("sizes that vary, merged or split")
                side.append(rest.pop(0))
        made.append((own, others))
    return made


def _concatenated(b: Body, p: dict[str, Any], xs: list[Piece], shape: Any) -> Piece:
    axis = p["dimension"]
    starts = [0, *itertools.accumulate(x.shape[axis] for x in xs)]
    if forms.varies(*starts[:-1]):
        raise Rejected("a concatenation behind a size that varies")
    parts = [_slice(x, axis, -start, shape) for x, start in zip(xs, starts[:-1], strict=True)]

    def value(index: Index) -> str:
        made = f"{_outside(parts[-1].at(index))}"
        for x, start in zip(reversed(parts[:-1]), reversed(starts[1:-1]), strict=True):
            made = f"where({index[axis]}<{start}, {_outside(x.at(index))}, {made})"
        return made

    return b.made(shape, xs[0].dtype, value)


def _outside(read: str) -> str:
    """A read that may be outside of its tensor."""
    return f"{read}:0" if read.endswith("]") else read


def _counted(b: Body, p: dict[str, Any], xs: list[Piece], shape: Any) -> Piece:
    axis = p["dimension"]
    return Piece(shape, sol_name(p["dtype"]), lambda index: index[axis])


_MOVED: dict[str, Callable[[Body, dict[str, Any], list[Piece], Any], Piece]] = {
    "slice": _sliced,
    "broadcast_in_dim": _broadcast,
    "transpose": _transposed,
    "rev": _reversed,
    "reshape": _reshaped,
    "squeeze": _reshaped,
    "expand_dims": _reshaped,
    "concatenate": _concatenated,
    "iota": _counted,
}


class Recurrence:
    """The layer of a scan.

    p         the parameters of the primitive
    operands  its constants, what it carries, and the lists of which each step has a row
    """

    def __init__(self, b: Builder, body: Body, p: dict[str, Any], operands: Sequence[Value]) -> None:
        self.b, self.body, self.p, self.operands = b, body, p, list(operands)
        self.before, self.last = ("T+1", "0") if p["reverse"] else ("T-1", "#T-1")
        self.nconst, self.ncarry = p["num_consts"], p["num_carry"]
        self.head: list[str] = []  # the inputs' declarations

    def layer(self) -> list[Value]:
        """The last carry, and the rows of all steps."""
        n = self.body.around.sized(self.p["length"])
        made = self.body.walk(self.p["jaxpr"].jaxpr, *self._arguments())
        taken: set[str] = set()
        carried = [self._named(y, taken) for y in made[: self.ncarry]]
        used: set[str] = set()
        rows = [self._named(y, used) for y in made[self.ncarry :]]
        ends = []
        for i, name in enumerate(carried):
            x = self.body.tensors[name]
            (index,) = self.body.variables(x.shape)
            first = (
                f":x{self.nconst + i}[{' '.join(index)}]" if not _core.size_le(1, forms.form(n)) else ""
            )  # without a step
            self.body.statements.append(f"e{i}[{' '.join(index)}] = {name}[{' '.join([self.last, *index])}]{first}")
            ends.append(f"e{i}:{x.dtype}[{' '.join(index)}]")
        if len(self.operands) == self.nconst + self.ncarry:  # no list says how many steps there are
            self.operands.append(self.b.layer("Range", n=n, to="i64"))
            self.head.append("n[T]")
        for i, (given, steps) in enumerate(self.body.given):
            (index,) = self.body.variables(given.shape[steps:])
            self.head.append(f"k{i}[{' '.join([*['T'] * steps, *index])}]")
        text = self._text(carried, ends, rows)
        more = [given for given, _ in self.body.given]
        return self.b.layers("Row", *self.operands, *more, outputs=len(ends) + len(rows), text=text)

    def _arguments(self) -> tuple[list[Piece], list[Piece]]:
        """The arguments of the body's jaxpr."""
        consts = [self.body.constant(c) for c in self.p["jaxpr"].consts]
        pieces = []
        for i, x in enumerate(self.operands):
            step = i >= self.nconst + self.ncarry
            shape = x.shape[1:] if step else x.shape
            (index,) = self.body.variables(shape)
            self.head.append(f"x{i}[{' '.join([*['T'] * step, *index])}]")
            pieces.append(self._argument(i, shape, x.dtype))
        return consts, pieces

    def _argument(self, i: int, shape: Sequence[Any], dtype: str) -> Piece:
        def const(index: Index) -> str:
            return f"x{i}[{' '.join(index)}]"

        def row(index: Index) -> str:
            return f"x{i}[{' '.join(['T', *index])}]"

        def carry(index: Index) -> str:
            return f"@{i - self.nconst}[{' '.join([self.before, *index])}]:x{i}[{' '.join(index)}]"

        if self.nconst <= i < self.nconst + self.ncarry:
            return Piece(shape, dtype, carry)
        steps = i >= self.nconst
        return Piece(shape, dtype, row if steps else const, ahead=Ahead(lambda: self.operands[i], steps))

    def _named(self, y: Piece, used: set[str]) -> str:
        """The tensor that holds a result, which no other result is."""
        if y.plain is None or y.plain in used:
            y = self.body.made(y.shape, y.dtype, y.at)
        assert y.plain is not None
        used.add(y.plain)
        return y.plain

    def _text(self, carried: Sequence[str], ends: Sequence[str], rows: Sequence[str]) -> str:
        def declared(name: str) -> str:
            x = self.body.tensors[name]
            (index,) = self.body.variables(x.shape)
            return f"{name}:{x.dtype}[{' '.join(['T', *index])}]"

        results = [*ends, *map(declared, rows)]
        others = [declared(t) for t in self.body.tensors if t not in rows]
        sizes = "; ".join(f"#{name}={n}" for name, n in self.body.sizes)
        heads = f"{' '.join(self.head)} -> {' '.join(results)}{' -> ' if others else ''}{' '.join(others)}"
        statements = re.sub(r"@(\d+)", lambda m: carried[int(m[1])], "; ".join(self.body.statements))
        return f"{heads} | {sizes} | | {statements}"
