/* Layers that write by index. They have no loops, because the position of a write is data, and later writes to the same
 * position must come later. What they write to, x, is a tensor, or one number in the attribute `shape`, which then need
 * not lie in memory before. */
#include <string.h>

#include "layers/build.h"

#define MODES "none|add|mul|max|min"

/* -- what all of them are: a walk over u, in reference_scatter.c */

/* The inputs, x in its shape. */
static sol_status spread(struct arena *a, const struct layer_def *def, const struct opdef_input *in, int nin,
                         const struct attrs *attrs, const struct opdef_input **out_in)
{
    const int n = attr_length(attrs, "shape");
    *out_in = in;
    if (!n) return SOL_OK;
    if (in[0].ndim || n > SOL_MAX_DIMS)
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: shape: expected one number as x and at most %d sizes",
                        def->name, SOL_MAX_DIMS);
    struct opdef_input *all = arena_memdup(a, in, (size_t)nin * sizeof *in);
    int64_t *shape = NEW_ARRAY(a, int64_t, SOL_MAX_DIMS);
    if (!all || !shape) return ctx_check(arena_ctx(a));
    for (int d = 0; d < n; d++) shape[d] = attrs_int(attrs, "shape", d, 0);
    all[0].ndim = n;
    all[0].shape = shape;
    *out_in = all;
    return SOL_OK;
}

/* Input u is combined with x. */
static sol_status joinable(struct sol_ctx *ctx, const struct layer_def *def, const struct opdef_input *in, int u,
                           const struct attrs *attrs)
{
    int mode;
    TRY(word_attr(ctx, def, attrs, "mode", MODES, &mode));
    if (in[0].dtype != in[u].dtype)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: u: expected type %s as x, got %s", def->name, type_name(in[0].dtype),
                        type_name(in[u].dtype));
    if (mode != REFERENCE_NONE && (in[0].dtype == SOL_F16 || in[0].dtype == SOL_BF16))
        return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "%s: type %s is not supported yet", def->name,
                        type_name(in[0].dtype));
    return SOL_OK;
}

static int mode_of(const struct sol_layer *l)
{
    static const char *const words[] = {"none", "add", "mul", "max", "min"};
    const char *mode = attrs_text(&l->attrs, "mode", "none");
    int i = 0;
    while (i < COUNT_OF(words) - 1 && strcmp(words[i], mode) != 0) i++;
    return i;
}

static sol_status integers(struct sol_ctx *ctx, const struct layer_def *def, const struct opdef_input *in, int i)
{
    const struct dtype_def *t = dtype_def(in[i].dtype);
    if (!t->is_float && !t->is_bool) return SOL_OK;
    return ctx_fail(ctx, SOL_ERR_INVALID, "%s: input %d: expected integers as indices, got %s", def->name, i, t->name);
}

static void row_major(const struct sol_tensor *t, int64_t *stride)
{
    int64_t s = 1;
    for (int d = t->ndim - 1; d >= 0; s = size_mul(s, t->dim[d].size), d--) stride[d] = s;
}

static void describe(const struct sol_layer *l, int values, int ndim, const int64_t *shape, struct reference *out)
{
    const struct sol_tensor *x = l->out[0];
    *out = (struct reference){.kind = &reference_scatter,
                              .type = reference_type((enum sol_dtype)x->dtype),
                              .bytes = dtype_def((enum sol_dtype)x->dtype)->bytes,
                              .nin = l->nin,
                              .mode = mode_of(l),
                              .uniform = attr_length(&l->attrs, "shape") > 0,
                              .values = values,
                              .ndim = ndim,
                              .elements = tensor_elements(x)};
    for (int d = 0; d < ndim; d++) out->shape[d] = shape[d];
}

/* Indices of input i along an axis of x. */
static struct reference_index *indices(struct arena *a, const struct sol_layer *l, int i, int axis,
                                       struct reference *out)
{
    const struct sol_tensor *x = l->out[0];
    int64_t stride[SOL_MAX_DIMS];
    if (!out->index) out->index = NEW_ARRAY(a, struct reference_index, SOL_MAX_DIMS);
    struct reference_index *index = (struct reference_index *)(uintptr_t)out->index + out->nindex++;
    row_major(x, stride);
    *index = (struct reference_index){.input = i,
                                      .type = reference_type((enum sol_dtype)l->in[i]->dtype),
                                      .limit = x->ndim ? x->dim[axis].size : 1,
                                      .step = x->ndim ? stride[axis] : 1};
    return index;
}

/* Strides of a tensor whose last dimension is the walk's dimension `end` - 1, broadcast. */
static void broadcast(const struct sol_tensor *t, int end, int64_t *stride)
{
    int64_t own[SOL_MAX_DIMS];
    row_major(t, own);
    for (int d = 0; d < t->ndim; d++) stride[end - t->ndim + d] = t->dim[d].size == 1 ? 0 : own[d];
}

static bool continues(const struct reference *r, int outer, int d)
{
    const int64_t size = r->shape[d];
    bool one = size_mul(size, r->shape[outer]) != SIZE_BAD;
    one &= r->from[outer] == size_mul(r->from[d], size) && r->to[outer] == size_mul(r->to[d], size);
    for (int i = 0; i < r->nindex; i++) one &= r->index[i].stride[outer] == size_mul(r->index[i].stride[d], size);
    return one;
}

/* Walks in as few dimensions as possible, so that lines are long: one of a single element goes, and neighbours that are
 * like one become one. */
static void join_dims(struct reference *r)
{
    struct reference_index *index = (struct reference_index *)(uintptr_t)r->index; /* from indices() */
    const int all = r->ndim;
    int n = 0;
    for (int d = 0; d < all; d++) {
        if (r->shape[d] == 1) continue;
        const bool joins = n && continues(r, n - 1, d);
        const int to = joins ? n - 1 : n++;
        r->shape[to] = joins ? size_mul(r->shape[to], r->shape[d]) : r->shape[d];
        r->from[to] = r->from[d];
        r->to[to] = r->to[d];
        for (int i = 0; i < r->nindex; i++) index[i].stride[to] = index[i].stride[d];
    }
    r->ndim = n;
    for (int d = n; d < all; d++) {
        r->shape[d] = r->from[d] = r->to[d] = 0;
        for (int i = 0; i < r->nindex; i++) index[i].stride[d] = 0;
    }
}

/* -- ScatterElements(x, i, u) */

/* Is a size within another one? Of sizes that vary, that may be a need of each call. */
static bool within(struct loops *loops, int64_t size, int64_t room)
{
    if (size_hint(size) > size_hint(room)) return false;
    loops_need(loops, size_sub(room, size));
    return true;
}

OPAQUE_SHAPE(shape_scatter_elements)
{
    struct sol_ctx *ctx = arena_ctx(a);
    int axis;
    TRY(spread(a, def, in, nin, attrs, &in));
    TRY(axis_attr(ctx, def, attrs, "axis", MAX(in[0].ndim, 1), &axis));
    TRY(joinable(ctx, def, in, 2, attrs));
    TRY(integers(ctx, def, in, 1));
    TRY(rank_of(ctx, def, in, 1, in[0].ndim, true));
    TRY(rank_of(ctx, def, in, 2, in[0].ndim, true));
    for (int d = 0; d < in[0].ndim; d++)
        if (!within(loops, in[1].shape[d], in[2].shape[d]) ||
            (d != axis && !within(loops, in[1].shape[d], in[0].shape[d])))
            return ctx_fail(ctx, SOL_ERR_INVALID, "%s: dimension %d: %lld indices for %lld of u into %lld", def->name,
                            d, (long long)in[1].shape[d], (long long)in[2].shape[d], (long long)in[0].shape[d]);
    *out_nout = 1;
    *out = in[0];
    return SOL_OK;
}

OPAQUE_DESCRIBE(describe_scatter_elements)
{
    const struct sol_tensor *x = l->out[0], *i = l->in[1];
    int64_t axis = attrs_int(&l->attrs, "axis", 0, 0), shape[SOL_MAX_DIMS];
    if (axis < 0) axis += MAX(x->ndim, 1);
    for (int d = 0; d < i->ndim; d++) shape[d] = i->dim[d].size;
    describe(l, 2, i->ndim, shape, out);
    row_major(l->in[2], out->from);
    row_major(x, out->to);
    if (x->ndim) out->to[axis] = 0;
    row_major(i, indices(a, l, 1, (int)axis, out)->stride);
    join_dims(out);
}

/* -- ScatterND(x, i, u): i[J.. k], u[J.. R..], x[D1..Dk R..] */

OPAQUE_SHAPE(shape_scatter_nd)
{
    struct sol_ctx *ctx = arena_ctx(a);
    TRY(spread(a, def, in, nin, attrs, &in));
    TRY(joinable(ctx, def, in, 2, attrs));
    TRY(integers(ctx, def, in, 1));
    TRY(rank_of(ctx, def, in, 1, 1, false));
    int64_t k = in[1].shape[in[1].ndim - 1];
    int lead = in[1].ndim - 1;
    TRY(number_of(ctx, def, "the last dimension of input 1", k));
    if (k < 0 || k > in[0].ndim)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: indices of %lld dimensions into %d", def->name, (long long)k,
                        in[0].ndim);
    TRY(rank_of(ctx, def, in, 2, lead + in[0].ndim - (int)k, true));
    for (int d = 0; d < in[2].ndim; d++)
        if (in[2].shape[d] != (d < lead ? in[1].shape[d] : in[0].shape[d - lead + k]))
            return ctx_fail(ctx, SOL_ERR_INVALID, "%s: u: dimension %d does not fit", def->name, d);
    *out_nout = 1;
    *out = in[0];
    return SOL_OK;
}

OPAQUE_DESCRIBE(describe_scatter_nd)
{
    const struct sol_tensor *x = l->out[0], *i = l->in[1], *u = l->in[2];
    const int64_t k = i->dim[i->ndim - 1].size;
    const int lead = i->ndim - 1;
    int64_t shape[SOL_MAX_DIMS], own[SOL_MAX_DIMS], xs[SOL_MAX_DIMS];
    for (int d = 0; d < u->ndim; d++) shape[d] = u->dim[d].size;
    describe(l, 2, u->ndim, shape, out);
    row_major(u, out->from);
    row_major(i, own);
    row_major(x, xs);
    for (int d = lead; d < u->ndim; d++) out->to[d] = xs[d - lead + k];
    for (int n = 0; n < k; n++) {
        struct reference_index *index = indices(a, l, 1, n, out);
        index->offset = n;
        for (int d = 0; d < lead; d++) index->stride[d] = own[d];
    }
    join_dims(out);
}

/* -- IndexPut(x, u, i..): u is broadcast to the shape that Index gives */

struct put {
    int count, nshape, first, ndim; /* ndim: of the result of Index */
    int of[SOL_MAX_DIMS];           /* by dimension of x: index tensor or -1 */
    int64_t shape[SOL_MAX_DIMS];    /* of the result of Index */
};

/* `size(input, d)` works for inputs in both forms: row_input while shapes are computed, tensors at run time. */
static int64_t size_of(const struct opdef_input *in, const struct sol_layer *l, int i, int d)
{
    return in ? in[i].shape[d] : (i ? l->in[i] : l->out[0])->dim[d].size;
}

static int rank_in(const struct opdef_input *in, const struct sol_layer *l, int i)
{
    return in ? in[i].ndim : (i ? l->in[i] : l->out[0])->ndim;
}

/* False if sizes do not match. */
static bool put_shape(const struct opdef_input *in, const struct sol_layer *l, const struct attrs *attrs, int count,
                      struct put *p)
{
    int n = rank_in(in, l, 0), at[SOL_MAX_DIMS];
    int64_t common[SOL_MAX_DIMS];
    bool adjacent = true;
    *p = (struct put){.count = count, .first = -1};
    for (int d = 0; d < n; d++) p->of[d] = -1;
    for (int i = 0; i < count; i++) {
        int64_t axis = attrs_int(attrs, "dims", i, 0);
        p->of[axis < 0 ? axis + n : axis] = i;
        p->nshape = MAX(p->nshape, rank_in(in, l, i + 2));
    }
    for (int d = 0; d < p->nshape; d++) common[d] = 1;
    for (int i = 0; i < count; i++)
        for (int d = 0, own = rank_in(in, l, i + 2); d < own; d++) {
            int64_t *size = &common[p->nshape - own + d], s = size_of(in, l, i + 2, d);
            if (!same_size(size, s)) return false;
        }
    for (int d = 0; d < n; d++) {
        if (p->of[d] < 0) continue;
        if (p->first < 0) p->first = d;
        adjacent &= d == p->first || p->of[d - 1] >= 0;
    }
    if (!adjacent) p->first = 0;
    p->ndim = n - count + p->nshape;
    if (p->ndim > SOL_MAX_DIMS) return false;
    for (int d = 0, o = 0; d < n; d++)
        if (p->of[d] < 0) at[o++] = d;
    for (int o = 0, rest = 0; o < p->ndim; o++) {
        bool own = o >= p->first && o < p->first + p->nshape;
        p->shape[o] = own ? common[o - p->first] : size_of(in, l, 0, at[rest]);
        rest += !own;
    }
    return true;
}

OPAQUE_SHAPE(shape_index_put)
{
    struct sol_ctx *ctx = arena_ctx(a);
    struct put p;
    int count = attr_length(attrs, "dims");
    bool marked[SOL_MAX_DIMS] = {false};
    TRY(spread(a, def, in, nin, attrs, &in));
    TRY(joinable(ctx, def, in, 1, attrs));
    if (count < 1 || count != nin - 2)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: dims: expected one for each of %d index tensors, got %d", def->name,
                        nin - 2, count);
    TRY(axes_attr(ctx, def, attrs, "dims", in[0].ndim, marked));
    for (int i = 2; i < nin; i++) TRY(integers(ctx, def, in, i));
    bool fits = put_shape(in, NULL, attrs, count, &p) && in[1].ndim <= p.ndim;
    for (int d = 0; fits && d < in[1].ndim; d++)
        fits = in[1].shape[d] == 1 || in[1].shape[d] == p.shape[p.ndim - in[1].ndim + d];
    if (!fits)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: the shapes of the indices and u do not go together", def->name);
    *out_nout = 1;
    *out = in[0];
    return SOL_OK;
}

OPAQUE_DESCRIBE(describe_index_put)
{
    const struct sol_tensor *x = l->out[0];
    struct put p;
    int64_t xs[SOL_MAX_DIMS];
    put_shape(NULL, l, &l->attrs, l->nin - 2, &p);
    describe(l, 1, p.ndim, p.shape, out);
    out->skip = attrs_int(&l->attrs, "skip", 0, 0) != 0;
    broadcast(l->in[1], p.ndim, out->from);
    row_major(x, xs);
    for (int d = 0, o = 0; d < x->ndim; d++) {
        if (p.of[d] >= 0) {
            const int i = p.of[d] + 2;
            broadcast(l->in[i], p.first + p.nshape, indices(a, l, i, d, out)->stride);
            continue;
        }
        if (o == p.first) o += p.nshape;
        out->to[o++] = xs[d];
    }
    join_dims(out);
}
