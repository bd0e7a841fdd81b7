# Scatters whose indices are equal along all dimensions but one.

== rows along the first axis, indices in a column
pass scatter_rows dead
graph "t"
input %0:f32[4 3] "x"
const %1:i64[5 1] = 3 0 3 -1 1
input %2:f32[5 3] "u"
%3 = Expand(%1) shape=[5,3]
%4 = ScatterElements(%0, %3, %2) axis=0 mode=add
output %4 "y"
-->
graph "t"
input %0:f32[4 3] "x"
const %1:i64[5 1] = 3 0 3 -1 1
input %2:f32[5 3] "u"
%3:i64[5] = Reshape(%1) shape=[5]
%4:f32[4 3] = IndexPut(%0, %2, %3) dims=[0] mode=add
output %4 "y"
work flops 0 -> 0, bytes 436 -> 276

== along the last axis, indices in a list; updates that are repeated, too
pass scatter_rows dead
graph "t"
input %0:f32[2 4] "x"
const %1:i64[3] = 2 0 2
input %2:f32[1 3] "u"
%3 = Expand(%1) shape=[2,3]
%4 = Expand(%2) shape=[2,3]
%5 = ScatterElements(%0, %3, %4) axis=-1 mode=max
output %5 "y"
-->
graph "t"
input %0:f32[2 4] "x"
const %1:i64[3] = 2 0 2
input %2:f32[1 3] "u"
%3:f32[2 4] = IndexPut(%0, %2, %1) dims=[1] mode=max
output %3 "y"
work flops 0 -> 0, bytes 244 -> 100

== a count: one number is added to one number, so all columns are equal
pass scatter_rows dead
graph "t"
const %0:f32[] = 0
const %1:i64[5 1] = 3 0 3 -1 1
const %2:f32[] = 1
%3 = Expand(%0) shape=[4,3]
%4 = Expand(%1) shape=[5,3]
%5 = Expand(%2) shape=[5,3]
%6 = ScatterElements(%3, %4, %5) axis=0 mode=add
output %6 "y"
-->
graph "t"
const %0:f32[] = 0
const %1:i64[5 1] = 3 0 3 -1 1
const %2:f32[] = 1
%3:f32[4 1] = Expand(%0) shape=[4,1]
%4:i64[5] = Reshape(%1) shape=[5]
%5:f32[4 1] = IndexPut(%3, %2, %4) dims=[0] mode=add
%6:f32[4 3] = Expand(%5) shape=[4,3]
output %6 "y"
work flops 0 -> 0, bytes 552 -> 240

== not: indices that differ by row, fewer rows than x has, and indices that are not repeated
pass scatter_rows dead
graph "t"
input %0:f32[3 4] "x"
const %1:i64[3 1] = 2 0 1
const %2:i64[1 2] = 2 0
const %3:i64[3 2] = 2 0 1 1 0 3
input %4:f32[3 2] "u"
input %5:f32[2 2] "v"
%6 = Expand(%1) shape=[3,2]
%7 = Expand(%2) shape=[2,2]
%8 = ScatterElements(%0, %6, %4) axis=1
%9 = ScatterElements(%0, %7, %5) axis=1
%10 = ScatterElements(%0, %3, %4) axis=1 mode=mul
output %8 "a"
output %9 "b"
output %10 "c"
--> same
