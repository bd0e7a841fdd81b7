/* The two halves of a network with a gradient: Caller.forward, Caller.backward, and what passes between them.
 *
 * Backward may run much later, or never. A Saved holds what it needs besides the caller's tensors, including the
 * parameters of the forward call, with which backward runs. The framework checks that their values did not change,
 * because it counts versions. */
#include <string.h>

#include "_call.h"

struct py_saved {
    PyObject ob_base;
    struct sol_saved *saved;
    PyObject *params; /* tuple */
    long long epoch;  /* of their set */
    int ndim;
    int64_t dims[MOST_VARY]; /* the sizes of the call */
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

/* (forward inputs, forward outputs, specs of the gradients of outputs), or None */
int call_read_split(struct py_caller *c, PyObject *split)
{
    PyObject *gradients;
    if (split == Py_None) return 0;
    if (!PyArg_ParseTuple(split, "iiO!", &c->nforward_in, &c->nforward_out, &PyTuple_Type, &gradients)) return -1;
    if (c->nforward_in < 0 || c->nforward_out < 0 || c->nforward_in + PyTuple_Size(gradients) != c->ninput ||
        c->nforward_out > c->noutput) {
        PyErr_SetString(core.error[SOL_ERR_INVALID], "caller: split: does not fit the network's inputs and outputs");
        return -1;
    }
    return read_gradients(c, gradients);
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

PyObject *core_saved(struct sol_saved *saved, int ndim, const int64_t *dims)
{
    struct py_saved *s = (struct py_saved *)((allocfunc)PyType_GetSlot(saved_type, Py_tp_alloc))(saved_type, 0);
    if (!s) return sol_saved_destroy(saved), NULL;
    s->saved = saved;
    s->ndim = ndim;
    memcpy(s->dims, dims, (size_t)ndim * sizeof *s->dims);
    return (PyObject *)s;
}

struct sol_saved *core_saved_of(PyObject *saved, int64_t dims[MOST_VARY])
{
    const struct py_saved *s = (struct py_saved *)saved;
    if (Py_TYPE(saved) != saved_type || !s->saved) {
        PyErr_SetString(core.error[SOL_ERR_INVALID], "backward: expected the Saved of a forward");
        return NULL;
    }
    memcpy(dims, s->dims, sizeof s->dims);
    return s->saved;
}

static struct py_saved *new_saved(const struct py_caller *c, const struct call *call, const struct param_set *set)
{
    struct py_saved *s = (struct py_saved *)((allocfunc)PyType_GetSlot(saved_type, Py_tp_alloc))(saved_type, 0);
    if (!s) return NULL;
    s->epoch = params_epoch(set);
    s->ndim = c->ndim;
    memcpy(s->dims, call->dims, (size_t)c->ndim * sizeof *s->dims);
    s->params = PyTuple_New(c->nparam);
    for (int i = 0; s->params && i < c->nparam; i++) {
        Py_INCREF(call->now[i].tensor);
        if (PyTuple_SetItem(s->params, i, call->now[i].tensor)) Py_CLEAR(s->params);
    }
    if (s->params) return s;
    Py_DECREF((PyObject *)s);
    return NULL;
}

/* -- forward */

static PyObject *forward_with(struct py_caller *c, struct param_set *set, struct py_saved *saved, int threads,
                              const struct call *call)
{
    void *stream;
    if (call_stream(c, &stream)) return NULL;
    PyObject *made = call_make_outputs(c, 0, c->nforward_out, call->dims, call->outputs);
    if (!made) return NULL;
    const struct sol_call at = call_at(c, call, threads);
    sol_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = call_enter(c, stream);
    if (!status) {
        status = sol_net_forward_at(c->net->net, params_of(set), &at, &saved->saved);
        call_leave(c);
    }
    Py_END_ALLOW_THREADS;
    PyObject *result = status ? NULL : PyTuple_Pack(2, made, (PyObject *)saved);
    Py_DECREF(made);
    return status ? core_raise(status) : result;
}

static PyObject *forward(struct py_caller *c, int threads, struct call *call)
{
    PyObject *result = NULL;
    call->now = params_room(c);
    int same = call->now ? call_match_all(c, call) : -1;
    struct param_set *set = same == 1 ? params_enter(c, call->now) : NULL;
    struct py_saved *saved = set ? new_saved(c, call, set) : NULL;
    if (saved) result = forward_with(c, set, saved, threads, call);
    Py_XDECREF((PyObject *)saved);
    if (set) params_leave(c, set);
    params_room_free(c, call->now);
    if (!same) Py_RETURN_NONE;
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
    struct call call;
    call.leaves = leaves, call.inputs = places, call.outputs = (void **)(places + c->ninput);
    PyObject *result = forward(c, threads, &call);
    PyMem_Free(places);
    return result;
}

/* -- backward */

/* Reads a tensor of the tuple. It must have the same layout in backward as in forward. None: no tensor. */
static int place(const struct py_caller *c, PyObject *object, const struct spec *s, const int64_t *dims,
                 const void **out)
{
    if (!object) return -1;
    if (object == Py_None) return 0;
    int same = call_match(c, object, s, dims, out);
    if (!same) PyErr_SetString(core.error[SOL_ERR_INVALID], "backward: a tensor does not lie as it did in forward");
    return same == 1 ? 0 : -1;
}

static int place_inputs(const struct py_caller *c, PyObject *inputs, PyObject *gradients, const int64_t *dims,
                        const void **out)
{
    for (int i = 0; i < c->nleaf; i++) {
        int n = c->leaf[i].input;
        if (n >= 0 && place(c, PyTuple_GetItem(inputs, n), &c->leaf[i].spec, dims, &out[n])) return -1;
    }
    for (int i = 0; i < c->ninput - c->nforward_in; i++)
        if (place(c, PyTuple_GetItem(gradients, i), &c->gradient[i], dims, &out[c->nforward_in + i])) return -1;
    return 0;
}

/* Reads the outputs of forward, which make_outputs created and nobody changed. */
static int place_outputs(const struct py_caller *c, PyObject *outputs, void **out)
{
    for (int i = 0; i < c->nforward_out; i++) {
        struct dl_tensor t;
        PyObject *object = PyTuple_GetItem(outputs, i);
        if (!object) return -1;
        if (object == Py_None) continue;
        if (c->api->view(object, &t)) return -1;
        out[i] = call_place(c, &t);
    }
    return 0;
}

/* Finds the set with the parameters of the forward call. */
static struct param_set *enter_again(struct py_caller *c, const struct py_saved *saved)
{
    struct param_set *set = params_enter_again(c, saved->epoch);
    if (set) return set;
    struct seen *now = params_room(c);
    int same = now ? 1 : -1;
    for (int i = 0; same == 1 && i < c->nparam; i++)
        same = params_see(c, i, PyTuple_GetItem(saved->params, i), &now[i]);
    if (!same) PyErr_SetString(core.error[SOL_ERR_INVALID], "backward: a parameter does not lie as it did in forward");
    if (same == 1) set = params_enter(c, now);
    params_room_free(c, now); /* `saved` keeps them alive */
    return set;
}

static PyObject *backward_with(struct py_caller *c, struct param_set *set, struct py_saved *saved,
                               const struct sol_backward *b)
{
    void **gradients = (void **)b->outputs + c->nforward_out, *stream;
    if (call_stream(c, &stream)) return NULL;
    PyObject *made = call_make_outputs(c, c->nforward_out, c->noutput - c->nforward_out, saved->dims, gradients);
    if (!made) return NULL;
    sol_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = call_enter(c, stream);
    if (!status) {
        status = sol_net_backward(c->net->net, params_of(set), saved->saved, b);
        call_leave(c);
    }
    Py_END_ALLOW_THREADS;
    if (!status) return made;
    Py_DECREF(made);
    return core_raise(status);
}

static PyObject *backward(struct py_caller *c, struct py_saved *saved, int keep, const void **in, void **out,
                          int threads)
{
    struct param_set *set = enter_again(c, saved);
    if (!set) return NULL;
    PyObject *result = backward_with(c, set, saved, &(struct sol_backward){in, out, threads, keep});
    params_leave(c, set);
    return result;
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
    if (!place_inputs(c, inputs, gradients, ((struct py_saved *)saved)->dims, places) &&
        !place_outputs(c, outputs, out))
        result = backward(c, (struct py_saved *)saved, keep, places, out, threads);
    PyMem_Free(places);
    return result;
}

static PyObject *saved_dims(PyObject *self, void *unused)
{
    const struct py_saved *s = (const struct py_saved *)self;
    (void)unused;
    return core_tuple(s->ndim, s->dims);
}

static PyGetSetDef saved_members[] = {
    {"dims", saved_dims, NULL, "the sizes of the call that vary, a tuple", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot saved_slots[] = {
    {Py_tp_dealloc, saved_dealloc},
    {Py_tp_getset, saved_members},
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
