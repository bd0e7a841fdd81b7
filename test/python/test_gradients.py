"""Compares the gradients of every layer and setting in test_layers.py with PyTorch's, in float64 with the interpreter."""

import numpy as np
import pytest
import sol
import torch
from sol import _core
from test_layers import CASES, fill

NAMES = {
    "float64": "f64",
    "float32": "f32",
    "int64": "i64",
    "int32": "i32",
    "uint8": "u8",
    "int8": "i8",
    "bool": "bool",
}
TYPES = {"f64": torch.float64, "f32": torch.float32, "i64": torch.int64, "i32": torch.int32, "bool": torch.bool}
GIVEN = {"Graft"}  # the model defines its gradient, which is not the derivative: test_function.py
KINDS = sorted({kind for kind, *_ in CASES} - GIVEN)


def made(kind, inputs, attrs):
    """A graph of one layer, its inputs, its outputs, and which of these are real."""
    for nout in (3, 2, 1):
        graph = _core.Graph(kind)
        x = tuple(a if a is None else graph.input(f"x{i}", NAMES[str(a.dtype)], a.shape) for i, a in enumerate(inputs))
        try:
            y = graph.layer(kind, None, None, x, attrs, nout)
        except sol.Error:
            continue
        for i, t in enumerate(y):
            graph.output(f"y{i}", t)
        return graph, x, y
    return None


def numbers(inputs, kind):
    """The case's arrays. None: one has a type that cannot be tested here, or values without a gradient (inf, NaN)."""
    arrays = [fill(a, i, kind) if isinstance(a, tuple) else a for i, a in enumerate(inputs)]
    given = [a for a in arrays if a is not None]
    known = all(str(a.dtype) in NAMES for a in given)
    return arrays if known and all(np.isfinite(a).all() for a in given) else None


def expected(reference, inputs, wanted, weights):
    """The expected gradients. Weights of results without a gradient in PyTorch are removed."""
    leaves = [t.clone().requires_grad_() if i in wanted else t for i, t in enumerate(inputs)]
    results = reference(*leaves)
    results = results if isinstance(results, tuple | list) else [results]
    for i in [i for i in weights if not results[i].requires_grad]:
        del weights[i]
    if not weights:
        return None
    loss = sum((results[i] * w).sum() for i, w in weights.items())
    return torch.autograd.grad(loss, [leaves[i] for i in wanted], allow_unused=True)


def check(kind, arrays, attrs, reference):
    """Returns False if there is nothing to compare."""
    inputs = [a if a is None else torch.from_numpy(np.ascontiguousarray(a).reshape(a.shape)) for a in arrays]
    graph, x, y = made(kind, arrays, attrs) or (None, (), ())
    wanted = [i for i, t in enumerate(inputs) if t is not None and t.is_floating_point() and t.numel()]
    real = [i for i, t in enumerate(y) if t.dtype[0] == "f"]
    if not wanted or not real or any(t.dtype not in TYPES for t in y):
        return False
    weights = {i: torch.randn(y[i].shape, dtype=TYPES[y[i].dtype]) for i in real}
    try:
        right = expected(reference, inputs, wanted, weights)
    except (RuntimeError, TypeError):  # the reference uses something without a gradient in PyTorch
        return False
    if right is None:
        return False
    reached = graph.differentiate(tuple(weights), tuple(x[i] for i in wanted))
    outputs = [torch.empty(t.shape, dtype=TYPES[t.dtype]) for t in y]
    outputs += [torch.zeros_like(inputs[i]) for i, r in zip(wanted, reached, strict=True) if r]
    given = [t for t in [*inputs, *weights.values()] if t is not None]
    graph.interpret(tuple(t.numpy() for t in given), (), tuple(t.numpy() for t in outputs))
    gradients = iter(outputs[len(y) :])
    for i, r, want in zip(wanted, reached, right, strict=True):
        got = next(gradients) if r else torch.zeros_like(inputs[i])
        want = torch.zeros_like(got) if want is None else want
        most = want.nan_to_num().abs().max().item()
        assert torch.allclose(got, want, 1e-7, 1e-7 * most, equal_nan=True), (kind, attrs, i)
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind):
    compared = 0
    for number, (_, inputs, attrs, reference, _) in enumerate(c for c in CASES if c[0] == kind):
        arrays = numbers(inputs, kind)
        if arrays is None:
            continue
        torch.manual_seed(number)
        compared += check(kind, arrays, attrs, reference)
    if not compared:
        pytest.skip("no result or no input of it is real, or the reference has no gradient in PyTorch")


@pytest.mark.parametrize("bands", ["auto", "always"])
def test_gradients_of_inputs_in_front_of_a_norm(bands, monkeypatch):
    """The input's gradient is reordered after it is written, though its writer is a stage of a later band: the sums over
    the norm's gradient."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.BatchNorm2d(64), torch.nn.Conv2d(64, 32, 1)).eval()
    x, d = torch.randn(2, 64, 56, 56, requires_grad=True), torch.randn(2, 32, 56, 56)
    (right,) = torch.autograd.grad(model(x), x, d)
    monkeypatch.setitem(sol.config, "bands", bands)
    optimized = sol.optimize(model, x)
    (got,) = torch.autograd.grad(optimized(x), x, d)
    assert torch.allclose(got, right, 1e-5, 1e-5)
