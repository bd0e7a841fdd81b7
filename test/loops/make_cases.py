"""Writes cases.inc: rows, inputs and what PyTorch says, for loops_test.c.  Run it in the project's .venv:

    python test/loops/make_cases.py > test/loops/cases.inc

Inputs follow a formula that loops_test.c knows too; see `value`.
"""

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def value(kind: str, i: int, k: int) -> float:
    """Element i of input k: `f` real, `p` positive real, `iM` integer below M."""
    if kind[0] == "i":
        return (i * 5 + 3 * k + i // 3) % int(kind[1:])
    v = ((i * 37 + 11 * k + i // 5) % 47 - 23) / 16
    return abs(v) + 0.25 if kind == "p" else v


def inputs(spec: str) -> list:
    """`f2x3 p3 i4:2x2 -`: kinds and shapes; `-` is missing."""
    out: list = []
    for k, text in enumerate(spec.split()):
        if text == "-":
            out.append(None)
            continue
        kind, dims = text.split(":")
        shape = [int(d) for d in dims.split("x")] if dims else []
        n = 1
        for d in shape:
            n *= d
        data = torch.tensor([value(kind, i, k) for i in range(n)])
        out.append((data.long() if kind[0] == "i" else data).reshape(shape))
    return out


def case(name: str, row: str, attrs: str, spec: str, ref) -> None:
    """Prints one case: the results of `ref` for the inputs, output after output."""
    want = ref(*inputs(spec))
    want = want if isinstance(want, (tuple, list)) else [want]
    numbers = [float(v) for w in want for v in w.reshape(-1)]
    print(f'CASE("{name}", "{row}",\n     "{attrs}", "{spec}",')
    print("     " + ", ".join(f"{v:.10g}" for v in numbers).replace("inf", "INFINITY").replace("nan", "NAN") + ")")


CONV = (
    "x[N I Q..] w[O J K..] b?[O] -> y[N O P..] | #G=g; #C=#O//g; #O=#C*#G; #I=#J*#G; #P=(#Q+p+q-d*(#K-1)-1)//s+1 |"
    " y[N G*#C+C P] = (sum[J K] x[N G*#J+J s*P+d*K-p]:0 * w[G*#C+C J K]) + b[G*#C+C]:0"
)
case("Conv1", CONV, "s=2 p=1 q=1 d=1 g=1", "f:2x3x7 f:2x3x3 f:2", lambda x, w, b: F.conv1d(x, w, b, 2, 1))
case(
    "Conv2",
    CONV,
    "s=[2,1] p=[1,0] q=[1,0] d=[1,2] g=2",
    "f:1x4x5x6 f:4x2x3x2 -",
    lambda x, w, b: F.conv2d(x, w, None, (2, 1), (1, 0), (1, 2), 2),
)
case(
    "Conv3",
    CONV,
    "s=[1,2,2] p=[1,1,0] q=[1,1,0] d=1 g=1",
    "f:1x2x2x3x4 f:2x2x2x3x1 f:2",
    lambda x, w, b: F.conv3d(x, w, b, (1, 2, 2), (1, 1, 0)),
)
case("Conv0", CONV, "s=1 p=0 q=0 d=1 g=1", "f:3x4 f:2x4 f:2", lambda x, w, b: F.linear(x, w, b))
case(
    "ConvUneven",
    CONV,
    "s=2 p=[0,2] q=[3,1] d=1 g=1",
    "f:1x1x4x5 f:1x1x3x3 -",
    lambda x, w, b: F.conv2d(F.pad(x, (2, 1, 0, 3)), w, None, 2),
)
case(
    "ConvDepthwise",
    CONV,
    "s=1 p=1 q=1 d=1 g=3",
    "f:1x3x4x3 f:3x1x3x3 f:3",
    lambda x, w, b: F.conv2d(x, w, b, 1, 1, 1, 3),
)
CONVT = (
    "x[N I P..] w[I C K..] -> y[N C Q..] | #Q=(#P-1)*s-2*p+d*(#K-1)+o+1 |"
    " y[N C Q] = sum[I P K | s*P+d*K-p==Q] x[N I P] * w[I C K]"
)
case("ConvT1", CONVT, "s=2 p=1 d=1 o=1", "f:1x2x4 f:2x3x3", lambda x, w: F.conv_transpose1d(x, w, None, 2, 1, 1))
case(
    "ConvT2",
    CONVT,
    "s=[2,3] p=[1,0] d=[1,2] o=[0,1]",
    "f:1x2x2x3 f:2x1x3x2",
    lambda x, w: F.conv_transpose2d(x, w, None, (2, 3), (1, 0), (0, 1), 1, (1, 2)),
)
LINEAR = "x[A.. I] w[O I] b?[O] -> y[A.. O] | y[A O] = (sum[I] x[A I] * w[O I]) + b[O]:0"
for shape in ("4", "3x4", "2x3x4"):
    case("Linear", LINEAR, "", f"f:{shape} f:3x4 f:3", lambda x, w, b: F.linear(x, w, b))
case("LinearNoBias", LINEAR, "", "f:2x4 f:3x4 -", lambda x, w, b: F.linear(x, w))
MATMUL = "a[B.. M K] b[B.. K N] -> y[B.. M N] | y[B M N] = sum[K] a[B M K] * b[B K N]"
case("MatMul", MATMUL, "", "f:3x4 f:4x2", lambda a, b: a @ b)
case("MatMulBatch", MATMUL, "", "f:2x2x3x2 f:2x2x2x3", lambda a, b: a @ b)
POOL = "#K=k; #P=min((#Q+2*p-d*(#K-1)-1+c*(s-1))//s, (#Q+p-1)//s)+1"
MAXPOOL = (
    f"x[N C Q..] -> y[N C P..] i:i64[N C P..] -> k0:i64[N C P..] | {POOL} |"
    " (y,k0)[N C P] = maxat[K] x[N C s*P+d*K-p]:-inf; i[N C P] = lin(#Q, s*P+d*dig(k0[N C P],#K)-p)"
)
case("MaxPool1", MAXPOOL, "k=3 s=2 p=1 d=1 c=0", "f:2x2x9", lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True))
case(
    "MaxPool2",
    MAXPOOL,
    "k=[3,2] s=[2,3] p=1 d=[2,1] c=1",
    "f:1x2x9x8",
    lambda x: F.max_pool2d(x, (3, 2), (2, 3), 1, (2, 1), True, True),
)
case(
    "MaxPool3",
    MAXPOOL,
    "k=[2,3,2] s=[1,2,2] p=[1,1,0] d=1 c=0",
    "f:1x1x3x4x4",
    lambda x: F.max_pool3d(x, (2, 3, 2), (1, 2, 2), (1, 1, 0), return_indices=True),
)
case(
    "MaxPoolPlain",
    f"x[N C Q..] -> y[N C P..] | {POOL} | y[N C P] = max[K] x[N C s*P+d*K-p]:-inf",
    "k=2 s=2 p=0 d=1 c=0",
    "f:1x2x4x5",
    lambda x: F.max_pool2d(x, 2),
)
AVG = f"x[N C Q..] -> y[N C P..] | {POOL} | y[N C P] = sum[K] x[N C s*P+K-p]:0 / sum[K | 0<=s*P+K-p<#Q] 1"
AVGPAD = f"x[N C Q..] -> y[N C P..] | {POOL} | y[N C P] = sum[K] x[N C s*P+K-p]:0 / sum[K | s*P+K-p<#Q+p] 1"
case("AvgPool", AVG, "k=3 s=2 p=1 d=1 c=1", "f:1x2x6x7", lambda x: F.avg_pool2d(x, 3, 2, 1, True, False))
case("AvgPoolPad", AVGPAD, "k=3 s=2 p=1 d=1 c=1", "f:1x2x6x7", lambda x: F.avg_pool2d(x, 3, 2, 1, True, True))
ADAPTIVE = (
    "x[N C Q..] -> y[N C P..] | #P=o; #K=(#Q+#P-1)//#P+1 | l[P] = ((P+1)*#Q+#P-1)//#P-P*#Q//#P;"
    " v[P] = 1/(((P+1)*#Q+#P-1)//#P-P*#Q//#P) | y[N C P] = sum[K | K<l[P]] x[N C P*#Q//#P+K] * v[P]"
)
case("AdaptiveAvg1", ADAPTIVE, "o=[3]", "f:2x2x7", lambda x: F.adaptive_avg_pool1d(x, 3))
case("AdaptiveAvg2", ADAPTIVE, "o=[3,7]", "f:1x2x8x5", lambda x: F.adaptive_avg_pool2d(x, (3, 7)))
NEAREST = "x[N C Q..] -> y[N C P..] | #P=o | y[N C P] = x[N C P*#Q//#P]"
case("Nearest", NEAREST, "o=[5,7]", "f:1x2x3x4", lambda x: F.interpolate(x, size=(5, 7), mode="nearest"))
LINEAR2 = (
    "x[N C Q..] -> y[N C P..] | #P=o; #K=2+0*#P | at[P K] = min(max((2*P+1)*#Q-#P,0)//(2*#P)+K,#Q-1);"
    " v[P K] = abs(1-K-(max((2*P+1)*#Q-#P,0)%(2*#P))/(2*#P)) | y[N C P] = sum[K] x[N C at[P K]] * v[P K]"
)
case("Linear2", LINEAR2, "o=[5,7]", "f:1x1x3x4", lambda x: F.interpolate(x, size=(5, 7), mode="bilinear"))
case("Linear1", LINEAR2, "o=[5]", "f:1x2x3", lambda x: F.interpolate(x, size=5, mode="linear"))
CORNERS = (
    "x[N C Q..] -> y[N C P..] | #P=o; #K=2+0*#P | at[P K] = min(P*(#Q-1)//max(#P-1,1)+K,#Q-1);"
    " v[P K] = abs(1-K-(P*(#Q-1)%max(#P-1,1))/max(#P-1,1)) | y[N C P] = sum[K] x[N C at[P K]] * v[P K]"
)
case(
    "AlignCorners",
    CORNERS,
    "o=[5,1]",
    "f:1x1x3x4",
    lambda x: F.interpolate(x, size=(5, 1), mode="bilinear", align_corners=True),
)
SOFTMAX = "x[A.. R B..] -> y[A.. R B..] | A:=axis | (m,z)[A B] = softsum[R] x[A R B]; "
for spec, axis in (("f:5", 0), ("f:2x5", 1), ("f:2x3x4", 1)):
    case(
        "Softmax",
        SOFTMAX + "y[A R B] = exp(x[A R B] - m[A B]) / z[A B]",
        f"axis={axis}",
        spec,
        lambda x, axis=axis: x.softmax(axis),
    )
case(
    "LogSoftmax",
    SOFTMAX + "y[A R B] = x[A R B] - m[A B] - log(z[A B])",
    "axis=1",
    "f:2x3x2",
    lambda x: x.log_softmax(1),
)
LAYERNORM = (
    "x[A.. R..] w?[R..] b?[R..] -> y[A.. R..] | R=n | (u,v)[A] = moments[R] x[A R];"
    " y[A R] = (x[A R]-u[A]) / sqrt(v[A]+e) * w[R]:1 + b[R]:0"
)
case("LayerNorm", LAYERNORM, "n=1 e=1e-5", "f:3x5 f:5 f:5", lambda x, w, b: F.layer_norm(x, [5], w, b))
case("LayerNormPlain", LAYERNORM, "n=2 e=1e-5", "f:2x3x2 - -", lambda x, w, b: F.layer_norm(x, [3, 2]))
BATCHNORM = (
    "x[N C P..] w[C] b[C] r[C] q[C] -> y[N C P..] r1[C] q1[C] | (u,v)[C] = moments[N P] x[N C P];"
    " y[N C P] = (x[N C P]-u[C]) / sqrt(v[C]+e) * w[C] + b[C]; r1[C] = (1-f) * r[C] + f * u[C];"
    " q1[C] = (1-f) * q[C] + f * v[C] * (#N*#P) / (#N*#P-1)"
)


def batch_norm(x, w, b, r, q):
    """Returns the updated state, too."""
    return F.batch_norm(x, r, q, w, b, True, 0.1, 1e-5), r, q


for spec in ("f:4x2", "f:2x2x3", "f:2x2x2x2"):
    case("BatchNorm", BATCHNORM, "e=1e-5 f=0.1", f"{spec} f:2 f:2 f:2 p:2", batch_norm)
GROUPNORM = (
    "x[N O P..] w?[O] b?[O] -> y[N O P..] | #G=g; #C=#O//g; #O=#C*#G | (u,v)[N G] = moments[C P] x[N G*#C+C P];"
    " y[N G*#C+C P] = (x[N G*#C+C P]-u[N G]) / sqrt(v[N G]+e) * w[G*#C+C]:1 + b[G*#C+C]:0"
)
case("GroupNorm", GROUPNORM, "g=2 e=1e-5", "f:2x4x3 f:4 f:4", lambda x, w, b: F.group_norm(x, 2, w, b))
case(
    "Embedding",
    "i:int[A..] w[V E] -> y:w[A.. E] | y[A E] = w[i[A] E]",
    "",
    "i4:2x3 f:4x3",
    lambda i, w: F.embedding(i, w),
)
case(
    "Gather",
    "x[A.. Q B..] i:int[A.. P B..] -> y[A.. P B..] | A=1 | y[A P B] = x[A i[A P B] B]",
    "",
    "f:2x5x2 i5:2x3x2",
    lambda x, i: x.gather(1, i),
)
case(
    "ScatterAdd",
    "x[A.. Q B..] i:int[A.. P B..] s[A.. P B..] -> y[A.. Q B..] | A=1 |"
    " y[A Q B] = x[A Q B] + sum[P | i[A P B]==Q] s[A P B]",
    "",
    "f:2x4x2 i4:2x6x2 f:2x6x2",
    lambda x, i, s: x.scatter_add(1, i, s),
)
case("OneHot", "i:int[A..] -> y:i64[A.. V] | #V=n | y[A V] = [i[A]==V]", "n=4", "i4:2x3", lambda i: F.one_hot(i, 4))
case(
    "CrossEntropy",
    "x[N C P..] t:int[N P..] w[C] -> y[] | (m,z)[N P] = softsum[C] x[N C P];"
    " l[N P] = w[t[N P]]:0 * (m[N P] + log(z[N P]) - x[N t[N P] P]:0);"
    " y[] = sum[N P | t[N P]!=g] l[N P] / sum[N P | t[N P]!=g] w[t[N P]]",
    "g=2",
    "f:5x4x2 i4:5x2 p:4",
    lambda x, t, w: F.cross_entropy(x, t, w, ignore_index=2),
)
SCAN = "x[A.. T B..] -> y[A.. T B..] | A=axis | "
case("CumSum", SCAN + "y[A T B] = y[A T-1 B]:0 + x[A T B]", "axis=1", "f:2x4x2", lambda x: x.cumsum(1))
case("CumSum1", SCAN + "y[A T B] = y[A T-1 B]:0 + x[A T B]", "axis=1", "f:2x1x2", lambda x: x.cumsum(1))
case(
    "CumSumBack", SCAN + "y[A T B] = y[A T+1 B]:0 + x[A T B]", "axis=0", "f:4x2", lambda x: x.flip(0).cumsum(0).flip(0)
)
case("CumProd", SCAN + "y[A T B] = y[A T-1 B]:1 * x[A T B]", "axis=1", "f:2x4", lambda x: x.cumprod(1))
case(
    "TwoScans",
    "x[T] -> y[T] | a[T] = a[T-1]:0 + x[T]; y[T] = y[T-1]:0 + a[#T-1-T]",
    "",
    "f:5",
    lambda x: x.cumsum(0).flip(0).cumsum(0),
)
case("Flip", "x[A.. P B..] -> y[A.. P B..] | A=1 | y[A P B] = x[A #P-1-P B]", "", "f:2x3x2", lambda x: x.flip(1))
case("Roll", "x[A P..] -> y[A P..] | y[A P] = x[A (P-r)%#P]", "r=[-1,3]", "f:2x5x4", lambda x: x.roll((-1, 3), (1, 2)))
case(
    "Slice",
    "x[A Q..] -> y[A P..] | #P=(e-o+s-1)//s | y[A P] = x[A s*P+o]",
    "o=[3,2] e=[5,7] s=[4,4]",
    "f:2x7x8",
    lambda x: x[:, 3:5:4, 2:7:4],
)
PAD = "x[A Q..] -> y[A P..] | #P=#Q+p+q | "
case(
    "Pad", PAD + "y[A P] = x[A P-p]:v", "p=[1,3] q=[4,0] v=1.5", "f:2x2x3", lambda x: F.pad(x, (3, 0, 1, 4), value=1.5)
)
case(
    "PadReflect",
    PAD + "y[A P] = x[A #Q-1-abs(#Q-1-abs(P-p))]",
    "p=[1,2] q=[3,0]",
    "f:2x4x3",
    lambda x: F.pad(x[None], (2, 0, 1, 3), "reflect")[0],
)
case(
    "PadCircular",
    PAD + "y[A P] = x[A (P-p)%#Q]",
    "p=[1,2] q=[3,0]",
    "f:2x4x3",
    lambda x: F.pad(x[None], (2, 0, 1, 3), "circular")[0],
)
case(
    "PadReplicate",
    PAD + "y[A P] = x[A min(max(P-p,0),#Q-1)]",
    "p=[1,2] q=[3,0]",
    "f:2x2x3",
    lambda x: F.pad(x[None], (2, 0, 1, 3), "replicate")[0],
)
case(
    "ConcatSum",
    "x[A.. X B..] z[A.. Z B..] -> y[A.. Q B..] | A=axis; #Q=#X+#Z | y[A Q B] = x[A Q B]:0 + z[A Q-#X B]:0",
    "axis=1",
    "f:2x3x2 f:2x2x2",
    lambda x, z: torch.cat([x, z], 1),
)
case(
    "Concat",
    "x[A.. X B..] z[A.. Z B..] -> y[A.. Q B..] | A=axis; #Q=#X+#Z | y[A X B] = x[A X B]; y[A #X+Z B] = z[A Z B]",
    "axis=1",
    "f:2x3x2 f:2x1x2",
    lambda x, z: torch.cat([x, z], 1),
)
case(
    "Split",
    "x[A.. Q B..] -> y[A.. P B..] z[A.. Z B..] | A=axis; #P=n; #Z=#Q-#P | y[A P B] = x[A P B]; z[A Z B] = x[A Z+#P B]",
    "axis=0 n=2",
    "f:5x2",
    lambda x: x.split([2, 3], 0),
)
case(
    "PixelShuffle",
    "x[N Z P..] -> y[N C Q..] | #Q=#P*r; #R=r+0*#P; #C=#Z//prod(#R) | y[N C Q] = x[N C*#R+lin(#R,Q%r) Q//r]",
    "r=2",
    "f:1x8x3x2",
    lambda x: F.pixel_shuffle(x, 2),
)
case(
    "ChanShuffle",
    "x[N Z P..] -> y[N Z P..] | #G=g; #C=#Z//g | y[N C*#G+G P] = x[N G*#C+C P]",
    "g=3",
    "f:1x6x2x2",
    lambda x: F.channel_shuffle(x, 3),
)
LSTM = (
    "x[T N I] w[Z I] u[Z H] b[Z] h0[N H] c0[N H] -> h[T N H] c[T N H] | #G=4; #H=#Z//4; #K=#H |"
    " a[T N G H] = (sum[I] x[T N I] * w[G*#H+H I]) + (sum[K] h[T-1 N K]:h0[N K] * u[G*#H+H K]) + b[G*#H+H];"
    " c[T N H] = sigmoid(a[T N 1 H]) * c[T-1 N H]:c0[N H] + sigmoid(a[T N 0 H]) * tanh(a[T N 2 H]);"
    " h[T N H] = sigmoid(a[T N 3 H]) * tanh(c[T N H])"
)


def lstm(x, w, u, b, h0, c0):
    """Step by step, because PyTorch's own LSTM does not return every c."""
    h, c, hs, cs = h0, c0, [], []
    for t in x:
        _, h, c = torch.lstm(t[None], (h[None], c[None]), [w, u, b, b * 0], True, 1, 0.0, False, False, False)
        h, c = h[0], c[0]
        hs.append(h)
        cs.append(c)
    return torch.stack(hs), torch.stack(cs)


for steps in (3, 1):
    case("LSTM", LSTM, "", f"f:{steps}x2x3 f:8x3 f:8x2 f:8 f:2x2 f:2x2", lstm)
GRU = (
    "x[T N I] w[Z I] u[Z H] b[Z] e[Z] h0[N H] -> h[T N H] | #G=3; #H=#Z//3; #K=#H |"
    " a[T N G H] = (sum[I] x[T N I] * w[G*#H+H I]) + b[G*#H+H];"
    " r[T N G H] = (sum[K] h[T-1 N K]:h0[N K] * u[G*#H+H K]) + e[G*#H+H];"
    " n[T N H] = tanh(a[T N 2 H] + sigmoid(a[T N 0 H]+r[T N 0 H]) * r[T N 2 H]);"
    " z[T N H] = sigmoid(a[T N 1 H]+r[T N 1 H]);"
    " h[T N H] = (1-z[T N H]) * n[T N H] + z[T N H] * h[T-1 N H]:h0[N H]"
)
case(
    "GRU",
    GRU,
    "",
    "f:3x2x3 f:6x3 f:6x2 f:6 f:6 f:2x2",
    lambda x, w, u, b, e, h: torch.gru(x, h[None], [w, u, b, e], True, 1, 0.0, False, False, False)[0],
)
ATTENTION = (
    "q[B.. T D] k[B.. S D] v[B.. S E] m?[T S] -> y[B.. T E] | a[B T S] = (sum[D] q[B T D] * k[B S D]) * c + m[T S]:0;"
    " (t,z)[B T] = softsum[S] a[B T S]; y[B T E] = sum[S] exp(a[B T S]-t[B T]) * v[B S E] / z[B T]"
)
case(
    "Attention",
    ATTENTION,
    "c=0.7071067811865476",
    "f:2x2x3x2 f:2x2x4x2 f:2x2x4x3 f:3x4",
    lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
)
CAUSAL = (
    "q[B.. T D] k[B.. S D] v[B.. S E] -> y[B.. T E] | a[B T S] = (sum[D] q[B T D] * k[B S D]) * c;"
    " (t,z)[B T] = softsum[S | S<=T] a[B T S]; y[B T E] = sum[S | S<=T] exp(a[B T S]-t[B T]) * v[B S E] / z[B T]"
)
case(
    "AttnCausal",
    CAUSAL,
    "c=0.7071067811865476",
    "f:2x4x2 f:2x4x2 f:2x4x2",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
)
case(
    "ArgMax",
    "x[A.. R B..] -> i:i64[A.. B..] -> y[A.. B..] | A=1 | (y,i)[A B] = maxat[R] x[A R B]",
    "",
    "f:2x5x3",
    lambda x: x.argmax(1),
)
case(
    "ArgMin",
    "x[A.. R..] -> y[A..] i:i64[A..] | A=1 | (y,i)[A] = minat[R] x[A R]",
    "",
    "f:2x3x4",
    lambda x: (x.flatten(1).amin(1), x.flatten(1).argmin(1)),
)
case("AMax", "x[A.. R..] -> y[A..] | R=2 | y[A] = max[R] x[A R]", "", "f:2x3x4", lambda x: x.amax((1, 2)))
case("Prod", "x[A.. R..] -> y[A..] | R=1 | y[A] = prod[R] x[A R]", "", "f:2x4", lambda x: x.prod(1))
case(
    "AnyAll",
    "x:int[A R] -> y:bool[A] z:bool[A] | y[A] = any[R] x[A R]; z[A] = all[R] x[A R]",
    "",
    "i3:4x3",
    lambda x: (x.bool().any(1), x.bool().all(1)),
)
case("Trace", "x[A A] -> y[] | y[] = sum[A] x[A A]", "", "f:4x4", lambda x: x.trace())
case("Var", "x[A.. R..] -> y[A..] | R=1 | (u,y)[A] = moments[R] x[A R]", "", "f:3x6", lambda x: x.var(1, correction=0))
