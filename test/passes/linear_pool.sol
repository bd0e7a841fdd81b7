# A 1x1 convolution before an average pool.

== DenseNet's transition
pass linear_pool
graph "t"
input %0:f32[1 8 6 6] "x"
param %1:f32[4 8 1 1] "w"
param %2:f32[4] "b"
%3 = Conv(%0, %1, %2) "conv"
%4 = AvgPool(%3) k=2 s=2 "pool"
output %4 "y"
-->
graph "t"
input %0:f32[1 8 6 6] "x"
param %1:f32[4 8 1 1] "w"
param %2:f32[4] "b"
%3:f32[1 C=8 P=3 P=3] = AvgPool(%0) k=2 s=2 "pool"
%4:f32[N=1 C=4 P=3 P=3] = Conv(%3, %1, %2) "conv"
output %4 "y"
work flops 2628 -> 972, bytes 2592 -> 2016

== groups, windows that are cut off and do not count padding
pass linear_pool
graph "t"
input %0:f32[1 8 7 7] "x"
param %1:f32[4 4 1 1] "w"
param %2:f32[4] "b"
%3 = Conv(%0, %1, %2) g=2
%4 = AvgPool(%3) k=3 s=2 p=1 q=1 c=1 pads=0
output %4 "y"
-->
graph "t"
input %0:f32[1 8 7 7] "x"
param %1:f32[4 4 1 1] "w"
param %2:f32[4] "b"
%3:f32[1 C=8 P=4 P=4] = AvgPool(%0) k=3 s=2 p=1 q=1 c=1 pads=0
%4:f32[N=1 C=4 P=4 P=4] = Conv(%3, %1, %2) g=2
output %4 "y"
work flops 2468 -> 1984, bytes 3472 -> 2928

== padding that counts: the bias would shrink
pass linear_pool
graph "t"
input %0:f32[1 8 6 6] "x"
param %1:f32[4 8 1 1] "w"
param %2:f32[4] "b"
%3 = Conv(%0, %1, %2)
%4 = AvgPool(%3) k=3 s=2 p=1 q=1
output %4 "y"
--> same

== a divisor of its own, and sizes that are rounded up
pass linear_pool
graph "t"
input %0:f32[1 8 6 6] "x"
param %1:f32[4 8 1 1] "w"
%2 = Conv(%0, %1)
%3 = AvgPool(%2) k=2 s=2 div=3
%4 = Conv(%0, %1)
%5 = AvgPool(%4) k=3 s=2 c=1
output %3 "a"
output %5 "b"
--> same

== a convolution that is more than 1x1: a kernel, a stride, padding
pass linear_pool
graph "t"
input %0:f32[1 4 9 9] "x"
param %1:f32[4 4 3 1] "v"
param %2:f32[4 4 1 1] "w"
%3 = Conv(%0, %1)
%4 = AvgPool(%3) k=2 s=2
%5 = Conv(%0, %2) s=2
%6 = AvgPool(%5) k=2 s=2
%7 = Conv(%0, %2) p=1 q=1
%8 = AvgPool(%7) k=2 s=2
output %4 "a"
output %6 "b"
output %8 "c"
--> same

== it would not pay: the pool is not smaller, the convolution makes fewer channels
pass linear_pool
graph "t"
input %0:f32[1 64 6 6] "x"
param %1:f32[1 64 1 1] "w"
%2 = Conv(%0, %1)
%3 = AvgPool(%2) k=3 s=1 p=1 q=1 pads=0
output %3 "y"
--> same

== the convolution is read twice
pass linear_pool
graph "t"
input %0:f32[1 8 6 6] "x"
param %1:f32[4 8 1 1] "w"
%2 = Conv(%0, %1)
%3 = AvgPool(%2) k=2 s=2
output %2 "a"
output %3 "b"
--> same

== height and width that vary
pass linear_pool
sizes 1,3,3 2,8,5
graph "t"
dim #0 "b" hint=2
dim #1 "h" hint=7 min=3
dim #2 "w" hint=9 min=3
input %0:f32[#0 8 #1 #2] "x"
param %1:f32[4 8 1 1] "w"
%2 = Conv(%0, %1) "conv"
%3 = AvgPool(%2) k=2 s=2 "pool"
output %3 "y"
-->
graph "t"
dim #0 "b" hint=2 min=1 max=1099511627776 multiple=1
dim #1 "h" hint=7 min=3 max=1099511627776 multiple=1
dim #2 "w" hint=9 min=3 max=1099511627776 multiple=1
input %0:f32[#0 8 #1 #2] "x"
param %1:f32[4 8 1 1] "w"
%2:f32[#0 C=8 P=#1//2 P=#2//2] = AvgPool(%0) k=2 s=2 "pool"
%3:f32[N=#0 C=4 P=#1//2 P=#2//2] = Conv(%2, %1) "conv"
output %3 "y"
work flops 8544 -> 2496, bytes 8576 -> 6080
