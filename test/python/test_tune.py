"""Tuning from Python: equal results, tuned once for all processes; Ctrl-C; deploying."""

import os
import platform
import shutil
import signal
import subprocess
import sys

import pytest
import sol
import torch
from sol import _core
from torch import nn

pytestmark = pytest.mark.processor


class Net(nn.Module):
    """An expand, depthwise, project block between convolutions; about 200 us."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU())
        self.expand = nn.Sequential(nn.Conv2d(32, 96, 1), nn.ReLU6())
        self.depthwise = nn.Sequential(nn.Conv2d(96, 96, 3, 1, 1, groups=96), nn.ReLU6())
        self.project = nn.Conv2d(96, 32, 1)
        self.conv = nn.Conv2d(32, 64, 3, 1, 1)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = torch.relu(self.conv(x + self.project(self.depthwise(self.expand(x)))))
        return self.head(x.mean((2, 3)))


@pytest.fixture
def place(tmp_path):
    before = {key: sol.config[key] for key in ("cache::folder", "autotune")}
    sol.config["cache::folder"] = str(tmp_path / "cache")
    yield tmp_path
    for key, value in before.items():
        sol.config[key] = value


def wisdom(place):
    path = place / "cache" / "wisdom"
    return path.read_text().splitlines()[1:] if path.exists() else []


def networks(place):
    return [line for line in wisdom(place) if line.split("\t")[1] == "network"]


def near(a, b):
    assert (a - b).abs().max() <= 1e-4 * b.abs().max()


def test_tuned_once(place):
    x, model = torch.randn(1, 3, 112, 112), Net().eval()
    with torch.no_grad():
        expected = model(x)
        sol.config["autotune"] = "off"
        near(sol.optimize(model, x)(x), expected)
        assert not wisdom(place)
        sol.config["autotune"] = "3"
        tuned = sol.optimize(model, x)
        result = tuned(x)
        near(result, expected)
        assert len(networks(place)) == 1
        found = wisdom(place)
        assert len(found) > 1
        assert torch.equal(sol.optimize(model, x)(x), result)
        assert wisdom(place) == found
    # another process makes the same choice, without time for tuning
    torch.save((model.state_dict(), x, result), place / "state")
    code = f"""
import sys; sys.path.insert(0, {str(place)!r}); sys.path.insert(0, "test/python")
import sol, torch
from test_tune import Net
state, x, result = torch.load({str(place / "state")!r})
sol.config["cache::folder"] = {str(place / "cache")!r}
sol.config["autotune"] = "3"
model = Net().eval()
model.load_state_dict(state)
with torch.no_grad():
    assert torch.equal(sol.optimize(model, x)(x), result)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Tuning" not in done.stderr
    assert wisdom(place) == found


def test_interrupted(place):
    """Ctrl-C raises KeyboardInterrupt. The network does not count as tuned and can be optimized again. (tune_test.c:
    results found so far are stored.)"""
    x, model = torch.randn(1, 3, 112, 112), Net().eval()
    rounds = []

    def progress(what, done, total):
        if what and what.startswith("Tuning"):
            rounds.append(what)
            signal.raise_signal(signal.SIGINT)  # Python runs here, so this callback receives the signal

    sol.config["autotune"] = "120"
    _core.set_progress(progress)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            sol.optimize(model, x)(x)
    finally:
        signal.signal(signal.SIGINT, before)
        _core.set_progress(None)
    assert len(rounds) == 1 and not networks(place)
    sol.config["autotune"] = "off"
    with torch.no_grad():
        near(sol.optimize(model, x)(x), model(x))


def test_training_is_not_tuned(place):
    sol.config["autotune"] = "2"
    model = sol.optimize(Net(), torch.randn(1, 3, 112, 112))
    model(torch.randn(1, 3, 112, 112)).sum().backward()
    assert not wisdom(place)


def test_values(place):
    for value in ("off", "fast", "full", "7"):
        sol.config["autotune"] = value
        assert sol.config["autotune"] == value
    with pytest.raises(sol.InvalidError, match=r"off\|fast\|full"):
        sol.config["autotune"] = "always"


def test_deploy(place):
    """The library has the choices of the network that is tuned for it. Without tuning, nothing is measured."""
    x, model = torch.randn(1, 3, 112, 112), Net().eval()
    sol.config["autotune"] = "2"
    sol.deploy(model, "source", {"path": str(place / "off")}, x, autotuning=False)
    assert not wisdom(place)
    sol.deploy(model, "source", {"path": str(place / "on")}, x)
    assert len(networks(place)) == 1


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86 instruction sets")
def test_deploy_for_others(place):
    """Each instruction set that this machine supports is tuned once, and kernels use the solvers that won."""
    x, model = torch.randn(1, 3, 112, 112), Net().eval()
    sol.config["autotune"] = "2"
    dargs = {"path": str(place / "two"), "gcc::march": ["native", "x86-64-v2"]}
    sol.deploy(model, "source", dargs, x)
    assert len(networks(place)) == 2 and len({line.split("\t")[6] for line in networks(place)}) == 2
    for line in wisdom(place):
        _, solver, *_, machine, what, _ = line.split("\t")
        if "16B no fma" not in machine or solver in ("network", "band") or " > " in what:
            continue  # in a band (>) it computes one of several stages
        layers = what.removeprefix("Net: ")
        headers = [file.read_text().split("\nvoid ")[0] for file in (place / "two" / "x86_64_v2").glob("k*.c")]
        assert [h for h in headers if layers in h and f"by solver {solver} " in h], what
    found = wisdom(place)
    sol.deploy(model, "source", dargs, x)
    assert wisdom(place) == found


@pytest.mark.skipif(not shutil.which("aarch64-linux-gnu-gcc"), reason="no aarch64-linux-gnu-gcc")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="this machine is one")
def test_deploy_elsewhere(place, capfd):
    """Code that this machine cannot run is not tuned, and one line says so."""
    sol.config["autotune"] = "2"
    dargs = {"path": str(place / "arm"), "device_type": "arm64"}
    for tuning in (True, False):
        sol.deploy(Net().eval(), "source", dargs, torch.randn(1, 3, 112, 112), autotuning=tuning)
        lines = [line for line in capfd.readouterr().err.splitlines() if "][tune]" in line]
        assert len(lines) == tuning and all(
            "not for armv8-a (arm64), which this machine cannot run" in s for s in lines
        )
    assert not wisdom(place)


def test_wisdom_made(place):
    """bench/wisdom.py from start to end: writes a file for an instruction set with the clear gains, and drops entries
    of another version."""
    made = place / "made"
    made.mkdir()
    (made / "avx2.wisdom").write_text("SOL wisdom 1\nold\n")
    command = "bench/wisdom.py mobilenet_v1 --sets avx2 --seconds 2 --folder".split()
    out = subprocess.run([sys.executable, *command, str(made)], capture_output=True, text=True, timeout=600)
    if "x86-64-v3" in out.stdout:
        pytest.skip(f"no AVX2 here: {out.stdout}")
    assert out.returncode == 0, out.stderr
    assert "of another version" in out.stdout
    header, *lines = (made / "avx2.wisdom").read_text().splitlines()
    assert header.startswith("SOL wisdom ") and header != "SOL wisdom 1"
    assert f"avx2: mobilenet_v1: {len(lines)} kernels gained, {len(lines)} known" in out.stdout
    for line in lines:
        _, solver, _, ns, before, _, machine = line.split("\t")[:7]
        assert machine.startswith("x86 32B, ") and solver != "network" and float(before) >= 1.05 * float(ns)
    env = {**os.environ, "SOL_CACHE": str(place / "other")}
    merge = ["build/cli/sol", "wisdom", "merge", str(made / "avx2.wisdom")]
    merged = subprocess.run(merge, capture_output=True, text=True, env=env)
    assert merged.returncode == 0, merged.stderr
