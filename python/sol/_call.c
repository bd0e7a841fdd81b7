/* sol._core.Caller: calls a network on a framework's tensors with as little Python as possible.
 *
 * A caller knows what a call must look like (leaves of the arguments, modes of modules, parameters) and compares. If
 * anything differs it returns None, and Python handles the call. A match costs some tens of nanoseconds per tensor,
 * because tensors are read through DLPack's C interface. _params.c decides which parameters the network gets. */
#include "_call.h"

#include <string.h>

static PyObject *text_is_neg, *text_is_conj, *text_requires_grad;

/* -- making */

int call_read_spec(PyObject *row, struct spec *s)
{
    PyObject *shape, *strides;
    int64_t again[MAX_DIMS];
    if (!PyArg_ParseTuple(row, "bbOO", &s->code, &s->bits, &shape, &strides)) return -1;
    s->ndim = core_shape(shape, s->shape);
    int n = s->ndim < 0 ? -1 : core_shape(strides, again);
    if (n < 0) return -1;
    if (n != s->ndim) {
        PyErr_SetString(core.error[SOL_ERR_INVALID], "caller: strides: expected one for each dimension");
        return -1;
    }
    memcpy(s->strides, again, sizeof again);
    for (int i = 0; i < s->ndim; i++) s->varies |= sol_size_varies(s->shape[i]) || sol_size_varies(s->strides[i]);
    return 0;
}

static int read_leaf(PyObject *row, struct leaf *l) /* (input, spec) or (value,) */
{
    PyObject *spec;
    if (PyTuple_Size(row) == 1) {
        l->kind = LEAF_VALUE;
        l->input = -1;
        l->value = PyTuple_GetItem(row, 0);
        Py_XINCREF(l->value);
        return 0;
    }
    l->kind = LEAF_TENSOR;
    if (!PyArg_ParseTuple(row, "iO!", &l->input, &PyTuple_Type, &spec)) return -1;
    return call_read_spec(spec, &l->spec);
}

/* (owner, key, versioned, spec[, requires_grad]); owner None: key is the number of a leaf */
static int read_param(PyObject *row, struct param *p)
{
    PyObject *owner, *key, *spec;
    int versioned;
    p->wants = -1;
    if (!PyArg_ParseTuple(row, "OOpO!|i", &owner, &key, &versioned, &PyTuple_Type, &spec, &p->wants)) return -1;
    p->versioned = versioned;
    if (owner == Py_None) {
        p->leaf = PyLong_AsSsize_t(key);
        if (p->leaf == -1 && PyErr_Occurred()) return -1;
    } else {
        Py_INCREF(owner);
        Py_INCREF(key);
        p->owner = owner;
        p->key = key;
    }
    return call_read_spec(spec, &p->spec);
}

static int read_all(struct py_caller *c, PyObject *leaves, PyObject *params, PyObject *modes)
{
    int nleaf = (int)PyTuple_Size(leaves), nparam = (int)PyTuple_Size(params), nmode = (int)PyTuple_Size(modes);
    c->leaf = PyMem_Calloc((size_t)nleaf + 1, sizeof *c->leaf);
    c->param = PyMem_Calloc((size_t)nparam + 1, sizeof *c->param);
    c->mode = PyMem_Calloc((size_t)nmode + 1, sizeof *c->mode);
    if (!c->leaf || !c->param || !c->mode) {
        PyErr_NoMemory();
        return -1;
    }
    for (; c->nleaf < nleaf; c->nleaf++)
        if (read_leaf(PyTuple_GetItem(leaves, c->nleaf), &c->leaf[c->nleaf])) return -1;
    for (; c->nparam < nparam; c->nparam++)
        if (read_param(PyTuple_GetItem(params, c->nparam), &c->param[c->nparam])) return -1;
    for (; c->nmode < nmode; c->nmode++)
        if (guard_read(PyTuple_GetItem(modes, c->nmode), &c->mode[c->nmode])) return -1;
    return 0;
}

static int check_counts(const struct py_caller *c)
{
    bool ok = c->nparam == sol_net_params(c->net->net) && c->noutput == sol_net_outputs(c->net->net);
    for (int i = 0; i < c->nparam; i++) ok &= c->param[i].owner || c->param[i].leaf < c->nleaf;
    for (int i = 0; i < c->nleaf; i++) ok &= c->leaf[i].input < c->nforward_in;
    if (!ok) PyErr_SetString(core.error[SOL_ERR_INVALID], "caller: does not fit the network's parameters and outputs");
    return ok ? 0 : -1;
}

/* (DLPack's type, number) or (type, number, SOL's name, function that gives the stream), or None: the host */
static int read_device(struct py_caller *c, PyObject *device)
{
    const char *name = NULL;
    PyObject *stream = NULL;
    if (device == Py_None) return 0;
    if (!PyArg_ParseTuple(device, "ii|sO", &c->device_type, &c->device_id, &name, &stream)) return -1;
    if (!name) return 0;
    sol_status status = sol_heap_open(core.ctx, name, &c->heap);
    if (!status) status = sol_heap_place(c->heap, 0, &c->place);
    if (status) return core_raise(status), -1;
    c->stream = Py_XNewRef(stream);
    return 0;
}

static PyObject *caller_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"net",     "types", "empty", "leaves", "params", "modes",
                            "results", "split", "sizes", "device", NULL};
    PyObject *net, *types, *empty, *leaves, *params, *modes, *results, *split = Py_None, *sizes = Py_None;
    PyObject *device = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!OO!O!O!O!|OOO", names, core.net, &net, &PyTuple_Type, &types,
                                     &empty, &PyTuple_Type, &leaves, &PyTuple_Type, &params, &PyTuple_Type, &modes,
                                     &PyTuple_Type, &results, &split, &sizes, &device))
        return NULL;
    PyObject *first = PyTuple_GetItem(types, 0);
    PyObject *capsule = first ? PyObject_GetAttrString(first, "__dlpack_c_exchange_api__") : NULL;
    if (!capsule) return NULL;
    const struct dl_exchange_api *api = PyCapsule_GetPointer(capsule, DL_EXCHANGE_CAPSULE);
    Py_DECREF(capsule); /* the table lives as long as the process */
    if (!api) return NULL;
    if (api->header.major != 1 || !api->view)
        return PyErr_Format(core.error[SOL_ERR_UNSUPPORTED], "DLPack: expected version 1, got %u", api->header.major);
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct py_caller *c = (struct py_caller *)alloc(type, 0);
    if (!c) return NULL;
    Py_INCREF(net), Py_INCREF(types), Py_INCREF(empty), Py_INCREF(results);
    c->net = (struct py_net *)net;
    c->api = api;
    c->types = types;
    c->empty = empty;
    c->results = results;
    c->device_type = DL_CPU;
    c->noutput = (int)PyTuple_Size(results);
    c->ninput = sol_net_inputs(c->net->net);
    c->nforward_in = c->ninput;
    c->nforward_out = c->noutput;
    if (!read_device(c, device) && !read_all(c, leaves, params, modes) && !call_read_split(c, split) &&
        !check_counts(c) && !varies_read(c, sizes))
        return (PyObject *)c;
    Py_DECREF(c);
    return NULL;
}

static int caller_traverse(PyObject *self, visitproc visit, void *arg)
{
    struct py_caller *c = (struct py_caller *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(c->net);
    Py_VISIT(c->types);
    Py_VISIT(c->empty);
    Py_VISIT(c->results);
    Py_VISIT(c->check);
    Py_VISIT(c->stream);
    for (int i = 0; i < c->nleaf; i++) Py_VISIT(c->leaf[i].value);
    for (int i = 0; i < c->nparam; i++) Py_VISIT(c->param[i].owner);
    for (int i = 0; i < c->nmode; i++) {
        Py_VISIT(c->mode[i].dict);
        Py_VISIT(c->mode[i].value);
    }
    return params_visit(c, visit, arg);
}

static int caller_clear(PyObject *self)
{
    struct py_caller *c = (struct py_caller *)self;
    params_free(c);
    Py_CLEAR(c->net);
    Py_CLEAR(c->types);
    Py_CLEAR(c->empty);
    Py_CLEAR(c->results);
    Py_CLEAR(c->check);
    Py_CLEAR(c->stream);
    for (int i = 0; i < c->nleaf; i++) Py_CLEAR(c->leaf[i].value);
    for (int i = 0; i < c->nparam; i++) {
        Py_CLEAR(c->param[i].owner);
        Py_CLEAR(c->param[i].key);
    }
    for (int i = 0; i < c->nmode; i++) guard_clear(&c->mode[i]);
    return 0;
}

static void caller_dealloc(PyObject *self)
{
    struct py_caller *c = (struct py_caller *)self;
    PyTypeObject *type = Py_TYPE(self);
    freefunc f = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(self);
    caller_clear(self);
    PyMem_Free(c->leaf);
    PyMem_Free(c->param);
    PyMem_Free(c->mode);
    PyMem_Free(c->gradient);
    varies_free(c);
    f(self);
    Py_DECREF(type);
}

/* -- calling. These functions return 1 for a match, 0 for a difference, -1 with an exception set. */

int call_is_tensor(const struct py_caller *c, PyObject *object)
{
    PyObject *type = (PyObject *)Py_TYPE(object);
    for (Py_ssize_t i = 0; i < PyTuple_Size(c->types); i++)
        if (PyTuple_GetItem(c->types, i) == type) return 1;
    return 0;
}

static int ask(PyObject *object, PyObject *method)
{
    PyObject *answer = PyObject_CallMethodObjArgs(object, method, NULL);
    if (!answer) return -1;
    int yes = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return yes;
}

/* Does memory differ from the tensor's values, because a conjugation or negation is pending? A conjugated view looks
 * like any other complex tensor. A negated view of one element (an imaginary part) looks like any other real tensor. */
static int is_lazy(PyObject *object, const struct spec *s)
{
    if (s->code == DL_COMPLEX) {
        int conjugated = ask(object, text_is_conj);
        if (conjugated) return conjugated;
    } else {
        for (int i = 0; i < s->ndim; i++)
            if (s->shape[i] != 1) return 0;
    }
    return ask(object, text_is_neg);
}

static bool same_shape(const struct spec *s, const struct dl_tensor *t)
{
    bool empty = false, strided = true;
    for (int i = 0; i < s->ndim; i++) {
        if (t->shape[i] != s->shape[i]) return false;
        empty |= s->shape[i] == 0;
        strided &= s->shape[i] == 1 || !t->strides || t->strides[i] == s->strides[i];
    }
    return strided || empty;
}

static bool same_sizes(const struct spec *s, const struct dl_tensor *t, const int64_t *dims)
{
    if (!s->varies) return same_shape(s, t);
    struct spec now = {.ndim = s->ndim};
    for (int i = 0; i < s->ndim; i++) {
        now.shape[i] = sol_size_at(s->shape[i], dims);
        now.strides[i] = sol_size_at(s->strides[i], dims);
    }
    return same_shape(&now, t);
}

void *call_place(const struct py_caller *c, const struct dl_tensor *t)
{
    if (!t->data) return (void *)(uintptr_t)c; /* without elements, any address will do */
    return (void *)((uintptr_t)t->data + t->byte_offset + c->place);
}

int call_stream(const struct py_caller *c, void **out_stream)
{
    *out_stream = NULL;
    if (!c->stream) return 0;
    PyObject *number = PyLong_FromLong(c->device_id);
    PyObject *stream = number ? PyObject_CallFunctionObjArgs(c->stream, number, NULL) : NULL;
    if (stream) *out_stream = PyLong_AsVoidPtr(stream);
    Py_XDECREF(number);
    Py_XDECREF(stream);
    return PyErr_Occurred() ? -1 : 0;
}

sol_status call_enter(const struct py_caller *c, void *stream)
{
    return c->heap ? sol_heap_enter(c->heap, stream) : SOL_OK;
}

void call_leave(const struct py_caller *c)
{
    if (c->heap) sol_heap_leave(c->heap);
}

int call_match(const struct py_caller *c, PyObject *object, const struct spec *s, const int64_t *dims,
               const void **out_data)
{
    struct dl_tensor t;
    if (!call_is_tensor(c, object)) return 0;
    int lazy = is_lazy(object, s);
    if (lazy) return lazy < 0 ? -1 : 0;
    if (c->api->view(object, &t)) { /* after everything that lets other threads run */
        PyErr_Clear();              /* sparse tensors and the like: Python handles them */
        return 0;
    }
    if (t.device_type != c->device_type || t.device_id != c->device_id) return 0;
    if (t.ndim != s->ndim || t.code != s->code || t.bits != s->bits || t.lanes != 1) return 0;
    if (!same_sizes(s, &t, dims)) return 0;
    *out_data = call_place(c, &t);
    return 1;
}

static int match_leaves(struct py_caller *c, struct call *call)
{
    const void *data;
    if (PyTuple_Size(call->leaves) != c->nleaf) return 0;
    int found = c->ndim ? varies_find(c, call) : 1;
    if (found != 1) return found;
    for (int i = 0; i < c->nleaf; i++) {
        const struct leaf *l = &c->leaf[i];
        PyObject *object = PyTuple_GetItem(call->leaves, i);
        int same =
            l->kind == LEAF_VALUE ? guard_same(object, l->value) : call_match(c, object, &l->spec, call->dims, &data);
        if (same != 1) return same;
        if (l->kind == LEAF_TENSOR && l->input >= 0) call->inputs[l->input] = data;
    }
    return 1;
}

static int match_modes(const struct py_caller *c)
{
    for (int i = 0; i < c->nmode; i++) {
        int same = guard_match(&c->mode[i]);
        if (same != 1) return same;
    }
    return 1;
}

static int match_wants(const struct py_caller *c, const struct param *p, PyObject *object)
{
    if (p->wants < 0) return 1;
    if (!call_is_tensor(c, object)) return 0;
    PyObject *wants = PyObject_GetAttr(object, text_requires_grad);
    if (!wants) return -1;
    Py_DECREF(wants); /* True or False, which are immortal */
    return p->wants == (wants == Py_True);
}

static int match_param(const struct py_caller *c, int i, PyObject *leaves, struct seen *out)
{
    const struct param *p = &c->param[i];
    PyObject *object = p->owner ? PyDict_GetItemWithError(p->owner, p->key) : PyTuple_GetItem(leaves, p->leaf);
    if (!object) return PyErr_Occurred() ? -1 : 0;
    Py_INCREF(object); /* reading it may let another thread run, which replaces it */
    int same = match_wants(c, p, object);
    if (same == 1) same = params_see(c, i, object, out);
    Py_DECREF(object);
    return same;
}

int call_match_all(struct py_caller *c, struct call *call)
{
    int same = match_leaves(c, call);
    if (same == 1) same = match_modes(c);
    for (int i = 0; same == 1 && i < c->nparam; i++) same = match_param(c, i, call->leaves, &call->now[i]);
    return same;
}

struct sol_call call_at(const struct py_caller *c, const struct call *call, int threads)
{
    return (struct sol_call){
        .dims = c->ndim ? call->dims : NULL, .inputs = call->inputs, .outputs = call->outputs, .threads = threads};
}

PyObject *call_make_outputs(struct py_caller *c, int first, int n, const int64_t *dims, void **outputs)
{
    PyObject *made = PyTuple_New(n);
    for (int i = 0; made && i < n; i++) {
        struct dl_tensor t;
        PyObject *row = PyTuple_GetItem(c->results, first + i);
        bool varies = c->ndim && c->result_varies[first + i];
        PyObject *filled = !varies     ? Py_NewRef(PyTuple_GetItem(row, 0))
                           : c->nfound ? varies_room(c, first + i, dims)
                                       : varies_fill(PyTuple_GetItem(row, 0), dims);
        PyObject *out = filled ? PyObject_Call(c->empty, filled, PyTuple_GetItem(row, 1)) : NULL;
        Py_XDECREF(filled);
        if (!out || PyTuple_SetItem(made, i, out) || c->api->view(out, &t)) {
            Py_CLEAR(made);
            break;
        }
        outputs[i] = call_place(c, &t);
    }
    return made;
}

static PyObject *run_with(struct py_caller *c, struct param_set *set, int threads, const struct call *call)
{
    void *stream;
    if (call_stream(c, &stream)) return NULL;
    PyObject *made = call_make_outputs(c, 0, c->noutput, call->dims, call->outputs);
    if (!made) return NULL;
    struct sol_call at = call_at(c, call, threads);
    int64_t found[MOST_VARY];
    sol_status status;
    at.out_dims = found;
    Py_BEGIN_ALLOW_THREADS;
    status = call_enter(c, stream);
    if (!status) {
        status = sol_net_run_at(c->net->net, params_of(set), &at);
        call_leave(c);
    }
    Py_END_ALLOW_THREADS;
    if (!status && !c->nfound) return made;
    PyObject *result = status ? NULL : varies_found(c, made, found);
    Py_DECREF(made);
    return status ? core_raise(status) : result;
}

static PyObject *run(struct py_caller *c, int threads, struct call *call)
{
    PyObject *result = NULL;
    call->now = params_room(c);
    int same = call->now ? call_match_all(c, call) : -1;
    struct param_set *set = same == 1 ? params_enter(c, call->now) : NULL;
    if (set) {
        result = run_with(c, set, threads, call);
        params_leave(c, set);
    }
    params_room_free(c, call->now);
    if (!same) Py_RETURN_NONE;
    return result;
}

static PyObject *caller_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    struct py_caller *c = (struct py_caller *)self;
    if (nargs != 2 || !PyTuple_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "call(leaves, threads): expected a tuple and a number");
        return NULL;
    }
    long threads = PyLong_AsLong(args[1]);
    if (threads == -1 && PyErr_Occurred()) return NULL;
    const void *few[16] = {0};
    int room = c->ninput + c->noutput;
    const void **places = room <= 16 ? few : PyMem_Calloc((size_t)room, sizeof *places);
    if (!places) return PyErr_NoMemory();
    struct call call;
    call.leaves = args[0], call.inputs = places, call.outputs = (void **)(places + c->ninput);
    PyObject *result = run(c, (int)threads, &call);
    if (places != few) PyMem_Free(places);
    return result;
}

static PyObject *caller_accepts(PyObject *self, PyObject *leaves)
{
    struct py_caller *c = (struct py_caller *)self;
    if (!PyTuple_Check(leaves)) {
        PyErr_SetString(PyExc_TypeError, "accepts(leaves): expected a tuple");
        return NULL;
    }
    const void **inputs = PyMem_Calloc((size_t)c->ninput + 1, sizeof *inputs);
    if (!inputs) return PyErr_NoMemory();
    struct call call;
    call.leaves = leaves, call.inputs = inputs, call.now = params_room(c);
    int same = call.now ? call_match_all(c, &call) : -1;
    params_room_free(c, call.now);
    PyMem_Free(inputs);
    return same < 0 ? NULL : PyBool_FromLong(same);
}

static PyObject *caller_refresh(PyObject *self, PyObject *ids)
{
    if (params_forget((struct py_caller *)self, ids == Py_None ? NULL : ids)) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef caller_methods[] = {
    {"call", (PyCFunction)(void (*)(void))caller_call, METH_FASTCALL,
     "call(leaves, threads) -> tuple of outputs | None: something is not as this caller expects it"},
    {"accepts", caller_accepts, METH_O, "accepts(leaves) -> bool: everything is as this caller expects it"},
    {"forward", call_forward, METH_VARARGS,
     "forward(leaves, threads) -> (tuple of outputs, Saved) | None: the first half of a network with a gradient"},
    {"backward", call_backward, METH_VARARGS,
     "backward(saved, inputs, outputs, gradients, threads) -> tuple of gradients; None for what backward does not "
     "read"},
    {"refresh", caller_refresh, METH_O,
     "refresh(ids): the next call takes parameters with these ids, or with None every one, as changed"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot caller_slots[] = {
    {Py_tp_new, caller_new},
    {Py_tp_dealloc, caller_dealloc},
    {Py_tp_methods, caller_methods},
    {Py_tp_traverse, caller_traverse},
    {Py_tp_clear, caller_clear},
    {Py_tp_doc, "Calls of a network on tensors."},
    {0, NULL},
};
static PyType_Spec caller_spec = {"sol._core.Caller", sizeof(struct py_caller), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, caller_slots};

int core_add_caller(PyObject *module)
{
    core.caller = (PyTypeObject *)PyType_FromSpec(&caller_spec);
    text_is_neg = PyUnicode_InternFromString("is_neg");
    text_is_conj = PyUnicode_InternFromString("is_conj");
    text_requires_grad = PyUnicode_InternFromString("requires_grad");
    if (!core.caller || !text_is_neg || !text_is_conj || !text_requires_grad || params_init()) return -1;
    return PyModule_AddType(module, core.caller);
}
