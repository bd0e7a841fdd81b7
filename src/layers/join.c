/* Definitions that join or split tensors along one axis, with one statement for each piece. Index variables 0.. are the
 * dimensions; pieces of equal size share an index variable along the axis. */
#include <string.h>

#include "layers/build.h"

enum { PIECES = SOL_MAX_DIMS, MOST_SIZES = 38 }; /* index variables for the sizes along the axis */

struct pieces {
    int ndim, axis; /* of the joined tensor */
    bool flat;      /* a piece lacks the axis */
    int n;
    int *ivar;      /* of each piece */
    int64_t *start; /* offset of each piece in the joined tensor */
    int nsizes;
    int64_t sizes[MOST_SIZES];
    int64_t total;
};

static sol_status add_piece(struct sol_ctx *ctx, const struct layer_def *def, struct pieces *p, int64_t size)
{
    int k = 0;
    while (k < p->nsizes && p->sizes[k] != size) k++;
    if (k == MOST_SIZES)
        return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "%s: expected at most %d different sizes along the axis", def->name,
                        MOST_SIZES);
    if (k == p->nsizes) p->sizes[p->nsizes++] = size;
    p->ivar[p->n] = PIECES + k;
    p->start[p->n++] = p->total;
    p->total = size_add(p->total, size);
    return SOL_OK;
}

/* "[A X B]" for piece i, or "[A X+8 B]" for its position in the joined tensor */
static void put_piece(struct text *out, const struct pieces *p, int i, bool whole)
{
    text_put(out, "[");
    for (int d = 0; d < p->ndim; d++) {
        if (d != p->axis)
            text_put(out, " %s", ivar(d));
        else if (p->flat) {
            if (whole) text_put(out, " %lld", (long long)p->start[i]);
        } else {
            text_put(out, " %s", ivar(p->ivar[i]));
            if (whole && p->start[i]) text_put(out, "+%lld", (long long)p->start[i]);
        }
    }
    text_put(out, "]");
}

static void put_whole(struct text *out, const struct pieces *p)
{
    text_put(out, "[");
    put_ivars(out, 0, p->ndim);
    text_put(out, "]");
}

static struct pieces pieces_new(struct arena *a, int n)
{
    return (struct pieces){.ivar = NEW_ARRAY(a, int, n), .start = NEW_ARRAY(a, int64_t, n)};
}

/* Head and statements of `x0 x1 .. -> y` */
static void put_join(struct text *out, const struct pieces *p)
{
    for (int i = 0; i < p->n; i++) {
        text_put(out, "x%d", i);
        put_piece(out, p, i, false);
    }
    text_put(out, " -> y");
    put_whole(out, p);
    text_put(out, " | #%s=%lld;", ivar(p->axis), (long long)p->total);
    text_put(out, " | | ");
    for (int i = 0; i < p->n; i++) {
        text_put(out, i ? "; y" : "y");
        put_piece(out, p, i, true);
        text_put(out, " = x%d", i);
        put_piece(out, p, i, false);
    }
}

static sol_status same_inputs(struct sol_ctx *ctx, const struct layer_def *def, int nin, const struct opdef_input *in,
                              int but)
{
    if (nin < 1) return ctx_fail(ctx, SOL_ERR_INVALID, "%s: expected at least one input", def->name);
    for (int i = 1; i < nin; i++) {
        if (in[i].dtype != in[0].dtype)
            return ctx_fail(ctx, SOL_ERR_INVALID, "%s: input %d: expected type %s, got %s", def->name, i,
                            type_name(in[0].dtype), type_name(in[i].dtype));
        TRY(rank_of(ctx, def, in, i, in[0].ndim, true));
        for (int d = 0; d < in[0].ndim; d++)
            if (d != but && in[i].shape[d] != in[0].shape[d])
                return ctx_unequal(ctx, in[0].shape[d], in[i].shape[d],
                                   ctx_fail(ctx, SOL_ERR_INVALID,
                                            "%s: input %d: dimension %d: expected size %lld, got %lld", def->name, i, d,
                                            (long long)in[0].shape[d], (long long)in[i].shape[d]));
    }
    return SOL_OK;
}

BUILDER(build_concat)
{
    struct pieces p = pieces_new(a, nin);
    if (nin) TRY(axis_attr(arena_ctx(a), def, attrs, "axis", in[0].ndim, &p.axis));
    TRY(same_inputs(arena_ctx(a), def, nin, in, p.axis));
    p.ndim = in[0].ndim;
    for (int i = 0; i < nin; i++) TRY(add_piece(arena_ctx(a), def, &p, in[i].shape[p.axis]));
    put_join(out, &p);
    return SOL_OK;
}

BUILDER(build_stack)
{
    struct pieces p = pieces_new(a, nin);
    TRY(same_inputs(arena_ctx(a), def, nin, in, -1));
    TRY(axis_attr(arena_ctx(a), def, attrs, "axis", in[0].ndim + 1, &p.axis));
    p.ndim = in[0].ndim + 1;
    p.flat = true;
    if (p.ndim > SOL_MAX_DIMS)
        return ctx_fail(arena_ctx(a), SOL_ERR_UNSUPPORTED, "%s: expected at most %d dimensions", def->name,
                        SOL_MAX_DIMS);
    for (int i = 0; i < nin; i++) TRY(add_piece(arena_ctx(a), def, &p, 1));
    put_join(out, &p);
    return SOL_OK;
}

/* Head and statements of `x -> y0 y1 ..`. The sizes of pieces along the axis are among the sizes. */
static void put_parts(struct text *out, const struct pieces *p)
{
    text_put(out, "x");
    put_whole(out, p);
    text_put(out, " ->");
    for (int i = 0; i < p->n; i++) {
        text_put(out, " y%d", i);
        put_piece(out, p, i, false);
    }
    text_put(out, " |");
    if (!p->flat) put_sizes(out, PIECES, p->nsizes, p->sizes);
    text_put(out, " | | ");
    for (int i = 0; i < p->n; i++) {
        text_put(out, i ? "; y%d" : "y%d", i);
        put_piece(out, p, i, false);
        text_put(out, " = x");
        put_piece(out, p, i, true);
    }
}

BUILDER(build_split)
{
    (void)nin;
    int n = attr_length(attrs, "sizes");
    struct pieces p = pieces_new(a, n);
    p.ndim = in->ndim;
    TRY(axis_attr(arena_ctx(a), def, attrs, "axis", in->ndim, &p.axis));
    for (int i = 0; i < n; i++) {
        const int64_t size = attrs_int(attrs, "sizes", i, 0), rest = size_sub(in->shape[p.axis], p.total);
        if (size < 0 || (!size_varies(rest) && !size_varies(size) && size > rest))
            return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: sizes: they exceed the axis, which has %lld", def->name,
                            (long long)in->shape[p.axis]);
        TRY(add_piece(arena_ctx(a), def, &p, size));
    }
    if (p.total != in->shape[p.axis] || n < 1)
        return ctx_unequal(arena_ctx(a), in->shape[p.axis], p.total,
                           ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: sizes: together %lld, the axis has %lld",
                                    def->name, (long long)p.total, (long long)in->shape[p.axis]));
    put_parts(out, &p);
    return SOL_OK;
}

BUILDER(build_unbind)
{
    (void)nin;
    int axis;
    TRY(axis_attr(arena_ctx(a), def, attrs, "axis", in->ndim, &axis));
    int64_t n = in->shape[axis];
    TRY(number_of(arena_ctx(a), def, arena_printf(a, "dimension %d", axis), n));
    if (n < 1 || n > 4096)
        return ctx_fail(arena_ctx(a), SOL_ERR_UNSUPPORTED, "%s: expected an axis of 1 to 4096, got %lld", def->name,
                        (long long)n);
    struct pieces p = pieces_new(a, (int)n);
    p.ndim = in->ndim;
    p.axis = axis;
    p.flat = true;
    for (int64_t i = 0; i < n; i++) TRY(add_piece(arena_ctx(a), def, &p, 1));
    put_parts(out, &p);
    return SOL_OK;
}
