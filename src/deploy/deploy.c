/* The way of a deployment, as one function. */
#include "deploy/deploy.h"

#include <errno.h>
#include <string.h>

#include "build/build.h"

/* -- a folder for sources and objects that are not wanted */

static sol_status make_work(struct deploy *d)
{
    d->work = d->target == DEPLOY_SOURCE ? d->keys.path : folder_temporary(d->arena);
    return d->work ? SOL_OK
                   : ctx_fail(d->ctx, SOL_ERR_IO,
                              "deploy: cannot make a temporary folder: %s; make room, or set TMPDIR", strerror(errno));
}

static void remove_work(const struct deploy *d)
{
    if (d->target != DEPLOY_SOURCE) folder_remove(d->work);
}

/* -- the way */

static sol_status check_graph(struct deploy *d)
{
    const struct sol_graph *g = d->g;
    const int seed = d->options->seed_input;
    if (!g->outputs.n) return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: network '%s' has no outputs", g->name);
    if (graph_is_joint(g))
        return ctx_fail(d->ctx, SOL_ERR_UNSUPPORTED, "deploy: network '%s' has a gradient: deploy it without", g->name);
    if (seed >= 0 &&
        (seed != g->inputs.n - 1 || g->inputs.at[seed]->dtype != SOL_I64 || tensor_elements(g->inputs.at[seed]) != 1))
        return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: seed_input: expected the last input, an i64 number");
    return SOL_OK;
}

/* Appends the gradient, of all outputs of real types with regard to what learns. */
static sol_status differentiate(struct deploy *d)
{
    struct sol_graph *g = d->g;
    VECTOR(struct sol_tensor *) with = {0};
    VECTOR(int) number = {0};
    d->ninput = g->inputs.n;
    d->noutput = g->outputs.n;
    if (strcmp(d->keys.training, "1")) return SOL_OK;
    if (strcmp(d->keys.pack, "load"))
        return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: pack: with training it is load: weights change");
    for (int i = 0; i < g->outputs.n; i++)
        if (dtype_def((enum sol_dtype)g->outputs.at[i].t->dtype)->is_float) PUSH(d->arena, d->given, i);
    for (int i = 0; i < g->params.n; i++) {
        if (!dtype_def((enum sol_dtype)g->params.at[i]->dtype)->is_float) continue;
        if (d->options->trained && !d->options->trained[i]) continue;
        PUSH(d->arena, with, g->params.at[i]);
        PUSH(d->arena, number, i);
    }
    int *reached = NEW_ARRAY(d->arena, int, with.n + 1);
    TRY(sol_graph_differentiate(g, d->given.n, d->given.at, with.n, with.at, reached));
    for (int i = 0; i < with.n; i++)
        if (reached[i]) PUSH(d->arena, d->trained, number.at[i]);
    if (d->trained.n) return SOL_OK;
    return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: training: no parameter has a gradient");
}

static sol_status build(struct deploy *d)
{
    TRY(deploy_sources(d));
    TRY(deploy_kit(d));
    return d->target == DEPLOY_SOURCE ? SOL_OK : deploy_make(d);
}

static sol_status deploy(struct deploy *d)
{
    TRY(deploy_read_keys(d));
    TRY(check_graph(d));
    TRY(deploy_find_compiler(d));
    TRY(differentiate(d));
    TRY(deploy_versions(d));
    TRY(deploy_weights(d));
    TRY(file_make_folder(d->ctx, d->keys.path));
    TRY(make_work(d));
    const sol_status status = build(d);
    remove_work(d);
    if (!status)
        LOG(d->ctx, LOG_INFO, "core", "%s: %s for %s written into %s, weights %.1f MB", d->g->name,
            d->target == DEPLOY_SOURCE ? "the source" : deploy_library(d), d->device, d->keys.path,
            (double)d->weights_bytes / 1e6);
    return status;
}

sol_status sol_deploy(struct sol_ctx *ctx, struct sol_graph *g, const struct sol_deploy_options *options)
{
    struct arena *a = arena_create(ctx);
    if (!a) return ctx_check(ctx);
    struct deploy d = {.ctx = ctx, .arena = a, .g = g, .options = options};
    sol_status status = deploy(&d);
    if (status) ctx_where(ctx, status, "network %s: ", g->name);
    arena_destroy(a);
    return status;
}
