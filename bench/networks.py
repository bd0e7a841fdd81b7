"""The measured networks: name, constructor, arguments. Weights are random with a fixed seed."""

from __future__ import annotations

import contextlib
import functools

import odd
import sequences
import torch
from torch import nn


@functools.cache  # operators can be defined only once
def torchvision_models():  # type: ignore[no-untyped-def]
    """torchvision.models with a CPU-only torch: the wheel needs two operators that are missing then."""
    if not torch.version.cuda:
        library = torch.library.Library("torchvision", "DEF")
        for schema in (
            "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        ):
            with contextlib.suppress(RuntimeError):  # already defined
                library.define(schema)
        torchvision_models.library = library  # type: ignore[attr-defined]  # keeps the definitions alive
    import torchvision.models

    return torchvision.models


class MobileNetV1(nn.Sequential):
    """Howard et al. 2017: a stem, 13 depthwise-separable blocks, a classifier."""

    def __init__(self, width: float = 1.0, classes: int = 1000) -> None:
        def conv(i: int, o: int, k: int, s: int, g: int = 1) -> list[nn.Module]:
            return [nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o), nn.ReLU()]

        channels = [int(c * width) for c in (32, 64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)]
        strides = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
        layers = conv(3, channels[0], 3, 2)
        for i, s in enumerate(strides):
            layers += conv(channels[i], channels[i], 3, s, channels[i]) + conv(channels[i], channels[i + 1], 1, 1)
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], classes))


class MLP(nn.Sequential):
    """Three layers of 8192 with ReLU."""

    def __init__(self, size: int = 8192) -> None:
        super().__init__(
            nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU()
        )


# family -> networks; tests use the first of each family
FAMILIES = {
    "AlexNet": ["alexnet"],
    "SqueezeNet": ["squeezenet1_1", "squeezenet1_0"],
    "VGG": ["vgg11", "vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg13_bn", "vgg16_bn", "vgg19_bn"],
    "ResNet": ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"],
    "DenseNet": ["densenet121", "densenet161", "densenet169", "densenet201"],
    "Inception": ["inception_v3"],
    "GoogLeNet": ["googlenet"],
    "MobileNet V1": ["mobilenet_v1"],
    "MobileNet V2": ["mobilenet_v2"],
    "MNASNet": ["mnasnet1_0", "mnasnet0_5", "mnasnet0_75", "mnasnet1_3"],
    "ShuffleNet V2": ["shufflenet_v2_x1_0", "shufflenet_v2_x0_5", "shufflenet_v2_x1_5", "shufflenet_v2_x2_0"],
    "ResNeXt": ["resnext50_32x4d", "resnext101_32x8d"],
    "Wide ResNet": ["wide_resnet50_2", "wide_resnet101_2"],
    "ConvNeXt": ["convnext_tiny"],
    "EfficientNet": ["efficientnet_b0"],
    "ViT": ["vit_b_16"],
    "Swin": ["swin_t"],
    "MLP": ["mlp"],
    "regression": ["linear_regression", "logistic_regression"],
}
ALL = [n for names in FAMILIES.values() for n in names]


def make(name: str) -> nn.Module:
    """Creates the network in eval mode. Running statistics are not trivial, so batch-norms have an effect."""
    torch.manual_seed(0)
    own = {
        "mobilenet_v1": MobileNetV1,
        "mlp": MLP,
        "linear_regression": lambda: nn.Linear(1024, 1),
        "logistic_regression": lambda: nn.Sequential(nn.Linear(1024, 10), nn.Sigmoid()),
    }
    if name in own:
        model = own[name]()
    elif name in odd.ODD:
        model = odd.ODD[name][0]()
    elif name in sequences.SEQUENCES:
        model = sequences.SEQUENCES[name].make()
    else:
        extra = {"init_weights": True} if name in ("inception_v3", "googlenet") else {}
        if name == "inception_v3" or name == "googlenet":
            extra["aux_logits"] = True
        model = getattr(torchvision_models(), name)(weights=None, **extra)
    generator = torch.Generator().manual_seed(1)
    for m in model.modules():
        if isinstance(m, (nn.BatchNorm2d, nn.BatchNorm3d)):
            m.running_mean.uniform_(-0.1, 0.1, generator=generator)  # type: ignore[union-attr]
            m.running_var.uniform_(0.5, 1.5, generator=generator)  # type: ignore[union-attr]
    return model.eval()


def shape(name: str, batch: int) -> list[int]:
    """The shape of the argument of a network that has one of float32."""
    if name == "mlp":
        return [batch, 8192]
    if name.endswith("_regression"):
        return [batch, 1024]
    if name in odd.ODD:
        return [batch, *odd.ODD[name][1]]
    pixels = 299 if name == "inception_v3" else 224
    return [batch, 3, pixels, pixels]


def samples(name: str, batch: int = 1) -> tuple[torch.Tensor, ...]:
    """The arguments of a call."""
    if name in sequences.SEQUENCES:
        return sequences.SEQUENCES[name].samples(batch)
    return (torch.randn(shape(name, batch), generator=torch.Generator().manual_seed(2)),)
