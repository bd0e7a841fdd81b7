/* The high-level graph: layers and tensors in topological order, all in the graph's arena. */
#ifndef SOL_GRAPH_H
#define SOL_GRAPH_H

#include "hlir/loops.h"
#include "sol/extend.h"

enum tensor_role { TENSOR_VALUE, TENSOR_INPUT, TENSOR_PARAM, TENSOR_CONST };

struct sol_dim {
    char purpose; /* 'N' none, 'C' channel, 'P' pixel, 0: unknown so far */
    int64_t size;
};
struct sol_tensor {
    struct sol_graph *graph;
    int id;
    const char *name;
    uint8_t role, dtype, ndim;
    struct sol_dim dim[SOL_MAX_DIMS];
    struct sol_layer *from; /* VALUE: the layer that computes it, number of its output */
    int from_out;
    int index;                          /* INPUT, PARAM: its number */
    const void *data;                   /* CONST: the values, row-major */
    const void *known;                  /* VALUE: computed by sol_tensor_known; NULL: not requested, or unknown */
    VECTOR(struct sol_layer *) readers; /* maintained by graph.c: all layers that read it, and some that no longer do */
    bool output;                        /* it is a graph output, or was one */
    bool backward;                      /* INPUT: a gradient that only the backward program receives */
    void *user;                         /* for the pass that is running; meaningless in between */
};

/* -- kinds of layers: rows of layers.def, and element-wise rows of math.def */
struct reference; /* layers/reference.h */
struct sol_layer;
enum layer_flags {
    LAYER_ELEMENTWISE = 1, /* a row of math.def */
    LAYER_VIEW = 2,        /* every output element is a copy of an input element, or a constant */
    LAYER_OPAQUE = 4,      /* no loops: computed by reference_*.c from what `describe` returns */
    LAYER_VARIADIC = 8,    /* any number of inputs */
    /* Its attribute `size` is the number of elements that it finds in its data. The first layer of a graph with a
     * dimension of sol_graph_data_dim there sets that dimension; others check it. OPAQUE only. */
    LAYER_SETS = 16
};

struct layer_def {
    const char *name;
    unsigned flags;
    const char *text;     /* the operator definition; NULL: `build` writes it */
    const char *defaults; /* "s=1 p=0 d=1": optional attributes with their defaults; lists as [1,1] */
    const char *doc;
    /* Writes the operator definition of one instance from shapes and attributes (Permute, Concat, Einsum, ...). */
    sol_status (*build)(struct arena *a, const struct layer_def *def, int nin, const struct opdef_input *in,
                        const struct attrs *attrs, struct text *out_row);
    /* OPAQUE: gives the shapes and types of the outputs, and the arguments of a kind of reference.h, in the arena.
     * `attrs` belongs to the layer; `loops` gets the sizes that must not be negative (loops_need). */
    sol_status (*shape)(struct arena *a, const struct layer_def *def, int nin, const struct opdef_input *in,
                        const struct attrs *attrs, struct loops *loops, int *out_nout, struct opdef_input *out);
    void (*describe)(struct arena *a, const struct sol_layer *l, struct reference *out);
    int math;                /* MAP: row of math.def, otherwise -1 */
    const struct opdef *row; /* `text`, parsed; NULL: there is none */
    /* Registered layers only (sol/extend.h): */
    const char *gradient;                  /* the layer that computes its gradient; NULL: it is derived */
    const struct layer_function *function; /* OPAQUE: what computes it */
};
/* A C function from outside. It lives as long as the context. */
struct layer_function {
    sol_layer_function *run;
    const char *source, *symbol; /* C text that defines it, and its name there; NULL: there is only the function */
    const char *objects; /* absolute paths of what defines it, one a line; `source` then declares it. NULL: none */
};
struct layer_bound {
    const struct loops *loops; /* OPAQUE: tensors only, no statements */
    const struct opdef *row;   /* the parsed definition; NULL for OPAQUE */
};
/* What a graph needs to know about kinds. The caller passes this table when it creates the graph. */
struct layer_kinds {
    const struct layer_def *(*find)(struct sol_ctx *ctx, const char *name); /* NULL: there is no such kind */
    /* A kind of layer that a text defines: registers it, or compares it with what is registered. A function must be. */
    sol_status (*define)(struct sol_ctx *ctx, const struct sol_layer_def *def, bool function);
    /* The attributes of a layer: the given ones, checked and converted, and defaults for the others. */
    sol_status (*attrs)(struct arena *a, const struct layer_def *def, const struct attrs *given, struct attrs *out);
    sol_status (*bind)(struct arena *a, const struct layer_def *def, int nin, const struct opdef_input *in,
                       const struct attrs *attrs, struct layer_bound *out);
    /* Runs an OPAQUE layer on row-major data. */
    sol_status (*run)(struct sol_ctx *ctx, const struct sol_layer *l, int64_t *dims, const void *const *in,
                      void *const *out); /* dims: NULL, or by number; it sets its own */
    /* May the text form omit this attribute because it has its default value? */
    bool (*is_default)(struct arena *a, const struct layer_def *def, const struct opdef_attr *v);
};

struct sol_layer {
    int id;
    const struct layer_def *def;
    const char *name, *where; /* for people; "" instead of NULL */
    struct attrs attrs;
    int nin, nout;
    struct sol_tensor **in; /* NULL: a missing input */
    struct sol_tensor **out;
    const struct loops *loops; /* bound */
    struct sol_layer *prev, *next;
    void *user;
};
struct graph_output {
    const char *name;
    struct sol_tensor *t;
    bool backward; /* a gradient that only the backward program writes */
};
/* A dimension that varies. */
struct graph_dim {
    const char *name; /* "batch" */
    struct size_dim dim;
    int64_t size; /* its form */
    int64_t most; /* a layer sets it while running, to at most this; -1: the caller of the network tells it */
};
/* What must hold for a call's dimensions: `size` is not negative. It is not proven. */
struct graph_check {
    int64_t size;
    const char *what; /* "layer 'conv1' (Conv)" */
};
struct sol_graph {
    struct sol_ctx *ctx;
    struct arena *arena;
    struct arena *scratch; /* what a function makes on its way: between arena_mark and arena_rewind */
    const struct layer_kinds *kinds;
    const char *name;
    const char *resident;           /* the device whose tensors the network takes and gives; NULL: those of the host */
    struct sol_layer *first, *last; /* in topological order */
    VECTOR(struct sol_tensor *) tensors, inputs, params;
    VECTOR(struct graph_output) outputs;
    VECTOR(struct graph_dim) dims; /* by number */
    VECTOR(struct graph_check) checks;
    int nlayers, ntensors; /* ids given so far */
    int removed;           /* how many of `tensors` belong to removed layers (`from` is NULL) */
};

/* api.c, parse.c: sol_graph_create and sol_graph_parse with a table of layer kinds */
sol_status graph_create(struct sol_ctx *ctx, const struct layer_kinds *kinds, const char *name,
                        struct sol_graph **out_g);
sol_status graph_parse(struct sol_ctx *ctx, const struct layer_kinds *kinds, const char *text,
                       struct sol_graph **out_g);
/* graph.c. Every change keeps the list in topological order. A NULL `before` appends. */
struct sol_tensor *graph_tensor(struct sol_graph *g, enum tensor_role role, const char *name, enum sol_dtype t,
                                int ndim, const int64_t *shape);
struct new_layer {
    const char *kind;
    int nin;
    struct sol_tensor *const *in;
    const struct attrs *attrs; /* NULL: none */
    const char *name, *where;  /* NULL: "" */
};
/* Creates a layer, binds it and creates its outputs. Expand layers broadcast the inputs of element-wise layers. */
sol_status graph_add(struct sol_graph *g, struct sol_layer *before, const struct new_layer *n,
                     struct sol_layer **out_layer);
/* Adds a layer of kind Row with these loops; n->kind and n->attrs are ignored. The tensors of the loops begin with the
 * inputs and outputs in order. An output takes its purposes from `like` (NULL: none). */
sol_status graph_add_loops(struct sol_graph *g, struct sol_layer *before, const struct new_layer *n,
                           const struct loops *loops, const struct sol_tensor *const *like,
                           struct sol_layer **out_layer);
/* Adds a layer that does what `l` does, for other inputs of the same shapes and types. */
sol_status graph_add_again(struct sol_graph *g, struct sol_layer *before, const struct sol_layer *l, const char *name,
                           struct sol_tensor *const *in, struct sol_layer **out_layer);
/* The layer's outputs must have no readers. They may stay in g->tensors for a while. */
void graph_remove(struct sol_graph *g, struct sol_layer *l);
void graph_output(struct sol_graph *g, const char *name, struct sol_tensor *t);
/* Every reader of `old` (layers and graph outputs) reads `with` instead, which has the same type and shape. The time
 * depends only on the number of readers of `old`. */
void graph_replace(struct sol_graph *g, struct sol_tensor *old, struct sol_tensor *with);
/* The number of reads of t by layers and graph outputs. graph_count_uses computes it for all tensors at once
 * (t->user). */
void graph_count_uses(struct sol_graph *g);
static inline intptr_t tensor_uses(const struct sol_tensor *t)
{
    return (intptr_t)t->user;
}
int64_t tensor_elements(const struct sol_tensor *t); /* sizes: they may vary */
int64_t tensor_bytes(const struct sol_tensor *t);
/* uniform.c: a constant without dimensions, of type f32, f64 or i64 */
sol_status graph_number(struct sol_graph *g, double v, enum sol_dtype t, struct sol_tensor **out_t);
/* Is t a constant whose elements are all the same number (not NaN)? */
bool tensor_uniform(const struct sol_tensor *t, double *out_v);
/* programs.c. A graph with a gradient holds three programs. `prepare` computes what depends on parameters and constants
 * alone, `forward` what else the outputs need that are not `backward`, `backward` the rest. A program reads what the
 * ones before it wrote. */
enum program { PROGRAM_PREPARE, PROGRAM_FORWARD, PROGRAM_BACKWARD, PROGRAMS };
/* By layer id: its program. SOL_ERR_INVALID: forward would need an input that only backward receives. */
sol_status graph_programs(struct sol_graph *g, uint8_t *by_layer_id);
const char *program_name(enum program program); /* "forward" */
bool graph_is_joint(const struct sol_graph *g); /* does it have a backward program? */
/* Checks structure, types, order and names. SOL_ERR_INTERNAL says what is wrong. Debug builds call it after each
 * pass. */
sol_status graph_verify(struct sol_graph *g);
/* copy.c. Names, data and loops are shared, so destroy the copy first. */
sol_status graph_copy(const struct sol_graph *g, struct sol_graph **out_g);
/* The same network with numbers (or other forms) in place of its dimensions: layers are bound again. Checks that `dim`
 * is within the limits, and what must hold for it. */
sol_status graph_at(const struct sol_graph *g, const int64_t *dim, struct sol_graph **out_g);
/* dims.c: attributes with numbers in place of dimensions. */
struct attrs attrs_at(struct arena *a, const struct attrs *from, const int64_t *dim);
/* A size with the names of the dimensions: "2*height+1". */
const char *graph_size_text(struct arena *a, const struct sol_graph *g, int64_t size);
/* Are these sizes possible? SOL_ERR_INVALID names the dimension, or the layer that does not fit. */
sol_status graph_check_dims(const struct sol_graph *g, const int64_t *dim);
/* Dimensions that layers set: the number of the one that `l` sets (-1: none), all as bits, and by number the most of
 * each (-1: the caller tells it). */
int layer_sets(const struct sol_layer *l);
uint32_t graph_data_dims(const struct sol_graph *g);
/* Errors: INVALID (a size depends on such a dimension, and no layer sets it). */
sol_status graph_check_set(const struct sol_graph *g);
void graph_data_most(const struct sol_graph *g, int64_t *out_most);
/* Adds what the loops of a layer need to the checks. */
sol_status graph_need(struct sol_graph *g, const struct sol_layer *l, const struct loops *loops);
/* Flops and bytes of loops (a size; SIZE_BAD: unknown), or of a layer or a graph for the hints of dimensions, as
 * written; for tests of passes, reports, and the choice of what backward recomputes. */
int64_t loops_flops(const struct loops *loops);
static inline double work_hint(int64_t size) /* 0: unknown */
{
    return size == SIZE_BAD ? 0 : (double)size_hint(size);
}
void layer_work(const struct sol_layer *l, double *out_flops, double *out_bytes);
void graph_work(const struct sol_graph *g, double *out_flops, double *out_bytes);

/* evaluate.c: the reference for whole graphs. Data are row-major, in the order of g->inputs, g->params, g->outputs. It
 * is slow. */
sol_status graph_interpret(struct sol_graph *g, const void *const *inputs, const void *const *params,
                           void *const *outputs);
/* The same for a graph with dimensions that vary: its loops with these sizes in place of the dimensions. Outputs have
 * room for the most elements of dimensions that layers set. */
struct graph_data {
    const void *const *inputs, *const *params;
    void *const *outputs;
    int64_t *dims; /* NULL, or room for the sizes of all dimensions, with those that layers set */
};
sol_status graph_interpret_at(struct sol_graph *g, const int64_t *dim, const struct graph_data *data);
/* Evaluates one layer. in[i] is NULL for a missing input. `sizes`: integers may be sizes that vary. */
sol_status layer_interpret(struct sol_ctx *ctx, const struct sol_layer *l, const void *const *in, void *const *out,
                           bool sizes);

/* text.c, parse.c: the text form (docs/text-form.md): sol_graph_print, sol_graph_parse. */
void graph_print(const struct sol_graph *g, struct text *out);

/* api.c: the other sol_graph functions. graph_layer: sol_graph_layer in front of a layer (NULL: at the end). */
sol_status graph_layer(struct sol_graph *g, struct sol_layer *before, const struct sol_new_layer *n, int nout,
                       struct sol_tensor **out);

#endif
