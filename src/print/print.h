/* Shared by the files of this folder and dfp, beyond kernel.h. */
#ifndef SOL_PRINT_H
#define SOL_PRINT_H

#include "print/kernel.h"

/* The types that expressions are computed in. There are no helpers on vectors of C_U64. */
enum compute { C_F32, C_F64, C_I64, C_U64 };
static inline bool compute_is_int(enum compute k)
{
    return k >= C_I64;
}
struct compute_def {
    const char *type;   /* "float" */
    const char *name;   /* "f32": in helpers and vector types */
    const char *mask;   /* element type of masks: "i32" */
    const char *suffix; /* of libm's functions */
};
const struct compute_def *compute_def(enum compute k);
enum compute compute_of(enum sol_dtype t);

static inline const struct ex *print_ex(const struct print_expr *p, int32_t node)
{
    return &p->loops->ex.at[node];
}

struct print_known {
    int32_t node;
    enum compute k;
    int lanes;
    const char *text, *lane;
    const struct print_known *next;
};

/* names.c */
void print_comment(struct text *out, const struct loops *loops, const struct loops_stmt *s); /* the statement */

/* expr.c */
/* The compute type that an expression has by itself: of its float tensors; of integers where it is one. */
enum compute expr_natural(const struct loops *loops, int32_t node);
struct expr_floats { /* an expression reads tensors of these types */
    bool f32, f64;   /* f32: and narrower ones */
};
struct expr_floats expr_floats(const struct loops *loops, int32_t node);
bool expr_is_condition(const struct ex *e); /* a comparison, or several */
/* May it be computed wherever its statement runs? Its reads are inside their tensors, and there are no reductions. */
bool expr_is_safe(const struct loops *loops, int32_t node);
const char *expr_value(struct print_expr *p, int32_t node, enum compute k); /* p->lanes wide */
/* Converts text of one compute type into another, and into the range of a narrow integer type. */
const char *expr_convert(struct print_expr *p, const char *text, enum compute from, enum compute to);
const char *expr_temp(struct print_expr *p, const char *text, enum compute k); /* puts it in a variable */
void expr_know(struct print_expr *p, int32_t node, enum compute k,
               const char *text);                                   /* names the node's current value */
const char *expr_type(struct print_expr *p, enum compute k);        /* "float", "@f32x16" */
const char *expr_type_name(struct print_expr *p, enum compute k);   /* "f32", "f32x16": a part of helpers' names */
const char *expr_vector(struct print_expr *p, const char *element); /* of "u8": "@u8x16" */
bool expr_varies(const struct print_expr *p, int32_t node);         /* along the vector index variable? */
/* a new name; it ends with '_', unlike those of tensors and index variables */
const char *expr_name(struct print_expr *p);
const char *expr_ivar(struct print_expr *p, int ivar);
const char *expr_ivar_base(struct print_expr *p, int ivar); /* without what the solver adds to it */
/* The bounds of an integer expression, including what the solver knows about index variables. False: unknown. */
/* The range of an expression as sizes; expr_range: in numbers. */
bool expr_bounds(const struct print_expr *p, int32_t node, int64_t *out_min, int64_t *out_max);
bool expr_affine_bounds(const struct print_expr *p, const struct affine *a, int64_t *out_min, int64_t *out_max);
void expr_ivar_bounds(const struct print_expr *p, int ivar, int64_t *out_low, int64_t *out_high);
bool expr_range(const struct print_expr *p, int32_t node, int64_t *out_min, int64_t *out_max);
/* Inserts what the solver knows about index variables into an affine form; constants fold. */
void expr_fold(const struct print_expr *p, struct affine *a);
const char *expr_lanes(struct print_expr *p, int32_t node, enum compute k);  /* lane by lane */
const char *expr_scalar(struct print_expr *p, int32_t node, enum compute k); /* one value, whatever p->lanes is */
/* converts a vector's elements */
const char *expr_elements(struct print_expr *p, const char *text, const char *element);
const char *expr_read(struct print_expr *p, int32_t node, enum compute k);
const char *expr_splat(struct print_expr *p, const char *scalar, enum compute k);
/* The affine form of an integer expression in the ranges that the solver knows: there, abs, min, max, // and % may each
 * have one case only. */
bool expr_affine(const struct print_expr *p, int32_t node, struct affine *out);
int64_t expr_case(const struct print_expr *p, int32_t node); /* which case such a function has; INT64_MIN: not one */
int expr_lane_step(const struct print_expr *p, int tensor,
                   int32_t first); /* 0: all lanes equal, 1: contiguous, -1: neither */
/* Are elements `step` apart read as every second of two vectors, not lane by lane? */
bool expr_seconds(enum sol_dtype dtype, int64_t step);
/* The offset of an index list as an affine form of index variables, the sum of stride times index, if it is affine. */
bool expr_affine_offset(const struct loops *loops, const struct memory *m, int tensor, int32_t first,
                        struct affine *out);
/* The elements between what neighbouring values of an index variable access. Indices without it may be data.
 * INT64_MAX: unknown. */
int64_t expr_step(const struct loops *loops, const struct memory *m, int tensor, int32_t first, int ivar);
void expr_strides(const struct loops *loops, const struct memory *m, int tensor, int64_t *out_stride);

/* condition.c; print_condition is in kernel.h */
const char *expr_mask(struct print_expr *p, int32_t cond, enum compute k); /* lanes > 1: a mask vector of k's width */
const char *expr_test(struct print_expr *p, int32_t cond, enum compute k); /* 0 or 1 */

/* -- loops over index variables under a guard, which is tested as early as possible; affine parts become loop bounds */
struct print_loops {
    int n;
    uint8_t ivar[LOOPS_MAX_IVARS]; /* outermost first */
    VECTOR(int32_t) guard;         /* parts of a conjunction */
    /* filled by nest_open */
    int opened;
    const char *low[LOOPS_MAX_IVARS], *high[LOOPS_MAX_IVARS]; /* the bounds as text, by position in `ivar` */
    bool tested;                                              /* a part of the guard became a test */
    /* Called before the loop of ivar[inner] opens. That loop is divided into pieces of `strip`, unless it is 0. */
    void (*between)(void *user);
    void *user;
    int inner;
    int64_t strip;
    int inner_opened; /* loops and tests opened since then */
    uint64_t later;   /* index variables that become known only inside */
};
void nest_range(struct print_expr *p, struct print_loops *l, int ivar, uint64_t unknown, const char **out_low,
                const char **out_high);
int nest_decide(const struct print_expr *p, int32_t part); /* 1: always holds, 0: never, -1: depends */
void nest_guard(struct print_expr *p, struct print_loops *l, int32_t guard); /* adds the parts of a guard, 0: none */
void nest_open(struct print_expr *p, struct print_loops *l);
/* After nest_open: the range of the one index variable in `later`, whose loop the caller opens, and the tests that had
 * to wait for it. */
void nest_open_last(struct print_expr *p, struct print_loops *l, int ivar, const char **out_low, const char **out_high);
void nest_close(struct print_expr *p, const struct print_loops *l);
/* Orders index variables so that the last one is that with the smallest movement in memory for the reads below
 * `node`. */
void nest_order(const struct print_expr *p, struct print_loops *l, int32_t node);

/* -- reduce.c */
const char *print_reduction(struct print_expr *p, int32_t node, enum compute k); /* of one result, as a value */
/* Prints a reduction with one or more results: texts in out_value, of compute type k (positions: C_I64). */
void print_reduction_all(struct print_expr *p, int32_t node, enum compute k, const char **out_value);
/* The type of result i of a reduction over values of type k. */
enum compute reduction_type(const struct print_expr *p, int32_t node, int i, enum compute k);

/* -- guards.c: moves the tests of reads `t[i]:v` that cannot change a reduction's result to its guard */
void guards_from_reads(struct loops *loops, struct memory *memory); /* zeros in halos need no test at all */

/* -- groups.c: which statements share loops and tasks, and the memory of their temporaries */
enum temp_place {
    TEMP_NONE,
    TEMP_LOCAL,   /* an array of C, inside the shared loops */
    TEMP_SCRATCH, /* of the worker, at `offset` */
    TEMP_WORK     /* a work buffer, at `offset` */
};
struct print_temp {
    enum temp_place place;
    int64_t offset, elements;
};
struct print_group { /* statements first .. first + n - 1: one step */
    int first, n;
    uint64_t shared; /* index variables whose loops enclose all of them; different points are independent */
    double ops;      /* per point of the shared index variables */
};
struct print_plan {
    const struct target *target;
    struct cluster cluster; /* a copy that may be changed: loops, and memory with the strides of temporaries */
    struct loops *loops;    /* of the cluster; rewritten statements are appended */
    int lanes;
    int ngroup;
    struct print_group group[KERNEL_MAX_STEPS];
    struct print_temp *temp; /* by tensor */
    int64_t scratch_bytes, work_bytes;
    double ops, bytes;
    double near;   /* bytes that stay in a core's cache during a task */
    uint64_t unit; /* index variables along which outputs are contiguous */
};
/* lanes: of a vector, or 1. */
struct print_plan *groups_make(const struct solver_context *sc, const struct cluster *c, int lanes);
/* card.c: what a group takes on a graphics card, in ns, if its shared points are work items, or work groups. */
enum {
    CARD_SECTOR = 32, /* bytes that memory moves at least */
    CARD_WAIT = 300   /* cycles from an item's access to its next one */
};
struct card_ways {
    double items, rows;
};
struct card_ways card_ways(const struct print_plan *pl, const struct print_group *g);
double card_group_ns(const struct print_plan *pl, const struct print_group *g); /* in the faster way */
int64_t card_row_bytes(const struct target *t); /* that each of its groups may have of a core's memory */
int card_row_items(const struct target *t, int64_t length, double groups); /* of a group, for rows of a length */
/* How many groups a core keeps at a time, by their items, bytes of shared memory and registers (4 bytes) of an item. */
double card_resident(const struct target *t, int items, int shared, double registers);
/* Products of float32 that a core with `items` items computes in a cycle. */
double card_rate(const struct target *t, double items);
/* The number of statements from s on that run together in one loop over their scan index variable; 1 without a scan. */
int groups_scan(const struct loops *loops, int s);
/* The index variables that statements first .. last share: different points are independent. */
uint64_t groups_shared(const struct loops *loops, int first, int last);
/* The index variables along which outputs are contiguous. */
uint64_t groups_unit_ivars(const struct loops *loops, const struct memory *m);
double expr_ops(const struct loops *loops, int32_t node);       /* operations at one point, reductions included */
void print_tables(struct text *out, const struct loops *loops); /* as constants of the source */
/* Declares operands, work buffers and scratch of a group inside its function. */
/* Declares a pointer to the elements of operand `operand`. */
void print_operand(struct text *out, const struct target *t, const char *name, const char *type, int operand);
void print_bytes(struct text *out, const struct target *t, int operand, const char *offset); /* char *y */
void print_pointers(struct text *out, const struct print_plan *pl, const struct print_group *g);
void print_locals(struct text *out, const struct print_plan *pl, const struct print_group *g);

/* -- tasks.c: how the shared index variables of a group become tasks and serial loops */
struct print_tasks {
    int n;
    uint8_t ivar[LOOPS_MAX_IVARS];  /* outermost first */
    int64_t parts[LOOPS_MAX_IVARS]; /* number of ranges of the index variable; a task is one range of each */
    int64_t block[LOOPS_MAX_IVARS]; /* values in a range */
    int64_t tasks;
    /* filled in by tasks_open: the range as text; NULL: a single value, which the index variable already has */
    const char *low[LOOPS_MAX_IVARS], *high[LOOPS_MAX_IVARS];
};
struct print_division {  /* how the points of a group become tasks */
    double ops, least;   /* operations of a point, and of a task at least */
    int last;            /* index variable that comes last; -1: none */
    const double *step;  /* bytes that a step of each index variable moves in memory; NULL: in all accesses together */
    bool single;         /* a task is a point */
    const int64_t *unit; /* ranges of an index variable are multiples of its unit, 0: not divided; NULL: all 1 */
};
/* Orders a group's shared index variables by memory, outermost first, and divides them. */
void tasks_make(const struct print_plan *pl, const struct print_group *g, const struct print_division *by,
                struct print_tasks *out);
/* `for (task ..`, and the begin and end of the task's ranges */
void tasks_open(struct print_expr *p, struct print_tasks *t);
bool tasks_loop(struct print_expr *p, const struct print_tasks *t,
                int i); /* a loop over the range of index variable i, if needed */

/* -- running.c: states of recurrences */
/* Before the loop over the scan's index variable: declares the state of a statement that reads the element before, at a
 * point of a register tile. `open`: the index variables whose loops are open inside. Without a state, or where other
 * loops are, the element is read from memory. */
void running_begin(struct print_expr *p, const struct loops_stmt *s, uint64_t open, int point);
/* Prints the next state and returns the statement's value; NULL: it has no state. */
const char *running_next(struct print_expr *p, const struct loops_stmt *s, int point);
void running_end(struct print_expr *p); /* after the loop */

/* -- nest.c */
void nest_scan(struct print_expr *p, const struct loops_stmt *s); /* opens the loop that statements scan along */
extern const struct solver nest_solver;

#endif
