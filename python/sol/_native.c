/* Tensors of PyTorch that lie on a device: memory of heaps (sol.h) for the module that native.cpp becomes, and what it
 * asks before an operator runs on the processor instead. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "_core.h"
#include "_dlpack.h"
#include "pytorch/native/native.h"

enum { MOST_DEVICES = 127 }; /* PyTorch numbers them in 8 bits */

static struct {
    struct sol_native table;
    char type[64];
    _Atomic(struct sol_heap *) heap[MOST_DEVICES];
    PyObject *fallbacks;               /* how often, by operator */
    const struct dl_exchange_api *api; /* reads PyTorch's tensors */
} native;

static const char *message(sol_status status)
{
    const char *text = status ? sol_error(core.ctx) : NULL;
    return status ? text && *text ? text : "failed without a message" : NULL;
}

static sol_status heap_at(int device, struct sol_heap **out_heap)
{
    char name[sizeof native.type + 16];
    *out_heap = atomic_load(&native.heap[device]);
    if (*out_heap) return SOL_OK;
    snprintf(name, sizeof name, "%s:%d", native.type, device);
    const sol_status status = sol_heap_open(core.ctx, name, out_heap);
    if (!status) atomic_store(&native.heap[device], *out_heap);
    return status;
}

/* -- the table */

static const char *alloc_at(int device, int64_t bytes, uint64_t *out_p, int *out_full)
{
    struct sol_heap *h;
    sol_status status = heap_at(device, &h);
    if (!status) status = sol_heap_alloc(h, bytes, out_p);
    *out_full = status == SOL_ERR_NOMEM;
    return message(status);
}

static void free_at(int device, uint64_t p)
{
    struct sol_heap *h = atomic_load(&native.heap[device]);
    if (h) sol_heap_free(h, p);
}

static const char *write_at(int device, uint64_t to, const void *data, int64_t bytes)
{
    struct sol_heap *h;
    sol_status status = heap_at(device, &h);
    if (!status) status = sol_heap_write(h, to, data, bytes);
    return message(status);
}

static const char *read_at(int device, void *host, uint64_t from, int64_t bytes)
{
    struct sol_heap *h;
    sol_status status = heap_at(device, &h);
    if (!status) status = sol_heap_read(h, host, from, bytes);
    return message(status);
}

static const char *copy_at(int device, uint64_t to, uint64_t from, int64_t bytes)
{
    struct sol_heap *h;
    sol_status status = heap_at(device, &h);
    if (!status) status = sol_heap_copy(h, to, from, bytes);
    return message(status);
}

static const char *fill_at(int device, uint64_t to, int value, int64_t bytes)
{
    struct sol_heap *h;
    sol_status status = heap_at(device, &h);
    if (!status) status = sol_heap_fill(h, to, value, bytes);
    return message(status);
}

static const char *wait_at(int device)
{
    struct sol_heap *h = atomic_load(&native.heap[device]);
    return h ? message(sol_heap_wait(h)) : NULL;
}

static const char *memory_at(int device, int reset, int64_t *out_reserved, int64_t *out_most, int64_t *out_total)
{
    struct sol_heap *h;
    struct sol_heap_memory m = {0};
    sol_status status = heap_at(device, &h);
    if (!status) status = sol_heap_memory(h, reset, &m);
    *out_reserved = m.reserved, *out_most = m.most_reserved, *out_total = m.total;
    return message(status);
}

static const char *trim_at(int device)
{
    struct sol_heap *h = atomic_load(&native.heap[device]);
    return h ? message(sol_heap_trim(h)) : NULL;
}

static const char *record_at(int device, void **event)
{
    struct sol_heap *h;
    struct sol_event *made = NULL;
    sol_status status = heap_at(device, &h);
    if (!status) status = sol_heap_record(h, &made);
    sol_event_free(*event);
    *event = made;
    return message(status);
}

static const char *after_at(int device, void *event)
{
    struct sol_heap *h;
    sol_status status = heap_at(device, &h);
    if (!status) status = sol_heap_after(h, event);
    return message(status);
}

static const char *event_wait(void *event)
{
    return message(sol_event_wait(event));
}

static int idle_at(int device)
{
    struct sol_heap *h;
    return heap_at(device, &h) || sol_heap_idle(h); /* without a heap nothing was asked for */
}

static int event_happened(void *event)
{
    return sol_event_happened(event);
}

static int64_t event_between(void *from, void *to)
{
    return sol_event_between(from, to);
}

static void event_free(void *event)
{
    sol_event_free(event);
}

static const char *fallback_of(const char *op)
{
    static _Thread_local char text[300];
    const char *allowed = sol_config_get(core.ctx, "device::fallback");
    if (allowed && !strcmp(allowed, "off")) {
        snprintf(text, sizeof text,
                 "%.100s: SOL has no kernel for these arguments on device %s, and the key device::fallback=off "
                 "(SOL_DEVICE_FALLBACK) forbids PyTorch's for the processor: allow it with "
                 "sol.config[\"device::fallback\"] = \"on\", or move the tensors with .cpu()",
                 op, native.type);
        return text;
    }
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *before = native.fallbacks ? PyDict_GetItemString(native.fallbacks, op) : NULL;
    PyObject *n = PyLong_FromLong(before ? PyLong_AsLong(before) + 1 : 1);
    if (!n || !native.fallbacks || PyDict_SetItemString(native.fallbacks, op, n)) PyErr_Clear();
    Py_XDECREF(n);
    PyGILState_Release(gil);
    return NULL;
}

/* -- a network of one operator */

enum { MOST_TENSORS = 512 };

static int read_tensors(PyObject *tuple, int expected, const void **out_at, int64_t *out_bytes)
{
    if (PyTuple_Size(tuple) != expected || expected > MOST_TENSORS) {
        PyErr_Format(core.error[SOL_ERR_INVALID], "native_run: expected %d tensors, got %zd", expected,
                     PyTuple_Size(tuple));
        return -1;
    }
    for (int i = 0; i < expected; i++) {
        struct dl_tensor t;
        if (native.api->view(PyTuple_GetItem(tuple, i), &t)) return -1;
        int64_t n = 1, last = 0;
        for (int d = 0; d < t.ndim; d++) {
            n *= t.shape[d];
            last += (t.shape[d] - 1) * (t.strides ? t.strides[d] : 1);
        }
        out_bytes[i] = (n ? t.strides ? last + 1 : n : 0) * ((t.bits + 7) / 8);
        out_at[i] = n ? (const char *)t.data + t.byte_offset : (const void *)&native;
    }
    return 0;
}

static bool overlap(const void *a, int64_t na, const void *b, int64_t nb)
{
    return (uintptr_t)a < (uintptr_t)b + (uint64_t)nb && (uintptr_t)b < (uintptr_t)a + (uint64_t)na;
}

struct apart { /* memory for outputs that lie where inputs do: a network must not write what it reads */
    void *out[MOST_TENSORS];
    uint64_t target[MOST_TENSORS]; /* 0: it is computed in place */
};

static sol_status run_apart(const struct sol_native_run *r, struct sol_heap *heap, struct apart *a)
{
    for (int i = 0; i < r->nout; i++) {
        bool apart = true;
        uint64_t p;
        a->out[i] = r->out[i], a->target[i] = 0;
        for (int k = 0; k < r->nin; k++) apart &= !overlap(r->out[i], r->out_bytes[i], r->in[k], r->in_bytes[k]);
        for (int k = 0; k < i; k++) apart &= !overlap(r->out[i], r->out_bytes[i], r->out[k], r->out_bytes[k]);
        if (apart) continue;
        const sol_status status = sol_heap_alloc(heap, r->out_bytes[i], &p);
        if (status) return status;
        a->target[i] = (uint64_t)(uintptr_t)r->out[i];
        a->out[i] = (void *)(uintptr_t)p;
    }
    return SOL_OK;
}

static sol_status run_status(const struct sol_native_run *r)
{
    struct py_net *p = r->net;
    struct sol_heap *heap;
    struct apart a;
    const struct sol_call call = {
        .dims = sol_net_dims(p->net) ? r->dims : NULL, .inputs = r->in, .outputs = a.out, .threads = r->threads};
    memset(a.target, 0, (size_t)r->nout * sizeof *a.target);
    sol_status status = heap_at(r->device, &heap);
    if (!status) status = run_apart(r, heap, &a);
    if (!status) status = sol_net_run_at(p->net, p->params, &call);
    for (int i = 0; i < r->nout; i++) {
        const uint64_t made = (uint64_t)(uintptr_t)a.out[i];
        if (!a.target[i]) continue;
        if (!status) status = sol_heap_copy(heap, a.target[i], made, r->out_bytes[i]);
        sol_heap_free(heap, made);
    }
    return status;
}

static const char *run_at(const struct sol_native_run *r)
{
    return message(run_status(r));
}

struct tensors { /* of a call from Python */
    const void *in[MOST_TENSORS];
    void *out[MOST_TENSORS];
    int64_t in_bytes[MOST_TENSORS], out_bytes[MOST_TENSORS], dims[MOST_VARY];
};

static PyObject *run(PyObject *self, PyObject *args)
{
    PyObject *net, *inputs, *outputs, *dims;
    int device, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!iO!O!O!i", core.net, &net, &device, &PyTuple_Type, &inputs, &PyTuple_Type, &outputs,
                          &PyTuple_Type, &dims, &threads))
        return NULL;
    struct py_net *p = (struct py_net *)net;
    struct tensors *t = PyMem_Malloc(sizeof *t);
    if (!t) return PyErr_NoMemory();
    const struct sol_native_run r = {.net = net,
                                     .device = device,
                                     .threads = threads,
                                     .nin = sol_net_inputs(p->net),
                                     .nout = sol_net_outputs(p->net),
                                     .in = t->in,
                                     .out = t->out,
                                     .in_bytes = t->in_bytes,
                                     .out_bytes = t->out_bytes,
                                     .dims = t->dims};
    sol_status status = p->params ? SOL_OK : sol_params_create(p->net, &p->params);
    const bool good = !status && !read_tensors(inputs, r.nin, t->in, t->in_bytes) &&
                      !read_tensors(outputs, r.nout, (const void **)t->out, t->out_bytes) &&
                      core_dims(dims, t->dims) == sol_net_dims(p->net);
    if (good) {
        Py_BEGIN_ALLOW_THREADS;
        status = run_status(&r);
        Py_END_ALLOW_THREADS;
    }
    PyMem_Free(t);
    if (PyErr_Occurred()) return NULL;
    if (status) return core_raise(status);
    if (!good) return PyErr_Format(core.error[SOL_ERR_INVALID], "native_run: not the sizes of this network");
    Py_RETURN_NONE;
}

/* -- functions of the module */

static PyObject *fallback(PyObject *self, PyObject *args)
{
    const char *op;
    (void)self;
    if (!PyArg_ParseTuple(args, "s", &op)) return NULL;
    const char *forbidden = fallback_of(op);
    if (forbidden) return PyErr_Format(core.error[SOL_ERR_UNSUPPORTED], "%s", forbidden);
    Py_RETURN_NONE;
}

static PyObject *begin(PyObject *self, PyObject *args)
{
    const char *type;
    int devices;
    PyObject *fallbacks, *capsule;
    (void)self;
    if (!PyArg_ParseTuple(args, "siO!O", &type, &devices, &PyDict_Type, &fallbacks, &capsule)) return NULL;
    if (devices > MOST_DEVICES)
        return PyErr_Format(core.error[SOL_ERR_INVALID], "native_begin: expected at most %d devices, got %d",
                            MOST_DEVICES, devices);
    native.api = PyCapsule_GetPointer(capsule, DL_EXCHANGE_CAPSULE); /* it lives as long as the process */
    if (!native.api) return NULL;
    if (native.api->header.major != 1 || !native.api->view)
        return PyErr_Format(core.error[SOL_ERR_UNSUPPORTED], "DLPack: expected version 1, got %u",
                            native.api->header.major);
    snprintf(native.type, sizeof native.type, "%s", type);
    Py_INCREF(fallbacks);
    native.fallbacks = fallbacks;
    native.table = (struct sol_native){.size = sizeof native.table,
                                       .devices = devices,
                                       .alloc = alloc_at,
                                       .free = free_at,
                                       .write = write_at,
                                       .read = read_at,
                                       .copy = copy_at,
                                       .fill = fill_at,
                                       .wait = wait_at,
                                       .run = run_at,
                                       .memory = memory_at,
                                       .trim = trim_at,
                                       .record = record_at,
                                       .after = after_at,
                                       .event_wait = event_wait,
                                       .event_happened = event_happened,
                                       .idle = idle_at,
                                       .event_between = event_between,
                                       .event_free = event_free,
                                       .fallback = fallback_of};
    return PyLong_FromVoidPtr(&native.table);
}

PyObject *core_heap_counts(struct sol_heap *h)
{
    struct sol_heap_counts n;
    sol_heap_counts(h, &n);
    return Py_BuildValue("{sLsLsLsLsLsLsz}", "waits", (long long)n.waits, "writes", (long long)n.writes, "reads",
                         (long long)n.reads, "copies", (long long)n.copies, "runs", (long long)n.runs, "bytes",
                         (long long)n.bytes, "last_wait", n.last_wait);
}

static PyObject *counts(PyObject *self, PyObject *args)
{
    int device;
    struct sol_heap *h;
    (void)self;
    if (!PyArg_ParseTuple(args, "i", &device)) return NULL;
    if (device < 0 || device >= native.table.devices)
        return PyErr_Format(core.error[SOL_ERR_INVALID], "device sol:%d: there are %d", device, native.table.devices);
    const sol_status status = heap_at(device, &h);
    if (status) return core_raise(status);
    return core_heap_counts(h);
}

static PyObject *heap_counts(PyObject *self, PyObject *args)
{
    const char *name;
    struct sol_heap *h;
    struct sol_heap_memory m;
    (void)self;
    if (!PyArg_ParseTuple(args, "s", &name)) return NULL;
    sol_status status = sol_heap_open(core.ctx, name, &h);
    if (!status) status = sol_heap_memory(h, 0, &m);
    if (status) return core_raise(status);
    PyObject *counts = core_heap_counts(h), *reserved = PyLong_FromLongLong(m.reserved);
    if (!counts || !reserved || PyDict_SetItemString(counts, "reserved", reserved)) Py_CLEAR(counts);
    Py_XDECREF(reserved);
    return counts;
}

static PyObject *cache_find(PyObject *self, PyObject *args)
{
    const char *text;
    void *data;
    size_t bytes;
    (void)self;
    if (!PyArg_ParseTuple(args, "s", &text)) return NULL;
    const sol_status status = sol_cache_find(core.ctx, text, &data, &bytes);
    if (status) return core_raise(status);
    if (!data) Py_RETURN_NONE;
    PyObject *found = PyBytes_FromStringAndSize(data, (Py_ssize_t)bytes);
    sol_free(core.ctx, data);
    return found;
}

static PyObject *cache_keep(PyObject *self, PyObject *args)
{
    const char *text, *data;
    Py_ssize_t bytes;
    (void)self;
    if (!PyArg_ParseTuple(args, "sy#", &text, &data, &bytes)) return NULL;
    sol_cache_keep(core.ctx, text, data, (size_t)bytes);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"cache_find", cache_find, METH_VARARGS, "cache_find(text) -> bytes or None: what was kept for this text"},
    {"cache_keep", cache_keep, METH_VARARGS, "cache_keep(text, data): keeps code that was made from a text"},
    {"heap_counts", heap_counts, METH_VARARGS,
     "heap_counts(name) -> what a device such as nvidia:0 did, and the bytes that SOL has of it"},
    {"native_begin", begin, METH_VARARGS,
     "native_begin(type, devices, fallbacks, capsule) -> the address of a sol_native; capsule: DLPack's of tensors"},
    {"native_counts", counts, METH_VARARGS, "native_counts(device) -> what the device did: {waits, writes, reads, ..}"},
    {"native_fallback", fallback, METH_VARARGS, "native_fallback(op): counts an operator that falls back, or raises"},
    {"native_run", run, METH_VARARGS,
     "native_run(net, device, inputs, outputs, dims, threads): runs a network on tensors of a device, without waiting"},
    {NULL, NULL, 0, NULL},
};

int core_add_native(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
