"""While SOL traces a model, the loops of Keras's LSTM, GRU and SimpleRNN become layers of SOL, also with masks: an operator without a
kernel, which the reader of the graph finds. A TimeDistributed over a number of steps that varies treats steps as examples."""

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


def _inner_loop(rnn: Any, sequences: Any, initial_state: Any, mask: Any, training: bool = False) -> Any:
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


# -- TimeDistributed

_OWN = "keras.src.layers.", "keras.src.models."
_ANY_CODE = layers.Lambda, layers.TFSMLayer, layers.JaxLayer, layers.FlaxLayer
_DRAWS = "keras.src.layers.regularization.", "keras.src.layers.preprocessing."  # or has a sum over the batch


def _by_example(inner: Any, training: bool) -> bool:
    """Whether a layer of Keras computes each example by itself, so that examples may be added to its batch."""
    place = type(inner).__module__ + "."
    if not place.startswith(_OWN) or isinstance(inner, _ANY_CODE) or getattr(inner, "stateful", False):
        return False
    if inner.activity_regularizer is not None:
        return False
    over_batch = isinstance(inner, layers.BatchNormalization | layers.SpectralNormalization)
    draws = place.startswith(_DRAWS) or bool(
        getattr(inner, "dropout", False) or getattr(inner, "recurrent_dropout", False)
    )
    return not training or not (over_batch or draws)


def _time_distributed(wrapper: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
    """The result, of all steps at once. None: Keras's own `call` has to run."""
    inner = wrapper.layer
    x = inputs if tf.is_tensor(inputs) else None
    if x is None or x.shape.rank is None or x.shape[1] is not None or (mask is not None and not tf.is_tensor(mask)):
        return None
    if not all(_by_example(each, bool(training)) for each in inner._flatten_layers()):
        return None

    def merged(t: Any) -> Any:
        return tf.reshape(t, tf.concat([[-1], tf.shape(t)[2:]], 0))

    given = {"mask": merged(mask)} if inner._call_has_mask_arg and mask is not None else {}
    y = inner.call(merged(x), **given, **({"training": training} if inner._call_has_training_arg else {}))
    if not tf.is_tensor(y):
        return None
    return tf.reshape(y, tf.concat([tf.shape(x)[:2], tf.shape(y)[1:]], 0))


# -- functions of TensorFlow


def _ctc_loss(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    logits_time_major: bool = True,
    unique: Any = None,
    blank_index: int | None = None,
    name: str | None = None,
) -> Any:
    """The losses of all sequences. None: TensorFlow's own function has to run, for sparse labels."""
    logits = tf.convert_to_tensor(logits)
    sparse, classes = isinstance(labels, tf.SparseTensor), logits.shape[-1]
    if sparse or label_length is None or classes is None or logits.dtype not in (tf.float32, tf.float64):
        return None
    x = tf.nn.log_softmax(logits if logits_time_major else tf.transpose(logits, [1, 0, 2]))
    given = [tf.cast(v, "int64") for v in (labels, logit_length, label_length)]
    return layer("CTCLoss", [x, *given], [x.shape[1:2]], blank=(blank_index or 0) % classes)[0]


def _expm(x: Any, name: str | None = None) -> Any:
    """The matrix exponential, for which TensorFlow has a loop that depends on data."""
    x = tf.convert_to_tensor(x)
    return layer("MatrixExp", [x], [x.shape])[0] if x.dtype in (tf.float32, tf.float64) else None


# -- hooks

_HOOKS = [
    *((c, "inner_loop", _inner_loop) for c in _LAYERS),
    (layers.TimeDistributed, "call", _time_distributed),
    (tf.nn, "ctc_loss", _ctc_loss),
    (tf.linalg, "expm", _expm),
]


def _hook(own: Any, ours: Any, thread: int) -> Any:
    def method(*args: Any, **kwargs: Any) -> Any:
        found = ours(*args, **kwargs) if threading.get_ident() == thread else None
        return own(*args, **kwargs) if found is None else found

    return method


@contextlib.contextmanager
def hooked() -> Iterator[None]:
    """Replaces the methods for this thread. One thread traces at a time; the others call Keras's own."""
    with _lock:
        before = [(c, name, c.__dict__.get(name)) for c, name, _ in _HOOKS]
        for c, name, ours in _HOOKS:
            setattr(c, name, _hook(getattr(c, name), ours, threading.get_ident()))
        try:
            yield
        finally:
            for c, name, method in before:
                if method is None:
                    delattr(c, name)
                else:
                    setattr(c, name, method)
