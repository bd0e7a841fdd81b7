/* A scatter whose indices are equal along all dimensions but one writes whole rows: ScatterElements(x, Expand(i), u)
 * becomes IndexPut(x, u, i), whose indices are a list. No index is repeated in memory, and rows are written at once.
 * Updates that are repeated need no memory either. */
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

sol_status pass_scatter_rows(struct sol_graph *g)
{
    for (struct sol_layer *l = g->first, *next; l; l = next) {
        next = l->next;
        struct sol_tensor *row = is_kind(l, "ScatterElements") ? repeated(l->in[1]) : NULL;
        if (!row || !l->in[0]->ndim) continue;
        int64_t axis = attrs_int(&l->attrs, "axis", 0, 0), count[1];
        if (axis < 0) axis += l->in[0]->ndim;
        if (!writes_rows(l, (int)axis, row)) continue;
        struct sol_tensor *const few = repeated(l->in[2]);
        struct sol_tensor *in[3] = {l->in[0], few ? few : l->in[2], row}, *y;
        *count = l->in[1]->dim[axis].size;
        struct opdef_attr a = {.name = "shape", .kind = ATTR_INT, .n = 1, .ints = count};
        if (row->ndim != 1)
            TRY(pass_add(g, l, l,
                         &(struct new_layer){.kind = "Reshape", .nin = 1, .in = &row, .attrs = &(struct attrs){1, &a}},
                         &in[2]));
        struct opdef_attr put[] = {
            {.name = "dims", .kind = ATTR_INT, .n = 1, .ints = &axis},
            {.name = "mode", .kind = ATTR_TEXT, .n = -1, .text = attrs_text(&l->attrs, "mode", "none")}};
        TRY(pass_add(g, l, l,
                     &(struct new_layer){.kind = "IndexPut", .nin = 3, .in = in, .attrs = &(struct attrs){2, put}},
                     &y));
        graph_replace(g, l->out[0], y);
        graph_remove(g, l);
    }
    return SOL_OK;
}
