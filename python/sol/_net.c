/* sol._core.Net: an optimized network. This file works on plain addresses and buffers (NumPy); frameworks use the
 * faster _call.c. */
#include "_core.h"

PyObject *core_net(struct sol_net *net, struct sol_params *params, PyObject *keep)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(core.net, Py_tp_alloc);
    struct py_net *p = (struct py_net *)alloc(core.net, 0);
    if (!p) {
        sol_params_destroy(params);
        sol_net_destroy(net);
        return NULL;
    }
    Py_XINCREF(keep);
    p->net = net;
    p->params = params;
    p->keep = keep;
    return (PyObject *)p;
}

static void net_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc f = (freefunc)PyType_GetSlot(type, Py_tp_free);
    sol_params_destroy(((struct py_net *)self)->params);
    sol_net_destroy(((struct py_net *)self)->net);
    Py_XDECREF(((struct py_net *)self)->keep);
    f(self);
    Py_DECREF(type);
}

/* The sizes of a call; NULL or empty where the network has no dimensions that vary. */
static int sizes_read(const struct sol_net *net, PyObject *sizes, int64_t dims[MOST_VARY])
{
    const int n = sizes ? core_dims(sizes, dims) : 0;
    if (n < 0) return -1;
    if (n == sol_net_dims(net)) return 0;
    PyErr_Format(core.error[SOL_ERR_INVALID], "expected the sizes of %d dimensions, got %d", sol_net_dims(net), n);
    return -1;
}

static PyObject *io_list(PyObject *self, int (*count)(const struct sol_net *),
                         struct sol_io (*at)(const struct sol_net *, int))
{
    const struct sol_net *net = ((struct py_net *)self)->net;
    int n = count(net);
    PyObject *list = PyTuple_New(n);
    for (int i = 0; list && i < n; i++) {
        struct sol_io io = at(net, i);
        PyObject *shape = core_tuple(io.ndim, io.shape);
        PyObject *row = shape ? Py_BuildValue("(ssO)", io.name, core_dtype_name(io.dtype), shape) : NULL;
        Py_XDECREF(shape);
        if (!row || PyTuple_SetItem(list, i, row)) Py_CLEAR(list);
    }
    return list;
}

static PyObject *net_inputs(PyObject *self, void *unused)
{
    (void)unused;
    return io_list(self, sol_net_inputs, sol_net_input);
}
static PyObject *net_outputs(PyObject *self, void *unused)
{
    (void)unused;
    return io_list(self, sol_net_outputs, sol_net_output);
}
static PyObject *net_params(PyObject *self, void *unused)
{
    (void)unused;
    return io_list(self, sol_net_params, sol_net_param_io);
}

static PyObject *memory_dict(const struct sol_memory *m)
{
    return Py_BuildValue("{sLsLsLsLsLsLsLsLsLsL}", "params", m->params, "prepared", m->prepared, "inputs", m->inputs,
                         "outputs", m->outputs, "saved", m->saved, "workspace", m->workspace, "peak", m->peak,
                         "if_fast", m->if_fast, "if_balanced", m->if_balanced, "if_small", m->if_small);
}

static PyObject *net_memory(PyObject *self, void *unused)
{
    struct sol_memory m;
    (void)unused;
    sol_net_memory(((struct py_net *)self)->net, &m);
    return memory_dict(&m);
}

static PyObject *net_memory_at(PyObject *self, PyObject *sizes)
{
    struct sol_memory m;
    int64_t dims[MOST_VARY];
    struct sol_net *net = ((struct py_net *)self)->net;
    if (sizes_read(net, sizes, dims)) return NULL;
    const sol_status status = sol_net_memory_at(net, dims, &m);
    return status ? core_raise(status) : memory_dict(&m);
}

static PyObject *net_peak(PyObject *self, void *unused)
{
    char *text;
    (void)unused;
    const sol_status status = sol_net_memory_print(((struct py_net *)self)->net, &text);
    if (status) return core_raise(status);
    PyObject *result = PyUnicode_FromString(text);
    sol_free(core.ctx, text);
    return result;
}

static PyObject *net_dims(PyObject *self, void *unused)
{
    const struct sol_net *net = ((struct py_net *)self)->net;
    PyObject *list = PyTuple_New(sol_net_dims(net));
    (void)unused;
    for (int i = 0; list && i < sol_net_dims(net); i++) {
        const struct sol_net_dim d = sol_net_dim(net, i);
        PyObject *row = Py_BuildValue("(sLLLL)", d.name, (long long)d.limits.hint, (long long)d.limits.min,
                                      (long long)d.limits.max, (long long)d.limits.multiple);
        if (!row || PyTuple_SetItem(list, i, row)) Py_CLEAR(list);
    }
    return list;
}

static PyObject *net_found(PyObject *self, void *unused)
{
    const struct sol_net *net = ((struct py_net *)self)->net;
    PyObject *list = PyList_New(0);
    (void)unused;
    for (int i = 0; list && i < sol_net_dims(net); i++) {
        if (sol_net_dim(net, i).most < 0) continue;
        PyObject *number = PyLong_FromLong(i);
        if (!number || PyList_Append(list, number)) Py_CLEAR(list);
        Py_XDECREF(number);
    }
    PyObject *result = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return result;
}

static PyObject *net_backward_reads(PyObject *self, PyObject *args)
{
    int output, i;
    if (!PyArg_ParseTuple(args, "pi", &output, &i)) return NULL;
    return PyBool_FromLong(sol_net_backward_reads(((struct py_net *)self)->net, output ? SOL_OUTPUT : SOL_INPUT, i));
}

static PyObject *net_backward_params(PyObject *self, PyObject *unused)
{
    struct sol_net *net = ((struct py_net *)self)->net;
    PyObject *list = PyList_New(0);
    (void)unused;
    for (int i = 0; list && i < sol_net_params(net); i++) {
        if (!sol_net_backward_reads(net, SOL_PARAM, i)) continue;
        PyObject *number = PyLong_FromLong(i);
        if (!number || PyList_Append(list, number)) Py_CLEAR(list);
        Py_XDECREF(number);
    }
    PyObject *result = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return result;
}

static PyObject *net_profile(PyObject *self, PyObject *unused)
{
    struct sol_net *net = ((struct py_net *)self)->net;
    struct sol_profile_row r;
    PyObject *list = PyList_New(0);
    (void)unused;
    for (int i = 0; list && sol_net_profile(net, i, &r); i++) {
        if (!r.runs) continue;
        PyObject *row = Py_BuildValue("(sssNidddddds)", r.label, r.solver, r.where, PyBool_FromLong(r.backward), r.runs,
                                      r.flops, r.bytes, r.median_ns, r.least_ns, r.of_peak, r.of_rate, r.level);
        if (!row || PyList_Append(list, row)) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *net_profile_text(PyObject *self, PyObject *unused)
{
    char *text;
    (void)unused;
    const sol_status status = sol_net_profile_print(((struct py_net *)self)->net, &text);
    if (status) return core_raise(status);
    PyObject *result = PyUnicode_FromString(text);
    sol_free(core.ctx, text);
    return result;
}

static PyObject *net_profile_clear(PyObject *self, PyObject *unused)
{
    (void)unused;
    sol_net_profile_clear(((struct py_net *)self)->net);
    Py_RETURN_NONE;
}

/* -- buffers: objects of the buffer protocol, row-major, of exactly the size that the network expects */

struct run { /* the arguments of net.run */
    struct py_net *net;
    int nin, nout, n, threads; /* n: buffers, first of the inputs, then of the outputs */
    Py_buffer *buffer;
    int64_t dims[MOST_VARY];
};

static Py_ssize_t io_bytes(const struct run *r, struct sol_io io)
{
    Py_ssize_t n = core_dtype_bytes(io.dtype);
    for (int i = 0; i < io.ndim; i++) n *= (Py_ssize_t)sol_size_at(io.shape[i], r->dims);
    return n;
}

static int get_buffer(struct run *r, PyObject *object, struct sol_io io, bool write)
{
    Py_buffer *b = &r->buffer[r->n];
    if (PyObject_GetBuffer(object, b, PyBUF_C_CONTIGUOUS | (write ? PyBUF_WRITABLE : 0))) return -1;
    r->n++;
    if (b->len == io_bytes(r, io)) return 0;
    PyErr_Format(core.error[SOL_ERR_INVALID], "%s: expected %zd bytes, got %zd", io.name, io_bytes(r, io), b->len);
    return -1;
}

/* Creates the network's own parameters, which `run` uses. */
static int need_params(struct py_net *p)
{
    const sol_status status = p->params ? SOL_OK : sol_params_create(p->net, &p->params);
    if (status) core_raise(status);
    return status ? -1 : 0;
}

static PyObject *net_set_param(PyObject *self, PyObject *args)
{
    int i;
    unsigned long long address;
    if (!PyArg_ParseTuple(args, "iK", &i, &address)) return NULL;
    if (need_params((struct py_net *)self)) return NULL;
    sol_status status = sol_params_set(((struct py_net *)self)->params, i, (const void *)(uintptr_t)address);
    if (status) return core_raise(status);
    Py_RETURN_NONE;
}

/* Returns the dimensions with those that the run has set; None: there are no dimensions. */
static PyObject *run_buffers(const struct run *r)
{
    const void **inputs = PyMem_Calloc((size_t)r->nin + 1, sizeof *inputs);
    void **outputs = PyMem_Calloc((size_t)r->nout + 1, sizeof *outputs);
    sol_status status = SOL_OK;
    int64_t found[MOST_VARY];
    const int ndim = sol_net_dims(r->net->net);
    if (inputs && outputs) {
        const struct sol_call call = {.dims = ndim ? r->dims : NULL,
                                      .inputs = inputs,
                                      .outputs = outputs,
                                      .threads = r->threads,
                                      .out_dims = found};
        for (int i = 0; i < r->nin; i++) inputs[i] = r->buffer[i].buf;
        for (int i = 0; i < r->nout; i++) outputs[i] = r->buffer[r->nin + i].buf;
        Py_BEGIN_ALLOW_THREADS;
        status = sol_net_run_at(r->net->net, r->net->params, &call);
        Py_END_ALLOW_THREADS;
    } else {
        PyErr_NoMemory();
    }
    PyMem_Free(inputs);
    PyMem_Free(outputs);
    if (status || PyErr_Occurred()) return core_raise(status);
    if (ndim) return core_tuple(ndim, found);
    Py_RETURN_NONE;
}

static PyObject *net_run(PyObject *self, PyObject *args)
{
    struct sol_net *net = ((struct py_net *)self)->net;
    struct run r = {.net = (struct py_net *)self, .nin = sol_net_inputs(net), .nout = sol_net_outputs(net)};
    PyObject *ins, *outs, *sizes = NULL, *result = NULL;
    if (!PyArg_ParseTuple(args, "O!O!|iO!", &PyTuple_Type, &ins, &PyTuple_Type, &outs, &r.threads, &PyTuple_Type,
                          &sizes))
        return NULL;
    if (PyTuple_Size(ins) != r.nin || PyTuple_Size(outs) != r.nout)
        return PyErr_Format(core.error[SOL_ERR_INVALID], "run: expected %d inputs and %d outputs, got %zd and %zd",
                            r.nin, r.nout, PyTuple_Size(ins), PyTuple_Size(outs));
    if (sizes_read(net, sizes, r.dims)) return NULL;
    r.buffer = PyMem_Calloc((size_t)(r.nin + r.nout) + 1, sizeof *r.buffer);
    if (!r.buffer) return PyErr_NoMemory();
    bool good = true;
    for (int i = 0; i < r.nin && good; i++)
        good = !get_buffer(&r, PyTuple_GetItem(ins, i), sol_net_input(net, i), false);
    for (int i = 0; i < r.nout && good; i++)
        good = !get_buffer(&r, PyTuple_GetItem(outs, i), sol_net_output(net, i), true);
    if (good && !need_params(r.net)) result = run_buffers(&r);
    for (int i = 0; i < r.n; i++) PyBuffer_Release(&r.buffer[i]);
    PyMem_Free(r.buffer);
    return result;
}

static PyObject *net_host_steps(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(sol_net_host_steps(((struct py_net *)self)->net));
}

static PyGetSetDef net_members[] = {
    {"inputs", net_inputs, NULL, "((name, dtype, shape), ..)", NULL},
    {"outputs", net_outputs, NULL, "((name, dtype, shape), ..)", NULL},
    {"params", net_params, NULL, "((name, dtype, shape), ..)", NULL},
    {"memory", net_memory, NULL,
     "bytes: params, prepared, inputs, outputs, saved, workspace, peak, and the peak if_fast, ..", NULL},
    {"peak", net_peak, NULL, "the peak as a formula of the dimensions that vary, 12.1MB + #0 * 3.4MB", NULL},
    {"dims", net_dims, NULL, "((name, hint, min, max, multiple), ..) of the dimensions that vary; max 2^40: none",
     NULL},
    {"host_steps", net_host_steps, NULL, "how many steps a device leaves to the host", NULL},
    {"found", net_found, NULL, "tuple of int: the numbers of the dimensions that the network sets while it runs", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef net_methods[] = {
    {"set_param", net_set_param, METH_VARARGS, "set_param(i, address): the memory must outlive the runs"},
    {"run", net_run, METH_VARARGS,
     "run(inputs, outputs, threads=0, dims=()) -> dims or None: tuples of row-major buffers, and the sizes of the "
     "dimensions that vary, which are returned with those that the network has set"},
    {"memory_at", net_memory_at, METH_O, "memory_at(dims) -> the same as memory, at these sizes"},
    {"backward_reads", net_backward_reads, METH_VARARGS,
     "backward_reads(output, i) -> bool: does the second half of a network read input (output) i of the first?"},
    {"backward_params", net_backward_params, METH_NOARGS,
     "backward_params() -> tuple of int: parameters whose values the second half needs"},
    {"profile", net_profile, METH_NOARGS,
     "profile() -> [(label, solver, where, backward, runs, flops, bytes, median_ns, least_ns)]: kernels as measured"},
    {"profile_text", net_profile_text, METH_NOARGS, "profile_text() -> str: the same as a table"},
    {"profile_clear", net_profile_clear, METH_NOARGS, "profile_clear(): forgets all runs"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot net_slots[] = {
    {Py_tp_dealloc, net_dealloc},
    {Py_tp_getset, net_members},
    {Py_tp_methods, net_methods},
    {Py_tp_doc, "An optimized network."},
    {0, NULL},
};
static PyType_Spec net_spec = {"sol._core.Net", sizeof(struct py_net), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, net_slots};

int core_add_net(PyObject *module)
{
    core.net = (PyTypeObject *)PyType_FromSpec(&net_spec);
    return core.net ? PyModule_AddType(module, core.net) : -1;
}
