"""torch.distributed with tensors of torch.device("sol"): two processes, each with a device, whose backend is gloo."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sol
import torch
import torch.distributed as dist
from torch import nn


def in_step(model, whole, part, target, expected):
    """The gradients of a process are those of one that sees all data."""
    for _ in range(2):
        model.zero_grad()
        loss = nn.functional.mse_loss(model(part.to("sol")), target.to("sol"))
        loss.backward()
        for p, q in zip(model.parameters(), whole.parameters(), strict=True):
            assert p.grad.is_sol
            torch.testing.assert_close(p.grad.cpu(), q.grad)
    dist.all_reduce(loss)
    torch.testing.assert_close(loss.item() / 2, expected)


def gradients(rank):
    torch.manual_seed(1)
    whole = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8).eval(), nn.Tanh(), nn.Linear(8, 3)).double()
    x, t = torch.randn(8, 6).double(), torch.randn(8, 3).double()
    loss = nn.functional.mse_loss(whole(x), t)
    loss.backward()
    part, target = x[rank::2], t[rank::2]
    every = {"static_graph": True, "device_ids": [0], "gradient_as_bucket_view": True, "bucket_cap_mb": 1e-4}
    for more in ({}, every):
        there = copy.deepcopy(whole).to("sol")
        if rank:
            there[0].weight.data.zero_()  # the parameters are those of the first process
        in_step(nn.parallel.DistributedDataParallel(there, **more), whole, part, target, loss.item())
    fast = sol.optimize(copy.deepcopy(whole).to("sol"), part.to("sol"))
    in_step(nn.parallel.DistributedDataParallel(fast), whole, part, target, loss.item())


def on_device(*values):
    return torch.tensor(values, dtype=torch.float32).to("sol")


def collectives(rank):
    other = 1 - rank
    t = on_device(rank + 1, 2)
    work = dist.all_reduce(t, async_op=True)
    work.wait()
    assert t.tolist() == [3, 4] and work.is_completed()
    view = on_device(1, 2, 3, 4, 5, 6).view(2, 3)[:, ::2]
    dist.all_reduce(view)
    assert view.tolist() == [[2, 6], [8, 12]]
    dist.broadcast(t, 1)
    dist.reduce(t, 0)
    assert rank or t.tolist() == [6, 8]
    parts = [on_device(0, 0), on_device(0, 0)]
    dist.all_gather(parts, on_device(rank, 5))
    assert [p.tolist() for p in parts] == [[0, 5], [1, 5]]
    dist.scatter(t, parts if rank == 0 else None)
    assert t.tolist() == [rank, 5]
    dist.gather(t, parts if rank == 0 else None)
    dist.all_to_all_single(t, on_device(10 * rank, 10 * rank + 1))
    assert t.tolist() == [rank, 10 + rank]
    dist.reduce_scatter_tensor(t, on_device(0, 1, 2, 3))
    assert t.tolist() == [4 * rank, 4 * rank + 2]
    if rank:
        dist.send(on_device(7, 8), other)
    else:
        dist.recv(t)
        assert t.tolist() == [7, 8]
    host = torch.ones(2)
    dist.all_reduce(host)
    assert host.tolist() == [2, 2]
    found = [None, None]
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": 0}, {"rank": 1}]
    some = dist.new_group([1])
    if rank:
        dist.all_reduce(t, group=some)
    dist.barrier()


def work(rank, store, backend):
    import sol.native  # noqa: F401

    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=2)
    if backend == "gloo":
        gradients(rank)
        collectives(rank)
    else:
        t = on_device(rank + 1, 2)
        dist.all_reduce(t)
        assert t.tolist() == [3, 4]
    dist.destroy_process_group()


@pytest.mark.parametrize("backend", ["gloo", "cpu:gloo,sol:gloo", "None"])
def test_two_processes(tmp_path, backend):
    path = str(Path(sol.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": path, "SOL_CACHE": sol.config["cache::folder"], "SOL_DEVICE": "far"}
    subprocess.run([sys.executable, "-c", "import sol.native"], env=env, check=True)  # compiles it once
    started = [
        subprocess.Popen(
            [sys.executable, __file__, str(rank), str(tmp_path / "store"), backend],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    said = [p.communicate(timeout=240)[0] for p in started]
    assert all(p.returncode == 0 for p in started), "\n".join(said)


if __name__ == "__main__":
    _, rank, store, backend = sys.argv
    work(int(rank), store, None if backend == "None" else backend)
