/* Commands on memory and code of this process. It is all of the processor's device type, and what devices execute with
 * that are made of a processor (far.c): those say where in this process an address of theirs is. */
#include <stdlib.h>
#include <string.h>

#include "device/inside.h"
#include "rt/rt.h"

enum { ALIGN = 256 };

struct sol_code {
    const struct sol_module *module;
};

/* -- commands */

static const struct sol_program *program_of(const struct sol_module *m, int i)
{
    return i == 0 ? &m->prepare : i == 1 ? &m->forward : &m->backward;
}

struct room { /* of a run: addresses of buffers and operands */
    char **base, **operands;
    char *scratch;
};

static char *at(const struct here *h, sol_ptr p)
{
    return p ? h->at(h->user, p) : NULL;
}

static void set_bases(const struct here *h, const struct sol_run *r, const struct room *room)
{
    const struct sol_module *m = r->code->module;
    for (int i = 0; i < m->nbuffer; i++) {
        const struct sol_buffer *b = &m->buffer[i];
        const bool constant = b->kind == SOL_BUFFER_CONST;
        room->base[i] = constant ? (char *)b->data + rt_quantity(b->offset, r->sizes) : at(h, r->base[i]);
    }
}

static sol_status kernel_failed(struct sol_failure *out_why, const struct sol_run *r, int step, int error)
{
    out_why->step = r->first + step;
    out_why->kernel = error;
    return failure_set(out_why, SOL_ERR_RUN, "step %d: a kernel reports error %d", out_why->step, error);
}

static sol_status run(const struct here *h, const struct sol_run *r, struct sol_failure *out_why)
{
    const struct sol_module *m = r->code->module;
    const struct sol_program *whole = program_of(m, r->program);
    struct sol_program p = *whole;
    const size_t places = (size_t)p.nplace + (size_t)m->nbuffer;
    char **memory = h->host->reallocate(h->host->user, NULL, (places + 1) * sizeof *memory);
    const struct room room = {memory, memory + m->nbuffer, at(h, r->scratch)};
    int32_t step = 0;
    if (!memory) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory: addresses of %zu operands", places);
    set_bases(h, r, &room);
    p.step += r->first;
    p.nstep = r->count;
    const struct rt_call call = {.program = &p,
                                 .base = room.base,
                                 .operands = room.operands,
                                 .scratch = room.scratch,
                                 .seeds = r->seeds,
                                 .sizes = r->sizes,
                                 .only = r->only ? r->only + r->first : NULL,
                                 .threads = r->threads,
                                 .step_ns = r->step_ns ? r->step_ns + r->first : NULL};
    const int32_t error = rt_run(&call, &step);
    h->host->reallocate(h->host->user, memory, 0);
    return error ? kernel_failed(out_why, r, step, error) : SOL_OK;
}

static sol_status execute(const struct here *h, const struct sol_command *c, struct sol_failure *out_why)
{
    const size_t n = (size_t)c->bytes;
    switch ((enum sol_command_kind)c->kind) {
    case SOL_COMMAND_WRITE: memcpy(at(h, c->to), c->data, n); return SOL_OK;
    case SOL_COMMAND_READ: memcpy(c->host, at(h, c->from), n); return SOL_OK;
    case SOL_COMMAND_COPY: memcpy(at(h, c->to), at(h, c->from), n); return SOL_OK;
    case SOL_COMMAND_FILL: memset(at(h, c->to), c->value, n); return SOL_OK;
    case SOL_COMMAND_RUN: return run(h, c->run, out_why);
    default: return failure_set(out_why, SOL_ERR_UNSUPPORTED, "a command of kind %d is not for this device", c->kind);
    }
}

sol_status here_submit(const struct here *h, int n, const struct sol_command *command, struct sol_failure *out_why)
{
    for (int i = 0; i < n; i++) {
        const int64_t start = clock_ns();
        const sol_status status = execute(h, &command[i], out_why);
        if (command[i].ns) *command[i].ns = clock_ns() - start;
        out_why->ticket = i;
        if (status) return status;
    }
    return SOL_OK;
}

/* -- code */

sol_status here_load(struct sol_device *device, const struct sol_blob *blob, struct sol_code **out_code,
                     struct sol_failure *out_why)
{
    (void)device;
    *out_code = NULL;
    if (!blob->module)
        return failure_set(out_why, SOL_ERR_UNSUPPORTED, "%s: this device runs whole networks", blob->name);
    struct sol_code *code = malloc(sizeof *code);
    if (!code) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory: %s", blob->name);
    code->module = blob->module;
    *out_code = code;
    return SOL_OK;
}

void here_unload(struct sol_code *code)
{
    free(code);
}

/* -- the processor */

struct sol_device {
    struct here here;
};
struct sol_stream {
    struct sol_device *device;
    int64_t ticket;
};

static char *same(void *user, sol_ptr p)
{
    (void)user;
    return (char *)(uintptr_t)p; /* its memory is the host's */
}

static sol_status here_open(const struct sol_device_type *type, const struct sol_host *host, int index,
                            struct sol_device **out_device, struct sol_failure *out_why)
{
    (void)type, (void)index;
    *out_device = malloc(sizeof **out_device);
    if (!*out_device) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    **out_device = (struct sol_device){.here = {.host = host, .at = same}};
    return SOL_OK;
}

static void here_close(struct sol_device *device)
{
    free(device);
}

static sol_status here_alloc(struct sol_device *device, int64_t bytes, sol_ptr *out_raw, struct sol_failure *out_why)
{
    void *p = NULL;
    (void)device;
    *out_raw = 0;
    if (posix_memalign(&p, ALIGN, (size_t)bytes))
        return failure_set(out_why, SOL_ERR_NOMEM, "out of memory: %lld bytes", (long long)bytes);
    *out_raw = (sol_ptr)(uintptr_t)p;
    return SOL_OK;
}

static void here_free(struct sol_device *device, sol_ptr raw)
{
    (void)device;
    free((void *)(uintptr_t)raw);
}

static sol_status here_queue(struct sol_device *device, void *foreign, struct sol_stream **out_stream,
                             struct sol_failure *out_why)
{
    *out_stream = NULL;
    if (foreign) return failure_set(out_why, SOL_ERR_UNSUPPORTED, "a processor has no streams of frameworks");
    *out_stream = malloc(sizeof **out_stream);
    if (!*out_stream) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    **out_stream = (struct sol_stream){device, 0};
    return SOL_OK;
}

static void here_unqueue(struct sol_stream *stream)
{
    free(stream);
}

static sol_status submit(struct sol_stream *stream, int n, const struct sol_command *command, int64_t *out_ticket,
                         struct sol_failure *out_why)
{
    const sol_status status = here_submit(&stream->device->here, n, command, out_why);
    if (status) out_why->ticket += stream->ticket + 1;
    *out_ticket = stream->ticket += n;
    return status;
}

const struct sol_device_type here_type = {
    .size = sizeof here_type,
    .version = SOL_DEVICE_VERSION,
    .flavour = "c",
    .features = SOL_DEVICE_SHARED | SOL_DEVICE_IN_PROCESS | SOL_DEVICE_PROGRAMS | SOL_DEVICE_SYNCHRONOUS,
    .open = here_open,
    .close = here_close,
    .alloc = here_alloc,
    .free = here_free,
    .load = here_load,
    .unload = here_unload,
    .queue = here_queue,
    .unqueue = here_unqueue,
    .submit = submit,
};
