/* Attention on graphics cards: what its files share. A work group computes a block of queries, whose sums an item keeps
 * in registers: those of some rows, and of some columns of the scores and of the values. The items of a row are
 * neighbours. */
#ifndef SOL_DNN_ATTENTION_SIMT_H
#define SOL_DNN_ATTENTION_SIMT_H

#include "dnn/attention_print.h"

struct attention_simt {
    struct attention a;            /* queries, keys: of a block */
    int across, down;              /* items of a row, and of a column */
    int rows, cols;                /* of an item's tile of scores */
    int values;                    /* columns of its tile of sums */
    int wide;                      /* elements of a load of full width */
    int items;                     /* of a group */
    int pitch_q, pitch_k, pitch_v; /* elements from one row in shared memory to the next */
    bool one_buffer;               /* keys and values of a block take turns in shared memory */
    int shared;                    /* bytes */
    bool pairs;                    /* neighbours exchange values */
    struct attention_printing *w;
    struct text *out;
};

int attention_simt_width(const struct attention_simt *s, const struct attention_factor *x, int64_t depth);
bool attention_simt_early(const struct attention_simt *s); /* are loads hidden behind products? */
void attention_simt_print(struct attention_simt *s, struct kernel *out);

#endif
