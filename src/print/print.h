/* What the files of this folder and dfp share beyond kernel.h. */
#ifndef SOL_PRINT_H
#define SOL_PRINT_H

#include "print/kernel.h"

/* The three types that expressions are computed in. */
enum compute { C_F32, C_F64, C_I64 };
struct compute_def {
    const char *type;   /* "float" */
    const char *name;   /* "f32": in helpers and vector types */
    const char *mask;   /* element of masks: "i32" */
    const char *suffix; /* of libm's functions */
};
const struct compute_def *compute_def(enum compute k);
enum compute compute_of(enum sol_dtype t);

struct print_known {
    int32_t node;
    enum compute k;
    int lanes;
    const char *text, *lane;
    const struct print_known *next;
};

/* expr.c */
/* The compute type that an expression has by itself: of its float tensors; of integers where it is one. */
enum compute expr_natural(const struct loops *l, int32_t node);
const char *expr_value(struct print_expr *p, int32_t node, enum compute k); /* p->lanes wide */
const char *expr_mask(struct print_expr *p, int32_t cond, enum compute k);  /* lanes > 1: a mask vector of k's width */
/* Converts text of one compute type into another, and into the range of a narrow integer type. */
const char *expr_convert(struct print_expr *p, const char *text, enum compute from, enum compute to);
const char *expr_temp(struct print_expr *p, const char *text, enum compute k); /* puts it in a variable */
const char *expr_type(struct print_expr *p, enum compute k);                   /* "float", "f32x16" */
bool expr_varies(const struct print_expr *p, int32_t node);                    /* along the vector letter */
const char *expr_name(struct print_expr *p); /* a fresh name: ends with '_', as no tensor's or letter's does */
const char *expr_letter(struct print_expr *p, int letter);
const char *expr_tensor(const struct loops *l, struct arena *a, int tensor); /* the tensor's name in C */
/* Offset of an index list as an affine form of letters, if it is one: sum of stride times index. */
bool expr_affine_offset(const struct loops *l, const struct memory *m, int tensor, int32_t first, struct affine *out);
void expr_strides(const struct loops *l, const struct memory *m, int tensor, int64_t *out_stride);

/* -- loops over letters, with a guard that is tested as early as possible; affine parts become the loops' bounds */
struct print_loops {
    int n;
    uint8_t letter[LOOPS_MAX_LETTERS]; /* outermost first */
    VECTOR(int32_t) guard;             /* parts of a conjunction */
    /* filled by loops_open */
    int opened;
    const char *low[LOOPS_MAX_LETTERS], *high[LOOPS_MAX_LETTERS]; /* the bounds as text, by position in `letter` */
    bool tested; /* a part of the guard became a test */
};
void loops_guard(struct print_expr *p, struct print_loops *l, int32_t guard); /* adds the parts of a guard, 0: none */
void loops_open(struct print_expr *p, struct print_loops *l);
void loops_close(struct print_expr *p, const struct print_loops *l);
/* Orders letters so that the one that moves least in memory in the reads below `node` comes last. */
void loops_order(const struct print_expr *p, struct print_loops *l, int32_t node);

/* -- reduce.c */
const char *print_reduction(struct print_expr *p, int32_t node, enum compute k); /* of one result, as a value */
/* Of one or more results: texts in out_value, of compute type k (positions: C_I64). */
void print_reduction_all(struct print_expr *p, int32_t node, enum compute k, const char **out_value);
/* The type of result i of a reduction whose values are of type k. */
enum compute reduction_type(const struct print_expr *p, int32_t node, int i, enum compute k);

/* -- guards.c: reads `t[i]:v` that a reduction skips without changing its result lose their test: its guard gets it */
void guards_from_reads(struct loops *l);

#endif
