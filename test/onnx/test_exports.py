"""Small networks of many kinds, exported by both of torch's exporters, compared with torch."""

import io
import logging
import math
import warnings

import numpy as np
import pytest
import torch
from sol_c import Model
from torch import nn
from torch.nn import functional as F

logging.disable(logging.CRITICAL)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.b = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 2, 2, groups=8), nn.GroupNorm(2, 8), nn.SiLU())
        self.c = nn.ConvTranspose2d(8, 4, 3, 2, 1, 1)

    def forward(self, x):
        x = self.a(x)
        x = x + self.b(x)
        y = F.interpolate(self.c(x), scale_factor=2.0, mode="bilinear", align_corners=False)
        return F.adaptive_avg_pool2d(y, 1).flatten(1), F.max_pool2d(x, 3, 2, 1, ceil_mode=True)


class Gpt(nn.Module):
    def __init__(self, size=16, heads=2, words=20):
        super().__init__()
        self.words, self.places = nn.Embedding(words, size), nn.Parameter(torch.randn(32, size))
        self.norm, self.heads = nn.LayerNorm(size), heads
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, words)

    def forward(self, i):
        b, t = i.shape
        x = self.words(i) + self.places[:t]
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in (q, k, v))
        s = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
        s = s.masked_fill(torch.ones(t, t, dtype=torch.bool).tril().logical_not(), -torch.inf)
        y = (s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1)
        return self.out(F.gelu(x + y, approximate="tanh"))


class Sdpa(nn.Module):
    def forward(self, q):
        return F.scaled_dot_product_attention(q, q, q, is_causal=True)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.net = kind(6, 5, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x):
        y, state = self.net(x)
        return y, state[0] if isinstance(state, tuple) else state


class Shapes(nn.Module):
    """Arithmetic on sizes, slices, gathers, padding, rolling windows."""

    def forward(self, x):
        b, c, h, w = x.shape
        y = F.pad(x, (1, 2, 0, 1), mode="reflect")[:, :, :h, 1 : w + 1]
        y = torch.roll(y, (1, -1), (2, 3)).reshape(b, c // 2, 2, h * w).permute(0, 2, 1, 3)
        z = F.unfold(x, 2, stride=2).transpose(1, 2)
        return y[..., ::3].flatten(1), z.cumsum(1), x.topk(2, -1)[0], torch.cat([x, x.flip(3)], 3).amax((2, 3))


class Functions(nn.Module):
    def forward(self, x):
        a = torch.where(x > 0, x.sqrt(), x.abs().log1p()) + x.clamp(-0.5, 0.5)
        b = F.hardswish(x) * F.mish(x) - F.elu(x, 0.7) + F.softplus(x) / (1 + x.erf() ** 2)
        c = F.leaky_relu(x) + F.hardsigmoid(x) + F.selu(x) + F.celu(x, 0.5) + torch.atan2(x, x + 2)
        return a.logsumexp(-1), F.log_softmax(b, 1), c.std(-1), F.normalize(x, dim=1), (x * 7).round().remainder(3)


ITEMS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
CASES = {
    "residual": (Residual, lambda: torch.randn(2, 3, 11, 13)),
    "gpt": (Gpt, lambda: ITEMS),
    "sdpa": (Sdpa, lambda: torch.randn(2, 3, 5, 4)),
    "lstm": (lambda: Recurrent(nn.LSTM), lambda: torch.randn(3, 4, 6)),
    "gru": (lambda: Recurrent(nn.GRU), lambda: torch.randn(3, 4, 6)),
    "rnn": (lambda: Recurrent(nn.RNN), lambda: torch.randn(3, 4, 6)),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu", norm_first=True),
        lambda: torch.randn(2, 5, 16),
    ),
    "shapes": (Shapes, lambda: torch.randn(2, 4, 6, 6)),
    "functions": (Functions, lambda: torch.randn(3, 5, 4)),
}


def export(module, x, dynamo):
    data = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            torch.onnx.export(module, (x,), dynamo=True, verbose=False).save(data)
        else:
            torch.onnx.export(module, (x,), data, dynamo=False, opset_version=17)
    return data.getvalue()


@pytest.mark.parametrize("how", ["interpret", "run"])
@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_export(name, dynamo, how):
    torch.manual_seed(1)
    module, x = CASES[name][0]().eval(), CASES[name][1]()
    with torch.no_grad():
        expected = module(x)
    expected = expected if isinstance(expected, tuple) else (expected,)
    try:
        data = export(module, x, dynamo)
    except (torch.onnx.errors.UnsupportedOperatorError, NotImplementedError, TypeError) as e:
        pytest.skip(f"torch does not export it: {str(e)[:80]}")
    model = Model(data)
    got = getattr(model, how)({model.inputs[0][0]: x.numpy()})
    assert len(got) == len(expected)
    for g, e in zip(got, expected, strict=True):
        assert g.shape == tuple(e.shape)
        assert np.allclose(g, e.numpy(), 1e-4, 2e-5, equal_nan=True)


@pytest.mark.parametrize("name", ["gpt", "lstm", "residual"])
def test_sizes_left_open(name, tmp_path):
    """One file with several sizes; each size has its own code."""
    torch.manual_seed(1)
    module, x = CASES[name][0]().eval(), CASES[name][1]()
    axes = {i: f"axis{i}" for i in range(x.ndim) if name == "gpt" or i != x.ndim - 1}
    if name == "residual":
        axes = {0: "batch", 2: "height", 3: "width"}
    path = tmp_path / "m.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (x,), path, dynamo=False, opset_version=17, input_names=["x"], dynamic_axes={"x": axes}
        )
    for more in (0, 1, 3):
        shape = [n + more if i in axes else n for i, n in enumerate(x.shape)]
        given = torch.rand(shape) if x.is_floating_point() else torch.randint(0, 20, shape)
        with torch.no_grad():
            expected = module(given)
        expected = expected if isinstance(expected, tuple) else (expected,)
        model = Model(path, dims={f"x.{i}": shape[i] for i in axes})
        for g, e in zip(model.run({"x": given.numpy()}), expected, strict=True):
            assert g.shape == tuple(e.shape) and np.allclose(g, e.numpy(), 1e-4, 2e-5)
