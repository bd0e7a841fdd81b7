"""A loop that counts up to a size that varies, as a scan over its numbers.

`fori_loop(0, x.shape[0], ..)` is a `while` for JAX, because the end is no number; so is a `while_loop` whose condition compares a
counter with a size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend import core as jex

from .builder import Value


@dataclass
class Counted:
    """A loop of `while` whose body adds 1 to a counter, as long as it is less than `end`, a value or a size of the jaxpr."""

    consts: Sequence[Value]  # of the body
    counter: int  # number of the counter among `carried`
    end: Any
    body: Any  # a closed jaxpr
    carried: Sequence[Value]  # before the first step

    @property
    def changes(self) -> list[int]:
        """What else a step changes."""
        body = self.body.jaxpr
        before = body.invars[len(self.consts) :]
        return [j for j, v in enumerate(body.outvars) if j != self.counter and v is not before[j]]

    def scan(self, length: Any) -> tuple[dict[str, Any], list[Value]]:
        """Parameters of a scan of so many steps, and its operands but the last, which is the list of the counter's values."""
        body, n, changes = self.body.jaxpr, len(self.consts), self.changes
        stays = [j for j in range(len(self.carried)) if j not in (*changes, self.counter)]
        order = [*range(n), *(n + j for j in (*stays, *changes, self.counter))]
        inner = body.replace(
            invars=[body.invars[i] for i in order],
            outvars=[body.outvars[j] for j in changes],
            debug_info=body.debug_info.with_unknown_names(),
        )
        closed = jex.ClosedJaxpr(inner, self.body.consts)
        params = {
            "length": length,
            "num_consts": n + len(stays),
            "num_carry": len(changes),
            "reverse": False,
            "jaxpr": closed,
        }
        return params, [*self.consts, *(self.carried[j] for j in (*stays, *changes))]

    def results(self, made: Sequence[Value], end: Value) -> list[Value]:
        """What the loop leaves, where the scan has made what changes."""
        after = dict(zip(self.changes, made, strict=True)) | {self.counter: end}
        return [after.get(j, v) for j, v in enumerate(self.carried)]


def counted(p: dict[str, Any], operands: Sequence[Value]) -> Counted | None:
    """Such a loop. None: it is another one."""
    ncond, nbody = p["cond_nconsts"], p["body_nconsts"]
    cond, body, carried = p["cond_jaxpr"].jaxpr, p["body_jaxpr"].jaxpr, operands[ncond + nbody :]
    sizes = {e.outvars[0]: e.params["dim"] for e in cond.eqns if e.primitive.name == "dim_as_value"}
    rest = [e for e in cond.eqns if e.primitive.name != "dim_as_value"]
    if [e.primitive.name for e in rest] != ["lt"] or cond.outvars[0] is not rest[0].outvars[0]:
        return None
    index, end = rest[0].invars
    if any(isinstance(v, jex.Literal) for v in (index, end)) or index not in cond.invars[ncond:]:
        return None
    k = cond.invars.index(index) - ncond
    if not any(
        e.primitive.name == "add" and e.outvars[0] is body.outvars[k] and _is_next(e, body.invars[nbody + k])
        for e in body.eqns
    ):
        return None
    made = Counted(operands[ncond : ncond + nbody], k, sizes.get(end), p["body_jaxpr"], carried)
    if end in cond.invars:
        at = cond.invars.index(end)
        made.end = operands[at] if at < ncond else carried[at - ncond]
        if at - ncond in (*made.changes, k):
            return None
    return made if made.end is not None else None


def _is_next(e: Any, counter: Any) -> bool:
    """Whether an addition adds 1 to the counter."""
    others = [v for v in e.invars if v is not counter]
    return len(others) == 1 and isinstance(others[0], jex.Literal) and bool(others[0].val == 1)
