/* Attention on graphics cards: what its files share. A work group computes a block of queries, whose sums an item keeps
 * in registers: those of some rows, and of some columns of the scores and of the values. The items of a row are
 * neighbours. */
#ifndef SOL_DNN_ATTENTION_SIMT_H
#define SOL_DNN_ATTENTION_SIMT_H

#include "dnn/attention_print.h"

struct attention_group { /* a work group */
    struct arena *arena;
    struct text *out;
    int items;
    int wide; /* elements of a load of full width */
};
struct attention_copy { /* of `rows` rows, the first of which is `first`, to shared memory NAMEs_ */
    const struct attention_factor *x;
    const char *name, *first, *end; /* rows from `end` on are 0 */
    int rows, depth;
    bool turned; /* elements of a row lie in different rows of shared memory */
    int filled;  /* otherwise: elements of a row there, zeros included */
};
/* to[rows][cols] += left[row] * right[col]: a tile of an item. `column` is its place among the items of a row, which
 * are `across`. Its first row is `row`; with left_along that is its place among the items of a column, which are
 * `down`. */
struct attention_product {
    const char *left, *right, *to;
    int rows, cols, across, down;
    const char *row, *column;
    const char *depth; /* of the sum; with left_along it is rounded up to full loads */
    /* Is a factor [row][element of the sum], not [element][row]? Then an item's rows of it are as far apart as there
     * are items, so that neighbours read neighbouring rows; otherwise it has pieces as wide as loads. right_along needs
     * left_along. */
    bool left_along, right_along;
};

struct attention_simt {
    struct attention_group group;
    struct attention a;            /* queries, keys: of a block */
    int across, down;              /* items of a row, and of a column */
    int rows, cols;                /* of an item's tile of scores */
    int values;                    /* columns of its tile of sums */
    int pitch_q, pitch_k, pitch_v; /* elements from one row in shared memory to the next */
    bool one_buffer;               /* keys and values of a block take turns in shared memory */
    int shared;                    /* bytes */
    bool pairs;                    /* neighbours exchange values */
    struct attention_printing *w;
};

bool attention_simt_early(const struct attention_simt *s); /* are loads hidden behind products? */
void attention_simt_print(struct attention_simt *s, struct kernel *out);

/* An item's tile of a matrix of the group: columns of neighbouring items are neighbours. */
struct attention_place {
    int rows, cols; /* of an item */
    int across;     /* items of a row */
};
/* The gradient. A group has blocks of keys, one after the other, whose sums are in registers, and goes through the
 * queries for each of them. */
struct attention_grad_simt {
    struct attention_group group;
    struct attention_grad g; /* a.queries, a.keys: of a block */
    struct attention_place score, sum[ATTENTION_SUMS];
    int parts;                     /* groups that share the keys of a batch element */
    int wide_d, wide_e;            /* elements of a row that tiles read */
    int pitch_d, pitch_e, pitch_p; /* from one row in shared memory to the next */
    int pitch_sum;                 /* of a row of dq's sums in memory */
    bool two_buffers;              /* weights and their gradients have one each */
    int shared;                    /* bytes */
};

/* attention_grad_simt_print.c */
void attention_grad_simt_print(struct attention_grad_simt *s, struct kernel *out);
bool attention_grad_simt_once(const struct attention_grad_simt *s); /* has a group one block of keys at most? */

/* attention_simt_tiles.c */
void group_open_each(const struct attention_group *g, const char *index, int n); /* an unrolled loop */
void group_put_zeros(const struct attention_group *g, const char *name, int rows, int cols);
int group_width(const struct attention_group *g, const struct attention_factor *x, int64_t depth); /* of a load */
int group_loads(const struct attention_group *g, const struct attention_copy *c);                  /* of an item */
const char *group_type(const struct attention_group *g, const struct attention_copy *c);           /* of a load */
/* `n` loads of an item to registers NAME_x_, from load `at_` on, and from there to shared memory; or both in turns. */
void group_put_loads(const struct attention_group *g, const struct attention_copy *c, int n);
void group_put_stores(const struct attention_group *g, const struct attention_copy *c, int n);
void group_put_copy(const struct attention_group *g, const struct attention_copy *c, int most);
void group_put_source(const struct attention_group *g, const char *name, const char *address, int width);
void group_put_product(const struct attention_group *g, const struct attention_product *p);
const char *group_column(const struct attention_group *g, int across, const char *column);

#endif
