"""The device ve: NEC's own libveda (.venv-ve) on a double of the driver's library (test/ve), and code that the C compiler of this machine
makes. Where clang-19 is installed, kernels are compiled for the Vector Engine, too."""

import copy
import glob
import re
import shutil
from pathlib import Path

import device_help
import pytest
import sol
import torch
from device_help import check_bad_data, check_training, difference, some

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


@pytest.mark.parametrize("name", some("transformer"))
def test_inference_and_training(name, torchvision):
    check_training(name, torchvision)


def test_bad_data_names_the_step():
    check_bad_data()


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
    return device_help.run_apart(text, "ve", OPTIONS + "cc", SOL_VE_DOUBLE=double)


def test_a_child_after_fork_is_told():
    lines = run_apart("expected = call(x)\npid = os.fork()\ncall(x)\nif not pid: os._exit(0)\nos.waitpid(pid, 0)")
    assert len(lines) == 1 and "a child process after fork() cannot use what it has there" in lines[0], lines


def test_memory_that_runs_out_is_an_error():
    lines = run_apart("y = call(x)\ncall(torch.ones(64, 300))", "memory=300000")
    assert lines and re.search("out of device memory|NOMEM|MemoryError", lines[0]), lines


@pytest.mark.slow
@pytest.mark.parametrize("number", [61, 62, 63, 64])
def test_a_request_that_fails_is_reported(number):
    """libveda waits for a failed request again and again, so its context works no more: each call is an error that names what failed, and
    the process ends as others do."""
    *lines, last = run_apart(
        f"expected = call(x)\nos.environ['SOL_VE_DOUBLE'] = 'fail_at={number}'\nfor _ in range(30): y = call(x)\n"
        "print(y is None)"
    )
    assert last == "True" and len(lines) > 1, lines
    lines = [line for line in lines if "[INFO ]" not in line]
    assert all(
        re.match(r"InternalError (network 'Sequential', .*)?device ve:0: .*: VEDA_ERROR", line) for line in lines
    ), lines
