/* Runs code at deployment: steps of `prepare`, to pack weights ahead, and the network, for golden.c. Kernels are C with
 * the compiler's vector types, so kernels for another machine can be compiled for this one; only the last bits may
 * differ. */
#include <string.h>

#include "build/build.h"
#include "deploy/deploy.h"
#include "rt/rt.h"

/* The schedule reduced to these steps, with renumbered kernels. */
static struct schedule *only_prepare(struct deploy *d, const struct schedule *from, const bool *only)
{
    struct schedule *s = arena_memdup(d->arena, from, sizeof *from);
    struct schedule_program *pr = &s->program[PROGRAM_PREPARE];
    int *number = NEW_ARRAY(d->arena, int, from->kernels.n + 1);
    memset(&s->kernels, 0, sizeof s->kernels);
    memset(&s->program[PROGRAM_FORWARD].steps, 0, sizeof s->program[PROGRAM_FORWARD].steps);
    memset(&s->program[PROGRAM_BACKWARD].steps, 0, sizeof s->program[PROGRAM_BACKWARD].steps);
    memset(&pr->steps, 0, sizeof pr->steps);
    for (int i = 0; i < from->program[PROGRAM_PREPARE].steps.n; i++) {
        if (!only[i]) continue;
        PUSH(d->arena, pr->steps, from->program[PROGRAM_PREPARE].steps.at[i]);
        int *k = &pr->steps.at[pr->steps.n - 1].kernel;
        if (*k < 0) continue;
        if (!number[*k]) {
            PUSH(d->arena, s->kernels, from->kernels.at[*k]);
            number[*k] = s->kernels.n;
        }
        *k = number[*k] - 1;
    }
    return s;
}

static sol_status build(struct deploy *d, const struct deploy_version *v, const struct schedule *s,
                        struct module *out_m)
{
    struct target host;
    target_host(&host);
    struct build_data *data = NEW_ARRAY(d->arena, struct build_data, s->constants.n + 1);
    for (int i = 0; i < s->constants.n; i++) {
        const struct sol_tensor *t = s->constants.at[i];
        data[i] = (struct build_data){t->data, (size_t)tensor_elements(t) * dtype_def(t->dtype)->bytes};
    }
    const struct build_request r = {.name = d->g->name,
                                    .device = host.device->name,
                                    .march = host.march,
                                    .flag = target_flag(&v->target),
                                    .nkernel = s->kernels.n,
                                    .kernel = s->kernels.at,
                                    .ndata = s->constants.n,
                                    .data = data,
                                    .module = schedule_module_text(s, d->g->name, NULL)};
    return build_module(d->ctx, d->arena, &r, out_m);
}

static void *aligned(struct deploy *d, int64_t bytes)
{
    char *raw = arena_try(d->arena, (size_t)bytes + 64);
    return raw ? (char *)(((uintptr_t)raw + 63) / 64 * 64) : NULL;
}

/* Runs an opaque layer. Its errors become negative, to distinguish them from those of kernels. */
static int32_t run_opaque(void *user, int32_t call, char *const *p)
{
    const struct deploy_here *h = user;
    struct sol_ctx *ctx = h->d->ctx;
    const struct sol_layer *l = h->schedule->opaque.at[call];
    struct arena *a = arena_create(ctx);
    if (!a) return -SOL_ERR_NOMEM;
    const sol_status status =
        layer_run_opaque(ctx, layer_opaque(a, l), h->sizes, (const void *const *)p, (void *const *)p + l->nin);
    arena_destroy(a);
    return -(int32_t)status;
}

/* All sizes of a call, where dimensions vary. */
static sol_status find_sizes(struct deploy_here *h, const int64_t *dims)
{
    const struct sol_module *t = h->module.table;
    int32_t which = 0;
    if (!t->nsize) return SOL_OK;
    h->sizes = NEW_ARRAY(h->d->arena, int64_t, t->nsize);
    for (int i = 0; i < t->ndim; i++) h->sizes[i] = dims ? dims[i] : t->dim[i].hint;
    void *memory = arena_alloc(h->d->arena, rt_sizes_bytes(t));
    TRY(ctx_check(h->d->ctx));
    if (!rt_sizes(t, h->sizes, memory, &which)) return SOL_OK;
    return ctx_fail(h->d->ctx, SOL_ERR_INTERNAL, "deploy: network '%s' does not run at sizes that it should take",
                    h->d->g->name);
}

sol_status deploy_resize(struct deploy_here *h, const int64_t *dims)
{
    const struct sol_module *t = h->module.table;
    TRY(find_sizes(h, dims));
    const int64_t scratch = MAX(rt_scratch_bytes(&t->prepare, h->sizes), rt_scratch_bytes(&t->forward, h->sizes));
    const int64_t workspace =
        MAX(rt_quantity(t->prepare.workspace_bytes, h->sizes), rt_quantity(t->forward.workspace_bytes, h->sizes));
    h->workspace = aligned(h->d, workspace);
    h->scratch = aligned(h->d, scratch * h->threads);
    if (h->workspace && h->scratch) return SOL_OK;
    return ctx_fail(h->d->ctx, SOL_ERR_NOMEM, "deploy: out of memory for %lld bytes to run '%s'",
                    (long long)(workspace + scratch * h->threads), h->d->g->name);
}

sol_status deploy_open(struct deploy *d, const struct deploy_version *v, const struct schedule *s,
                       struct deploy_here *out_h)
{
    struct deploy_here *h = out_h;
    *h = (struct deploy_here){.d = d, .schedule = s, .threads = rt_processors()};
    TRY(build(d, v, s, &h->module));
    const struct sol_module *t = h->module.table;
    h->base = NEW_ARRAY(d->arena, char *, t->nbuffer + 1);
    h->operands = NEW_ARRAY(d->arena, char *, MAX(t->prepare.nplace, t->forward.nplace) + 1);
    h->prepared = aligned(d, t->prepared_bytes);
    const sol_status status =
        h->prepared ? deploy_resize(h, NULL)
                    : ctx_fail(d->ctx, SOL_ERR_NOMEM, "deploy: out of memory for %lld bytes of packed weights",
                               (long long)t->prepared_bytes);
    if (status) module_close(&h->module);
    return status;
}

static const void *begin_of(const struct deploy_here *h, const struct sol_buffer *b, const struct deploy_data *data)
{
    switch ((enum sol_buffer_kind)b->kind) {
    case SOL_BUFFER_INPUT: return data->inputs ? data->inputs[b->index] : NULL;
    case SOL_BUFFER_OUTPUT: return data->outputs ? data->outputs[b->index] : NULL;
    case SOL_BUFFER_PARAM: return data->params ? data->params[b->index] : NULL;
    case SOL_BUFFER_PREPARED: return h->prepared;
    case SOL_BUFFER_WORKSPACE: return h->workspace;
    case SOL_BUFFER_CONST: return data->consts ? data->consts[b->index] : b->data;
    case SOL_BUFFER_SAVED:
    case SOL_BUFFER_EITHER: return NULL; /* of what trains */
    }
    return NULL;
}

sol_status deploy_run_here(struct deploy_here *h, const struct sol_program *p, const struct deploy_data *data)
{
    static const uint64_t seeds[8];
    const struct sol_module *t = h->module.table;
    for (int i = 0; i < t->nbuffer; i++)
        h->base[i] = (char *)((uintptr_t)begin_of(h, &t->buffer[i], data) +
                              (uintptr_t)rt_quantity(t->buffer[i].offset, h->sizes));
    const struct rt_call call = {.program = p,
                                 .base = h->base,
                                 .operands = h->operands,
                                 .scratch = h->scratch,
                                 .seeds = seeds,
                                 .sizes = h->sizes,
                                 .threads = h->threads,
                                 .team = rt_team_openmp(),
                                 .host = run_opaque,
                                 .host_user = h};
    int32_t step = 0;
    const int32_t error = rt_run(&call, &step);
    if (!error) return SOL_OK;
    if (error < 0) return ctx_where(h->d->ctx, -error, "deploy: '%s': ", p->step[step].label);
    return ctx_fail(h->d->ctx, SOL_ERR_RUN, "deploy: '%s': %s", p->step[step].label,
                    error == SOL_KERNEL_INDEX ? "an index is out of range" : "an integer is divided by zero");
}

sol_status deploy_prepare(struct deploy *d, const struct deploy_graph *g, const struct deploy_version *v,
                          const struct schedule *s, const bool *only, void **out_block)
{
    struct deploy_here here;
    TRY(deploy_open(d, v, only_prepare(d, s, only), &here));
    const struct deploy_data data = {.params = g->params};
    const sol_status status = deploy_run_here(&here, &here.module.table->prepare, &data);
    module_close(&here.module);
    *out_block = here.prepared;
    return status;
}
