"""Complex numbers as two real tensors, the real and the imaginary part: views, arithmetic, contractions.

Views and linear operators apply the translation for real tensors to each part. Products are expanded: one real
operator for each combination of parts. All other operators have translations of their own here. Gradients are those
of the real layers: PyTorch's gradient of a complex tensor is the pair of its parts' gradients.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..builder import REAL, Builder, Complex, Rejected, Value
from ..sizes import Shaped
from . import moves, table
from .table import OPERATORS, complex_op

Number = bool | int | float | complex
Operand = Complex | Value | Number
Part = Value | None  # None: 0 everywhere
Pair = tuple[Value, Part]

# Linear with real coefficients: they act on each part of a complex tensor.
PARTS = (
    "view reshape _unsafe_view _reshape_alias view_copy _reshape_copy reshape_as view_as flatten.using_ints unflatten.int squeeze "
    "squeeze.dim squeeze.dims unsqueeze ravel squeeze_copy squeeze_copy.dim squeeze_copy.dims unsqueeze_copy atleast_1d atleast_2d "
    "atleast_3d permute permute_copy transpose.int transpose_ swapaxes swapdims transpose_copy.int t numpy_T t_copy mT movedim.int "
    "movedim.intlist moveaxis.int moveaxis.intlist expand expand_copy broadcast_to expand_as repeat tile "
    "repeat_interleave.self_int select.int select_copy.int slice.Tensor slice_copy.Tensor narrow narrow_copy split.Tensor "
    "split_with_sizes chunk split.sizes tensor_split.sections tensor_split.indices unsafe_split.Tensor unsafe_split_with_sizes "
    "unsafe_chunk split_copy.Tensor split_with_sizes_copy hsplit.int hsplit.array vsplit.int vsplit.array dsplit.int dsplit.array "
    "unbind.int unbind_copy.int cat concat concatenate stack _stack flip roll tril triu diagonal diagonal_copy linalg_diagonal "
    "diag_embed diag trace channel_shuffle native_channel_shuffle pixel_shuffle pixel_unshuffle unfold unfold_copy im2col col2im "
    "slice_scatter select_scatter diagonal_scatter as_strided as_strided_copy index.Tensor _unsafe_index.Tensor index_select gather "
    "take take_along_dim index_put _unsafe_index_put index_copy index_add scatter.src scatter_add put sum sum.dim_IntList mean "
    "mean.dim cumsum neg negative positive clone detach detach_copy alias alias_copy lift lift_fresh lift_fresh_copy contiguous "
    "where.self as_strided_scatter masked_scatter"
).split()
# They create real numbers, with a complex type.
MADE = (
    "zeros new_zeros zero zeros_like empty.memory_format new_empty empty_like empty_strided new_empty_strided empty_permuted ones "
    "new_ones ones_like eye eye.m"
).split()
# Their operands may have different types. Integer operands of the others are indices.
JOINING = frozenset("aten::cat aten::concat aten::concatenate aten::stack aten::_stack aten::where".split())


def is_complex(val: Any) -> bool:
    """Whether this value of a trace is complex, or contains a complex one."""
    if isinstance(val, list | tuple):
        return any(map(is_complex, val))
    return isinstance(val, torch.Tensor | Shaped) and val.is_complex()


def find_complex(name: str) -> Any:
    """The translation of an overload with complex operands or a complex result. None: there is none."""
    return table.COMPLEX.get(name) or table.COMPLEX.get(table.out_of_place(name) or "")


class OfReal:
    """A way to translate an overload with complex tensors through its translation for real ones."""

    def __init__(self, name: str) -> None:
        self.name = table.full_name(name)

    @property
    def row(self) -> Any:
        """The translation for real tensors."""
        return OPERATORS[self.name]


class _ByParts(OfReal):
    """Applies the real translation to the real and the imaginary parts of the operands."""

    def __call__(self, b: Builder, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not is_complex(b.out):  # the other operand only gives a shape
            first = _part_of(b, 0, False)
            return self.row(b, schema, _mapped(first, args), _mapped(first, kwargs))
        out, made = b.out, []
        real = all(v.im is None for v in _leaves((args, kwargs)) if isinstance(v, Complex))
        b.out = _real_out(out)
        for k in (0,) if real else (0, 1):
            part = _part_of(b, k, schema.name in JOINING)
            made.append(self.row(b, schema, _mapped(part, args), _mapped(part, kwargs)))
        b.out = out
        return _joined(made[0], None if real else made[1])


class _Made(OfReal):
    """A real operator whose result is the real part."""

    def __call__(self, b: Builder, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out, b.out = b.out, _real_out(b.out)
        first = _part_of(b, 0, False)
        made, b.out = self.row(b, schema, _mapped(first, args), _mapped(first, kwargs)), out
        return Complex(made, None) if is_complex(out) else made


def _leaves(arg: Any) -> list[Any]:
    if isinstance(arg, list | tuple):
        return [v for a in arg for v in _leaves(a)]
    return [v for a in arg.values() for v in _leaves(a)] if isinstance(arg, dict) else [arg]


def _mapped(f: Callable[[Any], Any], arg: Any) -> Any:
    if isinstance(arg, list | tuple):
        return type(arg)(_mapped(f, a) for a in arg)
    return {k: _mapped(f, a) for k, a in arg.items()} if isinstance(arg, dict) else f(arg)


def _part_of(b: Builder, k: int, joining: bool) -> Callable[[Any], Any]:
    """The k-th part of an operand. An index or a mask applies to both parts."""

    def part(v: Any) -> Any:
        if isinstance(v, Complex):
            return b.imaginary(v) if k else v.re
        real = isinstance(v, Value) and (v.is_float or (joining and v.dtype != torch.bool))
        return b.fill(v.shape, 0, v.dtype) if k and real else v

    return part


def _joined(re: Any, im: Any) -> Any:
    if isinstance(re, list | tuple):
        return type(re)(_joined(r, None if im is None else im[k]) for k, r in enumerate(re))
    return Complex(re, im)


def _real_out(out: Any) -> Any:
    """PyTorch's description of a result, for one of its parts."""
    if isinstance(out, list | tuple):
        return type(out)(map(_real_out, out))
    if isinstance(out, Shaped) and out.is_complex():
        return Shaped(out, out.shape, out.stride(), out.storage_offset(), REAL[out.dtype])
    if isinstance(out, torch.Tensor) and out.is_complex():
        return torch.empty(out.shape, dtype=REAL[out.dtype], device="meta")
    return out


# -- parts of operands


def real_type(b: Builder) -> torch.dtype:
    """The type of the parts of the result, or of the operands if the result is not complex."""
    dtype: torch.dtype = b.out.dtype
    return REAL.get(dtype, dtype)


def parts(b: Builder, x: Operand, dtype: torch.dtype) -> Pair:
    """The real and the imaginary part, converted to this type."""
    if isinstance(x, Complex):
        return b.cast(x.re, dtype), None if x.im is None else b.cast(x.im, dtype)
    if isinstance(x, Value):
        return b.cast(x, dtype), None
    number = complex(x)
    return b.scalar(number.real, dtype), b.scalar(number.imag, dtype) if number.imag else None


def both(b: Builder, x: Operand, dtype: torch.dtype) -> tuple[Value, Value]:
    """The same, with zeros for a missing imaginary part."""
    re, im = parts(b, x, dtype)
    return re, b.fill(re.shape, 0, dtype) if im is None else im


def like_out(b: Builder, x: Complex) -> Complex:
    """Converts to the type and shape of the operator's result."""
    re, im = parts(b, x, real_type(b))
    return Complex(b.expand(re, b.out.shape), None if im is None else b.expand(im, b.out.shape))


def plus(b: Builder, x: Part, y: Part, function: str = "add") -> Part:
    if x is None or y is None:
        return x if y is None else b.map("neg", y) if function == "sub" else y
    return b.map(function, x, y)


def multilinear(b: Builder, f: Callable[..., Value], operands: Sequence[Pair]) -> Complex:
    """Extends f, linear in each operand, to complex operands: the sum over all combinations of parts, times i to the
    power of the number of imaginary parts."""
    sums: list[Part] = [None, None]
    for choice in itertools.product((0, 1), repeat=len(operands)):
        chosen = [operand[k] for operand, k in zip(operands, choice, strict=True)]
        if any(c is None for c in chosen):
            continue
        power = sum(choice)
        sums[power % 2] = plus(b, sums[power % 2], f(*chosen), "sub" if power % 4 > 1 else "add")
    assert sums[0] is not None
    return Complex(sums[0], sums[1])


def product(b: Builder, x: Pair, y: Pair) -> Pair:
    """x * y."""
    made = multilinear(b, lambda p, q: b.map("mul", p, q), (x, y))
    return made.re, made.im


def scaled(b: Builder, x: Pair, factor: Number) -> Pair:
    return x if factor == 1 else product(b, x, parts(b, factor, x[0].dtype))


def out_of(b: Builder, x: Pair) -> Complex:
    return like_out(b, Complex(*x))


for _kind, _words in ((_ByParts, PARTS), (_Made, MADE)):
    for _word in _words:
        table.COMPLEX[table.full_name(_word)] = _kind(_word)


# -- combining real tensors, and taking parts


@complex_op("complex")
def from_parts(b: Builder, real: Value, imag: Value) -> Complex:
    return like_out(b, Complex(real, b.expand(imag, b.out.shape)))


@complex_op("polar")
def polar(b: Builder, length: Value, angle: Value) -> Complex:
    return Complex(b.map("mul", length, b.map("cos", angle)), b.map("mul", length, b.map("sin", angle)))


@complex_op("view_as_complex", "view_as_complex_copy")
def view_as_complex(b: Builder, x: Value) -> Complex:
    return b.from_pairs(x)


@complex_op("view_as_real", "view_as_real_copy")
def view_as_real(b: Builder, x: Complex) -> Value:
    return b.pairs(x)


@complex_op("real")
def real(b: Builder, x: Complex) -> Value:
    return x.re


@complex_op("imag")
def imag(b: Builder, x: Complex) -> Value:
    return b.imaginary(x)


@complex_op("conj", "_conj", "conj_physical", "_conj_physical", "_conj_copy")
def conj(b: Builder, x: Complex) -> Complex:
    return Complex(x.re, None if x.im is None else b.map("neg", x.im))


@complex_op("copy")
def copy(b: Builder, x: Complex, src: Operand) -> Complex:
    return out_of(b, parts(b, src, real_type(b)))


@complex_op("resolve_conj", "resolve_neg")
def resolved(b: Builder, x: Complex) -> Complex:
    return x


@complex_op("adjoint", "mH", "matrix_H")
def adjoint(b: Builder, x: Complex) -> Complex:
    re, im = b.transpose(x.re), None if x.im is None else b.map("neg", b.transpose(x.im))
    return Complex(re, im)


@complex_op("_to_copy", "to.dtype", "to.device", "to.dtype_layout", "type_as", "to.other", "to.prim_Device")
def to(b: Builder, x: Operand, device: Any = None, dtype: Any = None, other: Any = None) -> Value | Complex:
    if device is not None and torch.device(device).type != "cpu":
        raise Rejected(f"device {device}")
    if not b.out.is_complex():
        return b.to_out(x.re if isinstance(x, Complex) else x)  # type: ignore[arg-type]
    return Complex(*parts(b, x, real_type(b)))


@complex_op("full", "new_full", "full_like", "fill.Scalar", "fill.Tensor")
def full(
    b: Builder, x: object, fill_value: Operand = 0, value: Operand = 0, size: object = None, dtype: object = None
) -> Value | Complex:
    if not is_complex(b.out):
        return b.fill(b.out.shape, complex(fill_value).real, b.out.dtype)  # type: ignore[arg-type]
    return out_of(b, parts(b, fill_value or value, real_type(b)))


@complex_op("scalar_tensor")
def scalar_tensor(b: Builder, x: Number, dtype: object) -> Complex:
    return Complex(*parts(b, x, real_type(b)))


@complex_op("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(b: Builder, x: Complex, mask: Value, value: Operand) -> Complex:
    dtype = real_type(b)
    pairs = zip(both(b, value, dtype), both(b, x, dtype), strict=True)
    re, im = (b.where(mask, v, p) for v, p in pairs)
    return Complex(re, im)


@complex_op("constant_pad_nd")
def constant_pad(b: Builder, x: Complex, pad: Sequence[int], value: Number) -> Complex:
    number = complex(value)
    re = moves.constant_pad(b, x.re, pad, number.real)
    return Complex(re, moves.constant_pad(b, b.imaginary(x), pad, number.imag) if x.im or number.imag else None)


@complex_op("pad")
def padded(b: Builder, x: Complex, pad: Sequence[int], mode: str, value: float | None) -> Complex:
    return Complex(moves.pad(b, x.re, pad, mode, value), moves.pad(b, b.imaginary(x), pad, mode, 0.0))


# -- arithmetic


@complex_op("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "subtract.Tensor", "subtract.Scalar")
def add(b: Builder, x: Operand, other: Operand, alpha: Number = 1) -> Complex:
    dtype, function = real_type(b), "sub" if ".sub" in b.target else "add"
    (xr, xi), (yr, yi) = parts(b, x, dtype), scaled(b, parts(b, other, dtype), alpha)
    return out_of(b, (b.map(function, xr, yr), plus(b, xi, yi, function)))


@complex_op("rsub.Tensor", "rsub.Scalar")
def rsub(b: Builder, x: Operand, other: Operand, alpha: Number = 1) -> Complex:
    b.target = "aten.sub.Tensor"
    return add(b, other, x, alpha)


@complex_op("mul.Tensor", "mul.Scalar", "multiply.Tensor", "multiply.Scalar")
def mul(b: Builder, x: Operand, other: Operand) -> Complex:
    dtype = real_type(b)
    return out_of(b, product(b, parts(b, x, dtype), parts(b, other, dtype)))


def reciprocal_of(b: Builder, x: Pair) -> Pair:
    """1 / x as conj(x) / |x|^2, scaled by the larger part so that the square neither overflows nor underflows."""
    re, im = x
    if im is None:
        return b.map("reciprocal", re), None
    scale = b.layer("stop", b.map("max", b.map("abs", re), b.map("abs", im)))
    scale = b.where(b.compare("eq", scale, 0), b.scalar(1, re.dtype), scale)
    re, im = b.map("div", re, scale), b.map("div", im, scale)
    square = b.map("mul", b.map("add", b.map("square", re), b.map("square", im)), scale)
    return b.map("div", re, square), b.map("div", b.map("neg", im), square)


def _quotient(b: Builder, x: Pair, y: Pair) -> Pair:
    if y[1] is None:
        return b.map("div", x[0], y[0]), None if x[1] is None else b.map("div", x[1], y[0])
    return product(b, x, reciprocal_of(b, y))


@complex_op("div.Tensor", "div.Scalar", "divide.Tensor", "divide.Scalar", "true_divide.Tensor", "true_divide.Scalar")
def div(b: Builder, x: Operand, other: Operand) -> Complex:
    dtype = real_type(b)
    return out_of(b, _quotient(b, parts(b, x, dtype), parts(b, other, dtype)))


@complex_op("reciprocal")
def reciprocal(b: Builder, x: Complex) -> Complex:
    return Complex(*reciprocal_of(b, (x.re, x.im)))


@complex_op("square")
def square(b: Builder, x: Complex) -> Complex:
    return Complex(*product(b, (x.re, x.im), (x.re, x.im)))


@complex_op("addcmul", "addcdiv")
def addcmul(b: Builder, x: Operand, tensor1: Operand, tensor2: Operand, value: Number) -> Complex:
    dtype = real_type(b)
    combine = product if "addcmul" in b.target else _quotient
    made = scaled(b, combine(b, parts(b, tensor1, dtype), parts(b, tensor2, dtype)), value)
    start = parts(b, x, dtype)
    return out_of(b, (b.map("add", start[0], made[0]), plus(b, start[1], made[1])))


@complex_op("lerp.Scalar", "lerp.Tensor")
def lerp(b: Builder, x: Operand, end: Operand, weight: Operand) -> Complex:
    dtype = real_type(b)
    start, stop = both(b, x, dtype), both(b, end, dtype)
    way = (b.map("sub", stop[0], start[0]), b.map("sub", stop[1], start[1]))
    step = product(b, way, parts(b, weight, dtype))
    return out_of(b, (b.map("add", start[0], step[0]), plus(b, start[1], step[1])))


# -- contractions


def _contraction(names: str, *operands: str) -> None:
    """Registers operators that are linear in the operands named. The real operator is applied to each combination of
    parts."""
    for name in names.split():
        table.COMPLEX[table.full_name(name)] = _Contraction(name, operands)


class _Contraction(OfReal):
    def __init__(self, name: str, operands: tuple[str, ...]) -> None:
        super().__init__(name)
        self.operands = operands

    def __call__(self, b: Builder, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Complex:
        out, dtype = b.out, real_type(b)
        given = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
        bias = given.pop("bias", None)
        names = [n for n in self.operands if given.get(n) is not None]
        b.out = _real_out(out)

        def real(*values: Value) -> Value:
            made: Value = self.row(b, schema, (), {**given, **dict(zip(names, values, strict=True))})
            return made

        operands = [parts(b, given[n], dtype) for n in names]
        if "vdot" in b.target:
            re, im = operands[0]
            operands[0] = re, None if im is None else b.map("neg", im)
        made = multilinear(b, real, operands)
        b.out = out
        if bias is None:
            return made
        more = parts(b, bias, dtype)
        pixels = operands[1][0].ndim - 2 if "conv" in b.target else 0
        if pixels:
            more = tuple(v and b.reshape(v, [*v.shape, *[1] * pixels]) for v in more)  # type: ignore[assignment]
        return out_of(b, (b.map("add", made.re, more[0]), plus(b, made.im, more[1])))


_contraction("matmul linalg_matmul", "self", "other")
_contraction("inner", "self", "other")
_contraction("mm bmm", "self", "mat2")
_contraction("mv", "self", "vec")
_contraction("dot", "self", "tensor")
_contraction("vdot", "self", "other")
_contraction("outer ger", "self", "vec2")
_contraction("linear", "input", "weight")
_contraction("conv1d conv2d conv3d convolution", "input", "weight")
_contraction("conv_transpose1d conv_transpose2d.input conv_transpose3d.input", "input", "weight")


@complex_op("einsum")
def einsum(b: Builder, equation: str, tensors: Sequence[Operand]) -> Complex:
    dtype, eq = real_type(b), equation.replace(" ", "")
    return multilinear(b, lambda *v: b.layer("Einsum", *v, eq=eq), [parts(b, t, dtype) for t in tensors])


@complex_op("addmm", "addmv", "addbmm", "baddbmm")
def addmm(
    b: Builder,
    x: Operand,
    beta: Number,
    alpha: Number,
    mat1: Operand | None = None,
    mat2: Operand | None = None,
    mat: Operand | None = None,
    vec: Operand | None = None,
    batch1: Operand | None = None,
    batch2: Operand | None = None,
) -> Complex:
    dtype = real_type(b)
    left, right = mat1 or mat or batch1, mat2 or vec or batch2
    made = multilinear(b, lambda p, q: b.layer("MatMul", p, q), [parts(b, v, dtype) for v in (left, right)])  # type: ignore[arg-type]
    sums = scaled(b, (made.re, made.im), alpha)
    if made.ndim > len(b.out.shape):  # addbmm
        sums = b.reduce("Sum", sums[0], 0), sums[1] and b.reduce("Sum", sums[1], 0)
    if beta == 0:
        return out_of(b, sums)
    start = scaled(b, parts(b, x, dtype), beta)
    return out_of(b, (b.map("add", start[0], sums[0]), plus(b, start[1], sums[1])))
