"""Operators that count, access memory, or resample: all of torch's samples work, and gradients in float64 equal
PyTorch's."""

import opinfo
import pytest
import sol
import torch
from torch import nn
from torch_help import check_with_gradients

WHOLE = (
    "histc histogram mode nonzero_static combinations cov corrcoef frexp heaviside _batch_norm_with_update _native_batch_norm_legit "
    "native_batch_norm nn.functional.batch_norm _unsafe_masked_index _unsafe_masked_index_put_accumulate as_strided "
    "_upsample_bilinear2d_aa nn.functional.interpolate.bilinear nn.functional.interpolate.bicubic nn.functional.upsample_bilinear "
    "nn.functional.multilabel_margin_loss linspace.tensor_overload"
).split()


@pytest.mark.parametrize("name", WHOLE)
def test_samples(name):
    for dtype in opinfo.DTYPES.values():
        for call in opinfo.samples(name, dtype, 8):
            assert opinfo.run(name, call, opinfo.interpreted) == ("ok", "")


class Views(nn.Module):
    """The memory behind a transposed copy, a part of a tensor, and a tensor that was written in the meantime."""

    def forward(self, x):
        y, z = x.mT.clone(memory_format=torch.preserve_format), x * 2
        part = z[1:, ::2]
        z[0, 0] = 7
        return (
            y.as_strided((3, 2), (1, 3), 1),
            x.as_strided((2, 3), (0, 2), 4),
            part.detach().as_strided(
                (2, 2), (1, 5)
            ),  # PyTorch's gradient covers only elements that the view itself shows
            part.detach().as_strided((3,), (5,), 0),
        )


def test_as_strided_of_views():
    check_with_gradients(Views(), torch.randn(4, 5))
    with pytest.raises(sol.UnsupportedError, match="reads memory behind the tensor that no other tensor"):
        sol.optimize(lambda x: x.as_strided((4,), (1,), 0) * 2, torch.randn(10)[4:])


class Resampled(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, x):
        return nn.functional.interpolate(x, **self.options)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialias_with_aligned_corners(mode):
    for size in ((3, 7), (9, 4)):
        model = Resampled(size=size, mode=mode, antialias=True, align_corners=True)
        check_with_gradients(model, torch.randn(1, 2, 6, 5))


def test_bytes_are_resampled_as_by_pytorch():
    x = torch.randint(0, 256, (2, 3, 17, 23), dtype=torch.uint8)
    for mode in ("bilinear", "bicubic"):
        for options in ({"antialias": True}, {"align_corners": True}, {}):
            model = Resampled(size=(9, 31), mode=mode, **options)
            assert torch.equal(sol.optimize(model, x)(x), model(x)), (mode, options)


class Statistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("var", torch.ones(3))
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x):
        y, mean, scale = torch.ops.aten._native_batch_norm_legit(
            x, self.weight, None, self.mean, self.var, True, 0.1, 1e-5
        )
        z = torch.ops.aten._batch_norm_with_update(
            x.square(), self.weight, self.weight, self.mean, self.var, 0.2, 1e-5
        )[0]
        return y, mean, scale, z


def test_batch_norm_writes_its_statistics():
    check_with_gradients(Statistics(), torch.randn(4, 3, 5))
    ours, theirs, x = Statistics(), Statistics(), torch.randn(4, 3, 5)
    theirs.load_state_dict(ours.state_dict())
    sol.optimize(ours, x)(x)
    theirs(x)
    for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(a, b)


class Experts(nn.Module):
    """Counts how often a router chose each expert, as Mixtral's load-balancing loss does."""

    def forward(self, x):
        chosen = x.softmax(-1).topk(2, dim=-1).indices
        return torch.histc(chosen.float(), bins=4, min=0, max=3), torch.histc(x), torch.histc(x, bins=5, min=-1, max=1)


def test_histograms_of_what_is_chosen():
    x = torch.randn(50, 4)
    x[3, 2] = 1.0
    for got, expected in zip(sol.optimize(Experts(), x)(x), Experts()(x), strict=True):
        assert torch.equal(got, expected)


def test_covariances_have_gradients():
    class Model(nn.Module):
        def forward(self, x):
            return x.cov(), x.corrcoef(), x.cov(fweights=torch.arange(1, 7), aweights=x[0].detach().abs())

    check_with_gradients(Model(), torch.randn(3, 6))
