"""Tracing sets flags of the whole process, and so does Dynamo: they must not meet in two threads."""

import threading

import pytest
import sol
import torch
from torch import nn


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_dynamo_and_sol_compile_at_once():
    raised = []

    def guarded(work):
        try:
            for n in range(1, 12):
                work(n)
        except BaseException as e:
            raised.append(e)

    def by_dynamo(n):
        torch._dynamo.reset()
        torch.compile(nn.Linear(n, 3), backend="eager")(torch.ones(2, n))

    def by_sol(n):
        sol.optimize(nn.Linear(n, 3).eval(), torch.ones(2, n))

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (by_dynamo, by_sol, by_sol)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not raised
    assert not torch.compiler.is_compiling() and not torch.compiler.is_exporting()


def test_a_flag_that_another_thread_has_set(monkeypatch):
    """While another thread compiles, calls of this one are SOL's all the same."""
    x = torch.ones(2, 4)
    optimized = sol.optimize(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), x)
    monkeypatch.setattr(torch.compiler, "_is_compiling_flag", True)
    monkeypatch.setattr(optimized._sol, "call", lambda *args: "by SOL", raising=False)
    assert optimized(x) == "by SOL"
