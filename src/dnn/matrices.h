/* A contraction as products of matrices that lie in memory as libraries for linear algebra want them. */
#ifndef SOL_DNN_MATRICES_H
#define SOL_DNN_MATRICES_H

#include "dnn/problem.h"

struct matrix { /* has two strides, one of which is 1 */
    int64_t stride;
    bool across; /* a: the summed axis does not have stride 1; b: it does */
};
struct matrices { /* for each element of the outer axes, a[m k] times b[k n] */
    struct axes outer;
    struct axis m, n, k;
    struct matrix a, b;
    int64_t nouter;
};
/* Finds them; no size varies. False: *out_why says why there are none. */
bool matrices_find(const struct problem *p, struct matrices *out, const char **out_why);

#endif
