/* What builders of operator definitions share: index variables, axes, lists, and rejecting invalid attributes. */
#include "layers/build.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ivar(int i)
{
    static const char *const names[] = {
        "A",  "B",  "D",  "E",  "F",  "H",  "L",  "M",  "N",  "R",  "S",  "T",  "U",  "V",  "W",  "X",
        "Y",  "Z",  "J",  "A1", "B1", "D1", "E1", "F1", "H1", "L1", "M1", "N1", "R1", "S1", "T1", "U1",
        "V1", "W1", "X1", "Y1", "Z1", "J1", "A2", "B2", "D2", "E2", "F2", "H2", "L2", "M2", "N2", "R2",
        "S2", "T2", "U2", "V2", "W2", "X2", "Y2", "Z2", "J2", "A3", "B3", "D3", "E3", "F3", "H3", "L3",
    };
    return names[MIN(i, COUNT_OF(names) - 1)];
}

void put_ivars_but(struct text *out, int from, int n, int skip)
{
    for (int i = 0; i < n; i++)
        if (i != skip) text_put(out, " %s", ivar(from + i));
}

void put_ivars(struct text *out, int from, int n)
{
    put_ivars_but(out, from, n, -1);
}

void put_sizes(struct text *out, int from, int n, const int64_t *sizes)
{
    for (int i = 0; i < n; i++) text_put(out, " #%s=%lld;", ivar(from + i), (long long)sizes[i]);
}

void put_need(struct text *out, int64_t size)
{
    if (size_varies(size) && !size_le(0, size)) text_put(out, " 0<=%lld;", (long long)size);
}

void put_copy(struct text *out, const struct opdef_input *in, int ndim, const int64_t *shape)
{
    put_copy_if(out, in, ndim, shape, "");
}

void put_copy_if(struct text *out, const struct opdef_input *in, int ndim, const int64_t *shape, const char *needs)
{
    text_put(out, "x[");
    put_ivars(out, INNER, in->ndim);
    text_put(out, "] -> y[");
    put_ivars(out, 0, ndim);
    text_put(out, "] |%s", needs);
    put_sizes(out, 0, ndim, shape);
    text_put(out, " | | y[");
    put_ivars(out, 0, ndim);
    text_put(out, "] = x[");
}

const char *type_name(enum sol_dtype t)
{
    return dtype_def(t)->name;
}

sol_status type_named(struct sol_ctx *ctx, const struct layer_def *def, const char *name, enum sol_dtype *out_t)
{
    for (int t = 0; t < SOL_DTYPES; t++)
        if (!strcmp(type_name((enum sol_dtype)t), name)) {
            *out_t = (enum sol_dtype)t;
            return SOL_OK;
        }
    return ctx_fail(ctx, SOL_ERR_INVALID, "%s: expected a type (f32, i64, ...), got '%s'", def->name, name);
}

void put_number(struct text *out, double v)
{
    if (isnan(v)) {
        text_put(out, "(inf-inf)");
    } else if (isinf(v)) {
        text_put(out, v > 0 ? "inf" : "(-inf)");
    } else {
        char s[40];
        snprintf(s, sizeof s, "%.15g", v);
        if (strtod(s, NULL) != v) snprintf(s, sizeof s, "%.17g", v);
        const char *real = strpbrk(s, ".e") ? "" : ".0";
        text_put(out, v < 0 ? "(%s%s)" : "%s%s", s, real);
    }
}

void put_value(struct text *out, double v, enum sol_dtype t)
{
    if (dtype_def(t)->is_float || !(fabs(v) < 9e18))
        put_number(out, v);
    else
        text_put(out, v < 0 ? "(%lld)" : "%lld", (long long)v);
}

int attr_length(const struct attrs *attrs, const char *name)
{
    const struct opdef_attr *v = attrs_find(attrs, name);
    return !v ? 0 : v->n < 0 ? 1 : v->n;
}

static sol_status axis_value(struct sol_ctx *ctx, const struct layer_def *def, const char *name, int64_t v, int ndim,
                             int *out)
{
    if (v < -ndim || v >= ndim)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: %s: expected %d..%d for %d dimensions, got %lld", def->name, name,
                        -ndim, ndim - 1, ndim, (long long)v);
    *out = (int)(v < 0 ? v + ndim : v);
    return SOL_OK;
}

sol_status axis_attr(struct sol_ctx *ctx, const struct layer_def *def, const struct attrs *attrs, const char *name,
                     int ndim, int *out_axis)
{
    return axis_value(ctx, def, name, attrs_int(attrs, name, 0, 0), ndim, out_axis);
}

sol_status axes_attr(struct sol_ctx *ctx, const struct layer_def *def, const struct attrs *attrs, const char *name,
                     int ndim, bool *marked)
{
    for (int i = 0; i < attr_length(attrs, name); i++) {
        int axis = 0;
        TRY(axis_value(ctx, def, name, attrs_int(attrs, name, i, 0), ndim, &axis));
        if (marked[axis])
            return ctx_fail(ctx, SOL_ERR_INVALID, "%s: %s: axis %d is there twice", def->name, name, axis);
        marked[axis] = true;
    }
    return SOL_OK;
}

sol_status length_attr(struct sol_ctx *ctx, const struct layer_def *def, const struct attrs *attrs, const char *name,
                       int n)
{
    const struct opdef_attr *v = attrs_find(attrs, name);
    if (v && v->n >= 0 && v->n != n)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: attribute %s: expected %d values, got %d", def->name, name, n, v->n);
    return SOL_OK;
}

sol_status word_attr(struct sol_ctx *ctx, const struct layer_def *def, const struct attrs *attrs, const char *name,
                     const char *words, int *out_i)
{
    const char *value = attrs_text(attrs, name, "");
    size_t n = strlen(value);
    int i = 0;
    for (const char *w = words; *w; i++) {
        size_t length = strcspn(w, "|");
        if (length == n && !strncmp(w, value, n)) {
            *out_i = i;
            return SOL_OK;
        }
        w += length + (w[length] == '|');
    }
    return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "%s: attribute %s: expected %s, got '%s'", def->name, name, words, value);
}

sol_status rank_of(struct sol_ctx *ctx, const struct layer_def *def, const struct opdef_input *in, int i, int n,
                   bool exact)
{
    if (exact ? in[i].ndim == n : in[i].ndim >= n) return SOL_OK;
    return ctx_fail(ctx, SOL_ERR_INVALID, "%s: input %d: expected %s %d dimensions, got %d", def->name, i,
                    exact ? "exactly" : "at least", n, in[i].ndim);
}

int64_t floor_mod(int64_t a, int64_t b)
{
    return a % b + (a % b < 0 ? b : 0);
}

int64_t product(const int64_t *v, int n)
{
    const int64_t most = SIZE_POISON;
    int64_t p = 1;
    for (int i = 0; i < n; i++) {
        if (v[i] == 0) return 0;
        if (size_varies(p) || size_varies(v[i]))
            p = size_mul(p, v[i]);
        else
            p = p > most / v[i] ? most : p * v[i];
    }
    return p;
}

sol_status number_of(struct sol_ctx *ctx, const struct layer_def *def, const char *what, int64_t size)
{
    if (!size_varies(size)) return SOL_OK;
    return ctx_unequal(
        ctx, size, -1,
        ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "%s: %s is %lld, but it needs a number", def->name, what, (long long)size));
}

sol_status numbers_of(struct sol_ctx *ctx, const struct layer_def *def, const struct opdef_input *in, int i)
{
    for (int d = 0; !in[i].missing && d < in[i].ndim; d++) {
        char what[64];
        snprintf(what, sizeof what, "dimension %d of input %d", d, i);
        TRY(number_of(ctx, def, what, in[i].shape[d]));
    }
    return SOL_OK;
}

bool same_size(int64_t *common, int64_t own)
{
    if (own != 1 && *common != 1 && *common != own) return false;
    if (own != 1) *common = own;
    return true;
}
