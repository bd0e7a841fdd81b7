"""Networks with all free dimensions open, at five sizes each, forward and backward, against float64; and how many programs that takes.

`make test` runs a sample, `make test-all` every network of networks.py, zoo.py and families.py.
"""

import copy
import random
from unittest import mock

import dims_help
import families
import networks
import numpy as np
import pytest
import sol
import torch
import zoo
from torch.utils import _pytree as pytree
from torch_help import TIMES_WINOGRAD, assert_as_good, in_double, tensors, to_double

SAMPLE = ("linear", "gpt_rotary", "lstm", "tcn", "pointnet", "twins", "experts", "table", "bert (masked LM)")
TRAINED = ("linear", "experts")
PICTURE = (96, 128)  # where a network takes any
FIXED = ("vit_b_16", "vit_b_32", "maxvit_t")  # take 224 x 224 alone
ALL = (*networks.KNOWN, *networks.OTHERS, *networks.MORE, *zoo.NETWORKS, *families.FAMILIES)

# Networks that need more than one program for the five sizes, and why.
ONES = "a batch of 1 has a graph of its own: its values are broadcast"
PROGRAMS = {
    "xlnet": (2, ONES),
    "fnet": (5, "the Fourier transform of a length is a product with a table of that size"),
}
# Networks of which no trace is possible with sizes that vary, and why: each size is compiled.
EACH = {
    "xlm": "forward reads values",
    "longformer": "forward reads values",
    "reformer": "forward reads values",
    "switch": "forward reads values",
    "dbrx": "forward reads values",
    "nystromformer": "must match the size of tensor",  # its mean over segments is of the example's length
}


@pytest.fixture(autouse=True)
def untuned(torchvision, monkeypatch):
    monkeypatch.setitem(sol.config, "autotune", "off")


def made(name, torchvision):
    """A network, and arguments for a batch of two."""
    torch.manual_seed(0)
    if name in families.FAMILIES:
        pytest.importorskip("transformers")
        model, kwargs = families.make(name)
        return model, (), kwargs
    if name in zoo.NETWORKS:
        model, *args = zoo.NETWORKS[name]()
        return networks.enliven(model), tuple(args), {}
    model, inputs = networks.network(name, torchvision)
    if name not in FIXED:
        inputs = networks.network_inputs(name, torchvision, PICTURE)
    return model, inputs(2), {}


def results(model, args, kwargs):
    with torch.no_grad():
        return tensors(model(*args, **kwargs))


def gradients(model, args, kwargs):
    """By parameter, of a loss that reads every result with a gradient."""
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    model.zero_grad()
    read = [t for t in tensors(model(*args, **kwargs)) if t.requires_grad]
    sum((t * torch.linspace(-1, 1, t.numel(), dtype=t.dtype).view(t.shape)).sum() for t in read).backward()
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def assert_results(optimized, model, double, given):
    exact = in_double(lambda: results(double, *to_double(given)))
    assert_as_good(results(optimized, *given), results(model, *given), exact, TIMES_WINOGRAD)


def assert_gradients(optimized, model, double, given):
    """ViLT takes its patches in their order: it chooses them with torch.multinomial, whose numbers are SOL's own."""
    with mock.patch("torch.multinomial", lambda weights, n, replacement=False: torch.arange(n)):
        exact = in_double(lambda: gradients(double, *to_double(given)))
        eager, got = gradients(model, *given), gradients(optimized, *given)
    assert got.keys() == eager.keys() == exact.keys()
    scale = max(g.norm().item() for g in exact.values())
    real = [n for n, g in exact.items() if g.norm() > 1e-6 * scale]  # others are 0 up to rounding
    assert_as_good([got[n] for n in real], [eager[n] for n in real], [exact[n] for n in real], 4, 1e-5)


def check(name, torchvision, compare):
    """One program serves five sizes, or as many as the table has."""
    model, args, kwargs = made(name, torchvision)
    if name in EACH:
        with pytest.raises(sol.UnsupportedError, match=EACH[name]):
            sol.dims(model, *args, **kwargs)
        return
    optimized, double = sol.optimize(copy.deepcopy(model), *args, vdims=True, **kwargs), families.plain(model).double()
    model = families.plain(model)
    leaves, spec = pytree.tree_flatten((args, kwargs))
    for sizes in dims_help.chosen(optimized):
        given = pytree.tree_unflatten(dims_help.resized(optimized, args, kwargs, leaves, sizes), spec)
        compare(optimized, model, double, given)
    ran = [p for p in optimized._sol.programs.values() if (p.gradient is not None) == (compare is assert_gradients)]
    assert len(ran) == PROGRAMS.get(name, (1, ""))[0]


def rows(sample):
    return [pytest.param(n, marks=() if n in sample else pytest.mark.slow) for n in ALL]


@pytest.mark.parametrize("name", rows(SAMPLE))
def test_forward(name, torchvision):
    check(name, torchvision, assert_results)


@pytest.mark.parametrize("name", [r for r in rows(TRAINED) if r.values[0] not in families.TRAINED_ONLY])
def test_backward(name, torchvision):
    check(name, torchvision, assert_gradients)
