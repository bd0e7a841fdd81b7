"""Whole networks, compiled, compared with PyTorch and float64; and typical parts of networks."""

import copy
import functools
import os
import subprocess
import tempfile
from pathlib import Path

import networks
import numpy as np
import pytest
import sol
import torch
import torch.nn.functional as F
import zoo
from torch import nn
from torch.utils import _pytree as pytree
from torch_help import TIMES_WINOGRAD, assert_as_good, check, error

slow = pytest.mark.slow
SOL = os.environ.get("SOL_COMMAND", str(Path(__file__).resolve().parent.parent.parent / "build" / "cli" / "sol"))

# -- parts of networks: name, function, shapes of inputs, shapes of parameters


def turn(q):
    return torch.cat((-q[..., 4:], q[..., :4]), -1)


def heads(x, *weights):
    return [F.linear(x, w).view(2, 5, 4, 8).transpose(1, 2) for w in weights]


def scaled_head(x, y, *w):
    """A band of two units where three would be possible."""
    y = F.relu(F.conv2d(y, w[0], padding=1))
    wide = F.interpolate(y * torch.sigmoid(F.conv2d(x, w[1])), scale_factor=2, mode="bilinear")
    return F.conv2d(y, w[2]), F.conv2d(wide, w[3])


def exactly_float32(x, w):
    with torch.autocast("cpu", enabled=False):
        y = F.linear(x, w)
    return y + 1


PIECES = {
    "conv relu": (lambda x, w, b: F.relu(F.conv2d(x, w, b)), [(2, 3, 8, 8)], [(4, 3, 3, 3), (4,)]),
    "conv add relu": (lambda x, y, w: F.relu(F.conv2d(x, w, padding=1) + y), [(2, 3, 8, 8), (2, 4, 8, 8)], [(4, 3, 3, 3)]),
    "conv pool": (lambda x, w: F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 3, 2, 1), [(2, 3, 9, 9)], [(4, 3, 3, 3)]),
    "conv upsample": (lambda x, w: F.interpolate(F.conv2d(x, w), scale_factor=2), [(2, 3, 8, 8)], [(4, 3, 1, 1)]),
    "scaled head": (scaled_head, [(1, 96, 1, 1), (1, 128, 14, 14)], [(128, 128, 3, 3), (128, 96, 1, 1), (8, 128, 1, 1), (21, 128, 1, 1)]),
    "depthwise": (lambda x, w, v: F.conv2d(F.relu6(F.conv2d(x, w, padding=1, groups=8)), v), [(2, 8, 7, 7)], [(8, 1, 3, 3), (4, 8, 1, 1)]),
    "grouped": (lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1, groups=4)), [(2, 16, 7, 7)], [(32, 4, 3, 3), (32,)]),
    "grouped wide": (lambda x, w: F.conv2d(x, w, padding=1, stride=2, groups=2), [(2, 64, 9, 9)], [(64, 32, 3, 3)]),
    "volume": (lambda x, w, b: F.relu(F.conv3d(x, w, b, padding=1)), [(2, 3, 4, 7, 7)], [(8, 3, 3, 3, 3), (8,)]),
    "volume stem": (lambda x, w: F.conv3d(x, w, stride=(1, 2, 2), padding=(1, 3, 3)), [(2, 3, 4, 14, 14)], [(16, 3, 3, 7, 7)]),
    "signal": (lambda x, w: F.gelu(F.conv1d(x, w, stride=2, padding=1)), [(2, 3, 20)], [(8, 3, 3)]),
    "signal dilated": (lambda x, w: F.conv1d(x, w, dilation=3, groups=4), [(2, 8, 20)], [(8, 2, 3)]),
    "transposed": (lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1), [(2, 4, 5, 5)], [(4, 6, 3, 3), (6,)]),
    "squeeze": (lambda x, w: x * torch.sigmoid(F.conv2d(F.adaptive_avg_pool2d(x, 1), w)), [(2, 8, 7, 7)], [(8, 8, 1, 1)]),
    "concat": (lambda x, y, w: F.conv2d(torch.cat([x, y], 1), w), [(2, 3, 8, 8), (2, 5, 8, 8)], [(4, 8, 3, 3)]),
    "concat of convs": (lambda x, w, v: torch.cat([F.conv2d(x, w), F.relu(F.conv2d(x, v)), x], 1), [(2, 3, 8, 8)], [(4, 3, 1, 1), (8, 3, 1, 1)]),
    "shuffle": (lambda x, y: torch.cat([x, y], 1).view(2, 2, 4, 5, 5).transpose(1, 2).reshape(2, 8, 5, 5).chunk(2, 1), [(2, 4, 5, 5)] * 2, []),
    "linear relu linear": (lambda x, w, v: F.linear(F.relu(F.linear(x, w)), v), [(3, 8)], [(16, 8), (5, 16)]),
    "norm": (lambda x, w, b: F.layer_norm(x, (8,), w, b), [(2, 4, 8)], [(8,), (8,)]),
    "norm first": (lambda x, w: F.layer_norm(x, (8,), w)[:, 0], [(2, 5, 8)], [(8,)]),
    "norm rms": (lambda x, w: w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)), [(2, 4, 8)], [(8,)]),
    "norm groups": (lambda x, w: F.silu(F.group_norm(x, 2, w)), [(2, 8, 5, 5)], [(8,)]),
    "token": (lambda x, c: torch.cat([c.expand(2, -1, -1), x], 1), [(2, 4, 8)], [(1, 1, 8)]),
    "token and place": (lambda x, c, p: torch.cat([c.expand(2, -1, -1), x], 1) + p, [(2, 4, 8)], [(1, 1, 8), (1, 5, 8)]),
    "patches": (lambda x, w, b: F.conv2d(x, w, b, stride=4).flatten(2).transpose(1, 2), [(2, 3, 8, 8)], [(8, 3, 4, 4), (8,)]),
    "patches and token": (
        lambda x, w, c, p: torch.cat([c.expand(2, -1, -1), F.conv2d(x, w, stride=4).flatten(2).transpose(1, 2)], 1) + p,
        [(2, 3, 8, 8)], [(8, 3, 4, 4), (1, 1, 8), (1, 5, 8)],
    ),
    "attention": (F.scaled_dot_product_attention, [(2, 4, 5, 8)] * 3, []),
    "attention causal": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [(2, 4, 5, 8)] * 3, []),
    "attention masked": (lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), [(2, 4, 5, 8)] * 3 + [(2, 1, 5, 5)], []),
    "attention hidden": (lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m > -1), [(2, 4, 5, 8)] * 3 + [(2, 1, 5, 5)], []),
    "attention shared": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), [(2, 4, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8)], [],
    ),
    "attention by hand": (lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) * 0.3, -1) @ v, [(2, 4, 5, 8)] * 3, []),
    "attention projected": (
        lambda x, a, b, c, d: F.linear(F.scaled_dot_product_attention(*heads(x, a, b, c)).transpose(1, 2).reshape(2, 5, 32), d),
        [(2, 5, 32)], [(32, 32)] * 4,
    ),
    "repeated heads": (lambda k: k[:, :, None].expand(2, 2, 2, 5, 8).reshape(2, 4, 5, 8), [(2, 2, 5, 8)], []),
    "turned": (turn, [(2, 4, 5, 8)], []),
    "turned times": (lambda q, s: turn(q) * s, [(2, 4, 5, 8), (5, 8)], []),
    "rotary": (lambda q, c, s: q * c + turn(q) * s, [(2, 4, 5, 8), (5, 8), (5, 8)], []),
    "rotary constant": (lambda q: q * torch.arange(5.0)[:, None].cos() + turn(q) * torch.arange(5.0)[:, None].sin(), [(2, 4, 5, 8)], []),
    "gated": (lambda x, a, b, c: F.linear(F.silu(F.linear(x, a)) * F.linear(x, b), c), [(2, 5, 8)], [(16, 8), (16, 8), (8, 16)]),
    "autocast off": (exactly_float32, [(3, 8)], [(5, 8)]),
    "mlp": (lambda x, a, b: x + F.linear(F.gelu(F.linear(x, a)), b), [(2, 5, 8)], [(16, 8), (8, 16)]),
    "rolled windows": (lambda x: torch.roll(x, (-1, -1), (1, 2)).view(2, 2, 2, 2, 2, 8).permute(0, 1, 3, 2, 4, 5).reshape(8, 4, 8), [(2, 4, 4, 8)], []),
    "two results": (lambda x, w: (F.layer_norm(x, (8,), w), torch.tanh(F.layer_norm(x, (8,), w)[:, 0])), [(2, 5, 8)], [(8,)]),
    "pooled twice": (lambda x: (F.avg_pool2d(x, 2), F.max_pool2d(x, 2), x.mean((2, 3))), [(2, 4, 6, 6)], []),
    "slices": (lambda x: x[:, 1:3] * x[:, ::2][:, :2] + x[:, :2, :1], [(2, 4, 6)], []),
    "written slices": (lambda x: x.clone().index_fill_(1, torch.tensor([1]), 3.0)[:, :3] + x[:, 1:], [(2, 4, 6)], []),
    "running": (lambda x: torch.cumsum(x, 1) / torch.arange(1, 5)[:, None], [(2, 4, 6)], []),
}  # fmt: skip


class Piece(nn.Module):
    def __init__(self, function, shapes):
        super().__init__()
        self.__dict__["function"] = function
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(s) * 0.5) for s in shapes)

    def forward(self, *args):
        return self.function(*args, *self.weights)


@pytest.mark.parametrize("name", PIECES)
def test_piece(name):
    function, inputs, params = PIECES[name]
    model, args = Piece(function, params).eval(), tuple(torch.randn(s) for s in inputs)
    check(sol.optimize(model, *args), model, args)


class Widened(nn.Module):
    """A convolution in blocks of channels, followed by a resize that cannot be part of a band of rows."""

    def __init__(self, channels=96):
        super().__init__()
        self.first, self.a, self.b = (
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.Conv2d(channels, 8, 1),
            nn.Conv2d(channels, 8, 1),
        )

    def forward(self, x):
        y = F.relu(self.first(F.max_pool2d(x, 2)))
        y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=True)
        return self.a(y), self.b(y)


def test_weights_that_winograd_transforms_for_blocks_of_channels():
    model, x = Widened().eval(), torch.randn(1, 96, 16, 16)
    sol.config["bands"] = "always"
    try:
        check(sol.optimize(model, x), model, (x,), times=TIMES_WINOGRAD)
    finally:
        del sol.config["bands"]


# -- well-known networks: in every way, with every batch size

WAYS = ("pytorch", "compile", "onnx")
SIZES = {"1": 1, "2": 2, "5": 5, "97x131": 1}  # batch


class Subject:
    """A network and its references, image by image: computed once for all ways of running it and all batch sizes."""

    def __init__(self, name, torchvision):
        self.name, self.torchvision = name, torchvision
        self.model, _ = networks.network(name, torchvision)
        self.double = copy.deepcopy(self.model).double()
        self.optimized, self.images, self.compiled = {}, {}, None
        self.folder = tempfile.TemporaryDirectory()

    def image(self, odd, i):
        """Input number i, PyTorch's result, and the exact one."""
        if (odd, i) not in self.images:
            inputs = networks.network_inputs(self.name, self.torchvision, (97, 131) if odd else networks.IMAGE)
            torch.manual_seed(100 + i)
            (x,) = inputs(1)
            with torch.no_grad():
                self.images[odd, i] = x, self.model(x), self.double(x.double())
        return self.images[odd, i]

    def case(self, size):
        """Input, PyTorch's result and the exact one."""
        images = [self.image(size == "97x131", i) for i in range(SIZES[size])]
        return [torch.cat(part) for part in zip(*images, strict=True)]

    def pytorch(self, size, x):
        with torch.no_grad():
            return sol.optimize(self.model, x)(x)

    def compile(self, size, x):
        if self.compiled is None:
            torch._dynamo.reset()
            self.compiled = torch.compile(self.model, backend="sol")
        with torch.no_grad():
            return self.compiled(x)

    def onnx(self, size, x):
        """Exports it once for all batch sizes and runs it with the command."""
        folder = Path(self.folder.name)
        path = folder / f"{'x'.join(map(str, x.shape[1:]))}.onnx"
        if not path.exists():
            example, batch = torch.cat([x, x])[:2], torch.export.Dim("batch", min=1, max=64)
            torch.onnx.export(
                self.model,
                (example,),
                path,
                input_names=["x"],
                output_names=["y"],
                dynamic_shapes=({0: batch},),
                verbose=False,
            )
        np.save(folder / "x.npy", x.numpy())
        command = [SOL, "run", path, "--input", f"x={folder / 'x.npy'}", "--output-dir", folder]
        cache = {"SOL_CACHE": sol.config["cache::folder"]}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | cache)
        assert done.returncode == 0, done.stderr
        return torch.from_numpy(np.load(folder / "y.npy"))


@functools.lru_cache(1)
def subject(name, torchvision):
    return Subject(name, torchvision)


def _cases():
    for name in networks.KNOWN:
        for way in WAYS:
            for size in SIZES:
                if size != "97x131" or name not in networks.NO_IMAGES:
                    quick = name in networks.FAMILIES and way == "pytorch" and size == "2"
                    yield pytest.param(name, way, size, id=f"{name}-{way}-{size}", marks=() if quick else slow)


@pytest.mark.parametrize(("name", "way", "size"), list(_cases()))
def test_network(name, way, size, torchvision):
    net = subject(name, torchvision)
    x, eager, exact = net.case(size)
    got = getattr(net, way)(size, x)
    print(f"{name} {way} {size}: error {error(got, exact):.3g}, PyTorch's {error(eager, exact):.3g}")  # shown by -rP
    assert_as_good(got, eager, exact, TIMES_WINOGRAD)


# -- other networks


@pytest.mark.parametrize("name", [*networks.OTHERS, *(pytest.param(n, marks=slow) for n in networks.MORE)])
def test_other(name, torchvision):
    model, inputs = networks.network(name, torchvision)
    args = inputs(2)
    check(sol.optimize(model, *args), model, args, times=TIMES_WINOGRAD)


@pytest.mark.parametrize("name", zoo.NETWORKS)
def test_small(name):
    model, *args = zoo.NETWORKS[name]()
    model = networks.enliven(model)
    check(sol.optimize(model, *args), model, tuple(args), times=TIMES_WINOGRAD)


def test_outputs_of_a_network_are_rebuilt(torchvision):
    model, inputs = networks.network("lraspp_mobilenet_v3_large", torchvision)
    args = inputs(1)
    optimized = sol.optimize(model, *args)
    with torch.no_grad():
        got, eager = optimized(*args), model(*args)
    assert list(got) == list(eager) and str(pytree.tree_structure(got)) == str(pytree.tree_structure(eager))
