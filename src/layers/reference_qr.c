/* QR factors by Householder reflections, with LAPACK's signs. */
#include "layers/reference_matrix.h"

static int64_t fewer(const struct reference *a)
{
    return a->rows < a->cols ? a->rows : a->cols;
}

/* a, q, tau, a row */
static size_t qr_scratch(const struct reference *a)
{
    const int64_t most = a->rows > a->cols ? a->rows : a->cols;
    return (size_t)(a->rows * (a->cols + most) + 2 * most) * sizeof(double);
}

struct qr_room {
    double *a, *q, *tau, *w;
};

static struct qr_room qr_room(const struct reference *a, void *scratch)
{
    const int64_t most = a->rows > a->cols ? a->rows : a->cols;
    struct qr_room r = {.a = scratch};
    r.q = r.a + a->rows * a->cols;
    r.tau = r.q + a->rows * most;
    r.w = r.tau + most;
    return r;
}

/* -- a -> q r; option 1: Q is square and R has all rows */

static enum reference_error run_qr(const struct reference *a, char *const *p, void *scratch,
                                   struct reference_bad *out_bad)
{
    const struct qr_room r = qr_room(a, scratch);
    const int64_t m = a->rows, n = a->cols, k = fewer(a), width = a->option ? m : k;
    (void)out_bad;
    for (int64_t o = 0; o < a->outer; o++) {
        reference_load(a, p[0], o * m * n, m * n, r.a);
        reference_factor_qr(r.a, m, n, r.tau, r.w);
        reference_eye(r.q, m, width);
        reference_apply_all(r.a, n, r.tau, k, (struct reference_part){r.q, width, m, width}, r.w);
        reference_store(a, r.q, m * width, p[1], o * m * width);
        for (int64_t i = 0; i < width; i++) {
            for (int64_t j = 0; j < i && j < n; j++) r.a[i * n + j] = 0;
            reference_store(a, r.a + i * n, n, p[2], (o * width + i) * n);
        }
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_qr = {"reference_qr", "reference_qr.c", qr_scratch, run_qr};

/* -- a -> reflections tau: LAPACK's geqrf */

static enum reference_error run_reflectors(const struct reference *a, char *const *p, void *scratch,
                                           struct reference_bad *out_bad)
{
    const struct qr_room r = qr_room(a, scratch);
    const int64_t size = a->rows * a->cols, k = fewer(a);
    (void)out_bad;
    for (int64_t o = 0; o < a->outer; o++) {
        reference_load(a, p[0], o * size, size, r.a);
        reference_factor_qr(r.a, a->rows, a->cols, r.tau, r.w);
        reference_store(a, r.a, size, p[1], o * size);
        reference_store(a, r.tau, k, p[2], o * k);
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_reflectors = {"reference_reflectors", "reference_qr.c", qr_scratch, run_reflectors};

/* -- reflections tau[rhs] -> q: the first columns of the product of all reflections, as many as `reflections` has;
 * option 1: all columns */

static enum reference_error run_reflected(const struct reference *a, char *const *p, void *scratch,
                                          struct reference_bad *out_bad)
{
    const struct qr_room r = qr_room(a, scratch);
    const int64_t m = a->rows, n = a->cols, width = a->option ? m : n;
    (void)out_bad;
    for (int64_t o = 0; o < a->outer; o++) {
        reference_load(a, p[0], o * m * n, m * n, r.a);
        reference_load(a, p[1], o * a->rhs, a->rhs, r.tau);
        reference_eye(r.q, m, width);
        reference_apply_all(r.a, n, r.tau, a->rhs, (struct reference_part){r.q, width, m, width}, r.w);
        reference_store(a, r.q, m * width, p[2], o * m * width);
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_reflected = {"reference_reflected", "reference_qr.c", qr_scratch, run_reflected};
