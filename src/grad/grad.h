/* Gradients: the backward half of a graph, derived from the loops of the forward half.
 *
 *   grad.c            the graph: which layers carry a gradient; sums over several readers
 *   adjoint.c         one layer: each read of a tensor contributes a *term*
 *   gather.c          turns the terms of a tensor into layers
 *   scan.c            a recurrence: a scan in the opposite direction
 *   solve.c           a term requires f(index variables) == Q; replaces them until that is an index or a guard
 *   window.c          inverts integer functions that are not affine, if the inverse is a short range
 *   pieces.c          cuts them into ranges where they are
 *   ranges.c          inverts quotients of sizes that vary
 *   guarded.c         pins that conditions of the layer decide
 *   invert.c          inverts all others, as tables
 *   scatter.c         reads whose position is data
 *   write.c           turns terms into layers of kind Row
 *   checkpoint.c      what forward saves, and what backward recomputes instead
 *   exact.c           what it saves because its values decide something
 *   origins.c             which values can be equal by construction
 *   rematerialize.c   recomputation
 *   rules.c           layers whose gradient is not derived from their loops
 *   linear.c          those of linear algebra
 *   registered.c      layers from outside whose gradient is another layer
 *
 * For `y[O] = sum[R | g] a[f(O,R)] * b[h(O,R)]` the gradient of a is the gather `da[Q] = sum[O R | g and f(O,R)==Q]
 * dy[O] * b[h(O,R)]`. Every element has one writer, for any layer, so there are no atomics, and any number of threads
 * gives the same bits. The result is an operator definition, and goes through passes and plan like any other. */
#ifndef SOL_GRAD_H
#define SOL_GRAD_H

#include "hlir/graph.h"
#include "layers/layers.h"

/* -- one layer at a time; private to the folder from here on */

/* f == q: an index of the tensor whose gradient this is. q is an index variable's node, or a number if the size is
 * 1. */
struct pin {
    int32_t f, q; /* q 0: the index of this dimension, created later */
    int64_t size;
    bool whole; /* not residue by residue: index variables are too few */
};
struct bound { /* 0 <= e < size */
    int32_t e;
    int64_t size;
};
#define GRAD_MAX_PINS (3 * SOL_MAX_DIMS) /* a pin may become several */
/* d tensor[index] += the sum of value over the index variables `ctx`, where bounds and guards hold. All nodes are in
 * `w`. */
struct term {
    int tensor;
    uint64_t ctx;
    int npin, nbound, nguard;
    struct pin pin[GRAD_MAX_PINS];
    struct bound bound[24];
    int32_t guard[24];
    int32_t value;
    int32_t index[SOL_MAX_DIMS]; /* the written index, by dimension; 0: unknown so far */
    int64_t
        rest[SOL_MAX_DIMS]; /* the index does not write elements from here on, which are 0; the size: it writes all */
};
struct formula { /* a table by the elements that read it: tensor[index variable] = value */
    int tensor, ivar;
    int32_t value;
};
struct adjoint {
    struct sol_graph *g;
    struct sol_layer *layer;
    struct loops
        *w; /* the layer's index variables and tensors by their numbers (tensors[i].user: the graph's), and more */
    int *d; /* by tensor of the layer: tensor of w that is its gradient, -1: none */
    bool *active;  /* by tensor of the layer: does a gradient go through it? */
    bool *exposed; /* by tensor of the layer: a temporary that a gradient reads */
    VECTOR(struct term) terms;
    VECTOR(struct formula) formulas;
    sol_status rejected; /* set by grad_reject: the walk over expressions continues, and the layer fails at the end */
};

/* "gradient of layer 'fc' (Linear) at model.py:3: .." */
sol_status grad_reject(struct adjoint *a, const char *what);

/* adjoint.c: d[o] is the gradient of output o, or NULL. out_d[i] is that of input i; NULL if there is none, or if
 * want[i] is false. */
sol_status adjoint_layer(struct sol_graph *g, struct sol_layer *l, struct sol_tensor *const *d, const bool *want,
                         struct sol_tensor **out_d);
/* The terms of one statement: one for each of its reads, if a gradient of its result has a `user`. */
void adjoint_statement(struct adjoint *a, const struct loops_stmt *s);
enum { GRAD_MAX_PIECES = 256, GRAD_MAX_RUNS = 27, GRAD_BORDER = 64 }; /* of a term */
/* A `user` for a dry run that only asks whether there will be one: any pointer. */
#define GRAD_SOMEBODY(a) ((struct sol_tensor *)(a))
/* Can a layer of this kind have a gradient? If not, *out_why names what is missing. */
bool adjoint_known(const struct sol_layer *l, const char **out_why);

/* gather.c: the gradient of a tensor of w: the sum of what was given so far (NULL: nothing) and of all its terms. */
sol_status gather_terms(struct adjoint *a, int tensor, struct sol_tensor *given, struct sol_tensor **out_d);
/* Does a solved term, including its sum, have an index of distinct index variables that covers the whole tensor? */
bool term_is_map(const struct adjoint *a, const struct term *t);

/* scan.c: the terms of statements first .. last, which are one scan. Terms of tensors that the scan itself writes
 * become a layer. */
sol_status adjoint_scan(struct adjoint *a, int first, int last);

/* solve.c: terms whose sum equals this one, each with a complete index and without pins. */
sol_status solve_term(struct adjoint *a, const struct term *t, struct term *out, int room, int *out_n);

/* The index that writes dimension d of the gradient. It is created if necessary. */
int32_t term_pinned(struct adjoint *a, struct term *t, int d);
/* A size that varies in what dimension d requires: that of the dimension, or of an index variable; 0: there is none. */
int64_t term_varies(const struct adjoint *a, const struct term *t, int d);
/* requires 0 <= e < size; otherwise the term is 0 */
void term_bound(struct adjoint *a, struct term *t, int32_t e, int64_t size);
/* Replaces an index variable by a node of w and removes it from the context. */
void term_replace(struct adjoint *a, struct term *t, int ivar, int32_t node);
/* The sum of the term, as one node. */
int32_t term_sum(struct adjoint *a, const struct term *t);

/* scatter.c: is a position in the term data, and searching for it too expensive? Then this creates its layers. */
bool term_scatters(const struct adjoint *a, const struct term *t);
sol_status write_scattered(struct adjoint *a, const struct term *t, struct sol_tensor **out_d);

/* window.c: for pins that no rule of solve.c fits, replaces the index variables by short ranges with weights. Parts of
 * the sum may become layers. */
sol_status window_term(struct adjoint *a, struct term *t);
/* Is what dimension d requires not affine, made of data known when the graph is compiled, and of no other dimension's
 * index variables? */
bool term_is_odd(const struct adjoint *a, const struct term *t, int d);

/* pieces.c: the term as a sum of terms t[0 .. *out_n-1], at most `room`, each of which reads one range of the results
 * in steps of 1, -1 or 0. False: the term has another form. */
bool pieces_term(struct adjoint *a, struct term *t, int room, int *out_n);

/* ranges.c */
struct sum { /* of multiples of index variables, of digits such as H%2, and of a number */
    int n;
    int32_t atom[8];
    int64_t coef[8], c;
};
bool grad_sum(const struct loops *w, int32_t node, int64_t k, struct sum *s); /* adds k * node */
struct quotient { /* (a*P + b)//c + something between low and high, without index variable P; a, c > 0 */
    int P;
    int64_t a, b, c, low, high;
};
bool grad_quotient(const struct loops *w, int32_t node, struct quotient *out);
/* The least P for which the quotient can be (any), or always is, at least v. */
int64_t grad_quotient_from(const struct quotient *f, int64_t v, bool any);
/* Both find the index variables that an f with a size that varies leaves for each Q: a range of P, which a condition
 * has to choose from; K. False: f has another form. */
bool range_pin(struct adjoint *a, struct term *t, int d);
bool beside_pin(struct adjoint *a, struct term *t, int d);

/* guarded.c: replaces the pin by simpler ones where conditions of the term allow that. */
bool guarded_pin(struct adjoint *a, struct term *t, int d);

/* invert.c: evaluates an expression without data for all values of n index variables, row-major: int64_t, or double for
 * real values */
sol_status grad_tabulate(struct adjoint *a, int32_t f, int n, const int *ivar, void *values);
/* Tabulates the inverse of f, a function of index variables of ctx, as constants of the graph, and replaces the
 * variables by reads of the tables. False: f cannot be inverted so. */
bool invert_pin(struct adjoint *a, struct term *t, int pin, int32_t q);

/* write.c */
struct product {
    int n;
    int32_t factor[32];
    bool under[32]; /* it is a divisor */
};
void grad_factors(struct loops *w, int32_t node, struct product *p);
int32_t grad_times(struct loops *w, int32_t x, int32_t factor, bool under); /* x 0: 1 */
/* A layer for solved terms of one tensor, which write disjoint parts of it. */
sol_status write_terms(struct adjoint *a, const struct term *t, int n, struct sol_tensor **out_d);
/* The same, with bounds for the reads. */
int32_t term_written(struct adjoint *a, struct term *t);
/* A layer with one statement for each tensor in `line`. Afterwards `user` of the outputs is the graph's tensor. */
struct grad_line {
    int tensor; /* of w: a gradient, which the other lines may read */
    int32_t index[SOL_MAX_DIMS], value;
    bool output;
};
sol_status write_lines(struct adjoint *a, const struct grad_line *line, int n);
/* Replaces the layer by one whose outputs include the temporaries that a gradient reads; `user` of w's tensors then has
 * them. */
sol_status write_exposed(struct adjoint *a);

/* The statement that writes tensor t of the graph, as a layer ahead of `before`; user[i] replaces tensor i of its
 * layer's loops. */
sol_status write_remat(struct sol_graph *g, struct sol_layer *before, struct sol_tensor *t, int stmt,
                       struct sol_tensor *const *user, struct sol_tensor **out_t);

/* checkpoint.c: chooses the tensors that forward saves, level by level, for the current graph, in the graph's arena. */
struct fact;
struct demand;
struct trials;
struct checkpoint_level {
    int64_t bytes; /* estimated peak of backward */
    double cost;   /* estimated ns of recomputation */
    int dropped;   /* the number of tensors in `dropped` below that are not saved */
};
enum { CHECKPOINT_ALL, CHECKPOINT_SOURCES };
enum {
    CHECKPOINT_SMALL = 8
}; /* saving a tensor that is this many times smaller than the result computed from it is free */
struct checkpointing {
    struct sol_graph *g;
    int ntensors, nlayers;
    uint8_t *program;   /* by layer */
    struct fact **fact; /* by tensor that forward computes */
    VECTOR(struct fact *) facts;
    VECTOR(struct checkpoint_level) levels;
    int balanced;                  /* levels up to this one take no noticeable time */
    int small;                     /* from this level on, time is worth more than memory */
    int nplace;                    /* layers of backward */
    int64_t *base, *alive;         /* by position */
    struct demand *demand;         /* by tensor */
    struct trials *trials;         /* of give_up.c */
    VECTOR(struct fact *) dropped; /* beyond KEEP_SOURCES, in order */
};
/* Creates the levels KEEP_ALL and KEEP_SOURCES, and selects the latter. */
sol_status checkpoint_make(struct sol_graph *g, struct checkpointing **out_k);
void checkpoint_levels(
    struct checkpointing *k); /* finds the other levels, the last of which saves least, and `balanced` and `small` */
void checkpoint_level(struct checkpointing *k, int level);
bool checkpoint_keeps(const struct checkpointing *k, const struct sol_tensor *t);
enum program checkpoint_program(const struct checkpointing *k, const struct sol_layer *l);

/* rematerialize.c: recomputes what is not saved. */
sol_status grad_recompute(struct sol_graph *g, const struct checkpointing *k);
/* The only statement that computes t, -1: there is none; and the tensors that it reads. False: it is not
 * element-wise. */
int remat_statement(const struct sol_tensor *t);
/* The graph's tensor for tensor i of a layer's loops. NULL: a temporary or a table. */
struct sol_tensor *remat_tensor(const struct sol_layer *l, int i);
bool remat_reads(struct arena *a, const struct sol_tensor *t, int stmt, struct sol_tensor ***out_t, int *out_n);

/* grad.c: a tensor of zeros; `shape` is kept, not copied. */
sol_status grad_zeros(struct sol_graph *g, const char *name, enum sol_dtype dtype, int ndim, int64_t *shape,
                      struct sol_tensor **out);

struct rule_call { /* d by output: NULL where no gradient arrives; out_d by input */
    struct sol_graph *g;
    struct sol_layer *l;
    struct sol_tensor *const *d;
    const bool *want;
    struct sol_tensor **out_d;
    sol_status status; /* linear.c: the first error; later calls do nothing */
};
struct rule {
    const char *kind;
    unsigned inputs, outputs; /* by bit: those that may want, or have, a gradient */
    sol_status (*follow)(struct rule_call *c);
};
/* registered.c: a layer from outside whose gradient is another layer. Has it one for this input? */
sol_status grad_registered(struct rule_call *c);
bool grad_registered_of(const struct sol_layer *l, int input);
/* linear.c: rules of linear algebra layers; an empty row ends the table. */
extern const struct rule grad_linear_rules[];
/* rules.c: follows the rule of the layer's kind; returns false if it has none. */
bool grad_has_rule(const struct sol_layer *l);
sol_status grad_rule(struct sol_graph *g, struct sol_layer *l, struct sol_tensor *const *d, const bool *want,
                     struct sol_tensor **out_d);
/* A layer for the gradient of `of`: x in another shape. */
sol_status grad_reshape(struct sol_graph *g, const struct sol_layer *of, struct sol_tensor *x, int ndim,
                        const int64_t *shape, struct sol_tensor **out_t);
/* Replaces layers by forms that have a better gradient, such as a pool that also returns the positions of its maxima.
 */
sol_status grad_replace_layers(struct sol_graph *g, const bool *active);

#endif
