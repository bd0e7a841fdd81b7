"""Sizes of 0 and 1 where sizes vary, in inference and training: what PyTorch computes, or one message where it rejects them."""

import copy
import itertools

import pytest
import sol
import torch
from torch import nn
from torch.nn import functional as F
from torch_help import tensors


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setitem(sol.config, "autotune", "off")


class Made(nn.Module):
    """A model of a function, which gets its layers first."""

    def __init__(self, function, *layers):
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, *args):
        return self.function(self.layers, *args)


def gathered(layers, table, i, x):
    """Rows of a table, and sums of rows by number."""
    y = layers[0](table)
    return y[i] * x, y.index_add(0, i, x), torch.zeros_like(y).scatter_reduce(0, i[:, None].expand_as(x), x, "amax")


def parts(layers, a, b):
    """Concatenation, sorting, sums and softmax over sizes that vary."""
    y = layers[0](torch.cat([a, b], 1))
    return y.softmax(1), y.cumsum(1), y.sort(1).values, y.sum(1), y.flip(1)[:, 1:], F.pad(y, (0, 0, 2, 1))


CASES = {  # a model, arguments for sizes, sizes of the example
    "linear": (lambda: nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 3)), lambda b, t: (torch.randn(b, t, 6),), (4, 5)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 5, 1), nn.AdaptiveAvgPool2d(2)),
        lambda b, h, w: (torch.randn(b, 3, h, w),),
        (2, 9, 8),
    ),
    "norms": (
        lambda: nn.Sequential(nn.Conv1d(4, 8, 1), nn.BatchNorm1d(8), nn.SiLU(), nn.GroupNorm(2, 8)),
        lambda b, t: (torch.randn(b, 4, t),),
        (3, 7),
    ),
    "layer norm": (lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 4)), lambda b, t: (torch.randn(b, t, 6),), (2, 5)),
    "attention": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        lambda b, t: (torch.randn(b, t, 8),),
        (3, 6),
    ),
    "lstm": (lambda: nn.LSTM(5, 7, batch_first=True), lambda b, t: (torch.randn(b, t, 5),), (2, 6)),
    "gather": (
        lambda: Made(gathered, nn.Linear(6, 6)),
        lambda n, m: (torch.randn(n, 6), torch.randint(0, max(n, 1), (m,)), torch.randn(m, 6)),
        (5, 8),
    ),
    "parts": (
        lambda: Made(parts, nn.Linear(4, 4)),
        lambda b, s, t: (torch.randn(b, s, 4), torch.randn(b, t, 4)),
        (3, 4, 5),
    ),
    "set by data": (
        lambda: Made(lambda layers, x: layers[0](x[x[:, 0] > 0]).relu(), nn.Linear(6, 4)),
        lambda n: (torch.randn(n, 6),),
        (9,),
    ),
}  # fmt: skip
# Sizes that PyTorch rejects: no pixels, one value for each channel in training, no steps, indices into an empty table.
REJECTED = {
    "convolution": lambda sizes: 0 in sizes[1:],
    "norms": lambda sizes: 0 in sizes or sizes == (1, 1),
    "lstm": lambda sizes: sizes[1] == 0,
    "gather": lambda sizes: sizes[0] == 0 and sizes[1],
}


def attempt(function):
    """The result, or the exception."""
    try:
        return function(), None
    except (RuntimeError, ValueError, IndexError, sol.Error) as e:
        return None, e


def gradients(model, args):
    model.zero_grad()
    args = [a.clone().requires_grad_() if a.is_floating_point() else a for a in args]
    results = tensors(model(*args))
    sum((y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum() for y in results).backward()
    return [*results, *(p.grad for p in model.parameters()), *(a.grad for a in args if a.is_floating_point())]


def results(model, args):
    with torch.no_grad():
        return tensors(model(*args))


@pytest.mark.parametrize("run", [results, gradients])
@pytest.mark.parametrize("name", CASES)
def test_sizes_of_0_and_1(name, run):
    torch.manual_seed(0)
    make, data, example = CASES[name]
    model = make().train(run is gradients)
    optimized = sol.optimize(copy.deepcopy(model), *data(*example), vdims=True)
    for sizes in [example, *itertools.product(*((0, 1, n + 1) for n in example))]:
        args = data(*sizes)
        (want, error), (got, mine) = attempt(lambda a=args: run(model, a)), attempt(lambda a=args: run(optimized, a))
        assert (error is None) == (mine is None), f"{sizes}: PyTorch: {error}; SOL: {mine}"
        if error is not None:
            assert isinstance(mine, sol.Error) and REJECTED[name](sizes), f"{sizes}: PyTorch: {error}; SOL: {mine}"
            continue
        for a, b in zip(got, want, strict=True):
            assert (a is None) == (b is None), sizes
            if b is not None:
                torch.testing.assert_close(
                    a, b, rtol=1e-4, atol=2e-5, equal_nan=True, msg=lambda m, s=sizes: f"{s}: {m}"
                )


class Scores(nn.Module):
    def forward(self, x):
        return (torch.cumsum(torch.cumsum(x @ x.transpose(-1, -2), -1).flip(-1), -2) @ x).sum(-1)


@pytest.mark.parametrize("train", [False, True])
def test_out_of_memory(train):
    """The message names the network and the sizes; smaller ones go on."""
    model = sol.optimize(Scores(), torch.randn(2, 16, 4), vdims=True)
    with torch.set_grad_enabled(train):
        small = torch.randn(3, 20, 4, requires_grad=train)
        with pytest.raises(
            sol.OutOfMemoryError,
            match=r"network 'Scores' with '#0' 2, '#1' 3145728, '#2' 4, whose peak is \d+ bytes: "
            r"(out of memory: .* needs \d+ bytes|the \w+: device far:0: out of device memory: \d+ bytes are wanted)",
        ):
            model(torch.zeros(2, 3 << 20, 4, requires_grad=train))
        with pytest.raises(sol.Error, match=r"Scores.*: a tensor would be larger than 2\^47 bytes"):
            model(torch.zeros(2, 1 << 23, 4, requires_grad=train))
        assert torch.allclose(model(small), Scores()(small), rtol=1e-4, atol=1e-3)


def routed(layers, x):
    """Each expert takes the rows that are routed to it: as many as data says."""
    made = torch.zeros_like(x)
    choice = layers[0](x).argmax(-1)
    for n, expert in enumerate(layers[1:]):
        rows = torch.where(choice == n)[0]
        made = made.index_add(0, rows, expert(x[rows]))
    return made


def spectrum(layers, x):
    power = torch.stft(x, 16, 4, 16, torch.hann_window(16, dtype=x.dtype), return_complex=True).abs().pow(2)
    return layers[0]((power + 1e-3).log().transpose(1, 2))


def messages(layers, nodes, ends, kinds):
    """len() takes the number of edges as a number of Python, which is that of the kinds of edges, too."""
    made = layers[0](torch.cat([nodes[ends[0]], kinds], 1))
    count = torch.zeros(len(nodes), 1).index_add(0, ends[1], torch.ones(len(made), 1))
    return torch.zeros_like(nodes).index_add(0, ends[1], made) / count.clamp(min=1), torch.cat([made, kinds], 1)


OTHERS = {
    "routed": (lambda: Made(routed, *(nn.Linear(6, 6) for _ in range(3))), lambda n: (torch.randn(n, 6),), 7),
    "spectrum": (lambda: Made(spectrum, nn.Linear(9, 5)), lambda n: (torch.randn(2, 9 * n),), 5),
    "messages": (
        lambda: Made(messages, nn.Linear(8, 5)),
        lambda n: (torch.randn(4, 5), torch.randint(4, (2, n)), torch.randn(n, 3)),
        9,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_gradients_in_eval_mode(name):
    """Sizes that data sets, of complex numbers, and that Python takes as numbers."""
    torch.manual_seed(0)
    make, data, example = OTHERS[name]
    model = make().eval()
    optimized = sol.optimize(copy.deepcopy(model), *data(example), vdims=True)
    for n in (example, example + 4, 4):
        args = data(n)
        for a, b in zip(gradients(optimized, args), gradients(model, args), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5)
        for a, b in zip(results(optimized, args), results(model, args), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5)
    if name == "spectrum":
        assert len(optimized._sol.programs) <= 3  # inference and training; a length of its own for the shortest
