/* A contraction as the solvers see it: y[..] = f(sum[K] a[..] * b[..]) with an epilogue. It is found by structure.
 *
 * Each index variable has a role, given by where it occurs: BATCH (a, b, y), M (a, y), N (b, y), K (a, b, summed).
 * Every access is flattened to a *view*: an element offset that is linear in the anchor's index variables, also for
 * accesses of other statements. The epilogue is everything else: the anchor's expression around the sum and the
 * statements after it, with one value per element of the anchor's result. */
#ifndef SOL_DNN_PROBLEM_H
#define SOL_DNN_PROBLEM_H

#include "print/kernel.h"

#define PROBLEM_MAX_VIEWS 16

/* An element offset from the tensor's element 0: c + sum of s[index variable] * index variable. These are sizes. */
struct view {
    int stmt;
    int32_t node; /* the EX_READ; 0: the statement's store */
    int tensor;
    int64_t c, s[LOOPS_MAX_IVARS];
};
struct operand { /* a or b */
    struct view view;
    int tensor, ndim;
    bool affine;
    struct affine index[SOL_MAX_DIMS];
    bool border[SOL_MAX_DIMS]; /* it may read outside of memory, where the value is 0 */
    bool any_border;
};
struct problem {
    struct arena *arena;
    const struct cluster *c;
    struct loops *loops; /* a copy in which a read of tensor `sum` replaces the sum */
    const struct loops *was;
    int sum;
    enum sol_dtype dtype;
    int bytes;               /* of an element */
    bool varies;             /* a size or a stride of the cluster varies: functions get the frame, `f` */
    uint64_t batch, m, n, k; /* sets of index variables */
    uint64_t valued;         /* index variables whose value the epilogue uses */
    struct operand a, b;
    int nview; /* of the epilogue: its reads, and stores of tensors that are not TEMPs */
    struct view view[PROBLEM_MAX_VIEWS];
    struct affine
        *map[32]; /* by statement after the anchor, by its index variable: the value in the anchor's index variables */
    /* the N index variable along which the vectors run: one of unit stride in the stores if possible, otherwise that of
     * the smallest stride; -1: there is no N index variable */
    int vector;
    int64_t
        /* strides of the first store, which order the loops; 0 for the vectors' index variable */
        order[LOOPS_MAX_IVARS];
    bool unit;  /* `vector` has unit stride in every store */
    int weight; /* of the epilogue: its instructions per vector, estimated */
};

/* problem.c */

/* Finds the contraction of a cluster; `swap` lets the second factor be a. False: *out_why says why not. */
bool problem_make(struct arena *arena, const struct cluster *c, bool swap, struct problem *out, const char **out_why);
/* May a packed copy replace b? It may if nothing else reads b. */
bool problem_packs_b(const struct problem *p);
static inline bool set_has(uint64_t set, int ivar)
{
    return set >> ivar & 1;
}
int64_t problem_size(const struct problem *p, uint64_t ivars); /* product of the index variables' sizes, a size */
/* A size as costs and cuts see it, and that product. */
static inline int64_t size_about(int64_t s)
{
    return size_varies(s) ? MAX(1, size_hint(s)) : s;
}
int64_t problem_about(const struct problem *p, uint64_t ivars);
/* Lanes of the vectors for `channels`, a size: no more than twice as many, for shorter vectors are never slower. */
int problem_lanes(const struct problem *p, const struct target *t, int64_t channels);
/* The magnitude of a stride, about. */
int64_t stride_about(int64_t s);
/* The beginning of a kernel's own functions where sizes vary: a first parameter, its argument, and what declares the
 * dimensions. Nothing otherwise. */
const char *problem_frame(const struct problem *p);
const char *problem_frame_argument(const struct problem *p);
void problem_open_sizes(const struct problem *p, struct text *out);
/* The number i of a tensor in the kernel's operands p[i]. */
int problem_operand(const struct problem *p, int tensor);
int problem_work(const struct problem *p); /* that of the first work buffer */

/* offset.c: an element offset as C text. An index is a number, or a C expression of type int64_t that needs no
 * parentheses as a factor. */
struct offset {
    struct arena *arena;
    int64_t constant;
    const char *terms; /* NULL: none yet */
};
void offset_add(struct offset *o, const char *index, int64_t stride);
const char *offset_text(const struct offset *o);
const char *offset_from(const struct offset *o, const char *base); /* "base + offset", or "base" */

/* lines.c: statements, several of which share a line */
struct lines {
    struct text *out;
    const char *end;    /* of each line: "", or " \\" in a macro */
    int indent, column; /* column: characters of the line so far */
};
void lines_add(struct lines *l, const char *statement);
void lines_end(struct lines *l); /* the next statement begins a line */

/* axes.c: index variables merged into axes */

#define AXIS_MAX_IVARS 8
#define AXES_MAX 10
struct axis {
    int64_t size;
    int n;
    uint8_t ivar[AXIS_MAX_IVARS]; /* outermost first, with the values of a mixed-radix number */
};
struct axes {
    int n;
    struct axis at[AXES_MAX];
};
/* How index variables become axes. Tables of strides have a number for every index variable. */
struct axes_rule {
    const int64_t *by; /* strides that order the axes, largest first */
    uint64_t single;   /* index variables that stay single */
    int n;             /* neighbours merge where these tables agree that both are one run of memory */
    const int64_t *strides[PROBLEM_MAX_VIEWS + 2];
};
/* In the order of the first store, merged where all views of the epilogue agree; the caller may add tables. */
struct axes_rule axes_rule_epilogue(const struct problem *p, uint64_t single);
struct axes_rule axes_rule_all(const struct problem *p, uint64_t single); /* and both factors, which are affine */
/* Makes axes of the index variables of a set. False: there are too many axes. */
bool axes_make(const struct problem *p, uint64_t ivars, const struct axes_rule *rule, struct axes *out);
int64_t axes_size(const struct axes *x); /* the product of their sizes */
static inline int64_t axis_stride(const struct axis *x, const int64_t *stride)
{
    return x->n ? stride[x->ivar[x->n - 1]] : 0;
}
/* C text of the value of index variable number i of an axis, where `index` is the text of the axis's index. */
const char *axis_digit(const struct problem *p, const struct axis *x, int i, const char *index);
/* The same as an expression of `to`, where `node` is the axis's index. */
int32_t axis_digit_ex(const struct problem *p, const struct axis *x, int i, struct loops *to, int32_t node);

#endif
