"""Packed sequences inside forward, as arguments and as results, compared with PyTorch in float32 and float64."""

import copy
import threading

import pytest
import sol
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence
from torch_help import DOUBLES, assert_as_good, error, tensors

LAYERS = {
    "LSTM": lambda: nn.LSTM(5, 7),
    "LSTM, two layers, both ways": lambda: nn.LSTM(5, 7, 2, bidirectional=True),
    "LSTM, projected": lambda: nn.LSTM(5, 7, proj_size=3, bidirectional=True),
    "GRU, both ways": lambda: nn.GRU(5, 7, 2, bidirectional=True),
    "GRU without biases": lambda: nn.GRU(5, 7, bias=False),
    "RNN": lambda: nn.RNN(5, 7, bidirectional=True),
    "RNN, relu": lambda: nn.RNN(5, 7, nonlinearity="relu"),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setitem(sol.config, "autotune", "off")


class Net(nn.Module):
    """A typical model for sentences."""

    def __init__(self, layer, total=None, value=0.0):
        super().__init__()
        self.layer, self.total, self.value = layer, total, value

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, self.layer.batch_first, enforce_sorted=False)
        y, last = self.layer(packed)
        return *pad_packed_sequence(y, self.layer.batch_first, self.value, self.total), last


def results(model, x, *more):
    """A call's results, and the gradients of everything that has one."""
    x = x.clone().requires_grad_()
    made = tensors(model(x, *more))
    loss = [t for t in made if t.requires_grad]
    wanted = [torch.linspace(-1, 1, t.numel(), dtype=t.dtype).view(t.shape) for t in loss]
    return [t.detach() for t in made], list(torch.autograd.grad(loss, (x, *model.parameters()), wanted))


def compare(model, optimized, *args):
    exact = results(copy.deepcopy(model).double(), args[0].double(), *args[1:])
    assert_as_good(results(optimized, *args), results(model, *args), exact, 4)


@pytest.mark.parametrize("name", LAYERS)
def test_inside(name):
    """Unsorted lengths, then other lengths with the same shape, then the first lengths again with their program."""
    model = Net(LAYERS[name]())
    optimized = sol.optimize(model)
    for lengths in ([6, 2, 4], [1, 3, 3], [6, 2, 4]):
        compare(model, optimized, torch.randn(6, 3, 5), torch.tensor(lengths))
    assert len(optimized._sol.programs) == 2


def test_in_float64():
    model = Net(nn.LSTM(5, 7, 2, bidirectional=True)).double()
    args = torch.randn(6, 3, 5).double(), torch.tensor([2, 6, 4])
    for got, exact in zip(results(sol.optimize(model), *args), results(model, *args), strict=True):
        assert all(error(g, e) < DOUBLES for g, e in zip(got, exact, strict=True))


def test_batch_first_total_length_and_value():
    model = Net(nn.GRU(5, 7, batch_first=True), 8, -2.0)
    optimized = sol.optimize(model)
    x, lengths = torch.randn(3, 6, 5), torch.tensor([6, 2, 4])
    compare(model, optimized, x, lengths)
    for got, want in zip(tensors(optimized(x, lengths)), tensors(model(x, lengths)), strict=True):
        assert got.stride() == want.stride()


def test_what_lies_behind_the_ends_is_not_read():
    model, lengths = Net(nn.LSTM(5, 7, bidirectional=True)), torch.tensor([6, 2, 4])
    x, optimized = torch.randn(6, 3, 5), sol.optimize(model)
    x[2:, 1], x[4:, 2] = torch.nan, torch.inf
    got, want = results(optimized, x, lengths), results(model, x, lengths)
    torch.testing.assert_close(got, want)


def test_arguments_and_results():
    """A PackedSequence as argument and as result; a change of the sequences is noticed."""
    model = nn.LSTM(5, 7, bidirectional=True)
    optimized = sol.optimize(model)
    for lengths in ([5, 2, 4], [5, 3, 3], [4, 4, 3], [5, 2, 4]):
        packed = pack_sequence([torch.randn(n, 5) for n in lengths], enforce_sorted=False)
        with torch.no_grad():
            (got, last), (want, end) = optimized(packed), model(packed)
        assert type(got) is PackedSequence
        torch.testing.assert_close((tuple(got), last), (tuple(want), end))
    assert len(optimized._sol.programs) == 2
    assert len(sol.optimize(model, packed)._sol.programs) == 1
    state = torch.randn(2, 3, 7), torch.randn(2, 3, 7)
    torch.testing.assert_close(tuple(optimized(packed, state)[0]), tuple(model(packed, state)[0]))


def test_in_threads():
    """Equal shapes with different lengths, in several threads."""
    model = Net(nn.GRU(5, 7)).eval()
    optimized, wrong = sol.optimize(model), []
    calls = [(torch.randn(6, 3, 5), torch.tensor(n)) for n in ([6, 2, 4], [6, 3, 3], [4, 1, 1], [5, 5, 5])]
    with torch.no_grad():
        expected = [model(*c) for c in calls]

    def run(k):
        torch.set_num_threads(1)
        with torch.no_grad():
            for i in range(40):
                j = (i * (k + 1) + k) % len(calls)
                got, want = tensors(optimized(*calls[j])), tensors(expected[j])
                wrong.extend(j for g, w in zip(got, want, strict=True) if not torch.allclose(g, w, atol=1e-5))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and len(optimized._sol.programs) == 3  # two have equal totals and share a program


def test_torch_compile():
    model, x, lengths = Net(nn.LSTM(5, 7)).eval(), torch.randn(6, 3, 5), torch.tensor([6, 2, 4])
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="sol")(x, lengths), model(x, lengths))


def test_lengths():
    """For invalid lengths, the error is PyTorch's. Lengths may depend on weights."""
    with pytest.raises(sol.InvalidError, match=r"test_packed.py:\d+: .*greater than 0"):
        sol.optimize(Net(nn.GRU(5, 7)))(torch.randn(6, 3, 5), torch.tensor([6, 0, 4]))

    class Weighs(Net):
        def forward(self, x, lengths):
            return super().forward(x, (lengths * self.layer.weight_ih_l0.abs().amax().ceil()).long())

    model, given = Weighs(nn.GRU(5, 7)), (torch.randn(6, 3, 5), torch.tensor([6, 3, 4]))
    torch.testing.assert_close(sol.optimize(model)(*given), model(*given))
