# Attention that is written out.

== a mask in front of the softmax, keys permuted
pass attention dead
graph "t"
input %0:f32[2 3 4 8] "q"
input %1:f32[2 3 6 8] "k"
input %2:f32[2 3 6 5] "v"
input %3:bool[2 1 4 6] "m"
const %4:f32[] = 0.25
const %5:f32[] = -inf
%6 = Permute(%1) perm=[0,1,3,2]
%7 = MatMul(%0, %6)
%8 = mul(%7, %4)
%9 = where(%3, %5, %8)
%10 = Softmax(%9) axis=3
%11 = MatMul(%10, %2) "values"
output %11 "y"
-->
graph "t"
input %0:f32[2 3 4 8] "q"
input %1:f32[2 3 6 8] "k"
input %2:f32[2 3 6 5] "v"
input %3:bool[2 1 4 6] "m"
const %4:f32[] = 0.25
const %5:f32[] = -inf
%6:f32[2 3 8 6] = Permute(%1) perm=[0,1,3,2]
%7:f32[2 3 6 8] = Permute(%6) perm=[0,1,3,2] "values"
%8:bool[2 1 4 6] = logical_not(%3) "values"
%9:f32[2 3 4 5] = Attention(%0, %7, %2, %8) scale=0.25 empty="nan" "values"
output %9 "y"
work flops 4608 -> 4632, bytes 12680 -> 7872

== weights that are NaN become 0
pass attention dead
graph "t"
input %0:f32[2 3 4 8] "q"
input %1:f32[2 3 8 6] "k"
input %2:f32[2 3 6 5] "v"
const %3:f32[] = 0
%4 = MatMul(%0, %1)
%5 = Softmax(%4) axis=3
%6 = isnan(%5)
%7 = where(%6, %3, %5)
%8 = MatMul(%7, %2) "values"
output %8 "y"
-->
graph "t"
input %0:f32[2 3 4 8] "q"
input %1:f32[2 3 8 6] "k"
input %2:f32[2 3 6 5] "v"
const %3:f32[] = 0
%4:f32[2 3 6 8] = Permute(%1) perm=[0,1,3,2] "values"
%5:f32[2 3 4 5] = Attention(%0, %4, %2) scale=1.0 empty=safe "values"
output %5 "y"
work flops 4608 -> 4536, bytes 8596 -> 5424

== a factor that keys do not have, something that is added, dropout in inference
pass attention dead
graph "t"
input %0:f32[2 3 4 8] "q"
input %1:f32[2 3 6 8] "k"
input %2:f32[2 3 6 5] "v"
input %3:f32[4 6] "bias"
param %4:f32[3 1 1] "temperature"
%6 = Permute(%1) perm=[0,1,3,2]
%7 = MatMul(%0, %6)
%8 = mul(%7, %4)
%9 = add(%3, %8)
%10 = Softmax(%9) axis=3
%11 = Dropout(%10)
%12 = MatMul(%11, %2)
output %12 "y"
-->
graph "t"
input %0:f32[2 3 4 8] "q"
input %1:f32[2 3 6 8] "k"
input %2:f32[2 3 6 5] "v"
input %3:f32[4 6] "bias"
param %4:f32[3 1 1] "temperature"
%5:f32[2 3 8 6] = Permute(%1) perm=[0,1,3,2]
%6:f32[2 3 6 8] = Permute(%5) perm=[0,1,3,2]
%7:f32[2 3 4 8] = Expand(%4) shape=[2,3,4,8]
%8:f32[2 3 4 8] = mul(%0, %7)
%9:f32[2 3 4 5] = Attention(%8, %6, %2, %3) scale=1.0 empty="nan"
output %9 "y"
work flops 4608 -> 4632, bytes 13596 -> 10908

== scores that stay, beside what is added
pass attention dead
graph "t"
input %0:f32[2 3 4 8] "q"
input %1:f32[2 3 6 8] "k"
input %2:f32[2 3 6 5] "v"
input %3:f32[4 6] "bias"
input %4:bool[4 6] "m"
const %5:f32[] = -inf
const %6:f32[] = 2.0
%7 = Permute(%1) perm=[0,1,3,2]
%8 = MatMul(%0, %7)
%9 = div(%8, %6)
%10 = where(%4, %9, %5)
%11 = add(%10, %3)
%12 = Softmax(%11) axis=3
%13 = MatMul(%12, %2)
output %13 "y"
-->
graph "t"
input %0:f32[2 3 4 8] "q"
input %1:f32[2 3 6 8] "k"
input %2:f32[2 3 6 5] "v"
input %3:f32[4 6] "bias"
input %4:bool[4 6] "m"
const %5:f32[] = -inf
const %6:f32[] = 2
const %7:f32[] = -inf
%8:f32[2 3 8 6] = Permute(%1) perm=[0,1,3,2]
%9:f32[2 3 6 8] = Permute(%8) perm=[0,1,3,2]
%10:f32[4 6] = Expand(%7) shape=[4,6]
%11:f32[4 6] = where(%4, %3, %10)
%12:f32[2 3 4 5] = Attention(%0, %9, %2, %11) scale=0.5 empty="nan"
output %12 "y"
work flops 4752 -> 4608, bytes 15056 -> 8236

== Einstein sums with heads behind positions
pass attention dead
graph "t"
input %0:f32[2 4 3 8] "q"
input %1:f32[2 6 3 8] "k"
input %2:f32[2 6 3 5] "v"
%3 = Einsum(%1, %0) eq="aecd,abcd->acbe"
%4 = Softmax(%3) axis=3
%5 = Einsum(%4, %2) eq="acbe,aecd->abcd"
output %5 "y"
-->
graph "t"
input %0:f32[2 4 3 8] "q"
input %1:f32[2 6 3 8] "k"
input %2:f32[2 6 3 5] "v"
%3:f32[2 3 4 8] = Permute(%0) perm=[0,2,1,3]
%4:f32[2 3 6 8] = Permute(%1) perm=[0,2,1,3]
%5:f32[2 3 6 5] = Permute(%2) perm=[0,2,1,3]
%6:f32[2 3 4 5] = Attention(%3, %4, %5) scale=1.0 empty="nan"
%7:f32[2 4 3 5] = Permute(%6) perm=[0,2,1,3]
output %7 "y"
work flops 4320 -> 4296, bytes 5424 -> 9360

== weights on the right, transposed
pass attention dead
graph "t"
input %0:f32[3 4 8] "q"
input %1:f32[3 8 6] "k"
input %2:f32[3 5 6] "v"
%3 = MatMul(%0, %1)
%4 = Softmax(%3) axis=2
%5 = Permute(%4) perm=[0,2,1]
%6 = MatMul(%2, %5)
output %6 "y"
-->
graph "t"
input %0:f32[3 4 8] "q"
input %1:f32[3 8 6] "k"
input %2:f32[3 5 6] "v"
%3:f32[3 6 8] = Permute(%1) perm=[0,2,1]
%4:f32[3 6 5] = Permute(%2) perm=[0,2,1]
%5:f32[3 4 5] = Attention(%0, %3, %4) scale=1.0 empty="nan"
%6:f32[3 5 4] = Permute(%5) perm=[0,2,1]
output %6 "y"
work flops 2160 -> 2148, bytes 3288 -> 3912

== somebody reads the weights
pass attention
graph "t"
input %0:f32[2 3 4 8] "q"
input %1:f32[2 3 6 8] "k"
input %2:f32[2 3 6 5] "v"
%6 = Permute(%1) perm=[0,1,3,2]
%7 = MatMul(%0, %6)
%8 = Softmax(%7) axis=3
%9 = MatMul(%8, %2)
output %8 "w"
output %9 "y"
--> same

== a softmax along queries
pass attention
graph "t"
input %0:f32[2 3 4 8] "q"
input %1:f32[2 3 6 8] "k"
input %2:f32[2 3 6 5] "v"
%6 = Permute(%1) perm=[0,1,3,2]
%7 = MatMul(%0, %6)
%8 = Softmax(%7) axis=2
%9 = MatMul(%8, %2)
output %9 "y"
--> same

== a factor behind the sum, another number than -inf beside what is added
pass attention
graph "t"
input %0:f32[2 3 4 8] "q"
input %1:f32[2 3 6 8] "k"
input %2:f32[2 3 6 5] "v"
input %3:f32[4 6] "bias"
const %5:f32[] = 2.0
%6 = Permute(%1) perm=[0,1,3,2]
%7 = MatMul(%0, %6)
%8 = add(%7, %3)
%9 = mul(%8, %5)
%10 = Softmax(%9) axis=3
%11 = MatMul(%10, %2)
output %11 "y"
--> same

== weights of the model in place of keys
pass attention
graph "t"
input %0:f32[2 4 8] "q"
param %1:f32[8 6] "k"
param %2:f32[6 5] "v"
%3 = MatMul(%0, %1)
%4 = Softmax(%3) axis=2
%5 = MatMul(%4, %2)
output %5 "y"
--> same

== masks of windows: leading dimensions are regrouped and back; a bias of heads beside them
pass attention dead
graph "t"
input %0:f32[6 3 4 8] "q"
input %1:f32[6 3 8 4] "k"
input %2:f32[6 3 4 5] "v"
input %3:f32[1 3 4 4] "bias"
input %4:f32[1 2 1 4 4] "mask"
%5 = MatMul(%0, %1)
%6 = add(%5, %3)
%7 = Reshape(%6) shape=[3,2,3,4,4]
%8 = add(%7, %4)
%9 = Reshape(%8) shape=[6,3,4,4]
%10 = Softmax(%9) axis=3
%11 = MatMul(%10, %2)
output %11 "y"
-->
graph "t"
input %0:f32[6 3 4 8] "q"
input %1:f32[6 3 8 4] "k"
input %2:f32[6 3 4 5] "v"
input %3:f32[1 3 4 4] "bias"
input %4:f32[1 2 1 4 4] "mask"
%5:f32[3 2 3 4 8] = Reshape(%0) shape=[3,2,3,4,8]
%6:f32[6 3 4 8] = Permute(%1) perm=[0,1,3,2]
%7:f32[3 2 3 4 8] = Reshape(%6) shape=[3,2,3,4,8]
%8:f32[3 2 3 4 5] = Reshape(%2) shape=[3,2,3,4,5]
%9:f32[1 1 3 4 4] = Reshape(%3) shape=[1,1,3,4,4]
%10:f32[1 2 3 4 4] = Expand(%9) shape=[1,2,3,4,4]
%11:f32[1 2 3 4 4] = Expand(%4) shape=[1,2,3,4,4]
%12:f32[1 2 3 4 4] = add(%10, %11)
%13:f32[3 2 3 4 5] = Attention(%5, %7, %8, %12) scale=1.0 empty="nan"
%14:f32[6 3 4 5] = Reshape(%13) shape=[6,3,4,5]
output %14 "y"
work flops 9216 -> 9096, bytes 26240 -> 30080

== scores are transposed behind the product and a bias of its order, as vmap of JAX does it
pass attention dead
graph "t"
input %0:f32[2 7 3 2 8] "q"
input %1:f32[2 5 3 8] "k"
input %2:f32[2 5 3 8] "v"
input %3:f32[7 1 5] "bias"
input %4:bool[1 1 1 7 5] "mask"
const %5:f32[] = 0.5
const %6:f32[] = -inf
%7 = Einsum(%0, %1) eq="abcde,agce->acbdg"
%8 = mul(%7, %5)
%9 = add(%8, %3)
%10 = Permute(%9) perm=[3,0,1,2,4]
%11 = where(%4, %10, %6)
%12 = Softmax(%11) axis=4
%13 = Einsum(%2, %12) eq="abcd,eachb->acdeh"
output %13 "y"
-->
graph "t"
input %0:f32[2 7 3 2 8] "q"
input %1:f32[2 5 3 8] "k"
input %2:f32[2 5 3 8] "v"
input %3:f32[7 1 5] "bias"
input %4:bool[1 1 1 7 5] "mask"
const %5:f32[] = 0.5
const %6:f32[] = -inf
const %7:f32[] = -inf
%8:f32[2 2 3 7 8] = Permute(%0) perm=[3,0,2,1,4]
%9:f32[2 3 5 8] = Permute(%1) perm=[0,2,1,3]
%10:f32[2 3 5 8] = Permute(%2) perm=[0,2,1,3]
%11:f32[1 1 7 1 5] = Reshape(%3) shape=[1,1,7,1,5]
%12:f32[1 1 1 7 5] = Permute(%11) perm=[3,0,1,2,4]
%13:f32[1 1 1 7 5] = Expand(%7) shape=[1,1,1,7,5]
%14:f32[1 1 1 7 5] = where(%4, %12, %13)
%15:f32[2 2 3 7 8] = Attention(%8, %9, %10, %14) scale=0.5 empty="nan"
%16:f32[2 3 8 2 7] = Permute(%15) perm=[1,2,4,0,3]
output %16 "y"
work flops 16380 -> 16247, bytes 38559 -> 23187

== a factor of keys in front of transposed scores is none of queries
pass attention dead
graph "t"
input %0:f32[2 7 8] "q"
input %1:f32[2 5 8] "k"
input %2:f32[2 5 8] "v"
input %3:f32[2 5 1] "by"
%4 = Einsum(%0, %1) eq="btd,bsd->bst"
%5 = mul(%4, %3)
%6 = Permute(%5) perm=[0,2,1]
%7 = Softmax(%6) axis=2
%8 = MatMul(%7, %2)
output %8 "y"
--> same
