"""PyTorch tensors on a device: torch.device("sol"). Each test is a process of its own, because PyTorch has one place for
a further device, for the life of a process."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import opinfo_native
import pytest
import sol

FAR = {"SOL_DEVICE": "far", "SOL_DEVICE_OPTIONS": "far.devices=2,far.delay=20"}
DEVICES = [
    pytest.param(FAR, id="far"),
    pytest.param({"SOL_DEVICE": "auto"}, id="processor"),
    pytest.param({"SOL_DEVICE": "opencl"}, id="opencl"),
]
BEGIN = """
import copy, json, sys, torch, sol
assert torch._C._get_privateuse1_backend_name() == "privateuseone"  # nothing is claimed before it is asked for
import sol.native, traceback
from torch import nn
from torch.utils import _pytree as pytree
for line in sys.stdin:
    torch.manual_seed(1)
    torch.sol.reset_fallbacks()
    error = ""
    try:
        exec(json.loads(line), dict(globals()))
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps(error), flush=True)
"""


class Process:
    """A process of Python with the device, which runs texts."""

    def __init__(self, env):
        path = str(Path(sol.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, "-c", BEGIN],
            env={**os.environ, "PYTHONPATH": path, "SOL_CACHE": sol.config["cache::folder"], **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, text: str) -> str:
        """Runs a text. Returns the traceback; empty: it succeeded."""
        assert self.process.stdin and self.process.stdout and self.process.stderr
        try:
            self.process.stdin.write(json.dumps(textwrap.dedent(text)) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        return json.loads(answer) if answer else "the process ended: " + self.process.stderr.read()

    def end(self) -> int:
        self.process.communicate(timeout=60)
        return self.process.returncode


@pytest.fixture(scope="module")
def processes():
    started: dict[str, Process] = {}
    yield started
    for p in started.values():
        assert p.end() == 0


@pytest.fixture
def run(processes):
    def run(text, env=FAR):
        name = json.dumps(env)
        if name not in processes:
            processes[name] = Process(env)
        error = processes[name].run(text)
        if "sol.native: device opencl:" in error:
            processes.pop(name)
            pytest.skip("this machine has no OpenCL")
        assert not error, error

    return run


def fails(text, env=FAR) -> str:
    """The last line of what a process of its own says."""
    p = Process(env)
    error = p.run(text)
    p.end()
    return error.strip().splitlines()[-1]


TENSORS = """
    x = torch.randn(3, 4)
    y = x.to("sol")
    assert y.device == torch.device("sol", 0) and y.is_sol and torch.equal(y.cpu(), x)
    assert torch.equal(y.t()[1:, ::2].cpu(), x.t()[1:, ::2])
    assert torch.equal((y * 2 + y).cpu(), x * 2 + x)
    z = torch.zeros(4, 3, device="sol")
    z.t().copy_(y)
    assert torch.equal(z.cpu(), x.t())
    z[1:3] = y.t()[:2]
    z[:, 0] = 7
    w = x.t().clone(); w[1:3] = x.t()[:2]; w[:, 0] = 7
    assert torch.equal(z.cpu(), w)
    assert torch.equal(y.to(torch.float64).cpu(), x.double())
    assert repr(y[0]).endswith("device='sol:0')")
    torch.testing.assert_close(y.sum().cpu(), x.sum())
    i = torch.tensor([2, 0], device="sol")
    assert torch.equal(y[i].cpu(), x[[2, 0]])
    assert torch.equal(y[y > 0].cpu(), x[x > 0])
    big = torch.randn(1 << 16)
    there = big.to("sol", non_blocking=True)
    kept = big.clone(); big.zero_()
    assert torch.equal(there.cpu(), kept)
    e = torch.empty(0, 3, device="sol"); assert e.cpu().shape == (0, 3)
    c = torch.randn(5, dtype=torch.complex64); assert torch.equal(c.to("sol").conj().cpu(), c.conj())
    g = torch.Generator("sol").manual_seed(5); h = torch.Generator().manual_seed(5)
    assert torch.equal(torch.rand(4, device="sol", generator=g).cpu(), torch.rand(4, generator=h))
    torch.manual_seed(3); a = torch.randn(4, device="sol"); torch.manual_seed(3); assert torch.equal(a.cpu(), torch.randn(4))
    assert torch.accelerator.current_accelerator().type == "sol"
    assert torch.accelerator.device_count() == torch.sol.device_count()
"""


@pytest.mark.parametrize("env", DEVICES)
def test_tensors(run, env):
    run(TENSORS, env)


TRAINING = """
    m = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                      nn.Linear(8 * 16, 10)).double()  # optimizers divide small gradients by small numbers
    there = copy.deepcopy(m).to("sol")
    x, t = torch.randn(4, 3, 8, 8).double(), torch.tensor([1, 2, 3, 4])
    for kind, more in ((torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}), (torch.optim.AdamW, {"foreach": True}),
                       (torch.optim.RMSprop, {}), (torch.optim.Adagrad, {})):
        losses = []
        for net, where in ((m, "cpu"), (there, "sol")):
            o = kind(net.parameters(), **more)
            for _ in range(2):
                o.zero_grad()
                loss = nn.functional.cross_entropy(net(x.to(where)), t.to(where))
                loss.backward()
                o.step()
            losses.append(loss.item())
        assert abs(losses[0] - losses[1]) < 1e-5, (kind, losses)
        for a, b in zip(m.parameters(), there.parameters()):
            assert b.is_sol and b.grad.is_sol
            torch.testing.assert_close(b.detach().cpu(), a.detach(), rtol=1e-4, atol=1e-5)
        for a, b in zip(m.buffers(), there.buffers()):
            torch.testing.assert_close(b.cpu(), a)
    assert not torch.sol.fallbacks(), torch.sol.fallbacks()
    import io
    f = io.BytesIO(); torch.save(there.state_dict(), f); f.seek(0)
    state = torch.load(f); assert all(v.is_sol for v in state.values())
    m.load_state_dict(state)
    f.seek(0); assert all(v.is_cpu for v in torch.load(f, map_location="cpu").values())
"""


@pytest.mark.parametrize("env", DEVICES[:1])
def test_training(run, env):
    run(TRAINING, env)


RECURRENT = """
    for kind in (nn.RNN, nn.GRU, nn.LSTM):
        for more in ({}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False}):
            m = kind(4, 5, **more).double()
            there = copy.deepcopy(m).to("sol")
            x = torch.randn(3, 2, 4).double().requires_grad_()
            y = x.detach().to("sol").requires_grad_()
            out, got = m(x), there(y)
            torch.testing.assert_close(pytree.tree_map(lambda t: t.cpu(), got), out)
            sum(t.sin().sum() for t in pytree.tree_leaves(out)).backward()
            sum(t.sin().sum() for t in pytree.tree_leaves(got)).backward()
            torch.testing.assert_close(y.grad.cpu(), x.grad)
            for a, b in zip(m.parameters(), there.parameters()):
                torch.testing.assert_close(b.grad.cpu(), a.grad)
    for kind in (nn.RNNCell, nn.GRUCell, nn.LSTMCell):
        m = kind(4, 5)
        torch.testing.assert_close(
            pytree.tree_map(lambda t: t.cpu(), copy.deepcopy(m).to("sol")(y.float()[0])), m(x.float()[0])
        )
    assert not torch.sol.fallbacks(), torch.sol.fallbacks()
"""


def test_recurrent_layers_that_are_not_optimized(run):
    run(RECURRENT)


def test_an_operator_without_any_kernel_is_named(run):
    run(
        """
        x = torch.ones(3, device="sol")
        try:
            torch.ops.aten._cudnn_rnn_flatten_weight([x], 1, 1, 1, 1, 1, 1, True, False)
            raise AssertionError("expected an error")
        except sol.UnsupportedError as e:
            assert str(e).startswith("aten::_cudnn_rnn_flatten_weight: there is no kernel") and "\\n" not in str(e), e
        """
    )


def test_copies_between_views(run):
    run(
        """
        x = torch.randn(6, 5)
        y = x.to("sol")
        z, w = y.clone(), x.clone()
        before = torch.sol.counts()["waits"]
        for t, a in ((z, y), (w, x)):
            t[:, 0] = 7
            t[1:3, ::2] = a[:2, ::2]
            t[:, 1:] = t[:, :-1].clone()
            t[3:5] = a[2:4].flip(1)
            t[:, ::2].zero_()
            t[4] = torch.arange(5)
            t.t()[1:3] = a.t()[:1]
        kept = y.t().contiguous()
        assert torch.sol.counts()["waits"] == before and not torch.sol.fallbacks(), torch.sol.fallbacks()
        assert torch.equal(z.cpu(), w) and torch.equal(kept.cpu(), x.t())
        moved = y.clone()
        moved[:, 1:].copy_(moved[:, :-1])  # as if the source were read first
        assert torch.equal(moved.cpu()[:, 1:], x[:, :-1])
        try:
            y[1:].copy_(y[:-1])
            raise AssertionError("expected an error")
        except RuntimeError as e:
            assert "single memory location" in str(e), e
        c = torch.randn(3, 4, dtype=torch.complex64)
        assert torch.equal(c.to("sol").conj().t().contiguous().cpu(), c.conj().t().contiguous())
        """
    )


@pytest.mark.parametrize("env", DEVICES)
def test_views_with_many_pieces_are_networks(run, env):
    run(
        """
        views = (
            lambda t: t[:, ::2], lambda t: t[::3, 1:4], lambda t: t.permute(2, 0, 1)[1:, :, ::2], lambda t: t[:, :, 1],
            lambda t: t[:, 2:5, ::2].transpose(0, 2), lambda t: t[::2].unsqueeze(1), lambda t: t.diagonal(0, 1, 2),
        )
        for dtype, view in zip((torch.float32, torch.int64, torch.bool) * 3, views):
            x = (torch.randn(9, 7, 11) * 3).to(dtype)
            y = x.to("sol")
            v, w = view(x), view(y)
            assert torch.equal(w.contiguous().cpu(), v.contiguous())
            assert torch.equal(w.to(torch.float64).cpu(), v.to(torch.float64))
            torch.testing.assert_close(w.float().sum(-1).cpu(), v.float().sum(-1))
            given = torch.randn(v.shape) * 3
            w.copy_(given.to("sol"))
            v.copy_(given)
            assert torch.equal(y.cpu(), x)
            for t in (v, w):
                t.logical_not_() if dtype == torch.bool else t.add_(1)
                t[:1].fill_(1)
            assert torch.equal(y.cpu(), x)
        assert not torch.sol.fallbacks(), torch.sol.fallbacks()
        """,
        env,
    )


def test_data_parallel(run):
    run(
        """
        m = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
        x = torch.randn(7, 6).double()
        for given in ("cpu", "sol:0"):
            there = copy.deepcopy(m).to("sol:0")
            out = m(x)
            m.zero_grad()
            out.sin().sum().backward()
            before = torch.sol.counts(1)["runs"]
            got = nn.DataParallel(there, device_ids=[0, 1])(x.to(given))
            got.sin().sum().backward()
            assert got.device == torch.device("sol", 0) and torch.sol.counts(1)["runs"] > before
            torch.testing.assert_close(got.cpu(), out)
            for a, b in zip(m.parameters(), there.parameters()):
                torch.testing.assert_close(b.grad.cpu(), a.grad)
        """
    )


def test_the_first_samples_of_operators():
    """A few of docs/operators-native.md; the script runs all."""
    server = opinfo_native.Server()
    for name in ("add", "sum", "cat", "take_along_dim", "nn.functional.embedding_bag", "linalg.det"):
        kinds = {kind for found in server(name).values() for kind, _ in found}
        assert kinds and kinds <= {"works", "falls back"}, (name, kinds)
    server.end()


def test_sizes_and_storages(run):
    run(
        """
        x = torch.randn(2, 3, 4, 4).to("sol").to(memory_format=torch.channels_last)
        assert x.resize_(2, 3, 4, 4).stride() == (48, 1, 12, 3)
        assert x.resize_(2, 3).stride() == (3, 1)
        a = torch.arange(6.0).to("sol")
        part = torch.empty(0, device="sol").set_(a.untyped_storage(), 2, (2, 2), (2, 1))
        assert torch.equal(part.cpu(), torch.tensor([[2.0, 3], [4, 5]]))
        more = torch.empty(0, device="sol").set_(a.untyped_storage(), 1, (3, 4), (4, 1))  # grows the storage
        assert a.untyped_storage().nbytes() == 13 * 4
        more.fill_(3)
        assert more.cpu().sum() == 36 and a.cpu()[0] == 0
        """
    )


def test_tensors_of_other_devices(run):
    run(
        """
        a, nothing = torch.ones(3, device="sol"), torch.ones(3, device="meta")
        for copies in (lambda: nothing.to("sol"), lambda: a.copy_(nothing)):
            try:
                copies()
                raise AssertionError("expected an error")
            except NotImplementedError as e:
                assert "no data" in str(e), e
        assert nothing.copy_(a) is nothing and a.to("meta").is_meta
        try:
            a + nothing
            raise AssertionError("expected an error")
        except RuntimeError as e:
            assert "meta" in str(e) and "sol:0" in str(e), e
        """
    )


def test_many_devices():
    p = Process({"SOL_DEVICE": "far", "SOL_DEVICE_OPTIONS": "far.devices=150"})
    error = p.run(
        """
        assert torch.sol.device_count() == 127  # PyTorch cannot number more
        assert torch.ones(3, device="sol:126").add(1).cpu().sum() == 6
        """
    )
    assert p.end() == 0 and not error, error


def test_two_devices(run):
    run(
        """
        assert torch.sol.device_count() == 2
        a, b = torch.randn(3), torch.randn(3)
        x, y = a.to("sol:0"), b.to("sol:1")
        assert y.device.index == 1 and torch.equal(x.to("sol:1").add(y).cpu(), a + b)
        with torch.sol.device(1):
            assert torch.zeros(2, device="sol").device.index == 1 and torch.sol.current_device() == 1
        assert torch.sol.current_device() == 0
        v = torch.randn(3, device="sol:1", requires_grad=True)
        (v * v).sum().backward()
        assert v.grad.device.index == 1 and torch.equal(v.grad.cpu(), 2 * v.detach().cpu())
        before = torch.sol.memory_allocated(1)
        big = torch.zeros(1 << 20, device="sol:1")
        assert torch.sol.memory_allocated(1) >= before + (4 << 20)
        del big
        torch.sol.synchronize(1)
        assert torch.sol.memory_allocated(1) == before
        """,
    )


ACCELERATOR = """
    a, before = torch.accelerator, torch.accelerator.memory_allocated()
    a.reset_peak_memory_stats()
    x = torch.zeros(1 << 20, device="sol")
    y = x.clone()
    assert a.memory_allocated() == before + (8 << 20) == torch.sol.memory_allocated()
    del y
    assert a.memory_allocated() == before + (4 << 20) and a.max_memory_allocated() == before + (8 << 20)
    a.reset_peak_memory_stats()
    assert a.max_memory_allocated() == before + (4 << 20)
    stats = a.memory_stats()
    assert stats["allocated_bytes.all.freed"] >= 4 << 20 and stats["allocation.all.current"] > 0, stats
    kept = a.memory_reserved()
    assert a.max_memory_reserved() >= kept >= before + (8 << 20)
    a.empty_cache()
    assert a.memory_reserved() <= kept - (4 << 20)
    free, total = a.get_memory_info()
    assert 0 < free < total
    assert torch.float32 in a.get_device_capability()["supported_dtypes"]
    stream = a.current_stream()
    a.set_stream(stream)
    event = stream.record_event()
    event.synchronize()
    assert event.query() and stream.query() and stream == torch.Stream(device="sol")
    a.synchronize()
    p = torch.randn(3, 4).pin_memory()
    assert p.is_pinned() and p[1:].is_pinned() and not torch.randn(3).is_pinned() and not x.is_pinned()
    assert torch.equal(p.to("sol", non_blocking=True).cpu(), p)
"""


@pytest.mark.parametrize("env", DEVICES[::2])
def test_accelerator(run, env):
    run(ACCELERATOR, env)


def test_the_current_device(run):
    run(
        """
        a = torch.accelerator
        a.set_device_index(1)
        assert a.current_device_index() == 1 == torch.zeros(1, device="sol").device.index
        a.set_device_index(0)
        with a.device_index(1):
            assert a.current_device_index() == 1
        assert a.current_device_index() == 0
        """
    )


def test_copies_do_not_wait(run):
    run(
        """
        x = torch.randn(64, 64)
        torch.zeros(1, device="sol").cpu()
        before = torch.sol.counts()["waits"]
        kept = [x.to("sol").clone().zero_() for _ in range(100)]
        assert torch.sol.counts()["waits"] == before
        kept[0].cpu()
        assert torch.sol.counts()["waits"] == before + 1
        """,
    )


OPTIMIZED = """
    def delta(before):
        now = torch.sol.counts()
        return {k: n - before[k] for k, n in now.items() if k not in ("bytes", "last_wait")} | {"last": now["last_wait"]}

    m = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 10))
    x = torch.randn(4, 3, 8, 8)
"""


@pytest.mark.parametrize("env", DEVICES)
def test_optimized_inference_stays_on_the_device(run, env):
    run(
        OPTIMIZED
        + """
    m.eval()
    there, y = copy.deepcopy(m).to("sol"), x.to("sol")
    fast = sol.optimize(there, y)
    with torch.no_grad():
        torch.testing.assert_close(fast(y).cpu(), m(x), rtol=1e-4, atol=1e-5)
        before = torch.sol.counts()
        torch.sol.reset_fallbacks()
        for _ in range(100):
            z = fast(y)
        waits = delta(before)["waits"]
        torch.sol.synchronize()
        moved = delta(before)
        assert z.device == y.device and moved["runs"] >= 100 and not torch.sol.fallbacks(), moved
        reports = 100 if torch.sol.type == "opencl" else 0  # what kernels report, read without waiting
        assert waits == moved["writes"] == moved["copies"] == 0 and moved["reads"] == reports, moved
        torch.testing.assert_close(z.cpu(), m(x), rtol=1e-4, atol=1e-5)
        for net in (m, there):
            net[4].bias.zero_()  # is noticed
        torch.testing.assert_close(fast(y).cpu(), m(x), rtol=1e-4, atol=1e-5)
        w = x[:, :, ::2].repeat(1, 1, 2, 1)
        torch.testing.assert_close(fast(y[:, :, ::2].repeat(1, 1, 2, 1)).cpu(), m(w), rtol=1e-4, atol=1e-5)
        """,
        env,
    )


@pytest.mark.parametrize("env", DEVICES)
def test_optimized_training_stays_on_the_device(run, env):
    run(
        OPTIMIZED
        + """
    there, y = copy.deepcopy(m).to("sol"), x.to("sol").requires_grad_()
    v = x.clone().requires_grad_()
    fast = sol.optimize(there, y)
    g = torch.randn(4, 10)
    h = g.to("sol")
    for _ in range(3):
        m(v).backward(g)
        fast(y).backward(h)
    assert y.grad.device == y.device
    torch.testing.assert_close(y.grad.cpu(), v.grad, rtol=1e-3, atol=1e-4)
    for a, b in zip(m.parameters(), there.parameters()):
        assert b.grad.device == b.device
        torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=1e-3, atol=1e-4)
    for a, b in zip(m.buffers(), there.buffers()):
        torch.testing.assert_close(b.cpu(), a)
    before = torch.sol.counts()
    torch.sol.reset_fallbacks()
    for _ in range(20):
        fast.zero_grad()
        y.grad = None
        fast(y).backward(h)
    waits = delta(before)["waits"]
    torch.sol.synchronize()
    moved = delta(before)
    assert not torch.sol.fallbacks() and moved["runs"] >= 40, moved
    assert waits == moved["writes"] == 0 and moved["reads"] == (60 if torch.sol.type == "opencl" else 0), moved
    out = fast(y)
    first = torch.autograd.grad(out, y, h, retain_graph=True)[0]
    assert torch.equal(first.cpu(), torch.autograd.grad(out, y, h)[0].cpu())
        """,
        env,
    )


@pytest.mark.parametrize("foreach", [False, True])
def test_steps_of_training_do_not_wait(run, foreach):
    run(
        OPTIMIZED
        + """
    there, y = m.to("sol"), x.to("sol")
    target = torch.tensor([1, 2, 3, 4]).to("sol")
    fast = sol.optimize(there, y)
    for make in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad):
        optimizer = make(there.parameters(), lr=1e-3, foreach=FOREACH)
        for step in range(27):
            if step == 3:  # everything is compiled
                before = torch.sol.counts()
                torch.sol.reset_fallbacks()
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(fast(y), target)
            loss.backward()
            optimizer.step()
            first = loss.item() if step == 0 else first
        assert delta(before)["waits"] == 0 and not torch.sol.fallbacks(), (make, delta(before), torch.sol.fallbacks())
        assert loss.item() < first
        """.replace("FOREACH", str(foreach)),
    )


def test_the_end_of_a_network_does_not_wait(run):
    """Networks that the garbage collector finds end while their runs are under way, and their failures are told to others."""
    run(
        OPTIMIZED
        + """
    import gc
    want = m(x)
    there, y = m.to("sol"), x.to("sol")
    for _ in range(3):
        fasts = [sol.optimize(there, y) for _ in range(4)]
        for fast in fasts:
            fast(y)
        torch.sol.synchronize()
        before = torch.sol.counts()
        outs = [fast(y) for fast in fasts * 3]
        fast = fasts = None
        gc.collect()
        y * 2
        assert delta(before)["waits"] == 0, delta(before)
        for out in outs:
            torch.testing.assert_close(out.cpu(), want)
        assert torch.sol.counts()["last_wait"] == "a value"
        """,
    )


def test_broadcasts_are_compiled_for_all_sizes(run):
    """Neighbouring dimensions that broadcast alike are one, so a bias of any shape is one network."""
    run(
        """
        from sol.pytorch.native import eager
        calls = {
            "add": lambda x, y: x + y, "div": lambda x, y: x / y, "less": lambda x, y: x < y, "atan2": torch.atan2,
            "where": lambda x, y: torch.where(x > y, x, y), "mul_": lambda x, y: x.clone().mul_(y) if x.ndim >= y.ndim else x,
        }
        first = [((4, 5), (5,)), ((2, 3, 4, 5), (3, 1, 1)), ((30, 1), (1, 44)), ((3, 1, 5), (2, 1)), ((4, 5), (1,)), ((5,), (4, 5))]
        later = [((11, 6), (6,)), ((2, 9, 70, 800), (9, 1, 1)), ((2, 1), (1, 7)), ((4, 1, 2), (5, 1)), ((9, 2), (1,)), ((6,), (8, 6))]

        def check(name, shapes):
            x, y = (torch.rand(s) + 0.5 for s in shapes)
            if name == "mul_" and torch.broadcast_shapes(*shapes) != x.shape:
                return
            got, want = calls[name](x.to("sol"), y.to("sol")), calls[name](x, y)
            assert got.stride() == want.stride(), (name, shapes)
            torch.testing.assert_close(got.cpu(), want)

        for name in calls:
            for shapes in first:
                check(name, shapes)
        known = len(eager._known)
        for name in calls:
            for shapes in later:
                check(name, shapes)
        assert len(eager._known) == known and not torch.sol.fallbacks()
        x, y = torch.rand(4, 5), torch.rand(1, dtype=torch.float64)  # an element in a dimension decides the type
        torch.testing.assert_close((x.to("sol") + y.to("sol")).cpu(), x + y)
        """,
    )


def test_parameters_stay_theirs(run):
    """Parameters that layers share stay shared when a model moves, and an optimizer keeps those that it has."""
    run(
        """
        x, m = torch.rand(2, 3), nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
        m[2].weight = m[0].weight
        p = m[0].weight
        optimizer = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
        want = copy.deepcopy(m)
        expected = torch.optim.SGD(want.parameters(), 0.1, momentum=0.9)
        def step(m, optimizer, x):
            m(x).square().sum().backward()
            optimizer.step()
        step(want, expected, x), step(want, expected, x)
        step(m, optimizer, x)  # the second gradient is added to it
        for _ in range(2):
            m.to("cpu")
            m.to("sol")
            assert m[0].weight is m[2].weight is p and len(list(m.parameters())) == 3
            assert p.is_sol and p.grad.is_sol and p.is_leaf and p.requires_grad and isinstance(p, nn.Parameter)
        for state in optimizer.state.values():
            state["momentum_buffer"] = state["momentum_buffer"].to("sol")
        step(m, optimizer, x.to("sol"))
        for a, b in zip(m.parameters(), want.parameters(), strict=True):
            torch.testing.assert_close(a.cpu(), b)
        fast = sol.optimize(m, x.to("sol"))
        fast(x.to("sol")).square().sum().backward()
        want(x).square().sum().backward()
        torch.testing.assert_close(p.grad.cpu(), want[0].weight.grad)
        m.to("sol:1").double()
        assert m[0].weight is m[2].weight is p and p.dtype is torch.float64 and p.get_device() == 1
        assert m.to("cpu")[2].weight is p
        """
    )


def test_calls_that_are_known_run_without_python(run):
    """Equal calls run from native.cpp, with other values of tensors, of scalars of the host, and of numbers that are operands."""
    run(
        """
        from sol.pytorch.native import eager
        from unittest import mock
        f, i, b = torch.rand(3, 4) + 0.5, torch.arange(1, 13).view(3, 4), torch.rand(3, 4) > 0.5
        one, small = torch.tensor(3.0), torch.tensor(3, dtype=torch.int32)
        convolution = nn.Conv2d(1, 2, 3)
        def each(k, d):
            f_, i_, b_, one_, small_ = (t.to(d) for t in (f, i, b, one, small))
            c = copy.deepcopy(convolution).to(d)
            c(f_.view(1, 1, 3, 4) * k).sum().backward()
            return [
                f_ + f_, f_ + i_, f_ * (0.1 * k), i_ * k, i_ / k, i_ * (0.5 * k), b_ * k, one_ * k, small_ * k, small_ * (0.5 * k),
                f_ + torch.tensor(0.3 * k), i_ + torch.tensor(k), f_.clone().add_(f_, alpha=-0.1 * k), f_.clone().mul_(k), f_.abs(), f_.sum(0),
                torch.add(f_, k, out=torch.empty(0, device=d)), f_.max(1).indices, f_.double() * (0.1 * k), torch.where(b_, f_, 0.1 * k),
                f_.addcmul(f_, f_, value=0.1 * k), f_ @ f_.t(), c.weight.grad, torch.arange(4, device=d), f_[1:] * f_[:2], f_.t() - f_.t(), f_.t().contiguous(), f_.int(),
            ]
        def check(k):
            for n, (got, want) in enumerate(zip(each(k, "sol"), each(k, "cpu"), strict=True)):
                assert got.dtype == want.dtype and got.stride() == want.stride(), (k, n, got.dtype, want.dtype)
                torch.testing.assert_close(got.cpu(), want, msg=lambda m: f"{k} {n}: {m}")
        check(2)
        with mock.patch.object(eager, "_prepared", side_effect=AssertionError("it is asked")):
            check(3)
            check(5)
            threads = [__import__("threading").Thread(target=check, args=(k,)) for k in range(4)]
            for t in threads: t.start()
            for t in threads: t.join()
        torch.set_default_dtype(torch.float64)
        try:
            check(2)  # its numbers are of another type
        finally:
            torch.set_default_dtype(torch.float32)
        assert not torch.sol.fallbacks(), torch.sol.fallbacks()
        """
    )


def test_a_list_of_tensors_is_one_network(run):
    run(
        """
        def lists(n=3):
            torch.manual_seed(2)
            host = [[torch.rand(2, k + 1) + 0.5 for k in range(12)] + [torch.rand(()) + 0.5] for _ in range(n)]
            return host, [[t.to("sol") for t in l] for l in host]

        calls = (
            lambda x, y, z: torch._foreach_add_(x, y, alpha=-0.3), lambda x, y, z: torch._foreach_sub(x, y),
            lambda x, y, z: torch._foreach_mul_(x, 0.9), lambda x, y, z: torch._foreach_mul(x, [0.1 * k for k in range(13)]),
            lambda x, y, z: torch._foreach_div_(x, [float(k + 1) for k in range(13)]), lambda x, y, z: torch._foreach_div(x, y),
            lambda x, y, z: torch._foreach_addcmul_(x, y, z, 0.1), lambda x, y, z: torch._foreach_addcdiv(x, y, z, -0.1),
            lambda x, y, z: torch._foreach_addcdiv_(x, y, z, [0.1 * k for k in range(13)]),
            lambda x, y, z: torch._foreach_lerp_(x, y, 0.25), lambda x, y, z: torch._foreach_lerp(x, y, 0.75),
            lambda x, y, z: torch._foreach_sqrt_(x), lambda x, y, z: torch._foreach_pow(x, 2),
            lambda x, y, z: torch._foreach_maximum_(x, y), lambda x, y, z: torch._foreach_clamp_max(x, 0.7),
            lambda x, y, z: torch._foreach_norm(x), lambda x, y, z: torch._foreach_mul_(x, torch.tensor(3.0)),
        )
        for i, call in enumerate(calls):
            host, there = lists()
            call(*there)
            host, there = lists()
            torch.sol.synchronize()
            before = torch.sol.counts()["runs"]
            got, expected = call(*there), call(*host)
            torch.sol.synchronize()
            assert torch.sol.counts()["runs"] == before + 1, i
            got, expected = (there[0], host[0]) if expected is None else (got, expected)
            for a, b in zip(got, expected, strict=True):
                assert a.shape == b.shape and a.stride() == b.stride()
                torch.testing.assert_close(a.cpu(), b, rtol=1e-6, atol=1e-6, msg=f"call {i}")
        # other forms: tensor by tensor
        host, there = lists()
        for x, y, z in (host, there):
            x[0], y[1], z[2] = x[0].t(), y[1][:1], torch.zeros(0)
            torch._foreach_add_(x[:2], [y[0].t(), y[1]], alpha=2)
            torch._foreach_mul_([torch.arange(3, device=x[0].device)], 2)
        for a, b in zip(there[0], host[0], strict=True):
            torch.testing.assert_close(a.cpu(), b)
        many = [torch.ones(3, device="sol") for _ in range(150)]
        torch._foreach_add_(many, 1.0)
        assert all(t.tolist() == [2, 2, 2] for t in many) and not torch.sol.fallbacks(), torch.sol.fallbacks()
        """
    )


def test_element_wise_operators_have_one_network_for_all_sizes(run):
    run(
        """
        from sol.pytorch.native import eager
        calls = (
            lambda x, y: x + y, lambda x, y: x.mul_(y), lambda x, y: x.add_(y, alpha=0.5), lambda x, y: x.clamp_(0),
            lambda x, y: torch.add(x, y, out=torch.empty_like(x)), lambda x, y: torch.eq(x, y, out=torch.empty_like(x)),
        )
        for call in calls:
            for k in (5, 77, 1000):
                x = torch.linspace(-1, 1, k)
                there, other = x.to("sol"), x.flip(0).to("sol")
                before = len(eager._known)
                torch.testing.assert_close(call(there, other).cpu(), call(x.clone(), x.flip(0)))
                assert k == 5 or len(eager._known) == before
        torch.sol.reset_fallbacks()
        assert torch.arange(2, 9, 3, device="sol").tolist() == [2, 5, 8]
        assert torch.ones(4, device="sol").sum().item() == 4 and not torch.sol.fallbacks(), torch.sol.fallbacks()
        whole = torch.ones(3, dtype=torch.int64, device="sol")
        for call in (lambda: torch.add(there, there, out=whole), lambda: torch._foreach_mul_([whole], 0.5), lambda: whole.mul_(0.5)):
            try:
                call()
                raise AssertionError("expected an error")
            except RuntimeError as e:
                assert "can't be cast" in str(e), e
        """
    )


def test_training_waits_where_a_value_is_read(run):
    run(
        OPTIMIZED
        + """
    there, target = m.to("sol"), torch.tensor([1, 2, 3, 4]).to("sol")
    fast = sol.optimize(there, x.to("sol"))
    optimizer = torch.optim.Adam(there.parameters(), lr=1e-3)

    def train(steps):
        losses = []
        for step in range(steps):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(fast(x.to("sol", non_blocking=True)), target)
            loss.backward()
            optimizer.step()
            if step % 10 == 9:
                losses.append(loss.item())
        return losses

    train(10)  # everything is compiled
    before = torch.sol.counts()
    torch.sol.reset_fallbacks()
    losses = train(100)
    assert delta(before)["waits"] == 10 and not torch.sol.fallbacks(), (delta(before), torch.sol.fallbacks())
    assert losses[-1] < losses[0]
        """
    )


def test_optimized_sizes_and_random_numbers(run):
    run(
        OPTIMIZED
        + """
    m.eval()
    there = copy.deepcopy(m).to("sol:1")
    fast = sol.optimize(there, sol.input([0, 3, 8, 8]))
    given = [torch.randn(n, 3, 8, 8) for n in (2, 3, 5, 7, 11, 2, 3, 13, 17, 19, 23)]
    moved = [t.to("sol:1") for t in given]
    with torch.no_grad():
        fast(moved[0])
        before = torch.sol.counts(1)["waits"]
        made = [fast(t) for t in moved]  # all are under way, with other sizes than the last
        assert torch.sol.counts(1)["waits"] == before
        for a, b in zip(given, made):
            torch.testing.assert_close(b.cpu(), m(a), rtol=1e-4, atol=1e-5)
        drop = sol.optimize(nn.Dropout(0.5).train(), torch.ones(1000, device="sol"))
        kept = drop(torch.ones(1000, device="sol")).cpu()
        assert 400 < (kept == 2).sum() < 600 and ((kept == 0) | (kept == 2)).all()
        """
    )


def test_optimized_on_two_devices_is_rejected_by_name(run):
    run(
        OPTIMIZED
        + """
    def message(model, *args):
        try:
            sol.optimize(model, *args)
        except sol.InvalidError as e:
            return str(e)
        raise AssertionError("expected an error")

    y = x.to("sol")
    text = message(copy.deepcopy(m), y)
    assert "2 devices" in text and "cpu: 0.weight, 0.bias" in text and "sol:0: argument 0" in text, text
    there = copy.deepcopy(m).to("sol")
    there[4].to("sol:1")
    text = message(there, y)
    assert "sol:1: 4.weight, 4.bias" in text and "sol:0: 0.weight" in text and ".to(device)" in text, text
    try:
        sol.deploy(copy.deepcopy(m).to("sol").eval(), "static_lib", {"path": "/nowhere", "lib_name": "l", "func_name": "f"}, x)
        raise AssertionError("expected an error")
    except sol.UnsupportedError as e:
        assert "0.weight is on device sol:0" in str(e) and ".cpu()" in str(e), e
    fast = sol.optimize(copy.deepcopy(m).to("sol").eval(), y)
    with torch.no_grad():
        try:
            fast(x)
            raise AssertionError("expected an error")
        except sol.InvalidError as e:
            assert "cpu: argument 0" in str(e), e
        """
    )


def test_optimized_goes_on_after_a_failure(run):
    run(
        OPTIMIZED
        + """
    m.eval()
    failures = good = 0
    with torch.no_grad():
        expected = m(x)
        while good < 5:
            try:
                there = copy.deepcopy(m).to("sol")
                fast = sol.optimize(there, torch.zeros(4, 3, 8, 8, device="sol"))
                break
            except (RuntimeError, sol.RunError):
                failures += 1
        for _ in range(100):
            try:
                for a, b in zip(m.parameters(), there.parameters()):
                    b.copy_(a)  # what a failure dropped is not there, and parameters are prepared again
                for a, b in zip(m.buffers(), there.buffers()):
                    b.copy_(a)
                out = fast(x.to("sol")).cpu()
            except (RuntimeError, sol.RunError) as e:
                assert "far.fail" in str(e), e
                failures += 1
                continue
            torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
            good += 1
    assert failures and good > 10, (failures, good)
        """,
        {**FAR, "SOL_DEVICE_OPTIONS": "far.fail=100"},
    )


def test_transparent_copies_are_counted(run):
    """Models and data on the host: a call copies its inputs, its outputs and what changed."""
    run(
        """
        def moved(call, n=1):
            torch.sol.synchronize()
            before = torch.sol.counts()
            for _ in range(n):
                call()
            torch.sol.synchronize()
            return tuple(torch.sol.counts()[k] - before[k] for k in ("writes", "reads"))

        m = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)).eval()
        x = torch.randn(5, 6)
        fast = sol.optimize(m, x)
        ema = torch.optim.swa_utils.AveragedModel(m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
        averaged = sol.optimize(ema.module.eval(), x)
        with torch.no_grad():
            call, other = lambda: fast(x), lambda: averaged(x)
            call(), other()
            assert moved(call, 10) == (10, 10) == moved(other, 10)  # x, and the result
            m[3].bias.add_(1)
            assert moved(call) == (2, 1) and moved(call) == (1, 1) and moved(other) == (1, 1)
            for p in m.parameters():
                p.mul_(0.9)
            writes, reads = moved(call)
            assert 2 <= writes <= CHANGED and reads == 1, writes
            assert moved(call) == (1, 1)
            m.load_state_dict(copy.deepcopy(m.state_dict()))
            assert moved(call)[0] <= CHANGED and moved(call) == (1, 1)
            ema.update_parameters(m)
            assert 2 <= moved(other)[0] <= CHANGED and moved(other) == (1, 1) == moved(call)
            torch.testing.assert_close(fast(x), nn.Module.__call__(copy.deepcopy(m), x))
        """.replace("CHANGED", "3")
    )


def test_fallbacks_are_counted_and_can_be_forbidden(run):
    run(
        """
        x = torch.randn(3, 3).to("sol")
        torch.linalg.det(x)
        assert sum(torch.sol.fallbacks().values()) > 0
        torch.sol.reset_fallbacks()
        assert not torch.sol.fallbacks()
        sol.config["device::fallback"] = "off"
        try:
            torch.linalg.det(x)
            raise AssertionError("expected an error")
        except (RuntimeError, sol.RunError) as e:
            assert "device::fallback=off" in str(e) and "SOL_DEVICE_FALLBACK" in str(e), e
        finally:
            sol.config["device::fallback"] = "on"
        """
    )


def test_memory_runs_out_and_smaller_tensors_go_on(run):
    run(
        """
        kept = torch.ones(1000, device="sol")
        try:
            torch.zeros(1 << 26, device="sol")
            raise AssertionError("expected an error")
        except torch.OutOfMemoryError as e:
            assert "out of device memory" in str(e), e
        assert torch.ones(1000, device="sol").cpu().sum() == 1000 and kept.cpu().sum() == 1000
        """,
        {**FAR, "SOL_DEVICE_OPTIONS": "far.memory=64MB"},
    )


def test_a_failure_is_reported_once(run):
    run(
        """
        x = torch.ones(1000).to("sol")
        failures = 0
        for _ in range(200):
            try:
                assert (x.clone().zero_().cpu() == 0).all()
            except (RuntimeError, sol.RunError) as e:
                assert "far.fail" in str(e), e
                failures += 1
        assert 0 < failures < 200
        """,
        {**FAR, "SOL_DEVICE_OPTIONS": "far.fail=20"},
    )


def test_a_child_after_fork_is_told(run):
    run(
        """
        import os
        x = torch.ones(3, device="sol")
        child = os.fork()
        if not child:
            try:
                torch.ones(3, device="sol")
                os._exit(1)
            except (RuntimeError, sol.RunError) as e:
                os._exit(0 if "fork" in str(e) else 2)
        assert os.waitpid(child, 0)[1] == 0 and x.cpu().sum() == 3
        """,
    )


@pytest.mark.parametrize("env", DEVICES)
def test_a_process_ends_with_work_in_flight(env):
    p = Process(env)
    error = p.run(
        OPTIMIZED
        + """
    y = x.to("sol")
    sys.kept = fast = sol.optimize(m.eval().to("sol"), y)
    fast(y)
    before = torch.sol.counts()["waits"]
    for _ in range(200):
        fast(y)
    assert torch.sol.counts()["waits"] == before
        """
    )
    if "sol.native: device opencl:" in error:
        pytest.skip("this machine has no OpenCL")
    assert not error and p.end() == 0, error


def test_autocast_is_rejected(run):
    run(
        """
        try:
            torch.autocast("sol").__enter__()
            raise AssertionError("expected an error")
        except sol.UnsupportedError as e:
            assert "autocast" in str(e)
        """
    )


def test_sparse_tensors_are_rejected(run):
    run(
        """
        layer = torch.nn.Embedding(10, 4, sparse=True).to("sol")
        index = torch.tensor([1, 2]).to("sol")
        cases = (lambda: torch.eye(3).to_sparse().to("sol"), lambda: torch.eye(3).to("sol").to_sparse(),
                 lambda: torch.eye(3).to_sparse_csr().to("sol").sum(), lambda: layer(index).sum().backward())
        for case in cases:
            try:
                case()
                raise AssertionError("expected an error")
            except NotImplementedError as e:
                assert "SOL: aten::" in str(e) and "sparse tensors: not supported" in str(e), e
        """
    )


def test_without_a_compiler(tmp_path: Path):
    message = fails("", {**FAR, "PATH": str(tmp_path), "CXX": "", "SOL_CACHE": str(tmp_path / "cache")})
    assert "C++ compiler" in message and "apt install g++" in message


EVENTS = """
x = torch.ones(1000, device="sol:0")
first, second = (torch.Event("sol", enable_timing=True) for _ in range(2))
assert first.query()  # nothing was recorded
first.record()
y = x * 2
second.record()
second.synchronize()
assert first.query() and second.query() and 0 <= first.elapsed_time(second) < 60000
torch.accelerator.current_stream().wait_event(second)
waits = torch.sol.counts(0)["waits"]
for _ in range(20):
    first.record()
    first.wait()
    y = y + 1
assert torch.sol.counts(0)["waits"] == waits  # nothing of this waits for the device
assert y.sum().item() == 22000
torch.accelerator.synchronize()  # frees memory, too
assert torch.accelerator.current_stream().query()
"""


@pytest.mark.parametrize("env", DEVICES[:2])
def test_events(run, env):
    run(EVENTS, env)
