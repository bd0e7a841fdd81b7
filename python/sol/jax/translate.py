"""From a jaxpr to a graph of SOL: every equation is a row of the table, a call, control flow, or random bits.

All equations that SOL cannot translate are found in one pass: a tensor of the right type and shape stands in for their results.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend import core as jex

from sol import _core, forms, log
from sol.parsed import NUMPY, REAL, Problem

from .builder import MOST_UNROLLED, Builder, Value, sol_name
from .counted import Counted, counted
from .equations import CALLS, CUSTOM, alone, called, line, moves_keys, of_keys, physical
from .operators import ROWS, Rejected
from .outside import registered, row_is_own
from .recurrence import Body, Recurrence
from .vary import evaluated

LOOPED = 4  # steps from which on a scan is a loop, if its body can be one
LARGE = 256  # elements: constants of the function that are larger are parameters

_PRINTS = ("debug_print", "debug_callback")
_PYTHON = "Python code; use operations of JAX, or optimize the functions around it"


@dataclass
class Translated:
    """A graph, its outputs, and the arrays that the function brings with it."""

    outputs: list[Value]
    problems: list[Problem]
    constants: list[Any]  # in the order of the graph's last parameters
    held: list[Value]  # these parameters


class Translation:
    """Translates one function. `tracked` tells whether gradients are wanted, so that custom ones count. `sizes` are those of the
    graph that symbols of the jaxpr stand for."""

    def __init__(self, graph: _core.Graph, tracked: bool, sizes: dict[str, Any]) -> None:
        self.sizes = sizes
        self.b = Builder(graph)
        self.tracked = tracked
        self.problems: list[Problem] = []
        self.constants: list[Any] = []
        self.held: list[Value] = []
        self.dims: dict[Any, Any] = {}  # by tensor: the size that it is, as the jaxpr has it
        self._where = ""  # the line of the user's function

    def translate(self, closed: Any, args: list[Value]) -> Translated:
        """The function of a closed jaxpr on these arguments."""
        outputs = self.walk(closed.jaxpr, [self.constant(c) for c in closed.consts], args)
        return Translated(outputs, self.problems, self.constants, self.held)

    def sized(self, x: Any) -> Any:
        """A parameter of an equation with sizes of the graph in place of the jaxpr's."""
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return type(x)(*map(self.sized, x))
        if isinstance(x, tuple | list):
            return type(x)(map(self.sized, x))
        return evaluated(x, self.sizes)

    def type_of(self, aval: Any) -> tuple[tuple[Any, ...], str]:
        """The shape and SOL's name of the type of an array, or of the bits of keys."""
        a = physical(aval)
        return self.sized(tuple(a.shape)), sol_name(a.dtype)

    def constant(self, value: Any) -> Value:
        """Large constants are parameters, so that code and cache do not hold them."""
        array = np.asarray(_data(value))
        if array.size <= LARGE or array.dtype.kind != "f":
            return self.b.const(array)
        made = Value(self.b.graph.param(f"constant_{len(self.constants)}", sol_name(array.dtype), array.shape))
        self.constants.append(array)
        self.held.append(made)
        return made

    def walk(self, jaxpr: Any, consts: Sequence[Value], args: Sequence[Value]) -> list[Value]:
        """The results of a jaxpr."""
        env: dict[Any, Value] = {}

        def read(v: Any) -> Value:
            return self.b.const(np.asarray(v.val, v.aval.dtype)) if isinstance(v, jex.Literal) else env[v]

        env.update(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))
        for e in jaxpr.eqns:
            env.update(zip(e.outvars, self._equation(e, read), strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _equation(self, e: Any, read: Callable[[Any], Value]) -> list[Value]:
        name, before = e.primitive.name, self._where
        self._where = line(e) or before  # functions of JAX are in no line of the user's
        try:
            expected = [self.type_of(v.aval) for v in e.outvars]
            operands = [read(v) for v in e.invars]
            made = self._results(e, expected, operands)
            self._note_size(e, operands, made)
            return made if self._as_expected(e, made, expected) else [self._stand_in(v.aval) for v in e.outvars]
        except (Rejected, forms.Varies, _core.UnsupportedError, _core.InvalidError) as problem:
            self.problems.append(Problem(name, str(problem), f"({self._where})" if self._where else ""))
            return [self._stand_in(v.aval) for v in e.outvars]
        finally:
            self._where = before

    def _note_size(self, e: Any, operands: list[Value], made: list[Value]) -> None:
        """Remembers which values are sizes that vary."""
        if e.primitive.name == "dim_as_value":
            self.dims[made[0].handle] = e.params["dim"]
        elif e.primitive.name == "convert_element_type" and operands[0].handle in self.dims:
            self.dims[made[0].handle] = self.dims[operands[0].handle]

    def _results(self, e: Any, expected: list[tuple[Any, str]], operands: list[Value]) -> list[Value]:
        """What an equation computes; `expected`: its results' shapes and types."""
        b, name = self.b, e.primitive.name
        made: Any = self._higher(e, operands)
        if made is None and moves_keys(e):
            made = self._on_bits(e, operands)
        if made is None:
            row = ROWS.find(name, registered)
            if row is None and name in _PRINTS:
                log.info(f"jax.debug prints nothing ({self._where})")
                return []
            if row is None:
                raise Rejected(_PYTHON if name.endswith("_callback") else "SOL has no row for this primitive")
            b.kind, b.name, b.where, b.out = name, name, self._where, expected
            params = {k: self.sized(v) for k, v in e.params.items()} if self.sizes else e.params
            made = row(b, params, *operands)
        return made if isinstance(made, list) else [made]

    def _as_expected(self, e: Any, made: list[Value], expected: list[tuple[Any, str]]) -> bool:
        """Whether results have their shapes and types. False: a stand-in has led to others."""
        name = e.primitive.name
        for v, (shape, dtype) in zip(made, expected, strict=True):
            if v.shape == shape and v.dtype == dtype:
                continue
            if self.problems:
                return False
            text = f"expected {dtype}{list(shape)}, got {v.dtype}{list(v.shape)}"
            if row_is_own(ROWS.get(name)):
                raise _core.InternalError(f"{name}: {text}")
            raise Rejected(text)
        return True

    def _stand_in(self, aval: Any) -> Value:
        """A tensor in place of a result that there is not."""
        with contextlib.suppress(Rejected):
            shape, dtype = self.type_of(aval)
            return Value(self.b.graph.input("", dtype, forms.form(shape)))
        return Value(self.b.graph.input("", "f32", forms.form(self.sized(aval.shape))))

    # -- calls and control flow

    def _higher(self, e: Any, operands: list[Value]) -> list[Value] | None:
        """The results of a call or of control flow. None: it is neither."""
        name, p = e.primitive.name, e.params
        if name in CALLS:
            return self._call(called(p), operands)
        if name in CUSTOM:
            return self._custom(e, operands)
        if name == "scan":
            return self._scan(p, operands)
        if name == "while":
            return self._while(p, operands)
        if name == "cond":
            return self._cond(p, operands)
        if name.startswith("random_") or name in ("threefry2x32", "rng_bit_generator"):
            return self._random(e, operands)
        return None

    def _call(self, jaxpr: Any, operands: Sequence[Value]) -> list[Value]:
        if hasattr(jaxpr, "jaxpr"):
            return self.walk(jaxpr.jaxpr, [self.constant(c) for c in jaxpr.consts], operands)
        return self.walk(jaxpr, [], operands)

    def python(self, function: Callable[..., Any], operands: Sequence[Value], avals: Sequence[Any]) -> list[Value]:
        """A function of JAX on values of the graph, which have these types."""
        specs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
        return self._call(jax.make_jaxpr(function)(*specs), operands)

    def _on_bits(self, e: Any, operands: list[Value]) -> list[Value]:
        """An equation that moves keys, on their bits, which are a dimension behind the others."""
        axes = [-1 if of_keys(v.aval) else None for v in e.invars]
        function = jax.vmap(lambda *xs: e.primitive.bind(*xs, **e.params), in_axes=axes, out_axes=-1)
        return self.python(function, operands, [physical(v.aval) for v in e.invars])

    def _custom(self, e: Any, operands: list[Value]) -> list[Value]:
        """A function with a derivative of its own. JAX derives its gradient, and layer Graft takes that as SOL's."""
        made = self._plain(e.params, operands)
        variables = {v: x for v, x in zip(e.invars, operands, strict=True) if not isinstance(v, jex.Literal)}
        real = [i for i, x in enumerate(variables.values()) if x.real]
        if not self.tracked or not real:
            return made
        return [self._grafted(e, variables, real, k) if y.real else y for k, y in enumerate(made)]

    def _plain(self, p: dict[str, Any], operands: list[Value]) -> list[Value]:
        """What such a function computes. A linear system has functions that multiply and solve, each with constants of its own."""
        if "jaxprs" not in p:
            return self._call(called(p), operands)
        counts = p["const_lengths"]
        first = counts.matvec + counts.vecmat
        return self._call(p["jaxprs"].solve, [*operands[first : first + counts.solve], *operands[sum(counts) :]])

    def _grafted(self, e: Any, variables: dict[Any, Value], real: list[int], k: int) -> Value:
        """Result k with the gradient that it alone would give the operands."""
        b = self.b
        _, function = alone(e)

        def gradients(mark: Any, *xs: Any) -> Any:
            def result(*own: Any) -> Any:
                values = list(xs)
                for i, x in zip(real, own, strict=True):
                    values[i] = x
                return function(*values)[k]

            made, pull = jax.vjp(result, *(xs[i] for i in real))
            return [made, *pull(mark)]

        operands, aval = list(variables.values()), e.outvars[k].aval
        marker = b.fill(0, self.sized(aval.shape), sol_name(aval.dtype))
        self.tracked = False  # nothing is differentiated twice
        try:
            made, *found = self.python(gradients, [marker, *operands], [aval, *(v.aval for v in variables)])
        finally:
            self.tracked = True
        made = b.layer("stop", made)
        for i, d in zip(real, found, strict=True):
            made = b.layer("Graft", made, marker, operands[i], d)
        return made

    def _scan(self, p: dict[str, Any], operands: list[Value]) -> list[Value]:
        n, nconst, ncarry = self.sized(p["length"]), p["num_consts"], p["num_carry"]
        if forms.varies(n) or n >= LOOPED:
            try:
                return Recurrence(self.b, Body(self, p["length"]), p, operands).layer()
            except Rejected as problem:
                if forms.varies(n):
                    raise Rejected(f"a scan of {n} steps, which SOL unrolls, because its body has {problem}") from None
        if n > MOST_UNROLLED:
            raise Rejected(f"a scan of {n} steps: SOL unrolls at most {MOST_UNROLLED}")
        consts, carry, lists = operands[:nconst], operands[nconst : nconst + ncarry], operands[nconst + ncarry :]
        rows: list[list[Value]] = []
        for t in reversed(range(n)) if p["reverse"] else range(n):
            now = [self.b.layer("Select", x, axis=0, index=t) for x in lists]
            made = self._call(p["jaxpr"], [*consts, *carry, *now])
            carry = made[:ncarry]
            rows.append(made[ncarry:])
        if p["reverse"]:
            rows.reverse()
        stacked = [self.b.layer("Stack", *column, axis=0) for column in zip(*rows, strict=True)]
        if not n:
            stacked = [
                self.b.fill(0, (0, *self.sized(v.aval.shape)), sol_name(v.aval.dtype))
                for v in p["jaxpr"].jaxpr.outvars[ncarry:]
            ]
        return carry + stacked

    def _while(self, p: dict[str, Any], operands: list[Value]) -> list[Value]:
        """A loop that counts up to a size, or whose number of steps is known while translating."""
        loop = counted(p, operands)
        end = self.dims.get(loop.end.handle) if loop and isinstance(loop.end, Value) else loop and loop.end
        if loop and end is not None:
            return self._counted(loop, end)
        ncond, nbody = p["cond_nconsts"], p["body_nconsts"]
        cond, body, carry = operands[:ncond], operands[ncond : ncond + nbody], operands[ncond + nbody :]
        for _ in range(MOST_UNROLLED):
            (more,) = self._call(p["cond_jaxpr"], [*cond, *carry])
            if not self.b.number(more, "the number of steps of a loop"):
                return carry
            carry = self._call(p["body_jaxpr"], [*body, *carry])
        raise Rejected(f"a loop of more than {MOST_UNROLLED} steps")

    def _counted(self, loop: Counted, end: Any) -> list[Value]:
        """A loop that counts up to a size that varies."""
        start = loop.carried[loop.counter]
        first = int(self.b.number(start, "the first number of a loop up to a size"))
        dtype, length = np.dtype(NUMPY[start.dtype]), jax.core.max_dim(end - first, 0)
        (numbers,) = self.python(lambda: jax.lax.iota(dtype, length) + dtype.type(first), [], [])
        p, operands = loop.scan(length)
        after = self.b.scalar(self.sized(jax.core.max_dim(end, first)), start.dtype)
        return loop.results(self._scan(p, [*operands, numbers]), after)

    def _cond(self, p: dict[str, Any], operands: list[Value]) -> list[Value]:
        """All branches, of which one result is chosen; only one where the choice is known. No gradient goes into a branch that
        is not taken: there, it may not be finite."""
        which, rest = operands[0], operands[1:]
        branches = p["branches"]
        known = self.b.known(which)
        if known is not None:
            return self._call(branches[min(max(int(known), 0), len(branches) - 1)], rest)
        made: list[Value] = []
        for i, branch in enumerate(branches):
            last = i == len(branches) - 1
            taken = self.b.layer("le" if i == 0 else "ge" if last else "eq", which, self.b.scalar(i, which.dtype))
            result = self._call(branch, [self._entered(taken, x) for x in rest])
            made = [self._chosen(taken, y, x) for x, y in zip(made, result, strict=True)] if i else result
        return made

    def _chosen(self, taken: Value, x: Value, other: Value) -> Value:
        return self.b.layer("where", self.b.cast(taken, x.dtype), x, other)

    def _entered(self, taken: Value, x: Value) -> Value:
        """An operand of a branch."""
        return self._chosen(taken, x, self.b.layer("stop", x)) if self.tracked and x.dtype in REAL else x

    def _random(self, e: Any, operands: list[Value]) -> list[Value]:
        """Random bits are JAX's own: the same arithmetic of integers, as JAX defines it for a kind of keys."""
        from .chance import expanded

        function = expanded(e)
        if function is None:
            return operands[:1]  # a key is its bits
        return self.python(function, operands, [physical(v.aval) for v in e.invars])


def _data(value: Any) -> Any:
    """An array without the type of keys."""
    return jax.random.key_data(value) if hasattr(value, "dtype") and of_keys(value) else value
