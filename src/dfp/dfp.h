/* Depth first: a cluster's statements in one walk over shared loops, vectorised by design. */
#ifndef SOL_DFP_H
#define SOL_DFP_H

#include "print/print.h"

/* What a variant chooses (variant.p). */
enum { DFP_TILE = 0, DFP_TASK = 1 }; /* points of a register tile, 0: the usual; ns of work worth a task */

#define DFP_POINTS 16
#define DFP_MAX_PACKS 3 /* operands that are packed, at most */
struct dfp_load {
    const char *text, *name;
    struct dfp_load *next;
};
struct dfp {
    const struct solver_context *sc;
    struct print_plan *pl;
    struct loops *loops; /* of the plan: expanded */
    struct print_expr p;
    struct print_ivar *ivars; /* p.index variables */
    int lanes;                /* of a full vector */

    /* the group that is printed */
    uint64_t shared; /* its index variables */
    int vector;   /* shared index variable along which all its statements run in lanes; -1: each statement for itself */
    int tile;     /* index variable of which several points are computed side by side; -1: none */
    int64_t step; /* of the tile's points */
    int points;   /* that are printed side by side now */
    bool blocks;  /* points and lanes make blocks that are transposed in registers */
    int point;    /* the one that is printed now */
    const struct print_known *known[DFP_POINTS]; /* values that have a name, by point */
    const struct print_known *hoisted;           /* names that hold in all loops now open */
    struct dfp_load *loads;                      /* reads in registers, newest first */
    struct dfp_temp {
        bool in_register, row;        /* row: full vectors in memory, without room along the vector index variable */
        const char *name[DFP_POINTS]; /* of the register */
    } * temp;                         /* by tensor; what a group in lanes does with its temporaries */
    bool packs; /* constant operands may be packed: not all are, else the kernel itself runs once */
    int npack;
    struct kernel_pack pack[DFP_MAX_PACKS];
};

/* expand.c: a copy of a cluster in which reductions with several results are simple ones, expressions that several
 * passes need are temporaries, and neighbouring index variables that lie side by side everywhere are one. */
struct cluster dfp_expand(const struct solver_context *sc, const struct cluster *c, int lanes);
void dfp_collapse(struct print_plan *pl); /* collapse.c: index variables that lie side by side everywhere become one */

/* choose.c: which index variable becomes the vector */
double dfp_group_vector(struct dfp *d, const struct print_group *g, int *out_ivar); /* cost in vector operations */
int dfp_stmt_vector(struct dfp *d, const struct loops_stmt *s, uint64_t open, double *out_cost); /* -1: none pays */
bool dfp_packable(const struct dfp *d, int tensor, int32_t first);                               /* a read's tensor */
/* The index variable along which reads lie side by side that do not along the vector index variable: blocks of both
 * index variables are transposed in registers. -1: there is none. */
int dfp_block_ivar(struct dfp *d, const struct print_group *g);
/* An index variable with a window in a reduction of the group, or the vector index variable itself, of which several
 * points are computed side by side; *out_points: at most so many. -1: none. */
int dfp_tile(struct dfp *d, const struct print_group *g, int *out_points);

/* The longest range of an index variable in which all guards of n statements that have it hold, and all reads lie
 * inside. */
void dfp_interior(struct dfp *d, const struct loops_stmt *s, int n, int ivar, int64_t *out_low, int64_t *out_high);

/* lanes.c: statements along a vector index variable that they write */
typedef void (*dfp_body)(struct dfp *d, void *user);
/* A loop over the vector index variable from low to high for n statements, which `body` prints: `points` vectors at a
 * time where that many fit, then single ones, then smaller vectors for the rest; scalars where guards or reads meet a
 * border. */
void dfp_vector_loop(struct dfp *d, int ivar, const char *low, const char *high, int points, const struct loops_stmt *s,
                     int n, dfp_body body, void *user);
void dfp_statement(struct dfp *d, const struct loops_stmt *s, uint64_t open); /* at the current points and lanes */
void dfp_use(struct dfp *d, int point);                                       /* prints for this point from now on */
const char *dfp_read(void *user, struct print_expr *p, int32_t node); /* for print_expr: registers before memory */
void dfp_name(struct dfp *d, int32_t node, enum compute k, const char *text); /* the node's value has this name now */

/* A reduction in the making: of lanes.c along the lanes, of rows.c across them. */
struct dfp_reduction {
    struct dfp *d;
    const struct ex *e;
    enum compute k;
    const char *total[DFP_POINTS], *acc[DFP_POINTS]; /* by point; the same names where sums are short */
    struct print_loops loops;
    uint8_t unrolled[LOOPS_MAX_IVARS];
    int nunrolled;
    VECTOR(int32_t) tests; /* parts of the guard that are decided or tested in unrolled code */
    VECTOR(int32_t) masks; /* parts that differ between lanes */
};
void dfp_reduction_begin(struct dfp *d, const struct ex *e, int32_t node, enum compute k, struct dfp_reduction *out);
const char *dfp_type_name(struct dfp *d, enum compute k); /* "f32x16", "f32": in names of helpers */
const char *dfp_start(struct dfp *d, int op, enum compute k);
void dfp_join(struct dfp *d, int op, enum compute k, const char *acc, const char *value); /* acc = acc (op) value */
void dfp_declare(struct dfp_reduction *r, const char **names); /* accumulators for all points */
int64_t dfp_chunk(int64_t terms); /* of a long sum: terms that are added up before they join it */
void dfp_accumulate(struct dfp_reduction *r);
bool dfp_split_masks(struct dfp_reduction *r); /* false: the body may not be computed where the guard fails */

/* rows.c: a statement by itself, with the vector along an index variable of its own or of its reductions */
void dfp_row_statement(struct dfp *d, const struct loops_stmt *s, uint64_t open);
/* Gives names to the largest parts of a value that have none of the index variables `inner`; they join d->hoisted. */
void dfp_hoist(struct dfp *d, int32_t node, uint64_t inner, enum compute k);
/* The outermost reductions in a value, at most `room`; how many. */
int dfp_reductions(const struct loops *loops, int32_t node, int32_t *out, int room);

extern const struct solver dfp_solver;

#endif
