/* Attention as its solver sees it: two contractions with a softmax between them, y = softmax(f(q k)) v. It is found by
 * structure. All statements are expanded into expressions:
 *
 *   x[.. T S] = f(sum[D] q[.. T D] * k[.. S D])      the scores; f may scale, add a bias, mask
 *   m, z[.. T] = softsum[S | guard] x[.. T S]
 *   y[.. T E] = g(sum[S] exp(x - m) * v[.. S E], m, z) and whatever follows element by element
 *
 * T are queries, S keys, D what a query and a key share, E a value's elements. */
#ifndef SOL_DNN_ATTENTION_H
#define SOL_DNN_ATTENTION_H

#include "print/kernel.h"

struct attention_factor { /* q, k or v */
    int32_t node;         /* the read */
    int tensor;
    int64_t row, column; /* strides: of T or S, and of D or E */
};
struct attention_store { /* what the kernel writes: an expression for each element of y */
    int tensor;
    int32_t index, value;
};
#define ATTENTION_STORES 8
#define ATTENTION_BESIDE 2
struct attention {
    struct arena *arena;
    const struct solver_context *sc;
    const struct target *target;
    const struct loops *was;
    struct loops *loops; /* a copy: reads of `scored` and `mixed` replace the two sums */
    const struct memory *memory;
    enum sol_dtype dtype;
    bool varies; /* functions get the frame, `f` */
    int t, s, d, e;
    uint64_t batch; /* the index variables of rows but for T */
    struct attention_factor q, k, v;
    int scored, mixed;   /* tensors */
    int32_t score;       /* f of a read of `scored` */
    int32_t score_sum;   /* what that read replaces */
    int32_t guard;       /* the keys that count; 0: all */
    int m, z;            /* tensors */
    int32_t row_index;   /* of both */
    bool score_by_query; /* f reads what differs between queries */
    /* Parts of f without the sum, such as masks, that read keys one after the other: they are computed for a block, a
     * query at a time, and turned. `turned`: f with reads of the tensors `aside` in place of the expressions. */
    int nbeside;
    int32_t beside[ATTENTION_BESIDE], turned;
    int aside[ATTENTION_BESIDE];
    int nstore;
    struct attention_store store[ATTENTION_STORES];
    /* of a variant: queries of a block, which are the lanes of `vectors` vectors; rows of a tile of sums; keys of a
     * block */
    int lanes, vectors, queries, rows, keys;
};

#define ATTENTION_MOST_DEPTH 640 /* elements of D and E: more is a long sum, and needs much scratch memory */

/* The gradient, also found by structure, with d the gradient of y:
 *
 *   p[.. T S] = e(sum[D] q k) and r[.. T S] = h(p, sum[E] d[.. T E] * v[.. S E]), element by element
 *   dv[.. S F] = sum[T] p * d[.. T F]; dk[.. S C] = sum[T] r * q[.. T C]; dq[.. T C] = sum[S] r * k[.. S C] */
enum { ATTENTION_DV, ATTENTION_DK, ATTENTION_DQ, ATTENTION_SUMS };
#define ATTENTION_ROWS 8
struct attention_grad {
    struct attention a; /* score: p with a read of `scored`; guard: where p and r are not 0; store: none */
    struct attention_factor d;
    int gained, weight;          /* tensors, whose reads in r replace the sum over E, and p */
    int32_t r;                   /* as an expression of them */
    int32_t p_inside, r_inside;  /* the same where the guard holds */
    int sum[ATTENTION_SUMS];     /* tensors, whose reads in `store` replace the sums */
    int column[ATTENTION_SUMS];  /* the index variables F and C of the results */
    int32_t row[ATTENTION_ROWS]; /* reads in p and r that differ between queries, but not between keys */
    int nrow, nstore;
    struct {
        int of; /* which of the sums */
        struct attention_store to;
    } store[ATTENTION_STORES];
};

/* attention_find.c. False: *out_why says why not. */
bool attention_find(const struct solver_context *sc, const struct cluster *c, struct attention *out,
                    const char **out_why);
/* attention_grad_find.c */
bool attention_grad_find(const struct solver_context *sc, const struct cluster *c, struct attention_grad *out,
                         const char **out_why);
/* attention_print.c, attention_grad_print.c */
void attention_print(struct attention *a, struct kernel *out);
void attention_grad_print(struct attention_grad *g, struct kernel *out);
int64_t attention_grad_tasks(const struct attention_grad *g);
/* attention.c: sizes of a block of queries that are `vectors` vectors, and of about `keys` keys */
void attention_shape(struct attention *a, int vectors, int keys);
int attention_tile_rows(const struct target *t, int vectors);

/* -- attention_find.c: what both kinds look for */
struct attention_expanding {
    const struct loops_stmt **writer; /* by tensor: the statement that is expanded where it is read; NULL: none */
    bool bad;
};
int32_t attention_expand(void *expanding, struct loops *loops, int32_t node); /* for ex_map */
int attention_only(uint64_t set);
int32_t attention_sum_of(const struct loops *loops, int32_t value);
bool attention_factor_of(struct attention *a, int32_t node, int row, int column, struct attention_factor *out);
bool attention_calls(const struct loops *loops, int32_t node, const char *name, int32_t *arg);
int32_t attention_untested(const struct loops *loops, int32_t cond);

#endif
