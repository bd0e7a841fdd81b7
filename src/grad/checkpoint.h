/* Shared by checkpoint.c and give_up.c only: how forward's saved tensors are chosen. */
#ifndef SOL_GRAD_CHECKPOINT_H
#define SOL_GRAD_CHECKPOINT_H

#include "grad/grad.h"

#define BYTES_A_NS 30.0 /* for weighing layers against each other */

struct fact { /* about a tensor that forward computes */
    struct sol_tensor *t;
    int64_t bytes;
    double cost;                    /* ns of computing it again */
    bool saved, fixed;              /* fixed: it is always saved */
    bool idle;                      /* backward does not need it at level CHECKPOINT_SOURCES, so it need not be saved */
    bool wanted;                    /* backward reads it, or a view of it */
    bool exact;                     /* backward compares it with another tensor: see exact.c */
    bool view, elementwise, joined; /* joined: part of a concatenation, and stored in place */
    int ndep;
    struct fact **dep;   /* the large tensors of forward that it is computed from */
    int first, last;     /* positions of its readers in backward; first > last: none */
    int readers;         /* their number */
    bool by_elementwise; /* the last one is element-wise */
    struct fact *leaf;   /* see find_leaf */
    int number;          /* number of the fact */
    int nuser;
    struct fact **user; /* facts that have it among their `dep` */
};
struct demand { /* what backward reads, including recomputation */
    int first, last, readers;
    int makers; /* element-wise statements that read it in order to recompute another tensor */
    bool by_elementwise;
};

/* What a fact adds to a level's memory and cost. */
struct share {
    double ns;
    int64_t bytes; /* in memory at the positions first .. last of backward; 0: none */
    int first, last;
};
bool checkpoint_demands(const struct fact *f, const struct demand *n); /* does it need what it is computed from? */
void checkpoint_demand(struct demand *dep, const struct fact *f, const struct demand *n);
struct share checkpoint_share(const struct fact *f, const struct demand *n);

/* exact.c: sets `exact`. */
void checkpoint_find_exact(struct checkpointing *k);
bool tensor_varies(const struct sol_tensor *t); /* of floating-point numbers, and no constant */

/* origins.c: the results and inputs that each tensor is computed from element by element; by tensor number. */
struct origins;
struct origins *origins_find(const struct sol_graph *g);
bool origins_mixed(const struct origins *origins, const struct sol_tensor *t);
bool origins_shared(const struct origins *origins, const struct sol_tensor *a, const struct sol_tensor *b);
/* Is every statement of the layer element-wise, or a copy? */
bool layer_is_elementwise(const struct sol_layer *l);

/* give_up.c: the next tensors to give up, those that save memory at the least cost in time first; at most `most`.
 * k->demand and k->alive belong to the current facts. */
int checkpoint_give_up(struct checkpointing *k, int most, struct fact **out);

#endif
