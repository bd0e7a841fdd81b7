"""Complex numbers and Fourier transforms: every length, networks that use them, memory that is written or conjugated."""

import math

import opinfo
import pytest
import sol
import torch
from sol.pytorch import operators
from torch import nn
from torch_help import DOUBLES, check_with_gradients, error, interpret

LENGTHS = (1, 2, 5, 30, 64, 67, 96, 131, 262, 1000, 1155)  # primes, smooth ones, with a large prime factor
COMPLEX = (  # operators of which all first samples work with complex64
    "add sub mul div.no_rounding_mode neg reciprocal pow exp log log1p expm1 sqrt rsqrt sin cos tan sinh cosh tanh sigmoid abs angle sgn "
    "real imag conj view_as_real eq ne isnan isfinite sum mean prod var std_mean any all cumsum norm dist matmul bmm einsum addmm vdot "
    "outer nn.functional.linear nn.functional.conv1d nn.functional.conv_transpose2d cat stack where index_put gather scatter_add flip "
    "roll diagonal tril masked_fill full_like zeros_like new_ones fill nn.functional.pad.constant lerp addcdiv fft.fft fft.ifftn "
    "fft.irfft fft.hfft2 stft"
).split()


class Transforms(nn.Module):
    def forward(self, *inputs):
        made = []
        for x in inputs:
            z = torch.complex(x, x.flip(1))
            made += [
                torch.fft.fft(z),
                torch.fft.ifft(z, dim=0, norm="ortho"),
                torch.fft.rfft(x),
                torch.fft.irfft(z, n=x.shape[1]),
            ]
        return made  # fmt: skip


def test_transforms_of_every_length():
    """Forward with the interpreter; for some lengths compiled, with gradients."""
    model, inputs = Transforms(), tuple(torch.randn(2, n, dtype=torch.float64) for n in LENGTHS)
    got = interpret(model, inputs)
    for k, e in enumerate(model(*inputs)):
        assert error(got[k], e) < DOUBLES, (LENGTHS[k // 4], k % 4)
    check_with_gradients(model, *(torch.randn(3, n) for n in (7, 96, 131)))


class Operator(nn.Module):
    """Fourier neural operator: multiplies some frequencies by complex weights and writes them into a spectrum of zeros."""

    def __init__(self, c=4, modes=3):
        super().__init__()
        self.c, self.modes = c, modes
        self.low, self.high = (nn.Parameter(torch.randn(c, c, modes, modes, dtype=torch.cfloat)) for _ in range(2))

    def forward(self, x):
        m, spectrum = self.modes, torch.fft.rfft2(x)
        out = torch.zeros_like(spectrum)
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :m, :m], self.low)
        out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, -m:, :m], self.high)
        return torch.fft.irfft2(out, s=x.shape[-2:])


class Rotary(nn.Module):
    """Rotary positions as in Llama: a complex buffer."""

    def __init__(self):
        super().__init__()
        angles = torch.outer(torch.arange(6), 0.5 ** torch.arange(4))
        self.register_buffer("turn", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x):
        z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(z * self.turn).flatten(-2)


class Filter(nn.Module):
    """A global filter, whose weight is stored as pairs."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4, 8, 2))

    def forward(self, x):
        z = torch.fft.rfft2(x, dim=(1, 2), norm="ortho") * torch.view_as_complex(self.weight)
        return torch.fft.irfft2(z, s=(6, 6), dim=(1, 2), norm="ortho")


class Space(nn.Module):
    """A diagonal state space: a long convolution through Fourier, with complex eigenvalues."""

    def __init__(self, h=3, n=4):
        super().__init__()
        self.step, self.c = nn.Parameter(torch.rand(h) - 2), nn.Parameter(torch.randn(h, n, dtype=torch.cfloat))
        self.decay, self.turn = (
            nn.Parameter(torch.rand(h, n)),
            nn.Parameter(math.pi * torch.arange(n).repeat(h, 1) * 1.0),
        )

    def forward(self, u):
        n, a = u.shape[-1], -self.decay.exp() + 1j * self.turn
        steps = a * self.step.exp().unsqueeze(-1)
        c = self.c * (torch.exp(steps) - 1) / a
        kernel = 2 * torch.einsum("hn,hnl->hl", c, torch.exp(steps.unsqueeze(-1) * torch.arange(n))).real
        return torch.fft.irfft(torch.fft.rfft(u, n=2 * n) * torch.fft.rfft(kernel, n=2 * n), n=2 * n)[..., :n]


class Spectrogram(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(32))

    def forward(self, x):
        z = torch.stft(x, 32, 8, window=self.window, return_complex=True)
        halved = torch.polar(z.abs() * 0.5, z.angle())
        return z.abs().log1p(), torch.istft(halved, 32, 8, window=self.window, length=x.shape[-1])


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.conv = nn.Linear(6, 5, dtype=torch.cfloat), nn.Conv1d(3, 4, 3, dtype=torch.cfloat)

    def forward(self, z, w):
        y = self.linear(z)
        return y.tanh(), self.conv(w), y.conj() @ y.mT, (z / (z.abs() + 1)).exp().mean(), y.sqrt(), z**3, z.prod(1)


NETWORKS = {
    "fnet": (nn.Identity, lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real, (2, 20, 24)),
    "operator": (Operator, None, (2, 4, 10, 12)),
    "rotary": (Rotary, None, (2, 6, 8)),
    "filter": (Filter, None, (2, 6, 6, 8)),
    "space": (Space, None, (2, 3, 20)),
    "spectrogram": (Spectrogram, None, (2, 100)),
}


class Called(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name):
    torch.manual_seed(0)
    kind, function, shape = NETWORKS[name]
    check_with_gradients(Called(function) if function else kind(), torch.randn(shape))


def test_complex_layers_and_inputs():
    torch.manual_seed(0)
    check_with_gradients(Layers(), torch.randn(4, 6, dtype=torch.cfloat), torch.randn(2, 3, 10, dtype=torch.cfloat))


def test_lengths_have_the_gradient_0_at_0():
    z = torch.zeros(3, dtype=torch.cfloat, requires_grad=True)
    model = sol.optimize(Called(lambda z: z.abs() + z.angle() + z.sgn().real).train(), z)
    model(z).sum().backward()
    assert torch.isfinite(torch.view_as_real(z.grad)).all()


class Written(nn.Module):
    def forward(self, z):
        y = z.clone()
        y.real.mul_(2)
        y.imag += 1
        y[1:].copy_(y[:-1] * 1j)
        torch.view_as_real(y)[..., 0] += 3
        y[0] = y[0].conj()
        z.mul_(1j)
        return y, z.imag, z[1:]


def test_writing_in_place_and_views():
    z = torch.randn(3, 4, dtype=torch.cfloat)
    ours, theirs = z.clone(), z.clone()
    got, expected = sol.optimize(Written(), z.clone())(ours), Written()(theirs)
    for a, b in zip((*got, ours), (*expected, theirs), strict=True):
        torch.testing.assert_close(a, b)
    assert sol.optimize(lambda z: z.imag, z)(z).data_ptr() == z.imag.data_ptr()


def test_conjugated_and_transposed_tensors():
    """A conjugated view differs from other tensors only in a bit."""
    z = torch.randn(4, 4, dtype=torch.cfloat)
    f = sol.optimize(lambda z: z * 2j, z)
    for given in (z, z.conj(), z.mT, z.mH, torch.randn(4, 8, dtype=torch.cfloat)[:, ::2]):
        torch.testing.assert_close(f(given), given * 2j)

    model = nn.Module()
    model.register_buffer("w", z.conj())
    model.forward = lambda x: x * model.w
    torch.testing.assert_close(sol.optimize(model, z)(z), z * z.conj())


def test_any_batch_size():
    f = sol.optimize(lambda z: torch.fft.fft(z).abs(), sol.input([0, 8], dtype=torch.complex64))
    for n in (1, 3):
        z = torch.randn(n, 8, dtype=torch.cfloat)
        torch.testing.assert_close(f(z), torch.fft.fft(z).abs())


def test_what_is_rejected_says_so():
    for function, message in (
        (lambda z: z.acos(), "aten.acos.default: SOL has no row for this operator of complex numbers"),
        (lambda z: z.to(torch.complex32), "data type complex32"),
    ):
        with pytest.raises(sol.UnsupportedError, match=message):
            sol.optimize(function, torch.randn(3, 3, dtype=torch.cfloat))


@pytest.mark.parametrize("name", COMPLEX)
def test_samples(name):
    """Torch's own first samples of operators, with the interpreter."""
    for call in opinfo.samples(name, torch.complex64, 3):
        assert opinfo.run(name, call, opinfo.interpreted) == ("ok", "")


def test_rows_name_what_exists():
    for full in operators.COMPLEX:
        _, function, overload = full.split(".")
        assert overload in getattr(torch.ops.aten, function).overloads(), full
        assert full in operators.OPERATORS or not isinstance(operators.COMPLEX[full], operators.OfReal), full
