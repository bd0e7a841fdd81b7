"""The cells of nn.GRU and nn.LSTM that PyTorch calls on devices, and their gradients, computed with other operators.

A model that is not optimized calls them once a step. PyTorch has kernels of them for GPUs only, and neither decompositions
nor shapes. Gates are rows [N, k*H] of a batch of N and H features. `hidden` and `input` are products with the weights, without
biases where biases are given. The workspace is what the gradient needs; only these functions look into it.
"""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten
T = torch.Tensor


def _biased(gates: T, bias: T | None) -> T:
    return gates if bias is None else gates + bias


def gru(input: T, hidden: T, hx: T, input_bias: T | None = None, hidden_bias: T | None = None) -> tuple[T, T]:
    """h' = n + z * (h - n), where r, z = sigmoid(..) and n = tanh(input_n + r * hidden_n). The workspace [N, 5*H] is
    r, z, n, h, hidden_n."""
    a, b = _biased(input, input_bias).chunk(3, 1), _biased(hidden, hidden_bias).chunk(3, 1)
    r, z = (a[0] + b[0]).sigmoid(), (a[1] + b[1]).sigmoid()
    n = (a[2] + r * b[2]).tanh()
    return n + z * (hx - n), torch.cat([r, z, n, hx, b[2]], 1)


def gru_backward(dy: T, workspace: T, has_bias: bool) -> tuple[T, T, T, T | None, T | None]:
    """The gradients of input, hidden, h and both biases."""
    r, z, n, hx, hidden_n = workspace.chunk(5, 1)
    dn = dy * (1 - z) * (1 - n * n)
    dz = dy * (hx - n) * z * (1 - z)
    dr = dn * hidden_n * r * (1 - r)
    di, dh = torch.cat([dr, dz, dn], 1), torch.cat([dr, dz, dn * r], 1)
    return di, dh, dy * z, di.sum(0) if has_bias else None, dh.sum(0) if has_bias else None


def lstm(input: T, hidden: T, cx: T, input_bias: T | None = None, hidden_bias: T | None = None) -> tuple[T, T, T]:
    """c' = f * c + i * g and h' = o * tanh(c'), where i, f, o = sigmoid(..) and g = tanh(..). The workspace [N, 4*H] is
    i, f, g, o."""
    i, f, g, o = (_biased(input, input_bias) + _biased(hidden, hidden_bias)).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


def lstm_backward(
    dh: T | None, dc: T | None, cx: T, cy: T, workspace: T, has_bias: bool
) -> tuple[T | None, T | None, T | None]:
    """The gradients of all gates (input and hidden have the same), c and each bias."""
    if dh is None and dc is None:
        return None, None, None
    i, f, g, o = workspace.chunk(4, 1)
    y = cy.tanh()
    do = torch.zeros_like(o) if dh is None else dh * y * o * (1 - o)
    through = None if dh is None else dh * o * (1 - y * y)
    d = dc if through is None else through if dc is None else through + dc
    assert d is not None
    gates = torch.cat([d * g * i * (1 - i), d * cx * f * (1 - f), d * i * (1 - g * g), do], 1)
    return gates, d * f, gates.sum(0) if has_bias else None


RULES: dict[Any, Any] = {
    aten._thnn_fused_gru_cell.default: gru,
    aten._thnn_fused_gru_cell_backward.default: gru_backward,
    aten._thnn_fused_lstm_cell.default: lstm,
    aten._thnn_fused_lstm_cell_backward_impl.default: lstm_backward,
}
