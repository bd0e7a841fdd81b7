/* DFP ("depth first"): all statements of a cluster in one pass over shared loops, vectorized by construction. */
#ifndef SOL_DFP_H
#define SOL_DFP_H

#include "print/print.h"

enum { DFP_TILE = 0, DFP_TASK = 1 }; /* points of a register tile, 0: the usual; ns of work worth a task */

#define DFP_POINTS 16
#define DFP_LEAST_LANES 2 /* of the shortest vectors in a range that is shorter than a full one */
#define DFP_BESIDE 8      /* reductions of one loop, at most */
#define DFP_PARTS 6       /* of a vector loop, at most */
#define DFP_MAX_PACKS 3   /* packed operands, at most */
struct dfp_load {
    const char *text, *name;
    struct dfp_load *next;
};
struct dfp {
    const struct solver_context *sc;
    struct print_plan *pl;
    struct loops *loops; /* the plan's, after dfp_expand */
    struct print_expr p;
    struct print_ivar *ivars; /* the p.index variables */
    int lanes;                /* of a full vector */
    bool items;               /* the lanes are work items (items.c) */

    /* the group that is being printed */
    uint64_t shared; /* its index variables */
    int vector;      /* shared index variable along which all statements run in lanes; -1: each statement has its own */
    int tile;        /* index variable of the register tile, -1: none */
    int64_t step;    /* between the points of the tile */
    int across;      /* a second index variable of the tile, which has points for all of its values; -1: none */
    int points;      /* points that are printed together */
    bool blocks;     /* points and lanes form blocks that are transposed in registers */
    int point;       /* the point that is being printed */
    const struct print_known *known[DFP_POINTS]; /* values that have a name, by point */
    const struct print_known *hoisted;           /* names that are valid in all open loops */
    struct dfp_load *loads;                      /* reads held in registers, newest first */
    struct dfp_temp {
        bool in_register, row;        /* row: full vectors in memory, with no dimension for the vector index variable */
        const char *name[DFP_POINTS]; /* of the register */
    } * temp;                         /* by tensor; where a group in lanes keeps its temporaries */
    /* constant operands may be packed: some operand is not constant, otherwise the kernel itself would run only once */
    bool packs;
    int npack;
    struct kernel_pack pack[DFP_MAX_PACKS];
};

static inline const struct ex *dfp_ex(const struct dfp *d, int32_t node)
{
    return &d->loops->ex.at[node];
}

/* expand.c: a copy of a cluster. Reductions with several results become simple ones, expressions that several passes
 * need become temporaries, and neighbouring index variables that are contiguous everywhere are merged. */
struct cluster dfp_expand(const struct solver_context *sc, const struct cluster *c, int lanes);
void dfp_read_once(struct loops *loops);  /* once.c: inlines integers that are read once */
void dfp_collapse(struct print_plan *pl); /* collapse.c: merges index variables that are contiguous everywhere */

/* choose.c: chooses the vector index variable */
double dfp_group_vector(struct dfp *d, const struct print_group *g, int *out_ivar); /* cost in vector operations */
/* -1: vectors do not pay */
int dfp_stmt_vector(struct dfp *d, const struct loops_stmt *s, uint64_t open, double *out_cost);
bool dfp_packable(const struct dfp *d, int tensor, int32_t first); /* of a read's tensor */
/* The index variable along which those reads are contiguous that are not along the vector index variable. Blocks of
 * both index variables are transposed in registers. -1: there is none. step: the bytes that those reads move in a step
 * of each index variable. *out_reads: the vectors that a block reads are farther apart than those that it stores. */
int dfp_block_ivar(struct dfp *d, const struct print_group *g, double *step, bool *out_reads);
/* The index variable of a register tile: one with a window in a reduction of the group, or the vector index variable
 * itself. *out_points: the most points of a tile. -1: there is none. */
int dfp_tile(struct dfp *d, const struct print_group *g, int *out_points);
/* A second index variable of the tile, of a few values, for sums over more data than the first cache holds: what they
 * read once for all points, they need not read again. -1: there is none, or it saves nothing. */
int dfp_tile_across(struct dfp *d, const struct print_group *g, int tile, int points);

/* traffic.c: the ns that all cores take to read what sums of a group read repeatedly, and the first cache does not
 * hold. Their tile has `points` values of `tile`, and all of `across`; -1: none. */
struct dfp_way {
    int vector, tile, points, across;
};
double dfp_traffic_ns(struct dfp *d, const struct print_group *g, const struct dfp_way *way);

/* The longest range of an index variable in which all guards of n statements that contain it hold, and all reads are
 * inside their tensors; or, if the size is known, in which each of these tests has one result. Both are sizes;
 * *out_high may be below *out_low. */
void dfp_interior(struct dfp *d, const struct loops_stmt *s, int n, int ivar, int64_t *out_low, int64_t *out_high);
/* The ranges of a vector index variable, at least a vector long and in order, in which that is so: the longest, and,
 * where it leaves much, such as in what joins tensors, all others. 0: there is none, or nothing is outside of it. */
struct dfp_parts {
    int n;
    struct dfp_part {
        int64_t low, high;
    } at[DFP_PARTS];
};
struct dfp_parts dfp_parts(struct dfp *d, const struct loops_stmt *s, int n, int ivar);

/* lanes.c: statements that run along a vector index variable of their results */
typedef void (*dfp_body)(struct dfp *d, void *user);
struct dfp_loop { /* over a vector index variable */
    int ivar;
    const char *low, *high;
    int points;                     /* vectors at a time */
    double ops;                     /* for each value of the index variable */
    int n;                          /* statements, */
    const struct loops_stmt *stmts; /* which `body` prints */
    dfp_body body;
    void *user;
};
/* Prints the loop. It has `points` vectors at a time as long as they fit, then single ones, then smaller vectors for
 * the remainder, and scalars where guards or reads meet a border. If the size varies, the last vector overlaps the one
 * before. */
void dfp_vector_loop(struct dfp *d, const struct dfp_loop *loop);
/* The condition that n values from `from` on do not pass `end`. */
const char *dfp_fits(struct dfp *d, const char *from, int64_t n, const char *end);
const char *dfp_end(struct dfp *d, const char *text); /* a name for the end of a range, unless it is simple */
void dfp_statement(struct dfp *d, const struct loops_stmt *s, uint64_t open); /* at the current points and lanes */
bool dfp_is_named(struct dfp *d, int32_t node); /* Has this reduction, or an equal one, been computed? Names it. */
void dfp_use(struct dfp *d, int point);         /* selects the point that is printed from now on */
/* for print_expr: takes registers before memory */
const char *dfp_read(void *user, struct print_expr *p, int32_t node);

/* A reduction that is being printed: along the lanes (reductions.c) or across them (rows.c). */
struct dfp_reduction {
    struct dfp *d;
    const struct ex *e;
    enum compute k;
    const char *total[DFP_POINTS], *acc[DFP_POINTS]; /* by point; both names are equal where sums are short */
    struct print_loops loops;
    uint8_t unrolled[LOOPS_MAX_IVARS];
    int nunrolled;
    VECTOR(int32_t) tests;        /* parts of the guard that are decided, or tested in unrolled code */
    VECTOR(int32_t) masks;        /* parts that differ between lanes */
    const char *counted;          /* the mask of the lanes that were not added before; NULL: all */
    struct dfp_reduction *beside; /* the next one that the same loop computes */
};
/* reductions.c */
void dfp_reduce(struct dfp *d, int32_t node, enum compute k); /* names its result, at all points */
/* Computes the reductions of the first of n statements, and those of the others that may have the same loop, if there
 * are several: what they all read is read once. */
void dfp_reduce_beside(struct dfp *d, const struct loops_stmt *s, int n, uint64_t open);
void dfp_reduction_begin(struct dfp *d, const struct ex *e, int32_t node, enum compute k, struct dfp_reduction *out);
const char *dfp_start(struct dfp *d, int op, enum compute k);
void dfp_join(struct dfp *d, int op, enum compute k, const char *acc, const char *value); /* acc = acc (op) value */
void dfp_declare(struct dfp_reduction *r, const char **names); /* declares accumulators for all points */
int64_t dfp_chunk(int64_t terms); /* how many terms of a long sum are added up before they join the total */
void dfp_accumulate(struct dfp_reduction *r);
bool dfp_split_masks(struct dfp_reduction *r); /* false: the body may not be computed where the guard fails */

/* temps.c */
bool dfp_points_fit(const struct dfp *d, const struct print_group *g); /* do temporaries allow several points? */
bool dfp_temps_fit(const struct dfp *d, const struct print_group *g);  /* do they allow lanes? */
void dfp_place_temps(struct dfp *d, const struct print_group *g);

/* items.c: lanes that are work items */
/* At the beginning of a step's function: the memory that the items of a work group share (the number of bytes), or an
 * item's own. */
int dfp_items_shared(struct dfp *d, const struct print_group *g);
/* Bytes of temporaries that a work group keeps in its memory, where many groups run at a time. */
int64_t dfp_items_room(const struct target *t);
/* The items of a group that computes rows: a warp for a short one, and more than usual where temporaries leave room for
 * few groups. */
int dfp_items_for_rows(const struct dfp *d, const struct print_group *g);
void dfp_items_keep(struct dfp *d, const struct print_group *g); /* moves the group's temporaries there */
void dfp_items_scratch(struct dfp *d, const struct print_group *g);
void dfp_items_open(struct dfp *d, int ivar, const char *low, const char *high); /* each item takes its values */
void dfp_items_one_open(struct dfp *d);                                          /* what item 0 does */
/* Prints the reduction with a row along v for the items, and names its value. */
void dfp_items_reduce(struct dfp_reduction *r, int32_t node, int v);

/* points.c: which point of a group's index variables a work item computes */
struct dfp_map {
    int n;
    uint8_t ivar[LOOPS_MAX_IVARS]; /* outermost first: neighbouring items differ in the last one */
    int tile, points;              /* an item computes `points` neighbours along `tile`; -1: one point */
    bool wide;                     /* those can be one access where operands are aligned to 16 bytes */
    int64_t total, block;          /* numbers of points (tiles): all, of a task; sizes */
};
bool dfp_map_items(struct dfp *d, const struct print_group *g, struct dfp_map *out); /* false: there is none */
/* Divides the points among tasks with `least` operations or more; returns their number, a size. */
int64_t dfp_map_tasks(const struct dfp *d, const struct print_group *g, struct dfp_map *m, double least);
void dfp_map_open(struct dfp *d, const struct dfp_map *m); /* the loop over the points of an item */
/* Declares aligned_: are the operands aligned that are accessed along the tile? And what the compiler may assume then.
 */
void dfp_map_aligned(struct dfp *d, const struct print_group *g, const struct dfp_map *m);
void dfp_map_assume(struct dfp *d, const struct print_group *g, const struct dfp_map *m);

/* rows.c: a single statement, vectorized along an index variable of its own or of its reductions */
void dfp_row_statement(struct dfp *d, const struct loops_stmt *s, uint64_t open);
/* Must a group's items wait for each other between the statement and the next (NULL: the last)? Not if one of them
 * stores the result, and it alone computes the next. */
bool dfp_row_waits(struct dfp *d, const struct loops_stmt *s, const struct loops_stmt *next, uint64_t open);
/* Names the largest parts of a value that contain none of the index variables `inner`. They join d->hoisted. */
void dfp_hoist(struct dfp *d, int32_t node, uint64_t inner, enum compute k);
/* The outermost reductions in a value, at most `room`. Returns their number. */
int dfp_reductions(const struct loops *loops, int32_t node, int32_t *out, int room);
/* Is the group one scalar recurrence in each row of the last loop over tasks? If so: that loop, and all in it. */
bool dfp_is_recurrence(const struct dfp *d, const struct print_group *g, const struct print_tasks *t);
void dfp_recurrence(struct dfp *d, const struct print_group *g, const struct print_tasks *t);

extern const struct solver dfp_solver;

#endif
