/* What _call.c, _params.c and _train.c share: a caller's expectations, and comparing with them. Functions that compare
 * return 1 for a match, 0 for a difference, -1 with an exception set. */
#ifndef SOL_PYTHON_CALL_H
#define SOL_PYTHON_CALL_H

#include "_core.h"
#include "_dlpack.h"

enum leaf_kind { LEAF_TENSOR, LEAF_VALUE };
struct spec { /* what a tensor must look like */
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
    PyObject *owner, *key; /* a dict and a key in it; NULL: the parameter is leaf number `leaf` */
    Py_ssize_t leaf;
    bool versioned;
    int wants; /* the required requires_grad; -1: either */
    struct spec spec;
};
struct seen { /* a tensor that a call uses as a parameter */
    PyObject *tensor;
    long long version;
    const void *data;
    uint64_t sample;
};
struct param_set;
/* a condition on the module tree: dict[key] is value, dict[key] is value[other], or the dict has `size` items */
struct mode {
    PyObject *dict, *key, *value, *other;
    Py_ssize_t size;
};
struct py_caller {
    PyObject ob_base;
    struct py_net *net;
    const struct dl_exchange_api *api;
    PyObject *types;   /* tuple: the exact types of accepted tensors */
    PyObject *empty;   /* creates an output: empty(*args, **kwargs) */
    PyObject *results; /* tuple of (args, kwargs) */
    int nleaf, nparam, nmode, ninput, noutput;
    struct leaf *leaf;
    struct param *param;
    struct mode *mode;
    /* for a network with a gradient: inputs and outputs of forward, which come first */
    int nforward_in, nforward_out;
    struct spec *gradient; /* of the other inputs, which are gradients of outputs */
    struct param_set *sets;
    long long epochs; /* how often parameters of any set changed */
};

/* Does the object match? *out_data: the address of its data. */
int call_match(const struct py_caller *c, PyObject *object, const struct spec *s, const void **out_data);
/* Do leaves, modes and parameters match? */
int call_match_all(const struct py_caller *c, PyObject *leaves, const void **inputs, struct seen *now);
/* Creates tensors for `n` outputs, from `first` on, and gives the addresses of their data. */
PyObject *call_make_outputs(struct py_caller *c, int first, int n, void **outputs);
int call_read_spec(PyObject *row, struct spec *s); /* (code, bits, shape, strides); returns 0 or -1 */

/* _params.c. Allocates room for the parameters of a call. It keeps them alive. */
int params_init(void);
struct seen *params_room(const struct py_caller *c);
void params_room_free(const struct py_caller *c, struct seen *now);
/* Takes a tensor for parameter i if it matches. */
int params_see(const struct py_caller *c, int i, PyObject *object, struct seen *out);
/* Before a run: finds the set with these parameters and passes the changed ones to the network. NULL: an exception. */
struct param_set *params_enter(struct py_caller *c, const struct seen *now);
void params_leave(struct py_caller *c, struct param_set *set);
/* The set of this epoch, if its parameters are unchanged since. NULL without an exception: there is none any more. */
struct param_set *params_enter_again(struct py_caller *c, long long epoch);
struct sol_params *params_of(const struct param_set *set);
long long params_epoch(const struct param_set *set);
/* Makes the next call pass on the parameters whose id() is in a Python set; NULL: all of them. Frees memory that
 * parameters do not use any more. -1: an exception is set. */
int params_forget(struct py_caller *c, PyObject *ids);
int params_visit(struct py_caller *c, visitproc visit, void *arg);
void params_free(struct py_caller *c);

/* _train.c: methods of the caller, and its constructor's argument `split`. */
PyObject *call_forward(PyObject *self, PyObject *args);
PyObject *call_backward(PyObject *self, PyObject *args);
int call_read_split(struct py_caller *c, PyObject *split);

/* _guard.c */
int guard_read(PyObject *row, struct mode *m); /* 0 or -1 */
void guard_clear(struct mode *m);
int guard_match(const struct mode *m);
int guard_same(PyObject *a, PyObject *b); /* the same object, or an equal plain value */

#endif
