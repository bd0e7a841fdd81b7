/* Contractions for work items: what the files simt*.c share. */
#ifndef SOL_DNN_SIMT_H
#define SOL_DNN_SIMT_H

#include "dnn/epilogue.h"
#include "dnn/solvers.h"
#include "print/print.h"

#define SIMT_CHUNK 1024 /* products that are added up before they join the total */
#define SIMT_PACK 16    /* bytes of a load of full width */

/* What a variant chooses (variant.p). */
enum { P_ROWS, P_COLS, P_TILE_ROWS, P_TILE_COLS, P_PARTS, P_DEPTH };

struct simt_order { /* index variables as digits of one number, outermost first */
    int n;
    uint8_t ivar[LOOPS_MAX_IVARS];
    int64_t digit[LOOPS_MAX_IVARS]; /* its size; neighbours may have merged, then the last gives the name and strides */
    int64_t size;
};
/* How a card reads a factor. Its elements of a block are M (or N) by K; items read some neighbours in one of both. */
struct simt_factor {
    struct operand *x;
    const struct simt_order *own; /* M or N */
    const char *name;             /* prefix: "a" */
    const char *first;            /* of the block: "m0_" */
    int wide;                     /* elements of M or N in a block */
    bool plain;                   /* at a linear offset; otherwise at one that any expression gives */
    bool deep;                    /* neighbours are those of K */
    int width;                    /* elements that one load reads */
    int pad;                      /* elements behind each row in shared memory, so that stores meet other banks */
    int loads;                    /* of an item, for a step of the sum */
    int across;                   /* items that read neighbours */
    bool all;                     /* each item has all its loads: there are not more items than loads */
};
struct simt {
    struct problem p;
    const struct target *target;
    struct text *out;
    struct print_expr pe;
    struct simt_order batch, m, n, k;
    struct simt_factor a, b;              /* of a card */
    int rows, cols, tile_rows, tile_cols; /* of a block, and of an item's tile */
    int depth;                            /* of a block of the sum */
    int64_t parts, part;                  /* of the sum, and products in a part */
    int items;                            /* a multiple of rows and of cols, or on a card of 32 */
    int products; /* of TF32, by units for small matrices, in place of one of float32: 1 or 3; 0: there are none */
    bool card;    /* items run at the same time; otherwise they take turns */
    bool vector;  /* a row of a tile is a vector */
    bool chunks;  /* long sums join a total now and then */
    bool stores;  /* results of neighbouring columns are stored together */
    int64_t mblocks, nblocks;
    int npack;
    struct kernel_pack pack[1];
    int pitch; /* of the operand's packed form */
};

/* simt.c */
int64_t simt_blocks(const struct simt *s);
/* Declares the index variables of an order as digits of the number `flat`. */
void simt_digits(const struct simt *s, const struct simt_order *o, const char *flat);

/* simt_cost.c */
double simt_cost(const struct simt *s);

/* simt_card.c: orders, packs and loads of a card */
void simt_card_find(struct simt *s);
void simt_card_shape(struct simt *s);
int simt_card_shared(const struct simt *s); /* bytes */
void simt_card_begin(const struct simt *s); /* what the file declares */
void simt_card_place(const struct simt *s); /* declares row_ and col_, an item's tile in the block, and shared memory */
void simt_card_sum(struct simt *s);

/* simt_mma.c: products by a card's units for small matrices */
extern const int simt_mma_shapes[][5];        /* rows, columns, rows and columns of a tile, depth; ends with 0 */
void simt_mma_place(const struct simt *s);    /* declares what its products need */
void simt_mma_products(const struct simt *s); /* of a step of the sum */
/* Element k of a step and a value as other products store them, too: its row of shared memory, and what stands there.
 */
const char *simt_mma_row(const struct simt *s, const char *k);
const char *simt_mma_stored(const struct simt *s, const char *x);

/* simt_results.c */
void simt_results(struct simt *s);      /* of a processor's block */
void simt_card_results(struct simt *s); /* of a card's */
void simt_parts(struct simt *s);        /* the body of the second step, which adds up the parts */

#endif
