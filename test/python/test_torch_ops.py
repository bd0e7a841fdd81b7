"""Operators: the table itself, torch's own samples, and core ATen."""

import math
import re

import opinfo
import pytest
import sol
import torch
from sol.pytorch import operators
from sol.pytorch.builder import Rejected
from sol.pytorch.decompose import _rules

# Rejected operators of core ATen, with the reason. All others are in the table or have a decomposition.
REJECTED = {
    "_local_scalar_dense": "depends on data",
    "sym_numel": "a number when tracing", "sym_storage_offset": "a number when tracing",
}  # fmt: skip

# Compiled in `make test`; the slow tests compile all operators.
COMPILED = (
    "add mul sub div.no_rounding_mode pow maximum where clamp exp log sqrt tanh sigmoid erf nn.functional.gelu nn.functional.silu nn.functional.relu "
    "nn.functional.softplus nn.functional.hardswish sum mean prod amax argmax var std logsumexp cumsum softmax log_softmax matmul "
    "addmm bmm einsum nn.functional.linear nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d "
    "nn.functional.conv_transpose2d nn.functional.max_pool2d nn.functional.avg_pool2d nn.functional.adaptive_avg_pool2d "
    "nn.functional.layer_norm nn.functional.group_norm nn.functional.embedding "
    "nn.functional.scaled_dot_product_attention nn.functional.interpolate.bilinear nn.functional.pad.reflect nn.functional.grid_sample "
    "cat stack permute reshape expand flip roll gather index_select scatter_add index_put topk sort tril masked_fill "
    "nn.functional.cross_entropy remainder floor_divide eq logical_and bitwise_and"
).split()


def core():
    for function in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, function)
        for overload in getattr(packet, "overloads", list)():
            if torch.Tag.core in getattr(packet, overload).tags and overload != "out":
                yield getattr(packet, overload)


@pytest.mark.parametrize("overload", list(core()), ids=str)
def test_core_aten(overload):
    name = overload._schema.name.split("::")[1]
    rejected = name in REJECTED or str(overload).removeprefix("aten.") in REJECTED
    row = operators.find(str(overload)) or operators.find_complex(str(overload))
    known = isinstance(row, operators.Row) or (row is None and overload in _rules())
    assert known != rejected, "works, but is listed as rejected" if known else "neither row nor decomposition"


# Operators of other libraries are tested with these libraries (test_huggingface.py).
OWN = {full: row for full, row in operators.OPERATORS.items() if full.startswith("aten.")}


def test_rows_name_what_exists():
    def exists(full):
        _, function, overload = full.split(".")
        return overload in getattr(getattr(torch.ops.aten, function, None), "overloads", list)()

    assert not [full for full in OWN if not exists(full)]


def test_rows_take_what_schemas_have():
    for full, row in OWN.items():
        if isinstance(row, operators.Row):
            _, function, overload = full.split(".")
            names = {a.name for a in getattr(getattr(torch.ops.aten, function), overload)._schema.arguments}
            needed = {name.rstrip("_") for name in row.needed} - names
            assert not needed, f"{full}: {needed}"


@pytest.mark.parametrize("name", opinfo.NAMES)
def test_interpreted(name):
    """The first samples of an operator, with the interpreter: rejected is allowed, wrong is not."""
    for dtype in (torch.float32, torch.int64):
        for call in opinfo.samples(name, dtype, 2):
            kind, why = opinfo.run(name, call, opinfo.interpreted)
            assert kind != "wrong", why


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name):
    for dtype in (torch.float32, torch.int64):
        for kind, why in opinfo.run_all(name, opinfo.samples(name, dtype, 6)):
            assert kind != "wrong", why
            assert kind == "ok" or dtype != torch.float32, why


@pytest.mark.slow
@pytest.mark.parametrize("name", opinfo.NAMES)
def test_every_sample(name):
    """All samples of an operator, many compiled together."""
    results = opinfo.results_of(name, "--compiled")
    wrong = [why for found in results.values() for kind, why in found if kind == "wrong"]
    assert not wrong, wrong[:3]


def test_the_page_has_every_operator():
    rows = {line.split(" | ")[0].strip("| `") for line in opinfo.PAGE.read_text(encoding="utf-8").splitlines()}
    missing = [n for n, o in opinfo.NAMES.items() if n not in rows and o.dtypes & set(opinfo.DTYPES.values())]
    assert not missing


def rejection(f, *args):
    with pytest.raises(sol.UnsupportedError) as e:
        sol.optimize(f, *args)
    return str(e.value)


def test_arguments_that_no_row_mentions():
    def f(x):
        return x.bernoulli(0.5, generator=torch.Generator())

    row = operators.Row(lambda b, x, other: x)
    with pytest.raises(Rejected, match="argument alpha=2"):
        row(None, torch.ops.aten.add.Tensor._schema, (1, 2), {"alpha": 2})
    with pytest.raises((sol.UnsupportedError, AssertionError)):
        sol.optimize(f, torch.ones(3))


class Mixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
        self.b = torch.nn.Linear(4, 4).half()

    def forward(self, x):
        y = self.b(self.a(x).half())
        z = torch.complex(x, x).acos().abs()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            w = self.a(x)
        return y.float().sum() + z.sum() + w.sum() + torch.special.erfcx(x).sum()


def test_everything_that_is_rejected_is_said_at_once_with_its_line():
    text = rejection(Mixed(), torch.randn(4, 4))
    for words in (
        r"data type float16: parameter b.weight and 1 more, aten.to.dtype \(test_torch_ops.py:\d+\), "
        r"aten.linear.default in b \(test_torch_ops.py:\d+\)",
        r"aten.acos.default: SOL has no row for this operator of complex numbers, .* \(test_torch_ops.py:\d+\)",
        r"torch.autocast in a \(test_torch_ops.py:\d+\)",
        r"aten.special_erfcx.default: this special function.* \(test_torch_ops.py:\d+\)",
    ):
        assert re.search(words, text), text


def test_autocast_around_and_data_in_control_flow():
    with torch.autocast("cpu"):
        assert "call sol.optimize and the model outside of torch.autocast" in rejection(
            torch.nn.Linear(4, 4), torch.ones(4)
        )
    assert re.search(
        r"depends on data \(test_torch_ops.py:\d+\)",
        rejection(lambda x: x * torch.rand(4).sum().item(), torch.ones(4)),
    )
    assert "a value of random numbers" in rejection(lambda x: x * torch.rand([]).item(), torch.ones(4))


def test_integers_divided_by_zero():
    n, d = torch.tensor([7, -7, 0]), torch.tensor([2, 2, 3])
    for f in (torch.floor_divide, torch.remainder, torch.fmod, lambda a, b: torch.div(a, b, rounding_mode="trunc")):
        optimized = sol.optimize(f, n, d)
        assert torch.equal(optimized(n, d), f(n, d))
        with pytest.raises(sol.RunError, match="no divisor may be 0"):
            optimized(n, torch.tensor([1, 0, 1]))
        assert "an integer divided by 0" in rejection(lambda a, f=f: f(a, 0), n)


def test_writing_memory_that_another_argument_has():
    def f(x, y):
        x.add_(1)
        return x + y

    optimized, memory = sol.optimize(f, torch.zeros(4), torch.zeros(4)), torch.zeros(8)
    for y in (memory[:4], memory[3:7]):
        with pytest.raises(
            sol.UnsupportedError, match="writes argument 0 in place, which shares memory with argument 1"
        ):
            optimized(memory[:4], y)
    assert not memory.any()
    assert torch.equal(optimized(memory[:4], memory[4:]), torch.ones(4))
    with pytest.raises(sol.UnsupportedError, match="shares memory"):
        sol.optimize(f, memory[:4], memory[:4])(memory[:4], memory[:4])


def test_sums_of_exponentials_with_infinities():
    inf = float("inf")
    x = torch.tensor([[inf, 1, -inf], [-inf, -inf, -inf], [inf, float("nan"), 0], [inf, inf, inf], [1000, 1000, -inf]])
    for f in (lambda x: x.logsumexp(1), lambda x: x.logcumsumexp(1), lambda x: torch.logaddexp(x, x.flip(0))):
        torch.testing.assert_close(sol.optimize(f, x)(x), f(x), equal_nan=True)


def test_sizes_of_zero_are_not_wildcards():
    x, y = torch.zeros(0, 5), torch.zeros(5, 5, 0)
    assert torch.equal(sol.optimize(torch.matmul, y, x)(y, x), torch.zeros(5, 5, 5))


def test_in_place_operators_whose_overloads_have_other_names():
    """aten.floor_divide_.Tensor is aten.floor_divide.default in place, aten.pow_.Tensor aten.pow.Tensor_Tensor."""

    def f(x, y):
        a, b = x * 4, x.abs() + 1
        a //= 2
        b **= y
        return a, b, (x * 1).ldexp_(y.int())

    x, y = torch.linspace(-3, 3, 12).view(3, 4), torch.full((4,), 2.0)
    for got, expected in zip(sol.optimize(f, x, y)(x, y), f(x, y), strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("f", [torch.maximum, torch.minimum])
def test_gradients_of_maxima_with_nan(f):
    """As in PyTorch, both operands have the gradient where one is NaN."""
    nan, gradients = float("nan"), []
    for g in (sol.optimize(f, torch.empty(4, requires_grad=True), torch.empty(4, requires_grad=True)), f):
        x = torch.tensor([nan, 1, 2, 3], requires_grad=True)
        y = torch.tensor([1, nan, 2, 4], requires_grad=True)
        g(x, y).backward(torch.ones(4))
        gradients.append((x.grad, y.grad))
    for got, expected in zip(*gradients, strict=True):
        assert torch.equal(got, expected)


def quantized(x, w):
    scale, zero = torch.tensor([0.05, 0.1, 0.3]), torch.tensor([0, 3, 1], dtype=torch.int32)
    rows = torch.fake_quantize_per_channel_affine(w, scale, zero, 0, -8, 7)
    columns = torch.fake_quantize_per_channel_affine(x.clamp(-100, 100), scale, zero, 1, 0, 15)
    by_tensors = torch.fake_quantize_per_tensor_affine(
        x, torch.tensor([0.1]), torch.tensor([2], dtype=torch.int32), -5, 20
    )
    return rows, columns, by_tensors, torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 30)


def test_simulated_quantization():
    odd = torch.tensor([math.nan, math.inf, -math.inf, 0.05, 0.15, -0.25, 1e30, 0.0, -0.0])
    x, w = torch.cat([3 * torch.randn(300), odd]).reshape(-1, 3), 2 * torch.randn(3, 50)
    found = []
    for f in (quantized, sol.optimize(quantized)):
        given = [t.clone().requires_grad_() for t in (x, w)]
        made = f(*given)
        found.append([*made, *torch.autograd.grad(made, given, [t.detach().nan_to_num(1, 2, 3) for t in made])])
    assert all(map(torch.equal, *found))


def test_products_of_several_types():
    """The shape functions of PyTorch promote them, its operators do not."""
    message = rejection(torch.nn.Linear(4, 3), torch.ones(2, 4, dtype=torch.float64))
    assert "linear.default: operands of several types: f32, f64" in message
    x, y = torch.randn(3, 3), torch.randn(3, 3, dtype=torch.float64)
    for f in (torch.mm, torch.linalg.matmul):
        assert "operands of several types: f32, f64" in rejection(f, x, y)
    for a, b in ((x, y), (y, x)):  # this one promotes
        optimized = sol.optimize(torch.addr, a, a[0], b[0])
        torch.testing.assert_close(optimized(a, a[0], b[0]), torch.addr(a, a[0], b[0]))
