/* sol._core.Graph and Tensor: describe a network layer by layer, print, interpret and compile it. */
#include "_core.h"

#include <string.h>

#include "hlir/graph.h"
#include "sol/extend.h"

static PyObject *make(PyTypeObject *type)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return alloc(type, 0);
}

static void release(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc f = (freefunc)PyType_GetSlot(type, Py_tp_free);
    f(self);
    Py_DECREF(type);
}

PyObject *core_tensor(struct py_graph *g, struct sol_tensor *t)
{
    struct py_tensor *p = (struct py_tensor *)make(core.tensor);
    if (!p) return NULL;
    Py_INCREF((PyObject *)g);
    p->graph = g;
    p->t = t;
    return (PyObject *)p;
}

/* -- Tensor */

static void tensor_dealloc(PyObject *self)
{
    Py_XDECREF((PyObject *)((struct py_tensor *)self)->graph);
    release(self);
}

static PyObject *tensor_dtype(PyObject *self, void *unused)
{
    (void)unused;
    if (!core_graph_lives(((struct py_tensor *)self)->graph)) return NULL;
    return PyUnicode_FromString(core_dtype_name(sol_tensor_dtype(((struct py_tensor *)self)->t)));
}

static PyObject *tensor_shape(PyObject *self, void *unused)
{
    struct sol_tensor *t = ((struct py_tensor *)self)->t;
    int64_t shape[MAX_DIMS];
    (void)unused;
    if (!core_graph_lives(((struct py_tensor *)self)->graph)) return NULL;
    for (int i = 0; i < sol_tensor_ndim(t); i++) shape[i] = sol_tensor_size(t, i);
    return core_tuple(sol_tensor_ndim(t), shape);
}

static PyObject *tensor_known(PyObject *self, PyObject *unused)
{
    struct sol_tensor *t = ((struct py_tensor *)self)->t;
    (void)unused;
    if (!core_graph_lives(((struct py_tensor *)self)->graph)) return NULL;
    const void *data = sol_tensor_known(t);
    if (!data) Py_RETURN_NONE;
    Py_ssize_t bytes = core_dtype_bytes(sol_tensor_dtype(t));
    for (int i = 0; i < sol_tensor_ndim(t); i++) bytes *= (Py_ssize_t)sol_tensor_size(t, i);
    return PyBytes_FromStringAndSize(data, bytes);
}

static PyObject *tensor_repr(PyObject *self)
{
    PyObject *shape = tensor_shape(self, NULL);
    if (!shape) return NULL;
    PyObject *text = PyUnicode_FromFormat("<sol tensor %s %R>",
                                          core_dtype_name(sol_tensor_dtype(((struct py_tensor *)self)->t)), shape);
    Py_DECREF(shape);
    return text;
}

static PyGetSetDef tensor_members[] = {
    {"dtype", tensor_dtype, NULL, "name of the data type, such as \"f32\"", NULL},
    {"shape", tensor_shape, NULL, "sizes, a tuple", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef tensor_methods[] = {
    {"known", tensor_known, METH_NOARGS, "known() -> bytes | None: the value, if it is known before running"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot tensor_slots[] = {
    {Py_tp_dealloc, tensor_dealloc}, {Py_tp_getset, tensor_members},     {Py_tp_methods, tensor_methods},
    {Py_tp_repr, tensor_repr},       {Py_tp_doc, "A value of a graph."}, {0, NULL},
};
static PyType_Spec tensor_spec = {"sol._core.Tensor", sizeof(struct py_tensor), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, tensor_slots};

/* -- Graph: making */

static PyObject *graph_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    const char *name = "network";
    static char *names[] = {"name", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|s", names, &name)) return NULL;
    struct py_graph *self = (struct py_graph *)make(type);
    if (!self) return NULL;
    sol_status status = sol_graph_create(core.ctx, name, &self->g);
    if (!status) return (PyObject *)self;
    Py_DECREF(self);
    return core_raise(status);
}

static void graph_dealloc(PyObject *self)
{
    struct py_graph *p = (struct py_graph *)self;
    if (p->g && !p->owner && !p->borrowed) sol_graph_destroy(p->g);
    Py_XDECREF(p->owner);
    release(self);
}

PyObject *core_graph_of(struct sol_graph *g, PyObject *owner)
{
    struct py_graph *p = (struct py_graph *)make(core.graph);
    if (!p) return NULL;
    p->g = g;
    p->owner = Py_NewRef(owner);
    return (PyObject *)p;
}

struct sol_tensor *core_graph_param(struct sol_graph *g, int i)
{
    return g->params.at[i];
}

static PyObject *named_tensor(PyObject *self, const char *name, struct sol_tensor *t)
{
    PyObject *tensor = core_tensor((struct py_graph *)self, t);
    return tensor ? Py_BuildValue("(sN)", name ? name : "", tensor) : NULL;
}

static PyObject *named_tensors(PyObject *self, int n, struct sol_tensor **t)
{
    PyObject *list = PyTuple_New(n);
    for (int i = 0; list && i < n; i++) {
        PyObject *row = named_tensor(self, t[i]->name, t[i]);
        if (!row || PyTuple_SetItem(list, i, row)) Py_CLEAR(list);
    }
    return list;
}

static PyObject *graph_inputs(PyObject *self, void *unused)
{
    const struct sol_graph *g = ((struct py_graph *)self)->g;
    (void)unused;
    return named_tensors(self, g->inputs.n, g->inputs.at);
}

static PyObject *graph_params(PyObject *self, void *unused)
{
    const struct sol_graph *g = ((struct py_graph *)self)->g;
    (void)unused;
    return named_tensors(self, g->params.n, g->params.at);
}

static PyObject *graph_outputs(PyObject *self, void *unused)
{
    const struct sol_graph *g = ((struct py_graph *)self)->g;
    PyObject *list = PyTuple_New(g->outputs.n);
    (void)unused;
    for (int i = 0; list && i < g->outputs.n; i++) {
        PyObject *row = named_tensor(self, g->outputs.at[i].name, g->outputs.at[i].t);
        if (!row || PyTuple_SetItem(list, i, row)) Py_CLEAR(list);
    }
    return list;
}

static PyObject *graph_dim(PyObject *self, PyObject *args)
{
    const char *name;
    long long hint, min, max, multiple;
    int64_t size;
    if (!PyArg_ParseTuple(args, "sLLLL", &name, &hint, &min, &max, &multiple)) return NULL;
    struct sol_dim_limits limits = {hint, min, max, multiple};
    sol_status status = sol_graph_dim(((struct py_graph *)self)->g, name, &limits, &size);
    return status ? core_raise(status) : PyLong_FromLongLong(size);
}

static PyObject *graph_data_dim(PyObject *self, PyObject *args)
{
    const char *name;
    long long most;
    int64_t size;
    if (!PyArg_ParseTuple(args, "sL", &name, &most)) return NULL;
    const sol_status status = sol_graph_data_dim(((struct py_graph *)self)->g, name, most, &size);
    return status ? core_raise(status) : PyLong_FromLongLong(size);
}

static PyObject *graph_require(PyObject *self, PyObject *args)
{
    const char *what;
    long long size;
    if (!PyArg_ParseTuple(args, "Ls", &size, &what)) return NULL;
    const sol_status status = sol_graph_require(((struct py_graph *)self)->g, size, what);
    if (status) return core_raise(status);
    Py_RETURN_NONE;
}

typedef sol_status (*add_function)(struct sol_graph *, const char *, enum sol_dtype, int, const int64_t *,
                                   struct sol_tensor **);

static PyObject *add_named(PyObject *self, PyObject *args, add_function add)
{
    const char *name, *dtype;
    PyObject *sizes;
    int64_t shape[MAX_DIMS];
    struct sol_tensor *t;
    if (!PyArg_ParseTuple(args, "ssO", &name, &dtype, &sizes)) return NULL;
    int type = core_dtype(dtype), ndim = type < 0 ? -1 : core_shape(sizes, shape);
    if (ndim < 0) return NULL;
    sol_status status = add(((struct py_graph *)self)->g, name, (enum sol_dtype)type, ndim, shape, &t);
    return status ? core_raise(status) : core_tensor((struct py_graph *)self, t);
}

static PyObject *graph_input(PyObject *self, PyObject *args)
{
    return add_named(self, args, sol_graph_input);
}
static PyObject *graph_param(PyObject *self, PyObject *args)
{
    return add_named(self, args, sol_graph_param);
}

static PyObject *graph_const(PyObject *self, PyObject *args)
{
    const char *dtype;
    PyObject *sizes;
    Py_buffer data;
    int64_t shape[MAX_DIMS];
    struct sol_tensor *t;
    if (!core_graph_lives((struct py_graph *)self)) return NULL;
    if (!PyArg_ParseTuple(args, "sOy*", &dtype, &sizes, &data)) return NULL;
    int type = core_dtype(dtype), ndim = type < 0 ? -1 : core_shape(sizes, shape);
    PyObject *result = NULL;
    if (ndim >= 0) {
        Py_ssize_t bytes = core_dtype_bytes((enum sol_dtype)type);
        for (int i = 0; i < ndim; i++) bytes *= (Py_ssize_t)shape[i];
        if (bytes != data.len)
            PyErr_Format(core.error[SOL_ERR_INVALID], "constant: expected %zd bytes of data, got %zd", bytes, data.len);
        else {
            sol_status status =
                sol_graph_const(((struct py_graph *)self)->g, (enum sol_dtype)type, ndim, shape, data.buf, &t);
            result = status ? core_raise(status) : core_tensor((struct py_graph *)self, t);
        }
    }
    PyBuffer_Release(&data);
    return result;
}

struct sol_tensor *core_tensor_of(PyObject *self, PyObject *item)
{
    if (!PyObject_TypeCheck(item, core.tensor) || (PyObject *)((struct py_tensor *)item)->graph != self) {
        PyErr_Format(core.error[SOL_ERR_INVALID], "layer: expected a tensor of this graph, got %R", item);
        return NULL;
    }
    return ((struct py_tensor *)item)->t;
}

static PyObject *graph_name_output(PyObject *self, PyObject *args)
{
    const char *name;
    PyObject *item;
    if (!PyArg_ParseTuple(args, "sO", &name, &item)) return NULL;
    struct sol_tensor *t = core_tensor_of(self, item);
    if (!t) return NULL;
    sol_status status = sol_graph_output(((struct py_graph *)self)->g, name, t);
    if (status) return core_raise(status);
    Py_RETURN_NONE;
}

/* -- Graph: layers. One block holds the attributes until the layer is created. */

struct attr_room {
    struct sol_attr attr[32];
    int64_t ints[256];
    double reals[256];
    int nattr, nint, nreal;
};

static int add_number(struct attr_room *room, PyObject *value, bool real)
{
    if (room->nint == 256 || room->nreal == 256) {
        PyErr_SetString(core.error[SOL_ERR_UNSUPPORTED], "layer: attributes with more than 256 numbers");
        return -1;
    }
    if (real)
        room->reals[room->nreal++] = PyFloat_AsDouble(value);
    else
        room->ints[room->nint++] = PyLong_AsLongLong(value);
    return PyErr_Occurred() ? -1 : 0;
}

static int add_list(struct attr_room *room, struct sol_attr *attr, PyObject *value)
{
    Py_ssize_t n = PySequence_Size(value);
    bool real = false;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(value, i);
        if (!item) return -1;
        real |= PyFloat_Check(item);
        Py_DECREF(item);
    }
    attr->kind = real ? SOL_ATTR_REAL : SOL_ATTR_INT;
    attr->ints = room->ints + room->nint;
    attr->reals = room->reals + room->nreal;
    attr->n = (int)n;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(value, i);
        if (!item) return -1;
        int failed = add_number(room, item, real);
        Py_DECREF(item);
        if (failed) return -1;
    }
    return n < 0 ? -1 : 0;
}

static int add_attr(struct attr_room *room, PyObject *key, PyObject *value)
{
    if (room->nattr == 32) {
        PyErr_SetString(core.error[SOL_ERR_UNSUPPORTED], "layer: more than 32 attributes");
        return -1;
    }
    struct sol_attr *attr = &room->attr[room->nattr++];
    *attr = (struct sol_attr){.name = PyUnicode_AsUTF8AndSize(key, NULL), .n = -1};
    if (!attr->name) return -1;
    if (PyUnicode_Check(value)) {
        attr->kind = SOL_ATTR_TEXT;
        attr->text = PyUnicode_AsUTF8AndSize(value, NULL);
        return attr->text ? 0 : -1;
    }
    if (PyTuple_Check(value) || PyList_Check(value)) return add_list(room, attr, value);
    attr->kind = PyFloat_Check(value) ? SOL_ATTR_REAL : SOL_ATTR_INT;
    attr->ints = room->ints + room->nint;
    attr->reals = room->reals + room->nreal;
    return add_number(room, value, attr->kind == SOL_ATTR_REAL);
}

static PyObject *add_layer(PyObject *self, struct sol_layer *before, const struct sol_new_layer *n, int nout)
{
    struct sol_tensor **out = PyMem_Calloc((size_t)(nout ? nout : 1), sizeof *out);
    if (!out) return PyErr_NoMemory();
    sol_status status = sol_graph_insert(((struct py_graph *)self)->g, before, n, nout, out);
    PyObject *result = status ? core_raise(status) : PyTuple_New(nout);
    for (int i = 0; result && i < nout; i++) {
        PyObject *t = core_tensor((struct py_graph *)self, out[i]);
        if (!t || PyTuple_SetItem(result, i, t)) Py_CLEAR(result);
    }
    PyMem_Free(out);
    return result;
}

PyObject *core_graph_layer(PyObject *self, struct sol_layer *before, PyObject *args)
{
    const char *kind, *name, *where;
    PyObject *inputs, *attrs, *key, *value, *result = NULL;
    int nout = 1;
    if (!core_graph_lives((struct py_graph *)self)) return NULL;
    if (!PyArg_ParseTuple(args, "szzO!O!|i", &kind, &name, &where, &PyTuple_Type, &inputs, &PyDict_Type, &attrs, &nout))
        return NULL;
    struct attr_room *room = PyMem_Malloc(sizeof *room);
    int nin = (int)PyTuple_Size(inputs);
    struct sol_tensor **in = PyMem_Calloc((size_t)nin + 1, sizeof *in);
    if (!room || !in || nout < 0) {
        PyErr_NoMemory();
        goto done;
    }
    room->nattr = room->nint = room->nreal = 0;
    for (Py_ssize_t at = 0; PyDict_Next(attrs, &at, &key, &value);)
        if (add_attr(room, key, value)) goto done;
    for (int i = 0; i < nin; i++) {
        PyObject *item = PyTuple_GetItem(inputs, i);
        if (item != Py_None && !(in[i] = core_tensor_of(self, item))) goto done;
    }
    result =
        add_layer(self, before, &(struct sol_new_layer){kind, nin, in, room->nattr, room->attr, name, where}, nout);
done:
    PyMem_Free(room);
    PyMem_Free(in);
    return result;
}

static PyObject *layer_method(PyObject *self, PyObject *args)
{
    return core_graph_layer(self, NULL, args);
}

/* -- Graph: gradients */

struct wanted { /* (of, with) from Python */
    int *of, nof, nwith;
    struct sol_tensor **with;
};

static int read_wanted(PyObject *self, PyObject *args, struct wanted *w)
{
    PyObject *of, *with;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &of, &PyTuple_Type, &with)) return -1;
    w->nof = (int)PyTuple_Size(of);
    w->nwith = (int)PyTuple_Size(with);
    w->of = PyMem_Calloc((size_t)w->nof + 1, sizeof *w->of);
    w->with = PyMem_Calloc((size_t)w->nwith + 1, sizeof *w->with);
    if (!w->of || !w->with) return PyErr_NoMemory(), -1;
    for (int i = 0; i < w->nof; i++) w->of[i] = (int)PyLong_AsLong(PyTuple_GetItem(of, i));
    for (int i = 0; i < w->nwith; i++)
        if (!(w->with[i] = core_tensor_of(self, PyTuple_GetItem(with, i)))) return -1;
    return PyErr_Occurred() ? -1 : 0;
}

static void free_wanted(struct wanted *w)
{
    PyMem_Free(w->of);
    PyMem_Free(w->with);
}

static PyObject *graph_differentiate(PyObject *self, PyObject *args)
{
    struct wanted w = {0};
    PyObject *result = NULL;
    if (read_wanted(self, args, &w)) goto done;
    int *reached = PyMem_Calloc((size_t)w.nwith + 1, sizeof *reached);
    if (!reached) {
        PyErr_NoMemory();
        goto done;
    }
    sol_status status = sol_graph_differentiate(((struct py_graph *)self)->g, w.nof, w.of, w.nwith, w.with, reached);
    result = status ? core_raise(status) : PyTuple_New(w.nwith);
    for (int i = 0; result && i < w.nwith; i++)
        if (PyTuple_SetItem(result, i, PyBool_FromLong(reached[i]))) Py_CLEAR(result);
    PyMem_Free(reached);
done:
    free_wanted(&w);
    return result;
}

static PyObject *graph_influences(PyObject *self, PyObject *args)
{
    struct wanted w = {0};
    PyObject *result = NULL;
    if (!read_wanted(self, args, &w)) {
        Py_ssize_t n = (Py_ssize_t)w.nof * w.nwith;
        result = PyBytes_FromStringAndSize(NULL, n);
        sol_status status = result ? sol_graph_influences(((struct py_graph *)self)->g, w.nof, w.of, w.nwith, w.with,
                                                          (unsigned char *)PyBytes_AsString(result))
                                   : SOL_OK;
        if (status) {
            Py_CLEAR(result);
            core_raise(status);
        }
    }
    free_wanted(&w);
    return result;
}

/* -- Graph: using */

static PyObject *graph_text(PyObject *self)
{
    char *text;
    if (!core_graph_lives((struct py_graph *)self)) return NULL;
    sol_status status = sol_graph_print(((struct py_graph *)self)->g, &text);
    if (status) return core_raise(status);
    PyObject *result = PyUnicode_FromString(text);
    sol_free(core.ctx, text);
    return result;
}

static PyObject *graph_resident(PyObject *self, PyObject *device)
{
    const char *name = PyUnicode_AsUTF8AndSize(device, NULL);
    if (!name) return NULL;
    const sol_status status = sol_graph_resident(((struct py_graph *)self)->g, name);
    if (status) return core_raise(status);
    Py_RETURN_NONE;
}

static PyObject *graph_compile(PyObject *self, PyObject *unused)
{
    struct sol_net *net;
    sol_status status;
    struct sol_graph *g = ((struct py_graph *)self)->g;
    (void)unused;
    Py_BEGIN_ALLOW_THREADS;
    status = sol_compile(core.ctx, g, &net);
    Py_END_ALLOW_THREADS;
    return status ? core_raise(status) : core_net(net, NULL, NULL);
}

/* Opens the buffers of a tuple. Returns their number; -1 with an exception set if one fails (all are closed then). */
static int open_buffers(PyObject *tuple, Py_buffer *b, void **data, int expected, int flags)
{
    int n = 0;
    if (PyTuple_Size(tuple) != expected)
        PyErr_Format(core.error[SOL_ERR_INVALID], "interpret: expected %d buffers, got %zd", expected,
                     PyTuple_Size(tuple));
    else
        for (; n < expected; n++) {
            if (PyObject_GetBuffer(PyTuple_GetItem(tuple, n), &b[n], flags)) break;
            data[n] = b[n].buf;
        }
    if (!PyErr_Occurred()) return n;
    while (n > 0) PyBuffer_Release(&b[--n]);
    return -1;
}

static PyObject *graph_interpret_py(PyObject *self, PyObject *args)
{
    struct sol_graph *g = ((struct py_graph *)self)->g;
    PyObject *tuple[3];
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyTuple_Type, &tuple[0], &PyTuple_Type, &tuple[1], &PyTuple_Type, &tuple[2]))
        return NULL;
    int count[3] = {g->inputs.n, g->params.n, g->outputs.n}, first[3] = {0, count[0], count[0] + count[1]}, opened = 0;
    size_t all = (size_t)(first[2] + count[2]) + 1;
    Py_buffer *b = PyMem_Calloc(all, sizeof *b);
    void **data = PyMem_Calloc(all, sizeof *data);
    sol_status status = SOL_OK;
    if (!b || !data) PyErr_NoMemory();
    for (int i = 0; i < 3 && !PyErr_Occurred(); i++) {
        int flags = PyBUF_C_CONTIGUOUS | (i == 2 ? PyBUF_WRITABLE : 0);
        int n = open_buffers(tuple[i], b + first[i], data + first[i], count[i], flags);
        opened += n > 0 ? n : 0;
    }
    if (!PyErr_Occurred())
        status = graph_interpret(g, (const void *const *)data, (const void *const *)data + first[1], data + first[2]);
    for (int i = 0; i < opened; i++) PyBuffer_Release(&b[i]);
    PyMem_Free(b);
    PyMem_Free(data);
    if (status || PyErr_Occurred()) return core_raise(status);
    Py_RETURN_NONE;
}

static PyObject *graph_at_py(PyObject *self, PyObject *sizes)
{
    int64_t dims[MOST_VARY] = {0};
    struct sol_graph *g = ((struct py_graph *)self)->g;
    int n = core_dims(sizes, dims);
    if (n < 0) return NULL;
    if (n != g->dims.n) return PyErr_Format(core.error[SOL_ERR_INVALID], "at: expected %d sizes, got %d", g->dims.n, n);
    struct py_graph *p = (struct py_graph *)make(core.graph);
    if (!p) return NULL;
    sol_status status = graph_at(g, dims, &p->g);
    if (!status) return (PyObject *)p;
    Py_DECREF(p);
    return core_raise(status);
}

static PyObject *parse(PyObject *self, PyObject *args)
{
    const char *text;
    (void)self;
    if (!PyArg_ParseTuple(args, "s", &text)) return NULL;
    struct py_graph *p = (struct py_graph *)make(core.graph);
    if (!p) return NULL;
    sol_status status = sol_graph_parse(core.ctx, text, &p->g);
    if (!status) return (PyObject *)p;
    Py_DECREF(p);
    return core_raise(status);
}

static PyMethodDef graph_methods[] = {
    {"dim", graph_dim, METH_VARARGS,
     "dim(name, hint, min, max, multiple) -> size: a dimension that varies; max 0: no limit"},
    {"data_dim", graph_data_dim, METH_VARARGS, "data_dim(name, most) -> size that a layer sets while the network runs"},
    {"require", graph_require, METH_VARARGS, "require(size, what): sizes of a call must not make it negative"},
    {"at", graph_at_py, METH_O, "at(sizes) -> Graph: the same with numbers in place of its dimensions"},
    {"input", graph_input, METH_VARARGS, "input(name, dtype, shape) -> Tensor"},
    {"param", graph_param, METH_VARARGS, "param(name, dtype, shape) -> Tensor"},
    {"const", graph_const, METH_VARARGS, "const(dtype, shape, data) -> Tensor: data row-major, copied"},
    {"output", graph_name_output, METH_VARARGS, "output(name, tensor)"},
    {"layer", layer_method, METH_VARARGS, "layer(kind, name, where, inputs, attrs, nout=1) -> tuple of Tensor"},
    {"differentiate", graph_differentiate, METH_VARARGS,
     "differentiate(of, with) -> tuple of bool: of outputs (numbers), with regard to tensors; which of them were "
     "reached"},
    {"influences", graph_influences, METH_VARARGS,
     "influences(of, with) -> bytes: for each output a row of 0 and 1: which tensors have an influence on it"},
    {"interpret", graph_interpret_py, METH_VARARGS,
     "interpret(inputs, params, outputs): the oracle, slow; tuples of row-major buffers"},
    {"resident", graph_resident, METH_O, "resident(device): the network takes and gives tensors that lie on a device"},
    {"compile", graph_compile, METH_NOARGS, "compile() -> Net"},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef graph_members[] = {
    {"inputs", graph_inputs, NULL, "((name, Tensor), ..)", NULL},
    {"params", graph_params, NULL, "((name, Tensor), ..)", NULL},
    {"outputs", graph_outputs, NULL, "((name, Tensor), ..)", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot graph_slots[] = {
    {Py_tp_new, graph_new},
    {Py_tp_dealloc, graph_dealloc},
    {Py_tp_methods, graph_methods},
    {Py_tp_getset, graph_members},
    {Py_tp_str, graph_text},
    {Py_tp_doc, "A network, described layer by layer; str() is its text form."},
    {0, NULL},
};
static PyType_Spec graph_spec = {"sol._core.Graph", sizeof(struct py_graph), 0, Py_TPFLAGS_DEFAULT, graph_slots};
PyObject *core_borrowed_graph(struct sol_graph *g)
{
    struct py_graph *p = (struct py_graph *)make(core.graph);
    if (!p) return NULL;
    p->g = g;
    p->borrowed = true;
    return (PyObject *)p;
}

bool core_graph_lives(const struct py_graph *g)
{
    if (g->g) return true;
    PyErr_SetString(core.error[SOL_ERR_INVALID], "this graph belongs to a pass that has ended");
    return false;
}

struct sol_graph *core_graph(PyObject *graph)
{
    return ((struct py_graph *)graph)->g;
}

static PyMethodDef parse_function = {"parse", parse, METH_VARARGS, "parse(text) -> Graph: the text form"};

int core_add_graph(PyObject *module)
{
    core.tensor = (PyTypeObject *)PyType_FromSpec(&tensor_spec);
    core.graph = (PyTypeObject *)PyType_FromSpec(&graph_spec);
    PyObject *f = PyCFunction_New(&parse_function, NULL);
    if (!core.tensor || !core.graph || !f || PyModule_AddObjectRef(module, "parse", f)) return -1;
    Py_DECREF(f);
    return PyModule_AddType(module, core.graph) || PyModule_AddType(module, core.tensor) ? -1 : 0;
}
