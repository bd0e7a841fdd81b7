/* SOL's devices in TensorFlow (PluggableDevice): memory, copies and events, on heaps (sol.h).
 *
 * TensorFlow gives an address to the copy between two devices without saying whose it is. So the upper bits of each
 * address are the number of the device, and tf_place takes them away.
 *
 * TensorFlow ends the process if a copy to a device, or an event, fails. So such an error is kept, and is that of the
 * next operator that runs on the device, or of the next value that is read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "_tf_device.h"

enum { MOST_DEVICES = 64, DEVICE_SHIFT = 58, COMPLETE = 3, PENDING = 2 };

static struct {
    int count;
    char name[MOST_DEVICES][64];
    _Atomic(struct sol_heap *) heap[MOST_DEVICES];
    pthread_mutex_t opening; /* heaps */
    pthread_mutex_t lock;    /* of `late` */
    char late[MOST_DEVICES][1024];
} devices = {.opening = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

const char *tf_device_name(int device)
{
    return devices.name[device];
}

static const char *text_of(sol_status status)
{
    const char *text = status ? sol_error(core.ctx) : "";
    return status && !*text ? "failed without a message" : text;
}

static sol_status heap_at(int device, struct sol_heap **out_heap)
{
    sol_status status = SOL_OK;
    *out_heap = atomic_load(&devices.heap[device]);
    if (*out_heap) return SOL_OK;
    pthread_mutex_lock(&devices.opening);
    *out_heap = atomic_load(&devices.heap[device]);
    if (!*out_heap) status = sol_heap_open(core.ctx, devices.name[device], out_heap);
    if (!status) atomic_store(&devices.heap[device], *out_heap);
    pthread_mutex_unlock(&devices.opening);
    return status;
}

/* Keeps the first error. */
static void keep(int device, sol_status status)
{
    if (!status) return;
    pthread_mutex_lock(&devices.lock);
    if (!*devices.late[device]) snprintf(devices.late[device], sizeof *devices.late, "%s", text_of(status));
    pthread_mutex_unlock(&devices.lock);
}

static bool report(int device, TF_Status *s)
{
    pthread_mutex_lock(&devices.lock);
    const bool failed = *devices.late[device];
    if (failed) tf.SetStatus(s, TF_INTERNAL, devices.late[device]);
    *devices.late[device] = 0;
    pthread_mutex_unlock(&devices.lock);
    return failed;
}

struct sol_heap *tf_heap(int device, TF_Status *s)
{
    struct sol_heap *h = NULL;
    const sol_status status = heap_at(device, &h);
    if (status) tf.SetStatus(s, TF_INTERNAL, text_of(status));
    return status || report(device, s) ? NULL : h;
}

static void good(TF_Status *s)
{
    tf.SetStatus(s, TF_OK, "");
}

uint64_t tf_place(const void *p)
{
    return (uint64_t)(uintptr_t)p & ((UINT64_C(1) << DEVICE_SHIFT) - 1);
}

static uint64_t place(const struct sp_memory *m)
{
    return tf_place(m->opaque);
}

static int device_of(const struct sp_memory *m)
{
    return (int)((uint64_t)(uintptr_t)m->opaque >> DEVICE_SHIFT);
}

/* -- memory */

static void allocate(const struct sp_device *d, uint64_t bytes, int64_t space, struct sp_memory *m)
{
    struct sol_heap *h;
    uint64_t p = 0;
    (void)space;
    if (heap_at(d->ordinal, &h) || sol_heap_alloc(h, (int64_t)(bytes ? bytes : 1), &p)) p = 0;
    if (p >> DEVICE_SHIFT) sol_heap_free(h, p), p = 0;
    m->opaque = p ? (void *)(uintptr_t)(p | (uint64_t)d->ordinal << DEVICE_SHIFT) : NULL;
    m->bytes = p ? bytes : 0;
}

static void deallocate(const struct sp_device *d, struct sp_memory *m)
{
    struct sol_heap *h = atomic_load(&devices.heap[d->ordinal]);
    if (h) sol_heap_free(h, place(m));
    m->opaque = NULL, m->bytes = 0;
}

static void *host_allocate(const struct sp_device *d, uint64_t bytes)
{
    (void)d;
    return aligned_alloc(64, (bytes / 64 + 1) * 64);
}

static void host_deallocate(const struct sp_device *d, void *p)
{
    (void)d;
    free(p);
}

static unsigned char no_stats(const struct sp_device *d, void *stats)
{
    (void)d, (void)stats;
    return 0;
}

static unsigned char memory_usage(const struct sp_device *d, int64_t *out_free, int64_t *out_total)
{
    struct sol_heap *h;
    struct sol_heap_memory m = {0};
    if (heap_at(d->ordinal, &h) || sol_heap_memory(h, 0, &m) || !m.total) return 0;
    *out_free = m.total - m.reserved, *out_total = m.total;
    return 1;
}

/* -- streams and events: a heap does everything in the order of the calls, so streams need not wait for each other */

static void create_stream(const struct sp_device *d, SP_Stream *out_stream, TF_Status *s)
{
    *out_stream = malloc(sizeof **out_stream);
    if (!*out_stream) {
        tf.SetStatus(s, TF_RESOURCE_EXHAUSTED, "sol: out of memory");
        return;
    }
    (*out_stream)->device = d->ordinal;
    good(s);
}

static void destroy_stream(const struct sp_device *d, SP_Stream stream)
{
    (void)d;
    free(stream);
}

static void dependency(const struct sp_device *d, SP_Stream a, SP_Stream b, TF_Status *s)
{
    (void)d, (void)a, (void)b;
    good(s);
}

static void stream_status(const struct sp_device *d, SP_Stream stream, TF_Status *s)
{
    (void)d, (void)stream;
    good(s);
}

static void create_event(const struct sp_device *d, SP_Event *out_event, TF_Status *s)
{
    (void)d;
    *out_event = calloc(1, sizeof **out_event);
    tf.SetStatus(s, *out_event ? TF_OK : TF_RESOURCE_EXHAUSTED, *out_event ? "" : "sol: out of memory");
}

static void destroy_event(const struct sp_device *d, SP_Event e)
{
    (void)d;
    if (e) sol_event_free(e->event);
    free(e);
}

static int event_status(const struct sp_device *d, SP_Event e)
{
    (void)d;
    return !e->event || sol_event_happened(e->event) ? COMPLETE : PENDING;
}

static void record(int device, struct sol_event **event)
{
    struct sol_heap *h;
    struct sol_event *made = NULL;
    sol_status status = heap_at(device, &h);
    if (!status) status = sol_heap_record(h, &made);
    keep(device, status);
    sol_event_free(*event);
    *event = made;
}

static void record_event(const struct sp_device *d, SP_Stream stream, SP_Event e, TF_Status *s)
{
    (void)stream;
    record(d->ordinal, &e->event);
    good(s);
}

static void wait_for_event(const struct sp_device *d, SP_Stream stream, SP_Event e, TF_Status *s)
{
    struct sol_heap *h;
    sol_status status = heap_at(stream->device, &h);
    if (!status && e->event) status = sol_heap_after(h, e->event);
    keep(d->ordinal, status);
    good(s);
}

static void event_wait(const struct sp_device *d, SP_Event e, TF_Status *s)
{
    if (e->event) keep(d->ordinal, sol_event_wait(e->event));
    good(s);
}

static void wait_all(const struct sp_device *d, TF_Status *s)
{
    struct sol_heap *h;
    sol_status status = heap_at(d->ordinal, &h);
    if (!status) status = sol_heap_wait(h);
    keep(d->ordinal, status);
    good(s);
}

static void stream_wait(const struct sp_device *d, SP_Stream stream, TF_Status *s)
{
    (void)stream;
    wait_all(d, s);
}

static unsigned char callback(const struct sp_device *d, SP_Stream stream, sp_done *done, void *arg)
{
    TF_Status *s = tf.NewStatus();
    stream_wait(d, stream, s);
    done(arg, s);
    tf.DeleteStatus(s);
    return 1;
}

static void create_timer(const struct sp_device *d, SP_Timer *out_timer, TF_Status *s)
{
    (void)d;
    *out_timer = calloc(1, sizeof **out_timer);
    tf.SetStatus(s, *out_timer ? TF_OK : TF_RESOURCE_EXHAUSTED, *out_timer ? "" : "sol: out of memory");
}

static void destroy_timer(const struct sp_device *d, SP_Timer t)
{
    (void)d;
    if (t) sol_event_free(t->from), sol_event_free(t->to);
    free(t);
}

static void start_timer(const struct sp_device *d, SP_Stream stream, SP_Timer t, TF_Status *s)
{
    (void)stream;
    record(d->ordinal, &t->from);
    good(s);
}

static void stop_timer(const struct sp_device *d, SP_Stream stream, SP_Timer t, TF_Status *s)
{
    (void)stream;
    record(d->ordinal, &t->to);
    good(s);
}

static uint64_t nanoseconds(SP_Timer t)
{
    if (!t->from || !t->to || sol_event_wait(t->from) || sol_event_wait(t->to)) return 0;
    return (uint64_t)sol_event_between(t->from, t->to);
}

/* -- copies */

/* A value must not be read if something failed before. */
static void sync_read(const struct sp_device *d, void *host, const struct sp_memory *from, uint64_t n, TF_Status *s)
{
    struct sol_heap *h = tf_heap(d->ordinal, s);
    if (!h) return;
    const sol_status status = n ? sol_heap_read(h, host, place(from), (int64_t)n) : SOL_OK;
    tf.SetStatus(s, status ? TF_INTERNAL : TF_OK, text_of(status));
}

static void read_to(const struct sp_device *d, SP_Stream stream, void *host, const struct sp_memory *from, uint64_t n,
                    TF_Status *s)
{
    (void)stream;
    sync_read(d, host, from, n, s);
}

static void sync_write(const struct sp_device *d, struct sp_memory *to, const void *host, uint64_t n, TF_Status *s)
{
    struct sol_heap *h;
    sol_status status = heap_at(d->ordinal, &h);
    if (!status && n) status = sol_heap_write(h, place(to), host, (int64_t)n);
    keep(d->ordinal, status);
    good(s);
}

static void write_from(const struct sp_device *d, SP_Stream stream, struct sp_memory *to, const void *host, uint64_t n,
                       TF_Status *s)
{
    (void)stream;
    sync_write(d, to, host, n, s);
}

/* Between devices, over the host. */
static sol_status carry(struct sol_heap *from, const struct sp_memory *source, struct sol_heap *to,
                        const struct sp_memory *target, int64_t n)
{
    void *host = malloc((size_t)n);
    if (!host) return SOL_ERR_NOMEM;
    sol_status status = sol_heap_read(from, host, place(source), n);
    if (!status) status = sol_heap_write(to, place(target), host, n);
    free(host);
    return status;
}

static void sync_copy(const struct sp_device *d, struct sp_memory *to, const struct sp_memory *from, uint64_t n,
                      TF_Status *s)
{
    struct sol_heap *source, *target;
    (void)d;
    sol_status status = heap_at(device_of(from), &source);
    if (!status) status = heap_at(device_of(to), &target);
    if (!status && n) {
        if (source == target)
            status = sol_heap_copy(target, place(to), place(from), (int64_t)n);
        else
            status = carry(source, from, target, to, (int64_t)n);
    }
    keep(device_of(to), status);
    good(s);
}

static void copy(const struct sp_device *d, SP_Stream stream, struct sp_memory *to, const struct sp_memory *from,
                 uint64_t n, TF_Status *s)
{
    (void)stream;
    sync_copy(d, to, from, n, s);
}

static void fill(const struct sp_device *d, SP_Stream stream, struct sp_memory *to, uint8_t value, uint64_t n,
                 TF_Status *s)
{
    struct sol_heap *h;
    (void)stream;
    sol_status status = heap_at(d->ordinal, &h);
    if (!status && n) status = sol_heap_fill(h, place(to), value, (int64_t)n);
    keep(d->ordinal, status);
    good(s);
}

static void zero(const struct sp_device *d, SP_Stream stream, struct sp_memory *to, uint64_t n, TF_Status *s)
{
    fill(d, stream, to, 0, n, s);
}

static void fill32(const struct sp_device *d, SP_Stream stream, struct sp_memory *to, uint32_t value, uint64_t n,
                   TF_Status *s)
{
    uint32_t *all = malloc(n + 4);
    (void)stream;
    for (uint64_t i = 0; all && i < n / 4; i++) all[i] = value;
    if (all)
        sync_write(d, to, all, n / 4 * 4, s);
    else
        tf.SetStatus(s, TF_RESOURCE_EXHAUSTED, "sol: out of memory");
    free(all);
}

/* -- the platform */

static void device_count(const struct sp_platform *p, int *out_n, TF_Status *s)
{
    (void)p;
    *out_n = devices.count;
    good(s);
}

static void create_device(const struct sp_platform *p, struct sp_device_params *q, TF_Status *s)
{
    (void)p;
    q->device->ordinal = q->ordinal;
    q->device->hardware_name = devices.name[q->ordinal];
    q->device->vendor = "SOL";
    q->device->pci_bus_id = "";
    good(s);
}

static void destroy_device(const struct sp_platform *p, struct sp_device *d)
{
    (void)p, (void)d;
}

static int32_t numa_node(const struct sp_device *d)
{
    (void)d;
    return 0;
}

static int64_t unknown_bandwidth(const struct sp_device *d)
{
    (void)d;
    return -1;
}

static double unknown_speed(const struct sp_device *d)
{
    (void)d;
    return -1;
}

static void create_device_fns(const struct sp_platform *p, struct sp_device_fns_params *q, TF_Status *s)
{
    (void)p;
    q->fns->numa_node = numa_node, q->fns->bandwidth = unknown_bandwidth, q->fns->gflops = unknown_speed;
    good(s);
}

static void destroy_device_fns(const struct sp_platform *p, struct sp_device_fns *fns)
{
    (void)p, (void)fns;
}

static void create_executor(const struct sp_platform *p, struct sp_executor_params *q, TF_Status *s)
{
    (void)p;
    *q->executor = (struct sp_executor){.size = q->executor->size,
                                        .allocate = allocate,
                                        .deallocate = deallocate,
                                        .host_allocate = host_allocate,
                                        .host_deallocate = host_deallocate,
                                        .allocator_stats = no_stats,
                                        .memory_usage = memory_usage,
                                        .create_stream = create_stream,
                                        .destroy_stream = destroy_stream,
                                        .stream_dependency = dependency,
                                        .stream_status = stream_status,
                                        .create_event = create_event,
                                        .destroy_event = destroy_event,
                                        .event_status = event_status,
                                        .record_event = record_event,
                                        .wait_for_event = wait_for_event,
                                        .create_timer = create_timer,
                                        .destroy_timer = destroy_timer,
                                        .start_timer = start_timer,
                                        .stop_timer = stop_timer,
                                        .read = read_to,
                                        .write = write_from,
                                        .copy = copy,
                                        .sync_read = sync_read,
                                        .sync_write = sync_write,
                                        .sync_copy = sync_copy,
                                        .event_wait = event_wait,
                                        .stream_wait = stream_wait,
                                        .wait = wait_all,
                                        .zero = zero,
                                        .fill = fill,
                                        .fill32 = fill32,
                                        .callback = callback};
    good(s);
}

static void destroy_executor(const struct sp_platform *p, struct sp_executor *e)
{
    (void)p, (void)e;
}

static void create_timer_fns(const struct sp_platform *p, struct sp_timer_fns *fns, TF_Status *s)
{
    (void)p;
    fns->nanoseconds = nanoseconds;
    good(s);
}

static void destroy_timer_fns(const struct sp_platform *p, struct sp_timer_fns *fns)
{
    (void)p, (void)fns;
}

static void destroy_platform(struct sp_platform *p)
{
    (void)p;
}

static void destroy_platform_fns(struct sp_platform_fns *fns)
{
    (void)fns;
}

void SE_InitPlugin(struct sp_registration *q, TF_Status *s)
{
    q->platform->name = "SOL_DEVICE";
    q->platform->type = "SOL";
    q->platform->unified_memory = q->platform->bfc_allocator = q->platform->memory_growth = 0;
    q->fns->device_count = device_count;
    q->fns->create_device = create_device;
    q->fns->destroy_device = destroy_device;
    q->fns->create_device_fns = create_device_fns;
    q->fns->destroy_device_fns = destroy_device_fns;
    q->fns->create_executor = create_executor;
    q->fns->destroy_executor = destroy_executor;
    q->fns->create_timer_fns = create_timer_fns;
    q->fns->destroy_timer_fns = destroy_timer_fns;
    q->destroy_platform = destroy_platform;
    q->destroy_platform_fns = destroy_platform_fns;
    good(s);
}

/* -- for Python */

static PyObject *begin(PyObject *self, PyObject *names)
{
    (void)self;
    const Py_ssize_t n = PyTuple_Size(names);
    if (n < 0) return NULL;
    devices.count = n < MOST_DEVICES ? (int)n : MOST_DEVICES;
    for (int i = 0; i < devices.count; i++) {
        PyObject *bytes = PyUnicode_AsUTF8String(PyTuple_GetItem(names, i));
        if (!bytes) return NULL;
        snprintf(devices.name[i], sizeof *devices.name, "%s", PyBytes_AsString(bytes));
        Py_DECREF(bytes);
    }
    return PyLong_FromLong(devices.count);
}

static PyObject *counts(PyObject *self, PyObject *args)
{
    int device;
    struct sol_heap *h;
    (void)self;
    if (!PyArg_ParseTuple(args, "i", &device)) return NULL;
    if (device < 0 || device >= devices.count)
        return PyErr_Format(core.error[SOL_ERR_INVALID], "device SOL:%d: there are %d", device, devices.count);
    const sol_status status = heap_at(device, &h);
    if (status) return core_raise(status);
    return core_heap_counts(h);
}

static PyMethodDef functions[] = {
    {"tf_device_begin", begin, METH_O,
     "tf_device_begin(names) -> how many: the devices that SE_InitPlugin offers to TensorFlow, such as (\"far:0\",)"},
    {"tf_device_counts", counts, METH_VARARGS,
     "tf_device_counts(device) -> what the device did: {waits, writes, reads, ..}"},
    {NULL, NULL, 0, NULL},
};

int tf_device_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
