/* Eigenvalues and eigenvectors of symmetric matrices. Reflections make A tridiagonal; the implicit QL iteration
 * (Bowdler, Martin, Reinsch, Wilkinson: The QR and QL algorithms for symmetric matrices, 1968) makes that diagonal. */
#include <float.h>

#include "layers/reference_matrix.h"

enum { EIGH_STEPS = 60 }; /* for one eigenvalue; 2 or 3 are usual */

/* The diagonal d and subdiagonal e of H A H' with H = H[n-3] .. H[0]. Reflection k stays in row k, right of the
 * diagonal. w: a row. */
static void make_tridiagonal(double *a, int64_t n, double *d, double *e, double *tau, double *w)
{
    for (int64_t k = 0; k + 2 < n; k++) {
        double *v = a + k * n + k + 1;
        const int64_t m = n - k - 1;
        tau[k] = reference_reflect(v, m, 1);
        e[k] = v[0];
        v[0] = 1;
        for (int64_t j = 0; j < m; j++) w[j] = 0;
        for (int64_t i = 0; i < m && tau[k] != 0; i++)
            for (int64_t j = 0; j < m; j++) w[j] += tau[k] * v[i] * v[(i + 1) * n + j];
        const double half = 0.5 * tau[k] * reference_dot(w, v, m);
        for (int64_t j = 0; j < m; j++) w[j] -= half * v[j];
        for (int64_t i = 0; i < m && tau[k] != 0; i++)
            for (int64_t j = 0; j < m; j++) v[(i + 1) * n + j] -= v[i] * w[j] + w[i] * v[j];
    }
    for (int64_t k = 0; k < n; k++) d[k] = a[k * n + k];
    if (n > 1) e[n - 2] = a[(n - 2) * n + n - 1];
    if (n) e[n - 1] = 0;
}

/* z = H, the transpose of what multiplies the eigenvectors of the tridiagonal matrix from the left. */
static void make_vectors(const double *a, int64_t n, const double *tau, double *z, double *w)
{
    reference_eye(z, n, n);
    for (int64_t k = 0; k + 2 < n; k++)
        reference_apply(a + k * n + k + 1, 1, tau[k], (struct reference_part){z + (k + 1) * n, n, n - k - 1, n}, w);
}

/* One step from the top `m` down to l, with Wilkinson's shift: rotates neighbouring rows of z, too. */
static void ql_step(double *d, double *e, int64_t l, int64_t m, double *z, int64_t n)
{
    double g = (d[l + 1] - d[l]) / (2 * e[l]), s = 1, c = 1, shift = 0;
    g = d[m] - d[l] + e[l] / (g + copysign(hypot(g, 1), g));
    for (int64_t i = m - 1; i >= l; i--) {
        const double f = s * e[i], b = c * e[i], r = hypot(f, g);
        e[i + 1] = r;
        if (r == 0) { /* the matrix decouples here */
            d[i + 1] -= shift;
            e[m] = 0;
            return;
        }
        s = f / r;
        c = g / r;
        const double low = d[i + 1] - shift, change = (d[i] - low) * s + 2 * c * b;
        shift = s * change;
        d[i + 1] = low + shift;
        g = c * change - b;
        for (int64_t k = 0; z && k < n; k++) {
            const double x = z[i * n + k], y = z[(i + 1) * n + k];
            z[(i + 1) * n + k] = s * x + c * y;
            z[i * n + k] = c * x - s * y;
        }
    }
    d[l] -= shift;
    e[l] = g;
    e[m] = 0;
}

/* Returns false if the iteration does not converge. */
static int make_diagonal(double *d, double *e, double *z, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(d[i]) + fabs(e[i]));
    for (int64_t l = 0; l < n; l++)
        for (int steps = 0;; steps++) {
            int64_t m = l;
            while (m + 1 < n && !(fabs(e[m]) <= DBL_EPSILON * (fabs(d[m]) + fabs(d[m + 1])) ||
                                  fabs(e[m]) <= DBL_EPSILON * DBL_EPSILON * most))
                m++;
            if (m == l) break;
            if (steps == EIGH_STEPS) return 0;
            ql_step(d, e, l, m, z, n);
        }
    return 1;
}

static void sort_rising(double *d, double *z, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t least = i;
        for (int64_t j = i + 1; j < n; j++)
            if (d[j] < d[least]) least = j;
        if (least == i) continue;
        const double v = d[i];
        d[i] = d[least];
        d[least] = v;
        for (int64_t k = 0; z && k < n; k++) {
            const double t = z[i * n + k];
            z[i * n + k] = z[least * n + k];
            z[least * n + k] = t;
        }
    }
}

static size_t eigh_scratch(const struct reference *a)
{
    return (size_t)(2 * a->rows * a->rows + 4 * a->rows) * sizeof(double);
}

/* -- a -> w v?; option 1: reads the upper half, else the lower one; 2: no vectors */
static enum reference_error run_eigh(const struct reference *a, char *const *p, void *scratch,
                                     struct reference_bad *out_bad)
{
    const int64_t n = a->rows, size = n * n;
    double *s = scratch, *z = s + size, *d = z + size, *e = d + n, *tau = e + n, *w = tau + n;
    const int vectors = !(a->option & 2);
    for (int64_t o = 0; o < a->outer; o++) {
        reference_load(a, p[0], o * size, size, s);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < i; j++)
                if (a->option & 1)
                    s[i * n + j] = s[j * n + i];
                else
                    s[j * n + i] = s[i * n + j];
        make_tridiagonal(s, n, d, e, tau, w);
        if (vectors) make_vectors(s, n, tau, z, w);
        *out_bad = (struct reference_bad){o, 0};
        if (!make_diagonal(d, e, vectors ? z : NULL, n)) return REFERENCE_DIVERGED;
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(d[i])) return REFERENCE_DIVERGED;
        sort_rising(d, vectors ? z : NULL, n);
        reference_store(a, d, n, p[1], o * n);
        for (int64_t i = 0; vectors && i < n; i++)
            for (int64_t j = 0; j < n; j++) s[j * n + i] = z[i * n + j];
        if (vectors) reference_store(a, s, size, p[2], o * size);
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_eigh = {"reference_eigh", "reference_eigh.c", eigh_scratch, run_eigh};
