# Scales and shifts by channel behind layers with weights.

== convolution without bias: scale and shift
pass weights dead
graph "t"
input %0:f32[1 2 8 8] "x"
param %1:f32[3 2 3 3] "w"
param %2:f32[3 1 1] "s"
param %3:f32[1 3 1 1] "t"
%4 = Conv(%0, %1) "conv"
%5 = mul(%4, %2) "scale"
%6 = add(%3, %5) "shift"
output %6 "y"
-->
graph "t"
input %0:f32[1 2 8 8] "x"
param %1:f32[3 2 3 3] "w"
param %2:f32[3 1 1] "s"
param %3:f32[1 3 1 1] "t"
%4:f32[3 1 1 1] = Reshape(%2) shape=[3,1,1,1] "scale"
%5:f32[3 2 3 3] = Expand(%4) shape=[3,2,3,3] "scale"
%6:f32[3 2 3 3] = mul(%1, %5) "scale"
%7:f32[3] = Reshape(%3) shape=[3] "shift"
%8:f32[N=1 C=3 P=6 P=6] = Conv(%0, %6, %7) "conv"
output %8 "y"
work flops 4104 -> 4050, bytes 4640 -> 2096

== grouped convolution with bias: division and subtraction
pass weights dead
graph "t"
input %0:f32[1 4 8 8] "x"
param %1:f32[6 2 3 3] "w"
param %2:f32[6] "b"
param %3:f32[6 1 1] "positive s"
param %4:f32[6 1 1] "t"
%5 = Conv(%0, %1, %2) g=2 s=2
%6 = div(%5, %3)
%7 = sub(%6, %4)
output %7 "y"
-->
graph "t"
input %0:f32[1 4 8 8] "x"
param %1:f32[6 2 3 3] "w"
param %2:f32[6] "b"
param %3:f32[6 1 1] "positive s"
param %4:f32[6 1 1] "t"
%5:f32[6 1 1 1] = Reshape(%3) shape=[6,1,1,1]
%6:f32[6 2 3 3] = Expand(%5) shape=[6,2,3,3]
%7:f32[6 2 3 3] = div(%1, %6)
%8:f32[6] = Reshape(%3) shape=[6]
%9:f32[6] = div(%2, %8)
%10:f32[6] = Reshape(%4) shape=[6]
%11:f32[6] = sub(%9, %10)
%12:f32[N=1 C=6 P=3 P=3] = Conv(%0, %7, %11) s=2 g=2
output %12 "y"
work flops 2106 -> 2118, bytes 3472 -> 3736

== convolution without bias: a subtraction is a negative bias
pass weights dead
graph "t"
input %0:f32[1 2 8] "x"
param %1:f32[3 2 3] "w"
param %2:f32[3 1] "t"
%3 = Conv(%0, %1)
%4 = sub(%3, %2)
output %4 "y"
-->
graph "t"
input %0:f32[1 2 8] "x"
param %1:f32[3 2 3] "w"
param %2:f32[3 1] "t"
%3:f32[3] = Reshape(%2) shape=[3]
%4:f32[3] = neg(%3)
%5:f32[N=1 C=3 P=6] = Conv(%0, %1, %4)
output %5 "y"
work flops 234 -> 237, bytes 508 -> 268

== linear: a scalar scale and a scalar shift
pass weights dead
graph "t"
input %0:f32[8 4] "x"
param %1:f32[5 4] "w"
param %2:f32[5] "b"
const %3:f32[] = 0.5
param %4:f32[] "t"
%5 = Linear(%0, %1, %2)
%6 = mul(%3, %5)
%7 = add(%6, %4)
output %7 "y"
-->
graph "t"
input %0:f32[8 4] "x"
param %1:f32[5 4] "w"
param %2:f32[5] "b"
const %3:f32[] = 0.5
param %4:f32[] "t"
%5:f32[1 1] = Reshape(%3) shape=[1,1]
%6:f32[5 4] = Expand(%5) shape=[5,4]
%7:f32[5 4] = mul(%1, %6)
%8:f32[1] = Reshape(%3) shape=[1]
%9:f32[5] = Expand(%8) shape=[5]
%10:f32[5] = mul(%2, %9)
%11:f32[1] = Reshape(%4) shape=[1]
%12:f32[5] = Expand(%11) shape=[5]
%13:f32[5] = add(%10, %12)
%14:f32[N=8 C=5] = Linear(%0, %7, %13)
output %14 "y"
work flops 440 -> 390, bytes 1676 -> 904

== linear on more dimensions: by the last one
pass weights dead
graph "t"
input %0:f32[2 5 4] "x"
param %1:f32[5 4] "w"
param %2:f32[5] "s"
%3 = Linear(%0, %1)
%4 = mul(%3, %2)
output %4 "y"
-->
graph "t"
input %0:f32[2 5 4] "x"
param %1:f32[5 4] "w"
param %2:f32[5] "s"
%3:f32[5 1] = Reshape(%2) shape=[5,1]
%4:f32[5 4] = Expand(%3) shape=[5,4]
%5:f32[5 4] = mul(%1, %4)
%6:f32[N=2 N=5 C=5] = Linear(%0, %5, -)
output %6 "y"
work flops 450 -> 420, bytes 1260 -> 820

== linear: the scale runs over another dimension of the same size
pass weights dead
graph "t"
input %0:f32[2 5 4] "x"
param %1:f32[5 4] "w"
param %2:f32[5 1] "s"
%3 = Linear(%0, %1)
%4 = mul(%3, %2)
output %4 "y"
--> same

== transposed convolution
pass weights dead
graph "t"
input %0:f32[1 2 4 4] "x"
param %1:f32[2 3 3 3] "w"
param %2:f32[3 1 1] "s"
param %3:f32[3 1 1] "t"
%4 = ConvT(%0, %1) s=2
%5 = mul(%4, %2)
%6 = add(%5, %3)
output %6 "y"
-->
graph "t"
input %0:f32[1 2 4 4] "x"
param %1:f32[2 3 3 3] "w"
param %2:f32[3 1 1] "s"
param %3:f32[3 1 1] "t"
%4:f32[1 3 1 1] = Reshape(%2) shape=[1,3,1,1]
%5:f32[2 3 3 3] = Expand(%4) shape=[2,3,3,3]
%6:f32[2 3 3 3] = mul(%1, %5)
%7:f32[3] = Reshape(%3) shape=[3]
%8:f32[1 C=3 P=9 P=9] = ConvT(%0, %6, %7) s=2
output %8 "y"
work flops 2838 -> 2649, bytes 9116 -> 2252

== transposed convolution in groups: the channel is in two dimensions of the weights
pass weights dead
graph "t"
input %0:f32[1 4 4 4] "x"
param %1:f32[4 3 3 3] "w"
param %2:f32[6 1 1] "s"
%3 = ConvT(%0, %1) g=2
%4 = mul(%3, %2)
output %4 "y"
--> same

== by pixel, by image, and not a parameter
pass weights dead
graph "t"
input %0:f32[2 3 3 3] "x"
param %1:f32[3 3 1 1] "w"
param %2:f32[3] "by pixel"
param %3:f32[2 1 1 1] "by image"
input %4:f32[3 1 1] "not a parameter"
%5 = Conv(%0, %1)
%6 = mul(%5, %2)
%7 = Conv(%6, %1)
%8 = mul(%7, %3)
%9 = Conv(%8, %1)
%10 = mul(%9, %4)
output %10 "y"
--> same

== weights that are computed from an input
pass weights dead
graph "t"
input %0:f32[1 3 4 4] "x"
input %1:f32[3 3 1 1] "w"
param %2:f32[3 1 1] "s"
%3 = Conv(%0, %1)
%4 = mul(%3, %2)
output %4 "y"
--> same

== the convolution is read twice, or is an output
pass weights dead
graph "t"
input %0:f32[1 3 4 4] "x"
param %1:f32[3 3 1 1] "w"
param %2:f32[3 1 1] "s"
%3 = Conv(%0, %1)
%4 = mul(%3, %2)
%5 = add(%3, %4)
%6 = Conv(%5, %1)
%7 = mul(%6, %2)
output %6 "a"
output %7 "b"
--> same

== number minus convolution, number by convolution, the convolution squared
pass weights dead
graph "t"
input %0:f32[1 3 4 4] "x"
param %1:f32[3 3 1 1] "w"
param %2:f32[3 1 1] "s"
%3 = Conv(%0, %1)
%4 = sub(%2, %3)
%5 = Conv(%4, %1)
%6 = div(%2, %5)
%7 = Conv(%6, %1)
%8 = mul(%7, %7)
output %8 "y"
--> same

== the scale makes the result larger
pass weights dead
graph "t"
input %0:f32[1 3 1 1] "x"
param %1:f32[3 3 1 1] "w"
param %2:f32[2 3 1 1] "s"
%3 = Conv(%0, %1)
%4 = mul(%3, %2)
output %4 "y"
--> same

== integers
pass weights dead
graph "t"
input %0:i64[1 3 4] "x"
param %1:i64[3 3 1] "w"
param %2:i64[3 1] "s"
%3 = Conv(%0, %1)
%4 = mul(%3, %2)
output %4 "y"
--> same

== weights that several convolutions share, each with a scale of its own
pass weights dead
graph "t"
input %0:f32[1 3 4] "x"
param %1:f32[3 3 1] "w"
param %2:f32[3 1] "s"
param %3:f32[3 1] "t"
%4 = Conv(%0, %1)
%5 = mul(%4, %2)
%6 = Conv(%5, %1)
%7 = mul(%6, %3)
output %7 "y"
-->
graph "t"
input %0:f32[1 3 4] "x"
param %1:f32[3 3 1] "w"
param %2:f32[3 1] "s"
param %3:f32[3 1] "t"
%4:f32[3 1 1] = Reshape(%2) shape=[3,1,1]
%5:f32[3 3 1] = Expand(%4) shape=[3,3,1]
%6:f32[3 3 1] = mul(%1, %5)
%7:f32[N=1 C=3 P=4] = Conv(%0, %6, -)
%8:f32[3 1 1] = Reshape(%3) shape=[3,1,1]
%9:f32[3 3 1] = Expand(%8) shape=[3,3,1]
%10:f32[3 3 1] = mul(%1, %9)
%11:f32[N=1 C=3 P=4] = Conv(%7, %10, -)
output %11 "y"
work flops 168 -> 162, bytes 672 -> 624

== a scale behind a convolution of any size; one that is cut from a table by the size stays
pass batchnorm weights dead
sizes 1,3,3 2,8,5
graph "t"
dim #0 "b" hint=2
dim #1 "h" hint=7 min=3 max=9
dim #2 "w" hint=9 min=3
input %0:f32[#0 2 #1 #2] "x"
param %1:f32[4 2 3 3] "w"
param %2:f32[4] "v"
param %3:f32[4] "positive"
%4 = Conv(%0, %1) p=1 q=1 "conv"
%5 = BatchNorm(%4, %2, -, %2, %3)
param %6:f32[9 4] "table"
%7 = Select(%6) axis=0 index=#1-3
%8 = Reshape(%7) shape=[4,1,1]
%9 = mul(%5, %8)
output %9 "y"
-->
graph "t"
dim #0 "b" hint=2 min=1 max=1099511627776 multiple=1
dim #1 "h" hint=7 min=3 max=9 multiple=1
dim #2 "w" hint=9 min=3 max=1099511627776 multiple=1
input %0:f32[#0 2 #1 #2] "x"
param %1:f32[4 2 3 3] "w"
param %2:f32[4] "v"
param %3:f32[4] "positive"
param %4:f32[9 4] "table"
const %5:f32[] = 1e-05
%6:f32[4] = Expand(%5) shape=[4]
%7:f32[4] = add(%3, %6)
%8:f32[4] = rsqrt(%7)
%9:f32[4] = mul(%8, %2)
%10:f32[4] = mul(%2, %9)
%11:f32[4] = neg(%10)
%12:f32[4 1 1] = Reshape(%9) shape=[4,1,1]
%13:f32[4 1 1] = Reshape(%11) shape=[4,1,1]
%14:f32[4 1 1 1] = Reshape(%12) shape=[4,1,1,1]
%15:f32[4 2 3 3] = Expand(%14) shape=[4,2,3,3]
%16:f32[4 2 3 3] = mul(%1, %15)
%17:f32[4] = Reshape(%13) shape=[4]
%18:f32[N=#0 C=4 P=#1 P=#2] = Conv(%0, %16, %17) p=1 q=1 "conv"
%19:f32[4] = Select(%4) axis=0 index=#1-3
%20:f32[4 1 1] = Reshape(%19) shape=[4,1,1]
%21:f32[#0 4 #1 #2] = Expand(%20) shape=[#0,4,#1,#2]
%22:f32[N=#0 C=4 P=#1 P=#2] = mul(%18, %21)
output %22 "y"
work flops 19676 -> 19244, bytes 15664 -> 13124
