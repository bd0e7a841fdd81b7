/* Sizes that vary, for Python: a size is a Python int, a number or the name of a form (sol.h). */
#include "_core.h"

static PyObject *size_of(PyObject *self, PyObject *args)
{
    int op;
    long long a, b;
    (void)self;
    if (!PyArg_ParseTuple(args, "iLL", &op, &a, &b)) return NULL;
    int64_t made = sol_size((enum sol_size_op)op, a, b);
    if (made != SOL_SIZE_BAD) return PyLong_FromLongLong(made);
    PyErr_SetString(core.error[SOL_ERR_UNSUPPORTED], "a size is too large, or divided by zero");
    return NULL;
}

static PyObject *size_varies(PyObject *self, PyObject *size)
{
    long long n = PyLong_AsLongLong(size);
    (void)self;
    if (n == -1 && PyErr_Occurred()) return NULL;
    return PyBool_FromLong(sol_size_varies(n));
}

static PyObject *size_le(PyObject *self, PyObject *args)
{
    long long a, b;
    (void)self;
    if (!PyArg_ParseTuple(args, "LL", &a, &b)) return NULL;
    return PyBool_FromLong(sol_size_le(a, b));
}

static PyObject *size_hint(PyObject *self, PyObject *size)
{
    long long n = PyLong_AsLongLong(size);
    (void)self;
    if (n == -1 && PyErr_Occurred()) return NULL;
    return PyLong_FromLongLong(sol_size_hint(n));
}

static PyObject *size_limits(PyObject *self, PyObject *size)
{
    struct sol_dim_limits l;
    long long n = PyLong_AsLongLong(size);
    (void)self;
    if (n == -1 && PyErr_Occurred()) return NULL;
    if (!sol_size_limits(n, &l)) Py_RETURN_NONE;
    return Py_BuildValue("(LLLL)", (long long)l.hint, (long long)l.min, (long long)l.max, (long long)l.multiple);
}

static PyObject *size_text(PyObject *self, PyObject *size)
{
    char text[256];
    long long n = PyLong_AsLongLong(size);
    (void)self;
    if (n == -1 && PyErr_Occurred()) return NULL;
    sol_size_text(core.ctx, n, text, sizeof text);
    return PyUnicode_FromString(text);
}

static PyObject *size_at(PyObject *self, PyObject *args)
{
    long long size;
    PyObject *sizes;
    int64_t dims[MOST_VARY] = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "LO", &size, &sizes) || core_dims(sizes, dims) < 0) return NULL;
    return PyLong_FromLongLong(sol_size_at(size, dims));
}

static PyMethodDef functions[] = {
    {"size", size_of, METH_VARARGS, "size(op, a, b) -> size: op is a number of enum sol_size_op"},
    {"size_at", size_at, METH_VARARGS, "size_at(size, dims) -> int: its value where dimension i is dims[i]"},
    {"size_varies", size_varies, METH_O, "size_varies(size) -> bool"},
    {"size_le", size_le, METH_VARARGS, "size_le(a, b) -> bool: is a <= b proven for all dimensions?"},
    {"size_hint", size_hint, METH_O, "size_hint(size) -> int: its value for the dimensions' hints"},
    {"size_limits", size_limits, METH_O,
     "size_limits(size) -> (hint, min, max, multiple) if it is a dimension itself, otherwise None; max 0: none"},
    {"size_text", size_text, METH_O, "size_text(size) -> str, such as 12*#0+3"},
    {NULL, NULL, 0, NULL},
};

int core_add_sizes(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
