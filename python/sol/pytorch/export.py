"""Turns a module into a graph of ATen operators, as the model's author wrote them.

trace.py handles most models, and torch.export the others. Operators such as linear, batch_norm, attention and LSTM are not
decomposed. decompose.py handles operators that are missing from the table, and writes.py in-place operators.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sol import _core, log
from sol.host import replaced

from . import enabled, function, operators, places
from .assigned import data
from .generators import nothing_drawn
from .problems import LIBRARY, located, user_line, users
from .skeleton import model_class, skeleton
from .steps import FUNC, FUNC_INSTEAD, Unusual
from .structure import called, carries
from .symbols import Symbols
from .trace import recorder, trace
from .traced import Traced
from .values import Given

_lock = threading.RLock()  # PyTorch's tracing has global state


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


class _NoGraphs(io.TextIOBase):
    """Standard error, without the graphs that torch.export prints when it fails."""

    def __init__(self, under: Any) -> None:
        self.under = under
        self.dropped = False

    def write(self, text: str) -> int:
        starts = text.lstrip().startswith(("def forward(self", "class GraphModule"))
        self.dropped = starts or (self.dropped and not text.strip())  # also drops the empty lines that follow
        if not self.dropped:
            self.under.write(text)
        return len(text)

    def flush(self) -> None:
        self.under.flush()


@contextlib.contextmanager
def _tracing(gradients: bool) -> Iterator[None]:
    """Sets up PyTorch for tracing: no fused paths for transformers, no warnings. Without gradients, no_grad() in a
    model leaves nothing in the trace.

    PyTorch's own code must not look at data: nn.Transformer would check whether a mask is causal (a hint for fused
    paths), and torch.distributions whether arguments are in range. Hooks on saved tensors that surround the first
    call (torch.utils.checkpoint counts tensors) do not see what the trace saves.
    """
    if torch.is_autocast_enabled("cpu"):
        raise _core.UnsupportedError(
            "autocast: not supported; call sol.optimize and the model outside of torch.autocast"
        )
    fast, disabled = torch.backends.mha.get_fastpath_enabled(), logging.root.manager.disable
    own = _own_gradients(gradients)
    layers = torch.nn.modules.transformer
    detect = layers._detect_is_causal_mask
    distribution = torch.distributions.Distribution
    validate = distribution._validate_args
    unseen = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    seen = _hooks_named() if gradients else enabled.watched()
    with torch.set_grad_enabled(gradients), own, unseen, seen, data(recorder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.backends.mha.set_fastpath_enabled(False)
        distribution._validate_args = False
        torch.nn.Module.to = _to  # type: ignore[method-assign,assignment]
        layers._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
        logging.disable(logging.CRITICAL)
        try:
            with contextlib.redirect_stderr(_NoGraphs(sys.stderr)):
                yield
        finally:
            logging.disable(disabled)
            layers._detect_is_causal_mask = detect
            distribution._validate_args = validate
            torch.nn.Module.to = _plain_to  # type: ignore[method-assign]
            torch.backends.mha.set_fastpath_enabled(fast)


@contextlib.contextmanager
def _hooks_named() -> Iterator[None]:
    """Names hooks on saved tensors that a model sets in its forward: they would see nothing. Those of checkpoints only save memory."""
    hooks: Any = torch.autograd.graph.saved_tensors_hooks
    enter, thread = hooks.__enter__, threading.get_ident()

    def named(self: Any) -> Any:
        if threading.get_ident() == thread and type(self).__module__ != "torch.utils.checkpoint":
            line = user_line()
            at = f" ({line})" if line else ""
            log.warn(f"{type(self).__name__}{at}: not called: SOL keeps what backward needs in memory of its own")
        return enter(self)

    hooks.__enter__ = named
    try:
        yield
    finally:
        hooks.__enter__ = enter


_plain_to = torch.nn.Module.to


def _to(module: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
    """`Module.to` in a forward that changes nothing: tensors without data cannot be replaced in a parameter."""
    device, dtype, _, memory_format = torch._C._nn._parse_to(*args, **kwargs)
    same = places.on_host(device) in (None, places.HOST) and memory_format is None
    tensors = [*module.parameters(), *module.buffers()] if same else []
    if same and all(dtype in (None, t.dtype) or not (t.is_floating_point() or t.is_complex()) for t in tensors):
        return module
    return _plain_to(module, *args, **kwargs)


@contextlib.contextmanager
def _own_gradients(wanted: bool) -> Iterator[None]:
    """Handles gradients that a model defines itself, which a trace would not show. The backward of an autograd.Function
    is traced, too (function.py); anything else is rejected if gradients are wanted."""
    thread = threading.get_ident()

    def rejecting(owner: Any, name: str) -> tuple[Any, str, Any]:
        original = owner.__dict__[name]

        def reject(this: Any, *args: Any, **kwargs: Any) -> Any:
            is_class = isinstance(this, type)
            plain = function.as_forward(this) if is_class and threading.get_ident() == thread else None
            if plain is not None:
                with enabled.held():
                    return function.differentiated(this, plain, args)
            if not wanted or threading.get_ident() != thread:
                with enabled.held() if is_class else contextlib.nullcontext():
                    return original.__get__(None if is_class else this, this if is_class else type(this))(
                        *args, **kwargs
                    )
            what = f"{this.__name__}.{name}" if is_class else f"Tensor.{name}"
            why = ""
            if is_class and (by := recorder()) is not None:
                if by.inside:  # the backward of an operator, which the operator's name identifies
                    return original.__get__(None, this)(*args, **kwargs)
                try:
                    return by.own_backward(this, args)
                except _core.UnsupportedError as e:
                    why = f": {e}"
                except Exception as e:
                    why = f": {type(e).__name__}: {e}"
            raise _core.UnsupportedError(
                f"{what} (a backward of the model's own){why}: not supported with gradients; call the model under torch.no_grad()"
            )

        setattr(owner, name, classmethod(reject) if isinstance(original, classmethod) else reject)
        return owner, name, original

    rows = [
        rejecting(torch.autograd.Function, "apply"),
        rejecting(torch.Tensor, "register_hook"),
        rejecting(torch.Tensor, "register_post_accumulate_grad_hook"),
    ]
    try:
        yield
    finally:
        for owner, name, original in rows:
            setattr(owner, name, original)


def dynamo_lock() -> contextlib.AbstractContextManager[Any]:
    """Dynamo's own lock. A trace sets global flags, as Dynamo does while it compiles: if they overlapped in two
    threads, one would undo what the other set. Dynamo calls SOL while it holds this lock, so it must be the first of
    several locks."""
    from torch._dynamo.convert_frame import compile_lock  # imported late: importing it takes longer than importing SOL

    return compile_lock


def export(
    root: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    gradients: bool = False,
    given: Given | None = None,
    symbols: Symbols | None = None,
) -> Traced:
    """Traces a model for arguments, one model at a time. Exceptions of the model itself are passed on.

    With `gradients`, the trace contains no_grad() and detach(). `given`: the data from which values that forward
    reads are computed. `symbols`: sizes of arguments that may vary; models that need torch.export then raise Unusual.
    """
    for i, leaf in enumerate(pytree.tree_leaves((args, kwargs))):
        if type(leaf).__module__.partition(".")[0] == "numpy":
            raise _core.UnsupportedError(
                f"{model_class(root).__name__}: argument {i}: {type(leaf).__name__} of NumPy: not supported; use torch.from_numpy"
            )
    if any(isinstance(m, torch.nn.parallel.DistributedDataParallel) for m in root.modules()):
        raise _core.UnsupportedError(
            "DistributedDataParallel: not supported inside of an optimized model; put it around: "
            "DistributedDataParallel(sol.optimize(model, ..))"
        )
    with dynamo_lock(), _lock, nothing_drawn(model_class(root).__name__, root), _tracing(gradients):
        try:
            return trace(skeleton(root), args, kwargs, given, symbols=symbols)
        except Unusual as e:
            if (traced := _with_gradients(root, args, kwargs, given, symbols, e)) is not None:
                return traced
            if symbols is not None:
                raise
            step, own, at = e.step, e.__cause__ if e.reads else None, users(e) or users(e.__cause__)
            without = functools.partial(_no_host_function, model_class(root).__name__, str(e))
            if own is None:
                if (traced := _as_eager(root, args, kwargs, given, e)) is not None:
                    return traced
                log.debug(f"{model_class(root).__name__}: traced by torch.export: {e}")
        made = skeleton(root)
        try:
            if own is not None:
                raise own
            with replaced(without):
                return Traced.of(_export(made, args, kwargs), step)
        except _core.UnsupportedError as e:
            raise located(e, step) from None
        except Exception as e:
            reason = _untraceable(e)
            if reason is None and _is_own(e):
                raise
            if reason is None:
                misfit = _core.InvalidError(_misfit(e, made, model_class(root).__name__, args, kwargs))
                raise located(misfit, step) from e
            line = next((f" ({os.path.basename(f.filename)}:{f.lineno})" for f in users(e) or at), "")
            what, semicolon, advice = reason.partition(";")
            error = _core.UnsupportedError(
                f"{model_class(root).__name__}: cannot be traced: {what}{line}{semicolon}{advice}"
            )
            raise located(error, step) from e


def _no_host_function(name: str, why: str, function: Any, args: Any, kwargs: Any) -> Any:
    """Takes the place of host functions while torch.export traces: it would keep what they return."""
    raise _core.UnsupportedError(
        f"{name}: {getattr(function, '__qualname__', function)} ({user_line()}) is a host function, and {why}: not supported together"
    )


def _with_gradients(
    root: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    given: Given | None,
    symbols: Symbols | None,
    why: Unusual,
) -> Traced | None:
    """The trace of a model that itself asks for gradients (torch.autograd.grad, torch.func): of the operators below autograd."""
    if not (why.inner or _is_of_func(why.__cause__)) or isinstance(root, torch.fx.GraphModule):
        return None
    if symbols is not None:
        symbols.begin()
    try:
        with _no_hooks():
            return trace(skeleton(root), args, kwargs, given, symbols=symbols, below=True)
    except (Unusual, _core.UnsupportedError) as e:
        log.debug(f"{model_class(root).__name__}: not traced below autograd: {e}")
        return None


def _is_of_func(e: BaseException | None) -> bool:
    """Whether an exception passed through a transformation of torch.func."""
    folder = os.path.dirname(torch._functorch.__file__)
    return e is not None and any(f.filename.startswith(folder) for f in traceback.extract_tb(e.__traceback__))


@contextlib.contextmanager
def _no_hooks() -> Iterator[None]:
    """Takes the hooks on saved tensors away that `_tracing` sets: torch.func forbids them."""
    pack, unpack = torch._C._autograd._top_saved_tensors_default_hooks(True)
    torch._C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


def _as_eager(
    root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], given: Given | None, why: Unusual
) -> Traced | None:
    """The trace of a model that goes another way where it is told that it is exported, and fails there."""
    if why.__cause__ is None:
        return None
    try:
        return trace(skeleton(root), args, kwargs, given, exporting=False)
    except (Unusual, _core.UnsupportedError):
        return None


def _export(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.export.ExportedProgram:
    if carries(pytree.tree_structure((args, kwargs))):
        return torch.export.export(_carry(module), args, kwargs, strict=False)
    try:
        return torch.export.export(module, args, kwargs, strict=False)
    except RuntimeError as e:
        if "not a known type" not in str(e):
            raise
        return torch.export.export(_carry(module), args, kwargs, strict=False)


def _carry(module: torch.nn.Module) -> torch.nn.Module:
    """Makes a module take and return carriers instead of objects that PyTorch does not know."""
    forward = module.forward

    @functools.wraps(forward)
    def carried(*args: Any, **kwargs: Any) -> Any:
        return called(lambda both: forward(*both[0], **both[1]), (args, kwargs))

    module.__dict__["forward"] = carried
    return module


def _is_own(e: Exception) -> bool:
    """Whether the model raised the exception, not PyTorch."""
    frames = traceback.extract_tb(e.__traceback__)
    return not frames or not frames[-1].filename.startswith((*LIBRARY, "<"))


def _shown(x: Any) -> str:
    """An argument as a user writes it, tensors by type and shape."""
    if isinstance(x, torch.Tensor):
        return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
    if type(x) in (tuple, list):
        inner = ", ".join(map(_shown, x))
        return f"[{inner}]" if isinstance(x, list) else f"({inner},)" if len(x) == 1 else f"({inner})"
    if type(x) is dict:
        return "{" + ", ".join(f"{k!r}: {_shown(v)}" for k, v in x.items()) + "}"
    return repr(x)[:40]


def _advice(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """For arguments that SOL is given in a form that other functions take."""
    if not any(isinstance(t, torch.Tensor) for t in pytree.tree_leaves((args, kwargs))):
        return "; give it tensors, or sol.input([..]) for their shapes"
    if len(args) == 1 and not kwargs and type(args[0]) in (tuple, list, dict):
        stars = "**" if isinstance(args[0], dict) else "*"
        return f"; give the arguments as in a call of the model: {stars}args in place of args"
    return ""


def _misfit(e: Exception, module: torch.nn.Module, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """PyTorch's message, with the layer and line of the model, and the arguments of the model."""
    names = {id(m): n for n, m in module.named_modules()}
    path, at = "", e.__traceback__
    while at is not None:
        path, at = names.get(id(at.tb_frame.f_locals.get("self")), path), at.tb_next
    line = next((f"{os.path.basename(f.filename)}:{f.lineno}" for f in users(e)), "")
    where = ", ".join(filter(None, (path, line)))
    what = ", ".join([*map(_shown, args), *(f"{k}={_shown(v)}" for k, v in kwargs.items())])
    first = next((text for text in str(e).strip().split("\n") if text.strip()), type(e).__name__)
    first = first.removesuffix(", but expected one of:").replace("FakeTensor", "Tensor")
    advice = _advice(args, kwargs)
    return f"{name}: the model does not take ({what}){f': {where}' if where else ''}: {first}{advice}"


_DATA_DEPENDENT = frozenset(
    "GuardOnDataDependentSymNode DataDependentOutputException DynamicOutputShapeException PendingUnbackedSymbolNotFound".split()
)


def _fails_in_func(e: Exception) -> bool:
    """Whether tensors without data lack what a transformation of torch.func (jacfwd) asks of them."""
    files = {f.filename for f in traceback.extract_tb(e.__traceback__)}
    return isinstance(e, AttributeError) and not _is_own(e) and torch._functorch.eager_transforms.__file__ in files


def _untraceable(e: Exception) -> str | None:
    """One line that says why a model cannot be traced. None: the error is the model's own."""
    names = {c.__name__ for c in type(e).__mro__}
    if isinstance(e, RuntimeError) and (found := re.search("Found (.*) in output, which is not a known type", str(e))):
        return (
            f"it returns an object of {found[1]}: expected tensors, numbers, None, and tuples, lists, dicts or dataclasses "
            "of them; make the class known with torch.utils._pytree.register_pytree_node"
        )
    first = next((line for line in str(e).strip().split("\n") if line.strip()), type(e).__name__)
    if isinstance(e, SyntaxError) and (e.filename or "").startswith("<eval_with_key>"):
        return f"torch.export cannot write down {(e.text or '').split(';')[0].strip()}"
    if "received an invalid combination of arguments" in first:
        return None
    functions = first.startswith("This higher order operator doesn't work")  # torch.cond, torch.while_loop
    if functions or names & _DATA_DEPENDENT or "FakeTensor" in first:
        operator = getattr(e, "func", None) if "DynamicOutputShapeException" in names else None
        if isinstance(row := operators.find(str(operator)), operators.Rejection):
            return f"{operator}: {row.why}; use torch.compile(model, backend='sol'), which runs such an operator in PyTorch"
        return (
            f"{'control flow or ' if operator is None else f'{operator}: '}a shape that depends on data; use torch.where or a mask, "
            "or torch.compile(model, backend='sol'), which runs such a line in Python"
        )
    if (first.startswith("torch.func.") and "saved tensor hooks" in first) or _fails_in_func(e):
        return f"{FUNC}; {FUNC_INSTEAD}"
    if first.startswith("We found a fake tensor in the exported program constant's list"):
        return (
            "a tensor that no operator of the trace made, such as a gradient of torch.autograd.grad; use "
            "torch.compile(model, backend='sol'), which runs such a part in PyTorch"
        )
    if first.startswith(".numpy() is not supported"):
        return "a tensor becomes an array of NumPy; use PyTorch's functions instead"
    if first.startswith("Unsupported input type"):
        what = re.sub(r".*<class '(.*)'>.*", r"\1", first)
        return f"an argument of {what}: expected tensors, numbers, strings, None, and tuples, lists or dicts of them"
    if names & {
        "TorchDynamoException",
        "InternalTorchDynamoError",
        "UnsupportedFakeTensorException",
        "UnsupportedOperatorException",
    }:
        return first
    if "torch._export" in type(e).__module__ or "torch.export" in type(e).__module__ or "dynamo" in type(e).__module__:
        return first
    return None
