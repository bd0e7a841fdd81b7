/* Front, a call on a device: front_block.c includes it in libraries for such devices. A call is one list of commands:
 * copies of inputs, the steps, copies of outputs, and what the kernels report. */

/* -- what a context has there */

static int count_args(const struct sol_module *m)
{
    int most = 0;
    for (int i = 0; i < NPROGRAM; i++) {
        const struct sol_program *p = program_at(m, i);
        const int n = p->nplace + p->nstep * MORE_ARGS;
        most = n > most ? n : most;
    }
    return most + 1;
}

static int count_steps(const struct sol_module *m)
{
    int most = 0;
    for (int i = 0; i < NPROGRAM; i++) most = program_at(m, i)->nstep > most ? program_at(m, i)->nstep : most;
    return most + 1;
}

static void end_there(struct front_context *c)
{
    struct front_there *t = c->there;
    if (!t) return;
    if (t->stream && c->net->state->device && c->net->state->device->forks == rt_forks())
        deployed_device->unqueue(t->stream);
    drop_there(&t->io);
    drop_there(&t->state);
    drop_there(&t->learned);
    free(t->command);
    free(t->step);
    free(t->arg);
    free(t->base);
    free(t);
    c->there = NULL;
}

static int make_tables(struct front_context *c)
{
    const struct sol_module *m = c->code->module;
    const size_t n = (size_t)m->nbuffer + 1;
    struct front_there *t = calloc(1, sizeof *t);
    if (!t) return fail(FRONT_MEMORY, "out of memory: a context");
    c->there = t;
    t->command = calloc((size_t)(2 * m->nbuffer + count_steps(m) + 4), sizeof *t->command);
    t->step = calloc((size_t)count_steps(m), sizeof *t->step);
    t->arg = calloc((size_t)count_args(m), sizeof *t->arg);
    t->base = calloc(n, 3 * sizeof *t->base + sizeof *t->used);
    if (!t->command || !t->step || !t->arg || !t->base) return fail(FRONT_MEMORY, "out of memory: a context");
    t->io_at = t->base + n;
    t->learned_at = (int64_t *)(t->io_at + n);
    t->used = (bool *)(t->learned_at + n);
    return FRONT_GOOD;
}

/* Room for the trained parameters, one behind the other. */
static int take_trained(struct front_context *c)
{
    const struct sol_module *m = c->code->module;
    size_t bytes = 0;
    for (int i = 0; i < m->nbuffer; i++) {
        const struct sol_buffer *b = &m->buffer[i];
        if (b->kind != SOL_BUFFER_PARAM || !c->param[b->index]) continue;
        c->there->learned_at[i] = (int64_t)bytes;
        bytes += lines((size_t)b->bytes);
    }
    return take_there(bytes, "the trained parameters", &c->there->learned);
}

/* At the first call of a context with this graph. */
static int begin_there(struct front_context *c)
{
    struct front_device *d;
    struct sol_failure why = {.size = sizeof why, .step = -1};
    int error = on_device(c->net, &d);
    if (!error && c->there && !c->there->stream)
        return fail(FRONT_DEVICE_FAILED, "%s: the device does not work after a failure", c->net->name);
    if (error || c->there) return error;
    error = load_there(c->net, c->code);
    if (!error) error = make_tables(c);
    if (!error) error = take_there(LINE + (size_t)c->code->module->nsize * sizeof(int64_t), "errors", &c->there->state);
    if (!error && c->param) error = take_trained(c);
    const sol_status status = error ? SOL_OK : deployed_device->queue(d->device, NULL, &c->there->stream, &why);
    if (status) error = there_failed(c->net, status, &why);
    if (error) end_there(c);
    return error;
}

/* -- buffers of a call */

/* After a failure the stream executes nothing any more. */
static void renew_stream(struct front_context *c)
{
    struct sol_failure why = {.size = sizeof why, .step = -1};
    deployed_device->unqueue(c->there->stream);
    c->there->stream = NULL;
    deployed_device->queue(c->net->state->device->device, NULL, &c->there->stream, &why);
}

struct order_of { /* a call */
    struct front_context *c;
    const struct sol_program *p;
    int program;
    const void *const *in;
    void *const *out;
    const int64_t *seed, *sizes;
};

static bool is_given(const struct order_of *o, const struct sol_buffer *b)
{
    const int bit = o->program == FORWARD ? SOL_GIVEN_FORWARD : o->program == BACKWARD ? SOL_GIVEN_BACKWARD : 0;
    return (b->kind == SOL_BUFFER_INPUT || b->kind == SOL_BUFFER_OUTPUT) && b->given & bit;
}

/* Outputs of forward that backward reads are its inputs. */
static bool is_result(const struct order_of *o, const struct sol_buffer *b)
{
    return b->kind == SOL_BUFFER_OUTPUT && (o->program == FORWARD || b->given == SOL_GIVEN_BACKWARD);
}

/* Does it lie on the device, because it is the application's? */
static bool is_there(const struct order_of *o, const struct sol_buffer *b)
{
#if defined FRONT_NATIVE
    const struct front_net *net = o->c->net;
    const int first = o->c->graph == net->training ? net->nwritten : 0;
    if (b->kind == SOL_BUFFER_INPUT) return b->index != o->c->graph->seed_input;
    return b->index >= first && b->index < first + net->noutput;
#else
    (void)o, (void)b;
    return false;
#endif
}

static void *given_at(const struct order_of *o, const struct sol_buffer *b)
{
    if (b->kind == SOL_BUFFER_OUTPUT) return o->out ? o->out[b->index] : NULL;
    return b->index == o->c->graph->seed_input ? (void *)(uintptr_t)o->seed
           : o->in                             ? (void *)(uintptr_t)o->in[b->index]
                                               : NULL;
}

static int64_t bytes_of(const struct order_of *o, const struct sol_buffer *b)
{
    return rt_quantity(b->bytes, o->sizes);
}

/* Where the tensors of the call are: the application's places, or room of the context. */
static int place_io(const struct order_of *o)
{
    const struct sol_module *m = o->c->code->module;
    struct front_there *t = o->c->there;
    size_t total = 0;
    for (int i = 0; i < m->nbuffer; i++)
        if (is_given(o, &m->buffer[i]) && !is_there(o, &m->buffer[i]))
            total += lines((size_t)bytes_of(o, &m->buffer[i]));
    if (total > t->io_bytes) {
        drop_there(&t->io);
        t->io_bytes = 0;
        const int error = take_there(total, "inputs and outputs", &t->io);
        if (error) return error;
        t->io_bytes = total;
    }
    sol_ptr at = (sol_ptr)(uintptr_t)t->io.at;
    for (int i = 0; i < m->nbuffer; i++) {
        const struct sol_buffer *b = &m->buffer[i];
        t->io_at[i] = 0;
        if (!is_given(o, b) || !bytes_of(o, b)) continue;
        t->io_at[i] = is_there(o, b) ? (sol_ptr)(uintptr_t)given_at(o, b) : at;
        if (!is_there(o, b)) at += lines((size_t)bytes_of(o, b));
    }
    return FRONT_GOOD;
}

static sol_ptr begin_of_there(const struct order_of *o, int i, enum sol_buffer_kind kind)
{
    const struct front_context *c = o->c;
    const struct sol_buffer *b = &c->code->module->buffer[i];
    const sol_ptr weights = c->net->state->device->weights;
    switch (kind) {
    case SOL_BUFFER_INPUT:
    case SOL_BUFFER_OUTPUT: return c->there->io_at[i];
    case SOL_BUFFER_PARAM:
        if (c->param && c->param[b->index])
            return (sol_ptr)(uintptr_t)c->there->learned.at + (sol_ptr)c->there->learned_at[i];
        return c->code->param_at[b->index] < 0 ? 0 : weights + (sol_ptr)c->code->param_at[b->index];
    case SOL_BUFFER_CONST: return weights + (sol_ptr)c->code->const_at[b->index];
    case SOL_BUFFER_PREPARED: return (sol_ptr)(uintptr_t)c->prepared;
    case SOL_BUFFER_WORKSPACE: return (sol_ptr)(uintptr_t)c->workspace;
    case SOL_BUFFER_SAVED: return (sol_ptr)(uintptr_t)c->saved;
    case SOL_BUFFER_EITHER: break; /* is one of both */
    }
    return 0;
}

static void set_bases(const struct order_of *o)
{
    const struct sol_module *m = o->c->code->module;
    struct front_there *t = o->c->there;
    memset(t->used, 0, (size_t)m->nbuffer * sizeof *t->used);
    for (int i = 0; i < o->p->nplace; i++) t->used[o->p->place[i].buffer] = true;
    for (int i = 0; i < m->nbuffer; i++) {
        const struct rt_place at = rt_place(m, &m->buffer[i], o->sizes);
        const sol_ptr begin = t->used[i] ? begin_of_there(o, i, at.kind) : 0;
        t->base[i] = begin ? begin + (sol_ptr)at.offset : 0;
    }
}

/* -- commands */

static void add(struct front_there *t, struct sol_command c)
{
    if (c.kind == SOL_COMMAND_LAUNCH || c.kind == SOL_COMMAND_RUN || c.bytes) t->command[t->ncommand++] = c;
}

static void add_trained(const struct order_of *o)
{
    const struct sol_module *m = o->c->code->module;
    struct front_there *t = o->c->there;
    for (int i = 0; i < m->nbuffer; i++) {
        const struct sol_buffer *b = &m->buffer[i];
        if (b->kind != SOL_BUFFER_PARAM || !o->c->param[b->index]) continue;
        add(t, (struct sol_command){.kind = SOL_COMMAND_WRITE,
                                    .label = "a parameter",
                                    .to = (sol_ptr)(uintptr_t)t->learned.at + (sol_ptr)t->learned_at[i],
                                    .data = o->c->param[b->index],
                                    .bytes = b->bytes});
    }
}

static void add_io(const struct order_of *o, bool back)
{
    const struct sol_module *m = o->c->code->module;
    struct front_there *t = o->c->there;
    for (int i = 0; i < m->nbuffer; i++) {
        const struct sol_buffer *b = &m->buffer[i];
        if (!is_given(o, b) || is_there(o, b) || is_result(o, b) != back) continue;
        add(t, (struct sol_command){.kind = back ? SOL_COMMAND_READ : SOL_COMMAND_WRITE,
                                    .label = back ? "an output" : "an input",
                                    .to = back ? 0 : t->io_at[i],
                                    .from = back ? t->io_at[i] : 0,
                                    .host = back ? given_at(o, b) : NULL,
                                    .data = back ? NULL : given_at(o, b),
                                    .bytes = bytes_of(o, b)});
    }
}

/* A step as a launch: the parameters are those that the row of the flavour names. */
static void add_launch(const struct order_of *o, int i, struct sol_arg *arg)
{
    const struct front_code *code = o->c->code;
    const struct sol_step *s = &o->p->step[i];
    const struct front_kernel *k = &code->there.kernel[s->call / FRONT_LAUNCH_STEPS];
    struct front_there *t = o->c->there;
    struct there_step *of = &t->step[i];
    const int64_t tasks = rt_quantity(s->tasks, o->sizes);
    const sol_ptr state = (sol_ptr)(uintptr_t)t->state.at;
    int n = 0;
    if (!tasks) return;
    of->number = i;
    of->scratch = rt_scratch_bytes(o->p, o->sizes) / tasks / LINE * LINE; /* of a group */
    for (; n < s->places; n++) {
        const struct sol_operand *at = &o->p->place[s->place0 + n];
        const sol_ptr base = t->base[at->buffer];
        arg[n] = (struct sol_arg){.kind = SOL_ARG_POINTER,
                                  .pointer = base ? base + (sol_ptr)rt_quantity(at->offset, o->sizes) : 0};
    }
    arg[n++] = (struct sol_arg){.kind = SOL_ARG_POINTER, .pointer = (sol_ptr)(uintptr_t)o->c->scratch};
    arg[n++] = (struct sol_arg){.kind = SOL_ARG_VALUE, .bytes = sizeof of->scratch, .value = &of->scratch};
    arg[n++] = (struct sol_arg){.kind = SOL_ARG_POINTER, .pointer = o->sizes ? state + LINE : 0};
    arg[n++] = (struct sol_arg){.kind = SOL_ARG_POINTER, .pointer = state};
    arg[n++] = (struct sol_arg){.kind = SOL_ARG_VALUE, .bytes = sizeof of->number, .value = &of->number};
    arg[n++] = (struct sol_arg){.kind = SOL_ARG_SHARED, .bytes = k->shared > 8 ? k->shared : 8};
    of->launch = (struct sol_launch){.kernel = code->there.loaded->kernel[o->program][i],
                                     .groups = {(uint64_t)tasks, 1, 1},
                                     .items = {(uint32_t)k->items, 1, 1},
                                     .narg = n,
                                     .arg = arg};
    add(t, (struct sol_command){.kind = SOL_COMMAND_LAUNCH, .label = s->label, .launch = &of->launch});
}

static void add_launches(const struct order_of *o)
{
    struct front_there *t = o->c->there;
    struct sol_arg *arg = t->arg;
    const sol_ptr state = (sol_ptr)(uintptr_t)t->state.at;
    add(t, (struct sol_command){.kind = SOL_COMMAND_FILL, .label = "errors", .to = state, .bytes = LINE});
    if (o->sizes)
        add(t, (struct sol_command){.kind = SOL_COMMAND_WRITE,
                                    .label = "sizes",
                                    .to = state + LINE,
                                    .data = o->sizes,
                                    .bytes = o->c->code->module->nsize * (int64_t)sizeof *o->sizes});
    for (int i = 0; i < o->p->nstep; i++) {
        add_launch(o, i, arg);
        arg += o->p->step[i].places + MORE_ARGS;
    }
}

static int run_explain(const struct front_context *c, const struct sol_program *p, int32_t step, int32_t error);

static int run_orders(const struct order_of *o)
{
    static const uint64_t seeds[8];
    const struct sol_module *m = o->c->code->module;
    const bool launches = deployed_device->features & SOL_DEVICE_LAUNCHES;
    struct front_there *t = o->c->there;
    struct sol_failure why;
    const struct sol_run all = {.code = o->c->code->there.loaded->code,
                                .program = o->program,
                                .count = o->p->nstep,
                                .nbase = m->nbuffer,
                                .base = t->base,
                                .scratch = (sol_ptr)(uintptr_t)o->c->scratch,
                                .sizes = o->sizes,
                                .nsize = m->nsize,
                                .seeds = seeds,
                                .nseed = sizeof seeds / sizeof *seeds,
                                .threads = o->c->threads,
                                .network = o->c->net->name,
                                .step = o->p->step};
    t->ncommand = 0;
    t->error[0] = 0;
    if (o->program == PREPARE && o->c->param) add_trained(o);
    add_io(o, false);
    if (launches)
        add_launches(o);
    else if (o->p->nstep)
        add(t, (struct sol_command){.kind = SOL_COMMAND_RUN, .label = o->c->net->name, .run = &all});
    add_io(o, true);
    if (launches)
        add(t, (struct sol_command){.kind = SOL_COMMAND_READ,
                                    .label = "errors",
                                    .from = (sol_ptr)(uintptr_t)t->state.at,
                                    .host = t->error,
                                    .bytes = sizeof t->error});
    const int error = t->ncommand ? wait_for(o->c->net, t->stream, t->ncommand, t->command, &why) : FRONT_GOOD;
    if (error && why.kernel && why.step >= 0) return run_explain(o->c, o->p, why.step, why.kernel);
    if (error) renew_stream(o->c);
    if (!error && t->error[0]) return run_explain(o->c, o->p, t->error[1], t->error[0]);
    return error;
}

static int run_there(struct front_context *c, const struct sol_program *p, const void *const *in, void *const *out,
                     const int64_t *seed, const int64_t *sizes)
{
    const struct sol_module *m = c->code->module;
    const struct order_of o = {c,
                               p,
                               p == &m->prepare ? PREPARE : p == &m->forward ? FORWARD : BACKWARD,
                               in,
                               out,
                               seed,
                               m->nsize ? sizes : NULL};
    int error = begin_there(c);
    if (!error) error = place_io(&o);
    if (error) return error;
    set_bases(&o);
    return run_orders(&o);
}
