"""A PyTorch model, optimized: the same interface, the same parameters, other code behind it."""

import sol
import torch
from torch import nn

model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(16 * 16 * 16, 10),
).eval()
x = torch.randn(4, 3, 32, 32)

fast = sol.optimize(model, sol.input([0, 3, 32, 32]))  # 0: any batch size
with torch.no_grad():
    print("largest difference:", (fast(x) - model(x)).abs().max().item())

    # the parameters are shared: what changes in one changes in the other
    model[5].bias += 1
    print("after a change:    ", (fast(x) - model(x)).abs().max().item())

    compiled = torch.compile(model, backend="sol")
    print("torch.compile:     ", (compiled(x) - model(x)).abs().max().item())
