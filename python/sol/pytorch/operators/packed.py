"""Packed sequences: the steps of sequences with different lengths, one after another in one tensor.

SOL computes on padded tensors. Steps are gathered from the packed tensor and put back by index, and the state of a
sequence that has ended does not change. The numbers of steps and sequences are values that the program is valid for
(`sizes`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from ..builder import Builder, Number, Value
from .contract import recurrent
from .sized import Read, _range
from .table import op, sizes

aten = torch.ops.aten


def _starts(b: Builder, counts: Value) -> Value:
    """The packed position at which each step begins."""
    return b.layer("CumSum", counts, axis=0, exclusive=1)


def _inside(b: Builder, counts: Value, n: int) -> tuple[Value, Value]:
    """By step and sequence: whether the sequence has this step, and its packed position."""
    steps, sequences = b.unsqueeze(counts, 1), b.unsqueeze(_range(b, n), 0)
    return b.map("lt", sequences, steps), b.add(b.unsqueeze(_starts(b, counts), 1), sequences)


def _padded(b: Builder, data: Value, counts: Value, n: int, value: Number = 0) -> Value:
    """Packed steps as [T N ..], with `value` after the ends."""
    has, at = _inside(b, counts, n)
    rows = b.layer("Gather", data, b.where(has, at, 0), axis=0)
    has = b.reshape(has, has.shape + (1,) * (data.ndim - 1))
    return b.where(has, rows, b.scalar(value, data.dtype))


def _packed(b: Builder, x: Value, counts: Value, total: int) -> Value:
    """[T N ..] as packed steps."""
    place = _range(b, total)
    step = b.layer("Bucketize", place, b.layer("CumSum", counts, axis=0), right=1)
    at = b.sub(place, b.layer("Gather", _starts(b, counts), step, axis=0))
    rows = b.reshape(x, [x.shape[0] * x.shape[1], *x.shape[2:]])
    return b.layer("Gather", rows, b.add(b.mul(step, x.shape[1]), at), axis=0)


def _lengths(b: Builder, counts: Value, n: int) -> Value:
    """The number of steps of each of the n sequences, from the number of sequences at each step."""
    return b.reduce("Sum", b.cast(_inside(b, counts, n)[0], torch.int64), 0)


def _sequences(total: int, counts: torch.Tensor) -> int:
    """The number of sequences. Raises an error if the counts do not fit a packed tensor with this many steps."""
    sane = counts.ndim == 1 and len(counts) and int(counts.sum()) == total and bool((counts > 0).all())
    if not sane or bool((counts[1:] > counts[:-1]).any()):
        raise RuntimeError(f"batch_sizes: expected numbers that do not grow, {total} together, got {counts.tolist()}")
    return int(counts[0])


# -- packing and unpacking


def _sizes(steps: int, n: int, lengths: torch.Tensor) -> tuple[int, int]:
    """The total number of steps and the length of the longest sequence. PyTorch raises errors for invalid lengths."""
    data, counts = aten._pack_padded_sequence.default(torch.empty(steps, n), lengths, False)
    return len(data), len(counts)


@sizes("_pack_padded_sequence")
def pack_like(read: Read, x: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, ...]:
    n, steps = x.shape[:2] if batch_first else x.shape[1::-1]
    total, longest = read(functools.partial(_sizes, steps, n), lengths)
    return x.new_empty((total, *x.shape[2:])), x.new_empty(longest, dtype=torch.int64)


@op("_pack_padded_sequence")
def pack(b: Builder, x: Value, lengths: Value, batch_first: bool) -> tuple[Value, Value]:
    x = b.transpose(x, 0, 1) if batch_first else x
    total, longest = b.out[0].shape[0], b.out[1].shape[0]
    has = b.map("lt", b.unsqueeze(_range(b, longest), 1), b.unsqueeze(b.cast(lengths, torch.int64), 0))
    counts = b.reduce("Sum", b.cast(has, torch.int64), 1)
    return _packed(b, b.slice(x, 0, 0, longest), counts, total), counts


@sizes("_pad_packed_sequence")
def pad_like(
    read: Read, data: torch.Tensor, counts: torch.Tensor, batch_first: bool, padding_value: Number, total_length: int
) -> tuple[torch.Tensor, ...]:
    n = read(functools.partial(_sequences, len(data)), counts)
    made = data.new_empty((max(len(counts), total_length), n, *data.shape[1:]))
    return made.transpose(0, 1) if batch_first else made, data.new_empty(n, dtype=torch.int64)


@op("_pad_packed_sequence")
def pad(
    b: Builder, data: Value, batch_sizes: Value, batch_first: bool, padding_value: Number, total_length: int
) -> tuple[Value, Value]:
    n, steps = b.out[1].shape[0], batch_sizes.shape[0]
    made = _padded(b, data, batch_sizes, n, padding_value)
    if total_length > steps:
        rest = b.fill([total_length - steps, *made.shape[1:]], padding_value, made.dtype)
        made = b.concat([made, rest], 0)
    return b.transpose(made, 0, 1) if batch_first else made, _lengths(b, batch_sizes, n)


# -- recurrent layers


def _like(read: Read, data: torch.Tensor, counts: torch.Tensor, states: Sequence[torch.Tensor], both: bool) -> Any:
    if read(functools.partial(_sequences, len(data)), counts) != states[0].shape[1]:
        raise RuntimeError(f"batch_sizes: the states are of {states[0].shape[1]} sequences, got {counts.shape}")
    width = states[0].shape[2] * (2 if both else 1)
    return data.new_empty((len(data), width)), *(torch.empty_like(s) for s in states)


@sizes("lstm.data")
def lstm_like(
    read: Read, data: torch.Tensor, counts: torch.Tensor, hx: Sequence[torch.Tensor], params: Any, *more: Any
) -> Any:
    return _like(read, data, counts, hx, more[-1])


@sizes("gru.data", "rnn_tanh.data", "rnn_relu.data")
def simple_like(read: Read, data: torch.Tensor, counts: torch.Tensor, hx: torch.Tensor, params: Any, *more: Any) -> Any:
    return _like(read, data, counts, [hx], more[-1])


def _enter(name: str, kind: str, **attrs: Any) -> None:
    @op(name)
    def row(
        b: Builder,
        data: Value,
        batch_sizes: Value,
        hx: Any,
        params: Sequence[Value],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> tuple[Value, ...]:
        states = hx if kind == "LSTM" else [hx]
        n, total = states[0].shape[1], math.prod(data.shape[:1])
        y, *last = recurrent(
            b,
            kind,
            _padded(b, data, batch_sizes, n),
            states,
            params,
            has_biases,
            num_layers,
            bidirectional,
            dropout if train else 0.0,
            _lengths(b, batch_sizes, n),
            **attrs,
        )
        return (_packed(b, y, batch_sizes, total), *last)


_enter("lstm.data", "LSTM")
_enter("gru.data", "GRU")
_enter("rnn_tanh.data", "RNN", act="tanh")
_enter("rnn_relu.data", "RNN", act="relu")
