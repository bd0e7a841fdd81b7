/* sol._core: layers and passes from outside (sol/extend.h). A pass is a function of Python over sol._core.Pass, which
 * is valid while the pass runs. */
#include "_core.h"

#include <string.h>

#include "sol/extend.h"
#include "sol/onnx.h"

static PyObject *register_layer(PyObject *self, PyObject *args)
{
    struct sol_layer_def d = {.size = sizeof d};
    unsigned long long function;
    (void)self;
    if (!PyArg_ParseTuple(args, "sszzzzzzKp", &d.name, &d.definition, &d.attributes, &d.doc, &d.gradient, &d.source,
                          &d.symbol, &d.objects, &function, &d.replace))
        return NULL;
    const uintptr_t address = (uintptr_t)function;
    memcpy(&d.function, &address, sizeof address);
    sol_status status;
    Py_BEGIN_ALLOW_THREADS; /* a compiler may run */
    status = sol_layer_register(core.ctx, &d);
    Py_END_ALLOW_THREADS;
    if (status) return core_raise(status);
    Py_RETURN_NONE;
}

static PyObject *load_extension(PyObject *self, PyObject *args)
{
    const char *path;
    (void)self;
    if (!PyArg_ParseTuple(args, "s", &path)) return NULL;
    const sol_status status = sol_extension_load(core.ctx, path);
    if (status) return core_raise(status);
    Py_RETURN_NONE;
}

static PyObject *layer_names(PyObject *self, PyObject *unused)
{
    const char *name, *attributes, *doc;
    PyObject *list = PyList_New(0);
    (void)self, (void)unused;
    for (int i = 0; list && (name = sol_layer_at(core.ctx, i, &attributes, &doc)); i++) {
        PyObject *row = Py_BuildValue("(sss)", name, attributes, doc);
        if (!row || PyList_Append(list, row)) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

/* -- what a pass sees: layers of a graph */

struct py_layer {
    PyObject ob_base;
    struct py_graph *graph;
    struct sol_layer *l;
};

static PyObject *layer_of(struct py_graph *g, struct sol_layer *l)
{
    if (!l) Py_RETURN_NONE;
    struct py_layer *p = (struct py_layer *)((allocfunc)PyType_GetSlot(core.layer, Py_tp_alloc))(core.layer, 0);
    if (!p) return NULL;
    Py_INCREF((PyObject *)g);
    p->graph = g;
    p->l = l;
    return (PyObject *)p;
}

static void layer_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF((PyObject *)((struct py_layer *)self)->graph);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* The layer, if its pass has not ended. */
static struct sol_layer *living(PyObject *self)
{
    struct py_layer *p = (struct py_layer *)self;
    return core_graph_lives(p->graph) ? p->l : NULL;
}

static PyObject *layer_kind(PyObject *self, void *unused)
{
    struct sol_layer *l = living(self);
    (void)unused;
    return l ? PyUnicode_FromString(sol_layer_kind(l)) : NULL;
}

static PyObject *layer_name(PyObject *self, void *unused)
{
    struct sol_layer *l = living(self);
    (void)unused;
    return l ? PyUnicode_FromString(sol_layer_name(l)) : NULL;
}

static PyObject *tensors(PyObject *self, int n, struct sol_tensor *(*at)(const struct sol_layer *, int))
{
    struct py_layer *p = (struct py_layer *)self;
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple && i < n; i++) {
        struct sol_tensor *t = at(p->l, i);
        PyObject *item = t ? core_tensor(p->graph, t) : Py_NewRef(Py_None);
        if (!item || PyTuple_SetItem(tuple, i, item)) Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *layer_inputs(PyObject *self, void *unused)
{
    struct sol_layer *l = living(self);
    (void)unused;
    return l ? tensors(self, sol_layer_inputs(l), sol_layer_input) : NULL;
}

static PyObject *layer_outputs(PyObject *self, void *unused)
{
    struct sol_layer *l = living(self);
    (void)unused;
    return l ? tensors(self, sol_layer_outputs(l), sol_layer_output) : NULL;
}

static PyObject *number(const struct sol_attr *a, int i)
{
    return a->kind == SOL_ATTR_INT ? PyLong_FromLongLong(a->ints[i]) : PyFloat_FromDouble(a->reals[i]);
}

static PyObject *value_of(const struct sol_attr *a)
{
    if (a->kind == SOL_ATTR_TEXT) return PyUnicode_FromString(a->text);
    if (a->n < 0) return number(a, 0);
    PyObject *list = PyList_New(a->n);
    for (int i = 0; list && i < a->n; i++) {
        PyObject *item = number(a, i);
        if (!item || PyList_SetItem(list, i, item)) Py_CLEAR(list);
    }
    return list;
}

static PyObject *layer_attributes(PyObject *self, void *unused)
{
    struct sol_layer *l = living(self);
    PyObject *dict = l ? PyDict_New() : NULL;
    struct sol_attr a;
    (void)unused;
    for (int i = 0; dict && sol_layer_attribute(l, i, &a); i++) {
        PyObject *value = value_of(&a);
        if (!value || PyDict_SetItemString(dict, a.name, value)) Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

static PyGetSetDef layer_members[] = {
    {"kind", layer_kind, NULL, "\"Conv\", \"relu\", \"mylib::scale\"", NULL},
    {"name", layer_name, NULL, "the name in the user's model", NULL},
    {"inputs", layer_inputs, NULL, "tensors; None: missing", NULL},
    {"outputs", layer_outputs, NULL, "tensors", NULL},
    {"attributes", layer_attributes, NULL, "a dict, with defaults", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot layer_slots[] = {
    {Py_tp_dealloc, layer_dealloc},
    {Py_tp_getset, layer_members},
    {Py_tp_doc, "A layer of a graph, for passes; valid while the pass runs."},
    {0, NULL},
};
static PyType_Spec layer_spec = {"sol._core.Layer", sizeof(struct py_layer), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, layer_slots};

/* The graph of the first argument. */
static struct py_graph *graph_of(PyObject *item)
{
    if (PyObject_TypeCheck(item, core.graph))
        return core_graph_lives((struct py_graph *)item) ? (struct py_graph *)item : NULL;
    PyErr_Format(core.error[SOL_ERR_INVALID], "expected a graph, got %R", item);
    return NULL;
}

static PyObject *graph_layers(PyObject *self, PyObject *graph)
{
    struct py_graph *g = graph_of(graph);
    PyObject *list = g ? PyList_New(0) : NULL;
    (void)self;
    for (struct sol_layer *l = g ? sol_graph_first(g->g) : NULL; list && l; l = sol_layer_next(l)) {
        PyObject *item = layer_of(g, l);
        if (!item || PyList_Append(list, item)) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *graph_insert(PyObject *self, PyObject *args)
{
    PyObject *graph, *before, *rest;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO!", &graph, &before, &PyTuple_Type, &rest)) return NULL;
    if (!graph_of(graph)) return NULL;
    struct sol_layer *l = PyObject_TypeCheck(before, core.layer) ? living(before) : NULL;
    if (before != Py_None && (!l || (PyObject *)((struct py_layer *)before)->graph != graph))
        return PyErr_Format(core.error[SOL_ERR_INVALID], "insert: before: expected a layer of this graph, got %R",
                            before);
    return core_graph_layer(graph, l, rest);
}

static PyObject *graph_replace(PyObject *self, PyObject *args)
{
    PyObject *graph, *old, *with;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &graph, &old, &with)) return NULL;
    struct py_graph *g = graph_of(graph);
    struct sol_tensor *a = g ? core_tensor_of(graph, old) : NULL, *b = a ? core_tensor_of(graph, with) : NULL;
    if (!b) return NULL;
    const sol_status status = sol_graph_replace(g->g, a, b);
    if (status) return core_raise(status);
    Py_RETURN_NONE;
}

static PyObject *tensor_maker(PyObject *self, PyObject *tensor)
{
    (void)self;
    struct py_tensor *t = (struct py_tensor *)tensor;
    if (!PyObject_TypeCheck(tensor, core.tensor)) return PyErr_Format(PyExc_TypeError, "expected a tensor");
    return core_graph_lives(t->graph) ? layer_of(t->graph, sol_tensor_maker(t->t)) : NULL;
}

static PyObject *tensor_readers(PyObject *self, PyObject *tensor)
{
    (void)self;
    struct py_tensor *t = (struct py_tensor *)tensor;
    if (!PyObject_TypeCheck(tensor, core.tensor)) return PyErr_Format(PyExc_TypeError, "expected a tensor");
    return core_graph_lives(t->graph) ? PyLong_FromLong(sol_tensor_readers(t->t)) : NULL;
}

/* Two tensors of Python are equal if they are the same tensor of the graph. */
static PyObject *same_tensor(PyObject *self, PyObject *args)
{
    PyObject *a, *b;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!", core.tensor, &a, core.tensor, &b)) return NULL;
    return PyBool_FromLong(((struct py_tensor *)a)->t == ((struct py_tensor *)b)->t);
}

/* -- passes */

/* The text of the exception that is set, which becomes the error of the pass. */
static sol_status failed(struct sol_graph *g)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *name = type ? PyType_GetName((PyTypeObject *)type) : NULL;
    PyObject *text = value ? PyObject_Str(value) : NULL;
    PyObject *all = name && text ? PyUnicode_FromFormat("%U: %U", name, text) : NULL;
    const char *utf8 = all ? PyUnicode_AsUTF8AndSize(all, NULL) : NULL;
    const sol_status status = sol_graph_fail(g, utf8 ? utf8 : "a Python function failed");
    Py_XDECREF(name);
    Py_XDECREF(text);
    Py_XDECREF(all);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    PyErr_Clear();
    return status;
}

static sol_status run_pass(void *user, struct sol_graph *g)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *graph = core_borrowed_graph(g);
    PyObject *done = graph ? PyObject_CallFunctionObjArgs(user, graph, NULL) : NULL;
    if (graph) ((struct py_graph *)graph)->g = NULL;
    const sol_status status = done ? SOL_OK : failed(g);
    Py_XDECREF(done);
    Py_XDECREF(graph);
    PyGILState_Release(state);
    return status;
}

static PyObject *register_pass(PyObject *self, PyObject *args)
{
    struct sol_pass_def d = {.size = sizeof d, .run = run_pass};
    PyObject *function;
    (void)self;
    if (!PyArg_ParseTuple(args, "szOp", &d.name, &d.place, &function, &d.replace)) return NULL;
    d.user = function;
    Py_INCREF(function); /* as long as the context, which lives as long as the process */
    const sol_status status = sol_pass_register(core.ctx, &d);
    if (!status) Py_RETURN_NONE;
    Py_DECREF(function);
    return core_raise(status);
}

/* -- operators of ONNX models */

static PyObject *tuple_of(struct py_graph *g, int n, struct sol_tensor *const *t)
{
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple && i < n; i++) {
        PyObject *item = t[i] ? core_tensor(g, t[i]) : Py_NewRef(Py_None);
        if (!item || PyTuple_SetItem(tuple, i, item)) Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *dict_of(int n, const struct sol_attr *attrs)
{
    PyObject *dict = PyDict_New();
    for (int i = 0; dict && i < n; i++) {
        PyObject *value = value_of(&attrs[i]);
        if (!value || PyDict_SetItemString(dict, attrs[i].name, value)) Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

/* What a hook returned: as many tensors of the graph as the node has outputs. 0, or -1 with an exception set. */
static int take(PyObject *graph, PyObject *made, int n, struct sol_tensor **out)
{
    if (!PyTuple_Check(made) || PyTuple_Size(made) != n) {
        PyErr_Format(core.error[SOL_ERR_INVALID], "expected %d tensors as results, got %R", n, made);
        return -1;
    }
    for (int i = 0; i < n; i++)
        if (!(out[i] = core_tensor_of(graph, PyTuple_GetItem(made, i)))) return -1;
    return 0;
}

static sol_status run_hook(void *user, struct sol_graph *g, const struct sol_onnx_node *n, struct sol_tensor **out)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *graph = core_borrowed_graph(g), *made = NULL;
    PyObject *in = graph ? tuple_of((struct py_graph *)graph, n->nin, n->in) : NULL;
    PyObject *attrs = in ? dict_of(n->nattr, n->attrs) : NULL;
    if (attrs)
        made =
            PyObject_CallFunction(user, "O(ssssiO)O", graph, n->domain, n->op, n->name, n->where, n->nout, attrs, in);
    const sol_status status = made && !take(graph, made, n->nout, out) ? SOL_OK : failed(g);
    if (graph) ((struct py_graph *)graph)->g = NULL;
    Py_XDECREF(made);
    Py_XDECREF(attrs);
    Py_XDECREF(in);
    Py_XDECREF(graph);
    PyGILState_Release(state);
    return status;
}

static PyObject *register_onnx(PyObject *self, PyObject *args)
{
    const char *domain, *op;
    PyObject *function;
    (void)self;
    if (!PyArg_ParseTuple(args, "ssO", &domain, &op, &function)) return NULL;
    Py_INCREF(function); /* as long as the context */
    const sol_status status = sol_onnx_register(core.ctx, domain, op, run_hook, function);
    if (!status) Py_RETURN_NONE;
    Py_DECREF(function);
    return core_raise(status);
}

static PyMethodDef functions[] = {
    {"register_layer", register_layer, METH_VARARGS,
     "register_layer(name, definition, attributes, doc, gradient, source, symbol, objects, address, replace)"},
    {"register_pass", register_pass, METH_VARARGS, "register_pass(name, place, function, replace)"},
    {"register_onnx", register_onnx, METH_VARARGS, "register_onnx(domain, operator, function)"},
    {"load_extension", load_extension, METH_VARARGS, "load_extension(path): a plug-in with layers and passes"},
    {"graph_layers", graph_layers, METH_O, "graph_layers(graph) -> [Layer] in their order"},
    {"graph_insert", graph_insert, METH_VARARGS,
     "graph_insert(graph, before, (kind, name, where, inputs, attrs, nout)) -> tuple of Tensor"},
    {"graph_replace", graph_replace, METH_VARARGS, "graph_replace(graph, old, new): all that reads old reads new"},
    {"tensor_maker", tensor_maker, METH_O, "tensor_maker(tensor) -> Layer or None"},
    {"tensor_readers", tensor_readers, METH_O, "tensor_readers(tensor) -> how many layers and outputs read it"},
    {"same_tensor", same_tensor, METH_VARARGS, "same_tensor(a, b) -> bool"},
    {"layer_names", layer_names, METH_NOARGS, "layer_names() -> [(name, attributes, documentation)]"},
    {NULL, NULL, 0, NULL},
};

int core_add_extend(PyObject *module)
{
    core.layer = (PyTypeObject *)PyType_FromSpec(&layer_spec);
    return !core.layer || PyModule_AddType(module, core.layer) || PyModule_AddFunctions(module, functions) ? -1 : 0;
}
