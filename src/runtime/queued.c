/* Networks on a device with memory of its own, through its queues. Models and data stay on the host: a call writes its
 * inputs, runs the steps, and reads its outputs; parameters have a mirror on the device, to which those are written
 * that changed. Addresses of buffers are virtual pointers. Between steps of the device, steps of the host run on copies
 * of their operands.
 *
 * A resident network finds all this on the device, in the device's heap. Its commands go to the queue of that heap, and
 * a call does not wait: what is freed, or used by the next call, comes later in the same queue. */
#include <string.h>

#include "base/size.h"
#include "runtime/inside.h"

enum { LINE = 64 };
enum { PREPARE, FORWARD, BACKWARD }; /* as in struct sol_run */

static int64_t rounded(int64_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* -- memory */

static void drop(struct sol_ctx *ctx, struct block *b)
{
    (void)ctx;
    dev_free(b->dev, (sol_ptr)(uintptr_t)b->at);
}

static void drop_later(struct sol_ctx *ctx, struct block *b)
{
    (void)ctx;
    sol_heap_free(b->heap, (sol_ptr)(uintptr_t)b->at);
}

static sol_status make(struct sol_net *net, int64_t bytes, const char *what, struct block *out_b)
{
    sol_ptr p;
    const sol_status status = net->heap ? sol_heap_alloc(net->heap, bytes, &p) : dev_alloc(net->parts.dev, bytes, &p);
    if (!status) {
        *out_b = (struct block){.at = (char *)(uintptr_t)p,
                                .bytes = bytes,
                                .dev = net->parts.dev,
                                .heap = net->heap,
                                .drop = net->heap ? drop_later : drop};
        return SOL_OK;
    }
    return ctx_where(net->ctx, status, "%s: ", what);
}

sol_status line_add(const struct line *line, const struct sol_command *c)
{
    return line->heap ? heap_add(line->heap, c) : queue_add(line->queue, c);
}

sol_status line_wait(const struct line *line, struct sol_failure *out_failure)
{
    return line->heap ? heap_wait(line->heap, "the end of a call", out_failure) : queue_wait(line->queue, out_failure);
}

/* Appends one command, and waits unless the network is resident. */
static sol_status single(struct sol_net *net, const struct sol_command *c)
{
    struct queue *q;
    if (net->heap) return heap_add(net->heap, c);
    TRY(queue_take(net->parts.dev, &q));
    sol_status status = queue_add(q, c);
    if (!status) status = queue_wait(q, NULL);
    queue_give(q);
    return status;
}

static sol_ptr pointer(const struct block *b)
{
    return (sol_ptr)(uintptr_t)b->at;
}

static sol_status fill(struct sol_net *net, const struct block *b, int64_t bytes)
{
    return single(net,
                  &(struct sol_command){.kind = SOL_COMMAND_FILL, .to = pointer(b), .bytes = bytes, .value = 0xff});
}

static sol_status copy(struct sol_net *net, const struct block *to, const struct block *from, int64_t bytes)
{
    return single(
        net, &(struct sol_command){.kind = SOL_COMMAND_COPY, .to = pointer(to), .from = pointer(from), .bytes = bytes});
}

struct away { /* a call */
    struct sol_net *net;
    const struct call *c;
    struct slot *s;
    struct line line;
    int program; /* PREPARE, FORWARD or BACKWARD */
    int given;   /* SOL_GIVEN_* of the program; 0: prepare */
};

/* -- parameters */

/* Room for all parameters, one after the other. */
static sol_status place_params(struct sol_params *params)
{
    struct sol_net *net = params->net;
    if (params->mirror.at || !net->mirror_bytes) return SOL_OK;
    TRY(block_make(net, net->mirror_bytes, "the parameters", NULL, &params->mirror));
    for (int i = 0; i < net->module->nparam; i++) params->at[i] = params->mirror.at + net->param_at[i];
    return SOL_OK;
}

/* Nobody else uses the parameters while `prepare` runs. */
static sol_status write_params(const struct away *a)
{
    const struct sol_params *params = a->c->params;
    const struct sol_net *net = a->net;
    if (net->heap) return SOL_OK;
    for (int i = 0; i < net->module->nparam; i++) {
        if (a->c->changed && !a->c->changed[i]) continue;
        const struct sol_command c = {.kind = SOL_COMMAND_WRITE,
                                      .label = net->parts.params[i].name,
                                      .to = (sol_ptr)(uintptr_t)params->at[i],
                                      .data = params->param[i],
                                      .bytes = net->param_bytes[i],
                                      .room = rounded(net->param_bytes[i])};
        if (c.bytes) TRY(line_add(&a->line, &c));
    }
    return SOL_OK;
}

/* -- inputs and outputs */

static bool is_given(const struct away *a, const struct sol_buffer *b)
{
    return (b->kind == SOL_BUFFER_INPUT || b->kind == SOL_BUFFER_OUTPUT) && b->given & a->given;
}

/* Outputs of forward that backward reads are its inputs. */
static bool is_written_by_call(const struct away *a, const struct sol_buffer *b)
{
    return b->kind == SOL_BUFFER_OUTPUT && (a->given == SOL_GIVEN_FORWARD || b->given == SOL_GIVEN_BACKWARD);
}

static int64_t bytes_of(const struct away *a, const struct sol_buffer *b)
{
    return rt_quantity(b->bytes, a->s->sizes);
}

/* What it may need, whatever sizes the network sets. */
static int64_t most_bytes_of(const struct away *a, const struct sol_buffer *b)
{
    const bool set = b->kind == SOL_BUFFER_OUTPUT && sizes_are_set(a->net);
    return set ? output_bytes(a->net, b->index, a->c->dims) : bytes_of(a, b);
}

static void *host_of(const struct away *a, const struct sol_buffer *b)
{
    return b->kind == SOL_BUFFER_INPUT ? (void *)(uintptr_t)a->c->inputs[b->index] : a->c->outputs[b->index];
}

static void **io_at(const struct away *a, const struct sol_buffer *b)
{
    return &a->s->io_at[b->kind == SOL_BUFFER_INPUT ? b->index : a->net->module->ninput + b->index];
}

/* Where the caller's tensors are; of those without elements there is no place. */
static sol_status place_resident(const struct away *a)
{
    const struct sol_module *m = a->net->module;
    for (int i = 0; i < m->nbuffer; i++) {
        const struct sol_buffer *b = &m->buffer[i];
        if (is_given(a, b)) *io_at(a, b) = most_bytes_of(a, b) ? host_of(a, b) : NULL;
    }
    return SOL_OK;
}

/* Room for all inputs and outputs, one after the other, and where each is. */
static sol_status place_io(const struct away *a)
{
    const struct sol_module *m = a->net->module;
    struct slot *s = a->s;
    int64_t total = 0;
    if (a->net->heap) return place_resident(a);
    for (int i = 0; i < m->nbuffer; i++)
        if (is_given(a, &m->buffer[i])) total += rounded(most_bytes_of(a, &m->buffer[i]));
    TRY(block_need(a->net, total, "inputs and outputs", s->sizes, &s->io));
    char *at = s->io.at;
    for (int i = 0; i < m->nbuffer; i++) {
        const struct sol_buffer *b = &m->buffer[i];
        if (!is_given(a, b)) continue;
        *io_at(a, b) = at;
        at += rounded(most_bytes_of(a, b));
    }
    return SOL_OK;
}

static sol_status move_io(const struct away *a, bool back)
{
    const struct sol_module *m = a->net->module;
    if (a->net->heap) return SOL_OK;
    for (int i = 0; i < m->nbuffer; i++) {
        const struct sol_buffer *b = &m->buffer[i];
        const bool input = b->kind == SOL_BUFFER_INPUT;
        if (!is_given(a, b) || is_written_by_call(a, b) != back || !bytes_of(a, b)) continue;
        const sol_ptr there = (sol_ptr)(uintptr_t)*io_at(a, b);
        const struct sol_command c = {.kind = back ? SOL_COMMAND_READ : SOL_COMMAND_WRITE,
                                      .label = (input ? a->net->parts.inputs : a->net->parts.outputs)[b->index].name,
                                      .to = back ? 0 : there,
                                      .from = back ? there : 0,
                                      .host = back ? host_of(a, b) : NULL,
                                      .data = back ? NULL : host_of(a, b),
                                      .bytes = bytes_of(a, b),
                                      .room = rounded(bytes_of(a, b))};
        TRY(line_add(&a->line, &c));
    }
    return SOL_OK;
}

/* The addresses of the buffers that the program uses. Constants are in the code that the device has. */
static void set_bases(const struct away *a)
{
    const struct sol_module *m = a->net->module;
    struct call c = *a->c;
    c.inputs = (const void *const *)a->s->io_at;
    c.outputs = (void *const *)(a->s->io_at + m->ninput);
    run_bases(a->net, &c, a->s);
    for (int i = 0; i < m->nbuffer; i++) {
        const struct sol_buffer *b = &m->buffer[i];
        const bool used = a->net->uses[a->program][i];
        if (b->kind == SOL_BUFFER_CONST)
            a->s->base[i] = used && a->net->constant_at ? a->net->constant_at[i] : NULL;
        else if (!used || (b->kind == SOL_BUFFER_PARAM && !a->net->param_bytes[b->index]))
            a->s->base[i] = NULL;
    }
}

/* -- steps */

/* Waits, and explains what a kernel reports. */
static sol_status wait_for(const struct away *a)
{
    struct sol_failure f = failure_new();
    const sol_status status = line_wait(&a->line, &f);
    if (!status || !f.kernel || f.step < 0 || f.step >= a->c->program->nstep) return status;
    return run_explain(a->net, &a->c->program->step[f.step], f.kernel);
}

static sol_status add_launches(const struct away *a, int first, int end)
{
    const struct launched l = {a->c->program, a->program, a->s, &a->line, a->c->profile ? a->s->step_ns : NULL};
    for (int i = first; i < end; i++)
        if (!a->c->only || a->c->only[i]) TRY(launched_add(a->net, &l, i));
    return SOL_OK;
}

static sol_status add_run(const struct away *a, int first, int end)
{
    static const uint64_t seeds[8];
    const struct sol_module *m = a->net->module;
    const struct sol_program *p = a->c->program;
    if (first == end) return SOL_OK;
    if (a->net->launches) return add_launches(a, first, end);
    const struct sol_run r = {.code = a->net->code[0],
                              .program = a->program,
                              .first = first,
                              .count = end - first,
                              .only = a->c->only,
                              .nbase = m->nbuffer,
                              .base = a->s->bases,
                              .scratch = pointer(&a->s->scratch),
                              .sizes = a->s->sizes,
                              .nsize = m->nsize,
                              .seeds = seeds,
                              .nseed = COUNT_OF(seeds),
                              .threads = a->c->threads,
                              .step_ns = a->c->profile ? a->s->step_ns : NULL,
                              .network = a->net->parts.name,
                              .step = p->step};
    for (int i = 0; i < m->nbuffer; i++) a->s->bases[i] = (sol_ptr)(uintptr_t)a->s->base[i];
    return line_add(&a->line, &(struct sol_command){.kind = SOL_COMMAND_RUN, .label = p->step[first].label, .run = &r});
}

/* The operands of a step of the host: copies, but for constants. */
struct operands {
    const struct net_host *h;
    const struct sol_step *step;
    char **copy; /* by operand */
    int64_t *bytes;
};

static const struct sol_buffer *buffer_of(const struct away *a, const struct operands *o, int i)
{
    return &a->net->module->buffer[a->c->program->place[o->step->place0 + i].buffer];
}

static sol_status move_operand(const struct away *a, const struct operands *o, int i, bool back)
{
    const struct sol_operand *place = &a->c->program->place[o->step->place0 + i];
    const sol_ptr there =
        (sol_ptr)(uintptr_t)a->s->base[place->buffer] + (sol_ptr)rt_quantity(place->offset, a->s->sizes);
    const struct sol_command c = {.kind = back ? SOL_COMMAND_WRITE : SOL_COMMAND_READ,
                                  .label = o->step->label,
                                  .to = back ? there : 0,
                                  .from = back ? 0 : there,
                                  .host = back ? NULL : o->copy[i],
                                  .data = back ? o->copy[i] : NULL,
                                  .bytes = o->bytes[i]};
    if (!c.bytes || buffer_of(a, o, i)->kind == SOL_BUFFER_CONST) return SOL_OK;
    return line_add(&a->line, &c);
}

static sol_status call_host(const struct away *a, const struct operands *o)
{
    const int64_t start = clock_ns();
    const int nin = o->h->nin, n = nin + o->h->nout;
    for (int i = 0; i < nin; i++) TRY(move_operand(a, o, i, false));
    TRY(wait_for(a));
    const sol_status status = run_host(a->net, (int64_t *)(uintptr_t)a->s->sizes, o->step->call, o->copy);
    if (status) return run_explain(a->net, o->step, -status);
    for (int i = nin; i < n; i++) {
        o->bytes[i] = size_at(o->h->bytes[i], a->s->sizes); /* the step may have set a size */
        TRY(move_operand(a, o, i, true));
    }
    if (a->net->launches && o->h->set >= 0) TRY(launched_sizes(a->net, a->s, &a->line));
    TRY(wait_for(a));
    if (a->c->profile) a->s->step_ns[o->step - a->c->program->step] += clock_ns() - start;
    return SOL_OK;
}

static sol_status host_step(const struct away *a, const struct sol_step *step)
{
    struct operands o = {.h = &a->net->parts.host[step->call], .step = step};
    const int n = o.h->nin + o.h->nout;
    int64_t total = 0;
    for (int i = 0; i < n; i++) total += rounded(size_at(o.h->bytes[i], a->s->sizes));
    char *memory = ctx_try(a->net->ctx, (size_t)n * (sizeof *o.copy + sizeof *o.bytes) + (size_t)total + LINE);
    if (!memory)
        return ctx_fail(a->net->ctx, SOL_ERR_NOMEM, "network '%s', '%s': out of memory: %lld bytes of operands",
                        a->net->parts.name, step->label, (long long)total);
    o.copy = (char **)memory;
    o.bytes = (int64_t *)(o.copy + n);
    char *at = (char *)(((uintptr_t)(o.bytes + n) + LINE - 1) / LINE * LINE);
    for (int i = 0; i < n; i++) {
        const struct sol_buffer *b = buffer_of(a, &o, i);
        const int64_t offset = rt_quantity(a->c->program->place[step->place0 + i].offset, a->s->sizes);
        o.bytes[i] = size_at(o.h->bytes[i], a->s->sizes);
        o.copy[i] = b->kind == SOL_BUFFER_CONST ? (char *)b->data + offset : at;
        at += rounded(o.bytes[i]);
    }
    const sol_status status = call_host(a, &o);
    if (status) line_wait(&a->line, NULL); /* commands may still use the copies */
    ctx_free(a->net->ctx, memory);
    return status;
}

static sol_status add_steps(const struct away *a)
{
    const struct sol_program *p = a->c->program;
    const bool tells = ctx_tells_steps(a->net->ctx); /* then each step ends before the next is told */
    int first = 0;
    for (int i = 0; i < p->nstep; i++) {
        const struct sol_step *step = &p->step[i];
        const bool host = step->kind == SOL_STEP_HOST || step->kind == SOL_STEP_SET;
        if (!host && !tells) continue;
        TRY(add_run(a, first, i));
        first = i + 1;
        if (a->c->only && !a->c->only[i]) continue;
        if (tells) ctx_step(a->net->ctx, step->label ? step->label : "");
        TRY(host ? host_step(a, step) : add_run(a, i, i + 1));
        if (tells) TRY(wait_for(a));
    }
    return add_run(a, first, p->nstep);
}

/* -- a call */

static sol_status add_call(const struct away *a)
{
    const bool launches = a->net->launches;
    if (a->program == PREPARE) TRY(write_params(a));
    TRY(move_io(a, false));
    if (launches) TRY(launched_open(a->net, a->s, &a->line));
    TRY(add_steps(a));
    TRY(move_io(a, true));
    if (launches) TRY(launched_close(a->net, a->c->program, a->s, &a->line));
    if (!a->net->heap || a->c->profile) return wait_for(a);
    heap_flush(a->net->heap);
    return SOL_OK;
}

static sol_status run(struct sol_net *net, const struct call *c, struct slot *s)
{
    const struct sol_module *m = net->module;
    static const int given[] = {[FORWARD] = SOL_GIVEN_FORWARD, [BACKWARD] = SOL_GIVEN_BACKWARD};
    struct away a = {.net = net, .c = c, .s = s};
    a.program = c->program == &m->prepare ? PREPARE : c->program == &m->forward ? FORWARD : BACKWARD;
    a.given = given[a.program];
    if (a.program == PREPARE) TRY(place_params(c->params));
    TRY(place_io(&a));
    set_bases(&a);
    if (net->debug && s->workspace.at) TRY(fill(net, &s->workspace, s->workspace.bytes));
    if (c->profile) memset(s->step_ns, 0, (size_t)c->program->nstep * sizeof *s->step_ns);
    a.line.heap = net->heap;
    if (!net->heap) TRY(queue_take(net->parts.dev, &a.line.queue));
    const sol_status status = add_call(&a);
    if (ctx_tells_steps(net->ctx)) ctx_step(net->ctx, NULL);
    if (!net->heap) queue_give(a.line.queue);
    return status;
}

static bool *uses_of(struct sol_net *net, const struct sol_program *p)
{
    bool *uses = NEW_ARRAY(net->arena, bool, net->module->nbuffer + 1);
    for (int i = 0; i < p->nplace; i++) uses[p->place[i].buffer] = true;
    return uses;
}

/* Copies the module's constants to the device. */
static sol_status write_constants(struct sol_net *net)
{
    const struct sol_module *m = net->module;
    int64_t total = 0;
    struct queue *q;
    for (int i = 0; i < m->nbuffer; i++)
        if (m->buffer[i].kind == SOL_BUFFER_CONST) total += rounded(m->buffer[i].bytes);
    net->constant_at = NEW_ARRAY(net->arena, char *, m->nbuffer + 1);
    TRY(ctx_check(net->ctx));
    if (!total) return SOL_OK;
    TRY(block_make(net, total, "the constants", NULL, &net->constants));
    if (net->heap) TRY(heap_wait(net->heap, "memory for a network's constants", NULL)); /* another queue writes it */
    char *at = net->constants.at;
    TRY(queue_take(net->parts.dev, &q));
    sol_status status = SOL_OK;
    for (int i = 0; i < m->nbuffer && !status; i++) {
        const struct sol_buffer *b = &m->buffer[i];
        if (b->kind != SOL_BUFFER_CONST) continue;
        net->constant_at[i] = at;
        if (b->bytes)
            status = queue_add(q, &(struct sol_command){.kind = SOL_COMMAND_WRITE,
                                                        .label = "constant",
                                                        .to = (sol_ptr)(uintptr_t)at,
                                                        .data = b->data,
                                                        .bytes = b->bytes});
        at += rounded(b->bytes);
    }
    if (!status) status = queue_wait_for(q, "a network's constants", NULL);
    queue_give(q);
    return status;
}

static void end(struct sol_net *net)
{
    block_free(net->ctx, &net->constants);
    for (int i = 0; i < net->ncode; i++) dev_unload(net->parts.dev, net->code[i]);
}

/* Loads what the device compiled for the network, or the module's own code. */
static sol_status load(struct sol_net *net)
{
    const struct net_parts *parts = &net->parts;
    const int n = net->launches ? parts->ncode : 1;
    net->code = NEW_ARRAY(net->arena, struct sol_code *, n + 1);
    TRY(ctx_check(net->ctx));
    for (; net->ncode < n; net->ncode++) {
        const struct net_code *code = parts->ncode ? &parts->code[net->ncode] : &(struct net_code){NULL, 0};
        const struct sol_blob blob = {.size = sizeof blob,
                                      .data = code->data,
                                      .bytes = code->bytes,
                                      .module = net->launches ? NULL : net->module,
                                      .name = parts->name};
        TRY(dev_load(parts->dev, &blob, &net->code[net->ncode]));
    }
    return SOL_OK;
}

static sol_status begin(struct sol_net *net)
{
    const struct sol_module *m = net->module;
    net->uses[PREPARE] = uses_of(net, &m->prepare);
    net->uses[FORWARD] = uses_of(net, &m->forward);
    net->uses[BACKWARD] = uses_of(net, &m->backward);
    TRY(ctx_check(net->ctx));
    net->launches = dev_type(net->parts.dev)->features & SOL_DEVICE_LAUNCHES;
    if (net->parts.resident) TRY(dev_heap(net->parts.dev, &net->heap));
    for (int i = 0; i < m->nparam && !net->heap; i++) {
        net->prepares[i] = true; /* a change is written to the mirror */
        net->param_at[i] = net->mirror_bytes;
        net->mirror_bytes += MAX(rounded(net->param_bytes[i]), LINE); /* an empty one has a place, too */
    }
    sol_status status = load(net);
    if (!status && net->launches) status = launched_begin(net);
    if (!status && net->parts.ncode) status = write_constants(net); /* the code does not have them */
    if (status) end(net);
    return status;
}

const struct runner runner_queued = {begin, end, make, fill, copy, run};
