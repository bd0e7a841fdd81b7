/* Layers that write by index. They run as C functions: the position of a write is data, and a later write to the same
 * place must come later. */
#include <string.h>

#include "layers/build.h"

enum { NONE, ADD, MUL, MAXIMUM, MINIMUM };
#define MODES "none|add|mul|max|min"

/* -- joining one element with what is there */

#define JOIN(type, sum, times)                                     \
    do {                                                           \
        type *to = (type *)y + i, v = ((const type *)u)[j];        \
        if (mode == ADD) *to = (type)(sum);                        \
        if (mode == MUL) *to = (type)(times);                      \
        if (mode == MAXIMUM && !(*to >= v) && *to == *to) *to = v; \
        if (mode == MINIMUM && !(*to <= v) && *to == *to) *to = v; \
    } while (0)
#define JOIN_INT(type) JOIN(type, (uint64_t)*to + (uint64_t)v, (uint64_t)*to * (uint64_t)v)

static void join(enum sol_dtype t, int mode, void *y, int64_t i, const void *u, int64_t j)
{
    size_t size = dtype_def(t)->bytes;
    if (mode == NONE) {
        memcpy((char *)y + (size_t)i * size, (const char *)u + (size_t)j * size, size);
        return;
    }
    switch (t) {
    case SOL_F32: JOIN(float, *to + v, *to * v); break;
    case SOL_F64: JOIN(double, *to + v, *to * v); break;
    case SOL_BOOL: JOIN(uint8_t, *to | v, *to & v); break;
    case SOL_U8: JOIN_INT(uint8_t); break;
    case SOL_I8: JOIN_INT(int8_t); break;
    case SOL_U16: JOIN_INT(uint16_t); break;
    case SOL_I16: JOIN_INT(int16_t); break;
    case SOL_U32: JOIN_INT(uint32_t); break;
    case SOL_I32: JOIN_INT(int32_t); break;
    case SOL_U64: JOIN_INT(uint64_t); break;
    case SOL_I64: JOIN_INT(int64_t); break;
    default: break; /* half types: refused by joinable */
    }
}

/* Input u holds what is joined with x. */
static sol_status joinable(struct sol_ctx *ctx, const struct layer_def *def, const struct row_input *in, int u,
                           const struct attrs *attrs)
{
    int mode;
    TRY(word_attr(ctx, def, attrs, "mode", MODES, &mode));
    if (in[0].dtype != in[u].dtype)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: u: expected type %s as x, got %s", def->name, type_name(in[0].dtype),
                        type_name(in[u].dtype));
    if (mode != NONE && (in[0].dtype == SOL_F16 || in[0].dtype == SOL_BF16))
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

/* -- indices */

/* An index made positive; false if it is out of range. */
static sol_status checked(struct sol_ctx *ctx, const struct sol_layer *l, int64_t v, int64_t n, int64_t *out)
{
    *out = v < 0 ? v + n : v;
    if (*out >= 0 && *out < n) return SOL_OK;
    return ctx_fail(ctx, SOL_ERR_RUN, "layer '%s' (%s): index %lld is out of range for size %lld", l->name,
                    l->def->name, (long long)v, (long long)n);
}

static sol_status integers(struct sol_ctx *ctx, const struct layer_def *def, const struct row_input *in, int i)
{
    const struct dtype_def *t = dtype_def(in[i].dtype);
    if (!t->is_float && !t->is_bool) return SOL_OK;
    return ctx_fail(ctx, SOL_ERR_INVALID, "%s: input %d: expected integers as indices, got %s", def->name, i, t->name);
}

static void row_major(const struct sol_tensor *t, int64_t *stride)
{
    int64_t s = 1;
    for (int d = t->ndim - 1; d >= 0; s *= t->dim[d].size, d--) stride[d] = s;
}

static void copy_x(const struct sol_layer *l, const void *const *in, void *const *out)
{
    size_t bytes = (size_t)tensor_elements(l->in[0]) * dtype_def((enum sol_dtype)l->in[0]->dtype)->bytes;
    if (bytes) memcpy(out[0], in[0], bytes);
}

/* -- ScatterElements(x, i, u) */

OPAQUE_SHAPE(shape_scatter_elements)
{
    const struct layer_def *def = layer_def("ScatterElements");
    struct sol_ctx *ctx = arena_ctx(a);
    int axis;
    (void)nin;
    TRY(axis_attr(ctx, def, attrs, "axis", MAX(in[0].ndim, 1), &axis));
    TRY(joinable(ctx, def, in, 2, attrs));
    TRY(integers(ctx, def, in, 1));
    TRY(rank_of(ctx, def, in, 1, in[0].ndim, true));
    TRY(rank_of(ctx, def, in, 2, in[0].ndim, true));
    for (int d = 0; d < in[0].ndim; d++)
        if (in[1].shape[d] > in[2].shape[d] || (d != axis && in[1].shape[d] > in[0].shape[d]))
            return ctx_fail(ctx, SOL_ERR_INVALID, "%s: dimension %d: %lld indices for %lld of u into %lld", def->name,
                            d, (long long)in[1].shape[d], (long long)in[2].shape[d], (long long)in[0].shape[d]);
    *out_nout = 1;
    *out = in[0];
    return SOL_OK;
}

OPAQUE_RUN(run_scatter_elements)
{
    const struct sol_tensor *x = l->in[0], *i = l->in[1];
    int64_t axis = attrs_int(&l->attrs, "axis", 0, 0), xs[SOL_MAX_DIMS], us[SOL_MAX_DIMS], is[SOL_MAX_DIMS];
    if (axis < 0) axis += MAX(x->ndim, 1);
    int mode = mode_of(l);
    int64_t n = tensor_elements(i);
    row_major(x, xs);
    row_major(l->in[2], us);
    row_major(i, is);
    copy_x(l, in, out);
    for (int64_t e = 0; e < n; e++) {
        int64_t to = 0, from = 0, at = 0;
        TRY(checked(ctx, l, dtype_int((enum sol_dtype)i->dtype, in[1], e), x->ndim ? x->dim[axis].size : 1, &at));
        for (int d = 0; d < x->ndim; d++) {
            int64_t here = e / is[d] % i->dim[d].size;
            from += here * us[d];
            to += (d == axis ? at : here) * xs[d];
        }
        join((enum sol_dtype)x->dtype, mode, out[0], to, in[2], from);
    }
    return SOL_OK;
}

/* -- ScatterND(x, i, u): i[J.. k], u[J.. R..], x[D1..Dk R..] */

OPAQUE_SHAPE(shape_scatter_nd)
{
    const struct layer_def *def = layer_def("ScatterND");
    struct sol_ctx *ctx = arena_ctx(a);
    (void)nin;
    TRY(joinable(ctx, def, in, 2, attrs));
    TRY(integers(ctx, def, in, 1));
    TRY(rank_of(ctx, def, in, 1, 1, false));
    int64_t k = in[1].shape[in[1].ndim - 1];
    int lead = in[1].ndim - 1;
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

OPAQUE_RUN(run_scatter_nd)
{
    const struct sol_tensor *x = l->in[0], *i = l->in[1];
    int64_t xs[SOL_MAX_DIMS], k = i->dim[i->ndim - 1].size, n = k ? tensor_elements(i) / k : 0, block = 1;
    int mode = mode_of(l);
    if (!k) /* an index of no dimensions means all of x, once for each */
        for (int d = 0, last = i->ndim - 1; d < last; d++) n = d ? n * i->dim[d].size : i->dim[d].size;
    if (!k && i->ndim == 1) n = 1;
    row_major(x, xs);
    for (int d = (int)k; d < x->ndim; d++) block *= x->dim[d].size;
    copy_x(l, in, out);
    for (int64_t j = 0; j < n; j++) {
        int64_t to = 0;
        for (int d = 0; d < k; d++) {
            int64_t at = 0;
            TRY(checked(ctx, l, dtype_int((enum sol_dtype)i->dtype, in[1], j * k + d), x->dim[d].size, &at));
            to += at * xs[d];
        }
        for (int64_t b = 0; b < block; b++) join((enum sol_dtype)x->dtype, mode, out[0], to + b, in[2], j * block + b);
    }
    return SOL_OK;
}

/* -- IndexPut(x, u, i..): u is broadcast to the shape that Index gives */

struct put {
    int count, nshape, first, ndim; /* ndim: of what Index gives */
    int of[SOL_MAX_DIMS];           /* by dimension of x: index tensor or -1 */
    int64_t shape[SOL_MAX_DIMS];    /* of what Index gives */
};

/* `size(input, d)` of inputs in both forms: row_input while shapes are made, tensors while it runs. */
static int64_t size_of(const struct row_input *in, const struct sol_layer *l, int i, int d)
{
    return in ? in[i].shape[d] : l->in[i]->dim[d].size;
}

static int rank_in(const struct row_input *in, const struct sol_layer *l, int i)
{
    return in ? in[i].ndim : l->in[i]->ndim;
}

/* False if sizes do not go together. */
static bool put_shape(const struct row_input *in, const struct sol_layer *l, const struct attrs *attrs, int count,
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
            if (s != 1 && *size != 1 && s != *size) return false;
            if (s != 1) *size = s;
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
    const struct layer_def *def = layer_def("IndexPut");
    struct sol_ctx *ctx = arena_ctx(a);
    struct put p;
    int count = attr_length(attrs, "dims");
    bool marked[SOL_MAX_DIMS] = {false};
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

/* Element of an index tensor or of u for place `at` of the result, broadcasting. */
static int64_t broadcast_offset(const struct sol_tensor *t, const int64_t *at, int n)
{
    int64_t offset = 0;
    for (int d = 0; d < t->ndim; d++)
        offset = offset * t->dim[d].size + (t->dim[d].size == 1 ? 0 : at[n - t->ndim + d]);
    return offset;
}

OPAQUE_RUN(run_index_put)
{
    const struct sol_tensor *x = l->in[0];
    struct put p;
    int64_t xs[SOL_MAX_DIMS], at[SOL_MAX_DIMS] = {0};
    int mode = mode_of(l);
    put_shape(NULL, l, &l->attrs, l->nin - 2, &p);
    row_major(x, xs);
    copy_x(l, in, out);
    for (int64_t e = 0, n = product(p.shape, p.ndim); e < n; e++) {
        int64_t to = 0, rest = e;
        for (int d = p.ndim - 1; d >= 0; rest /= p.shape[d], d--) at[d] = rest % p.shape[d];
        for (int d = 0, o = 0; d < x->ndim; d++) {
            int64_t v = 0;
            if (p.of[d] >= 0) {
                int i = p.of[d] + 2;
                int64_t offset = broadcast_offset(l->in[i], at + p.first, p.nshape);
                TRY(checked(ctx, l, dtype_int((enum sol_dtype)l->in[i]->dtype, in[i], offset), x->dim[d].size, &v));
            } else {
                if (o == p.first) o += p.nshape;
                v = at[o++];
            }
            to += v * xs[d];
        }
        join((enum sol_dtype)x->dtype, mode, out[0], to, in[1], broadcast_offset(l->in[1], at, p.ndim));
    }
    return SOL_OK;
}
