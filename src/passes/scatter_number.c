/* What is written to by index, if it is one number throughout, such as the zeros of an embedding's gradient, becomes
 * that number and a shape. So it does not lie in memory before the layer, which would copy it. */
#include "passes/passes.h"

#include <math.h>
#include <string.h>

static bool writes_by_index(const struct sol_layer *l)
{
    return is_kind(l, "ScatterElements") || is_kind(l, "ScatterND") || is_kind(l, "IndexPut");
}

/* The number that all elements of x are. */
static bool is_number(const struct sol_tensor *x, double *out_v)
{
    if (x->role != TENSOR_VALUE || !x->ndim) return false; /* what lies in memory anyway is copied */
    if (is_kind(x->from, "Fill"))
        *out_v = attrs_real(&x->from->attrs, "v", 0);
    else if (!known_scalar(x, out_v))
        return false;
    return fabs(*out_v) < 0x1p53; /* a double holds it exactly, whatever the type */
}

sol_status pass_scatter_number(struct sol_graph *g)
{
    for (struct sol_layer *l = g->first, *next; l; l = next) {
        struct sol_tensor *in[SOL_MAX_DIMS + 2], *y;
        double v;
        next = l->next;
        if (!writes_by_index(l) || l->nin > COUNT_OF(in) || !is_number(l->in[0], &v)) continue;
        const struct sol_tensor *x = l->in[0];
        int64_t *shape = NEW_ARRAY(g->arena, int64_t, SOL_MAX_DIMS);
        struct opdef_attr *attr = NEW_ARRAY(g->arena, struct opdef_attr, l->attrs.n + 1);
        if (!shape || !attr) return ctx_check(g->ctx);
        for (int d = 0; d < x->ndim; d++) shape[d] = x->dim[d].size;
        int n = 0;
        for (int i = 0; i < l->attrs.n; i++)
            if (strcmp(l->attrs.at[i].name, "shape") != 0) attr[n++] = l->attrs.at[i];
        attr[n++] = (struct opdef_attr){.name = "shape", .kind = ATTR_INT, .n = x->ndim, .ints = shape};
        memcpy(in, l->in, (size_t)l->nin * sizeof *in);
        TRY(graph_number(g, v, (enum sol_dtype)x->dtype, &in[0]));
        TRY(pass_add(
            g, l, l,
            &(struct new_layer){.kind = l->def->name, .nin = l->nin, .in = in, .attrs = &(struct attrs){n, attr}}, &y));
        for (int d = 0; d < y->ndim; d++) y->dim[d].purpose = l->out[0]->dim[d].purpose;
        graph_replace(g, l->out[0], y);
        graph_remove(g, l);
    }
    return SOL_OK;
}
