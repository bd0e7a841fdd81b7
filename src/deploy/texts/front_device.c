/* Front, networks on a device with memory of its own. Included after front_begin.c in libraries for such devices, in
 * front of front_block.c. The driver is a device type of SOL (sol/device.h, deployed_device). Addresses of its memory
 * are kept as pointers that nobody here dereferences.
 *
 * Each context has a stream, and its calls wait for their end. With FRONT_NATIVE, inputs and outputs lie on the device,
 * in memory of sol_ext_malloc; otherwise a call copies them to memory of the context, and back. */
#include "sol/device.h"

enum { NPROGRAM = 3, PREPARE = 0, FORWARD = 1, BACKWARD = 2, MORE_ARGS = 6 /* of a kernel, behind its operands */ };

struct front_device { /* of the network, while it is open */
    struct sol_device *device;
    int forks;
    int threads; /* that run a program there */
    sol_ptr weights;
};

struct there_step { /* a launch, until the stream has it */
    struct sol_launch launch;
    int64_t scratch;
    int32_t number;
};
/* What a context has on the device, besides the blocks that all contexts have, and the commands of a call. */
struct front_there {
    struct sol_stream *stream;
    struct front_block io, state, learned; /* copies of inputs and outputs; errors and sizes; trained parameters */
    size_t io_bytes;
    struct sol_command *command;
    int ncommand;
    struct there_step *step;
    struct sol_arg *arg;
    sol_ptr *base, *io_at; /* by buffer */
    int64_t *learned_at;   /* by buffer: in `learned` */
    bool *used;            /* by buffer: the program of the call uses it */
    int32_t error[2];      /* what a kernel reported, and its step */
};

static int there_failed(const struct front_net *net, sol_status status, const struct sol_failure *why)
{
    return fail(status == SOL_ERR_NOMEM ? FRONT_MEMORY : FRONT_DEVICE_FAILED, "%s: %s", net->name,
                *why->text ? why->text : "the device gives no reason");
}

/* -- what a driver needs of its host */

static void *reallocate(void *user, void *p, size_t bytes)
{
    (void)user;
    if (bytes) return realloc(p, bytes);
    free(p);
    return NULL;
}

static const char *config(void *user, const char *key)
{
    (void)user;
    return strcmp(key, "device::libraries") ? NULL : getenv("SOL_DEVICE_LIBRARIES");
}

/* Of the environment variable SOL_DEVICE_OPTIONS: "nvidia.sync=1,ve.libveo=/opt/libveo.so.1". */
static void option(void *user, const char *name, char *out, size_t room)
{
    const char *at = getenv("SOL_DEVICE_OPTIONS");
    const size_t n = strlen(name);
    (void)user;
    *out = 0;
    for (; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (!strncmp(at, name, n) && at[n] == '=') {
            at += n + 1;
            snprintf(out, room, "%.*s", (int)strcspn(at, ","), at);
        }
}

static void quiet(void *user, int level, const char *module, const char *text)
{
    (void)user, (void)level, (void)module, (void)text;
}

static const struct sol_host this_host = {.size = sizeof this_host,
                                          .version = SOL_DEVICE_VERSION,
                                          .reallocate = reallocate,
                                          .config = config,
                                          .option = option,
                                          .log = quiet};

/* -- the device's memory */

static int on_device(const struct front_net *net, struct front_device **out_d)
{
    *out_d = net->state->device;
    if (!*out_d) return fail(FRONT_DEVICE_FAILED, "%s: its device is not open: call an init function", net->name);
    if ((*out_d)->forks == rt_forks()) return FRONT_GOOD;
    return fail(FRONT_DEVICE_FAILED, "%s: a child process after fork() cannot use the device of its parent", net->name);
}

static int take_raw(const struct front_net *net, size_t bytes, const char *what, void **out_at)
{
    struct front_device *d;
    struct sol_failure why = {.size = sizeof why, .step = -1};
    sol_ptr raw = 0;
    int error = on_device(net, &d);
    *out_at = NULL;
    if (error) return error;
    const sol_status status = deployed_device->alloc(d->device, (int64_t)bytes, &raw, &why);
    if (status) return fail(FRONT_MEMORY, "%s: %s: %s", net->name, what, why.text);
    *out_at = (void *)(uintptr_t)raw;
    return FRONT_GOOD;
}

static void drop_raw(const struct front_net *net, void *at)
{
    const struct front_device *d = net->state->device;
    if (at && d && d->forks == rt_forks()) deployed_device->free(d->device, (sol_ptr)(uintptr_t)at);
}

static int take_there(size_t bytes, const char *what, struct front_block *out_b)
{
    *out_b = (struct front_block){0};
    if (!bytes) return FRONT_GOOD;
#if defined FRONT_NATIVE
    out_b->raw = sol_ext_malloc(bytes);
    if (!out_b->raw) return fail(FRONT_MEMORY, "out of memory of the device: %s needs %zu bytes", what, bytes);
#else
    const int error = take_raw(&front_here, bytes, what, &out_b->raw);
    if (error) return error;
#endif
    out_b->at = out_b->raw;
    return FRONT_GOOD;
}

static void drop_there(struct front_block *b)
{
#if defined FRONT_NATIVE
    sol_ext_free(b->raw);
#else
    drop_raw(&front_here, b->raw);
#endif
    *b = (struct front_block){0};
}

/* -- opening the device */

static int wait_for(const struct front_net *net, struct sol_stream *s, int n, const struct sol_command *command,
                    struct sol_failure *why)
{
    const struct sol_device_type *type = deployed_device;
    int64_t ticket = 0;
    int done = 0;
    *why = (struct sol_failure){.size = sizeof *why, .step = -1};
    sol_status status = type->submit(s, n, command, &ticket, why);
    if (!(type->features & SOL_DEVICE_SYNCHRONOUS) && ticket) {
        struct sol_failure later = {.size = sizeof later, .step = -1};
        const sol_status ended = type->poll(s, ticket, 1, &done, &later);
        if (ended && !status) status = ended, *why = later;
    }
    return status ? there_failed(net, status, why) : FRONT_GOOD;
}

/* One command in a stream of its own. */
static int order(const struct front_net *net, const struct sol_command *c)
{
    struct front_device *d;
    struct sol_stream *s;
    struct sol_failure why = {.size = sizeof why, .step = -1};
    int error = on_device(net, &d);
    if (error) return error;
    const sol_status status = deployed_device->queue(d->device, NULL, &s, &why);
    if (status) return there_failed(net, status, &why);
    error = wait_for(net, s, 1, c, &why);
    deployed_device->unqueue(s);
    return error;
}

static int open_driver(const struct front_net *net, struct front_device *d)
{
    const struct sol_device_type *type = deployed_device;
    const int index = net->state->index;
    struct sol_failure why = {.size = sizeof why, .step = -1};
    struct sol_device_info info = {.size = sizeof info, .type = type->name, .index = index};
    int n = 0;
    sol_status status = type->count(type, &this_host, &n, &why);
    if (status || !n) return fail(FRONT_MACHINE, "%s: device %s: %s", net->name, type->name, why.text);
    if (index < 0 || index >= n)
        return fail(FRONT_MACHINE, "%s: there is no device %s:%d: there are %d", net->name, type->name, index, n);
    status = type->info(type, &this_host, index, &info, &why);
    if (!status) status = type->open(type, &this_host, index, &d->device, &why);
    if (status) return fail(FRONT_MACHINE, "%s: device %s:%d: %s", net->name, type->name, index, why.text);
    d->threads = type->features & SOL_DEVICE_LAUNCHES || info.cores < 1 ? 1 : info.cores;
    return FRONT_GOOD;
}

static void close_there(const struct front_net *net);

static void at_exit(void)
{
    front_unload(&front_here);
}

/* With the lock: opens the device, which then has the weights. */
static int open_there(const struct front_net *net)
{
    struct front_state *s = net->state;
    struct front_device *d = s->device;
    void *weights;
    if (d) return on_device(net, &d);
    d = calloc(1, sizeof *d);
    if (!d) return fail(FRONT_MEMORY, "out of memory: the device");
    d->forks = rt_forks();
    int error = open_driver(net, d);
    if (error) {
        free(d);
        return error;
    }
    s->device = d;
    error = take_raw(net, net->weights_bytes, "the weights", &weights);
    d->weights = (sol_ptr)(uintptr_t)weights;
    if (!error)
        error = order(net, &(struct sol_command){.kind = SOL_COMMAND_WRITE,
                                                 .label = "weights",
                                                 .to = d->weights,
                                                 .data = s->weights,
                                                 .bytes = (int64_t)net->weights_bytes});
    if (error)
        close_there(net);
    else
        atexit(at_exit); /* in front of the end of the driver's library, unlike a destructor */
    return error;
}

static void unload_code(const struct front_net *net, const struct front_graph *g)
{
    struct front_loaded *l = g->code->there.loaded;
    (void)net;
    if (l->code) deployed_device->unload(l->code);
    free(l->kernel[0]);
    *l = (struct front_loaded){0};
}

/* With the lock. What is left of contexts that nobody freed is lost. */
static void close_there(const struct front_net *net)
{
    struct front_device *d = net->state->device;
    if (!d) return;
    if (d->forks == rt_forks()) {
        for (int i = 0; i < net->ngraph; i++) unload_code(net, &net->graph[i]);
        if (net->training) unload_code(net, net->training);
        if (d->weights) deployed_device->free(d->device, d->weights);
        deployed_device->close(d->device);
    }
    net->state->device = NULL;
    free(d);
}

/* -- code */

static const struct sol_program *program_at(const struct sol_module *m, int i)
{
    return i == PREPARE ? &m->prepare : i == FORWARD ? &m->forward : &m->backward;
}

static sol_status find_kernels(const struct front_code *code, struct front_loaded *l, struct sol_failure *why)
{
    const struct sol_module *m = code->module;
    size_t n = 1;
    for (int i = 0; i < NPROGRAM; i++) n += (size_t)program_at(m, i)->nstep;
    void **at = calloc(n, sizeof *at);
    if (!at) return SOL_ERR_NOMEM;
    for (int i = 0; i < NPROGRAM; i++) {
        const struct sol_program *p = program_at(m, i);
        l->kernel[i] = at;
        at += p->nstep;
        for (int k = 0; k < p->nstep; k++) {
            char name[48];
            const struct front_kernel *of = &code->there.kernel[p->step[k].call / FRONT_LAUNCH_STEPS];
            snprintf(name, sizeof name, "k%d_%d", (int)(of - code->there.kernel), p->step[k].call % FRONT_LAUNCH_STEPS);
            const sol_status status = deployed_device->find(l->code, name, &l->kernel[i][k], why);
            if (status) return status;
        }
    }
    return SOL_OK;
}

static sol_status load_blob(const struct front_net *net, const struct front_device *d, const struct front_code *code,
                            struct front_loaded *l, struct sol_failure *why)
{
    const struct sol_device_type *type = deployed_device;
    struct sol_blob blob = {.size = sizeof blob,
                            .data = code->there.data,
                            .bytes = (size_t)(code->there.end - code->there.data),
                            .module = type->features & SOL_DEVICE_LAUNCHES ? NULL : code->module,
                            .name = net->name};
    if (!(type->features & SOL_DEVICE_DRIVER_CODE)) return type->load(d->device, &blob, &l->code, why);
    struct sol_device_info info = {.size = sizeof info, .type = type->name, .index = net->state->index};
    struct sol_blob made = {.size = sizeof made, .name = net->name};
    sol_status status = type->info(type, &this_host, net->state->index, &info, why);
    const struct sol_code_text text = {
        .size = sizeof text, .name = net->name, .text = (const char *)blob.data, .arch = info.arch};
    if (!status) status = type->compile(type, &this_host, &text, &made, why);
    if (!status) status = type->load(d->device, &made, &l->code, why);
    type->blob_free(type, &this_host, &made);
    return status;
}

/* The code of a graph, loaded once; with the lock. */
static int load_once(const struct front_net *net, const struct front_code *code)
{
    struct front_device *d;
    struct front_loaded *l = code->there.loaded;
    struct sol_failure why = {.size = sizeof why, .step = -1};
    const int error = on_device(net, &d);
    if (error || l->code) return error;
    sol_status status = load_blob(net, d, code, l, &why);
    if (!status && deployed_device->features & SOL_DEVICE_LAUNCHES) status = find_kernels(code, l, &why);
    if (!status) return FRONT_GOOD;
    if (l->code) deployed_device->unload(l->code);
    free(l->kernel[0]);
    *l = (struct front_loaded){0};
    return there_failed(net, status, &why);
}

static int load_there(const struct front_net *net, const struct front_code *code)
{
    static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER; /* some callers have the network's lock */
    struct front_device *d;
    int error = on_device(net, &d);
    if (error) return error;
    pthread_mutex_lock(&loading);
    error = load_once(net, code);
    pthread_mutex_unlock(&loading);
    return error;
}

static int count_threads_there(int threads)
{
    const struct front_device *d = front_here.state->device;
    const int most = d ? d->threads : MOST_THREADS; /* not known before it is open */
    return threads > 0 && threads < most ? threads : most;
}

/* -- a copy that a native application asks for */

FRONT_API int front_copy(const struct front_net *net, void *to, const void *from, size_t bytes, bool there)
{
    if (!bytes) return FRONT_GOOD;
    lock(net);
    int error = begin(net);
    unlock(net);
    if (error) return error;
    return order(net, &(struct sol_command){.kind = there ? SOL_COMMAND_WRITE : SOL_COMMAND_READ,
                                            .to = there ? (sol_ptr)(uintptr_t)to : 0,
                                            .from = there ? 0 : (sol_ptr)(uintptr_t)from,
                                            .host = there ? NULL : to,
                                            .data = there ? from : NULL,
                                            .bytes = (int64_t)bytes});
}

/* Memory of the device, for sol_ext_malloc of native libraries. */
FRONT_API void *front_memory(const struct front_net *net, size_t bytes)
{
    void *at = NULL;
    if (net->state->device) take_raw(net, bytes ? bytes : 1, "memory", &at);
    return at;
}

FRONT_API void front_memory_free(const struct front_net *net, void *p)
{
    drop_raw(net, p);
}
