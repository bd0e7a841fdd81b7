/* The two halves of a network with a gradient: Caller.forward, Caller.backward, and what lies between them.
 *
 * Backward may come much later, or never. What it needs beside the caller's tensors is a Saved, which keeps the
 * parameters that backward reads: if the network was given others in the meantime, it gets those back first. That their
 * values are the same still is for the framework to say, which counts versions. */
#include <string.h>

#include "_call.h"

struct py_saved {
    PyObject ob_base;
    struct sol_saved *saved;
    PyObject *params;  /* tuple: of c->read */
    long long changes; /* of the caller, when these were its parameters */
};
static PyTypeObject *saved_type;

/* -- making */

static int read_gradients(struct py_caller *c, PyObject *rows)
{
    Py_ssize_t n = PyTuple_Size(rows);
    c->gradient = PyMem_Calloc((size_t)n + 1, sizeof *c->gradient);
    if (!c->gradient) return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *row = PyTuple_GetItem(rows, i);
        if (!PyTuple_Check(row) || call_read_spec(row, &c->gradient[i])) return -1;
    }
    return 0;
}

static int read_numbers(struct py_caller *c, PyObject *numbers)
{
    Py_ssize_t n = PyTuple_Size(numbers);
    c->read = PyMem_Calloc((size_t)n + 1, sizeof *c->read);
    if (!c->read) return PyErr_NoMemory(), -1;
    for (; c->nread < n; c->nread++) {
        long i = PyLong_AsLong(PyTuple_GetItem(numbers, c->nread));
        if (i == -1 && PyErr_Occurred()) return -1;
        if (i < 0 || i >= c->nparam) {
            PyErr_SetString(core.error[SOL_ERR_INVALID], "caller: split: there is no such parameter");
            return -1;
        }
        c->read[c->nread] = (int)i;
    }
    return 0;
}

/* (forward inputs, forward outputs, specs of the gradients of outputs, parameters that backward reads), or None */
int call_read_split(struct py_caller *c, PyObject *split)
{
    PyObject *gradients, *reads;
    if (split == Py_None) return 0;
    if (!PyArg_ParseTuple(split, "iiO!O!", &c->nforward_in, &c->nforward_out, &PyTuple_Type, &gradients, &PyTuple_Type,
                          &reads))
        return -1;
    if (c->nforward_in < 0 || c->nforward_out < 0 || c->nforward_in + PyTuple_Size(gradients) != c->ninput ||
        c->nforward_out > c->noutput) {
        PyErr_SetString(core.error[SOL_ERR_INVALID], "caller: split: does not fit the network's inputs and outputs");
        return -1;
    }
    return read_gradients(c, gradients) || read_numbers(c, reads) ? -1 : 0;
}

/* -- Saved */

static void saved_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc f = (freefunc)PyType_GetSlot(type, Py_tp_free);
    sol_saved_destroy(((struct py_saved *)self)->saved);
    Py_XDECREF(((struct py_saved *)self)->params);
    f(self);
    Py_DECREF(type);
}

static struct py_saved *new_saved(const struct py_caller *c)
{
    struct py_saved *s = (struct py_saved *)((allocfunc)PyType_GetSlot(saved_type, Py_tp_alloc))(saved_type, 0);
    if (!s) return NULL;
    s->changes = c->changes;
    s->params = PyTuple_New(c->nread);
    for (int i = 0; s->params && i < c->nread; i++) {
        PyObject *tensor = c->param[c->read[i]].tensor;
        Py_INCREF(tensor);
        if (PyTuple_SetItem(s->params, i, tensor)) Py_CLEAR(s->params);
    }
    if (s->params) return s;
    Py_DECREF((PyObject *)s);
    return NULL;
}

/* -- forward */

static PyObject *forward(struct py_caller *c, PyObject *leaves, int threads, const void **inputs, void **outputs)
{
    int same = call_match_all(c, leaves, inputs);
    if (same < 0) return NULL;
    if (!same) Py_RETURN_NONE;
    struct py_saved *saved = new_saved(c);
    PyObject *made = saved ? call_make_outputs(c, 0, c->nforward_out, outputs) : NULL, *result = NULL;
    if (!made) goto done;
    sol_status status;
    call_begin(c);
    Py_BEGIN_ALLOW_THREADS;
    status = sol_net_forward(c->net->net, inputs, outputs, threads, &saved->saved);
    Py_END_ALLOW_THREADS;
    call_end(c);
    result = status ? core_raise(status) : PyTuple_Pack(2, made, (PyObject *)saved);
done:
    Py_XDECREF(made);
    Py_XDECREF((PyObject *)saved);
    return result;
}

PyObject *call_forward(PyObject *self, PyObject *args)
{
    struct py_caller *c = (struct py_caller *)self;
    PyObject *leaves;
    int threads;
    if (!PyArg_ParseTuple(args, "O!i", &PyTuple_Type, &leaves, &threads)) return NULL;
    const void **places = PyMem_Calloc((size_t)(c->ninput + c->noutput) + 1, sizeof *places);
    if (!places) return PyErr_NoMemory();
    PyObject *result = forward(c, leaves, threads, places, (void **)(places + c->ninput));
    PyMem_Free(places);
    return result;
}

/* -- backward */

/* A tensor of the row: what backward is given must lie as it did in forward. None: nothing. */
static int place(const struct py_caller *c, PyObject *tuple, Py_ssize_t i, const struct spec *s, const void **out)
{
    PyObject *object = PyTuple_GetItem(tuple, i);
    if (!object) return -1;
    if (object == Py_None) return 0;
    int same = call_match(c, object, s, out);
    if (!same) PyErr_SetString(core.error[SOL_ERR_INVALID], "backward: a tensor does not lie as it did in forward");
    return same == 1 ? 0 : -1;
}

static int place_inputs(const struct py_caller *c, PyObject *inputs, PyObject *gradients, const void **out)
{
    for (int i = 0; i < c->nleaf; i++) {
        int n = c->leaf[i].input;
        if (n >= 0 && place(c, inputs, n, &c->leaf[i].spec, &out[n])) return -1;
    }
    for (int i = c->nforward_in; i < c->ninput; i++)
        if (place(c, gradients, i - c->nforward_in, &c->gradient[i - c->nforward_in], &out[i])) return -1;
    return 0;
}

/* Outputs of the forward half were made by make_outputs, and are as they were. */
static int place_outputs(const struct py_caller *c, PyObject *outputs, void **out)
{
    for (int i = 0; i < c->nforward_out; i++) {
        struct dl_tensor t;
        PyObject *object = PyTuple_GetItem(outputs, i);
        if (!object) return -1;
        if (object == Py_None) continue;
        if (c->api->view(object, &t)) return -1;
        out[i] = t.data ? (char *)t.data + t.byte_offset : (void *)(uintptr_t)c;
    }
    return 0;
}

/* Parameters are those of the forward call again. */
static int restore(struct py_caller *c, const struct py_saved *saved)
{
    if (c->changes == saved->changes) return 0;
    for (int i = 0; i < c->nread; i++) {
        int same = call_hand_over(c, c->read[i], PyTuple_GetItem(saved->params, i));
        if (!same)
            PyErr_SetString(core.error[SOL_ERR_INVALID], "backward: a parameter does not lie as it did in forward");
        if (same != 1) return -1;
    }
    return 0;
}

static PyObject *backward(struct py_caller *c, struct py_saved *saved, int keep, const void **in, void **out,
                          int threads)
{
    if (restore(c, saved)) return NULL;
    PyObject *made = call_make_outputs(c, c->nforward_out, c->noutput - c->nforward_out, out + c->nforward_out);
    if (!made) return NULL;
    sol_status status;
    call_begin(c);
    Py_BEGIN_ALLOW_THREADS;
    status = sol_net_backward(c->net->net, saved->saved, keep, in, out, threads);
    Py_END_ALLOW_THREADS;
    call_end(c);
    if (!status) return made;
    Py_DECREF(made);
    return core_raise(status);
}

PyObject *call_backward(PyObject *self, PyObject *args)
{
    struct py_caller *c = (struct py_caller *)self;
    PyObject *saved, *inputs, *outputs, *gradients, *result = NULL;
    int keep, threads;
    if (!PyArg_ParseTuple(args, "O!pO!O!O!i", saved_type, &saved, &keep, &PyTuple_Type, &inputs, &PyTuple_Type,
                          &outputs, &PyTuple_Type, &gradients, &threads))
        return NULL;
    if (PyTuple_Size(inputs) != c->nforward_in || PyTuple_Size(outputs) != c->nforward_out ||
        PyTuple_Size(gradients) != c->ninput - c->nforward_in)
        return PyErr_Format(core.error[SOL_ERR_INVALID], "backward: expected %d inputs, %d outputs and %d gradients",
                            c->nforward_in, c->nforward_out, c->ninput - c->nforward_in);
    const void **places = PyMem_Calloc((size_t)(c->ninput + c->noutput) + 1, sizeof *places);
    if (!places) return PyErr_NoMemory();
    void **out = (void **)(places + c->ninput);
    if (!place_inputs(c, inputs, gradients, places) && !place_outputs(c, outputs, out))
        result = backward(c, (struct py_saved *)saved, keep, places, out, threads);
    PyMem_Free(places);
    return result;
}

static PyType_Slot saved_slots[] = {
    {Py_tp_dealloc, saved_dealloc},
    {Py_tp_doc, "What a forward call keeps for its backward."},
    {0, NULL},
};
static PyType_Spec saved_spec = {"sol._core.Saved", sizeof(struct py_saved), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, saved_slots};

int core_add_saved(PyObject *module)
{
    saved_type = (PyTypeObject *)PyType_FromSpec(&saved_spec);
    return saved_type ? PyModule_AddType(module, saved_type) : -1;
}
