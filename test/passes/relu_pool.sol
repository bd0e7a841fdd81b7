# ReLU beside a MaxPool.

== before
pass relu_pool
values special
graph "t"
input %0:f32[1 2 7 7] "x"
%1 = relu(%0)
%2 = MaxPool(%1) k=3 s=2 p=1 q=1 "pool"
output %2 "y"
-->
graph "t"
input %0:f32[1 2 7 7] "x"
%1:f32[N=1 C=2 P=4 P=4] = MaxPoolRelu(%0) k=3 s=2 p=1 q=1 "pool"
output %1 "y"
work flops 386 -> 320, bytes 1304 -> 520

== behind
pass relu_pool
values special
graph "t"
input %0:f32[1 2 7 7] "x"
%1 = MaxPool(%0) k=3 s=2 p=1 q=1 c=1 "pool"
%2 = relu(%1)
output %2 "y"
-->
graph "t"
input %0:f32[1 2 7 7] "x"
%1:f32[N=1 C=2 P=4 P=4] = MaxPoolRelu(%0) k=3 s=2 p=1 q=1 c=1 "pool"
output %1 "y"
work flops 320 -> 320, bytes 776 -> 520

== both: the second is a relu of numbers above 0
pass relu_pool
graph "t"
input %0:f32[1 2 7 7] "x"
%1 = relu(%0)
%2 = MaxPool(%1) k=2 s=2
%3 = relu(%2)
output %3 "y"
-->
graph "t"
input %0:f32[1 2 7 7] "x"
%1:f32[N=1 C=2 P=3 P=3] = MaxPoolRelu(%0) k=2 s=2
%2:f32[1 C=2 P=3 P=3] = relu(%1)
output %2 "y"
work flops 188 -> 108, bytes 1392 -> 608

== the relu is read twice
pass relu_pool
graph "t"
input %0:f32[1 1 4 4] "x"
%1 = relu(%0)
%2 = MaxPool(%1) k=2
output %1 "a"
output %2 "b"
--> same

== the pool is read twice
pass relu_pool
graph "t"
input %0:f32[1 1 4 4] "x"
%1 = MaxPool(%0) k=2
%2 = relu(%1)
%3 = add(%1, %2)
output %3 "y"
--> same

== integers
pass relu_pool
graph "t"
input %0:i64[1 1 6] "x"
%1 = relu(%0)
%2 = MaxPool(%1) k=2
output %2 "y"
--> same

== a dilated window over padding alone is -inf
pass relu_pool
graph "t"
input %0:f32[1 1 1] "x"
%1 = relu(%0)
%2 = MaxPool(%1) k=2 d=2 p=1 q=1
output %2 "y"
--> same

== which is 0 behind a relu
pass relu_pool
graph "t"
input %0:f32[1 1 1] "x"
%1 = MaxPool(%0) k=2 d=2 p=1 q=1
%2 = relu(%1)
output %2 "y"
-->
graph "t"
input %0:f32[1 1 1] "x"
%1:f32[N=1 C=1 P=1] = MaxPoolRelu(%0) k=2 p=1 q=1 d=2
output %1 "y"
work flops 3 -> 3, bytes 16 -> 8

== positions are asked for
pass relu_pool
graph "t"
input %0:f32[1 1 6] "x"
%1 = relu(%0)
%2, %3 = MaxPoolAt(%1) k=2
output %2 "y"
output %3 "i"
--> same

== height and width that vary: every window has an element of x
pass relu_pool
sizes 1,3,3 2,8,5
graph "t"
dim #0 "b" hint=2
dim #1 "h" hint=7 min=3
dim #2 "w" hint=9 min=3
input %0:f32[#0 2 #1 #2] "x"
%1 = relu(%0)
%2 = MaxPool(%1) k=3 s=2 p=1 q=1 "pool"
output %2 "y"
-->
graph "t"
dim #0 "b" hint=2 min=1 max=1099511627776 multiple=1
dim #1 "h" hint=7 min=3 max=1099511627776 multiple=1
dim #2 "w" hint=9 min=3 max=1099511627776 multiple=1
input %0:f32[#0 2 #1 #2] "x"
%1:f32[N=#0 C=2 P=(#1+1)//2 P=(#2+1)//2] = MaxPoolRelu(%0) k=3 s=2 p=1 q=1 "pool"
output %1 "y"
work flops 972 -> 800, bytes 3344 -> 1328

== the last windows may lie in the padding
pass relu_pool
sizes 1,3,3 2,8,5
graph "t"
dim #0 "b" hint=2
dim #1 "h" hint=7 min=3
dim #2 "w" hint=9 min=3
input %0:f32[#0 2 #1 #2] "x"
%1 = relu(%0)
%2 = MaxPool(%1) k=1 s=1 q=1 "pool"
output %2 "y"
--> same
