"""Networks of the package timm with random weights, where it is installed: `sh tools/setup.sh all` does that, and
`make test-all` calls it.
"""

import networks
import pytest
import sol
import torch
from torch_help import TIMES_WINOGRAD, check

pytestmark = pytest.mark.slow


TIMM = {  # one of each family: image size
    "mobilevit_xxs": 128, "levit_128s": 224, "efficientformer_l1": 224, "mixer_s32_224": 224, "pit_ti_224": 224, "cait_xxs24_224": 224,
    "resmlp_12_224": 224, "ghostnet_050": 64, "hrnet_w18_small": 64, "dla34": 64, "dm_nfnet_f0": 64, "coat_tiny": 224,
    "convmixer_768_32": 64, "poolformer_s12": 64, "repvgg_a0": 64, "skresnet18": 64, "efficientvit_b0": 64,
}  # fmt: skip


@pytest.mark.parametrize("name", TIMM)
def test_timm(name, torchvision):
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model, x = networks.enliven(timm.create_model(name, num_classes=10)), torch.randn(1, 3, TIMM[name], TIMM[name])
    check(sol.optimize(model, x), model, (x,), times=TIMES_WINOGRAD)
