/* LU factors (P A = L U), and solutions, inverses and determinants from them. Pivoting is partial: the largest of a
 * column, the first of equals, as in LAPACK's getrf. Columns are factored in panels; the update to the right of a panel
 * is one product. */
#include "layers/reference_matrix.h"

enum { LU_PANEL = 32 };

static void swap_rows(double *a, int64_t cols, int64_t i, int64_t j)
{
    for (int64_t k = 0; i != j && k < cols; k++) {
        const double t = a[i * cols + k];
        a[i * cols + k] = a[j * cols + k];
        a[j * cols + k] = t;
    }
}

/* Factors one column of a panel that ends before column `end`. Returns false if its pivot is 0. */
static int eliminate(double *a, int64_t rows, int64_t cols, int64_t k, int64_t end, int32_t *pivot)
{
    int64_t p = k;
    for (int64_t i = k + 1; i < rows; i++)
        if (fabs(a[i * cols + k]) > fabs(a[p * cols + k])) p = i;
    pivot[k] = (int32_t)(p + 1);
    if (a[p * cols + k] == 0) return 0;
    swap_rows(a, cols, k, p);
    for (int64_t i = k + 1; i < rows; i++) {
        const double by = a[i * cols + k] /= a[k * cols + k];
        for (int64_t j = k + 1; j < end; j++) a[i * cols + j] -= by * a[k * cols + j];
    }
    return 1;
}

/* pivot[k]: the row that was swapped with row k, counted from 1. Returns the first zero pivot, counted from 1; 0: none.
 */
static int32_t factor_lu(double *a, int64_t rows, int64_t cols, int32_t *pivot)
{
    const int64_t n = rows < cols ? rows : cols;
    int32_t info = 0;
    for (int64_t from = 0; from < n; from += LU_PANEL) {
        const int64_t end = n - from < LU_PANEL ? n : from + LU_PANEL, right = cols - end;
        for (int64_t k = from; k < end; k++)
            if (!eliminate(a, rows, cols, k, end, pivot) && !info) info = (int32_t)(k + 1);
        for (int64_t i = from + 1; i < end; i++)
            reference_subtract((struct reference_part){a + i * cols + end, cols, 1, right}, a + i * cols + from, cols,
                               a + from * cols + end, cols, i - from);
        reference_subtract((struct reference_part){a + end * cols + end, cols, rows - end, right},
                           a + end * cols + from, cols, a + from * cols + end, cols, end - from);
    }
    return info;
}

/* x = A^-1 x for x of n x r. */
static void solve_lu(const double *lu, const int32_t *pivot, int64_t n, double *x, int64_t r)
{
    for (int64_t i = 0; i < n; i++) swap_rows(x, r, i, pivot[i] - 1);
    for (int64_t i = 1; i < n; i++)
        reference_subtract((struct reference_part){x + i * r, r, 1, r}, lu + i * n, n, x, r, i);
    for (int64_t i = n - 1; i >= 0; i--) {
        reference_subtract((struct reference_part){x + i * r, r, 1, r}, lu + i * n + i + 1, n, x + (i + 1) * r, r,
                           n - 1 - i);
        for (int64_t j = 0; j < r; j++) x[i * r + j] /= lu[i * n + i];
    }
}

/* x = A'^-1 x: solves with U', then L', by their columns, which are rows here. */
static void solve_lu_transposed(const double *lu, const int32_t *pivot, int64_t n, double *x, int64_t r)
{
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < r; j++) x[i * r + j] /= lu[i * n + i];
        for (int64_t k = i + 1; k < n; k++)
            for (int64_t j = 0; j < r; j++) x[k * r + j] -= lu[i * n + k] * x[i * r + j];
    }
    for (int64_t i = n - 1; i > 0; i--)
        for (int64_t k = 0; k < i; k++)
            for (int64_t j = 0; j < r; j++) x[k * r + j] -= lu[i * n + k] * x[i * r + j];
    for (int64_t i = n - 1; i >= 0; i--) swap_rows(x, r, i, pivot[i] - 1);
}

static enum reference_error singular(int64_t matrix, int32_t info, struct reference_bad *out_bad)
{
    *out_bad = (struct reference_bad){matrix, info};
    return REFERENCE_SINGULAR;
}

static size_t lu_scratch(const struct reference *a)
{
    return (size_t)(a->cols * (a->rows + a->rhs)) * sizeof(double) + (size_t)a->rows * sizeof(int64_t);
}

/* -- a -> lu pivots info */

static enum reference_error run_lu(const struct reference *a, char *const *p, void *scratch,
                                   struct reference_bad *out_bad)
{
    double *lu = scratch;
    const int64_t size = a->rows * a->cols, n = a->rows < a->cols ? a->rows : a->cols;
    int32_t *info = (int32_t *)p[3];
    for (int64_t o = 0; o < a->outer; o++) {
        reference_load(a, p[0], o * size, size, lu);
        info[o] = factor_lu(lu, a->rows, a->cols, (int32_t *)p[2] + o * n);
        reference_store(a, lu, size, p[1], o * size);
        if (a->check && info[o]) return singular(o, info[o], out_bad);
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_lu = {"reference_lu", "reference_lu.c", lu_scratch, run_lu};

/* -- lu pivots b -> x; option 1: with the transposed matrix */

static enum reference_error run_lu_solve(const struct reference *a, char *const *p, void *scratch,
                                         struct reference_bad *out_bad)
{
    const int64_t n = a->rows, size = n * n, part = n * a->rhs;
    double *lu = scratch, *x = lu + size;
    for (int64_t o = 0; o < a->outer; o++) {
        const int32_t *pivot = (const int32_t *)p[1] + o * n;
        for (int64_t i = 0; i < n; i++) {
            *out_bad = (struct reference_bad){pivot[i], n + 1};
            if (pivot[i] < 1 || pivot[i] > n) return REFERENCE_INDEX;
        }
        reference_load(a, p[0], o * size, size, lu);
        reference_load(a, p[2], o * part, part, x);
        (a->option ? solve_lu_transposed : solve_lu)(lu, pivot, n, x, a->rhs);
        reference_store(a, x, part, p[3], o * part);
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_lu_solve = {"reference_lu_solve", "reference_lu.c", lu_scratch, run_lu_solve};

/* -- a b -> x lu pivots info */

struct system { /* one matrix, factored, and what is solved with it, in its place */
    double *lu, *x;
    int32_t *pivot, *info;
};

static enum reference_error solve_system(const struct reference *a, const char *from, int64_t o, struct system s,
                                         struct reference_bad *out_bad)
{
    const int64_t n = a->rows;
    reference_load(a, from, o * n * n, n * n, s.lu);
    s.info[o] = factor_lu(s.lu, n, n, s.pivot);
    if (a->check && s.info[o]) return singular(o, s.info[o], out_bad);
    solve_lu(s.lu, s.pivot, n, s.x, a->rhs);
    return REFERENCE_GOOD;
}

static enum reference_error run_solve(const struct reference *a, char *const *p, void *scratch,
                                      struct reference_bad *out_bad)
{
    const int64_t n = a->rows, size = n * n, part = n * a->rhs;
    struct system s = {.lu = scratch, .x = (double *)scratch + size, .info = (int32_t *)p[5]};
    for (int64_t o = 0; o < a->outer; o++) {
        s.pivot = (int32_t *)p[4] + o * n;
        reference_load(a, p[1], o * part, part, s.x);
        const enum reference_error error = solve_system(a, p[0], o, s, out_bad);
        if (error) return error;
        reference_store(a, s.lu, size, p[3], o * size);
        reference_store(a, s.x, part, p[2], o * part);
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_solve = {"reference_solve", "reference_lu.c", lu_scratch, run_solve};

/* -- a -> y info; rhs is rows */

static enum reference_error run_inverse(const struct reference *a, char *const *p, void *scratch,
                                        struct reference_bad *out_bad)
{
    const int64_t n = a->rows, size = n * n;
    double *x = (double *)scratch + size;
    const struct system s = {.lu = scratch, .x = x, .pivot = (int32_t *)(x + size), .info = (int32_t *)p[2]};
    for (int64_t o = 0; o < a->outer; o++) {
        reference_eye(x, n, n);
        const enum reference_error error = solve_system(a, p[0], o, s, out_bad);
        if (error) return error;
        reference_store(a, x, size, p[1], o * size);
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_inverse = {"reference_inverse", "reference_lu.c", lu_scratch, run_inverse};

/* -- a -> det lu pivots; option 1: a -> sign log|det| lu pivots */

static enum reference_error run_det(const struct reference *a, char *const *p, void *scratch,
                                    struct reference_bad *out_bad)
{
    const int64_t n = a->rows, size = n * n;
    double *lu = scratch;
    const int out = a->option ? 3 : 2; /* where lu goes */
    (void)out_bad;
    for (int64_t o = 0; o < a->outer; o++) {
        int32_t *pivot = (int32_t *)p[out + 1] + o * n;
        double det = 1, sign = 1, sum = 0;
        reference_load(a, p[0], o * size, size, lu);
        factor_lu(lu, n, n, pivot);
        reference_store(a, lu, size, p[out], o * size);
        for (int64_t i = 0; i < n; i++) {
            const double d = lu[i * n + i];
            if (pivot[i] != i + 1) {
                sign = -sign;
                det = -det;
            }
            det *= d;
            sign *= d != d ? d : (d > 0) - (d < 0);
            sum += log(fabs(d));
        }
        reference_store(a, a->option ? &sign : &det, 1, p[1], o);
        if (a->option) reference_store(a, &sum, 1, p[2], o);
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_det = {"reference_det", "reference_lu.c", lu_scratch, run_det};
