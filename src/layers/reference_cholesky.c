/* Cholesky factors of positive definite matrices, and solutions of triangular systems. */
#include "layers/reference_matrix.h"

/* -- a -> l info; option 1: the upper factor, from the upper half. The factorization is A = U' U, so that loops run
 * along rows. */

static int32_t factor_cholesky(double *u, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        double *row = u + k * n;
        if (!(row[k] > 0)) return (int32_t)(k + 1);
        const double root = row[k] = sqrt(row[k]);
        for (int64_t j = k + 1; j < n; j++) row[j] /= root;
        for (int64_t i = k + 1; i < n; i++)
            for (int64_t j = i; j < n; j++) u[i * n + j] -= row[i] * row[j];
    }
    return 0;
}

static size_t cholesky_scratch(const struct reference *a)
{
    return 2 * (size_t)(a->rows * a->rows) * sizeof(double);
}

static void transpose_square(const double *from, int64_t n, double *to)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) to[j * n + i] = from[i * n + j];
}

static enum reference_error run_cholesky(const struct reference *a, char *const *p, void *scratch,
                                         struct reference_bad *out_bad)
{
    const int64_t n = a->rows, size = n * n;
    double *u = scratch, *other = u + size;
    int32_t *info = (int32_t *)p[2];
    for (int64_t o = 0; o < a->outer; o++) {
        reference_load(a, p[0], o * size, size, a->option ? u : other);
        if (!a->option) transpose_square(other, n, u);
        info[o] = factor_cholesky(u, n);
        *out_bad = (struct reference_bad){o, info[o]};
        if (a->check && info[o]) return REFERENCE_INDEFINITE;
        for (int64_t i = 0; i < n; i++) memset(u + i * n, 0, (size_t)i * sizeof *u);
        if (!a->option) transpose_square(u, n, other);
        reference_store(a, a->option ? u : other, size, p[1], o * size);
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_cholesky = {"reference_cholesky", "reference_cholesky.c", cholesky_scratch, run_cholesky};

/* -- a b -> x with A x = b; option 1: A is the upper triangle; 2: its diagonal counts as 1 */

static size_t triangular_scratch(const struct reference *a)
{
    return (size_t)(a->rows * (a->rows + a->rhs)) * sizeof(double);
}

static enum reference_error run_triangular(const struct reference *a, char *const *p, void *scratch,
                                           struct reference_bad *out_bad)
{
    const int64_t n = a->rows, r = a->rhs, size = n * n, part = n * r;
    double *t = scratch, *x = t + size;
    (void)out_bad;
    for (int64_t o = 0; o < a->outer; o++) {
        reference_load(a, p[0], o * size, size, t);
        reference_load(a, p[1], o * part, part, x);
        for (int64_t k = 0; k < n; k++) {
            const int64_t i = a->option & 1 ? n - 1 - k : k, from = a->option & 1 ? i + 1 : 0;
            reference_subtract((struct reference_part){x + i * r, r, 1, r}, t + i * n + from, n, x + from * r, r, k);
            for (int64_t j = 0; j < r && !(a->option & 2); j++) x[i * r + j] /= t[i * n + i];
        }
        reference_store(a, x, part, p[2], o * part);
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_triangular = {"reference_triangular", "reference_cholesky.c", triangular_scratch,
                                       run_triangular};
