/* A scatter whose indices are equal along all dimensions but one writes whole rows: ScatterElements(x, Expand(i), u)
 * becomes IndexPut(x, u, i), whose indices are a list. No index is repeated in memory, and rows are written at once.
 * Updates that are repeated need no memory either. If they and x are one number each, as in a count, all elements of a
 * row are equal: rows of one element are written, and repeated. */
#include "passes/passes.h"

/* What Expand repeats. */
static struct sol_tensor *repeated(struct sol_tensor *t)
{
    return t->role == TENSOR_VALUE && is_kind(t->from, "Expand") ? t->from->in[0] : NULL;
}

/* Do the indices, repeated from `row`, differ along the axis alone, and do they and u span x along the others? */
static bool writes_rows(const struct sol_layer *l, int axis, const struct sol_tensor *row)
{
    const struct sol_tensor *x = l->in[0], *i = l->in[1], *u = l->in[2];
    for (int d = 0; d < x->ndim; d++) {
        const int own = d - (x->ndim - row->ndim);
        if (i->dim[d].size != u->dim[d].size || (d != axis && i->dim[d].size != x->dim[d].size)) return false;
        if (d == axis ? own < 0 || row->dim[own].size != i->dim[d].size : own >= 0 && row->dim[own].size != 1)
            return false;
    }
    return true;
}

/* Adds an Expand or a Reshape of t to a shape in front of l. */
static sol_status add_shaped(struct sol_graph *g, struct sol_layer *l, const char *kind, struct sol_tensor *t,
                             struct opdef_attr shape, struct sol_tensor **out_t)
{
    return pass_add(g, l, l, &(struct new_layer){.kind = kind, .nin = 1, .in = &t, .attrs = &(struct attrs){1, &shape}},
                    out_t);
}

static struct opdef_attr to_shape(int ndim, int64_t *sizes)
{
    return (struct opdef_attr){.name = "shape", .kind = ATTR_INT, .n = ndim, .ints = sizes};
}

static bool is_number(const struct sol_tensor *t)
{
    return t && tensor_elements(t) == 1;
}

/* Writes rows in place of the elements that layer l writes. */
static sol_status write_rows(struct sol_graph *g, struct sol_layer *l, int64_t axis, struct sol_tensor *row)
{
    struct sol_tensor *const few = repeated(l->in[2]), *const number = repeated(l->in[0]), *const x = l->in[0];
    struct sol_tensor *in[3] = {x, few ? few : l->in[2], row}, *y;
    const bool equal = is_number(few) && is_number(number);
    int64_t shape[SOL_MAX_DIMS], column[SOL_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++) shape[d] = x->dim[d].size, column[d] = d == axis ? x->dim[d].size : 1;
    if (equal) TRY(add_shaped(g, l, "Expand", number, to_shape(x->ndim, column), &in[0]));
    if (row->ndim != 1) TRY(add_shaped(g, l, "Reshape", row, to_shape(1, &l->in[1]->dim[axis].size), &in[2]));
    struct opdef_attr put[] = {
        {.name = "dims", .kind = ATTR_INT, .n = 1, .ints = &axis},
        {.name = "mode", .kind = ATTR_TEXT, .n = -1, .text = attrs_text(&l->attrs, "mode", "none")}};
    TRY(pass_add(g, l, l, &(struct new_layer){.kind = "IndexPut", .nin = 3, .in = in, .attrs = &(struct attrs){2, put}},
                 &y));
    if (equal) TRY(add_shaped(g, l, "Expand", y, to_shape(x->ndim, shape), &y));
    graph_replace(g, l->out[0], y);
    graph_remove(g, l);
    return SOL_OK;
}

sol_status pass_scatter_rows(struct sol_graph *g)
{
    for (struct sol_layer *l = g->first, *next; l; l = next) {
        next = l->next;
        struct sol_tensor *row = is_kind(l, "ScatterElements") ? repeated(l->in[1]) : NULL;
        if (!row || !l->in[0]->ndim) continue;
        int64_t axis = attrs_int(&l->attrs, "axis", 0, 0);
        if (axis < 0) axis += l->in[0]->ndim;
        if (writes_rows(l, (int)axis, row)) TRY(write_rows(g, l, axis, row));
    }
    return SOL_OK;
}
