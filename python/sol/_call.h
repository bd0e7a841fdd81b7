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
    bool varies; /* some of the numbers vary: sol_size_at gives their values for the sizes of a call */
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
    PyObject *types;            /* tuple: the exact types of accepted tensors */
    PyObject *empty;            /* creates an output: empty(*args, **kwargs) */
    PyObject *results;          /* tuple of (args, kwargs) */
    int device_type, device_id; /* DLPack's: where all tensors lie */
    /* Tensors of a framework's own memory on a device, and a stream in which it is used; NULL: other tensors */
    struct sol_heap *heap;
    uint64_t place;   /* of address 0 there */
    PyObject *stream; /* a function of the device's number: the framework's current stream, as a number */
    int nleaf, nparam, nmode, ninput, noutput;
    struct leaf *leaf;
    struct param *param;
    struct mode *mode;
    /* for a network with a gradient: inputs and outputs of forward, which come first */
    int nforward_in, nforward_out;
    struct spec *gradient; /* of the other inputs, which are gradients of outputs */
    /* for a network with sizes that vary: where each is read, and what checks them */
    int ndim, nfound; /* nfound: the last of them, which the network sets */
    struct where {
        int leaf, dim;
    } * where;
    PyObject *check, *checked; /* a function, and the set of sizes for which it said yes */
    bool *result_varies;
    struct param_set *sets;
    long long epochs; /* how often parameters of any set changed */
};

struct call { /* what a call passes to the network */
    PyObject *leaves;
    int64_t dims[MOST_VARY];
    const void **inputs;
    void **outputs;
    struct seen *now;
};
int call_is_tensor(const struct py_caller *c, PyObject *object);
/* Does the object match? dims: the sizes that vary. *out_data: the address of its data. */
int call_match(const struct py_caller *c, PyObject *object, const struct spec *s, const int64_t *dims,
               const void **out_data);
/* Do leaves, modes and parameters match? Finds the sizes of the call. */
int call_match_all(struct py_caller *c, struct call *call);
/* Creates tensors for `n` outputs, from `first` on, and gives the addresses of their data. */
PyObject *call_make_outputs(struct py_caller *c, int first, int n, const int64_t *dims, void **outputs);
struct sol_call call_at(const struct py_caller *c, const struct call *call, int threads);
/* Where the network finds what lies at an address of a tensor. */
void *call_place(const struct py_caller *c, const struct dl_tensor *t);
/* The framework's current stream; 0 or -1. */
int call_stream(const struct py_caller *c, void **out_stream);
/* Around commands of the network, without the GIL: they are in that stream. */
sol_status call_enter(const struct py_caller *c, void *stream);
void call_leave(const struct py_caller *c);
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

/* _varies.c: sizes that vary. */
int varies_read(struct py_caller *c, PyObject *sizes);   /* the constructor's argument `sizes`; 0 or -1 */
int varies_find(struct py_caller *c, struct call *call); /* the sizes of a call, if the network takes them */
/* After a run that has set sizes: gives outputs these sizes, and appends them to the tuple. A new reference, or NULL.
 */
PyObject *varies_found(struct py_caller *c, PyObject *made, const int64_t *dims);
PyObject *varies_room(const struct py_caller *c, int output,
                      const int64_t *dims); /* of a row for the most elements of an output */
PyObject *varies_fill(PyObject *args,
                      const int64_t *dims); /* the arguments of `empty` with numbers in place of forms */
void varies_free(struct py_caller *c);

/* _guard.c */
int guard_read(PyObject *row, struct mode *m); /* 0 or -1 */
void guard_clear(struct mode *m);
int guard_match(const struct mode *m);
int guard_same(PyObject *a, PyObject *b); /* the same object, or an equal plain value */

#endif
