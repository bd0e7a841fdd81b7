"""Recurrent networks and transformers of common sizes, with random weights: how to make each, and its arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

STEPS = 64
WORDS = 30000


class Recurrent(nn.Module):
    """A stack of recurrent layers over (batch, steps, units), and a linear layer for the result of each step."""

    def __init__(self, kind: type[nn.RNNBase], layers: int, units: int, both: bool) -> None:
        super().__init__()
        self.inner = kind(units, units, layers, batch_first=True, bidirectional=both)
        self.head = nn.Linear(units * (2 if both else 1), 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x)[0])


class First(nn.Module):
    """The first result of a model of transformers. The mask of ones keeps it from looking for several sequences in one."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, ids: Tensor) -> Tensor:
        return self.inner(ids, attention_mask=torch.ones_like(ids), return_dict=False)[0]


class Step(nn.Module):
    """One more token of a language model. Keys and values of the tokens before it are arguments and results, a pair for each layer."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, ids: Tensor, *kept: Tensor) -> tuple[Tensor, ...]:
        from transformers import DynamicCache

        cache = DynamicCache(list(zip(kept[::2], kept[1::2], strict=True)))
        result = self.inner(ids, past_key_values=cache, use_cache=True)
        return result.logits, *(t for layer in cache.layers for t in (layer.keys, layer.values))


def transformers() -> Any:
    import networks

    networks.torchvision_models()  # which transformers imports
    import transformers

    return transformers


def bert() -> nn.Module:
    t = transformers()
    return First(t.BertModel(t.BertConfig()))


def gpt2(kind: Callable[[nn.Module], nn.Module] = First, **config: Any) -> nn.Module:
    t = transformers()
    return kind(t.GPT2LMHeadModel(t.GPT2Config(**config)))


def tokens(count: int, batch: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, WORDS, (batch, count), generator=torch.Generator().manual_seed(2)),)


def token_and_kept(kept: int, batch: int) -> tuple[Tensor, ...]:
    """A token, and keys and values of those before it: 12 layers of 12 heads of 64."""
    generator = torch.Generator().manual_seed(2)
    return tokens(1, batch)[0], *(torch.randn(batch, 12, kept, 64, generator=generator) for _ in range(24))


def steps(units: int, batch: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, STEPS, units, generator=torch.Generator().manual_seed(2)),)


@dataclass
class Sequence:
    make: Callable[[], nn.Module]
    samples: Callable[[int], tuple[Tensor, ...]]  # the arguments of a batch


def recurrent(kind: type[nn.RNNBase], layers: int, both: bool, units: int = 512) -> Sequence:
    return Sequence(lambda: Recurrent(kind, layers, units, both), functools.partial(steps, units))


# LSTM and GRU by layers and units: lstm_2x512, lstm_2x512_both (directions); transformers by tokens: bert_128
SEQUENCES: dict[str, Sequence] = {
    f"{name}_{layers}x512{'_both' if both else ''}": recurrent(kind, layers, both)
    for name, kind in (("lstm", nn.LSTM), ("gru", nn.GRU))
    for layers in (1, 2)
    for both in (False, True)
}
SEQUENCES |= {f"bert_{n}": Sequence(bert, functools.partial(tokens, n)) for n in (32, 128, 512)}
SEQUENCES |= {
    f"gpt2_{n}": Sequence(functools.partial(gpt2, use_cache=False), functools.partial(tokens, n))
    for n in (32, 128, 512)
}
SEQUENCES["gpt2_step"] = Sequence(functools.partial(gpt2, Step), functools.partial(token_and_kept, 127))
