/* One call: where every buffer begins, then all steps, then what went wrong. Many calls may be in flight. */
#include "runtime/inside.h"

#include <stdlib.h>
#include <string.h>

static char *begin_of(const struct sol_net *net, const struct sol_buffer *b, const struct slot *s,
                      const void *const *inputs, void *const *outputs)
{
    const void *begin = NULL;
    switch ((enum sol_buffer_kind)b->kind) {
    case SOL_BUFFER_INPUT: begin = inputs ? inputs[b->index] : NULL; break;
    case SOL_BUFFER_OUTPUT: begin = outputs ? outputs[b->index] : NULL; break;
    case SOL_BUFFER_PARAM: begin = net->param[b->index]; break;
    case SOL_BUFFER_PREPARED: begin = net->prepared.at; break;
    case SOL_BUFFER_WORKSPACE: begin = s->workspace.at; break;
    case SOL_BUFFER_CONST: begin = b->data; break;
    }
    return (char *)((uintptr_t)begin + (uintptr_t)b->offset);
}

/* A step that the host computes. Its errors become negative, so that they differ from those of kernels. */
static int32_t call_host(void *user, int32_t call, char *const *p)
{
    const struct sol_net *net = user;
    if (call < 0 || call >= net->parts.nhost)
        return -ctx_fail(net->ctx, SOL_ERR_INTERNAL, "there is no function %d of the host", call);
    const struct net_host *h = &net->parts.host[call];
    return -h->run(net->ctx, h->data, (const void *const *)p, (void *const *)(p + h->nin));
}

static sol_status explain(struct sol_net *net, const struct sol_step *s, int32_t error)
{
    const char *name = net->parts.name;
    if (error < 0) return ctx_where(net->ctx, -error, "network '%s', '%s': ", name, s->label);
    const char *what = error == SOL_KERNEL_INDEX      ? "an index is out of range"
                       : error == SOL_KERNEL_DIVISION ? "an integer is divided by zero"
                                                      : "a kernel reports an unknown error";
    return ctx_fail(net->ctx, SOL_ERR_RUN, "network '%s', '%s': %s in the data of this call", name, s->label, what);
}

sol_status run_program(struct sol_net *net, const struct sol_program *p, struct slot *s, const void *const *inputs,
                       void *const *outputs, const unsigned char *only, int threads, bool profile)
{
    static const uint64_t seeds[8];
    const struct sol_module *m = net->module;
    net_lock(net); /* for the parameters' addresses */
    for (int i = 0; i < m->nbuffer; i++) s->base[i] = begin_of(net, &m->buffer[i], s, inputs, outputs);
    net_unlock(net);
    if (net->debug && s->workspace.at) memset(s->workspace.at, 0xff, (size_t)s->workspace.bytes); /* NaN, and -1 */
    if (profile) memset(s->step_ns, 0, (size_t)p->nstep * sizeof *s->step_ns);
    const struct rt_call call = {.program = p,
                                 .base = s->base,
                                 .operands = s->operands,
                                 .scratch = s->scratch.at,
                                 .seeds = seeds,
                                 .only = only,
                                 .threads = threads,
                                 .team = net->team,
                                 .host = call_host,
                                 .host_user = net,
                                 .step_ns = profile ? s->step_ns : NULL};
    int32_t step = 0;
    const int32_t error = rt_run(&call, &step);
    return error ? explain(net, &p->step[step], error) : SOL_OK;
}

static sol_status check_pointers(struct sol_net *net, const char *what, int n, const struct sol_io *io,
                                 const int64_t *bytes, const void *const *p)
{
    for (int i = 0; i < n; i++)
        if (bytes[i] > 0 && (!p || !p[i]))
            return ctx_fail(net->ctx, SOL_ERR_INVALID, "network '%s': %s %d, '%s', is NULL, expected %lld bytes",
                            net->parts.name, what, i, io[i].name, (long long)bytes[i]);
    return SOL_OK;
}

static int choose_threads(struct sol_net *net, int threads)
{
    if (threads <= 0) threads = atoi(ctx_config(net->ctx, "threads"));
    return threads > 0 ? MIN(threads, 1024) : rt_processors();
}

static sol_status run_slot(struct sol_net *net, const void *const *inputs, void *const *outputs, int threads)
{
    struct slot *s;
    const struct sol_program *p = &net->module->inference;
    const bool profile = !strcmp(ctx_config(net->ctx, "profile"), "1");
    TRY(slot_take(net, p, threads, &s));
    const sol_status status = run_program(net, p, s, inputs, outputs, NULL, threads, profile);
    if (profile) {
        net_lock(net);
        memcpy(net->profile_ns, s->step_ns, (size_t)p->nstep * sizeof *s->step_ns);
        net->profiled = true;
        net_unlock(net);
    }
    slot_give(net, s);
    return status;
}

sol_status sol_net_run(struct sol_net *net, const void *const *inputs, void *const *outputs, int threads)
{
    const struct sol_module *m = net->module;
    TRY(check_pointers(net, "input", m->ninput, net->parts.inputs, net->input_bytes, inputs));
    TRY(check_pointers(net, "output", m->noutput, net->parts.outputs, net->output_bytes, (const void *const *)outputs));
    threads = choose_threads(net, threads);
    TRY(prepare_enter(net, threads));
    const sol_status status = run_slot(net, inputs, outputs, threads);
    prepare_leave(net);
    return status;
}
