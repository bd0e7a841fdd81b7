/* Shared by checkpoint.c and give_up.c only: how forward's saved tensors are chosen. */
#ifndef SOL_GRAD_KEEP_H
#define SOL_GRAD_KEEP_H

#include "grad/grad.h"

#define BYTES_A_NS 30.0 /* for weighing layers against each other */

struct fact { /* of a tensor that forward computes */
    struct sol_tensor *t;
    int64_t bytes;
    double cost;            /* ns, to make it again */
    bool kept, fixed;       /* fixed: it is kept whatever comes */
    bool idle;              /* backward does not need it at level CHECKPOINT_SOURCES: nothing wants it saved */
    bool wanted;            /* backward reads it, or what moves make of it */
    bool view, map, joined; /* joined: part of a concatenation, and there in place */
    int ndep;
    struct fact **dep; /* what it is made of, as far as it is forward's and not small */
    int first, last;   /* readers in backward: their places; first > last: none */
    int readers;       /* of these: how many */
    bool by_map;       /* the last one is element-wise */
    struct fact *leaf; /* see find_leaf */
    int number;        /* place among the facts */
    int nuser;
    struct fact **user; /* that have it among their `dep` */
};
struct demand { /* what backward reads, with what it computes again */
    int first, last, readers;
    int makers; /* element-wise statements that read it in order to compute another tensor again */
    bool by_map;
};

/* What a fact adds to a level's memory and cost. */
struct share {
    double ns;
    int64_t bytes; /* in memory at the places first .. last of backward; 0: none */
    int first, last;
};
bool checkpoint_demands(const struct fact *f, const struct demand *n); /* does it need what it is made of? */
void checkpoint_demand(struct demand *dep, const struct fact *f, const struct demand *n);
struct share checkpoint_share(const struct fact *f, const struct demand *n);

/* give_up.c: the next tensors to give up, those that save memory at the least cost in time first; at most `most`.
 * k->demand and k->alive belong to the current facts. */
int checkpoint_give_up(struct checkpointing *k, int most, struct fact **out);

#endif
