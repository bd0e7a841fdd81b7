/* Open dimensions that vary. Each is a dimension of the graph until a node needs it to be a number, or to equal another
 * one: sol_error_sizes then tells which two sizes must be equal. What follows is noted, and the model is read again. */
#include <stdlib.h>
#include <string.h>

#include "onnx/reader.h"

#define MOST_SIZE INT32_MAX /* of a dimension: exporters write 2^31-1 for "up to the end" */

static struct free_dim *find(const struct reader *r, const char *name, bool value)
{
    for (int i = 0; i < r->free_dims->dims.n; i++) {
        struct free_dim *d = &r->free_dims->dims.at[i];
        if (d->value == value && !strcmp(d->name, name)) return d;
    }
    return NULL;
}

const char *vary_why(const struct reader *r, const char *name, const char **out_limited)
{
    const struct free_dim *d = r->free_dims ? find(r, name, false) : NULL;
    *out_limited = d ? d->limited : NULL;
    return d ? d->why : NULL;
}

/* Makes the hint a size that is possible. */
static void fit_hint(struct size_dim *d)
{
    d->hint = ceil_div(MAX(d->hint, d->min), d->multiple) * d->multiple;
    d->hint = MIN(d->hint, d->max / d->multiple * d->multiple);
}

/* Declares a dimension in this reading's graph. */
static sol_status declare(struct reader *r, struct free_dim *d)
{
    if (d->same >= 0) {
        struct free_dim *other = &r->free_dims->dims.at[d->same];
        if (other->reading != r->free_dims->reading) TRY(declare(r, other));
        d->size = other->size;
    } else if (d->fixed >= 0) {
        d->size = d->fixed;
    } else {
        const struct sol_dim_limits limits = {d->dim.hint, d->dim.min, d->dim.max, d->dim.multiple};
        TRY(sol_graph_dim(r->graph, d->name, &limits, &d->size));
        size_is_dim(d->size, &d->dim);
    }
    d->reading = r->free_dims->reading;
    return SOL_OK;
}

/* What the options say about a dimension. */
static void take_limits(const struct reader *r, struct free_dim *d)
{
    for (int i = 0; i < r->options->nlimits; i++) {
        const struct sol_dim_limits *l = &r->options->limits[i].limits;
        if (strcmp(r->options->limits[i].name, d->name) != 0) continue;
        d->dim.min = MAX(d->dim.min, l->min);
        if (l->max) d->dim.max = MIN(d->dim.max, l->max);
        if (l->multiple) d->dim.multiple = l->multiple;
        if (l->hint) d->dim.hint = l->hint, d->given = true;
    }
    fit_hint(&d->dim);
}

/* The size in this reading's graph of a dimension that was found, or of a new one like `made`. */
static sol_status size_of(struct reader *r, struct free_dim made, int64_t *out_size)
{
    struct free_dim *d = find(r, made.name, made.value);
    if (!d) {
        made.name = arena_strdup(r->arena, made.name);
        take_limits(r, &made);
        PUSH(r->arena, r->free_dims->dims, made);
        d = find(r, made.name, made.value);
    }
    if (d->reading != r->free_dims->reading) TRY(declare(r, d));
    *out_size = d->size;
    return ctx_check(r->ctx);
}

sol_status vary_size(struct reader *r, const char *name, int64_t hint, int64_t guess, int64_t *out_size)
{
    const int64_t size = hint > 0 ? hint : guess;
    const struct free_dim made = {.name = name,
                                  .dim = {.hint = size, .min = 1, .max = MOST_SIZE, .multiple = 1},
                                  .given = hint > 0,
                                  .fixed = hint ? -1 : 0,
                                  .same = -1};
    return size_of(r, made, out_size);
}

sol_status vary_value(struct reader *r, const struct element *e, int64_t *out_size)
{
    const struct free_dim made = {.name = e->name,
                                  .dim = {.hint = e->value, .min = e->least, .max = MOST_SIZE, .multiple = 1},
                                  .given = true,
                                  .value = true,
                                  .fixed = -1,
                                  .same = -1};
    *out_size = e->value;
    return e->value < e->least || e->value > MOST_SIZE ? SOL_OK : size_of(r, made, out_size);
}

/* -- what follows from two sizes that must be equal */

/* The dimension of this reading's graph with this number; NULL: none. */
static struct free_dim *numbered(const struct reader *r, int index)
{
    for (int i = 0; i < r->free_dims->dims.n; i++) {
        struct free_dim *d = &r->free_dims->dims.at[i];
        if (d->reading == r->free_dims->reading && d->same < 0 && d->fixed < 0 && d->dim.index == index) return d;
    }
    return NULL;
}

bool vary_has_value(const struct reader *r, int64_t size)
{
    for (int i = 0; r->free_dims && i < SIZE_MOST_DIMS; i++) {
        const struct free_dim *d = size_dims(size) >> i & 1 ? numbered(r, i) : NULL;
        if (d && d->value) return true;
    }
    return false;
}

const char *vary_named(const struct reader *r, const char *message)
{
    struct text t = text_new(r->arena);
    bool quoted = false;
    for (const char *p = message; *p;) {
        char *end = NULL;
        const bool number = *p == '#' && !quoted && p[1] >= '0' && p[1] <= '9';
        const int dim = number ? (int)strtol(p + 1, &end, 10) : -1;
        const struct free_dim *d = number && r->free_dims ? numbered(r, dim) : NULL;
        const char *name = d ? d->name : number ? found_name(r, dim) : NULL;
        quoted ^= *p == '\'';
        if (name)
            text_put(&t, "%s", name);
        else
            text_put(&t, "%c", *p);
        p = name ? end : p + 1;
    }
    return t.at ? t.at : "";
}

static void fix(struct free_dim *d, int64_t size, const char *why)
{
    d->fixed = size;
    d->why = why;
}

static bool unify(const struct reader *r, struct free_dim *a, struct free_dim *b, const char *why)
{
    if (a > b) return unify(r, b, a, why);
    const struct size_dim x = a->dim, y = b->dim;
    if (a == b) return false;
    if (a->given && b->given && x.hint != y.hint) { /* a 1 that is repeated */
        if (x.hint == 1 || y.hint == 1) fix(x.hint == 1 ? a : b, 1, why);
        return x.hint == 1 || y.hint == 1;
    }
    a->dim.min = MAX(x.min, y.min);
    a->dim.max = MIN(x.max, y.max);
    a->dim.multiple = x.multiple / gcd(x.multiple, y.multiple) * y.multiple;
    if (!a->given && b->given) a->dim.hint = y.hint, a->given = true;
    fit_hint(&a->dim);
    b->same = (int)(a - r->free_dims->dims.at);
    b->why = why;
    return true;
}

/* Sizes for all dimensions: what varies is itself, or, in `set`, has another multiple or limit. */
static bool equal_with(const struct reader *r, int64_t a, int64_t b, uint32_t set, int64_t multiple, int64_t max)
{
    int64_t by[SIZE_MOST_DIMS] = {0};
    for (int i = 0; i < SIZE_MOST_DIMS; i++) {
        const struct free_dim *d = numbered(r, i);
        if (!d) continue;
        struct size_dim x = d->dim;
        by[i] = d->size;
        if (!(set >> i & 1)) continue;
        x.multiple *= multiple;
        x.max = MIN(x.max, max);
        if (x.hint % x.multiple && d->given) return false;
        x.hint = MIN(ceil_div(x.hint, x.multiple) * x.multiple, x.max / x.multiple * x.multiple);
        if ((by[i] = size_of_dim(&x)) == SIZE_BAD) return false;
    }
    return size_at(a, by) == size_at(b, by);
}

static void limit(const struct reader *r, uint32_t set, int64_t multiple, int64_t max, const char *why)
{
    for (int i = 0; i < SIZE_MOST_DIMS; i++) {
        struct free_dim *d = set >> i & 1 ? numbered(r, i) : NULL;
        if (!d) continue;
        d->dim.multiple *= multiple;
        d->dim.max = MIN(d->dim.max, max);
        d->limited = why;
        fit_hint(&d->dim);
    }
}

/* Forms that are equal for multiples of a number (a U-Net's parts), or up to a limit (a table of positions). */
static bool restrict_dims(const struct reader *r, int64_t a, int64_t b, const char *why)
{
    const uint32_t set = size_dims(a) | size_dims(b);
    const int64_t most = MIN(size_most(a), size_most(b));
    if (most < MOST_SIZE && most > 0 && equal_with(r, a, b, set, 1, most)) {
        limit(r, set, 1, most, why);
        return true;
    }
    for (int64_t m = 2; m <= 128; m++) {
        if (!equal_with(r, a, b, set, m, MOST_SIZE)) continue;
        limit(r, set, m, MOST_SIZE, why);
        return true;
    }
    return false;
}

/* The size of the only dimension in `form`: the one that an array has, else one for which the form is n, the hint if
 * it is one, else the least. */
static bool solve(const struct reader *r, int64_t form, int64_t n, const char *why)
{
    const uint32_t set = size_dims(form);
    struct free_dim *d = __builtin_popcount(set) == 1 ? numbered(r, __builtin_ctz(set)) : NULL;
    int64_t by[SIZE_MOST_DIMS] = {0};
    if (!d) return false;
    if (d->given) { /* it may also be a 1 that is repeated, or heads that are shared */
        fix(d, d->dim.hint, why);
        return true;
    }
    for (int64_t v = -1; v <= 1 << 16; v++) {
        const int64_t size = v < 0 ? d->dim.hint : v;
        if (size < d->dim.min || size > d->dim.max) continue;
        by[d->dim.index] = size;
        if (size_at(form, by) != n) continue;
        fix(d, size, why);
        return true;
    }
    return false;
}

/* Products with common factors, #0*#1*32 and 256*#0: what is left of one is a dimension, that of the other its size. */
static bool divide(const struct reader *r, int64_t a, int64_t b, const char *why)
{
    struct size_dim y;
    for (int i = 0; i < SIZE_MOST_DIMS; i++) {
        struct free_dim *d = size_dims(a) >> i & 1 ? numbered(r, i) : NULL;
        const int64_t others = d ? size_exact_div(a, d->size) : SIZE_BAD;
        const int64_t left = others == SIZE_BAD ? SIZE_BAD : size_exact_div(b, others);
        if (left == SIZE_BAD) continue;
        if (!size_varies(left) && left >= d->dim.min && solve(r, d->size, left, why)) return true;
        struct free_dim *q = size_is_dim(left, &y) ? numbered(r, y.index) : NULL;
        if (q && unify(r, d, q, why)) return true;
    }
    return false;
}

/* Last resort: all dimensions in the set get the sizes that the caller names. */
static bool fix_given(const struct reader *r, uint32_t set, const char *why)
{
    bool any = false;
    for (int i = 0; i < SIZE_MOST_DIMS; i++) {
        struct free_dim *d = set >> i & 1 ? numbered(r, i) : NULL;
        if (d && !d->given) return false;
        any |= d != NULL;
    }
    for (int i = 0; i < SIZE_MOST_DIMS && any; i++) {
        struct free_dim *d = set >> i & 1 ? numbered(r, i) : NULL;
        if (d) fix(d, d->dim.hint, why);
    }
    return any;
}

/* Where the error does not say which sizes: elements of inputs are those of the call, first those at their least, such
 * as pads of 0. */
static bool fix_values(const struct reader *r, const char *why)
{
    bool any = false;
    for (int all = 0; all < 2 && !any; all++)
        for (int i = 0; i < SIZE_MOST_DIMS; i++) {
            struct free_dim *d = numbered(r, i);
            if (!d || !d->value || (!all && d->dim.hint > d->dim.min)) continue;
            fix(d, d->dim.hint, why);
            any = true;
        }
    return any;
}

bool vary_resolve(struct reader *r)
{
    int64_t a = r->unequal.a, b = r->unequal.b;
    struct size_dim x, y;
    const char *why = vary_named(r, r->unequal.set ? r->unequal.why : sol_error(r->ctx));
    if (!r->unequal.set && !sol_error_sizes(r->ctx, &a, &b)) return fix_values(r, why) || fix_given(r, UINT32_MAX, why);
    if (!size_varies(a)) {
        const int64_t number = a;
        a = b, b = number;
    }
    const uint32_t set = size_dims(a) | size_dims(b);
    struct free_dim *p = size_is_dim(a, &x) ? numbered(r, x.index) : NULL;
    struct free_dim *q = size_is_dim(b, &y) ? numbered(r, y.index) : NULL;
    if (p && q && unify(r, p, q, why)) return true;
    if (!size_varies(b) && b >= 0 && solve(r, a, b, why)) return true;
    if (b != -1 && (divide(r, a, b, why) || divide(r, b, a, why) || restrict_dims(r, a, b, why))) return true;
    return fix_given(r, set, why);
}
