/* The peak of memory as a formula of the dimensions that vary: a short sum of monomials that comes close to what the
 * network needs besides its parameters, at sizes around the hints. One monomial after the other is added, always the
 * one that helps most, of similar ones the one with the lowest powers, until the sum is close enough; the constant then
 * makes it exact at the hints. Of many dimensions, those that matter most have terms. */
#include "base/size.h"
#include "runtime/inside.h"

#include <string.h>

enum {
    POINTS = 3, /* sizes of a dimension, and powers of it */
    FITTED = 3, /* dimensions */
    VALUES = POINTS * POINTS * POINTS,
    TERMS = 6 /* the first is the constant */
};
#define CLOSE 0.02      /* of what varies of the peak */
#define LEAST_BYTES 0.5 /* a smaller coefficient would be printed as 0B */
#define PER_POWER 0.1   /* how much smaller the error must be for a power more */

struct fit {
    struct sol_net *net;
    int ndim, dim[FITTED];      /* the numbers of the dimensions that are fitted */
    int64_t at[FITTED][POINTS]; /* sizes of each; all equal: it has no terms */
    double peak[VALUES];        /* at the sizes that the digits of the index choose, without parameters */
    int n, term[TERMS];         /* monomials: the digits of the number are the powers */
    double coef[TERMS];
};

static int digit(int i, int d)
{
    for (; d; d--) i /= POINTS;
    return i % POINTS;
}

/* The hint and two sizes above it (way = 1) or below it (-1). Blocks begin at cache lines: sizes that differ by whole
 * lines round alike, so that steps of small blocks do not look like a power. */
static void choose_points(const struct sol_dim_limits *l, int way, int64_t *at)
{
    enum { LINE = 64 };
    int64_t step = MAX(l->hint / l->multiple, 1) * l->multiple, lines = l->multiple;
    while (lines % LINE) lines += l->multiple;
    if (step < lines && l->hint + 2 * lines <= l->max) step = lines;
    if (way < 0) step = -MIN(step, (l->hint - l->min) / 2 / l->multiple * l->multiple);
    for (int k = 0; k < POINTS; k++) at[k] = l->hint + k * step;
}

/* Memory without parameters. Errors: INVALID (a layer does not take the sizes). */
static sol_status peak_at(struct sol_net *net, const int64_t *dims, double *out_peak)
{
    struct sol_memory m;
    TRY(sol_net_memory_at(net, dims, &m));
    *out_peak = (double)MAX(m.peak - m.params - m.prepared, 1);
    return SOL_OK;
}

/* Sizes of a dimension that the layers take where the others have their hints (none but the hint: all equal), and how
 * much of the peak they change. */
static sol_status try_points(struct sol_net *net, int d, int64_t *hints, int64_t *at, double *out_change)
{
    const struct sol_dim_limits limits = sol_net_dim(net, d).limits;
    *out_change = 0;
    for (int way = 1; way >= -1; way -= 2) {
        double first = 0, peak = 0;
        sol_status status = SOL_OK;
        choose_points(&limits, way, at);
        for (int k = 0; k < POINTS && !status; k++) {
            hints[d] = at[k];
            status = at[k] > limits.max ? SOL_ERR_INVALID : peak_at(net, hints, k ? &peak : &first);
        }
        hints[d] = limits.hint;
        if (status && status != SOL_ERR_INVALID) return status;
        if (!status) {
            *out_change = peak > first ? peak / first : first / peak;
            return SOL_OK;
        }
    }
    for (int k = 0; k < POINTS; k++) at[k] = limits.hint;
    return SOL_OK;
}

/* The dimensions that change the peak most, in their order. */
static sol_status choose_dims(struct fit *f)
{
    const int n = sol_net_dims(f->net);
    int64_t hints[SIZE_MOST_DIMS], at[SIZE_MOST_DIMS][POINTS];
    double change[SIZE_MOST_DIMS];
    for (int d = 0; d < n; d++) hints[d] = sol_net_dim(f->net, d).limits.hint;
    for (int d = 0; d < n; d++) TRY(try_points(f->net, d, hints, at[d], &change[d]));
    for (int d = 0; d < n; d++) {
        int before = 0;
        for (int o = 0; o < n; o++) before += change[o] > change[d] || (change[o] == change[d] && o < d);
        if (before >= FITTED) continue;
        memcpy(f->at[f->ndim], at[d], sizeof at[d]);
        f->dim[f->ndim++] = d;
    }
    return SOL_OK;
}

static sol_status sample(struct fit *f)
{
    int64_t dims[SIZE_MOST_DIMS];
    for (int i = 0; i < sol_net_dims(f->net); i++) dims[i] = sol_net_dim(f->net, i).limits.hint;
    for (int i = 0; i < VALUES; i++) {
        for (int d = 0; d < f->ndim; d++) dims[f->dim[d]] = f->at[d][digit(i, d)];
        TRY(peak_at(f->net, dims, &f->peak[i]));
    }
    return SOL_OK;
}

/* A monomial at a point. */
static double value(const struct fit *f, int term, int point)
{
    double v = 1;
    for (int d = 0; d < f->ndim; d++)
        for (int k = digit(term, d); k; k--) v *= (double)f->at[d][digit(point, d)];
    return v;
}

/* Solves the n equations a x = b, the last column of a being b. False: there is no single solution. */
static bool solve(int n, double a[TERMS][TERMS + 1], double *x)
{
    for (int i = 0; i < n; i++) {
        int best = i;
        for (int k = i; k < n; k++)
            if (a[k][i] * a[k][i] > a[best][i] * a[best][i]) best = k;
        if (a[best][i] * a[best][i] < 1e-24) return false;
        for (int c = i; c <= n; c++) {
            const double v = a[i][c];
            a[i][c] = a[best][c];
            a[best][c] = v;
        }
        for (int k = i + 1; k < n; k++)
            for (int c = n; c >= i; c--) a[k][c] -= a[k][i] / a[i][i] * a[i][c];
    }
    for (int i = n - 1; i >= 0; i--) {
        x[i] = a[i][n];
        for (int k = i + 1; k < n; k++) x[i] -= a[i][k] * x[k];
        x[i] /= a[i][i];
    }
    return true;
}

/* The coefficients of the least squares of relative errors. Returns the largest error; 2: only coefficients that are
 * negative or next to 0, or not determined, would do. */
static double least_squares(struct fit *f)
{
    double a[TERMS][TERMS + 1] = {{0}}, scale[TERMS], worst = 0;
    for (int i = 0; i < f->n; i++) scale[i] = value(f, f->term[i], VALUES - 1);
    for (int p = 0; p < VALUES; p++) {
        const double weight = f->peak[0] / f->peak[p];
        for (int i = 0; i < f->n; i++) {
            const double v = value(f, f->term[i], p) / scale[i] * weight;
            for (int k = 0; k < f->n; k++) a[i][k] += v * value(f, f->term[k], p) / scale[k] * weight;
            a[i][f->n] += v * f->peak[0];
        }
    }
    if (!solve(f->n, a, f->coef)) return 2;
    for (int i = 0; i < f->n; i++) {
        f->coef[i] /= scale[i];
        if (i && f->coef[i] < LEAST_BYTES) return 2;
    }
    for (int p = 0; p < VALUES; p++) {
        double error = -f->peak[p];
        for (int i = 0; i < f->n; i++) error += f->coef[i] * value(f, f->term[i], p);
        if (error < 0) error = -error;
        worst = MAX(worst, error / f->peak[p]);
    }
    return worst;
}

static bool may_have(const struct fit *f, int term)
{
    for (int d = 0; d < FITTED; d++)
        if (digit(term, d) && (d >= f->ndim || f->at[d][0] == f->at[d][1])) return false;
    for (int i = 0; i < f->n; i++)
        if (f->term[i] == term) return false;
    return true;
}

static int powers(int term)
{
    int n = 0;
    for (int d = 0; d < FITTED; d++) n += digit(term, d);
    return n;
}

static void choose_terms(struct fit *f)
{
    f->n = 1;
    double error = least_squares(f);
    while (error > CLOSE && f->n < TERMS) {
        int best = 0;
        double least = 2, found = error;
        for (int term = 1; term < VALUES; term++) {
            if (!may_have(f, term)) continue;
            f->term[f->n++] = term;
            const double e = least_squares(f), cost = MAX(e, CLOSE) * (1 + PER_POWER * powers(term));
            if (e < error && cost < least) least = cost, found = e, best = term;
            f->n--;
        }
        if (!best) break;
        f->term[f->n++] = best;
        error = found;
    }
    least_squares(f);
}

static void put_bytes(struct text *t, double n)
{
    static const char *const unit[] = {"B", "KB", "MB", "GB", "TB"};
    int u = 0;
    if (n < 0) text_put(t, "-");
    if (n < 0) n = -n;
    for (; n >= 1000 && u < COUNT_OF(unit) - 1; u++) n /= 1000;
    text_put(t, u ? "%.1f%s" : "%.0f%s", n, unit[u]);
}

static void put_formula(struct text *t, const struct fit *f, double peak)
{
    double rest = peak; /* the constant that makes the formula exact at the hints */
    for (int i = 1; i < f->n; i++) rest -= f->coef[i] * value(f, f->term[i], 0);
    if (rest >= 1 || rest <= -1) put_bytes(t, rest);
    for (int i = 1; i < f->n; i++) {
        text_put(t, t->n ? " + " : "");
        for (int d = 0; d < FITTED; d++)
            for (int k = digit(f->term[i], d); k; k--) text_put(t, "#%d * ", f->dim[d]);
        put_bytes(t, f->coef[i]);
    }
    if (!t->n) put_bytes(t, 0);
}

sol_status sol_net_memory_print(struct sol_net *net, char **out_text)
{
    struct fit f = {.net = net};
    struct sol_memory m;
    struct arena *a = arena_create(net->ctx);
    *out_text = NULL;
    if (!a) return ctx_check(net->ctx);
    struct text t = text_new(a);
    sol_net_memory(net, &m);
    sol_status fits = choose_dims(&f);
    if (!fits) fits = sample(&f);
    if (fits && fits != SOL_ERR_INVALID) {
        arena_destroy(a);
        return fits;
    }
    if (!fits)
        choose_terms(&f); /* otherwise a layer cannot have some of the sizes together: the peak at the hints alone */
    put_formula(&t, &f, (double)m.peak);
    sol_status status = ctx_check(net->ctx);
    if (!status && !(*out_text = ctx_try(net->ctx, t.n + 1)))
        status = ctx_fail(net->ctx, SOL_ERR_NOMEM, "out of memory: the memory of '%s'", net->parts.name);
    if (!status) memcpy(*out_text, t.at, t.n + 1);
    arena_destroy(a);
    return status;
}
