/* Devices of OpenCL 1.2 implementations. An address of a device is the number of an allocation and an offset, because
 * OpenCL's memory has no addresses; a pointer that a kernel receives is the allocation and the offset (flavour.def).
 * Each stream is a queue of OpenCL that executes in order, with an event for each command whose end somebody asks for.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cl.h"
#include "device/inside.h"
#include "device/library.h"
#include "device/pending.h"

enum { PLATFORMS = 16, BASE_BITS = SOL_PTR_OFFSET_BITS };
enum { OTHER_LANES = 32 }; /* of a device that is no processor, which does not say how many items it computes in step */
/* Of an allocation, so that addresses in front of it have its number. */
#define ORIGIN ((sol_ptr)1 << (BASE_BITS - 1))
/* warnings are about generated code; without float64, double is float (build/opencl.cl) */
#define OPTIONS "-cl-std=CL1.2 -w"
#define OPTIONS_SINGLE OPTIONS " -DSOL_SINGLE -cl-single-precision-constant"

struct sol_device {
    struct cl cl;
    const struct sol_host *host;
    cl_device_id id;
    cl_context context;
    struct lock lock; /* for the allocations */
    cl_mem *memory;   /* by number - 1; NULL: free */
    int nmemory;
};
struct kernel_of {
    cl_kernel kernel;
    size_t items;     /* of a group, as the source says */
    struct lock lock; /* arguments belong to the kernel, so two streams cannot set them at the same time */
    struct sol_device *device;
    struct kernel_of *next;
};
struct sol_code {
    struct sol_device *device;
    cl_program program;
    struct lock lock;
    struct kernel_of *kernels;
};
struct sol_stream {
    struct sol_device *device;
    cl_command_queue queue;
    struct pendings pending; /* an event is behind each */
};

static sol_status fail(struct sol_failure *why, int32_t error, const char *what, const char *label)
{
    const bool memory = error == CL_MEM_OBJECT_ALLOCATION_FAILURE || error == CL_OUT_OF_RESOURCES ||
                        error == CL_OUT_OF_HOST_MEMORY || error == CL_INVALID_BUFFER_SIZE;
    return failure_set(why, memory ? SOL_ERR_NOMEM : SOL_ERR_INTERNAL, "OpenCL: %s%s%s: %s (error %d)",
                       label ? label : "", label ? ": " : "", what, cl_error(error), (int)error);
}

/* -- which devices there are */

struct found {
    struct cl cl;
    int n;
    cl_device_id id; /* that of the index, */
    cl_platform_id platform;
};

/* Finds device `index`. n: how many there are. *out_why, which lives until the next call: why there are none. */
static void look(int index, struct found *out, const char **out_why)
{
    cl_platform_id platform[PLATFORMS];
    uint32_t n = 0;
    memset(out, 0, sizeof *out);
    *out_why = cl_open(&out->cl);
    if (*out_why) return;
    const int32_t error = out->cl.GetPlatformIDs(PLATFORMS, platform, &n);
    *out_why = error ? cl_error(error) : "no implementation has a device";
    for (uint32_t i = 0; !error && i < n && i < PLATFORMS; i++) {
        cl_device_id id[PLATFORMS];
        uint32_t here = 0;
        if (out->cl.GetDeviceIDs(platform[i], (uint64_t)CL_DEVICE_TYPE_ALL, PLATFORMS, id, &here)) continue;
        for (uint32_t k = 0; k < here && k < PLATFORMS; k++, out->n++) {
            if (out->n != index) continue;
            out->id = id[k];
            out->platform = platform[i];
        }
    }
}

static sol_status opencl_count(const struct sol_device_type *type, const struct sol_host *host, int *out_n,
                               struct sol_failure *out_why)
{
    struct found f;
    const char *why;
    (void)type, (void)host;
    look(-1, &f, &why);
    *out_n = f.n;
    if (!f.n) failure_set(out_why, SOL_OK, "%s (Debian, Ubuntu: apt install pocl-opencl-icd)", why);
    return SOL_OK;
}

static uint64_t number(const struct found *f, uint32_t what)
{
    uint64_t x = 0;
    f->cl.GetDeviceInfo(f->id, what, sizeof x, &x, NULL);
    return x;
}

/* Does the device compute in float64? The option opencl.fp64=0 says that it does not. */
static bool has_f64(const struct found *f, const struct sol_host *host)
{
    return !option_is(host, "opencl.fp64", "0") && number(f, CL_DEVICE_DOUBLE_FP_CONFIG) != 0;
}

/* Do the items of a group take turns? The option opencl.card=1 says that they do not. */
static bool is_processor(const struct found *f, const struct sol_host *host)
{
    return !option_is(host, "opencl.card", "1") && number(f, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU;
}

static void describe(const struct found *f, const struct sol_host *host, struct sol_device_info *out)
{
    char platform[64] = "", version[128] = "", driver[64] = "";
    out->f64 = has_f64(f, host);
    f->cl.GetDeviceInfo(f->id, CL_DEVICE_NAME, sizeof out->name - 1, out->name, NULL);
    f->cl.GetPlatformInfo(f->platform, CL_PLATFORM_NAME, sizeof platform - 1, platform, NULL);
    f->cl.GetPlatformInfo(f->platform, CL_PLATFORM_VERSION, sizeof version - 1, version, NULL);
    f->cl.GetDeviceInfo(f->id, CL_DRIVER_VERSION, sizeof driver - 1, driver, NULL);
    struct hash h; /* programs in the cache are for this implementation, version and device */
    char hex[33];
    hash_init(&h);
    hash_text(&h, platform);
    hash_text(&h, version);
    hash_text(&h, driver);
    hash_text(&h, out->name);
    hash_text(&h, out->f64 ? OPTIONS : OPTIONS_SINGLE);
    hash_hex(&h, hex);
    snprintf(out->arch, sizeof out->arch, "cl_%.24s", hex);
    snprintf(out->compiler, sizeof out->compiler, "%s, %s, driver %s", platform, version, driver);
}

static sol_status opencl_info(const struct sol_device_type *type, const struct sol_host *host, int index,
                              struct sol_device_info *out_info, struct sol_failure *out_why)
{
    struct found f;
    const char *why;
    snprintf(out_info->name, sizeof out_info->name, "%s", type->name);
    if (index < 0) return SOL_OK;
    look(index, &f, &why);
    if (!f.id) return failure_set(out_why, SOL_ERR_UNSUPPORTED, "OpenCL: there is no device %d", index);
    describe(&f, host, out_info);
    out_info->memory = (int64_t)number(&f, CL_DEVICE_GLOBAL_MEM_SIZE);
    out_info->cores = (int32_t)number(&f, CL_DEVICE_MAX_COMPUTE_UNITS);
    out_info->lanes =
        is_processor(&f, host) ? MAX(1, (int32_t)number(&f, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT)) : OTHER_LANES;
    out_info->group_items = (int32_t)number(&f, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    out_info->group_bytes = (int64_t)number(&f, CL_DEVICE_LOCAL_MEM_SIZE);
    out_info->clock = (int32_t)number(&f, CL_DEVICE_MAX_CLOCK_FREQUENCY);
    out_info->cache = (int64_t)number(&f, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE);
    return SOL_OK;
}

/* -- open devices and their memory */

static void opencl_close(struct sol_device *d)
{
    if (d->context) d->cl.ReleaseContext(d->context);
    lock_destroy(&d->lock);
    free(d->memory);
    free(d);
}

static sol_status opencl_open(const struct sol_device_type *type, const struct sol_host *host, int index,
                              struct sol_device **out_device, struct sol_failure *out_why)
{
    struct found f;
    const char *why;
    int32_t error = 0;
    (void)type;
    *out_device = NULL;
    look(index, &f, &why);
    if (!f.id) return failure_set(out_why, SOL_ERR_UNSUPPORTED, "OpenCL: there is no device %d", index);
    struct sol_device *d = calloc(1, sizeof *d);
    if (!d) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    d->cl = f.cl;
    d->host = host;
    d->id = f.id;
    lock_init(&d->lock);
    d->context = d->cl.CreateContext(NULL, 1, &d->id, NULL, NULL, &error);
    if (error) {
        opencl_close(d);
        return fail(out_why, error, "clCreateContext", NULL);
    }
    *out_device = d;
    return SOL_OK;
}

/* The number of a free place in the table of allocations; -1: out of memory. */
static int free_place(struct sol_device *d)
{
    for (int i = 0; i < d->nmemory; i++)
        if (!d->memory[i]) return i;
    const int old = d->nmemory, n = MAX(64, 2 * old);
    cl_mem *more = realloc(d->memory, (size_t)n * sizeof *more);
    if (!more) return -1;
    memset(more + old, 0, (size_t)(n - old) * sizeof *more);
    d->memory = more;
    d->nmemory = n;
    return old;
}

static sol_status opencl_alloc(struct sol_device *d, int64_t bytes, sol_ptr *out_raw, struct sol_failure *out_why)
{
    int32_t error;
    *out_raw = 0;
    cl_mem m = d->cl.CreateBuffer(d->context, CL_MEM_READ_WRITE, (size_t)bytes, NULL, &error);
    if (error) {
        uint64_t most = 0;
        d->cl.GetDeviceInfo(d->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, NULL);
        return failure_set(out_why, SOL_ERR_NOMEM,
                           "OpenCL: out of device memory: %" PRId64 " bytes; the largest allocation is %" PRIu64, bytes,
                           most);
    }
    lock_take(&d->lock, NULL, NULL);
    const int place = free_place(d);
    if (place >= 0) d->memory[place] = m;
    lock_give(&d->lock);
    if (place < 0) {
        d->cl.ReleaseMemObject(m);
        return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    }
    *out_raw = ((sol_ptr)(place + 1) << BASE_BITS) + ORIGIN;
    return SOL_OK;
}

/* The allocation that an address belongs to, and the offset in it. NULL: none. */
static cl_mem memory_at(struct sol_device *d, sol_ptr p, int64_t *out_offset)
{
    const uint64_t place = p >> BASE_BITS;
    cl_mem m = NULL;
    *out_offset = place ? (int64_t)(p & (((sol_ptr)1 << BASE_BITS) - 1)) - (int64_t)ORIGIN : 0;
    lock_take(&d->lock, NULL, NULL);
    if (place && place <= (uint64_t)d->nmemory) m = d->memory[place - 1];
    lock_give(&d->lock);
    return m;
}

static void opencl_free(struct sol_device *d, sol_ptr raw)
{
    const uint64_t place = raw >> BASE_BITS;
    lock_take(&d->lock, NULL, NULL);
    cl_mem m = d->memory[place - 1];
    d->memory[place - 1] = NULL;
    lock_give(&d->lock);
    d->cl.ReleaseMemObject(m);
}

/* -- code */

/* out_log, unless it is NULL, gets what the compiler says about an error. */
static sol_status build(const struct cl *cl, cl_device_id id, cl_program program, const char *options,
                        struct sol_blob *out_log, struct sol_failure *why)
{
    const int32_t error = cl->BuildProgram(program, 1, &id, options, NULL, NULL);
    if (!error) return SOL_OK;
    size_t n = 0;
    char compiler[80];
    snprintf(compiler, sizeof compiler, "OpenCL: %s (error %d)", cl_error(error), (int)error);
    cl->GetProgramBuildInfo(program, id, CL_PROGRAM_BUILD_LOG, 0, NULL, &n);
    char *log = calloc(n + 1, 1);
    if (log) cl->GetProgramBuildInfo(program, id, CL_PROGRAM_BUILD_LOG, n, log, NULL);
    return failure_rejected(why, compiler, log, out_log);
}

static sol_status binary_of(const struct cl *cl, cl_program program, struct sol_blob *out, struct sol_failure *why)
{
    size_t bytes = 0;
    int32_t error = cl->GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL);
    if (error || !bytes) return fail(why, error, "there is no binary of the program", NULL);
    unsigned char *data = malloc(bytes);
    if (!data) return failure_set(why, SOL_ERR_NOMEM, "out of memory");
    error = cl->GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof data, &data, NULL);
    out->data = data;
    out->bytes = bytes;
    return error ? fail(why, error, "clGetProgramInfo", NULL) : SOL_OK;
}

static sol_status opencl_compile(const struct sol_device_type *type, const struct sol_host *host,
                                 const struct sol_code_text *text, struct sol_blob *out_blob,
                                 struct sol_failure *out_why)
{
    struct found f;
    const char *why;
    int n = 1;
    bool single = false;
    (void)type;
    for (int i = 0; i < n; i++) { /* any device that this code is for */
        struct sol_device_info info = {.size = sizeof info};
        look(i, &f, &why);
        n = f.n;
        if (f.id) describe(&f, host, &info);
        single = !info.f64;
        if (f.id && !strcmp(info.arch, text->arch)) break;
        f.id = NULL;
    }
    if (!f.id) return failure_set(out_why, SOL_ERR_UNSUPPORTED, "OpenCL: there is no device '%s'", text->arch);
    int32_t error = 0;
    cl_context context = f.cl.CreateContext(NULL, 1, &f.id, NULL, NULL, &error);
    if (error) return fail(out_why, error, "clCreateContext", NULL);
    const char *source = text->text;
    cl_program program = f.cl.CreateProgramWithSource(context, 1, &source, NULL, &error);
    sol_status status = error ? fail(out_why, error, "clCreateProgramWithSource", NULL) : SOL_OK;
    if (!status) status = build(&f.cl, f.id, program, single ? OPTIONS_SINGLE : OPTIONS, out_blob, out_why);
    if (!status) status = binary_of(&f.cl, program, out_blob, out_why);
    if (program) f.cl.ReleaseProgram(program);
    f.cl.ReleaseContext(context);
    return status;
}

static void opencl_blob_free(const struct sol_device_type *type, const struct sol_host *host, struct sol_blob *blob)
{
    (void)type, (void)host;
    free((void *)(uintptr_t)blob->data);
}

static void opencl_unload(struct sol_code *code)
{
    const struct cl *cl = &code->device->cl;
    for (struct kernel_of *k = code->kernels, *next; k; k = next) {
        next = k->next;
        cl->ReleaseKernel(k->kernel);
        lock_destroy(&k->lock);
        free(k);
    }
    if (code->program) cl->ReleaseProgram(code->program);
    lock_destroy(&code->lock);
    free(code);
}

static sol_status opencl_load(struct sol_device *d, const struct sol_blob *blob, struct sol_code **out_code,
                              struct sol_failure *out_why)
{
    int32_t state = 0, error = 0;
    const unsigned char *data = blob->data;
    struct sol_code *code = calloc(1, sizeof *code);
    *out_code = NULL;
    if (!code) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    code->device = d;
    lock_init(&code->lock);
    code->program = d->cl.CreateProgramWithBinary(d->context, 1, &d->id, &blob->bytes, &data, &state, &error);
    sol_status status = error || state
                            ? fail(out_why, error ? error : state, "the program cannot be loaded", blob->name)
                            : build(&d->cl, d->id, code->program, "", NULL, out_why);
    if (status)
        opencl_unload(code);
    else
        *out_code = code;
    return status;
}

static sol_status opencl_find(struct sol_code *code, const char *function, void **out_kernel,
                              struct sol_failure *out_why)
{
    const struct cl *cl = &code->device->cl;
    struct kernel_of *k = calloc(1, sizeof *k);
    int32_t error = 0;
    size_t items[3] = {1, 1, 1};
    *out_kernel = NULL;
    if (!k) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    k->kernel = cl->CreateKernel(code->program, function, &error);
    if (!error)
        error = cl->GetKernelWorkGroupInfo(k->kernel, code->device->id, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof items,
                                           items, NULL);
    if (error) {
        if (k->kernel) cl->ReleaseKernel(k->kernel);
        free(k);
        return fail(out_why, error, "the program has no such kernel", function);
    }
    k->items = MAX(items[0], 1);
    k->device = code->device;
    lock_init(&k->lock);
    lock_take(&code->lock, NULL, NULL);
    k->next = code->kernels;
    code->kernels = k;
    lock_give(&code->lock);
    *out_kernel = k;
    return SOL_OK;
}

/* -- streams */

static sol_status opencl_queue(struct sol_device *d, void *foreign, struct sol_stream **out_stream,
                               struct sol_failure *out_why)
{
    int32_t error = 0;
    *out_stream = NULL;
    if (foreign) return failure_set(out_why, SOL_ERR_UNSUPPORTED, "OpenCL: streams of frameworks are not used");
    struct sol_stream *s = calloc(1, sizeof *s);
    if (!s) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    s->device = d;
    s->queue = d->cl.CreateCommandQueue(d->context, d->id, CL_QUEUE_PROFILING_ENABLE, &error);
    if (error) {
        free(s);
        return fail(out_why, error, "clCreateCommandQueue", NULL);
    }
    *out_stream = s;
    return SOL_OK;
}

static void opencl_unqueue(struct sol_stream *s)
{
    for (int i = 0; i < s->pending.room; i++)
        if (s->pending.at[i].end) s->device->cl.ReleaseEvent(s->pending.at[i].end);
    s->device->cl.ReleaseCommandQueue(s->queue);
    pendings_free(&s->pending);
    free(s);
}

static int32_t set_arguments(struct kernel_of *k, const struct sol_launch *l)
{
    const struct cl *cl = &k->device->cl;
    int32_t error = 0;
    uint32_t n = 0;
    for (int i = 0; i < l->narg && !error; i++) {
        const struct sol_arg *a = &l->arg[i];
        if (a->kind == SOL_ARG_POINTER) { /* a buffer and an offset */
            int64_t offset;
            cl_mem m = memory_at(k->device, a->pointer, &offset);
            error = cl->SetKernelArg(k->kernel, n++, sizeof m, m ? &m : NULL);
            if (!error) error = cl->SetKernelArg(k->kernel, n++, sizeof offset, &offset);
        } else {
            error = cl->SetKernelArg(k->kernel, n++, (size_t)a->bytes, a->kind == SOL_ARG_VALUE ? a->value : NULL);
        }
    }
    return error;
}

static int32_t launch(struct sol_stream *s, const struct sol_launch *l, cl_event *out)
{
    struct kernel_of *k = l->kernel;
    size_t items[3], all[3];
    for (int i = 0; i < 3; i++) {
        items[i] = l->items[i] ? l->items[i] : i ? 1 : k->items;
        all[i] = l->groups[i] * items[i];
        if (!all[i]) return s->device->cl.EnqueueMarkerWithWaitList(s->queue, 0, NULL, out);
    }
    lock_take(&k->lock, NULL, NULL);
    int32_t error = set_arguments(k, l);
    if (!error) error = s->device->cl.EnqueueNDRangeKernel(s->queue, k->kernel, 3, NULL, all, items, 0, NULL, out);
    lock_give(&k->lock);
    return error;
}

static int32_t enqueue(struct sol_stream *s, const struct sol_command *c, cl_event *out)
{
    const struct cl *cl = &s->device->cl;
    const size_t bytes = (size_t)c->bytes;
    int64_t to = 0, from = 0;
    cl_mem into = c->to ? memory_at(s->device, c->to, &to) : NULL;
    cl_mem of = c->from ? memory_at(s->device, c->from, &from) : NULL;
    const bool copy = c->kind == SOL_COMMAND_WRITE || c->kind == SOL_COMMAND_READ || c->kind == SOL_COMMAND_COPY ||
                      c->kind == SOL_COMMAND_FILL;
    if (copy && !bytes) return cl->EnqueueMarkerWithWaitList(s->queue, 0, NULL, out);
    switch (c->kind) {
    case SOL_COMMAND_WRITE: return cl->EnqueueWriteBuffer(s->queue, into, 0, (size_t)to, bytes, c->data, 0, NULL, out);
    case SOL_COMMAND_READ: return cl->EnqueueReadBuffer(s->queue, of, 0, (size_t)from, bytes, c->host, 0, NULL, out);
    case SOL_COMMAND_COPY:
        return cl->EnqueueCopyBuffer(s->queue, of, into, (size_t)from, (size_t)to, bytes, 0, NULL, out);
    case SOL_COMMAND_FILL: return cl->EnqueueFillBuffer(s->queue, into, &c->value, 1, (size_t)to, bytes, 0, NULL, out);
    default: return launch(s, c->launch, out);
    }
}

static sol_status opencl_submit(struct sol_stream *s, int n, const struct sol_command *command, int64_t *out_ticket,
                                struct sol_failure *out_why)
{
    sol_status status = SOL_OK;
    for (int i = 0; i < n && !status; i++) {
        const struct sol_command *c = &command[i];
        struct pending *place = pendings_place(&s->pending);
        cl_event event = NULL;
        const int32_t error = place ? enqueue(s, c, &event) : CL_OUT_OF_HOST_MEMORY;
        if (error) {
            status = fail(out_why, error, command_kind(c), c->label);
            out_why->ticket = s->pending.ticket + 1;
            continue;
        }
        place->end = event;
        s->pending.ticket++;
        pendings_add(&s->pending, c->ns, c->label, c->label);
    }
    s->device->cl.Flush(s->queue);
    *out_ticket = s->pending.ticket;
    return status;
}

static bool ended(void *user, struct pending *p, int wait)
{
    struct sol_stream *s = user;
    const struct cl *cl = &s->device->cl;
    cl_event event = p->end;
    uint64_t from = 0, to = 0;
    int32_t state = 1;
    if (wait) cl->WaitForEvents(1, &event);
    cl->GetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    if (state > CL_COMPLETE) return false;
    struct sol_failure *f = state < 0 ? pendings_fail(&s->pending, p->ticket) : NULL;
    if (f) s->pending.status = fail(f, state, "execution failed", p->last);
    if (p->ns && !cl->GetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof from, &from, NULL) &&
        !cl->GetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof to, &to, NULL))
        *p->ns = (int64_t)(to - from);
    cl->ReleaseEvent(event);
    p->end = NULL;
    return true;
}

static sol_status opencl_poll(struct sol_stream *s, int64_t ticket, int wait, int *out_done,
                              struct sol_failure *out_why)
{
    return pendings_poll(&s->pending, ticket, &(struct pendings_by){ended, s, wait}, out_done, out_why);
}

const struct sol_device_type opencl_type = {
    .size = sizeof opencl_type,
    .version = SOL_DEVICE_VERSION,
    .name = "opencl",
    .flavour = "opencl",
    .features = SOL_DEVICE_LAUNCHES | SOL_DEVICE_DRIVER_CODE,
    .count = opencl_count,
    .info = opencl_info,
    .open = opencl_open,
    .close = opencl_close,
    .alloc = opencl_alloc,
    .free = opencl_free,
    .compile = opencl_compile,
    .blob_free = opencl_blob_free,
    .load = opencl_load,
    .unload = opencl_unload,
    .find = opencl_find,
    .queue = opencl_queue,
    .unqueue = opencl_unqueue,
    .submit = opencl_submit,
    .poll = opencl_poll,
};
