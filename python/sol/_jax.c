/* sol._core.XlaProgram: a network, or one half of a network with a gradient, that XLA's programs call (JAX). The call
 * is a pure function: its arguments and results are arrays, what forward saves for backward included.
 *
 * A compiled program of XLA may outlive the Python objects that it was made from, so it holds what it calls: XLA asks
 * for a state when it makes the program (instantiate), and deletes that with it. Programs are found by a number, which
 * begins at a random one in each process, so that nothing that another process compiled can be mistaken. Where sizes of
 * a network vary, those of a call are another attribute, because XLA compiles for each shape. */
#include "_core.h"
#include "_xla.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum mode { MODE_RUN, MODE_FORWARD, MODE_BACKWARD };
enum what { WHAT_INPUT, WHAT_OUTPUT, WHAT_PARAM, WHAT_SAVED };
struct part { /* an argument or a result */
    enum what what;
    int index;
};
struct pooled {
    struct pooled *next;
    struct sol_params *params;
};
struct program {
    struct program *next; /* in the list of those that Python holds */
    atomic_int refs;      /* Python's object, states of XLA */
    int64_t id;
    enum mode mode;
    PyObject *net, *keep; /* the network, and what owns its parameters */
    struct sol_net *of;
    int nin, nout, nparam, narg, nret;
    struct part *arg, *ret;
    struct sol_params *bound; /* NULL: parameters are arguments */
    atomic_flag lock;         /* for `idle` */
    struct pooled *idle;
};
struct py_program {
    PyObject ob_base;
    struct program *p;
};

static struct program *programs;
static atomic_flag programs_lock = ATOMIC_FLAG_INIT; /* for `programs` and `last_id` */
static int64_t last_id;
static struct xla_type_id type_id;

static void lock(atomic_flag *f)
{
    while (atomic_flag_test_and_set_explicit(f, memory_order_acquire)) {
    }
}
static void unlock(atomic_flag *f)
{
    atomic_flag_clear_explicit(f, memory_order_release);
}

/* -- programs */

static void program_free(struct program *p)
{
    for (struct pooled *q = p->idle, *next; q; q = next) {
        next = q->next;
        sol_params_destroy(q->params);
        free(q);
    }
    sol_params_destroy(p->bound);
    Py_XDECREF(p->net);
    Py_XDECREF(p->keep);
    PyMem_Free(p->arg);
    PyMem_Free(p->ret);
    PyMem_Free(p);
}

/* With the GIL. */
static void program_drop(struct program *p)
{
    if (atomic_fetch_sub(&p->refs, 1) == 1) program_free(p);
}

/* XLA deletes a state in any thread, perhaps when Python has ended. */
static void state_delete(void *state)
{
    if (!Py_IsInitialized()) return;
    PyGILState_STATE gil = PyGILState_Ensure();
    program_drop(state);
    PyGILState_Release(gil);
}

static struct program *find(int64_t id)
{
    lock(&programs_lock);
    struct program *p = programs;
    while (p && p->id != id) p = p->next;
    if (p) atomic_fetch_add(&p->refs, 1);
    unlock(&programs_lock);
    return p;
}

static void enlist(struct program *p)
{
    if (!last_id && getrandom(&last_id, sizeof last_id, 0) != sizeof last_id) last_id = (int64_t)(uintptr_t)p;
    lock(&programs_lock);
    last_id = (int64_t)((uint64_t)last_id + 1);
    p->id = last_id;
    p->next = programs;
    programs = p;
    unlock(&programs_lock);
}

static void unlist(const struct program *p)
{
    lock(&programs_lock);
    struct program **at = &programs;
    while (*at && *at != p) at = &(*at)->next;
    if (*at) *at = p->next;
    unlock(&programs_lock);
}

/* A set of parameters for one call, whose parameters are arguments. */
static struct pooled *params_take(struct program *p)
{
    lock(&p->lock);
    struct pooled *q = p->idle;
    if (q) p->idle = q->next;
    unlock(&p->lock);
    if (q) return q;
    q = calloc(1, sizeof *q);
    if (q && sol_params_create(p->of, &q->params)) {
        free(q);
        q = NULL;
    }
    return q;
}

static void params_give(struct program *p, struct pooled *q)
{
    lock(&p->lock);
    q->next = p->idle;
    p->idle = q;
    unlock(&p->lock);
}

/* -- a call */

struct places { /* of a call, by part */
    const void **in;
    void **out;
    void *saved;
    const int64_t *dims; /* the sizes that vary; NULL: there are none */
};

/* Where each array of the call is. `at` has the addresses of the arguments, then of the results. */
static void place(const struct program *p, void *const *at, struct places *to)
{
    for (int i = 0; i < p->narg + p->nret; i++) {
        const struct part *q = i < p->narg ? &p->arg[i] : &p->ret[i - p->narg];
        if (q->what == WHAT_INPUT) to->in[q->index] = at[i];
        if (q->what == WHAT_OUTPUT) to->out[q->index] = at[i];
        if (q->what == WHAT_SAVED) to->saved = at[i]; /* backward uses the result up, to which XLA moved the argument */
    }
}

static sol_status set_params(const struct program *p, struct sol_params *params, void *const *at)
{
    sol_status status = SOL_OK;
    for (int i = 0; i < p->narg && !status; i++)
        if (p->arg[i].what == WHAT_PARAM) status = sol_params_set(params, p->arg[i].index, at[i]);
    return status;
}

static sol_status run_halves(const struct program *p, struct sol_params *params, const struct places *to)
{
    struct sol_saved *saved;
    sol_status status = sol_saved_in(p->of, to->dims, to->saved, &saved);
    if (status) return status;
    if (p->mode == MODE_FORWARD)
        status = sol_net_forward_in(p->of, params,
                                    &(struct sol_call){.dims = to->dims, .inputs = to->in, .outputs = to->out}, saved);
    else
        status = sol_net_backward(p->of, params, saved, &(struct sol_backward){.inputs = to->in, .outputs = to->out});
    sol_saved_destroy(saved);
    return status;
}

static sol_status run_with(const struct program *p, struct sol_params *params, void *const *at, const struct places *to)
{
    if (!p->bound) {
        const sol_status status = set_params(p, params, at);
        if (status) return status;
    }
    if (p->mode != MODE_RUN) return run_halves(p, params, to);
    return sol_net_run_at(p->of, params, &(struct sol_call){.dims = to->dims, .inputs = to->in, .outputs = to->out});
}

/* Runs the program. Needs no GIL. A status without SOL's message: out of memory. */
static sol_status run(struct program *p, void *const *at, const int64_t *dims)
{
    const void **room = calloc((size_t)(p->nin + p->nout) + 1, sizeof *room);
    if (!room) return SOL_ERR_NOMEM;
    struct places to = {.in = room, .out = (void **)(room + p->nin), .dims = dims};
    place(p, at, &to);
    struct pooled *q = p->bound ? NULL : params_take(p);
    const sol_status status = p->bound || q ? run_with(p, p->bound ? p->bound : q->params, at, &to) : SOL_ERR_NOMEM;
    if (q) params_give(p, q);
    free(room);
    return status;
}

/* -- what XLA calls */

static struct xla_error *fail(const struct xla_frame *f, int code, const char *text)
{
    return f->api->error_create(
        &(struct xla_error_create){.size = sizeof(struct xla_error_create), .message = text, .code = code});
}

static bool metadata(const struct xla_frame *f, bool has_state)
{
    const struct xla_extension *e = f->extension;
    if (!e || e->type != XLA_EXTENSION_METADATA) return false;
    struct xla_metadata *m = ((const struct xla_metadata_extension *)(const void *)e)->metadata;
    m->version.major = XLA_MAJOR;
    m->version.minor = XLA_MINOR;
    m->traits = 0;
    if (has_state) m->state = type_id;
    return true;
}

static const void *attribute(const struct xla_frame *f, const char *name)
{
    for (int64_t i = 0; i < f->attributes.n; i++) {
        const struct xla_text *t = f->attributes.names[i];
        if (t->length == strlen(name) && !memcmp(t->at, name, t->length)) return f->attributes.at[i];
    }
    return NULL;
}

/* The sizes of a call: as many as those of the network that vary. Returns 0 if the call has them. */
static int call_dims(const struct program *p, const struct xla_frame *f, const int64_t **out_dims)
{
    const struct xla_array *a = attribute(f, "dims");
    *out_dims = a && a->n ? a->at : NULL;
    return (a ? a->n : 0) == (size_t)sol_net_dims(p->of) ? 0 : -1;
}

static struct xla_error *on_instantiate(struct xla_frame *f)
{
    if (metadata(f, true)) return NULL;
    const struct xla_scalar *id = attribute(f, "program");
    struct program *p = id ? find(*(const int64_t *)id->value) : NULL;
    if (!p)
        return fail(f, XLA_INVALID_ARGUMENT,
                    "SOL: this program calls a network of another process, or one that exists no more: optimize the "
                    "function in this process, and trace it again");
    struct xla_error *e = f->api->state_set(&(struct xla_state){.size = sizeof(struct xla_state),
                                                                .context = f->context,
                                                                .stage = XLA_INSTANTIATE,
                                                                .type = &type_id,
                                                                .state = p});
    if (e) state_delete(p);
    return e;
}

static int error_code(sol_status status)
{
    static const int codes[] = {[SOL_ERR_INVALID] = XLA_INVALID_ARGUMENT,
                                [SOL_ERR_UNSUPPORTED] = XLA_UNIMPLEMENTED,
                                [SOL_ERR_NOMEM] = XLA_EXHAUSTED,
                                [SOL_ERR_RUN] = XLA_OUT_OF_RANGE};
    const int code = status > 0 && (size_t)status < sizeof codes / sizeof *codes ? codes[status] : 0;
    return code ? code : XLA_INTERNAL;
}

static struct xla_error *on_execute(struct xla_frame *f)
{
    if (metadata(f, false)) return NULL;
    struct xla_state state = {.size = sizeof state, .context = f->context, .stage = XLA_INSTANTIATE, .type = &type_id};
    struct xla_error *e = f->api->state_get(&state);
    if (e) return e;
    struct program *p = state.state;
    const int64_t *dims;
    if (f->args.n != p->narg || f->rets.n != p->nret || call_dims(p, f, &dims))
        return fail(f, XLA_INTERNAL, "SOL: the call of a network has another number of arguments than its program");
    void **at = calloc((size_t)(p->narg + p->nret) + 1, sizeof *at);
    if (!at) return fail(f, XLA_EXHAUSTED, "SOL: out of memory");
    for (int i = 0; i < p->narg; i++) at[i] = ((const struct xla_buffer *)f->args.at[i])->data;
    for (int i = 0; i < p->nret; i++) at[p->narg + i] = ((const struct xla_buffer *)f->rets.at[i])->data;
    const sol_status status = run(p, at, dims);
    free(at);
    if (!status) return NULL;
    const char *text = sol_error(core.ctx);
    return fail(f, error_code(status), text && *text ? text : "SOL: out of memory");
}

/* -- Python */

static int read_parts(PyObject *rows, int *out_n, struct part **out)
{
    const Py_ssize_t n = PyTuple_Size(rows);
    *out = PyMem_Calloc((size_t)n + 1, sizeof **out);
    if (!*out) return PyErr_NoMemory(), -1;
    *out_n = (int)n;
    for (Py_ssize_t i = 0; i < n; i++) {
        int what, index;
        PyObject *row = PyTuple_GetItem(rows, i);
        if (!PyTuple_Check(row) || !PyArg_ParseTuple(row, "ii", &what, &index)) {
            if (!PyErr_Occurred()) PyErr_SetString(core.error[SOL_ERR_INVALID], "parts: expected pairs of numbers");
            return -1;
        }
        (*out)[i] = (struct part){(enum what)what, index};
    }
    return 0;
}

static int check_parts(const struct program *p)
{
    const int most[] = {[WHAT_INPUT] = p->nin, [WHAT_OUTPUT] = p->nout, [WHAT_PARAM] = p->nparam, [WHAT_SAVED] = 1};
    for (int i = 0; i < p->narg + p->nret; i++) {
        const struct part *q = i < p->narg ? &p->arg[i] : &p->ret[i - p->narg];
        if ((unsigned)q->what <= WHAT_SAVED && q->index >= 0 && q->index < most[q->what]) continue;
        PyErr_SetString(core.error[SOL_ERR_INVALID], "parts: there is no such input, output or parameter");
        return -1;
    }
    return 0;
}

/* Parameters with the same data in every call. */
static int bind(struct program *p, PyObject *buffers)
{
    if (buffers == Py_None) return 0;
    if (!PyTuple_Check(buffers) || PyTuple_Size(buffers) != p->nparam) {
        PyErr_Format(core.error[SOL_ERR_INVALID], "parameters: expected a tuple of %d buffers", p->nparam);
        return -1;
    }
    sol_status status = sol_params_create(p->of, &p->bound);
    for (int i = 0; i < p->nparam && !status; i++) {
        Py_buffer b;
        if (PyObject_GetBuffer(PyTuple_GetItem(buffers, i), &b, PyBUF_C_CONTIGUOUS)) return -1;
        status = sol_params_set(p->bound, i, b.buf);
        PyBuffer_Release(&b); /* `keep` owns it */
    }
    if (status) return core_raise(status), -1;
    Py_INCREF(buffers);
    p->keep = buffers;
    return 0;
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *net, *arg, *ret, *buffers;
    int mode;
    if (kwargs && PyDict_Size(kwargs)) return PyErr_Format(PyExc_TypeError, "XlaProgram: no keyword arguments");
    if (!PyArg_ParseTuple(args, "O!iO!O!O", core.net, &net, &mode, &PyTuple_Type, &arg, &PyTuple_Type, &ret, &buffers))
        return NULL;
    struct py_program *self = (struct py_program *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    struct program *p = self ? PyMem_Calloc(1, sizeof *p) : NULL;
    if (!p) {
        Py_XDECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    self->p = p;
    Py_INCREF(net);
    p->net = net;
    p->of = ((struct py_net *)net)->net;
    p->mode = (enum mode)mode;
    p->nin = sol_net_inputs(p->of);
    p->nout = sol_net_outputs(p->of);
    p->nparam = sol_net_params(p->of);
    atomic_store(&p->refs, 1);
    enlist(p);
    if (!read_parts(arg, &p->narg, &p->arg) && !read_parts(ret, &p->nret, &p->ret) && !check_parts(p) &&
        !bind(p, buffers))
        return (PyObject *)self;
    Py_DECREF((PyObject *)self);
    return NULL;
}

static void program_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc f = (freefunc)PyType_GetSlot(type, Py_tp_free);
    struct program *p = ((struct py_program *)self)->p;
    if (p) {
        unlist(p);
        program_drop(p);
    }
    f(self);
    Py_DECREF(type);
}

static PyObject *program_id(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(((struct py_program *)self)->p->id);
}

/* Room for the buffers of the arguments, then of the results. */
static PyObject *run_on(struct program *p, PyObject *args, PyObject *rets, const int64_t *dims)
{
    Py_buffer *buffer = PyMem_Calloc((size_t)(p->narg + p->nret) + 1, sizeof *buffer);
    void **at = PyMem_Calloc((size_t)(p->narg + p->nret) + 1, sizeof *at);
    int n = 0;
    sol_status status = SOL_OK;
    if (!at || !buffer) {
        PyMem_Free(at);
        PyMem_Free(buffer);
        return PyErr_NoMemory();
    }
    for (; n < p->narg + p->nret; n++) {
        const bool ret = n >= p->narg;
        PyObject *object = ret ? PyTuple_GetItem(rets, n - p->narg) : PyTuple_GetItem(args, n);
        if (PyObject_GetBuffer(object, &buffer[n], PyBUF_C_CONTIGUOUS | (ret ? PyBUF_WRITABLE : 0))) break;
        at[n] = buffer[n].buf;
    }
    if (n == p->narg + p->nret) {
        Py_BEGIN_ALLOW_THREADS;
        status = run(p, at, dims);
        Py_END_ALLOW_THREADS;
    }
    while (n) PyBuffer_Release(&buffer[--n]);
    PyMem_Free(at);
    PyMem_Free(buffer);
    if (PyErr_Occurred()) return NULL;
    if (status) return core_raise(status);
    Py_RETURN_NONE;
}

static PyObject *program_run(PyObject *self, PyObject *args)
{
    struct program *p = ((struct py_program *)self)->p;
    PyObject *in, *out, *sizes;
    int64_t dims[MOST_VARY];
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyTuple_Type, &in, &PyTuple_Type, &out, &PyTuple_Type, &sizes)) return NULL;
    const int ndim = core_dims(sizes, dims);
    if (ndim < 0) return NULL;
    if (ndim != sol_net_dims(p->of))
        return PyErr_Format(core.error[SOL_ERR_INVALID], "run: expected the sizes of %d dimensions, got %d",
                            sol_net_dims(p->of), ndim);
    if (PyTuple_Size(in) != p->narg || PyTuple_Size(out) != p->nret)
        return PyErr_Format(core.error[SOL_ERR_INVALID], "run: expected %d arguments and %d results, got %zd and %zd",
                            p->narg, p->nret, PyTuple_Size(in), PyTuple_Size(out));
    return run_on(p, in, out, ndim ? dims : NULL);
}

static PyObject *xla_target(PyObject *self, PyObject *unused)
{
    static struct xla_type_info info = {.size = sizeof info, .deleter = state_delete};
    (void)self, (void)unused;
    return Py_BuildValue("({sNsN}{sNsN})", "instantiate", PyCapsule_New((void *)on_instantiate, NULL, NULL), "execute",
                         PyCapsule_New((void *)on_execute, NULL, NULL), "type_id", PyCapsule_New(&type_id, NULL, NULL),
                         "type_info", PyCapsule_New(&info, NULL, NULL));
}

static PyGetSetDef members[] = {
    {"id", program_id, NULL, "the number by which XLA finds it: the attribute `program` of the call", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef methods[] = {
    {"run", program_run, METH_VARARGS,
     "run(arguments, results, dims): tuples of row-major buffers, as XLA would pass them, and the sizes that vary"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_new, program_new},
    {Py_tp_dealloc, program_dealloc},
    {Py_tp_getset, members},
    {Py_tp_methods, methods},
    {Py_tp_doc,
     "XlaProgram(net, mode, arguments, results, parameters): a network that programs of XLA call. mode: 0 runs "
     "it, 1 and 2 are its halves with a gradient; arguments and results: ((what, index), ..), what: 0 input, 1 "
     "output, 2 parameter, 3 what is saved; parameters: a tuple of buffers, or None: they are arguments."},
    {0, NULL},
};
static PyType_Spec spec = {"sol._core.XlaProgram", sizeof(struct py_program), 0, Py_TPFLAGS_DEFAULT, slots};
static PyMethodDef functions[] = {
    {"xla_target", xla_target, METH_NOARGS,
     "xla_target() -> (stages, type): for jax.ffi.register_ffi_target and _type"},
    {NULL, NULL, 0, NULL},
};

int core_add_jax(PyObject *module)
{
    PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(&spec);
    return !type || PyModule_AddType(module, type) || PyModule_AddFunctions(module, functions) ? -1 : 0;
}
