/* The functions of sol.h that create a graph: one whose layers are of the kinds of layers.def, or registered. Plug-ins
 * are loaded first. */
#include "extend/extend.h"
#include "layers/layers.h"

static const struct layer_kinds kinds = {
    .find = layer_find,
    .define = layer_define,
    .attrs = layer_attrs,
    .bind = layer_bind,
    .run = layer_run,
    .is_default = layer_attr_is_default,
};

sol_status sol_graph_create(struct sol_ctx *ctx, const char *name, struct sol_graph **out_g)
{
    TRY(extend_load(ctx));
    return graph_create(ctx, &kinds, name, out_g);
}

sol_status sol_graph_parse(struct sol_ctx *ctx, const char *text, struct sol_graph **out_g)
{
    TRY(extend_load(ctx));
    return graph_parse(ctx, &kinds, text, out_g);
}

int sol_layer_known(struct sol_ctx *ctx, const char *kind)
{
    return !extend_load(ctx) && layer_find(ctx, kind) != NULL;
}

const char *sol_layer_at(struct sol_ctx *ctx, int i, const char **out_attributes, const char **out_doc)
{
    int own = 0;
    while (layer_def_at(own)) own++;
    const bool loaded = i < own || !extend_load(ctx);
    const struct layer_def *def = i < own ? layer_def_at(i) : loaded ? layer_registered_at(ctx, i - own) : NULL;
    if (!def) return NULL;
    *out_attributes = def->defaults ? def->defaults : "";
    *out_doc = def->doc ? def->doc : "";
    return def->name;
}
