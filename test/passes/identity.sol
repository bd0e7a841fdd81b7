# Layers that change nothing: seen in what they compute, not in their names.

== numbers that do nothing
pass identity dead
values special
graph "t"
input %0:f32[2 3] "x"
const %1:f32[] = 0
const %2:f32[] = 1
%3 = add(%0, %1)
%4 = mul(%2, %3)
%5 = sub(%4, %1)
%6 = div(%5, %2)
%7 = pow(%6, %2)
%8 = relu(%7)
output %8 "y"
-->
graph "t"
input %0:f32[2 3] "x"
const %1:f32[] = 0
const %2:f32[] = 1
%3:f32[2 3] = relu(%0)
output %3 "y"
work flops 36 -> 6, bytes 548 -> 48

== where gradients end, nothing is computed
pass identity dead
graph "t"
input %0:f32[2 3] "x"
%1 = stop(%0)
%2 = relu(%1)
output %2 "y"
-->
graph "t"
input %0:f32[2 3] "x"
%1:f32[2 3] = relu(%0)
output %1 "y"
work flops 12 -> 6, bytes 96 -> 48

== 0 - x, 1 / x, 1 ** x, x * 0 and x ** 0 are not x
pass identity
values special
graph "t"
input %0:f32[2 3] "x"
const %1:f32[2 3] = splat 0
const %2:f32[2 3] = splat 1
%3 = sub(%1, %0)
%4 = div(%2, %0)
%5 = pow(%2, %0)
%6 = mul(%0, %1)
%7 = pow(%0, %1)
output %3 "a"
output %4 "b"
output %5 "c"
output %6 "d"
output %7 "e"
--> same

== a constant that is not 0 everywhere
pass identity
graph "t"
input %0:f32[3] "x"
const %1:f32[3] = 0 0 1
%2 = add(%0, %1)
output %2 "y"
--> same

== integers: division gives floats
pass identity dead
graph "t"
input %0:i64[3] "x"
const %1:i64[] = 0
const %2:i64[] = 1
%3 = add(%0, %1)
%4 = mul(%3, %2)
%5 = div(%4, %2)
output %4 "i"
output %5 "f"
-->
graph "t"
input %0:i64[3] "x"
const %1:i64[] = 0
const %2:i64[] = 1
%3:i64[3] = Expand(%2) shape=[3]
%4:f32[3] = div(%0, %3)
output %0 "i"
output %4 "f"
work flops 9 -> 3, bytes 300 -> 92

== moves that leave everything in its place
pass identity dead
graph "t"
input %0:f32[2 3 4] "x"
%1 = Dropout(%0) p=0.5
%2 = Cast(%1) to=f32
%3 = Reshape(%2) shape=[2,-1,4]
%4 = Permute(%3) perm=[0,1,2]
%5 = Slice(%4) axes=[1,2] start=[0,-4] end=[3,9]
%6 = Pad(%5) p=[0,0,0] q=[0,0,0]
%7 = Expand(%6) shape=[2,3,4]
%8 = Tile(%7) n=[1,1,1]
%9 = Concat(%8) axis=1
%10 = exp(%9)
output %10 "y"
-->
graph "t"
input %0:f32[2 3 4] "x"
%1:f32[2 3 4] = exp(%0)
output %1 "y"
work flops 24 -> 24, bytes 1920 -> 192

== moves that do move
pass identity
graph "t"
input %0:f32[3 3] "x"
%1 = Permute(%0) perm=[1,0]
%2 = Flip(%0) axes=[0]
%3 = Roll(%0) shifts=[1] axes=[1]
%4 = Reshape(%0) shape=[9]
%5 = Slice(%0) axes=[0] start=[0] end=[2]
%6 = Cast(%0) to=f64
output %1 "a"
output %2 "b"
output %3 "c"
output %4 "d"
output %5 "e"
output %6 "f"
--> same

== transposing where all but one size is 1, and slices of everything, of nothing
pass identity dead
graph "t"
input %0:f32[1 5 1] "x"
input %1:f32[0 3] "e"
%2 = Permute(%0) perm=[2,1,0]
%3 = Flip(%2) axes=[0,2]
%4 = Slice(%1) axes=[0] start=[0] end=[0]
%5 = exp(%3)
%6 = exp(%4)
output %5 "y"
output %6 "z"
-->
graph "t"
input %0:f32[1 5 1] "x"
input %1:f32[0 3] "e"
%2:f32[1 5 1] = exp(%0)
%3:f32[0 3] = exp(%1)
output %2 "y"
output %3 "z"
work flops 5 -> 5, bytes 120 -> 40

== the input that is handed on is not the first one
pass identity dead
graph "t"
input %0:f32[2 3] "x"
input %1:f32[2 3] "u"
%2 = SliceScatter(%0, %1) axes=[0] start=[0] end=[2]
%3 = relu(%2)
output %3 "y"
-->
graph "t"
input %0:f32[2 3] "x"
input %1:f32[2 3] "u"
%2:f32[2 3] = relu(%1)
output %2 "y"
work flops 6 -> 6, bytes 120 -> 48

== an output that is an input
pass identity
graph "t"
input %0:f32[2] "x"
%1 = Dropout(%0)
output %1 "y"
output %1 "z"
-->
graph "t"
input %0:f32[2] "x"
output %0 "y"
output %0 "z"
work flops 0 -> 0, bytes 16 -> 0

== moves that change nothing at any size
pass identity dead
sizes 1,3,3 2,8,5
graph "t"
dim #0 "b" hint=2
dim #1 "h" hint=7 min=3
dim #2 "w" hint=9 min=3
input %0:f32[#0 2 #1 #2] "x"
%1 = Reshape(%0) shape=[#0,2,#1,-1]
%2 = Slice(%1) axes=[2] start=[0] end=[#1]
%3 = Expand(%2) shape=[#0,2,#1,#2]
%4 = Pad(%3) p=[0,0,0,0] q=[0,0,0,0]
%5 = exp(%4)
%6 = Slice(%5) axes=[2] start=[0] end=[#2]
output %5 "y"
output %6 "z"
-->
graph "t"
dim #0 "b" hint=2 min=1 max=1099511627776 multiple=1
dim #1 "h" hint=7 min=3 max=1099511627776 multiple=1
dim #2 "w" hint=9 min=3 max=1099511627776 multiple=1
input %0:f32[#0 2 #1 #2] "x"
%1:f32[#0 2 #1 #2] = exp(%0)
%2:f32[#0 2 min(#1,#2) #2] = Slice(%1) axes=[2] start=[0] end=[#2]
output %1 "y"
output %2 "z"
work flops 252 -> 252, bytes 12096 -> 4032

== the largest of x and the least number is x, NaN included
pass identity dead
values special
graph "t"
input %0:f32[2 3] "x"
const %1:f32[] = -inf
const %2:f32[] = inf
%3 = max(%1, %0)
%4 = min(%3, %2)
%5 = relu(%4)
output %5 "y"
-->
graph "t"
input %0:f32[2 3] "x"
const %1:f32[] = -inf
const %2:f32[] = inf
%3:f32[2 3] = relu(%0)
output %3 "y"
work flops 18 -> 6, bytes 248 -> 48

== conditions that say nothing
pass identity dead
graph "t"
input %0:bool[2 3] "x"
const %1:bool[] = 1
const %2:bool[] = 0
%3 = logical_and(%1, %0)
%4 = logical_or(%3, %2)
%5 = where(%4, %1, %2)
%6 = logical_or(%5, %1)
output %6 "y"
output %5 "z"
-->
graph "t"
input %0:bool[2 3] "x"
const %1:bool[] = 1
const %2:bool[] = 0
%3:bool[2 3] = Expand(%1) shape=[2,3]
%4:bool[2 3] = logical_or(%0, %3)
output %4 "y"
output %0 "z"
work flops 24 -> 6, bytes 113 -> 25
