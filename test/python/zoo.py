"""Small networks of many kinds for which no kernel was tuned: signals, volumes, points, graphs, generators,
recommenders.

NETWORKS: name -> (module, its arguments), created anew by each call.
"""

import itertools

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


class WaveNet(nn.Module):
    """Dilated causal convolutions, gates, skips."""

    def __init__(self, c=16, layers=5):
        super().__init__()
        self.first, self.last = nn.Conv1d(4, c, 1), nn.Conv1d(c, 5, 1)
        self.gates = nn.ModuleList(nn.Conv1d(c, 2 * c, 2, dilation=2**k) for k in range(layers))
        self.skips = nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(layers))

    def forward(self, x):
        x, total = self.first(x), 0
        for gate, skip in zip(self.gates, self.skips, strict=True):
            a, b = gate(F.pad(x, (gate.dilation[0], 0))).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            total, x = total + skip(y), x + y
        return self.last(F.relu(total))


class Tcn(nn.Module):
    """Causal by cropping the padding; weights with a parametrization."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(weight_norm(nn.Conv1d(8, 8, 3, padding=2 * 2**k, dilation=2**k)) for k in range(3))

    def forward(self, x):
        for c in self.convs:
            x = F.relu(x + F.relu(c(x)[..., : -c.padding[0]]))
        return x[..., -1]


def generator(widths=(20, 32, 16, 8, 3)):
    """DCGAN's generator: from a point to an image."""
    layers = []
    for k, (i, o) in enumerate(itertools.pairwise(widths)):
        layers += [
            nn.ConvTranspose2d(i, o, 4, 2 if k else 1, 1 if k else 0, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(True),
        ]
    return nn.Sequential(*layers[:-2], nn.Tanh())


class Volumes(nn.Module):
    """A 3-D U-Net with one level."""

    def __init__(self, c=4):
        super().__init__()

        def double(i, o):
            return nn.Sequential(
                nn.Conv3d(i, o, 3, padding=1), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.1),
                nn.Conv3d(o, o, 3, padding=1), nn.GroupNorm(2, o), nn.ELU(),
            )  # fmt: skip

        self.a, self.b, self.c = double(1, c), double(c, 2 * c), double(3 * c, c)
        self.up, self.out = nn.ConvTranspose3d(2 * c, 2 * c, 2, 2), nn.Conv3d(c, 3, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.up(self.b(F.max_pool3d(a, 2)))
        return self.out(self.c(torch.cat([a, b], 1))).softmax(1)


class PointNet(nn.Module):
    """Points rotated by a matrix that is computed from them."""

    def __init__(self):
        super().__init__()

        def shared(*widths):
            pairs = itertools.pairwise(widths)
            return nn.Sequential(*(m for i, o in pairs for m in (nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), nn.ReLU())))

        self.look, self.turn, self.see, self.out = (
            shared(3, 16, 32),
            nn.Linear(32, 9),
            shared(3, 16, 64),
            nn.Linear(64, 5),
        )

    def forward(self, x):
        t = self.turn(self.look(x).max(2)[0]).view(-1, 3, 3) + torch.eye(3, dtype=x.dtype)
        y = torch.bmm(x.transpose(1, 2), t).transpose(1, 2)
        return F.log_softmax(self.out(self.see(y).max(2)[0]), 1)


class Graphs(nn.Module):
    """A graph convolution and graph attention, edges as a matrix."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.pair = nn.Linear(12, 16), nn.Linear(16, 8, bias=False), nn.Linear(16, 1)

    def forward(self, x, edges):
        near = edges + torch.eye(edges.shape[-1], dtype=edges.dtype)
        scale = near.sum(-1).rsqrt()
        h = self.b(F.relu(scale[:, None] * near * scale[None] @ self.a(x)))
        n = h.shape[0]
        e = self.pair(torch.cat([h[:, None].expand(n, n, -1), h[None].expand(n, n, -1)], -1)).squeeze(-1)
        return F.leaky_relu(e, 0.2).masked_fill(near == 0, -1e9).softmax(-1) @ h


class Sharper(nn.Module):
    """Super resolution: residual blocks, pixel shuffle, a bicubic way around."""

    def __init__(self, c=16):
        super().__init__()
        self.head, self.tail = nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, 12, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.PReLU(c), nn.Conv2d(c, c, 3, padding=1)) for _ in range(2)
        )

    def forward(self, x):
        y = h = self.head(x)
        for b in self.blocks:
            y = y + 0.1 * b(y)
        return F.pixel_shuffle(self.tail(y + h), 2) + F.interpolate(x, scale_factor=2, mode="bicubic")


def autoencoder():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1), nn.SELU(), nn.Conv2d(8, 16, 3, 2, 1), nn.SELU(), nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(16, 8, 3, padding=1), nn.ReLU6(), nn.ConvTranspose2d(8, 1, 3, 2, 1, 1), nn.Sigmoid(),
    )  # fmt: skip


class Variational(nn.Module):
    """Several outputs, noise as an input."""

    def __init__(self):
        super().__init__()
        self.code, self.decode = nn.Linear(20, 8), nn.Linear(4, 20)

    def forward(self, x, noise):
        mean, log = F.softplus(self.code(x)).chunk(2, -1)
        again = self.decode(mean + noise * torch.exp(0.5 * log))
        return {"again": again, "mean": mean, "distance": -0.5 * (1 + log - mean.pow(2) - log.exp()).sum(1)}


class Diffusion(nn.Module):
    """A block of a diffusion U-Net: an embedding of the time, norms of groups, attention between pixels."""

    def __init__(self, c=16):
        super().__init__()
        self.time, self.norm = nn.Sequential(nn.Linear(c, c), nn.SiLU()), nn.GroupNorm(4, c)
        self.first, self.conv, self.last = (
            nn.Conv2d(3, c, 3, padding=1),
            nn.Conv2d(c, c, 3, padding=1),
            nn.Conv2d(c, 3, 3),
        )
        self.qkv = nn.Conv2d(c, 3 * c, 1)

    def forward(self, x, t):
        angle = t[:, None] * torch.exp(-torch.arange(8) * (9.2 / 8)).to(x.dtype)
        time = self.time(torch.cat([angle.sin(), angle.cos()], 1))
        x = self.first(x)
        h = self.conv(F.silu(self.norm(x))) + time[:, :, None, None]
        b, c, height, width = h.shape
        q, k, v = self.qkv(h).view(b, 3, 4, c // 4, height * width).unbind(1)
        w = torch.einsum("bhcn,bhcm->bhnm", q * (c // 4) ** -0.5, k).softmax(-1)
        return self.last(F.silu(torch.einsum("bhnm,bhcm->bhcn", w, v).reshape(b, c, height, width) + x))


class Boxes(nn.Module):
    """The head of a one-stage detector: pyramids of pools, anchors, boxes on a grid."""

    def __init__(self):
        super().__init__()

        def conv(i, o, k=1, stride=1):
            return nn.Sequential(nn.Conv2d(i, o, k, stride, k // 2, bias=False), nn.BatchNorm2d(o), nn.SiLU())

        self.stem, self.thin = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2)), conv(32, 16)
        self.mix, self.out = conv(64, 32), nn.Conv2d(32, 3 * 9, 1)

    def forward(self, x):
        y = [self.thin(self.stem(x))]
        for _ in range(3):
            y.append(F.max_pool2d(y[-1], 5, 1, 2))
        z = self.out(self.mix(torch.cat(y, 1)))
        b, _, h, w = z.shape
        z = z.view(b, 3, 9, h, w).permute(0, 1, 3, 4, 2).sigmoid()
        gy, gx = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        places = (z[..., :2] * 2 - 0.5 + torch.stack([gx, gy], -1).to(z.dtype)) * 4
        return torch.cat([places, (z[..., 2:4] * 2) ** 2 * 8, z[..., 4:]], -1).view(b, -1, 9)


class Turned(nn.Module):
    """A spatial transformer: a picture sampled where the network says."""

    def __init__(self):
        super().__init__()
        self.place = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 6))

    def forward(self, x):
        theta = self.place(x).view(-1, 2, 3) * 0.1 + torch.eye(2, 3, dtype=x.dtype)
        return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)


class Twins(nn.Module):
    """Two inputs through the same weights; distances."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, a, b):
        p, q = self.net(a), self.net(b)
        return F.cosine_similarity(p, q), F.pairwise_distance(p, q), torch.cdist(p, q)


class Experts(nn.Module):
    """A mixture of experts: all are computed, two are picked."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(8, 4), nn.Parameter(torch.randn(4, 8, 8))

    def forward(self, x):
        w, i = self.gate(x).softmax(-1).topk(2, -1)
        y = torch.einsum("bd,edf->bef", x, self.experts).gather(1, i[..., None].expand(-1, -1, 8))
        return (y * (w / w.sum(-1, keepdim=True))[..., None]).sum(1)


class Written(nn.Module):
    """A line of writing: convolutions, then a GRU both ways along the width."""

    def __init__(self):
        super().__init__()
        self.see = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 1)))
        self.read, self.out = nn.GRU(8 * 8, 16, 2, bidirectional=True), nn.Linear(32, 11)

    def forward(self, x):
        y = self.see(x).flatten(1, 2).permute(2, 0, 1)
        return F.log_softmax(self.out(self.read(y)[0]), -1)


class Steps(nn.Module):
    """Cells in a loop."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.LSTMCell(6, 10), nn.GRUCell(10, 5)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], 10)
        g, outputs = x.new_zeros(x.shape[0], 5), []
        for t in range(x.shape[1]):
            h, c = self.a(x[:, t], (h, c))
            g = self.b(h, g)
            outputs.append(g)
        return torch.stack(outputs, 1)


class Clicks(nn.Module):
    """A factorization machine beside a deep network."""

    def __init__(self):
        super().__init__()
        self.e, self.w = nn.Embedding(60, 8), nn.Embedding(60, 1)
        self.deep = nn.Sequential(nn.Linear(48, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 1))
        self.register_buffer("offsets", torch.arange(0, 60, 10))

    def forward(self, i):
        i = i + self.offsets
        e = self.e(i)
        pairs = 0.5 * (e.sum(1) ** 2 - (e**2).sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(self.w(i).sum(1) + pairs + self.deep(e.flatten(1)))


class Table(nn.Module):
    """A bias that a small network computes for each distance, picked by a table (as in Swin V2)."""

    def __init__(self, n=4, heads=2):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, heads, bias=False))
        at = torch.stack(torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")).flatten(1)
        apart = (at[:, :, None] - at[:, None]) + n - 1
        self.register_buffer("index", apart[0] * (2 * n - 1) + apart[1])
        self.register_buffer("distance", torch.randn(1, 2 * n - 1, 2 * n - 1, 2))

    def forward(self, x):
        bias = self.net(self.distance).view(-1, x.shape[1])[self.index.view(-1)]
        return x + 16 * torch.sigmoid(bias.view(*x.shape[2:], -1).permute(2, 0, 1).contiguous())[None]


def _ids(*shape, below=50):
    return torch.randint(0, below, shape)


NETWORKS = {
    "wavenet": lambda: (WaveNet(), torch.randn(2, 4, 60)),
    "tcn": lambda: (Tcn(), torch.randn(2, 8, 40)),
    "generator": lambda: (generator(), torch.randn(2, 20, 1, 1)),
    "volumes": lambda: (Volumes(), torch.randn(1, 1, 8, 12, 10)),
    "pointnet": lambda: (PointNet(), torch.randn(2, 3, 50)),
    "graphs": lambda: (Graphs(), torch.randn(9, 12), (torch.randn(9, 9) > 0).float()),
    "sharper": lambda: (Sharper(), torch.randn(1, 3, 20, 17)),
    "autoencoder": lambda: (autoencoder(), torch.randn(2, 1, 28, 28)),
    "variational": lambda: (Variational(), torch.randn(3, 20), torch.randn(3, 4)),
    "diffusion": lambda: (Diffusion(), torch.randn(2, 3, 16, 16), torch.tensor([3.0, 700.0])),
    "boxes": lambda: (Boxes(), torch.randn(2, 3, 64, 48)),
    "turned": lambda: (Turned(), torch.randn(2, 3, 16, 16)),
    "twins": lambda: (Twins(), torch.randn(3, 1, 9, 9), torch.randn(3, 1, 9, 9)),
    "experts": lambda: (Experts(), torch.randn(5, 8)),
    "written": lambda: (Written(), torch.randn(2, 1, 16, 30)),
    "steps": lambda: (Steps(), torch.randn(2, 5, 6)),
    "clicks": lambda: (Clicks(), _ids(4, 6, below=10)),
    "table": lambda: (Table(), torch.randn(3, 2, 16, 16)),
    "translation": lambda: (nn.Transformer(32, 4, 2, 2, 64, batch_first=True), torch.randn(2, 7, 32), torch.randn(2, 5, 32)),
    "two sources": lambda: (
        nn.MultiheadAttention(32, 4, batch_first=True, kdim=16, vdim=8),
        torch.randn(2, 7, 32), torch.randn(2, 5, 16), torch.randn(2, 5, 8),
    ),
}  # fmt: skip
