"""An example of each of TensorFlow's operators in SOL's table: a function of tensors, and its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
RNG = np.random.default_rng(0)
R = tf.raw_ops


def real(*shape: int, low: float = -2.0, high: float = 2.0) -> Any:
    """Random numbers."""
    return RNG.uniform(low, high, shape)


def whole(*shape: int, low: int = 0, high: int = 5) -> Any:
    """Random integers."""
    return RNG.integers(low, high, shape)


def raw(name: str, *given: Any, **attributes: Any) -> None:
    """Adds the operator itself. Arguments that are no arrays are constants of the function."""
    inputs = op_def_registry.get(name).input_arg
    names = list(inspect.signature(getattr(R, name)).parameters)  # in the same order, some under other names
    at = [i for i, v in enumerate(given) if isinstance(v, np.ndarray)]

    def function(*xs: Any) -> Any:
        values = list(given)
        for i, x in zip(at, xs, strict=True):
            values[i] = x
        if inputs[0].number_attr or inputs[0].type_list_attr:
            n = len(values) - len(inputs) + 1
            values = [values[:n], *values[n:]]
        named = dict(zip(names, values, strict=False))
        return getattr(R, name)(**named, **attributes)

    CASES[name] = (function, tuple(given[i] for i in at))


def case(name: str, function: Callable[..., Any], *args: Any) -> None:
    """Adds a case that a function of TensorFlow makes."""
    CASES[name] = (function, args)


# -- element-wise

for _name in ("BesselI0e", "BesselI1e"):
    raw(_name, real(3, 5))
raw("Xdivy", np.append(real(3, 4), np.zeros((3, 1)), 1), real(5, low=0.5))
raw("Xlog1py", np.append(real(3, 4), np.zeros((3, 1)), 1), real(5, low=0.5))
raw("CumulativeLogsumexp", real(3, 5), 1, reverse=True)
raw("EuclideanNorm", real(3, 5), [1])
raw("AdjustContrastv2", real(2, 4, 5, 3).astype("float32"), np.float32(1.5))
for _name in (
    "Abs Asinh Atan Ceil Cos Cosh Elu Erf Erfc Exp Expm1 Floor Identity Inv IsFinite IsInf IsNan Neg OnesLike Reciprocal Relu Relu6 Rint "
    "Round Selu Sigmoid Sign Sin Sinh Snapshot Softplus Softsign Square StopGradient Tan Tanh ZerosLike"
).split():
    raw(_name, real(3, 5))
for _name in ("Acos", "Asin", "Atanh", "Erfinv"):
    raw(_name, real(3, 5, low=-0.9, high=0.9))
for _name in ("Digamma", "Lgamma", "Log", "Log1p", "Rsqrt", "Sqrt"):
    raw(_name, real(3, 5, low=0.2))
raw("Acosh", real(3, 5, low=1.1))
for _name in (
    "Add AddV2 Atan2 Div DivNoNan Equal FloorDiv FloorMod Greater GreaterEqual Less LessEqual Maximum Minimum Mul MulNoNan NotEqual RealDiv "
    "SquaredDifference Sub TruncateMod"
).split():
    raw(_name, real(3, 5), real(5))
raw("Pow", real(3, 5, low=0.1), real(5))
raw("Xlogy", real(3, 5), real(5, low=0.1))
raw("TruncateDiv", whole(3, 5, low=-9, high=9), whole(5, low=1))
for _name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
    raw(_name, whole(3, 5), whole(5))
for _name in ("LogicalAnd", "LogicalOr"):
    raw(_name, real(3, 5) > 0, real(5) > 0)
raw("LogicalNot", real(3, 5) > 0)
raw("LeakyRelu", real(3, 5), alpha=0.1)
raw("ClipByValue", real(3, 5), -0.5, 0.5)
raw("Select", real(3, 5) > 0, real(3, 5), real(3, 5))
raw("SelectV2", real(3, 5) > 0, real(5), real(3, 1))
raw("Cast", whole(3, 5), DstT=tf.float64)
raw("AddN", real(3, 5), real(3, 5), real(3, 5))
raw("BiasAdd", real(2, 4, 4, 3), real(3))
raw("CheckNumerics", real(3, 5), message="")
raw("EnsureShape", real(3, 5), shape=[3, None])
raw("PlaceholderWithDefault", real(3, 5), shape=[3, 5])
case("IdentityN", lambda x, y: R.IdentityN(input=[x, y]), real(3), real(4))
raw("L2Loss", real(3, 5))

# -- reductions, scans, norms

for _name in ("Sum", "Mean", "Prod", "Max", "Min"):
    raw(_name, real(2, 3, 4), [0, -1])
for _name in ("All", "Any"):
    raw(_name, real(3, 5) > 0, [1], keep_dims=True)
raw("Cumsum", real(3, 5), 1, reverse=True)
raw("Cumprod", real(3, 5), 0, exclusive=True)
raw("Softmax", real(3, 5))
raw("LogSoftmax", real(3, 5))
raw("LRN", real(2, 3, 3, 8).astype("float32"), depth_radius=2)
for _name, _training in (("FusedBatchNorm", True), ("FusedBatchNormV2", False), ("FusedBatchNormV3", False)):
    _norm = partial(getattr(R, _name), is_training=_training)  # its other results are for its own gradient
    _five = [v.astype("float32") for v in (real(2, 3, 3, 4), real(4), real(4), real(4), real(4, low=0.5))]
    if _training:
        _five[3:] = [np.zeros(0, "float32")] * 2
    case(_name, lambda x, w, c, m, v, f=_norm: list(f(x=x, scale=w, offset=c, mean=m, variance=v))[:3], *_five)

# -- products, convolutions, pools

raw("MatMul", real(3, 4), real(5, 4), transpose_b=True)
for _name in ("BatchMatMul", "BatchMatMulV2"):
    raw(_name, real(2, 3, 4), real(2, 4, 5))
raw("BatchMatMulV3", real(2, 3, 4), real(2, 4, 5), Tout=tf.float64)
raw("Einsum", real(2, 3, 4), real(4, 5), equation="abc,cd->abd")
_S2 = {"strides": [1, 2, 2, 1], "padding": "SAME"}
raw("Conv2D", real(2, 7, 6, 2), real(3, 3, 2, 6), **_S2)
raw("DepthwiseConv2dNative", real(2, 7, 7, 3), real(3, 3, 3, 2), **_S2)
raw("Conv2DBackpropInput", [2, 7, 7, 3], real(3, 3, 3, 5), real(2, 4, 4, 5), **_S2)
_S3 = {"strides": [1, 1, 2, 1, 1], "padding": "VALID"}
raw("Conv3D", real(1, 5, 6, 4, 2), real(2, 3, 2, 2, 3), **_S3)
raw("Conv3DBackpropInputV2", [1, 5, 7, 4, 2], real(2, 3, 2, 2, 3), real(1, 4, 3, 3, 3), **_S3)
raw("MaxPool", real(2, 7, 7, 3), ksize=[1, 3, 3, 1], **_S2)
raw("AvgPool", real(2, 7, 7, 3), ksize=[1, 3, 3, 1], **_S2)
_K3 = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "VALID"}
raw("MaxPool3D", real(1, 4, 4, 4, 2).astype("float32"), **_K3)
raw("AvgPool3D", real(1, 4, 4, 4, 2).astype("float32"), **_K3)
for _name in ("ResizeBilinear", "ResizeNearestNeighbor"):
    raw(_name, real(1, 4, 5, 2).astype("float32"), [7, 3], half_pixel_centers=True)
raw("ResizeBicubic", real(1, 4, 6, 2).astype("float32"), [8, 3], half_pixel_centers=True)

# -- moves

raw("Reshape", real(3, 4), [2, 6])
raw("ExpandDims", real(3, 4), 1)
raw("Squeeze", real(3, 1, 4), axis=[1])
raw("Transpose", real(2, 3, 4), [2, 0, 1])
raw("ConcatV2", real(2, 3), real(2, 4), 1)
raw("Pack", real(2, 3), real(2, 3), axis=1)
raw("Unpack", real(3, 2), num=3, axis=0)
raw("Split", 1, real(2, 6), num_split=3)
raw("SplitV", real(2, 6), [1, 5], 1, num_split=2)
case("StridedSlice", lambda x: x[::-1, tf.newaxis, 1:4:2, ..., 0], real(3, 5, 2))
raw("Slice", real(3, 5), [1, 0], [2, -1])
raw("Pad", real(3, 5), [[1, 0], [2, 1]])
raw("PadV2", real(3, 5), [[1, 0], [2, 1]], np.float64(3))
raw("MirrorPad", real(3, 5), [[1, 0], [2, 1]], mode="REFLECT")
raw("Tile", real(2, 3), [2, 2])
raw("BroadcastTo", real(3, 1), [2, 3, 4])
case("Fill", lambda x: x + R.Fill(dims=[2, 3], value=x[0, 0]), real(2, 3))
raw("ReverseV2", real(3, 5), [1])
raw("Roll", real(3, 5), [1, 2], [0, 1])
raw("DepthToSpace", real(2, 3, 3, 8), block_size=2)
raw("SpaceToDepth", real(2, 4, 4, 2), block_size=2)
raw("SpaceToBatchND", real(2, 4, 4, 1), [2, 2], [[0, 0], [2, 0]])
raw("BatchToSpaceND", real(8, 2, 2, 1), [2, 2], [[0, 1], [0, 0]])
raw("MatrixBandPart", real(4, 4), 1, 0)
case("Range", lambda x: x * tf.cast(R.Range(start=1, limit=6, delta=1), "float64"), real(3, 5))

# -- by index

raw("Gather", real(6, 4), whole(3))
raw("GatherV2", real(2, 6, 4), whole(2, 3), 1, batch_dims=1)
raw("GatherNd", real(6, 5), whole(3, 2))
raw("OneHot", whole(3), 5, np.float64(2), np.float64(-1))
for _binary in (False, True):
    raw("DenseBincount", np.array([[1, 0, 7, 1], [2, 2, 4, 9]]), np.int64(5), np.zeros(0), binary_output=_binary)
raw("DenseBincount", np.array([3, 0, 3]), np.int64(4), np.array([0.5, 2.0, -1.0]), binary_output=False)
raw("ArgMax", real(3, 5), 1)
raw("ArgMin", real(3, 5), 0)
raw("TopKV2", real(3, 5), 2)
raw("ScatterNd", whole(3, 1, high=4), real(3, 2), [4, 2])
for _name in ("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterMax", "TensorScatterMin"):
    raw(_name, real(6, 2), np.array([[1], [4], [0]]), real(3, 2))

# -- what TensorFlow's gradients consist of: their results alone


def once(name: str, *given: Any, **attributes: Any) -> None:
    """Adds an operator whose own gradient is not asked for."""
    raw(name, *given, **attributes)
    function, args = CASES[name]
    CASES[name] = (lambda *xs: function(*[tf.stop_gradient(x) for x in xs]), args)


for _name in ("EluGrad", "Relu6Grad", "ReluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad"):
    once(_name, real(3, 5), real(3, 5, low=-1.5, high=8))
once("LeakyReluGrad", real(3, 5), real(3, 5), alpha=0.1)
for _name in ("InvGrad", "ReciprocalGrad", "RsqrtGrad", "SigmoidGrad", "SqrtGrad", "TanhGrad"):
    once(_name, real(3, 5, low=0.2), real(3, 5))
once("BiasAddGrad", real(2, 4, 4, 3))
once("Conv2DBackpropFilter", real(2, 7, 6, 2), [3, 3, 2, 6], real(2, 4, 3, 6), **_S2)
once("Conv3DBackpropFilterV2", real(1, 5, 6, 4, 2), [2, 3, 2, 2, 3], real(1, 4, 2, 3, 3), **_S3)
once("DepthwiseConv2dNativeBackpropFilter", real(2, 7, 7, 3), [3, 3, 3, 2], real(2, 4, 4, 6), **_S2)
once("DepthwiseConv2dNativeBackpropInput", [2, 7, 7, 3], real(3, 3, 3, 2), real(2, 4, 4, 6), **_S2)
_image = real(2, 7, 7, 3)
with tf.device("CPU:0"):
    _most = tf.nn.max_pool2d(tf.constant(_image), 3, 2, "SAME").numpy()
once("MaxPoolGrad", _image, _most, real(2, 4, 4, 3), ksize=[1, 3, 3, 1], **_S2)
once("AvgPoolGrad", [2, 7, 7, 3], real(2, 4, 4, 3), ksize=[1, 3, 3, 1], **_S2)
_seen = [v.astype("float32") for v in (real(2, 3, 3, 4), real(2, 3, 3, 4), real(4), real(4), real(4, low=0.5))]
for _name, _training in (("FusedBatchNormGrad", True), ("FusedBatchNormGradV2", False), ("FusedBatchNormGradV3", True)):
    _last = [_seen[3]] if _name.endswith("V3") else []
    once(_name, *_seen, *_last, is_training=_training)
    _of = CASES[_name]
    CASES[_name] = (lambda *xs, f=_of[0]: list(f(*xs))[:3], _of[1])
once("SoftmaxCrossEntropyWithLogits", real(4, 5), real(4, 5, low=0))
once("SparseSoftmaxCrossEntropyWithLogits", real(4, 5), whole(4))
case(
    "StridedSliceGrad",
    lambda dy: R.StridedSliceGrad(
        shape=[4, 5], begin=[1, 2], end=[3, 0], strides=[1, 1], dy=tf.stop_gradient(dy), end_mask=2
    ),
    real(2, 3),
)
for _name in ("UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMax", "UnsortedSegmentMin"):
    raw(_name, real(2, 3, 4), whole(2, 3, low=-1), 5)  # a negative number: in no segment

raw("TensorScatterSub", real(4, 2), whole(3, 1, high=4), real(3, 2))
for _name in ("LowerBound", "UpperBound"):
    raw(_name, np.sort(whole(2, 6).astype("float64")), whole(2, 4).astype("float64"))
raw("ReverseSequence", real(3, 4, 2), np.array([1, 3, 0, 2]), seq_dim=0, batch_dim=1)

# -- linear algebra

raw("MatrixDiagV3", real(2, 3), 1, -1, -1, 0.0)
raw("MatrixDiagPartV3", real(2, 3, 5), -1, 0.0)
raw("MatrixSetDiagV3", real(2, 3, 5), real(2, 3), 1)

_definite = real(2, 4, 4)
_definite = _definite @ _definite.transpose(0, 2, 1) + np.eye(4)
for _name in ("LogMatrixDeterminant", "MatrixDeterminant", "Cholesky"):
    raw(_name, _definite)
raw("MatrixInverse", real(2, 4, 4), adjoint=True)
raw("MatrixSolve", real(2, 4, 4), real(2, 4, 3), adjoint=True)
raw("MatrixTriangularSolve", real(2, 4, 4, low=1), real(2, 4, 3), lower=False, adjoint=True)
case("Qr", lambda a: list(map(tf.abs, tf.linalg.qr(a))), real(2, 5, 3))
case("SelfAdjointEigV2", lambda a: [tf.linalg.eigvalsh(a), tf.abs(tf.linalg.eigh(a)[1])], _definite)
case("Svd", lambda a: [tf.linalg.svd(a, compute_uv=False), *map(tf.abs, tf.linalg.svd(a)[1:])], real(2, 5, 3))
