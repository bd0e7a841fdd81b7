"""Networks with all free dimensions open, at five sizes each, forward and backward, against float64; and how many programs that takes.

`make test` runs a sample, `make test-all` every network of networks.py, zoo.py and families.py.
"""

import copy

import dims_help
import families
import pytest
import sol
from every_network import ALL, assert_gradients, assert_gradients_in_double, assert_results, made
from torch_help import to_double

SAMPLE = ("linear", "gpt_rotary", "lstm", "tcn", "pointnet", "twins", "experts", "table", "bert (masked LM)")
TRAINED = ("linear", "experts")
PICTURE = (96, 128)  # where a network takes any

# Networks that need more than one program for the five sizes, and why.
ONES = "a batch of 1 has a graph of its own: its values are broadcast"
WIDE = "the model compares height and width: a wide picture has a trace of its own, and so has a batch of one of these"
PATCHES = "positions are learned for 16 patches: the sizes of pictures with as many are numbers"
FRAMES = "eight frames are one at the end, which PyTorch treats apart: each number of frames is compiled"
PROGRAMS = {
    "xlnet": (2, ONES),
    "time-series": (2, ONES),
    "swin": (2, WIDE),
    "swinv2": (2, WIDE),
    "siglip (vision)": (2, PATCHES),
    "siglip": (2, PATCHES),
    "blip": (2, PATCHES),
    "pvt": (2, PATCHES),
    "levit": (2, PATCHES),
    "ast": (2, PATCHES),
    "dinov2": (2, PATCHES),
    "mvit_v2_s": (2, "positions are learned for 8 x 56 x 56 patches: the sizes of pictures with as many are numbers"),
    "mobilevit": (2, "pictures whose patches are not whole are resized: each size has a table"),
    "efficientnet": (
        3,
        "the kernel of the last pool is 320 wide, so its result is one pixel for the example's size alone",
    ),
    "raft_small": (4, "two batches of pictures become one, which is halved again: that both are equal is not proven"),
    "inception_v3": (
        3,
        "the example's last maps are one pixel high, which PyTorch treats apart: each height is compiled",
    ),
    "r3d_18": (2, FRAMES),
    "r2plus1d_18": (2, FRAMES),
    "git": (5, "batches of words and of pictures need not be equal: products of both are not proven to be"),
    "fnet": (5, "the Fourier transform of a length is a product with a table of that size"),
}
# Dimensions that are not opened, and why.
VDIMS = {
    "vit-mae": (
        [True, False, True],
        "PyTorch takes noise for as many patches as the pictures have, which are of one size",
    )
}
# Networks of which no trace is possible with sizes that vary, and why: each size is compiled.
EACH = {
    "xlm": "forward reads values",
    "longformer": "forward reads values",
    "led": "forward reads values",
    "vilt": "forward reads values",
    "encodec": "forward reads values",
    "rwkv": "attributes that forward sets",
    "llava": "attributes that forward sets",
    "reformer": "forward reads values",
    "switch": r"SwitchTransformersExperts \S*mlp\.experts \(modeling_switch_transformers\.py:\d+\) decides by a size that depends on data",
    "dbrx": r"DbrxExperts \S*ffn\.experts \(modeling_dbrx\.py:\d+\) decides by a size that depends on data",
    "nystromformer": "must match the size of tensor",  # its mean over segments is of the example's length
}


@pytest.fixture(autouse=True)
def untuned(torchvision, monkeypatch):
    monkeypatch.setitem(sol.config, "autotune", "off")


def check(name, torchvision, compare):
    """One program serves five sizes, or as many as the table has."""
    model, args, kwargs = made(name, torchvision, PICTURE)
    if name in EACH:
        with pytest.raises(sol.UnsupportedError, match=EACH[name]):
            sol.dims(model, *args, **kwargs)
        return
    vdims = VDIMS.get(name, (True, ""))[0]
    optimized, double = sol.optimize(copy.deepcopy(model), *args, vdims=vdims, **kwargs), families.plain(model).double()
    model = families.plain(model)
    for sizes in dims_help.chosen(optimized, vdims):
        compare(optimized, model, double, dims_help.resized(optimized, args, kwargs, sizes))
    ran = [p for p in optimized._sol.programs.values() if (p.gradient is not None) == (compare is assert_gradients)]
    assert len(ran) == PROGRAMS.get(name, (1, ""))[0]
    assert not [p.net.peak for p in ran if "* 0B" in p.net.peak]


def rows(sample):
    return [pytest.param(n, marks=() if n in sample else pytest.mark.slow) for n in ALL]


@pytest.mark.parametrize("name", rows(SAMPLE))
def test_forward(name, torchvision):
    check(name, torchvision, assert_results)


@pytest.mark.parametrize("name", [r for r in rows(TRAINED) if r.values[0] not in families.TRAINED_ONLY])
def test_backward(name, torchvision):
    check(name, torchvision, assert_gradients)


@pytest.mark.slow
def test_backward_in_double(torchvision):
    """In float32, activations on the other side of a kink than in float64 change GoogLeNet's gradients by 1e-3, in PyTorch as in SOL."""
    model, args, _ = made("googlenet", torchvision, PICTURE)
    model, args = families.plain(model).double(), to_double(args)
    optimized = sol.optimize(copy.deepcopy(model), *args, vdims=True)
    for sizes in dims_help.chosen(optimized, True):
        assert_gradients_in_double(optimized, model, dims_help.resized(optimized, args, {}, sizes))
