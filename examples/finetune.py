"""A ResNet-18 is trained with PyTorch, deployed as a C library, and trained further by a C program (finetune.c).

    python examples/finetune.py [--steps 16] [--size 64] [--folder finetune]

The first training sees bright pictures, the second darker ones under noise, as an application would meet them where it runs.
PyTorch does the second one, too: the losses are compared. Pictures are made: stripes, discs and chequers in any colour.
"""

import argparse
import copy
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

import networks  # noqa: E402
import sol  # noqa: E402

CLASSES, RATE = 4, 0.001


def pictures(n, size, light, noise, seed):
    """Pictures and what is on them: stripes down, stripes across, a disc, chequers."""
    made = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (n,), generator=made)
    x, y = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="xy")
    found = []
    for label in labels.tolist():
        wide, at = (int(torch.randint(size // 12, size // 5, (), generator=made)) for _ in range(2))
        down, across = (x + at) // wide % 2, (y + at) // wide % 2
        disc = (x - size // 2 - at + wide) ** 2 + (y - size // 2) ** 2 < (2 * wide) ** 2
        shape = (down, across, disc, down ^ across)[label].float()
        colours = torch.rand(2, 3, 1, 1, generator=made)
        found.append(light * (shape * colours[0] + (1 - shape) * colours[1] * 0.5))
    return torch.stack(found) + noise * torch.randn(n, 3, size, size, generator=made), labels


def train(model, images, labels, steps):
    """The losses of so many steps, each with the next batch."""
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9, weight_decay=1e-4)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[step % len(images)]), labels[step % len(images)])
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def train_deployed(model, images, labels, steps, folder):
    """The same by the C program."""
    keys = {"path": folder, "lib_name": "libnet", "func_name": "net", "training": True}
    sol.deploy(model, "static_lib", keys, images[0])
    images.numpy().tofile(folder / "images.f32")
    labels.numpy().tofile(folder / "labels.i64")
    source = Path(__file__).with_suffix(".c").resolve()
    subprocess.run(
        ["cc", "-O2", "-I.", source, "libnet.a", "-lm", "-pthread", "-o", "finetune"], cwd=folder, check=True
    )
    command = ["./finetune", "sgd", str(RATE), str(steps), "images.f32", "labels.i64", "predicted.f32"]
    return [float(v) for v in subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=64, help="of the pictures")
    parser.add_argument("--folder", type=Path, default=Path("finetune"))
    o = parser.parse_args()
    os.makedirs(o.folder, exist_ok=True)
    torch.manual_seed(1)
    model = networks.torchvision_models().resnet18(num_classes=CLASSES).train()

    def data(light, noise, seed):
        images, labels = pictures(4 * o.batch, o.size, light, noise, seed)
        return images.unflatten(0, (4, o.batch)), labels.unflatten(0, (4, o.batch))

    before = train(model, *data(1.0, 0.02, 1), o.steps)
    images, labels = data(0.4, 0.1, 2)
    deployed = train_deployed(model, images, labels, o.steps, o.folder)
    reference = copy.deepcopy(model).double()
    exact = train(reference, images.double(), labels, o.steps)
    losses = train(model, images, labels, o.steps)
    print(f"PyTorch, before it is deployed: loss {before[0]:.3f} -> {before[-1]:.3f}")
    print("step  in C     PyTorch  PyTorch in double precision")
    for step, row in enumerate(zip(deployed, losses, exact, strict=True)):
        print(f"{step:4}  " + "  ".join(f"{v:.5f}" for v in row))


if __name__ == "__main__":
    main()
