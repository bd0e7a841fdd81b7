/* Operator definitions of constants, conversions and losses. */
#include <string.h>

#include "layers/build.h"

BUILDER(build_fill)
{
    int n = attr_length(attrs, "shape");
    int64_t shape[SOL_MAX_DIMS];
    enum sol_dtype t;
    (void)nin;
    (void)in;
    TRY(type_named(arena_ctx(a), def, attrs_text(attrs, "to", ""), &t));
    if (n > SOL_MAX_DIMS)
        return ctx_fail(arena_ctx(a), SOL_ERR_UNSUPPORTED, "%s: expected at most %d sizes", def->name, SOL_MAX_DIMS);
    for (int d = 0; d < n; d++) shape[d] = attrs_int(attrs, "shape", d, 0);
    text_put(out, "-> y:%s[", type_name(t));
    put_ivars(out, 0, n);
    text_put(out, "] |");
    put_sizes(out, 0, n, shape);
    text_put(out, " | | y[");
    put_ivars(out, 0, n);
    text_put(out, "] = ");
    put_value(out, attrs_real(attrs, "v", 0), t);
    return SOL_OK;
}

BUILDER(build_sizes)
{
    const int n = attr_length(attrs, "sizes");
    (void)a, (void)def, (void)nin, (void)in;
    text_put(out, "-> y:=to[A] | #A=%d | | ", n);
    for (int i = 0; i < n; i++) text_put(out, "y[%d] = %lld; ", i, (long long)attrs_int(attrs, "sizes", i, 0));
    return SOL_OK;
}

BUILDER(build_row)
{
    (void)a, (void)def, (void)nin, (void)in;
    text_put(out, "%s", attrs_text(attrs, "text", ""));
    return SOL_OK;
}

/* A plain copy into another type rounds floats; trunc makes integers, and a test makes bool. */
BUILDER(build_cast)
{
    enum sol_dtype t;
    (void)nin;
    TRY(type_named(arena_ctx(a), def, attrs_text(attrs, "to", ""), &t));
    bool from_float = dtype_def(in->dtype)->is_float, to_float = dtype_def(t)->is_float;
    const char *value = t == SOL_BOOL ? "[x[A]!=0]" : from_float && !to_float ? "trunc(x[A])" : "x[A]";
    text_put(out, "x[A..] -> y:%s[A..] | | | y[A] = %s", type_name(t), value);
    return SOL_OK;
}

/* -- losses: x[N C P..], t[N P..], w?[C]; for x[C] the class stands alone */

struct loss {
    const char *n;    /* "N" or "" */
    const char *rest; /* "P.." or "" */
    bool weighted;
    int mode;
    long long ignore;
};
enum { LOSS_NONE, LOSS_SUM, LOSS_MEAN };

static sol_status read_loss(struct sol_ctx *ctx, const struct layer_def *def, int nin, const struct opdef_input *in,
                            const struct attrs *attrs, struct loss *l)
{
    TRY(word_attr(ctx, def, attrs, "mode", "none|sum|mean", &l->mode));
    TRY(rank_of(ctx, def, in, 0, 1, false));
    l->n = in[0].ndim > 1 ? "N" : "";
    l->rest = in[0].ndim > 1 ? " P" : "";
    l->weighted = nin > 2 && !in[2].missing;
    l->ignore = attrs_int(attrs, "ignore", 0, -100);
    return SOL_OK;
}

static void put_loss_head(struct text *out, const struct loss *l)
{
    const char *dots = *l->rest ? ".." : "";
    text_put(out, "x:float[%s C%s%s] t:int[%s%s%s]%s -> y[", l->n, l->rest, dots, l->n, l->rest, dots,
             l->weighted ? " w[C]" : "");
    if (l->mode == LOSS_NONE) text_put(out, "%s%s%s", l->n, l->rest, dots);
    text_put(out, "] | | | ");
}

/* From l[N P], the loss of each element, to y. */
static void put_loss_mean(struct text *out, const struct loss *l)
{
    const char *at = arena_printf(out->arena, "%s%s", l->n, l->rest);
    if (l->mode == LOSS_NONE) {
        text_put(out, "y[%s] = l[%s]", at, at);
        return;
    }
    text_put(out, "y[] = (sum[%s] l[%s])", at, at);
    if (l->mode == LOSS_MEAN)
        text_put(out, " / (sum[%s | t[%s]!=(%lld)] %s)", at, at, l->ignore,
                 l->weighted ? arena_printf(out->arena, "w[t[%s]]", at) : "1");
}

BUILDER(build_nll)
{
    struct loss l;
    TRY(read_loss(arena_ctx(a), def, nin, in, attrs, &l));
    put_loss_head(out, &l);
    const char *at = arena_printf(a, "%s%s", l.n, l.rest);
    text_put(out, "l[%s] = sum[ | t[%s]!=(%lld)] (-x[%s t[%s]%s])%s; ", at, at, l.ignore, l.n, at, l.rest,
             l.weighted ? arena_printf(a, " * w[t[%s]]", at) : "");
    put_loss_mean(out, &l);
    return SOL_OK;
}

static void put_share(struct text *out, double of, int64_t n) /* of / n */
{
    put_number(out, size_varies(n) ? of : of / (double)MAX(n, 1));
    if (size_varies(n)) text_put(out, "/%lld", (long long)n);
}

BUILDER(build_cross_entropy)
{
    struct loss l;
    double smoothing = attrs_real(attrs, "smoothing", 0);
    TRY(read_loss(arena_ctx(a), def, nin, in, attrs, &l));
    put_loss_head(out, &l);
    const char *at = arena_printf(a, "%s%s", l.n, l.rest);
    text_put(out, "(m,z)[%s] = softsum[C] x[%s C%s]; d[%s] = m[%s] + log(z[%s]); ", at, l.n, l.rest, at, at, at);
    text_put(out, "l[%s] = sum[ | t[%s]!=(%lld)] (", at, at, l.ignore);
    if (smoothing != 0) {
        put_number(out, 1 - smoothing);
        text_put(out, " * ");
    }
    text_put(out, "%s(d[%s]-x[%s t[%s]%s])", l.weighted ? arena_printf(a, "w[t[%s]] * ", at) : "", at, l.n, at, l.rest);
    if (smoothing != 0) {
        text_put(out, " + ");
        put_share(out, smoothing, in[0].shape[in[0].ndim > 1]);
        text_put(out, " * (sum[C] %s(d[%s]-x[%s C%s]))", l.weighted ? "w[C] * " : "", at, l.n, l.rest);
    }
    text_put(out, "); ");
    put_loss_mean(out, &l);
    return SOL_OK;
}
