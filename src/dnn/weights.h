/* Long sums with few results: y[O I T] = sum[K] dy[K O] * x[K+T I], such as the gradient of a weight, which sums over
 * all pixels of all images. Both operands are packed, one chunk of K at a time, into panels that stay in the cache. One
 * micro-kernel adds rank-1 updates. Between chunks the sums wait in memory of their own; they are stored to the results
 * once.
 *
 *   task: (outer, block of m, block of n, group of chunks of K)
 *     for chunk of K
 *       pack b's panels of the block           b: the operand along whose channels the vectors run
 *       for panel of a                         a: the operand whose elements are broadcast
 *         pack it
 *         for panel of b, tap                  a tap is an offset into the packed pixels of the operand with the window
 *           the micro-kernel
 *     the epilogue; with several groups of chunks it is a second step, which adds up the sums of the groups
 *
 * The Winograd form, F(3x3, 4x4), has 4 times fewer products. It has 36 points in place of taps, a chunk is a number of
 * tiles of 4x4 pixels, packing includes the transforms, and the epilogue begins with the inverse transform. */
#ifndef SOL_DNN_WEIGHTS_H
#define SOL_DNN_WEIGHTS_H

#include "dnn/problem.h"

enum { WEIGHTS_ROWS, WEIGHTS_COLS, WEIGHTS_LEVELS };
struct weights_level { /* one of the two inner loops of K */
    struct axis axis;
    int tap;                  /* index variable of the result that moves the window, -1: none */
    int64_t taps, step, dist; /* the index in the window's dimension is step * k + dist * tap + .. */
    int dim;                  /* of the operand with the window */
    int64_t box, nbox;        /* elements in a chunk, at most, a number; number of chunks, a size */
};
struct weights_side { /* a or b */
    const struct operand *o;
    struct axis channels;
    int64_t stride;                 /* of the channels */
    int64_t panel;                  /* channels in a panel */
    int64_t panels, block, nblock;  /* panels: in all; block: panels in a block; nblock: blocks */
    int64_t extent[WEIGHTS_LEVELS]; /* packed pixels of a chunk, at most */
    int64_t step[WEIGHTS_LEVELS];   /* packed pixels between neighbours in K */
    bool window;
    int64_t pitch; /* elements between packed pixels */
    int64_t plane; /* Winograd: elements between points, padded against conflicts in the cache */
    int64_t size;  /* elements packed at a time */
};
struct weights {
    struct problem p;
    const struct target *target;
    bool winograd;
    int lanes, rows, vectors, width; /* of the micro-kernel */
    uint64_t taps_apart; /* index variables of the result that move windows beside the two levels; a part of outer */
    struct axes outer, images;
    int64_t nouter, nimage, image_box, image_nbox; /* of images there are sizes, of results numbers */
    struct weights_level level[WEIGHTS_LEVELS];
    struct weights_side a, b;
    int64_t taps;                  /* Winograd: points */
    int64_t tile_rows, tile_cols;  /* Winograd: tiles of an image, sizes */
    int64_t chunk, nchunk, ngroup; /* chunk: for Winograd, the tiles in it; nchunk is a size */
    int64_t sums;                  /* elements of a task's sums */
};
#define WEIGHTS_TOGETHER 4 /* panels of a packed together: their pixels share cache lines */
#define WEIGHTS_M 4        /* pixels of a tile in each dimension */
#define WEIGHTS_POINTS 6

int64_t weights_tasks(const struct weights *w);
int64_t weights_tiles(const struct weights *w);   /* Winograd: of all images, a size */
int64_t weights_scratch(const struct weights *w); /* elements */

/* weights_print.c */
void weights_print(struct weights *w, struct text *out);
/* The name of the vector type of the sums. */
const char *weights_vector(const struct weights *w);
/* Prints declarations of g0.., the indices in each axis, from `index`, which counts through all axes. */
void weights_digits(const struct weights *w, struct text *out, const struct axes *x, char ivar, const char *index);
/* weights_winograd.c prints transforms and the function `chunk_sums`; for the epilogue, the inverse transform of the
 * sums at `at` into vec o[3][3]. */
void weights_winograd_chunk(const struct weights *w, struct text *out);
void weights_winograd_result(const struct weights *w, struct text *out, const char *at);

#endif
