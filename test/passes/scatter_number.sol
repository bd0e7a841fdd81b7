# What is written to by index is one number.

== zeros of an embedding's gradient
pass scatter_number dead
graph "t"
input %0:f32[2 3 4] "d"
const %1:i64[2 3] = 0 9 3 3 0 2
%2 = Fill() shape=[10,4]
%3 = IndexPut(%2, %0, %1) dims=[0] mode="add"
output %3 "y"
-->
graph "t"
input %0:f32[2 3 4] "d"
const %1:i64[2 3] = 0 9 3 3 0 2
const %2:f32[] = 0
%3:f32[10 4] = IndexPut(%2, %0, %1) dims=[0] mode=add shape=[10,4]
output %3 "y"
work flops 0 -> 0, bytes 624 -> 308

== a number that is expanded; what is given as a tensor stays
pass scatter_number dead
graph "t"
input %0:f32[5 4] "x"
const %1:i64[3 4] = 0 1 2 3 4 0 1 2 3 4 0 1
input %2:f32[3 4] "u"
const %3:f32[] = 2.5
%4 = Expand(%3) shape=[5,4]
%5 = ScatterElements(%4, %1, %2) axis=0 mode="max"
%6 = ScatterElements(%0, %1, %2) axis=0
output %5 "y"
output %6 "z"
-->
graph "t"
input %0:f32[5 4] "x"
const %1:i64[3 4] = 0 1 2 3 4 0 1 2 3 4 0 1
input %2:f32[3 4] "u"
const %3:f32[] = 2.5
const %4:f32[] = 2.5
%5:f32[5 4] = ScatterElements(%4, %1, %2) mode=max shape=[5,4]
%6:f32[5 4] = ScatterElements(%0, %1, %2)
output %5 "y"
output %6 "z"
work flops 0 -> 0, bytes 692 -> 532
