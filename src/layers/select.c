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
