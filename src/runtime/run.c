/* One call: sets the addresses of all buffers, runs the steps, and reports errors. Many calls may run at the same time.
 */
#include "base/size.h"
#include "runtime/inside.h"

#include <stdlib.h>
#include <string.h>

static char *begin_of(const struct sol_module *m, const struct sol_buffer *b, const struct slot *s,
                      const struct call *c)
{
    const struct rt_place at = rt_place(m, b, s->sizes);
    const void *begin = NULL;
    switch (at.kind) {
    case SOL_BUFFER_INPUT: begin = c->inputs ? c->inputs[b->index] : NULL; break;
    case SOL_BUFFER_OUTPUT: begin = c->outputs ? c->outputs[b->index] : NULL; break;
    case SOL_BUFFER_PARAM: begin = c->params->at[b->index]; break;
    case SOL_BUFFER_PREPARED: begin = c->params->prepared.at; break;
    case SOL_BUFFER_WORKSPACE: begin = s->workspace.at; break;
    case SOL_BUFFER_CONST: begin = b->data; break;
    case SOL_BUFFER_SAVED: begin = c->saved ? c->saved->block.at : NULL; break;
    case SOL_BUFFER_EITHER: break; /* is one of both */
    }
    return (char *)((uintptr_t)begin + (uintptr_t)at.offset);
}

void run_bases(const struct sol_net *net, const struct call *c, struct slot *s)
{
    params_lock(c->params); /* for the parameters' addresses */
    for (int i = 0; i < net->module->nbuffer; i++) s->base[i] = begin_of(net->module, &net->module->buffer[i], s, c);
    params_unlock(c->params);
}

sol_status run_host(const struct sol_net *net, int64_t *sizes, int32_t call, char *const *p)
{
    if (call < 0 || call >= net->parts.nhost)
        return ctx_fail(net->ctx, SOL_ERR_INTERNAL, "there is no function %d of the host", call);
    const struct net_host *h = &net->parts.host[call];
    TRY(h->run(net->ctx, h->data, sizes, (const void *const *)p, (void *const *)(p + h->nin)));
    return h->set < 0 ? SOL_OK : sizes_set(net, sizes, h->set);
}

struct hosted { /* what steps of the host need of a call */
    const struct sol_net *net;
    int64_t *sizes;
};

/* A step of the host. Its errors become negative, to distinguish them from those of kernels. */
static int32_t call_host(void *user, int32_t call, char *const *p)
{
    const struct hosted *of = user;
    return -run_host(of->net, of->sizes, call, p);
}

sol_status run_explain(struct sol_net *net, const struct sol_step *s, int32_t error)
{
    const char *name = net->parts.name;
    if (error < 0) return ctx_where(net->ctx, -error, "network '%s', '%s': ", name, s->label);
    if (error == SOL_KERNEL_PLUGIN)
        return ctx_fail(
            net->ctx, SOL_ERR_RUN,
            "network '%s', '%s': the plug-in that computes it has failed, or is gone: set the key plugins to "
            "off and compile again",
            name, s->label);
    return ctx_fail(net->ctx, SOL_ERR_RUN, "network '%s', '%s': %s in the data of this call", name, s->label,
                    kernel_says(error));
}

struct steps { /* of a call, to be told of */
    struct sol_ctx *ctx;
    const struct sol_program *program;
};

static void tell_step(void *user, int32_t step)
{
    const struct steps *s = user;
    const char *label = s->program->step[step].label;
    ctx_step(s->ctx, label ? label : "");
}

/* -- on this processor */

static sol_status begin_here(struct sol_net *net)
{
    (void)net;
    return SOL_OK;
}

static void end_here(struct sol_net *net)
{
    (void)net;
}

static sol_status fill_here(struct sol_net *net, const struct block *b, int64_t bytes)
{
    (void)net;
    memset(b->at, 0xff, (size_t)bytes);
    return SOL_OK;
}

static sol_status copy_here(struct sol_net *net, const struct block *to, const struct block *from, int64_t bytes)
{
    (void)net;
    memcpy(to->at, from->at, (size_t)bytes);
    return SOL_OK;
}

static sol_status run_here(struct sol_net *net, const struct call *c, struct slot *s)
{
    static const uint64_t seeds[8];
    const struct sol_program *p = c->program;
    run_bases(net, c, s);
    if (net->debug && s->workspace.at) fill_here(net, &s->workspace, s->workspace.bytes);
    struct steps steps = {net->ctx, p};
    struct hosted hosted = {net, (int64_t *)(uintptr_t)s->sizes};
    const bool tells = ctx_tells_steps(net->ctx), timed = c->profile || tells;
    if (timed) memset(s->step_ns, 0, (size_t)p->nstep * sizeof *s->step_ns);
    const struct rt_call call = {.program = p,
                                 .base = s->base,
                                 .operands = s->operands,
                                 .scratch = s->scratch.at,
                                 .seeds = seeds,
                                 .sizes = s->sizes,
                                 .only = c->only,
                                 .threads = c->threads,
                                 .team = net->team,
                                 .host = call_host,
                                 .host_user = &hosted,
                                 .step_ns = timed ? s->step_ns : NULL,
                                 .on_step = tells ? tell_step : NULL,
                                 .on_step_user = &steps};
    int32_t step = 0;
    const int32_t error = rt_run(&call, &step);
    if (tells) ctx_step(net->ctx, NULL);
    return error ? run_explain(net, &p->step[step], error) : SOL_OK;
}

const struct runner runner_here = {begin_here, end_here, block_here, fill_here, copy_here, run_here};

/* -- calls */

static sol_status check_pointers(struct sol_net *net, enum sol_buffer_kind kind, int given, const int64_t *dims,
                                 const void *const *p)
{
    const bool input = kind == SOL_BUFFER_INPUT;
    const struct sol_io *io = input ? net->parts.inputs : net->parts.outputs;
    for (int k = 0; k < net->module->nbuffer; k++) {
        const struct sol_buffer *b = &net->module->buffer[k];
        const int i = b->index;
        if (b->kind != (int32_t)kind || !(b->given & given) || (p && p[i])) continue;
        const int64_t bytes = input ? io_bytes(&io[i], dims) : output_bytes(net, i, dims);
        if (bytes <= 0) continue;
        return ctx_fail(net->ctx, SOL_ERR_INVALID, "network '%s': %s %d, '%s', is NULL, expected %lld bytes",
                        net->parts.name, input ? "input" : "output", i, io[i].name, (long long)bytes);
    }
    return SOL_OK;
}

static void expect_outputs(const struct sol_net *net, int given, void *const *outputs, const int64_t *sizes)
{
    if (net->parts.resident) return;
    for (int k = 0; outputs && k < net->module->nbuffer; k++) {
        const struct sol_buffer *b = &net->module->buffer[k];
        if (b->kind == SOL_BUFFER_OUTPUT && b->given & given)
            block_fresh(outputs[b->index], rt_quantity(b->bytes, sizes));
    }
}

static int choose_threads(struct sol_net *net, int threads)
{
    if (threads <= 0) threads = atoi(ctx_config(net->ctx, "threads"));
    return threads > 0 ? MIN(threads, 1024) : rt_processors();
}

/* A backward that overwrites saved tensors owns them from now on. */
static sol_status take_over(struct sol_net *net, struct sol_saved *saved)
{
    if (!saved || !atomic_exchange(&saved->used, true)) return SOL_OK;
    return ctx_fail(net->ctx, SOL_ERR_INVALID,
                    "network '%s': an earlier backward overwrote the saved tensors: call all but the last with keep 1",
                    net->parts.name);
}

/* compiler::debug: logs the time of each step. */
static void log_times(const struct sol_net *net, const struct sol_program *p, const int64_t *ns)
{
    for (int i = 0; i < p->nstep; i++)
        LOG(net->ctx, LOG_TRACE, "run", "%s: %.1f us %s", net->parts.name, (double)ns[i] * 1e-3,
            p->step[i].label ? p->step[i].label : "");
}

/* Memory for what forward saves. */
static sol_status room_for_saved(struct sol_net *net, const struct call *c, const struct slot *s)
{
    if (c->program != &net->module->forward || !c->saved) return SOL_OK;
    TRY(saved_need(c->saved, rt_quantity(net->module->saved_bytes, s->sizes)));
    return net->debug && c->saved->block.at ? net->runner->fill(net, &c->saved->block, c->saved->bytes) : SOL_OK;
}

static sol_status run_slot(struct sol_net *net, struct call *c, int given, struct profile *profile)
{
    struct slot *s;
    const bool debug = ctx_debugs(net->ctx);
    c->profile |= debug || ctx_profiles(net->ctx);
    TRY(slot_take(net, &(struct slot_use){c->program, c->dims, c->threads}, &s));
    expect_outputs(net, given, c->outputs, s->sizes);
    sol_status status = room_for_saved(net, c, s);
    if (!status) status = take_over(net, c->uses_up);
    if (!status) status = net->runner->run(net, c, s);
    if (c->profile) {
        if (c->out_ns)
            memcpy(c->out_ns, s->step_ns, (size_t)c->program->nstep * sizeof *s->step_ns);
        else if (!status)
            profile_add(net, profile, c->program->nstep, s->step_ns, s->sizes);
    }
    if (debug) log_times(net, c->program, s->step_ns);
    if (!status && c->out_dims) memcpy(c->out_dims, s->sizes, (size_t)net->module->ndim * sizeof *c->out_dims);
    slot_give(net, s);
    return status;
}

static sol_status run(struct sol_net *net, struct call *c, int given, struct profile *profile)
{
    if (!c->params || c->params->net != net)
        return ctx_fail(net->ctx, SOL_ERR_INVALID,
                        "network '%s': a call needs parameters of its own: sol_params_create", net->parts.name);
    if (net->module->ndim) TRY(sol_net_check_dims(net, c->dims));
    TRY(check_pointers(net, SOL_BUFFER_INPUT, given, c->dims, c->inputs));
    TRY(check_pointers(net, SOL_BUFFER_OUTPUT, given, c->dims, (const void *const *)c->outputs));
    c->threads = choose_threads(net, c->threads);
    TRY(prepare_enter(c->params, c->threads));
    const sol_status status = run_slot(net, c, given, profile);
    prepare_leave(c->params);
    return status;
}

static sol_status forward(struct sol_net *net, struct call c, struct sol_saved *saved)
{
    c.program = &net->module->forward;
    c.saved = saved;
    return run(net, &c, SOL_GIVEN_FORWARD, &net->forward_profile);
}

sol_status net_measure(struct sol_net *net, struct sol_params *params, const struct sol_call *at, int64_t *out_ns)
{
    struct sol_saved *saved = NULL;
    const int64_t *dims = at->dims ? at->dims : net->example;
    if (net->module->saved_bytes) TRY(saved_take(net, dims, &saved));
    struct call c = {.program = &net->module->forward,
                     .params = params,
                     .dims = dims,
                     .inputs = at->inputs,
                     .outputs = at->outputs,
                     .saved = saved,
                     .profile = true,
                     .out_ns = out_ns};
    const sol_status status = run(net, &c, SOL_GIVEN_FORWARD, NULL);
    if (saved) saved_give(saved);
    return status;
}

static struct call call_of(struct sol_params *params, const struct sol_call *c)
{
    return (struct call){.params = params,
                         .dims = c->dims,
                         .inputs = c->inputs,
                         .outputs = c->outputs,
                         .threads = c->threads,
                         .out_dims = c->out_dims};
}

sol_status sol_net_forward_at(struct sol_net *net, struct sol_params *params, const struct sol_call *c,
                              struct sol_saved **out_saved)
{
    struct sol_saved *saved;
    *out_saved = NULL;
    TRY(saved_take(net, c->dims, &saved));
    const sol_status status = forward(net, call_of(params, c), saved);
    if (status)
        saved_give(saved);
    else
        *out_saved = saved;
    return status;
}

sol_status sol_net_forward_in(struct sol_net *net, struct sol_params *params, const struct sol_call *c,
                              struct sol_saved *saved)
{
    if (!saved || saved->net != net)
        return ctx_fail(net->ctx, SOL_ERR_INVALID, "network '%s': forward needs memory of its own sol_saved_in",
                        net->parts.name);
    for (int i = 0; c->dims && i < net->module->ndim; i++)
        if (c->dims[i] != saved->dims[i])
            return ctx_fail(net->ctx, SOL_ERR_INVALID,
                            "network '%s': '%s' is %lld in this forward, but %lld in sol_saved_in", net->parts.name,
                            net->module->dim[i].name, (long long)c->dims[i], (long long)saved->dims[i]);
    return forward(net, call_of(params, c), saved);
}

sol_status sol_net_run_at(struct sol_net *net, struct sol_params *params, const struct sol_call *c)
{
    if (!net->module->saved_bytes) return forward(net, call_of(params, c), NULL);
    struct sol_saved *saved;
    TRY(sol_net_forward_at(net, params, c, &saved));
    saved_give(saved);
    return SOL_OK;
}

sol_status sol_net_forward(struct sol_net *net, struct sol_params *params, const void *const *inputs,
                           void *const *outputs, int threads, struct sol_saved **out_saved)
{
    return sol_net_forward_at(net, params, &(struct sol_call){.inputs = inputs, .outputs = outputs, .threads = threads},
                              out_saved);
}

sol_status sol_net_run(struct sol_net *net, struct sol_params *params, const void *const *inputs, void *const *outputs,
                       int threads)
{
    return sol_net_run_at(net, params, &(struct sol_call){.inputs = inputs, .outputs = outputs, .threads = threads});
}

static bool has_gradient(const struct sol_module *m)
{
    bool any = false;
    for (int i = 0; i < m->nbuffer; i++) any |= m->buffer[i].given == SOL_GIVEN_BACKWARD;
    return any;
}

/* Runs backward on a copy of the saved tensors. */
static sol_status run_in_copy(struct sol_net *net, struct call *c)
{
    const struct sol_saved *saved = c->saved;
    struct sol_saved *copy;
    TRY(saved_take(net, saved->dims, &copy));
    sol_status status = saved_need(copy, saved->bytes);
    if (!status && saved->bytes) status = net->runner->copy(net, &copy->block, &saved->block, saved->bytes);
    c->saved = copy;
    if (!status) status = run(net, c, SOL_GIVEN_BACKWARD, &net->backward_profile);
    saved_give(copy);
    return status;
}

sol_status sol_net_backward(struct sol_net *net, struct sol_params *params, struct sol_saved *saved,
                            const struct sol_backward *b)
{
    if (!has_gradient(net->module))
        return ctx_fail(net->ctx, SOL_ERR_INVALID,
                        "network '%s' has no gradient: call sol_graph_differentiate before sol_compile",
                        net->parts.name);
    if (!saved || saved->net != net)
        return ctx_fail(net->ctx, SOL_ERR_INVALID, "network '%s': backward needs what its own sol_net_forward saved",
                        net->parts.name);
    if (atomic_load(&saved->used)) return take_over(net, saved);
    struct call c = {.program = &net->module->backward,
                     .params = params,
                     .dims = net->module->ndim ? saved->dims : NULL,
                     .inputs = b->inputs,
                     .outputs = b->outputs,
                     .saved = saved,
                     .uses_up = b->keep ? NULL : saved,
                     .threads = b->threads};
    return b->keep ? run_in_copy(net, &c) : run(net, &c, SOL_GIVEN_BACKWARD, &net->backward_profile);
}

int sol_net_backward_reads(const struct sol_net *net, enum sol_what what, int i)
{
    static const int32_t kinds[] = {
        [SOL_INPUT] = SOL_BUFFER_INPUT, [SOL_OUTPUT] = SOL_BUFFER_OUTPUT, [SOL_PARAM] = SOL_BUFFER_PARAM};
    if ((unsigned)what >= COUNT_OF(kinds)) return 0;
    const int32_t kind = kinds[what];
    for (int k = 0; k < net->module->nbuffer; k++) {
        const struct sol_buffer *b = &net->module->buffer[k];
        if (b->kind == kind && b->index == i) return b->given == (SOL_GIVEN_FORWARD | SOL_GIVEN_BACKWARD);
    }
    return 0;
}
