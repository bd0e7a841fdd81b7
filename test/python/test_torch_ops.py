"""Operators: the table itself, torch's own samples, and core ATen."""

import opinfo
import pytest
import sol
import torch
from sol.pytorch import operators
from sol.pytorch.decompose import _rules

# Core ATen that is refused, with the reason; everything else in it has a row or PyTorch's decomposition.
BACKWARD = "training is not there yet"
COMPLEX = "complex numbers"
DATA = "depends on data"
REFUSED = {
    "_adaptive_avg_pool2d_backward": BACKWARD, "avg_pool2d_backward": BACKWARD, "convolution_backward": BACKWARD,
    "max_pool2d_with_indices_backward": BACKWARD, "_native_batch_norm_legit.default": BACKWARD,
    "_fft_c2r": COMPLEX, "_fft_r2c": COMPLEX,
    "nonzero": DATA, "_local_scalar_dense": DATA,
    "sym_numel": "a number when tracing", "sym_storage_offset": "a number when tracing",
    "_embedding_bag": "bags of several sizes", "_pdist_forward": "no row yet",
}  # fmt: skip

# Compiled in `make test`; the slow tests compile all.
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
    refused = name in REFUSED or str(overload).removeprefix("aten.") in REFUSED
    row = operators.find(str(overload))
    known = isinstance(row, operators.Row) or (row is None and overload in _rules())
    assert known != refused, "works, but is listed as refused" if known else "neither row nor decomposition"


def test_rows_name_what_exists():
    def exists(full):
        _, function, overload = full.split(".")
        return overload in getattr(getattr(torch.ops.aten, function, None), "overloads", list)()

    assert not [full for full in operators.OPERATORS if not exists(full)]


def test_rows_take_what_schemas_have():
    for full, row in operators.OPERATORS.items():
        if isinstance(row, operators.Row):
            _, function, overload = full.split(".")
            names = {a.name for a in getattr(getattr(torch.ops.aten, function), overload)._schema.arguments}
            needed = {name.rstrip("_") for name in row.needed} - names
            assert not needed, f"{full}: {needed}"


@pytest.mark.parametrize("name", opinfo.NAMES)
def test_interpreted(name):
    """The first samples of an operator, by the interpreter: never wrong, whatever is refused."""
    for dtype in (torch.float32, torch.int64):
        for call in opinfo.samples(name, dtype, 2):
            kind, why = opinfo.run(name, call, opinfo.interpreted)
            assert kind != "wrong", why


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name):
    for dtype in (torch.float32, torch.int64):
        for call in opinfo.samples(name, dtype, 2):
            kind, why = opinfo.run(name, call, opinfo.compiled)
            assert kind != "wrong", why
            assert kind == "ok" or dtype != torch.float32, why


@pytest.mark.slow
@pytest.mark.parametrize("name", opinfo.NAMES)
def test_every_sample(name):
    for dtype in opinfo.DTYPES:
        for call in opinfo.samples(name, dtype, 40):
            kind, why = opinfo.run(name, call, opinfo.interpreted)
            assert kind != "wrong", why


@pytest.mark.slow
@pytest.mark.parametrize("name", opinfo.NAMES)
def test_every_operator_compiled(name):
    for dtype in opinfo.DTYPES:
        for call in opinfo.samples(name, dtype, 4):
            kind, why = opinfo.run(name, call, opinfo.compiled)
            assert kind != "wrong", why


def test_arguments_that_no_row_mentions():
    class M(torch.nn.Module):
        def forward(self, x):
            return torch.searchsorted(torch.arange(5.0), x, sorter=torch.arange(5))

    with pytest.raises(sol.UnsupportedError, match="argument sorter"):
        sol.optimize(M(), torch.randn(3))
