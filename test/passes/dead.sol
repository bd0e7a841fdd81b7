# Layers that reach no output.

== a chain that nobody reads, and one output of several that is read
pass dead
graph "t"
input %0:f32[4 6] "x"
%1 = relu(%0)
%2 = exp(%1)
%3 = sub(%2, %1)
%4, %5, %6 = Split(%1) axis=1 sizes=[1,2,3]
output %5 "y"
-->
graph "t"
input %0:f32[4 6] "x"
%1:f32[4 6] = relu(%0)
%2:f32[4 1], %3:f32[4 2], %4:f32[4 3] = Split(%1) axis=1 sizes=[1,2,3]
output %3 "y"
work flops 72 -> 24, bytes 864 -> 384

== a parameter that nobody reads stays: its number is the application's
pass dead
graph "t"
input %0:f32[4] "x"
param %1:f32[4] "w"
%2 = add(%0, %1)
%3 = relu(%0)
output %3 "y"
-->
graph "t"
input %0:f32[4] "x"
param %1:f32[4] "w"
%2:f32[4] = relu(%0)
output %2 "y"
work flops 8 -> 4, bytes 80 -> 32

== an output that is also read
pass dead
graph "t"
input %0:f32[4] "x"
%1 = relu(%0)
%2 = exp(%1)
output %1 "a"
output %2 "b"
--> same
