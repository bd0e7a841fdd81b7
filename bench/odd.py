"""Networks with common structures in unusual sizes: results for the listed networks should hold for these, too."""

from __future__ import annotations

from torch import Tensor, nn


def conv(i: int, o: int, k: int = 3, s: int = 1, **more: int) -> nn.Sequential:
    """Convolution that keeps the size (except for its stride), batch-norm, ReLU."""
    pad = (k - 1) // 2 * more.get("dilation", 1)
    return nn.Sequential(nn.Conv2d(i, o, k, s, pad, bias=False, **more), nn.BatchNorm2d(o), nn.ReLU())


class Add(nn.Module):
    """x + f(x)."""

    def __init__(self, *f: nn.Module) -> None:
        super().__init__()
        self.f = nn.Sequential(*f)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.f(x)


class Scale(nn.Sequential):
    """Squeeze and excitation."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, inner, 1), nn.SiLU(), nn.Conv2d(inner, channels, 1), nn.Sigmoid()
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x * super().forward(x)


def head(channels: int, classes: int = 137) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]


def channels() -> nn.Module:
    """Numbers of channels that are not multiples of any vector length."""
    return nn.Sequential(
        conv(3, 37, 5, 2), Add(conv(37, 37), conv(37, 37)), conv(37, 75, 3, 2), Add(conv(75, 51, 1), conv(51, 75)),
        Add(conv(75, 51, 1), conv(51, 75)), conv(75, 149, 3, 2), Add(conv(149, 99), conv(99, 149, 1)), *head(149),
    )  # fmt: skip


def inverted(c: int, k: int, s: int, o: int) -> nn.Module:
    f = nn.Sequential(
        conv(c, 5 * c, 1), conv(5 * c, 5 * c, k, s, groups=5 * c), Scale(5 * c, c), nn.Conv2d(5 * c, o, 1)
    )
    return Add(f) if s == 1 and o == c else f


def depthwise() -> nn.Module:
    """Depthwise 5x5 and 7x7, squeeze and excitation."""
    return nn.Sequential(
        conv(3, 20, 3, 2), inverted(20, 5, 1, 20), inverted(20, 7, 2, 36), inverted(36, 7, 1, 36), inverted(36, 5, 2, 60),
        inverted(60, 5, 1, 60), inverted(60, 7, 2, 100), inverted(100, 7, 1, 100), *head(100),
    )  # fmt: skip


class Pyramid(nn.Module):
    """Branches with several dilations over one input, concatenated."""

    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList([conv(i, o, 1), *(conv(i, o, 3, dilation=d) for d in (2, 4, 8))])
        self.join = conv(4 * o, o, 1)

    def forward(self, x: Tensor) -> Tensor:
        from torch import cat

        return self.join(cat([b(x) for b in self.branches], 1))


def dilated() -> nn.Module:
    """A segmentation head: dilated branches, concatenation, upsampling."""
    return nn.Sequential(
        conv(3, 32, 3, 2), conv(32, 64, 3, 2), Add(conv(64, 64, dilation=2), conv(64, 64, dilation=2)), conv(64, 128, 3, 2),
        Pyramid(128, 96), nn.Upsample(scale_factor=4, mode="bilinear"), conv(96, 48), nn.Conv2d(48, 21, 1),
    )  # fmt: skip


def wide() -> nn.Module:
    """Few pixels, many channels."""
    return nn.Sequential(
        conv(3, 96, 16, 16), conv(96, 768, 1), *(Add(conv(768, 768, 3, groups=32), conv(768, 768, 1)) for _ in range(4)),
        conv(768, 1280, 3, 2), *head(1280),
    )  # fmt: skip


def narrow() -> nn.Module:
    """Many pixels, few channels."""
    return nn.Sequential(
        conv(3, 8), Add(conv(8, 8), conv(8, 8)), conv(8, 12, 5), Add(conv(12, 12)), nn.MaxPool2d(3, 2, 1), conv(12, 20, 1),
        nn.ConvTranspose2d(20, 8, 4, 2, 1), nn.PReLU(8), nn.Conv2d(8, 3, 3, 1, 1), nn.Tanh(),
    )  # fmt: skip


def volume() -> nn.Module:
    """Three dimensions."""

    def conv3(i: int, o: int, s: int = 1) -> nn.Module:
        return nn.Sequential(nn.Conv3d(i, o, 3, s, 1, bias=False), nn.BatchNorm3d(o), nn.ReLU())

    return nn.Sequential(
        conv3(3, 20), nn.MaxPool3d((1, 2, 2)), conv3(20, 44), conv3(44, 44), nn.MaxPool3d(2), conv3(44, 88), conv3(88, 88, 2),
        nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(88, 101),
    )  # fmt: skip


# name -> constructor, shape of one input
ODD = {
    "odd_channels": (channels, [3, 205, 219]),
    "odd_depthwise": (depthwise, [3, 200, 200]),
    "odd_dilated": (dilated, [3, 192, 256]),
    "odd_wide": (wide, [3, 240, 240]),
    "odd_narrow": (narrow, [3, 173, 227]),
    "odd_volume": (volume, [3, 10, 70, 70]),
}
