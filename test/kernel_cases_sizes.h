/* Clusters whose sizes vary, and the sizes that they are tried at. */
#ifndef KERNEL_CASES_SIZES_H
#define KERNEL_CASES_SIZES_H

#include "kernel_cases.h"
#include "kernel_sizes.h"

/* Any size from 0 on. */
static const struct check_case any_cases[] = {
    {"x[A B C] z[A B C] -> y[A B C] | | | y[A B C] = max(x[A B C] + z[A B C], 0)", "#0,#1,40 #0,#1,40", NULL, NULL, 0,
     "nan"},
    {"x[A B] z[B] -> y[A B] | | | y[A B] = gelu(x[A B]) * z[B]", "#0,#1 #1", NULL, NULL, 8e-6, NULL},
    {"x[A B] z[A] -> y[A B] | | | y[A B] = x[A B] * z[A] + exp(x[A B])", "3,#1 3", NULL, NULL, 0, NULL},
    {"x[N C P..] z[N C P..] s[N C] -> y[N C P..] | | | t[N C P] = x[N C P] * s[N C] + z[N C P]; y[N C P] = relu(t[N C "
     "P])",
     "#0,5,#1,#2 #0,5,#1,#2 #0,5", NULL, NULL, 0, NULL},
    {"x[N C P..] z[N C P..] s[N C] -> y[N C P..] | | | t[N C P] = x[N C P] * s[N C] + z[N C P]; y[N C P] = relu(t[N C "
     "P])",
     "#0,21,#1,#2 #0,21,#1,#2 #0,21", NULL, "x:0231 z:0231+h1 y:0231+g3", 0, NULL},
    {"x[A R] -> y[A R] | | | (m,z)[A] = softsum[R] x[A R]; y[A R] = exp(x[A R]-m[A]) / z[A]", "#0,#1", NULL, NULL, 0,
     "big"},
    {"x[A R] -> y[A R] | | | (m,z)[A] = softsum[R] x[A R]; y[A R] = x[A R]-m[A] - log(z[A])", "3,#1", NULL, NULL, 0,
     "big"},
    {"x[A R B] -> y[A R B] | | | (m,z)[A B] = softsum[R] x[A R B]; y[A R B] = exp(x[A R B]-m[A B]) / z[A B]",
     "#0,#1,#2", NULL, NULL, 0, "big"},
    {"x[A R B] -> y[A R B] | | | (m,z)[A B] = softsum[R] x[A R B]; y[A R B] = exp(x[A R B]-m[A B]) / z[A B]", "2,#1,24",
     NULL, NULL, 0, "nan"},
    {"x[A T S] -> y[A T S] | | | (m,z)[A T] = softsum[S | S<=T] x[A T S];"
     "y[A T S] = [S<=T] * exp(min(x[A T S]-m[A T], 0)) / z[A T]",
     "2,#1,#1", NULL, NULL, 0, NULL},
    {"q[B H T D] k[B H S D] v[B H S D] -> y[B H T D] | | | s[B H T S] = (sum[D] q[B H T D] * k[B H S D]) * 0.25;"
     "(m,z)[B H T] = softsum[S] s[B H T S]; p[B H T S] = exp(s[B H T S]-m[B H T]) / z[B H T];"
     "y[B H T D] = sum[S] p[B H T S] * v[B H S D]",
     "#0,2,#1,16 #0,2,#2,16 #0,2,#2,16", NULL, NULL, 1e-5, NULL},
    {"x[A.. R..] w?[R..] b?[R..] -> y[A.. R..] | R=1 | | (u,v)[A] = moments[R] x[A R];"
     "y[A R] = (x[A R]-u[A]) / sqrt(v[A]+e) * w[R]:1 + b[R]:0",
     "#0,#1,70 70 70", "e=1e-5", NULL, 0, NULL},
    {"x[N C P..] -> y[N C P..] | | | (u,v)[N C] = moments[P] x[N C P]; y[N C P] = (x[N C P]-u[N C]) / sqrt(v[N C]+e)",
     "#0,5,#1,#2", "e=1e-5", NULL, 1e-5, NULL},
    {"x[N C P..] -> y[N C P..] | | | (u,v)[N C] = moments[P] x[N C P]; y[N C P] = (x[N C P]-u[N C]) / sqrt(v[N C]+e)",
     "#0,37,#1,#2", "e=1e-5", "x:0231 y:0231", 1e-5, NULL},
    {"x[N C P..] -> y[N C P..] | | | (u,v)[C] = moments[N P] x[N C P]; y[N C P] = (x[N C P]-u[C]) / sqrt(v[C]+e)",
     "#0,20,#1,#2", "e=1e-5", "x:0231 y:0231", 1e-5, NULL},
    {"x[N C Q..] -> y[N C] | | | y[N C] = (sum[Q] x[N C Q]) / #Q", "#0,9,#1,#2", NULL, NULL, 0, NULL},
    {"x[N C Q..] -> y[N C] | | | y[N C] = (sum[Q] x[N C Q]) / #Q", "#0,70,#1,#2", NULL, "x:0231", 0, NULL},
    {"x[N C] -> y[C] | | | y[C] = sum[N] x[N C]", "#0,70", NULL, NULL, 0, NULL},
    {"x[N C P..] -> y[C] | | | y[C] = sum[N P] x[N C P]", "#0,20,#1,#2", NULL, NULL, 0, NULL},
    {"x[N C P..] -> y[C] | | | y[C] = sum[N P] x[N C P]", "#0,20,#1,#2", NULL, "x:0231", 0, NULL},
    {"x[A] -> y[] z[] | | | y[] = sum[A] x[A]; z[] = prod[A] x[A]", "#0*#1", NULL, NULL, 1e-5, NULL},
    {"x[A B] -> y[A B] | | | y[A B] = x[A B]", "#0,#1", NULL, "x:10", 0, NULL},
    {"x[N C P..] -> y[N C P..] | | | y[N C P] = x[N C P]", "#0,37,#1,#2", NULL, "y:0231", 0, NULL},
    {"x[N C P..] -> y[N C P..] | | | y[N C P] = relu(x[N C P])", "#0,64,#1,#2", NULL, "x:0231", 0, NULL},
    {"x[T H D] -> y[T E] | #E=#H*#D | | y[T H*#D+D] = x[T H D]", "#0,#1,24", NULL, "x:102", 0, NULL},
    {"w[V E..] i:int[A..] -> y[A.. E..] | | | y[A E] = w[i[A] E]", "7,100 i64:#0,#1<7", NULL, NULL, 0, NULL},
    {"w[V E] i:int[A B] -> y[Q E] -> t:i64[Q] | #Q=#A*#B | |"
     "t[A*#B+B] = i[A B] + #V*[i[A B]<0]; y[A*#B+B E] = w[t[A*#B+B] E]",
     "49,2 i64:#0,#1<49", NULL, NULL, 0, NULL},
    {"x[A B] m[A B] -> y[A B] q:bool[A B] | | | y[A B] = where(m[A B], x[A B], -inf); q[A B] = [x[A B]>0 and m[A "
     "B]!=0]",
     "#0,#1 bool:#0,#1", NULL, NULL, 0, NULL},
    {"x[A B] -> y[A B] | | | y[A B] = where(B<=A, x[A B], -inf)", "#0,#1", NULL, NULL, 0, NULL},
    {"x:int[A B] z:int[A B] -> y:x[A B] | | | y[A B] = x[A B] * z[A B] + A*100 - B", "i64:#0,#1 i64:#0,#1", NULL, NULL,
     0, NULL},
    {"x[A B] z[B] -> y[A B] | | | y[A B] = x[A B] * z[B] + exp(x[A B])", "f64:#0,#1 f64:#1", NULL, NULL, 0, "big"},
    {"x[A T B] -> y[A T B] | | | y[A T B] = y[A T-1 B]:0 + x[A T B]", "2,#0,#1", NULL, NULL, 0, NULL},
    {"x[A T B] -> y[A T B] | | | y[A T B] = y[A T+1 B]:0 + x[A T B]", "#0,#1,40", NULL, NULL, 0, NULL},
    {"x[A X B] z[A Z B] -> y[A Q B] | #Q=#X+#Z | | y[A Q B] = x[A Q B]:0 + z[A Q-#X B]:0", "2,#0,4 2,#1,4", NULL,
     "x:021 z:021 y:021", 0, NULL},
    {"x[A X] z[A Z] -> y[A Q] | #Q=#X+#Z | | y[A Q] = x[A Q]:0 + z[A Q-#X]:0", "2,#0 2,#1", NULL, NULL, 0, NULL},
    {"x[N C Q..] -> y[N C P..] | #P=2*#Q | | y[N C P] = x[N C P//2]", "#0,40,#1,#2", NULL, "x:0231 y:0231", 0, NULL},
    {"x[N C Q..] -> y[N C P..] | #P=2*#Q | | y[N C P] = x[N C P//2]", "#0,4,#1,#2", NULL, NULL, 0, NULL},
    {"x[A Q] -> y[A P] | #P=#Q+p+q | | y[A P] = x[A P-p]:v", "#0,#1", "p=2 q=3 v=1.5", NULL, 0, NULL},
    {CONV, "#0,20,#1,#2 20,1,3,3 20", "s=1 p=1 d=1 g=20", "x:0231 y:0231", 0, NULL},
    {CONV, "#0,20,#1,#2 20,1,3,3 20", "s=1 p=1 d=1 g=20", "x:0231+h1 y:0231+g3", 0, NULL},
    {CONV, "#0,20,#1,#2 20,1,5,5 20", "s=2 p=2 d=1 g=20", "x:0231 y:0231", 0, NULL},
    {CONV, "#0,6,#1,#2 6,1,3,3 6", "s=1 p=1 d=1 g=6", NULL, 0, NULL},
    {CONV, "#0,6,#1,#2 6,1,3,3 6", "s=2 p=1 d=1 g=6", NULL, 0, NULL},
    {POOL "y[N C P] = max[K] x[N C s*P+d*K-p]:-inf", "#0,24,#1,#2", "k=3,3 s=2 p=1 d=1", "x:0231 y:0231", 0, "nan"},
    {POOL "y[N C P] = max[K] x[N C s*P+d*K-p]:-inf", "#0,5,#1,#2", "k=3,3 s=1 p=1 d=1", NULL, 0, "nan"},
    {POOL "y[N C P] = (sum[K] x[N C s*P+d*K-p]:0) / (sum[K | 0<=s*P+d*K-p<#Q] 1)", "#0,33,#1,#2", "k=3,3 s=2 p=1 d=1",
     "x:0231 y:0231", 0, NULL},
};

/* Any size from 4 on: no padding, extremes of something. */
static const struct check_case some_cases[] = {
    {"x[N C Q..] -> y[N C] | | | y[N C] = max[Q] x[N C Q]", "#0,5,#1,#2", NULL, NULL, 0, "nan"},
    {"x[A R] -> y[A] i:i64[A] | | | (y,i)[A] = maxat[R] x[A R]", "#0,#1", NULL, NULL, 0, "nan"},
    {"x[A R B] -> y[A B] i:i64[A B] | | | (y,i)[A B] = minat[R] x[A R B]", "3,#0,#1", NULL, NULL, 0, "nan"},
    {POOL "y[N C P] = max[K] x[N C s*P+d*K-p]:-inf", "#0,24,#1,#2", "k=2,2 s=2 p=0 d=1", "x:0231 y:0231", 0, "nan"},
    {POOL "y[N C P] = max[K] x[N C s*P+d*K-p]:-inf", "#0,5,#1,#2", "k=2,2 s=2 p=0 d=1", NULL, 0, "nan"},
    {CONV, "#0,18,#1 18,1,3 18", "s=1 p=0 d=1 g=18", NULL, 0, NULL},
    {"x[A Q] -> y[A P] | #P=#Q+p+q | | y[A P] = x[A #Q-1-abs(#Q-1-abs(P-p))]", "#0,#1", "p=2 q=3", NULL, 0, NULL},
    {"x[A B] -> y[A B] | | | y[A B] = x[A (B-3)%#B]", "#0,#1", NULL, NULL, 0, NULL},
};

static const int64_t sizes[][CHECK_DIMS] = {
    {1, 1, 1},   {2, 3, 1},   {3, 7, 5},   {1, 15, 15},  {5, 16, 17},  {2, 17, 16}, {7, 8, 9},
    {16, 31, 4}, {1, 33, 47}, {4, 64, 64}, {9, 127, 13}, {17, 5, 130}, {37, 40, 3}, {1, 200, 1},
    {0, 5, 7},   {3, 0, 4},   {2, 6, 0},   {130, 4, 4},  {4, 300, 6},  {6, 4, 257},
};

#endif
