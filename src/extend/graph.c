/* What passes from outside see of a graph, and how they change it. */
#include "extend/extend.h"
#include "layers/layers.h"
#include "passes/passes.h"

sol_status sol_pass_register(struct sol_ctx *ctx, const struct sol_pass_def *def)
{
    if (def->size < sizeof *def || !def->run)
        return ctx_fail(ctx, SOL_ERR_INVALID, "sol_pass_register: expected a struct of %zu bytes with a function",
                        sizeof *def);
    if (!layer_is_outside(def->name))
        return ctx_fail(ctx, SOL_ERR_INVALID, "pass '%s': expected a namespace and a name, such as \"mylib::fuse\"",
                        def->name ? def->name : "");
    struct sol_pass_def own = *def;
    if (!own.place) own.place = "after cse";
    return passes_register(ctx, &own);
}

/* -- reading */

struct sol_layer *sol_graph_first(const struct sol_graph *g)
{
    return g->first;
}

struct sol_layer *sol_layer_next(const struct sol_layer *l)
{
    return l->next;
}

const char *sol_layer_kind(const struct sol_layer *l)
{
    return l->def->name;
}

const char *sol_layer_name(const struct sol_layer *l)
{
    return l->name;
}

int sol_layer_inputs(const struct sol_layer *l)
{
    return l->nin;
}

int sol_layer_outputs(const struct sol_layer *l)
{
    return l->nout;
}

struct sol_tensor *sol_layer_input(const struct sol_layer *l, int i)
{
    return i >= 0 && i < l->nin ? l->in[i] : NULL;
}

struct sol_tensor *sol_layer_output(const struct sol_layer *l, int i)
{
    return i >= 0 && i < l->nout ? l->out[i] : NULL;
}

int sol_layer_attribute(const struct sol_layer *l, int i, struct sol_attr *out_attr)
{
    if (i < 0 || i >= l->attrs.n) return 0;
    const struct opdef_attr *v = &l->attrs.at[i];
    *out_attr = (struct sol_attr){.name = v->name, .n = v->n, .ints = v->ints, .reals = v->reals, .text = v->text};
    out_attr->kind = v->kind == ATTR_INT ? SOL_ATTR_INT : v->kind == ATTR_REAL ? SOL_ATTR_REAL : SOL_ATTR_TEXT;
    return 1;
}

struct sol_layer *sol_tensor_maker(const struct sol_tensor *t)
{
    return t->role == TENSOR_VALUE ? t->from : NULL;
}

int sol_tensor_readers(const struct sol_tensor *t)
{
    int n = 0;
    for (const struct sol_layer *l = t->graph->first; l; l = l->next)
        for (int i = 0; i < l->nin; i++) n += l->in[i] == t;
    for (int i = 0; i < t->graph->outputs.n; i++) n += t->graph->outputs.at[i].t == t;
    return n;
}

/* -- changing */

sol_status sol_graph_insert(struct sol_graph *g, struct sol_layer *before, const struct sol_new_layer *n, int nout,
                            struct sol_tensor **out)
{
    return graph_layer(g, before, n, nout, out);
}

sol_status sol_graph_replace(struct sol_graph *g, struct sol_tensor *old, struct sol_tensor *with)
{
    if (!old || !with || old->graph != g || with->graph != g)
        return ctx_fail(g->ctx, SOL_ERR_INVALID, "sol_graph_replace: expected two tensors of this graph");
    bool same = old->dtype == with->dtype && old->ndim == with->ndim;
    for (int d = 0; same && d < old->ndim; d++) same = old->dim[d].size == with->dim[d].size;
    if (!same)
        return ctx_fail(g->ctx, SOL_ERR_INVALID,
                        "sol_graph_replace: the tensors have different types or shapes (layers '%s' and '%s')",
                        old->from ? old->from->name : "", with->from ? with->from->name : "");
    graph_replace(g, old, with);
    return ctx_check(g->ctx);
}

sol_status sol_graph_fail(struct sol_graph *g, const char *text)
{
    return ctx_fail(g->ctx, SOL_ERR_INVALID, "%s", text);
}
