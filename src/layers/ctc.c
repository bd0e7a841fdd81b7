/* The layers CTC loss and its gradient; reference_ctc.c computes them. */
#include "layers/build.h"

OPAQUE_SHAPE(shape_ctc)
{
    static const char *const of[] = {"x", "t", "n", "m", "d"};
    struct sol_ctx *ctx = arena_ctx(a);
    TRY(rank_of(ctx, def, in, 0, 3, true));
    if (in[0].dtype != SOL_F32 && in[0].dtype != SOL_F64)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: x: expected type f32 or f64, got %s", def->name,
                        type_name(in[0].dtype));
    if (in[1].ndim != 1) TRY(rank_of(ctx, def, in, 1, 2, true));
    for (int i = 1; i < nin; i++) {
        const enum sol_dtype type = i < 4 ? SOL_I64 : in[0].dtype;
        if (i > 1) TRY(rank_of(ctx, def, in, i, 1, true));
        if (in[i].dtype != type)
            return ctx_fail(ctx, SOL_ERR_INVALID, "%s: %s: expected type %s, got %s", def->name, of[i], type_name(type),
                            type_name(in[i].dtype));
        if ((i > 1 || in[i].ndim == 2) && in[i].shape[0] != in[0].shape[1])
            return ctx_unequal(ctx, in[0].shape[1], in[i].shape[0],
                               ctx_fail(ctx, SOL_ERR_INVALID, "%s: %s: expected %lld sequences as x has, got %lld",
                                        def->name, of[i], (long long)in[0].shape[1], (long long)in[i].shape[0]));
    }
    int64_t blank = attrs_int(attrs, "blank", 0, 0);
    if (blank < 0 || blank >= in[0].shape[2])
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: blank: expected 0..%lld, got %lld", def->name,
                        (long long)in[0].shape[2] - 1, (long long)blank);
    *out_nout = 1;
    *out = nin > 4 ? in[0] : (struct opdef_input){in[0].dtype, 1, in[2].shape, false};
    return SOL_OK;
}

OPAQUE_DESCRIBE(describe_ctc)
{
    const struct sol_tensor *x = l->in[0], *t = l->in[1];
    (void)a;
    *out = (struct reference){.kind = &reference_ctc,
                              .type = reference_type((enum sol_dtype)x->dtype),
                              .bytes = dtype_def((enum sol_dtype)x->dtype)->bytes,
                              .nin = l->nin,
                              .outer = x->dim[1].size,
                              .rows = x->dim[0].size,
                              .cols = x->dim[2].size,
                              .n = t->ndim == 1 ? t->dim[0].size : 0,
                              .rhs = t->ndim == 2 ? t->dim[1].size : 0,
                              .option = (int32_t)attrs_int(&l->attrs, "blank", 0, 0),
                              .check = attrs_int(&l->attrs, "zero", 0, 0) != 0};
}
