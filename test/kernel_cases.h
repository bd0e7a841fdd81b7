/* Clusters for tests of the plain nest and dfp: operator definitions, types, layouts. */
#ifndef KERNEL_CASES_H
#define KERNEL_CASES_H

#include "kernel_check.h"

#define POOL "x[N C Q..] -> y[N C P..] | #K=k; #P=(#Q+2*p-d*(#K-1)-1)//s+1 | | "
#define CONV                                                                                                          \
    "x[N I Q..] w[O J K..] b?[O] -> y[N O P..] | #G=g; #C=#O//g; #O=#C*#G; #I=#J*#G; #P=(#Q+2*p-d*(#K-1)-1)//s+1 | |" \
    "y[N G*#C+C P] = (sum[J K] x[N G*#J+J s*P+d*K-p]:0 * w[G*#C+C J K]) + b[G*#C+C]:0"

static const struct check_case common_cases[] = {
    {CONV, "2,6,9,8 8,3,3,3 8", "s=1 p=1 d=1 g=2", NULL, 0, NULL},
    {CONV, "1,4,9,10 8,4,3,2 -", "s=2 p=2 d=2 g=1", "x:0231+g3 y:0231+g5", 0, NULL},
    {CONV, "1,6,11,9 6,1,3,3 6", "s=1 p=1 d=1 g=6", "x:0231+h1 y:0231", 0, NULL},
    {CONV, "2,3,20 5,3,4 5", "s=3 p=1 d=1 g=1", NULL, 0, NULL},
    {POOL "y[N C P] = max[K] x[N C s*P+d*K-p]:-inf", "2,3,9,7", "k=3,3 s=2 p=1 d=1", NULL, 0, "nan"},
    {POOL "y[N C P] = (sum[K] x[N C s*P+d*K-p]:0) / (sum[K | 0<=s*P+d*K-p<#Q] 1)", "2,3,9,7", "k=3,2 s=2 p=1 d=1",
     "x:0231", 0, NULL},
    {"x[N C Q..] -> y[N C P..] i:i64[N C P..] -> m:i64[N C P..] | #K=k; #P=(#Q+2*p-#K)//s+1 | |"
     "(y,m)[N C P] = maxat[K | 0<=s*P+K-p<#Q] x[N C s*P+K-p]; i[N C P] = lin(#Q, s*P+dig(m[N C P],#K)-p)",
     "1,4,8,9", "k=3,3 s=2 p=1", "x:0231 y:0231", 0, "nan"},
    {"m:u8[N C P..] g[N C P..] -> d[N C Q] | #Q=2*#P; #K=2; #L=3 | |"
     "d[N C Q] = sum[K L | 0<=Q//2-K and Q//2-K<#P and m[N C Q//2-K]==3*K+L] g[N C Q//2-K]",
     "u8:2,24,7<7 2,24,7", NULL, NULL, 0, NULL},
    {"a[B M K] b[B K N] -> y[B M N] | | | y[B M N] = sum[K] a[B M K] * b[B K N]", "3,7,20 3,20,9", NULL, NULL, 0, NULL},
    {"x[A R B] -> y[A R B] | | | (m,z)[A B] = softsum[R] x[A R B]; y[A R B] = exp(x[A R B]-m[A B]) / z[A B]", "3,40,5",
     NULL, NULL, 0, "big"},
    {"x[A.. R..] w?[R..] b?[R..] -> y[A.. R..] | R=1 | | (u,v)[A] = moments[R] x[A R];"
     "y[A R] = (x[A R]-u[A]) / sqrt(v[A]+e) * w[R]:1 + b[R]:0",
     "3,4,33 33 33", "e=1e-5", NULL, 0, NULL},
    {"x[N O P..] w?[O] b?[O] -> y[N O P..] | #G=g; #C=#O//g; #O=#C*#G | | (u,v)[N G] = moments[C P] x[N G*#C+C P];"
     "y[N G*#C+C P] = (x[N G*#C+C P]-u[N G]) / sqrt(v[N G]+e) * w[G*#C+C]:1 + b[G*#C+C]:0",
     "2,6,5,4 6 6", "e=1e-5 g=3", NULL, 0, NULL},
    {"w[V E..] i:int[A..] -> y[A.. E..] | | | y[A E] = w[i[A] E]", "7,9 i64:3,4<7", NULL, NULL, 0, NULL},
    {"i:int[A..] -> y:i64[A.. V] | #V=n | | y[A V] = [i[A]==V]", "i32:3,4<9", "n=7", NULL, 0, NULL},
    {"x[A T B] -> y[A T B] | | | y[A T B] = y[A T-1 B]:0 + x[A T B]", "3,9,4", NULL, NULL, 0, NULL},
    {"x[A T B] -> y[A T B] | | | y[A T B] = y[A T+1 B]:1 * x[A T B]", "3,9,4", NULL, NULL, 0, NULL},
    {"x[A R] -> y[A] z[A] | | | y[A] = prod[R] x[A R]; z[A] = min[R] x[A R]", "5,9", NULL, NULL, 0, NULL},
    {"x[A R] -> y:bool[A] z:bool[A] | | | y[A] = any[R] x[A R]; z[A] = all[R] x[A R]", "bool:5,3", NULL, NULL, 0, NULL},
    {"x[A Q] -> y[A P] | #P=#Q+p+q | | y[A P] = x[A P-p]:v", "3,5", "p=2 q=3 v=1.5", NULL, 0, NULL},
    {"x[A Q] -> y[A P] | #P=#Q+p+q | | y[A P] = x[A #Q-1-abs(#Q-1-abs(P-p))]", "3,5", "p=2 q=3", NULL, 0, NULL},
    {"x[A Q] -> y[A P] | #P=#Q | | y[A P] = x[A (P-r)%#Q]", "3,5", "r=2", NULL, 0, NULL},
    {"x[A X B] z[A Z B] -> y[A Q B] | #Q=#X+#Z | | y[A Q B] = x[A Q B]:0 + z[A Q-#X B]:0", "2,3,4 2,5,4", NULL, NULL, 0,
     NULL},
    {"x[A X] z[A Z] u[A U] -> y[A Q] | #Q=#X+#Z+#U | | y[A Q] = x[A Q]:0 + z[A Q-#X]:0 + u[A Q-#X-#Z]:0",
     "3,33 3,40 3,70", NULL, NULL, 0, NULL},
    {"x[A Q] -> y[A P] | #P=#Q+p+q | | y[A P] = x[A P-p]:v", "3,37", "p=50 q=41 v=1.5", NULL, 0, NULL},
    {"x[A B] z[A B] -> y[A B] | | | y[A B] = where(x[A B]>z[A B], gelu(x[A B]), hardswish(z[A B]))", "5,21 5,21", NULL,
     NULL, 0, NULL},
    {"x[A] z[A] -> y:bool[A] | | | y[A] = [x[A]<z[A]]", "21 21", NULL, NULL, 0, "nan"},
    {"x[A] -> y:i64[A] | | | y[A] = identity(x[A]) + A*3", "f64:21", NULL, NULL, 0, "big"},
    {"x:int[A] z:int[A] -> y:x[A] q:x[A] | | | y[A] = floordiv(x[A], z[A]); q[A] = remainder(x[A], z[A])",
     "i64:50 i64:50", NULL, NULL, 0, NULL},
    {"x[A] z[A] -> y[A] q[A] | | | y[A] = floordiv(x[A], z[A]); q[A] = remainder(x[A], z[A])", "50 50", NULL, NULL, 0,
     NULL},
    /* u64 above 2^63, where signed arithmetic would give other results */
    {"x[A] z[A] -> a[A] b[A] c[A] d[A] e[A] g[A] h[A] | | | a[A] = floordiv(x[A], z[A]); b[A] = truncdiv(x[A], z[A]);"
     "c[A] = remainder(x[A], z[A]); d[A] = fmod(x[A], z[A]); e[A] = gcd(x[A], z[A]); g[A] = lcm(x[A], z[A]);"
     "h[A] = pow(x[A], z[A])",
     "u64:77 u64:77", NULL, NULL, 0, NULL},
    {"x[A] z[A] -> a[A] b[A] c[A] d[A] e[A] g[A] h[A] | | | a[A] = max(x[A], z[A]); b[A] = min(x[A], z[A]);"
     "c[A] = fmax(x[A], z[A]); d[A] = clamp(x[A], 3, z[A]); e[A] = shift_right(x[A], z[A]); "
     "g[A] = shift_left(x[A], z[A]); h[A] = where(x[A]<z[A], x[A], z[A])",
     "u64:77 u64:77", NULL, NULL, 0, NULL},
    {"x[A] z[A] -> a:bool[A] b:bool[A] c:bool[A] d:bool[A] e:bool[A] g:bool[A] | | | a[A] = lt(x[A], z[A]);"
     "b[A] = ge(x[A], z[A]); c[A] = gt(x[A], 9); d[A] = [x[A]<=z[A]]; e[A] = logical_and(x[A], z[A]);"
     "g[A] = signbit(x[A])",
     "u64:77 u64:77", NULL, NULL, 0, NULL},
    {"x[A] z[A] -> a[A] b[A] c[A] d[A] e[A] g[A] h[A] | | | a[A] = abs(x[A]); b[A] = sign(x[A]); c[A] = relu(x[A]);"
     "d[A] = neg(x[A]) * z[A] - 3; e[A] = threshold(x[A], z[A], 5); g[A] = relu6(x[A]); h[A] = bit_not(x[A])",
     "u64:77 u64:77", NULL, NULL, 0, NULL},
    {"x[A] z[A] k[A] -> a:f32[A] b:f64[A] c:x[A] d:i64[A] e:f32[A] g:bool[A] | | | a[A] = x[A]; b[A] = x[A] * 0.5;"
     "c[A] = z[A] * 1e17; d[A] = x[A]; e[A] = x[A] / 3; g[A] = [x[A]<k[A]]",
     "u64:77 f64:77 f64:77", NULL, NULL, 0, "big"},
    {"x[A R] -> a[A] b[A] c[A] d[A] e:f32[A] g:f32[A R] | | | a[A] = max[R] x[A R]; b[A] = min[R] x[A R];"
     "c[A] = sum[R] x[A R]; d[A] = prod[R] x[A R]; e[A] = max[R] x[A R]; g[A R] = x[A R] + 0.0",
     "u64:5,90", NULL, NULL, 0, NULL},
    {"x[R A] -> a[A] b[A] c[A] m:i64[A] n:i64[A] | | | a[A] = max[R] x[R A]; (b,m)[A] = maxat[R] x[R A];"
     "(c,n)[A] = minat[R] x[R A]",
     "u64:9,40", NULL, NULL, 0, NULL},
    {"x[A] -> y[] z[] | | | y[] = max[A] x[A]; z[] = min[A] x[A]", "u64:70000", NULL, NULL, 0, NULL},
    {"x:int[A] -> y:x[A] | | | y[A] = x[A] * 100 + 100", "i8:50", NULL, NULL, 0, NULL},
    {"x[A B] -> y[A B] | | | y[A B] = max(x[A B], 0.25) + min(x[A B], x[A B] * 2)", "5,21", NULL, NULL, 0, "nan"},
    {"x[A] -> y[] | | | y[] = sum[A] x[A]", "5000", NULL, NULL, 2e-5, NULL},
    {"x[N C Q..] -> y[N C P..] | #P=o; #K=(#Q+#P-1)//#P+1 | l[P] = ((P+1)*#Q+#P-1)//#P-P*#Q//#P |"
     "y[N C P] = (sum[K | K<l[P]] x[N C P*#Q//#P+K]) / l[P]",
     "1,3,7,9", "o=3,4", NULL, 0, NULL},
    {"p[A] f[A] -> exp[A] | | | exp[A] = exp(p[A]) + f[A]", "9 9", NULL, NULL, 0, NULL},
    {"x[A B C] -> y[A B C] | | | t[A B C] = x[A B C] * 2; u[A] = sum[B C] t[A B C]; y[A B C] = t[A B C] + u[A]",
     "2,3,4", NULL, NULL, 0, NULL},
};

#endif
