"""torch.compile(backend="sol"): what SOL cannot translate runs in PyTorch between SOL's parts; the settings of
torch.compile."""

import copy
import inspect

import pytest
import sol
import torch
import torch.autograd.forward_ad as forward_ad
from sol.pytorch import parts
from torch import nn
from torch.nn import functional as F

X = (4, 8)


@pytest.fixture(autouse=True)
def fresh():
    """Rejections are logged once in a process, so this forgets them."""
    torch._dynamo.reset()
    parts._say.cache_clear()
    yield
    torch._dynamo.reset()


def steps(x):
    """Enough operators for a part."""
    return x.sin().cos().exp().tanh()


class Fourier(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.BatchNorm1d(8))
        nn.init.constant_(self.a[3].weight, 0.3)
        self.b = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.Tanh())

    def forward(self, x, w):
        y = self.a(x * w)
        z = self.b(torch.special.log_ndtr(y) * 0.1)
        return steps(z) + torch.special.erfcx(z) * y


def memory(x, w):
    """Views that are written before and after something rejected."""
    y = steps(x * w) + 1
    v = y.view(-1)
    s = torch.special.log_ndtr(y * 0.5)
    v.add_(1)
    z = steps(y + s) + w
    return torch.special.erfcx(z) + steps(z) + v.view(4, 8)


def modes(x, w):
    y = steps(x * w)
    with torch.no_grad():
        z = torch.special.log_ndtr(y)
        k = steps(z * y)
    q = steps(y * w + k)
    return torch.special.erfcx(q) + steps(q * w)


def mixed(x, w):
    y = steps(x * w)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = y @ w.t()
    return steps(z.float() + 1)


def pieces(x, w):
    a, b = torch.special.log_ndtr(x * w).chunk(2, 1)
    p, q = torch.stack([steps(a), steps(b)]).unbind(0)
    return torch.special.erfcx(p) + steps(q)


def argument(x, w):
    """Writes to an argument with a history."""
    x = x * 1
    torch._dynamo.graph_break()
    y = steps(x + w)
    x.mul_(2)
    return steps(torch.special.log_ndtr(y) * x)


def complexes(x, w):
    y = torch.view_as_complex(steps(x * w).view(4, 4, 2))
    return steps(torch.special.log_ndtr((y * y).abs()))


def transformed(x, w):
    return steps(torch.vmap(lambda row: (row * 2).sum())(steps(x * w)))


def derived(x, w):
    return steps(torch.func.grad(lambda v: (v * w).sin().sum())(steps(x * w)))


def forwards(x, w):
    return steps(torch.func.jvp(torch.sin, (steps(x * w),), (w,))[1])


def backwards(x, w):
    y, pull = torch.func.vjp(torch.sin, steps(x * w))
    return steps(pull(y)[0])


def pushed(x, w):
    return steps(torch.func.jacfwd(torch.sin)(steps(x * w)[0]))


def differentiated(x, w):
    with torch.enable_grad():
        v = steps(x * w).detach().requires_grad_()
        return steps(torch.autograd.grad(v.pow(3).sum(), v, create_graph=True)[0])


def kept(x, w):
    run = torch.utils.checkpoint.checkpoint
    return run(steps, torch.special.log_ndtr(run(steps, x * w, use_reentrant=False)), use_reentrant=False)


def enabled(x, w):
    with torch.no_grad():
        y = steps(x * w)
        with torch.enable_grad():
            z = steps(y * w)
    return z * x


def linearized(x, w):
    return torch.func.linearize(lambda v: (v * w).sin(), steps(x))[1](w * x)


def dual(x, w):
    with forward_ad.dual_level():
        return steps(forward_ad.unpack_dual(forward_ad.make_dual(steps(x * w), w * x).sin()).tangent)


def trained(f, x, w):
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    y = f(x, w)
    y.square().sum().backward()
    rest = (
        [t.grad if isinstance(t, nn.Parameter) else t for t in f.state_dict(keep_vars=True).values()]
        if isinstance(f, nn.Module)
        else []
    )
    return [y.detach(), x.grad, w.grad, *rest]


@pytest.mark.parametrize("f", (pushed, differentiated, transformed))
def test_derivatives_inside_of_forward(f):
    x, w = torch.randn(X), torch.rand(X)
    for made in (sol.optimize(f, x, w), torch.compile(f, backend="sol")):
        torch.testing.assert_close(made(x, w), f(x, w), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("f", (derived, backwards))
def test_transformations_inside_of_forward(f):
    """sol.optimize traces them; in one graph of Dynamo they are rejected. PyTorch works as before."""
    x, w = torch.randn(X), torch.rand(X)
    torch.testing.assert_close(sol.optimize(f, x, w)(x, w), f(x, w), atol=2e-5, rtol=1e-4)
    with pytest.raises(Exception, match=r"a part of torch\.func"):
        torch.compile(f, backend="sol", fullgraph=True)(x, w)
    assert torch._C._autograd._saved_tensors_hooks_get_disabled_error_message() is None
    assert torch._C._functorch.peek_interpreter_stack() is None
    torch.testing.assert_close(sol.optimize(steps, x)(x), steps(x), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("f", (forwards, dual))
def test_forward_mode_inside_of_forward(f):
    """sol.optimize and torch.compile compute it, and leave no level of differentiation open."""
    x, w = torch.randn(X), torch.rand(X)
    for made in (sol.optimize(f, x, w), torch.compile(f, backend="sol")):
        torch.testing.assert_close(made(x, w), f(x, w), atol=2e-5, rtol=1e-4)
        assert forward_ad._current_level == -1


def test_linearize_is_told_in_one_line():
    """By the name that users know; torch.compile computes it, and leaves no level of differentiation open."""
    f, x, w = linearized, torch.randn(X), torch.rand(X)
    line = inspect.getsourcelines(f)[1] + 1
    with pytest.raises(
        sol.UnsupportedError,
        match=rf":\n  a part of torch\.func \(vmap,.*linearize\): use torch\.compile.* \(test_parts\.py:{line}\)( and 1 more)?$",
    ):
        sol.optimize(f, x, w)
    torch.testing.assert_close(torch.compile(f, backend="sol")(x, w), f(x, w), atol=2e-5, rtol=1e-4)
    assert forward_ad._current_level == -1


CASES = (
    Fourier(),
    memory,
    modes,
    mixed,
    pieces,
    argument,
    complexes,
    transformed,
    derived,
    forwards,
    backwards,
    kept,
    enabled,
)


@pytest.mark.parametrize("f", CASES, ids=lambda f: getattr(f, "__name__", type(f).__name__))
def test_parts_compute_and_train_as_pytorch_does(f, capfd):
    f = type(f)() if isinstance(f, nn.Module) else f  # with random numbers from this test's seed
    eager, x, w = copy.deepcopy(f), torch.randn(X), torch.rand(X) + 0.5
    compiled = torch.compile(f, backend="sol")
    for _ in range(2):
        for got, expected in zip(trained(compiled, x, w), trained(eager, x, w), strict=True):
            torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, w), eager(x, w), atol=2e-5, rtol=1e-4)
    assert f in (kept, enabled) or "rest with SOL: " in capfd.readouterr().err


def test_it_is_said_once_with_reason_and_line(capfd):
    compiled = torch.compile(Fourier(), backend="sol")
    for batch in (4, 4, 3):
        compiled(torch.randn(batch, 8), torch.ones(batch, 8))
    lines = [line for line in capfd.readouterr().err.splitlines() if "runs in PyTorch" in line]
    assert (
        len(lines) == 1
        and "special_erfcx" in lines[0]
        and "special_log_ndtr" in lines[0]
        and "(test_parts.py:" in lines[0]
    )


def test_most_of_a_graph_is_compiled():
    nodes = [n for n in torch.fx.symbolic_trace(Fourier()).graph.nodes if n.op not in ("placeholder", "output")]
    rejected = {n for n in nodes if getattr(n.target, "__name__", "").startswith("special")}
    for n in nodes:
        n.meta["example_value"] = torch.empty(1)
    runs = parts._runs(nodes, rejected)
    assert [r.compiled for r in runs] == [True, False, True, False]
    assert {n for r in runs if not r.compiled for n in r.nodes} - rejected <= set(nodes[-2:])


def test_fullgraph_rejects():
    with pytest.raises(sol.UnsupportedError, match="special_log_ndtr"):
        torch.compile(Fourier(), backend="sol", fullgraph=True)(torch.randn(X), torch.randn(X))


def test_random_numbers_of_both_follow_the_seed():
    def f(x):
        y = F.dropout(steps(x), 0.5)
        return F.dropout(steps(torch.special.log_ndtr(y)), 0.5), torch.rand(3)

    compiled, x, made = torch.compile(f, backend="sol"), torch.randn(X), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        made.append(torch.cat([t.flatten() for t in compiled(x)]))
    assert torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])


def test_autocast_around_runs_in_pytorch(capfd):
    m, x = nn.Linear(8, 8), torch.randn(X)
    with torch.autocast("cpu"):
        assert torch.compile(m, backend="sol")(x).dtype == torch.bfloat16
    assert capfd.readouterr().err.count("autocast") == 2  # not supported; call the model outside of torch.autocast
    assert not torch.is_autocast_enabled("cpu")


def test_a_rejected_graph_leaves_no_mode_behind():
    with pytest.raises(sol.UnsupportedError, match="autocast"):
        torch.compile(mixed, backend="sol", fullgraph=True)(torch.randn(X), torch.ones(X))
    assert not torch.is_autocast_enabled("cpu") and torch.is_grad_enabled()


def test_options_are_keys_of_the_configuration(monkeypatch):
    seen, before = [], dict(sol.config)
    compile_graph = sol.pytorch.program.Program.compile
    monkeypatch.setattr(
        sol.pytorch.program.Program, "compile", lambda p: seen.append(dict(sol.config)) or compile_graph(p)
    )
    x = torch.randn(2, 4)
    for how in (
        {"options": {"autotune": "off", "precision": "high"}},
        {"mode": "max-autotune"},
        {"mode": "reduce-overhead"},
    ):
        torch._dynamo.reset()
        m = nn.Linear(4, 3).eval()
        with torch.no_grad():
            torch.testing.assert_close(torch.compile(m, backend="sol", **how)(x), m(x))
        assert dict(sol.config) == before
    assert [(s["autotune"], s["precision"]) for s in seen] == [
        ("off", "high"),
        ("full", "default"),
        (before["autotune"], "default"),
    ]


@pytest.mark.parametrize(
    "how, message",
    [
        ({"options": {"nonsense": 1}}, "options: sol.config: nonsense: no such key"),
        ({"options": {"autotune": "maybe"}}, "autotune: expected off"),
        ({"options": {"threads": 1}}, "threads: not of one graph"),
        ({"mode": "nonsense"}, "mode: expected one of default, reduce-overhead"),
    ],
)
def test_wrong_settings(how, message):
    with pytest.raises(Exception, match=message):
        torch.compile(nn.Linear(4, 3), backend="sol", **how)(torch.randn(2, 4))


def test_dynamic_sizes_go_through_seams():
    m = Fourier().eval()
    compiled = torch.compile(m, backend="sol", dynamic=True)
    for batch in (4, 3):
        x, w = torch.randn(batch, 8), torch.ones(batch, 8)
        torch.testing.assert_close(compiled(x, w), m(x, w), atol=1e-5, rtol=1e-4)
