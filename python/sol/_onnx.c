/* sol._core.Onnx: an ONNX model, loaded by SOL's own reader. */
#include "_core.h"

#include "sol/onnx.h"

struct py_onnx {
    PyObject ob_base;
    struct sol_onnx *model;
};

static void onnx_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc f = (freefunc)PyType_GetSlot(type, Py_tp_free);
    sol_onnx_destroy(((struct py_onnx *)self)->model);
    f(self);
    Py_DECREF(type);
}

/* What the options of a load point to. The call's dicts own the texts and data. */
struct given {
    struct sol_onnx_dim *dims;
    struct sol_onnx_limits *limits;
    struct sol_onnx_value *values, *arrays;
    int64_t (*shapes)[MAX_DIMS]; /* of the values, then of the arrays */
    struct sol_onnx_options options;
    int narrays;
};

static int read_dims(PyObject *dict, struct given *out)
{
    PyObject *key, *value;
    int n = 0;
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value); n++) {
        out->dims[n].name = PyUnicode_AsUTF8AndSize(key, NULL);
        out->dims[n].size = PyLong_AsLongLong(value);
        if (PyErr_Occurred()) return -1;
    }
    out->options.ndims = n;
    out->options.dims = out->dims;
    return 0;
}

/* {name: (hint, min, max, multiple)} */
static int read_limits(PyObject *dict, struct given *out)
{
    PyObject *key, *row;
    int n = 0;
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &row); n++) {
        long long hint, least, most, multiple;
        if (!(out->limits[n].name = PyUnicode_AsUTF8AndSize(key, NULL))) return -1;
        if (!PyArg_ParseTuple(row, "LLLL", &hint, &least, &most, &multiple)) return -1;
        out->limits[n].limits = (struct sol_dim_limits){hint, least, most, multiple};
    }
    out->options.nlimits = n;
    out->options.limits = out->limits;
    return 0;
}

/* {name: (dtype, shape, bytes or None)}; returns their number, -1 with an exception set. */
static int read_arrays(PyObject *dict, int64_t (*shapes)[MAX_DIMS], struct sol_onnx_value *out)
{
    PyObject *key, *row, *shape;
    const char *dtype, *data;
    int n = 0;
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &row); n++) {
        struct sol_onnx_value *v = &out[n];
        Py_ssize_t bytes, expected;
        if (!(v->name = PyUnicode_AsUTF8AndSize(key, NULL))) return -1;
        if (!PyArg_ParseTuple(row, "sO!z#", &dtype, &PyTuple_Type, &shape, &data, &bytes)) return -1;
        const int type = core_dtype(dtype);
        if (type < 0 || (v->ndim = core_shape(shape, shapes[n])) < 0) return -1;
        expected = core_dtype_bytes(type);
        for (int i = 0; i < v->ndim; i++) expected *= (Py_ssize_t)shapes[n][i];
        if (data && bytes != expected) {
            PyErr_Format(core.error[SOL_ERR_INVALID], "%s: expected %zd bytes, got %zd", v->name, expected, bytes);
            return -1;
        }
        v->dtype = (enum sol_dtype)type;
        v->shape = shapes[n];
        v->data = data;
    }
    return n;
}

static void given_free(struct given *g)
{
    PyMem_Free(g->dims);
    PyMem_Free(g->limits);
    PyMem_Free(g->values);
    PyMem_Free(g->shapes);
}

/* Dicts, NULL: an empty one. `out` is to be freed even after a failure. */
static int given_read(PyObject *dims, PyObject *values, PyObject *limits, PyObject *arrays, struct given *out)
{
    const size_t nvalues = values ? (size_t)PyDict_Size(values) : 0, narrays = arrays ? (size_t)PyDict_Size(arrays) : 0;
    *out = (struct given){.dims = PyMem_Calloc((size_t)PyDict_Size(dims) + 1, sizeof *out->dims),
                          .limits = PyMem_Calloc((limits ? (size_t)PyDict_Size(limits) : 0) + 1, sizeof *out->limits),
                          .values = PyMem_Calloc(nvalues + narrays + 1, sizeof *out->values),
                          .shapes = PyMem_Calloc(nvalues + narrays + 1, sizeof *out->shapes),
                          .options = {.size = sizeof out->options}};
    if (!out->dims || !out->limits || !out->values || !out->shapes) {
        PyErr_NoMemory();
        return -1;
    }
    out->arrays = out->values + nvalues;
    out->options.values = out->values;
    if (read_dims(dims, out) || (limits && read_limits(limits, out))) return -1;
    if (values && (out->options.nvalues = read_arrays(values, out->shapes, out->values)) < 0) return -1;
    if (arrays && (out->narrays = read_arrays(arrays, out->shapes + nvalues, out->arrays)) < 0) return -1;
    return 0;
}

/* A path, or a buffer with a model, to be released. */
static int source_read(PyObject *source, Py_buffer *b, struct sol_onnx_source *out)
{
    *out = (struct sol_onnx_source){0};
    if (PyUnicode_Check(source)) return (out->path = PyUnicode_AsUTF8AndSize(source, NULL)) ? 0 : -1;
    if (PyObject_GetBuffer(source, b, PyBUF_SIMPLE)) return -1;
    out->data = b->buf;
    out->bytes = (size_t)b->len;
    return 0;
}

static PyObject *onnx_object(struct sol_onnx *model)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(core.onnx, Py_tp_alloc);
    struct py_onnx *self = (struct py_onnx *)alloc(core.onnx, 0);
    if (self)
        self->model = model;
    else
        sol_onnx_destroy(model);
    return (PyObject *)self;
}

static PyObject *onnx_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"source", "dims", "values", "limits", "vary", "trains", NULL};
    PyObject *source, *dims, *values = NULL, *limits = NULL;
    int vary = 0, trains = 0;
    (void)type;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!|O!O!pp", names, &source, &PyDict_Type, &dims, &PyDict_Type,
                                     &values, &PyDict_Type, &limits, &vary, &trains))
        return NULL;
    struct given g;
    struct sol_onnx_source from;
    struct sol_onnx *model = NULL;
    Py_buffer b;
    sol_status status = SOL_ERR_INVALID;
    const bool good = !given_read(dims, values, limits, NULL, &g) && !source_read(source, &b, &from);
    if (good) {
        g.options.vary = vary;
        g.options.constants = trains ? SOL_ONNX_TRAINED : 0;
        Py_BEGIN_ALLOW_THREADS;
        status = from.path ? sol_onnx_load(core.ctx, from.path, &g.options, &model)
                           : sol_onnx_load_memory(core.ctx, from.data, from.bytes, &g.options, &model);
        Py_END_ALLOW_THREADS;
        if (!from.path) PyBuffer_Release(&b);
    }
    given_free(&g);
    return status ? core_raise(status) : onnx_object(model);
}

/* -- programs */

static PyObject *net_of(struct sol_onnx_program *p)
{
    PyObject *model = onnx_object(p->model);
    PyObject *net = model ? core_net(p->net, p->params, model) : NULL;
    Py_XDECREF(model);
    return net;
}

/* A net that net_of made. Its parts stay the net's. */
static int program_of(PyObject *object, struct sol_onnx_program *out)
{
    const struct py_net *net = (const struct py_net *)object;
    if (!PyObject_TypeCheck(object, core.net) || !net->keep || Py_TYPE(net->keep) != core.onnx) {
        PyErr_SetString(PyExc_TypeError, "expected the network of an ONNX model");
        return -1;
    }
    *out = (struct sol_onnx_program){core_onnx(net->keep), net->net, net->params, 0, 0};
    return 0;
}

static PyObject *make(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"source", "dims", "values", "limits", "arrays", "ways", "all", NULL};
    PyObject *source, *dims, *values, *limits, *arrays, *all = Py_None;
    struct sol_onnx_program made = {0}, before;
    int64_t sizes[MOST_VARY];
    struct sol_onnx_call call = {.out_dims = sizes};
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O!O!O!i|O", names, &source, &PyDict_Type, &dims, &PyDict_Type,
                                     &values, &PyDict_Type, &limits, &PyDict_Type, &arrays, &call.ways, &all) ||
        (all != Py_None && program_of(all, &before)))
        return NULL;
    struct given g;
    Py_buffer b;
    sol_status status = SOL_ERR_INVALID;
    if (!given_read(dims, values, limits, arrays, &g) && !source_read(source, &b, &call.from)) {
        call.options = &g.options;
        call.arrays = g.arrays;
        call.narrays = g.narrays;
        Py_BEGIN_ALLOW_THREADS;
        status = sol_onnx_program_make(core.ctx, &call, all == Py_None ? NULL : &before, &made);
        Py_END_ALLOW_THREADS;
        if (!call.from.path) PyBuffer_Release(&b);
    }
    given_free(&g);
    if (status) return core_raise(status);
    if (!made.net) Py_RETURN_NONE;
    return net_of(&made);
}

static PyObject *bind(PyObject *self, PyObject *args)
{
    PyObject *net, *arrays, *none = PyDict_New();
    struct sol_onnx_program p;
    int64_t sizes[MOST_VARY];
    struct sol_onnx_call call = {.out_dims = sizes};
    struct given g;
    (void)self;
    if (!none || !PyArg_ParseTuple(args, "OO!", &net, &PyDict_Type, &arrays) || program_of(net, &p)) {
        Py_XDECREF(none);
        return NULL;
    }
    sol_status status = SOL_ERR_INVALID;
    if (!given_read(none, NULL, NULL, arrays, &g)) {
        call.arrays = g.arrays;
        call.narrays = g.narrays;
        status = sol_onnx_program_bind(&p, &call, sizes);
    }
    given_free(&g);
    Py_DECREF(none);
    return status ? core_raise(status) : core_tuple(sol_net_dims(p.net), sizes);
}

static PyObject *taken(PyObject *self, PyObject *net)
{
    struct sol_onnx_program p;
    const struct sol_onnx_value *v;
    (void)self;
    if (program_of(net, &p)) return NULL;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && (v = sol_onnx_taken(p.model, i)); i++) {
        PyObject *name = PyUnicode_FromString(v->name);
        if (!name || PyList_Append(list, name)) Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

static PyMethodDef functions[] = {
    {"onnx_make", (PyCFunction)(void (*)(void))make, METH_VARARGS | METH_KEYWORDS,
     "onnx_make(source, dims, values, limits, arrays, ways, all=None) -> Net, with the model's weights: the program "
     "for a "
     "call with these arrays, {name: (dtype, shape, bytes or None)}; None: `all` serves it"},
    {"onnx_bind", bind, METH_VARARGS,
     "onnx_bind(net, arrays) -> tuple of int: the dimensions of a call; an exception if it does not fit the program"},
    {"onnx_taken", taken, METH_O, "onnx_taken(net) -> [name, ..] of the inputs whose values the program is made for"},
    {NULL, NULL, 0, NULL},
};

/* -- what a model has */

static PyObject *io_list(const struct sol_onnx *model, int (*count)(const struct sol_onnx *),
                         struct sol_io (*at)(const struct sol_onnx *, int))
{
    PyObject *list = PyTuple_New(count(model));
    for (int i = 0; list && i < count(model); i++) {
        const struct sol_io io = at(model, i);
        PyObject *row = Py_BuildValue("(ssN)", io.name, core_dtype_name(io.dtype), core_tuple(io.ndim, io.shape));
        if (!row || PyTuple_SetItem(list, i, row)) Py_CLEAR(list);
    }
    return list;
}

static PyObject *onnx_inputs(PyObject *self, void *unused)
{
    (void)unused;
    return io_list(core_onnx(self), sol_onnx_inputs, sol_onnx_input);
}

static PyObject *onnx_outputs(PyObject *self, void *unused)
{
    (void)unused;
    return io_list(core_onnx(self), sol_onnx_outputs, sol_onnx_output);
}

static PyObject *onnx_open(PyObject *self, void *unused)
{
    const struct sol_onnx *model = core_onnx(self);
    const char *name;
    int64_t size;
    (void)unused;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && (name = sol_onnx_open(model, i, &size)); i++) {
        PyObject *row = Py_BuildValue("(sLz)", name, (long long)size, sol_onnx_open_why(model, i));
        if (!row || PyList_Append(list, row)) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *onnx_graph(PyObject *self, void *unused)
{
    (void)unused;
    return core_graph_of(sol_onnx_graph(core_onnx(self)), self);
}

static PyGetSetDef onnx_members[] = {
    {"graph", onnx_graph, NULL, "the Graph; compiling it consumes it", NULL},
    {"inputs", onnx_inputs, NULL, "((name, dtype, shape), ..)", NULL},
    {"outputs", onnx_outputs, NULL, "((name, dtype, shape), ..)", NULL},
    {"open", onnx_open, NULL, "[(name, size, why or None), ..] of the dimensions that the model leaves open", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyObject *onnx_text(PyObject *self)
{
    const char *text = sol_onnx_about(((struct py_onnx *)self)->model);
    return PyUnicode_FromString(text ? text : "");
}

static PyObject *onnx_operators(PyObject *self, PyObject *unused)
{
    int64_t count;
    const char *name;
    (void)unused;
    PyObject *dict = PyDict_New();
    for (int i = 0; dict && (name = sol_onnx_operator(((struct py_onnx *)self)->model, i, &count)); i++) {
        PyObject *n = PyLong_FromLongLong(count);
        if (!n || PyDict_SetItemString(dict, name, n)) Py_CLEAR(dict);
        Py_XDECREF(n);
    }
    return dict;
}

static PyObject *onnx_param(PyObject *self, PyObject *number)
{
    const struct sol_onnx *model = core_onnx(self);
    const long i = PyLong_AsLong(number);
    if (i == -1 && PyErr_Occurred()) return NULL;
    if (i < 0 || i >= sol_onnx_params(model)) return PyErr_Format(PyExc_IndexError, "there is no parameter %ld", i);
    const struct sol_tensor *t = core_graph_param(sol_onnx_graph(core_onnx(self)), (int)i);
    Py_ssize_t bytes = core_dtype_bytes(sol_tensor_dtype(t));
    for (int d = 0; d < sol_tensor_ndim(t); d++) bytes *= (Py_ssize_t)sol_tensor_size(t, d);
    return PyBytes_FromStringAndSize(sol_onnx_param(model, (int)i), bytes);
}

static PyMethodDef onnx_methods[] = {
    {"param", onnx_param, METH_O, "param(number) -> bytes: the value of a parameter of the graph"},
    {"operators", onnx_operators, METH_NOARGS, "operators() -> {kind: how often}"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot onnx_slots[] = {
    {Py_tp_new, onnx_new},
    {Py_tp_dealloc, onnx_dealloc},
    {Py_tp_methods, onnx_methods},
    {Py_tp_getset, onnx_members},
    {Py_tp_str, onnx_text},
    {Py_tp_doc,
     "Onnx(path or buffer, {dimension: size}, {input: (dtype, shape, bytes)}, {dimension: (hint, min, max, multiple)}, "
     "vary=False, trains=False); str() says what wrote the model."},
    {0, NULL},
};
static PyType_Spec onnx_spec = {"sol._core.Onnx", sizeof(struct py_onnx), 0, Py_TPFLAGS_DEFAULT, onnx_slots};

struct sol_onnx *core_onnx(PyObject *onnx)
{
    return ((struct py_onnx *)onnx)->model;
}

int core_add_onnx(PyObject *module)
{
    core.onnx = (PyTypeObject *)PyType_FromSpec(&onnx_spec);
    return core.onnx && !PyModule_AddFunctions(module, functions) ? PyModule_AddType(module, core.onnx) : -1;
}
