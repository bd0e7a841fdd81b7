# Softmax and log-softmax that are written out.

== as JAX writes softmax: the maximum at least -inf, without a gradient, and broadcast
pass softmax dead
values special
graph "t"
input %0:f32[2 3 5] "x"
const %1:f32[] = -inf
%2 = Max(%0) axes=[2]
%3 = max(%1, %2)
%4 = Reshape(%3) shape=[2,3,1]
%5 = stop(%4)
%6 = sub(%0, %5)
%7 = exp(%6)
%8 = Sum(%7) axes=[2]
%9 = Reshape(%8) shape=[2,3,1]
%10 = Expand(%9) shape=[2,3,5]
%11 = div(%7, %10)
output %11 "y"
-->
graph "t"
input %0:f32[2 3 5] "x"
const %1:f32[] = -inf
%2:f32[2 3 5] = Softmax(%0) axis=2
output %2 "y"
work flops 162 -> 120, bytes 1780 -> 240

== along another axis, whose size is kept
pass softmax dead
graph "t"
input %0:f64[2 3 5] "x"
%1 = Max(%0) axes=[-2] keep=1
%2 = sub(%0, %1)
%3 = exp(%2)
%4 = Sum(%3) axes=[1] keep=1
%5 = div(%3, %4)
output %5 "y"
-->
graph "t"
input %0:f64[2 3 5] "x"
%1:f64[2 3 5] = Softmax(%0) axis=1
output %1 "y"
work flops 150 -> 120, bytes 3200 -> 480

== all of a vector
pass softmax dead
graph "t"
input %0:f32[7] "x"
%1 = Max(%0)
%2 = sub(%0, %1)
%3 = exp(%2)
%4 = Sum(%3)
%5 = div(%3, %4)
output %5 "y"
-->
graph "t"
input %0:f32[7] "x"
%1:f32[7] = Softmax(%0) axis=0
output %1 "y"
work flops 35 -> 28, bytes 352 -> 56

== the logarithm, with the logarithm in front of the broadcast or behind it
pass softmax dead
values special
graph "t"
input %0:f32[4 5] "x"
%1 = Max(%0) axes=[1] keep=1
%2 = sub(%0, %1)
%3 = exp(%2)
%4 = Sum(%3) axes=[1]
%5 = log(%4)
%6 = Reshape(%5) shape=[4,1]
%7 = sub(%2, %6)
%8 = Max(%7) axes=[1] keep=1
%9 = sub(%7, %8)
%10 = exp(%9)
%11 = Sum(%10) axes=[1] keep=1
%12 = Expand(%11) shape=[4,5]
%13 = log(%12)
%14 = sub(%9, %13)
output %14 "y"
-->
graph "t"
input %0:f32[4 5] "x"
%1:f32[4 5] = LogSoftmax(%0) axis=1
%2:f32[4 5] = LogSoftmax(%1) axis=1
output %2 "y"
work flops 224 -> 160, bytes 2272 -> 320

== not: a maximum along the other axis, of a square
pass softmax dead
graph "t"
input %0:f32[5 5] "x"
%1 = Max(%0) axes=[0] keep=1
%2 = sub(%0, %1)
%3 = exp(%2)
%4 = Sum(%3) axes=[1] keep=1
%5 = div(%3, %4)
output %5 "y"
--> same

== not: a sum that stands at the columns of a square
pass softmax dead
graph "t"
input %0:f32[5 5] "x"
%1 = Max(%0) axes=[1] keep=1
%2 = sub(%0, %1)
%3 = exp(%2)
%4 = Sum(%3) axes=[1]
%5 = div(%3, %4)
output %5 "y"
--> same

== not: exponentials that somebody else reads
pass softmax dead
graph "t"
input %0:f32[4 5] "x"
%1 = Max(%0) axes=[1] keep=1
%2 = sub(%0, %1)
%3 = exp(%2)
%4 = Sum(%3) axes=[1] keep=1
%5 = div(%3, %4)
output %5 "y"
output %3 "e"
--> same

== not: a maximum that -inf broadcasts to the columns of a square
pass softmax dead
graph "t"
input %0:f32[5 5] "x"
const %1:f32[5 1] = splat -inf
%2 = Max(%0) axes=[1]
%3 = max(%1, %2)
%4 = sub(%0, %3)
%5 = exp(%4)
%6 = Sum(%5) axes=[1] keep=1
%7 = div(%5, %6)
output %7 "y"
--> same

== in attention, which is joined at once: the maximum and the sum read the scores no longer
pass softmax attention
graph "t"
input %0:f32[2 3 4 8] "q"
input %1:f32[2 3 8 6] "k"
input %2:f32[2 3 6 5] "v"
%3 = MatMul(%0, %1)
%4 = Max(%3) axes=[3] keep=1
%5 = stop(%4)
%6 = sub(%3, %5)
%7 = exp(%6)
%8 = Sum(%7) axes=[3] keep=1
%9 = div(%7, %8)
%10 = MatMul(%9, %2) "values"
output %10 "y"
-->
graph "t"
input %0:f32[2 3 4 8] "q"
input %1:f32[2 3 8 6] "k"
input %2:f32[2 3 6 5] "v"
%3:f32[2 3 4 6] = MatMul(%0, %1)
%4:f32[2 3 4 6] = Softmax(%3) axis=3
%5:f32[2 3 6 8] = Permute(%1) perm=[0,1,3,2] "values"
%6:f32[2 3 4 5] = Attention(%0, %5, %2) scale=1.0 empty="nan" "values"
output %6 "y"
work flops 4488 -> 7176, bytes 11760 -> 9072

== x is transposed behind the maximum, as vmap of JAX does it
pass softmax dead
values special
graph "t"
input %0:f32[2 3 4 5] "x"
%1 = Max(%0) axes=[3]
%2 = Reshape(%1) shape=[1,2,3,4]
%3 = Permute(%2) perm=[3,0,1,2]
%4 = Reshape(%3) shape=[4,2,3,1]
%5 = Permute(%0) perm=[2,0,1,3]
%6 = sub(%5, %4)
%7 = exp(%6)
%8 = Sum(%7) axes=[3] keep=1
%9 = div(%7, %8)
output %9 "y"
-->
graph "t"
input %0:f32[2 3 4 5] "x"
%1:f32[4 2 3 5] = Permute(%0) perm=[2,0,1,3]
%2:f32[4 2 3 5] = Softmax(%1) axis=3
output %2 "y"
work flops 600 -> 480, bytes 7680 -> 1920

== the rows of another order stay
pass softmax dead
graph "t"
input %0:f32[2 4 4 5] "x"
%1 = Max(%0) axes=[3] keep=1
%2 = Permute(%1) perm=[2,0,1,3]
%3 = Permute(%0) perm=[1,0,2,3]
%4 = sub(%3, %2)
%5 = exp(%4)
%6 = Sum(%5) axes=[3] keep=1
%7 = div(%5, %6)
output %7 "y"
--> same
