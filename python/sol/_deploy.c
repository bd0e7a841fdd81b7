/* sol._core.deploy: turns a network into a C library. */
#include "_core.h"

#include <stdbool.h>

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

/* The addresses of the parameters' data. An ONNX model knows them; for a graph they are given. The caller frees the
 * array. NULL: failure. */
static const void **read_params(PyObject *network, PyObject *addresses)
{
    const bool onnx = Py_TYPE(network) == core.onnx;
    const Py_ssize_t n = onnx ? sol_onnx_params(core_onnx(network)) : PyTuple_Size(addresses);
    const void **params = n < 0 ? NULL : PyMem_Calloc((size_t)n + 1, sizeof *params);
    if (!params && !PyErr_Occurred()) PyErr_NoMemory();
    for (Py_ssize_t i = 0; params && i < n; i++)
        params[i] = onnx ? sol_onnx_param(core_onnx(network), (int)i)
                         : (const void *)(uintptr_t)PyLong_AsUnsignedLongLong(PyTuple_GetItem(addresses, i));
    return params;
}

/* Reads a tuple of texts, or None. The caller frees the array. NULL: None or failure. */
static const char **read_names(PyObject *tuple)
{
    if (!PyTuple_Check(tuple)) return NULL;
    const char **names = PyMem_Calloc((size_t)PyTuple_Size(tuple) + 1, sizeof *names);
    for (Py_ssize_t i = 0; names && i < PyTuple_Size(tuple); i++)
        names[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(tuple, i), NULL);
    if (!names) PyErr_NoMemory();
    return names;
}

/* Reads a tuple of numbers. The caller frees the array. NULL: failure. */
static int *read_numbers(PyObject *tuple)
{
    int *numbers = PyMem_Calloc((size_t)PyTuple_Size(tuple) + 1, sizeof *numbers);
    for (Py_ssize_t i = 0; numbers && i < PyTuple_Size(tuple); i++)
        numbers[i] = (int)PyLong_AsLong(PyTuple_GetItem(tuple, i));
    if (!numbers) PyErr_NoMemory();
    return numbers;
}

/* (network, addresses, seed_input, batch, trained, written) */
static bool read_graph(PyObject *row, struct sol_deploy_graph *out_g)
{
    PyObject *network, *addresses, *trained, *written;
    long long batch;
    *out_g = (struct sol_deploy_graph){0};
    if (!PyArg_ParseTuple(row, "OO!iLOO!", &network, &PyTuple_Type, &addresses, &out_g->seed_input, &batch, &trained,
                          &PyTuple_Type, &written))
        return false;
    if (Py_TYPE(network) != core.onnx && Py_TYPE(network) != core.graph) {
        PyErr_Format(PyExc_TypeError, "deploy: expected a Graph or an Onnx");
        return false;
    }
    out_g->graph = Py_TYPE(network) == core.onnx ? sol_onnx_graph(core_onnx(network)) : core_graph(network);
    out_g->params = read_params(network, addresses);
    out_g->batch = batch;
    out_g->trained = PyBytes_Check(trained) ? (const unsigned char *)PyBytes_AsString(trained) : NULL;
    out_g->nwritten = (int)PyTuple_Size(written);
    out_g->written = read_numbers(written);
    return !PyErr_Occurred();
}

struct request { /* the arguments of deploy() */
    PyObject *graphs, *keys, *inputs, *outputs, *training;
    const char *target;
    struct sol_deploy_graph *graph; /* the graphs for prediction, then the graph for training */
};

static bool read_graphs(struct request *r)
{
    const Py_ssize_t n = PyTuple_Size(r->graphs);
    r->graph = PyMem_Calloc((size_t)n + 2, sizeof *r->graph);
    if (!r->graph) PyErr_NoMemory();
    for (Py_ssize_t i = 0; r->graph && i < n; i++)
        if (!read_graph(PyTuple_GetItem(r->graphs, i), &r->graph[i])) return false;
    if (r->graph && r->training != Py_None) read_graph(r->training, &r->graph[n]);
    if (!n && !PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "deploy: expected a graph");
    return !PyErr_Occurred();
}

static sol_status run(const struct request *r, struct sol_deploy_key *keys, const char **inputs, const char **outputs)
{
    const int n = (int)PyTuple_Size(r->graphs);
    const struct sol_deploy_options o = {.size = sizeof o,
                                         .target = r->target,
                                         .nkeys = (int)PyDict_Size(r->keys),
                                         .keys = keys,
                                         .params = r->graph->params,
                                         .seed_input = r->graph->seed_input,
                                         .input_names = inputs,
                                         .output_names = outputs,
                                         .trained = r->graph->trained,
                                         .batch = r->graph->batch,
                                         .nmore = n - 1,
                                         .more = r->graph + 1,
                                         .training = r->training == Py_None ? NULL : r->graph + n};
    sol_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = sol_deploy(core.ctx, r->graph->graph, &o);
    Py_END_ALLOW_THREADS;
    return status;
}

static PyObject *deploy(PyObject *self, PyObject *args)
{
    struct request r = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "O!sO!OOO", &PyTuple_Type, &r.graphs, &r.target, &PyDict_Type, &r.keys, &r.inputs,
                          &r.outputs, &r.training))
        return NULL;
    struct sol_deploy_key *keys = PyMem_Calloc((size_t)PyDict_Size(r.keys) + 1, sizeof *keys);
    const char **inputs = read_names(r.inputs), **outputs = read_names(r.outputs);
    sol_status status = SOL_OK;
    if (!keys) PyErr_NoMemory();
    if (keys && read_graphs(&r) && read_keys(r.keys, keys) >= 0 && !PyErr_Occurred())
        status = run(&r, keys, inputs, outputs);
    for (Py_ssize_t i = 0; r.graph && i < PyTuple_Size(r.graphs) + 1; i++) {
        PyMem_Free((void *)(uintptr_t)r.graph[i].params);
        PyMem_Free((void *)(uintptr_t)r.graph[i].written);
    }
    PyMem_Free(r.graph);
    PyMem_Free(keys);
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
     "deploy(graphs, target, keys, input_names, output_names, training): writes a library. Graphs, one for each batch "
     "size, and what is trained are (network, addresses of parameters, seed_input, batch, trained, written): trained "
     "None or a byte for each parameter, written the parameters of which the last outputs are new values; names are "
     "None or tuples"},
    {"deploy_keys", deploy_keys, METH_NOARGS, "deploy_keys() -> [(key, default, documentation)]"},
    {NULL, NULL, 0, NULL},
};

int core_add_deploy(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
