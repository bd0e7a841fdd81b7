/* How a contraction is tiled, and its code. Pixels are the rows of the product (M), output channels its columns
 * (N). Tiles are R x C pixels by V vectors of channels; they form blocks of pixels, panels of output channels and
 * chunks of K. All blocked solvers (direct, matmul, winograd) choose the sizes here and print through it.
 *
 *   for block of pixels, panels [lo, hi)              one task is one (outer, block, panel); a range of tasks is a call
 *     for chunk of K
 *       gather the block's part of a                  if a has borders or an unsuitable layout
 *       for panel                                     weights of (panel, chunk): one contiguous piece
 *         for tile in block                           the micro-kernel */
#ifndef SOL_DNN_BLOCKING_H
#define SOL_DNN_BLOCKING_H

#include "dnn/problem.h"

/* Where sizes vary, blocks, tiles, panels and chunks are constants, chosen for the hints; how many there are is a size.
 * Tiles of all heights and widths exist then. The last panel of an N that varies (`ragged`) is computed vector by
 * vector, by tiles that get the number of lanes in use. */
enum b_source {
    B_PACKED,   /* packed ahead, an operand of the kernel: [outer][chunk][panel][k][width] */
    B_IN_PLACE, /* read where it lies: unit stride along the vector */
    B_SCRATCH,  /* packed into scratch by each task, panel by panel */
    B_CALLER    /* the caller passes one chunk of a panel, [k][width] */
};
/* What the groups of a grouped convolution are, if they lie side by side in memory. */
enum b_groups {
    B_APART, /* products of their own: the loop over them is outside of that over blocks of pixels */
    B_SHARE, /* lanes: a vector holds several groups, because they have too few channels */
    B_PANELS /* panels, or some panels each: a block of pixels is in the cache for all of them */
};
struct blocking_options {
    int pixels;  /* of a tile, at most */
    int vectors; /* of a tile, at most */
    int chunk;   /* elements of K in a chunk, about */
    int sum;     /* products that one accumulator adds up, about; 0: those of a whole chunk */
    int tiles;   /* tiles in a block, about */
    enum b_source source;
    bool gather; /* gather a even if that is not necessary */
    enum b_groups groups;
    bool counted;  /* a caller says how many elements of the last axis of M there are: `count`, at most its size */
    int64_t fetch; /* B_CALLER: bytes that the next chunk is made from; the tiles of a panel prefetch them */
};
#define BLOCKING_MAX_PIXELS 32
struct blocking {
    const struct problem *p;
    const struct target *target;
    struct blocking_options options;
    int lanes, vectors, width; /* width: channels of a panel */
    int rows, cols;            /* pixels of a tile, at most */
    bool gather, ragged;
    bool runs_vary;     /* offsets of the runs of K are computed by the block function */
    int group;          /* index variable of the groups that are panels or share vectors, -1: none */
    int64_t neighbours; /* groups that lie side by side, however they are computed; 1: there are none */
    /* Channels of a group that shares vectors; 0: none does. The micro-kernel loads vectors of a then, and spreads each
     * channel over its group's lanes, instead of one element over all lanes. */
    int shared;
    /* m: at least one axis, the last is the columns of tiles; k: the last is the innermost run */
    struct axes outer, m, k;
    struct axis n;
    int64_t nouter, panels;
    int chunk_axis;            /* index in k; -1: K is not cut */
    int64_t chunk, nchunk;     /* elements of that axis, number of chunks */
    int64_t len, nrun;         /* of a full chunk: elements of a run, number of runs */
    int64_t sum_len, sum_runs; /* what one accumulator adds up: part of a run, or some runs; 0, 0: the whole chunk */
    int64_t box[AXES_MAX], nbox[AXES_MAX], nblock; /* by axis of m: size of a block, number of blocks */
    int64_t block_tiles, about_tiles;              /* tiles in a block, at most, and about */
    int64_t a_stride[LOOPS_MAX_IVARS];             /* strides of a as the micro-kernel sees it */
    int ngather, gather_dim[SOL_MAX_DIMS]; /* dimensions of a in the order of the gathered block, outermost first */
    /* by dimension of a, at most; gathered: elements of the block */
    int64_t extent[SOL_MAX_DIMS], gather_stride[SOL_MAX_DIMS], gathered;
    int partial;                      /* the view that holds partial sums between chunks, -1: scratch holds them */
    int64_t partials, panel_elements; /* elements of scratch for them; elements of one panel's chunk of weights */
    /* [last panel][rows][cols]: sizes of tiles that occur */
    bool used[2][BLOCKING_MAX_PIXELS + 1][BLOCKING_MAX_PIXELS + 1];
};

/* How many products are added up before the sum goes to a total. A sum of n products accumulates an error of about
 * sqrt(n / 2) roundings; a sum of block sums has that of one block plus that of the number of blocks. Winograd uses
 * shorter sums because its transforms amplify the errors of the products. */
#define BLOCKING_SUM 256
#define BLOCKING_SUM_PRECISE 128
#define BLOCKING_SUM_WINOGRAD 64

/* blocking.c */
int blocking_sum(const struct solver_context *sc);
/* False: the options do not suit this problem; *out_why says why. */
bool blocking_make(const struct problem *p, const struct target *t, const struct blocking_options *o,
                   struct blocking *b, const char **out_why);
/* The same for a variant. False: the options do not suit this problem, a variant with `fewer` tiles has the same
 * blocks, or they do not fit the cache. */
bool blocking_try(const struct problem *p, const struct target *t, const struct blocking_options *o, int64_t fewer,
                  struct blocking *b);
int64_t blocking_tasks(const struct blocking *b);   /* a size, as is the other */
int64_t blocking_scratch(const struct blocking *b); /* bytes */
/* Elements of scratch for the gathered block: a vector may reach past its end. */
int64_t blocking_gathered(const struct blocking *b);
/* Lanes of the last panel that are in use; of a ragged one, those of a panel. */
int blocking_last(const struct blocking *b);
/* Has the last panel tiles of its own? */
static inline bool blocking_odd(const struct blocking *b)
{
    return b->ragged || blocking_last(b) < b->width;
}
/* The same blocking with numbers in place of sizes: what costs look at. */
struct blocking blocking_about(const struct blocking *b);

/* blocking_pack.c: the loops that pack b into panels */
struct loops *blocking_pack(const struct blocking *b, struct arena *arena);
int64_t blocking_packed_elements(const struct blocking *b);

/* blocking_print.c. A kernel with one step: its source, tasks and scratch memory. */
void blocking_kernel(const struct blocking *b, const struct solver_context *sc, struct kernel *out);
/* Its parts. The first prints types, micro-kernels and `static void block_panels(char *const *p, real *scratch,
 * int64_t g, int64_t block, int64_t lo, int64_t hi)`; with B_CALLER its last parameters are `(.., int64_t n, int64_t
 * q, const char *next)`, for one chunk of a panel. The second prints the body of a step over everything; `operands`
 * is its C name. */
void blocking_print_head(const struct blocking *b, struct text *out);
void blocking_print_block(const struct blocking *b, struct text *out);
void blocking_print_tasks(const struct blocking *b, struct text *out, const char *operands);

/* gather.c */
void gather_print(const struct blocking *b, struct text *out);

/* tile.c: prints the epilogue's function, then micro-kernels, which call it */
#define TILE_UNROLL 4 /* steps of K */
int tile_unroll(const struct blocking *b);
/* Cache lines of the next panel that a tile prefetches in each unrolled step; together, the tiles of a block
 * prefetch all of it; one of one pixel that is alone leaves that to the processor. If their number varies, the block's
 * function computes this and passes it as `fetch`. */
int tile_fetch_lines(const struct blocking *b, int64_t tiles);
bool tile_fetch_varies(const struct blocking *b);
/* Does a tile prefetch the rows of the next panel? Those of weights in place are too far apart for the processor to
 * foresee them. The first tile of a block does, to which the block's function passes `ahead`, the distance. */
bool tile_reads_ahead(const struct blocking *b);
/* What the epilogue takes, which is printed as a function of one vector of sums: some views, and the values of index
 * variables at the block's position with the vector's position in the tile. */
struct tile_finish {
    bool view[PROBLEM_MAX_VIEWS], value, row, col, vec;
};
struct tile_size {
    int rows, cols;
    bool last; /* for the last panel */
};
void tile_print_finish(const struct blocking *b, struct text *out, struct tile_finish *out_f);
void tile_print(const struct blocking *b, struct text *out, const struct tile_finish *f, const struct tile_size *size);

#endif
