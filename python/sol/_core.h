/* What the files of the extension `sol._core` share. The extension is thin: it exposes sol.h and makes no decisions. It
 * uses only the limited API of Python 3.11, so one binary works with every later version. */
#ifndef SOL_PYTHON_CORE_H
#define SOL_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API /* the build system also defines it */
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>
#include <stdbool.h>

#include "sol/sol.h"

#define MAX_DIMS 12
#define MOST_VARY 32 /* dimensions of a network */

struct core { /* the process's only context; created on import, never freed */
    struct sol_ctx *ctx;
    PyObject *log, *progress, *step;       /* callables or NULL */
    PyObject *error[SOL_ERR_INTERNAL + 1]; /* exception class by status; [0]: the base class */
    PyTypeObject *graph, *tensor, *layer, *net, *caller, *onnx;
};
extern struct core core;

/* _core.c: sets the exception for a status, with SOL's message, and returns NULL. */
PyObject *core_raise(sol_status status);
/* A dtype by its name ("f32"); -1 with an exception set. */
int core_dtype(const char *name);
const char *core_dtype_name(enum sol_dtype t);
int core_dtype_bytes(enum sol_dtype t);
/* Reads a sequence of sizes. Returns their number, or -1 with an exception set. */
int core_shape(PyObject *sequence, int64_t shape[MAX_DIMS]);
/* The same for the dimensions of a network that vary. */
int core_dims(PyObject *sequence, int64_t dims[MOST_VARY]);
PyObject *core_tuple(int n, const int64_t *values);

/* _graph.c, _net.c, _call.c, _train.c, _onnx.c, _deploy.c, _size.c, _native.c, _jax.c, _tf.c: each adds its types and
 * functions to the module. -1 with an exception set. */
int core_add_graph(PyObject *module);
int core_add_net(PyObject *module);
int core_add_caller(PyObject *module);
int core_add_saved(PyObject *module);
int core_add_onnx(PyObject *module);
int core_add_deploy(PyObject *module);
int core_add_sizes(PyObject *module);
int core_add_native(PyObject *module);
int core_add_jax(PyObject *module);
int core_add_tf(PyObject *module);
int core_add_extend(PyObject *module);
PyObject *core_heap_counts(struct sol_heap *h);                /* _native.c: a dict */
struct sol_graph *core_graph(PyObject *graph);                 /* of a Graph */
PyObject *core_graph_of(struct sol_graph *g, PyObject *owner); /* a Graph that keeps the owner of g */
struct sol_tensor *core_graph_param(struct sol_graph *g, int i);
struct sol_onnx *core_onnx(PyObject *onnx); /* of an Onnx */
struct py_graph {
    PyObject ob_base;
    struct sol_graph *g; /* NULL: it was borrowed, and that pass has ended */
    PyObject *owner;     /* of the graph; NULL: this object, if it is not borrowed */
    bool borrowed;
};
struct py_tensor {
    PyObject ob_base;
    struct py_graph *graph; /* keeps the graph alive */
    struct sol_tensor *t;
};
PyObject *core_borrowed_graph(struct sol_graph *g); /* for a pass, which sets `g` to NULL at its end */
bool core_graph_lives(const struct py_graph *g);    /* false with an exception set */
PyObject *core_tensor(struct py_graph *g, struct sol_tensor *t);
struct sol_tensor *core_tensor_of(PyObject *graph, PyObject *tensor); /* NULL with an exception set */
/* Adds a layer in front of another one (NULL: at the end); args as Graph.layer. */
struct sol_layer;
PyObject *core_graph_layer(PyObject *graph, struct sol_layer *before, PyObject *args);

/* _net.c */
struct py_net {
    PyObject ob_base;
    struct sol_net *net;
    struct sol_params *params; /* for set_param and run; NULL: not created yet */
    PyObject *keep;            /* owns data that the network reads; may be NULL */
    PyObject *given;           /* dict: the memory of parameters that set_param was given; may be NULL */
};
/* Takes ownership of the network, and of the parameters unless they are NULL, even if it fails. */
PyObject *core_net(struct sol_net *net, struct sol_params *params, PyObject *keep);
/* _train.c: a Saved, which takes ownership even if it fails, and what it has; NULL with an exception set. */
PyObject *core_saved(struct sol_saved *saved, int ndim, const int64_t *dims);
struct sol_saved *core_saved_of(PyObject *saved, int64_t dims[MOST_VARY]);

#endif
