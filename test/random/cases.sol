# Graphs that were computed wrong once, each with the settings (test/random/check.c) under which it is tried.

# with auto,dfp
graph "a guard that waits for the vector letter's"
input %0:f64[1 1 12 5] "x"
%1 = AdaptiveAvgPool(%0) o=[3,3]
output %1 "y"

# with auto,matmul
graph "a composite function in an epilogue"
input %0:f32[2 12 8] "x"
input %1:f32[2 8 10] "w"
input %2:f32[2 12 10] "z"
%3 = MatMul(%0, %1)
%4 = ldexp(%3, %2)
output %4 "y"

# with auto,nest
graph "reals that are no integers, as integers"
input %0:f32[37] "x"
const %1:f32[37] = splat nan
const %2:f32[37] = splat 1e19
%3 = where(%0, %1, %2)
%4 = mul(%3, %0)
%5 = Cast(%1) to=i32
%6 = Cast(%2) to=u64
%7 = Cast(%4) to=i32
%8 = Cast(%4) to=u8
%9 = Cast(%4) to=i64
%10 = Cast(%4) to=u64
output %5 "a"
output %6 "b"
output %7 "c"
output %8 "d"
output %9 "e"
output %10 "f"

# with auto,v3
graph "temporaries with an index of two letters, in tiles"
input %0:f32[2 3 6] "x"
param %1:f32[12 1 2] "w"
const %2:f32[] = 0.0625
const %3:f32[] = 50
%4 = Conv(%0, %1, -) p=1 q=1 g=3
%5 = clamp(%4, %2, %3)
%6 = log1p(%5)
output %6 "y"

# with auto,bands
graph "a band of equal stages, whose sources have a bracket in a comment"
input %0:f32[1 8 6 6] "x"
param %1:f32[8 8 1 1] "u"
%2 = Conv(%0, %1)
%3 = tanh(%2)
param %4:f32[8 8 1 1] "v"
%5 = Conv(%3, %4)
%6 = tanh(%5)
param %7:f32[8 8 1 1] "w"
%8 = Conv(%6, %7)
%9 = tanh(%8)
output %9 "y"

# with auto,nest
graph "an operand of a layer without loops is no part of a Concat"
input %0:f32[1 3 16 11] "x"
input %1:f32[1 4 16 11] "z"
%2 = tanh(%0)
%3, %4 = Sort(%2) axis=3 down=1
%5 = Concat(%1, %2, %3) axis=1
param %6:f32[10 1 3 3] "w"
%7 = Conv(%5, %6, -) s=2 p=[0,1] q=[0,1] g=10
output %7 "y"

# with auto,matmul
graph "a table is no factor of a contraction"
input %0:f64[3 17 16] "x"
%1 = Resize(%0) size=[3,17,8] mode=linear coord=pytorch_half_pixel
output %1 "y"

# with auto,nest
graph "a choice by an operand's own zeros"
input %0:f32[48 12] "x"
const %1:f32[48 12] = seed 3
const %2:f32[] = 1
const %3:f32[] = -1
%4 = round(%0)
%5 = where(%4, %1, %4)
output %4 "y"
output %5 "z"

# with auto,bands,joint
graph "a product of empty matrices behind a split"
input %0:f32[3 7 1 5] "x"
param %1:f32[16 5] "w"
param %2:f32[16] "b"
%3:f32[3 0 1 5], %4:f32[3 1 1 5], %5:f32[3 6 1 5] = Split(%0) axis=1 sizes=[0,1,6]
%6:f32[N=3 N=0 N=1 C=16] = Linear(%3, %1, %2)
output %6 "y"

# with auto,direct
graph "a tensor twice in a concatenation, in an epilogue"
input %0:f32[2 1 9 4] "x"
param %1:f32[1 1 2 2] "w"
%2:f32[N=2 C=1 P=10 P=5] = Conv(%0, %1, -) p=1 q=1
%3:f32[N=2 1 P=10 P=5] = tanh(%2)
%4:f32[N=2 1 P=10 P=5] = sinh(%3)
%5:f32[N=2 1 P=30 P=5] = Concat(%4, %3, %4) axis=2
%6:f32[N=2 1 P=30 P=5] = exp(%5)
output %4 "y"
output %6 "z"
