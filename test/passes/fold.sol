# What depends on constants alone is computed by the compiler.

== a chain of constants
pass fold
graph "t"
input %0:f32[4] "x"
const %1:f32[4] = 1 2 3 4
const %2:f32[] = 0.5
%3 = mul(%1, %2)
%4 = Sum(%3) axes=[0] keep=1
%5 = add(%0, %4)
output %5 "y"
-->
graph "t"
input %0:f32[4] "x"
const %1:f32[4] = 1 2 3 4
const %2:f32[] = 0.5
const %3:f32[4] = 0.5 0.5 0.5 0.5
const %4:f32[4] = 0.5 1 1.5 2
const %5:f32[1] = 5
const %6:f32[4] = 5 5 5 5
%7:f32[4] = add(%0, %6)
output %7 "y"
work flops 12 -> 4, bytes 156 -> 48

== several outputs, a missing input, integers, an output of the graph
pass fold
graph "t"
input %0:f32[2 2] "x"
const %1:i64[2 2] = 3 1 2 4
const %2:f32[2 2] = 1 2 3 4
%3, %4 = MaxAt(%1) axis=1
%5, %6 = Split(%1) axis=0 sizes=[1,1]
%7 = LayerNorm(%2, -, -)
%8 = add(%0, %7)
output %4 "i"
output %6 "s"
output %8 "y"
-->
graph "t"
input %0:f32[2 2] "x"
const %1:i64[2 2] = 3 1 2 4
const %2:f32[2 2] = 1 2 3 4
const %3:i64[2] = 3 4
const %4:i64[2] = 0 1
const %5:i64[1 2] = 3 1
const %6:i64[1 2] = 2 4
const %7:f32[2 2] = -0.99998 0.99998 -0.99998 0.99998
%8:f32[2 2] = add(%0, %7)
output %4 "i"
output %6 "s"
output %8 "y"
work flops 28 -> 4, bytes 208 -> 48

== a broadcast that would be large stays an index
pass fold
graph "t"
const %0:f32[2] = 1 2
%1 = Expand(%0) shape=[5000,2]
%2 = Sum(%1) axes=[0]
output %2 "y"
--> same

== parameters change: nothing that reads them is computed now
pass fold
graph "t"
param %0:f32[4] "w"
const %1:f32[4] = 1 2 3 4
%2 = mul(%0, %1)
output %2 "y"
--> same

== a table of positions, cut by a size that varies, stays
pass fold
sizes 1,3,3 2,6,5
graph "t"
dim #0 "b" hint=2
dim #1 "h" hint=4 min=3 max=6
dim #2 "w" hint=9 min=3
const %0:f32[4 2] = 1 2 3 4 5 6 7 8
%1 = exp(%0)
%2 = Slice(%1) axes=[0] start=[#1-3] end=[#1-2]
%3 = Expand(%1) shape=[#0,4,2]
output %2 "y"
output %3 "z"
-->
graph "t"
dim #0 "b" hint=2 min=1 max=1099511627776 multiple=1
dim #1 "h" hint=4 min=3 max=6 multiple=1
dim #2 "w" hint=9 min=3 max=1099511627776 multiple=1
const %0:f32[4 2] = 1 2 3 4 5 6 7 8
const %1:f32[4 2] = 2.71828175 7.38905621 20.085537 54.5981483 148.413162 403.428802 1096.63318 2980.95801
%2:f32[1 2] = Slice(%1) axes=[0] start=[#1-3] end=[#1-2]
%3:f32[#0 4 2] = Expand(%1) shape=[#0,4,2]
output %2 "y"
output %3 "z"
work flops 8 -> 0, bytes 200 -> 136
