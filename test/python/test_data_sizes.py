"""Sizes that depend on data, in inference: one program sets them while it runs, for whatever a call finds."""

import pytest
import sol
import torch
from torch import nn
from torch.utils import _pytree as pytree


def overlapping(boxes, scores, threshold):
    """torchvision's operator, box by box."""
    area, kept = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]), []
    for i in scores.argsort(stable=True, descending=True).tolist():
        low, high = torch.maximum(boxes[kept, :2], boxes[i, :2]), torch.minimum(boxes[kept, 2:], boxes[i, 2:])
        common = (high - low).clamp(min=0).prod(1)
        if not (common / (area[kept] + area[i] - common) > threshold).any():
            kept.append(i)
    return torch.tensor(kept, dtype=torch.int64)


@pytest.fixture(scope="module")
def nms(torchvision):
    """Gives the operator to PyTorch: torchvision's wheel has its code for other builds of torch."""
    library = torch.library.Library("torchvision", "IMPL")
    library.impl("nms", overlapping, "CPU")
    yield
    library._destroy()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setitem(sol.config, "autotune", "off")


def agrees(f, *calls, programs=1, **options):
    """PyTorch's results in all calls, and the number of programs."""
    model = sol.optimize(f, *calls[0], **options)
    for call in calls:
        got, want = pytree.tree_leaves(model(*call)), pytree.tree_leaves(f(*call))
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            if isinstance(b, torch.Tensor):
                torch.testing.assert_close(a, b, equal_nan=True)
                assert a.stride() == b.stride() or b.numel() < 2 or 1 in b.shape
            else:
                assert type(a) is type(b) and a == b
    assert len(model._sol.programs) == programs
    return model


def real(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


X = real(5, 6)
CALLS = [(X,), (X - 9,), (X + 9,), (X + 1,)]  # some, none, all, more
CASES = {
    "nonzero": lambda x: (x > 0).nonzero() + 1,
    "as tuple": lambda x: (x > 0).nonzero(as_tuple=True),
    "where": lambda x: torch.where(x > 0),
    "argwhere": lambda x: torch.argwhere(x > 0),
    "mask": lambda x: x[x > 0].exp(),
    "rows": lambda x: x[x[:, 0] > 0] @ torch.ones(6, 3),
    "columns": lambda x: x[:, x[0] > 0].relu(),
    "masked_select": lambda x: x.masked_select(x > 0) * 2,
    "masked_select of rows": lambda x: x.masked_select(x[:, :1] > 0),
    "numbers of elements": lambda x: (x[x > 0].shape[0], x[x > 1].numel() * 2, (x > 2).nonzero()),
    "reductions": lambda x: (x[x > 0].sum(), x[x > 0].mean(), torch.softmax(x[x > 0], 0), x[x > 0].sort()),
    "two parts": lambda x: torch.cat([x[x > 0], x[x <= 0]]),
    "what lies behind": lambda x: (lambda n: (x[:n] * 2, x[n:] * 3, x.flatten()[n:].exp()))(
        (x[:, 0] > 0).nonzero().shape[0]
    ),
    "a mask of what a mask left": lambda x: (lambda y: y[y > 1])(x[x > 0]),
    "one size": lambda x: x[x > 0] + x.abs()[x > 0],
    "views": lambda x: (lambda y: (y.T, y.view(-1), y.reshape(-1, 2, 3)))(x[x[:, 0] > 0]),
    "unique": lambda x: torch.unique(x.round(), return_inverse=True, return_counts=True),
    "unique of NaN": lambda x: torch.unique((x.round() - 1).sqrt()),
    "unique rows": lambda x: torch.unique((x > 0).float(), dim=0, return_inverse=True, return_counts=True),
    "unique columns": lambda x: torch.unique(x > 0, dim=1),
}


@pytest.mark.parametrize("name", CASES)
def test_one_program(name):
    agrees(CASES[name], *CALLS)


def detected(boxes, scores):
    """Boxes of several classes whose score is high enough and that no better one of their class overlaps."""
    best, label = scores.max(1)
    hit = best > 0.5
    boxes, best, label = boxes[hit], best[hit], label[hit]
    kept = torch.ops.torchvision.nms(boxes + label[:, None] * 100, best, 0.4)
    return boxes[kept], best[kept], label[kept], kept.shape[0]


@pytest.mark.parametrize("vdims", [None, True])
@pytest.mark.usefixtures("nms")
def test_detection(vdims):
    calls = []
    for n, most in ((40, 1.0), (40, 0.4), (40, 0.6), (40 if vdims is None else 70, 0.8)):
        torch.manual_seed(n)
        corner = torch.rand(n, 2) * 9
        scores = (torch.rand(n, 3) * most * 16).round() / 16  # with ties
        calls.append((torch.cat([corner, corner + torch.rand(n, 2) * 5], 1), scores))
    agrees(detected, *calls, vdims=vdims)


@pytest.mark.usefixtures("nms")
def test_batched_nms(monkeypatch):
    """It decides by the number of its boxes how it keeps classes apart."""
    from torchvision.ops import batched_nms, boxes

    monkeypatch.setattr(boxes, "_assert_has_ops", lambda: None)
    before = batched_nms.__code__

    def f(boxes, scores):
        best, label = scores.max(1)
        hit = best > 0.5
        kept = batched_nms(boxes[hit], best[hit], label[hit], 0.4)
        return boxes[hit][kept], label[hit][kept]

    calls = []
    for most in (1.0, 0.4, 0.6, 0.8):
        corner = real(40, 2).abs() * 5
        calls.append((torch.cat([corner, corner + real(40, 2).abs() * 3], 1), torch.rand(40, 3) * most))
    agrees(f, *calls)
    assert batched_nms.__code__ is before


def test_sizes_that_vary_too():
    def f(x):
        y = x[x[:, 0] > 0]
        return y.relu() + 1, y.shape

    agrees(f, *[(real(n, 6),) for n in (5, 7, 2, 33)], vdims=True)


def test_two_masks_that_must_find_as_many():
    def f(x, a, b):
        return x[a] + x[b]

    mask = X > 0
    model = agrees(f, (X, mask, mask), (X, mask, mask.flip(0)))
    with pytest.raises(sol.Error, match=rf"NonZero.*it finds 30 elements, expected {int(mask.sum())}, as many as"):
        model(X, mask, torch.ones(5, 6, dtype=torch.bool))
    torch.testing.assert_close(model(X, mask, mask), f(X, mask, mask))


def test_few_of_many_keep_little_memory():
    model = sol.optimize(lambda x: x[x > 0], torch.ones(1 << 16))
    found = model(torch.nn.functional.one_hot(torch.tensor(7), 1 << 16).float())
    assert found.shape == (1,)
    assert found.untyped_storage().nbytes() < 1024


def test_any_number_of_threads_gives_the_same_bits():
    weight, x = real(64, 33), real(300, 64)
    model = sol.optimize(lambda x, w: (x[x[:, 0] > 0] @ w).mean(0), x, weight)
    before = torch.get_num_threads()
    try:
        results = []
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            results.append([model(x - shift, weight) for shift in (-9, 0, 1.5)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert [y.numpy().tobytes() for y in other] == [y.numpy().tobytes() for y in results[0]]


def test_training_reads_the_size():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 6), Positive(), nn.Linear(6, 2)), real(20, 6)
    optimized = sol.optimize(model, x)
    for shift in (0, 1):
        got, want = optimized(x + shift), model(x + shift)
        torch.testing.assert_close(got, want)
        mine, theirs = (torch.autograd.grad(y.sum(), model[0].weight)[0] for y in (got, want))
        torch.testing.assert_close(mine, theirs)


class Positive(nn.Module):
    """Rows that begin with a positive number."""

    def forward(self, x):
        return x[x[:, 0] > 0]


def test_what_needs_a_number_reads_the_size(capfd, monkeypatch):
    def f(x):
        y = x[x > 0]
        return y[: len(y) // 2].sum() if len(y) > 3 else y

    monkeypatch.setitem(sol.config, "log::level", "info")
    model = sol.optimize(f, X)
    assert "sizes that depend on data are values of the program" in "".join(capfd.readouterr())
    for x in (X, X - 9, X + 9):
        torch.testing.assert_close(model(x), f(x))
