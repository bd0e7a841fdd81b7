"""All networks of the tests, by name, and comparisons of an optimized one with PyTorch and float64, forward and backward."""

import copy
import random
from unittest import mock

import families
import networks
import numpy as np
import pytest
import torch
import torch.nn.functional as F
import zoo
from torch_help import (
    TIMES_WINOGRAD,
    assert_as_good,
    contiguous_gradient,
    error,
    in_double,
    tensors,
    to_double,
)

FIXED = ("vit_b_16", "vit_b_32", "maxvit_t")  # take 224 x 224 alone
ALL = (*networks.KNOWN, *networks.OTHERS, *networks.MORE, *zoo.NETWORKS, *families.FAMILIES)


def made(name, torchvision, picture):
    """A network in eval mode, and its arguments and keyword arguments for a batch of two; `picture`: height and width, where it takes any."""
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
        inputs = networks.network_inputs(name, torchvision, picture)
    return model, inputs(2), {}


def results(model, args, kwargs):
    with torch.no_grad():
        return tensors(model(*args, **kwargs))


def gradients(model, args, kwargs):
    """By parameter, of a loss that reads every result with a gradient. Its weights differ between neighbours: if they were almost equal
    in a row, a normalization would leave nearly nothing of them but rounding errors."""
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    model.zero_grad()
    read = [t for t in tensors(model(*args, **kwargs)) if t.requires_grad]
    sum(
        (t * torch.arange(t.numel(), dtype=torch.float64).cos().to(t.dtype).view(t.shape)).sum() for t in read
    ).backward()
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def assert_results(optimized, model, double, given):
    """Results are as near to those of `double`, the model in float64, as PyTorch's. given: arguments, keyword arguments."""
    exact = in_double(lambda: results(double, *to_double(given)))
    assert_as_good(results(optimized, *given), results(model, *given), exact, TIMES_WINOGRAD)


def assert_gradients(optimized, model, double, given):
    """The same for the gradients of all parameters. ViLT takes its patches in their order: it chooses them with torch.multinomial, whose
    numbers are SOL's own."""
    with mock.patch("torch.multinomial", lambda weights, n, replacement=False: torch.arange(n)):
        exact, eager = in_double(lambda: reference(double, *to_double(given))), reference(model, *given)
        got = gradients(optimized, *given)
        assert got.keys() == eager.keys() == exact.keys()
        scale = max(g.norm().item() for g in exact.values())
        real = [n for n, g in exact.items() if g.norm() > 1e-6 * scale]  # others are 0 up to rounding

        def draw(rounded):
            near = rounded.near(double)
            with rounded:
                drawn = in_double(lambda: reference(near, *to_double(given)))
            return [drawn[n] for n in real]

        assert_as_good([got[n] for n in real], [eager[n] for n in real], [exact[n] for n in real], 4, 1e-5, draw)


def assert_gradients_in_double(optimized, double, given):
    """Gradients of networks in float64 whose kinks hide errors in float32."""
    exact, got = reference(double, *given), gradients(optimized, *given)
    assert got.keys() == exact.keys()
    scale = max(g.norm().item() for g in exact.values())
    real = [n for n, g in exact.items() if g.norm() > 1e-6 * scale]
    assert max(error(got[n], exact[n]) for n in real) < 1e-12


def reference(model, args, kwargs):
    """PyTorch's gradients; of a copy, since LeViT keeps tensors of a call, through which a second one could not go back."""
    with mock.patch.object(F, "batch_norm", contiguous_gradient):
        return gradients(copy.deepcopy(model), args, kwargs)
