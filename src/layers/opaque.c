/* Layers without loops: sorting. */
#include <stdlib.h>
#include <string.h>

#include "layers/build.h"

/* -- sorting: positions are sorted by a key, an order-preserving integer for every type */

static int64_t key_of(enum sol_dtype t, const void *data, int64_t i)
{
    switch (t) {
    case SOL_U64: return (int64_t)(((const uint64_t *)data)[i] ^ (uint64_t)1 << 63);
    case SOL_F32: {
        float v = ((const float *)data)[i];
        int32_t bits;
        if (v != v) return INT64_MAX; /* NaN is the largest */
        v += 0.0f;                    /* -0 and 0 are equal */
        memcpy(&bits, &v, sizeof bits);
        return bits < 0 ? (int64_t)INT32_MIN - bits : bits;
    }
    case SOL_F64: {
        double v = ((const double *)data)[i];
        int64_t bits;
        if (v != v) return INT64_MAX;
        v += 0.0;
        memcpy(&bits, &v, sizeof bits);
        return bits < 0 ? INT64_MIN - bits : bits;
    }
    default: return dtype_int(t, data, i);
    }
}

struct item {
    int64_t key, at;
};

static int ascending(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int descending(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Sorts along an axis and writes the first k of each line. */
static sol_status sort_lines(struct sol_ctx *ctx, const struct sol_layer *l, int axis, int64_t k, bool down,
                             const void *in, void *values, int64_t *positions)
{
    const struct sol_tensor *x = l->in[0];
    int64_t n = x->ndim ? x->dim[axis].size : 1, outer = 1, inner = 1;
    for (int d = 0; d < x->ndim; d++) *(d < axis ? &outer : &inner) *= d == axis ? 1 : x->dim[d].size;
    size_t size = dtype_def((enum sol_dtype)x->dtype)->bytes;
    struct item *items = ctx_realloc(ctx, NULL, (size_t)MAX(n, 1) * sizeof *items);
    if (!items) return ctx_fail(ctx, SOL_ERR_NOMEM, "%s: no memory for %lld elements", l->def->name, (long long)n);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            for (int64_t j = 0; j < n; j++)
                items[j] = (struct item){key_of((enum sol_dtype)x->dtype, in, (o * n + j) * inner + i), j};
            qsort(items, (size_t)n, sizeof *items, down ? descending : ascending);
            for (int64_t j = 0; j < k; j++) {
                int64_t to = (o * k + j) * inner + i, from = (o * n + items[j].at) * inner + i;
                memcpy((char *)values + (size_t)to * size, (const char *)in + (size_t)from * size, size);
                positions[to] = items[j].at;
            }
        }
    ctx_free(ctx, items);
    return SOL_OK;
}

static sol_status sortable(struct sol_ctx *ctx, const char *name, const struct row_input *in)
{
    if (in->dtype != SOL_F16 && in->dtype != SOL_BF16) return SOL_OK;
    return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "%s: type %s is not supported yet", name, type_name(in->dtype));
}

OPAQUE_SHAPE(shape_sort)
{
    int axis;
    (void)nin;
    TRY(sortable(arena_ctx(a), "Sort", in));
    TRY(axis_attr(arena_ctx(a), layer_def("Sort"), attrs, "axis", MAX(in->ndim, 1), &axis));
    *out_nout = 2;
    out[0] = out[1] = *in;
    out[1].dtype = SOL_I64;
    return SOL_OK;
}

OPAQUE_RUN(run_sort)
{
    int64_t axis = attrs_int(&l->attrs, "axis", 0, 0);
    if (axis < 0) axis += MAX(l->in[0]->ndim, 1);
    int64_t n = l->in[0]->ndim ? l->in[0]->dim[axis].size : 1;
    return sort_lines(ctx, l, (int)axis, n, attrs_int(&l->attrs, "down", 0, 0) != 0, in[0], out[0], out[1]);
}

OPAQUE_SHAPE(shape_topk)
{
    int axis;
    int64_t k = attrs_int(attrs, "k", 0, 1);
    (void)nin;
    TRY(sortable(arena_ctx(a), "TopK", in));
    TRY(axis_attr(arena_ctx(a), layer_def("TopK"), attrs, "axis", MAX(in->ndim, 1), &axis));
    int64_t n = in->ndim ? in->shape[axis] : 1;
    if (k < 0 || k > n)
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "TopK: k: expected 0..%lld, got %lld", (long long)n,
                        (long long)k);
    int64_t *shape = NEW_ARRAY(a, int64_t, MAX(in->ndim, 1));
    if (in->ndim) memcpy(shape, in->shape, (size_t)in->ndim * sizeof *shape);
    if (in->ndim) shape[axis] = k;
    *out_nout = 2;
    out[0] = out[1] = (struct row_input){in->dtype, in->ndim, shape, false};
    out[1].dtype = SOL_I64;
    return SOL_OK;
}

OPAQUE_RUN(run_topk)
{
    int64_t axis = attrs_int(&l->attrs, "axis", 0, -1);
    if (axis < 0) axis += MAX(l->in[0]->ndim, 1);
    int64_t k = attrs_int(&l->attrs, "k", 0, 1);
    return sort_lines(ctx, l, (int)axis, k, attrs_int(&l->attrs, "largest", 0, 1) != 0, in[0], out[0], out[1]);
}
