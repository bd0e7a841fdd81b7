# The same layer twice.

== same function, same input; then the layers behind them
pass cse
graph "t"
input %0:f32[2 3] "x"
%1 = exp(%0)
%2 = exp(%0)
%3 = Sum(%1) axes=[1]
%4 = Sum(%2) axes=[1]
%5 = add(%3, %4)
output %5 "y"
-->
graph "t"
input %0:f32[2 3] "x"
%1:f32[2 3] = exp(%0)
%2:f32[2] = Sum(%1) axes=[1]
%3:f32[2] = add(%2, %2)
output %3 "y"
work flops 26 -> 14, bytes 184 -> 104

== constants with equal elements
pass cse dead
graph "t"
input %0:f32[2 3] "x"
const %1:f32[] = 2
const %2:f32[] = 2
const %3:f32[1] = 2
const %4:f32[3] = 1 2 3
const %5:f32[3] = 1 2 3
%6 = mul(%0, %1)
%7 = mul(%0, %2)
%8 = mul(%0, %3)
%9 = add(%0, %4)
%10 = add(%0, %5)
output %6 "a"
output %7 "b"
output %8 "c"
output %9 "d"
output %10 "e"
-->
graph "t"
input %0:f32[2 3] "x"
const %1:f32[] = 2
const %2:f32[] = 2
const %3:f32[1] = 2
const %4:f32[3] = 1 2 3
const %5:f32[3] = 1 2 3
%6:f32[2 3] = Expand(%1) shape=[2,3]
%7:f32[2 3] = mul(%0, %6)
%8:f32[2 3] = Expand(%3) shape=[2,3]
%9:f32[2 3] = mul(%0, %8)
%10:f32[2 3] = Expand(%4) shape=[2,3]
%11:f32[2 3] = add(%0, %10)
output %7 "a"
output %7 "b"
output %9 "c"
output %11 "d"
output %11 "e"
work flops 30 -> 18, bytes 516 -> 308

== different attributes, inputs, order of inputs
pass cse
graph "t"
input %0:f32[2 3] "x"
input %1:f32[2 3] "z"
%2 = Sum(%0) axes=[1]
%3 = Sum(%0) axes=[0]
%4 = Sum(%0) axes=[1] keep=1
%5 = sub(%0, %1)
%6 = sub(%1, %0)
%7 = Cast(%0) to=f64
%8 = Cast(%0) to=i64
%9 = LayerNorm(%0, -, -)
%10 = LayerNorm(%0, -, -) e=1e-06
output %2 "a"
output %3 "b"
output %4 "c"
output %5 "d"
output %6 "e"
output %7 "f"
output %8 "g"
output %9 "h"
output %10 "i"
--> same

== two outputs become one tensor
pass cse
graph "t"
input %0:f32[4] "x"
%1 = exp(%0)
%2 = exp(%0)
output %1 "a"
output %2 "b"
-->
graph "t"
input %0:f32[4] "x"
%1:f32[4] = exp(%0)
output %1 "a"
output %1 "b"
work flops 8 -> 4, bytes 64 -> 32

== attributes are compared as they are written
pass cse
graph "t"
input %0:f32[1 1 4 4] "x"
%1 = MaxPool(%0) k=[2,2]
%2 = MaxPool(%0) k=2 s=[1,1]
%3 = add(%1, %2)
output %3 "y"
--> same

== chance at other positions is another one
pass cse
graph "t"
input %0:i64[] "seed"
%1 = Rand(%0) n=4
%2 = Rand(%0) n=4 k=4
%3 = sub(%1, %2)
output %3 "y"
--> same

== the same sizes written in two ways
pass cse
sizes 1,3,3 2,8,5
graph "t"
dim #0 "b" hint=2
dim #1 "h" hint=7 min=3
dim #2 "w" hint=9 min=3
input %0:f32[#0 2 #1 #2] "x"
%1 = Reshape(%0) shape=[#0*2,#1*#2]
%2 = Reshape(%0) shape=[2*#0,#2*#1]
%3 = add(%1, %2)
output %3 "y"
-->
graph "t"
dim #0 "b" hint=2 min=1 max=1099511627776 multiple=1
dim #1 "h" hint=7 min=3 max=1099511627776 multiple=1
dim #2 "w" hint=9 min=3 max=1099511627776 multiple=1
input %0:f32[#0 2 #1 #2] "x"
%1:f32[2*#0 #1*#2] = Reshape(%0) shape=[2*#0,#1*#2]
%2:f32[2*#0 #1*#2] = add(%1, %1)
output %2 "y"
work flops 252 -> 252, bytes 7056 -> 5040
