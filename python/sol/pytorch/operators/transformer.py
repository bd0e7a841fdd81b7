"""PyTorch's fused transformer layers, for eval mode without gradients, translated to the operators that they consist
of."""

from __future__ import annotations

from ..builder import Builder, Rejected, Value
from .contract import attention, linear, probabilities
from .norms import layer_norm
from .table import op


def _self_attention(
    b: Builder, x: Value, heads: int, qkv: tuple[Value, Value], project: tuple[Value, Value], mask: Value | None
) -> Value:
    """Self-attention of x[N L E], with `mask` as for attention."""
    n, length, width = x.shape
    packed = b.reshape(linear(b, x, *qkv), (n, length, 3, heads, width // heads))
    q, k, v = (b.reshape(b.slice(packed, 2, i, i + 1), (n, length, heads, width // heads)) for i in range(3))
    q, k, v = (b.permute(t, (0, 2, 1, 3)) for t in (q, k, v))
    y = attention(b, q, k, v, mask, 0.0, False, None, False)
    return linear(b, b.reshape(b.permute(y, (0, 2, 1, 3)), x.shape), *project)


def _mask(b: Builder, mask: Value | None, kind: int | None) -> Value | None:
    """A mask for attention: True for visible keys, or values that are added to the scores. In PyTorch's fused layers,
    True or -inf means that a key is hidden."""
    if mask is None:
        return None
    if kind not in (0, 1, 2):
        raise Rejected(f"argument mask_type={kind!r}")
    if kind == 1:  # a mask of keys: [N L]
        mask = b.reshape(mask, (mask.shape[0], 1, 1, mask.shape[1]))
    return mask if mask.is_float else b.map("logical_not", mask)


@op("_transformer_encoder_layer_fwd")
def encoder_layer(
    b: Builder,
    src: Value,
    num_heads: int,
    qkv_weight: Value,
    qkv_bias: Value,
    proj_weight: Value,
    proj_bias: Value,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Value,
    norm_bias_1: Value,
    norm_weight_2: Value,
    norm_bias_2: Value,
    ffn_weight_1: Value,
    ffn_bias_1: Value,
    ffn_weight_2: Value,
    ffn_bias_2: Value,
    embed_dim: int,
    mask: Value | None = None,
    mask_type: int | None = None,
) -> Value:
    def first(x: Value) -> Value:
        return layer_norm(b, x, [embed_dim], norm_weight_1, norm_bias_1, eps)

    def second(x: Value) -> Value:
        return layer_norm(b, x, [embed_dim], norm_weight_2, norm_bias_2, eps)

    def attend(x: Value) -> Value:
        seen = _mask(b, mask, mask_type)
        return _self_attention(b, x, num_heads, (qkv_weight, qkv_bias), (proj_weight, proj_bias), seen)

    def feed_forward(x: Value) -> Value:
        inner = b.map("gelu" if use_gelu else "relu", linear(b, x, ffn_weight_1, ffn_bias_1))
        return linear(b, inner, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = b.add(src, attend(first(src)))
        return b.add(x, feed_forward(second(x)))
    x = first(b.add(src, attend(src)))
    return second(b.add(x, feed_forward(x)))


@op("_native_multi_head_attention")
def native_attention(
    b: Builder,
    query: Value,
    key: Value,
    value: Value,
    embed_dim: int,
    num_head: int,
    qkv_weight: Value,
    qkv_bias: Value,
    proj_weight: Value,
    proj_bias: Value,
    mask: Value | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Value, Value | None]:
    """nn.MultiheadAttention: the result, and the probabilities of the keys, as a mean over the heads."""
    rows = [[b.slice(t, 0, i * embed_dim, (i + 1) * embed_dim) for t in (qkv_weight, qkv_bias)] for i in range(3)]
    q, k, v = (
        b.permute(b.reshape(linear(b, t, *row), (*t.shape[:2], num_head, embed_dim // num_head)), (0, 2, 1, 3))
        for t, row in zip((query, key, value), rows, strict=True)
    )
    seen, weights = _mask(b, mask, mask_type), None
    if need_weights:
        weights = probabilities(b, q, k, seen)
        y = b.layer("MatMul", weights, v)
    else:
        y = attention(b, q, k, v, seen, 0.0, False, None, False)
    if weights is not None and average_attn_weights:
        weights = b.reduce("Mean", weights, [1], False)
    return linear(b, b.reshape(b.permute(y, (0, 2, 1, 3)), query.shape), proj_weight, proj_bias), weights


__all__ = ["encoder_layer", "native_attention"]
