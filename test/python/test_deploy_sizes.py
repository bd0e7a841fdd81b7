"""sol.deploy with sizes that vary: a C program calls the library at several sizes, in all ways; PyTorch has the results."""

import math
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
import sol
import torch
from test_deploy import BARE, CROSS, HERE, build, deploy, leaves, needs_compiler, sh, small, unoptimized
from torch import nn

PYTHON = os.path.abspath(".venv/bin/python")


class Sequence(nn.Module):
    """Attention and a recurrence, with positions up to 64."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Parameter(torch.randn(64, 16))
        self.attention = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.lstm = nn.LSTM(16, 9, batch_first=True)

    def forward(self, ids):
        y = self.attention(self.words(ids) + self.places[: ids.shape[1]])
        return self.lstm(y)[0], y.mean(1)


class Sorting(nn.Module):
    """Layers without loops: they need memory by the sizes of a call."""

    def forward(self, x, i, u):
        values, order = x.sort(dim=1, stable=True)
        return values, order, x.scatter_add(1, i, u), x.T.sort(dim=0, descending=True, stable=True).values


def mlp():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(20, 33), nn.ReLU(), nn.Linear(33, 7), nn.Softmax(1)).eval()
    return model, (sol.input([sol.dim("batch", 0, 64), 20]),), lambda n: (torch.randn(n, 20),)


def pictures():
    model, _ = small()
    batch, height, width = sol.dim("batch", max=8), sol.dim("height", 3, 40), sol.dim("width", 3, 40, 2)
    return model, (sol.input([batch, 3, height, width]),), lambda n, h, w: (torch.randn(n, 3, h, w),)


def sequence():
    torch.manual_seed(2)
    ids = sol.input([sol.dim("batch", 0), sol.dim("steps", max=64)], dtype=torch.int64)
    return Sequence().eval(), (ids,), lambda n, t: (torch.randint(0, 50, (n, t)),)


def sorting():
    rows, width = sol.dim("rows", 0), sol.dim("width", example=70)
    shapes = [sol.input([rows, width]), sol.input([rows, 5], dtype=torch.int64), sol.input([rows, 5])]
    return Sorting(), tuple(shapes), lambda n, w: (torch.randn(n, w), torch.randint(0, w, (n, 5)), torch.randn(n, 5))


SIZES = {
    mlp: [(24,), (0,), (1,), (7,), (64,)],
    pictures: [(2, 12, 14), (1, 3, 4), (8, 40, 40), (2, 19, 18), (1, 5, 40)],
    sequence: [(2, 16), (0, 5), (1, 1), (3, 64), (5, 7)],
    sorting: [(4, 70), (0, 3), (1, 1), (9, 33), (3, 200)],
}


def names_of(inputs):
    """The dimensions of a network, in the order of the arguments of its functions."""
    return [s.name for s in dict.fromkeys(d for i in inputs for d in i.shape if isinstance(d, type(sol.dim("n"))))]


def program(folder, target, names, flags=(), cc="cc"):
    """Builds the driver for a library with these dimensions."""
    at = ", ".join(f"s[{i}]" for i in range(len(names)))
    (folder / "at.h").write_text(f"#define NDIM {len(names)}\n#define AT(s) {at}\n")
    build(folder, target, cc, flags, "sizes.c")


def drive(folder, model, make, sizes, *wrong, run=("./driver",)):
    """Runs the driver for these sizes, and compares the outputs with the framework's. Returns what it prints."""
    torch.manual_seed(9)
    rows = [make(*s) for s in sizes]
    for r, inputs in enumerate(rows):
        for i, t in enumerate(inputs):
            (folder / f"in{i}_{r}").write_bytes(t.contiguous().numpy().tobytes())
    said = sh(folder, *run, *(",".join(map(str, s)) for s in sizes), *(f"wrong{w}" for w in wrong))
    for r, inputs in enumerate(rows):
        with torch.no_grad():
            expected = leaves(model(*inputs))
        for i, t in enumerate(expected):
            got = np.frombuffer((folder / f"out{i}_{r}").read_bytes(), t.numpy().dtype).reshape(t.shape)
            np.testing.assert_allclose(got, t.numpy(), rtol=1e-4, atol=2e-5, err_msg=f"{sizes[r]}, output {i}")
    return said


@pytest.mark.parametrize(
    ("make", "target"),
    [(mlp, "static_lib"), (mlp, "shared_lib"), (pictures, "shared_lib"), (sequence, "shared_lib"), (sorting, "source")],
)
def test_sizes(make, target, tmp_path):
    """Five sizes, 0 and 1 among them, in contexts of their own and in blocks with guards, in four threads at once, a thousand
    in turns without new memory, and after a size for which there is none."""
    model, inputs, data = make()
    names = names_of(inputs)
    deploy(tmp_path, target, model, inputs)
    assert f"({', '.join(['void *ctx', *(f'int64_t {n}' for n in names)])}, " in (tmp_path / "libnet.h").read_text()
    program(tmp_path, target, names)
    drive(tmp_path, model, data, SIZES[make])
    if target != "source":
        assert sh(tmp_path, "make", "run").count("both ways give the same") == 2


def test_sizes_sanitized(tmp_path):
    model, inputs, data = pictures()
    deploy(tmp_path, "source", model, inputs)
    program(
        tmp_path,
        "source",
        ["batch", "height", "width"],
        ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"],
    )
    drive(tmp_path, model, data, SIZES[pictures])


def test_sizes_that_do_not_fit(tmp_path):
    model, inputs, data = pictures()
    deploy(tmp_path, "shared_lib", model, inputs)
    program(tmp_path, "shared_lib", ["batch", "height", "width"])
    said = drive(tmp_path, model, data, [(1, 4, 4)], "9,4,4", "1,2,4", "1,4,5", "-1,4,4")
    assert said.splitlines() == [
        "net: 'batch' is 9, expected 1..8",
        "net: 'height' is 2, expected 3..40",
        "net: 'width' is 5, expected a multiple of 2",
        "net: 'batch' is -1, expected 1..8",
    ]


class Branching(nn.Module):
    """Sizes that together decide what is computed."""

    def forward(self, x, y):
        return x.sum() + y.sum() if x.shape[0] + y.shape[0] > 20 else x.mean() - y.mean()


def test_what_the_model_assumes(tmp_path):
    """A branch on two sizes is a rule of the library."""
    inputs = [sol.input([sol.dim(name, example=n)]) for name, n in (("rows", 8), ("others", 15))]
    deploy(tmp_path, "shared_lib", Branching(), inputs)
    program(tmp_path, "shared_lib", ["rows", "others"])
    said = drive(tmp_path, Branching(), lambda a, b: (torch.randn(a), torch.randn(b)), [(8, 15), (2, 19)], "8,12")
    assert re.fullmatch(
        r"net with 'rows' 8, 'others' 12: .*\(test_deploy_sizes.py:\d+\): it needs a size .*rows.*, which would be -1",
        said.strip(),
    ), said


MACROS = """
#include <string.h>
#include "libnet.h"
static float in[NET_IN0_MOST_ELEMENTS], out[NET_OUT0_MOST_ELEMENTS], small[NET_IN0_ELEMENTS(2, 5, 4 + 2)];
static char block[NET_CONTEXT_BYTES(2)];
int main(void)
{
    const void *inputs[NET_INPUTS] = {in};
    void *outputs[NET_OUTPUTS] = {out};
    const int64_t in_shape[NET_IN0_DIMS] = NET_IN0_SHAPE(2, 5, 4 + 2), out_shape[NET_OUT0_DIMS] = NET_OUT0_SHAPE(2, 5, 6);
    int64_t shape[4];
    struct net_context *c = net_context_create(block, sizeof block, 2);
    if (!c || net_input_shape(0, 2, 5, 6, shape) || memcmp(shape, in_shape, sizeof in_shape)) return 1;
    if (net_output_shape(0, 2, 5, 6, shape) || memcmp(shape, out_shape, sizeof out_shape)) return 2;
    if (sizeof small != net_input_bytes(0, 2, 5, 6) || NET_OUT0_BYTES(2, 5, 6) != net_output_bytes(0, 2, 5, 6)) return 3;
    if (NET_IN0_MOST_BYTES != net_input_bytes(0, NET_BATCH_MAX, NET_HEIGHT_MAX, NET_WIDTH_MAX)) return 4;
    if (strcmp(net_dim(2)->name, "width") || net_dim(2)->multiple != NET_WIDTH_MULTIPLE || net_dims() != 3) return 5;
    if (net_input_bytes(1, 2, 5, 6) != -1 || net_input(0)->shape[0] != -1 || net_input(0)->shape[1] != 3) return 6;
    for (int n = NET_BATCH_MIN; n <= NET_BATCH_MAX; n++)
        for (int h = NET_HEIGHT_MIN; h <= NET_HEIGHT_MAX; h++)
            if (net_run(c, n, h, n % 2 ? NET_WIDTH_MAX : 4, inputs, outputs)) return 7;
    return 0;
}
"""


def test_the_most_as_constants(tmp_path):
    """A block of the header's size is enough for all sizes. The header is C++, too."""
    model, inputs, _ = pictures()
    deploy(tmp_path, "static_lib", model, inputs)
    (tmp_path / "most.c").write_text(MACROS)
    sh(
        tmp_path,
        "cc",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-sign-compare",
        "-I.",
        "most.c",
        "libnet.a",
        "-lm",
        "-pthread",
        "-o",
        "most",
    )
    sh(tmp_path, "./most")
    if shutil.which("g++"):
        sh(tmp_path, "g++", "-Wall", "-Werror", "-fsyntax-only", "-x", "c++", "libnet.h")


def test_self_test_at_several_sizes(tmp_path):
    """At the example's sizes, the least and larger ones, for each instruction set; CMake's test does the same."""
    model, inputs, data = pictures()
    deploy(tmp_path, "source", model, inputs, selftest="1", gcc__march=["x86-64-v2", "x86-64-v3"])
    assert (
        "It does so for batch 2, height 40, width 40; batch 1, height 3, width 4;"
        in (tmp_path / "libnet.h").read_text()
    )
    unoptimized(tmp_path)
    assert "the self-test passed" in sh(tmp_path, "make", "check")
    program(tmp_path, "source", ["batch", "height", "width"])
    drive(tmp_path, model, data, SIZES[pictures])
    table = tmp_path / "libnet_network.c"
    text = table.read_text()
    found = re.search(r"golden_at1_0\[\] = {\n    {0, (0x\w+), (\S+)}", text)  # damages a value of the second sizes
    table.write_text(text.replace(found[0], found[0].replace(found[1], hex(int(found[1], 16) ^ 1 << 24))))
    sh(tmp_path, "make", "libnet.a")
    done = subprocess.run(["make", "check"], cwd=tmp_path, text=True, capture_output=True)
    assert done.returncode and "the self-test failed" in done.stdout
    if shutil.which("cmake"):
        table.write_text(text)
        sh(tmp_path, "cmake", "-DCMAKE_C_FLAGS=-O0", "-B", "b", ".")
        sh(tmp_path, "cmake", "--build", "b", "-j2")
        assert re.search("example .*Passed(.|\n)*libnet_selftest .*Passed", sh(tmp_path / "b", "ctest"))


def test_python_wrapper_of_any_size(tmp_path):
    model, inputs, data = sequence()
    deploy(tmp_path, "shared_lib", model, inputs)
    code = (
        "import numpy as np, libnet_numpy as libnet\n"
        "for r in range(2):\n"
        "    y = libnet.run(np.load(f'x{r}.npy'))\n"
        "    np.save(f'y{r}.npy', y[0])\n"
        "print([(d.name, d.max) for d in libnet.dims])\n"
        "for wrong in (np.zeros((1, 65), 'i8'), np.zeros((1, 3, 2), 'i8'), np.zeros((1, 3), 'i4')):\n"
        "    try:\n        libnet.run(wrong)\n    except (RuntimeError, TypeError) as e:\n        print(e)\n"
    )
    rows = [data(3, 5)[0], data(1, 64)[0]]
    for r, x in enumerate(rows):
        np.save(tmp_path / f"x{r}.npy", x.numpy())
    assert sh(tmp_path, PYTHON, "-c", code).splitlines() == [
        "[('batch', 0), ('steps', 64)]",
        "net: 'steps' is 65, expected 1..64",
        "ids: expected int64[1, 3], got int64[1, 3, 2]",
        "ids: expected int64[1, 3], got int32[1, 3]",
    ]
    for r, x in enumerate(rows):
        np.testing.assert_allclose(np.load(tmp_path / f"y{r}.npy"), model(x)[0].detach().numpy(), rtol=1e-4, atol=1e-5)


class Words(nn.Module):
    """Layers without loops: gradients are put to rows, values are sorted, a matrix is inverted."""

    def __init__(self):
        super().__init__()
        self.embedding, self.out = nn.Embedding(20, 6), nn.Linear(6, 5)

    def forward(self, ids):
        x = self.embedding(ids).sort(1).values
        return self.out((x @ torch.linalg.inv(x.mT @ x + torch.eye(6))).sum(1))


TRAINED = {
    "pictures": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5)
        ),
        lambda n: torch.randn(n, 1, 8, 8),
    ),
    "words": (Words, lambda n: torch.randint(0, 20, (n, 7))),
}


@pytest.mark.parametrize("name", TRAINED)
def test_training_of_any_batch(name, tmp_path):
    """Gradients at several batch sizes, tail batches among them, and predictions with the trained values."""
    torch.manual_seed(5)
    make, inputs = TRAINED[name]
    model, x = make().eval(), inputs(1)
    open_ = sol.input([sol.dim("n", max=40), *x.shape[1:]], dtype=x.dtype)
    deploy(tmp_path, "shared_lib", model, (open_,), training=True)
    code = """
import ctypes, numpy as np, libnet_numpy as w
lib = w._lib
lib.net_training_create.restype = lib.net_training_gradient.restype = ctypes.c_void_p
lib.net_parameter.restype = ctypes.POINTER(w.Tensor)
t = ctypes.c_void_p(lib.net_training_create(2))
at = lambda a: (ctypes.c_void_p * 1)(a.ctypes.data)
for n in (16, 1, 40, 7, 16):
    x, g, y, z, size = np.load(f"x{n}.npy"), np.load(f"g{n}.npy"), np.empty((n, 5), "f"), np.empty((n, 5), "f"), ctypes.c_int64(n)
    w._check(lib.net_training_forward(t, size, at(x), at(y)))
    w._check(lib.net_training_run(t, size, at(x), at(z)))
    w._check(lib.net_training_backward(t, at(x), at(y), at(g)))
    assert lib.net_training_backward(t, at(x), at(y), at(g)) != 0
    assert (w.run(x) == z).all()
    read = lambda i, p: np.frombuffer(ctypes.string_at(lib.net_training_gradient(t, i), p.bytes), p.dtype).reshape(p.shape)
    found = {p.name: read(i, p) for i in range(lib.net_parameters()) for p in [lib.net_parameter(i).contents]}
    np.savez(f"found{n}.npz", y=y, **found)
try:
    w._check(lib.net_training_forward(t, ctypes.c_int64(41), at(x), at(y)))
except RuntimeError as e:
    print(e)
"""
    data = {n: (inputs(n), torch.randn(n, 5)) for n in (16, 1, 40, 7)}
    for n, (x, g) in data.items():
        np.save(tmp_path / f"x{n}.npy", x.numpy())
        np.save(tmp_path / f"g{n}.npy", g.numpy())
    assert sh(tmp_path, PYTHON, "-c", code) == "net: 'n' is 41, expected 1..40\n"
    for n, (x, g) in data.items():
        model.zero_grad()
        y = model(x)
        y.backward(g)
        found = np.load(tmp_path / f"found{n}.npz")
        np.testing.assert_allclose(found["y"], y.detach().numpy(), rtol=1e-4, atol=1e-5)
        for name, p in model.named_parameters():
            atol = 1e-3 * float(p.grad.abs().max())
            np.testing.assert_allclose(found[f"model.{name}"], p.grad.numpy(), rtol=1e-3, atol=atol)


def test_random_numbers_of_any_size(tmp_path):
    """The stream of net_seed is that of sol.set_seed, at each size."""
    f = lambda x: torch.nn.functional.dropout(x, 0.5, True)  # noqa: E731
    deploy(tmp_path, "shared_lib", f, (sol.input([sol.dim("rows"), 64]),))
    code = "import numpy as np, libnet_numpy as n\nn.seed(7)\n[np.save(f'y{r}.npy', n.run(np.ones((r, 64), 'f'))) for r in (4, 9)]"
    sh(tmp_path, PYTHON, "-c", code)
    g = sol.optimize(f, sol.input([sol.dim("rows"), 64]))
    sol.set_seed(7)
    for r in (4, 9):
        np.testing.assert_array_equal(np.load(tmp_path / f"y{r}.npy"), g(torch.ones(r, 64)).numpy())


@pytest.mark.parametrize("device", ["arm64", "arm", "riscv64"])
def test_other_devices_at_any_size(device, tmp_path):
    prefix, emulator = CROSS[device]
    needs_compiler(f"{prefix}-gcc")
    model, inputs, _ = mlp() if device != "arm64" else pictures()
    deploy(tmp_path, "static_lib", model, inputs, device_type=device, pack="ahead", selftest="1")
    if not shutil.which(emulator):
        pytest.skip(f"no {emulator} (apt install qemu-user)")
    assert sh(tmp_path, "make", "run").count("both ways give the same") == 2
    assert "the self-test passed" in sh(tmp_path, "make", "check")


@pytest.mark.parametrize("make", [mlp, pictures, pytest.param(sequence, marks=pytest.mark.slow)])
def test_neon_at_any_size(make, tmp_path):
    """What test_sizes does, by an emulator of ARM64: products, windows, attention, norms and a recurrence in NEON."""
    prefix, emulator = CROSS["arm64"]
    needs_compiler(f"{prefix}-gcc")
    if not shutil.which(emulator):
        pytest.skip(f"no {emulator} (apt install qemu-user)")
    model, inputs, data = make()
    deploy(tmp_path, "static_lib", model, inputs, device_type="arm64")
    program(tmp_path, "static_lib", names_of(inputs), ["-static"], f"{prefix}-gcc")
    small = [n for n in SIZES[make] if math.prod(n) < 5000]  # an emulator takes minutes for others
    drive(tmp_path, model, data, small, run=(emulator, "./driver"))


BARE_MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "libnet.h"
extern char stack[];
void initialise_monitor_handles(void);
void reset(void);
void _fini(void);
void _fini(void) {}
static float in[NET_IN0_MOST_ELEMENTS], out[NET_OUT0_MOST_ELEMENTS];
static char block[NET_CONTEXT_BYTES(1)];
static int main_of_test(void)
{
    const void *inputs[] = {in};
    void *outputs[] = {out};
    char text[256];
    struct net_context *c = net_context_create(block, sizeof block, 1);
    FILE *f = fopen("in", "rb"), *g = fopen("out", "wb");
    if (!c || !f || !g || net_context_create(block, sizeof block - 1, 1)) return 3;
    c = net_context_create(block, sizeof block, 1);
    for (int n = NET_BATCH_MIN; n <= NET_BATCH_MAX; n++) {
        const size_t bytes = (size_t)net_input_bytes(0, n), made = (size_t)net_output_bytes(0, n);
        if (fread(in, 1, bytes, f) != bytes || net_run(c, n, inputs, outputs) || fwrite(out, 1, made, g) != made) return 4;
    }
    if (!net_run(c, NET_BATCH_MAX + 1, inputs, outputs)) return 5;
    net_error(text, sizeof text);
    printf("%s\\n", text);
    return fclose(f) || fclose(g) || net_selftest(c, (void *const *)inputs, outputs, NULL) ? 6 : 0;
}
void reset(void)
{
    *(volatile unsigned *)0xE000ED88 |= 0xF << 20;
    initialise_monitor_handles();
    exit(main_of_test());
}
static void fault(void) { exit(99); }
typedef void (*vector)(void);
__attribute__((section(".vectors"), used)) static const vector vectors[] = {(vector)stack, reset, fault, fault, fault, fault, fault};
int main(void) { return 0; }
"""


def test_without_an_operating_system_at_any_size(tmp_path):
    """On a Cortex-M4, in arrays for the largest size; without a largest size there is no library."""
    needs_compiler("arm-none-eabi-gcc")
    model, inputs, data = mlp()
    with pytest.raises(
        sol.InvalidError, match=r"'rows' has no largest size: give one, as in sol.dim\(\"rows\", max=64\)"
    ):
        deploy(tmp_path, "static_lib", model, (sol.input([sol.dim("rows"), 20]),), **BARE)
    deploy(tmp_path, "static_lib", model, inputs, **BARE)
    names = set(re.findall(r" U (\w+)", sh(tmp_path, "arm-none-eabi-nm", "-u", "libnet.a")))
    own = set(re.findall(r" [TDRBd] (\w+)", sh(tmp_path, "arm-none-eabi-nm", "-g", "--defined-only", "libnet.a")))
    assert {n for n in names - own if not n.startswith("__aeabi_")} <= {"memcpy", "memmove", "memset", "strlen", "expf"}
    sh(tmp_path, "arm-none-eabi-gcc", "-Wall", "-Wextra", "-Werror", "-I.", "-c", "example.c", "check.c")
    if not shutil.which("qemu-system-arm"):
        pytest.skip("no qemu-system-arm (tools/setup.sh installs it)")
    (tmp_path / "main.c").write_text(BARE_MAIN)
    sh(
        tmp_path, "arm-none-eabi-gcc", *BARE["gcc__flags"].split(), "-nostartfiles", f"-march={BARE['gcc__march']}",
        "--specs=rdimon.specs", "-T", HERE / "bare.ld", "-I.", "main.c", "libnet.a", "-lm", "-o", "bare.elf",
    )  # fmt: skip
    rows = [data(n)[0] for n in range(65)]
    (tmp_path / "in").write_bytes(b"".join(x.numpy().tobytes() for x in rows))
    board = (
        "qemu-system-arm", "-M", "mps2-an386", "-nographic", "-monitor", "none", "-serial", "none",
        "-semihosting-config", "enable=on,target=native", "-kernel", "bare.elf",
    )  # fmt: skip
    assert sh(tmp_path, *board).strip() == "net: 'batch' is 65, expected 0..64"
    with torch.no_grad():
        expected = np.concatenate([model(x).numpy() for x in rows])
    np.testing.assert_allclose(np.fromfile(tmp_path / "out", "f").reshape(-1, 7), expected, rtol=1e-4, atol=1e-6)


@pytest.fixture
def onnx_file(tmp_path):
    """A model in a file whose sizes are open."""
    pytest.importorskip("onnx")
    model, _ = small()
    axes = {"x": {0: "batch", 2: "height", 3: "width.1"}}
    path = tmp_path / "net.onnx"
    torch.onnx.export(model, torch.randn(2, 3, 12, 14), str(path), dynamo=False, input_names=["x"], dynamic_axes=axes)
    return model, path


def test_onnx_on_the_command_line(onnx_file, tmp_path):
    """Open sizes of a file are arguments of the library's functions."""
    model, _ = onnx_file
    deploying = (
        os.path.abspath("build/cli/sol"),
        "deploy",
        "net.onnx",
        "--darg",
        "lib_name=libnet",
        "--darg",
        "func_name=net",
    )
    sh(tmp_path, *deploying, "-t", "static_lib", "-o", "s", "--dim", "batch=0..5")
    header = (tmp_path / "s" / "libnet.h").read_text()
    assert "int64_t batch, int64_t height, int64_t width_1, const float" in header and " *   batch: 1..5\n" in header
    program(tmp_path / "s", "static_lib", ["batch", "height", "width_1"])
    make = lambda n, h, w: (torch.randn(n, 3, h, w),)  # noqa: E731
    said = drive(tmp_path / "s", model, make, [(2, 12, 14), (1, 1, 1), (5, 30, 9), (1, 4, 4)], "6,4,4", "1,0,4")
    assert said.splitlines() == ["net: 'batch' is 6, expected 1..5", "net: 'height' is 0, expected at least 1"]
    for wrong, why in (("batch=5..2", "expected a whole number from 5 to"), ("batch=x..2", "expected a whole number")):
        done = subprocess.run([*deploying, "--dim", wrong], cwd=tmp_path, text=True, capture_output=True)
        assert done.returncode == 2 and why in done.stderr, done.stderr


def test_onnx_in_python(onnx_file, tmp_path):
    """What neither the file nor the arguments say varies."""
    _, path = onnx_file
    dim, dargs = sol.dim("n", max=9), {"path": tmp_path / "p", "lib_name": "libnet", "func_name": "net"}
    for args, options, shape in (
        ((), {}, "[batch, 3, height, width_1]"),
        ((sol.input([dim, 3, 12, 0]),), {}, "[batch, 3, 12, width_1]"),
        ((np.zeros((2, 3, 12, 14), "f"),), {"vdims": [True, False, 20]}, "[batch, 3, 12, 20]"),
        ((np.zeros((2, 3, 12, 14), "f"),), {}, "[2, 3, 12, 14]"),
        ((), {"fix": {"batch": 4}, "vdims": True}, "[4, 3, height, width_1]"),
        ((sol.input([0, 3, 12, 14]),), {"batch_size": 7}, "[7, 3, 12, 14]"),
    ):
        sol.deploy(str(path), "source", dargs, *args, **options)
        header = (tmp_path / "p" / "libnet.h").read_text()
        assert f" *   in0   f32{shape}" in header, shape
        assert (" *   batch: 1..9" in header) == (
            dim in (args[0].shape if args and not options and shape[1] == "b" else ())
        )


@pytest.mark.parametrize(
    ("model", "inputs", "keys", "why"),
    [
        (nn.Linear(4, 3), (sol.input([0, 4]),), {"batch_size": [1, 2], "vdims": True}, "give one of them"),
        (
            nn.Linear(4, 3),
            (sol.input([sol.dim("n", 1, 8), sol.dim("m", 1, 8)]),),
            {},
            r"the model does not take \(float32\[1, 8\]\)",
        ),
        (
            Sequence(),
            (sol.input([2, sol.dim("steps", max=80)], dtype=torch.int64),),
            {},
            r"the model does not take \(int64\[2, 80\]\): model, test_deploy_sizes\.py:\d+",
        ),
    ],
)
def test_what_is_rejected(model, inputs, keys, why, tmp_path):
    with pytest.raises(sol.Error, match=why):
        sol.deploy(model.eval(), "source", {"path": tmp_path}, *inputs, **keys)


def test_every_free_size(tmp_path):
    """vdims=True makes all vary that the model leaves free; a list selects some."""
    model, inputs = small()
    dargs = {"path": tmp_path, "lib_name": "libnet", "func_name": "net"}
    sol.deploy(model, "source", dargs, *inputs, vdims=True)
    assert "f32[dim0, 3, dim1, dim2]" in (tmp_path / "libnet.h").read_text()
    sol.deploy(model, "source", dargs, *inputs, vdims=[True, False, 20])
    assert "f32[dim0, 3, 12, 20]" in (tmp_path / "libnet.h").read_text()
