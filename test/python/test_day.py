"""A user's day with a model: a training loop with callbacks and checkpoints, GradCAM, features of inner layers, transformers."""

import copy

import pytest
import sol
import torch
from torch import nn
from torch.nn import functional as F
from torch_help import check


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def convnet():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 3)
    )


# -- a loop like Lightning's


class Lit(nn.Module):
    """Holds the network, as a LightningModule does, and counts in attributes."""

    def __init__(self, net, optimize):
        super().__init__()
        self.net = optimize(net)
        self.steps, self.logged = 0, []

    def training_step(self, batch):
        x, target = batch
        loss = F.cross_entropy(self.net(x), target)
        self.steps += 1
        self.logged.append(loss.detach())
        return loss

    def validation_step(self, batch):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)
        return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


class Best:
    """A callback: keeps the best weights."""

    def __init__(self):
        self.loss, self.state = float("inf"), None

    def on_validation_end(self, module, loss):
        if loss < self.loss:
            self.loss, self.state = loss, copy.deepcopy(module.state_dict())


def fit(module, batches, callbacks, epochs):
    optimizer, schedule = module.configure_optimizers()
    for _ in range(epochs):
        module.train()
        for batch in batches:
            optimizer.zero_grad()
            module.training_step(batch).backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
        schedule.step()
        module.eval()
        with torch.no_grad():
            loss = sum(float(module.validation_step(batch)) for batch in batches)
        for callback in callbacks:
            callback.on_validation_end(module, loss)
    return module


BATCHES = [(torch.randn(4, 1, 8, 8), torch.randint(3, (4,))) for _ in range(2)]
HOW = {
    "optimize": lambda net: sol.optimize(net, sol.input([0, 1, 8, 8])),
    "compile": lambda net: torch.compile(net, backend="sol"),
}


@pytest.mark.parametrize("how", HOW)
def test_a_loop_with_callbacks_and_checkpoints(how, tmp_path):
    net, best = convnet(), (Best(), Best())
    eager = fit(Lit(copy.deepcopy(net), lambda n: n), BATCHES, [best[0]], 3)
    module = fit(Lit(net, HOW[how]), BATCHES, [best[1]], 3)
    torch.testing.assert_close(torch.stack(module.logged), torch.stack(eager.logged), atol=1e-4, rtol=1e-3)
    assert module.steps == 6 and abs(best[0].loss - best[1].loss) < 1e-3
    torch.save({"state": best[1].state}, tmp_path / "best.ckpt")
    other = Lit(convnet(), HOW[how])
    other.load_state_dict(torch.load(tmp_path / "best.ckpt")["state"])
    with torch.no_grad():
        loss = sum(float(other.eval().validation_step(batch)) for batch in BATCHES)
    assert abs(loss - best[1].loss) < 1e-4


def test_autocast_in_a_loop_is_rejected_by_one_line():
    module = Lit(convnet(), HOW["optimize"])
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(sol.UnsupportedError, match=r"^autocast: not supp.*$"),
    ):
        module.training_step(BATCHES[0])
    fit(module, BATCHES[:1], [], 1)


# -- looking inside


def cam(model, layer, call, x):
    """GradCAM: the result of a layer, weighted by its gradients."""
    seen = {}
    handles = [
        layer.register_forward_hook(lambda module, args, out: seen.update(made=out)),
        layer.register_full_backward_hook(lambda module, given, out: seen.update(gradient=out[0])),
    ]
    model.zero_grad()
    call(x).max(1).values.sum().backward()
    for handle in handles:
        handle.remove()
    return F.relu((seen["made"] * seen["gradient"].mean((2, 3), keepdim=True)).sum(1))


def test_gradcam_through_torch_compile():
    model, x = convnet().eval(), torch.randn(2, 1, 8, 8)
    compiled = torch.compile(model, backend="sol")
    compiled(x)
    expected = cam(model, model[3], model, x)
    for _ in range(2):
        torch.testing.assert_close(cam(model, model[3], compiled, x), expected, atol=1e-5, rtol=1e-4)
    assert expected.max() > 0


def test_statistics_by_hooks_through_torch_compile():
    model, x, seen = convnet().eval(), torch.randn(2, 1, 8, 8), []
    compiled = torch.compile(model, backend="sol")
    model[2].register_forward_hook(lambda module, args, out: seen.append(out.mean()))
    model[4].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    with torch.no_grad():
        made, expected = [compiled(x), compiled(x)], model(x)
    assert len(seen) == 3
    torch.testing.assert_close(torch.stack(seen[:2]), seen[2].expand(2), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(torch.stack(made), expected.expand(2, -1, -1), atol=1e-5, rtol=1e-4)


def test_features_of_inner_layers(torchvision):
    from torchvision.models.feature_extraction import create_feature_extractor

    model, x = convnet().eval(), torch.randn(2, 1, 8, 8)
    features = create_feature_extractor(model, {"1": "norm", "4": "act", "6": "head"})
    optimized = sol.optimize(features, x)
    got = check(optimized, features, (x,))
    assert set(got) == {"norm", "act", "head"}
    with torch.no_grad():
        torch.testing.assert_close(got["head"], model(x), atol=1e-5, rtol=1e-4)


# -- transformers in eval mode


PADDED = torch.tensor([[False, False, False, True, True], [False] * 5])
CAUSAL = torch.ones(5, 5, dtype=torch.bool).triu(1)
MASKS = {
    "none": {},
    "padding": {"src_key_padding_mask": PADDED},
    "causal": {"src_mask": CAUSAL},
    "both": {"src_mask": CAUSAL, "src_key_padding_mask": PADDED},
}


@pytest.mark.parametrize("options", [{}, {"norm_first": True, "activation": "gelu"}], ids=["post", "pre"])
@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
def test_an_encoder_layer_is_one_program(options, masks):
    layer, x = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **options).eval(), torch.randn(2, 5, 16)
    with torch.no_grad():
        expected = layer(x, **masks)
        for call in (torch.compile(layer, backend="sol", fullgraph=True), sol.optimize(layer, x, **masks)):
            torch.testing.assert_close(call(x, **masks), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind, shape", [(0, (5, 5)), (1, (2, 5)), (2, (2, 2, 5, 5))])
def test_a_fused_layer_s_mask_is_where_nobody_sees(kind, shape):
    layer, x = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(), torch.randn(2, 5, 16)
    mask = (torch.rand(shape) < 0.4) & (torch.arange(5) > 0)
    a, p = layer.self_attn, [layer.norm1, layer.norm2, layer.linear1, layer.linear2]
    weights = [a.in_proj_weight, a.in_proj_bias, a.out_proj.weight, a.out_proj.bias]
    rest = [t.detach() for part in p for t in (part.weight, part.bias)]
    weights = [t.detach() for t in weights]

    def fused(x, mask):
        return torch._transformer_encoder_layer_fwd(x, 16, 2, *weights, False, False, 1e-5, *rest, mask, kind)

    torch.testing.assert_close(sol.optimize(fused, x, mask)(x, mask), fused(x, mask), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind, shape", [(0, (5, 5)), (1, (2, 5)), (None, None)])
@pytest.mark.parametrize("needed, mean", [(True, True), (True, False), (False, True)])
def test_fused_attention(kind, shape, needed, mean):
    a, x = nn.MultiheadAttention(16, 2), torch.randn(2, 5, 16)
    mask = None if shape is None else (torch.rand(shape) < 0.4) & (torch.arange(5) > 0)
    weights = [a.in_proj_weight, a.in_proj_bias, a.out_proj.weight, a.out_proj.bias]
    weights = [t.detach() for t in weights]

    def fused(x):
        y, w = torch._native_multi_head_attention(x, x, x, 16, 2, *weights, mask, needed, mean, kind)
        return (y, w) if needed else y

    torch.testing.assert_close(sol.optimize(fused, x)(x), fused(x), atol=1e-5, rtol=1e-4)


def test_an_encoder_with_padding():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), torch.randn(2, 5, 16)
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=PADDED)
        optimized = sol.optimize(encoder, x, src_key_padding_mask=PADDED)
        compiled = torch.compile(encoder, backend="sol", fullgraph=True)
        for call in (optimized, compiled):
            torch.testing.assert_close(call(x, src_key_padding_mask=PADDED), expected, atol=1e-5, rtol=1e-4)
