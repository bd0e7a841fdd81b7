"""Networks of the packages transformers and timm, small and with random weights, where the packages are installed:
`sh tools/setup.sh all` does that, and `make test-all` calls it.
"""

import os

import networks
import pytest
import sol
import torch
from torch_help import TIMES_WINOGRAD, check

os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytestmark = pytest.mark.slow

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
TEXT = {**SMALL, "vocab_size": 100, "max_position_embeddings": 64}
GROUPED = {**TEXT, "num_key_value_heads": 2}
PICTURE = {**SMALL, "image_size": 32, "patch_size": 8}
PAIR = {
    "vocab_size": 100, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
}  # fmt: skip


def ids(length=10):
    return torch.randint(3, 100, (2, length))


def words(**more):
    return lambda: {"input_ids": ids(), **more}


def masked():
    return {"input_ids": ids(), "attention_mask": torch.tensor([[1] * 10, [1] * 6 + [0] * 4])}


def picture(size=32):
    return lambda: {"pixel_values": torch.randn(2, 3, size, size)}


def _pair():
    return {"input_ids": ids(), "decoder_input_ids": ids(7), "use_cache": False}


PYRAMID = {"hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 1, 1]}
WINDOWS = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
TRANSFORMERS = {  # name -> model's class, what its configuration changes, arguments
    "bert": ("BertModel", TEXT, masked),
    "bert classifier": ("BertForSequenceClassification", TEXT, masked),
    "bert by hand": ("BertModel", {**TEXT, "attn_implementation": "eager"}, masked),
    "roberta": ("RobertaModel", TEXT, words()),
    "distilbert": ("DistilBertModel", {"vocab_size": 100, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128}, masked),
    "albert": ("AlbertModel", {**TEXT, "embedding_size": 32}, words()),
    "electra": ("ElectraModel", {**TEXT, "embedding_size": 32}, words()),
    "deberta": ("DebertaV2Model", {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8}, words()),
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": 100, "n_embd": 64, "n_layer": 2, "n_head": 4}, words(use_cache=False)),
    "neox": ("GPTNeoXModel", TEXT, words(use_cache=False)),
    "bloom": ("BloomModel", {"vocab_size": 100, "hidden_size": 64, "n_layer": 2, "n_head": 4}, words(use_cache=False)),
    "llama": ("LlamaForCausalLM", GROUPED, lambda: {**masked(), "use_cache": False}),
    "mistral": ("MistralForCausalLM", {**GROUPED, "sliding_window": 4}, words(use_cache=False)),
    "qwen2": ("Qwen2ForCausalLM", GROUPED, words(use_cache=False)),
    "qwen3": ("Qwen3ForCausalLM", {**GROUPED, "head_dim": 16}, words(use_cache=False)),
    "gemma": ("GemmaForCausalLM", {**GROUPED, "head_dim": 16}, words(use_cache=False)),
    "phi": ("PhiForCausalLM", TEXT, words(use_cache=False)),
    "t5": ("T5Model", {"vocab_size": 100, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}, _pair),
    "bart": ("BartModel", {**PAIR, "max_position_embeddings": 64}, words(use_cache=False)),
    "whisper": (
        "WhisperModel",
        {**PAIR, "max_source_positions": 30, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
        lambda: {"input_features": torch.randn(2, 80, 60), "decoder_input_ids": ids(7), "use_cache": False},
    ),
    "mamba": ("MambaModel", {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}, words(use_cache=False)),
    "vit": ("ViTForImageClassification", PICTURE, picture()),
    "deit": ("DeiTModel", PICTURE, picture()),
    "beit": ("BeitModel", PICTURE, picture()),
    "dinov2": ("Dinov2Model", PICTURE, picture()),
    "siglip": ("SiglipVisionModel", PICTURE, picture()),
    "clip": ("CLIPVisionModel", PICTURE, picture()),
    "swin": ("SwinModel", WINDOWS, picture()),
    "swinv2": ("Swinv2Model", WINDOWS, picture()),
    "segformer": ("SegformerModel", {**PYRAMID, "num_attention_heads": [1, 2, 4, 4]}, picture(64)),
    "fnet": ("FNetModel", {**SMALL, "vocab_size": 100, "max_position_embeddings": 64}, words()),
    "convnext": ("ConvNextModel", PYRAMID, picture(64)),
    "convnextv2": ("ConvNextV2Model", PYRAMID, picture(64)),
    "poolformer": ("PoolFormerModel", PYRAMID, picture(64)),
}  # fmt: skip
REFUSED = {  # and what the message says
    "mixtral": ("MixtralForCausalLM", {**GROUPED, "num_local_experts": 4}, words(use_cache=False), "grouped_mm"),
}  # fmt: skip


def make(row):
    transformers = pytest.importorskip("transformers")
    kind = getattr(transformers, row[0])
    torch.manual_seed(0)
    return networks.enliven(kind(kind.config_class(**row[1]))), row[2]()


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers(name, torchvision):
    model, kwargs = make(TRANSFORMERS[name])
    check(sol.optimize(model, **kwargs), model, (), kwargs, times=TIMES_WINOGRAD)


@pytest.mark.parametrize("name", REFUSED)
def test_transformers_refused(name, torchvision):
    model, kwargs = make(REFUSED[name])
    with pytest.raises(sol.UnsupportedError, match=REFUSED[name][3]):
        sol.optimize(model, **kwargs)


TIMM = {  # one of each family: pixels
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
