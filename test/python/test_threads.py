"""Tracing sets global flags, and so does Dynamo, so they must not overlap in two threads."""

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


def test_settings_of_graphs_that_compile_at_once():
    """One thread compiles a graph with its own settings while another is in Dynamo: there is no deadlock."""

    def work(first):
        for n in range(first, first + 4):
            compiled = torch.compile(nn.Linear(n, 3).eval(), backend="sol", options={"autotune": "off"}, dynamic=False)
            with torch.no_grad():
                compiled(torch.ones(2, n))

    threads = [threading.Thread(target=work, args=(first,), daemon=True) for first in (1, 5, 9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not any(t.is_alive() for t in threads)


def test_a_rejection_in_two_threads():
    """Several threads make the first calls of a graph that is cut into parts."""

    def model(x):
        return torch.special.erfcx(x.sin().cos().exp().tanh()).sin().cos().exp().tanh()

    x, wrong = torch.randn(4, 4), []
    for _ in range(3):
        torch._dynamo.reset()
        compiled, barrier = torch.compile(model, backend="sol"), threading.Barrier(4)

        def work(compiled=compiled, barrier=barrier):
            barrier.wait()
            try:
                torch.testing.assert_close(compiled(x), model(x))
            except BaseException as e:
                wrong.append(e)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong


def test_a_flag_that_another_thread_has_set(monkeypatch):
    """While another thread compiles, this thread's calls still use SOL."""
    x = torch.ones(2, 4)
    optimized = sol.optimize(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), x)
    monkeypatch.setattr(torch.compiler, "_is_compiling_flag", True)
    monkeypatch.setattr(optimized._sol, "call", lambda *args: "by SOL", raising=False)
    assert optimized(x) == "by SOL"
