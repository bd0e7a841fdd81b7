/* NVIDIA's graphics cards by their driver, in the primary context of a device, which other users of CUDA in the process
 * share. Each stream is one of the driver, or a framework's; an event behind each submit says when it is done. The
 * driver reports that a kernel failed for the whole context and not for a command, so a failure names the commands
 * between two events; with the option nvidia.sync=1 each command is waited for. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "device/inside.h"
#include "device/library.h"
#include "device/pending.h"
#include "device/sequence.h"
#include "device/small_reads.h"

#define GROUP_BYTES 49152 /* that any kernel may have */

struct sol_device {
    struct cuda cuda;
    const struct sol_host *host;
    cu_context context;
    int number; /* as the driver counts them */
    bool sync;  /* waits for each command */
    bool graphs;
    atomic_int_least64_t unloads; /* of code, so far */
};
struct sol_code {
    struct sol_device *device;
    cu_module module;
    pthread_mutex_t lock;
    struct cuda_kernel *kernels;
};
struct sol_stream {
    struct sol_device *device;
    cu_stream stream, own, capture; /* own, and that of graphs: made by SOL; NULL: none yet */
    struct small_reads reads;
    struct sequences *sequences; /* that are graphs; NULL: none */
    struct cuda_calls *calls;
    struct pendings pending; /* between two events */
};

static const char *error_text(const struct cuda *cuda, int error)
{
    const char *text = calls_error(error);
    if (!text) cuda->ErrorString(error, &text);
    return text ? text : "unknown error";
}

static sol_status fail(const struct cuda *cuda, struct sol_failure *why, int error, const char *what, const char *label)
{
    return failure_set(why, error == CUDA_OUT_OF_MEMORY ? SOL_ERR_NOMEM : SOL_ERR_INTERNAL,
                       "CUDA: %s%s%s: %s (error %d)", label ? label : "", label ? ": " : "", what,
                       error_text(cuda, error), error);
}

/* -- which devices there are */

/* Opens the driver. NULL: there are *out_n > 0 devices; otherwise why not. */
static const char *open_driver(const struct sol_host *host, struct cuda *out, int *out_n)
{
    const struct library_symbol symbols[] = {CUDA_FUNCTIONS(LIBRARY_SYMBOL){NULL, NULL}};
    *out_n = 0;
    const char *why = library_open(host, "nvidia.libcuda", (const char *const[]){"libcuda.so.1"}, 1, symbols);
    if (why) return why;
    int error = out->Init(0);
    if (!error) error = out->DeviceCount(out_n);
    return error ? error_text(out, error) : *out_n ? NULL : "the driver has no device";
}

/* The capability that code is compiled for where there is no device: the option nvidia.cc=90. */
static void capability(const struct sol_host *host, char *out, size_t room)
{
    char cc[16];
    host->option(host->user, "nvidia.cc", cc, sizeof cc);
    snprintf(out, room, "sm_%s", *cc ? cc : "90");
}

static sol_status nvidia_count(const struct sol_device_type *type, const struct sol_host *host, int *out_n,
                               struct sol_failure *out_why)
{
    struct cuda cuda;
    char arch[32], compiler[300];
    const char *why = open_driver(host, &cuda, out_n);
    (void)type;
    if (!why) return SOL_OK;
    capability(host, arch, sizeof arch);
    const bool there = nvidia_compiler(host, compiler, sizeof compiler);
    failure_set(out_why, SOL_OK, "libcuda.so.1: %s; code for %s can%s%s", why, arch,
                there ? " be compiled by " : "not be compiled: ", compiler);
    *out_n = 0;
    return SOL_OK;
}

/* Opens the driver and finds device `index`, as the driver counts them. */
static sol_status find_device(const struct sol_host *host, int index, struct cuda *out, int *out_number,
                              struct sol_failure *out_why)
{
    int n = 0;
    const char *why = open_driver(host, out, &n);
    if (!why && index < n && !out->DeviceGet(out_number, index)) return SOL_OK;
    return failure_set(out_why, SOL_ERR_UNSUPPORTED, "CUDA: there is no device %d%s%s", index, why ? ": " : "",
                       why ? why : "");
}

static int64_t attribute(const struct cuda *cuda, int what, int number)
{
    int n = 0;
    return cuda->DeviceAttribute(&n, what, number) ? 0 : n;
}

/* What costs depend on. No attribute says how many products a core computes: it is 64 or 128, by its generation. */
static void speed(const struct cuda *cuda, int number, struct sol_device_info *out)
{
    const int cc = (int)(attribute(cuda, CUDA_MAJOR, number) * 10 + attribute(cuda, CUDA_MINOR, number));
    const int64_t bits = attribute(cuda, CUDA_MEMORY_BITS, number);
    out->clock = (int32_t)(attribute(cuda, CUDA_CLOCK, number) / 1000);
    out->core_fmas = cc / 10 == 7 || cc == 60 || cc == 80 ? 64 : 128;
    out->core_mma = cc == 80 ? 512 : cc / 10 == 9 || cc / 10 == 10 ? 1024 : cc > 80 ? 128 : 0;
    out->core_items = (int32_t)attribute(cuda, CUDA_CORE_ITEMS, number);
    out->core_bytes = attribute(cuda, CUDA_CORE_BYTES, number);
    out->cache = attribute(cuda, CUDA_CACHE, number);
    out->memory_rate = (int32_t)(attribute(cuda, CUDA_MEMORY_CLOCK, number) * 2 * bits / 8 / 1000);
}

static sol_status nvidia_info(const struct sol_device_type *type, const struct sol_host *host, int index,
                              struct sol_device_info *out_info, struct sol_failure *out_why)
{
    struct cuda cuda;
    size_t memory = 0;
    int number = 0;
    snprintf(out_info->name, sizeof out_info->name, "%s", type->name);
    if (!nvidia_compiler(host, out_info->compiler, sizeof out_info->compiler)) *out_info->compiler = 0;
    capability(host, out_info->arch, sizeof out_info->arch);
    calls_versions(host, out_info);
    out_info->f64 = 1;
    if (index < 0) return SOL_OK;
    TRY(find_device(host, index, &cuda, &number, out_why));
    if (!cuda.DeviceMemory(&memory, number)) out_info->memory = (int64_t)memory;
    cuda.DeviceName(out_info->name, sizeof out_info->name, number);
    snprintf(out_info->arch, sizeof out_info->arch, "sm_%d%d", (int)attribute(&cuda, CUDA_MAJOR, number),
             (int)attribute(&cuda, CUDA_MINOR, number));
    out_info->cores = (int32_t)attribute(&cuda, CUDA_CORES, number);
    out_info->lanes = (int32_t)attribute(&cuda, CUDA_LANES, number);
    out_info->group_items = (int32_t)attribute(&cuda, CUDA_GROUP_ITEMS, number);
    out_info->group_bytes = attribute(&cuda, CUDA_GROUP_BYTES, number);
    speed(&cuda, number, out_info);
    if (option_is(host, "nvidia.mma", "0")) out_info->core_mma = 0;
    out_info->tf32 = option_is(host, "nvidia.tf32", "1");
    return SOL_OK;
}

/* -- open devices and their memory */

static void enter(const struct sol_device *d)
{
    d->cuda.Push(d->context);
}

static void leave(const struct sol_device *d)
{
    cu_context was;
    d->cuda.Pop(&was);
}

static void nvidia_close(struct sol_device *d)
{
    if (d->context) d->cuda.Release(d->number);
    free(d);
}

static sol_status nvidia_open(const struct sol_device_type *type, const struct sol_host *host, int index,
                              struct sol_device **out_device, struct sol_failure *out_why)
{
    struct cuda cuda;
    int number = 0;
    (void)type;
    *out_device = NULL;
    TRY(find_device(host, index, &cuda, &number, out_why));
    struct sol_device *d = calloc(1, sizeof *d);
    if (!d) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    d->cuda = cuda;
    d->host = host;
    d->number = number;
    d->sync = option_is(host, "nvidia.sync", "1");
    d->graphs = !d->sync && !option_is(host, "nvidia.graphs", "0");
    const int error = cuda.Retain(&d->context, number);
    if (error) {
        free(d);
        return fail(&cuda, out_why, error, "the context of the device", NULL);
    }
    *out_device = d;
    return SOL_OK;
}

static sol_status nvidia_alloc(struct sol_device *d, int64_t bytes, sol_ptr *out_raw, struct sol_failure *out_why)
{
    size_t there = 0, all = 0;
    enter(d);
    const int error = d->cuda.Alloc(out_raw, (size_t)bytes);
    if (error) d->cuda.MemoryFree(&there, &all);
    leave(d);
    if (error == CUDA_OUT_OF_MEMORY)
        return failure_set(out_why, SOL_ERR_NOMEM, "CUDA: out of device memory: %" PRId64 " bytes; %zu of %zu are free",
                           bytes, there, all);
    return error ? fail(&d->cuda, out_why, error, "cuMemAlloc", NULL) : SOL_OK;
}

static void nvidia_free(struct sol_device *d, sol_ptr raw)
{
    enter(d);
    d->cuda.Free(raw);
    leave(d);
}

/* -- code */

static void nvidia_unload(struct sol_code *code)
{
    enter(code->device);
    if (code->module) code->device->cuda.Unload(code->module);
    leave(code->device);
    atomic_fetch_add(&code->device->unloads, 1);
    for (struct cuda_kernel *k = code->kernels, *next; k; k = next) {
        next = k->next;
        free(k->call);
        free(k);
    }
    pthread_mutex_destroy(&code->lock);
    free(code);
}

static sol_status nvidia_load(struct sol_device *d, const struct sol_blob *blob, struct sol_code **out_code,
                              struct sol_failure *out_why)
{
    struct sol_code *code = calloc(1, sizeof *code);
    *out_code = NULL;
    if (!code) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    code->device = d;
    pthread_mutex_init(&code->lock, NULL);
    enter(d);
    const int error = d->cuda.Load(&code->module, blob->data);
    leave(d);
    if (error)
        nvidia_unload(code);
    else
        *out_code = code;
    return error ? fail(&d->cuda, out_why, error, "the code cannot be loaded", blob->name) : SOL_OK;
}

static sol_status nvidia_find(struct sol_code *code, const char *function, void **out_kernel,
                              struct sol_failure *out_why)
{
    const struct sol_device *d = code->device;
    struct cuda_kernel *k = calloc(1, sizeof *k);
    *out_kernel = k;
    if (!k) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    enter(d);
    int error = d->cuda.Find(&k->function, code->module, function);
    if (!error) error = calls_find(&d->cuda, k, code->module, function);
    /* more memory of a group than any kernel may have must be asked for; where a card has no more, launches say so */
    if (!error) {
        const int most = (int)attribute(&d->cuda, CUDA_GROUP_BYTES_MOST, d->number);
        if (most > GROUP_BYTES) d->cuda.SetFunction(k->function, CUDA_FUNCTION_GROUP_BYTES_MOST, most);
    }
    leave(d);
    pthread_mutex_lock(&code->lock);
    k->next = code->kernels;
    code->kernels = k;
    pthread_mutex_unlock(&code->lock);
    return error ? fail(&d->cuda, out_why, error, "the code has no such kernel", function) : SOL_OK;
}

/* -- commands */

/* A pointer or value is a parameter of the kernel; memory of the group is a number of bytes of the launch. */
static int launch(const struct cuda *cuda, cu_stream stream, const struct sol_launch *l)
{
    enum { FEW = 64 };
    void *few[FEW], **parameter = l->narg <= FEW ? few : malloc((size_t)l->narg * sizeof *parameter);
    unsigned group[3], items[3], shared = 0;
    int n = 0, error = CUDA_SUCCESS;
    bool none = false;
    if (!parameter) return CUDA_OUT_OF_MEMORY;
    for (int i = 0; i < 3; i++) {
        if (l->groups[i] > INT32_MAX) error = CUDA_INVALID_VALUE;
        group[i] = (unsigned)l->groups[i];
        items[i] = MAX(l->items[i], 1u);
        none |= !group[i];
    }
    for (int i = 0; i < l->narg; i++) {
        const struct sol_arg *a = &l->arg[i];
        if (a->kind == SOL_ARG_SHARED)
            shared += (unsigned)a->bytes;
        else
            parameter[n++] = (void *)(uintptr_t)(a->kind == SOL_ARG_POINTER ? (const void *)&a->pointer : a->value);
    }
    if (!none && !error)
        error = cuda->Launch(((const struct cuda_kernel *)l->kernel)->function, group[0], group[1], group[2], items[0],
                             items[1], items[2], shared, stream, parameter, NULL);
    if (parameter != few) free(parameter);
    return error;
}

/* Appends a command to a stream of the driver. */
static int enqueue_in(const struct sol_stream *s, cu_stream stream, const struct sol_command *c)
{
    const struct cuda *cuda = &s->device->cuda;
    const size_t bytes = (size_t)c->bytes;
    if (c->kind == SOL_COMMAND_LAUNCH) {
        const int error = calls_enqueue(s->calls, stream, c->launch);
        return error == CALL_NONE ? launch(cuda, stream, c->launch) : error;
    }
    if (!bytes) return CUDA_SUCCESS;
    switch (c->kind) {
    case SOL_COMMAND_WRITE: return cuda->Write(c->to, c->data, bytes, stream);
    case SOL_COMMAND_READ: return cuda->Read(c->host, c->from, bytes, stream);
    case SOL_COMMAND_COPY: return cuda->Copy(c->to, c->from, bytes, stream);
    default: return cuda->Fill(c->to, c->value, bytes, stream);
    }
}

/* Launches that come again with the same arguments are one graph of the driver, captured in a stream of its own, so
 * that nothing else gets into it. If the driver cannot do it, they are launched one by one, and fail, if they do, by
 * their names. */
static void *capture(void *user, int n, const struct sol_command *c)
{
    struct sol_stream *s = user;
    const struct cuda *cuda = &s->device->cuda;
    cu_graph graph = NULL;
    cu_exec exec = NULL;
    int error = s->capture ? 0 : cuda->StreamCreate(&s->capture, CUDA_STREAM_NON_BLOCKING);
    if (error || cuda->CaptureBegin(s->capture, CUDA_CAPTURE_RELAXED)) return NULL;
    for (int i = 0; i < n && !error; i++) error = enqueue_in(s, s->capture, &c[i]);
    const int ended = cuda->CaptureEnd(s->capture, &graph);
    if (!error && !ended) error = cuda->GraphInstantiate(&exec, graph, 0);
    if (graph) cuda->GraphDestroy(graph);
    return error || ended ? NULL : exec;
}

static void drop(void *user, void *made)
{
    const struct sol_stream *s = user;
    s->device->cuda.ExecDestroy(made);
}

/* -- streams */

static sol_status nvidia_queue(struct sol_device *d, void *foreign, struct sol_stream **out_stream,
                               struct sol_failure *out_why)
{
    struct sol_stream *s = calloc(1, sizeof *s);
    int error = 0;
    *out_stream = NULL;
    if (!s) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    s->device = d;
    enter(d);
    if (!foreign) error = d->cuda.StreamCreate(&s->own, CUDA_STREAM_NON_BLOCKING);
    leave(d);
    if (error) {
        free(s);
        return fail(&d->cuda, out_why, error, "cuStreamCreate", NULL);
    }
    s->stream = foreign ? foreign : s->own;
    s->calls = calls_make(&d->cuda, d->host);
    if (d->graphs) s->sequences = sequences_make(&(struct sequence_maker){s, capture, drop});
    *out_stream = s;
    return SOL_OK;
}

static void nvidia_unqueue(struct sol_stream *s)
{
    const struct cuda *cuda = &s->device->cuda;
    enter(s->device);
    for (int i = 0; i < s->pending.room; i++) {
        const struct pending *p = &s->pending.at[i];
        if (p->begin) cuda->EventDestroy(p->begin);
        if (p->end) cuda->EventDestroy(p->end);
    }
    sequences_free(s->sequences);
    if (s->capture) cuda->StreamDestroy(s->capture);
    calls_free(s->calls);
    if (s->own) cuda->StreamDestroy(s->own);
    if (s->reads.slots) cuda->HostFree(s->reads.slots);
    leave(s->device);
    pendings_free(&s->pending);
    free(s);
}

/* Appends one command. Small reads go to page-locked memory, which the first one allocates. */
static int enqueue(struct sol_stream *s, const struct sol_command *c)
{
    const struct cuda *cuda = &s->device->cuda;
    struct small_reads *r = &s->reads;
    struct sol_command read = *c;
    void *slots = r->slots;
    const bool small = small_reads_take(r, c) && (slots || !cuda->HostAlloc(&slots, SMALL_READS * SMALL_READ_BYTES));
    r->slots = slots;
    if (small) read.host = small_reads_slot(r);
    const int error = enqueue_in(s, s->stream, &read);
    if (small && !error) small_reads_add(r, c, s->pending.ticket + 1);
    return error;
}

/* Records the event of a place, which is made once. */
static int mark(const struct sol_stream *s, void **event)
{
    cu_event e = *event;
    const int error = e ? CUDA_SUCCESS : s->device->cuda.EventCreate(&e, 0);
    *event = e;
    return error ? error : s->device->cuda.EventRecord(e, s->stream);
}

/* Appends a command, or the first of them as one graph, with an event if it is the last or if its time is asked for.
 * first: the label of the first command since the last event. */
static int append(struct sol_stream *s, int n, const struct sol_command *c, const char **first, int *out_taken)
{
    const struct sol_device *d = s->device;
    struct pending *p = pendings_place(&s->pending);
    int error = p ? CUDA_SUCCESS : CUDA_OUT_OF_MEMORY;
    if (!*first) *first = command_label(c);
    if (!error && c->ns) error = mark(s, &p->begin);
    *out_taken = 1;
    cu_exec exec = error ? NULL : sequences_find(s->sequences, atomic_load(&d->unloads), n, c, out_taken);
    if (!error) error = exec ? d->cuda.GraphLaunch(exec, s->stream) : enqueue(s, c);
    if (!error && d->sync) error = d->cuda.StreamWait(s->stream);
    const bool marked = *out_taken == n || c->ns;
    if (!error && marked) error = mark(s, &p->end);
    if (error) return error;
    s->pending.ticket += *out_taken;
    if (marked) pendings_add(&s->pending, c->ns, *first, command_label(&c[*out_taken - 1])), *first = NULL;
    return CUDA_SUCCESS;
}

/* The stream has failed between two commands. */
static void broken(struct sol_stream *s, const struct pending *p, int error)
{
    struct sol_failure *f = pendings_fail(&s->pending, p->ticket);
    if (!f) return;
    s->pending.status = failure_set(f, SOL_ERR_INTERNAL, "CUDA: %s%s%s: execution failed: %s (error %d)%s", p->first,
                                    p->first == p->last ? "" : " .. ", p->first == p->last ? "" : p->last,
                                    error_text(&s->device->cuda, error), error,
                                    s->device->sync ? "" : "; device::options=nvidia.sync=1 finds the command");
}

/* An event behind the last command, where the one behind it was rejected. */
static void end_here(struct sol_stream *s, const char *first)
{
    struct pending *p = pendings_place(&s->pending);
    const int error = p ? mark(s, &p->end) : CUDA_OUT_OF_MEMORY;
    if (error)
        broken(s, &(struct pending){.ticket = s->pending.ticket, .first = first, .last = first}, error);
    else
        pendings_add(&s->pending, NULL, first, first);
}

static sol_status nvidia_submit(struct sol_stream *s, int n, const struct sol_command *command, int64_t *out_ticket,
                                struct sol_failure *out_why)
{
    sol_status status = SOL_OK;
    const char *first = NULL;
    const int64_t before = s->pending.ticket;
    enter(s->device);
    sequences_begin(s->sequences);
    for (int i = 0, taken; i < n && !status; i += taken) {
        const struct sol_command *c = &command[i];
        const int error = append(s, n - i, c, &first, &taken);
        if (!error) continue;
        status = fail(&s->device->cuda, out_why, error, command_kind(c), c->label);
        out_why->ticket = s->pending.ticket + 1;
        if (s->pending.ticket > before) end_here(s, first ? first : command_kind(c));
    }
    leave(s->device);
    *out_ticket = s->pending.ticket;
    return status;
}

static bool ended(void *user, struct pending *p, int wait)
{
    struct sol_stream *s = user;
    const struct cuda *cuda = &s->device->cuda;
    float ms = 0;
    const int error = wait ? cuda->EventWait(p->end) : cuda->EventQuery(p->end);
    if (error == CUDA_NOT_READY) return false;
    if (error)
        broken(s, p, error);
    else
        small_reads_deliver(&s->reads, p->ticket);
    if (p->ns && !error && !cuda->EventElapsed(&ms, p->begin, p->end)) *p->ns = (int64_t)((double)ms * 1e6);
    return true;
}

static sol_status nvidia_poll(struct sol_stream *s, int64_t ticket, int wait, int *out_done,
                              struct sol_failure *out_why)
{
    enter(s->device);
    const sol_status status =
        pendings_poll(&s->pending, ticket, &(struct pendings_by){ended, s, wait}, out_done, out_why);
    leave(s->device);
    return status;
}

static sol_status nvidia_follow(struct sol_stream *s, void *foreign, struct sol_failure *out_why)
{
    const struct cuda *cuda = &s->device->cuda;
    const struct pending *last = pendings_last(&s->pending);
    cu_stream to = foreign;
    int captures = 0, error = CUDA_SUCCESS;
    enter(s->device);
    if (!to && !s->own) error = cuda->StreamCreate(&s->own, CUDA_STREAM_NON_BLOCKING);
    if (to) error = cuda->IsCapturing(to, &captures);
    if (!to) to = s->own;
    if (!error && !captures && to != s->stream && last) error = cuda->StreamAfter(to, last->end, 0);
    leave(s->device);
    if (captures || error == CUDA_CAPTURE_IMPLICIT)
        return failure_set(
            out_why, SOL_ERR_UNSUPPORTED,
            "CUDA: the current stream is captured into a graph (torch.cuda.graph): not supported, because "
            "the graph would use memory that SOL reuses; call the network outside of the capture: each "
            "call is one launch of a graph of SOL's own");
    if (error) return fail(cuda, out_why, error, "another stream", NULL);
    s->stream = to;
    return SOL_OK;
}

const struct sol_device_type nvidia_type = {
    .size = sizeof nvidia_type,
    .version = SOL_DEVICE_VERSION,
    .name = "nvidia",
    .flavour = "cuda",
    .features = SOL_DEVICE_LAUNCHES | SOL_DEVICE_ADDRESSES,
    .count = nvidia_count,
    .info = nvidia_info,
    .open = nvidia_open,
    .close = nvidia_close,
    .alloc = nvidia_alloc,
    .free = nvidia_free,
    .compile = nvidia_compile,
    .blob_free = tool_blob_free,
    .load = nvidia_load,
    .unload = nvidia_unload,
    .find = nvidia_find,
    .queue = nvidia_queue,
    .unqueue = nvidia_unqueue,
    .submit = nvidia_submit,
    .poll = nvidia_poll,
    .follow = nvidia_follow,
};
