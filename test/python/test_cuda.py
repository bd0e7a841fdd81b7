"""Models and tensors of PyTorch on CUDA devices, on a card: `model.cuda()` is read in place, in PyTorch's current stream. Where there
is no card, test_nvidia.py does the same with tensors in memory of a double of the driver."""

import copy
import threading

import pytest
import sol
import torch
from torch import nn

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="PyTorch has no CUDA device here (a build for the processor, or no card)"
)
CUDA = "cuda"


@pytest.fixture(autouse=True)
def exact_products():
    """Comparisons are with float32 and float64, not with TF32."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def mlp():
    return nn.Sequential(nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 10))


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10)
    )


def transformer():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


MODELS = [(mlp, (5, 24)), (convolutions, (4, 3, 16, 16)), (transformer, (2, 9, 32))]


def exact(model, x):
    return copy.deepcopy(model).cpu().double()(x.cpu().double())


def close(a, b, rtol=1e-4, atol=1e-5):
    torch.testing.assert_close(a.detach().cpu().double(), b.detach().cpu().double(), rtol=rtol, atol=atol)


def waits():
    """How often SOL waited for the device so far."""
    return sol._core.heap_counts("nvidia:0")["waits"]


# -- results


@pytest.mark.parametrize(("make", "shape"), MODELS)
def test_inference(make, shape):
    model = make().eval().to(CUDA)
    fast = sol.optimize(model, torch.randn(shape, device=CUDA))
    for _ in range(4):
        x = torch.randn(shape, device=CUDA)
        with torch.no_grad():
            y = fast(x)
        assert y.device == x.device and y.is_contiguous()
        close(y, exact(model, x))


@pytest.mark.parametrize(("make", "shape"), MODELS)
def test_training(make, shape):
    """Steps of an optimizer, against the same steps by PyTorch in float64."""
    model = make().train().to(CUDA)
    slow = copy.deepcopy(model).cpu().double()
    fast = sol.optimize(model, torch.randn(shape, device=CUDA))
    steps = [torch.optim.SGD(m.parameters(), 0.05, momentum=0.9) for m in (fast, slow)]
    for _ in range(4):
        x = torch.randn(shape)
        for net, step, data in zip((fast, slow), steps, (x.to(CUDA), x.double()), strict=True):
            step.zero_grad()
            net(data).square().mean().backward()
            step.step()
    for (name, p), q in zip(fast.named_parameters(), slow.parameters(), strict=True):
        assert p.grad.is_cuda, name
        close(p, q, 1e-3, 1e-5)
    for p, q in zip(fast.buffers(), slow.buffers(), strict=True):
        close(p, q, 1e-3, 1e-5)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("kind", ["foreach", "fused"])
def test_optimizers_that_write_in_place(optimizer, kind):
    model = mlp().to(CUDA)
    slow = copy.deepcopy(model)
    fast = sol.optimize(model)
    steps = [optimizer(m.parameters(), 1e-2, **{kind: True}) for m in (fast, slow)]
    for _ in range(5):
        x = torch.randn(5, 24, device=CUDA)
        losses = []
        for net, step in zip((fast, slow), steps, strict=True):
            step.zero_grad()
            losses.append(net(x).square().mean())
            losses[-1].backward()
            step.step()
        close(*losses, 1e-3, 1e-5)
    close(fast(x), slow(x), 1e-3, 1e-4)


def test_gradients_of_inputs_and_of_eval_mode():
    model = mlp().eval().to(CUDA)
    fast = sol.optimize(model)
    x, y = (torch.full((3, 24), 0.3, device=CUDA).requires_grad_() for _ in range(2))
    fast(x).sum().backward()
    copy.deepcopy(model)(y).sum().backward()
    close(x.grad, y.grad)
    close(x.grad, torch.autograd.grad(fast(x).sum(), x, retain_graph=True)[0])


def test_accumulated_gradients_and_two_backwards():
    model = mlp().train().to(CUDA)
    fast, slow = sol.optimize(model), copy.deepcopy(model)
    x = torch.randn(5, 24, device=CUDA)
    for net in (fast, slow):
        y = net(x).sum()
        y.backward(retain_graph=True)
        y.backward()
    for p, q in zip(fast.parameters(), slow.parameters(), strict=True):
        close(p.grad, q.grad)


# -- where models and tensors are


def test_a_model_moves():
    model = mlp().eval()
    fast, x = sol.optimize(model, torch.randn(5, 24)), torch.randn(5, 24)
    expected = fast(x)
    for _ in range(2):
        fast.cuda()
        y = fast(x.cuda())
        assert y.is_cuda
        close(y, expected)
        fast.cpu()
        y = fast(x)
        assert y.device.type == "cpu"
        close(y, expected)


def test_parameters_are_read_in_place():
    """A change by PyTorch is seen by the next call, and no copy of the parameters is on the host."""
    fast, x = sol.optimize(mlp().eval().to(CUDA)), torch.randn(5, 24, device=CUDA)
    with torch.no_grad():
        before = fast(x)
        fast[2].weight.mul_(2)
        fast[2].bias.mul_(2)
        close(fast(x), 2 * before)
        fast.load_state_dict({k: torch.zeros_like(v) for k, v in fast.state_dict().items()})
        assert not fast(x).any()


def test_strides_and_types():
    class Sum(nn.Module):
        def forward(self, a, b, c):
            return (a + b.float() * c).sum(1), torch.relu(a).t(), a[:0]

    a, b = torch.randn(9, 7, device=CUDA).t(), torch.randint(0, 9, (7, 18), device=CUDA)[:, ::2]
    c = torch.randn(1, 9, device=CUDA).expand(7, 9)
    fast = sol.optimize(Sum(), a, b, c)
    for y, z in zip(fast(a, b, c), Sum()(a, b, c), strict=True):
        assert y.shape == z.shape and y.stride() == z.stride() and y.device == z.device
        close(y, z)


def test_half_of_the_tensors_on_the_host():
    fast = sol.optimize(mlp().to(CUDA))
    fast(torch.randn(5, 24, device=CUDA))
    with pytest.raises(
        sol.InvalidError, match=r"its tensors are on 2 devices: cuda:0: .*; cpu: argument 0: expected one"
    ):
        fast(torch.randn(5, 24))


def test_the_tensors_decide_and_not_the_selected_device():
    x = torch.randn(5, 24, device=CUDA)
    model = mlp().eval().to(CUDA)
    for name in ("x86", "nvidia"):
        with sol.device(name):
            y = sol.optimize(copy.deepcopy(model), x)(x)
        assert y.is_cuda
        close(y, exact(model, x))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one card: a second is needed for models on two")
def test_two_devices():
    models = [mlp().eval().to(f"cuda:{i}") for i in range(2)]
    fast = [sol.optimize(m) for m in models]
    for i, (model, net) in enumerate(zip(models, fast, strict=True)):
        x = torch.randn(5, 24, device=f"cuda:{i}")
        y = net(x)
        assert y.device == x.device
        close(y, exact(model, x))


# -- order: streams, threads, and nobody waits


def busy():
    """Keeps the current stream busy for a while."""
    torch.cuda._sleep(20_000_000)


def test_calls_are_in_order_between_kernels_of_pytorch():
    fast = sol.optimize(mlp().eval().to(CUDA))
    model = copy.deepcopy(fast).cpu()
    x = torch.zeros(5, 24, device=CUDA)
    with torch.no_grad():
        fast(x)
        sums = []
        for i in range(8):
            busy()
            x.fill_(i / 8)
            y = fast(x)
            sums.append(y.sum(0))
            x.zero_()  # behind the call
            y.zero_()
    for i, s in enumerate(sums):
        close(s, exact(model, torch.full((5, 24), i / 8)).sum(0))


def test_a_call_does_not_wait():
    fast, x = sol.optimize(mlp().train().to(CUDA)), torch.randn(5, 24, device=CUDA)
    step = torch.optim.SGD(fast.parameters(), 0.01, foreach=True)
    for i in range(6):
        torch.cuda.synchronize()
        before = waits()
        busy()
        end = torch.cuda.Event()
        fast(x).square().mean().backward()
        step.step()
        step.zero_grad()
        end.record()
        if i > 2:
            assert not end.query() and waits() == before


def test_other_streams():
    fast = sol.optimize(mlp().eval().to(CUDA))
    model = copy.deepcopy(fast).cpu()
    streams = [torch.cuda.Stream() for _ in range(3)]
    found = []
    with torch.no_grad():
        for i in range(12):
            stream = streams[i % 3]
            with torch.cuda.stream(stream):
                busy()
                x = torch.full((5, 24), i / 12, device=CUDA)
                found.append(fast(x))
    torch.cuda.synchronize()
    for i, y in enumerate(found):
        close(y, exact(model, torch.full((5, 24), i / 12)))


def test_training_in_another_stream():
    model = mlp().train().to(CUDA)
    fast, slow = sol.optimize(model), copy.deepcopy(model)
    x = torch.randn(5, 24, device=CUDA)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        busy()
        y = fast(x).square().sum()
    torch.cuda.current_stream().wait_stream(stream)
    y.backward()  # in the stream of its forward
    slow(x).square().sum().backward()
    for p, q in zip(fast.parameters(), slow.parameters(), strict=True):
        close(p.grad, q.grad)


def test_threads_with_streams_of_their_own():
    fast = sol.optimize(mlp().eval().to(CUDA))
    model = copy.deepcopy(fast).cpu()
    wrong = []

    def work(n):
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            for i in range(20):
                x = torch.full((5, 24), n + i / 20, device=CUDA)
                y = fast(x).cpu()
                if not torch.allclose(y.double(), exact(model, x), 1e-4, 1e-4):
                    wrong.append((n, i))

    fast(torch.zeros(5, 24, device=CUDA))
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_memory_comes_from_pytorch_and_is_used_again():
    """Results are PyTorch's memory. SOL's own is used again by later calls, without a wait."""
    fast, x = sol.optimize(convolutions().train().to(CUDA)), torch.randn(64, 3, 16, 16, device=CUDA)
    for i in range(30):
        fast(x).square().mean().backward()
        if i == 5:
            torch.cuda.synchronize()
            reserved, before = sol._core.heap_counts("nvidia:0")["reserved"], waits()
    assert sol._core.heap_counts("nvidia:0")["reserved"] <= reserved and waits() == before


# -- random numbers, values, errors


def test_random_numbers():
    model = nn.Sequential(nn.Linear(24, 4000), nn.Dropout(0.5)).train().to(CUDA)
    fast, x = sol.optimize(model), torch.randn(5, 24, device=CUDA)
    made = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        made.append(fast(x))
    assert torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])
    assert 0.45 < (made[0] == 0).float().mean().item() < 0.55


def test_values_that_forward_reads():
    class Reads(nn.Module):
        def forward(self, x, n):
            y = x * 2 if n.sum() > 3 else x - 1
            return y + torch.arange(x.shape[1], device=x.device)

    fast, x = sol.optimize(Reads()), torch.randn(3, 4, device=CUDA)
    for n in (1, 4, 1):
        given = torch.tensor([n], device=CUDA)
        close(fast(x, given), Reads()(x, given))


def test_bad_data_is_reported_and_calls_go_on():
    fast = sol.optimize(nn.Embedding(5, 3).to(CUDA).eval())
    good, bad = torch.tensor([1, 4], device=CUDA), torch.tensor([1, 5], device=CUDA)
    expected = fast(good).clone()
    fast(bad)
    torch.cuda.synchronize()
    with pytest.raises(sol.RunError, match="an index is out of range"):
        for _ in range(6):
            fast(good)
            torch.cuda.synchronize()
    torch.testing.assert_close(fast(good), expected)
    torch.cuda.synchronize()
    fast(good)


def test_autocast_is_rejected():
    fast, x = sol.optimize(mlp().to(CUDA)), torch.randn(5, 24, device=CUDA)
    fast(x)
    with pytest.raises(sol.UnsupportedError, match="autocast"), torch.autocast("cuda"):
        fast(x)


def test_a_capture_is_rejected():
    fast, x = sol.optimize(mlp().eval().to(CUDA)), torch.randn(5, 24, device=CUDA)
    with torch.no_grad():
        expected = fast(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with pytest.raises(sol.UnsupportedError, match="captured into a graph"), torch.cuda.graph(graph):
            fast(x)
        close(fast(x), expected)


# -- torch.compile


@pytest.mark.parametrize(("make", "shape"), MODELS)
def test_compile(make, shape):
    model = make().train().to(CUDA)
    slow = copy.deepcopy(model)
    fast = torch.compile(model, backend="sol", fullgraph=True)
    for _ in range(3):
        x = torch.randn(shape, device=CUDA)
        y, z = fast(x), slow(x)
        close(y, z, 1e-3, 1e-4)
        y.square().mean().backward()
        z.square().mean().backward()
    for p, q in zip(model.parameters(), slow.parameters(), strict=True):
        close(p.grad, q.grad, 1e-3, 1e-4)


def test_compile_with_devices_in_the_graph_and_parts_in_pytorch():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = mlp(), nn.Linear(10, 10)

        def forward(self, x):
            y = self.a(x) + torch.arange(10, device=x.device) + torch.zeros(10, device="cuda")
            torch._dynamo.graph_break()
            return torch.softmax(self.b(y), 1)

    model = Mixed().eval().to(CUDA)
    fast, x = torch.compile(model, backend="sol"), torch.randn(5, 24, device=CUDA)
    with torch.no_grad():
        for _ in range(3):
            close(fast(x), model(x))
