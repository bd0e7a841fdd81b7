# Batch-norm with given statistics.

== all parameters
pass batchnorm dead
graph "t"
input %0:f32[2 3 4 4] "x"
param %1:f32[3] "w"
param %2:f32[3] "b"
param %3:f32[3] "mean"
param %4:f32[3] "positive variance"
%5 = BatchNorm(%0, %1, %2, %3, %4) e=0.001 "bn"
output %5 "y"
-->
graph "t"
input %0:f32[2 3 4 4] "x"
param %1:f32[3] "w"
param %2:f32[3] "b"
param %3:f32[3] "mean"
param %4:f32[3] "positive variance"
const %5:f32[] = 0.001
%6:f32[3] = Expand(%5) shape=[3] "bn"
%7:f32[3] = add(%4, %6) "bn"
%8:f32[3] = rsqrt(%7) "bn"
%9:f32[3] = mul(%8, %1) "bn"
%10:f32[3] = mul(%3, %9) "bn"
%11:f32[3] = sub(%2, %10) "bn"
%12:f32[3 1 1] = Reshape(%9) shape=[3,1,1] "bn"
%13:f32[3 1 1] = Reshape(%11) shape=[3,1,1] "bn"
%14:f32[2 3 4 4] = Expand(%12) shape=[2,3,4,4] "bn"
%15:f32[2 3 4 4] = mul(%0, %14) "bn"
%16:f32[2 3 4 4] = Expand(%13) shape=[2,3,4,4] "bn"
%17:f32[2 3 4 4] = add(%15, %16) "bn"
output %17 "y"
work flops 207 -> 207, bytes 816 -> 3328

== without weight and bias, in double
pass batchnorm dead
graph "t"
input %0:f64[2 3] "x"
param %1:f64[3] "mean"
param %2:f64[3] "positive variance"
%3 = BatchNorm(%0, -, -, %1, %2)
output %3 "y"
-->
graph "t"
input %0:f64[2 3] "x"
param %1:f64[3] "mean"
param %2:f64[3] "positive variance"
const %3:f64[] = 1e-05
%4:f64[3] = Expand(%3) shape=[3]
%5:f64[3] = add(%2, %4)
%6:f64[3] = rsqrt(%5)
%7:f64[3] = mul(%1, %6)
%8:f64[3] = neg(%7)
%9:f64[3] = Reshape(%6) shape=[3]
%10:f64[3] = Reshape(%8) shape=[3]
%11:f64[2 3] = Expand(%9) shape=[2,3]
%12:f64[2 3] = mul(%0, %11)
%13:f64[2 3] = Expand(%10) shape=[2,3]
%14:f64[2 3] = add(%12, %13)
output %14 "y"
work flops 27 -> 24, bytes 144 -> 800

== statistics that are computed from an input
pass batchnorm dead
graph "t"
input %0:f32[2 3 4] "x"
input %1:f32[3] "positive v"
param %2:f32[3] "m"
%3 = BatchNorm(%0, -, -, %2, %1)
output %3 "y"
--> same

== statistics of another type
pass batchnorm dead
graph "t"
input %0:f32[2 3 4] "x"
param %1:f64[3] "m"
param %2:f64[3] "positive v"
%3 = BatchNorm(%0, -, -, %1, %2)
output %3 "y"
--> same

== behind a convolution it goes into the weights
pass batchnorm weights identity dead
graph "t"
input %0:f32[1 2 8 8] "x"
param %1:f32[3 2 3 3] "w"
param %2:f32[3] "gamma"
param %3:f32[3] "beta"
param %4:f32[3] "mean"
param %5:f32[3] "positive variance"
%6 = Conv(%0, %1) p=1 q=1 "conv"
%7 = BatchNorm(%6, %2, %3, %4, %5) "bn"
output %7 "y"
-->
graph "t"
input %0:f32[1 2 8 8] "x"
param %1:f32[3 2 3 3] "w"
param %2:f32[3] "gamma"
param %3:f32[3] "beta"
param %4:f32[3] "mean"
param %5:f32[3] "positive variance"
const %6:f32[] = 1e-05
%7:f32[3] = Expand(%6) shape=[3] "bn"
%8:f32[3] = add(%5, %7) "bn"
%9:f32[3] = rsqrt(%8) "bn"
%10:f32[3] = mul(%9, %2) "bn"
%11:f32[3] = mul(%4, %10) "bn"
%12:f32[3] = sub(%3, %11) "bn"
%13:f32[3 1 1] = Reshape(%10) shape=[3,1,1] "bn"
%14:f32[3 1 1] = Reshape(%12) shape=[3,1,1] "bn"
%15:f32[3 1 1 1] = Reshape(%13) shape=[3,1,1,1] "bn"
%16:f32[3 2 3 3] = Expand(%15) shape=[3,2,3,3] "bn"
%17:f32[3 2 3 3] = mul(%1, %16) "bn"
%18:f32[3] = Reshape(%14) shape=[3] "bn"
%19:f32[N=1 C=3 P=8 P=8] = Conv(%0, %17, %18) p=1 q=1 "conv"
output %19 "y"
work flops 7311 -> 7173, bytes 3080 -> 2664
