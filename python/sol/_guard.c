/* Guards of a caller: conditions on the module tree under which a program is valid. guards.py makes the rows. */
#include "_call.h"

#include <string.h>

/* Reads a row: (dict, key, value), (dict, key, value, None), (dict, None, size) or (dict, key, dict, key). */
int guard_read(PyObject *row, struct mode *m)
{
    if (!PyArg_ParseTuple(row, "O!OO|O", &PyDict_Type, &m->dict, &m->key, &m->value, &m->other)) return -1;
    Py_INCREF(m->dict);
    Py_INCREF(m->key);
    Py_INCREF(m->value);
    Py_XINCREF(m->other);
    if (m->other && m->other != Py_None && !PyDict_Check(m->value)) {
        PyErr_SetString(core.error[SOL_ERR_INVALID], "caller: a guard of two objects: expected two dicts");
        return -1;
    }
    if (m->key == Py_None) m->size = PyLong_AsSsize_t(m->value);
    return m->size == -1 && PyErr_Occurred() ? -1 : 0;
}

void guard_clear(struct mode *m)
{
    Py_CLEAR(m->dict);
    Py_CLEAR(m->key);
    Py_CLEAR(m->value);
    Py_CLEAR(m->other);
}

/* Identical objects, or equal plain values, also inside lists and dicts. Zeros of different sign differ. */
int guard_same(PyObject *a, PyObject *b)
{
    if (a == b) return 1;
    PyTypeObject *type = Py_TYPE(a);
    if (type != Py_TYPE(b)) return 0;
    if (type == &PyFloat_Type) {
        double x = PyFloat_AsDouble(a), y = PyFloat_AsDouble(b);
        return !memcmp(&x, &y, sizeof x);
    }
    if (type != &PyLong_Type && type != &PyUnicode_Type && type != &PyTuple_Type && type != &PyList_Type &&
        type != &PyDict_Type && type != &PyComplex_Type && type != &PyBytes_Type)
        return 0;
    int same = PyObject_RichCompareBool(a, b, Py_EQ);
    if (same < 0) PyErr_Clear(); /* it contains tensors */
    return same > 0;
}

int guard_match(const struct mode *m)
{
    if (m->key == Py_None) return PyDict_Size(m->dict) == m->size;
    PyObject *is = PyDict_GetItemWithError(m->dict, m->key);
    bool tied = is && m->other && m->other != Py_None;
    PyObject *expected = tied ? PyDict_GetItemWithError(m->value, m->other) : m->value;
    if (is && is == expected) return 1;
    if (PyErr_Occurred()) return -1;
    return is && !m->other && guard_same(is, expected);
}
