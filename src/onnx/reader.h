/* The inside of the ONNX reader.
 *
 * api.c loads models and returns what they have, bytes.c makes messages of bytes, tensor.c makes data of tensor
 * messages, model.c walks through graphs and functions and keeps the names, table.c holds the rows: for each operator
 * the function that builds SOL's layers from a node. Those functions stand in op_*.c and are written with the helpers
 * of node.c, which remember the first failure in the node, so that a row reads like the formula in the operator's
 * documentation. */
#ifndef SOL_ONNX_READER_H
#define SOL_ONNX_READER_H

#include "base/size.h"
#include "onnx/onnx.pb-c.h"
#include "sol/onnx.h"

#define ONNX_OLDEST 6
#define ONNX_NEWEST 28
#define ONNX_DEPTH 48 /* most levels of messages, branches and functions inside each other */

/* bytes.c */
struct encoded {      /* a message as bytes */
    const char *what; /* the file's name, for messages */
    const void *data;
    size_t bytes;
    struct arena *spent; /* in which the data lies, if nobody needs it afterwards (it is lost); NULL: it stays */
};
/* The message lives until message_free. */
sol_status message_read(struct sol_ctx *ctx, const struct encoded *from, const ProtobufCMessageDescriptor *kind,
                        ProtobufCMessage **out_m);
void message_free(struct sol_ctx *ctx, ProtobufCMessage *m);

/* tensor.c: the data of a tensor message, checked: as many bytes as the shape says. */
struct data {
    enum sol_dtype dtype;
    int ndim;
    int64_t shape[SOL_MAX_DIMS], elements;
    const void *at; /* row-major, aligned; in the message or the arena */
};
/* `folder` NULL: data in other files is rejected. */
sol_status data_read(struct sol_ctx *ctx, struct arena *a, const Onnx__Tensor *m, const char *folder,
                     struct data *out_d);
/* The type of a number in a file; UNSUPPORTED with its name, or INVALID. `what` says of what, for the message. */
sol_status dtype_read(struct sol_ctx *ctx, int64_t number, const char *what, enum sol_dtype *out_t);
const char *dtype_name(enum sol_dtype t); /* ONNX's name */
int64_t data_int(const struct data *d, int64_t i);
double data_real(const struct data *d, int64_t i);

/* model.c */
struct operator_count {
    const char *name;
    int64_t n;
};
struct open_dim {
    const char *name, *why, *limited;
    int64_t size;
};
/* vary.c: what has been found out about an open dimension that may vary, while the model is read again and again. */
struct free_dim {
    const char *name, *why; /* why: the first cause of `same` or `fixed` */
    const char *limited;    /* the last cause of a multiple or a largest size */
    struct size_dim dim;
    bool given;    /* dim.hint is an array's size, an element of one, or from the options */
    bool value;    /* an element of an input */
    int64_t fixed; /* its size; -1: it varies */
    int same;      /* number of the dimension that it equals; -1: none */
    int64_t size;  /* in the graph of reading number `reading` */
    int reading;
};
struct free_dims {
    VECTOR(struct free_dim) dims;
    int reading; /* the number of the present one, from 1 */
};
/* An input of a call that the graph does not have: its value is part of the graph. */
struct taken {
    struct sol_onnx_value value;
    const int64_t *sizes; /* its elements in the graph: numbers, and sizes that vary; NULL: the value */
    int place;            /* among the arrays of a call */
};
struct sol_onnx {
    struct sol_ctx *ctx;
    struct arena *arena;
    struct sol_graph *graph;
    ProtobufCMessage *file;      /* holds the data of most weights */
    VECTOR(const void *) params; /* their data */
    VECTOR(struct sol_io) inputs, outputs, weights;
    VECTOR(struct operator_count *) operators;
    VECTOR(struct open_dim) open;
    VECTOR(int) places; /* of `inputs`, among the arrays of a call */
    VECTOR(struct taken) taken;
    const char *about;
};
struct value {
    struct sol_tensor *t;    /* NULL: data that nobody has read yet, or rejected */
    const struct data *data; /* of an initializer or constant */
    bool initializer;
    const char *name;
    bool rejected; /* made by a node that was rejected, or of one */
    bool list;     /* a sequence, whose elements are known one by one; it has neither t nor data */
    struct value **items;
    int nitems;
};
struct opset { /* in a list that ends with domain NULL */
    const char *domain;
    int64_t version;
};
struct scope {
    struct map *values;
    const struct scope *outer; /* names not found here are looked up there; NULL: the outermost, or a function's body */
    const struct opset *opsets;
    const Onnx__Node *call; /* of a function's body: the node that called it, for references to attributes */
    const struct scope *call_scope;
    const Onnx__Function *function;
    const char *place; /* "" or "in function f: " */
    int depth;
};
/* found.c: a size that a node finds while running. */
struct found_size {
    int64_t node; /* the number of the node among those of a reading */
    int same;     /* the number of the size that it equals; -1: none */
    int reading;  /* in which it was made last, and there: */
    int64_t size;
    const struct sol_tensor *x; /* whose elements that are not zero the node finds; NULL: it finds others */
    const char *name;
};
struct found_sizes {
    VECTOR(struct found_size);
};
/* values.c: inputs of a call that decide about shapes, so that their values have to be known. */
struct wanted_value {
    const char *name;
    int64_t least; /* of an element that varies */
};
struct wanted {
    VECTOR(struct wanted_value) values; /* found out by earlier readings */
};
struct rejected_node {
    int node; /* its number in the model's own graph */
    const char *why;
};
struct reader { /* lives while the model is loaded */
    struct sol_onnx *model;
    struct sol_ctx *ctx;
    struct arena *arena;
    struct sol_graph *graph;
    const struct sol_onnx_options *options;
    const char *folder;
    const Onnx__Model *file;
    struct map *functions; /* by domain, name and overload */
    struct map *cheap;     /* tensors whose value is worth computing while reading */
    struct map *leaves;    /* tensors that no layer makes */
    struct map *names;     /* of parameters: the same name may stand in two bodies */
    struct map *counts;    /* operators by name */
    int64_t nodes;         /* translated so far: functions that call functions may be many more than the file is long */
    VECTOR(struct problem *) problems;
    VECTOR(struct rejected_node) rejected;
    int top;      /* the number of the present node of the model's own graph */
    bool located; /* the error says which node it belongs to */
    struct wanted *wanted;
    VECTOR(const char *) small;  /* inputs whose values a call may tell, by bit */
    struct map *origins;         /* of tensors: which of these they depend on, as bits */
    uint64_t missing;            /* which of these decide about shapes, in this reading */
    uint64_t missing_zero;       /* among them: where 0 is usual */
    struct free_dims *free_dims; /* NULL: no dimension varies */
    struct found_sizes *found;
    int reading; /* the number of the present one, from 1 */
    struct {
        bool set;
        int64_t a, b;
        const char *why;
    } unequal; /* the first sizes that must be equal, among what was rejected */
};
/* vary.c: the size of an open dimension. `hint` < 1: nobody says one. */
sol_status vary_size(struct reader *r, const char *name, int64_t hint, int64_t guess, int64_t *out_size);
struct element {
    const char *name; /* "shape[0]" */
    int64_t value, least;
};
/* The size for an element of an input: a dimension, or its value if that is below `least` or too large. */
sol_status vary_value(struct reader *r, const struct element *e, int64_t *out_size);
bool vary_has_value(const struct reader *r, int64_t size); /* does it depend on an element of an input? */
/* Why a dimension has its size, and what limits it. NULL: nothing is known about it. */
const char *vary_why(const struct reader *r, const char *name, const char **out_limited);
/* A message with the names of dimensions in place of their numbers, which are of this reading alone. */
const char *vary_named(const struct reader *r, const char *message);
/* Makes what follows from the error of a reading. False: nothing does. */
bool vary_resolve(struct reader *r);
struct problem { /* nodes that were rejected for the same reason */
    const char *what, *reason, *first;
    int count;
};
struct sol_io io_of(struct reader *r, const char *name, const struct sol_tensor *t);
extern struct value value_missing; /* an optional input of a function that its caller left out */
/* The tensor behind a value; makes a parameter or a constant of an initializer when it is read first. */
sol_status value_tensor(struct reader *r, struct value *v, struct sol_tensor **out_t);
struct value *scope_find(const struct scope *s, const char *name);       /* NULL: no such name */
void problem_add(struct reader *r, const char *what, const char *first); /* the reason is the last error */
/* Makes r->graph and the description of the model from r->file. */
sol_status model_translate(struct reader *r);
/* inputs.c: the inputs of the model; sizes that it leaves open come from the options. */
sol_status scope_define(struct reader *r, struct scope *s, const char *name, struct value *v);
sol_status scope_add_inputs(struct reader *r, struct scope *s, const Onnx__Graph *g);
struct value *value_of_data(struct reader *r, const char *name, const struct data *d);
/* values.c. What a value depends on that must be known and is not; a further reading takes it from the call if it can.
 * least: the smallest number that is usual, 0 or 1. */
const char *value_origin(struct reader *r, const struct value *v, int least);
/* After a reading that failed: are there more values to take from the call? */
bool values_resolve(struct reader *r);
int value_place(const struct reader *r, const char *input); /* the number of an input among the arrays of a call */
/* The value of an input that is known: from the options, or from the call if shapes depend on it. NULL: it is not. */
const struct sol_onnx_value *value_fixed(const struct reader *r, const char *input);
/* Makes the value of an input part of the graph; d: its type and shape. */
sol_status value_take(struct reader *r, const char *name, struct data *d, struct value *v);
/* Notes an input of few elements: shapes may depend on its value. */
void value_note(struct reader *r, const char *input, const struct sol_tensor *t);
/* Translates nodes in order; what they make is known in the scope afterwards. */
sol_status translate_nodes(struct reader *r, struct scope *s, size_t n, Onnx__Node *const *nodes);
/* Translates a graph inside a node, in a scope inside s, its inputs being `inputs`; out_values gets one for each
 * output. */
sol_status translate_body(struct reader *r, const struct scope *s, const Onnx__Graph *g, struct value *const *inputs,
                          struct value **out_values);

/* table.c */
struct node;
struct op {
    const char *domain, *name;
    int first, last; /* opsets; last 0: the newest */
    int least, most; /* inputs; most -1: any number */
    sol_status (*translate)(struct node *n);
    const char *kind; /* for translate: a layer or function of SOL */
};
/* NULL: none; *out_reason then says why. */
const struct op *op_find(const char *domain, const char *name, int64_t version, const char **out_reason);
const struct op *op_at(int i);
/* op_outside.c: a hook for this operator, or a layer that was registered as "domain::name" (sol/extend.h). NULL: there
 * is neither. */
const struct op *op_outside(struct sol_ctx *ctx, struct arena *a, const char *domain, const char *name);

/* node.c: what rows are written with. A helper that fails records it in n->status and the context, and returns NULL or
 * 0; after that helpers do nothing. All take and return tensors of the graph. */
struct node {
    struct reader *r;
    struct scope *scope;
    const Onnx__Node *message;
    const struct op *op;
    int64_t version;
    const char *label, *where;
    struct value **in; /* NULL: missing */
    int nin, nout;
    struct value *out; /* nout of them */
    bool *seen;        /* attributes that were read */
    sol_status status;
};
typedef struct sol_tensor *tensor;

/* found.c: a size of at most `most` that the network sets. x: the number of its elements that are not zero, which nodes
 * share; NULL: another number. 0 if the node has failed. */
int64_t found_size(struct node *n, const struct sol_tensor *x, int64_t most);
const char *found_name(const struct reader *r,
                       int dim); /* of a dimension of the graph; NULL: the network does not set it */
/* Makes what follows from the error of a reading. False: nothing does. */
bool found_resolve(struct reader *r);

/* Attributes. An attribute that no helper asked for is rejected. */
const Onnx__Attribute *nd_attr(struct node *n, const char *name, int type); /* NULL: not there */
enum { ATTR_F = 1, ATTR_I, ATTR_S, ATTR_T, ATTR_G, ATTR_FLOATS, ATTR_INTS, ATTR_STRINGS };
int64_t attr_int(struct node *n, const char *name, int64_t otherwise);
bool attr_flag(struct node *n, const char *name, bool otherwise); /* 0 or 1, nothing else */
double attr_real(struct node *n, const char *name, double otherwise);
const char *attr_text(struct node *n, const char *name, const char *otherwise);
bool attr_is(struct node *n, const char *name, const char *otherwise, const char *text); /* is this its text? */
int attr_ints(struct node *n, const char *name, int most, int64_t *out);                 /* how many; -1: not there */
int attr_texts(struct node *n, const char *name, int most, const char **out);
void attr_skip(struct node *n, const char *name); /* it changes nothing here */
bool attr_given(const struct node *n, const char *name);

/* Inputs and outputs. */
bool nd_has(const struct node *n, int i);
tensor nd_in(struct node *n, int i); /* NULL: missing */
void nd_give(struct node *n, int i, tensor t);
void nd_give_value(struct node *n, int i, const struct value *v);
bool nd_wants(const struct node *n, int i); /* has output i a name? */

/* Values known while reading. */
bool nd_is_known(struct node *n, int i);
bool known_data(struct node *n, struct value *v, struct data *out); /* v may be NULL */
/* These return how many there are, and fail if they are not known. Sizes may vary; where they are elements of an input,
 * these are `least` at least: 0 or 1. */
int known_sizes(struct node *n, int i, const char *what, int least, int most, int64_t *out);
int known_ints(struct node *n, int i, const char *what, int most, int64_t *out);
int known_reals(struct node *n, int i, const char *what, int most, double *out);
int64_t known_size(struct node *n, int i, const char *what, int64_t otherwise); /* otherwise: the input is missing */
int64_t known_int(struct node *n, int i, const char *what, int64_t otherwise);
double known_real(struct node *n, int i, const char *what, double otherwise);

/* Shapes. An axis is counted from the front in what axis_of returns. */
int nd_rank(tensor t);
int64_t nd_size(tensor t, int dim);
int nd_shape_of(tensor t, int64_t *out); /* returns the rank */
int64_t nd_elements(tensor t);
enum sol_dtype nd_type_of(tensor t);
bool nd_is_float(tensor t);
int nd_axis_of(struct node *n, int64_t axis, int of_rank);
int64_t nd_product(const int64_t *shape, int begin, int end); /* at most INT64_MAX, or a size that varies */
/* A size that must be a number, and two that must be equal (`what` the node says about them). False: they are not. */
bool nd_fixed(struct node *n, int64_t size, const char *what);
bool nd_equal(struct node *n, int64_t a, int64_t b, const char *what);
/* Is a number above `most`? Sizes that vary are checked when they are known. */
static inline bool nd_above(int64_t size, int64_t most)
{
    return size > most && !size_varies(size);
}

/* Layers. `IN(a, b)` and `WITH(INT("axis", 1))` are two arguments, or fields of nd_layer, each. */
tensor nd_make(struct node *n, const char *kind, int nin, tensor const *inputs, int nattr,
               const struct sol_attr *attrs);
struct nd_layer { /* a layer, whose name and place are the node's */
    const char *kind;
    int nin;
    tensor const *inputs;
    int nattr;
    const struct sol_attr *attrs;
};
/* `out` gets the first nout outputs. */
void nd_make_all(struct node *n, const struct nd_layer *l, int nout, tensor *out);
/* Notes what values are known of tensors that layers made of the inputs. */
void nd_made(struct node *n, int nin, tensor const *inputs, int nout, tensor const *out);
#define IN(...)                                     \
    COUNT_OF(((tensor[]){__VA_ARGS__})), (tensor[]) \
    {                                               \
        __VA_ARGS__                                 \
    }
#define WITH(...)                                                     \
    COUNT_OF(((struct sol_attr[]){__VA_ARGS__})), (struct sol_attr[]) \
    {                                                                 \
        __VA_ARGS__                                                   \
    }
#define PLAIN 0, NULL
#define INT(name, v)                                             \
    {                                                            \
        name, SOL_ATTR_INT, -1, (const int64_t[]){v}, NULL, NULL \
    }
#define INTS(name, n, v)                     \
    {                                        \
        name, SOL_ATTR_INT, n, v, NULL, NULL \
    }
#define REAL(name, v)                                            \
    {                                                            \
        name, SOL_ATTR_REAL, -1, NULL, (const double[]){v}, NULL \
    }
#define REALS(name, n, v)                     \
    {                                         \
        name, SOL_ATTR_REAL, n, NULL, v, NULL \
    }
#define TEXT(name, v)                          \
    {                                          \
        name, SOL_ATTR_TEXT, -1, NULL, NULL, v \
    }
tensor nd_fn1(struct node *n, const char *function, tensor x);
tensor nd_fn2(struct node *n, const char *function, tensor x, tensor y);
tensor nd_fn3(struct node *n, const char *function, tensor x, tensor y, tensor z);
tensor nd_number(struct node *n, enum sol_dtype t, double v);                   /* 0-D */
tensor nd_sizes(struct node *n, int ndim, int64_t count, const int64_t *sizes); /* i64, 0-D or 1-D; they may vary */
tensor nd_a_size(struct node *n, enum sol_dtype t, int64_t size);               /* 0-D */
tensor nd_constant(struct node *n, enum sol_dtype t, int ndim, const int64_t *shape, const void *data);
tensor nd_fill(struct node *n, enum sol_dtype t, int ndim, const int64_t *shape, double v);
tensor nd_cast(struct node *n, tensor x, enum sol_dtype t);
/* x, where `size` depends on values of a call, which must then make it the size of the axis. Otherwise x as it is. */
tensor nd_exactly(struct node *n, tensor x, int axis, int64_t size);
tensor nd_reshape(struct node *n, tensor x, int ndim, const int64_t *shape);
tensor nd_permute(struct node *n, tensor x, const int64_t *perm);
tensor nd_swap(struct node *n, tensor x, int a, int b); /* two axes */
tensor nd_move_axis(struct node *n, tensor x, int from, int to);
tensor nd_expand(struct node *n, tensor x, int ndim, const int64_t *shape);
tensor nd_slice(struct node *n, tensor x, int axis, int64_t start, int64_t end); /* axis < 0: from the back */
tensor nd_concat(struct node *n, int axis, int nin, tensor const *inputs);
tensor nd_reduce(struct node *n, const char *kind, tensor x, int naxes, const int64_t *axes, bool keep);
tensor nd_unsqueeze(struct node *n, tensor x, int axis);
tensor nd_squeeze(struct node *n, tensor x, int axis);

/* Rejections: SOL_ERR_UNSUPPORTED goes into the list of problems, SOL_ERR_INVALID ends the reading. */
sol_status nd_reject(struct node *n, const char *format, ...) PRINTF_LIKE(2, 3);
sol_status nd_invalid(struct node *n, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
