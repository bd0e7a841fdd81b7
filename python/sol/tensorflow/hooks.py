"""While SOL traces a model, Keras's fast paths of LSTM and GRU (those for cuDNN) become layers of SOL: an operator without a kernel, which
the reader of the graph finds."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from keras import activations
from keras.src import backend
from tensorflow.python.framework import op_def_library

_lock = threading.RLock()


def layer(kind: str, inputs: Sequence[Any], shapes: Sequence[Any], **attributes: Any) -> Any:
    """A layer of SOL in the graph that is traced. An input may be None."""
    missing = [i for i, x in enumerate(inputs) if x is None]
    given = [x for x in inputs if x is not None]
    text = json.dumps({**attributes, "missing": missing} if missing else attributes)
    types = [given[0].dtype] * len(shapes)
    op = op_def_library._apply_op_helper("SolLayer", args=given, kind=kind, attributes=text, Tout=types)[2]
    for t, s in zip(op.outputs, shapes, strict=True):
        t.set_shape(s)
    return op.outputs


def _tensor(v: Any) -> Any:
    return None if v is None else tf.convert_to_tensor(v)


def _check(mask: Any, unroll: bool, time_major: bool, activation: Any, recurrent_activation: Any) -> None:
    """Keras takes its own loop after a NotImplementedError."""
    usual = activation is activations.tanh and recurrent_activation is activations.sigmoid
    if mask is not None or unroll or time_major or not usual:
        raise NotImplementedError


def _results(kind: str, x: Any, args: Sequence[Any], sequences: bool, backwards: bool, **attributes: Any) -> Any:
    """What Keras expects: the last output, the outputs, the states. args: the operands of the layer behind x."""
    units, states = args[1].shape[1], {"LSTM": 2, "GRU": 1}[kind]
    x = tf.transpose(x, [1, 0, 2])
    if backwards:
        x = tf.reverse(x, [0])
    steps, batch = x.shape[0], x.shape[1]
    y, *state = layer(kind, [x, *args], [(steps, batch, units)] + [(batch, units)] * states, **attributes)
    y = tf.transpose(y, [1, 0, 2])
    return state[0], y if sequences else tf.expand_dims(state[0], 1), list(state)


def _lstm(
    inputs, initial_state_h, initial_state_c, mask, kernel, recurrent_kernel, bias, activation, recurrent_activation,
    return_sequences=False, go_backwards=False, unroll=False, time_major=False,
):  # fmt: skip
    _check(mask, unroll, time_major, activation, recurrent_activation)
    w, u = tf.transpose(_tensor(kernel)), tf.transpose(_tensor(recurrent_kernel))
    args = [w, u, _tensor(bias), None, initial_state_h, initial_state_c]
    return _results("LSTM", inputs, args, return_sequences, go_backwards, order="ifgo")


def _gru(
    inputs, initial_state, mask, kernel, recurrent_kernel, bias, activation, recurrent_activation,
    return_sequences=False, go_backwards=False, unroll=False, time_major=False, reset_after=True,
):  # fmt: skip
    _check(mask, unroll, time_major, activation, recurrent_activation)
    w, u = tf.transpose(_tensor(kernel)), tf.transpose(_tensor(recurrent_kernel))
    b, e = (_tensor(bias), None) if bias is None or not reset_after else tf.unstack(_tensor(bias))
    args = [w, u, b, e, initial_state]
    return _results("GRU", inputs, args, return_sequences, go_backwards, order="zrn", inner=int(reset_after))


@contextlib.contextmanager
def hooked() -> Iterator[None]:
    """Replaces the functions for this thread. One thread traces at a time; the others call Keras's own."""
    thread = threading.get_ident()
    with _lock:
        before = backend.lstm, backend.gru

        def choose(ours: Any, keras_own: Any) -> Any:
            return lambda *args, **kwargs: (ours if threading.get_ident() == thread else keras_own)(*args, **kwargs)

        backend.lstm, backend.gru = choose(_lstm, before[0]), choose(_gru, before[1])
        try:
            yield
        finally:
            backend.lstm, backend.gru = before
