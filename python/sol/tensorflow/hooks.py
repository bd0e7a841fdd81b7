"""While SOL traces a model, the loops of Keras's LSTM, GRU and SimpleRNN become layers of SOL, also with masks: an operator without a
kernel, which the reader of the graph finds."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from keras import activations, layers
from tensorflow.python.framework import op_def_library

_LAYERS = layers.LSTM, layers.GRU, layers.SimpleRNN
_lock = threading.RLock()


def layer(kind: str, inputs: Sequence[Any], shapes: Sequence[Any], **attributes: Any) -> Any:
    """A layer of SOL in the graph that is traced. An input may be None."""
    missing = [i for i, x in enumerate(inputs) if x is None]
    given = [x for x in inputs if x is not None]
    text = json.dumps({**attributes, "missing": missing} if missing else attributes)
    types = [given[0].dtype] * len(shapes)  # of the first input
    op = op_def_library._apply_op_helper("SolLayer", args=given, kind=kind, attributes=text, Tout=types)[2]
    for t, s in zip(op.outputs, shapes, strict=True):
        t.set_shape(s)
    return op.outputs


def _tensor(v: Any) -> Any:
    return None if v is None else tf.convert_to_tensor(v)


def _layer_of(rnn: Any) -> tuple[str, dict[str, Any]] | None:
    """The layer of SOL that computes a recurrent layer of Keras, and its attributes; None if there is none."""
    cell = rnn.cell
    usual = cell.activation is activations.tanh and getattr(cell, "recurrent_activation", None) is activations.sigmoid
    if rnn.unroll or cell.recurrent_dropout:
        return None
    if isinstance(rnn, layers.LSTM):
        return ("LSTM", {"order": "ifgo"}) if usual else None
    if isinstance(rnn, layers.GRU):
        return ("GRU", {"order": "zrn", "inner": int(cell.reset_after)}) if usual else None
    act = {id(activations.tanh): "tanh", id(activations.relu): "relu"}.get(id(cell.activation))
    return ("RNN", {"act": act}) if act else None


def _biases(kind: str, cell: Any) -> tuple[Any, Any]:
    """The biases b and e of the layer."""
    bias = _tensor(cell.bias)
    if bias is None or kind != "GRU" or not cell.reset_after:
        return bias, None
    return tuple(tf.unstack(bias))


def _steps(x: Any, backwards: bool) -> Any:
    """[N T ..] as [T N ..], in the order of the recurrence."""
    x = tf.transpose(x, [1, 0, *range(2, x.shape.rank)])
    return tf.reverse(x, [0]) if backwards else x


def _masked(y: Any, mask: Any, start: Any, zero: bool) -> Any:
    """What Keras gives for the steps [T N H] without an element: the output of the step before, 0 in front of the first one, or 0."""
    known = [tf.get_static_value(v) for v in (start, *start.op.inputs)] if zero is False else []
    if any(k is not None and k.ndim == 0 and k == 0 for k in known) and start.op.type == "Fill":
        return y  # the state that the layer begins with is 0
    there = mask if zero else tf.cumsum(tf.cast(mask, "int32")) > 0
    return tf.where(there[:, :, None], y, tf.zeros([], y.dtype))


def _inner_loop(rnn: Any, sequences: Any, initial_state: Any, mask: Any, training: bool) -> Any:
    """What Keras expects of `inner_loop`: the last output, the outputs, the states. None: its own loop has to run."""
    mask, found = mask[0] if isinstance(mask, list | tuple) else mask, _layer_of(rnn)
    if found is None or sequences.shape.rank != 3 or (mask is not None and mask.shape.rank != 2):
        return None
    (kind, attributes), cell = found, rnn.cell
    if training and cell.dropout:
        sequences = sequences * cell.get_dropout_mask(sequences[:, 0, :])[:, None, :]
    x = _steps(sequences, rnn.go_backwards)
    start = [tf.convert_to_tensor(v) for v in tf.nest.flatten(initial_state)]
    there = None if mask is None else _steps(tf.cast(mask, "bool"), rnn.go_backwards)
    w, u = tf.transpose(_tensor(cell.kernel)), tf.transpose(_tensor(cell.recurrent_kernel))
    given = [x, w, u, *_biases(kind, cell), *start, *([None] if kind == "LSTM" else []), there]
    state = (x.shape[1], cell.units)
    y, *states = layer(kind, given, [(x.shape[0], *state)] + [state] * len(start), **attributes)
    if there is not None:
        y = _masked(y, there, start[0], rnn.zero_output_for_mask)
    return y[-1], tf.transpose(y, [1, 0, 2]) if rnn.return_sequences else y[-1:], states


def _hook(own: Any, thread: int) -> Any:
    def inner_loop(rnn: Any, sequences: Any, initial_state: Any, mask: Any, training: bool = False) -> Any:
        ours = threading.get_ident() == thread
        found = _inner_loop(rnn, sequences, initial_state, mask, training) if ours else None
        return own(rnn, sequences, initial_state, mask, training) if found is None else found

    return inner_loop


@contextlib.contextmanager
def hooked() -> Iterator[None]:
    """Replaces the methods for this thread. One thread traces at a time; the others call Keras's own."""
    with _lock:
        before = {c: c.__dict__.get("inner_loop") for c in _LAYERS}
        for c in _LAYERS:
            c.inner_loop = _hook(c.inner_loop, threading.get_ident())
        try:
            yield
        finally:
            for c, method in before.items():
                if method is None:
                    del c.inner_loop
                else:
                    c.inner_loop = method
