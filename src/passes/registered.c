/* Passes from outside (sol/extend.h). They belong to a context and live as long as it does. */
#include <string.h>

#include "base/registry.h"
#include "passes/passes.h"

struct pass_registry {
    struct registry base;
    VECTOR(struct sol_pass_def) passes;
};

static void *make(struct sol_ctx *ctx)
{
    return registry_make(ctx, sizeof(struct pass_registry));
}

static struct pass_registry *registry_of(struct sol_ctx *ctx)
{
    static const struct ctx_part kind = {.make = make, .destroy = registry_destroy};
    return ctx_part(ctx, &kind);
}

/* -- registering */

static bool is_place(const char *place)
{
    const char *name = strchr(place, ' ');
    const bool side = !strncmp(place, "before ", 7) || !strncmp(place, "after ", 6);
    const char *known, *doc;
    for (int i = 0; side && (known = passes_name(i, &doc)); i++)
        if (!strcmp(known, name + 1)) return true;
    return false;
}

sol_status passes_register(struct sol_ctx *ctx, const struct sol_pass_def *def)
{
    struct pass_registry *r = registry_of(ctx);
    if (!r) return ctx_fail(ctx, SOL_ERR_NOMEM, "pass %s: no memory", def->name);
    if (!is_place(def->place))
        return ctx_fail(
            ctx, SOL_ERR_INVALID,
            "pass %s: place: expected \"before NAME\" or \"after NAME\" of a pass (sol-opt --passes), got '%s'",
            def->name, def->place);
    sol_status status = SOL_OK;
    pthread_mutex_lock(&r->base.lock);
    int at = 0;
    while (at < r->passes.n && strcmp(r->passes.at[at].name, def->name)) at++;
    struct sol_pass_def own = *def;
    own.name = arena_strdup(r->base.arena, def->name);
    own.place = arena_strdup(r->base.arena, def->place);
    if (at < r->passes.n && !def->replace)
        status = ctx_fail(ctx, SOL_ERR_INVALID,
                          "pass %s: it is registered already; choose another name, or set `replace`", def->name);
    else if (at < r->passes.n)
        r->passes.at[at] = own;
    else
        PUSH(r->base.arena, r->passes, own);
    pthread_mutex_unlock(&r->base.lock);
    return status ? status : ctx_check(ctx);
}

/* -- running */

/* The i-th pass of this place. */
static bool pass_at(struct pass_registry *r, bool after, const char *name, int i, struct sol_pass_def *out)
{
    bool found = false;
    pthread_mutex_lock(&r->base.lock);
    for (int k = 0; k < r->passes.n && !found; k++) {
        const char *place = r->passes.at[k].place;
        const bool behind = !strncmp(place, "after ", 6);
        if (behind != after || strcmp(strchr(place, ' ') + 1, name) || i-- > 0) continue;
        *out = r->passes.at[k];
        found = true;
    }
    pthread_mutex_unlock(&r->base.lock);
    return found;
}

static sol_status run_one(struct sol_graph *g, const struct sol_pass_def *p)
{
    const struct arena_mark mark = arena_mark(g->scratch);
    sol_status status = p->run(p->user, g);
    arena_rewind(g->scratch, mark);
    if (!status) status = ctx_check(g->ctx);
    if (!status) status = graph_verify(g);
    return status ? status : pass_dead(g);
}

sol_status passes_run_registered(struct sol_graph *g, bool after, const char *name)
{
    struct pass_registry *r = registry_of(g->ctx);
    struct sol_pass_def p;
    for (int i = 0; r && pass_at(r, after, name, i, &p); i++) {
        const sol_status status = run_one(g, &p);
        if (status) return ctx_where(g->ctx, status, "pass %s: ", p.name);
    }
    return SOL_OK;
}
