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
    int nstore;
    struct attention_store store[ATTENTION_STORES];
    /* of a variant: queries of a block, which are the lanes of `vectors` vectors; rows of a tile of sums; keys of a
     * block */
    int lanes, vectors, queries, rows, keys;
};

/* attention_find.c. False: *out_why says why not. */
bool attention_find(const struct solver_context *sc, const struct cluster *c, struct attention *out,
                    const char **out_why);
/* attention_print.c */
void attention_print(struct attention *a, struct kernel *out);

#endif
