"""Small models with random weights of the families of Hugging Face's transformers: nothing is downloaded.

`python families.py` writes docs/huggingface.md of the two tables; test_huggingface.py tries each row.
"""

import copy
import os
from importlib.metadata import version
from pathlib import Path

import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
TEXT = {
    **SMALL,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**TEXT, "num_key_value_heads": 2}
HEADS = {**GROUPED, "head_dim": 16}
EXPERTS = {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
PICTURE = {**SMALL, "image_size": 32, "patch_size": 8}
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
PAIR = {
    "vocab_size": 100, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "max_position_embeddings": 64, **ENDS,
}  # fmt: skip
T5 = {
    "vocab_size": 100,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
PYRAMID = {"hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 1, 1]}
WINDOWS = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
SPEECH = {**SMALL, "vocab_size": 40, "conv_dim": (16, 16), "conv_stride": (5, 4), "conv_kernel": (10, 8), "num_feat_extract_layers": 2,
          "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}  # fmt: skip
GPT2 = {
    "vocab_size": 100,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
DUAL = {"text_config": TEXT, "vision_config": PICTURE}


def ids(length=10):
    return torch.randint(3, 100, (2, length))


def words(**more):
    return lambda: {"input_ids": ids(), **more}


def masked(**more):
    return lambda: {"input_ids": ids(), "attention_mask": torch.tensor([[1] * 10, [1] * 6 + [0] * 4]), **more}


def picture(size=32, **more):
    return lambda: {"pixel_values": torch.randn(2, 3, size, size), **more}


def pair(**more):
    return lambda: {"input_ids": ids(), "decoder_input_ids": ids(7), **more}


def masked_pair():
    return {**masked()(), "decoder_input_ids": ids(7), "decoder_attention_mask": torch.ones(2, 7, dtype=torch.long)}


def sound(samples=800):
    return lambda: {"input_values": torch.randn(2, samples)}


def both():
    return {**masked()(), **picture()()}


def boxes():
    return {"input_ids": ids(), "bbox": torch.tensor([[[10, 20, 30, 40]] * 10] * 2)}


def listened():
    return {"input_features": torch.randn(2, 80, 60), "decoder_input_ids": ids(7)}


FAMILIES = {  # class, changes of its configuration, arguments of a call
    # text encoders
    "bert": ("BertModel", TEXT, masked()),
    "bert (eager attention)": ("BertModel", {**TEXT, "attn_implementation": "eager"}, masked()),
    "bert (classifier)": ("BertForSequenceClassification", TEXT, lambda: {**masked()(), "labels": torch.tensor([0, 1])}),
    "bert (masked LM)": ("BertForMaskedLM", TEXT, lambda: {**masked()(), "labels": ids()}),
    "roberta": ("RobertaModel", TEXT, words()),
    "distilbert": ("DistilBertModel", {"vocab_size": 100, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128}, masked()),
    "albert": ("AlbertModel", {**TEXT, "embedding_size": 32}, words()),
    "electra": ("ElectraModel", {**TEXT, "embedding_size": 32}, words()),
    "camembert": ("CamembertModel", TEXT, masked()),
    "xlm-roberta": ("XLMRobertaModel", TEXT, masked()),
    "deberta": ("DebertaModel", {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}, words()),
    "deberta-v2": ("DebertaV2Model", {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8}, words()),
    "mpnet": ("MPNetModel", TEXT, words()),
    "xlnet": ("XLNetModel", {"vocab_size": 100, "d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 128}, words()),
    "xlm": ("XLMModel", {"vocab_size": 100, "emb_dim": 64, "n_layers": 2, "n_heads": 4}, words()),
    "longformer": ("LongformerModel", {**TEXT, "attention_window": [4, 4]}, masked()),
    "bigbird": ("BigBirdModel", {**TEXT, "attention_type": "original_full"}, words()),
    "bigbird (sparse)": ("BigBirdModel", {**TEXT, "max_position_embeddings": 128, "attention_type": "block_sparse", "block_size": 8, "num_random_blocks": 2},
                         lambda: {"input_ids": ids(96)}),
    "reformer": ("ReformerModel", {"vocab_size": 100, "hidden_size": 64, "num_attention_heads": 4, "attention_head_size": 16, "feed_forward_size": 128,
                                   "attn_layers": ["local", "local"], "axial_pos_shape": [4, 4], "axial_pos_embds_dim": [32, 32], "local_attn_chunk_length": 4,
                                   "is_decoder": False},
                 lambda: {"input_ids": ids(16)}),
    "funnel": ("FunnelModel", {"vocab_size": 100, "block_sizes": [1, 1], "d_model": 64, "n_head": 4, "d_head": 16, "d_inner": 128, "num_decoder_layers": 1}, words()),
    "fnet": ("FNetModel", {**SMALL, "vocab_size": 100, "max_position_embeddings": 64}, words()),
    "mobilebert": ("MobileBertModel", {**TEXT, "embedding_size": 32, "intra_bottleneck_size": 32, "num_feedforward_networks": 2}, words()),
    "squeezebert": ("SqueezeBertModel", {**TEXT, "embedding_size": 64}, words()),
    "convbert": ("ConvBertModel", {**TEXT, "embedding_size": 64, "conv_kernel_size": 3}, words()),
    "rembert": ("RemBertModel", {**TEXT, "input_embedding_size": 32, "output_embedding_size": 64}, words()),
    "roformer": ("RoFormerModel", {**TEXT, "embedding_size": 64}, words()),
    "nystromformer": ("NystromformerModel", {**TEXT, "num_landmarks": 5, "segment_means_seq_len": 10}, words()),
    "layoutlm": ("LayoutLMModel", TEXT, boxes),
    "splinter": ("SplinterModel", TEXT, words()),
    "modernbert": ("ModernBertModel", {**TEXT, "global_attn_every_n_layers": 2, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2}, words()),
    "esm": ("EsmModel", {**TEXT, "mask_token_id": 3}, words()),
    "ernie": ("ErnieModel", TEXT, words()),
    "megatron-bert": ("MegatronBertModel", TEXT, words()),
    # text decoders
    "gpt2": ("GPT2LMHeadModel", GPT2, words()),
    "gpt-neo": ("GPTNeoModel", {"vocab_size": 100, "hidden_size": 64, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
                                "max_position_embeddings": 64, "window_size": 4}, words()),
    "gpt-neox": ("GPTNeoXModel", TEXT, words()),
    "gpt-j": ("GPTJModel", {**GPT2, "rotary_dim": 8}, words()),
    "gpt-bigcode": ("GPTBigCodeModel", GPT2, words()),
    "codegen": ("CodeGenModel", {**GPT2, "rotary_dim": 8}, words()),
    "ctrl": ("CTRLModel", {"vocab_size": 100, "n_embd": 64, "n_layer": 2, "n_head": 4, "dff": 128, "n_positions": 64}, words()),
    "openai-gpt": ("OpenAIGPTModel", GPT2, words()),
    "bloom": ("BloomModel", {"vocab_size": 100, "hidden_size": 64, "n_layer": 2, "n_head": 4}, words()),
    "opt": ("OPTModel", {**TEXT, "ffn_dim": 128, "word_embed_proj_dim": 64}, words()),
    "mpt": ("MptModel", {"vocab_size": 100, "d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": 64}, words()),
    "falcon": ("FalconModel", TEXT, words()),
    "llama": ("LlamaForCausalLM", GROUPED, masked()),
    "llama (loss)": ("LlamaForCausalLM", GROUPED, lambda: {**masked()(), "labels": ids()}),
    "mistral": ("MistralForCausalLM", {**GROUPED, "sliding_window": 4}, words()),
    "ministral": ("MinistralForCausalLM", {**HEADS, "sliding_window": 4}, words()),
    "qwen2": ("Qwen2ForCausalLM", GROUPED, words()),
    "qwen3": ("Qwen3ForCausalLM", HEADS, words()),
    "gemma": ("GemmaForCausalLM", HEADS, words()),
    "gemma2": ("Gemma2ForCausalLM", {**HEADS, "sliding_window": 4}, words()),
    "gemma3": ("Gemma3ForCausalLM", {**HEADS, "sliding_window": 4}, words()),
    "phi": ("PhiForCausalLM", TEXT, words()),
    "phi3": ("Phi3ForCausalLM", GROUPED, words()),
    "stablelm": ("StableLmForCausalLM", GROUPED, words()),
    "olmo": ("OlmoForCausalLM", GROUPED, words()),
    "olmo2": ("Olmo2ForCausalLM", GROUPED, words()),
    "granite": ("GraniteForCausalLM", GROUPED, words()),
    "cohere": ("CohereForCausalLM", GROUPED, words()),
    "cohere2": ("Cohere2ForCausalLM", {**GROUPED, "sliding_window": 4}, words()),
    "starcoder2": ("Starcoder2ForCausalLM", GROUPED, words()),
    "persimmon": ("PersimmonForCausalLM", TEXT, words()),
    "glm": ("GlmForCausalLM", HEADS, words()),
    "nemotron": ("NemotronForCausalLM", GROUPED, words()),
    "smollm3": ("SmolLM3ForCausalLM", GROUPED, words()),
    "xglm": ("XGLMModel", {"vocab_size": 100, "d_model": 64, "num_layers": 2, "attention_heads": 4, "ffn_dim": 128, "max_position_embeddings": 64}, words()),
    "biogpt": ("BioGptModel", TEXT, words()),
    # mixtures of experts
    "mixtral": ("MixtralForCausalLM", {**GROUPED, "num_local_experts": 4}, words()),
    "qwen2-moe": ("Qwen2MoeForCausalLM", {**EXPERTS, "shared_expert_intermediate_size": 64}, words()),
    "qwen3-moe": ("Qwen3MoeForCausalLM", {**EXPERTS, "head_dim": 16}, words()),
    "phimoe": ("PhimoeForCausalLM", {**GROUPED, "num_local_experts": 4}, words()),
    "olmoe": ("OlmoeForCausalLM", {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2}, words()),
    "granite-moe": ("GraniteMoeForCausalLM", {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}, words()),
    "dbrx": ("DbrxForCausalLM", {"vocab_size": 100, "d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 64,
                                 "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
                                 "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 64}}, words()),
    "deepseek-v3": ("DeepseekV3ForCausalLM", {**TEXT, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 2, "topk_group": 1,
                                              "first_k_dense_replace": 1, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
                                              "v_head_dim": 16, "num_key_value_heads": 4}, words()),
    "gpt-oss": ("GptOssForCausalLM", {**HEADS, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4}, words()),
    "switch": ("SwitchTransformersModel", {**T5, "dropout_rate": 0.0, "num_experts": 4, "expert_capacity": 8, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}, masked_pair),
    # state space models and other recurrences
    "mamba": ("MambaModel", {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}, words()),
    "mamba2": ("Mamba2Model", {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2,
                               "chunk_size": 8}, words()),
    "rwkv": ("RwkvModel", {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "context_length": 64}, words()),
    "jamba": ("JambaForCausalLM", {**GROUPED, "num_experts": 2, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 8, "mamba_dt_rank": 4,
                                   "use_mamba_kernels": False}, words()),
    "falcon-mamba": ("FalconMambaModel", {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}, words()),
    "recurrent-gemma": ("RecurrentGemmaModel", {**GROUPED, "lru_width": 64, "attention_window_size": 8, "block_types": ["recurrent", "attention"]}, words()),
    # encoder-decoder models
    "t5": ("T5Model", T5, pair()),
    "mt5": ("MT5Model", T5, pair()),
    "umt5": ("UMT5Model", T5, pair()),
    "longt5": ("LongT5Model", {**T5, "local_radius": 3}, masked_pair),
    "bart": ("BartModel", PAIR, words()),
    "mbart": ("MBartModel", PAIR, words()),
    "pegasus": ("PegasusModel", PAIR, pair()),
    "marian": ("MarianModel", {**PAIR, "forced_eos_token_id": 2}, pair()),
    "blenderbot": ("BlenderbotModel", PAIR, pair()),
    "m2m100": ("M2M100Model", PAIR, pair()),
    "led": ("LEDModel", {**PAIR, "attention_window": 4, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64}, pair()),
    "prophetnet": ("ProphetNetModel", {"vocab_size": 100, "hidden_size": 64, "num_encoder_layers": 2, "num_decoder_layers": 2, "num_encoder_attention_heads": 4,
                                       "num_decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "max_position_embeddings": 64}, pair()),
    # images
    "vit": ("ViTForImageClassification", PICTURE, picture()),
    "deit": ("DeiTModel", PICTURE, picture()),
    "beit": ("BeitModel", PICTURE, picture()),
    "dinov2": ("Dinov2Model", PICTURE, picture()),
    "siglip (vision)": ("SiglipVisionModel", PICTURE, picture()),
    "clip (vision)": ("CLIPVisionModel", PICTURE, picture()),
    "swin": ("SwinModel", WINDOWS, picture()),
    "swinv2": ("Swinv2Model", WINDOWS, picture()),
    "convnext": ("ConvNextModel", PYRAMID, picture(64)),
    "convnextv2": ("ConvNextV2Model", PYRAMID, picture(64)),
    "segformer": ("SegformerModel", {**PYRAMID, "num_attention_heads": [1, 2, 4, 4]}, picture(64)),
    "poolformer": ("PoolFormerModel", PYRAMID, picture(64)),
    "pvt": ("PvtModel", {"image_size": 32, "hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 4, 4]}, picture()),
    "regnet": ("RegNetModel", {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "groups_width": 8}, picture()),
    "resnet": ("ResNetModel", {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]}, picture()),
    "mobilevit": ("MobileViTModel", {"image_size": 64, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32], "num_attention_heads": 4}, picture(64)),
    "mobilenet-v2": ("MobileNetV2Model", {"depth_multiplier": 0.35}, picture()),
    "efficientnet": ("EfficientNetModel", {"width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320}, picture(64)),
    "cvt": ("CvtModel", {"embed_dim": [16, 32], "num_heads": [1, 2], "depth": [1, 2], "patch_sizes": [7, 3], "patch_stride": [4, 2], "patch_padding": [2, 1],
                         "mlp_ratio": [2.0, 2.0], "attention_drop_rate": [0.0, 0.0], "drop_rate": [0.0, 0.0], "drop_path_rate": [0.0, 0.0], "qkv_bias": [True, True],
                         "cls_token": [False, True], "qkv_projection_method": ["dw_bn", "dw_bn"], "kernel_qkv": [3, 3], "padding_kv": [1, 1], "stride_kv": [2, 2],
                         "padding_q": [1, 1], "stride_q": [1, 1]}, picture(64)),
    "levit": ("LevitModel", {"image_size": 64, "hidden_sizes": [32, 48, 64], "num_attention_heads": [2, 3, 4], "depths": [1, 1, 1], "key_dim": [8, 8, 8]}, picture(64)),
    "detr": ("DetrModel", {"backbone_config": {"model_type": "resnet", "embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "out_features": ["stage2"]},
                           "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
                           "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_queries": 5}, picture(64)),
    "yolos": ("YolosModel", {**PICTURE, "image_size": [32, 32], "num_detection_tokens": 5}, picture()),
    "dpt": ("DPTModel", {**PICTURE, "is_hybrid": False, "backbone_out_indices": [0, 1, 1, 1]}, picture()),
    "vit-mae": ("ViTMAEModel", {**PICTURE, "mask_ratio": 0.5}, lambda: {**picture()(), "noise": torch.rand(2, 16)}),
    "videomae": ("VideoMAEModel", {**PICTURE, "num_frames": 4}, lambda: {"pixel_values": torch.randn(2, 4, 3, 32, 32)}),
    # sound
    "wav2vec2": ("Wav2Vec2Model", SPEECH, sound()),
    "wav2vec2 (no SpecAugment)": ("Wav2Vec2Model", {**SPEECH, "apply_spec_augment": False}, sound()),
    "hubert": ("HubertModel", SPEECH, sound()),
    "wavlm": ("WavLMModel", SPEECH, sound()),
    "data2vec-audio": ("Data2VecAudioModel", {**SPEECH, "conv_pos_kernel_size": 3, "num_conv_pos_embeddings": 2}, sound()),
    "whisper": ("WhisperModel", {**PAIR, "max_source_positions": 30}, listened),
    "speech-to-text": ("Speech2TextModel", {**PAIR, "max_source_positions": 60, "max_target_positions": 60, "input_feat_per_channel": 80, "conv_channels": 32},
                       lambda: {"input_features": torch.randn(2, 60, 80), "decoder_input_ids": ids(7)}),
    "ast": ("ASTModel", {**SMALL, "patch_size": 8, "frequency_stride": 8, "time_stride": 8, "max_length": 32, "num_mel_bins": 16}, lambda: {"input_values": torch.randn(2, 32, 16)}),
    "encodec": ("EncodecModel", {"num_filters": 8, "hidden_size": 16, "codebook_size": 16, "codebook_dim": 16, "upsampling_ratios": [4, 2], "num_lstm_layers": 1,
                                 "num_residual_layers": 1}, lambda: {"input_values": torch.randn(2, 1, 320)}),
    # several kinds at once
    "clip": ("CLIPModel", {**DUAL, "projection_dim": 32}, both),
    "siglip": ("SiglipModel", DUAL, both),
    "blip": ("BlipModel", {"text_config": {**TEXT, "encoder_hidden_size": 64}, "vision_config": PICTURE, "projection_dim": 32}, both),
    "altclip": ("AltCLIPModel", {"text_config": {**TEXT, "project_dim": 32}, "vision_config": PICTURE, "projection_dim": 32}, both),
    "vilt": ("ViltModel", {**TEXT, "image_size": 32, "patch_size": 8}, both),
    "llava": ("LlavaForConditionalGeneration", {"text_config": {**GROUPED, "model_type": "llama"}, "vision_config": {**PICTURE, "model_type": "clip_vision_model"},
                                                "image_token_index": 99}, lambda: {"input_ids": torch.cat([torch.full((2, 16), 99), ids(6) % 90], 1), **picture()()}),
    "git": ("GitModel", {**TEXT, "vision_config": PICTURE}, both),
    # time series
    "time-series": ("TimeSeriesTransformerModel", {"prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2], "d_model": 16, "encoder_layers": 1,
                                                   "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "num_time_features": 1},
                    lambda: {"past_values": torch.randn(2, 10), "past_time_features": torch.randn(2, 10, 1), "past_observed_mask": torch.ones(2, 10),
                             "future_values": torch.randn(2, 4), "future_time_features": torch.randn(2, 4, 1)}),
    "patchtst": ("PatchTSTModel", {"num_input_channels": 2, "context_length": 16, "patch_length": 4, "patch_stride": 4, "d_model": 16, "num_hidden_layers": 1,
                                   "num_attention_heads": 2, "ffn_dim": 32}, lambda: {"past_values": torch.randn(2, 16, 2)}),
}  # fmt: skip

TRAINED_ONLY = ("reformer", "rwkv")  # PyTorch has no gradients for them in eval mode
DRAWING = ("bigbird (sparse)", "wav2vec2", "hubert", "wavlm", "data2vec-audio")  # from NumPy's random in train mode


def make(name):
    """A model of a family in eval mode, and arguments for it."""
    import networks
    import transformers

    kind, changes, arguments = FAMILIES[name]
    cls = getattr(transformers, kind)
    torch.manual_seed(0)
    changes = dict(changes)
    attention = changes.pop("attn_implementation", None)
    config = cls.config_class(**changes)
    if attention:
        config._attn_implementation = attention
    return networks.enliven(cls(config)), arguments()


def plain(model):
    """A copy whose experts also compute in float64, where PyTorch has no grouped products."""
    copied = copy.deepcopy(model)
    for m in copied.modules():
        if hasattr(m, "set_experts_implementation") and getattr(m.config, "_experts_implementation", None):
            m.set_experts_implementation("batched_mm")
    return copied


PAGE = Path(__file__).resolve().parents[2] / "docs" / "huggingface.md"
HEAD = """# Hugging Face

```python
import sol

model = sol.optimize(model, vdims=True)  # any model of transformers; Trainer and accelerate take the result
model.generate(ids)
```

* **Calls** work as with the original model: keyword arguments, caches as arguments and results, `ModelOutput`. SOL compiles another
  program when arguments appear, disappear or become None.
* **`generate`** needs two programs with `sol.optimize(model, vdims=True)`: one for prompts and one for a token, whatever the lengths and the
  batch, while keys and values grow. Without `vdims`, use a static cache: it needs
  two programs for each batch size; a growing cache works, but SOL then compiles a program at each token.
* **`Trainer` and `accelerate`** train an optimized model through PyTorch's autograd, with any optimizer.
* **Mixtures of experts** compute the same results as in PyTorch, but at a price: SOL multiplies each token by the matrices of all experts
  and then selects. A model with 8 experts, 2 of them active, does 4 times the work. The loop over experts of `experts_implementation="eager"`,
  DBRX and Switch depends on which tokens each expert gets: SOL compiles a program for each such division, and warns after eight.
  `torch.compile(model, backend="sol")` is faster there.
* **Values** that forward reads select the program ([pytorch.md](pytorch.md#values-that-forward-reads)): lengths, masks, and in train mode the
  layers that LayerDrop skips. LayerDrop of a deep model skips other layers in almost every call: SOL warns after eight programs. Set
  `layerdrop` (`encoder_layerdrop`, `decoder_layerdrop`) to 0 in the configuration, or use `torch.compile(model, backend="sol")`.
* **SpecAugment** of speech models and BigBird's random blocks draw from NumPy's random numbers in train mode, in front of each call: the
  same seed gives the same masks as in PyTorch ([host functions](pytorch.md#parts-that-stay-in-python)). Under
  `torch.compile`, Dynamo draws them from PyTorch's generator, unless `torch._dynamo.config.use_numpy_random_stream = True`.
* **Checkpoints** (`gradient_checkpointing_enable()`) and Reformer's reversible layers change nothing: SOL itself decides what is saved for
  backward.
* Weights must be float32: call `model.float()` first.

## Families

SOL runs these {n} small models of transformers {version} with random weights. Its tests compare each model with PyTorch in float32 and
float64: its results, and the gradients of all parameters in eval mode and in train mode, there without dropout.
`python test/python/families.py` writes this page from the table of these tests (`make test-all`).

| family | class |
|---|---|
"""


def page():
    head = HEAD.format(version=version("transformers"), n=len(FAMILIES))
    return head + "".join(f"| {n} | `{kind}` |\n" for n, (kind, *_) in FAMILIES.items())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
