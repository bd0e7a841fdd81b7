"""The quick trace finds the same as torch.export, and leaves everything else to it."""

import copy
import random
import types
from unittest import mock

import numpy
import pytest
import sol
import sol.pytorch.export as export_module
import torch
from sol.pytorch.skeleton import skeleton
from sol.pytorch.steps import Unusual
from sol.pytorch.trace import place, trace
from sol.pytorch.traced import Traced
from torch import nn
from torch.fx import Node
from torch.nn import functional as F


class Apply(nn.Module):
    def __init__(self, function, *parts):
        super().__init__()
        self.function = function
        self.parts = nn.ModuleList(parts)
        self.scale = nn.Parameter(torch.randn(4))
        self.register_buffer("count", torch.zeros(()))
        self.plain = torch.arange(4.0)

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


def no_grad(self, x):
    with torch.no_grad():
        mask = x > 0
    return x * mask + x.detach()


def views(self, x):
    x = x * 1
    x[:, 0].mul_(2)
    a, b = x.split(2, dim=1)
    b += a
    return x.t(), a


def counts(self, x):
    self.count.add_(1)
    self.count.mul_(2)
    return x + self.count


x = torch.randn(3, 4)
CASES = {
    "layers": (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(True), nn.Flatten()),
        [torch.randn(2, 3, 5, 5)],
        {},
    ),
    "batch-norm, channels last": (
        nn.BatchNorm2d(8),
        [torch.randn(2, 8, 5, 5).to(memory_format=torch.channels_last)],
        {},
    ),
    "batch-norm of a slice": (nn.BatchNorm1d(2), [torch.randn(3, 4)[:, ::2]], {}),
    "batch-norm, trained": (nn.BatchNorm1d(4).train(), [x], {}),
    "nested, by name": (
        Apply(lambda s, a, *, rest, flag=True: {"sum": a + rest[0] * s.scale, "rest": [rest[1]["k"], 3, None]}),
        [x],
        {"rest": (x + 1, {"k": x + 2}), "flag": False},
    ),
    "constants": (Apply(lambda s, a: a + torch.tensor([1.0, 2.0, 3.0, 4.0]) * s.plain), [x], {}),
    "a number of a constant": (Apply(lambda s, a: a * torch.tensor(3.0).item()), [x], {}),
    "views": (Apply(views), [x], {}),
    "buffers": (Apply(counts), [x], {}),
    "several results": (Apply(lambda s, a: (*a.max(dim=1), *a.unbind(1), a.shape)), [x], {}),
    "recurrent": (nn.LSTM(4, 5, 2, batch_first=True), [torch.randn(2, 3, 4)], {}),
    "transformer": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), [torch.randn(2, 5, 8)], {}),
    "made inside": (Apply(lambda s, a: a + torch.arange(4) + torch.zeros_like(a) + torch.ones(4)), [x], {}),
    "random": (Apply(lambda s, a: F.dropout(a, 0.5) + torch.rand(4)), [x], {}),
}


DETACH = (torch.ops.aten.detach.default, torch.ops.aten.detach_.default)


def live(traced):
    """The calls that a result or a piece of memory depends on, in order."""
    waiting = [o for o in traced.outputs if isinstance(o, Node)]
    waiting += [n for n in traced.graph.nodes if n.op == "call_function" and n.is_impure() and n.target not in DETACH]
    used = set()
    while waiting:
        node = waiting.pop()
        if node not in used:
            used.add(node)
            waiting += node.all_input_nodes
    return [n for n in traced.graph.nodes if n in used and n.op == "call_function"]


CONSTANT = ("_tensor_constant", "lifted_tensor")


def described(traced):
    """Calls and results, without names."""
    names = {s.node: s.origin for s in traced.inputs}
    names |= {
        s.node: traced.constants[s.origin[1]].tolist() for s in traced.inputs if str(s.origin[1]).startswith(CONSTANT)
    }

    def form(v):
        if isinstance(v, Node):
            return names[v]
        return [form(a) for a in v] if isinstance(v, list | tuple) else repr(v)

    def shape(v):
        return (v.dtype, v.shape, v.stride()) if isinstance(v, torch.Tensor) else [shape(a) for a in v or ()]

    rows = []
    for n in live(traced):
        rows.append(
            (str(n.target), form(n.args), sorted((k, form(v)) for k, v in n.kwargs.items()), shape(n.meta["val"]))
        )
        names[n] = ("call", len(rows))
    return rows, form(traced.outputs), str(traced.spec)


@pytest.mark.parametrize("name", CASES)
def test_same_as_export(name):
    """Operators, operands, shapes and strides, results and their structure."""
    module, args, kwargs = CASES[name]
    module = module if "trained" in name else module.eval()
    with export_module._tracing(False):
        quick = trace(skeleton(module), tuple(args), kwargs)
        slow = Traced.of(export_module._export(skeleton(module), tuple(args), kwargs), None)
    a, b = described(quick), described(slow)
    for row, other in zip(a[0], b[0], strict=True):
        assert row == other
    assert a[1:] == b[1:]


def test_places():
    """Every call knows its module and the line of the model."""
    module = nn.Sequential(nn.Linear(4, 4), Apply(lambda s, a: F.relu(a) * 2))
    with export_module._tracing(False):
        traced = trace(skeleton(module), (x,), {})
    paths, lines = zip(*(place(n) for n in live(traced)), strict=True)
    assert paths == ("0", "1", "1")
    assert lines[0] == ""
    assert all(line.startswith("test_trace.py:") for line in lines[1:])


def test_gradient_mode():
    """The trace sees the model's no_grad() at each call."""
    with export_module._tracing(True):
        traced = trace(skeleton(Apply(no_grad)), (x.clone().requires_grad_(),), {})
    found = {n.name: n.meta["enabled"] for n in live(traced)}
    assert found == {"gt": False, "mul": True, "detach": True, "add": True}


class Keeps(nn.Module):
    """A model that leaves something in its attributes."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(4))
        self.calls, self.hidden, self.cache, self.config = 0, None, {}, types.SimpleNamespace(seen=[])

    def forward(self, x):
        return self.function(self, x)


def shown(self, x):
    self.hidden = torch.relu(x)
    self.config.seen.append(self.hidden)
    self.calls += 1
    return x * 2


def cached(self, x):
    if "w" not in self.cache:
        self.cache["w"] = self.weight.exp() + 1
    return x * self.cache["w"]


def reset(self, x):
    self.hidden = x + 1
    return self.hidden * 2


def counted(self, x):
    self.calls += 1
    return x * self.calls


def carried(self, x):
    self.hidden = x if self.hidden is None else torch.tanh(self.hidden + x)
    return self.hidden


def collected(self, x):
    self.config.seen.append(x)
    return torch.stack([v.sum() for v in self.config.seen]).sum()


def noisy(self, x):
    if self.hidden is None:
        self.hidden = torch.rand(4)
    return x + self.hidden


@pytest.mark.parametrize("f", [shown, cached, reset])
def test_what_a_forward_keeps(f):
    """A model may store what the next call does not depend on; nothing of the trace is stored."""
    m = Keeps(f)
    with torch.no_grad():
        y = sol.optimize(m, x)(x)
        assert (m.calls, m.hidden, m.cache, m.config.seen) == (0, None, {}, [])
        assert torch.allclose(y, m(x))


@pytest.mark.parametrize(
    ("f", "what"), [(counted, "calls"), (carried, "hidden"), (collected, "config"), (noisy, "hidden")]
)
def test_what_a_forward_carries_on(f, what):
    """What the next call depends on is rejected by name."""
    with pytest.raises(
        sol.UnsupportedError, match=f"forward changes {what}, so that the next call computes something else"
    ):
        sol.optimize(Keeps(f), x)


class SetUp(nn.Module):
    """Its first call in a mode changes a weight in place, and says so in an attribute."""

    def __init__(self):
        super().__init__()
        self.weight, self.scaled = nn.Parameter(torch.ones(4)), False

    def forward(self, x):
        if self.training == self.scaled:
            with torch.no_grad():
                self.weight.mul_(0.5 if not self.training else 2)
            self.scaled = not self.training
        return x * self.weight * (2 if self.scaled else 1)


def test_what_a_forward_sets_up():
    m, want = SetUp(), SetUp()
    s = sol.optimize(m)
    for training in (False, False, True, True, False):
        s.train(training), want.train(training)
        with torch.no_grad():
            assert torch.equal(s(x), want(x))
        assert m.scaled == want.scaled and torch.equal(m.weight, want.weight)
    assert len(s._sol.programs) == 4


def exported(self, a):
    if torch.compiler.is_exporting() or isinstance(a, torch._subclasses.FakeTensor):
        raise ValueError("cannot be exported")
    return a @ a


def moved(self, a):
    self.linear = self.linear.to(torch.float32)
    return self.linear(a)


def formatted(self, a):
    names = {"layer 1": self.linear}
    for i in (a[0, :2] > -9).nonzero()[1:]:
        a = names[f"layer {i[0]}"](a)
    return a


@pytest.mark.parametrize("f", [exported, moved, formatted])
def test_what_a_forward_asks_tensors(f):
    """Is it exported, is it of this type already, what is it as text."""
    m = Apply(f)
    m.linear = nn.Linear(4, 4)
    square = torch.randn(4, 4)
    with torch.no_grad():
        assert torch.allclose(sol.optimize(m, square)(square), m(square), atol=1e-6)
    assert torch._subclasses.FakeTensor.__name__ == "FakeTensor" and not torch.compiler.is_exporting()


def test_buffers_of_half_precision_that_are_converted():
    m = Apply(lambda s, a: a * s.factor.to(a.dtype) + s.factor.type_as(a))
    m.register_buffer("factor", torch.tensor(1.7, dtype=torch.bfloat16))
    s = sol.optimize(m, x)
    assert torch.allclose(s(x), m(x))
    m.factor.fill_(0.3)
    assert torch.allclose(s(x), m(x))
    computing = Apply(lambda s, a: a * (s.factor * 2))
    computing.register_buffer("factor", torch.tensor(1.7, dtype=torch.bfloat16))
    with pytest.raises(sol.UnsupportedError, match="data type bfloat16"):
        sol.optimize(computing, x)


@pytest.mark.parametrize(
    ("what", "draw"),
    [("Python's random", random.random), ("NumPy's random", numpy.random.rand)],
    ids=("python", "numpy"),
)
def test_what_a_forward_draws_unseen(what, draw, capfd):
    """Random numbers that a trace does not see would be equal in every call. In eval mode nothing is drawn."""
    m = Apply(lambda s, a: a * 2 if s.training and draw() < 2 else a)
    with mock.patch("threading.active_count", lambda: 1):
        with pytest.raises(sol.UnsupportedError, match=f"forward draws from {what}"):
            sol.optimize(m.train(), x)(x)
        assert torch.equal(sol.optimize(m.eval(), x)(x), m(x))
    with mock.patch("threading.active_count", lambda: 2), torch.no_grad():
        capfd.readouterr()
        assert torch.equal(sol.optimize(m.train(), x)(x), m(x))
        assert f"another thread that does so: Apply: forward draws from {what}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (x.bfloat16(), r"data type bfloat16: not supported; use t\.float\(\), and model\.float\(\)"),
        (x.to_sparse(), r"to_dense\(\)"),
    ],
    ids=("half", "sparse"),
)
def test_rejected_arguments_come_with_advice(given, words):
    with pytest.raises(sol.UnsupportedError, match=f"argument 0: .*{words}"):
        sol.optimize(Apply(lambda s, a: a * 2))(given)


def test_operators_whose_shape_depends_on_data_are_rejected_with_their_own_reason():
    m = Apply(lambda s, a: torch.linalg.lstsq(a, a).solution)
    with pytest.raises(sol.UnsupportedError, match=r"linalg_lstsq\.default: linear algebra that takes matrices apart"):
        sol.optimize(m, x)


UNUSUAL = {
    "errors": (Apply(lambda s, a: a @ a), [x]),
    "writing to others' tensors": (Apply(lambda s, a: x.T.mul_(a.T)), [x]),
    "autocast": (Apply(lambda s, a: torch.autocast("cpu").__enter__() and a @ s.scale), [x]),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual(name):
    """Unusual models are left to torch.export, and no trace of the first attempt remains."""
    module, args = UNUSUAL[name]
    try:
        with export_module._tracing(False), pytest.raises(Unusual):
            trace(skeleton(module), tuple(args), {})
    finally:
        torch.clear_autocast_cache()
        torch.set_autocast_enabled("cpu", False)
    assert not torch.compiler.is_compiling()
    assert torch.equal(sol.optimize(nn.ReLU(), x)(x), x.relu())


class Cache:
    """What a language model passes from call to call: layers of keys and values, to which it appends."""

    def __init__(self, layers=()):
        self.layers = list(layers)

    def update(self, k, v):
        self.layers.append((k, v))
        return k, v


class Decoder(nn.Module):
    def __init__(self, made=Cache):
        super().__init__()
        self.k, self.v, self.made = nn.Linear(4, 4), nn.Linear(4, 4), made

    def forward(self, x, cache=None):
        cache = self.made() if cache is None else cache
        k, v = cache.update(self.k(x), self.v(x))
        return k * v, cache


def test_an_object_is_known_by_its_attributes():
    """An object that a model creates is new; an object that it is given is the caller's, and changes go there."""
    m, given, theirs = Decoder().eval(), Cache(), Cache()
    s = sol.optimize(m)
    for _ in range(3):  # the cache grows, so each size has a program
        for cache in (None, given):
            y, made = s(x, cache)
            eager, expected = m(x, cache and theirs)
            torch.testing.assert_close(y, eager)
            assert type(made) is Cache and (made is cache or cache is None)
            assert len(made.layers) == len(expected.layers)
            for a, b in zip(made.layers, expected.layers, strict=True):
                torch.testing.assert_close(a, b)
    assert len(s._sol.programs) == 4


class Paged(Cache):
    """Written in place, as caches of fixed size are; an object inside of an object."""

    class Counter:
        def __init__(self):
            self.calls, self.seen = 0, None

    def __init__(self):
        self.keys, self.counter, self.kind = torch.zeros(3, 4), Paged.Counter(), Paged

    def update(self, k, v):
        self.keys += k
        self.counter.calls += 1
        self.counter.seen = v
        return self.keys, v


def test_an_object_is_changed_in_place():
    m, given, theirs = Decoder().eval(), Paged(), Paged()
    keys, counter = given.keys, given.counter
    s = sol.optimize(m)
    for calls in range(1, 4):
        with torch.no_grad():
            (y, made), (eager, _) = s(x, cache=given), m(x, cache=theirs)
        assert made is given and given.counter is counter and given.keys is keys
        torch.testing.assert_close((y, keys, counter.seen), (eager, theirs.keys, theirs.counter.seen))
        assert counter.calls == calls
    given.again = counter
    with pytest.raises(sol.UnsupportedError, match="an object of Counter is in the arguments twice, and forward chan"):
        s(x, cache=given)


def test_an_object_without_attributes_is_rejected_by_name():
    class Slots:
        __slots__ = ("layers",)
        update = Cache.update
        __init__ = Cache.__init__

    with pytest.raises(sol.UnsupportedError, match=r"returns an object of .*Slots.*register_pytree_node"):
        sol.optimize(Decoder(Slots).eval(), x)


def test_an_object_that_pytorch_knows_the_parts_of_is_carried():
    class Known(Cache):
        pass

    torch.utils._pytree.register_pytree_node(
        Known,
        lambda c: (c.layers, None),
        lambda parts, _: Known(parts),
        serialized_type_name="test_trace.Known",
        flatten_with_keys_fn=lambda c: (
            [(torch.utils._pytree.SequenceKey(i), v) for i, v in enumerate(c.layers)],
            None,
        ),
    )
    model = Decoder(Known).eval()
    s = sol.optimize(model, x)
    for call in (model, s):
        y, cache = call(x)
        assert type(cache) is Known and len(cache.layers) == 1
        assert torch.allclose(y, model(x)[0], atol=1e-6)
        assert torch.allclose(cache.layers[0][1], model.v(x), atol=1e-6)
    longer = sol.optimize(model, x, Known([(x, x)]))
    _, cache = longer(x, Known([(x, x)]))
    assert [torch.allclose(k, want, atol=1e-6) for (k, _), want in zip(cache.layers, (x, model.k(x)), strict=True)]


class Assigned(nn.Module):
    """Buffers that forward replaces, some of them by each other; one is returned in its old state."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        for name, value in (
            ("mean", torch.zeros(4)),
            ("a", torch.ones(2, 4)),
            ("b", torch.zeros(2, 4)),
            ("steps", torch.tensor(0)),
        ):
            self.register_buffer(name, value)

    def forward(self, x):
        y, old = self.linear(x), self.mean
        self.mean = 0.9 * self.mean + 0.1 * y.mean(0).detach()
        self.a, self.b = self.b, self.a + y.detach()
        self.steps = self.steps + 1
        return y + self.mean / self.steps, old, self.a, self.b[0]


@pytest.mark.parametrize("vdims", [False, True])
def test_buffers_that_forward_assigns(vdims):
    model = Assigned()
    plain = copy.deepcopy(model)
    made = sol.optimize(model, vdims=vdims)
    for k in range(4):
        x = torch.randn(2, 4)
        with torch.set_grad_enabled(k > 1):
            for got, want in zip(made(x), plain(x), strict=True):
                torch.testing.assert_close(got, want)
        torch.testing.assert_close(dict(model.named_buffers()), dict(plain.named_buffers()))


class Growing(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(0, 4))

    def forward(self, x):
        self.seen = torch.cat([self.seen, x])
        return self.seen.sum(0)


def test_a_buffer_that_grows_is_rejected_by_name():
    with pytest.raises(sol.UnsupportedError, match="forward changes seen, so that"):
        sol.optimize(Growing())(torch.ones(2, 4))


class Converting(nn.Module):
    """A list of constants that each call converts to the type that they have."""

    def __init__(self):
        super().__init__()
        self.scales = [torch.tensor([1.0, 2.0])]

    def forward(self, x):
        self.scales = [s.to(x.dtype) for s in self.scales]
        return x * self.scales[0]


def test_a_conversion_that_changes_nothing():
    x = torch.randn(3, 2)
    assert torch.equal(sol.optimize(Converting())(x), Converting()(x))


class Cached(torch.nn.Module):
    """Fills a cache in its first call, part by part, as ConViT does."""

    def __init__(self):
        super().__init__()
        self.cache = None

    def forward(self, x):
        if self.cache is None:
            self.cache = torch.zeros(3, 4)
            self.cache[0] = torch.arange(4)
            self.cache[:, 1] += 2
        return x + self.cache


def test_a_cache_that_is_written_part_by_part():
    x = torch.randn(3, 4)
    optimized = sol.optimize(Cached())
    for _ in range(2):
        assert torch.equal(optimized(x), Cached()(x))


class Counted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.count = None

    def forward(self, x):
        if self.count is None:
            self.count = torch.zeros(4)
        y = x + self.count
        self.count[:2] += 1
        return y


def test_a_cache_that_forward_changes_again_is_rejected():
    with pytest.raises(sol.UnsupportedError, match="forward changes count, so that"):
        sol.optimize(Counted())(torch.randn(3, 4))


class OfTensors(nn.Module):
    """torch.tensor of values that follow from arguments."""

    def forward(self, a, b):
        pair = torch.tensor([a.max() + 1, b.max() + 1]) + a[0]
        mixed = torch.tensor([[a.sum(), 2.5], [1, b[0]]])
        return pair, mixed, torch.as_tensor([a.min(), True]), torch.tensor((b.sum(), a.sum()), dtype=torch.float64) * 2


@pytest.mark.parametrize("vdims", [None, True])
def test_tensors_of_tensors(vdims):
    a, b = torch.arange(3, 8), torch.arange(6)
    s = sol.optimize(OfTensors(), a, b, vdims=vdims)
    for n in (5, 9) if vdims else (5,):
        for got, want in zip(s(a.new_ones(n) * 4, b), OfTensors()(a.new_ones(n) * 4, b), strict=True):
            assert got.dtype == want.dtype and torch.equal(got, want)


def test_tensors_of_tensors_have_no_gradient():
    class Scaled(nn.Module):
        def forward(self, x):
            return x * torch.tensor([x.detach().max(), x.detach().min(), 1.0])

    x = torch.randn(2, 3, requires_grad=True)
    found = [torch.autograd.grad(f(x).square().sum(), x)[0] for f in (Scaled(), sol.optimize(Scaled().train(), x))]
    torch.testing.assert_close(*found)


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.layer(x), lambda x: x * 2, (x,))


def test_torch_cond_is_control_flow():
    with pytest.raises(sol.UnsupportedError, match=r"control flow.* \(test_trace.py:\d+\)"):
        sol.optimize(Branch(), torch.ones(3))
