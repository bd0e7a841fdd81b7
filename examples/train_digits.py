"""Trains small networks on pictures of digits with PyTorch and with SOL, and draws the losses.

    python examples/train_digits.py [--steps 300] [--seeds 3] [--networks mlp resnet] [--out curves.svg] [--device cpu]

`--device sol` puts models and data on the device that SOL_DEVICE selects; PyTorch's run is then on that device, too.

The training loop is PyTorch's own, SOL is one line in it. Two runs of PyTorch that begin with other random numbers differ;
SOL's run lies where PyTorch's lie. The digits are scikit-learn's where that is installed, otherwise made: ten patterns,
moved by a pixel, under noise.
"""

import argparse
from pathlib import Path

import sol
import torch
import torch.nn.functional as F
from torch import nn

# -- data


def digits():
    """1797 pictures of 8x8 in ten classes; the last 297 are for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        return made_digits(1797)
    found = load_digits()
    order = torch.randperm(len(found.target), generator=torch.Generator().manual_seed(5))
    return (
        torch.from_numpy(found.images).float()[order, None] / 8 - 1,
        torch.from_numpy(found.target).long()[order],
    )


def made_digits(n):
    """A pattern for each class, moved by up to a pixel, under noise."""
    made = torch.Generator().manual_seed(5)
    pattern, label = torch.rand(10, 8, 8, generator=made), torch.randint(10, (n,), generator=made)
    moved = torch.randint(-1, 2, (n, 2), generator=made)
    pictures = [pattern[c].roll(tuple(m), (0, 1)) for c, m in zip(label.tolist(), moved.tolist(), strict=True)]
    return (torch.stack(pictures) + 0.3 * torch.randn(n, 8, 8, generator=made))[:, None], label


# -- networks


class Residual(nn.Module):
    """Two convolutions, and what came in."""

    def __init__(self, c):
        super().__init__()
        self.f = nn.Sequential(
            nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.ReLU(),
            nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c),
        )  # fmt: skip

    def forward(self, x):
        return F.relu(x + self.f(x))


class Dense(nn.Module):
    """Every layer sees the results of all before it."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.parts = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(8 + 4 * k), nn.ReLU(), nn.Conv2d(8 + 4 * k, 4, 3, padding=1)) for k in range(4)
        )
        self.last = nn.Linear(24, 10)

    def forward(self, x):
        x = self.first(x)
        for p in self.parts:
            x = torch.cat([x, p(x)], 1)
        return self.last(x.mean((2, 3)))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def resnet():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), Residual(16), nn.MaxPool2d(2),
        Residual(16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


def mobilenet():
    def part(i, o, s):
        return [
            nn.Conv2d(i, 4 * i, 1, bias=False), nn.BatchNorm2d(4 * i), nn.ReLU6(),
            nn.Conv2d(4 * i, 4 * i, 3, s, 1, groups=4 * i, bias=False), nn.BatchNorm2d(4 * i), nn.ReLU6(),
            nn.Conv2d(4 * i, o, 1, bias=False), nn.BatchNorm2d(o),
        ]  # fmt: skip

    body = [nn.Conv2d(1, 8, 3, padding=1), *part(8, 12, 2), *part(12, 16, 1)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


NETWORKS = {"mlp": mlp, "resnet": resnet, "mobilenet": mobilenet, "densenet": Dense}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-4),
    "adam": lambda p: torch.optim.Adam(p, 5e-3),
}

# -- training


def train(network, optimizer, with_sol, data, seed, steps):
    """The loss of every step, and the share of right answers at the end."""
    x, label = data
    torch.manual_seed(seed)
    model = NETWORKS[network]().to(x.device)
    if with_sol:
        model = sol.optimize(model, sol.input([0, 1, 8, 8]))
    model.train()
    rule = OPTIMIZERS[optimizer](model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(rule, steps)
    losses, order = [], torch.Generator().manual_seed(seed)
    for _ in range(steps):
        batch = torch.randint(1500, (64,), generator=order)
        rule.zero_grad()
        loss = F.cross_entropy(model(x[batch]), label[batch])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        rule.step()
        schedule.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        right = (model(x[1500:]).argmax(1) == label[1500:]).float().mean().item()
    return losses, right


def smooth(losses, width=20):
    """Means over `width` steps."""
    return torch.tensor(losses).unfold(0, min(width, len(losses)), 1).mean(1)


def span(values):
    found = sorted(values)
    return found[0], found[-1]


# -- drawing

LEFT, TOP, WIDTH, HEIGHT = 50, 40, 300, 180  # of one picture


def polyline(losses, top, style):
    points = smooth(losses)[::3].clamp(min=1e-3).log10()
    across = torch.linspace(0, WIDTH, len(points))
    down = (top - points) / (top + 3) * HEIGHT
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across.tolist(), down.tolist(), strict=True))
    return f'<polyline points="{text}" fill="none" {style}/>'


def picture(title, eager, ours, steps):
    """Losses from 0.001 up, on a logarithmic scale."""
    top = max(smooth(losses).max().log10().item() for losses in (*eager, *ours))
    parts = [f'<text x="0" y="-8">{title}</text><rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>']
    for power in range(-3, int(top) + 1):
        y = (top - power) / (top + 3) * HEIGHT
        parts.append(f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
        parts.append(f'<line x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
    parts.append(f'<text x="{WIDTH}" y="{HEIGHT + 16}" text-anchor="end">{steps} steps</text>')
    parts += [polyline(losses, top, 'stroke="#888" stroke-width="1"') for losses in eager]
    parts += [polyline(losses, top, 'stroke="#c22" stroke-width="1.5"') for losses in ours]
    return parts


def draw(runs, steps, path):
    """An SVG with a picture for each network and optimizer."""
    columns = 2
    rows = (len(runs) + columns - 1) // columns
    wide, high = columns * (WIDTH + 2 * LEFT), rows * (HEIGHT + 2 * TOP) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" font-family="sans-serif" font-size="12">',
        f'<rect width="{wide}" height="{high}" fill="white"/>',
        f'<text x="{LEFT}" y="18">training loss, mean of 20 steps: <tspan fill="#666">PyTorch</tspan>, '
        '<tspan fill="#c22">SOL</tspan>; a line for each seed</text>',
    ]
    for i, (title, eager, ours) in enumerate(runs):
        x, y = LEFT + i % columns * (WIDTH + 2 * LEFT), TOP + 20 + i // columns * (HEIGHT + 2 * TOP)
        parts += [f'<g transform="translate({x},{y})">', *picture(title, eager, ours, steps), "</g>"]
    path.write_text("\n".join([*parts, "</svg>\n"]))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=300)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    options.add_argument("--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS))
    options.add_argument("--out", type=Path)
    options.add_argument("--device", default="cpu")
    given = options.parse_args()
    if given.device.startswith("sol"):
        import sol.native  # noqa: F401
    data, runs = [t.to(given.device) for t in digits()], []
    print(f"{'':18}{'loss at the end':^40}{'right answers':^40}")
    print(f"{'':18}" + 2 * f"{'PyTorch':>20}{'SOL':>20}")
    for network in given.networks:
        for optimizer in given.optimizers:
            made = [
                [train(network, optimizer, with_sol, data, seed, given.steps) for seed in range(given.seeds)]
                for with_sol in (False, True)
            ]
            losses = [
                f"{low:.4f} .. {high:.4f}"
                for low, high in (span(smooth(curve)[-1].item() for curve, _ in m) for m in made)
            ]
            rights = [f"{low:.1%} .. {high:.1%}" for low, high in (span(right for _, right in m) for m in made)]
            print(f"{network + ', ' + optimizer:18}" + "".join(f"{text:>20}" for text in losses + rights))
            runs.append((f"{network}, {optimizer}", *([curve for curve, _ in m] for m in made)))
    if given.out:
        draw(runs, given.steps, given.out)
        print(f"wrote {given.out}")


if __name__ == "__main__":
    main()
