"""Comparing with PyTorch: errors against float64, and running the translated graph with the interpreter."""

import copy
from unittest import mock

import sol
import torch
import torch.nn.functional as F
from sol.pytorch.arguments import dense
from sol.pytorch.export import export
from sol.pytorch.module import owned_tensors
from sol.pytorch.translate import Translator
from sol.pytorch.values import Given
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

TIMES, PLUS = 2, 1e-6  # an error may be this many times PyTorch's, plus this; relative L2 against float64
TIMES_WINOGRAD = 4
DOUBLES = 1e-10  # relative error in float64
DRAWS = 24  # of Rounded, at most


def tensors(tree):
    return [v for v in pytree.tree_leaves(tree) if isinstance(v, torch.Tensor)]


DOUBLE = {torch.float32: torch.float64, torch.complex64: torch.complex128}


def to_double(tree):
    return pytree.tree_map(lambda v: v.to(DOUBLE.get(v.dtype, v.dtype)) if isinstance(v, torch.Tensor) else v, tree)


def error(got, exact):
    """Relative L2 error of finite values; other values must be equal. For integers, the largest difference."""
    got, exact = got.detach(), exact.detach()
    assert got.shape == exact.shape, f"shape {tuple(got.shape)}, expected {tuple(exact.shape)}"
    if exact.is_complex():
        return error(*(torch.view_as_real(t.resolve_conj()) for t in (got, exact)))
    if not exact.is_floating_point():
        return float((got.double() - exact.double()).abs().max()) if got.numel() else 0.0
    got, exact = got.double(), exact.double()
    assert torch.equal(torch.isnan(got), torch.isnan(exact)), "NaN at other places"
    finite = torch.isfinite(exact) & torch.isfinite(got)
    assert torch.equal(got[~finite & ~torch.isnan(exact)].sign(), exact[~finite & ~torch.isnan(exact)].sign())
    got, exact = got[finite], exact[finite]
    norm = exact.norm().item()
    return ((got - exact).norm() / (norm or 1.0)).item() if got.numel() else 0.0


def assert_as_good(got, eager, exact, times=TIMES, plus=PLUS, draw=None):
    """Checks that every tensor of `got` is as near to `exact` (float64) as PyTorch's float32, within `times` and `plus`. Where that
    fails, it may be as far away as one of several results of `draw`, which computes with `Rounded`, whose errors are `times` those of
    float32, within `plus`: PyTorch's error is that of one way to compute."""
    got, eager, exact = tensors(got), tensors(eager), tensors(exact)
    assert len(got) == len(eager) == len(exact)
    ours, theirs = [error(g, x) for g, x in zip(got, exact, strict=True)], []
    for i, (g, e, x) in enumerate(zip(got, eager, exact, strict=True)):
        assert g.dtype == e.dtype, f"result {i}: {g.dtype}, expected {e.dtype}"
        theirs.append(error(e, x))
    limits = [times * t + plus for t in theirs]
    for seed in range(DRAWS if draw else 0):
        if not any(our > limit for our, limit in zip(ours, limits, strict=True)):
            break
        drawn = [error(d, x) for d, x in zip(tensors(draw(Rounded(seed, times))), exact, strict=True)]
        limits = [max(limit, d + plus) for limit, d in zip(limits, drawn, strict=True)]
    for i, (our, limit) in enumerate(zip(ours, limits, strict=True)):
        assert our <= limit, f"result {i}: error {our:.3g}, PyTorch's is {theirs[i]:.3g}, allowed {limit:.3g}"


class Rounded(TorchDispatchMode):
    """Operators of float64 whose results are rounded to fewer bits, up or down by chance (Monte Carlo arithmetic, Parker 1997): as many as
    float32 has, for errors that are `times` as large (a power of two). How far a result moves estimates what rounding does to it: it is
    ill-conditioned, or a ReLU is at its kink."""

    def __init__(self, seed, times=1):
        super().__init__()
        self.chance, self.ulp = torch.Generator().manual_seed(seed), times << 29  # float32 lacks the last 29 bits

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if not any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns):  # views
            for t in tensors(made):
                self._move(t, 0, self.ulp, -self.ulp)
        return made

    def near(self, model):
        """A copy of a model in float64 with parameters that round to the same: what rounding the terms of a sum does."""
        copied = copy.deepcopy(model)
        with torch.no_grad():
            for t in (*copied.parameters(), *copied.buffers()):
                self._move(t.data, -self.ulp // 2, self.ulp // 2, -1)
        return copied

    def _move(self, t, low, high, mask):
        """Adds random numbers to the bits of float64."""
        if t.dtype == torch.float64 and t.numel():
            bits = (t.view(torch.int64) + torch.randint(low, high, t.shape, generator=self.chance)) & mask
            moves = (t != 0) & (t.abs() < torch.finfo(torch.float32).max)
            t.copy_(torch.where(moves, bits.view(torch.float64), t))


def contiguous_gradient(*args, batch_norm=F.batch_norm, **kwargs):
    """F.batch_norm, without a fault of PyTorch 2.13 on CPUs in eval mode: the gradients of weight and bias are wrong if x is
    contiguous and the gradient is channels-last, as at batch 1 behind a permutation."""
    y = batch_norm(*args, **kwargs)
    if y.requires_grad:
        y.register_hook(torch.Tensor.contiguous)
    return y


def in_double(call):
    """Calls in double precision: tensors that a float64 model creates itself are float64, even with .float()."""
    try:
        return call()
    except RuntimeError:
        torch.set_default_dtype(torch.float64)
        try:
            with mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
                return call()
        finally:
            torch.set_default_dtype(torch.float32)


def exactly(model, args, kwargs=None):
    """The model's result in float64."""
    double, args, kwargs = copy.deepcopy(model).double(), to_double(args), to_double(kwargs or {})
    with torch.no_grad():
        return in_double(lambda: double(*args, **kwargs))


def check(optimized, model, args, kwargs=None, times=TIMES):
    """Compares an optimized model with the original and with float64, including strides."""
    kwargs = kwargs or {}
    with torch.no_grad():
        got, eager = optimized(*args, **kwargs), model(*args, **kwargs)
    assert_as_good(got, eager, exactly(model, args, kwargs), times)
    for g, e in zip(tensors(got), tensors(eager), strict=True):
        assert g.stride() == e.stride()
    return got


def double(model):
    return copy.deepcopy(model)._apply(lambda t: t.to(DOUBLE.get(t.dtype, t.dtype)))


def check_with_gradients(model, *inputs):
    """Results and gradients in float64 equal PyTorch's."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        model = double(model).train()
        given = [[t.to(DOUBLE[t.dtype]).requires_grad_() for t in inputs] for _ in range(2)]
        optimized = sol.optimize(model, *given[0])
        results, gradients = [], []
        for m, args in zip((optimized, model), given, strict=True):
            made = pytree.tree_leaves(m(*args))
            results.append([t.detach() for t in made])
            torch.manual_seed(0)
            wanted, made = [*args, *m.parameters()], [t for t in made if t.requires_grad]
            gradients.append(torch.autograd.grad(made, wanted, [torch.randn_like(t) for t in made], allow_unused=True))
    finally:
        torch.set_default_dtype(before)
    for got, expected in (*zip(*results, strict=True), *zip(*gradients, strict=True)):
        assert (got is None) == (expected is None)
        if got is not None:
            assert got.dtype == expected.dtype and error(got, expected) < DOUBLES


def _physical(t, layout):
    return _as_real(t.detach().permute(layout.order).contiguous()).numpy()


def _as_real(t):
    return torch.view_as_real(t.resolve_conj()) if t.is_complex() else t


def interpret(model, args):
    """The network's outputs from the interpreter on the translated graph, by number of the returned leaf."""
    leaves = list(args)
    traced = export(model, tuple(args), {}, given=Given(args, {}))
    owned = {n: dense(o.tensor) for n, o in owned_tensors(model).items()}
    t = Translator(traced, type(model).__name__, leaves, owned, frozenset()).run()
    given = [*leaves, torch.tensor(7)]  # the seed is the last input
    inputs = tuple(_physical(given[i.leaf], i.layout) for i in t.inputs)
    params = tuple(_physical(owned[p.name] if p.constant is None else p.constant, p.layout) for p in t.params)
    outputs = [torch.zeros(layout.physical, dtype=dtype) for layout, dtype in t.outputs]
    t.graph.interpret(inputs, params, tuple(_as_real(o).numpy() for o in outputs))
    shaped = [o.permute(layout.inverse).expand(layout.shape) for o, (layout, _) in zip(outputs, t.outputs, strict=True)]
    return {k: shaped[r.value] for k, r in enumerate(t.results) if r.kind == "output"}


__all__ = [
    "Rounded",
    "assert_as_good",
    "check",
    "check_with_gradients",
    "contiguous_gradient",
    "error",
    "exactly",
    "in_double",
    "interpret",
    "tensors",
    "to_double",
]
