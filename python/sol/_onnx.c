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
    struct sol_onnx_value *values;
    int64_t (*shapes)[MAX_DIMS]; /* of the values */
    struct sol_onnx_options options;
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

/* {name: (dtype, shape, bytes)} */
static int read_values(PyObject *dict, struct given *out)
{
    PyObject *key, *row, *shape;
    const char *dtype, *data;
    int n = 0;
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &row); n++) {
        struct sol_onnx_value *v = &out->values[n];
        Py_ssize_t bytes, expected;
        if (!(v->name = PyUnicode_AsUTF8AndSize(key, NULL))) return -1;
        if (!PyArg_ParseTuple(row, "sO!y#", &dtype, &PyTuple_Type, &shape, &data, &bytes)) return -1;
        const int type = core_dtype(dtype);
        if (type < 0 || (v->ndim = core_shape(shape, out->shapes[n])) < 0) return -1;
        expected = core_dtype_bytes(type);
        for (int i = 0; i < v->ndim; i++) expected *= (Py_ssize_t)out->shapes[n][i];
        if (bytes != expected) {
            PyErr_Format(core.error[SOL_ERR_INVALID], "%s: expected %zd bytes, got %zd", v->name, expected, bytes);
            return -1;
        }
        v->dtype = (enum sol_dtype)type;
        v->shape = out->shapes[n];
        v->data = data;
    }
    out->options.nvalues = n;
    out->options.values = out->values;
    return 0;
}

/* Loads the model from a file if `source` is a text, otherwise from the memory of a buffer. */
static sol_status load(PyObject *source, const struct sol_onnx_options *options, struct sol_onnx **out_model)
{
    Py_buffer b;
    sol_status status;
    const bool is_path = PyUnicode_Check(source);
    const char *path = is_path ? PyUnicode_AsUTF8AndSize(source, NULL) : NULL;
    if (is_path ? !path : PyObject_GetBuffer(source, &b, PyBUF_SIMPLE)) return SOL_ERR_INVALID;
    Py_BEGIN_ALLOW_THREADS;
    status = is_path ? sol_onnx_load(core.ctx, path, options, out_model)
                     : sol_onnx_load_memory(core.ctx, b.buf, (size_t)b.len, options, out_model);
    Py_END_ALLOW_THREADS;
    if (!is_path) PyBuffer_Release(&b);
    return status;
}

static PyObject *onnx_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"source", "dims", "values", NULL};
    PyObject *source, *dims, *values = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!|O!", names, &source, &PyDict_Type, &dims, &PyDict_Type,
                                     &values))
        return NULL;
    const size_t nvalues = values ? (size_t)PyDict_Size(values) : 0;
    struct given g = {.dims = PyMem_Calloc((size_t)PyDict_Size(dims) + 1, sizeof *g.dims),
                      .values = PyMem_Calloc(nvalues + 1, sizeof *g.values),
                      .shapes = PyMem_Calloc(nvalues + 1, sizeof *g.shapes),
                      .options = {.size = sizeof g.options}};
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct py_onnx *self = g.dims && g.values && g.shapes ? (struct py_onnx *)alloc(type, 0) : NULL;
    sol_status status = SOL_ERR_NOMEM;
    if (!self) {
        PyErr_NoMemory();
    } else if (!read_dims(dims, &g) && (!values || !read_values(values, &g))) {
        status = load(source, &g.options, &self->model);
    }
    PyMem_Free(g.dims);
    PyMem_Free(g.values);
    PyMem_Free(g.shapes);
    if (!status) return (PyObject *)self;
    if (self) Py_DECREF((PyObject *)self);
    return core_raise(status);
}

static PyObject *onnx_compile(PyObject *self, PyObject *unused)
{
    struct sol_onnx *model = ((struct py_onnx *)self)->model;
    struct sol_net *net = NULL;
    struct sol_params *params = NULL;
    sol_status status;
    (void)unused;
    Py_BEGIN_ALLOW_THREADS;
    status = sol_compile(core.ctx, sol_onnx_graph(model), &net);
    if (!status) status = sol_onnx_bind(model, net, &params);
    Py_END_ALLOW_THREADS;
    if (!status) return core_net(net, params, self);
    core_raise(status);
    sol_net_destroy(net);
    return NULL;
}

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

static PyMethodDef onnx_methods[] = {
    {"compile", onnx_compile, METH_NOARGS, "compile() -> Net, with the model's weights"},
    {"operators", onnx_operators, METH_NOARGS, "operators() -> {kind: how often}"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot onnx_slots[] = {
    {Py_tp_new, onnx_new},
    {Py_tp_dealloc, onnx_dealloc},
    {Py_tp_methods, onnx_methods},
    {Py_tp_str, onnx_text},
    {Py_tp_doc,
     "Onnx(path or buffer, {dimension: size}, {input: (dtype, shape, bytes)}); str() says what wrote the model."},
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
    return core.onnx ? PyModule_AddType(module, core.onnx) : -1;
}
