"""The networks of the tests: well-known ones, and others for which no kernel was tuned."""

import torch
import torch.nn.functional as F
from torch import nn


class MobileNetV1(nn.Sequential):
    """Howard et al. 2017: depthwise and 1x1 convolutions in turn."""

    def __init__(self, classes=1000):
        def part(i, o, stride):
            return nn.Sequential(
                nn.Conv2d(i, i, 3, stride, 1, groups=i, bias=False), nn.BatchNorm2d(i), nn.ReLU(inplace=True),
                nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
            )  # fmt: skip

        rows = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)] + [(512, 1)] * 5 + [(1024, 2), (1024, 1)]
        parts, i = [nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True))], 32
        for o, stride in rows:
            parts.append(part(i, o, stride))
            i = o
        super().__init__(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, classes))


def mlp(n=8192):
    """Three layers of n with ReLU."""
    return nn.Sequential(nn.Linear(n, n), nn.ReLU(), nn.Linear(n, n), nn.ReLU(), nn.Linear(n, n))


class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()

        def double(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU()
            )

        self.a, self.b, self.c = double(3, c), double(c, 2 * c), double(2 * c, 4 * c)
        self.up1, self.up2 = nn.ConvTranspose2d(4 * c, 2 * c, 2, 2), nn.ConvTranspose2d(2 * c, c, 2, 2)
        self.d, self.e, self.out = double(4 * c, 2 * c), double(2 * c, c), nn.Conv2d(c, 2, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        d = self.d(torch.cat([b, self.up1(c)], 1))
        return self.out(self.e(torch.cat([a, self.up2(d)], 1)))


class Attention(nn.Module):
    """Self-attention with projections, as in BERT and GPT-2."""

    def __init__(self, n, heads, causal, rotary=False):
        super().__init__()
        self.qkv, self.out, self.heads, self.causal, self.rotary = (
            nn.Linear(n, 3 * n),
            nn.Linear(n, n),
            heads,
            causal,
            rotary,
        )

    def turn(self, x):
        t, d = x.shape[-2:]
        angle = torch.outer(torch.arange(t), 100.0 ** (-torch.arange(0, d, 2) / d)).repeat(1, 2)
        half = torch.cat((-x[..., d // 2 :], x[..., : d // 2]), -1)
        return x * angle.cos() + half * angle.sin()

    def forward(self, x, mask=None):
        b, t, n = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, n // self.heads).permute(2, 0, 3, 1, 4)
        if self.rotary:
            q, k = self.turn(q), self.turn(k)
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, t, n))


class Block(nn.Module):
    def __init__(self, n, heads, causal, rotary=False):
        super().__init__()
        self.attention = Attention(n, heads, causal, rotary)
        self.norm1, self.norm2 = nn.LayerNorm(n), nn.LayerNorm(n)
        self.mlp = nn.Sequential(nn.Linear(n, 4 * n), nn.GELU("tanh" if causal else "none"), nn.Linear(4 * n, n))


class Bert(nn.Module):
    """An encoder: norms after the layers, a mask for padding."""

    def __init__(self, words=1000, n=128, heads=4, layers=2):
        super().__init__()
        self.words, self.places, self.norm = nn.Embedding(words, n, padding_idx=0), nn.Embedding(64, n), nn.LayerNorm(n)
        self.blocks = nn.ModuleList(Block(n, heads, False) for _ in range(layers))
        self.pooler = nn.Linear(n, n)
        self.register_buffer("positions", torch.arange(64).expand(1, -1))

    def forward(self, ids, mask):
        x = self.norm(self.words(ids) + self.places(self.positions[:, : ids.shape[1]]))
        seen = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for b in self.blocks:
            x = b.norm1(x + b.attention(x, seen))
            x = b.norm2(x + b.mlp(x))
        return {"last": x, "pooled": torch.tanh(self.pooler(x[:, 0]))}


class Gpt(nn.Module):
    """A decoder: norms ahead of the layers, causal; the embedding is also the last layer; learned or rotary positions."""

    def __init__(self, words=1000, n=128, heads=4, layers=2, rotary=False):
        super().__init__()
        self.words, self.places = nn.Embedding(words, n), None if rotary else nn.Embedding(64, n)
        self.blocks, self.norm = nn.ModuleList(Block(n, heads, True, rotary) for _ in range(layers)), nn.LayerNorm(n)

    def forward(self, ids):
        x = self.words(ids)
        if self.places is not None:
            x = x + self.places(torch.arange(ids.shape[1]))
        for b in self.blocks:
            x = x + b.attention(b.norm1(x))
            x = x + b.mlp(b.norm2(x))
        return F.linear(self.norm(x), self.words.weight)


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.rnn = kind(20, 32, num_layers=2, batch_first=True, **options)
        self.out = nn.Linear(32 * (2 if options.get("bidirectional") else 1), 5)

    def forward(self, x):
        y, state = self.rnn(x)
        return self.out(y[:, -1]), y, state


IMAGE = (224, 224)
KNOWN = (
    "alexnet squeezenet1_0 squeezenet1_1 vgg11 vgg13 vgg16 vgg19 vgg11_bn vgg13_bn vgg16_bn vgg19_bn resnet18 resnet34 resnet50 "
    "resnet101 resnet152 densenet121 densenet161 densenet169 densenet201 inception_v3 googlenet mobilenet_v2 mnasnet0_5 "
    "mnasnet0_75 mnasnet1_0 mnasnet1_3 shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0 "
    "resnext50_32x4d resnext101_32x8d wide_resnet50_2 wide_resnet101_2 mobilenet_v1 mlp linear logistic"
).split()
NO_IMAGES = ("mlp", "linear", "logistic")
# One of each well-known family, and some unusual networks.
FAMILIES = (
    "alexnet squeezenet1_1 vgg11 resnet18 densenet121 inception_v3 googlenet mobilenet_v2 mnasnet0_5 shufflenet_v2_x0_5 "
    "resnext50_32x4d wide_resnet50_2 mobilenet_v1 mlp linear logistic"
).split()
OTHERS = (
    "mobilenet_v3_small efficientnet_b0 convnext_tiny regnet_y_400mf swin_t vit_b_32 lraspp_mobilenet_v3_large unet bert gpt "
    "gpt_rotary lstm lstm_both gru transformer r3d_18"
).split()
MORE = (
    "mobilenet_v3_large efficientnet_v2_s convnext_small regnet_x_400mf swin_v2_t vit_b_16 maxvit_t fcn_resnet50 "
    "deeplabv3_mobilenet_v3_large mc3_18 r2plus1d_18 swin3d_t mvit_v2_s raft_small"
).split()


def _own(name, size=IMAGE):
    """Networks of this file: the module, and inputs for a batch size."""
    images = lambda *size: lambda b: (torch.randn(b, 3, *size),)  # noqa: E731
    ids = lambda b: (torch.randint(1, 1000, (b, 24)),)  # noqa: E731
    masked = lambda b: (*ids(b), (torch.arange(24)[None] < torch.arange(20, 20 + b)[:, None]).long())  # noqa: E731
    rows = lambda n: lambda b: (torch.randn(b, n),)  # noqa: E731
    sequence = lambda b: (torch.randn(b, 12, 20),)  # noqa: E731
    return {
        "mobilenet_v1": (MobileNetV1, images(*size)),
        "mlp": (mlp, rows(8192)),
        "linear": (lambda: nn.Linear(100, 10), rows(100)),
        "logistic": (lambda: nn.Sequential(nn.Linear(100, 1), nn.Sigmoid()), rows(100)),
        "unet": (UNet, images(64, 96)),
        "bert": (Bert, masked),
        "gpt": (Gpt, ids),
        "gpt_rotary": (lambda: Gpt(rotary=True), ids),
        "lstm": (lambda: Recurrent(nn.LSTM), sequence),
        "lstm_both": (lambda: Recurrent(nn.LSTM, bidirectional=True), sequence),
        "gru": (lambda: Recurrent(nn.GRU), sequence),
        "transformer": (
            lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(20, 4, 40, batch_first=True), 2),
            sequence,
        ),
    }.get(name)


def network_inputs(name, torchvision, size=IMAGE):
    """Returns a function that makes a network's inputs for a batch size. `size`: of images, if the network accepts any."""
    own = _own(name, size)
    if own:
        return own[1]
    module = torchvision.models.get_model_builder(name).__module__
    if "raft" in name:
        return lambda b: (torch.randn(b, 3, 128, 128), torch.randn(b, 3, 128, 128))
    if "video" in module:
        return lambda b: (torch.randn(b, 3, 16, 224, 224) if "mvit" in name else torch.randn(b, 3, 8, 112, 112),)
    return lambda b: (torch.randn(b, 3, *size),)


@torch.no_grad()
def enliven(model):
    """Sets eval mode, and random values where a fresh network has constants: a head of zeros, or a batch-norm without
    effect, would hide errors before it or in it."""
    for p in model.parameters():
        if p.numel() > 1 and p.is_floating_point() and p.min() == p.max():
            if p.ndim > 1 and p.max() == 0:
                nn.init.normal_(p, 0, p[0].numel() ** -0.5)
            elif p.max() == 0:
                nn.init.normal_(p, 0, 0.1)
            else:  # a scale; values of 1e-6 would remove the block's effect
                nn.init.uniform_(p, 0.5, 1.5) if p.max() >= 0.1 else nn.init.uniform_(p, 0.1, 0.5)
    for m in model.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.running_mean is not None:
            nn.init.normal_(m.running_mean, 0, 0.1)
            nn.init.uniform_(m.running_var, 0.5, 1.5)
    return model.eval()


def network(name, torchvision):
    """Returns a network with random weights in eval mode, and a function that makes its inputs for a batch size."""
    torch.manual_seed(0)
    own = _own(name)
    if own:
        model = own[0]()
    else:
        options = {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
        if "segmentation" in torchvision.models.get_model_builder(name).__module__:
            options = {"weights_backbone": None}
        model = torchvision.models.get_model(name, weights=None, **options)
    return enliven(model), network_inputs(name, torchvision)
