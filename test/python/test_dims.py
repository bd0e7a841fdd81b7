"""Sizes that vary between calls: what sol.dims finds, vdims, sol.dim, and programs of several sizes from one trace."""

import concurrent.futures
import copy
import functools
import gc
import itertools
import logging
import math
import re
import warnings
import weakref
from unittest import mock

import networks
import pytest
import sol
import torch
from sol import forms
from sol.pytorch import module as module_file
from sol.pytorch import symbols as symbols_file
from sol.pytorch import vary
from sol.pytorch.export import export
from sol.pytorch.module import owned_tensors
from sol.pytorch.same import same
from sol.pytorch.symbols import Symbols
from sol.pytorch.translate import Translator
from sol.pytorch.wording import is_apart
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch_help import assert_as_good, error

slow = pytest.mark.slow


@pytest.fixture(autouse=True)
def quick():
    """No tuning; every network of this file is compiled at several sizes."""
    before = sol.config["autotune"]
    sol.config["autotune"] = "off"
    yield
    sol.config["autotune"] = before


class Apply(nn.Module):
    def __init__(self, function, *parts):
        super().__init__()
        self.function = function
        self.parts = nn.ModuleList(parts)
        self.eval()

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


def kept_trace(model, args, free=None):
    """A symbolic trace in which all dimensions are free, or those with these numbers."""
    leaves = pytree.tree_leaves(args)
    free = {
        (i, d): sol.inputs.ANY
        for i, t in enumerate(leaves)
        if isinstance(t, torch.Tensor)
        for d in range(t.ndim)
        if free is None or d in free
    }
    symbols = Symbols(free)
    with torch.no_grad():
        return vary.Kept(export(model, args, {}, False, None, symbols), symbols, {})


def translated(traced, model, args):
    tensors = {n: o.tensor for n, o in owned_tensors(model).items()}
    return Translator(traced, "", pytree.tree_leaves(args), tensors, frozenset()).run().graph


def check_varying(kept, model, args, others):
    """The graph with sizes that vary, at those of other arguments, is the graph for these."""
    traced = kept.varying(
        dict.fromkeys(kept.settled.places, sol.inputs.ANY), pytree.tree_leaves(args), kept.limits[1]
    ).traced
    tensors = {n: o.tensor for n, o in owned_tensors(model).items()}
    for other in others:
        leaves = pytree.tree_leaves(other)
        graph = Translator(traced, "", leaves, tensors, frozenset()).run().graph
        values = kept.values(leaves)
        got, expected = graph.at(tuple(values[s] for s in traced.vary)), translated(kept.at(values), model, other)
        assert same(got, expected), f"{got}\n{expected}"


def check_sizes(model, args, others, free=None):
    """The symbolic trace, at the sizes of other arguments, is what a trace of these arguments is."""
    kept = kept_trace(model, args, free)
    for other in others:
        leaves = pytree.tree_leaves(other)
        values = kept.values(leaves)
        assert values is not None, f"{[tuple(t.shape) for t in leaves]} does not fit: {kept.settled}"
        got = translated(kept.at(values), model, other)
        with torch.no_grad():
            expected = translated(export(model, other, {}), model, other)
        assert same(got, expected), f"{got}\n{expected}"
    return kept


# -- one trace serves all sizes

NETWORKS = "linear logistic unet bert gpt gpt_rotary lstm lstm_both gru transformer".split()


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name):
    model, inputs = networks.network(name, None)
    assert check_sizes(model, inputs(2), [inputs(3), inputs(7)]).settled.dims


LARGE = {
    "resnet18": None, "mobilenet_v2": None, "vgg11": [0], "densenet121": [0], "vit_b_32": [0], "swin_t": [0], "convnext_tiny": [0],
    "efficientnet_b0": [0], "shufflenet_v2_x0_5": [0], "regnet_y_400mf": [0], "lraspp_mobilenet_v3_large": [0], "inception_v3": [0],
}  # fmt: skip


@slow
@pytest.mark.parametrize("name", LARGE)
def test_large_networks(name, torchvision):
    model, inputs = networks.network(name, torchvision)
    check_sizes(model, inputs(2), [inputs(3), inputs(5)], LARGE[name])


def test_pictures():
    model, _ = networks.network("unet", None)
    others = [(torch.randn(n, 3, h, w),) for n, h, w in ((2, 32, 64), (5, 64, 48), (3, 16, 8))]
    kept = check_sizes(model, (torch.randn(2, 3, 64, 96),), others)
    assert kept.values([torch.randn(2, 3, 66, 96)]) is None


X = torch.randn(4, 6, 10)
ODD = {
    "reshape": lambda s, x: x.reshape(-1, 10) + 1,
    "flatten": lambda s, x: x.flatten(1) * 2,
    "all flat": lambda s, x: x.view(x.size(0) * x.size(1) * x.size(2)).relu(),
    "batch and time": lambda s, x: s.parts[0](x.view(x.shape[0] * x.shape[1], 10)).view(*x.shape[:2], 5),
    "cat": lambda s, x: torch.cat([x, x[:, :2], x.new_zeros(x.shape[0], 3, 10)], 1),
    "stack": lambda s, x: torch.stack([x, x + 1], 1),
    "slices": lambda s, x: (x[:, 1:], x[:, :-1], x[:, -3:], x[:, ::2], x[1:-1]),
    "a mask": lambda s, x: x.masked_fill(torch.ones(x.shape[1], x.shape[1]).tril()[None, :, :1] == 0, 0),
    "causal": lambda s, x: (x @ x.transpose(1, 2)).masked_fill(torch.triu(torch.ones(x.shape[1], x.shape[1]), 1) > 0, -9).softmax(-1),
    "pad": lambda s, x: F.pad(x, (1, 2, 0, 3)),
    "pad to a multiple": lambda s, x: F.pad(x, (0, 0, 0, -x.shape[1] % 4)),
    "a mean": lambda s, x: x.sum(1) / x.shape[1],
    "a scale": lambda s, x: x * (x.shape[1] ** -0.5),
    "real numbers": lambda s, x: torch.add(x, x.sum(0), alpha=1 / x.size(0)) * (0.5 * x.shape[1] + 1) / max(x.shape[0], 3) ** 1.5,
    "functions of math": lambda s, x: x / math.sqrt(x.shape[1]) + math.log(x.size(0) * x.size(1)) * math.log(x.shape[1], 512) - math.exp(-x.shape[0]),
    "more of math": lambda s, x: x * math.pow(x.shape[1], 0.25) * math.cos(math.pi / x.shape[1]) + math.log1p(x.size(1)) - math.log10(x.size(1)),
    "half of a size": lambda s, x: x[:, : math.ceil(x.shape[1] / 2)],
    "positions": lambda s, x: x + torch.arange(x.shape[1])[None, :, None],
    "halves": lambda s, x: x[:, : x.shape[1] // 2],
    "pieces of 2": lambda s, x: [p.sum() for p in x.transpose(0, 2).split(5)],
    "repeat": lambda s, x: (x.repeat(1, 2, 1), x[:, :1].expand(-1, x.shape[1], -1)),
    "roll and flip": lambda s, x: x.roll(1, 1).flip(1),
    "convolution": lambda s, x: F.conv1d(x.transpose(1, 2), s.parts[0].weight[:, :, None].expand(5, 10, 3), stride=2, padding=1),
    "pool": lambda s, x: F.max_pool1d(x.transpose(1, 2), 2),
    "adaptive pool": lambda s, x: F.adaptive_avg_pool1d(x.transpose(1, 2), 1),
    "resize by a factor": lambda s, x: F.interpolate(x.transpose(1, 2), scale_factor=2),
    "resize to another": lambda s, x: F.interpolate(x.transpose(1, 2), size=x.shape[1] * 3),
    "in place": lambda s, x: [y := x * 1, y[:, 1:].add_(1), y[:, : y.shape[1] // 2].mul_(2)][0],
    "gather": lambda s, x: x.gather(1, x.argsort(1)),
    "einsum": lambda s, x: torch.einsum("btc,bsc->bts", x, x),
    "outer": lambda s, x: x.unsqueeze(2) - x.unsqueeze(1),
    "norm": lambda s, x: F.layer_norm(x, (10,)),
    "cumsum": lambda s, x: x.cumsum(1),
    "like": lambda s, x: x + torch.zeros_like(x) + torch.ones(x.shape[0], 1, 1),
    "decomposed": lambda s, x: torch.special.xlog1py(x.abs(), x.abs()) + F.pairwise_distance(x, x + 1).unsqueeze(-1),
    "numbers": lambda s, x: (x + 1, x.shape[1], x.numel(), x.shape[1] // 2 + 1),
    "windows": lambda s, x: x.unfold(1, 3, 1),
    "permuted result": lambda s, x: (x.permute(2, 0, 1), x.transpose(1, 2).contiguous()),
    "complex": lambda s, x: torch.view_as_real(torch.view_as_complex(x.view(*x.shape[:2], 5, 2)) * 1j),
}  # fmt: skip


def odd(name):
    torch.manual_seed(0)
    return Apply(ODD[name], nn.Linear(10, 5))


@pytest.mark.parametrize("name", ODD)
def test_odd(name):
    others = [(torch.randn(b, t, 10),) for b, t in ((3, 6), (5, 7), (4, 12), (9, 9))]
    kept = check_sizes(odd(name), (X,), others, [0, 1])
    assert [str(d) for d in kept.settled.dims] == list(map(str, kept.settled.dims))


# -- one program for all sizes


def programs(s):
    found = list(s._sol.programs.values())
    assert all(p.pending is None for p in found)
    return [p.varying is not None for p in found]


@pytest.mark.parametrize("name", NETWORKS)
def test_one_program(name):
    """Also for a batch of one, which the trace with symbols does not cover."""
    model, inputs = networks.network(name, None)
    s = sol.optimize(copy.deepcopy(model), *inputs(2), vdims=True)
    check_calls(s, model, [inputs(n) for n in (2, 5, 1, 3)])
    assert programs(s) == [True]


def test_one_program_for_training_a_tail_batch_of_one():
    """Also where a factor follows from the batch, as in the variance that a batch norm keeps."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(2), nn.AdaptiveAvgPool1d(1)
    )
    s = sol.optimize(copy.deepcopy(model), torch.randn(4, 3, 8, 8), vdims=True)
    for n in (4, 7, 1):
        x = torch.randn(n, 3, 8, 8)
        for m in (s, model):
            m.zero_grad()
            m(x).square().sum().backward()
        for a, b in zip(
            [*s.buffers(), *(p.grad for p in s.parameters())],
            [*model.buffers(), *(p.grad for p in model.parameters())],
            strict=True,
        ):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert programs(s) == [True]


REALS = ("a mean", "a scale", "real numbers", "functions of math", "more of math")
MORE = ("cat", "slices", "windows", *REALS)  # sizes of one or two get programs of their own


@pytest.mark.parametrize("name", ODD)
def test_one_program_for_odd_ones(name):
    s = sol.optimize(odd(name), X, vdims=[True, True])
    model = odd(name)
    calls = [(torch.randn(b, t, 10),) for b, t in ((4, 6), (3, 6), (5, 7), (4, 12), (9, 9))]
    check_calls(s, model, calls)
    assert programs(s) == [True]
    check_calls(s, model, [(torch.randn(b, 7, 10),) for b in (1,)])
    assert name in MORE or programs(s) == [True]


@pytest.mark.parametrize("name", ODD)
def test_graphs_that_vary(name):
    """The graph with sizes that vary, at numbers, is the graph for these numbers."""
    if name in REALS:
        pytest.skip("not a graph with sizes that vary, or one that computes a number from a size")
    model = odd(name)
    check_varying(
        kept_trace(model, (X,), [0, 1]), model, (X,), [(torch.randn(b, t, 10),) for b, t in ((5, 7), (4, 12), (9, 9))]
    )


def windows(s, x, grid):
    """Sums within windows of 4 pixels behind a convolution with stride 2, or over a grid of 4 pixels."""
    y = F.conv2d(x, torch.ones(2, 3, 3, 3, dtype=x.dtype), stride=2, padding=1)
    b, c, h, w = y.shape
    if grid:
        y = y.view(b, c, 4, h // 4, 4, w // 4).permute(0, 3, 5, 2, 4, 1)
    else:
        y = y.view(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1)
    shape = y.shape
    y = y.reshape(-1, 16, c).cumsum(1).view(shape)
    y = y.permute(0, 5, 3, 1, 4, 2) if grid else y.permute(0, 5, 1, 3, 2, 4)
    return y.reshape(b, c, h, w)


@pytest.mark.parametrize("grid", (False, True))
def test_windows_behind_a_stride(grid):
    """Of heights 8k and 8k - 1 make whole windows. One program takes the former, and the latter are compiled each."""
    model = Apply(functools.partial(windows, grid=grid))
    s = sol.optimize(copy.deepcopy(model), torch.randn(2, 3, 64, 96), vdims=True)
    check_calls(s, model, [(torch.randn(2, 3, h, w),) for h, w in ((64, 96), (16, 64), (104, 32))])
    assert programs(s) == [True]
    check_calls(s, model, [(torch.randn(3, 3, 23, 40),)])
    assert programs(s) == [True, False]
    rule = r"\(#1 \+ 1\) % 8 <= 1 does not hold for #1 = 22 \(dimension 2 of args\); multiples of 8 fit: .*\(test_dims.py:\d+\)"
    with pytest.raises(sol.InvalidError, match=rule):
        s(torch.randn(3, 3, 22, 40))


@pytest.mark.parametrize("mode", ("bilinear", "bicubic"))
def test_antialiased_resize(mode):
    """Wider filters whose number of taps follows from the sizes, smaller, larger and equal, forward and backward."""
    model = Apply(lambda s, x, y: F.interpolate(x, size=y.shape[-2:], mode=mode, antialias=True))
    sizes = (((2, 3, 24, 36), (15, 20)), ((2, 3, 24, 36), (30, 20)), ((3, 2, 17, 13), (17, 5)), ((1, 3, 100, 9), (7, 91)),
             ((1, 1, 5, 5), (1, 1)), ((2, 3, 20, 20), (20, 20)))  # fmt: skip
    calls = [(torch.randn(*s), torch.randn(1, *t)) for s, t in sizes]
    s = sol.optimize(copy.deepcopy(model), *calls[0], vdims=True)
    check_calls(s, model, calls)
    assert programs(s) == [True]
    for x, y in calls[:4]:

        def gradient(f, x=x, y=y, dtype=torch.float32):
            x = x.detach().to(dtype).requires_grad_()
            f(x, y).square().sum().backward()
            return x.grad

        assert_as_good(gradient(s), gradient(model), gradient(model, dtype=torch.float64))
    assert programs(s) == [True, True]


def test_threads():
    model, _ = networks.network("gpt", None)
    s = sol.optimize(copy.deepcopy(model), ids(2, 8), vdims=True)
    calls = [ids(b, t) for b, t in ((2, 8), (3, 20), (5, 4), (2, 40))]
    with torch.no_grad():
        expected = [model(x) for x in calls]

    def run(k):
        with torch.no_grad():
            return [error(s(calls[(k + i) % 4]), expected[(k + i) % 4]) for i in range(20)]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert max(e for errors in pool.map(run, range(4)) for e in errors) < 1e-5
    assert programs(s) == [True]


def test_views_and_numbers_of_a_call():
    model = Apply(
        lambda s, x: (x[:, 1:], x.t()[0].expand(3, -1), x.shape[0], x + 1, (x * 2)[:, None].expand(-1, 2, -1))
    )
    s = sol.optimize(copy.deepcopy(model), torch.randn(4, 6), vdims=True)
    for n, t in ((4, 6), (5, 3), (7, 9)):
        x = torch.randn(n, t)
        for got, expected in zip(s(x), model(x), strict=True):
            assert torch.equal(torch.as_tensor(got), torch.as_tensor(expected))
        assert s(x)[0].data_ptr() == x[:, 1:].data_ptr()
        assert s(x)[4].stride() == model(x)[4].stride()
    assert programs(s) == [True]


def test_memory_layouts():
    """Channels-last pictures have a program of their own, for all sizes."""
    model, _ = networks.network("unet", None)
    s = sol.optimize(copy.deepcopy(model), torch.randn(2, 3, 16, 24), vdims=True)
    last = torch.channels_last
    check_calls(
        s,
        model,
        [(torch.randn(n, 3, 8 * n, 16).to(memory_format=f),) for n in (2, 3) for f in (last, torch.contiguous_format)],
    )
    assert programs(s) == [True, True]


@pytest.mark.parametrize("training", [False, True])
def test_nothing_of_a_released_model_is_kept(training):
    """PyTorch keeps the ShapeEnv of each trace with symbols, whether it succeeds or not."""

    def used(model, x, **how):
        s = sol.optimize(model, x, **how)
        for n in (x.shape[0], 3):
            s(x[:n]).sum().backward() if training else s(x[:n])
        made = (s, *s._sol.programs.values(), s.parts[0].weight.untyped_storage())
        return [weakref.ref(r) for r in made]

    for function, how in (
        (lambda s, x: s.parts[0](x), {"vdims": True}),
        (lambda s, x: s.parts[0](x) * (2 if x.sum() > 0 else 3), {"vdims": True}),
    ):
        left = used(Apply(function, nn.Linear(10, 10)), X.clone().requires_grad_(training), **how)
        gc.collect()
        assert len(left) >= 3 and [r for r in left if r() is not None] == []


def test_many_sizes():
    """What a caller knows of sizes stays small."""
    s = sol.optimize(nn.Linear(4, 3).eval(), torch.randn(2, 4), vdims=True)
    with torch.no_grad():
        for n in range(2, 5000, 3):
            assert s(torch.zeros(n, 4)).shape == (n, 3)
    assert programs(s) == [True]


def test_what_cannot_vary_is_said():
    lines = []
    sol._core.set_log(lambda level, line: lines.append(line))
    try:
        model = Apply(lambda s, x: torch.fft.rfft(x, dim=1).abs())
        s = sol.optimize(copy.deepcopy(model), X, vdims=True)
        check_calls(s, model, [(torch.randn(b, t, n),) for b, t, n in ((4, 6, 10), (3, 6, 7), (5, 6, 12))])
        assert programs(s) == [True]
        check_calls(s, model, [(torch.randn(b, 9, n),) for b, n in ((4, 10), (3, 7))])
        assert programs(s) == [True, True]
    finally:
        sol._core.set_log(None)
    found = [line for line in lines if "each new size" in line]
    assert len(found) == 1 and "each new size of #1 is compiled" in found[0] and "aten._fft_r2c.default" in found[0]


def test_a_call_below_the_least_size_of_another_trace():
    """A batch of 1 has a trace, which holds from 4 steps on; a call with 2 steps and one query has its own, and the others stay general."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(3, 3, 4, 2, 1)

        def forward(self, x, y):
            z = self.conv(x)
            return z.softmax(-1) @ z.transpose(1, 2) @ y

    model = Model().eval()
    optimized = sol.optimize(copy.deepcopy(model), torch.randn(3, 3, 12), torch.randn(3, 3, 5), vdims=True)
    lines = []
    sol._core.set_log(lambda level, line: lines.append(line))
    try:
        rows = ((1, 12, 5), (2, 2, 1), (4, 33, 9), (2, 40, 24))
        check_calls(optimized, model, [(torch.randn(b, 3, t), torch.randn(b, 3, n)) for b, t, n in rows])
    finally:
        sol._core.set_log(None)
    assert not [line for line in lines if "is compiled" in line]
    assert programs(optimized) == [True, True]


def test_forms():
    g = sol._core.Graph("g")
    a, b = (forms.size(g.dim(n, 8, 2, 64, 1)) for n in ("a", "b"))
    assert repr(2 * a + 1) == "2*#0+1" and a - a == 0 and a + b == b + a and 3 * a // 3 == a and a % 1 == 0
    assert a >= 2 and not a < 2 and a > 1 and bool(a) and a <= 64 and a < 65 and a != b and a != 5
    assert forms.hint(a * b) == 64 and forms.at((a, [a + b], 3), (5, 6)) == (5, [11], 3)
    assert forms.indices(1, None, None, a) == (1, a, 1) and forms.indices(-1, 1 << 62, 1, a) == (a - 1, a, 1)
    assert forms.indices(None, 3, 2, 10) == (0, 3, 2)
    for wrong in (lambda: a < 10, lambda: range(a), lambda: float(a), lambda: [0] * a, lambda: a <= b):
        with pytest.raises(forms.Varies, match="#0"):
            wrong()


def test_same():
    def graph(*lines):
        return sol._core.parse("\n".join(("graph", 'input %0:f32[1 3 3] "x"', *lines)))

    plain = graph("%1:f32[1 3 3] = relu(%0)", "output %1")
    moved = graph(
        "%1:f32[3 1 3] = Permute(%0) perm=[1,0,2]",
        "%2:f32[1 3 3] = Reshape(%1) shape=[1,3,3]",
        "%3:f32[1 3 3] = relu(%2)",
        "output %3",
    )
    turned = graph("%1:f32[1 3 3] = Permute(%0) perm=[0,2,1]", "%2:f32[1 3 3] = relu(%1)", "output %2")
    other = graph("%1:f32[1 3 3] = sigmoid(%0)", "output %1")
    assert same(plain, moved) and not same(plain, turned) and not same(plain, other)
    computed = graph(
        "%1:f64[1] = Sizes() sizes=[4] to=f64",
        "%2:f64[] = Reshape(%1) shape=[]",
        "const %3:f64[] = 3",
        "%4:f64[] = div(%2, %3)",
        "%5:f32[] = Cast(%4) to=f32",
        "%6:f32[1 3 3] = mul(%0, %5)",
        "output %6",
    )
    given, third = (
        graph(f"const %1:f32[] = {n}", "%2:f32[1 3 3] = mul(%0, %1)", "output %2") for n in (1.33333337, 1.33333349)
    )
    assert same(computed, given) and not same(computed, third) and not same(given, third)


# -- the report


def test_report():
    model, inputs = networks.network("bert", None)
    report = sol.dims(model, *inputs(2))
    assert str(report) == (
        "Inputs:  in_0 [#0, #1], in_1 [#0, #1]\n"
        'Outputs: out_0 {"last": [#0, #1, 128], "pooled": [#0, 128]}\n'
        "#0 = 2, 1..: dimension 0 of ids, dimension 0 of mask\n"
        "#1 = 24, 1..64: dimension 1 of ids, dimension 1 of mask"
    )
    assert [(d.name, d.size, d.min, d.max, d.multiple) for d in report.dims] == [
        ("#0", 2, 1, None, 1),
        ("#1", 24, 1, 64, 1),
    ]


def test_report_of_pictures():
    report = sol.dims(networks.network("unet", None)[0], torch.randn(1, 3, 64, 96))
    assert report.inputs == ["in_0 [#0, 3, #1, #2]"] and report.outputs == ["out_0 [#0, 2, #1, #2]"]
    assert [(d.size, d.multiple) for d in report.dims] == [(2, 1), (64, 4), (96, 4)]
    assert re.fullmatch(r"dimension 1 of x is fixed: Conv2d a\.0 needs 3 \(networks\.py:\d+\)", report.fixed[0])
    assert len(report.fixed) == 1 and not report.rules


def test_report_of_quotients():
    """Brackets only where Python needs them."""
    model = nn.Sequential(nn.Conv1d(3, 4, 3, 8), nn.Conv1d(4, 4, 2, 2))
    report = sol.dims(model, torch.randn(2, 3, 33))
    assert report.outputs == ["out_0 [#0, 4, ((#1 - 3)//8 - 1)//2 + 1]"]


def test_group_norm_puts_no_rules_on_sizes():
    """PyTorch reshapes its operand in between, which would exclude maps that are one pixel wide."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.GroupNorm(8, 8, affine=False))
    x = torch.randn(2, 3, 16, 24)
    assert not sol.dims(model.eval(), x).rules
    s = sol.optimize(model, x, vdims=True)
    for shape in ((3, 3, 9, 13), (2, 3, 9, 2)):
        x = torch.randn(shape)
        with torch.no_grad():
            torch.testing.assert_close(s(x), model(x), rtol=1e-5, atol=1e-5)
    assert len(s._sol.programs) == 1


def test_report_of_rules():
    """Comparisons have no negative terms, and of several limits of a sum the closest is shown."""

    class Model(nn.Module):
        def forward(self, x, y):
            joined = torch.cat([x, y], 1)
            torch._check(joined.shape[1] >= 14)
            return (
                joined[:, -13:] * math.ceil(2 * x.shape[1] / 8)
                if x.shape[1] != 8 and x.shape[1] > y.shape[1] - 3
                else joined
            )

    report = sol.dims(Model(), torch.randn(2, 9), torch.randn(2, 10))
    rules = [rule.partition(": ")[0] for rule in report.rules]
    assert rules == ["#1 + #2 >= 14", "#1 != 8", "#1 + 3 > #2"]


def test_report_of_a_classifier():
    """The flattened picture decides about its size."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 5)).eval()
    report = sol.dims(model, torch.randn(2, 3, 8, 8))
    assert report.inputs[0].startswith("in_0 [#0, 3, ")
    assert any("Linear 2 needs 144" in text or "Linear 2" in text for text in (*report.fixed, *report.rules))


def test_rules_that_divide_by_zero():
    """At sizes below 4 Python cannot compute `%`: the rule does not hold there, and the report is made."""
    model = Apply(lambda s, x: x * 2 if x.shape[0] % (x.shape[1] // 4) == 0 else x * 3)
    report = sol.dims(model, X)
    assert any(rule.startswith("#0 % (#1//4) == 0: ") for rule in report.rules)
    s = sol.optimize(copy.deepcopy(model), X, vdims=True)
    check_calls(s, model, [(torch.randn(n, m, 10),) for n, m in ((4, 6), (6, 8), (5, 9))])
    with pytest.raises(ZeroDivisionError):
        s(torch.randn(4, 3, 10))


def stages(s, x):
    """Windows of 4 pixels behind a stride of 4, and again behind one of 2."""
    for size, stride in ((4, 4), (3, 2)):
        y = F.conv2d(x, torch.ones(3, 3, size, size), stride=stride, padding=stride % 4 // 2)
        b, c, h, w = y.shape
        y = y.view(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1)
        y = y.reshape(-1, 16, c).softmax(1).view(y.shape)
        x = y.permute(0, 5, 1, 3, 2, 4).reshape(b, c, h, w)
    return x


@pytest.mark.parametrize(
    "function, text",
    [
        (functools.partial(windows, grid=False), "(# + 1) % 8 <= 1"),
        (functools.partial(windows, grid=True), "(# + 1) % 8 <= 1"),
        (stages, "# % 32 <= 3"),
    ],
)
def test_rules_that_follow_from_others_are_not_listed(function, text):
    """Views of windows ask about 50 questions; all of them follow from what the remainder of a height and of a width must be."""
    model = Apply(function)
    x = torch.randn(2, 3, 64, 96)
    rules = sol.dims(model, x).rules
    words = [rule.partition(": ")[0] for rule in rules]
    remainders = [w for w in words if "%" in w]
    assert remainders == [text.replace("#", "#1"), text.replace("#", "#2")]
    assert all(re.fullmatch(r"#[12] >= \d+", w) for w in words if w not in remainders) and len(words) <= 4
    assert all(re.search(r"\(test_dims\.py:\d+\)$", rule) for rule in rules)
    kept = kept_trace(model, (x,))
    apart = [rule for rule, _ in kept.settled.rules if is_apart(rule)]
    low = [kept.settled.bounds[d][0] for d in kept.settled.dims]
    tried = (2, 5), range(low[1], 140, 3), range(low[2], 140)
    for sizes in itertools.product(*tried):  # the list says all that the trace says
        values = dict(zip(kept.settled.dims, sizes, strict=True))
        if all(symbols_file.holds(rule, values) for rule in apart):
            assert all(row.at(values) for row in kept.listed) == kept.settled.hold(*sizes), sizes


def test_report_of_formulas():
    model = Apply(lambda s, x, *, rest: {"a": x[:, 1:], "b": [rest[0].flatten(0, 1), 3]})
    report = sol.dims(model, X, rest=[torch.randn(2, 3, 4)])
    assert report.inputs == ["in_0 [#0, #1, #2]", "rest ([#3, #4, #5])"]
    assert report.outputs == ['out_0 {"a": [#0, #1 - 1, #2], "b": ([#3*#4, #5], 3)}']


def test_report_rejects():
    with pytest.raises(sol.InvalidError, match=r"sol\.dims: expected a torch\.nn\.Module"):
        sol.dims(3, X)
    with pytest.raises(sol.UnsupportedError, match="forward reads values"):
        sol.dims(Apply(lambda s, x: x if x.sum() > 0 else -x), X)


# -- calls


def traces():
    """Counts the traces of a model."""
    return mock.patch.object(module_file, "export", wraps=module_file.export), mock.patch(
        "sol.pytorch.program.export", wraps=export
    )


def check_calls(s, model, calls):
    double = copy.deepcopy(model).double()
    with torch.no_grad():
        for args in calls:
            exact = double(*(t.double() if t.is_floating_point() else t for t in args))
            assert_as_good(s(*args), model(*args), exact)


def ids(*sizes):
    return torch.randint(1, 1000, sizes)


def test_sizes_share_a_trace():
    model, _ = networks.network("gpt", None)
    symbolic, plain = traces()
    with symbolic as found, plain as others:
        s = sol.optimize(copy.deepcopy(model), ids(2, 24), vdims=True)
        check_calls(s, model, [(ids(*n),) for n in ((2, 24), (3, 10), (5, 24), (2, 2), (7, 64))])
        assert found.call_count == 1 and others.call_count == 0
        check_calls(s, model, [(ids(1, 10),), (ids(3, 1),), (ids(1, 1),)])


def test_the_first_call_has_a_batch_of_one():
    model, _ = networks.network("lstm", None)
    s = sol.optimize(copy.deepcopy(model), torch.randn(1, 5, 20), vdims=True)
    check_calls(s, model, [(torch.randn(*n, 20),) for n in ((1, 5), (4, 9), (2, 1), (1, 1))])


def test_selection():
    model, _ = networks.network("unet", None)
    x = torch.randn(2, 3, 16, 24)
    s = sol.optimize(copy.deepcopy(model), x, vdims=[True, False, 32])
    check_calls(s, model, [(torch.randn(b, 3, 16, 32),) for b in (2, 3, 1)])
    with pytest.raises(sol.InvalidError, match=r"expected float32\[#0, 3, 16, 32\], got float32\[2, 3, 16, 24\]"):
        s(x)
    with pytest.raises(sol.InvalidError, match=r"dimension 1 of x is fixed: Conv2d a\.0 needs 3 \(networks"):
        s(torch.randn(2, 4, 16, 32))
    with pytest.raises(sol.InvalidError, match="at most 3 values"):
        sol.optimize(copy.deepcopy(model), x, vdims=[True] * 4)
    for wrong in ("all", [-1], [1.5]):
        with pytest.raises(sol.InvalidError, match="vdims: expected True, False, or a list"):
            sol.optimize(copy.deepcopy(model), x, vdims=wrong)
    s = sol.optimize(copy.deepcopy(model), x, vdims=[False])
    with pytest.raises(sol.InvalidError, match="expected float32"):
        s(torch.randn(3, 3, 16, 24))


def test_names():
    model, _ = networks.network("bert", None)
    batch, steps = sol.dim("batch"), sol.dim("steps", min=2, max=40, multiple=2, example=8)
    given = [sol.input([batch, steps], dtype=torch.int64)] * 2
    s = sol.optimize(copy.deepcopy(model), *given)
    mask = lambda b, t: torch.ones(b, t, dtype=torch.int64)  # noqa: E731
    check_calls(s, model, [(ids(b, t), mask(b, t)) for b, t in ((1, 8), (3, 20), (2, 2))])
    for b, t, text in (
        (2, 42, r"'steps' is 42, expected 2\.\.40, a multiple of 2 \(ids\)"),
        (2, 7, "'steps' is 7"),
        (0, 8, "'batch' is 0"),
    ):
        with pytest.raises(sol.InvalidError, match=text):
            s(ids(b, t), mask(b, t))
    with pytest.raises(sol.InvalidError, match=r"'batch' is 3 in mask, but 2 in ids"):
        s(ids(2, 8), mask(3, 8))
    for wrong in (
        {"min": 5, "max": 4},
        {"min": 5, "max": 7, "multiple": 4},
        {"example": 3, "multiple": 2},
    ):
        with pytest.raises(sol.InvalidError, match=r"sol\.dim"):
            sol.dim("n", **wrong)
    for wrong, text in (
        ({"multiple": 0}, "multiple is 0, expected 1 or more"),
        ({"min": -1}, "min is -1, expected 0 or more"),
    ):
        with pytest.raises(sol.InvalidError, match=rf"sol\.dim: 'n': {text}"):
            sol.dim("n", **wrong)
    with pytest.raises(sol.InvalidError, match=r"sol\.dim: name: expected text, got 3"):
        sol.dim(3)


def test_open_sizes():
    model, _ = networks.network("unet", None)
    s = sol.optimize(copy.deepcopy(model), sol.input([0, 3, 0, 0]))
    check_calls(s, model, [(torch.randn(*n),) for n in ((1, 3, 32, 16), (2, 3, 8, 8), (3, 3, 32, 16))])


def test_an_open_batch_is_traced_once_more():
    """The first size is traced and compiled as before; a second one makes the program for all others."""
    model, _ = networks.network("gpt", None)
    symbolic, plain = traces()
    with symbolic as found, plain as others:
        s = sol.optimize(copy.deepcopy(model), sol.input([0, 8], dtype=torch.int64))
        assert (found.call_count, others.call_count) == (0, 1)
        check_calls(s, model, [(ids(b, 8),) for b in (2, 3, 4, 1)])
        assert (found.call_count, others.call_count) == (1, 1)
    assert sorted(programs(s)) == [False, True]


def branch(s, x):
    return x * 2 if x.shape[1] > 6 else s.parts[0](x)


def test_a_branch_makes_a_program_of_its_own():
    model = Apply(branch, nn.Linear(10, 10))
    s = sol.optimize(copy.deepcopy(model), X, vdims=True)
    check_calls(s, model, [(torch.randn(*n, 10),) for n in ((4, 6), (4, 7), (3, 9), (2, 5), (5, 12))])
    report = sol.dims(model, X)
    assert [d.max for d in report.dims] == [None, 6]


OUTCOMES = {  # numbers that a model makes of a size; how many of the sizes below have the same program
    "half": (lambda s, x: x.new_ones(int(x.shape[0] * 0.5)), 11),
    "root": (lambda s, x: x.new_ones(int(x.shape[0] ** 0.5)), 7),
    "float": (lambda s, x: x * float(x.shape[0]), 12),
    "isqrt": (lambda s, x: x.new_ones(math.isqrt(x.shape[0])), 12),
    "gcd": (lambda s, x: x * math.gcd(x.shape[0], 4), 12),
    "range": (lambda s, x: sum(x[i] for i in range(x.shape[0])), 12),
    "string": (lambda s, x: x * {"12": 2, "13": 3}.get(str(x.shape[0]), 5), 12),
    "format": (lambda s, x: x * len(f"{x.shape[0]:>3d} of {x.shape}, {x.shape[0] * 0.5:.0f}"), 12),
    "decides": (lambda s, x: x * 2 if x.shape[0] > 12 else x * 3, 2),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_outcomes_have_programs_of_their_own(name):
    """Where a size must be a number, each outcome has a program; the log says so once; more outcomes than traces are kept are right, too."""
    model, lines = Apply(OUTCOMES[name][0]), []
    sol._core.set_log(lambda level, line: lines.append(line))
    try:
        s = sol.optimize(copy.deepcopy(model), torch.randn(12), vdims=True)
        check_calls(s, model, [(torch.randn(n),) for n in (12, 13, 14, 16, 25, 9, 5, 30, 40, 50, 61, 72, 12, 13)])
    finally:
        sol._core.set_log(None)
    said = [line for line in lines if "get a program of their own" in line]
    what = "decides by a size" if name == "decides" else "takes a size as a number"
    assert len(said) == 1 and re.search(rf"forward \(test_dims\.py:\d+\) {what}: ", said[0])
    assert len(programs(s)) == OUTCOMES[name][1]


def rows(s, x):
    """Elements at places that are sizes, also assigned and in front of other indices."""
    n, y = x.shape[1], x.clone()
    y[:, n - 1] = 0
    y[..., -n] += 1
    return (
        y,
        x[:, n // 2],
        x[..., n - 1, None],
        x[None, 0, -1 - n // 2],
        x[torch.tensor([0, 1]), n - 2],
        x[:, [0, n - 1]],
    )


FOLLOWING = {  # what PyTorch takes as a number or a truth value, but a program computes from sizes
    "comparison as an argument": lambda s, x: x.var(1, unbiased=x.shape[1] > 1),
    "comparison in arithmetic": lambda s, x: x * (x.shape[1] > 3) + (x.shape[0] == 17),
    "causal": lambda s, x: F.scaled_dot_product_attention(*[x[None, :, :4]] * 3, is_causal=x.shape[0] > 1),
    "linspace": lambda s, x: x * torch.linspace(-1, 1, x.shape[1]) + torch.linspace(0, x.shape[0], 2 * x.shape[1] + 1).sum(),
    "linspace of two": lambda s, x: x.sum() * torch.linspace(0.1, 0.7, x.shape[1] - 2, dtype=torch.float64),
    "logspace": lambda s, x: x * torch.logspace(0, 1, x.shape[1]) * torch.logspace(0.0, 2.0, x.shape[1], 2.0),
    "index": rows,
    "tensor": lambda s, x: x / torch.tensor(x.shape[1]),
    "tensor of a list": lambda s, x: (
        x.mean() * torch.tensor([x.shape[1], 3, x.shape[0]]),
        torch.as_tensor([[0.5], [x.shape[0] / 3]]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLLOWING)
def test_what_follows_from_sizes_is_no_number(name):
    model = Apply(FOLLOWING[name])
    s = sol.optimize(copy.deepcopy(model), torch.randn(3, 7), vdims=True)
    check_calls(s, model, [(torch.randn(n),) for n in ((3, 7), (4, 9), (2, 12), (5, 8), (11, 31))])
    assert programs(s) == [True]
    if name == "logspace":  # also a batch of one
        check_calls(s, model, [(torch.randn(1, 9),)])
        assert programs(s) == [True]


class Talking(nn.Module):
    def forward(self, x):
        torch._assert(x.ndim == 2, f"expected a matrix, got {x.shape}")
        logging.getLogger("talking").debug(
            f"{x.shape[0]:>4} rows of {x.size(1)}",
        )
        print("columns:", str(x.shape[1]), end="")
        return x * 2


def test_messages_limit_no_size(capsys):
    s = sol.optimize(Talking(), torch.randn(4, 6), vdims=True)
    check_calls(s, Talking(), [(torch.randn(*n),) for n in ((4, 6), (5, 6), (3, 7))])
    assert programs(s) == [True] and capsys.readouterr().out.startswith("columns: 6")


def test_a_number_of_one_size_leaves_others_free():
    model = Apply(lambda s, x: s.parts[0](x) * float(x.shape[1]), nn.Linear(10, 10))
    report = sol.dims(model, X)
    assert report.inputs == ["in_0 [#0, 6, 10]"] and re.fullmatch(
        r"dimension 1 of args is fixed: forward takes it as a number, 6 here \(test_dims\.py:\d+\)", report.fixed[0]
    )
    s = sol.optimize(copy.deepcopy(model), X, vdims=True)
    check_calls(s, model, [(torch.randn(*n, 10),) for n in ((4, 6), (3, 6), (5, 7), (2, 7), (7, 6))])
    assert programs(s) == [True, True]
    with pytest.raises(sol.InvalidError, match=r"expected float32\[#0, any, 10\]|dimension 2 of args is fixed"):
        s(torch.randn(4, 6, 9))


def test_arguments_of_a_function_have_its_names():
    s = sol.optimize(lambda a, b: a + b, torch.randn(3, 4), torch.randn(3, 4), vdims=True)
    with pytest.raises(sol.InvalidError, match="'#0' is 4 in b, but 3 in a"):
        s(torch.randn(3, 4), torch.randn(4, 4))


class Patches(nn.Module):
    """Positions of 4 patches, and words of any length beside them."""

    def __init__(self):
        super().__init__()
        self.cut, self.places, self.words = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.randn(4, 8)), nn.Linear(8, 8)

    def forward(self, picture, words):
        y = self.cut(picture).flatten(2).transpose(1, 2) + self.places
        return torch.cat([y, self.words(words)], 1).softmax(1)


def test_sizes_that_together_make_a_number():
    """Height and width must give 4 patches, so they are numbers; batch and length vary."""
    model = Patches().eval()
    call = lambda b, t, h=8, w=8: (torch.randn(b, 3, h, w), torch.randn(b, t, 8))  # noqa: E731
    s = sol.optimize(copy.deepcopy(model), *call(2, 5), vdims=True)
    check_calls(s, model, [call(2, 5), call(3, 9), call(7, 2)])
    assert programs(s) == [True]
    with pytest.raises(sol.InvalidError):  # which says nothing about programs for other sizes
        s(*call(2, 3, 16, 16))
    check_calls(s, model, [call(2, 3, 9, 11), call(4, 7, 9, 11)])
    assert programs(s) == [True, True]


def test_the_model_rejects_a_size():
    model, _ = networks.network("bert", None)
    s = sol.optimize(model, ids(2, 24), torch.ones(2, 24, dtype=torch.int64), vdims=True)
    with pytest.raises(
        sol.InvalidError,
        match=r"dimension 1 of ids is 65, expected 1\.\.64: .*networks\.py:\d+: Attempting to broadcast",
    ):
        s(ids(2, 65), torch.ones(2, 65, dtype=torch.int64))
    with pytest.raises(sol.InvalidError, match=r"'#1' is 23 in mask, but 24 in ids"):
        s(ids(2, 24), torch.ones(2, 23, dtype=torch.int64))


def test_dimensions_of_an_exported_program():
    """torch.export.Dim: any dimension, limits, and sizes that are formulas of others."""
    b, t = torch.export.Dim("b", min=1, max=9), torch.export.Dim("t", max=12)
    model = Apply(
        lambda s, x, y: (s.parts[0](x) * 2, y.unflatten(1, (2, -1)).transpose(1, 2) + x[..., :2]), nn.Linear(10, 5)
    )
    given = lambda n, m: (torch.randn(n, m, 10), torch.randn(n, 2 * m))  # noqa: E731
    exported = torch.export.export(model, given(4, 6), dynamic_shapes=[({0: b, 1: t}, {0: b, 1: 2 * t})])
    s = sol.optimize(exported)
    check_calls(s, model, [given(*n) for n in ((4, 6), (3, 9), (9, 12), (2, 3))])
    assert [p.varying is not None for p in s._sol.programs.values() if p.pending is None] == [True]
    for wrong, text in (((4, 13), "expected .*12"), ((10, 6), "expected .*9")):
        with pytest.raises(sol.InvalidError, match=text):
            s(*given(*wrong))
    with pytest.raises(sol.InvalidError, match=r"Guard failed"):
        s(torch.randn(4, 6, 10), torch.randn(4, 14))


PARTS = {  # sizes that are rounded real numbers, and those at which a form is another number than Python's
    "floor": (lambda n: math.floor(n * 0.7), ()),
    "floor of hundredths": (lambda n: math.floor(n * 0.29), (100,)),
    "ceil": (lambda n: math.ceil(n * 1.1), (100,)),
    "trunc": (lambda n: math.trunc(n / 1.4 + 0.25), ()),
    "round": (lambda n: round(n * 0.3), (15,)),
    "exact": (lambda n: math.floor(n * 0.375) + math.ceil(n / 3), ()),
}


@pytest.mark.parametrize("name", PARTS)
def test_real_numbers_rounded_to_sizes(name):
    """A size as float64 rounds it, not the fraction: 0.29 * 100 is below 29."""
    size, apart = PARTS[name]
    model = Apply(lambda s, x: x.new_ones(size(x.shape[0])))
    s = sol.optimize(copy.deepcopy(model), torch.randn(12), vdims=True)
    for n in (8, 10, 15, 20, 30, 7, 13, 100):
        assert s(torch.randn(n)).shape == (size(n),)
    assert programs(s) == [True, *[False for _ in apart]]


def test_training():
    model, inputs = networks.network("lstm", None)
    model.train()
    s = sol.optimize(copy.deepcopy(model), *inputs(4), vdims=True)
    for n, t in ((4, 12), (3, 5), (7, 9), (1, 2)):
        x = torch.randn(n, t, 20)
        for m in (model, s):
            m.zero_grad()
            sum(v.square().sum() for v in pytree.tree_leaves(m(x))).backward()
        for (name, p), q in zip(model.named_parameters(), s.parameters(), strict=True):
            assert error(q.grad, p.grad.double()) < 1e-4, name


def test_sizes_of_zero():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    s = sol.optimize(model, torch.randn(3, 4), vdims=True)
    assert s(torch.randn(0, 4)).shape == (0, 3)


def test_a_size_of_one_may_stand_for_any():
    """A mask of 1 x 1 x T x T fits any batch: a trace with a batch of 2 for it would not do."""

    def masked(s, x, mask):
        return x.unsqueeze(1).repeat(1, 3, 1, 1) + mask

    model, mask = Apply(masked), torch.randn(1, 1, 6, 10)
    s = sol.optimize(copy.deepcopy(model), X, mask, vdims=True)
    check_calls(s, model, [(torch.randn(n, 6, 10), mask) for n in (4, 5, 2)])


def test_copies_keep_their_sizes():
    model, _ = networks.network("gpt", None)
    s = copy.deepcopy(sol.optimize(model, ids(2, 8), vdims=[True]))
    check_calls(s, model, [(ids(3, 8),)])
    with pytest.raises(sol.InvalidError, match="expected"):
        s(ids(2, 9))


def test_values_that_forward_reads():
    """There is no trace for all sizes; each is traced, and the log says why."""
    model = Apply(lambda s, x: x * 2 if x.sum() > 0 else x * 3)
    lines = []
    sol._core.set_log(lambda level, line: lines.append(line))
    try:
        s = sol.optimize(copy.deepcopy(model), X.abs(), vdims=True)
    finally:
        sol._core.set_log(None)
    assert any("forward reads values" in line and "each new size is traced" in line for line in lines)
    check_calls(s, model, [(X.abs(),), (-X.abs()[:2],), (X.abs()[:, :3],)])
    with pytest.raises(sol.UnsupportedError, match=r"dimensions have no numbers: use vdims=True"):
        sol.optimize(copy.deepcopy(model), X.abs(), vdims=[True])


def test_time_limit():
    """If a trace takes too long, the batch alone varies; if that does, too, each size is traced."""
    model, _ = networks.network("gpt", None)
    made = []

    def short(free, seconds=0.0):
        made.append(len(free))
        return Symbols(free, 0.0 if len(made) == 1 else 60.0)

    with mock.patch.object(vary, "Symbols", short):
        report = sol.dims(model, ids(2, 8))
    assert made == [2, 1] and report.inputs == ["in_0 [#0, 8]"]
    assert "is fixed: tracing with 2 sizes that vary takes more than 30 s" in str(report)
    with mock.patch.object(symbols_file.Symbols, "check_time", side_effect=symbols_file.TooLong):
        with pytest.raises(sol.UnsupportedError, match=r"takes more than 30 s"):
            sol.dims(model, ids(2, 8))
        s = sol.optimize(copy.deepcopy(model), ids(2, 8), vdims=True)
    check_calls(s, model, [(ids(3, 9),)])


def test_one_operator_takes_too_long():
    """The time is looked at within an operator, too, where PyTorch asks which sizes divide which."""
    symbols = Symbols(dict.fromkeys([(0, 0), (0, 1)], sol.inputs.ANY))
    with torch._subclasses.FakeTensorMode(shape_env=symbols.env):
        x = symbols.leaf(0, torch.randn(4, 6), "x")
        symbols.env.end, symbols.env.place = 0.0, lambda: symbols_file.Cause("", "", "")
        with pytest.raises(symbols_file.TooLong):
            x.reshape(-1, 3)


def test_any_call():
    """Without arguments, vdims=True is for every call: sizes vary in each form of it."""
    model = Apply(lambda s, x, y=0: x * 2 + y)
    s = sol.optimize(copy.deepcopy(model), vdims=True)
    check_calls(s, model, [(X,), (X[:3, :4],), (X, X[0, 0]), (X[:2, 1:, :4], X[0, 0, :4])])
    assert programs(copy.deepcopy(s)) == [] and programs(s) == [True, True]
    check_calls(copy.deepcopy(s), model, [(X,), (X[:2],)])
    with pytest.raises(sol.InvalidError, match="since no call was described"):
        sol.optimize(copy.deepcopy(model), vdims=[True])


def test_a_call_that_does_not_fit_after_one_with_another_argument():
    s = sol.optimize(Apply(lambda s, x, w, y=None: x @ w + (0 if y is None else y)), vdims=True)
    s(torch.randn(3, 5), torch.randn(5, 4), torch.randn(3, 4))
    s(torch.randn(2, 5), torch.randn(5, 4))
    with pytest.raises(sol.InvalidError, match=r"does not take \(float32\[2, 6\], float32\[5, 4\]\): .*test_dims.py"):
        s(torch.randn(2, 6), torch.randn(5, 4))


def test_calls_with_other_arguments():
    model = Apply(lambda s, x, y=None, z=0: x * 2 + (0 if y is None else y) + z)
    s = sol.optimize(copy.deepcopy(model), X, X, vdims=True)
    check_calls(s, model, [(X[:3], X[:3]), (X,), (X[:3],)])
    with torch.no_grad():
        for args in ((X, None, X[:1]), (X[:3], None, X[:1]), (X[:, :4], None, X[:1, :4])):
            assert torch.equal(s(*args), model(*args))
    assert programs(s) == [True, True, True]


def test_what_cannot_be_traced_is_said():
    model, lines = Apply(lambda s, x: x * 2 if x.shape[1] ** torch.ones(()) > 1 else x), []
    sol._core.set_log(lambda level, line: lines.append(line))
    try:
        s = sol.optimize(copy.deepcopy(model), vdims=True)
        check_calls(s, model, [(torch.randn(n),) for n in ((3, 7), (4, 7), (4, 9))])
    finally:
        sol._core.set_log(None)
    said = [line for line in lines if "is traced and compiled" in line]
    assert len(said) == 1 and re.search(r"each new size of .*dimension 1 of args is traced and compiled: ", said[0])


# -- transformers


def families():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("transformers")


SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 100,
}


def test_bert_of_transformers(torchvision):
    t = families()
    model = t.BertModel(t.BertConfig(**SMALL, max_position_embeddings=48)).eval()
    word = lambda b, n: torch.randint(0, 100, (b, n))  # noqa: E731
    mask = lambda b, n: (torch.arange(n)[None] < torch.arange(n, n - b, -1)[:, None]).long()  # noqa: E731
    s = sol.optimize(copy.deepcopy(model), input_ids=word(3, 12), attention_mask=mask(3, 12), vdims=True)
    with torch.no_grad():
        for b, n in ((3, 12), (2, 20), (5, 7), (1, 9), (2, 48)):
            given = {"input_ids": word(b, n), "attention_mask": mask(b, n)}
            assert error(s(**given).last_hidden_state, model(**given).last_hidden_state) < 1e-5
    sizes = {where: (d.size, d.max) for d in s._sol.report.dims for where in d.where}
    assert sizes["dimension 1 of input_ids"] == sizes["dimension 1 of attention_mask"] == (12, 48)
    assert sizes["dimension 0 of input_ids"] == (3, None)  # a mask may have more rows: they are gathered


def test_gpt2_of_transformers(torchvision):
    t = families()
    config = t.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=100, n_positions=64, use_cache=False)
    model = t.GPT2LMHeadModel(config).eval()
    s = sol.optimize(copy.deepcopy(model), torch.randint(0, 100, (2, 16)), vdims=True)
    with torch.no_grad():
        for b, n in ((2, 16), (3, 31), (1, 5)):
            x = torch.randint(0, 100, (b, n))
            assert error(s(x).logits, model(x).logits) < 1e-5


def test_a_trace_below_autograd_forgets_the_symbols_of_the_first():
    class Slopes(torch.nn.Module):
        def forward(self, x):
            pairs = x.view(-1, 2)  # needs an even number of elements
            return torch.func.grad(lambda t: (t**2 * t[:1]).sum())(pairs)

    model = Slopes()
    optimized = sol.optimize(model, vdims=True)
    for n in (3, 5):
        x = torch.linspace(0, 1, 4 * n).view(n, 4)
        torch.testing.assert_close(optimized(x), model(x))


def test_constants_that_look_like_names_of_sizes():
    class Masked(torch.nn.Module):
        def forward(self, x):
            return torch.where(x > 0, x, -9e15 * torch.ones_like(x))

    model = Masked()
    optimized = sol.optimize(model, vdims=True)
    with torch.no_grad():
        for n in (3, 5):
            x = torch.linspace(-1, 1, 4 * n).view(n, 4)
            torch.testing.assert_close(optimized(x), model(x))


def ctc(b):
    lengths = torch.full((b,), 20), torch.full((b,), 5)
    return torch.randn(20, b, 9).log_softmax(-1), torch.randint(1, 9, (b, 5)), *lengths


SEVERAL = {  # operators whose operands must have equal sizes, which PyTorch's shape functions do not compare
    "ctc_loss": (F.ctc_loss, ctc),
    "index_add": (
        lambda x, i, u: x.index_add(0, i, u),
        lambda b: (torch.randn(11, b), torch.randint(0, 11, (2 * b,)), torch.randn(2 * b, b)),
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_sizes_of_several_operands_are_one(name):
    function, make = SEVERAL[name]
    optimized = sol.optimize(function, *make(6), vdims=True)
    for b in (6, 3, 9):
        args = make(b)
        torch.testing.assert_close(optimized(*args), function(*args))
    assert len(optimized._sol.programs) == 1


FEWER = {  # operators with at most as many indices as elements
    "scatter_add": (
        lambda x, i, u: x.scatter_add(0, i, u),
        lambda b, n: (torch.randn(11, b), torch.randint(0, 11, (2 * n, n)), torch.randn(2 * b, b)),
    ),
    "gather": (
        lambda x, i: x.gather(1, i),
        lambda b, n: (torch.randn(b, 11, requires_grad=True), torch.randint(0, 11, (n, 3))),
    ),
}


@pytest.mark.parametrize("name", FEWER)
def test_sizes_that_are_less(name):
    """One program for any sizes that fit, and one with gradients."""
    function, make = FEWER[name]
    optimized = sol.optimize(function, *make(6, 5), vdims=True)
    for b, n in ((6, 5), (3, 3), (9, 2)):
        args = make(b, n)
        results = [f(*args) for f in (optimized, function)]
        torch.testing.assert_close(*results)
        if args[0].requires_grad:
            torch.testing.assert_close(*(torch.autograd.grad(y, args[0], y.detach().cos()) for y in results))
    kinds = [p.gradient is not None for p in optimized._sol.programs.values()]
    assert len(kinds) == len(set(kinds))
    assert all("#" in p.net.peak for p in optimized._sol.programs.values())
    with pytest.raises(sol.InvalidError, match=name):
        optimized(*make(3, 4))


def test_fewer_indices_than_other_sizes():
    def fewer(x, i, u):
        return x.scatter_add(1, i, u)

    optimized = sol.optimize(fewer, torch.randn(6, 7), torch.randint(0, 7, (6, 3)), torch.randn(6, 3), vdims=True)
    for n, m in ((6, 3), (4, 2), (2, 3)):
        args = torch.randn(6, 7), torch.randint(0, 7, (n, m)), torch.randn(5 if n < 5 else n, 3)
        torch.testing.assert_close(optimized(*args), fewer(*args))
