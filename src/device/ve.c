/* NEC's Vector Engines by VEDA, in the primary context of a device. Its stream 0 runs one program at a time, on all
 * cores, so all of SOL's streams share it, and a lock lets one of them submit. Commands of a submit are queued one
 * behind the other; a program is waited for, because what follows it must not run if it fails. A program is one call of
 * ve_main.c on the device, in front of which its addresses are written as one block, and behind it read. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/inside.h"
#include "device/library.h"
#include "device/ve_run.h"
#include "device/veda.h"

enum { STREAM = 0, SPARE = 64 /* bytes behind a block, so that scratch memory can be aligned in it */ };
enum { LANES = 32 /* float64 elements that a core computes in step */ };

struct sol_device {
    struct veda veda;
    veda_context context;
    int number;           /* as VEDA counts them */
    bool sync;            /* waits for each command */
    pthread_mutex_t lock; /* for the queue, and all below */
    veda_ptr block;       /* for runs; 0: none yet */
    size_t block_bytes;
};
struct sol_code {
    struct sol_device *device;
    const struct sol_module *module;
    veda_module library;
    veda_function run;
};
struct sol_stream {
    struct sol_device *device;
    int64_t ticket;
};

static const char *error_name(const struct veda *veda, int error)
{
    const char *name = NULL;
    veda->ErrorName(error, &name);
    return name ? name : "unknown error";
}

static sol_status fail(const struct veda *veda, struct sol_failure *why, int error, const char *what, const char *label)
{
    return failure_set(why, error == VEDA_OUT_OF_MEMORY ? SOL_ERR_NOMEM : SOL_ERR_INTERNAL, "VEDA: %s%s%s: %s",
                       label ? label : "", label ? ": " : "", what, error_name(veda, error));
}

/* -- which devices there are */

/* Opens VEDA. NULL: there are *out_n > 0 devices; otherwise why not, in `room`. */
static const char *open_veda(const struct sol_host *host, struct veda *out, int *out_n, char room[200])
{
    static const char *const engine[] = {"/opt/nec/ve/veos/lib64/libveo.so.1"};
    static const char *const files[] = {"veda/lib64/libveda.so.2", "/opt/nec/ve/lib64/libveda.so.2"};
    const struct library_symbol none = {NULL, NULL};
    const struct library_symbol symbols[] = {VEDA_FUNCTIONS(LIBRARY_SYMBOL){NULL, NULL}};
    *out_n = 0;
    /* libveda needs it, and finds it where it is open already */
    if (library_open(host, "ve.libveo", engine, COUNT_OF(engine), &none)) return "libveo.so.1: not found (NEC's AVEO)";
    const char *why = library_open(host, "ve.libveda", files, COUNT_OF(files), symbols);
    if (why) {
        snprintf(room, 200, "libveda.so.2: %s (pip install veda)", why);
        return room;
    }
    int error = out->Init(0);
    if (!error || error == VEDA_ALREADY_INITIALIZED) error = out->DeviceCount(out_n);
    return error ? error_name(out, error) : *out_n ? NULL : "VEDA has no device";
}

static sol_status ve_count(const struct sol_device_type *type, const struct sol_host *host, int *out_n,
                           struct sol_failure *out_why)
{
    struct veda veda;
    char room[200], compiler[200];
    const char *why = open_veda(host, &veda, out_n, room);
    (void)type;
    if (!why) return SOL_OK;
    const bool there = ve_compiler(host, compiler, sizeof compiler);
    failure_set(out_why, SOL_OK, "%s; %s compiler: %s", why, there ? "there is a" : "no", compiler);
    *out_n = 0;
    return SOL_OK;
}

/* Opens VEDA, which has device `index`. */
static sol_status find_device(const struct sol_host *host, int index, struct veda *out, struct sol_failure *out_why)
{
    int n = 0;
    char room[200];
    const char *why = open_veda(host, out, &n, room);
    if (!why && index < n) return SOL_OK;
    return failure_set(out_why, SOL_ERR_UNSUPPORTED, "VEDA: there is no device %d%s%s", index, why ? ": " : "",
                       why ? why : "");
}

static sol_status ve_info(const struct sol_device_type *type, const struct sol_host *host, int index,
                          struct sol_device_info *out_info, struct sol_failure *out_why)
{
    struct veda veda;
    size_t memory = 0;
    int cores = 0;
    snprintf(out_info->name, sizeof out_info->name, "%s", type->name);
    snprintf(out_info->arch, sizeof out_info->arch, "%s", type->name);
    if (!ve_compiler(host, out_info->compiler, sizeof out_info->compiler)) *out_info->compiler = 0;
    out_info->f64 = 1;
    out_info->lanes = LANES;
    if (index < 0) return SOL_OK;
    TRY(find_device(host, index, &veda, out_why));
    if (!veda.DeviceMemory(&memory, index)) out_info->memory = (int64_t)memory;
    if (!veda.DeviceAttribute(&cores, VEDA_CORES, index)) out_info->cores = cores;
    veda.DeviceName(out_info->name, sizeof out_info->name, index);
    return SOL_OK;
}

/* -- open devices and their memory */

static void enter(struct sol_device *d)
{
    pthread_mutex_lock(&d->lock);
    d->veda.Push(d->context);
}

static void leave(struct sol_device *d)
{
    veda_context was;
    d->veda.Pop(&was);
    pthread_mutex_unlock(&d->lock);
}

static sol_status ve_open(const struct sol_device_type *type, const struct sol_host *host, int index,
                          struct sol_device **out_device, struct sol_failure *out_why)
{
    struct veda veda;
    (void)type;
    *out_device = NULL;
    TRY(find_device(host, index, &veda, out_why));
    struct sol_device *d = calloc(1, sizeof *d);
    if (!d) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    *d = (struct sol_device){.veda = veda, .number = index, .sync = option_is(host, "ve.sync", "1")};
    const int error = veda.Retain(&d->context, index);
    if (error) {
        free(d);
        return fail(&veda, out_why, error, "the context of the device", NULL);
    }
    pthread_mutex_init(&d->lock, NULL);
    *out_device = d;
    return SOL_OK;
}

static void ve_close(struct sol_device *d)
{
    enter(d);
    if (d->block) d->veda.Free(d->block, STREAM);
    d->veda.Wait(STREAM);
    leave(d);
    d->veda.Release(d->number);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* Memory that is there: VEDA gives virtual addresses at once, and the device may have had nothing for one. */
static int allocate(struct sol_device *d, size_t bytes, veda_ptr *out)
{
    void *at = NULL;
    size_t there = 0;
    int error = d->veda.Alloc(out, bytes, STREAM);
    if (error) return error;
    error = d->veda.Place(&at, &there, *out);
    if (!error && at) return VEDA_SUCCESS;
    d->veda.Free(*out, STREAM);
    d->veda.Wait(STREAM);
    return error ? error : VEDA_OUT_OF_MEMORY;
}

static sol_status ve_alloc(struct sol_device *d, int64_t bytes, sol_ptr *out_raw, struct sol_failure *out_why)
{
    size_t all = 0;
    *out_raw = 0;
    enter(d);
    const int error = allocate(d, (size_t)bytes + SPARE, out_raw);
    leave(d);
    if (!error) return SOL_OK;
    *out_raw = 0;
    d->veda.DeviceMemory(&all, d->number);
    if (error != VEDA_OUT_OF_MEMORY) return fail(&d->veda, out_why, error, "vedaMemAllocAsync", NULL);
    return failure_set(out_why, SOL_ERR_NOMEM, "VEDA: out of device memory: %" PRId64 " bytes; the device has %zu",
                       bytes, all);
}

static void ve_free(struct sol_device *d, sol_ptr raw)
{
    enter(d);
    d->veda.Free(raw, STREAM);
    leave(d);
}

/* -- code */

/* VEDA opens a library by a path. */
static sol_status open_library(struct sol_code *code, const struct sol_blob *blob, struct sol_failure *out_why)
{
    const struct veda *veda = &code->device->veda;
    char path[300];
    const char *why = library_write(blob->data, blob->bytes, ".vso", path, sizeof path);
    if (why) return failure_set(out_why, SOL_ERR_IO, "%s: its library cannot be written: %s", blob->name, why);
    int error = veda->Load(&code->library, path);
    if (!error) error = veda->Find(&code->run, code->library, "sol_ve_run");
    unlink(path);
    return error ? fail(veda, out_why, error, "the code cannot be loaded", blob->name) : SOL_OK;
}

static void ve_unload(struct sol_code *code)
{
    struct sol_device *d = code->device;
    enter(d);
    if (code->library) d->veda.Unload(code->library);
    leave(d);
    free(code);
}

static sol_status ve_load(struct sol_device *d, const struct sol_blob *blob, struct sol_code **out_code,
                          struct sol_failure *out_why)
{
    struct sol_code *code = calloc(1, sizeof *code);
    *out_code = NULL;
    if (!code) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    *code = (struct sol_code){.device = d, .module = blob->module};
    enter(d);
    const sol_status status = open_library(code, blob, out_why);
    leave(d);
    if (!status)
        *out_code = code;
    else
        ve_unload(code);
    return status;
}

/* -- programs */

static size_t reply_bytes(const struct sol_run *r)
{
    return sizeof(struct ve_run) + (r->step_ns ? (size_t)r->count * sizeof *r->step_ns : 0);
}

/* The block in front of a run, to be freed; NULL: no memory. */
static struct ve_run *message(const struct sol_run *r, size_t *out_bytes)
{
    const struct ve_run head = {.program = r->program,
                                .first = r->first,
                                .count = r->count,
                                .threads = r->threads,
                                .nbase = r->nbase,
                                .nsize = r->sizes ? r->code->module->nsize : 0,
                                .nseed = r->nseed,
                                .timed = r->step_ns != NULL,
                                .scratch = r->scratch};
    const size_t count = (size_t)r->count, nbase = (size_t)head.nbase, nsize = (size_t)head.nsize;
    const size_t numbers = nbase + nsize + (size_t)head.nseed;
    *out_bytes = reply_bytes(r) + numbers * sizeof(uint64_t) + count;
    struct ve_run *m = calloc(1, *out_bytes);
    if (!m) return NULL;
    *m = head;
    uint64_t *at = (uint64_t *)((char *)m + reply_bytes(r));
    memcpy(at, r->base, nbase * sizeof *at);
    if (nsize) memcpy(at + nbase, r->sizes, nsize * sizeof *at);
    if (head.nseed) memcpy(at + nbase + nsize, r->seeds, (size_t)head.nseed * sizeof *at);
    unsigned char *only = (unsigned char *)(at + numbers);
    for (size_t i = 0; i < count; i++) only[i] = !r->only || r->only[(size_t)r->first + i];
    return m;
}

/* Writes the block, calls the device, reads its reply, and waits. */
static int call(struct sol_device *d, const struct sol_run *r, struct ve_run *m, size_t bytes)
{
    veda_args args = NULL;
    int error = 0;
    if (bytes > d->block_bytes) {
        if (d->block) d->veda.Free(d->block, STREAM);
        d->block = 0;
        d->block_bytes = 0;
        error = allocate(d, 2 * bytes, &d->block);
        if (!error) d->block_bytes = 2 * bytes;
    }
    if (!error) error = d->veda.Write(d->block, m, bytes, STREAM);
    if (!error) error = d->veda.ArgsCreate(&args);
    if (!error) error = d->veda.ArgsPointer(args, 0, d->block);
    if (!error) error = d->veda.Launch(r->code->run, STREAM, args, 1, NULL);
    if (!error) error = d->veda.Read(m, d->block, reply_bytes(r), STREAM);
    const int ended = d->veda.Wait(STREAM);
    return error ? error : ended;
}

static sol_status run(struct sol_device *d, const struct sol_run *r, const char *label, struct sol_failure *out_why)
{
    size_t bytes = 0;
    struct ve_run *m = message(r, &bytes);
    if (!m) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory: addresses of %d buffers", r->nbase);
    const int error = call(d, r, m, bytes);
    sol_status status = error ? fail(&d->veda, out_why, error, "the program failed", label) : SOL_OK;
    const int64_t *ns = (const int64_t *)(m + 1);
    for (int i = 0; !status && r->step_ns && i < r->count; i++)
        if (!r->only || r->only[r->first + i]) r->step_ns[r->first + i] += ns[i];
    if (!status && m->error < 0) status = failure_set(out_why, SOL_ERR_NOMEM, "the device has no memory for addresses");
    if (!status && m->error) {
        out_why->step = r->first + m->step;
        out_why->kernel = m->error;
        status = failure_set(out_why, SOL_ERR_RUN, "step %d: a kernel reports error %d", out_why->step, m->error);
    }
    if (!error) free(m); /* after a failure VEDA does not wait any more, and a copy to it may still be under way */
    return status;
}

/* -- streams */

static sol_status ve_queue(struct sol_device *d, void *foreign, struct sol_stream **out_stream,
                           struct sol_failure *out_why)
{
    *out_stream = NULL;
    if (foreign) return failure_set(out_why, SOL_ERR_UNSUPPORTED, "VEDA has no streams of frameworks");
    struct sol_stream *s = malloc(sizeof *s);
    if (!s) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    *s = (struct sol_stream){d, 0};
    *out_stream = s;
    return SOL_OK;
}

static void ve_unqueue(struct sol_stream *s)
{
    free(s);
}

static int copy(const struct veda *veda, const struct sol_command *c)
{
    const size_t bytes = (size_t)c->bytes;
    if (!bytes) return VEDA_SUCCESS;
    switch (c->kind) {
    case SOL_COMMAND_WRITE: return veda->Write(c->to, c->data, bytes, STREAM);
    case SOL_COMMAND_READ: return veda->Read(c->host, c->from, bytes, STREAM);
    case SOL_COMMAND_COPY: return veda->Copy(c->to, c->from, bytes, STREAM);
    default: return veda->Fill(c->to, c->value, bytes, STREAM);
    }
}

/* Queues a copy, or runs a program. A command whose time is asked for is alone in the queue. */
static sol_status execute(struct sol_device *d, const struct sol_command *c, struct sol_failure *out_why)
{
    const bool alone = c->ns || d->sync;
    int error = alone ? d->veda.Wait(STREAM) : 0;
    const int64_t start = clock_ns();
    sol_status status = SOL_OK;
    if (c->kind == SOL_COMMAND_RUN)
        status = run(d, c->run, c->label, out_why);
    else if (!error)
        error = copy(&d->veda, c);
    if (alone && !error) error = d->veda.Wait(STREAM);
    if (c->ns) *c->ns = clock_ns() - start;
    if (status || !error) return status;
    return fail(&d->veda, out_why, error, "the copy failed", c->label);
}

static sol_status ve_submit(struct sol_stream *s, int n, const struct sol_command *command, int64_t *out_ticket,
                            struct sol_failure *out_why)
{
    struct sol_device *d = s->device;
    sol_status status = SOL_OK;
    const char *label = NULL;
    enter(d);
    for (int i = 0; i < n && !status; i++) {
        label = command[i].label;
        out_why->ticket = ++s->ticket;
        status = execute(d, &command[i], out_why);
    }
    const int error = d->veda.Wait(STREAM);
    leave(d);
    *out_ticket = s->ticket;
    return !status && error ? fail(&d->veda, out_why, error, "a copy up to this one failed", label) : status;
}

const struct sol_device_type ve_type = {
    .size = sizeof ve_type,
    .version = SOL_DEVICE_VERSION,
    .name = "ve",
    .flavour = "loop",
    .features = SOL_DEVICE_PROGRAMS | SOL_DEVICE_SYNCHRONOUS | SOL_DEVICE_ADDRESSES,
    .count = ve_count,
    .info = ve_info,
    .open = ve_open,
    .close = ve_close,
    .alloc = ve_alloc,
    .free = ve_free,
    .compile = ve_compile,
    .blob_free = tool_blob_free,
    .load = ve_load,
    .unload = ve_unload,
    .queue = ve_queue,
    .unqueue = ve_unqueue,
    .submit = ve_submit,
};
