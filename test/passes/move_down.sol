# Element-wise layers go in front of layers that rearrange.

== past a transpose and a reshape
pass move_down dead
graph "t"
input %0:f32[4 6] "x"
param %1:f32[5 6] "w"
const %2:f32[] = 2
%3 = Linear(%0, %1)
%4 = Permute(%3) perm=[1,0]
%5 = Reshape(%4) shape=[2,10]
%6 = relu(%5)
%7 = mul(%2, %6)
output %7 "y"
-->
graph "t"
input %0:f32[4 6] "x"
param %1:f32[5 6] "w"
const %2:f32[] = 2
%3:f32[N=4 C=5] = Linear(%0, %1)
%4:f32[N=4 C=5] = relu(%3)
%5:f32[4 5] = Expand(%2) shape=[4,5]
%6:f32[N=4 C=5] = mul(%5, %4)
%7:f32[C=5 N=4] = Permute(%6) perm=[1,0]
%8:f32[2 10] = Reshape(%7) shape=[2,10]
output %8 "y"
work flops 280 -> 280, bytes 1100 -> 1100

== a comparison behind a flip
pass move_down dead
values special
graph "t"
input %0:f32[4 6] "x"
const %1:f32[] = 0
%2 = exp(%0)
%3 = Flip(%2) axes=[1]
%4 = gt(%3, %1)
output %4 "y"
-->
graph "t"
input %0:f32[4 6] "x"
const %1:f32[] = 0
%2:f32[4 6] = exp(%0)
%3:f32[4 6] = Expand(%1) shape=[4,6]
%4:bool[4 6] = gt(%2, %3)
%5:bool[4 6] = Flip(%4) axes=[1]
output %5 "y"
work flops 48 -> 48, bytes 700 -> 556

== two tensors
pass move_down
graph "t"
input %0:f32[4 6] "x"
input %1:f32[6 4] "z"
%2 = exp(%0)
%3 = Permute(%2) perm=[1,0]
%4 = add(%3, %1)
output %4 "y"
--> same

== the rearranged tensor is read twice, is an output, or is an input rearranged
pass move_down
graph "t"
input %0:f32[4 6] "x"
%1 = exp(%0)
%2 = Permute(%1) perm=[1,0]
%3 = mul(%2, %2)
%4 = Permute(%3) perm=[1,0]
%5 = relu(%4)
%6 = Permute(%0) perm=[1,0]
%7 = relu(%6)
output %4 "a"
output %5 "b"
output %7 "c"
--> same

== a slice drops and a broadcast repeats: the map would do more
pass move_down
graph "t"
input %0:f32[4 1] "x"
%1 = exp(%0)
%2 = Slice(%1) axes=[0] start=[0] end=[2]
%3 = relu(%2)
%4 = Expand(%3) shape=[2,3]
%5 = neg(%4)
output %5 "y"
--> same

== a number with more dimensions than what is rearranged
pass move_down dead
graph "t"
input %0:f32[12] "x"
const %1:f32[1 1] = 2
%2 = exp(%0)
%3 = Reshape(%2) shape=[3,4]
%4 = mul(%3, %1)
output %4 "y"
-->
graph "t"
input %0:f32[12] "x"
const %1:f32[1 1] = 2
const %2:f32[] = 2
%3:f32[12] = exp(%0)
%4:f32[12] = Expand(%2) shape=[12]
%5:f32[12] = mul(%3, %4)
%6:f32[3 4] = Reshape(%5) shape=[3,4]
output %6 "y"
work flops 24 -> 24, bytes 388 -> 388

== a bias by channel, the same number everywhere
pass move_down dead
graph "t"
input %0:f32[3 4] "x"
const %1:f32[3] = 2 2 2
%2 = exp(%0)
%3 = Permute(%2) perm=[1,0]
%4 = mul(%3, %1)
output %4 "y"
-->
graph "t"
input %0:f32[3 4] "x"
const %1:f32[3] = 2 2 2
const %2:f32[] = 2
%3:f32[3 4] = exp(%0)
%4:f32[3 4] = Expand(%2) shape=[3,4]
%5:f32[3 4] = mul(%3, %4)
%6:f32[4 3] = Permute(%5) perm=[1,0]
output %6 "y"
work flops 24 -> 24, bytes 396 -> 388

== maps by turns with moves, types that change
pass move_down dead
values special
graph "t"
input %0:f32[4 6] "x"
const %1:f32[] = 0
%2 = exp(%0)
%3 = Permute(%2) perm=[1,0]
%4 = gt(%3, %1)
%5 = Reshape(%4) shape=[4,6]
%6 = Cast(%5) to="f32"
%7 = Flip(%6) axes=[0]
%8 = tanh(%7)
output %8 "y"
-->
graph "t"
input %0:f32[4 6] "x"
const %1:f32[] = 0
%2:f32[4 6] = exp(%0)
%3:f32[4 6] = Expand(%1) shape=[4,6]
%4:bool[4 6] = gt(%2, %3)
%5:bool[6 4] = Permute(%4) perm=[1,0]
%6:bool[4 6] = Reshape(%5) shape=[4,6]
%7:f32[4 6] = Cast(%6) to=f32
%8:f32[4 6] = tanh(%7)
%9:f32[4 6] = Flip(%8) axes=[0]
output %9 "y"
work flops 72 -> 72, bytes 1252 -> 1108

== past a view whose sizes vary
pass move_down
sizes 1,3,3 2,8,5
graph "t"
dim #0 "b" hint=2
dim #1 "h" hint=7 min=3
dim #2 "w" hint=9 min=3
input %0:f32[#0 2 #1 #2] "x"
%1 = neg(%0)
%2 = Reshape(%1) shape=[#0,2,-1]
%3 = Permute(%2) perm=[0,2,1]
%4 = exp(%3)
output %4 "y"
-->
graph "t"
dim #0 "b" hint=2 min=1 max=1099511627776 multiple=1
dim #1 "h" hint=7 min=3 max=1099511627776 multiple=1
dim #2 "w" hint=9 min=3 max=1099511627776 multiple=1
input %0:f32[#0 2 #1 #2] "x"
%1:f32[#0 2 #1 #2] = neg(%0)
%2:f32[#0 2 #1 #2] = exp(%1)
%3:f32[#0 2 #1*#2] = Reshape(%2) shape=[#0,2,-1]
%4:f32[#0 #1*#2 2] = Permute(%3) perm=[0,2,1]
output %4 "y"
work flops 504 -> 504, bytes 8064 -> 8064
