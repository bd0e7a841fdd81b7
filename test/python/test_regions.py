"""torchvision's regions of interest and deformable convolutions, beside functions of PyTorch: values, gradients, sizes that vary."""

import math

import pytest
import sol
import torch
import torch.nn.functional as F
from torch import nn
from torch_help import error

SCHEMAS = (
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, "
    "bool aligned) -> Tensor",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, SymInt pad_h, "
    "SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor",
    "ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio) "
    "-> (Tensor, Tensor)",
    "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)",
    "ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)",
)
BOXES = torch.tensor(
    [[0, 1.0, 2, 9, 10], [1, 0, 0, 12.5, 7.3], [1, 3.2, 4.1, 5, 4.9], [0, 0.5, 2, 19, 16], [1, 8, 8, 7, 7]]
)


@pytest.fixture(scope="module", autouse=True)
def operators(torchvision):
    """Declares the operators where torchvision's wheel has its code for other builds of torch."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    if not hasattr(torch.ops.torchvision, "deform_conv2d"):
        for schema in SCHEMAS:
            library.define(schema)
        meta = torch.library.Library("torchvision", "IMPL", "Meta")
        meta.impl("roi_align", lambda x, rois, s, h, w, *_: x.new_empty((rois.shape[0], x.shape[1], h, w)))
        meta.impl("deform_conv2d", lambda x, w, at, *_: x.new_empty((x.shape[0], w.shape[0], *at.shape[2:])))

        def pooled(x, rois, channels, h, w):
            shape = (rois.shape[0], channels, h, w)
            return x.new_empty(shape), x.new_empty(shape, dtype=torch.int32)

        meta.impl("roi_pool", lambda x, rois, s, h, w: pooled(x, rois, x.shape[1], h, w))
        for name in ("ps_roi_align", "ps_roi_pool"):
            meta.impl(name, lambda x, rois, s, h, w, *_: pooled(x, rois, x.shape[1] // (h * w), h, w))
    yield library


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setitem(sol.config, "autotune", "off")


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def assert_equal(function, reference, *args, differentiated=(0,), **options):
    """Results and gradients."""
    made = sol.optimize(Function(function), **options)
    with torch.no_grad():
        assert error(made(*args), reference(*args)) < 1e-6
    found = []
    for f in (made, reference):
        given = [a.clone().requires_grad_(i in differentiated) for i, a in enumerate(args)]
        y = f(*given)
        wanted = [given[i] for i in differentiated]
        found.append(torch.autograd.grad(y, wanted, torch.linspace(-1, 1, y.numel()).view(y.shape)))
    for got, want in zip(*found, strict=True):
        assert error(got, want) < 1e-5
    return made


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [2, -1])
def test_roi_align(torchvision, aligned, ratio):
    def function(x, rois):
        return torch.ops.torchvision.roi_align(x, rois, 0.7, 3, 2, ratio, aligned)

    def reference(x, rois):
        return torchvision.ops.roi_align.__globals__["_roi_align"](x, rois, 0.7, 3, 2, ratio, aligned)

    boxes = BOXES[:4] if aligned and ratio < 0 else BOXES  # torchvision's Python divides by 0 for the last one
    assert_equal(function, reference, torch.randn(2, 4, 12, 14), boxes)
    made = assert_equal(function, reference, torch.randn(2, 4, 12, 14), boxes, vdims=True)
    for x, rois in ((torch.randn(3, 4, 14, 15), boxes[:3]), (torch.randn(2, 4, 13, 20), boxes)):
        assert error(made(x, rois), reference(x, rois)) < 1e-6


@pytest.mark.parametrize("ratio", [1, 2, 0])
def test_roi_align_outside_of_the_picture_reads_zeros(ratio):
    boxes = torch.tensor([[0, -8.0, 0, 8, 8], [0, 4, 4, 12, 20], [0, 100, 100, 101, 101], [0, -0.9, 2, 1.1, 4]])
    y = sol.optimize(Function(lambda x, b: torch.ops.torchvision.roi_align(x, b, 1.0, 2, 2, ratio, False)))(
        torch.ones(1, 1, 8, 8), boxes
    )
    want = torch.tensor([[[0.0, 1], [0, 1]], [[1, 0], [0, 0]], [[0, 0], [0, 0]], [[1, 1], [1, 1]]])
    assert torch.equal(y[2:, 0], want[2:]) and (ratio != 1 or torch.equal(y[:, 0], want))


def test_roi_align_of_boxes_inside_out():
    x = torch.randn(2, 4, 12, 14)
    y = sol.optimize(Function(lambda x, b: torch.ops.torchvision.roi_align(x, b, 1.0, 2, 2, 0, True)))(x, BOXES)
    assert torch.equal(y[4], torch.zeros(4, 2, 2))


def bins_of(start, end, count, n, closed):
    """First and last pixel, excluded, of each bin of a box."""
    start, end = (math.floor(abs(v) + 0.5) * (1 if v > 0 else -1) for v in (start, end))
    step = max(end - start + closed, 1) / count
    last = n if closed else n - 1
    return [
        [min(max(f + start, 0), last) for f in (math.floor(k * step), math.ceil((k + 1) * step))] for k in range(count)
    ]


def pools(x, rois, scale, height, width, closed, value):
    """`value` of the pixels of each bin, [channel, pixel], and the number of the bin; 0 of no pixels."""
    made = []
    for box in rois.tolist():
        x0, y0, x1, y1 = (v * scale for v in box[1:])
        rows, columns = bins_of(y0, y1, height, x.shape[2], closed), bins_of(x0, x1, width, x.shape[3], closed)
        seen = [[x[int(box[0]), :, a:b, c:d].flatten(1) for c, d in columns] for a, b in rows]
        made.append([[value(s, i, j) for j, s in enumerate(row)] for i, row in enumerate(seen)])
    return torch.stack([torch.stack([torch.stack(row, 1) for row in box], 1) for box in made])


POOLED = torch.tensor(
    [
        [0, 1.0, 2, 9, 10],
        [1, 0, 0, 12.5, 7.3],
        [1, 3.2, 4.1, 5, 4.9],
        [0, -7, 2, 4, 40],
        [1, 8, 8, 7, 7],
        [0, 50, 50, 60, 60],
    ]
)


def test_roi_pool():
    def function(x, rois):
        return torch.ops.torchvision.roi_pool(x, rois, 0.7, 3, 2)[0]

    def reference(x, rois):
        largest = lambda s, i, j: s.gather(1, s.argmax(1)[:, None])[:, 0] if s.shape[1] else s.sum(1)  # noqa: E731
        return pools(x, rois, 0.7, 3, 2, True, largest)

    made = assert_equal(function, reference, torch.randn(2, 4, 12, 14).relu(), POOLED, vdims=True)
    x = torch.randn(3, 4, 10, 17)
    assert torch.equal(made(x, POOLED[:3]), reference(x, POOLED[:3]))
    at = sol.optimize(Function(lambda x, r: torch.ops.torchvision.roi_pool(x, r, 0.7, 3, 2)))(x, POOLED)[1]
    assert at.dtype == torch.int32 and torch.equal(at < 0, reference(torch.ones_like(x), POOLED) == 0)


@pytest.mark.parametrize("vdims", [False, True])
def test_ps_roi_pool(vdims):
    def function(x, rois):
        return torch.ops.torchvision.ps_roi_pool(x, rois, 0.7, 3, 2)[0]

    def mean(s, i, j):
        s = s[2 * i + j :: 6]
        return s.mean(1) if s.shape[1] else s.sum(1)

    def reference(x, rois):
        return pools(x, rois, 0.7, 3, 2, False, mean)

    made = assert_equal(function, reference, torch.randn(2, 12, 12, 14), POOLED, vdims=vdims)
    x = torch.randn(2, 12, 10, 17)
    assert error(made(x, POOLED[:3]), reference(x, POOLED[:3])) < 1e-6


@pytest.mark.parametrize("ratio", [2, -1])
def test_ps_roi_align(torchvision, ratio):
    def function(x, rois):
        return torch.ops.torchvision.ps_roi_align(x, rois, 0.7, 3, 2, ratio)[0]

    def reference(x, rois):
        y = torchvision.ops.roi_align.__globals__["_roi_align"](x, rois, 0.7, 3, 2, ratio, True)
        y = y.view(len(rois), -1, 3, 2, 3, 2)
        return torch.stack([y[:, :, i, j, i, j] for i in range(3) for j in range(2)], 2).view(len(rois), -1, 3, 2)

    assert_equal(function, reference, torch.randn(2, 12, 12, 14), BOXES[:4], vdims=True)
    _, channels = sol.optimize(Function(lambda x, r: torch.ops.torchvision.ps_roi_align(x, r, 0.7, 3, 2, ratio)))(
        torch.randn(2, 12, 12, 14), BOXES[:4]
    )
    assert torch.equal(channels[3], torch.arange(12, dtype=torch.int32).view(2, 3, 2))


def convolved(x, weight, offset, mask, bias, stride, padding, dilation, groups, parts):
    """By one `grid_sample` for each tap and group of offsets."""
    n, channels, height, width = x.shape
    out, _, kh, kw = weight.shape
    rows, columns = offset.shape[2:]
    at = offset.view(n, parts, kh * kw, 2, rows, columns)
    taps = []
    for k in range(kh * kw):
        y0 = torch.arange(rows)[:, None] * stride - padding + k // kw * dilation
        x0 = torch.arange(columns) * stride - padding + k % kw * dilation
        for p, part in enumerate(x.chunk(parts, 1)):
            y, w = at[:, p, k, 0] + y0, at[:, p, k, 1] + x0
            grid = torch.stack([2 * w / (width - 1) - 1, 2 * y / (height - 1) - 1], -1)
            read = F.grid_sample(part, grid, align_corners=True)
            taps.append(read * mask.view(n, parts, kh * kw, rows, columns)[:, p, k, None] if mask is not None else read)
    image = torch.stack(taps).view(kh * kw, parts, n, channels // parts, rows, columns).permute(2, 1, 3, 0, 4, 5)
    return F.conv2d(
        image.reshape(n, channels * kh * kw, rows, columns), weight.reshape(out, -1, 1, 1), bias, groups=groups
    )


@pytest.mark.parametrize("parts, groups, masked", [(1, 1, True), (2, 1, False), (2, 2, True)])
@pytest.mark.parametrize("vdims", [False, True])
def test_deform_conv2d(parts, groups, masked, vdims):
    def function(x, weight, offset, mask, bias):
        return torch.ops.torchvision.deform_conv2d(
            x, weight, offset, mask, bias, 2, 2, 1, 1, 1, 1, groups, parts, masked
        )

    def reference(x, weight, offset, mask, bias):
        return convolved(x, weight, offset, mask if masked else None, bias, 2, 1, 1, groups, parts)

    x, weight, bias = torch.randn(2, 4, 12, 14), torch.randn(6, 4 // groups, 3, 3), torch.randn(6)
    offset, mask = 2 * torch.randn(2, parts * 18, 6, 7), torch.rand(2, parts * 9, 6, 7)
    assert_equal(
        function,
        reference,
        x,
        weight,
        offset,
        mask,
        bias,
        differentiated=(0, 1, 2, 3, 4) if masked else (0, 1, 2, 4),
        vdims=vdims,
    )
