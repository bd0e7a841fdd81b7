/* sol._core.deploy: a network becomes a C library. */
#include "_core.h"

#include "sol/deploy.h"
#include "sol/onnx.h"

static int read_keys(PyObject *dict, struct sol_deploy_key *keys)
{
    PyObject *key, *value;
    int n = 0;
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value); n++) {
        keys[n].key = PyUnicode_AsUTF8AndSize(key, NULL);
        keys[n].value = PyUnicode_AsUTF8AndSize(value, NULL);
        if (PyErr_Occurred()) return -1;
    }
    return n;
}

/* Where the data of the parameters lie: an ONNX model knows, those of a graph are given by their addresses. */
static int read_params(PyObject *network, PyObject *addresses, const void **params)
{
    if (Py_TYPE(network) == core.onnx) {
        const struct sol_onnx *m = core_onnx(network);
        for (int i = 0; i < sol_onnx_params(m); i++) params[i] = sol_onnx_param(m, i);
        return 0;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(addresses); i++)
        params[i] = (const void *)(uintptr_t)PyLong_AsUnsignedLongLong(PyTuple_GetItem(addresses, i));
    return PyErr_Occurred() ? -1 : 0;
}

static size_t count_params(PyObject *network, PyObject *addresses)
{
    return Py_TYPE(network) == core.onnx ? (size_t)sol_onnx_params(core_onnx(network))
                                         : (size_t)PyTuple_Size(addresses);
}

/* A tuple of texts, or None; the array is the caller's to free. NULL, too, if it fails. */
static const char **read_names(PyObject *tuple)
{
    if (!PyTuple_Check(tuple)) return NULL;
    const char **names = PyMem_Calloc((size_t)PyTuple_Size(tuple) + 1, sizeof *names);
    for (Py_ssize_t i = 0; names && i < PyTuple_Size(tuple); i++)
        names[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(tuple, i), NULL);
    if (!names) PyErr_NoMemory();
    return names;
}

struct request {                                                    /* what deploy() was called with */
    PyObject *network, *keys, *params, *inputs, *outputs, *trained; /* trained: bytes, or None */
    const char *target;
    int seed_input;
};

static sol_status run(const struct request *r, const struct sol_deploy_options *o)
{
    sol_status status;
    struct sol_graph *g =
        Py_TYPE(r->network) == core.onnx ? sol_onnx_graph(core_onnx(r->network)) : core_graph(r->network);
    Py_BEGIN_ALLOW_THREADS;
    status = sol_deploy(core.ctx, g, o);
    Py_END_ALLOW_THREADS;
    return status;
}

static PyObject *deploy(PyObject *self, PyObject *args)
{
    struct request r = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "OsO!O!iOOO", &r.network, &r.target, &PyDict_Type, &r.keys, &PyTuple_Type, &r.params,
                          &r.seed_input, &r.inputs, &r.outputs, &r.trained))
        return NULL;
    if (Py_TYPE(r.network) != core.onnx && Py_TYPE(r.network) != core.graph)
        return PyErr_Format(PyExc_TypeError, "deploy: expected a Graph or an Onnx");
    struct sol_deploy_key *keys = PyMem_Calloc((size_t)PyDict_Size(r.keys) + 1, sizeof *keys);
    const void **params = PyMem_Calloc(count_params(r.network, r.params) + 1, sizeof *params);
    const char **inputs = read_names(r.inputs), **outputs = read_names(r.outputs);
    sol_status status = SOL_OK;
    if (!keys || !params)
        PyErr_NoMemory();
    else if (!read_params(r.network, r.params, params)) {
        const int n = read_keys(r.keys, keys);
        const struct sol_deploy_options o = {
            .size = sizeof o,
            .target = r.target,
            .nkeys = n,
            .keys = keys,
            .params = params,
            .seed_input = r.seed_input,
            .input_names = inputs,
            .output_names = outputs,
            .trained = PyBytes_Check(r.trained) ? (const unsigned char *)PyBytes_AsString(r.trained) : NULL};
        if (!PyErr_Occurred()) status = run(&r, &o);
    }
    PyMem_Free(keys);
    PyMem_Free(params);
    PyMem_Free(inputs);
    PyMem_Free(outputs);
    if (PyErr_Occurred()) return NULL;
    if (status) return core_raise(status);
    Py_RETURN_NONE;
}

static PyObject *deploy_keys(PyObject *self, PyObject *unused)
{
    const char *key, *otherwise, *doc;
    (void)self, (void)unused;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && (key = sol_deploy_key_at(i, &otherwise, &doc)); i++) {
        PyObject *row = Py_BuildValue("(sss)", key, otherwise, doc);
        if (!row || PyList_Append(list, row)) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyMethodDef functions[] = {
    {"deploy", deploy, METH_VARARGS,
     "deploy(network, target, keys, params, seed_input, input_names, output_names, trained): writes a library; params "
     "are addresses, names None or tuples, trained None or a byte for each parameter"},
    {"deploy_keys", deploy_keys, METH_NOARGS, "deploy_keys() -> [(key, default, documentation)]"},
    {NULL, NULL, 0, NULL},
};

int core_add_deploy(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
