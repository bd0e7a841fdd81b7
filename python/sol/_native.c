/* Tensors of PyTorch that lie on a device: memory of heaps (sol.h) for the module that native.cpp becomes, and what it
 * asks before an operator runs on the processor instead. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "_core.h"
#include "pytorch/native/native.h"

enum { MOST_DEVICES = 64 };

static struct {
    struct sol_native table;
    char type[64];
    _Atomic(struct sol_heap *) heap[MOST_DEVICES];
    PyObject *fallbacks; /* how often, by operator */
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

static const char *alloc_at(int device, int64_t bytes, uint64_t *out_p)
{
    struct sol_heap *h;
    sol_status status = heap_at(device, &h);
    if (!status) status = sol_heap_alloc(h, bytes, out_p);
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

/* -- functions of the module */

static PyObject *begin(PyObject *self, PyObject *args)
{
    const char *type;
    int devices;
    PyObject *fallbacks;
    (void)self;
    if (!PyArg_ParseTuple(args, "siO!", &type, &devices, &PyDict_Type, &fallbacks)) return NULL;
    snprintf(native.type, sizeof native.type, "%s", type);
    Py_INCREF(fallbacks);
    native.fallbacks = fallbacks;
    native.table = (struct sol_native){.size = sizeof native.table,
                                       .devices = devices < MOST_DEVICES ? devices : MOST_DEVICES,
                                       .alloc = alloc_at,
                                       .free = free_at,
                                       .write = write_at,
                                       .read = read_at,
                                       .copy = copy_at,
                                       .fill = fill_at,
                                       .wait = wait_at,
                                       .fallback = fallback_of};
    return PyLong_FromVoidPtr(&native.table);
}

static PyObject *counts(PyObject *self, PyObject *args)
{
    int device;
    struct sol_heap *h;
    struct sol_heap_counts n;
    (void)self;
    if (!PyArg_ParseTuple(args, "i", &device)) return NULL;
    if (device < 0 || device >= native.table.devices)
        return PyErr_Format(core.error[SOL_ERR_INVALID], "device sol:%d: there are %d", device, native.table.devices);
    const sol_status status = heap_at(device, &h);
    if (status) return core_raise(status);
    sol_heap_counts(h, &n);
    return Py_BuildValue("{sLsLsLsLsLsL}", "waits", (long long)n.waits, "writes", (long long)n.writes, "reads",
                         (long long)n.reads, "copies", (long long)n.copies, "runs", (long long)n.runs, "bytes",
                         (long long)n.bytes);
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
    {"native_begin", begin, METH_VARARGS, "native_begin(type, devices, fallbacks) -> the address of a sol_native"},
    {"native_counts", counts, METH_VARARGS, "native_counts(device) -> what the device did: {waits, writes, reads, ..}"},
    {NULL, NULL, 0, NULL},
};

int core_add_native(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
