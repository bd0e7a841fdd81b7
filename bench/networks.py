"""The networks that are measured and tested, one row each: name, how to build it, the shape of one input.

Weights are random (seeded), batch-norm statistics too, so that no layer is an identity.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

IMAGE = (3, 224, 224)
LARGE = (3, 299, 299)


def torchvision_models():
    """torchvision.models beside a build of torch that is not the one its wheel was made for."""
    for name, schema in {
        "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    }.items():
        if not hasattr(torch.ops.torchvision, name):
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(schema)
            KEPT.append(library)
    import torchvision

    return torchvision.models


KEPT: list[torch.library.Library] = []  # a library's operators go when it is collected


class MobileNetV1(nn.Sequential):
    """Howard et al. 2017, arXiv:1704.04861, table 1."""

    def __init__(self, classes: int = 1000):
        def block(i: int, o: int, stride: int, kernel: int = 3, groups: int = 1) -> list[nn.Module]:
            convolution = nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False)
            return [convolution, nn.BatchNorm2d(o), nn.ReLU(inplace=True)]

        layers, width = block(3, 32, 2), 32
        for out, stride in [
            (64, 1),
            (128, 2),
            (128, 1),
            (256, 2),
            (256, 1),
            (512, 2),
            *[(512, 1)] * 5,
            (1024, 2),
            (1024, 1),
        ]:
            layers += block(width, width, stride, groups=width) + block(width, out, 1, kernel=1)
            width = out
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def mlp() -> nn.Module:
    width = 8192
    return nn.Sequential(*[m for _ in range(3) for m in (nn.Linear(width, width), nn.ReLU())])


def vision(name: str, **kwargs) -> Callable[[], nn.Module]:
    return lambda: getattr(torchvision_models(), name)(weights=None, **kwargs)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "alexnet": (vision("alexnet"), IMAGE),
    "squeezenet1_0": (vision("squeezenet1_0"), IMAGE),
    "squeezenet1_1": (vision("squeezenet1_1"), IMAGE),
    **{f"vgg{n}{bn}": (vision(f"vgg{n}{bn}"), IMAGE) for n in (11, 13, 16, 19) for bn in ("", "_bn")},
    **{f"resnet{n}": (vision(f"resnet{n}"), IMAGE) for n in (18, 34, 50, 101, 152)},
    **{f"densenet{n}": (vision(f"densenet{n}"), IMAGE) for n in (121, 161, 169, 201)},
    "inception_v3": (vision("inception_v3", init_weights=True), LARGE),
    "googlenet": (vision("googlenet", init_weights=True), IMAGE),
    "mobilenet_v1": (MobileNetV1, IMAGE),
    "mobilenet_v2": (vision("mobilenet_v2"), IMAGE),
    **{f"mnasnet{n}": (vision(f"mnasnet{n}"), IMAGE) for n in ("0_5", "0_75", "1_0", "1_3")},
    **{f"shufflenet_v2_x{n}": (vision(f"shufflenet_v2_x{n}"), IMAGE) for n in ("0_5", "1_0", "1_5", "2_0")},
    "resnext50": (vision("resnext50_32x4d"), IMAGE),
    "resnext101": (vision("resnext101_32x8d"), IMAGE),
    "wide_resnet50": (vision("wide_resnet50_2"), IMAGE),
    "wide_resnet101": (vision("wide_resnet101_2"), IMAGE),
    "mlp": (mlp, (8192,)),
    "linear_regression": (lambda: nn.Linear(1024, 1), (1024,)),
    "logistic_regression": (lambda: nn.Sequential(nn.Linear(1024, 1), nn.Sigmoid()), (1024,)),
}


def build(name: str, seed: int = 0) -> nn.Module:
    """The network in evaluation mode."""
    torch.manual_seed(seed)
    model = NETWORKS[name][0]().eval()
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.7, 1.4)
            with torch.no_grad():
                m.weight.uniform_(0.8, 1.2)
                m.bias.normal_(0, 0.1)
    return model


def example(name: str, batch: int, seed: int = 1) -> torch.Tensor:
    """A generated input: smooth structure and noise, as a normalised picture has."""
    generator = torch.Generator().manual_seed(seed)
    shape = NETWORKS[name][1]
    x = torch.randn(batch, *shape, generator=generator) * 0.5
    if len(shape) == 3:
        coarse = torch.randn(batch, shape[0], 7, 7, generator=generator)
        x += nn.functional.interpolate(coarse, shape[1:], mode="bilinear", align_corners=False)
    return x
