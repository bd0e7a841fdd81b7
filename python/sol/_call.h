/* What _call.c and _train.c share: the expectations of a caller, and comparing with them. The functions return 1: as
 * expected, 0: not so, -1: an exception is set. */
#ifndef SOL_PYTHON_CALL_H
#define SOL_PYTHON_CALL_H

#include "_core.h"
#include "_dlpack.h"

enum leaf_kind { LEAF_TENSOR, LEAF_VALUE };
struct spec { /* what a tensor must be */
    int ndim;
    uint8_t code, bits;
    int64_t shape[MAX_DIMS], strides[MAX_DIMS];
};
struct leaf {
    enum leaf_kind kind;
    int input; /* number of the network's input, -1: the network does not read it */
    struct spec spec;
    PyObject *value; /* VALUE */
};
struct param {
    PyObject *owner, *key; /* a dict and where in it; NULL: leaf number `leaf` */
    Py_ssize_t leaf;
    bool versioned;
    int wants; /* what its requires_grad must be; -1: either */
    struct spec spec;
    bool known; /* the following is what the network has */
    PyObject *tensor;
    long long version;
    const void *data;
    uint64_t sample;
};
struct mode { /* what must be so in the module tree: dict[key] is value, or value[other], or the dict has `size` items
               */
    PyObject *dict, *key, *value, *other;
    Py_ssize_t size;
};
struct py_caller {
    PyObject ob_base;
    struct py_net *net;
    const struct dl_exchange_api *api;
    PyObject *types;   /* tuple: exact types of tensors that are taken */
    PyObject *empty;   /* makes an output: empty(*args, **kwargs) */
    PyObject *results; /* tuple of (args, kwargs) */
    int nleaf, nparam, nmode, ninput, noutput;
    struct leaf *leaf;
    struct param *param;
    struct mode *mode;
    /* of a network with a gradient: inputs and outputs of the forward half, which come first */
    int nforward_in, nforward_out;
    struct spec *gradient; /* of the other inputs: gradients of outputs */
    int nread;             /* parameters that backward reads: their numbers */
    int *read;
    long long changes;  /* how often a parameter was handed over */
    int running;        /* calls in flight */
    PyObject *replaced; /* list: parameters that those may still read */
};

/* Is it a tensor that looks like this? Then where its data is. */
int call_match(const struct py_caller *c, PyObject *object, const struct spec *s, const void **out_data);
/* Leaves, modes and parameters are as expected; parameters that changed were handed to the network. */
int call_match_all(struct py_caller *c, PyObject *leaves, const void **inputs);
/* The network computes with this tensor as parameter i from now on. */
int call_hand_over(struct py_caller *c, int i, PyObject *object);
/* New tensors for the outputs from `first` on, `n` of them, and where their data is. */
PyObject *call_make_outputs(struct py_caller *c, int first, int n, void **outputs);
/* Around each run: parameters that are replaced meanwhile stay alive. */
void call_begin(struct py_caller *c);
void call_end(struct py_caller *c);
int call_read_spec(PyObject *row, struct spec *s); /* (code, bits, shape, strides); 0 or -1 */

/* _train.c: methods of the caller, and what the argument `split` of its constructor says. */
PyObject *call_forward(PyObject *self, PyObject *args);
PyObject *call_backward(PyObject *self, PyObject *args);
int call_read_split(struct py_caller *c, PyObject *split);

/* _guard.c */
int guard_read(PyObject *row, struct mode *m); /* 0 or -1 */
void guard_clear(struct mode *m);
int guard_match(const struct mode *m);
int guard_same(PyObject *a, PyObject *b); /* the same object, or an equal plain value */

#endif
