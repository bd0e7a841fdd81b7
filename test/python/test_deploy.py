"""sol.deploy: C programs in a separate folder compile and run what is deployed, as an application would."""

import copy
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sol
import torch
from networks import FAMILIES, OTHERS, network
from torch import nn

HERE = Path(__file__).parent.parent / "deploy"
PATH = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere"}  # no SOL, no .venv
TARGETS = ("shared_lib", "static_lib", "source")
CROSS = {
    "arm64": ("aarch64-linux-gnu", "qemu-aarch64"),
    "arm": ("arm-linux-gnueabihf", "qemu-arm"),
    "riscv64": ("riscv64-linux-gnu", "qemu-riscv64"),
}


class Small(nn.Module):
    """Convolutions by several solvers, norms, a reduction, a linear layer."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 24, 3, padding=1), nn.BatchNorm2d(24)
        self.c, self.out = nn.Conv2d(24, 24, 5, padding=2, groups=24), nn.Linear(24, 10)

    def forward(self, x):
        x = torch.relu(self.c(torch.relu(self.norm(self.b(torch.relu(self.a(x)))))))
        return torch.softmax(self.out(x.mean((2, 3))), -1)


class Many(nn.Module):
    """Several inputs and outputs, of several types."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 8)

    def forward(self, ids, scale, flags):
        y = self.words(ids) * scale
        return {
            "y": y.transpose(1, 2),
            "best": y.argmax(-1),
            "any": flags & (y.sum(-1) > 0),
            "wide": y.double().sum((1, 2)),
        }


class Counting(nn.Module):
    """Writes its own buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x + self.calls


class Placing(nn.Module):
    """Layers without loops: sorting, and writing by index."""

    def forward(self, x, i, u):
        values, order = x.sort(dim=-1, descending=True, stable=True)
        top = x.topk(3, 1)
        y = x.scatter_add(1, i, u) + x.scatter(0, i % 4, u) + x.scatter_reduce(1, i, u, "amax")
        z = x.clone()
        z[i[:, 0] % 4, i[:, 1]] = u[:, 0]
        w = x.index_put((i[0, :2] % 4,), u[:2, :1], accumulate=True)
        return (
            values,
            order,
            top.values,
            top.indices,
            y,
            z,
            w,
            (x > 0).sort(dim=-1, stable=True).indices,
            i.sort(0).values,
        )


class Matrices(nn.Module):
    """Layers without loops: linear algebra."""

    def forward(self, a, x):
        linalg, definite = torch.linalg, a @ a.mT + torch.eye(a.shape[-1])
        q, r = linalg.qr(a)
        w, v = linalg.eigh(definite)
        u, s, vh = linalg.svd(a, full_matrices=False)
        return (
            linalg.solve(a, x),
            linalg.inv(a),
            linalg.det(a),
            linalg.cholesky(definite),
            linalg.pinv(a),
            torch.matrix_exp(a),
            torch.geqrf(a)[1],
            (q, r, w, v.abs(), u.abs(), s, vh.abs()),
        )


class Recurrent(nn.Module):
    """Products with few columns, with tiles for the last panel only."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(7, 13, 2, bidirectional=True, batch_first=True)
        self.lstm = nn.LSTM(26, 9, proj_size=5, batch_first=True)

    def forward(self, x, h):
        y, h = self.gru(x, h)
        y, (a, b) = self.lstm(y)
        return y, h, a, b


def small():
    torch.manual_seed(3)
    return Small().eval(), (torch.randn(2, 3, 12, 14),)


def many():
    torch.manual_seed(4)
    return Many().eval(), (torch.randint(0, 50, (2, 5)), torch.rand(8), torch.rand(2, 5) > 0.5)


def recurrent():
    torch.manual_seed(7)
    return Recurrent().eval(), (torch.randn(3, 6, 7), torch.randn(4, 3, 13))


def placing():
    torch.manual_seed(6)
    x = torch.randn(4, 70)
    x[0, 3], x[1, :4] = float("nan"), 0.0
    return Placing(), (x, torch.randint(0, 70, (4, 5)), torch.randn(4, 5))


def matrices():
    torch.manual_seed(8)
    return Matrices(), (torch.randn(3, 5, 5), torch.randn(3, 5, 2))


def sh(folder, *command, env=None, **kwargs):
    """Runs a command in a folder and returns its output."""
    done = subprocess.run(
        [str(c) for c in command], cwd=folder, env={**PATH, **(env or {})}, text=True, capture_output=True, **kwargs
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def deploy(folder, target, model, inputs, **dargs):
    """Deploys as libnet with the function `net`."""
    dargs = {k.replace("__", "::"): v for k, v in dargs.items()}
    sol.deploy(model, target, {"path": folder, "lib_name": "libnet", "func_name": "net", **dargs}, *inputs)


def unoptimized(folder):
    """Makes the sources' Makefile compile without optimization: three times faster."""
    text = (folder / "Makefile").read_text().replace(" -O3 ", " -O0 ")
    assert "OPTIMIZE = -O0 " in text
    (folder / "Makefile").write_text(text)


def build(folder, target, cc="cc", flags=(), source="driver.c"):
    """Compiles the driver with the deployed files. Sanitizers get unoptimized code, which compiles faster."""
    if target == "source" and any(f.startswith("-fsanitize") for f in flags):
        unoptimized(folder)
    if target == "source":
        sh(folder, "make", "libnet.a", f"CC={cc}", f"CFLAGS=-Wall -Wextra -Werror {' '.join(flags)}")
    link = ["-L.", "-l:libnet.so", "-Wl,-rpath,$ORIGIN"] if target == "shared_lib" else ["libnet.a"]
    sh(
        folder, cc, "-std=gnu11", "-O1", *flags, '-DHEADER="libnet.h"', "-DFUNC=net", "-I.", HERE / source, *link,
        "-lm", "-pthread", "-o", "driver",
    )  # fmt: skip


def needs_compiler(cc):
    """Skips if this cross compiler, or the C library of its target, is missing."""
    command = (cc, "-include", "stdlib.h", "-E", "-x", "c", "/dev/null")
    if not shutil.which(cc) or subprocess.run(command, capture_output=True).returncode:
        pytest.skip(f"no {cc} with its C library (tools/setup.sh installs them)")


def leaves(result):
    return [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]


def drive(folder, model, inputs, *mode, program=("./driver",), env=None, rtol=1e-4, atol=2e-5):
    """Runs the driver on the inputs, and compares its outputs with the framework's."""
    for i, t in enumerate(inputs):
        (folder / f"in{i}").write_bytes(t.contiguous().numpy().tobytes())
    text = sh(folder, *program, *mode, env=env)
    with torch.no_grad():
        expected = leaves(model(*inputs))
    for i, t in enumerate(expected):
        got = np.frombuffer((folder / f"out{i}").read_bytes(), t.numpy().dtype).reshape(t.shape)
        scale = float(t.abs().max()) if t.is_floating_point() and t.numel() else 1
        np.testing.assert_allclose(got, t.numpy(), rtol=rtol, atol=atol * max(scale, 1))
    return text.strip()


# -- every target


@pytest.mark.parametrize("make", [small, many, placing, matrices])
@pytest.mark.parametrize("target", TARGETS)
def test_targets(target, make, tmp_path):
    model, inputs = make()
    deploy(tmp_path, target, model, inputs)
    build(tmp_path, target)
    drive(tmp_path, model, inputs)
    for mode in ("threads", "fork", "memory"):
        drive(tmp_path, model, inputs, mode)


def _by_family(names):
    return [
        pytest.param(n, marks=[] if n in ("linear", "logistic", "lstm", "bert", "unet") else pytest.mark.slow)
        for n in names
    ]


@pytest.mark.parametrize("name", _by_family((*FAMILIES, *OTHERS)))
def test_families(name, torchvision, tmp_path):
    model, make = network(name, torchvision)
    inputs = make(1)
    for target in ("shared_lib", "source"):  # an archive has the objects of the shared library
        folder = tmp_path / target
        deploy(folder, target, model, inputs)
        build(folder, target)
        drive(folder, model, inputs, "once")
        shutil.rmtree(folder)


def test_what_is_written(tmp_path):
    model, inputs = small()
    deploy(tmp_path / "s", "lib::shared", model, inputs)
    deploy(tmp_path / "a", sol.deployment.static_lib, model, inputs)
    deploy(tmp_path / "c", "source", model, inputs)
    assert sorted(p.name for p in (tmp_path / "s").iterdir()) == sorted(
        ["libnet.so", "libnet.h", "libnet_numpy.py", "libnet.pc", "libnetConfig.cmake", "example.c", "Makefile"]
    )
    exported = set(re.findall(r" [TWVDBR] (\w+)", sh(tmp_path / "s", "nm", "-D", "--defined-only", "libnet.so")))
    declared = set(re.findall(r"\b(net\w*|sol_ext_\w+)\(", (tmp_path / "s" / "libnet.h").read_text()))
    assert exported == declared
    assert exported == set(re.findall(r" [TWVDBR] (\w+)", sh(tmp_path / "a", "nm", "-g", "--defined-only", "libnet.a")))
    needed = re.findall(r"NEEDED.*\[(.*)\]", sh(tmp_path / "s", "readelf", "-d", "libnet.so"))
    assert set(needed) <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    for folder in ("s", "a", "c"):
        assert "both ways give the same" in sh(tmp_path / folder, "make", "run")


def test_the_example_shows_what_is_there(tmp_path):
    deploy(tmp_path, "source", nn.Linear(4, 3).eval(), (torch.ones(1, 4),))
    assert re.search(r"12 bytes:( [-.e\d]+){3}$", sh(tmp_path, "make", "run"), re.M)


def test_folders_that_are_in_use(tmp_path):
    """Files of an earlier deployment are not built with the new one, and an application's own files stay."""
    torch.manual_seed(1)
    for model, shape in (
        (small()[0], (2, 3, 12, 14)),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), (1, 4)),
    ):
        deploy(tmp_path, "source", model.eval(), (torch.randn(shape),))
        build(tmp_path, "source")
        drive(tmp_path, model, (torch.randn(shape),), "once")
        assert "both ways give the same" in sh(tmp_path, "make", "all", "run")
    for name in ("Makefile", "example.c"):
        (tmp_path / name).write_text("all: mine")
    with pytest.raises(sol.InvalidError, match="has a Makefile that is not of a deployed network"):
        deploy(tmp_path, "source", *small())
    deploy(tmp_path, "shared_lib", *small())
    assert (tmp_path / "Makefile").read_text() == (tmp_path / "example.c").read_text() == "all: mine"


@pytest.mark.parametrize("target", ["shared_lib", "static_lib"])
def test_deployed_again(target, tmp_path):
    """Files that a process may have mapped are replaced, not overwritten."""
    library = tmp_path / ("libnet.so" if target == "shared_lib" else "libnet.a")
    files = (tmp_path / "libnet.weights", library)
    deploy(tmp_path, target, nn.Linear(4, 3), (torch.randn(1, 4),), weights="file")
    before = [file.read_bytes() for file in files]
    for i, file in enumerate(files):
        os.link(file, tmp_path / f"old{i}")
    deploy(tmp_path, target, nn.Linear(4, 3), (torch.randn(1, 4),), weights="file", gcc__march="x86-64-v2")
    assert [(tmp_path / f"old{i}").read_bytes() for i in range(2)] == before
    assert all(file.read_bytes() != old for file, old in zip(files, before, strict=True))
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace (apt install strace)")
def test_no_file_is_read(tmp_path):
    model, inputs = small()
    deploy(tmp_path, "shared_lib", model, inputs)
    sh(tmp_path, "make", "example")
    opened = re.findall(
        r'open(?:at)?\(.*"(.*)", .*= \d+$', sh(tmp_path, "strace", "-f", "-e", "trace=open,openat", "./example"), re.M
    )
    assert opened
    mine = [f for f in opened if not re.search(r"libnet.so|libc.so|libm.so|ld.so.cache", f)]
    assert [f for f in mine if not re.match(r"/proc/self/(mountinfo|cgroup)$|/sys/fs/cgroup/", f)] == []  # the quota


def test_names_of_files_that_are_compiled_as_one():
    """Those of a library are one file: what computes layers without loops shares no name with the others."""
    root = HERE.parents[1] / "src"
    layers, others = root.glob("layers/reference_*.c"), [*root.glob("deploy/texts/*.c"), *root.glob("rt/*.c")]
    pattern = re.compile(r"^static [\w ]+?\*?(\w+)\(|^struct (\w+) \{", re.M)
    names = {f.name: {a or b for a, b in pattern.findall(f.read_text())} for f in (*layers, *others)}
    own = {n: names for n, names in names.items() if n.startswith("reference_")}
    assert len(own) > 10 and "scatter_step" in own["reference_scatter.c"] and "step" in names["front_train.c"]
    twice = {(a, b, *(own[a] & names[b])) for a in own for b in names if a != b and own[a] & names[b]}
    assert not twice


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_source_is_clean(cc, tmp_path):
    """One command builds it without warnings, and the files name their layers."""
    if not shutil.which(cc):
        pytest.skip(f"no {cc}")
    model, inputs = small()
    deploy(tmp_path, "source", model, inputs)
    one = re.search(r"^#   cc (.*)$", (tmp_path / "Makefile").read_text(), re.M).group(1)
    assert sh(tmp_path, "sh", "-c", f"{cc} -Wall -Wextra -Werror {one}") == ""
    assert "Conv" in (tmp_path / "native" / "module.c").read_text()
    build(tmp_path, "source", cc)
    drive(tmp_path, model, inputs)


def test_kernels_are_short(tmp_path, monkeypatch):
    """A person reads a kernel: an unrolled step of a product and its epilogue occur once (432 lines if not)."""
    monkeypatch.setitem(sol.config, "bands", "off")
    model = nn.Sequential(nn.Conv2d(256, 128, 1), nn.ReLU(), nn.Conv2d(128, 128, 1))
    deploy(tmp_path, "source", model, (torch.randn(1, 256, 56, 56),), gcc__march="x86-64-v4")
    texts = [f.read_text() for f in tmp_path.glob("*/k*.c")]
    lines = [text.count("\n") for text in texts if "solver direct" in text]
    assert lines and max(lines) <= 150, lines


def test_positions_that_nobody_reads(tmp_path):
    """Positions of a pooling whose indices have no reader are not computed."""
    model, x = nn.Sequential(nn.AdaptiveMaxPool1d(3), nn.AdaptiveMaxPool1d(2)), torch.randn(4, 8, 10)
    deploy(tmp_path, "source", model, (x,))
    build(tmp_path, "source")
    drive(tmp_path, model, (x,), "once")
    assert not [f for f in (tmp_path / "native").glob("k*.c") if "where" in f.read_text()]


def test_python_wrapper(tmp_path):
    model, inputs = many()
    deploy(tmp_path, "shared_lib", model, inputs, selftest="1")
    code = (
        "import numpy as np, libnet_numpy as libnet\n"
        "y = libnet.run(*[np.load(f'i{i}.npy') for i in range(3)])\n"
        "[np.save(f'o{i}.npy', v) for i, v in enumerate(y)]\n"
        "print([t.name for t in libnet.inputs + libnet.outputs], libnet.version())\n"
        "print(libnet.selftest(threads=2))"
    )
    for i, t in enumerate(inputs):
        np.save(tmp_path / f"i{i}.npy", t.numpy())
    text = sh(tmp_path, os.path.abspath(".venv/bin/python"), "-c", code)
    assert "['ids', 'scale', 'flags', 'y', 'best', 'any', 'wide'] native" in text
    assert re.search(r"Found\(output=\d, .*compared=\d+\)", text)
    for i, t in enumerate(leaves(model(*inputs))):
        np.testing.assert_allclose(np.load(tmp_path / f"o{i}.npy"), t.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_build_systems(tmp_path):
    """pkg-config and CMake find the deployed library, and its self-test runs with a project's tests."""
    model, inputs = small()
    for target, kind in (("shared_lib", "s"), ("static_lib", "a")):
        folder = tmp_path / kind
        deploy(folder, target, model, inputs, selftest="1")
        if shutil.which("pkg-config"):
            command = "cc example.c -o e1 $(pkg-config --cflags --libs libnet) && ./e1"
            assert "the same" in sh(folder, "sh", "-c", command, env={"PKG_CONFIG_PATH": str(folder)})
        if shutil.which("cmake"):
            project = tmp_path / f"cmake_{kind}"
            project.mkdir()
            (project / "CMakeLists.txt").write_text(
                "cmake_minimum_required(VERSION 3.13)\nproject(p C)\nfind_package(libnet CONFIG REQUIRED)\n"
                f"add_executable(e {folder}/example.c)\ntarget_link_libraries(e libnet::libnet)\n"
                "enable_testing()\nlibnet_add_selftest()\n"
            )
            sh(project, "cmake", f"-Dlibnet_DIR={folder}", "-B", "b", ".")
            sh(project, "cmake", "--build", "b")
            assert "the same" in sh(project, "b/e")
            assert "the self-test passed" in sh(project / "b", "ctest", "-V")


@pytest.mark.skipif(not shutil.which("cmake"), reason="no cmake (apt install cmake)")
@pytest.mark.parametrize("shared", ["OFF", "ON"])
def test_source_by_cmake(shared, tmp_path):
    """As part of another project, and, as a static library, as a project; for two instruction sets."""
    model, inputs = small()
    deploy(tmp_path / "net", "source", model, inputs, gcc__march=["x86-64-v2", "x86-64-v3"], selftest="1")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(p C)\nadd_subdirectory(net)\n"
        f'add_executable(driver {HERE / "driver.c"})\ntarget_compile_definitions(driver PRIVATE HEADER="libnet.h" FUNC=net)\n'
        "target_link_libraries(driver PRIVATE libnet)\n"
    )
    for folder in (tmp_path / "net", tmp_path) if shared == "OFF" else (tmp_path,):
        flags = ("-DCMAKE_C_FLAGS=-Wall -Wextra -Werror", f"-DBUILD_SHARED_LIBS={shared}")
        sh(folder, "cmake", *flags, "-B", "b", ".")
        sh(folder, "cmake", "--build", "b", "-j2")
    if shared == "OFF":
        assert re.search("example .*Passed(.|\n)*libnet_selftest .*Passed", sh(tmp_path / "net" / "b", "ctest"))
    drive(tmp_path, model, inputs, "once", program=("b/driver",))
    library = next((tmp_path / "b").glob("net/libnet.*"))
    assert library.suffix == (".so" if shared == "ON" else ".a")


SIZES = """
#include <stdio.h>
#include <string.h>
#include "libnet.h"
static float in[NET_IN0_ELEMENTS], out[NET_OUT0_ELEMENTS], more[NET_BATCH5_IN0_ELEMENTS];
static const int64_t shape[NET_IN0_DIMS] = NET_IN0_SHAPE;
static char block[NET_CONTEXT_BYTES(2)];
int main(void)
{
    const void *inputs[NET_INPUTS] = {in};
    void *outputs[NET_OUTPUTS] = {out};
    const struct sol_ext_tensor *t = net_input(0);
    for (int threads = 1; threads < 9; threads++)
        if (NET_CONTEXT_BYTES(threads) != net_context_bytes(threads)) return 1;
    if (t->bytes != sizeof in || t->ndim != NET_IN0_DIMS || memcmp(t->shape, shape, sizeof shape)) return 2;
    if (net_output(0)->bytes != NET_OUT0_BYTES || net_batch_input(5, 0)->bytes != sizeof more) return 3;
    struct net_context *c = net_context_create(block, sizeof block, 2);
    return !c || net_run(c, inputs, outputs) || net_batch(c, 5);
}
"""


@pytest.mark.parametrize("make", [small, placing])
def test_sizes_as_constants(make, tmp_path):
    model, inputs = make()
    deploy(tmp_path, "static_lib", model, inputs)
    if make is placing:  # layers without loops need memory of their own
        text = "#include <stdio.h>\n#include <libnet.h>\nint main(void) { return NET_CONTEXT_BYTES(3) != net_context_bytes(3); }"
    else:
        sol.deploy(
            model, "static_lib", {"path": tmp_path, "lib_name": "libnet", "func_name": "net"},
            sol.input([0, 3, 12, 14]), batch_size=[2, 5],
        )  # fmt: skip
        text = SIZES
    (tmp_path / "sizes.c").write_text(text)
    sh(tmp_path, "cc", "-Wall", "-Wextra", "-Werror", "-I.", "sizes.c", "libnet.a", "-lm", "-pthread", "-o", "sizes")
    sh(tmp_path, "./sizes")


def test_which_model_it_was_made_of(tmp_path):
    """The hash depends on the graph and parameters only, not on the kind of library."""

    def marks(folder, target, model, **dargs):
        deploy(folder, target, model, (torch.ones(1, 4),), **dargs)
        said = re.search(r'"([0-9a-f]{32})"', (folder / "libnet.h").read_text())[1]
        if target != "source":
            library = next(folder.glob("libnet.[as]*"))
            assert re.findall(rb"sol-model:(\w+)", library.read_bytes()) == [said.encode()]
            code = "import libnet_numpy as n; print(n.model())"
            if target == "shared_lib":
                assert sh(folder, os.path.abspath(".venv/bin/python"), "-c", code).strip() == said
        return said

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    first = marks(tmp_path / "s", "shared_lib", model)
    assert first == marks(tmp_path / "a", "static_lib", model, gcc__march="x86-64-v2", weights="file", pack="ahead")
    assert first == marks(tmp_path / "c", "source", model, training="1")
    assert first != marks(tmp_path / "d", "source", nn.Sequential(model[0], nn.Tanh()))
    with torch.no_grad():
        model[0].bias[1] += 1e-6
    assert first != marks(tmp_path / "e", "source", model)


# -- weights


@pytest.mark.parametrize("pack", ["load", "ahead"])
@pytest.mark.parametrize("target", TARGETS)
def test_weights_in_a_file(target, pack, tmp_path):
    model, inputs = small()
    deploy(tmp_path, target, model, inputs, weights="file", pack=pack)
    build(tmp_path, target)
    drive(tmp_path, model, inputs)
    file = tmp_path / "libnet.weights"
    good = file.read_bytes()
    for bad, why in ((good[:-1], "expected"), (bytes([good[0] ^ 1]) + good[1:], "damaged"), (None, "cannot open")):
        file.unlink()
        if bad is not None:
            file.write_bytes(bad)
        done = subprocess.run(["./driver"], cwd=tmp_path, env=PATH, text=True, capture_output=True)
        assert done.returncode == 1 and why in done.stderr, done.stderr
        file.write_bytes(good)
    drive(tmp_path, model, inputs)


def test_weights_elsewhere(tmp_path):
    model, inputs = many()
    deploy(tmp_path, "shared_lib", model, inputs, weights="file")
    (tmp_path / "libnet.weights").rename(tmp_path / "else")
    for i, t in enumerate(inputs):
        np.save(tmp_path / f"i{i}.npy", t.numpy())
    code = (
        "import numpy as np, libnet_numpy as libnet\n"
        "assert libnet._lib.net_weights(b'else') == 0\n"
        "y = libnet.run(*[np.load(f'i{i}.npy') for i in range(3)])\n"
        "assert libnet._lib.net_weights(b'libnet.weights') != 0\n"
        "np.save('y.npy', y[0])"
    )
    sh(tmp_path, os.path.abspath(".venv/bin/python"), "-c", code)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), leaves(model(*inputs))[0].detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize("target", ["shared_lib", "static_lib"])
def test_weights_are_beside_the_library(target, tmp_path):
    """The library finds its weights wherever the program is and whatever the working directory is."""
    deploy(tmp_path, target, nn.Linear(4, 3), (torch.randn(1, 4),), weights="file")
    gone = '#include <unistd.h>\n#include "libnet.h"\nint main(void) { float x[4] = {0}, *y; if (chdir("/")) return 2; net(0, x, &y); return !y; }'
    (tmp_path / "gone.c").write_text(gone)
    link = "-L. -l:libnet.so -Wl,-rpath,." if target == "shared_lib" else "libnet.a -lm -pthread"
    sh(tmp_path, "sh", "-c", f"cc -I. gone.c {link} -o gone && ./gone")
    sh(tmp_path, "make", "example")
    sh("/", "example", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})


def test_packed_ahead(tmp_path):
    model, inputs = small()
    deploy(tmp_path, "shared_lib", model, inputs, pack="ahead")
    build(tmp_path, "shared_lib")
    drive(tmp_path, model, inputs)


# -- instruction sets


def test_several_instruction_sets(tmp_path):
    model, inputs = small()
    deploy(tmp_path, "shared_lib", model, inputs, gcc__march=["x86-64-v2", "x86-64-v4", "x86-64-v3"])
    build(tmp_path, "shared_lib")
    best = drive(tmp_path, model, inputs)
    ran = []
    for version in ("x86-64-v4", "x86-64-v3", "x86-64-v2"):
        done = subprocess.run(["./driver", "contexts", version], cwd=tmp_path, env=PATH, text=True, capture_output=True)
        if "this processor cannot run" in done.stderr:
            continue
        assert drive(tmp_path, model, inputs, "contexts", version) == version
        ran.append(version)
    assert ran[0] == best and ran[-1] == "x86-64-v2"
    raw = sum(p.numel() * 4 for p in model.parameters())
    one = tmp_path / "one"
    deploy(one, "shared_lib", model, inputs, gcc__march="x86-64-v3")
    assert (tmp_path / "libnet.so").stat().st_size < 3 * (
        one / "libnet.so"
    ).stat().st_size - raw  # the weights occur only once


@pytest.mark.parametrize("march", ["x86-64", "sandybridge", "haswell", "skylake-avx512"])
def test_names_of_gcc(march, tmp_path):
    if march == "skylake-avx512" and "avx512vl" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor lacks AVX-512")
    model, inputs = small()
    deploy(
        tmp_path,
        "static_lib",
        model,
        inputs,
        gcc__march=march,
        gcc__mtune="generic",
        gcc__elf="elf_x86_64",
        gcc__oformat="elf64-x86-64",
    )
    build(tmp_path, "static_lib")
    assert drive(tmp_path, model, inputs) == march


@pytest.mark.parametrize("vector", ["sse2", "avx2"])
def test_vector_width(vector, tmp_path):
    model, inputs = small()
    deploy(tmp_path, "source", model, inputs, ispc__vector=vector, gcc__march="x86-64-v3")
    assert ("f32x8" in (tmp_path / "x86_64_v3" / "vectors.h").read_text()) == (vector == "avx2")
    build(tmp_path, "source")
    drive(tmp_path, model, inputs)


@pytest.mark.parametrize(
    ("device", "target", "make"),
    [("arm64", target, make) for target in TARGETS for make in (small, many)]
    + [(d, *c) for d in ("arm", "riscv64") for c in (("static_lib", small), ("source", many), ("shared_lib", placing))],
)
def test_other_devices(device, target, make, tmp_path):
    prefix, emulator = CROSS[device]
    needs_compiler(f"{prefix}-gcc")
    model, inputs = make()
    deploy(tmp_path, target, model, inputs, device_type=device, pack="ahead" if target == "static_lib" else "load")
    build(tmp_path, target, f"{prefix}-gcc")
    if not shutil.which(emulator):
        pytest.skip(f"no {emulator} (apt install qemu-user)")
    drive(tmp_path, model, inputs, program=(emulator, "-L", f"/usr/{prefix}", "./driver"))
    if target != "source":
        assert "both ways give the same" in sh(tmp_path, "make", "run")


BARE = {
    "device_type": "arm",
    "threads": "0",
    "selftest": "1",
    "gcc__march": "armv7e-m+fp",
    "gcc__flags": "-mthumb -mfloat-abi=hard",
}


@pytest.mark.parametrize(("target", "make"), [("static_lib", small), ("source", placing)])
def test_without_an_operating_system(target, make, tmp_path):
    """On a Cortex-M4: no heap, no thread, only memory functions of the C library; compares a network with PyTorch."""
    needs_compiler("arm-none-eabi-gcc")
    model, inputs = make()
    deploy(tmp_path, target, model, inputs, **BARE)
    if target == "source":
        sh(tmp_path, "make", "CFLAGS=-Wall -Wextra -Werror")
        sh(tmp_path, "arm-none-eabi-gcc", "-Wall", "-Wextra", "-Werror", "-I.", "-c", "example.c", "check.c")
    names = set(re.findall(r" U (\w+)", sh(tmp_path, "arm-none-eabi-nm", "-u", "libnet.a")))
    own = set(re.findall(r" [TDRBd] (\w+)", sh(tmp_path, "arm-none-eabi-nm", "-g", "--defined-only", "libnet.a")))
    assert {n for n in names - own if not n.startswith("__aeabi_")} <= {"memcpy", "memmove", "memset", "strlen", "expf"}
    if not shutil.which("qemu-system-arm"):
        pytest.skip("no qemu-system-arm (tools/setup.sh installs it)")
    sh(
        tmp_path, "arm-none-eabi-gcc", "-Wall", "-Wextra", "-Werror", *BARE["gcc__flags"].split(), "-nostartfiles",
        f"-march={BARE['gcc__march']}", "--specs=rdimon.specs", "-T", HERE / "bare.ld", "-Wl,--wrap=malloc", "-I.",
        HERE / "bare.c", "libnet.a", "-lm", "-o", "bare.elf",
    )  # fmt: skip
    board = (
        "qemu-system-arm", "-M", "mps2-an386", "-nographic", "-monitor", "none", "-serial", "none",
        "-semihosting-config", "enable=on,target=native", "-kernel", "bare.elf",
    )  # fmt: skip
    said = drive(tmp_path, model, inputs, program=board)
    assert "a context for 1 thread needs a block of" in said and "is NULL, expected" in said


@pytest.mark.parametrize(
    ("target", "keys", "why"),
    [
        ("shared_lib", {}, "the target is static_lib or source"),
        ("source", {"weights": "file"}, "there are no files"),
        ("source", {"training": "1"}, "training takes memory"),
        ("source", {"gcc::march": "x86-64-v2,x86-64-v3"}, "is one instruction set"),
    ],
)
def test_what_takes_an_operating_system(target, keys, why, tmp_path):
    with pytest.raises(sol.InvalidError, match=f"threads: with 0, no operating system, .*{why}"):
        sol.deploy(nn.Linear(4, 3), target, {"path": tmp_path, "threads": "0", **keys}, torch.ones(1, 4))


def test_one_thread_here(tmp_path):
    """threads=0 for this machine: the same library without the system, and its example."""
    deploy(tmp_path, "static_lib", *small(), threads="0", gcc__march="x86-64-v2", selftest="1")
    assert re.search(r"2 dimensions, 80 bytes:( 0\.\d+){4} \.\.$", sh(tmp_path, "make", "run"), re.M)
    assert "the self-test passed" in sh(tmp_path, "make", "check")


def test_no_cross_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    model, inputs = small()
    with pytest.raises(sol.CompilerError, match="apt install gcc-aarch64-linux-gnu"):
        deploy(tmp_path, "shared_lib", model, inputs, device_type="arm64")
    alone = tmp_path / "aarch64-linux-gnu-gcc"  # the C library of its target is missing
    alone.write_text('#!/bin/sh\ntest "$1" = --version\n')
    alone.chmod(0o755)
    with pytest.raises(sol.CompilerError, match=r"does not find stdlib.h: .*apt install libc6-dev-arm64-cross"):
        deploy(tmp_path, "shared_lib", model, inputs, device_type="arm64")


# -- self-test

EVERY = """
#include "libnet.h"
int main(void)
{
    const char *versions[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
    struct sol_ext_selftest found;
    int ran = 0;
    for (int v = 0; v < 3; v++)
        for (int n = 2; n < 6; n += 3) {
            if (net_choose_version(versions[v])) continue; /* this machine cannot run it */
            struct net_context *c = net_context_create(0, 0, v + 1);
            if (!c || net_batch(c, n) || net_selftest(c, 0, 0, &found) || found.compared != 10u * (unsigned)n) return 1;
            net_context_free(c);
            ran++;
        }
    return ran < 2 || found.distance > 1;
}
"""


def cpp(folder):
    """The header is also valid C++."""
    if shutil.which("g++"):
        sh(folder, "g++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", "libnet.h")


@pytest.mark.parametrize(
    ("target", "make", "device"),
    [
        ("shared_lib", many, "auto"),
        ("static_lib", placing, "auto"),
        pytest.param("source", recurrent, "auto", marks=pytest.mark.slow),
        ("static_lib", small, "arm64"),
        pytest.param("source", small, "arm", marks=pytest.mark.slow),
        ("source", many, "riscv64"),
    ],
)
def test_golden_vectors(target, make, device, tmp_path):
    """The library gives the values that were computed at deployment, on processors of every kind."""
    if device in CROSS:
        needs_compiler(f"{CROSS[device][0]}-gcc")
        if not shutil.which(CROSS[device][1]):
            pytest.skip(f"no {CROSS[device][1]} (apt install qemu-user)")
    deploy(tmp_path, target, *make(), device_type=device, selftest="1")
    said = sh(tmp_path, "make", "check", "CFLAGS=-Wall -Wextra -Werror")
    assert re.search(r"\d+ elements; output \d+, element \d+ differs most", said) and "the self-test passed" in said
    cpp(tmp_path)


def test_golden_vectors_of_every_size(tmp_path):
    """Each batch size and instruction set is tested."""
    dargs = {"path": tmp_path, "lib_name": "libnet", "func_name": "net", "selftest": "1"}
    marches = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
    sol.deploy(small()[0], "static_lib", {**dargs, "gcc::march": marches}, sol.input([0, 3, 12, 14]), batch_size=[2, 5])
    (tmp_path / "every.c").write_text(EVERY)
    sh(tmp_path, "cc", "-Wall", "-Wextra", "-Werror", "-I.", "every.c", "libnet.a", "-lm", "-pthread", "-o", "every")
    sh(tmp_path, "./every")


def test_golden_vectors_find_what_is_wrong(tmp_path):
    """A change of one weight by a thousandth is detected, and the message names the output."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    deploy(tmp_path, "source", model, (torch.ones(1, 4),), selftest="1")
    check = ("make", "check", "CFLAGS=-fsanitize=address,undefined -fno-sanitize-recover=all")
    assert "the self-test passed" in sh(tmp_path, *check)
    weights = tmp_path / "libnet.weights"
    data = weights.read_bytes()
    number = model[2].weight.detach().numpy()[1, 2]
    place = data.index(number.tobytes())
    weights.write_bytes(data[:place] + (number * np.float32(1.001)).tobytes() + data[place + 4 :])
    done = subprocess.run(check, cwd=tmp_path, env=PATH, text=True, capture_output=True)
    assert done.returncode and "self-test: output 0" in done.stdout and "element 1 is not what it was" in done.stdout
    sh(tmp_path, "make", "clean", "libnet.so")
    python = (os.path.abspath(".venv/bin/python"), "-c", "import libnet_numpy; libnet_numpy.selftest()")
    done = subprocess.run(python, cwd=tmp_path, env=PATH, text=True, capture_output=True)
    assert "RuntimeError: net: self-test: output 0" in done.stderr


def test_golden_vectors_that_cannot_be(tmp_path):
    """Random layers repeat their numbers; a network that rejects the generated inputs cannot have a self-test; the key
    decides."""
    f = lambda x: torch.nn.functional.dropout(x, 0.5, True)  # noqa: E731
    deploy(tmp_path / "d", "source", f, (torch.ones(4, 64),), selftest="1")
    assert "the self-test passed" in sh(tmp_path / "d", "make", "check")
    with pytest.raises(sol.Error, match=r"selftest: the network takes no made-up inputs: .*(definite|singular)"):
        deploy(tmp_path / "c", "source", lambda x: torch.linalg.cholesky(x - 9), (torch.eye(3),), selftest="1")
    deploy(tmp_path / "n", "source", f, (torch.ones(4, 64),))
    assert not (tmp_path / "n" / "check.c").exists() and "selftest" not in (tmp_path / "n" / "libnet.h").read_text()


# -- analysis tools


@pytest.mark.parametrize("make", [small, placing, recurrent])
@pytest.mark.parametrize("kind", ["address,undefined", "thread"])
def test_sanitizers(kind, make, tmp_path):
    model, inputs = make()
    deploy(tmp_path, "source", model, inputs)
    build(tmp_path, "source", "gcc", [f"-fsanitize={kind}", "-fno-sanitize-recover=all", "-g"])
    modes = ("contexts", "threads", "memory") if kind != "thread" else ("contexts", "threads")
    for mode in modes:
        drive(
            tmp_path, model, inputs, mode, program=("setarch", "-R", "./driver") if kind == "thread" else ("./driver",)
        )


@pytest.mark.skipif(not shutil.which("valgrind"), reason="no valgrind (apt install valgrind)")
def test_valgrind(tmp_path):
    """valgrind does not support AVX-512, so the library chooses what it supports."""
    model, inputs = small()
    deploy(tmp_path, "shared_lib", model, inputs, gcc__march=["x86-64-v2", "x86-64-v3", "x86-64-v4"])
    build(tmp_path, "shared_lib")
    command = (
        "valgrind",
        "-q",
        "--error-exitcode=9",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
        "./driver",
    )
    assert drive(tmp_path, model, inputs, "memory", program=command) == "x86-64-v3"


def test_threads_that_cannot_be_had(tmp_path):
    model, inputs = small()
    deploy(tmp_path, "static_lib", model, inputs)
    wrapped = ("posix_memalign", "realloc", "pthread_create")
    build(tmp_path, "static_lib", flags=[f"-Wl,--wrap={f}" for f in wrapped], source="pool.c")
    sh(tmp_path, "./driver")


def test_loading_and_unloading(tmp_path):
    model, inputs = small()
    deploy(tmp_path, "shared_lib", model, inputs)
    sh(tmp_path, "cc", HERE / "load.c", "-o", "load", "-ldl")
    sh(tmp_path, "./load", tmp_path / "libnet.so", "net", inputs[0].numel() * 4, 2 * 10 * 4)


@pytest.mark.parametrize("target", TARGETS)
def test_two_networks_in_one_program(target, tmp_path):
    """The same network twice: all symbols differ."""
    model, inputs = small()
    for n in "ab":
        sol.deploy(model, target, {"path": tmp_path / n, "lib_name": f"lib{n}", "func_name": f"net_{n}"}, *inputs)
        if target == "source":
            sh(tmp_path / n, "make", f"lib{n}.a")
    libs = (
        ["-La", "-Lb", "-l:liba.so", "-l:libb.so", "-Wl,-rpath,$ORIGIN/a:$ORIGIN/b"]
        if target == "shared_lib"
        else ["a/liba.a", "b/libb.a"]
    )
    sh(
        tmp_path, "cc", '-DHEADER_A="liba.h"', '-DHEADER_B="libb.h"', "-DA=net_a", "-DB=net_b", "-Ia", "-Ib", HERE / "two.c", *libs,
        "-lm", "-pthread", "-o", "two",
    )  # fmt: skip
    a, b = sh(tmp_path, "./two").split()
    assert a == b


# -- arguments


def test_what_is_rejected(tmp_path):
    model, inputs = small()
    for dargs, what in (
        ({"lib_nam": "x"}, "no key 'lib_nam'; the keys are lib_name, func_name"),
        ({"func_name": "a b"}, "func_name"),
        ({"func_name": "int"}, "func_name"),
        ({"func_name": "class"}, "func_name: expected a name for a function of C and C++, got 'class'"),
        ({"func_name": "linux"}, "func_name: expected a name"),
        ({"func_name": "_Generic"}, "func_name: expected a name"),
        ({"func_name": "rt_run"}, "func_name: expected a name"),
        ({"func_name": "malloc"}, "'malloc' is a function of C's own library"),
        ({"gcc__mtune": "fast"}, "gcc::mtune 'fast'"),
        ({"gcc__march": ["x86-64-v3", ""]}, "expected an instruction set, got ''"),
        ({"lib_name": "../x"}, "lib_name"),
        ({"gcc__march": "x86-64-v9"}, "x86-64-v9"),
        ({"gcc__march": "x86-64 -o y"}, "gcc::march"),
        ({"gcc__march": ["x86-64-v3", "x86-64-v3"]}, "given twice"),
        ({"ispc__vector": "avx512", "gcc__march": "x86-64-v3"}, "vectors of 32 bytes"),
        ({"weights": "here"}, "inside|file"),
        ({"device_type": "gpu"}, "device_type"),
        ({"nvidia__cc": 80}, "nvidia::cc: device_type is auto"),
        ({"device_type": ("x86", "x86-64-v3"), "gcc__march": "x86-64-v2"}, "device_type says"),
    ):
        with pytest.raises(sol.Error, match=re.escape(what)):
            deploy(tmp_path, "shared_lib", model, inputs, **dargs)
    with pytest.raises(sol.InvalidError, match="expected shared_lib, static_lib or source, got 'exe'"):
        deploy(tmp_path, "exe", model, inputs)
    with pytest.raises(sol.UnsupportedError, match="Counting: writes calls in place"):
        deploy(tmp_path, "shared_lib", Counting(), inputs)
    for sizes, what in ((0, "got 0"), ([1, "2"], "got '2'"), ([2, 3, 2], "2 is given twice"), ([], "got none")):
        with pytest.raises(sol.InvalidError, match="batch_size: .*" + what):
            sol.deploy(model, "shared_lib", {"path": tmp_path}, sol.input([0, 3, 12, 14]), batch_size=sizes)
    with pytest.raises(sol.InvalidError, match="no argument leaves its first size open"):
        sol.deploy(model, "shared_lib", {"path": tmp_path}, sol.input([2, 3, 12, 14]), batch_size=3)
    with pytest.raises(sol.InvalidError, match="dargs: expected a dict, got Tensor"):
        sol.deploy(model, "shared_lib", *inputs)
    assert list(tmp_path.iterdir()) == []


def test_sizes(tmp_path):
    """Sizes come from the arguments or from a list of numbers, and batch_size is the first."""
    pytest.importorskip("onnx")
    model, x = nn.Linear(4, 2).eval(), torch.randn(2, 4)
    file = str(tmp_path / "net.onnx")
    torch.onnx.export(model, (x,), file, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}})
    for n, (what, given, batch) in enumerate(
        [(model, x, None), (model, x, 5), (model, [0, 4], 5), (model, [2, 4], None), (file, x, 5), (file, [2, 4], None)]
    ):
        path = tmp_path / str(n)
        sol.deploy(what, "source", {"path": path, "lib_name": "libnet"}, given, batch_size=batch)
        assert f"in0   f32[{batch or 2}, 4]" in (path / "libnet.h").read_text()
    torch.onnx.export(model, (x,), file, dynamo=False)
    with pytest.raises(sol.InvalidError, match="no input leaves its first size open"):
        sol.deploy(file, "source", {"path": tmp_path / "no"}, batch_size=5)


@pytest.mark.parametrize("func", ["net", "run", "fail", "state", "lines", "inputs", "message", "main_loop", "take"])
def test_any_name(func, tmp_path):
    """The function may have the name of any internal function."""
    sol.deploy(nn.Linear(3, 2), "source", {"path": tmp_path, "func_name": func, "lib_name": "libx"}, torch.randn(1, 3))
    unoptimized(tmp_path)
    assert "the same" in sh(tmp_path, "make", "run")


def test_names_are_no_code(tmp_path):
    """Names of a model's layers become comments and strings, never code."""
    model = nn.Sequential()
    for name in ("a*/ #error code", 'b"; syntax error', "c\\"):
        model.add_module(name.replace(".", ""), nn.Conv2d(4, 4, 3, padding=1))
        model.add_module(name + "relu", nn.ReLU())
    x = (torch.randn(1, 4, 9, 9),)
    deploy(tmp_path, "source", model.eval(), x)
    build(tmp_path, "source")
    drive(tmp_path, model, x, "once")
    onnx = pytest.importorskip("onnx")
    torch.onnx.export(nn.ReLU(), (x[0],), str(tmp_path / "net.onnx"), dynamo=False)
    graph = onnx.load(tmp_path / "net.onnx")
    graph.graph.name = '*/ #error "'
    onnx.save(graph, tmp_path / "net.onnx")
    for target in ("source", "static_lib"):
        sol.deploy(str(tmp_path / "net.onnx"), target, {"path": tmp_path / target}, *x)
        assert "the same" in sh(tmp_path / target, "make", "run")


def test_optimized_models_and_wildcards(tmp_path):
    model, inputs = small()
    optimized = sol.optimize(model, *inputs)
    deploy(tmp_path / "o", "shared_lib", optimized, inputs)
    build(tmp_path / "o", "shared_lib")
    drive(tmp_path / "o", model, inputs, "once")
    sol.deploy(
        model,
        "shared_lib",
        {"path": tmp_path / "w", "lib_name": "libnet", "func_name": "net"},
        sol.input([0, 3, 12, 14]),
        batch_size=3,
    )
    build(tmp_path / "w", "shared_lib")
    drive(tmp_path / "w", model, (torch.randn(3, 3, 12, 14),), "once")
    model.train()
    deploy(tmp_path / "t", "shared_lib", model, inputs)  # in eval mode; the model itself does not change
    assert all(m.training for m in model.modules())
    build(tmp_path / "t", "shared_lib")
    drive(tmp_path / "t", model.eval(), inputs, "once")


def test_an_index_that_is_out_of_range(tmp_path):
    """The output stays NULL, and the message names the layer."""
    x, i = torch.zeros(4), torch.tensor([1, 4])
    deploy(tmp_path, "shared_lib", lambda x, i: x.scatter(0, i, 1.0), (x, i))
    code = (
        "import numpy as np, libnet_numpy as libnet\n"
        "x = np.zeros(4, 'f')\n"
        "assert libnet.run(x, np.array([1, -1])).tolist() == [0, 1, 0, 1]\n"
        "try:\n    libnet.run(x, np.array([1, 4]))\nexcept RuntimeError as e:\n    print(e)"
    )
    assert "scatter': an index is out of range" in sh(tmp_path, os.path.abspath(".venv/bin/python"), "-c", code)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("march", ["native", ["x86-64-v2", "x86-64-v3"]])
def test_batch_sizes(target, march, tmp_path):
    """One library for several batch sizes, with one set of weights."""
    model, _ = small()
    sizes = (1, 4, 9)
    dargs = {"path": tmp_path, "lib_name": "libnet", "func_name": "net", "gcc::march": march}
    sol.deploy(model, target, dargs, sol.input([0, 3, 12, 14]), batch_size=sizes)
    x = {n: torch.randn(n, 3, 12, 14) for n in sizes}
    for n in sizes:
        (tmp_path / f"x{n}").write_bytes(x[n].numpy().tobytes())
    flags = ["-DSIZES=" + ",".join(map(str, sizes))]
    if target == "source":
        flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"]
    build(tmp_path, target, flags=flags, source="batches.c")
    sh(tmp_path, "./driver")
    for n in sizes:
        y = np.frombuffer((tmp_path / f"y{n}").read_bytes(), "f").reshape(n, 10)
        with torch.no_grad():
            np.testing.assert_allclose(y, model(x[n]).numpy(), rtol=1e-4, atol=2e-5)
    if target == "shared_lib":
        raw = sum(p.numel() * 4 for p in model.parameters())
        assert (tmp_path / "libnet.so").stat().st_size < 2 * raw + (3 * len(dargs["gcc::march"][:2]) * 60 << 10)


def test_random_numbers(tmp_path):
    """The stream of net_seed is that of sol.set_seed."""
    f = lambda x: torch.nn.functional.dropout(x, 0.5, True)  # noqa: E731
    x = torch.ones(4, 64)
    deploy(tmp_path, "shared_lib", f, (x,))
    code = "import numpy as np, libnet_numpy as libnet\nx = np.ones((4, 64), 'f')\nlibnet.seed(7)\nnp.save('y.npy', [libnet.run(x), libnet.run(x)])"
    sh(tmp_path, os.path.abspath(".venv/bin/python"), "-c", code)
    g = sol.optimize(f, x)
    sol.set_seed(7)
    expected = np.stack([g(x).numpy(), g(x).numpy()])
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)
    assert (expected[0] != expected[1]).any()


def test_onnx(tmp_path):
    onnx = pytest.importorskip("onnx")
    assert onnx
    model, inputs = small()
    torch.onnx.export(
        model, inputs, str(tmp_path / "net.onnx"), dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "batch"}}
    )
    deploy(tmp_path / "p", "shared_lib", str(tmp_path / "net.onnx"), inputs)
    build(tmp_path / "p", "shared_lib")
    drive(tmp_path / "p", model, inputs)
    command = (
        os.path.abspath("build/cli/sol"),
        "deploy",
        "net.onnx",
        "--dim",
        "batch=2",
        "-t",
        "static_lib",
        "-o",
        "c",
    )
    text = sh(tmp_path, *command, "--darg", "lib_name=libnet", "--darg", "func_name=net")
    assert "Please link the following libraries and flags to your application." in text and "-l:libnet.a" in text
    build(tmp_path / "c", "static_lib")
    drive(tmp_path / "c", model, inputs)
    several = [w.replace("batch=2", "batch=2,5") for w in command[:-1]]
    sh(tmp_path, *several, "s", "--darg", "lib_name=libnet", "--darg", "func_name=net")
    for n in (2, 5):
        (tmp_path / "s" / f"x{n}").write_bytes(torch.randn(n, 3, 12, 14).numpy().tobytes())
    build(tmp_path / "s", "static_lib", flags=["-DSIZES=2,5"], source="batches.c")
    sh(tmp_path / "s", "./driver")
    for wrong, why in {
        "lib_nam=x": "there is no key 'lib_nam'; the keys are lib_name",
        "pack=later": "pack: expected load|ahead, got 'later'",
        "device_type=mips": "device_type: expected auto, x86",
        "gcc::march=z80": "gcc::march 'z80'",
    }.items():
        done = subprocess.run([*command, "--darg", wrong], cwd=tmp_path, text=True, capture_output=True)
        assert done.returncode == 2 and why in done.stderr, done.stderr


# -- training


def digits(batch=16):
    """A small network, and a batch."""
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 16, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip
    for p in model[1].parameters():
        p.requires_grad_(False)  # as an application would freeze it
    return model.eval(), torch.randn(batch, 1, 16, 16), torch.randint(0, 10, (batch,))


RATES = {"sgd": 0.05, "adam": 1e-2}


def finetune(folder, optimizer, x, y, steps, *more):
    """The losses that the example prints."""
    x.numpy().tofile(folder / "x")
    y.numpy().tofile(folder / "y")
    return [float(v) for v in sh(folder, "./driver", optimizer, RATES[optimizer], steps, "x", "y", *more).split()]


def expected_losses(model, optimizer, x, y, steps):
    """PyTorch's losses with the example's settings."""
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    options = {"momentum": 0.9} if optimizer == "sgd" else {}
    taken = kind([p for p in model.parameters() if p.requires_grad], RATES[optimizer], weight_decay=1e-4, **options)
    losses = []
    for _ in range(steps):
        taken.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        taken.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("target", TARGETS)
def test_training(target, tmp_path):
    """The example's losses equal PyTorch's, step by step."""
    model, x, y = digits()
    deploy(tmp_path, target, model, (x,), training=True)
    build(tmp_path, target, source="../../examples/finetune.c")
    for optimizer in RATES:
        losses = finetune(tmp_path, optimizer, x, y, 30)
        expected = expected_losses(copy.deepcopy(model), optimizer, x, y, 30)
        np.testing.assert_allclose(losses, expected, rtol=2e-3, atol=2e-4)
        assert losses[-1] < 0.2 * losses[0]


@pytest.mark.slow
def test_resnet_fine_tuned(torchvision, tmp_path):
    """examples/finetune.py: a trained ResNet-18 is trained further in C, with other images. Steps of a network with
    batch-norm on eight images are unstable, so the losses differ more with each step."""
    example = HERE.parent.parent / "examples" / "finetune.py"
    command = (sys.executable, example, "--steps", 14, "--size", 32, "--batch", 8, "--folder", tmp_path)
    env = {"SOL_CACHE": sol.config["cache::folder"], "SOL_AUTOTUNE": "off"}
    rows = re.findall(r"^ *\d+  ([\d.]+)  ([\d.]+)  ([\d.]+)$", sh(tmp_path, *command, env=env), re.M)
    losses, pytorch, exact = np.array(rows, float).T
    assert len(losses) == 14
    np.testing.assert_allclose(losses[:6], exact[:6], rtol=2e-3)
    np.testing.assert_allclose(losses, pytorch, rtol=0.04, atol=0.01)
    for found in (losses, pytorch):
        assert found[-4:].mean() < 0.3 * found[:4].mean()


def test_training_gradients(tmp_path):
    """Every parameter's gradient equals PyTorch's; the library's predictions do not change."""
    model, x, _ = digits()
    deploy(tmp_path, "shared_lib", model, (x,), training=True)
    code = """
import ctypes, numpy as np, libnet_numpy as w
lib = w._lib
lib.net_training_create.restype = lib.net_training_gradient.restype = lib.net_training_parameter.restype = ctypes.c_void_p
lib.net_parameter.restype = ctypes.POINTER(w.Tensor)
t = ctypes.c_void_p(lib.net_training_create(2))
x, g, y = np.load("x.npy"), np.load("g.npy"), np.empty((16, 10), "f")
at = lambda a: (ctypes.c_void_p * 1)(a.ctypes.data)
w._check(lib.net_training_forward(t, at(x), at(y)))
w._check(lib.net_training_backward(t, at(x), at(y), at(g)))
assert lib.net_training_backward(t, at(x), at(y), at(g)) != 0
assert lib.net_training_forward(None, at(x), at(y)) != 0 and lib.net_training_forward(t, None, at(y)) != 0
assert lib.net_training_forward(t, at(x), at(y)) == 0 and lib.net_training_backward(t, at(x), at(y), None) != 0
assert lib.net_training_run(None, at(x), at(y)) != 0 and not lib.net_training_parameter(None, 0)
found = {}
for i in range(lib.net_parameters()):
    p = lib.net_parameter(i).contents
    read = lambda a: np.frombuffer(ctypes.string_at(a, p.bytes), p.dtype).reshape(p.shape)
    found[p.name] = read(lib.net_training_gradient(t, i))
np.savez("found.npz", y=y, **found)
z = np.empty((16, 10), "f")
w._check(lib.net_training_run(t, at(x), at(z)))
lib.net_training_free(t)
assert (w.run(x) == z).all()
np.testing.assert_allclose(y, z, rtol=1e-4, atol=1e-5)
"""
    g = torch.randn(16, 10)
    np.save(tmp_path / "x.npy", x.numpy())
    np.save(tmp_path / "g.npy", g.numpy())
    sh(tmp_path, os.path.abspath(".venv/bin/python"), "-c", code)
    found = np.load(tmp_path / "found.npz")
    out = model(x)
    out.backward(g)
    np.testing.assert_allclose(found["y"], out.detach().numpy(), rtol=1e-4, atol=1e-5)
    expected = {n: p.grad for n, p in model.named_parameters() if p.requires_grad}
    assert {n.removeprefix("model.") for n in found.files} == {*expected, "y"}
    for n, grad in expected.items():
        np.testing.assert_allclose(found[f"model.{n}"], grad.numpy(), rtol=1e-3, atol=1e-3 * float(grad.abs().max()))


def test_steps_of_optimizers(tmp_path):
    """In double precision, steps equal PyTorch's to the last digits. Another optimizer starts with a new state."""
    torch.manual_seed(2)
    model, x, g = nn.Linear(3, 2).double(), torch.randn(4, 3).double(), torch.randn(4, 2).double()
    deploy(tmp_path, "shared_lib", model, (x,), training=True)
    code = """
import ctypes, numpy as np, libnet_numpy as w
lib, real = w._lib, ctypes.c_double
lib.net_training_create.restype = lib.net_training_parameter.restype = ctypes.c_void_p
lib.net_parameter.restype = ctypes.POINTER(w.Tensor)
t = ctypes.c_void_p(lib.net_training_create(1))
x, g, y = np.load("x.npy"), np.load("g.npy"), np.empty((4, 2))
at = lambda a: (ctypes.c_void_p * 1)(a.ctypes.data)
for step in range(9):
    w._check(lib.net_training_forward(t, at(x), at(y)))
    w._check(lib.net_training_backward(t, at(x), at(y), at(g)))
    if step // 3 == 1:
        lib.net_training_sgd(t, real(0.1), real(0.7), real(0.01))
    else:
        lib.net_training_adam(t, real(0.1), real(0.8), real(0.97), real(1e-3), real(0.01))
for i in range(lib.net_parameters()):
    np.save(f"p{i}.npy", np.frombuffer(ctypes.string_at(lib.net_training_parameter(t, i), lib.net_parameter(i).contents.bytes)))
lib.net_training_free(t)
"""
    np.save(tmp_path / "x.npy", x.numpy())
    np.save(tmp_path / "g.npy", g.numpy())
    sh(tmp_path, os.path.abspath(".venv/bin/python"), "-c", code)
    for step in range(9):
        if step % 3 == 0:
            taken = (
                torch.optim.SGD(model.parameters(), 0.1, 0.7, weight_decay=0.01)
                if step == 3
                else torch.optim.Adam(model.parameters(), 0.1, (0.8, 0.97), 1e-3, 0.01)
            )
        taken.zero_grad()
        model(x).backward(g)
        taken.step()
    for i, p in enumerate(model.parameters()):
        np.testing.assert_allclose(np.load(tmp_path / f"p{i}.npy"), p.detach().numpy().ravel(), rtol=1e-12)


class Residual(nn.Module):
    """A small residual network with batch-norm and dropout."""

    def __init__(self, p):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.a = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8, momentum=None), nn.ReLU())
        self.b = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.drop, self.out = nn.Dropout(p), nn.Linear(8, 10)

    def forward(self, x):
        y = self.stem(x)
        y = torch.relu(y + self.b(self.a(y)))
        return self.out(self.drop(y.mean((2, 3))))


@pytest.mark.parametrize(("p", "target"), [(0.0, "shared_lib"), (0.3, "static_lib"), (0.3, "source")])
def test_training_with_statistics(p, target, tmp_path):
    """In train mode batch-norm uses batch statistics and updates the running ones, and dropout drops what SOL drops in
    PyTorch for the same seed. Losses equal PyTorch's, step by step, and so do predictions with the trained values."""
    torch.manual_seed(8)
    model, x, y = Residual(p).train(), torch.randn(16, 1, 16, 16), torch.randint(0, 10, (16,))
    deploy(tmp_path, target, model, (x,), training=True)
    assert all(m.training for m in model.modules())
    build(tmp_path, target, source="../../examples/finetune.c")
    losses = finetune(tmp_path, "sgd", x, y, 12, "after")
    optimized = sol.optimize(model, x) if p else model
    sol.set_seed(0)
    np.testing.assert_allclose(losses, expected_losses(optimized, "sgd", x, y, 12), rtol=2e-3, atol=2e-4)
    if p:
        model.load_state_dict(optimized.state_dict())
    with torch.no_grad():
        after = model.eval()(x).numpy()
    np.testing.assert_allclose(np.fromfile(tmp_path / "after", "f").reshape(16, 10), after, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("kind", ["address,undefined"])
def test_training_sanitized(kind, tmp_path):
    model, x, y = digits()
    deploy(tmp_path, "source", model, (x,), training=True)
    build(
        tmp_path,
        "source",
        "gcc",
        [f"-fsanitize={kind}", "-fno-sanitize-recover=all", "-g"],
        source="../../examples/finetune.c",
    )
    assert len(finetune(tmp_path, "adam", x, y, 3)) == 3
    build(tmp_path, "source", "gcc", [f"-fsanitize={kind}", "-fno-sanitize-recover=all", "-g"])
    drive(tmp_path, model, (x,))  # it also predicts
    drive(tmp_path, model, (x,), "memory")
