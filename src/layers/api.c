/* The functions of sol.h that create a graph: one whose layers are of the kinds of layers.def. */
#include "layers/layers.h"

static const struct layer_kinds kinds = {
    .find = layer_def,
    .attrs = layer_attrs,
    .bind = layer_bind,
    .run = layer_run,
    .is_default = layer_attr_is_default,
};

sol_status sol_graph_create(struct sol_ctx *ctx, const char *name, struct sol_graph **out_g)
{
    return graph_create(ctx, &kinds, name, out_g);
}

sol_status sol_graph_parse(struct sol_ctx *ctx, const char *text, struct sol_graph **out_g)
{
    return graph_parse(ctx, &kinds, text, out_g);
}

int sol_layer_known(const char *kind)
{
    return layer_def(kind) != NULL;
}

const char *sol_layer_at(int i, const char **out_attributes, const char **out_doc)
{
    const struct layer_def *def = layer_def_at(i);
    if (!def) return NULL;
    *out_attributes = def->defaults ? def->defaults : "";
    *out_doc = def->doc ? def->doc : "";
    return def->name;
}
