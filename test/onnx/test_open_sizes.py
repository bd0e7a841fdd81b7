"""sol.optimize and sol.dims of ONNX models with open sizes: one program for all, against ONNX Runtime."""

import io
import re
import warnings

import numpy as np
import onnxruntime as ort
import pytest
import sol
import torch
import torch.nn.functional as F
from torch import nn

import onnx
from build import info, model, node, tensor

RNG = np.random.default_rng(5)


def real(*shape):
    return RNG.standard_normal(shape, np.float32)


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(12, 2, 1)

    def forward(self, x):
        a = F.relu(self.a(x))
        b = F.relu(self.b(F.max_pool2d(a, 2)))
        return self.c(torch.cat([a, F.interpolate(b, scale_factor=2.0)], 1))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Linear(8, 5)
        self.next = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        x = F.relu(x + self.next(x))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.fc = nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        y, _ = self.net(x)
        return self.fc(y)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(20, 16), nn.Embedding(64, 16)
        self.qkv, self.out, self.norm = nn.Linear(16, 48), nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, i):
        b, t = i.shape
        x = self.words(i) + self.places(torch.arange(t).expand(b, t))
        q, k, v = (z.view(b, t, 2, 8).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        y = ((q @ k.transpose(-1, -2) / 8**0.5).softmax(-1) @ v).transpose(1, 2).reshape(b, t, 16)
        return self.norm(x + self.out(y))


class Spatial(nn.Module):
    opset = 20  # the first with AffineGrid

    def __init__(self):
        super().__init__()
        self.find, self.theta = nn.Conv2d(3, 4, 3, 2, 1), nn.Linear(4, 6)

    def forward(self, x):
        theta = self.theta(F.adaptive_avg_pool2d(F.relu(self.find(x)), 1).flatten(1)).view(-1, 2, 3)
        return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)


IDS = np.random.default_rng(1).integers(0, 20, (9, 64))
EXPORTED = {  # network, example, names of its dimensions, other arguments
    "unet": (Unet, real(2, 3, 8, 12), {0: "n", 2: "h", 3: "w"},
             [real(1, 3, 8, 8), real(3, 3, 10, 4), real(1, 3, 2, 30), real(7, 3, 6, 2), real(2, 3, 8, 12)]),
    "residual": (Residual, real(2, 3, 9, 9), {0: "n", 2: "h", 3: "w"},
                 [real(1, 3, 7, 9), real(4, 3, 1, 1), real(3, 3, 17, 5), real(1, 3, 2, 2), real(2, 3, 30, 11)]),
    "lstm": (Recurrent, real(2, 4, 6), {0: "n", 1: "t"},
             [real(1, 1, 6), real(3, 7, 6), real(1, 9, 6), real(5, 1, 6), real(2, 20, 6)]),
    "encoder": (Encoder, IDS[:2, :5], {0: "n", 1: "t"},
                [IDS[:1, :1], IDS[:3, :17], IDS[:1, :33], IDS[:9, :1], IDS[:2, :64]]),
    "spatial transformer": (Spatial, real(2, 3, 8, 12), {0: "n", 2: "h", 3: "w"},
                            [real(1, 3, 8, 8), real(3, 3, 11, 4), real(1, 3, 2, 31), real(7, 3, 5, 3), real(2, 3, 16, 12)]),
}  # fmt: skip


def export(module, x, names):
    data = io.BytesIO()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module().eval(), (torch.from_numpy(x),), data, dynamo=False, opset_version=getattr(module, "opset", 17),
                          input_names=["x"], output_names=["y"], dynamic_axes={"x": names})  # fmt: skip
    return data.getvalue()


@pytest.fixture
def compiled(monkeypatch):
    """The programs that are compiled: for all sizes (1), or for those of a call (2)."""
    found, make = [], sol._core.onnx_make

    def noted(source, dims, values, limits, arrays, ways, varying):
        found.append(ways)
        return make(source, dims, values, limits, arrays, ways, varying)

    monkeypatch.setattr(sol._core, "onnx_make", noted)
    return found


@pytest.mark.parametrize("name", EXPORTED)
def test_exported_networks_at_any_size(name, compiled):
    module, example, names, others = EXPORTED[name]
    data = export(module, example, names)
    net, session = sol.optimize(data), ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    for x in [example, *others]:
        expected = session.run(None, {"x": x})[0]
        np.testing.assert_allclose(net(x), expected, 1e-4, 1e-5)
    assert compiled == [1]


@pytest.fixture(scope="module")
def halves():
    """A picture is halved, doubled and added: its height and width are multiples of 2. Weights say the channels."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="conv", pads=[1, 1, 1, 1]),
        node("MaxPool", ["a"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", ["p", "", "scales"], ["u"], mode="nearest"),
        node("Add", ["u", "a"], ["y"]),
    ]
    weights = [tensor("w", real(4, 3, 3, 3)), tensor("scales", np.array([1, 1, 2, 2], np.float32))]
    return model(nodes, [info("x", ["batch", None, "height", "width"])], [info("y", None)], weights)


REPORT = """\
Inputs:  in_0 [#0, 3, #1, #2]
Outputs: out_0 [#0, 4, #1, #2]
#0 = 8, 1..: dimension 0 of x
#1 = 224, 1.., a multiple of 2: dimension 2 of x
#2 = 224, 1.., a multiple of 2: dimension 3 of x
dimension 1 of x is fixed at 3: node 0 'conv', Conv (opset 17): the number of channels: expected x.1, got 3"""


def test_the_report(halves, capfd):
    found = sol.dims(halves)
    assert str(found) == REPORT
    assert [(d.name, d.min, d.max, d.multiple) for d in found.dims] == [
        ("#0", 1, None, 1),
        ("#1", 1, None, 2),
        ("#2", 1, None, 2),
    ]
    assert [d.size for d in sol.dims(halves, real(1, 3, 16, 32)).dims] == [1, 16, 32]
    net = sol.optimize(halves)
    text = capfd.readouterr().err
    assert "Inputs:  in_0 [#0, 3, #1, #2]" in text and "Outputs: out_0 [#0, 4, #1, #2]" in text
    assert re.search(r"Inference ~\S+ \+ #0 \* #1 \* #2 \* \S+ \(~\S+ at #0 = 8, #1 = 224, #2 = 224\)", text), text
    assert str(sol.dims(net)) == str(found)


def test_vdims_by_number(halves, compiled):
    net = sol.optimize(halves, real(2, 3, 16, 8), vdims=[True, 32])
    assert net.inputs[0].shape == ("batch", None, 32, 8)
    assert str(sol.dims(net)).startswith("Inputs:  in_0 [#0, 3, 32, 8]")
    assert net(real(5, 3, 32, 8)).shape == (5, 4, 32, 8) and compiled == [1]
    with pytest.raises(sol.InvalidError, match="expected size 32 in dimension 2, got 16"):
        net(real(2, 3, 16, 8))
    with pytest.raises(sol.InvalidError, match=r"#1 .height. stays at the example's size, but there is no example"):
        sol.optimize(halves, vdims=[True, False])
    with pytest.raises(sol.InvalidError, match="expected at most 3 values"):
        sol.optimize(halves, vdims=[True] * 4)


def test_limits(halves, compiled):
    side = sol.dim("side", max=64, multiple=4, example=16)
    net = sol.optimize(halves, sol.input([0, 3, side, 0]))
    assert net(real(1, 3, 8, 6)).shape == (1, 4, 8, 6)
    for n in (68, 6):
        with pytest.raises(sol.InvalidError, match=f"'side' is {n}, expected 1..64, a multiple of 4"):
            net(real(1, 3, n, 8))
    assert compiled == [1]
    assert "#1 = 16, 1..64, a multiple of 4: dimension 2 of x" in str(sol.dims(net))


def test_sizes_that_the_program_excludes_get_their_own(compiled):
    """A 1 that is repeated where the program needs equal sizes, and an empty array."""
    m = model([node("Add", ["x", "z"], ["y"])], [info("x", ["n", 4]), info("z", ["m", 4])], [info("y", None)])
    net = sol.optimize(m)
    assert net(real(5, 4), real(5, 4)).shape == (5, 4) and compiled == [1]
    assert net(real(5, 4), real(1, 4)).shape == (5, 4) and compiled == [1, 2]
    assert net(real(0, 4), real(0, 4)).shape == (0, 4) and compiled == [1, 2, 2]
    with pytest.raises(sol.InvalidError, match="is 3 in input 'z'"):
        net(real(5, 4), real(3, 4))


def test_sizes_that_do_not_fit(halves):
    net = sol.optimize(halves)
    with pytest.raises(sol.InvalidError, match="'height' is 7, expected a multiple of 2"):
        net(real(1, 3, 7, 8))
    with pytest.raises(sol.InvalidError, match=r"expected f32\[#0, 3, #1, #2\], got f32\[1, 4, 8, 8\]"):
        net(real(1, 4, 8, 8))


def test_without_a_program_for_all_each_size_is_compiled(compiled, capfd):
    m = model([node("DFT", ["x"], ["y"])], [info("x", [1, "n", 1])], [info("y", None)])
    net = sol.optimize(m)
    assert re.search("each new size is compiled: .*the length of the signal", capfd.readouterr().err)
    for n in (8, 6):
        x = real(1, n, 1)
        np.testing.assert_allclose(net(x)[..., 0], np.fft.fft(x[..., 0]).real, 1e-4, 1e-5)
    assert compiled == [1, 2, 2]
    assert "fixed at 8: " in str(sol.dims(m, real(1, 8, 1)))


def test_a_path_and_vdims_false(halves, tmp_path, compiled):
    onnx.save(halves, tmp_path / "h.onnx")
    net = sol.optimize(tmp_path / "h.onnx", vdims=False)
    assert net(real(1, 3, 4, 4)).shape == (1, 4, 4, 4) and net(real(2, 3, 4, 4)).shape == (2, 4, 4, 4)
    assert compiled == [2, 2]
