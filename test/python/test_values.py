"""Values that forward reads from its arguments: `.item()`, `if t:`, sizes that follow from data. A program is valid for
the values of its trace."""

import copy
import functools
import threading

import pytest
import sol
import torch
from sol.pytorch.module import MANY_VALUES, MAX_PROGRAMS
from torch import nn
from torch.utils import _pytree as pytree


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setitem(sol.config, "autotune", "off")


def programs(model):
    return len(model._sol.programs)


def assert_same(got, want):
    got, want = pytree.tree_leaves(got), pytree.tree_leaves(want)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, equal_nan=True)
            assert a.stride() == b.stride() or not b.numel() or 1 in b.shape
        else:
            assert type(a) is type(b) and a == b


def written(x):
    y = x.clone()
    y[0] = 5
    y.add_(1)
    return x * y.sum().item(), y[1:].tolist()


def written_argument(x):
    before = x.sum().item()
    view = x[1:]
    view.mul_(2)
    return x * x.sum().item() + before


def picked(x, v):
    y = x.clone()
    y[x > 0.5] = v[: int((x > 0.5).sum())]
    return y


def steps(x, lengths):
    return [part.cumsum(0) for part in x.split(lengths.tolist())]


def nothing_or(x):
    return x + 1 if x.numel() and x.max() > 0 else x - 1


A, B, C = (torch.tensor(v) for v in ([1.0, 2.0, 0.0], [0.0, 2.0, 0.0], [-1.0, 0.0, -3.0]))
M = torch.rand(4, 5, generator=torch.Generator().manual_seed(3))
N, O = torch.tensor([3, 1, 2, 1, 0, 3, 1]), torch.tensor([1, 1, 1, 0, 0, 4, 4])
R = torch.tensor([[1, 1, 2, 2], [1, 1, 2, 3]])
READS = {  # a function, calls with one shape, the number of programs they need
    "item": (lambda x: x * x.sum().item(), [(A,), (B,), (A,)], 2),
    "a number of a number": (lambda x: [x, x + 1, x + 2][int(x.argmax())], [(A,), (B,), (C,)], 1),
    "branch": (lambda x: x + 1 if x.sum() > 0 else x - 1, [(A,), (B,), (C,)], 2),
    "branch on nan": (lambda x: x + x.max().item(), [(A,), (A * torch.nan,), (A * torch.nan,)], 2),
    "minus zero": (lambda x: x / x.prod().item(), [(A,), (-A,)], 2),
    "tolist": (lambda x: [v * 2 for v in x.tolist()], [(A,), (B,)], 2),
    "equal": (lambda x, y: x + 1 if torch.equal(x, y) else x, [(A, A.clone()), (A, B)], 2),
    "allclose": (lambda x, y: x if torch.allclose(x, y, atol=2) else -x, [(A, A.clone()), (A, C)], 2),
    "a range": (lambda x: torch.arange(x.max()) + x[: int(x.max())].sum(), [(A,), (A * 0.5,)], 2),
    "loop": (lambda x, n: sum(x**i for i in range(n)), [(A, torch.tensor(2)), (A, torch.tensor(3))], 2),
    "steps": (steps, [(M.repeat(2, 1), torch.tensor([1, 3, 4])), (M.repeat(2, 1), torch.tensor([3, 4, 1]))], 2),
    "written in place": (written, [(A,), (B,)], 2),
    "nonzero": (lambda x: x.nonzero() * 2, [(A,), (B,), (C,), (A.flip(0),)], 2),
    "nonzero of nothing": (lambda x: x.nonzero(), [(A * 0,), (A,)], 2),
    "nonzero of a matrix": (lambda x: (x > 0.5).nonzero(), [(M,), (1 - M,)], 2),
    "nonzero of a number": (lambda x: (x.sum().nonzero(), x.sum().nonzero(as_tuple=True)), [(A,)], 1),
    "nonzero as tuple": (lambda x: (x > 0.5).nonzero(as_tuple=True), [(M,), (1 - M,), (M.flip(0),)], 2),
    "where": (lambda x: torch.where(x > 0.5), [(M,), (1 - M,)], 2),
    "argwhere": (lambda x: torch.argwhere(x > 0.5), [(M,), (1 - M,)], 2),
    "mask": (lambda x, m: x[m > 0.5] * 2, [(M, M), (M, 1 - M), (M, M.flip(1))], 2),
    "mask of bytes": (lambda x, m: x[(m > 0.5).byte()] * 2, [(M, M)], 1),
    "mask of a dimension": (lambda x, m: x[:, m > 0.5] * 2, [(M, M[0]), (M, 1 - M[0])], 2),
    "mask and an index": (lambda x, m: x[m > 0.5, 2], [(M, M[:, 0])], 1),
    "masked_select": (lambda x, m: x.masked_select(m > 0.5), [(M, M), (M, 1 - M), (M, M[0])], 3),
    "written by a mask": (picked, [(M, torch.arange(20.0)), (1 - M, torch.arange(20.0))], 2),
    "unique": (lambda x: torch.unique(x, return_inverse=True, return_counts=True), [(N,), (O,)], 2),
    "unique of floats": (lambda x: torch.unique(x), [(M,), (M.round(),)], 2),
    "unique_consecutive": (lambda x: torch.unique_consecutive(x, True, True), [(N,), (O,)], 2),
    "unique_consecutive of columns": (lambda x: torch.unique_consecutive(x, True, True, 1), [(R,), (R.flip(0),)], 1),
    "bincount": (lambda x: torch.bincount(x, minlength=3), [(N,), (O,)], 2),
    "bincount with weights": (lambda x, w: torch.bincount(x, w), [(N, M.view(-1)[:7]), (O, M.view(-1)[:7])], 2),
    "repeat_interleave": (lambda x: torch.repeat_interleave(x), [(N,), (O,)], 1),
    "repeat_interleave along": (lambda x, n: x.repeat_interleave(n, 1), [(M, N[:5]), (M, O[:5])], 2),
    "one_hot": (lambda x: nn.functional.one_hot(x), [(N,), (O,)], 2),
    "no elements": (nothing_or, [(torch.zeros(0),), (torch.zeros(0),)], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", READS)
def test_reads(name):
    """Each call gives PyTorch's result, and calls with earlier values compile nothing."""
    f, calls, most = READS[name]
    model = sol.optimize(f)
    for _ in range(2):
        for call in calls:
            assert_same(model(*call), f(*call))
    assert programs(model) <= most


def test_an_argument_is_not_written_twice():
    """Reading a value after a write does not change the argument."""
    model = sol.optimize(written_argument)
    for x in (A, A, B):
        mine, theirs = x.clone(), x.clone()
        assert_same((model(mine), mine), (written_argument(theirs), theirs))
    assert programs(model) == 2


class Steps(nn.Module):
    """A loop over the lengths of a call, and a mask."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)
        self.register_buffer("doubled", torch.tensor(False))

    def forward(self, x, lengths, mask):
        y = self.layer(x)
        parts = [row[:n].logsumexp(0) for row, n in zip(y, lengths.tolist(), strict=True)]
        result = torch.stack(parts).sum() + y[mask].prod(0).sum()
        return result * 2 if self.doubled else result


def call(first, second):
    lengths = torch.tensor([first, second])
    return torch.randn(2, 4, 5, requires_grad=True), lengths, torch.arange(4) >= lengths[:, None] - 1


def gradients(model, arguments):
    y = model(*arguments)
    return (y.detach(), *torch.autograd.grad(y, (arguments[0], *model.parameters())))


@pytest.mark.parametrize("training", [False, True])
def test_gradients(training):
    m = Steps().train(training)
    s = sol.optimize(m)
    for lengths in ((4, 2), (3, 1), (4, 2)):
        arguments = call(*lengths)
        torch.testing.assert_close(gradients(s, arguments), gradients(m, arguments))


def test_buffers_are_seen():
    """A flag in a buffer counts like an argument's value."""
    m, arguments = Steps().eval(), call(4, 2)
    s = sol.optimize(m, *arguments)
    with torch.no_grad():
        torch.testing.assert_close(s(*arguments), m(*arguments))
        m.doubled.fill_(True)
        torch.testing.assert_close(s(*arguments), m(*arguments))
        assert programs(s) == 2


class Running(nn.Module):
    """Reads statistics that the same call has written."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3, affine=False)

    def forward(self, x):
        y = self.norm(x)
        return y if self.norm.running_mean.sum() > 0 else -y


def test_statistics_are_read_behind_their_write():
    mine, theirs = Running().train(), Running().train()
    s = sol.optimize(mine)
    for x in (torch.rand(4, 3) + 1, torch.rand(4, 3) - 9, torch.rand(4, 3) + 1):
        torch.testing.assert_close(s(x), theirs(x))
    assert programs(s) == 2


def test_in_threads():
    """Threads with different values get their own results, and each value is compiled once."""
    m = Steps().eval()
    s, wrong = sol.optimize(m), []
    calls = [call(*lengths) for lengths in ((4, 2), (3, 1), (2, 2), (1, 4))]
    with torch.no_grad():
        expected = [m(*c) for c in calls]

    def run(k):
        torch.set_num_threads(1)
        with torch.no_grad():
            for i in range(60):
                j = (i * (k + 1) + k) % len(calls)
                if not torch.allclose(s(*calls[j]), expected[j], rtol=1e-4, atol=1e-5):
                    wrong.append((k, j))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and programs(s) == 4


def test_many_values(capfd):
    """The number of programs is bounded, and a value that never repeats is logged once, with its line."""
    s = sol.optimize(lambda x: x * x.sum().item())
    for i in range(MAX_PROGRAMS + 3):
        assert_same(s(A * i), A * i * (3.0 * i))
    assert programs(s) == MAX_PROGRAMS
    err = capfd.readouterr().err
    assert err.count("Let few values come") == 1
    assert f"(test_values.py:{test_many_values.__code__.co_firstlineno + 2}), and {MANY_VALUES + 1} programs" in err


class Reading(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.weight, self.layer, self.f = nn.Parameter(torch.ones(3)), nn.Linear(3, 3), f

    def forward(self, x):
        return x if self.f(self, x) > 0 else -x


def restored(kept, m):
    m.load_state_dict(kept)


def zeroed(m):
    with torch.no_grad():
        m.weight.zero_()
        m.layer.weight.zero_()
        m.layer.bias.fill_(-1)


@pytest.mark.parametrize(
    "f",
    [
        lambda s, x: s.weight.sum(),
        lambda s, x: (x * s.weight).sum(),
        lambda s, x: s.layer(x).isinf().any() | (s.layer(x) > 0).any(),
        lambda s, x: (x.square().diag() @ x.square().diag() * s.weight.sum()).sum(),
        lambda s, x: len(s.layer(x).relu().nonzero()),
        lambda s, x: len(x[s.weight > 0]),
        lambda s, x: sum(v for row in (s.layer(x).relu() > 0).long().unsqueeze(0).tolist() for v in row),
    ],
    ids=["weight", "of a weight", "layer", "product", "nonzero", "mask", "list"],
)
def test_values_of_the_network(f):
    """Another branch is another program: found by the network itself, also while it is trained, and used again."""
    m, x = Reading(f), A.clone().requires_grad_()
    with torch.no_grad():
        m.layer.weight.fill_(0.5)
    s = sol.optimize(m)
    for _ in range(3):
        kept = copy.deepcopy(m.state_dict())
        for change in (lambda m: None, zeroed, functools.partial(restored, kept)):
            change(m)
            for mode in (m.eval(), m.train()):
                got, want = s(x), mode(x)
                assert_same(got, want)
                assert_same(torch.autograd.grad(got.sum(), x), torch.autograd.grad(want.sum(), x))
            with torch.no_grad():
                assert_same(s(x), m(x))
    assert programs(s) <= 6


def tokens(h, x):
    """Those of an expert, written behind the read."""
    at = torch.where(h[:, 0] > 0)[0]
    y = torch.zeros_like(x).index_add_(0, at, x[at] * 2)
    n = len(h.relu().nonzero())
    h.add_(100)
    return y + h + n


@pytest.mark.parametrize(
    ("f", "most"),
    [
        (tokens, 4),
        (lambda h, x: torch.masked_select(x, h > 0), 1),  # the network sets its size
        (lambda h, x: x.repeat_interleave((h[:, 0] > 0).long(), 0), 4),
        (lambda h, x: x[(h[:, 0] > 0).long().cumsum(0).unique() - 1], 1),
    ],
    ids=["tokens", "mask", "repeated", "unique"],
)
def test_fewer_and_more_than_assumed(f, most):
    """What a program computes of a wrong assumption is not seen, nor is an index that is out of range there."""
    m = type("Picks", (nn.Module,), {"forward": lambda self, x: f(self.layer(x), x)})()
    m.layer = nn.Linear(3, 3)
    nn.init.eye_(m.layer.weight)
    nn.init.zeros_(m.layer.bias)
    s = sol.optimize(m)
    for n in (9, 3, 0, 5, 9):
        x = torch.rand(9, 3)
        x[n:] -= 2
        with torch.no_grad():
            assert_same(s(x), m(x))
    assert programs(s) == most


def test_errors_behind_a_read_are_the_call_s_own():
    m = type("Fails", (nn.Module,), {"forward": lambda s, x, i: x[i] if s.layer(x).sum() != 0 else x})()
    m.layer = nn.Linear(3, 3)
    s = sol.optimize(m)
    assert s(torch.ones(4, 3), torch.tensor([1])).shape == (1, 3)
    with pytest.raises(sol.RunError, match="out of range"):
        s(torch.ones(4, 3), torch.tensor([4]))
    assert programs(s) <= 2


class Statistics(nn.Module):
    """A branch on what dropout left, behind buffers that the call writes: a wrong guess must leave no trace."""

    def __init__(self):
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout(0.5)

    def forward(self, x):
        y = self.norm(x)
        kept = self.drop(torch.ones(8))
        return (y, kept) if (kept > 0).sum() > 4 else (-y, kept)


def test_a_wrong_guess_leaves_no_trace():
    m, x = Statistics(), torch.randn(6, 4)
    want = copy.deepcopy(m)
    s, seen = sol.optimize(m), []
    for _ in range(40):
        y, kept = s(x)
        expected = want.norm(x)
        seen.append(bool((kept > 0).sum() > 4))
        assert_same(y, expected if seen[-1] else -expected)
        assert_same(m.norm.running_mean, want.norm.running_mean)
    assert m.norm.num_batches_tracked == 40 and programs(s) == 2 and 4 < sum(seen) < 36


class Skipping(nn.Module):
    """LayerDrop."""

    def __init__(self, n, p):
        super().__init__()
        self.layers, self.p = nn.ModuleList(nn.Linear(4, 4) for _ in range(n)), p

    def forward(self, x):
        for layer in self.layers:
            skip = self.training and torch.rand([]) < self.p
            if not skip or not self.training:
                y = layer(x).tanh()
            x = x if skip else x + y
        return x


def test_layers_that_are_skipped_by_chance():
    """The same layers as in PyTorch for the same seed, with the same gradients; programs are not preferred."""
    m, x = Skipping(2, 0.5), torch.randn(3, 4)
    s = sol.optimize(m)
    found = {}
    for seed in range(40):
        grads = []
        for f in (s, m):
            torch.manual_seed(seed)
            m.zero_grad()
            y = f(x)
            y.sum().backward() if y.requires_grad else None
            grads.append((y.detach(), [p.grad for p in m.parameters() if p.grad is not None and p.grad.any()]))
        assert_same(*grads)
        found[len(grads[0][1])] = found.get(len(grads[0][1]), 0) + 1
    assert programs(s) == 4 and set(found) == {0, 2, 4}
    m.eval()
    assert_same(s(x), m(x))


def test_layers_that_are_skipped_often_are_said(capfd):
    s = sol.optimize(Skipping(6, 0.5))
    for seed in range(20):
        torch.manual_seed(seed)
        s(torch.randn(3, 4))
    assert "a value of random numbers (test_values.py:" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda s, x: s.weight.sum().item(), r"the model's 'weight', and it is not a whole number"),
        (lambda s, x: s.layer(x).sum().item(), r"the model's 'layer\.(weight|bias)', and it is not a whole number"),
        (lambda s, x: (x @ x).sum().item(), r"a product \(matmul\), and it is not a whole number.*torch.compile"),
        (lambda s, x: torch.rand([]).item(), r"random numbers \(rand\), and it is not a whole number"),
    ],
    ids=["weight", "layer", "product", "random"],
)
def test_rejected(f, what):
    """A value that differs in every call is rejected, with the line."""
    with pytest.raises(
        sol.UnsupportedError, match=rf"Reading: .* depends on data \(test_values.py:\d+\): .* of {what}"
    ):
        sol.optimize(Reading(f), A)


def test_too_many_numbers():
    with pytest.raises(
        sol.UnsupportedError, match=r"reads 90000 numbers of its arguments \(test_values.py:\d+\), too many"
    ):
        sol.optimize(lambda x: sum(map(sum, x.tolist())) + x, torch.rand(300, 300))


def test_examples_without_data():
    branch = Reading(lambda s, x: x.sum())
    with pytest.raises(
        sol.UnsupportedError, match=r"argument x, which has no data; give sol.optimize an example tensor"
    ):
        sol.optimize(branch, sol.input([3]))
    assert_same(sol.optimize(branch, A)(C), -C)


def test_errors_are_the_model_s_own():
    """If a model reads values and raises an error, the error is the model's, not one of tracing."""

    def f(x):
        if x.min() < 0:
            raise ValueError("negative")
        return torch.bincount(x)

    s = sol.optimize(f, N)
    with pytest.raises(ValueError, match="negative"):
        s(-N)
    with pytest.raises(sol.InvalidError, match=r"test_values.py:\d+: .* non-negative"):
        sol.optimize(lambda x: torch.bincount(x))(-N)


def test_deployed_networks_read_nothing(tmp_path):
    with pytest.raises(sol.UnsupportedError, match=r"argument .*, which a deployed network cannot"):
        sol.deploy(Reading(lambda s, x: x.sum()), "net", {"path": str(tmp_path)}, A)
    with pytest.raises(sol.UnsupportedError, match=r"the model's '.*', which a deployed network cannot.*mask\)$"):
        sol.deploy(Reading(lambda s, x: s.weight.sum()), "net", {"path": str(tmp_path)}, A)


def test_calls_that_read_nothing_look_at_nothing():
    s = sol.optimize(nn.Linear(3, 3), A)
    assert s._sol.latest().reads is None


class Embedded(nn.Module):
    """The packed values are computed from weights, but the lengths are not."""

    def __init__(self):
        super().__init__()
        self.words, self.cell = nn.Embedding(20, 6), nn.GRU(6, 5, batch_first=True, bidirectional=True)

    def forward(self, words, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.words(words), lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.cell(packed)[0], batch_first=True)[0]


def test_packed_behind_an_embedding():
    model, words = Embedded(), torch.randint(0, 20, (3, 7))
    optimized = sol.optimize(model, words, torch.tensor([7, 2, 5]))
    for lengths in ([7, 2, 5], [1, 6, 3]):
        given = words, torch.tensor(lengths)
        got, eager = optimized(*given), model(*given)
        torch.testing.assert_close(got, eager)
        g = torch.randn_like(eager)
        both = [torch.autograd.grad(y, list(model.parameters()), g) for y in (got, eager)]
        torch.testing.assert_close(*both)
