"""The state of an optimized model: its programs, and how a call finds its program.

Programs are compiled at their first use, one for each structure of arguments, shapes and types, and modes of the
modules. The usual call is short: `Caller.call` (in C) compares everything with the expectations of the last program,
and runs it. Only if something differs, `_slow` looks for another program, or compiles one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from sol import _core, log
from sol.forms import Varies

from . import arguments, places, vary
from .export import export
from .face import eager
from .facts import Facts
from .guards import Row, guards, written
from .hooks import check_hooks
from .hosted import Differs
from .placeholders import leaf_names
from .program import Owned, Program, examples
from .skeleton import contents_kept, model_class
from .structure import Reply, encode, form, objects, outline
from .symbols import DataSized
from .training import Apart, Origin, later, rejected
from .values import Given, shortened

_OF = {"computed": "its arguments", "drawn": "random numbers", "checked": "what the model computes"}  # by kind of read
_ADVICE = {
    "computed": "Let few values come (pad to multiples, group by length)",
    "drawn": "Set LayerDrop, if it is that, to 0 in the configuration",
    "checked": "Take another implementation of that layer, if there is one",
}
_UNTRACKED = "does not require grad"  # in messages of torch.autograd.grad
MAX_PROGRAMS = 16  # of one model; each has its own packed parameters
MOST_TRIES = 100  # of one call; each uses the values that the network computed in the one before
MANY_VALUES = 7  # programs for different values that forward reads, until a warning


class Route:
    """How a call's arguments become the leaves of a program; reused for the next call of the same form."""

    __slots__ = ("count", "defaults", "form", "names", "objects", "order", "program")

    def __init__(
        self,
        names: tuple[str, ...],
        shape: Any,
        order: tuple[int, ...],
        defaults: tuple[Any, ...],
        objects: tuple[int, ...],
    ) -> None:
        self.program: Any = None
        self.objects = objects  # by number in the program: which of the caller's objects, in order of occurrence
        self.names = names
        self.form = shape  # None: the arguments are the leaves themselves
        self.defaults = defaults  # of arguments that are not given
        self.count = len(order) - len(defaults)
        self.order = None if order == tuple(range(len(order))) else order

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """The leaves. None: the call has another form."""
        if self.form is not None:
            flat: list[Any] = []
            if (form(args, flat), form(kwargs, flat)) != self.form:
                return None
            args = tuple(flat)
        elif kwargs or self.names:
            if tuple(kwargs) != self.names:
                return None
            args = args + tuple(kwargs.values())
        if len(args) != self.count:
            return None
        args += self.defaults
        return args if self.order is None else tuple([args[i] for i in self.order])


class State:
    """The state of one optimized model or graph: its programs, and which one ran last."""

    runs_hooks = False  # whether the caller runs the hooks of the modules

    def __init__(self, declared: vary.Declared | None, signature: inspect.Signature | None) -> None:
        self.declared = declared  # the arguments of sol.optimize; None: any call
        free = vary.free(declared.leaves) if declared else {}
        self.traces = (
            vary.Traces(free) if free or declared == vary.ANY_CALL else None
        )  # shared by programs of several sizes
        self.report: vary.Dims | None = None  # what sol.optimize found out about sizes
        self.signature = signature
        self.programs: dict[Any, Program] = {}
        self.route: Route | None = None
        self.changes: dict[
            str, int
        ] = {}  # by line: programs that were compiled because forward read another value there
        self.asks = False  # whether forward differentiates by arguments or parameters: then programs in eval mode have gradients, too
        self.differentiated = False  # whether anybody has requested gradients of a call in eval mode
        self.lock = threading.RLock()
        _states.add(self)

    # -- calling

    @staticmethod
    def dense(t: torch.Tensor) -> torch.Tensor:
        """An argument in a layout that programs take."""
        return arguments.dense(t)

    def call(self, root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The model's result for these arguments."""
        route, facts = self.route, Facts()
        if route is not None and not _is_special(route.program.device):
            leaves = route.leaves(args, kwargs)
            if leaves is not None:
                outputs = self._run(root, route.program, leaves, leaves, facts)
                if outputs is not None:
                    return _results(route, outputs, leaves, args, kwargs)
        return self._slow(root, args, kwargs, facts)

    def _slow(self, root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], facts: Facts) -> Any:
        leaves, spec, route = self.canonical(root, args, kwargs)
        device = places.first((*leaves, *(o.tensor for o in owned_tensors(root).values())))
        if places.lowers(device):
            raise _core.UnsupportedError("autocast: not supported; call the model outside of torch.autocast")
        places.check_capture(device)
        if _is_special(device) or any(_is_traced(leaf) for leaf in leaves):
            return eager(root, *args, **kwargs)
        dense = tuple(
            self.dense(arguments.checked(i, t)) if isinstance(t, torch.Tensor) else t for i, t in enumerate(leaves)
        )
        program, outputs = self._known(root, dense, leaves, spec, facts)
        for _ in range(MOST_TRIES):
            if outputs is not None:
                break
            program = self._choose(root, dense, leaves, spec, facts)
            dense = tuple(
                leaf if isinstance(leaf, torch.Tensor) else known
                for leaf, known in zip(dense, program.leaves, strict=True)
            )
            outputs = self._run(root, program, dense, leaves, facts)
            if not program.translation.checks:
                break
        if outputs is None:
            raise _core.InternalError(
                f"{model_class(root).__name__}: a program does not accept the call that it was made for"
            )
        route.program = program
        self.route = route
        return _results(route, outputs, leaves, args, kwargs)

    def _known(
        self, root: torch.nn.Module, dense: tuple[Any, ...], leaves: Sequence[Any], spec: pytree.TreeSpec, facts: Facts
    ) -> tuple[Any, Any]:
        """The program of an earlier call that accepts this one, and its outputs."""
        for program in reversed(list(self.programs.values())):
            if program.pending is None and program.spec == spec:
                outputs = self._run(root, program, dense, leaves, facts)
                if outputs is not None:
                    return program, outputs
        return None, None

    # -- gradients

    def _choose(
        self, root: torch.nn.Module, dense: Sequence[Any], leaves: Sequence[Any], spec: pytree.TreeSpec, facts: Facts
    ) -> Program:
        """Whether the program for a call has gradients: yes, unless the model is in eval mode and nobody has requested
        any yet."""
        wanted = wanted_gradients(root, leaves) if torch.is_grad_enabled() else frozenset()
        if not wanted:
            return self.find(root, dense, spec, facts=facts)
        if self.asks or any(m.training for m in root.modules()):
            return self.find(root, dense, spec, wanted, facts=facts)
        why = None
        if self.differentiated:  # a program without gradients would be for nothing
            try:
                return self.find(root, dense, spec, wanted, facts=facts)
            except _core.UnsupportedError as e:
                why = str(e)
        try:
            program = self.find(root, dense, spec, facts=facts)
        except _core.InvalidError as e:
            if _UNTRACKED not in str(e):
                raise
            self.asks = True
            return self.find(root, dense, spec, wanted, facts=facts)
        if why is None and program.repeatable:
            return program
        try:
            if why is None:
                return self.find(root, dense, spec, wanted, facts=facts)
        except _core.UnsupportedError as e:
            why = str(e)
        program.why = why
        return program

    def _run(
        self, root: torch.nn.Module, program: Program, dense: tuple[Any, ...], leaves: Sequence[Any], facts: Facts
    ) -> tuple[Any, ...] | None:
        """The network's outputs. None: another program must handle the call."""
        if program.reads is not None and not program.reads_the_same(dense, facts):
            return None
        try:
            outputs = self._run_program(root, program, dense, leaves, facts)
        except Differs:
            return None
        except _core.RunError:
            if not program.translation.checks or facts.made is program:
                raise
            facts.failed.add(program)
            return None
        if outputs is None or (program.translation.checks and not program.confirms(outputs, facts)):
            return None
        facts.settle(len(program.hosted.steps))
        return outputs

    def _run_program(
        self, root: torch.nn.Module, program: Program, dense: tuple[Any, ...], leaves: Sequence[Any], facts: Facts
    ) -> tuple[Any, ...] | None:
        if not torch.is_grad_enabled():
            return None if program.wanted else program.call(dense, torch.get_num_threads(), facts)
        if program.gradient:
            return program.train(dense, leaves, facts)
        if program.wanted:  # no result has a gradient
            same = program.wanted == wanted_gradients(root, leaves)
            return program.call(dense, torch.get_num_threads(), facts) if same else None
        if not program.wants_gradients(leaves):
            return program.call(dense, torch.get_num_threads(), facts)
        if program.why is not None:
            outputs = program.call(dense, torch.get_num_threads(), facts)
            made_of = [*leaves, *(o.tensor for o in program.owned.values())]
            return outputs and rejected(program.why, outputs, made_of)
        if self.differentiated or not program.repeatable:
            return None
        return later(program, dense, leaves, functools.partial(self._again, root, program))

    def _again(self, root: torch.nn.Module, program: Program, leaves: Sequence[Any], apart: Apart) -> tuple[Any, ...]:
        """Repeats a call in eval mode, with gradients for tensors that are entered in `apart`."""
        self.differentiated = True
        with evaluating(root):
            dense = tuple(self.dense(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
            made = self.find(root, dense, program.spec, wanted_gradients(root, leaves))
            outputs = made.train(dense, leaves, Facts(), apart) if made.gradient else None
        if outputs is None:
            raise _core.InvalidError(
                f"{model_class(root).__name__}: backward: the model has changed since the call; ask for gradients before changing it"
            )
        return outputs

    def canonical(
        self, root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], pytree.TreeSpec, Route]:
        """Leaves and structure, with every argument that may be positional in its position, including defaults. Also
        returns the route."""
        flat: list[Any] = []
        shape = form(args, flat), form(kwargs, flat)
        raw = pytree.tree_structure(encode((args, kwargs)))
        given = len(flat)
        positions = args, kwargs = pytree.tree_unflatten(list(range(given)), raw)
        carriers = {id(c): i for i, c in enumerate(objects(positions))}
        simple = all(isinstance(a, int) for a in (*args, *kwargs.values()))
        names = tuple(kwargs)
        if self.signature is not None:
            try:
                bound = self.signature.bind(*args, **kwargs)
            except TypeError as e:
                raise TypeError(f"{model_class(root).__name__}.forward{self.signature}: {e}") from None
            for name, parameter in self.signature.parameters.items():
                if name not in bound.arguments and isinstance(parameter.default, arguments.SIMPLE):
                    bound.arguments[name] = len(flat)
                    flat.append(parameter.default)
            positions = bound.args, dict(sorted(bound.kwargs.items()))
        order, spec = pytree.tree_flatten(encode(positions))
        own = tuple(carriers[id(c)] for c in objects(positions))
        route = Route(names, None if simple else shape, tuple(order), tuple(flat[given:]), own)
        return [flat[i] for i in order], spec, route

    # -- programs

    def find(
        self,
        root: torch.nn.Module,
        leaves: Sequence[Any],
        spec: pytree.TreeSpec,
        wanted: frozenset[Origin] = frozenset(),
        compiled: bool = True,
        absent: frozenset[int] = frozenset(),
        facts: Facts | None = None,
    ) -> Program:
        """Finds the program for such a call. Creates it if there is none, and drops the least recently used one.

        `wanted`: what requires a gradient. `absent`: leaves without data. `facts`: what is known of the call.
        """
        with self.lock, _drawing(facts) as facts:
            owned = owned_tensors(root)
            _check_tensors(root, owned, leaves)
            if not self.runs_hooks:
                check_hooks(root, bool(wanted))
            rows = guards(root, owned)
            rest = _kind(spec, rows, owned, wanted)
            kind, general = ((rest, tuple(map(key, leaves))) for key in (arguments.leaf_key, arguments.kind_key))
            alike = [k for k in self.programs if k[0] == kind]  # equal except for the values that forward reads
            key = next((k for k in alike if self.programs[k].reads_the_same(leaves, facts)), None)
            key = key or next((k for k, p in self.programs.items() if k[0] == general and p.takes(leaves)), None)
            if key is None:
                self._check_declared(root, leaves, spec)
                for other in self.programs.values():
                    other.refresh(set())  # half() and the like: gives up the memory that parameters have left
                given = Given(leaves, owned, absent, self._fixed(leaves), facts, found=not wanted)
                made = self._made(root, spec, rows, given, general)
                key = (general, made.varying) if made.varying else (kind, made.reads and made.reads.values)
                facts.made = made
                if alike and made.reads:
                    self._say_changed(made, self.programs[alike[-1]])
                while len(self.programs) >= MAX_PROGRAMS:
                    forgotten = self.programs.pop(next(iter(self.programs)))
                    log.debug(f"{made.name}: {MAX_PROGRAMS} programs are kept: forgets the one for {forgotten.what}")
                self.programs[key] = made
            else:
                self.programs[key] = self.programs.pop(key)
            if compiled:
                try:
                    self.programs[key].compile()
                except BaseException as e:
                    made = self.programs.pop(key)  # its graph is partly optimized
                    again = made.varying and made.varying.where  # sizes of arguments vary: without that it may work
                    if not again or not isinstance(e, _core.UnsupportedError):
                        raise
                    made.varying.kept.limits.clear()
                    made.varying.kept.why = e
                    vary.say(made.name, made.varying.kept)
                    return self.find(root, leaves, spec, wanted, absent=absent, facts=facts)
            return self.programs[key]

    def _made(
        self, root: torch.nn.Module, spec: pytree.TreeSpec, rows: Sequence[Row], given: Given, key: tuple[Any, ...]
    ) -> Program:
        """A new program. `key`: of calls that differ in sizes alone."""
        with contents_kept(root):
            try:
                return self._general(root, spec, rows, given, key) or self._single(root, spec, rows, given, key[0][-1])
            except _core.InvalidError as e:
                names = leaf_names(root, *pytree.tree_unflatten(given.leaves, spec))
                why = self.traces and self.traces.misfit(given.leaves, names)
                if not why:
                    raise
                raise _core.InvalidError(f"{model_class(root).__name__}: {why}: {e}") from e

    def _single(
        self, root: torch.nn.Module, spec: pytree.TreeSpec, rows: Sequence[Row], given: Given, wanted: frozenset[Origin]
    ) -> Program:
        """A program for the sizes of this call. In inference, it sets sizes that depend on data while it runs, if it can."""
        try:
            return Program(root, spec, rows, given, wanted)
        except DataSized:
            with contents_kept(root):
                found, why = self._finding(root, spec, rows, given, wanted)
            if found is not None:
                return found
        log.info(f"{model_class(root).__name__}: sizes that depend on data are values of the program: {why}")
        given.found = False
        return Program(root, spec, rows, given, wanted)

    def _finding(
        self, root: torch.nn.Module, spec: pytree.TreeSpec, rows: Sequence[Row], given: Given, wanted: frozenset[Origin]
    ) -> tuple[Program | None, str]:
        traces = vary.Traces({})
        kept = traces.alone(given.leaves, _tracer(root, spec, given, wanted))
        if kept is None:
            return None, traces.why
        while True:
            varying = vary.Varying(kept, kept.traced, ())
            try:
                return Program(root, spec, rows, dataclasses.replace(given, varying=varying), wanted), ""
            except (_core.Error, Varies, TypeError) as e:
                if not kept.unify(e):
                    return None, str(e)

    def _general(
        self, root: torch.nn.Module, spec: pytree.TreeSpec, rows: Sequence[Row], given: Given, key: tuple[Any, ...]
    ) -> Program | None:
        """A program for all sizes, which takes those of this call. None: there is none; `given` receives a trace for these sizes,
        if programs can share it."""
        free = self._free(given.leaves, spec)
        if self.traces is None or not free or not (vary.at_once(free) or self.programs):
            return None
        wanted = key[0][-1]
        own = self.traces.find(key, given.leaves, _tracer(root, spec, given, wanted), free)
        given.traced = None if own is None else own.of(given.leaves)
        if self.traces.lost and given.traced is not None:
            names = leaf_names(root, *pytree.tree_unflatten(given.leaves, spec))
            self.traces.say_lost(model_class(root).__name__, names)
        for kept in self.traces.known(key):
            if own is None and given.traced is None:
                try:  # in front of any attempt: sizes that the model does not take say nothing about programs for others
                    given.traced = export(root, *examples(given.leaves, spec, wanted), bool(wanted), given)
                except DataSized:
                    return None
            mine = (p for k, p in self.programs.items() if k[0] == key and p.varying and p.varying.kept is kept)
            about = (p for p in mine if p.varying.about(given.leaves))
            program = next(about, None) or self._attempt(root, spec, rows, given, (kept, wanted, free))
            if program is None:
                continue
            if program.takes(given.leaves) or (kept is not own and program.admits(given, own or given.traced)):
                return program
        return None

    def _attempt(
        self,
        root: torch.nn.Module,
        spec: pytree.TreeSpec,
        rows: Sequence[Row],
        given: Given,
        what: tuple[vary.Kept, Any, vary.Free],
    ) -> Program | None:
        """A program with sizes that vary, of a trace; not compiled yet. None: it is not possible."""
        (kept, wanted, free), given = what, dataclasses.replace(given)
        while kept.limits and (varying := kept.varying(free, given.leaves, kept.limits[0])):
            given.varying = varying
            try:
                made = Program(root, spec, rows, given, wanted)
            except (_core.Error, Varies, TypeError) as e:
                if not kept.unify(e):
                    kept.failed(e, free)
            else:
                vary.say(made.name, kept)
                return made
        vary.say(model_class(root).__name__, kept)
        return None

    def explore(
        self, root: torch.nn.Module, leaves: Sequence[Any], spec: pytree.TreeSpec, wanted: frozenset[Origin]
    ) -> vary.Kept | None:
        """A trace in which every dimension of `traces` is free. None: there is none."""
        assert self.traces is not None
        with self.lock, _drawing(None) as facts, contents_kept(root):
            owned = owned_tensors(root)
            _check_tensors(root, owned, leaves)
            given = Given(leaves, owned, frozenset(), self._fixed(leaves), facts, found=not wanted)
            kind = _kind(spec, guards(root, owned), owned, wanted), tuple(map(arguments.kind_key, leaves))
            return self.traces.explore(kind, leaves, _tracer(root, spec, given, wanted), self.traces.free)

    def _free(self, leaves: Sequence[Any], spec: pytree.TreeSpec) -> vary.Free:
        """The dimensions of a call that may vary."""
        same = self.declared is None or arguments.present(leaves, spec) == self.declared.present
        if not same and self.declared and self.declared.others:
            return vary.every(leaves)
        return self.traces.free if self.traces is not None and same else {}

    def _say_changed(self, made: Program, before: Program) -> None:
        """Logs that a program is compiled because of a value that forward reads."""
        assert made.reads and before.reads
        i = made.reads.differs(before.reads)
        row = made.reads.rows[i]
        values = " after ".join(shortened(p.reads.values[i]) for p in (made, before) if p.reads)
        log.debug(f"{made.name} for {made.what}: forward reads another value ({row.where}): {values}: one more program")
        self.changes[row.where] = count = self.changes.get(row.where, 0) + 1
        if count == MANY_VALUES:
            log.warn(
                f"{made.name}: forward reads a value of {_OF[row.kind]} ({row.where}), and {count + 1} programs were compiled, each "
                f"for another one, the last for {values}; {MAX_PROGRAMS} are kept. {_ADVICE[row.kind]}, compute with the tensor "
                "itself (torch.where, a mask), or use torch.compile(model, backend='sol'), which runs such a line in Python"
            )

    def prepare(
        self, root: torch.nn.Module, leaves: Sequence[Any], spec: pytree.TreeSpec, absent: frozenset[int]
    ) -> None:
        """What sol.optimize does. In eval mode, later calls will be inference. In train mode they may be inference or
        training: an error of the training program is reported now, and the first call decides what is compiled."""
        if not any(m.training for m in root.modules()):
            try:
                self.find(root, leaves, spec, absent=absent)
                return
            except _core.InvalidError as e:
                if _UNTRACKED not in str(e) or not torch.is_grad_enabled():
                    raise
                self.asks = True
        wanted = wanted_gradients(root, leaves) if torch.is_grad_enabled() else frozenset()
        try:
            self.find(root, leaves, spec, wanted, compiled=False, absent=absent)
        except _core.Error as e:
            if not self._infers(root, leaves, spec, absent):
                raise
            say = (
                log.warn if isinstance(e, _core.UnsupportedError) else log.debug
            )  # a debug message for expected errors, such as batch-norm with a batch of 1
            say(f"{model_class(root).__name__}: is in train mode, but only inference is possible: {e}")

    def _infers(
        self, root: torch.nn.Module, leaves: Sequence[Any], spec: pytree.TreeSpec, absent: frozenset[int]
    ) -> bool:
        """Whether the model might be used for inference."""
        try:
            with evaluating(root):
                self.find(root, leaves, spec, compiled=False, absent=absent)
        except _core.Error:
            return False
        return True

    def latest(self) -> Program | None:
        """The program used last, compiled."""
        with self.lock:
            program = next(reversed(self.programs.values()), None)
            if program is not None:
                program.compile()
            return program

    def _fixed(self, leaves: Sequence[Any]) -> frozenset[int]:
        """Leaves that are parameters (in a graph of torch.compile)."""
        return frozenset()

    def _check_declared(self, root: torch.nn.Module, leaves: Sequence[Any], spec: pytree.TreeSpec) -> None:
        if self.declared is None:
            return
        expected, expected_spec, present, _ = self.declared
        if arguments.present(leaves, spec) != present:
            return  # an argument was added, left out or became None; sol.optimize was not told about such calls
        what = f"{model_class(root).__name__}: optimized for ({', '.join(map(str, expected))})"
        if outline(spec) != expected_spec:
            raise _core.InvalidError(
                f"{what}: expected arguments like {expected_spec}, got {outline(spec)}, which is "
                f"({', '.join(arguments.describe(leaf) for leaf in leaves)}); call it as sol.optimize was, or call sol.optimize again"
            )
        names = leaf_names(root, *pytree.tree_unflatten(leaves, spec))
        for i, (leaf, e) in enumerate(zip(leaves, expected, strict=True)):
            if not arguments.fits(leaf, e):
                why = self.report and self.report.why(i, leaf)
                raise _core.InvalidError(
                    f"{what}: argument {i} ({names[i]}): expected {e}, got {arguments.describe(leaf)}; "
                    f"{why or arguments.instead(leaf)}"
                )
        if why := arguments.misfit(leaves, expected, names):
            raise _core.InvalidError(f"{what}: {why}")

    def refresh(self) -> None:
        """Marks every parameter as changed."""
        for program in self.programs.values():
            program.refresh()


@contextlib.contextmanager
def _drawing(facts: Facts | None) -> Iterator[Facts]:
    """The facts of a call. If there is none, or an error, host functions have drawn nothing."""
    made = facts or Facts()
    try:
        yield made
    except BaseException:
        made.settle(0)
        raise
    if facts is None:
        made.settle(0)


_states: weakref.WeakSet[State] = weakref.WeakSet()


def _after_fork() -> None:
    for state in list(_states):
        state.lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def _kind(
    spec: pytree.TreeSpec, rows: Sequence[Row], owned: dict[str, Owned], wanted: frozenset[Origin]
) -> tuple[Any, ...]:
    """The key of a program, without the leaves."""
    tensors = tuple((n, o.tensor.dtype, o.tensor.shape, o.tensor.stride(), o.tensor.device) for n, o in owned.items())
    return str(spec), tuple(map(written, rows)), tensors, wanted


def _tracer(root: torch.nn.Module, spec: pytree.TreeSpec, given: Given, wanted: frozenset[Origin]) -> vary.Make:
    """What traces a call with symbols as sizes."""
    return lambda symbols: export(root, *examples(given.leaves, spec, wanted), bool(wanted), given, symbols)


# -- arguments


def _is_special(device: torch.device) -> bool:
    """Whether torch.jit.trace, make_fx or an operator counter records this call, or autocast changes it."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None  # torch.func.grad, vmap, jvp
        or torch._C._get_tracing_state() is not None
        or places.lowers(device)
    )


def _is_traced(leaf: Any) -> bool:
    return isinstance(leaf, FakeTensor | torch.fx.Proxy) or (
        isinstance(leaf, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(leaf)
    )


def _check_tensors(root: torch.nn.Module, owned: dict[str, Owned], leaves: Sequence[Any]) -> None:
    """Rejects parameters that a network cannot take, and tensors on two devices, by name."""
    for name, o in owned.items():
        if torch.nn.parameter.is_lazy(o.tensor):
            raise _core.InvalidError(
                f"{model_class(root).__name__}: {name} has no shape yet; call the model once before sol.optimize"
            )
    given = [(f"argument {i}", leaf) for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    places.check(model_class(root).__name__, [*((n, o.tensor) for n, o in owned.items()), *given])


# -- results


def _results(
    route: Route, outputs: tuple[Any, ...], leaves: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    program = route.program
    if program.single:
        return outputs[0]
    made = program.build(iter(program.finish(outputs, leaves)))
    if type(made) is not Reply:
        return made
    own = objects((args, kwargs))
    return made.settle([own[i] for i in route.objects])


# -- the module tree


@contextlib.contextmanager
def evaluating(root: torch.nn.Module) -> Iterator[None]:
    """Sets all modules to eval mode temporarily."""
    modes = {m: m.training for m in root.modules()}
    for m in modes:
        m.training = False
    try:
        yield
    finally:
        for m, training in modes.items():
            m.training = training


def owned_tensors(root: torch.nn.Module) -> dict[str, Owned]:
    """All parameters, buffers and other tensors of the module tree, by name."""
    owned: dict[str, Owned] = {}
    for path, module in root.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        for group in (module._parameters, module._buffers, module.__dict__):
            for key, value in group.items():
                if isinstance(value, torch.Tensor):
                    owned[prefix + key] = Owned(prefix + key, group, key)
    return owned


def wanted_gradients(root: torch.nn.Module, leaves: Sequence[Any]) -> frozenset[Origin]:
    """Arguments and tensors of the model that require a gradient."""
    wanted: list[Origin] = [
        ("leaf", i) for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]
    return frozenset(wanted + [("param", n) for n, o in owned_tensors(root).items() if o.tensor.requires_grad])
