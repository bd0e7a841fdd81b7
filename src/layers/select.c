/* Layers that find elements, whose number depends on data. Their attribute `size` is a dimension, which they set to
 * that number while running (LAYER_SETS), or the number that is expected. */
#include "layers/build.h"

/* A number is compared with what is found. */
static sol_status check_size(struct sol_ctx *ctx, const struct layer_def *def, int64_t size)
{
    if (size != SIZE_BAD && size_le(0, size)) return SOL_OK;
    return ctx_fail(ctx, SOL_ERR_INVALID,
                    "%s: size: expected a size of sol_graph_data_dim, or a number from 0 on, got %lld", def->name,
                    (long long)size);
}

OPAQUE_SHAPE(shape_nonzero)
{
    int64_t *shape = NEW_ARRAY(a, int64_t, 2);
    (void)nin;
    shape[0] = attrs_int(attrs, "size", 0, 0);
    shape[1] = in->ndim;
    TRY(check_size(arena_ctx(a), def, shape[0]));
    *out_nout = 1;
    out[0] = (struct opdef_input){SOL_I64, 2, shape, false};
    return SOL_OK;
}

OPAQUE_DESCRIBE(describe_nonzero)
{
    const struct sol_tensor *x = l->in[0];
    (void)a;
    *out = (struct reference){.kind = &reference_nonzero,
                              .type = reference_type((enum sol_dtype)x->dtype),
                              .bytes = dtype_def((enum sol_dtype)x->dtype)->bytes,
                              .nin = 1,
                              .keep = attrs_int(&l->attrs, "size", 0, 0),
                              .ndim = x->ndim};
    for (int d = 0; d < x->ndim; d++) out->shape[d] = x->dim[d].size;
}

OPAQUE_SHAPE(shape_unique)
{
    int64_t *size = NEW_ARRAY(a, int64_t, 1);
    struct sol_ctx *ctx = arena_ctx(a);
    (void)nin;
    TRY(rank_of(ctx, def, in, 0, 1, false));
    if (in->dtype == SOL_F16 || in->dtype == SOL_BF16)
        return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "%s: type %s is not supported yet", def->name, type_name(in->dtype));
    *size = attrs_int(attrs, "size", 0, 0);
    TRY(check_size(ctx, def, *size));
    *out_nout = 3;
    out[0] = out[2] = (struct opdef_input){SOL_I64, 1, size, false};
    out[1] = (struct opdef_input){SOL_I64, 1, in->shape, false};
    return SOL_OK;
}

OPAQUE_DESCRIBE(describe_unique)
{
    const struct sol_tensor *x = l->in[0];
    (void)a;
    *out = (struct reference){.kind = &reference_unique,
                              .type = reference_type((enum sol_dtype)x->dtype),
                              .bytes = dtype_def((enum sol_dtype)x->dtype)->bytes,
                              .nin = 1,
                              .n = x->dim[0].size,
                              .inner = 1,
                              .keep = attrs_int(&l->attrs, "size", 0, 0),
                              .option = attrs_int(&l->attrs, "sorted", 0, 1) != 0,
                              .check = attrs_int(&l->attrs, "nan", 0, 0) != 0};
    for (int d = 1; d < x->ndim; d++) out->inner = size_mul(out->inner, x->dim[d].size);
}

/* -- NonMaxSuppression */

#define BOX_MODES "ordered|corners|center"

static sol_status check_input(struct arena *a, const struct layer_def *def, const struct opdef_input *in, int i)
{
    static const char *const name[] = {"b", "s", "m", "t", "u"};
    static const int rank[] = {3, 3, 0, 0, 0};
    const enum sol_dtype type = i == 2 ? SOL_I64 : i > 2 ? SOL_F64 : i ? in[0].dtype : in->dtype;
    if (!i && type != SOL_F32 && type != SOL_F64)
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: b: expected type f32 or f64, got %s", def->name,
                        type_name(type));
    if (in[i].dtype == type) return rank_of(arena_ctx(a), def, in, i, rank[i], true);
    return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: %s: expected type %s, got %s", def->name, name[i],
                    type_name(type), type_name(in[i].dtype));
}

static sol_status check_equal(struct arena *a, const struct layer_def *def, const char *what, int64_t got,
                              int64_t expected)
{
    if (got == expected) return SOL_OK;
    return ctx_unequal(arena_ctx(a), expected, got,
                       ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: %s: expected %lld, got %lld", def->name, what,
                                (long long)expected, (long long)got));
}

OPAQUE_SHAPE(shape_nms)
{
    int mode;
    int64_t *shape = NEW_ARRAY(a, int64_t, 2);
    TRY(word_attr(arena_ctx(a), def, attrs, "mode", BOX_MODES, &mode));
    for (int i = 0; i < nin; i++) TRY(check_input(a, def, in, i));
    TRY(check_equal(a, def, "the numbers of a box", in[0].shape[2], 4));
    TRY(check_equal(a, def, "images of s", in[1].shape[0], in[0].shape[0]));
    TRY(check_equal(a, def, "boxes of s", in[1].shape[2], in[0].shape[1]));
    shape[0] = attrs_int(attrs, "size", 0, 0);
    shape[1] = 3;
    TRY(check_size(arena_ctx(a), def, shape[0]));
    *out_nout = 1;
    out[0] = (struct opdef_input){SOL_I64, 2, shape, false};
    return SOL_OK;
}

OPAQUE_DESCRIBE(describe_nms)
{
    const struct sol_tensor *b = l->in[0], *s = l->in[1];
    int mode = 0;
    word_attr(arena_ctx(a), l->def, &l->attrs, "mode", BOX_MODES, &mode);
    *out = (struct reference){.kind = &reference_nms,
                              .type = reference_type((enum sol_dtype)b->dtype),
                              .bytes = dtype_def((enum sol_dtype)b->dtype)->bytes,
                              .nin = l->nin,
                              .outer = b->dim[0].size,
                              .rows = s->dim[1].size,
                              .n = b->dim[1].size,
                              .keep = attrs_int(&l->attrs, "size", 0, 0),
                              .option = mode};
}
