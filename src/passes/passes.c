/* Runs the passes in their order. */
#include "passes/passes.h"

#include <string.h>

static const struct {
    const char *name, *doc;
    sol_status (*run)(struct sol_graph *g);
} passes[] = {
#define X(name, doc) {#name, doc, pass_##name},
#include "passes/passes.def"
#undef X
};

static sol_status run(struct sol_graph *g, int i)
{
    const struct arena_mark mark = arena_mark(g->scratch);
    sol_status s = passes[i].run(g);
    arena_rewind(g->scratch, mark);
    if (!s) s = ctx_check(g->ctx);
    if (!s && ctx_verifies(g->ctx)) s = graph_verify(g);
    return s ? ctx_where(g->ctx, s, "pass %s: ", passes[i].name) : SOL_OK;
}

sol_status passes_run(struct sol_graph *g)
{
    for (int i = 0; i < COUNT_OF(passes); i++) {
        TRY(passes_run_registered(g, false, passes[i].name));
        TRY(run(g, i));
        TRY(passes_run_registered(g, true, passes[i].name));
    }
    return SOL_OK;
}

sol_status passes_run_one(struct sol_graph *g, const char *name)
{
    for (int i = 0; i < COUNT_OF(passes); i++)
        if (!strcmp(passes[i].name, name)) return run(g, i);
    return ctx_fail(g->ctx, SOL_ERR_INVALID, "no pass is called '%s'; sol-opt --passes lists them", name);
}

const char *passes_name(int i, const char **out_doc)
{
    if (i < 0 || i >= COUNT_OF(passes)) return NULL;
    *out_doc = passes[i].doc;
    return passes[i].name;
}
