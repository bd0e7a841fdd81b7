"""Profiles: `sol.profile`, `sol bench --profile`, the trace, names in PyTorch's own profiler."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import sol
import torch

SOL = Path(__file__).resolve().parents[2] / "build" / "cli" / "sol"


@pytest.fixture(autouse=True)
def untuned(monkeypatch):
    monkeypatch.setitem(sol.config, "autotune", "off")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 16, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(16)
        self.last = torch.nn.Linear(16 * 24 * 24, 10)

    def forward(self, x):
        return self.last(self.norm(self.conv(x)).relu().flatten(1))


def named(profile, word, backward=False):
    return [k for k in profile.kernels if word in k.layers and k.backward is backward]


def test_inference():
    model, x = sol.optimize(Net().eval(), torch.randn(2, 8, 24, 24)), torch.randn(2, 8, 24, 24)
    p = sol.profile(model, x, runs=7)
    assert p.runs == 7 and sol.config["profile"] == "0" and not any(k.backward for k in p.kernels)
    (conv,) = named(p, "conv")
    (last,) = named(p, "last")
    assert conv.flops >= 2 * 2 * 16 * 24 * 24 * 8 * 9 and last.bytes >= 4 * 10 * 16 * 24 * 24
    assert conv.solver and conv.where.startswith("test_profile.py:")
    assert all(0 < k.least_us <= k.us for k in p.kernels) and sum(k.share for k in p.kernels) == pytest.approx(1)
    assert p.us <= p.call_us * 1.5
    times = [row["us"] for row in p.rows()]
    assert times == sorted(times, reverse=True) and p.rows()[0]["gflops"] > 0
    lines = str(p).splitlines()
    assert "Net: " in lines[0] and "median of 7 runs" in lines[0] and len(lines) == 3 + len(p.kernels)
    shown = [float(line.split()[0]) for line in lines[3:]]
    assert shown == sorted(shown, reverse=True)


def test_work_is_that_of_the_sizes_of_the_call():
    layer = torch.nn.Linear(64, 32).eval()
    varying = sol.optimize(layer, sol.input([0, 64]))
    for n in (3, 200):
        (got,), (fixed,) = (sol.profile(m, torch.randn(n, 64), runs=3).kernels for m in (varying, layer))
        assert got.flops == pytest.approx(fixed.flops, rel=1e-3) and got.bytes == pytest.approx(fixed.bytes, rel=1e-3)


def test_shares_of_the_machine(monkeypatch):
    monkeypatch.setitem(sol.config, "machine", "clock=2,fma=1,l2=200,l3=50,dram=1e-1")
    m = sol.machine()
    assert (m.source, m.clock, m.fma, m.l2_gbps, m.l3_gbps, m.memory_gbps) == ("given", 2, 1, 200, 50, 0.1)
    p = sol.profile(torch.nn.Linear(64, 32).eval(), torch.randn(16, 64), runs=3)
    (linear,) = named(p, "inear")
    assert linear.of_peak == pytest.approx(linear.gflops / m.gflops)
    assert linear.level == "L2" and linear.of_rate == pytest.approx(linear.gbps / 200)
    assert f"machine (given): {m.threads} threads, {m.gflops:.0f} GFLOP/s; reads L2 200, L3 50, " in str(p)
    (far,) = sol.profile(torch.nn.ReLU(), torch.randn(1 << 25), runs=2).kernels
    assert far.level == "mem" and far.of_rate == pytest.approx(far.gbps / 0.1)
    monkeypatch.setitem(sol.config, "machine", "fast")
    with pytest.raises(sol.InvalidError, match=r"machine: expected auto, assumed, or .* such as clock=4.*got 'fast'"):
        sol.optimize(torch.nn.Linear(65, 32).eval())(torch.randn(2, 65))


def test_training_changes_nothing():
    model, x = Net(), torch.randn(3, 8, 24, 24, requires_grad=True)
    optimized = sol.optimize(model, x)
    before = {n: t.clone() for n, t in model.state_dict().items()}
    p = sol.profile(optimized, x, runs=3)
    assert named(p, "conv") and [k for k in p.kernels if k.backward] and "backward: " in str(p)
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())
    assert x.grad is None and all(q.grad is None for q in model.parameters())


def test_other_models(tmp_path):
    x = torch.randn(2, 8, 24, 24)
    model = Net().eval()
    assert named(sol.profile(model, x, runs=2), "conv")  # an unoptimized model
    assert not hasattr(model, "_sol")
    path = tmp_path / "net.onnx"
    torch.onnx.export(model, (x,), path, dynamo=False)
    p = sol.profile(str(path), x.numpy(), runs=2)
    assert p.runs == 2 and p.name == "net.onnx" and len(p.kernels) > 1
    again = sol.profile(sol.optimize(str(path)), np.asarray(x), runs=2)
    assert [k.layers for k in again.kernels] == [k.layers for k in p.kernels]
    done = subprocess.run(
        [SOL, "bench", path, "--profile", "--rounds", "3"], capture_output=True, text=True, check=True
    )
    assert "GFLOP/s; median of 3 runs\n" in done.stdout and done.stdout.count("%") == 3 * len(p.kernels)


def test_short_times_are_not_zero():
    p = sol.profile(torch.nn.Linear(4, 4).eval(), torch.randn(1, 4), runs=1)
    first, _, _, row = str(p).splitlines()
    assert float(re.match(r"Linear: ([\d.]+) (?:us|ms), .*; median of 1 run$", first)[1]) > 0
    assert float(row.split()[0]) > 0
    assert float(re.match(r"<sol.Profile of Linear: kernels: 1, ([\d.]+) (?:us|ms), runs: 1>", repr(p))[1]) > 0


def test_rejected():
    with pytest.raises(sol.InvalidError, match="runs: expected a number from 1 to 64, got 0"):
        sol.profile(Net(), torch.randn(2, 8, 24, 24), runs=0)
    with pytest.raises(sol.InvalidError, match=r"sol\.profile: expected a torch\.nn\.Module, .* got <class 'int'>"):
        sol.profile(3)


def test_trace(tmp_path):
    p = sol.profile(sol.optimize(Net().eval(), torch.randn(2, 8, 24, 24)), torch.randn(2, 8, 24, 24), runs=2)
    p.trace(tmp_path / "trace.json")
    events = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert [e["name"] for e in events] == [k.layers for k in p.kernels]
    ends = [e["ts"] + e["dur"] for e in events]
    assert all(end <= e["ts"] + 0.01 for end, e in zip(ends, events[1:], strict=False))


def test_torch_profiler():
    """The profiler shows layers by name, forward and backward, only while it runs."""
    model, x = sol.optimize(Net(), torch.randn(3, 8, 24, 24)), torch.randn(3, 8, 24, 24)
    model(x).sum().backward()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        model(x).sum().backward()
    events = seen.events()
    names = [e.name for e in events]
    assert "SolNet" in names and any("SolNetBackward" in n for n in names) and "_Step" not in names
    steps = [e for e in events if e.name.startswith("sol: ")]
    assert any("Conv conv" in e.name for e in steps)
    for name in ("SolNet", "SolNetBackward"):
        (whole,) = (e.time_range for e in events if e.name == name)
        assert [e for e in steps if whole.start <= e.time_range.start <= e.time_range.end <= whole.end], name
    told = []
    sol._core.set_step(told.append)
    try:
        model(x)  # the profiler has ended, so nothing is reported
    finally:
        sol._core.set_step(None)
    assert not told
