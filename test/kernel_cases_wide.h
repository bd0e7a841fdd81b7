/* Clusters for tests of dfp, beyond those of kernel_cases.h. */
#ifndef KERNEL_CASES_WIDE_H
#define KERNEL_CASES_WIDE_H

#include "kernel_cases.h"

/* A batch-norm in a training step, with its consumers: a running mean is between its element-wise step and the ReLU. */
#define NORM                                                                                        \
    "x[N C P..] w[C] r[C] -> y[N C P..] q[C] -> t[N C P..] | | | (u,v)[C] = moments[N P] x[N C P];" \
    "t[N C P] = (x[N C P]-u[C]) / sqrt(v[C]+e) * w[C]; q[C] = r[C]*0.9 + u[C]*0.1; y[N C P] = relu(t[N C P])"

/* The gradient of a depthwise convolution's weight. */
#define DEPTHWISE                                                                \
    "x[N C Q..] g[N C P..] -> w[C K..] | #K=k; #P=(#Q+2*p-d*(#K-1)-1)//s+1 | | " \
    "w[C K] = sum[N P] g[N C P] * x[N C s*P+d*K-p]:0"

/* Cases that matter for vectors: numbers of channels with a remainder, borders, tiles, halos, long rows. */
static const struct check_case wide_cases[] = {
    {CONV, "1,40,13,15 40,1,3,3 40", "s=1 p=1 d=1 g=40", "x:0231 y:0231", 0, NULL},
    {CONV, "2,35,13,15 35,1,3,3 35", "s=1 p=1 d=1 g=35", "x:0231+h1 y:0231+g3", 0, NULL},
    {CONV, "1,32,17,19 32,1,5,5 -", "s=2 p=2 d=1 g=32", "x:0231 y:0231", 0, NULL},
    {CONV, "1,24,30,9 24,1,7,3 24", "s=1 p=3 d=2 g=24", "x:0231 y:0231", 0, NULL},
    {CONV, "1,18,40 18,1,3 18", "s=1 p=1 d=1 g=18", NULL, 0, NULL},
    {CONV, "1,16,4,5,6 16,1,3,3,3 16", "s=1 p=1 d=1 g=16", "x:02341 y:02341", 0, NULL},
    {CONV, "1,20,7,7 20,1,3,3 20", "s=1 p=1 d=1 g=20", NULL, 0, NULL},
    {POOL "y[N C P] = max[K] x[N C s*P+d*K-p]:-inf", "1,64,15,14", "k=3,3 s=2 p=1 d=1", "x:0231 y:0231", 0, "nan"},
    {POOL "y[N C P] = max[K] x[N C s*P+d*K-p]:-inf", "1,21,15,40", "k=3,3 s=1 p=1 d=1", NULL, 0, "nan"},
    {POOL "y[N C P] = (sum[K] x[N C s*P+d*K-p]:0) / (sum[K | 0<=s*P+d*K-p<#Q] 1)", "1,33,15,14", "k=3,3 s=2 p=1 d=1",
     "x:0231 y:0231", 0, NULL},
    {POOL "y[N C P] = (sum[K] x[N C s*P+d*K-p]:0) / 9", "1,33,15,14", "k=3,3 s=1 p=1 d=1", "x:0231+h2 y:0231", 0, NULL},
    {"x[N C Q..] -> y[N C] | | | y[N C] = (sum[Q] x[N C Q]) / #Q", "2,70,7,7", NULL, "x:0231", 0, NULL},
    {"x[N C Q..] -> y[N C] | | | y[N C] = (sum[Q] x[N C Q]) / 6400", "1,33,80,80", NULL, "x:0231", 0, NULL},
    {"x[N C Q..] -> y[N C] | | | y[N C] = max[Q] x[N C Q]", "2,5,17,23", NULL, NULL, 0, "nan"},
    {"x[A R] -> y[A R] | | | (m,z)[A] = softsum[R] x[A R]; y[A R] = exp(x[A R]-m[A]) / z[A]", "5,1000", NULL, NULL, 0,
     "big"},
    {"x[A R] -> y[A R] | | | (m,z)[A] = softsum[R] x[A R]; y[A R] = exp(x[A R]-m[A]) / z[A]", "3,67", NULL, NULL, 0,
     "nan"},
    {"x[A R] -> y[A R] | | | (m,z)[A] = softsum[R] x[A R]; y[A R] = x[A R]-m[A] - log(z[A])", "3,67", NULL, NULL, 0,
     "big"},
    {"x[A R B] -> y[A R B] | | | (m,z)[A B] = softsum[R] x[A R B]; y[A R B] = exp(x[A R B]-m[A B]) / z[A B]", "2,21,50",
     NULL, NULL, 0, "big"},
    {"x[A T S] -> y[A T S] | | | (m,z)[A T] = softsum[S | S<=T] x[A T S];"
     "y[A T S] = [S<=T] * exp(min(x[A T S]-m[A T], 0)) / z[A T]",
     "2,40,40", NULL, NULL, 0, NULL},
    {"x[A.. R..] w?[R..] b?[R..] -> y[A.. R..] | R=1 | | (u,v)[A] = moments[R] x[A R];"
     "y[A R] = (x[A R]-u[A]) / sqrt(v[A]+e) * w[R]:1 + b[R]:0",
     "7,768 768 768", "e=1e-5", NULL, 0, NULL},
    {"x[N O P..] w?[O] b?[O] -> y[N O P..] | #G=g; #C=#O//g; #O=#C*#G | | (u,v)[N G] = moments[C P] x[N G*#C+C P];"
     "y[N G*#C+C P] = (x[N G*#C+C P]-u[N G]) / sqrt(v[N G]+e) * w[G*#C+C]:1 + b[G*#C+C]:0",
     "2,32,9,10 32 32", "e=1e-5 g=2", "x:0231 y:0231", 0, NULL},
    {"x[N C P..] -> y[N C P..] | | | (u,v)[N C] = moments[P] x[N C P]; y[N C P] = (x[N C P]-u[N C]) / sqrt(v[N C]+e)",
     "2,37,9,10", "e=1e-5", "x:0231 y:0231", 0, NULL},
    {"x[N C P..] -> y[N C P..] | | | (u,v)[C] = moments[N P] x[N C P]; y[N C P] = (x[N C P]-u[C]) / sqrt(v[C]+e)",
     "2,37,9,10", "e=1e-5", NULL, 0, NULL},
    {NORM, "3,64,15,15 64 64", "e=1e-5", "x:0231 y:0231", 0, NULL},
    {NORM, "3,40,15,15 40 40", "e=1e-5", NULL, 0, NULL},
    {"x[A R] -> y[A] i:i64[A] | | | (y,i)[A] = maxat[R] x[A R]", "6,100", NULL, NULL, 0, "nan"},
    {"x[A R B] -> y[A B] i:i64[A B] | | | (y,i)[A B] = minat[R] x[A R B]", "3,10,40", NULL, NULL, 0, "nan"},
    {"x[N C P..] z[N C P..] s[N C] -> y[N C P..] | | | t[N C P] = x[N C P] * s[N C] + z[N C P]; y[N C P] = relu(t[N C "
     "P])",
     "2,40,6,7 2,40,6,7 2,40", NULL, "x:0231 z:0231 y:0231", 0, "nan"},
    {"x[N C P..] z[N C P..] -> y[N C P..] | | | y[N C P] = max(x[N C P] + z[N C P], 0)", "1,256,9,9 1,256,9,9", NULL,
     "x:0231 z:0231 y:0231+h1", 0, "nan"},
    {"x[N C P..] -> y[N C P..] | | | y[N C P] = x[N C P]", "2,37,9,10", NULL, "y:0231", 0, NULL},
    {"x[N C P..] -> y[N C P..] | | | y[N C P] = relu(x[N C P])", "1,64,20,20", NULL, "x:0231", 0, NULL},
    /* guards that fail in the middle and hold near the borders */
    {"x[N A B] -> y[N A C] | #C=#B-4 | | y[N A C] = x[N A C+2] + (sum[| 1<=C and C<=2] x[N A 2-C])"
     " + (sum[| #C-3<=C and C<=#C-2] x[N A 2*#C-C]) + (sum[| C==0 and A==#A-1] x[N A 1])",
     "2,3,61", NULL, NULL, 0, NULL},
    {"x[N A B] -> y[N C B] | #C=#A-4 | | y[N C B] = x[N C+2 B] + (sum[| 1<=C and C<=2] x[N 2-C B])"
     " + (sum[| #C-3<=C and C<=#C-2] x[N 2*#C-C B])",
     "2,23,40", NULL, NULL, 0, NULL},
    {"w[V E..] i:int[A..] -> y[A.. E..] | | | y[A E] = w[i[A] E]", "7,100 i64:3,4<7", NULL, NULL, 0, NULL},
    {"x[N M H P] z[N C P] -> y[N C P] -> t[N C P] | #C=#M*#H | | t[N M*#H+H P] = x[N M H P] + z[N M*#H+H P];"
     "y[N M*#H+H P] = silu(t[N M*#H+H P])",
     "2,3,16,32 2,48,32", NULL, "z:021 y:021", 0, NULL},
    {"x[N C P] z[N C P] -> y[N C P] -> t[N L C P] | #L=2 | | t[N 1 C P] = x[N C P] + z[N C P]; y[N C P] = silu(t[N 1 C "
     "P])",
     "2,48,32 2,48,32", NULL, "z:021 y:021", 0, NULL},
    {"w[V E] i:int[A B] -> y[Q E] -> t:i64[Q] | #Q=#A*#B | |"
     "t[A*#B+B] = i[A B] + #V*[i[A B]<0]; y[A*#B+B E] = w[t[A*#B+B] E]",
     "49,2 i64:5,16<49", NULL, NULL, 0, NULL},
    {"x[A B] -> y[A B] | | | y[A B] = gelu(x[A B]) + silu(x[A B]) + tanh(x[A B]) + elu(x[A B],1)", "9,41", NULL, NULL,
     8e-6, "big"},
    {"x[A B] z[A B] -> y[A B] | | | y[A B] = pow(abs(x[A B]), z[A B]) + atan2(x[A B], z[A B])", "3,41 3,41", NULL, NULL,
     0, NULL},
    {"x[A B] m[A B] -> y[A B] q:bool[A B] | | | y[A B] = where(m[A B], x[A B], -inf); q[A B] = [x[A B]>0 and m[A "
     "B]!=0]",
     "3,41 bool:3,41", NULL, NULL, 0, NULL},
    {"x:int[A B] z:int[A B] -> y:x[A B] | | | y[A B] = x[A B] * z[A B] + A*100 - B", "i64:5,50 i64:5,50", NULL, NULL, 0,
     NULL},
    {"x[A B] -> y:i32[A B] | | | y[A B] = identity(x[A B] * 10)", "5,50", NULL, NULL, 0, NULL},
    {"x[A B] z[B] -> y[A B] | | | y[A B] = x[A B] * z[B] + exp(x[A B])", "f64:5,50 f64:50", NULL, NULL, 0, "big"},
    {"x[A T B] -> y[A T B] | | | y[A T B] = y[A T-1 B]:0 + x[A T B]", "2,9,40", NULL, NULL, 0, NULL},
    {"x[N C P..] -> y[N C P..] | #K=n | | s[N C P] = sum[K] x[N C+K-(n-1)//2 P]:0 * x[N C+K-(n-1)//2 P]:0;"
     "y[N C P] = x[N C P] / pow(2.0 + 0.1*s[N C P], 0.75)",
     "1,40,5,6", "n=5", "x:0231 y:0231", 0, NULL},
    {"x[N C Q..] -> y[N C P..] | #P=2*#Q | | y[N C P] = x[N C P//2]", "1,40,5,6", NULL, "x:0231 y:0231", 0, NULL},
    {"x[A X B] z[A Z B] -> y[A Q B] | #Q=#X+#Z | | y[A Q B] = x[A Q B]:0 + z[A Q-#X B]:0", "2,30,4 2,50,4", NULL,
     "x:021 z:021 y:021", 0, NULL},
    {"x[A] -> y[] z[] | | | y[] = sum[A] x[A]; z[] = max[A] x[A]", "100000", NULL, NULL, 1e-4, NULL},
    {DEPTHWISE, "2,40,29,31 2,40,29,31", "k=3,3 s=1 p=1 d=1", "x:0231+h1 g:0231 w:120", 0, NULL},
    {DEPTHWISE, "2,37,57,41 2,37,28,21", "k=4,2 s=2 p=1 d=1", "x:0231+h2 g:0231+h1", 0, NULL},
};

#endif
