/* The exponential of a matrix by scaling and squaring: halve until the norm is at most 1/2, evaluate a Taylor
 * polynomial, square as often. */
#include "layers/reference_matrix.h"

enum {
    EXP_TERMS = 14,
    EXP_HALVED = 1100
}; /* 2^-14 / 14! is below half a unit in the last place of a double; a norm is below 2^1024 */

static size_t exp_scratch(const struct reference *a)
{
    return 3 * (size_t)(a->rows * a->rows) * sizeof(double);
}

/* c = a b */
static void multiply(const double *x, const double *y, int64_t n, double *to)
{
    for (int64_t i = 0; i < n * n; i++) to[i] = 0;
    reference_subtract((struct reference_part){to, n, n, n}, x, n, y, n, n);
    for (int64_t i = 0; i < n * n; i++) to[i] = -to[i];
}

/* Halves x until its norm is at most 1/2; returns how often. */
static int halve(double *x, int64_t n)
{
    double norm = 0;
    int halved = 0;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++) sum += fabs(x[i * n + j]);
        norm = fmax(norm, sum);
    }
    while (norm > 0.5 && halved < EXP_HALVED) {
        norm /= 2;
        halved++;
    }
    for (int64_t i = 0; i < n * n && halved; i++) x[i] = ldexp(x[i], -halved);
    return halved;
}

static enum reference_error run_exp(const struct reference *a, char *const *p, void *scratch,
                                    struct reference_bad *out_bad)
{
    const int64_t n = a->rows, size = n * n;
    double *x = scratch, *y = x + size, *t = y + size;
    (void)out_bad;
    for (int64_t o = 0; o < a->outer; o++) {
        reference_load(a, p[0], o * size, size, x);
        const int halved = halve(x, n);
        reference_eye(y, n, n);
        for (int k = EXP_TERMS; k > 0; k--) { /* y = I + x y / k */
            multiply(x, y, n, t);
            for (int64_t i = 0; i < size; i++) y[i] = t[i] / k + (i % (n + 1) == 0);
        }
        for (int k = 0; k < halved; k++) {
            multiply(y, y, n, t);
            memcpy(y, t, (size_t)size * sizeof *y);
        }
        reference_store(a, y, size, p[1], o * size);
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_matrix_exp = {"reference_matrix_exp", "reference_exp.c", exp_scratch, run_exp};
