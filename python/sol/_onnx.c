/* sol._core.Onnx: an ONNX model read by SOL's own reader. */
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

static int read_dims(PyObject *dict, struct sol_onnx_dim *dims)
{
    PyObject *key, *value;
    int n = 0;
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value); n++) {
        dims[n].name = PyUnicode_AsUTF8AndSize(key, NULL);
        dims[n].size = PyLong_AsLongLong(value);
        if (PyErr_Occurred()) return -1;
    }
    return n;
}

static PyObject *onnx_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"path", "dims", NULL};
    const char *path;
    PyObject *dict;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sO!", names, &path, &PyDict_Type, &dict)) return NULL;
    struct sol_onnx_dim *dims = PyMem_Calloc((size_t)PyDict_Size(dict) + 1, sizeof *dims);
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct py_onnx *self = dims ? (struct py_onnx *)alloc(type, 0) : NULL;
    int n = self ? read_dims(dict, dims) : -1;
    sol_status status = SOL_ERR_INVALID;
    if (n >= 0) {
        struct sol_onnx_options options = {.size = sizeof options, .ndims = n, .dims = dims};
        Py_BEGIN_ALLOW_THREADS;
        status = sol_onnx_load(core.ctx, path, &options, &self->model);
        Py_END_ALLOW_THREADS;
    }
    PyMem_Free(dims);
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
    {Py_tp_doc, "A model from an ONNX file; str() says what wrote it."},
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
