/* Deployment as one function. */
#include "deploy/deploy.h"

#include <errno.h>
#include <string.h>

#include "build/build.h"

/* -- a folder for sources and objects that are not wanted */

static sol_status make_work(struct deploy *d)
{
    d->work = d->target == DEPLOY_SOURCE ? d->keys.path : folder_temporary(d->arena);
    return d->work ? SOL_OK
                   : ctx_fail(d->ctx, SOL_ERR_IO, "deploy: cannot make a temporary folder in TMPDIR, or /tmp: %s",
                              strerror(errno));
}

static void remove_work(const struct deploy *d)
{
    if (d->target != DEPLOY_SOURCE) folder_remove(d->work);
}

/* -- the graphs */

bool deploy_trains(const struct deploy *d)
{
    return !strcmp(d->keys.training, "1");
}

static sol_status check_graph(struct deploy *d, const struct deploy_graph *dg)
{
    const struct sol_graph *g = dg->g;
    const int seed = dg->seed_input;
    if (!g->outputs.n) return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: network '%s' has no outputs", g->name);
    if (graph_is_joint(g))
        return ctx_fail(d->ctx, SOL_ERR_UNSUPPORTED, "deploy: network '%s' has a gradient: deploy it without", g->name);
    if (seed >= 0 &&
        (seed != g->inputs.n - 1 || g->inputs.at[seed]->dtype != SOL_I64 || tensor_elements(g->inputs.at[seed]) != 1))
        return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: seed_input: expected the last input, an i64 number");
    return SOL_OK;
}

const struct sol_tensor *deploy_output(const struct deploy *d, const struct deploy_graph *g, int i)
{
    const bool trains = g == &d->graph[d->npredict];
    return g->g->outputs.at[(trains ? d->nwritten : 0) + i].t;
}

int deploy_inputs(const struct deploy *d)
{
    return d->ninput - (d->options->seed_input >= 0);
}

const char *deploy_input_name(const struct deploy *d, int i)
{
    const char *name = d->options->input_names ? d->options->input_names[i] : d->g->inputs.at[i]->name;
    return name ? name : "";
}

const char *deploy_output_name(const struct deploy *d, int i)
{
    const char *name = d->options->output_names ? d->options->output_names[i] : d->g->outputs.at[i].name;
    return name ? name : "";
}

static bool alike(const struct sol_tensor *a, const struct sol_tensor *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim;
}

/* All graphs have the same inputs and outputs, except for sizes. */
static sol_status check_alike(struct deploy *d, const struct deploy_graph *g, int noutput)
{
    const struct sol_graph *first = d->g, *other = g->g;
    const int ninput = other->inputs.n - (g->seed_input >= 0);
    bool same = ninput == deploy_inputs(d) && noutput == d->noutput;
    for (int i = 0; same && i < ninput; i++) same = alike(first->inputs.at[i], other->inputs.at[i]);
    for (int i = 0; same && i < noutput; i++) same = alike(first->outputs.at[i].t, deploy_output(d, g, i));
    if (same) return SOL_OK;
    return ctx_fail(d->ctx, SOL_ERR_UNSUPPORTED,
                    "deploy: network '%s': for batch size %lld it has other inputs or outputs than for %lld",
                    first->name, (long long)g->batch, (long long)d->options->batch);
}

static sol_status predicting(struct deploy *d)
{
    const struct sol_deploy_options *o = d->options;
    d->npredict = 1 + o->nmore;
    d->graph = NEW_ARRAY(d->arena, struct deploy_graph, d->npredict + 1);
    d->graph[0] =
        (struct deploy_graph){.g = d->g, .params = o->params, .seed_input = o->seed_input, .batch = o->batch, .id = ""};
    for (int i = 0; i < o->nmore; i++) {
        const struct sol_deploy_graph *m = &o->more[i];
        d->graph[1 + i] = (struct deploy_graph){.g = m->graph,
                                                .params = m->params,
                                                .seed_input = m->seed_input,
                                                .batch = m->batch,
                                                .id = arena_printf(d->arena, "_batch%lld", (long long)m->batch)};
    }
    for (int i = 0; i < d->npredict; i++) {
        const int64_t batch = d->graph[i].batch;
        if (o->nmore && batch < 1)
            return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: batch: expected a number from 1 on, got %lld",
                            (long long)batch);
        for (int k = 0; k < i; k++)
            if (d->graph[k].batch == batch)
                return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: batch size %lld: given twice", (long long)batch);
        TRY(check_graph(d, &d->graph[i]));
        TRY(check_alike(d, &d->graph[i], d->graph[i].g->outputs.n));
    }
    return SOL_OK;
}

/* Appends the gradient of all real outputs with respect to the trained parameters. */
static sol_status differentiate(struct deploy *d, struct sol_graph *g, const unsigned char *trained)
{
    VECTOR(struct sol_tensor *) with = {0};
    VECTOR(int) number = {0};
    for (int i = 0; i < d->noutput; i++)
        if (dtype_def((enum sol_dtype)d->g->outputs.at[i].t->dtype)->is_float)
            PUSH(d->arena, d->given, d->nwritten + i);
    for (int i = 0; i < g->params.n; i++) {
        if (!dtype_def((enum sol_dtype)g->params.at[i]->dtype)->is_float || (trained && !trained[i])) continue;
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

static sol_status check_written(struct deploy *d, const struct sol_graph *g)
{
    for (int i = 0; i < d->nwritten; i++) {
        const int p = d->written[i];
        const struct sol_tensor *value = g->outputs.at[i].t;
        if (p < 0 || p >= g->params.n || !alike(g->params.at[p], value) ||
            tensor_elements(g->params.at[p]) != tensor_elements(value))
            return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: training: output %d is not a new value of a parameter",
                            i);
    }
    return SOL_OK;
}

static sol_status training(struct deploy *d)
{
    const struct sol_deploy_options *o = d->options;
    const struct sol_deploy_graph *t = o->training;
    if (!deploy_trains(d)) return SOL_OK;
    if (!t) TRY(graph_copy(d->g, &d->copy));
    d->ngraph = d->npredict + 1;
    struct deploy_graph *g = &d->graph[d->npredict];
    *g = (struct deploy_graph){.g = t ? t->graph : d->copy,
                               .params = t ? t->params : o->params,
                               .seed_input = t ? t->seed_input : o->seed_input,
                               .batch = t ? t->batch : o->batch,
                               .id = "_training"};
    d->nwritten = t ? t->nwritten : 0;
    d->written = t ? t->written : NULL;
    TRY(check_graph(d, g));
    TRY(check_alike(d, g, g->g->outputs.n - d->nwritten));
    TRY(check_written(d, g->g));
    return differentiate(d, g->g, t ? t->trained : o->trained);
}

/* A library contains no pointer into this process. */
static sol_status check_functions(struct deploy *d)
{
    for (const struct sol_layer *l = d->g->first; l; l = l->next) {
        const struct layer_function *f = l->def->function;
        if (f && f->objects && d->target == DEPLOY_SOURCE)
            return ctx_fail(
                d->ctx, SOL_ERR_UNSUPPORTED,
                "deploy: layer '%s' (%s) is in object files: target source: not supported; choose shared_lib "
                "or static_lib",
                l->name, l->def->name);
        if (f && !f->source)
            return ctx_fail(
                d->ctx, SOL_ERR_UNSUPPORTED,
                "deploy: layer '%s' (%s) is a function without its source; register it with `source` and `symbol`",
                l->name, l->def->name);
    }
    return SOL_OK;
}

static sol_status graphs(struct deploy *d)
{
    TRY(check_functions(d));
    d->ninput = d->g->inputs.n;
    d->noutput = d->g->outputs.n;
    deploy_hash_model(d);
    TRY(predicting(d));
    d->ngraph = d->npredict;
    TRY(training(d));
    return deploy_dims(d);
}

/* -- the way */

static sol_status build(struct deploy *d)
{
    TRY(deploy_sources(d));
    TRY(deploy_kit(d));
    return d->target == DEPLOY_SOURCE ? SOL_OK : deploy_make(d);
}

/* Checks what is known without a network. */
static sol_status options(struct deploy *d)
{
    TRY(deploy_read_keys(d));
    TRY(deploy_check_folder(d));
    TRY(deploy_find_compiler(d));
    return deploy_versions(d);
}

static sol_status deploy(struct deploy *d)
{
    TRY(options(d));
    TRY(graphs(d));
    TRY(deploy_plan(d));
    TRY(deploy_weights(d));
    TRY(deploy_golden(d));
    TRY(file_make_folder(d->ctx, d->keys.path));
    TRY(make_work(d));
    const sol_status status = build(d);
    remove_work(d);
    if (!status)
        LOG(d->ctx, LOG_INFO, "core", "%s: %s for %s written into %s, weights %.1f MB", d->g->name,
            d->target == DEPLOY_SOURCE ? "the source" : deploy_library(d),
            d->there.type ? d->version[0].name : d->device->name, d->keys.path, (double)d->weights_bytes / 1e6);
    return status;
}

sol_status sol_deploy(struct sol_ctx *ctx, struct sol_graph *g, const struct sol_deploy_options *options)
{
    struct arena *a = arena_create(ctx);
    if (!a) return ctx_check(ctx);
    struct deploy d = {.ctx = ctx, .arena = a, .g = g, .options = options};
    sol_status status = deploy(&d);
    ctx_progress(ctx, NULL, 0, 0);
    if (status) ctx_where(ctx, status, "network %s: ", g->name);
    if (d.copy) sol_graph_destroy(d.copy);
    arena_destroy(a);
    return status;
}

sol_status sol_deploy_check(struct sol_ctx *ctx, const struct sol_deploy_options *o)
{
    struct arena *a = arena_create(ctx);
    if (!a) return ctx_check(ctx);
    struct deploy d = {.ctx = ctx, .arena = a, .options = o};
    const sol_status status = options(&d);
    arena_destroy(a);
    return status;
}
