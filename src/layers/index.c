/* Definitions that gather by integer tensors. With wrap, a first statement adds the axis size to negative indices.
 * Output dimension i has index variable i; input dimensions that are no output dimension have index variables from OWN
 * on. */
#include <string.h>

#include "layers/build.h"

enum { OWN = SOL_MAX_DIMS, OWN2 = 2 * SOL_MAX_DIMS };

static sol_status index_type(struct sol_ctx *ctx, const struct layer_def *def, const struct opdef_input *in, int i)
{
    const struct dtype_def *t = dtype_def(in[i].dtype);
    if (!t->is_float && !t->is_bool) return SOL_OK;
    return ctx_fail(ctx, SOL_ERR_INVALID, "%s: input %d: expected integers as indices, got %s", def->name, i, t->name);
}

static sol_status fits(struct sol_ctx *ctx, const struct layer_def *def, int n)
{
    if (n <= SOL_MAX_DIMS) return SOL_OK;
    return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "%s: the result has %d dimensions, more than %d", def->name, n,
                    SOL_MAX_DIMS);
}

/* "w[..] = i[..] + [i[..]<0]*n; " with the index variables of `index` */
static void put_wrapped(struct text *out, const char *w, const char *i, const char *index, int64_t n)
{
    text_put(out, "%s[%s] = %s[%s] + [%s[%s]<0]*%lld; ", w, index, i, index, i, index, (long long)n);
}

BUILDER(build_gather)
{
    int axis, n = in[0].ndim, m = in[1].ndim;
    bool wrap = attrs_int(attrs, "wrap", 0, 0) != 0;
    (void)nin;
    TRY(axis_attr(arena_ctx(a), def, attrs, "axis", n, &axis));
    TRY(index_type(arena_ctx(a), def, in, 1));
    TRY(fits(arena_ctx(a), def, n - 1 + m));
    struct text i = text_new(a), y = text_new(a);
    put_ivars(&i, axis, m);
    put_ivars(&y, 0, n - 1 + m);
    for (int pass = 0; pass < 2; pass++) { /* the head, then the read */
        if (pass) {
            text_put(out, "i:int[%s] -> y:x[%s]%s | | | ", i.at, y.at,
                     wrap ? arena_printf(a, " -> w:i64[%s]", i.at) : "");
            if (wrap) put_wrapped(out, "w", "i", i.at, in[0].shape[axis]);
            text_put(out, "y[%s] = ", y.at);
        }
        text_put(out, "x[");
        put_ivars(out, 0, axis);
        if (pass)
            text_put(out, " %s[%s]", wrap ? "w" : "i", i.at);
        else
            text_put(out, " %s", ivar(OWN));
        put_ivars(out, axis + m, n - axis - 1);
        text_put(out, "] ");
    }
    return SOL_OK;
}

BUILDER(build_gather_elements)
{
    int axis, n = in[0].ndim;
    bool wrap = attrs_int(attrs, "wrap", 0, 0) != 0;
    (void)nin;
    TRY(axis_attr(arena_ctx(a), def, attrs, "axis", n, &axis));
    TRY(index_type(arena_ctx(a), def, in, 1));
    TRY(rank_of(arena_ctx(a), def, in, 1, n, true));
    struct text needs = text_new(a);
    for (int d = 0; d < n; d++) {
        const int64_t rest = size_sub(in[0].shape[d], in[1].shape[d]);
        if (d == axis) continue;
        put_need(&needs, rest);
        if (rest < 0)
            return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: input 1: dimension %d: expected at most %lld, got %lld",
                            def->name, d, (long long)in[0].shape[d], (long long)in[1].shape[d]);
    }
    struct text y = text_new(a);
    put_ivars(&y, 0, n);
    text_put(out, "x[");
    put_ivars(out, OWN, n);
    text_put(out, "] i:int[%s] -> y:x[%s]%s |%s | | ", y.at, y.at, wrap ? arena_printf(a, " -> w:i64[%s]", y.at) : "",
             needs.at);
    if (wrap) put_wrapped(out, "w", "i", y.at, in[0].shape[axis]);
    text_put(out, "y[%s] = x[", y.at);
    for (int d = 0; d < n; d++) {
        if (d == axis)
            text_put(out, " %s[%s]", wrap ? "w" : "i", y.at);
        else
            text_put(out, " %s", ivar(d));
    }
    text_put(out, "]");
    return SOL_OK;
}

/* i[B.. J.. k] holds indices of k dimensions of x[B.. D.. R..]; y[B.. J.. R..]. */
BUILDER(build_gather_nd)
{
    int n = in[0].ndim, m = in[1].ndim, batch = (int)attrs_int(attrs, "batch", 0, 0);
    bool wrap = attrs_int(attrs, "wrap", 0, 0) != 0;
    (void)nin;
    TRY(index_type(arena_ctx(a), def, in, 1));
    int64_t k = m ? in[1].shape[m - 1] : 0;
    TRY(number_of(arena_ctx(a), def, "the last dimension of input 1", k));
    if (batch < 0 || m < batch + 1 || k < 1 || k > n - batch)
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: indices of %lld dimensions behind %d do not fit %d",
                        def->name, (long long)k, batch, n);
    TRY(fits(arena_ctx(a), def, m - 1 + n - batch - (int)k));
    struct text j = text_new(a), y = text_new(a);
    put_ivars(&j, 0, m - 1);
    put_ivars(&y, 0, m - 1 + n - batch - (int)k);
    text_put(out, "x[");
    put_ivars(out, 0, batch);
    put_ivars(out, OWN, (int)k);
    put_ivars(out, m - 1, n - batch - (int)k);
    text_put(out, "] i:int[%s %s] -> y:x[%s]", j.at, ivar(OWN2), y.at);
    for (int d = 0; wrap && d < k; d++) text_put(out, "%s w%d:i64[%s]", d ? "" : " ->", d, j.at);
    text_put(out, " | | | ");
    for (int d = 0; wrap && d < k; d++)
        text_put(out, "w%d[%s] = i[%s %d] + [i[%s %d]<0]*%lld; ", d, j.at, j.at, d, j.at, d,
                 (long long)in[0].shape[batch + d]);
    text_put(out, "y[%s] = x[", y.at);
    put_ivars(out, 0, batch);
    for (int d = 0; d < k; d++) {
        if (wrap)
            text_put(out, " w%d[%s]", d, j.at);
        else
            text_put(out, " i[%s %d]", j.at, d);
    }
    put_ivars(out, m - 1, n - batch - (int)k);
    text_put(out, "]");
    return SOL_OK;
}

/* -- NumPy's indexing by several tensors */

struct indexing {
    int of[SOL_MAX_DIMS]; /* by dimension of x: index tensor, or -1 */
    int nshape, first;    /* dimensions of all index tensors together; where they are in the result */
    int64_t shape[SOL_MAX_DIMS];
};

static sol_status read_indexing(struct sol_ctx *ctx, const struct layer_def *def, int nin, const struct opdef_input *in,
                                const struct attrs *attrs, struct indexing *x)
{
    int n = in[0].ndim, count = attr_length(attrs, "dims");
    bool marked[SOL_MAX_DIMS] = {false}, adjacent = true;
    if (count != nin - 1 || count < 1)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: dims: expected one for each of %d index tensors, got %d", def->name,
                        nin - 1, count);
    TRY(axes_attr(ctx, def, attrs, "dims", n, marked));
    for (int d = 0; d < n; d++) x->of[d] = -1;
    for (int i = 0; i < count; i++) {
        int axis = (int)attrs_int(attrs, "dims", i, 0);
        x->of[axis < 0 ? axis + n : axis] = i;
        TRY(index_type(ctx, def, in, i + 1));
        x->nshape = MAX(x->nshape, in[i + 1].ndim);
    }
    for (int d = 0; d < x->nshape; d++) x->shape[d] = 1;
    for (int i = 1; i <= count; i++)
        for (int d = 0; d < in[i].ndim; d++) {
            int64_t *size = &x->shape[x->nshape - in[i].ndim + d], own = in[i].shape[d];
            if (!same_size(size, own))
                return ctx_unequal(ctx, *size, own,
                                   ctx_fail(ctx, SOL_ERR_INVALID, "%s: input %d: size %lld does not go with %lld",
                                            def->name, i, (long long)own, (long long)*size));
        }
    x->first = -1;
    for (int d = 0; d < n; d++) {
        if (x->of[d] < 0) continue;
        if (x->first < 0) x->first = d;
        adjacent &= d == x->first || x->of[d - 1] >= 0;
    }
    if (!adjacent) x->first = 0;
    return fits(ctx, def, n - count + x->nshape);
}

/* The index variables of index tensor i: its own in the head; 0 in the body where it is broadcast. */
static void put_index_ivars(struct text *out, const struct indexing *x, const struct opdef_input *in, bool head, int i)
{
    int lead = x->nshape - in->ndim;
    for (int d = 0; d < in->ndim; d++) {
        bool repeated = in->shape[d] == 1 && x->shape[d + lead] != 1;
        text_put(out, " %s", !repeated ? ivar(x->first + d + lead) : head ? ivar(OWN2 + i) : "0");
    }
}

BUILDER(build_index)
{
    struct indexing x = {0};
    TRY(read_indexing(arena_ctx(a), def, nin, in, attrs, &x));
    int n = in[0].ndim, count = nin - 1, total = n - count + x.nshape;
    bool wrap = attrs_int(attrs, "wrap", 0, 1) != 0;
    struct text y = text_new(a), all = text_new(a), head = text_new(a), read = text_new(a);
    put_ivars(&y, 0, total);
    put_ivars(&all, x.first, x.nshape);
    for (int d = 0, o = 0; d < n; d++) {
        if (x.of[d] >= 0) {
            text_put(&head, " %s", ivar(OWN + d));
            text_put(&read, " %s%d[", wrap ? "w" : "i", x.of[d]);
            if (wrap)
                text_put(&read, "%s", all.at);
            else
                put_index_ivars(&read, &x, &in[1 + x.of[d]], false, x.of[d]);
            text_put(&read, "]");
            continue;
        }
        if (o == x.first) o += x.nshape;
        text_put(&head, " %s", ivar(o));
        text_put(&read, " %s", ivar(o++));
    }
    text_put(out, "x[%s]", head.at);
    for (int i = 0; i < count; i++) {
        text_put(out, " i%d:int[", i);
        put_index_ivars(out, &x, &in[1 + i], true, i);
        text_put(out, "]");
    }
    text_put(out, " -> y:x[%s]", y.at);
    for (int i = 0; wrap && i < count; i++) text_put(out, "%s w%d:i64[%s]", i ? "" : " ->", i, all.at);
    text_put(out, " |");
    put_sizes(out, x.first, x.nshape, x.shape);
    text_put(out, " | | ");
    for (int d = 0; wrap && d < n; d++) {
        if (x.of[d] < 0) continue;
        struct text own = text_new(a);
        put_index_ivars(&own, &x, &in[1 + x.of[d]], false, x.of[d]);
        text_put(out, "w%d[%s] = i%d[%s] + [i%d[%s]<0]*%lld; ", x.of[d], all.at, x.of[d], own.at, x.of[d], own.at,
                 (long long)in[0].shape[d]);
    }
    text_put(out, "y[%s] = x[%s]", y.at, read.at);
    return SOL_OK;
}

BUILDER(build_bucketize)
{
    int n = in[0].ndim, m = in[1].ndim;
    (void)nin;
    TRY(rank_of(arena_ctx(a), def, in, 1, 1, false));
    if (m > 1) TRY(rank_of(arena_ctx(a), def, in, 1, n, true));
    struct text x = text_new(a), lead = text_new(a);
    put_ivars(&x, 0, n);
    put_ivars(&lead, 0, m - 1);
    text_put(out, "x[%s] s[%s %s] -> i:i64[%s] | | | i[%s] = sum[%s] [s[%s %s]%sx[%s]]", x.at, lead.at, ivar(OWN), x.at,
             x.at, ivar(OWN), lead.at, ivar(OWN), attrs_int(attrs, "right", 0, 0) ? "<=" : "<", x.at);
    return SOL_OK;
}
