/* Runs layers without loops, and defines sorting. reference_*.c compute them. */
#include <string.h>

#include "layers/build.h"
#include "layers/reference_sized.h"

/* -- running a description, with memory and messages */

int reference_type(enum sol_dtype t)
{
    static const uint8_t types[SOL_DTYPES] = {
        [SOL_BOOL] = REFERENCE_BOOL, [SOL_U8] = REFERENCE_U8,      [SOL_I8] = REFERENCE_I8,
        [SOL_U16] = REFERENCE_U16,   [SOL_I16] = REFERENCE_I16,    [SOL_U32] = REFERENCE_U32,
        [SOL_I32] = REFERENCE_I32,   [SOL_U64] = REFERENCE_U64,    [SOL_I64] = REFERENCE_I64,
        [SOL_F16] = REFERENCE_OTHER, [SOL_BF16] = REFERENCE_OTHER, [SOL_F32] = REFERENCE_F32,
        [SOL_F64] = REFERENCE_F64,
    };
    return types[t];
}

/* The message has the layer's name and kind, and the two numbers of struct reference_bad. */
static const char *explanation(enum reference_error error)
{
    switch (error) {
    case REFERENCE_SINGULAR: return "layer '%s' (%s): matrix %lld is singular: pivot %lld is zero";
    case REFERENCE_INDEFINITE:
        return "layer '%s' (%s): matrix %lld is not positive definite: its leading minor of order %lld is not positive";
    case REFERENCE_DIVERGED:
        return "layer '%s' (%s): matrix %lld has NaN or infinities, or the iteration does not end (%lld)";
    case REFERENCE_FAILED: return "layer '%s' (%s): its function returned %lld (0 is success, expected %lld)";
    case REFERENCE_INDEX:
    case REFERENCE_GOOD: break;
    }
    return "layer '%s' (%s): index %lld is out of range for size %lld";
}

struct opaque *layer_opaque(struct arena *a, const struct sol_layer *l)
{
    struct opaque *o = NEW(a, struct opaque);
    l->def->describe(a, l, &o->what);
    o->name = arena_strdup(a, l->name);
    o->kind = l->def->name;
    o->nout = l->nout;
    o->set = layer_sets(l);
    o->size = -1;
    if (!(l->def->flags & LAYER_SETS) || o->set >= 0) return o;
    o->size = attrs_int(&l->attrs, "size", 0, 0);
    const struct sol_layer *setter = l; /* the first with this size */
    for (const struct sol_layer *before = l->prev; before && size_varies(o->size); before = before->prev)
        if (before->def->flags & LAYER_SETS && attrs_int(&before->attrs, "size", 0, 0) == o->size) setter = before;
    o->setter = setter == l ? "" : arena_printf(a, ", as many as layer '%s' (%s)", setter->name, setter->def->name);
    return o;
}

/* Sets the dimension to the number of elements that were found, or compares it. */
static sol_status found(struct sol_ctx *ctx, const struct opaque *o, int64_t *dims, int64_t n)
{
    if (o->set >= 0) { /* before, the dimension is the most that there is memory for */
        if (n > dims[o->set])
            return ctx_fail(ctx, SOL_ERR_RUN, "layer '%s' (%s): it finds %lld elements, expected at most %lld", o->name,
                            o->kind, (long long)n, (long long)dims[o->set]);
        dims[o->set] = n;
    }
    if (o->size < 0) return SOL_OK;
    const int64_t expected = dims ? size_at(o->size, dims) : o->size;
    if (n == expected) return SOL_OK;
    return ctx_fail(ctx, SOL_ERR_RUN, "layer '%s' (%s): it finds %lld elements, expected %lld%s", o->name, o->kind,
                    (long long)n, (long long)expected, o->setter);
}

static int64_t value_at(const void *dims, int64_t size)
{
    return size_at(size, dims);
}

sol_status layer_run_opaque(struct sol_ctx *ctx, const struct opaque *o, int64_t *dims, const void *const *in,
                            void *const *out)
{
    char *p[SOL_MAX_DIMS + 4];
    struct reference_bad bad = {0, 0};
    struct reference_instance instance;
    const struct reference *a = dims ? reference_at(&o->what, value_at, dims, &instance) : &o->what;
    for (int i = 0; i < a->nin; i++) p[i] = (char *)(uintptr_t)in[i];
    for (int i = 0; i < o->nout; i++) p[a->nin + i] = out[i];
    const size_t bytes = reference_scratch(a);
    void *scratch = bytes ? ctx_try(ctx, bytes) : NULL;
    if (bytes && !scratch) return ctx_fail(ctx, SOL_ERR_NOMEM, "%s: no memory for %zu bytes", o->kind, bytes);
    const enum reference_error error = a->kind->run(a, p, scratch, &bad);
    ctx_free(ctx, scratch);
    if (!error) return found(ctx, o, dims, bad.index);
    return ctx_fail(ctx, SOL_ERR_RUN, explanation(error), o->name, o->kind, (long long)bad.index, (long long)bad.limit);
}

sol_status layer_run(struct sol_ctx *ctx, const struct sol_layer *l, int64_t *dims, const void *const *in,
                     void *const *out)
{
    struct arena *a = arena_create(ctx);
    if (!a) return ctx_check(ctx);
    const struct opaque *o = layer_opaque(a, l);
    sol_status status = ctx_check(ctx);
    if (!status) status = layer_run_opaque(ctx, o, dims, in, out);
    arena_destroy(a);
    return status;
}

/* -- functions from outside */

typedef VECTOR(double) reals;

static void add_numbers(struct arena *a, const struct attrs *attrs, int64_t *number, int *n, reals *out)
{
    for (int i = 0; i < attrs->n; i++) {
        const struct opdef_attr *v = &attrs->at[i];
        for (int k = 0; k < (v->n < 0 ? 1 : v->n); k++) {
            if (v->kind == ATTR_INT) number[(*n)++] = v->ints[k];
            if (v->kind == ATTR_REAL) PUSH(a, *out, v->reals[k]);
        }
    }
}

void describe_function(struct arena *a, const struct sol_layer *l, struct reference *out)
{
    struct opdef_input *in = NEW_ARRAY(a, struct opdef_input, l->nin);
    for (int i = 0; i < l->nin; i++) {
        const struct sol_tensor *t = l->in[i];
        int64_t *shape = NEW_ARRAY(a, int64_t, t->ndim + 1);
        for (int d = 0; d < t->ndim; d++) shape[d] = t->dim[d].size;
        in[i] = (struct opdef_input){(enum sol_dtype)t->dtype, t->ndim, shape, false};
    }
    struct opdef_measures m = {0};
    opdef_measure(a, l->def->row, l->nin, in, &l->attrs, &m); /* binding has done the same without an error */
    int64_t *number = NEW_ARRAY(a, int64_t, REFERENCE_NUMBERS);
    reals real = {0};
    int n = 0;
    for (int i = 0; i < m.nivar; i++) number[n++] = m.ivar[i];
    add_numbers(a, &l->attrs, number, &n, &real);
    for (int i = 0; i < m.ntemp; i++) number[n + i] = m.temp[i];
    *out = (struct reference){.kind = &reference_function,
                              .nin = l->nin,
                              .values = l->nout,
                              .function = l->def->function->run,
                              .nnumber = n,
                              .ntemp = m.ntemp,
                              .number = number,
                              .real = real.at,
                              .nreal = real.n};
}

/* -- sorting */

/* Sorts along an axis and writes the first k elements of each line. */
static void describe_lines(const struct sol_layer *l, int64_t axis, int64_t k, bool down, struct reference *out)
{
    const struct sol_tensor *x = l->in[0];
    if (axis < 0) axis += MAX(x->ndim, 1);
    *out = (struct reference){.kind = &reference_sort,
                              .type = reference_type((enum sol_dtype)x->dtype),
                              .bytes = dtype_def((enum sol_dtype)x->dtype)->bytes,
                              .nin = 1,
                              .down = down,
                              .outer = 1,
                              .inner = 1,
                              .n = x->ndim ? x->dim[axis].size : 1};
    out->keep = k < 0 ? out->n : k;
    for (int d = 0; d < x->ndim; d++) {
        int64_t *const n = d < axis ? &out->outer : &out->inner;
        if (d != axis) *n = size_mul(*n, x->dim[d].size);
    }
}

static sol_status sortable(struct sol_ctx *ctx, const char *name, const struct opdef_input *in)
{
    if (in->dtype != SOL_F16 && in->dtype != SOL_BF16) return SOL_OK;
    return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "%s: type %s is not supported yet", name, type_name(in->dtype));
}

OPAQUE_SHAPE(shape_sort)
{
    int axis;
    (void)nin;
    TRY(sortable(arena_ctx(a), def->name, in));
    TRY(axis_attr(arena_ctx(a), def, attrs, "axis", MAX(in->ndim, 1), &axis));
    *out_nout = 2;
    out[0] = out[1] = *in;
    out[1].dtype = SOL_I64;
    return SOL_OK;
}

OPAQUE_DESCRIBE(describe_sort)
{
    (void)a;
    describe_lines(l, attrs_int(&l->attrs, "axis", 0, 0), -1, attrs_int(&l->attrs, "down", 0, 0) != 0, out);
}

OPAQUE_SHAPE(shape_topk)
{
    int axis;
    int64_t k = attrs_int(attrs, "k", 0, 1), first = attrs_int(attrs, "first", 0, 0);
    (void)nin;
    TRY(sortable(arena_ctx(a), def->name, in));
    TRY(axis_attr(arena_ctx(a), def, attrs, "axis", MAX(in->ndim, 1), &axis));
    int64_t n = in->ndim ? in->shape[axis] : 1;
    if (first < 0 || !size_le(first, n))
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "TopK: first: expected 0 to %lld, got %lld", (long long)n,
                        (long long)first);
    n = size_sub(n, first);
    if (k < 0 || !size_le(k, n))
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "TopK: k: expected 0 to %lld, got %lld%s", (long long)n,
                        (long long)k, size_varies(n) ? "; give the dimension a least size" : "");
    int64_t *shape = NEW_ARRAY(a, int64_t, MAX(in->ndim, 1));
    if (in->ndim) memcpy(shape, in->shape, (size_t)in->ndim * sizeof *shape);
    if (in->ndim) shape[axis] = k;
    *out_nout = 2;
    out[0] = out[1] = (struct opdef_input){in->dtype, in->ndim, shape, false};
    out[1].dtype = SOL_I64;
    return SOL_OK;
}

OPAQUE_DESCRIBE(describe_topk)
{
    (void)a;
    describe_lines(l, attrs_int(&l->attrs, "axis", 0, -1), attrs_int(&l->attrs, "k", 0, 1),
                   attrs_int(&l->attrs, "largest", 0, 1) != 0, out);
    out->first = attrs_int(&l->attrs, "first", 0, 0);
}
