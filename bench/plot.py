"""Draws how many times as long as SOL other systems take, as bars; SOL is the line at 1.

python bench/plot.py     draws the plots of docs/performance.md from its tables, without measuring (needs matplotlib)
"""

from __future__ import annotations

import math
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"

TITLES = {
    "alexnet": "AlexNet", "squeezenet1_1": "SqueezeNet 1.1", "vgg16": "VGG-16", "resnet18": "ResNet-18", "resnet50": "ResNet-50",
    "densenet121": "DenseNet-121", "inception_v3": "Inception V3", "googlenet": "GoogLeNet", "mobilenet_v1": "MobileNet V1",
    "mobilenet_v2": "MobileNet V2", "mnasnet1_0": "MNASNet 1.0", "shufflenet_v2_x1_0": "ShuffleNet V2 1.0",
    "resnext50_32x4d": "ResNeXt-50", "wide_resnet50_2": "Wide ResNet-50", "mlp": "MLP, 3 x 8192",
    "sol": "SOL", "eager": "PyTorch eager", "eager-last": "PyTorch eager, channels last", "compile": "torch.compile",
    "compile-frozen": "torch.compile, frozen",
    "onnxruntime": "ONNX Runtime", "sol-onnxruntime": "SOL in ONNX Runtime", "openvino": "OpenVINO",
}  # fmt: skip

Table = dict[str, dict[str, float]]  # milliseconds by network and system, in drawing order


def title(name: str) -> str:
    """The title of a network, NAME or NAME@BATCH, or of a system."""
    network, _, batch = name.partition("@")
    return TITLES.get(network, network) + (f", batch {batch}" if batch else "")


def draw(table: Table, path: Path, what: str) -> None:
    """Draws a table, in which `SOL` must be one of the systems of each row."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "sol"})
    import matplotlib.pyplot as plt

    names = list(table)
    peers = [
        s for s in next(iter(table.values())) if s != "SOL" and any(not math.isnan(row[s]) for row in table.values())
    ]
    figure, axes = plt.subplots(figsize=(max(8, len(names) * 0.7), 4))
    axes.set_yscale("log", base=2)
    width = 0.8 / max(1, len(peers))
    for i, peer in enumerate(peers):
        ratio = [table[n][peer] / table[n]["SOL"] for n in names]
        axes.bar([k + i * width for k in range(len(names))], [r - 1 for r in ratio], width, 1, label=peer)
    axes.set_ylim(bottom=min(0.8, 0.9 * axes.get_ylim()[0]))  # keeps the line off the frame
    axes.axhline(1, color="black", linewidth=1.5, zorder=3, label="SOL = 1")
    axes.grid(axis="y", linewidth=0.3)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks([k + 0.4 - width / 2 for k in range(len(names))], names, rotation=35, ha="right")
    axes.set_ylabel("times as long as SOL")
    axes.set_title(what, fontsize=9, pad=24)
    axes.legend(fontsize=8, ncols=len(peers) + 1, loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def read(page: Path, heading: str) -> Table:
    """Reads the first table below a heading of a page: its columns of milliseconds, up to the first ratio ("x eager")."""
    text = page.read_text().split(f"## {heading}\n", 1)[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    systems = rows[0][1 : next(i for i, name in enumerate(rows[0]) if name.startswith("x "))]
    table: Table = {}
    for row in rows[2:]:
        if row[0] == "geometric mean":
            break
        table[row[0]] = {s: float(v) for s, v in zip(systems, row[1:], strict=False)}
    return table


def main() -> None:
    page = DOCS / "performance.md"
    machine = "AMD EPYC (Zen 5), AVX-512, 2 cores, 2 threads"
    draw(read(page, "Inference"), DOCS / "inference.svg", f"Inference, batch 1; {machine}")
    draw(read(page, "Training"), DOCS / "training-steps.svg", f"A step of training, batch 16; {machine}")


if __name__ == "__main__":
    main()
