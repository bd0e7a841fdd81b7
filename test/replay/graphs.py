"""Graphs for `make replay`, as text files in a folder: networks from PyTorch, for inference and for a step of training.

graphs.py FOLDER [NAME...]

A file's last line names what a training step wants gradients of (test/replay/replay.c reads it).
"""

import sys
import time
from pathlib import Path

import torch
from sol.pytorch.deployed import How, see
from sol.pytorch.training import _returned

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path += [str(ROOT / "test" / "python"), str(ROOT / "bench")]

import networks  # noqa: E402
import odd  # noqa: E402
import zoo  # noqa: E402

# What is planned for every setting, in the order of what one looks at first.
NAMED = (
    "resnet50 mobilenet_v2 bert gpt lstm gru unet vgg11_bn densenet121 swin_t efficientnet_b0 resnet18 alexnet "
    "squeezenet1_1 googlenet mnasnet0_5 shufflenet_v2_x0_5 resnext50_32x4d mobilenet_v1 linear logistic "
    "mobilenet_v3_small convnext_tiny regnet_y_400mf gpt_rotary lstm_both transformer r3d_18 lraspp_mobilenet_v3_large"
).split()


def torchvision():
    """Its wheel imports if these two operators are known."""
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision

    torchvision.library = library  # keeps the definitions alive
    return torchvision


def makers():
    """name -> a function that gives a module and, for a batch size, its arguments."""
    vision = torchvision()
    rows = {name: lambda name=name: networks.network(name, vision) for name in NAMED}
    for name, make in zoo.NETWORKS.items():

        def own(make=make):
            module, *args = make()
            return module.eval(), lambda batch: tuple(args)

        rows["zoo-" + name.replace(" ", "-")] = own
    for name, (make, shape) in odd.ODD.items():
        rows[name] = lambda make=make, shape=shape: (make().eval(), lambda b: (torch.randn(b, *shape),))
    return rows


def graph_text(module, args, training):
    """The translated graph, before anything is done to it."""
    seen = see(module, args, {}, How(None, False, None, training), None)
    t = seen.translation
    text = str(t.graph)
    if not training:
        return text
    of = [i for i in dict.fromkeys(_returned(t)) if t.tracked[i]]
    wanted = [k for k, p in enumerate(t.params) if p.name in seen.trained]
    return f"{text}# gradients of {' '.join(map(str, of))} with {' '.join(map(str, wanted))}\n"


def main() -> int:
    folder, rows, bad = Path(sys.argv[1]), makers(), 0
    if unknown := [n for n in sys.argv[2:] if n not in rows]:
        sys.exit(f"there is no network {', '.join(unknown)}; there are: {', '.join(rows)}")
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or rows:
        start = time.monotonic()
        for training in (False, True):
            torch.manual_seed(0)
            module, inputs = rows[name]()
            what = f"{name}-train" if training else name
            try:
                (folder / f"{what}.sol").write_text(
                    graph_text(module.train(training), inputs(2 if training else 1), training)
                )
            except Exception as e:
                print(f"{what}: {type(e).__name__}: {str(e).splitlines()[0]}", flush=True)
                bad += 1
        print(f"{name}: {time.monotonic() - start:.1f} s", flush=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
