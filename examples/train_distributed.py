"""Two processes train one network with DistributedDataParallel, each with half of every batch on a device of its own.

    SOL_DEVICE=far python examples/train_distributed.py [--steps 40]

PyTorch's gloo adds up the gradients, on copies on the host. One process alone then trains with whole batches: the losses
are the same. SOL_DEVICE selects the type of the devices ("far", "opencl", ..); without it they are the processor.
"""

import argparse
import tempfile

import sol
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

PROCESSES, BATCH = 2, 32


def data(step):
    """A batch: points, and in which of three rings around the origin they lie."""
    made = torch.Generator().manual_seed(step)
    x = torch.randn(BATCH, 2, generator=made)
    return x, (x.norm(dim=1) * 1.2).long().clamp(max=2)


def train(model, rank, n, steps):
    """The loss of every step."""
    optimizer = torch.optim.SGD(model.parameters(), 0.3)
    losses = []
    for step in range(steps):
        x, label = (t[rank::n].to("sol") for t in data(step))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 3)).to("sol")
    return sol.optimize(model, torch.zeros(BATCH, 2, device="sol"), vdims=True)


def work(rank, store, steps):
    import sol.native  # noqa: F401

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=PROCESSES)
    losses = train(nn.parallel.DistributedDataParallel(network()), rank, PROCESSES, steps)
    dist.all_reduce(losses)  # of both halves
    if rank == 0:
        alone = train(network(), 0, 1, steps)
        print(f"device {torch.sol.get_device_name()}, {PROCESSES} processes")
        print(f"loss: {losses[0].item() / PROCESSES:.4f} -> {losses[-1].item() / PROCESSES:.4f}")
        print("largest difference from one process:", (losses / PROCESSES - alone).abs().max().item())
    dist.destroy_process_group()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=40)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (f"{folder}/store", given.steps), PROCESSES)


if __name__ == "__main__":
    main()
