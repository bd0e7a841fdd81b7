/* A contraction as the solvers see it, found by structure: y[..] = f(sum[K] a[..] * b[..]) and an epilogue.
 *
 * Index variables are sorted by who carries them: BATCH (a, b, y), M (a, y), N (b, y), K (a, b, summed). Every access
 * is flattened to a *view*: an element offset that is linear in the anchor's index variables, whatever the index
 * variables of its own statement. The epilogue is everything else: the anchor's expression around the sum and the
 * statements behind it, one value per element of the anchor's result. */
#ifndef SOL_DNN_PROBLEM_H
#define SOL_DNN_PROBLEM_H

#include "print/kernel.h"

#define PROBLEM_MAX_VIEWS 16

struct view { /* element c + sum of s[index variable] * index variable, from the tensor's element 0 */
    int stmt;
    int32_t node; /* the EX_READ; 0: what the statement writes */
    int tensor;
    int64_t c, s[LOOPS_MAX_IVARS];
};
struct operand { /* a or b */
    struct view view;
    int tensor, ndim;
    bool affine;
    struct affine index[SOL_MAX_DIMS];
    bool border[SOL_MAX_DIMS]; /* reads outside the memory, where the value is 0 */
    bool any_border;
};
struct problem {
    struct arena *arena;
    const struct cluster *c;
    struct loops *loops; /* a copy in which the sum is a read of tensor `sum` */
    const struct loops *was;
    int sum;
    enum sol_dtype dtype;
    int bytes;               /* of an element */
    uint64_t batch, m, n, k; /* sets of index variables */
    uint64_t valued;         /* index variables whose value the epilogue uses */
    struct operand a, b;
    int nview; /* of the epilogue: reads, and stores of tensors that are not TEMPs */
    struct view view[PROBLEM_MAX_VIEWS];
    struct affine
        *map[32]; /* by statement behind the anchor, by its index variable: the value in the anchor's index variables */
    int vector;   /* the N index variable the vectors run along: that of unit stride in what is stored, if there is
                     one, otherwise of the smallest stride; -1: there is no N index variable */
    int64_t
        order[LOOPS_MAX_IVARS]; /* strides of the first store, 0 for the vector index variable: the order of loops */
    bool unit;                  /* it has unit stride in every store */
    int weight;                 /* of the epilogue: about its instructions for each vector */
};

/* problem.c */

/* Finds the contraction of a cluster; `swap` lets the second factor be a. False: *out_why says why not. */
bool problem_make(struct arena *arena, const struct cluster *c, bool swap, struct problem *out, const char **out_why);
/* May a pack replace b: does nothing else read it? */
bool problem_packs_b(const struct problem *p);
static inline bool set_has(uint64_t set, int ivar)
{
    return set >> ivar & 1;
}
int64_t problem_size(const struct problem *p, uint64_t ivars); /* product of the index variables' sizes */
/* The number p[i] of a tensor among the kernel's operands. */
int problem_operand(const struct problem *p, int tensor);

/* offset.c: an element offset as C text; an index is a number, or a C expression of int64_t that binds as a factor */
struct offset {
    struct arena *arena;
    int64_t constant;
    const char *terms; /* NULL: none yet */
};
void offset_add(struct offset *o, const char *index, int64_t stride);
const char *offset_text(const struct offset *o);

/* axes.c: index variables merged to axes */

#define AXIS_MAX_IVARS 8
#define AXES_MAX 10
struct axis {
    int64_t size;
    int n;
    uint8_t ivar[AXIS_MAX_IVARS]; /* outermost first; the axis counts through them like digits */
};
struct axes {
    int n;
    struct axis at[AXES_MAX];
};
/* Index variables of a set as axes, ordered by the strides `by`, largest first; neighbours merge where all `n` stride
 * tables (by index variable) agree that they are one run. Index variables in `single` stay alone. False: too many. */
bool axes_make(const struct problem *p, uint64_t ivars, uint64_t single, const int64_t *by, int n,
               const int64_t *const *strides, struct axes *out);
static inline int64_t axis_stride(const struct axis *x, const int64_t *stride)
{
    return x->n ? stride[x->ivar[x->n - 1]] : 0;
}
/* C text of the value of index variable number i of an axis whose index is the text `index`. */
const char *axis_digit(const struct problem *p, const struct axis *x, int i, const char *index);
/* The same as an expression of `to`, of the axis index `node`. */
int32_t axis_digit_ex(const struct problem *p, const struct axis *x, int i, struct loops *to, int32_t node);

#endif
