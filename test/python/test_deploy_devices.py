"""sol.deploy for devices with memory of their own: the programs of test_deploy.py, which call libraries for processors, call those for
OpenCL, and for doubles of NVIDIA's and NEC's drivers."""

import glob
import shutil
from pathlib import Path

import numpy as np
import pytest
import sol
import test_deploy
import test_deploy_sizes
import torch
from test_deploy import build, deploy, digits, drive, expected_losses, finetune, many, recurrent, sh, small
from torch import nn

ROOT = Path(sol.__file__).parents[2]
CUDA = ROOT / "build/test/libcuda_double.so"
VEO = ROOT / "build/test/ve/libveo.so.1"
VEDA = glob.glob(str(ROOT / ".venv-ve/lib/python3*/site-packages/veda/lib64/libveda.so.2"))
OPTIONS = {
    "opencl": "",
    "nvidia": f"nvidia.libcuda={CUDA},nvidia.nvrtc={CUDA},nvidia.cublas={CUDA},nvidia.cudnn={CUDA}",
    "ve": f"ve.libveo={VEO},ve.libveda={VEDA[0] if VEDA else ''},ve.compiler=cc",
}
HERE = {"opencl": True, "nvidia": CUDA.exists(), "ve": VEO.exists() and bool(VEDA)}


@pytest.fixture
def place(request, monkeypatch):
    name = request.param
    found = {d["type"] for d in sol.devices() if not d["why"]}
    if not HERE[name] or (name == "opencl" and name not in found):
        pytest.skip(f"{name}: neither it nor a double of it is there")
    monkeypatch.setitem(test_deploy.PATH, "SOL_DEVICE_OPTIONS", OPTIONS[name])
    sol.config["device::options"] = OPTIONS[name]
    yield name
    sol.config["device::options"] = ""


def on(*fast):
    """A test for each device; for those that are not named, a slow one."""
    return pytest.mark.parametrize(
        "place", [pytest.param(n, marks=[] if n in fast else pytest.mark.slow) for n in OPTIONS], indirect=True
    )


@on("nvidia")
@pytest.mark.parametrize("target", ["shared_lib", pytest.param("source", marks=pytest.mark.slow)])
def test_calls(place, target, tmp_path):
    """Contexts of the library, in blocks, and in threads give the same bits, and all memory is given back. A child after fork() is told
    what it cannot do."""
    model, inputs = small()
    deploy(tmp_path, target, model, inputs, device_type=place)
    build(tmp_path, target)
    drive(tmp_path, model, inputs)
    drive(tmp_path, model, inputs, "threads")


@on("ve")
def test_types(place, tmp_path):
    model, inputs = many()
    deploy(tmp_path, "static_lib", model, inputs, device_type=place)
    build(tmp_path, "static_lib")
    drive(tmp_path, model, inputs)


@on()
def test_recurrence(place, tmp_path):
    model, inputs = recurrent()
    deploy(tmp_path, "shared_lib", model, inputs, device_type=place, weights="file")
    build(tmp_path, "shared_lib")
    drive(tmp_path, model, inputs)


@on("ve")
def test_sizes_that_vary(place, tmp_path):
    model, inputs, data = test_deploy_sizes.mlp()
    deploy(tmp_path, "shared_lib", model, inputs, device_type=place)
    test_deploy_sizes.program(tmp_path, "shared_lib", test_deploy_sizes.names_of(inputs))
    test_deploy_sizes.drive(tmp_path, model, data, test_deploy_sizes.SIZES[test_deploy_sizes.mlp])


@on()
def test_batch_sizes(place, tmp_path):
    model, _ = small()
    x = {n: torch.randn(n, 3, 12, 14) for n in (2, 5)}
    dargs = {"path": tmp_path, "lib_name": "libnet", "func_name": "net", "device_type": place}
    sol.deploy(model, "shared_lib", dargs, sol.input([0, 3, 12, 14]), batch_size=list(x))
    for n, data in x.items():
        (tmp_path / f"x{n}").write_bytes(data.numpy().tobytes())
    build(tmp_path, "shared_lib", flags=["-DSIZES=2,5", "-DTHERE"], source="batches.c")
    sh(tmp_path, "./driver")
    for n, data in x.items():
        y = np.frombuffer((tmp_path / f"y{n}").read_bytes(), "f").reshape(n, 10)
        with torch.no_grad():
            np.testing.assert_allclose(y, model(data).numpy(), rtol=1e-4, atol=2e-5)


@on("ve")
def test_training(place, tmp_path):
    """The example's losses equal PyTorch's, step by step."""
    model, x, y = digits()
    deploy(tmp_path, "shared_lib", model, (x,), training=True, device_type=place)
    build(tmp_path, "shared_lib", source="../../examples/finetune.c")
    losses = finetune(tmp_path, "adam", x, y, 12)
    np.testing.assert_allclose(losses, expected_losses(model, "adam", x, y, 12), rtol=2e-3, atol=2e-4)


# -- tensors of the device


class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 5)

    def forward(self, i):
        return self.words(i).sum(1)


@pytest.mark.parametrize("place", ["nvidia", pytest.param("ve", marks=pytest.mark.slow)], indirect=True)
def test_native(place, tmp_path):
    model, inputs = small()
    deploy(tmp_path, "shared_lib", model, inputs, device_type=place, host_type="native")
    assert "int net_to_device(void *to, const void *from, size_t bytes);" in (tmp_path / "libnet.h").read_text()
    build(tmp_path, "shared_lib", source="native.c")
    drive(tmp_path, model, inputs)
    assert "\noutput: f32, 2 dimensions, 80 bytes: " in sh(tmp_path, "make", "run")


@on("nvidia", "ve")
def test_bad_data_names_the_step(place, tmp_path):
    deploy(tmp_path, "shared_lib", Lookup().eval(), (torch.zeros(2, 3, dtype=torch.int64),), device_type=place)
    code = """
import numpy as np, libnet_numpy as l
good = l.run(np.zeros((2, 3), np.int64))
for i in range(3):
    try:
        l.run(np.full((2, 3), 9))
        raise SystemExit("no error")
    except RuntimeError as e:
        print(e)
assert (l.run(np.zeros((2, 3), np.int64)) == good).all()
"""
    said = sh(tmp_path, test_deploy_sizes.PYTHON, "-c", code).splitlines()
    assert len(said) == 3 and all("an index is out of range" in line and "words" in line for line in said)


@on("opencl")
def test_a_device_that_is_not_there(place, tmp_path, monkeypatch):
    deploy(tmp_path, "shared_lib", *small(), device_type=place)
    monkeypatch.setitem(test_deploy.PATH, "SOL_DEVICE_OPTIONS", "nvidia.libcuda=/nowhere,ve.libveo=/nowhere")
    monkeypatch.setitem(test_deploy.PATH, "OCL_ICD_VENDORS", "/nowhere")
    code = "import numpy as np, libnet_numpy as l\ntry: l.run(np.zeros((2, 3, 12, 14), 'f'))\nexcept RuntimeError as e: print(e)"
    assert sh(tmp_path, test_deploy_sizes.PYTHON, "-c", code).startswith(f"net: device {place}: ")


# -- what is rejected


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"pack": "ahead"}, "pack: the device packs weights"),
        ({"selftest": "1"}, "selftest: the reference values"),
        ({"gcc::march": "x86-64-v3"}, "gcc::march: the code of the host"),
        ({"host_type": "nowhere"}, "host_type: expected auto, transparent, native, x86"),
        ({"device_type": "opencl", "host_type": "native"}, "its memory has no addresses"),
        ({"device_type": "x86", "nvidia::cc": "80"}, "nvidia::cc: device_type is x86"),
        ({"device_type": "gpu"}, "device_type: expected auto, x86, .*, opencl, nvidia, ve, got 'gpu'"),
    ],
)
def test_rejected_keys(keys, message, tmp_path):
    with pytest.raises(sol.Error, match=message):
        sol.deploy(*small()[:1], "static_lib", {"path": tmp_path, "device_type": "nvidia", **keys}, *small()[1])


class Counted(nn.Module):
    """Layers without loops that have kernels: sums by index, and an order."""

    def forward(self, x, i):
        return torch.zeros(7, 5).index_add(0, i, x).cumsum(0), x.argsort(dim=0, stable=True), x.topk(3).values


@on("nvidia")
def test_writes_by_index_and_sorting(place, tmp_path):
    inputs = torch.randn(1500, 5), torch.randint(0, 7, (1500,))
    if place == "ve":  # its programs have the host compute these, which libraries do not
        with pytest.raises(
            sol.UnsupportedError, match=r"layer '.*' \(IndexPut\) at .*: device ve has no kernel for it"
        ):
            deploy(tmp_path, "shared_lib", Counted(), inputs, device_type=place)
        return
    deploy(tmp_path, "shared_lib", Counted(), inputs, device_type=place)
    build(tmp_path, "shared_lib")
    drive(tmp_path, Counted(), inputs)


@on("nvidia")
def test_layers_of_the_host_are_rejected_by_name(place, tmp_path):
    class Inverse(nn.Module):
        def forward(self, x):
            return torch.linalg.inv(x)

    match = rf"layer '.*' \(Inverse\) at .*: device {place} has no kernel for it"
    with pytest.raises(sol.UnsupportedError, match=match):
        deploy(tmp_path, "shared_lib", Inverse(), (torch.eye(9),), device_type=place)


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
@pytest.mark.parametrize("place", ["nvidia"], indirect=True)
def test_compute_capability(place, tmp_path):
    deploy(tmp_path, "static_lib", *small(), device_type=place, nvidia__cc="80")
    assert "/* -- instruction sets: nvidia sm_80 */" in (tmp_path / "libnet.h").read_text()
