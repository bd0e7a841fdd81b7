"""Recurrences that a team of threads computes: training, deployed libraries, many callers at once."""

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import pytest
import sol
import torch
from torch import nn

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor has no team")


@pytest.fixture(autouse=True)
def teams(monkeypatch):
    """Small recurrences are a team's, too."""
    monkeypatch.setitem(sol.config, "bands", "always")
    monkeypatch.setitem(sol.config, "compiler::verify", "1")


def gradients(model, x):
    for p in model.parameters():
        p.grad = None
    x = x.clone().requires_grad_()
    y = model(x)[0]
    (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("batch", [1, 3])
def test_training(cell, batch, monkeypatch):
    """The gradients of eager in both directions, and the same bits for any number of threads."""
    torch.manual_seed(1)
    reference = cell(24, 40, bidirectional=True)
    model = sol.optimize(deepcopy(reference), torch.randn(7, batch, 24))
    x = torch.randn(7, batch, 24)
    expected, first = gradients(reference, x), None
    for threads in (1, 2, 3, 5, 8):
        monkeypatch.setitem(sol.config, "threads", threads)
        found = gradients(model, x)
        first = first or found
        for f, same, e in zip(found, first, expected, strict=True):
            assert torch.equal(f, same), threads
            torch.testing.assert_close(f, e, rtol=1e-4, atol=1e-5)


def test_many_callers():
    """Teams of several calls at once do not wait for each other."""
    torch.manual_seed(2)
    reference = nn.GRU(32, 64, 2).eval()
    model, xs = sol.optimize(deepcopy(reference), torch.randn(9, 1, 32)), torch.randn(24, 9, 1, 32)
    with torch.no_grad(), ThreadPoolExecutor(6) as pool:
        expected = [model(x)[0] for x in xs]
        for _ in range(5):
            for y, e in zip(pool.map(lambda x: model(x)[0].detach(), xs), expected, strict=True):
                assert torch.equal(y, e)


@pytest.mark.parametrize("threads", [None, "0"], ids=["system", "bare"])
def test_deployed(threads, tmp_path):
    """The self-test's results, with 1 to 8 threads; without an operating system, one worker runs each stage."""
    torch.manual_seed(3)
    model, x = nn.LSTM(24, 40, bidirectional=True).eval(), torch.randn(7, 1, 24)
    keys = {"path": tmp_path, "lib_name": "libnet", "func_name": "net", "selftest": "1"}
    if threads:
        sol.deploy(model, "static_lib", {**keys, "threads": threads, "gcc::march": "x86-64-v3"}, x)
        said = subprocess.run(["make", "check"], cwd=tmp_path, text=True, capture_output=True, check=True).stdout
        assert "the self-test passed" in said
        return
    sol.deploy(model, "source", keys, x)
    assert any(re.search(r"\d, SOL_STEP_TEAM, \d", f.read_text()) for f in tmp_path.rglob("module*.c"))
    sol.deploy(model, "shared_lib", keys, x)
    code = "import libnet_numpy as libnet\nfor n in range(1, 9): print(libnet.selftest(threads=n))"
    python = os.path.abspath(".venv/bin/python")
    said = subprocess.run([python, "-c", code], cwd=tmp_path, text=True, capture_output=True, check=True).stdout
    assert len(re.findall(r"Found\(output=\d, .*compared=\d+\)", said)) == 8
