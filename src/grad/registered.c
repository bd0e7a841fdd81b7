/* Layers from outside whose gradient is another layer (sol/extend.h). Its tensors are named after those of the layer.
 */
#include "grad/grad.h"

/* The tensor of a layer, or the gradient of an output, by its name in the definition. */
static sol_status tensor_named(struct rule_call *c, const char *name, struct sol_tensor **out_t)
{
    const struct opdef *row = c->l->def->row;
    int in = opdef_number(row, false, name), out = opdef_number(row, true, name);
    if (in >= 0) *out_t = in < c->l->nin ? c->l->in[in] : NULL;
    if (out >= 0) *out_t = c->l->out[out];
    if (in >= 0 || out >= 0) return SOL_OK;
    out = opdef_number(row, true, name + 2); /* d_y */
    *out_t = c->d[out];
    if (*out_t) return SOL_OK;
    const struct sol_tensor *y = c->l->out[out];
    int64_t *shape = NEW_ARRAY(c->g->arena, int64_t, y->ndim + 1);
    for (int d = 0; d < y->ndim; d++) shape[d] = y->dim[d].size;
    return grad_zeros(c->g, c->l->name, (enum sol_dtype)y->dtype, y->ndim, shape, out_t);
}

static bool same_kind_of_tensor(const struct sol_tensor *a, const struct sol_tensor *b)
{
    bool same = a->dtype == b->dtype && a->ndim == b->ndim;
    for (int d = 0; same && d < a->ndim; d++) same = a->dim[d].size == b->dim[d].size;
    return same;
}

/* The attributes that both layers have. */
static struct attrs common_attributes(struct arena *a, const struct sol_layer *l, const struct layer_def *with)
{
    struct attrs common = {0, NEW_ARRAY(a, struct opdef_attr, l->attrs.n + 1)};
    for (int i = 0; i < l->attrs.n; i++)
        if (layer_has_attribute(with, l->attrs.at[i].name)) common.at[common.n++] = l->attrs.at[i];
    return common;
}

sol_status grad_registered(struct rule_call *c)
{
    struct sol_layer *l = c->l, *made;
    const struct layer_def *def = c->g->kinds->find(c->g->ctx, l->def->gradient);
    if (!def) return ctx_fail(c->g->ctx, SOL_ERR_INTERNAL, "gradient of '%s': no layer %s", l->name, l->def->gradient);
    const int n = opdef_count(def->row, false);
    struct sol_tensor **in = NEW_ARRAY(c->g->arena, struct sol_tensor *, n + 1);
    for (int i = 0; i < n; i++) TRY(tensor_named(c, opdef_name(def->row, false, i), &in[i]));
    const struct attrs attrs = common_attributes(c->g->arena, l, def);
    const sol_status status =
        graph_add(c->g, NULL, &(struct new_layer){def->name, n, in, &attrs, l->name, l->where}, &made);
    if (status) return ctx_where(c->g->ctx, status, "gradient of layer '%s' (%s): ", l->name, l->def->name);
    for (int o = 0; o < made->nout; o++) {
        const char *name = opdef_name(def->row, true, o);
        const int i = opdef_number(l->def->row, false, name + 2);
        if (i >= l->nin || !c->want[i]) continue;
        if (!same_kind_of_tensor(made->out[o], l->in[i]))
            return ctx_fail(c->g->ctx, SOL_ERR_INVALID,
                            "gradient of layer '%s' (%s): %s makes a %s whose type or shape is not that of %s", l->name,
                            l->def->name, def->name, name, name + 2);
        for (int d = 0; d < l->in[i]->ndim; d++) made->out[o]->dim[d].purpose = l->in[i]->dim[d].purpose;
        c->out_d[i] = made->out[o];
    }
    return SOL_OK;
}

bool grad_registered_of(const struct sol_layer *l, int input)
{
    const struct layer_def *def = l->out[0]->graph->kinds->find(l->out[0]->graph->ctx, l->def->gradient);
    for (int o = 0; def && o < opdef_count(def->row, true); o++)
        if (opdef_number(l->def->row, false, opdef_name(def->row, true, o) + 2) == input) return true;
    return false;
}
