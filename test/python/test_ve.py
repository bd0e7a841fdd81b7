"""The device ve: NEC's own libveda (.venv-ve) on a double of the driver's library (test/ve), and code that the C compiler of this machine
makes. Where clang-19 is installed, kernels are compiled for the Vector Engine, too."""

import copy
import glob
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sol
import torch
from test_opencl import NETWORKS, Picking, difference

ROOT = Path(sol.__file__).parents[2]
DOUBLE = ROOT / "build/test/ve/libveo.so.1"
VEDA = glob.glob(str(ROOT / ".venv-ve/lib/python3*/site-packages/veda/lib64/libveda.so.2"))
OPTIONS = f"ve.libveo={DOUBLE},ve.libveda={VEDA[0] if VEDA else ''},ve.compiler="
pytestmark = pytest.mark.skipif(
    not DOUBLE.exists() or not VEDA, reason="VEDA is not installed (tools/setup.sh ve, make build)"
)


@pytest.fixture(autouse=True)
def ve(monkeypatch):
    monkeypatch.setenv("SOL_VE_DOUBLE", "delay=50")
    sol.config["device::options"] = OPTIONS + "cc"
    sol.device.set("ve")
    yield
    sol.config["device::options"] = ""


def some(*names):
    """Networks of the fast tests, and all others."""
    return [n if n in names else pytest.param(n, marks=pytest.mark.slow) for n in NETWORKS]


@pytest.mark.parametrize("name", some("transformer"))
def test_inference_and_training(name, torchvision):
    make, shape = NETWORKS[name]
    torch.manual_seed(2)
    model, x = make(torchvision).eval(), torch.rand(shape)
    exact = copy.deepcopy(model).double()
    got, want = sol.optimize(model, x)(x), exact(x.double())
    assert difference(got, want) < 1e-5
    weights = torch.rand(want.shape, dtype=torch.float64)
    (want * weights).sum().backward()
    (got * weights.float()).sum().backward()
    for (at, p), q in zip(model.named_parameters(), exact.parameters(), strict=True):
        assert difference(p.grad, q.grad) < 2e-4, at


def test_bad_data_names_the_step():
    model, x, good, bad = Picking(), torch.randn(3, 4), torch.tensor([1, 2, 9]), torch.tensor([1, 2, 10])
    fast = sol.optimize(model, x, good)
    for _ in range(2):
        torch.testing.assert_close(fast(x, good), model(x, good))
        with pytest.raises(sol.RunError, match=r"^network 'Picking', 'Embedding table\.embedding': an index is out of"):
            fast(x, bad)


def test_what_is_missing_is_said():
    sol.config["device::options"] = "ve.libveo=/nowhere/libveo.so.1,ve.compiler=/nowhere/ncc"
    why = next(d["why"] for d in sol.devices() if d["type"] == "ve")
    assert (
        why
        == "libveo.so.1: not found (NEC's AVEO); no compiler: neither ncc (NEC's SDK) nor clang-19 is installed (option ve.compiler)"
    )
    with pytest.raises(sol.UnsupportedError, match=r"libveo\.so\.1: not found"):
        sol.device.set("ve")


@pytest.mark.skipif(not shutil.which("clang-19"), reason="clang-19 is not installed (apt install clang-19)")
def test_kernels_compile_for_the_vector_engine(tmp_path):
    """A compiler that makes an object for the device of the kernels, and what runs on the double with cc. The runtime needs
    headers of NEC's C library, so it is compiled by cc alone."""
    compiler, objects = tmp_path / "both", tmp_path / "objects"
    compiler.write_text(
        f"""#!/bin/sh
case $1 in --version) exec cc --version ;; esac
for f; do case $f in
    */kernels.c) clang-19 --target=ve-linux -O2 -std=gnu11 -fPIC -w -c "$f" -o {tmp_path}/k.o && file {tmp_path}/k.o >> {objects} || exit 1 ;;
esac; done
exec cc "$@"
"""
    )
    compiler.chmod(0o755)
    sol.config["device::options"] = OPTIONS + str(compiler)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 5, 3), torch.nn.GELU(), torch.nn.Flatten(), torch.nn.Linear(5 * 25, 7)
    )
    x = torch.randn(2, 3, 7, 7)
    assert difference(sol.optimize(model, x)(x), copy.deepcopy(model).double()(x.double())) < 1e-5
    assert "NEC Vector Engine" in objects.read_text()


# -- what fails well: in a process of its own


def run_apart(text, double=""):
    begin = """
import os, sol, torch
from torch import nn
torch.manual_seed(0)
x = torch.ones(64, 300)
model = nn.Sequential(nn.Linear(300, 400), nn.ReLU(), nn.Linear(400, 30))
def call(*args):
    try:
        return fast(*args)
    except sol.Error as e:
        print(type(e).__name__, e, flush=True)
fast = sol.optimize(model, x)
"""
    place = {
        "PYTHONPATH": str(ROOT / "python"), "SOL_CACHE": sol.config["cache::folder"], "SOL_DEVICE": "ve",
        "SOL_DEVICE_OPTIONS": OPTIONS + "cc", "SOL_VE_DOUBLE": double,
    }  # fmt: skip
    command = [sys.executable, "-c", begin + text]
    done = subprocess.run(command, env={**os.environ, **place}, capture_output=True, text=True, timeout=120)
    assert not done.returncode, done.stderr[-2000:]
    return done.stdout.strip().splitlines()


def test_a_child_after_fork_is_told():
    lines = run_apart("expected = call(x)\npid = os.fork()\ncall(x)\nif not pid: os._exit(0)\nos.waitpid(pid, 0)")
    assert len(lines) == 1 and "a child process after fork() cannot use what it has there" in lines[0], lines


def test_memory_that_runs_out_is_an_error():
    lines = run_apart("y = call(x)\ncall(torch.ones(64, 300))", "memory=300000")
    assert lines and re.search("out of device memory|NOMEM|MemoryError", lines[0]), lines
