/* Matrices in scratch memory, row-major, for all linear algebra of opaque layers. It computes in double, so that
 * float32 results are rounded once. Here are loads and stores, products, reflections and dot products. Inner loops run
 * along rows, so that a compiler vectorizes them. */
#ifndef SOL_REFERENCE_MATRIX_H
#define SOL_REFERENCE_MATRIX_H

#include <math.h>
#include <string.h>

#include "layers/reference.h"

/* n elements of an operand, from element `at` on. */
static inline void reference_load(const struct reference *a, const char *from, int64_t at, int64_t n, double *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = a->type == REFERENCE_F32 ? (double)((const float *)from)[at + i] : ((const double *)from)[at + i];
}

static inline void reference_store(const struct reference *a, const double *from, int64_t n, char *to, int64_t at)
{
    for (int64_t i = 0; i < n; i++)
        if (a->type == REFERENCE_F32)
            ((float *)to)[at + i] = (float)from[i];
        else
            ((double *)to)[at + i] = from[i];
}

/* A submatrix: rows x cols, with `ld` elements between rows. */
struct reference_part {
    double *at;
    int64_t ld, rows, cols;
};

/* c -= a b, four rows of b at a time. */
static inline void reference_subtract(struct reference_part c, const double *a, int64_t lda, const double *b,
                                      int64_t ldb, int64_t inner)
{
    for (int64_t i = 0; i < c.rows; i++) {
        double *restrict to = c.at + i * c.ld;
        const double *x = a + i * lda;
        int64_t k = 0;
        for (; k + 4 <= inner; k += 4) {
            const double *restrict b0 = b + k * ldb, *restrict b1 = b0 + ldb, *restrict b2 = b1 + ldb,
                                   *restrict b3 = b2 + ldb;
            const double x0 = x[k], x1 = x[k + 1], x2 = x[k + 2], x3 = x[k + 3];
            for (int64_t j = 0; j < c.cols; j++) to[j] -= x0 * b0[j] + x1 * b1[j] + x2 * b2[j] + x3 * b3[j];
        }
        for (; k < inner; k++)
            for (int64_t j = 0; j < c.cols; j++) to[j] -= x[k] * b[k * ldb + j];
    }
}

/* The dot product, as four sums. */
static inline double reference_dot(const double *x, const double *y, int64_t n)
{
    double sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) sum[k] += x[i + k] * y[i + k];
    for (; i < n; i++) sum[0] += x[i] * y[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Makes the reflection H = I - tau v v', v[0] = 1, with H x = (beta, 0..), like LAPACK's larfg. x[n], `step` elements
 * apart, becomes beta and v[1..]. Returns tau, 0 if x needs no reflection. */
static inline double reference_reflect(double *x, int64_t n, int64_t step)
{
    double most = 0, sum = 0;
    for (int64_t i = 1; i < n; i++)
        if (!(fabs(x[i * step]) <= most)) most = fabs(x[i * step]);
    if (most == 0) return 0;
    for (int64_t i = 1; i < n; i++) sum += x[i * step] / most * (x[i * step] / most);
    const double alpha = x[0], beta = -copysign(hypot(alpha, most * sqrt(sum)), alpha);
    for (int64_t i = 1; i < n; i++) x[i * step] /= alpha - beta;
    x[0] = beta;
    return (beta - alpha) / beta;
}

/* c = H c, with v[1..] `step` elements apart; w has room for a row. */
static inline void reference_apply(const double *v, int64_t step, double tau, struct reference_part c, double *w)
{
    if (tau == 0 || !c.rows) return;
    memcpy(w, c.at, (size_t)c.cols * sizeof *w);
    for (int64_t i = 1; i < c.rows; i++)
        for (int64_t j = 0; j < c.cols; j++) w[j] += v[i * step] * c.at[i * c.ld + j];
    for (int64_t i = 0; i < c.rows; i++) {
        const double by = tau * (i ? v[i * step] : 1);
        for (int64_t j = 0; j < c.cols; j++) c.at[i * c.ld + j] -= by * w[j];
    }
}

/* Multiplies c by the first reflections of a[rows x cols], which lie below its diagonal, from the last to the first. */
static inline void reference_apply_all(const double *a, int64_t cols, const double *tau, int64_t n,
                                       struct reference_part c, double *w)
{
    for (int64_t j = n - 1; j >= 0; j--)
        reference_apply(a + j * cols + j, cols, tau[j],
                        (struct reference_part){c.at + j * c.ld, c.ld, c.rows - j, c.cols}, w);
}

/* a = Q R by reflections: R above the diagonal, the reflections below. w: a row. */
static inline void reference_factor_qr(double *a, int64_t rows, int64_t cols, double *tau, double *w)
{
    for (int64_t j = 0; j < cols && j < rows; j++) {
        tau[j] = reference_reflect(a + j * cols + j, rows - j, cols);
        reference_apply(a + j * cols + j, cols, tau[j],
                        (struct reference_part){a + j * cols + j + 1, cols, rows - j, cols - j - 1}, w);
    }
}

/* The identity, rows x cols. */
static inline void reference_eye(double *a, int64_t rows, int64_t cols)
{
    memset(a, 0, (size_t)(rows * cols) * sizeof *a);
    for (int64_t i = 0; i < rows && i < cols; i++) a[i * cols + i] = 1;
}

#endif
