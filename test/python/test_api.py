"""What a user of `sol` with PyTorch relies on: the optimized module, its parameters, arguments, results, errors."""

import copy
import functools
import io
import logging
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
import traceback
import xml.etree.ElementTree
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import pytest
import sol
import sol.pytorch
import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch_help import check, tensors


@dataclass
class Out:
    a: torch.Tensor
    b: object


pytree.register_dataclass(Out)


@dataclass
class Unknown:
    """A dataclass that PyTorch does not know."""

    a: object
    b: object
    name: str = "unknown"


class Items(OrderedDict):
    """A dict with attributes, as libraries of networks return."""

    def __getattr__(self, name):
        return self[name]


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(3))
        self.register_buffer("mask", torch.ones(3, 3).tril())

    def forward(self, d, pair, *, scale=1.0):
        y = d["x"] * scale + pair[0]
        more = {
            "transposed": (y.t(), y.t()),
            "input": pair[1],
            "view of input": pair[1][0],
            "parameter": self.w,
            "view of buffer": self.mask.t(),
            "number": 5,
            "none": None,
            "expanded": y[:1].expand(4, 3),
            "strided": y[::2],
            "twice": y,
            "scalar": y.sum(),
            "constant": torch.tensor([1.0, 2.0]),
        }
        return Out(y, more)


class Writes(nn.Module):
    """Writes in place in every way: to the argument, a buffer, a plain attribute, views."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.k = torch.arange(3.0)

    def forward(self, x):
        self.count += 1
        x.mul_(2)
        y = torch.zeros(3, 3)
        y[1] = x
        y.t()[2] += self.k
        y.view(-1)[:2] = 7
        return x + self.count + self.k, y


def mlp():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval()


def convnet():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).eval()


IMAGE = (2, 3, 8, 8)

# -- the module


def test_is_a_module_of_the_same_class_and_tree():
    m = convnet()
    s = sol.optimize(m, torch.randn(IMAGE))
    assert isinstance(s, nn.Sequential) and s is not m
    assert [n for n, _ in s.named_modules()] == [n for n, _ in m.named_modules()]
    assert list(s.state_dict()) == list(m.state_dict())
    assert all(a is b for a, b in zip(s.parameters(), m.parameters(), strict=True))
    assert all(a is b for a, b in zip(s.buffers(), m.buffers(), strict=True))


def test_shared_and_copied_parameters():
    m, x = mlp(), torch.randn(2, 4)
    shared, copied = sol.optimize(m, x), sol.optimize(m, x, copy=True)
    before = m(x).detach()
    with torch.no_grad():
        m[0].weight.mul_(2)
    check(shared, m, (x,))
    with torch.no_grad():
        assert torch.allclose(copied(x), before, atol=1e-6)


CHANGES = {
    "in place": lambda m: m[0].weight.detach().mul_(2),
    "replaced": lambda m: setattr(m[0], "weight", nn.Parameter(torch.randn(6, 4))),
    "other data": lambda m: setattr(m[0].weight, "data", torch.randn(6, 4)),
    "past the version": lambda m: m[0].weight.data.add_(1),
    "other layout": lambda m: setattr(m[0].weight, "data", torch.randn(4, 6).t()),
    "with gaps": lambda m: setattr(m[0].weight, "data", torch.randn(6, 8)[:, ::2]),
    "state dict": lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}),
    "submodule": lambda m: setattr(m, "0", nn.Linear(4, 6)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("side", ["model", "optimized"])
def test_changed_parameters_are_seen(change, side):
    m, x = mlp(), torch.randn(2, 4)
    s = sol.optimize(m, x)
    check(s, m, (x,))
    change(m if side == "model" else s)
    for _ in range(2):
        check(s, m, (x,))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.act, self.scale, self.axes, self.more = nn.LeakyReLU(0.1), 2.0, [0], {"plus": 1}

    def forward(self, x):
        y = self.act(x) * self.scale + self.more["plus"]
        return y.sum(self.axes) if hasattr(self, "summed") else y.mean(self.axes)


ATTRIBUTES = {
    "number": lambda m: setattr(m, "scale", 3.0),
    "of a layer": lambda m: setattr(m.act, "negative_slope", 0.5),
    "list": lambda m: setattr(m, "axes", [1]),
    "in a list": lambda m: m.axes.append(1),
    "in a dict": lambda m: m.more.update(plus=5),
    "new": lambda m: setattr(m, "summed", True),
    "method": lambda m: setattr(m.act, "forward", lambda x: x - 1),
    "layer": lambda m: setattr(m, "act", nn.Tanh()),
}


@pytest.mark.parametrize("change", ATTRIBUTES.values(), ids=ATTRIBUTES)
def test_changed_attributes_are_seen(change):
    plain, changed, x = Scaled().eval(), Scaled().eval(), torch.randn(2, 4)
    s = sol.optimize(copy.deepcopy(plain), x)
    check(s, plain, (x,))
    change(s), change(changed)
    for _ in range(2):
        check(s, changed, (x,))
    programs = s._sol.programs
    s.scale = float(s.scale)  # an equal value counts as the same
    s(x)
    assert len(programs) == 2


class Keeps(nn.Module):
    """Stores what it computed, for the next call and for others."""

    def __init__(self):
        super().__init__()
        self.part, self.kept, self.seen = nn.Linear(4, 4), {}, []
        self.part.register_forward_hook(lambda module, args, out: self.seen.append(out))

    def forward(self, x):
        if "w" not in self.kept:
            self.kept["w"] = self.part.weight.detach() * 2
        self.seen.clear()
        return self.part(x) @ self.kept["w"] + self.seen[0]


def test_what_a_model_keeps_of_a_call():
    m = Keeps().eval()
    s = sol.optimize(m, torch.randn(2, 4))
    assert m.kept == {} and m.seen == []  # nothing remains of the trace
    for batch in (3, 2):
        x = torch.randn(batch, 4)
        torch.testing.assert_close(sol.optimize(m, x)(x), m(x))
    torch.testing.assert_close(s(x), m(x))


class Leaves(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = None

    def forward(self, x):
        if self.table is None:  # a cache that no later call changes
            self.table = torch.arange(3.0)
        self.last = x * self.table
        return self.last + 1


def test_what_a_model_leaves_behind_is_said(capfd):
    sol.optimize(Leaves().eval(), torch.randn(3))
    assert "Leaves: forward leaves last behind" in capfd.readouterr().err


def by_name_only(forward):
    @functools.wraps(forward)
    def wrapper(self, *args, **kwargs):
        kwargs["scale"] = kwargs.get("scale") or 3.0
        return forward(self, *args, **kwargs)

    return wrapper


class Decorated(nn.Module):
    """As in transformers: the decorator fills in an argument, which then cannot be passed by position."""

    @by_name_only
    def forward(self, x, scale=None):
        return x * scale


def test_a_decorated_forward():
    x = torch.randn(2, 4)
    check(sol.optimize(Decorated(), x), Decorated(), (x,))
    check(sol.optimize(Decorated(), scale=2.0, x=x), Decorated(), (), {"x": x, "scale": 2.0})


def test_layers_added_and_removed():
    m, x = mlp(), torch.randn(2, 4)
    first, _, last = m
    s = sol.optimize(m, x)
    s.append(nn.Sigmoid())
    check(s, nn.Sequential(first, nn.ReLU(), last, nn.Sigmoid()), (x,))
    del s[3], m[1]
    check(s, nn.Sequential(first, last), (x,))
    last.bias = None
    check(s, m, (x,))


def test_tied_parameters():
    m, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).eval(), torch.randn(2, 4)
    m[1].weight = m[0].weight
    s = sol.optimize(m, x)
    with torch.no_grad():
        m[0].weight.mul_(2)
    check(s, m, (x,))
    m[0].weight = m[1].weight = nn.Parameter(torch.randn(4, 4))
    check(s, m, (x,))
    m[1].weight = nn.Parameter(torch.randn(4, 4))  # no longer tied
    check(s, m, (x,))


class Shares(nn.Module):
    """Two buffers with the same memory, one of which is written."""

    def __init__(self, second, order):
        super().__init__()
        values = np.arange(6, dtype=np.float32)
        self.register_buffer("a", torch.from_numpy(values))
        self.register_buffer("b", second(self.a, values))
        self.order = order

    def forward(self, x):
        read, write = (self.a, self.b) if self.order == "first" else (self.b, self.a)
        write.add_(1)
        return x * read.sum()


@pytest.mark.parametrize("order", ["first", "last"])
@pytest.mark.parametrize(
    "second", [lambda a, v: a[2:4], lambda a, v: a.view(2, 3), lambda a, v: torch.from_numpy(v[1:])]
)
def test_buffers_that_share_memory(second, order):
    with pytest.raises(sol.UnsupportedError, match=r"share.* memory"):
        sol.optimize(Shares(second, order), torch.ones(2))


def test_optimizers_and_swapped_tensors():
    m, x = mlp(), torch.randn(2, 4)
    s = sol.optimize(m, x)
    for optimizer in (
        torch.optim.SGD(m.parameters(), 0.1),
        torch.optim.Adam(s.parameters(), foreach=True),
        torch.optim.Adam(s.parameters(), fused=True),
    ):
        m(x).sum().backward()
        optimizer.step()
        check(s, m, (x,))
    torch.utils.swap_tensors(m[0].weight, nn.Parameter(torch.randn(6, 4)))
    check(s, m, (x,))


def test_moved_models():
    m, x = mlp(), torch.randn(2, 4)
    s = sol.optimize(m, x)
    s.double()
    with pytest.raises(sol.InvalidError, match=r"expected float32\[2, 4\], got float64"):
        s(x.double())
    s.to(torch.bfloat16)
    with pytest.raises(sol.UnsupportedError, match="bfloat16"):
        s(x.bfloat16())
    s.float().to("meta")
    with pytest.raises(sol.UnsupportedError, match=r"0\.weight is on device meta"):
        s(x)


def test_refresh():
    m, x = nn.Sequential(nn.Linear(64, 64)).eval(), torch.randn(2, 64)
    s = sol.optimize(m, x)
    check(s, m, (x,))
    m[0].weight.data[0, 0] = 100.0  # an element that is not sampled
    sol.refresh(s)
    check(s, m, (x,))
    with pytest.raises(sol.InvalidError, match="optimized model"):
        sol.refresh(m)


def test_state_dict_both_ways():
    m, other, x = mlp(), mlp(), torch.randn(2, 4)
    s = sol.optimize(m, x)
    s.load_state_dict(other.state_dict())
    check(s, other, (x,))
    other.load_state_dict({k: v * 3 for k, v in s.state_dict().items()})
    s.load_state_dict(other.state_dict())
    check(s, other, (x,))


def test_deepcopy_and_pickle():
    m, x = mlp(), torch.randn(2, 4)
    s = sol.optimize(m, x)
    c, p = copy.deepcopy(s), pickle.loads(pickle.dumps(s))
    torch.save(s, file := io.BytesIO())
    file.seek(0)
    for other in (c, p, torch.load(file, weights_only=False)):
        check(other, m, (x,))
        with pytest.raises(sol.InvalidError):
            other(torch.randn(3, 4))
    with torch.no_grad():
        c[0].weight.zero_()
    check(s, m, (x,))
    check(c, nn.Sequential(*c.children()), (x,))


def test_freezing_parts():
    m, x = mlp(), torch.randn(2, 4)
    s = sol.optimize(m, x)
    for p in s[0].parameters():
        p.requires_grad_(False)
    assert not m[0].weight.requires_grad and s(x).requires_grad
    for p in s.parameters():
        p.requires_grad_(False)
    assert not s(x).requires_grad


def test_modes_of_submodules():
    m = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
    own = copy.deepcopy(m)  # the optimized model shares its running statistics with m
    s, x = sol.optimize(m, torch.randn(3, 4)), torch.randn(3, 4)
    own.eval(), s.eval()
    check(s, own, (x,))
    own[2].train(), s[2].train()
    with torch.no_grad():
        for _ in range(2):
            assert torch.allclose(s(x), own(x), atol=1e-5)
    assert torch.allclose(s[2].running_var, own[2].running_var) and s[2].num_batches_tracked == 2
    own[2].eval(), s[2].eval()
    check(s, own, (x,))


def test_hooks_on_the_model_run_once():
    m, x = mlp(), torch.randn(2, 4)
    m.register_forward_hook(lambda module, args, out: out + 1)
    s = sol.optimize(m, x)
    with torch.no_grad():
        assert torch.allclose(s(x), m(x), atol=1e-6)


def test_optimized_inside_another_model_and_compiled():
    inner = mlp()
    s = sol.optimize(inner, torch.randn(2, 4))
    outer = nn.Sequential(s, nn.Tanh()).eval()
    x = torch.randn(2, 4)
    check(sol.optimize(outer, x), nn.Sequential(inner, nn.Tanh()).eval(), (x,))
    with torch.no_grad():
        assert torch.allclose(torch.export.export(s, (x,)).module()(x), inner(x), atol=1e-6)


def test_other_tools_see_the_model():
    m, x = mlp(), torch.randn(2, 4)
    s, x2 = sol.optimize(m, x), torch.randn(2, 4)
    s(x)
    for traced in (torch.jit.trace(s, x), torch.fx.symbolic_trace(s), torch.compile(s, backend="eager")):
        check(traced, m, (x2,))
    with torch.no_grad():
        assert torch.allclose(torch.vmap(s)(x2), m(x2), atol=1e-6)
        with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
            s(x)
        assert counter.get_total_flops() == 2 * 2 * (4 * 6 + 6 * 3)


# -- gradients


def test_results_have_gradients_where_pytorch_s_have():
    m, x = mlp(), torch.randn(2, 4)
    assert sol.optimize(m, x)(x).requires_grad
    with torch.no_grad():
        assert not sol.optimize(m, x)(x).requires_grad
    with torch.inference_mode():
        assert sol.optimize(m, x)(x).is_inference()
    assert not sol.optimize(m, x).requires_grad_(False)(x).requires_grad


# -- arguments


def test_wildcard_batch():
    m = convnet()
    s = sol.optimize(m, sol.input([0, 3, 8, 8]))
    for batch in (1, 2, 5, 2):
        check(s, m, (torch.randn(batch, 3, 8, 8),))
    with pytest.raises(
        sol.InvalidError, match=r"argument 0 \(input\): expected float32\[\*, 3, 8, 8\], got float32\[2, 3, 9, 8\]"
    ):
        s(torch.randn(2, 3, 9, 8))
    s = sol.optimize(m, torch.randn(IMAGE), batch_size=4)
    for batch in (4, 1):
        check(s, m, (torch.randn(batch, 3, 8, 8),))


@pytest.mark.parametrize(
    "args, message",
    [
        ((torch.zeros(3, 4),), r"expected float32\[2, 4\], got float32\[3, 4\]"),
        ((torch.zeros(2, 4, dtype=torch.float64),), r"got float64\[2, 4\]"),
        ((torch.zeros(2, 4, dtype=torch.float16),), "argument 0: data type float16: not supported"),
        ((torch.zeros(2, 4, device="meta"),), "device meta"),
        ((torch.zeros(2, 4).to_sparse(),), "sparse"),
        ((torch.nested.nested_tensor([torch.zeros(4)], layout=torch.jagged),), "NestedTensor: not supported"),
        ((np.zeros((2, 4), np.float32),), r"expected float32\[2, 4\], got an object of numpy.ndarray; use torch.from_"),
        ((torch.zeros(2, 4, dtype=torch.complex64),), r"expected float32\[2, 4\], got complex64\[2, 4\]"),
        ((1.0,), r"argument 0 \(input\): expected float32\[2, 4\], got 1.0"),
        (([[1.0] * 4],), r"expected arguments like .*, got \(\(\[\[\*, \*, \*, \*\]\]\), {}\)"),
        ((), "missing"),
        ((torch.zeros(2, 4), torch.zeros(2, 4)), "too many"),
    ],
    ids=str,
)
def test_wrong_arguments(args, message):
    s = sol.optimize(mlp(), torch.randn(2, 4))
    with pytest.raises((sol.Error, TypeError), match=message):
        s(*args)


def test_made_in_inference_mode():
    with torch.inference_mode():
        m, x = mlp(), torch.randn(2, 4)
    with torch.no_grad():
        torch.testing.assert_close(sol.optimize(m, x)(x), m(x))


def test_strided_arguments():
    m, x = convnet(), torch.randn(IMAGE)
    s = sol.optimize(m, x)
    check(s, m, (x.to(memory_format=torch.channels_last),))
    check(s, m, (torch.randn(2, 3, 16, 16)[:, :, ::2, ::2],))
    check(s, m, (torch.randn(1, 3, 8, 8).expand(2, 3, 8, 8),))
    check(s, m, (x[:, [2, 0, 1]].transpose(2, 3),))
    check(s, m, (x,))


def test_arguments_that_repeat_elements():
    class M(nn.Module):
        def forward(self, x, i, v):
            return x.scatter_add(0, i, v), i, v.sum(0)

    x, v = torch.randn(10, 6), torch.randn(4, 5, 3)
    once, rows = torch.randint(10, (20, 1)), torch.randn(20, 1)
    for sizes in (
        (),
        (sol.input([10, 6]), sol.input([sol.dim("n"), 6], dtype=torch.int64), sol.input([sol.dim("n"), 6])),
    ):
        s = sol.optimize(M(), *(sizes or (x, once.expand(20, 6), rows.expand(20, 6))))
        for n in (20, 7, 2) if sizes else (20,):
            i, values = once[:n].expand(n, 6), rows[:n].expand(n, 6)
            for args in ((x, i, values), (x, i.contiguous(), values), (x, i, torch.randn(n, 6))):
                for got, expected in zip(s(*args), M()(*args), strict=True):
                    torch.testing.assert_close(got, expected)
                    assert got.stride() == expected.stride()
    m = nn.Sequential(nn.ReLU()).train()
    for given in (v[:, :1].expand(4, 5, 3), v[:1, :, :1].expand(4, 5, 3).transpose(0, 2), v[0, 0, 0].expand(2, 2)):
        check(sol.optimize(m, given), m, (given,))
    w = torch.randn(4, 1, requires_grad=True)
    sol.optimize(m, w.expand(4, 5))(w.expand(4, 5)).sum().backward()
    torch.testing.assert_close(w.grad, 5.0 * (w.detach() > 0))


def test_channels_last_results():
    m = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    x = torch.randn(IMAGE).to(memory_format=torch.channels_last)
    assert check(sol.optimize(m, x), m, (x,)).is_contiguous(memory_format=torch.channels_last)
    m.to(memory_format=torch.channels_last)
    check(sol.optimize(m, torch.randn(IMAGE)), m, (torch.randn(IMAGE),))


def test_nested_arguments_and_results():
    m = Nested().eval()
    args = {"x": torch.randn(3, 3)}, [torch.randn(3), torch.randn(2, 2)]
    s = sol.optimize(m, *args, scale=2.0)
    for scale in (2.0, 3.0):
        with torch.no_grad():
            got, eager = s(*args, scale=scale), m(*args, scale=scale)
        assert type(got) is Out and str(pytree.tree_structure(got)) == str(pytree.tree_structure(eager))
        for g, e in zip(tensors(got), tensors(eager), strict=True):
            assert torch.allclose(g, e) and g.stride() == e.stride()
        assert got.b["number"] == 5 and got.b["none"] is None
        assert got.b["input"] is args[1][1] and got.b["parameter"] is m.w and got.b["twice"] is got.a
        assert got.b["view of input"].data_ptr() == args[1][1].data_ptr()
        assert got.b["transposed"][0].data_ptr() == got.a.data_ptr()
    with pytest.raises(sol.InvalidError, match="expected arguments like"):
        s(args[0], {"x": torch.randn(3), "y": torch.randn(2, 2)}, scale=2.0)


def test_classes_that_pytorch_does_not_know():
    class M(nn.Module):
        def forward(self, given, x):
            y = given.a * given.b["k"] + x
            return Unknown(y, [y + 1, None]), Items(logits=y - 1), given.name

    m, x = M().eval(), torch.randn(3)
    s = sol.optimize(m, Unknown(x, {"k": x}, "first"), x)
    for _ in range(2):
        args = Unknown(torch.randn(3), {"k": torch.randn(3)}, "second"), torch.randn(3)
        (got, items, name), (eager, more, _) = s(*args), m(*args)
        assert type(got) is Unknown and type(items) is Items and name == "second" and got.name == "unknown"
        assert torch.allclose(got.a, eager.a) and torch.allclose(got.b[0], eager.b[0]) and got.b[1] is None
        assert torch.allclose(items.logits, more.logits)

    class Opaque:
        __slots__ = ()

    class N(nn.Module):
        def forward(self, x):
            return Opaque()

    with pytest.raises(sol.UnsupportedError, match=r"returns an object of .*Opaque.*: expected tensors"):
        sol.optimize(N().eval(), x)


def test_defaults():
    class M(nn.Module):
        def forward(self, x, mask=None, k=2, *, mode="plus"):
            y = x * k if mask is None else x * mask
            return y + 1 if mode == "plus" else y - 1

    m, x = M().eval(), torch.randn(3)
    s = sol.optimize(m, x)
    for kwargs in ({}, {"mask": None}, {"k": 3}, {"mode": "minus", "k": 2}, {"k": -0.0}, {"k": 0.0}):
        for _ in range(2):
            check(s, m, (x,), kwargs)
    assert str(s(torch.ones(3), k=-0.0) - 1) == str(torch.zeros(3))
    check(s, m, (x, x))  # a new argument needs another program, and so does a missing one
    check(s, m, (x,))
    with pytest.raises(sol.InvalidError, match=r"argument 0 \(x\): expected float32\[3\], got float32\[4\]"):
        s(torch.randn(4))
    with pytest.raises(TypeError, match=r"M.forward\(x, mask=None.*unexpected keyword argument 'q'"):
        s(x, q=1)


def test_programs_are_bounded(monkeypatch):
    from sol.pytorch import module

    monkeypatch.setattr(module, "MAX_PROGRAMS", 3)
    m = mlp()
    s = sol.optimize(m, sol.input([0, 4]))
    for batch in (1, 2, 3, 4, 1, 5, 4):
        check(s, m, (torch.randn(batch, 4),))
        assert len(s._sol.programs) <= 3


def test_arguments_by_name():
    class M(nn.Module):
        def forward(self, x, y=None, z=1):
            return x + y * z

    m, x, y = M().eval(), torch.randn(3), torch.randn(3)
    s = sol.optimize(m, x, y, 2)
    for args, kwargs in (
        ((x, y, 2), {}),
        ((x,), {"z": 2, "y": y}),
        ((), {"y": y, "x": x, "z": 2}),
        ((x,), {"y": y, "z": 2}),
    ):
        for _ in range(2):
            check(s, m, args, kwargs)


def test_writes_in_place():
    m, other = Writes().eval(), Writes().eval()
    s = sol.optimize(m, torch.ones(3))
    assert m.count == 0, "optimizing must not run the model"
    for _ in range(2):
        x, y = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 3.0])
        with torch.no_grad():
            got, eager = s(x), other(y)
        assert torch.equal(x, y) and m.count == other.count
        assert all(torch.equal(a, b) for a, b in zip(got, eager, strict=True))
        m.k.add_(1), other.k.add_(1)


def test_zero_sized_and_scalar_tensors():
    class M(nn.Module):
        def forward(self, x, s):
            return x * s, x.sum(), torch.cat([x, x]), s + 1

    m = M().eval()
    for shape in ((0, 4), (3, 0), (), (1,)):
        x = torch.randn(shape)
        if not shape:
            x = x.reshape(1)[0:1]
        check(sol.optimize(m, x, torch.tensor(2.0)), m, (x, torch.tensor(2.0)))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_not_a_number(value):
    m = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Softmax(1)).eval()
    x = torch.randn(IMAGE)
    x[0, 1, 3, 3] = value
    with torch.no_grad():
        assert torch.allclose(sol.optimize(m, x)(x), m(x), atol=1e-5, equal_nan=True)


def test_float64_and_integers():
    m = mlp().double()
    x = torch.randn(2, 4, dtype=torch.float64)
    with torch.no_grad():
        assert torch.allclose(sol.optimize(m, x)(x), m(x), rtol=1e-12, atol=1e-14)
    s = sol.optimize(lambda a, b: (a // b, a % b, a < b, a + 0.5), torch.tensor([7, -7]), torch.tensor([2, 3]))
    got, eager = s(torch.tensor([9, -8]), torch.tensor([4, 3])), (torch.tensor([2, -3]), torch.tensor([1, 1]))
    assert torch.equal(got[0], eager[0]) and torch.equal(got[1], eager[1]) and got[2].dtype == torch.bool
    assert got[3].dtype == torch.float32


def test_index_out_of_range():
    s = sol.optimize(nn.Embedding(10, 4).eval(), torch.tensor([1, 2]))
    for bad in (10, -1):
        with pytest.raises(IndexError):
            s(torch.tensor([1, bad]))
    with torch.no_grad():
        assert s(torch.tensor([9, 0])).shape == (2, 4)


# -- models of other kinds


def test_exported_program():
    m, x = convnet(), torch.randn(IMAGE)
    check(sol.optimize(torch.export.export(m, (x,))), m, (x,))
    s = sol.optimize(torch.export.export(m, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},)))
    for batch in (2, 3):
        check(s, m, (torch.randn(batch, 3, 8, 8),))


def test_function_and_numpy():
    f = sol.optimize(lambda a, b: (a @ b).relu(), torch.randn(3, 4), torch.randn(4, 5))
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    assert torch.allclose(f(a, b), (a @ b).relu(), atol=1e-5)
    m = mlp()
    g = sol.optimize(m, torch.randn(2, 4), framework="numpy")
    x = np.ones((2, 4), np.float32)
    with torch.no_grad():
        np.testing.assert_allclose(g(x), m(torch.from_numpy(x)).numpy(), atol=1e-6)


def test_torch_compile():
    m = convnet()
    c = torch.compile(m, backend="sol")
    with torch.no_grad():
        for change in range(3):
            for batch in (2, 5, 2):
                check(c, m, (torch.randn(batch, 3, 8, 8),))
            m[0].weight.mul_(2) if change == 0 else m[1].running_mean.add_(1)
    assert c(torch.randn(IMAGE)).requires_grad


def test_torch_compile_dynamic():
    m = convnet()
    c = torch.compile(m, backend="sol", dynamic=True)
    for batch in (2, 3):
        check(c, m, (torch.randn(batch, 3, 8, 8),))
    f = torch.compile(lambda d, k: {"y": d["x"] * k, "n": k + 1}, backend="sol", dynamic=True)
    for k in (2, 3, 2.5):
        got = f({"x": torch.ones(3)}, k)
        assert torch.equal(got["y"], torch.full((3,), float(k))) and got["n"] == k + 1


def test_torch_compile_with_graph_breaks():
    def f(x):
        y = x.sin()
        if y.sum() > 0:
            return y + 1
        return y - 1

    with torch.no_grad():
        for x in (torch.ones(3), -torch.ones(3)):
            assert torch.allclose(torch.compile(f, backend="sol")(x), f(x))


def test_several_models_at_once():
    models = [mlp() for _ in range(3)]
    x = torch.randn(2, 4)
    optimized = [sol.optimize(m, x) for m in models]
    for _ in range(2):
        for s, m in zip(optimized, models, strict=True):
            check(s, m, (x,))


def test_threads():
    m = mlp()
    s, wrong = sol.optimize(m, sol.input([0, 4])), []

    def work(i):
        for k in range(40):
            x = torch.randn(1 + (i + k) % 3, 4)
            with torch.no_grad():
                if not torch.allclose(s(x), m(x), atol=1e-6):
                    wrong.append((i, k))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_threads_that_optimize():
    done = []

    def work(i):
        m, x = nn.Sequential(nn.Linear(4 + i, 3), nn.Tanh()).eval(), torch.randn(2, 4 + i)
        check(sol.optimize(m, x), m, (x,))
        done.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(done) == 4


def test_same_bits_for_any_number_of_threads():
    m, x = convnet(), torch.randn(8, 3, 8, 8)
    s, before = sol.optimize(m, x), torch.get_num_threads()
    try:
        with torch.no_grad():
            results = [torch.set_num_threads(n) or s(x) for n in (1, 2, 5)]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(r, results[0]) for r in results)


@pytest.mark.skipif(sol.device.current()[0] != sol.device.HOST, reason="a child process cannot use the device")
def test_after_fork():
    m, x = mlp(), torch.randn(2, 4)
    s = sol.optimize(m, sol.input([0, 4]))
    check(s, m, (x,))
    child = os.fork()
    if child == 0:
        with torch.no_grad():
            ok = all(torch.allclose(s(x[:b]), m(x[:b]), atol=1e-6) for b in (2, 1))
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0


LOADED_AFTER_FORK = """
import os, signal, torch
torch.set_num_threads(2)
torch.randn(1 << 20).relu()  # the parent has PyTorch's threads
if not os.fork():
    signal.alarm(120)
    import sol
    sol.config["cache::folder"] = {folder!r}
    model, x = torch.nn.Conv2d(3, 16, 3).eval(), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        got = sol.optimize(model, x)(x)
        torch.set_num_threads(1)
        os._exit(0 if torch.allclose(got, model(x), atol=1e-5) else 3)
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_loaded_after_fork():
    script = LOADED_AFTER_FORK.format(folder=sol.config["cache::folder"])
    assert subprocess.run([sys.executable, "-c", script], timeout=300).returncode == 0


@pytest.mark.skipif(sol.device.current()[0] != sol.device.HOST, reason="a child process cannot use the device")
def test_in_a_worker_of_a_data_loader():
    m = convnet()
    s = sol.optimize(m, sol.input([0, 3, 8, 8]))
    s(torch.randn(IMAGE))

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            with torch.no_grad():
                return s(torch.full((1, 3, 8, 8), float(i)))[0]

    for i, batch in enumerate(torch.utils.data.DataLoader(Samples(), num_workers=2, batch_size=2, timeout=200)):
        with torch.no_grad():
            eager = m(torch.stack([torch.full((3, 8, 8), 2.0 * i + k) for k in range(2)]))
        assert torch.allclose(batch, eager, atol=1e-5)


# -- what is rejected


class Rejected(nn.Module):
    def forward(self, x):
        y = torch.complex(x, x).acos().real
        return y + x.to_sparse().to_dense()


class Branches(nn.Linear):
    def forward(self, x):
        return x if super().forward(x).sum() > 0 else -x


class Picks(nn.Linear):
    def forward(self, x):
        return x[super().forward(x) > 0]


def test_everything_that_is_rejected_at_once():
    with pytest.raises(sol.UnsupportedError) as e:
        sol.optimize(Rejected(), torch.randn(3, 3))
    for part in ("things", "aten.acos", "complex", "sparse", "test_api.py:"):
        assert part in str(e.value)


def test_equal_rejections_are_one_line():
    layers = [nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)) for _ in range(4)]
    with pytest.raises(sol.UnsupportedError) as e:
        sol.optimize(nn.Sequential(*layers).half().eval(), torch.randn(2, 3, 96, 96).half())
    _, line, advice = str(e.value).split("\n")
    assert "data type float16: " in line and "parameter 0.0.weight and 23 more" in line and "more" in line
    assert "float32" in advice
    with pytest.raises(sol.UnsupportedError) as e:
        sol.optimize(nn.Sequential(*[Special() for _ in range(30)]), torch.randn(3))
    assert (
        re.search(r"special_airy_ai.*\(test_api.py:\d+\) and 29 more$", str(e.value)) and str(e.value).count("\n") == 1
    )


class Special(nn.Module):
    def forward(self, x):
        return torch.special.airy_ai(x)


class Causal(nn.Module):
    """PyTorch reads the mask to see whether it is causal."""

    def __init__(self):
        super().__init__()
        self.net = nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True)

    def forward(self, x, mask):
        return self.net(x, x, src_mask=nn.Transformer.generate_square_subsequent_mask(4, dtype=x.dtype), tgt_mask=mask)


class Likely(nn.Module):
    """torch.distributions checks its arguments."""

    def forward(self, x, y):
        q, p = torch.distributions.Normal(x, x.exp()), torch.distributions.Normal(y, torch.ones_like(y))
        return (
            torch.distributions.kl_divergence(q, p),
            torch.distributions.Categorical(logits=x).entropy(),
            q.log_prob(y),
        )


@pytest.mark.parametrize("model, shapes", [(Causal(), [(2, 4, 8), (4, 4)]), (Likely(), [(3, 4), (3, 4)])])
def test_pytorch_s_own_looks_into_data(model, shapes):
    args, before = tuple(map(torch.randn, shapes)), torch.distributions.Distribution._validate_args
    check(sol.optimize(model.eval(), *args), model, args)
    assert torch.distributions.Distribution._validate_args == before


@pytest.mark.parametrize("model", [Branches(3, 3), Picks(3, 3)], ids=["branch", "mask"])
def test_control_flow_on_results_of_layers(model):
    optimized = sol.optimize(model, torch.randn(3, 3))
    for _ in range(4):
        x = torch.randn(3, 3)
        torch.testing.assert_close(optimized(x), model(x))


def test_rejected_by_name():
    with pytest.raises(sol.UnsupportedError, match="float16"):
        sol.optimize(nn.Linear(3, 3).half(), torch.randn(3, 3).half())


class Raises(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(4, 4)

    def forward(self, ids):
        if len(ids) == 1:
            raise ZeroDivisionError("the model's own")
        return self.embed(ids)


def test_rejected_calls(tmp_path):
    x = torch.randn(2, 4)
    s = sol.optimize(mlp(), x)
    with torch.autocast("cpu"), pytest.raises(sol.UnsupportedError, match="autocast"):
        s(x)
    with pytest.raises(sol.InvalidError, match="the class Linear"):
        sol.optimize(torch.nn.Linear, x)
    with pytest.raises(sol.UnsupportedError, match="tensorflow"):
        sol.optimize(mlp(), x, framework="tensorflow")
    with pytest.raises(sol.UnsupportedError, match="TorchScript"):
        sol.optimize(torch.jit.trace(mlp(), x), x)
    with pytest.raises(sol.InvalidError, match="optimized already"):
        sol.optimize(s, x)
    with pytest.raises(sol.InvalidError):
        sol.optimize(3, x)
    with pytest.raises(sol.FileError, match="no such file"):
        sol.optimize(tmp_path / "missing.onnx")
    for sizes in ([-1, 3], [1.5, 3], [True, 3], ["a"], None, 5):
        with pytest.raises(sol.InvalidError, match=rf"expected a list of sizes.* got {re.escape(repr(sizes))}"):
            sol.input(sizes)
    assert sol.input([np.int64(0), torch.tensor(3)]) == sol.input([0, 3])
    with pytest.raises(sol.InvalidError, match=r"dtype: expected one of PyTorch's such as torch.float32, got 'f4'"):
        sol.optimize(mlp(), sol.input([2, 4], dtype="f4"))
    with pytest.raises(sol.InvalidError, match=r"torch\.int64 has no gradients"):
        sol.optimize(mlp(), sol.input([2, 4], True, torch.int64))
    with pytest.raises(sol.InvalidError, match=r"0\.weight has no shape yet; call the model once"):
        sol.optimize(nn.Sequential(nn.LazyLinear(3)), x)
    with pytest.raises(
        sol.InvalidError, match=r"does not take \('x'\): conv2d\(\) .* got \(str, Tensor, .*int\); give it tensors"
    ):
        sol.optimize(nn.Conv2d(1, 2, 3).eval(), "x")
    with pytest.raises(sol.InvalidError, match=r"does not take \(\(2, 4\)\): .*; give it tensors, or sol.input"):
        sol.optimize(mlp(), (2, 4))
    with pytest.raises(
        sol.InvalidError, match=r"does not take \(\(float32\[2, 3, 8, 8\],\)\): .*: \*args in place of args"
    ):
        sol.optimize(torch.nn.Conv2d(3, 4, 3), (torch.zeros(2, 3, 8, 8),))
    with pytest.raises(sol.InvalidError, match=r"does not take \(float32\[3, 4\]\): 0\.1: .* got \[3, 4\] X \[3, 3\]"):
        sol.optimize(nn.Sequential(nn.Sequential(nn.ReLU(), nn.Linear(3, 3))), torch.randn(3, 4))
    with pytest.raises(
        sol.InvalidError, match=r"does not take \(float32\[3\]\): embed, test_api.py:.*but got torch.float32"
    ):
        sol.optimize(Raises(), torch.randn(3))
    with pytest.raises(ZeroDivisionError, match="own"):
        sol.optimize(Raises(), torch.ones(1, dtype=torch.int64))
    with pytest.raises(
        sol.UnsupportedError, match=r"data type float16: parameter weight and 1 more, argument 0, aten.linear.default"
    ):
        sol.optimize(nn.Linear(4, 3).half(), x.half())
    with pytest.raises(sol.UnsupportedError, match=r"linear\.default: operands of several types: f32, i32"):
        sol.optimize(nn.Linear(4, 3), x.int())


def test_no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    before = sol.config["cache::folder"]
    sol.config["cache::folder"] = str(tmp_path / "cache")
    try:
        with pytest.raises(sol.CompilerError):
            sol.optimize(nn.Linear(7, 11).eval(), torch.randn(2, 7))
    finally:
        sol.config["cache::folder"] = before


# -- the rest of the interface


def test_same_functions_for_every_framework():
    import sol.numpy
    import sol.onnx

    for module in (sol.pytorch, sol.numpy, sol.onnx):
        for name in sol.__all__:
            assert getattr(module, name) is getattr(sol, name), name


def test_config():
    assert sol.config["compiler::name"] and set(sol.config) >= {"log::level", "autotune", "compiler::debug"}
    before = sol.config["log::level"]
    sol.config["log::level"] = "ERROR"
    assert sol.config["log::level"] == "ERROR"
    del sol.config["log::level"]
    sol.config["log::level"] = before
    sol.config.log_level = "ERROR"
    assert sol.config.log_level == sol.config["log::level"] == "ERROR"
    sol.config["log::level"] = before
    with pytest.raises(KeyError, match="log:level: no such key; did you mean log::level") as e:
        sol.config["log:level"] = 1
    assert traceback.format_exception_only(e.value)[0].startswith("KeyError: sol.config: log:level")
    with pytest.raises(AttributeError, match="did you mean log::level"):
        sol.config.loglevel = 1
    with pytest.raises(KeyError):
        sol.config["nonsense"]
    with pytest.raises(sol.InvalidError):
        sol.config["log::level"] = "LOUD"
    assert "log::level" in sol.config.help()


def test_devices_versions_seeds():
    assert sol.devices()[0]["type"] == "x86" and sol.devices()[0]["cores"] >= 1
    assert sol.versions()["sol"] == sol.__version__ and "torch" in sol.versions()
    sol.set_seed(7)
    assert sol.seed() == 7 and sol.seeds() == {f"{d['type']}:{d['index']}": 7 for d in sol.devices() if not d["why"]}
    sol.set_seed(8, "x86", 0)
    assert sol.seed("x86", 0) == 8
    with pytest.raises(sol.InvalidError):
        sol.seed("cuda", 0)
    sol.device.set("x86", 0)
    with pytest.raises(sol.UnsupportedError, match="there is no 'cuda:0'; there are x86:0"):
        sol.device.set("cuda", 0)
    with pytest.raises(sol.UnsupportedError, match="this machine is x86"):
        sol.device.set("riscv64")
    with sol.device("X86"):
        assert sol.config["device"] == "x86:0"
    arm = next(d for d in sol.devices() if d["type"] == "arm64")
    assert "this machine is x86" in arm["why"] and not arm["default"]


def test_memory_is_estimated(capfd):
    sol.optimize(mlp(), torch.randn(2, 4))
    assert "Estimated Peak Memory Consumption: Inference ~" in capfd.readouterr().err


def test_small_memory(monkeypatch):
    """Winograd's larger weights are not stored if they do not pay or memory is small."""

    def prepared(memory, channels, size):
        monkeypatch.setitem(sol.config, "memory", memory)
        x, model = torch.randn(1, channels, size, size), torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        optimized = sol.optimize(model, x)
        with torch.no_grad():
            torch.testing.assert_close(optimized(x), model(x), rtol=1e-4, atol=2e-5)
        return sol.memory(optimized)["prepared"] / (4 * model.weight.numel())

    monkeypatch.setitem(sol.config, "autotune", "off")
    assert prepared("small", 64, 28) <= 1 < prepared("fast", 64, 28)
    assert prepared("balanced", 256, 14) <= 1 < prepared("balanced", 64, 56)


def test_debug(capfd, tmp_path, monkeypatch):
    """The network is drawn, sources are kept, the log has the times of each step, and results are the same."""
    x = torch.randn(2, 3, 8, 8)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5))
    for key, value in {"compiler::debug": "1", "log::level": "TRACE", "cache::folder": str(tmp_path)}.items():
        monkeypatch.setitem(sol.config, key, value)
    with torch.no_grad():
        torch.testing.assert_close(sol.optimize(model, x)(x), model(x))
    (drawing,) = (tmp_path / "debug").glob("Sequential-*.dot")
    text, logged = drawing.read_text(), capfd.readouterr().err
    assert 'label="f32 2x3x8x8"' in text and "Linear" in text and "Conv" in text
    assert str(drawing) in logged and re.search(r"Sequential: [0-9.]+ us .*Linear", logged)
    assert list((tmp_path / "x86" / "source").iterdir())
    if dot := shutil.which("dot"):
        assert subprocess.run([dot, "-Tsvg", drawing], capture_output=True, check=True).stdout.startswith(b"<?xml")
    sol.cache.clear()
    assert not drawing.exists()


def boxes_wide(dot, drawing):
    """The width of a drawing in typical boxes."""
    text = subprocess.run([dot, "-Tplain", drawing], capture_output=True, text=True, check=True).stdout
    width = float(text.split()[2])
    return width / sorted(float(row.split()[4]) for row in text.splitlines() if row.startswith("node u"))[-1]


def test_a_drawing_is_narrow(tmp_path, monkeypatch):
    """However long the network is, boxes are below each other, and kernels of parameters and outputs of training do not
    widen the drawing."""
    layers = [
        part
        for _ in range(12)
        for part in (torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    ]
    model, x = torch.nn.Sequential(*layers), torch.randn(2, 8, 16, 16)
    for key, value in {
        "compiler::debug": "1",
        "autotune": "off",
        "bands": "off",
        "cache::folder": str(tmp_path),
    }.items():
        monkeypatch.setitem(sol.config, key, value)
    with torch.no_grad():
        sol.optimize(copy.deepcopy(model).eval(), x)(x)
    (inference,) = (tmp_path / "debug").glob("*.dot")
    sol.optimize(model, x)(x).sum().backward()
    (training,) = set((tmp_path / "debug").glob("*.dot")) - {inference}
    text = training.read_text()
    assert "saved: " in text and "gives: d_0.weight" in text and "prepare: " in inference.read_text()
    if dot := shutil.which("dot"):
        assert boxes_wide(dot, inference) < 3 and boxes_wide(dot, training) < 10


def test_memory_is_drawn(capfd, tmp_path, monkeypatch):
    """The drawing has a stacked bar for each kernel. The highest is the peak in the log, and the estimate of sol.memory
    is not less."""
    model, x = nn.Sequential(nn.Linear(256, 300), nn.Sigmoid(), nn.Linear(300, 200)), torch.randn(64, 256)
    for key, value in {
        "compiler::debug_memory_consumption": "1",
        "autotune": "off",
        "cache::folder": str(tmp_path),
    }.items():
        monkeypatch.setitem(sol.config, key, value)
    optimized = sol.optimize(model.train(), x)
    optimized(x).sum().backward()
    (drawing,) = (tmp_path / "debug").glob("*-memory.svg")
    assert str(drawing) in capfd.readouterr().err
    root = xml.etree.ElementTree.parse(drawing).getroot()
    space = "{http://www.w3.org/2000/svg}"
    bars = root.findall(f"{space}g")
    texts = [bar.find(f"{space}title").text for bar in bars]
    assert len(bars) > 3 and all(", parameters " in t for t in texts) and any("saved for backward" in t for t in texts)
    heights = [sum(float(r.get("height")) for r in bar.iter(f"{space}rect")) for bar in bars]
    assert max(heights) == pytest.approx(300, abs=0.1)
    most = max(float(re.search(r": ([\d.]+) MB", t)[1]) for t in texts)
    assert 0 < most <= sol.memory(optimized)["peak"] / 1e6 + 0.01
    ticks = [t.text for t in root.findall(f"{space}text") if t.get("text-anchor") == "end"]
    assert ticks[0] == "0 MB" and 3 <= len(ticks) <= 9 and all(re.fullmatch(r"\d(\.\d)? MB", t) for t in ticks)


def test_drawings_go_with_the_cache(tmp_path, monkeypatch):
    keys = {"compiler::debug": "1", "compiler::debug_memory_consumption": "1", "cache::folder": str(tmp_path)}
    for key, value in keys.items():
        monkeypatch.setitem(sol.config, key, value)
    sol.optimize(mlp(), torch.randn(2, 4))(torch.randn(2, 4))
    (tmp_path / "debug" / "my-memory.svg").write_text("mine")
    assert len(list((tmp_path / "debug").iterdir())) == 3
    sol.cache.clear()
    assert [p.name for p in (tmp_path / "debug").iterdir()] == ["my-memory.svg"]


def test_tracing_leaves_no_trace():
    m, x = mlp(), torch.randn(2, 4)
    before, level = dict(m.__dict__), logging.root.manager.disable
    sol.optimize(m, x)
    assert m.__dict__.keys() == before.keys() and logging.root.manager.disable == level
    assert torch.backends.mha.get_fastpath_enabled() and torch.is_grad_enabled()
