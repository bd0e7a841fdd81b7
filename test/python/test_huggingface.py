"""Hugging Face: models of transformers with random weights, forward and gradients; `generate` with a static cache,
Trainer and accelerate with an optimized model. `make test` runs a few families, `make test-all` all of families.py."""

import copy
import random
from unittest import mock

import families
import networks
import numpy as np
import pytest
import sol
import torch
from torch_help import TIMES_WINOGRAD, assert_as_good, check, in_double, tensors, to_double

FORWARD = ("bert (classifier)", "llama", "t5", "vit")  # in `make test`
BACKWARD = ("llama", "bloom")
TRAINED = ("reformer",)


def rows(sample):
    return [pytest.param(n, marks=() if n in sample else pytest.mark.slow) for n in families.FAMILIES]


@pytest.fixture(autouse=True)
def package(torchvision, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setitem(sol.config, "autotune", "off")


@pytest.mark.parametrize("name", rows(FORWARD))
def test_forward(name):
    model, kwargs = families.make(name)
    check(sol.optimize(model, **kwargs), families.plain(model), (), kwargs, TIMES_WINOGRAD)


def gradients(model, kwargs):
    """The gradients of a loss that reads every result with a gradient."""
    made = [t for t in tensors(dict(model(**kwargs))) if t.requires_grad]
    sum((t * torch.linspace(-1, 1, t.numel(), dtype=t.dtype).view(t.shape)).sum() for t in made).backward()
    return {n.removeprefix("_orig_mod."): p.grad for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", [r for r in rows(BACKWARD) if r.values[0] not in families.TRAINED_ONLY])
def test_gradients(name):
    model, kwargs = families.make(name)
    with torch.no_grad():
        model(**kwargs)  # the model's first call initializes something
    assert_gradients(model, kwargs)


def assert_gradients(model, kwargs):
    """The gradients of one step, as near to those of float64 as PyTorch's. ViLT takes its patches in their order: it chooses
    them with torch.multinomial, whose numbers are SOL's own."""
    with mock.patch("torch.multinomial", lambda weights, n, replacement=False: torch.arange(n)):
        exact = in_double(lambda: gradients(families.plain(seeded(model)).double(), to_double(kwargs)))
        eager = gradients(families.plain(seeded(model)), kwargs)
        got = gradients(sol.optimize(seeded(model)), kwargs)
    assert got.keys() == eager.keys() == exact.keys()
    scale = max(g.norm().item() for g in exact.values())
    real = [
        n for n, g in exact.items() if g.norm() > 1e-6 * scale
    ]  # the gradient of a bias ahead of a softmax is 0 up to rounding
    assert_as_good([got[n] for n in real], [eager[n] for n in real], [exact[n] for n in real], 4, 1e-5)


def seeded(model, seed=0):
    """The model, with all generators at their start."""
    torch.manual_seed(seed), np.random.seed(seed), random.seed(seed)
    return model


def still(model):
    """The model without dropout and the like, whose numbers are SOL's own, and without Hardswish, whose gradient jumps: where
    batch-norm sees a few values, rounding decides on which side."""
    modules = list(model.modules())
    for owner in (*modules, *(m.config for m in modules if hasattr(m, "config"))):
        for key, value in vars(owner).items():
            if isinstance(value, float) and ("drop" in key or "jitter" in key):
                setattr(owner, key, 0.0)
        if isinstance(owner, torch.nn.modules.dropout._DropoutNd):
            owner.p = 0.0
    for m in modules:
        for key, child in list(m.named_children()):
            if isinstance(child, torch.nn.Hardswish):
                setattr(m, key, torch.nn.SiLU())
    return model


def steps(model, kwargs, seed, count):
    """The gradients of some steps of a training, and the next random numbers."""
    optimizer, found = torch.optim.SGD(seeded(model, seed).parameters(), 1e-3), []
    for _ in range(count):
        optimizer.zero_grad()
        found.append(gradients(model, kwargs))
        optimizer.step()
    return found, [np.random.rand(), random.random()]


def assert_trained_alike(name, optimize, seeds, count):
    model, kwargs = families.make(name)
    m = still(model).train()
    s, start = optimize(m), copy.deepcopy(m.state_dict())
    for seed in range(seeds):
        results = []
        for f in (m, s):
            m.load_state_dict(start)
            results.append(steps(f, kwargs, seed, count))
        (want, after), (got, then) = results
        assert then == after, "the generators go on as in eager mode"
        for a, b in zip(got, want, strict=True):
            assert a.keys() == b.keys()
            scale = max(g.abs().max() for g in b.values())
            assert max((a[n] - g).abs().max() for n, g in b.items()) < 1e-5 * scale


@pytest.mark.parametrize("name", rows(TRAINED))
def test_train_mode(name):
    model, kwargs = families.make(name)
    assert_gradients(still(model).train(), kwargs)


@pytest.mark.parametrize(
    "name", [n if n == "wav2vec2" else pytest.param(n, marks=pytest.mark.slow) for n in (*families.DRAWING, "reformer")]
)
def test_train_mode_with_seeds(name):
    assert_trained_alike(name, sol.optimize, 3, 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", (*families.DRAWING, "reformer"))
def test_train_mode_under_torch_compile(name):
    with torch._dynamo.config.patch(use_numpy_random_stream=True):
        assert_trained_alike(name, lambda m: torch.compile(m, backend="sol"), 3, 3)
    torch._dynamo.reset()


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing(reentrant):
    model, kwargs = families.make("bert")
    want = gradients(still(model).train(), kwargs)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.zero_grad()
    got = gradients(sol.optimize(model), kwargs)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def grouped(x, weight, offs):
    """The result of grouped_mm; rows after the last group are 0."""
    parts = [x[a:b] @ w for a, b, w in zip([0, *offs[:-1].tolist()], offs.tolist(), weight, strict=True)]
    rest = x.shape[0] - int(offs[-1])
    return torch.cat([*parts, x.new_zeros(rest, weight.shape[-1])])


@pytest.mark.parametrize("ends", [[2, 2, 5, 5], [0, 0, 0, 6], [1, 2, 3, 4], [0, 0, 0, 0]])
@pytest.mark.parametrize("function", ["aten._grouped_mm", "transformers.grouped_mm_fallback"])
def test_grouped_products(function, ends):
    import transformers.integrations.moe  # noqa: F401, it registers the second function

    space, name = function.split(".")
    call = getattr(getattr(torch.ops, space), name)
    given = torch.randn(6, 8, requires_grad=True), torch.randn(4, 8, 12, requires_grad=True)
    offs, g = torch.tensor(ends, dtype=torch.int32), torch.randn(6, 12)
    optimized = sol.optimize(lambda x, w, offs: call(x, w, offs), *given, offs)
    results = []
    for f, dtype in ((optimized, torch.float32), (grouped, torch.float32), (grouped, torch.float64)):
        x, w = (t.detach().to(dtype).requires_grad_() for t in given)
        y = f(x, w, offs)
        results.append((y.detach(), *torch.autograd.grad(y, (x, w), g.to(dtype))))
    assert_as_good(*results)
    unused = given[1].detach().clone()
    unused[[a == b for a, b in zip([0, *ends], ends, strict=False)]] = torch.inf
    assert optimized(given[0].detach(), unused, offs).isfinite().all()


def test_hidden_states():
    """transformers collects them with hooks, which stay on the layers after the first such call."""
    model, kwargs = families.make("bert")
    with torch.no_grad():
        want = model(**kwargs, output_hidden_states=True).hidden_states
        optimized = sol.optimize(model, **kwargs)
        assert optimized(**kwargs).hidden_states is None
        got = optimized(**kwargs, output_hidden_states=True).hidden_states
    assert len(got) == len(want) > 1
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(got, want, strict=True))


def test_page():
    assert families.PAGE.read_text(encoding="utf-8") == families.page(), "python test/python/families.py renews it"


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return networks.enliven(LlamaForCausalLM(LlamaConfig(**families.GROUPED | {"num_hidden_layers": 1})))


def test_generate_with_a_static_cache():
    """The tokens equal PyTorch's. Each batch size has two programs: for the prompt and for a token."""
    m, ids = llama(), torch.randint(3, 100, (1, 6))
    s = sol.optimize(m)
    given = {"max_new_tokens": 6, "cache_implementation": "static", "pad_token_id": 0, "eos_token_id": None}
    for way, programs in (
        ({"do_sample": False}, 2),
        ({"do_sample": True}, 2),
        ({"num_beams": 2, "do_sample": False}, 4),
    ):
        torch.manual_seed(1)
        expected = m.generate(ids, **given, **way)
        torch.manual_seed(1)
        assert torch.equal(s.generate(ids, **given, **way), expected)
        assert len(s._sol.programs) == programs


def test_generate_with_a_growing_cache():
    """The tokens equal PyTorch's at every length. One program is for prompts and one for a token."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    m = networks.enliven(GPT2LMHeadModel(GPT2Config(**families.GPT2)))
    s = sol.optimize(copy.deepcopy(m), vdims=True)
    for batch, length in ((2, 6), (3, 9), (2, 3), (1, 7), (1, 4)):
        ids = torch.randint(3, 100, (batch, length))
        given = {"max_new_tokens": 8, "pad_token_id": 0, "eos_token_id": None, "do_sample": False}
        assert torch.equal(s.generate(ids, **given), m.generate(ids, **given))
        assert [p.varying is not None for p in s._sol.programs.values()] == [True, True]


def test_cache_in_and_out():
    """A call passes its cache to the next, and the caller's own cache grows."""
    from transformers import DynamicCache

    m, ids = llama(), torch.randint(3, 100, (2, 5))
    s, own, theirs = sol.optimize(m, input_ids=ids), DynamicCache(), DynamicCache()
    with torch.no_grad():
        torch.testing.assert_close(s(input_ids=ids).logits, m(input_ids=ids).logits)
        for piece in (ids[:, :3], ids[:, 3:]):
            got, expected = s(piece, past_key_values=own), m(piece, past_key_values=theirs)
            torch.testing.assert_close(got.logits, expected.logits)
            assert got.past_key_values is own and own.get_seq_length() == theirs.get_seq_length()
            for a, b in zip(own.layers, theirs.layers, strict=True):
                torch.testing.assert_close((a.keys, a.values), (b.keys, b.values))


class Sentences(torch.utils.data.Dataset):
    def __init__(self):
        self.ids = torch.randint(3, 100, (8, 10), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def trained(model, folder):
    from transformers import Trainer, TrainingArguments

    more = {"report_to": [], "save_strategy": "no", "use_cpu": True, "disable_tqdm": True, "seed": 3}
    args = TrainingArguments(
        folder, per_device_train_batch_size=4, num_train_epochs=2, logging_steps=1, optim="sgd", **more
    )
    trainer = Trainer(model=model, args=args, train_dataset=Sentences(), eval_dataset=Sentences())
    trainer.train()
    last = trainer.evaluate()["eval_loss"]
    return torch.tensor([h["loss"] for h in trainer.state.log_history if "loss" in h] + [last])


def test_trainer(tmp_path):
    pytest.importorskip("accelerate")
    m = llama()
    expected = trained(copy.deepcopy(m), str(tmp_path))
    torch.testing.assert_close(trained(sol.optimize(m), str(tmp_path)), expected)
    assert len(expected) == 5 and expected[0] != expected[3]


def test_accelerate():
    accelerate = pytest.importorskip("accelerate")
    m, ids = llama(), torch.randint(3, 100, (4, 10))

    def losses(model):
        accelerator = accelerate.Accelerator(cpu=True)
        prepared, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
        found = []
        for _ in range(3):
            loss = prepared(input_ids=ids, labels=ids).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.detach())
        return torch.stack(found)

    expected = losses(copy.deepcopy(m).train())
    torch.testing.assert_close(losses(sol.optimize(m).train()), expected)
