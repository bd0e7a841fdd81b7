/* How a contraction is cut up, and its code: tiles of R x C pixels by V vectors, in blocks of pixels, panels of output
 * channels and chunks of K. All blocked solvers (direct, matmul) choose numbers here and print through it.
 *
 *   for block of pixels, panels [lo, hi)              a task is one (outer, block, panel); a range of tasks runs as one
 *     for chunk of K
 *       gather the block's part of a, if a has borders or lies badly
 *       for panel                                     weights of (panel, chunk): one contiguous piece
 *         for tile in block                           the micro-kernel
 */
#ifndef SOL_DNN_BLOCKING_H
#define SOL_DNN_BLOCKING_H

#include "dnn/problem.h"

enum b_source {
    B_PACKED,   /* a pack of the kernel: [outer][chunk][panel][k][width] */
    B_IN_PLACE, /* unit stride along the vector */
    B_SCRATCH,  /* packed by each task, panel by panel */
    B_CALLER    /* the caller hands over one chunk of a panel, [k][width] */
};
struct blocking_options {
    int pixels;  /* in a tile, at most */
    int vectors; /* in a tile, at most */
    int chunk;   /* of K, about */
    int sum;     /* products that are added in a row, about; 0: a chunk's */
    int tiles;   /* in a block, about */
    enum b_source source;
    bool gather;   /* a, even if it need not be */
    bool groups;   /* several groups of a grouped convolution in one vector */
    int64_t fetch; /* B_CALLER: bytes of what the next chunk comes from, which a panel's tiles fetch together */
};
#define BLOCKING_MAX_PIXELS 32
struct blocking {
    const struct problem *p;
    const struct target *target;
    struct blocking_options options;
    int lanes, vectors, width; /* width: of a panel */
    int rows, cols;            /* of a tile, at most */
    bool gather;
    int group; /* index variable of the groups that share vectors, -1: none. Then a vector of a is read, and each of its
                * group's
                */
    int group_size;          /* channels spread over the group's lanes in turn, instead of one element over all lanes */
    struct axes outer, m, k; /* m: at least one axis, the last is the tile's columns; k: the last is the run */
    struct axis n;
    int64_t nouter, panels;
    int chunk_axis;            /* in k; -1: K is not cut */
    int64_t chunk, nchunk;     /* elements of that axis, number of chunks */
    int64_t len, nrun;         /* of a full chunk: elements of a run, number of runs */
    int64_t sum_len, sum_runs; /* what is summed in a row: part of a run, some runs; 0, 0: the whole chunk */
    int64_t box[AXES_MAX], nbox[AXES_MAX], nblock; /* by m axis */
    int64_t block_tiles;                           /* at most */
    int64_t a_stride[LOOPS_MAX_IVARS];             /* of a as the tile sees it */
    int ngather, gather_dim[SOL_MAX_DIMS];         /* dims of a in the order of the gathered block, outermost first */
    int64_t extent[SOL_MAX_DIMS], gather_stride[SOL_MAX_DIMS], gathered; /* by dim of a, at most; elements in all */
    int partial;                      /* where the sums of all but the last chunk wait: a view, or -1: scratch */
    int64_t partials, panel_elements; /* elements of scratch; of one panel's chunk of weights */
    bool used[2][BLOCKING_MAX_PIXELS + 1][BLOCKING_MAX_PIXELS + 1]; /* [last panel][rows][cols]: tiles that occur */
};

/* A sum of n products in a row loses about sqrt(n / 2) roundings. Sums of blocks, added up, lose those of a block and
 * of the blocks' number. Winograd's transforms make more of what its products lose, which are fewer. */
#define BLOCKING_SUM 256
#define BLOCKING_SUM_PRECISE 128
#define BLOCKING_SUM_WINOGRAD 64

/* blocking.c */
int blocking_sum(const struct solver_context *sc);
int blocking_lanes(const struct problem *p, const struct target *t);
/* False: these options do not suit this problem; *out_why. */
bool blocking_make(const struct problem *p, const struct target *t, const struct blocking_options *o,
                   struct blocking *b, const char **out_why);
int64_t blocking_tasks(const struct blocking *b);
int64_t blocking_scratch(const struct blocking *b); /* bytes */
/* Lanes of the last panel that exist. */
int blocking_last(const struct blocking *b);

/* blocking_pack.c: the loops that bring b into panels */
struct loops *blocking_pack(const struct blocking *b, struct arena *arena);
int64_t blocking_packed_elements(const struct blocking *b);

/* blocking_print.c: the whole source of a kernel of one step, */
void blocking_print(const struct blocking *b, struct text *out);
/* or its parts: types; micro-kernels and `static void block_panels(char *const *p, real *scratch, int64_t
 * g, int64_t block, int64_t lo, int64_t hi)`, with B_CALLER `(.., int64_t n, int64_t q, const char *next)` for a chunk
 * of a panel; the body of a step over all of it, whose operands are the C name's. */
void blocking_print_head(const struct blocking *b, struct text *out);
void blocking_print_block(const struct blocking *b, struct text *out);
void blocking_print_tasks(const struct blocking *b, struct text *out, const char *operands);

/* gather.c */
void gather_print(const struct blocking *b, struct text *out);

/* tile.c: one micro-kernel */
#define TILE_UNROLL 4                      /* steps of K */
int tile_unroll(const struct blocking *b); /* of this contraction */
/* Lines of the next panel that a tile fetches in each unrolled step, so that the block's tiles fetch all of it. */
int tile_fetch_lines(const struct blocking *b);
void tile_print(const struct blocking *b, struct text *out, int rows, int cols, bool last_panel);

#endif
