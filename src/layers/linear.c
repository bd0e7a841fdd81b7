/* Linear algebra layers. A table gives for each layer its kind of reference.h and the trailing dimensions of its
 * operands; all operands share the leading ones. */
#include <string.h>

#include "layers/build.h"

/* Dimensions are index variables: M and N of the first input, R and T of another, K = min(M, N), W as the attribute
 * `full` decides. '!' behind an operand marks i32. Commas separate operands. */
static const struct linear {
    const char *layer;
    const struct reference_kind *kind;
    const char *in, *out;
    const char *option[2]; /* attributes that are bits of `option` */
} table[] = {
    {"LU", &reference_lu, "MN", "MN,K!,!", {0}},
    {"LUSolve", &reference_lu_solve, "MM,M!,MR", "MR", {"adjoint"}},
    {"Solve", &reference_solve, "MM,MR", "MR,MM,M!,!", {0}},
    {"Inverse", &reference_inverse, "MM", "MM,!", {0}},
    {"Det", &reference_det, "MM", ",MM,M!", {0}},
    {"SlogDet", &reference_det, "MM", ",,MM,M!", {"log"}},
    {"Cholesky", &reference_cholesky, "MM", "MM,!", {"upper"}},
    {"SolveTriangular", &reference_triangular, "MM,MR", "MR", {"upper", "unit"}},
    {"QR", &reference_qr, "MN", "MW,WN", {"full"}},
    {"Householder", &reference_reflectors, "MN", "MN,K", {0}},
    {"HouseholderProduct", &reference_reflected, "MN,T", "MW", {"full"}},
    {"Eigh", &reference_eigh, "MM", "M,MM", {"upper", "values"}},
    {"SVD", &reference_svd, "MN", "MU,K,VN", {"full", "values"}},
    {"Pinv", &reference_pinv, "MN,,", "NM", {0}},
    {"MatrixExp", &reference_matrix_exp, "MM", "MM", {0}},
};

static const struct linear *row_of(const struct layer_def *def)
{
    for (int i = 0; i < COUNT_OF(table); i++)
        if (!strcmp(table[i].layer, def->name)) return &table[i];
    return NULL;
}

/* The index variables of operand i, and their number. */
static const char *ivars(const char *all, int i, int *out_n)
{
    for (; i; i--) all += strcspn(all, ",") + 1;
    *out_n = (int)strcspn(all, ",!");
    return all;
}

static int operands(const char *all)
{
    int n = 1;
    for (; *all; all++) n += *all == ',';
    return n;
}

struct sizes {
    int64_t of[128]; /* by index variable; -1: not known yet */
};

/* The sizes that follow from M and N. */
static void derive(const struct layer_def *def, const struct attrs *attrs, struct sizes *s)
{
    const int64_t m = s->of['M'], n = s->of['N'];
    const bool full = attrs_int(attrs, "full", 0, 0) != 0;
    s->of['K'] = n < 0 ? m : size_min(m, n);
    s->of['U'] = full ? m : s->of['K'];
    s->of['V'] = full ? n : s->of['K'];
    s->of['W'] = full ? m : strcmp(def->name, "QR") ? n : s->of['K'];
}

static sol_status measure(struct sol_ctx *ctx, const struct layer_def *def, const struct linear *t, int i,
                          const struct opdef_input *in, struct sizes *s)
{
    int n, first;
    const char *of = ivars(t->in, i, &n);
    ivars(t->in, 0, &first);
    const int lead = in[0].ndim - first;
    if (of[n] != '!' && in[i].dtype != in[0].dtype)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: input %d: expected type %s as input 0, got %s", def->name, i,
                        type_name(in[0].dtype), type_name(in[i].dtype));
    if (of[n] == '!' && in[i].dtype != SOL_I32)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: input %d: expected type i32, got %s", def->name, i,
                        type_name(in[i].dtype));
    TRY(rank_of(ctx, def, in, i, lead + n, true));
    for (int d = 0; d < lead + n; d++) {
        int64_t *size = d < lead ? NULL : &s->of[(int)of[d - lead]], given = in[i].shape[d];
        if (size && *size < 0) *size = given;
        const int64_t expected = size ? *size : in[0].shape[d];
        if (given != expected)
            return ctx_unequal(ctx, expected, given,
                               ctx_fail(ctx, SOL_ERR_INVALID, "%s: input %d: dimension %d: expected %lld, got %lld%s",
                                        def->name, i, d, (long long)expected, (long long)given,
                                        i || !size ? "" : ": the matrices must be square"));
    }
    return SOL_OK;
}

OPAQUE_SHAPE(shape_linear)
{
    const struct linear *t = row_of(def);
    struct sol_ctx *ctx = arena_ctx(a);
    struct sizes s;
    int first;
    ivars(t->in, 0, &first);
    memset(&s, -1, sizeof s);
    if (in[0].dtype != SOL_F32 && in[0].dtype != SOL_F64)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: input 0: expected type f32 or f64, got %s", def->name,
                        type_name(in[0].dtype));
    TRY(rank_of(ctx, def, in, 0, first, false));
    for (int i = 0; i < nin; i++) TRY(measure(ctx, def, t, i, in, &s));
    derive(def, attrs, &s);
    if (!size_le(s.of['T'], s.of['N']) || (!strcmp(def->name, "HouseholderProduct") && !size_le(s.of['N'], s.of['M'])))
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: %lld reflections in a matrix of %lld x %lld", def->name,
                        (long long)s.of['T'], (long long)s.of['M'], (long long)s.of['N']);
    *out_nout = attrs_int(attrs, "values", 0, 0) ? 1 : operands(t->out);
    const bool skip = *out_nout == 1 && !strcmp(def->name, "SVD"); /* the values are its second result */
    for (int o = 0; o < *out_nout; o++) {
        int n;
        const char *of = ivars(t->out, o + skip, &n);
        const int lead = in[0].ndim - first;
        int64_t *shape = NEW_ARRAY(a, int64_t, lead + n + 1);
        for (int d = 0; d < lead + n; d++) shape[d] = d < lead ? in[0].shape[d] : s.of[(int)of[d - lead]];
        out[o] = (struct opdef_input){of[n] == '!' ? SOL_I32 : in[0].dtype, lead + n, shape, false};
    }
    return SOL_OK;
}

OPAQUE_DESCRIBE(describe_linear)
{
    const struct linear *t = row_of(l->def);
    const struct sol_tensor *x = l->in[0];
    int first, n;
    (void)a;
    ivars(t->in, 0, &first);
    *out = (struct reference){.kind = t->kind,
                              .type = reference_type((enum sol_dtype)x->dtype),
                              .bytes = dtype_def((enum sol_dtype)x->dtype)->bytes,
                              .nin = l->nin,
                              .outer = 1,
                              .rows = x->dim[x->ndim - 2].size,
                              .cols = x->dim[x->ndim - 1].size,
                              .check = attrs_int(&l->attrs, "check", 0, 0) != 0};
    for (int d = 0; d < x->ndim - first; d++) out->outer = size_mul(out->outer, x->dim[d].size);
    for (int i = 0; i < COUNT_OF(t->option); i++)
        if (t->option[i] && attrs_int(&l->attrs, t->option[i], 0, 0)) out->option |= 1 << i;
    for (int i = 0; i < l->nin; i++) {
        const char *of = ivars(t->in, i, &n);
        if (n && (of[n - 1] == 'R' || of[n - 1] == 'T')) out->rhs = l->in[i]->dim[l->in[i]->ndim - 1].size;
    }
    if (t->kind == &reference_inverse) out->rhs = out->rows;
}
