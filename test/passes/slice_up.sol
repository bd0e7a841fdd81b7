# Slices move past element-wise layers.

== up to the input, past several layers; numbers stay numbers
pass slice_up dead
values special
graph "t"
input %0:f32[8 6] "x"
const %1:f32[] = 2
param %2:f32[6] "b"
%3 = mul(%0, %1)
%4 = add(%3, %2)
%5 = max(%1, %4)
%6 = Slice(%5) axes=[0] start=[6] end=[0] step=[-3]
output %6 "y"
-->
graph "t"
input %0:f32[8 6] "x"
const %1:f32[] = 2
param %2:f32[6] "b"
%3:f32[8 6] = Expand(%2) shape=[8,6]
%4:f32[2 6] = Slice(%0) axes=[0] start=[6] end=[0] step=[-3]
%5:f32[2 6] = Expand(%1) shape=[2,6]
%6:f32[2 6] = mul(%4, %5)
%7:f32[2 6] = Slice(%3) axes=[0] start=[6] end=[0] step=[-3]
%8:f32[2 6] = add(%6, %7)
%9:f32[2 6] = Expand(%1) shape=[2,6]
%10:f32[2 6] = max(%9, %8)
output %10 "y"
work flops 144 -> 36, bytes 2576 -> 1232

== a Select, and a number that has too many dimensions
pass slice_up dead
graph "t"
input %0:f32[8 6] "x"
const %1:f32[1 1] = 2
%2 = mul(%0, %1)
%3 = Select(%2) axis=1 index=2
output %3 "y"
-->
graph "t"
input %0:f32[8 6] "x"
const %1:f32[1 1] = 2
%2:f32[8 6] = Expand(%1) shape=[8,6]
%3:f32[8] = Select(%0) axis=1 index=2
%4:f32[8] = Select(%2) axis=1 index=2
%5:f32[8] = mul(%3, %4)
output %5 "y"
work flops 48 -> 8, bytes 996 -> 740

== all operands are numbers
pass slice_up dead
graph "t"
input %0:f32[1 1] "a"
input %1:f32[] "b"
%2 = Expand(%0) shape=[4,6]
%3 = Expand(%1) shape=[4,6]
%4 = add(%2, %3)
%5 = Slice(%4) axes=[0] start=[1] end=[3]
output %5 "y"
-->
graph "t"
input %0:f32[1 1] "a"
input %1:f32[] "b"
%2:f32[4 6] = Expand(%1) shape=[4,6]
%3:f32[2 6] = Slice(%2) axes=[0] start=[1] end=[3]
%4:f32[2 6] = Expand(%0) shape=[2,6]
%5:f32[2 6] = add(%4, %3)
output %5 "y"
work flops 24 -> 12, bytes 632 -> 440

== a square
pass slice_up dead
graph "t"
input %0:f32[4 6] "a"
%1 = mul(%0, %0)
%2 = Slice(%1) axes=[1] start=[1] end=[3]
output %2 "y"
-->
graph "t"
input %0:f32[4 6] "a"
%1:f32[4 2] = Slice(%0) axes=[1] start=[1] end=[3]
%2:f32[4 2] = Slice(%0) axes=[1] start=[1] end=[3]
%3:f32[4 2] = mul(%1, %2)
output %3 "y"
work flops 24 -> 8, bytes 416 -> 352

== the whole is read as well, or is an output
pass slice_up
graph "t"
input %0:f32[4 6] "a"
%1 = exp(%0)
%2 = Slice(%1) axes=[1] start=[1] end=[3]
%3 = Sum(%1) axes=[1] keep=1
%4 = add(%2, %3)
%5 = exp(%4)
%6 = Slice(%5) axes=[1] start=[1] end=[2]
output %5 "y"
output %6 "z"
--> same

== nothing is cut off, and layers that are not element-wise
pass slice_up
graph "t"
input %0:f32[4 6] "a"
%1 = exp(%0)
%2 = Slice(%1) axes=[1] start=[5] end=[-7] step=[-1]
%3 = Softmax(%2) axis=1
%4 = Slice(%3) axes=[1] start=[0] end=[2]
output %4 "y"
--> same

== types that change on the way
pass slice_up dead
graph "t"
input %0:f32[4 6] "a"
%1 = gt(%0, %0)
%2 = isnan(%0)
%3 = where(%2, %0, %0)
%4 = Slice(%2) axes=[0] start=[0] end=[0]
output %4 "y"
-->
graph "t"
input %0:f32[4 6] "a"
%1:bool[4 6] = isnan(%0)
%2:bool[0 6] = Slice(%1) axes=[0] start=[0] end=[0]
output %2 "y"
work flops 72 -> 24, bytes 672 -> 144

== all but the first of a dimension that varies
pass slice_up
sizes 1,3,3 2,8,5
graph "t"
dim #0 "b" hint=2
dim #1 "h" hint=7 min=3
dim #2 "w" hint=9 min=3
input %0:f32[#0 8 #1] "x"
input %1:f32[#0 8 #1] "z"
%2 = add(%0, %1)
%3 = relu(%2)
%4 = Slice(%3) axes=[2] start=[1] end=[9223372036854775807]
%5 = exp(%0)
%6 = Slice(%5) axes=[0] start=[0] end=[#0]
%7 = Select(%5) axis=2 index=-1
output %4 "y"
output %6 "w"
output %7 "v"
-->
graph "t"
dim #0 "b" hint=2 min=1 max=1099511627776 multiple=1
dim #1 "h" hint=7 min=3 max=1099511627776 multiple=1
dim #2 "w" hint=9 min=3 max=1099511627776 multiple=1
input %0:f32[#0 8 #1] "x"
input %1:f32[#0 8 #1] "z"
%2:f32[#0 8 #1-1] = Slice(%0) axes=[2] start=[1] end=[9223372036854775807]
%3:f32[#0 8 #1-1] = Slice(%1) axes=[2] start=[1] end=[9223372036854775807]
%4:f32[#0 8 #1-1] = add(%2, %3)
%5:f32[#0 8 #1-1] = relu(%4)
%6:f32[#0 8 #1] = exp(%0)
%7:f32[#0 8 #1] = Slice(%6) axes=[0] start=[0] end=[#0]
%8:f32[#0 8] = Select(%6) axis=2 index=-1
output %5 "y"
output %7 "w"
output %8 "v"
work flops 336 -> 304, bytes 5376 -> 5888
