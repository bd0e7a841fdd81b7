/* Calls of a network with sizes that vary: finds the sizes of a call in the shapes of its arguments.
 *
 * Sizes that a caller has not seen yet are checked once by a function of Python (the rules of the trace); the network
 * itself checks its limits when it binds them. */
#include "_call.h"

#define MOST_CHECKED 4096 /* sizes to remember */
#define MANY 16384        /* elements of memory that is worth a copy to be freed */

static bool is_varying(PyObject *sizes)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(sizes); i++) {
        long long n = PyLong_AsLongLong(PyTuple_GetItem(sizes, i));
        if (sol_size_varies(n)) return true;
    }
    return false;
}

static int read_results(struct py_caller *c)
{
    c->result_varies = PyMem_Calloc((size_t)c->noutput + 1, sizeof *c->result_varies);
    if (!c->result_varies) return PyErr_NoMemory(), -1;
    for (int i = 0; i < c->noutput; i++) {
        PyObject *args = PyTuple_GetItem(PyTuple_GetItem(c->results, i), 0);
        for (Py_ssize_t k = 0; k < PyTuple_Size(args); k++) c->result_varies[i] |= is_varying(PyTuple_GetItem(args, k));
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* None, or (((leaf, dimension), ..), check): where each size is read, and check(sizes) -> bool. */
int varies_read(struct py_caller *c, PyObject *sizes)
{
    PyObject *places, *check;
    if (sizes == Py_None) return 0;
    if (!PyArg_ParseTuple(sizes, "O!O", &PyTuple_Type, &places, &check)) return -1;
    int n = (int)PyTuple_Size(places);
    if (n != sol_net_dims(c->net->net)) {
        PyErr_SetString(core.error[SOL_ERR_INVALID], "caller: sizes: expected one for each dimension of the network");
        return -1;
    }
    c->where = PyMem_Calloc((size_t)n + 1, sizeof *c->where);
    c->checked = PySet_New(NULL);
    if (!c->where || !c->checked) return PyErr_NoMemory(), -1;
    c->check = Py_NewRef(check);
    for (; c->ndim < n; c->ndim++) {
        struct where *w = &c->where[c->ndim];
        if (!PyArg_ParseTuple(PyTuple_GetItem(places, c->ndim), "ii", &w->leaf, &w->dim)) return -1;
        const bool found = sol_net_dim(c->net->net, c->ndim).most >= 0;
        c->nfound += found;
        if (found) continue;
        if (c->nfound) {
            PyErr_SetString(core.error[SOL_ERR_INVALID], "caller: sizes: those that the network sets must be the last");
            return -1;
        }
        if (w->leaf < 0 || w->leaf >= c->nleaf || w->dim < 0 || w->dim >= c->leaf[w->leaf].spec.ndim) {
            PyErr_SetString(core.error[SOL_ERR_INVALID], "caller: sizes: not a dimension of a leaf");
            return -1;
        }
    }
    return read_results(c);
}

void varies_free(struct py_caller *c)
{
    PyMem_Free(c->where);
    PyMem_Free(c->result_varies);
    Py_CLEAR(c->checked);
}

/* Sizes that fit are remembered; those that do not may do so later. */
static int check(struct py_caller *c, const int64_t *dims)
{
    PyObject *key = core_tuple(c->ndim - c->nfound, dims);
    int fits = key ? PySet_Contains(c->checked, key) : -1;
    if (!fits) {
        PyObject *answer = PyObject_CallFunctionObjArgs(c->check, key, NULL);
        fits = answer ? PyObject_IsTrue(answer) : -1;
        Py_XDECREF(answer);
        if (PySet_Size(c->checked) >= MOST_CHECKED) PySet_Clear(c->checked);
        if (fits > 0 && PySet_Add(c->checked, key)) fits = -1;
    }
    Py_XDECREF(key);
    return fits;
}

int varies_find(struct py_caller *c, struct call *call)
{
    struct dl_tensor t;
    for (int i = 0; i < c->ndim - c->nfound; i++) {
        const struct where *w = &c->where[i];
        PyObject *object = PyTuple_GetItem(call->leaves, w->leaf);
        if (!call_is_tensor(c, object)) return 0;
        if (c->api->view(object, &t)) {
            PyErr_Clear();
            return 0;
        }
        if (t.ndim <= w->dim) return 0;
        call->dims[i] = t.shape[w->dim];
    }
    /* outputs are made for the most */
    for (int i = c->ndim - c->nfound; i < c->ndim; i++)
        call->dims[i] = sol_size_at(sol_net_dim(c->net->net, i).most, call->dims);
    return c->ndim > c->nfound ? check(c, call->dims) : 1;
}

static PyObject *filled(PyObject *sizes, const int64_t *dims)
{
    PyObject *made = PyTuple_New(PyTuple_Size(sizes));
    for (Py_ssize_t i = 0; made && i < PyTuple_Size(sizes); i++) {
        PyObject *n = PyLong_FromLongLong(sol_size_at(PyLong_AsLongLong(PyTuple_GetItem(sizes, i)), dims));
        if (!n || PyTuple_SetItem(made, i, n)) Py_CLEAR(made);
    }
    return made;
}

PyObject *varies_fill(PyObject *args, const int64_t *dims)
{
    PyObject *made = PyTuple_New(PyTuple_Size(args));
    for (Py_ssize_t i = 0; made && i < PyTuple_Size(args); i++) {
        PyObject *one = filled(PyTuple_GetItem(args, i), dims);
        if (!one || PyTuple_SetItem(made, i, one)) Py_CLEAR(made);
    }
    return made;
}

PyObject *varies_room(const struct py_caller *c, int output, const int64_t *dims)
{
    return Py_BuildValue("((L)(i))", (long long)sol_net_output_room(c->net->net, output, dims), 1);
}

static Py_ssize_t elements(PyObject *shape)
{
    Py_ssize_t n = 1;
    for (Py_ssize_t i = 0; i < PyTuple_Size(shape); i++) n *= PyLong_AsSsize_t(PyTuple_GetItem(shape, i));
    return n;
}

/* The part of a tensor that the run has filled, at its beginning: in place, or a copy if that frees much memory. */
static PyObject *part(PyObject *tensor, PyObject *sizes)
{
    PyObject *whole = PyObject_CallMethod(tensor, "numel", NULL);
    PyObject *cut =
        whole ? PyObject_CallMethod(tensor, "as_strided_", "OO", PyTuple_GetItem(sizes, 0), PyTuple_GetItem(sizes, 1))
              : NULL;
    const Py_ssize_t room = whole ? PyLong_AsSsize_t(whole) : 0;
    Py_XDECREF(whole);
    if (!cut || room < MANY || elements(PyTuple_GetItem(sizes, 0)) > room / 2) return cut;
    PyObject *copy = PyObject_CallMethod(cut, "clone", NULL);
    Py_DECREF(cut);
    return copy;
}

PyObject *varies_found(struct py_caller *c, PyObject *made, const int64_t *dims)
{
    const Py_ssize_t n = PyTuple_Size(made);
    PyObject *result = PyTuple_New(n + 1), *sizes = core_tuple(c->ndim, dims);
    if (result && sizes && PyTuple_SetItem(result, n, Py_NewRef(sizes))) Py_CLEAR(result);
    for (Py_ssize_t i = 0; i < n && result && sizes; i++) {
        PyObject *given = PyTuple_GetItem(made, i);
        PyObject *filled =
            c->result_varies[i] ? varies_fill(PyTuple_GetItem(PyTuple_GetItem(c->results, i), 0), dims) : NULL;
        PyObject *out = !c->result_varies[i] ? Py_NewRef(given) : filled ? part(given, filled) : NULL;
        Py_XDECREF(filled);
        if (!out || PyTuple_SetItem(result, i, out)) Py_CLEAR(result);
    }
    if (!sizes) Py_CLEAR(result);
    Py_XDECREF(sizes);
    return result;
}
