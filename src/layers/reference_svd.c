/* Singular values by Hestenes' one-sided Jacobi rotations after a QR factorization (Drmac, Veselic: New fast and
 * accurate Jacobi SVD algorithm, 2008). Rows of the square factor are rotated until they are orthogonal; small singular
 * values have a small relative error. */
#include <float.h>

#include "layers/reference_matrix.h"

enum { SVD_SWEEPS = 60 }; /* 6 to 10 are usual */

/* Of a matrix with m >= n: a[m x n], g[n x n], v[n x n], vectors u[m x m], s, tau, and a row. */
struct svd_room {
    double *a, *g, *v, *u, *s, *tau, *w;
    int64_t m, n;
};

static size_t svd_scratch(const struct reference *a)
{
    const int64_t m = a->rows > a->cols ? a->rows : a->cols, n = a->rows + a->cols - m;
    return (size_t)(m * n + 2 * n * n + m * m + 2 * n + m) * sizeof(double);
}

static struct svd_room svd_room(const struct reference *a, void *scratch)
{
    const int64_t m = a->rows > a->cols ? a->rows : a->cols, n = a->rows + a->cols - m;
    struct svd_room r = {.a = scratch, .m = m, .n = n};
    r.g = r.a + m * n;
    r.v = r.g + n * n;
    r.u = r.v + n * n;
    r.s = r.u + m * m;
    r.tau = r.s + n;
    r.w = r.tau + n;
    return r;
}

static void turn(double *x, double *y, int64_t n, double c, double s)
{
    for (int64_t i = 0; i < n; i++) {
        const double xi = x[i], yi = y[i];
        x[i] = c * xi - s * yi;
        y[i] = s * xi + c * yi;
    }
}

/* Rotates two rows of g, and those of v, until they are orthogonal. Returns true if they were not. */
static int turn_rows(struct svd_room *r, int64_t i, int64_t j)
{
    const int64_t n = r->n;
    double *x = r->g + i * n, *y = r->g + j * n;
    const double xx = reference_dot(x, x, n), yy = reference_dot(y, y, n), xy = reference_dot(x, y, n);
    if (!(fabs(xy) > DBL_EPSILON * sqrt((double)n) * sqrt(xx) * sqrt(yy))) return 0;
    const double zeta = (yy - xx) / (2 * xy), t = copysign(1, zeta) / (fabs(zeta) + hypot(1, zeta));
    const double c = 1 / hypot(1, t);
    turn(x, y, n, c, c * t);
    turn(r->v + i * n, r->v + j * n, n, c, c * t);
    return 1;
}

/* Makes the rows of g orthogonal, largest first: g = diag(s) u with unit rows u where s is not 0. */
static int diagonalize(struct svd_room *r)
{
    const int64_t n = r->n;
    int turned = 1;
    for (int sweep = 0; turned; sweep++) {
        if (sweep == SVD_SWEEPS) return 0;
        turned = 0;
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i + 1; j < n; j++) turned |= turn_rows(r, i, j);
    }
    for (int64_t i = 0; i < n; i++) r->s[i] = sqrt(reference_dot(r->g + i * n, r->g + i * n, n));
    for (int64_t i = 0; i < n; i++) {
        int64_t most = i;
        for (int64_t j = i + 1; j < n; j++)
            if (r->s[j] > r->s[most]) most = j;
        if (most != i) {
            const double s = r->s[i];
            r->s[i] = r->s[most];
            r->s[most] = s;
            turn(r->g + i * n, r->g + most * n, n, 0, 1);
            turn(r->v + i * n, r->v + most * n, n, 0, 1);
        }
        for (int64_t k = 0; k < n && r->s[i] > 0; k++) r->g[i * n + k] /= r->s[i];
    }
    return 1;
}

/* Completes the basis: rows with s = 0 become unit vectors orthogonal to all rows before. Each is the axis with the
 * largest rest, without its part in those rows. */
static void complete(struct svd_room *r)
{
    const int64_t n = r->n;
    for (int64_t i = 0; i < n; i++) {
        if (r->s[i] > 0) continue;
        double *row = r->g + i * n, most = -1;
        int64_t unit = 0;
        for (int64_t k = 0; k < n; k++) {
            double left = 1;
            for (int64_t j = 0; j < i; j++) left -= r->g[j * n + k] * r->g[j * n + k];
            if (left > most) {
                most = left;
                unit = k;
            }
        }
        for (int64_t k = 0; k < n; k++) row[k] = k == unit;
        for (int twice = 0; twice < 2; twice++)
            for (int64_t j = 0; j < i; j++) {
                const double by = reference_dot(row, r->g + j * n, n);
                for (int64_t k = 0; k < n; k++) row[k] -= by * r->g[j * n + k];
            }
        const double length = sqrt(reference_dot(row, row, n));
        for (int64_t k = 0; k < n; k++) row[k] /= length;
    }
}

/* Factors matrix o, or its transpose if it has more columns than rows: s; the rows of v are the right singular vectors
 * of R' = (rows of g), hence the left ones of R; the rows of g are the right ones. */
static int take_apart(const struct reference *a, const char *from, int64_t o, struct svd_room *r)
{
    const int64_t m = r->m, n = r->n, size = m * n;
    double scale = 0;
    reference_load(a, from, o * size, size, a->rows < a->cols ? r->u : r->a);
    for (int64_t i = 0; a->rows < a->cols && i < n; i++)
        for (int64_t j = 0; j < m; j++) r->a[j * n + i] = r->u[i * m + j];
    for (int64_t i = 0; i < size; i++) {
        if (!isfinite(r->a[i])) return 0;
        scale = fmax(scale, fabs(r->a[i]));
    }
    for (int64_t i = 0; i < size && scale > 0; i++) r->a[i] /= scale;
    if (m > n) reference_factor_qr(r->a, m, n, r->tau, r->w);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) r->g[i * n + j] = m > n && j < i ? 0 : r->a[i * n + j];
    reference_eye(r->v, n, n);
    if (!diagonalize(r)) return 0;
    complete(r);
    for (int64_t i = 0; i < n; i++) r->s[i] *= scale;
    return 1;
}

/* The long vectors, as the first `width` columns of u: the reflections applied to those of R, and to unit vectors
 * behind them. */
static void long_vectors(struct svd_room *r, int64_t width)
{
    const int64_t m = r->m, n = r->n;
    reference_eye(r->u, m, width);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) r->u[i * width + j] = r->v[j * n + i];
    if (m > n) reference_apply_all(r->a, n, r->tau, n, (struct reference_part){r->u, width, m, width}, r->w);
}

/* -- a -> u s v'; option 1: u and v are square; 2: a -> s */

static enum reference_error run_svd(const struct reference *a, char *const *p, void *scratch,
                                    struct reference_bad *out_bad)
{
    struct svd_room r = svd_room(a, scratch);
    const int64_t m = r.m, n = r.n, width = a->option & 1 ? m : n;
    const int wide = a->rows < a->cols;
    for (int64_t o = 0; o < a->outer; o++) {
        *out_bad = (struct reference_bad){o, 0};
        if (!take_apart(a, p[0], o, &r)) return REFERENCE_DIVERGED;
        reference_store(a, r.s, n, p[a->option & 2 ? 1 : 2], o * n);
        if (a->option & 2) continue;
        long_vectors(&r, width);
        if (!wide) {
            reference_store(a, r.u, m * width, p[1], o * m * width);
            reference_store(a, r.g, n * n, p[3], o * n * n);
            continue;
        }
        for (int64_t i = 0; i < m; i++) /* the right singular vectors are the long ones, as rows */
            for (int64_t j = 0; j < width; j++)
                reference_store(a, &r.u[i * width + j], 1, p[3], (o * width + j) * m + i);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) reference_store(a, &r.g[j * n + i], 1, p[1], (o * n + i) * n + j);
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_svd = {"reference_svd", "reference_svd.c", svd_scratch, run_svd};

/* -- a atol rtol -> p: the pseudoinverse; singular values up to max(atol, rtol * largest) count as 0 */

static enum reference_error run_pinv(const struct reference *a, char *const *p, void *scratch,
                                     struct reference_bad *out_bad)
{
    struct svd_room r = svd_room(a, scratch);
    const int64_t m = r.m, n = r.n;
    for (int64_t o = 0; o < a->outer; o++) {
        double atol, rtol;
        *out_bad = (struct reference_bad){o, 0};
        reference_load(a, p[1], o, 1, &atol);
        reference_load(a, p[2], o, 1, &rtol);
        if (!take_apart(a, p[0], o, &r)) return REFERENCE_DIVERGED;
        long_vectors(&r, n);
        for (int64_t i = 0; i < n; i++) {
            const double by = r.s[i] > fmax(atol, rtol * r.s[0]) ? 1 / r.s[i] : 0;
            for (int64_t k = 0; k < n; k++) r.g[i * n + k] *= by;
        }
        memset(r.a, 0, (size_t)(m * n) * sizeof *r.a); /* minus the product of m x n, which is P where A is wide */
        reference_subtract((struct reference_part){r.a, n, m, n}, r.u, n, r.g, n, n);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                const double v = -r.a[i * n + j];
                reference_store(a, &v, 1, p[3], o * m * n + (a->rows < a->cols ? i * n + j : j * m + i));
            }
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_pinv = {"reference_pinv", "reference_svd.c", svd_scratch, run_pinv};
