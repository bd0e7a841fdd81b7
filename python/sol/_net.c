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
    p->given = NULL;
    return (PyObject *)p;
}

static void net_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc f = (freefunc)PyType_GetSlot(type, Py_tp_free);
    sol_params_destroy(((struct py_net *)self)->params);
    sol_net_destroy(((struct py_net *)self)->net);
    Py_XDECREF(((struct py_net *)self)->keep);
    Py_XDECREF(((struct py_net *)self)->given);
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

static PyObject *net_room(PyObject *self, PyObject *sizes)
{
    const struct sol_net *net = ((struct py_net *)self)->net;
    int64_t dims[MOST_VARY];
    if (sizes_read(net, sizes, dims)) return NULL;
    PyObject *made = PyTuple_New(sol_net_outputs(net));
    for (int i = 0; made && i < sol_net_outputs(net); i++) {
        PyObject *n = PyLong_FromLongLong(sol_net_output_room(net, i, dims));
        if (!n || PyTuple_SetItem(made, i, n)) Py_CLEAR(made);
    }
    return made;
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

struct run { /* the arguments of net.run, forward and backward */
    struct py_net *net;
    int nin, nout, n, threads; /* n: buffers, of inputs and of outputs */
    Py_buffer *buffer;
    const void **inputs; /* NULL: not given */
    void **outputs;
    int64_t dims[MOST_VARY];
};

static Py_ssize_t io_bytes(const struct run *r, struct sol_io io)
{
    Py_ssize_t n = core_dtype_bytes(io.dtype);
    for (int i = 0; i < io.ndim; i++) n *= (Py_ssize_t)sol_size_at(io.shape[i], r->dims);
    return n;
}

static Py_ssize_t output_bytes(const struct run *r, int i)
{
    const struct sol_net *net = r->net->net;
    return core_dtype_bytes(sol_net_output(net, i).dtype) * (Py_ssize_t)sol_net_output_room(net, i, r->dims);
}

static int get_buffer(struct run *r, PyObject *object, int i, bool output)
{
    const struct sol_net *net = r->net->net;
    const struct sol_io io = output ? sol_net_output(net, i) : sol_net_input(net, i);
    const Py_ssize_t bytes = output ? output_bytes(r, i) : io_bytes(r, io);
    Py_buffer *b = &r->buffer[r->n];
    if (PyObject_GetBuffer(object, b, PyBUF_C_CONTIGUOUS | (output ? PyBUF_WRITABLE : 0))) return -1;
    r->n++;
    if (b->len == bytes) return 0;
    PyErr_Format(core.error[SOL_ERR_INVALID], "%s: expected %zd bytes, got %zd", io.name, bytes, b->len);
    return -1;
}

/* Creates the network's own parameters, which `run` uses. */
static int need_params(struct py_net *p)
{
    const sol_status status = p->params ? SOL_OK : sol_params_create(p->net, &p->params);
    if (status) core_raise(status);
    return status ? -1 : 0;
}

static int set_param(struct py_net *p, int i, PyObject *view)
{
    const struct run at = {.net = p};
    const struct sol_io io = sol_net_param_io(p->net, i);
    Py_buffer b;
    if (PyObject_GetBuffer(view, &b, PyBUF_C_CONTIGUOUS)) return -1;
    const bool fits = i >= 0 && i < sol_net_params(p->net) && b.len == io_bytes(&at, io);
    const sol_status status = fits ? sol_params_set(p->params, i, b.buf) : SOL_OK;
    PyBuffer_Release(&b);
    if (!fits) PyErr_Format(core.error[SOL_ERR_INVALID], "parameter %d: there is none of these bytes", i);
    if (status) core_raise(status);
    return fits && !status ? 0 : -1;
}

/* The view keeps the memory: a NumPy array, say, cannot be resized or freed as long as the network reads it. */
static PyObject *net_set_param(PyObject *self, PyObject *args)
{
    struct py_net *p = (struct py_net *)self;
    int i;
    PyObject *array;
    if (!PyArg_ParseTuple(args, "iO", &i, &array) || need_params(p)) return NULL;
    if (!p->given && !(p->given = PyDict_New())) return NULL;
    PyObject *view = PyMemoryView_FromObject(array), *number = PyLong_FromLong(i);
    const bool good = view && number && !set_param(p, i, view) && !PyDict_SetItem(p->given, number, view);
    Py_XDECREF(view);
    Py_XDECREF(number);
    if (!good) return NULL;
    Py_RETURN_NONE;
}

/* Returns the dimensions with those that the run has set; None: there are no dimensions. */
static PyObject *run_buffers(const struct run *r)
{
    sol_status status;
    int64_t found[MOST_VARY];
    const int ndim = sol_net_dims(r->net->net);
    const struct sol_call call = {.dims = ndim ? r->dims : NULL,
                                  .inputs = r->inputs,
                                  .outputs = r->outputs,
                                  .threads = r->threads,
                                  .out_dims = found};
    Py_BEGIN_ALLOW_THREADS;
    status = sol_net_run_at(r->net->net, r->net->params, &call);
    Py_END_ALLOW_THREADS;
    if (status) return core_raise(status);
    if (ndim) return core_tuple(ndim, found);
    Py_RETURN_NONE;
}

/* Buffers of both tuples, which may be shorter than the network's; None: not given. */
static int get_buffers(struct run *r, PyObject *ins, PyObject *outs)
{
    const int nin = (int)PyTuple_Size(ins), nout = (int)PyTuple_Size(outs);
    if (nin > r->nin || nout > r->nout) {
        PyErr_Format(core.error[SOL_ERR_INVALID], "run: expected %d inputs and %d outputs, got %d and %d", r->nin,
                     r->nout, nin, nout);
        return -1;
    }
    r->buffer = PyMem_Calloc((size_t)(r->nin + r->nout) + 1, sizeof *r->buffer);
    r->inputs = PyMem_Calloc((size_t)r->nin + 1, sizeof *r->inputs);
    r->outputs = PyMem_Calloc((size_t)r->nout + 1, sizeof *r->outputs);
    if (!r->buffer || !r->inputs || !r->outputs) return PyErr_NoMemory(), -1;
    for (int i = 0; i < nin; i++) {
        PyObject *object = PyTuple_GetItem(ins, i);
        if (object == Py_None) continue;
        if (get_buffer(r, object, i, false)) return -1;
        r->inputs[i] = r->buffer[r->n - 1].buf;
    }
    for (int i = 0; i < nout; i++) {
        PyObject *object = PyTuple_GetItem(outs, i);
        if (object == Py_None) continue;
        if (get_buffer(r, object, i, true)) return -1;
        r->outputs[i] = r->buffer[r->n - 1].buf;
    }
    return need_params(r->net);
}

static void release(struct run *r)
{
    for (int i = 0; i < r->n; i++) PyBuffer_Release(&r->buffer[i]);
    PyMem_Free(r->buffer);
    PyMem_Free(r->inputs);
    PyMem_Free(r->outputs);
}

static int read_call(struct run *r, PyObject *self, PyObject *args, PyObject **ins, PyObject **outs)
{
    PyObject *sizes = NULL;
    r->net = (struct py_net *)self;
    r->nin = sol_net_inputs(r->net->net), r->nout = sol_net_outputs(r->net->net);
    if (!PyArg_ParseTuple(args, "O!O!|iO!", &PyTuple_Type, ins, &PyTuple_Type, outs, &r->threads, &PyTuple_Type,
                          &sizes))
        return -1;
    return sizes_read(r->net->net, sizes, r->dims);
}

static PyObject *net_run(PyObject *self, PyObject *args)
{
    struct run r = {0};
    PyObject *ins, *outs, *result = NULL;
    if (read_call(&r, self, args, &ins, &outs)) return NULL;
    if (!get_buffers(&r, ins, outs)) result = run_buffers(&r);
    release(&r);
    return result;
}

static PyObject *net_forward(PyObject *self, PyObject *args)
{
    struct run r = {0};
    struct sol_saved *saved = NULL;
    PyObject *ins, *outs;
    sol_status status = SOL_OK;
    if (read_call(&r, self, args, &ins, &outs)) return NULL;
    const int ndim = sol_net_dims(r.net->net);
    const bool good = !get_buffers(&r, ins, outs);
    if (good) {
        const struct sol_call call = {
            .dims = ndim ? r.dims : NULL, .inputs = r.inputs, .outputs = r.outputs, .threads = r.threads};
        Py_BEGIN_ALLOW_THREADS;
        status = sol_net_forward_at(r.net->net, r.net->params, &call, &saved);
        Py_END_ALLOW_THREADS;
    }
    release(&r);
    if (!good) return NULL;
    return status ? core_raise(status) : core_saved(saved, ndim, r.dims);
}

static PyObject *net_backward(PyObject *self, PyObject *args)
{
    struct run r = {.net = (struct py_net *)self};
    PyObject *saved, *ins, *outs;
    int keep;
    sol_status status = SOL_OK;
    r.nin = sol_net_inputs(r.net->net), r.nout = sol_net_outputs(r.net->net);
    if (!PyArg_ParseTuple(args, "OpO!O!|i", &saved, &keep, &PyTuple_Type, &ins, &PyTuple_Type, &outs, &r.threads))
        return NULL;
    struct sol_saved *from = core_saved_of(saved, r.dims);
    const bool good = from && !get_buffers(&r, ins, outs);
    if (good) {
        const struct sol_backward b = {r.inputs, r.outputs, r.threads, keep};
        Py_BEGIN_ALLOW_THREADS;
        status = sol_net_backward(r.net->net, r.net->params, from, &b);
        Py_END_ALLOW_THREADS;
    }
    release(&r);
    if (!good) return NULL;
    if (status) return core_raise(status);
    Py_RETURN_NONE;
}

/* The sizes of a call, from the shapes of its inputs; None: a shape that is not given. */
static PyObject *net_bind(PyObject *self, PyObject *shapes)
{
    struct sol_net *net = ((struct py_net *)self)->net;
    const int n = sol_net_inputs(net), given = PyTuple_Check(shapes) ? (int)PyTuple_Size(shapes) : n + 1;
    if (given > n) return PyErr_Format(core.error[SOL_ERR_INVALID], "bind: expected the shapes of %d inputs", n);
    int64_t(*sizes)[MAX_DIMS] = PyMem_Calloc((size_t)n + 1, sizeof *sizes), dims[MOST_VARY];
    const int64_t **at = PyMem_Calloc((size_t)n + 1, sizeof *at);
    bool good = sizes && at;
    if (!good) PyErr_NoMemory();
    for (int i = 0; good && i < given; i++) {
        PyObject *shape = PyTuple_GetItem(shapes, i);
        if (shape == Py_None) continue;
        const int ndim = core_shape(shape, sizes[i]), expected = sol_net_input(net, i).ndim;
        good = ndim == expected;
        if (ndim >= 0 && !good)
            PyErr_Format(core.error[SOL_ERR_INVALID], "%s: expected %d dimensions, got %d", sol_net_input(net, i).name,
                         expected, ndim);
        at[i] = sizes[i];
    }
    const sol_status status = good ? sol_net_bind(net, at, dims) : SOL_OK;
    PyMem_Free(sizes);
    PyMem_Free(at);
    if (!good) return NULL;
    return status ? core_raise(status) : core_tuple(sol_net_dims(net), dims);
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
    {"set_param", net_set_param, METH_VARARGS,
     "set_param(i, array): a row-major buffer, which the network keeps and reads"},
    {"run", net_run, METH_VARARGS,
     "run(inputs, outputs, threads=0, dims=()) -> dims or None: tuples of row-major buffers, and the sizes of the "
     "dimensions that vary, which are returned with those that the network has set"},
    {"forward", net_forward, METH_VARARGS,
     "forward(inputs, outputs, threads=0, dims=()) -> Saved: the first half of a network with a gradient; the tuples "
     "have "
     "its inputs and outputs only"},
    {"backward", net_backward, METH_VARARGS,
     "backward(saved, keep, inputs, outputs, threads=0): the second half; None for what it does not read"},
    {"bind", net_bind, METH_O, "bind(shapes) -> dims: the sizes of a call, by the shapes of its inputs"},
    {"memory_at", net_memory_at, METH_O, "memory_at(dims) -> the same as memory, at these sizes"},
    {"room", net_room, METH_O, "room(dims) -> by output, the most elements that it may have at these sizes"},
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
